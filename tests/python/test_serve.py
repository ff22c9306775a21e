"""The station: recordings over REST that outlive their daemon, and who may do what."""

import http.client
import json
import os
import random
import re
import signal
import socket
import time

import pytest
import wire
from fullbore import PATIENCE, REFUSED, REPOSITORY, ask, free_ports, run
from prometheus_client.openmetrics import parser
from station import ROLES, SECRETS, Station, new_source, vdif

DOCUMENT = json.loads((REPOSITORY / "docs/reference/openapi.json").read_text())
FRAMES = 900
OPERATIONS = [
    (method, path, operation) for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
]


@pytest.fixture
def station(store, tmp_path):
    with Station(store, tmp_path / "state") as station:
        yield station


def recorded(station, scan="one", lose=()):
    """A scan of some frames, over REST."""
    port, source = new_source()
    begun = station.start(source, scan)
    frames = wire.run_of_frames(FRAMES)
    wire.send((frame for n, frame in enumerate(frames) if n not in lose), port)
    has_come = lambda it: it["progress"] and it["progress"]["streams"] and frames_of(it) >= FRAMES - len(lose)
    station.until(begun["id"], has_come)
    return station.stop(begun["id"])


def frames_of(recording):
    return sum(stream["frames"] for stream in recording["progress"]["streams"])


def test_a_recording_is_started_marked_and_stopped_over_rest(station):
    port, source = new_source()
    begun = station.start(source)
    assert begun["phase"] in ("armed", "recording") and begun["scan"] == {"session": "test", "scan": "one"}
    wire.send(wire.run_of_frames(FRAMES), port)
    told = station.until(begun["id"], lambda it: it["progress"] and it["progress"]["durable_bytes"] > 0)
    assert told["progress"]["members"][0]["path"] == str(station.store)
    marked = station.ask("POST", f"/api/v1/recordings/{begun['id']}/marks", {"text": "on source"}, role="operator")
    assert marked.status == 201 and marked.json["text"] == "on source", marked.body
    ended = station.stop(begun["id"])
    assert ended["exit_code"] == 0 and ended["complaint"] is None
    (finished,) = ended["finished"]
    assert finished["scan"] == "test_one" and finished["complete"] and finished["headline"].startswith("COMPLETE")
    # The commands and the daemon tell the same.
    (listed,) = station.ask("GET", "/api/v1/scans").json["scans"]
    assert [listed] == ask("ls", "--store", station.store)
    shown = station.ask("GET", "/api/v1/scans/test_one").json
    info = ask("info", "test_one", "--store", station.store)
    for key in ("manifest", "accounts", "headline"):
        assert shown[key] == info[key]
    assert [marker["text"] for marker in shown["manifest"]["markers"]] == ["on source"]
    again = station.ask("POST", f"/api/v1/recordings/{begun['id']}/stop")
    assert again.status == 409 and "has ended" in again.json["detail"]


def test_several_recordings_run_at_once_and_losses_are_counted(station):
    sources = [(port, vdif(port)) for port in free_ports(2)]
    begun = [station.start(source, f"no{n}") for n, (_, source) in enumerate(sources)]
    frames = wire.run_of_frames(FRAMES)
    wire.send(frames, sources[0][0])
    wire.send(frames[:100] + frames[107:], sources[1][0])
    whole, lossy = [
        station.until(it["id"], lambda told: told["progress"] and frames_of(told) >= FRAMES - 7) for it in begun
    ]
    assert len({whole["pid"], lossy["pid"]}) == 2
    lossy = station.until(lossy["id"], lambda it: it["progress"]["streams"][0]["missing"] == 7)
    ends = [station.stop(it["id"]) for it in begun]
    assert [it["exit_code"] for it in ends] == [0, 1]
    assert "7 of 900 frames" in ends[1]["finished"][0]["headline"], ends[1]


def test_a_recording_goes_on_when_its_daemon_is_killed_and_the_next_one_stops_it(store, tmp_path):
    port, source = new_source()
    state = tmp_path / "state"
    frames = wire.run_of_frames(4 * FRAMES)
    with Station(store, state) as first:
        begun = first.start(source)
        wire.send(frames[:FRAMES], port)
        first.until(begun["id"], lambda it: it["progress"] and frames_of(it) >= FRAMES)
        first.kill()
    os.kill(begun["pid"], 0)
    # Nobody reads what the recorder prints meanwhile.
    wire.send(frames[FRAMES : 3 * FRAMES], port, pause=1e-3)
    with Station(store, state) as second:
        assert second.told["found"] == 1
        wire.send(frames[3 * FRAMES :], port)
        found = second.until(begun["id"], lambda it: it["progress"] and frames_of(it) == 4 * FRAMES)
        assert (found["found"], found["pid"], found["request"]) == (True, begun["pid"], begun["request"])
        ended = second.stop(begun["id"])
        assert ended["finished"][0]["complete"], ended
    with pytest.raises(ProcessLookupError):
        os.kill(begun["pid"], 0)
    verified = ask("verify", "test_one", "--store", store)
    assert verified["good"] and verified["recorded"] == 4 * FRAMES
    assert not list(state.glob("station/*/recordings/*"))


def test_a_recording_outlives_one_daemon_after_the_other(store, tmp_path):
    """Daemons are killed at any moment, also while they start; the recorder and its account know nothing of it."""
    port, source = new_source()
    state, seed = tmp_path / "state", int(os.environ.get("FULLBORE_SEED", "17"))
    moments, frames = random.Random(seed), wire.run_of_frames(6 * FRAMES)
    with Station(store, state) as station:
        begun = station.start(source)
        station.kill()
    for number in range(5):
        with Station(store, state) as station:
            wire.send(frames[number * FRAMES : (number + 1) * FRAMES], port)
            time.sleep(moments.random() / 4)
            station.kill()
    with Station(store, state) as last:
        assert last.told["found"] == 1
        wire.send(frames[5 * FRAMES :], port)
        last.until(begun["id"], lambda it: it["progress"] and frames_of(it) == 6 * FRAMES)
        assert last.stop(begun["id"])["finished"][0]["complete"], seed
    assert ask("verify", "test_one", "--store", store)["recorded"] == 6 * FRAMES


def test_a_recorder_that_is_killed_or_aborted_ends_alone(station):
    sources = [(port, vdif(port)) for port in free_ports(3)]
    killed, aborted, whole = (station.start(source, f"no{n}") for n, (_, source) in enumerate(sources))
    for port, _ in sources:
        wire.send(wire.run_of_frames(FRAMES), port)
    for it in (killed, aborted, whole):
        station.until(it["id"], lambda told: told["progress"] and told["progress"]["durable_bytes"] > 0)
    os.kill(killed["pid"], signal.SIGKILL)
    ended = station.until(killed["id"], lambda it: it["phase"] == "ended")
    assert "signal 9" in ended["complaint"]["error"] and "recover" in ended["complaint"]["advice"]
    assert ended["exit_code"] is None and ended["finished"] == []
    assert station.ask("POST", f"/api/v1/recordings/{aborted['id']}/abort", role="operator").status == 202
    ended = station.until(aborted["id"], lambda it: it["phase"] == "ended")
    assert ended["exit_code"] == 1 and ended["finished"][0]["scan"] == "test_no1"
    assert station.stop(whole["id"])["finished"][0]["complete"]
    states = {it["name"]: it["state"] for it in station.ask("GET", "/api/v1/scans").json["scans"]}
    assert states == {"test_no0": "unsealed", "test_no1": "aborted", "test_no2": "sealed"}


def test_a_recording_that_ends_without_a_daemon_is_sealed_and_found_ended(store, tmp_path):
    port, source = new_source()
    state = tmp_path / "state"
    with Station(store, state) as first:
        begun = first.start(source)
        wire.send(wire.run_of_frames(FRAMES), port)
        first.until(begun["id"], lambda it: it["progress"] and frames_of(it) == FRAMES)
        first.kill()
    os.kill(begun["pid"], signal.SIGINT)
    end = time.monotonic() + PATIENCE
    while os.path.exists(f"/proc/{begun['pid']}/fd/1"):
        assert time.monotonic() < end
        time.sleep(0.02)
    with Station(store, state) as second:
        ended = second.until(begun["id"], lambda it: it["phase"] == "ended")
        assert ended["found"] and ended["complaint"] is None
        (listed,) = second.ask("GET", "/api/v1/scans").json["scans"]
        assert listed["state"] == "sealed" and listed["complete"]


def test_one_daemon_serves_a_store_and_only_on_this_host(station):
    words = ["serve", "--store", station.store, "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "FULLBORE_STATE": str(station.state)}
    refused = run(*words, code=REFUSED, env=environment).stderr.decode()
    assert "another daemon serves this store" in refused
    refused = run("serve", "--store", station.store, "--listen", "0.0.0.0:8480", code=REFUSED).stderr.decode()
    assert "other hosts reach this address" in refused and "ssh -L" in refused


def test_scans_are_listed_by_pages_protected_and_removed(station):
    for scan in ("a", "b", "c"):
        recorded(station, scan)
    names = lambda query: [it["name"] for it in station.ask("GET", f"/api/v1/scans?{query}").json["scans"]]
    first = station.ask("GET", "/api/v1/scans?limit=2").json
    assert [it["name"] for it in first["scans"]] == ["test_a", "test_b"] and first["next"] == "test_b"
    assert names("limit=2&after=test_b") == ["test_c"] and names("prefix=test_b") == ["test_b"]
    assert station.ask("GET", "/api/v1/scans?limit=0").status == 400
    protected = station.ask("PUT", "/api/v1/scans/test_a/protection")
    assert protected.json == {"scan": "test_a", "protected": True, "before": False}
    refused = station.ask("DELETE", "/api/v1/scans/test_a")
    assert refused.status == 409 and "protected" in refused.json["detail"], refused.body
    assert station.ask("DELETE", "/api/v1/scans/test_a/protection").json["before"]
    removed = station.ask("DELETE", "/api/v1/scans/test_a")
    assert removed.status == 200 and removed.json["scan"] == "test_a" and removed.json["files"] > 0
    assert names("") == ["test_b", "test_c"]
    # The beginning of a name is not a name here.
    assert station.ask("DELETE", "/api/v1/scans/test_").status == 400
    assert station.ask("DELETE", "/api/v1/scans/test_no").status == 404
    assert station.ask("GET", "/api/v1/scans/..%2f..%2fetc").status == 400


def test_a_scan_is_verified_as_a_job(station):
    recorded(station)
    chunk = next(station.store.glob("test_one/test_one.0*"))
    job = station.ask("POST", "/api/v1/scans/test_one/verify", role="operator")
    assert job.status == 202
    done = until_done(station, job.json["id"])
    verified = ask("verify", "test_one", "--store", station.store)
    assert done["state"] == "done" and done["done_bytes"] == done["total_bytes"] == verified["bytes"]
    assert {**done["result"], "seconds": 0} == {**verified, "seconds": 0}
    with chunk.open("r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    job = station.ask("POST", "/api/v1/scans/test_one/verify", role="operator").json
    done = until_done(station, job["id"])
    assert not done["result"]["good"] and done["result"]["findings"]
    assert station.ask("DELETE", f"/api/v1/jobs/{job['id']}").json["state"] == "done"
    assert station.ask("GET", "/api/v1/jobs").json[0]["id"] == job["id"]


def until_done(station, job):
    end = time.monotonic() + PATIENCE
    while (told := station.ask("GET", f"/api/v1/jobs/{job}").json)["state"] == "running":
        assert time.monotonic() < end
        time.sleep(0.02)
    return told


@pytest.mark.parametrize(
    "request_, status, why",
    [
        ({"source": ["file:/etc/passwd"]}, 400, "is not one of input:, udp://"),
        ({"session": "../x"}, 400, "session: "),
        ({"source": ["udp://127.0.0.1:1?format=nonsense"]}, 422, "nonsense"),
        ({"to": ["file:/tmp/x"]}, 422, "unknown field `to`"),
        ({"duration": "never"}, 422, "duration"),
    ],
)
def test_a_wrong_request_is_explained(station, request_, status, why):
    body = {"source": [new_source()[1]], "session": "test", "scan": "one", **request_}
    answer = station.ask("POST", "/api/v1/recordings", body)
    assert answer.status == status and why in answer.body.decode(), (answer.status, answer.body)
    assert answer.headers["Content-Type"] == "application/problem+json" and answer.json["status"] == status
    assert not station.ask("GET", "/api/v1/recordings").json
    assert not list(station.state.glob("station/*/recordings/*"))


def filled(path):
    return re.sub(r"\{id\}", "01990000-0000-7000-8000-000000000000", path).replace("{scan}", "test_none").replace("{name}", "none").replace("{file}", "46220.vdif")


def test_every_route_asks_for_its_role(station):
    """Walks every method of every route as nobody, viewer, operator and admin, by the published document."""
    walked = 0
    for method, path, operation in OPERATIONS:
        (needs,) = {role for way in operation["security"] for roles in way.values() for role in roles} or {None}
        for role in (None, *ROLES):
            ends = path != "/api/v1/events"
            answer = station.ask(method.upper(), filled(path), raw=b"", role=role, whole=ends)
            may = needs is None or (role and ROLES.index(role) >= ROLES.index(needs))
            refused = 401 if role is None else 403
            assert (answer.status != refused) == bool(may) or (path, needs) == ("/api/v1/session", None), (
                method, path, role, answer.status, answer.body,
            )  # fmt: skip
            assert answer.status < 500, (method, path, role, answer.body)
            walked += 1
    assert walked > 80
    for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
        assert station.ask(method, "/api/v1/nothing", role=None).status == 404
    assert station.ask("PATCH", "/api/v1/scans", role="admin").status == 405


def test_the_document_is_served_and_whole(station):
    assert station.ask("GET", "/api/v1/openapi.json", role=None).json == DOCUMENT
    assert DOCUMENT["openapi"].startswith("3.1")
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(DOCUMENT)))
    assert named <= set(DOCUMENT["components"]["schemas"])
    assert len({operation["operationId"] for _, _, operation in OPERATIONS}) == len(OPERATIONS)


def test_a_browser_logs_in_once_and_writes_with_its_second_value(station):
    code = station.told["login"].partition("#login=")[2]
    first = station.ask("POST", "/api/v1/session", {"code": code}, role=None)
    assert first.status == 201 and first.json["role"] == "admin"
    cookie = first.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    again = station.ask("POST", "/api/v1/session", {"code": code}, role=None)
    assert again.status == 401 and "used already" in again.json["detail"]
    sent = {"Cookie": cookie.partition(";")[0]}
    assert station.ask("GET", "/api/v1/status", role=None, headers=sent).status == 200
    link = lambda **more: station.ask("POST", "/api/v1/login-links", role=None, headers={**sent, **more})
    assert link().status == 403 and "X-Fullbore-CSRF" in link().json["detail"]
    csrf = {"X-Fullbore-CSRF": first.json["csrf"]}
    assert link(**csrf, Origin="http://evil.example").status == 403
    assert link(**csrf).status == 201
    again = station.ask("POST", "/api/v1/session", {"token": SECRETS["viewer"]}, role=None, headers=sent)
    assert again.status == 201 and again.json["role"] == "viewer"
    other = {**sent, "Origin": "http://evil.example"}
    assert station.ask("POST", "/api/v1/session", {"token": SECRETS["viewer"]}, role=None, headers=other).status == 403
    assert station.ask("DELETE", "/api/v1/session", role=None, headers={**sent, **csrf}).status == 204
    assert station.ask("GET", "/api/v1/status", role=None, headers=sent).status == 401


def test_other_hosts_names_and_other_sites_are_refused(station):
    for name in ("evil.example", f"evil.example:{station.port}", f"127.0.0.1.evil.example:{station.port}", "127.0.0.1"):
        answer = station.ask("GET", "/", role=None, headers={"Host": name})
        assert answer.status == 403 and "Host" in answer.json["detail"], name
    page = station.ask("GET", "/", role=None)
    assert page.status == 200 and "default-src 'self'" in page.headers["Content-Security-Policy"]
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    large = station.ask("POST", "/api/v1/recordings", raw=b" " * (65 << 10))
    assert large.status == 413


def test_failed_logins_are_limited_and_in_the_audit_log(station):
    guess = lambda: station.ask("GET", "/api/v1/status", role=None, headers={"Authorization": "Bearer guess"})
    answers = [guess() for _ in range(12)]
    assert [it.status for it in answers[:10]] == [401] * 10
    assert answers[11].status == 429 and int(answers[11].headers["Retry-After"]) <= 7
    # A login waits too, even with a right token, so that guesses learn nothing. Programs with a token go on.
    login = station.ask("POST", "/api/v1/session", {"token": SECRETS["viewer"]}, role=None)
    assert login.status == 429
    assert station.ask("GET", "/api/v1/status", role="viewer").status == 200
    station.ask("DELETE", "/api/v1/scans/test_none", role="viewer")
    # Anybody can fill the log of refusals, and displaces no line about a known client by it.
    (log,) = station.state.glob("station/*/refused.log")
    statuses = [json.loads(line)["status"] for line in log.read_text().splitlines()]
    assert statuses[:10] == [401] * 10 and statuses[-1] == 429
    assert "guess" not in log.read_text()
    (line,) = audited(station)
    assert (line["who"], line["role"], line["method"], line["status"]) == ("viewer", "viewer", "DELETE", 403)


def test_a_stop_that_is_sent_twice_loses_nothing(station):
    port, source = new_source()
    id = station.start(source)["id"]
    wire.send(wire.run_of_frames(FRAMES), port)
    station.until(id, lambda it: it["progress"] and it["progress"]["streams"] and frames_of(it) >= FRAMES)
    assert [station.ask("POST", f"/api/v1/recordings/{id}/stop").status for _ in range(2)] == [202] * 2
    ended = station.until(id, lambda it: it["phase"] == "ended")
    assert ended["exit_code"] == 0 and ended["finished"][0]["complete"], ended


def audited(station):
    logs = station.state.glob("station/*/audit.log")
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def test_a_write_whose_client_goes_away_is_carried_out_and_in_the_audit_log(station):
    _, source = new_source()
    body = json.dumps({"source": [source], "session": "test", "scan": "one", "buffer": "64MiB"}).encode()
    head = f"POST /api/v1/recordings HTTP/1.1\r\nHost: 127.0.0.1:{station.port}\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {SECRETS['operator']}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", station.port)) as client:
        client.sendall(head.encode() + body)
        end = time.monotonic() + PATIENCE
        # It goes away once the request is being carried out, before the recorder is armed.
        while not station.ask("GET", "/api/v1/recordings").json:
            assert time.monotonic() < end, audited(station)
    while not [line for line in audited(station) if (line["who"], line["status"]) == ("operator", 201)]:
        assert time.monotonic() < end, audited(station)
        time.sleep(0.02)
    (recording,) = station.ask("GET", "/api/v1/recordings").json
    station.stop(recording["id"])


def test_events_tell_the_state_and_its_changes(station):
    connection = http.client.HTTPConnection("127.0.0.1", station.port, timeout=PATIENCE)
    connection.request("GET", "/api/v1/events?hz=5", headers={"Authorization": f"Bearer {SECRETS['viewer']}"})
    response = connection.getresponse()
    assert response.headers["Content-Type"] == "text/event-stream"

    def states():
        while line := response.readline():
            if line.startswith(b"data: "):
                yield json.loads(line[6:])

    told = states()
    first = next(told)
    assert first["recordings"] == [] and first["members"][0]["path"] == str(station.store)
    begun = station.start(new_source()[1])
    begins = time.monotonic()
    seen = next(state for state in told if state["recordings"])
    assert seen["recordings"][0]["id"] == begun["id"]
    taken = [next(told) for _ in range(5)]
    assert time.monotonic() - begins >= 0.8, "more often than five times a second"
    assert taken[-1]["time"] > taken[0]["time"]
    connection.close()
    assert station.ask("GET", "/api/v1/events?hz=1000").status == 400


def test_the_metrics_are_read_by_prometheus(station):
    port, source = new_source()
    begun = station.start(source)
    frames = wire.run_of_frames(FRAMES)
    wire.send(frames[:50] + frames[53:], port)
    station.until(begun["id"], lambda it: it["progress"] and it["progress"]["streams"][0]["missing"] == 3)
    answer = station.ask("GET", "/metrics", role="viewer")
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    families = {it.name: it for it in parser.text_string_to_metric_families(answer.body.decode())}
    (missing,) = families["fullbore_stream_missing_frames"].samples
    assert missing.value == 3 and missing.labels["stream"] == str(port) and missing.labels["scan"] == "test_one"
    (space,) = families["fullbore_store_free_bytes"].samples
    assert space.labels["member"] == str(station.store) and space.value > 0
    phases = {it.labels["phase"]: it.value for it in families["fullbore_recordings"].samples}
    assert phases["recording"] == 1 and sum(phases.values()) == 1
    station.stop(begun["id"])


def test_a_client_that_sends_nonsense_or_nothing_hinders_nobody(station):
    idle = [socket.create_connection(("127.0.0.1", station.port)) for _ in range(20)]
    idle[0].sendall(b"\x00\xff nonsense\r\n\r\n")
    idle[1].sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: ")
    for raw in (b"{", b"[]", b"\xff", b'{"source": {}}', b"null"):
        assert station.ask("POST", "/api/v1/recordings", raw=raw).status in (400, 422)
    assert station.ask("GET", "/api/v1/recordings/nonsense").status in (400, 404)
    assert station.ask("GET", "/api/v1/status").status == 200
    for one in idle:
        one.close()
