"""Circular recordings: the newest data stays, and a trigger keeps a part of it as a scan, frame by frame."""

import json
import socket
import subprocess
import threading
import time
from datetime import datetime, timedelta

import pytest
import wire
from fullbore import AS_SEALED, BINARY, FOUND, GOOD, INTACT, REFUSED, Recording, Scan, ask, balanced, free_ports, run
from test_documents import schema

FPS = 1000
FORMAT = f"format=vdif&fps={FPS}&block=64KiB"


def members(stores):
    return ",".join(map(str, stores))


def trigger(stores, *words, code=GOOD):
    return ask("trigger", "test_sky", "--store", members(stores), *words, code=code)


def pieces(stores):
    told = json.loads(run("ls", "--store", members(stores), "--json").stdout)
    return [scan for scan in told if scan["name"].startswith("test_sky-2")]


def kept_frames(stores, scan, sent):
    """The kept scan verifies, its account balances and lacks nothing, baseband reads it, and its bytes are frames that
    were sent, in order and without a gap. Returns their numbers."""
    told = ask("verify", scan, "--store", members(stores), code=INTACT)
    assert told["good"], told
    stored = Scan(scan, stores)
    terms = balanced(stored.account())["terms"]
    raw = stored.bytes()
    number, rest = divmod(len(raw), len(sent[0]))
    assert rest == 0 and number == terms["written"] == terms["expected"] > 0
    first = sent.index(raw[: len(sent[0])])
    assert raw == b"".join(sent[first : first + number]), "frames without a gap, in order"
    assert run("cat", scan, "--store", members(stores)).stdout == raw
    schema("manifest").validate(stored.document("manifest.json"))
    return range(first, first + number)


def instant(text):
    return datetime.fromisoformat(text.split(".")[0] + "+00:00") + timedelta(seconds=float(f"0.{text.split('.')[1].rstrip('Z')}"))


def seen(stores, scan):
    """Arrival of the first and of the last frame, UTC."""
    account = Scan(scan, stores).account()
    return instant(account["first"]["seen"]), instant(account["last"]["seen"])


@pytest.mark.alone  # Pieces change by the clock.
def test_overlapping_triggers_keep_every_frame_and_the_rest_goes(stores, tmp_path):
    port, udp = free_ports(2)
    sent = wire.run_of_frames(6 * FPS)
    options = ["--circular", "3s", "--chunk", "256KiB", "--trigger", f"udp://127.0.0.1:{udp}?before=500ms&after=500ms"]
    options += ["--trigger", "marker:?before=200ms&after=200ms"]
    with Recording(f"udp://127.0.0.1:{port}?{FORMAT}", store=stores, scan="sky", options=options) as recording:
        sender = threading.Thread(target=wire.send, args=(sent, port), kwargs={"pause": 1 / FPS})
        sender.start()
        time.sleep(2.5)
        windows = {"test_one": trigger(stores, "--name", "one", "--before", "2s", "--after", "1s")}
        windows["test_two"] = trigger(stores, "--name", "two", "--before", "1s", "--after", "2s", "--note", "burst")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender_of_triggers:
            sender_of_triggers.sendto(b"from outside", ("127.0.0.1", udp))
        ask("mark", "--last", "fringe", "--store", members(stores))
        again = run("trigger", "test_sky", "--store", members(stores), "--name", "../x", code=REFUSED)
        assert b"name" in again.stderr
        late = trigger(stores, "--name", "three", "--before", "100ms", "--after", "100ms", "--wait")
        assert late["done"] and "test_three" in Scan("test_three", stores).streams
        sender.join()
        time.sleep(1.5)
        names = [piece["name"] for piece in pieces(stores)]
        newest = max(int(name.rsplit("-", 1)[1]) for name in names)
        assert 4 <= len(names) <= newest - 2, "the newest 3 s in pieces of 1 s, and the one being recorded"
        recording.stop(AS_SEALED)
    for scan, window in windows.items():
        kept_frames(stores, scan, sent)
        first, last = seen(stores, scan)
        assert first <= max(instant(window["from"]), seen_at_all(recording)) and last >= instant(window["to"])
    (marker,) = [m for m in Scan("test_two", stores).document("manifest.json")["markers"] if m["text"] == "burst"]
    assert marker["positions"]
    outside = [name for name in listed(stores) if "-kept-" in name]
    texts = {m["text"] for scan in outside for m in Scan(scan, stores).document("manifest.json")["markers"]}
    assert len(outside) == 2 and "fringe" in texts and any("from outside" in it for it in texts), texts
    for scan in outside:
        kept_frames(stores, scan, sent)
    played = run("convert", "test_one", f"npy:{tmp_path / 'one.npy'}", "--store", members(stores), code=(GOOD, FOUND))
    assert played.returncode == GOOD
    run("rm", "test_one", "--yes", "--store", members(stores))
    kept_frames(stores, "test_two", sent)
    options = ["--circular", "1h", "--keep", "1GB"]
    refused = [BINARY, "record", f"udp://:{port}", "--store", members(stores), "--session", "s", "--scan", "a", *options]
    assert b"--circular" in subprocess.run(refused, capture_output=True).stderr


def listed(stores):
    return [scan["name"] for scan in json.loads(run("ls", "--store", members(stores), "--json").stdout)]


def seen_at_all(recording):
    """Arrival of the first frame of the recording."""
    return instant(next(e for e in recording.events if e["event"] == "sealed")["accounts"][0]["first"]["seen"])


@pytest.mark.alone
def test_trigger_survives_a_kill_and_is_completed_after_recover(store):
    (port,) = free_ports(1)
    sent = wire.run_of_frames(3 * FPS)
    with Recording(f"udp://127.0.0.1:{port}?{FORMAT}", store=store, scan="sky", options=["--circular", "10s"]) as recording:
        sender = threading.Thread(target=wire.send, args=(sent, port), kwargs={"pause": 1 / FPS})
        sender.start()
        time.sleep(2.5)
        told = trigger([store], "--name", "burst", "--before", "1500ms", "--after", "1h")
        assert not told["done"]
        durable = recording.wait("progress", lambda told: told["durable_bytes"] > 0)
        assert durable
        recording.kill()
        sender.join()
    refused = run("trigger", "test_sky", "--store", store, "--name", "burst", code=REFUSED)
    (unsealed,) = [piece["name"] for piece in pieces([store]) if piece["state"] == "unsealed"]
    assert f"recover {unsealed}".encode() in refused.stderr
    run("recover", unsealed, "--store", store)
    done = trigger([store], "--name", "burst")
    assert done["done"] and done["to"] == told["to"], "the trigger that waited"
    frames = kept_frames([store], "test_burst", sent)
    assert len(frames) > FPS
    assert not list((store / ".fullbore" / "triggers").glob("*.json"))
    assert not list((store / ".fullbore").glob("joining-*"))


def test_snapshot_waits_for_its_part_of_a_scan_that_is_recorded(store, tmp_path):
    (port,) = free_ports(1)
    sent = wire.run_of_frames(3 * FPS)
    look = tmp_path / "look.vdif"
    with Recording(f"udp://127.0.0.1:{port}?{FORMAT}", store=store) as recording:
        sender = threading.Thread(target=wire.send, args=(sent, port), kwargs={"pause": 1 / FPS})
        sender.start()
        recording.wait("opened")
        words = ["snapshot", "test_one", "--at", "+1.5s", "--length", "250ms", "-o", look, "--store", store]
        run(*words)
        assert sender.is_alive(), "the scan is still being recorded"
        assert look.read_bytes() == b"".join(sent[1500:1750])
        assert len(wire.read_by_baseband(look)) == 250
        assert b"look.vdif" in run(*words, code=REFUSED).stderr, "it replaces no file"
        sender.join()
    absent = ["snapshot", "test_one", "--at", "+1h", "-o", tmp_path / "none", "--store", store]
    run(*absent, code=REFUSED)
    assert not (tmp_path / "none").exists()
