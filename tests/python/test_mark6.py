"""Mark 6 scatter-gather files: the frames of several disks are recorded in their order, and lost blocks are missing."""

import random
import struct

import pytest
import wire
from fullbore import AS_SEALED, FOUND, INTACT, REFUSED, Recording, accounts, balanced, run, text
from test_spead_rtp import missing

FRAMES_OF_BLOCK = 37
SYNC = 0xFEED6666


def scatter(frames, place, disks, lost=(), version=2, seed=6):
    """Writes frames as a Mark 6 recorder does: blocks go to disks as these are free. Returns the files."""
    chance = random.Random(seed)
    length, head = len(frames[0]), 8 if version == 2 else 4
    files = [bytearray(struct.pack("<IiiiI", SYNC, version, head + FRAMES_OF_BLOCK * length, 0, length)) for _ in range(disks)]
    blocks = [frames[at : at + FRAMES_OF_BLOCK] for at in range(0, len(frames), FRAMES_OF_BLOCK)]
    for number, block in enumerate(blocks):
        if number not in lost:
            raw = b"".join(block)
            size = struct.pack("<i", 8 + len(raw)) if version == 2 else b""
            chance.choice(files).extend(struct.pack("<i", number) + size + raw)
    paths = []
    for disk, content in enumerate(files):
        path = place / f"disk{disk}" / "data" / "exp_st_no0001.vdif"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        paths.append(path)
    return paths


def record(source, store):
    """Records to the end of the files. Returns the account and the recording."""
    with Recording(source, store=store) as recording:
        sealed = recording.sealed(AS_SEALED)
    (account,) = accounts(sealed).values()
    return balanced(account), recording


@pytest.mark.parametrize("version", [1, 2])
def test_frames_of_several_disks_are_recorded_in_their_order(store, tmp_path, version):
    frames = wire.run_of_frames(37 * 27, fps=200)
    scatter(frames, tmp_path, disks=4, version=version)
    account, recording = record(f"mark6:{tmp_path}/disk*/data/exp_st_no0001.vdif?fps=200&name=x", store)
    assert recording.on_disk().bytes() == b"".join(frames)
    assert (account["verdict"], account["terms"]["written"]) == ("proven", len(frames))
    run("verify", recording.scan, "--store", store, code=INTACT)


def test_the_frames_of_lost_blocks_and_of_a_lost_disk_are_missing(store, tmp_path):
    frames = wire.run_of_frames(37 * 40, fps=200)
    paths = scatter(frames, tmp_path, disks=3, lost={5, 6, 20})
    on_lost_disk = set()
    content = paths[1].read_bytes()
    at, length = 20, len(frames[0])
    while at < len(content):
        number, size = struct.unpack_from("<ii", content, at)
        on_lost_disk.add(number)
        at += size
    assert len(on_lost_disk) > 5 and not {0, 39} & on_lost_disk
    account, recording = record(f"mark6:{paths[0]},{paths[2]}?fps=200&fill=omit&name=x", store)
    lost = {frame for block in {5, 6, 20} | on_lost_disk for frame in range(block * 37, block * 37 + 37)}
    assert missing(account) == lost
    kept = b"".join(frame for number, frame in enumerate(frames) if number not in lost)
    assert recording.on_disk().bytes() == kept
    assert f"{3 + len(on_lost_disk)} of 40 blocks are in none of the 2 files" in recording.last("warning")["text"]


def test_a_file_that_is_cut_gives_its_whole_frames(store, tmp_path):
    frames = wire.run_of_frames(37 * 3, fps=200)
    (path,) = scatter(frames, tmp_path, disks=1)
    path.write_bytes(path.read_bytes()[:-1500])
    account, recording = record(f"mark6:{path}?fps=200&name=x", store)
    assert recording.on_disk().bytes() == b"".join(frames[:-2])
    assert "the file is cut" in recording.last("warning")["text"]


@pytest.mark.parametrize(
    "spoil, why",
    [
        (lambda raw: b"\0" + raw[1:], "instead of 0xfeed6666"),
        (lambda raw: raw[:10], "fewer than the 20 bytes"),
        (lambda raw: raw[:4] + b"\x09" + raw[5:], "version 9 is not known"),
    ],
)
def test_files_that_are_no_mark_6_files_are_refused(spoil, why, store, tmp_path):
    (path,) = scatter(wire.run_of_frames(37), tmp_path, disks=1)
    path.write_bytes(spoil(path.read_bytes()))
    done = run("record", f"mark6:{path}", "--store", store, "--session", "a", "--scan", "b", code=(FOUND, REFUSED))
    assert why in text(done.stderr)


def test_files_of_two_recordings_are_refused(store, tmp_path):
    one = scatter(wire.run_of_frames(37), tmp_path / "one", disks=1)
    other = scatter(wire.run_of_frames(37), tmp_path / "other", disks=1)
    done = run("record", f"mark6:{one[0]},{other[0]}", "--store", store, "--session", "a", "--scan", "b", code=(FOUND, REFUSED))
    assert "block 0 is in" in text(done.stderr)
