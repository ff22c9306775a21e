#!/usr/bin/env python3
"""How fast `fullbore spectrum` adds up spectra of 2-bit VDIF, beside baseband with numpy, in one run.

    make bench-spectrum

Both read the same file from the page cache: one channel of 2 bits, frames of 8032 bytes, 1024 spectral channels, a
Hann window. Each has its turn several times, one after the other, and the median counts. The spectra are compared.
The result, with the machine, is written to benches/results/spectrum.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import machine
import numpy as np
from tools import FULLBORE, REPOSITORY

RESULT = REPOSITORY / "benches/results/spectrum.json"
BINARY = os.environ.get("FULLBORE", str(FULLBORE))
CHANNELS, PAYLOAD, FPS = 1024, 8000, 4000
PER_FRAME = PAYLOAD * 4


def write(path, seconds):
    """A file of noise: some frames of random bytes, again and again."""
    payloads = [np.random.default_rng(n).bytes(PAYLOAD) for n in range(64)]
    with path.open("wb") as file:
        for number in range(seconds * FPS):
            words = [1000 + number // FPS, number % FPS | 53 << 24, (PAYLOAD + 32) // 8 | 1 << 29, 1 << 26]
            file.write(struct.pack("<4I", *words) + bytes(16) + payloads[number % 64])


def by_fullbore(path, threads):
    command = [BINARY, "spectrum", path, "--channels", CHANNELS, "--threads", threads, "--json"]
    begun = time.perf_counter()
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True)
    taken = time.perf_counter() - begun
    return taken, np.array(json.loads(done.stdout)["lines"][0]["power"])


def by_numpy(path):
    import astropy.units as u
    from baseband import vdif

    begun = time.perf_counter()
    length, sums, segments = 2 * CHANNELS, 0, 0
    weights = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)).astype("f4")
    with vdif.open(path, "rs", sample_rate=FPS * PER_FRAME * u.Hz) as file:
        left = file.shape[0]
        while left >= length:
            samples = file.read(min(left, 2048 * length) // length * length).reshape(-1, length)
            left -= samples.size
            transform = np.fft.rfft(samples * weights)[:, :CHANNELS]
            sums = sums + np.sum(transform.real**2 + transform.imag**2, axis=0, dtype=float)
            segments += len(samples)
    taken = time.perf_counter() - begun
    spectrum = 2 * sums / (segments * length * np.sum(weights.astype(float) ** 2))
    spectrum[0] /= 2
    return taken, spectrum


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=8, help="length of the file, at 128 MS/s")
    parser.add_argument("--trials", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix="bench-spectrum-") as directory:
        path = Path(directory) / "noise.vdif"
        write(path, options.seconds)
        ways = {
            "fullbore, 1 thread": lambda: by_fullbore(path, 1),
            "fullbore, 2 threads": lambda: by_fullbore(path, 2),
            "baseband and numpy": lambda: by_numpy(path),
        }
        times, spectra = {name: [] for name in ways}, {}
        for _ in range(options.trials):
            for name, way in ways.items():
                taken, spectra[name] = way()
                times[name].append(taken)
        facts = machine.facts(Path(directory))
    samples = options.seconds * FPS * PER_FRAME
    rates = {name: samples / statistics.median(taken) / 1e9 for name, taken in times.items()}
    reference = spectra["baseband and numpy"]
    error = max(float(np.max(abs(it / reference - 1))) for it in spectra.values())
    document = {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": facts, "version": machine.version(BINARY, "--version"), "samples": samples,
        "seconds": times, "gigasamples_per_second": rates, "largest_relative_difference": error,
        "load": os.getloadavg(),
    }  # fmt: skip
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(document, indent=1) + "\n")
    for name, rate in rates.items():
        print(f"{name:22} {rate:6.3f} GS/s, {rate / 4:6.3f} GB/s of 2-bit samples")
    print(f"largest relative difference {error:.1e}")


if __name__ == "__main__":
    main()
