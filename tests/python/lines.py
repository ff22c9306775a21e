"""Network devices in separate namespaces, which lose frames on command.

    Line    a TUN device: each frame written to it is a frame that it receives
    Pair    two ends of a veth, the sender's in one namespace and the receiver's in another

Needs root. Everything that was set up is removed again.
"""

import ctypes
import errno
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest
from fullbore import PATIENCE

MARKS = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace of one's own needs root"),
    pytest.mark.skipif(
        any(shutil.which(program) is None for program in ("ip", "tc")), reason="needs ip and tc"
    ),
]

# <linux/if_tun.h>
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
CLONE_NEWNET = 0x40000000

SENDER, RECEIVER = "10.77.0.1", "10.77.0.2"


def do(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr}"
    return done.stdout


def within(namespace, work):
    """The result of `work` in a network namespace; files and sockets that it opens stay there."""
    result = []

    def run():
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/run/netns/{namespace}") as file:
            if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
                result.append(OSError(ctypes.get_errno(), f"entering {namespace}"))
                return
        try:
            result.append(work())
        except OSError as error:
            result.append(error)

    # A separate thread, because only the calling thread enters.
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(result[0], OSError):
        raise result[0]
    return result[0]


class Namespace:
    """A network namespace, and the prefix of commands that run in it."""

    def __init__(self, role):
        self.name = f"fb-{role}-{os.getpid()}"
        self.enter = ["ip", "netns", "exec", self.name]
        done = subprocess.run(["ip", "netns", "add", self.name], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"no network namespace can be made: {done.stderr.strip()}")
        do(*self.enter, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
        do("ip", "-n", self.name, "link", "set", "lo", "up")

    def up(self, device, address):
        do("ip", "-n", self.name, "addr", "add", f"{address}/24", "dev", device)
        do("ip", "-n", self.name, "link", "set", device, "mtu", 9000, "up")

    def away(self):
        subprocess.run(["ip", "netns", "delete", self.name], capture_output=True)


def sum_of(header):
    """The Internet checksum."""
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet(datagram, port, checksum=0):
    """A UDP datagram with its headers. Checksum 0: none."""
    udp = struct.pack(">4H", 4000, port, 8 + len(datagram), checksum)
    ends = socket.inet_aton(SENDER) + socket.inet_aton(RECEIVER)
    words = (0x4500, 20 + len(udp) + len(datagram), 0, 0x4000, 64 << 8 | 17)
    without = struct.pack(">6H", *words, 0) + ends
    return struct.pack(">6H", *words, sum_of(without)) + ends + udp + datagram


class Line:
    """A device for which a test decides the fate of each datagram."""

    device = "fb0"

    def __init__(self):
        self.namespace = Namespace("line")
        try:
            self.file = within(self.namespace.name, self._open)
            self.namespace.up(self.device, RECEIVER)
        except OSError as error:
            self.namespace.away()
            pytest.skip(f"no TUN device can be made: {error}")

    def _open(self):
        file = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", self.device.encode(), IFF_TUN | IFF_NO_PI))
        return file

    def deliver(self, datagram, port):
        os.write(self.file, packet(datagram, port))

    def lose(self, datagram, port):
        """The device drops it, because its header belongs to no known protocol."""
        broken = bytearray(packet(datagram, port))
        broken[0] &= 0x0F
        try:
            os.write(self.file, broken)
        except OSError as error:
            assert error.errno == errno.EINVAL, error
        else:
            raise AssertionError("the device took what is no packet")

    def spoil(self, datagram, port):
        """It arrives with a wrong checksum."""
        right = packet(datagram, port)
        whole = struct.pack(">4s4sHH", right[12:16], right[16:20], 17, 8 + len(datagram)) + right[20:]
        true = sum_of(whole + bytes(len(whole) % 2))
        os.write(self.file, packet(datagram, port, checksum=(true ^ 0x5555) or 1))

    def queues(self):
        """The directory of the device's queues, as the namespace sees it."""
        return f"/sys/class/net/{self.device}/queues/rx-0"

    def away(self):
        os.close(self.file)
        self.namespace.away()


class Pair:
    """A sender behind a queue that a test can shorten, and a receiver that does not see the queue's drops."""

    device = "fbs"

    def __init__(self):
        self.sender, self.receiver = Namespace("send"), Namespace("recv")
        try:
            do(
                "ip", "link", "add", self.device, "netns", self.sender.name,
                "type", "veth", "peer", "name", "fbr", "netns", self.receiver.name,
            )  # fmt: skip
        except AssertionError as error:
            self.away()
            pytest.skip(f"no veth can be made: {error}")
        self.sender.up(self.device, SENDER)
        self.receiver.up("fbr", RECEIVER)
        self.socket = within(self.sender.name, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))

    def send(self, datagrams, port):
        for datagram in datagrams:
            self.socket.sendto(datagram, (RECEIVER, port))

    def shorten(self):
        """Limits the sender's queue to a few datagrams at a low rate."""
        limits = ["rate", "20mbit", "burst", "12kb", "limit", "40kb"]
        command = ["tc", "-n", self.sender.name, "qdisc", "add", "dev", self.device, "root", "tbf", *limits]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"this kernel bounds no queue: {done.stderr.strip()}")

    def lengthen(self):
        """Waits until the queue is empty, removes it, and returns its number of dropped datagrams."""
        queue = lambda: json.loads(do("tc", "-j", "-s", "-n", self.sender.name, "qdisc", "show", "dev", self.device))[0]
        until(lambda: queue()["qlen"] == 0)
        dropped = queue()["drops"]
        do("tc", "-n", self.sender.name, "qdisc", "del", "dev", self.device, "root")
        return dropped

    def away(self):
        if hasattr(self, "socket"):
            self.socket.close()
        self.sender.away()
        self.receiver.away()


def until(holds, seconds=PATIENCE):
    """Waits for a condition that has no event."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.002)


def socket_of(process, port):
    """The kernel's data about a process's UDP socket: waiting bytes, and drops."""
    for line in Path(f"/proc/{process.pid}/net/udp").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[1].split(":")[1], 16) == port:
            return int(words[4].split(":")[1], 16), int(words[12])
    raise AssertionError(f"nobody listens to {port}")
