"""Commands at a running daemon: the output and the exit code of each are those of the same command on this host."""

import hashlib
import json
import os
import re
import signal
import subprocess
import time

import pytest
import wire
from fullbore import BINARY, FOUND, GOOD, INCOMPLETE, PATIENCE, REFUSED, free_port, run
from station import SECRETS, Station, new_source
from terminal import Terminal

FRAMES = 900


@pytest.fixture
def station(store, tmp_path):
    (tmp_path / "exports").mkdir()
    with Station(store, tmp_path / "state", options=["--exports", tmp_path / "exports"]) as station:
        yield station


def environment(station, role=None):
    """That of a client: the state by which it finds the socket, and perhaps a token."""
    named = {name: value for name, value in os.environ.items() if not name.startswith("FULLBORE_")}
    token = {"FULLBORE_TOKEN": SECRETS[role]} if role else {}
    return {**named, "FULLBORE_STATE": str(station.state), "FULLBORE_STORE": str(station.store), **token}


def here(station, *words, code=GOOD):
    return run(*words, "--store", station.store, code=code, env=environment(station))


def there(station, *words, code=GOOD, role=None, at="unix:"):
    return run(*words, "--station", at, code=code, env=environment(station, role))


def told(done):
    """What a command printed, without times that differ from run to run."""
    texts = (done.stdout.decode(), done.stderr.decode())
    texts = [re.sub(r"[0-9.]+ .B freed", "", text) for text in texts]
    return [re.sub(r"\d+\.\d+ s, [^\n]*/s|\"seconds\":[0-9.e-]+", "", text) for text in texts], done.returncode


def recorded(station, scan, lose=()):
    port, source = new_source()
    begun = station.start(source, scan)
    wire.send((frame for n, frame in enumerate(wire.run_of_frames(FRAMES)) if n not in lose), port)
    station.until(begun["id"], lambda it: it["progress"] and frames_of(it) >= FRAMES - len(lose))
    return station.stop(begun["id"])


def frames_of(recording):
    return sum(stream["frames"] for stream in recording["progress"]["streams"])


def test_each_command_prints_the_same_here_and_there(station):
    recorded(station, "one")
    recorded(station, "two", lose=(100, 101))
    port = free_port()
    for words, code in [
        (["ls"], GOOD),
        (["ls", "--json"], GOOD),
        (["ls", "test_t"], GOOD),
        (["info", "test_one"], GOOD),
        (["info", "test_one", "--json"], GOOD),
        (["info", "test_two", "--full", "--gaps", "1"], GOOD),
        (["info", "test_none"], REFUSED),
        (["info", "test_none", "--json"], REFUSED),
        (["verify", "test_one", "test_two"], INCOMPLETE),
        (["verify", "--all", "--json", "--reads", "1"], INCOMPLETE),
        (["mark", "test_one", "antenna on source", "--position", "5000"], GOOD),
        (["rebuild", "--all"], GOOD),
        (["trigger", "test_one"], REFUSED),
        (["watch", "test_one", "--looks", "1", "--json"], GOOD),
        (["play", "test_none", "--to", f"udp://127.0.0.1:{port}"], REFUSED),
    ]:
        first = told(here(station, *words, code=code))
        assert told(there(station, *words, code=code)) == first, words
        address = f"http://127.0.0.1:{station.port}"
        assert told(there(station, *words, code=code, role="admin", at=address)) == first, words
    protect = ["protect", "test_one"]
    first, again = told(here(station, *protect)), told(here(station, *protect))
    off = told(here(station, *protect, "--off", "--json"))
    assert (told(there(station, *protect)), told(there(station, *protect))) == (first, again)
    refused = told(here(station, "rm", "test_one", "--yes", code=REFUSED))
    assert told(there(station, "rm", "test_one", "--yes", code=REFUSED)) == refused
    assert told(there(station, *protect, "--off", "--json")) == off


def test_a_scan_is_removed_there_and_only_by_an_admin(station):
    for scan in ("one", "two"):
        recorded(station, scan)
    address = f"http://127.0.0.1:{station.port}"
    for role, why in (("viewer", "needs the role admin, and viewer is viewer"), ("operator", "operator is operator")):
        done = there(station, "rm", "test_one", "--yes", role=role, at=address, code=REFUSED)
        assert why in done.stderr.decode()
    assert "needs the role operator" in there(
        station, "verify", "test_one", role="viewer", at=address, code=REFUSED
    ).stderr.decode()
    there(station, "ls", role="viewer", at=address)
    # Names are whole, and there is a question first.
    done = there(station, "rm", "test_o", "--yes", code=REFUSED)
    assert "there is no scan test_o" in done.stderr.decode()
    done = there(station, "rm", "test_one", code=REFUSED)
    assert "give --yes" in done.stderr.decode()
    first = told(here(station, "rm", "test_one", "--yes"))
    other = told(there(station, "rm", "test_two", "--yes"))
    assert json.dumps(other).replace("test_two", "test_one") == json.dumps(first)
    assert there(station, "ls").stdout == b"no scans\n"
    (log,) = station.state.glob("station/*/audit.log")
    notes = [json.loads(line) for line in log.read_text().splitlines()]
    removed = [it for it in notes if it.get("command", "").startswith("rm")]
    assert [(it["command"], it["role"]) for it in removed] == [("rm --yes test_two", "admin")]


def test_files_are_made_in_the_directory_for_exports_alone(station, tmp_path):
    recorded(station, "one")
    done = there(station, "convert", "store:test_one", "npy:one.npy")
    assert (tmp_path / "exports/one.npy").exists() and str(tmp_path / "exports/one.npy") in done.stdout.decode()
    here(station, "convert", "store:test_one", f"npy:{tmp_path}/here.npy")
    assert (tmp_path / "exports/one.npy").read_bytes() == (tmp_path / "here.npy").read_bytes()
    there(station, "snapshot", "test_one", "--at", "+0.1s", "--length", "100ms", "--output", "part.vdif")
    here(station, "snapshot", "test_one", "--at", "+0.1s", "--length", "100ms", "--output", tmp_path / "here.vdif")
    assert (tmp_path / "exports/part.vdif").read_bytes() == (tmp_path / "here.vdif").read_bytes()
    for target in ("npy:/tmp/x.npy", "npy:../x.npy", "file:x", "npy:a/b.npy"):
        done = there(station, "convert", "store:test_one", target, code=REFUSED)
        assert "the name of a file" in done.stderr.decode()
    assert "--store names directories" in there(
        station, "info", "test_one", "--store", station.store, at=f"http://127.0.0.1:{station.port}", code=REFUSED
    ).stderr.decode()


def test_a_recording_is_started_followed_and_stopped_there(station):
    port, source = new_source()
    command = [BINARY, "record", source, "--session", "test", "--scan", "one", "--buffer", "64MiB", "--json"]
    process = subprocess.Popen(
        [*command, "--station", "unix:"], env=environment(station), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    events = []
    for line in process.stdout:
        event = json.loads(line)
        assert "shown" not in event
        if event["event"] == "armed":
            wire.send(wire.run_of_frames(FRAMES), port)
        if event["event"] == "progress" and event["streams"] and event["streams"][0]["frames"] >= FRAMES:
            # A second recording of the port says what has it.
            taken = run(
                "record", source, "--session", "test", "--scan", "two", "--buffer", "64MiB", "--store", station.store,
                code=REFUSED, env=environment(station),
            )  # fmt: skip
            assert "test_one" in taken.stderr.decode() and "--station unix:" in taken.stderr.decode()
            refused = here(station, "rm", "test_one", "--yes", code=REFUSED)
            assert "fullbore stop test_one --station unix:" in refused.stderr.decode()
            other = {**environment(station), "FULLBORE_STORE": "/elsewhere"}
            refused = run("rm", "test_one", "--yes", "--store", station.store, code=REFUSED, env=other)
            assert f"stop test_one --station unix: --store {station.store}`" in refused.stderr.decode()
            process.send_signal(signal.SIGINT)
            events.append(event)
            break
    events += [json.loads(line) for line in process.stdout]
    assert process.wait(PATIENCE) == GOOD and process.stderr.read() == b""
    assert events[-1]["event"] == "sealed" and events[-1]["complete"]
    # The text is that of a recording on this host.
    done = there(station, "record", source, "--session", "test", "--scan", "two", "--buffer", "64MiB", "--bytes", "1MB",
                 "--duration", "300ms", code=FOUND)  # fmt: skip
    assert "armed test_two" in done.stderr.decode() and "INCOMPLETE" in done.stdout.decode()
    refused = there(station, "record", "udp://127.0.0.1:1?format=nonsense", "--session", "a", "--scan", "b", code=REFUSED)
    assert "nonsense" in refused.stderr.decode()
    refused = there(station, "record", source, "--session", "a", "--scan", "b", "--keep", "2d", code=REFUSED)
    assert "--keep is not for a recording at a station" in refused.stderr.decode()


def test_recordings_that_are_detached_are_shown_and_stopped(station):
    words = ["--session", "test", "--buffer", "64MiB", "--detach"]
    for scan in ("one", "two"):
        there(station, "record", new_source()[1], "--scan", scan, *words)
    end = time.monotonic() + PATIENCE
    while (text := run("status", env=environment(station)).stdout.decode()).count(" (0") < 2 or "starting" in text:
        assert time.monotonic() < end, text
    assert "test_one (" in text and "test_two (" in text
    status = json.loads(there(station, "status", "--json").stdout)
    assert len(status["recordings"]) == 2 and status["members"][0]["path"] == str(station.store)
    done = there(station, "stop", "test_one", code=FOUND)
    assert "test_one" in done.stdout.decode() and ": ended" in done.stdout.decode()
    assert "does not record test_one" in there(station, "stop", "test_one", code=REFUSED).stderr.decode()
    there(station, "stop", "--all", code=FOUND)
    assert not there(station, "stop", "--all").stdout


def test_a_command_is_cancelled_by_ctrl_c(station):
    recorded(station, "one")
    process = subprocess.Popen(
        [BINARY, "play", "test_one", "--to", f"udp://127.0.0.1:{free_port()}", "--loop", "forever", "--gentle",
         "--station", "unix:"],
        env=environment(station), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    end = time.monotonic() + PATIENCE
    while not (jobs := station.ask("GET", "/api/v1/jobs").json):
        assert time.monotonic() < end
        time.sleep(0.02)
    assert (jobs[0]["kind"], jobs[0]["state"], jobs[0]["scan"]) == ("play", "running", "test_one")
    # The player must have set up what its signals do.
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) in (GOOD, FOUND, 130)
    assert station.ask("GET", f"/api/v1/jobs/{jobs[0]['id']}").json["state"] == "cancelled"


def test_a_viewer_leaves_what_it_watches_by_ctrl_c(station):
    station.start(new_source()[1])
    process = subprocess.Popen(
        [BINARY, "watch", "test_one", "--every", "100ms", "--station", f"http://127.0.0.1:{station.port}"],
        env=environment(station, "viewer"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == b"nothing has arrived\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) in (GOOD, FOUND, 130) and process.stderr.read() == b""


def test_a_viewer_cancels_its_own_command_and_no_other(station):
    begun = lambda role: station.ask("POST", "/api/v1/commands", {"verb": "ls"}, role=role).json["id"]
    cancelled = lambda id, role: station.ask("DELETE", f"/api/v1/jobs/{id}", role=role).status
    own, other = begun("viewer"), begun("operator")
    assert (cancelled(own, "viewer"), cancelled(other, "viewer")) == (202, 403)
    assert (cancelled(own, "operator"), cancelled(other, "admin")) == (202, 202)


def test_schedules_are_checked_put_listed_and_removed(station, tmp_path):
    begins = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    file = tmp_path / "scans.csv"
    file.write_text(f"scan,start,duration\nno1,{begins},40s\n")
    assert b"good: 1 scan" in run("schedule", "check", file).stdout
    put = ["schedule", "put", "vlbi", file, "--source", new_source()[1], "--session", "r1", "--buffer", "64MiB"]
    assert b"1 scan ahead" in there(station, *put).stdout
    assert b"vlbi: running, 1 scan ahead" in there(station, "schedule", "ls").stdout
    assert b"schedule vlbi" in there(station, "status").stdout
    there(station, "schedule", "rm", "vlbi")
    assert "there is no schedule" in there(station, "schedule", "rm", "none", code=REFUSED).stderr.decode()
    file.write_text("scan,start,duration\nno1,never,40s\n")
    assert "line 2" in run("schedule", "check", file, code=REFUSED).stderr.decode()


def test_what_cannot_be_is_explained(station, tmp_path):
    done = there(station, "bench", "disk", "/tmp", code=REFUSED)
    assert "runs on this host only" in done.stderr.decode()
    done = there(station, "ls", at="http://127.0.0.1:1", code=REFUSED)
    assert "does `fullbore serve` run there?" in done.stderr.decode()
    done = there(station, "ls", at="KV", code=REFUSED)
    assert "neither a web address nor the path of a socket" in done.stderr.decode()
    address = f"http://127.0.0.1:{station.port}"
    done = there(station, "ls", at=address, code=REFUSED)
    assert "set FULLBORE_TOKEN" in done.stderr.decode()
    done = there(station, "ls", at="http://192.0.2.1:8480", role="viewer", code=REFUSED)
    assert "the token is not sent without TLS" in done.stderr.decode()
    done = there(station, "stop", "--all", "--store", station.store, at=address, code=REFUSED)
    assert "--store names directories" in done.stderr.decode()
    file = tmp_path / "recording.toml"
    file.write_text('[record]\nsession = "test"\n')
    done = there(station, "--config", file, "record", new_source()[1], "--scan", "one", code=REFUSED)
    assert "[record] of --config is for a recording on this host" in done.stderr.decode()
    token = tmp_path / "token"
    token.write_text(SECRETS["viewer"])
    token.chmod(0o644)
    words = ["status", "--station", address, "--json"]
    by_file = {**environment(station), "FULLBORE_TOKEN_FILE": str(token)}
    assert "other users can read" in json.loads(run(*words, code=REFUSED, env=by_file).stderr)["error"]
    token.chmod(0o600)
    run(*words, env=by_file)
    other = {**environment(station), "FULLBORE_STORE": str(tmp_path)}
    assert "no daemon of this user" in run("status", code=REFUSED, env=other).stderr.decode()


def test_a_station_with_tls_is_known_by_its_certificate(store, tmp_path):
    file, secret = tmp_path / "station.toml", "a secret"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    file.write_text(
        f'[store]\nmembers = "{store}"\n[listen]\nhttps = "127.0.0.1:0"\n'
        f'[[token]]\nname = "desk"\nrole = "viewer"\nsha256 = "{digest}"\n'
    )
    named = {**os.environ, "FULLBORE_STATE": str(tmp_path / "state"), "FULLBORE_TOKEN": secret}
    daemon = subprocess.Popen([BINARY, "serve", "--config", file, "--json"], stdout=subprocess.PIPE, env=named)
    try:
        serving = json.loads(daemon.stdout.readline())
        address = f"https://localhost:{serving['address'].rsplit(':', 1)[1]}"
        (certificate,) = tmp_path.glob("state/station/*/tls/certificate.pem")
        run("status", "--station", f"{address}?pin={serving['fingerprint']}", env=named)
        run("status", "--station", f"{address}?ca={certificate}", env=named)
        for trust in ("", f"?pin={'ab' * 32}"):
            assert run("status", "--station", address + trust, env=named, code=REFUSED).stderr
    finally:
        daemon.terminate()
        daemon.wait(PATIENCE)


def test_on_a_terminal_ctrl_c_asks_whether_to_stop_the_recording(station, monkeypatch):
    for name, value in environment(station).items():
        monkeypatch.setenv(name, value)
    words = ["--session", "test", "--buffer", "64MiB", "--station", "unix:"]
    with Terminal([BINARY, "record", new_source()[1], *words, "--scan", "one"], 100, 30) as terminal:
        terminal.wait(lambda lines: any(line.startswith("armed test_one") for line in lines))
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait(lambda lines: any("or leave it running?" in line for line in lines))
        terminal.type(b"l\r")
        assert terminal.end() == GOOD
        assert any("goes on at unix:" in line for line in terminal.shown())
    with Terminal([BINARY, "record", new_source()[1], *words, "--scan", "two"], 100, 30) as terminal:
        terminal.wait(lambda lines: any(line.startswith("armed test_two") for line in lines))
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait(lambda lines: any("or leave it running?" in line for line in lines))
        terminal.type(b"s\r")
        assert terminal.end() == FOUND
    phases = {it["request"]["scan"]: it["phase"] for it in station.ask("GET", "/api/v1/recordings").json}
    assert phases["one"] in ("armed", "recording") and phases["two"] == "ended"
