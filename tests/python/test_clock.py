"""Time stamps of a stream against the host's clock: warnings during the recording, a figure in the account, shown by
`info`."""

import contextlib
import json
import re
import signal
import subprocess
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import wire
from fullbore import AS_SEALED, PATIENCE, Recording, accounts, ask, free_port, free_ports, generate_command, run

# Far beyond the delay of a loaded machine, for tests that are not about that delay.
FORGIVING = ["--clock-offset", "30s", "--clock-drift", "6000"]


@contextlib.contextmanager
def sending(target, **rules):
    """A sender that runs until the block is left."""
    command = generate_command(target, frame=1032, fps=500, gentle=True, **rules)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as sender:
        try:
            yield
        finally:
            sender.send_signal(signal.SIGINT)
            _, complaints = sender.communicate(timeout=PATIENCE)
        assert sender.returncode == 0, complaints


def spoken(recording):
    """All messages about clocks."""
    events = [event for event in recording.events if event["event"] in ("warning", "note")]
    return [(event["event"], event["text"]) for event in events if "clock" in event["text"] or "real time" in event["text"]]


def look_again(recording, times):
    """Waits until the recorder has checked its streams this number of further times."""
    seen = len([event for event in recording.events if event["event"] == "progress"])
    recording.wait("progress", lambda _: [e["event"] for e in recording.events].count("progress") >= seen + times)


def ns(text):
    """Nanoseconds since 1970 of a time as fullbore writes it."""
    whole, fraction = text.rstrip("Z").split(".")
    second = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return int(second.timestamp()) * 10**9 + int(fraction.ljust(9, "0"))


def test_time_stamps_that_are_seconds_off_are_warned_of_with_the_figure(store, tmp_path):
    port, truth = free_port(), tmp_path / "truth.json"
    start = (datetime.now(timezone.utc) - timedelta(seconds=3)).replace(microsecond=0)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=500", store=store) as recording:
        with sending(port, start=start.strftime("%Y-%m-%dT%H:%M:%SZ"), truth=truth):
            told = recording.wait("warning", lambda told: "behind the host's clock" in told["text"])
        sealed = recording.stop(AS_SEALED)
    sent = json.loads(truth.read_text())
    off = ns(sent["started"]) - ns(sent["streams"][0]["first_second"])
    clock = sealed["accounts"][0]["clock"]
    # No frame arrives before it is sent; a busy machine may be late.
    assert off - 10**6 <= clock["behind_ns"] <= off + 2 * 10**9, (off, clock)
    assert clock["least_ns"] <= clock["behind_ns"] <= clock["most_ns"]
    told_ns = float(re.search(r"lie ([\d.]+) s behind", told["text"])[1]) * 1e9
    assert off - 10**6 <= told_ns <= off + 2 * 10**9, (off, told)
    assert str(port) in told["text"]
    assert sealed["manifest"]["streams"][0]["account"]["clock"] == clock
    assert ask("info", "test_one", "--store", store)["accounts"][0]["clock"] == clock
    shown = run("info", "test_one", "--full", "--store", store).stdout.decode()
    assert f"{port}: its time stamps lie {clock['behind_ns'] / 1e9:.3f} s behind the host's clock" in shown
    run("verify", "test_one", "--store", store, code=(0, 1))


@pytest.mark.alone
def test_a_rate_that_is_a_little_wrong_is_warned_of_once_that_is_sure(store):
    port, ppm = free_port(), 30_000
    options = ["--clock-offset", "off"]
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=500", store=store, options=options) as recording:
        with sending(port, start="now", drift=ppm):
            told = recording.wait("warning", lambda told: "ppm" in told["text"])
            look_again(recording, 8)
        sealed = recording.stop(AS_SEALED)
    drift, uncertain = map(float, re.search(r"([+-][\d.]+) ± ([\d.]+) ppm", told["text"]).groups())
    assert abs(drift - ppm) <= uncertain + 3000, told
    assert len([text for _, text in spoken(recording) if "ppm" in text]) == 1, spoken(recording)
    kept = sealed["accounts"][0]["clock"]["drift"]
    assert abs(kept["ppb"] - ppm * 1000) <= kept["uncertain_ppb"] + 3_000_000, kept
    # A stall of the machine can make the figure too uncertain to be shown.
    shown = "ppm" in run("info", "test_one", "--store", store).stdout.decode()
    assert shown == (kept["uncertain_ppb"] <= 100_000), kept


def test_a_stream_that_keeps_the_time_is_not_spoken_of_and_has_its_figure(store):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vtp&fps=500"
    with Recording(source, store=store, options=FORGIVING) as recording:
        with sending(port, start="now", format="vtp"):
            recording.wait("progress", lambda told: told["streams"][0]["frames"] > 1500)
        sealed = recording.stop(AS_SEALED)
    assert not spoken(recording), spoken(recording)
    clock = sealed["accounts"][0]["clock"]
    assert -(10**7) < clock["behind_ns"] < 30 * 10**9 and clock["over_ns"] > 10**9, clock


def test_made_up_frames_keep_the_time_unasked_and_at_once(store, tmp_path):
    port, truth = free_port(), tmp_path / "truth.json"
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=500", store=store, options=FORGIVING) as recording:
        before = time.time_ns()
        with sending(port, start=None, truth=truth):
            recording.wait("progress", lambda told: told["streams"][0]["frames"] > 1500)
        sealed = recording.stop(AS_SEALED)
    [sent] = json.loads(truth.read_text())["streams"]
    assert 0 <= sent["port"]["first"] < 500
    assert not spoken(recording), spoken(recording)
    # No frame has a time before the start of the sender, as the frames of its whole second would, or a time after it
    # was sent.
    first = ns(sent["first_second"]) + sent["port"]["first"] * 10**9 // 500
    assert before <= first <= ns(json.loads(truth.read_text())["started"]) + 10**9 // 500
    assert sealed["accounts"][0]["clock"]["least_ns"] >= -(10**7)


def test_recordings_of_years_ago_are_noted_once_and_calmly(store):
    ports = free_ports(3)
    source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif&fps=500"
    with Recording(source, store=store) as recording:
        with sending(f"udp://127.0.0.1:{ports[0]}-{ports[-1]}", start="2014-06-16T05:56:07Z"):
            told = recording.wait("note", lambda told: "years behind the host's clock" in told["text"])
            look_again(recording, 12)
        sealed = recording.stop(AS_SEALED)
    assert spoken(recording) == [("note", told["text"])]
    assert all(str(port) in told["text"] for port in ports), told
    assert all(account["clock"]["behind_ns"] > 10 * 365 * 86_400 * 10**9 for account in accounts(sealed).values())


def test_what_is_sent_in_a_moment_is_not_judged_and_what_has_no_time_has_no_figure(stores):
    timed, other = free_ports(2)
    sources = [f"udp://127.0.0.1:{timed}?format=vdif&fps=1000", f"udp://127.0.0.1:{other}?format=raw"]
    with Recording(*sources, store=stores) as recording:
        wire.send(wire.run_of_frames(300), timed)
        wire.send([bytes(100)] * 10, other)
        recording.wait("progress", lambda told: all(stream["frames"] for stream in told["streams"]))
        sealed = recording.stop(AS_SEALED)
    assert not spoken(recording), spoken(recording)
    told = accounts(sealed)
    assert "clock" in told[str(timed)] and "clock" not in told[str(other)]


def test_limits_that_cannot_be_are_refused(store):
    for words in (["--clock-offset", "0s"], ["--clock-drift", "0"], ["--clock-drift", "fast"]):
        refused = run(
            "record", "udp://127.0.0.1:1", "--store", store, "--session", "a", "--scan", "b", *words, code=2
        )
        assert "off" in refused.stderr.decode(), refused.stderr
    assert not list(Path(store).iterdir())
