"""A disk whose rate is set while it is written: a loop device below a limit of the blkio controller (cgroup v1)."""

import os
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from fullbore import BINARY, PATIENCE

BLKIO = Path("/sys/fs/cgroup/blkio")
LIMIT = "blkio.throttle.write_bps_device"


@contextmanager
def group():
    """A control group of its own, or a skip that says why there is none."""
    if not (BLKIO / LIMIT).exists():
        pytest.skip(f"the blkio controller of cgroup v1 is not mounted at {BLKIO}")
    place = BLKIO / f"fullbore-test-{os.getpid()}"
    try:
        place.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        yield place
    finally:
        for _ in range(100):
            try:
                place.rmdir()
                break
            except OSError:
                time.sleep(0.05)


def limit(place, device, rate):
    major, minor = os.major(device), os.minor(device)
    (place / LIMIT).write_text(f"{major}:{minor} {rate}\n")


def written(loop):
    """Bytes written to a block device since it was there."""
    return int(Path(f"/sys/class/block/{loop}/stat").read_text().split()[6]) * 512


def run_over_a_cliff(words, place, fast, slow, after):
    """Runs the program on a disk that falls from one rate to another once so many bytes were written to it."""
    device = os.stat(place).st_dev
    loop = os.path.basename(os.readlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
    with group() as cgroup:
        limit(cgroup, device, fast)
        already, over = written(loop), threading.Event()

        def fall():
            while not over.is_set() and written(loop) - already < after:
                time.sleep(0.02)
            limit(cgroup, device, slow)

        watcher = threading.Thread(target=fall)
        watcher.start()
        try:
            joined = ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh", BINARY, *map(str, words)]
            return subprocess.run(joined, capture_output=True, timeout=PATIENCE)
        finally:
            over.set()
            watcher.join()
