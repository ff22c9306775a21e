"""`fullbore selftest` on local targets: a directory, a file, and a loop device; and the data that it does not touch.

Faults that can be simulated are tested in `selftest/faulty.rs`; here are those made from outside, for example by a disk
that is a program (`fused.py`). The tests also show that all pass on sound targets, and that nothing is overwritten by
mistake.
"""

import fcntl
import json
import mmap
import os
import re
import shutil
import signal
import statistics
import subprocess
import time
from pathlib import Path

import pytest
from disks import MARKS, Disk, unmount
from fullbore import BINARY, FOUND, PATIENCE, REFUSED, ask, run, text
from test_documents import schema

TITLES = 12
IS_ROOT = os.geteuid() == 0


def passed(*words):
    told = ask("selftest", *words, "--quick")
    schema("selftest").validate(told)
    assert told["passed"] and told["failed"] == 0 and not told["interrupted"]
    # A link is reported on some machines only; everything else is.
    assert {test["number"] for test in told["tests"] if test["outcome"] != "pass"} in (set(), {0, 11})
    assert [test["number"] for test in told["tests"]] == list(range(TITLES))
    return told


@pytest.fixture
def loop_device(tmp_path):
    """Makes loop devices; removes them afterwards."""
    devices = []

    def make(bytes_, content=b""):
        image = tmp_path / f"loop{len(devices)}.img"
        with image.open("wb") as file:
            file.write(content)
            file.truncate(bytes_)
        found = subprocess.run(["losetup", "--show", "-f", image], capture_output=True, text=True)
        if found.returncode:
            pytest.skip(f"no loop device here: {found.stderr.strip()}")
        devices.append(found.stdout.strip())
        return devices[-1], image

    yield make
    for device in devices:
        subprocess.run(["losetup", "-d", device], check=True)


def test_a_directory_passes_all_twelve_and_nothing_is_left_in_it(tmp_path):
    (tmp_path / "mine").write_text("kept")
    told = passed(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]
    assert told["continuous"]["bytes"] == 256 << 20
    assert [peak["chunks"] for peak in told["peaks"]] == [1 << n for n in range(9)]


def test_a_file_in_the_place_of_a_drive_is_written_to_its_last_chunk(tmp_path):
    drive = tmp_path / "drive.img"
    drive.write_bytes(bytes(24 << 20))
    told = passed(drive, "--overwrite", drive)
    assert told["target"]["bytes"] == told["continuous"]["bytes"] == drive.stat().st_size == 24 << 20
    content = drive.read_bytes()
    chunk = 128 << 10
    assert all(any(content[at : at + chunk]) for at in range(0, len(content), chunk))


@pytest.mark.skipif(not IS_ROOT, reason="loop devices need root")
def test_a_block_device_passes_all_twelve(loop_device):
    device, image = loop_device(48 << 20)
    refused = run("selftest", device, "--quick", code=REFUSED)
    assert "a block device" in text(refused.stderr) and "--overwrite" in text(refused.stderr)
    told = passed(device, "--overwrite", device)
    assert told["continuous"]["bytes"] == 48 << 20
    # Read from the file below: the data of the last test is there.
    chunk, content = 128 << 10, image.read_bytes()
    assert all(any(content[at : at + chunk]) for at in range(0, len(content), chunk))


def test_the_log_is_one_for_people(tmp_path):
    done = run("selftest", tmp_path, "--quick", "--tests", "5,8")
    log = text(done.stdout)
    for words in (
        "TEST #05: abort",
        "INFO: aborted: the flush runs by itself",
        "matches expected",
        "TEST #05: PASS",
        "*** Performance Summary",
        "Overall Test Summary: PASS\n0 of 2 tests failed",
    ):
        assert words in done.stdout.decode(), log


@pytest.mark.parametrize("pattern", ["random:9", "prbs23"])
def test_other_patterns_do_as_well(tmp_path, pattern):
    passed(tmp_path, "--pattern", pattern, "--size", "32MiB")


def test_a_file_with_data_is_left_alone_until_its_name_is_typed(tmp_path):
    drive = tmp_path / "drive.img"
    content = os.urandom(1 << 20) * 16
    drive.write_bytes(content)
    refused = run("selftest", drive, "--quick", code=REFUSED)
    assert "--overwrite" in text(refused.stderr)
    other = run("selftest", drive, "--quick", "--overwrite", tmp_path / "other", code=REFUSED)
    assert "--overwrite names" in text(other.stderr)
    assert drive.read_bytes() == content


@pytest.mark.skipif(not IS_ROOT, reason="loop devices need root")
@pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="mkfs.ext4 is not here")
def test_a_device_with_a_file_system_is_left_alone(loop_device, tmp_path):
    device, image = loop_device(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True, capture_output=True)
    subprocess.run(["sync", image], check=True)
    before = image.read_bytes()
    refused = run("selftest", device, "--quick", code=REFUSED)
    assert "file system" in text(refused.stderr) and "--overwrite" in text(refused.stderr)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    subprocess.run(["mount", "-o", "ro", device, mounted], check=True)
    try:
        busy = run("selftest", device, "--quick", "--overwrite", device, code=REFUSED)
        assert "in use" in text(busy.stderr)
    finally:
        unmount(mounted)
    assert image.read_bytes() == before
    passed(device, "--overwrite", device)


def test_what_cannot_be_tested_is_told_plainly(tmp_path):
    small = tmp_path / "small.img"
    small.write_bytes(bytes(1 << 20))
    for words, told in [
        ((tmp_path / "none",), "No such file"),
        ((small, "--overwrite", small), "the tests need"),
        ((tmp_path, "--quick", "--pattern", "counter"), "has no seed"),
        ((tmp_path, "--quick", "--tests", "12"), "there is no test 12"),
        (("/dev/null",), "neither"),
    ]:
        refused = run("selftest", *words, code=REFUSED)
        assert told in text(refused.stderr), words


def test_an_interrupted_run_says_so_and_leaves_nothing(tmp_path):
    process = subprocess.Popen(
        [BINARY, "selftest", tmp_path, "--size", "2GiB"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    told, complaints = process.communicate(timeout=PATIENCE)
    assert b"*" in first and b"INTERRUPTED" in told, told + complaints
    assert process.returncode == REFUSED
    assert list(tmp_path.iterdir()) == []


def test_a_target_that_somebody_else_writes_to_fails_with_what_lies_there(tmp_path):
    drive = tmp_path / "drive.img"
    drive.write_bytes(bytes(24 << 20))
    process = subprocess.Popen(
        [BINARY, "selftest", drive, "--overwrite", drive, "--tests", "10", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    # Bypassing the page cache as well: a cached page would conflict with direct writes.
    with mmap.mmap(-1, 128 << 10) as zeros:
        other = os.open(drive, os.O_WRONLY | os.O_DIRECT)
        while process.poll() is None:
            os.pwrite(other, zeros, 8 << 20)
        os.close(other)
    told = json.loads(process.stdout.read())
    assert process.returncode == FOUND and not told["passed"], told
    schema("selftest").validate(told)
    (test,) = told["tests"]
    assert "from 0x800000 to 0x81ffff: zeros" in test["why"], test


# Each test is made to fail, on a file and on a loop device, by a process that acts between its steps.


class Step:
    """A `fullbore selftest` that continues to its next line only when it is allowed: a pipe that holds a single line.

    The lines report past or coming steps, so an action before each of them is between writing and reading.
    """

    def __init__(self, target, *tests):
        self._read, write = os.pipe2(os.O_DIRECT)
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
        only = ",".join(map(str, tests))
        self.process = subprocess.Popen(
            [BINARY, "selftest", target, "--overwrite", target, "--quick", "--tests", only],
            stdout=write, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(write)

    def _stands_still(self):
        """True if it is blocked in a write to its standard output, or has ended."""
        deadline = time.monotonic() + PATIENCE
        call = f"/proc/{self.process.pid}/syscall"
        while self.process.poll() is None:
            try:
                if Path(call).read_text().startswith("1 0x1 "):
                    return
            except OSError:
                pytest.skip("what a process waits for is not told here")
            assert time.monotonic() < deadline, "it neither writes nor ends"
            time.sleep(0.0005)

    def run(self, act):
        log = b""
        while True:
            self._stands_still()
            act()
            line = os.read(self._read, 1 << 16)
            if not line:
                break
            log += line
        os.close(self._read)
        complaints = self.process.stderr.read()
        assert self.process.wait(PATIENCE) == FOUND, text(log + complaints)
        return text(log)


MEDIA = 24 << 20


def somebody_writes(target):
    """Overwrites chunks of the target: wrong data, stale blocks, writes beyond a range."""
    other = os.open(target, os.O_WRONLY | os.O_DIRECT)
    with mmap.mmap(-1, 1 << 20) as zeros:
        for place in range(0, MEDIA, 1 << 20):
            os.pwrite(other, zeros, place)
    os.close(other)


@pytest.fixture(params=["file", pytest.param("loop", marks=pytest.mark.skipif(not IS_ROOT, reason="needs root"))])
def drive(request, tmp_path):
    """A target, and the file below it."""
    if request.param == "loop":
        return request.getfixturevalue("loop_device")(MEDIA)
    image = tmp_path / "drive.img"
    image.write_bytes(bytes(MEDIA))
    return image, image


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7, 8, 10])
def test_data_that_somebody_else_has_changed_fails_the_test(number, drive):
    target, _ = drive
    log = Step(target, number).run(lambda: somebody_writes(target))
    assert f"TEST #{number:02}: FAIL" in log, log


@pytest.mark.parametrize("tests", [(9,), (0, 11)])
def test_a_target_that_is_larger_than_it_said_fails_the_test(tests, drive):
    target, image = drive
    grown = False

    def grow():
        nonlocal grown
        if not grown:
            os.truncate(image, MEDIA + (8 << 20))
            if target != image:
                subprocess.run(["losetup", "--set-capacity", target], check=True)
            grown = True

    log = Step(target, *tests).run(grow)
    assert f"TEST #{tests[-1]:02}: FAIL" in log, log


@pytest.mark.skipif(any(mark.args[0] for mark in MARKS), reason="needs root and file systems of its own")
@pytest.mark.parametrize("kind", ["file", "loop"])
@pytest.mark.parametrize("number", [0, 1, 5, 10])
def test_a_target_that_dies_fails_the_test(number, kind, tmp_path):
    """Every request fails from the first line on, because the disk below fails."""
    disk = Disk(tmp_path / "sick", "ext4")
    image = disk.member / "drive.img"
    device = None
    try:
        image.write_bytes(bytes(MEDIA))
        os.sync()
        if kind == "loop":
            shown = subprocess.run(["losetup", "--show", "-f", image], check=True, capture_output=True, text=True)
            device = shown.stdout.strip()
        dead = False

        def die():
            nonlocal dead
            if not dead:
                disk.shut_down()
                dead = True

        log = Step(device or image, number).run(die)
        assert f"TEST #{number:02}: FAIL" in log, log
    finally:
        if device:
            subprocess.run(["losetup", "-d", device], check=True)
        disk.away()


@pytest.fixture(params=["file", "loop"])
def fused_disk(request, obedient_disk):
    """A disk with controllable faults: a file, and a loop device over one."""
    return obedient_disk(MEDIA, with_loop=request.param == "loop")


@pytest.fixture
def on_fused(fused_disk):
    """The arguments that test it."""
    target = fused_disk.loop or fused_disk.file
    return ["selftest", target, "--overwrite", target, "--quick", "--json"]


def failing(words):
    told = json.loads(run(*words, code=FOUND).stdout)
    schema("selftest").validate(told)
    return {test["number"]: test["why"] for test in told["tests"] if test["outcome"] == "fail"}


def test_a_flush_that_lies_fails_the_tests_that_read_from_the_medium(fused_disk, on_fused):
    """The disk reports success, the kernel counts its flush, and the written data is lost."""
    assert ask(*on_fused)["passed"]
    fused_disk.tell("lie")
    failed = failing(on_fused)
    assert {3, 8, 10} <= set(failed), failed
    assert all("wrong data" in why for why in failed.values()), failed
    fused_disk.tell("honest")
    assert ask(*on_fused)["passed"]


def test_a_disk_that_gives_half_of_what_is_read_fails_the_tests_that_read(fused_disk):
    reading = [1, 2, 3, 4, 5, 6, 7, 8, 10]
    log = Step(fused_disk.loop or fused_disk.file, *reading).run(lambda: fused_disk.tell("short"))
    assert "9 of 9 tests failed" in log, log
    for number in reading:
        assert f"  #{number:02} " in log, log


def saved_machine(place, target, link):
    """A /sys with the disk of a directory on NVMe, and its link as the kernel reports it; `None`: no link."""
    number = os.stat(target).st_dev
    port = place / "devices/pci0000:00/0000:00:01.0"
    disk = port / "0000:01:00.0/nvme/nvme0/nvme0n1"
    disk.mkdir(parents=True)
    (disk / "device").symlink_to("..")
    (disk.parent / "device").symlink_to("../..")
    for at, name in [("dev/block", f"{os.major(number)}:{os.minor(number)}"), ("class/block", "nvme0n1")]:
        (place / at).mkdir(parents=True)
        (place / at / name).symlink_to(disk)
    if link:
        speed, width = link
        for end in (port, port / "0000:01:00.0"):
            for which, (fast, wide) in {"current": (speed, width), "max": ("16.0 GT/s PCIe", 4)}.items():
                (end / f"{which}_link_speed").write_text(f"{fast}\n")
                (end / f"{which}_link_width").write_text(f"{wide}\n")
    return place


@pytest.mark.parametrize(
    "link, expected, outcome, why",
    [
        (None, None, "unknown", "no link"),
        (None, "gen3x4", "fail", "gen3x4 is expected"),
        (("16.0 GT/s PCIe", 4), None, "pass", None),
        (("8.0 GT/s PCIe", 4), None, "fail", "both ends can 16.0 GT/s PCIe x4"),
        (("8.0 GT/s PCIe", 4), "gen3x4", "pass", None),
        (("8.0 GT/s PCIe", 2), "gen3x4", "fail", "runs at 8.0 GT/s PCIe x2, and gen3x4 is expected"),
        (("5.0 GT/s PCIe", 4), "gen3x4", "fail", "runs at 5.0 GT/s PCIe x4"),
    ],
)
def test_the_link_is_as_expected_or_unknown_and_never_passed_unseen(tmp_path, link, expected, outcome, why):
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["selftest", disk, "--quick", "--tests", "0,11", "--sysfs-root", saved_machine(tmp_path / "sys", disk, link)]
    words += ["--link", expected] if expected else []
    done = run(*words, "--json", code=FOUND if outcome == "fail" else 0)
    told = json.loads(done.stdout)
    schema("selftest").validate(told)
    assert [(test["number"], test["outcome"]) for test in told["tests"]] == [(0, outcome), (11, outcome)], told
    assert all((why or "") in test.get("why", "") for test in told["tests"]), told
    assert told.get("link_expected") == expected
    assert told["unknown"] == (2 if outcome == "unknown" else 0)
    if outcome == "unknown":
        log = run(*words).stdout.decode()
        assert "Overall Test Summary: NO FAILURE, 2 UNKNOWN\n0 of 2 tests failed, 2 unknown" in log, log
        assert "TEST #00: UNKNOWN" in log and "PASS" not in log.replace("PASSED", ""), log


def test_the_whole_target_is_written_and_read_as_often_as_asked_for(tmp_path):
    words = ["selftest", tmp_path, "--size", "24MiB", "--tests", "10", "--passes", "3"]
    told = ask(*words)
    schema("selftest").validate(told)
    whole = told["continuous"]
    assert len(whole["passes"]) == whole["write"]["runs"] == whole["read"]["runs"] == 3
    rates = [whole["bytes"] / each["write_seconds"] for each in whole["passes"]]
    assert whole["write"]["mean"] == pytest.approx(statistics.mean(rates))
    assert whole["write"]["deviation"] == pytest.approx(statistics.stdev(rates))
    log = run(*words).stdout.decode()
    assert re.search(r"Continuous, 3 passes of 25165824 bytes: written at \d+ ± \d+ MiB/s, read at", log), log


def test_what_an_earlier_run_has_left_is_not_taken_for_what_this_one_wrote(fused_disk, on_fused):
    """A drive that no longer writes holds the data of the last run, in the same places."""
    words = [*on_fused, "--tests", "10"]
    run(*words)
    fused_disk.tell("lie")
    (why,) = failing(words).values()
    assert "wrong data" in why, why


@pytest.mark.alone
@pytest.mark.parametrize("rate, kept", [("1MB/s", True), ("400MB/s", False)])
def test_a_disk_slower_than_the_pattern_is_told_plainly(rate, kept, fused_disk):
    fused_disk.tell("delay 0.1")
    source = f"pattern:prbs31?rate={rate}&bytes={1 if kept else 24}MiB"
    told = text(run("record", source, "--to", f"device:{fused_disk.loop or fused_disk.file}?depth=1&block=1MiB").stdout)
    assert ("did not sustain" in told) == (not kept), told
