"""`fullbore spectrum`, `index` and `find`: spectra, levels and power against numpy, on samples that baseband decodes."""

import csv
import json
import struct
import xml.etree.ElementTree as xml
import zlib

import astropy.units as u
import numpy as np
import pytest
import wire
from baseband import vdif
from fullbore import BINARY, FOUND, GOOD, REFUSED, Recording, ask, free_port, run
from panda import Told
from terminal import Terminal

RATE = 1_000_000  # samples per second of each channel
FPS = 250
SAMPLES = RATE // FPS  # of a frame
N = 64  # spectral channels


def packed(codes, bits):
    """Codes as bytes, the first in the lowest bits."""
    places = np.arange(8 // bits) * bits
    groups = codes.astype(np.uint8).reshape(-1, 8 // bits)
    return (groups << places).sum(axis=1, dtype=np.uint32).astype(np.uint8).tobytes()


def frames(codes, bits, thread=0, complex_parts=False):
    """VDIF frames of codes of the shape (samples, channels × parts)."""
    values = codes.shape[1]
    channels = values // (2 if complex_parts else 1)
    length = SAMPLES * values * bits // 8 + 32
    made = []
    for number in range(len(codes) // SAMPLES):
        words = [
            1000 + number // FPS,
            number % FPS | 53 << 24,
            length // 8 | 1 << 29 | channels.bit_length() - 1 << 24,
            0x4266 | thread << 16 | (bits - 1) << 26 | complex_parts << 31,
        ]
        part = codes[number * SAMPLES : (number + 1) * SAMPLES]
        made.append(struct.pack("<4I", *words) + bytes(16) + packed(part.ravel(), bits))
    return made


def two_bits(voltages):
    return np.digitize(voltages, [-0.98, 0, 0.98])


def noise(seconds, channels, seed, tone=0.21):
    """Noise with a tone at a frequency in cycles per sample, another phase in each channel."""
    random = np.random.default_rng(seed)
    count = int(seconds * RATE)
    voltages = random.normal(size=(count, channels))
    phase = 2 * np.pi * tone * np.arange(count)[:, None] - 0.7 * np.arange(channels)
    return voltages + 0.6 * np.cos(phase)


def decoded(path, **options):
    """The samples as baseband reads them, of the shape (samples, threads × channels)."""
    with vdif.open(path, "rs", sample_rate=RATE * u.Hz, squeeze=False, **options) as file:
        samples = file.read()
    return samples.reshape(len(samples), -1)


def weights(length):
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)


def segments(samples, length, whole=None):
    """Transforms of whole segments, by numpy."""
    count = len(samples) // length
    cut = samples[: count * length].reshape(count, length)
    cut = cut if whole is None else cut[whole[:count]]
    transform = np.fft.fft(cut * weights(length), axis=1)
    return transform / np.sqrt(length * np.sum(weights(length) ** 2))


def power(samples, whole=None):
    """Power in each of N channels, by numpy."""
    if np.iscomplexobj(samples):
        return np.fft.fftshift(np.mean(abs(segments(samples, N, whole)) ** 2, axis=0))
    spectrum = np.mean(abs(segments(samples, 2 * N, whole)[:, :N]) ** 2, axis=0)
    return np.concatenate([spectrum[:1], 2 * spectrum[1:]])


@pytest.fixture(scope="module")
def two_threads(tmp_path_factory):
    """A file of two threads of one channel of two bits each, and the frames."""
    voltages = noise(1.2, 2, seed=1)
    threads = [frames(two_bits(voltages[:, [n]]), 2, thread=n) for n in (0, 1)]
    together = [frame for pair in zip(*threads) for frame in pair]
    path = tmp_path_factory.mktemp("spectrum") / "two.vdif"
    path.write_bytes(b"".join(together))
    return path, together


def spectrum(*words, code=GOOD):
    return ask("spectrum", *words, "--channels", N, code=code)


def test_spectra_are_those_of_numpy_on_samples_of_baseband(two_threads):
    path, _ = two_threads
    samples = decoded(path)
    told = spectrum(path)
    assert [line["name"] for line in told["lines"]] == ["0:0", "1:0"]
    assert told["segments"] == 2 * (len(samples) // (2 * N)) and told["segments_left_out"] == 0
    assert np.allclose(told["frequency"], np.arange(N) / (2 * N) * RATE)
    for line, column in zip(told["lines"], samples.T):
        assert np.allclose(line["power"], power(column), rtol=1e-4)
    one = spectrum(path, "--threads", 1)
    assert np.allclose(one["lines"][0]["power"], told["lines"][0]["power"], rtol=1e-9)


@pytest.mark.parametrize("bits, channels, parts", [(8, 4, 1), (8, 2, 2), (4, 2, 1), (2, 4, 2), (1, 8, 1)])
def test_every_kind_of_samples_agrees_with_numpy(bits, channels, parts, tmp_path):
    voltages = noise(0.2, channels * parts, seed=bits)
    scale = {1: 0, 2: 1, 4: 2.5, 8: 30}[bits]
    codes = np.clip(np.round(voltages * scale) + 2 ** (bits - 1), 0, 2**bits - 1)
    codes = two_bits(voltages) if bits == 2 else voltages > 0 if bits == 1 else codes
    path = tmp_path / "kind.vdif"
    path.write_bytes(b"".join(frames(np.asarray(codes), bits, complex_parts=parts == 2)))
    told = spectrum(path, "--sample-rate", "1MHz")
    theirs = decoded(path)
    if bits == 8:
        # Baseband puts zero at code 127.5, VDIF at 128: half a level, in each part of a sample.
        level = np.diff(np.unique(theirs.real)).min()
        theirs = theirs - level / 2 * (1 + 1j if parts == 2 else 1)
    # Baseband gives levels of 4 and 8 bits a scale of its own.
    ours = told["lines"][0]["power"]
    scale = np.sum(power(theirs[:, 0])) / np.sum(ours)
    assert bits > 2 or scale == pytest.approx(1, rel=1e-4)
    assert len(told["lines"]) == channels
    for line, column in zip(told["lines"], theirs.T):
        assert np.allclose(np.multiply(line["power"], scale), power(column), rtol=1e-4)


def test_segments_with_lost_frames_are_left_out_and_counted(two_threads, store):
    _, sent = two_threads
    lost = {40, 41, 43, 200, 201, 202}
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}", store=store) as recording:
        wire.send((frame for number, frame in enumerate(sent) if number not in lost), port, pause=1e-4)
    recording.stop(FOUND)
    told = spectrum(recording.scan, "--store", store)
    samples = decoded(two_threads[0])
    left_out = 0
    for thread, line in enumerate(told["lines"]):
        there = np.repeat([2 * n + thread not in lost for n in range(len(sent) // 2)], SAMPLES)
        count = len(samples) // (2 * N)
        whole = there[: count * 2 * N].reshape(count, -1).all(axis=1)
        left_out += np.count_nonzero(~whole)
        assert np.allclose(line["power"], power(samples[:, thread], whole), rtol=1e-4)
    assert told["segments_left_out"] == left_out > 0
    assert str(left_out) in run("spectrum", recording.scan, "--store", store, "--channels", N).stdout.decode()


def test_rows_over_time_agree_with_numpy(two_threads):
    path, _ = two_threads
    samples = decoded(path)
    first = np.arange(len(samples) // (2 * N)) * 2 * N
    words = [path, "--average", "100ms"]
    waterfall, series = spectrum(*words, "--waterfall"), spectrum(*words, "--series")
    assert np.allclose(waterfall["seconds"], np.arange(12) / 10) and waterfall["seconds"] == series["seconds"]
    for thread in (0, 1):
        for row in range(12):
            whole = first * 10 // RATE == row
            here = samples[: len(first) * 2 * N, thread].reshape(-1, 2 * N)[whole]
            assert np.allclose(
                waterfall["lines"][thread]["rows"][row], power(samples[:, thread], whole), rtol=1e-4
            )
            assert series["lines"][thread]["power"][row] == pytest.approx(np.mean(here**2), rel=1e-5)
    part = spectrum(path, "--start", "+500ms", "--length", "300ms")
    assert np.allclose(part["lines"][1]["power"], power(samples[500_000:800_000, 1]), rtol=1e-4)
    assert part["start"].startswith("2026-07-01T00:16:40.5")


def test_levels_are_counted_beside_those_of_a_gaussian_signal(two_threads):
    path, _ = two_threads
    told = spectrum(path, "--histogram")
    samples = decoded(path)
    for line, column in zip(told["lines"], samples.T):
        used = column[: len(column) // (2 * N) * 2 * N]
        assert line["counts"] == [np.count_nonzero(np.isclose(used, level)) for level in told["levels"]]
        assert line["expected"] == pytest.approx([0.1631, 0.3369, 0.3369, 0.1631], abs=1e-3)
        assert line["mean"] == pytest.approx(used.mean(dtype=float), abs=1e-6)
        assert line["deviation"] == pytest.approx(used.std(dtype=float), rel=1e-6)


def test_cross_power_has_the_phase_between_two_channels(two_threads):
    path, _ = two_threads
    told = spectrum(path, "--cross", "0:0,1:0")
    one, other = (segments(column, 2 * N)[:, :N] for column in decoded(path).T)
    product = np.mean(one * other.conj(), axis=0)
    (line,) = told["lines"]
    scale = np.where(np.arange(N) == 0, 1, 2)
    assert np.allclose(line["power"], abs(product) * scale, rtol=1e-3, atol=1e-7)
    coherence = abs(product) ** 2 / np.mean(abs(one) ** 2, axis=0) / np.mean(abs(other) ** 2, axis=0)
    assert np.allclose(line["coherence"], coherence, rtol=1e-3, atol=1e-7)
    tone = round(0.21 * 2 * N)
    assert np.argmax(line["coherence"]) == tone
    assert line["phase_degrees"][tone] == pytest.approx(np.degrees(np.angle(product[tone])), abs=0.01)
    assert line["phase_degrees"][tone] == pytest.approx(np.degrees(0.7), abs=3)


def pixels(png):
    """The colours of a PNG, read by its definition."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data = 8, b""
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        body = png[at + 8 : at + 8 + length]
        (crc,) = struct.unpack_from(">I", png, at + 8 + length)
        assert crc == zlib.crc32(kind + body)
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack_from(">2I2B", body)
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    assert (depth, colour) == (8, 2) and kind == b"IEND"
    assert len(zlib.decompress(data)) == height * (1 + 3 * width)
    return width, height


@pytest.mark.parametrize("product", [[], ["--waterfall", "--average", "50ms"], ["--histogram"], ["--series"], ["--cross", "0:0,1:0"]], ids=str)
def test_results_are_files_that_other_programs_read(product, two_threads, tmp_path):
    path, _ = two_threads
    made = {}
    for ending in ("png", "svg", "pdf", "csv", "json"):
        made[ending] = tmp_path / f"out.{ending}"
        run("spectrum", path, "--channels", N, "-o", made[ending], *product)
    width, height = pixels(made["png"].read_bytes())
    assert width == 1440 and height >= 700
    root = xml.parse(made["svg"]).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and len(root) > 20
    document = made["pdf"].read_bytes()
    assert document.startswith(b"%PDF-1.4") and document.endswith(b"%%EOF\n")
    told = json.loads(made["json"].read_text())
    rows = list(csv.reader(made["csv"].open()))
    assert len({len(row) for row in rows}) == 1
    if not product:
        assert [float(row[1]) for row in rows[1:]] == pytest.approx(told["lines"][0]["power"])
    refused = run("spectrum", path, "--channels", N, "-o", made["png"], *product, code=REFUSED)
    assert b"exists" in refused.stderr


@pytest.mark.parametrize(
    "words, why",
    [
        (["-o", "out.gif"], ".png, .svg, .pdf, .csv or .json"),
        (["--channels", "100"], "a multiple of 8"),
        (["--channels", "500008", "--series", "--average", "1s"], "--average"),
        (["--cross", "0"], "THREAD:CHANNEL"),
        (["--cross", "0:0,0:1"], "there is no channel 1"),
        (["--window", "round"], "hann"),
        (["--start", "+1h"], "--start"),
        (["--start", "17"], "+2.5s"),
    ],
    ids=str,
)
def test_wrong_requests_are_refused_with_the_reason(words, why, two_threads):
    refused = run("spectrum", two_threads[0], *words, code=REFUSED)
    assert why in refused.stderr.decode(), refused.stderr


def test_a_terminal_shows_a_picture_that_fits(two_threads):
    for columns, lines, picture in ((80, 24, True), (200, 50, True), (40, 24, True), (40, 12, False)):
        with Terminal([BINARY, "spectrum", two_threads[0]], columns, lines) as terminal:
            assert terminal.end() == GOOD
            shown = "".join(terminal.shown())
            assert any(0x2800 < ord(letter) < 0x2900 for letter in shown) == picture, shown
            assert "segments of" in shown
            assert terminal.gone() == []


def test_a_source_is_shown_live(two_threads):
    _, sent = two_threads
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}&block=64KiB"
    with Told("spectrum", source, "--channels", N) as live:
        for second in range(100):
            later = [
                struct.pack("<I", struct.unpack_from("<I", frame)[0] + 10 * second) + frame[4:]
                for frame in sent
            ]
            wire.send(later, port, pause=2e-4)
            if live.all("spectrum"):
                break
        live.interrupt()
        live.ends(GOOD)
    told = live.all("spectrum")[0]
    strongest = int(np.argmax(told["lines"][0]["power"]))
    assert strongest == round(0.21 * 2 * N) and told["segments"] > 10


def test_seconds_are_found_by_their_content(store):
    voltages = noise(5, 2, seed=5, tone=0.1) * 10
    voltages[2_000_000:3_000_000, 1] *= 8
    voltages[3_500_000:3_800_000, 0] *= 6
    codes = np.clip(np.round(voltages) + 128, 0, 255)
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}", store=store) as recording:
        lost = lambda number: 1000 <= number < 1100
        made = frames(codes, 8)
        wire.send((it for number, it in enumerate(made) if not lost(number)), port, pause=2e-4)
    recording.stop(FOUND)
    where = [recording.scan, "--store", store]
    run("find", *where, "power(ch1) > -10 dB", code=REFUSED)
    (made,) = ask("index", *where)
    assert made["rows"] == 5
    powers = [line["power"] for line in made["lines"]]
    for channel, rows in enumerate(powers):
        for second in (0, 1, 2):
            here = codes[second * RATE : (second + 1) * RATE, channel] - 128.0
            assert rows[second] == pytest.approx(np.mean(here**2), rel=1e-3)
    found = lambda query, code=GOOD: [
        (it["begins_s"], it["seconds"]) for it in ask("find", *where, query, code=code)
    ]
    assert found("power(ch1) > -12 dB for 1s") == [(2.0, 1.0)]
    assert found("power(ch1) > -12 dB for 2s", FOUND) == []
    assert found("burst(ch0) > 10 dB") == [(3.0, 1.0)]
    assert found("absent(any) > 20 %") == [(4.0, 1.0)]
    assert found("power(ch1) > -12 dB or burst(ch0) > 10 dB") == [(2.0, 2.0)]
    (first,) = [it for it in ask("find", *where, "burst(ch0) > 10 dB")]
    assert first["time"].startswith("2026-07-01T00:16:43")
    wrong = run("find", *where, "power(ch1) >> 3", code=REFUSED).stderr.decode()
    assert "a number is expected here" in wrong and " " * 13 + "^" in wrong
    run("verify", *where, code=(GOOD, 3))
    (content,) = store.glob("*/.fullbore/content.json")
    damaged = bytearray(content.read_bytes())
    damaged[100] ^= 1
    content.write_bytes(damaged)
    assert b"checksum" in run("find", *where, "power(any) > 0", code=REFUSED).stderr
    run("rm", *where, "--yes")
    assert not list(store.glob(f"{recording.scan}*"))
