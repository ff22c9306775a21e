"""The places of scans: the default store, members without write permission, file systems in memory."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import wire
from disks import unmount
from fullbore import FOUND, GOOD, INTACT, REFUSED, Recording, ask, free_port, run

MEMORY = Path("/dev/shm")


def record(store, **more):
    """Records a second of frames; returns the recording, sealed, and the data sent."""
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000", store=store, **more) as recording:
        sent = wire.send(wire.run_of_frames(1100), port)
    return recording, b"".join(sent)


@pytest.mark.parametrize("variable, below", [
    ("XDG_DATA_HOME", "fullbore"), ("HOME", ".local/share/fullbore"),
])  # fmt: skip
def test_without_a_store_scans_lie_in_the_users_data_directory(variable, below, tmp_path):
    unset = ("XDG_DATA_HOME", "HOME", "FULLBORE_STORE")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    env[variable] = str(tmp_path)
    recording, sent = record(tmp_path / below, env=env)
    assert recording.on_disk().bytes() == sent
    assert b"test_one" in run("ls", env=env).stdout
    run("verify", "test_one", env=env, code=GOOD)
    del env[variable]
    told = run("ls", env=env, code=REFUSED).stderr.decode()
    assert "--store" in told


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_member_that_is_mounted_read_only_is_read_and_never_recorded_to(store, tmp_path):
    recording, _ = record(store)
    fixed = tmp_path / "fixed"
    fixed.mkdir()
    try:
        subprocess.run(["mount", "--bind", store, fixed], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no bind mount here: {error.stderr.decode().strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", fixed], check=True, capture_output=True)
        words = ["--store", fixed, "--session", "test", "--scan", "two"]
        told = run("record", f"udp://127.0.0.1:{free_port()}", *words, code=REFUSED).stderr.decode()
        assert str(fixed) in told and "read-only" in told.lower(), told
        for verb in (["verify"], ["info"], ["cat"]):
            run(*verb, recording.scan, "--store", fixed, code=GOOD)
        told = run("rm", recording.scan, "--yes", "--store", fixed, code=REFUSED).stderr.decode()
        assert "read-only" in told.lower(), told
        run("verify", recording.scan, "--store", fixed, code=GOOD)
    finally:
        unmount(fixed)


@pytest.mark.skipif(not MEMORY.is_dir(), reason="no /dev/shm")
def test_a_member_in_memory_is_said_to_be_one():
    member = Path(tempfile.mkdtemp(dir=MEMORY))
    try:
        recording, sent = record(member)
        warnings = " ".join(event["text"] for event in recording.events if event["event"] == "warning")
        assert f"{member}: tmpfs is memory" in warnings
        (told,) = recording.wait("sealed")["manifest"]["members"]
        # Support of direct writes depends on the kernel; a lack of it is reported.
        assert told["buffered"] == ("no direct I/O" in warnings)
        assert recording.on_disk().bytes() == sent
    finally:
        shutil.rmtree(member)


def test_a_damaged_identity_of_a_member_is_found_and_the_scan_is_still_read(stores):
    recording, sent = record(stores)
    names = ",".join(map(str, stores))
    run("verify", recording.scan, "--store", names, code=INTACT)
    file = stores[1] / ".fullbore/member.json"
    whole = file.read_bytes()
    assert json.loads(whole)["crc32c"]
    for bit in range(0, len(whole) * 8, 61):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        told = ask("verify", recording.scan, "--store", names, code=FOUND)
        assert [(it["what"], it["file"]) for it in told["findings"]] == [("member-unidentified", str(file))], bit
        assert run("cat", recording.scan, "--store", names).stdout == sent
    # Without its checksum, as version 0.1.0 wrote it, it is as good as before.
    file.write_text('{\n  "uuid": "%s"\n}\n' % json.loads(whole)["uuid"])
    run("verify", recording.scan, "--store", names, code=INTACT)


def test_a_member_that_is_not_mounted_and_holds_no_data_is_told_in_plain_words(memory_disk):
    members = [memory_disk("64m"), memory_disk("64m")]
    recording, sent = record(members)
    names = ",".join(map(str, members))
    # The only chunk is on one of them.
    (unmounted,) = [member for member in members if not list(member.glob("test_one*/test_one*.*"))]
    subprocess.run(["umount", "-l", unmounted], check=True)
    try:
        told = run("verify", recording.scan, "--store", names, code=FOUND).stdout.decode()
        data = run("cat", recording.scan, "--store", names).stdout
    finally:
        # The fixture unmounts it.
        subprocess.run(["mount", "-t", "tmpfs", "none", unmounted], check=True)
    assert told.startswith("NOT ALL HERE: 1 member is not attached; all recorded frames can be read without"), told
    assert f"{unmounted} is not attached: its disk is not mounted there, or was replaced" in told
    assert data == sent


@pytest.mark.parametrize("relative", [False, True], ids=["full paths", "relative paths"])
def test_a_member_without_its_identity_is_found_and_the_scan_is_still_read(relative, stores, monkeypatch):
    recording, sent = record(stores)
    names = ",".join(map(str, stores))
    if relative:
        monkeypatch.chdir(stores[0].parent)
        names = ",".join(member.name for member in stores)
    file = stores[1] / ".fullbore/member.json"
    whole = file.read_bytes()
    file.unlink()
    told = ask("verify", recording.scan, "--store", names, code=FOUND)
    (found,) = told["findings"]
    assert (found["what"], Path(found["file"]).absolute()) == ("member-file-missing", file)
    assert found["uuid"] == json.loads(whole)["uuid"]
    for verb in (["ls"], ["info", recording.scan]):
        assert b"ABSENT" not in run(*verb, "--store", names).stdout
    assert run("cat", recording.scan, "--store", names).stdout == sent
    file.write_bytes(whole)
    run("verify", recording.scan, "--store", names, code=INTACT)
