"""Whether the ring that `fullbore bench disk` predicts is the ring that is needed.

    sudo python3 benches/stalls.py

A file system on a loop device is disturbed in a known way: frozen once, frozen several times in a row, throttled in
turns, each request delayed for a while. The benchmark measures the disturbance at three times the rate that is asked about, and predicts the smallest
ring for that rate. Then the same disturbance comes again, while data come at that rate: with the predicted ring, with
a fifth less, and with a recording over the network whose buffer is the predicted one. What was lost is what had no
block. No disturbance is twice quite the same, so each is tried several times, and its longest silence told each time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from disk import FULLBORE, MIB, REPOSITORY, call, mounted, umount
from machine import facts

sys.path.insert(0, str(REPOSITORY / "tests/python"))
import fused  # noqa: E402

RATE = 60_000_000
FRAME = 8032
BLOCK = 4 * MIB
FIRST, LASTS = 1.5, 6.0
THROTTLED = 10_000_000
GROUP = Path("/sys/fs/cgroup/blkio/fullbore-stalls")


def freezes(place: Path, spells):
    """Freezes at each `(after, lasts)`; seconds are counted from the beginning."""
    begun = time.monotonic()
    for after, lasts in spells:
        time.sleep(max(0.0, begun + after - time.monotonic()))
        call("fsfreeze", "-f", place)
        until = time.monotonic() + lasts
        try:
            time.sleep(max(0.0, until - time.monotonic()))
        finally:
            call("fsfreeze", "-u", place)


def throttles(loop: str, spells):
    """Holds writes to the device to a tenth and less for each `(after, lasts)`."""
    number = os.stat(loop).st_rdev
    rule = GROUP / "blkio.throttle.write_bps_device"
    begun = time.monotonic()
    for after, lasts in spells:
        time.sleep(max(0.0, begun + after - time.monotonic()))
        rule.write_text(f"{os.major(number)}:{os.minor(number)} {THROTTLED}")
        try:
            time.sleep(lasts)
        finally:
            rule.write_text(f"{os.major(number)}:{os.minor(number)} 0")


def delays(disk: fused.Disk, spells):
    """Has each request of the disk wait for `late` seconds, for each `(after, lasts, late)`."""
    begun = time.monotonic()
    for after, lasts, late in spells:
        time.sleep(max(0.0, begun + after - time.monotonic()))
        disk.tell(f"delay {late}")
        try:
            time.sleep(lasts)
        finally:
            disk.tell("delay 0")


DISTURBANCES = {
    "frozen once for 0.8 s": (freezes, [(FIRST, 0.8)]),
    "frozen three times for 0.4 s, 0.2 s apart": (freezes, [(FIRST + n * 0.6, 0.4) for n in range(3)]),
    "to 10 MB/s for 0.7 s, three times, 0.3 s apart": (throttles, [(FIRST + n, 0.7) for n in range(3)]),
    "each request 0.8 s late for 1.2 s": (delays, [(FIRST, 1.2, 0.8)]),
    "each request 0.3 s late, three times for 0.6 s, 0.4 s apart": (delays, [(FIRST + n, 0.6, 0.3) for n in range(3)]),
}


@contextlib.contextmanager
def place_for(how, directory: Path):
    """A directory of a file system, its device, and what is to be disturbed for it."""
    if how is not delays:
        with mounted("xfs", directory, 4 << 30) as (place, loop):
            yield place, loop, place if how is freezes else loop
        return
    with tempfile.TemporaryDirectory(prefix="delayed-", dir=directory) as around:
        disk = fused.Disk(Path(around), 4 << 30)
        place = Path(around) / "xfs"
        try:
            call("mkfs.xfs", "-q", "-f", disk.loop)
            place.mkdir()
            call("mount", disk.loop, place)
            try:
                yield place, disk.loop, disk
            finally:
                umount(place)
        finally:
            disk.away()


def await_data(loop: str):
    """Until data flow: what comes before, the ring's memory above all, takes its own time on each machine."""
    stat = Path(f"/sys/block/{Path(loop).name}/stat")
    written = lambda: int(stat.read_text().split()[6]) * 512
    begun, deadline = written(), time.monotonic() + 60
    while written() < begun + 4 * BLOCK and time.monotonic() < deadline:
        time.sleep(0.01)


@contextlib.contextmanager
def disturbed(how, spells, what, loop):
    """Disturbs beside whatever is done meanwhile; its seconds are counted from when data flow."""

    def disturb():
        await_data(loop)
        how(what, spells)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def join_group():
    """What the child does to the disk counts as the group's."""
    if GROUP.exists():
        (GROUP / "cgroup.procs").write_text(str(os.getpid()))


def bench(place: Path, rate: int, ring: int, *more) -> dict:
    words = [
        FULLBORE, "bench", "disk", place, "--skip", "peak,read,fio", "--block", f"{BLOCK}B", "--chunk", "1GiB",
        "--seconds", f"{LASTS}s", "--rate", f"{rate}B/s", "--ring", f"{ring}B", "--no-history", "--json", *more,
    ]  # fmt: skip
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, preexec_fn=join_group)
    if not done.stdout:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)["continuous"]


def record(place: Path, ring: int, disturb) -> int:
    """Bytes overrun by a recording of what comes over the network at the rate."""
    store = place / "store"
    store.mkdir()
    words = [
        FULLBORE, "record", f"udp://127.0.0.1:46990?format=vdif&frame={FRAME}", "--store", store, "--session", "s",
        "--scan", "one", "--buffer", f"{ring}B", "--json",
    ]  # fmt: skip
    recorder = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True, preexec_fn=join_group)
    try:
        while "armed" not in recorder.stdout.readline():
            pass
        with disturb():
            call(
                FULLBORE, "generate", "--to", "udp://127.0.0.1:46990", "--frame", FRAME, "--fps", round(RATE / FRAME),
                "--gentle", "--duration", f"{LASTS}s",
            )  # fmt: skip
        recorder.send_signal(signal.SIGINT)
        lines = recorder.stdout.read().splitlines()
    finally:
        recorder.kill()
        recorder.wait()
    accounts = [a for line in lines for a in json.loads(line).get("accounts", [])]
    subprocess.run(["rm", "-rf", store], check=True)
    return sum(account["terms"]["overrun"] for account in accounts) * FRAME


def trial(name: str, directory: Path) -> dict:
    how, spells = DISTURBANCES[name]
    with place_for(how, directory) as (place, loop, what):
        disturb = lambda: disturbed(how, spells, what, loop)
        with disturb():
            measured = bench(place, 3 * RATE, 1 << 30, "--require", f"{RATE}B/s")
        row = next(row for row in measured["ring_for_rate"] if row["rate"] == RATE)
        predicted = -(-row["ring"] // BLOCK) * BLOCK
        with disturb():
            held = bench(place, RATE, predicted)
        with disturb():
            less = bench(place, RATE, row["ring"] * 8 // 10)
        silence = lambda run: run["stalls"]["longest_silence_ms"]
        return {
            "silence_ms": silence(measured),
            "predicted_bytes": row["ring"],
            "lost_with_predicted": held["overrun_bytes"],
            "silence_with_predicted_ms": silence(held),
            "lost_with_a_fifth_less": less["overrun_bytes"],
            "silence_with_a_fifth_less_ms": silence(less),
            "lost_by_a_recording": record(place, predicted, disturb),
        }


def line(name: str, it: dict) -> str:
    """A row of the table: what was lost, and after which silence."""
    lost = lambda of: f"{it[f'lost_with_{of}'] / 1e6:.1f} MB ({it[f'silence_with_{of}_ms']:.0f} ms)"
    return (
        f"| {name} | {it['silence_ms']:.0f} ms | {it['predicted_bytes'] / 1e6:.0f} MB | {lost('predicted')} |"
        f" {lost('a_fifth_less')} | {it['lost_by_a_recording'] / 1e6:.1f} MB |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--output", type=Path, default=REPOSITORY / "benches/results/stalls.json")
    parser.add_argument("--only", default="", help="disturbances with this in their name")
    parser.add_argument("--runs", type=int, default=3, help="how often each is tried")
    options = parser.parse_args()
    results = {}
    print("| disturbance | longest silence | predicted ring | lost with it | with a fifth less | by a recording |")
    print("|" + "---|" * 6)
    GROUP.mkdir(exist_ok=True)
    try:
        for name in (name for name in DISTURBANCES if options.only in name):
            results[name] = []
            for run in range(options.runs):
                results[name].append(trial(name, options.directory))
                print(line("" if run else name, results[name][-1]), flush=True)
    finally:
        GROUP.rmdir()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"machine": facts(options.directory), "results": results}, indent=1))


if __name__ == "__main__":
    main()
