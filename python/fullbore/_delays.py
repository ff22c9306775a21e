"""Models of delays: for each stream, how much later than at the reference a wavefront arrives."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from ._time import unix_ns

# The largest file, and the points that are joined by one polynomial.
MOST_BYTES = 256 << 20
POINTS = 4

# The columns of the file.
COLUMNS = ["stream", "time", "delay_s"]


@dataclass(frozen=True)
class DelayModel:
    """Delays of streams as tables. Between the points of a table, a cubic goes through the four nearest ones."""

    tables: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]
    """By the name of a stream: times in nanoseconds of Unix time, and delays in seconds."""

    @classmethod
    def read(cls, path: Union[str, "os.PathLike[str]"]) -> DelayModel:
        """Reads a CSV file with the columns `stream`, `time` (UTC) and `delay_s`. A stream without rows has no delay."""
        if os.path.getsize(path) > MOST_BYTES:
            raise ValueError(f"{path}: a delay model has at most {MOST_BYTES >> 20} MiB")
        points: dict[str, list[tuple[int, float]]] = {}
        with open(path, encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if rows.fieldnames != COLUMNS:
                raise ValueError(f"{path}: the first line is not `{','.join(COLUMNS)}`")
            for row in rows:
                try:
                    point = unix_ns(row["time"]), float(row["delay_s"])
                except (TypeError, ValueError, AttributeError) as error:
                    raise ValueError(f"{path}, line {rows.line_num}: {error}") from None
                if not abs(point[1]) < 3600:
                    raise ValueError(f"{path}, line {rows.line_num}: {point[1]} s is no delay")
                points.setdefault(row["stream"], []).append(point)
        return cls({stream: _table(path, stream, listed) for stream, listed in points.items()})

    @classmethod
    def none(cls) -> DelayModel:
        """No delays."""
        return cls({})

    def of(self, stream: str, ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """The delays of a stream at times in nanoseconds of Unix time. A time outside its table is an error."""
        if stream not in self.tables or not len(ns):
            return np.zeros(len(ns))
        times, delays = self.tables[stream]
        if len(times) == 1:
            return np.full(len(ns), delays[0])
        if ns.min() < times[0] or ns.max() > times[-1]:
            begin, end = (np.datetime64(int(it), "ns") for it in (times[0], times[-1]))
            raise ValueError(f"the delays of {stream} are for {begin} to {end}, and the samples go on outside")
        return _interpolated(times, delays, ns)

    def within(self, stream: str, first: int, last: int) -> DelayModel:
        """The part that a range of times needs: what is sent to a worker."""
        if stream not in self.tables:
            return DelayModel({})
        times, delays = self.tables[stream]
        begin = max(0, int(np.searchsorted(times, first)) - POINTS)
        end = int(np.searchsorted(times, last)) + POINTS
        return DelayModel({stream: (times[begin:end], delays[begin:end])})


def _table(path: Any, stream: str, points: list[tuple[int, float]]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    times = np.array([ns for ns, _ in points], dtype=np.int64)
    if np.any(np.diff(times) <= 0):
        raise ValueError(f"{path}: the times of {stream} do not increase")
    return times, np.array([delay for _, delay in points])


def _interpolated(
    times: NDArray[np.int64], delays: NDArray[np.float64], ns: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Lagrange's polynomial through the nearest points."""
    points = min(POINTS, len(times))
    first = np.clip(np.searchsorted(times, ns, side="right") - points // 2, 0, len(times) - points)
    near = first[:, np.newaxis] + np.arange(points)
    # Seconds from the first point of each polynomial, from integers.
    x = (times[near] - times[first][:, np.newaxis]) * 1e-9
    at = (ns - times[first]) * 1e-9
    result = np.zeros(len(ns))
    for one in range(points):
        basis = np.ones(len(ns))
        for other in range(points):
            if other != one:
                basis *= (at - x[:, other]) / (x[:, one] - x[:, other])
        result += basis * delays[near[:, one]]
    return result
