"""A replay equals the recording: every frame, in order, and in time."""

import json
import re
import signal
import socket
import struct
import subprocess
import time

import pytest
from fullbore import AS_SEALED, BINARY, FOUND, GOOD, PATIENCE, REFUSED, Recording, accounts, free_ports, generate, play, run


def record(ports, store, scan, feed):
    source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif"
    with Recording(source, store=store, scan=scan) as recording:
        feed(f"udp://127.0.0.1:{ports[0]}-{ports[-1]}")
    return recording


@pytest.mark.alone
@pytest.mark.parametrize("pace", [[], ["--factor", "2"], ["--flat-out"]], ids=["recorded", "twice", "flat out"])
def test_a_replay_recorded_again_is_equal(pace, stores, tmp_path):
    ports, members = free_ports(4), ",".join(map(str, stores))
    first = record(
        ports, stores, "first",
        lambda to: generate(to, frame=5032, fps=4_000, duration="1s", truth=tmp_path / "t.json"),
    )  # fmt: skip
    again = record(
        ports, stores, "again",
        lambda to: play(first.scan, "--store", members, "--to", to, *pace),
    )  # fmt: skip
    for port in ports:
        sent, came = first.on_disk().bytes(port), again.on_disk().bytes(port)
        assert len(sent) == 4000 * 5032
        assert came == sent
    told = accounts(again.stop(code=GOOD)).values()
    assert {account["verdict"] for account in told} == {"proven"}
    assert {account["reordered"] for account in told} == {0}


def test_fill_frames_are_not_sent_so_a_lossy_scan_stays_lossy(store, tmp_path):
    ports = free_ports(1)
    first = record(
        ports, store, "first",
        lambda to: generate(
            to, frame=5032, fps=4_000, duration="1s", drop=0.02, seed=4, truth=tmp_path / "t.json"
        ),
    )  # fmt: skip
    again = record(
        ports, store, "again", lambda to: play(first.scan, "--store", store, "--to", to)
    )
    (before,) = accounts(first.stop(code=FOUND)).values()
    (after,) = accounts(again.stop(code=FOUND)).values()
    assert before["terms"] == after["terms"] and before["terms"]["missing"] > 0


@pytest.mark.alone
def test_a_replay_tells_its_rate_and_its_error_of_pace(store, tmp_path):
    ports = free_ports(1)
    first = record(
        ports, store, "first",
        lambda to: generate(to, frame=8032, fps=4_000, duration="2500ms", truth=tmp_path / "t.json"),
    )  # fmt: skip
    source = f"udp://127.0.0.1:{ports[0]}?format=vdif"
    with Recording(source, store=store, scan="again"):
        to = f"udp://127.0.0.1:{ports[0]}"
        done = play(first.scan, "--store", store, "--to", to, "--json")
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["frames"] == 10_000 and report["refused"] == 0
    assert report["seconds"] > 2.4 and report["due_seconds"] == pytest.approx(2.5, abs=0.01)
    late = report["lateness"]["late"] > 100 or report["seconds"] > report["due_seconds"] * 1.01 + 0.01
    assert done.returncode == (FOUND if late else GOOD)
    assert (b"timing was not kept" in done.stderr) == late
    assert sum(count for _, count in report["lateness"]["buckets"]) == 10_000


def test_frames_that_are_held_up_are_told_late_with_the_time_they_were(store):
    """The player is stopped from outside for longer than it can make up for."""
    (port,) = free_ports(1)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif", store=store, scan="first") as recording:
        generate(port, frame=1032, fps=1_000, duration="3s", gentle=True)
    recording.stop(code=GOOD)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", port))
        listener.settimeout(PATIENCE)
        words = [BINARY, "play", recording.scan, "--store", store, "--to", f"udp://127.0.0.1:{port}", "--gentle", "--json"]
        player = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(1000):
            listener.recv(2048)
        player.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        player.send_signal(signal.SIGCONT)
        told, said = player.communicate(timeout=PATIENCE)
    lateness = json.loads(told.splitlines()[-1])["lateness"]
    # 500 frames were due meanwhile, all but the last of them by more than a millisecond; the first by half a second.
    assert lateness["late"] > 450 and 450e6 < lateness["max_ns"] < 2e9, lateness
    assert player.returncode == FOUND and b"timing was not kept" in said, said


def played(scan, store, *words):
    """A replay to a port that needs no listener."""
    to = f"udp://127.0.0.1:{free_ports(1)[0]}"
    done = play(scan, "--store", store, "--to", to, "--gentle", "--json", *words)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("start", ["2020-03-01T00:00:00", "2030-03-01T00:00:00"])
@pytest.mark.parametrize("threads, fill", [("0-3", ""), ("0", "&fill=omit")], ids=["together", "omit"])
def test_a_scan_is_played_by_the_clock_of_its_frames_alone(threads, fill, start, store):
    (port,) = free_ports(1)
    source = f"udp://127.0.0.1:{port}?format=vdif{fill}"
    with Recording(source, store=store, scan="first") as recording:
        generate(port, frame=1032, fps=500, threads=threads, start=start, duration="2500ms", gentle=True)
    (account,) = accounts(recording.stop(code=GOOD)).values()
    # Its rate was learnt when the first second ended, and the first frame's time is known since.
    assert account["first"]["time"].startswith(start)
    frames = 1250 * (4 if threads == "0-3" else 1)
    report = played(recording.scan, store, "--factor", "5")
    assert report["frames"] == frames
    assert report["due_seconds"] * 5 == pytest.approx(2.498, abs=0.002)
    part = played(recording.scan, store, "--factor", "5", "--from", "+1.5s", "--until", "+2s")
    assert part["frames"] == pytest.approx(frames / 5, rel=0.2)
    cut = run("cat", recording.scan, "--store", store, "--from", "+1.5s", "--until", "+2s").stdout
    assert len(cut) == part["frames"] * 1032


@pytest.mark.parametrize("number", ["", "&seq=0:8:le"], ids=["no number", "numbered"])
def test_a_raw_scan_is_played_as_long_as_it_was_sent(number, store):
    (port,) = free_ports(1)
    source = f"udp://127.0.0.1:{port}?format=raw{number}"
    # The recording continues for the same time again.
    with Recording(source, store=store, scan="first", options=["--duration", "6s"]) as recording:
        target = f"udp://127.0.0.1:{port}"
        sent = run(
            "generate", "--to", target, "--format", "raw", "--seq", "0:8:le", "--frame", 1024,
            "--fps", 500, "--duration", "2s", "--gentle", "--json",
        )  # fmt: skip
        recording.sealed(AS_SEALED)
    seconds = json.loads(sent.stdout.splitlines()[-1])["seconds"]
    report = played(recording.scan, store, "--factor", "5")
    assert report["frames"] == 1000
    assert report["due_seconds"] * 5 == pytest.approx(seconds, abs=0.5)


def test_a_part_of_a_scan_of_unknown_rate_is_found_by_when_it_came(store):
    (port,) = free_ports(1)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif", store=store, scan="first") as recording:
        generate(port, frame=1032, fps=500, frames=400, start="2020-03-01T00:00:00", gentle=True)
    recording.stop(code=GOOD)
    cat = ("cat", recording.scan, "--store", store)
    whole = run(*cat).stdout
    assert len(whole) == 400 * 1032
    times = ("--from", "+0.3s", "--until", "+0.6s")
    part = run(*cat, *times).stdout
    assert 0 < len(part) < len(whole) and part in whole
    assert played(recording.scan, store, *times)["frames"] * 1032 == len(part)
    assert played(recording.scan, store, "--from", "10", "--until", "20")["frames"] == 10
    for words in ("--until 0", "--from 400", "--from +9s", "--from 7 --until 7"):
        told = run(*cat, *words.split(), code=REFUSED)
        assert told.stdout == b"" and b"frame" in told.stderr, told


def test_what_is_known_of_the_frames_outlives_the_recorder(store):
    (port,) = free_ports(1)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif", store=store, scan="first") as recording:
        generate(port, frame=1032, fps=500, threads="0-3", duration="2500ms", gentle=True)
        rate = lambda: re.search('"frames_per_second": *([^,]*)', manifest(recording)).group(1)
        recording.wait("progress", where=lambda _: rate() == "500")
        recording.kill()
    assert '"recording"' in manifest(recording)


def manifest(recording):
    (path,) = recording.stores[0].glob(f"{recording.scan}/.fullbore/manifest.json")
    return path.read_text()


def looped(scan, store, frames, *words, stopped=False):
    """Plays in a loop until this number of frames has arrived; then stops it if `stopped`. Returns the report; the
    frames by their headers, as numbers since the reference epoch at 100 a second; and their arrival times."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(PATIENCE)
        to = f"udp://127.0.0.1:{listener.getsockname()[1]}"
        command = [BINARY, "play", scan, "--store", store, "--to", to, "--gentle", "--json", *words]
        player = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        came, times = [], []
        for _ in range(frames):
            came.append(listener.recv(2048))
            times.append(time.monotonic())
        if stopped:
            player.send_signal(signal.SIGINT)
        told, said = player.communicate(timeout=PATIENCE)
        # Frames sent before the end wait in the socket, which has room for all of them.
        listener.setblocking(False)
        try:
            while True:
                came.append(listener.recv(2048))
        except BlockingIOError:
            pass
    assert player.returncode in (GOOD, FOUND), said
    headers = [struct.unpack_from("<II", frame) for frame in came]
    numbers = [(second & 0x3FFF_FFFF) * 100 + (number & 0xFF_FFFF) for second, number in headers]
    return json.loads(told.splitlines()[-1]), numbers, times


def held_up_at_turns(times, turn):
    """The seconds by which even the shortest wait between two turns exceeds the longest within one. A busy machine
    delays any frame; the cost of a turn occurs at each of them."""
    waits = [after - before for before, after in zip(times, times[1:])]
    between = waits[turn - 1 :: turn]
    within = [wait for at, wait in enumerate(waits) if at % turn != turn - 1]
    return min(between) - max(within)


def test_a_delay_of_18_ms_at_each_turn_is_seen():
    even = [at * 0.01 + 0.002 * (at % 3) for at in range(300)]
    late = [at + 0.018 * (number // 100) for number, at in enumerate(even)]
    assert held_up_at_turns(even, 100) <= 0 < held_up_at_turns(late, 100)


def test_a_loop_plays_turn_after_turn_without_a_gap_until_it_is_stopped(store):
    (port,) = free_ports(1)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=100", store=store, scan="first") as recording:
        generate(port, frame=264, fps=100, duration="1s", gentle=True)
    recording.stop(code=GOOD)
    sent = recording.on_disk().bytes()
    first = (struct.unpack_from("<I", sent)[0] & 0x3FFF_FFFF) * 100
    # Three turns: the times in the frames advance by a second from turn to turn.
    report, numbers, times = looped(recording.scan, store, 300, "--loop", "3")
    assert held_up_at_turns(times, 100) <= 0, [round(at - times[0], 4) for at in times]
    assert numbers == list(range(first, first + 300))
    assert (report["times"], report["frames"]) == (3, 300) and not report["stopped"], report
    assert report["due_seconds"] == pytest.approx(2.99, abs=0.02)
    # Without a number it continues until Ctrl-C, in the middle of a turn.
    report, numbers, _ = looped(recording.scan, store, 230, "--loop", "--factor", "2", stopped=True)
    assert report["stopped"] and report["times"] >= 2 and report["frames"] == len(numbers) >= 230, report
    assert numbers == list(range(first, first + len(numbers)))
    # Each turn as recorded.
    report, numbers, _ = looped(recording.scan, store, 200, "--loop", "2", "--factor", "4", "--as-recorded")
    assert numbers == 2 * list(range(first, first + 100)) and report["times"] == 2
