"""`bench disk`: the sustained rate of a disk, measured with the recorder's code; no files are left on it.

Disks are loop devices with separate file systems, and stalls are made by freezing them: their duration is known, and so
is the ring that a recording needs.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest
from disks import unmount
from fullbore import BINARY, FOUND, GOOD, PATIENCE, REFUSED, REPOSITORY, ask, run, text
from test_documents import schema
from throttled import braked, run_over_a_cliff

MIB = 1 << 20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="loop devices need root")


def command(path, *options, bytes="96MiB"):
    size = ["--bytes", bytes] if bytes else []
    short = ["--quick", "--run-time", "60ms", "--no-history", "--reserve", "1MiB"]
    return ["bench", "disk", path, *short, *size, *options]


def bench(path, *options, code=GOOD, **more):
    """Runs one benchmark; its result follows the schema, and no files are left."""
    result = ask(*command(path, *options, **more), code=code)
    schema("bench").validate(result)
    return result


@contextmanager
def mounted(tmp_path, kind, size=512 * MIB, loop=None):
    """A file system on a loop device that bypasses the page cache: its own, or the one given."""
    if shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"mkfs.{kind} is not here")
    image, place = tmp_path / f"{kind}.img", tmp_path / kind
    place.mkdir()
    force = "-F" if kind == "ext4" else "-f"
    call = lambda *words: subprocess.run(list(map(str, words)), check=True, capture_output=True)
    own = loop is None
    try:
        if own:
            with image.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
        call(f"mkfs.{kind}", "-q", force, image if own else loop)
        loop = loop or call("losetup", "--direct-io=on", "--show", "-f", image).stdout.decode().strip()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop device here: {text(error.stderr)}")
    try:
        call("mount", loop, place)
        try:
            yield place
        finally:
            unmount(place)
    finally:
        if own:
            call("losetup", "-d", loop)
            image.unlink()


def kind_of_disk():
    """The best file system that can be made here."""
    return next((kind for kind in ("xfs", "ext4", "btrfs") if shutil.which(f"mkfs.{kind}")), "xfs")


def notes(result):
    return [note["text"] for note in result.get("notes", [])]


def is_as_it_was(place):
    return {entry.name for entry in place.iterdir()} <= {"lost+found"}


@pytest.fixture
def memory():
    """A directory in memory."""
    place = os.path.join("/dev/shm", f"fullbore-test-{os.getpid()}")
    os.mkdir(place)
    yield place
    assert os.listdir(place) == []
    os.rmdir(place)


def test_memory_is_measured_like_a_disk_and_told_to_be_none(memory):
    result = bench(memory)
    assert result["targets"][0]["file_system"] == "tmpfs"
    assert not result["targets"][0]["direct"]
    assert any("page cache all the same" in note for note in notes(result)), notes(result)
    long = result["continuous"]
    assert long["verification"] == {"compared_bytes": 96 * MIB, "wrong_blocks": 0}
    assert long["write"]["bytes"] == long["read"]["bytes"] == 96 * MIB


@needs_root
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_disk_is_measured_in_every_way_and_left_as_it_was(kind, tmp_path):
    with mounted(tmp_path, kind) as place:
        result = bench(place, "--blocks", "4096,5000,1MiB", "--runs", "2", "--spec", "1GB/s", "--tbw", "600")
        assert is_as_it_was(place)
    target = result["targets"][0]
    assert (target["file_system"], target["direct"]) == (kind, True)
    assert target["device"].startswith("loop")
    seen = {(point["direction"], point["mode"]) for point in result["sweep"]}
    assert {("write", "direct"), ("read", "direct"), ("write", "buffered"), ("read", "buffered")} <= seen
    assert all(point["rate"]["runs"] == 2 and point["rate"]["mean"] > 0 for point in result["sweep"])
    odd = next(p for p in result["sweep"] if p["block_bytes"] == 5000 and p["direction"] == "write")
    aligned = next(p for p in result["sweep"] if p["block_bytes"] == 4096 and p["direction"] == "write")
    assert odd["read_modify_write"]["by"] == "program"
    assert odd["read_modify_write"]["extra_read_bytes"] > 0
    long = result["continuous"]
    assert long["verification"]["wrong_blocks"] == 0
    assert sum(b["bytes"] for b in long["write"]["over_position"]) == long["write"]["bytes"]
    assert sum(b["writes"] for b in long["stalls"]["histogram"]) == long["stalls"]["writes"]
    rings = [row["ring"] for row in long["ring_for_rate"]]
    assert rings == sorted(rings), "more rate never needs less"
    assert result["spec"]["continuous_ratio"] == pytest.approx(long["write"]["rate"] / 1e9)
    fastest = max(p["rate"]["mean"] for p in result["sweep"] if p["direction"] == "write")
    assert result["spec"]["peak_ratio"] == pytest.approx(fastest / 1e9)
    best = long["recommended"]
    assert best["rate"] <= best["sustained"] <= long["write"]["rate"], "with the last sync, no more was written"
    life = result["endurance"]
    assert life["rate"] == best["rate"]
    assert life["tb_per_day"] == pytest.approx(best["rate"] * 86400 / 1e12)
    assert life["tbw"] == 600 and life["days"] == pytest.approx(600 / life["tb_per_day"])
    assert life["drive_writes_per_day"] == pytest.approx(life["tb_per_day"] / (target["capacity"] / 1e12))
    ratio = odd["read_modify_write"]["ratio_to_aligned"]
    assert ratio == pytest.approx(odd["rate"]["mean"] / aligned["rate"]["mean"])


@needs_root
def test_a_rate_that_is_not_held_is_an_exit_code(tmp_path):
    with mounted(tmp_path, "xfs") as place:
        few = ["--skip", "peak,read,fio"]
        held = bench(place, *few, "--require", "1MB/s")
        assert held["verdict"]["holds"] and held["verdict"]["margin"] > 0
        missed = bench(place, *few, "--require", "900GB/s", code=FOUND)
        assert not missed["verdict"]["holds"]
        assert missed["verdict"]["sentence"].startswith("900 GB/s is not held")
        told = text(run(*command(place, *few, "--require", "900GB/s"), code=FOUND).stdout)
        assert "DOES NOT HOLD" in told
        in_bits = bench(place, *few, "--require", "8Mbit/s")["verdict"]
        assert in_bits["in_bits"] and in_bits["sentence"].startswith("8.00 Mbit/s is held")


@pytest.mark.alone
@needs_root
@pytest.mark.parametrize("brake, unit", [("group", 1_000_000), ("program", 400_000)])
def test_a_disk_that_falls_off_a_cliff_is_judged_by_the_rate_it_settles_at(brake, unit, tmp_path):
    """100 units a second for 450 units, 25 from there on. Neither the mean nor the first rate counts."""
    words = ["--skip", "peak,read,fio", "--block", "1MiB", "--depth-bytes", "4MiB", "--seconds", "14s", "--json"]
    page = tmp_path / "page.html"
    with braked(brake, tmp_path, mounted, kind_of_disk(), 900 * MIB) as (place, brake):
        words = command(place, *words, "--require", f"{40 * unit}B/s", "--html", page, bytes=f"{700 * unit}B")
        done = run_over_a_cliff(words, place, brake, 100 * unit, 25 * unit, 450 * unit)
    result = json.loads(done.stdout)
    schema("bench").validate(result)
    long = result["continuous"]
    (cliff,) = long["cliffs"]
    assert cliff["before"] > 1.5 * cliff["after"]
    assert long["write"]["rate"] > 40 * unit, "the mean alone would hold it"
    assert not result["verdict"]["holds"] and done.returncode == FOUND, result["verdict"]
    assert long["settled"]["rate"] == pytest.approx(25 * unit, rel=0.3)
    best = long["recommended"]
    assert best["rate"] <= best["sustained"] <= long["settled"]["rate"] * 1.01
    assert all(row["rate"] <= long["settled"]["rate"] * 1.01 for row in long["rate_for_ring"])
    assert "after the cliff" in result["verdict"]["sentence"]
    assert "after the last cliff" in page.read_text()


def test_a_capacity_that_was_not_written_is_told(memory):
    words = ["--skip", "peak,read,fio", "--require", "1MB/s"]
    short = bench(memory, *words, "--capacity", "10TB")
    assert any("a recording of 10.0 TB was asked for" in note for note in notes(short)), notes(short)
    assert not any("was asked for" in note for note in notes(bench(memory, *words, "--capacity", "90MB")))


@needs_root
def test_several_members_share_the_stream(tmp_path):
    with mounted(tmp_path, "xfs") as one, mounted(tmp_path, "ext4") as other:
        words = command(one, "--skip", "fio", "--chunk", "8MiB", "--sessions", "64", bytes="200MiB")
        result = ask(*words[:3], other, *words[3:])
        schema("bench").validate(result)
        assert is_as_it_was(one) and is_as_it_was(other)
    shares = result["continuous"]["members"]
    assert len(shares) == 2 and all(share["bytes"] > 0 for share in shares)
    assert sum(share["bytes"] for share in shares) == 200 * MIB
    assert result["continuous"]["verification"]["wrong_blocks"] == 0


@needs_root
def test_directories_of_one_disk_count_its_room_once_and_keep_the_reserve(tmp_path):
    reserve = 60 * MIB
    with mounted(tmp_path, "ext4", 400 * MIB) as place:
        names = [place / "a", place / "b"]
        for name in names:
            name.mkdir()
        free = lambda: os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
        before, least = free(), []
        words = ["--full", "--skip", "peak,read,fio", "--chunk", "8MiB", "--dwpd", "1"]
        words = command(names[0], *words, "--rate", "200MB/s", "--ring", "128MiB", "--json", bytes=None)
        words = [*words[:3], names[1], *words[3:]]
        words[words.index("--reserve") + 1] = f"{reserve}B"
        with subprocess.Popen([BINARY, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while process.poll() is None:
                least.append(free())
                time.sleep(0.002)
            out, complaints = process.communicate(timeout=PATIENCE)
        assert process.returncode in (GOOD, FOUND), text(complaints)
        result = json.loads(out)
        schema("bench").validate(result)
        twice = run("bench", "disk", names[0], place / "b/../a", "--quick", "--no-history", code=REFUSED)
        for name in names:
            name.rmdir()
    assert min(least) >= reserve, "what was to stay free did"
    came = result["continuous"]["write"]["bytes"] + result["continuous"]["overrun_bytes"]
    assert (before - reserve) * 0.6 < came < before - reserve
    first, second = result["targets"]
    assert "shares_with" not in first and second["shares_with"] == first["path"]
    assert any("share a file system" in note for note in notes(result)), notes(result)
    # One drive write a day for five years, of the single drive.
    capacity = first["capacity"] / 1e12
    assert result["endurance"]["tbw"] == pytest.approx(capacity * 365 * 5)
    assert "are one directory" in text(twice.stderr)


@needs_root
def test_full_is_all_but_the_reserve(tmp_path):
    with mounted(tmp_path, "xfs", 400 * MIB) as place:
        free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
        words = ["--full", "--skip", "peak,fio", "--chunk", "8MiB", "--reserve", "50MiB"]
        result = bench(place, *words, bytes=None)
        assert os.statvfs(place).f_bavail * os.statvfs(place).f_frsize >= free - 4 * MIB
    written = result["continuous"]["write"]["bytes"]
    assert free - 50 * MIB - 24 * MIB < written <= free - 50 * MIB
    assert result["continuous"]["verification"]["compared_bytes"] == written


def test_a_file_is_overwritten_only_if_its_name_is_typed_again(tmp_path):
    path = tmp_path / "disk.img"
    path.write_bytes(b"mine" * (4 * MIB))
    refused = run(*command(path), code=REFUSED)
    assert "--overwrite" in text(refused.stderr)
    assert path.read_bytes() == b"mine" * (4 * MIB)
    words = ["--overwrite", path, "--full", "--skip", "fio", "--reserve", "0", "--block", "1MiB", "--depth-bytes", "4MiB"]
    result = bench(path, *words, bytes=None)
    assert result["targets"][0]["kind"] == "file"
    assert result["continuous"]["write"]["bytes"] == 16 * MIB
    assert result["continuous"]["verification"] == {"compared_bytes": 16 * MIB, "wrong_blocks": 0}
    assert b"mine" not in path.read_bytes()[: MIB]


@needs_root
def test_a_block_device_is_written_wholly_and_only_if_its_name_is_typed_again(tmp_path):
    image = tmp_path / "drive.img"
    image.write_bytes(bytes(48 * MIB))
    device = subprocess.run(["losetup", "--show", "-f", image], check=True, capture_output=True, text=True).stdout.strip()
    words = ["--full", "--skip", "peak,fio", "--reserve", "0", "--block", "1MiB", "--depth-bytes", "4MiB"]
    try:
        assert "--overwrite" in text(run(*command(device, *words), code=REFUSED).stderr)
        subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True, capture_output=True)
        assert "file system" in text(run(*command(device, *words), code=REFUSED).stderr)
        words += ["--overwrite", device]
        place = tmp_path / "mounted"
        place.mkdir()
        subprocess.run(["mount", "-o", "ro", device, place], check=True)
        try:
            assert "in use" in text(run(*command(device, *words), code=REFUSED).stderr)
        finally:
            unmount(place)
        result = bench(device, *words, bytes=None)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)
    (target,) = result["targets"]
    assert target["kind"] == "block-device" and target["capacity"] == 48 * MIB
    assert result["continuous"]["write"]["bytes"] == 48 * MIB
    assert result["continuous"]["verification"] == {"compared_bytes": 48 * MIB, "wrong_blocks": 0}
    content = image.read_bytes()
    assert all(any(content[at : at + MIB]) for at in range(0, len(content), MIB))


@needs_root
def test_a_disk_without_room_or_right_gets_a_plain_word(tmp_path):
    with mounted(tmp_path, "ext4", 64 * MIB) as place:
        words = ["bench", "disk", place, "--quick", "--no-history"]
        small = text(run(*words, "--reserve", "60MiB", code=REFUSED).stderr)
        assert "can be written there" in small and "--reserve" in small
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        read_only = text(run(*words, code=REFUSED).stderr)
        assert "read-only" in read_only.lower(), read_only
    missing = text(run("bench", "disk", tmp_path / "none", code=REFUSED).stderr)
    assert "No such file" in missing
    assert "Traceback" not in missing and "panicked" not in missing


@needs_root
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_benchmark_that_is_interrupted_leaves_nothing(sign, tmp_path):
    with mounted(tmp_path, "ext4") as place:
        free = lambda: os.statvfs(place).f_bfree * os.statvfs(place).f_frsize
        before = free()
        words = command(place, "--rate", "20MB/s", "--ring", "128MiB", "--skip", "peak,fio", "--json", bytes="300MiB")
        process = subprocess.Popen([BINARY, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + PATIENCE
        while free() > before - 20 * MIB:
            assert time.monotonic() < deadline and process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        process.send_signal(sign)
        out, _ = process.communicate(timeout=PATIENCE)
        for _ in range(100):
            if free() > before - MIB:
                break
            time.sleep(0.1)
        assert free() > before - MIB
        assert is_as_it_was(place)
    if sign != signal.SIGKILL:
        result = json.loads(out)
        assert result["interrupted"] and 0 < result["continuous"]["write"]["bytes"] < 300 * MIB


def test_results_are_kept_and_written_where_they_are_wanted(memory, tmp_path):
    env = os.environ | {"XDG_DATA_HOME": str(tmp_path / "data")}
    words = [word for word in command(memory, "--skip", "peak,fio") if word != "--no-history"]
    run(*words, "--output", tmp_path / "result.json", env=env)
    (kept,) = (tmp_path / "data/fullbore/bench").iterdir()
    written = json.loads((tmp_path / "result.json").read_text())
    assert json.loads(kept.read_text()) == written
    assert written["id"].replace("-", "") in kept.name
    schema("bench").validate(written)


@pytest.mark.parametrize("option", ["--output", "--html"])
def test_where_a_result_cannot_be_written_nothing_is_measured(option, memory, tmp_path):
    result = tmp_path / "none/result"
    for words in (command(memory, "--skip", "fio"), ["bench", "memory"], ["bench", "ring"], ["bench", "all", memory]):
        refused = run(*words, option, result, code=REFUSED)
        assert "result" in text(refused.stderr) and "directory" in text(refused.stderr)
        assert refused.stdout == b""
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_cannot_be_written_in_the_end_is_told_nevertheless(memory, tmp_path):
    """The destination is removed during the measurement."""
    place = tmp_path / "results"
    place.mkdir()
    words = command(memory, "--skip", "peak,read,fio", "--rate", "20MB/s", "--ring", "64MiB", "--output", place / "result.json", bytes="60MiB")
    with subprocess.Popen([BINARY, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        # The destination was checked before the first byte was written.
        descriptors = f"/proc/{process.pid}/fd"
        deadline = time.monotonic() + PATIENCE
        while not any("fullbore-test" in link(entry.path) for entry in os.scandir(descriptors)):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)
        place.rmdir()
        out, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == REFUSED
    assert "result.json" in text(complaints)
    assert "sustained" in text(out) and "recommended" in text(out)


def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


@pytest.mark.parametrize(("option", "years"), [("--warranty", 3), (None, 5)])
def test_drive_writes_per_day_and_years_are_reckoned_into_terabytes(option, years, memory):
    words = ["--skip", "peak,read,fio", "--require", "1MB/s", "--dwpd", "0.8"]
    words += [option, str(years)] if option else []
    result = bench(memory, *words, bytes="16MiB")
    life, capacity = result["endurance"], result["targets"][0]["capacity"] / 1e12
    assert life["rate"] == 1_000_000 and life["tb_per_day"] == pytest.approx(0.0864)
    assert life["tbw"] == pytest.approx(0.8 * capacity * 365 * years)
    assert life["days"] == pytest.approx(life["tbw"] / 0.0864)
    assert life["drive_writes_per_day"] == pytest.approx(0.0864 / capacity)
    refused = run(*command(memory, "--dwpd", "1", "--tbw", "600"), code=REFUSED)
    assert "--tbw" in text(refused.stderr)


RWF_DONTCACHE = 0x80


def takes_uncached(place):
    """True if the kernel accepts the flag there, tested without fullbore."""
    path = os.path.join(place, "asked")
    try:
        with open(path, "w+b") as file:
            file.write(bytes(4096))
            file.flush()
            try:
                os.preadv(file.fileno(), [bytearray(512)], 0, RWF_DONTCACHE)
                return True
            except OSError:
                return False
    finally:
        os.unlink(path)


def measured_uncached(place):
    """Measures the supported modes, and is told of the unsupported ones."""
    is_there = takes_uncached(place)
    words = ["--skip", "continuous,fio", "--modes", "uncached,buffered", "--blocks", "1MiB", "--depths", "4"]
    result = bench(place, *words, "--sessions", "8", bytes=None)
    seen = {(p["mode"], p["direction"]) for p in result["sweep"] if "mode" in p["curves"]}
    uncached = {("uncached", "write"), ("uncached", "read")}
    assert seen == {("buffered", "write"), ("buffered", "read")} | (uncached if is_there else set())
    assert any("RWF_DONTCACHE" in note for note in notes(result)) == (not is_there), notes(result)
    return is_there


def test_a_kernel_or_file_system_without_uncached_writing_is_told(memory):
    assert not measured_uncached(memory), "memory is a page cache and nothing else"


@needs_root
def test_uncached_writing_is_a_mode_where_the_kernel_has_it(tmp_path):
    with mounted(tmp_path, "xfs") as place:
        if not measured_uncached(place):
            pytest.skip("this kernel has no RWF_DONTCACHE, and bench disk said so")


def linux():
    return tuple(int(part) for part in os.uname().release.split(".")[:2])


@needs_root
def test_direct_writing_that_btrfs_puts_into_the_page_cache_all_the_same_is_told(tmp_path):
    """Copy-on-write is switched off for the benchmark's files, which is impossible in a directory with compression."""
    words = ["--skip", "peak,read,fio"]
    with mounted(tmp_path, "btrfs") as place:
        plain, squeezed = place / "plain", place / "squeezed"
        plain.mkdir()
        squeezed.mkdir()
        subprocess.run(["chattr", "+c", squeezed], check=True)
        direct = bench(plain, *words, bytes="32MiB")
        cached = bench(squeezed, *words, bytes="32MiB")
    said = lambda result: any("page cache all the same" in note and "chattr +C" in note for note in notes(result))
    assert direct["targets"][0]["file_system"] == cached["targets"][0]["file_system"] == "btrfs"
    assert direct["targets"][0]["direct"] and not said(direct)
    if linux() < (6, 15):
        pytest.skip("before Linux 6.15 btrfs wrote past the page cache with checksums too")
    assert not cached["targets"][0]["direct"] and said(cached)


@contextmanager
def loops(tmp_path, count, size=256 * MIB):
    """Loop devices that bypass the page cache."""
    call = lambda *words: subprocess.run(list(map(str, words)), check=True, capture_output=True)
    made = []
    try:
        for number in range(count):
            image = tmp_path / f"disk{number}.img"
            with image.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
            try:
                loop = call("losetup", "--direct-io=on", "--show", "-f", image)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no loop device here: {text(error.stderr)}")
            made.append(loop.stdout.decode().strip())
        yield made
    finally:
        for loop in made:
            call("losetup", "-d", loop)


def measured_as_a_target(path, *options):
    result = bench(path, "--skip", "fio", "--blocks", "1MiB", "--sessions", "64", *options, bytes="64MiB")
    assert result["continuous"]["verification"] == {"compared_bytes": 64 * MIB, "wrong_blocks": 0}
    assert {p["direction"] for p in result["sweep"]} == {"write", "read"}
    return result


@needs_root
@pytest.mark.skipif(not os.path.exists("/proc/mdstat"), reason="this kernel has no md: no RAID to be had")
@pytest.mark.skipif(shutil.which("mdadm") is None, reason="mdadm is not here")
@pytest.mark.parametrize("level", ["0", "1"])
def test_a_raid_of_the_kernel_is_a_target_like_any_other(level, tmp_path):
    with loops(tmp_path, 2) as disks:
        array = f"/dev/md/fullbore-{os.getpid()}"
        words = ["mdadm", "--create", array, "--run", "--metadata=1.2", f"--level={level}", "--raid-devices=2", *disks]
        subprocess.run(words, check=True, capture_output=True, input=b"y\n")
        try:
            result = measured_as_a_target(array, "--overwrite", array)
        finally:
            subprocess.run(["mdadm", "--stop", array], check=True, capture_output=True)
    (target,) = result["targets"]
    assert target["kind"] == "block-device" and target["device"].startswith("md")


@needs_root
@pytest.mark.skipif(shutil.which("mkfs.btrfs") is None, reason="mkfs.btrfs is not here")
def test_a_raid_of_a_file_system_is_a_target_and_its_subvolumes_share_its_room(tmp_path):
    with loops(tmp_path, 2) as disks:
        subprocess.run(["mkfs.btrfs", "-q", "-f", "-d", "raid0", "-m", "raid1", *disks], check=True)
        place = tmp_path / "raid"
        place.mkdir()
        devices = ",".join(f"device={disk}" for disk in disks)
        subprocess.run(["mount", "-o", devices, disks[0], place], check=True)
        try:
            for name in ("one", "other"):
                subprocess.run(["btrfs", "subvolume", "create", place / name], check=True, capture_output=True)
            result = measured_as_a_target(place / "one")
            words = command(place / "one", "--skip", "peak,read,fio", bytes="32MiB")
            both = ask(*words[:3], place / "other", *words[3:])
        finally:
            unmount(place)
    assert result["targets"][0]["file_system"] == "btrfs"
    assert result["targets"][0]["capacity"] >= 400 * MIB, "that of both disks"
    assert both["targets"][1]["shares_with"] == both["targets"][0]["path"]


def test_fio_left_out_is_still_told_as_the_command_that_does_the_same_job(tmp_path):
    few = ["--skip", "fio,peak,read", "--chunk", "8MiB"]
    result = bench(tmp_path, *few)
    assert "comparisons" not in result and len(result["commands"]) == 4
    assert not any(command["ran"] for command in result["commands"])
    told = text(run(*command(tmp_path, *few)).stdout)
    for one in result["commands"]:
        assert one["command"].startswith("fio --name=") and str(tmp_path) in one["command"]
        assert one["command"] in told


@needs_root
def test_a_file_with_holes_that_there_is_no_room_for_is_refused(tmp_path):
    with mounted(tmp_path, "ext4", 64 * MIB) as place:
        path = place / "sparse"
        path.touch()
        os.truncate(path, 1 << 30)
        for verb in (["bench", "disk"], ["selftest"]):
            refused = text(run(*verb, path, "--overwrite", path, code=REFUSED).stderr)
            assert "1.07 GB of its 1.07 GB are holes" in refused and "fallocate" in refused
        assert path.stat().st_blocks == 0, "nothing was written"


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not here")
def test_fio_does_the_same_job_in_turn(tmp_path):
    result = bench(tmp_path, "--skip", "peak,continuous", bytes=None)
    small = [c for c in result["comparisons"] if not c["huge_pages"]]
    assert {c["direction"] for c in small} == {"write", "read"}
    for comparison in small:
        assert comparison["program"].startswith("fio 3"), comparison
        assert comparison["ratio"] == pytest.approx(comparison["ours"] / comparison["rate"])
    assert all(c["command"].startswith("fio --name=") for c in result["comparisons"])
    assert any(c["ran"] for c in result["commands"])
    assert list(tmp_path.iterdir()) == []


def freeze(place, after, lasts):
    """Freezes a file system after a while, and returns the real duration."""
    lasted = []

    def work():
        time.sleep(after)
        subprocess.run(["fsfreeze", "-f", place], check=True)
        begun = time.monotonic()
        try:
            time.sleep(lasts)
        finally:
            subprocess.run(["fsfreeze", "-u", place], check=True)
        lasted.append(time.monotonic() - begun)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, lasted


@pytest.mark.alone
@needs_root
def test_the_ring_that_a_stall_asks_for_loses_nothing_and_a_fifth_less_does(tmp_path):
    rate, stall = 60_000_000, 0.8
    # Concurrent writes are no part of the ring that a rate below the disk's own needs.
    few = ["--skip", "peak,read,fio", "--block", "1MiB", "--depth-bytes", "16MiB", "--chunk", "512MiB"]
    with mounted(tmp_path, "xfs", 2048 * MIB) as place:
        # First at full speed: the trace shows the ring that any rate would have needed.
        thread, lasted = freeze(place, 1.2, stall)
        at_rate = ["--require", f"{rate}B/s", "--ring", "256MiB", "--seconds", "4s"]
        result = bench(place, *few, *at_rate, "--rate", "200MB/s", bytes=None)
        thread.join()
        long = result["continuous"]
        assert long["stalls"]["longest_silence_ms"] == pytest.approx(lasted[0] * 1000, abs=150)
        row = next(row for row in long["ring_for_rate"] if row["rate"] == rate)
        expected = rate * long["stalls"]["longest_silence_ms"] / 1000
        predicted = row["ring"]
        assert predicted - 3 * MIB == pytest.approx(expected, rel=0.1)

        def lost(ring, lasts):
            thread, _ = freeze(place, 1.2, lasts)
            paced = ["--rate", f"{rate}B/s", "--ring", f"{ring}B", "--seconds", "4s"]
            result = bench(place, *few, *paced, bytes=None)
            thread.join()
            return result["continuous"]["overrun_bytes"]

        blocks = -(-predicted // MIB) * MIB
        assert lost(blocks, stall * 0.9) == 0
        assert lost(predicted * 8 // 10, stall) > 0


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not here")
@pytest.mark.parametrize(
    ("directory", "name"),
    [("plain", "x:y"), ("a:b", "x:y"), ("plain", "x "), ("it's \"one\"", "x\\y'$HOME"), ("plain", "x\ty")],
)
def test_fio_writes_to_the_file_that_was_named_and_to_no_other(directory, name, tmp_path):
    place = tmp_path / directory
    place.mkdir()
    names = ["x", "y", name]
    for one in names:
        (place / one).write_bytes(one.encode() * (32 * MIB // len(one)))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    target = place / name
    done = run(
        "bench", "disk", name, "--overwrite", name, "--skip", "peak,continuous",
        "--runs", "1", "--quick", "--no-history", "--json", cwd=place,
    )  # fmt: skip
    result = json.loads(done.stdout.splitlines()[-1])
    assert any(it.get("rate") for it in result["comparisons"]), result["comparisons"]
    for path in before:
        assert (path.read_bytes() == before[path]) == (path != target), path
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(before), "no other is made"
    # The printed command does the same in a shell.
    told = next(it["command"] for it in result["comparisons"] if it["direction"] == "write" and not it["huge_pages"])
    done = subprocess.run(told, shell=True, capture_output=True, cwd=tmp_path)
    assert done.returncode == 0, (told, text(done.stderr))
    for path in before:
        assert path == target or path.read_bytes() == before[path], (told, path)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == set(before), "no other is made"


def test_a_file_that_is_recorded_onto_is_neither_measured_nor_tested(tmp_path):
    drive = tmp_path / "drive.img"
    drive.write_bytes(bytes(64 * MIB))
    to = f"device:{drive}?scan=r1_a"
    recording = subprocess.Popen(
        [BINARY, "record", "pattern:prbs31?rate=1MB/s", "--to", to, "--json"], stdout=subprocess.PIPE
    )
    try:
        assert any(json.loads(line)["event"] == "armed" for line in recording.stdout)
        for words in (["bench", "disk"], ["selftest"]):
            done = run(*words, drive, "--overwrite", drive, "--quick", code=REFUSED)
            assert "somebody uses it" in text(done.stderr), words
    finally:
        recording.send_signal(signal.SIGINT)
        recording.communicate(timeout=PATIENCE)
    assert recording.returncode == GOOD
    run("verify", to, code=GOOD)


def open_files(pid):
    """The open files of a process, except those that it closes meanwhile."""
    for descriptor in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(descriptor)


@pytest.mark.parametrize("required", [["--require", "1MB/s"], []])
def test_what_is_interrupted_has_no_verdict_and_its_own_exit_code(required, tmp_path):
    words = ["bench", "disk", tmp_path, "--skip", "peak,fio", "--rate", "20MB/s", "--bytes", "1TB", "--no-history"]
    words += ["--reserve", "1MiB", *required, "--output", tmp_path / "result.json"]
    process = subprocess.Popen([BINARY, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # It has begun when its unnamed file exists.
    deadline = time.monotonic() + PATIENCE
    while not any(str(tmp_path) in link for link in open_files(process.pid)):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    told, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == REFUSED, text(told + complaints)
    assert "interrupted" in text(complaints)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["interrupted"] and result.get("verdict") is None


def test_a_low_rate_keeps_to_the_time_or_is_refused(tmp_path):
    words = ["--skip", "peak,fio", "--seconds", "2", "--block", "64KiB", "--depth-bytes", "64KiB"]
    refused = run(*command(tmp_path, *words, "--rate", "10kB/s", bytes=None), code=REFUSED)
    assert "10.0 kB/s" in text(refused.stderr) and "--seconds" in text(refused.stderr)
    few = bench(tmp_path, *words, "--rate", "100kB/s", bytes=None)
    assert 0 < few["continuous"]["write"]["bytes"] <= 4 << 16
    assert any("are due in this run" in note for note in notes(few))
    told = text(run(*command(tmp_path, *words, "--rate", "100kB/s", bytes=None)).stdout)
    assert "kB/s" in told and " 0 MB/s" not in told, told


@pytest.mark.parametrize("words", ["--tbw nan", "--tbw inf", "--tbw 0", "--dwpd 0", "--dwpd nan", "--warranty 0"])
def test_warranties_that_are_no_numbers_are_refused(words, tmp_path):
    refused = run(*command(tmp_path, *words.split()), code=REFUSED)
    assert f"{words.split()[0]} is a number above 0" in text(refused.stderr)


@needs_root
def test_a_device_that_ends_within_a_page_is_written_to_its_last_sector(tmp_path):
    image, size = tmp_path / "odd.img", 24 * MIB + 3 * 512
    image.write_bytes(b"\xa5" * size)
    done = subprocess.run(["losetup", "--show", "-f", image], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no loop device here: {done.stderr}")
    loop = done.stdout.strip()
    try:
        result = ask("bench", "disk", loop, "--overwrite", loop, "--skip", "peak,fio", "--full", "--no-history")
    finally:
        subprocess.run(["losetup", "-d", loop], check=True)
    long = result["continuous"]
    assert long["write"]["bytes"] == size
    assert long["verification"] == {"compared_bytes": size, "wrong_blocks": 0}
    assert b"\xa5" * 512 not in image.read_bytes()[-4096:]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--skip peak,continuous,fio", "--skip leaves nothing"),
        ("--rate 0", "--rate is a rate above 0"),
        ("--require 0", "--require is a rate above 0"),
        ("--spec 0", "--spec is a rate above 0"),
        ("--ring 1MiB --block 1MiB --depth-bytes 1MiB", "3 blocks"),
    ],
)
def test_what_would_measure_nothing_is_refused(words, told, tmp_path):
    refused = run("bench", "disk", tmp_path, *words.split(), "--json", code=REFUSED)
    assert told in text(refused.stderr) and refused.stdout == b""


@needs_root
def test_a_disk_that_is_nearly_full_is_not_said_to_have_been_filled_by_somebody_else(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=9M", "none", place], check=True)
    try:
        words = ["bench", "disk", place, "--quick", "--no-history", "--reserve", "0", "--skip", "fio,continuous"]
        result = ask(*words)
        assert any("left out" in note for note in notes(result))
        assert all(point["session_bytes"] + point["block_bytes"] <= 9 * MIB for point in result["sweep"])
        refused = text(run("bench", "all", place, "--no-history", code=REFUSED).stderr)
        assert "can be written there" in refused and "are needed" in refused
    finally:
        unmount(place)


def test_what_was_ended_before_anything_was_measured_is_not_kept(tmp_path):
    env = os.environ | {"XDG_DATA_HOME": str(tmp_path / "data")}
    command = [BINARY, "bench", "disk", tmp_path, "--quick", "--skip", "peak,fio", "--reserve", "1MiB"]
    # A rate at which the first block is due after half an hour.
    command += ["--rate", "40B/s", "--block", "64KiB", "--depth-bytes", "64KiB", "--seconds", "2h"]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    deadline = time.monotonic() + PATIENCE
    while not any("io_uring" in link for link in open_files(process.pid)):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == REFUSED and "nothing was measured" in text(complaints)
    assert list(tmp_path.rglob("*.json")) == []


def sets_in(tmp_path, *words, code=GOOD):
    sets = {"A": [tmp_path / "a0", tmp_path / "a1"], "B": [tmp_path / "b"]}
    for directory in sum(sets.values(), []):
        directory.mkdir(exist_ok=True)
    typed = [f"--set={name}={','.join(map(str, places))}" for name, places in sets.items()]
    short = ["--quick", "--run-time", "60ms", "--no-history", "--reserve", "1MiB", "--bytes", "32MiB", "--skip", "fio"]
    return ["bench", "disk", *typed, *short, *words], sets


def test_several_disk_sets_are_measured_in_one_result_and_each_is_judged(tmp_path):
    words, sets = sets_in(tmp_path, "--require", "1MB/s", "--output", tmp_path / "all.json", "--html", tmp_path / "all.html")
    told = ask(*words)
    schema("bench-sets").validate(told)
    assert told == json.loads((tmp_path / "all.json").read_text())
    assert told["passed"] and [each["name"] for each in told["sets"]] == ["A", "B"]
    for each, places in zip(told["sets"], sets.values(), strict=True):
        schema("bench").validate(each["result"])
        assert [target["path"] for target in each["result"]["targets"]] == [str(place) for place in places]
        assert each["result"]["verdict"]["holds"]
    assert all(not any(place.iterdir()) for place in sum(sets.values(), []))
    page = (tmp_path / "all.html").read_text()
    for words_of_page in ("peak write", "continuous read", "HOLDS", "8.00 Mbit/s (1.00 MB/s)", "Peak read rate"):
        assert words_of_page in page, words_of_page
    again = run("bench", "report", tmp_path / "all.json").stdout.decode()
    assert [line.split()[0] for line in again.splitlines()[1:3]] == ["A", "B"], again
    assert again.count("HOLDS") == 2


def test_a_set_that_does_not_hold_the_rate_or_cannot_be_measured_is_told_beside_the_others(tmp_path):
    words, _ = sets_in(tmp_path, "--require", "900GB/s", "--skip", "peak")
    told = run(*words, code=FOUND).stdout.decode()
    assert told.count("NO, ") == 2 and "holds 7.20 Tbit/s (900 GB/s)?" in told, told
    words, sets = sets_in(tmp_path, "--skip", "peak")
    sets["B"][0].rmdir()
    told = json.loads(run(*words, "--json", code=REFUSED).stdout)
    schema("bench-sets").validate(told)
    assert [each["name"] for each in told["sets"]] == ["A"] and not told["passed"]
    assert told["unmeasured"][0]["name"] == "B" and str(sets["B"][0]) in told["unmeasured"][0]["why"]


def test_sets_that_cannot_be_are_refused_before_anything_is_measured(tmp_path):
    for words, why in [
        (["--set", f"A={tmp_path}", "--set", f"A={tmp_path}"], "two sets are called A"),
        (["--set", str(tmp_path)], "is not a disk set"),
        (["--set", f"A={tmp_path}", tmp_path], "cannot be used with"),
        ([], "required"),
    ]:
        refused = run("bench", "disk", "--quick", "--no-history", *words, code=REFUSED)
        assert why in text(refused.stderr), text(refused.stderr)


def test_any_number_of_results_are_told_side_by_side_and_runs_of_one_drive_are_averaged(tmp_path):
    fixture = json.loads((REPOSITORY / "crates/survey/tests/data/drive.json").read_text())
    files = []
    for number in range(8):
        for run_of_it in range(2):
            fixture["targets"][0]["path"] = f"/dev/nvme{number}n1"
            fixture["continuous"]["write"]["rate"] = 1e9 + 1e8 * number + 2e7 * run_of_it
            files.append(tmp_path / f"drive{number}-{run_of_it}.json")
            files[-1].write_text(json.dumps(fixture))
    told = run("bench", "report", *files).stdout.decode()
    assert sum("/dev/nvme" in line for line in told.splitlines()) == 8, told
    assert "1.01 GB/s ± 14.1 MB/s" in told and "1.71 GB/s ± 14.1 MB/s" in told, told
    named = run("bench", "report", f"old={files[0]}", f"new={files[2]}").stdout.decode()
    assert "old" in named and "new" in named and "/dev/nvme" not in named, named
    page = tmp_path / "drives.html"
    run("bench", "report", *files, "--html", page)
    drawn = page.read_text()
    assert drawn.count('class="row"') == 8 and "<script" not in drawn
    assert all(kind in drawn for kind in ("peak write", "continuous write", "peak read", "continuous read"))


@pytest.mark.alone
def test_a_duty_cycle_is_measured_and_judged_and_its_pause_drains_the_ring(tmp_path):
    words = ["--skip", "peak,fio", "--duty", "1s/1s", "--seconds", "4", "--require", "10MB/s", "--tbw", "600"]
    words += ["--block", "1MiB", "--depth-bytes", "4MiB", "--ring", "32MiB", "--rate", "16MB/s"]
    page = tmp_path / "page.html"
    result = bench(tmp_path, *words, "--html", page, bytes=None)
    long = result["continuous"]
    duty = long["duty"]
    assert (duty["record_s"], duty["pause_s"], len(duty["scans"])) == (1, 1, 2)
    # 16 MB/s for two scans of a second, in blocks of 1 MiB.
    assert 26 * MIB <= long["write"]["bytes"] + long["overrun_bytes"] <= 31 * MIB
    assert sum(scan["bytes"] + scan["pause_bytes"] for scan in duty["scans"]) == long["write"]["bytes"]
    assert long["verification"]["wrong_blocks"] == 0
    verdict = result["verdict"]
    assert verdict["holds"] and verdict["sentence"].startswith("10.0 MB/s at 1 s / 1 s is held")
    life = result["endurance"]
    assert life["recording_share"] == 0.5 and life["tb_per_day"] == pytest.approx(10e6 * 0.5 * 86400 / 1e12)
    assert "Scans of 1 s, with pauses of 1 s" in page.read_text()
    told = run("bench", "report", write_json(tmp_path / "duty.json", result)).stdout.decode()
    assert "duty cycle 1 s / 1 s, 2 scans" in told and "50 % of the time" in told


def write_json(path, value):
    path.write_text(json.dumps(value))
    return path


@pytest.mark.alone
@needs_root
@pytest.mark.parametrize("brake, unit", [("group", 1_000_000), ("program", 400_000)])
def test_a_rate_above_that_of_the_disk_is_held_in_a_duty_cycle_as_the_pause_drains_the_ring(brake, unit, tmp_path):
    """A disk of 40 units a second, used for scans of 2 s and pauses of 2 s with a ring for the backlog."""
    with braked(brake, tmp_path, mounted, kind_of_disk(), 900 * MIB) as (place, brake):
        words = command(place, "--skip", "peak,read,fio", "--block", "1MiB", "--depth-bytes", "4MiB", "--json", bytes=None)
        words += ["--ring", "64MiB", "--require", f"{50 * unit}B/s"]
        held = run_over_a_cliff([*words, "--duty", "2s/2s", "--seconds", "8"], place, brake, 40 * unit, 40 * unit, 0)
        missed = run_over_a_cliff([*words, "--seconds", "4"], place, brake, 40 * unit, 40 * unit, 0)
    held, missed = json.loads(held.stdout), json.loads(missed.stdout)
    assert held["verdict"]["holds"], held["verdict"]
    assert not missed["verdict"]["holds"], missed["verdict"]
    assert all(scan["pause_bytes"] > 0 for scan in held["continuous"]["duty"]["scans"])


def test_several_sets_are_judged_by_their_duty_cycle(tmp_path):
    more = ["--skip", "peak,read", "--duty", "1s/500ms", "--seconds", "1", "--require", "1MB/s"]
    words, _ = sets_in(tmp_path, *more, *PACED)
    told = text(run(*words).stdout)
    assert "holds 8.00 Mbit/s (1.00 MB/s) at 1 s / 0.5 s?" in told and told.count("HOLDS") == 2, told
    # At full speed, 32 MiB are written long before a cycle is over.
    words, _ = sets_in(tmp_path, *more)
    told = text(run(*words, code=FOUND).stdout)
    assert told.count("NOT SHOWN") == 2 and "HOLDS" not in told, told
    assert ask(*words, code=FOUND)["passed"] is False


PACED = ["--rate", "4MB/s", "--block", "256KiB", "--depth-bytes", "1MiB", "--ring", "16MiB"]


@pytest.mark.parametrize(
    "limits, cycles",
    [(dict(bytes="2MiB"), 0), (dict(seconds="2", bytes=None), 1), (dict(bytes="10MB"), 2)],
    ids=["shorter than a cycle", "one cycle", "two cycles and a half"],
)
def test_a_duty_cycle_is_judged_by_its_whole_cycles_alone(limits, cycles, tmp_path):
    seconds = ["--seconds", limits["seconds"]] if "seconds" in limits else []
    words = ["--skip", "peak,read,fio", "--duty", "1s/1s", "--require", "1MB/s", *PACED, *seconds]
    result = bench(tmp_path, *words, bytes=limits["bytes"], code=GOOD if cycles else FOUND)
    verdict, duty = result["verdict"], result["continuous"]["duty"]
    assert duty["cycles"] == cycles and duty["lasted_s"] >= 2 * cycles
    assert verdict["holds"] is bool(cycles) and verdict.get("not_shown", False) is not bool(cycles)
    if cycles:
        assert f"{cycles} whole cycle" in verdict["sentence"], verdict
    else:
        assert "write for 2 s at least" in verdict["sentence"], verdict
        told = text(run("bench", "report", write_json(tmp_path / "short.json", result)).stdout)
        assert "NOT SHOWN: 1.00 MB/s at 1 s / 1 s is not shown to be held" in told, told


def test_a_duty_cycle_that_cannot_be_is_refused(tmp_path):
    for words, why in [("--duty 40s", "40s/20s"), ("--duty 40s/20s --seconds 30", "shorter than one scan")]:
        assert why in text(run(*command(tmp_path, *words.split(), bytes=None), code=REFUSED).stderr)


@contextmanager
def ram_disk(tmp_path, size):
    """A tmpfs of this many MiB; it is as it was at the end."""
    place = tmp_path / "ram"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}M", "none", place], check=True)
    try:
        yield place
        assert is_as_it_was(place)
    finally:
        unmount(place)


def check_going_round(result, size, seconds):
    """It was written and read for this time, all as written, and held against both data sheets and the system's own
    benchmark."""
    long = result["continuous"]
    assert long["wrap"] < size < long["write"]["bytes"] and size < long["read"]["bytes"]
    assert long["write"]["seconds"] >= seconds and long["read"]["seconds"] >= seconds
    assert long["verification"] == {"compared_bytes": long["read"]["bytes"], "wrong_blocks": 0}
    for name, way, rate in (("spec", "write", 10e9), ("spec_read", "read", 5e9)):
        spec = result[name]
        assert spec["continuous_ratio"] == pytest.approx(long[way]["rate"] / rate)
        assert ("system_ratio" in spec) == has_fio, spec
        if has_fio:
            fio = max(c["rate"] for c in result["comparisons"] if c["direction"] == way and c.get("rate"))
            assert spec["system_ratio"] == pytest.approx(fio / rate)
            assert spec["continuous_over_system"] == pytest.approx(long[way]["rate"] / fio)


GOING_ROUND = ["--skip", "peak", "--wrap", "--spec", "10GB/s", "--spec-read", "5GB/s"]
has_fio = shutil.which("fio") is not None


@pytest.mark.alone
@needs_root
@pytest.mark.parametrize("size", [100, 200])
def test_a_small_ram_disk_is_written_and_read_for_as_long_as_asked_by_going_round(size, tmp_path):
    with ram_disk(tmp_path, size) as place:
        result = bench(place, *GOING_ROUND, "--seconds", "2", bytes=None)
    told = run("bench", "report", write_json(tmp_path / "ram.json", result)).stdout.decode()
    check_going_round(result, size * MIB, 2)
    assert "wrapped    within" in told and "Data sheet, write 10000 MB/s" in told and "Data sheet, read 5000 MB/s" in told
    assert ("fio " in told.split("Data sheet, read")[1].splitlines()[0]) == has_fio, told


@pytest.mark.slow
@pytest.mark.alone
@needs_root
def test_a_ram_disk_of_2_gb_is_written_and_read_for_a_minute(tmp_path):
    with ram_disk(tmp_path, 2048) as place:
        words = command(place, *GOING_ROUND, "--seconds", "60", bytes=None)
        done = subprocess.run([BINARY, *map(str, words), "--json"], capture_output=True, timeout=300)
    assert done.returncode == GOOD, text(done.stderr)
    check_going_round(json.loads(done.stdout.splitlines()[-1]), 2048 * MIB, 60)


def test_a_file_that_cannot_hold_the_blocks_under_way_is_not_written_round_and_round(tmp_path):
    small = tmp_path / "small.img"
    small.write_bytes(bytes(8 * MIB))
    refused = run(*command(small, "--overwrite", small, "--wrap", "--skip", "peak,fio", bytes=None), code=REFUSED)
    assert "--wrap needs room" in text(refused.stderr)


@needs_root
def test_a_device_is_written_round_and_round(tmp_path):
    image = tmp_path / "drive.img"
    image.write_bytes(bytes(48 * MIB))
    words = ["--wrap", "--seconds", "1", "--skip", "peak,fio", "--block", "1MiB", "--depth-bytes", "4MiB"]
    result = bench(image, *words, "--overwrite", image, bytes=None)
    long = result["continuous"]
    assert long["write"]["seconds"] >= 1 and 46 * MIB <= long["wrap"] <= 48 * MIB
    assert long["verification"]["wrong_blocks"] == 0


def test_each_run_of_powers_of_two_and_one_byte_more_is_listed_with_mean_and_deviation(tmp_path):
    words = ["--skip", "continuous,fio", "--blocks", "powers", "--iterations", "--runs", "3", "--run-time", "5ms"]
    words += ["--sessions", "8", "--depths", "1", "--modes", "buffered", "--files", "1"]
    page = tmp_path / "page.html"
    result = bench(tmp_path, *words, "--html", page, bytes=None)
    by_block = {p["block_bytes"]: p for p in result["sweep"] if p["direction"] == "write" and "block" in p["curves"]}
    assert {512, 513, 1024, 1025, 4 * MIB, 4 * MIB + 1} <= set(by_block)
    for point in result["sweep"]:
        runs = point["iterations"]
        assert len(runs) == point["rate"]["runs"] == 3
        mean = sum(runs) / 3
        assert point["rate"]["mean"] == pytest.approx(mean)
        assert point["rate"]["deviation"] == pytest.approx((sum((it - mean) ** 2 for it in runs) / 2) ** 0.5)
    told = run("bench", "report", write_json(tmp_path / "runs.json", result)).stdout.decode()
    assert told.count("standard deviation") >= 2 * len(by_block)
    assert "Each run" in page.read_text()
    plain = bench(tmp_path, *[word for word in words if word != "--iterations"], bytes=None)
    assert all("iterations" not in point for point in plain["sweep"])
