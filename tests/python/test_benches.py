"""The benchmarks divide by the work that was done."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import types

import pytest

from fullbore import BINARY, PATIENCE, REPOSITORY


def test_the_store_is_measured_by_what_was_recorded_not_by_what_was_sent(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(REPOSITORY / "benches"), *sys.path])
    from store import recorded_bytes

    streams = [{"bytes": 3}, {"bytes": 4}]
    events = [{"event": "armed"}, {"event": "sealed", "manifest": {"streams": streams}}]
    assert recorded_bytes(events) == 7


def bench_panda():
    """Loaded by path, because a test module has the same name."""
    spec = importlib.util.spec_from_file_location("bench_panda", REPOSITORY / "benches/panda.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    return bench


def test_what_a_panda_is_required_to_cost_is_held_against_the_client():
    bench = bench_panda()
    trials = lambda rate, cost: [{"mb_per_second": rate, "cpu_seconds_per_gb": cost}] * 3
    ours = {"fullbore scaled": trials(1500, 0.6), "fullbore raw": trials(2000, 0.4)}
    assert bench.missed(ours | {"pandablocks": trials(100, 6.5)}, 1000) == []
    cheap_client = bench.missed(ours | {"pandablocks": trials(100, 5.0)}, 1000)
    assert [text.split(":")[0] for text in cheap_client] == ["fullbore scaled", "fullbore raw"]
    (slow,) = bench.missed(ours, 1600)
    assert slow == "fullbore scaled: 1500 MB/s, and 1600 are required"


@pytest.mark.parametrize("beside, did", [("web", "asked"), ("reader", "taken")])
def test_the_settings_of_the_note_are_those_that_are_measured(beside, did, monkeypatch, tmp_path):
    bench = bench_panda()
    monkeypatch.setattr(bench, "FULLBORE", BINARY)
    monkeypatch.setattr(bench, "HOST", f"127.78.{os.getpid() % 250}.1")
    for tool in ("fullbore", "pandablocks"):
        trial = bench.run_note(tool, tmp_path, 3, 1, ring="32MiB", beside=beside, scaled=True, flush=0.1)
        assert (trial["missing"], trial["right"], trial["exit"]) == (0, True, 0), trial
        assert trial["the_other_did"][did] > 0 and trial["cpu_percent"] > 0, trial
    assert list(tmp_path.iterdir()) == []
    # The table has both rates of the note, and each setting differs from the first.
    assert bench.NOTE_RATES == (50, 60) and list(bench.NOTE_SETTINGS.values()).count({}) == 1


def test_the_soak_of_a_panda_samples_memory_and_tells_how_long_flushes_took(tmp_path):
    command = [sys.executable, REPOSITORY / "benches/panda_soak.py", "--seconds", 4, "--rate", 1e5]
    command += ["--acquisition-seconds", 1, "--fullbore", BINARY, "--directory", tmp_path, "--results", tmp_path]
    done = subprocess.run(map(str, command), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "panda_soak.json").read_text())
    assert told["acquisitions"] >= 3 and set(told["verdicts"]) == {"proven"} and not told["wrong_files"]
    # Acquisitions of one second at 100 000 samples a second; on a busy machine the last one may be cut short.
    assert len(told["memory_mb"]) >= 3 and told["samples"] >= 200_000
    assert sum(told["flushes_by_longest_us"].values()) >= told["acquisitions"]
    assert "flushes took" in done.stdout and not list(tmp_path.glob("soak-panda-*"))


def test_a_trial_that_is_interrupted_leaves_no_recorder_running(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(REPOSITORY / "benches"), *sys.path])
    import record

    class Sleeper:
        def __init__(self, *_):
            pass

        def start(self, _):
            self.process = subprocess.Popen(["sleep", "600"])
            started.append(self.process)

        abandon = record.TOOLS[0].abandon

    def interrupt(*_):
        raise KeyboardInterrupt

    started = []
    monkeypatch.setattr(record.Bench, "send", interrupt)
    options = types.SimpleNamespace(directory=tmp_path, seconds=1, cost=None)
    case = record.Case("loopback", 8032, 1, False)
    with pytest.raises(KeyboardInterrupt):
        record.Bench(options).trial(Sleeper, None, case, 1)
    assert [process.poll() for process in started] == [-signal.SIGKILL]


@pytest.mark.parametrize("dies", [False, True], ids=["interrupted", "recorder dies"])
def test_the_store_phase_leaves_no_recorder_running(dies, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(REPOSITORY / "benches"), *sys.path])
    import store

    recorder = tmp_path / "recorder"
    recorder.write_text("#!/bin/sh\n" + ("exit 7\n" if dies else "echo '{\"event\": \"armed\"}'\nexec sleep 600\n"))
    recorder.chmod(0o755)
    started, popen = [], subprocess.Popen

    def watched(*words, **options):
        started.append(popen(*words, **options))
        return started[-1]

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "FULLBORE", recorder)
    monkeypatch.setattr(store, "timed", interrupt)
    monkeypatch.setattr(subprocess, "Popen", watched)
    with pytest.raises(RuntimeError if dies else KeyboardInterrupt):
        store.a_scan(tmp_path / "scan")
    assert [process.poll() for process in started] == [7 if dies else -signal.SIGINT]


def bench_session(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(REPOSITORY / "benches"), *sys.path])
    import session

    return session


@pytest.mark.alone
@pytest.mark.slow
def test_a_session_at_full_rate_is_recorded_and_verified_in_its_pauses(tmp_path):
    command = [sys.executable, REPOSITORY / "benches/session.py", "--rate", 0.4, "--streams", 4, "--scans", 4]
    command += ["--scan-seconds", 2, "--pause-seconds", 3, "--fullbore", BINARY, "--directory", tmp_path, "--keep-scans", 2]
    subprocess.run([*map(str, command), "--output", tmp_path / "session.json"], check=True, timeout=5 * PATIENCE)
    (run,) = json.loads((tmp_path / "session.json").read_text())["sessions"]
    assert run["whole"] and run["sealed"] == 4 and [scan["code"] for scan in run["verified"]] == [0, 0, 0, 0]
    assert run["holds"] and all(scan["in_the_pause"] and 0 <= scan["pause_left_seconds"] <= 3 for scan in run["verified"]), run
    # Two scans stay, or three if a busy sender made them smaller.
    names, left = [f"paper_no{number:04}" for number in range(1, 5)], run["remaining"]
    assert len(left) in (2, 3) and left == names[-len(left):], "--keep removes the oldest scans, and no other"
    # Four streams of 100 Mbit/s for four scans of two seconds, and the 50 ms by which each scan begins early.
    meant = 4 * 2 * 0.4e9 / 8 / 8032
    assert meant * 0.98 <= run["terms"]["written"] <= meant * 1.05, run["terms"]
    assert [path.name for path in tmp_path.iterdir()] == ["session.json"], "the scans are removed"


@pytest.mark.parametrize("code, verified, left", [(1, 0, 1), (0, 1, 1), (0, 3, 1), (0, 0, -0.1)])
def test_a_session_that_does_not_hold_is_run_again_at_a_lower_rate(monkeypatch, tmp_path, code, verified, left):
    """A lost frame, a scan that is not good, and a verify that ends after the pause, each for itself."""
    session = bench_session(monkeypatch)
    options = types.SimpleNamespace(rate=16.0, step=0.5, least=3.0, scan_seconds=1, pause_seconds=1, scans=2, keep_scans=None)
    terms = {"terms": {"expected": 10, "written": 10}}

    def run(this):
        lossy = this.gbit > 4
        checked = {"code": verified if lossy else 0, "seconds": 0.1, "in_the_pause": left >= 0 or not lossy}
        return this.outcome(code if lossy else 0, [{"accounts": [terms]}] * 2, [checked] * 2, [])

    monkeypatch.setattr(session.Session, "run", run)
    monkeypatch.setattr(session, "room", lambda members: 1e12)
    runs = session.held(options, 8, [tmp_path])
    assert [(run["asked_gbit"], run["holds"]) for run in runs] == [(4.0, True), (8.0, False), (16.0, False)]
    assert [run["whole"] for run in runs] == [True] + [left < 0] * 2
    lines = session.table(runs).splitlines()[2:]
    assert ["holds" in line for line in lines] == [True, False, False]
    assert ["too slow for the pause" in line for line in lines] == [False] + [left < 0] * 2
    monkeypatch.setattr(session, "room", lambda members: 2e9)
    assert session.held(options, 8, [tmp_path])[-1]["asked_gbit"] == 8.0, "two scans must have room"


@pytest.mark.alone
def test_random_triggers_at_a_sustained_rate_keep_whole_scans(tmp_path):
    command = [sys.executable, REPOSITORY / "benches/circular.py", "--seconds", 4, "--triggers", 5, "--rate", 0.1]
    command += ["--where", "disks", "--fullbore", BINARY, "--directory", tmp_path, "--output", tmp_path / "result.json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE)
    (run,) = json.loads((tmp_path / "result.json").read_text())["runs"]
    assert done.returncode == 0 and run["holds"], (run, done.stderr)
    assert run["lost_frames"] == 0 and run["whole"] == run["triggers"] == 5 and run["pieces"] >= 4
    assert run["written_frames"] > 4 * 0.1e9 / 8 / 8032 and all(kept["bytes"] > 0 for kept in run["kept"])
