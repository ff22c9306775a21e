"""Benchmarks of the stages, their reports and comparisons, through the binary."""

import json
import os
import re
import signal
import subprocess
from datetime import datetime, timedelta, timezone

import jsonschema
import pytest
from fullbore import BINARY, FOUND, GOOD, REFUSED, REPOSITORY, free_ports, run

QUICK = ["--time", "20ms", "--runs", "2"]
SLOW_NET = [
    "--streams", "2", "--frame", "1032", "--from", "16Mbit/s", "--up-to", "32Mbit/s",
    "--trial", "300ms", "--confirm", "1", "--buffer", "64MiB",
]  # fmt: skip
DRIVE = REPOSITORY / "crates/survey/tests/data/drive.json"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A separate history."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def bench(*words, code=GOOD):
    """The document that a benchmark prints, which follows its schema."""
    done = run("bench", *words, "--json", code=code)
    told = json.loads(done.stdout)
    schema = json.loads((REPOSITORY / "docs/reference/bench.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(told)
    return told


def rates(told):
    return {stage["name"]: stage["rate"]["mean"] for stage in told["stages"]}


def test_memory_is_measured_on_one_thread_and_several():
    told = bench("memory", *QUICK, "--threads", "1,2")
    assert {(s["name"], s["threads"]) for s in told["stages"]} == {
        (name, threads)
        for name in ("copy", "crc32c", "pattern-make", "pattern-check")
        for threads in (1, 2)
    }
    assert all(stage["rate"]["mean"] > 1e6 and stage["rate"]["runs"] == 2 for stage in told["stages"])


def test_the_ring_tells_wake_ups():
    (stage,) = bench("ring", *QUICK)["stages"]
    assert stage["figures"]["wake_p50_ns"] <= stage["figures"]["wake_longest_ns"]
    assert stage["figures"]["blocks_per_s"] > 1000


@pytest.mark.alone
def test_loopback_is_searched_for_a_rate_without_loss():
    told = bench("net", *SLOW_NET)
    assert 5e5 < rates(told)["receive"] < 5e6
    assert told["notes"], "it says what ended the search"


@pytest.mark.alone
def test_another_process_serves_and_is_measured():
    command = [BINARY, "bench", "net", "--serve", "--once", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        address = re.fullmatch(r"listening on (\S+)\n", server.stdout.readline())[1]
        told = bench("net", address, *SLOW_NET)
        assert server.wait(20) == GOOD
    assert rates(told)["receive"] > 5e5
    assert told["targets"][0]["kind"] == "host"


def test_a_server_stops_when_it_is_told_to():
    command = [BINARY, "bench", "net", "--serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline().startswith("listening")
        server.send_signal(signal.SIGINT)
        assert server.wait(10) == GOOD


@pytest.mark.alone
@pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace")
def test_a_namespace_is_made_measured_and_taken_away():
    def namespaces():
        return subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout

    told = bench("net", "--namespace", *SLOW_NET)
    assert rates(told)["receive"] > 5e5
    assert "fullbore-bench" not in namespaces()


def test_nobody_there_is_told_with_what_to_do():
    done = run("bench", "net", "127.0.0.1:1", *SLOW_NET, code=REFUSED)
    assert b"--serve" in done.stderr


@pytest.mark.alone
def test_all_names_the_slowest_stage_and_leaves_nothing(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    page = tmp_path / "all.html"
    done = run("bench", "all", disk, *QUICK, *SLOW_NET, "--html", page, "--output", tmp_path / "all.json")
    stages = {stage["name"]: stage["rate"]["mean"] for stage in json.loads((tmp_path / "all.json").read_text())["stages"]}
    whole = stages.pop("path")
    slowest = min((name for name in stages if stages[name] > 0), key=stages.get)
    limited = whole >= 0.9 * stages[slowest]
    sentence = f"The slowest stage is {slowest}" if limited else "No stage alone limits the path"
    for told in (done.stdout.decode(), page.read_text()):
        assert sentence in told and (limited or "The slowest stage is" not in told)
    assert f"{slowest}: " in page.read_text()
    assert list(disk.iterdir()) == []
    assert "the path whole" in page.read_text()


def test_a_quick_measurement_of_all_is_one_short_run_of_each_stage(tmp_path):
    # The rate is limited, and memory is small; the rest are the defaults of --quick.
    small = ["--streams", "2", "--frame", "1032", "--from", "16Mbit/s", "--up-to", "32Mbit/s", "--buffer", "64MiB"]
    told = bench("all", tmp_path, "--quick", *small)
    assert {stage["name"] for stage in told["stages"]} >= {"copy", "receive", "path"}
    assert {stage["rate"]["runs"] for stage in told["stages"]} == {1}
    longer = bench("all", tmp_path, "--quick", *small, "--runs", "2", "--time", "20ms", "--no-history")
    assert {stage["rate"]["runs"] for stage in longer["stages"] if stage["name"] == "copy"} == {2}
    streams_that_cost_more_than_the_processor_has_are_told_while_arming(tmp_path)


def streams_that_cost_more_than_the_processor_has_are_told_while_arming(tmp_path):
    """16 streams of 100 Gbit/s, at the cost of a byte that the newest benchmark measured."""
    ports = free_ports(16)
    source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif&frame=8032&fps=1500000"
    options = ["--store", tmp_path, "--session", "fast", "--buffer", "512MiB"]
    soon = datetime.now(timezone.utc) + timedelta(seconds=2)
    schedule = tmp_path / "fast.csv"
    schedule.write_text(f"scan,start,duration\none,{soon:%Y-%m-%dT%H:%M:%S.%fZ},0.1\n")
    for how in (["--scan", "one", "--duration", "100ms"], ["--schedule", schedule, "--lead", "1s"]):
        told = run("record", source, *options, *how, code=None).stderr.decode()
        assert "frames will be lost: the streams need" in told, told


@pytest.mark.parametrize("rate, code, word", [("1kB/s", GOOD, "PASS"), ("900TB/s", FOUND, "FAIL")])
def test_a_rate_asked_for_decides_the_exit_code(rate, code, word):
    done = run("bench", "memory", *QUICK, "--threads", "1", "--require", rate, code=code)
    assert word in done.stdout.decode()


def test_a_report_is_one_file_that_needs_no_other(tmp_path):
    page = tmp_path / "drive.html"
    run("bench", "report", DRIVE, "--html", page)
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>") and "prefers-color-scheme: dark" in text
    assert not re.search(r"https?://|<script|<link|\ssrc=", text)
    assert text.count("<svg") == text.count("</svg>") > 8
    told = run("bench", "report", DRIVE).stdout.decode()
    for word in ("DOES NOT HOLD", "118 GB", "740 MB/s", "fio 3.33"):
        assert word in told, told


def test_what_is_no_result_is_refused(tmp_path):
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert b"not the result of a benchmark" in run("bench", "report", other, code=REFUSED).stderr
    run("bench", "report", tmp_path / "none.json", code=REFUSED)
    assert b"no result in the history" in run("bench", "report", code=REFUSED).stderr


def slower(told, path, factor):
    told = json.loads(json.dumps(told))
    for stage in told["stages"]:
        for name in ("mean", "least", "most", "deviation"):
            stage["rate"][name] *= factor
    path.write_text(json.dumps(told))
    return path


def test_worse_beyond_noise_and_threshold_is_exit_code_1(tmp_path):
    before = tmp_path / "before.json"
    told = bench("memory", *QUICK, "--threads", "1", "--output", before)
    for stage in told["stages"]:
        stage["rate"]["deviation"] = 0.001 * stage["rate"]["mean"]
    before.write_text(json.dumps(told))
    after = slower(told, tmp_path / "after.json", 0.8)
    done = run("bench", "compare", before, after, code=FOUND)
    assert "WORSE" in done.stdout.decode()
    run("bench", "compare", after, before)
    run("bench", "compare", before, after, "--threshold", "30")
    comparison = json.loads(run("bench", "compare", before, after, "--json", code=FOUND).stdout)
    assert comparison["worse"] and comparison["figures"][0]["change"] == pytest.approx(-0.2)


def test_the_history_keeps_results_and_compare_takes_the_last_two(home):
    run("bench", "ring", *QUICK, "--no-history")
    assert not list(home.rglob("*.json"))
    assert b"no two results" in run("bench", "compare", code=REFUSED).stderr
    for _ in range(2):
        run("bench", "ring", *QUICK)
    run("bench", "memory", *QUICK, "--threads", "1")
    assert len(list(home.rglob("*.json"))) == 3
    compared = json.loads(run("bench", "compare", "--threshold", "1000", "--json").stdout)
    assert [figure["name"] for figure in compared["figures"]][0].startswith("ring-handover")
    run("bench", "memory", *QUICK, "--threads", "1")
    compared = json.loads(run("bench", "compare", "--threshold", "1000", "--json").stdout)
    assert [figure["name"] for figure in compared["figures"]][0].startswith("copy")


def test_another_machine_is_said(tmp_path):
    told = json.loads(DRIVE.read_text())
    told["environment"]["cpu"] = "another processor"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(told))
    done = run("bench", "compare", DRIVE, other)
    assert "MIND: another processor" in done.stdout.decode()
