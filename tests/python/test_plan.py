"""Plans: published systems, machines read from /sys and from hwloc, the page, and exit codes."""

import json
import os
import subprocess
import sysconfig
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import trees
from fullbore import FOUND, GOOD, INCOMPLETE, REFUSED, run

DISKS = """
[[disks]]
name = "drive"
at = ["nvme0n1"]
write = "2GB/s"
stall = "50ms"
capacity = "4TB"
"""

VERDICTS = {
    "chassis": (FOUND, "does-not-fit"),
    "chassis-apart": (GOOD, "fits"),
    "terabyte": (FOUND, "does-not-fit"),
    "nvme-peak": (FOUND, "does-not-fit"),
    "nvme-continuous": (GOOD, "fits"),
    "station": (INCOMPLETE, "fits-with-warnings"),
    "panda": (GOOD, "fits"),
}


ANY = (GOOD, FOUND, INCOMPLETE)


def plan(*words, code=ANY):
    return json.loads(run("plan", *words, "--json", code=code).stdout)


def of(answer, rule):
    return [finding for finding in answer["findings"] if finding["id"] == rule]


@pytest.mark.parametrize("name, expected", VERDICTS.items(), ids=VERDICTS.keys())
def test_examples_have_the_answer_of_their_source(name, expected):
    code, verdict = expected
    answer = plan("--example", name, code=code)
    assert answer["verdict"] == verdict
    for finding in answer["findings"]:
        if finding["state"] == "not-known":
            assert finding["because"] and finding["advice"]
        if "need" in finding and "have" in finding:
            for side in finding["need"], finding["have"]:
                assert side["figure"]["origin"] in ("measured", "read", "given", "table", "assumed")
                assert side["figure"]["source"] and side["text"]


def test_the_station_stores_480_files_of_10_gigabytes():
    answer = plan("--example", "station")
    (duration,) = of(answer, "R11")
    assert duration["need"]["figure"]["value"] == 480 * 10e9
    assert duration["state"] == "holds"


def test_the_description_of_an_example_is_a_plan(tmp_path):
    description = tmp_path / "station.toml"
    description.write_bytes(run("plan", "--example", "station", "--toml").stdout)
    assert plan(description)["findings"] == plan("--example", "station")["findings"]
    # Options override it: 20 TB are full before a week of recording ends.
    longer = plan(description, "--duration", "7d", code=FOUND)
    assert of(longer, "R11")[0]["state"] == "broken"


def lstopo(root, xml):
    """Reads a directory tree with hwloc."""
    prefix = Path(sysconfig.get_paths()["purelib"]) / "cmeel.prefix"
    environment = os.environ | {
        "HWLOC_FSROOT": str(root), "HWLOC_THISSYSTEM": "0", "HWLOC_COMPONENTS": "linux,stop",
        "LD_LIBRARY_PATH": str(prefix / "lib"),
    }  # fmt: skip
    command = [prefix / "bin/lstopo-no-graphics", "--of", "xml", "--whole-io", xml]
    subprocess.run(command, check=True, capture_output=True, env=environment)


def test_a_tree_and_what_hwloc_reads_from_it_are_one_machine(tmp_path):
    trees.with_switch(tmp_path / "root")
    (tmp_path / "disks.toml").write_text(DISKS)
    xml = tmp_path / "machine.xml"
    lstopo(tmp_path / "root", xml)
    words = [tmp_path / "disks.toml", "--stream", "4x1Gbit/s@ens1"]
    ours = plan(*words, "--sysfs-root", tmp_path / "root")
    theirs = plan(*words, "--hwloc", xml)

    def links(answer):
        # hwloc does not tell the rate of a network.
        return {node["name"]: (node.get("parent"), node.get("usable"), node["internal"])
                for node in answer["nodes"] if node["name"] != "ens1"}  # fmt: skip

    assert links(ours) == links(theirs)
    assert len(ours["nodes"]) == 8
    # And with what hwloc wrote, read by another parser.
    speeds = {item.get("pci_busid"): float(item.get("pci_link_speed"))
              for item in ElementTree.parse(xml).iter("object") if item.get("pci_busid")}  # fmt: skip
    for node in ours["nodes"]:
        if node["name"] in speeds and "usable" in node:
            raw = node["usable"] * (128 + 28) / 128
            assert raw / 1e9 == pytest.approx(speeds[node["name"]], rel=1e-3)


def test_the_link_that_is_too_slow_is_named(tmp_path):
    trees.with_switch(tmp_path)
    (tmp_path / "disks.toml").write_text(DISKS)
    answer = plan(tmp_path / "disks.toml", "--sysfs-root", tmp_path, "--stream", "4x2Gbit/s@ens1", code=FOUND)
    broken = [finding for finding in of(answer, "R1") if finding["state"] == "broken"]
    assert [finding["subject"] for finding in broken] == ["the link of 0000:04:00.0, towards memory"]
    (low,) = [finding for finding in of(answer, "R7") if finding["state"] == "broken"]
    assert "0000:04:00.0" in low["subject"]
    assert of(answer, "R3")[0]["state"] == "broken"
    assert answer["narrowest"]["node"] == "0000:04:00.0"


def test_this_machine_is_never_passed_by_what_it_does_not_tell(tmp_path):
    member = tmp_path / "member"
    member.mkdir()
    home = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "empty")}
    words = ("plan", "--stream", "2x1Gbit/s", "--store", member, "--duration", "1s", "--json")
    answer = json.loads(run(*words, code=(FOUND, INCOMPLETE), env=home).stdout)
    assert of(answer, "R9")[0]["state"] == "not-known", "nothing was measured"
    assert of(answer, "R11")[0]["have"]["figure"]["origin"] == "read"
    assert answer["verdict"] in ("not-known", "does-not-fit")


def test_a_page_has_the_machine_and_fetches_nothing(tmp_path):
    page = tmp_path / "station.html"
    run("plan", "--example", "station", "--html", page, code=INCOMPLETE)
    text = page.read_text()
    drawing = text[text.index("<svg") : text.index("</svg>") + 6]
    root = ElementTree.fromstring(drawing)
    names = {element.text for element in root.iter("text")}
    assert {"memory", "nic0", "port0", "uplink", "hba1", "pool7"} <= names
    assert sum(element.tag == "path" for element in root.iter()) == 15
    for outside in ("http:", "https:", "<script", "src=", "url("):
        assert outside not in text


@pytest.mark.parametrize("words, why", [
    ([], "no stream is given"),
    (["--stream", "fast"], "is no stream"),
    (["--stream", "1GB/s@nowhere"], "no place `nowhere`"),
    (["--example", "nothing"], "the examples are chassis"),
    (["--sysfs-root", "/proc", "--stream", "1GB/s"], "no PCI devices"),
    (["--hwloc", "/dev/null", "--stream", "1GB/s"], "no topology of hwloc"),
    (["/nonexistent.toml"], "No such file"),
    (["--stream", "1GB/s", "--scans", "3"], "need record"),
], ids=str)  # fmt: skip
def test_mistakes_are_refused(words, why):
    assert why in run("plan", *words, code=REFUSED).stderr.decode()
