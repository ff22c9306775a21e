#!/usr/bin/env python3
"""Whether a PandA can be recorded for hours: memory stays flat, no sample is lost, flushes stay short.

    make soak-panda                              an hour, or FULLBORE_SOAK_SECONDS of it
    FULLBORE_SOAK_SECONDS=120 make soak-panda
    make soak-panda BENCH="--rate 0 --directory /dev/shm"    as fast as it goes

A made-up PandA sends 60-byte samples of 11 columns at a rate above that of a real one's link; one recorder
takes acquisition after acquisition of some seconds into a file each. Every file is read back, compared value by
value and removed; at a rate at which reading does not keep up, those that would pile up are only removed, and
counted. The recorder's resident memory is sampled once a second. It fails if memory grows, a sample
is lost, or a file is wrong. All of it is in benches/results/panda_soak.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from machine import growth_mb, resident_mb
from panda import REPOSITORY, SAMPLE_BYTES, busy, check

WARM_SECONDS = 10  # until every buffer has been used once
MOST_GROWTH_MB = 16
MOST_FILES = 3  # the one being written, one before, and one that is read
FAST_SAMPLES = 12_000_000  # of an acquisition as fast as it goes: a second or two
PATIENCE = 120


class Lines:
    """A program that tells what happens in lines of JSON."""

    def __init__(self, *words):
        self.process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)

    def events(self):
        for line in self.process.stdout:
            yield json.loads(line)


class Soak:
    """What came of it so far."""

    def __init__(self):
        self.memory: list[tuple[float, float]] = []  # seconds, MB
        self.flushes: Counter[int] = Counter()
        self.longest_flush_us = self.longest_write_us = 0
        self.acquisitions = self.samples = self.compared = self.wrong = 0
        self.held_seconds = 0.0
        self.high_water = 0
        self.verdicts: Counter[str] = Counter()
        self.notes: list[str] = []

    def sealed(self, told: dict):
        """Counts an acquisition, and compares and removes its file."""
        (written,), (account,), (stream,) = told["files"], told["accounts"], told["manifest"]["streams"]
        file, samples = Path(written["path"]), account["terms"]["written"]
        self.acquisitions += 1
        self.samples += samples
        self.verdicts[account["verdict"]] += 1
        self.notes += stream["format"]["notes"][: 100 - len(self.notes)]
        for most, count in written["flush_histogram"]:
            self.flushes[most] += count
        self.longest_flush_us = max(self.longest_flush_us, written["flush_us"][-1])
        self.longest_write_us = max(self.longest_write_us, written["longest_write_us"])
        if len(list(file.parent.iterdir())) <= MOST_FILES:
            self.compared += 1
            self.wrong += not check(file, samples, raw=False)
        file.unlink()

    def progress(self, told: dict):
        (stream,) = told["streams"]
        self.held_seconds = stream["held_seconds"]
        self.high_water = max(self.high_water, stream["high_water"][0])


def follow(recorder: Lines, soak: Soak):
    for event in recorder.events():
        if event["event"] == "sealed":
            soak.sealed(event)
        elif event["event"] == "progress":
            soak.progress(event)


def record(args, folder: str) -> tuple[Soak, dict]:
    """Records for the time that was asked for."""
    samples = int(args.rate * args.acquisition_seconds) or FAST_SAMPLES
    simulate = [args.fullbore, "simulate", "panda", "--json", "--samples", samples]
    simulate += ["--rate", args.rate] if args.rate else []
    server = Lines(*simulate, "--control", "127.0.0.1:0", "--data", "127.0.0.1:0")
    soak = Soak()
    try:
        listening = next(server.events())
        threading.Thread(target=lambda: list(server.events()), daemon=True).start()
        port = listening["data"].rsplit(":", 1)[1]
        endpoint = f"panda://{listening['control']}?data={port}"
        files = Path(folder) / "soak-%d.h5"
        begun = time.monotonic()
        recorder = Lines(args.fullbore, "panda", "record", endpoint, files, "--num", 0, "--arm", "--json")
        follower = threading.Thread(target=follow, args=(recorder, soak))
        follower.start()
        try:
            while (at := time.monotonic() - begun) < args.seconds and follower.is_alive():
                soak.memory.append((round(at, 1), resident_mb(recorder.process.pid)))
                time.sleep(1)
        finally:
            recorder.process.send_signal(signal.SIGINT)
        follower.join(PATIENCE)
        _, status, usage = os.wait4(recorder.process.pid, 0)
    finally:
        server.process.kill()
        server.process.wait()
    gb = soak.samples * SAMPLE_BYTES / 1e9
    return soak, {
        "seconds": time.monotonic() - begun,
        "exit_code": os.waitstatus_to_exitcode(status),
        "gb": gb,
        "cpu_seconds_per_gb": (usage.ru_utime + usage.ru_stime) / gb if gb else None,
        "largest_mb": usage.ru_maxrss / 1024,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = float(os.environ.get("FULLBORE_SOAK_SECONDS", 3600))
    parser.add_argument("--seconds", type=float, default=default, help="how long")
    parser.add_argument("--rate", type=float, default=2e6, help="samples a second; 2e6 are 120 MB/s, 0 is as fast as it goes")
    parser.add_argument("--acquisition-seconds", type=float, default=10, help="of each file")
    parser.add_argument("--directory", type=Path, default=REPOSITORY, help="where files are for a moment")
    parser.add_argument("--fullbore", type=Path, default=REPOSITORY / "target/release/fullbore")
    parser.add_argument("--results", type=Path, default=REPOSITORY / "benches/results")
    args = parser.parse_args()
    others = busy()
    with tempfile.TemporaryDirectory(dir=args.directory, prefix="soak-panda-") as folder:
        soak, told = record(args, folder)
    growth = growth_mb(soak.memory, WARM_SECONDS)
    report = {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "kernel": os.uname().release,
        "cpu": next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if "model name" in line),
        "busy_before": others,
        "rate": args.rate,
        "sample_bytes": SAMPLE_BYTES,
        **told,
        "acquisitions": soak.acquisitions,
        "samples": soak.samples,
        "verdicts": soak.verdicts,
        "compared_files": soak.compared,
        "wrong_files": soak.wrong,
        "notes": soak.notes,
        "growth_mb": growth,
        "memory_mb": soak.memory[:: max(1, len(soak.memory) // 360)],
        "flushes_by_longest_us": dict(sorted(soak.flushes.items())),
        "longest_flush_us": soak.longest_flush_us,
        "longest_write_us": soak.longest_write_us,
        "held_seconds": soak.held_seconds,
        "high_water": soak.high_water,
    }
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / "panda_soak.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"{soak.acquisitions} acquisitions, {told['gb']:.1f} GB in {told['seconds']:.0f} s: {dict(soak.verdicts)}")
    print(f"{soak.compared} files were compared value by value, {soak.wrong} of them were wrong")
    print(f"memory: at most {told['largest_mb']:.0f} MB, {growth:+.1f} MB from the first quarter to the last")
    total = sum(soak.flushes.values())
    for most, count in sorted(soak.flushes.items()):
        print(f"  {count:6} of {total} flushes took {most / 2000:.3f} to {most / 1000:.3f} ms")
    print(f"all of it: {args.results / 'panda_soak.json'}")
    failures = [
        what
        for what, failed in {
            "memory grows": growth > MOST_GROWTH_MB,
            "samples were lost": set(soak.verdicts) != {"proven"},
            "a file is wrong": soak.wrong,
            "no file was compared": not soak.compared,
            "the recorder failed": told["exit_code"] != 0,
        }.items()
        if failed
    ]
    sys.exit(", ".join(failures) or 0)


if __name__ == "__main__":
    main()
