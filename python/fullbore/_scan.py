"""Scans, and the stores that hold them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Optional, Union

from . import _native, _plots, _tables
from ._html import table
from ._place import Place, Token, kept, secret
from ._stream import Stream

Path = Union[str, "os.PathLike[str]"]
Roots = Union[None, Path, "list[Path]", "tuple[Path, ...]"]


def open(place: Path, *, store: Roots = None, skip_damaged: bool = False, token: Token = None) -> Scan:
    """Opens a scan: by a path (`store/session_scan`, or the directory of a stream), or by its name in a store.

    The address of a copy in an object store (`s3://bucket/prefix/session_scan`) opens the copy; its blocks are read by
    ranges. A path finds the other members of its disk set by the manifest. With `store`, one directory or several, `place` is
    the name of a scan or an unambiguous beginning of it. A scan that is being recorded is opened as far as it is
    durable. With `skip_damaged`, data that cannot be read counts as not received; else it is a `DamagedError`.
    A station has copies of its sealed scans at `http://HOST:PORT/api/v1/copies/SCAN`; `token`, or the file that it names,
    logs in there.
    """
    if store is None and _native.is_address(os.fspath(place)):
        address = os.fspath(place)
        native = _native.Scan.open_copy(address, skip_damaged, secret(token))
        return Scan(native, skip_damaged, address, kept(token))
    roots, scan, _ = _native.find(os.fspath(place), _roots(store))
    if scan is None:
        names = ", ".join(list(Store(roots))[:6])
        raise _native.NotFoundError(f"`{place}` is a store, not a scan\n  open_store opens it; it has: {names or 'no scan'}")
    return Scan(_native.Scan.open(roots, scan, skip_damaged), skip_damaged)


def open_store(*directories: Path, skip_damaged: bool = False) -> Store:
    """Opens a store by the directories of its disk set."""
    if not directories:
        raise ValueError("name the directories of the store")
    return Store([os.fspath(directory) for directory in directories], skip_damaged=skip_damaged)


def verify(place: Union[Scan, Path], *, store: Roots = None) -> Any:
    """Reads and checks every block of a scan, and returns what `fullbore verify --json` prints."""
    scan = place if isinstance(place, Scan) else open(place, store=store)
    return scan.verify()


class Scan(Mapping[str, Stream]):
    """One contiguous recording: its streams by name. A stream that it does not have is a `NotFoundError`."""

    def __init__(
        self, native: _native.Scan, skip_damaged: bool = False, address: Optional[str] = None, token: Token = None
    ) -> None:
        self._native = native
        self._copy = address, token
        self._skip_damaged = skip_damaged
        self.manifest: Any = json.loads(native.manifest())
        """The manifest, as its schema describes it."""

    @property
    def name(self) -> str:
        """`session_scan`."""
        named = self.manifest["scan"]
        return named if isinstance(named, str) else f"{named['session']}_{named['scan']}"

    @property
    def session(self) -> str:
        """The name of the session."""
        return self.name.partition("_")[0]

    @property
    def state(self) -> str:
        """`recording`, `sealed`, `aborted` or `recovered`."""
        return str(self.manifest["state"])

    @property
    def members(self) -> list[str]:
        """The directories that it was opened from."""
        return self._native.roots

    @property
    def markers(self) -> Any:
        """The markers: notes on moments of the scan."""
        return json.loads(self._native.markers())

    @property
    def account(self) -> dict[str, Any]:
        """The account of each stream."""
        return {name: stream.account for name, stream in self.items()}

    @property
    def completeness(self) -> Any:
        """Whether the recording is complete, in words and numbers; `None` as long as that is not known."""
        return json.loads(self._native.completeness())

    @property
    def findings(self) -> list[str]:
        """Problems found in names, sizes and indexes."""
        return self._native.findings()

    def verify(self) -> Any:
        """Reads and checks every block. Returns what `fullbore verify --json` prints."""
        return json.loads(self._native.verify())

    def __getitem__(self, name: str) -> Stream:
        return Stream(self._native.stream(name), name, self._place)

    @property
    def _place(self) -> Place:
        """Where other processes find it."""
        address, token = self._copy
        # Another process may run in another directory.
        roots = tuple(os.path.abspath(root) for root in self.members)
        return Place(self.name, str(self.manifest["uuid"]), roots, address, kept(token), self._skip_damaged)

    def __contains__(self, name: object) -> bool:
        return name in self._native.streams

    def __iter__(self) -> Iterator[str]:
        return iter(self._native.streams)

    def __len__(self) -> int:
        return len(self._native.streams)

    def get(self, name: str, default: Any = None) -> Any:
        """The stream of this name, or the default."""
        return self[name] if name in self else default

    @property
    def headline(self) -> str:
        """The first line of its account."""
        told = self.completeness
        return str(told["headline"]) if told else f"{self.state}: it has no account yet"

    def __repr__(self) -> str:
        return f"<Scan {self.name}: {', '.join(self)}; {self.headline}>"

    def _repr_html_(self) -> str:
        rows = []
        for name, stream in self.items():
            account = stream.account or {}
            terms = account.get("terms", {})
            format = (stream.manifest or {"format": {"name": ""}})["format"]["name"]
            cells = [name, format, *(terms.get(term, "") for term in TERMS)]
            rows.append([*cells, account.get("verdict", ""), stream.nbytes])
        head = ["stream", "format", *TERMS, "verdict", "bytes"]
        markers = self.markers
        bars = "".join(f"{escape(name)}<br>{bar}<br>" for name, it in self.items() if (bar := it._timeline(markers)))
        return f"<b>{escape(self.name)}</b><br>{escape(self.headline)}{table(head, rows)}{bars}"

    def to_pandas(self) -> Any:
        """The account of each stream as a row of a `DataFrame` of pandas."""
        return _tables.accounts({name: told for name, told in self.account.items() if told})

    def plot(self, axes: Any = None) -> Any:
        """Draws the accounts of its streams with matplotlib, and returns the axes."""
        return _plots.account(self.account, axes)


# The terms of the balance of an account.
TERMS = ["expected", "written", "missing", "overrun", "damaged", "late"]


class Store(Mapping[str, Scan]):
    """The scans of a store by name, as they were when it was opened."""

    def __init__(self, roots: list[str], *, skip_damaged: bool = False) -> None:
        self._roots = roots
        self._skip_damaged = skip_damaged
        self.entries: list[dict[str, Any]] = json.loads(_native.catalogue(roots))
        """What `fullbore ls --json` prints of each scan."""

    @property
    def members(self) -> list[str]:
        """The directories of the store."""
        return list(self._roots)

    @property
    def sessions(self) -> dict[str, list[str]]:
        """The names of the scans of each session."""
        sessions: dict[str, list[str]] = {}
        for name in self:
            sessions.setdefault(name.partition("_")[0], []).append(name)
        return sessions

    def __getitem__(self, name: str) -> Scan:
        return open(name, store=list(self._roots), skip_damaged=self._skip_damaged)

    def __contains__(self, name: object) -> bool:
        return any(entry["name"] == name for entry in self.entries)

    def __iter__(self) -> Iterator[str]:
        return (str(entry["name"]) for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, name: str, default: Any = None) -> Any:
        """The scan of this name, or the default."""
        return self[name] if name in self else default

    def __repr__(self) -> str:
        return f"<Store {', '.join(self._roots)}: {len(self)} scans>"

    def _repr_html_(self) -> str:
        keys = ["name", "state", "start", "streams", "bytes", "verdict"]
        return table(keys, [[entry.get(key, "") for key in keys] for entry in self.entries])


def _roots(store: Optional[Any]) -> list[str]:
    if store is None:
        return []
    if isinstance(store, (list, tuple)):
        return [os.fspath(root) for root in store]
    return [os.fspath(store)]
