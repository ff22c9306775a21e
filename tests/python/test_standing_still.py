"""A member that stands still for seconds: the others go on, and so does the series of scans.

Needs root: a file system of its own is frozen and thawed.
"""

import os
import shutil
import subprocess

import pytest
from fullbore import GOOD, PATIENCE, Recording, accounts, balanced, free_port, generate_command, run

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="freezing a file system needs root"),
    pytest.mark.skipif(shutil.which("fsfreeze") is None, reason="fsfreeze is not here"),
    pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="mkfs.ext4 is not here"),
]


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


def freeze(disk, thaw=False):
    subprocess.run(["fsfreeze", "-u" if thaw else "-f", disk], check=True)


def test_the_next_scans_begin_in_time_while_a_member_stands_still(disk, store):
    port = free_port()
    members = [disk, store]
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=256KiB"
    options = ["--scans", "4", "--duration", "2s", "--chunk", "1MiB"]
    sender = generate_command(port, frame=8032, fps=1000, duration="20s")
    with Recording(source, store=members, scan="no", options=options) as recording:
        sending = subprocess.Popen(sender, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            recording.wait("progress", lambda told: told["durable_bytes"] > 0)
            freeze(disk)
            try:
                # They are told of while it stands still: nobody waits for it.
                third = recording.wait("progress", lambda told: told["scan"]["scan"] == "no0003")
            finally:
                freeze(disk, thaw=True)
            recording.process.wait(PATIENCE)
        finally:
            sending.kill()
            sending.wait(PATIENCE)
    assert third["streams"][0]["overrun"] == 0
    recording.sealed()
    sealed = [event for event in recording.events if event["event"] == "sealed"]
    warnings = " ".join(event["text"] for event in recording.events if event["event"] == "warning")
    assert f"{disk} does not answer" in warnings
    assert len(sealed) == 4
    written = 0
    for one in sealed:
        (account,) = accounts(one).values()
        terms = balanced(account)["terms"]
        assert terms["expected"] == terms["written"], terms
        written += terms["written"]
        assert one["manifest"]["state"] == "sealed"
        name = "_".join(one["manifest"]["scan"].values())
        run("verify", name, "--store", ",".join(map(str, members)), code=GOOD)
    assert written > 7000
