"""Truth against account: what `generate` did on purpose is what the account says, term by term."""

import json
import random

import pytest
from conftest import seeds
from fullbore import (
    AS_SEALED,
    GOOD,
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
    """What an account must say, worked out from what the sender wrote down of one port or thread."""

    def __init__(self, tally):
        self.tally = tally
        harms = tally["damaged"].values()
        self.damaged = frames(*(harm["readable"] for harm in harms))
        self.unreadable = frames(*(harm["unreadable"] for harm in harms))
        self.not_sent = frames(tally["dropped"], tally["silent"], tally["refused"])
        # Frames before the first and behind the last that can be known of are nobody's to expect.
        known = set(range(tally["first"], tally["last"] + 1)) - self.unreadable - self.not_sent
        self.first, self.last = min(known), max(known)
        self.expected = self.last - self.first + 1
        within = range(self.first, self.last + 1)
        self.missing = sum(frame in within for frame in self.unreadable | self.not_sent)
        # Held back at the end of the run, a late frame comes before the window has gone on.
        late = dict(tally["late"])
        self.late = {frame for frame, by in late.items() if by >= BEYOND_ANY_WINDOW - 1}
        self.maybe_late = set(late) - self.late

    def check(self, account):
        terms = balanced(account)["terms"]
        assert not [w for w in account["witnesses"] if w["after"] != w["before"]], "a real loss"
        late = terms["late"]
        assert len(self.late) <= late <= len(self.late | self.maybe_late)
        assert terms == {
            "expected": self.expected,
            "written": self.expected - self.missing - len(self.damaged) - late,
            "missing": self.missing,
            "overrun": 0,
            "damaged": len(self.damaged),
            "late": late,
        }
        assert account["duplicates"] == len(self.tally["duplicated"])
        in_window = {frame: by for frame, by in self.tally["reordered"]} if not late else None
        if in_window is not None and not self.damaged:
            assert account["reordered"] == len(in_window)
            assert account["reorder_extent"] == max(in_window.values(), default=0)
        self.check_gaps(account)

    def check_gaps(self, account):
        """Each gap is where the sender left one, counted from the first frame."""
        shift = account["first"]["index"] - self.first
        listed = {"missing": set(), "damaged": set(), "late": set()}
        for gap in account["gaps"]:
            start = gap["first"] - shift
            listed[gap["cause"]] |= set(range(start, start + gap["count"]))
        within = range(self.first, self.last + 1)
        assert listed["missing"] == {f for f in self.unreadable | self.not_sent if f in within}
        assert listed["damaged"] == self.damaged
        assert self.late <= listed["late"] <= self.late | self.maybe_late

    def verdict(self, account):
        terms = account["terms"]
        if terms["missing"] or account["presence"]:
            return "unexplained"
        return "proven" if terms["written"] == terms["expected"] else "consistent"


def frames(*sets):
    """The frames of sets of runs, each run its first frame and how many."""
    return {frame for one in sets for start, count in one["runs"] for frame in range(start, start + count)}


def compare(truths, sealed, written_down):
    told = accounts(sealed)
    try:
        for stream in truths:
            account = told[stream["name"]]
            truth = Truth(stream["port"])
            assert account["foreign"] == stream["port"]["rubbish"] + len(truth.unreadable)
            if len(stream["threads"]) <= 1:
                truth.check(account)
                assert account["verdict"] == truth.verdict(account)
            for thread, tally in zip(stream["threads"], stream["by_thread"]):
                (flow,) = [f for f in account["flows"] if f["thread"] == thread]
                assert flow["terms"]["missing"] == Truth(tally).missing
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
    compare(truths, sealed, written_down)
    run("verify", recording.scan, "--store", ",".join(map(str, stores)), code=GOOD)


# Rates are given: where one is derived, a frame lost just before a second's end can have no index.
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
    compare(truths, recording.stop(AS_SEALED), written_down)
    run("verify", recording.scan, "--store", store, code=GOOD)


def test_a_clean_stream_is_proven_in_the_account_on_disk_too(store, tmp_path):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif"
    with Recording(source, store=store) as recording:
        generate(port, frame=8032, fps=16_000, duration="1s", truth=tmp_path / "truth.json")
    account = json.loads((store / recording.scan / ".fullbore/account.json").read_text())
    assert account["verdict"] == "proven" and account["terms"]["written"] == 16_000
