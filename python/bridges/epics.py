"""A bridge from a station to EPICS PV Access: process variables for its state, and two that record.

    python epics.py http://127.0.0.1:8480 --token-file token --prefix RF:REC: --source input:vlbi --session r1234

| PV | value |
|---|---|
| `STATE` | enum: idle, starting, waiting, armed, recording, stopping, unreachable |
| `SCAN` | the scan that is being recorded |
| `RATE` | bytes per second |
| `LOST` | frames lost in this scan, with a MAJOR alarm |
| `FREE` | bytes free |
| `ALARM` | what is wrong, with a MAJOR alarm |
| `START` | write the name of a scan: it is recorded |
| `STOP` | write 1: the recordings that were started here end |

It needs p4p (`pip install p4p`). The bridge holds nothing: it can be killed, and recordings go on.
"""

from __future__ import annotations

import argparse
import sys
import threading

from p4p.nt import NTEnum, NTScalar
from p4p.server import Server
from p4p.server.thread import SharedPV

from station import FAILURES, PHASES, UNREACHABLE, State, Station, add_options, opened

MAJOR, DEVICE = 2, 1  # severity and status of an alarm, as EPICS numbers them


class Bridge:
    """The process variables of one station. Leaving the block ends them."""

    def __init__(self, station: Station, prefix: str):
        self.station = station
        self.state = SharedPV(nt=NTEnum(), initial={"index": PHASES.index("unreachable"), "choices": list(PHASES)})
        self.scan, self.alarm = text(""), text(UNREACHABLE.alarm)
        self.rate = SharedPV(nt=NTScalar("d", display=True), initial={"value": 0.0, "display.units": "B/s"})
        self.lost = SharedPV(nt=NTScalar("L"), initial=0)
        self.free = SharedPV(nt=NTScalar("L", display=True), initial={"value": 0, "display.units": "B"})
        self.start, self.stop = text(""), SharedPV(nt=NTScalar("i"), initial=0)
        self.start.put(self.on_start)
        self.stop.put(self.on_stop)
        names = ("state", "scan", "rate", "lost", "free", "alarm", "start", "stop")
        self.variables = {f"{prefix}{name.upper()}": getattr(self, name) for name in names}

    def __enter__(self):
        self.server = Server(providers=[self.variables])
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.station.close()
        self.server.stop()

    def follow(self):
        for state in self.station.states():
            self.show(state)

    def show(self, state: State):
        """Posts a state."""
        severity = {"alarm.severity": MAJOR, "alarm.status": DEVICE, "alarm.message": state.alarm[:80]}
        fine = {"alarm.severity": 0, "alarm.status": 0, "alarm.message": ""}
        told = severity if state.alarm else fine
        self.state.post({"value.index": PHASES.index(state.phase), "value.choices": list(PHASES), **told})
        self.scan.post(state.scan)
        self.rate.post({"value": state.rate})
        self.lost.post({"value": state.lost, **(severity if state.lost else fine)})
        self.free.post({"value": state.free})
        self.alarm.post({"value": state.alarm, **told})

    def on_start(self, pv, operation):
        scan = operation.value().raw.value
        try:
            self.station.start(scan)
        except FAILURES as error:
            return operation.done(error=str(error))
        pv.post(scan)
        operation.done()

    def on_stop(self, pv, operation):
        try:
            count = self.station.stop() if int(operation.value()) else 0
        except FAILURES as error:
            return operation.done(error=str(error))
        pv.post(count)
        operation.done()


def text(value: str) -> SharedPV:
    return SharedPV(nt=NTScalar("s"), initial=value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="the address of the station, such as http://127.0.0.1:8480")
    parser.add_argument("--prefix", default="FULLBORE:", help="the beginning of each name (default: %(default)s)")
    add_options(parser)
    args = vars(parser.parse_args())
    prefix = args.pop("prefix")
    try:
        station = opened(**args)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    with Bridge(station, prefix):
        print(f"serving {prefix}*", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
