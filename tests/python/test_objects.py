"""Copies in object stores: the same chunk files there, proven, resumed, read in place and brought back."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fullbore import FOUND, GOOD, INTACT, REFUSED, Scan, free_ports, text
from sites import Site
from test_transfer import is_the_same, record

boto3 = pytest.importorskip("boto3")
VERSITY = shutil.which(os.environ.get("FULLBORE_VERSITYGW", "versitygw"))
# `make` installs it beside Python.
S3S = shutil.which(os.environ.get("FULLBORE_S3S_FS", "s3s-fs"), path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
SERVERS = [*(["versitygw"] if VERSITY else []), *(["s3s"] if S3S else []), "moto"]
KEYS = {"AWS_ACCESS_KEY_ID": "fullbore", "AWS_SECRET_ACCESS_KEY": "sustained-rate", "AWS_REGION": "us-east-1"}


def wait_for(url, server):
    for _ in range(600):
        assert server.poll() is None, "the S3 server ended"
        try:
            return urllib.request.urlopen(url, timeout=5)
        except urllib.error.HTTPError:
            return None
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the S3 server does not answer")


@pytest.fixture(scope="module", params=SERVERS)
def s3(request, tmp_path_factory):
    """An S3 server with the bucket `scans`: versitygw if it is on the PATH, and moto."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    place = tmp_path_factory.mktemp(request.param)
    if request.param == "moto":
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    elif request.param == "s3s":
        keys = ["--access-key", KEYS["AWS_ACCESS_KEY_ID"], "--secret-key", KEYS["AWS_SECRET_ACCESS_KEY"]]
        command = [S3S, "--host", "127.0.0.1", "--port", str(port), *keys, str(place)]
    else:
        command = [VERSITY, "--port", f"127.0.0.1:{port}", "--region", "us-east-1", "posix", str(place)]
    env = {**os.environ, "ROOT_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"]}
    server = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(url, server)
        client = boto3.client(
            "s3",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )
        client.create_bucket(Bucket="scans")
        client.url = url
        yield client
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def place(s3, request):
    """A prefix of this test alone."""
    return f"s3://scans/{request.node.name.split('[')[0]}"


def site(tmp_path, name, s3=None, disks=2):
    host = Site(tmp_path, name, [tmp_path / f"{name}{n}" for n in range(disks)])
    for name in [it for it in host.env if it.startswith("AWS_")]:
        del host.env[name]
    if s3:
        host.env |= {**KEYS, "AWS_ENDPOINT_URL": s3.url, "AWS_ALLOW_HTTP": "true"}
    return host


def key(address):
    return address.removeprefix("s3://scans/")


def objects(s3, address):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="scans", Prefix=key(address) + "/")
    return {it["Key"].removeprefix(key(address) + "/"): it["Size"] for page in pages for it in page.get("Contents", [])}


def fetch(s3, address):
    return s3.get_object(Bucket="scans", Key=key(address))["Body"].read()


def put(s3, address, data):
    s3.put_object(Bucket="scans", Key=key(address), Body=data)


@pytest.mark.skipif(not shutil.which("rclone"), reason="rclone is not installed")
def test_rclone_finds_the_chunk_files_with_their_bytes(tmp_path, s3, place, request):
    station = site(tmp_path, "station", s3)
    scan = record(station)
    station.ask("send", scan, place)
    server = f":s3,provider=Other,env_auth=true,endpoint='{s3.url}',force_path_style=true"
    there = f"{server}:{place.removeprefix('s3://')}/{scan}"

    def rclone(*words):
        return subprocess.run(["rclone", *words], env=station.env, capture_output=True, check=True).stdout

    for chunks in Scan(scan, station.store).streams.values():
        for chunk in chunks:
            assert rclone("cat", f"{there}/{chunk.parent.name}/{chunk.name}") == chunk.read_bytes()
    # s3s-fs lists nothing below a prefix and a delimiter.
    if "[s3s]" not in request.node.name:
        listed = text(rclone("lsf", "-R", "--files-only", there)).splitlines()
        assert set(listed) == set(objects(s3, f"{place}/{scan}"))


def test_a_copy_is_plain_files_and_comes_back_the_same(tmp_path, s3, place):
    station, archive = site(tmp_path, "station", s3), site(tmp_path, "archive", s3)
    scan = record(station, drop=1e-3, drop_run=3)
    sent = station.ask("send", scan, place)
    assert sent["complete"] and not sent["read_back"]
    # Another program sees the chunk files of both members in one tree, with their bytes.
    there = objects(s3, f"{place}/{scan}")
    for name, chunks in Scan(scan, station.store).streams.items():
        for chunk in chunks:
            relative = f"{chunk.parent.name}/{chunk.name}"
            assert fetch(s3, f"{place}/{scan}/{relative}") == chunk.read_bytes(), relative
    assert {"copy.json", "complete.json"} <= there.keys()
    # The receipt proves the copy, so the scan may go here.
    (receipt,) = station.ask("info", scan)["copies"]
    assert receipt["proven"] and receipt["host"] == place
    assert station.ask("send", scan, place)["carried_bytes"] < 100_000
    assert station.ask("send", scan, place, "--read-back")["read_back"]
    # It is read in place.
    verified = station.ask("verify", f"{place}/{scan}", code=INTACT)
    assert verified["good"] and verified["bytes"] == sent["bytes"]
    assert station.ask("info", f"{place}/{scan}")["manifest"]["uuid"] == receipt["scan"]
    assert [it["scan"] for it in station.ask("ls", place) if it["complete"]] == [scan]
    for name in (directory.split("_ds")[1] for directory in Scan(scan, station.store).streams):
        here = subprocess.run(station.command("cat", f"{scan}/{name}"), env=station.env, capture_output=True, check=True)
        far = [*station.command("cat", f"{place}/{scan}", "--stream", name)]
        assert subprocess.run(far, env=station.env, capture_output=True, check=True).stdout == here.stdout
    # And it comes back.
    assert archive.ask("receive", "--from", place, "--list")[0]["scan"] == scan
    received = archive.ask("receive", "--from", place, scan)
    assert received["bytes"] == sent["bytes"]
    is_the_same(station, archive, scan)
    assert archive.ask("receive", "--from", place, scan)["carried_bytes"] == 0
    station.run("rm", "--yes", "--copied", scan)


def test_a_killed_upload_continues_and_is_incomplete_until_then(tmp_path, s3, place):
    station = site(tmp_path, "station", s3)
    scan = record(station)
    total = sum(chunk.stat().st_size for chunks in Scan(scan, station.store).streams.values() for chunk in chunks)
    for kill in range(2):
        sending = station.start("send", scan, place, "--rate", "32Mbit/s", "--json")
        count = len(objects(s3, f"{place}/{scan}"))
        while len(objects(s3, f"{place}/{scan}")) < count + 2 + 10 * (kill == 0):
            assert sending.poll() is None, "it was not killed in the middle"
            time.sleep(0.01)
        sending.send_signal(signal.SIGKILL)
        sending.wait()
        (listed,) = station.ask("ls", place)
        assert not listed["complete"]
        told = station.ask("verify", f"{place}/{scan}", code=FOUND)
        assert not told["good"] and "incomplete" in told["problem"]
        assert "incomplete" in text(station.run("receive", "--from", place, scan, code=FOUND).stderr)
    there = objects(s3, f"{place}/{scan}")
    chunks = {name: size for name, size in there.items() if ".fullbore" not in name and "/" in name}
    assert chunks
    sent = station.ask("send", scan, place)
    # Of all attempts together: what was there was not sent again.
    assert sent["carried_bytes"] + sum(chunks.values()) <= 1.1 * total
    assert station.ask("verify", f"{place}/{scan}", code=INTACT)["good"]


def test_a_damaged_object_is_found_and_named(tmp_path, s3, place):
    station, archive = site(tmp_path, "station", s3), site(tmp_path, "archive", s3)
    scan = record(station)
    station.ask("send", scan, place)
    name = sorted(it for it in objects(s3, f"{place}/{scan}") if it.endswith(".00000000"))[0]
    data = bytearray(fetch(s3, f"{place}/{scan}/{name}"))
    data[70_000] ^= 4
    put(s3, f"{place}/{scan}/{name}", bytes(data))
    told = station.ask("verify", f"{place}/{scan}", code=FOUND)
    (finding,) = told["findings"]
    assert not told["good"] and finding["object"].endswith(name)
    assert finding["offset"] == 0 and len(data) > 70_000
    assert name in text(archive.run("receive", "--from", place, scan, code=FOUND).stderr)
    assert "CRC32C" in text(station.run("send", scan, place, "--read-back", code=FOUND).stderr)
    # Without the object, only it is sent again.
    s3.delete_object(Bucket="scans", Key=key(f"{place}/{scan}/{name}"))
    assert station.ask("verify", f"{place}/{scan}", code=FOUND)["findings"]
    again = station.ask("send", scan, place)
    assert again["carried_bytes"] < 2 * len(data) + 100_000
    assert station.ask("verify", f"{place}/{scan}", code=INTACT)["good"]


@pytest.mark.parametrize("name", ["../evil/x.00000000", "/etc/passwd", "{scan}/../../evil", "{scan}/.fullbore/copies.json"])
def test_hostile_names_are_refused(tmp_path, s3, place, name):
    station, archive = site(tmp_path, "station", s3), site(tmp_path, "archive", s3)
    scan = record(station, ports=1, frames=500)
    place = f"{place}/{abs(hash(name))}"
    station.ask("send", scan, place)
    listed = json.loads(fetch(s3, f"{place}/{scan}/copy.json"))
    listed["files"].append({"name": name.format(scan=scan), "bytes": 5, "crc32c": "00000000"})
    put(s3, f"{place}/{scan}/copy.json", json.dumps(listed).encode())
    before = set(tmp_path.rglob("*"))
    assert "a file that no scan has" in text(archive.run("receive", "--from", place, scan, code=FOUND).stderr)
    assert "a file that no scan has" in station.ask("verify", f"{place}/{scan}", code=FOUND)["problem"]
    # Opening a member for the first time gives it an identity, and that is all.
    assert {it.name for it in set(tmp_path.rglob("*")) - before} <= {".fullbore", "member.json"}


def test_another_scan_is_not_overwritten(tmp_path, s3, place):
    one, other = site(tmp_path, "one", s3), site(tmp_path, "other", s3)
    scan = record(one, ports=1, frames=500)
    assert record(other, ports=1, frames=500) == scan
    one.ask("send", scan, place)
    assert "another scan" in text(other.run("send", scan, place, code=FOUND).stderr)
    assert one.ask("verify", f"{place}/{scan}", code=INTACT)["good"]


def test_errors_say_what_to_do(tmp_path, s3):
    station = site(tmp_path, "station", s3)
    scan = record(station, ports=1, frames=500)

    def said(address="s3://scans/x", **env):
        station.env |= env
        return text(station.run("send", scan, address, "--patience", "1s", code=(FOUND, REFUSED)).stderr)

    assert "create the bucket" in said("s3://no-such-bucket/x")
    assert "AWS_ALLOW_HTTP" in said(AWS_ALLOW_HTTP="false")
    # Nothing listens at port 1.
    assert "reachable" in said(AWS_ALLOW_HTTP="true", AWS_ENDPOINT_URL="http://127.0.0.1:1")
    assert "no copy" in text(
        site(tmp_path, "other", s3).run("info", "s3://scans/nothing/r1_one", code=REFUSED).stderr
    )


def test_a_directory_needs_no_server_and_is_a_store(tmp_path):
    station, archive = site(tmp_path, "station"), site(tmp_path, "archive")
    scan = record(station, drop=1e-3, drop_run=3)
    place = f"file://{tmp_path}/shelf"
    (tmp_path / "shelf").mkdir()
    sent = station.ask("send", scan, place)
    assert sent["complete"] and sent["read_back"]
    # The tree is a member of a disk set: everything that verifies a recording verifies it.
    shelf = Site(tmp_path, "reader", [tmp_path / "shelf" / scan])
    told = shelf.ask("verify", scan, code=INTACT)
    assert told["good"] and told["findings"] == []
    archive.ask("receive", "--from", place, scan)
    is_the_same(station, archive, scan)


class Dav(BaseHTTPRequestHandler):
    """As much of WebDAV as a client of files needs."""

    protocol_version, files = "HTTP/1.1", {}

    def answer(self, code, data=b"", **headers):
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_PUT(self):
        self.files[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(201)

    def do_MKCOL(self):
        self.answer(201)

    def do_DELETE(self):
        self.answer(204 if self.files.pop(self.path, None) is not None else 404)

    def do_GET(self):
        data = self.files.get(self.path)
        if data is None:
            return self.answer(404)
        headers = {"Last_Modified": "Thu, 26 Nov 2026 00:00:00 GMT", "ETag": '"1"'}
        wanted = self.headers.get("Range")
        if not wanted:
            return self.answer(200, data, **headers)
        first, last = map(int, wanted.removeprefix("bytes=").split("-"))
        last = min(last, len(data) - 1)
        self.answer(206, data[first : last + 1], Content_Range=f"bytes {first}-{last}/{len(data)}", **headers)

    do_HEAD = do_GET

    def do_PROPFIND(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        responses = "".join(
            f"<D:response><D:href>{name}</D:href><D:propstat><D:prop><D:getlastmodified>Thu, 26 Nov 2026 00:00:00 GMT"
            f"</D:getlastmodified><D:getcontentlength>{len(data)}</D:getcontentlength><D:resourcetype/></D:prop>"
            "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
            for name, data in self.files.items()
            if name.startswith(self.path.rstrip("/") + "/")
        )
        if not responses:
            return self.answer(404)
        self.answer(207, f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{responses}</D:multistatus>'.encode())

    def log_message(self, *_):
        pass


def test_webdav_takes_a_copy_and_it_is_read_back(tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Dav)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    station, archive = site(tmp_path, "station"), site(tmp_path, "archive")
    scan = record(station)
    place = f"http://127.0.0.1:{server.server_port}/dav"
    assert station.ask("send", scan, place)["read_back"]
    assert station.ask("verify", f"{place}/{scan}", code=INTACT)["good"]
    archive.ask("receive", "--from", place, scan)
    is_the_same(station, archive, scan)
    server.shutdown()
