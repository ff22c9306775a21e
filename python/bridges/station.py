"""A station over REST and its events, as a bridge to a control system sees it. It needs Python alone.

    station = Station("http://127.0.0.1:8480", token)
    for state in station.states():       # a dataclass, a few times a second; connects again by itself
        print(state.phase, state.rate)
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading

import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass

TIMEOUT = 30  # seconds for an answer; a recorder may take some to be armed
PAUSE = 1.0  # seconds until it connects again

LONGEST_ANSWER = 16 << 20

#: The phases of a recording, and what is shown without one. The order is that of the numbers in `State.phase`.
PHASES = ("idle", "starting", "waiting", "armed", "recording", "stopping", "unreachable")


class Refused(Exception):
    """The station refuses a request. The text says why."""


@dataclass(frozen=True)
class State:
    """What a control system shows of a station."""

    #: One of `PHASES`: the most advanced of the recordings that run.
    phase: str
    #: The scan that is being recorded, `session_scan`; empty without one.
    scan: str
    #: Bytes per second of all streams together.
    rate: float
    #: Frames that were lost in the scans that are being recorded.
    lost: int
    #: Bytes free on all members that answer.
    free: int
    #: What is wrong; empty if all is well.
    alarm: str


UNREACHABLE = State("unreachable", "", 0.0, 0, 0, "the station does not answer")


def state_of(told: dict) -> State:
    """The state, from the document of the station (`GET /api/v1/status`)."""
    running = [it for it in told["recordings"] if it["phase"] != "ended"]
    phases = [it["phase"] for it in running if it["phase"] in PHASES]
    progress = [it["progress"] for it in running if it["progress"]]
    streams = [stream for it in progress for stream in it["streams"]]
    lost = sum(it[term] for it in streams for term in ("missing", "overrun", "damaged", "late"))
    wrong = [f"{it['path']}: {it['problem']}" for it in told["members"] if it["problem"]]
    wrong += [f"{it['path']}: {it['failure']}" for of in progress for it in of["members"] if it["failure"]]
    wrong += [f"schedule {it['name']}: {it['problem']}" for it in told["schedules"] if it["problem"]]
    if lost:
        wrong.append(f"{lost} frames lost")
    return State(
        phase=max(phases, key=PHASES.index, default="idle"),
        scan=", ".join("_".join(it["scan"].values()) for it in progress),
        rate=float(sum(it["rate"] for it in streams)),
        lost=lost,
        free=sum(it["free_bytes"] or 0 for it in told["members"]),
        alarm="; ".join(wrong),
    )


class Station:
    """A client of one station."""

    def __init__(self, url: str, token: str, context: ssl.SSLContext | None = None):
        """`url`: as the daemon prints it. `context`: whom to trust over HTTPS, such as the certificate of the station."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url}: write an address such as http://127.0.0.1:8480")
        self._parts, self._token, self._context = parts, token, context
        self._over = threading.Event()
        self._begun: list[str] = []

    def start(self, source: str, session: str, scan: str, **options: str) -> str:
        """Starts a recording; returns its identity. `options` are further keys of the request, such as `duration`."""
        begun = self._ask("POST", "/api/v1/recordings", {"source": [source], "session": session, "scan": scan, **options})
        self._begun.append(begun["id"])
        return begun["id"]

    def stop(self) -> int:
        """Stops the recordings that were started here and still run; returns how many."""
        running = {it["id"] for it in self._ask("GET", "/api/v1/recordings") if it["phase"] != "ended"}
        mine = [it for it in self._begun if it in running]
        for recording in mine:
            try:
                self._ask("POST", f"/api/v1/recordings/{recording}/stop")
            except Refused:
                # It has ended just now.
                continue
        self._begun = mine
        return len(mine)

    def states(self, hz: float = 2) -> Iterator[State]:
        """The states as they come, and `UNREACHABLE` whenever the connection is lost, until `close`."""
        while not self._over.is_set():
            try:
                for told in self._events(hz):
                    yield state_of(told)
                    if self._over.is_set():
                        return
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, Refused):
                # A daemon that is started anew is found again.
                pass
            yield UNREACHABLE
            self._over.wait(PAUSE)

    def close(self) -> None:
        """Ends `states`, at its next state."""
        self._over.set()

    def _events(self, hz: float) -> Iterator[dict]:
        connection, answer = self._request("GET", f"/api/v1/events?hz={hz:g}")
        try:
            while line := answer.readline(LONGEST_ANSWER):
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        finally:
            connection.close()

    def _ask(self, method: str, path: str, body: dict | None = None):
        connection, answer = self._request(method, path, body)
        try:
            return json.loads(answer.read(LONGEST_ANSWER))
        finally:
            connection.close()

    def _request(self, method: str, path: str, body: dict | None = None):
        host, port = self._parts.hostname, self._parts.port
        if self._parts.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=self._context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        answer = connection.getresponse()
        if answer.status >= 400:
            raw = answer.read(1 << 16)
            connection.close()
            try:
                raise Refused(json.loads(raw)["detail"])
            except (ValueError, KeyError, TypeError):
                raise Refused(f"{method} {path}: {answer.status} {answer.reason}") from None
        return connection, answer
