"""The disk, the store on it, and reading back: fullbore beside dd and fio, blocks of 4 MiB, 32 MiB in flight.

Everybody who writes begins with no file, takes its space beforehand and ends when all of it is durable. Each is run several times in turn, so that a disk that is faster in one minute than in the next treats
all alike; the middle of each is told, and its share of fio's.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import machine
from tools import FULLBORE, REPOSITORY, started

GIGABYTES = 4
FRAME_BYTES = 8032
ROUNDS = 3
STORE_RATE = REPOSITORY / "target/release/examples/store_rate"
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def timed(command):
    """Seconds on the clock, and of CPU, that a command took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True)
    seconds = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, seconds, cpu


def fio(file, rw, huge, depth=8):
    if rw == "write":
        file.unlink(missing_ok=True)
    words = [
        "fio", "--name=bench", f"--filename={file}", f"--size={GIGABYTES}g", "--bs=4m", f"--iodepth={depth}",
        "--fallocate=native", "--end_fsync=1",
        "--ioengine=io_uring", "--direct=1", "--fixedbufs=1", "--registerfiles=1", f"--rw={rw}",
        "--output-format=json", *(["--mem=mmaphuge"] if huge else []),
    ]  # fmt: skip
    out, _, _ = timed(words)
    told = json.loads(out[out.index("{") :])["jobs"][0]
    side = told["write" if rw == "write" else "read"]
    cpu = (told["usr_cpu"] + told["sys_cpu"]) / 100 * side["runtime"] / 1000
    return {"GB_per_s": side["bw_bytes"] / 1e9, "cpu_s_per_gb": cpu / (side["io_bytes"] / 1e9)}


def dd(file):
    file.unlink(missing_ok=True)
    count = GIGABYTES * 256
    _, seconds, cpu = timed(["dd", "if=/dev/zero", f"of={file}", "bs=4M", f"count={count}", "oflag=direct", "conv=fsync"])
    gigabytes = count * (4 << 20) / 1e9
    return {"GB_per_s": gigabytes / seconds, "cpu_s_per_gb": cpu / gigabytes}


def store_rate(directory):
    """The writers alone, with checksums and index, fed from memory."""
    out, _, _ = timed([STORE_RATE, "--gigabytes", GIGABYTES, directory])
    rate, cpu = re.search(r"([\d.]+) GB/s, ([\d.]+) CPU s/GB", out).groups()
    return {"GB_per_s": float(rate), "cpu_s_per_gb": float(cpu)}


def a_scan(directory):
    """Records one to read back; says how many bytes it has."""
    directory.mkdir()
    port = 46_300
    record = ["record", f"udp://127.0.0.1:{port}?format=vdif", "--store", directory,
              "--session", "bench", "--scan", "read", "--json"]  # fmt: skip
    with started(FULLBORE, record, stdout=subprocess.PIPE, text=True) as recorder:
        if not any('"armed"' in line for line in recorder.stdout):
            raise RuntimeError(f"the recorder ended with {recorder.wait()} before it was armed")
        frames = GIGABYTES * 10**9 // FRAME_BYTES
        timed([FULLBORE, "generate", "--to", f"udp://127.0.0.1:{port}", "--frame", FRAME_BYTES,
               "--fps", 8 * 10**9 // 8 // FRAME_BYTES, "--frames", frames])  # fmt: skip
        recorder.send_signal(signal.SIGINT)
        told, _ = recorder.communicate()
    return recorded_bytes(map(json.loads, told.splitlines()))


def recorded_bytes(events):
    """Of the scan that was sealed: what was lost on the way is not read back."""
    sealed = next(event for event in events if event["event"] == "sealed")
    return sum(stream["bytes"] for stream in sealed["manifest"]["streams"])


def verify(directory, size):
    """Every block read and checked; fio reads with O_DIRECT, so the page cache must not help here."""
    if machine.IS_ROOT:
        DROP_CACHES.write_text("1")
    _, seconds, cpu = timed([FULLBORE, "verify", "bench_read", "--store", directory])
    return {"GB_per_s": size / 1e9 / seconds, "cpu_s_per_gb": cpu / (size / 1e9)}


def contenders(scratch, huge, scan_bytes):
    """Name and one run of each."""
    file = scratch / "disk"
    yield "fio write", lambda: fio(file, "write", huge)
    yield "fio write, 16 MiB in flight", lambda: fio(file, "write", huge, 4)
    yield "fio write, 4 KiB pages", lambda: fio(file, "write", False)
    yield "dd write", lambda: dd(scratch / "dd")
    if STORE_RATE.exists():
        yield "fullbore store, CRC32C", lambda: emptied(scratch / "member", store_rate)
    yield "fio read", lambda: fio(file, "read", huge)
    yield "fio read, 4 KiB pages", lambda: fio(file, "read", False)
    yield "fullbore verify", lambda: verify(scratch / "scan", scan_bytes)


def emptied(directory, measured):
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    try:
        return measured(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def measure(scratch):
    scan_bytes = a_scan(scratch / "scan")
    found: dict[str, list] = {}
    with machine.setting("/proc/sys/vm/nr_hugepages", 64) as huge:
        for _ in range(ROUNDS):
            for name, once in contenders(scratch, huge, scan_bytes):
                found.setdefault(name, []).append(once())
                told = found[name][-1]
                print(f"  {name:24} {told['GB_per_s']:.2f} GB/s, {told['cpu_s_per_gb']:.3f} s/GB", file=sys.stderr)
    return [middle(name, rounds) for name, rounds in found.items()]


def middle(name, rounds):
    keys = rounds[0].keys()
    return {"name": name, **{key: statistics.median(r[key] for r in rounds) for key in keys}, "rounds": rounds}


def table(results):
    by_name = {row["name"]: row for row in results}
    lines = ["", "| store alone | GB/s | of fio | CPU s/GB |", "|---|---|---|---|"]
    for name, row in by_name.items():
        against = by_name["fio read" if "read" in name or "verify" in name else "fio write"]
        share = row["GB_per_s"] / against["GB_per_s"]
        lines.append(f"| {name} | {row['GB_per_s']:.2f} | {share:.2f} | {row['cpu_s_per_gb']:.3f} |")
    return "\n".join(lines)
