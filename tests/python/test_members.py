"""Members that fail, in every phase of a scan: losses are named, and the next scan is clean.

Each disk is a file system on a loop device, which is filled, made read-only, shut down, frozen, unmounted or made to
fail. The files themselves are the reference: after the disk is restored, all data reported as durable is there,
`verify` finds nothing that manifest and account do not name, and the accounts balance.
"""

import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
import wire
from conftest import chance, seeds
from disks import MARKS, Disk
from fullbore import (
    BINARY,
    FOUND,
    GOOD,
    PATIENCE,
    REFUSED,
    Recording,
    ask,
    balanced,
    code_of_verify,
    free_port,
    generate_command,
    run,
)

pytestmark = MARKS

FPS = 2000  # 16 MB/s: a loaded machine with two cores sustains it in a debug build
SCAN = "2s"
SOURCE = "format=vdif&fps=2000&frame=8032&block=256KiB"
OPTIONS = ["--chunk", "2MiB", "--buffer", "128MiB"]

# The findings of verify that are allowed for a dead member: metadata copies that the others have, and no data.
COPIES = {"manifest-differs", "manifest-missing", "manifest-unreadable", "account-missing", "account-differs"}

# Files that the member could not move into place, truncate or remove: their durable data is read from the place where
# it is. A chunk that was written elsewhere may have left its space allocated.
LEFT = {"chunk-unfinished", "index-cut", "chunk-too-long", "chunk-twice"}

# After a failed write of records or a failed sync, blocks that the account counts as overrun.
LOST = {"blocks-absent", "chunk-unknown", "index-missing", "account-term"}

# A remount or a power failure can lose blocks that the account counts as unverified: their last sync failed.
UNVERIFIED = {"blocks-damaged"}

PHASES = ["armed", "first block", "middle", "sealing"]


class Fault:
    """A fault of a disk, and its effect on the recording."""

    def __init__(self, kind, strike, heal=None, harmless=False, forgets=False, unsyncs=False):
        self.kind, self.strike = kind, strike
        # The repair of the disk during the recording; without it, only afterwards.
        self.heal = heal
        # No failure, and no loss.
        self.harmless = harmless
        # Written data is lost, too.
        self.forgets = forgets
        # Data that was written and released may never become durable: it is read back, or counted as overrun.
        self.unsyncs = unsyncs


def frozen(disk):
    """Freezes it for a second."""
    disk.freeze()
    threading.Event().wait(1)
    disk.thaw()


FAULTS = {
    "full": Fault("ext4", Disk.fill, heal=Disk.empty),
    "full, on XFS": Fault("xfs", Disk.fill, heal=Disk.empty),
    "read-only": Fault("ext4", Disk.read_only, unsyncs=True),
    "errors on write and sync": Fault("ext4", Disk.shut_down, unsyncs=True),
    "errors on write and sync, on XFS": Fault("xfs", Disk.shut_down, unsyncs=True),
    "errors on new places": Fault("bare", Disk.bad_from_here, unsyncs=True),
    "frozen and thawed": Fault("xfs", frozen, harmless=True),
    "unmounted": Fault("ext4", Disk.unplug, heal=Disk.mount),
    "removed": Fault("ext4", Disk.remove, forgets=True),
}

CASES = [(fault, phase) for fault in FAULTS for phase in PHASES]

# One phase of each fault, and each phase, before every commit; all of them in the long target.
QUICK = {(fault, PHASES[n % len(PHASES)]) for n, fault in enumerate(FAULTS)}


def cases():
    for case in CASES:
        marks = [] if case in QUICK else [pytest.mark.slow]
        yield pytest.param(*case, marks=marks, id=" - ".join(case))


@pytest.fixture
def disks(tmp_path):
    """Makes disks, and removes them again."""
    made = []

    def make(kind):
        made.append(Disk(tmp_path / f"disk{len(made)}", kind))
        return made[-1]

    yield make
    for disk in made:
        disk.away()


class Station:
    """A recorder of a series of scans, a sender that never pauses, and a disk that fails."""

    def __init__(self, sick, others, scans=2, at=1, wrap=()):
        self.members = [*others[:at], *(disk.member for disk in sick), *others[at:]]
        port = free_port()
        series = ["--scans", scans, "--duration", SCAN] if scans > 1 else []
        self.recording = Recording(
            f"udp://127.0.0.1:{port}?{SOURCE}", store=self.members, scan="no",
            options=[*OPTIONS, *series], wrap=wrap,
        )  # fmt: skip
        self._sender = generate_command(port, frame=8032, fps=FPS, duration="300s")
        self._sending = None

    def __enter__(self):
        self.recording.__enter__()
        return self

    def send(self):
        self._sending = subprocess.Popen(
            self._sender, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def __exit__(self, kind, *_):
        if self._sending:
            self._sending.kill()
            self._sending.wait(PATIENCE)
        if self.recording.process.poll() is None:
            self.recording.kill()

    def reach(self, phase):
        """Waits until a scan has nearly reached this point."""
        written = lambda told: sum(member["written_bytes"] for member in told["members"])
        if phase != "armed":
            self.send()
        if phase == "first block":
            self.recording.wait("progress", lambda told: told["streams"][0]["frames"] > 0)
        if phase == "middle":
            self.recording.wait("progress", lambda told: told["durable_bytes"] > 0 and written(told) > 4 << 20)
        if phase == "cut":
            self.recording.wait("progress", lambda told: told["scan"]["scan"] == "no0002")
        if phase == "sealing":
            self.recording.wait("progress", lambda told: told["durable_bytes"] > 8 << 20)
            self.recording.process.send_signal(signal.SIGINT)

    def go_on(self):
        if self._sending is None:
            self.send()

    def end(self):
        """Waits for the end; returns its scans as reported: (manifest, accounts, sealed flag)."""
        self.recording.process.wait(PATIENCE)
        for reader in self.recording._readers:
            reader.join()
        return [
            (event["manifest"], event["accounts"], event["event"] == "sealed")
            for event in self.recording.events
            if event["event"] in ("sealed", "unsealed")
        ]

    def durable(self, scan):
        """The most data of a scan that was reported as durable."""
        told = [e for e in self.recording.events if e["event"] == "progress" and e["scan"] == scan]
        return max((e["streams"][0]["durable_bytes"] for e in told), default=0)

    def cat(self, manifest, *words):
        members = ",".join(map(str, self.members))
        command = [BINARY, "cat", name_of(manifest), "--store", members, *words]
        return subprocess.run(command, capture_output=True, timeout=PATIENCE)

    def complaints(self):
        told = bytes(self.recording._complaints).decode(errors="replace")
        return self.recording.process.returncode, self.warnings(), told

    def warnings(self):
        return [event["text"] for event in self.recording.events if event["event"] == "warning"]


def name_of(manifest):
    return "_".join(manifest["scan"].values())


def clean(manifest, accounts, sick, may_lose=False):
    """Nothing is lost, and no member failed except those that were out before. After a failed sync, data that was
    already released may be lost, and is counted."""
    (account,) = accounts
    terms = balanced(account)["terms"]
    kept = terms["written"] + (terms["overrun"] if may_lose else 0)
    assert kept == terms["expected"] > 0, terms
    failed = [member["path"] for member in manifest["members"] if member["failure"]]
    assert set(failed) <= {str(disk.member) for disk in sick}, failed


def judge(station, manifest, accounts, fault):
    """Checks a scan that went through a fault, with all disks restored."""
    members = ",".join(map(str, station.members))
    (account,) = accounts
    terms = balanced(account)["terms"]
    name = name_of(manifest)
    told = ask("verify", name, "--store", members, code=code_of_verify)
    found = {finding["what"] for finding in told["findings"]}
    print(name, *map(json.dumps, told["findings"]), *station.warnings(), sep="\n")
    if fault.forgets:
        # Removed files cannot be restored; verify finds that they are missing.
        return
    allowed = COPIES | LEFT
    allowed |= LOST if terms["overrun"] else set()
    allowed |= UNVERIFIED if account["unverified"] else set()
    for it in told["findings"]:
        # No index contains blocks that were lost at the very end, so the account counts more than verify.
        if it["what"] == "account-term":
            of_each = account["bytes"] // terms["written"] if it["term"] == "bytes" else 1
            assert abs(int(it["stored"]) - int(it["counted"])) <= terms["overrun"] * of_each, (it, terms)
    assert found <= allowed, (told["findings"], station.warnings())
    (stream,) = told["streams"]
    assert not stream["lost"], (stream, terms, told["findings"])
    cat = station.cat(manifest)
    assert len(cat.stdout) >= station.durable(manifest["scan"]), (len(cat.stdout), cat.stderr.decode())
    # cat stops at a lost block, and continues after it with the option.
    cat = station.cat(manifest, "--allow-damaged")
    assert len(cat.stdout) >= terms["written"] * 8032, (terms, cat.stderr.decode())


def strike_and_judge(fault, phase, sick, others, at=1):
    """Runs a recording in which a fault strikes a member in a phase, and checks the result."""
    scans = 1 if phase == "sealing" else 2
    with Station([sick], others, scans=scans, at=at) as station:
        station.reach(phase)
        fault.strike(sick)
        station.go_on()
        told = station.end()
    # The recorder lives, and every scan of the series is sealed.
    code = station.recording.process.returncode
    assert code in (GOOD, FOUND), station.complaints()
    assert [sealed for _, _, sealed in told] == [True] * scans, station.complaints()
    for number, (manifest, accounts, _) in enumerate(told):
        # The ring held the data in transit until it was written elsewhere.
        clean(manifest, accounts, [sick], may_lose=fault.unsyncs and (number == 0 or phase == "cut"))
    named = [manifest["members"][at]["failure"] for manifest, _, _ in told]
    if fault.harmless:
        assert not any(named) and code == GOOD, named
    elif phase != "sealing":
        assert any(named), station.complaints()
        assert any(str(sick.member) in text for text in station.warnings())
    if fault.heal is Disk.empty:
        fault.heal(sick)
    else:
        sick.repair()
    for manifest, accounts, _ in told:
        judge(station, manifest, accounts, fault)


@pytest.mark.parametrize("fault, phase", list(cases()))
def test_one_member_misbehaves(fault, phase, disks, stores):
    strike_and_judge(FAULTS[fault], phase, disks(FAULTS[fault].kind), stores[:2])


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(12))
def test_any_fault_at_any_time_on_any_member(seed, disks, stores):
    """`FULLBORE_SEED=<seed> FULLBORE_SEEDS=1` replays one."""
    of = chance(seed)
    name = of.choice(list(FAULTS))
    phase, at = of.choice([*PHASES, "cut"]), of.randrange(3)
    print(f"FULLBORE_SEED={seed}: {name}, {phase}, member {at}")
    strike_and_judge(FAULTS[name], phase, disks(FAULTS[name].kind), stores[:2], at=at)


@pytest.mark.parametrize("fault", [pytest.param("full", marks=pytest.mark.slow), "unmounted"])
def test_a_member_that_came_back_is_used_from_the_next_scan_on(fault, disks, stores):
    fault = FAULTS[fault]
    sick = disks(fault.kind)
    below = sick.member
    with Station([sick], stores[:2], scans=5) as station:
        station.reach("middle")
        fault.strike(sick)
        station.recording.wait("warning", lambda told: "takes no more data" in told["text"])
        if fault.strike is Disk.unplug:
            assert not list(below.iterdir()), "something was written to the disk below"
        fault.heal(sick)
        station.recording.wait("note", lambda told: f"{sick.member} is back" in told["text"])
        told = station.end()
    assert [sealed for _, _, sealed in told] == [True] * 5, station.complaints()
    failures = [manifest["members"][1]["failure"] for manifest, _, _ in told]
    assert any(failures) and failures[-1] is None, failures
    for manifest, accounts, _ in told:
        clean(manifest, accounts, [sick])
        judge(station, manifest, accounts, fault)
    last = name_of(told[-1][0])
    assert list((sick.member / last).glob(f"{last}.*")), "no chunk of the last scan lies there"


def brief(members, scan, code=GOOD):
    """A short recording on these members; returns all events, and the sealed scans."""
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000", store=members, scan=scan) as recording:
        wire.send(wire.run_of_frames(200, payload_bytes=2000), port, pause=1e-5)
        sealed = recording.stop(code)
    return recording.events, sealed


def test_a_restart_without_a_disk_makes_nothing_in_its_mount_point(disks, stores):
    disk = disks("ext4")
    members = [stores[0], disk.member]
    brief(members, "before")
    disk.unmount()
    told, sealed = brief(members, "without", code=FOUND)
    assert not list(disk.member.iterdir()), "something was made below the mount point"
    (why,) = [event["text"] for event in told if "takes no part" in event.get("text", "")]
    assert str(disk.member) in why and "is its disk mounted?" in why and "--new-member" in why
    (away,) = sealed["manifest"]["away"]
    assert away["path"] == str(disk.member)
    assert [member["path"] for member in sealed["manifest"]["members"]] == [str(stores[0])]
    disk.mount()
    _, sealed = brief(members, "after")
    assert away["uuid"] == sealed["manifest"]["members"][1]["uuid"], "it is the member that it was"
    run("verify", "test_after", "--store", ",".join(map(str, members)))


def test_without_any_member_frames_are_counted_and_the_recorder_lives(disks):
    sick = [disks("ext4"), disks("xfs")]
    with Station(sick, [], scans=5) as station:
        station.reach("middle")
        for disk in sick:
            disk.fill()
        nowhere = station.recording.wait("warning", lambda told: "counted but not stored" in told["text"])
        for disk in sick:
            disk.empty()
        told = station.end()
    assert station.recording.process.returncode == REFUSED, station.complaints()
    assert len(told) == 5, station.complaints()
    overrun = 0
    for _, (account,), _ in told:
        overrun += balanced(account)["terms"]["overrun"]
    assert overrun > 0, nowhere
    assert not all(sealed for _, _, sealed in told)
    manifest, accounts, sealed = told[-1]
    assert sealed and not any(member["failure"] for member in manifest["members"]), manifest["members"]
    clean(manifest, accounts, [])
    members = ",".join(map(str, station.members))
    run("recover", "--all", "--store", members, code=(GOOD, FOUND))
    for manifest, _, _ in told:
        durable = station.durable(manifest["scan"])
        if durable:
            cat = station.cat(manifest)
            assert len(cat.stdout) >= durable, (manifest["scan"], cat.stderr.decode())


@pytest.fixture
def slow_lane():
    """A group of processes with a limited write rate on a device: how to enter it, and how to set the rate."""
    unified = Path("/sys/fs/cgroup")
    old = unified / "blkio"
    parent = old if old.is_dir() else unified
    group = parent / f"fullbore-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = group / ("blkio.throttle.write_bps_device" if old.is_dir() else "io.max")
        if not limit.exists():
            pytest.skip("this kernel limits no device")
    except OSError as error:
        pytest.skip(f"no group of processes can be made: {error}")

    def throttle(disk, rate):
        words = f"{disk.major_minor()} {rate}" if old.is_dir() else f"{disk.major_minor()} wbps={rate}"
        limit.write_text(words)

    yield throttle, ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    group.rmdir()


def test_a_slow_member_gets_less_and_nothing_is_lost(slow_lane, disks, stores):
    throttle, enter = slow_lane
    slow = disks("xfs")
    throttle(slow, 2_000_000)
    with Station([slow], stores[:2], scans=1, wrap=enter) as station:
        station.send()
        enough = lambda told: sum(it["written_bytes"] for it in told["members"]) >= 48 << 20
        station.recording.wait("progress", enough)
        station.recording.process.send_signal(signal.SIGINT)
        ((manifest, accounts, sealed),) = station.end()
    assert sealed and station.recording.process.returncode == GOOD, station.complaints()
    clean(manifest, accounts, [])
    judge(station, manifest, accounts, FAULTS["frozen and thawed"])
    written = [it["written_bytes"] for it in station.recording.last("progress")["members"]]
    assert written[1] * 2 < min(written[0], written[2]), written
