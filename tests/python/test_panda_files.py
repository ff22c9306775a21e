"""Files of a PandA and actions of other programs on them: readers that stay, other recorders, names that change,
directories that take no file, stores that lack a part. The reference for samples is that of `test_panda.py`."""

import json
import socket
import struct
import threading

import h5py
import hdf5plugin  # noqa: F401  registers filters that h5py does not include
import numpy as np
import pytest

from fullbore import FOUND, GOOD, REFUSED, Recording, ask, free_port, run, text
from panda import Panda, recording
from test_panda import check_raw


def recorded(path, samples=20_000, *options):
    with Panda("--samples", samples) as panda, recording(panda, path, "--raw", "--arm", *options) as record:
        return record.ends()[0]


@pytest.mark.parametrize("other", [np.arange(3), "scalar", np.zeros((5, 2))], ids=["short", "scalar", "wide"])
def test_an_ended_file_keeps_what_others_have_put_in_it(other, tmp_path):
    path = tmp_path / "x.h5"
    recorded(path)
    with h5py.File(path, "a") as file:
        file["energy"] = other
    before = path.read_bytes()
    told = ask("recover", path)
    assert (told["rows"], told["cut"], told["ended"]) == (20_000, 0, True)
    assert path.read_bytes() == before
    # It can be continued all the same.
    recorded(path, 5000, "--existing", "append")
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["energy"][()], other.encode() if isinstance(other, str) else other)
        assert len(file["PCAP.BITS0.Value"]) == 25_000


@pytest.mark.parametrize("has", ["none", "gzip:1", "bitshuffle"])
def test_acquisitions_and_scans_are_added_with_the_compression_of_the_file(has, store, tmp_path):
    path, samples = tmp_path / "all.h5", 100_000
    recorded(path, samples, "--rate", 1e6, "--compression", has)
    recorded(path, samples, "--rate", 1e6, "--existing", "append")
    with Panda("--samples", samples) as panda:
        other = "none" if has != "none" else "gzip:1"
        options = (path, "--raw", "--arm", "--existing", "append", "--compression", other)
        said = text(run("panda", "record", panda.endpoint, *options, code=REFUSED).stderr)
        assert f"its compression is {has}, and {other} was asked for" in said
        assert not panda.all("begun")
        with Recording(panda.endpoint, store=store, options=("--arm",)) as record:
            record.sealed()
    to = f"hdf5:{path}?scaled=false&existing=append"
    run("convert", f"store:{record.scan}", to, "--store", store)
    held = path.read_bytes()
    done = run("convert", f"store:{record.scan}", f"{to}&compression={other}", "--store", store, code=REFUSED)
    assert f"its compression is {has}" in text(done.stderr)
    assert path.read_bytes() == held
    with h5py.File(path) as file:
        assert list(file["acquisitions/rows"]) == [samples] * 3
        for name in ("PCAP.BITS0.Value", "COUNTER3.OUT.Value"):
            np.testing.assert_array_equal(file[name][()], np.tile(np.arange(samples), 3), err_msg=name)


def test_a_file_that_is_being_written_is_not_replaced(tmp_path):
    path = tmp_path / "x.h5"
    with Panda("--rate", 100_000) as panda, Panda("--samples", 1000) as other:
        with recording(panda, path, "--raw", "--arm") as record:
            record.wait_visible(20_000)
            for name in (path, tmp_path / "%d.h5"):
                (tmp_path / "1.h5").unlink(missing_ok=True)
                (tmp_path / "1.h5").hardlink_to(path)
                words = ("panda", "record", other.endpoint, name, "--arm", "--existing", "overwrite")
                assert "has it open" in text(run(*words, code=REFUSED).stderr)
            to = f"hdf5:{path}?existing=overwrite"
            words = ("record", f"udp://127.0.0.1:{free_port()}?format=vdif", "--to", to, "--duration", "1s")
            assert "has it open" in text(run(*words, code=REFUSED).stderr)
            assert not other.all("begun")
            record.interrupt()
            done = record.ends()[0]
    assert done["verdict"] == "proven"
    check_raw(path, count=done["samples"])


def test_an_ending_goes_to_the_file_that_was_open_whatever_its_name_is_by_then(tmp_path):
    path, moved = tmp_path / "x.h5", tmp_path / "moved.h5"
    with Panda("--rate", 100_000) as panda, recording(panda, path, "--raw", "--arm") as record:
        record.wait_visible(20_000)
        path.rename(moved)
        path.write_bytes(b"somebody else's")
        record.interrupt()
        done = record.ends()[0]
    assert path.read_bytes() == b"somebody else's"
    assert done["verdict"] == "proven" and any(str(moved) in note for note in done["notes"]), done["notes"]
    check_raw(moved, count=done["samples"])
    with h5py.File(moved) as file:
        assert (file.attrs["verdict"], file.attrs["samples"]) == ("proven", done["samples"])


def test_a_file_that_was_removed_is_told_of_and_holds_nothing(tmp_path):
    path = tmp_path / "x.h5"
    with Panda("--rate", 100_000) as panda, recording(panda, path, "--raw", "--arm") as record:
        record.wait_visible(20_000)
        path.unlink()
        record.interrupt()
        done = record.ends(code=None)[0]
        assert record.process.returncode != GOOD and "it was removed" in record.said()
    assert done["samples"] == 0 and "it was removed" in done["reason"]
    assert done["terms"]["overrun"] == done["terms"]["expected"] > 20_000


@pytest.mark.parametrize("swmr", [True, False], ids=["swmr", "plain"])
def test_a_reader_that_stays_does_not_split_acquisitions_of_one_file(swmr, tmp_path):
    path = tmp_path / "all.h5"
    with Panda("--rate", 200_000) as panda:
        options = ("--raw", "--num", 3, "--flush", "100ms")
        with recording(panda, path, *options) as record:
            record.wait("connected")
            run("panda", "arm", panda.endpoint)
            record.wait_visible(20_000)
            if swmr:
                reader = h5py.File(path, "r", libver="latest", swmr=True)
            run("panda", "disarm", panda.endpoint)
            first = record.wait_ended()["samples"]
            if not swmr:
                reader = h5py.File(path, "r")
            column = reader["PCAP.BITS0.Value"]
            for number in (2, 3):
                run("panda", "arm", panda.endpoint)
                record.wait_visible(20_000, scan=number)
                if swmr:
                    column.refresh()
                    assert len(column) > first
                np.testing.assert_array_equal(column[:first], np.arange(first))
                run("panda", "disarm", panda.endpoint)
                record.wait_ended(number)
            ended = record.ends()
            assert not record.all("alternate")
            if swmr:
                column.refresh()
                assert len(column) == sum(done["samples"] for done in ended)
                column[()]
            reader.close()
    with h5py.File(path) as file:
        assert list(file["acquisitions/rows"]) == [done["samples"] for done in ended]
        expected = np.concatenate([np.arange(done["samples"]) for done in ended])
        np.testing.assert_array_equal(file["PCAP.BITS0.Value"][()], expected)


def test_a_file_made_of_a_damaged_store_says_what_it_lacks(store, tmp_path):
    samples = 1_500_000
    with Panda("--samples", samples) as panda:
        with Recording(panda.endpoint, store=store, options=("--arm", "--chunk", "16MB")) as record:
            record.sealed()
    chunks = sorted(path for path in (store / record.scan).iterdir() if path.is_file())
    chunks[len(chunks) // 2].unlink()
    path = tmp_path / "x.h5"
    to = f"hdf5:{path}?scaled=false"
    refused = run("convert", f"store:{record.scan}", to, "--store", store, code=REFUSED)
    assert "the conversion stopped after" in text(refused.stderr) and "--allow-damaged" in text(refused.stderr)
    assert not path.exists()
    run("convert", f"store:{record.scan}", to, "--store", store, "--allow-damaged", code=FOUND)
    with h5py.File(path) as file:
        attributes = dict(file.attrs)
        rows = file["PCAP.BITS0.Value"][()].astype(np.int64)
    closed = json.loads(attributes["account"])
    terms, lost = closed["account"]["terms"], samples - len(rows)
    assert lost > 0 and attributes["verdict"] == "consistent"
    assert f"{lost} frames" in attributes["end_reason"] and any(f"{lost} frames" in it for it in closed["notes"])
    assert (terms["expected"], terms["written"], terms["damaged"]) == (samples, len(rows), lost)
    gaps = [(gap["first"], gap["count"]) for gap in closed["account"]["gaps"]]
    missing = np.concatenate([np.arange(first, first + count) for first, count in gaps])
    np.testing.assert_array_equal(rows, np.setdiff1d(np.arange(samples), missing))


def test_what_is_to_be_replaced_is_there_until_it_can_be_recorded(tmp_path):
    path = tmp_path / "x.h5"
    recorded(path, 1000)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        source = f"udp://127.0.0.1:{taken.getsockname()[1]}?format=vdif"
        run("record", source, "--to", f"hdf5:{path}?existing=overwrite", "--duration", "1s", code=REFUSED)
    check_raw(path, count=1000)


def test_a_place_that_takes_no_file_is_found_before_anything_is_armed():
    with Panda("--samples", 1000) as panda:
        done = run("panda", "record", panda.endpoint, "/proc/x.h5", "--arm", code=REFUSED)
        assert "no file can be made there" in text(done.stderr)
        assert not panda.all("begun")


def test_after_a_file_that_could_not_be_made_nothing_more_is_armed(tmp_path):
    folder = tmp_path / "goes"
    folder.mkdir()
    with Panda("--samples", 20_000) as panda:
        with recording(panda, folder / "x-%d.h5", "--raw", "--arm", "--num", 50) as record:
            record.wait_ended()
            folder.rename(tmp_path / "gone")
            ended = record.ends(code=None)
            assert record.process.returncode != GOOD
        assert len(panda.all("begun")) == len(ended) < 50
    assert ended[-1]["samples"] == 0 and "No such file" in ended[-1]["reason"]


def test_the_account_in_the_file_counts_its_bytes(tmp_path):
    done = recorded(tmp_path / "x.h5", 2000)
    with h5py.File(tmp_path / "x.h5") as file:
        assert json.loads(file.attrs["account"])["account"]["bytes"] == done["bytes"] > 2000


def taken_beyond(panda, samples):
    """Waits until the PandA has taken more than `samples` samples."""
    host, port = panda.listening["control"].rsplit(":", 1)
    with socket.create_connection((host, port)) as control:
        answers = control.makefile("rb")
        taken = 0
        while taken <= samples:
            control.sendall(b"*PCAP.CAPTURED?\n")
            taken = int(answers.readline().split(b"=")[1])


@pytest.mark.parametrize("existing", ["refuse", "append"])
def test_what_a_killed_recorder_had_joined_late_for_is_missing(existing, tmp_path):
    path, before = tmp_path / "x.h5", 0
    if existing == "append":
        before = recorded(path, 1000)["samples"]
    with Panda("--rate", 1e6, "--ring", "4MiB") as panda:
        run("panda", "arm", panda.endpoint)
        taken_beyond(panda, 200_000)
        with recording(panda, path, "--raw", "--flush", "100ms", "--existing", existing) as record:
            record.wait_visible(50_000)
            record.process.kill()
            record.process.wait()
    ask("recover", path)
    with h5py.File(path) as file:
        missed = file["acquisitions/missed"][1] if before else file.attrs["missed"]
        assert file.attrs["missing"] == missed > 0
        if before:
            assert list(file["acquisitions/missing"]) == [0, missed]
            assert file["acquisitions/missed"][0] == 0


@pytest.mark.parametrize("kept", [b"", b"OK\n", b"OK\n<header>\n<data mis"], ids=["empty", "greeting", "part"])
def test_a_stream_that_ends_before_its_header_is_named(kept, tmp_path):
    dump = tmp_path / "part.bin"
    dump.write_bytes(kept)
    said = text(run("convert", f"file:{dump}", tmp_path / "x.h5", code=REFUSED).stderr)
    assert "part.bin: it ends before a header" in said
    assert not (tmp_path / "x.h5").exists()


def test_why_a_connection_broke_is_said(tmp_path):
    def reset(server):
        while True:
            try:
                taken, _ = server.accept()
            except OSError:
                return
            taken.recv(100)
            taken.sendall(b"OK\n")
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            taken.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=reset, args=(server,), daemon=True).start()
        port = server.getsockname()[1]
        with recording(f"panda://127.0.0.1:1?data={port}", tmp_path / "x.h5") as record:
            record.ends(code=REFUSED)
            assert "reset by peer" in record.said()


def test_parameters_without_their_scheme_are_no_name(tmp_path):
    with Panda("--samples", 1000) as panda:
        name = f"{tmp_path}/h.h5?scaled=false"
        assert f"hdf5:{name}" in text(run("panda", "record", panda.endpoint, name, "--arm", code=REFUSED).stderr)
        assert not panda.all("begun")
    assert list(tmp_path.iterdir()) == []
