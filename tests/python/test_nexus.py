"""Files of a PandA as programs for NeXus files see them: silx is what beamlines view them with."""

import h5py
import numpy as np
import pytest
from fullbore import REFUSED, run, text
from panda import Panda, Told
from test_panda_server import COLUMNS, truth

nxdata = pytest.importorskip("silx.io.nxdata")

SAMPLES = 5_000


def recorded(place, parameters="", more=()):
    path = place / "x.h5"
    with Panda("--samples", SAMPLES) as panda:
        with Told("record", panda.endpoint, "--to", f"hdf5:{path}{parameters}", "--arm", *more) as record:
            record.ends()
    return path


def test_silx_finds_the_first_position_over_the_time(tmp_path):
    with h5py.File(recorded(tmp_path)) as file:
        found = nxdata.get_default(file)
        assert found is not None and found.is_valid, found
        assert (found.group.name, found.signal_dataset_name) == ("/entry/data", "COUNTER1.OUT.Min")
        np.testing.assert_array_equal(found.signal[()], truth(found.signal_dataset_name, SAMPLES))
        assert found.axes_dataset_names == ["PCAP.TS_START.Value"]
        np.testing.assert_allclose(found.axes[0][()], truth("PCAP.TS_START.Value", SAMPLES), rtol=1e-15)
        assert {found.signal_dataset_name, *found.axes_dataset_names, *found.auxiliary_signals_dataset_names} == set(COLUMNS)
        for name, values in zip(found.auxiliary_signals_dataset_names, found.auxiliary_signals):
            np.testing.assert_allclose(values[()], truth(name, SAMPLES), rtol=1e-15, err_msg=name)
        assert file["entry/data/COUNTER2.OUT.Min"].attrs["units"] == "mm"
        assert "instrument" not in file["entry"]


def test_links_follow_while_the_file_grows_and_over_several_acquisitions(tmp_path):
    path = tmp_path / "x.h5"
    with Panda("--samples", 40_000, "--rate", 100_000) as panda:
        to = f"hdf5:{path}?flush=50ms&scaled=false"
        with Told("record", panda.endpoint, "--to", to, "--arm", "--scans", 2) as record:
            seen = record.wait_visible(1_000, "panda")
            with h5py.File(path, swmr=True) as file:
                assert len(nxdata.get_default(file).signal) >= seen
            record.ends()
    with h5py.File(path) as file:
        np.testing.assert_array_equal(nxdata.get_default(file).signal[()], np.tile(np.arange(40_000), 2))


@pytest.mark.parametrize("nexus", ["areadetector", "off"])
def test_the_target_says_which_names_there_are(nexus, tmp_path):
    with h5py.File(recorded(tmp_path, f"?nexus={nexus}")) as file:
        if nexus == "off":
            assert set(file) == set(COLUMNS) and "NX_class" not in file.attrs
        else:
            assert nxdata.get_default(file).signal_dataset_name == "COUNTER1.OUT.Min"
            there = file["entry/instrument/NDAttributes"]
            assert there.attrs["NX_class"] == "NXcollection" and set(there) == set(COLUMNS)
            np.testing.assert_array_equal(there["COUNTER3.OUT.Value"][()], np.arange(SAMPLES))


def test_other_names_are_refused(tmp_path):
    said = text(run("record", "panda://127.0.0.1:1", "--to", f"hdf5:{tmp_path}/x.h5?nexus=dawn", code=REFUSED).stderr)
    assert "areadetector" in said, said
