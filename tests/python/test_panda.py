"""`fullbore panda record` through the binary: recorded streams, faults, and the files as h5py reads them.

The reference for files is the output of PandABlocks-client for the same stream. The reference for samples is the
simulated PandA, in which every 32-bit word of raw sample i is i, so that a torn or overwritten sample is detected.
"""

import base64
import gzip
import json
import signal
import socket
import struct
import subprocess
import threading
import time
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import wire

from conftest import seeds
from fullbore import AS_SEALED, BINARY, FOUND, GOOD, INTACT, PATIENCE, REFUSED, Recording, Scan, accounts, ask, free_port, free_ports, run, text
from lines import MARKS, RECEIVER, Pair, until, within
from panda import DATA, Panda, Told, number_of, recording, serve, stream_of
from test_documents import schema


DOCS = Path(__file__).resolve().parents[2] / "docs"


def columns(file):
    return {name: set_[()] for name, set_ in file.items() if isinstance(set_, h5py.Dataset)}


def check_raw(path, missed=0, count=None, gaps=()):
    """Every sample of a raw file has its own index; returns the number of samples."""
    with h5py.File(path, "r") as file:
        first = file["PCAP.BITS0.Value"][()].astype(np.int64)
        expected = np.arange(missed, missed + len(first) + sum(n for _, n in gaps))
        for at, n in reversed(sorted(gaps)):
            expected = np.delete(expected, np.s_[at - missed : at - missed + n])
        np.testing.assert_array_equal(first, expected[: len(first)])
        low = np.uint32(first & 0xFFFF_FFFF)
        for name, values in columns(file).items():
            assert len(values) == len(first), name
            if values.dtype.itemsize == 4:
                np.testing.assert_array_equal(values.view(np.uint32), low, err_msg=name)
            else:
                doubled = low.astype(np.uint64) * np.uint64(2**32 + 1)
                np.testing.assert_array_equal(values.view(np.uint64), doubled, err_msg=name)
    if count is not None:
        assert len(first) == count
    return len(first)


def client_writes(bytes_, folder):
    """The output of PandABlocks-client's own writer for a stream, a file for each acquisition."""
    from pandablocks.connections import DataConnection
    from pandablocks.hdf import create_default_pipeline, stop_pipeline

    template = str(folder / "client-%d.h5")
    scheme = (template % n for n in range(1, 100))
    pipeline = create_default_pipeline(scheme, {})
    connection = DataConnection()
    connection.connect(scaled=False)
    ended = 0
    for at in range(0, len(bytes_), 4096):
        for data in connection.receive_bytes(bytes_[at : at + 4096], flush_every_frame=True):
            pipeline[0].queue.put_nowait(data)
    stop_pipeline(pipeline)
    return sorted(folder.glob("client-*.h5"))


def load(dump):
    raw = dump.read_bytes()
    return gzip.decompress(raw) if dump.suffix == ".gz" else raw


@pytest.mark.parametrize(
    "dump, acquisitions",
    [
        ("raw_ok.bin.gz", 1), ("scaled_ok.bin.gz", 1), ("raw_2acq.bin.gz", 2),
        ("raw_anon_samples.bin.gz", 1), ("client-dumps/slow_dump.bin", 1),
        ("client-dumps/fast_dump.bin", 1), ("client-dumps/raw_dump.bin", 1),
        ("client-dumps/raw_dump_no_duration.bin", 1),
    ],
)  # fmt: skip
def test_a_recorded_stream_gives_the_file_that_the_client_writes(dump, acquisitions, tmp_path):
    client = client_writes(load(DATA / dump), tmp_path)
    assert len(client) == acquisitions
    with serve(DATA / dump, tmp_path) as panda:
        with recording(panda, tmp_path / "ours-%d.h5", "--num", acquisitions) as record:
            ended = record.ends()
    assert [done["verdict"] for done in ended] == ["proven"] * acquisitions
    for number, theirs in enumerate(client, 1):
        with h5py.File(theirs) as theirs, h5py.File(tmp_path / f"ours-{number}.h5") as ours:
            for name, value in theirs.attrs.items():
                assert ours.attrs[name] == value, name
            names = {name for name in ours if isinstance(ours[name], h5py.Dataset)}
            assert names >= set(theirs)
            for name in theirs:
                assert ours[name].dtype == theirs[name].dtype, name
                got, wanted = ours[name][()], theirs[name][()]
                # If the gate was never open, the client divides by zero: infinity, or NaN.
                finite = np.isfinite(wanted)
                np.testing.assert_allclose(got[finite], wanted[finite], rtol=1e-15, err_msg=name)
                assert not np.isfinite(got[~finite]).any()


def test_text_headers_are_read_too(tmp_path):
    with serve(DATA / "raw_texthdr.bin.gz", tmp_path) as panda:
        with recording(panda.endpoint + "&xml=false", tmp_path / "x.h5", "--raw") as record:
            assert record.ends()[0]["samples"] == 5000
    assert check_raw(tmp_path / "x.h5") == 5000


@pytest.mark.parametrize("options", [[], ["--raw"], ["--raw", "--compression", "gzip:1"]])
def test_acquisitions_are_armed_and_recorded_one_after_the_other(options, tmp_path):
    with Panda("--samples", 30_000, "--rate", 1e6) as panda:
        file = tmp_path / "a-%d.h5"
        with recording(panda, file, "--num", 3, "--arm", *options) as record:
            ended = record.ends()
    assert [done["number"] for done in ended] == [1, 2, 3]
    assert {(done["samples"], done["verdict"], done["reason"]) for done in ended} == {
        (30_000, "proven", "Ok")
    }
    assert {done["captured"] for done in ended} == {30_000}
    for number in (1, 2, 3):
        path = tmp_path / f"a-{number}.h5"
        if "--raw" in options:
            check_raw(path, count=30_000)
        else:
            with h5py.File(path) as got:
                np.testing.assert_array_equal(got["COUNTER3.OUT.Value"][()], np.arange(30_000))
                wanted = np.arange(30_000) * 0.5 + 3
                np.testing.assert_array_equal(got["COUNTER2.OUT.Min"][()], wanted)
                assert got["COUNTER2.OUT.Min"].attrs["units"] == "mm"
                assert got.attrs["verdict"] == "proven" and got.attrs["samples"] == 30_000


def test_several_acquisitions_go_into_one_file_with_an_index(tmp_path):
    with Panda("--samples", 2_500) as panda:
        with recording(panda, tmp_path / "all.h5", "--num", 3, "--arm", "--raw") as record:
            assert len(record.ends()) == 3
    with h5py.File(tmp_path / "all.h5") as file:
        words = file["PCAP.BITS0.Value"][()]
        np.testing.assert_array_equal(words, np.tile(np.arange(2_500), 3))
        rows = [list(set_[()]) for name, set_ in file["acquisitions"].items() if name.startswith("first")]
        assert rows == [[0, 2_500, 5_000]]


def test_an_overrun_is_joined_again_and_goes_on_to_the_end(tmp_path):
    options = ("--samples", 4_000_000, "--ring", "16MiB", "--fault", "overrun@1000000")
    with Panda(*options) as panda:
        with recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
            done = record.ends(code=FOUND)[0]
    assert (done["reason"], done["verdict"]) == ("Ok", "consistent"), done
    assert done["terms"]["damaged"] > 0 and len(done["connections"]) == 2
    gaps = [(gap["first"], gap["count"]) for gap in done["gaps"]]
    check_raw(tmp_path / "x.h5", count=4_000_000 - sum(count for _, count in gaps), gaps=gaps)


@pytest.mark.parametrize("rate", [(), ("--rate", "5e6")])
def test_an_overrun_happens_with_the_settings_of_the_help(rate, tmp_path):
    help = run("simulate", "panda", "--help").stdout.decode()
    assert "--samples 5e6" in help and "--fault overrun@1000000" in help
    with Panda("--samples", "5e6", "--fault", "overrun@1000000", *rate) as panda:
        with recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
            done = record.ends(code=FOUND)[0]
    assert (done["reason"], done["verdict"], done["captured"]) == ("Ok", "consistent", 5_000_000), done
    assert "overrun" in str(done["connections"][0]["ending"]).lower()
    gaps = [(gap["first"], gap["count"]) for gap in done["gaps"]]
    assert gaps and done["terms"]["written"] == 5_000_000 - sum(count for _, count in gaps)
    check_raw(tmp_path / "x.h5", count=done["terms"]["written"], gaps=gaps)
    said = run("simulate", "panda", "--samples", "5e6", "--fault", "overrun@9000000", code=REFUSED).stderr
    assert b"overrun@9000000" in said and b"5000000 samples" in said


def test_an_overrun_leaves_no_corrupt_sample_and_its_gap_is_known_to_the_sample(tmp_path):
    options = ("--samples", 3_000_000, "--rate", 2e6, "--ring", "16MiB")
    with Panda(*options, "--fault", "stall@1000000:500") as panda:
        with recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
            done = record.ends(code=FOUND)[0]
    terms = done["terms"]
    assert terms["expected"] == terms["written"] + terms["missing"] + terms["damaged"]
    assert terms["expected"] == done["captured"] == 3_000_000
    assert done["verdict"] == "consistent", done
    gaps = [(gap["first"], gap["count"]) for gap in done["gaps"]]
    assert sum(count for _, count in gaps) == terms["expected"] - terms["written"] > 0
    check_raw(tmp_path / "x.h5", count=terms["written"], gaps=gaps)
    assert any("Data overrun" in note for note in done["notes"])
    with h5py.File(tmp_path / "x.h5") as file:
        assert file.attrs["verdict"] == "consistent" and file.attrs["end_reason"] == done["reason"]
        # The number in the header is unchanged; the total number of missing samples is another.
        assert (file.attrs["missed"], file.attrs["missing"]) == (0, terms["missing"])


@pytest.mark.parametrize("fault", ["die@700000", "rubbish@700000", "length@700000"])
def test_a_connection_that_dies_costs_no_sample_it_can_have_again(fault, tmp_path):
    """The ring holds all of them, so a new connection gets all of them again."""
    with Panda("--samples", 1_500_000, "--fault", fault) as panda:
        with recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
            done = record.ends(code=GOOD)[0]
            assert len(record.all("lost")) == 1 and len(record.all("rejoined")) == 1
    assert done["terms"]["expected"] == done["terms"]["written"] == 1_500_000
    assert (done["verdict"], done["reason"], done["gaps"]) == ("proven", "Ok", [])
    assert len(done["connections"]) == 2 and done["duplicates"] > 0
    check_raw(tmp_path / "x.h5", count=1_500_000)


def test_a_stall_is_waited_for(tmp_path):
    with Panda("--samples", 200_000, "--fault", "stall@100000:700") as panda:
        with recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
            assert record.ends()[0]["verdict"] == "proven"
    check_raw(tmp_path / "x.h5", count=200_000)


def test_an_end_that_counts_otherwise_is_unexplained(tmp_path):
    with Panda("--samples", 10_000, "--fault", "count") as panda:
        with recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
            assert record.ends(code=FOUND)[0]["verdict"] == "unexplained"
    check_raw(tmp_path / "x.h5", count=10_000)


@pytest.mark.parametrize("reason", ["Framing error", "DMA data error", "Something else"])
def test_every_other_reason_withholds_the_last_frame(reason, tmp_path):
    with Panda("--samples", 300_000, "--fault", f"end@200000:{reason}") as panda:
        with recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
            done = record.ends(code=FOUND)[0]
    assert done["reason"] == reason and done["terms"]["damaged"] > 0
    check_raw(tmp_path / "x.h5", count=done["samples"])


@pytest.mark.parametrize("seed", seeds(6))
def test_frames_split_anywhere_are_put_together(seed, tmp_path):
    with Panda("--samples", 3_000, "--split", "--seed", seed) as panda:
        with recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
            assert record.ends()[0]["verdict"] == "proven"
    check_raw(tmp_path / "x.h5", count=3_000)


@pytest.mark.parametrize(
    "rate, samples, options, rows",
    [
        ("100", 60, [], 1024), ("100000", 60_000, [], 16_384), ("2e6", 900_000, [], 65_536),
        ("1e6", 5000, [], 8192), ("100000", 60_000, ["--rate", "1e4"], 2048), ("1e6", 300_000, ["--flush", "50ms"], 8192),
    ],
)  # fmt: skip
def test_chunks_are_sized_by_how_fast_samples_come(rate, samples, options, rows, tmp_path):
    path = tmp_path / "x.h5"
    with Panda("--samples", samples, "--rate", rate) as panda:
        with recording(panda, path, "--raw", "--arm", *options) as record:
            record.ends()
    with h5py.File(path) as file:
        (found,) = file["PCAP.BITS0.Value"].chunks
    # The machine may be busy, so a neighbouring value is acceptable; with an explicit rate, it is exact.
    assert found in ([rows] if "--rate" in options else [rows // 2, rows, rows * 2]), found
    check_raw(path, count=samples)


def test_chunks_are_sized_by_samples_that_come_long_after_arm_too(tmp_path):
    """There is no trigger for three flushes, then all samples arrive at once."""
    samples = 1_000_000

    def late(server):
        taken, _ = server.accept()
        with taken:
            taken.recv(100)
            taken.sendall(ONE_FIELD)
            time.sleep(0.6)
            for first in range(0, samples, 100_000):
                words_ = np.arange(first, first + 100_000, dtype="<i4").tobytes()
                taken.sendall(b"BIN " + struct.pack("<I", 8 + len(words_)) + words_)
            taken.sendall(b"END %d Ok\n" % samples)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=late, args=(server,), daemon=True).start()
        port = server.getsockname()[1]
        with recording(f"panda://127.0.0.1:1?data={port}", tmp_path / "x.h5", "--raw", "--flush", "200ms", "--num", 1) as record:
            record.ends(code=None)
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["A.B.Value"].chunks[0] >= 16_384
        np.testing.assert_array_equal(file["A.B.Value"][:], np.arange(samples))


def recorded(folder, form, *simulated):
    """The same samples each time: as doubles, or as the original integers."""
    path = folder / f"{form}.h5"
    with Panda("--samples", 50_000, *simulated) as panda:
        with recording(panda, path, "--arm", *(["--raw"] if form == "integers" else [])) as record:
            record.ends()
    return path


def test_integers_are_read_as_the_page_says(tmp_path):
    integers, doubles = (recorded(tmp_path, form) for form in ("integers", "doubles"))
    with h5py.File(integers) as raw, h5py.File(doubles) as scaled:
        gate = raw["PCAP.SAMPLES.Value"][:].astype(float)
        gate[gate == 0] = np.nan
        for name, column in columns(raw).items():
            attributes = raw[name].attrs
            if "scale" not in attributes:
                np.testing.assert_array_equal(column, scaled[name][:])
                continue
            value = column / gate if attributes["capture"] == "Mean" else column
            expected = attributes["scale"] * value + attributes["offset"]
            np.testing.assert_allclose(scaled[name][:], expected, rtol=1e-15, err_msg=name)


def test_integers_of_32_bits_take_half_of_what_doubles_take(tmp_path):
    fields = ("--fields", "COUNTER1.OUT Value,COUNTER2.OUT Value,COUNTER3.OUT Value")
    integers, doubles = (recorded(tmp_path, form, *fields) for form in ("integers", "doubles"))
    with h5py.File(integers) as raw, h5py.File(doubles) as scaled:
        sets = [[set_ for set_ in file.values() if isinstance(set_, h5py.Dataset)] for file in (raw, scaled)]
        stored = [sum(set_.id.get_storage_size() for set_ in of_file) for of_file in sets]
    assert stored[1] == 2 * stored[0] > 0, stored


def test_readers_follow_while_the_file_grows(tmp_path):
    path = tmp_path / "live.h5"
    with Panda("--rate", 200_000) as panda:
        with recording(panda, path, "--raw", "--arm", "--flush", "200ms") as record:
            record.wait_visible(20_000)
            with h5py.File(path, "r", libver="latest", swmr=True) as file:
                set_ = file["PCAP.BITS0.Value"]
                seen = len(set_)
                assert seen >= 20_000
                record.wait_visible(seen + 50_000)
                set_.refresh()
                assert len(set_) > seen + 40_000
                np.testing.assert_array_equal(set_[()], np.arange(len(set_)))
            record.interrupt()
            done = record.ends()[0]
    assert (done["reason"], done["verdict"]) == ("Disarmed", "proven")
    check_raw(path, count=done["samples"])


def test_a_stop_leaves_what_others_have_armed(tmp_path):
    with Panda("--rate", 300_000) as panda:
        with recording(panda, tmp_path / "x.h5", "--raw") as record:
            record.wait("connected")
            run("panda", "arm", panda.endpoint)
            record.wait_samples(50_000)
            record.interrupt()
            done = record.ends(code=FOUND)[0]
        # The acquisition continues, so its number of samples is not known yet.
        assert done["terms"]["damaged"] == 0 and done["verdict"] == "unproven"
        assert done["reason"] == "left by the recorder" and done["captured"] is None
        run("panda", "disarm", panda.endpoint)
    check_raw(tmp_path / "x.h5", count=done["samples"])


def stalled():
    """A PandA that has more samples than it sends before it is disarmed, and stops sending."""
    return Panda("--samples", 200_000, "--fault", "stall@120000:60000")


def test_a_stop_says_what_an_armed_panda_took_and_did_not_send(tmp_path):
    with stalled() as panda:
        with recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
            record.wait_samples(30_000)
            record.interrupt()
            done = record.ends(code=FOUND)[0]
    terms = done["terms"]
    assert (done["verdict"], done["reason"]) == ("consistent", "left by the recorder"), done
    assert terms["expected"] == done["captured"] > terms["written"] > 30_000
    assert terms["missing"] + terms["damaged"] == terms["expected"] - terms["written"]
    check_raw(tmp_path / "x.h5", count=terms["written"])


def test_a_stop_into_the_store_says_it_too(store, tmp_path):
    with stalled() as panda:
        with Recording(panda.endpoint, store=store, options=("--arm",)) as record:
            record.wait("progress", lambda told: told["bytes"] > 2_000_000)
            record.stop(code=FOUND)
    scan = record.on_disk()
    account = scan.document("account.json")
    assert account["verdict"] == "consistent" and account["terms"]["missing"] > 0
    np.testing.assert_array_equal(words(scan), np.arange(account["terms"]["written"]))


def test_a_stop_receives_all_that_the_panda_still_holds(tmp_path):
    """The files are slower than the samples, so the ring holds more than arrives in a few seconds."""
    with Panda("--rate", 400_000, "--ring", "1GiB") as panda:
        options = ("--raw", "--arm", "--buffer", "34MB", "--compression", "gzip:9")
        with recording(panda, tmp_path / "x.h5", *options) as record:
            record.wait("progress", lambda told: any(it["held_seconds"] > 0.5 or it["frames"] > 1_500_000 for it in told["streams"]))
            record.interrupt()
            done = record.ends()[0]
        (ended,) = panda.all("ended")
    assert (done["reason"], done["verdict"]) == ("Disarmed", "proven")
    assert done["captured"] == done["samples"] == ended["captured"]
    check_raw(tmp_path / "x.h5", count=done["samples"])


def test_an_end_before_all_acquisitions_have_come_is_told(tmp_path):
    with Panda("--samples", 1000, "--rate", 1e5) as panda:
        for number, wanted in ((1, "0 of 1 acquisitions came"), (0, "nothing is recorded")):
            # No client arms it.
            with recording(panda, tmp_path / "never-%03d.h5", "--num", number) as record:
                record.wait("connected")
                record.interrupt()
                assert record.ends(code=FOUND) == []
                assert wanted in record.warnings()
        with recording(panda, tmp_path / "a-%03d.h5", "--num", 50, "--arm") as record:
            record.wait_ended(3)
            record.interrupt()
            ended = record.ends(code=FOUND)
        assert f"{len(ended)} of 50 acquisitions came" in record.warnings()
    assert 3 <= len(ended) < 50
    assert not list(tmp_path.glob("never*"))
    names = [f"a-{number:03}.h5" for number in range(1, len(ended) + 1)]
    assert sorted(path.name for path in tmp_path.glob("a-*")) == names


def test_after_a_sigkill_all_but_the_last_flush_is_there(tmp_path):
    path = tmp_path / "killed.h5"
    with Panda("--rate", 400_000) as panda:
        with recording(panda, path, "--raw", "--arm", "--flush", "100ms") as record:
            seen = record.wait_visible(200_000)
            record.process.kill()
            record.process.wait()
    with h5py.File(path, "r", libver="latest", swmr=True) as file:
        words = file["PCAP.BITS0.Value"][()]
        assert len(words) >= seen
        np.testing.assert_array_equal(words, np.arange(len(words)))
    told = ask("recover", path)
    assert told["rows"] >= seen and not told["ended"]
    check_raw(path, count=told["rows"])


def test_a_file_that_is_being_written_is_not_recovered(tmp_path):
    path = tmp_path / "live.h5"
    with Panda("--rate", 300_000) as panda, recording(panda, path, "--raw", "--arm") as record:
        record.wait_visible(100_000)
        refused = text(run("recover", path, code=REFUSED).stderr)
        assert "has it open" in refused and "stop the programs that use it" in refused
        # Readers open it while it is written, and do not block the writer.
        with h5py.File(path, "r", libver="latest", swmr=True) as file:
            words = file["PCAP.BITS0.Value"]
            seen = len(words)
            more = record.wait_visible(2 * seen)
            words.refresh()
            assert len(words) > seen and more
        record.interrupt()
        done = record.ends()[0]
    assert done["verdict"] == "proven"
    check_raw(path, count=done["samples"])
    assert ask("recover", path)["ended"]


def test_a_server_that_goes_away_for_good_ends_it_with_what_is_certain(tmp_path):
    panda = Panda("--rate", 300_000)
    with panda, recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
        record.wait_samples(100_000)
        panda.process.kill()
        done = record.ends(code=REFUSED)[0]
        assert done["reason"] == "connection lost" and done["verdict"] == "unproven"
        assert "connecting" in record.said()
    assert check_raw(tmp_path / "x.h5", count=done["samples"]) > 100_000


def test_a_panda_that_restarts_is_found_again(tmp_path):
    first = Panda("--rate", 300_000)
    with first:
        control, data = first.listening["control"], first.listening["data"]
        file = tmp_path / "r-%d.h5"
        options = ("--raw", "--arm", "--num", 2)
        with Told("panda", "record", first.endpoint, file, *options) as record:
            record.wait_samples(50_000)
            first.process.kill()
            first.process.wait()
            with Panda("--samples", 40_000, control=control, data=data):
                ended = record.ends(code=FOUND)
    assert [done["verdict"] for done in ended] == ["unproven", "proven"]
    check_raw(tmp_path / "r-1.h5", count=ended[0]["samples"])
    check_raw(tmp_path / "r-2.h5", count=40_000)


def test_a_file_that_is_there_is_refused_before_anything_is_armed(tmp_path):
    path = tmp_path / "there.h5"
    path.write_bytes(b"not to be lost")
    with Panda("--samples", 1000) as panda:
        done = run("panda", "record", panda.endpoint, path, "--arm", code=REFUSED)
        assert b"is there already" in done.stderr and b"--existing" in done.stderr
        assert not panda.all("begun")
        with recording(panda, path, "--arm", "--raw", "--existing", "overwrite") as record:
            record.ends()
    check_raw(path, count=1000)


def test_a_disk_without_room_for_a_file_is_refused_before_anything_is_armed(memory_disk):
    mount = memory_disk("1m")
    (mount / "other").write_bytes(bytes((1 << 20) - 40_960))
    with Panda("--samples", 1000) as panda:
        with recording(panda, mount / "x.h5", "--arm") as record:
            record.ends(code=REFUSED)
            assert "not a megabyte free" in record.said() and "armed" not in record.said()
    assert [it.name for it in mount.iterdir()] == ["other"]


def test_a_full_disk_is_told_and_what_was_seen_is_kept(memory_disk):
    mount = memory_disk("24m")
    path = mount / "x.h5"
    with Panda("--rate", 400_000) as panda:
        with recording(panda, path, "--raw", "--arm", "--flush", "100ms") as record:
            done = record.ends(code=FOUND)[0]
            (said,) = (told["text"] for told in record.all("warning") if "takes no more data" in told["text"])
    # The file, the system's error, and advice: once, and without internals of libhdf5.
    assert said.count("No space left on device") == 1 and f"{path}: " in said
    assert "the disk is full (" in said and "make room" in said and "\n" not in said
    assert done["reason"] == "no more could be written: No space left on device"
    assert "0x" not in said and "errno" not in said
    assert done["terms"]["overrun"] > 0 and not any("No space" in note for note in done["notes"])
    # Every column ends at the last sample that readers had seen, and the file states how it ended.
    assert check_raw(path, count=done["samples"]) > 100_000
    with h5py.File(path) as file:
        assert file.attrs["samples"] == done["samples"]
        assert file.attrs["verdict"] == done["verdict"] != "recording"
        assert file.attrs["end_reason"] == done["reason"]
        assert json.loads(file.attrs["account"])["account"]["terms"] == done["terms"]
    assert ask("recover", path)["ended"]


@pytest.mark.parametrize("options", [(), ("--compression", "gzip:1")], ids=["plain", "gzip"])
def test_of_a_full_disk_all_is_kept_that_lies_whole_in_every_column(options, memory_disk):
    """With flushes so rare that none occurs before the disk is full."""
    mount = memory_disk("12m")
    path = mount / "x.h5"
    with Panda("--rate", 400_000) as panda:
        options = ("--raw", "--arm", "--flush", "60s", "--rate", 2000, *options)
        with recording(panda, path, *options) as record:
            done = record.ends(code=FOUND)[0]
    # All of the disk except the reserve for the ending and for HDF5 chunks that were begun.
    assert check_raw(path, count=done["samples"]) > 100_000
    with h5py.File(path) as file:
        assert file.attrs["samples"] == done["samples"] == done["terms"]["written"]
        assert file.attrs["verdict"] == done["verdict"] == "consistent"
        assert json.loads(file.attrs["account"])["account"]["terms"] == done["terms"]
        assert {len(file[name]) for name in columns(file)} == {done["samples"]}
    assert ask("recover", path)["ended"]


ONE_FIELD = (
    b"OK\n<header>\n<data missed='0' sample_bytes='4' format='Framed' process='Raw'/>\n"
    b"<fields><field name='A.B' type='int32' capture='Value'/></fields>\n</header>\n\n"
)


@pytest.mark.parametrize(
    "bytes_, word",
    [
        (ONE_FIELD.replace(b"int32", b"int31"), 'A.B.type="int31"'),
        (ONE_FIELD.replace(b"bytes='4'", b"bytes='5'"), "samples of 5 bytes, but its 1 fields take 4"),
        (ONE_FIELD.replace(b"bytes='4'", b"bytes='4000000000'"), "a sample has 1 to 4096 bytes"),
        (b"OK\n<header>\n<data sample_bytes='4' format='Framed' process='Raw'/>\n</header>\n\n", "missed"),
        (b"OK\n<header>\n<data missed='18446744073709551615' sample_bytes='4' format='Framed' process='Raw'/>"
         b"\n<fields><field name='A.B' type='int32' capture='Value'/></fields>\n</header>\n\n"
         b"BIN \x0c\0\0\0abcdEND 1 Ok\n", "no PandA takes so many"),
        (b"OK\n<header>\nnonsense <<<\n</header>\n\n", "header"),
        (b"ERR Invalid data capture option\n", "refused"),
        (b"SSH-2.0-OpenSSH\r\n", "OK"),
        (b"OK\n" + b"x" * 200_000, "header"),
    ],
)  # fmt: skip
def test_what_no_panda_sends_is_named(bytes_, word, tmp_path):
    dump = tmp_path / "bad.bin"
    dump.write_bytes(bytes_)
    done = run("convert", f"file:{dump}", tmp_path / "x.h5", code=REFUSED)
    assert word in done.stderr.decode()
    assert not (tmp_path / "x.h5").exists()


@pytest.mark.parametrize(
    "frame, word",
    [
        (b"BIN \x0d\0\0\0abcde", "a frame of 13 bytes, which is not a whole number of samples"),
        (b"BIN \xff\xff\xff\xffabcd", "a frame of 4294967295 bytes, which is more than any server sends"),
        (b"BIN \x0c\0\0\0abcdrubbish", "`rubb` is neither a frame nor the end"),
    ],
)
def test_of_a_stream_that_goes_bad_what_was_certain_is_in_the_file(frame, word, tmp_path):
    dump = tmp_path / "bad.bin"
    dump.write_bytes(ONE_FIELD + b"BIN \x10\0\0\0goodgoodBIN \x08\0\0\0" + frame)
    done = run("convert", f"file:{dump}", tmp_path / "x.h5", code=FOUND)
    assert word in done.stdout.decode()
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["A.B.Value"][:].tolist() == [int.from_bytes(b"good", "little")] * 2
        assert word in file.attrs["end_reason"] and file.attrs["verdict"] == "unproven"


def test_show_says_what_a_sample_holds_and_whether_the_rate_fits():
    with Panda() as panda:
        shown = ask("panda", "show", panda.endpoint)
        assert shown["sample_bytes"] == 60 and len(shown["columns"]) == 11
        scaled = next(c for c in shown["columns"] if c["field"] == "COUNTER2.OUT")
        assert (scaled["scale"], scaled["offset"], scaled["units"]) == (0.5, 3.0, "mm")
        assert shown["link"] == {"interface": "lo", "megabits": None} and shown["other_clients"] == []
        load = ask("panda", "show", panda.endpoint, "--rate", "4e6", code=FOUND)["load"]
        assert load["bytes_per_second"] == 240e6 and load["average"] == 5
        text = run("panda", "show", panda.endpoint, "--rate", "4e6", code=FOUND).stdout.decode()
        assert "average" in text and "60 bytes a sample" in text


def test_show_warns_of_a_rate_that_the_pandas_processor_may_not_keep():
    """Samples of 60 bytes: 48 MB/s, 54 MB/s, 120 MB/s."""
    behind = "a PandA's own processor has been seen to fall behind above 50 MB/s"
    with Panda() as panda:
        told = {
            rate: text(run("panda", "show", panda.endpoint, "--rate", rate, code=code).stdout)
            for rate, code in (("8e5", GOOD), ("9e5", GOOD), ("2e6", FOUND))
        }
    assert "48.0 MB/s" in told["8e5"] and "fall behind" not in told["8e5"]
    assert "54.0 MB/s" in told["9e5"] and behind in told["9e5"]
    assert "it does not fit: it will end in `Data overrun`" in told["2e6"]


@pytest.fixture
def pair():
    pair = Pair()
    yield pair
    pair.away()


class TestAPandaBehindALink:
    """The PandA has a network namespace of its own, and programs on it are clients on its loopback."""

    pytestmark = MARKS

    def shown(self, pair, before="true"):
        command = [*pair.sender.enter, "sh", "-c", f'{before} && exec "$@"', "sh", BINARY, "panda", "show", RECEIVER]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE)
        assert done.returncode == GOOD, text(done.stderr)
        return text(done.stdout)

    def test_the_interface_to_it_is_shown_and_a_slow_one_is_named(self, pair, tmp_path):
        speed = f"/sys/class/net/{pair.device}/speed"
        slow = tmp_path / "speed"
        slow.write_text("100\n")
        with Panda(control="0.0.0.0:8888", data="0.0.0.0:8889", wrap=pair.receiver.enter):
            fast = self.shown(pair)
            limited = self.shown(pair, before=f"mount --bind {slow} {speed}")
        known = text(subprocess.run([*pair.sender.enter, "cat", speed], capture_output=True).stdout).strip()
        assert f"through {pair.device} at {known} Mbit/s\n" in fast, fast
        line = f"through {pair.device} at 100 Mbit/s: a PandA can send 1 Gbit/s; look at the cable and the switch\n"
        assert line in limited, limited

    def test_a_client_that_runs_on_it_is_named_with_its_price(self, pair):
        price = "one runs on the PandA itself, as panda-webcontrol does: its makers measured 50 MB/s with it and one browser"
        with Panda(control="0.0.0.0:8888", data="0.0.0.0:8889", wrap=pair.receiver.enter):
            away = self.shown(pair)
            connect = lambda: socket.create_connection(("127.0.0.1", 8888))
            with within(pair.receiver.name, connect) as web:
                web.sendall(b"*IDN?\n")
                assert web.makefile("rb").readline().startswith(b"OK =PandA")
                there = self.shown(pair)
        assert "no other client is connected" in away and price not in away
        assert "1 other client, 0 of them on the data port: 127.0.0.1:" in there and price in there, there


def test_a_panda_that_is_not_there_is_named(tmp_path):
    done = run("panda", "record", "panda://127.0.0.1:1", tmp_path / "x.h5", code=REFUSED)
    assert "127.0.0.1" in done.stderr.decode()
    assert not (tmp_path / "x.h5").exists()


@pytest.mark.parametrize("dump, samples", [("raw_ok.bin.gz", 5000), ("client-dumps/raw_dump.bin", 10_000)])
def test_a_recorded_stream_is_converted_as_if_it_came_now(dump, samples, tmp_path):
    plain = tmp_path / "dump.bin"
    plain.write_bytes(load(DATA / dump))
    with serve(plain, tmp_path) as panda:
        with recording(panda, tmp_path / "live.h5") as record:
            record.ends()
    done = ask("convert", f"file:{plain}", tmp_path / "converted.h5")
    assert done["samples"] == samples
    with h5py.File(tmp_path / "live.h5") as live, h5py.File(tmp_path / "converted.h5") as ours:
        assert set(live) == set(ours)
        for name in set(live) - {"entry"}:
            assert dict(live[name].attrs) == dict(ours[name].attrs)
            np.testing.assert_array_equal(live[name][()], ours[name][()])
        # A file of bytes has no settings of the PandA.
        assert set(live.attrs) - set(ours.attrs) == {"settings"}
        for name in set(ours.attrs) - {"account"}:
            assert live.attrs[name] == ours.attrs[name], name


def test_an_overrun_that_was_recorded_withholds_its_last_frame(tmp_path):
    plain = tmp_path / "dump.bin"
    ok = load(DATA / "client-dumps/raw_dump.bin")
    plain.write_bytes(ok.replace(b"Disarmed", b"Data overrun"))
    done = ask("convert", f"file:{plain}", tmp_path / "x.h5", code=FOUND)
    assert done["terms"]["damaged"] == 1065 and done["samples"] == 10_000 - 1065


def words(scan, stream=None):
    """Samples of a scan from its chunk files: fifteen words each, all equal to the index."""
    rows = np.frombuffer(scan.bytes(stream), "<u4").reshape(-1, 15)
    assert (rows == rows[:, :1]).all()
    return rows[:, 0].astype(np.int64)


def test_each_acquisition_is_a_scan_of_packed_samples(stores):
    with Panda("--samples", 300_000) as panda:
        options = ("--scans", 3, "--arm")
        with Recording(panda.endpoint, store=stores, options=options) as record:
            record.sealed()
    for number in (1, 2, 3):
        scan = Scan(f"test_one{number:04}", stores)
        np.testing.assert_array_equal(words(scan), np.arange(300_000))
        manifest, account = scan.document("manifest.json"), scan.document("account.json")
        schema("manifest").validate(manifest)
        schema("account").validate(account)
        (stream,) = manifest["streams"]
        assert stream["format"]["ending"] == {"end": "Ok"}
        assert stream["format"]["captured"] == 300_000
        assert account["verdict"] == "proven" and account["counted_by"] == "server-count"
        run("verify", f"test_one{number:04}", "--store", ",".join(map(str, stores)), code=INTACT)


def test_an_overrun_in_the_store_is_a_gap_in_the_account_alone(store):
    options = ("--samples", 4_000_000, "--ring", "16MiB", "--fault", "overrun@1000000")
    with Panda(*options) as panda:
        with Recording(panda.endpoint, store=store, options=("--arm",)) as record:
            record.sealed(code=FOUND)
    scan = record.on_disk()
    account = scan.document("account.json")
    assert account["verdict"] == "consistent" and account["terms"]["damaged"] > 0
    expected = np.arange(4_000_000)
    for gap in reversed(account["gaps"]):
        expected = np.delete(expected, np.s_[gap["first"] : gap["first"] + gap["count"]])
    np.testing.assert_array_equal(words(scan), expected)
    run("verify", record.scan, "--store", store, code=INTACT)


@pytest.mark.parametrize("dump", ["raw_ok.bin.gz", "client-dumps/raw_dump.bin", "raw_texthdr.bin.gz"])
def test_what_is_converted_from_the_store_is_what_the_live_file_holds(dump, store, tmp_path):
    xml = "&xml=false" if "texthdr" in dump else ""
    with serve(DATA / dump, tmp_path) as panda:
        with recording(panda.endpoint + xml, tmp_path / "live.h5") as record:
            record.ends()
        with Recording(panda.endpoint + xml, store=store) as record:
            record.sealed()
    run("convert", f"store:{record.scan}", tmp_path / "converted.h5", "--store", store)
    with h5py.File(tmp_path / "live.h5") as live, h5py.File(tmp_path / "converted.h5") as ours:
        assert set(live) == set(ours)
        for name in set(live) - {"entry"}:
            assert live[name].dtype == ours[name].dtype
            assert dict(live[name].attrs) == dict(ours[name].attrs)
            np.testing.assert_array_equal(live[name][()], ours[name][()])
        assert set(live.attrs) == set(ours.attrs)
        for name in set(live.attrs) - {"account"}:
            assert live.attrs[name] == ours.attrs[name], name


def test_a_stop_seals_what_has_come_and_disarms_what_was_armed(store):
    with Panda("--rate", 300_000) as panda:
        with Recording(panda.endpoint, store=store, options=("--arm", "--scans", 5)) as record:
            record.wait("progress", lambda told: told["bytes"] > 6_000_000)
            record.stop(FOUND)
        panda.wait("ended")
    assert "1 of 5 acquisitions came" in record.last("warning")["text"]
    scan = Scan("test_one0001", [store])
    samples = words(scan)
    np.testing.assert_array_equal(samples, np.arange(len(samples)))
    assert len(samples) > 100_000
    assert scan.document("account.json")["verdict"] == "proven"


def test_a_stop_before_anything_was_armed_leaves_an_empty_scan_which_is_told(store):
    with Panda() as panda:
        with Recording(panda.endpoint, store=store) as record:
            sealed = record.stop(FOUND)
    assert sealed["manifest"]["state"] == "sealed"
    assert sealed["accounts"][0]["presence"] == [{"what": "never-came"}]


def test_after_a_sigkill_the_store_is_recovered_and_holds_true_samples(store):
    with Panda("--rate", 1e6) as panda:
        options = ("--arm", "--sync", "50ms")
        with Recording(panda.endpoint, store=store, options=options) as record:
            record.wait("progress", lambda told: told["durable_bytes"] > 30_000_000)
            record.kill()
    run("recover", record.scan, "--store", store)
    scan = record.on_disk()
    samples = words(scan)
    np.testing.assert_array_equal(samples, np.arange(len(samples)))
    assert len(samples) * 60 >= 30_000_000
    run("verify", record.scan, "--store", store, code=INTACT)
    # The recorder was killed, so the amount of further data is not known.
    run("convert", f"store:{record.scan}", store.parent / "x.h5", "--store", store, code=FOUND)
    with h5py.File(store.parent / "x.h5") as file:
        np.testing.assert_array_equal(file["PCAP.BITS0.Value"][()], np.arange(len(samples)))


def test_streams_of_a_scan_are_converted_and_shown_side_by_side(store, tmp_path):
    ports = free_ports(2)
    source = f"udp://127.0.0.1:{ports[0]}-{ports[1]}?format=vdif&fps=1000"
    frames = wire.run_of_frames(500)
    with Recording(source, store=store) as record:
        for port in ports:
            wire.send(frames, port)
        record.stop()
    told = ask("convert", f"store:{record.scan}", tmp_path / "all.h5", "--store", store)
    assert told["joined"] and len(told["streams"]) == 2
    with h5py.File(tmp_path / "all.h5") as file:
        for port in ports:
            group = file[str(port)]
            assert group["frames"][()].tobytes() == b"".join(frames)
            assert (np.diff(group["time"][()]) == 1_000_000).all()


def test_a_panda_that_is_not_there_or_not_ready_leaves_nothing_in_the_store(store):
    words = ("--store", store, "--session", "test", "--scan", "one", "--arm")
    done = run("record", "panda://127.0.0.1:1", *words, code=REFUSED)
    assert "127.0.0.1 port 2" in done.stderr.decode() and "ping" in done.stderr.decode()
    assert not list(store.glob("test*"))
    with Panda("--fields", "") as panda:
        done = run("record", panda.endpoint, *words, code=REFUSED)
        assert "Nothing configured for capture" in done.stderr.decode()
        assert not list(store.glob("test*"))
    # A web server answers too, and is no PandA.
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].sendall(b"HTTP/1.1 400\r\n\r\n")).start()
        other = f"panda://127.0.0.1:1?data={server.getsockname()[1]}"
        done = run("record", other, *words, code=REFUSED)
        assert "HTTP/1.1 400" in done.stderr.decode()
    assert not list(store.glob("test*"))


def test_what_a_panda_was_set_to_is_kept_with_what_it_sent(store, tmp_path):
    with Panda("--samples", 50_000) as panda:
        control = panda.listening["control"].rsplit(":", 1)
        with socket.create_connection(control) as control:
            control.sendall(b"PULSE1.WIDTH=0.25\nSEQ2.TABLE<\n9\n8\n7\n6\n\n")
            assert control.makefile("rb").readline() == b"OK\n"
        with recording(panda, tmp_path / "live.h5", "--arm") as record:
            record.ends()
        with Recording(panda.endpoint, store=store, options=("--arm",)) as record:
            sealed = record.sealed()
    schema("manifest").validate(sealed["manifest"])
    settings = sealed["manifest"]["streams"][0]["format"]["settings"]
    assert settings["identity"].startswith("PandA SW: 4.1")
    assert "COUNTER2.OUT Min Max Mean" in settings["capture"]
    assert "PULSE1.WIDTH=0.25" in settings["config"] and "COUNTER2.OUT.UNITS=mm" in settings["attributes"]
    assert ["SEQ2.TABLE", [base64.b64encode(struct.pack("<4I", 9, 8, 7, 6)).decode()]] in settings["tables"]
    (bits,) = [names for word, names in settings["bits"] if word == "PCAP.BITS0"]
    assert bits[0] == "TTLIN1.VAL"
    told = run("info", record.scan, "--full", "--store", store).stdout.decode()
    assert "PandA SW: 4.1" in told and "COUNTER2.OUT Min Max Mean" in told and "settings" in told
    run("convert", f"store:{record.scan}", tmp_path / "converted.h5", "--store", store)
    for name in ("live.h5", "converted.h5"):
        with h5py.File(tmp_path / name) as file:
            assert json.loads(file.attrs["settings"]) == settings


def test_settings_outlive_the_recorder(store):
    with Panda("--rate", 1e5) as panda:
        with Recording(panda.endpoint, store=store, options=("--arm", "--sync", "50ms")) as record:
            record.wait("progress", lambda told: told["durable_bytes"] > 1_000_000)
            manifest = store / record.scan / ".fullbore/manifest.json"
            until(lambda: '"settings"' in manifest.read_text())
            record.kill()
    run("recover", record.scan, "--store", store)
    (stream,) = record.on_disk().document("manifest.json")["streams"]
    assert stream["format"]["settings"]["identity"].startswith("PandA SW: 4.1")


def test_pandas_and_datagrams_are_streams_of_one_scan(store, tmp_path):
    port = free_port()
    frames = wire.run_of_frames(200)
    with Panda("--samples", 300_000) as fast, Panda("--samples", 40_000, "--rate", 4e4) as slow:
        udp = f"udp://127.0.0.1:{port}?format=vdif&fps=1000"
        sources = [fast.endpoint, slow.endpoint + "&name=slow", udp]
        with Recording(*sources, store=store, options=("--arm",)) as record:
            wire.send(frames, port)
            sealed = record.sealed()
    schema("manifest").validate(sealed["manifest"])
    told = accounts(sealed)
    written = {name: account["terms"]["written"] for name, account in told.items()}
    assert written == {str(port): 200, "panda": 300_000, "slow": 40_000}
    assert {told[name]["verdict"] for name in ("panda", "slow")} == {"proven"}
    scan = record.on_disk()
    for name, samples in (("panda", 300_000), ("slow", 40_000)):
        np.testing.assert_array_equal(words(scan, name), np.arange(samples))
    assert scan.bytes(str(port)) == b"".join(frames)
    run("verify", record.scan, "--store", store, code=INTACT)
    run("convert", f"store:{record.scan}", tmp_path / "all.h5", "--store", store)
    with h5py.File(tmp_path / "all.h5") as file:
        for name, samples in (("panda", 300_000), ("slow", 40_000)):
            assert file[name]["COUNTER3.OUT.Value"].is_virtual
            np.testing.assert_array_equal(file[name]["COUNTER3.OUT.Value"][()], np.arange(samples))
            assert file[name].attrs["verdict"] == "proven"
        assert file[str(port)]["frames"][()].tobytes() == b"".join(frames)


def test_a_series_of_several_pandas_waits_for_the_slowest(store):
    with Panda("--samples", 100_000) as fast, Panda("--samples", 20_000, "--rate", 4e4) as slow:
        options = ("--arm", "--scans", 3)
        with Recording(fast.endpoint, slow.endpoint, store=store, options=options) as record:
            record.sealed()
        assert len(fast.all("begun")) == len(slow.all("begun")) == 3
    for number in (1, 2, 3):
        scan = Scan(f"test_one{number:04}", [store])
        for name, samples in (("panda1", 100_000), ("panda2", 20_000)):
            np.testing.assert_array_equal(words(scan, name), np.arange(samples))
            assert scan.account(name)["verdict"] == "proven"


def test_one_panda_that_dies_costs_the_others_nothing(store):
    with Panda("--samples", 100_000, "--rate", 5e4) as stays, Panda("--rate", 1e5) as dies:
        options = ("--arm", "--reconnect", "0s", "--scans", 2)
        with Recording(stays.endpoint, dies.endpoint, store=store, options=options) as record:
            record.wait("progress", lambda told: min(s["bytes"] for s in told["streams"]) > 1_000_000)
            dies.process.kill()
            record.sealed(code=REFUSED)
    scan = Scan("test_one0001", [store])
    np.testing.assert_array_equal(words(scan, "panda1"), np.arange(100_000))
    assert scan.account("panda1")["verdict"] == "proven"
    dead = words(scan, "panda2")
    np.testing.assert_array_equal(dead, np.arange(len(dead)))
    assert scan.account("panda2")["verdict"] == "unproven"
    assert not list(store.glob("test_one0002*")), "no scan begins without one of its sources"


def test_scans_are_converted_into_one_file_or_one_each(store, tmp_path):
    with Panda("--samples", 30_000) as panda:
        with Recording(panda.endpoint, store=store, options=("--arm", "--scans", 2)) as record:
            record.sealed()
    for number in (1, 2):
        scan = f"store:test_one000{number}"
        run("convert", scan, f"hdf5:{tmp_path}/all.h5?existing=append", "--store", store)
        run("convert", scan, tmp_path / f"one-{number}.h5", "--store", store)
        with h5py.File(tmp_path / f"one-{number}.h5") as file:
            np.testing.assert_array_equal(file["COUNTER3.OUT.Value"][()], np.arange(30_000))
    with h5py.File(tmp_path / "all.h5") as file:
        assert list(file["acquisitions"]["first_row"][()]) == [0, 30_000]
        np.testing.assert_array_equal(
            file["COUNTER3.OUT.Value"][()], np.tile(np.arange(30_000), 2)
        )


def test_scans_of_several_streams_follow_one_another_in_one_file(store, tmp_path):
    """In a directory and under a name with percent signs, which have a meaning for HDF5 in names of sources."""
    port = free_port()
    folder = tmp_path / "100%b"
    folder.mkdir()
    frames = wire.run_of_frames(200)
    for number in (1, 2):
        with Panda("--samples", 30_000 * number, "--rate", 3e4 * number) as panda:
            sources = [panda.endpoint, f"udp://127.0.0.1:{port}?format=vdif&fps=1000"]
            options = ("--arm",)
            with Recording(*sources, store=store, options=options, scan=f"no{number}") as record:
                wire.send(frames, port)
                record.sealed()
        to = f"hdf5:{folder}/all-%03d%%25b.h5?existing=append"
        told = ask("convert", f"store:{record.scan}", to, "--store", store)
        assert told["joined"] == f"{folder}/all-001%b.h5"
    with h5py.File(told["joined"]) as file:
        wanted = np.concatenate([np.arange(30_000), np.arange(60_000)])
        np.testing.assert_array_equal(file["panda/COUNTER3.OUT.Value"][()], wanted)
        assert file[str(port)]["frames"][()].tobytes() == b"".join(frames) * 2
        assert list(file["panda/acquisitions/first_row"]) == [0, 30_000]
        assert list(file[f"{port}/acquisitions/first_row"]) == [0, 200]
        assert file["panda"].attrs["samples"] == 90_000
    # Another file of that name is not replaced, and no data is appended to the streams before that is detected.
    master = folder / "all-001%b.h5"
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with h5py.File(master, "w") as file:
        file["precious"] = 1
    before[master] = master.read_bytes()
    done = run("convert", f"store:{record.scan}", to, "--store", store, code=REFUSED)
    assert b"not a fullbore master file" in done.stderr
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("name", ["%s.h5", "a-%3d.h5", "%d-%d.h5", "50%.h5"])
def test_what_is_no_template_is_refused_before_anything_is_armed(name, tmp_path):
    with Panda("--samples", 1000) as panda:
        done = run("panda", "record", panda.endpoint, tmp_path / name, "--arm", code=REFUSED)
        assert name.encode() in done.stderr and b"capture-%03d.h5" in done.stderr
        assert not panda.all("begun")
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_recorded_alone_keeps_its_account_when_it_is_continued(tmp_path):
    path = tmp_path / "all.h5"
    with Panda("--samples", 300_000, "--fault", "end@200000:Framing error") as panda:
        with recording(panda, path, "--raw", "--arm") as record:
            (first,) = record.ends(code=FOUND)
    with Panda("--samples", 5000) as panda:
        with recording(panda, path, "--raw", "--arm", "--existing", "append") as record:
            (second,) = record.ends()
    with h5py.File(path) as file:
        index = file["acquisitions"]
        assert list(index["rows"]) == [first["samples"], second["samples"]]
        assert [text.decode() for text in index["verdict"]] == [first["verdict"], "proven"]
        assert [text.decode() for text in index["end_reason"]] == ["Framing error", "Ok"]
        accounts = [json.loads(text)["account"]["terms"] for text in index["account"]]
        assert accounts == [first["terms"], second["terms"]]
        assert file.attrs["verdict"] == first["verdict"] != "proven"
        assert file.attrs["missing"] == first["terms"]["missing"]


def test_what_a_dead_recorder_left_is_recovered_before_more_is_added(tmp_path):
    path = tmp_path / "all.h5"
    with Panda("--rate", 400_000) as panda:
        with recording(panda, path, "--raw", "--arm", "--flush", "100ms") as record:
            record.wait_visible(100_000)
            record.process.kill()
            record.process.wait()
        run("panda", "disarm", panda.endpoint)
    with Panda("--samples", 5000) as panda:
        words = ("panda", "record", panda.endpoint, path, "--raw", "--arm", "--existing", "append")
        done = run(*words, code=REFUSED)
        assert f"fullbore recover {path}".encode() in done.stderr
        assert not panda.all("begun")
        rows = ask("recover", path)["rows"]
        run(*words)
    with h5py.File(path) as file:
        assert list(file["acquisitions/rows"]) == [rows, 5000]
        assert [text.decode() for text in file["acquisitions/verdict"]] == ["unproven", "proven"]
        assert "died" in file["acquisitions/end_reason"][0].decode()
        for name, values in columns(file).items():
            assert len(values) == rows + 5000, name


def test_a_link_that_leads_nowhere_is_a_name_that_is_taken(tmp_path):
    path = tmp_path / "x.h5"
    path.symlink_to("nowhere")
    with Panda("--samples", 1000) as panda:
        done = run("panda", "record", panda.endpoint, path, "--arm", code=REFUSED)
        assert b"is there already" in done.stderr
        assert not panda.all("begun")
    words = ("record", f"udp://127.0.0.1:{free_port()}?format=vdif", "--to", f"hdf5:{path}", "--duration", "1s")
    assert b"is there already" in run(*words, code=REFUSED).stderr
    assert path.is_symlink()


def test_a_recording_that_is_served_can_go_wrong_like_any_other(store, tmp_path):
    samples = 1_500_000
    with Panda("--samples", samples) as panda:
        with Recording(panda.endpoint, store=store, options=("--arm",)) as record:
            record.sealed()
    options = ("--replay", record.scan, "--store", store, "--ring", "16MiB")
    with Panda(*options, "--fault", "overrun@700000", "--split") as panda:
        with recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
            done = record.ends(code=FOUND)[0]
    assert (done["reason"], done["verdict"]) == ("Ok", "consistent"), done
    gaps = [(gap["first"], gap["count"]) for gap in done["gaps"]]
    assert gaps
    check_raw(tmp_path / "x.h5", count=samples - sum(count for _, count in gaps), gaps=gaps)


def test_a_panda_is_recorded_into_a_container_by_its_endpoint(tmp_path):
    with Panda("--samples", 20_000) as panda:
        to = f"hdf5:{tmp_path}/x.h5?scaled=false&flush=100ms"
        run("record", panda.endpoint, "--to", to, "--arm")
    check_raw(tmp_path / "x.h5", count=20_000)


def test_pandas_and_datagrams_go_into_files_side_by_side(tmp_path):
    """Two scans: the datagrams are cut where the acquisition ends."""
    port = free_port()
    frames = wire.run_of_frames(400)
    with Panda("--rate", 1e5) as panda:
        udp = f"udp://127.0.0.1:{port}?format=vdif&fps=1000"
        to = f"hdf5:{tmp_path}/all-%d.h5?scaled=false"
        with Told("record", panda.endpoint, udp, "--to", to, "--arm", "--scans", 2) as record:
            for number, half in ((1, frames[:200]), (2, frames[200:])):
                name = f"all000{number}"
                begun = lambda told: told["scan"]["scan"] == name and stream_of(told, "panda")["frames"] > 1000
                record.wait("progress", begun)
                time.sleep(0.6)  # A stream of datagrams is cut within this time.
                wire.send(half, port)
                came = lambda told: told["scan"]["scan"] == name and stream_of(told, str(port))["frames"] >= 200
                record.wait("progress", came)
                run("panda", "disarm", panda.endpoint)
            record.ends(GOOD)
    written = []
    for number, scan in enumerate(record.all("sealed"), 1):
        told = accounts(scan)
        assert told["panda"]["verdict"] == "proven"
        check_raw(tmp_path / f"all-{number}_panda.h5", count=told["panda"]["terms"]["written"])
        with h5py.File(tmp_path / f"all-{number}.h5") as file:
            assert set(file) == {"panda", str(port)}
            written.append(file[str(port)]["frames"][()].tobytes())
    assert all(written) and b"".join(written) == b"".join(frames)


@pytest.mark.parametrize("option", [("--sync", "1s"), ("--chunk", "1GB")])
def test_what_a_container_does_not_know_is_refused_with_it(option, tmp_path):
    done = run("record", "panda://127.0.0.1", "--to", f"hdf5:{tmp_path}/a.h5", *option, code=REFUSED)
    assert option[0] in done.stderr.decode()


def test_a_limit_in_time_ends_a_recording_into_a_file(tmp_path):
    """The options of the recorder are the same for every sink: a name, cores, and a limit."""
    with Panda("--rate", 1e5) as panda:
        options = ("--session", "a", "--scan", "b", "--cpus", "0", "--duration", "1s", "--arm")
        with Told("record", panda.endpoint, "--to", f"hdf5:{tmp_path}/x.h5?scaled=false", *options) as record:
            (done,) = record.ends(GOOD)
        (sealed,) = record.all("sealed")
    assert sealed["manifest"]["scan"] == {"session": "a", "scan": "b"}
    assert (done["verdict"], done["reason"]) == ("proven", "Disarmed")
    # What only datagrams into a store had before: the use of memory over time, and the threads.
    assert sealed["accounts"][0]["host"]["high_water_history"]["blocks"]
    assert {thread["name"] for thread in sealed["manifest"]["host_setup"]["threads"]} == {"panda0", "hdf5"}
    check_raw(tmp_path / "x.h5", count=done["samples"])


def test_a_connection_lost_between_arm_and_header_is_made_again_and_not_armed_again(store, tmp_path):
    """Twice for a file, then twice for a scan: each time the same acquisition is joined."""
    with Panda("--samples", 30_000, "--fault", "drop", "--fault", "drop") as panda:
        with recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
            done = record.ends()[0]
            assert len(record.all("lost")) == 2 and len(record.all("panda-armed")) == 1
        assert (done["reason"], done["verdict"]) == ("Ok", "proven")
        with Recording(panda.endpoint, store=store, options=("--arm",)) as record:
            record.sealed()
        assert len(panda.all("begun")) == 2
    check_raw(tmp_path / "x.h5", count=30_000)
    np.testing.assert_array_equal(words(record.on_disk()), np.arange(30_000))


def test_names_of_all_acquisitions_are_looked_at_before_arming(tmp_path):
    there = tmp_path / "a-3.h5"
    there.write_bytes(b"not to be lost")
    with Panda("--samples", 1000) as panda:
        for number in (3, 0):
            done = run("panda", "record", panda.endpoint, tmp_path / "a-%d.h5", "--arm", "--num", number, code=REFUSED)
            assert b"a-3.h5 is there already" in done.stderr
        assert not panda.all("begun")
        run("panda", "record", panda.endpoint, tmp_path / "a-%d.h5", "--arm", "--num", 2)
    assert there.read_bytes() == b"not to be lost"


def test_a_file_that_comes_in_between_stays_and_the_acquisition_goes_beside_it(tmp_path):
    meant, beside = tmp_path / "a-2.h5", tmp_path / "a-2.1.h5"
    with Panda("--rate", 1e5) as panda:
        with recording(panda, tmp_path / "a-%d.h5", "--raw", "--arm", "--num", 2) as record:
            record.wait_samples(0)
            meant.write_bytes(b"not to be lost")
            run("panda", "disarm", panda.endpoint)
            told = record.wait("alternate")
            record.wait_samples(5000, scan=2)
            run("panda", "disarm", panda.endpoint)
            ended = record.ends()
    assert (number_of(told["scan"]), told["meant"], told["file"]) == (2, str(meant), str(beside))
    assert "is there already" in told["why"]
    assert ended[1]["file"] == str(beside) and any("a-2.1.h5" in note for note in ended[1]["notes"])
    assert meant.read_bytes() == b"not to be lost"
    check_raw(beside, count=ended[1]["samples"])


def test_an_acquisition_of_other_columns_is_not_lost_to_the_file_of_the_first(tmp_path):
    with Panda("--rate", 1e5) as panda:
        with recording(panda, tmp_path / "all.h5", "--arm", "--num", 2) as record:
            record.wait_samples(0)
            control = panda.listening["control"].rsplit(":", 1)
            with socket.create_connection(control) as control:
                control.sendall(b"COUNTER1.OUT.CAPTURE=Value\n*PCAP.DISARM=\n")
                assert control.makefile("rb").readline() == b"OK\n"
            record.wait_samples(5000, scan=2)
            run("panda", "disarm", panda.endpoint)
            first, second = record.ends()
    assert second["file"] == str(tmp_path / "all.1.h5")
    with h5py.File(tmp_path / "all.h5") as file, h5py.File(second["file"]) as other:
        assert len(file["COUNTER1.OUT.Min"]) == first["samples"]
        assert len(other["COUNTER1.OUT.Value"]) == second["samples"] > 0


def test_what_the_link_carries_is_said_at_the_start(tmp_path):
    with Panda("--samples", 1000) as panda:
        with recording(panda, tmp_path / "x.h5", "--arm", "--rate", "4e6") as record:
            record.ends()
        (told,) = record.all("forecast")
        assert (told["sample_bytes"], told["load"]["average"]) == (60, 5)
        done = run("panda", "record", panda.endpoint, tmp_path / "y.h5", "--arm", "--rate", "4e6")
        said = done.stderr.decode()
        assert said.count("Data overrun") == 1 and "capture Mean" in said
        done = run("panda", "record", panda.endpoint, tmp_path / "z.h5", "--arm")
        assert "60 bytes a sample; a link of 1 Gbit/s carries" in done.stderr.decode()


def test_each_acquisition_in_one_file_has_its_own_settings(tmp_path):
    path = tmp_path / "all.h5"
    with Panda("--rate", 1e5) as panda:
        control = panda.listening["control"].rsplit(":", 1)
        with recording(panda, path, "--arm", "--num", 3) as record:
            for width in (b"0.5", b"0.75"):
                number = 1 if width == b"0.5" else 2
                record.wait_samples(0, scan=number)
                with socket.create_connection(control) as changed:
                    changed.sendall(b"PULSE1.WIDTH=" + width + b"\n*PCAP.DISARM=\n")
                    answers = changed.makefile("rb")
                    assert [answers.readline(), answers.readline()] == [b"OK\n", b"OK\n"]
            record.wait_samples(0, scan=3)
            run("panda", "disarm", panda.endpoint)
            record.ends()
    with h5py.File(path) as file:
        settings = [json.loads(text) for text in file["acquisitions"]["settings"]]
        widths = [next(line for line in it["config"] if line.startswith("PULSE1.WIDTH=")) for it in settings]
        assert widths[1:] == ["PULSE1.WIDTH=0.5", "PULSE1.WIDTH=0.75"] and widths[0] not in widths[1:]
        assert json.loads(file.attrs["settings"]) == settings[2]


@pytest.mark.parametrize("other", ["127.0.0.1", "localhost"])
def test_one_panda_given_twice_is_refused(other, store):
    with Panda() as panda:
        second = panda.endpoint.replace("127.0.0.1", other) + "&name=other"
        words = ("--store", store, "--session", "test", "--scan", "one")
        said = run("record", panda.endpoint, second, *words, code=REFUSED).stderr.decode()
    assert "are one source" in said and "name=other" in said
    assert not list(store.glob("test*"))


@pytest.mark.parametrize("source", ["panda://", "panda://h:1-5", "panda://h/path", "panda://h?speed=1", "panda://a b"])
def test_what_is_wrong_with_a_panda_is_not_told_of_datagrams(source, store):
    words = ("--store", store, "--session", "test", "--scan", "one")
    for done in (
        run("record", source, *words, code=REFUSED),
        run("panda", "record", source, store / "x.h5", code=REFUSED),
    ):
        assert b"udp" not in done.stderr, done.stderr


def test_samples_that_the_panda_scales_are_those_that_are_scaled_here(tmp_path):
    with Panda("--samples", 40_000) as panda:
        with recording(panda.endpoint + "&scaled=true", tmp_path / "there.h5", "--arm") as record:
            assert record.ends()[0]["verdict"] == "proven"
        with recording(panda, tmp_path / "here.h5", "--arm") as record:
            assert record.ends()[0]["verdict"] == "proven"
        with recording(panda, tmp_path / "raw.h5", "--arm", "--raw") as record:
            record.ends()
    with h5py.File(tmp_path / "there.h5") as there, h5py.File(tmp_path / "here.h5") as here:
        for name, values in columns(here).items():
            assert there[name].dtype == values.dtype
            np.testing.assert_array_equal(there[name][()], values, err_msg=name)
    # Integers are the original data: 60 bytes per sample instead of 84.
    sizes = [(tmp_path / f"{name}.h5").stat().st_size for name in ("raw", "here")]
    assert sizes[0] < sizes[1] * 0.8


def test_a_panda_has_an_ipv6_address_too(tmp_path):
    with Panda("--samples", 5000, control="[::1]:0", data="[::1]:0") as panda:
        assert "[::1]" in panda.endpoint
        with recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
            record.ends()
    check_raw(tmp_path / "x.h5", count=5000)


def test_a_panda_that_freezes_is_given_up_and_what_is_certain_is_kept(tmp_path):
    """The kernel still accepts connections for it, so it looks alive to a client that only connects."""
    with Panda("--rate", 300_000) as panda:
        with recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
            record.wait_samples(100_000)
            panda.process.send_signal(signal.SIGSTOP)
            try:
                (done,) = record.ends(code=FOUND)
            finally:
                panda.process.send_signal(signal.SIGCONT)
    assert done["verdict"] == "unproven" and "does not answer" in " ".join(t["why"] for t in record.all("lost"))
    assert check_raw(tmp_path / "x.h5", count=done["samples"]) > 100_000


def test_one_file_or_several_and_what_shows_them_are_in_the_help():
    def help_of(*verb):
        """As one line, because the terminal determines the line breaks."""
        return " ".join(run(*verb, "--help").stdout.decode().split())

    told = help_of("convert")
    assert "?existing=append" in told and "virtual" in told and "/acquisitions" in told
    told = help_of("panda", "record")
    assert "`%d` is the number of the acquisition" in told and "If several acquisitions share a file" in told
    told = help_of("record")
    assert "--to hdf5:now.h5" in told and "now.h5 shows all of them" in told


def test_other_clients_of_a_panda_are_shown(tmp_path):
    with Panda("--rate", 1e4) as panda:
        control = panda.listening["control"].rsplit(":", 1)
        with socket.create_connection(control) as web, recording(panda, tmp_path / "x.h5", "--arm") as record:
            own = "{}:{}".format(*web.getsockname())
            # Every answer that it sent is counted.
            web.sendall(b"*IDN?\n")
            assert web.makefile("rb").readline().startswith(b"OK =PandA")
            record.wait_samples(0)
            others = ask("panda", "show", panda.endpoint)["other_clients"]
            told = text(run("panda", "show", panda.endpoint).stdout)
    assert {"takes_data": False, "address": own} in others
    assert [client["takes_data"] for client in others].count(True) == 1
    assert "1 of them on the data port" in told and own in told and "takes CPU time" in told


def test_the_recipe_for_means_works_where_a_gate_was_closed(tmp_path):
    """The documented lines, word for word, with warnings as errors: sample 0 has a gate of 0."""
    documented = (DOCS / "reference" / "panda.md").read_text().split("## Integers")[1].split("\n## ")[0]
    recipe = "\n".join(line[4:] for line in documented.splitlines() if line.startswith("    "))
    assert "column.attrs" in recipe
    with Panda("--samples", 1000) as panda, recording(panda, tmp_path / "x.h5", "--raw", "--arm") as record:
        record.ends()
    with h5py.File(tmp_path / "x.h5") as file, warnings.catch_warnings():
        warnings.simplefilter("error")
        known = {"file": file, "np": np}
        exec(recipe, known)
    mean = known["mean"]
    assert np.isnan(mean[0])
    np.testing.assert_allclose(mean[1:], 0.5 * (2**32 + 1) + 3, rtol=1e-15)


def test_all_block_memory_is_told_once_and_the_same_again(store):
    """The memory of a PandA and datagrams together."""
    with Panda() as panda:
        sources = [panda.endpoint, f"udp://127.0.0.1:{free_port()}?format=vdif"]
        with Recording(*sources, store=store, options=("--arm", "--buffer", "128MiB")) as record:
            memory, armed = record.wait("memory"), record.wait("armed")
            assert (memory["bytes"], memory["of_waiting"]) == (128 << 20, 64 << 20)
            assert armed["pool_bytes"] == memory["bytes"]
            record.stop(AS_SEALED)
