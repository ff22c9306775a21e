"""The client of a station: `fullbore serve`, here or on another host."""

from __future__ import annotations

import json
import time as clock
from collections.abc import Iterator, Sequence
from html import escape
from types import TracebackType
from typing import Any, Optional, Union

from ._html import table
from ._http import Address, Events, Path, StationError, path_of
from ._place import copy_address
from ._recorder import named
from ._scan import Scan
from ._scan import open as open_scan
from ._spectra import Spectra, Spectrum, messages
from ._time import is_time, utc

# Seconds between two looks at something that is waited for.
LOOK = 0.2


class Station:
    """A station: its state, its recordings, scans and schedules.

        station = Station("http://127.0.0.1:8480", token="…")
        with station.record("udp://0.0.0.0:46220?format=vdif", session="s", scan="a", duration="10s") as recording:
            for row in recording.spectra("46220"):
                ...
        recording.state["finished"]

    `place` is an address, or the path of the Unix socket of a station on this host, which needs no token. `token` is the
    token, or a `pathlib.Path` of a file that holds it. `certificate` is the file of a certificate that signs itself.
    Documents are those of the REST interface. Every request is a connection of its own, so threads can share a station.
    """

    def __init__(self, place: Path, *, token: Optional[Path] = None, certificate: Optional[Path] = None) -> None:
        self.address = Address(place, token, certificate)
        """Where it is."""

    def ask(self, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        """One request of the REST interface: `station.ask("GET", "jobs")`."""
        answer = self.address.ask(method, path_of(*path, **query), body)
        return json.loads(answer) if answer else None

    @property
    def status(self) -> Any:
        """The state of the station: members, recordings, schedules, jobs."""
        return self.ask("GET", "status")

    @property
    def inputs(self) -> Any:
        """The named inputs, with their endpoints."""
        return self.ask("GET", "inputs")

    def events(self, hz: int = 5) -> Events:
        """The state of the station at each change, `hz` times a second at most; for `for` and `async for`."""
        return Events(self.address, hz)

    def record(self, *source: str, session: str, scan: str, **options: Any) -> StationRecording:
        """Starts a recording. Returns when it is armed.

        Sources are endpoints, or `input:NAME`. Options are those of `fullbore record` that the station takes, with `_` in
        place of `-`. It does not end with this program, unless it is the subject of a `with` block.
        """
        body = named({"source": list(source), "session": session, "scan": scan, **options})
        return StationRecording(self, self.ask("POST", "recordings", body=body))

    @property
    def recordings(self) -> list[StationRecording]:
        """The recordings that run, and the last ones that ended: the newest first."""
        return [StationRecording(self, told) for told in self.ask("GET", "recordings")]

    def recording(self, id: str) -> StationRecording:
        """A recording by its identity."""
        return StationRecording(self, self.ask("GET", "recordings", id))

    def scans(self, prefix: Optional[str] = None) -> Iterator[Any]:
        """The scans of the store by name, as `fullbore ls --json` prints them."""
        after: Optional[str] = None
        while True:
            page = self.ask("GET", "scans", prefix=prefix, after=after)
            yield from page["scans"]
            after = page["next"]
            if after is None:
                return

    def scan(self, scan: str) -> Any:
        """A scan by its whole name: manifest, accounts, completeness and markers."""
        return self.ask("GET", "scans", scan)

    def open(self, scan: str, *, skip_damaged: bool = False) -> Scan:
        """Opens a sealed scan of the station, by its whole name: its index is fetched, and its blocks are read by ranges."""
        if self.address.unix is not None:
            raise StationError(f"{self.address}: scans are read over http or https", None, "fullbore.open opens its store")
        return open_scan(copy_address(str(self.address), scan), skip_damaged=skip_damaged, token=self.address.token)

    def mark(self, scan: str, text: str, time: Any = None) -> Any:
        """Marks a moment of a scan; without a time, now, or the end of a scan that is over."""
        return self.ask("POST", "scans", scan, "marks", body=_mark(text, time))

    def verify(self, scan: str) -> Any:
        """Verifies a scan, and returns what `fullbore verify --json` prints. Ctrl-C cancels the job."""
        job = self.ask("POST", "scans", scan, "verify")
        try:
            while job["state"] == "running":
                clock.sleep(LOOK)
                job = self.ask("GET", "jobs", job["id"])
        except KeyboardInterrupt:
            self.ask("DELETE", "jobs", job["id"])
            raise
        if job["state"] != "done":
            raise StationError(job.get("problem") or f"the job is {job['state']}")
        return job["result"]

    def protect(self, scan: str, protected: bool = True) -> Any:
        """Protects a scan from removal, or no longer."""
        return self.ask("PUT" if protected else "DELETE", "scans", scan, "protection")

    def remove(self, scan: str) -> Any:
        """Removes a scan from all members, for good."""
        return self.ask("DELETE", "scans", scan)

    def spectrum(self, scan: str, stream: str, after: float = 0.0, **options: Any) -> Spectrum:
        """The spectrum of a stream of a sealed scan, this many seconds after its start.

        Options are `length` in seconds, `channels`, `thread`, `channel` and `window`.
        """
        path = path_of("scans", scan, "spectrum", stream=stream, after=after, **options)
        rows = [raw for kind, raw in messages(self.address.ask("GET", path)) if kind == b"B"]
        if not rows:
            raise StationError(f"{scan}: the station sent no spectrum")
        return Spectrum.read(rows[0])

    @property
    def schedules(self) -> Any:
        """The schedules, with the next scans of each."""
        return self.ask("GET", "schedules")

    def schedule(self, name: str, scans: str, source: Union[str, Sequence[str]], **options: Any) -> Any:
        """Starts a schedule, or replaces the scans ahead. `scans` is its text: TOML, CSV or VEX."""
        sources = [source] if isinstance(source, str) else list(source)
        body = {"options": named({"source": sources, **options}), "scans": scans}
        return self.ask("PUT", "schedules", name, body=body)

    def cancel(self, name: str) -> Any:
        """Cancels a schedule: the running scan is sealed."""
        return self.ask("DELETE", "schedules", name)

    def __repr__(self) -> str:
        return f"<Station {self.address}>"

    def _repr_html_(self) -> str:
        head = ["recording", "phase", "stream", "frames", "missing", "overrun", "bytes"]
        return f"<b>{escape(str(self.address))}</b>{table(head, [row for told in self.recordings for row in told._rows()])}"


class StationRecording:
    """A recording of a station. Leaving its `with` block stops it, and waits until its scan is sealed."""

    def __init__(self, station: Station, told: Any) -> None:
        self.station = station
        self.id: str = told["id"]
        """Its identity."""
        self._told = told

    @property
    def state(self) -> Any:
        """Its state now: phase, progress, the first line of the account of each sealed scan."""
        if self._told["phase"] != "ended":
            self._told = self.station.ask("GET", "recordings", self.id)
        return self._told

    @property
    def phase(self) -> str:
        """`starting`, `waiting`, `armed`, `recording`, `stopping` or `ended`."""
        return str(self.state["phase"])

    def stop(self) -> None:
        """Stops: what it holds is written, and its scan is sealed. Returns at once."""
        self.station.ask("POST", "recordings", self.id, "stop")

    def abort(self) -> None:
        """Aborts: what it holds is counted and dropped. Returns at once."""
        self.station.ask("POST", "recordings", self.id, "abort")

    def mark(self, text: str, time: Any = None) -> Any:
        """Marks the present moment, or another one."""
        return self.station.ask("POST", "recordings", self.id, "marks", body=_mark(text, time))

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the end of the recording, and returns its state. After `timeout` seconds, a `TimeoutError`.

        Ctrl-C ends the wait, and not the recording.
        """
        end = None if timeout is None else clock.monotonic() + timeout
        while self.phase != "ended":
            if end is not None and clock.monotonic() > end:
                raise TimeoutError(f"the recording {self.id} is {self._told['phase']} after {timeout} seconds")
            clock.sleep(LOOK)
        return self._told

    def spectra(self, stream: str, **options: Any) -> Spectra:
        """The live spectrum of a stream; for `for` and `async for`. It needs the package websockets.

        Options are `channels`, `rows` a second, `thread`, `channel` and `window`.
        """
        return Spectra(self.station.address, path_of("recordings", self.id, "spectra", stream=stream, **options))

    def __enter__(self) -> StationRecording:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self.phase != "ended":
            try:
                self.stop()
            except StationError as refused:
                if refused.status != 409:  # it has ended meanwhile
                    raise
        self.wait()

    def _rows(self) -> list[list[Any]]:
        told = self._told
        scan = told.get("scan") or told["request"]
        head = [f"{scan['session']}_{scan['scan']}", told["phase"]]
        progress = told.get("progress")
        keys = ["name", "frames", "missing", "overrun", "bytes"]
        streams = progress["streams"] if progress else []
        return [[*head, *(stream[key] for key in keys)] for stream in streams] or [[*head, "", "", "", "", ""]]

    def __repr__(self) -> str:
        told = self._told
        return f"<StationRecording {self._rows()[0][0]}: {told['phase']}>"

    def _repr_html_(self) -> str:
        self.state
        return table(["recording", "phase", "stream", "frames", "missing", "overrun", "bytes"], self._rows())


def _mark(text: str, time: Any) -> dict[str, Any]:
    if time is not None and not is_time(time):
        raise TypeError(f"{type(time).__name__} is not a time")
    return {"text": text, **({} if time is None else {"time": utc(time)})}
