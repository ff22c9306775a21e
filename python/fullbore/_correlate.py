"""Cross-correlation of two streams: an FX correlator, whose delays come from a model.

Each segment of the second and of the first stream begins at the row that the delay of that stream leads to, rounded. The
rest of the delay is a slope of phase over frequency. With the sky frequency of the band, its phase is taken out, too
(Thompson, Moran and Swenson, Interferometry and Synthesis in Radio Astronomy, chapters 3 and 9).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ._delays import DelayModel
from ._reader import SampleReader
from ._sums import Sums, segment_rows, weights

# Values that are in memory at a time.
MOST_VALUES = 1 << 21


@dataclass(frozen=True)
class Side:
    """One of both streams."""

    reader: SampleReader
    name: str
    """Its name in the model."""
    start_ns: int
    """The time of row 0."""
    model: DelayModel


@dataclass(frozen=True)
class Grid:
    """Segments in time: segment *n* begins *n* × `length` samples after `start_ns`."""

    start_ns: int
    rate: tuple[int, int]
    channels: int
    length: int
    window: str
    sky: float
    """The sky frequency of channel 0 in hertz; 0 leaves the phase of the carrier in."""

    @property
    def hertz(self) -> float:
        """Samples per second."""
        return self.rate[0] / self.rate[1]

    def middle_ns(self, segments: NDArray[np.int64]) -> NDArray[np.int64]:
        """The times of the middles of segments, in nanoseconds of Unix time."""
        rows = segments * self.length + self.length // 2
        return np.asarray(self.start_ns + np.round(rows / self.hertz * 1e9).astype(np.int64))


def length_of(reader: SampleReader, channels: int) -> int:
    """Rows of a segment."""
    return segment_rows(reader, channels)


def products(one: Side, other: Side, grid: Grid, first: int, end: int) -> Sums:
    """The sums of segments `first` to `end`: cross-power, the power of both, and the number of segments by line."""
    lines = len(one.reader.columns)
    cross = np.zeros((grid.channels, lines), dtype=np.complex128)
    powers = [np.zeros((grid.channels, lines)) for _ in range(2)]
    whole, left_out = np.zeros(lines, dtype=np.int64), np.zeros(lines, dtype=np.int64)
    step = max(1, MOST_VALUES // (grid.length * max(1, lines)))
    for begin in range(first, end, step):
        numbers = np.arange(begin, min(begin + step, end))
        (a, good_a), (b, good_b) = (spectra(side, grid, numbers) for side in (one, other))
        good = good_a & good_b
        keep = good[:, np.newaxis]
        cross += np.sum(a * b.conj() * keep, axis=0)
        for power, side in zip(powers, (a, b)):
            power += np.sum((side.real**2 + side.imag**2) * keep, axis=0)
        whole += good.sum(axis=0)
        left_out += (~good).sum(axis=0)
    return {"cross": cross, "first": powers[0], "second": powers[1], "segments": whole, "left_out": left_out}


def spectra(side: Side, grid: Grid, numbers: NDArray[np.int64]) -> tuple[NDArray[np.complex128], NDArray[np.bool_]]:
    """The spectra of segments with their delays taken out, and which of them are whole."""
    delays = side.model.of(side.name, grid.middle_ns(numbers))
    # Exact: the first row of the grid in this stream, and a fraction of a row.
    origin = Fraction(grid.start_ns - side.start_ns, 1_000_000_000) * Fraction(*grid.rate)
    exact = float(origin - round(origin)) + delays * grid.hertz
    shifts = np.round(exact).astype(np.int64)
    rest = exact - shifts
    rows = round(origin) + numbers * grid.length + shifts
    low = int(rows.min())
    values = side.reader.read(low, int(rows.max()) + grid.length)
    cut = values[(rows - low)[:, np.newaxis] + np.arange(grid.length)]
    good = ~np.isnan(cut).any(axis=1)
    cut = np.where(good[:, np.newaxis], cut, 0) * weights(grid.window, grid.length)[:, np.newaxis]
    if side.reader.dtype.kind == "c":
        transform = np.fft.fftshift(np.fft.fft(cut, axis=1), axes=1)
        cycles = (np.arange(grid.channels) - grid.channels // 2) / grid.channels
    else:
        transform = np.fft.rfft(cut, axis=1)[:, : grid.channels]
        cycles = np.arange(grid.channels) / grid.length
    turns = rest[:, np.newaxis] * cycles + np.mod(grid.sky * delays, 1.0)[:, np.newaxis]
    scale = 1 / np.sqrt(grid.length * np.sum(weights(grid.window, grid.length).astype(np.float64) ** 2))
    return transform * np.exp(2j * np.pi * turns)[..., np.newaxis] * scale, good


@dataclass(frozen=True)
class Peak:
    """The peak of a correlation over delay."""

    delay: float
    """Seconds by which the first stream is later than the second, beyond the model."""
    coherence: float
    """The coherence at the peak, 0 to 1."""
    phase: float
    """The phase of the peak in degrees."""
    snr: float
    """The coherence times the square root of twice the bandwidth times the time."""


def peak(
    cross: NDArray[np.complex128], first: NDArray[np.float64], second: NDArray[np.float64], grid: Grid, segments: int
) -> Peak:
    """The peak of the correlation of one line over delay, between samples by a parabola."""
    total = float(np.sqrt(first.sum() * second.sum()))
    is_real = grid.length == 2 * grid.channels
    if not total > 0 or not segments:
        return Peak(float("nan"), float("nan"), float("nan"), float("nan"))
    fine = 8
    size = grid.length * fine
    padded = np.zeros(size, dtype=np.complex128)
    at = np.arange(grid.channels) - (0 if is_real else grid.channels // 2)
    padded[at % size] = cross
    lags = np.abs(np.fft.ifft(padded)) * size
    best = int(np.argmax(lags))
    before, here, behind = lags[best - 1], lags[best], lags[(best + 1) % size]
    bend = before - 2 * here + behind
    offset = float(0.5 * (before - behind) / bend) if bend < 0 else 0.0
    lag = (best + offset + size / 2) % size - size / 2
    # A signal that is later in the first stream has a phase that falls with frequency.
    value = np.sum(cross * np.exp(2j * np.pi * at * lag / size))
    coherence = float(abs(value)) / total
    snr = coherence * float(np.sqrt(segments * grid.length * (1 if is_real else 2)))
    return Peak(lag / fine / grid.hertz, coherence, float(np.degrees(np.angle(value))), snr)
