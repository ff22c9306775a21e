"""Copies at `gs://`, at a server of S3 or one that is named, and at `az://`, at Azurite, Microsoft's own emulator."""

import http.client
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from fullbore import INTACT, Scan
from test_objects import S3S, site, wait_for
from test_transfer import is_the_same, record

# `make` installs it beside Python.
PLACES = f"{Path(sys.prefix)}/azurite/node_modules/.bin:{os.environ['PATH']}"
AZURITE = shutil.which(os.environ.get("FULLBORE_AZURITE", "azurite-blob"), path=PLACES)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def serve(command, url, env=None):
    server = subprocess.Popen(
        command, env={**os.environ, **(env or {})}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(url, server)
        yield url
    finally:
        server.terminate()
        server.wait()


class WithoutToken(http.server.BaseHTTPRequestHandler):
    """Passes requests on without their token, for which a server of S3 would want a signature."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "authorization"}
        there = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        there.request(self.command, self.path, body, headers)
        answer = there.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)
        there.close()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET


@pytest.fixture(scope="module")
def google(tmp_path_factory):
    """A server of Google's XML interface, with the bucket `scans`. Its requests are those of S3 with a token in the place
    of a signature, so that s3s-fs answers them once the token is gone. moto answers 500 to requests without a signature,
    and fake-gcs-server has no uploads by XML."""
    if url := os.environ.get("FULLBORE_GCS_URL"):
        yield url
        return
    if not S3S:
        pytest.skip("s3s-fs is not here, and no server is named (FULLBORE_GCS_URL=http://…)")
    root, behind = tmp_path_factory.mktemp("google"), free_port()
    (root / "scans").mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), WithoutToken) as server:
        server.behind = behind
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for _ in serve([S3S, "--host", "127.0.0.1", "--port", str(behind), str(root)], f"http://127.0.0.1:{behind}"):
            yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def azure(tmp_path_factory):
    if not AZURITE:
        pytest.skip("azurite is not here (npm install azurite; FULLBORE_AZURITE=…/azurite-blob)")
    port = free_port()
    place = tmp_path_factory.mktemp("azurite")
    command = [AZURITE, "--blobPort", str(port), "--location", str(place), "--silent", "--skipApiVersionCheck"]
    yield from serve(command, f"http://127.0.0.1:{port}")


def round_trip(tmp_path, place, env):
    """Sends a scan, reads it in place, and brings it back."""
    station, archive = site(tmp_path, "station"), site(tmp_path, "archive")
    station.env |= env
    archive.env |= env
    scan = record(station, ports=2, frames=1000, drop=3e-3, drop_run=3)
    sent = station.ask("send", scan, place)
    assert sent["complete"] and sent["read_back"]
    assert station.ask("send", scan, place)["carried_bytes"] < 100_000
    verified = station.ask("verify", f"{place}/{scan}", code=INTACT)
    assert verified["good"] and verified["bytes"] == sent["bytes"]
    assert [it["scan"] for it in station.ask("ls", place) if it["complete"]] == [scan]
    for name in (directory.split("_ds")[1] for directory in Scan(scan, station.store).streams):
        here = subprocess.run(station.command("cat", f"{scan}/{name}"), env=station.env, capture_output=True, check=True)
        far = station.command("cat", f"{place}/{scan}", "--stream", name)
        assert subprocess.run(far, env=station.env, capture_output=True, check=True).stdout == here.stdout
    archive.ask("receive", "--from", place, scan)
    is_the_same(station, archive, scan)
    return station, scan


def test_google_cloud_storage_takes_a_copy_and_gives_it_back(tmp_path, google):
    # A service account without keys, for servers that want none.
    account = tmp_path / "account.json"
    keys = {"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": True}
    account.write_text(json.dumps({"gcs_base_url": google, **keys}))
    env = {"GOOGLE_SERVICE_ACCOUNT": str(account), "GOOGLE_ALLOW_HTTP": "true"}
    station, scan = round_trip(tmp_path, "gs://scans/2026", env)
    # A plain GET sees the chunk files.
    (chunk, *_) = next(iter(Scan(scan, station.store).streams.values()))
    with urllib.request.urlopen(f"{google}/scans/2026/{scan}/{chunk.parent.name}/{chunk.name}") as answer:
        assert answer.read() == chunk.read_bytes()


def test_azure_takes_a_copy_and_gives_it_back(tmp_path, azure):
    env = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": azure}
    create_container(azure, "scans")
    round_trip(tmp_path, "az://scans/2026", env)


def create_container(url, name):
    """Makes a container, which `send` does not: a request signed with the key that every Azurite has."""
    import base64
    import hashlib
    import hmac
    from email.utils import formatdate

    account = "devstoreaccount1"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    date = formatdate(usegmt=True)
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    lines = ["PUT", *[""] * 11, *(f"{it}:{value}" for it, value in sorted(headers.items()))]
    lines.append(f"/{account}/{account}/{name}\nrestype:container")
    signature = hmac.new(base64.b64decode(key), "\n".join(lines).encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(signature).decode()}"
    request = urllib.request.Request(f"{url}/{account}/{name}?restype=container", method="PUT", headers=headers)
    urllib.request.urlopen(request).close()
