"""A drive without a file system: addresses, stop and abort, the scan index, and the overwrite guard.

Every test runs on a file; with root and loop devices also on a block device.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from datetime import datetime, timezone

import pytest
from disks import unmount
from fullbore import (
    BINARY,
    FOUND,
    GOOD,
    INCOMPLETE,
    INTACT,
    PATIENCE,
    REFUSED,
    Recording,
    ask,
    free_port,
    free_ports,
    generate,
    run,
    text,
)
from wire import run_of_frames, send

CHUNK = 128 << 10
MEDIA = 96 << 20
OLD = b"\xa5"
SMALL = ["--buffer", "64MiB"]

root = pytest.mark.skipif(os.geteuid() != 0, reason="loop devices need root")


def image_in(directory, size=MEDIA, fill=OLD):
    image = directory / "disk.img"
    with image.open("wb") as file:
        for _ in range(size >> 20):
            file.write(fill * (1 << 20))
    return image


@pytest.fixture
def loop(tmp_path):
    """A loop device of a file, and the file."""
    image = image_in(tmp_path)
    done = subprocess.run(
        ["losetup", "--find", "--show", "--direct-io=on", image], capture_output=True
    )
    if done.returncode:
        pytest.skip(f"no loop device here: {text(done.stderr)}")
    device = done.stdout.decode().strip()
    yield device
    subprocess.run(["losetup", "--detach", device], check=True)


@pytest.fixture(params=["file", pytest.param("loop", marks=root)])
def device(request, tmp_path):
    """A path for recording, full of old bytes."""
    return request.getfixturevalue("loop") if request.param == "loop" else image_in(tmp_path)


def content(device):
    """The content, as another program reads it."""
    return subprocess.run(["dd", f"if={device}", "bs=1M"], check=True, capture_output=True).stdout


def end(device, **parameters):
    joined = "&".join(f"{name}={value}" for name, value in parameters.items())
    return f"device:{device}" + (f"?{joined}" if joined else "")


def result(events):
    """What is told of the only device of a recording, with the account of its stream."""
    if events[-1]["event"] != "sealed":
        return events[-1]
    (device,), accounts = events[-1]["devices"], events[-1]["accounts"]
    return device | {"account": accounts[0]}


class Onto(Recording):
    """A running `fullbore record … --to device:…`."""

    def __init__(self, source, to, *options, stdin=subprocess.DEVNULL):
        self.env = None
        self.command = [BINARY, "record", source, "--to", to, "--json", *map(str, options)]
        self.events, self._news, self._ended = [], threading.Condition(), False
        self.stdin = stdin

    def ended(self, code=GOOD):
        self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join()
        allowed = (GOOD, FOUND) if code is None else (code,)
        assert self.process.returncode in allowed, text(bytes(self._complaints))
        return result(self.events)

    def stop(self, code=GOOD):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.ended(code)

    def abort(self, code=FOUND):
        # Both at once: a stop alone may have ended it before a second signal arrives.
        for one in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            self.process.send_signal(one)
        return self.ended(code)


def record(source, to, *options, code=GOOD, given=None):
    done = subprocess.run(
        [BINARY, "record", source, "--to", to, "--json", *map(str, options)],
        capture_output=True,
        timeout=PATIENCE,
        input=given,
        stdin=None if given is not None else subprocess.DEVNULL,
    )
    assert done.returncode == code, f"{done.returncode}\n{text(done.stdout)}\n{text(done.stderr)}"
    events = [json.loads(line) for line in done.stdout.splitlines()]
    ended = any(event["event"] in ("sealed", "refused") for event in events)
    return result(events) if ended else text(done.stderr)


@pytest.mark.parametrize(
    ("first", "last", "error"),
    [
        ("512", None, "address-unaligned"),
        (None, "0x20001", "address-unaligned"),
        ("0x40000", "0x20000", "address-first-greater-than-last"),
        (None, hex(MEDIA), "address-range-greater-than-media"),
        (hex(MEDIA), None, "address-range-greater-than-media"),
        (None, "99999999999999999999", "address-range-greater-than-media"),
        ("0x10000000000000000", None, "address-range-greater-than-media"),
    ],
)
def test_every_wrong_address_is_refused_by_its_name_for_writing_and_for_reading(
    first, last, error, device
):
    given = {name: value for name, value in [("first", first), ("last", last)] if value}
    told = record("pattern:prbs31", end(device, **given), code=REFUSED)
    assert (told["event"], told["status"]["error"]) == ("refused", error)
    reading = end(device, **given, pattern="prbs31")
    told = json.loads(run("verify", reading, "--json", code=REFUSED).stdout)
    assert (told["status"]["direction"], told["status"]["error"]) == ("read", error)
    assert set(content(device)) == set(OLD), "nothing was written"


@pytest.mark.parametrize(
    ("chunk", "error"),
    [("4097", "chunk-size"), ("2GiB", "chunk-size"), ("1GiB", "media-smaller-than-chunk")],
)
def test_every_wrong_chunk_is_refused_by_its_name(chunk, error, device):
    told = record("pattern:prbs31", end(device, chunk=chunk), code=REFUSED)
    assert (told["event"], told["status"]["error"]) == ("refused", error)
    told = json.loads(
        run("verify", end(device, chunk=chunk, pattern="prbs31"), "--json", code=REFUSED).stdout
    )
    assert told["status"]["error"] == error
    refused = run("record", "pattern:prbs31", "--to", end(device, chunk=chunk), code=REFUSED)
    assert error.replace("-", " ") in text(refused.stderr)
    assert set(content(device)) == set(OLD), "nothing was written"


def test_a_file_is_not_made_for_chunks_that_cannot_be(tmp_path):
    path = tmp_path / "new"
    for name in ({}, {"scan": "r1_a"}):
        told = record("pattern:prbs31", end(path, size="4MiB", chunk="4097", **name), code=REFUSED)
        assert told["status"]["error"] == "chunk-size"
    assert not path.exists()


def test_a_session_as_long_as_its_source_ends_with_it_and_one_of_nothing_is_told(device):
    whole = record("-", end(device), given=b"x" * 1000)
    assert (whole["status"]["words"], whole["early"], whole["bytes"]) == (["finished"], False, 1000)
    less = record("-", end(device), "--bytes", "2KiB", "--overwrite", device, code=FOUND, given=b"x")
    assert (less["status"]["words"], less["early"]) == (["finished", "early-end"], True)
    none = record("-", end(device), "--overwrite", device, code=FOUND, given=b"")
    assert (none["status"]["words"], none["bytes"]) == (["finished"], 0)
    scan = record("-", end(device), "--session=r1", "--scan=a", "--overwrite", device, given=b"x" * 9)
    assert (scan["status"]["words"], scan["early"]) == (["finished"], False)


def test_a_session_touches_its_chunks_and_nothing_else(device):
    first, last = 3 * CHUNK, 200 * CHUNK
    before = content(device)
    told = record("pattern:prbs31", end(device, first=hex(first), last=hex(last)))
    assert told["status"]["words"] == ["finished"]
    assert told["status"]["captured_last"] == last
    after = content(device)
    behind = last + CHUNK
    assert after[:first] == before[:first] and after[behind:] == before[behind:]
    assert OLD * CHUNK not in after[first:behind]
    good = ask("verify", end(device, first=hex(first), last=hex(last), pattern="prbs31"))
    assert good["good"] and good["status"]["words"] == ["finished"]
    other = ask("verify", end(device, first=hex(first), last=hex(last), pattern="prbs23"), code=FOUND)
    assert other["findings"][0]["address"] in range(first, first + 16)


def test_sessions_at_neighbouring_addresses_in_any_order_leave_one_another_alone(device):
    """Like the seventh test of the hardware recorders."""
    record("pattern:counter", end(device, first=0, last=hex(15 * CHUNK)))
    sessions = [(10, "prbs7"), (2, "prbs15"), (6, "prbs23")]
    for chunk, name in sessions:
        place = end(device, first=hex(chunk * CHUNK), last=hex((chunk + 3) * CHUNK))
        record(f"pattern:{name}", place, "--overwrite", device)
    for chunk, name in reversed(sessions):
        place = dict(first=hex(chunk * CHUNK), last=hex((chunk + 3) * CHUNK))
        assert ask("verify", end(device, **place, pattern=name))["good"]
    assert ask("verify", end(device, first=0, last=hex(CHUNK), pattern="counter"))["good"]


def test_a_pipe_that_ends_early_is_told_and_its_bytes_lie_plain(device):
    given = os.urandom(5 * CHUNK + 1234)
    told = record("-", end(device, first=0, last=hex(63 * CHUNK)), code=FOUND, given=given)
    assert told["status"]["words"] == ["finished", "early-end"]
    assert (told["bytes"], told["status"]["captured_last"]) == (len(given), 5 * CHUNK)
    after = content(device)
    assert after[: len(given)] == given
    assert set(after[6 * CHUNK :]) == set(OLD)
    cat = run("cat", end(device, first=hex(CHUNK), last=hex(2 * CHUNK))).stdout
    assert cat == given[CHUNK : 3 * CHUNK]


def test_leftover_input_is_flushed_so_that_the_sender_can_end(device):
    given = os.urandom(40 * CHUNK)
    place = end(device, first=0, last=0)
    told = record("-", place, "--flush", given=given)
    assert told["status"]["words"] == ["finished", "flush-finished"]
    assert told["status"]["flushed_bytes"] == 39 * CHUNK
    assert content(device)[:CHUNK] == given[:CHUNK]


def check_that_all_up_to_the_captured_address_is_new(device, status, after):
    last, written = status["captured_last"], status["bytes"]
    assert last == (written - 1) // CHUNK * CHUNK < MEDIA - CHUNK, "it ran to its end"
    whole = written // CHUNK * CHUNK
    assert ask("verify", end(device, first=0, last=hex(whole - CHUNK), pattern="prbs31"))["good"]
    page = -(-written // 4096) * 4096
    assert set(after[written:page]) <= {0} and set(after[page:]) == set(OLD)
    found = ask("verify", end(device, first=0, last=hex(last + CHUNK), pattern="prbs31"), code=FOUND)
    assert found["findings"][0]["address"] >= written
    assert found["findings"][0]["chunk"] == whole, "the first chunk that is not wholly new"


def test_after_a_stop_all_up_to_the_captured_address_is_new(device):
    """Like the sixth test of the hardware recorders."""
    place = end(device, first=0, last=hex(MEDIA - CHUNK), block="256KiB")
    with Onto("pattern:prbs31?bytes=1GiB&rate=10MB/s", place) as recording:
        recording.wait("progress", lambda told: told["bytes"] > 4 * CHUNK)
        status = recording.stop()["status"]
    assert status["words"] == ["finished", "stopped"]
    check_that_all_up_to_the_captured_address_is_new(device, status, content(device))


@pytest.fixture(params=["file", "loop"])
def slow_disk(request, obedient_disk):
    """A disk with writes so slow that a stop has not ended before an abort arrives."""
    disk = obedient_disk(MEDIA, with_loop=request.param == "loop")
    disk.image.write_bytes(OLD * MEDIA)
    disk.tell("delay 0.1")
    return disk


def test_after_an_abort_all_up_to_the_captured_address_is_new(slow_disk):
    """Like the fifth test of the hardware recorders."""
    device = slow_disk.loop or slow_disk.file
    place = end(device, first=0, last=hex(MEDIA - CHUNK), block="256KiB")
    with Onto("pattern:prbs31?bytes=1GiB&rate=10MB/s", place) as recording:
        recording.wait("progress", lambda told: told["bytes"] > 4 * CHUNK)
        status = recording.abort()["status"]
    assert status["words"] == ["finished", "aborted", "flush-finished"]
    slow_disk.tell("delay 0")
    check_that_all_up_to_the_captured_address_is_new(device, status, slow_disk.image.read_bytes())


def test_an_aborted_scan_is_in_the_index_as_far_as_its_captured_address(device):
    source = "pattern:prbs31?bytes=80MiB&rate=20MB/s"
    # Two signals may still be so far apart that the first has ended it: then the test repeats.
    for _ in range(10):
        with Onto(source, end(device, scan="r1_a", block="256KiB")) as recording:
            recording.wait("progress", lambda told: told["bytes"] > 4 * CHUNK)
            told = recording.abort(code=None)
        if told["scan"]["state"] == "aborted":
            break
        run("rm", "--yes", end(device, scan="r1_a"))
    status, (entry,) = told["status"], ask("ls", end(device))["scans"]
    assert told["scan"].items() <= entry.items(), "what was told is what the index says"
    assert (entry["state"], entry["ending"]) == ("aborted", "aborted")
    assert entry["bytes"] == status["bytes"] and status["bytes"] + status["dropped_bytes"] > 4 * CHUNK
    last = entry["first"] + (entry["bytes"] - 1) // CHUNK * CHUNK
    assert (status["captured_last"], entry["limit"]) == (last, last)
    assert ask("info", end(device, scan="r1_a"))["scans"][0]["last"] == last
    assert entry["lost"] == status["dropped_bytes"]
    run("verify", end(device, scan="r1_a"), code=INCOMPLETE if entry["lost"] else GOOD)


def test_info_tells_what_the_index_knows_and_protect_takes_no_device(device):
    record("pattern:prbs31?bytes=1000000", end(device, scan="r1_a"))
    record("pattern:counter?bytes=3MiB", end(device, scan="r1_b", block="1MiB"))
    listed = {"_".join(scan["name"].values()): scan for scan in ask("ls", end(device))["scans"]}
    told = ask("info", end(device, scan="r1_b"))
    (scan,) = told["scans"]
    assert {key: scan[key] for key in listed["r1_b"]} == listed["r1_b"]
    assert scan["last"] == scan["first"] + (3 << 20) - CHUNK
    assert (told["bytes"], told["chunk_bytes"], told["damage"]) == (MEDIA, CHUNK, None)
    assert [len(ask("info", end(device))["scans"]), len(listed)] == [2, 2]
    words = text(run("info", end(device, scan="r1_a")).stdout)
    for word in ("r1_a is sealed", "ended: complete", f"first {listed['r1_a']['first']:#x}", listed["r1_a"]["uuid"], "pattern:prbs31"):
        assert word in words, (word, words)
    assert "r1_b" in text(run("info", end(device, scan="r1_none"), code=REFUSED).stderr)
    assert "no index" in text(run("info", end(device, first=0), code=REFUSED).stderr)
    refused = text(run("protect", end(device, scan="r1_a"), code=REFUSED).stderr)
    assert "does not take devices" in refused and "no scan" not in refused


def test_scans_are_listed_verified_exported_and_removed(device, tmp_path):
    made = {}
    for number, size in enumerate([5_000_000, 1, 3 << 20]):
        made[f"r1_no{number}"] = os.urandom(size)
        record("-", end(device), "--session", "r1", "--scan", f"no{number}", given=made[f"r1_no{number}"])
    listed = ask("ls", end(device))
    names = ["_".join(scan["name"].values()) for scan in listed["scans"]]
    assert names == list(made)
    assert {scan["state"] for scan in listed["scans"]} == {"sealed"}
    run("verify", end(device), code=GOOD)
    for scan, name in zip(listed["scans"], names, strict=True):
        assert run("cat", end(device, scan=name)).stdout == made[name]
        dd = ["dd", f"if={device}", "iflag=skip_bytes,count_bytes,fullblock", "bs=1M"]
        dd += [f"skip={scan['first']}", f"count={scan['bytes']}"]
        plain = subprocess.run(dd, check=True, capture_output=True).stdout
        assert plain == made[name], "another program reads it"
    out = tmp_path / "out.bin"
    run("convert", end(device, scan=names[0]), f"file:{out}")
    assert out.read_bytes() == made[names[0]]
    again = record("-", end(device, scan=names[0]), code=REFUSED, given=b"x")
    assert "there already" in again
    run("rm", end(device, scan=names[1]), "--yes")
    assert len(ask("ls", end(device))["scans"]) == 2
    missing = run("cat", end(device, scan=names[1]), code=REFUSED)
    assert names[0] in text(missing.stderr), "those that are there are named"


def test_a_flipped_byte_is_found_and_its_block_named(device):
    record("pattern:prbs31?bytes=6MiB", end(device, scan="r1_a", block="1MiB"))
    first = ask("ls", end(device))["scans"][0]["first"]
    place = first + (3 << 20) + 5
    with open(device, "r+b") as file:
        file.seek(place)
        byte = file.read(1)
        file.seek(place)
        file.write(bytes([byte[0] ^ 1]))
        file.flush()
        os.fsync(file.fileno())
    told = ask("verify", end(device, scan="r1_a"), code=FOUND)
    (finding,) = told["findings"]
    assert (finding["what"], finding["number"]) == ("block", 3)
    assert finding["address"] == first + (3 << 20)
    assert "data-error" in told["status"]["words"]
    cut = run("cat", end(device, scan="r1_a"), code=FOUND)
    assert len(cut.stdout) == 3 << 20
    whole = run("cat", end(device, scan="r1_a"), "--allow-damaged", code=FOUND)
    assert len(whole.stdout) == 6 << 20


def test_a_scan_killed_at_any_moment_is_recovered_up_to_its_durable_mark(device):
    record("pattern:counter?bytes=1MiB", end(device, scan="r1_before"))
    to = end(device, scan="r1_killed", block="256KiB")
    with Onto("pattern:prbs31?rate=10MB/s", to, "--sync", "20ms") as recording:
        last = recording.wait("progress", lambda told: told["durable_bytes"] > 1 << 20)
        recording.process.kill()
        recording.process.wait(PATIENCE)
    states = {scan["name"]["scan"]: scan["state"] for scan in ask("ls", end(device))["scans"]}
    assert states == {"before": "sealed", "killed": "recording"}
    run("verify", end(device, scan="r1_killed"), code=REFUSED)
    (told,) = ask("recover", end(device))
    assert told["scan"]["bytes"] >= last["durable_bytes"]
    assert told["scan"]["state"] == "recovered"
    run("verify", end(device), code=GOOD)
    kept = run("cat", end(device, scan="r1_killed")).stdout
    first = told["scan"]["first"]
    whole = len(kept) // CHUNK * CHUNK
    place = end(device, first=hex(first), last=hex(first + whole - CHUNK), pattern="prbs31")
    assert ask("verify", place)["good"]
    assert ask("recover", end(device)) == []
    record("pattern:prbs31?bytes=1MiB", end(device, scan="r1_after"))


def test_frames_from_the_network_are_recorded_and_played_with_their_account(device, store):
    port = free_port()
    options = ["--session", "r1", "--scan", "no0001"]
    frames = 6000
    with Onto(f"udp://127.0.0.1:{port}?format=vdif", end(device), *options) as recording:
        generate(port, frame=8032, fps=4000, frames=frames, seed=3)
        recording.wait("progress", lambda told: told["bytes"] > 0)
        told = recording.stop()
    terms = told["account"]["terms"]
    assert (terms["expected"], terms["written"]) == (frames, frames)
    assert told["account"]["verdict"] in ("proven", "consistent")
    scan = told["scan"]
    assert (scan["frame_bytes"], scan["frames_per_second"]) == (8032, 4000)
    assert scan["bytes"] == frames * 8032
    run("verify", end(device), code=GOOD)
    recorded = run("cat", end(device, scan="r1_no0001")).stdout
    assert len(recorded) == frames * 8032
    with Recording(f"udp://127.0.0.1:{port}?format=vdif", store=store) as again:
        done = run(
            "play", end(device, scan="r1_no0001"), "--to", f"udp://127.0.0.1:{port}", "--gentle", code=None
        )
        assert done.returncode in (GOOD, FOUND), text(done.stderr)
        again.wait("progress", lambda told: told["bytes"] >= frames * 8032)
        again.stop()
    assert hashlib.sha256(again.on_disk().bytes()).digest() == hashlib.sha256(recorded).digest()


def test_what_was_not_kept_is_remembered_by_the_index(tmp_path):
    device, port = image_in(tmp_path), free_port()
    early, late = run_of_frames(500), run_of_frames(300, thread=1)
    with Onto(f"udp://127.0.0.1:{port}?format=vdif&fps=1000", end(device, scan="r1_a")) as recording:
        send(early[:200], port)
        recording.wait("progress", lambda told: told["seconds"] > 0.5)
        send([it for pair in zip(early[200:], late) for it in pair], port)
        told = recording.stop(FOUND)
    assert (told["account"]["terms"]["written"], told["account"]["unrecorded"]) == (500, 300)
    for verb, code in [("ls", GOOD), ("info", GOOD), ("verify", INCOMPLETE)]:
        known = ask(verb, end(device) if verb == "ls" else end(device, scan="r1_a"), code=code)
        known = known["scans"][0] if "scans" in known else known
        assert (known["completeness"], known["not_kept"]) == ("incomplete", 300), (verb, known)
        assert "300 frames came and were not kept" in known["headline"]
    told = text(run("convert", end(device, scan="r1_a"), f"file:{tmp_path / 'a.vdif'}").stdout)
    assert told.startswith(f"r1_a: {known['headline']}\n  {known['explanation']}\n"), told
    given = ask("convert", end(device, scan="r1_a"), f"file:{tmp_path / 'b.vdif'}")
    assert (given["completeness"], given["headline"]) == ("incomplete", known["headline"])


def soon(seconds):
    """A full second at least this far from now, as the options have it, and the time until it."""
    at = int(time.time() + seconds) + 1
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), at


def send_from(port, begin, seconds):
    """Sends 1000 frames a second in real time from an instant on: the frames' times are the host's."""
    start = datetime.fromtimestamp(begin, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    time.sleep(max(0, begin - time.time()))
    to = ["--to", f"udp://127.0.0.1:{port}", "--fps", 1000, "--frame", 1032, "--gentle"]
    run("generate", *to, "--start", start, "--duration", f"{seconds}s", code=None)


JUDGEMENT = ("complete", "completeness", "headline", "explanation", "lost", "planned", "uncovered", "covered")


def judgement(told):
    return {key: told.get(key) for key in JUDGEMENT}


def known_of(device, scan, code):
    """What ls, info and verify say of a scan."""
    documents = [ask("ls", end(device))["scans"], ask("info", end(device, scan=scan))["scans"]]
    return [known[0] for known in documents] + [ask("verify", end(device, scan=scan), code=code)]


@pytest.mark.parametrize(
    "lasts, recorded, verified", [(6, GOOD, GOOD), (2, FOUND, INCOMPLETE)], ids=["covered", "ended early"]
)
def test_the_plan_and_what_of_it_is_not_covered_are_remembered_by_the_index(lasts, recorded, verified, device):
    port, (start, at) = free_port(), soon(2)
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000"
    options = ["--start", start, "--duration", "4s", *SMALL]
    with Onto(source, end(device, scan="r1_a"), *options) as recording:
        send_from(port, at - 1, lasts)
        recording.ended(recorded)
    sealed = recording.events[-1]
    if recorded == FOUND:
        assert sealed["completeness"] == "incomplete"
        # A busy machine may send later than it should, and so cover more.
        assert sealed["uncovered"]["ns"] > 1e9 and "ended" in sealed["headline"], sealed["headline"]
        assert "of the 4.0 s planned are not covered" in sealed["headline"]
        assert "INCOMPLETE, " in text(run("ls", end(device)).stdout)
    for known in known_of(device, "r1_a", verified):
        assert judgement(known) == judgement(sealed)
    for words, code in [("info", GOOD), ("verify", verified)]:
        assert sealed["headline"] in text(run(words, end(device, scan="r1_a"), code=code).stdout)
    assert f"planned   {start[:19]}.000" in text(run("info", end(device, scan="r1_a")).stdout)


def test_a_planned_scan_without_data_is_incomplete_on_a_device(tmp_path):
    device, (start, _) = image_in(tmp_path), soon(2)
    source = f"udp://127.0.0.1:{free_port()}?format=vdif&fps=1000"
    told = record(source, end(device, scan="r1_a"), "--start", start, "--duration", "1s", *SMALL, code=FOUND)
    assert [it["what"] for it in told["account"]["presence"]] == ["never-came", "lacks-beginning"]
    for known in known_of(device, "r1_a", INCOMPLETE):
        assert "never delivered a frame" in known["headline"] and known["uncovered"]["frames"] == 1000


def test_bytes_that_end_before_the_plan_are_incomplete_on_a_device(tmp_path):
    device, (start, _) = image_in(tmp_path), soon(2)
    source, options = "pattern:prbs31?bytes=3MiB&rate=2MB/s", ["--start", start, "--duration", "4s", *SMALL]
    with Onto(source, end(device, scan="r1_a"), *options) as recording:
        recording.ended(FOUND)
    sealed = recording.events[-1]
    assert sealed["completeness"] == "incomplete" and "bytes recorded" in sealed["headline"]
    for known in known_of(device, "r1_a", INCOMPLETE):
        assert judgement(known) == judgement(sealed)


def test_a_planned_scan_whose_recorder_died_is_incomplete_after_it_is_recovered(device):
    port, (start, at) = free_port(), soon(2)
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000"
    options = ["--start", start, "--duration", "20s", "--sync", "100ms", *SMALL]
    with Onto(source, end(device, scan="r1_a", block="128KiB"), *options) as recording:
        send_from(port, at - 1, 4)
        recording.wait("progress", lambda told: told["durable_bytes"] > 2 << 20)
        recording.process.kill()
        recording.process.wait(PATIENCE)
    (told,) = ask("recover", end(device), code=GOOD)
    assert (told["complete"], told["completeness"]) == (False, "incomplete")
    assert "20.0 s planned are not covered" in told["headline"] and "it was recovered" in told["headline"]
    assert 10 < told["uncovered"]["ns"] / 1e9 < 19, told["headline"]
    assert told["uncovered"]["frames"] == pytest.approx(told["uncovered"]["ns"] / 1e6, abs=1)
    for known in known_of(device, "r1_a", INCOMPLETE):
        assert judgement(known) == judgement(told)


def test_a_scan_of_one_block_that_was_killed_lasts_as_long_as_its_frames(tmp_path):
    device, port = image_in(tmp_path), free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000"
    options = ["--sync", "100ms", *SMALL]
    with Onto(source, end(device, scan="r1_a", block="512KiB"), *options) as recording:
        # A block is written when frames of a later one arrive: less than a block at a time.
        for first in range(0, 5000, 100):
            send(run_of_frames(100, first=first, payload_bytes=1000), port, pause=1e-4)
            time.sleep(0.6)
            if any(told.get("durable_bytes") for told in recording.events):
                break
        recording.process.kill()
        recording.process.wait(PATIENCE)
    (told,) = ask("recover", end(device), code=GOOD)
    assert told["scan"]["blocks"] == 1
    (lasts,) = re.findall(r"UNKNOWN: \d+ frames recorded, (\d\.\d+) s", told["headline"])
    assert float(lasts) == pytest.approx(told["recorded"] / 1000, abs=0.01)


def test_a_listed_thread_that_never_came_is_told_of_a_device(tmp_path):
    device, port = image_in(tmp_path), free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&threads=0,1&fill=omit"
    with Onto(source, end(device, scan="r1_a")) as recording:
        send(run_of_frames(400), port)
        recording.wait("progress", lambda told: told["seconds"] > 0.5)
        told = recording.stop(FOUND)
    assert [it.get("presence", []) for it in told["account"]["flows"]] == [[], [{"what": "never-came"}]]
    for known in known_of(device, "r1_a", INCOMPLETE):
        # A device has one stream, which needs no name.
        assert known["headline"] == recording.events[-1]["headline"].replace(f"stream {port}, ", "")
        assert "thread 1: sent nothing in this scan" in known["headline"]


def test_datagrams_that_are_no_frames_are_told(tmp_path):
    device, port = image_in(tmp_path), free_port()
    to = end(device, first="0", last=hex(8 << 20))
    command = [BINARY, "record", f"udp://127.0.0.1:{port}?format=vdif", "--to", to, "--duration", "2s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as recorder:
        while b"armed" not in (line := recorder.stderr.readline()):
            assert line, "it ended before it was armed"
        send([bytes(900)] * 100, port)
        said = text(b"".join(recorder.communicate(timeout=PATIENCE)))
    assert "got 100 datagrams, of which none is a frame of its format" in said


def test_chunks_that_are_too_few_are_the_cause_of_a_loss(tmp_path):
    device, port = image_in(tmp_path), free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&block=256KiB"
    to = end(device, first="0", last=hex(7 * CHUNK))
    with Onto(source, to) as recording:
        generate(port, frame=8032, fps=4000, frames=2000, seed=3)
        told = recording.ended(code=None)
    assert told["full"]
    if told["account"]["terms"]["overrun"]:
        failures = [it["failure"] for it in told["account"]["host"]["members"]]
        assert failures == ["the device is full"]


def test_an_end_of_room_is_told_and_what_fitted_is_whole(device):
    told = record("pattern:prbs31", end(device, scan="r1_all"), code=FOUND)
    assert told["full"] and told["scan"]["ending"] == "full"
    run("verify", end(device), code=GOOD)
    refused = record("pattern:prbs31?bytes=1MiB", end(device, scan="r1_more"), code=REFUSED)
    assert "needed" in refused


def test_a_device_is_a_source_for_another_and_its_damage_does_not_spread(device, tmp_path):
    made = os.urandom(5 << 20)
    record("-", end(device, scan="r1_a", block="1MiB"), given=made)
    other = tmp_path / "other.img"
    copied = record(end(device, scan="r1_a"), end(other, size="64MiB", scan="r1_copy"))
    assert copied["bytes"] == len(made) and copied["status"]["words"] == ["finished"]
    assert run("cat", end(other, scan="r1_copy")).stdout == made
    first = ask("ls", end(device))["scans"][0]["first"]
    chunks = dict(first=hex(first), last=hex(first + 4 * CHUNK))
    bare = record(end(device, **chunks), end(tmp_path / "bare.img", size="1MiB"))
    assert bare["bytes"] == 5 * CHUNK
    assert (tmp_path / "bare.img").read_bytes()[: 5 * CHUNK] == made[: 5 * CHUNK]
    with open(device, "r+b") as file:
        file.seek(first + (2 << 20))
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
    cut = record(end(device, scan="r1_a"), end(other, scan="r1_cut"), code=REFUSED)
    assert cut["bytes"] == 2 << 20 and "block 2 is damaged" in cut["failure"]


def test_what_lies_in_a_damaged_block_is_not_played_and_is_told(device):
    frames = os.urandom(0)
    one = bytearray(8032)
    one[0:4] = (40_000_000).to_bytes(4, "little")
    one[8:12] = (8032 // 8).to_bytes(4, "little")
    for number in range(500):
        one[4:8] = (number | 40 << 24).to_bytes(4, "little")
        frames += bytes(one)
    record("-", end(device, scan="r1_a", block="128KiB"), given=frames)
    to = ["--to", f"udp://127.0.0.1:{free_port()}", "--fps", "4000", "--gentle"]
    whole = json.loads(run("play", end(device, scan="r1_a"), *to, "--json", code=None).stdout)
    assert (whole["frames"], whole["streams"][0]["losses"]) == (500, [])
    first = ask("ls", end(device))["scans"][0]["first"]
    with open(device, "r+b") as file:
        file.seek(first + CHUNK)
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())
    cut = ask("play", end(device, scan="r1_a"), *to, code=FOUND)
    assert 0 < cut["frames"] < 500, "frames of other blocks are played"
    assert all("block 1 is damaged" in loss for loss in cut["streams"][0]["losses"])
    assert cut["streams"][0]["losses"]


def test_what_is_wrong_with_a_pattern_has_a_name(device):
    record("pattern:prbs31:1", end(device, first=0, last=hex(63 * CHUNK)))
    record("pattern:prbs31:2", end(device, first=0, last=hex(31 * CHUNK)), "--overwrite", device)
    told = ask("verify", end(device, first=0, last=hex(63 * CHUNK), pattern="prbs31:2"), code=FOUND)
    (finding,) = told["findings"]
    assert (finding["chunk"], finding["chunks"]) == (32 * CHUNK, 32)
    assert finding["diagnosis"] == {"kind": "stale", "seed": 1}
    said = text(run("verify", end(device, first=0, pattern="prbs31:2"), code=FOUND).stdout)
    assert "stale: this was written here with seed 1" in said


def test_a_read_that_is_stopped_says_how_far_it_came(device):
    record("pattern:prbs31", end(device, first=0))
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [BINARY, "cat", end(device, first=0), "--json"], stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    try:
        given = len(os.read(reader, 1 << 16))
        process.send_signal(signal.SIGINT)
        while piece := os.read(reader, 1 << 20):
            given += len(piece)
        told = json.loads(process.stderr.read().splitlines()[-1])
        assert process.wait(PATIENCE) == FOUND
    finally:
        process.kill()
        os.close(reader)
    status = told["status"]
    assert status["words"] == ["finished", "stopped"]
    assert status["bytes"] == told["bytes"] == given < MEDIA
    assert status["captured_last"] == given - CHUNK


@root
def test_a_drive_that_fails_ends_it_and_what_was_written_before_is_whole(memory_disk):
    """The file below the drive is on a disk that fills up."""
    small = memory_disk("24m")
    for name, to in [("bare", {}), ("scan", {"scan": "r1_a"})]:
        disk = small / f"{name}.img"
        told = record(
            "pattern:prbs31?rate=100MB/s", end(disk, size="64MiB", block="1MiB", **to), code=FOUND
        )
        assert told["status"]["words"][:2] == ["finished", "failed"]
        assert "address" in told["failure"]
        last, durable = told["status"]["captured_last"], told["durable_bytes"]
        assert durable == told["bytes"] <= 24 << 20, "what was written is made durable all the same"
        first = told["status"]["address_first"]
        place = end(disk, first=hex(first), last=hex(last), pattern="prbs31")
        assert ask("verify", place)["good"], "all up to the captured address was written"
        if to:
            assert told["scan"]["ending"] == "failed"
            known = ask("verify", end(disk), code=INCOMPLETE)
            assert known["good"] and "the device failed" in known["headline"]
        disk.unlink()


def test_datagrams_as_bare_chunks_are_counted_and_stay_between_the_addresses(device):
    port = free_port()
    first, last = 8 * CHUNK, 39 * CHUNK
    to = end(device, first=hex(first), last=hex(last))
    source = f"udp://127.0.0.1:{port}?format=vdif&block=256KiB"
    with Onto(source, to) as recording:
        generate(port, frame=8032, fps=4000, frames=200, seed=3)
        told = recording.stop()
    terms = told["account"]["terms"]
    assert (terms["expected"], terms["written"], told["bytes"]) == (200, 200, 200 * 8032)
    after = content(device)
    behind = -(-(first + 200 * 8032) // 4096) * 4096
    assert set(after[:first]) == set(after[behind:]) == set(OLD)
    with Onto(source, to, "--overwrite", device) as recording:
        generate(port, frame=8032, fps=4000, frames=2000, seed=3)
        told = recording.ended(code=None)
    assert told["full"] and told["status"]["words"] == ["finished"]
    after = content(device)
    assert set(after[:first]) == set(after[last + CHUNK :]) == set(OLD)


def test_a_store_of_the_environment_does_not_keep_a_device_from_being_recorded_onto(tmp_path):
    to = end(tmp_path / "disk.img", size="16MiB", scan="r1_a")
    words = ["record", "pattern:prbs31?bytes=1MiB", "--to", to]
    run(*words, env=os.environ | {"FULLBORE_STORE": str(tmp_path)})
    refused = run(*words, "--store", tmp_path, code=REFUSED)
    assert "--store" in text(refused.stderr)


@root
@pytest.mark.skipif(shutil.which("fsfreeze") is None, reason="fsfreeze is not here")
@pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="mkfs.ext4 is not here")
def test_a_drive_that_does_not_answer_is_left_at_the_third_call_and_recovered(tmp_path):
    image, mounted = tmp_path / "disk.img", tmp_path / "disk"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
    if subprocess.run(["mount", "-o", "loop", image, mounted], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    thaw = threading.Timer(PATIENCE, subprocess.run, [["fsfreeze", "-u", mounted]])
    try:
        drive = mounted / "drive.img"
        to = end(drive, size="128MiB", scan="r1_a", block="256KiB")
        command = [BINARY, "record", "pattern:prbs31?rate=20MB/s", "--to", to, "--sync", "20ms", "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

        def until(holds):
            events = map(json.loads, iter(process.stdout.readline, b""))
            return next(told for told in events if told["event"] == "progress" and holds(told))

        before = until(lambda told: told["durable_bytes"] > 1 << 20)
        assert before["phase"] == "recording"
        subprocess.run(["fsfreeze", "-f", mounted], check=True)
        thaw.start()
        # It is stopped when a block waits and no block is being written.
        until(lambda told: all(it["rate"] == 0 and it["backlog_bytes"] > 0 for it in told["members"]))
        process.send_signal(signal.SIGINT)
        until(lambda told: told["phase"] == "stopping")
        process.send_signal(signal.SIGINT)
        until(lambda told: told["phase"] == "aborting")
        process.send_signal(signal.SIGINT)
        said = text(process.stderr.readline())
        assert "did not respond" in said
        thaw.cancel()
        subprocess.run(["fsfreeze", "-u", mounted], check=True)
        process.stdout.close()
        assert process.wait(PATIENCE) == REFUSED
        (told,) = ask("recover", end(drive))
        assert told["scan"]["bytes"] >= before["durable_bytes"]
        run("verify", end(drive), code=GOOD)
    finally:
        thaw.cancel()
        subprocess.run(["fsfreeze", "-u", mounted], capture_output=True)
        process.kill()
        process.wait(PATIENCE)
        unmount(mounted)


# The overwrite guard.


def refused(device, *words):
    """Both kinds of recording are refused, with these words; no byte is written."""
    before = hashlib.sha256(content(device)).digest()
    for to in (end(device), end(device, scan="r1_a")):
        told = record("pattern:prbs31?bytes=1MiB", to, code=REFUSED)
        assert all(word in told for word in words), told
    assert hashlib.sha256(content(device)).digest() == before


@root
@pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="mkfs.ext4 is not here")
def test_a_file_system_is_not_overwritten_unless_its_device_is_named_again(loop, tmp_path):
    subprocess.run(["mkfs.ext4", "-q", "-F", loop], check=True)
    refused(loop, "ext4", f"--overwrite {loop}")
    to = end(loop, scan="r1_a")
    other = record("pattern:prbs31?bytes=1MiB", to, "--overwrite", "/dev/loop", code=REFUSED)
    assert "exact name" in other
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    # Read-only, so that only the recorder could change it.
    subprocess.run(["mount", "-o", "ro", loop, mounted], check=True)
    try:
        refused(loop, "mounted", str(mounted))
        told = record("pattern:prbs31?bytes=1MiB", to, "--overwrite", loop, code=REFUSED)
        assert "in use" in told, "a mount is no matter of names"
    finally:
        unmount(mounted)
    record("pattern:prbs31?bytes=1MiB", to, "--overwrite", loop)
    record("pattern:prbs31?bytes=1MiB", end(loop, scan="r1_b"))
    run("verify", end(loop), code=GOOD)
    gone = subprocess.run(["mount", "-t", "ext4", loop, mounted], capture_output=True)
    assert gone.returncode != 0, "what was there is not recognised any more"


@root
def test_a_partition_table_is_not_overwritten(loop):
    if shutil.which("sfdisk"):
        table = b"label: gpt\n,10M\n,\n"
        subprocess.run(["sfdisk", "-q", loop], input=table, check=True, capture_output=True)
        refused(loop, "partition table", "GPT")
    else:
        with open(loop, "r+b") as file:
            file.seek(512)
            file.write(b"EFI PART")
        refused(loop, "partition table", "GPT")


@root
@pytest.mark.skipif(shutil.which("mkswap") is None, reason="mkswap is not here")
def test_swap_space_is_not_overwritten_and_less_so_while_it_is_swapped_to(loop):
    subprocess.run(["mkswap", loop], check=True, capture_output=True)
    refused(loop, "swap space")
    if subprocess.run(["swapon", loop], capture_output=True).returncode:
        pytest.skip("no swap can be switched on here")
    try:
        told = record("pattern:prbs31?bytes=1MiB", end(loop), "--overwrite", loop, code=REFUSED)
        assert "in use" in told and "swapped to" in told
    finally:
        subprocess.run(["swapoff", loop], check=True)


@root
def test_a_read_only_device_is_refused_before_anything_is_tried(loop):
    commands = (
        ["record", "pattern:prbs31", "--to", f"device:{loop}?last=0x20000"],
        ["selftest", "--quick", loop],
        ["bench", "disk", loop, "--quick", "--no-history"],
    )
    subprocess.run(["blockdev", "--setro", loop], check=True)
    try:
        refusals = [text(run(*words, "--overwrite", loop, code=REFUSED).stderr) for words in commands]
    finally:
        # The next user of this loop device must not inherit the setting.
        subprocess.run(["blockdev", "--setrw", loop], check=True)
    for told in refusals:
        assert "the device is read-only" in told and "blockdev --setrw" in told, told


@root
def test_a_file_that_a_loop_device_shows_is_in_use(loop):
    backing = subprocess.run(
        ["losetup", "--noheadings", "--output", "BACK-FILE", loop], check=True, capture_output=True
    ).stdout.decode().strip()
    told = record("pattern:prbs31?bytes=1MiB", end(backing), code=REFUSED)
    assert "in use" in told and loop in told


@root
def test_a_device_being_recorded_onto_cannot_be_mounted_or_recorded_onto(loop, tmp_path):
    with Onto("pattern:prbs31?rate=10MB/s", end(loop, scan="r1_a")) as recording:
        told = record("pattern:prbs31?bytes=1MiB", end(loop, scan="r1_b"), code=REFUSED)
        assert "another process" in told
        if shutil.which("mkfs.ext4"):
            made = subprocess.run(["mkfs.ext4", "-q", loop], capture_output=True, stdin=subprocess.DEVNULL)
            assert made.returncode != 0, "mkfs sees that it is in use"
        recording.stop()
    run("verify", end(loop), code=GOOD)


@pytest.mark.parametrize("mark", ["swap", "mbr", "unknown"])
def test_what_others_put_on_a_device_after_us_is_theirs(mark, device):
    """A copy of fullbore's index survives at the end of the device, and gives no permission to overwrite the rest."""
    record("pattern:prbs31?bytes=1MiB", end(device, scan="r1_a"))
    if mark == "swap":
        if shutil.which("mkswap") is None:
            pytest.skip("mkswap is not here")
        subprocess.run(["mkswap", device], check=True, capture_output=True)
    else:
        place, theirs = {"mbr": (440, b"theirs" + bytes(64) + b"\x55\xaa"), "unknown": (0, b"theirs")}[mark]
        with open(device, "r+b") as file:
            file.seek(place)
            file.write(theirs)
            file.flush()
            os.fsync(file.fileno())
    before = hashlib.sha256(content(device)).digest()
    told = record("pattern:prbs31?bytes=1MiB", end(device, scan="r1_b"), code=REFUSED)
    assert "a scan index" in told and f"--overwrite {device}" in told
    for words in (["rm", "--yes", end(device, scan="r1_a")], ["recover", end(device)]):
        assert "a scan index" in text(run(*words, code=REFUSED).stderr), words
    assert hashlib.sha256(content(device)).digest() == before
    record("pattern:prbs31?bytes=1MiB", end(device, scan="r1_b"), "--overwrite", device)
    record("pattern:prbs31?bytes=1MiB", end(device, scan="r1_c"))


@pytest.mark.parametrize("wiped", ["first", "second"])
def test_either_copy_of_the_index_knows_everything_once_a_scan_is_sealed_or_removed(wiped, device):
    places = {"first": 0, "second": MEDIA - (256 << 10)}
    for number in range(3):
        record(f"pattern:prbs31?bytes={number + 1}MiB", end(device, scan=f"r1_no{number}"))
    run("rm", "--yes", end(device, scan="r1_no1"))
    before = ask("ls", end(device))["scans"]
    with open(device, "r+b") as file:
        file.seek(places[wiped])
        file.write(b"\xff" * 4096)
        file.flush()
        os.fsync(file.fileno())
    told = ask("ls", end(device), code=FOUND)
    assert told["scans"] == before and told["damage"]
    run("verify", end(device), code=GOOD)


@pytest.mark.parametrize("bytes_", [4096, 256 << 10])
def test_a_first_copy_of_the_index_that_was_zeroed_is_repaired(bytes_, device):
    def wipe(content):
        with open(device, "r+b") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    record("pattern:prbs31?bytes=1MiB", end(device, scan="r1_a"))
    wipe(bytes(bytes_))
    told = text(run("ls", end(device), code=FOUND).stdout)
    assert f"the next recording or `fullbore recover {end(device)}` repairs it" in told, told
    assert "was repaired" in text(run("recover", end(device), code=GOOD).stdout)
    run("ls", end(device), code=GOOD)
    wipe(bytes(bytes_))
    record("pattern:prbs31?bytes=1MiB", end(device, scan="r1_b"))
    assert [scan["name"]["scan"] for scan in ask("ls", end(device), code=GOOD)["scans"]] == ["a", "b"]
    run("verify", end(device), code=GOOD)
    # Other bytes may be those of another program: nothing is changed, and ls says so.
    wipe(b"\xff" * 4096)
    told = text(run("ls", end(device), code=FOUND).stdout)
    assert "contains unknown data in the place of its first copy" in told and "nothing is changed" in told, told
    run("recover", end(device), code=REFUSED)
    refused = text(run("verify", f"device:{device}/r1_a", code=REFUSED).stderr)
    assert f"named by ?scan=NAME: {end(device, scan='r1_a')}" in refused, refused


def test_scans_are_promised_to_survive_only_where_they_do(device):
    """Content at the beginning overwrites only one copy of the index; a GPT is at both ends, and overwrites both."""
    record("pattern:prbs31?bytes=1MiB", end(device, scan="r1_a"))
    with open(device, "r+b") as file:
        file.seek(446)
        file.write(bytes(64) + b"\x55\xaa" + b"EFI PART")
        file.flush()
        os.fsync(file.fileno())
    told = record("pattern:prbs31?bytes=1MiB", end(device, scan="r1_b"), code=REFUSED)
    assert "a scan index with 1 scan" in told and "fullbore verify" in told
    assert ask("ls", end(device), code=FOUND)["scans"][0]["name"]["scan"] == "a"
    run("verify", end(device), code=GOOD)
    with open(device, "r+b") as file:
        file.seek(-33 * 512, os.SEEK_END)
        file.write(bytes(32 * 512) + b"EFI PART" + bytes(504))
        file.flush()
        os.fsync(file.fileno())
    told = record("pattern:prbs31?bytes=1MiB", end(device, scan="r1_b"), code=REFUSED)
    assert "cannot be read any more" in told and "GPT" in told and "fullbore verify" not in told
    assert "cannot be used" in text(run("ls", end(device), code=REFUSED).stderr)


def test_a_new_index_leaves_nothing_to_be_recognised_behind_its_second_copy(tmp_path):
    image = tmp_path / "odd.img"
    image.write_bytes(bytes((64 << 20) + 100) + b"EFI PART" + bytes(504))
    told = record("pattern:prbs31?bytes=1MiB", end(image, scan="r1_a"), code=REFUSED)
    assert "GPT" in told
    record("pattern:prbs31?bytes=1MiB", end(image, scan="r1_a"), "--overwrite", image)
    record("pattern:prbs31?bytes=1MiB", end(image, scan="r1_b"))


@root
def test_another_name_of_the_image_of_a_loop_device_is_in_use_as_well(loop, tmp_path):
    show = ["losetup", "--noheadings", "--output", "BACK-FILE", loop]
    image = subprocess.run(show, check=True, capture_output=True).stdout.decode().strip()
    other, moved = tmp_path / "other.img", tmp_path / "moved.img"
    os.link(image, other)
    os.unlink(image)  # the kernel's path of it does not exist any more
    told = record("pattern:prbs31?bytes=1MiB", end(other), "--overwrite", other, code=REFUSED)
    assert "in use" in told and loop in told
    other.rename(moved)
    assert "in use" in text(run("selftest", moved, "--overwrite", moved, "--quick", code=REFUSED).stderr)


@root
def test_a_loop_device_that_another_shows_is_in_use(loop):
    done = subprocess.run(["losetup", "--find", "--show", loop], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no loop device over another here: {done.stderr}")
    upper = done.stdout.strip()
    try:
        told = record("pattern:prbs31?bytes=1MiB", end(loop), "--overwrite", loop, code=REFUSED)
        assert "in use" in told and upper in told
    finally:
        subprocess.run(["losetup", "--detach", upper], check=True)
    record("pattern:prbs31?bytes=1MiB", end(loop))


def test_a_recording_that_is_refused_leaves_no_file(tmp_path):
    new = tmp_path / "new.img"
    for size, scan, more in [
        ("1MiB", "r1_a", []),  # no index fits
        ("64MiB", "r1_a", ["--bytes", "1GiB"]),  # no space
        ("1000", None, []),  # not a chunk
        ("64MiB", None, ["--buffer", "100TB"]),  # no memory
    ]:
        to = end(new, size=size, **({"scan": scan} if scan else {}))
        record("pattern:prbs31", to, *more, code=REFUSED)
        assert not new.exists(), (size, scan)
    record("pattern:prbs31?bytes=1MiB", end(new, size="64MiB", scan="r1_a"))
    before = hashlib.sha256(content(new)).digest()
    record("pattern:prbs31?bytes=1GiB", end(new, size="64MiB", scan="r1_b"), code=REFUSED)
    assert hashlib.sha256(content(new)).digest() == before, "what was there stays"


def test_what_is_read_and_what_is_written_do_not_overlap(device, tmp_path):
    before = hashlib.sha256(content(device)).digest()
    place = lambda first, last: end(device, first=hex(first * CHUNK), last=hex(last * CHUNK))
    told = record(place(0, 9), place(1, 10), code=REFUSED)
    assert "overwritten while it is read" in told
    assert "overwritten while it is read" in record(f"file:{device}", end(device), code=REFUSED)
    assert "overwritten while it is read" in record(place(0, 9), end(device, scan="r1_a"), code=REFUSED)
    assert hashlib.sha256(content(device)).digest() == before
    assert record(place(0, 9), place(10, 19))["bytes"] == 10 * CHUNK
    record("pattern:prbs31?bytes=3MiB", end(device, scan="r1_a"))
    record(end(device, scan="r1_a"), end(device, scan="r1_copy"))
    to = end(device, scan="r1_b")
    assert "overwritten while it is read" in record(f"file:{device}", to, "--bytes", "1MiB", code=REFUSED)
    run("verify", end(device), code=GOOD)


def test_what_is_no_device_is_refused_with_a_hint(tmp_path):
    for path, word in [
        (tmp_path, "--store"),
        ("/dev/null", "block device"),
        (tmp_path / "none.img", "size="),
        ("/dev/fullbore-none", "lsblk"),
    ]:
        assert word in record("pattern:prbs31?bytes=1MiB", end(path), code=REFUSED)
    made = tmp_path / "made.img"
    record("pattern:prbs31?bytes=1MiB", end(made, size="64MiB", scan="r1_a"))
    assert made.stat().st_size == 64 << 20
    run("verify", end(made), code=GOOD)
    bare = image_in(tmp_path, 4 << 20)
    assert "no scan index" in text(run("ls", end(bare), code=REFUSED).stderr)


def images(directory, number):
    """Files as replacements for several drives, full of old bytes."""
    for name in range(number):
        (directory / str(name)).mkdir()
    return [image_in(directory / str(name), size=32 << 20) for name in range(number)]


class OntoAll(Onto):
    """The same onto several devices."""

    def __init__(self, sources, to, *options):
        super().__init__(sources[0], to[0], *sources[1:], *options)
        for more in to[1:]:
            self.command += ["--to", more]

    def ended(self, code=GOOD):
        self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join()
        assert self.process.returncode == code, text(bytes(self._complaints))
        return self.wait("sealed")


def test_patterns_go_onto_several_devices_at_once_with_one_account(tmp_path):
    drives = images(tmp_path, 3)
    sources = [f"pattern:prbs31:{seed}?bytes=8MiB" for seed in (1, 2, 3)]
    listed = ",".join(end(drive, scan="r1_a") for drive in drives)
    told = [json.loads(line) for line in run("record", *sources, "--to", listed, "--json").stdout.splitlines()]
    last = told[-1]
    assert last["event"] == "sealed"
    assert [device["bytes"] for device in last["devices"]] == [8 << 20] * 3
    assert [device["durable_bytes"] for device in last["devices"]] == [8 << 20] * 3
    assert [device["device"] for device in last["devices"]] == [str(drive) for drive in drives]
    (armed,) = [line for line in told if line["event"] == "armed"]
    assert [member["path"] for member in armed["members"]] == [str(drive) for drive in drives]
    for drive, source in zip(drives, sources, strict=True):
        pattern = source.removeprefix("pattern:").split("?")[0]
        expected = run("cat", end(drive, scan="r1_a")).stdout
        assert len(expected) == 8 << 20
        bare = tmp_path / "bare.img"
        run("record", source, "--to", end(bare, size="8MiB"))
        assert bare.read_bytes() == expected, f"{drive} has {pattern}"
        bare.unlink()
    people = run("record", *sources, *(f"--to={end(drive, scan='r1_b')}" for drive in drives)).stdout.decode()
    assert all(f"r1_b on {drive}: 8.39 MB in" in people for drive in drives), people


def test_datagrams_of_several_ports_go_onto_a_device_each_and_a_loss_on_one_is_told_of_all(tmp_path):
    drives = images(tmp_path, 2)
    ports = free_ports(2)
    sources = [f"udp://127.0.0.1:{port}?format=vdif" for port in ports]
    names = ["--session", "r1", "--scan", "no0001"]
    with OntoAll(sources, [end(drive) for drive in drives], *names) as recording:
        armed = recording.wait("armed")
        assert [member["path"] for member in armed["members"]] == [str(drive) for drive in drives]
        assert all(member["span"]["chunk_bytes"] == CHUNK for member in armed["members"])
        generate(ports[0], frame=8032, fps=4000, frames=3000, seed=1)
        truth = generate(
            ports[1], frame=8032, fps=4000, frames=3000, seed=2, drop=0.01, drop_run=5, truth=tmp_path / "truth.json"
        )
        recording.wait("progress", lambda told: all(member["written_bytes"] for member in told["members"]))
        told = recording.stop(code=FOUND)
    accounts = [account["terms"] for account in told["accounts"]]
    terms = {term: sum(account[term] for account in accounts) for term in accounts[0]}
    lost = sum(stream["port"]["dropped"]["count"] for stream in truth)
    assert lost and terms["missing"] == lost
    assert terms["expected"] == 6000 and terms["written"] == 6000 - lost
    assert [account["missing"] for account in accounts] == [0, lost]
    assert [account["verdict"] for account in told["accounts"]][1] != "proven"
    assert [device["device"] for device in told["devices"]] == [str(drive) for drive in drives]
    assert (told["completeness"], told["complete"], told["lost"]) == ("lost", False, lost)
    assert told["headline"].startswith(f"LOST {lost} of 6000 frames") and "in 1 of 2 streams" in told["headline"]
    for drive, account in zip(drives, accounts, strict=True):
        run("verify", end(drive), code=INTACT)
        recorded = run("cat", end(drive, scan="r1_no0001"), code=None).stdout
        assert len(recorded) == account["expected"] * 8032, "what is missing is filled"


def test_if_one_of_several_devices_is_refused_all_stay_as_they_are(tmp_path):
    drives = images(tmp_path, 2)
    made = tmp_path / "made.img"
    before = [drive.read_bytes() for drive in drives]
    swap = bytearray(before[1])
    swap[4086:4096] = b"SWAPSPACE2"
    drives[1].write_bytes(swap)
    to = ["--to", end(drives[0], scan="r1_a"), "--to", end(made, size="16MiB", scan="r1_a")]
    to += ["--to", end(drives[1], scan="r1_a")]
    refused = run("record", *["pattern:prbs31?bytes=1MiB"] * 3, *to, code=REFUSED)
    assert str(drives[1]) in text(refused.stderr) and "swap" in text(refused.stderr)
    assert [drives[0].read_bytes(), drives[1].read_bytes()] == [before[0], bytes(swap)]
    assert not made.exists()
    busy = run("record", *["pattern:prbs31?bytes=1MiB"] * 2, *[f"--to={end(drives[0])}"] * 2, code=REFUSED)
    assert drives[0].read_bytes() == before[0], text(busy.stderr)


@pytest.mark.parametrize(
    "words, told",
    [
        (["pattern:prbs31", "--to", "device:a", "--to", "device:b"], "1 stream for 2 devices"),
        (["udp://127.0.0.1:5000-5002", "--to", "device:a,device:b"], "3 streams for 2 devices"),
        (["udp://127.0.0.1:5000", "--to", "hdf5:a.h5", "--to", "hdf5:a.h5"], "two sinks"),
        (["pattern:prbs31", "pattern:prbs31", "--to", "device:a,device:b", "--overwrite", "c"], "no --to names it"),
    ],
)
def test_streams_and_devices_that_do_not_go_together_are_refused_with_the_reason(words, told, tmp_path):
    refused = run("record", *words, code=REFUSED, cwd=tmp_path)
    assert told in text(refused.stderr), text(refused.stderr)
    assert list(tmp_path.iterdir()) == []
