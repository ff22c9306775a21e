"""Two stations that exchange scans: a rule, kills of both daemons, the queue over REST and on the command line."""

import json
import os
import socket

from fullbore import REFUSED, free_port, generate, run
from prometheus_client.openmetrics import parser
from sites import Relay, Site
from test_serve_config import Described, wait
from test_transfer import is_the_same

FPS, FRAME = 4000, 8032
FRAMES = 700
BYTES = FRAMES * FRAME
# A scan takes three seconds, and the queue tells its progress once a second.
RATE = "16Mbit/s"
TRANSFERS = "/api/v1/transfers"


class Exchange(Described):
    """A station with its own queue and keys, which the command line of its user has too."""

    def __init__(self, place, name, text):
        store = place / name
        store.mkdir()
        super().__init__(store, place / f"{name}-state", text)
        self.site = Site(place, f"{name}-cli", [store])

    @property
    def env(self):
        return {"PATH": os.environ["PATH"], "HOME": str(self.state), "FULLBORE_STATE": str(self.state)}

    def again(self):
        """Another daemon in the place of one that was killed."""
        return self.__enter__()

    def transfers(self):
        return self.ask("GET", TRANSFERS, role="viewer").json["transfers"]

    def until_sent(self, scan, state, bytes_=0):
        """The transfer of a scan, once it is in this state and so many bytes are durable at its destination."""

        def found():
            rows = [row for row in self.transfers() if row["scan"] == scan]
            return next((row for row in rows if row["state"] == state and row["done_bytes"] >= bytes_), None)

        return wait(found, (scan, state, bytes_, self.transfers()))

    def post(self, path, body, code=201, role="admin"):
        answer = self.ask("POST", f"{TRANSFERS}/{path}".rstrip("/"), body, role=role)
        assert answer.status == code, answer.body
        return answer.json

    def metrics(self):
        text = self.ask("GET", "/metrics", role="viewer").body.decode()
        samples = [sample for family in parser.text_string_to_metric_families(text) for sample in family.samples]
        return {(it.name, *it.labels.values()): it.value for it in samples}


def begin(station, scan):
    """Begins to record a scan of which all data has been sent."""
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}&block=64KiB"
    begun = station.start(source, scan, session="r1", chunk="1MiB")
    generate(f"udp://127.0.0.1:{port}", frame=FRAME, fps=FPS, frames=FRAMES)
    has_come = lambda it: it["progress"] and sum(stream["frames"] for stream in it["progress"]["streams"]) == FRAMES
    station.until(begun["id"], has_come)
    return begun["id"]


def test_a_session_goes_to_another_station_while_it_is_recorded_and_both_daemons_are_killed(tmp_path):
    port = free_port()
    far = Exchange(tmp_path, "far", f'[receive]\nlisten = "127.0.0.1:{port}"\n')
    near = Exchange(tmp_path, "near", f'[transfers]\nrate = "{RATE}"\n')
    with far, near, Relay(port) as relay:
        invitation = far.post("invitations", {"address": f"127.0.0.1:{relay.port}", "name": "near"})["invitation"]
        near.post("rules", {"sessions": "r*", "to": invitation})
        near.stop(begin(near, "one"))
        begun = begin(near, "two")
        near.until_sent("r1_one", "running", BYTES * 2 // 5)
        (arrival,) = far.ask("GET", "/api/v1/status").json["transfers"]["receive"]["open"]
        assert (arrival["peer"], arrival["scan"], arrival["fetched"]) == ("near", "r1_one", False)
        far.kill()
        near.until_sent("r1_one", "waiting")
        far.again()
        near.until_sent("r1_one", "done")
        near.stop(begun)
        begun = begin(near, "three")
        near.until_sent("r1_two", "running", BYTES * 2 // 5)
        near.kill()
        near.again()
        near.stop(begun)
        for scan in ("r1_two", "r1_three"):
            near.until_sent(scan, "done")
        assert sorted(it["name"] for it in far.ask("GET", "/api/v1/scans").json["scans"]) == ["r1_one", "r1_three", "r1_two"]
        counted = far.metrics()
        assert counted["fullbore_receive_scans_total",] == 3 and counted["fullbore_receive_open", "receive"] == 0
        wait(lambda: near.metrics()["fullbore_transfers", "done"] == 3, "the metrics are those of the queue")
        # The command line sees the same queue.
        listed = json.loads(run("transfers", "--json", env=near.env).stdout)
        assert listed == near.ask("GET", TRANSFERS).json and listed["runner"] == near.process.pid
    for scan in ("r1_one", "r1_two", "r1_three"):
        is_the_same(near.site, far.site, scan)
    # A kill costs a handshake, and the records that were being sent.
    assert 3 * BYTES < relay.up < 1.02 * 3 * BYTES + 2 * 700_000, (relay.up, 3 * BYTES)


def test_the_queue_is_changed_over_rest_and_from_the_command_line(tmp_path):
    told = tmp_path / "told"
    alert = f'[[alert]]\nname = "duty"\non = ["transfer"]\ncommand = ["/bin/sh", "-c", "cat >> {told}"]\n'
    receive = '[receive]\nlisten = "127.0.0.1:0"\naddress = "127.0.0.1:9"\n'
    with Exchange(tmp_path, "near", receive + alert) as station:
        station.stop(begin(station, "one"))
        # Nothing listens at the address of this invitation, so transfers wait.
        made = station.post("invitations", {"name": "other", "lifetime": "1h"})
        assert made["invitation"].startswith("fullbore://127.0.0.1:9/") and made["key"] == station.told["receive"]["key"]
        to = {"scans": ["r1"], "to": made["invitation"], "priority": 2}
        assert "needs an admin" in station.post("", to, 403, role="operator")["detail"]
        (added,) = station.post("", to)
        assert added == {"id": added["id"], "scan": "r1_one", "to": "fullbore://127.0.0.1:9", "new": True}
        assert not station.post("", {**to, "scans": ["r1_one"]})[0]["new"]
        one = f"{TRANSFERS}/{added['id']}"
        waiting = station.until_sent("r1_one", "waiting")
        assert "next attempt in" in waiting["reason"]
        wait(lambda: station.metrics().get(("fullbore_transfer_held", str(added["id"]), "r1_one", added["to"], "destination")), "held")
        changed = station.ask("PATCH", one, {"priority": 7, "rate": "8Mbit/s"}, role="operator").json
        assert (changed["priority"], changed["rate_limit"]) == (7, 1_000_000)
        assert station.ask("PATCH", one, {"rate": None}, role="operator").json["rate_limit"] is None
        assert station.ask("POST", f"{one}/pause", role="operator").json["state"] == "paused"
        run("transfers", "resume", added["id"], env=station.env)
        assert station.ask("GET", one).json["state"] != "paused"
        assert station.ask("DELETE", one, role="operator").json["scan"] == "r1_one"
        assert station.ask("GET", one).status == 404 and station.transfers() == []
        # A site whose key is not known cannot be sent to. The alert says so.
        listener = station.told["receive"]["address"]
        (failing,) = station.post("", {"scans": ["r1_one"], "to": f"fullbore://{listener}"}, role="operator")
        failed = station.until_sent("r1_one", "failed")
        assert "not known" in failed["last_error"]
        notice = wait(lambda: told.exists() and told.read_text().strip().splitlines(), "the alert")[0]
        assert json.loads(notice)["kind"] == "transfer" and "not known" in notice
        assert station.ask("GET", "/api/v1/status").json["transfers"]["counts"] == {"failed": 1}
        run("transfers", "rm", failing["id"], env=station.env)
        second = run("transfers", "run", "--once", "--store", station.store, code=REFUSED, env=station.env)
        assert f"process {station.process.pid}" in second.stderr.decode()
        rule = station.post("rules", {"sessions": "x*", "to": "s3://bucket/scans", "window": "22:00-06:00"}, role="operator")
        assert station.ask("GET", f"{TRANSFERS}/rules").json == [rule] and rule["window"] == "22:00-06:00"
        assert json.loads(run("transfers", "rules", "--json", env=station.env).stdout) == [rule]
        assert station.ask("DELETE", f"{TRANSFERS}/rules/{rule['id']}", role="operator").status == 200
        (open_,) = station.ask("GET", f"{TRANSFERS}/sites").json["invitations"]
        assert station.ask("DELETE", f"{TRANSFERS}/invitations/{open_['id']}").status == 204
        assert station.ask("DELETE", f"{TRANSFERS}/invitations/{open_['id']}").status == 404
        host, port = listener.rsplit(":", 1)
        socket.create_connection((host, int(port))).close()
        incoming = lambda: station.ask("GET", f"{TRANSFERS}/incoming", role="viewer").json
        assert wait(lambda: incoming()["events"], "a refusal")[-1]["event"] == "refused"
        assert incoming()["receive"]["refused"] >= 1
        for body, why in (
            ({"scans": ["none"], "to": "fullbore://far"}, "no scan or session none"),
            ({"scans": [], "to": "fullbore://far"}, "1 to 1000"),
            ({"scans": ["r1"], "to": "file:///tmp"}, "cannot name a destination of file://"),
            ({"scans": ["r1"], "to": "fullbore://far", "rate": "1bit/s"}, "too low"),
            ({"scans": ["r1"], "to": "fullbore://far", "window": "night"}, "window: "),
            ({"scans": ["r1"], "to": "fullbore://far", "store": "/"}, "unknown field `store`"),
        ):
            answer = station.ask("POST", TRANSFERS, body)
            assert answer.status in (400, 404, 422) and why in answer.json["detail"], (body, answer.body)
        station.write(receive.replace("127.0.0.1:9", "127.0.0.1:10") + "[transfers]\nrun = false\n")
        assert station.reload()["needs_restart"] == ["[receive]", "[transfers]"]
