"""etransfer: our server and client with each other, with ends written from the table of the protocol, and with the real
programs where ETRANSFER_BIN names their folder."""

import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest
from fullbore import AS_SEALED, FOUND, GOOD, PATIENCE, REFUSED, Recording, free_port, free_ports, generate
from sites import Site

ETRANSFER_BIN = os.environ.get("ETRANSFER_BIN")
real = pytest.mark.skipif(not ETRANSFER_BIN, reason="ETRANSFER_BIN names no folder with etd and etc")
ID = r"[a-zA-Z0-9]{15,20}"


@pytest.fixture
def station(tmp_path):
    return Site(tmp_path, "station")


def record(site, frames=4000):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=20000&block=64KiB"
    with Recording(source, store=site.store, scan="one", options=("--sync", "50ms", "--chunk", "1MiB")) as recording:
        generate(f"udp://127.0.0.1:{port}", frame=1056, fps=20_000, frames=frames, drop=1e-3)
        recording.stop(AS_SEALED)
    return f"{recording.scan}/{port}.vdif"


def content(site, name):
    """What `fullbore cat` gives of the stream."""
    command = site.command("cat", name.removesuffix(".vdif"))
    return subprocess.run(command, env=site.env, check=True, capture_output=True, timeout=PATIENCE).stdout


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Offer:
    """A running `fullbore receive --etransfer`."""

    def __init__(self, site, *options, port=None):
        self.port = port or free_port()
        words = ("receive", "--etransfer", f"127.0.0.1:{self.port}", "--json", *options)
        self.process = site.start(*words)
        heard = self.process.stdout.readline()
        # Tsunami says so first.
        assert b"etransfer-listening" in (self.process.stdout.readline() if b"tsunami-listening" in heard else heard)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=PATIENCE)
        self.events = [json.loads(line) for line in out.splitlines()]

    @property
    def url(self):
        return f"etransfer://127.0.0.1:{self.port}"


class Talk:
    """A connection on which lines are said and heard."""

    def __init__(self, stream):
        if isinstance(stream, int):
            stream = socket.create_connection(("127.0.0.1", stream), PATIENCE)
        self.stream, self.heard = stream, b""

    def say(self, line):
        self.stream.sendall(line if isinstance(line, bytes) else line.encode() + b"\n")

    def line(self):
        while b"\n" not in self.heard:
            more = self.stream.recv(1 << 16)
            if not more:
                raise EOFError(self.heard)
            self.heard += more
        line, _, self.heard = self.heard.partition(b"\n")
        return line.decode()

    def ask(self, line):
        """The lines of the answer, up to the one that ends it."""
        self.say(line)
        lines = [self.line()]
        while not re.fullmatch(r"OK|OK,.*|ERR.*|OK 1", lines[-1]):
            lines.append(self.line())
        return lines

    def exactly(self, count):
        while len(self.heard) < count:
            more = self.stream.recv(1 << 16)
            if not more:
                raise EOFError(self.heard)
            self.heard += more
        data, self.heard = self.heard[:count], self.heard[count:]
        return data

    def opened(self, line):
        """The number and the id of a file that was opened."""
        number, uuid, end = self.ask(line)
        assert end == "OK"
        assert re.fullmatch(f"UUID:{ID}", uuid)
        return int(re.fullmatch(r"(?:Remain|AlreadyHave):(\d+)", number)[1]), uuid.removeprefix("UUID:")

    def is_closed(self, within=5):
        self.stream.settimeout(within)
        try:
            return self.stream.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


def push(port, path, data, mode="New", upto=None):
    """Sends a file as `etc` does, as far as `upto`. Returns the connections."""
    control = Talk(port)
    have, uuid = control.opened(f"write-file-{mode} {path}")
    channel = Talk(port)
    channel.say(f"{{ uuid:{uuid}, sz:{len(data) - have}}}".encode() + data[have:upto])
    return control, channel, uuid, have


def until(check, within=PATIENCE):
    end = time.monotonic() + within
    while not check():
        assert time.monotonic() < end
        time.sleep(0.02)


class Etd:
    """A server with the answers of `etd`: control on one port, data on another, real files in a folder."""

    def __init__(self, folder, addresses="OK <udt/0.0.0.0:9/mss=1500,max-bw=-1>\nOK <tcp/0.0.0.0:{}/mss=0,max-bw=0>\nOK\n"):
        self.folder, self.addresses, self.open, self.said, self.cut = folder, addresses, {}, [], None
        self.control, self.data = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
        self.port = self.control.getsockname()[1]
        for listener, serve in (self.control, self.converse), (self.data, self.carry):
            threading.Thread(target=self.accept, args=(listener, serve), daemon=True).start()

    @property
    def url(self):
        return f"etransfer://127.0.0.1:{self.port}/data/"

    def accept(self, listener, serve):
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=self.quietly, args=(serve, stream), daemon=True).start()

    def quietly(self, serve, stream):
        with stream, contextlib.suppress(EOFError, OSError):
            serve(Talk(stream))

    def converse(self, talk):
        uuid = "abcDEF0123456789" + str(len(self.said) % 10)
        while True:
            line = talk.line()
            self.said.append(line)
            word, _, rest = line.partition(" ")
            if word == "protocol-version":
                talk.say("OK 1")
            elif word == "data-channel-addr-ext":
                talk.say(self.addresses.format(self.data.getsockname()[1]).encode())
            elif word == "list":
                names = sorted(it.name for it in self.folder.iterdir())
                talk.say("".join(f"OK /data/{name}\n" for name in names).encode() + b"OK\n")
            elif word.startswith("write-file-"):
                path = self.folder / os.path.basename(rest)
                file = path.open({"write-file-Resume": "ab", "write-file-OverWrite": "wb"}[word])
                file.seek(0, os.SEEK_END)
                self.open[uuid] = file
                talk.say(f"AlreadyHave:{file.tell()}\nUUID:{uuid}\nOK")
            elif word == "read-file":
                have, path = rest.split(" ", 1)
                path = self.folder / os.path.basename(path)
                if not path.exists():
                    talk.say("ERR No such file or directory")
                    continue
                self.open[uuid] = path.open("rb")
                self.open[uuid].seek(int(have))
                talk.say(f"Remain:{path.stat().st_size - int(have)}\nUUID:{uuid}\nOK")
            elif word == "remove-uuid":
                self.open.pop(rest).close()
                talk.say("OK")
            else:
                return

    def carry(self, talk):
        while True:
            header = b""
            while not header.endswith(b"}"):
                header += talk.exactly(1)
            found = re.fullmatch(rb"\{ uuid:(\w+),( push:1,)? sz:(\d+)\}", header)
            file, left = self.open[found[1].decode()], int(found[3])
            cut = min(left, self.cut if self.cut is not None else left)
            if found[2]:
                talk.say(file.read(cut))
                if cut < left:
                    return
                assert talk.exactly(1) == b"y"
            else:
                file.write(talk.exactly(cut))
                file.flush()
                if cut < left:
                    return
                talk.say(b"y")


# Our ends with each other.


def test_our_client_fetches_from_our_server_what_cat_gives(station, tmp_path):
    name = record(station)
    wanted = content(station, name)
    with Offer(station) as offer:
        assert station.ask("receive", "--from", offer.url, "--list") == [name]
        assert station.ask("receive", "--from", f"{offer.url}/{name.split('/')[0]}/", "--list") == [name]
        assert station.ask("receive", "--from", f"{offer.url}/other/*", "--list") == []
        told = station.ask("receive", "--from", offer.url, name, "--to", tmp_path / "here")
        here = tmp_path / "here" / name.replace("/", "_")
        assert told["path"] == str(here) and digest(here.read_bytes()) == digest(wanted)
        assert told["bytes"] == told["carried_bytes"] == len(wanted)
        assert [it.name for it in here.parent.iterdir()] == [here.name]
        again = station.run("receive", "--from", offer.url, name, "--to", tmp_path / "here", code=FOUND)
        assert "exists" in str(again.stderr)
        # A part of the file is not fetched again.
        part = here.rename(here.with_name(here.name + ".part"))
        os.truncate(part, 12345)
        told = station.ask("receive", "--from", offer.url, name, "--to", tmp_path / "here")
        assert told["carried_bytes"] == len(wanted) - 12345 and digest(here.read_bytes()) == digest(wanted)
    assert [it["bytes"] for it in offer.events if it["event"] == "etransfer-sent"] == [len(wanted), len(wanted) - 12345]


def test_our_client_sends_to_our_server(station, tmp_path):
    name = record(station)
    wanted, there = content(station, name), tmp_path / "there"
    scan = name.split("/")[0]
    with Offer(station, "--incoming", there) as offer:
        told = station.ask("send", scan, f"{offer.url}/")
        file = there / name.replace("/", "_")
        assert told["carried_bytes"] == len(wanted) and digest(file.read_bytes()) == digest(wanted)
        # All of it is there already.
        assert station.ask("send", scan, f"{offer.url}/")["carried_bytes"] == 0
        refused = station.run("send", scan, f"{offer.url}/", "--overwrite", code=FOUND)
        assert "nothing is overwritten" in str(refused.stderr)
        # Directories of this host are nobody else's business.
        station.run("send", scan, f"{offer.url}/tmp/", code=FOUND)
        assert [it.name for it in there.iterdir()] == [file.name]
    assert [it["path"] for it in offer.events if it["event"] == "etransfer-received"] == [str(file)]


@pytest.mark.parametrize("victim", ["client", "server"])
def test_a_transfer_that_is_killed_resumes(station, tmp_path, victim):
    name = record(station)
    wanted, there = content(station, name), tmp_path / "there"
    scan, part = name.split("/")[0], there / (name.replace("/", "_") + ".part")
    offer = Offer(station, "--incoming", there)
    sender = station.start("send", scan, f"{offer.url}/", "--rate", "16Mbit/s")
    until(lambda: part.exists() and part.stat().st_size > 300_000)
    (offer.process if victim == "server" else sender).kill()
    sender.communicate(timeout=PATIENCE)
    if victim == "server":
        assert sender.returncode == FOUND
        offer.process.communicate(timeout=PATIENCE)
        offer = Offer(station, "--incoming", there)
    have = part.stat().st_size
    assert 300_000 < have < len(wanted)
    with offer:
        # The server needs a moment to see that a client is gone.
        until(lambda: station.run("send", scan, f"{offer.url}/", code=(GOOD, FOUND, REFUSED)).returncode == GOOD)
    file = there / name.replace("/", "_")
    assert digest(file.read_bytes()) == digest(wanted) and not part.exists()
    received = [it["bytes"] for it in offer.events if it["event"] == "etransfer-received"]
    assert len(received) == 1 and received[0] <= len(wanted) - have


def test_a_fetch_that_is_killed_resumes(station, tmp_path):
    name = record(station)
    wanted, file = content(station, name), tmp_path / "here" / name.replace("/", "_")
    part = file.with_name(file.name + ".part")
    with Offer(station) as offer:
        fetch = station.start("receive", "--from", offer.url, name, "--to", file.parent, "--rate", "16Mbit/s")
        until(lambda: part.exists() and part.stat().st_size > 300_000)
        fetch.kill()
        fetch.communicate(timeout=PATIENCE)
        have = part.stat().st_size
        told = station.ask("receive", "--from", offer.url, name, "--to", file.parent)
    assert told["carried_bytes"] == len(wanted) - have < len(wanted)
    assert digest(file.read_bytes()) == digest(wanted)


def test_the_rate_of_the_server_holds_both_ways(station, tmp_path):
    name = record(station)
    wanted = content(station, name)
    with Offer(station, "--incoming", tmp_path / "there", "--rate", "16Mbit/s") as offer:
        for words in ("send", name.split("/")[0], f"{offer.url}/"), ("receive", "--from", offer.url, name, "--to", tmp_path / "here"):
            since = time.monotonic()
            assert station.ask(*words)["carried_bytes"] == len(wanted)
            # Of 2 MB/s, a second may come at once.
            assert time.monotonic() - since > len(wanted) / 2e6 - 1.2


def test_tsunami_and_etransfer_are_offered_side_by_side(station, tmp_path):
    name = record(station, frames=500)
    port, other = free_ports(2)
    with Offer(station, "--tsunami", f"127.0.0.1:{port}", port=other) as offer:
        url = f"tsunami://127.0.0.1:{port}"
        until(lambda: station.run("receive", "--from", url, "--list", code=(GOOD, FOUND, REFUSED)).returncode == GOOD)
        for number, url in enumerate((url, offer.url)):
            station.ask("receive", "--from", url, name, "--to", tmp_path / str(number))
    files = [(tmp_path / str(number) / name.replace("/", "_")).read_bytes() for number in range(2)]
    assert files[0] == files[1] == content(station, name)


# Our server, and a client written from the table of the protocol.


def test_a_client_written_from_the_table_reads(station):
    name = record(station)
    wanted = content(station, name)
    with Offer(station) as offer:
        control = Talk(offer.port)
        # The requests of `etc`, in its order.
        assert control.ask("protocol-version") == ["OK 1"]
        assert control.ask(f"list /{name}") == [f"OK {name}", "OK"]
        assert control.ask("data-channel-addr-ext") == [f"OK <tcp/127.0.0.1:{offer.port}>", "OK"]
        remain, uuid = control.opened(f"READ-FILE 1000 /{name}")
        assert remain == len(wanted) - 1000
        channel = Talk(offer.port)
        channel.say(f"{{ uuid:{uuid}, push:1, sz:5000}}".encode())
        assert channel.exactly(5000) == wanted[1000:6000]
        channel.say(b"y")
        # A connection can be used again, and a header can come in pieces.
        for byte in f'{{SZ:{remain - 5000}, push : 1,UUID:"{uuid}"}}'.encode():
            channel.say(bytes([byte]))
        assert digest(channel.exactly(remain - 5000)) == digest(wanted[6000:])
        channel.say(b"y")
        assert control.ask(f"remove-uuid {uuid}") == ["OK"]
        assert control.ask(f"remove-uuid {uuid}")[0].startswith("ERR ")
        assert control.ask(f"read-file {len(wanted) + 1} {name}")[0].startswith("ERR ")


def test_a_client_written_from_the_table_writes_in_every_mode(station, tmp_path):
    data, there = os.urandom(3_000_000), tmp_path / "there"
    with Offer(station, "--incoming", there) as offer:
        control, channel, uuid, have = push(offer.port, "/x.vdif", data)
        assert have == 0 and channel.exactly(1) == b"y"
        assert digest((there / "x.vdif").read_bytes()) == digest(data)
        assert control.ask(f"remove-uuid {uuid}") == ["OK"]
        # `etc` knows this error by these two words.
        for mode in "New", "OverWrite":
            assert control.ask(f"write-file-{mode} /x.vdif")[0].startswith("ERR File exists")
        for mode in "Resume", "SkipExisting":
            have, uuid = control.opened(f"write-file-{mode} x.vdif")
            assert have == len(data) and control.ask(f"remove-uuid {uuid}") == ["OK"]
        # A file that is whole does not grow.
        have, uuid = control.opened("write-file-Resume x.vdif")
        more = Talk(offer.port)
        more.say(f"{{ uuid:{uuid}, sz:3}}abc".encode())
        assert more.is_closed() and (there / "x.vdif").stat().st_size == len(data)
        # One that is cut resumes, and begins again if the client says so.
        for mode, upto, resumed in ("New", 1_000_000, 0), ("Resume", 2_000_000, 1_000_000), ("OverWrite", 500_000, 0):
            cut = push(offer.port, "y.vdif", data, mode, upto)
            assert cut[3] == resumed
            until(lambda upto=upto: (there / "y.vdif.part").stat().st_size == upto)
            assert control_is_busy(offer.port, "y.vdif")
            for talk in cut[:2]:
                talk.stream.close()
            until(lambda: not control_is_busy(offer.port, "y.vdif"))
        control, channel, uuid, have = push(offer.port, "y.vdif", data, "Resume")
        assert have == 500_000 and channel.exactly(1) == b"y"
        assert digest((there / "y.vdif").read_bytes()) == digest(data)
        assert sorted(it.name for it in there.iterdir()) == ["x.vdif", "y.vdif"]


def control_is_busy(port, path):
    control = Talk(port)
    answer = control.ask(f"write-file-Resume {path}")
    if answer[-1] == "OK":
        control.ask(f"remove-uuid {answer[1].removeprefix('UUID:')}")
    control.stream.close()
    return "being written" in answer[0]


def test_our_server_sends_to_another_server_but_only_to_allowed_addresses(station, tmp_path):
    name = record(station)
    wanted, folder = content(station, name), tmp_path / "etd"
    folder.mkdir()
    etd = Etd(folder)
    with Offer(station) as offer:
        far, near = Talk(etd.port), Talk(offer.port)
        _, there = far.opened("write-file-Resume /data/x.vdif")
        remain, here = near.opened(f"read-file 0 {name}")
        address = f"<tcp/127.0.0.1:{etd.data.getsockname()[1]}>"
        assert near.ask(f"send-file {there} {there} {remain} {address}")[0].startswith("ERR,0,0 ")
        answer = near.ask(f"send-file {here} {there} {remain} <udt/127.0.0.1:1/mss=1500,max-bw=-1>,{address}")
        assert re.fullmatch(rf"OK,{len(wanted)},[0-9.]+", answer[0])
        assert digest((folder / "x.vdif").read_bytes()) == digest(wanted)
        near.ask(f"remove-uuid {here}")
        _, here = near.opened(f"read-file 0 {name}")
        # On a list that allows loopback alone, no other host is contacted.
        assert "--allow" in near.ask(f"send-file {here} {there} 1 <tcp/192.0.2.1:1>")[0]
    assert any("--allow" in it.get("why", "") for it in offer.events)


def test_cancel_interrupts_a_transfer(station):
    name = record(station)
    with Offer(station, "--rate", "1Mbit/s") as offer:
        control = Talk(offer.port)
        remain, uuid = control.opened(f"read-file 0 {name}")
        channel = Talk(offer.port)
        channel.say(f"{{ uuid:{uuid}, push:1, sz:{remain}}}".encode())
        channel.exactly(1)
        control.say(f"cancel {uuid}")
        with pytest.raises((EOFError, ConnectionError)):
            channel.exactly(remain)
        assert control.ask(f"remove-uuid {uuid}") == ["OK"]


# Our client, and a server written from the table.


def test_our_client_sends_to_a_server_written_from_the_table_and_resumes(station, tmp_path):
    name = record(station)
    wanted, folder = content(station, name), tmp_path / "etd"
    folder.mkdir()
    etd = Etd(folder)
    file = folder / name.replace("/", "_")
    etd.cut = 1_000_000
    failed = station.run("send", name.split("/")[0], etd.url, code=FOUND)
    assert "confirmed" in str(failed.stderr) or "reset" in str(failed.stderr) or "pipe" in str(failed.stderr)
    assert file.stat().st_size == 1_000_000
    etd.cut, etd.said[:] = None, []
    told = station.ask("send", name.split("/")[0], etd.url)
    assert told["carried_bytes"] == len(wanted) - 1_000_000 and digest(file.read_bytes()) == digest(wanted)
    opened = f"write-file-Resume /data/{file.name}"
    assert [re.sub(f" {ID}$", "", it) for it in etd.said] == ["protocol-version", opened, "data-channel-addr-ext", "remove-uuid"]
    # A longer file there is another one.
    file.write_bytes(wanted + b"more")
    longer = station.run("send", name.split("/")[0], etd.url, code=FOUND)
    assert "--overwrite" in str(longer.stderr) and file.stat().st_size == len(wanted) + 4
    assert station.ask("send", name.split("/")[0], etd.url, "--overwrite")["carried_bytes"] == len(wanted)
    assert digest(file.read_bytes()) == digest(wanted)


def test_our_client_fetches_from_a_server_written_from_the_table(station, tmp_path):
    folder, here = tmp_path / "etd", tmp_path / "here"
    folder.mkdir()
    (folder / "x.vdif").write_bytes(os.urandom(3_000_000))
    etd = Etd(folder)
    assert station.ask("receive", "--from", f"{etd.url}*", "--list") == ["/data/x.vdif"]
    etd.cut = 1_000_000
    station.run("receive", "--from", etd.url, "x.vdif", "--to", here, code=FOUND)
    assert (here / "x.vdif.part").stat().st_size == 1_000_000
    etd.cut, etd.said[:] = None, []
    assert station.ask("receive", "--from", etd.url, "x.vdif", "--to", here)["carried_bytes"] == 2_000_000
    assert etd.said[1] == "read-file 1000000 /data/x.vdif"
    assert digest((here / "x.vdif").read_bytes()) == digest((folder / "x.vdif").read_bytes())
    missing = station.run("receive", "--from", etd.url, "y.vdif", "--to", here, code=FOUND)
    assert "No such file" in str(missing.stderr)
    assert sorted(it.name for it in here.iterdir()) == ["x.vdif"]


@pytest.mark.parametrize(
    "answer",
    [b"", b"OK 0\n", b"HELLO\n", b"x" * 10_000, b"ERR no\n", b"OK 1\nOK /data/../../x\n\xff\n"],
    ids=["closes", "version 0", "other protocol", "endless line", "refusal", "garbage"],
)
def test_a_server_that_keeps_to_no_protocol_is_refused(station, tmp_path, answer):
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            stream, _ = listener.accept()
            stream.recv(100)
            stream.sendall(answer)
            stream.close()

    threading.Thread(target=serve, daemon=True).start()
    url = f"etransfer://127.0.0.1:{listener.getsockname()[1]}/"
    done = station.run("receive", "--from", url, "x", "--to", tmp_path / "here", code=(GOOD, FOUND, REFUSED))
    assert done.returncode in (FOUND, REFUSED) and b"panick" not in done.stderr
    assert list((tmp_path / "here").iterdir()) == []


def test_a_server_without_tcp_is_told_apart(station, tmp_path):
    name = record(station, frames=100)
    etd = Etd(tmp_path, addresses="OK <udt/0.0.0.0:8008/mss=1500,max-bw=-1>\nOK\n")
    failed = station.run("send", name.split("/")[0], etd.url, code=FOUND)
    assert "no data channel over TCP" in str(failed.stderr)


# Peers that mean harm.


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../../etc/passwd", "..", "/", "/dev/zero:1000", "session_one", "session_one/../../../etc/passwd"],
)
def test_names_that_are_not_those_of_scans_are_not_read(station, name):
    record(station, frames=100)
    with Offer(station) as offer:
        control = Talk(offer.port)
        assert control.ask(f"read-file 0 {name}")[0].startswith("ERR ")
        assert control.ask("protocol-version") == ["OK 1"]


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "/../../*", "~/*", "/etc/passwd", "/dev/*", "{a,b}"])
def test_patterns_match_nothing_outside_the_store(station, pattern):
    record(station, frames=100)
    with Offer(station) as offer:
        assert Talk(offer.port).ask(f"list {pattern}") == ["OK"]
        assert Talk(offer.port).ask(f"list {'*' * 9}a")[0].startswith("ERR ")
        assert Talk(offer.port).ask("list [")[0].startswith("ERR ")


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/b", "..", ".bashrc", "~/x", "x.part", "a\x1b[2J", "a" * 300, "/dev/null"])
def test_paths_to_write_to_are_refused(station, tmp_path, path):
    there = tmp_path / "there"
    with Offer(station, "--incoming", there) as offer:
        for mode in "New", "OverWrite", "Resume", "SkipExisting":
            answer = Talk(offer.port).ask(f"write-file-{mode} {path}")
            assert answer[0].startswith("ERR ") and "\x1b" not in answer[0]
        assert list(there.iterdir()) == [] and not (tmp_path / "x").exists()


def test_without_incoming_nothing_is_written(station):
    with Offer(station) as offer:
        assert Talk(offer.port).ask("write-file-New x.vdif") == ["ERR this server takes no files"]


def test_links_in_the_directory_are_not_followed(station, tmp_path):
    there, secret = tmp_path / "there", tmp_path / "secret"
    there.mkdir()
    secret.write_text("secret")
    (there / "x.vdif.part").symlink_to(secret)
    (there / "y.vdif").symlink_to(secret)
    with Offer(station, "--incoming", there) as offer:
        for name in "x.vdif", "y.vdif":
            for mode in "New", "OverWrite", "Resume", "SkipExisting":
                assert Talk(offer.port).ask(f"write-file-{mode} {name}")[0].startswith("ERR ")
    assert secret.read_text() == "secret"


def test_a_file_larger_than_the_disk_is_refused_before_it_comes(station, memory_disk):
    there = memory_disk("8m")
    with Offer(station, "--incoming", there) as offer:
        control, channel = Talk(offer.port), Talk(offer.port)
        for size in 9 << 20, 2**64 - 1:
            _, uuid = control.opened("write-file-New x.vdif")
            channel = Talk(offer.port)
            channel.say(f"{{ uuid:{uuid}, sz:{size}}}".encode())
            assert channel.is_closed()
            assert control.ask(f"remove-uuid {uuid}") == ["OK"]
        assert list(there.iterdir()) == []
    assert sum("room" in it.get("why", "") for it in offer.events) == 2


@pytest.mark.parametrize(
    "said",
    [b"help\n", b"x" * 3000, b"\xff\xfe\n", b"read-file -1 x\n", b"{" * 5000, b"{}", b"{ uuid:abcdefghij0123456789, sz:1}a", b"{ uuid:, sz:1}"],
    ids=["unknown", "overlong", "binary", "negative", "endless header", "empty header", "unknown uuid", "no uuid"],
)
def test_what_is_not_of_the_protocol_closes_the_connection(station, said):
    with Offer(station) as offer:
        talk = Talk(offer.port)
        with contextlib.suppress(ConnectionError):
            talk.say(said)
        assert talk.is_closed()
        assert Talk(offer.port).ask("protocol-version") == ["OK 1"]
    assert any(it["event"] == "etransfer-refused" for it in offer.events)


def test_a_uuid_is_good_for_one_direction_one_connection_and_its_life(station, tmp_path):
    name = record(station)
    with Offer(station, "--incoming", tmp_path / "there", "--rate", "1Mbit/s") as offer:
        reader, writer = Talk(offer.port), Talk(offer.port)
        remain, reading = reader.opened(f"read-file 0 {name}")
        _, writing = writer.opened("write-file-New x.vdif")
        assert reading != writing
        def closes(header):
            talk = Talk(offer.port)
            talk.say(header.encode())
            return talk.is_closed()

        assert closes(f"{{ uuid:{reading}, sz:1}}a")
        assert closes(f"{{ uuid:{writing}, push:1, sz:1}}")
        assert closes(f"{{ uuid:{reading}, push:1, sz:{remain + 1}}}")
        assert closes(f"{{ uuid:{reading}, push:1, sz:{2**64 - 1}}}")
        # Nobody else closes or cancels it.
        assert writer.ask(f"remove-uuid {reading}")[0].startswith("ERR ")
        first = Talk(offer.port)
        first.say(f"{{ uuid:{reading}, push:1, sz:{remain}}}".encode())
        first.exactly(1)
        assert closes(f"{{ uuid:{reading}, push:1, sz:1}}")
        reader.stream.close()
        with pytest.raises((EOFError, ConnectionError)):
            first.exactly(remain)
        until(lambda: closes(f"{{ uuid:{reading}, push:1, sz:1}}"))


def test_silent_connections_end_and_their_number_is_bounded(station):
    with Offer(station) as offer:
        since = time.monotonic()
        silent = [Talk(offer.port) for _ in range(32)]
        time.sleep(0.5)
        assert Talk(offer.port).is_closed()
        half = silent[0]
        half.say(b"{ uuid:abc")
        assert silent[1].is_closed(within=30) and 13 < time.monotonic() - since < 20
        assert all(talk.is_closed(within=30) for talk in silent)
        until(lambda: answers(offer.port))
    assert any("32 connections" in it.get("why", "") for it in offer.events)


def answers(port):
    with contextlib.suppress(EOFError, ConnectionError):
        return Talk(port).ask("protocol-version") == ["OK 1"]
    return False


def test_only_those_who_are_listed_may_connect(station):
    refused = station.run("receive", "--etransfer", "0.0.0.0:0", code=REFUSED)
    assert "--allow" in str(refused.stderr)
    with Offer(station, "--allow", "192.0.2.0/24") as offer:
        assert Talk(offer.port).is_closed()
    assert any("not in --allow" in it.get("why", "") for it in offer.events)


def test_wishes_that_etransfer_cannot_fulfil_are_refused(station):
    scan = record(station, frames=100).split("/")[0]
    for words in (
        ("send", scan, "etransfer://127.0.0.1/x"),
        ("send", scan, "etransfer:///x/"),
        ("send", scan, "etransfer://127.0.0.1/", "--queue"),
        ("send", scan, "etransfer://127.0.0.1/", "--read-back"),
        ("send", scan, "file:///nowhere", "--overwrite"),
        ("receive", "--incoming", "x"),
        ("receive", "--from", "etransfer://127.0.0.1", "x"),
    ):
        station.run(*words, code=REFUSED)


# The real programs.


@pytest.fixture
def etd(tmp_path):
    control, data = free_ports(2)
    words = [f"{ETRANSFER_BIN}/etd", "--command", f"tcp://127.0.0.1:{control}", "--data", f"tcp://127.0.0.1:{data}"]
    with subprocess.Popen(words, cwd=tmp_path) as server:
        try:
            until(lambda: answers(control))
            yield control
        finally:
            server.kill()


def etc(*words):
    subprocess.run([f"{ETRANSFER_BIN}/etc", *map(str, words)], check=True, timeout=PATIENCE)


@real
def test_the_real_client_reads_and_writes(station, tmp_path):
    name = record(station)
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    with Offer(station, "--incoming", there) as offer:
        etc(f"tcp://127.0.0.1#{offer.port}:/{name}", f"{here}/")
        file = here / name.split("/")[1]
        assert digest(file.read_bytes()) == digest(content(station, name))
        etc(file, f"tcp://127.0.0.1#{offer.port}:/")
        assert digest((there / file.name).read_bytes()) == digest(file.read_bytes())


@real
def test_the_real_server_takes_and_gives_a_file(station, tmp_path, etd):
    name = record(station)
    folder = tmp_path / "data"
    url = f"etransfer://127.0.0.1:{etd}{folder}/"
    folder.mkdir()
    station.ask("send", name.split("/")[0], url)
    file = folder / name.replace("/", "_")
    assert digest(file.read_bytes()) == digest(content(station, name))
    assert station.ask("receive", "--from", url, "--list") == [str(file)]
    station.ask("receive", "--from", url, file.name, "--to", tmp_path / "here")
    assert digest((tmp_path / "here" / file.name).read_bytes()) == digest(file.read_bytes())
