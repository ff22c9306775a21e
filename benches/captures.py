#!/usr/bin/env python3
"""How fast a packet capture is recorded, beside programs that only read it.

    make bench-captures
    make bench-captures BENCH="--gigabytes 2 --rounds 5"

Captures with packets of 1500 and 9000 bytes are made in memory: datagrams with a counter, to one UDP
port. In turn, each is recorded to standard output, which is /dev/null, by fullbore; read by tcpdump, which
counts it; and read by capinfos and tshark, which dissects it. Every program must find every packet. The
result is GB/s and CPU seconds per GB of the file, the median of the rounds. What came of it, when and on
which machine, is written to benches/results/captures.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import machine
from tools import FULLBORE, REPOSITORY

RESULT = REPOSITORY / "benches/results/captures.json"
PACKETS = (1500, 9000)
HEADERS = 14 + 20 + 8
PORT = 5000


def write_capture(path, packet_bytes, total):
    """A pcap file of about `total` bytes; returns the number of packets. `packet_bytes` is the IP packet."""
    payload = packet_bytes - 28
    ethernet = bytes(12) + b"\x08\0"
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, packet_bytes, 0, 0, 64, 17, 0, b"\xc0\0\2\1", b"\xc0\0\2\2")
    udp = struct.pack(">4H", 4000, PORT, payload + 8, 0)
    filling = os.urandom(payload - 8)
    count = total // (16 + 14 + packet_bytes)
    length = struct.pack("<II", 14 + packet_bytes, 14 + packet_bytes)
    with path.open("wb") as file:
        file.write(struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1))
        for number in range(count):
            second, part = divmod(number * 10_000, 10**9)
            stamp = struct.pack("<II", 1_790_000_000 + second, part)
            file.write(b"".join((stamp, length, ethernet, ip, udp, struct.pack("<Q", number), filling)))
    return count


def fullbore(fullbore_path, path):
    query = f"port={PORT}&format=raw&seq=0:8:le"
    words = [fullbore_path, "--json", "record", f"file:{path}?{query}", "--to", "-", "--session", "bench", "--scan", "a"]
    return words, lambda out, err: json_account(err)["terms"]["written"]


def json_account(told):
    sealed = [event for event in map(json.loads, told.splitlines()) if event["event"] == "sealed"]
    return sealed[-1]["accounts"][0]


def tcpdump(_, path):
    return ["tcpdump", "-r", path, "--count", "-n"], lambda out, err: int((out + err).split(" packet")[0].split()[-1])


def capinfos(_, path):
    return ["capinfos", "-c", "-M", path], lambda out, err: int(out.rsplit(":", 1)[1])


def tshark(_, path):
    return ["tshark", "-r", path, "-q", "-z", "io,stat,0"], lambda out, err: int(out.split("<>")[1].split("|")[1])


TOOLS = {"fullbore": fullbore, "tcpdump": tcpdump, "capinfos": capinfos, "tshark": tshark}


def measure(tool, binary, path, packets):
    """One run: GB/s and CPU seconds per GB of the file."""
    words, found = TOOLS[tool](binary, path)
    out = subprocess.DEVNULL if tool == "fullbore" else subprocess.PIPE
    before, begun = os.times(), time.monotonic()
    done = subprocess.run([str(word) for word in words], stdout=out, stderr=subprocess.PIPE, text=True, check=True)
    seconds, after = time.monotonic() - begun, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    assert found(done.stdout or "", done.stderr) == packets, (tool, done.stderr[-500:])
    gigabytes = path.stat().st_size / 1e9
    return {"GB_per_second": gigabytes / seconds, "cpu_seconds_per_GB": cpu / gigabytes}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--fullbore", type=Path, default=FULLBORE)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--results", type=Path, default=RESULT)
    options = parser.parse_args()
    tools = [tool for tool in TOOLS if tool == "fullbore" or shutil.which(tool)]
    rows = []
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="bench-captures-") as directory:
        for packet_bytes in PACKETS:
            path = Path(directory) / f"{packet_bytes}.pcap"
            packets = write_capture(path, packet_bytes, int(options.gigabytes * 1e9))
            trials = {tool: [] for tool in tools}
            for _ in range(options.rounds):
                for tool in tools:
                    trials[tool].append(measure(tool, options.fullbore, path, packets))
            path.unlink()
            for tool, runs in trials.items():
                median = {key: round(statistics.median(run[key] for run in runs), 3) for key in runs[0]}
                rows.append({"packet_bytes": packet_bytes, "tool": tool, **median})
                print(f"{packet_bytes:5} B  {tool:9} {median['GB_per_second']:7.3f} GB/s  {median['cpu_seconds_per_GB']:7.3f} CPU s/GB")
    versions = {tool: machine.version(options.fullbore if tool == "fullbore" else tool, "--version") for tool in tools}
    when = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    facts = machine.facts(options.directory)
    result = {"when": when, "machine": facts, "versions": versions, "rounds": options.rounds, "rows": rows}
    options.results.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
