"""WAV and RF64 files: what is written is read by Python's `wave` and by libsndfile, and what they write is recorded."""

import json
import struct
import time
import wave

import numpy as np
import pytest
import soundfile
import wire
from fullbore import FOUND, REFUSED, Recording, free_port, run, text
from test_npy import record_bytes


def convert(store, scan, path, *options, **kept):
    return run("convert", f"store:{scan}", path, "--store", store, "--quiet", *options, **kept)


@pytest.mark.parametrize(
    "samples, channels, dtype, subtype",
    [
        ("ri16_le", 2, "<i2", "PCM_16"),
        ("ri16_be", 3, ">i2", "PCM_16"),
        ("ri32_le", 1, "<i4", "PCM_32"),
        ("ru8", 1, "u1", "PCM_U8"),
        ("rf32_le", 4, "<f4", "FLOAT"),
        ("rf64_le", 1, "<f8", "DOUBLE"),
    ],
)
def test_bytes_become_the_samples_that_libsndfile_reads(store, tmp_path, samples, channels, dtype, subtype):
    rows = np.random.default_rng(1).integers(0, 200, (9_999, channels)).astype(dtype)
    record_bytes(store, tmp_path, rows.tobytes(), f"samples={samples}&channels={channels}&sample_rate=48kHz")
    convert(store, "s_a", tmp_path / "out.wav")
    about = soundfile.info(tmp_path / "out.wav")
    assert (about.format, about.subtype, about.samplerate, about.channels) == ("WAV", subtype, 48_000, channels)
    # libsndfile scales integers, also those of 8 bits, to the type that is asked for.
    kind = {"PCM_16": "int16", "PCM_32": "int32", "PCM_U8": "int16", "FLOAT": "float32", "DOUBLE": "float64"}[subtype]
    read, _ = soundfile.read(tmp_path / "out.wav", dtype=kind, always_2d=True)
    expected = (rows.astype("i4") - 128) * 256 if subtype == "PCM_U8" else rows
    assert np.array_equal(read, expected)
    if subtype.startswith("PCM"):
        with wave.open(str(tmp_path / "out.wav")) as theirs:
            assert (theirs.getnchannels(), theirs.getnframes(), theirs.getframerate()) == (channels, 9_999, 48_000)
            assert theirs.readframes(9_999) == rows.astype(rows.dtype.newbyteorder("<")).tobytes()


def test_complex_samples_are_pairs_of_channels_and_packed_ones_become_integers(store, tmp_path):
    rows = np.arange(4000, dtype="<i2").reshape(1000, 4)
    record_bytes(store, tmp_path, rows.tobytes(), "samples=ci16_le&channels=2&sample_rate=1MHz")
    convert(store, "s_a", tmp_path / "out.wav")
    read, rate = soundfile.read(tmp_path / "out.wav", dtype="int16")
    assert rate == 1_000_000 and np.array_equal(read, rows)
    beside = json.loads((tmp_path / "out.wav.json").read_text())
    assert (beside["layout"]["encoding"], beside["layout"]["channels"], beside["samples"]) == ("ci16_le", 2, 1000)
    refused = convert(store, "s_a", tmp_path / "no.wav", "--as", "i8", code=(FOUND, REFUSED))
    assert "it has no such values" in text(refused.stderr)


def frames(path):
    """The samples that a file states; 0 if it is not there yet."""
    return soundfile.info(path).frames if path.exists() and path.stat().st_size > 92 else 0


def test_a_killed_recording_is_a_valid_file_up_to_its_last_flush(store, tmp_path):
    port, live = free_port(), tmp_path / "live.wav"
    query = "format=raw&seq=0:8:le&strip=8&frame=1000&block=64KiB&samples=ri16_le&channels=2&sample_rate=1MHz&name=x"
    rows = np.arange(1, 2_000_001, dtype="<u4").astype("<i2").reshape(4000, 250, 2)
    sent = [struct.pack("<Q", number) + rows[number].tobytes() for number in range(4000) if number != 7]
    options = ("--to", f"wav:{live}?flush=50ms")
    with Recording(f"udp://127.0.0.1:{port}?{query}", store=store, options=options) as recording:
        wire.send(sent, port)
        end = time.monotonic() + 10
        while frames(live) < 100_000 and time.monotonic() < end:
            time.sleep(0.05)
        recording.kill()
    read, _ = soundfile.read(live, dtype="int16")
    expected = rows.copy()
    expected[7] = 0
    assert len(read) >= 100_000
    assert np.array_equal(read, expected.reshape(-1, 2)[: len(read)])
    with wave.open(str(live)) as theirs:
        assert theirs.getnframes() == len(read)


@pytest.mark.parametrize("kind, ending", [("WAV", "wav"), ("RF64", "rf64"), ("WAVEX", "wav")])
def test_files_of_libsndfile_are_recorded_with_their_layout(store, tmp_path, kind, ending):
    rows = np.random.default_rng(2).integers(-30_000, 30_000, (50_001, 2)).astype("<i2")
    path = tmp_path / f"theirs.{ending}"
    soundfile.write(path, rows, 44_100, subtype="PCM_16", format=kind)
    run("record", f"file:{path}", "--store", store, "--session", "s", "--scan", "a")
    convert(store, "s_a", tmp_path / "out.npy", "--as", "i16")
    assert np.array_equal(np.load(tmp_path / "out.npy"), rows)
    layout = json.loads((tmp_path / "out.npy.json").read_text())["layout"]
    assert (layout["encoding"], layout["channels"], layout["sample_rate"]) == ("ri16_le", 2, "44100")


def test_files_that_cannot_be_recorded_are_refused_with_the_reason(store, tmp_path):
    rows = np.zeros((100, 1), "<i4")
    for subtype, why in [("PCM_24", "values of 24 bits"), ("ULAW", "compressed"), ("IMA_ADPCM", "compressed")]:
        path = tmp_path / f"{subtype}.wav"
        soundfile.write(path, rows, 8000, subtype=subtype)
        done = run("record", f"file:{path}", "--store", store, "--session", "s", "--scan", "a", code=(FOUND, REFUSED))
        assert why in text(done.stderr)
    cut = tmp_path / "cut.wav"
    soundfile.write(cut, rows, 8000, subtype="PCM_32")
    cut.write_bytes(cut.read_bytes()[:-100])
    done = run("record", f"file:{cut}", "--store", store, "--session", "s", "--scan", "b")
    assert "it is cut" in text(done.stderr)
