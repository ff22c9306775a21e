"""A slow stream is soon on disk, too: data in a block that is not full is not durable."""

import socket
import time

import pytest
import wire
from fullbore import Recording, accounts, balanced, free_port

FPS = 122
FRAME_BYTES = 1024
RATE = FPS * FRAME_BYTES  # one Mbit/s


def send_slowly(frames, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        due = time.perf_counter()
        for frame in frames:
            sender.sendto(frame, ("127.0.0.1", port))
            due += 1 / FPS
            time.sleep(max(0, due - time.perf_counter()))


@pytest.mark.parametrize("told", [f"fps={FPS}&frame={FRAME_BYTES}", "format=vdif"])
def test_a_megabit_is_durable_within_two_and_a_half_seconds(told, store):
    port = free_port()
    frames = wire.run_of_frames(5 * FPS, fps=FPS, payload_bytes=FRAME_BYTES - 32)
    with Recording(f"udp://127.0.0.1:{port}?{told}", store=store) as recording:
        send_slowly(frames, port)
        (account,) = accounts(recording.stop()).values()
    assert balanced(account)["terms"]["written"] == len(frames)
    progress = [event for event in recording.events if event["event"] == "progress"]
    waiting = [event["bytes"] - event["durable_bytes"] for event in progress]
    assert max(waiting) <= 2.5 * RATE, waiting
    assert progress[-1]["durable_bytes"] > RATE
