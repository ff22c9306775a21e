"""A full member: it takes no more data, the others continue, and no written data is lost.

Needs root for a loop device; a quota would not end a write where a full disk does.
"""

import os
import shutil
import subprocess

import pytest
from disks import unmount
from fullbore import (
    AS_SEALED,
    BINARY,
    FOUND,
    GOOD,
    INTACT,
    PATIENCE,
    REFUSED,
    Recording,
    accounts,
    ask,
    balanced,
    code_of_verify,
    free_port,
    free_ports,
    generate,
    generate_command,
    run,
)
from test_documents import schema

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root"),
    pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="mkfs.ext4 is not here"),
]

DISK_BYTES = 96 << 20


@pytest.fixture
def small_disk(tmp_path):
    """A separate file system of 96 MB."""
    image, mounted = tmp_path / "disk.img", tmp_path / "small"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, mounted], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop device here: {error.stderr.decode().strip()}")
    yield mounted
    unmount(mounted)


@pytest.fixture
def dying_disk(tmp_path):
    """A file system that promises 256 MB, on a device that fails beyond 64 MB."""
    backing, mounted = tmp_path / "backing", tmp_path / "dying"
    backing.mkdir()
    mounted.mkdir()
    image = backing / "disk.img"
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", backing], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no tmpfs here: {error.stderr.decode().strip()}")
    try:
        with image.open("wb") as file:
            file.truncate(256 << 20)
        # Without a journal, a failed write affects only its writer.
        make = ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=1", image]
        subprocess.run(make, check=True, capture_output=True)
        subprocess.run(
            ["mount", "-o", "loop,errors=continue", image, mounted], check=True, capture_output=True
        )
    except subprocess.CalledProcessError as error:
        unmount(backing)
        pytest.skip(f"no loop device here: {error.stderr.decode().strip()}")
    yield mounted
    subprocess.run(["umount", "-l", mounted], check=True)
    subprocess.run(["umount", "-l", backing], check=True)


def fill(stores, frames=40_000, chunk="16MB"):
    """Records 320 MB; returns the recording, sealed."""
    port = free_port()
    source, chunks = f"udp://127.0.0.1:{port}?format=vdif", ["--chunk", chunk] if chunk else []
    with Recording(source, store=stores, options=chunks) as recording:
        generate(port, frames=frames, fps=20_000)
    recording.stop(AS_SEALED)
    return recording


def assert_files_are_the_stream(recording):
    """The chunk files in the order of their numbers, without gaps, equal the output of `fullbore cat`."""
    numbers = [int(path.suffix[1:]) for path in recording.on_disk().chunks()]
    assert numbers == list(range(len(numbers)))
    members = ",".join(map(str, recording.stores))
    done = subprocess.run(
        [BINARY, "cat", recording.scan, "--store", members], capture_output=True, timeout=PATIENCE
    )
    assert done.returncode == GOOD, done.stderr.decode()
    assert recording.on_disk().bytes() == done.stdout


def test_a_disk_that_fills_up_ends_the_recording_with_what_did_not_fit_counted(small_disk):
    recording = fill([small_disk])
    sealed = recording.stop(code=FOUND)
    (account,) = accounts(sealed).values()
    terms = balanced(account)["terms"]
    assert terms["written"] > 0 and terms["overrun"] > 0 and terms["missing"] == 0
    assert terms["expected"] == 40_000
    assert sealed["manifest"]["members"][0]["failure"].startswith("the disk is full")
    assert account["host"]["high_water"] <= account["host"]["pool_blocks"]
    told = run("info", recording.scan, "--full", "--store", small_disk).stdout.decode()
    assert "overrun (the disk is full" in told, told
    run("verify", recording.scan, "--store", small_disk, code=INTACT)


def test_the_other_members_take_over_from_a_full_one(small_disk, store):
    recording = fill([small_disk, store])
    sealed = recording.stop(code=FOUND)
    (account,) = accounts(sealed).values()
    assert balanced(account)["terms"]["written"] == 40_000
    assert sealed["manifest"]["members"][0]["failure"]
    run("verify", recording.scan, "--store", f"{small_disk},{store}", code=INTACT)
    assert_files_are_the_stream(recording)
    assert ask("info", recording.scan, "--store", f"{small_disk},{store}") is not None


def test_a_recording_that_cannot_fit_is_refused_or_warned_about(small_disk):
    done = run(
        "record", f"udp://127.0.0.1:{free_port()}?format=vdif&frame=8032&fps=1000000", "--store",
        small_disk, "--session", "test", "--scan", "big", "--bytes", "10GB", code=REFUSED,
    )  # fmt: skip
    assert str(small_disk) in done.stderr.decode()


def test_files_are_the_stream_also_when_a_member_dies_within_a_chunk(dying_disk, stores):
    recording = fill([dying_disk, *stores[:2]])
    sealed = recording.stop(code=FOUND)
    failure = sealed["manifest"]["members"][0]["failure"]
    assert failure.startswith("writing"), failure
    begun = [path for path in recording.on_disk().chunks() if path.stat().st_size < 16_000_000 // 2]
    assert begun, "no chunk was cut"
    (account,) = accounts(sealed).values()
    assert balanced(account)["terms"]["expected"] == 40_000
    assert_files_are_the_stream(recording)


def test_the_rest_of_a_chunk_gets_its_place_when_others_were_filled_meanwhile(dying_disk, stores):
    port = free_port()
    members = [dying_disk, *stores[:2]]
    source, options = f"udp://127.0.0.1:{port}?format=vdif", ["--chunk", "80MB"]
    with Recording(source, store=members, options=options) as recording:
        sending = generate_command(port, frames=25_000, fps=5_000)
        sender = subprocess.Popen(sending, stdout=subprocess.DEVNULL)
        # The first chunk is larger than the disk; the member is stopped before that is noticed.
        recording.wait("progress", lambda told: told["members"][0]["written_bytes"] >= 36_000_000)
        subprocess.run(["fsfreeze", "-f", dying_disk], check=True)
        try:
            # Meanwhile the next member fills chunk 1: blocks have 512 frames, and chunks 19 blocks.
            recording.wait("progress", lambda told: told["streams"][0]["frames"] >= 36 * 512)
        finally:
            subprocess.run(["fsfreeze", "-u", dying_disk], check=True)
        assert sender.wait(PATIENCE) == 0
    sealed = recording.stop(code=FOUND)
    assert sealed["manifest"]["members"][0]["failure"]
    (stream,) = sealed["manifest"]["streams"]
    assert stream["renamed"]["stage"] == "done", stream
    schema("manifest").validate(sealed["manifest"])
    assert_files_are_the_stream(recording)
    told = ask(
        "verify", recording.scan, "--store", ",".join(map(str, members)),
        code=code_of_verify,
    )  # fmt: skip
    found = told["findings"]
    # On a full disk neither manifest nor account can be written.
    assert {one["what"] for one in found} <= {"manifest-differs", "account-missing"}, found


def test_chunks_on_several_members_are_numbered_without_holes(stores):
    recording = fill(stores[:2], frames=10_000)
    (stream,) = recording.stop(code=GOOD)["manifest"]["streams"]
    assert "renamed" not in stream
    assert len(recording.on_disk().chunks()) > 4
    assert_files_are_the_stream(recording)


def test_a_small_disk_gets_smaller_chunks_of_itself(small_disk):
    recording = fill([small_disk], frames=5000, chunk=None)
    sealed = recording.stop(code=GOOD)
    (account,) = accounts(sealed).values()
    assert balanced(account)["terms"]["written"] == 5000
    run("verify", recording.scan, "--store", small_disk, code=INTACT)


def record_eight_streams(disk, chunk, frames):
    """Records 8 streams of `frames` frames of 8032 bytes onto one disk; returns the recording, sealed."""
    ports = free_ports(8)
    place = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}"
    options = ["--chunk", chunk, "--buffer", "512MiB"]
    with Recording(f"{place}?format=vdif&block=256KiB", store=[disk], options=options) as recording:
        generate(place, frame=8032, frames=frames, fps=1000)
    recording.stop(AS_SEALED)
    return recording


@pytest.mark.parametrize("chunk", ["30MB", "10GB"])
def test_eight_streams_with_large_chunks_share_a_small_disk(small_disk, chunk):
    recording = record_eight_streams(small_disk, chunk, frames=600)
    sealed = recording.stop(code=GOOD)
    for account in accounts(sealed).values():
        assert balanced(account)["terms"]["written"] == 600
    chunks = list(small_disk.glob("*/*.[0-9]*"))
    assert len(chunks) == 8, "one file for each stream"
    run("verify", recording.scan, "--store", small_disk, code=INTACT)


def record_eight_threads(disk, threads, chunk, frames, **rules):
    """Records 8 threads of one port, which are streams only once their frames arrive; returns the recording, sealed."""
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&block=256KiB{threads}"
    options = ["--chunk", chunk, "--buffer", "256MiB"]
    with Recording(source, store=[disk], options=options) as recording:
        generate(port, frame=8032, threads="0-7", frames=frames, fps=1000, gentle=True, **rules)
    recording.stop(AS_SEALED)
    return recording


@pytest.mark.parametrize("threads", ["&threads=split", ""])
@pytest.mark.parametrize("chunk", ["30MB", "10GB"])
def test_eight_threads_of_a_port_with_large_chunks_share_a_small_disk(small_disk, chunk, threads):
    recording = record_eight_threads(small_disk, threads, chunk, frames=800)
    sealed = recording.stop(code=GOOD)
    assert sealed["manifest"]["members"][0].get("failure") is None
    terms = [balanced(account)["terms"] for account in accounts(sealed).values()]
    assert sum(one["written"] for one in terms) == 6400
    run("verify", recording.scan, "--store", small_disk, code=INTACT)


def test_eight_threads_of_a_port_fill_a_disk_smaller_than_their_chunks(small_disk):
    recording = record_eight_threads(small_disk, "&threads=split", "10GB", frames=2000)
    sealed = recording.stop(code=FOUND)
    terms = [balanced(account)["terms"] for account in accounts(sealed).values()]
    assert len(terms) == 8 and sum(one["overrun"] for one in terms) > 0
    assert sum(one["written"] for one in terms) * 8032 > 55_000_000, terms
    run("verify", recording.scan, "--store", small_disk, code=INTACT)


def test_a_stream_that_was_alone_leaves_space_for_those_that_come_later(small_disk):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&block=256KiB&threads=split"
    with Recording(source, store=[small_disk], options=["--chunk", "10GB", "--buffer", "256MiB"]) as recording:
        generate(port, frame=8032, threads="0", frames=1500, fps=1000, gentle=True)
        generate(port, frame=8032, threads="1-7", frames=700, fps=1000, gentle=True)
    # No frame is lost, but the streams did not begin and end together.
    sealed = recording.stop(code=FOUND)
    assert sealed["manifest"]["members"][0].get("failure") is None
    written = sorted(balanced(account)["terms"]["written"] for account in accounts(sealed).values())
    assert written == [700] * 7 + [1500]


def test_streams_with_chunks_larger_than_the_disk_fill_it(small_disk):
    recording = record_eight_streams(small_disk, "10GB", frames=2000)
    sealed = recording.stop(code=FOUND)
    terms = [balanced(account)["terms"] for account in accounts(sealed).values()]
    assert sum(one["overrun"] for one in terms) > 0
    assert all(one["written"] + one["overrun"] == 2000 for one in terms), terms
    # 96 MB, less the space of the file system and of the indices of 8 streams.
    assert sum(one["written"] for one in terms) * 8032 > 55_000_000, terms
    run("verify", recording.scan, "--store", small_disk, code=INTACT)
