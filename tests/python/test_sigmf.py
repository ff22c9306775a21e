"""Samples become SigMF recordings. sigmf-python reads and validates them."""

import json
import struct
import subprocess
import sys
from datetime import datetime, timedelta

import astropy.units as u
import numpy as np
import pytest
import sigmf
import wire
from baseband import vdif
from fullbore import Recording, ask, free_port, free_ports, run
from sigmf.error import SigMFFileError

FRAME = 250  # samples of two channels in each frame


def convert(store, scan, to, *options, **kept):
    return run("convert", f"store:{scan}", to, "--store", store, "--quiet", *options, **kept)


def record_bytes(store, place, data, query):
    (place / "in.bin").write_bytes(data)
    run("record", f"file:{place / 'in.bin'}?name=x&{query}", "--store", store, "--session", "s", "--scan", "a")


def validate(*files):
    """The exit code of the validator of sigmf-python."""
    command = [sys.executable, "-m", "sigmf.validate", *map(str, files)]
    return subprocess.run(command, capture_output=True, timeout=60).returncode


def meta(base):
    return json.loads(base.with_name(base.name + ".sigmf-meta").read_text())


def record_counted(store, rows, absent, query="sample_rate=1MHz"):
    """Records frames of these rows, each with a counter before it, without the absent ones."""
    frames = rows.reshape(-1, FRAME, 2)
    sent = [struct.pack("<Q", n) + frame.tobytes() for n, frame in enumerate(frames) if n not in absent]
    port = free_port()
    about = f"format=raw&seq=0:8:le&strip=8&frame=1000&samples=ri16_be&channels=2&name=sample&{query}"
    with Recording(f"udp://127.0.0.1:{port}?{about}", store=store) as recording:
        wire.send(sent, port)
    recording.stop(code=1 if absent else 0)
    return recording


@pytest.mark.parametrize(
    "samples, channels, dtype",
    [
        ("ri16_be", 1, ">i2"),
        ("ru8", 2, "u1"),
        ("ri32_le", 3, "<i4"),
        ("cf32_be", 2, ">c8"),
        ("rf64_le", 1, "<f8"),
    ],
)
def test_samples_are_as_recorded_and_sigmf_reads_them(store, tmp_path, samples, channels, dtype):
    rows = np.random.default_rng(1).integers(0, 200, (50_001, channels)).astype(dtype)
    record_bytes(store, tmp_path, rows.tobytes(), f"samples={samples}&channels={channels}&frequency=1.42e9")
    convert(store, "s_a", f"sigmf:{tmp_path / 'out'}")
    assert (tmp_path / "out.sigmf-data").read_bytes() == rows.tobytes()
    read = sigmf.fromfile(tmp_path / "out.sigmf-meta", autoscale=False)
    read.validate()
    assert (read.datatype, read.num_channels, read.sample_count) == (samples, channels, 50_001)
    assert read.get_captures()[0]["core:frequency"] == 1.42e9
    assert np.array_equal(read.read_samples().reshape(rows.shape), rows)
    assert validate(tmp_path / "out.sigmf-meta") == 0


def test_a_flipped_bit_is_found_by_the_hash_and_not_without_it(store, tmp_path):
    record_bytes(store, tmp_path, bytes(3_000_000), "samples=ci16_le")
    convert(store, "s_a", f"sigmf:{tmp_path / 'out'}")
    convert(store, "s_a", f"sigmf:{tmp_path / 'plain'}?hash=false")
    for name in ["out", "plain"]:
        with open(tmp_path / f"{name}.sigmf-data", "r+b") as file:
            file.seek(2_999_999)
            file.write(b"\1")
    with pytest.raises(SigMFFileError, match="hash"):
        sigmf.fromfile(tmp_path / "out.sigmf-meta")
    assert validate(tmp_path / "out.sigmf-meta") == 1
    assert validate(tmp_path / "plain.sigmf-meta") == 0
    assert "core:sha512" not in meta(tmp_path / "plain")["global"]


def test_each_of_1000_gaps_is_a_capture_whose_global_index_jumps(store, tmp_path):
    rows = np.arange(2001 * FRAME * 2).astype(">i2").reshape(2001, FRAME, 2)
    absent = set(range(1, 2001, 2))
    recorded = record_counted(store, rows, absent)
    convert(store, recorded.scan, f"sigmf:{tmp_path / 'out'}", code=1)
    read = sigmf.fromfile(tmp_path / "out.sigmf-meta", autoscale=False)
    read.validate()
    captures = read.get_captures()
    assert [(it["core:sample_start"], it["core:global_index"]) for it in captures] == [
        (n * FRAME, 2 * n * FRAME) for n in range(1001)
    ]
    for n in [0, 1, 500, 1000]:
        assert np.array_equal(read.read_samples_in_capture(n), rows[2 * n])
    times = [datetime.fromisoformat(it["core:datetime"][:26]) for it in captures]
    assert times[1000] - times[0] == timedelta(microseconds=2000 * FRAME)
    told = meta(tmp_path / "out")["global"]
    assert told["fullbore:account"]["terms"]["missing"] == 1000
    assert told["fullbore:samples"] == 2001 * FRAME
    assert {"name": "fullbore", "version": "1.0.0", "optional": True} in told["core:extensions"]
    assert validate(tmp_path / "out.sigmf-meta") == 0


def test_several_streams_are_a_collection(store, tmp_path):
    first, second = free_ports(2)
    about = "format=raw&seq=0:8:le&strip=8&frame=1000&samples=ri16_le"
    sources = [f"udp://127.0.0.1:{port}?{about}&name={name}" for port, name in [(first, "a"), (second, "b")]]
    with Recording(*sources, store=store) as recording:
        for port, value in [(first, b"a"), (second, b"b")]:
            wire.send([struct.pack("<Q", n) + value * 1000 for n in range(20)], port)
    recording.stop()
    told = ask("convert", f"store:{recording.scan}", f"sigmf:{tmp_path / 'out'}", "--store", store)
    assert told["joined"] == str(tmp_path / "out.sigmf-collection")
    collection = sigmf.fromfile(tmp_path / "out.sigmf-collection")
    assert collection.get_stream_names() == ["out_a", "out_b"]
    collection.verify_stream_hashes()
    second = collection.get_SigMFFile("out_b")
    second.validate()
    assert second.get_global_info()["core:collection"] == "out"
    assert (tmp_path / "out_b.sigmf-data").read_bytes() == b"b" * 20_000
    (tmp_path / "out_a.sigmf-meta").write_text(json.dumps(meta(tmp_path / "out_a")))
    with pytest.raises(SigMFFileError):
        sigmf.fromfile(tmp_path / "out.sigmf-collection").verify_stream_hashes()


def test_markers_are_annotations_where_they_were_set(store, tmp_path):
    record_bytes(store, tmp_path, bytes(400_000), "samples=ri16_le&channels=2")
    run("mark", "s_a", "the wind rises, 40 °C", "--position", "x:4000", "--store", store)
    convert(store, "s_a", f"sigmf:{tmp_path / 'out'}")
    read = sigmf.fromfile(tmp_path / "out.sigmf-meta")
    read.validate()
    (note,) = read.get_annotations()
    assert (note["core:comment"], note["core:label"]) == ("the wind rises, 40 °C", "the wind rises, 40 °")
    # The position is the end of the block that was received by then.
    assert note["core:sample_start"] in (1000, 100_000)


def test_packed_samples_are_decoded(store, tmp_path):
    sent = wire.cut(wire.sample("SAMPLE_BPS1_VDIF"), 8032)
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&name=sample", store=store) as recording:
        wire.send(sent, port)
    recording.stop()
    convert(store, recording.scan, f"sigmf:{tmp_path / 'f'}")
    convert(store, recording.scan, f"sigmf:{tmp_path / 'i'}", "--as", "i8")
    with vdif.open(wire.data.SAMPLE_BPS1_VDIF, "rs", sample_rate=1 * u.MHz) as theirs:
        expected = theirs.read().reshape(theirs.shape[0], -1)
    for name, datatype in [("f", "rf32_le"), ("i", "ri8")]:
        read = sigmf.fromfile(tmp_path / f"{name}.sigmf-meta", autoscale=False)
        assert read.datatype == datatype
        assert np.array_equal(read.read_samples().reshape(expected.shape), expected)


@pytest.mark.parametrize(
    "to, options, word",
    [
        ("out", ["--as", "i8"], "do not fit i8"),
        ("out", ["--follow"], "--follow"),
        ("out?hash=perhaps", [], "hash=false"),
        ("there", [], "there.sigmf-meta"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_file(store, tmp_path, to, options, word):
    record_bytes(store, tmp_path, bytes(1000), "samples=ri16_le")
    (tmp_path / "there.sigmf-meta").write_text("{}")
    refused = convert(store, "s_a", f"sigmf:{tmp_path / to}", *options, code=2)
    assert word in refused.stderr.decode()
    assert [it.name for it in tmp_path.glob("*.sigmf-*")] == ["there.sigmf-meta"]


def record(store, source, scan, code=0):
    """Records a file of samples; returns the events."""
    told = run("record", source, "--store", store, "--session", "s", "--scan", scan, "--json", code=code)
    return [json.loads(line) for line in told.stdout.splitlines()]


def warnings(events):
    return " ".join(event["text"] for event in events if event["event"] == "warning")


def stream_of(store, scan):
    return ask("info", scan, "--store", store)["manifest"]["streams"][0]


def made_by_sigmf(base, rows, datatype, captures, **more):
    """A recording that sigmf-python wrote."""
    rows.tofile(f"{base}.sigmf-data")
    about = {"core:datatype": datatype, "core:num_channels": rows.shape[1], **more}
    file = sigmf.SigMFFile(data_file=f"{base}.sigmf-data", global_info=about)
    for start, fields in captures:
        file.add_capture(start, metadata=fields)
    file.tofile(f"{base}.sigmf-meta", overwrite=True)


def test_a_recording_of_sigmf_python_is_recorded_with_its_description(store, tmp_path):
    rows = np.random.default_rng(3).integers(-99, 99, (10_000, 3)).astype(">i2")
    made_by_sigmf(tmp_path / "in", rows, "ri16_be", [(0, {"core:frequency": 1e9})], **{"core:sample_rate": 204800.5})
    for number, source in enumerate(["file:in.sigmf-meta?name=y", "sigmf:in?name=y", "file:in.sigmf-data?name=y"]):
        source = source.replace(":", f":{tmp_path}/")
        record(store, source, f"a{number}")
        stream = stream_of(store, f"s_a{number}")
        assert stream["name"] == "y"
        assert stream["samples"] == {
            "encoding": "ri16_be", "channels": 3, "sample_rate": "409601/2", "frequency_hz": 1e9,
        }  # fmt: skip
        assert run("cat", f"s_a{number}", "--store", store).stdout == rows.tobytes()


@pytest.mark.parametrize("dtype, shape", [("<i2", (5000, 2)), (">f4", (9000,)), ("<c16", (700, 3)), ("u1", (33, 1))])
def test_an_array_that_numpy_saved_is_recorded_and_comes_back(store, tmp_path, dtype, shape):
    rows = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    np.save(tmp_path / "in.npy", rows)
    record(store, f"file:{tmp_path / 'in.npy'}?sample_rate=1MHz", "a")
    assert run("cat", "s_a", "--store", store).stdout == rows.tobytes()
    convert(store, "s_a", f"sigmf:{tmp_path / 'out'}")
    read = sigmf.fromfile(tmp_path / "out.sigmf-meta", autoscale=False)
    assert read.sample_rate == 1e6
    assert np.array_equal(read.read_samples().reshape(shape), rows)


def test_gaps_survive_the_way_through_a_file_and_back(store, tmp_path):
    rows = np.arange(400 * FRAME * 2).astype(">i2").reshape(400, FRAME, 2)
    absent = {3, 50, *range(120, 180), 398}
    recorded = record_counted(store, rows, absent)
    convert(store, recorded.scan, f"sigmf:{tmp_path / 'one'}", code=1)
    events = record(store, f"sigmf:{tmp_path / 'one'}", "back", code=1)
    assert not warnings(events)
    terms = stream_of(store, "s_back")["account"]["terms"]
    assert (terms["expected"], terms["written"], terms["missing"]) == (400, 400 - len(absent), len(absent))
    convert(store, "s_back", f"sigmf:{tmp_path / 'two'}", code=1)
    one, two = tmp_path / "one.sigmf-data", tmp_path / "two.sigmf-data"
    assert one.read_bytes() == two.read_bytes()
    before, after = meta(tmp_path / "one"), meta(tmp_path / "two")
    places = [[(it["core:sample_start"], it["core:global_index"]) for it in told["captures"]] for told in (before, after)]
    assert places[0] == places[1]
    # The first frames show what the stream is, and all of them have the arrival time of the last of these.
    for old, new in zip(before["captures"], after["captures"], strict=True):
        late = datetime.fromisoformat(new["core:datetime"][:26]) - datetime.fromisoformat(old["core:datetime"][:26])
        assert timedelta() <= late <= timedelta(microseconds=70 * FRAME)
    assert after["global"]["fullbore:samples"] == 400 * FRAME
    assert validate(tmp_path / "two.sigmf-meta") == 0
    told = run("verify", "s_back", "--store", store, code=3)
    assert f"LOST {len(absent)} of 400 frames".encode() in told.stdout


def test_gaps_that_fit_no_frames_are_told_of(store, tmp_path):
    rows = np.arange(1001, dtype="<i2").reshape(-1, 1)
    made_by_sigmf(tmp_path / "in", rows, "ri16_le", [(0, {"core:global_index": 0}), (7, {"core:global_index": 100})])
    events = record(store, f"sigmf:{tmp_path / 'in'}", "a")
    assert "1 gaps are not kept" in warnings(events)
    assert run("cat", "s_a", "--store", store).stdout == rows.tobytes()


@pytest.mark.parametrize(
    "change, word",
    [
        ({"core:datatype": "ri16_le; rm"}, "is not an encoding"),
        ({"core:dataset": "../secret"}, "same folder"),
        ({"core:num_channels": 10**12}, "num_channels"),
        ({"core:sample_rate": 1e300}, "sample_rate"),
        ({"core:metadata_only": True}, "no samples"),
    ],
)
def test_hostile_metadata_is_refused_in_words(store, tmp_path, change, word):
    (tmp_path / "secret").write_bytes(bytes(100))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.sigmf-data").write_bytes(bytes(100))
    told = {"core:datatype": "ri16_le", "core:version": "1.2.0", **change}
    document = {"global": told, "captures": [], "annotations": []}
    (tmp_path / "in" / "x.sigmf-meta").write_text(json.dumps(document))
    source = f"sigmf:{tmp_path / 'in' / 'x'}"
    refused = run("record", source, "--store", store, "--session", "s", "--scan", "a", code=2)
    assert word in refused.stderr.decode()
