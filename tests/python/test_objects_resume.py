"""An upload to an object store that is killed continues with the parts that the store has confirmed."""

import http.client
import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fullbore import GOOD, INTACT, Recording
from test_objects import key, objects, place, s3, site  # noqa: F401

MIB = 1 << 20
PART = 16 * MIB
# Requests of one sender at the same time.
AT_ONCE = 4


class Proxy(BaseHTTPRequestHandler):
    """Passes requests on, unchanged, and counts the parts that the server has taken."""

    protocol_version = "HTTP/1.1"

    def pass_on(self):
        server = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        to = http.client.HTTPConnection(*server.to)
        to.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            to.putheader(name, value)
        to.endheaders(body)
        answer = to.getresponse()
        data = answer.read()
        is_part = self.command == "PUT" and "partNumber=" in self.path
        if is_part and answer.status == 200:
            time.sleep(server.delay)
            with server.lock:
                server.parts += 1
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on

    def log_message(self, *_):
        pass


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A sender that is killed closes its connections."""


@pytest.fixture
def proxy(s3):  # noqa: F811
    host, port = s3.url.removeprefix("http://").split(":")
    server = Quiet(("127.0.0.1", 0), Proxy)
    server.to, server.lock, server.parts, server.delay = (host, int(port)), threading.Lock(), 0, 0.1
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def station_with(tmp_path, s3, proxy, mebibytes):  # noqa: F811
    """A station with a scan of one chunk, which sends through the proxy."""
    station = site(tmp_path, "station", s3, disks=1)
    options = ["--bytes", f"{mebibytes}MiB", "--chunk", f"{mebibytes}MiB"]
    with Recording("pattern:prbs31", store=station.store, options=options) as recording:
        assert recording.process.wait(60) == GOOD
    station.env["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.server_port}"
    return station, recording.scan


def kill_after(proxy, sending, parts):
    """Kills a sender after this many more parts. False if it was over before."""
    until = proxy.parts + parts
    while proxy.parts < until and sending.poll() is None:
        time.sleep(0.005)
    time.sleep(random.random() * proxy.delay)
    over = sending.poll() is not None
    sending.kill()
    sending.communicate()
    return not over


def kept(tmp_path):
    return list(tmp_path.rglob("upload.jsonl"))


@pytest.mark.alone
def test_a_killed_sender_repeats_only_the_parts_in_flight(tmp_path, s3, place, proxy):  # noqa: F811
    station, scan = station_with(tmp_path, s3, proxy, 384)
    needed = 384 * MIB // PART
    # A sender that began anew would repeat these six parts each time, which is more than it has in flight.
    kills = sum(kill_after(proxy, station.start("send", scan, place), 6) for _ in range(3))
    sent = station.ask("send", scan, place)
    assert sent["complete"]
    assert needed <= proxy.parts <= needed + AT_ONCE * kills, f"{proxy.parts} parts after {kills} kills"
    assert kept(tmp_path) == []
    station.env["AWS_ENDPOINT_URL"] = s3.url
    assert station.ask("verify", f"{place}/{scan}", code=INTACT)["good"]


@pytest.mark.parametrize("fault", ["the store has removed the parts", "the file is damaged", "the file has wrong parts"])
def test_an_upload_that_cannot_be_continued_begins_anew(tmp_path, s3, place, proxy, fault):  # noqa: F811
    station, scan = station_with(tmp_path, s3, proxy, 96)
    place = f"{place}/{abs(hash(fault))}"
    proxy.delay = 0.5
    assert kill_after(proxy, station.start("send", scan, place), 1), "it was not killed in the middle"
    (file,) = kept(tmp_path)
    first, *lines = file.read_text().splitlines()
    named = json.loads(first)
    if fault == "the file is damaged":
        file.write_bytes(b"\0" * 1000)
    elif fault == "the file has wrong parts":
        wrong = [json.dumps({"part": part, "id": "none"}) for part in range(6)]
        file.write_text("\n".join([first, *wrong]) + "\n")
    else:
        name = key(named["object"])
        s3.abort_multipart_upload(Bucket="scans", Key=name, UploadId=named["upload"])
    # The proxy sends whole requests before it reads answers, and a server may refuse one early.
    station.env["AWS_ENDPOINT_URL"] = s3.url
    assert station.ask("send", scan, place)["complete"]
    assert kept(tmp_path) == []
    assert station.ask("verify", f"{place}/{scan}", code=INTACT)["good"]
    assert 96 * MIB in objects(s3, f"{place}/{scan}").values()
