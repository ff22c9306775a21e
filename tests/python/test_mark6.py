"""A Mark6's control program: a client that speaks as its users' scripts do, and baseband, which reads what it recorded."""

import re
import socket
import time
from datetime import datetime, timedelta, timezone

import pytest
import wire
from fullbore import PATIENCE, Scan, ask, free_ports, run
from station import Station

FRAMES, PAYLOAD = 300, 8192


class Mark6:
    """Sends a command, and reads one line. An answer with a second code other than 0 is refused."""

    def __init__(self, port):
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.answers = self.connection.makefile("r")

    def ask(self, command):
        self.connection.sendall(f"{command};\n".encode())
        line = self.answers.readline()
        told = re.fullmatch(r"!(\w+) ?[=?] ?(\d) : (\d+)(?: : ?(.*?))? ;\n", line)
        assert told, line
        fields = [it.strip() for it in (told[4] or "").split(":")]
        if told[2] != "0":
            raise Refused(int(told[2]), int(told[3]), fields[-1])
        assert told[3] == "0", line
        return fields

    def until(self, query, wanted):
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if wanted(told := self.ask(query)):
                    return told
            except Refused as refused:
                # The scan is being read.
                told = refused
                assert refused.args[0] == 5
            assert time.monotonic() < end, told
            time.sleep(0.02)


class Refused(Exception):
    pass


@pytest.fixture
def station(store, tmp_path):
    with Station(store, tmp_path / "state", options=["--vsi-s", "127.0.0.1:0", "--mark6", "127.0.0.1:0"]) as station:
        station.mark6 = int(station.told["mark6"].rsplit(":", 1)[1])
        yield station


def armed(station):
    end = time.monotonic() + PATIENCE
    while not any(it["phase"] in ("armed", "recording") for it in station.ask("GET", "/api/v1/recordings").json):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_two_input_streams_are_recorded_as_one_scan_that_ends_by_itself(station, store):
    mark6, ports = Mark6(station.mark6), free_ports(2)
    for number, port in enumerate(ports):
        mark6.ask(f"input_stream = add : if{number} : vdif : {PAYLOAD + 32} : 42 : 0 : lo : 127.0.0.1 : {port}")
    mark6.ask("input_stream = commit")
    assert mark6.ask("input_stream?")[8:] == ["if1", "vdif", "8224", "42", "0", "lo", "127.0.0.1", str(ports[1])]
    mark6.ask("group = open : 1")
    mark6.ask("record = on : 2 : 1 : no0001 : r1234 : Wz")
    # The answer was lost, and the command comes again.
    mark6.ask("record = on : 2 : 1 : no0001 : r1234 : Wz")
    armed(station)
    wire.send_in_turn({port: wire.run_of_frames(FRAMES, 100, payload_bytes=PAYLOAD) for port in ports}, pause=5e-4)
    assert mark6.until("record?", lambda it: it[0] == "recording")[1:] == ["1", "1", "r1234_Wz_no0001"]
    assert int(mark6.ask("status?")[0], 16) == 0x311
    mark6.until("record?", lambda it: it[0] == "off")
    (recording,) = station.ask("GET", "/api/v1/recordings").json
    assert recording["finished"][0]["complete"] and recording["exit_code"] == 0, recording
    check = mark6.until("scan_check?", lambda it: it[0] == "r1234_Wz_no0001")
    assert check[1:3] == ["OK", "VDIF"] and check[-1] == "0", check
    assert ask("verify", "r1234_Wz_no0001", "--store", store)["recorded"] == 2 * FRAMES
    for number in range(2):
        (chunk,) = Scan("r1234_Wz_no0001", [store]).chunks(f"if{number}")
        assert len(wire.read_by_baseband(chunk)) == FRAMES


def test_a_scan_begins_at_its_time_and_its_rest_if_that_is_past(station):
    mark6, (port,) = Mark6(station.mark6), free_ports()
    mark6.ask(f"input_stream=add:ifa:vdif:8224:42:0:lo:127.0.0.1:{port}")
    mark6.ask("input_stream=commit")
    vex = lambda seconds: (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Yy%jd%Hh%Mm%Ss")
    with pytest.raises(Refused, match="past"):
        mark6.ask(f"record={vex(-60)}:30:1:no1:r1:Wz")
    mark6.ask(f"record={vex(60)}:30:1:no1:r1:Wz")
    assert mark6.ask("record?")[0] == "pending"
    armed(station)
    (recording,) = station.ask("GET", "/api/v1/recordings").json
    assert recording["request"]["duration"] == "30s" and recording["phase"] == "armed"
    mark6.ask("record=off")
    mark6.until("record?", lambda it: it[0] == "off")
    mark6.ask(f"record={vex(-10)}:60:1:no2:r1:Wz")
    rest = mark6.until("record?", lambda it: it[0] == "recording")
    assert rest[3] == "r1_Wz_no2"
    request = station.ask("GET", "/api/v1/recordings").json[0]["request"]
    assert 47 <= int(request["duration"].rstrip("s")) <= 50, request
    mark6.ask("record=off")
    mark6.until("record?", lambda it: it[0] == "off")


def test_nothing_is_removed_and_only_listed_hosts_command(store, tmp_path):
    options = ["--vsi-s", "127.0.0.1:0", "--mark6", "127.0.0.1:0", "--vsi-s-allow", "192.0.2.0/24"]
    with Station(store, tmp_path / "state", options=options) as station:
        mark6 = Mark6(int(station.told["mark6"].rsplit(":", 1)[1]))
        assert mark6.ask("record?")[0] == "off" and mark6.ask("msg?1")[1] == "this host may ask, and not command"
        for command in ("record=on:3:1:a:b:c", "group=erase:1", "input_stream=delete:a"):
            with pytest.raises(Refused) as refused:
                mark6.ask(command)
            assert refused.value.args[:2] == (4, 1)
        assert "group=erase" in next(station.state.glob("station/*/vsi-refused.log")).read_text()
    assert "--vsi-s" in run("serve", "--mark6", "127.0.0.1:0", "--store", store, code=2).stderr.decode()
