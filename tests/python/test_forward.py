"""`record --forward`: frames go on to another host while they are recorded, and nothing there can harm the recording."""

import io
import socket
import threading
import time

import pytest
import wire
from baseband import vdif
from fullbore import GOOD, PATIENCE, Recording, accounts, free_port, free_ports, run

FRAMES, FPS, SMALL = 6000, 2000, "block=256KiB"


def source(port, more=""):
    return f"udp://127.0.0.1:{port}?format=vdif&{SMALL}{more}"


def stores(place, *names):
    made = [place / name for name in names]
    for path in made:
        path.mkdir()
    return made


def cat(store, scan):
    return run("cat", scan, "--store", store).stdout


def ended(recording):
    """What was sent on of each stream, at the end, by name."""
    (told,) = [it for it in recording.events if it["event"] == "forwarded" and it["over"]]
    for it in told["streams"]:
        assert it["recorded"] == it["sent"] + it["skipped"] + it["refused"], it
    return {it["stream"]: it for it in told["streams"]}


def proven(sealed, frames):
    """Everything that was sent is in the recording, and proven."""
    for account in accounts(sealed).values():
        assert account["verdict"] == "proven" and account["terms"]["written"] == frames, account


def record(port, sender, frames, pause=4e-4):
    """Sends these frames to the recording and stops it."""
    wire.send(frames, port, pause=pause)
    sealed = sender.stop(GOOD)
    proven(sealed, len(frames))
    return sealed


def test_a_second_recorder_gets_the_same_frames(tmp_path):
    here, there = stores(tmp_path, "here", "there")
    ports, far = free_ports(2), free_ports(4)[2:]
    frames = {port: wire.run_of_frames(3000, FPS, thread=n) for n, port in enumerate(ports)}
    with Recording(*map(source, far), store=there, scan="far") as receiver:
        to = f"udp://127.0.0.1:{far[0]}-{far[1]}"
        with Recording(*map(source, ports), store=here, scan="near", options=["--forward", to]) as sender:
            wire.send_in_turn(frames, pause=4e-4)
            proven(sender.stop(GOOD), 3000)
        proven(receiver.stop(GOOD), 3000)
    told = ended(sender)
    assert {it["to"] for it in told.values()} == {f"udp://127.0.0.1:{port}" for port in far}
    assert all((it["sent"], it["skipped"], it["refused"]) == (3000, 0, 0) for it in told.values()), told
    for port, its in zip(ports, far):
        near = cat(here, f"test_near/{port}")
        assert near == b"".join(frames[port]) and near == cat(there, f"test_far/{its}")


def test_a_numbered_destination_gets_packet_numbers(tmp_path):
    here, there = stores(tmp_path, "here", "there")
    port, far = free_ports(2)
    frames = wire.run_of_frames(2000, FPS)
    with Recording(f"udp://127.0.0.1:{far}?format=vtp&{SMALL}", store=there, scan="far") as receiver:
        to = f"udp://127.0.0.1:{far}?format=vtp"
        with Recording(source(port), store=here, options=["--forward", to]) as sender:
            record(port, sender, frames)
        proven(receiver.stop(GOOD), 2000)
    assert cat(there, "test_far") == b"".join(frames)


@pytest.mark.parametrize("scheme", ["udp", "tcp"])
def test_an_absent_destination_costs_the_recording_nothing(tmp_path, scheme):
    (here,) = stores(tmp_path, "here")
    port, far = free_ports(2)
    options = ["--forward", f"{scheme}://127.0.0.1:{far}"]
    with Recording(source(port), store=here, options=options) as sender:
        record(port, sender, wire.run_of_frames(3000, FPS))
    (told,) = ended(sender).values()
    if scheme == "tcp":
        assert (told["sent"], told["skipped"]) == (0, 3000)
    else:
        assert told["unreachable"] > 0


def test_a_slow_reader_gets_whole_frames_and_the_rest_is_counted(tmp_path):
    (here,) = stores(tmp_path, "here")
    port, frames = free_port(), wire.run_of_frames(6000, FPS, payload_bytes=8000)
    taken = bytearray()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def read():
            connection, _ = listener.accept()
            connection.settimeout(PATIENCE)
            while some := connection.recv(8 << 10):
                taken.extend(some)
                time.sleep(0.02)

        reader = threading.Thread(target=read)
        reader.start()
        options = ["--forward", f"tcp://127.0.0.1:{listener.getsockname()[1]}"]
        with Recording(source(port), store=here, options=options) as sender:
            record(port, sender, frames)
        reader.join(PATIENCE)
    (told,) = ended(sender).values()
    assert told["skipped"] > 0 and told["sent"] > 0 and told["bytes"] == told["sent"] * 8032
    known = set(frames)
    whole = wire.cut(bytes(taken), 8032)
    assert len(whole[-1]) == 8032 or whole.pop()
    assert len(whole) == told["sent"] and all(frame in known for frame in whole)


def test_baseband_reads_what_a_plain_socket_receives(tmp_path):
    (here,) = stores(tmp_path, "here")
    port, frames = free_port(), wire.run_of_frames(2000, FPS)
    came = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200 << 10)
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)

        def read():
            while len(came) < len(frames):
                came.append((receiver.recv(65536), time.monotonic()))

        reader = threading.Thread(target=read)
        reader.start()
        options = ["--forward", f"udp://127.0.0.1:{receiver.getsockname()[1]}"]
        with Recording(source(port), store=here, options=options) as sender:
            record(port, sender, frames)
        reader.join(PATIENCE)
    assert [frame for frame, _ in came] == frames
    stream = vdif.open(io.BytesIO(b"".join(frame for frame, _ in came)), "rb")
    read = [stream.read_frame().header for _ in came]
    assert [(it["seconds"], it["frame_nr"]) for it in read] == [(1000 + n // FPS, n % FPS) for n in range(2000)]
    # The blocks of 256 KiB are spread over their time: 248 frames do not come in one burst.
    times = [at for _, at in came]
    assert times[200] - times[0] > 0.02, times[200] - times[0]


def test_only_frames_of_datagrams_are_sent_on(tmp_path):
    (here,) = stores(tmp_path, "here")
    words = ["--store", here, "--session", "s", "--scan", "a", "--forward", "udp://127.0.0.1:1"]
    refused = run("record", "pattern:prbs31", *words, code=2)
    assert b"--forward: it sends frames on, and only udp:// sources have frames" in refused.stderr
