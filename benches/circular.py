#!/usr/bin/env python3
"""A circular recording at a sustained rate with many random triggers that overlap: every kept scan must be whole.

The instrument is `fullbore generate` over loopback. Triggers come at random moments with random times before and after.
A run holds if no frame of the recording is lost, every kept scan is good by `verify`, lacks nothing by its account, and
covers the time of its trigger.

    make bench-circular                                             2 Gbit/s, 60 s, 40 triggers, on disks and in memory
    make bench-circular BENCH="--rate 8 --directory /mnt/disk0,/mnt/disk1 --where disks"
    make bench-circular BENCH="--rate 0.2 --seconds 8 --triggers 6"              small, to try it
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import machine
from tools import FULLBORE, REPOSITORY, started

PORT = 46_320
FRAME = 8032
ARMED = 60  # seconds until the recorder must listen
CIRCULAR = 10  # seconds that are kept


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--rate", type=float, default=2.0, help="Gbit/s of all streams together (default: %(default)s)")
    add("--streams", type=int, default=2, help="streams (default: %(default)s)")
    add("--seconds", type=float, default=60.0, help="length of the recording (default: %(default)s)")
    add("--triggers", type=int, default=40, help="random triggers (default: %(default)s)")
    add("--where", choices=["disks", "memory", "both"], default="both")
    add("--memory", default="8GB", help="bytes of pieces in memory (default: %(default)s)")
    add("--seed", type=int, default=1, help="of the triggers (default: %(default)s)")
    add("--directory", default=str(REPOSITORY / "target/bench"), help="a directory on each disk, separated by commas")
    add("--fullbore", type=Path, default=FULLBORE)
    add("--output", type=Path, default=REPOSITORY / "benches/results/circular.json")
    options = parser.parse_args()
    if options.rate <= 0 or options.seconds < 4 or options.triggers < 1:
        parser.error("--rate and --triggers are above 0, and --seconds is at least 4")
    return options


class Run:
    """One recording with its triggers."""

    def __init__(self, options, where, members):
        self.options, self.where, self.members = options, where, members
        self.store = ",".join(map(str, members))
        self.events, self.armed = [], threading.Event()

    def ask(self, *words):
        command = [self.options.fullbore, *words, "--store", self.store, "--json"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        answer = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {"error": done.stderr}
        return done.returncode, answer

    def run(self):
        options = self.options
        ports = f"udp://127.0.0.1:{PORT}-{PORT + options.streams - 1}"
        place = ["--circular-in", f"ram:{options.memory}"] if self.where == "memory" else []
        record = ["record", f"{ports}?format=vdif", "--circular", f"{CIRCULAR}s", "--session", "bench", "--scan", "ring",
                  "--store", self.store, *place, "--json"]  # fmt: skip
        generate = ["generate", "--to", ports, "--rate", f"{options.rate / options.streams}Gbit/s", "--frame", FRAME,
                    "--start", "now", "--duration", f"{options.seconds + 2}s", "--gentle", "--json"]  # fmt: skip
        with contextlib.ExitStack() as running:
            recorder = running.enter_context(started(options.fullbore, record, stdout=subprocess.PIPE, text=True))
            listener = threading.Thread(target=self.listen, args=(recorder,), daemon=True)
            listener.start()
            if not self.armed.wait(ARMED):
                sys.exit("the recorder does not listen")
            sender = running.enter_context(started(options.fullbore, generate, stdout=subprocess.DEVNULL))
            triggers = self.trigger()
            sender.wait()
            recorder.send_signal(signal.SIGINT)
            code = recorder.wait()
            listener.join()
        return self.outcome(code, triggers)

    def listen(self, recorder):
        for line in recorder.stdout:
            self.events.append(json.loads(line))
            if self.events[-1]["event"] == "armed":
                self.armed.set()

    def trigger(self):
        """Sets triggers at random moments, which keep up to 4 s before and up to 3 s after."""
        chance, begun, triggers = random.Random(self.options.seed), time.monotonic(), []
        moments = sorted(chance.uniform(1, self.options.seconds) for _ in range(self.options.triggers))
        for number, moment in enumerate(moments):
            time.sleep(max(0.0, begun + moment - time.monotonic()))
            before, after = chance.uniform(0, min(4, moment)), chance.uniform(0, 3)
            words = ["--before", f"{before:.3f}s", "--after", f"{after:.3f}s", "--name", f"event{number}"]
            code, told = self.ask("trigger", "bench_ring", *words)
            triggers.append({"code": code, **told})
        return triggers

    def outcome(self, code, triggers):
        sealed = [event for event in self.events if event["event"] == "sealed"]
        ends = [account for event in sealed for account in event["accounts"] if account["last"]]
        last = max(account["last"]["seen"] for account in ends)
        lost = sum(it["terms"]["expected"] - it["terms"]["written"] for event in sealed for it in event["accounts"])
        written = sum(account["terms"]["written"] for event in sealed for account in event["accounts"])
        kept = [self.judge(trigger, last) for trigger in triggers]
        whole = [it for it in kept if it["whole"]]
        warnings = [event["text"] for event in self.events if event["event"] == "warning"]
        return {
            "where": self.where, "asked_gbit": self.options.rate, "seconds": self.options.seconds,
            "recorded_gbit": written * FRAME * 8 / 1e9 / (self.options.seconds + 2), "pieces": len(sealed),
            "written_frames": written, "lost_frames": lost, "exit_code": code, "triggers": len(triggers), "whole": len(whole),
            "kept_bytes": sum(it["bytes"] for it in kept), "kept": kept, "warnings": warnings,
            "holds": lost == 0 and len(whole) == len(triggers),
        }  # fmt: skip

    def judge(self, trigger, last):
        """Whether a kept scan verifies, lacks nothing, and covers the time of its trigger."""
        if "scan" not in trigger:
            return {"trigger": trigger, "bytes": 0, "whole": False}
        scan = "{session}_{scan}".format(**trigger["scan"]) if isinstance(trigger["scan"], dict) else trigger["scan"]
        _, verified = self.ask("verify", scan)
        _, told = self.ask("info", scan)
        streams, accounts = told.get("manifest", {}).get("streams", []), told.get("accounts", [])
        lacks = sum(account["terms"]["expected"] - account["terms"]["written"] for account in accounts)
        covers = bool(accounts) and all(
            account["first"]["seen"] <= trigger["from"] or account["first"]["seen"] <= self.first_seen()
            for account in accounts
        ) and all(account["last"]["seen"] >= min(trigger["to"], last_but(last)) for account in accounts)  # fmt: skip
        good = verified.get("good", False)
        whole = good and lacks == 0 and covers
        size = sum(stream.get("bytes") or 0 for stream in streams)
        return {"scan": scan, "good": good, "lacks": lacks, "covers": covers, "bytes": size, "whole": whole}

    def first_seen(self):
        """When the last of the streams began. The first pieces may have no frames."""
        sealed = [event for event in self.events if event["event"] == "sealed"]
        begun = {}
        for account, stream in ((a, n) for event in sealed for n, a in enumerate(event["accounts"])):
            if account["first"]:
                begun.setdefault(stream, account["first"]["seen"])
        return max(begun.values())


def last_but(instant):
    """A little before an instant: the last frames of the streams come one after the other."""
    time_of = datetime.datetime.fromisoformat(instant.split(".")[0].rstrip("Z"))
    return (time_of - datetime.timedelta(seconds=1)).isoformat()


def table(results):
    lines = ["| pieces | asked Gbit/s | recorded Gbit/s | number | frames | lost | triggers | kept whole | kept | |", "|" + "---|" * 10]
    for run in results:
        verdict = "holds" if run["holds"] else "**does not hold**"
        lines.append(
            f"| in {run['where']} | {run['asked_gbit']} | {run['recorded_gbit']:.2f} "
            f"| {run['pieces']} | {run['written_frames']} | {run['lost_frames']} | {run['triggers']} | {run['whole']} "
            f"| {run['kept_bytes'] / 1e9:.1f} GB | {verdict} |"
        )
    return "\n".join(lines)


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = arguments()
    tops = [Path(text).absolute() / "fullbore-circular" for text in options.directory.split(",")]
    results = []
    try:
        for where in ["disks", "memory"] if options.where == "both" else [options.where]:
            members = [top / "member" for top in tops]
            for member in members:
                shutil.rmtree(member, ignore_errors=True)
                member.mkdir(parents=True)
            results.append(Run(options, where, members).run())
    finally:
        facts = machine.facts(tops[0].parent)
        for top in tops:
            shutil.rmtree(top, ignore_errors=True)
        document = {
            "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": facts, "version": machine.version(str(options.fullbore), "--version"), "runs": results,
        }  # fmt: skip
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(document, indent=1) + "\n")
    print(table(results))
    return 0 if results and all(run["holds"] for run in results) else 1


if __name__ == "__main__":
    sys.exit(main())
