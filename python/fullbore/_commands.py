"""Commands of the program `fullbore` that use this machine: they run as processes (docs/decisions/0049)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Optional

from . import _native

# The exit codes of a command that has done what it was asked to do. Its result says whether all is well.
DONE = (0, 1, 3)


class CommandError(_native.Error):
    """A command could not run, or gave no result. `code` is its exit code."""

    def __init__(self, text: str, code: Optional[int] = None, hint: Optional[str] = None) -> None:
        super().__init__(text if hint is None else f"{text}\n  {hint}")
        self.code = code
        self.hint = hint


def program() -> str:
    """The program `fullbore`: that of this package, else the first one in PATH."""
    places = [Path(sysconfig.get_path("scripts")) / "fullbore"]
    try:
        files = metadata.files("fullbore") or []
        places[:0] = [Path(str(file.locate())) for file in files if file.name == "fullbore" and file.suffix == ""]
    except metadata.PackageNotFoundError:
        pass  # the package is not installed, as in its own tests
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return str(place)
    found = shutil.which("fullbore")
    if found is None:
        raise CommandError("the program `fullbore` is not there", None, "install the package from its wheel, which has it")
    return found


class Command:
    """A command that runs: `Command("bench disk", "/data", seconds=10)`.

    Options are those of the command line, with `_` in place of `-`: `True` is an option without a value, and a list is
    its values separated by commas. Leaving a `with` block interrupts the command, and waits for its end.
    """

    def __init__(self, verb: str, *words: Any, **options: Any) -> None:
        self.words = [*verb.split(), *(str(word) for word in words), *options_of(options), "--json"]
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [program(), *self.words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._errors,
            # Ctrl-C comes from here, once, whether a terminal or a notebook sends it.
            start_new_session=True,
        )  # fmt: skip
        self._last: Any = None
        self._told: list[str] = []

    @property
    def running(self) -> bool:
        """True while it runs."""
        return self._process.poll() is None

    @property
    def code(self) -> Optional[int]:
        """Its exit code, once it has ended: 0 all is well, 1 with a defect, 2 it could not run, 3 see its result."""
        return self._process.poll()

    def events(self) -> Iterator[Any]:
        """The documents that it prints, one after the other; the last one is its result."""
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return
        for line in self._process.stdout:
            if line.strip():
                try:
                    self._last = json.loads(line)
                except ValueError:
                    raise CommandError(f"fullbore {self.words[0]}: it prints no JSON") from None
                yield self._last
        self._process.stdout.close()

    def stop(self) -> None:
        """Interrupts it, as Ctrl-C does. Returns at once."""
        if self.running:
            self._process.send_signal(signal.SIGINT)

    def wait(self, progress: Optional[Callable[[Any], object]] = None) -> Any:
        """Waits for its end, and returns its result. `progress` is called with each document.

        Ctrl-C interrupts the command, waits for its end, and is raised then.
        """
        try:
            for told in self.events():
                if progress is not None:
                    progress(told)
            self._process.wait()
        except BaseException:
            self._end()
            raise
        lines = self._complaints()
        if self.code not in DONE or self._last is None:
            raise self._error(lines)
        return self._last

    def _end(self) -> None:
        self.stop()
        assert self._process.stdout is not None
        if not self._process.stdout.closed:
            while self._process.stdout.read(1 << 16):
                pass
            self._process.stdout.close()
        self._process.wait()
        self._complaints()

    def _complaints(self) -> list[str]:
        """What it wrote to standard error until its end."""
        if not self._errors.closed:
            self._errors.seek(0)
            self._told = self._errors.read(1 << 20).decode("utf-8", "replace").splitlines()
            self._errors.close()
        return self._told

    def _error(self, lines: list[str]) -> CommandError:
        for line in reversed(lines):
            try:
                told = json.loads(line)
                return CommandError(str(told["error"]), self.code, told.get("advice"))
            except (ValueError, KeyError, TypeError):
                continue
        text = lines[-1] if lines else f"it ended with code {self.code} and without a result"
        return CommandError(f"fullbore {self.words[0]}: {text}", self.code)

    def __enter__(self) -> Command:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._end()

    def __repr__(self) -> str:
        return f"<Command fullbore {' '.join(self.words)}: {'running' if self.running else f'code {self.code}'}>"


def options_of(options: dict[str, Any]) -> list[str]:
    """Options as words of a command line."""
    words = []
    for name, value in options.items():
        option = f"--{name.rstrip('_').replace('_', '-')}"
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            words += [option, ",".join(str(each) for each in value)]
        elif value is not None and value is not False:
            words += [option, str(value)]
    return words


def generate(to: str, *, progress: Optional[Callable[[Any], object]] = None, **options: Any) -> Any:
    """Sends test streams: `generate("udp://127.0.0.1:46220", rate="1Gbit/s", duration="10s")`. Returns what was sent."""
    return Command("generate", to=to, **options).wait(progress)


def play(recording: Any, to: str, *, progress: Optional[Callable[[Any], object]] = None, **options: Any) -> Any:
    """Plays a recording to the network with its timing, and returns the account of the sender."""
    return Command("play", recording, to=to, **options).wait(progress)


def bench(stage: str, *words: Any, progress: Optional[Callable[[Any], object]] = None, **options: Any) -> Any:
    """Measures a stage of this machine: `disk`, `memory`, `ring`, `net`, `link`, or `all`. Returns the result."""
    return Command(f"bench {stage}", *words, **options).wait(progress)


def plan(description: Any = None, **options: Any) -> Any:
    """Says whether a machine sustains streams: `plan(stream="8x2Gbit/s@ens1", store="/data", duration="2h")`.

    The result has a `verdict`: `fits`, `fits-with-warnings`, `not-known` or `does-not-fit`.
    """
    return Command("plan", *([] if description is None else [description]), **options).wait()
