"""Live spectra: rows against numpy on samples that baseband decodes, clients that hang, and the page Stream in a browser."""

import json
import os
import socket
import struct
import time
from pathlib import Path

import numpy as np
import pytest
import wire
from chromium import PROGRAM, Browser, Page
from fullbore import PATIENCE, ask, free_port
from station import SECRETS, Station
from test_dashboard import FAINT, NAMELESS, clicks, errors, until
from test_spectrum import N, RATE, decoded, frames, noise, power, two_bits
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

CARRIER = 2.6e6  # of the simulated receiver, whose band is 8 MHz
BAND = 8e6


class Row:
    """A row, read by the table of docs/reference/rest.md."""

    def __init__(self, raw):
        magic, channels, time_ns, first, spacing, floor, step, self.power, self.mean = struct.unpack_from("<4sIqddffff", raw)
        self.transforms, self.skipped, self.thread, self.channel, states, self.flags = struct.unpack_from("<IIHHHH", raw, 48)
        assert magic == b"FBS1" and len(raw) == 64 + 8 * states + channels
        self.time_ns, self.step = time_ns, step
        self.frequencies = first + spacing * np.arange(channels)
        fractions = np.frombuffer(raw, "<f4", 2 * states, 64)
        self.measured, self.expected = fractions[:states], fractions[states:]
        self.values = np.frombuffer(raw, np.uint8, channels, 64 + 8 * states)
        self.levels = floor + step * self.values.astype(float)


def address(station, recording, **query):
    text = "&".join(f"{key}={value}" for key, value in query.items())
    return f"ws://127.0.0.1:{station.port}/api/v1/recordings/{recording}/spectra?{text}"


def watch(station, recording, role="viewer", headers=None, **query):
    sent = {"Authorization": f"Bearer {SECRETS[role]}"} if role else {}
    return connect(address(station, recording, **query), additional_headers={**sent, **(headers or {})}, open_timeout=PATIENCE)


def messages(client, seconds=PATIENCE):
    """The messages as they come: rows, and dictionaries."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            raw = client.recv(timeout=left)
        except TimeoutError:
            return
        yield json.loads(raw) if isinstance(raw, str) else Row(raw)


def fed(client, sent, port):
    """The messages that come while frames are sent. A client's thread runs when the machine lets it, so it may open its tap
    late."""
    came = False
    for begin in range(0, len(sent), 250):
        wire.send(sent[begin : begin + 250], port, pause=0.0003)
        for message in messages(client, 0.1 if came else 0.5):
            came = True
            yield message
    yield from messages(client)


def source(port):
    return f"udp://127.0.0.1:{port}?format=vdif&fps=250&block=64KiB"


def test_rows_are_the_spectra_of_numpy_on_samples_of_baseband(store, tmp_path):
    voltages = noise(2.0, 2, seed=5)
    threads = [frames(two_bits(voltages[:, [n]]), 2, thread=n) for n in (0, 1)]
    sent = [frame for pair in zip(*threads) for frame in pair]
    (tmp_path / "sent.vdif").write_bytes(b"".join(sent))
    samples = decoded(tmp_path / "sent.vdif")
    port = free_port()
    with Station(store, tmp_path / "state") as station:
        id = station.start(source(port))["id"]
        with watch(station, id, stream=port, channels=N, rows=25, thread=1) as client:
            told = []
            for message in fed(client, sent, port):
                told.append(message)
                if isinstance(message, Row):
                    break
        station.stop(id)
    stream, header, row = told
    assert stream["event"] == "stream" and stream["threads"] == [0, 1] and stream["scan"] == "test_one"
    assert (stream["thread"], stream["channel"], stream["bits"], stream["complex"]) == (1, 0, 2, False)
    assert np.allclose(stream["levels"], [-3.316505, -1, 1, 3.316505])
    assert header["event"] == "header" and bytes.fromhex(header["bytes"]) in [frame[:32] for frame in sent]
    fields = dict(header["fields"])
    assert fields["bits"] == "2" and fields["channels"] == "1"
    # Half-year 53 is 2026-07-01; frames begin 1000 s after it.
    begin = int(np.datetime64("2026-07-01T00:16:40", "ns").astype("int64"))
    offset = round((row.time_ns - begin) * RATE / 1e9)
    assert 0 <= offset < len(samples) and offset % 4000 == 0
    assert row.transforms >= 64 and (row.thread, row.channel, row.flags) == (1, 0, 1 | 4)
    mine = samples[offset:, 1][: row.transforms * 2 * N]
    expected = 10 * np.log10(power(mine) / 3.316505**2)
    assert np.allclose(row.frequencies, np.arange(N) / (2 * N) * RATE)
    assert np.all(np.abs(row.levels - expected) <= row.step / 2 + 0.01)
    assert row.values.max() == 255 and abs(row.frequencies[np.argmax(row.values)] - 0.21 * RATE) < RATE / N
    assert abs(row.power - 10 * np.log10(np.mean(mine**2) / 3.316505**2)) < 0.01
    assert abs(row.mean - np.mean(mine)) < 0.001
    assert np.allclose(row.measured, [np.mean(np.isclose(mine, level, atol=0.01)) for level in (-3.316505, -1, 1, 3.316505)], atol=1e-6)
    assert np.allclose(row.expected, [0.163, 0.337, 0.337, 0.163], atol=5e-4)


def test_a_stored_scan_has_the_same_rows_at_any_time_in_it(store, tmp_path):
    sent = frames(two_bits(noise(2.0, 1, seed=9)), 2)
    (tmp_path / "sent.vdif").write_bytes(b"".join(sent))
    samples = decoded(tmp_path / "sent.vdif")[:, 0]
    port = free_port()
    with Station(store, tmp_path / "state") as station:
        recording = station.start(source(port))
        wire.send(sent, port, pause=0.0003)
        station.until(recording["id"], lambda it: it["progress"] and it["progress"]["streams"][0]["frames"] == len(sent))
        station.stop(recording["id"])
        path = f"/api/v1/scans/test_one/spectrum?stream={port}&channels={N}"
        for after in (0, 0.5, 1.9):
            answer = station.ask("GET", f"{path}&after={after}&length=0.1", role="viewer")
            assert answer.status == 200, answer.body
            (kind, text), (row_kind, raw) = framed(answer.body)
            assert kind == b"T" and row_kind == b"B" and json.loads(text)["scan"] == "test_one"
            row = Row(raw)
            mine = samples[round(after * RATE) :][: row.transforms * 2 * N]
            assert row.transforms == 0.1 * RATE // (2 * N)
            assert np.all(np.abs(row.levels - 10 * np.log10(power(mine) / 3.316505**2)) <= row.step / 2 + 0.01)
        refused = lambda query: station.ask("GET", path + query).status
        assert [refused(it) for it in ("&length=0", "&length=2", "&after=-1", "&after=nan", "&rows=3")] == [400] * 5
        assert refused("&after=1000") == 422 and refused("&channel=7") == 422
        assert station.ask("GET", "/api/v1/scans/test_two/spectrum?stream=a").status == 404
        assert station.ask("GET", "/api/v1/scans/test_one/spectrum?stream=a").status == 404


def framed(body):
    """The messages of the encoding of the socket."""
    found = []
    while body:
        length = int.from_bytes(body[1:5], "little")
        found.append((body[:1], body[5 : 5 + length]))
        body = body[5 + length :]
    return found


def threads_of(pid):
    """The scheduling policies of the threads of a process, by name."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found.setdefault((task / "comm").read_text().strip(), []).append(os.sched_getscheduler(int(task.name)))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def eventually(done):
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_clients_that_hang_slow_nothing_and_nothing_runs_while_nobody_looks(store, tmp_path):
    port = free_port()
    sent = frames(two_bits(noise(20.0, 1, seed=6)), 2)
    with Station(store, tmp_path / "state") as station:
        started = station.start(source(port))
        id, pid = started["id"], started["pid"]
        assert "spectrum" not in threads_of(pid)
        (path,) = (tmp_path / "state").glob("station/*/recordings/*/spectra")
        assert path.stat().st_mode & 0o777 == 0o600
        hanging = []
        directory = os.open(path.parent, os.O_RDONLY)
        for says in (b"", b"{", b'{"stream":"%d","channels":8192,"rows":25}\n' % port, os.urandom(5000)):
            one = socket.socket(socket.AF_UNIX)
            one.connect(f"/proc/self/fd/{directory}/spectra")
            try:
                one.sendall(says)
            except BrokenPipeError:
                pass
            hanging.append(one)
        with watch(station, id, stream=port, channels=8192, rows=25) as deaf, watch(station, id, stream=port, rows=25) as client:
            hanging.append(deaf)
            came = (message for message in fed(client, sent, port) if isinstance(message, Row))
            assert len([row for row, _ in zip(came, range(5))]) == 5
            assert set(threads_of(pid)["spectrum"]) == {os.SCHED_IDLE}
            assert station.ask("GET", "/api/v1/status").status == 200
        for one in hanging[:-1]:
            one.close()
        os.close(directory)
        eventually(lambda: "spectrum" not in threads_of(pid))
        begun = time.monotonic()
        ended = station.stop(id)
        assert time.monotonic() - begun < PATIENCE / 2
    info = ask("info", "test_one", "--store", store)
    assert info["lost"] == 0 and ended["exit_code"] == 0


def test_who_may_look_and_what_is_refused(store, tmp_path):
    port = free_port()
    with Station(store, tmp_path / "state") as station:
        id = station.start(source(port))["id"]

        def refused(status, role="viewer", headers=None, **query):
            with pytest.raises(InvalidStatus) as error:
                watch(station, id, role, headers, **query)
            assert error.value.response.status_code == status, error.value.response.body
            return json.loads(error.value.response.body)["detail"]

        assert "login" in refused(401, None, stream=port)
        assert "another site" in refused(403, headers={"Origin": "http://evil.example"}, stream=port)
        session = station.ask("POST", "/api/v1/session", {"token": SECRETS["viewer"]}, role=None)
        cookie = {"Cookie": session.headers["Set-Cookie"].partition(";")[0]}
        assert "Origin" in refused(403, None, cookie, stream=port)
        with watch(station, id, None, {**cookie, "Origin": f"http://127.0.0.1:{station.port}"}, stream=port):
            pass
        for wrong in ({"channels": 12}, {"channels": 8200}, {"rows": 26}, {"rows": 0}, {"window": "flat"}, {"more": 1}):
            assert next(iter(wrong)) in refused(400, **{"stream": port, **wrong})
        assert "stream" in refused(400)
        answer = station.ask("GET", f"/api/v1/recordings/{id}/spectra?stream={port}")
        assert answer.status == 400 and "WebSocket" in answer.json["advice"]
        with watch(station, id, stream=port, channel=1) as client:
            told = next(fed(client, frames(two_bits(noise(12.0, 1, seed=7)), 2), port))
            assert told["event"] == "refused" and "there is no channel 1" in told["error"]
            with pytest.raises(ConnectionClosed):
                client.recv(timeout=PATIENCE)
        assert station.ask("POST", "/api/v1/demo/loss", {"packets": 1}).status == 404
        station.stop(id)
        assert "has ended" in refused(409, stream=port)


# The brightness of each column of the newest rows of the waterfall.
COLUMNS = """
(() => {
  const from = document.querySelector('#waterfall');
  const copy = Object.assign(document.createElement('canvas'), { width: from.width, height: from.height });
  const context = copy.getContext('2d');
  context.drawImage(from, 0, 0);
  const { data } = context.getImageData(0, 0, copy.width, ROWS);
  const sums = Array(copy.width).fill(0);
  for (let at = 0; at < data.length; at += 4) sums[(at / 4) % copy.width] += data[at] + data[at + 1] + data[at + 2];
  return sums;
})()
"""
TOP, ALL = COLUMNS.replace("ROWS", "4"), COLUMNS.replace("ROWS", "copy.height")
PRESS = "document.querySelector('#spectrum').dispatchEvent(new KeyboardEvent('keydown', {{ key: '{}', bubbles: true }}))"


def chosen(page, name, value):
    page.value(
        f"(() => {{ const it = document.querySelector('[name={name}]'); it.value = {value!r};"
        " it.dispatchEvent(new Event('change')); })()"
    )


@pytest.mark.skipif(PROGRAM is None, reason="Chromium is not here")
def test_the_demonstration_shows_a_waterfall_that_moves_and_a_loss_in_red(tmp_path):
    with Browser(tmp_path / "profile", PATIENCE) as browser:
        begun = time.monotonic()
        with Station(None, tmp_path / "state") as station:
            page = Page(browser, station.told["login"], 1300, "dark")
            until(page, "/MHz/.test(document.querySelector('#reading')?.textContent)")
            took = time.monotonic() - begun
            assert page.value("location.hash") == "#stream", "the code stays in the address"
            # The strongest column is that of the carrier, and the newest rows are new.
            until(page, "document.querySelector('#waterfall').dataset.kind !== undefined")
            time.sleep(0.6)
            columns = np.array(page.value(TOP))
            width = len(columns)
            assert abs(np.argmax(columns) / width - CARRIER / BAND) < 2 / width, (np.argmax(columns), width)
            before = page.value(ALL)
            time.sleep(0.5)
            assert page.value(ALL) != before, "the waterfall stands still"
            # The marker reads the frequency and the level of the carrier.
            page.value(PRESS.format("p"))
            until(page, "/^marker: 2\\.60\\d* MHz, −\\d+\\.\\d dB$/.test(document.querySelector('#reading').textContent)")
            page.value(PRESS.format("ArrowRight"))
            until(page, "document.querySelector('#spectrum').getAttribute('aria-valuetext').startsWith('2.609')")
            # The states are those of a Gaussian signal, within some percents.
            shown = page.value("[...document.querySelectorAll('#states + table tbody tr')].map((it) => [...it.children].map((cell) => parseFloat(cell.textContent.replace('−', '-'))))")
            assert len(shown) == 4 and [row[0] for row in shown] == [-3.32, -1, 1, 3.32]
            assert all(abs(measured - expected) < 5 for _, measured, expected in shown)
            assert "second" in page.value("document.querySelector('#header-title + dl').textContent")
            chosen(page, "thread", "1")
            until(page, "document.querySelector('#reading').textContent.includes('MHz')")
            chosen(page, "size", "8192")
            until(page, "document.querySelector('#spectrum').getAttribute('aria-valuemax')", "8191")
            assert page.value(NAMELESS) == [] and page.value(FAINT) == []
            assert page.value("document.querySelectorAll('.bad').length") == 0
            clicks(page, "#lose")
            # Counters begin again with each piece of the circular recording, and the page remembers the loss.
            until(page, "/^[1-9]\\d* of/.test(document.querySelector('.facts .bad dd')?.textContent)")
            page.value("location.hash = '#now'")
            until(page, "document.querySelector('.running tbody tr')?.className", "lost")
            until(page, "/LOST 20 of/.test(document.body.innerText)")
            assert station.ask("POST", "/api/v1/demo/loss", {"packets": 20}, role="operator").status == 204
            # Nobody looks any more.
            pid = station.ask("GET", "/api/v1/recordings").json[0]["pid"]
            eventually(lambda: "spectrum" not in threads_of(pid))
            assert errors(page) == []
            place = Path(station.told["state"]).parent
            assert place.is_dir() and sum(it.stat().st_size for it in place.rglob("*") if it.is_file()) < 1e9
            assert took < 10, took
        assert not place.exists(), "the demonstration leaves nothing"


@pytest.mark.skipif(PROGRAM is None, reason="Chromium is not here")
def test_the_waterfall_on_a_canvas_shows_the_same(tmp_path):
    """Without WebGL 2, and on a phone: a tone at 21 % of the sample rate."""
    port = free_port()
    sent = frames(two_bits(noise(12.0, 1, seed=8)), 2)
    store = tmp_path / "store"
    store.mkdir()
    with Browser(tmp_path / "profile", PATIENCE) as browser, Station(store, tmp_path / "state") as station:
        page = Page(browser, station.told["login"], 400)
        until(page, "document.querySelector('.state strong')?.textContent", "IDLE")
        page.value("(() => { const get = HTMLCanvasElement.prototype.getContext; HTMLCanvasElement.prototype.getContext ="
                   " function (kind, ...rest) { return kind === 'webgl2' ? null : get.call(this, kind, ...rest); }; })()")
        page.value("location.hash = '#stream'")
        until(page, "document.querySelector('#waterfall')?.dataset.kind", "canvas")
        station.start(source(port))
        wire.send(sent[:100], port, pause=0.001)
        until(page, "document.querySelector('[name=stream]').value !== ''")
        chosen(page, "size", "256")
        wire.send(sent[100:], port, pause=0.001)
        until(page, "/kHz/.test(document.querySelector('#reading').textContent)")
        columns = np.array(page.value(TOP))
        assert abs(np.argmax(columns) / len(columns) - 0.42) < 2 / len(columns) + 1 / 256
        assert page.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert page.value(NAMELESS) == [] and page.value(FAINT) == [] and errors(page) == []
