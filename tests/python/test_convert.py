"""`fullbore convert --follow`: a scan seen by h5py while it is recorded."""

import json
import subprocess
import time

import h5py
import numpy as np
import wire
from fullbore import BINARY, GOOD, PATIENCE, Recording, free_port
from panda import Panda


class Following:
    """`fullbore convert --follow` while it runs."""

    def __init__(self, scan, path, store):
        to = f"hdf5:{path}?flush=100ms"
        words = ["convert", "--follow", f"store:{scan}", to, "--store", str(store), "--json"]
        self.process = subprocess.Popen([BINARY, *words], stdout=subprocess.PIPE)

    def ends(self):
        told, _ = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == GOOD
        return json.loads(told)


def rows(path, dataset, least):
    """How many rows a reader sees, once there are so many."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            with h5py.File(path, "r", libver="latest", swmr=True) as file:
                if (seen := len(file[dataset])) >= least:
                    return seen
        except (OSError, KeyError):
            pass
        time.sleep(0.05)
    raise AssertionError(f"{path} has no {least} rows of {dataset}")


def test_frames_are_seen_while_they_are_recorded(store, tmp_path):
    port, path = free_port(), tmp_path / "live.h5"
    frames = wire.run_of_frames(3000)
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&block=64KiB"
    with Recording(source, store=store, options=("--sync", "50ms")) as record:
        following = Following(record.scan, path, store)
        wire.send(frames[:1000], port)
        seen = rows(path, "frames", 100)
        wire.send(frames[1000:], port)
        assert rows(path, "frames", 2000) > seen
        record.stop()
    (told,) = following.ends()["streams"]
    assert told["whole"] and told["rows"] == 3000
    with h5py.File(path) as file:
        assert file["frames"][()].tobytes() == b"".join(frames)
        assert (np.diff(file["time"][()]) == 1_000_000).all()
        assert file.attrs["end_reason"] == "sealed" and file.attrs["samples"] == 3000


def test_several_streams_are_followed_into_a_file_each(store, tmp_path):
    path = tmp_path / "live.h5"
    with Panda("--rate", 4e5) as left, Panda("--rate", 2e5) as right:
        options = ("--arm", "--sync", "50ms")
        with Recording(left.endpoint, right.endpoint, store=store, options=options) as record:
            following = Following(record.scan, path, store)
            for name in ("panda1", "panda2"):
                assert rows(tmp_path / f"live_{name}.h5", "COUNTER3.OUT.Value", 100_000)
            record.stop()
    samples = {stream["stream"]: stream["rows"] for stream in following.ends()["streams"]}
    with h5py.File(path) as file:
        for name in ("panda1", "panda2"):
            values = file[name]["COUNTER3.OUT.Value"][()]
            np.testing.assert_array_equal(values, np.arange(samples[name]))
            assert file[name].attrs["verdict"] == "proven"
            assert json.loads(file[name].attrs["settings"])["identity"].startswith("PandA SW: 4.1")
