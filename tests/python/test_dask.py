"""Dask: arrays and analyses of scans are what numpy computes, with several workers, over HTTP, and after a kill."""

import csv
import importlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dask.array
import numpy as np
import package
import pytest
import wire
from fullbore import BINARY, FOUND, GOOD, PATIENCE, REFUSED, REPOSITORY, Recording, free_ports, run
from station import SECRETS, Station
from test_spectrum import FPS, RATE, SAMPLES, frames, power, two_bits, weights

fb = package.load()
lazy = importlib.import_module("fullbore_package.dask")
PATH = f"{Path(sys.executable).parent}:{Path(BINARY).absolute().parent}:{os.environ['PATH']}"
MODULES = {**os.environ, "PYTHONPATH": str(package.place()), "PATH": PATH, "OMP_NUM_THREADS": "1"}
# The levels of two bits: docs/howto/spectra.md.
LEVELS = np.array([-3.316505, -1, 1, 3.316505], dtype="f4")
LOST = {"a": {50, 51, 300}, "b": {120}}
LATER = 25  # samples by which b is later than a
SECONDS = 5  # three blocks of 512 KiB


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two streams with gaps that have a signal in common: their store, and the samples of each."""
    store = tmp_path_factory.mktemp("dask") / "store"
    store.mkdir()
    random = np.random.default_rng(1)
    common = random.normal(size=SECONDS * RATE + LATER)
    common += 0.5 * np.cos(2 * np.pi * 0.21 * np.arange(len(common)))
    ports = free_ports(2)
    sources, sent, samples = [], {}, {}
    for name, port, signal_of in (("a", ports[0], common[LATER:]), ("b", ports[1], common[:-LATER])):
        codes = two_bits(signal_of + 0.5 * random.normal(size=SECONDS * RATE))
        made = frames(codes[:, np.newaxis], 2)
        sent[port] = [None if number in LOST[name] else frame for number, frame in enumerate(made)]
        samples[name] = LEVELS[codes]
        for number in LOST[name]:
            samples[name][number * SAMPLES : (number + 1) * SAMPLES] = np.nan
        sources.append(f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}&block=64KiB&name={name}")
    with Recording(*sources, store=store) as recording:
        wire.send_in_turn(sent, 1e-4)
    recording.stop(FOUND)
    return store, samples


def test_arrays_are_the_samples_and_chunks_are_small(recorded):
    store, samples = recorded
    stream = fb.open(store / "test_one")["a"]
    array = stream.to_dask(chunks="160kB")
    assert array.shape == (SECONDS * RATE, 1) and array.dtype == np.float32 and array.chunks[0][0] == 40_000
    assert np.array_equal(array.compute()[:, 0], samples["a"], equal_nan=True)
    part = array[199_000:205_001:3, 0]
    assert np.array_equal(part.compute(), samples["a"][199_000:205_001:3], equal_nan=True)
    masked = stream.to_dask(0.1, 1.3, chunks=77_777, masked=True, dtype="i2")
    assert masked.dtype == np.int16 and masked.compute().mask.sum() == 3 * SAMPLES
    assert dask.array.ma.count(masked).compute() == 1_200_000 - 3 * SAMPLES
    reader = stream.samples.reader(1000, 2000, remote="http://127.0.0.1:8480", token=Path("token"))
    assert reader.place.address == "http://127.0.0.1:8480/api/v1/copies/test_one"
    assert reader.place.token.is_absolute()
    sent = pickle.dumps(reader)
    assert len(sent) < 1000 and np.array_equal(pickle.loads(sent)[:][:, 0], samples["a"][1000:2000])
    with pytest.raises(ValueError, match="smaller than one row"):
        stream.to_dask(chunks="1B")
    with pytest.raises(TypeError, match="f4, i1"):
        stream.to_dask(dtype="f8")
    elsewhere = replace(stream.samples.reader(), place=replace(reader.place, roots=("/no/where",), address=None))
    with pytest.raises(fb.NotFoundError, match="this host has no /no/where"):
        elsewhere[:10]
    other = replace(stream.samples.reader(), place=replace(reader.place, uuid="0", address=None))
    with pytest.raises(fb.NotFoundError, match="another scan of the same name"):
        other[:10]


def whole(samples, length):
    count = len(samples) // length
    return ~np.isnan(samples[: count * length].reshape(count, length)).any(axis=1)


def test_spectra_are_those_of_numpy_and_of_the_command(recorded, monkeypatch):
    store, samples = recorded
    monkeypatch.setenv("PATH", PATH)
    found = lazy.spectra("test", store=store, channels=64, chunks="300kB")
    assert sorted(found) == ["test_one/a", "test_one/b"]
    for name in "ab":
        spectrum = found[f"test_one/{name}"]
        computed = spectrum.power.compute()
        assert computed.shape == (1, 64, 1) and spectrum.lines == ["0:0"]
        good = whole(samples[name], 128)
        assert spectrum.segments.compute().tolist() == [[good.sum()]]
        expected = power(np.nan_to_num(samples[name]).astype("f8"), good)
        assert np.allclose(computed[0, :, 0], expected, rtol=1e-5)
    waterfall = lazy.spectra(fb.open(store / "test_one")["a"], channels=64, average=0.1, window="blackman")["test_one/a"]
    told = fb.open(store / "test_one")["a"].waterfall(channels=64, average="100ms", window="blackman")
    assert np.allclose(waterfall.power.compute()[..., 0], told.power[0], rtol=1e-4, equal_nan=True)
    assert np.allclose(waterfall.frequency, told.frequency) and len(waterfall.time) == 10 * SECONDS
    assert waterfall.time[10] - waterfall.time[0] == np.timedelta64(1_000_064, "us")
    with pytest.raises(ValueError, match="no window"):
        lazy.spectra("test", store=store, window="flat")


def test_a_chunk_comes_over_http_from_a_station(recorded, tmp_path):
    store, samples = recorded
    with Station(store, tmp_path / "state") as station:
        address = f"http://127.0.0.1:{station.port}"
        client = fb.Station(address, token=SECRETS["viewer"])
        scan = client.open("test_one")
        assert scan.members == [] and scan.manifest["uuid"] == fb.open(store / "test_one").manifest["uuid"]
        assert np.array_equal(scan["b"].samples[:][:, 0], samples["b"], equal_nan=True)
        token = tmp_path / "token"
        token.write_text(SECRETS["viewer"])
        reader = fb.open(store / "test_one")["a"].samples.reader(1_500_000, 3_000_000, remote=address, token=token)
        remote = replace(reader, place=replace(reader.place, roots=("/no/where",)))
        computed = lazy.array(remote, "400kB").compute(scheduler="threads")
        assert np.array_equal(computed[:, 0], samples["a"][1_500_000:3_000_000], equal_nan=True)
        with pytest.raises(fb.Error, match="401|login|token"):
            fb.open(f"{address}/api/v1/copies/test_one", token="wrong")
        with pytest.raises(fb.NotFoundError):
            client.open("test_two")
        told = run("cat", f"{address}/api/v1/copies/test_one", "--stream", "a",
                   env={**os.environ, "FULLBORE_TOKEN": SECRETS["viewer"]})  # fmt: skip
        assert told.stdout == run("cat", "test_one", "--stream", "a", "--store", store).stdout
        ranges(station, next(store.glob("test_one_dsa/*.00000000")).read_bytes())


def ranges(station, chunk):
    """Ranges of a file are those of RFC 9110, and no name is a path."""
    at = "/api/v1/copies/test_one/test_one_dsa/test_one_dsa.00000000"
    for text, part in [("bytes=5-9", chunk[5:10]), ("bytes=-7", chunk[-7:]), (f"bytes={len(chunk) - 3}-", chunk[-3:])]:
        answer = station.ask("GET", at, role="viewer", headers={"Range": text})
        assert answer.status == 206 and answer.body == part
        assert answer.headers["Content-Range"].endswith(f"/{len(chunk)}")
    answer = station.ask("GET", at, role="viewer")
    assert answer.status == 200 and answer.body == chunk and answer.headers["Accept-Ranges"] == "bytes"
    answer = station.ask("GET", at, role="viewer", headers={"Range": f"bytes={len(chunk)}-"})
    assert answer.status == 416 and answer.json["status"] == 416
    assert station.ask("GET", at, role=None).status == 401
    for wrong in ("test_one_dsa/.fullbore/copies.json", "..%2f..%2fetc%2fpasswd", "test_one_dsa/%2e%2e/x", "index"):
        assert station.ask("GET", f"/api/v1/copies/test_one/{wrong}", role="viewer").status in (400, 404), wrong


def analyse(*words, env=MODULES, **options):
    return subprocess.Popen(
        [BINARY, "analyse", *map(str, words)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_a_worker_is_killed_and_the_result_is_that_of_numpy(recorded, tmp_path):
    store, samples = recorded
    words = ("spectra", "test", "--store", store, "--channels", 64, "--chunks", "120kB", "--workers", 2)
    process = analyse(*words, "-o", tmp_path / "out.npz", "--json")
    events, killed = [], None
    for line in process.stdout:
        events.append(json.loads(line))
        done = events[-1].get("done", 0)
        if killed is None and 0 < done < events[0]["tasks"]:
            killed = events[0]["workers"][0]["pid"]
            os.kill(killed, signal.SIGKILL)
    errors = process.stderr.read()
    assert process.wait(PATIENCE) == GOOD, errors
    assert killed is not None and events[0]["event"] == "started" and len(events[0]["workers"]) == 2
    assert events[0]["tasks"] > 300 and events[-2]["done"] == events[0]["tasks"]
    assert [it["name"] for it in events[-1]["results"]] == ["test_one/a", "test_one/b"]
    for told in events[-1]["results"]:
        assert told["file"] == str(tmp_path / f"out_{told['name'].replace('/', '_')}.npz")
        name, saved = told["name"][-1], np.load(told["file"])
        good = whole(samples[name], 128)
        assert saved["segments"].tolist() == [[good.sum()]] and told["left_out"] == [int((~good).sum())]
        expected = power(np.nan_to_num(samples[name]).astype("f8"), good)
        assert np.allclose(saved["power"][0, :, 0], expected, rtol=1e-5)
        assert told["strongest"] == [pytest.approx(0.21 * RATE, abs=RATE / 128)]


CLUSTER = """
import json, sys
from distributed import LocalCluster
from fullbore import analyse

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        for words in json.loads(sys.stdin.read()):
            print(json.dumps({"code": analyse.main([*words, "--json", "--scheduler", cluster.scheduler_address])}), flush=True)
"""


def test_a_cluster_computes_each_analysis(recorded, tmp_path):
    store, samples = recorded
    a, b = samples["a"].astype("f8"), samples["b"].astype("f8")
    model = tmp_path / "delays.csv"
    model.write_text(f"stream,time,delay_s\nb,2026-11-27T12:00:00,{LATER / RATE}\n")
    out = [str(tmp_path / name) for name in ("statistics.csv", "power.npz", "cross.npz", "line.npy")]
    common = ["--store", str(store), "--chunks", "1MB"]
    jobs = [
        ["statistics", "test_one", *common, "-o", out[0]],
        ["power", "test_one/a", *common, "--average", "100ms", "--start", "0.1", "--length", "1", "-o", out[1]],
        ["correlate", "test_one", *common, "--channels", "64", "-o", out[2]],
        ["correlate", "test_one", *common, "--channels", "64", "--pairs", "b:a", "--model", str(model)],
        ["subband", "test_one/a", *common, "--centre", "200kHz", "--width", "50kHz", "-o", out[3]],
        ["statistics", "test_two", *common],
        ["statistics", "test_one", *common, "-o", out[0]],
    ]
    with Station(store, tmp_path / "state") as station:
        token = tmp_path / "token"
        token.write_text(SECRETS["viewer"])
        copy = f"http://127.0.0.1:{station.port}/api/v1/copies/test_one"
        jobs.insert(5, ["statistics", copy, "--chunks", "1MB", "--token-file", str(token)])
        wrong = ["statistics", "test_one/b", "--store", str(damaged(store, tmp_path))]
        jobs += [wrong, [*wrong, "--skip-damaged"]]
        program = tmp_path / "cluster.py"
        program.write_text(CLUSTER)
        done = subprocess.run(
            [sys.executable, program], env=MODULES, input=json.dumps(jobs), capture_output=True, text=True, timeout=PATIENCE
        )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    codes = [line["code"] for line in lines if "code" in line]
    assert codes == [GOOD] * 6 + [REFUSED] * 2 + [FOUND, GOOD], done.stderr
    assert all(word in done.stderr for word in ("test_two", "exists", "checksum is wrong", "--skip-damaged"))
    told = [line["results"] for line in lines if line.get("event") == "analysed"]
    means = [values["mean"][0] for values in told[0]]
    assert np.allclose(means, [np.nanmean(a), np.nanmean(b)], rtol=1e-9)
    assert told[6][0]["absent"][0] > 10 * SAMPLES
    over_http = [{**result, "file": None} for result in told[5]]
    assert over_http == [{**result, "file": None} for result in told[0]]
    with open(tmp_path / "statistics_test_one_b.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["deviation"]) == pytest.approx(np.nanstd(b)) and int(row["absent"]) == SAMPLES
    centred = b - np.nanmean(b)
    assert float(row["kurtosis"]) == pytest.approx(np.nanmean(centred**4) / np.nanvar(b) ** 2)
    assert float(row["maximum"]) == pytest.approx(3.316505) and float(row["minimum"]) == pytest.approx(-3.316505)
    series = np.load(out[1])
    expected = np.nanmean(a[100_000:1_100_000].reshape(10, -1) ** 2, axis=1)
    assert np.allclose(series["power"][:, 0], expected) and np.allclose(series["seconds"], np.arange(10) / 10 + 0.1)
    correlations(a, b, np.load(out[2]), told[2][0], told[3][0])
    filtered(a, np.load(out[3]), told[4][0])


def damaged(store, place):
    """A copy of the store with a few wrong bytes."""
    copy = shutil.copytree(store, place / "damaged")
    with open(next(copy.glob("test_one_dsb/*.00000000")), "r+b") as file:
        file.seek(700_000)  # in the second of three blocks
        file.write(b"damage")
    return copy


def correlations(a, b, saved, told, with_model):
    good = whole(a, 128) & whole(b, 128)
    count = len(good)
    scale = np.sqrt(128 * np.sum(weights(128) ** 2))
    one, other = (np.fft.rfft(it[: count * 128].reshape(count, 128)[good] * weights(128))[:, :64] / scale for it in (a, b))
    assert told["name"] == "test_one/a:test_one/b" and saved["segments"].tolist() == [[good.sum()]]
    assert np.allclose(saved["cross"][0, :, 0], np.mean(one * other.conj(), axis=0), atol=1e-5)
    # A segment of a that is compared with the same one of b lacks what is later.
    assert told["delay_s"] == pytest.approx(-LATER / RATE, abs=0.1 / RATE)
    assert with_model["name"] == "test_one/b:test_one/a"
    assert with_model["delay_s"] == pytest.approx(0, abs=0.02 / RATE)
    assert with_model["coherence"] > 1.2 * told["coherence"] and with_model["snr"] > 100


def filtered(a, saved, told):
    step = round(RATE / told["sample_rate"])
    assert saved.shape == (-(-len(a) // step), 1) and saved.dtype == np.complex64 and told["sample_rate"] >= 50_000
    half, cut = told["taps"] // 2, 1 / step
    taps = np.sinc(cut * np.arange(-half, half + 1)) * np.blackman(2 * half + 3)[1:-1]
    taps /= taps.sum()
    mixed = a * np.exp(-2j * np.pi * 0.2 * np.arange(len(a))) * np.sqrt(2)
    for row in (half // step + 1, 30_000, 100_000):
        at = row * step
        assert saved[row, 0] == pytest.approx(np.sum(mixed[at - half : at + half + 1] * taps), abs=1e-5)
    absent = np.flatnonzero(np.isnan(saved[:, 0]))
    assert len(absent) == told["absent"][0] and {0, 50 * SAMPLES // step + 1, len(saved) - 1} <= set(absent.tolist())


def test_the_command_says_what_is_missing(recorded, tmp_path):
    store, _ = recorded
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin/python3"
    for code, text in [(4, "dask and distributed are not installed"), (3, "the package fullbore is not installed")]:
        python.write_text(f"#!/bin/sh\nexit {code}\n")
        python.chmod(0o755)
        env = {**MODULES, "PATH": str(python.parent)}
        process = analyse("statistics", "test_one", "--store", store, env=env)
        assert process.wait(PATIENCE) == REFUSED
        said = process.stderr.read()
        assert text in said and "pip install 'fullbore[dask]'" in said
    python.unlink()
    process = analyse("statistics", "test_one", env={**MODULES, "PATH": str(python.parent)})
    assert process.wait(PATIENCE) == REFUSED and "cannot run" in process.stderr.read()


def test_the_examples_of_the_guide_run(recorded, tmp_path):
    store, _ = recorded
    guide = (REPOSITORY / "docs/howto/dask.md").read_text()
    (example,) = [part.partition("```")[0] for part in guide.split("```python\n")[1:]]
    program = example.replace("store/experiment_one", f"{store}/test_one").replace("46220", "a")
    program = program.replace('"experiment"', '"test"').replace("experiment_one/", "test_one/")
    program = program.replace('store="store"', f"store={str(store)!r}") + "\nassert power.shape == (50, 64, 1)\n"
    done = subprocess.run([sys.executable, "-c", program], env=MODULES, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
