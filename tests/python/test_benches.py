"""What the benchmarks divide by is what was done."""

import json
import subprocess
import sys

from fullbore import BINARY, PATIENCE, REPOSITORY


def test_the_store_is_measured_by_what_was_recorded_not_by_what_was_sent(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(REPOSITORY / "benches"), *sys.path])
    from store import recorded_bytes

    streams = [{"bytes": 3}, {"bytes": 4}]
    events = [{"event": "armed"}, {"event": "sealed", "manifest": {"streams": streams}}]
    assert recorded_bytes(events) == 7


def test_the_soak_of_a_panda_samples_memory_and_tells_how_long_flushes_took(tmp_path):
    command = [sys.executable, REPOSITORY / "benches/panda_soak.py", "--seconds", 4, "--rate", 1e5]
    command += ["--acquisition-seconds", 1, "--fullbore", BINARY, "--directory", tmp_path, "--results", tmp_path]
    done = subprocess.run(map(str, command), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "panda_soak.json").read_text())
    assert told["acquisitions"] >= 3 and set(told["verdicts"]) == {"proven"} and not told["wrong_files"]
    assert len(told["memory_mb"]) >= 3 and told["samples"] >= 300_000
    assert sum(told["flushes_by_longest_us"].values()) >= told["acquisitions"]
    assert "flushes took" in done.stdout and not list(tmp_path.glob("soak-panda-*"))
