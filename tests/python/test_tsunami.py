"""Tsunami-UDP: our server and client with each other over a path that loses, with an end written from the table of the
protocol, and with the real programs where TSUNAMI_BIN names their folder."""

import hashlib
import os
import random
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
from fullbore import AS_SEALED, FOUND, PATIENCE, REFUSED, Recording, free_port, generate
from sites import Site

REVISION = struct.pack(">I", 0x20061025)
TSUNAMI_BIN = os.environ.get("TSUNAMI_BIN")
real = pytest.mark.skipif(not TSUNAMI_BIN, reason="TSUNAMI_BIN names no folder with tsunamid and tsunami")


@pytest.fixture
def station(tmp_path):
    return Site(tmp_path, "station")


def record(site, frames=4000):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=20000&block=64KiB"
    with Recording(source, store=site.store, scan="one", options=("--sync", "50ms", "--chunk", "1MiB")) as recording:
        generate(f"udp://127.0.0.1:{port}", frame=1056, fps=20_000, frames=frames, drop=1e-3)
        recording.stop(AS_SEALED)
    return f"{recording.scan}/{port}.vdif"


def content(site, name):
    """What `fullbore cat` gives of the stream."""
    command = site.command("cat", name.removesuffix(".vdif"))
    return subprocess.run(command, env=site.env, check=True, capture_output=True, timeout=PATIENCE).stdout


class Offer:
    """A running `fullbore receive --tsunami`."""

    def __init__(self, site, *options):
        self.port = free_port()
        words = ("receive", "--tsunami", f"127.0.0.1:{self.port}", "--json", *options)
        self.process = site.start(*words)
        assert b"tsunami-listening" in self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=PATIENCE)
        self.events = out.decode()

    @property
    def url(self):
        return f"tsunami://127.0.0.1:{self.port}"


def proof(challenge, secret=b"kitten"):
    return hashlib.md5(bytes(a ^ secret[n % len(secret)] for n, a in enumerate(challenge))).digest()


def exactly(stream, count):
    data = b""
    while len(data) < count:
        more = stream.recv(count - len(data))
        if not more:
            raise EOFError(data)
        data += more
    return data


class Peer:
    """A client, or a server's connection, after the handshake."""

    def __init__(self, port, secret=b"kitten"):
        self.stream = socket.create_connection(("127.0.0.1", port), PATIENCE)
        assert exactly(self.stream, 4) == REVISION
        self.stream.sendall(REVISION)
        self.stream.sendall(proof(exactly(self.stream, 64), secret))
        self.accepted = exactly(self.stream, 1) == b"\0"

    def ask(self, name):
        self.stream.sendall(name + b"\n")
        return exactly(self.stream, 1)

    def parameters(self, block=1024, rate=100_000_000):
        self.stream.sendall(struct.pack(">IIIHHHH", block, rate, 7500, 25, 24, 5, 6))

    def is_closed(self, within=5):
        self.stream.settimeout(within)
        try:
            return self.stream.recv(1) == b""
        except ConnectionError:
            return True



class Lossy:
    """Carries the control connection of a server, and loses every hundredth datagram of its blocks."""

    def __init__(self, port, loss=0.01):
        self.target, self.loss, self.lost, self.over = port, loss, 0, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.inner, self.outer = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        self.inner.bind(("127.0.0.1", 0))
        self.inner.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        threading.Thread(target=self.carry, daemon=True).start()

    def carry(self):
        near, _ = self.listener.accept()
        far = socket.create_connection(("127.0.0.1", self.target))
        chance, client = random.Random(1), None
        # Before the port, a client says revision, proof, one name and 20 bytes of parameters.
        said = b""
        while not self.over:
            for end in select.select([near, far, self.inner], [], [], 0.2)[0]:
                if end is self.inner:
                    datagram = self.inner.recv(1 << 16)
                    if chance.random() < self.loss:
                        self.lost += 1
                    elif client:
                        self.outer.sendto(datagram, client)
                    continue
                data = end.recv(1 << 16)
                if not data:
                    return
                if end is near and not client:
                    said += data
                    name = said.find(b"\n", 20)
                    if name >= 0 and len(said) >= name + 1 + 20 + 2:
                        at = name + 21
                        client = ("127.0.0.1", struct.unpack(">H", said[at : at + 2])[0])
                        data = data[:-2] + struct.pack(">H", self.inner.getsockname()[1])
                (far if end is near else near).sendall(data)


def test_our_client_gets_from_our_server_what_cat_gives(station, tmp_path):
    name = record(station)
    wanted = content(station, name)
    with Offer(station) as offer:
        listed = station.ask("receive", "--from", offer.url, "--list")
        assert listed == [{"name": name, "bytes": len(wanted)}]
        told = station.ask("receive", "--from", offer.url, name, "--to", tmp_path / "here", "--rate", "2Gbit/s")
        here = tmp_path / "here" / name.replace("/", "_")
        assert told["path"] == str(here) and here.read_bytes() == wanted
        assert [it.name for it in here.parent.iterdir()] == [here.name]
        # Nothing is overwritten.
        again = station.run("receive", "--from", offer.url, name, "--to", tmp_path / "here", code=FOUND)
        assert "exists" in str(again.stderr)
    assert '"tsunami-sent"' in offer.events


def test_a_path_that_loses_one_in_a_hundred_changes_no_byte(station, tmp_path):
    name = record(station)
    wanted = hashlib.sha256(content(station, name)).digest()
    with Offer(station) as offer:
        relay = Lossy(offer.port)
        url = f"tsunami://127.0.0.1:{relay.port}"
        # The relay is slower than loopback, and a block of loopback is large: many blocks make losses certain.
        told = station.ask("receive", "--from", url, name, "--to", tmp_path / "here", "--rate", "200Mbit/s")
        relay.over = True
    assert relay.lost > 0 and told["resent_blocks"] > 0
    assert hashlib.sha256((tmp_path / "here" / name.replace("/", "_")).read_bytes()).digest() == wanted


def test_an_end_written_from_the_protocol_gets_the_file(station):
    name = record(station, frames=1000)
    wanted = content(station, name)
    with Offer(station) as offer:
        peer = Peer(offer.port)
        assert peer.accepted
        peer.stream.sendall(b"*\n")
        sizes = exactly(peer.stream, 20)
        assert sizes == str(len(name) + 1).encode().ljust(10, b"\0") + b"1".ljust(10, b"\0")
        peer.stream.sendall(b"got size")
        assert exactly(peer.stream, len(name) + 1) == name.encode() + b"\0"
        peer.stream.sendall(b"got list")
        assert peer.ask(name.encode()) == b"\0"
        peer.parameters()
        length, block, blocks, _ = struct.unpack(">QIII", exactly(peer.stream, 20))
        assert (length, block, blocks) == (len(wanted), 1024, -(-len(wanted) // 1024))
        data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        data.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        data.bind(("127.0.0.1", 0))
        data.settimeout(5)
        peer.stream.sendall(struct.pack(">H", data.getsockname()[1]))
        got, last = {}, 0
        while len(got) < blocks:
            datagram = data.recv(1 << 16)
            number, kind = struct.unpack(">IH", datagram[:6])
            assert len(datagram) == 1030 and chr(kind) in "ORX"
            got[number] = datagram[6:]
            if kind == ord("X"):
                last += 1
                missing = [n for n in range(1, blocks + 1) if n not in got]
                peer.stream.sendall(b"".join(struct.pack(">HHII", 0, 0, n, 0) for n in missing[:500]))
        peer.stream.sendall(struct.pack(">HHII", 0, 0, 7, 0))
        while (datagram := data.recv(1 << 16))[:6] != struct.pack(">IH", 7, ord("R")):
            pass
        assert datagram[6:] == wanted[6 * 1024 : 7 * 1024]
        peer.stream.sendall(struct.pack(">HHII", 2, 0, 0, 0))
        whole = b"".join(got[n] for n in range(1, blocks + 1))
        assert whole[:length] == wanted and not any(whole[length:])
        assert peer.ask(b"no/such.vdif") == b"\x08"
        peer.stream.close()


@pytest.mark.parametrize("name", [b"../../etc/passwd", b"/etc/passwd", b"", b"session_one", b"\xff\xfe", b"a" * 1000])
def test_names_that_are_not_those_of_scans_are_not_readable(station, name):
    record(station, frames=100)
    with Offer(station) as offer:
        assert Peer(offer.port).ask(name) == b"\x08"


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"block": 0}, {"block": 65_531}, {"block": 2**32 - 1}])
def test_impossible_parameters_close_the_connection(station, wrong):
    name = record(station, frames=100)
    with Offer(station) as offer:
        peer = Peer(offer.port)
        assert peer.ask(name.encode()) == b"\0"
        peer.parameters(**wrong)
        assert peer.is_closed()


def test_blocks_that_do_not_exist_and_silence_end_a_transfer(station):
    name = record(station, frames=100)
    with Offer(station) as offer:
        def begun():
            peer = Peer(offer.port)
            assert peer.ask(name.encode()) == b"\0"
            peer.parameters(rate=1_000_000)
            exactly(peer.stream, 20)
            peer.stream.sendall(struct.pack(">H", free_port()))
            return peer

        silent, since = begun(), time.monotonic()
        huge = begun()
        huge.stream.sendall(struct.pack(">HHII", 1, 0, 2**32 - 1, 0))
        assert huge.is_closed()
        assert silent.is_closed(within=30) and 14 < time.monotonic() - since < 20


def test_a_wrong_secret_gets_nothing(station, tmp_path):
    name = record(station, frames=100)
    (tmp_path / "secret").write_text("something else\n")
    with Offer(station, "--tsunami-secret-file", tmp_path / "secret") as offer:
        stranger = Peer(offer.port)
        assert not stranger.accepted and stranger.is_closed()
        refused = ("receive", "--from", offer.url, name, "--to", tmp_path / "here")
        station.run(*refused, code=REFUSED)
        told = station.ask(*refused, "--tsunami-secret-file", tmp_path / "secret")
        assert told["bytes"] > 0


def test_only_those_who_are_listed_may_connect(station):
    refused = station.run("receive", "--tsunami", "0.0.0.0:0", code=REFUSED)
    assert "--allow" in str(refused.stderr)
    with Offer(station, "--allow", "192.0.2.0/24") as offer, socket.create_connection(("127.0.0.1", offer.port)) as stranger:
        stranger.settimeout(5)
        assert stranger.recv(1) == b""
    assert "not in --allow" in offer.events


@real
def test_the_real_client_gets_a_scan(station, tmp_path):
    name = record(station)
    with Offer(station) as offer:
        words = ["set", "port", str(offer.port), "connect", "127.0.0.1", "get", name, "quit"]
        subprocess.run([f"{TSUNAMI_BIN}/tsunami", *words], cwd=tmp_path, check=True, timeout=PATIENCE)
    assert (tmp_path / name.split("/")[1]).read_bytes() == content(station, name)


@real
def test_the_real_server_gives_a_file(station, tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    (there / "x.vdif").write_bytes(random.Random(1).randbytes(20_000_000))
    port = free_port()
    with subprocess.Popen([f"{TSUNAMI_BIN}/tsunamid", f"--port={port}", "x.vdif"], cwd=there) as server:
        try:
            time.sleep(1)
            station.ask("receive", "--from", f"tsunami://127.0.0.1:{port}", "x.vdif", "--to", tmp_path / "here")
        finally:
            server.kill()
    assert (tmp_path / "here/x.vdif").read_bytes() == (there / "x.vdif").read_bytes()
