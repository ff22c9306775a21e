#!/usr/bin/env python3
"""Compares transfers of a scan beside scp, rsync and iperf3 on the same path: the rate, and the CPU time of both ends.

    make bench-transfer
    python3 benches/transfer.py [--size 4GB] [--place DIR] [--rounds N] [--connections N] [--rate R] [--only fullbore,scp]
    python3 benches/transfer.py --lan 10gbit --size 20GB --only fullbore,iperf3
    python3 benches/transfer.py --near a --far b --address 10.77.0.2      # two network namespaces (as root)

Each round runs each tool once, one after the other. `link` and iperf3 carry data from memory to memory; all others copy a
scan from disk to disk and end when the copy is complete; `fullbore` also syncs it and writes its receipt. The CPU time is
that of the whole machine, without its idle time: nothing else should run. scp and rsync use an ssh server of the
benchmark's own, with a key that is made for it. With --recording, a recorder runs beside on the sending side, and the
table has the frames that it lost.
"""

from __future__ import annotations

import argparse
import contextlib
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
from tools import REPOSITORY, started

FULLBORE = REPOSITORY / "target/release/fullbore"
PORT, SSH_PORT, UDP_PORT = 4790, 4792, 46_220
SCAN = "bench_one"
PATIENCE = 600


def busy():
    """CPU seconds of this machine that were not idle."""
    fields = list(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]))
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


class Ends:
    """The two ends: commands of the sender and of the receiver, and the receiver's address."""

    def __init__(self, near, far, address):
        self.near = ["ip", "netns", "exec", near] if near else []
        self.far = ["ip", "netns", "exec", far] if far else []
        self.address = address


class Bench:
    def __init__(self, arguments, place):
        self.path = Ends(arguments.near, arguments.far, arguments.address)
        self.arguments, self.place = arguments, place
        self.store, self.there = place / "store", place / "there"
        self.keys = {side: place / f"{side}-keys" for side in ("near", "far")}

    def fullbore(self, side, *words, **options):
        env = {**os.environ, "FULLBORE_CONFIG": str(self.keys[side])}
        prefix = self.path.near if side == "near" else self.path.far
        return subprocess.run(
            [*prefix, FULLBORE, *map(str, words)], env=env, check=True, capture_output=True, text=True, **options
        )

    def prepare(self):
        """Records the scan that is sent, and makes the two ends known to each other."""
        self.store.mkdir()
        size = self.arguments.size
        words = ["record", f"pattern:prbs31?bytes={size}", "--store", self.store, "--session", "bench", "--scan", "one"]
        self.fullbore("near", *words)
        with self.listening():
            invited = self.fullbore("far", "peers", "invite", f"{self.path.address}:{PORT}", "--json")
            self.destination = f"fullbore://{self.path.address}:{PORT}"
            invitation = json.loads(invited.stdout)["invitation"]
            self.fullbore("near", "bench", "link", invitation, "--time", "100ms", "--connections", "1")

    @contextlib.contextmanager
    def listening(self):
        shutil.rmtree(self.there, ignore_errors=True)
        self.there.mkdir()
        env = {**os.environ, "FULLBORE_CONFIG": str(self.keys["far"])}
        listen = f"{self.path.address}:{PORT}"
        words = [FULLBORE, "receive", "--listen", listen, "--store", self.there, "--json"]
        command = [*self.path.far, *words]
        with started(command[0], command[1:], stdout=subprocess.PIPE, text=True, env=env) as process:
            process.stdout.readline()
            yield process

    def bytes(self):
        return sum(it.stat().st_size for it in self.store.glob(f"{SCAN}*/*") if it.is_file())

    def chunk_files(self):
        return [it for it in self.store.glob(f"{SCAN}*/*") if it.is_file()]


class Tool:
    name = "?"
    copies = True

    def __init__(self, bench):
        self.bench = bench

    def why_not(self):
        return None

    @contextlib.contextmanager
    def ready(self):
        yield

    def carry(self):
        """Carries the scan; returns the bytes."""
        raise NotImplementedError

    def measure(self):
        with self.ready():
            since, cpu = time.monotonic(), busy()
            size = self.carry()
            took, cpu = time.monotonic() - since, busy() - cpu
        return {"gbit_s": size * 8 / took / 1e9, "cpu_s_per_gb": cpu / (size / 1e9), "seconds": took}


class Send(Tool):
    name = "fullbore"

    @contextlib.contextmanager
    def ready(self):
        (next(self.bench.store.glob(SCAN)) / ".fullbore/copies.json").unlink(missing_ok=True)
        with self.bench.listening():
            yield

    def carry(self):
        words = ["send", SCAN, self.bench.destination, "--store", self.bench.store, "--json"]
        if self.bench.arguments.connections:
            words += ["--connections", self.bench.arguments.connections]
        if self.bench.arguments.congestion:
            words += ["--congestion", self.bench.arguments.congestion]
        if self.bench.arguments.rate:
            words += ["--rate", self.bench.arguments.rate]
        sent = json.loads(self.bench.fullbore("near", *words).stdout.splitlines()[-1])
        assert sent["complete"], sent
        return sent["bytes"]


class Link(Tool):
    name, copies = "fullbore bench link", False
    ready = Send.ready

    def measure(self):
        number = str(self.bench.arguments.connections or 4)
        words = ["bench", "link", self.bench.destination, "--time", f"{self.bench.arguments.seconds}s"]
        with self.ready():
            cpu = busy()
            told = self.bench.fullbore("near", *words, "--connections", number, "--json").stdout
            cpu = busy() - cpu
        (rate,) = json.loads(told)["measurements"]
        size = rate["rate"] * self.bench.arguments.seconds
        return {"gbit_s": rate["rate"] * 8 / 1e9, "cpu_s_per_gb": cpu / (size / 1e9), "resent": rate["resent_share"]}


class Iperf(Tool):
    name, copies = "iperf3", False

    def why_not(self):
        return None if shutil.which("iperf3") else "iperf3 is not installed"

    def measure(self):
        path, number = self.bench.path, str(self.bench.arguments.connections or 4)
        server = [*path.far, "iperf3", "-s", "-1", "-p", str(PORT + 1)]
        with started(server[0], server[1:], stdout=subprocess.DEVNULL):
            time.sleep(0.5)
            cpu = busy()
            words = ["iperf3", "-c", path.address, "-p", str(PORT + 1), "-P", number, "-J"]
            done = subprocess.run(
                [*path.near, *words, "-t", str(self.bench.arguments.seconds)], check=True, capture_output=True, text=True
            )
            cpu = busy() - cpu
        end = json.loads(done.stdout)["end"]["sum_received"]
        return {"gbit_s": end["bits_per_second"] / 1e9, "cpu_s_per_gb": cpu / (end["bytes"] / 1e9)}


class Ssh(Tool):
    """A copy through an ssh server of the benchmark's own."""

    program = "?"

    def why_not(self):
        for program in (self.program, "ssh-keygen", "/usr/sbin/sshd"):
            if not shutil.which(program):
                return f"{program} is not installed"
        return None

    @contextlib.contextmanager
    def ready(self):
        there, keys = self.bench.there, self.bench.place / "ssh"
        shutil.rmtree(there, ignore_errors=True)
        there.mkdir()
        if not keys.exists():
            keys.mkdir(mode=0o700)
            for name in ("host", "user"):
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / name], check=True)
            shutil.copy(keys / "user.pub", keys / "authorized_keys")
        Path("/run/sshd").mkdir(exist_ok=True)
        server = [
            *self.bench.path.far, "/usr/sbin/sshd", "-D", "-p", str(SSH_PORT), "-h", str(keys / "host"),
            "-o", f"AuthorizedKeysFile={keys / 'authorized_keys'}", "-o", "StrictModes=no", "-o", "PidFile=none",
            "-o", f"ListenAddress={self.bench.path.address}", "-f", "/dev/null", "-o", "Subsystem=sftp internal-sftp",
        ]  # fmt: skip
        with started(server[0], server[1:], stderr=subprocess.DEVNULL):
            time.sleep(0.5)
            yield

    def ssh(self):
        keys = self.bench.place / "ssh"
        return [
            "-i", str(keys / "user"), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
            "-o", "LogLevel=ERROR",
        ]  # fmt: skip

    def carry(self):
        files = list(map(str, self.bench.chunk_files()))
        subprocess.run([*self.bench.path.near, *self.words(files)], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["sync", "-f", str(self.bench.there)], check=True)
        return self.bench.bytes()


class Scp(Ssh):
    name = program = "scp"

    def words(self, files):
        return ["scp", "-q", "-P", str(SSH_PORT), *self.ssh(), *files, f"{self.bench.path.address}:{self.bench.there}/"]


class Rsync(Ssh):
    name = program = "rsync"

    def words(self, files):
        shell = " ".join(["ssh", "-p", str(SSH_PORT), *self.ssh()])
        return ["rsync", "-W", "-e", shell, *files, f"{self.bench.path.address}:{self.bench.there}/"]


TOOLS = (Send, Scp, Rsync, Link, Iperf)


@contextlib.contextmanager
def recording(bench, wanted):
    """A recorder beside, at the rate asked for, on the sending side. Yields a dictionary that has its loss at the end."""
    found = {}
    if not wanted:
        yield found
        return
    store = bench.place / "recorded"
    store.mkdir()
    command = [
        *bench.path.near, FULLBORE, "record", f"udp://127.0.0.1:{UDP_PORT}?format=vdif", "--store", store,
        "--session", "beside", "--scan", "one", "--json", "--buffer", "1GiB",
    ]  # fmt: skip
    sender = [*bench.path.near, FULLBORE, "generate", "--to", f"udp://127.0.0.1:{UDP_PORT}", "--frame", "8032", "--gentle"]
    with started(command[0], command[1:], stdout=subprocess.PIPE, text=True) as recorder:
        next(line for line in recorder.stdout if '"armed"' in line)
        with started(sender[0], [*sender[1:], "--rate", wanted, "--duration", "1h"], stdout=subprocess.DEVNULL):
            yield found
        recorder.send_signal(signal.SIGINT)
        sealed = next(json.loads(line) for line in recorder.stdout if '"sealed"' in line)
    terms = [account["terms"] for account in sealed["accounts"]]
    found["frames"] = sum(it["expected"] for it in terms)
    found["lost"] = sum(it["expected"] - it["written"] for it in terms)
    found["high_water"] = max(account["host"]["high_water"] / account["host"]["pool_blocks"] for account in sealed["accounts"])


@contextlib.contextmanager
def lan(arguments):
    """Joins two network namespaces by a veth pair of MTU 9000, whose sending end the kernel limits to `--lan` (as root)."""
    if not arguments.lan:
        yield
        return
    near, far = f"near{os.getpid()}", f"far{os.getpid()}"
    arguments.near, arguments.far, arguments.address = near, far, "10.78.0.2"
    commands = f"""
        ip netns add {near}
        ip netns add {far}
        ip link add lan0 netns {near} mtu 9000 type veth peer name lan0 netns {far} mtu 9000
        ip -n {near} address add 10.78.0.1/24 dev lan0
        ip -n {far} address add 10.78.0.2/24 dev lan0
        ip -n {near} link set lan0 up
        ip -n {far} link set lan0 up
        ip -n {near} link set lo up
        ip -n {far} link set lo up
        ip netns exec {near} tc qdisc add dev lan0 root tbf rate {arguments.lan} burst 4mb latency 4ms
    """
    try:
        for command in commands.strip().splitlines():
            subprocess.run(command.split(), check=True)
        yield
    finally:
        for name in (near, far):
            subprocess.run(["ip", "netns", "delete", name], check=False)


def table(results):
    print(f"{'':<20} {'Gbit/s':>8} {'CPU s/GB':>9}   of all rounds")
    for name, rounds in results.items():
        if isinstance(rounds, str):
            print(f"{name:<20} {rounds}")
            continue
        rate, cost = (statistics.median(it[key] for it in rounds) for key in ("gbit_s", "cpu_s_per_gb"))
        spread = "  ".join(f"{it['gbit_s']:.2f}" for it in rounds)
        print(f"{name:<20} {rate:8.2f} {cost:9.2f}   {spread}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="4GB", help="bytes of the scan")
    parser.add_argument("--place", type=Path, help="the directory of both stores (default: a temporary one)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5, help="time of the measurements from memory")
    parser.add_argument("--connections", type=int, help="data connections (default: as many as help; 4 from memory)")
    parser.add_argument("--congestion", help="congestion control of fullbore send (default: as it chooses)")
    parser.add_argument("--rate", help="the cap of fullbore's transfer, a little below the rate of the link")
    parser.add_argument("--near", help="the network namespace of the sender")
    parser.add_argument("--far", help="the network namespace of the receiver")
    parser.add_argument("--address", default="127.0.0.1", help="the receiver's address")
    parser.add_argument("--lan", metavar="RATE", help="a link of this rate for near and far, in the words of tc: 10gbit")
    parser.add_argument("--recording", metavar="RATE", help="record at this rate beside, on the sending side")
    parser.add_argument("--only", help="names of tools, separated by commas")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "benches/results/transfer.json")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",") if arguments.only else [tool.name for tool in TOOLS]
    results, beside = {}, None
    with lan(arguments), tempfile.TemporaryDirectory(dir=arguments.place) as place:
        bench = Bench(arguments, Path(place))
        bench.prepare()
        facts = machine.facts(Path(place))
        tools = [tool(bench) for tool in TOOLS if tool.name in wanted]
        with recording(bench, arguments.recording) as beside:
            for _ in range(arguments.rounds):
                for tool in tools:
                    if why := tool.why_not():
                        results[tool.name] = why
                        continue
                    results.setdefault(tool.name, []).append(tool.measure())
                    print(f"{tool.name}: {results[tool.name][-1]}", file=sys.stderr)
    table(results)
    if beside:
        share = beside["high_water"] * 100
        print(f"recorded beside: {beside['frames']} frames, {beside['lost']} lost, ring at most {share:.0f} % full")
    chosen = {name: value for name, value in vars(arguments).items() if name not in ("place", "output")}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    told = {"when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "machine": facts, "arguments": chosen, "results": results, "beside": beside}
    arguments.output.write_text(json.dumps(told, indent=1, default=str) + "\n")
    return 1 if beside and beside["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
