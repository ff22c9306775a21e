"""The doctor: a saved host, and changes of a real interface with `ethtool` as the judge."""

import json
import os
import subprocess
import uuid

import pytest
from fullbore import BINARY, FOUND, GOOD, INCOMPLETE, REFUSED, run

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="interfaces need root")


def put(root, **files):
    for name, text in files.items():
        place = root / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def host(root):
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    put(
        root,
        proc__sys__kernel__hostname="saved\n",
        proc__sys__net__core__rmem_max="212992\n",
        proc__sys__net__core__netdev_max_backlog="30000\n",
        sys__kernel__mm__transparent_hugepage__enabled="always madvise [never]\n",
    )


def doctor(*words, code):
    return json.loads(run("doctor", *words, "--json", code=code).stdout)


def test_a_saved_host_is_judged_by_its_files(tmp_path):
    host(tmp_path)
    report = doctor("--root", tmp_path, code=FOUND)
    assert report["host"] == "saved"
    grades = {finding["id"]: finding["grade"] for finding in report["findings"]}
    assert grades["rmem-max"] == grades["huge-pages"] == "problem"
    assert grades["backlog"] == "good"
    assert grades["clock"] == grades["governor"] == grades["interface"] == "unknown"
    for finding in report["findings"]:
        if finding["grade"] in ("problem", "advice"):
            assert finding["cost"] and finding["command"]


def test_chosen_checks_decide_the_exit_code(tmp_path):
    host(tmp_path)
    doctor("--root", tmp_path, "--only", "backlog", code=GOOD)
    doctor("--root", tmp_path, "--only", "clock", code=INCOMPLETE)
    assert "no check `x`" in run("doctor", "--root", tmp_path, "--only", "x", code=REFUSED).stderr.decode()


def test_lasting_files_are_sysctl_and_systemd(tmp_path):
    host(tmp_path)
    run("doctor", "--root", tmp_path, "--systemd", tmp_path, code=FOUND)
    assert "net.core.rmem_max = 268435456\n" in (tmp_path / "60-fullbore.conf").read_text()
    unit = (tmp_path / "fullbore-host.service").read_text()
    assert "ExecStart=-/bin/sh -c 'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled'\n" in unit
    # The shell that systemd starts has no complaint.
    for line in unit.splitlines():
        if line.startswith("ExecStart=-/bin/sh -c "):
            subprocess.run(["sh", "-n", "-c", line.split("'")[1]], check=True)


def test_nothing_is_changed_without_an_answer(tmp_path):
    undo = tmp_path / "undo.json"
    host(tmp_path)
    done = run("doctor", "--fix", "--only", "rmem-max", "--undo-file", undo, code=(GOOD, REFUSED))
    if done.returncode == REFUSED:
        assert "add --yes" in done.stderr.decode()
    assert not undo.exists()
    assert "undo.json" in run("doctor", "--undo", "--undo-file", undo, code=REFUSED).stderr.decode()


@pytest.fixture
def namespace():
    """A network of its own with an interface `fb0`."""
    name = f"fb-{uuid.uuid4().hex[:8]}"

    def inside(*words):
        return subprocess.run(
            ["ip", "netns", "exec", name, *map(str, words)], check=True, capture_output=True, text=True
        ).stdout

    try:
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespace here: {error}")
    try:
        inside("ip", "link", "add", "fb0", "type", "veth", "peer", "name", "fb1")
        inside("ip", "link", "set", "fb0", "up")
        yield inside
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@needs_root
def test_settings_of_an_interface_are_found_changed_and_put_back(namespace, tmp_path):
    def gro():
        features = namespace("ethtool", "-k", "fb0").splitlines()
        (line,) = [line for line in features if line.startswith("generic-receive-offload:")]
        return line.split()[1]

    def flush():
        return namespace("cat", "/sys/class/net/fb0/gro_flush_timeout").strip()

    def grades():
        words = ["sh", "-c", '"$@" || true', "sh", BINARY, "doctor", "--interface", "fb0", "--json"]
        report = json.loads(namespace(*words, "--only", "gro,gro-batching,rx-ring,lro"))
        return {finding["id"]: finding["grade"] for finding in report["findings"]}

    undo = tmp_path / "undo.json"
    namespace("ethtool", "-K", "fb0", "gro", "off")
    before = gro(), flush()
    assert before == ("off", "0")
    # A virtual interface has no ring, which is not known and not good.
    assert grades() == {"gro": "advice", "gro-batching": "advice", "rx-ring": "unknown", "lro": "good"}

    fix = [BINARY, "doctor", "--interface", "fb0", "--only", "gro,gro-batching", "--undo-file", undo]
    told = namespace(*fix, "--fix", "--yes")
    assert "done: ethtool -K fb0 gro on" in told
    assert (gro(), flush()) == ("on", "100000")
    assert {"gro": "good", "gro-batching": "good"}.items() <= grades().items()
    kept = json.loads(undo.read_text())["before"]
    assert {"kind": "gro", "card": "fb0", "on": False} in kept

    # A second change keeps the oldest values.
    namespace("ethtool", "-K", "fb0", "gro", "off")
    namespace("sh", "-c", "echo 5 > /sys/class/net/fb0/gro_flush_timeout")
    namespace("sh", "-c", "echo 0 > /sys/class/net/fb0/napi_defer_hard_irqs")
    namespace(*fix, "--fix", "--yes")
    assert json.loads(undo.read_text())["before"] == kept

    namespace(*fix[:2], "--undo", "--undo-file", undo)
    assert (gro(), flush()) == before
    assert not undo.exists()
