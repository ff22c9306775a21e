#!/usr/bin/env python3
"""How exactly a recording is played back: eight streams, 2 Gbit/s in all.

    make bench-replay

A scan is recorded from `fullbore generate`, then played to loopback at its recorded time while it is
recorded again. It passes when every frame went out and came in, in order (the second account is
*proven* and nothing was reordered), and the median distance from the due time is below 10 µs. What came
of it, when and on which machine, is written to benches/results/replay.json.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import machine
from tools import FULLBORE, REPOSITORY

RESULT = REPOSITORY / "benches/results/replay.json"
PORTS = "udp://127.0.0.1:46300-46307"
STREAMS, RATE, SECONDS = 8, "250Mbit/s", 5
MEDIAN_NS = 10_000


def record(store, scan):
    """A recorder that is armed."""
    command = [FULLBORE, "--json", "record", f"{PORTS}?format=vdif", "--store", store,
               "--session", "bench", "--scan", scan, "--cpus", "1,1"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if json.loads(line)["event"] == "armed":
            return process
    sys.exit("the recorder did not arm")


def stop(process):
    """The accounts of a recorder that is told to stop."""
    process.terminate()
    sealed = [event for event in map(json.loads, process.stdout) if event["event"] == "sealed"]
    process.wait()
    return sealed[-1]["accounts"]


def fullbore(*words):
    """What a command says in JSON."""
    command = ["taskset", "-c", "0", FULLBORE, "--json", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    with tempfile.TemporaryDirectory(dir=".", prefix="bench-replay-") as store:
        recorder = record(store, "first")
        fullbore("generate", "--to", PORTS, "--rate", RATE, "--duration", f"{SECONDS}s")
        first = stop(recorder)
        recorder = record(store, "again")
        report = fullbore("play", "bench_first", "--store", store, "--to", PORTS)
        again = stop(recorder)
        facts = machine.facts(Path(store))
    meant = sum(account["terms"]["written"] for account in first)
    came = sum(account["terms"]["written"] for account in again)
    order = sum(account["reordered"] for account in again)
    median = report["lateness"]["median_ns"]
    document = {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": facts, "version": machine.version(str(FULLBORE), "--version"),
        "streams": STREAMS, "rate_of_each": RATE, "seconds": SECONDS,
        "frames_meant": meant, "frames_came": came, "out_of_order": order, "play": report,
    }  # fmt: skip
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(report, indent=2))
    print(f"{came} of {meant} frames came back, {order} out of order; median {median / 1000:.1f} µs from due")
    good = came == meant and order == 0 and median < MEDIAN_NS
    sys.exit(0 if good else "NOT as it should be")


if __name__ == "__main__":
    main()
