"""Acquisitions of a PandA, one after the other in one HDF5 file, for detectors that asyncio drives.

    begin() ──► Recorder arms the PandA ──► rows that readers can see ──► end() disarms and seals
                                       └──► error, once samples are lost

Each acquisition has a recorder of its own, so that each has an account of its own in the file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union
from urllib.parse import quote

from . import _native
from ._commands import Command
from ._recorder import Recorder

LOG = logging.getLogger("fullbore")
# The numpy type of integers as captured, by their kind.
KINDS: dict[str, Union[str, list[tuple[str, str]]]] = {
    "uint32": "<u4",
    "int32": "<i4",
    "int64": "<i8",
    "int96": [("low", "<u8"), ("high", "<u4")],
}
# The terms of an account that are losses.
LOSSES = ("missing", "overrun", "damaged", "late")


class AcquisitionError(_native.Error):
    """An acquisition ended without all its samples in the file. The text begins with the headline of its account."""


@dataclass(frozen=True)
class Column:
    """A captured column, as it will be in the file."""

    name: str
    """The dataset: `COUNTER1.OUT.Mean`."""
    dtype: Union[str, list[tuple[str, str]]]
    """The type of its values, for numpy."""
    units: Optional[str]
    """The units of scaled values, if it has units."""


def captured(endpoint: str, raw: bool) -> list[Column]:
    """The columns that a PandA is set to capture, in the order of its fields."""
    told = Command("panda show", endpoint).wait()
    columns = [_column(column, raw) for column in told["columns"] if column["capture"]]
    if not columns:
        raise AcquisitionError(f"{endpoint}: nothing is captured\n  set fields on its web page, or with `FIELD.CAPTURE=`")
    return columns


def _column(told: dict[str, Any], raw: bool) -> Column:
    kind = told["kind"]
    dtype = KINDS[kind] if raw or kind == "uint32" else "<f8"
    return Column(f"{told['field']}.{told['capture']}", dtype, told["units"] or None)


class Acquisitions:
    """The acquisitions in one file.

    `on_rows` is called with the number of rows of all that readers can see, and `on_headline` with the headline of the
    account of each.
    """

    def __init__(
        self, endpoint: str, on_rows: Callable[[int], None], on_headline: Callable[[str], None], options: dict[str, Any]
    ) -> None:
        self.endpoint = endpoint if "://" in endpoint else f"panda://{endpoint}"
        self.options = options
        self.wanted = 0
        """The number of samples of the next acquisition, or 0 if it has no end."""
        self.error: Optional[_native.Error] = None
        """The reason why the file lacks samples, once it does."""
        self.failed = asyncio.Event()
        self._on_rows, self._on_headline = on_rows, on_headline
        self._path: Optional[Path] = None
        self._query = ""
        self._rows = self._expected = 0
        self._is_new = True
        self.is_preparing = False
        """True while a plan prepares: what `begin` arms then is held back from `on_rows` until `release`."""
        self._held, self._visible = False, 0
        self._recorder: Optional[Recorder] = None
        self._follower: Optional[asyncio.Task[None]] = None
        self._armed = asyncio.Event()
        self._stopping = False
        self._told = False

    def open(self, path: Path, **parameters: Any) -> None:
        """Names the file of the next acquisitions, with the parameters of `hdf5:`. The first one creates it."""
        self._path, self._rows, self._expected, self._is_new = path, 0, 0, True
        given = {name: value for name, value in parameters.items() if value is not None}
        self._query = "".join(f"&{name}={quote(str(value))}" for name, value in given.items())
        self.error, self._told = None, False
        self.failed.clear()
        self._held, self._visible = False, 0
        self._on_rows(0)

    @property
    def path(self) -> Path:
        """The file."""
        assert self._path is not None, "open() names the file"
        return self._path

    async def begin(self) -> None:
        """Arms the PandA for one more acquisition. If one is under way, or held back, it is that one."""
        is_held = self._held
        self.release()
        if is_held or (self._follower is not None and not self._follower.done()):
            return
        await self.end()
        self._check_rows()
        self._armed, self._stopping, self._held = asyncio.Event(), False, self.is_preparing
        existing = "refuse" if self._is_new else "append"
        name = quote(self.path.name.replace("%", "%%"))
        target = f"hdf5:{quote(str(self.path.parent))}/{name}?existing={existing}{self._query}"
        self._recorder = Recorder(self.endpoint, to=target, arm=True, **self.options)
        await asyncio.to_thread(self._recorder.start)
        self._expected, self._is_new = self._expected + self.wanted, False
        self._follower = asyncio.create_task(self._follow(self._recorder))
        armed = asyncio.create_task(self._armed.wait())
        await asyncio.wait({armed, self._follower}, return_when=asyncio.FIRST_COMPLETED)
        armed.cancel()
        self.check()

    async def end(self) -> None:
        """Disarms the PandA, and waits until everything that it took is in the file and the account is sealed."""
        if self._follower is not None and self._recorder is not None:
            # A second stop would abort.
            if not self._stopping and not self._follower.done():
                self._stopping = True
                self._recorder.stop()
            # A plan that gives up waiting must not end the follower.
            await asyncio.shield(self._follower)

    def release(self) -> None:
        """Tells the rows of an acquisition that was held back, and from now on those that come."""
        if self._held:
            self._held = False
            self._on_rows(self._visible)

    def check(self) -> None:
        """Raises the error, if there is one."""
        if self.error is not None:
            self._told = True
            raise self.error

    def check_untold(self) -> None:
        """Raises the error, if there is one that was not raised before."""
        if not self._told:
            self.check()

    def _check_rows(self) -> None:
        self.check()
        if self._expected and self._rows != self._expected:
            self._fail(
                f"{self._rows} samples are in {self.path.name}, and {self._expected} were prepared: rows of another"
                " acquisition would not be where the documents say",
                "gate the PandA so that it takes the number that is prepared, or record each acquisition in a run of its own",
            )
            self.check()

    async def _follow(self, recorder: Recorder) -> None:
        """Takes the events of a recorder until it ends, and then its account."""
        first, sample_bytes = self._rows, 0
        try:
            async for event in recorder.aevents():
                if event["event"] == "panda-armed":
                    self._armed.set()
                elif event["event"] == "opened":
                    sample_bytes = event["frame_bytes"]
                elif event["event"] == "warning":
                    LOG.warning("%s: %s", self.endpoint, event["text"])
                elif event["event"] == "alternate":
                    self._fail(f"the acquisition is in {event['file']}: {event['why']}")
                elif event["event"] == "progress" and event["streams"] and sample_bytes:
                    self._progress(first, sample_bytes, event["streams"][0])
            sealed = await asyncio.to_thread(recorder.wait)
        except _native.Error as error:
            self._fail_with(error)
        else:
            self._sealed(first, sealed)

    def _progress(self, first: int, sample_bytes: int, stream: dict[str, Any]) -> None:
        lost = {term: stream[term] for term in LOSSES if stream.get(term)}
        if lost:
            self._fail(f"samples are lost: {', '.join(f'{count} {term}' for term, count in lost.items())}")
        self._show(first, stream["durable_bytes"] // sample_bytes)

    def _show(self, first: int, rows: int) -> None:
        """Tells the number of rows, without those beyond what was prepared."""
        self._visible = first + (min(rows, self.wanted) if self.wanted else rows)
        if not self._held:
            self._on_rows(self._visible)

    def _sealed(self, first: int, sealed: list[Any]) -> None:
        rows = sealed[0]["accounts"][0]["terms"]["written"] if sealed else 0
        self._rows = first + rows
        self._show(first, rows)
        if not self.wanted:
            self._expected = self._rows
        headline = sealed[0]["headline"] if sealed else "UNKNOWN: the PandA took no samples"
        self._on_headline(headline)
        if sealed and sealed[0]["complete"] is not True:
            self._fail(f"{headline} ({sealed[0]['explanation']})")
        elif rows < self.wanted and not self._stopping:
            self._fail(f"the acquisition ended after {rows} samples, and {self.wanted} were prepared")

    def _fail(self, text: str, hint: Optional[str] = None) -> None:
        error = AcquisitionError(f"{self.endpoint}: {text}" if hint is None else f"{self.endpoint}: {text}\n  {hint}")
        error.hint = hint
        self._fail_with(error)

    def _fail_with(self, error: _native.Error) -> None:
        """Keeps the first error."""
        if self.error is None:
            self.error = error
            self.failed.set()
