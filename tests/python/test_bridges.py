"""Bridges to control systems, with the clients that their users have: p4p for EPICS PV Access."""

import os
import socket
import subprocess
import sys
import time

import pytest
import wire
from fullbore import PATIENCE, REPOSITORY, ask
from station import SECRETS, Station, new_source

BRIDGES = REPOSITORY / "python/bridges"
p4p = pytest.importorskip("p4p.client.thread")

FRAMES = 900


def free_tcp_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


class Epics:
    """The bridge as a process, and p4p's client of it."""

    def __init__(self, station, place, role, *options):
        (place / "token").write_text(f"{SECRETS[role]}\n")
        port, search = free_tcp_port(), free_tcp_port()
        loopback = {"EPICS_PVAS_INTF_ADDR_LIST": "127.0.0.1", "EPICS_PVAS_SERVER_PORT": str(port), "EPICS_PVAS_BROADCAST_PORT": str(search)}
        words = [sys.executable, BRIDGES / "epics.py", f"http://127.0.0.1:{station.port}", "--token-file", place / "token"]
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
            with pytest.raises(p4p.RemoteError, match="--source"):
                epics.put("START", "one")
        assert station.ask("GET", "/api/v1/recordings").json == []
