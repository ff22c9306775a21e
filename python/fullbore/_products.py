"""What `fullbore spectrum` computes of a stream: spectra, waterfalls, histograms, power over time, cross-power."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from . import _plots, _tables
from ._commands import Command
from ._time import unix_ns


class Product:
    """A result of `fullbore spectrum` with its numbers as arrays. Which ones there are depends on the product."""

    def __init__(self, told: Any) -> None:
        self.document = told
        """The whole result, as `fullbore spectrum --json` prints it."""
        self.kind: str = told["product"]
        """`spectrum`, `waterfall`, `histogram`, `series` or `cross`."""
        self.lines: list[str] = [line["name"] for line in told["lines"]]
        """The names of the lines."""
        self.full_scale: float = told["full_scale"]
        """The power of 0 dB."""
        start = told.get("start")
        self.start = None if start is None else np.datetime64(unix_ns(start), "ns")
        """The time of the first sample, in UTC."""

    @property
    def frequency(self) -> NDArray[np.float64]:
        """The frequency of each spectral channel in hertz; in cycles per sample if the sample rate is not known."""
        return self._axis("frequency")

    @property
    def seconds(self) -> NDArray[np.float64]:
        """The begin of each row, in seconds after the first sample."""
        return self._axis("seconds")

    @property
    def levels(self) -> NDArray[np.float64]:
        """The levels of a histogram."""
        return self._axis("levels")

    @property
    def power(self) -> NDArray[np.float64]:
        """Powers in squares of levels. The first axis is that of lines, the last one that of frequency or of time."""
        if self.kind != "waterfall":
            return self._array("power")
        width = len(self.document["frequency"])
        rows = [[[np.nan] * width if row is None else row for row in line["rows"]] for line in self.document["lines"]]
        return np.asarray(rows, dtype=np.float64).reshape(len(rows), -1, width)

    @property
    def decibels(self) -> NDArray[np.float64]:
        """Powers in dB of full scale."""
        with np.errstate(divide="ignore"):
            return np.asarray(10 * np.log10(self.power / self.full_scale))

    @property
    def fractions(self) -> NDArray[np.float64]:
        """The fraction of the samples of each line at each level."""
        return self._array("fractions")

    @property
    def expected(self) -> NDArray[np.float64]:
        """The fractions that a Gaussian signal has."""
        return self._array("expected")

    @property
    def phase(self) -> NDArray[np.float64]:
        """The phase of the cross-power in degrees."""
        return self._array("phase_degrees")

    @property
    def coherence(self) -> NDArray[np.float64]:
        """The coherence of two lines, 0 to 1."""
        return self._array("coherence")

    def _axis(self, key: str) -> NDArray[np.float64]:
        if key not in self.document:
            raise AttributeError(f"a {self.kind} has no {key}")
        return np.asarray(self.document[key], dtype=np.float64)

    def _array(self, key: str) -> NDArray[np.float64]:
        if key not in self.document["lines"][0]:
            raise AttributeError(f"a {self.kind} has no {key}")
        return np.asarray([line[key] for line in self.document["lines"]], dtype=np.float64)

    def plot(self, axes: Any = None, line: Optional[int] = None) -> Any:
        """Draws it with matplotlib, and returns the axes. A waterfall shows one line, the first if none is given."""
        return _plots.product(self, axes, line)

    def to_xarray(self) -> Any:
        """Its numbers with labels, as a `DataArray` of xarray; powers in dB of full scale."""
        return _tables.of_product(self)

    def __repr__(self) -> str:
        left_out = self.document["segments_left_out"]
        return (
            f"<Product {self.kind} of {self.document['input']}: {len(self.lines)} lines, "
            f"{self.document['segments']} segments, {left_out} left out>"
        )


def product(input: str, store: list[str], kind: str, **options: Any) -> Product:
    """Computes a product of a stream."""
    flag = {"spectrum": {}, "waterfall": {"waterfall": True}, "histogram": {"histogram": True}, "series": {"series": True}}
    chosen: dict[str, Any] = {"cross": options.pop("lines")} if kind == "cross" else flag[kind]
    return Product(Command("spectrum", input, store=store, **chosen, **options).wait())
