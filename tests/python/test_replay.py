"""What is played out is what was recorded: every frame, in order, and in time."""

import json

import pytest
from fullbore import FOUND, GOOD, Recording, accounts, free_ports, generate, play


def record(ports, store, scan, feed):
    source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif"
    with Recording(source, store=store, scan=scan) as recording:
        feed(f"udp://127.0.0.1:{ports[0]}-{ports[-1]}")
    return recording


@pytest.mark.parametrize("pace", [[], ["--factor", "2"], ["--flat-out"]], ids=["recorded", "twice", "flat out"])
def test_a_replay_recorded_again_is_equal(pace, stores, tmp_path):
    ports, members = free_ports(4), ",".join(map(str, stores))
    first = record(
        ports, stores, "first",
        lambda to: generate(to, frame=5032, fps=4_000, duration="1s", truth=tmp_path / "t.json"),
    )  # fmt: skip
    again = record(
        ports, stores, "again",
        lambda to: play(first.scan, "--store", members, "--to", to, *pace),
    )  # fmt: skip
    for port in ports:
        sent, came = first.on_disk().bytes(port), again.on_disk().bytes(port)
        assert len(sent) == 4000 * 5032
        assert came == sent
    told = accounts(again.stop(code=GOOD)).values()
    assert {account["verdict"] for account in told} == {"proven"}
    assert {account["reordered"] for account in told} == {0}


def test_fill_frames_are_not_sent_so_a_lossy_scan_stays_lossy(store, tmp_path):
    ports = free_ports(1)
    first = record(
        ports, store, "first",
        lambda to: generate(
            to, frame=5032, fps=4_000, duration="1s", drop=0.02, seed=4, truth=tmp_path / "t.json"
        ),
    )  # fmt: skip
    again = record(
        ports, store, "again", lambda to: play(first.scan, "--store", store, "--to", to)
    )
    (before,) = accounts(first.stop(code=FOUND)).values()
    (after,) = accounts(again.stop(code=FOUND)).values()
    assert before["terms"] == after["terms"] and before["terms"]["missing"] > 0


def test_a_replay_tells_its_rate_and_its_error_of_pace(store, tmp_path):
    ports = free_ports(1)
    first = record(
        ports, store, "first",
        lambda to: generate(to, frame=8032, fps=4_000, duration="2500ms", truth=tmp_path / "t.json"),
    )  # fmt: skip
    source = f"udp://127.0.0.1:{ports[0]}?format=vdif"
    with Recording(source, store=store, scan="again"):
        to = f"udp://127.0.0.1:{ports[0]}"
        done = play(first.scan, "--store", store, "--to", to, "--json")
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["frames"] == 10_000 and report["refused"] == 0
    assert report["seconds"] > 2.4 and report["due_seconds"] == pytest.approx(2.5, abs=0.01)
    late = report["lateness"]["late"] > 100 or report["seconds"] > report["due_seconds"] * 1.01 + 0.01
    assert done.returncode == (FOUND if late else GOOD)
    assert (b"timing was not kept" in done.stderr) == late
    assert sum(count for _, count in report["lateness"]["buckets"]) == 10_000
