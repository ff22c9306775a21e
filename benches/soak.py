#!/usr/bin/env python3
"""Whether VDIF streams can be recorded for hours: nothing is lost that was not dropped on purpose, memory stays flat.

    make soak-record                             an hour, or FULLBORE_SOAK_SECONDS of it
    make soak-record BENCH="--rate 12 --directory /dev/shm --seconds 600"

One recorder takes scan after scan of streams that `fullbore generate` sends over loopback, and keeps the last ones. The sender
drops a few frames by a seed and writes down which. At the end every term of all accounts together must be what was
sent, and the scans that are still there must verify. The recorder's resident memory is sampled once a second; how full its ring was
stands in each scan's account, and is drawn over the whole time. All of it is in benches/results/soak.json.
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

from machine import Busy, facts, growth_mb, resident_mb
from tools import FULLBORE, REPOSITORY

FIRST_PORT = 47200
FRAME = 8032
PAYLOAD = FRAME - 32
WARM_SECONDS = 20  # until every block has been used once
MOST_GROWTH_MB = 16
PATIENCE = 300


class Soak:
    """What came of it so far."""

    def __init__(self, recorder: subprocess.Popen, scan_seconds: float):
        self.recorder, self.scan_seconds = recorder, scan_seconds
        self.blocks = 1  # of a stream's ring
        self.armed = threading.Event()
        self.memory: list[tuple[float, float]] = []  # seconds, MB
        self.history: list[tuple[float, float]] = []  # seconds, share of the fullest ring
        self.terms: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.warnings: list[str] = []
        self.doubted: list[dict] = []  # scans of which not every stream is proven
        self.scans: list[str] = []

    def follow(self):
        for line in self.recorder.stdout:
            told = json.loads(line)
            if told["event"] == "armed":
                self.armed.set()
            elif told["event"] == "progress":
                self.blocks = max(it["high_water"][1] for it in told["streams"])
            elif told["event"] == "warning":
                self.warnings.append(told["text"])
            elif told["event"] == "sealed":
                self.sealed(told)

    def sealed(self, told: dict):
        begun = len(self.scans) * self.scan_seconds
        self.scans.append("_".join(told["manifest"]["scan"].values()))
        histories = [account["host"]["high_water_history"] for account in told["accounts"] if account["host"].get("high_water_history")]
        for step, blocks in enumerate(zip(*(history["blocks"] for history in histories))):
            self.history.append((begun + step * histories[0]["step_ms"] / 1000, max(blocks) / self.blocks))
        for account in told["accounts"]:
            self.terms.update(account["terms"])
            self.verdicts[account["verdict"]] += 1
        if any(account["verdict"] != "proven" for account in told["accounts"]):
            self.doubted.append(told)


def record(args, folder: Path) -> tuple[Soak, dict]:
    """Records for the time that was asked for."""
    ports = f"{FIRST_PORT}-{FIRST_PORT + args.streams - 1}"
    fps = round(args.rate * 1e9 / 8 / args.streams / PAYLOAD)
    truth = folder / "truth.json"
    recorder = subprocess.Popen(
        [
            FULLBORE, "record", f"udp://127.0.0.1:{ports}?format=vdif&frame={FRAME}&fps={fps}", "--store", folder,
            "--session", "soak", "--scan", "no", "--scans", str(int(args.seconds / args.scan_seconds) + 1000),
            "--duration", f"{args.scan_seconds}s", "--keep", args.keep, "--chunk", args.chunk, "--buffer", args.buffer, "--json",
        ],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    soak = Soak(recorder, args.scan_seconds)
    follower = threading.Thread(target=soak.follow)
    follower.start()
    try:
        if not soak.armed.wait(PATIENCE):
            sys.exit("the recorder is not armed")
        busy = Busy()
        sender = subprocess.Popen(
            [
                FULLBORE, "generate", "--to", f"udp://127.0.0.1:{ports}", "--frame", str(FRAME), "--fps", str(fps),
                "--gentle", "--drop", str(args.drop), "--seed", "5", "--duration", f"{args.seconds}s",
                "--truth", truth, "--json",
            ],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        begun = time.monotonic()
        while sender.poll() is None and follower.is_alive():
            soak.memory.append((round(time.monotonic() - begun, 1), resident_mb(recorder.pid)))
            time.sleep(1)
        seconds, spent = time.monotonic() - begun, sum(Busy().since(busy))
        sender.wait(PATIENCE)
    finally:
        recorder.send_signal(signal.SIGINT)
    follower.join(PATIENCE)
    _, status, usage = os.wait4(recorder.pid, 0)
    sent = Counter()
    for port in (stream["port"] for stream in json.loads(truth.read_text())["streams"]):
        sent.update(expected=port["meant"], written=port["sent"], missing=port["dropped"]["count"])
    gb = sent["written"] * FRAME / 1e9
    return soak, {
        "seconds": seconds,
        "exit_code": os.waitstatus_to_exitcode(status),
        "gb": gb,
        "gbit_per_second": gb * 8 / seconds,
        "cpu_seconds_per_gb": (usage.ru_utime + usage.ru_stime) / gb,
        "machine_cpu_seconds": spent,
        "largest_mb": usage.ru_maxrss / 1024,
        "truth": dict(sent),
    }


# Exit codes of `verify`: intact and complete, or intact and not complete, as frames are dropped on purpose.
INTACT = {0, 3}


def verified(folder: Path, scans: list[str]) -> dict[str, int]:
    """The exit codes of `verify` for the scans that are still there."""
    there = [scan for scan in scans if any(folder.glob(f"{scan}_*"))]  # a directory for each stream
    done = lambda scan: subprocess.run(
        [FULLBORE, "verify", scan, "--store", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return {scan: done(scan).returncode for scan in there}


def thinned(points: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most so many points, each the highest of those it stands for."""
    step = -(-len(points) // most) or 1
    return [(points[at][0], max(value for _, value in points[at : at + step])) for at in range(0, len(points), step)]


def picture(soak: Soak, seconds: float, title: str) -> str:
    """How full the ring was over time, and the memory below it, as SVG."""
    width, height, left, gap = 900, 150, 60, 60
    blue, grey = "#3b76c4", "#808080"
    most_mb = max(mb for _, mb in soak.memory) * 1.15
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 40} {2 * (height + gap) + 20}" '
        f'font-family="sans-serif" font-size="13" fill="{grey}">',
        f'<text x="{left}" y="20" font-size="15">{title}</text>',
    ]

    def panel(top, label, points, most, unit):
        x = lambda at: left + width * at / seconds
        y = lambda value: top + height * (1 - value / most)
        line = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
        parts.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="{grey}"/>')
        parts.append(f'<polyline points="{line}" fill="none" stroke="{blue}" stroke-width="1.2"/>')
        parts.append(f'<text x="{left}" y="{top - 6}">{label}</text>')
        for share in (0, 0.5, 1):
            text = f"{most * share:.0f}{unit}"
            parts.append(f'<text x="{left - 6}" y="{y(most * share) + 4:.0f}" text-anchor="end">{text}</text>')

    panel(50, "high-water mark of the fullest ring, in each step", [(at, 100 * v) for at, v in thinned(soak.history, width)], 100, "%")
    panel(50 + height + gap, "resident memory of the recorder, MB", thinned(soak.memory, width), most_mb, "")
    bottom = 50 + 2 * height + gap + 18
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(
            f'<text x="{left + width * share:.0f}" y="{bottom}" text-anchor="middle">{seconds * share / 60:.0f} min</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = float(os.environ.get("FULLBORE_SOAK_SECONDS", 3600))
    parser.add_argument("--seconds", type=float, default=default, help="how long")
    parser.add_argument("--rate", type=float, default=4, help="Gbit/s of all streams together")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--drop", type=float, default=1e-7, help="share of the frames that the sender drops")
    parser.add_argument("--scan-seconds", type=float, default=4)
    parser.add_argument("--keep", default="4GB", help="how much is left of scans")
    parser.add_argument("--chunk", default="256MiB", help="what is taken of the disk at once for each stream; less for a small one")
    parser.add_argument("--buffer", default="1GiB")
    parser.add_argument("--directory", type=Path, default=REPOSITORY, help="where the store is for a while")
    parser.add_argument("--picture", type=Path, help="draw the high-water mark into this file, as SVG")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory, prefix="soak-") as folder:
        soak, told = record(args, Path(folder))
        codes = verified(Path(folder), soak.scans)
        machine = facts(Path(folder))
    growth = growth_mb(soak.memory, WARM_SECONDS)
    report = {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "streams": args.streams,
        **told,
        "terms": soak.terms,
        "scans": len(soak.scans),
        "verdicts": soak.verdicts,
        "verified": codes,
        "growth_mb": growth,
        "memory_mb": thinned(soak.memory, 360),
        "high_water_history": thinned(soak.history, 3600),
        "warnings": soak.warnings[:100],
        "doubted": soak.doubted[:10],
    }
    results = REPOSITORY / "benches/results"
    results.mkdir(parents=True, exist_ok=True)
    (results / "soak.json").write_text(json.dumps(report, indent=1) + "\n")
    if args.picture:
        title = f"{args.streams} streams, {told['gbit_per_second']:.1f} Gbit/s, {told['gb'] / 1000:.2f} TB"
        args.picture.write_text(picture(soak, told["seconds"], title))
    print(f"{len(soak.scans)} scans, {told['gb']:.1f} GB in {told['seconds']:.0f} s: {told['gbit_per_second']:.2f} Gbit/s")
    print(f"terms {dict(soak.terms)}\ntruth {told['truth']}\nverdicts {dict(soak.verdicts)}")
    print(f"{told['cpu_seconds_per_gb']:.3f} CPU s/GB; at most {told['largest_mb']:.0f} MB, {growth:+.1f} MB from the first quarter to the last")
    print(f"the ring was full to {100 * max(share for _, share in soak.history):.0f} % at most; {len(codes)} scans verified")
    wrong = {term: (soak.terms[term], told["truth"].get(term, 0)) for term in soak.terms if soak.terms[term] != told["truth"].get(term, 0)}
    failures = [
        what
        for what, failed in {
            f"the account is not the truth: {wrong}": wrong,
            "memory grows": growth > MOST_GROWTH_MB,
            "a scan does not verify": not INTACT.issuperset(codes.values()) or not codes,
        }.items()
        if failed
    ]
    sys.exit("; ".join(failures) or 0)


if __name__ == "__main__":
    main()
