"""What the Python package draws, labels and computes: against numpy, and against what the files say."""

import io
import os
import re
import signal
import subprocess
import sys
import time

import fsspec
import matplotlib
import numpy as np
import package
import pytest
import wire
from fullbore import BINARY, PATIENCE, Recording, free_port, run
from test_python_package import MODULES, without
from test_spectrum import N, RATE, frames, noise, power, two_bits

matplotlib.use("Agg")
fb = package.load()
RECORDED = 1000


@pytest.fixture(scope="module", autouse=True)
def with_the_binary(tmp_path_factory):
    """The program that a wheel would have in PATH."""
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{os.path.dirname(os.path.abspath(BINARY))}:{before}"
    yield
    os.environ["PATH"] = before


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """A recording of noise with a carrier, of which frames are lost."""
    store = tmp_path_factory.mktemp("noisy")
    port = free_port()
    sent = frames(two_bits(noise(4.0, 2, seed=5)), 2)[:RECORDED]
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=250&block=64KiB&name=x", store=store) as recording:
        wire.send((frame for frame in without(sent, 300, 301, 302) if frame), port)
        run("mark", recording.scan, "<i>carrier</i>", "--store", store)
    recording.stop(1)
    return fb.open(store / recording.scan), store


def test_products_are_the_spectra_of_numpy(noisy):
    stream = noisy[0]["x"]
    spectrum = stream.spectrum(channels=N)
    values = stream.samples[:, 0]
    whole = values[: len(values) // (2 * N) * 2 * N].reshape(-1, 2 * N)
    whole = whole[~np.isnan(whole).any(axis=1)]
    assert spectrum.document["segments"] == len(whole) and spectrum.lines == ["0", "1"]
    assert np.allclose(spectrum.power[0], power(whole.ravel()), rtol=1e-4)
    assert np.allclose(spectrum.frequency, np.arange(N) / (2 * N) * RATE) and spectrum.start == stream.samples.start
    labelled = spectrum.to_xarray()
    assert labelled.dims == ("line", "frequency") and float(labelled.frequency[1]) == RATE / (2 * N)
    waterfall = stream.waterfall(channels=N, average="500ms")
    rows = waterfall.to_xarray()
    assert rows.dims == ("line", "time", "frequency") and rows.time.values[0] == stream.samples.start
    assert waterfall.power.shape == (2, len(waterfall.seconds), N)
    histogram = stream.histogram()
    known = values[~np.isnan(values)]
    # Transforms with an absent sample are left out.
    measured = [np.mean(np.isclose(known, it, atol=0.01)) for it in histogram.levels]
    assert np.allclose(histogram.fractions[0], measured, atol=1e-4)
    assert histogram.to_xarray().sum("level").values == pytest.approx([1, 1])
    series = stream.series(average="500ms")
    assert series.power.shape == (2, len(series.seconds)) and series.to_xarray().dims == ("line", "time")
    cross = stream.cross(0, "0:1", channels=N)
    assert cross.coherence.shape == (1, N) and np.all(abs(cross.phase) <= 180)
    for told, name in [(spectrum, "coherence"), (spectrum, "levels"), (spectrum, "seconds"), (histogram, "frequency")]:
        with pytest.raises(AttributeError, match=f"no {name}"):
            getattr(told, name)
    with pytest.raises(fb.CommandError, match="channels") as raised:
        stream.spectrum(channels=7)
    assert raised.value.code == 2


def test_plots_show_the_numbers_of_their_results(noisy):
    import matplotlib.pyplot as plt

    scan, _ = noisy
    stream = scan["x"]
    spectrum = stream.spectrum(channels=N)
    axes = spectrum.plot()
    assert np.allclose(axes.lines[1].get_ydata(), spectrum.decibels[1])
    assert axes.get_xlabel() == "frequency [kHz]" and np.allclose(axes.lines[0].get_xdata(), spectrum.frequency / 1e3)
    waterfall = stream.waterfall(channels=N, average="500ms")
    (mesh,) = waterfall.plot(line=1).collections
    assert np.ma.allclose(np.ma.masked_invalid(mesh.get_array().reshape(waterfall.decibels[1].shape)), waterfall.decibels[1])
    histogram = stream.histogram()
    bars = [bar.get_height() for bar in histogram.plot(line=0).patches]
    assert np.allclose(bars, histogram.fractions[0])
    assert len(stream.series(average="500ms").plot().lines) == 2
    shares = [bar.get_width() for bar in scan.plot().patches]
    assert np.allclose(shares, [100 * 997 / RECORDED, 0.3, 0, 0, 0])
    assert np.allclose([bar.get_width() for bar in stream.plot().patches], shares)
    picture = io.BytesIO()
    axes.figure.savefig(picture, format="png")
    assert picture.getvalue().startswith(b"\x89PNG")
    plt.close("all")


def test_tables_and_labels_are_those_of_accounts_and_samples(noisy):
    scan, _ = noisy
    stream = scan["x"]
    (row,) = scan.to_pandas().itertuples()
    assert (row.Index, row.expected, row.written, row.missing) == ("x", RECORDED, RECORDED - 3, 3)
    (gap,) = stream.to_pandas().itertuples()
    assert (gap.first, gap.count, gap.cause) == (300, 3, "missing") and gap.time == stream.time[300]
    labelled = stream.samples.to_xarray(10, 20, channels=["0:1", 0])
    assert labelled.dims == ("sample", "line") and list(labelled.line.values) == ["0:1", "0:0"]
    assert np.array_equal(labelled.values, stream.samples[10:20][:, ::-1])
    assert np.array_equal(labelled.time.values, stream.samples.time(np.arange(10, 20)))
    assert labelled.attrs["sample_rate"] == RATE
    later = labelled.sel(sample=slice(12, 14), line="0:0")
    assert np.array_equal(later.values, stream.samples[12:15, 0])
    assert stream.samples.to_xarray(0, 5, channels=0).dims == ("sample",)


def test_a_notebook_shows_account_timeline_and_marks(noisy):
    html = noisy[0]._repr_html_()
    bars = [(int(x), int(width), fate) for x, width, fate in re.findall(r'<rect x="(\d+)" y="4" width="(\d+)".*?<title>(\w+)<', html)]
    assert bars == [(0, 180, "written"), (180, 2, "missing"), (182, 418, "written")]
    assert "&lt;i&gt;carrier&lt;/i&gt;" in html and "<i>" not in html
    assert "missing" in noisy[0]["x"]._repr_html_()


def test_dlpack_and_buffers_have_what_slices_have(noisy):
    stream = noisy[0]["x"]
    assert np.array_equal(np.from_dlpack(stream.samples), stream.samples[:], equal_nan=True)
    assert np.array_equal(np.from_dlpack(stream.frames), stream.frames[:])
    assert bytes(stream.samples.__buffer__(0)) == stream.samples[:].tobytes()
    with pytest.raises(ValueError, match="a copy"):
        np.asarray(stream.samples, copy=False)


def test_fsspec_sees_streams_as_files(noisy):
    scan, store = noisy
    fsspec.register_implementation("fullbore", fb.__name__ + "._fsspec.StreamFileSystem", clobber=True)
    whole = run("cat", scan.name, "--store", store).stdout
    files = fsspec.filesystem("fullbore")
    assert [told["name"] for told in files.ls(f"fullbore://{store}")] == [f"{store}/{scan.name}"]
    assert files.ls(f"{store}/{scan.name}", detail=False) == [f"{store}/{scan.name}/x"]
    path = f"fullbore://{store}/{scan.name}/x"
    assert files.info(path)["size"] == len(whole) and files.isdir(f"{store}/{scan.name}") and files.exists(path)
    with fsspec.open(path) as file:
        file.seek(5000)
        assert file.read(70_000) == whole[5000:75_000]
    assert files.cat_file(path, 100, 200) == whole[100:200] and files.cat_file(path, -100) == whole[-100:]
    assert files.ls(path, detail=False) == [path.removeprefix("fullbore://")]
    for absent in (path + "y", f"{store}/no", f"{store}/no/x"):
        assert not files.exists(absent) and not files.isdir(absent) and not files.isfile(absent)
        for look in (files.info, files.ls, files.open):
            with pytest.raises(FileNotFoundError):
                look(absent)
    with pytest.raises(OSError, match="only read"):
        files.open(path, "wb")


def test_commands_are_called_and_tell_their_results(tmp_path):
    port = free_port()
    store = tmp_path / "store"
    store.mkdir()
    told = []
    with fb.Recorder(f"udp://127.0.0.1:{port}?format=vdif&fps=1000&name=x", store=store, session="s", scan="a",
                     buffer="64MiB") as recorder:  # fmt: skip
        sent = fb.generate(f"udp://127.0.0.1:{port}", fps=1000, frame=1032, frames=200, progress=told.append)
        assert sent["datagrams"] == 200 and told[-1] == sent
        end = time.monotonic() + PATIENCE
        while not recorder.progress or sum(stream["frames"] for stream in recorder.progress["streams"]) < 200:
            assert time.monotonic() < end, recorder.progress
            time.sleep(0.02)
    assert recorder.sealed[0]["accounts"][0]["terms"]["written"] == 200
    played = fb.play("s_a", f"udp://127.0.0.1:{port}", store=store, gentle=True)
    assert played["frames"] == 200
    planned = fb.plan(example="station")
    before = os.listdir("/proc/self/fd")
    ended = fb.Command("plan", example="station")
    assert ended.wait() == ended.wait() == planned and os.listdir("/proc/self/fd") == before
    assert planned["verdict"] in ("fits", "fits-with-warnings", "not-known", "does-not-fit") and planned["findings"]
    with pytest.raises(fb.CommandError, match="nowhere") as raised:
        fb.play("nowhere", f"udp://127.0.0.1:{port}", store=[store])
    assert raised.value.code == 2 and isinstance(raised.value, fb.Error)
    with fb.Command("generate", to=f"udp://127.0.0.1:{port}", fps=1000, duration="1h") as command:
        assert command.running and "generate" in repr(command)
    assert not command.running and command.code is not None


def test_ctrl_c_ends_a_command_and_is_raised(tmp_path):
    program = f"""
import fullbore
command = fullbore.Command("generate", to="udp://127.0.0.1:{free_port()}", fps=100, duration="1h")
print("begun", flush=True)
try:
    command.wait()
except KeyboardInterrupt:
    print(command.running)
"""
    env = {**MODULES, "PATH": os.environ["PATH"]}
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE)[0] == "False\n"
