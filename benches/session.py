#!/usr/bin/env python3
"""A session of scans with pauses at full rate: nothing may be lost, and each scan is verified in the pause behind it.

A rate holds if no frame is lost, every scan is good by `verify`, and each `verify` ended before the next scan began. A
session that lost nothing and was verified too late is `whole` and does not hold: its row says so.

    make bench-session                                        8 and 16 streams, 16 Gbit/s, scans of 40 s, pauses of 20 s
    make bench-session BENCH="--rate 8 --scans 20 --directory /mnt/disk0,/mnt/disk1"
    make bench-session BENCH="--rate 0.5 --scan-seconds 2 --pause-seconds 2 --scans 3"      small, to try it

The instrument is `fullbore generate` over loopback. It sends all the time, as an instrument does; what it sends in the
pauses is not recorded. `--keep` removes the oldest scans, so the session goes on for as long as is asked for. Where the
disks have no room for two scans at `--rate`, the session is run at the rate at which they have. Where a session does
not hold its rate, the rate is lowered by `--step` and the session is run again, until one does: that is the rate which
this machine holds at this duty cycle.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import machine
from tools import FULLBORE, REPOSITORY, started

FIRST_PORT = 46_220
ARMING = 12  # seconds that the recorder has to arm a scan: block memory that it gets for the first time takes longest
LEAD = ARMING + 4  # seconds until the first scan
FRAME = 8032
ROOM = 0.8  # the share of the free space that a session may fill


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--rate", type=float, default=16.0, help="Gbit/s of all streams together (default: %(default)s)")
    add("--step", type=float, default=0.8, help="factor to the next rate after a loss (default: %(default)s)")
    add("--least", type=float, default=0.1, help="Gbit/s below which it is given up (default: %(default)s)")
    add("--streams", type=lambda text: [int(word) for word in text.split(",")], default=[8, 16])
    add("--scan-seconds", type=int, default=40)
    add("--pause-seconds", type=int, default=20)
    add("--scans", type=int, help="scans of a session (default: twice what the disks have room for, 60 at most)")
    add("--keep-scans", type=int, help="let --keep remove the oldest beyond this many scans (default: when room is needed)")
    add("--directory", default=str(REPOSITORY / "target/bench"), help="a directory on each disk, separated by commas")
    add("--fullbore", type=Path, default=FULLBORE)
    add("--output", type=Path, default=REPOSITORY / "benches/results/session.json")
    options = parser.parse_args()
    if not 0 < options.step < 1 or options.rate <= 0 or options.scan_seconds < 1 or options.pause_seconds < 1:
        parser.error("--rate, --scan-seconds and --pause-seconds are above 0, and --step is between 0 and 1")
    return options


class Session:
    """One session at one rate."""

    def __init__(self, options, streams, gbit, members):
        self.options, self.streams, self.gbit, self.members = options, streams, gbit, members
        scan_bytes, fillable = gbit * 1e9 / 8 * options.scan_seconds, room(members)
        # A scan takes somewhat more than its payload: it begins early, and has an index.
        self.kept = int(scan_bytes * (options.keep_scans + 0.5) if options.keep_scans else fillable - scan_bytes)
        self.scans = options.scans or min(60, max(4, round(2 * fillable / scan_bytes)))

    def run(self):
        """Records and verifies; what came of it."""
        scan, pause = self.options.scan_seconds, self.options.pause_seconds
        begin = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=LEAD)
        # The schedule has whole seconds.
        self.begin = begin = begin.replace(microsecond=0)
        schedule = self.members[0].parent / "session.toml"
        schedule.write_text(
            f'session = "paper"\n[[scan]]\nname = "no"\nstart = "{begin:%Y-%m-%dT%H:%M:%S}"\n'
            f'duration = "{scan}s"\npause = {pause}\nrepeat = {self.scans}\n'
        )
        store = ",".join(map(str, self.members))
        ports = f"udp://127.0.0.1:{FIRST_PORT}-{FIRST_PORT + self.streams - 1}"
        lasts = LEAD + self.scans * (scan + pause) + 5
        record = ["record", f"{ports}?format=vdif", "--schedule", schedule, "--store", store, "--lead", f"{ARMING}s", "--keep", f"{self.kept}B", "--json"]
        generate = ["generate", "--to", ports, "--rate", f"{self.gbit / self.streams}Gbit/s", "--frame", FRAME, "--start", "now",
                    "--duration", f"{lasts}s", "--gentle", "--json"]  # fmt: skip
        told, verified = [], []
        with contextlib.ExitStack() as running:
            recorder = running.enter_context(started(self.options.fullbore, record, stdout=subprocess.PIPE, text=True))
            running.enter_context(started(self.options.fullbore, generate, stdout=subprocess.DEVNULL))
            for line in recorder.stdout:
                event = json.loads(line)
                if event["event"] == "sealed":
                    told.append(event)
                    verified.append({**self.verify(event["manifest"]["scan"], store), "headline": event["headline"]})
                    print(f"    {verified[-1]}", file=sys.stderr)
            code = recorder.wait()
        return self.outcome(code, told, verified, self.remaining())

    def remaining(self):
        """The scans that `--keep` left."""
        names = {"_".join(path.name.split("_")[:2]) for member in self.members for path in member.glob("paper_*")}
        return sorted(names)

    def next_scan(self, scan):
        """When the scan after this one begins. Their numbers count from 1."""
        number = int(scan.rpartition("no")[2])
        return self.begin + datetime.timedelta(seconds=number * (self.options.scan_seconds + self.options.pause_seconds))

    def verify(self, name, store):
        scan = f"{name['session']}_{name['scan']}" if isinstance(name, dict) else name
        begun = time.monotonic()
        command = [self.options.fullbore, "verify", scan, "--store", store]
        code = subprocess.run(list(map(str, command)), stdout=subprocess.DEVNULL).returncode
        left = (self.next_scan(scan) - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
        seconds = round(time.monotonic() - begun, 2)
        return {"scan": scan, "code": code, "seconds": seconds, "pause_left_seconds": round(left, 2), "in_the_pause": left >= 0}

    def outcome(self, code, told, verified, remaining):
        accounts = [account for event in told for account in event["accounts"]]
        terms = {term: sum(account["terms"][term] for account in accounts) for term in accounts[0]["terms"]} if accounts else {}
        whole = len(told) == self.scans and code == 0 and all(it["code"] == 0 for it in verified)
        in_the_pause = all(it["in_the_pause"] for it in verified)
        recorded = terms.get("written", 0) * FRAME * 8 / 1e9 / max(1, len(told) * self.options.scan_seconds)
        return {
            "streams": self.streams, "asked_gbit": self.gbit, "scans": self.scans, "sealed": len(told), "kept_bytes": self.kept,
            "recorded_gbit": recorded, "sender_fell_short": whole and recorded < 0.99 * self.gbit,
            "exit_code": code, "terms": terms, "verified": verified, "remaining": remaining,
            "whole": whole, "in_the_pause": in_the_pause, "holds": whole and in_the_pause,
        }  # fmt: skip


def room(members):
    """The bytes that a session may fill: a share of the free space of the disks, as evenly as scans fill them."""
    free = {member.stat().st_dev: shutil.disk_usage(member).free for member in members}
    return ROOM * min(free.values()) * len(free)


def held(options, streams, members):
    """Sessions at lower and lower rates until one holds; all of them, the last first."""
    gbit, runs = options.rate, []
    while gbit >= options.least:
        for member in members:
            shutil.rmtree(member, ignore_errors=True)
            member.mkdir(parents=True)
        fits = room(members) / 2 / options.scan_seconds * 8 / 1e9
        if fits < gbit:
            print(f"  {gbit:.2f} Gbit/s: no room for two scans of {options.scan_seconds} s", file=sys.stderr)
            gbit = math.floor(fits * 10) / 10
        print(f"  {streams} streams, {gbit:.2f} Gbit/s", file=sys.stderr)
        runs.insert(0, Session(options, streams, gbit, members).run())
        if runs[0]["holds"]:
            break
        gbit = round(gbit * options.step, 3)
    return runs


def table(results):
    lines = ["| streams | asked Gbit/s | recorded Gbit/s | scans | frames expected | not recorded | longest verify | verified in the pause | |",
             "|" + "---|" * 9]  # fmt: skip
    for run in results:
        expected, written = run["terms"].get("expected", 0), run["terms"].get("written", 0)
        longest = max((it["seconds"] for it in run["verified"]), default=0)
        within = sum(it["in_the_pause"] for it in run["verified"])
        late = "nothing lost; **verify is too slow for the pause**" if run["whole"] else "**not sustained**"
        verdict = "holds" if run["holds"] else late
        verdict += "; the sender could do no more" * run["sender_fell_short"]
        lines.append(f"| {run['streams']} | {run['asked_gbit']} | {run['recorded_gbit']:.2f} | {run['sealed']} of {run['scans']} "
                     f"| {expected} | {expected - written} | {longest:.1f} s | {within} of {len(run['verified'])} | {verdict} |")  # fmt: skip
    return "\n".join(lines)


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = arguments()
    tops = [Path(text).absolute() / "fullbore-session" for text in options.directory.split(",")]
    results = []
    try:
        for streams in options.streams:
            results += held(options, streams, [top / "member" for top in tops])
    finally:
        facts = machine.facts(tops[0].parent)
        for top in tops:
            shutil.rmtree(top, ignore_errors=True)
        document = {
            "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "scan_seconds": options.scan_seconds, "pause_seconds": options.pause_seconds,
            "machine": facts, "version": machine.version(str(options.fullbore), "--version"), "sessions": results,
        }  # fmt: skip
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    print(table(results))
    return 0 if any(run["holds"] for run in results) else 1


if __name__ == "__main__":
    sys.exit(main())
