"""A bridge from a station to Tango: a device server whose device shows the station, and records.

    python tango_server.py rf                       # the Tango database has the device and its properties
    python tango_server.py rf -nodb -dlist rf/recorder/1 -host 127.0.0.1 -port 45450 \\
        --url http://127.0.0.1:8480 --token-file token --source input:vlbi --session r1234

The properties `Url`, `TokenFile`, `Certificate`, `Source`, `Session` and `Option` of the device name the station and what
is recorded. The options below are their defaults. All other arguments are those of Tango.

It needs pytango (`pip install pytango`). The bridge holds nothing: it can be killed, and recordings go on.
"""

# The file is not named `tango.py`, because Python would then find it in place of pytango's module `tango`.
from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tango
from tango import AttrQuality, DevState
from tango.server import Device, attribute, command, device_property, run

from station import FAILURES, PHASES, UNREACHABLE, State, Station, add_options, opened

MOST = 4096  # values of a spectrum

#: The state of the device in each phase, if nothing is wrong.
STATES = {
    "idle": DevState.STANDBY,
    "starting": DevState.INIT,
    "waiting": DevState.STANDBY,
    "armed": DevState.ON,
    "recording": DevState.RUNNING,
    "stopping": DevState.RUNNING,
    "unreachable": DevState.UNKNOWN,
}

#: The options of the command line.
given = argparse.Namespace()


@dataclass(frozen=True)
class Shown:
    """An attribute of the device."""

    name: str
    dtype: Any
    doc: str
    #: The value in a state; None if it is not known.
    of: Callable[[State], Any]
    #: True if the value is an alarm.
    is_wrong: Callable[[State], bool] = lambda state: False
    unit: str = ""
    #: The value of an attribute that has none, which only its quality shows.
    nothing: Any = 0

    def told(self, state: State) -> tuple[Any, AttrQuality]:
        """The value, and its quality."""
        value = self.of(state)
        if value is None or (state.phase == "unreachable" and self.name not in ("phase", "alarms")):
            return self.nothing, AttrQuality.ATTR_INVALID
        return value, AttrQuality.ATTR_ALARM if self.is_wrong(state) else AttrQuality.ATTR_VALID

    def attribute(self) -> attribute:
        """The declaration for pytango."""
        size = {"max_dim_x": MOST} if isinstance(self.dtype, tuple) else {}
        labels = {"enum_labels": PHASES} if self.dtype == "DevEnum" else {}
        read = lambda device: device.read(self)
        return attribute(name=self.name, fget=read, dtype=self.dtype, doc=self.doc, unit=self.unit, **size, **labels)


def text(value: str) -> str:
    """A text as Tango can carry it: in Latin-1."""
    return value.encode("latin-1", "replace").decode("latin-1")


def texts(values) -> list[str]:
    return [text(it) for it in values][:MOST]


def count(name: str, doc: str) -> Shown:
    """A term of the account, summed over the streams."""
    total = lambda state: sum(getattr(it, name) for it in state.streams)
    return Shown(name, "DevULong64", doc, total, lambda state: total(state) > 0, unit="frames")


def of_streams(name: str, dtype: str, doc: str, of: Callable, **more) -> Shown:
    return Shown(name, (dtype,), f"{doc} of each stream", lambda state: [of(it) for it in state.streams][:MOST], nothing=[], **more)


def of_members(name: str, dtype: str, doc: str, of: Callable, **more) -> Shown:
    return Shown(name, (dtype,), f"{doc} of each member", lambda state: [of(it) for it in state.members][:MOST], nothing=[], **more)


def has_a_problem(state: State) -> bool:
    return any(it.problem for it in state.members)


SHOWN = (
    Shown("phase", "DevEnum", "the phase of the station", lambda it: PHASES.index(it.phase)),
    Shown("scan", str, "the scan that is being recorded", lambda it: text(it.scan), nothing=""),
    Shown("rate", float, "bytes per second of all streams", lambda it: it.rate, unit="B/s"),
    Shown("lost", "DevULong64", "frames lost in this scan", lambda it: it.lost, lambda it: it.lost > 0, unit="frames"),
    count("missing", "frames that did not reach the host"),
    count("overrun", "frames that arrived when no block was free"),
    count("damaged", "frames that failed their own check"),
    count("late", "frames that arrived after they were counted as missing"),
    of_streams("streams", "DevString", "the name", lambda it: text(it.name)),
    of_streams("streamRate", "DevDouble", "bytes per second", lambda it: it.rate, unit="B/s"),
    of_streams("streamLost", "DevULong64", "frames lost", lambda it: it.lost, is_wrong=lambda it: it.lost > 0, unit="frames"),
    Shown("free", "DevULong64", "bytes free on all members", lambda it: it.free, unit="B"),
    Shown("fullIn", float, "seconds until the disk set is full at this rate", lambda it: it.full_in, unit="s"),
    of_members("members", "DevString", "the directory", lambda it: text(it.path)),
    of_members("memberFree", "DevULong64", "bytes free", lambda it: it.free, unit="B"),
    of_members("memberRate", "DevDouble", "bytes per second written", lambda it: it.rate, unit="B/s"),
    of_members("memberProblem", "DevString", "what is wrong", lambda it: text(it.problem), is_wrong=has_a_problem),
    Shown("alarms", (str,), "everything that is wrong", lambda it: texts(it.alarms), lambda it: bool(it.alarms), nothing=[]),
)


class FullboreStation(Device):
    """A station of fullbore."""

    Url = device_property(dtype=str, default_value="", doc="the address of the station, such as http://127.0.0.1:8480")
    TokenFile = device_property(dtype=str, default_value="", doc="a file with the token of a viewer, or of an operator to record")
    Certificate = device_property(dtype=str, default_value="", doc="for https: a file with the certificate of the station, if it signs itself")
    Source = device_property(dtype=str, default_value="", doc="the source to record: input:NAME or an endpoint")
    Session = device_property(dtype=str, default_value="", doc="the session of the scans that are recorded")
    Option = device_property(dtype=(str,), default_value=[], doc="further keys of the request: KEY=VALUE")

    for shown in SHOWN:
        vars()[shown.name] = shown.attribute()

    def init_device(self):
        super().init_device()
        for name in (*(it.name for it in SHOWN), "State", "Status"):
            self.set_change_event(name, True, False)
        self.latest, self.since, self.station = UNREACHABLE, time.time(), None
        self.tell_state(DevState.UNKNOWN)
        self.tell_status(UNREACHABLE.alarm)
        try:
            self.station = opened(
                self.Url or given.url, self.TokenFile or given.token_file, self.Certificate or given.certificate,
                self.Source or given.source, self.Session or given.session, self.Option or given.option,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            self.tell_state(DevState.FAULT)
            self.tell_status(str(error))
            return
        threading.Thread(target=self.follow, args=(self.station,), daemon=True).start()

    def delete_device(self):
        if self.station:
            self.station.close()
        super().delete_device()

    def follow(self, station: Station):
        with tango.EnsureOmniThread():
            for state in station.states():
                self.show(state)

    def show(self, state: State):
        """Takes a state, and posts a change event for each attribute that it changes."""
        before, self.latest, self.since = self.latest, state, time.time()
        for shown in SHOWN:
            value, quality = shown.told(state)
            if (value, quality) != shown.told(before):
                self.push_change_event(shown.name, value, self.since, quality)
        self.tell_state(STATES[state.phase] if not state.alarms or state.phase == "unreachable" else DevState.ALARM)
        self.tell_status("\n".join([f"{state.phase} {state.scan}".strip(), *state.alarms]))

    def tell_state(self, state: DevState):
        if state != self.get_state():
            self.set_state(state)
            self.push_change_event("State")

    def tell_status(self, status: str):
        if (status := text(status)) != self.get_status():
            self.set_status(status)
            self.push_change_event("Status")

    # Tango would compute both from the qualities of the attributes.
    def dev_state(self):
        return self.get_state()

    def dev_status(self):
        return self.get_status()

    def read(self, shown: Shown):
        value, quality = shown.told(self.latest)
        return value, self.since, quality

    @command(dtype_in=str, doc_in="the name of the scan", dtype_out=str, doc_out="the identity of the recording")
    def Start(self, scan):
        """Records a scan. The answer comes when the recorder is armed."""
        return self.asks(lambda station: station.start(scan))

    @command(dtype_out=int, doc_out="the number of recordings that are stopped")
    def Stop(self):
        """Stops the recordings that this bridge started."""
        return self.asks(lambda station: station.stop())

    @command(dtype_in=str, doc_in="the whole name of the scan, SESSION_SCAN", dtype_out=int, doc_out="the number of recordings that are stopped")
    def StopScan(self, scan):
        """Stops the recording of a scan, also if another client started it."""
        return self.asks(lambda station: station.stop(scan))

    @command(dtype_in=str, doc_in="a line of text", dtype_out=int, doc_out="the number of scans that are marked")
    def Mark(self, line):
        """Marks this moment of the scans that are being recorded."""
        return self.asks(lambda station: station.mark(line))

    def asks(self, request: Callable[[Station], Any]) -> Any:
        """The answer to a request. A failure of it is one of the command."""
        if self.station is None:
            tango.Except.throw_exception("FullboreFault", self.get_status(), self.get_name())
        try:
            # Other clients read attributes meanwhile.
            with tango.AutoTangoAllowThreads(self):
                return request(self.station)
        except FAILURES as error:
            tango.Except.throw_exception("FullboreRefused", text(str(error)), self.get_name())


def main():
    # Tango's own options begin with one dash: `-h` would be found in `-host`.
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False, allow_abbrev=False,
        usage="%(prog)s INSTANCE [OPTIONS OF TANGO] [OPTIONS]",
    )  # fmt: skip
    parser.add_argument("--help", action="help", help="show this text")
    parser.add_argument("--url", default="", help="the address of the station, such as http://127.0.0.1:8480")
    add_options(parser)
    _, of_tango = parser.parse_known_args(namespace=given)
    run((FullboreStation,), args=["FullboreStation", *of_tango])


if __name__ == "__main__":
    main()
