"""GigE Vision cameras: the fake camera of aravis is controlled and recorded, and packets that a relay drops are asked
for again."""

import fcntl
import random
import re
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy
import pytest
import wire
from fullbore import AS_SEALED, FOUND, INTACT, REFUSED, Recording, accounts, balanced, free_port, run, text
from test_spead_rtp import missing, pcap_of

CAMERA = "arv-fake-gv-camera-0.8"
CONTROL_PORT = 3956
WIDTH = HEIGHT = 512
LEADER, TRAILER, PAYLOAD = 1, 2, 3
READ_REGISTER, WRITE_REGISTER, RESEND = 0x80, 0x82, 0x40
CAPABILITY, CONTROL, STREAM_PORT, PACKET_SIZE = 0x934, 0xA00, 0xD00, 0xD04

needs_camera = pytest.mark.skipif(not shutil.which(CAMERA), reason="aravis-tools is not installed")


@pytest.fixture
def camera():
    """The fake camera of aravis on 127.0.0.1, which has one port: tests take turns."""
    with open(Path(tempfile.gettempdir()) / "fullbore-fake-camera", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        process = subprocess.Popen([CAMERA, "-i", "127.0.0.1", "-s", "FB01"])
        wait_for_camera()
        yield
        process.kill()
        process.wait()


def wait_for_camera():
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if register(CONTROL, wait=0.1) is not None:
            return
        time.sleep(0.05)
    raise AssertionError("the fake camera does not answer")


def register(address, wait=1.0):
    """A register of the camera, by a packet that is composed here."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        control.settimeout(wait)
        control.connect(("127.0.0.1", CONTROL_PORT))
        control.send(struct.pack(">BBHHHI", 0x42, 1, READ_REGISTER, 4, 9, address))
        try:
            return struct.unpack(">I", control.recv(100)[8:12])[0]
        except OSError:
            return None


def head(packet):
    """Status, block, content and packet id."""
    status, block, last = struct.unpack(">HHI", packet[:8])
    return status, block, last >> 24, last & 0xFFFFFF


def packets_of(recorded, payload):
    """Recorded packets, apart: payload packets of one image have `payload` bytes, but for the last."""
    packets, at = [], 0
    while at < len(recorded):
        _, _, content, number = head(recorded[at : at + 8])
        before = (number - 1) * payload
        length = {LEADER: 36, TRAILER: 8, PAYLOAD: min(payload, WIDTH * HEIGHT - before)}[content]
        packets.append(recorded[at : at + 8 + length])
        at += 8 + length
    return packets


def images_of(packets, payload):
    """Images by block id, of blocks that are whole."""
    blocks = {}
    for packet in packets:
        _, block, _, number = head(packet)
        assert blocks.setdefault(block, {}).setdefault(number, packet) is packet, "no packet is stored twice"
    last = -(-WIDTH * HEIGHT // payload) + 1
    whole = {block: parts for block, parts in blocks.items() if parts.keys() == set(range(last + 1))}
    return {
        block: numpy.frombuffer(b"".join(parts[n][8:] for n in range(1, last)), numpy.uint8).reshape(HEIGHT, WIDTH)
        for block, parts in whole.items()
    }


def ramp(block):
    """The image that the fake camera makes."""
    return ((numpy.add.outer(numpy.arange(HEIGHT), numpy.arange(WIDTH)) + block) % 255).astype(numpy.uint8)


def record(endpoint, store, images=12, **options):
    """Records until about so many images have come. Returns the account, the recorded bytes, and the recording."""
    with Recording(endpoint, store=store, **options) as recording:
        recording.wait("progress", lambda told: sum(it["bytes"] for it in told["streams"]) > images * WIDTH * HEIGHT)
        sealed = recording.stop(AS_SEALED)
    (account,) = accounts(sealed).values()
    return balanced(account), recording.on_disk().bytes("cam-blocks"), recording


@needs_camera
def test_images_of_the_fake_camera_are_those_that_it_makes(camera, store):
    account, recorded, recording = record("gvsp://127.0.0.1?packet=4096&name=cam", store)
    images = images_of(packets_of(recorded, 4096 - 36), 4096 - 36)
    assert len(images) >= 8
    for block, image in images.items():
        assert (image == ramp(block)).all(), block
    assert account["terms"]["missing"] == 0 and account["counted_by"] == "sequence-field"
    # The camera starts with the scan, so the first packet is the leader of an image.
    assert head(recorded[:8])[2:] == (LEADER, 0)
    assert (register(CONTROL), register(STREAM_PORT)) == (0, 0), "the camera is stopped and free"
    assert register(PACKET_SIZE) & 0xFFFF == 4096
    run("verify", recording.scan, "--store", store, code=INTACT)
    assert "GVSP" in text(run("info", recording.scan, "--full", "--store", store).stdout)


class Relay:
    """Stands between a camera and its controller: loses packets, and sends them again as a camera does."""

    def __init__(self, lose, refuse):
        """`lose(block, number)`: is the packet lost at first? `refuse(block, number)`: is it lost for ever?"""
        self.lose, self.refuse = lose, refuse
        self.sent, self.lost, self.requests = {}, set(), []
        self.control, self.camera, self.data = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3))
        self.data.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.control.bind(("127.0.0.1", 0))
        self.data.bind(("127.0.0.1", 0))
        self.camera.connect(("127.0.0.1", CONTROL_PORT))
        self.port = self.control.getsockname()[1]
        self.controller = self.target = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def run(self):
        while not self.ended.is_set():
            for ready in select.select([self.control, self.camera, self.data], [], [], 0.05)[0]:
                packet, sender = ready.recvfrom(65_536)
                if ready is self.control:
                    self.controller = sender
                    self.command(packet)
                elif ready is self.camera:
                    self.control.sendto(packet, self.controller)
                else:
                    self.image(packet)

    def command(self, packet):
        command, words = struct.unpack(">H", packet[2:4])[0], struct.unpack(f">{len(packet[8:]) // 4}I", packet[8:])
        if command == RESEND:
            self.requests.append(packet)
            self.send_again(words[0] & 0xFFFF, range(words[1], words[2] + 1))
        elif command == READ_REGISTER and words[0] == CAPABILITY:
            self.control.sendto(struct.pack(">HHH2sI", 0, READ_REGISTER + 1, 4, packet[6:8], 4), self.controller)
        elif command == WRITE_REGISTER and words[0] == STREAM_PORT and words[1]:
            self.target = ("127.0.0.1", words[1])
            self.camera.send(packet[:12] + struct.pack(">I", self.data.getsockname()[1]))
        else:
            self.camera.send(packet)

    def image(self, packet):
        _, block, _, number = head(packet)
        self.sent[block, number] = packet
        if self.lose(block, number) or self.refuse(block, number):
            self.lost.add((block, number))
        else:
            self.data.sendto(packet, self.target)

    def send_again(self, block, numbers):
        for number in numbers:
            packet = self.sent.get((block, number))
            if packet is None or self.refuse(block, number):
                self.data.sendto(b"\x80\x0c" + struct.pack(">HI", block, PAYLOAD << 24 | number), self.target)
            else:
                self.data.sendto(b"\x01\x00" + packet[2:], self.target)


@needs_camera
def test_packets_that_are_lost_on_the_way_are_sent_again_and_others_are_missing(camera, store, tmp_path):
    first, payload = [], 8192 - 36
    last = -(-WIDTH * HEIGHT // payload) + 1

    def order(block):
        first.append(block)
        return block - first[0]

    chance = lambda block, number: random.Random(block << 16 | number).random()
    # The first image comes whole. A trailer, and a whole image, are lost too.
    lose = lambda block, number: order(block) > 0 and (chance(block, number) < 0.05 or order(block) == 5)
    refuse = lambda block, number: order(block) in (3, 6) and number in (7, 8)
    with Relay(lose, refuse) as relay:
        account, recorded, recording = record(f"gvsp://127.0.0.1:{relay.port}?packet=8192&name=cam", store)
    packets = packets_of(recorded, payload)
    stored = {head(packet)[1::2]: packet for packet in packets}
    ends = max(stored)
    # What came near the end could not be asked for any more.
    settled = {key for key in relay.sent if key < (ends[0] - 1, 0)}
    never = {key for key in settled if refuse(*key)}
    assert len(never) == 4 and len(relay.lost & settled) > 40
    assert settled - stored.keys() == never
    index = lambda key: (key[0] - first[0]) * (last + 1) + key[1]
    assert {n for n in missing(account) if n < index((ends[0] - 1, 0))} == {index(key) for key in never}
    for block, image in images_of(packets, payload).items():
        assert (image == ramp(block)).all(), block
    told = re.search(r"was asked (\d+) times .*: (\d+) came, .* among them (\d+) that", recording.last("warning")["text"])
    asked, came, refused = map(int, told.groups())
    assert 0 < asked <= len(relay.requests) and came > 40 and refused == 4
    if shutil.which("tshark"):
        judged_by_tshark(relay.requests, tmp_path / "requests.pcap")


def judged_by_tshark(requests, path):
    """Requests are what the dissector of other people takes them for."""
    path.write_bytes(pcap_of(requests, CONTROL_PORT))
    names = ["gvcp.cmd.resend.blockid", "gvcp.cmd.resend.firstpacketid", "gvcp.cmd.resend.lastpacketid"]
    fields = [word for name in names for word in ("-e", name)]
    command = ["tshark", "-r", path, "-d", f"udp.port=={CONTROL_PORT},gvcp", "-T", "fields", *fields]
    lines = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    assert len(lines) == len(requests)
    for line, request in zip(lines, requests):
        read = [int(word, 0) for word in line.split("\t")]
        channel_and_block, first, last = struct.unpack(">III", request[8:20])
        assert read == [channel_and_block & 0xFFFF, first, last]


@needs_camera
def test_a_camera_that_another_program_controls_is_refused(camera, store):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.connect(("127.0.0.1", CONTROL_PORT))
        other.send(struct.pack(">BBHHHII", 0x42, 1, WRITE_REGISTER, 8, 9, CONTROL, 2))
        other.recv(100)
        done = run("record", "gvsp://127.0.0.1", "--store", store, "--session", "a", "--scan", "b", code=(FOUND, REFUSED))
    assert "the camera 127.0.0.1 does not answer: writing 0x2 to register 0xa00" in text(done.stderr)
    assert "no other program controls it" in text(done.stderr)


def test_a_camera_that_is_not_there_is_named(store):
    port = free_port()
    done = run("record", f"gvsp://127.0.0.1:{port}", "--store", store, "--session", "a", "--scan", "b", code=(FOUND, REFUSED))
    assert f"the camera 127.0.0.1:{port} does not answer" in text(done.stderr)


@pytest.mark.parametrize("query, why", [("packet=10", "from 576 to 16384"), ("start=1:1", "together"), ("format=raw", "for datagrams")])
def test_parameters_without_a_meaning_for_a_camera_are_refused(query, why, store):
    done = run("record", f"gvsp://127.0.0.1?{query}", "--store", store, "--session", "a", "--scan", "b", code=REFUSED)
    assert why in text(done.stderr)


def extended(block, number, content, body):
    return struct.pack(">HHBBHQI", 0, 0, 0x80 | content, 0, 0, block, number) + body


def test_packets_with_extended_ids_that_another_program_controls_are_counted(store):
    image = lambda block: [
        extended(block, 0, LEADER, struct.pack(">HHQIIIIII", 0, 1, block, 0x01080001, 100, 50, 0, 0, 0)),
        *(extended(block, n, PAYLOAD, bytes([n]) * 1000) for n in range(1, 6)),
        extended(block, 6, TRAILER, struct.pack(">HHI", 0, 1, 50)),
    ]
    packets = [packet for block in range(2**40, 2**40 + 300) for packet in image(block)]
    chance = random.Random(20)
    lost = {n for n in range(7, len(packets) - 1) if chance.random() < 0.03 or 700 <= n < 730}
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=gvsp&name=rx", store=store) as recording:
        wire.send([packet for n, packet in enumerate(packets) if n not in lost], port)
    account = balanced(accounts(recording.stop(AS_SEALED))["rx-blocks"])
    assert missing(account) == lost
    assert account["terms"]["written"] == len(packets) - len(lost)
    assert recording.on_disk().bytes("rx-blocks") == b"".join(packet for n, packet in enumerate(packets) if n not in lost)
