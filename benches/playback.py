#!/usr/bin/env python3
"""Playback from a disk at a share of its read rate, and how far streams are from being in step, in one run.

    benches/playback.py [--directory DIR] [--streams 16] [--size 4GB] [--binary PATH]

A scan of as many streams as wanted is recorded from `fullbore generate`. fio reads its chunk files with O_DIRECT, in
blocks of 4 MiB, eight under way, before and after. `play` then sends the scan to sockets that nobody reads, at 50, 70,
80 and 90 % of the first reading. For each share, the account says how many datagrams were on time, late and not sent, for which causes,
and by how much the streams differed. The page cache is dropped before each reading (that needs root). What came of it is
printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import machine
from tools import FULLBORE

SHARES = [0.5, 0.7, 0.8, 0.9]
FRAME, FPS = 8032, 4000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("."), help="on the disk to measure")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--size", type=float, default=4, help="gigabytes of the scan")
    parser.add_argument("--binary", type=Path, default=FULLBORE)
    return parser.parse_args()


def cold():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def fio(files):
    """Bytes per second of reading these files, one after the other."""
    cold()
    command = [
        "fio", "--name=read", "--filename=" + ":".join(map(str, files)), "--rw=read", "--bs=4m",
        "--iodepth=8", "--direct=1", "--ioengine=io_uring", "--readonly", "--file_service_type=sequential", "--output-format=json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"]


def record(binary, store, streams, gigabytes):
    """A scan that takes its time: nothing may be lost while it is made."""
    ports = f"udp://127.0.0.1:46400-{46400 + streams - 1}"
    recorder = subprocess.Popen(
        [binary, "--json", "record", f"{ports}?format=vdif", "--store", store, "--session", "bench", "--scan", "one"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in recorder.stdout:
        if json.loads(line)["event"] == "armed":
            break
    frames = int(gigabytes * 1e9 / streams / FRAME)
    rate = ["--fps", str(FPS // streams * 2)]
    subprocess.run(
        [binary, "generate", "--to", ports, "--frame", str(FRAME), *rate, "--frames", str(frames), "--gentle"],
        stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    recorder.terminate()
    recorder.wait()


def play(binary, store, sockets, rate):
    cold()
    ports = [held.getsockname()[1] for held in sockets]
    to = [word for port in ports for word in ("--to", f"udp://127.0.0.1:{port}")]
    command = [binary, "--json", "play", "bench_one", "--store", store, *to, "--rate", f"{int(rate)}B/s"]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if not done.stdout:
        sys.exit(done.stderr)
    report = json.loads(done.stdout.splitlines()[-1])
    account = report["underruns"]
    causes = Counter()
    for gap in account["gaps"]:
        causes[gap["cause"]] += gap["packets"]
    return {
        "asked_bytes_per_second": int(rate), "seconds": report["seconds"], "due_seconds": report["due_seconds"],
        "bytes_per_second": report["bytes"] / report["seconds"], "planned": account["planned"],
        "on_time": account["on_time"], "late": account["late"], "not_sent": account["not_sent"],
        "causes_of_listed_gaps": causes, "gaps": len(account["gaps"]) + account["gaps_not_listed"],
        "most_late_seconds": report["lateness"]["max_ns"] / 1e9, "in_step": report["step"],
    }  # fmt: skip


def main():
    options = arguments()
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(options.streams)]
    for held in sockets:
        held.bind(("127.0.0.1", 0))
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="bench-playback-") as store:
        record(options.binary, store, options.streams, options.size)
        chunks = [file for file in Path(store).rglob("*") if file.is_file() and file.stat().st_size > 1 << 22]
        before = fio(chunks)
        results = [
            {"share": share, **play(options.binary, store, sockets, share * before)} for share in SHARES
        ]
        document = {
            "machine": machine.facts(Path(store)), "fio": machine.version("fio", "--version"),
            "version": machine.version(str(options.binary), "--version"), "streams": options.streams,
            "fio_bytes_per_second": {"before": before, "after": fio(chunks)}, "load": os.getloadavg(), "play": results,
        }  # fmt: skip
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
