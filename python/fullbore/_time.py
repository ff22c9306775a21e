"""Times that users give, as nanoseconds of Unix time, and back."""

from __future__ import annotations

from datetime import datetime, timezone
from importlib import import_module
from typing import Any, Optional

import numpy as np

from ._native import Error


def is_time(value: object) -> bool:
    """True if a value names a moment, and not a number of frames, samples or seconds."""
    return isinstance(value, (str, datetime, np.datetime64)) or hasattr(value, "to_value")


def unix_ns(value: Any) -> int:
    """A text in ISO 8601, a `datetime`, a `numpy.datetime64` or a `Time` of astropy. Without a zone, UTC counts."""
    if isinstance(value, str):
        text = value.strip()
        text = text[:-1] if text.endswith(("Z", "z")) else text
        try:
            return int(np.datetime64(text, "ns").astype(np.int64))
        except ValueError:
            raise ValueError(f"`{value}` is not a time: write 2026-11-27T12:00:00") from None
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)
        since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
        return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[ns]").astype(np.int64))
    if hasattr(value, "utc"):
        return int(np.datetime64(value.utc.to_value("datetime64"), "ns").astype(np.int64))
    raise TypeError(f"{type(value).__name__} is not a time")


def datetime64(ns: Optional[int]) -> Optional[np.datetime64]:
    """The time as numpy has it, in UTC."""
    return None if ns is None else np.datetime64(ns, "ns")


def astropy_time(times: Any) -> Any:
    """The times as a `Time` of astropy."""
    try:
        module = import_module("astropy.time")
    except ImportError:
        raise Error("astropy is not installed: pip install astropy") from None
    return module.Time(times, format="datetime64", scale="utc", precision=9)
