"""Labelled tables and arrays: pandas and xarray, which are installed or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import numpy as np
from numpy.typing import NDArray

from ._extras import extra
from ._time import unix_ns

if TYPE_CHECKING:
    from ._products import Product
    from ._samples import Channels, Samples
    from ._stream import Stream


def accounts(told: dict[str, Any]) -> Any:
    """A row for each stream, as a `DataFrame` of pandas: the terms of its account, its verdict, and the arrivals of its first
    and its last frame by the clock of the host."""
    pandas = extra("pandas")
    rows = {}
    for name, account in told.items():
        edges = {key: (account[key] or {}).get("seen") for key in ("first", "last")}
        plain = {key: value for key, value in account.items() if isinstance(value, (int, float, str))}
        rows[name] = {**account["terms"], **plain, **edges}
    table = pandas.DataFrame.from_dict(rows, orient="index")
    for edge in ("first", "last"):
        if edge in table:
            table[edge] = [edge_time(value) for value in table[edge]]
    table.index.name = "stream"
    return table


def edge_time(text: Optional[str]) -> Any:
    """A time of a document for pandas."""
    pandas = extra("pandas")
    return pandas.NaT if text is None else pandas.Timestamp(np.datetime64(unix_ns(text), "ns"))


def gaps(stream: Stream) -> Any:
    """A row for each gap: first frame, number of frames, cause, and time if the frames have places."""
    pandas = extra("pandas")
    found = stream.gaps
    table = pandas.DataFrame(
        {
            "first": np.array([gap.first for gap in found], dtype=np.int64),
            "count": np.array([gap.count for gap in found], dtype=np.int64),
            "cause": [gap.cause for gap in found],
        }
    )
    if stream.has_places:
        count = len(stream.frames)
        times = [stream.time[gap.first] if 0 <= gap.first < count else np.datetime64("NaT", "ns") for gap in found]
        table.insert(0, "time", np.array(times, dtype="datetime64[ns]"))
    return table


def labelled(samples: Samples, start: Any, end: Any, channels: Channels, name: str) -> Any:
    """Samples with the time of each row and the names of lines, as a `DataArray` of xarray."""
    xarray = extra("xarray")
    first = 0 if start is None else samples._row(start)
    columns, single = samples._columns(channels)
    values = samples(first, end, channels=columns)
    rows = np.arange(first, first + len(values))
    coordinates: dict[str, Any] = {"sample": rows}
    if samples.sample_rate is not None and samples.start is not None:
        coordinates["time"] = ("sample", samples.time(rows))
    lines = [samples.lines[column] for column in columns]
    coordinates["line"] = [f"{line.thread}:{line.channel}" for line in lines]
    coordinates["thread"] = ("line", [line.thread for line in lines])
    coordinates["channel"] = ("line", [line.channel for line in lines])
    unit = samples.layout.get("unit")
    told = {"sample_rate": samples.sample_rate, "encoding": samples.layout.get("encoding"), "units": unit}
    told = {key: value for key, value in told.items() if value is not None}
    array = xarray.DataArray(values, dims=("sample", "line"), coords=coordinates, name=name, attrs=told)
    return array.isel(line=0) if single else array


def of_product(told: Product) -> Any:
    """A result of `fullbore spectrum` with its frequencies, times and lines."""
    xarray = extra("xarray")
    coordinates: dict[str, Any] = {"line": told.lines}
    attributes = {"units": "dB", "input": told.document["input"], "full_scale": told.full_scale}
    values: NDArray[Any]
    if told.kind == "histogram":
        values, dims, attributes["units"] = told.fractions, ["line", "level"], "1"
        coordinates["level"] = told.levels
    else:
        values, dims = told.decibels, ["line"]
        if told.kind in ("waterfall", "series"):
            dims.append("time")
            seconds = (told.seconds * 1e9).round().astype("timedelta64[ns]")
            coordinates["time"] = seconds if told.start is None else told.start + seconds
        if told.kind != "series":
            dims.append("frequency")
            unit = "Hz" if told.document["sample_rate_known"] else "1"
            coordinates["frequency"] = ("frequency", told.frequency, {"units": unit})
    return xarray.DataArray(values, dims=dims, coords=coordinates, name=told.kind, attrs=attributes)
