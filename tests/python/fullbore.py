"""The binary under test: runs it, talks to it, waits for its output.

A recording is a context manager. Its `--json` lines are kept as they arrive, so that a test waits for an event and
never for a clock.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BINARY = str(Path(os.environ.get("FULLBORE", REPOSITORY / "target/debug/fullbore")).absolute())
PATIENCE = 60  # seconds until a test gives up on an event

GOOD, FOUND, REFUSED = 0, 1, 2
INCOMPLETE = 3  # `verify`: the stored data is intact, and the recording is not complete
INTACT = (GOOD, INCOMPLETE)
AS_SEALED = None  # the terms of accounts

# Block memory of a recording of unknown rate: enough for every test here, and locked much faster than the default of 2
# GiB, which each concurrent test would need.
ENOUGH = ["--buffer", "512MiB"]


def run(*words, code=GOOD, **options):
    """Runs one command to its end and checks its exit code: `code`, one of several, or any but a refusal. Keeps the
    text of both outputs."""
    command = [BINARY, *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, **options
    )
    told = f"{' '.join(command)}\nexit {done.returncode}\n{text(done.stdout)}\n{text(done.stderr)}"
    allowed = {None: (GOOD, FOUND)}.get(code, code)
    assert done.returncode in (allowed if isinstance(allowed, tuple) else (allowed,)), told
    return done


def ask(*words, code=GOOD):
    """Runs one command with `--json` and returns its answer, which may determine the exit code."""
    done = run(*words, "--json", code=(GOOD, FOUND, INCOMPLETE) if callable(code) else code)
    answer = json.loads(done.stdout.splitlines()[-1])
    if callable(code):
        assert done.returncode == code(answer), (done.returncode, answer)
    return answer


def play(*words):
    """Plays. Exit code 1 means that a busy machine did not keep the timing, which is no error of a test."""
    return run("play", *words, code=(GOOD, FOUND))


def text(raw: bytes) -> str:
    return raw.decode(errors="replace")[-4000:]


def wanting(manifest):
    """True if a member was away, or requested redundancy is not complete."""
    asked = manifest.get("redundancy")
    followed = asked and asked["followed"]
    lacks = asked and (not followed or followed["unprotected"] or followed.get("narrow"))
    return bool(manifest.get("away") or lacks)


def code_of(sealed):
    """The exit code that belongs to the sealed scans, as in the README: are frames or an end of a stream missing, did a
    member fail, was the scan aborted, was the disk set degraded?"""

    def found(scan):
        accounts = scan["accounts"]
        return (
            any(account["terms"]["written"] != account["terms"]["expected"] for account in accounts)
            or any(account.get("out_of_window") or account.get("unrecorded") for account in accounts)
            or any(account["verdict"] == "unexplained" for account in accounts)
            or any(it["what"] in ("never-came", "only-foreign") for account in accounts for it in account.get("presence", []))
            or any(
                account["counted_by"] == "server-count" and account["verdict"] == "unproven" for account in accounts
            )
            or any(member["failure"] for member in scan["manifest"]["members"])
            or scan["manifest"]["state"] == "aborted"
            or wanting(scan["manifest"])
        )

    return FOUND if any(map(found, sealed)) else GOOD


def code_of_verify(told):
    """The exit code of `verify`: is the stored data intact, and was the recording complete?"""
    return FOUND if not told["good"] else INCOMPLETE if told.get("complete") is False else GOOD


def takes_the_default(sources, options):
    """True if block memory would have the default size for an unknown rate."""
    sources = list(map(str, sources))
    rate_is_told = all("fps=" in it and "frame=" in it for it in sources)
    return not rate_is_told and "--buffer" not in options and not any(it.startswith("panda:") for it in sources)


class Recording:
    """A running `fullbore record … --json`. Leaving the block stops it."""

    def __init__(self, *sources, store, session="test", scan="one", options=(), wrap=(), env=None, memory=ENOUGH):
        """`store`: one or more members. With `env`, which must name it, it is the default store. `memory` is used if
        the sources are datagrams of an unknown rate and the options give no size; `()`: the program's own default."""
        self.scan, self.env = f"{session}_{scan}", env
        self.stores = [Path(member) for member in (store if isinstance(store, (list, tuple)) else [store])]
        members = [] if env else ["--store", ",".join(map(str, self.stores))]
        self.command = [
            *wrap, BINARY, "record", *map(str, sources), *members,
            "--session", session, "--scan", scan, "--json", *map(str, options),
            *(memory if takes_the_default(sources, options) else ()),
        ]  # fmt: skip
        self.events: list[dict] = []
        self._news = threading.Condition()
        self._ended = False

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            env=self.env,
        )
        self._complaints = bytearray()
        self._readers = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(
                target=lambda: self._complaints.extend(self.process.stderr.read()), daemon=True
            ),
        ]
        for reader in self._readers:
            reader.start()
        self.wait("armed")
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            if kind is None:
                self.stop(AS_SEALED)
            else:
                self.kill()

    def _listen(self):
        for line in self.process.stdout:
            with self._news:
                self.events.append(json.loads(line))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait(self, event, where=lambda told: True):
        """The first event of that name for which `where` is true."""
        found = lambda: next((e for e in self.events if e["event"] == event and where(e)), None)
        with self._news:
            done = self._news.wait_for(lambda: found() or self._ended, PATIENCE)
            told = found()
        assert told is not None, (
            f"no `{event}` {'before the end' if done else f'within {PATIENCE} s'}\n"
            f"{' '.join(self.command)}\n{self.events[-3:]}\n{text(bytes(self._complaints))}"
        )
        return told

    def last(self, event):
        with self._news:
            return next((e for e in reversed(self.events) if e["event"] == event), None)

    def stop(self, code=GOOD):
        """One Ctrl-C: everything sent before is recorded, and the scan is sealed. The exit code is `code`, and always
        the one that belongs to the sealed scans."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.sealed(code)

    def sealed(self, code=GOOD):
        """Waits until the recording ends by itself."""
        self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join()
        told = (self.process.returncode, text(bytes(self._complaints)))
        sealed = self.wait("sealed")
        # If a source or a thread failed, that is reported before the scans that were sealed all the same.
        belongs = REFUSED if code == REFUSED else code_of(e for e in self.events if e["event"] == "sealed")
        if any(e["event"] == "warning" and e["text"].startswith("ended before its time") for e in self.events):
            belongs = max(belongs, FOUND)
        assert self.process.returncode == belongs, told
        headlines = [(e["headline"], e["explanation"]) for e in self.events if e["event"] == "sealed"]
        assert code in (AS_SEALED, self.process.returncode), (headlines, *told, sealed["accounts"])
        return sealed

    def kill(self):
        """SIGKILL; returns the last progress that was reported."""
        self.process.kill()
        self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join()
        return self.last("progress")

    def on_disk(self):
        return Scan(self.scan, self.stores)


@dataclass
class Scan:
    """The files of a scan, read without fullbore."""

    name: str
    stores: list[Path]
    streams: dict[str, list[Path]] = field(init=False)

    def __post_init__(self):
        self.streams = {}
        for member in self.stores:
            for directory in member.glob(f"{self.name}*"):
                found = directory.name
                if found != self.name and not found.startswith(f"{self.name}_ds"):
                    continue
                self.streams.setdefault(found, []).extend(
                    path for path in directory.iterdir() if path.is_file()
                )
        for chunks in self.streams.values():
            chunks.sort(key=lambda path: path.suffix)

    def chunks(self, stream=None):
        return self.streams[self.name if stream is None else f"{self.name}_ds{stream}"]

    def bytes(self, stream=None):
        """The output of `cat` with the chunk files in the order of their names."""
        return b"".join(path.read_bytes() for path in self.chunks(stream))

    def document(self, name, stream=None):
        """`manifest.json` or `account.json` of a stream."""
        side = self.chunks(stream)[0].parent / ".fullbore" if self.streams else None
        return json.loads((side / name).read_text())

    def account(self, stream=None):
        return self.document("account.json", stream)


def abort(process):
    """Aborts a recording that writes its data to standard output, once it has made progress. If nobody reads, the first
    request cannot be carried out, and the second one is another request."""
    for line in process.stderr:
        if b'"progress"' in line:
            break
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)


def accounts(sealed):
    """Account by name of stream, from a `sealed` event."""
    names = [stream["name"] for stream in sealed["manifest"]["streams"]]
    return dict(zip(names, sealed["accounts"], strict=True))


def free_ports(count=1, family=socket.AF_INET):
    """`count` adjacent UDP ports that are free."""
    kind = "::" if family == socket.AF_INET6 else ""
    for first in range(40_000 + os.getpid() % 10_000, 65_000 - count, count):
        held = []
        try:
            for port in range(first, first + count):
                one = socket.socket(family, socket.SOCK_DGRAM)
                held.append(one)
                one.bind((kind, port))
            return list(range(first, first + count))
        except OSError:
            continue
        finally:
            for one in held:
                one.close()
    raise AssertionError("no free ports")


def may_open_rings():
    """True if this process may open packet sockets."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError:
        return False
    return True


def free_port(family=socket.AF_INET):
    return free_ports(1, family)[0]


def balanced(account):
    """The account balances, and the listed gaps add up to the terms."""
    terms = account["terms"]
    parts = ("written", "missing", "overrun", "damaged", "late")
    assert terms["expected"] == sum(terms[part] for part in parts), terms
    if account["gaps_unlisted"] == 0:
        flows = account["flows"] or [account]
        for cause in parts[1:]:
            listed = sum(g["count"] for f in flows for g in f["gaps"] if g["cause"] == cause)
            assert listed == terms[cause], (cause, terms, listed)
    return account


def generate_command(target, **rules):
    """The command `fullbore generate` with its rules as options: `drop_run=3` becomes `--drop-run 3`. The data begins
    with a full second, so that nothing depends on the time of a test, unless `start` is given; `None`: without the
    option."""
    rules = {"start": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **rules}
    rules = {rule: value for rule, value in rules.items() if value is not None}
    options = []
    for rule, value in rules.items():
        option = f"--{rule.replace('_', '-')}"
        options += [option] if value is True else [option, str(value)]
    if isinstance(target, int):
        target = f"udp://127.0.0.1:{target}"
    return [BINARY, "generate", "--to", target, *options]


def generate(target, **rules):
    """Sends generated streams and returns their truth, if it was to be written."""
    command = generate_command(target, **rules)
    run(*command[1:])
    return json.loads(Path(rules["truth"]).read_text())["streams"] if "truth" in rules else None
