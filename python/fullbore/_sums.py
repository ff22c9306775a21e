"""Sums over ranges of samples: what a worker returns of a piece. Sums of pieces add up to those of the whole.

Spectra have the definition of `fullbore spectrum`: segments lie at multiples of their length from row 0 on, one with an
absent sample is left out, and the powers of all channels add up to the mean square of the samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._reader import SampleReader

Sums = dict[str, NDArray[Any]]

# Values that are in memory at a time.
MOST_VALUES = 1 << 22

# Terms of the windows, as `fullbore spectrum` has them.
WINDOWS = {
    "rectangular": (1.0,),
    "hann": (0.5, -0.5),
    "hamming": (0.54, -0.46),
    "blackman": (0.42, -0.5, 0.08),
}


def weights(window: str, length: int) -> NDArray[np.float32]:
    """The weights of a segment: one period of the window."""
    if window not in WINDOWS:
        raise ValueError(f"there is no window `{window}`: it is one of {', '.join(WINDOWS)}")
    angle = 2 * np.pi * np.arange(length) / length
    return np.asarray(sum(term * np.cos(order * angle) for order, term in enumerate(WINDOWS[window])), dtype=np.float32)


def segment_rows(reader: SampleReader, channels: int) -> int:
    """Rows of a segment: real samples need two for each spectral channel."""
    return channels if reader.dtype.kind == "c" else 2 * channels


def frequencies(reader: SampleReader, channels: int, rate: float) -> NDArray[np.float64]:
    """The frequency of each spectral channel, from 0 to half the rate; of complex samples, around the centre."""
    if reader.dtype.kind == "c":
        return np.asarray((np.arange(channels) - channels // 2) / channels * rate)
    return np.asarray(np.arange(channels) / (2 * channels) * rate)


def spectral(reader: SampleReader, start: int, end: int, channels: int, window: str) -> Sums:
    """The sums of power in spectral channels, with the numbers of segments and of those that are left out.

    `start` is a multiple of the length of a segment. Rows behind the last whole segment are not used.
    """
    length, lines = segment_rows(reader, channels), len(reader.columns)
    weight = weights(window, length)[:, np.newaxis]
    scale = 1 / (length * float(np.sum(weight.astype(np.float64) ** 2)))
    power = np.zeros((channels, lines))
    whole, left_out = np.zeros(lines, dtype=np.int64), np.zeros(lines, dtype=np.int64)
    step = max(1, MOST_VALUES // (length * max(1, lines))) * length
    for row in range(start, end - length + 1, step):
        behind = min(row + step, end - (end - row) % length)
        values = reader.read(row, behind).reshape(-1, length, lines)
        good = ~np.isnan(values).any(axis=1)
        if not good.all():
            values = np.where(good[:, np.newaxis], values, values.dtype.type(0))
        power += squares(values * weight, channels)
        whole += good.sum(axis=0)
        left_out += (~good).sum(axis=0)
    return {"power": power * scale, "segments": whole, "left_out": left_out}


def squares(values: NDArray[Any], channels: int) -> NDArray[np.float64]:
    """The sum of the power of segments in each spectral channel."""
    if values.dtype.kind == "c":
        transform = np.fft.fftshift(np.fft.fft(values, axis=1), axes=1)
    else:
        transform = np.fft.rfft(values, axis=1)[:, :channels]
        # The power of negative frequencies; those of channel 0 are its own.
        transform[:, 1:] *= np.sqrt(np.float32(2))
    return np.asarray(np.sum(transform.real**2 + transform.imag**2, axis=0, dtype=np.float64))


def moments(reader: SampleReader, start: int, end: int) -> Sums:
    """Sums of powers 1 to 4 of the values of each line, extremes, and the numbers of values and absent values.

    A complex sample is two values.
    """
    lines = len(reader.columns)
    sums = np.zeros((4, lines))
    least, most = np.full(lines, np.inf), np.full(lines, -np.inf)
    values, absent = np.zeros(lines, dtype=np.int64), np.zeros(lines, dtype=np.int64)
    step = max(1, MOST_VALUES // max(1, lines))
    for row in range(start, end, step):
        read = reader.read(row, min(row + step, end))
        if read.dtype.kind == "c":
            read = read.view(np.float32).reshape(-1, lines, 2).swapaxes(1, 2).reshape(-1, lines)
        good = ~np.isnan(read)
        there = np.where(good, read, np.float32(0)).astype(np.float64)
        power = there
        for order in range(4):
            sums[order] += power.sum(axis=0)
            power = power * there
        least = np.minimum(least, np.where(good, read, np.inf).min(axis=0, initial=np.inf))
        most = np.maximum(most, np.where(good, read, -np.inf).max(axis=0, initial=-np.inf))
        values += good.sum(axis=0)
        absent += (~good).sum(axis=0)
    return {"sums": sums, "least": least, "most": most, "values": values, "absent": absent}


def add(one: Sums, other: Sums) -> Sums:
    """The sums of two pieces together."""
    how = {"least": np.minimum, "most": np.maximum}
    return {name: how.get(name, np.add)(one[name], other[name]) for name in one}
