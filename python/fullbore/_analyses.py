"""The analyses of `fullbore analyse`: each divides its streams into tasks, and makes results of what the tasks return."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from . import _sums
from ._cluster import Task
from ._reader import SampleReader
from ._samples import Samples
from ._subband import Band, extract
from .dask import bins_of, rows_of


@dataclass
class Source:
    """A stream that is analysed."""

    scan: str
    stream: str
    samples: Samples
    reader: SampleReader

    @property
    def name(self) -> str:
        """`SCAN/STREAM`."""
        return f"{self.scan}/{self.stream}"

    @property
    def lines(self) -> list[str]:
        """The names of the lines."""
        return [f"{line.thread}:{line.channel}" for line in self.samples.lines]

    @property
    def rate(self) -> float:
        """Samples per second. Without it, an error."""
        rate = self.samples.sample_rate
        if rate is None:
            raise ValueError(f"{self.name}: the sample rate is not known; --sample-rate gives it")
        return rate

    def seconds(self, rows: list[int]) -> NDArray[np.float64]:
        """The times of rows of the reader, in seconds after the first sample of the stream."""
        return (self.reader.start + np.asarray(rows, dtype=np.float64)) / (self.samples.sample_rate or np.nan)


@dataclass
class Result:
    """What an analysis found in a stream, or in two."""

    name: str
    summary: dict[str, Any]
    """A few numbers for people and scripts."""
    arrays: dict[str, Any] = field(default_factory=dict)
    """All numbers, as they are saved."""
    columns: list[str] = field(default_factory=list)
    """The names of the columns of a table."""
    rows: Callable[[], Iterator[tuple[Any, ...]]] = lambda: iter(())
    """The same numbers as rows of it."""


@dataclass
class Work:
    """The tasks of one result, in order; `take` gets what each returned, and `result` makes the result of all."""

    name: str
    tasks: list[Task]
    take: Callable[[int, Any], None]
    result: Callable[[], Result]


class Binned:
    """Sums of pieces, added up in bins of time."""

    def __init__(self, bins: list[tuple[int, int]], rows: int) -> None:
        self.bins = bins
        self.pieces = [
            (bin, start, min(start + rows, behind))
            for bin, (first, behind) in enumerate(bins)
            for start in range(first, behind, rows)
        ]
        self.sums: list[Optional[_sums.Sums]] = [None] * len(bins)

    def take(self, number: int, part: _sums.Sums) -> None:
        """Adds a piece."""
        bin = self.pieces[number][0]
        before = self.sums[bin]
        self.sums[bin] = part if before is None else _sums.add(before, part)

    def column(self, name: str) -> NDArray[Any]:
        """A sum by bin."""
        return np.array([sums[name] for sums in self.sums if sums is not None])


def spectra(source: Source, options: argparse.Namespace) -> Work:
    """The spectrum of each line, in rows of time."""
    channels, reader = options.channels, source.reader
    length = _sums.segment_rows(reader, channels)
    bins = bins_of(reader.rows, source.samples.sample_rate, options.average, length)
    binned = Binned(bins, rows_of(reader, options.chunks, length))

    def result() -> Result:
        segments, left_out = binned.column("segments"), binned.column("left_out")
        with np.errstate(invalid="ignore", divide="ignore"):
            power = binned.column("power") / segments[:, np.newaxis, :]
        rate = source.samples.sample_rate
        frequency = _sums.frequencies(reader, channels, rate or 1.0)
        seconds = source.seconds([first for first, _ in binned.bins])
        with np.errstate(invalid="ignore"):
            total = np.nansum(binned.column("power"), axis=0) / np.maximum(1, segments.sum(axis=0))
        strongest = frequency[np.argmax(total, axis=0)]

        def rows() -> Iterator[tuple[Any, ...]]:
            for second, row, counts in zip(seconds, power, segments):
                for name, column, count in zip(source.lines, row.T, counts):
                    for at, value in zip(frequency, column):
                        yield second, name, at, value, int(count)

        unit = "frequency_hz" if rate else "cycles_per_sample"
        return Result(
            source.name,
            {"lines": source.lines, "rows": len(power), "segments": segments.sum(axis=0), "left_out": left_out.sum(axis=0),
             "mean_square": total.sum(axis=0), "strongest": strongest},
            {"power": power, "frequency": frequency, "seconds": seconds, "segments": segments, "left_out": left_out,
             "lines": source.lines},
            ["seconds", "line", unit, "power", "segments"], rows,
        )  # fmt: skip

    tasks = [
        Task(_sums.spectral, (reader, start, end, channels, options.window), (reader.place,))
        for _, start, end in binned.pieces
    ]
    return Work(source.name, tasks, binned.take, result)


def power(source: Source, options: argparse.Namespace) -> Work:
    """The mean square of each line, in rows of time."""
    binned, tasks = _moments(source, options)

    def result() -> Result:
        values, absent = binned.column("values"), binned.column("absent")
        parts = 2 if source.reader.dtype.kind == "c" else 1
        with np.errstate(invalid="ignore", divide="ignore"):
            squares = parts * binned.column("sums")[:, 1] / values
            mean = parts * binned.column("sums")[:, 1].sum(axis=0) / values.sum(axis=0)
        seconds = source.seconds([first for first, _ in binned.bins])

        def rows() -> Iterator[tuple[Any, ...]]:
            for second, *columns in zip(seconds, squares, values, absent):
                for name, value, there, gone in zip(source.lines, *columns):
                    yield second, name, value, int(there), int(gone)

        return Result(
            source.name,
            {"lines": source.lines, "rows": len(squares), "mean_square": mean, "absent": absent.sum(axis=0)},
            {"power": squares, "seconds": seconds, "values": values, "absent": absent, "lines": source.lines},
            ["seconds", "line", "power", "values", "absent"],
            rows,
        )

    return Work(source.name, tasks, binned.take, result)


def statistics(source: Source, options: argparse.Namespace) -> Work:
    """Mean, deviation, skewness, kurtosis and extremes of each line, and how much of it is absent."""
    binned, tasks = _moments(source, options)

    def result() -> Result:
        seconds = source.seconds([first for first, _ in binned.bins])
        told = _central(binned)

        def rows() -> Iterator[tuple[Any, ...]]:
            for bin, second in enumerate(seconds):
                for line, name in enumerate(source.lines):
                    yield second, name, *(told[key][bin, line].item() for key in told)

        summary = {key: told[key][0] if len(seconds) == 1 else told[key] for key in ("mean", "deviation", "absent")}
        arrays = {**told, "seconds": seconds, "lines": source.lines}
        return Result(
            source.name, {"lines": source.lines, "rows": len(seconds), **summary}, arrays, ["seconds", "line", *told], rows
        )

    return Work(source.name, tasks, binned.take, result)


def _moments(source: Source, options: argparse.Namespace) -> tuple[Binned, list[Task]]:
    reader = source.reader
    bins = bins_of(reader.rows, source.samples.sample_rate, options.average)
    binned = Binned(bins, rows_of(reader, options.chunks))
    return binned, [Task(_sums.moments, (reader, start, end), (reader.place,)) for _, start, end in binned.pieces]


def _central(binned: Binned) -> dict[str, NDArray[Any]]:
    """Central moments, from sums of powers."""
    values = binned.column("values")
    with np.errstate(invalid="ignore", divide="ignore"):
        one, two, three, four = np.moveaxis(binned.column("sums") / values[:, np.newaxis], 1, 0)
        variance = two - one**2
        third = three - 3 * one * two + 2 * one**3
        fourth = four - 4 * one * three + 6 * one**2 * two - 3 * one**4
        shape = {"skewness": third / variance**1.5, "kurtosis": fourth / variance**2}
    none = values == 0
    extremes = {key: np.where(none, np.nan, binned.column(name)) for key, name in (("minimum", "least"), ("maximum", "most"))}
    deviation = np.sqrt(np.maximum(0, variance))
    counts = {"values": values, "absent": binned.column("absent")}
    return {"mean": one, "deviation": deviation, **shape, **extremes, **counts}


def subband(source: Source, options: argparse.Namespace) -> Work:
    """A part of the band as complex samples at a lower rate, written as they come."""
    reader = source.reader
    band = Band(options.centre, options.width, source.rate)
    band.check(reader.dtype.kind == "c")
    rows = -(-reader.rows // band.step)
    each = max(1, rows_of(reader, options.chunks) // band.step)
    starts = range(0, rows, each)
    path = options.output_of(source.name)
    opened: dict[str, Any] = {}
    absent = np.zeros(len(reader.columns), dtype=np.int64)

    def take(number: int, values: NDArray[np.complex64]) -> None:
        if "values" not in opened:
            shape = (rows, len(reader.columns))
            opened["values"] = open_memmap(path.part, mode="w+", dtype=np.complex64, shape=shape)
        opened["values"][starts[number] : starts[number] + len(values)] = values
        absent[:] += np.isnan(values).sum(axis=0)

    def result() -> Result:
        if "values" in opened:
            opened.pop("values").flush()
        timed = source.samples.start is not None
        start = f"{source.samples.time(reader.start)}Z" if timed else None
        return Result(
            source.name,
            {"lines": source.lines, "rows": rows, "sample_rate": band.rate / band.step, "centre": band.centre,
             "start": start, "absent": absent, "taps": band.taps},
        )  # fmt: skip

    tasks = [Task(extract, (reader, start, min(start + each, rows), band), (reader.place,)) for start in starts]
    return Work(source.name, tasks, take, result)
