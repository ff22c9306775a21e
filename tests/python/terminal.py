"""A terminal without a user: a pty, and its screen, as interpreted by pyte."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading

import pyte
from fullbore import PATIENCE


class Terminal:
    """Runs a command in a separate session on a terminal with a given number of columns and lines."""

    def __init__(self, command, columns, lines, stdout=None):
        self.command, self.stdout = list(map(str, command)), stdout
        self.raw = bytearray()
        self.screen = pyte.HistoryScreen(columns, lines, history=10_000, ratio=0.5)
        self.screen.write_process_input = lambda answer: self.asked.append(answer)
        self.asked: list[str] = []
        self._stream = pyte.ByteStream(self.screen)
        self._news = threading.Condition()

    def __enter__(self):
        self._ours, self.theirs = pty.openpty()
        size = struct.pack("HHHH", self.screen.lines, self.screen.columns, 0, 0)
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, size)
        self._modes = termios.tcgetattr(self.theirs)
        self.process = subprocess.Popen(
            self.command,
            stdin=self.theirs,
            stdout=self.theirs if self.stdout is None else self.stdout,
            stderr=self.theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm-256color"},
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE)
        os.close(self.theirs)
        self._reader.join(PATIENCE)
        os.close(self._ours)

    def _listen(self):
        while True:
            try:
                piece = os.read(self._ours, 1 << 16)
            except OSError:
                return
            with self._news:
                self.raw += piece
                self._stream.feed(piece)
                self._news.notify_all()

    def shown(self):
        """The lines on the screen, without those scrolled off."""
        return [line.rstrip() for line in self.screen.display]

    def gone(self):
        """The lines scrolled off the screen."""
        columns = range(self.screen.columns)
        return ["".join(line[n].data for n in columns).rstrip() for line in self.screen.history.top]

    def wait(self, seen):
        """Waits until `seen` of the lines shown is true; returns its value."""
        found = None

        def looks():
            nonlocal found
            found = seen(self.shown())
            return found or self.process.poll() is not None

        with self._news:
            self._news.wait_for(looks, PATIENCE)
        assert found, "\n".join([f"{' '.join(self.command)}", *self.gone(), "-" * 20, *self.shown()])
        return found

    def end(self):
        """Waits for the end of the command and its output; returns its exit code."""
        code = self.process.wait(PATIENCE)
        with self._news:
            self._news.wait_for(lambda: False, 0.3)
        self._left = termios.tcgetattr(self.theirs)
        return code

    def type(self, text: bytes):
        os.write(self._ours, text)

    def is_clean(self):
        """After the command has ended: it did not query the terminal, no mode was changed, and the cursor is at the
        prompt."""
        return (
            not self.asked
            and self._left == self._modes
            and not self.screen.cursor.hidden
            and self.screen.cursor.x == 0
            and self.screen.cursor.attrs == self.screen.default_char
        )


def table(lines, first):
    """A table on the screen whose first column is called `first`: its rows by name, and its position."""
    heads = [n for n, line in enumerate(lines) if re.match(rf"{first}\s", line)]
    if len(heads) != 1:
        return None
    (head,) = heads
    titles = re.split(r"\s{2,}", lines[head])
    rows = {}
    for line in lines[head + 1 :]:
        cells = re.split(r"\s{2,}", line)
        if len(cells) != len(titles):
            break
        rows[cells[0]] = dict(zip(titles[1:], cells[1:]))
    return rows
