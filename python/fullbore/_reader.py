"""Samples that any process can read: a place and a range, and no data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._place import Place

# Streams whose description a process keeps.
MOST_DESCRIBED = 256


@dataclass(frozen=True)
class SampleReader:
    """Rows and lines of the samples of a stream, as an array that is read when it is sliced."""

    place: Place
    stream: str
    rate: Optional[tuple[int, int]]
    """The sample rate as a fraction, if the stream does not state it."""
    start: int
    """The first row."""
    rows: int
    columns: tuple[int, ...]
    """The lines, by number."""
    type: str = "float32"
    masked: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and lines."""
        return self.rows, len(self.columns)

    @property
    def ndim(self) -> int:
        """Two."""
        return 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of values."""
        return np.dtype(self.type)

    def samples(self) -> _native.Samples:
        """The samples, opened in this process."""
        return _described(self.place, self.stream, self.rate)

    def with_place(self, place: Place) -> SampleReader:
        """The same, read elsewhere."""
        return replace(self, place=place)

    def read(self, start: int, end: int, columns: Optional[tuple[int, ...]] = None) -> NDArray[Any]:
        """Rows of the array. Those before its first or behind its last row are absent."""
        wanted = self.columns if columns is None else columns
        first, behind = max(start, 0), min(end, self.rows)
        if (first, behind) == (start, end):
            return self._read(start, end, wanted)[0]
        values = np.full((end - start, len(wanted)), np.nan, dtype=self.dtype)
        if first < behind:
            values[first - start : behind - start] = self._read(first, behind, wanted)[0]
        return values

    def __getitem__(self, key: Any) -> Any:
        key = key if isinstance(key, tuple) else (key,)
        rows, lines = (*key, slice(None))[:2]
        if not isinstance(rows, slice) or not isinstance(lines, slice):
            raise TypeError("samples are read by slices")
        start, end, step = rows.indices(self.rows)
        values, valid = self._read(start, max(start, end), self.columns[lines])
        if valid is None:
            return values[::step]
        return np.ma.MaskedArray(values, mask=~valid)[::step]

    def _read(
        self, start: int, end: int, columns: tuple[int, ...]
    ) -> tuple[NDArray[Any], Optional[NDArray[np.bool_]]]:
        native, dtype = self.samples(), self.dtype
        parts = 2 if dtype.kind == "c" else 1
        kind = np.dtype(np.float32) if dtype.kind == "c" else dtype
        values: NDArray[Any] = np.empty((end - start) * len(columns) * parts, dtype=kind)
        valid = np.empty((end - start) * len(columns), dtype=np.bool_) if self.masked else None
        native.read(self.start + start, self.start + end, list(columns), values, valid)
        shape = (end - start, len(columns))
        return values.view(dtype).reshape(shape), None if valid is None else valid.reshape(shape)


@lru_cache(maxsize=MOST_DESCRIBED)
def _described(place: Place, stream: str, rate: Optional[tuple[int, int]]) -> _native.Samples:
    return place.open().stream(stream).samples(rate)
