"""Truth against account: the account shows every deliberate fault of `generate`, term by term."""

import json
import random

import pytest
import wire
from conftest import seeds
from fullbore import (
    AS_SEALED,
    GOOD,
    INTACT,
    Recording,
    accounts,
    balanced,
    free_port,
    free_ports,
    generate,
    run,
)

SMALL_BLOCKS = "block=64KiB"  # so that the window is small, and late frames are late
BEYOND_ANY_WINDOW = 12_000
# The distance up to which frames before the first one are accepted as late: for streams stored as they arrive, the
# window is 2 times 1024 frames; for streams with a place for every frame, blocks are small here.
REACH_AS_THEY_COME, REACH_PLACED = 8 * 2 * 1024, 1024

# name, the rules
RULES = {
    "nothing": {},
    "drops": {"drop": 0.01},
    "bursts": {"drop": 0.02, "drop_run": 50},
    "duplicates": {"duplicate": 0.01},
    "reordering": {"reorder": 0.02, "reorder_distance": 30},
    "damage": {"damage": 0.01},
    "late": {"late": 0.001, "late_distance": BEYOND_ANY_WINDOW},
    "silence": {"silence": "200ms..400ms"},
    "everything": {
        "drop": 0.005,
        "drop_run": 3,
        "duplicate": 0.005,
        "reorder": 0.01,
        "reorder_distance": 20,
        "damage": 0.005,
        "late": 0.0005,
        "late_distance": BEYOND_ANY_WINDOW,
    },
}


class Truth:
    """The expected account, derived from the sender's truth of one port or thread."""

    def __init__(self, tally, reach, beyond=BEYOND_ANY_WINDOW - 1):
        self.tally = tally
        harms = tally["damaged"].values()
        self.damaged = frames(*(harm["readable"] for harm in harms))
        self.unreadable = frames(*(harm["unreadable"] for harm in harms))
        self.not_sent = frames(tally["dropped"], tally["silent"], tally["refused"])
        # A late frame that is delayed to the end of the run arrives before the window has advanced.
        late = dict(tally["late"])
        self.late = {frame for frame, by in late.items() if by >= beyond}
        self.maybe_late = set(late) - self.late
        # Frames before the first and after the last one that can be known are not expected.
        known = set(range(tally["first"], tally["last"] + 1)) - self.unreadable - self.not_sent
        on_time, self.last = min(known - self.damaged - self.late), max(known)
        self.early = {frame for frame in self.damaged if frame < on_time}
        self.out_of_window = {frame for frame in self.late if frame < on_time and late[frame] > reach}
        self.damaged -= self.early
        self.late -= self.out_of_window
        self.first = min(self.late | {on_time})
        self.expected = self.last - self.first + 1
        within = range(self.first, self.last + 1)
        self.missing = {frame for frame in self.unreadable | self.not_sent | self.early if frame in within}

    def check(self, told, shift):
        """`told` is an account or a flow of one, whose first frame has its own number and `shift`."""
        terms, late = told["terms"], told["terms"]["late"]
        assert len(self.late) <= late <= len(self.late | self.maybe_late)
        assert terms == {
            "expected": self.expected,
            "written": self.expected - len(self.missing) - len(self.damaged) - late,
            "missing": len(self.missing),
            "overrun": 0,
            "damaged": len(self.damaged),
            "late": late,
        }
        listed = {"missing": set(), "damaged": set(), "late": set()}
        for gap in told["gaps"]:
            start = gap["first"] - shift
            listed[gap["cause"]] |= set(range(start, start + gap["count"]))
        assert listed["missing"] == self.missing
        assert listed["damaged"] == self.damaged
        assert self.late <= listed["late"] <= self.late | self.maybe_late

    def reordered(self, late):
        """The number of frames placed after later ones, and the largest distance."""
        by = dict(self.tally["reordered"])
        certain = [by[frame] for frame in by.keys() - self.late - self.maybe_late - self.out_of_window]
        perhaps = [by[frame] for frame in self.maybe_late]
        count = len(certain) + len(perhaps) - (late - len(self.late))
        return count, max(certain, default=0), max(certain + perhaps, default=0)


def verdict(account):
    terms = account["terms"]
    if terms["missing"] or account["presence"]:
        return "unexplained"
    whole = terms["written"] == terms["expected"] and not account["out_of_window"]
    return "proven" if whole else "consistent"


def frames(*sets):
    """The frames of sets of runs; each run is its first frame and a number of frames."""
    return {frame for one in sets for start, count in one["runs"] for frame in range(start, start + count)}


def parts_of(stream, told, reach):
    """The accounts of a port, each with its expected content or that of its flows, and the shift."""
    name, threads, fps = stream["name"], stream["threads"], stream["frames_per_second"]
    own = lambda truth, account: (truth, account, account["first"]["index"] - truth.first)
    if len(threads) <= 1 or (name in told and not told[name]["flows"]):
        truth = Truth(stream["port"], reach)
        return [(told[name], [own(truth, told[name])])]
    beyond = BEYOND_ANY_WINDOW // len(threads) - 2
    truths = {thread: Truth(tally, reach, beyond) for thread, tally in zip(threads, stream["by_thread"])}
    if name in told:
        # Each flow counts from the beginning of the second that contains its first frame.
        flows = {flow["thread"]: flow for flow in told[name]["flows"]}
        assert sorted(flows) == sorted(threads)
        in_flows = [(truth, flows[thread], -(truth.first // fps) * fps) for thread, truth in truths.items()]
        return [(told[name], in_flows)]
    split = {thread: told[f"{name}t{thread}"] for thread in threads}
    return [(split[thread], [own(truth, split[thread])]) for thread, truth in truths.items()]


def compare_stream(stream, told, reach):
    parts = parts_of(stream, told, reach)
    for account, truths in parts:
        balanced(account)
        assert not [w for w in account["drop_counters"] if w["after"] != w["before"]], "a real loss"
        counts, nearest, furthest = [], [], []
        for truth, of_it, shift in truths:
            truth.check(of_it, shift)
            count, least, most = truth.reordered(of_it["terms"]["late"])
            counts.append(count)
            nearest.append(least)
            furthest.append(most)
        assert account["reordered"] == sum(counts)
        assert max(nearest) <= account["reorder_extent"] <= max(furthest)
        assert account["duplicates"] == sum(len(truth.tally["duplicated"]) for truth, *_ in truths)
        assert account["out_of_window"] == sum(len(truth.out_of_window) for truth, *_ in truths)
        assert account["verdict"] == verdict(account)
    foreign = stream["port"]["rubbish"] + len(Truth(stream["port"], reach).unreadable)
    foreign += sum(len(truth.early) for _, truths in parts for truth, *_ in truths)
    assert sum(account["foreign"] for account, _ in parts) == foreign


def compare(truths, sealed, written_down, reach=REACH_PLACED):
    told = accounts(sealed)
    try:
        for stream in truths:
            compare_stream(stream, told, reach)
    except AssertionError as error:
        raise AssertionError(f"{error}\nseed and truth: {written_down.read_text()[:2000]}") from error


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("seed", seeds(quick=2))
def test_every_term_of_every_account_equals_the_truth(rules, seed, stores, tmp_path):
    ports, chance = free_ports(2), random.Random(seed)
    fill = chance.choice(["invalid", "omit", "0x11223344"])
    source = f"udp://127.0.0.1:{ports[0]}-{ports[1]}?format=vdif&fps=20000&{SMALL_BLOCKS}&fill={fill}"
    written_down = tmp_path / "truth.json"
    with Recording(source, store=stores) as recording:
        truths = generate(
            f"udp://127.0.0.1:{ports[0]}-{ports[1]}", frame=1024, fps=20_000, duration="2s",
            seed=seed, truth=written_down, **rules,
        )  # fmt: skip
    sealed = recording.stop(AS_SEALED)
    assert len(truths) == 2
    compare(truths, sealed, written_down, REACH_AS_THEY_COME if fill == "omit" else REACH_PLACED)
    run("verify", recording.scan, "--store", ",".join(map(str, stores)), code=INTACT)


# Rates are given: with a derived rate, a frame lost just before the end of a second can have no index.
FORMS = {
    "VTP": ({"format": "vtp"}, "format=vtp&fps=10000"),
    "four threads": ({"threads": "0-3"}, "format=vdif&fps=10000"),
    "raw, counted": ({"format": "raw", "seq": "4:8:be"}, "format=raw&seq=4:8:be&frame=1024"),
    "legacy": ({"legacy": True}, "format=vdif&fps=10000"),
}


@pytest.mark.slow
@pytest.mark.parametrize("form, query", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("seed", seeds(quick=1))
def test_other_forms_of_stream_are_counted_as_truly(form, query, seed, store, tmp_path):
    port, written_down = free_port(), tmp_path / "truth.json"
    source = f"udp://127.0.0.1:{port}?{query}&{SMALL_BLOCKS}&fill=omit"
    with Recording(source, store=store) as recording:
        truths = generate(
            port, frame=1024, fps=10_000, duration="2s", seed=seed, truth=written_down,
            drop=0.01, duplicate=0.005, reorder=0.01, reorder_distance=10, **form,
        )  # fmt: skip
    compare(truths, recording.stop(AS_SEALED), written_down, REACH_AS_THEY_COME)
    run("verify", recording.scan, "--store", store, code=INTACT)


@pytest.mark.parametrize("frame, fps", [(8032, 469), (1032, 100), (8032, 100), (1032, 600), (5032, 20)])
def test_no_frame_is_invented_whatever_the_rate_that_nobody_told(frame, fps, store, tmp_path):
    port, written_down = free_port(), tmp_path / "truth.json"
    with Recording(f"udp://127.0.0.1:{port}?format=vdif", store=store) as recording:
        truths = generate(port, frame=frame, fps=fps, duration="3s", truth=written_down)
    sealed = recording.stop(GOOD)
    compare(truths, sealed, written_down)
    (account,) = accounts(sealed).values()
    assert account["terms"]["expected"] == account["terms"]["written"] == 3 * fps
    assert sealed["manifest"]["streams"][0]["format"]["frames_per_second"] == fps
    assert account["verdict"] == "proven"


THREADS = {
    "together": "fill=invalid",
    "split": "threads=split",
    "split, nothing filled": "threads=split&fill=omit",
    "listed": "threads=0-3",
    "listed, nothing filled": "threads=0-3&fill=omit",
}


@pytest.mark.slow
@pytest.mark.parametrize("rules", ["everything", "reordering", "late"])
@pytest.mark.parametrize("query", THREADS.values(), ids=THREADS.keys())
@pytest.mark.parametrize("seed", seeds(quick=1))
def test_every_term_of_several_threads_on_one_port_equals_the_truth(query, rules, seed, store, tmp_path):
    port, written_down = free_port(), tmp_path / "truth.json"
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=5000&{SMALL_BLOCKS}&{query}"
    with Recording(source, store=store) as recording:
        truths = generate(
            port, frame=1024, fps=5000, threads="0-3", duration="2s", seed=seed, truth=written_down,
            **RULES[rules],
        )  # fmt: skip
    as_they_come = query == THREADS["together"] or "omit" in query
    reach = REACH_AS_THEY_COME if as_they_come else REACH_PLACED
    compare(truths, recording.stop(code=None), written_down, reach)
    run("verify", recording.scan, "--store", store, code=INTACT)


def test_a_clean_stream_is_proven_in_the_account_on_disk_too(store, tmp_path):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif"
    with Recording(source, store=store) as recording:
        generate(port, frame=8032, fps=16_000, duration="1s", truth=tmp_path / "truth.json")
    account = json.loads((store / recording.scan / ".fullbore/account.json").read_text())
    assert account["verdict"] == "proven" and account["terms"]["written"] == 16_000


def test_frames_found_missing_by_a_rate_that_was_learnt_late_are_counted_though_not_listed(store):
    port = free_port()
    # The end of the second is lost, and only the highest number shows, at the end, the length of a second.
    frames = wire.run_of_frames(1672, payload_bytes=1000)
    sent = [frames[480], *frames[1100:]]
    with Recording(f"udp://127.0.0.1:{port}?format=vdif", store=store) as recording:
        wire.send(sent, port, pause=1e-4)
        (account,) = accounts(recording.stop(code=AS_SEALED)).values()
    assert balanced(account)["terms"]["written"] == len(sent)
    listed = sum(gap["count"] for gap in account["gaps"])
    assert account["terms"]["missing"] > listed and account["gaps_unlisted"] == 1
    run("verify", recording.scan, "--store", store, code=INTACT)
