"""The file of a station: what is wrong in it, TLS, the Unix socket, limits, schedules, alerts, and systemd."""

import hashlib
import http.client
import http.server
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from datetime import datetime, timedelta, timezone

import pytest
import wire
from fullbore import BINARY, FOUND, PATIENCE, REFUSED, REPOSITORY, ask, free_port, run
from prometheus_client.openmetrics import parser
from station import ROLES, SECRETS, Station, new_source

PACKAGING = REPOSITORY / "packaging"
FRAMES = 900


class Described(Station):
    """A station that a file describes; `text` is added to its store and its tokens."""

    def __init__(self, store, state, text, listen=True, tokens=ROLES):
        super().__init__(store, state)
        self.text, self.listen, self.tokens = text, listen, tokens
        self.file, self.scheme = state / "station.toml", None

    def options(self, _):
        self.write(self.text)
        return ["--config", self.file]

    def write(self, text, tokens=None):
        members = [str(it) for it in (self.store if isinstance(self.store, list) else [self.store])]
        parts = [f"[store]\nmembers = {json.dumps(members)}\n"]
        if self.listen:
            parts.append('[listen]\nhttp = "127.0.0.1:0"\n')
        for role in self.tokens if tokens is None else tokens:
            secret = hashlib.sha256(SECRETS[role].encode()).hexdigest()
            parts.append(f'[[token]]\nname = "{role}"\nrole = "{role}"\nsha256 = "{secret}"\n')
        self.file.write_text("\n".join([*parts, text]))

    def reload(self):
        """Sends SIGHUP, and returns what the daemon told about it."""
        before = len(self.lines)
        self.process.send_signal(signal.SIGHUP)
        wait(lambda: len(self.lines) > before, "a reload")
        return self.lines[-1]


def wait(wanted, what):
    end = time.monotonic() + PATIENCE
    while not (found := wanted()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return found


def utc(seconds):
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def csv(*scans):
    lines = [f"{name},{utc(start)},{length}s" for name, start, length in scans]
    return "\n".join(["scan,start,duration", *lines, ""])


# --- the file


def test_check_tells_everything_that_is_wrong_at_once(tmp_path):
    file = tmp_path / "station.toml"
    file.write_text(
        '[store]\nmembers = "nowhere"\n\n[listen]\nhttp = "0.0.0.0:8480"\n\n[[input]]\nname = "vlbi"\n'
        'endpoints = "udp://0.0.0.0:46220?format=vdiff"\n\n[[token]]\nname = "a"\nrole = "boss"\nsha256 = "12"\n'
    )
    told = run("serve", "--config", file, "--check", code=FOUND).stdout.decode()
    lines = [int(number) for number in re.findall(rf"^{re.escape(str(file))}, line (\d+): ", told, re.MULTILINE)]
    assert lines == [2, 5, 9, 13, 14], told
    assert "move the address to `https`" in told and "viewer (sees), operator (records)" in told
    faults = ask("serve", "--config", file, "--check", code=FOUND)
    assert not faults["good"] and [it["line"] for it in faults["faults"]] == lines
    # It does not start with such a file, and tells the same.
    refused = run("serve", "--config", file, code=REFUSED).stderr.decode()
    assert all(f"line {line}: " in refused for line in lines)
    file.write_text("[store\n")
    assert "line 1" in run("serve", "--config", file, "--check", code=FOUND).stdout.decode()
    run("serve", "--config", tmp_path / "none.toml", "--check", code=REFUSED)
    run("serve", "--check", code=REFUSED)


def test_the_shipped_example_is_right(tmp_path):
    text = (PACKAGING / "station.toml").read_text()
    # What only a real host has.
    for disk in ("disk0", "disk1"):
        (tmp_path / disk).mkdir()
    text = text.replace("/mnt/", f"{tmp_path}/").replace("/run/fullbore/", f"{tmp_path}/").replace('"oper"', '"root"')
    (tmp_path / "station.toml").write_text(text)
    told = ask("serve", "--config", tmp_path / "station.toml", "--check")
    assert told["good"] and told["describes"]["members"] == 2 and told["describes"]["listeners"] == 3
    # The tables that are comments are right as well.
    (tmp_path / "vgos.csv").write_text(csv(("a", 60, 40)))
    whole = re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.MULTILINE).replace("/etc/fullbore/", f"{tmp_path}/")
    (tmp_path / "station.toml").write_text(whole)
    told = ask("serve", "--config", tmp_path / "station.toml", "--check")
    assert told["describes"]["schedules"] == 1 and told["describes"]["alerts"] == 1


def test_a_request_names_inputs_and_a_reload_changes_them(store, tmp_path):
    port, source = new_source()
    text = f'[limits]\ninputs-only = true\n\n[[input]]\nname = "vlbi"\nendpoints = "{source}"\n'
    with Described(store, tmp_path / "state", text) as station:
        assert station.ask("GET", "/api/v1/inputs", role="viewer").json == {"inputs": {"vlbi": [source]}, "only": True}
        refused = station.start(source, code=400)
        assert "records its inputs only" in refused["detail"]
        assert "there are vlbi" in station.start("input:other", code=400)["detail"]
        begun = station.start("input:vlbi")
        assert begun["request"]["source"] == ["input:vlbi"]
        wire.send(wire.run_of_frames(FRAMES), port)
        station.until(begun["id"], lambda it: it["progress"] and it["progress"]["streams"][0]["frames"] == FRAMES)
        followed = []
        for path in ("/api/v1/events?hz=5", f"/api/v1/recordings/{begun['id']}/output"):
            connection = station.connect()
            connection.request("GET", path, headers={"Authorization": f"Bearer {SECRETS['viewer']}"})
            followed.append(connection.getresponse())
            assert followed[-1].status == 200 and followed[-1].read1()
        # A reload takes clients, inputs and limits, and names what it cannot take. The recording goes on.
        station.write(text.replace("vlbi", "other") + f'[[user]]\nname = "root"\nrole = "viewer"\n', tokens=["admin"])
        told = station.reload()
        assert told == {"event": "reloaded", "taken": True, "needs_restart": [], "problems": []}
        assert station.ask("GET", "/api/v1/inputs").json["inputs"] == {"other": [source]}
        assert station.ask("GET", "/api/v1/status", role="viewer").status == 401
        # Who is not known any more does not go on following.
        end = time.monotonic() + PATIENCE
        for answer in followed:
            while answer.read1():
                assert time.monotonic() < end
        station.file.write_text(station.file.read_text().replace("127.0.0.1:0", "127.0.0.1:1"))
        assert station.reload()["needs_restart"] == ["[listen] http, https, unix"]
        station.file.write_text("nonsense")
        told = station.reload()
        assert not told["taken"] and "line 1" in told["problems"][0]
        assert station.ask("GET", "/api/v1/inputs").json["inputs"] == {"other": [source]}
        ended = station.ask("POST", f"/api/v1/recordings/{begun['id']}/stop")
        assert ended.status == 202
        assert station.until(begun["id"], lambda it: it["phase"] == "ended")["finished"][0]["complete"]


# --- limits


def test_a_thousand_silent_connections_stop_nobody_and_use_little_memory(store, tmp_path):
    memory = lambda: int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{station.process.pid}/status").read())[1])
    text = '[limits]\nconnections = 100\nconnections-per-address = 50\nheader-timeout = "2s"\nbody-timeout = "1s"\n'
    with Described(store, tmp_path / "state", text) as station:
        station.ask("GET", "/")
        before = memory()
        silent = [socket.create_connection(("127.0.0.1", station.port), timeout=PATIENCE) for _ in range(1000)]
        silent[-1].sendall(b"GET / HTTP/1.1\r\nHost: ")
        for _ in range(3):
            assert station.ask("GET", "/api/v1/status").status == 200
        descriptors = len(os.listdir(f"/proc/{station.process.pid}/fd"))
        assert descriptors < 120 and memory() - before < 20_000, (descriptors, memory() - before)
        # The last one is closed after the header timeout.
        wait(lambda: len(os.listdir(f"/proc/{station.process.pid}/fd")) < descriptors - 40, "closed connections")
        for one in silent:
            one.close()
        slow = station.connect()
        slow.putrequest("POST", "/api/v1/recordings", skip_host=True)
        for name, value in {"Host": f"127.0.0.1:{station.port}", "Content-Length": "100"}.items():
            slow.putheader(name, value)
        slow.endheaders(b"{")
        answer = slow.getresponse()
        assert answer.status == 408 and "1 s" in json.loads(answer.read())["detail"]


# --- TLS and the Unix socket


def test_other_hosts_need_tls_and_a_token(store, tmp_path):
    text = '[listen]\nhttps = "0.0.0.0:0"\nnames = ["localhost"]\n'
    with Described(store, tmp_path / "state", text, listen=False) as station:
        (certificate,) = tmp_path.glob("state/station/*/tls/certificate.pem")
        context = ssl.create_default_context(cafile=certificate)
        station.connect = lambda: http.client.HTTPSConnection("localhost", station.port, timeout=PATIENCE, context=context)
        with socket.create_connection(("localhost", station.port)) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as encrypted:
                shown = hashlib.sha256(encrypted.getpeercert(binary_form=True)).hexdigest().upper()
                assert encrypted.version() == "TLSv1.3"
        assert station.told["fingerprint"].replace(":", "") == shown
        assert station.told["login"].startswith(f"https://localhost:{station.port}/#login=")
        for host in (f"localhost:{station.port}", f"127.0.0.1:{station.port}"):
            assert station.ask("GET", "/api/v1/status", headers={"Host": host}).status == 200
        assert station.ask("GET", "/", headers={"Host": f"evil.example:{station.port}"}).status == 403
        login = station.ask("POST", "/api/v1/session", {"token": SECRETS["admin"]}, role=None)
        assert login.status == 201 and "; Secure" in login.headers["Set-Cookie"]
        sent = {"Cookie": login.headers["Set-Cookie"].partition(";")[0], "X-Fullbore-CSRF": login.json["csrf"]}
        link = lambda origin: station.ask("POST", "/api/v1/login-links", role=None, headers={**sent, "Origin": origin})
        assert link(f"https://localhost:{station.port}").status == 201
        assert link(f"http://localhost:{station.port}").status == 403
        with socket.create_connection(("localhost", station.port), timeout=PATIENCE) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" not in plain.recv(1000)
        # The next daemon has the same certificate.
        fingerprint = station.told["fingerprint"]
    with Described(store, tmp_path / "state", text, listen=False) as again:
        again.connect = lambda: http.client.HTTPSConnection("localhost", again.port, timeout=PATIENCE, context=context)
        assert again.told["fingerprint"] == fingerprint
    # A certificate of files, which are taken out of the file of the station later.
    given = f'certificate = "{certificate}"\nkey = "{certificate.with_name("key.pem")}"\n'
    with Described(store, tmp_path / "other", text + given, listen=False) as other:
        assert other.told["fingerprint"] == fingerprint
        other.write(text)
        assert other.reload()["problems"] == []
        (made,) = tmp_path.glob("other/station/*/tls/certificate.pem")
        assert ssl.get_server_certificate(("127.0.0.1", other.port)).split() == made.read_text().split() != certificate.read_text().split()
        other.connect = lambda: http.client.HTTPSConnection(
            "localhost", other.port, timeout=PATIENCE, context=ssl.create_default_context(cafile=made)
        )
    for address, tokens, why in (("https", "", "the file has no token"), ("http", None, "nothing is encrypted")):
        file = tmp_path / "open.toml"
        token = "" if tokens == "" else f'[[token]]\nname = "a"\nrole = "viewer"\nsha256 = "{64 * "0"}"\n'
        file.write_text(f'[store]\nmembers = "{store}"\n[listen]\n{address} = "0.0.0.0:0"\n{token}')
        assert why in run("serve", "--config", file, code=REFUSED).stderr.decode()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("station", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


def as_user(uid, path, method, route):
    """The status of a request that a process of another user makes."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        connection = UnixConnection(path)
        connection.request(method, route)
        os.write(write, str(connection.getresponse().status).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with open(read) as told:
        return int(told.read())


def test_the_kernel_says_who_uses_the_unix_socket(store, tmp_path):
    daemon, nobody, verify = 1, 65534, "/api/v1/scans/test_none/verify"
    with tempfile.TemporaryDirectory(prefix="fullbore-") as place:
        os.chmod(place, 0o755)
        path = f"{place}/s"
        text = f'[listen]\nunix = "{path}"\nunix-mode = "0666"\nunix-role = "viewer"\n'
        text += f'[[user]]\nname = "someone"\nuid = {daemon}\nrole = "operator"\n'
        with Described(store, tmp_path / "state", text, listen=False) as station:
            assert station.told["address"] is None and station.told["urls"] == [f"unix:{path}"]
            assert station.told["login"] is None
            station.connect = lambda: UnixConnection(path)
            told = station.ask("GET", "/api/v1/session", role=None).json
            assert told == {"name": f"uid-{os.getuid()}", "role": "admin", "csrf": None}
            assert station.ask("GET", "/api/v1/session", role="viewer").json["role"] == "viewer"
            if os.getuid() == 0:
                assert as_user(nobody, path, "GET", "/api/v1/status") == 200
                assert as_user(nobody, path, "POST", verify) == 403
                assert as_user(daemon, path, "POST", verify) == 404
                assert as_user(daemon, path, "DELETE", "/api/v1/scans/test_none") == 403
                (log,) = tmp_path.glob("state/station/*/audit.log")
                names = [json.loads(line)["who"] for line in log.read_text().splitlines()]
                assert names == [f"uid-{nobody}", "someone", "someone"]
        assert not os.path.exists(path)


# --- schedules


def test_a_schedule_outlives_its_daemon_and_its_recorder(store, tmp_path):
    port, source = new_source()
    stop = threading.Event()

    def sending():
        frames = wire.run_of_frames(20_000)
        for first in range(0, len(frames), 200):
            if stop.wait(0.2):
                return
            wire.send(frames[first : first + 200], port)

    sender = threading.Thread(target=sending, daemon=True)
    body = {
        "options": {"source": [source], "session": "test", "lead": "1s", "buffer": "64MiB"},
        "scans": csv(("one", 2.5, 1), ("two", 5.5, 60), ("far", 3600, 10)),
    }
    state = tmp_path / "state"
    with Station(store, state) as first:
        sender.start()
        put = lambda at, body: at.ask("PUT", "/api/v1/schedules/vgos", body, role="operator")
        begun = put(first, body)
        assert begun.status == 201 and begun.json["state"] == "running", begun.body
        recording = first.ask("GET", f"/api/v1/recordings/{begun.json['recording']}").json
        assert recording["phase"] in ("waiting", "armed")
        status = first.ask("GET", "/api/v1/status").json
        assert [it["scan"] for it in status["next_scans"]] == ["one", "two", "far"]
        first.kill()
    # `one` begins while no daemon runs.
    time.sleep(1.5)
    with Station(store, state) as second:
        shown = second.ask("GET", "/api/v1/schedules/vgos").json
        assert (shown["state"], shown["recording"]) == ("running", recording["id"])
        wait(lambda: "test_one" in str(second.ask("GET", "/api/v1/scans").json), "the first scan")
        # The recorder is killed in the second scan. Another one records the rest.
        pid = recording["pid"]
        scans = lambda: {it["name"]: it["state"] for it in second.ask("GET", "/api/v1/scans").json["scans"]}
        wait(lambda: scans().get("test_two") == "recording", "the second scan")
        os.kill(pid, signal.SIGKILL)
        wait(lambda: scans().get("test_two-2") == "recording", "the rest of the second scan")
        assert scans()["test_one"] == "sealed"
        shown = second.ask("GET", "/api/v1/schedules/vgos").json
        assert shown["state"] == "running" and shown["recording"] != recording["id"]
        # A scan that is stopped before anything came is not kept.
        progress = lambda: second.ask("GET", f"/api/v1/recordings/{shown['recording']}").json["progress"] or {}
        wait(lambda: any(it["frames"] for it in progress().get("streams", [])), "frames of the rest")
        # The scans can be replaced while it runs, and the options cannot.
        replaced = put(second, {**body, "scans": csv(("two", -4, 60), ("new", 1800, 10))})
        assert replaced.status == 200 and [it["scan"] for it in replaced.json["next"]] == ["two", "new"]
        other = {**body, "options": {**body["options"], "lead": "2s"}}
        assert put(second, other).status == 409
        cancelled = second.ask("DELETE", "/api/v1/schedules/vgos", role="operator")
        assert cancelled.status == 202
        wait(lambda: second.ask("GET", "/api/v1/schedules/vgos").json["state"] == "cancelled", "the end")
        wait(lambda: scans().get("test_two-2") == "sealed", "the seal of the rest")
        wait(lambda: second.ask("GET", "/api/v1/status").json["next_scans"] == [], "the state without it")
    stop.set()


def test_a_schedule_of_the_file_is_recorded_and_cancelled_for_good(store, tmp_path):
    _, source = new_source()
    (tmp_path / "scans.csv").write_text(csv(("far", 3600, 10)))
    text = (
        f'[[input]]\nname = "vlbi"\nendpoints = "{source}"\n\n[[schedule]]\nname = "vgos"\n'
        f'file = "{tmp_path}/scans.csv"\ninput = "vlbi"\nsession = "r1"\nbuffer = "64MiB"\n'
    )
    with Described(store, tmp_path / "state", text) as station:
        state = lambda: station.ask("GET", "/api/v1/schedules/vgos").json["state"]
        wait(lambda: state() == "running", "the schedule")
        (recording,) = station.ask("GET", "/api/v1/recordings").json
        # Stopping the recording cancels its schedule.
        assert station.ask("POST", f"/api/v1/recordings/{recording['id']}/stop", role="operator").status == 202
        wait(lambda: state() == "cancelled", "the end")
        assert station.reload()["problems"] == [] and state() == "cancelled"
        (tmp_path / "scans.csv").write_text(csv(("near", 1800, 10)))
        station.reload()
        wait(lambda: state() == "running", "the changed schedule")
        shown = station.ask("GET", "/api/v1/schedules").json[0]
        assert shown["of_file"] and shown["next"][0]["scan"] == "near" and shown["session"] == "r1"
        families = parser.text_string_to_metric_families(station.ask("GET", "/metrics").body.decode())
        ahead = {it.name: it for it in families}["fullbore_schedule_scans_ahead"].samples
        assert [(it.labels["schedule"], it.value) for it in ahead] == [("vgos", 1)]


@pytest.mark.parametrize(
    "body, why",
    [
        ({"scans": "nonsense"}, "the text is no schedule"),
        ({"scans": "scan,start,duration\na,2001-01-01T00:00:00Z,1s\n"}, "all scans of the schedule are past"),
        ({"options": {"source": ["file:/etc/passwd"], "session": "s"}}, "is not one of input:"),
        ({"options": {"source": ["udp://:1"]}}, "names no session"),
        ({"options": {"source": ["udp://:1"], "session": "../s"}}, "session"),
    ],
)
def test_a_wrong_schedule_is_explained(store, tmp_path, body, why):
    with Station(store, tmp_path / "state") as station:
        whole = {"options": {"source": ["udp://:1"], "session": "s"}, "scans": csv(("a", 3600, 10)), **body}
        answer = station.ask("PUT", "/api/v1/schedules/a", whole, role="operator")
        assert answer.status == 400 and why in answer.json["detail"], answer.body
        assert station.ask("GET", "/api/v1/schedules").json == []


# --- alerts


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.notices.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_lost_frames_are_told_to_a_web_address_and_to_a_program(store, tmp_path):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.notices = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    told = tmp_path / "told"
    text = (
        f'[[alert]]\nname = "hook"\non = "loss"\nwebhook = "http://127.0.0.1:{server.server_port}/x"\n\n'
        f'[[alert]]\nname = "program"\non = ["loss", "recorder"]\ncommand = ["/bin/sh", "-c", "cat >> {told}; echo >> {told}"]\n'
    )
    with Described(store, tmp_path / "state", text) as station:
        port, source = new_source()
        begun = station.start(source)
        frames = wire.run_of_frames(FRAMES)
        wire.send(frames[:100] + frames[107:], port)
        wait(lambda: server.notices, "a notice")
        (notice,) = server.notices
        assert (notice["alert"], notice["state"], notice["kind"]) == ("hook", "begins", "loss")
        assert notice["subject"] == f"test_one/{port}" and "frames lost" in notice["text"] and notice["dropped"] == 0
        os.kill(begun["pid"], signal.SIGKILL)
        kinds = lambda: [json.loads(line)["kind"] for line in told.read_text().splitlines()] if told.exists() else []
        wait(lambda: kinds() == ["loss", "recorder"], "both notices of the program")
    server.shutdown()


# --- systemd, Prometheus


def test_systemd_is_told_and_the_watchdog_is_fed(store, tmp_path):
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(PATIENCE)
    port = free_port()
    listener = socket.create_server(("127.0.0.1", port))
    file = tmp_path / "station.toml"
    file.write_text(f'[store]\nmembers = "{store}"\n[listen]\nhttp = "127.0.0.1:{port}"\n')
    environment = {
        "PATH": "/usr/bin:/bin", "FULLBORE_STATE": str(tmp_path), "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "600000", "LISTEN_FDS": "1",
    }  # fmt: skip
    # The socket is passed as descriptor 3, as by a socket unit.
    script = f'exec 3<&{listener.fileno()} {listener.fileno()}<&-; LISTEN_PID=$$ exec "$0" serve --config "$1" --json'
    words = ["/bin/bash", "-c", script, BINARY, str(file)]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, pass_fds=[listener.fileno()]) as daemon:
        listener.close()
        heard = []

        def until(wanted):
            while not any(wanted in text for text in heard):
                heard.append(manager.recv(4096).decode())

        until("READY=1\nSTATUS=serving on http://127.0.0.1")
        begun = time.monotonic()
        heard.clear()
        for _ in range(3):
            assert manager.recv(4096) == b"WATCHDOG=1"
        assert 0.3 < time.monotonic() - begun < 5
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        daemon.send_signal(signal.SIGHUP)
        until("RELOADING=1\nMONOTONIC_USEC=")
        until("READY=1\nSTATUS=read the file again")
        daemon.terminate()
        until("STOPPING=1")
        assert daemon.wait(PATIENCE) == 0


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not there")
def test_the_unit_takes_privileges_away(tmp_path):
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=25", PACKAGING / "fullbore.service"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and "Overall exposure level" in done.stdout, done.stdout + done.stderr
    for unit in ("fullbore.service", "fullbore.socket"):
        text = (PACKAGING / unit).read_text().replace("/usr/bin/fullbore", "/bin/true")
        (tmp_path / unit).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", tmp_path / "fullbore.service", tmp_path / "fullbore.socket"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    ours = [line for line in done.stderr.splitlines() if "fullbore" in line]
    assert not ours, done.stderr


def test_rules_and_dashboard_name_metrics_that_exist(store, tmp_path):
    with Station(store, tmp_path / "state") as station:
        text = station.ask("GET", "/metrics", role="viewer").body.decode()
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    real = {f"{name}_total" if kind == "counter" else name for name, kind in kinds.items()}
    rules = (PACKAGING / "prometheus-rules.yml").read_text()
    board = json.loads((PACKAGING / "grafana-dashboard.json").read_text())
    queries = re.findall(r"^ +expr: (.*)$", rules, re.MULTILINE)
    queries += [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) > 20
    named = {name for query in queries for name in re.findall(r"\bfullbore_\w+", query)}
    assert named <= real, named - real
    # The reference has each group of them.
    group = lambda name: name.split("_")[1]
    described = {group(name) for name in re.findall(r"`(fullbore_\w+)`", (REPOSITORY / "docs/reference/rest.md").read_text())}
    assert {group(name) for name in real} <= described
    if shutil.which("promtool"):
        command = ["promtool", "check", "rules", PACKAGING / "prometheus-rules.yml"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
