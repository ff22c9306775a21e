"""The number of frames per second, when it is not given: frames that the sender marks invalid or omits are exactly
those in the account, and no frame is invented. Headers of every extended data version pass unchanged."""

import struct

import pytest
import wire
from baseband.vdif.header import VDIFHeader
from conftest import chance, seeds
from fullbore import FOUND, GOOD, INTACT, Recording, balanced, free_port, run

SECONDS = 4
PAYLOAD = 1000  # bytes; rates in whole Mbit/s are multiples of 125
HEADER = 32


def marked_invalid(frame: bytes) -> bytes:
    return frame[:3] + bytes([frame[3] | 0x80]) + frame[4:]


def each_second(*numbers):
    """Frames with these numbers, in every second."""
    return lambda fps, _: {second * fps + number for second in range(SECONDS) for number in numbers}


def scattered(part):
    """A random share of all frames; never the first or the last of all."""
    return lambda fps, seed: set(chance(seed).sample(range(1, SECONDS * fps - 1), int(part * SECONDS * fps)))


# name, frames per second, the affected frames
HIT = {
    "two of each second": (100, each_second(3, 53)),
    "the last but one of the first second": (100, lambda *_: {98}),
    "the last but one of every second": (100, each_second(98)),
    "a run in every second": (1600, each_second(*range(1580, 1590))),
    "every twentieth": (1600, scattered(0.05)),
    "every twentieth of few": (250, scattered(0.05)),
}
QUERIES = {"filled": "", "split": "&threads=split", "as they come": "&fill=omit"}


def record(datagrams, store, query=""):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&name=sample{query}", store=store) as recording:
        wire.send(datagrams, port, pause=1e-4)
    return recording


def stored(recording, query=""):
    """The content of the chunk files of the single thread."""
    return recording.on_disk().bytes("samplet0" if "split" in query else None)


def told_of(recording, code, fps):
    """The account, after checking that the rate is the true one and that `verify` agrees."""
    sealed = recording.stop(code)
    [account], [stream] = sealed["accounts"], sealed["manifest"]["streams"]
    rate = stream["format"]
    assert (rate["frames_per_second"], rate["derived"]) == (fps, True), rate
    run("verify", recording.scan, "--store", recording.stores[0], code=INTACT)
    return balanced(account)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
@pytest.mark.parametrize("fps, hit", HIT.values(), ids=HIT.keys())
@pytest.mark.parametrize("seed", seeds(quick=1))
def test_frames_marked_invalid_are_kept_and_no_other_is_missed(fps, hit, query, seed, store):
    invalid = hit(fps, seed)
    frames = wire.run_of_frames(SECONDS * fps, fps=fps, payload_bytes=PAYLOAD)
    sent = [marked_invalid(frame) if n in invalid else frame for n, frame in enumerate(frames)]
    recording = record(sent, store, query)
    account = told_of(recording, GOOD, fps)
    assert account["terms"]["expected"] == account["terms"]["written"] == len(sent)
    assert (account["invalid"], account["filled"]) == (len(invalid), 0)
    assert account["verdict"] == "proven"
    assert stored(recording, query) == b"".join(sent)


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
@pytest.mark.parametrize("fps, hit", HIT.values(), ids=HIT.keys())
@pytest.mark.parametrize("seed", seeds(quick=1))
def test_frames_not_sent_are_all_that_is_missing(fps, hit, query, seed, store):
    lost = hit(fps, seed)
    frames = wire.run_of_frames(SECONDS * fps, fps=fps, payload_bytes=PAYLOAD)
    recording = record([frame for n, frame in enumerate(frames) if n not in lost], store, query)
    account = told_of(recording, FOUND, fps)
    terms = account["terms"]
    # A run lost at the same place near every end hides the end for some seconds; fill written by then stays.
    invented = range(3 * 25 + 1) if hit is HIT["a run in every second"][1] else range(1)
    assert terms["missing"] - len(lost) in invented, terms
    assert terms["expected"] - len(frames) in invented, terms
    assert terms["written"] == len(frames) - len(lost)


def test_frames_that_are_invalid_for_seconds_on_end_have_their_places(store):
    # A backend marks its frames until it is locked; its numbers are true.
    frames = wire.run_of_frames(600, fps=100, payload_bytes=PAYLOAD)
    sent = [marked_invalid(frame) for frame in frames[:250]] + frames[250:]
    recording = record(sent, store)
    account = told_of(recording, GOOD, 100)
    assert account["terms"]["written"] == account["terms"]["expected"] == 600
    assert (account["invalid"], account["duplicates"], account["verdict"]) == (250, 0, "proven")
    assert stored(recording) == b"".join(sent)


def test_a_rate_taken_too_high_at_first_is_lowered_and_the_account_says_no_more_than_was_filled(store):
    # Every third frame of the first second is lost: its end cannot be detected.
    frames = wire.run_of_frames(800, fps=100, payload_bytes=PAYLOAD)
    lost = {n for n in range(1, 99) if n % 3 == 0}
    recording = record([frame for n, frame in enumerate(frames) if n not in lost], store)
    account = told_of(recording, FOUND, 100)
    invented = account["terms"]["missing"] - len(lost)
    assert 0 <= invented <= 2 * 25, account["terms"]
    assert account["terms"]["written"] == len(frames) - len(lost)


EXTENDED = {
    "2, of ALMA": lambda n: (2 << 24 | 0xA5EA5 << 4 | 0xB, 0xDEAD_0001, n, 7),
    "2, of an R2DBE": lambda n: (2 << 24 | 0x5, 0xFFFF_FF9C, 10_000 + n, 0),
    "4": lambda n: (4 << 24 | 16 << 16 | 0x1234, 0xACAB_FEED, 0xFFFF ^ (1 << n % 16), 0x8000_0001),
    "4, without its sync word": lambda n: (4 << 24 | 16 << 16, 0x1234_5678, n, n),
    "0xAB": lambda n: (0xABAD_DEED, 0xBEEF << 16 | n % 100, 0x821_01000, 0x1234_5678),
    "unknown": lambda n: (0x7E << 24 | n, 0xFFFF_FFFF, 0x0123_4567, n ^ 0x89AB_CDEF),
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
@pytest.mark.parametrize("words", EXTENDED.values(), ids=EXTENDED.keys())
def test_every_extended_data_version_comes_back_byte_for_byte(words, query, store):
    plain = wire.run_of_frames(300, fps=100, payload_bytes=PAYLOAD)
    sent = [
        frame[:16] + struct.pack("<4I", *words(n)) + frame[HEADER:] for n, frame in enumerate(plain)
    ]
    lost = {40, 41, 199}
    recording = record([frame for n, frame in enumerate(sent) if n not in lost], store, query)
    account = told_of(recording, FOUND, 100)
    assert account["terms"]["missing"] == len(lost) and account["foreign"] == 0
    kept = wire.cut(stored(recording, query), HEADER + PAYLOAD)
    came = [frame for frame in kept if not wire.is_invalid(frame)]
    assert came == [frame for n, frame in enumerate(sent) if n not in lost]
    for frame, n in zip(came, (n for n in range(300) if n not in lost), strict=True):
        header = VDIFHeader(struct.unpack("<8I", frame[:HEADER]), verify=False)
        assert header["edv"] == words(n)[0] >> 24 and header["frame_nr"] == n % 100
    # Fill frames have the same version.
    assert {frame[19] for frame in kept} == {words(0)[0] >> 24}


def test_one_datagram_is_told_as_one():
    words = ["generate", "--to", f"udp://127.0.0.1:{free_port()}", "--frame", 1032, "--fps", 100, "--frames", 1]
    told = run(*words, code=None)
    assert b" 1 datagram, " in told.stdout + told.stderr
