"""VSI-S: clients that speak as the NASA Field System and as m5copy do, and baseband, which reads what they recorded."""

import os
import re
import socket
import struct
import threading
import time

import pytest
import wire
from fullbore import PATIENCE, Scan, ask, free_ports, run
from station import Station

FRAMES = 300
MODE = "VDIF_1000-8-1-2"  # 1000 frames a second
PAYLOAD = 1000

# The long run has 300.
MANY = 3 * int(os.environ.get("FULLBORE_SEEDS", 4))


class Refused(Exception):
    """An answer whose code is neither 0 nor 1, with its last field, as the Field System reports it."""


class FieldSystem:
    """A client with the habits of the Field System: it sends one command and reads one line. If none comes in time, it
    connects again, waits a second, and sends the same command once more."""

    def __init__(self, port, patience=2.0):
        self.port, self.patience, self.repeated, self.connection = port, patience, 0, None
        self.connect()

    def connect(self):
        if self.connection:
            self.connection.close()
        self.connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def line(self, command):
        self.connection.settimeout(self.patience)
        self.connection.sendall(command.encode() + b"\n")
        held = b""
        while not held.endswith(b"\n"):
            held += self.connection.recv(1024 - len(held))
            assert len(held) <= 1023
        assert held.count(b"\n") == 1
        return held.decode().strip()

    def ask(self, command):
        """The fields after the code."""
        try:
            line = self.line(command)
        except TimeoutError:
            self.connect()
            time.sleep(1)
            self.repeated += 1
            line = self.line(command)
        sign = next(it for it in "=? " if it in line)
        fields = [it.strip() for it in line.split(sign, 1)[1].rstrip("; ").split(":")]
        if fields[0] not in ("0", "1"):
            raise Refused(int(fields[0]), fields[-1])
        return fields[1:]

    def until(self, query, wanted):
        end = time.monotonic() + PATIENCE
        while not wanted(told := self.ask(query)):
            assert time.monotonic() < end, told
            time.sleep(0.02)
        return told

    def set_up(self, ports=(), protocol="udpsnor"):
        self.ask(f"mode = {MODE} ;")
        self.ask("mtu = 9000 ;")
        self.ask(f"net_protocol = {protocol} : 32000000 : 256000000 : 4 ;")
        self.ask("record = nthread : : 2 ;")
        self.ask(f"net_port = {':'.join(ports)} ;")

    def record(self, label):
        """`record=on`, until data can come."""
        self.ask(f"record = on : {label} ;")
        assert self.ask("record?")[0] == "on"

    def off(self, label):
        self.ask(f"record = off : {label} ;")
        self.until("record?", lambda it: it == ["off"])


class LossyLine:
    """Passes a connection on, and loses the first answer to each of some commands."""

    def __init__(self, port, lost):
        self.target, self.lost = port, list(lost)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def carry(self, client):
        with client, socket.create_connection(("127.0.0.1", self.target)) as server:
            asked, answers = client.makefile("rb"), server.makefile("rb")
            for line in asked:
                server.sendall(line)
                answer = answers.readline()
                lost = next((it for it in self.lost if line.startswith(it)), None)
                if lost:
                    self.lost.remove(lost)
                else:
                    client.sendall(answer)


@pytest.fixture
def station(store, tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    options = ["--vsi-s", "127.0.0.1:0", "--vsi-s-files", files]
    with Station(store, tmp_path / "state", options=options) as station:
        station.vsi, station.files = int(station.told["vsi"].rsplit(":", 1)[1]), files
        yield station


def frames(count=FRAMES, **fields):
    return wire.run_of_frames(count, payload_bytes=PAYLOAD, **fields)


def numbered(datagrams):
    return [struct.pack("<Q", 7_000_000 + number) + it for number, it in enumerate(datagrams)]


def armed(station, label):
    """Waits until the recorder of a scan has its sockets."""
    session, scan = label.split("_", 1)
    end = time.monotonic() + PATIENCE
    while True:
        recordings = station.ask("GET", "/api/v1/recordings").json
        for it in recordings:
            if it["scan"] == {"session": session, "scan": scan} and it["phase"] in ("armed", "recording"):
                return
        assert time.monotonic() < end, recordings
        time.sleep(0.02)


def come(station, fs, total):
    """Waits until so many bytes have arrived."""
    return fs.until("record?", lambda it: it[0] == "on" and int(it[3]) >= total)


def test_the_field_system_records_scans_that_verify_and_that_baseband_reads(station, store):
    fs = FieldSystem(station.vsi)
    (port,) = free_ports()
    fs.set_up([str(port)])
    assert fs.ask("mode?") == [MODE, "VDIF", "2", "4000000.000", "1000"]
    assert fs.ask("status?") == ["0x00000001"]
    for number, lost in enumerate([(), (5, 6, 7)]):
        label = f"r1234_Wz_No{number}"
        fs.record(label)
        armed(station, label)
        sent = [it for n, it in enumerate(numbered(frames())) if n not in lost]
        wire.send(sent, port)
        told = come(station, fs, (FRAMES - len(lost)) * (PAYLOAD + 32))
        assert told[:3] == ["on", str(number + 1), label]
        assert fs.ask("status?") == ["0x00000059"]
        assert int(fs.ask("evlbi?")[3].split()[0]) <= len(lost)
        fs.off(label)
        assert fs.ask(f"scan_set = {label} ;") == []
        check = fs.ask("scan_check?")
        assert check[1:4] == [label, "VDIF", "2"] and check[5:] == ["0.30000s", "4Mbps", str(1032 * len(lost)), "1032"]
        assert re.fullmatch(r"2026y1\d\dd\d\dh\d\dm\d\d.\d{4}s", check[4]), check
        stored = wire.read_by_baseband(Scan(label, [store]).chunks()[0])
        whole = [tuple(struct.unpack("<8I", it[:32])) for it in frames()]
        kept = [header for n, header in enumerate(whole) if n not in lost]
        assert [header for header, _ in stored if not header[0] >> 31] == kept
    verified = ask("verify", "r1234_Wz_No0", "--store", store)
    assert verified["good"] and verified["recorded"] == FRAMES
    error = fs.ask("error?")
    assert error[0] == "-1" and "r1234_Wz_No1 is not complete" in error[1], error
    assert fs.ask("error?") == [""] * 5
    assert fs.ask("dir_info?")[0] == "2" and fs.ask("rtime?")[3:5] == ["VDIF", "2"]


def test_a_command_whose_answer_was_lost_begins_and_ends_nothing_twice(station, store):
    line = LossyLine(station.vsi, [b"record = on", b"record = off"])
    fs = FieldSystem(line.port, patience=1)
    (port,) = free_ports()
    fs.set_up([str(port)], "pudp")
    fs.record("r1_Wz_a")
    armed(station, "r1_Wz_a")
    wire.send(frames(), port)
    come(station, fs, FRAMES * 1032)
    fs.ask("record = off : r1_Wz_a ;")
    fs.until("record?", lambda it: it == ["off"])
    assert fs.repeated >= 2 and not line.lost
    recordings = station.ask("GET", "/api/v1/recordings").json
    assert len(recordings) == 1 and recordings[0]["finished"][0]["complete"], recordings
    # The same label again, by intention: it gets a letter, and the answer says which.
    assert fs.ask("record = on : r1_Wz_a ;") == ["r1_Wz_aa"]
    armed(station, "r1_Wz_aa")
    fs.off("r1_Wz_a")
    log = next(station.state.glob("station/*/vsi.log")).read_text()
    assert log.count("record = on") >= 3 and log.count("127.0.0.1") == len(log.splitlines())


def test_record_on_of_sixteen_streams_answers_at_once_and_the_state_is_true(station, store):
    fs = FieldSystem(station.vsi)
    ports = free_ports(16)
    fs.set_up([f"127.0.0.1@{port}=if{n}" for n, port in enumerate(ports)], "pudp")
    assert fs.line("net_port?").count("=if") == 16
    before = time.perf_counter()
    fs.ask("record = on : r1_Wz_wide ;")
    took = time.perf_counter() - before
    assert took < 0.26, took
    assert fs.ask("record?")[:3] == ["on", "1", "r1_Wz_wide"]
    armed(station, "r1_Wz_wide")
    wire.send_in_turn({port: frames(100) for port in ports}, pause=1e-3)
    come(station, fs, 16 * 100 * 1032)
    before = time.perf_counter()
    fs.ask("record = off : r1_Wz_wide ;")
    assert time.perf_counter() - before < 0.26
    fs.until("record?", lambda it: it == ["off"])
    assert ask("verify", "r1_Wz_wide", "--store", store)["recorded"] == 1600
    scan = Scan("r1_Wz_wide", [store])
    assert set(scan.streams) == {f"r1_Wz_wide_dsif{n}" for n in range(16)}
    print(f"record=on answered after {1e3 * took:.1f} ms")


def test_what_cannot_be_recorded_is_refused_and_a_taken_port_is_an_error(station):
    fs = FieldSystem(station.vsi)
    with pytest.raises(Refused, match="no mode is set"):
        fs.ask("record = on : r1_Wz_a ;")
    for command, code in [
        ("record = on : nosession ;", 8),
        ("net_protocol = udt ;", 2),
        ("disk2net = connect : 192.0.2.1 ;", 2),
        ("reset = erase ;", 2),
        ("bank_set?", 7),
        ("nonsense", 7),
        ("scan_set = nothing ;", 4),
    ]:
        with pytest.raises(Refused) as refused:
            fs.ask(command)
        assert refused.value.args[0] == code, command
    (port,) = free_ports()
    fs.set_up([str(port)])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("0.0.0.0", port))
        fs.ask("record = on : r1_Wz_a ;")
        fs.until("record?", lambda it: it == ["off"])
        # As the Field System sends it after a timeout: it does not begin again.
        with pytest.raises(Refused):
            fs.ask("record = on : r1_Wz_a ;")
    assert fs.ask("status?")[0] == "0x00000003"
    assert str(port) in fs.ask("error?")[1]
    assert fs.ask("status?") == ["0x00000001"]


def test_m5copy_finds_a_scan_and_copies_it_to_a_file(station, store):
    fs = FieldSystem(station.vsi)
    (port,) = free_ports()
    fs.set_up([str(port)], "pudp")
    fs.record("r1_Wz_a")
    armed(station, "r1_Wz_a")
    sent = wire.send(frames(), port)
    come(station, fs, FRAMES * 1032)
    fs.off("r1_Wz_a")
    m5copy = M5copy(station.vsi)
    version = m5copy.ask("version?")
    assert version[0] == "0" and re.match("^jive5", version[1]) and version[9] == ""
    for command in ("runtime=m5copy-1:transient", "mode=none", "mtu=1500", "ipd=100ns", "record=mk6:0", "scan_set=r1_Wz_a"):
        assert m5copy.ask(command)[0] == "0", command
    number, name, start, end = m5copy.ask("scan_set?")[1:5]
    assert (number, name, start, end) == ("1", "r1_Wz_a", "0", str(FRAMES * 1032))
    assert m5copy.ask("scan_check?")[2:4] == ["r1_Wz_a", "VDIF"]
    # Its own transfers are refused, so that it ends with an error at once.
    for command in ("disk2net=connect:192.0.2.1", "net2file=open:/tmp/x,n", "net2vbs=open", "vbs2net=connect:r1_Wz_a:192.0.2.1"):
        assert m5copy.ask(command)[0] == "2", command
    assert m5copy.ask("disk2file=../x:::n")[0] == "8"
    assert m5copy.ask("disk2file=a.vdif:::n") == ["1"]
    end = time.monotonic() + PATIENCE
    while m5copy.ask("disk2file?")[1] == "active":
        assert time.monotonic() < end
    assert (station.files / "a.vdif").read_bytes() == b"".join(sent)
    checked = m5copy.ask("file_check?::a.vdif")
    assert checked[1:3] == ["VDIF", "2"] and checked[-1] == "1032", checked
    m5copy.ask("disk2file=part.vdif:1032:3096:n")
    while m5copy.ask("disk2file?")[1] == "active":
        assert time.monotonic() < end
    assert (station.files / "part.vdif").read_bytes() == b"".join(sent[1:3])
    # A file that is there stays as it is.
    m5copy.ask("disk2file=part.vdif:0:1032:w")
    while m5copy.ask("disk2file?")[1] == "active":
        assert time.monotonic() < end
    assert "File exists" in m5copy.ask("error?")[2]
    assert (station.files / "part.vdif").stat().st_size == 2064
    assert sorted(it.name for it in station.files.iterdir()) == ["a.vdif", "part.vdif"]


class M5copy:
    """A client with the habits of m5copy: lines end with LF CR, an answer ends when nothing comes for 10 ms, and it is
    cut at the first `=` or `?`, and then at each colon."""

    def __init__(self, port):
        self.connection = socket.create_connection(("127.0.0.1", port))

    def ask(self, command):
        self.connection.sendall(f"{command};\n\r".encode())
        self.connection.settimeout(5)
        answer = self.connection.recv(4096)
        self.connection.settimeout(0.01)
        try:
            while more := self.connection.recv(4096):
                answer += more
        except TimeoutError:
            pass
        text = answer.decode().strip()
        sign = "=" if "=" in text else "?"
        return [it.strip() for it in text.split(sign, 1)[1].rstrip("; ").split(":")]


def test_a_recording_is_known_to_the_next_daemon(store, tmp_path):
    options = ["--vsi-s", "127.0.0.1:0"]
    (port,) = free_ports()
    with Station(store, tmp_path / "state", options=options) as first:
        fs = FieldSystem(int(first.told["vsi"].rsplit(":", 1)[1]))
        fs.set_up([str(port)], "pudp")
        fs.record("r1_Wz_a")
        armed(first, "r1_Wz_a")
        first.kill()
    wire.send(frames(), port)
    with Station(store, tmp_path / "state", options=options) as second:
        fs = FieldSystem(int(second.told["vsi"].rsplit(":", 1)[1]))
        assert come(second, fs, FRAMES * 1032)[:3] == ["on", "1", "r1_Wz_a"]
        fs.off("r1_Wz_a")
    assert ask("verify", "r1_Wz_a", "--store", store)["recorded"] == FRAMES


def test_only_listed_hosts_command_and_the_port_is_closed_without_the_option(store, tmp_path):
    options = ["--vsi-s", "127.0.0.1:0", "--vsi-s-allow", "192.0.2.0/24"]
    with Station(store, tmp_path / "state", options=options) as station:
        fs = FieldSystem(int(station.told["vsi"].rsplit(":", 1)[1]))
        assert fs.ask("record?") == ["off"] and fs.ask("status?") == ["0x00000001"]
        with pytest.raises(Refused, match="not allowed from this address"):
            fs.ask("mode = none ;")
        fs.ask("record?")
        assert "not allowed" in next(station.state.glob("station/*/vsi-refused.log")).read_text()
    with Station(store, tmp_path / "state") as station:
        assert "vsi" not in station.told
    told = run("serve", "--vsi-s-allow", "192.0.2.1", "--store", store, code=2).stderr.decode()
    assert "--vsi-s" in told


@pytest.mark.parametrize("scans", [4, pytest.param(MANY, marks=pytest.mark.slow)])
def test_short_scans_in_eight_streams_one_after_the_other_have_a_verdict_each(scans, station):
    fs = FieldSystem(station.vsi)
    ports = free_ports(8)
    fs.set_up([f"127.0.0.1@{port}=if{n}" for n, port in enumerate(ports)], "pudp")
    for number in range(scans):
        label = f"r1_Wz_no{number:03}"
        # The last scan may still be written: the next one begins when it is.
        fs.record(label)
        armed(station, label)
        wire.send_in_turn({port: frames(20, second=1000 + number) for port in ports}, pause=1e-3)
        come(station, fs, 8 * 20 * 1032)
        fs.ask(f"record = off : {label} ;")
    fs.until("record?", lambda it: it == ["off"])
    assert fs.ask("error?") == [""] * 5
    end = time.monotonic() + PATIENCE
    while int(fs.ask("dir_info?")[0]) < scans:
        assert time.monotonic() < end
    for number in range(scans):
        assert fs.ask(f"scan_set = {number + 1} ;") == []
        check = fs.ask("scan_check?")
        assert check[1] == f"r1_Wz_no{number:03}" and check[3] == "16" and check[7] == "0", check
