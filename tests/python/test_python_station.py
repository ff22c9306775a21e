"""The Python client of a station: what it says is what the station's store and its REST interface say."""

import asyncio
import http.client
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import package
import pytest
import wire
from fullbore import PATIENCE, free_port
from station import SECRETS, Station, vdif
from test_serve_config import Described, UnixConnection
from test_spectrum import N, RATE, decoded, frames, noise, power, two_bits

fb = package.load()


@pytest.fixture
def served(store, tmp_path):
    with Station(store, tmp_path / "state") as station:
        yield station, fb.Station(f"http://127.0.0.1:{station.port}", token=SECRETS["admin"])


def options(**more):
    return {"session": "test", "buffer": "64MiB", **more}


def test_a_program_records_marks_and_verifies_through_a_station(served, store):
    _, station = served
    port = free_port()
    states = station.events()
    assert [it["phase"] for it in next(states)["recordings"]] == []
    with station.record(vdif(port), scan="one", **options()) as recording:
        assert recording.phase == "armed" and station.recordings[0].id == recording.id
        wire.send(wire.run_of_frames(500), port)
        recording.mark("<on source>")
        now = datetime.now(timezone.utc)
        seen = next(it for it in states if any(told["phase"] == "recording" for told in it["recordings"]))
        assert seen["recordings"][0]["id"] == recording.id
        assert "test_one" in repr(recording) and "test_one" in station._repr_html_()
    states.close()
    assert list(states) == []
    assert recording.phase == "ended" and recording.state["exit_code"] == 0
    assert recording.state["finished"][0]["complete"]
    (listed,) = station.scans()
    assert listed["name"] == "test_one" and list(station.scans("other")) == []
    station.mark("test_one", "now", now)
    marks = {mark["text"]: mark["time"] for mark in station.scan("test_one")["markers"]}
    assert set(marks) == {"now", "<on source>"} and marks["now"] == f"{now:%Y-%m-%dT%H:%M:%S.%f}000Z"
    assert station.verify("test_one")["good"]
    assert fb.open(store / "test_one")[str(port)].account["terms"]["written"] == 500
    station.protect("test_one")
    with pytest.raises(fb.StationError, match="protected") as raised:
        station.remove("test_one")
    assert raised.value.status == 409 and isinstance(raised.value, fb.Error)
    station.protect("test_one", False)
    station.remove("test_one")
    assert list(station.scans()) == [] and station.status["recordings"][0]["phase"] == "ended"


def test_refusals_are_errors_with_the_advice_of_the_station(served, tmp_path):
    running, station = served
    (tmp_path / "token").write_text(SECRETS["viewer"] + "\n")
    viewer = fb.Station(str(station.address), token=tmp_path / "token")
    assert viewer.status["members"] and viewer.schedules == [] and viewer.inputs is not None
    for refused, status in [
        (lambda: viewer.record(vdif(free_port()), scan="a", **options()), 403),
        (lambda: fb.Station(str(station.address)).status, 401),
        (lambda: station.scan("../x"), 400),
        (lambda: station.scan("test_none"), 404),
        (lambda: station.record("udp://:1?format=vdif&frame=x", scan="a", **options()), 422),
        (lambda: station.record(vdif(free_port()), scan="a", **options(colour="red")), 422),
        (lambda: next(station.events(hz=99)), 400),
        (lambda: station.recording("x"), 400),
        (lambda: station.recording("01990000-0000-7000-8000-000000000000"), 404),
    ]:
        with pytest.raises(fb.StationError) as raised:
            refused()
        assert raised.value.status == status, (raised.value, raised.value.status)
    with pytest.raises(fb.StationError, match="no answer") as raised:
        fb.Station(f"http://127.0.0.1:{free_port()}").status
    assert "fullbore serve" in raised.value.hint and raised.value.status is None
    for wrong in ("http://host/path", "ftp://host", "http://", "unix:", ""):
        with pytest.raises(ValueError, match="http://HOST:PORT"):
            fb.Station(wrong)
    with pytest.raises(FileNotFoundError, match="the certificate .*nowhere.pem cannot be used: No such file"):
        fb.Station("https://127.0.0.1:1", certificate=tmp_path / "nowhere.pem")
    with pytest.raises(OSError, match="the certificate .*token cannot be used"):
        fb.Station("https://127.0.0.1:1", certificate=tmp_path / "token")
    with pytest.raises(ValueError, match="begins with https"):
        fb.Station("http://127.0.0.1:1", certificate=tmp_path / "nowhere.pem")


def test_a_socket_of_the_host_needs_no_token(store, tmp_path):
    with tempfile.TemporaryDirectory(prefix="fullbore-") as place:
        path = f"{place}/s"
        with Described(store, tmp_path / "state", f'[listen]\nunix = "{path}"\n', listen=False) as running:
            running.connect = lambda: UnixConnection(path)
            for named in (Path(path), path, f"unix:{path}", f"unix://{path}"):
                assert fb.Station(named).status["version"] == fb.__version__
            assert next(fb.Station(path).events())["recordings"] == []
            with pytest.raises(fb.StationError) as raised:
                next(fb.Station(path).recording("x").spectra("a"))
            assert raised.value.status in (400, 404)


def test_a_certificate_that_signs_itself_is_trusted_by_its_file(store, tmp_path):
    text = '[listen]\nhttps = "127.0.0.1:0"\nnames = ["localhost"]\n'
    with Described(store, tmp_path / "state", text, listen=False) as running:
        (certificate,) = tmp_path.glob("state/station/*/tls/certificate.pem")
        context = ssl.create_default_context(cafile=certificate)
        running.connect = lambda: http.client.HTTPSConnection("localhost", running.port, timeout=PATIENCE, context=context)
        address = f"https://localhost:{running.port}"
        station = fb.Station(address, token=SECRETS["operator"], certificate=certificate)
        with station.events() as states:
            assert next(states)["recordings"] == []
        with station.record(vdif(free_port()), scan="one", **options()) as recording:
            refused = error_of(recording.spectra("a", channels=7))
            assert refused.status == 400 and "channels" in str(refused), refused
        with pytest.raises(fb.StationError, match="certificate verify failed"):
            fb.Station(address, token=SECRETS["viewer"]).status


def error_of(feed):
    with pytest.raises(fb.StationError) as raised:
        next(feed)
    return raised.value


def test_live_spectra_are_those_of_numpy_on_samples_of_baseband(served, tmp_path):
    _, station = served
    sent = frames(two_bits(noise(8.0, 1, seed=5)), 2)
    (tmp_path / "sent.vdif").write_bytes(b"".join(sent))
    samples = decoded(tmp_path / "sent.vdif")[:, 0]
    port = free_port()
    with station.record(f"udp://127.0.0.1:{port}?format=vdif&fps=250&block=64KiB", scan="one", **options()) as recording:
        spectra = recording.spectra(str(port), channels=N, rows=25)
        rows, refused = [], []
        reader = threading.Thread(target=lambda: rows.append(next(spectra)))
        reader.start()
        other = threading.Thread(target=lambda: refused.append(error_of(recording.spectra(str(port), channel=7))))
        other.start()
        # The recorder computes when no other thread wants the time, so it may begin late.
        for begin in range(0, len(sent), 250):
            wire.send(sent[begin : begin + 250], port, pause=0.0003)
            reader.join(1 if spectra.stream is None else 0.1)
        reader.join(PATIENCE)
        assert rows, "no row came"
        assert spectra.stream["scan"] == "test_one" and spectra.header["event"] == "header"
        other.join(PATIENCE)
        assert "channel" in str(refused[0])

        async def first():
            async for row in recording.spectra(str(port)):
                return row

        async def given_up():
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(first(), 0.5)

        asyncio.run(given_up())
    assert all(row.thread == 0 for row in spectra)
    (row,) = rows
    offset = round(int(row.time - np.datetime64("2026-07-01T00:16:40", "ns")) * RATE / 1e9)
    mine = samples[offset:][: row.transforms * 2 * N]
    assert np.allclose(row.frequency, np.arange(N) / (2 * N) * RATE) and row.in_hertz and not row.complex
    expected = 10 * np.log10(power(mine) / 3.316505**2)
    assert np.all(np.abs(row.power - expected) < 0.5)
    assert np.allclose(row.states.sum(), 1, atol=1e-5) and np.allclose(row.gaussian, [0.163, 0.337, 0.337, 0.163], atol=5e-4)
    stored = station.spectrum("test_one", str(port), after=0.5, length=0.1, channels=N)
    mine = samples[round(0.5 * RATE) :][: stored.transforms * 2 * N]
    assert np.all(np.abs(stored.power - 10 * np.log10(power(mine) / 3.316505**2)) < 0.5)


def test_events_serve_asyncio(served):
    _, station = served
    port = free_port()

    async def session():
        recording = await asyncio.to_thread(lambda: station.record(vdif(port), scan="one", **options()))
        phases = []
        async for state in station.events():
            phase = state["recordings"][0]["phase"] if state["recordings"] else None
            if phase not in phases:
                phases.append(phase)
                if phase == "armed":
                    await asyncio.to_thread(wire.send, wire.run_of_frames(300), port)
                elif phase == "recording":
                    recording.stop()
                elif phase == "ended":
                    return phases

    assert asyncio.run(asyncio.wait_for(session(), PATIENCE))[-1] == "ended"


def test_a_connection_that_is_lost_is_not_an_end(served, monkeypatch):
    running, station = served
    # A proxy of the environment is not for a station.
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.delenv("no_proxy", raising=False)
    port = free_port()
    recording = station.record(vdif(port), scan="one", **options())
    states, spectra, ends = station.events(), recording.spectra(str(port)), []
    next(states)

    def follow(feed):
        try:
            for _ in feed:
                pass
            ends.append("end")
        except fb.StationError as error:
            ends.append(str(error))

    readers = [threading.Thread(target=follow, args=(feed,)) for feed in (states, spectra)]
    for reader in readers:
        reader.start()
    end = time.monotonic() + PATIENCE
    while spectra._connection is None:
        assert time.monotonic() < end and not ends, ends
        time.sleep(0.02)
    running.kill()
    for reader in readers:
        reader.join(PATIENCE)
    # Another daemon ends the recording.
    running.errors.close()
    running.__enter__()
    assert len(ends) == 2 and all("the connection was lost" in it for it in ends), ends


def test_what_has_ended_holds_no_descriptor(served):
    _, station = served
    opened = lambda: len(os.listdir("/proc/self/fd"))
    before, feeds = opened(), [station.events() for _ in range(5)]
    for feed in feeds:
        next(feed)
        feed.close()
    feeds += [station.events(hz=99), station.recording(station.record(vdif(free_port()), scan="a", **options()).id).spectra("a", channel=-1)]
    for feed in feeds[5:]:
        assert error_of(feed).status == 400
    assert opened() == before


def test_many_feeds_leave_the_threads_of_the_event_loop_to_others():
    from fullbore_package._feed import Feed

    class Quiet(Feed):
        def __init__(self):
            self.over = threading.Event()

        def receive(self):
            self.over.wait()

        def close(self):
            # As a connection whose other end does not answer.
            if not self.over.is_set():
                time.sleep(0.2)
            self.over.set()

    async def follow():
        feeds = [Quiet() for _ in range(40)]
        waits = [asyncio.ensure_future(feed.__anext__()) for feed in feeds]
        await asyncio.sleep(0.05)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 7), PATIENCE / 4) == 7
        waits[0].cancel()
        begun = time.monotonic()
        await asyncio.sleep(0.01)
        assert time.monotonic() - begun < 0.19 and not feeds[0].over.is_set()
        for feed in feeds[1:]:
            feed.over.set()
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError) and feeds[0].over.is_set()
        assert all(isinstance(it, StopAsyncIteration) for it in results[1:])

    asyncio.run(follow())


def test_a_schedule_is_started_and_cancelled(served):
    _, station = served
    scans = "scan,start,duration\nno0001,2031-01-01T18:00:00Z,40s\n"
    station.schedule("night", scans, vdif(free_port()), session="v1", buffer="64MiB")
    assert [it["name"] for it in station.schedules] == ["night"]
    station.cancel("night")
    for recording in station.recordings:
        assert recording.wait(PATIENCE)["phase"] == "ended"
    assert [it["state"] for it in station.schedules] == ["cancelled"]


def test_without_websockets_the_error_names_the_extra(tmp_path):
    program = """
import sys
sys.modules["websockets"] = None
sys.modules["websockets.exceptions"] = None
import fullbore
from fullbore._spectra import Spectra
from fullbore._http import Address
try:
    next(Spectra(Address("http://127.0.0.1:1", None, None), "/"))
except fullbore.Error as error:
    print(error.hint)
"""
    env = {**os.environ, "PYTHONPATH": str(package.place())}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.stdout == "pip install 'fullbore[station]'\n", done.stderr
