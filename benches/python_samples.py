#!/usr/bin/env python3
"""How fast the Python package decodes samples on one core, beside baseband, in one run.

    make bench-python

Both decode the same recording of VDIF with one thread and frames of 8032 bytes to 32-bit floats, in pieces of a second,
pinned to one core. The recording is on a file system in memory if there is one, since disks are not measured. The values
are compared. Rates are of the floats. The result, with the machine, is written to benches/results/python-samples.json.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
import numpy as np
from tools import FULLBORE, REPOSITORY

RESULT = REPOSITORY / "benches/results/python-samples.json"
BINARY = Path(os.environ.get("FULLBORE", str(FULLBORE)))
PAYLOAD, FPS = 8000, 4000


def load(place):
    """The package, with the module that lies beside the binary."""
    package = place / "fullbore"
    package.mkdir()
    for file in (REPOSITORY / "python/fullbore").glob("*.py"):
        (package / file.name).symlink_to(file)
    (package / "_native.abi3.so").symlink_to(BINARY.absolute().with_name("libfullbore_python.so"))
    spec = importlib.util.spec_from_file_location("fullbore", package / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["fullbore"] = module
    spec.loader.exec_module(module)
    return module


def write(path, bits, seconds):
    """A file of noise: some frames of random bytes, again and again."""
    payloads = [np.random.default_rng(n).bytes(PAYLOAD) for n in range(64)]
    with path.open("wb") as file:
        for number in range(seconds * FPS):
            words = [1000 + number // FPS, number % FPS | 53 << 24, (PAYLOAD + 32) // 8 | 1 << 29, (bits - 1) << 26]
            file.write(struct.pack("<4I", *words) + bytes(16) + payloads[number % 64])


def by_fullbore(stream, rate, memory=None):
    """In new memory for each piece, or in the same for all."""
    begun, count = time.perf_counter(), 0
    samples = stream.samples
    for start in range(0, len(samples), rate):
        end = min(start + rate, len(samples))
        count += samples(start, end, out=None if memory is None else memory[: end - start]).size
    return time.perf_counter() - begun, count


def by_baseband(path, rate):
    import astropy.units as u
    from baseband import vdif

    begun, count = time.perf_counter(), 0
    with vdif.open(path, "rs", sample_rate=rate * u.Hz, verify=False) as file:
        while count < file.shape[0]:
            count += file.read(min(rate, file.shape[0] - count)).size
    return time.perf_counter() - begun, count


def same(stream, path, rate):
    import astropy.units as u
    from baseband import vdif

    with vdif.open(path, "rs", sample_rate=rate * u.Hz) as file:
        theirs = file.read(100_000)
    ours = stream.samples[:100_000, 0]
    # For 4 and 8 bits, baseband divides by the deviation of the encoding.
    scale = np.max(abs(theirs)) / np.max(abs(ours))
    return bool(np.allclose(ours * scale, theirs, atol=0.02 * np.max(abs(theirs))))


def measure(fullbore, place, bits, seconds, trials):
    path, store = place / f"noise{bits}.vdif", place / f"store{bits}"
    store.mkdir()
    write(path, bits, seconds)
    rate = PAYLOAD * 8 // bits * FPS
    replay(path, store)
    stream = next(iter(fullbore.open(store / "bench_one").values()))
    memory = np.zeros((rate, 1), dtype=np.float32)
    ways = {
        "fullbore": lambda: by_fullbore(stream, rate),
        "fullbore_in_place": lambda: by_fullbore(stream, rate, memory),
        "baseband": lambda: by_baseband(path, rate),
    }
    times = {name: [] for name in ways}
    for _ in range(trials):
        for name, way in ways.items():
            taken, count = way()
            assert count == seconds * rate, (name, count)
            times[name].append(taken)
    rates = {name: seconds * rate * 4 / statistics.median(taken) / 1e9 for name, taken in times.items()}
    return {"bits": bits, "seconds": times, "gigabytes_of_floats_per_second": rates, "equal": same(stream, path, rate)}


def replay(path, store):
    """Records the file of frames: played to a port by `fullbore play`, slowly enough to lose nothing."""
    record = [BINARY, "record", "udp://127.0.0.1:46799?format=vdif&name=x", "--store", store, "--session", "bench",
              "--scan", "one", "--json"]  # fmt: skip
    with subprocess.Popen([str(word) for word in record], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if json.loads(line)["event"] == "armed":
                break
        subprocess.run([BINARY, "play", f"file:{path}", "--to", "udp://127.0.0.1:46799", "--rate", "400Mbit/s"],
                       check=False)  # fmt: skip
        time.sleep(0.5)
        process.terminate()
        process.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=4, help="length of the recordings")
    parser.add_argument("--trials", type=int, default=5)
    options = parser.parse_args()
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "."
    with tempfile.TemporaryDirectory(dir=place, prefix="bench-python-") as directory:
        fullbore = load(Path(directory))
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        results = [measure(fullbore, Path(directory), bits, options.seconds, options.trials) for bits in (2, 8)]
        facts = machine.facts(Path(directory))
    document = {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": facts, "version": machine.version(str(BINARY), "--version"), "results": results,
        "load": os.getloadavg(),
    }  # fmt: skip
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1) + "\n")
    for result in results:
        rates = result["gigabytes_of_floats_per_second"]
        print(f"{result['bits']} bits: fullbore {rates['fullbore']:.2f} GB/s, in the same memory "
              f"{rates['fullbore_in_place']:.2f} GB/s, baseband {rates['baseband']:.2f} GB/s, "
              f"{rates['fullbore'] / rates['baseband']:.0f} times; equal: {result['equal']}")  # fmt: skip


if __name__ == "__main__":
    main()
