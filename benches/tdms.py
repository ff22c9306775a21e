"""TDMS: fullbore's writer and reader beside npTDMS, with the same samples, in one run.

    python benches/tdms.py DIRECTORY [GB]

The first lines are of `cargo run --release -p fullbore-containers --example tdms_rate`, beside a plain write. Then npTDMS
writes the same number of bytes in segments of 4 MiB, and reads its files and ours. The directory takes twice the bytes of
each file; the last ones are removed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from nptdms import ChannelObject, TdmsFile, TdmsWriter

REPOSITORY = Path(__file__).resolve().parents[1]
SEGMENT = 4 << 20
FILES = [("ri16_le", 1), ("ri16_le", 2), ("ri16_le", 16), ("ri32_le", 256)]


def rate(what, begun, bytes_):
    print(f"{what:<42} {bytes_ / (time.perf_counter() - begun) / 1e9:6.2f} GB/s", flush=True)


def npt_write(path, dtype, channels, segments):
    rows = np.arange(SEGMENT // np.dtype(dtype).itemsize, dtype="i8").astype(dtype).reshape(-1, channels)
    begun = time.perf_counter()
    with TdmsWriter(path) as writer:
        for _ in range(segments):
            # A recorder gets rows, so their order is changed here too.
            columns = np.ascontiguousarray(rows.T)
            names = [f"ch{number}" for number in range(channels)]
            writer.write_segment([ChannelObject("x", *it) for it in zip(names, columns)])
    with open(path) as file:
        os.fsync(file.fileno())
    rate(f"npTDMS, {channels} × {dtype}: write, synced", begun, segments * SEGMENT)


def npt_read(path, what, bytes_):
    begun = time.perf_counter()
    read = 0
    with TdmsFile.open(path) as file:
        for chunk in file.data_chunks():
            read += sum(len(channel) for group in chunk.groups() for channel in group.channels())
    assert read > 0
    rate(what, begun, bytes_)


def main():
    directory = Path(sys.argv[1])
    size = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    example = ["cargo", "run", "--release", "--quiet", "-p", "fullbore-containers", "--example", "tdms_rate"]
    subprocess.run([*example, "--", str(directory), str(size)], cwd=REPOSITORY, check=True)
    segments = -(-int(size * 1e9) // SEGMENT)
    for encoding, channels in FILES:
        dtype = f"i{int(encoding[2:4]) // 8}"
        theirs = directory / "theirs.tdms"
        npt_write(theirs, dtype, channels, segments)
        npt_read(theirs, f"npTDMS, {channels} × {dtype}: read of its file", segments * SEGMENT)
        theirs.unlink()
        for order in ("Contiguous", "Interleaved"):
            ours = directory / f"{channels}_{encoding}_{order}.tdms"
            what = f"npTDMS, {channels} × {dtype}: read of ours, {order}"
            npt_read(ours, what, segments * SEGMENT)
    for path in directory.glob("*_*_*.tdms*"):
        path.unlink()


if __name__ == "__main__":
    main()
