"""Plans of bluesky with a PandA that fullbore records. tiled and h5py read what the documents name.

The reference for samples is the simulated PandA, in which every 32-bit word of raw sample i is i.
"""

import functools
import importlib
import itertools
import json
import os
import subprocess
import sys

import h5py
import numpy as np
import package
import pytest
from fullbore import BINARY, PATIENCE, REPOSITORY
from panda import Panda
from test_panda_server import COLUMNS, truth

bluesky = pytest.importorskip("bluesky")
import bluesky.plan_stubs as bps
import bluesky.preprocessors as bpp
import event_model
from bluesky.utils import FailedStatus
from ophyd_async.core import DetectorTrigger, StaticFilenameProvider, StaticPathProvider, TriggerInfo, init_devices

PLANS = REPOSITORY / "docs/howto/panda_plans.py"
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(package.place()),
    "PATH": f"{os.path.dirname(BINARY)}:{os.environ['PATH']}",
}
KEYS = {f"panda-{column.replace('.', '-')}": column for column in COLUMNS}
# Of this size, so that memory is locked quickly.
BUFFER = {"buffer": "64MiB"}


@pytest.fixture(scope="module")
def ophyd():
    package.load()
    return importlib.import_module("fullbore_package.ophyd")


@pytest.fixture(autouse=True)
def with_the_program(monkeypatch):
    monkeypatch.setenv("PATH", ENVIRONMENT["PATH"])


@functools.cache
def engine():
    return bluesky.RunEngine()


def detector(ophyd, panda, place, **options):
    engine()  # starts the event loop
    endpoint = panda if isinstance(panda, str) else panda.endpoint
    provider = StaticPathProvider(StaticFilenameProvider("run"), place)
    with init_devices():
        made = ophyd.PandaDetector(endpoint, provider, name="panda", **{**BUFFER, **options})
    return made


class Documents:
    """The documents of a run, each valid by the schema of its kind."""

    def __init__(self):
        self.kept = []

    def __call__(self, name, document):
        document = json.loads(json.dumps(document, default=list))
        event_model.schema_validators[event_model.DocumentNames[name]].validate(document)
        self.kept.append((name, document))

    def of(self, name):
        return [document for kind, document in self.kept if kind == name]

    def values(self, key):
        """The values of a data key, as the adapter of tiled reads them."""
        from bluesky.consolidators import consolidator_factory

        (resource,) = (resource for resource in self.of("stream_resource") if resource["data_key"] == key)
        consolidator = consolidator_factory(resource, self.of("descriptor")[0])
        for datum in self.of("stream_datum"):
            if datum["stream_resource"] == resource["uid"]:
                consolidator.consume_stream_datum(datum)
        consolidator.validate()
        return consolidator.get_adapter().read().tolist()

    def rows(self):
        """The rows that the documents name, of each data key."""
        keys = {resource["uid"]: resource["data_key"] for resource in self.of("stream_resource")}
        rows = {key: [] for key in keys.values()}
        for datum in self.of("stream_datum"):
            rows[keys[datum["stream_resource"]]].append((datum["indices"]["start"], datum["indices"]["stop"]))
        return rows


def fly(panda, events, samples=1, period=0.05):
    @bpp.stage_decorator([panda])
    @bpp.run_decorator()
    def inner():
        info = TriggerInfo(number_of_events=events, collections_per_event=samples, exposure_timeout=PATIENCE)
        yield from bps.prepare(panda, info, wait=True)
        yield from bps.declare_stream(panda, name="main", collect=True)
        yield from bps.kickoff(panda, wait=True)
        yield from bps.collect_while_completing([panda], [panda], flush_period=period, stream_name="main")

    return (yield from inner())


def step(panda, events, samples, trigger=DetectorTrigger.INTERNAL):
    @bpp.stage_decorator([panda])
    @bpp.run_decorator()
    def inner():
        info = TriggerInfo(trigger=trigger, collections_per_event=samples, exposure_timeout=PATIENCE)
        yield from bps.prepare(panda, info, wait=True)
        for _ in range(events):
            yield from bps.trigger_and_read([panda])

    return (yield from inner())


def fails(plan, documents):
    """Runs a plan that fails, and returns the error as its user sees it."""
    with pytest.raises(Exception) as raised:
        engine()(plan, documents)
    assert documents.of("stop")[0]["exit_status"] in ("fail", "abort")
    chain = itertools.takewhile(lambda it: it is not None, iterate(raised.value))
    return " / ".join(f"{type(it).__name__}: {it}" for it in chain)


def iterate(error):
    while True:
        yield error
        error = error and (error.__cause__ or (error.args[0].exception() if isinstance(error, FailedStatus) and error.args else None))


def check_file(path, samples):
    """A file that is closed: every sample, and an account."""
    with h5py.File(path) as file:
        for column in COLUMNS:
            np.testing.assert_allclose(file[column][()], truth(column, samples), rtol=1e-15, err_msg=column)
        assert file.attrs["samples"] == samples and json.loads(file.attrs["account"])["account"]["terms"]["written"] == samples
        return dict(file.attrs)


@pytest.fixture(scope="module")
def tiled(tmp_path_factory):
    from tiled.server import SimpleTiledServer

    place = tmp_path_factory.mktemp("tiled")
    server = SimpleTiledServer(readable_storage=[str(place)])
    yield server.uri, place
    server.close()


def run_plan(panda, *words):
    """The command line of the guide's plans."""
    command = [sys.executable, PLANS, panda.endpoint, *words]
    done = subprocess.run(list(map(str, command)), env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_plans_of_the_guide_run_and_tiled_serves_every_sample(tiled, tmp_path):
    from tiled.client import from_uri

    uri, place = tiled
    with Panda("--samples", 30_000) as panda:
        told = run_plan(panda, place, "fly", "--events", 600, "--samples", 50, "--tiled", uri)
    assert told[-1].startswith("COMPLETE: all 30 000 samples"), told
    run = from_uri(uri)[told[0].split()[1]]
    assert run.metadata["stop"]["exit_status"] == "success" and run.metadata["stop"]["num_events"] == {"main": 600}
    for key, column in KEYS.items():
        np.testing.assert_allclose(run["main"][key].read(), truth(column, 30_000), rtol=1e-15, err_msg=column)
    with Panda("--samples", 40) as panda:
        told = run_plan(panda, tmp_path, "step", "--events", 3, "--samples", 40)
    assert told[-1].startswith("COMPLETE: all 40 samples"), told
    (path,) = tmp_path.iterdir()
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["PCAP.BITS0.Value"][()], np.tile(np.arange(40), 3))


def test_documents_name_only_rows_that_readers_see(ophyd, tmp_path):
    seen = []

    def look(name, document):
        if name == "stream_resource":
            sets[document["uid"]] = document["parameters"]["dataset"]
        if name == "stream_datum":
            with h5py.File(tmp_path / "run.h5", swmr=True) as file:
                rows = file[sets[document["stream_resource"]]]
                stop = document["indices"]["stop"]
                assert len(rows) >= stop
                wanted = truth(sets[document["stream_resource"]].strip("/"), stop)[-1]
                np.testing.assert_allclose(rows[stop - 1], wanted, rtol=1e-15)
                seen.append(stop)

    sets, documents = {}, Documents()
    with Panda("--samples", 20_000, "--rate", 20_000) as panda:
        made = detector(ophyd, panda, tmp_path, flush="50ms")
        engine()(fly(made, 20_000), {"all": [documents, look]})
    assert len(set(seen)) > 2 and max(seen) == 20_000
    for rows in documents.rows().values():
        assert rows[0][0] == 0 and rows[-1][1] == 20_000
        assert all(before[1] == after[0] for before, after in itertools.pairwise(rows))
    assert check_file(tmp_path / "run.h5", 20_000)["verdict"] == "proven"


@pytest.mark.parametrize("raw", [False, True])
def test_columns_are_described_before_the_first_sample_as_they_are_in_the_file(ophyd, raw, tmp_path):
    documents = Documents()
    fields = "PCAP.BITS0 Value,COUNTER1.OUT Mean,COUNTER2.OUT Min StdDev,PCAP.TS_START Value"
    with Panda("--samples", 100, "--fields", fields) as panda:
        engine()(fly(detector(ophyd, panda, tmp_path, raw=raw), 20, 5), documents)
    (descriptor,) = documents.of("descriptor")
    with h5py.File(tmp_path / "run.h5") as file:
        told = {}
        for key, described in descriptor["data_keys"].items():
            column = next(name for name in file if f"panda-{name.replace('.', '-')}" == key)
            dtype = described["dtype_numpy"]
            dtype = np.dtype(dtype if isinstance(dtype, str) else [tuple(part) for part in dtype])
            assert (described["shape"], described["dtype"], dtype) == ([5], "array", file[column].dtype), key
            assert described.get("units", "") == file[column].attrs.get("units", "") or column.startswith("PCAP.TS_")
            told[column] = described
        for resource in documents.of("stream_resource"):
            column = resource["parameters"]["dataset"].strip("/")
            assert tuple(resource["parameters"]["chunk_shape"]) == file[column].chunks
    assert set(told) >= {"PCAP.BITS0.Value", "COUNTER1.OUT.Mean", "COUNTER2.OUT.Min", "COUNTER2.OUT.StdDev", "PCAP.TS_START.Value"}
    assert told["COUNTER2.OUT.Min"]["units"] == "mm"
    assert set(documents.rows()) == {f"panda-{name.replace('.', '-')}" for name in told}


@pytest.mark.parametrize("trigger", [DetectorTrigger.INTERNAL, DetectorTrigger.EXTERNAL_EDGE])
def test_each_trigger_is_an_acquisition_with_an_account_of_its_own(ophyd, trigger, tmp_path):
    documents = Documents()
    with Panda("--samples", 7) as panda:
        engine()(step(detector(ophyd, panda, tmp_path), 3, 7, trigger), documents)
        assert len(panda.all("begun")) == 3
    assert documents.values("panda-COUNTER2-OUT-Max") == 3 * truth("COUNTER2.OUT.Max", 7).tolist()
    assert all(rows == [(0, 1), (1, 2), (2, 3)] for rows in documents.rows().values())
    assert len(documents.of("event")) == 3
    with h5py.File(tmp_path / "run.h5") as file:
        np.testing.assert_array_equal(file["PCAP.BITS0.Value"][()], np.tile(np.arange(7), 3))
        assert len(set(file["acquisitions/arm_time"].asstr()[()])) == 3
        assert (file.attrs["samples"], bool(file.attrs["complete"])) == (21, True)


def test_a_loss_fails_the_plan_and_is_in_the_account_of_the_file(ophyd, tmp_path):
    documents = Documents()
    with Panda("--samples", 400_000, "--ring", "4MiB", "--fault", "overrun@150000") as panda:
        said = fails(fly(detector(ophyd, panda, tmp_path), 400_000), documents)
    assert "AcquisitionError" in said and ("LOST" in said or "samples are lost" in said), said
    with h5py.File(tmp_path / "run.h5") as file:
        attrs = dict(file.attrs)
        rows = len(file["PCAP.BITS0.Value"])
    assert attrs["complete"] == False and attrs["missing"] > 0 and attrs["samples"] == rows
    assert all(stop <= rows for named in documents.rows().values() for _, stop in named)


def test_a_plan_that_fails_leaves_every_sample_until_then_and_a_sealed_account(ophyd, tmp_path):
    documents = Documents()

    def broken(made):
        @bpp.stage_decorator([made])
        @bpp.run_decorator()
        def inner():
            yield from bps.prepare(made, TriggerInfo(number_of_events=10**9, exposure_timeout=PATIENCE), wait=True)
            yield from bps.declare_stream(made, name="main", collect=True)
            yield from bps.kickoff(made, wait=True)
            yield from bps.complete(made, group="whole")
            while (yield from bps.rd(made.samples)) < 1000:
                yield from bps.sleep(0.05)
            yield from bps.collect(made, name="main")
            raise ZeroDivisionError("the motor is stuck")

        return (yield from inner())

    with Panda("--rate", 20_000) as panda:
        made = detector(ophyd, panda, tmp_path)
        assert "the motor is stuck" in fails(broken(made), documents)
        captured = panda.wait("ended")["captured"]
        # The same detector records again.
        with pytest.raises(Exception, match="run.h5 is there already"):
            engine()(fly(made, 10))
    attrs = check_file(tmp_path / "run.h5", captured)
    assert (attrs["verdict"], bool(attrs["complete"])) == ("proven", True)
    assert {rows[-1][1] for rows in documents.rows().values()} <= set(range(1000, captured + 1))


def test_a_panda_that_dies_fails_the_plan_and_its_samples_are_kept(ophyd, tmp_path):
    documents = Documents()
    with Panda("--rate", 50_000) as panda:
        made = detector(ophyd, panda, tmp_path, reconnect="300ms")

        def plan():
            kill = lambda name, _: name == "stream_datum" and panda.process.kill()
            yield from bpp.subs_wrapper(fly(made, 10**9), kill)

        said = fails(plan(), documents)
    assert "AcquisitionError" in said or "Error: " in said, said
    with h5py.File(tmp_path / "run.h5") as file:
        rows = len(file["PCAP.BITS0.Value"])
        np.testing.assert_array_equal(file["PCAP.BITS0.Value"][()], np.arange(rows))
        assert file.attrs["verdict"] == "unproven" and file.attrs["samples"] == rows > 0


def test_a_wrong_number_of_samples_is_told(ophyd, tmp_path):
    (tmp_path / "few").mkdir(), (tmp_path / "many").mkdir()
    with Panda("--samples", 90) as panda:
        said = fails(fly(detector(ophyd, panda, tmp_path / "few"), 100), Documents())
        assert "ended after 90 samples, and 100 were prepared" in said, said
        # Samples beyond the prepared ones are in the file, and not in documents, whose rows they would move.
        documents = Documents()
        said = fails(step(detector(ophyd, panda, tmp_path / "many"), 2, 60), documents)
        assert "90 samples are in run.h5, and 60 were prepared" in said, said
    assert all(rows == [(0, 1)] for rows in documents.rows().values())
    check_file(tmp_path / "many/run.h5", 90)


def test_what_cannot_be_recorded_is_told_before_anything_is_armed(ophyd, tmp_path):
    with Panda() as panda:
        cases = [
            (detector(ophyd, "panda://127.0.0.1:1?data=2", tmp_path), 1, "connecting to the PandA"),
            (detector(ophyd, panda, tmp_path / "nowhere"), 1, "create_dir_depth"),
            (detector(ophyd, panda, tmp_path, no_such="option"), 1, "no-such"),
        ]
        for made, events, told in cases:
            said = fails(fly(made, events), Documents())
            assert told in said, said
        made = detector(ophyd, panda, tmp_path)
        said = fails(_prepared(made, TriggerInfo(livetime=0.1)), Documents())
        assert "the blocks of the PandA determine" in said, said
        assert not panda.all("begun")
    assert list(tmp_path.iterdir()) == []


def _prepared(panda, info):
    @bpp.stage_decorator([panda])
    @bpp.run_decorator()
    def inner():
        yield from bps.prepare(panda, info, wait=True)

    return (yield from inner())
