"""The Python package: what it reads is what baseband, numpy and the files themselves say."""

import asyncio
import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import warnings
from datetime import datetime, timedelta, timezone
from fractions import Fraction

import astropy.units as u
import numpy as np
import package
import pandas
import pytest
import wire
from astropy.time import Time
from baseband import mark5b, vdif
from fullbore import BINARY, PATIENCE, REPOSITORY, Recording, free_port, generate_command, run

fb = package.load()
MODULES = {**os.environ, "PYTHONPATH": str(package.place())}


def record(store, query, sent, code=0, pause=2e-5):
    """Records datagrams; the scan as the package sees it, and as its files are."""
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?{query}&name=x", store=store) as recording:
        wire.send((frame for frame in sent if frame is not None), port, pause=pause)
    recording.stop(code)
    return fb.open(store[0] / recording.scan if isinstance(store, list) else store / recording.scan), recording.on_disk()


def without(frames, *lost):
    return [None if number in lost else frame for number, frame in enumerate(frames)]


@pytest.fixture(scope="module")
def gapped(tmp_path_factory):
    """A recording of several blocks with gaps: the scan, its files, and the numbers of the frames that were lost."""
    store = tmp_path_factory.mktemp("gapped")
    lost = {50, 51, 52, 400, 1199}
    frames = wire.run_of_frames(1500, fps=1000)
    scan, files = record(store, "format=vdif&fps=1000&block=64KiB", without(frames, *lost), code=1)
    return scan, files, frames, lost


def test_frames_are_the_stored_bytes_and_gaps_are_where_frames_were_lost(gapped):
    scan, files, sent, lost = gapped
    stream = scan["x"]
    frames = stream.frames
    assert frames.shape == (1500, len(sent[0]))
    assert frames[:].tobytes() == files.bytes()
    assert frames[-3:-1, 32:36].tobytes() == b"".join(frame[32:36] for frame in sent[-3:-1])
    assert frames[7].tobytes() == sent[7] and frames[100:200:7].shape == (15, len(sent[0]))
    absent = [number for number in range(1500) if not stream.valid[number]]
    assert set(absent) == lost and np.array_equal(np.flatnonzero(~np.asarray(frames.valid)), absent)
    assert [(gap.first, gap.count, gap.cause) for gap in stream.gaps] == [
        (50, 3, "missing"), (400, 1, "missing"), (1199, 1, "missing"),
    ]  # fmt: skip
    masked = frames.masked(slice(49, 54))
    assert masked.mask[:, 0].tolist() == [False, True, True, True, False]
    assert bytes(memoryview(np.asarray(frames)[3])) == sent[3]
    assert np.from_dlpack(frames[3:5]).tobytes() == sent[3] + sent[4]


def test_documents_are_those_of_the_files(gapped):
    scan, files, _, lost = gapped
    account = files.account()
    account.pop("crc32c")
    assert scan.manifest == files.document("manifest.json")
    assert scan["x"].account == account and scan.account == {"x": account}
    assert (scan.name, scan.session, scan.state) == ("test_one", "test", "sealed")
    assert account["terms"]["missing"] == len(lost) and str(len(lost)) in scan.headline
    assert list(scan) == ["x"] and "y" not in scan and scan.get("y") is None
    told = scan.verify()
    assert told["good"] and not told["complete"]
    html = scan._repr_html_()
    assert all(word in html for word in ("<table>", "1500", "missing", "test_one"))
    assert "<Scan test_one: x" in repr(scan) and "1500 frames" in repr(scan["x"])


def test_marks_are_read(store):
    scan, _ = record(store, "format=vdif&fps=1000", wire.run_of_frames(300))
    run("mark", "test_one", "<dish> stowed", "--store", store)
    (marker,) = fb.open(store / "test_one").markers
    assert marker["text"] == "<dish> stowed"


def test_time_and_index_lead_to_each_other(gapped):
    scan, _, sent, _ = gapped
    stream = scan["x"]
    header = vdif.VDIFHeader.fromfile(io.BytesIO(sent[0]))
    start = Time(header.get_time(frame_rate=1 * u.kHz), precision=9)
    assert abs(stream.time.astropy(0) - start) < 1 * u.ns
    assert np.all(np.diff(stream.time[:]) == np.timedelta64(1_000_000, "ns"))
    at = start + 0.25 * u.s
    for moment in (at, stream.time[250], str(stream.time[250]) + "Z", at.to_datetime(timezone.utc), at.to_datetime()):
        assert isinstance(moment, (Time, datetime, np.datetime64, str))
        assert np.array_equal(stream.frames[moment : stream.time[260]], stream.frames[250:260])
    assert np.array_equal(stream.time[at:], stream.time[250:])
    samples = stream.samples
    assert samples.start == stream.time.start and samples.sample_rate == 1000 * 4096
    assert samples.time(4096 * 250) == stream.time[250]
    assert np.array_equal(samples(0.25, 0.251), samples(at, at + 1 * u.ms))
    assert np.array_equal(samples[stream.time[250] :][:7], samples[4096 * 250 : 4096 * 250 + 7])


def test_absent_samples_are_nan_and_masked(gapped):
    stream = gapped[0]["x"]
    samples = stream.samples
    assert samples.shape == (1500 * 4096, 1) and samples.dtype == np.float32
    part = samples[49 * 4096 - 5 : 54 * 4096 + 5, 0]
    assert np.flatnonzero(np.isnan(part)).tolist() == list(range(5 + 4096, 5 + 4 * 4096))
    masked = samples(49 * 4096, 54 * 4096, channels=0, dtype="i1", masked=True)
    assert masked.mask.sum() == 3 * 4096 and set(masked.compressed()) <= {-3, -1, 1, 3}
    joined = np.concatenate([values for _, values in samples.blocks(1_000_000)])
    assert np.array_equal(joined, samples[:], equal_nan=True)
    assert np.array_equal(samples[-1], samples[len(samples) - 1])
    memory = np.full((70, 1), 7, dtype="f4")
    taken = samples(100, 170, out=memory)
    assert np.shares_memory(taken, memory) and np.array_equal(memory, samples[100:170])
    line = np.zeros(70, dtype="i2")
    assert samples(100, 170, channels=0, out=line).base is not None and np.array_equal(line, samples(100, 170, channels=0, dtype="i2"))
    for wrong in (np.zeros(70), np.zeros((70, 2), "f4")[:, :1], np.zeros((71, 1), "f4")):
        with pytest.raises(ValueError, match="contiguous array"):
            samples(100, 170, out=wrong)


SAMPLES = {"eight threads": ("SAMPLE_VDIF", 5032, 32), "one bit": ("SAMPLE_BPS1_VDIF", 8032, 1)}


@pytest.mark.parametrize("name, length, rate", SAMPLES.values(), ids=SAMPLES)
def test_baseband_decodes_vdif_alike(name, length, rate, stores):
    scan, _ = record(stores, "format=vdif&block=64KiB", wire.cut(wire.sample(name), length))
    with vdif.open(getattr(wire.data, name), "rs", sample_rate=rate * u.MHz) as theirs:
        expected = theirs.read().reshape(theirs.shape[0], -1)
    samples = scan["x"].samples if name == "SAMPLE_VDIF" else scan["x"].samples_at(1e6)
    assert np.array_equal(samples[:], expected)
    rng = np.random.default_rng(3)
    for _ in range(20):
        start, end = sorted(rng.integers(0, len(expected) + 1, 2))
        columns = list(rng.integers(0, expected.shape[1], 2))
        assert np.array_equal(samples(int(start), int(end), channels=columns), expected[start:end, columns])
    line = samples.lines[-1]
    column = expected[:, -1]
    assert np.array_equal(samples(channels=line), column)
    assert np.array_equal(samples(channels=f"{line.thread}:{line.channel}"), column)


def test_baseband_reads_a_stream_in_place(store):
    scan, _ = record(store, "format=vdif&block=64KiB", wire.cut(wire.sample("SAMPLE_VDIF"), 5032))
    with scan["x"].to_baseband(sample_rate=32 * u.MHz) as ours, vdif.open(
        wire.data.SAMPLE_VDIF, "rs", sample_rate=32 * u.MHz
    ) as theirs:
        assert ours.start_time == theirs.start_time
        assert np.array_equal(ours.read(), theirs.read())
    with scan["x"].as_file() as file:
        whole = file.read()
        assert file.seek(-5032 * 2 - 7, os.SEEK_END) == len(whole) - 5032 * 2 - 7
        assert file.read(6000) == whole[-5032 * 2 - 7 :][:6000]
    assert whole == run("cat", "test_one", "--store", store).stdout


def test_mark_5b_and_complex_samples_are_what_baseband_has(tmp_path):
    stores = [tmp_path / name for name in ("a", "b")]
    for store in stores:
        store.mkdir()
    reference = Time("2014-06-13T05:30:01")
    sent = wire.cut(wire.sample("SAMPLE_MARK5B"), 10_016)
    scan, _ = record(stores[0], "format=mark5b&samples=rm2&channels=8", sent)
    options = {"sample_rate": 32 * u.MHz, "nchan": 8, "bps": 2}
    with mark5b.open(wire.data.SAMPLE_MARK5B, "rs", ref_time=reference, **options) as theirs:
        assert np.array_equal(scan["x"].samples[:], theirs.read())
    rng = np.random.default_rng(2)
    written = (rng.uniform(-3, 3, (8000, 2)) + 1j * rng.uniform(-3, 3, (8000, 2))).astype("c8")
    header = vdif.VDIFHeader.fromvalues(
        edv=1, time=reference, samples_per_frame=1000, nchan=2, bps=8, complex_data=True,
        sample_rate=1 * u.MHz, thread_id=0, station="xx",
    )  # fmt: skip
    path = tmp_path / "made.vdif"
    with vdif.open(path, "ws", header0=header, squeeze=False) as file:
        file.write(written.reshape(-1, 1, 2))
    with vdif.open(path, "rs", sample_rate=1 * u.MHz) as theirs:
        expected = theirs.read()
    scan, _ = record(stores[1], "format=vdif", wire.cut(path.read_bytes(), header.frame_nbytes))
    samples = scan["x"].samples
    assert samples.dtype == np.complex64
    # The levels of baseband lie around zero, and one standard deviation is 35.5 steps.
    assert np.allclose((samples[:] + 0.5 + 0.5j) / 35.5, expected)
    pairs = samples(100, 200, channels=[1], dtype="i2")
    assert pairs.shape == (100, 1, 2)
    assert np.array_equal(pairs[..., 0] + 1j * pairs[..., 1], samples[100:200, 1:])
    memory = np.empty((100, 2), "c8")
    samples(100, 200, out=memory)
    assert np.array_equal(memory, samples[100:200])


@pytest.mark.parametrize("encoding, dtype", [("ri16_le", "<i2"), ("rf32_be", ">f4"), ("ri8", "i1")])
def test_described_frames_and_bytes_are_what_numpy_reads(encoding, dtype, tmp_path):
    stores = [tmp_path / name for name in ("a", "b")]
    for store in stores:
        store.mkdir()
    rows = np.random.default_rng(1).integers(-100, 100, (60_000, 3)).astype(dtype)
    frames = [struct.pack("<Q", n) + rows[n * 250 : n * 250 + 250].tobytes() for n in range(240)]
    size = len(frames[0]) - 8
    query = f"format=raw&seq=0:8:le&strip=8&frame={size}&samples={encoding}&channels=3&block=64KiB"
    scan, _ = record(stores[0], query, without(frames, 5), code=1)
    expected = rows.astype("f4")
    expected[1250:1500] = np.nan
    assert np.array_equal(scan["x"].samples[:], expected, equal_nan=True)
    assert np.array_equal(scan["x"].samples[1247:1503, 1], expected[1247:1503, 1], equal_nan=True)
    (tmp_path / "in.bin").write_bytes(rows.tobytes() + b"\1")
    source = f"file:{tmp_path / 'in.bin'}?name=x&samples={encoding}&channels=3&sample_rate=1kHz"
    run("record", source, "--store", stores[1], "--session", "s", "--scan", "a")
    samples = fb.open("s_a", store=stores[1])["x"].samples
    assert samples.shape == rows.shape and np.array_equal(samples[:], rows.astype("f4"))
    assert np.array_equal(samples(10_921, 10_999), rows[10_921:10_999].astype("f4"))
    assert np.array_equal(samples(1.5, 2.0, channels=[2]), rows[1500:2000, 2:].astype("f4"))


def test_a_disk_set_opens_by_each_of_its_paths(stores):
    ports = [free_port() for _ in range(1)]
    with Recording(f"udp://127.0.0.1:{ports[0]}?format=vdif&fps=1000&block=64KiB&name=a",
                   store=stores, options=["--chunk", "128KiB"]) as recording:  # fmt: skip
        wire.send(wire.run_of_frames(1000), ports[0])
    recording.stop()
    whole = recording.on_disk().bytes()
    for member in stores:
        scan = fb.open(member / "test_one")
        assert sorted(scan.members) == sorted(map(str, stores))
        assert scan["a"].frames[:].tobytes() == whole
    store = fb.open_store(*stores)
    assert list(store) == ["test_one"] and store.sessions == {"test": ["test_one"]}
    assert store["test_one"]["a"].nbytes == len(whole) and "test_one" in store._repr_html_()
    with pytest.raises(fb.NotFoundError, match="is a store"):
        fb.open(stores[0])


def test_errors_are_exceptions_with_advice(gapped, store, tmp_path):
    scan = gapped[0]
    with pytest.raises(fb.NotFoundError, match="neither a scan") as raised:
        fb.open(tmp_path / "nowhere")
    assert "SESSION_SCAN" in raised.value.hint and raised.value.hint in str(raised.value)
    with pytest.raises(fb.NotFoundError, match="it has x"):
        scan["y"]
    with pytest.raises(IndexError, match="1500"):
        scan["x"].frames[1500]
    with pytest.raises(IndexError, match="no channel 1"):
        scan["x"].samples(channels=1)
    with pytest.raises(TypeError, match="f4, i1, i2 or i4"):
        scan["x"].samples(0, 1, dtype="u8")
    with pytest.raises(fb.UnsupportedError, match="real"):
        scan["x"].samples(0, 1, dtype="c8")
    with pytest.raises(ValueError, match="not a time"):
        scan["x"].frames["yesterday":]
    with pytest.raises(fb.Error) as raised:
        raise fb.DamagedError("x")
    assert raised.value.hint is None
    raw, _ = record(store, "format=raw&frame=varying", [bytes([n]) * (n + 1) for n in range(100)])
    with pytest.raises(fb.UnsupportedError, match="differ in length"):
        raw["x"].frames[:]
    with pytest.raises(fb.Error, match="has ended"):
        ended(store)
    (block,) = raw["x"].follow()
    assert block.bytes.shape == (1, 5050) and not len(block.valid)
    with pytest.raises(fb.UnsupportedError, match="samples=ci16_le") as raised:
        raw["x"].samples
    assert isinstance(raised.value, fb.Error)


def ended(store):
    """Asks an ended recording for a tap."""
    recorder = fb.Recorder("pattern:prbs31?rate=10MB/s&bytes=1MB", **options(store, session="ended"))
    with recorder:
        assert len(recorder.wait()) == 1
    recorder.tap()


def test_times_are_what_they_name():
    from fullbore_package._time import unix_ns

    noon = 1_795_780_800_000_000_000
    zone = timezone(timedelta(hours=-3, minutes=-30))
    for same in (
        "2026-11-27T12:00:00", "2026-11-27T12:00:00Z", "2026-11-27T14:00:00+02:00", "2026-11-27T08:30:00-0330",
        datetime(2026, 11, 27, 12), datetime(2026, 11, 27, 8, 30, tzinfo=zone), np.datetime64("2026-11-27T12"),
        pandas.Timestamp("2026-11-27T13:00", tz="Europe/Berlin"), Time("2026-11-27T12:00:00"),
    ):  # fmt: skip
        assert unix_ns(same) == noon, same
    assert unix_ns(pandas.Timestamp(noon + 7)) == noon + 7
    assert unix_ns("2026-11-27T12:00:00.0000000019") == unix_ns("2026-11-27T12:00:00.000000001999Z") == noon + 1
    assert unix_ns("2016-12-31T23:59:60.5Z") == unix_ns("2017-01-01T01:00:00.5+01:00")
    with warnings.catch_warnings(action="error"):
        assert unix_ns("2026-11-27 13:00:00+01") == unix_ns("2026-11-27 11:30:00-00:30") == noon
    assert unix_ns("9999-01-01") == -unix_ns("0001-01-01") == unix_ns(datetime(9999, 1, 1)) == 2**63 - 1
    for wrong in ("NaT", "noon", np.datetime64("NaT")):
        with pytest.raises(ValueError, match="not a time"):
            unix_ns(wrong)


def test_the_time_of_a_row_is_exact_at_every_rate(gapped):
    stream = gapped[0]["x"]
    start = stream.samples.start
    for rate, row in [(32e6, 1_000_003), (1e6 / 3, 2**40 + 1), (44_100.1, 2**33), (2.56e11, 10**12), (7, 5)]:
        exact = Fraction(str(rate)) if isinstance(rate, float) else rate
        samples = stream.samples_at(rate)
        for number in (row, np.array([0, row])):
            since = np.atleast_1d(samples.time(number) - start)[-1]
            assert since == np.timedelta64(row * 1_000_000_000 // exact, "ns"), rate
    assert np.array_equal(stream.samples_at(4.096 * u.MHz)(2 * u.ms, 3 * u.ms), stream.samples[8192:12_288])
    for wrong in (0, -1.0, 1e300):
        with pytest.raises(ValueError, match="positive"):
            stream.samples_at(wrong)


def test_damage_is_an_error_and_can_be_skipped(store):
    _, files = record(store, "format=vdif&fps=1000&block=64KiB", wire.run_of_frames(600))
    (chunk,) = files.chunks()
    whole = np.frombuffer(files.bytes(), "u1").reshape(600, -1)
    with open(chunk, "r+b") as file:
        file.seek(100_000)
        file.write(b"\xff\xff\xff")
    with pytest.raises(fb.DamagedError) as raised:
        fb.open(store / "test_one")["x"].frames[:]
    assert "skip_damaged=True" in raised.value.hint
    stream = fb.open(store / "test_one", skip_damaged=True)["x"]
    read, valid = stream.frames.read(0, 600)
    assert np.array_equal(read[valid], whole[valid]) and not read[~valid].any()
    assert 30 < np.count_nonzero(~valid) < 200 and not valid[100_000 // whole.shape[1]]
    blocks = list(stream.frames.blocks())
    assert sum(len(block.valid) for block in blocks) == np.count_nonzero(valid)


def test_a_copy_in_an_object_store_reads_alike(store, tmp_path):
    sent = without(wire.run_of_frames(900), 100, 101)
    scan, _ = record(store, "format=vdif&fps=1000&block=64KiB", sent, code=1)
    address = f"file://{tmp_path / 'bucket'}"
    (tmp_path / "bucket").mkdir()
    run("send", "test_one", address, "--store", store)
    copy = fb.open(f"{address}/test_one")
    assert copy.manifest["uuid"] == scan.manifest["uuid"] and copy.members == []
    ours, theirs = scan["x"], copy["x"]
    assert np.array_equal(ours.frames[90:800], theirs.frames[90:800])
    assert np.array_equal(ours.valid[:], theirs.valid[:]) and not theirs.valid[100]
    assert np.array_equal(ours.samples(0.05, 0.8), theirs.samples(0.05, 0.8), equal_nan=True)
    blocks = list(theirs.frames.blocks(700))
    assert b"".join(block.bytes.tobytes() for block in blocks) == ours.frames[blocks[0].first :].tobytes()
    with pytest.raises(fb.NotFoundError, match="no copy"):
        fb.open(f"{address}/test_two")
    chunk = next(path for path in (tmp_path / "bucket").rglob("*.00000000"))
    with open(chunk, "r+b") as file:
        file.seek(70_000)
        file.write(b"damage")
    with pytest.raises(fb.DamagedError, match="CRC32C"):
        theirs.frames[:]


def test_memory_beyond_the_result_is_a_few_blocks(store):
    """The peak of the process grows by the result and the read-ahead."""
    payload, count = 1 << 20, 64
    (store.parent / "in.bin").write_bytes(np.random.default_rng(1).bytes(payload) * count)
    source = f"file:{store.parent / 'in.bin'}?name=x&samples=ri8"
    run("record", source, "--store", store, "--session", "s", "--scan", "a")
    program = f"""
import fullbore, numpy as np
def peak():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))) << 10
stream = fullbore.open({str(store / "s_a")!r})["x"]
stream.frames[:10], stream.samples[:10]
before = peak()
frames = stream.frames[: 40 << 20]
print(peak() - before - frames.nbytes)
del frames
before = peak()
for row, values in stream.samples.blocks(1 << 20, dtype="i1"):
    pass
print(peak() - before)
before = peak()
values = stream.samples[: 24 << 20]
print(peak() - before - values.nbytes)
"""
    done = subprocess.run([sys.executable, "-c", program], env=MODULES, capture_output=True, text=True, check=True)
    beyond = [int(line) for line in done.stdout.split()]
    # Five blocks of 4 MiB, and a block more than is left of the result.
    assert all(it < 28 << 20 for it in beyond), beyond


def test_a_stream_is_followed_while_it_is_recorded(store):
    port, frames = free_port(), wire.run_of_frames(1200)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB&name=x", store=store) as recording:
        wire.send(frames[:600], port)
        recording.wait("progress", lambda told: told["durable_bytes"] > 300_000)
        # The manifest describes a stream a moment after its first blocks are durable.
        until = time.monotonic() + PATIENCE
        while not len((scan := fb.open(store / recording.scan))["x"].frames) and time.monotonic() < until:
            time.sleep(0.05)
        assert scan.state == "recording" and scan["x"].account is None and "recording" in scan.headline
        early = len(scan["x"].frames)
        assert 0 < early <= 600 and scan["x"].frames[:].tobytes() == b"".join(frames)[: early * len(frames[0])]
        seen = []
        reader = threading.Thread(target=lambda: seen.extend(scan["x"].follow()))
        reader.start()
        wire.send(frames[600:], port)
        recording.stop()
        reader.join(PATIENCE)
    assert not reader.is_alive()
    assert b"".join(block.bytes.tobytes() for block in seen) == b"".join(frames)
    assert [block.first for block in seen] == np.cumsum([0, *(len(block.valid) for block in seen[:-1])]).tolist()
    assert seen[0].time == fb.open(store / recording.scan)["x"].time.start


def options(store, **more):
    return {"store": store, "session": "s", "scan": "a", "buffer": "64MiB", **more}


def test_a_recorder_records_in_the_process(store):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&frame=1056&block=64KiB&name=x"
    with fb.Recorder(source, **options(store)) as recorder:
        assert recorder.running
        tap = recorder.tap()
        seen = []
        reader = threading.Thread(target=lambda: seen.extend(tap))
        reader.start()
        sent = wire.send(wire.run_of_frames(1000), port)
        for event in recorder.events():
            if event["event"] == "progress" and event["bytes"] >= 900_000:
                break
        assert "<td>x</td><td>" in recorder._repr_html_()
    reader.join(PATIENCE)
    assert not recorder.running and "ended" in repr(recorder)
    assert recorder.sealed[0]["headline"] in recorder._repr_html_()
    (sealed,) = recorder.sealed
    assert sealed["complete"] and sealed["accounts"][0]["terms"]["written"] == 1000
    assert fb.open(store / "s_a")["x"].frames[:].tobytes() == b"".join(sent)
    assert seen and all(block.stream == "x" and block.bytes.shape[1] == 1056 for block in seen)
    known = {frame for frame in sent}
    assert all(row.tobytes() in known for block in seen for row in block.bytes)


def test_a_recorder_serves_asyncio(store):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&frame=1056&block=64KiB&name=x"

    async def session():
        async with fb.Recorder(source, **options(store)) as recorder:
            tap = recorder.atap()
            await asyncio.to_thread(wire.send, wire.run_of_frames(500), port)
            async for block in tap:
                assert block.bytes.shape[1] == 1056
                break
            async for event in recorder.aevents():
                if event["event"] == "progress" and event["bytes"] >= 500_000:
                    break
        return recorder.sealed

    (sealed,) = asyncio.run(asyncio.wait_for(session(), PATIENCE))
    assert sealed["accounts"][0]["terms"]["written"] == 500


def test_wrong_options_are_refused_with_advice(store):
    for wrong, word in [
        ({"sessions": "x"}, "sessions"),
        ({"duration": "soon"}, "soon"),
        ({"session": "a b"}, "a b"),
        ({"keep": "1GB"}, "fullbore record"),
    ]:
        with pytest.raises(fb.OptionError, match=word):
            fb.Recorder("udp://127.0.0.1:46220?format=vdif", **options(store, **wrong)).start()
    with pytest.raises(fb.Error, match="not begun"):
        fb.Recorder("udp://127.0.0.1:1").stop()


def test_ctrl_c_stops_and_seals(store):
    port = free_port()
    program = f"""
import fullbore
recorder = fullbore.Recorder("udp://127.0.0.1:{port}?format=vdif&fps=1000&name=x", **{options(str(store))!r}).start()
print("armed", flush=True)
try:
    recorder.wait()
except KeyboardInterrupt:
    print(recorder.sealed[0]["accounts"][0]["terms"]["written"])
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, env=MODULES, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "armed\n"
        wire.send(wire.run_of_frames(300), port)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE)[0] == "300\n"
    assert process.returncode == 0
    assert fb.open(store / "s_a").state == "sealed"


def test_the_examples_of_the_guide_run(store, monkeypatch, tmp_path):
    frames = wire.run_of_frames(1500)
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB&name=46220", store=store,
                   session="experiment") as recording:  # fmt: skip
        wire.send((frame for frame in without(frames, 77) if frame), port)
    recording.stop(1)
    (tmp_path / "store").symlink_to(store)
    guide = (REPOSITORY / "docs/howto/python.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    assert len(examples) >= 7
    program = "\n".join(examples) + "\nassert lost == [(77, 1, 'missing')] and len(data) == 1000 and total > 0\n"
    env = {**MODULES, "MPLBACKEND": "Agg", "PATH": f"{os.path.dirname(os.path.abspath(BINARY))}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("LOST 1 of 1500 frames")
    assert "1 000 000 bytes recorded" in done.stdout.splitlines()[-1]


def test_the_cells_of_the_notebook_run(tmp_path):
    notebook = json.loads((REPOSITORY / "docs/notebooks/recording-to-spectrum.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == 9 and all(not cell.get("outputs") for cell in notebook["cells"])
    program = "\n".join(cells).replace("46220", str(free_port()))
    program += "\nassert len(stream.gaps) > 0 and segments > 10_000 and np.ptp(spectrum[2:-2]) < 1 and len(values) == 4"
    env = {**MODULES, "TMPDIR": str(tmp_path), "PATH": f"{os.path.dirname(BINARY)}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", program], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "LOST" in done.stdout


def test_types_are_strict_and_the_stub_is_the_module():
    check = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", REPOSITORY / "target/mypy"]
    program = "import fullbore; reveal_type(fullbore.open('x')['y'].frames[1:2]); fullbore.open(1)"
    done = subprocess.run(
        [*check, "-c", program],
        cwd=package.place(), env={**os.environ, "MYPYPATH": str(package.place())}, capture_output=True, text=True,
    )  # fmt: skip
    assert "ndarray" in done.stdout and 'incompatible type "int"' in done.stdout, done.stdout
    done = subprocess.run([*check, package.place() / "fullbore"], cwd=package.place(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    stub = (package.SOURCE / "_native.pyi").read_text()
    native = sys.modules["fullbore_package._native"]
    told = {"": set(re.findall(r"^(?:def|class) (\w+)", stub, re.MULTILINE)) | {"__version__"}}
    for name, body in re.findall(r"^class (\w+):\n((?:    .*\n|\n)+)", stub, re.MULTILINE):
        told[name] = set(re.findall(r"^    def (\w+)", body, re.MULTILINE))
    public = lambda thing: {name for name in vars(thing) if not name.startswith("_")}
    assert public(native) | {"__version__"} == told.pop("")
    assert {name: public(getattr(native, name)) for name in told} == told


@pytest.mark.slow
def test_a_wheel_alone_brings_the_command_and_the_package(tmp_path):
    wheels = sorted((REPOSITORY / "target/wheels").glob("fullbore-*.whl"), key=lambda it: it.stat().st_mtime)
    if not wheels:
        pytest.skip("there is no wheel here: `make wheel` makes one")
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    subprocess.run([place / "bin/pip", "install", "--quiet", wheels[-1]], check=True)
    version = subprocess.run([place / "bin/fullbore", "--version"], check=True, capture_output=True, text=True).stdout
    imported = [place / "bin/python", "-c", "import fullbore; print(fullbore.__version__, fullbore.__file__)"]
    told = subprocess.run(imported, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert told.split()[0] in version and str(place) in told
    found = [place / "bin/python", "-c", "from fullbore._commands import program; print(program())"]
    told = subprocess.run(found, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert os.path.samefile(told.strip(), place / "bin/fullbore")
    typed = [sys.executable, "-m", "mypy", "--strict", "--python-executable", place / "bin/python", "--cache-dir", tmp_path]
    program = "import fullbore; reveal_type(fullbore.open('x')['y'].frames[1:2]); fullbore.open(1)"
    told = subprocess.run([*typed, "-c", program], capture_output=True, text=True, cwd=tmp_path).stdout
    assert "ndarray" in told and 'incompatible type "int"' in told, told
    demo = [place / "bin/fullbore", "demo", "--rate", "20Mbit/s", "--clean", "--directory", tmp_path / "demo"]
    subprocess.run(demo, check=True, capture_output=True, timeout=300)
