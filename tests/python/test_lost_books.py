"""Scans that have lost a part of what is said of them: manifests, indexes."""

import signal

import wire
from fullbore import FOUND, GOOD, REFUSED, Recording, ask, free_ports, run, text


def record(stores, kill=False):
    """Two streams of 3000 frames; the recording and what was sent of each."""
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
            # One stream comes after the other, which is told.
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
    run("verify", recording.scan, "--store", members, code=GOOD)
    after = ask("info", recording.scan, "--store", members)
    assert after["accounts"] == before["accounts"]
    names = [stream["name"] for stream in before["manifest"]["streams"]]
    assert [stream["name"] for stream in after["manifest"]["streams"]] == names
    for port, bytes_sent in sent.items():
        assert recording.on_disk().bytes(port) == bytes_sent


def test_a_killed_scan_without_any_manifest_is_recovered(stores):
    recording, members, sent = record(stores, kill=True)
    forget_manifests(stores)
    (listed,) = ask("ls", "--store", members)
    assert listed["state"] == "broken"
    # Chunk files take their space beforehand: that is not the size of the scan.
    assert listed["bytes"] <= sum(map(len, sent.values()))
    run("recover", recording.scan, "--store", members, code=None)
    run("verify", recording.scan, "--store", members, code=GOOD)
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
    run("verify", "exp_no0001", "--store", store, code=GOOD)


def test_a_sealed_scan_that_lost_an_index_says_how_it_is_built_anew(stores):
    recording, members, sent = record(stores)
    lost = next(stores[1].glob("*/.fullbore/index"))
    lost.unlink()
    for verb in ("verify", "recover"):
        told = text(run(verb, recording.scan, "--store", members, code=FOUND).stdout)
        assert f"fullbore recover {recording.scan} --reindex" in told
    run("recover", recording.scan, "--reindex", "--store", members, code=None)
    run("verify", recording.scan, "--store", members, code=GOOD)
    for port, bytes_sent in sent.items():
        assert recording.on_disk().bytes(port) == bytes_sent
