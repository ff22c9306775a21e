"""Copies at `gs://`, at a server that is named, and at `az://`, at Azurite, Microsoft's own emulator."""

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from fullbore import INTACT, Scan
from test_objects import site, wait_for
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


@pytest.fixture(scope="module")
def google():
    """A server of Google's XML interface, with the bucket `scans`. moto answers 500 to requests without a signature."""
    url = os.environ.get("FULLBORE_GCS_URL")
    if not url:
        pytest.skip("no server of Google's XML interface is known (FULLBORE_GCS_URL=http://…)")
    return url


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
