"""The needs of a recording are compared with the available space before it is too late."""

import os
import subprocess

import pytest
from fullbore import PATIENCE, REFUSED, Recording, free_port, generate_command, run, text


def warnings(recording):
    return [event["text"] for event in recording.events if event["event"] == "warning"]


def test_more_bytes_than_there_is_room_for_are_refused(stores):
    members = ",".join(map(str, stores))
    words = ["--store", members, "--session", "test", "--scan", "one", "--scans", "3", "--bytes", "1000TB"]
    told = text(run("record", f"udp://127.0.0.1:{free_port()}", *words, code=REFUSED).stderr)
    assert "free in all" in told and "3000 TB" in told and str(stores[2]) in told


def test_a_time_that_there_is_no_room_for_is_warned_of_before_anything_is_recorded(store):
    source = f"udp://127.0.0.1:{free_port()}?format=vdif&fps=100000&frame=8032"
    with Recording(source, store=store, options=["--duration", "1000h"]) as recording:
        (told,) = [it for it in warnings(recording) if "the disk set has" in it]
    # 8032 bytes, 100 000 times a second, for 3.6 million seconds.
    assert told.startswith("1000 h 0 min at 6.43 Gbit/s are 2892 TB")


def test_a_rate_that_is_learnt_is_held_against_the_room_too(store):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif"
    sender = generate_command(port, frame=8032, fps=1000, duration="20s")
    with Recording(source, store=store, options=["--duration", "100000h"]) as recording:
        sending = subprocess.Popen(sender, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            recording.wait("warning", lambda told: told["text"].startswith("at this rate the disk set is full"))
        finally:
            sending.kill()
            sending.wait(PATIENCE)


def test_the_time_until_the_disks_are_full_counts_the_copies_of_a_mirror(stores):
    port = free_port()
    sender = generate_command(port, frame=8032, fps=1000, duration="20s")
    options = ["--redundancy", "mirror"]
    with Recording(f"udp://127.0.0.1:{port}?format=vdif", store=stores, options=options) as recording:
        sending = subprocess.Popen(sender, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            told = recording.wait("progress", lambda told: told["seconds_until_full"])
        finally:
            sending.kill()
            sending.wait(PATIENCE)
    # All members are on one file system here: its space is reported once.
    status = os.statvfs(stores[0])
    assert told["free_bytes"] == pytest.approx(status.f_bavail * status.f_frsize, rel=0.1)
    free = max(member["free_bytes"] for member in told["members"])
    rate = sum(stream["rate"] for stream in told["streams"])
    assert told["seconds_until_full"] == pytest.approx(free / (2 * rate))
