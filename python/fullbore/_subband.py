"""A part of a band as complex samples at a lower rate."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._reader import SampleReader

# Values that are in memory at a time.
MOST_VALUES = 1 << 21

# The filter takes a quarter more than the band: the rest is its slope.
SLOPE = 1.25

# The width of the slope of a Blackman window, in lobes (Oppenheim and Schafer, Discrete-Time Signal Processing, 7.5).
LOBES = 5.5


@dataclass(frozen=True)
class Band:
    """A band of real or complex samples: frequencies and rates are in hertz."""

    centre: float
    width: float
    rate: float

    def check(self, is_complex: bool) -> None:
        """Refuses a band that the samples do not have."""
        least, most = (-self.rate / 2, self.rate / 2) if is_complex else (0.0, self.rate / 2)
        low, high = self.centre - self.width / 2, self.centre + self.width / 2
        if not (self.width > 0 and low >= least and high <= most):
            raise ValueError(f"the band from {low:g} to {high:g} Hz is not within {least:g} to {most:g} Hz")
        if self.step > 1 << 20:
            raise ValueError(f"a band of {self.width:g} Hz is too narrow for samples at {self.rate:g} Hz")

    @property
    def step(self) -> int:
        """Rows for each row of the result."""
        return max(1, int(self.rate / (self.width * SLOPE)))

    @property
    def taps(self) -> int:
        """The length of the filter, an odd number."""
        if self.step == 1 and self.width >= self.rate:
            return 1
        slope = self.rate / self.step - self.width
        return int(LOBES * self.rate / slope) | 1

    @property
    def filter(self) -> NDArray[np.float64]:
        """The filter: a low pass with a Blackman window, whose gain is 1 at the centre."""
        half = self.taps // 2
        time = np.arange(-half, half + 1)
        cut = 1 / self.step
        taps = np.sinc(cut * time) * np.blackman(self.taps + 2)[1:-1]
        return np.asarray(taps / taps.sum())


def extract(reader: SampleReader, start: int, end: int, band: Band) -> NDArray[np.complex64]:
    """Rows `start` to `end` of the result. Row *m* is centred at row *m* × `step` of the samples.

    The power of real samples in the band is that of the result. Where the filter reaches absent samples, the result is NaN.
    """
    taps, step, half = band.filter, band.step, band.taps // 2
    lines = len(reader.columns)
    result = np.empty((end - start, lines), dtype=np.complex64)
    gain = 1.0 if reader.dtype.kind == "c" else np.sqrt(2)
    rows = max(1, MOST_VALUES // (max(1, lines) * step))
    for row in range(start, end, rows):
        behind = min(row + rows, end)
        first = row * step - half
        values = reader.read(first, (behind - 1) * step + half + 1)
        absent = np.isnan(values)
        # The first phase is exact, however far from row 0 it is.
        begin = float(Fraction(first) * Fraction(band.centre) / Fraction(band.rate) % 1)
        turns = begin + np.arange(len(values)) * (band.centre / band.rate)
        mixer = np.exp(-2j * np.pi * turns)[:, np.newaxis] * gain
        mixed = np.where(absent, 0, values) * mixer
        result[row - start : behind - start] = _filtered(mixed, taps)[::step]
        if absent.any():
            before = np.concatenate([np.zeros((1, lines), dtype=np.int64), np.cumsum(absent, axis=0)])
            reached = (before[len(taps) :] - before[: -len(taps)])[::step] > 0
            result[row - start : behind - start][reached] = np.nan
    return result


def _filtered(values: NDArray[Any], taps: NDArray[np.float64]) -> NDArray[np.complex128]:
    """The values that the whole filter lies on, by one transform."""
    size = 1 << int(len(values) - 1).bit_length()
    response = np.fft.fft(taps, size)[:, np.newaxis]
    whole = np.fft.ifft(np.fft.fft(values, size, axis=0) * response, axis=0)
    # The transform is circular: what wraps around is before the first whole value.
    return np.asarray(whole[len(taps) - 1 : len(values)])
