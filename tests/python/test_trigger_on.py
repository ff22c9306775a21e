"""Samples trigger: a burst is kept with what is before and after it, and noise alone keeps nothing."""

import json

import numpy as np
import pytest
import wire
from fullbore import AS_SEALED, FOUND, GOOD, REFUSED, Recording, Scan, ask, free_port, run
from test_circular import kept_frames, listed

FPS = 1000


def vdif_with_bursts(seconds, bursts):
    """Frames of 1024 samples of 8 bits in a millisecond: weak noise, and loud noise in these milliseconds."""
    generator = np.random.default_rng(1)
    quiet = generator.integers(126, 131, 4 << 20, dtype="u1").tobytes()
    loud = generator.integers(0, 256, 1 << 20, dtype="u1").tobytes()
    frames = []
    for number in range(seconds * FPS):
        samples = loud if any(number in burst for burst in bursts) else quiet
        at = number * 1024 % (len(samples) - 1024)
        header = wire.Vdif(second=1000 + number // FPS, number=number % FPS, bits=8).header()
        frames.append(header + samples[at : at + 1024])
    return frames


def kept(store):
    return sorted(name for name in listed([store]) if "-kept-" in name)


@pytest.mark.alone  # Frames are sent at their rate.
def test_bursts_are_kept_with_their_surroundings_and_noise_triggers_nothing(store):
    bursts = [range(2000, 2040), range(2100, 2120), range(4000, 4050)]
    sent = vdif_with_bursts(5, bursts)
    port = free_port()
    options = ["--circular", "4s", "--before", "300ms", "--after", "200ms", "--hold-off", "500ms"]
    options += ["--trigger-on", "power(ch0) > -20 dB for 10 ms", "--trigger-on", "level(any) > 200"]
    options += ["--trigger-on", "power(ch0, 100kHz..110kHz) > -3 dB"]
    source = f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}&block=256KiB"
    with Recording(source, store=store, scan="sky", options=options) as recording:
        wire.send(sent, port, pause=1 / FPS)
        recording.stop(AS_SEALED)
    scans = kept(store)
    assert len(scans) == 2, "the first two bursts are within one hold-off"
    for scan, burst in zip(scans, [range(2000, 2120), range(4000, 4050)]):
        frames = kept_frames([store], scan, sent)
        wanted = range(burst.start - 290, burst.stop + 190)
        assert frames.start <= wanted.start and frames.stop >= wanted.stop, (frames, wanted)
        (marker,) = Scan(scan, [store]).document("manifest.json")["markers"]
        assert marker["text"].startswith("power(ch0) > -20 dB for 10 ms: -") and "dB in ch0:0" in marker["text"]
        (position,) = marker["positions"]
        assert burst.start <= frames.start + position["byte"] // len(sent[0]) <= burst.start + 500
    notes = [told.get("text", "") for told in recording.events if told["event"] == "note"]
    (looked,) = [note for note in notes if "has looked at" in note]
    assert "100.0 %" in looked and "0 B were not" in looked


@pytest.mark.alone
def test_a_tone_in_vita49_packets_triggers_in_its_band(store):
    port = free_port()
    description = "samples=ci16_be&sample_rate=1MHz"
    options = ["--circular", "3s", "--before", "200ms", "--after", "100ms"]
    options += ["--trigger-on", "power(ch0, 120kHz..130kHz) > -30 dB"]
    options += ["--trigger-on", "power(ch0, 300kHz..310kHz) > -50 dB"]
    source = f"udp://127.0.0.1:{port}?format=vita49&name=rx&{description}&block=512KiB"
    with Recording(source, store=store, scan="sky", options=options) as recording:
        words = ["generate", "--to", f"udp://127.0.0.1:{port}", "--format", "vita49", "--start", "now", "--gentle"]
        # 2000 complex samples in a packet: 1 MHz.
        run(*words, "--frame", 8028, "--fps", 500, "--burst", "3s+200ms", "--duration", "4500ms", "--json", code=(0, 1))
        recording.stop(AS_SEALED)
    (scan,) = kept(store)
    manifest = ask("info", scan, "--store", store, code=(GOOD, FOUND))["manifest"]
    assert any("120kHz..130kHz" in marker["text"] for marker in manifest["markers"])


def test_conditions_and_options_that_make_no_sense_are_refused(store):
    base = ["record", f"udp://127.0.0.1:{free_port()}?format=vdif", "--store", store, "--session", "s", "--scan", "a"]
    for words, told in [
        (["--circular", "5s", "--trigger-on", "power(ch0) > "], b"a number is expected"),
        (["--circular", "5s", "--trigger-on", "burst(ch0) > 1"], b"`level("),
        (["--trigger-on", "level(ch0) > 1"], b"--circular"),
        (["--circular", "5s", "--before", "1s"], b"--trigger-on"),
        (["--circular", "5s", "--before", "1min", "--trigger-on", "level(ch0) > 1"], b"keeps more before"),
        (["--circular", "5s", "--trigger", "marker:", "--hold-off", "1s"], b"--trigger-on"),
    ]:
        refused = run(*base, *words, code=REFUSED)
        assert told in refused.stderr, refused.stderr
    assert not json.loads(run("ls", "--store", store, "--json", code=(0, 2)).stdout or b"[]")
