"""Zarr arrays, judged by zarr-python: the values of a numpy file of the same scan, with gaps as fill values."""

import json
import time

import numpy as np
import pytest
import wire
import zarr
from fullbore import FOUND, GOOD, PATIENCE, Recording, Scan, free_port, run
from test_samples_live import PAIRS, numbered


def opened(path):
    """The array without its cache, so that a live one is read again."""
    return zarr.open_array(str(path), mode="r")


@pytest.mark.parametrize("values", ["f32", "i16"])
def test_live_and_converted_arrays_are_the_samples_with_gaps_as_fill_values(store, tmp_path, values):
    # 37 000 datagrams are 38 MB of samples of 16 bits: several chunks, one of which has no samples.
    datagrams, rows = numbered(range(37_000))
    absent = {5, *range(60, 70), *range(2_000, 36_000), 36_998}
    port, live = free_port(), tmp_path / "live.zarr"
    options = ("--to", f"zarr:{live}?as={values}&flush=50ms")
    with Recording(f"udp://127.0.0.1:{port}?{PAIRS}&name=x", store=store, options=options) as recording:
        wire.send((it for number, it in datagrams.items() if number not in absent), port)
    sealed = recording.stop(code=FOUND)
    stored = tmp_path / "converted.zarr"
    words = (f"store:{recording.scan}", f"zarr:{stored}", "--store", *recording.stores, "--as", values)
    run("convert", *words, "--quiet", code=FOUND)
    wanted = rows.astype("f4" if values == "f32" else "i2")
    wanted[sorted(absent)] = np.nan if values == "f32" else 0
    for path in (live, stored):
        array = opened(path)
        assert array.dtype == wanted.dtype and array.metadata.dimension_names == ("sample", "channel")
        assert np.array_equal(array[:], wanted.reshape(-1, 2), equal_nan=values == "f32")
        assert array.nchunks_initialized < array.nchunks, "a chunk without samples has no file"
        attributes = dict(array.attrs)
        assert attributes["gaps"][0] == {"first": 1280, "count": 256} and len(attributes["gaps"]) == 4
        assert attributes["account"]["terms"] == sealed["accounts"][0]["terms"]
        assert attributes["scan"] == recording.scan and attributes["stream"] == "x"
    again = run("convert", *words, "--quiet", code=2)
    assert b"converted.zarr" in again.stderr and len(opened(stored).attrs["gaps"]) == 4, "it is left alone"


def test_a_reader_sees_a_live_array_grow_and_a_kill_leaves_it_readable(store, tmp_path):
    datagrams, rows = numbered(range(2000))
    port, live = free_port(), tmp_path / "live.zarr"
    options = ("--to", f"zarr:{live}?as=i16&flush=20ms")
    sent = list(datagrams.values())
    with Recording(f"udp://127.0.0.1:{port}?{PAIRS}&name=x", store=store, options=options) as recording:
        wire.send(sent, port, pause=5e-4)
        recording.wait("progress", lambda told: told["durable_bytes"] > 1 << 19)
        until = time.monotonic() + PATIENCE
        while opened(live).shape[0] < 256 * 500 and time.monotonic() < until:
            time.sleep(0.02)
        array = opened(live)
        samples = array.shape[0]
        assert np.array_equal(array[:], rows.reshape(-1, 2)[:samples])
        recording.kill()
    array = opened(live)
    assert array.shape[0] >= samples and "account" not in array.attrs
    assert np.array_equal(array[:], rows.reshape(-1, 2)[: array.shape[0]])


def test_complex_samples_of_vdif_and_of_a_pattern(store, tmp_path):
    source = "pattern:prbs7?bytes=400000&name=p&samples=ci16_be&channels=2&sample_rate=1MHz"
    with Recording(source, store=store, scan="p", memory=()) as recording:
        recording.wait("sealed")
        recording.stop(code=GOOD)
    raw = np.frombuffer(Scan("test_p", [store]).bytes(), ">i2").reshape(-1, 2, 2)
    for values, wanted in [("i16", raw), ("f32", raw[..., 0] + 1j * raw[..., 1])]:
        path = tmp_path / f"{values}.zarr"
        run("convert", "test_p", f"zarr:{path}", "--store", store, "--as", values, "--quiet")
        array = opened(path)
        assert array.shape == wanted.shape and np.array_equal(array[:], wanted)
        assert json.loads((path / "zarr.json").read_text())["attributes"]["start"]
