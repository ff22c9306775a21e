"""Samples of VITA-49 recordings: numpy, sigmf-python, npTDMS and digital_rf read those that the packets had."""

import json
import struct

import digital_rf
import numpy as np
import pytest
import sigmf
import wire
from fullbore import AS_SEALED, FOUND, GOOD, REFUSED, Recording, ask, free_port, generate, run, text
from nptdms import TdmsFile
from test_vita49 import DATA, RATE, SAMPLES, START, context, data, hertz, packets_of, prologue, record

STEP = 0.125  # of the tone, in cycles per sample


def tone(first, count):
    """Complex samples of 16 bits, big-endian: a tone, and the sample's number in the lowest bits."""
    numbers = np.arange(first, first + count)
    values = 8000 * np.exp(2j * np.pi * STEP * numbers)
    parts = np.stack([values.real, values.imag], axis=1).round().astype(">i2")
    parts[:, 1] += (numbers % 97).astype(">i2")
    return parts


def packet(index, ident=1, first=None, count=SAMPLES, trailer=None):
    """A packet of `count` samples; its time is that of packet `index` of 360 samples."""
    parts = tone(index * SAMPLES if first is None else first, count)
    made = prologue(DATA, ident, index, index, count, trailer is not None)
    return made + parts.tobytes() + (b"" if trailer is None else struct.pack(">I", trailer))


def payload_of(raw):
    """The samples of packets, by the flags in their headers."""
    parts = []
    for whole in packets_of(raw):
        first = struct.unpack(">I", whole[:4])[0]
        words = 1 + (first >> 28 & 1) + 2 * (first >> 27 & 1) + (first >> 22 & 3 > 0) + 2 * (first >> 20 & 3 > 0)
        parts.append(whole[4 * words : len(whole) - 4 * (first >> 26 & 1)])
    return np.frombuffer(b"".join(parts), ">i2").reshape(-1, 2)


def convert(recording, target, store, *options, **kept):
    return run("convert", f"store:{recording.scan}", target, "--store", store, "--quiet", *options, **kept)


def test_each_format_has_the_samples_of_the_packets_with_its_gaps(store, tmp_path):
    lost = {30, *range(100, 133)}
    order = [n for n in range(400) if n not in lost]
    at = order.index(200)
    order[at], order[at + 2] = order[at + 2], order[at]
    sent = [context(0, 0), *(packet(n, trailer=0x40040000) for n in order)]
    _, recording = record(sent, store)
    rows = tone(0, 400 * SAMPLES).reshape(400, SAMPLES, 2)
    there = np.array([n not in lost for n in range(400)])

    convert(recording, f"npy:{tmp_path / 'out.npy'}", store, "--as", "i16", code=FOUND)
    read = np.load(tmp_path / "out.npy").reshape(400, SAMPLES, 2)
    assert np.array_equal(read[there], rows[there]) and not read[~there].any()
    beside = json.loads((tmp_path / "out.npy.json").read_text())
    assert [(gap["first"], gap["count"]) for gap in beside["gaps"]] == [
        (30 * SAMPLES, SAMPLES), (100 * SAMPLES, 33 * SAMPLES)
    ]  # fmt: skip
    assert beside["account"]["terms"]["missing"] == len(lost)

    convert(recording, f"sigmf:{tmp_path / 'out'}", store, code=FOUND)
    read = sigmf.fromfile(tmp_path / "out.sigmf-meta", autoscale=False)
    read.validate()
    assert (read.datatype, read.sample_rate) == ("ci16_be", RATE)
    captures = [(it["core:sample_start"], it["core:global_index"]) for it in read.get_captures()]
    assert captures == [(0, 0), (30 * SAMPLES, 31 * SAMPLES), (99 * SAMPLES, 133 * SAMPLES)]
    first = read.get_captures()[0]
    assert first["core:frequency"] == 1_575_420_000 and first["core:datetime"].startswith("2026-09-21T14:13:20.000")
    assert (tmp_path / "out.sigmf-data").read_bytes() == rows[there].tobytes()

    convert(recording, f"tdms:{tmp_path / 'out.tdms'}", store, "--as", "i16", code=FOUND)
    (group,) = TdmsFile.read(tmp_path / "out.tdms").groups()
    parts = [channel.read_data(scaled=False) for channel in group.channels()]
    found = np.stack(parts, axis=1).reshape(400, SAMPLES, 2)
    assert np.array_equal(found[there], rows[there])
    assert group.properties["frequency_hz"] == 1_575_420_000

    convert(recording, f"drf:{tmp_path / 'ch'}", store, code=FOUND)
    reader = digital_rf.DigitalRFReader(str(tmp_path))
    begin, end = reader.get_bounds("ch")
    assert (begin, end - begin + 1) == (START * RATE, 400 * SAMPLES)
    blocks = reader.get_continuous_blocks(begin, end, "ch")
    assert {at - begin: count for at, count in blocks.items()} == {
        0: 30 * SAMPLES, 31 * SAMPLES: 69 * SAMPLES, 133 * SAMPLES: 267 * SAMPLES
    }  # fmt: skip
    found = reader.read_vector_raw(begin + 133 * SAMPLES, 267 * SAMPLES, "ch").ravel()
    assert np.array_equal(found["r"], rows[133:, :, 0].ravel()) and np.array_equal(found["i"], rows[133:, :, 1].ravel())


@pytest.mark.parametrize("form", ["vita49", "difi"])
def test_generated_packets_become_the_payloads_that_they_had_live_and_later(form, store, tmp_path):
    port, live = free_port(), tmp_path / "live"
    source = f"udp://127.0.0.1:{port}?format={form}&name=rx&block=64KiB"
    with Recording(source, store=store, options=("--to", f"sigmf:{live}?flush=50ms")) as recording:
        (truth,) = generate(
            port, format=form, frame=1028, fps=4000, frames=4000, seed=7, drop=0.02, drop_run=3,
            stream_id="cafe0002", gentle=True, truth=tmp_path / "truth.json",
        )  # fmt: skip
    recording.stop(code=AS_SEALED)
    convert(recording, f"sigmf:{tmp_path / 'out'}", store, code=FOUND)
    payloads = payload_of(recording.on_disk().bytes("rx-cafe0002"))
    assert (tmp_path / "out.sigmf-data").read_bytes() == payloads.tobytes()
    stored = tmp_path / "live_rx-cafe0002.sigmf-data"
    assert stored.read_bytes() == payloads.tobytes()
    assert not list(tmp_path.glob("live_rx-context*")), "context has no samples"
    metas = [json.loads((tmp_path / f"{name}.sigmf-meta").read_text()) for name in ("out", "live_rx-cafe0002")]
    assert metas[0]["captures"] == metas[1]["captures"]
    samples = 250 if form == "difi" else 252
    assert metas[0]["global"]["core:sample_rate"] == 4000 * samples
    tally = truth["port"]
    dropped = {first + n for first, count in tally["dropped"]["runs"] for n in range(count)}
    first, last = tally["first_sent"], tally["last_sent"]
    behind = [n for n in range(first, last) if n in dropped and n + 1 not in dropped]
    jumps = [(it["core:global_index"]) for it in metas[0]["captures"][1:]]
    assert jumps == [(n + 1 - first) * samples for n in behind]


def test_packets_of_any_length_keep_their_place_by_time(store, tmp_path):
    lengths = [SAMPLES] * 20 + [100, 200, 60] * 20
    starts = np.concatenate([[0], np.cumsum(lengths)])
    lost = {40, 41}
    sent = [context(0, 0)]
    for n, (start, length) in enumerate(zip(starts, lengths)):
        made = bytearray(prologue(DATA, 1, 0, n, length))
        second, part = divmod(int(start), RATE)
        made[-12:] = struct.pack(">IQ", START + second, part * 10**12 // RATE)
        if n not in lost:
            sent.append(bytes(made) + tone(int(start), length).tobytes())
    _, recording = record(sent, store)
    convert(recording, f"npy:{tmp_path / 'out.npy'}", store, "--as", "i16", code=None)
    read = np.load(tmp_path / "out.npy")
    wanted = tone(0, int(starts[-1])).astype("i2")
    wanted[starts[40] : starts[42]] = 0
    assert np.array_equal(read.reshape(-1, 2), wanted)


def test_a_retune_begins_a_capture(store, tmp_path):
    tuned = context(100, 1).replace(hertz(1_575_420_000), hertz(1_176_450_000))
    sent = [context(0, 0), *(packet(n) for n in range(100)), tuned, *(packet(n) for n in range(100, 200))]
    _, recording = record(sent, store)
    convert(recording, f"sigmf:{tmp_path / 'out'}", store)
    captures = sigmf.fromfile(tmp_path / "out.sigmf-meta", autoscale=False).get_captures()
    assert [(it["core:sample_start"], it["core:frequency"]) for it in captures] == [
        (0, 1_575_420_000), (100 * SAMPLES, 1_176_450_000)
    ]  # fmt: skip


def test_an_endpoint_describes_samples_that_no_context_does(store, tmp_path):
    sent = [packet(n) for n in range(60)]
    _, plain = record(sent, store)
    refused = convert(plain, f"npy:{tmp_path / 'a.npy'}", store, code=REFUSED)
    assert "no context packet" in text(refused.stderr) and "samples=" in text(refused.stderr)
    query = "format=vita49&samples=ri16_be&channels=2&sample_rate=1MHz"
    _, described = record(sent, store, scan="two", query=query)
    convert(described, f"npy:{tmp_path / 'b.npy'}", store, "--as", "i16")
    assert np.array_equal(np.load(tmp_path / "b.npy"), tone(0, 60 * SAMPLES))


@pytest.mark.parametrize(
    "format, word",
    [
        (0xA00002CB, "12 bits"),
        (0xA01003CF, "event tags"),
        (0xC00003CF, "amplitude and phase"),
        (0xA00003CB, "12 bits in fields of 16 bits"),
    ],
)
def test_a_payload_format_that_is_not_decoded_is_refused_with_the_reason(format, word, store, tmp_path):
    told = context(0, 0).replace(struct.pack(">I", 0xA00003CF), struct.pack(">I", format))
    _, recording = record([told, *(packet(n) for n in range(20))], store)
    refused = convert(recording, f"npy:{tmp_path / 'a.npy'}", store, code=REFUSED)
    assert word in text(refused.stderr)


def test_the_spectrum_and_the_index_show_a_tone_where_it_is(store, tmp_path):
    lost = {30, *range(100, 133)}
    sent = [context(0, 0), *(packet(n) for n in range(600) if n not in lost)]
    _, recording = record(sent, store)
    told = ask("spectrum", recording.scan, "--store", store, "--channels", 64, code=GOOD)
    (line,) = told["lines"]
    rows = tone(0, 600 * SAMPLES).reshape(600, SAMPLES, 2)
    there = np.ones(600 * SAMPLES, bool)
    for n in lost:
        there[n * SAMPLES : (n + 1) * SAMPLES] = False
    whole = there.reshape(-1, 64).all(axis=1)
    assert (told["segments"], told["segments_left_out"]) == (whole.sum(), (~whole).sum())
    strongest = told["frequency"][int(np.argmax(line["power"]))]
    assert strongest in (STEP * RATE, 1_575_420_000 + STEP * RATE)
    (made,) = ask("index", recording.scan, "--store", store)
    (power,) = made["lines"][0]["power"]
    values = rows[[n not in lost for n in range(600)]].astype(float)
    assert power == pytest.approx((values**2).sum(axis=2).mean(), rel=1e-3)
    found = ask("find", recording.scan, "power(any) > -20 dB", "--store", store, code=GOOD)
    assert found[0]["time"].startswith("2026-09-21T14:13:20")
