"""Marks and places shared by the tests."""

import os
import random
import subprocess

import pytest


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
    """A file system of its own, of 512 MB."""
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
    subprocess.run(["umount", mounted], check=True)


def seeds(quick: int) -> list[int]:
    """Seeds to try: `FULLBORE_SEEDS` of them, and always those that a failing run printed."""
    count = int(os.environ.get("FULLBORE_SEEDS", quick))
    first = int(os.environ.get("FULLBORE_SEED", 1))
    return list(range(first, first + count))


def chance(seed) -> random.Random:
    return random.Random(seed)
