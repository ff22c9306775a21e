"""Transfers between two sites: whole, live, interrupted in every way, and never for strangers."""

import contextlib
import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
from fullbore import AS_SEALED, FOUND, GOOD, PATIENCE, REFUSED, Recording, Scan, free_ports, generate, generate_command, run, text
from sites import Relay, Site, pair

FPS = 20_000
SMALL = ("--sync", "50ms", "--chunk", "1MiB")


@pytest.fixture
def station(tmp_path):
    return Site(tmp_path, "station", [tmp_path / f"disk{n}" for n in range(3)])


@pytest.fixture
def correlator(tmp_path):
    return Site(tmp_path, "correlator", [tmp_path / f"far{n}" for n in range(2)])


def record(site, scan="one", ports=4, frames=4000, block="64KiB", **rules):
    """A scan of small blocks and chunks."""
    ports = free_ports(ports)
    span = f"127.0.0.1:{ports[0]}-{ports[-1]}"
    source = f"udp://{span}?format=vdif&fps={FPS}&block={block}"
    with Recording(source, store=site.store, scan=scan, options=SMALL) as recording:
        generate(f"udp://{span}", frame=1056, fps=FPS, frames=frames, **rules)
        recording.stop(AS_SEALED)
    return recording.scan


def is_the_same(here, there, scan):
    """The copy has the same bytes, the same account, and verifies; its files have the same names."""
    one, other = Scan(scan, here.store), Scan(scan, there.store)
    assert one.streams.keys() == other.streams.keys()
    for name, chunks in one.streams.items():
        assert [it.name for it in chunks] == [it.name for it in other.streams[name]], name
        assert all(a.read_bytes() == b.read_bytes() for a, b in zip(chunks, other.streams[name], strict=True)), name
        account = chunks[0].parent / ".fullbore/account.json"
        assert json.loads(account.read_text()) == json.loads(
            (other.streams[name][0].parent / ".fullbore/account.json").read_text()
        )
    assert there.ask("verify", scan, code=(GOOD, 3))["good"]
    told, copy = here.ask("info", scan), there.ask("info", scan)
    assert copy["manifest"]["state"] == told["manifest"]["state"]
    assert copy["manifest"]["uuid"] == told["manifest"]["uuid"]
    assert copy["manifest"]["copied"]["completed"]
    return told, copy


def test_a_sealed_scan_arrives_whole_and_its_receipt_is_kept(station, correlator):
    scan = record(station, drop=1e-3, drop_run=3)
    with correlator.listen() as far:
        invitation = pair(correlator, station, far.address)
        sent = station.ask("send", scan, invitation)
        assert sent["complete"] and sent["missing_blocks"] == 0
        told, _ = is_the_same(station, correlator, scan)
        assert sent["bytes"] == sum(stream["bytes"] for stream in told["manifest"]["streams"])
        (receipt,) = told["copies"]
        assert receipt["host"] == sent["host"] and receipt["bytes"] == sent["bytes"]
        # Now the site is known, and all of the scan is there: only the receipt comes again.
        again = station.ask("send", scan, far.address)
        assert again["complete"] and again["carried_bytes"] == 0


def test_a_scan_is_sent_while_it_is_recorded(station, correlator):
    ports = free_ports(2)
    span = f"127.0.0.1:{ports[0]}-{ports[-1]}"
    source = f"udp://{span}?format=vdif&fps=1000&block=64KiB"
    with correlator.listen() as far, Recording(source, store=station.store, options=SMALL) as recording:
        invitation = pair(correlator, station, far.address)
        sender = subprocess.Popen(generate_command(f"udp://{span}", frame=1056, fps=1000, duration="4s"))
        recording.wait("progress", lambda told: told["durable_bytes"] > 0)
        sending = station.start("send", recording.scan, invitation, "--json")
        # The copy grows while the scan does.
        until = time.monotonic() + PATIENCE
        while not (grown := sum(it.stat().st_size for it in correlator.store[0].rglob("*.0*"))):
            assert time.monotonic() < until and sending.poll() is None
            time.sleep(0.05)
        assert sender.poll() is None and grown
        sender.wait(PATIENCE)
        recording.stop(AS_SEALED)
        out, err = sending.communicate(timeout=PATIENCE)
        assert sending.returncode == GOOD, text(err)
        assert json.loads(out)["complete"]
        is_the_same(station, correlator, recording.scan)


def test_blocks_of_a_slow_live_scan_go_once(station, correlator):
    """A connection that rested sends its next block at the rate of the path, so no other connection sends it, too."""
    with correlator.listen() as far:
        invitation = pair(correlator, station, far.address)
        source = "pattern:prbs31?rate=40Mbit/s&bytes=30MB"
        recording = station.start("record", source, "--session", "test", "--scan", "one")
        time.sleep(1)
        # Not every kernel has BBR. Then the one of the system does as well.
        sent = station.ask("send", "test_one", invitation, "--congestion", "bbr")
        assert sent["complete"] and sent["carried_bytes"] <= 1.02 * sent["bytes"]
        assert recording.wait(PATIENCE) == GOOD


def test_a_session_is_sent_by_its_name(station, correlator):
    scans = [record(station, scan=name, ports=1, frames=500) for name in ("one", "two")]
    with correlator.listen() as far:
        invitation = pair(correlator, station, far.address)
        station.run("send", "test", invitation)
    for scan in scans:
        is_the_same(station, correlator, scan)


def test_small_scans_are_sent_together_and_a_failure_stops_only_its_own(station, correlator):
    """Each is acknowledged by a receipt of its own; the control connections are kept."""
    begin = run("record", "pattern:prbs31", "--session", "test", "--scan", "n", "--scans", 12, "--bytes", "1MB", "--quiet",
                "--store", ",".join(map(str, station.store)))  # fmt: skip
    assert begin.returncode == GOOD
    names = sorted(station.run("ls", "--json").stdout.decode().split('"name":"')[1:])
    names = [it.split('"')[0] for it in names]
    assert len(names) == 12
    # A scan of the same name and another identity is there.
    record(correlator, scan=names[3].removeprefix("test_"), ports=1, frames=100)
    with correlator.listen() as far:
        done = station.run("send", "test", pair(correlator, station, far.address), "--json", code=FOUND)
        (error,) = [json.loads(line) for line in done.stderr.splitlines()]
        assert error["name"] == names[3] and "another scan" in error["error"]
        sent = [json.loads(line) for line in done.stdout.splitlines()]
        assert sorted(it["scan"] for it in sent) == sorted(set(names) - {names[3]})
        assert all(it["complete"] and it["attempts"] == 1 for it in sent)
        connected = [it for it in far.events if it["event"] == "connected"]
        assert len(connected) <= 7, "control connections serve one scan after the other"
    for name in sorted(set(names) - {names[3]}):
        is_the_same(station, correlator, name)


def test_a_session_is_fetched_by_its_name(station, correlator):
    scans = [record(station, scan=name, ports=1, frames=500) for name in ("one", "two")]
    with station.listen() as near:
        invitation = pair(station, correlator, near.address, "--fetch")
        told = correlator.run("receive", "--from", invitation, "test", "--json").stdout.splitlines()
        assert sorted(json.loads(line)["scan"] for line in told) == scans
        assert len([it for it in near.events if it["event"] == "connected"]) == 1
        missing = correlator.run("receive", "--from", near.address, "none", "--json", code=FOUND)
        assert json.loads(missing.stderr)["name"] == "none"
    for scan in scans:
        is_the_same(station, correlator, scan)


def test_the_listener_says_who_connects_what_begins_and_what_is_complete(station, correlator):
    scan = record(station, ports=1, frames=500)
    with correlator.listen() as far:
        sent = station.ask("send", scan, pair(correlator, station, far.address))
        begun, received = far.wait("begun"), far.wait("received")
        connected = far.wait("connected")
        assert connected["peer"] == begun["peer"] == received["peer"] and len(connected["key"]) == 64
        assert (begun["scan"], begun["live"], begun["bytes"]) == (scan, False, sent["bytes"])
        assert (received["scan"], received["bytes"], received["carried_bytes"]) == (scan, sent["bytes"], sent["bytes"])
        assert received["seconds"] > 0
    short = connected["key"][:9]
    with socket.create_server(("127.0.0.1", 0)) as end:
        port = end.getsockname()[1]
    listening = subprocess.Popen(
        correlator.command("receive", "--listen", f"127.0.0.1:{port}", "--scans", 1),
        env=correlator.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert b"listening" in listening.stdout.readline()
    other = record(station, scan="two", ports=1, frames=500)
    # The port is a new one, and so is the invitation.
    station.run("send", other, pair(correlator, station, f"fullbore://127.0.0.1:{port}"))
    lines = text(listening.communicate(timeout=PATIENCE)[0]).splitlines()
    assert listening.returncode == GOOD
    assert f"(key {short}…) connects from 127.0.0.1:" in lines[0]
    assert lines[1].startswith(f"{other} from ") and " begins: " in lines[1]
    assert " is complete, verified and durable: " in lines[2] and "bit/s)" in lines[2]


def test_errors_have_one_shape_with_json(station, correlator):
    """One object on standard error, whether the arguments, the scan or the other end is at fault."""
    scan = record(station, ports=1, frames=100)
    for words in (
        ("send", scan),
        ("send", "nothing_here", "fullbore://127.0.0.1:9"),
        ("send", scan, "fullbore://127.0.0.1:9"),
        ("receive", "--from", "fullbore://127.0.0.1:9", scan),
        ("receive", "--from", "fullbore://127.0.0.1:9"),
        ("receive", "--listen", "192.0.2.1:4780"),
        ("info", "nothing_here"),
        ("record", "udp://127.0.0.1:0?format=nonsense", "--session", "s", "--scan", "x"),
    ):
        done = station.run(*words, "--json", code=REFUSED)
        error = json.loads(done.stderr)
        assert done.stdout == b"" and error["error"] and "\n  " not in error["error"], words
    assert "invitation" in json.loads(station.run("send", scan, "fullbore://127.0.0.1:9", "--json", code=REFUSED).stderr)["advice"]
    done = run("transfers", "pause", "99", "--json", code=REFUSED, env=station.env)
    assert "99" in json.loads(done.stderr)["error"]


def test_a_send_without_a_terminal_says_at_once_why_it_waits(station, correlator):
    scan = record(station, ports=1, frames=500)
    with correlator.listen() as far:
        invitation = pair(correlator, station, far.address)
        now = time.gmtime(time.time() + 7200)
        window = f"{now.tm_hour:02}:00-{(now.tm_hour + 1) % 24:02}:00"
        sending = station.start("send", scan, invitation, "--window", window)
        line = text(sending.stderr.readline())
        assert line.startswith(f"{scan}  0 %") and "waiting: outside window" in line
        # Ctrl-C ends it: what is not there is not complete.
        sending.send_signal(signal.SIGINT)
        assert sending.wait(PATIENCE) == FOUND
        far.kill()
    waiting = station.start("send", scan, far.address)
    line = text(waiting.stderr.readline())
    assert f"fullbore: {scan}: " in line and "trying again in 0.5 s, at " in line
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(PATIENCE) == FOUND


def test_plain_bytes_go_over_tcp_both_ways(station, correlator):
    """As `net2file` and `disk2net` have it: the bytes in order, nothing else, and the end by closing."""
    scan = record(station, ports=1, frames=2000)
    expected = Scan(scan, station.store).bytes()
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            words = ("record", "-", "--session", "test", "--scan", "back")
            taking = subprocess.Popen(correlator.command(*words), stdin=far, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
            subprocess.run(station.command("cat", scan), stdout=near, check=True)
            near.shutdown(socket.SHUT_WR)
            told = taking.communicate(timeout=PATIENCE)
    assert taking.returncode == GOOD, told
    assert expected and Scan("test_back", correlator.store).bytes() == expected


def test_a_scan_is_fetched(station, correlator):
    scan = record(station)
    with station.listen() as near:
        invitation = pair(station, correlator, near.address, "--fetch")
        assert json.loads(correlator.run("receive", "--from", invitation, "--list", "--json").stdout) == [scan]
        fetched = correlator.ask("receive", "--from", near.address, scan)
        assert fetched["scan"] == scan
        is_the_same(station, correlator, scan)
        near.wait("sent")
    assert station.ask("info", scan)["copies"]


@pytest.mark.parametrize("rights, command, missing", [((), "receive", "--fetch"), (("--fetch",), "send", "--send")])
def test_a_peer_may_do_only_what_it_was_invited_for(station, correlator, rights, command, missing):
    scan, other = record(station, ports=1, frames=100), record(correlator, scan="far", ports=1, frames=100)
    with station.listen() as near:
        invitation = pair(station, correlator, near.address, *rights)
        words = ("receive", "--from", invitation, scan) if command == "receive" else ("send", other, invitation)
        done = correlator.run(*words, code=(FOUND, REFUSED))
        assert "the right to" in text(done.stderr) and f"an invitation made with {missing}" in text(done.stderr)
    assert not list(correlator.store[0].glob(f"{scan}*"))
    assert not list(station.store[0].glob(f"{other}*"))


def test_a_stranger_and_a_used_invitation_get_nothing(tmp_path, station, correlator):
    scan = record(station, ports=1, frames=100)
    stranger = Site(tmp_path, "stranger", station.store)
    with correlator.listen() as far:
        invitation = pair(correlator, station, far.address)
        station.run("send", scan, invitation)
        done = stranger.run("send", scan, invitation, code=(FOUND, REFUSED))
        assert "the invitation is not valid: it was used or withdrawn" in text(done.stderr)
        # Without an invitation the key of the other end is not known here.
        done = Site(tmp_path, "other", station.store).run("send", scan, far.address, code=(FOUND, REFUSED))
        assert "invit" in text(done.stderr)


def test_another_key_at_the_address_is_refused(tmp_path, station, correlator):
    scan = record(station, ports=1, frames=100)
    with correlator.listen() as far:
        station.run("send", scan, pair(correlator, station, far.address))
        port = far.port
    with Site(tmp_path, "impostor").listen(port=port) as far:
        done = station.run("send", scan, far.address, code=(FOUND, REFUSED))
        assert "key" in text(done.stderr)


def test_another_scan_of_the_name_stays(station, correlator):
    scan = record(station, ports=1, frames=100)
    mine = record(correlator, ports=1, frames=200)
    assert scan == mine
    before = Scan(scan, correlator.store).bytes()
    with correlator.listen() as far:
        done = station.run("send", scan, pair(correlator, station, far.address), code=FOUND)
        assert "another scan" in text(done.stderr)
    assert Scan(scan, correlator.store).bytes() == before


def test_a_cut_network_is_waited_for(station, correlator):
    """Also at another address: the sender comes back through another relay."""
    scan = record(station, frames=20_000)
    with correlator.listen() as far, Relay(far.port) as relay, Relay(far.port) as other:
        invitation = pair(correlator, station, far.address)
        station.run("send", record(station, scan="tiny", ports=1, frames=10), invitation)
        # The site is known by its address, so the relay is introduced with another invitation.
        invitation = pair(correlator, station, f"127.0.0.1:{relay.port}")
        sending = station.start("send", scan, invitation, "--json", "--rate", "80Mbit/s")
        while relay.up < 4_000_000:
            assert sending.poll() is None, sending.communicate()
            time.sleep(0.01)
        relay.away = True
        relay.cut()
        time.sleep(2)
        relay.away = False
        while relay.up < 12_000_000:
            assert sending.poll() is None, sending.communicate()
            time.sleep(0.01)
        sending.kill()
        sending.wait()
        sent = station.ask("send", scan, pair(correlator, station, f"127.0.0.1:{other.port}"))
        assert sent["complete"] and 0 < sent["carried_bytes"] < sent["bytes"]
        is_the_same(station, correlator, scan)


def test_a_full_disk_at_the_far_end_is_waited_for(tmp_path, station, memory_disk):
    scan = record(station, frames=10_000)
    disk = memory_disk("64m")
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(48 << 20))
    far_site = Site(tmp_path, "small", [disk])
    with far_site.listen() as far:
        invitation = pair(far_site, station, far.address)
        sending = station.start("send", scan, invitation, "--json")
        far.wait("failed")
        assert sending.poll() is None
        ballast.unlink()
        out, err = sending.communicate(timeout=PATIENCE)
        assert sending.returncode == GOOD, text(err)
        assert "are free" in text(err)
        is_the_same(station, far_site, scan)


def test_a_disk_at_the_far_end_that_is_too_small_is_not_waited_for(tmp_path, station, memory_disk):
    scan = record(station, frames=10_000)
    far_site = Site(tmp_path, "small", [memory_disk("24m")])
    with far_site.listen() as far:
        done = station.run("send", scan, pair(far_site, station, far.address), code=FOUND)
    assert "too small for this scan" in text(done.stderr) and "in all" in text(done.stderr)


STRANGERS = int(os.environ.get("FULLBORE_STRANGERS", 1000))


def memory(process):
    """The most memory that a process has had, in bytes."""
    status = open(f"/proc/{process.pid}/status").read()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


@contextlib.contextmanager
def dripping(port, stop):
    """A stranger that sends the beginning of TLS byte by byte and takes nothing, again and again."""

    def drip():
        while not stop.is_set():
            with contextlib.suppress(OSError), socket.socket() as end:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
                end.connect(("127.0.0.1", port))
                for byte in bytes.fromhex("16030100fa010000f60303") + bytes(400):
                    end.sendall(bytes([byte]))
                    if stop.wait(0.05):
                        break

    threads = [threading.Thread(target=drip) for _ in range(8)]
    [thread.start() for thread in threads]
    try:
        yield
    finally:
        stop.set()
        [thread.join() for thread in threads]


def test_strangers_neither_fill_the_memory_nor_keep_a_peer_away(station, correlator):
    """A thousand connections that say nothing, some noise, and some that drip: 64 MiB more at most, at any number of them."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    scan = record(station, ports=1, frames=1000)
    with correlator.listen() as far, contextlib.ExitStack() as held:
        invitation = pair(correlator, station, far.address)
        station.run("send", record(station, scan="tiny", ports=1, frames=10), invitation)
        before = memory(far.process)
        for number in range(STRANGERS):
            end = held.enter_context(socket.create_connection(("127.0.0.1", far.port)))
            if number % 20 == 0:
                with contextlib.suppress(OSError):
                    end.sendall(os.urandom(4000))
        held.enter_context(dripping(far.port, threading.Event()))
        begun = time.monotonic()
        station.run("send", scan, far.address)
        # Nobody waits for the time limits of strangers.
        assert time.monotonic() - begun < 4
        grown = memory(far.process) - before
        assert grown < 64 << 20, f"{grown >> 20} MiB more"
        threads = len(os.listdir(f"/proc/{far.process.pid}/task"))
        assert threads < 64 + 40, threads
        # Peers that are waited for are closed in time: only the dripping ones are new.
        assert len(os.listdir(f"/proc/{far.process.pid}/fd")) < 300
    is_the_same(station, correlator, scan)


def test_a_scan_that_is_removed_ends_its_transfer(station, correlator):
    scan = record(station, frames=20_000)
    with correlator.listen() as far, Relay(far.port) as relay:
        invitation = pair(correlator, station, f"127.0.0.1:{relay.port}")
        sending = station.start("send", scan, invitation, "--rate", "40Mbit/s")
        while relay.up < 4_000_000:
            assert sending.poll() is None, sending.communicate()
            time.sleep(0.01)
        again = station.run("send", scan, f"fullbore://127.0.0.1:{relay.port}", code=FOUND)
        assert "being sent there by another process" in text(again.stderr), text(again.stderr)
        assert "is being received from" in text(correlator.run("info", scan).stdout)
        assert "receiving" in text(correlator.run("ls").stdout)
        station.run("rm", scan, "--yes")
        _, err = sending.communicate(timeout=PATIENCE)
        assert sending.returncode == FOUND and "was removed" in text(err), text(err)
        far.wait("failed", lambda told: told["scan"] == scan)
    # Chunks are removed first and manifests last: what is gone already is not taken for lost.
    assert correlator.ask("info", scan)["manifest"]["state"] == "recording"


def test_an_incomplete_copy_is_named_as_one(tmp_path, station, correlator):
    """Its other end continues it: nobody is told to recover it, after which that is not possible any more."""
    scan = record(station, frames=20_000)
    with correlator.listen() as far, Relay(far.port) as relay:
        invitation = pair(correlator, station, f"127.0.0.1:{relay.port}")
        sending = station.start("send", scan, invitation, "--rate", "40Mbit/s")
        while relay.up < 4_000_000:
            assert sending.poll() is None, sending.communicate()
            time.sleep(0.01)
        sending.kill()
        sending.wait()
        far.wait("failed")
        stream = correlator.ask("info", scan)["manifest"]["streams"][0]["name"]
        play = ("play", scan, "--follow", "--stream", stream, "--to", f"udp://127.0.0.1:{free_ports(1)[0]}")
        for words in (("info", scan), ("verify", scan), ("cat", scan, "--stream", stream), play):
            done = correlator.run(*words, code=(GOOD, FOUND))
            told = (text(done.stdout) if words[0] != "cat" else "") + text(done.stderr)
            assert "copy" in told and socket.gethostname() in told, (words, told)
            assert "recorder died" not in told and "fullbore recover" not in told, (words, told)
        assert correlator.run("cat", scan, "--stream", stream, code=FOUND)
        archive = Site(tmp_path, "archive")
        invitation = pair(correlator, archive, far.address, "--fetch")
        told = text(archive.run("receive", "--from", invitation, scan, code=FOUND).stderr)
        assert "is itself an incomplete copy" in told, told


def test_tls_1_2_and_plain_text_are_refused(correlator):
    with correlator.listen() as far:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(socket.create_connection(("127.0.0.1", far.port)))
        with socket.create_connection(("127.0.0.1", far.port)) as plain:
            plain.sendall(b"GET /etc/passwd HTTP/1.1\r\n\r\n")
            plain.settimeout(PATIENCE)
            assert b"root:" not in plain.recv(4096)
        far.wait("refused")
