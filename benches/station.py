#!/usr/bin/env python3
"""What a station costs: CPU seconds per GB of a recording alone, and under the daemon with all its clients.

    make bench-station                              both kinds in turn, five times 20 s each
    make bench-station BENCH="--rate 4 --trials 3"

*Alone* is `fullbore record`. *Station* is the same recording under `fullbore serve`, with five browsers at the page Now
(events five times a second), two at the page Stream (spectra of 1024 channels, 25 rows a second) and Prometheus every second. CPU time is
that of the recorder and of the daemon, by the kernel; clients are not counted. Both must lose nothing, and the station may
take 5 % more (DESIGN). The result is in benches/results/station.json.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from machine import Busy, cpu_of, facts
from tools import FULLBORE, PATIENCE, REPOSITORY

FIRST_PORT = 47300
FRAME = 8032
PAYLOAD = FRAME - 32
BROWSERS, STREAM_PAGES = 5, 2
SCRAPE_SECONDS = 1.0
MOST_MORE = 0.05
SECRET = "the secret of the benchmark"


class Clients:
    """Browsers and a scraper, each on a connection of its own. What they read is counted and thrown away."""

    def __init__(self, port: int, recording: str, streams: list[str]):
        self.port, self.over, self.failures = port, False, []
        self.read = {"states": 0, "rows": 0, "scrapes": 0}
        page = f"/api/v1/recordings/{recording}/spectra?channels=1024&rows=25&stream="
        works = [self.now] * BROWSERS + [self.scrape] + [lambda it=it: self.stream(page + it) for it in streams[:STREAM_PAGES]]
        self.threads = [threading.Thread(target=self.work, args=(work,), daemon=True) for work in works]
        for thread in self.threads:
            thread.start()

    def work(self, work):
        try:
            work()
        except (Exception, SystemExit) as error:
            if not self.over:
                self.failures.append(repr(error))

    def now(self):
        answer = asked(self.port, "GET", "/api/v1/events?hz=5")
        while not self.over and (line := answer.readline()):
            self.read["states"] += line.startswith(b"data: ")
        assert self.over, "the events have ended"

    def stream(self, path: str):
        from websockets.sync.client import connect

        headers = {"Authorization": f"Bearer {SECRET}"}
        with connect(f"ws://127.0.0.1:{self.port}{path}", additional_headers=headers) as client:
            while not self.over:
                self.read["rows"] += isinstance(client.recv(), bytes)

    def scrape(self):
        while not self.over:
            asked(self.port, "GET", "/metrics").read()
            self.read["scrapes"] += 1
            time.sleep(SCRAPE_SECONDS)

    def end(self):
        self.over = True


def asked(port: int, method: str, path: str, body=None) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"}
    connection.request(method, path, body=body and json.dumps(body), headers=headers)
    answer = connection.getresponse()
    if answer.status >= 400:
        sys.exit(f"{method} {path}: {answer.status} {answer.read().decode()}")
    return answer


def source(args) -> str:
    ports = f"{FIRST_PORT}-{FIRST_PORT + args.streams - 1}"
    return f"udp://127.0.0.1:{ports}?format=vdif&frame={FRAME}&fps={args.fps}"


def sent(args) -> dict:
    """Sends for the time that was asked for; returns what was sent."""
    words = ["--to", source(args).partition("?")[0], "--frame", FRAME, "--fps", args.fps, "--gentle", "--duration", f"{args.seconds}s"]
    command = [str(it) for it in [FULLBORE, "generate", *words, "--json"]]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=args.seconds + PATIENCE)
    return {"frames": json.loads(done.stdout.splitlines()[-1])["datagrams"]}


def alone(args, folder: Path) -> dict:
    command = [FULLBORE, "record", source(args), "--store", folder / "store", "--session", "bench", "--scan", "one"]
    command += ["--buffer", args.buffer, "--chunk", args.chunk, "--json"]
    recorder = subprocess.Popen([str(it) for it in command], stdout=subprocess.PIPE, text=True)
    try:
        wait_for(recorder, "armed")
        drain = threading.Thread(target=recorder.stdout.read, daemon=True)
        drain.start()
        # Arming, and faulting in the memory, is the same for both and is not counted.
        before, busy = cpu_of(recorder.pid), Busy()
        told = sent(args)
        cpu, machine = cpu_of(recorder.pid) - before, sum(Busy().since(busy))
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait(PATIENCE)
    return {**told, "recorder_cpu_s": cpu, "daemon_cpu_s": 0.0, "machine_cpu_s": machine}


def wait_for(process: subprocess.Popen, event: str) -> dict:
    for line in process.stdout:
        if (told := json.loads(line))["event"] == event:
            return told
    sys.exit(f"no `{event}`")


def station(args, folder: Path) -> dict:
    tokens = folder / "tokens.toml"
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    tokens.write_text(f'[[token]]\nname = "bench"\nrole = "admin"\nsha256 = "{digest}"\n')
    command = [FULLBORE, "serve", "--store", folder / "store", "--listen", "127.0.0.1:0", "--tokens", tokens, "--json"]
    environment = {**os.environ, "FULLBORE_STATE": str(folder / "state")}
    daemon = subprocess.Popen([str(it) for it in command], stdout=subprocess.PIPE, text=True, env=environment)
    begun = None
    try:
        port = int(json.loads(daemon.stdout.readline())["address"].rsplit(":", 1)[1])
        body = {"source": [source(args)], "session": "bench", "scan": "one", "buffer": args.buffer, "chunk": args.chunk}
        begun = json.load(asked(port, "POST", "/api/v1/recordings", body))
        streams = [str(FIRST_PORT + number) for number in range(args.streams)]
        clients = Clients(port, begun["id"], streams)
        time.sleep(1)
        before, busy = (cpu_of(begun["pid"]), cpu_of(daemon.pid)), Busy()
        told = sent(args)
        after, machine = (cpu_of(begun["pid"]), cpu_of(daemon.pid)), sum(Busy().since(busy))
        clients.end()
    finally:
        # A recorder outlives its daemon.
        if begun:
            asked(port, "POST", f"/api/v1/recordings/{begun['id']}/stop")
            until_ended(port, begun["id"])
        daemon.send_signal(signal.SIGTERM)
    daemon.wait(PATIENCE)
    if clients.failures or not all(clients.read.values()):
        sys.exit(f"clients: {clients.read} {clients.failures}")
    recorder_cpu, daemon_cpu = (late - early for late, early in zip(after, before))
    return {
        **told,
        "recorder_cpu_s": recorder_cpu,
        "daemon_cpu_s": daemon_cpu,
        "machine_cpu_s": machine,
        "clients": clients.read,
    }


def until_ended(port: int, recording: str):
    end = time.monotonic() + PATIENCE
    while json.load(asked(port, "GET", f"/api/v1/recordings/{recording}"))["phase"] != "ended":
        if time.monotonic() > end:
            sys.exit("the recording does not end")
        time.sleep(0.1)


def trial(kind, args) -> dict:
    """One recording of a kind, its costs, and what it lost."""
    with tempfile.TemporaryDirectory(dir=args.directory, prefix="station-") as place:
        folder = Path(place)
        (folder / "store").mkdir()
        told = kind(args, folder)
        shown = subprocess.run([FULLBORE, "info", "bench_one", "--store", folder / "store", "--json"], stdout=subprocess.PIPE)
        terms = [account["terms"] for account in json.loads(shown.stdout)["accounts"]]
    written = sum(it["written"] for it in terms)
    gb = written * FRAME / 1e9
    cpu = told["recorder_cpu_s"] + told["daemon_cpu_s"]
    return {**told, "written": written, "lost": told["frames"] - written, "gb": gb, "cpu_seconds_per_gb": cpu / gb}


def more(trials: dict[str, list[dict]]) -> float:
    """How much more CPU time the station takes, as a share, by the medians."""
    cost = {kind: statistics.median(it["cpu_seconds_per_gb"] for it in of) for kind, of in trials.items()}
    return cost["station"] / cost["alone"] - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="the length of each recording")
    parser.add_argument("--rate", type=float, default=4, help="Gbit/s of all streams together")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--chunk", default="256MiB")
    parser.add_argument("--buffer", default="1GiB")
    parser.add_argument("--directory", type=Path, default=REPOSITORY, help="where the store is for a while")
    parser.add_argument("--results", type=Path, default=REPOSITORY / "benches/results", help="where station.json goes")
    args = parser.parse_args()
    args.fps = round(args.rate * 1e9 / 8 / args.streams / PAYLOAD)
    kinds = {"alone": alone, "station": station}
    trials = {name: [] for name in kinds}
    for number in range(args.trials):
        for name, kind in kinds.items():
            told = trial(kind, args)
            trials[name].append(told)
            print(f"{number} {name}: {told['cpu_seconds_per_gb']:.3f} CPU s/GB, {told['gb']:.1f} GB, {told['lost']} frames lost", flush=True)
    report = {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": facts(args.directory),
        "streams": args.streams,
        "gbit_per_second": args.rate,
        "more": more(trials),
        "trials": trials,
    }
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / "station.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"the station takes {100 * report['more']:+.1f} % CPU time")
    failures = ["frames are lost"] * any(it["lost"] for of in trials.values() for it in of)
    failures += [f"more than {100 * MOST_MORE:.0f} % more CPU time"] * (report["more"] > MOST_MORE)
    sys.exit("; ".join(failures) or 0)


if __name__ == "__main__":
    main()
