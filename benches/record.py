#!/usr/bin/env python3
"""How fast streams are recorded without loss, and at what cost, by fullbore and by its peers.

    make bench                                  everything; about an hour, as root
    make bench BENCH="--quick"                  8 KB, 8 streams, both wires; some minutes
    make bench BENCH="--tools fullbore,dumpcap --wires veth --streams 8"
    make bench BENCH="--cost 5 --wires veth"    the cost at one rate only: five rounds, each tool in turn
    make bench BENCH="--rows reading"           read while recording, and the peers beside it
    make bench BENCH="--rows redundancy"        mirror and parity on four members, and the peers beside them

Every tool gets the same packets, from the same sender, onto the same file system, in the same run. The
sender has CPU 0, and everything of the receiver CPU 1. A trial is lossless when the files hold as many
frames as were sent; the rate is searched by steps. `docs/explanation/benchmarks.md` tells what is counted, and why.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import machine
import store
from tools import BESIDE, FULLBORE, REPOSITORY, TOOLS

FIRST_PORT = 46_220
STEPS = [0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 13, 14, 15, 16, 18, 20, 24, 28, 32]  # Gbit/s
COMMON_STEP = {8032: 3, 1312: 1}  # a rate that all can hold, to compare their cost at
TRIES = 2  # a rate is given up after so many losses
LONG = 14  # seconds of a sustained trial: more than block memory and the page cache hide
QUIET = 0.05  # the share of the machine that others may take before it is told
HELD_BY_SENDER = 0.97  # the share of the rate asked for below which the sender is the limit


@dataclass(frozen=True)
class Case:
    """What is recorded, and how it comes."""

    wire: str
    payload: int
    streams: int
    pinned: bool
    sustained: bool = False

    def __str__(self):
        how = "" if self.pinned else ", unpinned"
        how += f", sustained for {LONG} s" if self.sustained else ""
        return f"{self.wire}, {self.payload} B, {self.streams} stream{'s' * (self.streams > 1)}{how}"


@dataclass
class Trial:
    """One run of one tool at one rate."""

    asked_gbit: float
    sent_gbit: float
    sent: int
    kept: int
    core_s_per_gb: float
    """All that CPU 1 did from before the first packet until all is on the disk."""
    process_s_per_gb: float
    """Of it, the tool's own user and system time."""
    flush_s_per_gb: float
    """Of it, writing out what the tool had left in the page cache."""
    elsewhere_s_per_gb: float
    """What CPU 0 did beyond the sender's own time while packets came: softirq, and write-back there."""
    reader_s_per_gb: float
    """Of what CPU 1 did, the time of those who read along."""
    others: float
    """The share of the machine that programs took which had no part in it."""
    sampled: dict | None = None
    """Seconds of CPU 1 per GB by samples: `network`, `entry` (entering its interrupt, which wires inside a machine make
    dear) and `own`."""

    @property
    def lossless(self):
        return self.kept == self.sent > 0


class Bench:
    def __init__(self, options):
        self.options = options
        self.scratch = Path(options.directory).absolute() / f"fullbore-bench-{os.getpid()}"
        self.results = []

    def trial(self, tool_class, wire, case, gbit):
        shutil.rmtree(self.scratch, ignore_errors=True)
        (self.scratch / "data").mkdir(parents=True)
        ports = range(FIRST_PORT, FIRST_PORT + case.streams)
        tool = tool_class(wire, self.scratch / "data", ports, case.payload)
        with contextlib.ExitStack() as stack:
            stack.callback(tool.abandon)  # where the trial was interrupted, or the tool did not start
            return self.trial_of(tool, wire, case, gbit, stack)

    def trial_of(self, tool, wire, case, gbit, stack):
        tool.start(pin(machine.RECEIVER_CPU, case))
        samples = machine.Samples(self.scratch / "perf.data", stack) if self.options.cost else None
        start, before, own = time.monotonic(), machine.Busy(), machine.cpu_of(tool.process.pid)
        sent = self.send(wire, case, gbit)
        tool.stop()
        sampled = samples.stop(tool.process.pid) if samples else None
        during = machine.Busy()
        for path in tool.files():
            flush(path)
        seconds, after = time.monotonic() - start, machine.Busy()
        process = cpu_seconds(tool.usage) - own
        cores, flushed = during.since(before), sum(after.since(during))
        core = cores[machine.RECEIVER_CPU] if case.pinned else sum(cores) - sent.cpu_s
        others = after.by_programs_since(before) - process - tool.beside_cpu_s - sent.cpu_s
        gigabytes = sent.frames * case.payload / 1e9
        return Trial(
            asked_gbit=gbit,
            sent_gbit=sent.gbit,
            sent=sent.frames,
            kept=tool.kept(),
            core_s_per_gb=(core + flushed) / gigabytes,
            process_s_per_gb=process / gigabytes,
            flush_s_per_gb=flushed / gigabytes,
            elsewhere_s_per_gb=max(0.0, cores[machine.SENDER_CPU] - sent.cpu_s) / gigabytes,
            reader_s_per_gb=tool.beside_cpu_s / gigabytes,
            others=max(0.0, others) / seconds / os.cpu_count(),
            sampled=sampled and {name: took / gigabytes for name, took in sampled.items()},
        )

    def seconds(self, case):
        return LONG if case.sustained else self.options.seconds

    def send(self, wire, case, gbit):
        """Sends for some seconds; counts what the kernel took from the sender, by its truth."""
        per_stream = gbit * 1e9 / 8 / case.payload / case.streams
        last = FIRST_PORT + case.streams - 1
        command = [
            *wire.sender, *pin(machine.SENDER_CPU, case), str(FULLBORE), "generate",
            "--to", f"udp://{wire.address}:{FIRST_PORT}-{last}", "--frame", str(case.payload),
            "--fps", str(round(per_stream)), "--duration", f"{self.seconds(case)}s", "--json",
        ]  # fmt: skip
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        cpu = cpu_seconds(resource.getrusage(resource.RUSAGE_CHILDREN)) - cpu_seconds(before)
        report = json.loads(done.stdout.splitlines()[-1])
        frames = sum(stream["port"]["sent"] for stream in report["truth"]["streams"])
        return Sent(frames, frames * case.payload * 8 / report["seconds"] / 1e9, cpu)

    def search(self, tool_class, wire, case):
        """The highest step without loss, by halving, and the trials that led there."""
        trials: dict[float, list[Trial]] = {}
        limited = None

        def holds(gbit):
            nonlocal limited
            for _ in range(TRIES):
                told = self.trial(tool_class, wire, case, gbit)
                trials.setdefault(gbit, []).append(told)
                print(f"    {tool_class.name:24} {gbit:5} Gbit/s: sent {told.sent_gbit:.2f}, lost "
                      f"{told.sent - told.kept} of {told.sent}, {told.core_s_per_gb:.3f} s/GB"
                      f"{f', others took {told.others:.0%}' if told.others > QUIET else ''}", file=sys.stderr)  # fmt: skip
                if told.lossless:
                    if told.sent_gbit < HELD_BY_SENDER * gbit:
                        limited = told.sent_gbit
                    return True
            return False

        common = COMMON_STEP.get(case.payload, STEPS[0])
        low, high = -1, len(STEPS)
        middle = STEPS.index(common)
        while low + 1 < high and limited is None:
            if holds(STEPS[middle]):
                low = middle
            else:
                high = middle
            middle = (low + high) // 2 if high < len(STEPS) else min(low + 3, high - 1)
        best = next((t for t in reversed(trials.get(STEPS[low], [])) if t.lossless), None) if low >= 0 else None
        if limited is not None:
            best = max((t for ts in trials.values() for t in ts if t.lossless), key=lambda t: t.sent_gbit)
        return {
            "best": best and asdict(best),
            "limited_by_sender": limited is not None,
            "common": next((asdict(t) for t in trials.get(common, []) if t.lossless), None),
            "trials": [asdict(t) for ts in trials.values() for t in ts],
        }

    def costs(self, case):
        """The cost at the common rate: some rounds, each tool in turn, so that all meet the same machine."""
        gbit = self.options.rate or COMMON_STEP.get(case.payload, STEPS[0])
        print(f"  {case}, {gbit} Gbit/s", file=sys.stderr)
        tools = [tool for tool in self.options.tools if tool.takes(case.wire)]
        trials = {tool.name: [] for tool in tools}
        with machine.WIRES[case.wire]() as wire:
            for _ in range(self.options.cost):
                for tool in tools:
                    with contextlib.ExitStack() as stack:
                        if tool.taps:
                            stack.enter_context(machine.true_packets(wire))
                        told = self.trial(tool, wire, case, gbit)
                    trials[tool.name].append(told)
                    print(f"    {tool.name:24} lost {told.sent - told.kept} of {told.sent}, "
                          f"{said(told.sampled)}, others took {told.others:.0%}", file=sys.stderr)  # fmt: skip
        peer = trials.get("netsniff-ng", [])
        for tool, of_tool in trials.items():
            middle = lambda of: statistics.median(map(of, of_tool))
            ratios = [path(ours) / path(its) for ours, its in zip(of_tool, peer)]
            self.results.append({
                **asdict(case), "tool": tool, "gbit": gbit, "path_s_per_gb": middle(path),
                **{name: middle(lambda trial: trial.sampled[name]) for name in ("network", "entry", "own")},
                "to_netsniff_ng": statistics.median(ratios) if ratios else None,
                "lost": sum(trial.sent - trial.kept for trial in of_tool),
                "trials": [asdict(trial) for trial in of_tool],
            })  # fmt: skip
            self.save()

    def case(self, case, beside):
        if self.options.cost:
            return self.costs(case)
        print(f"  {case}", file=sys.stderr)
        with machine.WIRES[case.wire]() as wire:
            for tool in [*self.options.tools, *beside]:
                if not tool.takes(case.wire):
                    continue
                if case.sustained and tool.name != "fullbore":
                    continue  # to be held against fio on the same disk, which the store's benchmark shows
                with contextlib.ExitStack() as stack:
                    if tool.taps:
                        stack.enter_context(machine.true_packets(wire))
                    found = self.search(tool, wire, case)
                self.results.append({**asdict(case), "tool": tool.name, **found})
                self.save()

    def save(self):
        """After every case, so that a run cut short keeps what it has."""
        document = {
            "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "seconds_per_trial": self.options.seconds,
            "machine": machine.facts(self.scratch.parent),
            "versions": self.options.versions,
            "record": self.results,
            "store": getattr(self, "store", None),
        }
        self.options.output.parent.mkdir(parents=True, exist_ok=True)
        self.options.output.write_text(json.dumps(document, indent=1) + "\n")


@dataclass(frozen=True)
class Sent:
    frames: int
    gbit: float
    cpu_s: float


def cpu_seconds(usage):
    return usage.ru_utime + usage.ru_stime


def pin(cpu, case):
    return ["taskset", "-c", str(cpu)] if case.pinned else []


def flush(path):
    """Waits until a file is on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def cost_of(trial):
    """CPU seconds per GB of the receiving side; of them, those of who read along."""
    reader = trial["reader_s_per_gb"]
    return f"{trial['core_s_per_gb']:.3f}" + (f" (reader {reader:.3f})" if reader else "")


def path(trial):
    """What the packets and the tool cost, without entering the interrupt."""
    return trial.sampled["network"] + trial.sampled["own"]


def said(sampled):
    return ", ".join(f"{name} {value:.3f}" for name, value in sampled.items()) + " s/GB"


def cost_table(results):
    lines = [
        "| case | tool | network s/GB | own s/GB | both | both, to netsniff-ng | entering s/GB | frames lost |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in results:
        case = Case(**{name: row[name] for name in ("wire", "payload", "streams", "pinned", "sustained")})
        ratio = f"{row['to_netsniff_ng']:.2f}" if row["to_netsniff_ng"] else "–"
        lines.append(f"| {case}, {row['gbit']} Gbit/s | {row['tool']} | {row['network']:.3f} | {row['own']:.3f} | "
                     f"{row['path_s_per_gb']:.3f} | {ratio} | {row['entry']:.3f} | {row['lost']} |")  # fmt: skip
    return "\n".join(lines)


def table(results):
    lines = [
        "| case | tool | lossless Gbit/s | CPU s/GB there | CPU s/GB at the common rate |",
        "|---|---|---|---|---|",
    ]
    for row in results:
        case = Case(**{name: row[name] for name in ("wire", "payload", "streams", "pinned", "sustained")})
        best, common = row["best"], row["common"]
        rate = f"{best['sent_gbit']:.1f}{' (sender)' if row['limited_by_sender'] else ''}" if best else f"< {STEPS[0]}"
        there = cost_of(best) if best else "–"
        cost = f"{cost_of(common)} at {common['asked_gbit']}" if common else "–"
        lines.append(f"| {case} | {row['tool']} | {rate} | {there} | {cost} |")
    return "\n".join(lines)


BESIDE_CASE = Case("loopback", 8032, 8, True)


def cases(options):
    """What is measured, and what fullbore does beside in the same minutes."""
    beside = [tool for rows, tools in BESIDE.items() if rows in options.rows for tool in tools]
    plain = list(plain_cases(options)) if "record" in options.rows else []
    if beside and BESIDE_CASE not in plain:
        plain.insert(0, BESIDE_CASE)
    for case in plain:
        yield case, beside if case == BESIDE_CASE else []


def plain_cases(options):
    for wire in options.wires:
        for payload in options.payloads:
            for streams in options.streams if wire != "card" else [8]:
                yield Case(wire, payload, streams, True)
    if options.unpinned:
        yield Case("loopback", 8032, 8, False)
    if options.sustained:
        for streams in [8, 16]:
            yield Case("loopback", 8032, streams, False, sustained=True)


def able(tools):
    for tool in tools:
        if reason := tool.why_not():
            print(f"left out: {tool.name}: {reason}", file=sys.stderr)
        else:
            yield tool


def wires_that_can_be(names):
    for name in names:
        if name != "loopback" and (not machine.IS_ROOT or shutil.which("ethtool") is None):
            print(f"left out: {name}: needs root, iproute2 and ethtool (apt install ethtool)", file=sys.stderr)
        else:
            yield name


def arguments():
    listed = lambda kind: lambda text: [kind(word) for word in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="8032 bytes and 8 streams only")
    add("--tools", type=listed(str), default=[tool.name for tool in TOOLS])
    add("--wires", type=listed(str), default=list(machine.WIRES))
    add("--payloads", type=listed(int), default=[8032, 1312])
    add("--streams", type=listed(int), default=[1, 8, 16, 64])
    add("--rows", type=listed(str), default=["record", *BESIDE], help="which: %(default)s")
    add("--seconds", type=float, default=2.0, help="length of each trial")
    add("--cost", type=int, metavar="ROUNDS", help="the cost at one rate only, in so many rounds")
    add("--rate", type=float, metavar="GBIT", help="that rate, in Gbit/s")
    add("--unpinned", action=argparse.BooleanOptionalAction, default=True)
    add("--sustained", action=argparse.BooleanOptionalAction, default=True, help="longer than memory holds")
    add("--store", action=argparse.BooleanOptionalAction, default=True, help="the store alone, against fio and dd")
    add("--directory", default=REPOSITORY / "target/bench", help="where to record; not a tmpfs")
    add("--output", type=Path, default=REPOSITORY / "benches/results/record.json")
    options = parser.parse_args()
    if options.cost and shutil.which("perf") is None:
        parser.error("--cost samples the receiving CPU with perf (apt install linux-perf)")
    if options.cost:
        options.rows, options.store, options.unpinned, options.sustained = ["record"], False, False, False
    if options.quick:
        options.payloads, options.streams = [8032], [8]
        options.unpinned = options.sustained = False
        options.rows = ["record"]
    if unknown := set(options.tools) - {tool.name for tool in TOOLS}:
        parser.error(f"no such tool: {', '.join(unknown)}; there are {', '.join(t.name for t in TOOLS)}")
    if unknown := set(options.rows) - {"record", *BESIDE}:
        parser.error(f"no such rows: {', '.join(unknown)}; there are record, {', '.join(BESIDE)}")
    if machine.os.cpu_count() < 2:
        parser.error("sender and receiver need a CPU each, and this machine has one")
    options.wires = list(wires_that_can_be(options.wires))
    options.tools = list(able(tool for tool in TOOLS if tool.name in options.tools))
    options.versions = {
        "fullbore": machine.version(str(FULLBORE), "--version"),
        "tcpdump": machine.version("tcpdump", "--version"),
        "dumpcap": machine.version("dumpcap", "--version"),
        "netsniff-ng": machine.version("netsniff-ng", "--version"),
        "fio": machine.version("fio", "--version"),
    }
    return options


def main():
    # TERM ends it as Ctrl-C does: what was started is stopped, and what was measured is kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = arguments()
    bench = Bench(options)
    bench.scratch.mkdir(parents=True, exist_ok=True)
    if machine.facts(bench.scratch)["file_system"] == "tmpfs":
        print("warning: a tmpfs hides the difference between recorders; see --directory", file=sys.stderr)
    # Kernel threads that write back the page cache belong to the receiver, and so go to its CPU.
    workers = "/sys/devices/virtual/workqueue/cpumask"
    try:
        with machine.setting(workers, f"{1 << machine.RECEIVER_CPU:x}"):
            for case, beside in cases(options):
                bench.case(case, beside)
        if options.store and "record" in options.rows:
            bench.store = store.measure(bench.scratch)
    finally:
        shutil.rmtree(bench.scratch, ignore_errors=True)
        bench.save()
    print(cost_table(bench.results) if options.cost else table(bench.results))
    if getattr(bench, "store", None):
        print(store.table(bench.store))
    print(f"\n{options.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
