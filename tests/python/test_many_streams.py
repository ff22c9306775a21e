"""Sixty-four small streams at once: on as many ports, or as threads of one."""

import os
import re
from pathlib import Path

import pytest
from fullbore import (
    AS_SEALED,
    GOOD,
    Recording,
    accounts,
    balanced,
    free_port,
    free_ports,
    generate,
)

STREAMS = 64


@pytest.mark.parametrize("members", [1, 3])
def test_sixty_four_streams_are_all_proven_and_equal_to_the_truth(members, stores, tmp_path):
    ports = free_ports(STREAMS)
    target = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}"
    with Recording(f"{target}?format=vdif&fps=40&frame=1032", store=stores[:members]) as recording:
        # The sum of the needs of slow streams, not the default of fast ones.
        assert recording.wait("memory")["bytes"] <= 640 << 20
        truth = generate(
            target, fps=40, frame=1032, frames=120, gentle=True, truth=tmp_path / "truth.json"
        )
    told = accounts(recording.sealed(GOOD))
    assert len(told) == len(truth) == STREAMS
    for stream in truth:
        account = balanced(told[stream["name"]])
        assert account["verdict"] == "proven", account
        assert account["terms"]["written"] == account["terms"]["expected"] == 120


def test_sixty_four_threads_of_one_port_become_streams_that_are_all_proven(store, tmp_path):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=40&frame=1032&threads=split&name=a"
    with Recording(source, store=store, options=["--buffer", "128MiB"]) as recording:
        generate(port, fps=40, frame=1032, frames=120, threads="0-63", gentle=True, truth=tmp_path / "t.json")
    told = accounts(recording.sealed(GOOD))
    assert set(told) == {f"at{thread}" for thread in range(STREAMS)}
    for account in told.values():
        assert balanced(account)["verdict"] == "proven"
        assert account["terms"]["written"] == 120


def limit_of_files(pid):
    return re.search(r"Max open files\s+(\d+)\s+(\d+)", Path(f"/proc/{pid}/limits").read_text()).groups()


def test_files_may_be_opened_as_far_as_anybody_may_allow_it(store, tmp_path):
    ports = free_ports(STREAMS)
    target = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}"
    wrap = ["prlimit", "--nofile=128:4096"]
    # Frames that fill their small blocks at once, so that files are opened.
    source = f"{target}?format=vdif&fps=40&frame=8192"
    with Recording(source, store=store, wrap=wrap) as recording:
        assert limit_of_files(recording.process.pid) == ("4096", "4096")
        assert not [e for e in recording.events if e["event"] == "warning" and "files may be open" in e["text"]]
        generate(target, fps=40, frame=8192, frames=60, gentle=True)
        recording.wait("progress", lambda told: told["durable_bytes"] >= 64 * 8192 * 20)
        opened = len(os.listdir(f"/proc/{recording.process.pid}/fd"))
    assert opened > 128, "the limit would not have been met"
    assert all(account["verdict"] == "proven" for account in accounts(recording.sealed(GOOD)).values())


def test_a_limit_of_files_that_is_too_small_is_told_before_anything_fails(store):
    ports = free_ports(STREAMS)
    source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif&fps=40&frame=1032"
    with Recording(source, store=store, wrap=["prlimit", "--nofile=256:256"]) as recording:
        (warning,) = [e["text"] for e in recording.events if e["event"] == "warning" and "files" in e["text"]]
        assert "256 files may be open" in warning and "64 streams on 1 member" in warning
        recording.stop(AS_SEALED)
