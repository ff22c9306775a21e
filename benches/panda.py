#!/usr/bin/env python3
"""How fast a PandA is written to HDF5, and at what cost, by fullbore and by the client its users have.

    make bench-panda                             both, on /dev/shm and on the disk; some minutes
    make bench-panda BENCH="--rounds 1 --where memory"
    make bench-panda BENCH="--require 1000"      ends with 1 below so many MB/s, or above our share of the client's CPU
    make bench-panda BENCH=--note                the table of the PandABlocks client's documentation: 50 and 60 MB/s, and
                                                 what each setting costs; 6 minutes

One made-up PandA serves everybody, 60-byte samples of 11 columns, as fast as they are taken. It runs on
CPU 0 with the SWMR reader, everything of the recorder on CPU 1. A recording lasts longer than several flushes, and
where h5py reads along it must see rows while they are written. Every file is read back: every row of all columns is
what it must be, and our scaled file is held against the client's, column by column. So a fast writer of wrong
files cannot win. `docs/explanation/panda-benchmark.md` tells what is counted.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import h5py
import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]
FULLBORE = Path(os.environ.get("FULLBORE", REPOSITORY / "target/release/fullbore"))
PEER = REPOSITORY / ".venv/bin/pandablocks"
PEER_WITH_SETTINGS = REPOSITORY / "benches/peers/panda_client.py"
HOST = "127.0.77.1"  # the peer knows only the usual ports, so the server has an address of its own
SAMPLE_BYTES = 60
PATIENCE = 600
READER_SECONDS = 0.2
FLUSH_SECONDS = 1  # of both tools
LEAST_SECONDS = 2 * FLUSH_SECONDS
STEP = 1 << 20  # rows that are compared at once

# The client's CPU seconds for a gigabyte over ours, at least, if something is required.
CHEAPER = {"fullbore scaled": 10, "fullbore raw": 15}

# What every 32-bit word of raw sample i, which is i, means in each column: its type, scale and offset.
COLUMNS = {
    "PCAP.BITS0.Value": ("u4", None, None),
    "COUNTER1.OUT.Min": ("i4", 1.0, 0.0),
    "COUNTER1.OUT.Max": ("i4", 1.0, 0.0),
    "COUNTER1.OUT.Mean": ("i8", 1.0, 0.0),
    "COUNTER2.OUT.Min": ("i4", 0.5, 3.0),
    "COUNTER2.OUT.Max": ("i4", 0.5, 3.0),
    "COUNTER2.OUT.Mean": ("i8", 0.5, 3.0),
    "COUNTER3.OUT.Value": ("i4", 1.0, 0.0),
    "PCAP.SAMPLES.Value": ("u4", 8e-9, 0.0),
    "PCAP.TS_START.Value": ("i8", 8e-9, 0.0),
    "PCAP.TS_CAPTURE.Value": ("i8", 8e-9, 0.0),
}


# The rates of the note, in MB/s, and its settings: what each differs in from the first, which is that of its table.
NOTE_RATES = (50, 60)
NOTE_SETTINGS = {
    "integers sent, one flush a second": {},
    "scaled by the PandA": {"scaled": True},
    "ten flushes a second": {"flush": 0.1},
    "blocks of 256 KiB": {"ring": "32MiB"},
    "beside a web server": {"beside": "web"},
    "beside a second reader": {"beside": "reader"},
}


class Server:
    """`fullbore simulate panda` on CPU 0."""

    def __init__(self, samples: int, rate: float | None, ring: str = "256MiB"):
        words = [
            "taskset", "-c", "0", FULLBORE, "simulate", "panda", "--control", f"{HOST}:8888",
            "--data", f"{HOST}:8889", "--samples", str(samples), "--ring", ring, "--json",
        ]  # fmt: skip
        if rate:
            words += ["--rate", str(rate)]
        self.process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)
        if "listening" not in self.process.stdout.readline():
            sys.exit("the made-up PandA does not listen")
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def cpu_seconds(self) -> float:
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Beside:
    """Another client of the PandA, on CPU 0: a web server's, which asks for changes ten times a second, or a second
    reader of the data port."""

    def __init__(self, kind: str):
        port = {"web": 8888, "reader": 8889}[kind]
        self.socket = socket.create_connection((HOST, port))
        self.asked, self.taken, self.gone = 0, 0, threading.Event()
        self.thread = threading.Thread(target=self.web if kind == "web" else self.reader)
        self.thread.start()

    def web(self):
        os.sched_setaffinity(0, {0})
        answers = self.socket.makefile("rb")
        while not self.gone.wait(0.1):
            self.socket.sendall(b"*CHANGES?\n")
            while (line := answers.readline()) not in (b".\n", b""):
                pass
            self.asked += line == b".\n"

    def reader(self):
        os.sched_setaffinity(0, {0})
        self.socket.sendall(b"XML FRAMED RAW\n")
        into = bytearray(1 << 20)
        while taken := self.socket.recv_into(into):
            self.taken += taken

    def close(self) -> dict:
        self.gone.set()
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the PandA has closed it
        self.thread.join()
        self.socket.close()
        return {"asked": self.asked, "taken": self.taken}


def command_with(tool: str, file: Path, scaled: bool = False, flush: float = 1) -> list[str]:
    """A recording with the settings of the note."""
    if tool == "pandablocks":
        words = [sys.executable, PEER_WITH_SETTINGS, HOST, file, "--flush", flush]
        return [str(word) for word in words + ["--scaled"] * scaled]
    source = f"panda://{HOST}" + "?scaled=true" * scaled
    words = [FULLBORE, "panda", "record", source, file, "--arm", "--flush", f"{int(flush * 1000)}ms", "--json"]
    return [str(word) for word in words]


def run_note(tool: str, folder: Path, rate: float, seconds: float, ring="256MiB", beside=None, **settings) -> dict:
    """One recording at so many MB/s: what it costs, and whether all of it is there."""
    file = folder / "note.h5"
    file.unlink(missing_ok=True)
    samples_per_second = rate * 1e6 / SAMPLE_BYTES
    samples = int(samples_per_second * seconds)
    with Server(samples, samples_per_second, ring) as server:
        other = Beside(beside) if beside else None
        before = server.cpu_seconds()
        process = subprocess.Popen(
            ["taskset", "-c", "1", *command_with(tool, file, **settings)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        panda = server.cpu_seconds() - before
        did = other.close() if other else None
    with h5py.File(file, "r") as written:
        rows = len(written["PCAP.BITS0.Value"])
    trial = {
        "tool": tool,
        "mb_per_second": rate,
        "seconds": seconds,
        "ring": ring,
        "beside": beside,
        "the_other_did": did,
        "settings": settings,
        "exit": status >> 8,
        "samples": samples,
        "missing": samples - rows,
        "right": check(file, rows, raw=False),
        # Of one core, for as long as the samples take to come.
        "cpu_percent": 100 * (usage.ru_utime + usage.ru_stime) / seconds,
        "cpu_seconds_per_gb": (usage.ru_utime + usage.ru_stime) / (rate * seconds / 1000),
        "panda_cpu_percent": 100 * panda / seconds,
        "rss_mb": usage.ru_maxrss / 1000,
    }
    file.unlink()
    return trial


def note(report: dict, folder: Path, seconds: float) -> list[dict]:
    """The table of the note, for both tools; `PandA` is the made-up one on this machine, and no Zynq."""
    print(f"{'MB/s':>4}  {'setting':35}{'tool':13}{'CPU %':>6}{'s/GB':>6}{'RSS MB':>8}{'PandA %':>9}{'missing':>9}  right")
    for name, settings in NOTE_SETTINGS.items():
        for rate in NOTE_RATES:
            for tool in ("fullbore", "pandablocks"):
                trial = {"setting": name, **run_note(tool, folder, rate, seconds, **settings)}
                report["trials"].append(trial)
                print(
                    f"{rate:4}  {name:35}{tool:13}{trial['cpu_percent']:6.1f}{trial['cpu_seconds_per_gb']:6.2f}"
                    f"{trial['rss_mb']:8.0f}{trial['panda_cpu_percent']:9.1f}{trial['missing']:9}  {trial['right']}",
                    flush=True,
                )
    # What the client leaves of an overrun is a finding; a wrong file of ours is a defect.
    return [trial for trial in report["trials"] if trial["tool"] == "fullbore" and not trial["right"]]


def command(tool: str, file: Path) -> list[str]:
    if tool == "pandablocks":
        return [str(PEER), "hdf", HOST, str(file), "--num", "1", "--arm"]
    form = "--raw" if tool.endswith("raw") else "--scaled"
    return [str(FULLBORE), "panda", "record", HOST, str(file), "--arm", form, "--json"]


class Reader:
    """h5py beside the writer: how many rows it sees, several times a second, as long as it is written."""

    def __init__(self, file: Path):
        self.file, self.seen = file, []
        self.written, self.stop = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.follow)
        self.thread.start()

    def follow(self):
        os.sched_setaffinity(0, {0})  # this thread alone
        file = None
        while not self.stop.wait(READER_SECONDS):
            try:
                if file is None:
                    file = h5py.File(self.file, "r", libver="latest", swmr=True)
                dataset = file["COUNTER1.OUT.Min"]
                dataset.refresh()
                rows = len(dataset)
                last = dataset[max(0, rows - 1000) :]
            except (OSError, KeyError):
                file = None
                continue
            # What is seen must be true, and is only counted as live while the writer is there.
            if not np.array_equal(last, np.arange(rows - len(last), rows)):
                rows = -1
            if not self.written.is_set():
                self.seen.append(rows)
        if file is not None:
            file.close()

    def close(self):
        self.stop.set()
        self.thread.join()
        return self.seen


def was_live(seen: list[int]) -> bool:
    """Whether rows were seen while they were written, and they were true ones."""
    return max(seen, default=0) > 0 and min(seen) >= 0


def run(tool: str, folder: Path, samples: int, rate: float | None, with_reader: bool, kept: Path | None) -> dict:
    """One recording: how long it took, its CPU time and memory, and whether its file is right. It is kept there."""
    template = folder / f"{tool.replace(' ', '-')}-%d.h5"
    file = Path(str(template) % 1)
    file.unlink(missing_ok=True)
    with Server(samples, rate):
        before = shutil.disk_usage(folder).free
        if before < samples * 90 * 1.2:
            sys.exit(f"{folder}: too little room for {samples} samples")
        reader = Reader(file) if with_reader else None
        begun = time.monotonic()
        process = subprocess.Popen(
            ["taskset", "-c", "1", *command(tool, template)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        told = process.stdout.read().decode().splitlines()
        if reader:
            reader.written.set()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begun
        seen = reader.close() if reader else []
    if status:
        sys.exit(f"{tool} failed: {told[-3:]}")
    if seconds < LEAST_SECONDS:
        sys.exit(f"{tool} took {seconds:.1f} s, less than two flushes: give more --samples or --peer-samples")
    if with_reader and not was_live(seen):
        sys.exit(f"{tool}: h5py read along and saw no rows while they were written, or wrong ones: {seen}")
    begun = time.monotonic()
    with open(file) as written:
        os.fsync(written.fileno())
    synced = time.monotonic() - begun
    gb = samples * SAMPLE_BYTES / 1e9
    trial = {
        "tool": tool,
        "seconds": seconds,
        "fsync_seconds": synced,
        "mb_per_second": gb * 1000 / seconds,
        "cpu_seconds_per_gb": (usage.ru_utime + usage.ru_stime) / gb,
        "rss_mb": usage.ru_maxrss / 1000,
        "file_bytes": file.stat().st_size,
        "rows_seen_live": seen,
        "right": check(file, samples, raw=tool.endswith("raw")),
    }
    sealed = [json.loads(line) for line in told if '"event":"sealed"' in line]
    if sealed:
        (of_file,) = sealed[-1]["files"]
        trial["verdict"] = sealed[-1]["accounts"][0]["verdict"]
        trial |= {key: of_file[key] for key in ("flush_us", "longest_write_us", "past_page_cache")}
    if kept:
        file.replace(kept)
    file.unlink(missing_ok=True)
    return trial


def expected(name: str, index: np.ndarray, raw: bool) -> np.ndarray:
    """What a column holds of samples by their index, in the order of operations of a PandA."""
    kind, scale, offset = COLUMNS[name]
    wide = (index * np.uint64(2**32 + 1)).view("i8") if kind == "i8" else index.astype(kind)
    if raw or scale is None:
        return wide
    with np.errstate(invalid="ignore", divide="ignore"):
        if name.endswith(".Mean"):
            return scale * wide.astype("f8") / index.astype("f8") + offset
        return wide.astype("f8") * scale + offset


def is_close(got: np.ndarray, wanted: np.ndarray) -> bool:
    """Where the gate was never open a mean is not a number; the client divides by zero all the same."""
    finite = np.isfinite(wanted)
    same = np.allclose(got[finite], wanted[finite], rtol=1e-15, atol=0)
    return same and not np.isfinite(got[~finite]).any()


def check(path: Path, samples: int, raw: bool) -> bool:
    """Whether every row of every column is what it must be."""
    with h5py.File(path, "r") as file:
        names = {name for name in file if isinstance(file[name], h5py.Dataset)}
        if names != set(COLUMNS) or any(len(file[name]) != samples for name in names):
            return False
        for at in range(0, samples, STEP):
            index = np.arange(at, min(at + STEP, samples), dtype=np.uint64)
            rows = slice(at, at + len(index))
            if not all(is_close(file[name][rows], expected(name, index, raw)) for name in names):
                return False
    return True


def alike(ours: Path, theirs: Path) -> bool:
    """Whether our file holds what the client's holds, in every column, as far as both go."""
    with h5py.File(ours, "r") as ours, h5py.File(theirs, "r") as theirs:
        if {name for name in ours if isinstance(ours[name], h5py.Dataset)} != set(theirs):
            return False
        for name in theirs:
            if ours[name].dtype != theirs[name].dtype:
                return False
            length = min(len(ours[name]), len(theirs[name]))
            for at in range(0, length, STEP):
                rows = slice(at, min(at + STEP, length))
                if not is_close(ours[name][rows], theirs[name][rows]):
                    return False
    return True


def middle_of(trials: list[dict], key: str) -> float:
    return statistics.median(trial[key] for trial in trials)


def missed(trials: dict[str, list[dict]], least_mb_per_second: float) -> list[str]:
    """What of ours, in one case, is slower than required, or costs more than its share of what the client does."""
    cost = lambda tool: middle_of(trials[tool], "cpu_seconds_per_gb")
    told = []
    for tool, times in CHEAPER.items():
        if (rate := middle_of(trials[tool], "mb_per_second")) < least_mb_per_second:
            told.append(f"{tool}: {rate:.0f} MB/s, and {least_mb_per_second:.0f} are required")
        if "pandablocks" in trials and (ratio := cost("pandablocks") / cost(tool)) < times:
            told.append(f"{tool}: 1/{ratio:.1f} of the client's CPU, and 1/{times} is required")
    return told


def row(place: str, with_reader: bool, tool: str, trials: list[dict]) -> str:
    """A line of the table: what lies in the middle of the trials."""
    middle = lambda key: middle_of(trials, key)
    return (
        f"{place:8}{'yes' if with_reader else 'no':8}{tool:18}{middle('mb_per_second'):8.0f}"
        f"{middle('cpu_seconds_per_gb'):10.2f}{middle('rss_mb'):8.0f}  {all(trial['right'] for trial in trials)}"
    )


def busy(seconds: float = 1.0) -> float:
    """The share of the machine that others take now."""

    def ticks():
        words = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]))
        return sum(words), words[3] + words[4]

    (all_before, idle_before), _ = ticks(), time.sleep(seconds)
    all_after, idle_after = ticks()
    return 1 - (idle_after - idle_before) / max(1, all_after - all_before)


def machine(others: float) -> dict:
    """Where and when it was measured."""
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "kernel": os.uname().release,
        "cpu": next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if "model name" in line),
        "cpus": os.cpu_count(),
        "sample_bytes": SAMPLE_BYTES,
        "busy_before": others,
    }


def keep(report: dict, name: str):
    results = REPOSITORY / "benches/results"
    results.mkdir(exist_ok=True)
    (results / name).write_text(json.dumps(report, indent=1))
    print(f"all of it: {results / name}")


def bench_note(args):
    others = busy()
    if others > 0.05:
        print(f"others take {others:.0%} of the machine: repeat on a quiet one", file=sys.stderr)
    report = {**machine(others), "trials": []}
    with tempfile.TemporaryDirectory(dir=args.directory, prefix="bench-panda-") as folder:
        wrong = note(report, Path(folder), args.seconds)
    keep(report, "panda_note.json")
    if wrong:
        sys.exit("a file of ours is wrong")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=float, default=60e6, help="samples of each recording")
    parser.add_argument("--peer-samples", type=float, default=10e6, help="the same, of the peer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, help="samples a second, instead of as fast as it goes")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--where", choices=["memory", "disk"], help="only there, instead of on both")
    parser.add_argument("--directory", type=Path, default=REPOSITORY, help="where the disk is")
    parser.add_argument("--require", type=float, metavar="MB/s", help="exit code 1 below it, or above our share of CPU")
    parser.add_argument("--note", action="store_true", help="the table of the PandABlocks client's documentation")
    parser.add_argument("--seconds", type=float, default=10, help="with --note: of each recording")
    args = parser.parse_args()
    if args.note and not PEER.exists():
        sys.exit("pandablocks is not here: make test installs it")
    if args.note:
        return bench_note(args)
    tools = ["fullbore scaled", "fullbore raw"]
    if not args.no_peer:
        if not PEER.exists():
            sys.exit("pandablocks is not here: make test installs it")
        tools.append("pandablocks")
    places = {"memory": Path("/dev/shm"), "disk": args.directory}
    places = {place: at for place, at in places.items() if args.where in (None, place)}
    others = busy()
    if others > 0.05:
        print(f"others take {others:.0%} of the machine: repeat on a quiet one", file=sys.stderr)
    report = {**machine(others), "rate": args.rate, "cases": []}
    short = []
    print(f"{'where':8}{'reader':8}{'tool':18}{'MB/s':>8}{'CPU s/GB':>10}{'RSS MB':>8}  right")
    for place, parent in places.items():
        for with_reader in (False, True):
            with tempfile.TemporaryDirectory(dir=parent, prefix="bench-panda-") as folder:
                ours, theirs = Path(folder) / "ours.h5", Path(folder) / "theirs.h5"
                kept = {} if args.no_peer else {"fullbore scaled": ours, "pandablocks": theirs}
                trials = {tool: [] for tool in tools}
                # In turn, so that a bad minute of the machine is nobody's alone.
                for _ in range(args.rounds):
                    for tool in tools:
                        count = int(args.peer_samples if tool == "pandablocks" else args.samples)
                        trial = run(tool, Path(folder), count, args.rate, with_reader, kept.get(tool))
                        trials[tool].append(trial)
                for tool, of_tool in trials.items():
                    report["cases"].append(
                        {"place": place, "reader": with_reader, "tool": tool, "trials": of_tool}
                    )
                    print(row(place, with_reader, tool, of_tool), flush=True)
                if args.require:
                    beside = " with a reader" if with_reader else ""
                    short += [f"{place}{beside}: {it}" for it in missed(trials, args.require)]
                if kept and not alike(ours, theirs):
                    sys.exit("our file and the client's do not hold the same")
    keep(report, "panda.json")
    wrong = any(not trial["right"] for case in report["cases"] for trial in case["trials"])
    if wrong:
        sys.exit("a file is wrong")
    sys.exit("\n".join(short) if short else 0)


if __name__ == "__main__":
    main()
