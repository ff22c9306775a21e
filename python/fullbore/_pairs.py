"""The analysis `correlate`: pairs of streams, each a baseline of two stations or channels."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import combinations
from typing import Any, Optional

import numpy as np

from . import _sums
from ._analyses import Binned, Result, Source, Work
from ._cluster import Task
from ._correlate import Grid, Side, length_of, peak, products
from ._delays import DelayModel
from .dask import bins_of, rows_of


def pairs_of(sources: list[Source], text: Optional[str]) -> list[tuple[Source, Source]]:
    """The pairs that `--pairs a:b,a:c` names, else all."""
    if text is None:
        if len(sources) < 2:
            raise ValueError("a correlation needs two streams")
        return list(combinations(sources, 2))
    return [_pair(sources, part) for part in text.split(",")]


def _pair(sources: list[Source], text: str) -> tuple[Source, Source]:
    names = text.split(":")
    if len(names) != 2:
        raise ValueError(f"`{text}` is not a pair: write STREAM:STREAM, or SCAN/STREAM:SCAN/STREAM")
    found = []
    for name in names:
        meant = [source for source in sources if name in (source.name, source.stream)]
        if len(meant) != 1:
            known = ", ".join(source.name for source in sources[:8])
            raise ValueError(f"`{name}` names {len(meant)} streams of those given: {known}")
        found.append(meant[0])
    return found[0], found[1]


def correlate(one: Source, other: Source, options: argparse.Namespace, model: DelayModel) -> Work:
    """Cross-power, coherence and the peak over delay of two streams, line by line, in rows of time."""
    names = f"{one.name}:{other.name}"
    grid, sides, count = _grid(one, other, options, model)
    bins = [
        (first // grid.length, behind // grid.length)
        for first, behind in bins_of(count * grid.length, grid.hertz, options.average, grid.length)
    ]
    binned = Binned(bins, max(1, rows_of(one.reader, options.chunks) // grid.length))
    tasks = []
    for _, start, end in binned.pieces:
        times = grid.middle_ns(np.array([start, end - 1]))
        parts = [
            Side(side.reader, side.name, side.start_ns, side.model.within(side.name, int(times[0]), int(times[1])))
            for side in sides
        ]
        tasks.append(Task(products, (*parts, grid, start, end), (one.reader.place, other.reader.place)))

    def result() -> Result:
        cross, segments = binned.column("cross"), binned.column("segments")
        powers = binned.column("first"), binned.column("second")
        with np.errstate(invalid="ignore", divide="ignore"):
            coherence = np.abs(cross) / np.sqrt(powers[0] * powers[1])
        lines = one.lines
        peaks = [
            [
                peak(cross[bin, :, line], powers[0][bin, :, line], powers[1][bin, :, line], grid, int(segments[bin, line]))
                for line in range(len(lines))
            ]
            for bin in range(len(cross))
        ]
        seconds = np.array([first for first, _ in bins]) * grid.length / grid.hertz
        keys = {"delay_s": "delay", "coherence": "coherence", "phase_degrees": "phase", "snr": "snr"}
        found = {name: np.array([[getattr(it, key) for it in row] for row in peaks]) for name, key in keys.items()}
        best = np.unravel_index(np.argmax(np.nan_to_num(found["snr"])), found["snr"].shape)

        def rows() -> Iterator[tuple[Any, ...]]:
            for second, row, counts in zip(seconds, peaks, segments):
                for line, it, count in zip(lines, row, counts):
                    yield second, line, it.delay, it.coherence, it.phase, it.snr, int(count)

        with np.errstate(invalid="ignore", divide="ignore"):
            mean = cross / segments[:, np.newaxis, :]
        frequency = _sums.frequencies(one.reader, grid.channels, grid.hertz)
        return Result(
            names,
            {"lines": lines, "rows": len(peaks), "segments": segments.sum(axis=0),
             "left_out": binned.column("left_out").sum(axis=0),
             **{name: float(values[best]) for name, values in found.items()}},
            {"cross": mean, "spectral_coherence": coherence, "frequency": frequency, "seconds": seconds, "segments": segments,
             "lines": lines, **found},
            ["seconds", "line", "delay_s", "coherence", "phase_degrees", "snr", "segments"], rows,
        )  # fmt: skip

    return Work(names, tasks, binned.take, result)


def _grid(one: Source, other: Source, options: argparse.Namespace, model: DelayModel) -> tuple[Grid, list[Side], int]:
    """The segments of both streams that have a place in both, and the streams."""
    rates = [source.samples._native.rate for source in (one, other)]
    kinds = {(source.reader.dtype.kind, len(source.reader.columns)) for source in (one, other)}
    if rates[0] is None or rates[0] != rates[1] or len(kinds) > 1:
        raise ValueError(f"{one.name} and {other.name} differ in sample rate, lines or kind of samples")
    sides, ends = [], []
    for source in (one, other):
        start = source.samples._native.start_ns
        if start is None:
            raise ValueError(f"{source.name}: its samples have no time")
        begin = start + round(source.reader.start * rates[0][1] * 1_000_000_000 / rates[0][0])
        sides.append(Side(source.reader, source.stream if source.stream in model.tables else source.name, begin, model))
        ends.append(begin + round(source.reader.rows * rates[0][1] * 1_000_000_000 / rates[0][0]))
    start = max(side.start_ns for side in sides)
    length = length_of(one.reader, options.channels)
    count = int((min(ends) - start) * rates[0][0] // (rates[0][1] * 1_000_000_000 * length))
    if count < 1:
        raise ValueError(f"{one.name} and {other.name} have no time in common")
    return Grid(start, rates[0], options.channels, length, options.window, options.sky_frequency), sides, count


def tables_of(options: argparse.Namespace) -> DelayModel:
    """The model that is named, or none."""
    model: Any = options.model
    return DelayModel.none() if model is None else DelayModel.read(model)
