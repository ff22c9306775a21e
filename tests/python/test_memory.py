"""Block memory: the sum of its parts is printed before it is allocated, and the highest use after the scan."""

import subprocess

import pytest
from disks import MARKS, Disk
from fullbore import (
    AS_SEALED,
    GOOD,
    INTACT,
    REFUSED,
    Recording,
    accounts,
    ask,
    free_port,
    generate,
    generate_command,
    run,
)

MIB = 1 << 20


def source(port, more=""):
    return f"udp://127.0.0.1:{port}?format=vdif&frame=8032{more}"


def test_the_sum_of_reasons_is_told_before_anything_is_armed(store):
    with Recording(source(free_port(), "&fps=50000"), store=store) as recording:
        kinds = [event["event"] for event in recording.events]
        assert kinds.index("memory") < kinds.index("armed"), kinds
        memory, armed = recording.wait("memory"), recording.wait("armed")
        total = memory["sum"]
        assert total["bytes"] == sum(reason["bytes"] for reason in total["reasons"])
        assert total["rate"] == 50_000 * 8032
        queued = next(it["bytes"] for it in total["reasons"] if it["what"].startswith("queued"))
        assert queued == total["rate"] * total["stall"]["ms"] // 1000
        assert memory["rides_out_ms"] >= total["stall"]["ms"] and not memory["requested"]
        # In whole pages of 2 MiB.
        assert abs(armed["pool_bytes"] - memory["bytes"]) <= 2 * MIB
        recording.stop(AS_SEALED)


def test_a_sum_that_is_more_than_the_memory_is_refused_with_its_reasons(store):
    first = free_port()
    # A terabyte a second.
    address = source(f"{first}-{first + 7}", "&fps=16000000")
    words = ["record", address, "--store", store, "--session", "test", "--scan", "one"]
    told = run(*words, code=REFUSED).stderr.decode()
    assert "queued at" in told and "are available" in told and "--buffer" in told, told
    assert not list(store.glob("test_one*"))


def test_a_buffer_that_was_asked_for_is_taken_and_what_it_is_worth_is_said(store):
    address = source(free_port(), "&fps=16000000")
    with Recording(address, store=store, options=["--buffer", "128MiB"]) as recording:
        memory = recording.wait("memory")
        assert memory["requested"] and memory["bytes"] == 128 * MIB
        assert memory["rides_out_ms"] < memory["sum"]["stall"]["ms"]
        warnings = [event["text"] for event in recording.events if event["event"] == "warning"]
        assert any("ride out a stall" in text for text in warnings), warnings
        recording.stop(AS_SEALED)


def test_without_a_rate_a_default_is_taken_and_said(store):
    with Recording(f"udp://127.0.0.1:{free_port()}?format=vdif", store=store, memory=()) as recording:
        memory = recording.wait("memory")
        assert memory["sum"] is None and memory["bytes"] > 0
        recording.stop(AS_SEALED)


def test_the_high_water_mark_over_time_is_kept_and_drawn(store):
    port = free_port()
    with Recording(source(port, "&fps=2000&block=256KiB"), store=store) as recording:
        generate(port, frames=4000, fps=2000)
    recording.stop(AS_SEALED)
    told = ask("info", recording.scan, "--store", store)
    host = told["accounts"][0]["host"]
    history = host["high_water_history"]
    assert len(history["blocks"]) * history["step_ms"] >= 1500, history
    assert 0 < max(history["blocks"]) <= host["high_water"] <= host["pool_blocks"]
    text = run("info", recording.scan, "--full", "--store", store).stdout.decode()
    assert "high water |" in text, text
    run("verify", recording.scan, "--store", store, code=INTACT)


@pytest.mark.skipif(any(mark.args[0] for mark in MARKS), reason="needs root and file systems of its own")
def test_a_ring_that_comes_near_its_end_is_warned_of(tmp_path):
    disk = Disk(tmp_path, "xfs")
    port = free_port()
    sending = None
    try:
        options = ["--buffer", "48MiB", "--chunk", "4MiB"]
        with Recording(
            source(port, "&fps=2000&block=1MiB"), store=disk.member, options=options
        ) as recording:
            command = generate_command(port, frame=8032, fps=2000, duration="300s")
            sending = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            recording.wait("progress", lambda told: told["durable_bytes"] > 0)
            disk.freeze()
            near = recording.wait("warning", lambda told: "an overrun is near" in told["text"])
            disk.thaw()
            sending.kill()
            sending.wait()
            (account,) = accounts(recording.stop(AS_SEALED)).values()
        assert str(disk.member) in near["text"]
        host = account["host"]
        assert max(host["high_water_history"]["blocks"]) * 4 >= host["pool_blocks"] * 3, host
    finally:
        if sending:
            sending.kill()
            sending.wait()
        disk.away()
