"""A member that stalls for seconds: the others continue, and so does the series of scans.

Needs root: a separate file system is frozen and thawed.
"""

import os
import shutil
import subprocess

import pytest
import wire
from fullbore import (
    FOUND,
    GOOD,
    INTACT,
    PATIENCE,
    Recording,
    accounts,
    balanced,
    free_port,
    generate_command,
    run,
)

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="freezing a file system needs root"),
    pytest.mark.skipif(shutil.which("fsfreeze") is None, reason="fsfreeze is not here"),
    pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="mkfs.ext4 is not here"),
]


def freeze(disk, thaw=False):
    subprocess.run(["fsfreeze", "-u" if thaw else "-f", disk], check=True)


def test_a_disk_that_stands_still_costs_frames_that_are_counted_as_overrun(disk):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=1MiB"
    frames = wire.run_of_frames(8000, payload_bytes=8000)
    with Recording(source, store=disk, options=["--buffer", "16MiB"]) as recording:
        wire.send(frames[:1000], port, pause=1e-4)
        recording.wait("progress", lambda told: told["durable_bytes"] > 0)
        freeze(disk)
        try:
            wire.send(frames[1000:6000], port, pause=1e-4)
            recording.wait("progress", lambda told: told["streams"][0]["overrun"] > 0)
        finally:
            freeze(disk, thaw=True)
        recording.wait("progress", lambda told: told["members"][0]["backlog_bytes"] == 0)
        wire.send(frames[6000:], port, pause=1e-4)
    (account,) = recording.stop(code=FOUND)["accounts"]
    terms = account["terms"]
    assert terms["expected"] == 8000 and terms["overrun"] > 1000 and terms["missing"] == 0, terms
    assert terms["written"] + terms["overrun"] == 8000, terms
    assert account["gaps"][0]["cause"] == "overrun" and account["gaps"][0]["first"] >= 1000
    run("verify", recording.scan, "--store", disk, code=INTACT)


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
                # They are reported during the stall, without waiting for the member.
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
        run("verify", name, "--store", ",".join(map(str, members)), code=INTACT)
    assert written > 7000
