"""Reading while recording: `info`, `cat`, `play` and `verify` on a growing scan, without disturbing it."""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading

import pytest
import wire
from fullbore import AS_SEALED, BINARY, FOUND, GOOD, INCOMPLETE, PATIENCE, Recording, accounts, ask, free_port, free_ports, run, text
from terminal import Terminal

FRAME = 1056
OPTIONS = ("--sync", "50ms", "--chunk", "1MiB")


def recording(ports, store, scan="one", options=(), query=""):
    """Small blocks and chunks, so that a few thousand frames fill many of both."""
    ports = ports if isinstance(ports, list) else [ports]
    source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif&fps=1000&block=64KiB{query}"
    return Recording(source, store=store, scan=scan, options=(*OPTIONS, *options))


def members(store):
    return ",".join(map(str, store if isinstance(store, list) else [store]))


class Reader:
    """A running verb with --follow. Tests wait for its output, not for a clock; a hanging one is killed."""

    def __init__(self, *words, store):
        command = [BINARY, *map(str, words), "--store", members(store)]
        self.complaints = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.complaints)
        self.watch = threading.Timer(PATIENCE, self.process.kill)
        self.watch.daemon = True
        self.watch.start()

    def read(self, length):
        """Exactly this number of bytes, as soon as they arrive."""
        got = self.process.stdout.read(length)
        assert len(got) == length, (len(got), self.told())
        return got

    def line(self, where=lambda told: True):
        """The first line of JSON for which `where` is true."""
        while line := self.process.stdout.readline():
            if where(told := json.loads(line)):
                return told
        raise AssertionError(f"no such line before the end: {self.told()}")

    def told(self):
        self.process.wait(PATIENCE)
        self.watch.cancel()
        self.complaints.seek(0)
        return text(self.complaints.read())

    def ends(self, code=GOOD):
        """The rest of its output, and its messages."""
        out, told = self.process.stdout.read(), self.told()
        assert self.process.returncode in ((code,) if isinstance(code, int) else code), (out[-300:], told)
        return out, told


def whole(frames):
    return b"".join(frames)


def test_bytes_that_are_followed_are_those_of_the_sealed_scan(stores):
    port, frames = free_port(), wire.run_of_frames(8000)
    with recording(port, stores) as record:
        reader = Reader("cat", record.scan, "--follow", store=stores)
        wire.send(frames[:3000], port)
        first = reader.read(2500 * FRAME)
        wire.send(frames[3000:], port)
        second = reader.read(4000 * FRAME)
        record.stop()
    rest, _ = reader.ends()
    assert first + second + rest == whole(frames)
    assert run("cat", record.scan, "--store", members(stores)).stdout == whole(frames)
    (account,) = accounts(record.last("sealed")).values()
    assert account["verdict"] == "proven"


def test_gaps_are_filled_as_they_are_in_the_sealed_scan(store):
    port, frames = free_port(), wire.run_of_frames(6000)
    kept = frames[:1000] + frames[1100:3000] + frames[3001:]
    with recording(port, store) as record:
        plain = Reader("cat", record.scan, "--follow", store=store)
        bare = Reader("cat", record.scan, "--follow", "--no-fill", store=store)
        wire.send(kept, port)
        first = plain.read(4000 * FRAME)
        record.stop(code=FOUND)
    rest, _ = plain.ends()
    assert first + rest == run("cat", record.scan, "--store", store).stdout
    assert len(first + rest) == 6000 * FRAME
    assert bare.ends()[0] == whole(kept)


def test_a_part_is_followed_from_frame_to_frame(store):
    port, frames = free_port(), wire.run_of_frames(4000)
    with recording(port, store) as record:
        parts = ("--from", "1500", "--until", "+2.5s")
        reader = Reader("cat", record.scan, "--follow", *parts, store=store)
        wire.send(frames, port)
        # It ends with its range, whether the scan continues or not.
        assert reader.ends()[0] == whole(frames[1500:2500])
        record.stop()


def test_without_follow_what_is_durable_is_written_and_said_to_be(store):
    port, frames = free_port(), wire.run_of_frames(2000)
    with recording(port, store) as record:
        wire.send(frames, port)
        record.wait("progress", lambda told: told["durable_bytes"] > 1000 * FRAME)
        Reader("cat", record.scan, "--follow", store=store).read(1000 * FRAME)
        done = run("cat", record.scan, "--store", store, code=GOOD)
        record.stop()
    assert len(done.stdout) >= 1000 * FRAME and whole(frames).startswith(done.stdout)
    assert b"still being recorded" in done.stderr and b"--follow" in done.stderr


def test_a_scan_that_is_only_armed_can_be_followed(store):
    port, frames = free_port(), wire.run_of_frames(500)
    with recording(port, store) as record:
        reader = Reader("cat", record.scan, "--follow", store=store)
        told = ask("info", record.scan, "--store", store)
        (stream,) = told["live"]["streams"]
        assert told["recording"] and (stream["blocks"], stream["rate"]) == (0, None)
        assert run("cat", record.scan, "--store", store).stdout == b""
        assert ask("verify", record.scan, "--store", store, code=GOOD)["blocks"] == 0
        wire.send(frames, port)
        record.stop()
    assert reader.ends()[0] == whole(frames)


def test_a_stream_that_never_came_is_said_not_to_have(store):
    with recording(free_port(), store) as record:
        reader = Reader("cat", record.scan, "--follow", store=store)
        record.stop(code=FOUND)
    assert "never came" in reader.ends(code=FOUND)[1]


def test_each_scan_of_a_series_is_followed_to_its_own_end(store):
    port, frames = free_port(), wire.run_of_frames(9000)
    options = ("--scans", "2", "--bytes", f"{4000 * FRAME}")
    with recording(port, store, scan="no", options=options) as record:
        first = Reader("cat", "test_no0001", "--follow", store=store)
        wire.send(frames[:2000], port)
        begun = first.read(1000 * FRAME)
        wire.send(frames[2000:5000], port)
        record.wait("sealed")
        second = Reader("cat", "test_no0002", "--follow", store=store)
        wire.send(frames[5000:], port)
        record.sealed(AS_SEALED)
    followed = begun + first.ends()[0] + second.ends()[0]
    stored = b"".join(run("cat", f"test_no{n:04}", "--store", store).stdout for n in (1, 2))
    assert followed == stored and whole(frames).startswith(stored) and len(stored) >= 8000 * FRAME


def test_when_the_recorder_is_killed_what_it_left_is_written_and_recover_is_named(stores):
    port, frames = free_port(), wire.run_of_frames(4000)
    with recording(port, stores) as record:
        reader = Reader("cat", record.scan, "--follow", store=stores)
        checker = Reader("verify", record.scan, "--follow", "--json", store=stores)
        watcher = Reader("info", record.scan, "--follow", "--json", store=stores)
        wire.send(frames, port)
        first = reader.read(2000 * FRAME)
        last = record.kill()
    rest, told = reader.ends(code=FOUND)
    assert whole(frames).startswith(first + rest) and f"fullbore recover {record.scan}" in told
    assert len(first + rest) >= (last["durable_bytes"] if last else 0)
    answer = json.loads(checker.ends(code=FOUND)[0].splitlines()[-1])
    assert [finding["what"] for finding in answer["findings"]].count("unsealed") == 1
    assert f"fullbore recover {record.scan}" in watcher.ends(code=FOUND)[1]
    run("recover", record.scan, "--store", members(stores), code=(GOOD, FOUND))
    sealed = run("cat", record.scan, "--store", members(stores)).stdout
    assert sealed.startswith(first + rest)


def test_a_block_that_is_damaged_while_it_is_recorded_is_found_at_once(store):
    port, frames = free_port(), wire.run_of_frames(6000)
    with recording(port, store) as record:
        copied = Reader("cat", record.scan, "--follow", store=store)
        wire.send(frames[:3000], port)
        copied.read(2000 * FRAME)
        chunk = min((store / record.scan).glob(f"{record.scan}.*"))
        with chunk.open("r+b") as file:
            file.seek(200_000)
            file.write(b"\xee" * 8)
        checker = Reader("verify", record.scan, "--follow", "--json", store=store)
        found = checker.line()
        assert found["event"] == "found" and found["finding"]["what"] == "blocks-damaged"
        assert found["finding"]["file"] == str(chunk)
        wire.send(frames[3000:], port)
        copied.read(1000 * FRAME)
        record.stop()
    answer = json.loads(checker.ends(code=FOUND)[0].splitlines()[-1])
    assert [finding["what"] for finding in answer["findings"]] == ["blocks-damaged"]
    assert answer["state"] == "sealed" and answer["streams"][0]["verdict"] == "proven"
    again = ask("verify", record.scan, "--store", store, code=FOUND)
    assert again["findings"] == answer["findings"] and again["streams"] == answer["streams"]


def test_what_is_verified_while_it_is_recorded_is_what_is_verified_afterwards(stores):
    ports = free_ports(2)
    frames = {port: wire.run_of_frames(4000) for port in ports}
    lost = frames[ports[1]][:500] + frames[ports[1]][510:]
    with recording(ports, stores) as record:
        checker = Reader("verify", record.scan, "--follow", "--json", store=stores)
        wire.send(frames[ports[0]], ports[0])
        wire.send(lost, ports[1])
        Reader("cat", f"{record.scan}/{ports[1]}", "--follow", store=stores).read(3000 * FRAME)
        so_far = ask("verify", record.scan, "--store", members(stores), code=GOOD)
        assert so_far["good"] and so_far["state"] == "recording" and so_far["blocks"] > 40
        record.stop(code=FOUND)
    answer = json.loads(checker.ends(code=INCOMPLETE)[0].splitlines()[-1])
    again = ask("verify", record.scan, "--store", members(stores), code=INCOMPLETE)
    for each in (answer, again):
        del each["seconds"]
    assert answer == again and answer["good"]


def test_info_tells_what_is_durable_where_it_lies_and_how_fast_it_comes(stores):
    port, frames = free_port(), wire.run_of_frames(6000)
    with recording(port, stores) as record:
        watcher = Reader("info", record.scan, "--follow", "--json", store=stores)
        assert watcher.line()["event"] == "durable"
        wire.send(frames, port, pause=2e-4)
        told = watcher.line(lambda it: it["streams"][0]["bytes"] > 4000 * FRAME)
        (stream,) = told["streams"]
        assert told["status"] == "recording" and 0 < told["running_seconds"] < PATIENCE
        assert stream["bytes"] == stream["frames"] * FRAME and stream["absent"] == 0
        assert sum(member["bytes"] for member in told["members"]) >= stream["bytes"]
        assert len([member for member in told["members"] if member["blocks"]]) > 1
        assert FRAME < stream["rate"] <= FRAME * 6000
        plain = run("info", record.scan, "--store", members(stores)).stdout.decode()
        assert "has been recorded for" in plain and "durable" in plain
        record.stop()
    last = json.loads(watcher.ends()[0].splitlines()[-1])
    assert last["manifest"]["state"] == "sealed" and not last["recording"]


def test_many_readers_at_once_do_not_disturb_the_recording(store):
    ports = free_ports(2)
    frames = wire.run_of_frames(5000)
    with recording(ports, store) as record:
        readers = [
            Reader("cat", f"{record.scan}/{port}", "--follow", store=store) for port in ports for _ in range(3)
        ]
        checker = Reader("verify", record.scan, "--follow", store=store)
        for port in ports:
            wire.send(frames[:3000], port)
        begun = [reader.read(1000 * FRAME) for reader in readers]
        for port in ports:
            wire.send(frames[3000:], port)
        record.stop()
    for first, reader in zip(begun, readers):
        assert first + reader.ends()[0] == whole(frames)
    told = text(checker.ends()[0])
    assert told.startswith("COMPLETE: all ") and f"{record.scan} intact: " in " ".join(told.split())
    assert {account["verdict"] for account in accounts(record.last("sealed")).values()} == {"proven"}


def test_whoever_stops_reading_ends_it_quietly_even_if_nothing_comes(store):
    port = free_port()
    with recording(port, store) as record:
        reader = Reader("cat", record.scan, "--follow", store=store)
        wire.send(wire.run_of_frames(500), port)
        reader.read(100 * FRAME)
        reader.process.stdout.close()
        assert (reader.told(), reader.process.returncode) == ("", GOOD)
        record.stop()


def received(port):
    """A socket that receives a replay, with room for all of it."""
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33) if os.geteuid() == 0 else
                   socket.SO_RCVBUF, 64 << 20)  # fmt: skip
    one.bind(("127.0.0.1", port))
    one.settimeout(PATIENCE)
    return one


def test_what_is_played_while_it_is_recorded_is_all_that_was_recorded(store):
    (port, to), frames = free_ports(2), wire.run_of_frames(4000)
    # Its recorded time advances by a thousand frames a second, and it is sent at the same rate: blocks of 62 ms arrive
    # while it is played.
    with received(to) as taker, recording(port, store) as record:
        player = Reader(
            "play", record.scan, "--follow", "--delay", "500ms", "--gentle", "--json", "--to", f"udp://127.0.0.1:{to}",
            store=store,
        )  # fmt: skip
        wire.send(frames[:2000], port, pause=1e-3)
        got = [taker.recv(2048) for _ in range(500)]
        wire.send(frames[2000:], port, pause=1e-3)
        record.stop()
        got += [taker.recv(2048) for _ in range(3500)]
    assert got == frames
    # A busy machine may not keep the timing, which is reported.
    report = json.loads(player.ends(code=(GOOD, FOUND))[0].splitlines()[-1])
    assert report["frames"] == 4000 and report["streams"][0]["losses"] == [], report
    lag = report["streams"][0]["lag"]
    assert 0 <= lag["least_seconds"] <= lag["most_seconds"]


def test_a_replay_of_what_is_recorded_says_on_its_line_how_far_it_is_behind(store):
    (port, to), frames = free_ports(2), wire.run_of_frames(9000)
    with recording(port, store) as record:
        wire.send(frames[:3000], port, pause=1e-3)
        words = ["play", record.scan, "--follow", "--delay", "500ms", "--gentle", "--to", f"udp://127.0.0.1:{to}"]
        with Terminal([BINARY, *words, "--store", store], 120, 24) as terminal:
            wire.send(frames[3000:], port, pause=1e-3)
            told = re.compile(r"\d+ s  .* datagrams, .*, \d+\.\d\d s behind the durable data")
            terminal.wait(lambda lines: any(map(told.search, lines)))
        record.stop()


def test_a_replay_that_catches_up_waits_and_goes_on(store):
    (port, to), frames = free_ports(2), wire.run_of_frames(3000)
    with received(to) as taker, recording(port, store) as record:
        words = ("--follow", "--delay", "100ms", "--factor", "20", "--gentle", "--json")
        player = Reader("play", record.scan, *words, "--to", f"udp://127.0.0.1:{to}", store=store)
        wire.send(frames[:1000], port)
        # Some blocks are durable, and played at once: it must wait for those that arrive in real time.
        got = [taker.recv(2048) for _ in range(512)]
        wire.send(frames[1000:], port, pause=1e-3)
        record.stop()
        got += [taker.recv(2048) for _ in range(2488)]
    assert got == frames
    report = json.loads(player.ends(code=(GOOD, FOUND))[0].splitlines()[-1])
    assert report["waits"] > 0 and report["waited_seconds"] > 0


def test_a_replay_whose_recorder_is_killed_names_recover(store):
    port, to = free_ports(2)
    with received(to) as taker, recording(port, store) as record:
        player = Reader(
            "play", record.scan, "--follow", "--delay", "100ms", "--gentle", "--to", f"udp://127.0.0.1:{to}", store=store
        )
        wire.send(wire.run_of_frames(1000), port)
        taker.recv(2048)
        record.kill()
        _, told = player.ends(code=FOUND)
    assert f"fullbore recover {record.scan}" in told


def test_what_is_durable_is_played_without_follow(store):
    (port, to), frames = free_ports(2), wire.run_of_frames(1500)
    with received(to) as taker, recording(port, store) as record:
        wire.send(frames, port)
        Reader("cat", record.scan, "--follow", store=store).read(1000 * FRAME)
        done = run("play", record.scan, "--flat-out", "--to", f"udp://127.0.0.1:{to}", "--json", "--store", store)
        sent = json.loads(done.stdout.splitlines()[-1])["frames"]
        assert b"still being recorded" in done.stderr and sent >= 1000
        assert [taker.recv(2048) for _ in range(sent)] == frames[:sent]
        record.stop()


@pytest.mark.parametrize("scheme", ["mirror", "parity:2+1"])
def test_a_scan_with_redundancy_is_followed(scheme, stores):
    port, frames = free_port(), wire.run_of_frames(6000)
    with recording(port, stores, options=("--redundancy", scheme)) as record:
        reader = Reader("cat", record.scan, "--follow", store=stores)
        checker = Reader("verify", record.scan, "--follow", "--json", store=stores)
        wire.send(frames, port)
        first = reader.read(3000 * FRAME)
        record.stop()
    assert first + reader.ends()[0] == whole(frames)
    answer = json.loads(checker.ends()[0].splitlines()[-1])
    assert answer["good"] and answer["redundancy"]["unprotected"] == 0


def test_a_scan_is_not_removed_while_it_is_recorded_and_its_removal_is_told(store):
    port, frames = free_port(), wire.run_of_frames(500)
    with recording(port, store) as record:
        reader = Reader("cat", record.scan, "--follow", store=store)
        wire.send(frames, port)
        reader.read(100 * FRAME)
        run("rm", record.scan, "--yes", "--store", store, code=2)
        # It stops looking, and when it looks again the scan has been removed.
        reader.process.send_signal(signal.SIGSTOP)
        record.stop()
        run("rm", record.scan, "--yes", "--store", store, code=GOOD)
        reader.process.send_signal(signal.SIGCONT)
    _, told = reader.ends(code=2)
    assert "was removed while it was read" in told
