"""What a newcomer does first: `fullbore demo`, and the lines of the README as they are written."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import baseband.data
import pytest
from fullbore import BINARY, GOOD, REFUSED, REPOSITORY, Recording, ask, free_port, generate_command, run


@pytest.mark.slow
def test_the_demonstration_verifies_and_its_replay_is_equal(tmp_path, monkeypatch):
    # The real sample is found where the package that ships it is installed for the python3 of the PATH.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    done = ask("demo", "--rate", "50Mbit/s", "--directory", tmp_path / "demo", code=GOOD)
    assert done["verified"] and done["replay_equal"] and done["nothing_lost"]
    assert Path(done["payload"]).samefile(baseband.data.SAMPLE_VDIF)
    assert len(done["scans"]) >= 2
    sample = ["--sample", baseband.data.SAMPLE_VDIF]
    run("demo", "--rate", "20Mbit/s", "--directory", tmp_path / "gone", "--clean", *sample, code=GOOD)
    assert not (tmp_path / "gone").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("kept")
    run("demo", "--rate", "5Mbit/s", "--directory", tmp_path / "mine", "--clean", code=GOOD)
    assert [it.name for it in (tmp_path / "mine").iterdir()] == ["precious.txt"], "only what it made is removed"
    (tmp_path / "empty").mkdir()
    run("demo", "--rate", "5Mbit/s", "--directory", tmp_path / "empty", "--clean", code=GOOD)
    assert list((tmp_path / "empty").iterdir()) == [], "a directory that was there stays, though it is empty"
    refused = run("demo", "--sample", tmp_path / "no such.vdif", "--directory", tmp_path / "none", code=REFUSED)
    assert b"no such.vdif" in refused.stderr and not (tmp_path / "none").exists()


@pytest.mark.slow
def test_the_first_recording_of_the_readme_works_as_written(tmp_path):
    """Only places are others: the directories, and the host that is played to."""
    text = (REPOSITORY / "README.md").read_text()
    section = text.split("## A first recording")[1].split("##")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    assert lines[0].startswith("make release"), lines[0]
    script = "\n".join(["set -e", *lines[1:]])
    script = script.replace("/tmp/", f"{tmp_path}/").replace("192.0.2.7", "127.0.0.1")
    # A machine that is busy with other tests does not keep the timing, which is told by exit code 1.
    script = "\n".join(f"{line} || [ $? = 1 ]" if " play " in line else line for line in script.splitlines())
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "fullbore").symlink_to(BINARY)
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, timeout=120)
    told = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 0, told
    assert re.search(r"test_one: COMPLETE: all .*\n  intact: ", told), told
    # All that was sent came: nothing before `armed`.
    account = json.loads(next(tmp_path.glob("disk*/test_one_ds46220/.fullbore/account.json")).read_text())
    assert account["terms"]["written"] == account["terms"]["expected"], told
    assert account["first"]["time"] < account["last"]["time"] and account["verdict"] == "proven", told
    for stream in range(46220, 46228):
        files = list(tmp_path.glob(f"disk*/test_one_ds{stream}/test_one_ds{stream}.00000000"))
        assert len(files) == 1, told


def test_the_recipe_of_the_readme_joins_the_chunks_of_two_disks_in_order(tmp_path):
    port = free_port()
    disks = [tmp_path / "disk0", tmp_path / "disk1"]
    for disk in disks:
        disk.mkdir()
    source = f"udp://127.0.0.1:{port}?format=vdif&block=64KiB"
    options = ["--chunk", "2MB", "--buffer", "256MiB"]
    with Recording(source, store=disks, options=options) as recording:
        run(*generate_command(port, frame=8032, fps=4000, frames=4000)[1:], code=GOOD)
        recording.wait("progress", lambda told: told["streams"][0]["frames"] >= 4000)
    chunks = sorted(tmp_path.glob("disk*/test_one/test_one.????????"))
    assert len(chunks) > 10 and len({chunk.parents[1] for chunk in chunks}) == 2
    section = (REPOSITORY / "README.md").read_text().split("## A first recording")[1].split("##")[0]
    start = section.index("    fullbore cat ")
    recipe = section[start : section.index("\n\n", start)]
    # This scan has one stream, so its name is that of the scan.
    recipe = recipe.replace("test_one/46220", "test_one").replace("test_one_ds46220", "test_one")
    recipe = recipe.replace("/tmp/", f"{tmp_path}/").replace("fullbore", str(BINARY), 1)
    done = subprocess.run(["bash", "-c", f"set -euo pipefail\n{recipe}"], capture_output=True, timeout=60)
    hashes = [line.split()[0] for line in done.stdout.decode().splitlines()]
    in_order = hashlib.sha256(b"".join(it.read_bytes() for it in sorted(chunks, key=lambda it: it.suffix))).hexdigest()
    by_glob = hashlib.sha256(b"".join(it.read_bytes() for it in chunks)).hexdigest()
    assert done.returncode == 0 and hashes == [in_order, in_order], done.stderr.decode()
    assert by_glob != in_order, "the disks are dealt to in turn, so a pattern alone gives another order"
