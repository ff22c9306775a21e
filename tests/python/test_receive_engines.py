"""The receive engines `packet` and `xdp`, in place of sockets: judged by the bytes, by tcpdump and by the account."""

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
from pathlib import Path

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
    may_open_rings,
    run,
)

UDP_SEGMENT = 103


pytestmark = pytest.mark.skipif(not may_open_rings(), reason="packet sockets need CAP_NET_RAW")


LAYERS = {"packet": "packet-ring", "xdp": "xdp"}


def moved(account, layer):
    """How far the counters of a layer moved."""
    found = [it for it in account["drop_counters"] if it["layer"] == layer]
    assert found, account["drop_counters"]
    return {it["counter"]: it["after"] - it["before"] for it in found}


def one_stream(recording, code=AS_SEALED):
    (account,) = accounts(recording.stop(code)).values()
    return balanced(account)


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


def without(*rights):
    """The start of a command that may not use these capabilities."""
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv (util-linux)")
    listed = ",".join(f"-{right}" for right in rights)
    return ["setpriv", f"--bounding-set={listed}", f"--inh-caps={listed}"]


def test_auto_takes_what_is_allowed_and_says_which_and_why(store):
    for scan, wrap, engine in [("one", [], "packet"), ("two", without("net_raw"), "udp")]:
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
        assert "XDP cannot be used: lo cannot be used: it is the loopback interface" in told["why"]
        note = recording.wait("note", lambda event: "is received from" in event["text"])
        assert told["why"] in note["text"]
        shown = run("info", recording.scan, "--store", store, code=None).stdout.decode()
        assert ("packet ring" if engine == "packet" else "socket") in shown and told["why"] in shown


def refused(source, store, wrap=()):
    """What `record` says when it refuses a source."""
    command = [*wrap, BINARY, "record", source, "--store", store, "--session", "a", "--scan", "one"]
    done = subprocess.run(map(str, command), capture_output=True, text=True, timeout=60)
    assert done.returncode == REFUSED, done.stderr
    return done.stderr


def test_an_engine_that_is_requested_and_not_possible_is_refused_with_the_way_out(store):
    of = lambda engine: f"udp://127.0.0.1:{free_port()}?engine={engine}"
    said = refused(of("packet"), store, without("net_raw"))
    assert "packet ring" in said and "cap_net_raw" in said and "engine=udp" in said, said
    said = refused(of("xdp"), store)
    assert "loopback" in said and "engine=packet" in said, said
    said = refused(f"udp://0.0.0.0:{free_port()}?engine=xdp", store)
    assert "interface=eth0" in said, said


class Cable:
    """Two network namespaces with a cable of two queues. The recorder is in this one."""

    ours, theirs, interface = "10.198.7.2", "10.198.7.1", "fbring"
    ours6, theirs6 = "fd98:7::2", "fd98:7::1"

    def __init__(self):
        self.name = f"fbring{os.getpid()}"

    def set_mtu(self, mtu):
        subprocess.run(["ip", "link", "set", self.interface, "mtu", str(mtu)], check=True)
        subprocess.run(["ip", "-n", self.name, "link", "set", "far", "mtu", str(mtu)], check=True)

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
        queues = ["numrxqueues", 2, "numtxqueues", 2]
        far = [*queues, "name", "far", "netns", cable.name]
        made = ip("link", "add", cable.interface, *queues, "type", "veth", "peer", *far)
        if made.returncode:
            pytest.skip(f"a cable cannot be made: {made.stderr.strip()}")
        for words in [
            ["address", "add", f"{cable.ours}/24", "dev", cable.interface],
            ["address", "add", f"{cable.ours6}/64", "dev", cable.interface, "nodad"],
            ["link", "set", cable.interface, "up"],
            ["-n", cable.name, "address", "add", f"{cable.theirs}/24", "dev", "far"],
            ["-n", cable.name, "address", "add", f"{cable.theirs6}/64", "dev", "far", "nodad"],
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
out = socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM)
if "." in to: out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
if together > 1: out.setsockopt(socket.SOL_UDP, {UDP_SEGMENT}, size)
if to.startswith("239."): out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("{Cable.theirs}"))
for n in range(0, count, together):
    some = range(n, min(n + together, count))
    out.sendto(b"".join(struct.pack("<Q", k) + bytes([k % 251]) * (size - 8) for k in some), (to, port))
    time.sleep(pause / 1e6)
"""


def numbered(count, size):
    return b"".join(struct.pack("<Q", k) + bytes([k % 251]) * (size - 8) for k in range(count))


@pytest.fixture(params=["packet", "xdp"])
def engine(request):
    return request.param


def host(to):
    return f"[{to}]" if ":" in to else to


@pytest.mark.parametrize(
    "to, query, count, size, together, mtu",
    [
        (Cable.ours, "", 3000, 1312, 1, 1500),
        (Cable.ours6, "", 1000, 1312, 1, 1500),
        ("0.0.0.0", "&interface=fbring", 1000, 3000, 1, 3200),
        (Cable.ours, "&interface=fbring", 3000, 1312, 40, 1500),
        (Cable.ours, "", 400, 8032, 1, 1500),
        (Cable.ours, "", 1000, 8032, 1, 9000),
        ("239.198.7.7", "&interface=fbring", 1000, 1000, 1, 1500),
    ],
    ids=["plain", "IPv6", "wildcard", "GSO", "fragments", "jumbo", "multicast"],
)
def test_packets_of_a_cable_are_recorded_as_they_were_sent(to, query, count, size, together, mtu, engine, cable, store):
    cable.set_mtu(mtu)
    port = free_port()
    source = f"udp://{host(to)}:{port}?format=raw&seq=0:8:le&frame={size}&engine={engine}{query}"
    with Recording(source, store=store) as recording:
        # Never one datagram that is as long as several, and none for another port.
        sent_to = cable.ours if to == "0.0.0.0" else to
        cable.send(SENDER, sent_to, port + 1, 10, size, 1, 0)
        cable.send(SENDER, sent_to, port, count, size, together, 100)
    assert recording.on_disk().bytes() == numbered(count, size)
    account = one_stream(recording)
    assert (account["verdict"], account["foreign"], account["terms"]["expected"]) == ("proven", 0, count)
    assert set(moved(account, LAYERS[engine]).values()) == {0}
    (told,) = recording.sealed()["manifest"]["host_setup"]["engines"]
    assert told["engine"] == engine and told["why"].startswith("the endpoint requests it")
    by_socket = [it for it in recording.events if "came through its socket" in it.get("text", "")]
    # Fragments have no ports: the program lets them pass, and the socket receives what the kernel joined.
    assert bool(by_socket) == (engine == "xdp" and size > mtu), by_socket
    if engine == "xdp":
        assert "copies on 2 queues of fbring" in told["why"]


# Sends numbered datagrams to sixteen ports in turn, from a socket each, so that they come through several queues.
TO_SIXTEEN = """
to, port, count = sys.argv[1], *map(int, sys.argv[2:4])
out = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(16)]
for n in range(count):
    for k in range(16):
        out[k].sendto(struct.pack("<Q", n) + bytes([k]) * 992, (to, port + k))
    time.sleep(2e-4)
"""


def test_sixteen_sources_share_the_queues_and_each_gets_its_own(engine, cable, stores):
    ports, count = free_ports(16), 300
    source = f"udp://{cable.ours}:{ports[0]}-{ports[-1]}?format=raw&seq=0:8:le&engine={engine}"
    with Recording(source, store=stores) as recording:
        cable.send(TO_SIXTEEN, cable.ours, ports[0], count)
    scan, told = recording.on_disk(), accounts(recording.stop())
    for number, port in enumerate(ports):
        meant = b"".join(struct.pack("<Q", n) + bytes([number]) * 992 for n in range(count))
        assert scan.bytes(port) == meant
        assert balanced(told[str(port)])["verdict"] == "proven"
    run("verify", recording.scan, "--store", ",".join(map(str, stores)), code=INTACT)


def test_what_an_engine_drops_is_missing_and_explained_by_its_counter(engine, cable, store):
    port = free_port()
    source = f"udp://{cable.ours}:{port}?format=raw&seq=0:8:le&frame=1000&rcvbuf=4MiB&engine={engine}"
    with Recording(source, store=store) as recording:
        cable.send(SENDER, cable.ours, port, 100, 1000, 1, 1000)
        recording.wait("opened")
        recording.process.send_signal(signal.SIGSTOP)
        os.waitpid(recording.process.pid, os.WUNTRACED)
        first = SENDER.replace("range(0, count, together)", "range(100, count, together)")
        cable.send(first, cable.ours, port, 12000, 1000, 1, 0)
        recording.process.send_signal(signal.SIGCONT)
        time.sleep(0.2)
        last = SENDER.replace("range(0, count, together)", "range(12000, count, together)")
        cable.send(last, cable.ours, port, 12500, 1000, 1, 100)
    account = one_stream(recording, FOUND)
    missing = account["terms"]["missing"]
    # Neither 4 MiB of packets of a kB, nor the 4096 chunks that a queue has at least, hold 11900 packets.
    counter = {"packet": "tp_drops", "xdp": "rx_dropped"}[engine]
    ours, of_device = moved(account, LAYERS[engine])[counter], sum(moved(account, "device").values())
    # veth counts what a full XDP socket refuses, too.
    explained = max(ours, of_device) if engine == "xdp" else ours + of_device
    assert 3000 < missing <= explained, (account["terms"], account["drop_counters"])
    assert ours > 3000
    assert account["verdict"] == "consistent"
    run("verify", recording.scan, "--store", store, code=INTACT)


def program_of(cable):
    """The XDP program of the interface, as iproute2 sees it."""
    shown = subprocess.run(["ip", "-j", "link", "show", cable.interface], capture_output=True, check=True)
    (link,) = json.loads(shown.stdout)
    return link.get("xdp")


def test_the_program_goes_when_the_recorder_ends_or_is_killed(cable, store):
    source = f"udp://{cable.ours}:{free_port()}?format=raw&engine=xdp"
    with Recording(source, store=store) as recording:
        assert program_of(cable)["mode"] == 1, "in the driver"
        # A second recorder has no queue, and does not disturb the first.
        said = refused(f"udp://{cable.ours}:{free_port()}?engine=xdp", store)
        assert "binding it" in said and "one program at a time" in said, said
        assert program_of(cable)["mode"] == 1
    assert program_of(cable) is None
    with Recording(source, store=store, scan="two") as recording:
        assert program_of(cable)["mode"] == 1
        recording.kill()
        deadline = time.monotonic() + 5
        while program_of(cable) is not None:
            assert time.monotonic() < deadline, "the program outlived its recorder"
            time.sleep(0.02)


RIGHTS = {"net_admin": 12, "net_raw": 13, "bpf": 39}


def test_xdp_names_the_rights_that_it_lacks_and_its_threads_give_them_up(cable, store):
    of = lambda engine: f"udp://{cable.ours}:{free_port()}?format=raw&engine={engine}"
    for right in RIGHTS:
        # CAP_SYS_ADMIN stands for CAP_BPF and CAP_NET_ADMIN.
        said = refused(of("xdp"), store, without(right, "sys_admin"))
        assert "Operation not permitted" in said and "cap_bpf" in said, said
    with Recording(of("xdp"), store=store) as recording:
        threads = {}
        for task in Path(f"/proc/{recording.process.pid}/task").iterdir():
            lines = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
            threads[lines["Name"].strip()] = int(lines["CapPrm"], 16)
        mask = sum(1 << bit for bit in RIGHTS.values())
        of_data = {name: held & mask for name, held in threads.items() if name.startswith(("capture", "writer"))}
        assert of_data and set(of_data.values()) == {0}, threads


def test_auto_prefers_a_ring_to_xdp_that_copies_and_leaves_the_interface_alone(cable, store):
    port = free_port()
    with Recording(f"udp://{cable.ours}:{port}?format=raw&engine=auto", store=store) as recording:
        assert program_of(cable) is None
        cable.send(SENDER, cable.ours, port, 100, 1000, 1, 100)
    (told,) = recording.sealed()["manifest"]["host_setup"]["engines"]
    assert told["engine"] == "packet" and "the driver of fbring has no zero-copy" in told["why"], told
    assert one_stream(recording)["terms"]["written"] == 100


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
        said = refused(f"udp://10.198.8.2:{free_port()}?engine=xdp", store)
        assert "made of other interfaces" in said and "engine=packet" in said, said
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


def test_a_wrong_checksum_is_not_recorded_and_takes_the_proof_away(engine, cable, store):
    # Without this, the checksums of packets that this host made are never verified.
    cable.there("ethtool", "-K", "far", "tx", "off", capture_output=True)
    port = free_port()
    with Recording(f"udp://{cable.ours}:{port}?format=raw&seq=0:8:le&engine={engine}", store=store) as recording:
        cable.send(SENDER, cable.ours, port, 300, 100, 1, 100)
        cable.send(WRONG, cable.ours, port, 300)
        time.sleep(0.1)
    assert recording.on_disk().bytes() == numbered(300, 100)
    account = one_stream(recording)
    # The kernel does not see what the program takes.
    layer, counter = {"packet": ("udp", "InCsumErrors"), "xdp": ("xdp", "wrong_checksums")}[engine]
    wrong = [it for it in account["drop_counters"] if (it["layer"], it["counter"]) == (layer, counter)]
    assert sum(it["after"] - it["before"] for it in wrong) == 1
    assert account["verdict"] == "consistent"
    recording.wait("warning", lambda event: "1 packets have wrong checksums" in event["text"])


def test_what_is_lost_on_the_cable_is_counted_as_tcpdump_counts_it(engine, cable, store, tmp_path):
    """Frames that were never sent: engine and tcpdump find the same, and no counter of this host explains them. tcpdump is
    at the other end, because XDP takes packets before it."""
    port, chance = free_port(), random.Random(3)
    lost = sorted(chance.sample(range(10, 1990), 37))
    program = SENDER.replace("for n in range(0, count, together):", f"for n in sorted(set(range(count)) - set({lost})):")
    capture = tmp_path / "all.pcap"
    there = ["ip", "netns", "exec", cable.name]
    words = [*there, "tcpdump", "-i", "far", "-n", "-Z", "root", "-U", "-w", capture, f"udp dst port {port}"]
    if shutil.which("tcpdump") is None:
        pytest.skip("needs tcpdump")
    with contextlib.ExitStack() as stack:
        dump = stack.enter_context(subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True))
        stack.callback(dump.kill)
        while "listening" not in dump.stderr.readline():
            assert dump.poll() is None
        with Recording(f"udp://{cable.ours}:{port}?format=raw&seq=0:8:le&engine={engine}", store=store) as recording:
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
