"""Two sites in one test: a listening receiver, a sender with keys of its own, and a relay between them that can be cut."""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import threading

from fullbore import BINARY, GOOD, PATIENCE, run, text


def members(store):
    return ",".join(map(str, store if isinstance(store, (list, tuple)) else [store]))


class Site:
    """A host with a store and keys of its own."""

    def __init__(self, place, name, store=None):
        self.name, self.keys = name, place / f"{name}-keys"
        self.store = store or place / name
        for path in self.store if isinstance(self.store, list) else [self.store]:
            path.mkdir(exist_ok=True)
        self.state = place / f"{name}-state"
        self.env = {**os.environ, "FULLBORE_CONFIG": str(self.keys), "FULLBORE_STATE": str(self.state)}

    def run(self, *words, code=GOOD):
        return run(*words, "--store", members(self.store), code=code, env=self.env)

    def ask(self, *words, code=GOOD):
        return json.loads(self.run(*words, "--json", code=code).stdout.splitlines()[-1])

    def peers(self, *words, code=GOOD):
        return run("peers", *words, code=code, env=self.env)

    def ask_queue(self, *words, code=GOOD):
        """Runs a command that takes no store."""
        return run(*words, code=code, env=self.env)

    def listen(self, *options, port=0):
        return Listener(self, *options, port=port)

    def command(self, *words):
        return [BINARY, *map(str, words), "--store", members(self.store)]

    def start(self, *words):
        """Starts a command that is not waited for."""
        return subprocess.Popen(
            self.command(*words), env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )


class Listener:
    """A running `fullbore receive --json`."""

    def __init__(self, site, *options, port=0):
        self.site, self.options, self.port, self.events = site, options, port, []
        self._news = threading.Condition()

    def __enter__(self):
        self.start()
        return self

    def start(self):
        command = self.site.command("receive", "--listen", f"127.0.0.1:{self.port}", "--json", *self.options)
        self.process = subprocess.Popen(
            command, env=self.site.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.events = []
        self.reader = threading.Thread(target=self._listen, args=(self.process,), daemon=True)
        self.reader.start()
        self.port = int(self.wait("listening")["address"].rsplit(":", 1)[1])

    def _listen(self, process):
        for line in process.stdout:
            with self._news:
                self.events.append(json.loads(line))
                self._news.notify_all()

    def wait(self, event, where=lambda told: True):
        find = lambda: next((it for it in self.events if it["event"] == event and where(it)), None)
        with self._news:
            self._news.wait_for(lambda: find() or self.process.poll() is not None, PATIENCE)
            found = find()
        assert found, (event, self.events, self.process.poll())
        return found

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
        self.complaints = text(self.process.stderr.read())

    @property
    def address(self):
        return f"fullbore://127.0.0.1:{self.port}"


def received(end):
    """Bytes that a connection has received, by the kernel (`tcpi_bytes_received`), whether anybody read them or not."""
    try:
        info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
    except OSError:
        return 0
    return struct.unpack_from("<Q", info, 128)[0]


class Relay:
    """Carries connections to another port of this host, counts their bytes, and can lose them."""

    def __init__(self, port):
        self.target, self.up, self.down, self.away = port, 0, 0, False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.pairs, self.over = [], False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while not self.over:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if self.away:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            pair = (near, far)
            self.pairs.append(pair)
            threading.Thread(target=self._carry, args=(pair,), daemon=True).start()

    def _carry(self, pair):
        near, far = pair
        read = {near: 0, far: 0}
        try:
            while not self.over:
                ready, _, _ = select.select(pair, [], [], 0.2)
                for end in ready:
                    data = end.recv(1 << 20)
                    if not data:
                        return
                    read[end] += len(data)
                    if end is near:
                        self.up += len(data)
                    else:
                        self.down += len(data)
                    (far if end is near else near).sendall(data)
        except OSError:
            pass
        finally:
            # What arrived here and went no further was sent too.
            self.up += max(0, received(near) - read[near])
            self.down += max(0, received(far) - read[far])
            near.close()
            far.close()

    def bytes(self):
        """All bytes of TCP so far, in both directions."""
        return self.up + self.down

    def cut(self):
        """Ends all connections at once."""
        for pair in self.pairs:
            for end in pair:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.pairs.clear()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over = True
        self.listener.close()
        self.cut()


def pair(listening, other, address, *rights):
    """Makes two sites known to each other; returns the invitation."""
    host = address.removeprefix("fullbore://")
    invited = listening.peers("invite", host, *rights, "--json")
    return json.loads(invited.stdout)["invitation"]
