"""A made-up PandA and a recording of it, for tests."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path

from fullbore import BINARY, GOOD, PATIENCE, text

DATA = Path(__file__).resolve().parents[1] / "data/panda"


class Told:
    """A program that tells what happens in lines of JSON."""

    def __init__(self, *words, wrap=()):
        self.command = [*wrap, BINARY, *map(str, words), "--json"]
        self.events: list[dict] = []
        self._news = threading.Condition()
        self._ended = False
        self.complaints = bytearray()

    def __enter__(self):
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        self._readers = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(
                target=lambda: self.complaints.extend(self.process.stderr.read()), daemon=True
            ),
        ]
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)

    def _listen(self):
        for line in self.process.stdout:
            with self._news:
                self.events.append(json.loads(line))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def all(self, event):
        with self._news:
            return [told for told in self.events if told["event"] == event]

    def wait(self, event, where=lambda told: True):
        """The first event of that name for which `where` holds."""
        found = lambda: next((e for e in self.events if e["event"] == event and where(e)), None)
        with self._news:
            self._news.wait_for(lambda: found() or self._ended, PATIENCE)
            told = found()
        assert told is not None, (
            f"no `{event}`\n{' '.join(self.command)}\n{self.events[-4:]}\n{self.said()}"
        )
        return told

    def said(self):
        return text(bytes(self.complaints))

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def ends(self, code=GOOD):
        """Waits for the end that it comes to by itself."""
        self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join()
        told = f"{' '.join(self.command)}\nexit {self.process.returncode}\n{self.said()}"
        if code is not None:
            assert self.process.returncode == code, told
        return self.all("ended")


class Panda(Told):
    """`fullbore simulate panda` while it runs, on any free ports."""

    def __init__(self, *options, control="127.0.0.1:0", data="127.0.0.1:0", wrap=()):
        words = ["simulate", "panda", "--control", control, "--data", data, *options]
        super().__init__(*words, wrap=wrap)

    def __enter__(self):
        super().__enter__()
        self.listening = self.wait("listening")
        return self

    @property
    def endpoint(self):
        data = self.listening["data"].rsplit(":", 1)[1]
        return f"panda://{self.listening['control']}?data={data}"


def serve(dump: Path, tmp_path: Path, *options, **more) -> Panda:
    """A PandA that sends a recorded stream, byte for byte."""
    if dump.suffix == ".gz":
        import gzip

        plain = tmp_path / dump.stem
        plain.write_bytes(gzip.decompress(dump.read_bytes()))
        dump = plain
    return Panda("--serve-dump", dump, *options, **more)


def recording(panda, file, *options, **more) -> Told:
    endpoint = panda if isinstance(panda, str) else panda.endpoint
    return Told("panda", "record", endpoint, file, "--reconnect", "1s", *options, **more)

