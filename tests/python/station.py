"""A daemon under test, and clients of it: Python's own HTTP client, and tokens of each role."""

from __future__ import annotations

import hashlib
import http.client
import json
import signal
import subprocess
import threading
import time

from fullbore import BINARY, PATIENCE, free_port

ROLES = ("viewer", "operator", "admin")
# As RFC 6750 has tokens: without spaces.
SECRETS = {role: f"the-secret-of-the-{role}" for role in ROLES}


class Answer:
    """The answer to a request."""

    def __init__(self, response, body):
        self.status, self.headers, self.body = response.status, response.headers, body

    @property
    def json(self):
        return json.loads(self.body)


class Station:
    """A running `fullbore serve --json` with a token for each role; without a store, its demonstration."""

    def __init__(self, store, state, port=0, options=()):
        self.store, self.state, self.port, self.more = store, state, port, options

    def __enter__(self):
        self.state.mkdir(exist_ok=True)
        tokens = self.state / "tokens.toml"
        listed = [
            f'[[token]]\nname = "{role}"\nrole = "{role}"\nsha256 = "{hashlib.sha256(secret.encode()).hexdigest()}"\n'
            for role, secret in SECRETS.items()
        ]
        tokens.write_text("\n".join(listed))
        words = [BINARY, "serve", *self.options(tokens), "--json", *self.more]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.state), "FULLBORE_STATE": str(self.state)}
        self.errors = open(self.state / "errors", "ab")
        self.process = subprocess.Popen(
            list(map(str, words)), stdout=subprocess.PIPE, stderr=self.errors, stdin=subprocess.DEVNULL, env=environment
        )
        line = self.process.stdout.readline()
        assert line, (self.state / "errors").read_text()
        self.told = json.loads(line)
        if self.told["address"]:
            self.port = int(self.told["address"].rsplit(":", 1)[1])
        # What it tells later.
        self.lines = []
        threading.Thread(target=self.listen_on, daemon=True).start()
        return self

    def listen_on(self):
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def options(self, tokens):
        place = ["--store", self.store] if self.store else ["--demo"]
        return [*place, "--listen", f"127.0.0.1:{self.port}", "--tokens", tokens]

    def __exit__(self, *_):
        """Ends the daemon, and the recordings that still run."""
        if self.process.poll() is None:
            for recording in self.ask("GET", "/api/v1/recordings").json:
                if recording["phase"] != "ended":
                    self.ask("POST", f"/api/v1/recordings/{recording['id']}/abort")
                    self.until(recording["id"], lambda it: it["phase"] == "ended")
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE)
        self.errors.close()

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(self, method, path, body=None, role="admin", headers=None, raw=None, whole=True):
        """One request; `role` None: as nobody. `whole` False: an answer that does not end."""
        sent = {"Host": f"127.0.0.1:{self.port}"}
        if role:
            sent["Authorization"] = f"Bearer {SECRETS[role]}"
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = "application/json"
        sent.update(headers or {})
        connection = self.connect()
        try:
            connection.request(method, path, body=data, headers=sent)
            response = connection.getresponse()
            return Answer(response, response.read() if whole or response.status >= 400 else b"")
        finally:
            connection.close()

    def start(self, source, scan="one", session="test", code=201, **options):
        request = {"source": [source], "session": session, "scan": scan, "buffer": "64MiB", **options}
        answer = self.ask("POST", "/api/v1/recordings", request, role="operator")
        assert answer.status == code, answer.body
        return answer.json

    def until(self, recording, wanted):
        """The recording, once it is as wanted."""
        end = time.monotonic() + PATIENCE
        while True:
            told = self.ask("GET", f"/api/v1/recordings/{recording}").json
            if wanted(told):
                return told
            assert time.monotonic() < end, told
            time.sleep(0.03)

    def stop(self, recording):
        answer = self.ask("POST", f"/api/v1/recordings/{recording}/stop", role="operator")
        assert answer.status == 202, answer.body
        return self.until(recording, lambda it: it["phase"] == "ended")


def vdif(port):
    return f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB"


def new_source():
    port = free_port()
    return port, vdif(port)
