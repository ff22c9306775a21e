"""SPEAD and RTP: packets of spead2 and of `generate` are recorded, counted, and played to receivers of other people."""

import random
import shutil
import socket
import struct
import subprocess
import threading

import numpy
import pytest
import spead2
import spead2.recv
import spead2.send
import wire
from fullbore import AS_SEALED, INTACT, Recording, accounts, balanced, free_port, generate, play, run, text
from test_account import REACH_AS_THEY_COME, compare

DATA, TIMESTAMP, ANTENNA = 0x4300, 0x1600, 0x4101


def spead_packets(heaps, length=20_000, packet=1472, repeat=False, antennas=1, address_bits=48):
    """The packets that spead2 sends: a description of the items, heaps of data, and the end of the stream."""
    flavour = spead2.Flavour(4, 64, address_bits)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(0.3)
        packets, contents = [], {}

        def receive():
            try:
                while True:
                    packets.append(receiver.recv(65_536))
            except TimeoutError:
                pass

        reader = threading.Thread(target=receive)
        reader.start()
        config = spead2.send.StreamConfig(max_packet_size=packet, rate=50e6)
        sender = spead2.send.UdpStream(spead2.ThreadPool(), [("127.0.0.1", receiver.getsockname()[1])], config)
        group = spead2.send.ItemGroup(flavour=flavour)
        group.add_item(TIMESTAMP, "timestamp", "", shape=(), format=[("u", address_bits)])
        group.add_item(ANTENNA, "antenna", "", shape=(), format=[("u", address_bits)])
        group.add_item(DATA, "data", "", shape=(length,), dtype=numpy.uint8)
        for number in range(heaps):
            content = numpy.random.default_rng(number).integers(0, 256, length, dtype=numpy.uint8)
            group["timestamp"].value, group["antenna"].value = number, number % antennas
            group["data"].value = contents[number] = content
            heap = group.get_heap(descriptors="all" if number == 0 and not repeat else "none", data="all")
            heap.repeat_pointers = repeat
            sender.send_heap(heap)
        if not repeat:
            sender.send_heap(group.get_end())
        reader.join()
    return packets, contents


def head(packet):
    """Heap count, heap length, offset and length of a packet."""
    bits = 8 * packet[3]
    items = struct.unpack(f">{struct.unpack('>H', packet[6:8])[0]}Q", packet[8 : 8 + 8 * struct.unpack(">H", packet[6:8])[0]])
    values = {item << 1 >> bits + 1 & (1 << 63 - bits) - 1: item & (1 << bits) - 1 for item in items if item >> 63}
    return values[1], values[2], values[3], values[4], values.get(ANTENNA)


def record(packets, store, query, scan="one"):
    """Records packets, and returns the accounts by name after the port, and the recording."""
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?{query}&name=rx", store=store, scan=scan) as recording:
        wire.send(packets, port)
    told = accounts(recording.stop(AS_SEALED))
    return {name.removeprefix("rx-"): balanced(account) for name, account in told.items()}, recording


def missing(account):
    """The indices that an account lists as missing, counted from the first packet."""
    first = account["first"]["index"]
    return {gap["first"] - first + n for gap in account["gaps"] for n in range(gap["count"]) if gap["cause"] == "missing"}


@pytest.mark.parametrize("address_bits, repeat", [(48, False), (48, True), (40, False)])
def test_packets_and_heaps_of_spead2_that_are_removed_are_missing(address_bits, repeat, store):
    packets, _ = spead_packets(40, repeat=repeat, address_bits=address_bits)
    chance = random.Random(6448)
    lost_heaps = {head(packets[len(packets) // 2])[0] + n for n in range(3)}
    kept = [
        n for n, packet in enumerate(packets)
        if n < 60 or n == len(packets) - 1 or head(packet)[0] not in lost_heaps and chance.random() > 0.03
    ]  # fmt: skip
    told, recording = record([packets[n] for n in kept], store, "format=spead")
    account = told["heaps"]
    assert account["counted_by"] == "sequence-field"
    assert missing(account) == set(range(len(packets))) - set(kept)
    assert account["terms"]["written"] == len(kept)
    assert recording.on_disk().bytes("rx-heaps") == b"".join(packets[n] for n in kept)
    run("verify", recording.scan, "--store", store, code=INTACT)
    assert "SPEAD" in text(run("info", recording.scan, "--full", "--store", store).stdout)


def test_heaps_that_are_played_to_spead2_are_those_that_it_sent(store):
    packets, contents = spead_packets(30)
    lost = {head(packet)[0] for packet in packets[100:103]}
    told, recording = record(packets[:100] + packets[103:], store, "format=spead")
    assert told["heaps"]["terms"]["missing"] == 3
    port = free_port()
    receiver = spead2.recv.Stream(spead2.ThreadPool(), spead2.recv.StreamConfig(max_heaps=8))
    receiver.add_udp_reader(port, bind_hostname="127.0.0.1", buffer_size=4 << 20)
    received = {}

    def receive():
        group = spead2.ItemGroup()
        for heap in receiver:
            changed = group.update(heap)
            if "data" in changed:
                received[int(changed["timestamp"].value)] = numpy.array(changed["data"].value)

    reader = threading.Thread(target=receive)
    reader.start()
    play(recording.scan, "--store", store, "--to", f"udp://127.0.0.1:{port}")
    reader.join(timeout=20)
    assert not reader.is_alive(), "the end of the stream was played too"
    # Heap counts of spead2 begin with 1.
    expected = {number: content for number, content in contents.items() if number + 1 not in lost}
    assert received.keys() == expected.keys()
    assert all((received[number] == content).all() for number, content in expected.items())


def test_an_item_divides_senders_that_share_a_port(store):
    packets, _ = spead_packets(60, repeat=True, antennas=3)
    lost = {100, 101, 250}
    told, recording = record([p for n, p in enumerate(packets) if n not in lost], store, "format=spead&divide=item:0x4101")
    assert sorted(told) == ["0", "1", "2"]
    for antenna in range(3):
        kept = [p for n, p in enumerate(packets) if n not in lost and head(p)[4] == antenna]
        assert recording.on_disk().bytes(f"rx-{antenna}") == b"".join(kept)
    lost_of = [sum(head(packets[n])[4] == antenna for n in lost) for antenna in range(3)]
    assert [told[str(antenna)]["terms"]["missing"] for antenna in range(3)] == lost_of


def test_heap_counts_divide_senders_that_take_turns(store):
    packets, _ = spead_packets(40, repeat=True)
    # The heaps of one sender arrive long before those of the other.
    order = sorted(packets, key=lambda packet: head(packet)[0] % 2)
    told, recording = record(order, store, "format=spead&divide=heaps:2")
    assert {name: account["verdict"] for name, account in told.items()} == {"0": "proven", "1": "proven"}
    for turn in range(2):
        own = b"".join(packet for packet in packets if head(packet)[0] % 2 == turn)
        assert recording.on_disk().bytes(f"rx-{turn}") == own


FORMS = {"spead": ("heaps", {"heap": 5}), "rtp": ("000000fb", {})}


@pytest.mark.parametrize("form", FORMS)
def test_every_term_of_the_account_equals_the_truth_of_generate(form, store, tmp_path):
    port, written_down = free_port(), tmp_path / "truth.json"
    name, more = FORMS[form]
    with Recording(f"udp://127.0.0.1:{port}?format={form}&block=64KiB", store=store) as recording:
        truths = generate(
            port, format=form, frame=1024, fps=10_000, duration="1s", seed=64, truth=written_down,
            drop=0.01, drop_run=4, duplicate=0.005, reorder=0.01, reorder_distance=10, damage=0.005, **more,
        )  # fmt: skip
    sealed = recording.stop(AS_SEALED)
    truths[0]["name"] = f"{port}-{name}"
    compare(truths, sealed, written_down, REACH_AS_THEY_COME)


def rtp(number, source=0x1234, clock=160, payload=b"\x55" * 320):
    return struct.pack(">BBHII", 0x80, 96, number & 0xFFFF, clock * number & 0xFFFFFFFF, source) + payload


def test_losses_of_rtp_beyond_its_sequence_number_are_counted_by_time(store):
    sent = [*range(65_500, 65_600), *range(65_600 + 65_536, 65_700 + 65_536), *range(140_000, 140_100)]
    packets = [rtp(n) for n in sent] + [rtp(n, source=7) for n in range(50)]
    told, recording = record(packets, store, "format=rtp")
    account = told["00001234"]
    assert account["counted_by"] == "frame-time"
    assert account["terms"]["missing"] == 140_100 - 65_500 - 300
    assert told["00000007"]["terms"] == {**told["00000007"]["terms"], "written": 50, "missing": 0}
    assert recording.on_disk().bytes("rx-00000007") == b"".join(packets[300:])


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
def test_tshark_counts_the_same_losses_of_rtp(store, tmp_path):
    chance = random.Random(3550)
    sent = [n for n in range(65_000, 66_500) if n in (65_000, 66_499) or chance.random() > 0.05]
    told, recording = record([rtp(n) for n in sent], store, "format=rtp")
    recorded = recording.on_disk().bytes("rx-00001234")
    path = tmp_path / "rtp.pcap"
    path.write_bytes(pcap_of(wire.cut(recorded, 332), 5004))
    command = ["tshark", "-r", path, "-d", "udp.port==5004,rtp", "-q", "-z", "rtp,streams"]
    lines = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    (line,) = [line for line in lines if "0x00001234" in line]
    words = line.split()
    at = words.index("0x00001234")
    lost = int(next(word for word in words[at + 1 :] if "(" not in word and word.isdigit() and int(word) != len(sent)))
    assert lost == told["00001234"]["terms"]["missing"] == 1500 - len(sent)


def pcap_of(packets, port):
    """A capture file with these packets in UDP datagrams to a port."""
    made = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101)
    for number, packet in enumerate(packets):
        udp = struct.pack(">HHHH", port, port, 8 + len(packet), 0)
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(packet), 0, 0, 64, 17, 0, b"\x7f\0\0\1", b"\x7f\0\0\1")
        whole = ip + udp + packet
        made += struct.pack("<IIII", 1_790_000_000, 20 * number, len(whole), len(whole)) + whole
    return made


@pytest.mark.parametrize("given, why", [("fps=10", "is not for SPEAD"), ("divide=item:1", "no item")])
def test_parameters_without_a_meaning_for_spead_are_refused(given, why, store):
    done = run("record", f"udp://:5000?format=spead&{given}", "--store", store, "--session", "a", "--scan", "b", code=2)
    assert why in text(done.stderr)
