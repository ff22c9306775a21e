"""A station over REST and its events, as a bridge to a control system sees it. It needs Python alone.

    station = Station("http://127.0.0.1:8480", token)
    for state in station.states():       # a dataclass, a few times a second; connects again by itself
        print(state.phase, state.rate)
"""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import threading
import urllib.parse
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

TIMEOUT = 30  # seconds for an answer; a recorder may take some to be armed
PAUSE = 1.0  # seconds until it connects again

LONGEST_ANSWER = 16 << 20
MOST_BEGUN = 1000  # recordings that `stop` remembers

#: The phases of a recording, and what is shown without one. The order is that of the numbers in `State.phase`.
PHASES = ("idle", "starting", "waiting", "armed", "recording", "stopping", "unreachable")


class Refused(Exception):
    """The station refuses a request. The text says why, `status` is that of HTTP; 0 if the bridge itself refuses."""

    def __init__(self, text: str, status: int = 0):
        super().__init__(text)
        self.status = status


#: An object of JSON.
Document = dict[str, Any]

#: What a request can fail with.
FAILURES = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, Refused)


@dataclass(frozen=True)
class Stream:
    """A stream of a scan that is being recorded."""

    name: str
    #: Bytes per second.
    rate: float
    #: Frames that did not reach the host, that came when no block was free, that were damaged, that came too late.
    missing: int
    overrun: int
    damaged: int
    late: int

    @property
    def lost(self) -> int:
        """Frames that were lost, for any cause."""
        return self.missing + self.overrun + self.damaged + self.late


@dataclass(frozen=True)
class Member:
    """A member of the store."""

    path: str
    #: Bytes free; 0 if it does not answer.
    free: int
    #: Bytes per second that are written to it.
    rate: float
    #: What is wrong; empty if all is well.
    problem: str


@dataclass(frozen=True)
class State:
    """What a control system shows of a station."""

    #: One of `PHASES`: the most advanced of the recordings that run.
    phase: str
    #: The scan that is being recorded, `session_scan`; empty without one.
    scan: str = ""
    #: The streams of the scans that are being recorded.
    streams: tuple[Stream, ...] = ()
    members: tuple[Member, ...] = ()
    #: Seconds until the first disk set is full at this rate. None while nothing says so.
    full_in: float | None = None
    #: What is wrong; empty if all is well.
    alarms: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Bytes per second of all streams together."""
        return sum((it.rate for it in self.streams), 0.0)

    @property
    def lost(self) -> int:
        """Frames that were lost in the scans that are being recorded."""
        return sum(it.lost for it in self.streams)

    @property
    def free(self) -> int:
        """Bytes free on all members that answer."""
        return sum(it.free for it in self.members)

    @property
    def alarm(self) -> str:
        """What is wrong, in one line."""
        return "; ".join(self.alarms)


UNREACHABLE = State("unreachable", alarms=("the station does not answer",))


def state_of(told: Document) -> State:
    """The state, from the document of the station (`GET /api/v1/status`)."""
    running = [it for it in told["recordings"] if it["phase"] != "ended"]
    phases = [it["phase"] for it in running if it["phase"] in PHASES]
    progress = [it["progress"] for it in running if it["progress"]]
    streams = tuple(stream_of(it) for of in progress for it in of["streams"])
    members = members_of(told["members"], [it for of in progress for it in of["members"]])
    wrong = [f"{it.path}: {it.problem}" for it in members if it.problem]
    wrong += [f"schedule {it['name']}: {it['problem']}" for it in told["schedules"] if it["problem"]]
    if lost := sum(it.lost for it in streams):
        wrong.append(f"{lost} {'frame' if lost == 1 else 'frames'} lost")
    return State(
        phase=max(phases, key=PHASES.index, default="idle"),
        scan=", ".join(name_of(it["scan"]) for it in progress),
        streams=streams,
        members=members,
        full_in=min((it["seconds_until_full"] for it in progress if it["seconds_until_full"] is not None), default=None),
        alarms=tuple(wrong),
    )


def name_of(scan: Document | None) -> str:
    """The whole name of a scan."""
    return f"{scan['session']}_{scan['scan']}" if scan else ""


def stream_of(told: Document) -> Stream:
    counts = {term: told[term] for term in ("missing", "overrun", "damaged", "late")}
    return Stream(name=told["name"], rate=float(told["rate"]), **counts)


def members_of(stored: list[Document], written: list[Document]) -> tuple[Member, ...]:
    """The members of the store, with the reports of the recorders that write to them."""
    paths = dict.fromkeys(it["path"] for it in (*stored, *written))
    return tuple(member_of(path, [it for it in (*stored, *written) if it["path"] == path]) for path in paths)


def member_of(path: str, told: list[Document]) -> Member:
    problems = (it.get(key) for it in told for key in ("problem", "failure"))
    return Member(
        path=path,
        free=told[0]["free_bytes"] or 0,
        rate=float(sum(it.get("rate", 0) for it in told)),
        problem="; ".join(dict.fromkeys(filter(None, problems))),
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that all bridges have. `opened` takes what they give."""
    parser.add_argument("--token-file", help="a file with the token of a viewer, or of an operator to record")
    parser.add_argument("--certificate", help="for https: a file with the certificate of the station, if it signs itself")
    parser.add_argument("--source", help="the source to record: an input of the station (input:NAME) or an endpoint")
    parser.add_argument("--session", help="the session of the scans that are recorded")
    parser.add_argument("--option", action="append", metavar="KEY=VALUE", help="a further key of the request, such as duration=40s")


def opened(
    url: str, token_file: str | None, certificate: str | None, source: str | None, session: str | None, option: list[str] | None
) -> Station:
    """The station of these options. Fails with `ValueError` or `OSError` if it cannot be."""
    if not token_file:
        raise ValueError("no token: name the file that has it with --token-file")
    request = {key: value for key, value in (("source", source), ("session", session)) if value}
    for it in option or ():
        key, sign, value = it.partition("=")
        if not sign or not key.isidentifier() or key in ("scan", "source", "session"):
            raise ValueError(f"--option {it}: write KEY=VALUE, such as duration=40s")
        request[key] = value
    context = ssl.create_default_context(cafile=certificate) if certificate else None
    return Station(url, Path(token_file).read_text().strip(), context, request)


class Station:
    """A client of one station."""

    def __init__(self, url: str, token: str, context: ssl.SSLContext | None = None, request: dict[str, str] | None = None):
        """`url`: as the daemon prints it. `context`: whom to trust over HTTPS, such as the certificate of the station.
        `request`: what `start` records, `source`, `session` and further keys of the request, such as `duration`."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url}: write an address such as http://127.0.0.1:8480")
        self._connect: Callable[[], http.client.HTTPConnection]
        if parts.scheme == "https":
            self._connect = partial(http.client.HTTPSConnection, parts.hostname, parts.port, timeout=TIMEOUT, context=context)
        else:
            self._connect = partial(http.client.HTTPConnection, parts.hostname, parts.port, timeout=TIMEOUT)
        self._token, self._request_of_start = token, request or {}
        self._over = threading.Event()
        self._begun: deque[str] = deque(maxlen=MOST_BEGUN)

    def start(self, scan: str) -> str:
        """Starts a recording, waits until it is armed, and returns its identity."""
        if not self._request_of_start.keys() >= {"source", "session"}:
            raise Refused("the bridge has no source and session to record: start it with --source and --session")
        request = {**self._request_of_start, "source": [self._request_of_start["source"]], "scan": scan}
        recording: str = self._ask("POST", "/api/v1/recordings", request)["id"]
        self._begun.append(recording)
        return recording

    def stop(self, scan: str | None = None) -> int:
        """Stops the recordings that were started here and still run, or those of a scan; returns how many."""
        if scan is None:
            stopped = [it["id"] for it in self._running() if it["id"] in self._begun]
        else:
            stopped = [it["id"] for it in self._running() if name_of(it["scan"]) == scan]
        if scan is not None and not stopped:
            raise Refused(f"{scan} is not being recorded")
        for recording in stopped:
            try:
                self._post(recording, "stop")
            except Refused as refused:
                # 404 and 409: it has ended just now.
                if refused.status not in (404, 409):
                    raise
        return len(stopped)

    def mark(self, text: str) -> int:
        """Marks this moment of all scans that are being recorded; returns how many."""
        recorded = [it["id"] for it in self._running() if it["phase"] == "recording"]
        if not recorded:
            raise Refused("nothing is being recorded")
        for recording in recorded:
            self._post(recording, "marks", {"text": text})
        return len(recorded)

    def states(self, hz: float = 2) -> Iterator[State]:
        """Each state that differs from the one before, and `UNREACHABLE` when the connection is lost, until `close`."""
        before = None
        for state in self._all_states(hz):
            if self._over.is_set():
                return
            if state != before:
                yield state
            before = state

    def _all_states(self, hz: float) -> Iterator[State]:
        while not self._over.is_set():
            try:
                for told in self._events(hz):
                    yield state_of(told)
            except FAILURES:
                # A daemon that is started anew is found again.
                pass
            yield UNREACHABLE
            self._over.wait(PAUSE)

    def close(self) -> None:
        """Ends `states`, at its next state."""
        self._over.set()

    def _running(self) -> list[Document]:
        return [it for it in self._ask("GET", "/api/v1/recordings") if it["phase"] != "ended"]

    def _post(self, recording: str, what: str, body: Document | None = None) -> None:
        self._ask("POST", f"/api/v1/recordings/{recording}/{what}", body)

    def _events(self, hz: float) -> Iterator[Document]:
        connection, answer = self._request("GET", f"/api/v1/events?hz={hz:g}")
        try:
            while line := answer.readline(LONGEST_ANSWER):
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        finally:
            connection.close()

    def _ask(self, method: str, path: str, body: Document | None = None) -> Any:
        connection, answer = self._request(method, path, body)
        try:
            return json.loads(answer.read(LONGEST_ANSWER))
        finally:
            connection.close()

    def _request(self, method: str, path: str, body: Document | None = None) -> Any:
        connection = self._connect()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        answer = connection.getresponse()
        if answer.status >= 400:
            raw = answer.read(1 << 16)
            connection.close()
            try:
                raise Refused(json.loads(raw)["detail"], answer.status)
            except (ValueError, KeyError, TypeError):
                raise Refused(f"{method} {path}: {answer.status} {answer.reason}", answer.status) from None
        return connection, answer
