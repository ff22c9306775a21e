"""Each source into each sink: recorded, and compared with the truth by other programs (h5py, cmp)."""

import json
import random
import signal
import struct
import subprocess
import time

import h5py
import numpy as np
import pytest
from fullbore import (
    BINARY,
    ENOUGH,
    FOUND,
    GOOD,
    INTACT,
    PATIENCE,
    REFUSED,
    Scan,
    abort,
    ask,
    free_port,
    generate,
    run,
    text,
)
from panda import Panda

NAMED = ("--session", "test", "--scan", "one")
SINKS = ["store", "hdf5", "file", "stdout", "device"]

# A length that is no multiple of a block, nor of 4096.
BYTES = (9 << 20) + 4321


class Running:
    """A recording whose events are lines of JSON, on standard error if standard output has the data."""

    def __init__(self, *words, data=None, stdin=None, to_stdout=False):
        self.command = [BINARY, "record", *map(str, words), "--json"]
        self.to_stdout, self.events = to_stdout, []
        out = data.open("wb") if to_stdout else subprocess.PIPE
        self.process = subprocess.Popen(
            self.command, stdin=stdin or subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE
        )

    def wait(self, event):
        stream = self.process.stderr if self.to_stdout else self.process.stdout
        for line in stream:
            if line.startswith(b"{"):
                self.events.append(json.loads(line))
                if self.events[-1]["event"] == event:
                    return self.events[-1]
        raise AssertionError(f"no {event}: {self.command} {self.events[-2:]} {text(self.process.stderr.read())}")

    def stop(self):
        self.process.send_signal(signal.SIGINT)

    def sealed(self, code=GOOD):
        sealed = self.wait("sealed")
        said = text(self.process.communicate(timeout=PATIENCE)[1])
        assert self.process.returncode == code, (self.command, sealed["headline"], said)
        return sealed


def send(port):
    """Sends VDIF frames, one thousand a second; returns their number."""
    generate(port, frames=2000, fps=1000)
    return 2000


@pytest.fixture
def payload(tmp_path):
    path = tmp_path / "payload.bin"
    path.write_bytes(random.Random(7).randbytes(BYTES))
    return path


def target(sink, tmp_path):
    """The words of a sink, and where its bytes are."""
    return {
        "store": (("--store", tmp_path / "member", *NAMED), None),
        "hdf5": (("--to", f"hdf5:{tmp_path / 'out.h5'}"), tmp_path / "out.h5"),
        "file": (("--to", f"file:{tmp_path / 'out.raw'}"), tmp_path / "out.raw"),
        "stdout": (("--to", "-"), tmp_path / "out.raw"),
        "device": (("--to", f"device:{tmp_path / 'disk.img'}?size=64MiB", *NAMED), tmp_path / "disk.img"),
    }[sink]


def recorded(sink, tmp_path, place):
    """The bytes that a sink holds, read by other programs."""
    if sink == "store":
        return Scan("test_one", [tmp_path / "member"]).bytes()
    if sink == "hdf5":
        with h5py.File(place) as file:
            return (file["frames"] if "frames" in file else file["data"])[()].tobytes()
    if sink == "device":
        (scan,) = ask("ls", f"device:{place}")["scans"]
        with place.open("rb") as disk:
            disk.seek(scan["first"])
            return disk.read(scan["bytes"])
    return place.read_bytes()


def begin(source, sink, tmp_path, payload, more=()):
    (tmp_path / "member").mkdir(exist_ok=True)
    words, place = target(sink, tmp_path)
    stdin = payload.open("rb") if source == "-" else None
    running = Running(source, *words, *more, data=place, stdin=stdin, to_stdout=sink == "stdout")
    return running, place


def compare(tmp_path, got, wanted):
    """`cmp` judges."""
    one, other = tmp_path / "got", tmp_path / "wanted"
    one.write_bytes(got)
    other.write_bytes(wanted)
    done = subprocess.run(["cmp", one, other], capture_output=True)
    assert done.returncode == 0, (text(done.stdout), len(got), len(wanted))


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("source", ["pattern", "file", "stdin"])
def test_bytes_go_into_every_sink_as_they_are(source, sink, tmp_path, payload):
    pattern = tmp_path / "pattern.bin"
    words = {
        "pattern": f"pattern:counter?bytes={BYTES}",
        "file": f"file:{payload}",
        "stdin": "-",
    }[source]
    running, place = begin(words, sink, tmp_path, payload)
    sealed = running.sealed()
    if source == "pattern":
        # The counter is documented as 64-bit little-endian words that count from 0.
        count = np.arange(BYTES // 8 + 1, dtype="<u8").tobytes()[:BYTES]
        pattern.write_bytes(count)
    compare(tmp_path, recorded(sink, tmp_path, place), (pattern if source == "pattern" else payload).read_bytes())
    [account] = sealed["accounts"]
    assert account["counted_by"] == "bytes" and account["verdict"] == "unproven"
    assert account["terms"]["written"] == account["terms"]["expected"] == account["bytes"] == BYTES
    assert f"{BYTES:,}".replace(",", " ") in sealed["headline"] + sealed["explanation"] or "byte" in sealed["headline"]
    if sink == "store":
        store = ("--store", tmp_path / "member")
        assert ask("verify", "test_one", *store, code=INTACT)["good"]
        assert run("cat", "test_one", *store).stdout == payload.read_bytes() if source != "pattern" else True
        run("info", "test_one", *store, code=INTACT)
        run("convert", "test_one", f"hdf5:{tmp_path / 'converted.h5'}", *store)
        with h5py.File(tmp_path / "converted.h5") as file:
            assert file["data"].shape == (BYTES,)


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("form", ["vdif", "raw"])
def test_datagrams_go_into_every_sink(form, sink, tmp_path, payload):
    port = free_port()
    running, place = begin(f"udp://127.0.0.1:{port}?format={form}", sink, tmp_path, payload, ENOUGH)
    running.wait("armed")
    count = send(port)
    time.sleep(0.5)
    running.stop()
    sealed = running.sealed()
    [account] = sealed["accounts"]
    assert account["terms"]["written"] == account["terms"]["expected"] == count
    data = recorded(sink, tmp_path, place)
    assert len(data) == account["bytes"] and len(data) % count == 0
    size = len(data) // count
    # The frame number in each VDIF header counts on.
    numbers = [struct.unpack_from("<I", data, at * size + 4)[0] & 0xFF_FFFF for at in range(count)]
    seconds = [struct.unpack_from("<I", data, at * size)[0] & 0x3FFF_FFFF for at in range(count)]
    order = [second * 1000 + number for second, number in zip(seconds, numbers)]
    assert order == list(range(order[0], order[0] + count))


@pytest.mark.parametrize("sink", SINKS)
def test_a_panda_goes_into_every_sink(sink, tmp_path, payload):
    with Panda("--samples", 20_000) as panda:
        if sink == "hdf5":
            path = tmp_path / "out.h5"
            run("record", panda.endpoint, "--arm", "--to", f"hdf5:{path}?scaled=false")
            with h5py.File(path) as file:
                assert len(file["PCAP.BITS0.Value"]) == 20_000
            return
        if sink == "device":
            refused = run("record", panda.endpoint, "--arm", *target(sink, tmp_path)[0], code=REFUSED)
            assert "varying length" in text(refused.stderr)
            return
        running, place = begin(panda.endpoint, sink, tmp_path, payload, ("--arm",))
        sealed = running.sealed()
    [account] = sealed["accounts"]
    assert (account["verdict"], account["terms"]["written"]) == ("proven", 20_000)
    words = np.frombuffer(recorded(sink, tmp_path, place), dtype="<u4").reshape(20_000, -1)
    # Every 32-bit word of sample i is i.
    assert (words == np.arange(20_000, dtype="<u4")[:, None]).all()


def test_limits_of_bytes_are_exact_and_a_series_goes_on_where_the_last_scan_ended(store, payload):
    words = ("--store", store, "--session", "test", "--scan", "no", "--json")
    run("record", f"file:{payload}", *words, "--scans", 3, "--bytes", 3 << 20)
    parts = [Scan(f"test_no000{n}", [store]).bytes() for n in (1, 2, 3)]
    assert [len(part) for part in parts] == [3 << 20] * 3
    assert b"".join(parts) == payload.read_bytes()[: 9 << 20]


def test_a_pattern_that_is_held_up_says_so_and_loses_nothing(tmp_path):
    # A reader that takes 2 MB/s from a pattern of 20 MB/s.
    command = [BINARY, "record", "pattern:counter?rate=20MB/s&bytes=20MB", "--to", "-", "--buffer", "2MiB"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(3)
    data, said = process.communicate(timeout=PATIENCE)
    assert data == np.arange(len(data) // 8, dtype="<u8").tobytes() and len(data) == 20_000_000
    assert "held up" in text(said) and process.returncode == GOOD, text(said)


def test_an_end_without_data_is_told(store, tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    run("record", f"file:{empty}", "--store", store, *NAMED, code=FOUND)
    run("record", "-", "--to", f"file:{tmp_path / 'out'}", code=FOUND)


def test_a_stop_seals_an_endless_pattern(store):
    running = Running("pattern:prbs31?rate=50MB/s", "--store", store, *NAMED)
    running.wait("progress")
    time.sleep(1)
    running.stop()
    sealed = running.sealed()
    assert sealed["manifest"]["state"] == "sealed" and sealed["accounts"][0]["terms"]["overrun"] == 0
    assert ask("verify", "test_one", "--store", store, code=INTACT)["good"]


def test_an_abort_ends_although_the_reader_is_slow_and_its_account_is_what_came_out():
    command = [BINARY, "record", "pattern:counter", "--to", "-", "--buffer", "2MiB", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    abort(process)
    data, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == FOUND, text(said)
    sealed = next(e for e in map(json.loads, filter(lambda it: it[:1] == b"{", said.splitlines())) if e["event"] == "sealed")
    terms = sealed["accounts"][0]["terms"]
    assert sealed["manifest"]["state"] == "aborted" and terms["written"] == len(data)
    assert terms["expected"] == terms["written"] + terms["overrun"]


def test_a_reader_that_goes_away_ends_the_recording_and_is_told(tmp_path):
    command = [BINARY, "record", "pattern:prbs31?bytes=100MB", "--to", "-"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(1_000_000)
    process.stdout.close()
    said = text(process.stderr.read())
    assert process.wait(PATIENCE) == FOUND, said
    assert "the reader closed the pipe" in said and "LOST" in said, said


def test_a_full_disk_ends_the_recording_with_the_account_of_the_file(memory_disk):
    disk = memory_disk("8m")
    done = run("record", "pattern:counter?bytes=100MB", "--to", f"file:{disk / 'x'}", "--json", code=FOUND)
    sealed = next(e for e in map(json.loads, done.stdout.splitlines()) if e["event"] == "sealed")
    terms = sealed["accounts"][0]["terms"]
    written = (disk / "x").read_bytes()
    assert terms["written"] == len(written) > 0 and terms["overrun"] > 0
    assert written == np.arange(len(written) // 8, dtype="<u8").tobytes()
    assert b"the file system is full" in done.stdout


def test_a_file_that_exists_is_continued_or_replaced_only_if_that_is_wanted(tmp_path, payload):
    out = tmp_path / "out.raw"
    out.write_bytes(b"before")
    said = run("record", f"file:{payload}", "--to", f"file:{out}", code=REFUSED).stderr
    assert b"exists" in said and b"existing=append" in said and out.read_bytes() == b"before"
    run("record", f"file:{payload}", "--to", f"file:{out}?existing=append")
    assert out.read_bytes() == b"before" + payload.read_bytes()
    run("record", f"file:{payload}", "--to", f"file:{out}?existing=overwrite")
    assert out.read_bytes() == payload.read_bytes()
    said = run("record", f"file:{out}", "--to", f"file:{out}?existing=overwrite", code=REFUSED).stderr
    assert b"is the source" in said and out.read_bytes() == payload.read_bytes()


REFUSALS = [
    (("udp://127.0.0.1:{a}", "udp://127.0.0.1:{b}", "--to", "file:{out}"), "one stream"),
    (("pattern:prbs31", "pattern:prbs31?name=other", "--to", "-"), "one stream"),
    (("-", "-", "--store", "{store}", *NAMED), "are one source"),
    (("file:{payload}?format=vdif", "--store", "{store}", *NAMED), "not counted"),
    (("file:{payload}.none", "--store", "{store}", *NAMED), "No such file"),
    (("pattern:prbs31", "--to", "file:{out}", "--scans", "2", "--bytes", "1MB"), "one scan"),
    (("pattern:prbs31", "--to", "file:{store}/none/x"), "there is no directory"),
    (("pattern:prbs31", "--to", "file:{store}"), "irectory"),
    (("pattern:prbs31", "--to", "file:{out}", "--to", "file:{out}"), "two sinks"),
    (("pattern:prbs31", "--arm", "--to", "file:{out}"), "none is a source"),
    (("pattern:stripes", "--to", "file:{out}"), "stripes"),
]


@pytest.mark.parametrize(("words", "reason"), REFUSALS, ids=[reason for _, reason in REFUSALS])
def test_what_makes_no_sense_is_refused_with_the_reason(words, reason, tmp_path, store, payload):
    a = free_port()
    places = {"a": a, "b": a + 1, "out": tmp_path / "out", "store": store, "payload": payload}
    said = run("record", *(word.format(**places) for word in words), code=REFUSED).stderr.decode()
    assert reason in said, said
    assert not (tmp_path / "out").exists() and not list(store.glob("test*"))
