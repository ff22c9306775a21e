"""`record --forward`: frames go on to another host while they are recorded, and nothing there can harm the recording."""

import datetime
import io
import ipaddress
import json
import socket
import ssl
import threading
import time

import pytest
import wire
from baseband import vdif
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fullbore import FOUND, GOOD, PATIENCE, Recording, accounts, free_port, free_ports, run, text
from test_documents import schema
from test_schedule import Session, csv, utc

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


def is_kept(store, scan, told):
    """The manifest has the counts of the end, `info` shows them, and the scan is still intact."""
    (info,) = (json.loads(it) for it in run("info", scan, "--store", store, "--json").stdout.splitlines())
    counts = ("stream", "to", "sent", "skipped", "refused", "reconnects")
    kept = {it["stream"]: it for it in info["manifest"]["forwarded"]}
    assert kept == {name: {key: it[key] for key in counts} for name, it in told.items()}
    schema("manifest").validate(info["manifest"])
    shown = text(run("info", scan, "--store", store).stdout)
    for it in kept.values():
        line = f"{it['stream']} sent on to {it['to']}: {it['sent']} frames sent, {it['skipped']} skipped"
        assert line in " ".join(shown.split()), shown
    assert json.loads(run("verify", scan, "--store", store, "--json").stdout.splitlines()[-1])["good"]


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
    is_kept(here, "test_near", told)
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


def test_a_receiver_that_goes_away_is_reached_again(tmp_path):
    (here,) = stores(tmp_path, "here")
    port, frames = free_port(), wire.run_of_frames(6000, FPS)
    size = len(frames[0])
    taken = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def read():
            for most in (1000 * size, None):
                connection, _ = listener.accept()
                connection.settimeout(PATIENCE)
                got = bytearray()
                with connection:
                    while (most is None or len(got) < most) and (some := connection.recv(64 << 10)):
                        got.extend(some)
                taken.append(bytes(got))

        reader = threading.Thread(target=read)
        reader.start()
        options = ["--forward", f"tcp://127.0.0.1:{listener.getsockname()[1]}"]
        with Recording(source(port), store=here, options=options) as sender:
            record(port, sender, frames)
        reader.join(PATIENCE)
    (told,) = ended(sender).values()
    assert told["reconnects"] == 1 and 0 < told["sent"] < len(frames), told
    is_kept(here, "test_one", {told["stream"]: told})
    # The second connection begins with a whole frame, and ends with the last one.
    again = wire.cut(taken[1], size)
    assert again == frames[-len(again):]


@pytest.mark.parametrize("scheme", ["udp", "tcp"])
def test_an_absent_destination_costs_the_recording_nothing(tmp_path, scheme):
    (here,) = stores(tmp_path, "here")
    port, far = free_ports(2)
    options = ["--forward", f"{scheme}://127.0.0.1:{far}"]
    with Recording(source(port), store=here, options=options) as sender:
        record(port, sender, wire.run_of_frames(3000, FPS))
    (told,) = ended(sender).values()
    is_kept(here, "test_one", {told["stream"]: told})
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


class TlsServer:
    """Python's TLS server, which keeps what comes in one connection. Its certificate is for 127.0.0.1 and its own
    authority."""

    def __init__(self, place):
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "correlator")])
        now = datetime.datetime.now(datetime.timezone.utc)
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        certificate = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
        self.pin = certificate.fingerprint(hashes.SHA256()).hex(":")
        self.file, key_file = place / "cert.pem", place / "key.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.file, key_file)
        self.came, self.version, self.error = bytearray(), None, None

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE)
        self.to = f"tcp+tls://127.0.0.1:{self.listener.getsockname()[1]}"
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        return self

    def read(self):
        try:
            plain, _ = self.listener.accept()
            plain.settimeout(PATIENCE)
            with self.context.wrap_socket(plain, server_side=True, suppress_ragged_eofs=False) as connection:
                self.version = connection.version()
                while some := connection.recv(1 << 16):
                    self.came.extend(some)
        except OSError as error:
            self.error = error

    def __exit__(self, *_):
        self.reader.join(PATIENCE)
        self.listener.close()


@pytest.mark.parametrize("trust", ["pin=sha256:{server.pin}", "ca={server.file}"])
def test_a_tls_server_gets_the_same_frames_and_their_end(tmp_path, trust):
    (here,) = stores(tmp_path, "here")
    port, frames = free_port(), wire.run_of_frames(2000, FPS)
    with TlsServer(tmp_path) as server:
        options = ["--forward", f"{server.to}?{trust.format(server=server)}"]
        with Recording(source(port), store=here, options=options) as sender:
            record(port, sender, frames)
    (told,) = ended(sender).values()
    assert (told["to"], told["sent"], told["problem"]) == (server.to, 2000, None)
    # The end is told, so that a cut connection is not taken for it.
    assert (server.error, server.version, bytes(server.came)) == (None, "TLSv1.3", b"".join(frames))


@pytest.mark.parametrize("trust, why", [("", "certificate"), ("?pin=" + "00" * 32, "certificate")])
def test_a_tls_server_with_another_certificate_gets_nothing_and_the_reason_is_reported(tmp_path, trust, why):
    (here,) = stores(tmp_path, "here")
    port = free_port()
    with TlsServer(tmp_path) as server:
        with Recording(source(port), store=here, options=["--forward", server.to + trust]) as sender:
            record(port, sender, wire.run_of_frames(1000, FPS))
    (told,) = ended(sender).values()
    assert (told["sent"], told["skipped"]) == (0, 1000) and why in told["problem"], told
    assert server.error is not None and not server.came


@pytest.mark.parametrize("query, why", [("ca=/nowhere.pem", b"/nowhere.pem: "), ("pin=12", b"`pin=12`: not a SHA-256")])
def test_a_certificate_that_is_not_there_is_refused_before_anything_is_recorded(tmp_path, query, why):
    (here,) = stores(tmp_path, "here")
    words = ["--store", here, "--session", "s", "--scan", "a", "--forward", f"tcp+tls://127.0.0.1:1?{query}"]
    refused = run("record", f"udp://127.0.0.1:{free_port()}?format=vdif", *words, code=2)
    assert why in refused.stderr and not any(here.glob("s_a*"))


def test_each_scan_of_a_schedule_is_sent_on_and_counted(tmp_path):
    (here,) = stores(tmp_path, "here")
    (port,), far = free_ports(1), free_port()
    schedule = csv(tmp_path / "s.csv", ("one", utc(4), "1s"), ("two", utc(7), "1s"))
    with Session(schedule, here, [port], "--forward", f"udp://127.0.0.1:{far}", query=f"format=vdif&{SMALL}") as running:
        told, _ = running.end(code=(GOOD, FOUND))
    over = [it["streams"] for it in told if it["event"] == "forwarded" and it["over"]]
    counts = {its["scan"]: its for (its,) in over}
    assert counts.keys() == {"day_one", "day_two"}
    for its in counts.values():
        assert its["recorded"] == its["sent"] + its["skipped"] + its["refused"] and its["sent"] > 500, its


def test_only_frames_of_datagrams_are_sent_on(tmp_path):
    (here,) = stores(tmp_path, "here")
    words = ["--store", here, "--session", "s", "--scan", "a", "--forward", "udp://127.0.0.1:1"]
    refused = run("record", "pattern:prbs31", *words, code=2)
    assert b"--forward: it sends frames on, and only udp:// sources have frames" in refused.stderr
