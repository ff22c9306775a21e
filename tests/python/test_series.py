"""Several scans one after another, an abort, and datagrams that were made to do harm."""

import json
import signal
import socket
import struct
import subprocess
from datetime import datetime, timedelta, timezone

import pytest
import wire
from fullbore import (
    FOUND,
    GOOD,
    PATIENCE,
    Recording,
    accounts,
    balanced,
    free_port,
    generate_command,
    run,
)


def series(source, store, frames, port, *options):
    """Records several scans of one sender; what is on disk of each, and what was sent."""
    options = ["--scans", "3", *options]
    with Recording(source, store=store, scan="no", options=options) as recording:
        sent = wire.send(frames, port, pause=1e-3)
        recording.process.send_signal(signal.SIGINT)
        recording.process.wait(timeout=30)
    names = sorted(path.name for path in store.iterdir() if path.name.startswith("test_no"))
    return [store / name for name in names], b"".join(sent)


@pytest.mark.parametrize("fill", ["invalid", "omit"])
def test_no_frame_falls_between_two_scans(fill, store):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB&fill={fill}"
    frames = wire.run_of_frames(2000)
    scans, sent = series(source, store, frames, port, "--duration", "500ms")
    assert len(scans) >= 2
    read = b"".join(
        chunk.read_bytes() for scan in scans for chunk in sorted(scan.glob("test_no*.0*"))
    )
    assert len(read) > 0 and sent.startswith(read)
    for scan in scans:
        run("verify", scan.name, "--store", store, code=None if scan == scans[-1] else 0)


@pytest.mark.parametrize("form", ["format=vtp", "format=raw&seq=0:8:le&strip=8"])
def test_numbers_at_the_end_of_their_range_do_no_harm(form, store):
    port = free_port()
    frames = wire.run_of_frames(330)
    numbers = [*range(300), *range(2**61, 2**61 + 10), *range(2**64 - 10, 2**64), *range(300, 310)]
    with Recording(f"udp://127.0.0.1:{port}?{form}", store=store) as recording:
        wire.send([struct.pack("<Q", n) + f for n, f in zip(numbers, frames)], port)
    (account,) = accounts(recording.stop(code=None)).values()
    assert balanced(account)["terms"]["written"] >= 300


def test_one_thread_number_of_two_stations_is_two_streams(store):
    port = free_port()
    frames = [
        wire.Vdif(station=station, number=n).frame() for n in range(500) for station in (1, 2)
    ]
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000&threads=split", store=store) as recording:
        wire.send(frames, port)
    told = accounts(recording.stop())
    assert [balanced(account)["terms"]["written"] for account in told.values()] == [500, 500]
    run("verify", recording.scan, "--store", store)


def test_a_second_signal_aborts_and_what_was_written_verifies(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000", store=store) as recording:
        wire.send(wire.run_of_frames(3000), port)
        recording.process.send_signal(signal.SIGINT)
        recording.process.send_signal(signal.SIGTERM)
        sealed = recording.sealed(code=FOUND)
    assert sealed["manifest"]["state"] == "aborted"
    for account in accounts(sealed).values():
        balanced(account)
    run("verify", recording.scan, "--store", store)


def test_what_never_came_is_said_alike_by_all_who_are_asked(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif", store=store) as recording:
        sealed = recording.stop(code=FOUND)
    (account,) = accounts(sealed).values()
    assert account["verdict"] == "unexplained" and account["terms"]["expected"] == 0
    for verb in (["cat"], ["play", "--to", f"udp://127.0.0.1:{port}"]):
        done = run(*verb, recording.scan, "--store", store, code=FOUND)
        assert b"never came" in done.stderr and not done.stdout
    told = run("info", recording.scan, "--store", store).stdout.decode()
    assert "never came" in told and "frames are missing" not in told


def test_a_recording_ends_at_the_time_it_was_given(store):
    end = datetime.now(timezone.utc) + timedelta(seconds=6)
    until = end.strftime("%Y-%m-%dT%H:%M:%S.%f")
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000"
    with Recording(source, store=store, options=["--until", until, "--buffer", "64MiB"]) as recording:
        wire.send(wire.run_of_frames(1100), port)
        # All is sent at once, so the stream ends before the recording, which is told.
        sealed = recording.sealed(code=None)
    assert sealed["manifest"]["state"] == "sealed"
    stopped = datetime.fromisoformat(sealed["manifest"]["stopped"][:26]).replace(tzinfo=timezone.utc)
    assert timedelta() <= stopped - end < timedelta(seconds=3), (stopped, end)
    (account,) = accounts(sealed).values()
    assert account["terms"]["written"] == 1100


def test_a_terminal_that_goes_away_stops_and_seals(store):
    """It tells so several times over, which is no wish to abort."""
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000", store=store) as recording:
        wire.send(wire.run_of_frames(1100), port)
        for _ in range(3):
            recording.process.send_signal(signal.SIGHUP)
        sealed = recording.sealed()
    assert sealed["manifest"]["state"] == "sealed"
    run("verify", recording.scan, "--store", store)


def test_whoever_is_started_with_nohup_outlives_its_terminal(store):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000"
    with Recording(source, store=store, wrap=["nohup"]) as recording:
        recording.process.send_signal(signal.SIGHUP)
        wire.send(wire.run_of_frames(1100), port)
        (account,) = accounts(recording.stop()).values()
    assert account["terms"]["written"] == 1100


def test_a_sender_whose_terminal_goes_away_tells_how_far_it_came():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
        ear.bind(("127.0.0.1", 0))
        ear.settimeout(PATIENCE)
        command = generate_command(ear.getsockname()[1], rate="1MB/s", duration="1h", gentle=True)
        sender = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE)
        ear.recv(1 << 16)
        sender.send_signal(signal.SIGHUP)
        told, _ = sender.communicate(timeout=PATIENCE)
    assert sender.returncode == GOOD and json.loads(told.splitlines()[-1])["seconds"] < 3600
