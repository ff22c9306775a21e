"""The machine that a benchmark runs on: its facts, its clocks of CPU time, the wires laid inside it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

SENDER_CPU, RECEIVER_CPU = 0, 1
TICK = os.sysconf("SC_CLK_TCK")
IS_ROOT = os.geteuid() == 0


def read(path, default=""):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return default


def facts(directory: Path) -> dict:
    """What figures depend on."""
    models = [line for line in read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    cpu = models[0].partition(":")[2].strip() if models else platform.machine()
    where = subprocess.run(
        ["findmnt", "-n", "-o", "SOURCE,FSTYPE,OPTIONS", "-T", directory], capture_output=True, text=True
    ).stdout.split()
    memory = next(line.split()[1] for line in read("/proc/meminfo").splitlines())
    return {
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "memory_GB": round(int(memory) / 1e6, 1),
        "kernel": platform.release(),
        "disk": where[0] if where else "unknown",
        "file_system": where[1] if len(where) > 1 else "unknown",
        "mount_options": where[2] if len(where) > 2 else "",
        "rmem_max": int(read("/proc/sys/net/core/rmem_max", "0")),
        "transparent_huge_pages": read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "root": IS_ROOT,
    }


def version(*command) -> str:
    """The first line that a program says of itself."""
    if shutil.which(command[0]) is None:
        return "not installed"
    done = subprocess.run(command, capture_output=True, text=True)
    return next(iter((done.stdout + done.stderr).splitlines()), "").strip()


def resident_mb(pid: int) -> float:
    """The memory that a process has now."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def growth_mb(memory: list[tuple[float, float]], warm_seconds: float) -> float:
    """How much more of it (seconds, MB) there was at most in the last quarter than in the first, both warm."""
    warm = [mb for at, mb in memory if at >= warm_seconds]
    quarter = len(warm) // 4
    # A minute of warming up shows nothing yet.
    return max(warm[-quarter:]) - max(warm[:quarter]) if quarter else 0.0


class Busy:
    """Seconds that each CPU spent on anything: programs, system, interrupts, kernel threads."""

    def __init__(self):
        self.seconds, self.interrupts, self.interrupts_of = [], 0.0, []
        for line in read("/proc/stat").splitlines():
            name, *ticks = line.split()
            if name.startswith("cpu") and name != "cpu":
                user, nice, system, _idle, _wait, irq, softirq = map(int, ticks[:7])
                self.seconds.append((user + nice + system + irq + softirq) / TICK)
                self.interrupts_of.append((irq + softirq) / TICK)
                self.interrupts += self.interrupts_of[-1]
        self.kernel_threads = kernel_threads()

    def since(self, before: Busy) -> list[float]:
        return [now - then for now, then in zip(self.seconds, before.seconds)]

    def by_programs_since(self, before: Busy) -> float:
        """What neither interrupts nor kernel threads explain."""
        others = self.interrupts - before.interrupts + self.kernel_threads - before.kernel_threads
        return max(0.0, sum(self.since(before)) - others)


class Samples:
    """What the receiving CPU does, by samples of perf: the network's part of the kernel, and the threads of a program. Times
    of processes do not tell: the kernel adds the interrupts that come meanwhile to the program that they interrupt."""

    RATE = 1000
    NETWORK = ("process_backlog", "net_rx_action", "napi_", "__netif_receive_skb", "ip_rcv", "tpacket_rcv", "udp_rcv")

    def __init__(self, file: Path, stack: contextlib.ExitStack):
        self.file = file
        command = ["perf", "record", "-e", "cpu-clock", "-F", self.RATE, "-g", "-C", RECEIVER_CPU, "-o", file]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(self.process.kill)  # does nothing to one that has ended
        while not file.exists():
            time.sleep(0.01)

    def stop(self, pid: int) -> dict:
        """Seconds of the network, seconds of a program, and of the network those that only enter and leave its interrupt."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        command = ["perf", "script", "-i", self.file, "-F", "comm,pid,ip,sym"]
        text = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace").stdout
        self.file.unlink()
        network = entry = own = 0
        for sample in text.split("\n\n"):
            head, *stack = sample.strip().splitlines() or [""]
            names = [line.split()[1] for line in stack if len(line.split()) > 1]
            if names and names[0] == "handle_softirqs":
                entry += 1
            elif any(name.startswith(self.NETWORK) for name in names):
                network += 1
            elif str(pid) in head.split():
                own += 1
        return {"network": network / self.RATE, "entry": entry / self.RATE, "own": own / self.RATE}


def kernel_threads() -> float:
    """Seconds that all threads of the kernel have run: write-back, softirq threads, io_uring's helpers."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := read(entry / "stat").rpartition(")")[2].split()):
            if fields[1] == "2":
                ticks += int(fields[11]) + int(fields[12])
    return ticks / TICK


def cpu_of(pid) -> float:
    """Seconds that a running process and its threads have used so far."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK if fields else 0.0


def quietly(*command):
    subprocess.run(list(map(str, command)), check=True, capture_output=True)


@contextlib.contextmanager
def setting(path, value):
    """Sets a file of /proc or /sys for a while, where that is allowed."""
    before = read(path)
    try:
        Path(path).write_text(str(value))
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            Path(path).write_text(before)


@dataclass(frozen=True)
class Wire:
    """Where the sender sends to, and how commands are run at either end."""

    name: str
    address: str
    interface: str
    sender: tuple[str, ...] = ()
    receiver: tuple[str, ...] = ()


@contextlib.contextmanager
def true_packets(wire):
    """Sees to it that taps find packets as they were sent, and not several of them merged into one."""
    if wire.name == "veth":  # nothing merges there
        yield
        return
    namespace = ("ip", "netns", "exec", wire.receiver[-1]) if wire.name == "card" else ()
    feature = "gro" if wire.name == "card" else "tx-udp-segmentation"
    switch = lambda state: quietly(*namespace, "ethtool", "-K", wire.interface, feature, state)
    switch("off")
    try:
        yield
    finally:
        switch("on")


@contextlib.contextmanager
def loopback():
    yield Wire("loopback", "127.0.0.1", "lo")


@contextlib.contextmanager
def veth():
    """Two namespaces and a cable. Packets are cut to size before the cable, and the receiving core is
    made to do all the work behind it, as with a network card whose interrupts go there."""
    here, there = f"fbtx{os.getpid()}", f"fbrx{os.getpid()}"
    try:
        for name in (here, there):
            quietly("ip", "netns", "add", name)
        quietly("ip", "link", "add", "fb0", "netns", here, "type", "veth", "peer", "name", "fb0", "netns", there)
        for name, address in ((here, "10.199.7.1/24"), (there, "10.199.7.2/24")):
            quietly("ip", "-n", name, "link", "set", "lo", "up")
            quietly("ip", "-n", name, "address", "add", address, "dev", "fb0")
            quietly("ip", "-n", name, "link", "set", "fb0", "mtu", "9000", "up")
        quietly("ip", "netns", "exec", here, "ethtool", "-K", "fb0", "tx-udp-segmentation", "off")
        mask = f"{1 << RECEIVER_CPU:x}"
        steer = f"echo {mask} > /sys/class/net/fb0/queues/rx-0/rps_cpus"
        quietly("ip", "netns", "exec", there, "sh", "-c", steer)
        # A receiving end that is polled has a queue of 256 packets. A queue before the cable waits where that one is full.
        quietly("ip", "netns", "exec", here, "tc", "qdisc", "replace", "dev", "fb0", "root", "pfifo", "limit", 20_000)
        inside = lambda name: ("ip", "netns", "exec", name)
        with setting("/proc/sys/net/core/netdev_max_backlog", 30_000):
            yield Wire("veth", "10.199.7.2", "fb0", inside(here), inside(there))
    finally:
        for name in (here, there):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@contextlib.contextmanager
def card():
    """The same cable, received as a network card does it: the device's queue is polled (NAPI) by a thread on
    the receiving core, which waits a tenth of a millisecond for packets and merges those of one stream."""
    with veth() as wire:
        there = wire.receiver[-1]
        run = lambda *command: quietly("ip", "netns", "exec", there, *command)
        run("ethtool", "-K", "fb0", "gro", "on", "rx-udp-gro-forwarding", "on")
        run("sh", "-c", "echo 0 > /sys/class/net/fb0/queues/rx-0/rps_cpus")
        run("sh", "-c", "echo 2 > /sys/class/net/fb0/napi_defer_hard_irqs")
        run("sh", "-c", "echo 100000 > /sys/class/net/fb0/gro_flush_timeout")
        run("sh", "-c", "echo 1 > /sys/class/net/fb0/threaded")
        for thread in named("napi/fb0-"):
            quietly("taskset", "-p", "-c", RECEIVER_CPU, thread)
        yield dataclasses.replace(wire, name="card")


def named(start):
    """Numbers of the kernel threads whose names begin so."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and read(entry / "comm").startswith(start):
            yield entry.name


WIRES = {"loopback": loopback, "veth": veth, "card": card}
