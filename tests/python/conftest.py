"""Marks and places shared by the tests."""

import os
import random

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


def seeds(quick: int) -> list[int]:
    """Seeds to try: `FULLBORE_SEEDS` of them, and always those that a failing run printed."""
    count = int(os.environ.get("FULLBORE_SEEDS", quick))
    first = int(os.environ.get("FULLBORE_SEED", 1))
    return list(range(first, first + count))


def chance(seed) -> random.Random:
    return random.Random(seed)
