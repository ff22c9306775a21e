"""SIGKILL at any moment: `recover` seals the scan, and all data reported as durable verifies."""

import os
import random
import re
import shutil
import subprocess
import threading

import pytest
from fullbore import (
    FOUND,
    GOOD,
    INTACT,
    PATIENCE,
    Recording,
    Scan,
    ask,
    free_ports,
    generate_command,
    run,
    text,
)

KILLS = int(os.environ.get("FULLBORE_KILLS", 3))
FIRST = int(os.environ.get("FULLBORE_SEED", 1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + KILLS))
def test_nothing_reported_durable_is_lost_by_a_kill(seed, stores):
    """At full rate, in the middle of a scan, at the cut to the next, or while the last is being sealed."""
    chance = random.Random(seed)
    ports = free_ports(4)
    members = ",".join(map(str, stores))
    range_of_ports = f"127.0.0.1:{ports[0]}-{ports[-1]}"
    source = f"udp://{range_of_ports}?format=vdif"
    options = ["--scans", "99", "--duration", "600ms", "--chunk", "32MiB"]
    # 16 Gbit/s, or as much as this machine can send.
    sender = generate_command(f"udp://{range_of_ports}", frame=8032, fps=62_500, duration="30s")
    with Recording(source, store=stores, scan="no", options=options, memory=()) as recording:
        sending = subprocess.Popen(sender, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            recording.wait("progress", lambda told: told["durable_bytes"] > 0)
            # The kill occurs at a random time between reports, writes, syncs and cuts.
            threading.Event().wait(chance.uniform(0, 2.5))
            last = recording.kill()
        finally:
            sending.kill()
            sending.wait(PATIENCE)
    sealed = [event["manifest"] for event in recording.events if event["event"] == "sealed"]
    names = [f"test_no{number:04}" for number in range(1, len(sealed) + 9)]
    run("recover", "--all", "--store", members, code=(GOOD, FOUND))
    left = [name for name in names if (stores[0] / name).exists()]
    for name in left:
        found = ask("info", name, "--store", members)["manifest"]
        assert found["state"] in ("sealed", "recovered")
        run("verify", name, "--store", members, code=INTACT)
        for files in Scan(name, stores).streams.values():
            assert sum(path.stat().st_size for path in files) % 8032 == 0, (seed, files)
    for manifest in sealed:
        name = "_".join(manifest["scan"].values())
        assert ask("info", name, "--store", members)["manifest"] == manifest
    newest = "_".join(last["scan"].values())
    kept = ask("info", newest, "--store", members)["manifest"]["streams"]
    kept = {stream["name"]: stream["bytes"] for stream in kept}
    for stream in last["streams"]:
        assert kept[stream["name"]] >= stream["durable_bytes"], f"seed {seed}"
    for member in stores:
        shutil.rmtree(member)


def test_a_scan_killed_before_any_frame_came_is_recovered_as_empty(store):
    with Recording(f"udp://127.0.0.1:{free_ports(1)[0]}?format=vdif", store=store) as recording:
        recording.kill()
    run("recover", recording.scan, "--store", store)
    told = ask("info", recording.scan, "--store", store)
    assert told["manifest"]["state"] == "recovered"
    (account,) = told["accounts"]
    assert account["presence"] == [{"what": "not-known"}]
    assert (account["counted_by"], account["verdict"]) == ("frame-time", "unproven")


def test_directories_that_a_recorder_left_empty_are_taken_away(stores):
    """Killed between making the directories of a scan and writing the first manifest into one."""
    for member in stores:
        (member / "test_no0003" / ".fullbore").mkdir(parents=True)
    members = ",".join(map(str, stores))
    told = text(run("recover", "--all", "--store", members, code=GOOD).stdout)
    assert "test_no0003" in told and "nothing of it was written" in told
    assert not any((member / "test_no0003").exists() for member in stores)


@pytest.mark.parametrize("more", ["&threads=0-1", "&threads=split"])
def test_what_was_learnt_of_the_streams_outlives_the_recorder(more, store):
    """Threads, rate and geometry are on disk soon after the first frames, not only at the end."""
    (port,) = free_ports(1)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif{more}", store=store) as recording:
        sender = generate_command(port, frame=8032, fps=4000, threads="0-1", duration="2s")
        subprocess.run(sender, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        recording.wait("progress", lambda told: told["durable_bytes"] > 0)
        recording.kill()
    run("recover", recording.scan, "--store", store)
    run("verify", recording.scan, "--store", store, code=INTACT)
    told = ask("info", recording.scan, "--store", store)
    streams = told["manifest"]["streams"]
    assert sorted(thread for it in streams for thread in it["format"]["threads"]) == [0, 1]
    assert {it["format"]["frames_per_second"] for it in streams} == {4000}
    assert {account["counted_by"] for account in told["accounts"]} == {"frame-time"}
    assert len(streams) == (2 if "split" in more else 1)


def test_recovering_twice_changes_nothing(stores):
    (port,) = free_ports(1)
    members = ",".join(map(str, stores))
    with Recording(f"udp://127.0.0.1:{port}?format=vdif", store=stores) as recording:
        sender = generate_command(port, frame=8032, fps=16_000, duration="2s")
        subprocess.run(sender, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        recording.wait("progress", lambda told: told["durable_bytes"] > 0)
        recording.kill()
    run("recover", recording.scan, "--store", members)
    first = recording.on_disk().bytes()
    run("recover", recording.scan, "--store", members, code=GOOD)
    assert recording.on_disk().bytes() == first
    run("verify", recording.scan, "--store", members, code=INTACT)


def test_a_killed_scan_is_called_not_sealed_and_has_one_size(store):
    (port,) = free_ports(1)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&block=64KiB", store=store) as recording:
        sender = generate_command(port, frame=8032, fps=4000, duration="1s")
        subprocess.run(sender, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        recording.wait("progress", lambda told: told["durable_bytes"] > 0)
        recording.kill()
    told = text(run("verify", recording.scan, "--store", store, code=FOUND).stdout)
    assert told.startswith("NOT SEALED: ") and f"{recording.scan} read: " in told, told
    assert "NOT SEALED" in text(run("verify", "--help").stdout)
    listed = text(run("ls", "--store", store).stdout).splitlines()[1]
    size = re.search(r"[\d.]+ [kMG]B", listed).group()
    info = text(run("info", recording.scan, "--full", "--store", store).stdout)
    assert f"size      {size} written in 1 stream, " in info, (listed, info)
