"""Several scans one after another, an abort, and malicious datagrams."""

import itertools
import json
import random
import signal
import socket
import struct
import subprocess
import time
from datetime import datetime, timedelta, timezone

import pytest
import wire
from fullbore import (
    AS_SEALED,
    FOUND,
    GOOD,
    INTACT,
    PATIENCE,
    REFUSED,
    Recording,
    accounts,
    ask,
    balanced,
    free_port,
    free_ports,
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


# The name of a source: its parameters, the datagrams, bytes of them that are not stored, and the expected verdict
SERIES = {
    "filled": ("format=vdif&fps=1000", wire.run_of_frames(3000), 0, "proven"),
    "omitted": ("format=vdif&fps=1000&fill=omit", wire.run_of_frames(3000), 0, "proven"),
    "vtp": ("format=vtp&fps=1000", numbered(wire.run_of_frames(3000)), 8, "proven"),
    "counted": ("format=raw&seq=0:8:le", numbered([bytes(1000)] * 3000), 0, "proven"),
    "together": ("format=vdif&fps=500", interleaved([0, 1], 1500), 0, "proven"),
    "split": (
        "format=vdif&fps=500&threads=split",
        interleaved([0, 1], 1500),
        0,
        "proven",
    ),
    "varying": (
        "format=raw&frame=varying&seq=0:8:le",
        numbered(of_varying_length(3000)),
        0,
        "proven",
    ),
    "uncounted": ("format=raw", [struct.pack("<Q", n) * 100 for n in range(3000)], 0, "unproven"),
}


def series(sources, store, scans, duration, code):
    """Records scans without a pause while a datagram of each source is sent each millisecond: `{name: (query,
    datagrams)}`. Returns for each stream, by name: its accounts and stored data, scan by scan."""
    ports = free_ports(len(sources))
    endpoints = [
        f"udp://127.0.0.1:{port}?{query}&block=64KiB&name={name}"
        for port, (name, (query, _)) in zip(ports, sources.items(), strict=True)
    ]
    options = ["--scans", scans, "--duration", duration]
    with Recording(*endpoints, store=store, scan="no", options=options) as recording:
        wire.send_in_turn(dict(zip(ports, (datagrams for _, datagrams in sources.values()))), pause=1e-3)
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


@pytest.mark.alone  # Scans change by the clock: if a sync takes a second, one of them gets nothing.
def test_no_frame_falls_between_two_scans_whatever_a_stream_is_counted_by(store):
    sources = {name: (query, datagrams) for name, (query, datagrams, _, _) in SERIES.items()}
    streams = series(sources, store, scans=3, duration="700ms", code=GOOD)
    assert set(streams) == SERIES.keys() - {"split"} | {"splitt0", "splitt1"}
    for name, scans in streams.items():
        thread = int(name[-1]) if name.startswith("split") else None
        _, datagrams, stripped, verdict = SERIES[name if thread is None else "split"]
        frames = [datagram[stripped:] for datagram in datagrams]
        own = [frame for frame in frames if thread is None or wire.thread_of(frame) == thread]
        stored = b"".join(raw for _, raw in scans)
        assert all(raw for _, raw in scans) and b"".join(own).startswith(stored), name
        ends = list(itertools.accumulate(map(len, own)))
        assert ends.index(len(stored)) + 1 == sum(account["terms"]["written"] for account, _ in scans), name
        for account, _ in scans:
            assert account["terms"]["written"] == account["terms"]["expected"], (name, account["terms"])
            assert account["verdict"] == verdict and not account["presence"], (name, account)
        if verdict == "proven":
            check_that_it_goes_on([account for account, _ in scans])
    for number in range(1, 4):
        run("verify", f"test_no{number:04}", "--store", store, code=INTACT)


def check_that_it_goes_on(accounts):
    """The next scan begins with the frame after the last, by number and by time."""
    for before, after in itertools.pairwise(accounts):
        last, first = before["last"], after["first"]
        assert last["seen"] <= first["seen"]
        if before["flows"]:
            # Threads in order of arrival have no common number; the second of them may be the first of a scan.
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
    (scans,) = series({"one": (query, sent)}, store, scans=8, duration="400ms", code=FOUND).values()
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
        # Overtaken frames are late at most once, at the end of a scan.
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
    assert "no block was free" not in json.dumps(sealed)
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
    told = run("info", recording.scan, "--full", "--store", store).stdout.decode()
    assert "nothing was recorded" in told and "never delivered a frame" in told and "    came " not in told


def test_info_tells_when_a_stream_came_first_and_last(store):
    """A single stream that ends long before Ctrl-C has no neighbour and no limit for comparison."""
    port, frames = free_port(), wire.run_of_frames(100)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000", store=store) as recording:
        wire.send(frames, port)
        sealed = recording.stop()
    (account,) = accounts(sealed).values()
    first, last = (account[end]["seen"][:23] for end in ("first", "last"))
    told = run("info", recording.scan, "--full", "--store", store).stdout.decode()
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
        # All frames are sent at once, so the stream ends long before the planned end.
        sealed = recording.sealed(code=FOUND)
    assert sealed["headline"].startswith("INCOMPLETE: 1100 frames recorded"), sealed["headline"]
    assert sealed["manifest"]["state"] == "sealed"
    stopped = datetime.fromisoformat(sealed["manifest"]["stopped"][:26]).replace(tzinfo=timezone.utc)
    assert timedelta() <= stopped - end < timedelta(seconds=3), (stopped, end)
    (account,) = accounts(sealed).values()
    assert account["terms"]["written"] == 1100


def test_a_terminal_that_goes_away_stops_and_seals(store):
    """It sends several SIGHUPs, which do not abort."""
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


def test_the_start_and_length_of_a_listing_are_those_of_the_frames_that_came(store):
    """For a stream whose frames have no times, the listing uses the arrival times, and not the time of arming."""
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=raw", store=store) as recording:
        time.sleep(1.5)
        wire.send([b"x" * 1000] * 10, port)
        time.sleep(0.2)
        wire.send([b"x" * 1000] * 10, port)
        recording.wait("progress", lambda told: told["streams"][0]["frames"] >= 20)
        time.sleep(1.0)
        sealed = recording.stop(AS_SEALED)
    (entry,) = ask("ls", "--store", store)
    account = sealed["accounts"][0]
    assert entry["start"] == account["first"]["seen"]
    assert 0.1e9 < entry["duration_ns"] < 1.2e9, entry


def scans_with_a_passing_sender(store, query):
    """Four scans of a second: thread 0 in all of them, and 30 frames of thread 7 in the first."""
    port, frames, stray = free_port(), wire.run_of_frames(6000, 1000, 0), wire.run_of_frames(6000, 1000, 7)
    options = ["--scans", "4", "--duration", "1s"]
    with Recording(f"udp://127.0.0.1:{port}?{query}", store=store, scan="no", options=options) as recording:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            begun = time.perf_counter()
            for number, frame in enumerate(frames):
                if recording.process.poll() is not None:
                    break
                sender.sendto(frame, ("127.0.0.1", port))
                if 300 <= number < 330:
                    sender.sendto(stray[number], ("127.0.0.1", port))
                wire.wait_until(begun + number * 1e-3)
        recording.sealed(code=FOUND)
    sealed = [event for event in recording.events if event["event"] == "sealed"]
    warnings = [event["text"] for event in recording.events if event["event"] == "warning"]
    return sealed, [text for text in warnings if "do not expect it" in text]


@pytest.mark.alone
@pytest.mark.parametrize("query", ["format=vdif&fps=1000", "format=vdif&fps=1000&threads=split"])
def test_stream_that_a_stray_sender_opened_in_one_scan_is_not_expected_in_later_ones(query, store):
    sealed, warnings = scans_with_a_passing_sender(store, query)
    first, second, *later = [[account["presence"] for account in one["accounts"]] for one in sealed]
    assert [it["what"] for it in first[1]] == ["started-late", "died-early"], first
    assert second[1] == [{"what": "never-came"}], second
    assert later == [[[], [{"what": "not-expected"}]]] * 2, later
    assert [one["completeness"] for one in sealed] == ["incomplete", "incomplete", "complete", "complete"]
    (warning,) = warnings
    assert "t7 was there in one scan" in warning and "test_no0002" in warning, warning
    assert json.loads(run("verify", "test_no0003", "--store", store, "--json").stdout)
    run("verify", "test_no0003", "--store", store, code=INTACT)


def test_name_of_a_scan_that_is_being_recorded_is_refused_as_such(store):
    ours, other = free_ports(2)
    words = ["record", f"udp://127.0.0.1:{other}?format=vdif", "--store", store, "--session", "test", "--scan", "one"]
    with Recording(f"udp://127.0.0.1:{ours}?format=vdif", store=store) as recording:
        recording.wait("armed")
        told = run(*words, "--buffer", "64MiB", code=REFUSED).stderr.decode()
        assert "scan test_one is being recorded right now" in told and "stop that recording first" in told, told
        recording.stop(AS_SEALED)
    told = run(*words, "--buffer", "64MiB", code=REFUSED).stderr.decode()
    assert "scan test_one was recorded before" in told and "fullbore rm" in told, told
