"""Digital RF channels: digital_rf reads them, and lists the gaps of the account."""

import json
import struct

import digital_rf
import numpy as np
import pytest
import wire
from fullbore import FOUND, Recording, free_port, run

QUERY = "format=raw&seq=0:8:le&strip=8&frame=1000&samples=ci16_le&channels=1&sample_rate=20kHz&name=x"
FRAME = 250


def datagrams(numbers):
    rows = np.arange(2 * FRAME * numbers.stop, dtype="<u4").astype("<i2").reshape(-1, FRAME, 2)
    return {number: struct.pack("<Q", number) + rows[number].tobytes() for number in numbers}, rows.reshape(-1, 2)


def record(store, absent, *options, count=300):
    sent, rows = datagrams(range(count))
    port = free_port()
    source = f"udp://127.0.0.1:{port}?{QUERY}&block=64KiB"
    with Recording(source, store=store, options=options) as recording:
        wire.send((it for number, it in sent.items() if number not in absent), port)
    recording.stop(code=FOUND if absent else 0)
    return recording, rows


def convert(recording, target, code=0):
    words = (f"store:{recording.scan}", target, "--store", *recording.stores, "--quiet")
    return run("convert", *words, code=code)


def runs(channel):
    """The reader of a channel, its first sample, and its runs as (offset, samples)."""
    reader = digital_rf.DigitalRFReader(str(channel.parent))
    first, last = reader.get_bounds(channel.name)
    blocks = reader.get_continuous_blocks(first, last, channel.name)
    return reader, first, [(start - first, count) for start, count in blocks.items()]


def test_a_gapped_channel_has_a_run_for_each_piece(store, tmp_path):
    absent = {5, *range(100, 200), 290}
    recording, rows = record(store, absent)
    channel = tmp_path / "x"
    convert(recording, f"drf:{channel}", code=FOUND)
    reader, first, found = runs(channel)
    wanted = [(0, 5 * FRAME), (6 * FRAME, 94 * FRAME), (200 * FRAME, 90 * FRAME), (291 * FRAME, 9 * FRAME)]
    assert found == wanted
    for start, count in wanted:
        data = reader.read_vector_raw(first + start, count, "x")
        assert np.array_equal(np.stack([data["r"], data["i"]], axis=-1).reshape(-1, 2), rows[start : start + count])
    with pytest.raises(OSError):
        reader.read_vector_raw(first, 10 * FRAME, "x")
    properties = reader.get_properties("x")
    assert (properties["is_continuous"], properties["is_complex"]) == (0, 1)
    assert (properties["sample_rate_numerator"], properties["sample_rate_denominator"]) == (20_000, 1)
    assert not list(channel.rglob("tmp.*"))


def test_the_start_is_the_time_of_the_first_sample_and_the_account_is_its_metadata(store, tmp_path):
    recording, _ = record(store, {7})
    channel = tmp_path / "x"
    convert(recording, f"drf:{channel}", code=FOUND)
    convert(recording, f"npy:{tmp_path / 'x.npy'}", code=FOUND)
    reader, first, _ = runs(channel)
    metadata = reader.get_digital_metadata("x")
    told = metadata.read_flatdict(first, first)
    (account,) = told["account"]
    beside = json.loads((tmp_path / "x.npy.json").read_text())
    assert json.loads(account) == beside["account"] and json.loads(account)["terms"]["missing"] == 1
    assert told["scan"][0] == recording.scan


def test_a_continuous_channel_has_fill_in_its_gaps(store, tmp_path):
    recording, rows = record(store, {5})
    channel = tmp_path / "x"
    convert(recording, f"drf:{channel}?continuous=true&file=500&subdir=60&checksum=false", code=FOUND)
    reader, first, found = runs(channel)
    assert len(found) == 1 and found[0][1] % 10_000 == 0
    data = reader.read_vector_raw(first, found[0][1], "x")
    values = np.stack([data["r"], data["i"]], axis=-1).reshape(-1, 2)
    (begin,) = [at for at in range(10_000) if np.array_equal(values[at : at + 4], rows[:4])]
    wanted = np.full_like(values, -32768)
    wanted[begin : begin + len(rows)] = rows
    wanted[begin + 5 * FRAME : begin + 6 * FRAME] = -32768
    assert np.array_equal(values, wanted)


@pytest.mark.parametrize("rate, file_ms", [("200/3", 1000), ("1000", 100), ("12345/7", 250)])
def test_rates_that_are_no_whole_numbers_place_samples_exactly(store, tmp_path, rate, file_ms):
    rows = np.arange(5000, dtype="<i4")
    (tmp_path / "in.bin").write_bytes(rows.tobytes())
    source = f"file:{tmp_path / 'in.bin'}?name=x&samples=ri32_le&sample_rate={rate}"
    run("record", source, "--store", store, "--session", "s", "--scan", "a")
    channel = tmp_path / "x"
    run("convert", "store:s_a", f"drf:{channel}?file={file_ms}&subdir=3600", "--store", store, "--quiet")
    reader, first, found = runs(channel)
    assert found == [(0, 5000)]
    assert np.array_equal(reader.read_vector_raw(first, 5000, "x").ravel(), rows)


def test_a_flipped_byte_is_found_by_its_checksum(store, tmp_path):
    recording, _ = record(store, set())
    channel = tmp_path / "x"
    convert(recording, f"drf:{channel}")
    path = sorted(channel.rglob("rf@*.h5"))[0]
    raw = bytearray(path.read_bytes())
    at = raw.find(np.arange(200, 240, dtype="<u2").tobytes())
    assert at > 0
    raw[at] ^= 1
    path.write_bytes(raw)
    reader, first, found = runs(channel)
    with pytest.raises(OSError):
        reader.read_vector_raw(first, 1000, "x")


def test_a_live_channel_is_that_of_convert(store, tmp_path):
    live, stored = tmp_path / "live", tmp_path / "stored"
    recording, rows = record(store, {5, *range(100, 200)}, "--to", f"drf:{live}?flush=50ms")
    convert(recording, f"drf:{stored}", code=FOUND)
    (_, first, found), (reader, again, wanted) = runs(live), runs(stored)
    assert (first, found) == (again, wanted)
    tree = lambda channel: sorted(str(path.relative_to(channel)) for path in channel.rglob("*"))
    assert tree(live) == tree(stored)
    assert len(digital_rf.lsdrf(str(live))) == len(digital_rf.lsdrf(str(stored))) > 0


@pytest.mark.parametrize(
    "query, word",
    [("file=7000", "whole number of files"), ("file=0", "1 ms to 1 day"), ("gapped=true", "continuous")],
)
def test_options_that_cannot_be_are_refused(store, tmp_path, query, word):
    refused = run("convert", "store:s_a", f"drf:{tmp_path / 'x'}?{query}", "--store", store, code=2)
    assert word in refused.stderr.decode()


def test_a_stream_without_a_rate_is_refused_and_leaves_nothing(store, tmp_path):
    source = "pattern:counter?bytes=4000&samples=ri16_le&name=x"
    run("record", source, "--store", store, "--session", "s", "--scan", "a")
    refused = run("convert", "store:s_a", f"drf:{tmp_path / 'x'}", "--store", store, "--quiet", code=2)
    assert "sample_rate=" in refused.stderr.decode()
    assert not (tmp_path / "x").exists()
