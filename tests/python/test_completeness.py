"""Every screen, JSON document and exit code states first whether a recording is complete: the uncovered part of the
plan, the losses, and then how well they are explained."""

import json
import re
import signal
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path

import jsonschema
import pytest
import wire
from disks import unmount
from fullbore import (
    BINARY, FOUND, GOOD, INCOMPLETE, PATIENCE, REPOSITORY, Recording, accounts, ask, free_port, free_ports, generate, run, text,
)  # fmt: skip

FPS = 1000
SMALL = ["--buffer", "64MiB"]


def utc(seconds):
    """A full second at least this far from now, and the time until it."""
    at = int(time.time() + seconds) + 1
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), at


def send(port, begin, seconds):
    """Sends in real time from an instant on: the frames' times are the host's."""
    time.sleep(max(0, begin - time.time()))
    run(
        "generate", "--to", f"udp://127.0.0.1:{port}", "--fps", FPS, "--frame", 1032, "--gentle",
        "--start", datetime.fromtimestamp(begin, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "--duration", f"{seconds}s", code=None,
    )  # fmt: skip


def source(port):
    return f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}"


def uncovered(told):
    """Seconds and frames of the plan that are not covered."""
    return told["uncovered"]["ns"] / 1e9, told["uncovered"]["frames"]


def test_a_scheduled_scan_that_is_short_of_data_is_not_complete(tmp_path, store):
    port, (start, at) = free_port(), utc(3)
    schedule = tmp_path / "s.csv"
    schedule.write_text(f"scan,start,duration\nno1,{start},4s\n")
    words = [BINARY, "record", source(port), "--store", store, "--session", "day", "--schedule", schedule, *SMALL]
    with subprocess.Popen([*words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as recorder:
        send(port, at + 2, 1)
        out, complaints = recorder.communicate(timeout=PATIENCE)
    assert recorder.returncode == FOUND, text(complaints)
    told = [json.loads(line) for line in out.splitlines()]
    sealed = next(event for event in told if event["event"] == "sealed")
    (account,) = accounts(sealed).values()
    assert account["terms"]["missing"] == 0 and account["verdict"] == "unexplained"
    recorded = account["terms"]["written"]
    (scan,) = told[-1]["scans"]
    for document in (sealed, scan):
        assert (document["complete"], document["completeness"]) == (False, "incomplete")
        seconds, frames = uncovered(document)
        # A busy machine may have received the first frames late: frames that are not recorded are not covered.
        assert frames == pytest.approx(4 * FPS - recorded, abs=300) and seconds == pytest.approx(frames / FPS, abs=0.1)
        assert re.match(r"INCOMPLETE: .* of the 4\.0 s planned are not covered \(\d+ frames\): ", document["headline"])
    for document in (ask("ls", "--store", store)[0], ask("verify", "day_no1", "--store", store, code=INCOMPLETE)):
        assert document["complete"] is False and uncovered(document) == uncovered(sealed)
    assert "INCOMPLETE, " in text(run("ls", "--store", store).stdout)
    assert text(run("info", "day_no1", "--store", store).stdout).startswith(sealed["headline"] + "   day_no1 ")


def test_the_table_of_a_session_says_which_scan_is_not_complete(tmp_path, store):
    port, (start, _) = free_port(), utc(2)
    schedule = tmp_path / "s.csv"
    schedule.write_text(f"scan,start,duration\nno1,{start},1s\n")
    words = ["record", source(port), "--store", store, "--session", "day", "--schedule", schedule, *SMALL, "--quiet"]
    told = text(run(*words, code=FOUND).stdout)
    (row,) = [line for line in told.splitlines() if line.startswith("no1 ")]
    assert row.endswith("INCOMPLETE, 1.0 s not covered (1000 frames), unexplained"), told
    headline = f"INCOMPLETE: nothing was recorded; stream {port} never delivered a frame; 1.0 s of the 1.0 s planned"
    assert told.lstrip().startswith(f"{headline} are not covered (1000 frames)"), told


@pytest.mark.parametrize("lasts, code", [(6, GOOD), (2, FOUND)], ids=["covered", "ended early"])
def test_a_start_and_a_duration_are_a_plan(lasts, code, store):
    port, (start, at) = free_port(), utc(2)
    with Recording(source(port), store=store, options=["--start", start, "--duration", "4s", *SMALL]) as recording:
        send(port, at - 1, lasts)
        sealed = recording.sealed(code)
    assert sealed["planned"]["begin"].startswith(start[:19])
    if code == GOOD:
        assert sealed["complete"] and sealed["headline"].endswith("the 4.0 s planned"), sealed["headline"]
        assert "uncovered" not in sealed
    else:
        seconds, frames = uncovered(sealed)
        assert frames == pytest.approx(3 * FPS, abs=300) and seconds == pytest.approx(3, abs=0.3)
        (early,) = re.findall(r"it ended ([\d.]+) s early", sealed["headline"])
        assert float(early) == pytest.approx(seconds, abs=0.06), sealed["headline"]


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["words", "json"])
def test_a_planned_scan_that_was_over_before_it_could_begin_is_missed(form, store, tmp_path):
    begin = time.time() + 3
    start = datetime.fromtimestamp(begin, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    scan = ["--store", store, "--session", "t", "--scan", "a", "--start", start, "--duration", "0.2s", *SMALL, *form]
    said = tmp_path / "said"
    with said.open("w") as out:
        command = [BINARY, "record", source(free_port()), *scan]
        recorder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        while "armed" not in said.read_text():
            assert recorder.poll() is None and time.time() < begin, said.read_text()
            time.sleep(0.02)
        # The host is stopped for as long as the scan was to last.
        recorder.send_signal(signal.SIGSTOP)
        time.sleep(max(0, begin + 0.3 - time.time()))
        recorder.send_signal(signal.SIGCONT)
        assert recorder.wait(PATIENCE) == FOUND, said.read_text()
    finally:
        recorder.kill()
    if form:
        told = [json.loads(line) for line in said.read_text().splitlines()]
        (missed,) = [it for it in told if it["event"] == "missed"]
        assert missed["scan"] == {"session": "t", "scan": "a"} and missed["start"] < missed["end"]
    else:
        assert "MISSED t_a: it was over at " in said.read_text()
    assert not list(Path(store).glob("t_a*"))


def test_without_a_plan_it_is_said_what_was_covered(store):
    port = free_port()
    with Recording(source(port), store=store, options=["--duration", "3s", *SMALL]) as recording:
        generate(port, fps=FPS, frame=1032, duration="1s", gentle=True)
        sealed = recording.sealed(GOOD)
    assert sealed["headline"] == "COMPLETE: all 1000 frames, 1.0 s"
    assert "planned" not in sealed and "planned" not in sealed["manifest"]
    assert sealed["covered"]["from"] < sealed["covered"]["to"]


def test_a_plan_that_cannot_be_is_refused(store):
    words = ["record", source(free_port()), "--store", store, "--session", "s", "--scan", "a"]
    for options, why in [
        (["--start", "2001-01-01T00:00:00"], "is past"),
        (["--start", "2099-01-02T00:00:00", "--until", "2099-01-01T00:00:00"], "--until is before --start"),
    ]:
        assert why in text(run(*words, *options, code=2).stderr)


@pytest.fixture
def small_store(tmp_path):
    """A directory in memory that holds 40 MB."""
    mounted = tmp_path / "full"
    mounted.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", mounted], capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"no file system of its own here: {text(done.stderr).strip()}")
    yield mounted
    unmount(mounted)


def test_a_full_disk_is_told_as_a_loss_by_everyone(small_store):
    """A scan lost 67 %, and was shown as *no frame is missing* and *is good*."""
    port = free_port()
    query = f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}"
    with Recording(query, store=small_store, options=SMALL) as recording:
        wire.send(wire.run_of_frames(60_000), port)
        sealed = recording.stop(FOUND)
    (account,) = accounts(sealed).values()
    lost = account["terms"]["overrun"]
    assert lost > 0 and account["verdict"] in ("consistent", "unexplained")
    headline = sealed["headline"]
    assert headline.startswith("LOST ") and "the disk is full" in headline and sealed["lost"] >= lost, headline
    listed = text(run("ls", "--store", small_store).stdout)
    assert re.search(r"LOST \d[\d ]* \(\d+ %\)", listed), listed
    told = text(run("verify", recording.scan, "--store", small_store, code=INCOMPLETE).stdout)
    assert told.startswith(f"{headline}   {recording.scan} intact: "), told
    assert "is good" not in told and "1 blocks" not in told and "1 streams" not in told
    shown = text(run("info", recording.scan, "--store", small_store).stdout)
    assert shown.startswith(f"{headline}   {recording.scan} sealed, "), shown
    (entry,) = ask("ls", "--store", small_store)
    assert entry["headline"] == headline and entry["complete"] is False and entry["lost"] == sealed["lost"]


def test_the_account_of_a_recording_begins_with_what_was_lost_and_says_where(store):
    ports = free_ports(2)
    words = ["record", f"udp://127.0.0.1:{ports[0]}-{ports[1]}?format=vdif&fps={FPS}", "--store", store]
    words = [BINARY, *map(str, words), "--session", "test", "--scan", "one", "--duration", "3s", *SMALL]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as recorder:
        line = next(line for line in recorder.stderr if line.startswith(b"armed "))
        assert line
        frames = wire.run_of_frames(1000)
        wire.send(frames, ports[0])
        wire.send((frame for n, frame in enumerate(frames) if n not in (300, 301, 700)), ports[1])
        out, _ = recorder.communicate(timeout=PATIENCE)
    assert recorder.returncode == FOUND
    told = out.decode().lstrip().splitlines()
    headline = "LOST 3 of 2000 frames (0.15 %) in 1 of 2 streams: lost before they reached this host"
    assert told[0].startswith(f"{headline}   test_one sealed, ")
    assert any(line.startswith("  unexplained: 3 frames were lost before this host") for line in told)
    (lossy,) = [n for n, line in enumerate(told) if line.startswith(f"  {ports[1]}  LOST 3 of 1000 frames")]
    (complete,) = [n for n, line in enumerate(told) if line == f"  1 stream complete: {ports[0]}, 1000 frames"]
    assert lossy < complete, "the stream that lost something comes first"
    assert len(re.findall(r"\d+–\d+ at |, \d+ at ", told[lossy])) == 2 and "; missing " in told[lossy], told


def test_each_missing_frame_has_the_cause_that_a_counter_shows(store):
    port = free_port()
    frames = wire.run_of_frames(2500, fps=5000)
    endpoint = f"udp://127.0.0.1:{port}?format=vdif&fps=5000&rcvbuf=256KiB"
    with Recording(endpoint, store=store, options=SMALL) as recording:
        wire.send(frames[:200], port, pause=5e-4)
        recording.wait("progress", lambda told: told["streams"][0]["frames"] == 200)
        # 200 are not sent, and then enough to overflow the socket of a stopped recorder.
        recording.process.send_signal(signal.SIGSTOP)
        wire.send(frames[400:2000], port)
        recording.process.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        wire.send(frames[2000:], port, pause=5e-4)
        sealed = recording.stop(FOUND)
    (account,) = sealed["accounts"]
    missing = account["terms"]["missing"]
    assert (account["verdict"], account["explained"]) == ("unexplained", missing - 200)
    assert missing > 200, "its socket has to overflow"
    said = [it.replace("\N{NO-BREAK SPACE}", " ") for it in (sealed["headline"], sealed["explanation"])]
    assert "200 lost before they reached this host" in said[0] and "dropped by this host before" in said[0], said
    assert "200 frames were lost before this host" in said[1], said
    assert ask("ls", "--store", store)[0]["headline"] == sealed["headline"]


def test_verify_sums_up_what_lies_on_a_member_that_is_not_attached(stores):
    port = free_port()
    query = f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}&block=64KiB"
    with Recording(query, store=stores, options=["--chunk", "64KiB", *SMALL]) as recording:
        wire.send(wire.run_of_frames(2000), port)
        recording.stop(GOOD)
    left = ",".join(map(str, stores[1:]))
    told = text(run("verify", recording.scan, "--store", left, code=FOUND).stdout)
    first, recorded, *rest = told.splitlines()
    assert re.match(r"NOT ALL HERE: 1 member is not attached; \d+ of 2000 frames recorded cannot be read   ", first)
    assert recorded == "  recorded as: COMPLETE: all 2000 frames, 2.0 s"
    findings = [line for line in rest if line.startswith("! ")]
    on = rf"! \d+ of \d+ blocks \(\d+ frames\) are on {stores[0]}, which is not attached"
    assert len(findings) == 2 and re.fullmatch(on, findings[0]) and "--verbose" in findings[1], findings
    every = text(run("verify", recording.scan, "--verbose", "--store", left, code=FOUND).stdout)
    assert len([line for line in every.splitlines() if line.startswith("! ")]) > 4, every
    assert "none of the given members holds" in every and "nowhere" not in every


def test_an_account_of_before_reads_and_verifies(store):
    """Manifests of earlier versions contain neither the plan nor the counts beside the balance."""
    port = free_port()
    with Recording(source(port), store=store, options=SMALL) as recording:
        wire.send((frame for n, frame in enumerate(wire.run_of_frames(500)) if n != 99), port)
        recording.stop(FOUND)
    (path,) = store.glob(f"{recording.scan}*/.fullbore/manifest.json")
    manifest = json.loads(path.read_text())
    for stream in manifest["streams"]:
        del stream["account"]["beside"]
    path.write_text(json.dumps(manifest))
    schema = json.loads((REPOSITORY / "docs/reference/manifest.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(manifest)
    (entry,) = ask("ls", "--store", store)
    assert (entry["completeness"], entry["lost"]) == ("lost", 1)
    told = ask("verify", recording.scan, "--store", store, code=INCOMPLETE)
    assert told["good"] and told["findings"] == []


def test_what_is_set_aside_is_not_told_as_recorded(store):
    port = free_port()
    with Recording(source(port), store=store, options=SMALL) as recording:
        wire.send(wire.run_of_frames(5000), port)
        recording.wait("progress", lambda told: told["durable_bytes"] > 0)
        told = text(run("info", recording.scan, "--store", store).stdout)
        assert re.search(r"has been recorded for \S+ s: \S+ \S+ durable, ", told), told
        assert re.search(r"^  \S+ \S+ of disk space set aside$", told, re.MULTILINE), told


def test_directory_that_is_no_member_of_the_scan_does_not_count_against_it(tmp_path, store):
    run("record", "pattern:prbs31?bytes=1MiB", "--store", store, "--session", "a", "--scan", "b")
    done = run("verify", "a_b", "--store", f"{store},{tmp_path / 'nowhere'}", code=GOOD)
    assert "NOT INTACT" not in text(done.stdout) and "nowhere: No such file" in text(done.stderr)
