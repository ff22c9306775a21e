"""A simulated PandA and a recording of it, for tests."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path

from fullbore import BINARY, GOOD, PATIENCE, text

DATA = Path(__file__).resolve().parents[1] / "data/panda"


def stream_of(progress, name=None):
    """The state of a stream, by default of the only one."""
    return next(it for it in progress["streams"] if name in (None, it["name"]))


def number_of(scan):
    """The number of a scan of `panda record`: live_x, live_x-2, live_x-3."""
    return int((scan["scan"].rsplit("-", 1) + ["1"])[1])


def acquisitions(number, sealed):
    """The acquisition of each PandA in a scan."""
    manifest = sealed["manifest"]
    files = {file["stream"]: file for file in sealed.get("files", [])}
    for stream, account in zip(manifest["streams"], sealed["accounts"]):
        format = stream["format"]
        file = files.get(stream["name"], {})
        yield {
            **account, **format, **file,
            "number": number,
            "panda": stream["name"],
            "file": file.get("path"),
            "samples": account["terms"]["written"],
            "reason": file.get("reason", sealed.get("why")),
        }  # fmt: skip


class Told:
    """A program that prints its events as lines of JSON."""

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
        """The first event of that name for which `where` is true."""
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
        """Waits until it ends by itself."""
        self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join()
        told = f"{' '.join(self.command)}\nexit {self.process.returncode}\n{self.said()}"
        if code is not None:
            assert self.process.returncode == code, told
        return self.acquisitions()

    def acquisitions(self):
        """The acquisitions of all scans that have ended."""
        with self._news:
            ended = [told for told in self.events if told["event"] in ("sealed", "unsealed")]
        return [it for number, scan in enumerate(ended, 1) for it in acquisitions(number, scan)]

    def warnings(self):
        return "\n".join(told["text"] for told in self.all("warning"))

    def wait_samples(self, least, stream=None, scan=None):
        """Waits until more than so many samples have arrived, in the scan of this number if one is given."""
        at = lambda told: scan in (None, number_of(told["scan"]))
        return self.wait("progress", lambda told: at(told) and stream_of(told, stream)["frames"] > least)

    def wait_visible(self, least, stream=None, scan=None):
        """Waits until readers can see more than so many samples, and returns how many they see."""
        at = lambda told: scan in (None, number_of(told["scan"]))
        seen = lambda told: stream_of(told, stream)["durable_bytes"] // self.sample_bytes(stream)
        return seen(self.wait("progress", lambda told: at(told) and seen(told) > least))

    def wait_ended(self, number=1):
        """Waits for the end of the acquisition with this number."""
        return next(acquisitions(number, self.wait("sealed", lambda told: number_of(told["manifest"]["scan"]) == number)))

    def sample_bytes(self, stream=None):
        opened = self.all("opened")
        return next(told["frame_bytes"] for told in reversed(opened) if stream in (None, told["stream"]))


class Panda(Told):
    """A running `fullbore simulate panda`, on any free ports."""

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

