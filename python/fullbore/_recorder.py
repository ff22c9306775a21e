"""Recordings in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from html import escape
from types import TracebackType
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._html import table

# Seconds of one wait: Ctrl-C is noticed between two.
LOOK = 0.1


@dataclass(frozen=True)
class TapBlock:
    """A copy of a written block of a running recording."""

    stream: str
    """The stream; empty if its first frames are not described yet."""
    number: int
    """The number of the block among those of the stream, from 1."""
    skipped: int
    """Blocks of the stream that the tap has skipped since its last one."""
    bytes: NDArray[np.uint8]
    """The bytes: a row for each frame; one row if the frames differ in length."""


class Recorder:
    """A recording in this process: armed when it is made, stopped and sealed when its block is left.

    Options are those of `fullbore record`, with `_` in place of `-`; values are texts as on the command line, numbers, or
    lists of them.

        with Recorder("udp://0.0.0.0:46220?format=vdif", store="/data", session="s", scan="a", duration="10s") as recorder:
            for block in recorder.tap():
                ...
        recorder.sealed[0]["headline"]

    `async with` does the same without blocking the event loop.
    """

    def __init__(self, *source: str, **options: Any) -> None:
        self.options = {"source": list(source), **options}
        self.sealed: list[Any] = []
        """The sealed scans, once the recording has ended: manifest, accounts and completeness of each."""
        self._native: Optional[_native.Recording] = None
        self._joined = False

    def start(self) -> Recorder:
        """Starts the recording. Returns when it is armed: from then on, nothing that arrives is lost unseen."""
        if self._native is not None:
            raise _native.Error("the recording has begun already")
        self._native = _native.Recording.start(json.dumps(named(self.options)))
        return self

    @property
    def running(self) -> bool:
        """True while it records."""
        return self._native is not None and not self._native.has_ended()

    @property
    def progress(self) -> Any:
        """The latest progress, as the event `progress` has it; `None` before the first."""
        return json.loads(self._begun().progress())

    def stop(self) -> None:
        """Stops: everything received so far is written, and the scan is sealed. Returns at once."""
        self._begun().stop()

    def abort(self) -> None:
        """Aborts: data in memory is counted and dropped, and the scan is sealed. Returns at once."""
        self._begun().abort()

    def wait(self) -> list[Any]:
        """Waits for the end of the recording, and returns the sealed scans. Ctrl-C stops and seals it, and is raised then."""
        try:
            for _ in self.events():
                pass
        except KeyboardInterrupt:
            self.stop()
            self._join()
            raise
        return self._join()

    def events(self) -> Iterator[Any]:
        """The events, as `fullbore record --json` prints them, until the recording ends."""
        native = self._begun()
        while True:
            events = native.events(LOOK)
            if events is None:
                return
            yield from map(json.loads, events)

    def tap(self) -> Iterator[TapBlock]:
        """The newest written block of each stream from now on, until the recording ends. It can neither slow the
        recording nor lose anything of it; blocks that come while this program computes are skipped, and counted."""
        native = self._begun()
        return _newest(native, native.tap())

    async def aevents(self) -> AsyncIterator[Any]:
        """The events, for asyncio."""
        native = self._begun()
        while True:
            events = await asyncio.to_thread(native.events, LOOK)
            if events is None:
                return
            for event in events:
                yield json.loads(event)

    def atap(self) -> AsyncIterator[TapBlock]:
        """The newest blocks from now on, for asyncio."""
        native = self._begun()
        return _anewest(native, native.tap())

    def __enter__(self) -> Recorder:
        return self.start()

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.stop()
        self._join()

    async def __aenter__(self) -> Recorder:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.stop()
        await asyncio.to_thread(self._join)

    def _begun(self) -> _native.Recording:
        if self._native is None:
            raise _native.Error("the recording has not begun: start() begins it")
        return self._native

    def _join(self) -> list[Any]:
        if not self._joined:
            self._joined = True
            self.sealed = [json.loads(sealed) for sealed in self._begun().join()]
        return self.sealed

    def __repr__(self) -> str:
        state = "not begun" if self._native is None else "running" if self.running else "ended"
        return f"<Recorder {', '.join(self.options['source'])}: {state}>"

    def _repr_html_(self) -> str:
        progress = None if self._native is None else self.progress
        keys = ["name", "frames", "missing", "overrun", "bytes"]
        rows = [[stream[key] for key in keys] for stream in progress["streams"]] if progress else []
        sealed = "".join(f"<br>{escape(str(scan['headline']))}" for scan in self.sealed)
        return f"{escape(repr(self))}{sealed}{table(keys, rows) if rows else ''}"


def _newest(native: _native.Recording, tap: _native.Tap) -> Iterator[TapBlock]:
    while True:
        block = tap.next(LOOK)
        if block is not None:
            yield _block(block)
        elif native.has_ended():
            return


async def _anewest(native: _native.Recording, tap: _native.Tap) -> AsyncIterator[TapBlock]:
    while True:
        block = await asyncio.to_thread(tap.next, LOOK)
        if block is not None:
            yield _block(block)
        elif native.has_ended():
            return


def named(options: dict[str, Any]) -> dict[str, Any]:
    """Options as documents have them: `-` in their names, plain values, and none that is not given."""
    return {name.replace("_", "-"): _plain(value) for name, value in options.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, (bool, str, int, float)):
        return value
    return str(value)


def _block(block: tuple[str, int, int, int, NDArray[np.uint8]]) -> TapBlock:
    stream, number, skipped, width, data = block
    return TapBlock(stream, number, skipped, data.reshape(-1, width or data.size))
