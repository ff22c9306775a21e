"""A slow stream is durable long before its block is full: its frames are in the partial block journal, and `recover`
restores them."""

import struct
import subprocess
import threading

import numpy as np
import pytest
from fullbore import GOOD, INTACT, PATIENCE, Recording, ask, balanced, free_ports, generate_command, run
from panda import Panda

HEAD, PIECE = 12, 48


def tails(stores):
    return [path for store in stores for path in store.glob("*/.fullbore/tail.*")]


def frames_in(path):
    """Frames in the blocks of a journal's last snapshot, as documented on the page about the store's files."""
    try:
        file = path.read_bytes()
    except FileNotFoundError:
        return 0
    at = frames = 0
    while at + HEAD <= len(file):
        kind, _, _, body = struct.unpack_from("<4xBBHI", file, at)
        if at + HEAD + body > len(file):
            break
        if kind == 2:
            (pieces,) = struct.unpack_from("<I", file, at + HEAD + 28)
            frames, piece = 0, at + HEAD + 32
            for _ in range(pieces):
                count, gaps, lengths = struct.unpack_from("<12xI24xII", file, piece)
                frames += count
                piece += PIECE + 17 * gaps + 2 * lengths
        at += HEAD + body
    return frames


def kept(stores, least, first_block=0):
    """Waits until this number of frames is in the newest journal, which begins with this block or a later one."""
    for _ in range(PATIENCE * 20):
        begins = lambda path: int(path.name.split(".")[1])
        named = sorted((path for path in tails(stores) if path.suffix != ".new"), key=begins)
        newest = named[-1] if named and begins(named[-1]) >= first_block else None
        if newest and (frames := frames_in(newest)) >= least:
            return frames
        threading.Event().wait(0.05)
    raise AssertionError(f"{[(path, frames_in(path)) for path in tails(stores)]}, not {least} frames")


def recovered(recording, stores):
    members = ",".join(map(str, stores))
    told = ask("recover", recording.scan, "--store", members)
    run("verify", recording.scan, "--store", members, code=INTACT)
    (account,) = ask("info", recording.scan, "--store", members)["accounts"]
    assert tails(stores) == [], "a scan that is recovered has no tail"
    return told, balanced(account)


def test_of_a_slow_stream_all_that_was_kept_outlives_a_kill(stores):
    """12 frames of 8032 bytes a second, some of them lost: a block takes eleven seconds."""
    (port,) = free_ports(1)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=12", store=stores) as recording:
        sender = generate_command(port, frame=8032, fps=12, duration="60s", drop=0.2, seed=4)
        sending = subprocess.Popen(sender, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            least = kept(stores, 60)
            last = recording.kill()
        finally:
            sending.kill()
            sending.wait(PATIENCE)
    assert last["durable_bytes"] == 0, "no block was full"
    told, account = recovered(recording, stores)
    (stream,) = told["streams"]
    assert stream["tail"] >= 1 and stream["tails_ignored"] == 0
    terms = account["terms"]
    assert terms["expected"] >= least > terms["missing"] > 0, (told, account)
    assert (terms["overrun"], account["unverified"]) == (0, 0)
    assert account["filled"] == terms["missing"], "what never came is filled, as in any block"


@pytest.mark.parametrize("frames, still_open", [(60, 60), (300, 172)])
def test_all_that_was_sent_is_there_though_no_block_after_it_was_full(frames, still_open, stores):
    """The sender has ended, the recorder waits, and is killed. Blocks hold 128 frames; a full one stays open until the
    next is full too, for overtaken frames."""
    (port,) = free_ports(1)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=60", store=stores) as recording:
        sender = generate_command(port, frame=8032, fps=60, duration=f"{frames // 60}s")
        subprocess.run(sender, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        kept(stores, still_open, (frames - still_open) // 128)
        recording.wait("progress", lambda told: told["durable_bytes"] >= (frames - still_open) * 8032)
        recording.kill()
    told, account = recovered(recording, stores)
    assert account["terms"]["written"] == account["terms"]["expected"] == frames
    assert account["unverified"] == 0
    assert told["streams"][0]["bytes"] == frames * 8032


def test_datagrams_that_tell_no_number_are_kept_as_they_came(stores):
    (port,) = free_ports(1)
    source = f"udp://127.0.0.1:{port}?format=raw&frame=varying&block=1MiB"
    with Recording(source, store=stores) as recording:
        sender = generate_command(port, frame=1032, fps=100, duration="2s")
        subprocess.run(sender, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        kept(stores, 200)
        recording.kill()
    _, account = recovered(recording, stores)
    assert account["terms"]["written"] == 200
    assert len(recording.on_disk().bytes()) == 200 * 1032


def test_samples_of_a_slow_panda_outlive_a_kill(stores):
    """60 kB/s: a block takes 70 seconds."""
    with Panda("--rate", 1000) as panda:
        with Recording(panda.endpoint, store=stores, options=["--arm"]) as recording:
            least = kept(stores, 3000)
            recording.kill()
    told, account = recovered(recording, stores)
    assert told["streams"][0]["tail"] == 1
    assert account["terms"]["written"] >= least
    samples = np.frombuffer(recording.on_disk().bytes(), "<u4").reshape(-1, 15)
    assert (samples == np.arange(len(samples), dtype="u4")[:, None]).all()


def test_a_slow_stream_that_is_sealed_leaves_no_tail(stores):
    (port,) = free_ports(1)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif", store=stores) as recording:
        sender = generate_command(port, frame=8032, fps=12, duration="3s")
        subprocess.run(sender, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        kept(stores, 36)
        recording.stop()
    assert tails(stores) == []
    run("verify", recording.scan, "--store", ",".join(map(str, stores)), code=INTACT)


def test_a_fast_recording_never_has_a_tail(stores):
    (port,) = free_ports(1)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=4000", store=stores) as recording:
        sender = generate_command(port, frame=8032, fps=4000, duration="2s")
        subprocess.run(sender, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        recording.stop()
    assert tails(stores) == []
    files = [path.name for store in stores for path in store.rglob("*") if path.is_file()]
    assert files and not any(name.startswith("tail") for name in files)
