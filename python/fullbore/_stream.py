"""Streams: their frames, times, gaps and accounts."""

from __future__ import annotations

import io
import json
import operator
from collections.abc import Iterator
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from html import escape
from typing import Any, Optional, cast

import numpy as np
from numpy.typing import NDArray

from . import _native, _plots, _tables
from ._arrays import Readable
from ._extras import extra
from ._html import table, timeline
from ._place import Place
from ._products import Product, product
from ._samples import Samples
from ._time import astropy_time, datetime64, is_time, unix_ns


@dataclass(frozen=True)
class Gap:
    """A run of frames that are not in the recording.

    `first` counts frames from 0, as `frames` does. If absent frames have no places (a stream that is stored in order of
    arrival), it is the number that the sender counted.
    """

    first: int
    count: int
    cause: str


@dataclass(frozen=True)
class Block:
    """Consecutive frames of a stream."""

    first: int
    """The first frame, counted from 0."""
    bytes: NDArray[np.uint8]
    """The bytes: a row for each frame; one row if the frames differ in length."""
    valid: NDArray[np.bool_]
    """For each frame, whether it was received; empty if the frames differ in length."""
    time: Optional[np.datetime64]
    """The time of the first frame, in UTC."""


class Times(Readable):
    """The times of frames in UTC, as `numpy.datetime64[ns]`, by the clock of the frames, else by that of the host."""

    def __init__(self, native: _native.Stream) -> None:
        self._native = native

    def __len__(self) -> int:
        return self._native.count()

    def __getitem__(self, key: Any) -> Any:
        start, end, step, single = span(key, len(self), self._native)
        times = np.empty(end - start, dtype=np.int64)
        self._native.read_times(start, end, times)
        utc = times.view("datetime64[ns]")
        return utc[0] if single else utc[::step]

    @property
    def start(self) -> Optional[np.datetime64]:
        """The time of the first frame."""
        return cast(np.datetime64, self[0]) if len(self) else None

    @property
    def end(self) -> Optional[np.datetime64]:
        """The time of the last frame."""
        return cast(np.datetime64, self[len(self) - 1]) if len(self) else None

    def astropy(self, key: Any = slice(None)) -> Any:
        """Times as a `Time` of astropy."""
        return astropy_time(self[key])

    def __repr__(self) -> str:
        return f"<Times of {len(self)} frames from {self.start} to {self.end}>"


class Valid(Readable):
    """For each frame, whether it was received and stored. Read from the index, not from the data."""

    def __init__(self, native: _native.Stream) -> None:
        self._native = native

    def __len__(self) -> int:
        return self._native.count()

    def __getitem__(self, key: Any) -> Any:
        start, end, step, single = span(key, len(self), self._native)
        valid = np.empty(end - start, dtype=np.bool_)
        self._native.read_valid(start, end, valid)
        return bool(valid[0]) if single else valid[::step]


class Frames(Readable):
    """The frames of a stream: an array of bytes with a row for each, headers and fill included.

    A slice is read when it is taken, into memory that numpy owns. Its ends are numbers of frames, or times. Frames that
    are not stored are zeros; `valid` tells which frames were received.
    """

    ndim = 2
    dtype = np.dtype(np.uint8)

    def __init__(self, native: _native.Stream) -> None:
        self._native = native
        self.valid = Valid(native)

    @property
    def shape(self) -> tuple[int, int]:
        """Frames, and bytes of each."""
        return self._native.count(), self._native.frame_bytes()

    def __len__(self) -> int:
        return self._native.count()

    def __getitem__(self, key: Any) -> NDArray[np.uint8]:
        rest: tuple[Any, ...] = ()
        if isinstance(key, tuple):
            key, rest = key[0], key[1:]
        start, end, step, single = span(key, len(self), self._native)
        rows = self._rows(start, end, None)
        read = rows[0] if single else rows[::step]
        if not rest:
            return read
        return cast("NDArray[np.uint8]", read[rest if single else (slice(None), *rest)])

    def read(self, start: Any = None, end: Any = None) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """The frames of a range, as a slice has it, and for each whether it was received."""
        first, behind, _, _ = span(slice(start, end), len(self), self._native)
        valid = np.empty(behind - first, dtype=np.bool_)
        return self._rows(first, behind, valid), valid

    def _rows(self, start: int, end: int, valid: Optional[NDArray[np.bool_]]) -> NDArray[np.uint8]:
        width = self._native.frame_bytes()
        rows = np.empty((end - start) * width, dtype=np.uint8)
        self._native.read_frames(start, end, rows, valid)
        return rows.reshape(-1, width)

    def masked(self, key: Any = slice(None)) -> np.ma.MaskedArray[Any, Any]:
        """Frames as a masked array: those that were not received are masked."""
        start, end, step, _ = span(key, len(self), self._native)
        rows, valid = self.read(start, end)
        mask = np.broadcast_to(~valid[:, np.newaxis], rows.shape)
        return np.ma.MaskedArray(rows[::step], mask=mask[::step])

    def blocks(self, start: Any = 0) -> Iterator[Block]:
        """The blocks of the stream from the one that holds a frame, or a time, on. They are read ahead."""
        return blocks(self._native, span(slice(start, None), len(self), self._native)[0], False)

    def __repr__(self) -> str:
        frames, width = self.shape
        return f"<Frames: {frames} of {width} bytes>"


class StreamFile(io.RawIOBase):
    """The stored bytes of a stream as a file that is read: what `fullbore cat` prints."""

    def __init__(self, native: _native.Stream, name: str) -> None:
        self.name = name
        self._native = native
        self._width = native.frame_bytes()
        self._runs = native.stored()
        # The stored frames before each run, and before the end.
        self._before = [0]
        for start, end in self._runs:
            self._before.append(self._before[-1] + end - start)
        self._size = self._before[-1] * self._width
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"{base + offset} is before the start of the file")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        into = memoryview(buffer).cast("B")
        if self._at >= self._size:
            return 0
        frame, skip = divmod(self._at, self._width)
        number = bisect_right(self._before, frame) - 1
        start, end = self._runs[number]
        first = start + frame - self._before[number]
        count = min(-(-(skip + len(into)) // self._width), end - first)
        rows = np.empty(count * self._width, dtype=np.uint8)
        self._native.read_frames(first, first + count, rows)
        taken = rows[skip : skip + len(into)]
        into[: len(taken)] = taken.data
        self._at += len(taken)
        return len(taken)


class Stream:
    """One stream of a scan."""

    def __init__(self, native: _native.Stream, name: str, place: Place) -> None:
        self._native = native
        self.name = name
        """Its name."""
        self.scan = place.scan
        """The name of its scan."""
        self._place = place
        self.frames = Frames(native)
        """The frames, as bytes."""
        self.time = Times(native)
        """The time of each frame."""

    @cached_property
    def samples(self) -> Samples:
        """The samples, decoded. `samples_at` is for streams that do not state their sample rate."""
        return Samples(self._native.samples(), self.name, self._place)

    def samples_at(self, rate: Any) -> Samples:
        """The samples at a rate of each channel: a number in hertz, or a quantity of astropy."""
        hertz = rate.to_value("Hz") if hasattr(rate, "to_value") else rate
        # A float means the decimal number that it is written as.
        exact = Fraction(str(hertz)) if isinstance(hertz, (float, np.floating)) else Fraction(hertz)
        if not 0 < exact.numerator < 2**63 > exact.denominator:
            raise ValueError(f"the sample rate is a positive number of hertz, and not {rate}")
        ratio = exact.numerator, exact.denominator
        return Samples(self._native.samples(ratio), self.name, self._place, ratio)

    def to_dask(self, start: Any = None, end: Any = None, *, chunks: Any = "256MiB", **options: Any) -> Any:
        """The samples, or a range of them, as an array of Dask with a row for each moment and a column for each line.

        `chunks` is the size of a chunk in memory, or its number of rows. A chunk is a place and a range. The process that
        computes it reads it: from the files if its host has them, else from the copy at `remote`, which is the address of
        a station (`http://HOST:PORT`, with its `token`) or of a place in an object store. `start`, `end`, `channels` and
        `dtype` are those of `samples`. Absent samples are NaN, or masked with `masked`. Needs fullbore[dask].
        """
        return self.samples.to_dask(start, end, chunks=chunks, **options)

    @property
    def valid(self) -> Valid:
        """For each frame, whether it was received and stored."""
        return self.frames.valid

    @property
    def has_places(self) -> bool:
        """True if frames that are not in the recording have places among its frames."""
        return self._native.has_places()

    @property
    def gaps(self) -> list[Gap]:
        """Runs of frames that are not in the recording, with their causes."""
        base = self._native.first_index() if self.has_places else 0
        return [Gap(first - base, count, cause) for first, count, cause in self._native.gaps()]

    @property
    def account(self) -> Any:
        """The account, as its schema describes it; `None` as long as the scan is being recorded."""
        return json.loads(self._native.account())

    @property
    def manifest(self) -> Any:
        """What the manifest of the scan says of the stream."""
        return json.loads(self._native.described())

    @property
    def nbytes(self) -> int:
        """Bytes that are stored."""
        return self._native.stored_bytes()

    def follow(self, start: Any = 0) -> Iterator[Block]:
        """The blocks of the stream from a frame on; while the scan is being recorded, those that come too.

        The recorder comes first: few reads, and only of what is durable. The iteration ends when the scan is sealed.
        """
        return blocks(self._native, span(slice(start, None), len(self.frames), self._native)[0], True)

    def as_file(self) -> io.BufferedReader:
        """The stored bytes as a binary file: what `fullbore cat` prints."""
        return io.BufferedReader(StreamFile(self._native, f"{self.scan}/{self.name}"), 1 << 20)

    def to_baseband(self, **options: Any) -> Any:
        """The stream as a stream reader of baseband: VDIF, or Mark 5B with the options that it needs."""
        name = self.manifest["format"]["name"]
        if name not in ("vdif", "mark5b"):
            raise _native.UnsupportedError(f"stream {self.name}: baseband does not read its format, {name}")
        module = extra(f"baseband.{name}")
        if "sample_rate" not in options:
            rate = self.samples.sample_rate
            if rate is not None:
                options["sample_rate"] = extra("astropy.units").Quantity(rate, "Hz")
        if name == "mark5b" and "ref_time" not in options and "kday" not in options:
            options["ref_time"] = self.time.astropy(0)
        return module.open(self.as_file(), "rs", **options)

    def to_pandas(self) -> Any:
        """The gaps as a `DataFrame` of pandas."""
        return _tables.gaps(self)

    def spectrum(self, **options: Any) -> Product:
        """The spectrum of each line. Options are those of `fullbore spectrum`: `channels`, `window`, `start`, `length`, …"""
        return self._product("spectrum", options)

    def waterfall(self, **options: Any) -> Product:
        """Spectra over time: a row for each `average`, such as `"100ms"`."""
        return self._product("waterfall", options)

    def histogram(self, **options: Any) -> Product:
        """How many samples are at each level."""
        return self._product("histogram", options)

    def series(self, **options: Any) -> Product:
        """The power of each line over time: a value for each `average`, such as `"100ms"`."""
        return self._product("series", options)

    def cross(self, first: Any, second: Any, **options: Any) -> Product:
        """Power, phase and coherence of two lines, each a number or `"THREAD:CHANNEL"`."""
        return self._product("cross", {"lines": [first, second], **options})

    def _product(self, kind: str, options: dict[str, Any]) -> Product:
        if not self._place.roots:
            raise _native.UnsupportedError("spectra are computed of scans in a store: `fullbore receive --from` fetches a copy")
        return product(f"{self.scan}/{self.name}", list(self._place.roots), kind, **options)

    def plot(self, axes: Any = None) -> Any:
        """Draws the account with matplotlib, and returns the axes."""
        return _plots.account({self.name: self.account}, axes)

    def __repr__(self) -> str:
        return f"<Stream {self.scan}/{self.name}: {len(self.frames)} frames, {self.nbytes} bytes>"

    def _repr_html_(self) -> str:
        terms = (self.account or {}).get("terms", {})
        name = escape(f"{self.scan}/{self.name}")
        return f"<b>{name}</b>{table(list(terms), [list(terms.values())])}{self._timeline([])}"

    def _timeline(self, markers: list[Any]) -> str:
        count = self._native.count()
        if not self.has_places or count < 1:
            return ""
        base = self._native.first_index()
        marks = [
            (place["frame"] - base, str(marker["text"]))
            for marker in markers
            for place in marker["positions"]
            if place["stream"] == self.name and place["frame"] is not None
        ]
        return timeline(count, [(gap.first, gap.count, gap.cause) for gap in self.gaps], marks)


def blocks(native: _native.Stream, first: int, follow: bool) -> Iterator[Block]:
    """Blocks one after the other. A wait is short, so that Ctrl-C ends it."""
    reader = native.blocks(first, follow)
    while True:
        try:
            read = reader.next()
        except StopIteration:
            return
        if read is not None:
            begin, width, data, valid, ns = read
            yield Block(begin, data.reshape(-1, width or data.size), valid, datetime64(ns))


def span(key: Any, count: int, native: _native.Stream) -> tuple[int, int, int, bool]:
    """Start, end and step of an index, and whether it is a single one. The ends of a slice may be times."""
    if isinstance(key, slice):
        ends = [native.frame_at(unix_ns(end)) if is_time(end) else end for end in (key.start, key.stop)]
        start, end, step = slice(ends[0], ends[1], key.step).indices(count)
        if step < 0:
            raise IndexError("a slice of a recording goes forward; reverse the array that it gives")
        return start, max(start, end), step, False
    if key is Ellipsis:
        return 0, count, 1, False
    at = native.frame_at(unix_ns(key)) if is_time(key) else operator.index(key)
    at = at + count if at < 0 else at
    if not 0 <= at < count:
        raise IndexError(f"there is no frame {key}: the stream has {count}")
    return at, at + 1, 1, True
