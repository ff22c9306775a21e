"""Frames lost at every place between the sender and the disk, alone and together.

    sender ─► its queue ─► device ─► backlog ─► checksum ─► socket ─► ring ─► disk
      │           │           │         │           │          │        │
     no counter of ours    rx_dropped  softnet  InCsumErrors  drops   overrun

Each place knows its own losses: each frame of a stream is delivered, or lost at one place. The account must have every
term right, name each counter that moved with its increase, and be unexplained as soon as a single frame is missing that
none of them counted.
"""

import os
import signal
from itertools import combinations, count
from pathlib import Path

import pytest
import wire
from disks import MARKS as DISK_MARKS
from disks import Disk
from fullbore import FOUND, GOOD, INTACT, Recording, accounts, balanced, run
from lines import MARKS, RECEIVER, Line, Pair, do, socket_of, until

# A counter of the whole host moves, so no other test runs at the same time.
pytestmark = [pytest.mark.alone, *MARKS]

PORT = 46220
QUERY = "format=vdif&fps=1000&gro=off"


@pytest.fixture
def line():
    made = Line()
    yield made
    made.away()


@pytest.fixture
def pair():
    made = Pair()
    yield made
    made.away()


def record(namespace, store, query="", options=()):
    source = f"udp://{RECEIVER}:{PORT}?{QUERY}{query}"
    return Recording(source, store=store, wrap=namespace.enter, options=options)


def empty(recording):
    """Waits until the recorder has read all data from its socket."""
    until(lambda: socket_of(recording.process, PORT)[0] == 0)


def judge(sealed, lost, frames, overrun=0):
    """Checks the account of a stream; `lost` gives the number of frames lost at each place."""
    (account,) = accounts(sealed).values()
    terms = balanced(account)["terms"]
    missing = sum(lost.values())
    assert terms == {
        "expected": frames,
        "written": frames - missing - overrun,
        "missing": missing,
        "overrun": overrun,
        "damaged": 0,
        "late": 0,
    }, (lost, account["drop_counters"])
    moved = {}
    for counter in account["drop_counters"]:
        by = counter["after"] - counter["before"]
        if by:
            moved[counter["layer"]] = moved.get(counter["layer"], 0) + by
    # A datagram dropped for its checksum is dropped at the socket, which counts it too.
    seen = {
        "device": lost.get("device", 0) + lost.get("backlog", 0),
        "backlog": lost.get("backlog", 0),
        "udp": lost.get("checksum", 0),
        "socket": lost.get("socket", 0) + lost.get("checksum", 0),
    }
    assert moved == {layer: count for layer, count in seen.items() if count}, (lost, account["drop_counters"])
    nowhere = lost.get("sender", 0)
    assert account["verdict"] == ("unexplained" if nowhere else "consistent" if missing + overrun else "proven"), (
        lost,
        account["drop_counters"],
    )
    return account


def gaps_of(account):
    return {
        cause: {
            frame
            for gap in account["gaps"]
            if gap["cause"] == cause
            for frame in range(gap["first"], gap["first"] + gap["count"])
        }
        for cause in ("missing", "overrun")
    }


PLACES = ["sender", "device", "checksum", "socket"]
COMBINATIONS = [places for number in range(5) for places in combinations(PLACES, number)]

# The number of frames lost at each place, chosen so that no sum of some equals the sum of others; and their position in
# the stream.
COUNT = {"sender": 3, "device": 7, "checksum": 13}
PERIOD = 60


@pytest.mark.parametrize("places", COMBINATIONS, ids=lambda places: " and ".join(places) or "nowhere")
def test_frames_lost_at_any_places_are_told_with_the_places(places, line, store):
    frames = wire.run_of_frames(1400, fps=1000)
    lost_at = {}
    for offset, place in enumerate(COUNT):
        if place in places:
            # The first frame and the last arrive: losses before and after them cannot be detected.
            lost_at |= {1 + offset + PERIOD * n: place for n in range(COUNT[place])}
    act = {"device": line.lose, "checksum": line.spoil, "sender": lambda *_: None}
    with record(line.namespace, store, "&rcvbuf=256KiB" if "socket" in places else "") as recording:
        for number, frame in enumerate(frames[:900]):
            act.get(lost_at.get(number), line.deliver)(frame, PORT)
            if "socket" in places and number % 50 == 0:
                # The socket is small, and must not overflow too early.
                empty(recording)
        empty(recording)
        lost = {place: COUNT[place] for place in COUNT if place in places}
        before = socket_of(recording.process, PORT)[1]
        if "socket" in places:
            recording.process.send_signal(signal.SIGSTOP)
            os.waitpid(recording.process.pid, os.WUNTRACED)
        for frame in frames[900:1300]:
            line.deliver(frame, PORT)
        if "socket" in places:
            lost["socket"] = socket_of(recording.process, PORT)[1] - before
            recording.process.send_signal(signal.SIGCONT)
            empty(recording)
            assert 0 < lost["socket"] < 400
        for frame in frames[1300:]:
            line.deliver(frame, PORT)
    account = judge(recording.stop(FOUND if places else GOOD), lost, len(frames))
    missing = gaps_of(account)["missing"]
    behind = {frame for frame in missing if 900 <= frame < 1300}
    assert missing - behind == set(lost_at) and len(behind) == lost.get("socket", 0)
    run("verify", recording.scan, "--store", store, code=INTACT)


def test_what_the_senders_own_queue_dropped_is_explained_by_nothing_here(pair, store):
    frames = wire.run_of_frames(1000, fps=1000)
    with record(pair.receiver, store) as recording:
        pair.send(frames[:300], PORT)
        pair.shorten()
        pair.send(frames[300:700], PORT)
        dropped = pair.lengthen()
        assert 0 < dropped < 400
        pair.send(frames[700:], PORT)
    account = judge(recording.stop(FOUND), {"sender": dropped}, len(frames))
    assert gaps_of(account)["missing"] <= set(range(300, 700))


class Backlog:
    """The queue of each CPU for received packets, shortened: whole bursts do not fit."""

    limit = Path("/proc/sys/net/core/netdev_max_backlog")

    def __init__(self, line):
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            pytest.skip("what one CPU sends to itself, it takes at once: there is no other")
        self.cpus, self.line = cpus, line

    def __enter__(self):
        self._allowed = os.sched_getaffinity(0)
        self._before = self.limit.read_text()
        # Packets received by this CPU are processed by another one.
        os.sched_setaffinity(0, {self.cpus[0]})
        self._steer(1 << self.cpus[1])
        self.limit.write_text("2")
        return self

    def _steer(self, mask):
        enter, path = self.line.namespace.enter, f"{self.line.queues()}/rps_cpus"
        try:
            do(*enter, "sh", "-c", f"echo {mask:x} > {path}")
        except AssertionError as error:
            pytest.skip(f"no other CPU can be asked to receive: {error}")

    def __exit__(self, *_):
        self.limit.write_text(self._before)
        self._steer(0)
        os.sched_setaffinity(0, self._allowed)

    @staticmethod
    def dropped():
        rows = Path("/proc/net/softnet_stat").read_text().splitlines()
        return sum(int(row.split()[1], 16) for row in rows)


@pytest.mark.parametrize("also", [(), ("sender",), ("device",), ("sender", "device")], ids=" and ".join)
def test_what_the_backlog_dropped_is_counted_once(also, line, store):
    frames, at = wire.run_of_frames(12_000, fps=1000), 0
    lost = {place: COUNT[place] for place in also}
    with record(line.namespace, store) as recording:
        for frame in frames[:100]:
            line.deliver(frame, PORT)
        before = Backlog.dropped()
        with Backlog(line):
            at = 100
            # Until one burst was faster than the other CPU.
            while Backlog.dropped() == before and at < 11_000:
                for frame in frames[at : at + 500]:
                    line.deliver(frame, PORT)
                at += 500
        lost["backlog"] = Backlog.dropped() - before
        if not lost["backlog"]:
            pytest.skip("the other CPU is always faster than we are")
        recording.wait("progress", lambda told: told["streams"][0]["frames"] == at - lost["backlog"])
        for _ in range(lost.get("sender", 0)):
            at += 2
            line.deliver(frames[at - 1], PORT)
        for _ in range(lost.get("device", 0)):
            line.lose(frames[at], PORT)
            line.deliver(frames[at + 1], PORT)
            at += 2
        for frame in frames[at : at + 100]:
            line.deliver(frame, PORT)
    judge(recording.stop(FOUND), lost, at + 100)


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path / "disk", "xfs")
    yield made
    made.away()


@pytest.mark.parametrize("also", [(), ("sender",), ("device",)], ids=" and ".join)
@DISK_MARKS[1]
def test_what_found_no_block_is_overrun_and_not_missing(also, line, disk):
    one = lambda number: wire.run_of_frames(1, fps=1000, first=number, payload_bytes=8000)[0]
    frames = ((number, one(number)) for number in count())
    sent, overrun = 0, lambda: recording.last("progress")["streams"][0]["overrun"]

    def deliver(more):
        nonlocal sent
        for _ in range(more):
            number, frame = next(frames)
            line.deliver(frame, PORT)
            sent = number + 1
        empty(recording)

    options = ["--buffer", "20MiB", "--chunk", "2MiB"]
    with record(line.namespace, disk.member, "&block=256KiB", options) as recording:
        deliver(600)
        recording.wait("progress", lambda told: told["streams"][0]["durable_bytes"] > 0)
        began = sent
        disk.freeze()
        try:
            # The member is stopped, and the ring has room for some thousand frames.
            deliver(2000)
            while not overrun():
                deliver(100)
        finally:
            disk.thaw()
        since = recording.last("progress")["seconds"]
        idle = lambda told: told["seconds"] > since and told["members"][0]["backlog_bytes"] == 0
        recording.wait("progress", idle)
        ended = sent
        lost = {place: COUNT[place] for place in also}
        for place, times in lost.items():
            for _ in range(times):
                number, frame = next(frames)
                if place == "device":
                    line.lose(frame, PORT)
                deliver(2)
        deliver(100)
    sealed = recording.stop(FOUND)
    (account,) = accounts(sealed).values()
    without = account["terms"]["overrun"]
    assert 0 < without < ended - began
    judge(sealed, lost, sent, overrun=without)
    assert gaps_of(account)["overrun"] <= set(range(began, ended))
    assert account["host"]["pool_blocks"] == account["host"]["high_water"], account["host"]
    run("verify", recording.scan, "--store", disk.member, code=INTACT)
