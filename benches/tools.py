"""The recorders that are compared: how each is started, how it says that it is ready, what it kept.

What was kept is told from the files alone: their bytes, divided by the bytes of a frame as that tool
stores it. Only fullbore's files also hold fill in the place of lost frames, which its account tells.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from machine import IS_ROOT, RECEIVER_CPU, Wire, named, quietly

REPOSITORY = Path(__file__).resolve().parents[1]
FULLBORE = Path(os.environ.get("FULLBORE", REPOSITORY / "target/release/fullbore"))
PATIENCE = 60
RING_MB = 256  # what the peers are given; their own default is 2

PCAP_FILE_HEADER, PCAP_RECORD_HEADER = 24, 16
ETHERNET_IP_UDP = 14 + 20 + 8


@contextlib.contextmanager
def started(program, words, **options):
    """A program that does not outlive an error or Ctrl-C here."""
    process = subprocess.Popen([str(word) for word in [program, *words]], **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Tool:
    """A receiver. `start` returns when it listens; `stop` when all it took is in its files."""

    usage: resource.struct_rusage  # once stopped
    beside_cpu_s = 0.0  # what those took that it was started together with, once stopped

    name = "?"
    program = "?"
    taps = False  # reads from the interface instead of a socket
    first_words: tuple[str, ...] = ()  # what it says once it listens

    def __init__(self, wire: Wire, directory: Path, ports: range, payload: int):
        self.wire, self.directory, self.ports, self.payload = wire, directory, ports, payload

    @classmethod
    def why_not(cls) -> str | None:
        """Why it cannot take part."""
        if shutil.which(cls.program) is None:
            return f"{cls.program} is not installed"
        return "needs root" if cls.taps and not IS_ROOT else None

    @classmethod
    def takes(cls, wire: str) -> bool:
        """Whether it can receive from this wire."""
        return True

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self, prefix: list[str]):
        words = [*self.wire.receiver, *prefix, *map(str, self.command())]
        self.said = []
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
        )
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._listen, daemon=True)
        self.reader.start()
        if not self.ready.wait(PATIENCE) or self.process.poll() is not None:
            raise RuntimeError(f"{self.name} did not start: {' '.join(words)}\n{''.join(self.said[-5:])}")

    def _listen(self):
        for line in self.process.stdout:
            self.said.append(line)
            if any(words in line for words in self.first_words):
                self.ready.set()
        self.ready.set()

    def stop(self):
        self.settle()
        self.process.send_signal(signal.SIGINT)
        self.reader.join(PATIENCE)
        _, status, self.usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)

    def abandon(self):
        """Kills what still runs of it. Nothing does once it was stopped."""
        for process in [getattr(self, "process", None), getattr(self, "holder", None), *getattr(self, "reading", [])]:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()

    def settle(self):
        """Waits until the files have stopped growing: what is left in a tap's ring at SIGINT is lost,
        and libpcap hands on a part-filled block of it only after a second."""
        size, since = -1, time.monotonic()
        while time.monotonic() < since + 1.5:
            now = sum(path.stat().st_size for path in self.files())
            if now != size:
                size, since = now, time.monotonic()
            time.sleep(0.05)

    def files(self) -> list[Path]:
        return [path for path in self.directory.rglob("*") if path.is_file()]

    def kept(self) -> int:
        """Frames in the files."""
        raise NotImplementedError


class Fullbore(Tool):
    name, program = "fullbore", str(FULLBORE)
    first_words = ('"armed"',)
    engine = "udp"

    def command(self):
        ports = f"{self.ports[0]}-{self.ports[-1]}"
        source = f"udp://{self.wire.address}:{ports}?format=vdif&frame={self.payload}&engine={self.engine}"
        return [
            FULLBORE, "record", source, "--store", self.directory,
            "--session", "bench", "--scan", "one", "--json",
        ]  # fmt: skip

    def settle(self):
        """A stop drains the sockets."""

    def kept(self):
        sealed = next(json.loads(line) for line in reversed(self.said) if '"sealed"' in line)
        self.accounts = sealed["accounts"]
        stored = sum(a["terms"]["written"] + a["filled"] for a in self.accounts)
        chunks = sum(path.stat().st_size for path in self.files() if ".fullbore" not in path.parts)
        if chunks != stored * self.payload:
            raise RuntimeError(f"{chunks} bytes in chunks, and {stored} frames in the account")
        return sum(account["terms"]["written"] for account in self.accounts)


class FullborePacket(Fullbore):
    name, engine = "fullbore packet", "packet"

    @classmethod
    def why_not(cls):
        return super().why_not() or (None if IS_ROOT else "needs root")


class FullboreXdp(FullborePacket):
    name, engine = "fullbore xdp", "xdp"

    def start(self, prefix):
        """With a program, the receiving end is polled. A thread of the kernel does it, which belongs to the receiver."""
        super().start(prefix)
        quietly(*self.wire.receiver, "sh", "-c", "echo 1 > /sys/class/net/fb0/threaded")
        for thread in named("napi/fb0-"):
            quietly("taskset", "-p", "-c", RECEIVER_CPU, thread)

    @classmethod
    def takes(cls, wire):
        """The loopback interface runs no program."""
        return wire != "loopback"


class FullboreRead(Fullbore):
    """While it records, others read along what is durable, on the same CPU. They are waited for: what they have left to
    read when the scan is sealed is a part of what it costs."""

    def readers(self) -> list[list[str]]:
        raise NotImplementedError

    def start(self, prefix):
        super().start(prefix)
        words = lambda reader: [*self.wire.receiver, *prefix, *map(str, reader)]
        self.reading = [
            subprocess.Popen(words(reader), stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            for reader in self.readers()
        ]

    def stop(self):
        super().stop()
        for reader in self.reading:
            _, status, usage = os.wait4(reader.pid, 0)
            self.beside_cpu_s += usage.ru_utime + usage.ru_stime
            # A reader finds what is lost of a scan, which is no fault of its own.
            if os.waitstatus_to_exitcode(status) not in (0, 1):
                raise RuntimeError(f"{' '.join(reader.args)} ended with {status}")


class FullboreCat(FullboreRead):
    name = "fullbore, cat beside"

    def readers(self):
        scan = [f"bench_one/{port}" if len(self.ports) > 1 else "bench_one" for port in self.ports]
        return [[FULLBORE, "cat", name, "--follow", "--store", self.directory] for name in scan]


class FullboreVerify(FullboreRead):
    name = "fullbore, verify beside"

    def readers(self):
        return [[FULLBORE, "verify", "bench_one", "--follow", "--store", self.directory]]


class FullboreMembers(Fullbore):
    """On four members: here of one disk, which writes all of them, parity too."""

    name = "fullbore, 4 members"
    redundancy: str | None = None

    def command(self):
        members = [self.directory / f"member{number}" for number in range(4)]
        for member in members:
            member.mkdir(exist_ok=True)
        words = super().command()
        words[words.index("--store") + 1] = ",".join(map(str, members))
        return words + (["--redundancy", self.redundancy] if self.redundancy else [])


class FullboreMirror(FullboreMembers):
    name, redundancy = "fullbore, mirror", "mirror"


class FullboreParity(FullboreMembers):
    name, redundancy = "fullbore, parity:3+1", "parity:3+1"


class FullboreDoubleParity(FullboreMembers):
    name, redundancy = "fullbore, parity:2+2", "parity:2+2"


class PlainReceiver(Tool):
    name, program = "recvfrom + write", str(REPOSITORY / "target/bench/recvwrite")
    first_words = ("ready",)

    @classmethod
    def why_not(cls):
        if shutil.which("cc") is None:
            return "needs a C compiler (cc)"
        Path(cls.program).parent.mkdir(parents=True, exist_ok=True)
        source = REPOSITORY / "benches/peers/recvwrite.c"
        subprocess.run(["cc", "-O2", "-o", cls.program, source], check=True)
        return None

    def command(self):
        return [self.program, self.ports[0], len(self.ports), self.directory]

    def settle(self):
        """It drains its sockets."""

    def kept(self):
        return sum(path.stat().st_size for path in self.files()) // self.payload


# A socket filter that takes nothing is the cheapest way to let packets go.
HOLD_PORTS = """
import socket, struct, sys, ctypes
refuse = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
program = struct.pack("HL", 1, ctypes.addressof(refuse))
held = []
for port in range(int(sys.argv[1]), int(sys.argv[2]) + 1):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, 26, program)  # SO_ATTACH_FILTER
    one.bind(("", port))
    held.append(one)
print("held", flush=True)
sys.stdin.read()
"""


class Tap(Tool):
    """One that writes pcap: every packet with 16 bytes of record and 42 of headers before it."""

    taps = True

    def start(self, prefix):
        """Somebody must hold the ports, or the sender is told that nobody does."""
        first, last = self.ports[0], self.ports[-1]
        holder = [*self.wire.receiver, *prefix, sys.executable, "-c", HOLD_PORTS, str(first), str(last)]
        self.holder = subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        super().start(prefix)

    def stop(self):
        super().stop()
        self.holder.stdin.close()
        self.holder.wait(PATIENCE)

    def filter(self):
        return f"udp and dst portrange {self.ports[0]}-{self.ports[-1]}"

    def file(self):
        return self.directory / "all.pcap"

    def kept(self):
        size = self.file().stat().st_size - PCAP_FILE_HEADER
        record = PCAP_RECORD_HEADER + ETHERNET_IP_UDP + self.payload
        return count_records(self.file()) if size % record else size // record


def count_records(path: Path) -> int:
    """Whole packets in a pcap file whose packets are not all of one length."""
    count = 0
    with path.open("rb") as file:
        file.seek(PCAP_FILE_HEADER)
        while len(header := file.read(PCAP_RECORD_HEADER)) == PCAP_RECORD_HEADER:
            length = int.from_bytes(header[8:12], "little")
            count += length == int.from_bytes(header[12:16], "little")
            file.seek(length, 1)
    return count


class Tcpdump(Tap):
    name = program = "tcpdump"
    first_words = ("listening on",)

    def command(self):
        return [
            "tcpdump", "-i", self.wire.interface, "-Q", "in", "-n", "-s", "0", "-Z", "root",
            "-B", RING_MB * 1024, "-w", self.file(), self.filter(),
        ]  # fmt: skip


class Dumpcap(Tap):
    name = program = "dumpcap"
    first_words = ("File:",)

    def command(self):
        return [
            "dumpcap", "-i", self.wire.interface, "-P", "-B", RING_MB, "-q", "-w", self.file(),
            "-f", self.filter(),
        ]  # fmt: skip


class NetsniffNg(Tap):
    name = program = "netsniff-ng"
    first_words = ("Running!",)

    def command(self):
        return [
            "netsniff-ng", "-i", self.wire.interface, "-o", self.file(), "--silent", "--jumbo-support",
            "--ring-size", f"{2 * RING_MB}MiB", "-f", f"inbound and {self.filter()}",
        ]  # fmt: skip


TOOLS = [Fullbore, FullborePacket, FullboreXdp, PlainReceiver, Tcpdump, Dumpcap, NetsniffNg]

# What fullbore can do beside recording, by the row's kind.
BESIDE = {
    "reading": [FullboreCat, FullboreVerify],
    "redundancy": [FullboreMembers, FullboreMirror, FullboreParity, FullboreDoubleParity],
}
