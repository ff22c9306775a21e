"""Times that users give, as nanoseconds of Unix time, and back."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Any, Optional

import numpy as np

from ._extras import extra

# The times that nanoseconds in 64 bits can name: 1677 to 2262.
EDGE = 2**63 - 1


def is_time(value: object) -> bool:
    """True if a value names a moment, and not a number of frames, samples or seconds."""
    return isinstance(value, (str, datetime, np.datetime64)) or hasattr(value, "utc")


def seconds_of(value: Any) -> Optional[float]:
    """The seconds of a duration: a float, a `timedelta`, a `numpy.timedelta64`, a quantity of astropy. None of others."""
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, np.timedelta64):
        return float(value / np.timedelta64(1, "s"))
    if hasattr(value, "total_seconds"):
        return float(value.total_seconds())
    return float(value.to_value("s")) if hasattr(value, "to_value") and hasattr(value, "unit") else None


def unix_ns(value: Any) -> int:
    """A text in ISO 8601, a `datetime`, a `numpy.datetime64`, a `Time` of astropy. Without a zone, UTC counts.

    A time that 64 bits cannot name becomes the first or the last that they can.
    """
    if isinstance(value, str):
        return _of_text(value)
    if hasattr(value, "to_datetime64"):  # a time stamp of pandas, with nanoseconds
        value = value.to_datetime64()
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
        since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
        return _inside(((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000)
    if hasattr(value, "utc"):
        value = value.utc.to_value("datetime64")
    if isinstance(value, np.datetime64):
        return _of_datetime64(value)
    raise TypeError(f"{type(value).__name__} is not a time")


def _of_text(value: str) -> int:
    text, zone = value.strip(), 0
    shifted = re.fullmatch(r"(.*[T ].*)([+-])(\d\d)(?::?(\d\d))?", text)
    if shifted:
        text, sign, hours, minutes = shifted.groups()
        zone = int(sign + "1") * (int(hours) * 60 + int(minutes or 0)) * 60_000_000_000
    elif text.endswith(("Z", "z")):
        text = text[:-1]
    # A leap second, which Unix time counts as the second after it.
    leap = re.fullmatch(r"(.*:\d\d:)60(\.\d+)?", text)
    if leap:
        text, zone = f"{leap[1]}59{leap[2] or ''}", zone - 1_000_000_000
    # With more digits numpy counts picoseconds, which 64 bits do not hold, and gives another year without an error.
    text = re.sub(r"(\.\d{9})\d+$", r"\1", text)
    try:
        return _inside(_of_datetime64(np.datetime64(text)) - zone)
    except ValueError:
        raise ValueError(f"`{value}` is not a time: write 2026-11-27T12:00:00") from None


def _of_datetime64(value: np.datetime64) -> int:
    if np.isnat(value):
        raise ValueError("NaT is not a time")
    seconds = int(value.astype("datetime64[s]").astype(np.int64))
    if abs(seconds) > EDGE // 1_000_000_000 - 1:
        return _inside(seconds * 1_000_000_000)
    return int(value.astype("datetime64[ns]").astype(np.int64))


def _inside(ns: int) -> int:
    return max(-EDGE, min(EDGE, ns))


def datetime64(ns: Optional[int]) -> Optional[np.datetime64]:
    """The time as numpy has it, in UTC."""
    return None if ns is None else np.datetime64(ns, "ns")


def utc(value: Any) -> str:
    """A time as documents have it: UTC with nanoseconds."""
    return f"{np.datetime64(unix_ns(value), 'ns')}Z"


def astropy_time(times: Any) -> Any:
    """The times as a `Time` of astropy."""
    return extra("astropy.time").Time(times, format="datetime64", scale="utc", precision=9)
