"""Where a scan is, in a form that other processes, here or on other hosts, can open again."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Optional, Union

from . import _native

# Scans that a process keeps open: their indexes are in memory.
MOST_OPEN = 32

# The copies of a station, below its address.
COPIES = "/api/v1/copies"

Token = Union[None, str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Place:
    """A scan by its directories, by the address of a copy, or by both: on a host without the directories, the copy is read.

    It has no data and no open files, so it is small when it is pickled.
    """

    scan: str
    """Its name."""
    uuid: str
    """Its identity: a scan of this name with another one is not the same."""
    roots: tuple[str, ...] = ()
    """The directories of its store."""
    address: Optional[str] = None
    """The address of a copy."""
    token: Union[None, str, Path] = None
    """The token of a station, or the file that has it."""
    skip_damaged: bool = False
    """True if data that cannot be read counts as not received."""

    def is_here(self) -> bool:
        """True if this host has all directories."""
        return bool(self.roots) and all(os.path.isdir(root) for root in self.roots)

    def with_copy(self, address: Optional[str], token: Token = None) -> Place:
        """The same, with the address of a copy: that of the copy itself, of the place that it is at, or of a station."""
        if address is None:
            return self
        return replace(self, address=copy_address(address, self.scan), token=kept(token))

    def open(self) -> _native.Scan:
        """The scan. It stays open in this process."""
        return _opened(self)


def copy_address(address: str, scan: str) -> str:
    """The address of a copy by that of its place, or by that of a station (`http://HOST:PORT`)."""
    text = address.rstrip("/")
    scheme, _, rest = text.partition("://")
    if scheme in ("http", "https") and "/" not in rest:
        text += COPIES
    return text if text.rpartition("/")[2] == scan else f"{text}/{scan}"


def kept(token: Token) -> Union[None, str, Path]:
    """A token, or the file of a token, as it can be pickled."""
    return token if token is None or isinstance(token, str) else Path(token).absolute()


def secret(token: Token) -> Optional[str]:
    """The token itself."""
    if token is None or isinstance(token, str):
        return token
    with open(token, encoding="utf-8") as file:
        return file.read(1 << 12).strip()


def uuid_of(native: _native.Scan) -> str:
    """The identity of an open scan."""
    manifest: Any = json.loads(native.manifest())
    return str(manifest["uuid"])


@lru_cache(maxsize=MOST_OPEN)
def _opened(place: Place) -> _native.Scan:
    other = None
    if place.is_here():
        try:
            opened = _native.Scan.open(list(place.roots), place.scan, place.skip_damaged)
            if uuid_of(opened) == place.uuid:
                return opened
            other = _native.NotFoundError(f"{place.scan} in {', '.join(place.roots)} is another scan of the same name")
        except _native.NotFoundError as error:
            other = error
    if place.address is not None:
        copy = _native.Scan.open_copy(place.address, place.skip_damaged, secret(place.token))
        if uuid_of(copy) == place.uuid:
            return copy
        other = _native.NotFoundError(f"{place.address} is a copy of another scan of the same name")
    raise other or missing(place)


def missing(place: Place) -> _native.NotFoundError:
    """The error of a scan that this host cannot read."""
    hint = "start workers where the scan is, or name a copy: remote=\"http://HOST:8480\", or s3://…"
    error = _native.NotFoundError(f"{place.scan}: this host has no {', '.join(place.roots)}\n  {hint}")
    error.hint = hint
    return error
