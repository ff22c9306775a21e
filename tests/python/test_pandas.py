"""Several PandAs recorded side by side into HDF5 files: in step, each with its account, and a master file that shows
all."""

import re

import h5py
import numpy as np
import pytest

import test_panda_server as known
from fullbore import GOOD, REFUSED, ask, run, text
from panda import Panda, Told, acquisitions
from test_panda import check_raw, columns

PROVEN = [[["panda1", "proven"], ["panda2", "proven"]]]


def together(pandas, file, *options):
    """A running `fullbore panda record` of several PandAs."""
    endpoints = [panda if isinstance(panda, str) else panda.endpoint for panda in pandas]
    return Told("panda", "record", *endpoints, file, "--reconnect", "1s", *options)


def verdicts(record):
    return [[[it["panda"], it["verdict"]] for it in acquisitions(1, scan)] for scan in record.all("sealed")]


def of(record, panda):
    return [it for it in record.acquisitions() if it["panda"] == panda]


def arm_time(acquisition):
    return np.datetime64(re.search(r'arm_time="([^"]*)Z"', acquisition["header"])[1])


def test_each_panda_has_a_file_as_its_client_writes_it_and_one_file_shows_them(tmp_path):
    """The references: h5py, and the output of PandABlocks-client for each."""
    with known.Panda("--samples", 30_000) as first, known.Panda("--samples", 50_000) as second:
        to = f"hdf5:{tmp_path}/scan-%d.h5"
        with Told("record", *(f"panda://{it.host}" for it in (first, second)), "--to", to, "--arm", "--scans", 2) as record:
            record.ends(GOOD)
        for number, panda in enumerate((first, second), 1):
            known.client("hdf", "--arm", panda.host, tmp_path / f"client{number}-%d.h5")
    assert verdicts(record) == 2 * PROVEN
    assert [(scan["expected"], scan["recorded"], scan["complete"]) for scan in record.all("sealed")] == [(80_000, 80_000, True)] * 2
    names = {path.name for path in tmp_path.iterdir() if path.name.startswith("scan")}
    assert names == {f"scan-{n}{of}.h5" for n in (1, 2) for of in ("", "_panda1", "_panda2")}
    for scan in (1, 2):
        with h5py.File(tmp_path / f"scan-{scan}.h5") as all_:
            assert set(all_) == {"panda1", "panda2"}
            for number, samples in ((1, 30_000), (2, 50_000)):
                group = all_[f"panda{number}"]
                known.check_file(tmp_path / f"scan-{scan}_panda{number}.h5", samples)
                with h5py.File(tmp_path / f"client{number}-1.h5") as theirs:
                    assert set(columns(group)) == set(theirs)
                    for name, values in columns(group).items():
                        assert values.dtype == theirs[name].dtype
                        np.testing.assert_array_equal(values, theirs[name][()], err_msg=name)
                assert (group.attrs["verdict"], group.attrs["samples"]) == ("proven", samples)


def test_no_panda_is_armed_again_before_all_have_ended(tmp_path):
    with Panda("--samples", 1000) as quick, Panda("--samples", 80_000, "--rate", 1e5) as slow:
        with together([quick, slow], tmp_path / "all.h5", "--raw", "--arm", "--num", 3) as record:
            record.ends(GOOD)
        assert len(quick.all("begun")) == len(slow.all("begun")) == 3
    armed = {name: [arm_time(it) for it in of(record, name)] for name in ("panda1", "panda2")}
    for number in (1, 2):
        # The slow one takes 800 ms for its samples, and only then either is armed again.
        for name in armed:
            assert armed[name][number] - armed["panda2"][number - 1] >= np.timedelta64(800, "ms"), armed
    assert verdicts(record) == 3 * PROVEN
    with h5py.File(tmp_path / "all.h5") as all_:
        for name, samples in (("panda1", 1000), ("panda2", 80_000)):
            whole = np.tile(np.arange(samples), 3)
            np.testing.assert_array_equal(all_[name]["PCAP.BITS0.Value"][()], whole)
            rows = [list(set_[()]) for key, set_ in all_[name]["acquisitions"].items() if key.startswith("first")]
            assert rows == [[0, samples, 2 * samples]]


def test_when_one_dies_the_others_end_theirs_and_nothing_more_is_armed(tmp_path):
    with Panda("--rate", 1e5) as dies, Panda("--samples", 300_000, "--rate", 1e5) as lives:
        with together([dies, lives], tmp_path / "scan-%d.h5", "--raw", "--arm", "--num", 3) as record:
            record.wait_samples(20_000, "panda1")
            dies.process.kill()
            record.ends(REFUSED)
        assert len(lives.all("begun")) == 1
    assert "panda1: " in record.said() and "connecting" in record.said()
    (scan,) = record.all("sealed")
    assert verdicts(record) == [[["panda1", "unproven"], ["panda2", "proven"]]] and "panda1" in record.warnings()
    # No loss is known, and the number of samples that the dead one took is unknown.
    assert scan["complete"] is not True and not scan["headline"].startswith("COMPLETE")
    check_raw(tmp_path / "scan-1_panda2.h5", count=300_000)
    kept = check_raw(tmp_path / "scan-1_panda1.h5", count=of(record, "panda1")[0]["samples"])
    with h5py.File(tmp_path / "scan-1.h5") as all_:
        lengths = {name: len(group["PCAP.BITS0.Value"]) for name, group in all_.items()}
    assert lengths == {"panda1": kept, "panda2": 300_000} and kept > 0


def test_a_stop_disarms_all_and_every_sample_is_there(tmp_path):
    with Panda("--rate", 1e5) as one, Panda("--rate", 2e5) as other:
        named = [one, other.endpoint + "&name=detector"]
        with together(named, tmp_path / "all.h5", "--raw", "--arm", "--num", 0) as record:
            for panda in ("panda", "detector"):
                record.wait_samples(10_000, panda)
            record.interrupt()
            ended = record.ends(GOOD)
    assert {told["panda"]: told["verdict"] for told in ended} == {"panda": "proven", "detector": "proven"}
    for told in ended:
        assert told["captured"] == told["samples"]
        check_raw(tmp_path / f"all_{told['panda']}.h5", count=told["samples"])
    with h5py.File(tmp_path / "all.h5") as all_:
        assert set(all_) == {"panda", "detector"}


def test_each_file_of_a_recorder_that_was_killed_is_recovered(tmp_path):
    with Panda("--rate", 1e5) as one, Panda("--rate", 1e5) as other:
        with together([one, other], tmp_path / "all.h5", "--raw", "--arm", "--flush", "100ms") as record:
            for panda in ("panda1", "panda2"):
                record.wait_visible(10_000, panda)
            record.process.kill()
            record.ends(code=None)
    for name in ("panda1", "panda2"):
        told = ask("recover", tmp_path / f"all_{name}.h5")
        assert check_raw(tmp_path / f"all_{name}.h5", count=told["rows"]) > 10_000


def test_scans_are_added_to_the_files_of_each_and_what_shows_them_is_renewed(tmp_path):
    with Panda("--samples", 1000) as one, Panda("--samples", 2000) as other:
        for _ in range(2):
            with together([one, other], tmp_path / "all.h5", "--raw", "--arm", "--existing", "append") as record:
                record.ends(GOOD)
        with h5py.File(tmp_path / "all.h5") as all_:
            assert [len(all_[name]["PCAP.BITS0.Value"]) for name in ("panda1", "panda2")] == [2000, 4000]
        with together([one, other], tmp_path / "all.h5", "--raw", "--arm", "--existing", "overwrite") as record:
            record.ends(GOOD)
        with h5py.File(tmp_path / "all.h5") as all_:
            assert [len(all_[name]["PCAP.BITS0.Value"]) for name in ("panda1", "panda2")] == [1000, 2000]


@pytest.mark.parametrize("there", ["all.h5", "all_panda2.h5"])
def test_names_are_looked_at_before_anything_is_armed(there, tmp_path):
    (tmp_path / there).write_bytes(b"not to be lost")
    with Panda() as one, Panda() as other:
        said = text(run("panda", "record", one.endpoint, other.endpoint, tmp_path / "all.h5", "--arm", code=REFUSED).stderr)
        assert f"{there} is there already" in said
        assert not one.all("begun") and not other.all("begun")
    assert [path.name for path in tmp_path.iterdir()] == [there]


def test_a_panda_given_twice_or_not_there_is_told_before_anything_is_made(tmp_path):
    with Panda() as panda:
        for words, told in (
            ((panda.endpoint, panda.endpoint), "are one source"),
            ((panda.endpoint, "panda://127.0.0.1:1?data=1"), "connecting to the PandA"),
            ((panda.endpoint + "&name=a", "panda://127.0.0.1:1?data=1&name=a"), "two sources are named `a`"),
        ):
            assert told in text(run("panda", "record", *words, tmp_path / "x.h5", "--arm", code=REFUSED).stderr)
        assert not panda.all("begun")
    assert list(tmp_path.iterdir()) == []
