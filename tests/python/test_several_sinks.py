"""Several sinks of one recording: each has the truth, and one that fails does not end the others."""

import json
import signal
import subprocess
import time

import h5py
import numpy as np
import pytest
from fullbore import (
    BINARY,
    FOUND,
    GOOD,
    INCOMPLETE,
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

# A length that is no multiple of a block, nor of 4096.
BYTES = (9 << 20) + 4320


def truth(count=BYTES):
    return np.arange(count // 8, dtype="<u8").tobytes()


def sealed_of(output):
    lines = [line for line in output.splitlines() if line[:1] == b"{"]
    return [event for event in map(json.loads, lines) if event["event"] == "sealed"]


def whole(sealed):
    assert all(sink["lacking"] == 0 and sink["failure"] is None for sink in sealed["sinks"]), sealed["sinks"]


def in_store(store, name="test_one"):
    assert ask("verify", name, "--store", store, code=INTACT)["good"]
    return Scan(name, [store]).bytes()


def bytes_of(path):
    """The bytes of the only stream of an HDF5 file."""
    with h5py.File(path) as file:
        return file["data"][()].tobytes()


def test_a_store_a_container_a_file_and_standard_output_hold_the_same_bytes(tmp_path, store):
    raw, container = tmp_path / "x.raw", tmp_path / "x.h5"
    source = f"pattern:counter?bytes={BYTES}"
    sinks = ["--store", store, *NAMED, "--to", f"hdf5:{container}", "--to", f"file:{raw}", "--to", "-"]
    done = run("record", source, *sinks, "--json", "--buffer", "16MiB")
    (sealed,) = sealed_of(done.stderr)
    assert done.stdout == raw.read_bytes() == in_store(store) == bytes_of(container) == truth()
    whole(sealed)
    assert [sink["place"] for sink in sealed["sinks"]] == [*map(str, [store, container, raw]), "standard output"]
    assert [sink["bytes"] for sink in sealed["sinks"]] == [BYTES] * 4


def test_frames_of_datagrams_are_in_every_sink_in_the_order_of_the_stream(tmp_path, stores):
    # Several members complete blocks in any order; a file must still be in order.
    port, raw = free_port(), tmp_path / "x.vdif"
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=2000&block=64KiB"
    members = ",".join(map(str, stores))
    command = [BINARY, "record", source, "--store", members, *NAMED, "--to", f"file:{raw}", "--json", "--buffer", "64MiB"]
    recording = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for line in recording.stdout:
        if json.loads(line)["event"] == "armed":
            break
    generate(port, frames=6000, fps=2000)
    time.sleep(1)
    recording.send_signal(signal.SIGINT)
    out, said = recording.communicate(timeout=PATIENCE)
    (sealed,) = sealed_of(out)
    assert recording.returncode == GOOD, (sealed["headline"], text(said))
    whole(sealed)
    frames = Scan("test_one", stores).bytes()
    assert raw.read_bytes() == frames and sealed["accounts"][0]["terms"]["written"] == 6000
    assert ask("verify", "test_one", "--store", members, code=INTACT)["good"]


@pytest.mark.parametrize("first", ["full", "whole"])
def test_a_full_disk_ends_one_sink_and_the_other_is_complete(tmp_path, store, memory_disk, first):
    small = memory_disk("8m")
    full, to_store = ["--to", f"file:{small / 'x'}"], ["--to", f"file:{tmp_path / 'y'}"]
    sinks = full + to_store if first == "full" else to_store + full
    done = run("record", "pattern:counter?bytes=60MB", *sinks, "--json", code=FOUND)
    (sealed,) = sealed_of(done.stdout)
    assert (tmp_path / "y").read_bytes() == truth(60_000_000)
    written = (small / "x").read_bytes()
    assert 0 < len(written) <= 8 << 20 and written == truth(len(written))
    (bad,) = [sink for sink in sealed["sinks"] if sink["place"] == str(small / "x")]
    (good,) = [sink for sink in sealed["sinks"] if sink["place"] == str(tmp_path / "y")]
    assert (good["bytes"], good["lacking"], good["failure"]) == (60_000_000, 0, None) and "accounts" not in good
    assert sealed["headline"].startswith(good["headline"]) and good["verdict"] == bad["verdict"] == "unproven"
    assert bad["headline"].startswith(f"LOST {bad['lacking']:,} of 60,000,000 bytes".replace(",", " ")), bad["headline"]
    assert bad["failure"] == "the file system is full" and bad["lacking"] == 60_000_000 - len(written)
    (account,) = bad["accounts"]
    assert account["terms"]["written"] == len(written) == bad["bytes"]
    assert account["terms"]["overrun"] == bad["lacking"]
    assert sealed["accounts"][0]["terms"]["overrun"] == 0 and sealed["lost"] == 0


def test_a_store_that_is_full_says_itself_what_it_lacks(tmp_path, memory_disk):
    small, raw = memory_disk("40m"), tmp_path / "x.raw"
    sinks = ["--store", small, *NAMED, "--chunk", "4MiB", "--to", f"file:{raw}"]
    done = run("record", "pattern:counter?bytes=80MB", *sinks, "--json", code=FOUND)
    (sealed,) = sealed_of(done.stdout)
    assert raw.read_bytes() == truth(80_000_000) and sealed["accounts"][0]["terms"]["overrun"] == 0
    kept, _ = sealed["sinks"]
    (account,) = kept["accounts"]
    found = Scan("test_one", [small]).bytes()
    assert len(found) == account["terms"]["written"] == kept["bytes"] < 80_000_000
    assert found == truth(len(found)) and account["terms"]["overrun"] == 80_000_000 - len(found) == kept["lacking"]
    # The store's own account agrees with its data.
    told = ask("verify", "test_one", "--store", small, code=INCOMPLETE)
    assert told["good"] and told["lost"] == kept["lacking"], told


def test_an_abort_is_an_exact_account_of_each_sink(tmp_path, store):
    command = [BINARY, "record", "pattern:counter", "--store", store, *NAMED, "--to", "-", "--buffer", "4MiB", "--json"]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    abort(process)
    data, said = process.communicate(timeout=PATIENCE)
    (sealed,) = sealed_of(said)
    assert process.returncode == FOUND and sealed["manifest"]["state"] == "aborted"
    kept, passed = sealed["sinks"]
    assert data == truth(len(data)) and passed["bytes"] == len(data) <= kept["bytes"]
    stored = Scan("test_one", [store]).bytes()
    assert stored == truth(len(stored)) and kept["bytes"] == len(stored)
    terms = sealed["accounts"][0]["terms"]
    assert terms["expected"] == terms["written"] + terms["overrun"] and terms["written"] == len(stored)


def test_a_slow_sink_holds_the_source_back_and_nothing_is_lost(tmp_path, store):
    source = "pattern:counter?rate=20MB/s&bytes=20MB"
    command = [BINARY, "record", source, "--store", store, *NAMED, "--to", "-", "--buffer", "2MiB"]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(3)
    data, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == GOOD, text(said)
    assert data == in_store(store) == truth(20_000_000) and "held up" in text(said)


def test_several_scans_go_into_two_stores(tmp_path, stores):
    source, sinks = "pattern:counter?bytes=9MiB", ["--store", stores[0], "--to", f"store:{stores[1]}"]
    done = run("record", source, *sinks, *NAMED, "--scans", 3, "--bytes", 3 << 20, "--json")
    for sealed in sealed_of(done.stdout):
        whole(sealed)
    for store in stores[:2]:
        parts = [in_store(store, f"test_one000{n}") for n in (1, 2, 3)]
        assert b"".join(parts) == truth(9 << 20) and [len(part) for part in parts] == [3 << 20] * 3


def test_two_stores_are_never_read_as_one_disk_set(stores):
    one, other = stores[:2]
    source = f"pattern:counter?bytes={BYTES}"
    done = run("record", source, "--store", one, "--to", f"store:{other}", *NAMED, "--json")
    (sealed,) = sealed_of(done.stdout)
    identities = [ask("verify", "test_one", "--store", store, code=INTACT)["uuid"] for store in (one, other)]
    assert identities == [sink["uuid"] for sink in sealed["sinks"]] and len(set(identities)) == 2
    for command in (["verify", "test_one"], ["cat", "test_one"], ["recover", "test_one"]):
        said = text(run(*command, "--store", f"{one},{other}", code=REFUSED).stderr)
        assert "test_one" in said and "the members of one of them" in said, said
    assert in_store(one) == in_store(other) == truth()


def test_each_acquisition_of_a_panda_is_a_scan_in_the_store_and_a_file(tmp_path, store):
    sinks = ["--store", store, "--session", "test", "--scan", "no", "--to", f"hdf5:{tmp_path}/x-%d.h5?scaled=false"]
    with Panda("--samples", 20_000) as panda:
        done = run("record", panda.endpoint, "--arm", "--scans", 2, *sinks, "--json")
    both = sealed_of(done.stdout)
    assert len(both) == 2
    for number, sealed in enumerate(both, 1):
        whole(sealed)
        words = np.frombuffer(in_store(store, f"test_no000{number}"), dtype="<u4").reshape(20_000, -1)
        assert (words == np.arange(20_000, dtype="<u4")[:, None]).all()
        with h5py.File(tmp_path / f"x-{number}.h5") as file:
            assert (file["PCAP.BITS0.Value"][()] == np.arange(20_000)).all()


def test_a_reader_that_goes_away_does_not_end_the_store(store):
    source = "pattern:counter?rate=50MB/s&bytes=60MB"
    command = [BINARY, "record", source, "--store", store, *NAMED, "--to", "-", "--json"]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(1_000_000)
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(PATIENCE) == FOUND, text(said)
    (sealed,) = sealed_of(said)
    assert in_store(store) == truth(60_000_000)
    assert sealed["sinks"][0]["lacking"] == 0 and sealed["sinks"][1]["failure"] == "the reader closed the pipe"


def test_a_device_and_a_file_take_the_same_stream(tmp_path):
    drive, raw = tmp_path / "disk.img", tmp_path / "x.raw"
    sinks = ["--to", f"device:{drive}?size=64MiB", *NAMED, "--to", f"file:{raw}"]
    done = run("record", f"pattern:counter?bytes={BYTES}", *sinks, "--json")
    (sealed,) = sealed_of(done.stdout)
    whole(sealed)
    assert raw.read_bytes() == truth() == run("cat", f"device:{drive}?scan=test_one").stdout


def test_a_store_can_be_named_as_a_sink(store):
    run("record", f"pattern:counter?bytes={BYTES}", "--to", f"store:{store}", *NAMED, "--chunk", "4MiB")
    assert in_store(store) == truth()


REFUSALS = [
    (["--to", "file:{out}", "--to", "file:{out}"], "two sinks"),
    (["--to", "file:{out}", "--to", "file:{link}"], "two sinks"),
    (["--to", "-", "--to", "-"], "two sinks"),
    (["--store", "{store}", *NAMED, "--to", "store:{store}"], "two sinks"),
    (["--to", "hdf5:{out}", "--to", "file:{out}"], "two sinks"),
    (["--to", "device:{out}?size=64MiB", "--to", "file:{out}"], "two sinks"),
    (["--to", "file:{out}", "--to", "-", "--keep", "1GB"], "it is for a store"),
    (["--to", "file:{out}", "--to", "-", "--chunk", "1GB"], "it is for a store"),
    (["--to", "file:{out}", "--store", "{store}", *NAMED, "--flush"], "for a device"),
    (["--to", "file:{out}", "--store", "{store}", *NAMED, "--scans", "2", "--bytes", "1MB"], "one scan"),
    (["--to", "store:", *NAMED], "give a directory"),
    (["--store", "{store}", "--to", "file:{out}"], "--session"),
]


@pytest.mark.parametrize(("words", "reason"), REFUSALS, ids=[" ".join(words) for words, _ in REFUSALS])
def test_what_has_no_meaning_is_refused_with_the_reason(words, reason, tmp_path, store):
    (tmp_path / "folder").symlink_to(tmp_path)
    places = {"out": tmp_path / "out", "store": store, "link": tmp_path / "folder" / "out"}
    said = run("record", "pattern:prbs31", *(word.format(**places) for word in words), code=REFUSED).stderr.decode()
    assert reason in said, said
    assert not (tmp_path / "out").exists() and not list(store.glob("test*"))


def test_one_file_system_must_hold_the_data_of_all_sinks_on_it(memory_disk, store):
    small = memory_disk("64m")
    sinks = ["--to", f"file:{small / 'a'}", "--to", f"file:{small / 'b'}", "--bytes", "40MB"]
    said = run("record", "pattern:counter?bytes=40MB", *sinks, code=REFUSED).stderr.decode()
    assert "free in all" in said, said
