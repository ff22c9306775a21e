"""A day at a station in ten minutes: a schedule in eight streams, with all its clients attached and a member pulled out.

The Field System records scans of its own meanwhile, m5copy copies one, a browser reads the state, a scraper the metrics, and
an alert writes what goes wrong into a log. `make long` has 60 scans; the tests before every commit have three.
"""

import http.client
import json
import os
import shutil
import socket
import threading
import time

import pytest
import wire
from disks import NEEDED, Disk
from fullbore import GOOD, PATIENCE, ask, balanced, free_ports
from prometheus_client.openmetrics import parser
from station import SECRETS
from test_serve_config import Described, csv, utc, wait
from test_vsi import FRAMES, FieldSystem, M5copy, frames

FPS, PAYLOAD = 100, 1000
STREAMS = 8
ERROR = 1 << 1  # of `status?`
MAY_MOUNT = os.geteuid() == 0 and all(map(shutil.which, NEEDED))


class Day(Described):
    """A station with an alert that is written into a log, and a port for VSI-S."""

    def options(self, tokens):
        files = self.state / "files"
        files.mkdir(exist_ok=True)
        return [*super().options(tokens), "--vsi-s", "127.0.0.1:0", "--vsi-s-files", files]


class Feed:
    """A digitiser with eight streams, which never pauses."""

    def __init__(self, ports):
        self.ports, self.over = ports, threading.Event()
        self.thread = threading.Thread(target=self.send, daemon=True)
        self.thread.start()

    def send(self):
        number, due = 0, time.monotonic()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not self.over.is_set():
                (frame,) = wire.run_of_frames(1, FPS, first=number, payload_bytes=PAYLOAD)
                for port in self.ports:
                    sender.sendto(frame, ("127.0.0.1", port))
                number, due = number + 1, due + 1 / FPS
                time.sleep(max(0, due - time.monotonic()))

    def end(self):
        self.over.set()
        self.thread.join()


class Client:
    """Something that goes on beside the schedule, on a thread of its own. Its failure is that of the test."""

    def __init__(self, work):
        self.over, self.failure = threading.Event(), None
        self.thread = threading.Thread(target=self.run, args=(work,), daemon=True)
        self.thread.start()

    def run(self, work):
        try:
            work(self.over)
        except BaseException as error:
            self.failure = error

    def end(self):
        self.over.set()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "a client hangs"
        if self.failure:
            raise self.failure


class Browser:
    """Reads every state."""

    def __init__(self):
        self.scans, self.ahead, self.finished = [], [], {}

    def look(self, station, over):
        connection = http.client.HTTPConnection("127.0.0.1", station.port, timeout=PATIENCE)
        connection.request("GET", "/api/v1/events?hz=5", headers={"Authorization": f"Bearer {SECRETS['viewer']}"})
        answer = connection.getresponse()
        while not over.is_set() and (line := answer.readline()):
            if line.startswith(b"data: "):
                self.take(json.loads(line[6:]))
        connection.close()

    def take(self, state):
        self.ahead += [it["ahead"] for it in state["schedules"]]
        for it in state["recordings"]:
            name = it["progress"] and "_".join(it["progress"]["scan"].values())
            if name and name not in self.scans:
                self.scans.append(name)
            for finished in it["finished"]:
                self.finished[finished["scan"]] = finished


class Scraper:
    """Reads the metrics, as Prometheus does, and keeps what each of some families had."""

    def __init__(self):
        self.failed, self.ahead, self.count = [], [], 0

    def look(self, station, over):
        while not over.wait(0.2):
            text = station.ask("GET", "/metrics", role="viewer").body.decode()
            families = {it.name: it.samples for it in parser.text_string_to_metric_families(text)}
            self.failed += [it.labels["member"] for it in families["fullbore_member_failed"] if it.value]
            self.ahead += [it.value for it in families["fullbore_schedule_scans_ahead"]]
            self.count += 1


class Observer:
    """The Field System records scans of its own, one after the other, and asks in between."""

    def __init__(self, station, port):
        self.station, self.port, self.labels, self.errors, self.refused = station, port, [], [], 0

    def look(self, over):
        fs = FieldSystem(self.station.vsi, patience=10)
        fs.set_up([str(self.port)], "pudp")
        while not over.is_set():
            label = f"r1_Wz_no{len(self.labels) + self.refused:04}"
            fs.record(label)
            if complaint := self.complaint_of(label):
                # A member that is pulled while a recorder begins refuses it, and the next command records.
                self.errors.append(complaint)
                fs.until("record?", lambda it: it == ["off"])
                self.refused += 1
                continue
            wire.send(frames(second=1000 + len(self.labels)), self.port, pause=3e-4)
            fs.until("record?", lambda it: it[0] == "on" and int(it[3]) >= FRAMES * (PAYLOAD + 32))
            status = fs.ask("status?")
            assert int(status[0], 16) & ~ERROR == 0x59 and fs.ask("evlbi?")[0] == "total", status
            fs.off(label)
            self.labels.append(label)
            # A scan that was just sealed is read before the answer.
            fs.ask(f"scan_set = {label} ;")
            check = fs.ask("scan_check?")
            assert check[1:4] == [label, "VDIF", "2"] and check[7] == "0", check
            while int(fs.ask("status?")[0], 16) & ERROR:
                self.errors.append(fs.ask("error?")[1])
            over.wait(0.3)
        assert fs.repeated == 0


    def complaint_of(self, label):
        """Waits until a recording is armed; why it is not, if it never will be."""
        name = dict(zip(("session", "scan"), label.split("_", 1)))

        def known():
            for it in self.station.ask("GET", "/api/v1/recordings").json:
                if all(it["request"][key] == value for key, value in name.items()):
                    return it if it["phase"] in ("armed", "recording", "ended") else None

        return (wait(known, "an armed scan")["complaint"] or {}).get("error")


def copied(station, label):
    """m5copy copies a scan to a file, while the station records."""
    m5copy = M5copy(station.vsi)
    for command in ("runtime=m5copy-1:transient", "mode=none", f"scan_set={label}"):
        assert m5copy.ask(command)[0] == "0", command
    assert m5copy.ask("scan_check?")[2:4] == [label, "VDIF"]
    assert m5copy.ask("disk2file=copy.vdif:::n") == ["1"]
    wait(lambda: m5copy.ask("disk2file?")[1] != "active", "the end of the copy")
    return (station.state / "files/copy.vdif").read_bytes()


@pytest.fixture
def pulled(tmp_path):
    """A member on a disk that can be pulled out, as far as this user may have one."""
    if not MAY_MOUNT:
        yield None
        return
    disk = Disk(tmp_path / "pulled", "ext4")
    yield disk
    disk.away()


SHORT = (3, 1, 1.2)
LONG = (60, 5, 4)
# Ten minutes, for `make long`.
IS_LONG = int(os.environ.get("FULLBORE_SEEDS", 4)) >= 50


@pytest.mark.alone
@pytest.mark.parametrize("scans, seconds, pause", [LONG if IS_LONG else SHORT])
def test_every_scan_of_a_day_has_its_verdict_and_every_event_is_in_a_log(scans, seconds, pause, stores, pulled, tmp_path):
    ports, alerts = free_ports(STREAMS + 1), tmp_path / "alerts"
    members = [*stores[:2], *([pulled.member] if pulled else [])]
    script = f"cat >> {alerts}; echo >> {alerts}"
    text = (
        f'[[input]]\nname = "vlbi"\nendpoints = "udp://127.0.0.1:{ports[0]}-{ports[-2]}?format=vdif&fps={FPS}&frame={PAYLOAD + 32}&block=64KiB"\n'
        f'[[alert]]\nname = "log"\non = ["member", "loss", "recorder", "schedule"]\ncommand = ["/bin/sh", "-c", "{script}"]\n'
    )
    with Day(members, tmp_path / "state", text) as station:
        station.vsi = int(station.told["vsi"].rsplit(":", 1)[1])
        feed, browser, scraper, observer = Feed(ports[:-1]), Browser(), Scraper(), Observer(station, ports[-1])
        clients = [
            Client(lambda over: browser.look(station, over)),
            Client(lambda over: scraper.look(station, over)),
            Client(observer.look),
        ]
        planned = [(f"no{n:04}", 4 + n * (seconds + pause), seconds) for n in range(scans)]
        body = {
            "options": {"source": ["input:vlbi"], "session": "day", "lead": "1s", "buffer": "160MiB", "chunk": "1MiB"},
            "scans": csv(*planned),
        }
        begun = station.ask("PUT", "/api/v1/schedules/day", body, role="operator")
        assert begun.status == 201, begun.body
        soon = lambda wanted, left: wait_long(wanted, left, clients, lambda: (browser.scans, day_of(station)))
        if pulled:
            name, start, _ = planned[scans // 2]
            soon(lambda: f"day_{name}" in browser.scans, start)
            time.sleep(0.3)
            pulled.unplug()
            soon(lambda: f"day_{name}" in browser.finished, seconds)
            pulled.mount()
        soon(lambda: f"day_no{scans - 1:04}" in browser.finished, planned[-1][1] + seconds)
        observed = wait(lambda: observer.labels[:1], "a scan of the Field System")[0]
        copy = copied(station, observed)
        # It is over, and forgotten.
        wait(lambda: station.ask("GET", "/api/v1/schedules/day").status == 404, "the end of the schedule")
        for client in clients:
            client.end()
        feed.end()
        listed = {it["name"]: it for it in station.ask("GET", "/api/v1/scans?limit=1000").json["scans"]}
        logged = [json.loads(line) for line in alerts.read_text().splitlines()] if alerts.exists() else []
        commands = [json.loads(line)["line"] for line in log_of(station, "vsi.log")]
        asked = [json.loads(line) for line in log_of(station, "audit.log")]
    assert copy == b"".join(frames())
    if pulled:
        pulled.repair()
    assert set(listed) == {f"day_{name}" for name, _, _ in planned} | set(observer.labels)
    for name, entry in listed.items():
        assert entry["state"] == "sealed" and entry["complete"], (name, entry["headline"])
    for name, start, length in planned:
        judge(f"day_{name}", length, members)
    # Everybody saw every scan.
    days = [name for name in browser.scans if name.startswith("day_")]
    assert days == [f"day_{name}" for name, _, _ in planned] and browser.ahead[-1] <= 1
    assert scraper.count > scans and scraper.ahead[0] == scans and scraper.ahead[-1] <= 1
    # Every command and every request that changed something.
    for label in observer.labels:
        assert sum(f"record = on : {label}" in it for it in commands) == 1
        assert sum(f"record = off : {label}" in it for it in commands) == 1
    puts = [(it["method"], it["path"], it["status"]) for it in asked if it["method"] != "GET"]
    assert puts == [("PUT", "/api/v1/schedules/day", 201)], puts
    told = [(it["kind"], it["state"]) for it in logged]
    if pulled:
        assert any(str(pulled.member) in out_of(f"day_{name}", members) for name, _, _ in planned)
        assert all(it["kind"] == "member" and it["subject"] == str(pulled.member) for it in logged), logged
        if scans > SHORT[0]:
            # A short scan may be over before the recorder writes to the member. A problem is over when it is gone for five
            # seconds.
            assert str(pulled.member) in scraper.failed
            assert ("member", "begins") in told and ("member", "ends") in told, logged
    else:
        assert logged == [] and scraper.failed == []
    # The Field System was told of the member, and of nothing else.
    assert all(pulled and str(pulled.member) in it for it in observer.errors), observer.errors
    of_session(members, scans)


def wait_long(wanted, seconds, clients, told):
    """Waits for what is due in so many seconds, as long as no client fails."""
    end = time.monotonic() + seconds + PATIENCE / 3
    while not wanted():
        for client in clients:
            if client.failure:
                raise client.failure
        if time.monotonic() > end:
            pytest.fail(str(told()))
        time.sleep(0.05)


def day_of(station):
    """The schedule and its recorder, for a failure."""
    recordings = station.ask("GET", "/api/v1/recordings").json
    return station.ask("GET", "/api/v1/schedules/day").json, [it for it in recordings if it["request"].get("schedule")]


def log_of(station, name):
    (log,) = station.state.glob(f"station/*/{name}")
    return log.read_text().splitlines()


def judge(name, seconds, members):
    """Every stream has its frames and its verdict, and what is stored is what was recorded."""
    info = ask("info", name, "--store", ",".join(map(str, members)))
    assert len(info["accounts"]) == STREAMS and info["headline"].startswith("COMPLETE"), info["headline"]
    for account in info["accounts"]:
        terms = balanced(account)["terms"]
        assert terms["written"] == terms["expected"] and account["verdict"] == "proven", account
        assert abs(terms["written"] - seconds * FPS) <= 0.3 * FPS, (name, terms)
    told = ask("verify", name, "--store", ",".join(map(str, members)), code=lambda it: GOOD if it["good"] else 1)
    allowed = {"manifest-differs", "manifest-missing", "account-missing", "account-differs", "chunk-unfinished", "index-cut"}
    allowed |= {"chunk-too-long", "chunk-twice"}
    assert {it["what"] for it in told["findings"]} <= allowed, told["findings"]


def out_of(name, members):
    """The members that failed in a scan, or were away."""
    manifest = ask("info", name, "--store", ",".join(map(str, members)))["manifest"]
    failed = [it["path"] for it in manifest["members"] if it["failure"]]
    return failed + [it["path"] for it in manifest.get("away", [])]


def of_session(members, scans):
    """The account of the session, in the store."""
    kept = [it for member in members for it in member.glob(".fullbore/sessions/day.*.json")]
    assert len(kept) == 1, kept
    told = json.loads(kept[0].read_text())["scans"]
    assert len(told) == scans
