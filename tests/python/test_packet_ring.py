"""The receive engine `packet`: a packet ring in place of sockets, judged by the bytes, by tcpdump and by the account."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import time

import pytest
import wire
from fullbore import (
    AS_SEALED,
    BINARY,
    FOUND,
    GOOD,
    INTACT,
    REFUSED,
    Recording,
    accounts,
    balanced,
    free_port,
    free_ports,
    run,
)

UDP_SEGMENT = 103


def may_open_rings():
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not may_open_rings(), reason="packet rings need CAP_NET_RAW")


def ring_counter(account):
    (counter,) = [it for it in account["drop_counters"] if it["layer"] == "packet-ring"]
    assert not [it for it in account["drop_counters"] if it["layer"] == "socket"]
    return counter


def one_stream(recording, code=AS_SEALED):
    (account,) = accounts(recording.stop(code)).values()
    return balanced(account)


@pytest.mark.parametrize(
    "host, source",
    [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"), ("::1", "[::1]"), ("127.0.0.1", "[::]"), ("::1", "[::]")],
)
def test_every_kind_of_address_is_recorded_from_a_ring(host, source, store):
    port = free_port(socket.AF_INET6 if ":" in source else socket.AF_INET)
    with Recording(f"udp://{source}:{port}?format=vdif&fps=1000&engine=packet", store=store) as recording:
        sent = wire.send(wire.run_of_frames(2500), port, host)
    assert recording.on_disk().bytes() == b"".join(sent)
    account = one_stream(recording)
    assert account["verdict"] == "proven"
    counter = ring_counter(account)
    assert (counter["counter"], counter["after"] - counter["before"], counter["own"]) == ("tp_drops", 0, True)
    (engine,) = recording.sealed()["manifest"]["host_setup"]["engines"]
    assert (engine["engine"], engine["why"]) == ("packet", "the endpoint requests it")


def test_sixteen_sources_share_a_ring_and_each_gets_its_own(stores):
    ports = free_ports(16)
    source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif&fps=1000&engine=packet"
    with Recording(source, store=stores) as recording:
        sent = {port: wire.run_of_frames(300, thread=port % 16) for port in ports}
        wire.send_in_turn(sent, pause=2e-4)
    scan = recording.on_disk()
    for port in ports:
        assert scan.bytes(port) == b"".join(sent[port])
    told = accounts(recording.stop())
    assert all(balanced(account)["verdict"] == "proven" for account in told.values())
    assert len({ring_counter(account)["scope"] for account in told.values()}) == 1
    run("verify", recording.scan, "--store", ",".join(map(str, stores)), code=INTACT)


def test_the_port_is_held_and_senders_are_not_told_that_it_is_closed(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=raw&engine=packet", store=store) as recording:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(("127.0.0.1", port))
            # A port that nobody holds answers the first datagram; the next call would return that as an error.
            for _ in range(3):
                assert sender.send(b"x" * 1000) == 1000
                time.sleep(0.02)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other, pytest.raises(OSError):
            other.bind(("127.0.0.1", port))
    assert one_stream(recording)["terms"]["written"] == 3


def test_what_the_ring_drops_is_missing_and_explained_by_its_counter(store):
    port, sent = free_port(), wire.run_of_frames(9000)
    query = "format=vdif&fps=1000&rcvbuf=4MiB&engine=packet"
    with Recording(f"udp://127.0.0.1:{port}?{query}", store=store) as recording:
        wire.send(sent[:100], port, pause=2e-3)
        recording.wait("opened")
        recording.process.send_signal(signal.SIGSTOP)
        os.waitpid(recording.process.pid, os.WUNTRACED)
        wire.send(sent[100:8000], port)
        recording.process.send_signal(signal.SIGCONT)
        time.sleep(0.2)
        wire.send(sent[8000:], port, pause=1e-4)
    account = one_stream(recording, FOUND)
    counter = ring_counter(account)
    missing = account["terms"]["missing"]
    # 7900 packets of a KiB do not fit 4 MiB.
    assert 3000 < missing <= counter["after"] - counter["before"], (account["terms"], counter)
    assert account["verdict"] == "consistent"
    run("verify", recording.scan, "--store", store, code=INTACT)


def without_the_right():
    """The start of a command that may not open packet sockets."""
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv (util-linux)")
    return ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"]


def test_auto_takes_what_is_allowed_and_says_which_and_why(store):
    for scan, wrap, engine in [("one", [], "packet"), ("two", without_the_right(), "udp")]:
        port = free_port()
        source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&engine=auto"
        with Recording(source, store=store, scan=scan, wrap=wrap) as recording:
            sent = wire.send(wire.run_of_frames(1500), port)
        assert recording.on_disk().bytes() == b"".join(sent)
        layers = {it["layer"] for it in one_stream(recording)["drop_counters"]}
        assert ("packet-ring" in layers, "socket" in layers) == (engine == "packet", engine == "udp")
        (told,) = recording.sealed()["manifest"]["host_setup"]["engines"]
        assert told["engine"] == engine and told["source"] == source
        assert ("Operation not permitted" in told["why"]) == (engine == "udp")
        note = recording.wait("note", lambda event: "is received from" in event["text"])
        assert told["why"] in note["text"]
        shown = run("info", recording.scan, "--store", store, code=None).stdout.decode()
        assert ("packet ring" if engine == "packet" else "socket") in shown and told["why"] in shown


def test_a_ring_that_is_requested_and_not_allowed_is_refused_with_the_way_out(store):
    source = f"udp://127.0.0.1:{free_port()}?engine=packet"
    command = [*without_the_right(), BINARY, "record", source, "--store", store, "--session", "a", "--scan", "one"]
    done = subprocess.run(map(str, command), capture_output=True, text=True, timeout=60)
    assert done.returncode == REFUSED
    assert "packet ring" in done.stderr and "cap_net_raw" in done.stderr and "engine=udp" in done.stderr, done.stderr


class Cable:
    """Two network namespaces with a cable. The recorder is in this one."""

    ours, theirs, interface = "10.198.7.2", "10.198.7.1", "fbring"

    def __init__(self):
        self.name = f"fbring{os.getpid()}"

    def there(self, *words, **options):
        return subprocess.run(["ip", "netns", "exec", self.name, *map(str, words)], check=True, **options)

    def send(self, program, *arguments, **options):
        """Runs a Python program at the other end, with what its name says imported."""
        imports = "import json, socket, struct, sys, time\n"
        return self.there("python3", "-c", imports + program, *arguments, **options)


@pytest.fixture
def cable():
    cable = Cable()
    ip = lambda *words: subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    if (done := ip("netns", "add", cable.name)).returncode:
        pytest.skip(f"network namespaces cannot be made: {done.stderr.strip()}")
    try:
        made = ip("link", "add", cable.interface, "type", "veth", "peer", "name", "far", "netns", cable.name)
        if made.returncode:
            pytest.skip(f"a cable cannot be made: {made.stderr.strip()}")
        for words in [
            ["address", "add", f"{cable.ours}/24", "dev", cable.interface],
            ["link", "set", cable.interface, "up"],
            ["-n", cable.name, "address", "add", f"{cable.theirs}/24", "dev", "far"],
            ["-n", cable.name, "link", "set", "far", "up"],
        ]:
            ip(*words).check_returncode()
        yield cable
    finally:
        ip("link", "del", cable.interface)
        ip("netns", "del", cable.name)


# Sends numbered datagrams: address, port, count, bytes, datagrams in one call (GSO), pause in microseconds.
SENDER = f"""
to, port, count, size, together, pause = sys.argv[1], *map(int, sys.argv[2:7])
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
if together > 1: out.setsockopt(socket.SOL_UDP, {UDP_SEGMENT}, size)
if to.startswith("239."): out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("{Cable.theirs}"))
for n in range(0, count, together):
    some = range(n, min(n + together, count))
    out.sendto(b"".join(struct.pack("<Q", k) + bytes([k % 251]) * (size - 8) for k in some), (to, port))
    time.sleep(pause / 1e6)
"""


def numbered(count, size):
    return b"".join(struct.pack("<Q", k) + bytes([k % 251]) * (size - 8) for k in range(count))


@pytest.mark.parametrize(
    "to, query, count, size, together",
    [
        (Cable.ours, "", 3000, 1312, 1),
        (Cable.ours, "&interface=fbring", 3000, 1312, 40),
        (Cable.ours, "", 400, 8032, 1),
        ("239.198.7.7", "&interface=fbring", 1000, 1000, 1),
    ],
    ids=["plain", "GSO", "fragments", "multicast"],
)
def test_packets_of_a_cable_are_recorded_as_they_were_sent(to, query, count, size, together, cable, store):
    port = free_port()
    source = f"udp://{to}:{port}?format=raw&seq=0:8:le&frame={size}&engine=packet{query}"
    with Recording(source, store=store) as recording:
        # Never one datagram that is as long as several, and none for another port.
        cable.send(SENDER, to, port + 1, 10, size, 1, 0)
        cable.send(SENDER, to, port, count, size, together, 100)
    assert recording.on_disk().bytes() == numbered(count, size)
    account = one_stream(recording)
    assert (account["verdict"], account["foreign"], account["terms"]["expected"]) == ("proven", 0, count)


def ip_or_skip(*words):
    if (done := subprocess.run(["ip", *words], capture_output=True, text=True)).returncode:
        pytest.skip(f"this kernel cannot: ip {' '.join(words)}: {done.stderr.strip()}")


def behind_a_vlan(cable):
    """The interface has a second name for packets with a tag."""
    ip_or_skip("link", "add", "link", cable.interface, "name", "fbring.5", "type", "vlan", "id", "5")
    ip_or_skip("-n", cable.name, "link", "add", "link", "far", "name", "far.5", "type", "vlan", "id", "5")
    return "fbring.5", "far.5"


def behind_a_bridge(cable):
    """The interface is a port of a bridge, which has the address."""
    ip_or_skip("link", "add", "fbbridge", "type", "bridge")
    ip_or_skip("link", "set", cable.interface, "master", "fbbridge")
    return "fbbridge", "far"


@pytest.mark.parametrize("layer", [behind_a_vlan, behind_a_bridge])
def test_datagrams_that_pass_two_interfaces_of_this_host_come_once(layer, cable, store):
    ours, theirs = layer(cable)
    try:
        for words in [
            ["address", "add", "10.198.8.2/24", "dev", ours],
            ["link", "set", ours, "up"],
            ["-n", cable.name, "address", "add", "10.198.8.1/24", "dev", theirs],
            ["-n", cable.name, "link", "set", theirs, "up"],
        ]:
            subprocess.run(["ip", *words], check=True, capture_output=True)
        port = free_port()
        with Recording(f"udp://0.0.0.0:{port}?format=raw&seq=0:8:le&engine=packet", store=store) as recording:
            cable.send(SENDER, "10.198.8.2", port, 500, 1000, 1, 100)
        assert recording.on_disk().bytes() == numbered(500, 1000)
        account = one_stream(recording)
        assert (account["duplicates"], account["verdict"]) == (0, "proven")
    finally:
        subprocess.run(["ip", "link", "del", ours], capture_output=True)


# A datagram with a wrong checksum, made by hand.
WRONG = """
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
to, port, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
payload = struct.pack("<Q", number) + bytes(92)
raw.sendto(struct.pack("!4H", 5, port, 8 + len(payload), 0x1234) + payload, (to, port))
"""


def test_a_wrong_checksum_is_not_recorded_and_takes_the_proof_away(cable, store):
    # Without this, the checksums of packets that this host made are never verified.
    cable.there("ethtool", "-K", "far", "tx", "off", capture_output=True)
    port = free_port()
    with Recording(f"udp://{cable.ours}:{port}?format=raw&seq=0:8:le&engine=packet", store=store) as recording:
        cable.send(SENDER, cable.ours, port, 300, 100, 1, 100)
        cable.send(WRONG, cable.ours, port, 300)
        time.sleep(0.1)
    assert recording.on_disk().bytes() == numbered(300, 100)
    account = one_stream(recording)
    (wrong,) = [it for it in account["drop_counters"] if it["counter"] == "InCsumErrors" and it["scope"] == "ipv4"]
    assert (account["verdict"], wrong["after"] - wrong["before"]) == ("consistent", 1)
    recording.wait("warning", lambda event: "1 packets have wrong checksums" in event["text"])


def test_what_is_lost_on_the_cable_is_counted_as_tcpdump_counts_it(cable, store, tmp_path):
    """Frames that were never sent: ring and tcpdump find the same, and no counter of this host explains them."""
    port, chance = free_port(), random.Random(3)
    lost = sorted(chance.sample(range(10, 1990), 37))
    program = SENDER.replace("for n in range(0, count, together):", f"for n in sorted(set(range(count)) - set({lost})):")
    capture = tmp_path / "all.pcap"
    words = ["tcpdump", "-i", cable.interface, "-n", "-Z", "root", "-U", "-w", capture, f"udp dst port {port}"]
    if shutil.which("tcpdump") is None:
        pytest.skip("needs tcpdump")
    with contextlib.ExitStack() as stack:
        dump = stack.enter_context(subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True))
        stack.callback(dump.kill)
        while "listening" not in dump.stderr.readline():
            assert dump.poll() is None
        with Recording(f"udp://{cable.ours}:{port}?format=raw&seq=0:8:le&engine=packet", store=store) as recording:
            cable.send(program, cable.ours, port, 2000, 1000, 1, 100)
        time.sleep(1.2)  # libpcap hands over a block that is not full after a second
        dump.send_signal(signal.SIGINT)
        dump.wait(10)
    captured = int(subprocess.run(["tcpdump", "-r", capture, "--count"], capture_output=True, text=True).stdout.split()[0])
    account = one_stream(recording, FOUND)
    assert (account["terms"]["written"], account["terms"]["missing"]) == (captured, 37) == (1963, 37)
    assert account["verdict"] == "unexplained"
    gaps = [first for gap in account["gaps"] for first in range(gap["first"], gap["first"] + gap["count"])]
    assert gaps == [gaps[0] - lost[0] + n for n in lost]
