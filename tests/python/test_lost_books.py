"""Scans that have lost a part of their metadata: manifests, indexes."""

import os
import re
import shutil
import signal

import wire
from fullbore import BINARY, FOUND, GOOD, INTACT, REFUSED, Recording, ask, free_ports, run, text
from terminal import Terminal
from test_documents import schema


def record(stores, kill=False):
    """Two streams of 3000 frames; returns the recording and the data sent of each."""
    ports = free_ports(2)
    options = ["--chunk", "1MiB"]
    source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif&fps=1000&block=64KiB"
    frames = wire.run_of_frames(3000, payload_bytes=2000)
    with Recording(source, store=stores, options=options) as recording:
        sent = {port: b"".join(wire.send(frames, port, pause=1e-4)) for port in ports}
        if kill:
            recording.wait(
                "progress", lambda told: told["durable_bytes"] > 0.8 * sum(map(len, sent.values()))
            )
            recording.kill()
        else:
            recording.process.send_signal(signal.SIGINT)
            # One stream arrives after the other, which is reported.
            recording.sealed(code=None)
    return recording, ",".join(map(str, stores)), sent


def forget_manifests(stores):
    lost = [path for store in stores for path in store.glob("*/.fullbore/manifest.json")]
    assert lost
    for path in lost:
        path.unlink()


def test_a_sealed_scan_without_any_manifest_is_recovered_with_its_account(stores):
    recording, members, sent = record(stores)
    before = ask("info", recording.scan, "--store", members)
    forget_manifests(stores)
    assert recording.scan in text(run("ls", "--store", members).stdout)
    refused = text(run("verify", recording.scan, "--store", members, code=REFUSED).stderr)
    assert "fullbore recover" in refused
    done = text(run("recover", "--all", "--store", members).stdout)
    assert recording.scan in done and "not known" in done
    run("verify", recording.scan, "--store", members, code=INTACT)
    after = ask("info", recording.scan, "--store", members)
    assert after["accounts"] == before["accounts"]
    schema("manifest").validate(after["manifest"])
    assert after["manifest"]["times"] == "received"
    assert before["manifest"]["armed"] <= after["manifest"]["armed"]
    assert after["manifest"]["armed"] < after["manifest"]["stopped"] <= before["manifest"]["stopped"]
    told = text(run("info", recording.scan, "--store", members).stdout)
    assert "times of arrival of the first and the last frame" in told
    names = [stream["name"] for stream in before["manifest"]["streams"]]
    assert [stream["name"] for stream in after["manifest"]["streams"]] == names
    for port, bytes_sent in sent.items():
        assert recording.on_disk().bytes(port) == bytes_sent


def test_a_killed_scan_without_any_manifest_is_recovered(stores):
    recording, members, sent = record(stores, kill=True)
    forget_manifests(stores)
    (listed,) = ask("ls", "--store", members)
    assert listed["state"] == "broken"
    # Chunk files allocate their space beforehand: that is not the size of the scan.
    assert listed["bytes"] <= sum(map(len, sent.values()))
    run("recover", recording.scan, "--store", members, code=None)
    run("verify", recording.scan, "--store", members, code=INTACT)
    for port, bytes_sent in sent.items():
        kept = recording.on_disk().bytes(port)
        assert len(kept) > 0.75 * len(bytes_sent) and bytes_sent.startswith(kept)


def test_a_directory_of_another_program_is_left_alone_unless_it_is_named(store):
    foreign = store / "exp_no0001"
    foreign.mkdir()
    (foreign / "exp_no0001.00000000").write_bytes(b"".join(wire.run_of_frames(64)))
    (store / ".fullbore").mkdir(exist_ok=True)
    done = run("recover", "--all", "--store", store, code=FOUND)
    assert "fullbore recover exp_no0001" in text(done.stderr)
    assert not (foreign / ".fullbore").exists()
    run("recover", "exp_no0001", "--store", store, code=None)
    run("verify", "exp_no0001", "--store", store, code=INTACT)


def test_a_sealed_scan_that_lost_an_index_says_how_it_is_built_anew(stores):
    recording, members, sent = record(stores)
    lost = next(stores[1].glob("*/.fullbore/index"))
    lost.unlink()
    for verb in ("verify", "recover"):
        told = text(run(verb, recording.scan, "--store", members, code=FOUND).stdout)
        assert f"fullbore recover {recording.scan} --reindex" in told
    before = ask("info", recording.scan, "--store", members)
    done = text(run("recover", recording.scan, "--reindex", "--store", members, code=GOOD).stdout)
    assert "missing" not in done, "every block was found"
    run("verify", recording.scan, "--store", members, code=INTACT)
    # The proof of the other stream remains valid.
    after = ask("info", recording.scan, "--store", members)
    assert after["manifest"]["state"] == "recovered"
    lost_stream = lost.parts[-3].split("_ds")[1]
    for stream, old, new in zip(
        before["manifest"]["streams"], before["accounts"], after["accounts"], strict=True
    ):
        if stream["name"] == lost_stream:
            assert new["terms"] == old["terms"] and new["verdict"] != "proven"
            assert new["unverified"] > 0
        else:
            assert new == old
    for port, bytes_sent in sent.items():
        assert recording.on_disk().bytes(port) == bytes_sent


def test_a_stream_that_lost_its_directory_or_its_index_is_damaged_and_not_all_here(store):
    recording, members, sent = record([store])
    directory = next(store.glob("*_ds*"))
    for lost in (directory / ".fullbore", directory):
        shutil.rmtree(lost)
        verified = text(run("verify", recording.scan, "--store", members, code=FOUND).stdout)
        assert verified.startswith("DAMAGED: 3000 of 6000 frames recorded cannot be read"), verified
        assert "recorded 3000 frames, 3000 of them cannot be read now, no account" in verified
        for full in ([], ["--full"]):
            first = text(run("info", recording.scan, *full, "--store", members).stdout).split("\n")[0]
            assert re.match(r"NOT ALL HERE: 1 of 2 streams has files missing, \d+ of \d+ blocks", first), first
        told = text(run("info", recording.scan, "--store", members).stdout)
        assert "in 2 streams" in told and "recorded as: " in told, told


def test_where_nothing_else_tells_when_it_was_the_frames_do_and_else_the_files(store):
    recording, members, _ = record([store])
    forget_manifests([store])
    for name in ("index", "account.json"):
        for path in store.glob(f"*/.fullbore/{name}"):
            path.unlink()
    run("recover", recording.scan, "--store", members, code=GOOD)
    manifest = ask("info", recording.scan, "--store", members)["manifest"]
    schema("manifest").validate(manifest)
    assert manifest["times"] == "frames" and manifest["armed"] < manifest["stopped"]
    edges = [stream["account"] for stream in manifest["streams"]]
    # Without the rate, which nothing tells here, a frame tells its second alone.
    first, last = [[edge[end] for edge in edges if edge.get(end)] for end in ("first", "last")]
    assert not first or manifest["armed"] == min(first)
    assert not last or manifest["stopped"] == max(last)
    told = text(run("info", recording.scan, "--store", members).stdout)
    assert "times in the first and the last frame" in told


def test_what_takes_long_shows_how_far_it_is(stores):
    recording, members, sent = record(stores)
    name = recording.scan
    (port, whole), *_ = sent.items()
    # A pipe without a reader blocks it at a visible point.
    ours, theirs = os.pipe()
    cat = [BINARY, "cat", f"{name}/{port}", "--store", members]
    with Terminal(cat, 100, 24, stdout=theirs) as terminal:
        os.close(theirs)
        terminal.wait(lambda lines: any(name in line and " of " in line for line in lines))
        with os.fdopen(ours, "rb") as pipe:
            assert pipe.read() == whole
        assert terminal.end() == GOOD
        assert not any(name in line for line in terminal.shown()), "the bar is gone"
    with Terminal([BINARY, "rm", "--yes", name, "--store", members], 100, 24) as terminal:
        assert terminal.end() == GOOD
        assert b"files, " in terminal.raw, "how many are gone, of how many"
        assert any("removed" in line for line in terminal.shown())
