"""Lost members and damaged chunks: with redundancy every byte is read all the same, and restored."""

import os
import re
import shutil
import signal

import pytest
import wire
from fullbore import (
    AS_SEALED,
    FOUND,
    GOOD,
    INTACT,
    REFUSED,
    Recording,
    ask,
    free_port,
    free_ports,
    generate,
    play,
    run,
    text,
)
from lines import until
from test_documents import schema

FRAMES = 800


@pytest.fixture
def members(tmp_path):
    """A disk set of five members."""
    made = [tmp_path / f"disk{n}" for n in range(5)]
    for member in made:
        member.mkdir()
    return made


def record(stores, redundancy, streams=8):
    """A number of streams of VDIF; returns the recording, the data sent of each, and the sealed scan."""
    ports = free_ports(streams)
    source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif&fps=1000&block=64KiB"
    options = ["--chunk", "128KiB", "--redundancy", redundancy, "--buffer", f"{16 * streams}MiB"]
    frames = wire.run_of_frames(FRAMES, payload_bytes=2000)
    with Recording(source, store=stores, options=options) as recording:
        sent = {port: b"".join(wire.send(frames, port, pause=1e-5)) for port in ports}
        recording.process.send_signal(signal.SIGINT)
        # One stream arrives after the other, which is reported.
        sealed = recording.sealed(code=AS_SEALED)
    return recording, sent, sealed


def named(stores):
    return ",".join(map(str, stores))


def cat(scan, port, stores, code=GOOD):
    return run("cat", f"{scan}/{port}", "--store", named(stores), code=code).stdout


def verified(scan, stores, code):
    return ask("verify", scan, "--store", named(stores), code=code)


def test_any_two_of_five_disks_are_lost_and_no_byte_is(members, tmp_path):
    recording, sent, sealed = record(members, "parity:3+2")
    scan = recording.scan
    schema("manifest").validate(sealed["manifest"])
    redundancy = sealed["manifest"]["redundancy"]
    assert (redundancy["data"], redundancy["parity"]) == (3, 2)
    assert redundancy["followed"]["unprotected"] == 0 < redundancy["followed"]["stripes"]
    assert b"parity:3+2" in run("info", scan, "--store", named(members)).stdout
    # The chunks are the same plain files as without redundancy.
    for port, bytes_sent in sent.items():
        assert recording.on_disk().bytes(port) == bytes_sent
    assert verified(scan, members, GOOD)["redundancy"]["may_lose"] == 2

    for lost in (members[1], members[3]):
        shutil.rmtree(lost)
        lost.mkdir()
    left = [members[0], members[2], members[4]]
    for port, bytes_sent in sent.items():
        assert cat(scan, port, left) == bytes_sent
    told = verified(scan, left, FOUND)
    assert told["redundancy"]["may_lose"] == 0 and told["redundancy"]["beyond"] == 0
    assert all(stream["lost"] == 0 for stream in told["streams"])
    advice = run("verify", scan, "--store", named(left), code=FOUND).stdout
    assert b"no member may be lost" in advice and b"fullbore rebuild" in advice

    # Lost data is played, too.
    port = next(iter(sent))
    there = free_port()
    with Recording(f"udp://127.0.0.1:{there}?format=vdif", store=tmp_path, scan="again") as again:
        play(f"{scan}/{port}", "--store", named(left), "--to", f"udp://127.0.0.1:{there}")
    assert again.on_disk().bytes() == sent[port]

    onto = [members[1], members[3]]
    rebuilt = ask("rebuild", scan, "--store", named(left), "--onto", named(onto))
    assert rebuilt["restored"] > 0 and rebuilt["parity"] > 0 and not rebuilt["left"]
    assert len(rebuilt["gone"]) == len(rebuilt["joined"]) == 2
    after = verified(scan, members, GOOD)
    assert after["redundancy"]["may_lose"] == 2
    for port, bytes_sent in sent.items():
        assert cat(scan, port, members) == recording.on_disk().bytes(port) == bytes_sent
    told = ask("info", scan, "--store", named(members))["manifest"]
    schema("manifest").validate(told)
    assert told["redundancy"]["rebuilt"] == 1
    again = ask("rebuild", scan, "--store", named(members))
    assert again["restored"] == again["mended"] == again["parity"] == 0


def test_what_a_lost_disk_brings_back_is_read_though_a_rebuild_was_tried_without_it(members):
    stores = members[:4]
    recording, sent, _ = record(stores, "parity:2+1", streams=2)
    scan = recording.scan
    for away in (stores[1], stores[2]):
        away.rename(f"{away}.away")
    left = [stores[0], stores[3]]
    told = ask("rebuild", scan, "--store", named(left), code=FOUND)
    assert told["stripes"] == 0 and any("give those members too" in text for text in told["left"]), told
    for back in (stores[1], stores[2]):
        os.rename(f"{back}.away", back)
        for port, bytes_sent in sent.items():
            assert cat(scan, port, [*left, back]) == bytes_sent
        os.rename(back, f"{back}.away")


def test_one_disk_too_many_is_told_with_what_is_lost(stores):
    recording, sent, _ = record(stores, "parity:2+1", streams=2)
    left = stores[2:]
    told = verified(recording.scan, left, FOUND)
    assert told["redundancy"]["beyond"] > 0
    shown = run("verify", recording.scan, "--store", named(left), code=FOUND).stdout
    assert b"cannot be read any more" in shown
    port = next(iter(sent))
    done = run("cat", f"{recording.scan}/{port}", "--store", named(left), code=FOUND)
    # The result depends on whether the remaining disk contains the stripe.
    told = text(done.stderr)
    assert "chunk file is missing" in told or "none of the given members holds" in told
    assert len(done.stdout) < len(sent[port])
    rebuilt = ask("rebuild", recording.scan, "--store", named(left), code=FOUND)
    assert any("parity makes up for 1" in why for why in rebuilt["left"])
    # The remaining data was not touched: the disks that return complete it.
    for port, bytes_sent in sent.items():
        assert cat(recording.scan, port, stores) == bytes_sent


def test_silent_damage_is_read_through_and_mended_in_place(stores):
    recording, sent, _ = record(stores, "mirror", streams=2)
    port = next(iter(sent))
    path = recording.on_disk().chunks(port)[1]
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    assert cat(recording.scan, port, stores) == sent[port]
    told = verified(recording.scan, stores, FOUND)
    assert [finding["what"] for finding in told["findings"]] == ["blocks-damaged"]
    assert told["redundancy"]["may_lose"] == 0 and told["redundancy"]["lost"] == 1
    # A mirror's copy is the plain chunk.
    copies = [copy for store in stores for copy in store.glob("*/.fullbore/*.parity0")]
    assert whole in [copy.read_bytes() for copy in copies]
    rebuilt = ask("rebuild", recording.scan, "--store", named(stores))
    assert rebuilt["mended"] == 1 and path.read_bytes() == whole
    assert verified(recording.scan, stores, GOOD)["redundancy"]["may_lose"] == 1
    run("rm", recording.scan, "--yes", "--store", named(stores))
    assert not [left for store in stores for left in store.glob(f"{recording.scan}*")]


def test_more_chunks_than_members_are_refused_and_both_numbers_named(stores):
    source = f"udp://127.0.0.1:{free_port()}?format=vdif"
    words = ["--store", named(stores), "--session", "s", "--scan", "a", "--redundancy"]
    told = text(run("record", source, *words, "parity:3+1", code=REFUSED).stderr)
    assert "parity:3+1 puts 4 chunks" in told and "has only 3" in told and "parity:2+1" in told
    assert "mirror" in text(run("record", source, *words, "raid5", code=REFUSED).stderr)
    assert not list(stores[0].glob("s_a*"))


def test_what_a_killed_recorder_left_without_parity_gets_it(stores):
    port = free_port()
    frames = wire.run_of_frames(3000, payload_bytes=2000)
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB"
    options = ["--chunk", "128KiB", "--redundancy", "parity:2+1"]
    with Recording(source, store=stores, options=options) as recording:
        sent = b"".join(wire.send(frames, port, pause=1e-4))
        recording.wait("progress", lambda told: told["durable_bytes"] > 0.8 * len(sent))
        recording.kill()
    run("recover", recording.scan, "--store", named(stores), code=None)
    # The chunk that was being filled has no parity, which is reported.
    told = verified(recording.scan, stores, FOUND)
    assert told["redundancy"]["unprotected"] > 0 == told["redundancy"]["may_lose"]
    rebuilt = ask("rebuild", recording.scan, "--store", named(stores))
    assert rebuilt["stripes"] > 0 and not rebuilt["left"]
    assert verified(recording.scan, stores, GOOD)["redundancy"]["may_lose"] == 1
    kept = recording.on_disk().bytes()
    assert sent.startswith(kept) and len(kept) > 0.75 * len(sent)
    shutil.rmtree(stores[0])
    os.makedirs(stores[0])
    done = run("cat", recording.scan, "--store", named(stores[1:]))
    assert done.stdout == kept


def test_a_disk_that_comes_back_after_a_rebuild_is_left_over_until_somebody_removes_it(members):
    stores, new = members[:4], members[4]
    recording, sent, _ = record(stores, "parity:2+1", streams=2)
    scan, back = recording.scan, stores[1]
    back.rename(f"{back}.away")
    left = [store for store in stores if store != back]
    ask("rebuild", scan, "--store", named(left), "--onto", new)
    os.rename(f"{back}.away", back)

    told = verified(scan, members, FOUND)
    assert [(finding["what"], finding["member"]) for finding in told["findings"]] == [("left-over", str(back))]
    assert all(stream["good"] for stream in told["streams"]) and told["redundancy"]["may_lose"] == 1
    for verb in (["ls"], ["info", scan]):
        shown = text(run(*verb, "--store", named(members)).stdout)
        assert any(str(back) in line and re.search("left ?over", line) for line in shown.splitlines()), shown
    (entry,) = ask("ls", "--store", named(members))
    assert entry["leftover"] == [str(back)] and str(back) not in entry["members"]
    again = ask("rebuild", scan, "--store", named(members))
    assert again["leftover"] == [str(back)] and not again["joined"] and not again["stripes"]
    assert b"rm --leftovers" in run("rebuild", scan, "--store", named(members)).stdout
    refused = run("rebuild", scan, "--store", named(left), "--onto", back, code=REFUSED)
    assert b"left over" in refused.stderr and b"rm --leftovers" in refused.stderr
    for port, bytes_sent in sent.items():
        assert cat(scan, port, members) == bytes_sent

    # It is removed only on request, and not while a member is away whose last copy it may be.
    rm = ["rm", "--leftovers", scan, "--store"]
    assert b"--yes" in run(*rm, named(members), code=REFUSED).stderr
    refused = run(*rm, named([*left, back]), "--yes", code=REFUSED)
    assert b"not whole without" in refused.stderr, refused.stderr
    assert list(back.glob(f"{scan}*"))
    assert b"leftover data of" in run(*rm, named(members), "--yes").stdout
    assert not list(back.glob(f"{scan}*"))
    assert b"nothing is left over" in run(*rm, named(members), "--yes").stdout
    assert verified(scan, members, GOOD)["redundancy"]["may_lose"] == 1
    for port, bytes_sent in sent.items():
        assert cat(scan, port, members) == bytes_sent


def test_a_recorder_that_died_together_with_a_disk_is_rebuilt_before_it_is_recovered(members):
    stores, port = members[:4], free_port()
    frames = wire.run_of_frames(12_000, payload_bytes=2000)
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB"
    options = ["--chunk", "128KiB", "--redundancy", "parity:2+1"]
    with Recording(source, store=stores, options=options) as recording:
        sent = wire.send(frames, port, pause=1e-4)
        total = sum(map(len, sent))
        recording.wait("progress", lambda told: told["durable_bytes"] > 0.8 * total)
        scan, left = recording.scan, stores[1:]
        # Parity follows when members have time for it; unfinished stripes cannot be restored.
        finished = lambda: {path.name for store in left for path in store.rglob("*.stripe?")}
        until(lambda: len(finished()) >= 8)
        recording.kill()
    shutil.rmtree(stores[0])
    refused = text(run("recover", scan, "--store", named(left), code=REFUSED).stderr)
    assert "fullbore rebuild" in refused and "--without-absent-members" in refused
    first = ask("rebuild", scan, "--store", named(left), code=FOUND)
    assert first["restored"] > 0 and any("recover" in why for why in first["left"]), first
    assert not first["gone"]
    run("recover", scan, "--without-absent-members", "--store", named(left), code=None)
    second = ask("rebuild", scan, "--store", named(left), "--onto", members[4])
    assert second["gone"] == [str(stores[0])] and second["stripes"] > 0, second
    # Data lost with the disk and the recorder stays lost; the stored data is intact.
    after = verified(scan, [*left, members[4]], INTACT)
    assert after["redundancy"]["may_lose"] == 1 and after["redundancy"]["unprotected"] == 0
    kept = wire.cut(run("cat", scan, "--store", named([*left, members[4]])).stdout, len(frames[0]))
    true = set(sent) & set(kept)
    assert len(true) > len(sent) / 2
    # All other frames are fill in place of frames that were lost with the disk.
    assert all(frame in true or wire.is_invalid(frame) for frame in kept)


def test_streams_in_step_get_full_stripes_and_a_rebuild_counts_what_there_is(members):
    """As documented: 1.33 for parity:3+1. The last stripe of each stream may be narrow."""
    stores, ports = members[:4], free_ports(8)
    source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif&fps=1000&frame=8032&block=64KiB"
    options = ["--chunk", "256KiB", "--redundancy", "parity:3+1", "--buffer", "256MiB"]
    with Recording(source, store=stores, options=options) as recording:
        generate(f"udp://127.0.0.1:{ports[0]}-{ports[-1]}", frame=8032, fps=1000, frames=2400)
    manifest = recording.stop(code=GOOD)["manifest"]
    scan, followed = recording.scan, manifest["redundancy"]["followed"]
    chunks = {port: len(recording.on_disk().chunks(port)) for port in ports}
    assert followed["chunks"] == sum(chunks.values()) > 150
    full = sum(-(-count // 3) for count in chunks.values())
    assert followed["stripes"] <= full * 1.05, (followed, full)
    data = sum(len(recording.on_disk().bytes(port)) for port in ports)
    factor = 1 + followed["bytes"] / data
    assert 1.333 <= factor < 1.38, factor
    told = run("info", scan, "--store", named(stores)).stdout.decode()
    assert f"({factor:.2f}×), {followed['chunks']} chunks in {followed['stripes']} stripes" in told, told

    shutil.rmtree(stores[2])
    run("rebuild", scan, "--store", named([stores[0], stores[1], stores[3]]), "--onto", members[4])
    now = [stores[0], stores[1], stores[3], members[4]]
    rebuilt = ask("info", scan, "--store", named(now))["manifest"]["redundancy"]["followed"]
    left = verified(scan, now, GOOD)["redundancy"]
    assert (rebuilt["chunks"], rebuilt["stripes"]) == (left["chunks"], left["stripes"])
    assert rebuilt["chunks"] == followed["chunks"] and "narrow" not in rebuilt
