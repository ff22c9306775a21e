"""`fullbore watch`: the newest data of sources and scans, held against baseband and the truth."""

import io
import json
import signal
import struct
import subprocess

import numpy as np
import pytest
import wire
from baseband import vdif
from fullbore import BINARY, FOUND, GOOD, PATIENCE, REFUSED, Recording, ask, free_port, run
from panda import Panda, Told


def watching(*words):
    """A running `watch`, with its lines of JSON as events."""
    return Told("watch", *words, "--every", "200ms")


def of_sample(frames, second=0):
    """Frames of the sample of baseband, one thread of it, with numbers that go on in this second after its own."""
    raw = wire.cut(wire.sample("SAMPLE_VDIF"), 5032)
    raw = [bytearray(frame) for frame in raw if wire.thread_of(frame) == 1]
    run_of_them = []
    for number in range(frames):
        frame = bytearray(raw[number % len(raw)])
        frame[0:4] = struct.pack("<I", struct.unpack_from("<I", frame)[0] + second)
        frame[4:8] = struct.pack("<I", number | frame[7] << 24)
        run_of_them.append(bytes(frame))
    return run_of_them


def test_the_samples_of_a_source_have_the_statistics_that_baseband_finds():
    port, frames = free_port(), of_sample(16)
    with watching(f"udp://127.0.0.1:{port}?format=vdif&block=64KiB&fps=4000") as watch:
        whole = lambda: [told for told in watch.all("watch") if told["threads"][0]["invalid"] == 0]
        second = 0
        while not whole():
            # The first second may begin before the port listens; it is not sent again.
            wire.send(of_sample(4000, second), port, pause=1e-4)
            second += 1
        told = whole()[0]
        watch.interrupt()
        watch.ends(GOOD)
    assert (told["event"], told["format"], told["frame_bytes"]) == ("watch", "vdif", 5032)
    (thread,) = told["threads"]
    header = vdif.VDIFHeader.fromfile(io.BytesIO(frames[0]))
    assert (thread["thread"], thread["bits_per_sample"], thread["channels"], thread["edv"]) == (
        1, header.bps, header.nchan, header.edv,
    )  # fmt: skip
    assert thread["frames_per_second"] == 4000 and thread["invalid"] == 0
    # The statistics are those of 16 frames of a block, and the two frames of the sample alternate.
    payloads = [vdif.VDIFFrame.fromfile(io.BytesIO(frame)).data for frame in frames[:16]]
    found = np.concatenate(payloads).ravel()
    levels = [np.count_nonzero(found == level) for level in np.unique(found)]
    assert sum(thread["levels"]) == thread["samples"]["count"] == found.size
    assert thread["levels"] == levels
    linear = np.searchsorted(np.unique(found), found) - 1.5
    assert thread["samples"]["mean"] == pytest.approx(linear.mean())
    assert thread["samples"]["deviation"] == pytest.approx(linear.std())


def test_a_scan_is_watched_while_it_is_recorded_and_afterwards(store):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB"
    frames = wire.run_of_frames(6000, payload_bytes=2016)
    with Recording(source, store=store) as recording:
        wire.send(frames[:500], port)
        with watching(recording.scan, "--store", store) as watch:
            watch.wait("watch")
            wire.send(frames[500:3000], port, pause=3e-4)
            newer = watch.wait("watch", lambda told: told["block"] > 20)
            assert newer["skipped"] > 0 and newer["bytes_per_second"] > 0
            wire.send(frames[3000:], port)
            recording.stop()
            watch.ends(None)
        assert watch.process.returncode == GOOD
    last = ask("watch", recording.scan, "--store", store)
    (thread,) = last["threads"]
    assert thread["frame_number"] == 5999 % 1000
    text = run("watch", f"{recording.scan}/{port}", "--store", store).stdout.decode()
    assert text.startswith(f"{port}  block ") and "frame 999 at 2026-07-01T00:16:45.999" in text
    assert all(len(line) <= 80 for line in text.splitlines()), text


def test_the_newest_sample_of_a_panda_has_the_columns_of_its_header():
    options = ["--rate", "100000", "--samples", "1000000"]
    with Panda(*options) as panda, watching(f"{panda.endpoint}&arm=true") as watch:
        told = watch.wait("watch")
        watch.interrupt()
    assert told["format"] == "panda" and told["samples"] > 0
    assert all(isinstance(value, float) for _, value in told["columns"])
    assert len({name for name, _ in told["columns"]}) == len(told["columns"]) > 0


def test_the_bytes_of_a_pattern_have_the_statistics_of_random_ones():
    told = run("watch", "pattern:prbs31?rate=50MB/s", "--looks", "1", "--every", "500ms", "--json").stdout
    (data,) = [json.loads(line)["data"] for line in told.splitlines()]
    # Bytes from 0 to 255, all equally frequent, in levels around the middle.
    assert data["mean"] == pytest.approx(0, abs=1) and data["deviation"] == pytest.approx(73.9, abs=0.5)


def test_where_nothing_arrives_that_is_said():
    port = free_port()
    done = run("watch", f"udp://127.0.0.1:{port}", "--looks", "2", "--every", "100ms", code=FOUND)
    assert done.stdout.decode().splitlines() == ["nothing has arrived"] * 2


@pytest.mark.parametrize(
    "words, why",
    [
        (["s_a", "udp://127.0.0.1:5"], "one scan, or any number of sources"),
        (["nosuch"], "there is no scan"),
        (["udp://127.0.0.1:99999"], "99999"),
        (["s_a", "--every", "0s"], "--every is zero"),
        (["s_a", "--buffer", "1GB"], "it is for sources"),
    ],
)
def test_what_cannot_be_watched_is_refused(words, why, store):
    told = run("watch", *words, *(["--store", store] if "udp" not in words[-1] else []), code=REFUSED)
    assert why in told.stderr.decode()


def test_a_terminal_that_is_closed_ends_it(store):
    port = free_port()
    words = [BINARY, "watch", f"udp://127.0.0.1:{port}", "--every", "50ms"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as watch:
        watch.stdout.readline()
        watch.send_signal(signal.SIGTERM)
        assert watch.wait(PATIENCE) == FOUND
