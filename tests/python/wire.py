"""An independent sender, and VDIF headers composed here, bit by bit, from the specification."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from baseband import data, vdif


def send(datagrams: Iterable[bytes], port, host="127.0.0.1", pause=2e-5, **options):
    """Sends datagrams in order from an ordinary socket, `pause` seconds apart; returns the sent datagrams."""
    sent = list(datagrams)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sender:
        if ttl := options.get("ttl"):
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
        interface = options.get("interface")
        if interface and family == socket.AF_INET6:
            number = socket.if_nametoindex(interface)
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, number)
        elif interface:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
        if source := options.get("source"):
            sender.bind((source, 0))
        due = time.perf_counter()
        for datagram in sent:
            sender.sendto(datagram, (host, port))
            due += pause
            wait_until(due)
    return sent


class Listener:
    """Receives all datagrams to a port."""

    def __enter__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.received = []
        self.thread = threading.Thread(target=self._receive)
        self.thread.start()
        return self

    def _receive(self):
        while (packet := self.socket.recv(65_536)) != b"end":
            self.received.append(packet)

    def __exit__(self, *_):
        self.socket.sendto(b"end", self.socket.getsockname())
        self.thread.join()
        self.socket.close()


def wait_until(due):
    """Sleeps until just before an instant of `time.perf_counter`, which leaves the processor to other processes, and
    then spins."""
    while (left := due - time.perf_counter()) > 0:
        if left > 3e-4:
            time.sleep(left - 2e-4)


def send_in_turn(streams, pause):
    """Sends the next datagram of each port, `pause` seconds apart: `{port: datagrams}`, with equal numbers.

    None in place of a datagram is not sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        due = time.perf_counter()
        for datagrams in zip(*streams.values(), strict=True):
            for port, datagram in zip(streams, datagrams):
                if datagram is not None:
                    sender.sendto(datagram, ("127.0.0.1", port))
            due += pause
            wait_until(due)


def cut(raw: bytes, length: int) -> list[bytes]:
    """Bytes in pieces of `length`; the last may be shorter."""
    return [raw[at : at + length] for at in range(0, len(raw), length)]


def sample(name: str) -> bytes:
    with open(getattr(data, name), "rb") as file:
        return file.read()


@dataclass(frozen=True)
class Vdif:
    """The fields of a VDIF header; `frame(...)` makes the datagram."""

    second: int = 1000
    number: int = 0
    thread: int = 0
    epoch: int = 53
    station: int = 0x4266  # "fB"
    payload_bytes: int = 1024
    bits: int = 2
    invalid: bool = False
    legacy: bool = False

    def header(self) -> bytes:
        length = self.payload_bytes + (16 if self.legacy else 32)
        words = [
            self.second | self.legacy << 30 | self.invalid << 31,
            self.number | self.epoch << 24,
            length // 8 | 1 << 29,
            self.station | self.thread << 16 | (self.bits - 1) << 26,
        ]
        return struct.pack("<4I", *words) + (b"" if self.legacy else bytes(16))

    def frame(self, fill: int | None = None) -> bytes:
        """Header and a payload that contains the frame's own number, or `fill`."""
        word = self.number * 64 + self.thread if fill is None else fill
        return self.header() + struct.pack("<I", word & 0xFFFFFFFF) * (self.payload_bytes // 4)


def run_of_frames(count, fps=1000, thread=0, first=0, **fields):
    """`count` consecutive frames from frame `first` of the run; seconds advance as necessary."""
    start = fields.pop("second", 1000)
    return [
        Vdif(second=start + k // fps, number=k % fps, thread=thread, **fields).frame()
        for k in range(first, first + count)
    ]


def thread_of(frame: bytes) -> int:
    return struct.unpack_from("<H", frame, 14)[0] & 0x3FF


def is_invalid(frame: bytes) -> bool:
    return bool(frame[3] & 0x80)


def read_by_baseband(path, **options):
    """Headers and samples of a VDIF file, read by the reference implementation."""
    with vdif.open(path, "rb") as file:
        headers = []
        while True:
            try:
                frame = file.read_frame()
            except EOFError:
                break
            headers.append((tuple(frame.header.words), frame.data.tobytes()))
    return headers
