"""Digital RF: channels of `convert` beside those of digital_rf, with the same samples, in one run.

    FULLBORE=target/release/fullbore python benches/digital_rf_rate.py DIRECTORY [GB]

`convert` reads the scan from a store, decodes nothing, and syncs. digital_rf gets the same bytes from memory in pieces of
4 MB, and its files are synced at the end. The directory takes three times the bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import digital_rf
import numpy as np

FULLBORE = os.environ.get("FULLBORE", "fullbore")
# 25 MS/s of pairs of i16: files of 100 MB.
RATE = 25_000_000
SAMPLE = np.dtype([("r", "<i2"), ("i", "<i2")])
PIECE = 1_000_000
WAYS = [
    ("gapped, checksum", {"checksum": True, "continuous": False}),
    ("gapped", {"checksum": False, "continuous": False}),
    ("continuous, checksum", {"checksum": True, "continuous": True}),
    ("continuous", {"checksum": False, "continuous": True}),
]


def ours(store, channel, way, bytes_):
    query = "&".join(f"{name}={str(value).lower()}" for name, value in way.items())
    words = [FULLBORE, "convert", "store:b_a", f"drf:{channel}?{query}", "--store", store, "--quiet"]
    begun = time.perf_counter()
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL)
    return bytes_ / (time.perf_counter() - begun)


def theirs(channel, way, bytes_):
    channel.mkdir()
    rows = np.arange(2 * PIECE, dtype="<u4").astype("<i2").view(SAMPLE)
    begun = time.perf_counter()
    writer = digital_rf.DigitalRFWriter(
        str(channel), SAMPLE, 3600, 1000, 1_700_000_000 * RATE, RATE, 1, "x", 0,
        way["checksum"], True, 1, way["continuous"], False,
    )  # fmt: skip
    for _ in range(bytes_ // rows.nbytes):
        writer.rf_write(rows)
    writer.close()
    for path in channel.rglob("*.h5"):
        with open(path) as file:
            os.fsync(file.fileno())
    return bytes_ / (time.perf_counter() - begun)


def read(top, bytes_):
    reader = digital_rf.DigitalRFReader(str(top))
    first, _ = reader.get_bounds("x")
    begun = time.perf_counter()
    for at in range(0, bytes_ // SAMPLE.itemsize - PIECE + 1, PIECE):
        reader.read_vector_raw(first + at, PIECE, "x")
    return bytes_ / (time.perf_counter() - begun)


def main():
    directory = Path(sys.argv[1]) / "digital_rf"
    bytes_ = int(float(sys.argv[2] if len(sys.argv) > 2 else 1) * 1e9) // (4 * PIECE) * 4 * PIECE
    directory.mkdir()
    store = directory / "store"
    store.mkdir()
    source = f"pattern:counter?bytes={bytes_}&name=x&samples=ci16_le&sample_rate={RATE}"
    words = [FULLBORE, "record", source, "--store", store, "--session", "b", "--scan", "a"]
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL)
    print(f"{bytes_ / 1e9:.1f} GB        MB/s:  write ours  theirs    read of ours  of theirs")
    for what, way in WAYS:
        tops = directory / "ours", directory / "theirs"
        for top in tops:
            top.mkdir()
        mine, other = ours(store, tops[0] / "x", way, bytes_), theirs(tops[1] / "x", way, bytes_)
        back = [read(top, bytes_) for top in tops]
        numbers = [round(number / 1e6) for number in (mine, other, *back)]
        print(f"{what:<24} {numbers[0]:>14} {numbers[1]:>7} {numbers[2]:>15} {numbers[3]:>10}", flush=True)
        for top in tops:
            shutil.rmtree(top)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
