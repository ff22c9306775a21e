"""The commands of the pages: the program accepts each, and those that need no hardware run as they stand."""

import gzip
import json
import os
import shutil
import sys
import time
from pathlib import Path

import package
import pytest
from fullbore import FOUND, GOOD, INCOMPLETE, INTACT, REPOSITORY, run, text
from panda import DATA
from pages import PATIENT, Machine, Page, commands_of, is_shown_truly

PAGES = sorted(
    str(path.relative_to(REPOSITORY)) for path in [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace of one's own needs root")


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.away()


@pytest.mark.parametrize("name", [name for name in PAGES if commands_of(REPOSITORY / name)])
def test_the_program_accepts_each_command(name):
    """Options, their values and the number of arguments: `--help` at the end succeeds only if all before it is right."""
    # `analyse` is a module of the Python package.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    modules = {**os.environ, "PATH": path, "PYTHONPATH": str(package.place())}
    for command in commands_of(REPOSITORY / name):
        for words in command.of_fullbore():
            if "…" not in " ".join(words):
                run(*words, "--help", env=modules)


def sends(machine, seconds, streams=8):
    """The instrument that the pages assume: 1000 frames a second on each port from 46220."""
    to = f"udp://127.0.0.1:46220-{46219 + streams}"
    machine.types(f"fullbore generate --to {to} --start now --rate 64Mbit/s --duration {seconds}s --gentle")


def wait_until(it_is_so):
    end = time.monotonic() + PATIENT
    while not it_is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@needs_root
@pytest.mark.slow
def test_the_tutorial_of_a_first_recording(machine):
    page = Page("docs/tutorials/first-recording.md")
    machine.types(page.next("mkdir "))
    machine.types(page.next("export FULLBORE_STORE="))
    recorder = machine.starts(page.next("fullbore record "), until="armed")
    machine.types(page.next("fullbore generate "))
    told = recorder.stop()
    assert "COMPLETE: all 80 000 frames of 8 streams, 10.0 s   test_one sealed, 643 MB in 8 streams" in told, told
    assert "all 8 streams complete: 46220–46227, 10 000 frames each" in told
    for name in ("verify", "info", "ls"):
        assert "test_one" in machine.types(page.next(f"fullbore {name}"))
    assert "test_one_ds46220.00000000" in machine.types(page.next("ls ")).split()
    recorder = machine.starts(page.next("fullbore record "), until="armed")
    machine.types(page.next("fullbore generate "))
    told = recorder.stop(FOUND)
    assert "of 80 000 frames (less than 0.01 %) in" in told and "streams: lost before they reached this host" in told, told
    recorder = machine.starts(page.next("fullbore record "), until="armed")
    # Exit code 1: a busy machine did not keep the timing.
    machine.types(page.next("fullbore play "), code=(GOOD, FOUND))
    assert "COMPLETE: all 80 000 frames of 8 streams" in recorder.stop()
    one, replay = (machine.types(page.next("fullbore cat ")) for _ in range(2))
    assert one == replay and len(one.split()[0]) == 64
    machine.types(page.next("fullbore rm "))
    page.ends()


@needs_root
@pytest.mark.slow
def test_the_tutorial_of_a_panda(machine):
    page = Page("docs/tutorials/panda-into-hdf5.md")
    panda = page.next("fullbore simulate panda ")
    simulated = machine.starts(panda, until="data on 127.0.0.1:8889")
    is_shown_truly(panda, simulated.told())
    for name in ("show", "record"):
        command = page.next(f"fullbore panda {name} ")
        is_shown_truly(command, machine.types(command))
    recorder = machine.starts(page.next("fullbore panda record "), until="panda: frames of 60 bytes")
    wait_until((machine.here / "live.h5").exists)
    # Readers can open it from its first flush on.
    time.sleep(1)
    rows = [line.split() for line in machine.snippet(page.snippet("swmr=True")).splitlines()]
    assert len(rows) == 5 and int(rows[0][0]) <= int(rows[-1][0]) and int(rows[-1][0]) > 0
    recorder.ends()
    assert "'expected': 1000000" in machine.snippet(page.snippet("capture-1.h5"))
    simulated.stop()
    simulated = machine.starts(page.next("fullbore simulate panda "), until="data on")
    command = page.next("fullbore panda record ")
    is_shown_truly(command, machine.types(command, code=FOUND))
    page.is_not_run("echo $?", "the exit code is that of the command above, which was 1")
    page.ends()


@needs_root
@pytest.mark.slow
def test_the_tutorial_of_a_digitiser(machine):
    page = Page("docs/tutorials/digitiser.md")
    machine.types(page.next("mkdir "))
    machine.types(page.next("export FULLBORE_STORE="))
    recorder = machine.starts(page.next("fullbore record "), until="armed")
    digitiser = machine.starts(page.next("fullbore generate "), until="")
    time.sleep(14)  # two seconds until it begins, and twelve of samples
    machine.types(page.next("fullbore trigger "))
    # Few context packets in the last piece show no loss, so the code may be 1.
    recorder.stop(code=(GOOD, FOUND))
    digitiser.stop()
    machine.types(page.next("fullbore index "))
    found = machine.types(page.next("fullbore find "))
    assert found.startswith("rx-00000001: ") and " s after the start, for " in found, found
    shown = machine.types(page.next("fullbore spectrum "))
    assert "ci16_be at 1000000 Hz" in shown and "strongest at 1420530752 Hz" in shown, shown
    machine.types(page.next("fullbore spectrum "))
    machine.types(page.next("fullbore convert "))
    machine.types(page.next("fullbore convert "))
    made = {path.name for path in machine.tmp.iterdir()}
    assert {"burst.png", "burst.sigmf-data", "burst.sigmf-meta", "burst.tdms"} <= made
    machine.types(page.next("fullbore rm "))
    page.ends()


@needs_root
@pytest.mark.slow
def test_the_page_for_a_laboratory(machine):
    page = Page("docs/howto/lab.md")
    page.is_not_run("fullbore demo ", "test_first_steps runs it")
    machine.types(page.next("mkdir "))
    machine.types(page.next("export FULLBORE_STORE="))
    page.is_not_run("fullbore bench disk ", "it takes a minute; test_bench_disk runs it")
    # What it finds depends on the host.
    assert "/mnt/data" in machine.types(page.next("fullbore doctor"), code=(GOOD, FOUND, INCOMPLETE))
    recorder = machine.starts(page.next("fullbore record "), until="armed")
    digitiser = machine.starts(page.next("fullbore generate "), until="")
    told = recorder.ends(code=(GOOD, FOUND))
    assert "lab_first sealed" in told and "LOST" not in told, told
    digitiser.ends()
    if shutil.which("arv-fake-gv-camera-0.8"):
        machine.starts(page.next("arv-fake-gv-camera-0.8"), until="")
        # A camera that does not answer yet is one that is not there.
        time.sleep(1)
        assert "COMPLETE" in machine.types(page.next("fullbore record 'gvsp:"))
    else:
        page.is_not_run("arv-fake-gv-camera-0.8", "it is not installed here")
        page.is_not_run("fullbore record 'gvsp:", "there is no camera here")
    assert "lab_first" in machine.types(page.next("fullbore ls"))
    assert "lab_first sealed" in machine.types(page.next("fullbore info "))
    machine.types(page.next("fullbore verify "), code=INTACT)
    assert "ci16_be at 1000000 Hz" in machine.types(page.next("fullbore spectrum "))
    machine.types(page.next("fullbore convert "))
    machine.types(page.next("fullbore convert "))
    made = {path.name for path in machine.tmp.iterdir()}
    assert {"first.png", "first.npy", "first.npy.json", "first.sigmf-data", "first.sigmf-meta"} <= made
    machine.starts(page.next("fullbore serve"), until="http://127.0.0.1:8480/#login=").stop(code=None)
    page.ends()


@needs_root
@pytest.mark.slow
def test_the_page_about_pandas(machine):
    page = Page("docs/howto/record-a-panda.md")
    for address in ("172.23.252.201", "127.0.1.1", "127.0.1.2"):
        ports = f"--control {address}:8888 --data {address}:8889"
        machine.starts(f"fullbore simulate panda --rate 1e5 --samples 1e5 {ports}", until="data on")
    assert "51 % of the link" in machine.types(page.next("fullbore panda show "))
    machine.types(page.next("fullbore panda record 172.23.252.201 capture-"))
    endless = machine.starts(page.next("fullbore panda record 172.23.252.201 all.h5 --num 0"), until="connected")
    endless.stop(code=None)
    machine.types(page.next("fullbore panda record A B "))
    machine.types(page.next("fullbore record panda://A 'panda://B?name=detector' "))
    files = {path.name for path in machine.here.iterdir()}
    assert {f"capture-{n}.h5" for n in range(1, 6)} <= files
    assert {f"scan-{n}{of}.h5" for n in range(1, 6) for of in ("", "_panda1", "_panda2")} <= files
    assert {f"both-{n}{of}.h5" for n in range(1, 6) for of in ("", "_panda", "_detector")} <= files

    simulated = []
    for command in (page.next("fullbore simulate panda ") for _ in range(2)):
        simulated.append(machine.starts(command, until="data on"))
        is_shown_truly(command, simulated[-1].told())
    command = page.next("fullbore record ")
    is_shown_truly(command, machine.types(command))
    assert machine.snippet(page.snippet("pair-1.h5")).splitlines() == ["detector 11 (300000,)", "panda 11 (200000,)"]

    (machine.mnt / "disk0").mkdir()
    machine.types(page.next("export FULLBORE_STORE="))
    # The scan ends with the acquisitions, so the frames come all the time.
    to = "udp://127.0.0.1:46220"
    machine.starts(f"fullbore generate --to {to} --start now --rate 64Mbit/s --duration 60s --gentle", until="")
    recorder = machine.starts(page.next("fullbore record "), until="armed")
    follower = machine.starts(page.next("fullbore convert store:s_one now.h5 --follow"), until="")
    recorder.ends(code=(GOOD, FOUND))
    follower.ends(code=(GOOD, FOUND))
    # Exit code 1 if the machine was too busy for a frame: that is a matter of the recording.
    for _ in range(2):
        assert "all of them: all.h5" in machine.types(page.next("fullbore convert "), code=(GOOD, FOUND))
    machine.running[-3].stop(code=(GOOD, FOUND))

    for streams in (1, 16, 1):
        recorder = machine.starts(page.next("fullbore record "), until="armed")
        sends(machine, streams=streams, seconds=1)
        recorder.stop()
    assert len(list(machine.here.glob("many_462??.h5"))) == 16
    page.is_not_run("fullbore recover FILE", "FILE is a place to fill in")

    # Both serve where the first of the pair did.
    simulated[0].stop()
    for command in (page.next("fullbore play "), page.next("fullbore simulate panda ")):
        served = machine.starts(command, until="127.0.0.1:8888")
        machine.types(f"fullbore panda record 127.0.0.1 {command.typed.split()[1]}.h5 --arm")
        served.stop(code=(GOOD, FOUND))
    dump = gzip.decompress((DATA / "raw_anon_samples.bin.gz").read_bytes())
    (machine.here / "dump.bin").write_bytes(dump)
    machine.types(page.next("fullbore convert file:dump.bin "), code=(GOOD, FOUND))
    page.ends()


@needs_root
@pytest.mark.slow
def test_the_page_about_redundancy(machine):
    page = Page("docs/howto/redundancy.md")
    for name in ("disk0", "disk1", "disk2", "disk3", "new"):
        (machine.mnt / name).mkdir()
    machine.types(page.next("export FULLBORE_STORE="))
    recorder = machine.starts(page.next("fullbore record "), until="armed")
    sends(machine, seconds=4)
    recorder.ends()
    assert "may lose 1 more member, whichever it is" in machine.types(page.next("fullbore verify "))
    shutil.rmtree(machine.mnt / "disk1")
    machine.types(page.next("fullbore rebuild "))
    told = machine.types("fullbore verify r1234_no0001 --store /mnt/disk0,/mnt/disk2,/mnt/disk3,/mnt/new")
    assert "may lose 1 more member, whichever it is" in told
    page.ends()


@needs_root
@pytest.mark.slow
def test_the_pages_about_reading(machine):
    """While it is recorded, and by other programs afterwards."""
    page = Page("docs/howto/read-while-recording.md")
    machine.program("quicklook", "wc -c")
    (machine.mnt / "disk0").mkdir()
    machine.types("export FULLBORE_STORE=/mnt/disk0")
    recorder = machine.starts(page.next("fullbore record "), until="armed")
    readers = [machine.starts(page.next("fullbore "), until="") for _ in range(6)]
    sends(machine, seconds=4)
    recorder.stop()
    told = [reader.ends(code=(GOOD, FOUND)) for reader in readers]
    snapshot = page.next("fullbore snapshot ").typed
    machine.types(snapshot.replace("2026-11-21T18:00:05", "+1s"))
    watcher = machine.starts(page.next("fullbore watch "), until="nothing has arrived")
    sends(machine, seconds=3)
    assert "station Fb, thread 0: 16 × 2 bits, real" in watcher.stop()
    page.ends()
    stored = int(told[2].split()[-1])
    assert stored == 4000 * 8032, told[2]

    page = Page("docs/howto/open-a-recording.md")
    contents = []
    for command in (page.next("fullbore cat "), page.next("ls ")):
        machine.types(command)
        contents.append((machine.here / "no0001.vdif").read_bytes())
    assert contents[0] == contents[1] and len(contents[0]) == stored
    machine.types(page.next("fullbore convert "))
    machine.types(f"cp no0001.tdms killed.tdms\n{page.next('fullbore convert ')}")
    assert (machine.here / "whole.tdms").stat().st_size > 2 * stored
    for _ in range(2):
        machine.types(f"rm -f out*.h5\n{page.next('fullbore convert ')}")
        assert (machine.here / "out.h5").exists()
    page.ends()


@needs_root
def test_the_page_about_schedules(machine):
    page = Page("docs/howto/schedule.md")
    recorder = machine.starts(
        "fullbore record 'udp://127.0.0.1:46220?format=vdif&fps=1000&frame=8032' --session r1234 --scan no0001", until="armed"
    )
    sends(machine, streams=1, seconds=1)
    machine.types(page.next("fullbore mark --last "))
    recorder.stop()
    (scan,) = json.loads(machine.types("fullbore ls --json"))
    command = page.next("fullbore mark r1234_no0001 ").typed
    machine.types(command.replace("2026-11-22T18:00:12", scan["start"]))
    told = machine.types("fullbore info r1234_no0001")
    assert "antenna on source" in told and "the wind rises" in told
    page.ends()


@needs_root
@pytest.mark.slow
def test_the_page_about_the_self_test(machine):
    page = Page("docs/howto/test-a-disk.md")
    (machine.mnt / "disk0").mkdir()
    # A small disk, as the first command writes all of it.
    machine.types("mount -t tmpfs -o size=64M none /mnt/disk0")
    for _ in range(2):
        assert "Overall Test Summary: NO FAILURE" in machine.types(page.next("fullbore selftest /mnt/disk0 "))
    page.is_not_run("fullbore selftest /dev/nvme1n1 ", "needs a bare drive", times=2)
    machine.types(page.next("fallocate "))
    for code in (GOOD, FOUND):
        command = page.next("fullbore selftest /mnt/disk0 --quick --tests 0,11")
        is_shown_truly(command, machine.types(command, code=code))
    machine.types("umount /mnt/disk0")
    command = page.next("fullbore selftest ")
    is_shown_truly(command, machine.types(command))
    page.ends()


def test_the_page_about_leap_seconds():
    page = Page("docs/howto/leap-seconds.md")
    command = page.next("fullbore --version")
    told = text(run("--version").stdout)
    assert told.splitlines()[0] == command.shown[0] and told.splitlines()[1].startswith("leap seconds: TAI-UTC is 37 s since")
    page.is_not_run("FULLBORE_LEAP_SECONDS=", "the rest is to fill in")
    page.ends()


@needs_root
@pytest.mark.slow
def test_the_tutorial_of_a_disk(machine):
    page = Page("docs/tutorials/measure-a-disk-before-you-buy.md")
    for name in ("disk0", "a", "b"):
        (machine.mnt / name).mkdir()
    machine.types(page.next("fullbore bench disk /mnt/disk0 --quick "), code=(GOOD, FOUND))
    page.is_not_run("fullbore bench disk ", "they take minutes", times=2)
    told = machine.types(page.next("fullbore bench disk /mnt/disk0 --quick --duty "), code=(GOOD, FOUND))
    assert "Endurance: " in told
    assert "Overall Test Summary: NO FAILURE" in machine.types(page.next("fullbore selftest /mnt/disk0 --quick"))
    page.is_not_run("fullbore selftest /dev/nvme1n1 ", "needs a bare drive")
    page.is_not_run("fullbore bench disk --set ", "takes minutes")
    page.ends()


@needs_root
@pytest.mark.slow
def test_the_page_about_measuring_a_disk(machine):
    page = Page("docs/howto/measure-a-disk.md")
    names = ["disk0", *(f"nvme{n}" for n in range(1, 9)), *(f".work/{name}" for name in "abc")]
    for name in names:
        (machine.mnt / name).mkdir()
    for words in ("--require", "--rate", "--duty"):
        page.is_not_run(f"fullbore bench disk /mnt/disk0 {words} ", "takes minutes")
    for _ in range(4):
        command = page.next("fullbore bench disk ")
        told = machine.types(command, code=(GOOD, FOUND), seconds=2 * PATIENT)
        command.shown = [line for line in command.shown if not line.lstrip().startswith(("HOLDS", "A ", "B "))]
        is_shown_truly(command, told)
        if "--bytes 200MB" in str(command):
            assert "NOT SHOWN: 180 MB/s at 2 s / 1 s" in told, told
        else:
            assert "sustained  holds" in told or "HOLDS: 180 MB/s" in told or "FAIL" in told, told
    machine.types(str(page.next("for n in 1 2 3 4 5 6 7 8; do fullbore bench disk ")), seconds=2 * PATIENT)
    told = machine.types(page.next("fullbore bench report "))
    assert [line.split()[:2] for line in told.splitlines()[1:9]] == [["drive", str(n)] for n in range(1, 9)], told
    page.is_not_run("sudo mount ", "the next lines are the same in a directory of memory")
    machine.types("mkdir /mnt/ram && mount -t tmpfs -o size=100m tmpfs /mnt/ram && fallocate -l 90M /mnt/ram/file")
    command = page.next("fullbore bench disk /ram/file ")
    short = str(command).replace("/ram/file", "/mnt/ram/file").replace("--seconds 60", "--seconds 1")
    is_shown_truly(command, machine.types(short))
    command = page.next("fullbore bench disk ")
    is_shown_truly(command, machine.types(str(command).replace("300ms", "5ms"), seconds=2 * PATIENT))
    page.ends()


@needs_root
@pytest.mark.slow
def test_the_page_about_reading_a_benchmark(machine):
    page = Page("docs/howto/read-a-benchmark.md")
    for name in ("disk0", "disk1"):
        (machine.mnt / name).mkdir()
    for name, quick in (("disk", "--quick --bytes 64MiB --skip fio"), ("all", "--quick")):
        machine.types(f"{page.next(f'fullbore bench {name} ')} {quick}", code=(GOOD, FOUND), seconds=2 * PATIENT)
        assert "<svg" in (machine.here / {"disk": "disk0.html", "all": "all.html"}[name]).read_text()
    for name in ("before", "after"):
        machine.types(f"fullbore bench disk /mnt/disk0 --quick --bytes 64MiB --skip fio --output {name}.json")
    for _ in range(2):
        assert "noise" in machine.types(page.next("fullbore bench compare"), code=(GOOD, FOUND))
    page.ends()


@needs_root
@pytest.mark.slow
def test_the_page_about_files_and_pipes(machine):
    page = Page("docs/howto/record-files-and-pipes.md")
    (machine.mnt / "disk0").mkdir()
    (machine.here / "x.vdif").write_bytes(os.urandom(3_000_000))
    machine.program("digitiser", "head -c 5000000 /dev/urandom")
    machine.program("quicklook", "wc -c")
    machine.drive(0, 64 << 20)
    machine.types("fullbore record 'pattern:prbs31?bytes=8MiB' --to device:/dev/nvme0n1 --session r1 --scan a")
    machine.types("export FULLBORE_STORE=/mnt/disk0")
    machine.types(page.next("fullbore record file:x.vdif "))
    machine.types(page.next("digitiser | fullbore record "))
    machine.types(str(page.next("fullbore record 'pattern:")).replace("10GB", "100MB"))
    machine.types(page.next("fullbore record 'device:"))
    kept = {scan["name"].partition("_")[2]: scan["bytes"] for scan in json.loads(machine.types("fullbore ls --json"))}
    assert kept == {"copy": 3_000_000, "live": 5_000_000, "test": 100_000_000, "a": 8 << 20}
    (machine.here / "x.vdif").unlink()
    recorder = machine.starts(page.next("fullbore record 'udp:"), until="armed")
    sends(machine, streams=1, seconds=1)
    recorder.stop()
    # As the page says: with a limit, because Ctrl-C ends the reader too.
    limited = str(page.next("fullbore record 'udp:")).replace(" --to ", " --duration 3s --to ")
    recorder = machine.starts(limited, until="armed")
    sends(machine, streams=1, seconds=1)
    told = recorder.ends()
    assert told.split().count("8032000") == 1 and (machine.here / "x.vdif").stat().st_size == 8_032_000, told
    simulated = machine.starts("fullbore simulate panda --rate 1e5 --samples 1e5 --control 127.0.1.1:8888 --data 127.0.1.1:8889", until="data on")
    machine.types(page.next("fullbore record panda://A "))
    simulated.stop()
    assert (machine.here / "samples.raw").stat().st_size % 100_000 == 0
    limited = str(page.next("fullbore record 'udp:")).replace(" --to ", " --duration 3s --to ", 1)
    recorder = machine.starts(limited, until="armed")
    sends(machine, streams=1, seconds=1)
    told = recorder.ends()
    assert told.split().count("8032000") == 1 and told.count("8.03 MB, all of it") == 3, told
    (machine.mnt / "usb").mkdir()
    machine.types(page.next("fullbore record file:x.vdif "))
    for store in ("/mnt/disk0", "/mnt/usb"):
        machine.types(f"fullbore verify s_b --store {store}", code=INTACT)
    machine.types(str(page.next("fullbore record 'pattern:")).replace("1GB", "8MiB"))
    assert (machine.here / "x.raw").stat().st_size == 8 << 20
    page.ends()


@needs_root
@pytest.mark.slow
def test_the_reference_of_devices(machine):
    page = Page("docs/reference/device.md")
    machine.drive(0, (4 << 30) + (64 << 20))
    machine.drive(1, 64 << 20)
    assert "finished, captured last 0xfffe0000" in machine.types(page.next("fullbore record pattern:prbs31 "), seconds=2 * PATIENT)
    assert "finished, captured last 0xfffe0000" in machine.types(page.next("fullbore verify "), seconds=2 * PATIENT)
    machine.drive(0, 64 << 20)
    recorder = machine.starts(page.next("fullbore record 'udp:"), until="armed")
    sends(machine, streams=1, seconds=3)
    assert "COMPLETE: all 3000 frames" in recorder.stop()
    for name in ("ls", "info", "verify"):
        assert "r1234_no0001" in machine.types(page.next(f"fullbore {name} "))
    machine.types("ip route add 192.0.2.0/24 dev lo")
    machine.types(page.next("fullbore play "), code=(GOOD, FOUND))
    machine.types(page.next("fullbore cat "))
    assert (machine.here / "no0001.vdif").stat().st_size == 3000 * 8032
    machine.types(page.next("fullbore record 'device:"))
    assert "r1234_no0001" in machine.types("fullbore verify 'device:/dev/nvme1n1?scan=r1234_no0001'")
    machine.types(page.next("fullbore recover "))
    for number in range(8):
        machine.drive(number, 64 << 20)
    all_of_them = ",".join(f"device:/dev/nvme{n}n1" for n in range(8))
    command = page.next("fullbore record 'udp:").typed.partition(" --to ")[0].rstrip(" \\\n")
    recorder = machine.starts(f"{command} --to {all_of_them}", until="armed")
    sends(machine, seconds=1)
    assert "COMPLETE: all 8000 frames of 8 streams" in recorder.stop()
    for number in range(2):
        machine.drive(number, 16 << 20)
    assert "of 2 streams" in machine.types(page.next("fullbore record pattern:"))
    command = page.next("fullbore record 'udp:")
    for number in range(2):
        (machine.here / f"d{number}.img").write_bytes(bytes(512 << 20))
    recorder = machine.starts(command, until="armed")
    sends(machine, streams=2, seconds=2)
    is_shown_truly(command, recorder.ends())
    page.ends()


@needs_root
@pytest.mark.slow
def test_the_commands_of_the_other_pages(machine):
    machine.program("jq", f"exec {shutil.which('jq')} \"$@\"")
    (machine.mnt / "disk0").mkdir()
    page = Page("docs/howto/install.md")
    page.is_not_run("export PATH=", "the program is on the path")
    assert "COMPLETE" in machine.types(page.next("fullbore demo"), code=(GOOD, FOUND), seconds=2 * PATIENT)
    page.ends()

    machine.types("export FULLBORE_STORE=/mnt/disk0")
    page = Page("docs/reference/account.md")
    command = page.next("fullbore record ")
    recorder = machine.starts(command, until="armed")
    sender = page.next("fullbore generate ")
    machine.types(sender)
    is_shown_truly(sender, recorder.ends())
    page.ends()

    page = Page("docs/reference/cli.md")
    page.is_not_run("fullbore [--json]", "is the form of all commands")
    recorder = machine.starts(page.next("fullbore record "), until="")
    wait_until(lambda: "armed" in (machine.here / "record.log").read_text() if (machine.here / "record.log").exists() else False)
    recorder.stop(FOUND)
    machine.types("fullbore rm s_one --yes")
    page.is_not_run("fullbore transfers add", "there is no correlator here: test_transfers.py runs a queue")
    page.is_not_run("fullbore transfers run", "it runs until Ctrl-C")
    machine.types(page.next("fullbore transfers"))
    page.ends()

    page = Page("docs/reference/events.md")
    machine.starts("fullbore generate --to udp://127.0.0.1:46220 --start now --rate 64Mbit/s --duration 60s --gentle", until="")
    command = str(page.next("fullbore record ")).replace("40s", "4s")
    assert "COMPLETE: all " in machine.types(command)
    page.ends()

    page = Page("docs/reference/formats.md")
    page.is_not_run("fullbore record 'udp://0.0.0.0:4991?format=vita49", "nothing here sends VITA-49: test_vita49.py does")
    for packets in ("239.10.0.1:7148?format=spead", "0.0.0.0:5004?format=rtp"):
        page.is_not_run(f"fullbore record 'udp://{packets}", "test_spead_rtp.py sends both")
    page.is_not_run("fullbore record gvsp://", "there is no camera here: test_gvsp.py has one")
    page.is_not_run("fullbore record 'udp://0.0.0.0:50000", "nothing here sends GVSP: test_gvsp.py does")
    recorder = machine.starts(page.next("fullbore record "), until="armed")
    to = "--to udp://127.0.0.1:46220 --start now --rate 64Mbit/s --duration 1s --gentle"
    machine.running[-2].stop(None)
    machine.types(f"fullbore generate --format mark5b {to}")
    assert "COMPLETE" in recorder.stop()
    page.ends()

    page = Page("docs/reference/store.md")
    checked, plain = (machine.types(f"{{ {page.next(start)}\n}} | sha256sum") for start in ("fullbore cat ", "ls "))
    assert checked == plain
    page.ends()
