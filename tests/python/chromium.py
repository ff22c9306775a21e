"""Chromium without a window, controlled over two pipes: opens a page, queries it, and closes.

No driver is needed: with `--remote-debugging-pipe` the browser reads commands from its descriptor 3 and answers on 4,
each a JSON text that ends with a zero byte.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """A separate browser with a temporary profile."""

    def __init__(self, directory, patience):
        self.patience = patience
        ours, theirs = os.pipe(), os.pipe()
        words = [PROGRAM, "--headless", "--remote-debugging-pipe", f"--user-data-dir={directory}"]
        words += ["--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        if os.geteuid() == 0:
            words.append("--no-sandbox")
        shell = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *words],
            pass_fds=(ours[0], theirs[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self.to, self.back = ours[1], theirs[0]
        self.number, self.rest, self.events = 0, b"", []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)

    def ask(self, method, session=None, **parameters):
        """Sends one command and returns its answer; events received meanwhile are kept in `events`."""
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters}
        if session:
            command["sessionId"] = session
        raw = json.dumps(command).encode() + b"\0"
        while raw:
            raw = raw[os.write(self.to, raw) :]
        answer = self.until(lambda told: told.get("id") == self.number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def until(self, wanted):
        deadline = time.monotonic() + self.patience
        while True:
            while b"\0" in self.rest:
                one, self.rest = self.rest.split(b"\0", 1)
                told = json.loads(one)
                self.events.append(told)
                if wanted(told):
                    return told
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self.back], [], [], max(0, left))
            assert ready, f"the browser said nothing for {self.patience} s"
            more = os.read(self.back, 1 << 20)
            assert more, "the browser has ended"
            self.rest += more


class Page:
    """One page with a given width, colour scheme and medium."""

    def __init__(self, browser, url, width, scheme="light", media="screen"):
        self.browser = browser
        target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)
        before = len(browser.events)
        self.ask("Page.navigate", url=url)
        is_loaded = lambda it: it.get("method") == "Page.loadEventFired" and it.get("sessionId") == self.session
        if not any(map(is_loaded, browser.events[before:])):
            browser.until(is_loaded)

    def ask(self, method, **parameters):
        return self.browser.ask(method, self.session, **parameters)

    def value(self, expression):
        """The value of a JavaScript expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self):
        """The messages of the browser's console about the page."""
        self.value("0")
        of_it = [told for told in self.browser.events if told.get("sessionId") == self.session]
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [told["params"] for told in of_it if told.get("method") in kinds]
