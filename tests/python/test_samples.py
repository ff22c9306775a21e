"""Real recordings, sent by an independent sender, are recovered unchanged from the chunk files.

The samples are those that baseband ships; baseband also reads the chunk files, in place.
"""

import struct

import astropy.units as u
import numpy as np
import pytest
import wire
from baseband import dada, mark4, mark5b, vdif
from fullbore import AS_SEALED, FOUND, GOOD, INTACT, Recording, accounts, balanced, free_port, play, run

# sample, bytes of a frame, its threads
VDIF = [
    ("SAMPLE_VDIF", 5032, [0, 1, 2, 3, 4, 5, 6, 7]),
    ("SAMPLE_VLBI_VDIF", 5032, [0, 1, 2, 3, 4, 5, 6, 7]),
    ("SAMPLE_AROCHIME_VDIF", 1056, [0, 1]),
    ("SAMPLE_BPS1_VDIF", 8032, [0]),
    ("SAMPLE_MWA_VDIF", 544, [0]),
]


def record(datagrams, store, query, **options):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?{query}&name=sample", store=store) as recording:
        wire.send(datagrams, port, **options)
    return recording


@pytest.mark.parametrize("name, length, threads", VDIF)
def test_a_vdif_sample_is_stored_byte_for_byte(name, length, threads, store):
    sent = wire.sample(name)
    recording = record(wire.cut(sent, length), store, "format=vdif")
    scan = recording.on_disk()
    assert scan.bytes() == sent
    assert wire.read_by_baseband(scan.chunks()[0]) == wire.read_by_baseband(
        getattr(wire.data, name)
    )
    account = balanced(accounts(recording.stop())["sample"])
    assert account["terms"]["written"] == len(sent) // length
    assert account["duplicates"] == account["foreign"] == 0
    run("verify", recording.scan, "--store", store, code=INTACT)


def test_baseband_streams_the_same_samples_from_the_chunk_file_in_place(store):
    recording = record(wire.cut(wire.sample("SAMPLE_VDIF"), 5032), store, "format=vdif")
    chunk = recording.on_disk().chunks()[0]
    with vdif.open(chunk, "rs") as ours, vdif.open(wire.data.SAMPLE_VDIF, "rs") as theirs:
        assert ours.header0 == theirs.header0
        assert ours.start_time == theirs.start_time
        assert ours.sample_rate == theirs.sample_rate
        assert np.array_equal(ours.read(), theirs.read())


@pytest.mark.parametrize("name, length, threads", VDIF)
def test_threads_split_into_streams_hold_their_own_frames_in_order(name, length, threads, store):
    sent = wire.cut(wire.sample(name), length)
    recording = record(sent, store, "format=vdif&threads=split")
    scan = recording.on_disk()
    for thread in threads:
        own = [frame for frame in sent if wire.thread_of(frame) == thread]
        only = len(threads) == 1 and not scan.streams.get(f"{scan.name}_dssamplet{thread}")
        assert scan.bytes(None if only else f"samplet{thread}") == b"".join(own)


def test_a_corrupt_recording_neither_stops_us_nor_is_called_proven(store):
    sent = wire.cut(wire.sample("SAMPLE_DRAO_CORRUPT"), 5032)
    recording = record(sent, store, "format=vdif&fill=omit")
    account = balanced(accounts(recording.stop(AS_SEALED))["sample"])
    assert account["verdict"] != "proven"
    for frame in wire.cut(recording.on_disk().bytes(), 5032):
        assert frame in sent


# sample, its reader, arguments of the reader, how the datagrams are cut, the counting method
RAW = [
    ("SAMPLE_MARK5B", mark5b, {"nchan": 8, "bps": 2, "kday": 56000, "sample_rate": 32 * u.MHz},
     10016, "frame=10016&seq=4:2:le", "sequence-field"),
    ("SAMPLE_MARK5B", mark5b, {"nchan": 8, "bps": 2, "kday": 56000, "sample_rate": 32 * u.MHz},
     10016, "frame=10016", "nothing"),
    ("SAMPLE_MARK4", mark4, {"ntrack": 64, "decade": 2010, "sample_rate": 32 * u.MHz},
     8000, "frame=8000", "nothing"),
    ("SAMPLE_DADA", dada, {}, 4256, "frame=4256", "nothing"),
    ("SAMPLE_DADA", dada, {}, 7777, "frame=varying", "nothing"),
]  # fmt: skip


@pytest.mark.parametrize("name, reader, told, length, query, counted_by", RAW)
def test_other_formats_pass_as_raw_streams(name, reader, told, length, query, counted_by, store):
    sent = wire.sample(name)
    recording = record(wire.cut(sent, length), store, f"format=raw&{query}")
    scan = recording.on_disk()
    assert scan.bytes() == sent
    account = balanced(accounts(recording.stop())["sample"])
    assert account["counted_by"] == counted_by
    assert account["verdict"] == ("unproven" if counted_by == "nothing" else "proven")
    with reader.open(scan.chunks()[0], "rs", **told) as ours:
        with reader.open(getattr(wire.data, name), "rs", **told) as theirs:
            assert np.array_equal(ours.read(), theirs.read())
    run("verify", recording.scan, "--store", store, code=INTACT)


def test_a_sample_replayed_and_recorded_again_is_the_same(store, tmp_path):
    sent = wire.sample("SAMPLE_VDIF")
    first = record(wire.cut(sent, 5032), store, "format=vdif")
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif"
    with Recording(source, store=store, scan="again") as second:
        play(first.scan, "--store", store, "--to", f"udp://127.0.0.1:{port}")
    assert sorted(wire.cut(second.on_disk().bytes(), 5032)) == sorted(wire.cut(sent, 5032))


def at_5000_a_second(count):
    """Frames of a sample whose headers give 1600 a second, numbered as if there were 5000."""
    frame = wire.cut(wire.sample("SAMPLE_VDIF"), 5032)[0]
    start, epoch, *_ = struct.unpack_from("<2I", frame)
    return [
        struct.pack("<2I", start + k // 5000, (epoch & 0xFF000000) | k % 5000) + frame[8:]
        for k in range(count)
    ]


def told(recording, event):
    return [told for told in recording.events if told["event"] == event]


@pytest.mark.parametrize("query", ["", "&threads=split", "&fill=omit"])
def test_headers_that_tell_too_low_a_rate_are_refuted_and_cost_no_frame(query, store):
    sent = at_5000_a_second(7500)
    recording = record(sent, store, f"format=vdif{query}", pause=1e-4)
    sealed = recording.stop(code=GOOD)
    [account], [stream] = sealed["accounts"], sealed["manifest"]["streams"]
    assert balanced(account)["terms"]["written"] == account["terms"]["expected"] == 7500
    assert account["foreign"] == 0 and account["verdict"] == "proven"
    rate = stream["format"]
    assert (rate["frames_per_second"], rate["derived"]) == (5000, True), rate
    warnings = [warning["text"] for warning in told(recording, "warning")]
    assert any("1600" in text and "learnt" in text for text in warnings), warnings
    run("verify", recording.scan, "--store", store, code=INTACT)


def test_a_rate_that_is_given_and_refuted_is_warned_of_and_the_frames_are_counted_damaged(store):
    recording = record(at_5000_a_second(7500), store, "format=vdif&fps=1600", pause=1e-4)
    account = balanced(accounts(recording.stop(code=FOUND))["sample"])
    beyond = (5000 - 1600) + (2500 - 1600)
    assert (account["terms"]["damaged"], account["terms"]["written"]) == (beyond, 3200)
    assert account["foreign"] == 0 and account["verdict"] != "proven"
    warnings = [warning["text"] for warning in told(recording, "warning")]
    assert any("1600" in text and "fps=" in text for text in warnings), warnings


@pytest.mark.parametrize("words, rate", [(["--rate", "25000000B/s"], 5000), ([], 1600)])
def test_a_sample_is_sent_with_headers_that_tell_the_rate_it_is_sent_at(words, rate, store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif", store=store) as recording:
        source = ["--sample", wire.data.SAMPLE_VDIF, "--to", f"udp://127.0.0.1:{port}"]
        run("generate", *source, *words, "--gentle", "--frames", rate * 3 // 2)
    sealed = recording.stop()
    [account], [stream] = sealed["accounts"], sealed["manifest"]["streams"]
    assert (account["terms"]["written"], account["verdict"]) == (rate * 3 // 2, "proven")
    assert stream["format"]["frames_per_second"] == rate and not stream["format"]["derived"]
    assert not told(recording, "warning")
