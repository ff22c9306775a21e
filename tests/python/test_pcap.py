"""Packet captures as sources. tcpdump captures what a live recording receives, and both accounts must agree; editcap and
Python make the other forms of the same packets."""

import shutil
import struct
import subprocess
import time
from datetime import datetime, timedelta

import pytest
import wire
from baseband import vdif
from fullbore import AS_SEALED, FOUND, GOOD, REFUSED, Recording, accounts, ask, balanced, free_port, generate, run, text
from wire import Listener

FRAME, FPS = 1032, 4000
QUERY = f"format=vdif&frame={FRAME}&fps={FPS}"

TERMS = ("terms", "duplicates", "out_of_window", "bytes")


def wanted(*programs):
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")


class Tcpdump:
    """Captures one UDP port of the loopback interface."""

    def __init__(self, path, port, *options):
        self.path = path
        self.command = [
            "tcpdump", "-i", "lo", "-w", str(path), "-B", "65536", "-U", "--immediate-mode", *options,
            "udp", "and", "dst", "port", str(port),
        ]  # fmt: skip

    def __enter__(self):
        wanted("tcpdump")
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        while line and "listening on" not in line:
            if "permission" in line.lower():
                pytest.skip(f"tcpdump: {line.strip()}")
            line = self.process.stderr.readline()
        assert line, "tcpdump did not begin"
        return self

    def __exit__(self, *_):
        # Everything sent is in the buffer of the kernel; -U writes each packet at once.
        size = -1
        while size != (size := self.path.stat().st_size):
            time.sleep(0.5)
        self.process.terminate()
        told = self.process.communicate()[1]
        assert "\n0 packets dropped by kernel" in told, told


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """A capture of a stream with every kind of fault, the account of the live recording, and the truth."""
    wanted("tcpdump")
    directory = tmp_path_factory.mktemp("captured")
    port, path = free_port(), directory / "live.pcap"
    (directory / "live").mkdir()
    with Recording(f"udp://127.0.0.1:{port}?{QUERY}", store=directory / "live") as recording:
        with Tcpdump(path, port, "--time-stamp-precision=nano"):
            (truth,) = generate(
                port, frame=FRAME, fps=FPS, frames=20_000, seed=7, gentle=True, truth=directory / "truth.json",
                drop=0.01, drop_run=3, duplicate=0.005, reorder=0.01, reorder_distance=10,
            )  # fmt: skip
        (account,) = accounts(recording.stop(AS_SEALED)).values()
    assert account["drop_counters"][0]["before"] == account["drop_counters"][0]["after"]
    return port, path, balanced(account), truth


def recorded(source, store, code=AS_SEALED, **options):
    with Recording(source, store=store, **options) as recording:
        sealed = recording.sealed(code)
        return sealed, recording


def account_of(source, store, code=AS_SEALED):
    sealed, recording = recorded(source, store, code)
    (account,) = accounts(sealed).values()
    return balanced(account), recording


def alike(account, live):
    assert {term: account[term] for term in TERMS} == {term: live[term] for term in TERMS}
    assert account["gaps"] == live["gaps"]


def seen(end):
    """The arrival time of the first or last frame of an account."""
    return datetime.fromisoformat(end["seen"][:26])


FORMS = ["pcap", "nsecpcap", "pcapng"]


@pytest.mark.parametrize("form", FORMS)
def test_the_account_of_a_capture_is_that_of_the_live_recording(form, captured, store, tmp_path):
    port, path, live, truth = captured
    if form != "nsecpcap":
        wanted("editcap")
        converted = tmp_path / f"other.{form}"
        subprocess.run(["editcap", "-F", form, path, converted], check=True)
        path = converted
    account, recording = account_of(f"file:{path}?port={port}&{QUERY}", store)
    alike(account, live)
    assert account["terms"]["overrun"] == 0
    assert account["terms"]["missing"] > 0 and account["duplicates"] == len(truth["port"]["duplicated"])
    # The arrival times are those of the capture: within its run, not now.
    for end in ("first", "last"):
        assert abs(seen(account[end]) - seen(live[end])) < timedelta(seconds=1)
    chunks = b"".join(chunk.read_bytes() for chunk in recording.on_disk().chunks())
    whole = tmp_path / "all.vdif"
    whole.write_bytes(chunks)
    with vdif.open(str(whole), "rb") as file:
        header = vdif.VDIFHeader.fromfile(file)
        assert header.frame_nbytes == FRAME
    assert len(chunks) == account["terms"]["expected"] * FRAME


def test_without_a_port_each_port_with_frames_is_a_stream(captured, store):
    port, path, live, _ = captured
    account, _ = account_of(f"file:{path}?{QUERY}", store)
    alike(account, live)
    told = text(run("record", f"file:{path}?format=mark5b", "--store", store, "--scan", "x", "--session", "y", code=REFUSED).stderr)
    assert f"{port} (" in told and "no UDP port has frames of this format" in told


def test_a_capture_without_counts_says_that_its_drops_are_unknown(captured, store):
    port, path, *_ = captured
    account, _ = account_of(f"file:{path}?port={port}&{QUERY}", store)
    (unread,) = account["unavailable_counters"]
    assert unread["layer"] == "device" and "tells of no dropped packets" in unread["why"]
    assert account["drop_counters"] == []


def vdif_frames(count, first=0):
    second = 1000
    header = lambda n: struct.pack("<8I", second + n // FPS, 50 << 24 | n % FPS, FRAME // 8, 1 << 26, 0, 0, 0, 0)
    return [header(n) + bytes(1000) for n in range(first, first + count)]


def udp(payload, port, six=False):
    head = struct.pack(">4H", 4000, port, len(payload) + 8, 0) + payload
    if six:
        return b"\x60\0\0\0" + struct.pack(">HBB", len(head), 17, 64) + bytes(15) + b"\1" + bytes(15) + b"\1" + head
    return ipv4(head, 0)


def ipv4(data, flags_and_offset, number=0):
    head = struct.pack(">BBHHHBBH", 0x45, 0, len(data) + 20, number, flags_and_offset, 64, 17, 0)
    return head + bytes([192, 0, 2, 1, 192, 0, 2, 2]) + data


def ethernet(packet, tags=b""):
    return bytes(12) + tags + (b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\0") + packet


def write_pcap(path, packets, link=1, snap=None):
    """Packets a quarter of a millisecond apart."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, link))
        for number, packet in enumerate(packets):
            kept = packet[:snap]
            stamp = struct.pack("<II", 1_700_000_000 + number // FPS, number % FPS * (10**9 // FPS))
            file.write(stamp + struct.pack("<II", len(kept), len(packet)) + kept)
    return path


LINKS = {
    "vlan": (1, lambda packet: [ethernet(packet, b"\x81\0\0\5")]),
    "two vlan tags": (1, lambda packet: [ethernet(packet, b"\x88\xa8\0\5\x81\0\0\6")]),
    "raw ip": (101, lambda packet: [packet]),
    "cooked": (113, lambda packet: [bytes(14) + b"\x08\0" + packet]),
    "cooked 2": (276, lambda packet: [b"\x08\0" + bytes(18) + packet]),
    "loopback": (0, lambda packet: [b"\2\0\0\0" + packet]),
}


@pytest.mark.parametrize("link", LINKS)
def test_frames_are_found_behind_every_link_header(link, store, tmp_path):
    number, wrap = LINKS[link]
    packets = [part for frame in vdif_frames(100) for part in wrap(udp(frame, 5000))]
    account, _ = account_of(f"file:{write_pcap(tmp_path / 'x.pcap', packets, number)}?port=5000&{QUERY}", store)
    assert account["terms"]["written"] == account["terms"]["expected"] == 100


def test_ipv6_and_fragments_are_joined(store, tmp_path):
    packets = []
    for number, frame in enumerate(vdif_frames(100)):
        if number % 2:
            packets.append(ethernet(udp(frame, 5000, six=True)))
            continue
        whole = udp(frame, 5000)[20:]
        parts = [(at, whole[at : at + 400]) for at in range(0, len(whole), 400)]
        pieces = [ipv4(part, at // 8 | (0x2000 if at + 400 < len(whole) else 0), number) for at, part in parts]
        packets += [ethernet(piece) for piece in reversed(pieces)]
    account, _ = account_of(f"file:{write_pcap(tmp_path / 'x.pcap', packets)}?port=5000&{QUERY}", store)
    assert account["terms"]["written"] == account["terms"]["expected"] == 100


def test_packets_that_a_snapshot_length_cut_are_damaged(store, tmp_path):
    frames = vdif_frames(100)
    path = write_pcap(tmp_path / "x.pcap", [ethernet(udp(frame, 5000)) for frame in frames])
    packets = path.read_bytes()
    whole = write_pcap(tmp_path / "cut.pcap", [ethernet(udp(frame, 5000)) for frame in frames[:90]]).read_bytes()
    assert packets.startswith(whole)
    # The last ten packets are cut in the file: 200 of their bytes are there.
    size = len(ethernet(udp(frames[0], 5000)))
    rest = packets[len(whole) :]
    cut = b"".join(
        rest[at : at + 8] + struct.pack("<II", 200, size) + rest[at + 16 : at + 216]
        for at in range(0, len(rest), 16 + size)
    )
    (tmp_path / "cut.pcap").write_bytes(whole + cut)
    account, recording = account_of(f"file:{tmp_path / 'cut.pcap'}?port=5000&{QUERY}", store)
    assert (account["terms"]["written"], account["terms"]["damaged"]) == (90, 10)
    assert any("10 datagrams are cut by the snapshot length" in e.get("text", "") for e in recording.events)


def test_packets_that_are_cut_are_left_out_if_their_length_varies(store, tmp_path):
    frames = vdif_frames(20)
    path = write_pcap(tmp_path / "x.pcap", [ethernet(udp(frame, 5000)) for frame in frames], snap=200)
    short = write_pcap(tmp_path / "y.pcap", [ethernet(udp(bytes(40), 5000))] * 3)
    path.write_bytes(path.read_bytes() + short.read_bytes()[24:])
    account, recording = account_of(f"file:{path}?port=5000&format=raw&frame=varying", store)
    assert (account["terms"]["written"], account["bytes"]) == (3, 120)
    assert any("20 datagrams" in e.get("text", "") and "left out" in e["text"] for e in recording.events)


@pytest.mark.parametrize("cut", [1, 7, 16, 500, 1089])
def test_a_cut_file_gives_the_frames_before_the_cut_and_says_so(cut, store, tmp_path):
    path = write_pcap(tmp_path / "x.pcap", [ethernet(udp(frame, 5000)) for frame in vdif_frames(100)])
    path.write_bytes(path.read_bytes()[:-cut])
    account, recording = account_of(f"file:{path}?port=5000&{QUERY}", store)
    assert account["terms"]["written"] == account["terms"]["expected"] == 99
    assert any("is cut: it ends within a packet" in e.get("text", "") for e in recording.events)


def test_the_drop_counts_of_a_pcapng_are_in_the_account(store, tmp_path):
    block = lambda kind, body: struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)
    section = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    interface = block(1, struct.pack("<HHI", 1, 0, 0))
    packets = [ethernet(udp(frame, 5000)) for frame in vdif_frames(100)]
    padded = lambda packet: packet + bytes(-len(packet) % 4)
    enhanced = [
        block(6, struct.pack("<5I", 0, 0, 10_000 * n, len(packet), len(packet)) + padded(packet))
        for n, packet in enumerate(packets)
        if n not in (50, 51, 52)
    ]
    statistics = block(5, struct.pack("<III", 0, 0, 0) + struct.pack("<HHQ", 5, 8, 3) + bytes(4))
    path = tmp_path / "x.pcapng"
    path.write_bytes(section + interface + b"".join(enhanced) + statistics)
    account, _ = account_of(f"file:{path}?port=5000&{QUERY}", store)
    (counter,) = account["drop_counters"]
    assert (counter["layer"], counter["before"], counter["after"]) == ("device", 0, 3)
    assert (account["terms"]["missing"], account.get("unavailable_counters", [])) == (3, [])


def test_packets_before_segmentation_are_split_into_their_frames(store, tmp_path):
    frames = vdif_frames(120)
    bundles = [b"".join(frames[at : at + 40]) for at in range(0, 120, 40)]
    path = write_pcap(tmp_path / "x.pcap", [ethernet(udp(bundle, 5000)) for bundle in bundles])
    account, _ = account_of(f"file:{path}?port=5000&{QUERY}", store)
    assert account["terms"]["written"] == account["terms"]["expected"] == 120


def test_a_file_that_is_no_capture_is_refused(store, tmp_path):
    path = tmp_path / "x.pcap"
    path.write_bytes(b"VDIF" * 100)
    told = run("record", f"file:{path}?port=5000", "--store", store, "--session", "a", "--scan", "b", code=REFUSED)
    assert "begins as neither pcap nor pcapng" in text(told.stderr)


def test_a_source_waits_while_no_block_is_free(store, tmp_path):
    # More data than the block memory holds, and a sink that is slower than the file is read.
    packets = [ethernet(udp(frame, 5000)) for frame in vdif_frames(60_000)]
    path = write_pcap(tmp_path / "x.pcap", packets)
    sealed, _ = recorded(f"file:{path}?port=5000&{QUERY}", store, options=["--buffer", "16MiB"])
    (account,) = accounts(sealed).values()
    assert (account["terms"]["written"], account["terms"]["overrun"]) == (60_000, 0)


def test_threads_of_a_capture_are_split_into_streams(store, tmp_path):
    """More streams than usual, in little memory: each holds blocks while the others are read."""
    threads = 24
    frames = [wire.Vdif(second=1000 + n // FPS, number=n % FPS, thread=t).frame() for n in range(1000) for t in range(threads)]
    lost = {(100, 3), (101, 3), (900, 20)}
    kept = [frame for n, frame in enumerate(frames) if divmod(n, threads) not in lost]
    path = write_pcap(tmp_path / "x.pcap", [ethernet(udp(frame, 5000)) for frame in kept])
    source = f"file:{path}?format=vdif&threads=split&name=rx&fps={FPS}"
    sealed, recording = recorded(source, store, options=["--buffer", "16MiB"])
    told = {name: balanced(account) for name, account in accounts(sealed).items()}
    assert told.keys() == {f"rxt{thread}" for thread in range(threads)}
    for thread in range(threads):
        terms = told[f"rxt{thread}"]["terms"]
        missing = {3: 2, 20: 1}.get(thread, 0)
        assert (terms["expected"], terms["missing"], terms["overrun"]) == (1000, missing, 0), thread
    own = b"".join(frame for n, frame in enumerate(frames) if n % threads == 5)
    assert recording.on_disk().bytes("rxt5") == own


@pytest.mark.parametrize("ports", [(5000, 6000), (6000,)])
def test_a_capture_is_played_with_its_times(ports, tmp_path):
    """Two ports take turns, a quarter of a millisecond apart; all go to one port, each in its order."""
    payloads = [struct.pack(">I", n) + bytes(20 + 5 * n % 900) for n in range(400)]
    packets = [ethernet(udp(payload, (5000, 6000)[n % 2])) for n, payload in enumerate(payloads)]
    path = write_pcap(tmp_path / "x.pcap", packets)
    query = "" if len(ports) == 2 else f"?port={ports[0]}"
    with Listener() as listener:
        told = play_told(f"file:{path}{query}", "--gentle", "--to", f"udp://127.0.0.1:{listener.port}")
    sent = [payload for n, payload in enumerate(payloads) if (5000, 6000)[n % 2] in ports]
    for turn in (0, 1):
        of_port = lambda datagrams: [it for it in datagrams if it[3] % 2 == turn]
        assert of_port(listener.received) == of_port(sent)
    assert told["frames"] == len(listener.received) and told["frames"] == len(sent) and 0.09 < told["due_seconds"] < 0.11
    assert [stream["name"] for stream in told["streams"]] == [str(port) for port in ports]


def play_told(*words):
    """The report of `play`. Exit code 1 means that a busy machine did not keep the timing."""
    return ask("play", *words, code=(GOOD, FOUND))


def test_cut_packets_of_a_capture_are_not_played_and_told(tmp_path):
    path = write_pcap(tmp_path / "x.pcap", [ethernet(udp(bytes(length), 5000)) for length in (40, 500, 41)], snap=200)
    with Listener() as listener:
        told = ask("play", f"file:{path}", "--to", f"udp://127.0.0.1:{listener.port}", code=FOUND)
    assert [len(datagram) for datagram in listener.received] == [40, 41]
    (stream,) = told["streams"]
    assert "1 datagrams are cut by the snapshot length" in stream["losses"][0]


def test_a_parameter_of_sources_is_refused_when_a_capture_is_played(tmp_path):
    path = write_pcap(tmp_path / "x.pcap", [ethernet(udp(bytes(40), 5000))])
    told = run("play", f"file:{path}?format=vdif", "--to", "udp://127.0.0.1:9", code=REFUSED)
    assert "no parameter but `port`" in text(told.stderr)
