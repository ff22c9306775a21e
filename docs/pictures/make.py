"""Makes the pictures of docs/pictures.md again: terminals through tmux, pages through Chromium.

    PATH=target/release:$PATH python3 docs/pictures/make.py           # all
    PATH=target/release:$PATH python3 docs/pictures/make.py stream    # the page of a stream alone
    PATH=target/release:$PATH python3 docs/pictures/make.py station   # the pages of a station alone; `station dark`: in the dark

Needs fullbore, tmux and chromium on the PATH, and Pillow. The screens are real: fullbore records its own generator.
"""

import base64
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
SOCKET = ["tmux", "-L", "fullbore-pictures"]
STREAMS = "udp://127.0.0.1:46220-46227"
SOURCE = f"{STREAMS}?format=vdif&fps=1000&frame=8032"
SEND = ["fullbore", "generate", "--to", STREAMS, "--start", "now", "--rate", "64Mbit/s", "--duration", "9s", "--gentle"]
STYLE = """
body { margin: 0; background: #16181d; }
pre { margin: 0; padding: 14px 18px; color: #d7dae0; font: 13px/1.35 'DejaVu Sans Mono', monospace; }
"""
COLOURS = {31: "#f47067", 32: "#8ddb8c", 33: "#e3b341", 34: "#6cb6ff", 35: "#dcbdfb", 36: "#76e3ea", 90: "#8b949e"}


def styled(codes, text):
    """A run of characters between two escape sequences."""
    style = []
    if "1" in codes:
        style.append("font-weight: bold")
    if "2" in codes:
        style.append("opacity: .6")
    style += [f"color: {COLOURS[int(code)]}" for code in codes if code.isdigit() and int(code) in COLOURS]
    return f'<span style="{"; ".join(style)}">{html.escape(text)}</span>' if style else html.escape(text)


def page(screen):
    """A terminal's screen, with its colours, as HTML."""
    parts, codes = [], []
    for piece in re.split(r"(\x1b\[[0-9;]*m)", screen.rstrip()):
        if piece.startswith("\x1b["):
            new = [code for code in piece[2:-1].split(";")]
            codes = [] if new in ([""], ["0"]) else codes + new
            if "39" in new:
                codes = [code for code in codes if code in ("1", "2")]
        else:
            parts.append(styled(codes, piece))
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style><pre>{''.join(parts)}</pre>"


def picture(source, name, width, height):
    """A page as PNG."""
    subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         f"--window-size={width},{height}", f"--screenshot={HERE / name}", source.as_uri()],
        check=True, capture_output=True,
    )
    Image.open(HERE / name).convert("RGB").quantize(32).save(HERE / name, optimize=True)


def terminal(text, name, work, begins=""):
    """A picture of a screen, from the first line on that begins so."""
    lines = text.rstrip().split("\n")
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    first = next((number for number, line in enumerate(plain) if re.match(begins, line)), 0)
    shown = [line for line, text in zip(lines[first:], plain[first:]) if text.strip() != "$"]
    source = work / f"{name}.html"
    source.write_text(page("\n".join(shown)))
    picture(source, name, 950, round(len(shown) * 17.55) + 30)


def drives(work):
    """The results of eight drives in one picture: eight files."""
    named = []
    for number in range(1, 9):
        drive, result = work / f"drive{number}", work / f"drive{number}.json"
        drive.write_bytes(bytes(96 << 20))
        subprocess.run(
            ["fullbore", "bench", "disk", drive, "--overwrite", drive, "--quick", "--skip", "fio", "--sessions", "1,16,64",
             "--runs", "3", "--no-history", "--output", result],
            check=True, capture_output=True,
        )  # fmt: skip
        named.append(f"drive {number}={result}")
    report = work / "drives.html"
    subprocess.run(["fullbore", "bench", "report", *named, "--html", report], check=True, capture_output=True)
    picture(report, "drives.png", 1000, 1100)


def screen():
    return subprocess.run([*SOCKET, "capture-pane", "-p", "-e"], check=True, capture_output=True, text=True).stdout


def keys(text):
    subprocess.run([*SOCKET, "send-keys", text, "Enter"], check=True)


def record(work, name, faults, live=None):
    """Records in a terminal; `live` names the picture that is taken meanwhile, `name` that of the end."""
    scan = name.removesuffix(".png")
    keys(f"clear; fullbore record '{SOURCE}' --session r1234 --scan {scan} --duration 14s")
    while "armed" not in screen():
        time.sleep(0.1)
    sender = subprocess.Popen([*SEND, *faults], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(6)
    if live:
        terminal(screen(), live, work, begins=f"r1234_{scan} ")
    sender.wait()
    while "sealed" not in screen():
        time.sleep(0.1)
    time.sleep(0.5)
    terminal(screen(), name, work, begins="COMPLETE|LOST|INCOMPLETE")


def stream(seconds=25):
    """The page Stream of the demonstration, after some time."""
    sys.path.insert(0, str(HERE.parents[1] / "tests/python"))
    from chromium import Browser, Page

    words = ["fullbore", "serve", "--demo", "--json", "--listen", "127.0.0.1:0"]
    daemon = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    with tempfile.TemporaryDirectory() as profile, Browser(profile, 60) as browser:
        page = Page(browser, json.loads(daemon.stdout.readline())["login"], 1400, "dark")
        page.ask("Emulation.setDeviceMetricsOverride", width=1400, height=1250, deviceScaleFactor=1, mobile=False)
        time.sleep(seconds)
        (HERE / "stream.png").write_bytes(base64.b64decode(page.ask("Page.captureScreenshot")["data"]))
    daemon.terminate()
    daemon.wait()
    Image.open(HERE / "stream.png").convert("RGB").quantize(128).save(HERE / "stream.png", optimize=True)


TOKEN = "the token of these pictures"
#: The pages of a station, with the height of their pictures, and how long they take to fill.
PAGES = {"now": (1800, 2), "schedule": (900, 3), "disks": (1180, 25), "log": (900, 2), "machine": (1250, 25)}


class Daemon:
    """A station with a description of its own, and an admin who asks it over REST."""

    def __init__(self, place, description):
        place.mkdir()
        members = [place / f"disk{n}" for n in range(2)]
        for member in members:
            member.mkdir()
        digits = hashlib.sha256(TOKEN.encode()).hexdigest()
        (place / "station.toml").write_text(
            f'[store]\nmembers = {json.dumps(list(map(str, members)))}\n[listen]\nhttp = "127.0.0.1:0"\n{description}\n'
            f'[[token]]\nname = "pictures"\nrole = "admin"\nsha256 = "{digits}"\n'
        )
        words = ["fullbore", "serve", "--json", "--config", place / "station.toml"]
        # Its keys and invitations are below its home.
        environment = {"PATH": os.environ["PATH"], "HOME": str(place), "FULLBORE_STATE": str(place)}
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
        self.told = json.loads(self.process.stdout.readline())

    def ask(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.told['address']}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as refused:
            raise SystemExit(f"{method} {path}: {refused.read().decode()}") from None

    def end(self):
        try:
            for recording in self.ask("GET", "/api/v1/recordings"):
                if recording["phase"] != "ended":
                    self.ask("POST", f"/api/v1/recordings/{recording['id']}/abort")
            time.sleep(3)
        finally:
            self.process.terminate()
            self.process.wait()


def schedule_of(begins):
    """Two short scans from this moment on, and three later ones."""
    at = [(begins + timedelta(seconds=it), length) for it, length in ((0, 8), (14, 20), (3600, 600), (4500, 600), (7200, 600))]
    rows = (f"no{n:04},{start.isoformat()[:19]}Z,{length}s,3C84\n" for n, (start, length) in enumerate(at, 1))
    return "scan,start,duration,target\n" + "".join(rows)


def station(scheme="light"):
    """The pages of a station that records a schedule, and sends each sealed scan to another station."""
    sys.path.insert(0, str(HERE.parents[1] / "tests/python"))
    from chromium import Browser, Page

    inputs = f'[[input]]\nname = "vlbi"\nendpoints = ["{STREAMS}?format=vdif&fps=250&frame=8032"]'
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as profile, Browser(profile, 60) as browser:
        place = Path(place)
        far = Daemon(place / "correlator", '[receive]\nlisten = "127.0.0.1:0"\n')
        near = Daemon(place / "station", f'{inputs}\n[transfers]\nrate = "32Mbit/s"\n')
        try:
            invited = far.ask("POST", "/api/v1/transfers/invitations", {"address": far.told["receive"]["address"], "name": "station"})
            near.ask("POST", "/api/v1/transfers/rules", {"sessions": "r*", "to": invited["invitation"]})
            begins = datetime.now(timezone.utc) + timedelta(seconds=6)
            body = {"options": {"source": ["input:vlbi"], "session": "r1234", "lead": "4s"}, "scans": schedule_of(begins)}
            near.ask("PUT", "/api/v1/schedules/r1234", body)
            words = [*SEND, "--rate", "16Mbit/s", "--duration", "40s", "--drop", "1e-4"]
            sender = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            page = Page(browser, near.told["login"], 1200, scheme)
            time.sleep((begins - datetime.now(timezone.utc)).total_seconds() + 26)
            for name, (height, seconds) in PAGES.items():
                page.value(f"location.hash = '#{name}'")
                page.ask("Emulation.setDeviceMetricsOverride", width=1200, height=height, deviceScaleFactor=1, mobile=False)
                time.sleep(seconds)
                (HERE / f"{name}.png").write_bytes(base64.b64decode(page.ask("Page.captureScreenshot")["data"]))
                Image.open(HERE / f"{name}.png").convert("RGB").quantize(64).save(HERE / f"{name}.png", optimize=True)
            sender.wait()
        finally:
            near.end()
            far.end()


def main():
    work = Path(tempfile.gettempdir()) / "pictures"
    for disk in ("disk0", "disk1", "store0", "store1"):
        (work / disk).mkdir(parents=True)
    subprocess.run([*SOCKET, "new-session", "-d", "-x", "116", "-y", "50", "bash --norc"], check=True, cwd=work)
    try:
        keys("export FULLBORE_STORE=store0,store1 PS1='$ '")
        record(work, "complete.png", [], live="live.png")
        record(work, "lost.png", ["--drop", "1e-4", "--seed", "5"])
        keys("clear; fullbore verify r1234_complete; fullbore ls")
        time.sleep(4)
        terminal(screen(), "verify.png", work)
    finally:
        subprocess.run([*SOCKET, "kill-server"])
    report = work / "bench.html"
    subprocess.run(
        ["fullbore", "bench", "disk", work / "disk0", work / "disk1", "--seconds", "20s", "--skip", "fio", "--require", "4Gbit/s",
         "--html", report], check=False, capture_output=True,
    )
    picture(report, "bench.png", 1000, 1800)
    drives(work)
    shutil.rmtree(work)
    stream()
    station()


CHOSEN = {"stream": stream, "station": station, "station dark": lambda: station("dark")}
CHOSEN.get(" ".join(sys.argv[1:]), main)()
