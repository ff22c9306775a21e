"""The commands of a page of `docs/`, and a machine on which they are typed.

A command is a line after `$` in a block of a console, or an indented line that begins with a program. A `Page` gives them
from top to bottom, so a test that goes through a page has to account for each.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fullbore import BINARY, GOOD, PATIENCE, REPOSITORY, text

PATIENT = 4 * PATIENCE  # the pages record at length, and with the default of block memory
PROGRAMS = ("fullbore ", "export ", "mkdir ", "ls ", "fallocate ", "echo ", "digitiser ")


@dataclass
class Command:
    """A command with the lines that the page shows below it."""

    typed: str
    shown: list[str] = field(default_factory=list)

    def __str__(self):
        return self.typed

    def of_fullbore(self):
        """The arguments of each `fullbore` in it: pipes and lists are several commands."""
        words = shlex.shlex(self.typed, posix=True, punctuation_chars="|&;<>")
        words.whitespace_split, words.commenters = True, "#"
        commands = [[]]
        for word in words:
            if set(word) <= set("|&;"):
                commands.append([])
            else:
                commands[-1].append(word)
        for command in commands:
            while command and re.fullmatch(r"[A-Z_]+=.*", command[0]):
                command.pop(0)
            if ">" in command:
                at = command.index(">")
                command = command[: at - 1 if command[at - 1] == "2" else at]
            if command and command[0] == "fullbore":
                yield command[1:]


def commands_of(page: Path) -> list[Command]:
    found, fence, goes_on, shows = [], None, False, False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            fence, goes_on, shows = (None if fence is not None else line.strip("` ")), False, False
            continue
        if fence not in (None, "console"):
            continue
        indented = line.startswith("    ")
        if not (fence == "console" or indented):
            # What follows a paragraph is another block, but the output that a page shows may stand apart.
            goes_on, shows = False, shows and not (line.strip() and not line.endswith(":"))
            continue
        inner = line if fence else line[4:]
        if goes_on:
            found[-1].typed += "\n" + inner
        elif inner.startswith("$ "):
            found.append(Command(inner[2:]))
            shows = True
        elif fence is None and (inner.startswith(PROGRAMS) or re.match(r"[A-Z_]+=\S+ fullbore ", inner)):
            found.append(Command(inner))
            shows = True
        elif shows and inner.strip():
            found[-1].shown.append(inner)
        goes_on = bool(found) and found[-1].typed.endswith(("\\", "|")) and not found[-1].shown
    return found


class Machine:
    """A machine as the pages assume it: /tmp, /mnt and the home are empty, and the network is its own, with the addresses
    172.23.252.201, A and B for PandAs. Drives are what `drive` makes.

    `here` is the current directory, seen from outside."""

    SETUP = """
        set -e
        mount --make-rprivate /
        ip link set lo up
        ip address add 172.23.252.201/32 dev lo
        mkdir -p "$ROOT/mnt/.bin" "$ROOT/mnt/.home" "$ROOT/mnt/.work" "$ROOT/tmp"
        touch "$ROOT/mnt/.bin/fullbore"
        mount --bind "$FULLBORE" "$ROOT/mnt/.bin/fullbore"
        printf '127.0.0.1 localhost\\n127.0.1.1 A\\n127.0.1.2 B\\n' > "$ROOT/hosts"
        mount --bind "$ROOT/hosts" /etc/hosts
        mount --rbind "$ROOT/mnt" /mnt
        mount --bind "$ROOT/tmp" /tmp
        mkdir -p "$ROOT/dev"
        mount -t tmpfs -o mode=755 none "$ROOT/dev"
        cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/loop* "$ROOT/dev"
        mkdir "$ROOT/dev/shm"
        mount -t tmpfs none "$ROOT/dev/shm"
        mount --rbind "$ROOT/dev" /dev
        echo ready
        read -r _
    """

    def __init__(self, root: Path):
        self.root, self.mnt, self.tmp = root, root / "mnt", root / "tmp"
        self.here, self.bin = self.mnt / ".work", self.mnt / ".bin"
        self.exports, self.running, self._loops = [], [], {}
        command = ["unshare", "--mount", "--net", "bash", "-c", self.SETUP]
        self._holder = subprocess.Popen(
            command, env={**os.environ, "ROOT": str(root), "FULLBORE": BINARY}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if self._holder.stdout.readline() != "ready\n":
            pytest.skip(f"no namespaces here: {self._holder.stderr.read().strip()}")

    def _shell(self, typed: str) -> list[str]:
        script = "\n".join(["set -o pipefail", "cd /mnt/.work", *self.exports, typed])
        environment = ["HOME=/mnt/.home", "PATH=/mnt/.bin:/usr/bin:/bin:/usr/sbin:/sbin", "TERM=dumb"]
        enter = ["nsenter", "-t", str(self._holder.pid), "--mount", "--net"]
        return [*enter, "env", "-i", *environment, "bash", "-c", script]

    def types(self, command, code=GOOD, seconds=PATIENT) -> str:
        """Runs a command to its end, and returns what it prints."""
        typed = str(command)
        if typed.startswith("export "):
            self.exports.append(typed)
            return ""
        done = subprocess.run(
            self._shell(typed), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds
        )
        told = done.stdout.decode(errors="replace")
        allowed = code if isinstance(code, tuple) else (code,)
        assert done.returncode in allowed, f"{typed}\nexit {done.returncode}\n{text(done.stdout)}"
        return told

    def starts(self, command, until: str) -> Running:
        """Starts a command in a terminal of its own, and waits until it prints something."""
        self.running.append(Running(self._shell(str(command).rstrip().removesuffix("&")), self.root, len(self.running)))
        self.running[-1].waits_for(until)
        return self.running[-1]

    def snippet(self, code: str) -> str:
        """Runs lines of Python in the current directory."""
        done = subprocess.run([sys.executable, "-c", code], cwd=self.here, capture_output=True, timeout=PATIENT)
        assert done.returncode == 0, text(done.stderr)
        return done.stdout.decode()

    def program(self, name: str, script: str):
        """Puts a program of the user on the path."""
        program = self.bin / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def drive(self, number: int, size: int):
        """Makes an empty drive `/dev/nvme<number>n1`, in place of the one that was there."""
        name = f"nvme{number}n1"
        self._release(name)
        image = self.root / f"{name}.img"
        with image.open("wb") as file:
            file.truncate(size)
        self._loops[name] = loop = text(subprocess.check_output(["losetup", "--show", "-f", image])).strip()
        device = os.stat(loop).st_rdev
        self.types(f"rm -f /dev/{name} && mknod /dev/{name} b {os.major(device)} {os.minor(device)}")

    def _release(self, name: str):
        if loop := self._loops.pop(name, None):
            subprocess.run(["losetup", "-d", loop], check=True)

    def away(self):
        for running in self.running:
            running.stop(None)
        for name in list(self._loops):
            self._release(name)
        self._holder.communicate("\n")


class Running:
    """A command in a terminal of its own."""

    def __init__(self, command: list[str], directory: Path, number: int):
        self._out = directory / f"terminal{number}"
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def told(self) -> str:
        return self._out.read_bytes().decode(errors="replace")

    def waits_for(self, what: str):
        end = time.monotonic() + PATIENT
        while what not in self.told():
            assert time.monotonic() < end and self.process.poll() is None, f"no `{what}`:\n{self.told()[-4000:]}"
            time.sleep(0.05)

    def ends(self, code=GOOD) -> str:
        """Waits until it ends by itself."""
        self.process.wait(PATIENT)
        allowed = code if isinstance(code, tuple) else (code,)
        assert code is None or self.process.returncode in allowed, (self.process.returncode, self.told()[-4000:])
        return self.told()

    def stop(self, code=GOOD) -> str:
        """Ctrl-C, unless it has ended. As in a terminal, all programs of a pipe get it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        return self.ends(code)


class Page:
    """A page whose commands are taken from top to bottom."""

    def __init__(self, name: str):
        self.path = REPOSITORY / name
        self._left = commands_of(self.path)

    def next(self, start: str) -> Command:
        """The next command, which begins with these words."""
        command = self._left.pop(0) if self._left else Command("(no more)")
        assert command.typed.startswith(start), f"{self.path.name}: {command.typed!r} is next, not {start!r}"
        return command

    def is_not_run(self, start: str, because: str, times: int = 1):
        """Passes over commands that cannot run here. That they are accepted is tested for all pages."""
        assert because
        for _ in range(times):
            self.next(start)

    def snippet(self, containing: str) -> str:
        """A block of Python."""
        (block,) = [it for it in re.findall(r"```python\n(.*?)```", self.path.read_text(), re.S) if containing in it]
        return block

    def ends(self):
        assert self._left == [], f"{self.path.name} has commands that no test knows: {list(map(str, self._left))}"


def without_numbers(line: str) -> str:
    """A line whose numbers, with their units of size and rate, are wiped, and so are the widths of its columns."""
    return " ".join(re.sub(r"\d+([  .:×-]?\d+)*( ?[kMGT]?i?(B|bit)(/s)?\b)?", "N", line).split())


def is_shown_truly(command: Command, told: str):
    """Each line that the page shows below a command was printed, apart from the numbers. `…` stands for other lines, or
    for the rest of one."""
    printed = [without_numbers(line) for line in told.splitlines()]
    for line in command.shown:
        start, dots, _ = line.partition("…")
        start = without_numbers(start)
        is_it = (lambda it: it.startswith(start)) if dots else (lambda it: it == start)
        assert any(map(is_it, printed)), f"{command.typed}\nthe page shows {line!r}, and it printed\n{told[-4000:]}"
