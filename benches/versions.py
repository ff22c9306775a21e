#!/usr/bin/env python3
"""Compares two builds of fullbore: the CPU time of each job, and the memory of a recorder.

    make bench-versions OLD=binary NEW=binary
    python3 benches/versions.py OLD NEW [--rounds N] [--seconds N] [--only record,panda] [--store-rate OLD NEW]

OLD and NEW are binaries. Both do the same jobs, one after the other, and the next round begins with the other one. The
sender has CPU 0, and the measured process CPU 1. For each job the table has the median of all rounds, and the median of
the ratios NEW / OLD of each round with the lowest and the highest. The exit code is 1 if a ratio is above --most.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import machine
from tools import REPOSITORY, started

PORT = 46_220
SCAN = ("--session", "bench", "--scan", "one")


@contextlib.contextmanager
def measured(command, cpu=machine.RECEIVER_CPU):
    """Runs a command on one CPU. Yields the process and a dictionary, which has its CPU time and memory at the end."""
    words = ["taskset", "-c", cpu, *command]
    found: dict[str, float] = {}
    with started(words[0], words[1:], stdout=subprocess.PIPE, text=True) as process:
        yield process, found
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        found |= {"cpu_s": usage.ru_utime + usage.ru_stime, "memory_MB": usage.ru_maxrss / 1024}


def events(process, name):
    """The next event with this name; everything before it is passed over."""
    return next(event for line in process.stdout if (event := json.loads(line))["event"] == name)


def size_of(directory):
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def send(binary, rate, frame, seconds, streams):
    words = ["generate", "--to", f"udp://127.0.0.1:{PORT}-{PORT + streams - 1}", "--frame", frame]
    limits = ["--rate", rate, "--duration", f"{seconds}s"]
    subprocess.run(["taskset", "-c", "0", *map(str, [binary, *words, *limits])], check=True, capture_output=True)


def record(binary, sender, place, frame, rate, seconds, streams):
    """Records VDIF streams into a store. Returns the CPU time for a GB, and the memory."""
    store = place / "store"
    store.mkdir()
    sources = [f"udp://127.0.0.1:{port}?format=vdif" for port in range(PORT, PORT + streams)]
    command = [binary, "record", *sources, "--store", store, *SCAN, "--json", "--buffer", "256MiB"]
    with measured(command) as (process, found):
        events(process, "armed")
        send(sender, rate, frame, seconds, streams)
        process.send_signal(signal.SIGINT)
        sealed = events(process, "sealed")
    lost = [account["terms"]["expected"] - account["terms"]["written"] for account in sealed["accounts"]]
    size = sum(stream["bytes"] for stream in sealed["manifest"]["streams"])
    return found | {"bytes": size, "lost_frames": sum(lost)}


def play(binary, sender, place):
    """Plays a scan to a port that nobody reads."""
    store = place / "played"
    if not store.exists():
        record(sender, sender, place, 8032, "1Gbit/s", 4, 2)
        (place / "store").rename(store)
    target = f"udp://127.0.0.1:{PORT}-{PORT + 1}"
    with measured([binary, "play", "bench_one", "--store", store, "--to", target, "--gentle", "--json"]) as (process, found):
        process.stdout.read()
    return found | {"bytes": size_of(store)}


def verify(binary, sender, place):
    """Reads a scan back."""
    if not (place / "played").exists():
        play(sender, sender, place)
    with measured([binary, "verify", "bench_one", "--store", place / "played", "--json"]) as (process, found):
        process.stdout.read()
    return found | {"bytes": size_of(place / "played")}


def panda(binary, sender, place):
    """Records samples of a simulated PandA into HDF5, as fast as it takes them."""
    server = ["simulate", "panda", "--control", f"127.0.0.1:{PORT}", "--data", f"127.0.0.1:{PORT + 1}", "--samples", "30e6"]
    file = place / "panda.h5"
    with started("taskset", ["-c", "0", sender, *server, "--json"], stdout=subprocess.PIPE, text=True) as simulator:
        simulator.stdout.readline()
        with measured([binary, "panda", "record", f"panda://127.0.0.1:{PORT}", file, "--raw", "--num", "1", "--arm", "--json"]) as (process, found):
            process.stdout.read()
    return found | {"bytes": file.stat().st_size}


def store_rate(program, place):
    """The writer of a member alone, fed from memory."""
    directory = place / "member"
    directory.mkdir()
    told = subprocess.run([program, "--gigabytes", "4", directory], check=True, capture_output=True, text=True).stdout
    return {"cpu_s": float(re.search(r"([\d.]+) CPU s/GB", told)[1]), "bytes": 10**9}


def jobs(args, place):
    """The name of each job, and a function that does it with the old build (0) or the new one (1)."""
    builds = [args.old.resolve(), args.new.resolve()]
    sender = builds[1]
    yield "record 8 streams, 8032 B, 4 Gbit/s", lambda it: record(builds[it], sender, place, 8032, "500Mbit/s", args.seconds, 8)
    yield "record 1 stream, 1312 B, 1 Gbit/s", lambda it: record(builds[it], sender, place, 1312, "1Gbit/s", args.seconds, 1)
    yield "panda into HDF5, at full speed", lambda it: panda(builds[it], sender, place)
    yield "play 2 streams, 2 Gbit/s", lambda it: play(builds[it], builds[0], place)
    yield "verify", lambda it: verify(builds[it], builds[0], place)
    if args.store_rate:
        yield "store, the writer alone", lambda it: store_rate(args.store_rate[it].resolve(), place)


def emptied(place, job, build):
    for path in place.iterdir():
        if path.name != "played":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    found = job(build)
    return found | {"cpu_s_per_gb": found["cpu_s"] / (found["bytes"] / 1e9)}


def compare(name, job, place, rounds):
    """Runs a job in turn with both builds. Returns the result as a row."""
    turns = [(turn, build) for turn in range(rounds) for build in ((0, 1) if turn % 2 == 0 else (1, 0))]
    runs: list[list[dict]] = [[], []]
    for _, build in turns:
        runs[build].append(emptied(place, job, build))
    cost = [[run["cpu_s_per_gb"] for run in of] for of in runs]
    ratios = sorted(new / old for old, new in zip(*cost, strict=True))
    row = {"job": name, "cpu_s_per_gb": [statistics.median(it) for it in cost], "ratio": statistics.median(ratios),
           "lowest": ratios[0], "highest": ratios[-1], "runs": runs}  # fmt: skip
    if "memory_MB" in runs[0][0]:
        row["memory_MB"] = [statistics.median(run["memory_MB"] for run in of) for of in runs]
    return row


def table(rows):
    yield f"{'CPU s/GB':36} {'old':>7} {'new':>7}   new / old (lowest, highest)   MB of memory, old and new"
    for row in rows:
        old, new = row["cpu_s_per_gb"]
        memory = "{:9.0f} {:6.0f}".format(*row["memory_MB"]) if "memory_MB" in row else ""
        spread = f"{row['ratio']:.3f} ({row['lowest']:.3f}, {row['highest']:.3f})"
        yield f"{row['job']:36} {old:7.3f} {new:7.3f}   {spread:28} {memory}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=int, default=4, help="of each recording")
    parser.add_argument("--only", default="", help="jobs whose names begin so, separated by commas")
    parser.add_argument("--store-rate", type=Path, nargs=2, metavar=("OLD", "NEW"), help="two builds of the example `store_rate`")
    parser.add_argument("--most", type=float, default=1.03, help="the highest ratio that is good")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="where recordings are for a moment")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "benches/results/versions.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory) as scratch:
        place, rows = Path(scratch), []
        for name, job in jobs(args, place):
            if name.startswith(tuple(args.only.split(","))):
                rows.append(compare(name, job, place, args.rounds))
                print(list(table(rows[-1:]))[-1], file=sys.stderr)
        facts = machine.facts(place)
    document = {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "machine": facts,
        "versions": [machine.version(str(binary), "--version") for binary in (args.old, args.new)], "rows": rows,
    }  # fmt: skip
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(document, indent=1) + "\n")
    print("\n".join(table(rows)))
    sys.exit(any(row["ratio"] > args.most for row in rows))


if __name__ == "__main__":
    main()
