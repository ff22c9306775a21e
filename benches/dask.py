#!/usr/bin/env python3
"""How the analysis of a session with Dask scales: one worker, two, and two of which one is killed midway.

    make bench-dask BENCH="--size 16GB --workers 1,2,4"

A session of 60 scans of 8 streams of 8-bit noise is recorded from files. `fullbore analyse spectra` computes the spectrum of
each stream. Times are those from the start of the cluster's work to the results; the start of the processes is apart. All runs
must have the same results to the last bit, and those of one stream are compared with numpy. The result, with the machine, is
written to benches/results/dask.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import numpy as np
from tools import FULLBORE, REPOSITORY

RESULT = REPOSITORY / "benches/results/dask.json"
BINARY = Path(os.environ.get("FULLBORE", str(FULLBORE))).absolute()
SESSION, STREAMS, RATE, CHANNELS = "bench", 8, 32_000_000, 1024


def laid(place: Path) -> Path:
    """The package, with the module that lies beside the binary, for PYTHONPATH."""
    package = place / "package/fullbore"
    package.mkdir(parents=True)
    for file in (REPOSITORY / "python/fullbore").glob("*.py"):
        (package / file.name).symlink_to(file)
    built = [BINARY.parent / name for name in ("libfullbore_python.so", "deps/libfullbore_python.so")]
    module = next((path for path in built if path.is_file()), None)
    if module is None:
        sys.exit(f"{built[0]} is not there: cargo build --release -p fullbore-python")
    (package / "_native.abi3.so").symlink_to(module)
    return package.parent


def record(store: Path, place: Path, scans: int, each: int) -> list[Path]:
    """Records the session: the streams of each scan are the same files of noise."""
    files = []
    for number in range(STREAMS):
        path = place / f"{number}.bin"
        noise = np.random.default_rng(number)
        with path.open("wb") as file:
            for _ in range(0, each, 1 << 20):
                file.write(np.clip(noise.normal(0, 30, 1 << 20), -127, 127).astype("i1").tobytes())
        os.truncate(path, each)
        files.append(path)
    sources = [f"file:{path}?name=s{number}&samples=ri8&sample_rate={RATE}Hz" for number, path in enumerate(files)]
    for scan in range(scans):
        words = [BINARY, "record", *sources, "--store", store, "--session", SESSION, "--scan", f"no{scan:04}", "--json"]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"recording failed: {done.stderr[-2000:]}")
        print(f"\r{scan + 1} of {scans} scans recorded", end="", file=sys.stderr)
    print(file=sys.stderr)
    return files


def analyse(store: Path, package: Path, place: Path, workers: int, kill: bool) -> dict:
    """One run. With `kill`, the first worker is killed when half of the tasks are done."""
    out = Path(tempfile.mkdtemp(dir=place))
    words = ["spectra", SESSION, "--store", store, "--channels", CHANNELS, "--workers", workers, "--json", "-o", out / "x.npz"]
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    begun = time.monotonic()
    command = [sys.executable, "-m", "fullbore.analyse", *map(str, words)]
    killed, started, ended = None, None, None
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            told = json.loads(line)
            if told["event"] == "started":
                started = time.monotonic(), told
            elif told["event"] == "progress":
                ended = time.monotonic()
                if kill and killed is None and 2 * told["done"] >= told["tasks"] > told["done"]:
                    killed = started[1]["workers"][0]["pid"]
                    os.kill(killed, signal.SIGKILL)
    if process.returncode != 0 or started is None or ended is None:
        sys.exit(f"the analysis ended with {process.returncode}")
    if kill and killed is None:
        sys.exit("the analysis was over before a worker could be killed: give a larger --size")
    results = {path.name: np.load(path)["power"] for path in sorted(out.glob("*.npz"))}
    shutil.rmtree(out)
    return {
        "workers": workers, "killed": killed is not None, "tasks": started[1]["tasks"],
        "seconds": ended - started[0], "seconds_until_started": started[0] - begun, "results": results,
    }  # fmt: skip


def by_numpy(path: Path) -> np.ndarray:
    """The spectrum of a stream, from the file that it was recorded from."""
    length = 2 * CHANNELS
    values = np.fromfile(path, dtype="i1")
    cut = values[: len(values) // length * length].reshape(-1, length)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)
    power = np.zeros(CHANNELS)
    for part in range(0, len(cut), 4096):
        power += np.sum(np.abs(np.fft.rfft(cut[part : part + 4096] * window, axis=1)[:, :CHANNELS]) ** 2, axis=0)
    power[1:] *= 2
    return power / len(cut) / (length * np.sum(window**2))


def bytes_of(text: str) -> int:
    """A size such as 4GB. This file has the name of the package that could parse it."""
    units = {"TB": 10**12, "GB": 10**9, "MB": 10**6}
    return int(float(text[:-2]) * units[text[-2:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="4GB", help="bytes of the session")
    parser.add_argument("--scans", type=int, default=60)
    parser.add_argument("--workers", default="1,2", help="numbers of workers, separated by commas")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=REPOSITORY / "target/bench", help="where the session is recorded")
    parser.add_argument("--result", type=Path, default=RESULT)
    options = parser.parse_args()
    each = max(1 << 20, bytes_of(options.size) // (options.scans * STREAMS))
    options.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="dask-") as directory:
        place = Path(directory)
        package, store = laid(place), place / "store"
        store.mkdir()
        files = record(store, place, options.scans, each)
        runs, first = [], None
        settings = [(int(workers), False) for workers in options.workers.split(",")]
        settings.append((max(2, settings[-1][0]), True))
        for _ in range(options.trials):
            for workers, kill in settings:
                run = analyse(store, package, place, workers, kill)
                found = run.pop("results")
                first = found if first is None else first
                run["same_results"] = sorted(found) == sorted(first) and all(
                    np.array_equal(found[name], first[name]) for name in first
                )
                runs.append(run)
                print(f"{workers} workers{', one killed' if kill else ''}: {run['seconds']:.1f} s, same: {run['same_results']}")
        ours = first[f"x_{SESSION}_no0000_s3.npz"][0, :, 0]
        equal = bool(np.allclose(ours, by_numpy(files[3]), rtol=1e-4))
        facts = machine.facts(place)
    total = each * options.scans * STREAMS
    rates = []
    for workers, kill in settings:
        those = [run["seconds"] for run in runs if (run["workers"], run["killed"]) == (workers, kill)]
        seconds = statistics.median(those)
        rates.append({"workers": workers, "killed": kill, "seconds": seconds, "MB_per_second": total / seconds / 1e6})
    document = {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": facts, "version": machine.version(str(BINARY), "--version"),
        "scans": options.scans, "streams": STREAMS, "bytes": total, "channels": CHANNELS,
        "rates": rates, "runs": runs, "equal_to_numpy": equal, "load": os.getloadavg(),
    }  # fmt: skip
    options.result.parent.mkdir(parents=True, exist_ok=True)
    options.result.write_text(json.dumps(document, indent=1) + "\n")
    for rate in rates:
        scaled = rate["MB_per_second"] / rates[0]["MB_per_second"]
        print(f"{rate['workers']} workers{', one killed midway' if rate['killed'] else ''}: {rate['MB_per_second']:.0f} MB/s of "
              f"8-bit samples, {scaled:.2f} times the first")  # fmt: skip
    print(f"equal to numpy: {equal}; the same in all runs: {all(run['same_results'] for run in runs)}")
    return 0 if equal and all(run["same_results"] for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
