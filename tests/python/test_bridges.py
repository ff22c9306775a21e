"""Bridges to control systems, with the clients that their users have: p4p for EPICS PV Access, pytango for Tango."""

import os
import re
import socket
import subprocess
import sys
import time

import pytest
import wire
from fullbore import PATIENCE, REPOSITORY, ask, free_port
from lines import until
from station import SECRETS, Station, new_source, vdif

BRIDGES = REPOSITORY / "python/bridges"
p4p = pytest.importorskip("p4p.client.thread")
tango = pytest.importorskip("tango")

FRAMES = 900


def free_tcp_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def token_file(place, role):
    (place / "token").write_text(f"{SECRETS[role]}\n")
    return place / "token"


class Epics:
    """The bridge as a process, and p4p's client of it."""

    def __init__(self, station, place, role, *options):
        port, search = free_tcp_port(), free_tcp_port()
        loopback = {"EPICS_PVAS_INTF_ADDR_LIST": "127.0.0.1", "EPICS_PVAS_SERVER_PORT": str(port), "EPICS_PVAS_BROADCAST_PORT": str(search)}
        words = [sys.executable, BRIDGES / "epics.py", f"http://127.0.0.1:{station.port}", "--token-file", token_file(place, role)]
        words += ["--prefix", "TEST:", *options]
        self.process = subprocess.Popen(list(map(str, words)), env={**os.environ, **loopback}, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"serving TEST:*\n"
        conf = {"EPICS_PVA_NAME_SERVERS": f"127.0.0.1:{port}", "EPICS_PVA_ADDR_LIST": "", "EPICS_PVA_AUTO_ADDR_LIST": "NO"}
        self.client = p4p.Context("pva", conf=conf, useenv=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        self.process.kill()
        self.process.wait(PATIENCE)

    def get(self, name):
        return self.client.get(f"TEST:{name}", timeout=PATIENCE)

    def until(self, name, wanted):
        end = time.monotonic() + PATIENCE
        while not wanted(found := self.get(name)):
            assert time.monotonic() < end, (name, found)
            time.sleep(0.05)
        return found

    def put(self, name, value):
        self.client.put(f"TEST:{name}", value, timeout=PATIENCE)


def test_epics_shows_a_station_and_records_a_scan(store, tmp_path):
    port, source = new_source()
    with Station(store, tmp_path / "state") as station:
        with Epics(station, tmp_path, "operator", "--source", source, "--session", "test", "--option", "buffer=64MiB") as epics:
            epics.until("STATE", lambda it: str(it) == "idle")
            assert epics.get("FREE") > 0 and epics.get("ALARM") == "" and epics.get("ALARM").severity == 0
            epics.put("START", "one")
            frames = wire.run_of_frames(FRAMES)
            wire.send(frames[:100] + frames[107:], port, pause=3e-4)
            epics.until("STATE", lambda it: str(it) == "recording")
            lost = epics.until("LOST", lambda it: it == 7)
            assert lost.severity == 2 and epics.get("SCAN") == "test_one"
            assert epics.until("ALARM", bool) == "7 frames lost"
            # The bridge finds a daemon that was killed and started again.
            station.kill()
            epics.until("STATE", lambda it: str(it) == "unreachable")
            station.errors.close()
            station.__enter__()
            epics.until("STATE", lambda it: str(it) == "recording")
            epics.put("STOP", 1)
            assert epics.get("STOP") == 1
            epics.until("STATE", lambda it: str(it) == "idle")
    assert ask("verify", "test_one", "--store", store, code=3)["recorded"] == FRAMES - 7


def test_epics_tells_why_a_recording_is_refused(store, tmp_path):
    with Station(store, tmp_path / "state") as station:
        with Epics(station, tmp_path, "viewer", "--source", "udp://127.0.0.1:1", "--session", "test") as epics:
            with pytest.raises(p4p.RemoteError, match="operator"):
                epics.put("START", "one")
        with Epics(station, tmp_path, "operator", "--source", "file:/etc/passwd", "--session", "test") as epics:
            with pytest.raises(p4p.RemoteError, match="is not one of"):
                epics.put("START", "one")
        with Epics(station, tmp_path, "operator") as epics:
            with pytest.raises(p4p.RemoteError, match="no source and session"):
                epics.put("START", "one")
        assert station.ask("GET", "/api/v1/recordings").json == []


class Tango:
    """The device server as a process, and pytango's client of its device."""

    def __init__(self, *words, database=None):
        port = free_tcp_port()
        environment = {**os.environ, "TANGO_HOST": database or "no host"}
        place = f"{database}/rf/recorder/1" if database else f"127.0.0.1:{port}/test/recorder/1#dbase=no"
        command = [sys.executable, BRIDGES / "tango_server.py", *words, "-host", "127.0.0.1", "-port", port]
        self.process = subprocess.Popen(list(map(str, command)), env=environment, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"Ready to accept request\n"
        self.device = tango.DeviceProxy(f"tango://{place}")
        self.device.set_timeout_millis(PATIENCE * 1000)
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(PATIENCE)

    def subscribe(self, name):
        """Collects the change events of an attribute."""
        note = lambda event: self.events.append((name, event.attr_value and (event.attr_value.value, event.attr_value.quality)))
        self.device.subscribe_event(name, tango.EventType.CHANGE_EVENT, note)

    def until(self, name, wanted):
        end = time.monotonic() + PATIENCE
        while not wanted(found := self.device.read_attribute(name)):
            assert time.monotonic() < end, (name, found)
            time.sleep(0.05)
        return found

    def until_phase(self, name):
        phases = list(self.device.get_attribute_config("phase").enum_labels)
        self.until("phase", lambda it: it.value == phases.index(name))


def without_database(station, place, role, *options):
    words = ["test", "-nodb", "-dlist", "test/recorder/1", "--url", f"http://127.0.0.1:{station.port}"]
    return Tango(*words, "--token-file", token_file(place, role), *options)


def test_tango_shows_a_station_and_records_a_scan(store, tmp_path):
    port, source = new_source()
    valid, alarm, invalid = tango.AttrQuality.ATTR_VALID, tango.AttrQuality.ATTR_ALARM, tango.AttrQuality.ATTR_INVALID
    with Station(store, tmp_path / "state") as station:
        options = ["--source", source, "--session", "test", "--option", "buffer=64MiB"]
        with without_database(station, tmp_path, "operator", *options) as bridge:
            device = bridge.device
            bridge.until_phase("idle")
            assert device.State() == tango.DevState.STANDBY and device.alarms == () and device.streams == ()
            assert device.members == (str(store),) and device.memberProblem == ("",)
            assert device.free == device.memberFree[0] > 0 and device.get_attribute_config("free").unit == "B"
            for name in ("lost", "State", "rate"):
                bridge.subscribe(name)
            assert device.Start("one")
            frames = wire.run_of_frames(FRAMES)
            wire.send(frames[:100] + frames[107:], port, pause=1.5e-3)
            bridge.until_phase("recording")
            lost = bridge.until("lost", lambda it: it.value == 7)
            assert lost.quality == alarm and device.read_attribute("overrun").quality == valid
            assert device.missing == 7 and list(device.streamLost) == [7] and len(device.streams) == 1
            assert device.scan == "test_one" and device.alarms == ("7 frames lost",)
            assert device.State() == tango.DevState.ALARM and device.Status() == "recording test_one\n7 frames lost"
            assert device.Mark("on source") == 1
            # The bridge finds a daemon that was killed and started again.
            station.kill()
            bridge.until_phase("unreachable")
            assert device.State() == tango.DevState.UNKNOWN and device.read_attribute("rate").quality == invalid
            with pytest.raises(tango.DevFailed, match="refused"):
                device.Mark("in vain")
            station.errors.close()
            station.__enter__()
            bridge.until_phase("recording")
            assert device.Stop() == 1
            bridge.until_phase("idle")
            assert device.read_attribute("fullIn").quality == invalid and device.lost == 0
            with pytest.raises(tango.DevFailed, match="nothing is being recorded"):
                device.Mark("too late")
            states = lambda: [told[0] for name, told in bridge.events if name == "State"]
            until(lambda: states()[-1] == tango.DevState.STANDBY)
            events, states = list(bridge.events), states()
    assert ("lost", (7, alarm)) in events and events[0] == ("lost", (0, valid))
    assert states[0] == tango.DevState.STANDBY
    told = [str(it) for it in states if it in (tango.DevState.ALARM, tango.DevState.UNKNOWN)]
    assert told == ["ALARM", "UNKNOWN", "ALARM"]
    assert any(told[0] and told[0] > 0 for name, told in events if name == "rate"), events
    assert ask("verify", "test_one", "--store", store, code=3)["recorded"] == FRAMES - 7
    assert [it["text"] for it in ask("info", "test_one", "--store", store, code=None)["markers"]] == ["on source"]


def test_tango_takes_its_properties_from_a_file_and_tells_why_a_request_is_refused(store, tmp_path):
    properties = tmp_path / "properties"

    def from_file(role, **told):
        lines = ['FullboreStation/test/DEVICE/FullboreStation: "test/recorder/1"']
        lines += [f'test/recorder/1->{name}: "{value}"' for name, value in told.items()]
        lines += [f'test/recorder/1->TokenFile: "{token_file(tmp_path, role)}"'] if role else []
        properties.write_text("\n".join(lines) + "\n")
        return Tango("test", f"-file={properties}")

    port, source = new_source()
    with Station(store, tmp_path / "state") as station:
        url = f"http://127.0.0.1:{station.port}"
        told = {"Url": url, "Source": source, "Session": "test", "Option": "buffer=64MiB"}
        with from_file("operator", **told) as bridge:
            bridge.until_phase("idle")
            mine = bridge.device.Start("mine")
            station.start(vdif(free_port()), scan="other", session="other")
            with pytest.raises(tango.DevFailed, match="other_none is not being recorded"):
                bridge.device.StopScan("other_none")
            assert bridge.device.StopScan("other_other") == 1
            station.until(mine, lambda it: it["phase"] == "recording")
            # A bridge that begins anew.
            bridge.device.Init()
            bridge.until_phase("recording")
            assert bridge.device.Stop() == 0 and bridge.device.StopScan("test_mine") == 1
            bridge.until_phase("idle")
        with from_file("viewer", **told) as bridge:
            with pytest.raises(tango.DevFailed, match="operator"):
                bridge.device.Start("one")
        with from_file("operator", **{**told, "Source": "file:/etc/passwd"}) as bridge:
            with pytest.raises(tango.DevFailed, match="is not one of"):
                bridge.device.Start("one")
        with from_file("operator", Url=url) as bridge:
            with pytest.raises(tango.DevFailed, match="no source and session"):
                bridge.device.Start("one")
        with from_file(None, Url=url) as bridge:
            assert bridge.device.State() == tango.DevState.FAULT and "no token" in bridge.device.Status()
            with pytest.raises(tango.DevFailed, match="no token"):
                bridge.device.Stop()


def test_tango_takes_its_properties_from_a_database_in_which_the_page_registers_it(store, tmp_path):
    """The database is the one of pytango, with SQLite."""
    (tmp_path / "database").mkdir()
    host = f"127.0.0.1:{free_tcp_port()}"
    environment = {**os.environ, "TANGO_HOST": host}
    words = [sys.executable, "-m", "tango.databaseds.database", "--port", host.split(":")[1], "--host", "127.0.0.1", "2"]
    database = subprocess.Popen(words, cwd=tmp_path / "database", env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert database.stdout.readline() == b"Ready to accept request\n"
        with Station(store, tmp_path / "state") as station:
            page = (REPOSITORY / "docs/howto/tango.md").read_text()
            (lines,) = [it for it in re.findall(r"```python\n(.*?)```", page, re.S) if "add_device" in it]
            places = {"127.0.0.1:8480": f"127.0.0.1:{station.port}", "/etc/fullbore/tango.token": str(token_file(tmp_path, "operator"))}
            for ours, here in {**places, "input:vlbi": new_source()[1], "duration=40s": "buffer=64MiB"}.items():
                assert ours in lines
                lines = lines.replace(ours, here)
            subprocess.run([sys.executable, "-c", lines], env=environment, check=True, timeout=PATIENCE)
            with Tango("rf", database=host) as bridge:
                bridge.until_phase("idle")
                assert bridge.device.Start("no0001")
                bridge.until_phase("recording")
                assert bridge.device.State() == tango.DevState.RUNNING and bridge.device.Stop() == 1
    finally:
        database.kill()
        database.wait(PATIENCE)
