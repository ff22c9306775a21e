"""Marks and places shared by the tests."""

import os
import random
import subprocess

import fused
import isolation
import pytest
from disks import unmount


def pytest_configure(config):
    """Gives each worker of pytest-xdist a network of its own."""
    if hasattr(config, "workerinput"):
        isolation.enter()


@pytest.fixture
def store(tmp_path):
    """A member on a real file system, where pytest keeps its temporary directories."""
    member = tmp_path / "member0"
    member.mkdir()
    return member


@pytest.fixture
def stores(tmp_path):
    """A disk set of three members."""
    members = [tmp_path / f"member{n}" for n in range(3)]
    for member in members:
        member.mkdir()
    return members


@pytest.fixture
def disk(tmp_path):
    """A separate file system of 512 MB."""
    image, mounted = tmp_path / "disk.img", tmp_path / "disk"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(512 << 20)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, mounted], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no loop device here: {error}")
    yield mounted
    unmount(mounted)


@pytest.fixture
def memory_disk(tmp_path):
    """Makes a file system in memory of a given size: `24m`."""
    mounted = []

    def make(size):
        place = tmp_path / f"memory{len(mounted)}"
        place.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", place]
        if (done := subprocess.run(mount, capture_output=True)).returncode:
            pytest.skip(f"no file system in memory here: {done.stderr.decode().strip()}")
        mounted.append(place)
        return place

    yield make
    for place in mounted:
        unmount(place)


@pytest.fixture
def obedient_disk(tmp_path):
    """Makes a disk of a given size that is a program: a file, or a loop device over one."""
    made = []

    def make(bytes_, with_loop):
        if os.geteuid() != 0:
            pytest.skip("file systems in user space of one's own need root")
        try:
            made.append(fused.Disk(tmp_path, bytes_, with_loop))
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no file system in user space here: {error}")
        return made[-1]

    yield make
    for disk in made:
        disk.away()


def seeds(quick: int) -> list[int]:
    """Seeds to try: `FULLBORE_SEEDS` of them, and always those that a failing run printed."""
    count = int(os.environ.get("FULLBORE_SEEDS", quick))
    first = int(os.environ.get("FULLBORE_SEED", 1))
    return list(range(first, first + count))


def chance(seed) -> random.Random:
    return random.Random(seed)
