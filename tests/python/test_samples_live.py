"""Files of samples that a recording writes itself: the samples of `convert`, byte for byte, and its account."""

import json
import struct
import time

import numpy as np
import pytest
import sigmf
import wire
from fullbore import FOUND, Recording, Scan, free_port, free_ports, run
from nptdms import TdmsFile

PAIRS = "format=raw&seq=0:8:le&strip=8&frame=1024&block=64KiB&samples=ri16_le&channels=2"


def numbered(numbers):
    """Datagrams that count in their first 8 bytes, and 256 samples of two channels in each."""
    rows = np.arange(numbers.stop * 512, dtype="<u4").astype("<i2").reshape(-1, 256, 2)
    return {number: struct.pack("<Q", number) + rows[number].tobytes() for number in numbers}, rows


def converted(recording, live, *options, code=0):
    """The files that `convert` makes of the scan, beside a live one."""
    stored = live.with_name("converted.npy")
    words = (f"store:{recording.scan}", f"npy:{stored}", "--store", *recording.stores)
    run("convert", *words, "--quiet", *options, code=code)
    return stored


def check_equal(live, stored):
    """What lies beside the arrays differs in the paths and the times of the writers alone."""
    assert live.read_bytes() == stored.read_bytes()
    beside = [json.loads(it.with_name(it.name + ".json").read_text()) for it in (live, stored)]
    places = [told["account"]["host"].pop("members")[0]["path"] for told in beside]
    assert beside[0] == beside[1] and places[0] == str(live)


@pytest.mark.parametrize("values", ["f32", "i16"])
def test_datagrams_with_gaps_inside_and_between_blocks(store, tmp_path, values):
    datagrams, rows = numbered(range(1000))
    absent = {5, *range(60, 70), *range(300, 600), 998}
    port, live = free_port(), tmp_path / "live.npy"
    options = ("--to", f"npy:{live}?as={values}&flush=50ms")
    with Recording(f"udp://127.0.0.1:{port}?{PAIRS}&name=x", store=store, options=options) as recording:
        wire.send((it for number, it in datagrams.items() if number not in absent), port)
    sealed = recording.stop(code=FOUND)
    check_equal(live, converted(recording, live, "--as", values, code=FOUND))
    wanted = rows.astype("f4" if values == "f32" else "i2")
    wanted[sorted(absent)] = np.nan if values == "f32" else 0
    assert np.array_equal(np.load(live), wanted.reshape(-1, 2), equal_nan=values == "f32")
    beside = json.loads(live.with_name("live.npy.json").read_text())
    assert beside["gaps"][0] == {"first": 1280, "count": 256} and len(beside["gaps"]) == 4
    kept = Scan(recording.scan, [store]).account()
    assert beside["account"]["terms"] == sealed["accounts"][0]["terms"] == kept["terms"]
    assert beside["account"]["gaps"] == kept["gaps"]


def test_vdif_with_lost_and_invalid_frames(store, tmp_path):
    def frame(number):
        second, within = divmod(number, 200)
        return wire.Vdif(second=1000 + second, number=within, invalid=number == 77).frame()

    port, live = free_port(), tmp_path / "live.npy"
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=200&block=64KiB&name=x"
    with Recording(source, store=store, options=("--to", f"npy:{live}")) as recording:
        wire.send((frame(number) for number in range(500) if number not in (3, 200)), port, pause=2e-4)
    recording.stop(code=FOUND)
    check_equal(live, converted(recording, live, code=FOUND))
    beside = json.loads(live.with_name("live.npy.json").read_text())
    assert [gap["first"] // 4096 for gap in beside["gaps"]] == [3, 77, 200]
    assert beside["layout"]["sample_rate"] == str(200 * 4096)


def test_bytes_whose_samples_cross_blocks(store, tmp_path):
    live = tmp_path / "live.npy"
    source = "pattern:counter?bytes=9000000&samples=ri16_le&channels=3&name=x"
    words = ("--store", store, "--session", "test", "--scan", "one", "--to", f"npy:{live}?as=i16")
    run("record", source, *words)
    run("convert", "store:test_one", f"npy:{tmp_path / 'converted.npy'}", "--as", "i16", "--store", store, "--quiet")
    check_equal(live, tmp_path / "converted.npy")
    assert np.load(live).tobytes() == np.arange(1_125_000, dtype="<u8").tobytes()


def values(path):
    """The values of a file of one stream, row by row, as the reader of its format has them; none if it cannot be read."""
    try:
        if path.suffix == ".npy":
            return np.load(path).ravel()
        if path.suffix == ".sigmf-meta":
            return sigmf.fromfile(path, autoscale=False).read_samples().ravel()
        (group,) = TdmsFile.read(path).groups()
        return np.stack([channel.read_data(scaled=False) for channel in group.channels()], axis=1).ravel()
    except (OSError, EOFError, ValueError, sigmf.error.SigMFError):
        return np.empty(0, "<i2")


def files(path):
    """The files beside each other that have this name, whatever their endings are."""
    return sorted(it.name for it in path.parent.iterdir() if it.name.startswith(path.stem))


def without_places(told):
    """An account without the files that it was written for."""
    told["host"].pop("members")
    return told


@pytest.mark.parametrize("name", ["x.sigmf-meta", "x.tdms"])
def test_a_live_file_is_that_of_convert(store, tmp_path, name):
    (tmp_path / "converted").mkdir()
    datagrams, rows = numbered(range(1000))
    absent = {5, *range(60, 70), *range(300, 600), 998}
    port, live, stored = free_port(), tmp_path / name, tmp_path / "converted" / name
    with Recording(
        f"udp://127.0.0.1:{port}?{PAIRS}&name=x", store=store, options=("--to", f"{live}?flush=50ms")
    ) as recording:
        wire.send((it for number, it in datagrams.items() if number not in absent), port)
    recording.stop(code=FOUND)
    run("convert", f"store:{recording.scan}", stored, "--store", store, "--quiet", code=FOUND)
    assert np.array_equal(values(live), values(stored)) and files(live) == files(stored)
    if name == "x.tdms":
        wanted = rows.copy()
        wanted[sorted(absent)] = 0
        assert np.array_equal(values(live), wanted.ravel())
        told = [TdmsFile.read_metadata(path).properties for path in (live, stored)]
        accounts = [without_places(json.loads(it.pop("fullbore_account"))) for it in told]
    else:
        assert live.with_suffix(".sigmf-data").read_bytes() == stored.with_suffix(".sigmf-data").read_bytes()
        sigmf.fromfile(live).validate()
        told = [json.loads(path.read_text()) for path in (live, stored)]
        accounts = [without_places(it["global"].pop("fullbore:account")) for it in told]
        assert [it["core:global_index"] for it in told[0]["captures"]] == [it * 256 for it in (0, 6, 70, 600, 999)]
        assert told[0]["global"]["core:recorder"].startswith("fullbore")
    assert told[0] == told[1] and accounts[0] == accounts[1]


def test_live_streams_of_sigmf_are_a_collection(store, tmp_path):
    ports = free_ports(2)
    sources = [f"udp://127.0.0.1:{port}?{PAIRS}&name={name}" for port, name in zip(ports, "ab", strict=True)]
    datagrams, rows = numbered(range(20))
    words = ("--to", f"sigmf:{tmp_path / 'out'}")
    with Recording(*sources, store=store, options=words) as recording:
        for port in ports:
            wire.send(datagrams.values(), port)
    recording.stop()
    collection = sigmf.fromfile(tmp_path / "out.sigmf-collection")
    assert collection.get_stream_names() == ["out_a", "out_b"]
    collection.verify_stream_hashes()
    for name in ("out_a", "out_b"):
        assert collection.get_SigMFFile(name).get_global_info()["core:collection"] == "out"
        assert np.array_equal(values(tmp_path / f"{name}.sigmf-meta"), rows.ravel())


@pytest.mark.parametrize("name", ["live.npy", "live.sigmf-meta", "live.tdms"])
def test_a_kill_leaves_what_readers_open(store, tmp_path, name):
    datagrams, rows = numbered(range(600))
    port, live = free_port(), tmp_path / name
    options = ("--to", f"{live}?as=i16&flush=20ms")
    with Recording(f"udp://127.0.0.1:{port}?{PAIRS}&name=x", store=store, options=options) as recording:
        wire.send(datagrams.values(), port)
        until = time.monotonic() + 20
        while time.monotonic() < until and len(values(live)) < 200_000:
            time.sleep(0.05)
        recording.kill()
    found = values(live)
    assert 200_000 <= len(found) <= rows.size
    assert np.array_equal(found, rows.ravel()[: len(found)])
    assert not {"live.npy.json", "live.tdms_index"}.intersection(files(live)), "it has no ending"


@pytest.mark.parametrize("name", ["live.npy", "live.sigmf-meta", "live.tdms"])
def test_a_full_disk_leaves_what_was_synced_and_says_so(tmp_path, memory_disk, name):
    small, whole = memory_disk("16m"), tmp_path / "whole.npy"
    live = small / name
    sinks = ("--to", f"{live}?as=i16&flush=10ms", "--to", f"npy:{whole}?as=i16")
    done = run("record", "pattern:counter?bytes=40MB&rate=100MB/s&samples=ri16_le&name=x", *sinks, "--json", code=FOUND)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (sealed,) = [event for event in events if event["event"] == "sealed"]
    bad, good = sealed["sinks"]
    found, truth = values(live), values(whole)
    assert len(truth) == 20_000_000 and good["lacking"] == 0 and len(found) > 0
    assert np.array_equal(found, truth[: len(found)]) and 2 * len(found) == bad["bytes"]
    assert bad["failure"].startswith("the disk is full")
    if name == "live.npy":
        told = json.loads((small / "live.npy.json").read_text())
        told = (told["samples"], told["lacks"])
    elif name == "live.tdms":
        told = TdmsFile.read_metadata(live).properties
        told = (told["fullbore_samples"], told["fullbore_lacks"])
    else:
        told = json.loads(live.read_text())["global"]
        told = (told["fullbore:samples"], told["fullbore:lacks"])
    assert told[0] == len(found) and "No space left" in told[1]


@pytest.mark.parametrize(
    "source, target, word",
    [
        ("pattern:counter", "npy:{}/x.npy", "did not describe its samples"),
        ("pattern:counter?samples=ri16_le", "npy:{}/x.npy?as=i8", "do not fit i8"),
        ("pattern:counter?samples=ri16_le", "npy:{}/taken.npy", "is there already"),
        ("pattern:counter?samples=ri16_le", "npy:{}/x.npy?existing=append", "as, flush"),
        ("panda://127.0.0.1", "npy:{}/x.npy", "columns"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_recorded(tmp_path, source, target, word):
    (tmp_path / "taken.npy").write_bytes(b"mine")
    refused = run("record", source, "--to", target.format(tmp_path), "--bytes", "1MB", code=2)
    assert word in refused.stderr.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["taken.npy"]
