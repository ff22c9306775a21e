"""What is played out is what was recorded: every frame, in order, and in time."""

import pytest
from fullbore import Recording, accounts, ask, free_ports, generate, run


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
        lambda to: run("play", first.scan, "--store", members, "--to", to, *pace),
    )  # fmt: skip
    for port in ports:
        sent, came = first.on_disk().bytes(port), again.on_disk().bytes(port)
        assert len(sent) == 4000 * 5032
        assert came == sent
    told = accounts(again.stop(code=None)).values()
    assert {account["verdict"] for account in told} == {"proven"}


def test_fill_frames_are_not_sent_so_a_lossy_scan_stays_lossy(store, tmp_path):
    ports = free_ports(1)
    first = record(
        ports, store, "first",
        lambda to: generate(
            to, frame=5032, fps=4_000, duration="1s", drop=0.02, seed=4, truth=tmp_path / "t.json"
        ),
    )  # fmt: skip
    again = record(
        ports, store, "again", lambda to: run("play", first.scan, "--store", store, "--to", to)
    )
    (before,) = accounts(first.stop(code=None)).values()
    (after,) = accounts(again.stop(code=None)).values()
    assert before["terms"] == after["terms"] and before["terms"]["missing"] > 0


def test_a_replay_tells_its_rate_and_its_error_of_pace(store, tmp_path):
    ports = free_ports(1)
    first = record(
        ports, store, "first",
        lambda to: generate(to, frame=8032, fps=4_000, duration="2500ms", truth=tmp_path / "t.json"),
    )  # fmt: skip
    source = f"udp://127.0.0.1:{ports[0]}?format=vdif"
    with Recording(source, store=store, scan="again"):
        report = ask("play", first.scan, "--store", store, "--to", f"udp://127.0.0.1:{ports[0]}")
    assert report["frames"] == 10_000 and report["refused"] == 0
    assert report["seconds"] > 2.4
    assert sum(count for _, count in report["lateness"]["buckets"]) == 10_000
