"""A disk whose rate is changed while it is written: a loop device, slowed down by one of two brakes.

    group      a limit of the control groups: blkio of version 1, or io of version 2
    program    below the loop device, the program of `fused` delays its writes

The second needs only root and FUSE.
"""

import contextlib
import os
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import fused
import pytest
from fullbore import BINARY, PATIENCE

GROUPS = Path("/sys/fs/cgroup")
BLKIO, UNIFIED = GROUPS / "blkio", [GROUPS, GROUPS / "unified"]


class Group:
    """A separate control group: programs that run in it are limited."""

    def __init__(self, place, limits):
        self.place, self._limits = place, limits

    def limit(self, device, rate):
        name, line = self._limits
        (self.place / name).write_text(line.format(f"{os.major(device)}:{os.minor(device)}", rate))

    def within(self, command):
        return ["sh", "-c", f'echo $$ > {self.place}/cgroup.procs && exec "$@"', "sh", *command]


class Program:
    """A disk that is a program limits itself."""

    def __init__(self, disk):
        self._disk = disk

    def limit(self, _device, rate):
        self._disk.tell(f"rate {rate}")

    def within(self, command):
        return command


def controller():
    """Where control groups that limit writes are made, and the file of their limit; a skip if there are none."""
    if (BLKIO / "blkio.throttle.write_bps_device").exists():
        return BLKIO, ("blkio.throttle.write_bps_device", "{} {}\n")
    for root in UNIFIED:
        with contextlib.suppress(OSError):
            if "io" in (root / "cgroup.controllers").read_text().split():
                (root / "cgroup.subtree_control").write_text("+io")
                return root, ("io.max", "{} wbps={}\n")
    pytest.skip("no control groups here that limit writes (blkio of version 1, io of version 2)")


@contextmanager
def group():
    root, limits = controller()
    place = root / f"fullbore-test-{os.getpid()}"
    try:
        place.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        yield Group(place, limits)
    finally:
        for _ in range(100):
            try:
                place.rmdir()
                break
            except OSError:
                time.sleep(0.05)


@contextmanager
def braked(brake, tmp_path, mounted, kind, size):
    """A file system, as `mounted` makes it, and its brake."""
    if brake == "group":
        with group() as one, mounted(tmp_path, kind, size) as place:
            yield place, one
        return
    try:
        disk = fused.Disk(tmp_path, size)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system in user space here: {error}")
    try:
        with mounted(tmp_path, kind, loop=disk.loop) as place:
            yield place, Program(disk)
    finally:
        disk.away()


def written(loop):
    """Bytes written to a block device since its creation."""
    return int(Path(f"/sys/class/block/{loop}/stat").read_text().split()[6]) * 512


def run_over_a_cliff(words, place, brake, fast, slow, after):
    """Runs the program on a disk that falls from one rate to another after this number of written bytes."""
    device = os.stat(place).st_dev
    loop = os.path.basename(os.readlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
    brake.limit(device, fast)
    already, over = written(loop), threading.Event()

    def fall():
        while not over.is_set() and written(loop) - already < after:
            time.sleep(0.02)
        brake.limit(device, slow)

    watcher = threading.Thread(target=fall)
    watcher.start()
    try:
        return subprocess.run(brake.within([BINARY, *map(str, words)]), capture_output=True, timeout=PATIENCE)
    finally:
        over.set()
        watcher.join()
