"""`fullbore bench disk` beside fio, in one run, on tmpfs and on XFS, ext4 and btrfs over loop devices.

    sudo python3 benches/disk.py [--directory DIR] [--gib 4] [--runs 5]

Each file system gets the same job: blocks of 4 MiB, eight under way, ours and fio's in turn, fio with huge pages
and without. Beside it stands what a recording gets of the same place: pattern, CRC32C, index and syncs included.
What cannot be had here (no root, no mkfs) is left out and named.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from machine import IS_ROOT, facts, version

REPOSITORY = Path(__file__).resolve().parents[1]
FULLBORE = Path(os.environ.get("FULLBORE", REPOSITORY / "target/release/fullbore"))
HUGE = Path("/proc/sys/vm/nr_hugepages")
MIB = 1 << 20
FORCE = {"ext4": "-F", "xfs": "-f", "btrfs": "-f"}


def call(*words) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout.strip()


def why_not(kind: str) -> str | None:
    if not IS_ROOT:
        return "needs root"
    return None if shutil.which(f"mkfs.{kind}") else f"mkfs.{kind} is not here"


@contextlib.contextmanager
def mounted(kind: str, directory: Path, size: int, no_cow: bool = False):
    """A file system on a loop device that writes past the page cache; gives directory and device."""
    place = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=directory))
    image = place.with_suffix(".img")
    try:
        with image.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        call(f"mkfs.{kind}", "-q", FORCE[kind], image)
        loop = call("losetup", "--direct-io=on", "--show", "-f", image)
        # Whoever had it before may have made its requests short, and the kernel keeps that.
        queue = Path("/sys/block") / Path(loop).name / "queue"
        (queue / "max_sectors_kb").write_text((queue / "max_hw_sectors_kb").read_text())
        try:
            call("mount", loop, place)
            try:
                if no_cow:
                    call("chattr", "+C", place)
                yield place, loop
            finally:
                umount(place)
        finally:
            call("losetup", "-d", loop)
    finally:
        image.unlink(missing_ok=True)
        place.rmdir()


def umount(place: Path):
    """The kernel lets go of a ring's files a moment after its process has ended."""
    for _ in range(50):
        if subprocess.run(["umount", place], capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    call("umount", place)


@contextlib.contextmanager
def huge_pages(count: int):
    """Reserves pages of 2 MiB for fio; gives the reserve back as it was."""
    before = HUGE.read_text() if IS_ROOT else None
    if before is not None and int(before) < count:
        HUGE.write_text(str(count))
    try:
        yield
    finally:
        if before is not None:
            HUGE.write_text(before)


def measure(place: Path, size: int, runs: int) -> dict:
    words = [
        FULLBORE, "bench", "disk", place, "--skip", "peak", "--bytes", f"{size // 2}B", "--reserve", "64MiB",
        "--runs", runs, "--no-history", "--json",
    ]  # fmt: skip
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def told(rate) -> str:
    return "–" if rate is None else f"{rate / 1e9:.2f}"


def row(name: str, result: dict) -> str:
    """One line of the table, both directions."""
    best = {}
    for it in result["comparisons"]:
        if it["rate"]:
            kept = best.get(it["direction"])
            best[it["direction"]] = it if kept is None or it["rate"] > kept["rate"] else kept
    cells = [name]
    for direction in ("write", "read"):
        it = best.get(direction)
        if it is None:
            cells += ["–"] * 3
            continue
        pages = "huge" if it["huge_pages"] else "4 KiB"
        cells += [
            f"{told(it['rate'])} ({pages}) {it['cpu_s_per_gb']:.3f}",
            f"{told(it['ours'])} {it['ours_cpu_s_per_gb']:.3f}",
            f"**{it['ratio']:.2f}**",
        ]
    long = result["continuous"]
    cells.append(f"{told(long['write']['rate'])} {long['write']['cpu_s_per_gb']:.3f}")
    cells.append(f"{told(long['read']['rate'])} {long['read']['cpu_s_per_gb']:.3f}")
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--gib", type=float, default=4, help="size of each file system")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=Path, default=REPOSITORY / "benches/results/disk.json")
    options = parser.parse_args()
    size = int(options.gib * (1 << 30))
    kinds = [("xfs", False), ("ext4", False), ("btrfs", False), ("btrfs", True)]
    results, left_out = {}, {}

    with huge_pages(64):
        shared = Path("/dev/shm") / f"fullbore-disk-{os.getpid()}"
        shared.mkdir()
        try:
            results["tmpfs"] = measure(shared, min(size, 2 << 30), options.runs)
        finally:
            shared.rmdir()
        for kind, no_cow in kinds:
            name = f"{kind}, no copy-on-write" if no_cow else kind
            if why := why_not(kind):
                left_out[name] = why
                continue
            with mounted(kind, options.directory, size, no_cow) as (place, _):
                results[name] = measure(place, size, options.runs)

    print("GB/s and CPU s/GB; 4 MiB blocks, 8 under way\n")
    heads = ["", "fio write", "ours", "of fio", "fio read", "ours", "of fio", "a recording's write", "its read and check"]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for name, result in results.items():
        print(row(name, result))
    for name, result in results.items():
        for note in result.get("notes", []):
            print(f"\n{name}: {note['text']}")
    for name, why in left_out.items():
        print(f"\nleft out: {name}, {why}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": facts(options.directory), "fio": version("fio", "--version"), "results": results}
    options.output.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
