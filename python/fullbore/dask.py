"""Arrays of Dask whose chunks are read where the recordings are. Needs `fullbore[dask]`.

    >>> import fullbore, fullbore.dask
    >>> stream = fullbore.open("store/experiment_one")["46220"]     # doctest: +SKIP
    >>> stream.to_dask(chunks="256MiB").std(axis=0).compute()       # doctest: +SKIP
    >>> found = fullbore.dask.spectra("experiment", store="store")  # doctest: +SKIP

A chunk is a place and a range. It is read by the process that computes it: from the files of the store if its host has
them, else from a copy by ranges, at a station or in an object store.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Optional, Union

import numpy as np
from numpy.typing import NDArray

from ._extras import extra
from ._place import Place, Token
from ._reader import SampleReader
from ._samples import Samples
from ._scan import Roots, Scan, open, open_store
from ._stream import Stream
from ._sums import Sums, frequencies, segment_rows, spectral, weights

# Rows of time of a stream.
MOST_BINS = 1 << 20

Streams = Union[str, Scan, Stream, Iterable[Union[str, Scan, Stream]]]


def array(reader: SampleReader, chunks: Any = "256MiB") -> Any:
    """An array of Dask of a range of samples. `chunks` is the size of a chunk in memory, or its number of rows."""
    base, rows = extra("dask.base"), rows_of(reader, chunks)
    meta = np.empty((0, 0), dtype=reader.dtype)
    return extra("dask.array").from_array(
        reader,
        chunks=(rows, -1),
        name=f"fullbore-{base.tokenize(reader, rows)}",
        meta=np.ma.MaskedArray(meta) if reader.masked else meta,
        # The reader is small, and has no data: each task has its own.
        inline_array=True,
        asarray=False,
        fancy=False,
    )


def rows_of(reader: SampleReader, chunks: Any, multiple: int = 1) -> int:
    """The rows of chunks of a size, as a multiple of a number."""
    if isinstance(chunks, (int, np.integer)):
        rows = int(chunks)
    else:
        size = int(extra("dask.utils").parse_bytes(chunks))
        rows = size // max(1, reader.dtype.itemsize * len(reader.columns))
    if rows < 1:
        raise ValueError(f"chunks of {chunks} are smaller than one row of samples")
    return max(1, rows // multiple) * multiple


@dataclass(frozen=True)
class Spectra:
    """Spectra of a stream, in rows of time. `power` and `segments` are arrays of Dask: `compute()` makes numbers of them."""

    scan: str
    stream: str
    lines: list[str]
    """The names of the lines: `THREAD:CHANNEL`."""
    time: NDArray[np.datetime64]
    """The begin of each row, in UTC; NaT if the samples have no time."""
    seconds: NDArray[np.float64]
    """The same in seconds after the first sample."""
    frequency: NDArray[np.float64]
    """The frequency of each spectral channel in hertz; in cycles per sample if the sample rate is not known."""
    power: Any
    """Squares of levels, by row, spectral channel and line. NaN in rows without a whole segment."""
    segments: Any
    """The segments of each row and line that are whole."""


def spectra(
    what: Streams,
    *,
    store: Roots = None,
    channels: int = 1024,
    average: Optional[float] = None,
    window: str = "hann",
    chunks: Any = "256MiB",
    remote: Optional[str] = None,
    token: Token = None,
) -> dict[str, Spectra]:
    """Spectra of all streams of a session, of scans or of streams, by `SCAN/STREAM`. Nothing is read before they are computed.

    `average` is the length of a row in seconds; without it, there is one row. `channels` and `window` are those of
    `fullbore spectrum`, and so are the numbers. `remote` is where hosts without the store read, as in `Stream.to_dask`.
    """
    found = {}
    for stream in streams_of(what, store):
        samples = stream.samples
        reader = samples.reader(remote=remote, token=token)
        found[f"{stream.scan}/{stream.name}"] = _spectra(stream, samples, reader, channels, average, window, chunks)
    return found


def streams_of(
    what: Streams, store: Roots = None, *, skip_damaged: bool = False, token: Token = None
) -> Iterator[Stream]:
    """The streams that are meant: of a session, of scans, or single ones."""
    if isinstance(what, Stream):
        yield what
    elif isinstance(what, Scan):
        yield from what.values()
    elif not isinstance(what, str):
        for each in what:
            yield from streams_of(each, store, skip_damaged=skip_damaged, token=token)
    elif store is None:
        yield from open(what, skip_damaged=skip_damaged, token=token).values()
    else:
        yield from _of_store(what, list(store) if isinstance(store, (list, tuple)) else [store], skip_damaged)


def _of_store(text: str, roots: list[Any], skip_damaged: bool) -> Iterator[Stream]:
    scan, _, stream = text.partition("/")
    for name in open_store(*roots).sessions.get(text, [scan]):
        opened = open(name, store=roots, skip_damaged=skip_damaged)
        yield from [opened[stream]] if stream else opened.values()


def _spectra(
    stream: Stream, samples: Samples, reader: SampleReader, channels: int, average: Optional[float], window: str, chunks: Any
) -> Spectra:
    arrays, delayed = extra("dask.array"), extra("dask.delayed").delayed
    weights(window, 1)
    length, lines = segment_rows(reader, channels), len(reader.columns)
    rows = rows_of(reader, chunks, length)
    bins = bins_of(reader.rows, samples.sample_rate, average, length)
    powers, counts = [], []
    for first, behind in bins:
        parts = [
            delayed(spectral, pure=True)(reader, start, min(start + rows, behind), channels, window)
            for start in range(first, behind, rows)
        ]
        total = delayed(_mean, pure=True)(parts, channels, lines)
        powers.append(arrays.from_delayed(total[0], (1, channels, lines), dtype=np.float64))
        counts.append(arrays.from_delayed(total[1], (1, lines), dtype=np.int64))
    rate = samples.sample_rate
    begins = np.array([first for first, _ in bins], dtype=np.int64)
    timed = rate is not None and samples.start is not None
    return Spectra(
        scan=stream.scan,
        stream=stream.name,
        lines=[f"{line.thread}:{line.channel}" for line in samples.lines],
        time=samples.time(begins) if timed else np.full(len(bins), "NaT", dtype="datetime64[ns]"),
        seconds=begins / rate if rate else np.full(len(bins), np.nan),
        frequency=frequencies(reader, channels, rate or 1.0),
        power=arrays.concatenate(powers),
        segments=arrays.concatenate(counts),
    )


def _mean(parts: list[Sums], channels: int, lines: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    power, segments = np.zeros((channels, lines)), np.zeros(lines, dtype=np.int64)
    for part in parts:
        power += part["power"]
        segments += part["segments"]
    with np.errstate(invalid="ignore", divide="ignore"):
        return (power / segments)[np.newaxis], segments[np.newaxis]


def bins_of(count: int, rate: Optional[float], average: Optional[float], multiple: int = 1) -> list[tuple[int, int]]:
    """The rows of each bin of time; they begin at multiples of a number of rows."""
    if average is None:
        return [(0, count)]
    if rate is None:
        raise ValueError("the sample rate is not known, so rows of time need one")
    length = average * rate
    if not length >= 1:
        raise ValueError(f"{average} s is shorter than one sample")
    # A segment belongs to the bin that it begins in.
    number = max(1, math.ceil(count / length))
    if number > MOST_BINS:
        raise ValueError(f"{average} s would make {number} rows, and there may be {MOST_BINS}")
    edges = [min(count, -(-round(bin * length) // multiple) * multiple) for bin in range(number)] + [count]
    return [(first, behind) for first, behind in zip(edges, edges[1:]) if first < behind] or [(0, count)]


def near(client: Any, places: Iterable[Place]) -> dict[Place, list[str]]:
    """The workers of a cluster whose host has the files of each place, for `workers=` of `Client.submit`."""
    wanted = list(dict.fromkeys(places))
    told: dict[str, list[bool]] = client.run(_are_here, wanted)
    return {place: [worker for worker, here in told.items() if here[number]] for number, place in enumerate(wanted)}


def _are_here(places: list[Place]) -> list[bool]:
    return [place.is_here() for place in places]
