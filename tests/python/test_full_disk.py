"""A member that fills up: it takes no more, the others go on, and nothing written is lost.

Needs root for a loop device; a quota would not end a write where a full disk does.
"""

import os
import shutil
import subprocess

import pytest
from fullbore import GOOD, Recording, accounts, ask, balanced, free_port, generate, run

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root"),
    pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="mkfs.ext4 is not here"),
]

DISK_BYTES = 96 << 20


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, of 96 MB."""
    image, mounted = tmp_path / "disk.img", tmp_path / "small"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, mounted], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop device here: {error.stderr.decode().strip()}")
    yield mounted
    subprocess.run(["umount", mounted], check=True)


def fill(stores, frames=40_000):
    """Records 320 MB; returns the recording, sealed."""
    port = free_port()
    source, small_chunks = f"udp://127.0.0.1:{port}?format=vdif", ["--chunk", "16MB"]
    with Recording(source, store=stores, options=small_chunks) as recording:
        generate(port, frames=frames, fps=20_000)
    recording.stop(code=None)
    return recording


def test_a_disk_that_fills_up_ends_the_recording_with_what_did_not_fit_counted(small_disk):
    recording = fill([small_disk])
    sealed = recording.stop(code=None)
    (account,) = accounts(sealed).values()
    terms = balanced(account)["terms"]
    assert terms["written"] > 0 and terms["overrun"] > 0 and terms["missing"] == 0
    assert terms["expected"] == 40_000
    assert "space" in sealed["manifest"]["members"][0]["failure"].lower()
    run("verify", recording.scan, "--store", small_disk, code=GOOD)


def test_the_other_members_take_over_from_a_full_one(small_disk, store):
    recording = fill([small_disk, store])
    sealed = recording.stop(code=None)
    (account,) = accounts(sealed).values()
    assert balanced(account)["terms"]["written"] == 40_000
    assert sealed["manifest"]["members"][0]["failure"]
    run("verify", recording.scan, "--store", f"{small_disk},{store}", code=GOOD)
    assert ask("info", recording.scan, "--store", f"{small_disk},{store}") is not None


def test_a_recording_that_cannot_fit_is_refused_or_warned_about(small_disk):
    done = run(
        "record", f"udp://127.0.0.1:{free_port()}?format=vdif&frame=8032&fps=1000000", "--store",
        small_disk, "--session", "test", "--scan", "big", "--bytes", "10GB", code=None,
    )  # fmt: skip
    assert done.returncode == 2 and str(small_disk) in done.stderr.decode()
