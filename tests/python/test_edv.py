"""Extended data versions: `generate` makes each as baseband reads it, and `record` checks frames by their second count.
"""

import json
import signal
import subprocess

import numpy
import pytest
from astropy import units
from baseband import data, vdif
from baseband.vdif.header import VDIFHeader
from fullbore import AS_SEALED, BINARY, GOOD, PATIENCE, REFUSED, Recording, free_port, generate, run, text

FORMS = {
    "0": {"frame": 5032},
    "1": {"frame": 5032},
    "2": {"frame": 5032, "channels": 1},
    "3": {"frame": 5032, "channels": 1},
    "4": {"frame": 5032, "channels": 8},
    "0xAB": {"frame": 10032},
}
FPS = 200


def recorded(store, tmp_path, edv, scan="one", code=0, **rules):
    port, truth = free_port(), tmp_path / f"{scan}.json"
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}", store=store, scan=scan) as recording:
        generate(port, edv=edv, fps=FPS, duration="2s", gentle=True, truth=truth, **FORMS[edv], **rules)
        sealed = recording.stop(code)
    return recording, sealed["accounts"][0], json.loads(truth.read_text())["streams"][0]["port"]


@pytest.mark.parametrize("edv", FORMS)
def test_every_version_is_made_as_baseband_reads_it(store, tmp_path, edv):
    recording, account, _ = recorded(store, tmp_path, edv)
    assert (account["verdict"], account["disagreements"]) == ("proven", 0)
    numbers, count = [], 0
    for chunk in recording.on_disk().chunks():
        with chunk.open("rb") as file:
            while file.tell() < chunk.stat().st_size:
                header = VDIFHeader.fromfile(file)  # checks the requirements of the version
                assert header["edv"] == int(edv, 0)
                numbers.append(header.words[6] | header.words[7] << 32)
                count += 1
                file.seek(header.frame_nbytes - header.nbytes, 1)
    assert count == 2 * FPS
    if edv == "2":
        assert numbers == list(range(numbers[0], numbers[0] + count))


@pytest.mark.parametrize("edv", ["2", "4", "0xAB"])
def test_a_second_count_that_disagrees_is_in_the_account(store, tmp_path, edv):
    recording, account, truth = recorded(store, tmp_path, edv, code=AS_SEALED, miscount=0.02, seed=3)
    wrong = truth["miscounted"]["count"]
    assert 0 < wrong < 40 and account["disagreements"] == wrong
    assert account["verdict"] == "consistent" and account["terms"]["written"] == 2 * FPS
    assert account.get("masked", 0) == (wrong if edv == "4" else 0)
    run("verify", recording.scan, "--store", store)
    told = run("info", recording.scan, "--full", "--store", store).stdout.decode()
    assert "disagreed with their time" in told


def test_threads_that_share_a_port_each_have_a_count_of_their_own(store, tmp_path):
    _, account, _ = recorded(store, tmp_path, "2", threads="0-3")
    assert (account["verdict"], account["disagreements"]) == ("proven", 0)


def to_a_file(path, frames, **rules):
    """Sends frames to a recorder that writes them to a plain file; returns the file."""
    port = free_port()
    command = [BINARY, "record", f"udp://127.0.0.1:{port}?format=vdif", "--to", f"file:{path}", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as recorder:
        for line in recorder.stdout:
            if json.loads(line)["event"] == "armed":
                break
        generate(port, frames=frames, gentle=True, **rules)
        recorder.send_signal(signal.SIGINT)
        recorder.stdout.read()
        assert recorder.wait(PATIENCE) == GOOD
    return path


def frames_of(path):
    """Every frame of a file, checked by baseband: its header by the rules of its version, and its samples."""
    frames = []
    with vdif.open(path, "rb") as file:
        while file.tell() < path.stat().st_size:
            frames.append(file.read_frame())
    return frames


# Frame bytes, channels, and frames a second.
ALONE = {
    "0": (8032, 16, 32_000),
    "1": (8032, 16, 32_000),
    "2": (8032, 16, 32_000),
    "3": (5032, 1, 12_800),
    "4": (8032, 16, 32_000),
    "0xAB": (10032, 16, 25_600),
}


@pytest.mark.parametrize("edv", ALONE)
def test_every_version_needs_no_other_option(tmp_path, edv):
    bytes_, channels, fps = ALONE[edv]
    path = to_a_file(tmp_path / "alone.vdif", frames=300, edv=edv)
    frames = frames_of(path)
    assert len(frames) == 300
    for number, frame in enumerate(frames):
        header = frame.header
        assert (header["edv"], header.frame_nbytes, header.nchan, header.bps) == (int(edv, 0), bytes_, channels, 2)
        assert (header["frame_nr"], frame.valid) == (number, True)
        elapsed = header.get_time(fps * units.Hz) - frames[0].header.get_time(fps * units.Hz)
        assert abs(elapsed.to_value(units.s) - number / fps) < 1e-9
        if edv in ("1", "3"):
            assert header.frame_rate == fps * units.Hz
    if edv == "0xAB":
        return  # baseband's stream reader cannot search for headers with this version
    given = {} if edv in ("1", "3") else {"sample_rate": frames[0].header.samples_per_frame * fps * units.Hz}
    with vdif.open(path, "rs", **given) as stream:
        samples = stream.read()
    assert samples.shape == (300 * header.samples_per_frame, channels)[: 1 if channels == 1 else 2]
    whole = numpy.concatenate([frame.data for frame in frames]).squeeze()
    assert (samples == whole).all()


def test_eight_threads_of_the_vlba_are_as_in_its_own_recording(tmp_path):
    path = to_a_file(tmp_path / "vlba.vdif", frames=100, edv="3", threads="0-7")
    with vdif.open(path, "rs") as ours, vdif.open(data.SAMPLE_VDIF, "rs") as theirs:
        for name in ("sample_rate", "samples_per_frame", "sample_shape", "bps", "complex_data"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert ours.header0.frame_nbytes == theirs.header0.frame_nbytes == 5032
        assert ours.read().shape == (100 * ours.samples_per_frame, 8)


@pytest.mark.parametrize(
    "options, told",
    [
        (("--edv", "3", "--frame", "8032"), "EDV 3 (VLBA) has frames of 1032 or 5032 bytes, not 8032"),
        (("--edv", "2", "--bits", "4"), "EDV 2 (ALMA) has frames of 5032 or 8032 bytes with real samples of 2 bits"),
    ],
)
def test_frames_that_baseband_would_refuse_are_not_made(options, told):
    done = run("generate", "--to", f"udp://127.0.0.1:{free_port()}", "--frames", "1", *options, code=REFUSED)
    assert told in text(done.stderr)
