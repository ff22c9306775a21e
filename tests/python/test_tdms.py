"""TDMS: npTDMS reads what fullbore writes, fullbore reads what npTDMS and LabVIEW wrote."""

import json
import struct
from pathlib import Path

import nptdms
import numpy as np
import pytest
import wire
from fullbore import Recording, ask, free_port, run
from nptdms import ChannelObject, GroupObject, RootObject, TdmsFile, TdmsWriter

LABVIEW = Path(nptdms.__file__).parent / "test/data"
CHUNK = 8 << 20  # bytes of a raw chunk of few channels


def record_bytes(store, place, data, query):
    (place / "in.bin").write_bytes(data)
    source = f"file:{place / 'in.bin'}?name=x&{query}"
    run("record", source, "--store", store, "--session", "s", "--scan", "a")


def convert(store, target, *options, **kept):
    return run("convert", "store:s_a", f"tdms:{target}", "--store", store, "--quiet", *options, **kept)


def columns(path, scaled=False):
    """The channels of the only group, by name."""
    (group,) = TdmsFile.read(path).groups()
    return {channel.name: channel.read_data(scaled=scaled) for channel in group.channels()}


def is_open(path):
    """True if npTDMS finds that the file was not closed."""
    with TdmsFile.open(path) as file:
        return file.file_status.incomplete_final_segment


@pytest.mark.parametrize("layout", ["contiguous", "interleaved"])
@pytest.mark.parametrize(
    "samples, channels, dtype",
    [
        ("ri16_le", 3, "<i2"),
        ("ri32_be", 2, ">i4"),
        ("ru8", 1, "u1"),
        ("rf64_le", 5, "<f8"),
        ("cf32_le", 2, "<c8"),
    ],
)
def test_samples_keep_their_type_and_value(store, tmp_path, samples, channels, dtype, layout):
    count = CHUNK // np.dtype(dtype).itemsize // channels + 1001
    rows = np.random.default_rng(1).integers(0, 120, (count, channels)).astype(dtype)
    record_bytes(store, tmp_path, rows.tobytes(), f"samples={samples}&channels={channels}")
    convert(store, f"{tmp_path}/out.tdms?layout={layout}")
    found = columns(tmp_path / "out.tdms")
    if dtype == "<c8" and layout == "interleaved":
        # npTDMS reads no interleaved complex values, so they are two channels.
        rows, channels, dtype = rows.view("<f4"), 2 * channels, "<f4"
        assert list(found) == ["ch0_I", "ch0_Q", "ch1_I", "ch1_Q"]
    else:
        assert list(found) == [f"ch{number}" for number in range(channels)]
    for number, values in enumerate(found.values()):
        assert values.dtype == np.dtype(dtype).newbyteorder("=")
        assert np.array_equal(values, rows[:, number])
    assert not is_open(tmp_path / "out.tdms")


def test_scale_unit_waveform_and_account_are_properties(store, tmp_path):
    codes = np.arange(-1000, 1000, dtype="<i2").reshape(1000, 2)
    query = (
        "samples=ri16_le&channels=2&sample_rate=204.8kHz&scale=0.25&intercept=3&unit=V&channel_names=left,right"
    )
    record_bytes(store, tmp_path, codes.tobytes(), query)
    convert(store, tmp_path / "out.tdms")
    file = TdmsFile.read(tmp_path / "out.tdms")
    left = file["x"]["left"]
    assert np.array_equal(left[:], codes[:, 0] * 0.25 + 3), "in volts"
    assert np.array_equal(left.read_data(scaled=False), codes[:, 0])
    assert left.properties["unit_string"] == "V"
    assert np.allclose(left.time_track()[:3], np.arange(3) / 204_800, rtol=1e-15)
    assert file.properties["name"] == "s_a"
    assert json.loads(file.properties["fullbore_account"])["terms"]["written"] == codes.nbytes
    assert file.properties["fullbore_samples"] == 1000
    assert file["x"].properties["sample_rate"] == "204800"
    index = TdmsFile.read_metadata(tmp_path / "out.tdms_index")
    assert index["x"]["right"].properties == file["x"]["right"].properties


def test_complex_integers_are_two_channels(store, tmp_path):
    rows = np.arange(4000, dtype="<i2").reshape(500, 4, 2)
    record_bytes(store, tmp_path, rows.tobytes(), "samples=ci16_le&channels=4")
    convert(store, tmp_path / "out.tdms")
    found = columns(tmp_path / "out.tdms")
    for number in range(4):
        assert np.array_equal(found[f"ch{number}_I"], rows[:, number, 0])
        assert np.array_equal(found[f"ch{number}_Q"], rows[:, number, 1])


def test_hundreds_of_channels_of_24_bits_are_one_file(store, tmp_path):
    rows = np.random.default_rng(2).integers(-(2**23), 2**23, (10_240, 256), dtype="<i4")
    query = "samples=ri32_le&channels=256&sample_rate=204.8kHz&scale=1e-6&unit=V"
    record_bytes(store, tmp_path, rows.tobytes(), query)
    convert(store, tmp_path / "out.tdms")
    with TdmsFile.open(tmp_path / "out.tdms") as file:
        channels = file["x"].channels()
        assert len(channels) == 256
        assert all(len(channel) == 10_240 for channel in channels)
        for number in (0, 1, 100, 255):
            assert np.array_equal(channels[number].read_data(scaled=False), rows[:, number])
            assert channels[number].properties["unit_string"] == "V"


def test_a_gap_is_filled_and_listed(store, tmp_path):
    rows = np.arange(1, 6001, dtype="<f4").reshape(12, 250, 2)
    sent = [struct.pack("<Q", number) + rows[number].tobytes() for number in range(12) if number != 5]
    port = free_port()
    query = "format=raw&seq=0:8:le&strip=8&frame=2000&samples=rf32_le&channels=2&name=x"
    with Recording(f"udp://127.0.0.1:{port}?{query}", store=store) as recording:
        wire.send(sent, port)
    recording.stop(code=1)
    for name, options in [("f", []), ("i", ["--as", "f32"])]:
        words = ["convert", f"store:{recording.scan}", f"tdms:{tmp_path / name}.tdms", *options]
        run(*words, "--store", store, "--quiet", code=1)
        wanted = rows.reshape(3000, 2).copy()
        wanted[1250:1500] = np.nan
        found = columns(tmp_path / f"{name}.tdms")
        assert np.array_equal(np.stack(list(found.values()), 1), wanted, equal_nan=True)
    properties = TdmsFile.read_metadata(tmp_path / "f.tdms").properties
    assert json.loads(properties["fullbore_gaps"]) == [{"first": 1250, "count": 250}]
    assert json.loads(properties["fullbore_account"])["terms"]["missing"] == 1


@pytest.mark.parametrize("layout", ["contiguous", "interleaved"])
def test_a_killed_file_is_read_and_repaired(store, tmp_path, layout):
    count = 2 * CHUNK // 8 + 1001
    rows = np.arange(count * 4, dtype="<i2").reshape(count, 4)
    record_bytes(store, tmp_path, rows.tobytes(), "samples=ri16_le&channels=4")
    convert(store, f"{tmp_path}/out.tdms?layout={layout}")
    whole = (tmp_path / "out.tdms").read_bytes()
    end = 28 + struct.unpack_from("<Q", whole, 12)[0]
    killed = bytearray(whole[:end])
    killed[12:20] = b"\xff" * 8
    for number, (cut, least) in enumerate([(0, 2), (CHUNK // 2, 1), (CHUNK, 1), (2 * CHUNK, 0)]):
        path, again = tmp_path / f"k{number}.tdms", tmp_path / f"r{number}.tdms"
        path.write_bytes(killed[: end - cut])
        assert is_open(path)
        run("convert", f"file:{path}", f"tdms:{again}", code=1)
        theirs, ours = columns(path), columns(again)
        assert not is_open(again)
        for channel, name in enumerate(theirs):
            length = len(ours[name])
            assert length == len(theirs[name]) >= least * CHUNK // 8
            # npTDMS has no type for a channel without values.
            assert length == 0 or np.array_equal(ours[name], rows[:length, channel])
            assert length == 0 or np.array_equal(theirs[name], ours[name])


def test_files_of_labview_are_defragmented_without_a_change(tmp_path):
    for path in sorted(LABVIEW.glob("*.tdms")):
        made = ask("convert", f"file:{path}", f"tdms:{tmp_path / path.name}")
        theirs, ours = TdmsFile.read(path), TdmsFile.read(tmp_path / path.name)
        assert dict(theirs.properties) == dict(ours.properties)
        assert made["files"][0]["channels"] == sum(len(group.channels()) for group in theirs.groups())
        for group in theirs.groups():
            assert dict(group.properties) == dict(ours[group.name].properties)
            for channel in group.channels():
                again = ours[group.name][channel.name]
                assert np.array_equal(channel[:], again[:]), (path.name, channel.path)
                assert len(channel) == len(again) > 0


def test_groups_of_labview_become_arrays(tmp_path):
    for number, path in enumerate(sorted(LABVIEW.glob("*.tdms"))):
        for group in TdmsFile.read(path).groups():
            out = tmp_path / f"{number}.npy"
            out.unlink(missing_ok=True)
            Path(f"{out}.json").unlink(missing_ok=True)
            name = group.name.replace("%", "%25").replace("&", "%26")
            run("convert", f"file:{path}?group={name}", f"npy:{out}")
            channels = [channel.read_data(scaled=False) for channel in group.channels()]
            raw = [next(iter(it.values())) if isinstance(it, dict) else it for it in channels]
            assert np.array_equal(np.load(out), np.stack(raw, 1).astype("f4"))
            layout = json.loads(Path(f"{out}.json").read_text())["layout"]
            increment = group.channels()[0].properties["wf_increment"]
            above, _, below = layout["sample_rate"].partition("/")
            assert int(above) / int(below or 1) == pytest.approx(1 / increment, rel=1e-12)
            if path.name == "raw1.tdms":
                assert layout["slope"] == pytest.approx(0.0003051850947599719)


def many_segments(path):
    """A file of npTDMS with many small segments, channels of several types and unequal lengths."""
    rng = np.random.default_rng(3)
    with TdmsWriter(path) as writer:
        writer.write_segment([RootObject({"title": "µ"}), GroupObject("g", {"count": 5})])
        for number in range(300):
            some = [
                ChannelObject("g", "it's", rng.integers(-9, 9, 7, dtype="i8")),
                ChannelObject("g", "long", rng.integers(-(2**60), 2**60, 7)),
                ChannelObject("h", "time", np.array([number], "datetime64[s]")),
            ]
            if number % 3 == 0:
                some.insert(1, ChannelObject("g", "rare", rng.random(number + 1), {"last": number}))
            if number == 100:
                some.append(ChannelObject("h", "words", ["a", "bc"]))
            writer.write_segment(some)


def test_many_segments_become_few(tmp_path):
    many_segments(tmp_path / "many.tdms")
    made = ask("convert", f"file:{tmp_path / 'many.tdms'}", f"tdms:{tmp_path / 'few.tdms'}", code=1)
    assert made["lacks"] == ["/'h'/'words' is text or has several scalers, and is left out"]
    theirs, ours = TdmsFile.read(tmp_path / "many.tdms"), TdmsFile.read(tmp_path / "few.tdms")
    assert (made["segments"], len(ours._reader._segments)) == (301, 3)
    assert dict(ours.properties) == dict(theirs.properties)
    for group, name in [("g", "it's"), ("g", "long"), ("g", "rare"), ("h", "time")]:
        assert np.array_equal(ours[group][name][:], theirs[group][name][:])
        assert dict(ours[group][name].properties) == dict(theirs[group][name].properties)


@pytest.mark.parametrize(
    "source, target, word",
    [
        ("many.tdms", "npy:out.npy", "no type of values in common"),
        ("many.tdms?group=h", "npy:out.npy", "no samples"),
        ("many.tdms?group=i", "npy:out.npy", "choose one of g, h"),
        ("many.tdms?groups=h", "npy:out.npy", "one parameter"),
        ("many.tdms", "tdms:out.tdms?layout=rows", "layout=interleaved"),
        ("index.tdms", "tdms:out.tdms", "index"),
        ("text.tdms", "tdms:out.tdms", "no TDMS segment begins at byte 0"),
        ("text.bin", "tdms:out.tdms", "samples are taken from"),
        ("none.tdms", "tdms:out.tdms", "cannot be read"),
        ("many.tdms", "tdms:many.tdms", "is there already"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_file(tmp_path, source, target, word):
    many_segments(tmp_path / "many.tdms")
    before = (tmp_path / "many.tdms").read_bytes()
    (tmp_path / "index.tdms").write_bytes(b"TDSh" + before[4:])
    for name in ("text.tdms", "text.bin"):
        (tmp_path / name).write_text("this is a text and no file of samples")
    scheme, name = target.split(":")
    refused = run("convert", f"file:{tmp_path / source}", f"{scheme}:{tmp_path / name}", code=2)
    assert word in refused.stderr.decode()
    assert not list(tmp_path.glob("out*"))
    assert (tmp_path / "many.tdms").read_bytes() == before
