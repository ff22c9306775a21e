#!/usr/bin/env python3
"""Compares copies of a scan to an S3 server beside rclone, AWS's own SDK and a plain copy: the rate, and the CPU time of all.

    make bench-objects
    python3 benches/objects.py [--size 2GB] [--place DIR] [--rounds N]

The server is s3s-fs, which `make bench-objects` builds with optimisation. (That of the tests is built without: it takes
60 CPU seconds for each GB.) Each round runs each tool once, one after the other, and each copies the
same files into an empty place. `fullbore send` also checks each block against its index, has the server check each part,
and writes the manifest of the copy. The CPU time is that of the whole machine, with the server, without its idle time:
nothing else should run.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import machine
from tools import FULLBORE, REPOSITORY, started
from transfer import busy, table

KEYS = {"AWS_ACCESS_KEY_ID": "fullbore", "AWS_SECRET_ACCESS_KEY": "sustained-rate", "AWS_REGION": "us-east-1"}
SCAN = "bench_one"
PYTHON = REPOSITORY / ".venv/bin/python"
SERVER = REPOSITORY / "target/s3s-fs/bin/s3s-fs"
BOTO = """
import boto3, sys
client = boto3.client("s3", endpoint_url=sys.argv[1])
for path in sys.argv[2:]:
    client.upload_file(path, "scans", f"boto3/{path.lstrip('/')}")
"""


def fullbore(bench):
    words = ["send", SCAN, "s3://scans/fullbore", "--store", bench.store, "--json"]
    return [FULLBORE, *words]


def rclone(bench):
    remote = f":s3,provider=Other,env_auth=true,endpoint='{bench.url}',force_path_style=true:scans/rclone"
    return ["rclone", "copy", "--transfers", "4", "--include", f"{SCAN}*/**", bench.store, remote]


def boto3(bench):
    return [PYTHON, "-c", BOTO, bench.url, *bench.files()]


def plain(bench):
    return ["cp", *bench.files(), bench.root / "scans/plain"]


TOOLS = {"fullbore": fullbore, "rclone": rclone, "boto3": boto3, "cp, without a server": plain}


class Bench:
    def __init__(self, place, size):
        self.store, self.root, self.size = place / "store", place / "server", size
        self.store.mkdir()
        (self.root / "scans/plain").mkdir(parents=True)

    def files(self):
        return [it for it in self.store.glob(f"{SCAN}*/*") if it.is_file()]

    def bytes(self):
        return sum(it.stat().st_size for it in self.files())

    @contextlib.contextmanager
    def serving(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        others = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.env = {**others, **KEYS, "AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true"}
        keys = ["--access-key", KEYS["AWS_ACCESS_KEY_ID"], "--secret-key", KEYS["AWS_SECRET_ACCESS_KEY"]]
        words = ["--host", "127.0.0.1", "--port", str(port), *keys, str(self.root)]
        with started(SERVER, words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            for _ in range(100):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            yield

    def record(self):
        words = ["record", f"pattern:prbs31?bytes={self.size}", "--store", self.store, "--session", "bench", "--scan", "one"]
        subprocess.run([FULLBORE, *words], check=True, capture_output=True)

    def clear(self):
        """Removes the copies, so that each tool begins in an empty place."""
        for copy in (self.root / "scans").iterdir():
            shutil.rmtree(copy)
        (self.root / "scans/plain").mkdir()
        for receipts in self.store.glob("*/.fullbore/copies.json"):
            receipts.unlink()

    def measure(self, tool):
        self.clear()
        os.sync()
        since, cpu = time.monotonic(), busy()
        subprocess.run([str(word) for word in tool(self)], env=self.env, check=True, capture_output=True)
        took, cpu = time.monotonic() - since, busy() - cpu
        copied = sum(it.stat().st_size for it in (self.root / "scans").rglob("*") if it.is_file())
        assert copied >= self.bytes(), f"{copied} of {self.bytes()} bytes are there"
        return {"gbit_s": self.bytes() * 8 / took / 1e9, "cpu_s_per_gb": cpu / (self.bytes() / 1e9), "seconds": took}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="2GB", help="bytes of the scan")
    parser.add_argument("--place", type=Path, help="the directory of the store and the server (default: a temporary one)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=REPOSITORY / "benches/results/objects.json")
    arguments = parser.parse_args()
    if not SERVER.exists():
        return "s3s-fs is not here: `make bench-objects` builds it"
    tools = {name: tool for name, tool in TOOLS.items() if name != "rclone" or shutil.which("rclone")}
    results = {}
    with tempfile.TemporaryDirectory(dir=arguments.place) as place:
        bench = Bench(Path(place), arguments.size)
        bench.record()
        facts = machine.facts(Path(place))
        with bench.serving():
            for _ in range(arguments.rounds):
                for name, tool in tools.items():
                    results.setdefault(name, []).append(bench.measure(tool))
                    print(f"{name}: {results[name][-1]}", file=sys.stderr)
    table(results)
    when = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    told = {"when": when, "machine": facts, "arguments": {"size": arguments.size, "rounds": arguments.rounds}, "results": results}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(told, indent=1, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
