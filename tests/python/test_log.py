"""The log on standard error: its levels and forms, its spans, and a reader that does not read."""

import json
import subprocess

import pytest
import wire
from fullbore import BINARY, GOOD, PATIENCE, free_port


def record(store, *options):
    """Records 900 frames with a log; returns what standard output and standard error got."""
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000"
    words = [BINARY, "record", source, "--store", store, "--session", "test", "--scan", "one", "--json"]
    words += ["--bytes", f"{900 * 1056}B", "--buffer", "64MiB", *options]
    with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as recorder:
        lines = [next(line for line in recorder.stdout if '"armed"' in line)]
        wire.send(wire.run_of_frames(900), port)
        out, err = recorder.communicate(timeout=PATIENCE)
    assert recorder.returncode == GOOD, err
    return lines + out.splitlines(), err.splitlines()


def test_every_line_of_the_json_log_is_an_entry_with_time_level_and_scan(store):
    _, told = record(store, "--log", "json")
    entries = [json.loads(line) for line in told]
    assert all({"timestamp", "level", "message", "threadName"} <= set(entry) for entry in entries)
    assert {entry["level"] for entry in entries} <= {"INFO", "WARN"}
    (armed,) = [entry for entry in entries if entry["message"] == "armed"]
    (sealed,) = [entry for entry in entries if entry["message"].startswith("sealed: COMPLETE")]
    assert armed["scan"] == sealed["scan"] == "test_one" and armed["timestamp"] < sealed["timestamp"]


def test_details_of_a_stream_lie_in_the_spans_of_scan_and_stream(store):
    _, told = record(store, "--log", "json", "-vv")
    entries = [json.loads(line) for line in told]
    (settled,) = [entry for entry in entries if entry["message"] == "all blocks are settled"]
    assert [span["name"] for span in settled["spans"]] == ["scan", "stream"] and settled["spans"][0]["scan"] == "test_one"
    assert (settled["written"], settled["missing"], settled["level"]) == (900, 0, "DEBUG")
    chunks = [entry for entry in entries if entry["message"] == "makes a chunk"]
    assert {entry["member"] for entry in chunks} == {str(store)}


def test_nothing_is_logged_unless_asked_for_and_events_stay_on_standard_output(store):
    events, told = record(store)
    assert not [line for line in told if "INFO" in line or "DEBUG" in line]
    assert all(json.loads(line)["event"] for line in events)


@pytest.mark.parametrize("level, durable", [("-v", False), ("-vvv", True)])
def test_each_level_adds_entries(level, durable, store):
    _, told = record(store, level)
    assert any(" INFO " in line and "armed" in line for line in told)
    assert any(" TRACE " in line and "durable" in line for line in told) is durable


def test_a_log_that_nobody_reads_stops_no_recording(store):
    """A pipe holds 64 KiB, and this log is longer."""
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB"
    words = [BINARY, "record", source, "--store", store, "--session", "test", "--scan", "one", "--json", "-vvv"]
    words += ["--chunk", "128KiB", "--sync", "1ms", "--bytes", f"{20_000 * 2048}B", "--buffer", "64MiB"]
    with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as recorder:
        next(line for line in recorder.stdout if b'"armed"' in line)
        wire.send(wire.run_of_frames(20_000, payload_bytes=2016), port, pause=5e-5)
        sealed = next(line for line in recorder.stdout if b'"sealed"' in line)
        assert json.loads(sealed)["complete"]
        told = recorder.stderr.read()
    assert len(told) > 64 << 10 and recorder.returncode == GOOD
