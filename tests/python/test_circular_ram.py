"""Circular recordings in memory: the store gets what triggers keep, whole, and the recording goes on meanwhile."""

import os
import re
import shutil
import threading
import time
from pathlib import Path

import pytest
import wire
from fullbore import AS_SEALED, REFUSED, Recording, Scan, free_port, run
from test_circular import FORMAT, FPS, kept_frames, listed, trigger

MEMORY = Path("/dev/shm")
pytestmark = pytest.mark.skipif(
    not MEMORY.is_dir() or os.statvfs(MEMORY).f_bavail * os.statvfs(MEMORY).f_bsize < 1 << 30,
    reason="1 GB of /dev/shm is needed",
)
IN_MEMORY = ["--circular", "3s", "--circular-in", "ram:256MB", "--chunk", "256KiB"]


def in_memory():
    return set(MEMORY.glob("fullbore-*/test_sky"))


def pieces(place):
    return sorted(it.name for it in (place / "0").iterdir() if it.name.startswith("test_sky-2"))


@pytest.mark.alone  # Pieces change by the clock.
def test_overlapping_triggers_are_whole_in_the_store_and_nothing_else_is(stores):
    port, before = free_port(), in_memory()
    sent = wire.run_of_frames(6 * FPS)
    with Recording(f"udp://127.0.0.1:{port}?{FORMAT}", store=stores, scan="sky", options=IN_MEMORY) as recording:
        memory = recording.wait("memory")
        assert memory["pieces"] == 256_000_000
        (place,) = in_memory() - before
        assert place.stat().st_mode & 0o777 == 0o700
        sender = threading.Thread(target=wire.send, args=(sent, port), kwargs={"pause": 1 / FPS})
        sender.start()
        time.sleep(2.5)
        trigger(stores, "--name", "one", "--before", "2s", "--after", "1s")
        trigger(stores, "--name", "two", "--before", "1s", "--after", "2s", "--note", "burst")
        time.sleep(0.1)
        late = trigger(stores, "--name", "three", "--before", "100ms", "--after", "100ms", "--wait")
        assert late["done"] and sender.is_alive(), "it is written while the recording goes on"
        sender.join()
        assert len(pieces(place)) <= 6, "the oldest go"
        recording.stop(AS_SEALED)
    assert in_memory() == before, "the memory is free"
    assert sorted(listed(stores)) == ["test_one", "test_three", "test_two"]
    lengths = [len(kept_frames(stores, scan, sent)) for scan in ("test_one", "test_two", "test_three")]
    assert lengths[0] > 2.4 * FPS and lengths[1] > 2.9 * FPS
    manifest = Scan("test_two", stores).document("manifest.json")
    assert [marker["text"] for marker in manifest["markers"]] == ["burst"] and "copied" not in manifest
    assert all(member["path"].startswith(str(stores[0].parent)) for member in manifest["members"])


@pytest.mark.alone
def test_trigger_survives_a_kill_with_its_pieces_in_memory(store):
    port, before = free_port(), in_memory()
    sent = wire.run_of_frames(3 * FPS)
    with Recording(f"udp://127.0.0.1:{port}?{FORMAT}", store=store, scan="sky", options=IN_MEMORY) as recording:
        (place,) = in_memory() - before
        try:
            sender = threading.Thread(target=wire.send, args=(sent, port), kwargs={"pause": 1 / FPS})
            sender.start()
            time.sleep(2.5)
            told = trigger([store], "--name", "burst", "--before", "1500ms", "--after", "1h")
            assert not told["done"]
            recording.wait("progress", lambda told: told["durable_bytes"] > 0)
            recording.kill()
            sender.join()
            refused = run("trigger", "test_sky", "--store", store, "--name", "burst", code=REFUSED)
            piece, where = re.search(rb"recover (\S+) --store ([^`]+)`", refused.stderr).groups()
            run("recover", piece.decode(), "--store", where.decode())
            assert trigger([store], "--name", "burst")["done"]
            assert len(kept_frames([store], "test_burst", sent)) > FPS
            assert not list((store / ".fullbore" / "triggers").glob("*.json"))
        finally:
            shutil.rmtree(place.parent)


def test_sizes_without_memory_are_refused(store):
    base = ["record", f"udp://127.0.0.1:{free_port()}?format=vdif", "--store", store, "--session", "s", "--scan", "a"]
    for words, told in [
        (["--circular", "5s", "--circular-in", "ram:1000TB"], b"free"),
        (["--circular", "5s", "--circular-in", "ram"], b"ram:SIZE"),
        (["--circular-in", "ram:1GB"], b"--circular"),
    ]:
        assert told in run(*base, *words, code=REFUSED).stderr
    disk = {**os.environ, "FULLBORE_RAM": str(store)}
    refused = run(*base, "--circular", "5s", "--circular-in", "ram:64MiB", code=REFUSED, env=disk)
    assert b"tmpfs" in refused.stderr
    assert not list(store.glob("s_a*"))
