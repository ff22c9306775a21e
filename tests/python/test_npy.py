"""Samples become numpy arrays. numpy reads them, and baseband says what they are."""

import json
import struct

import astropy.units as u
import numpy as np
import pytest
import wire
from astropy.time import Time
from baseband import mark5b, vdif
from fullbore import Recording, free_port, run


REFERENCE = Time("2014-06-13T05:30:01")


def convert(store, scan, path, *options, **kept):
    return run("convert", f"store:{scan}", f"npy:{path}", "--store", store, "--quiet", *options, **kept)


def record_bytes(store, place, data, query):
    (place / "in.bin").write_bytes(data)
    source = f"file:{place / 'in.bin'}?name=x&{query}"
    run("record", source, "--store", store, "--session", "s", "--scan", "a")


@pytest.mark.parametrize(
    "samples, channels, wanted, dtype",
    [
        ("ri16_le", 3, "i16", "<i2"),
        ("ri16_be", 1, "i32", ">i2"),
        ("ru8", 2, "i16", "u1"),
        ("rf32_be", 2, "f32", ">f4"),
        ("ri32_le", 5, "i32", "<i4"),
    ],
)
def test_bytes_become_the_array_that_numpy_reads_from_them(
    store, tmp_path, samples, channels, wanted, dtype
):
    rows = np.random.default_rng(1).integers(0, 200, (100_001, channels)).astype(dtype)
    record_bytes(store, tmp_path, rows.tobytes(), f"samples={samples}&channels={channels}")
    convert(store, "s_a", tmp_path / "out.npy", "--as", wanted)
    assert np.array_equal(np.load(tmp_path / "out.npy"), rows)


def test_complex_samples_are_complex_floats_or_pairs_of_integers(store, tmp_path):
    rows = np.arange(4000, dtype="<i2").reshape(500, 4, 2)
    record_bytes(store, tmp_path, rows.tobytes(), "samples=ci16_le&channels=4")
    convert(store, "s_a", tmp_path / "f.npy")
    convert(store, "s_a", tmp_path / "i.npy", "--as", "i16")
    floats = np.load(tmp_path / "f.npy")
    assert floats.dtype == np.complex64
    assert np.array_equal(floats, rows[..., 0] + 1j * rows[..., 1])
    assert np.array_equal(np.load(tmp_path / "i.npy"), rows)


def test_baseband_decodes_a_vdif_thread_alike(store, tmp_path):
    sent = wire.cut(wire.sample("SAMPLE_BPS1_VDIF"), 8032)
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&name=sample", store=store) as recording:
        wire.send(sent, port)
    recording.stop()
    convert(store, recording.scan, tmp_path / "out.npy")
    with vdif.open(wire.data.SAMPLE_BPS1_VDIF, "rs", sample_rate=1 * u.MHz) as theirs:
        expected = theirs.read().reshape(theirs.shape[0], -1)
    assert np.array_equal(np.load(tmp_path / "out.npy"), expected)


def test_a_gap_is_nan_and_listed(store, tmp_path):
    rows = np.arange(1, 6001, dtype="<i2").reshape(12, 250, 2)
    sent = [struct.pack("<Q", number) + rows[number].tobytes() for number in range(12) if number != 5]
    port = free_port()
    query = "format=raw&seq=0:8:le&strip=8&frame=1000&samples=ri16_le&channels=2&name=sample"
    with Recording(f"udp://127.0.0.1:{port}?{query}", store=store) as recording:
        wire.send(sent, port)
    recording.stop(code=1)
    convert(store, recording.scan, tmp_path / "f.npy", code=1)
    convert(store, recording.scan, tmp_path / "i.npy", "--as", "i16", code=1)
    floats, integers = np.load(tmp_path / "f.npy"), np.load(tmp_path / "i.npy")
    wanted = rows.reshape(3000, 2).astype("f4")
    wanted[1250:1500] = np.nan
    assert np.array_equal(floats, wanted, equal_nan=True)
    assert np.array_equal(integers, np.nan_to_num(wanted).astype("i2"))
    beside = json.loads((tmp_path / "f.npy.json").read_text())
    assert beside["gaps"] == [{"first": 1250, "count": 250}]
    assert (beside["samples"], beside["layout"]["channels"]) == (3000, 2)


@pytest.mark.parametrize("options, word", [(["--as", "i8"], "do not fit i8"), (["--follow"], "--follow")])
def test_what_cannot_be_is_refused_and_leaves_no_file(store, tmp_path, options, word):
    record_bytes(store, tmp_path, bytes(1000), "samples=ri16_le")
    refused = convert(store, "s_a", tmp_path / "out.npy", *options, code=2)
    assert word in refused.stderr.decode()
    assert not list(tmp_path.glob("out.npy*"))


def test_samples_that_nobody_described_are_refused(store, tmp_path):
    record_bytes(store, tmp_path, bytes(1000), "format=raw")
    refused = convert(store, "s_a", tmp_path / "out.npy", code=2)
    assert "did not describe its samples" in refused.stderr.decode()


def test_a_part_of_a_sample_at_the_end_is_told_of(store, tmp_path):
    record_bytes(store, tmp_path, bytes(range(11)), "samples=ri16_le&channels=2")
    told = convert(store, "s_a", tmp_path / "out.npy", "--as", "i16", "--json")
    assert "last 3 bytes are not a whole sample" in told.stderr.decode()
    (stream,) = json.loads(told.stdout)["streams"]
    assert (stream["rows"], stream["rest_bytes"]) == (2, 3)
    assert np.load(tmp_path / "out.npy").shape == (2, 2)


def test_baseband_decodes_mark_5b_alike(store, tmp_path):
    sent = wire.cut(wire.sample("SAMPLE_MARK5B"), 10_016)
    port = free_port()
    query = "format=mark5b&name=sample&samples=rm2&channels=8"
    with Recording(f"udp://127.0.0.1:{port}?{query}", store=store) as recording:
        wire.send(sent, port)
    recording.stop()
    convert(store, recording.scan, tmp_path / "out.npy")
    opened = mark5b.open(wire.data.SAMPLE_MARK5B, "rs", sample_rate=32 * u.MHz, nchan=8, bps=2, ref_time=REFERENCE)
    with opened as theirs:
        assert np.array_equal(np.load(tmp_path / "out.npy"), theirs.read())


def test_complex_vdif_is_what_baseband_wrote(store, tmp_path):
    rng = np.random.default_rng(2)
    written = (rng.uniform(-3, 3, (8000, 2)) + 1j * rng.uniform(-3, 3, (8000, 2))).astype("c8")
    header = vdif.VDIFHeader.fromvalues(
        edv=1, time=REFERENCE, samples_per_frame=1000, nchan=2, bps=8, complex_data=True,
        sample_rate=1 * u.MHz, thread_id=0, station="xx",
    )  # fmt: skip
    path = tmp_path / "made.vdif"
    with vdif.open(path, "ws", header0=header, squeeze=False) as file:
        file.write(written.reshape(-1, 1, 2))
    with vdif.open(path, "rs", sample_rate=1 * u.MHz) as theirs:
        expected = theirs.read()
    sent = wire.cut(path.read_bytes(), header.frame_nbytes)
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&name=sample", store=store) as recording:
        wire.send(sent, port)
    recording.stop()
    convert(store, recording.scan, tmp_path / "out.npy")
    # The levels of baseband lie around zero, and one standard deviation is 35.5 steps.
    assert np.allclose((np.load(tmp_path / "out.npy") + 0.5 + 0.5j) / 35.5, expected)
    assert len(np.unique(expected)) > 10_000


def in_blocks(store):
    """A recording of several blocks: its name, its only chunk, and its rows."""
    rows = np.arange(262_144).astype("<i2").reshape(-1, 2)
    frames = [struct.pack("<Q", n) + frame.tobytes() for n, frame in enumerate(rows.reshape(-1, 256, 2))]
    port = free_port()
    query = "format=raw&seq=0:8:le&strip=8&frame=1024&samples=ri16_le&channels=2&name=x&block=64KiB"
    with Recording(f"udp://127.0.0.1:{port}?{query}", store=store) as recording:
        wire.send(frames, port)
    recording.stop()
    (chunk,) = (it for it in store.glob(f"{recording.scan}*/*") if it.is_file())
    return recording.scan, chunk, rows


def test_damage_ends_a_conversion_unless_it_is_allowed(store, tmp_path):
    scan, chunk, rows = in_blocks(store)
    with open(chunk, "r+b") as file:
        file.seek(100_000)
        file.write(b"\xff\xff\xff")
    refused = convert(store, scan, tmp_path / "out.npy", "--as", "i16", code=2)
    assert "--allow-damaged" in refused.stderr.decode()
    assert not list(tmp_path.glob("out.npy*"))
    convert(store, scan, tmp_path / "out.npy", "--as", "i16", "--allow-damaged", code=1)
    read = np.load(tmp_path / "out.npy")
    assert read.shape == rows.shape
    assert 1 <= np.count_nonzero(np.any(read != rows, axis=1)) <= 2
    beside = json.loads((tmp_path / "out.npy.json").read_text())
    assert beside["account"]["unverified"] > 0


def test_blocks_that_are_gone_at_the_end_are_nan(store, tmp_path):
    scan, chunk, rows = in_blocks(store)
    with open(chunk, "r+b") as file:
        file.truncate(300_000)
    convert(store, scan, tmp_path / "out.npy", "--allow-damaged", code=1)
    read = np.load(tmp_path / "out.npy")
    assert read.shape == rows.shape
    gone = np.flatnonzero(np.isnan(read[:, 0]))
    assert 0 < gone[0] <= 75_000 and np.array_equal(gone, np.arange(gone[0], len(rows)))
    assert np.array_equal(read[: gone[0]], rows[: gone[0]])


def test_a_recording_that_was_killed_becomes_an_array_of_what_is_durable(store, tmp_path):
    rows = np.arange(2_000_000, dtype="<i2").reshape(-1, 2)
    frames = [struct.pack("<Q", n) + frame.tobytes() for n, frame in enumerate(rows.reshape(-1, 250, 2))]
    port = free_port()
    query = "format=raw&seq=0:8:le&strip=8&frame=1000&samples=ri16_le&channels=2&name=x&block=64KiB"
    with Recording(f"udp://127.0.0.1:{port}?{query}", store=store) as recording:
        wire.send(frames, port)
        recording.wait("progress", lambda told: told["durable_bytes"] > 500_000)
        recording.kill()
    convert(store, recording.scan, tmp_path / "before.npy", "--as", "i16", code=1)
    run("recover", recording.scan, "--store", store, code=(0, 1))
    convert(store, recording.scan, tmp_path / "after.npy", "--as", "i16", code=(0, 1))
    for name in ["before", "after"]:
        read = np.load(tmp_path / f"{name}.npy")
        assert len(read) >= 125_000
        assert np.array_equal(read, rows[: len(read)])
