"""Several scans one after another, an abort, and datagrams that were made to do harm."""

import itertools
import json
import random
import signal
import socket
import struct
import subprocess
from datetime import datetime, timedelta, timezone

import pytest
import wire
from fullbore import (
    AS_SEALED,
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


def interleaved(threads, count):
    """A thousand frames a second, of all threads together."""
    fps = 1000 // len(threads)
    runs = [wire.run_of_frames(count, fps, thread) for thread in threads]
    return [frame for instant in zip(*runs, strict=True) for frame in instant]


def numbered(pieces):
    return [struct.pack("<Q", 10_000 + n) + piece for n, piece in enumerate(pieces)]


def of_varying_length(count):
    return [bytes([n % 251]) * (500 + n * 37 % 700) for n in range(count)]


# the source's parameters, what is sent, bytes of it that are not kept, and what the verdict must be
SERIES = {
    "filled": ("format=vdif&fps=1000", wire.run_of_frames(3000), 0, "proven"),
    "nothing filled": ("format=vdif&fps=1000&fill=omit", wire.run_of_frames(3000), 0, "proven"),
    "packet numbers": ("format=vtp&fps=1000", numbered(wire.run_of_frames(3000)), 8, "proven"),
    "any counter": ("format=raw&seq=0:8:le", numbered([bytes(1000)] * 3000), 0, "proven"),
    "two threads as they come": ("format=vdif&fps=500", interleaved([0, 1], 1500), 0, "proven"),
    "a stream for each thread": (
        "format=vdif&fps=500&threads=split",
        interleaved([0, 1], 1500),
        0,
        "proven",
    ),
    "varying and counted": (
        "format=raw&frame=varying&seq=0:8:le",
        numbered(of_varying_length(3000)),
        0,
        "proven",
    ),
    "no counter": ("format=raw", [struct.pack("<Q", n) * 100 for n in range(3000)], 0, "unproven"),
}


def series(query, datagrams, store, scans, duration, code):
    """Records scans without a pause while somebody sends a datagram each millisecond. For each stream, by
    name: its accounts and what is on disk, scan by scan."""
    port = free_port()
    source = f"udp://127.0.0.1:{port}?{query}&block=64KiB"
    options = ["--scans", scans, "--duration", duration]
    with Recording(source, store=store, scan="no", options=options) as recording:
        wire.send(datagrams, port, pause=1e-3)
        recording.sealed(code=code)
    sealed = [event for event in recording.events if event["event"] == "sealed"]
    names = [f"no{number + 1:04}" for number in range(scans)]
    assert [one["manifest"]["scan"]["scan"] for one in sealed] == names
    streams = {}
    for one in sealed:
        for stream, account in zip(one["manifest"]["streams"], one["accounts"], strict=True):
            chunks = sorted((store / stream["directory"]).glob("*.0*"))
            raw = b"".join(chunk.read_bytes() for chunk in chunks)
            streams.setdefault(stream["name"], []).append((balanced(account), raw))
    assert {len(scans_of) for scans_of in streams.values()} == {scans}
    return streams


@pytest.mark.alone  # Scans change by the clock: where a sync takes a second, one of them gets nothing.
@pytest.mark.parametrize("query, datagrams, stripped, verdict", SERIES.values(), ids=SERIES.keys())
def test_no_frame_falls_between_two_scans(query, datagrams, stripped, verdict, store):
    streams = series(query, datagrams, store, scans=3, duration="700ms", code=GOOD)
    frames = [datagram[stripped:] for datagram in datagrams]
    for name, scans in streams.items():
        thread = int(name.rpartition("t")[2]) if "split" in query else None
        own = [frame for frame in frames if thread is None or wire.thread_of(frame) == thread]
        stored = b"".join(raw for _, raw in scans)
        assert all(raw for _, raw in scans) and b"".join(own).startswith(stored)
        ends = list(itertools.accumulate(map(len, own)))
        assert ends.index(len(stored)) + 1 == sum(account["terms"]["written"] for account, _ in scans)
        for account, _ in scans:
            assert account["terms"]["written"] == account["terms"]["expected"], account["terms"]
            assert account["verdict"] == verdict and not account["presence"], account
        if verdict == "proven":
            check_that_it_goes_on([account for account, _ in scans])
    for number in range(1, 4):
        run("verify", f"test_no{number:04}", "--store", store, code=INTACT)


def check_that_it_goes_on(accounts):
    """The next scan begins with the frame behind the last, by number and by time."""
    for before, after in itertools.pairwise(accounts):
        last, first = before["last"], after["first"]
        assert last["seen"] <= first["seen"]
        if before["flows"]:
            # Threads as they come have no common number; the second of them may be the first of a scan.
            assert last["time"] <= first["time"]
        else:
            assert first["index"] == last["index"] + 1, (last, first)
            assert last["time"] is None or last["time"] < first["time"]


@pytest.mark.parametrize("threads", [[0], [0, 1]], ids=["placed", "as they come"])
def test_what_is_lost_or_overtaken_where_a_scan_ends_is_counted_in_one_of_both(threads, store):
    chance, frames = random.Random(8), interleaved(threads, 4400 // len(threads))
    sent = [frame for n, frame in enumerate(frames) if n < 20 or chance.random() > 0.3]
    for at in range(20, len(sent) - 1, 2):
        if chance.random() < 0.5:
            sent[at], sent[at + 1] = sent[at + 1], sent[at]
    query = f"format=vdif&fps={1000 // len(threads)}&fill=omit"
    (scans,) = series(query, sent, store, scans=8, duration="400ms", code=FOUND).values()
    accounts = [account for account, _ in scans]
    stored = wire.cut(b"".join(raw for _, raw in scans), len(frames[0]))
    assert len(set(stored)) == len(stored) == sum(account["terms"]["written"] for account in accounts)
    for thread in threads:
        own = [frame for frame in frames if wire.thread_of(frame) == thread]
        terms = [terms_of(account, thread) for account in accounts]
        total = {part: sum(one[part] for one in terms) for part in terms[0]}
        last = max(own.index(frame) for frame in stored if wire.thread_of(frame) == thread)
        came = {frame for frame in sent if wire.thread_of(frame) == thread}
        came &= set(own[: last + 1])
        assert total["expected"] == last + 1
        assert total["written"] + total["late"] == len(came), total
        assert total["missing"] == last + 1 - len(came) and total["overrun"] == 0
        # What was overtaken is late at most once where a scan ends.
        assert total["late"] <= len(accounts), total


def terms_of(account, thread):
    flows = [flow["terms"] for flow in account["flows"] if flow["thread"] == thread]
    return flows[0] if flows else account["terms"]


@pytest.mark.parametrize("form", ["format=vtp", "format=raw&seq=0:8:le&strip=8"])
def test_numbers_at_the_end_of_their_range_do_no_harm(form, store):
    port = free_port()
    frames = wire.run_of_frames(330)
    numbers = [*range(300), *range(2**61, 2**61 + 10), *range(2**64 - 10, 2**64), *range(300, 310)]
    with Recording(f"udp://127.0.0.1:{port}?{form}", store=store) as recording:
        wire.send([struct.pack("<Q", n) + f for n, f in zip(numbers, frames)], port)
    (account,) = accounts(recording.stop(AS_SEALED)).values()
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
    run("verify", recording.scan, "--store", store, code=INTACT)


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
    run("verify", recording.scan, "--store", store, code=INTACT)


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
    assert "nothing was recorded" in told and "never delivered a frame" in told and "    came " not in told


def test_info_tells_when_a_stream_came_first_and_last(store):
    """A single stream that dies long before Ctrl-C has no neighbour and no limit to be measured against."""
    port, frames = free_port(), wire.run_of_frames(100)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000", store=store) as recording:
        wire.send(frames, port)
        sealed = recording.stop()
    (account,) = accounts(sealed).values()
    first, last = (account[end]["seen"][:23] for end in ("first", "last"))
    told = run("info", recording.scan, "--store", store).stdout.decode()
    (line,) = [line for line in told.splitlines() if line.startswith("    came ")]
    # To the minute: printed milliseconds are rounded.
    assert line.count(first[:16]) + line.count(last[:16]) >= 2, (line, first, last)


def test_a_recording_ends_at_the_time_it_was_given(store):
    end = datetime.now(timezone.utc) + timedelta(seconds=6)
    until = end.strftime("%Y-%m-%dT%H:%M:%S.%f")
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000"
    with Recording(source, store=store, options=["--until", until, "--buffer", "64MiB"]) as recording:
        wire.send(wire.run_of_frames(1100), port)
        # All is sent at once, so the stream ends long before the end that was planned.
        sealed = recording.sealed(code=FOUND)
    assert sealed["headline"].startswith("INCOMPLETE: 1100 frames recorded"), sealed["headline"]
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
    run("verify", recording.scan, "--store", store, code=INTACT)


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
