"""TCP servers as sources: frames of one length or behind their length, counted, until the server ends the connection."""

import random
import socket
import struct
import threading
import time
from contextlib import contextmanager

import pytest
from fullbore import AS_SEALED, FOUND, INTACT, REFUSED, Recording, accounts, balanced, run, text

LENGTH = 1000


def frame(number, length=LENGTH):
    return struct.pack("<Q", number) + random.Random(number).randbytes(length - 8)


@contextmanager
def server(pieces, stay=None):
    """A digitiser: sends these pieces to its first client, then ends the connection, or stays until `stay` is set."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for piece in pieces:
                    connection.sendall(piece)
                if stay:
                    stay.wait(30)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def record(pieces, store, query, code=AS_SEALED, **options):
    """Records until the server ends the connection. Returns the account and the recording."""
    with (
        server(pieces) as port,
        Recording(f"tcp://127.0.0.1:{port}?{query}&name=rp", store=store, **options) as recording,
    ):
        sealed = recording.sealed(code)
    return balanced(accounts(sealed)["rp"]), recording


def in_pieces(raw, seed):
    """Bytes in pieces of any length, as a network delivers them."""
    chance, at = random.Random(seed), 0
    while at < len(raw):
        length = chance.choice([1, 7, 999, 1001, 30_000])
        yield raw[at : at + length]
        at += length


def test_frames_that_the_digitiser_drops_are_missing(store):
    sent = [n for n in range(3000) if not (100 <= n < 110 or n in (1000, 2998))]
    raw = b"".join(frame(n) for n in sent)
    account, recording = record(in_pieces(raw, 1), store, f"frame={LENGTH}&seq=0:8:le&fill=omit")
    assert account["counted_by"] == "sequence-field"
    gaps = [(gap["first"], gap["count"], gap["cause"]) for gap in account["gaps"]]
    assert gaps == [(100, 10, "missing"), (1000, 1, "missing"), (2998, 1, "missing")]
    assert account["terms"]["written"] == len(sent)
    assert recording.on_disk().bytes() == raw
    assert f"ended the connection after {len(sent)} frames" in recording.last("warning")["text"]
    run("verify", recording.scan, "--store", store, code=INTACT)


def test_a_connection_without_losses_is_proven(store):
    account, _ = record([frame(n) for n in range(2000)], store, f"frame={LENGTH}&seq=0:8:le")
    assert (account["verdict"], account["terms"]["written"]) == ("proven", 2000)
    assert account["drop_counters"] == [] and "unavailable_counters" not in account


def test_frames_behind_their_length_keep_their_lengths(store):
    lengths = random.Random(2).choices(range(8, 3000), k=1000)
    frames = [frame(n, length) for n, length in enumerate(lengths) if n not in (50, 51, 700)]
    raw = b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)
    account, recording = record(in_pieces(raw, 3), store, "prefix=4:be&seq=0:8:le")
    assert (account["terms"]["written"], account["terms"]["missing"]) == (997, 3)
    assert recording.on_disk().bytes() == b"".join(frames)


def test_a_counter_in_stripped_bytes_counts(store):
    frames = [struct.pack(">II", 7, n) + bytes([n % 256]) * 500 for n in range(1000) if n != 500]
    account, recording = record(frames, store, "frame=500&strip=8&seq=4:4:be&fill=omit")
    assert (account["terms"]["written"], account["terms"]["missing"]) == (999, 1)
    assert recording.on_disk().bytes() == b"".join(frame[8:] for frame in frames)


def test_a_connection_that_ends_within_a_frame_keeps_the_frames_before(store):
    raw = b"".join(frame(n) for n in range(200))[:-1]
    account, recording = record([raw], store, f"frame={LENGTH}&seq=0:8:le")
    assert account["terms"]["written"] == 199
    assert f"within a frame of which {LENGTH - 1} bytes had come" in recording.last("warning")["text"]


def test_a_length_that_no_frame_has_ends_the_recording_with_the_reason(store):
    frames = [struct.pack("<I", LENGTH) + frame(n) for n in range(100)]
    account, recording = record([*frames, b"\xff\xff\xff\xff"], store, "prefix=4:le&seq=0:8:le", code=REFUSED)
    assert account["terms"]["written"] == 100
    assert "a frame of 4294967295 bytes" in recording.last("warning")["text"]


def test_a_digitiser_that_is_faster_than_the_store_waits(store):
    # More bytes than block memory.
    chunk = b"".join(frame(n % 1000) for n in range(1000))
    numbered = lambda n: b"".join(struct.pack("<Q", n * 1000 + m) + chunk[m * 1000 + 8 : m * 1000 + 1000] for m in range(1000))
    pieces = (numbered(n) for n in range(40))
    account, _ = record(pieces, store, f"frame={LENGTH}&seq=0:8:le", options=["--buffer", "16MiB"])
    assert account["terms"] == {**account["terms"], "written": 40_000, "missing": 0, "overrun": 0}


def test_a_stop_ends_a_connection_that_stays_open(store):
    stay = threading.Event()
    with (
        server([frame(n) for n in range(500)], stay) as port,
        Recording(f"tcp://127.0.0.1:{port}?frame={LENGTH}&seq=0:8:le&name=rp", store=store) as recording,
    ):
        time.sleep(0.5)
        account = accounts(recording.stop(AS_SEALED))["rp"]
        stay.set()
    assert account["terms"]["written"] == 500


@pytest.mark.parametrize(
    "query, why", [("seq=0:8:le", "prefix=4:le"), ("frame=8&interface=lo", "interface"), ("prefix=4:le&format=rtp", "one stream")]
)
def test_an_endpoint_without_a_frame_length_or_with_parameters_of_datagrams_is_refused(query, why, store):
    done = run("record", f"tcp://127.0.0.1:1?{query}", "--store", store, "--session", "a", "--scan", "b", code=REFUSED)
    assert why in text(done.stderr)


def test_a_server_that_is_not_there_is_named(store):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    done = run("record", f"tcp://127.0.0.1:{port}?frame=8", "--store", store, "--session", "a", "--scan", "b", code=(FOUND, REFUSED))
    assert f"connecting to 127.0.0.1:{port}: " in text(done.stderr)
