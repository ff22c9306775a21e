"""Mark 5B: frames of 10 016 bytes that carry their own time, alone in a datagram, behind a packet number, or split over
two. baseband reads what was recorded."""

import json
import random
import struct
import time

import astropy.units as u
import h5py
import pytest
import wire
from astropy.time import Time
from baseband import mark5b
from fullbore import (
    AS_SEALED,
    INTACT,
    Recording,
    accounts,
    ask,
    balanced,
    free_port,
    generate,
    play,
    run,
    text,
)

FPS, FRAME, PAYLOAD = 400, 10_016, 10_000
SYNC, FILL = 0xABADDEED, struct.pack("<I", 0x11223344)


def bcd(number):
    return int(str(number), 16)


def frames(count, first=0, second=None):
    """`count` consecutive frames from frame `first` of a second on, by default of the present."""
    start = int(time.time()) if second is None else second
    made = []
    for number in range(first, first + count):
        days, of_day = divmod(start + number // FPS, 86_400)
        code = bcd((days + 40_587) % 1000) << 20 | bcd(of_day)
        fraction = bcd(number % FPS * 10_000 // FPS) << 16
        head = struct.pack("<4I", SYNC, 0xBEAD << 16 | number % FPS, code, fraction)
        made.append(head + struct.pack("<I", number) * (PAYLOAD // 4))
    return made


def numbered(made, first=7):
    return [struct.pack("<Q", first + n) + frame for n, frame in enumerate(made)]


def halves(made, first=0):
    half = FRAME // 2
    parts = [part for frame in made for part in (frame[:half], frame[half:])]
    return numbered(parts, first)


def read_by_baseband(path):
    """The headers of all frames of the present, as baseband reads them."""
    kday = int(Time.now().mjd) // 1000 * 1000
    with mark5b.open(str(path), "rb", kday=kday, nchan=8, bps=2) as file:
        while True:
            try:
                yield file.read_frame().header
            except EOFError:
                return


def times_of(data, tmp_path):
    """The time of each frame, as baseband reads it."""
    path = tmp_path / "all.m5b"
    path.write_bytes(data)
    return [header.get_time(frame_rate=FPS * u.Hz) for header in read_by_baseband(path)]


def one(recording, code=AS_SEALED):
    (account,) = accounts(recording.stop(code)).values()
    return balanced(account)


@pytest.mark.parametrize("psn", [False, True], ids=["alone", "behind a number"])
def test_generated_frames_are_recorded_as_baseband_reads_them(psn, store, tmp_path):
    port = free_port()
    query = "format=mark5b" + ("&psn=true" if psn else "")
    with Recording(f"udp://127.0.0.1:{port}?{query}", store=store) as recording:
        options = {"psn": True} if psn else {}
        truth = generate(
            port, format="mark5b", fps=FPS, duration="2s", gentle=True, truth=tmp_path / "t.json", **options
        )
    account = one(recording)
    assert (account["verdict"], account["terms"]["written"]) == ("proven", 2 * FPS)
    assert account["counted_by"] == "frame-time"
    told = times_of(recording.on_disk().bytes(), tmp_path)
    start = Time(truth[0]["first_second"].replace("Z", ""), scale="utc")
    off = [abs((at - start).to_value("s") - n / FPS) for n, at in enumerate(told)]
    assert len(told) == 2 * FPS and max(off) < 1e-6
    # The account has the same times.
    first, last = (Time(account[end]["time"].rstrip("Z"), scale="utc") for end in ("first", "last"))
    assert abs((first - told[0]).to_value("s")) < 1e-6
    assert abs((last - told[-1]).to_value("s")) < 1e-6
    run("verify", recording.scan, "--store", store, code=INTACT)
    said = text(run("info", recording.scan, "--full", "--store", store).stdout)
    assert "Mark 5B, frames of 10016 bytes, 400 a second" in said
    run("convert", f"store:{recording.scan}", f"hdf5:{tmp_path}/all.h5", "--store", store)
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["frames"].shape == (2 * FPS, FRAME)
        assert file["frames"][5].tobytes() == recording.on_disk().bytes()[5 * FRAME : 6 * FRAME]


def test_the_sample_of_baseband_is_played_and_recorded_again(store, tmp_path):
    """Its day is known from an option; it is sent under its own times, and lies on disk as it was."""
    raw = wire.sample("SAMPLE_MARK5B")
    path = tmp_path / "sample.m5b"
    path.write_bytes(raw)
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=mark5b&fps=6400", store=store) as recording:
        done = play(f"file:{path}", "--fps", 6400, "--near", "2014-06-01T00:00:00Z", "--to", f"udp://127.0.0.1:{port}", "--json")
    assert json.loads(done.stdout.splitlines()[-1])["frames"] == 4
    assert recording.on_disk().bytes() == raw
    account = one(recording)
    assert account["terms"]["written"] == 4 and account["terms"]["missing"] == 0
    kept = ask("info", recording.scan, "--store", store)["manifest"]["streams"][0]
    assert kept["format"] == {"name": "mark5b", "frames_per_second": 6400, "derived": False, "threads": [0]}


def test_missing_frames_are_filled_with_headers_of_their_own_time(store, tmp_path):
    port, chance = free_port(), random.Random(3)
    sent = frames(3 * FPS)
    lost = {n for n in range(3 * FPS) if 0 < n < 3 * FPS - 1 and chance.random() < 0.03} | {FPS}
    kept = [frame for n, frame in enumerate(sent) if n not in lost]
    for at in range(0, len(kept) - 8, 8):
        kept[at : at + 8] = chance.sample(kept[at : at + 8], 8)
    with Recording(f"udp://127.0.0.1:{port}?format=mark5b&fps={FPS}", store=store) as recording:
        wire.send(kept, port, pause=2e-4)
    account = one(recording)
    assert account["terms"]["missing"] == len(lost) and account["filled"] == len(lost)
    assert account["reordered"] > 0
    data = recording.on_disk().bytes()
    assert len(data) == len(sent) * FRAME
    for n, frame in enumerate(wire.cut(data, FRAME)):
        if n in lost:
            # Sync, user bits, number, day, second and fraction are those of the lost frame.
            assert frame[:12] == sent[n][:12] and frame[14:16] == sent[n][14:16]
            assert frame[16:] == FILL * (PAYLOAD // 4)
        else:
            assert frame == sent[n]
    told = times_of(data, tmp_path)
    assert max(abs((at - told[0]).to_value("s") - n / FPS) for n, at in enumerate(told)) < 1e-6
    run("verify", recording.scan, "--store", store, code=INTACT)
    # Fill is not sent by a replay, so the same frames are missing again.
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=mark5b&fps={FPS}", store=store, scan="again") as again:
        play(recording.scan, "--store", store, "--to", f"udp://127.0.0.1:{port}", "--gentle")
    second = one(again)
    assert second["terms"] == account["terms"] and again.on_disk().bytes() == data


@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "shuffled"])
def test_frames_split_over_two_datagrams_are_joined_by_their_packet_numbers(shuffled, store):
    port, chance = free_port(), random.Random(5)
    sent = frames(2 * FPS)
    parts = halves(sent, first=2**33)
    if shuffled:
        for at in range(0, len(parts) - 6, 6):
            parts[at : at + 6] = chance.sample(parts[at : at + 6], 6)
    with Recording(f"udp://127.0.0.1:{port}?format=mark5b&psn=true&fps={FPS}", store=store) as recording:
        wire.send(parts, port, pause=2e-4)
    assert recording.on_disk().bytes() == b"".join(sent)
    account = one(recording)
    assert (account["terms"]["written"], account["terms"]["missing"]) == (2 * FPS, 0)
    assert account["disagreements"] == 0
    run("verify", recording.scan, "--store", store, code=INTACT)


def test_a_frame_of_which_one_half_was_lost_is_damaged_or_missing(store):
    port = free_port()
    sent = frames(2 * FPS)
    parts = halves(sent)
    # Of frame 100 the second half, of frame 200 the first one, of frame 300 both.
    kept = [part for n, part in enumerate(parts) if n not in (201, 400, 600, 601)]
    with Recording(f"udp://127.0.0.1:{port}?format=mark5b&psn=true&fps={FPS}", store=store) as recording:
        wire.send(kept, port, pause=2e-4)
    account = one(recording)
    terms = account["terms"]
    assert (terms["expected"], terms["written"], terms["damaged"], terms["missing"]) == (2 * FPS, 2 * FPS - 3, 1, 2)
    data = wire.cut(recording.on_disk().bytes(), FRAME)
    assert [n for n, frame in enumerate(data) if frame != sent[n]] == [100, 200, 300]
    assert all(data[n][16:] == FILL * (PAYLOAD // 4) for n in (100, 200, 300))


@pytest.mark.parametrize("fill", ["omit", "0xAABBCCDD"])
def test_gaps_may_be_left_out_or_have_any_pattern(fill, store):
    port = free_port()
    sent = frames(FPS)
    kept = sent[:100] + sent[110:]
    with Recording(f"udp://127.0.0.1:{port}?format=mark5b&fps={FPS}&fill={fill}", store=store) as recording:
        wire.send(kept, port, pause=2e-4)
    pattern = b"" if fill == "omit" else struct.pack("<I", 0xAABBCCDD) * (FRAME // 4) * 10
    assert recording.on_disk().bytes() == b"".join(sent[:100]) + pattern + b"".join(sent[110:])
    assert one(recording)["terms"]["missing"] == 10
    run("verify", recording.scan, "--store", store, code=INTACT)


def test_the_rate_is_learnt_at_the_boundary_of_a_second(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=mark5b", store=store) as recording:
        sent = wire.send(frames(FPS + 200, first=FPS - 100), port, pause=5e-4)
    assert recording.on_disk().bytes() == b"".join(sent)
    account = one(recording)
    assert account["terms"]["missing"] == 0
    told = ask("info", recording.scan, "--store", store)["manifest"]["streams"][0]["format"]
    assert (told["frames_per_second"], told["derived"]) == (FPS, True)


@pytest.mark.parametrize("forgotten", [False, True], ids=["manifest", "no manifest"])
def test_a_killed_recording_is_recovered_from_its_headers(forgotten, store, tmp_path):
    port = free_port()
    options = ["--chunk", "16MiB"]
    source = f"udp://127.0.0.1:{port}?format=mark5b&fps={FPS}&block=1MiB"
    sent = frames(4 * FPS)
    with Recording(source, store=store, options=options) as recording:
        wire.send(sent[:700] + sent[720:], port, pause=1e-3)
        recording.wait("progress", lambda told: told["durable_bytes"] > 0.5 * len(sent) * FRAME)
        recording.kill()
    if forgotten:
        for lost in ("manifest.json", "index", "account.json"):
            for path in store.glob(f"*/.fullbore/{lost}"):
                path.unlink()
    run("recover", recording.scan, "--store", store, code=None)
    run("verify", recording.scan, "--store", store, code=INTACT)
    data = recording.on_disk().bytes()
    assert len(data) > 0.5 * len(sent) * FRAME
    kept = wire.cut(data, FRAME)
    assert all(frame == sent[n] for n, frame in enumerate(kept) if not 700 <= n < 720)
    told = ask("info", recording.scan, "--store", store)
    stream = told["manifest"]["streams"][0]
    assert stream["format"]["name"] == "mark5b" and stream["format"]["frames_per_second"] == FPS
    assert told["accounts"][0]["terms"]["missing"] == 20


def test_a_replay_keeps_the_timing_and_a_loop_advances_the_times(store, tmp_path):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=mark5b&fps={FPS}", store=store) as recording:
        sent = wire.send(frames(FPS), port, pause=2e-4)
    assert one(recording)["verdict"] in ("proven", "consistent")
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=mark5b&fps={FPS}", store=store, scan="loop") as again:
        done = play(recording.scan, "--store", store, "--to", f"udp://127.0.0.1:{port}", "--loop", "3", "--gentle", "--json")
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["frames"] == 3 * FPS and 2.9 < report["due_seconds"] < 3.1
    account = one(again)
    assert (account["terms"]["written"], account["terms"]["missing"]) == (3 * FPS, 0)
    data = again.on_disk().bytes()
    told = times_of(data, tmp_path)
    assert max(abs((at - told[0]).to_value("s") - n / FPS) for n, at in enumerate(told)) < 1e-6
    assert [frame[16:] for frame in wire.cut(data, FRAME)] == [frame[16:] for frame in sent] * 3


def test_other_datagrams_at_the_port_are_told(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=mark5b", store=store) as recording:
        wire.send(wire.run_of_frames(300), port)
        warning = recording.wait("warning")
    assert "Mark 5B" in warning["text"]
    recording.stop(code=None)


def test_a_frame_length_that_cannot_be_is_refused(store):
    done = run("record", "udp://:5000?format=mark5b&frame=8032", "--store", store, "--session", "a", "--scan", "b", code=2)
    assert "Mark 5B frames have 10016 bytes" in text(done.stderr)
