"""Real recordings, sent by a sender that is not ours, come back from the chunk files as they went out.

The samples are those that baseband ships; baseband also reads the chunk files, in place.
"""

import astropy.units as u
import numpy as np
import pytest
import wire
from baseband import dada, mark4, mark5b, vdif
from fullbore import GOOD, Recording, accounts, balanced, free_port, play, run

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
    run("verify", recording.scan, "--store", store)


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
    account = balanced(accounts(recording.stop(code=None))["sample"])
    assert account["verdict"] != "proven"
    for frame in wire.cut(recording.on_disk().bytes(), 5032):
        assert frame in sent


# sample, its reader, what the reader must be told, how the datagrams are cut, what it is counted by
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
    run("verify", recording.scan, "--store", store, code=GOOD)


def test_a_sample_replayed_and_recorded_again_is_the_same(store, tmp_path):
    sent = wire.sample("SAMPLE_VDIF")
    first = record(wire.cut(sent, 5032), store, "format=vdif")
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif"
    with Recording(source, store=store, scan="again") as second:
        play(first.scan, "--store", store, "--to", f"udp://127.0.0.1:{port}")
    assert sorted(wire.cut(second.on_disk().bytes(), 5032)) == sorted(wire.cut(sent, 5032))
