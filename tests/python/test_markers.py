"""Markers: set while a scan runs, and found in its manifest afterwards, whatever happened in between."""

import json
import subprocess
import threading
from datetime import datetime

import pytest
import wire
from fullbore import AS_SEALED, BINARY, FOUND, GOOD, REFUSED, Recording, ask, free_port, free_ports, run
from test_documents import schema

FRAMES = 400


def recording(store, scan="one", port=None, options=()):
    """A scan in small blocks, which are soon on the disk."""
    return Recording(
        f"udp://127.0.0.1:{port or free_port()}?format=vdif&fps=1000&block=64KiB", store=store, scan=scan, options=options
    )


def mark(store, *words, code=GOOD):
    stores = store if isinstance(store, list) else [store]
    return ask("mark", *words, "--store", ",".join(map(str, stores)), code=code)


def manifest_of(recorded):
    return json.loads(next(recorded.stores[0].glob(f"{recorded.scan}*/.fullbore/manifest.json")).read_text())


def texts(markers):
    return [marker["text"] for marker in markers]


def test_a_marker_set_while_a_scan_runs_is_in_its_manifest_with_where_it_was(stores):
    first, second = free_ports(2)
    source = f"udp://127.0.0.1:{first}-{second}?format=vdif&fps=1000&block=64KiB"
    with Recording(source, store=stores) as recorded:
        for port in (first, second):
            wire.send(wire.run_of_frames(FRAMES), port)
        recorded.wait("progress", lambda told: told["durable_bytes"] > 0)
        told = mark(stores, "test_one", "the wind rises — 40 °C")
        assert told["text"] == "the wind rises — 40 °C"
        live = ask("info", "test_one", "--store", ",".join(map(str, stores)))
        assert texts(live["markers"]) == [told["text"]] and live["recording"]
        for port in (first, second):
            wire.send(wire.run_of_frames(FRAMES, first=FRAMES), port)
        sealed = recorded.stop(AS_SEALED)
    (kept,) = sealed["manifest"]["markers"]
    assert kept["uuid"] == told["uuid"] and kept["time"] == told["time"]
    assert manifest_of(recorded)["markers"] == [kept]
    assert {position["stream"] for position in kept["positions"]} == {str(first), str(second)}
    schema("manifest").validate(sealed["manifest"])
    info = ask("info", "test_one", "--store", ",".join(map(str, stores)))
    (shown,) = info["markers"]
    positions = {position["stream"]: position for position in shown["positions"]}
    bytes_of = {stream["name"]: stream["bytes"] for stream in sealed["manifest"]["streams"]}
    assert set(positions) == {str(first), str(second)}
    for stream, position in positions.items():
        # Data received before the marker is before it, and data sent later is after it; the position within a block is
        # open.
        block = 64 << 10
        assert position["byte"] <= bytes_of[stream]
        assert abs(position["byte"] - bytes_of[stream] // 2) <= 2 * block, (position, bytes_of)
    text = run("info", "test_one", "--full", "--store", ",".join(map(str, stores))).stdout.decode()
    assert "the wind rises — 40 °C" in text and f"byte {positions[str(first)]['byte']}" in text
    run("verify", "test_one", "--store", ",".join(map(str, stores)))


def test_markers_set_by_several_commands_at_once_and_while_it_is_sealed_are_all_there(stores):
    port, done = free_port(), []
    with recording(stores, port=port) as recorded:
        wire.send(wire.run_of_frames(FRAMES), port)
        recorded.wait("progress", lambda told: told["durable_bytes"] > 0)
        command = [BINARY, "mark", "test_one", "--store", ",".join(map(str, stores)), "--json"]
        early = [subprocess.Popen([*command, f"early {n}"], stdout=subprocess.DEVNULL) for n in range(4)]
        stopping = threading.Thread(target=lambda: done.append(recorded.stop(AS_SEALED)))
        stopping.start()
        late = [subprocess.Popen([*command, f"late {n}"], stdout=subprocess.DEVNULL) for n in range(4)]
        assert [process.wait(60) for process in early + late] == [GOOD] * 8
        stopping.join()
    assert done
    words = sorted([f"early {n}" for n in range(4)] + [f"late {n}" for n in range(4)])
    info = ask("info", "test_one", "--store", ",".join(map(str, stores)))
    assert sorted(texts(info["markers"])) == words
    # One more, and markers set too late for their recorder are in the manifest at the latest.
    mark(stores, "test_one", "after")
    assert sorted(texts(manifest_of(recorded)["markers"])) == sorted([*words, "after"])


def test_a_marker_outlives_a_recorder_that_is_killed(store):
    port = free_port()
    with recording(store, port=port) as recorded:
        wire.send(wire.run_of_frames(FRAMES), port)
        recorded.wait("progress", lambda told: told["durable_bytes"] > 0)
        told = mark(store, "--last", "just before")
        recorded.kill()
    assert "markers" not in manifest_of(recorded)
    assert texts(ask("info", "test_one", "--store", store)["markers"]) == ["just before"]
    run("recover", "test_one", "--store", store, code=(GOOD, FOUND))
    manifest = manifest_of(recorded)
    assert manifest["state"] == "recovered"
    (kept,) = manifest["markers"]
    assert (kept["uuid"], kept["time"]) == (told["uuid"], told["time"]) and kept["positions"]
    schema("manifest").validate(manifest)
    run("verify", "test_one", "--store", store)
    run("rm", "test_one", "--yes", "--store", store)
    assert not list(store.glob("test_one*"))


def test_a_sealed_scan_is_marked_by_time_or_position(store):
    port = free_port()
    with recording(store, port=port) as recorded:
        wire.send(wire.run_of_frames(FRAMES), port)
        recorded.wait("progress", lambda told: told["durable_bytes"] > 0)
        sealed = recorded.stop(AS_SEALED)
    frame = sealed["manifest"]["streams"][0]["geometry"]["frame_bytes"]
    at = mark(store, "test_one", "here", "--position", f"{port}:{100 * frame}")
    (position,) = at["positions"]
    first = sealed["accounts"][0]["first"]["index"]
    assert (position["frame"], position["byte"]) == (first + 100, 100 * frame)
    begun = mark(store, "test_one", "it begins", "--time", sealed["manifest"]["armed"])
    assert begun["positions"][0]["byte"] == 0
    assert texts(manifest_of(recorded)["markers"]) == ["it begins", "here"]
    for words in (
        ["test_one", "x", "--position", str(10**12)],
        ["test_one", "x", "--position", "nobody:0"],
        ["test_one", "x", "--time", "2014-06-16T05:56:07"],
        ["test_one", "two\nlines"],
        ["test_one", "\x1b[2Jx"],
        ["test_one", ""],
        ["test_one", "x" * 501],
        ["test_one"],
        ["--last", "test_one", "x"],
        ["test_none", "x"],
    ):
        refused = run("mark", *words, "--store", store, code=REFUSED)
        assert refused.stderr.startswith((b"fullbore: ", b"error: ")) and b"\x1b[2J" not in refused.stderr, refused
    assert len(manifest_of(recorded)["markers"]) == 2


def test_last_is_the_scan_that_is_being_recorded(store):
    for scan in ("one", "two"):
        port = free_port()
        with recording(store, scan=scan, port=port) as recorded:
            wire.send(wire.run_of_frames(FRAMES), port)
            recorded.wait("progress", lambda told: told["durable_bytes"] > 0)
            assert mark(store, "--last", f"in {scan}")["scan"] == f"test_{scan}"
            recorded.stop(AS_SEALED)
    assert mark(store, "--last", "after")["scan"] == "test_two"


@pytest.mark.parametrize("member", [0, 1])
def test_a_marker_is_read_from_any_member(stores, member):
    port = free_port()
    with recording(stores, port=port) as recorded:
        wire.send(wire.run_of_frames(FRAMES), port)
        recorded.wait("progress", lambda told: told["durable_bytes"] > 0)
        mark(stores, "test_one", "anywhere")
        recorded.kill()
    assert texts(ask("info", "test_one", "--store", stores[member])["markers"]) == ["anywhere"]


def test_a_member_that_is_not_attached_did_not_take_the_marker(stores, tmp_path):
    port = free_port()
    with recording(stores, port=port, options=["--chunk", "128KiB"]) as recorded:
        wire.send(wire.run_of_frames(FRAMES), port)
    recorded.stop(AS_SEALED)
    stores[0].rename(tmp_path / "elsewhere")
    there = ",".join(map(str, stores[1:]))
    told = run("mark", recorded.scan, "note", "--store", there, code=FOUND).stdout.decode()
    assert f"{stores[0]} did not take the marker: it is not attached" in told, told
    assert "not on the disk yet" not in told, told
    told = mark(stores[1:], recorded.scan, "another", code=FOUND)
    assert told["failed"] == [{"member": str(stores[0]), "why": "it is not attached"}]


def test_a_marker_has_no_position_that_the_blocks_of_an_absent_member_could_change(stores, tmp_path):
    port = free_port()
    with recording(stores, port=port, options=["--chunk", "128KiB"]) as recorded:
        wire.send(wire.run_of_frames(FRAMES), port, pause=2e-4)
    sealed = recorded.stop(AS_SEALED)
    first, last = (datetime.fromisoformat(sealed["accounts"][0][end]["seen"][:26]) for end in ("first", "last"))
    times = [(first + (last - first) * part / 8).isoformat() for part in range(10)]
    positions = lambda there: [
        mark(there, recorded.scan, "m", "--time", time, code=None)["positions"] for time in times
    ]
    whole = positions(stores)
    assert all(whole)
    stores[0].rename(tmp_path / "elsewhere")
    without = positions(stores[1:])
    assert all(found in ([], known) for found, known in zip(without, whole)), (without, whole)
    assert [] in without


def test_a_stream_that_never_came_is_not_looked_for_on_other_members(store):
    with recording(store):
        pass
    told = run("mark", "test_one", "nothing here", "--store", store).stdout.decode()
    assert "no frame of it is recorded" in told and "missing" not in told, told
