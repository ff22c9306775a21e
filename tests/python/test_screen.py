"""The live screen of `record` in a terminal emulator: its contents, and the lines that stay."""

import json
import re
import subprocess
import termios
import time
from contextlib import contextmanager

import pytest
from fullbore import BINARY, FOUND, GOOD, PATIENCE, free_ports, generate_command
from terminal import Terminal, table

RATE = re.compile(r"[\d.]+ [kMG]?bit/s")
SIZE = re.compile(r"[\d.]+ [kMGTP]?B")
GIVEN_UP = r"warning: .* beyond the 500 a second that were given: .* give the true rate"


def record_command(sources, stores, *options):
    members = ",".join(map(str, stores))
    return [
        BINARY, "record", *sources, "--store", members, "--session", "test", "--scan", "one",
        "--buffer", "256MiB", *options,
    ]  # fmt: skip


@contextmanager
def sending(ports, **rules):
    """A sender of small streams in the background."""
    to = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}"
    rules = {"frame": 1032, "fps": 1000, "duration": "1h", "gentle": True, **rules}
    sender = subprocess.Popen(generate_command(to, **rules), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        sender.kill()
        sender.wait(PATIENCE)


def picture(lines):
    """Both tables, once they are drawn."""
    streams, members = table(lines, "stream"), table(lines, "member")
    return streams and members and (streams, members)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_live_screen_tells_all_that_an_operator_watches_and_leaves_nothing(columns, stores):
    ports = free_ports(4)
    # Frames of the third are numbered beyond its stated rate, which causes a warning.
    sources = [
        f"udp://127.0.0.1:{ports[0]}-{ports[1]}?format=vdif",
        f"udp://127.0.0.1:{ports[2]}?format=vdif&fps=500",
        f"udp://127.0.0.1:{ports[3]}?format=vdif",
    ]
    first, second, doubtful, silent = map(str, ports)

    def complete(lines):
        found = picture(lines)
        if not found or {first, second, doubtful, silent, "all 4"} != set(found[0]):
            return None
        coming = [found[0][name] for name in (first, second, doubtful)]
        whole = all(int(row["frames"]) > 2000 and int(row["missing"]) > 0 for row in coming)
        return found if whole and "warning: " in "\n".join(lines) else None

    options = ["--duration", "12s", "--chunk", "16MB"]
    with Terminal(record_command(sources, stores, *options), columns, 40) as terminal:
        terminal.wait(lambda lines: any("armed test_one" in line for line in lines))
        with sending(ports[:3], drop=0.02, seed=3):
            streams, members = terminal.wait(complete)
            lines = terminal.shown()
            code = terminal.end()
    for name in (first, second, doubtful):
        row = streams[name]
        assert RATE.fullmatch(row["rate"]) and row["overrun"] == "0", row
        used, blocks = map(int, row["high water"].split("/"))
        assert 0 < used <= blocks
    assert streams[silent]["rate"] == "silent" and streams[silent]["frames"] == "0"
    assert int(streams["all 4"]["missing"]) == sum(int(streams[str(port)]["missing"]) for port in ports)
    assert int(streams[doubtful]["damaged"]) > 0 and streams[first]["damaged"] == "0"
    assert len(members) == len(stores) + 1
    for store in stores:
        (row,) = [row for name, row in members.items() if name.endswith(store.name)]
        assert RATE.fullmatch(row["rate"]) and SIZE.fullmatch(row["backlog"]), row
        assert SIZE.fullmatch(row["free"]) and row["longest write"].endswith(" ms"), row
    (head,) = [n for n, line in enumerate(lines) if line.startswith("test_one")]
    headline = " ".join(lines[head : head + 2])
    assert re.search(r"\d+ s left, [\d.]+ [GT]B free", headline), headline
    assert "durable" in headline
    warning = [n for n, line in enumerate(lines) if line.startswith("warning: ")][0]
    assert re.match(GIVEN_UP, " ".join(lines[warning:head])), lines
    # Afterwards only the permanent lines remain, each once, and the account below them.
    assert code == FOUND and terminal.is_clean()
    left = [*terminal.gone(), *terminal.shown()]
    assert not [line for line in left if "high water" in line or "longest write" in line and not line.startswith("  recorder:")], left
    assert sum("armed test_one" in line for line in left) == 1, left
    assert any("test_one sealed" in line for line in left), left
    told = [n for n, line in enumerate(left) if line.startswith("test_one sealed")]
    lossy = [n for n, line in enumerate(left) if re.match(r"  \d+ +LOST ", line)]
    assert len(told) == 1 and len(lossy) == 3 and told[0] < lossy[0], left
    assert any(re.match(rf"  {silent} +INCOMPLETE: nothing was recorded", line) for line in left), left


@pytest.mark.parametrize("lines", [24, 14])
def test_sixteen_streams_on_a_low_terminal_show_those_first_that_something_is_wrong_with(lines, stores):
    ports = free_ports(16)
    sources = [f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif"]

    def settled(shown):
        found = picture(shown)
        name = found and next((name for name in found[0] if name.startswith("all 16")), None)
        return found if name and int(found[0][name]["frames"]) > 10_000 else None

    with Terminal(record_command(sources, stores), 80, lines) as terminal:
        terminal.wait(lambda shown: any("armed test_one" in line for line in shown))
        with sending(ports[:15]):
            streams, members = terminal.wait(settled)
            shown = terminal.shown()
            terminal.type(b"\x03")
            code = terminal.end()
    assert streams[str(ports[15])]["rate"] == "silent"
    (sum_of_streams,) = [name for name in streams if name.startswith("all 16")]
    assert sum_of_streams == f"all 16, {len(streams) - 1} shown"
    assert len(streams) >= lines - 10 and members, shown
    assert any(line.startswith("test_one") for line in shown), shown
    # The picture was never higher than the screen, so none of it has scrolled off.
    left = [*terminal.gone(), *terminal.shown()]
    assert code == FOUND and terminal.is_clean()
    assert not [line for line in left if "high water" in line], left


def test_a_terminal_that_stands_still_does_not_hold_up_the_recording(store):
    ports = free_ports(1)
    sources, options = [f"udp://127.0.0.1:{ports[0]}?format=vdif"], ["--duration", "3s"]
    with Terminal(record_command(sources, [store], *options), 80, 24) as terminal:
        terminal.wait(lambda lines: any("armed" in line for line in lines))
        termios.tcflow(terminal.theirs, termios.TCOOFF)
        with sending(ports):
            manifest, patience = store / "test_one/.fullbore/manifest.json", time.monotonic() + PATIENCE
            while not manifest.exists() or json.loads(manifest.read_text())["state"] != "sealed":
                assert time.monotonic() < patience, "it never sealed"
                time.sleep(0.1)
        assert terminal.process.poll() is None
        termios.tcflow(terminal.theirs, termios.TCOON)
        code = terminal.end()
    assert code == GOOD and terminal.is_clean()
    assert any("test_one sealed" in line for line in terminal.shown())


def test_in_the_background_of_a_shell_it_goes_on_and_draws_nothing(store):
    ports = free_ports(1)
    words = record_command([f"'udp://127.0.0.1:{ports[0]}?format=vdif'"], [store], "--duration", "3s")
    job = " ".join(map(str, words))
    with Terminal(["bash", "-c", f"set -m; {job} & wait $!"], 80, 24) as terminal:
        terminal.wait(lambda lines: any("armed" in line for line in lines))
        with sending(ports):
            code = terminal.end()
    assert code == GOOD and b"high water" not in terminal.raw
    assert any("test_one sealed" in line for line in terminal.shown())


def test_what_is_drawn_does_not_get_into_the_account_that_is_kept_in_a_file(store, tmp_path):
    ports, kept = free_ports(1), tmp_path / "account"
    command = record_command([f"udp://127.0.0.1:{ports[0]}?format=vdif"], [store], "--duration", "3s")
    with kept.open("wb") as file, Terminal(command, 80, 24, stdout=file) as terminal:
        terminal.wait(lambda lines: any("armed" in line for line in lines))
        with sending(ports):
            terminal.wait(picture)
            code = terminal.end()
    assert code == GOOD and terminal.is_clean()
    text = kept.read_text()
    assert text.startswith("\nCOMPLETE: ") and "   test_one sealed, " in text and "\x1b" not in text, text
