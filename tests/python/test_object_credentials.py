"""Credentials of object stores: AWS profiles, passwords of WebDAV servers, and signed addresses."""

import base64
import subprocess
import threading
from http.server import ThreadingHTTPServer

import pytest
from fullbore import FOUND, INTACT, REFUSED, text
from test_objects import KEYS, Dav, s3, site  # noqa: F401 (s3 is a fixture)
from test_transfer import is_the_same, record

REFUSALS = (FOUND, REFUSED)


def profile(tmp_path, s3, host, name="archive"):
    """Puts the keys into files, and takes them from the environment."""
    folder = tmp_path / "home" / ".aws"
    folder.mkdir(parents=True)
    (folder / "credentials").write_text(
        f"[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n\n[{name}]\n"
        f"aws_access_key_id = {KEYS['AWS_ACCESS_KEY_ID']}\naws_secret_access_key = {KEYS['AWS_SECRET_ACCESS_KEY']}\n"
    )
    (folder / "config").write_text(
        f"[profile {name}]\nregion = us-east-1\nendpoint_url = {s3.url}\ns3 =\n  addressing_style = path\n"
        "[profile people]\nsso_session = one\n"
    )
    for variable in [*KEYS, "AWS_ENDPOINT_URL"]:
        host.env.pop(variable, None)
    host.env |= {"HOME": str(tmp_path / "home"), "AWS_ALLOW_HTTP": "true"}


def test_an_aws_profile_has_keys_region_and_endpoint(tmp_path, s3):  # noqa: F811
    station = site(tmp_path, "station", s3)
    scan = record(station, ports=1, frames=500)
    place = "s3://scans/profile"
    profile(tmp_path, s3, station)
    station.env["AWS_PROFILE"] = "archive"
    assert station.ask("send", scan, place)["complete"]
    assert station.ask("verify", f"{place}/{scan}", code=INTACT)["good"]
    # An endpoint of a profile without TLS is refused as one of the environment is.
    del station.env["AWS_ALLOW_HTTP"]
    assert "TLS" in text(station.run("verify", f"{place}/{scan}", code=REFUSALS).stderr)
    station.env["AWS_ALLOW_HTTP"] = "true"
    # The files can be elsewhere, and the environment counts more than they do.
    moved = tmp_path / "moved"
    (tmp_path / "home" / ".aws").rename(moved)
    station.env |= {"AWS_SHARED_CREDENTIALS_FILE": f"{moved}/credentials", "AWS_CONFIG_FILE": f"{moved}/config"}
    assert station.ask("verify", f"{place}/{scan}", code=INTACT)["good"]
    station.env["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
    assert "127.0.0.1:1" in text(station.run("ls", place, code=REFUSALS).stderr)


def test_profiles_that_do_not_exist_or_have_no_keys_are_named(tmp_path, s3):  # noqa: F811
    station = site(tmp_path, "station", s3)
    profile(tmp_path, s3, station)
    for name, words in [("nobody", ["no profile `nobody`", "AWS_PROFILE"]), ("people", ["sso_session", "export-credentials"])]:
        station.env["AWS_PROFILE"] = name
        said = text(station.run("ls", "s3://scans/x", code=REFUSALS).stderr)
        assert all(word in said for word in words), said


class Guarded(Dav):
    """A WebDAV server that wants a password, or a signature in the query."""

    files = {}
    login = "Basic " + base64.b64encode(b"station:s3:cr t").decode()
    signature = "Policy=p&Signature=5ec2e7&Key-Pair-Id=k"

    def parse_request(self):
        if not super().parse_request():
            return False
        self.path, _, query = self.path.partition("?")
        signed = query == self.signature and self.command in ("GET", "HEAD")
        if signed or self.headers.get("Authorization") == self.login:
            return True
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(401)
        return False


@pytest.fixture
def guarded():
    Guarded.files = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Guarded)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/dav"
    server.shutdown()


def test_a_webdav_server_gets_its_password_from_the_environment_or_a_file(tmp_path, guarded):
    station = site(tmp_path, "station")
    station.env["HOME"] = str(tmp_path)
    scan = record(station, ports=1, frames=500)
    assert "credentials" in text(station.run("send", scan, guarded, "--patience", "1s", code=REFUSALS).stderr)
    station.env |= {"FULLBORE_HTTP_USER": "station", "FULLBORE_HTTP_PASSWORD": "s3:cr t"}
    assert station.ask("send", scan, guarded)["read_back"]
    del station.env["FULLBORE_HTTP_PASSWORD"]
    assert "only one of" in text(station.run("verify", f"{guarded}/{scan}", code=REFUSALS).stderr)
    # `netrc` has no quotes, so a password with a space is only for the environment.
    del station.env["FULLBORE_HTTP_USER"]
    Guarded.login, before = "Basic " + base64.b64encode(b"station:plain").decode(), Guarded.login
    try:
        netrc = tmp_path / ".netrc"
        netrc.write_text("machine other login a password b\nmachine 127.0.0.1\n  login station\n  password plain\n")
        netrc.chmod(0o644)
        assert "readable by other users" in text(station.run("verify", f"{guarded}/{scan}", code=REFUSALS).stderr)
        netrc.chmod(0o600)
        assert station.ask("verify", f"{guarded}/{scan}", code=INTACT)["good"]
    finally:
        Guarded.login = before


def test_a_password_is_not_sent_without_tls(tmp_path):
    station = site(tmp_path, "station")
    station.env |= {"FULLBORE_HTTP_USER": "station", "FULLBORE_HTTP_PASSWORD": "secret"}
    said = text(station.run("ls", "http://archive.invalid/dav", code=REFUSALS).stderr)
    assert "TLS" in said and "secret" not in said


def test_an_address_that_is_signed_for_a_directory_is_read_in_place(tmp_path, guarded):
    station, archive = site(tmp_path, "station"), site(tmp_path, "archive")
    station.env |= {"FULLBORE_HTTP_USER": "station", "FULLBORE_HTTP_PASSWORD": "s3:cr t"}
    scan = record(station)
    station.ask("send", scan, guarded)
    signed = f"{guarded}/{scan}?{Guarded.signature}"
    assert archive.ask("verify", signed, code=INTACT)["good"]
    info = archive.run("info", signed, "--json")
    assert scan in text(info.stdout) and "5ec2e7" not in text(info.stdout)
    (first, *_) = sorted(it for it in Guarded.files if it.endswith(".00000000"))
    stream = first.split("/")[-2].split("_ds")[-1]
    read = subprocess.run(archive.command("cat", signed, "--stream", stream), env=archive.env, capture_output=True, check=True)
    assert Guarded.files[first] in read.stdout
    archive.ask("receive", "--from", f"{guarded}?{Guarded.signature}", scan)
    is_the_same(station, archive, scan)
    # What such an address is not for is refused, and no message has the signature.
    wrong = f"{guarded}/{scan}?Policy=p&Signature=5ec2e7bad&Key-Pair-Id=k"
    for command in [
        ("send", scan, f"{guarded}?{Guarded.signature}"),
        ("ls", f"{guarded}?{Guarded.signature}"),
        ("verify", wrong),
        ("verify", f"{guarded}/{scan}?X-Amz-Algorithm=a&X-Amz-Signature=5ec2e7"),
    ]:
        said = text(station.run(*command, code=REFUSALS).stderr)
        assert said and "5ec2e7" not in said, said
    assert "one object" in said
