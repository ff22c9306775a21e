"""Kills at a station, at random places: the daemon, a recorder, a browser, and the network between them.

`FULLBORE_KILLS` strikes fall on rounds of three recordings: one over REST, one over VSI-S, one of a schedule. Each strike
comes at a random moment of its round, so that it hits starts, stops and answers as well. `FULLBORE_SEED` makes another
choice; `FULLBORE_STRIKES` names the kinds.
"""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import wire
from fullbore import FOUND, GOOD, PATIENCE, Scan, ask, balanced, free_port, free_ports, run
from prometheus_client.openmetrics import parser
from sites import Relay
from station import SECRETS, Station, new_source
from test_serve_config import utc
from test_vsi import FieldSystem, Refused

STRIKES = int(os.environ.get("FULLBORE_KILLS", 4))
SEED = int(os.environ.get("FULLBORE_SEED", 1))
KINDS = os.environ.get("FULLBORE_STRIKES", "daemon,recorder,daemon,browser,network,frozen").split(",")
FPS, PAYLOAD, FRAME = 1000, 1000, 1032
BATCH = 20  # frames that are sent at once
ROUND = 1.5  # seconds in which the first strike falls; later ones fall in the length of the rounds before
DATA = 0.4  # seconds of data in each round


def again(act, what):
    """Does something until it is answered, as a program that outlives a daemon must."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return act()
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            assert time.monotonic() < end, f"{what}: {error!r}"
            time.sleep(0.02)


def until(wanted, what):
    end = time.monotonic() + PATIENCE
    while not (found := wanted()):
        assert time.monotonic() < end, f"no {what() if callable(what) else what} within {PATIENCE} s"
        time.sleep(0.02)
    return found


class Daemon(Station):
    """A daemon that is started again at the same addresses, and clients that reach it through relays."""

    def __init__(self, stores, state):
        self.stores, self.vsi = stores, free_port_tcp()
        super().__init__(",".join(map(str, stores)), state, options=["--vsi-s", f"127.0.0.1:{self.vsi}"])
        self.way = self.vsi_way = None

    def __enter__(self):
        super().__enter__()
        if not self.way:
            self.way, self.vsi_way = Relay(self.port), Relay(self.vsi)
        return self

    def __exit__(self, *_):
        for way in (self.way, self.vsi_way):
            way.__exit__()
        self.way = None
        super().__exit__()

    def connect(self):
        port = self.way.port if self.way else self.port
        return http.client.HTTPConnection("127.0.0.1", port, timeout=5)

    def again(self):
        """Starts after a kill."""
        self.errors.close()
        self.__enter__()

    def told_of(self, path, **options):
        """The answer to a question, whenever it comes."""
        return again(lambda: self.ask("GET", path, **options).json, path)

    def recorders(self):
        """The processes that record onto this store, by the kernel."""
        found = {}
        for it in Path("/proc").iterdir():
            if it.name.isdigit():
                try:
                    words = (it / "cmdline").read_bytes().decode().split("\0")
                except OSError:
                    continue
                if words[1:2] == ["record"] and f"--store={self.store}" in words:
                    found[int(it.name)] = words
        return found


def free_port_tcp():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


class Stubborn(FieldSystem):
    """The Field System, which connects again until it is answered."""

    def connect(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def line(self, command):
        def once():
            try:
                self.connection = self.connection or socket.create_connection(("127.0.0.1", self.port), timeout=5)
                self.connection.settimeout(5)
                self.connection.sendall(command.encode() + b"\n")
                held = b""
                while not held.endswith(b"\n"):
                    more = self.connection.recv(1024)
                    if not more:
                        raise ConnectionError("the daemon closed the connection")
                    held += more
                return held.decode().strip()
            except OSError:
                self.connect()
                raise

        return again(once, command)


class Sender:
    """Sends numbered frames to a port, until it is told to end. It waits for nobody."""

    def __init__(self, port):
        self.port, self.sent, self.over = port, 0, threading.Event()
        self.thread = threading.Thread(target=self.send, daemon=True)
        self.thread.start()

    def send(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not self.over.is_set():
                for frame in wire.run_of_frames(BATCH, FPS, first=self.sent, payload_bytes=PAYLOAD):
                    sender.sendto(frame, ("127.0.0.1", self.port))
                self.sent += BATCH
                time.sleep(BATCH / FPS)

    def end(self):
        self.over.set()
        self.thread.join()


class Way:
    """A recording that is begun and ended one way."""

    def __init__(self, daemon, number):
        self.daemon, self.number, self.port = daemon, number, free_ports(3)[WAYS.index(type(self))]
        self.sender, self.killed = None, False
        self.source = f"udp://127.0.0.1:{self.port}?format=vdif&fps={FPS}&block=64KiB"

    def recordings(self):
        return [it for it in self.daemon.told_of("/api/v1/recordings") if self.is_mine(it["request"])]

    def running(self):
        return [it for it in self.recordings() if it["phase"] != "ended"]

    def until_armed(self):
        def is_armed():
            mine = self.recordings()
            assert self.killed or not any(it["complaint"] for it in mine), mine
            return self.may_be_over() or any(it["phase"] in ("armed", "recording") for it in mine)

        until(is_armed, lambda: f"armed {self.recordings()}")

    def may_be_over(self):
        """A recorder that was killed is not waited for."""
        return self.killed

    def until_gone(self):
        """Until no recorder of it runs, by the daemon."""
        until(lambda: not self.running(), lambda: f"end of {self.recordings()}")

    def scans(self):
        """The scans of it, by their names."""
        names = sorted(it["name"] for it in self.daemon.told_of("/api/v1/scans?limit=1000")["scans"])
        return [it for it in names if it.split("-")[0] == f"test_{self.scan}"]


class OverRest(Way):
    """A program starts it, asks when the answer was lost whether it runs, and stops it the same way."""

    @property
    def scan(self):
        return f"rest{self.number}"

    def is_mine(self, request):
        return request["scan"] == self.scan

    def begin(self):
        body = {"source": [self.source], "session": "test", "scan": self.scan, "buffer": "32MiB"}
        refused = None
        end = time.monotonic() + PATIENCE
        while not self.running() and not self.killed:
            assert time.monotonic() < end, refused
            try:
                answer = self.daemon.ask("POST", "/api/v1/recordings", body, role="operator")
                refused = answer.body if answer.status != 201 else None
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)
        self.until_armed()

    def end(self):
        for it in self.running():
            # Asking twice is harmless, so a lost answer is asked for again.
            stop = lambda: self.daemon.ask("POST", f"/api/v1/recordings/{it['id']}/stop", role="operator").status
            assert again(stop, "stop") in (202, 409)
            assert again(stop, "stop") in (202, 409)
        self.until_gone()


class OverVsi(Way):
    @property
    def scan(self):
        return f"vsi{self.number}"

    def is_mine(self, request):
        return request["scan"] == self.scan

    def begin(self):
        self.fs = Stubborn(self.daemon.vsi_way.port)
        label, end = f"test_{self.scan}", time.monotonic() + PATIENCE
        while not self.killed:
            try:
                if self.fs.ask("mode?")[0] in ("", "unconfigured", "<unknown>"):
                    self.set_up()
                answer = self.fs.ask(f"record = on : {label} ;")
                assert answer in ([], [label]), answer
                break
            except Refused as refused:
                # A new daemon has no mode, and a new recorder waits for the one before.
                assert time.monotonic() < end, refused
                if self.fs.ask("record?")[0] != "on":
                    self.set_up()
                time.sleep(0.05)
        self.until_armed()

    def set_up(self):
        for command in ("mode = VDIF_1000-8-1-2", "net_protocol = pudp : 32000000 : 256000000 : 4", f"net_port = {self.port}"):
            try:
                self.fs.ask(f"{command} ;")
            except Refused:
                # It records already.
                pass

    def end(self):
        asked = time.monotonic() - 10
        while self.fs.ask("record?") != ["off"]:
            if time.monotonic() > asked + 1:
                asked = time.monotonic()
                try:
                    self.fs.ask(f"record = off : test_{self.scan} ;")
                except Refused:
                    assert self.killed or self.fs.ask("record?") == ["off"]
        self.until_gone()


class OfSchedule(Way):
    @property
    def scan(self):
        return f"plan{self.number}"

    @property
    def path(self):
        return f"/api/v1/schedules/{self.scan}"

    def is_mine(self, request):
        return request.get("schedule") == self.scan

    def begin(self):
        options = {"source": [self.source], "session": "test", "lead": "1s", "buffer": "32MiB"}
        body = {"options": options, "scans": f"scan,start,duration\n{self.scan},{utc(-1)},3600s\n"}
        put = lambda: self.daemon.ask("PUT", self.path, body, role="operator")
        answer = again(put, "a schedule")
        assert answer.status in (200, 201), answer.body
        self.until_armed()

    def may_be_over(self):
        # Its recorder is started again.
        return False

    def end(self):
        cancel = lambda: self.daemon.ask("DELETE", self.path, role="operator")
        answer = again(cancel, "the end of the schedule")
        assert answer.status == 202, answer.body
        self.until_gone()
        until(lambda: self.daemon.told_of(self.path)["state"] == "cancelled", "cancelled schedule")


WAYS = [OverRest, OverVsi, OfSchedule]


class Watch:
    """What the daemon told to be durable, at the most, by scan. It reads every state of every daemon."""

    def __init__(self, daemon):
        self.daemon, self.durable, self.over = daemon, {}, False
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Another test may have a daemon at the same port.
        self.over = True
        self.thread.join(PATIENCE)

    def look(self):
        while not self.over:
            connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=5)
            try:
                connection.request("GET", "/api/v1/events?hz=5", headers={"Authorization": f"Bearer {SECRETS['viewer']}"})
                answer = connection.getresponse()
                while not self.over and (line := answer.readline()):
                    if line.startswith(b"data: "):
                        self.take(json.loads(line[6:]))
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.05)
            finally:
                connection.close()

    def take(self, state):
        for it in state["recordings"]:
            if it["progress"]:
                name = "_".join(it["progress"]["scan"].values())
                self.durable[name] = max(self.durable.get(name, 0), it["progress"]["durable_bytes"])


class Browser:
    """The process of `onlooker.py`."""

    def __init__(self, daemon, seen):
        self.seen, self.counts = seen, {"states": 0, "rows": 0}
        self.words = [sys.executable, Path(__file__).parent / "onlooker.py", daemon.way.port, f"127.0.0.1:{daemon.port}"]
        self.words += [SECRETS["viewer"], seen]

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()

    def start(self):
        self.process = subprocess.Popen(list(map(str, self.words)), stderr=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)
        if self.seen.exists():
            for key, value in json.loads(self.seen.read_text()).items():
                self.counts[key] += value
            self.seen.unlink()


class Striker:
    """Strikes once, some time after it is armed."""

    def __init__(self, kind, after, chance, daemon, browser, ways):
        self.kind, self.after, self.chance, self.daemon = kind, after, chance, daemon
        self.browser, self.ways, self.failure = browser, ways, None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            time.sleep(self.after)
            getattr(self, f"strike_{self.kind}")()
        except Exception as error:
            self.failure = error
            raise

    def join(self):
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive() and self.failure is None, (self.kind, self.failure)

    def strike_daemon(self):
        self.daemon.kill()
        time.sleep(self.chance.uniform(0, 0.2))
        self.daemon.again()

    def strike_recorder(self):
        recorders = self.daemon.recorders()
        if not recorders:
            return
        pid = self.chance.choice(sorted(recorders))
        words = " ".join(recorders[pid])
        for way in self.ways:
            way.killed |= str(way.port) in words
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def strike_browser(self):
        self.browser.kill()
        self.browser.start()

    def strike_network(self):
        ways = [self.daemon.way, self.daemon.vsi_way]
        for way in ways:
            way.away = self.chance.random() < 0.5
            way.cut()
        time.sleep(self.chance.uniform(0, 0.3))
        for way in ways:
            way.away = False

    def strike_frozen(self):
        """The daemon and the browser stand still for a while."""
        pids = [self.daemon.process.pid, self.browser.process.pid]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.1, 0.6))
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def frames_of(scan, stores):
    """The numbers of the frames that a scan's files hold, without those that stand for a missing one."""
    held = []
    for path in Scan(scan, stores).chunks():
        raw = path.read_bytes()
        assert len(raw) % FRAME == 0, (path, len(raw))
        for frame in wire.cut(raw, FRAME):
            second, number = (int.from_bytes(frame[at : at + 4], "little") for at in (0, 4))
            if not second >> 31:
                held.append(((second & 0x3FFFFFFF) - 1000) * FPS + (number & 0xFFFFFF))
    return sorted(held)


def holds(scan, stores, durable):
    """A scan verifies, its account names what is not in it, and everything that was told to be durable is there."""
    told = ask("verify", scan, "--store", ",".join(map(str, stores)), code=(GOOD, FOUND, 3))
    assert told["good"], (scan, told["findings"])
    account = balanced(Scan(scan, stores).account())
    held, terms = frames_of(scan, stores), account["terms"]
    assert len(held) == len(set(held)) == terms["written"], (scan, len(held), terms)
    if held:
        # Frames before the first one that is held may be named as well.
        absent = (held[-1] - held[0] + 1) - len(held)
        assert absent <= terms["expected"] - terms["written"], (scan, held[0], held[-1], terms)
    assert len(held) * FRAME >= durable, (scan, len(held) * FRAME, durable)
    return held, account


def is_true(daemon, ways):
    """The daemon shows what runs, and how what ended has ended."""
    recordings = daemon.told_of("/api/v1/recordings")
    shown = {it["pid"] for it in recordings if it["phase"] != "ended"}
    assert shown == set(daemon.recorders()), (shown, daemon.recorders(), recordings)
    families = parser.text_string_to_metric_families(again(lambda: daemon.ask("GET", "/metrics"), "metrics").body.decode())
    counted = {it.name: it for it in families}["fullbore_recordings"].samples
    assert sum(it.value for it in counted) == len(shown)
    states = {it["name"]: it["state"] for it in daemon.told_of("/api/v1/scans?limit=1000")["scans"]}
    for way in ways:
        for it in way.recordings():
            name = "_".join(it["scan"].values()) if it["scan"] else f"test_{way.scan}"
            if states.get(name) == "unsealed":
                assert way.killed and it["complaint"], (name, it)
        if not way.killed:
            assert all(it["complaint"] is None for it in way.recordings()), way.recordings()
            assert [states[name] for name in way.scans()] == ["sealed"], (way.scans(), states)


def test_a_station_that_is_killed_anywhere_loses_nothing_and_tells_the_truth(stores, tmp_path):
    chance, told = random.Random(SEED), []
    length = ROUND
    with (
        Daemon(stores[:2], tmp_path / "state") as daemon,
        Browser(daemon, tmp_path / "seen") as browser,
        Watch(daemon) as watch,
    ):
        for number in range(STRIKES):
            kind = KINDS[number % len(KINDS)] if number < len(KINDS) else chance.choice(KINDS)
            ways = [make(daemon, number) for make in WAYS]
            begun = time.monotonic()
            strike = Striker(kind, chance.uniform(0, length), chance, daemon, browser, ways)
            told.append((kind, round(strike.after, 3), round(length, 3)))
            print(number, *told[-1], flush=True)
            together(way.begin for way in ways)
            for way in ways:
                way.sender = Sender(way.port)
            time.sleep(DATA)
            for way in ways:
                way.sender.end()
            print("sent", [way.sender.sent for way in ways], flush=True)
            # What was sent is in the socket of its recorder.
            together(way.end for way in ways)
            length = min(2 * ROUND, time.monotonic() - begun)
            strike.join()
            is_true(daemon, ways)
            judge(daemon, ways, watch, told)
        browser.kill()
        assert browser.counts["states"] > STRIKES and browser.counts["rows"] > 0, browser.counts
        assert again(lambda: daemon.ask("GET", "/api/v1/status").status, "the state") == 200
    print(f"{STRIKES} strikes: {told}; the browser saw {browser.counts}")


def test_a_recorder_of_an_earlier_daemon_that_is_killed_is_not_shown_as_stopped(store, tmp_path):
    port, source = new_source()
    with Station(store, tmp_path / "state") as first:
        begun = first.start(source)
        wire.send(wire.run_of_frames(900), port)
        first.until(begun["id"], lambda it: it["progress"] and it["progress"]["durable_bytes"] > 0)
        first.kill()
    with Station(store, tmp_path / "state") as second:
        os.kill(begun["pid"], signal.SIGKILL)
        ended = second.until(begun["id"], lambda it: it["phase"] == "ended")
        assert ended["exit_code"] is None and "without sealing test_one" in ended["complaint"]["error"], ended
        assert "fullbore recover test_one" in ended["complaint"]["advice"]
        (listed,) = second.ask("GET", "/api/v1/scans").json["scans"]
        assert listed["state"] == "unsealed"


def test_a_demonstration_removes_what_a_killed_one_left(tmp_path):
    with Station(None, tmp_path / "first") as first:
        left = Path(first.told["state"]).parent
        until(lambda: first.ask("GET", "/api/v1/recordings").json, "a recording")
        (recording,) = first.ask("GET", "/api/v1/recordings").json
        first.until(recording["id"], lambda it: it["progress"] and it["progress"]["bytes"] > 0)
        first.kill()
    assert left.is_dir()
    os.kill(recording["pid"], 0)
    with Station(None, tmp_path / "second") as second:
        assert not left.exists() and Path(second.told["state"]).parent.is_dir()
        until(lambda: not Path(f"/proc/{recording['pid']}/fd/1").exists(), "end of the recorder")


def together(works):
    """Does several things at once; the first failure counts."""
    failures = []

    def work(it):
        try:
            it()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(it,)) for it in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def judge(daemon, ways, watch, told):
    """Looks into every scan of a round."""
    store = ",".join(map(str, daemon.stores))
    for way in ways:
        sent = way.sender.sent
        for name in way.scans():
            if way.killed:
                run("recover", name, "--store", store, code=(GOOD, FOUND, 2))
            durable = watch.durable.get(name, 0)
            if not way.killed:
                held, account = holds(name, daemon.stores, durable)
                terms, first = account["terms"], sent - account["terms"]["expected"]
                assert 0 <= first and held[-1] < sent, (name, held[-1], sent, terms, told)
                if terms["written"] == terms["expected"]:
                    # Nothing is named, so everything is there. A busy machine may lose some, and then names them.
                    assert held == list(range(first, sent)), (name, held[0], held[-1], sent, terms, told)
                # A scan of a schedule begins at its time, a moment after its sockets are open.
                is_late = terms["written"] < terms["expected"] or isinstance(way, OfSchedule)
                assert first == 0 or is_late, (name, first, sent, terms, told)
            elif durable:
                held, _ = holds(name, daemon.stores, durable)
                assert held[-1] < sent
