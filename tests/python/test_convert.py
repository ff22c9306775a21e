"""Streams as HDF5 files: converted, followed while they are recorded, and recorded directly; h5py is the reference."""

import json
import re
import subprocess
import time

import h5py
import numpy as np
import pytest
import wire
from fullbore import AS_SEALED, BINARY, FOUND, GOOD, PATIENCE, REFUSED, Recording, ask, free_port, free_ports, run
from panda import Panda, Told


class Following:
    """A running `fullbore convert --follow`."""

    def __init__(self, scan, path, store):
        to = f"hdf5:{path}?flush=100ms"
        words = ["convert", "--follow", f"store:{scan}", to, "--store", str(store), "--json"]
        self.process = subprocess.Popen([BINARY, *words], stdout=subprocess.PIPE)

    def ends(self, code=GOOD):
        told, _ = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == code
        return json.loads(told)


def rows(path, dataset, least):
    """The number of rows that a reader sees, once it has reached this number."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            with h5py.File(path, "r", libver="latest", swmr=True) as file:
                if (seen := len(file[dataset])) >= least:
                    return seen
        except (OSError, KeyError):
            pass
        time.sleep(0.05)
    raise AssertionError(f"{path} has no {least} rows of {dataset}")


def test_frames_are_seen_while_they_are_recorded(store, tmp_path):
    port, path = free_port(), tmp_path / "live.h5"
    frames = wire.run_of_frames(3000)
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB"
    with Recording(source, store=store, options=("--sync", "50ms")) as record:
        following = Following(record.scan, path, store)
        wire.send(frames[:1000], port)
        seen = rows(path, "frames", 100)
        wire.send(frames[1000:], port)
        assert rows(path, "frames", 2000) > seen
        record.stop()
    (told,) = following.ends()["streams"]
    assert told["whole"] and told["rows"] == 3000
    with h5py.File(path) as file:
        assert file["frames"][()].tobytes() == b"".join(frames)
        assert (np.diff(file["time"][()]) == 1_000_000).all()
        assert file.attrs["end_reason"] == "sealed" and file.attrs["samples"] == 3000


def test_several_streams_are_followed_into_a_file_each(store, tmp_path):
    path = tmp_path / "live.h5"
    with Panda("--rate", 4e5) as left, Panda("--rate", 2e5) as right:
        options = ("--arm", "--sync", "50ms")
        with Recording(left.endpoint, right.endpoint, store=store, options=options) as record:
            following = Following(record.scan, path, store)
            for name in ("panda1", "panda2"):
                assert rows(tmp_path / f"live_{name}.h5", "COUNTER3.OUT.Value", 100_000)
            record.stop()
    samples = {stream["stream"]: stream["rows"] for stream in following.ends()["streams"]}
    with h5py.File(path) as file:
        for name in ("panda1", "panda2"):
            values = file[name]["COUNTER3.OUT.Value"][()]
            np.testing.assert_array_equal(values, np.arange(samples[name]))
            assert file[name].attrs["verdict"] == "proven"
            assert json.loads(file[name].attrs["settings"])["identity"].startswith("PandA SW: 4.1")


def test_a_scan_of_which_frames_are_missing_converts_and_exits_1(store, tmp_path):
    port = free_port()
    frames = wire.run_of_frames(300)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000", store=store) as record:
        wire.send(frames[:100] + frames[110:], port)
        record.stop(code=FOUND)
    told = ask("convert", f"store:{record.scan}", tmp_path / "a.h5", "--store", store, code=FOUND)
    (stream,) = told["streams"]
    assert stream["whole"] and not stream["recorded_whole"] and stream["rows"] == 300
    assert told["complete"] is False and told["lost"] == 10 and told["headline"].startswith("LOST 10 of 300 frames")
    with h5py.File(tmp_path / "a.h5") as file:
        assert file.attrs["complete"] is np.False_ and file.attrs["headline"] == told["headline"]
    said = run("convert", f"store:{record.scan}", tmp_path / "b.h5", "--store", store, code=FOUND).stdout.decode()
    assert said.startswith(f"{record.scan}: {told['headline']}\n")


def test_a_file_and_its_master_say_whether_everything_is_there(store, tmp_path):
    ports, path = free_ports(2), tmp_path / "both.h5"
    frames = wire.run_of_frames(300)
    with Recording(f"udp://127.0.0.1:{ports[0]}-{ports[1]}?format=vdif&fps=1000", store=store) as record:
        lossy = frames[:100] + 10 * [None] + frames[110:]
        wire.send_in_turn({ports[0]: frames, ports[1]: lossy}, pause=2e-5)
        record.stop(code=FOUND)
    told = ask("convert", f"store:{record.scan}", path, "--store", store, code=FOUND)
    assert told["complete"] is False and told["headline"].startswith("LOST 10 of 600 frames")
    with h5py.File(path) as file:
        whole, lossy = (file[str(port)].attrs for port in ports)
        assert whole["complete"] is np.True_ and whole["headline"] == "COMPLETE: all 300 frames, 0.30 s"
        assert lossy["complete"] is np.False_ and lossy["headline"].startswith("LOST 10 of 300 frames")
    # A file of one stream contains nothing about the others.
    one = ask("convert", f"store:{record.scan}/{ports[0]}", tmp_path / "one.h5", "--store", store)
    assert one["complete"] is True and one["headline"] == "COMPLETE: all 300 frames, 0.30 s"
    # Appending to a lossy file does not make it complete.
    for port in reversed(ports):
        words = [f"store:{record.scan}/{port}", f"hdf5:{tmp_path / 'all.h5'}?existing=append", "--store", store]
        run("convert", *words, code=(GOOD, FOUND))
    with h5py.File(tmp_path / "all.h5") as file:
        assert file.attrs["complete"] is np.False_ and file.attrs["headline"] == lossy_headline(file)


def lossy_headline(file):
    """The headline of the first recording in a file, which its index keeps with those of the others."""
    lossy, whole = (text.decode() for text in file["acquisitions/headline"][()])
    assert lossy.startswith("LOST 10 of 300 frames") and whole.startswith("COMPLETE: all 300 frames")
    return lossy


def test_what_a_killed_recorder_left_converts_and_exits_1(store, tmp_path):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB"
    with Recording(source, store=store, options=("--sync", "50ms")) as record:
        following = Following(record.scan, tmp_path / "live.h5", store)
        wire.send(wire.run_of_frames(1000), port)
        rows(tmp_path / "live.h5", "frames", 100)
        record.kill()
        (stream,) = following.ends(code=FOUND)["streams"]
        assert not stream["recorded_whole"]
    run("recover", record.scan, "--store", store)
    ask("convert", f"store:{record.scan}", tmp_path / "a.h5", "--store", store, code=FOUND)


class Into(Told):
    """A running `fullbore record --to`."""

    def __init__(self, source, to, *options):
        super().__init__("record", *([source] if isinstance(source, str) else source), "--to", to, *options)

    def __enter__(self):
        super().__enter__()
        self.wait("armed")
        return self

    def sealed(self, code=GOOD):
        self.interrupt()
        self.ends(code)
        (sealed,) = self.all("sealed")
        return sealed


def alike(live, converted, but=()):
    """The same datasets with the same values and attributes; `but` are those that differ between recordings."""
    assert set(live) == set(converted)
    for name in live:
        if isinstance(live[name], h5py.Group):
            alike(live[name], converted[name], but)
            continue
        assert live[name].dtype == converted[name].dtype and live[name].chunks == converted[name].chunks
        assert dict(live[name].attrs) == dict(converted[name].attrs)
        if name not in but:
            np.testing.assert_array_equal(live[name][()], converted[name][()])
    assert set(live.attrs) == set(converted.attrs)
    for name in set(live.attrs) - {"account", "format", "stream"}:
        one, other = live.attrs[name], converted.attrs[name]
        if name == "headline":
            # The frames were sent twice, and took a little longer once.
            one, other = (re.sub(r"\d+\.\d+ s\b", "s", it) for it in (one, other))
        assert one == other, name
    if "account" in live.attrs:
        first, second = json.loads(live.attrs["account"]), json.loads(converted.attrs["account"])
        assert first["terms"] == second["terms"] and first["gaps"] == second["gaps"]
        assert json.loads(live.attrs["format"]) == json.loads(converted.attrs["format"])


@pytest.mark.parametrize("query", ["format=vdif&fps=1000", "format=vdif", "format=vdif&fps=1000&fill=omit"])
def test_a_stream_recorded_into_a_file_is_the_scan_that_is_converted(query, store, tmp_path):
    """Once with missing frames, and with a rate that is learnt only at the end of a second."""
    ports = free_ports(2)
    frames = wire.run_of_frames(2500)
    sent = frames[:700] + frames[720:]
    sources = [f"udp://127.0.0.1:{port}?{query}&name=a" for port in ports]
    with Recording(sources[0], store=store) as record:
        wire.send(sent, ports[0], pause=2e-4)
        record.stop(code=AS_SEALED)
    run("convert", f"store:{record.scan}", tmp_path / "stored.h5", "--store", store, code=None)
    session, scan = record.scan.split("_")
    with Into(sources[1], f"hdf5:{tmp_path}/live.h5", "--session", session, "--scan", scan) as into:
        wire.send(sent, ports[1], pause=2e-4)
        into.sealed(code=None)
    of_arrival = ("time",) if "omit" in query else ()
    with h5py.File(tmp_path / "live.h5") as live, h5py.File(tmp_path / "stored.h5") as stored:
        alike(live, stored, but=of_arrival)
        assert live["frames"].dtype == "u1"
        if not of_arrival:
            assert len(live["frames"]) == 2500 and (np.diff(live["time"][()]) == 1_000_000).all()
        else:
            assert live["frames"][()].tobytes() == b"".join(sent)


def test_bytes_of_any_stream_have_the_time_of_each_block(store, tmp_path):
    ports = free_ports(2)
    sent = [bytes([n % 251]) * 4096 for n in range(200)]
    sources = [f"udp://127.0.0.1:{port}?format=raw&block=64KiB&name=a" for port in ports]
    with Recording(sources[0], store=store) as record:
        wire.send(sent, ports[0])
        record.stop()
    run("convert", f"store:{record.scan}", tmp_path / "stored.h5", "--store", store)
    session, scan = record.scan.split("_")
    with Into(sources[1], f"hdf5:{tmp_path}/live.h5", "--session", session, "--scan", scan) as into:
        begun = time.time()
        wire.send(sent, ports[1])
        into.sealed()
    with h5py.File(tmp_path / "live.h5") as live, h5py.File(tmp_path / "stored.h5") as stored:
        alike(live, stored, but=("time",))
        assert live["data"][()].tobytes() == b"".join(sent)
        row, came = live["blocks/row"][()], live["blocks/time"][()]
        assert row[0] == 0 and len(row) == len(came) > 1 and (np.diff(row) > 0).all()
        # TAI is some 37 s ahead of UTC.
        assert (np.diff(came) >= 0).all() and abs(came[0] / 1e9 - begun) < 300
    # A killed file keeps all its rows after recovery, regardless of the number of blocks.
    assert ask("recover", tmp_path / "live.h5")["rows"] == 200 * 4096


def test_readers_follow_a_stream_that_is_recorded_into_a_file(tmp_path):
    port, path = free_port(), tmp_path / "live.h5"
    frames = wire.run_of_frames(3000)
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB"
    with Into(source, f"hdf5:{path}?flush=100ms") as into:
        wire.send(frames[:1000], port)
        seen = rows(path, "frames", 100)
        wire.send(frames[1000:], port)
        assert rows(path, "frames", 2000) > seen
        sealed = into.sealed()
    (account,) = sealed["accounts"]
    assert account["verdict"] == "proven" and account["terms"]["written"] == 3000
    with h5py.File(path) as file:
        assert file["frames"][()].tobytes() == b"".join(frames)
        assert (file.attrs["end_reason"], file.attrs["verdict"], file.attrs["samples"]) == ("sealed", "proven", 3000)


def test_after_a_sigkill_a_stream_in_a_file_is_there_up_to_the_last_flush(tmp_path):
    port, path = free_port(), tmp_path / "live.h5"
    frames = wire.run_of_frames(1500)
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB"
    with Into(source, f"hdf5:{path}?flush=50ms") as into:
        wire.send(frames, port)
        seen = rows(path, "frames", 1000)
        into.process.kill()
        into.process.wait()
    told = ask("recover", path)
    assert told["rows"] >= seen
    with h5py.File(path) as file:
        assert file["frames"][()].tobytes() == b"".join(frames)[: told["rows"] * len(frames[0])]
        assert len(file["time"]) == told["rows"]


def test_several_streams_are_recorded_into_a_file_each_and_one_that_shows_them(tmp_path):
    ports = free_ports(2)
    frames = wire.run_of_frames(400)
    sources = [f"udp://127.0.0.1:{ports[0]}?format=vdif&fps=1000", f"udp://127.0.0.1:{ports[1]}?format=raw&name=bytes"]
    with Into(sources, f"hdf5:{tmp_path}/all.h5", "--capture-threads", 2) as into:
        wire.send(frames, ports[0])
        wire.send([b"abcd" * 100] * 50, ports[1])
        into.sealed()
    with h5py.File(tmp_path / "all.h5") as file:
        assert file[str(ports[0])]["frames"].is_virtual
        assert file[str(ports[0])]["frames"][()].tobytes() == b"".join(frames)
        assert file["bytes"]["data"][()].tobytes() == b"abcd" * 5000
        assert len(file["bytes"]["blocks"]["row"]) == len(file["bytes"]["blocks"]["time"]) > 0
        assert file[str(ports[0])].attrs["verdict"] == "proven"


def test_a_full_disk_under_a_stream_is_counted_and_what_was_seen_is_there(memory_disk):
    small = memory_disk("4m")
    port, path = free_port(), small / "live.h5"
    frames = wire.run_of_frames(6000)
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB"
    with Into(source, f"hdf5:{path}?flush=50ms") as into:
        wire.send(frames, port, pause=1e-4)
        into.ends(code=FOUND)
        assert any("takes no more data; the recording ends" in told["text"] for told in into.all("warning"))
    (account,) = into.all("sealed")[0]["accounts"]
    terms = account["terms"]
    assert 0 < terms["written"] < terms["expected"] and terms["overrun"] > 0
    with h5py.File(path) as file:
        have = len(file["frames"])
        assert have == len(file["time"]) == file.attrs["samples"] == terms["written"]
        assert file["frames"][()].tobytes() == b"".join(frames)[: have * len(frames[0])]
        assert json.loads(file.attrs["account"])["terms"] == terms


def test_scans_are_recorded_one_after_the_other_into_the_same_files(tmp_path):
    ports = free_ports(2)
    frames = wire.run_of_frames(400)
    sources = [f"udp://127.0.0.1:{ports[0]}?format=vdif&fps=1000", f"udp://127.0.0.1:{ports[1]}?format=raw&name=bytes"]
    for _ in range(2):
        with Into(sources, f"hdf5:{tmp_path}/all.h5?existing=append") as into:
            wire.send(frames, ports[0])
            wire.send([b"abcd" * 100] * 50, ports[1])
            into.sealed()
    with h5py.File(tmp_path / "all.h5") as file:
        assert file[str(ports[0])]["frames"][()].tobytes() == b"".join(frames) * 2
        assert list(file[str(ports[0])]["acquisitions/first_row"]) == [0, 400]
        assert file["bytes"]["data"][()].tobytes() == b"abcd" * 10_000
        rows = list(file["bytes"]["blocks/row"])
        assert rows == sorted(set(rows)) and 20_000 in rows


def test_a_file_that_is_there_is_not_recorded_over(tmp_path):
    path = tmp_path / "a.h5"
    path.write_bytes(b"precious")
    source = f"udp://127.0.0.1:{free_port()}?format=vdif"
    for to, words in [
        (path, b"is there already"), (f"hdf5:{path}?existing=append", b"not an HDF5 file"),
        (tmp_path / "none/a.h5", b"there is no directory"),
    ]:  # fmt: skip
        done = run("record", source, "--to", to, "--duration", "1s", code=REFUSED)
        assert words in done.stderr
    assert path.read_bytes() == b"precious"
    done = run("record", source, "--to", tmp_path / "b.h5", "--scans", 2, "--duration", "1s", code=REFUSED)
    assert b"--scans" in done.stderr
