"""Decoded samples."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Optional, Union

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _native, _tables
from ._arrays import Readable
from ._place import Place, Token
from ._reader import SampleReader
from ._time import datetime64, is_time, seconds_of, unix_ns

Channels = Union[None, int, str, "Line", Iterable[Union[int, str, "Line"]]]

# The types of values that other processes read.
KINDS = ("float32", "complex64", "int8", "int16", "int32")

# Rows of a block in iterations, if no number is given: 16 MiB of floats for each line.
ROWS = 1 << 22


@dataclass(frozen=True)
class Line:
    """A channel of a thread: one signal, a column of the samples."""

    thread: int
    channel: int


class Samples(Readable):
    """The samples of a stream: a row for each moment, a column for each line.

    Row 0 is the first sample that was received, and each row has the place that time gives it. Slices are numbers of
    rows, or times; `samples(start, end, …)` takes seconds as well. Values that were not received are NaN as floats, and
    0 as integers.
    """

    ndim = 2

    def __init__(
        self, native: _native.Samples, name: str, place: Place, rate: Optional[tuple[int, int]] = None
    ) -> None:
        self._native = native
        self._name = name
        self._place = place
        self._rate = rate
        self.lines = [Line(thread, channel) for thread, channel in native.lines]
        """The lines, in the order of columns."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and lines."""
        return self._native.count, len(self.lines)

    def __len__(self) -> int:
        return self._native.count

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of values, unless another one is asked for."""
        return np.dtype(np.complex64 if self._native.complex else np.float32)

    @property
    def sample_rate(self) -> Optional[float]:
        """Samples of each line per second."""
        rate = self._native.rate
        return None if rate is None else rate[0] / rate[1]

    @property
    def start(self) -> Optional[np.datetime64]:
        """The time of row 0, in UTC."""
        return datetime64(self._native.start_ns)

    @property
    def layout(self) -> Any:
        """Encoding, channels, scale and unit, as in a manifest."""
        return json.loads(self._native.layout())

    def time(self, row: Any) -> Any:
        """The time of a row, or of an array of rows, in UTC."""
        start, rate = self._native.start_ns, self._native.rate
        if start is None or rate is None:
            raise _native.UnsupportedError("the samples have no time: give the rate with samples_at")
        rows = np.asarray(row, dtype=np.int64)
        per, below = rate
        most = max(int(np.abs(rows).max(initial=0)) * below, per * 1_000_000_000)
        # Integers of Python where a product would not fit 64 bits.
        exact = rows if most < 2**63 else rows.astype(object)
        seconds, rest = exact * below // per, exact * below % per
        ns = start + seconds * 1_000_000_000 + rest * 1_000_000_000 // per
        return np.asarray(ns).astype(np.int64).astype("datetime64[ns]")[()]

    def __call__(
        self,
        start: Any = None,
        end: Any = None,
        *,
        channels: Channels = None,
        dtype: Optional[DTypeLike] = None,
        masked: bool = False,
        out: Optional[NDArray[Any]] = None,
    ) -> Any:
        """Reads and decodes a range.

        `start` and `end` are rows as integers, seconds after row 0 as floats or quantities, or times. `channels` selects lines by
        number, as `"THREAD:CHANNEL"`, or as `Line`; one alone gives an array of one dimension. `dtype` is `f4`, or
        `i1`, `i2` or `i4` for integers; complex integers have a last axis of real and imaginary part. With `masked`,
        the result is a masked array. `out` is a contiguous array of the shape and the type of the result, which takes
        it: the system then gives no new memory, which is faster.
        """
        first = 0 if start is None else self._row(start)
        behind = len(self) if end is None else self._row(end)
        columns, single = self._columns(channels)
        behind = max(first, behind)
        if out is None:
            values, valid = self._read(first, behind, columns, dtype, masked)
        else:
            shape = (behind - first,) if single else (behind - first, len(columns))
            memory = self._memory(out, shape, dtype)
            values, valid = self._read(first, behind, columns, out.dtype, masked, memory)
        if single:
            values, valid = values[:, 0], None if valid is None else valid[:, 0]
        if valid is None:
            return values
        mask = ~valid if values.ndim == valid.ndim else np.repeat(~valid[..., np.newaxis], 2, -1)
        return np.ma.MaskedArray(values, mask=mask)

    def __getitem__(self, key: Any) -> Any:
        rows, rest = (key[0], key[1:]) if isinstance(key, tuple) else (key, ())
        if isinstance(rows, slice):
            ends = [end if end is None or not is_time(end) else self._row(end) for end in (rows.start, rows.stop)]
            first, behind, step = slice(ends[0], ends[1], rows.step).indices(len(self))
            if step < 0:
                raise IndexError("a slice of a recording goes forward; reverse the array that it gives")
            values = self._read(first, max(first, behind), list(range(len(self.lines))), None, False)[0][::step]
            return values[(slice(None), *rest)] if rest else values
        if rows is Ellipsis:
            return self[(slice(None), *rest)]
        row = self._row(rows) if is_time(rows) else operator.index(rows)
        row = row + len(self) if row < 0 else row
        if not 0 <= row < len(self):
            raise IndexError(f"there is no sample {rows}: the stream has {len(self)}")
        values = self._read(row, row + 1, list(range(len(self.lines))), None, False)[0][0]
        return values[rest] if rest else values

    def blocks(
        self,
        rows: int = ROWS,
        start: Any = None,
        end: Any = None,
        *,
        channels: Channels = None,
        dtype: Optional[DTypeLike] = None,
    ) -> Iterator[tuple[int, NDArray[Any]]]:
        """The range in pieces of this many rows: the first row of each, and its values. The next piece is read ahead."""
        from concurrent.futures import ThreadPoolExecutor

        if rows < 1:
            raise ValueError(f"pieces have at least one row, and not {rows}")
        first = 0 if start is None else self._row(start)
        behind = len(self) if end is None else self._row(end)
        columns, _ = self._columns(channels)
        begins = range(first, behind, rows)
        with ThreadPoolExecutor(1) as ahead:

            def read(row: int) -> NDArray[Any]:
                return self._read(row, min(row + rows, behind), columns, dtype, False)[0]

            coming = ahead.submit(read, begins[0]) if begins else None
            for number, row in enumerate(begins):
                assert coming is not None
                values = coming.result()
                more = number + 1 < len(begins)
                coming = ahead.submit(read, begins[number + 1]) if more else None
                yield row, values

    def to_xarray(self, start: Any = None, end: Any = None, *, channels: Channels = None) -> Any:
        """A range as a `DataArray` of xarray, with the time of each row, and thread and channel of each line."""
        return _tables.labelled(self, start, end, channels, self._name)

    def reader(
        self,
        start: Any = None,
        end: Any = None,
        *,
        channels: Channels = None,
        dtype: Optional[DTypeLike] = None,
        masked: bool = False,
        remote: Optional[str] = None,
        token: Token = None,
    ) -> SampleReader:
        """A range as an array that is read when it is sliced, by any process. It has a place and numbers, and no data."""
        first = 0 if start is None else self._row(start)
        behind = len(self) if end is None else self._row(end)
        wanted = self.dtype if dtype is None else np.dtype(dtype)
        if wanted.kind == "c" and not self._native.complex:
            raise _native.UnsupportedError("the samples are real: ask for f4")
        if self._native.complex and wanted != np.complex64 or wanted.name not in KINDS:
            raise TypeError(f"samples are read as f4, i1, i2 or i4, or as c8 if they are complex; not as {wanted}")
        columns = tuple(self._columns(channels)[0])
        place = self._place.with_copy(remote, token)
        rows = max(0, behind - first)
        return SampleReader(place, self._name, self._rate, first, rows, columns, wanted.name, masked)

    def to_dask(self, start: Any = None, end: Any = None, *, chunks: Any = "256MiB", **options: Any) -> Any:
        """A range as an array of Dask, whose chunks are read where the scan is. See `Stream.to_dask`."""
        from . import dask

        return dask.array(self.reader(start, end, **options), chunks)

    def _row(self, value: Any) -> int:
        if is_time(value):
            return self._native.row_at(unix_ns(value))
        seconds = seconds_of(value)
        if seconds is not None:
            rate = self._native.rate
            if rate is None:
                raise _native.UnsupportedError("the sample rate is not known: give it with samples_at")
            row = round(seconds * rate[0] / rate[1])
        else:
            row = operator.index(value)
        row = row + len(self) if row < 0 else row
        if not 0 <= row <= len(self):
            raise IndexError(f"{value} is outside the stream, which has {len(self)} samples")
        return row

    def _columns(self, channels: Channels) -> tuple[list[int], bool]:
        if channels is None:
            return list(range(len(self.lines))), False
        if isinstance(channels, (int, str, Line, np.integer)):
            return [self._column(channels)], True
        return [self._column(channel) for channel in channels], False

    def _column(self, channel: Union[int, str, Line, np.integer[Any]]) -> int:
        if isinstance(channel, str):
            thread, _, number = channel.rpartition(":")
            if not number.isdecimal() or not (thread or "0").isdecimal():
                raise IndexError(f"`{channel}` does not name a channel: write THREAD:CHANNEL")
            channel = Line(int(thread) if thread else self.lines[0].thread, int(number))
        if isinstance(channel, Line):
            if channel not in self.lines:
                raise IndexError(f"there is no {channel}: the stream has {self.lines}")
            return self.lines.index(channel)
        column = operator.index(channel)
        if not -len(self.lines) <= column < len(self.lines):
            raise IndexError(f"there is no channel {column}: the stream has {len(self.lines)}, numbered from 0")
        return column % len(self.lines)

    def _memory(self, out: NDArray[Any], shape: tuple[int, ...], dtype: Optional[DTypeLike]) -> NDArray[Any]:
        """The memory of an array that takes a result of this shape, as values one after the other."""
        if self._native.complex and out.dtype != np.complex64:
            shape = (*shape, 2)
        wanted = out.dtype if dtype is None else np.dtype(dtype)
        if out.shape != shape or out.dtype != wanted or not (out.flags.c_contiguous and out.flags.writeable):
            raise ValueError(f"`out` is a contiguous array of {wanted} in the shape {shape}, not of {out.dtype} in {out.shape}")
        flat = out.reshape(-1)
        return flat.view(np.float32) if out.dtype == np.complex64 else flat

    def _read(
        self,
        start: int,
        end: int,
        columns: list[int],
        dtype: Optional[DTypeLike],
        masked: bool,
        out: Optional[NDArray[Any]] = None,
    ) -> tuple[NDArray[Any], Optional[NDArray[np.bool_]]]:
        wanted = self.dtype if dtype is None else np.dtype(dtype)
        if wanted == np.complex64 and not self._native.complex:
            raise _native.UnsupportedError("the samples are real: ask for f4")
        kind = np.dtype(np.float32) if wanted == np.complex64 else wanted
        if kind not in (np.dtype(np.float32), np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32)):
            raise TypeError(f"samples are decoded to f4, i1, i2 or i4, and to c8 if they are complex; not to {wanted}")
        places, parts = (end - start) * len(columns), 2 if self._native.complex else 1
        values: NDArray[Any] = np.empty(places * parts, dtype=kind) if out is None else out
        valid = np.empty(places, dtype=np.bool_) if masked else None
        self._native.read(start, end, columns, values, valid)
        shape = (end - start, len(columns))
        if parts == 2 and kind == np.float32:
            values = values.view(np.complex64).reshape(shape)
        else:
            values = values.reshape(shape if parts == 1 else (*shape, 2))
        return values, None if valid is None else valid.reshape(shape)

    def __repr__(self) -> str:
        return f"<Samples: {len(self)} of {len(self.lines)} lines, {self._native.words()}>"
