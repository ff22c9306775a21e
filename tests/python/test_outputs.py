"""Output files at places where no file can be made: refused at once, in plain words, with the place and the remedy."""

import os
import subprocess

import pytest
from disks import unmount
from fullbore import REFUSED, free_port, run, text

PATTERN = "pattern:prbs31?bytes=1MB"


@pytest.fixture
def inputs(store, tmp_path):
    """Something for each command to read."""
    one = ["--store", store, "--session", "test"]
    run("record", PATTERN, *one, "--scan", "one")
    run("record", f"{PATTERN}&name=a", f"{PATTERN}&name=b", *one, "--scan", "two")
    device, dump = tmp_path / "device.img", tmp_path / "dump"
    device.write_bytes(bytes(16 << 20))
    run("record", PATTERN, "--to", f"device:{device}", "--overwrite", device, "--session", "test", "--scan", "one")
    # It is no dump: the place is judged before it is read.
    dump.write_bytes(b"no data of a PandA")
    return {"store": store, "device": device, "dump": dump}


@pytest.fixture
def fixed(tmp_path):
    """A directory on a file system that is mounted read-only."""
    mounted = tmp_path / "fixed"
    mounted.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", mounted], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no tmpfs here: {error}")
    try:
        subprocess.run(["mount", "-o", "remount,ro", mounted], check=True, capture_output=True)
        yield mounted
    finally:
        unmount(mounted)


def commands(inputs, place):
    """A command for each kind of output."""
    store, sender = ["--store", inputs["store"]], f"udp://127.0.0.1:{free_port()}"
    return {
        "hdf5": ["convert", "store:test_one", place, *store],
        "hdf5 replaced": ["convert", "store:test_one", f"hdf5:{place}?existing=overwrite", *store],
        "hdf5 continued": ["convert", "store:test_one", f"hdf5:{place}?existing=append", *store],
        "hdf5 of several streams": ["convert", "store:test_two", place, *store],
        "hdf5 that follows": ["convert", "store:test_one", place, "--follow", *store],
        "hdf5 of a dump": ["convert", f"file:{inputs['dump']}", place],
        "file of a device": ["convert", f"device:{inputs['device']}?scan=test_one", f"file:{place}"],
        "recorded hdf5": ["record", PATTERN, "--to", f"hdf5:{place}"],
        "recorded hdf5 continued": ["record", PATTERN, "--to", f"hdf5:{place}?existing=append"],
        "recorded file": ["record", PATTERN, "--to", f"file:{place}"],
        "recorded file replaced": ["record", PATTERN, "--to", f"file:{place}?existing=overwrite"],
        "truth": ["generate", "--to", sender, "--frames", "1", "--truth", place],
    }


REPLACING = {"hdf5 replaced", "recorded file replaced", "truth"}
CONTINUING = {"hdf5 continued", "recorded hdf5 continued"}


def listing(directory):
    return sorted(str(path) for path in directory.rglob("*"))


def told_by(command):
    """What a command that must be refused says, which are words of this program and not of a library."""
    told = text(run(*command, code=REFUSED).stderr)
    for foreign in ("H5F", "errno", "os error"):
        assert foreign not in told, told
    return told


def assert_refused(inputs, place, *words):
    above = place.parents[1]
    before = listing(above)
    for kind, command in commands(inputs, place).items():
        told = told_by(command)
        assert f"{place}: no file can be made there: " in told, (kind, told)
        for word in words:
            assert word in told, (kind, told)
        assert listing(above) == before, kind


def test_a_directory_that_does_not_exist_is_named_with_the_command_that_makes_it(inputs, tmp_path):
    missing = tmp_path / "no" / "such"
    assert_refused(inputs, missing / "x.h5", f"there is no directory {missing}\n", f"`mkdir -p {missing}`")


def test_a_file_in_the_place_of_a_directory_is_named(inputs, tmp_path):
    file = tmp_path / "file"
    file.touch()
    for place in (file / "x.h5", file / "y" / "x.h5"):
        assert_refused(inputs, place, f"{file} is not a directory\n", "give a place in a directory")


def test_a_directory_in_the_place_of_a_file_is_named(inputs, tmp_path):
    place = tmp_path / "directory.h5"
    place.mkdir()
    assert_refused(inputs, place, "a directory has this name\n", f"give the name of a file in it: {place}/NAME")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_file_system_is_named(inputs, fixed):
    assert_refused(inputs, fixed / "x.h5", "its file system is read-only\n", "give a place on another file system")


def test_a_file_that_exists_is_kept(inputs, tmp_path):
    place = tmp_path / "x.h5"
    place.write_text("of somebody")
    for kind, command in commands(inputs, place).items():
        if kind in REPLACING | CONTINUING:
            continue
        told = told_by(command)
        assert str(place) in told and "give " in told, (kind, told)
        assert any(word in told for word in ("exists", "is there already", "a file has this name")), (kind, told)
        assert place.read_text() == "of somebody", kind
        assert not list(tmp_path.glob("x_*")), kind


def test_a_file_that_is_no_hdf5_file_is_not_continued(inputs, tmp_path):
    place = tmp_path / "x.h5"
    place.write_text("of somebody")
    for kind, command in commands(inputs, place).items():
        if kind in CONTINUING:
            told = told_by(command)
            assert f"{place}: not an HDF5 file\n" in told and "give another name" in told, (kind, told)
            assert place.read_text() == "of somebody", kind
