"""The simulated PandA against PandABlocks-client, the client of PandA users.

That client knows only the default ports, so every server here has a separate loopback address.
"""

import asyncio
import gzip
import itertools
import os
import subprocess
import sys

import h5py
import numpy as np
import panda
import pytest
from pandablocks.asyncio import AsyncioClient
from pandablocks.blocking import BlockingClient
from pandablocks.commands import (
    Append,
    Arm,
    ChangeGroup,
    Disarm,
    Get,
    GetBlockInfo,
    GetChanges,
    GetFieldInfo,
    GetPcapBitsLabels,
    GetState,
    Identify,
    Put,
    SetState,
)
from pandablocks.responses import EndData, EndReason, FrameData, ReadyData, StartData

from fullbore import BINARY, GOOD, PATIENCE, Recording, free_port, run, text
from panda import DATA

COLUMNS = (
    "PCAP.BITS0.Value COUNTER1.OUT.Min COUNTER1.OUT.Max COUNTER2.OUT.Min COUNTER2.OUT.Max "
    "COUNTER3.OUT.Value PCAP.SAMPLES.Value PCAP.TS_START.Value PCAP.TS_CAPTURE.Value "
    "COUNTER1.OUT.Mean COUNTER2.OUT.Mean"
).split()
numbers = itertools.count(1)


class Panda(panda.Panda):
    """A running `fullbore simulate panda`, on the default ports of a separate address."""

    def __init__(self, *options):
        number = next(numbers)
        self.host = f"127.{100 + os.getpid() // 250 % 100}.{os.getpid() % 250}.{number}"
        super().__init__(*options, control=f"{self.host}:8888", data=f"{self.host}:8889")

    def __exit__(self, *_):
        self.process.terminate()
        self.ends(GOOD)


class Played(Panda):
    """A recording played as its PandA."""

    def __init__(self, scan, store, *options):
        super().__init__()
        to = f"panda://{self.host}:8888"
        self.command = [BINARY, "play", scan, "--to", to, "--store", str(store), "--json", *options]


def client(*words, code=0, stdin=None):
    """The client's command line."""
    command = [sys.executable, "-m", "pandablocks", *map(str, words)]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, input=stdin)
    told = f"{' '.join(command)}\n{text(done.stdout)}\n{text(done.stderr)}"
    assert done.returncode == code, told
    return done


def truth(column, samples, first=0):
    """The content of scaled samples: every 32-bit word of raw sample i is i."""
    i = np.arange(first, first + samples, dtype=np.int64)
    wide = (i * (2**32 + 1)).astype(np.float64)
    name, capture = column.rsplit(".", 1)
    if name == "PCAP.BITS0":
        return i
    if name == "PCAP.SAMPLES":
        return i * 8e-9
    if name.startswith("PCAP.TS_"):
        return wide * 8e-9
    scale, offset = (0.5, 3) if name == "COUNTER2.OUT" else (1, 0)
    if capture == "Mean":
        with np.errstate(invalid="ignore"):
            return scale * wide / i + offset
    return i * scale + offset


def check_file(path, samples):
    with h5py.File(path, "r") as file:
        assert set(file) - {"entry"} == set(COLUMNS)
        assert file.attrs["arm_time"] < file.attrs["start_time"]
        for column in COLUMNS:
            values, expected = file[column][:], truth(column, samples)
            assert len(values) == samples, column
            np.testing.assert_allclose(values, expected, rtol=1e-15, err_msg=column)


@pytest.mark.parametrize("options", [[], ["--rate", "100000"], ["--split", "--seed", "3"]])
def test_the_clients_hdf_command_writes_every_sample(tmp_path, options):
    samples = 20_000
    with Panda("--samples", samples, *options) as panda:
        client("hdf", "--arm", "--num", 3, panda.host, tmp_path / "capture-%d.h5")
        assert panda.wait("ended")["captured"] == samples
    for number in (1, 2, 3):
        check_file(tmp_path / f"capture-{number}.h5", samples)


def test_an_overrun_is_seen_by_the_client(tmp_path):
    options = ("--ring", "4MiB", "--samples", 2_000_000, "--fault", "overrun@50000")
    with Panda(*options) as panda:
        done = client("hdf", "--arm", panda.host, tmp_path / "%d.h5", code=1)
        assert b"Data overrun" in done.stderr


def take(host, scaled, arm=True):
    """One acquisition by the asyncio client: header, values, end."""

    async def taking():
        frames = []
        async with AsyncioClient(host) as panda:
            async for data in panda.data(scaled=scaled):
                if isinstance(data, ReadyData) and arm:
                    await panda.send(Arm())
                elif isinstance(data, StartData):
                    start = data
                elif isinstance(data, FrameData):
                    frames.append(data.data.copy())
                elif isinstance(data, EndData):
                    return start, np.concatenate(frames), data

    return asyncio.run(asyncio.wait_for(taking(), PATIENCE))


def test_the_asyncio_client_takes_scaled_samples():
    with Panda("--samples", 5000) as panda:
        start, values, end = take(panda.host, scaled=True)
    assert (start.process, start.format, start.missed) == ("Scaled", "Framed", 0)
    assert start.sample_bytes == 84
    assert (end.samples, end.reason) == (5000, EndReason.OK)
    assert [f"{field.name}.{field.capture}" for field in start.fields] == COLUMNS
    millimetres = start.fields[3]
    assert (millimetres.scale, millimetres.offset, millimetres.units) == (0.5, 3, "mm")
    for column in COLUMNS:
        np.testing.assert_array_equal(values[column], truth(column, 5000), err_msg=column)


def test_the_asyncio_client_takes_raw_samples_with_the_gate_unasked():
    with Panda("--samples", 100, "--fields", "COUNTER1.OUT Mean StdDev") as panda:

        async def wire():
            reader, writer = await asyncio.open_connection(panda.host, 8889)
            writer.write(b"XML FRAMED RAW\n")
            assert await reader.readline() == b"OK\n"
            async with AsyncioClient(panda.host) as control:
                await control.send(Arm())
            header = (await reader.readuntil(b"</header>\n")).decode()
            writer.close()
            return header

        header = asyncio.run(wire())
    types = [line.split('type="')[1].split('"')[0] for line in header.splitlines() if "type=" in line]
    assert types == ["int32", "int64", "int96"]


@pytest.mark.parametrize("reason", [r for r in EndReason if r.value not in ("Ok", "Disarmed")])
def test_every_end_reason_of_the_client_can_be_had(reason):
    with Panda("--samples", 5000, "--fault", f"end@300:{reason.value}") as panda:
        _, values, end = take(panda.host, scaled=False)
    assert (len(values), end.samples, end.reason) == (300, 300, reason)


def test_disarming_ends_an_endless_acquisition():
    async def taking():
        samples = 0
        async with AsyncioClient(panda.host) as control:
            async for data in control.data(scaled=False):
                if isinstance(data, ReadyData):
                    await control.send(Arm())
                elif isinstance(data, FrameData):
                    samples += len(data.data)
                    if samples > 10_000:
                        await control.send(Disarm())
                elif isinstance(data, EndData):
                    return samples, data

    with Panda("--rate", "200000") as panda:
        samples, end = asyncio.run(asyncio.wait_for(taking(), PATIENCE))
        assert (end.samples, end.reason) == (samples, EndReason.DISARMED)
        assert panda.wait("ended")["captured"] == samples


@pytest.mark.parametrize(
    "dump", ["raw_ok", "scaled_ok", "raw_texthdr", "client-dumps/raw_dump", "client-dumps/fast_dump"]
)
def test_recorded_streams_are_served_byte_for_byte(tmp_path, dump):
    packed = DATA / f"{dump}.bin.gz"
    stream = gzip.decompress(packed.read_bytes()) if packed.exists() else None
    stream = stream or (DATA / f"{dump}.bin").read_bytes()
    (tmp_path / "dump").write_bytes(stream)

    async def reading():
        reader, writer = await asyncio.open_connection(panda.host, 8889)
        writer.write(b"XML FRAMED RAW\n")
        got = await reader.readexactly(len(expected))
        writer.close()
        return got

    expected = b"OK\n" + stream.removeprefix(b"OK\n")
    with Panda("--serve-dump", tmp_path / "dump") as panda:
        assert asyncio.run(asyncio.wait_for(reading(), PATIENCE)) == expected
        if "text" not in dump:
            _, values, end = take(panda.host, scaled=False)
            assert len(values) == end.samples


def same_files(first, second):
    with h5py.File(first) as first, h5py.File(second) as second:
        assert dict(first.attrs) == dict(second.attrs)
        assert sorted(first) == sorted(second) == sorted(COLUMNS)
        for name in first:
            assert first[name].dtype == second[name].dtype
            np.testing.assert_array_equal(first[name][()], second[name][()], err_msg=name)


@pytest.mark.parametrize("how", ["simulate", "play", "play as recorded"])
def test_a_recording_is_served_again_and_the_client_writes_the_same_file(how, store, tmp_path):
    samples = 60_000
    first, again = tmp_path / "first-%d.h5", tmp_path / "again-%d.h5"
    with Panda("--samples", samples, "--rate", "200000") as panda:
        with Recording(f"panda://{panda.host}", store=store) as record:
            client("hdf", "--arm", panda.host, first)
            record.sealed()
    check_file(tmp_path / "first-1.h5", samples)
    again_by = {
        "simulate": lambda: Panda("--replay", record.scan, "--store", store),
        "play": lambda: Played(record.scan, store, "--flat-out"),
        "play as recorded": lambda: Played(record.scan, store),
    }[how]
    with again_by() as panda:
        client("hdf", "--arm", "--num", 2, panda.host, again)
        _, values, end = take(panda.host, scaled=True)
        assert (end.samples, end.reason) == (samples, EndReason.OK)
        for column in COLUMNS:
            np.testing.assert_array_equal(values[column], truth(column, samples), err_msg=column)
        with BlockingClient(panda.host) as control:
            assert "COUNTER2.OUT Min Max Mean" in control.send(Get("*CAPTURE"), PATIENCE)
    for number in (1, 2):
        same_files(tmp_path / "first-1.h5", tmp_path / f"again-{number}.h5")


def test_what_is_no_recording_of_a_panda_is_not_served(store):
    done = run("simulate", "panda", "--replay", "nothing", "--store", store, code=2)
    assert "nothing" in text(done.stderr)
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif", store=store) as record:
        record.stop(code=None)
    done = run("play", record.scan, "--to", "panda://127.0.0.1:8888", "--store", store, code=2)
    assert "no stream of a PandA" in text(done.stderr)


def test_blocks_and_fields_are_told_in_every_detail():
    with Panda() as panda, BlockingClient(panda.host) as control:
        assert control.send(Identify(), PATIENCE).software_api() == (4, 1)
        blocks = control.send(GetBlockInfo(), PATIENCE)
        assert blocks["COUNTER"].number == 8 and blocks["PCAP"].description
        fields = {block: control.send(GetFieldInfo(block), PATIENCE) for block in blocks}
        counter = fields["COUNTER"]["OUT"]
        assert (counter.type, counter.subtype) == ("pos_out", None)
        assert "Min Max Mean" in counter.capture_labels
        assert fields["PCAP"]["BITS0"].bits[0] == "TTLIN1.VAL"
        table = fields["SEQ"]["TABLE"]
        assert table.row_words == 4 and table.fields["TRIGGER"].labels[0] == "Immediate"
        assert fields["PULSE"]["WIDTH"].units_labels == ["min", "s", "ms", "us", "ns"]
        assert "TTLIN1.VAL" in control.send(GetPcapBitsLabels(), PATIENCE)["PCAP.BITS0"]
        changes = control.send(GetChanges(ChangeGroup.ALL, True), PATIENCE)
        assert changes.values["COUNTER1.OUT.CAPTURE"] == "Min Max Mean"
        assert changes.multiline_values["SEQ1.TABLE"] == []
        assert not control.send(GetChanges(), PATIENCE).values


def test_settings_can_be_made_and_are_told_as_changes():
    with Panda() as panda, BlockingClient(panda.host) as control:
        send = lambda command: control.send(command, PATIENCE)
        send(GetChanges())
        send(Put("PCAP.TRIG", "PULSE1.OUT"))
        send(Put("SEQ1.TABLE", ["1", "2", "3", "4"]))
        send(Append("SEQ1.TABLE", ["5", "6", "7", "8"]))
        send(Put("COUNTER1.OUT.CAPTURE", "No"))
        changes = send(GetChanges(get_multiline=True))
        assert changes.values == {"PCAP.TRIG": "PULSE1.OUT", "COUNTER1.OUT.CAPTURE": "No"}
        assert changes.multiline_values == {"SEQ1.TABLE": [str(n) for n in range(1, 9)]}
        assert send(Get("COUNTER2.OUT.UNITS")) == "mm"
        assert send(Get("*CAPTURE"))[0].startswith("COUNTER2.OUT ")
        for field, value in [("PCAP.TRIG", "NOBODY"), ("COUNTER9.STEP", "1"), ("NO.SUCH", "1")]:
            with pytest.raises(Exception, match="ERR"):
                send(Put(field, value))


def test_what_one_panda_saves_another_loads(tmp_path):
    saved, again = tmp_path / "first.sav", tmp_path / "second.sav"
    with Panda() as first, Panda() as second:
        with BlockingClient(first.host) as control:
            control.send(Put("SEQ2.TABLE", ["9", "8", "7", "6"]), PATIENCE)
            control.send(Put("PULSE1.WIDTH", "0.25"), PATIENCE)
            control.send(Put("*METADATA.LABEL_PULSE1", "shutter"), PATIENCE)
        client("save", first.host, saved)
        done = client("load", second.host, saved)
        assert b"failed" not in done.stderr, text(done.stderr)
        client("save", second.host, again)
        assert sorted(saved.read_text().splitlines()) == sorted(again.read_text().splitlines())
        assert "PULSE1.WIDTH=0.25" in again.read_text()
        client("load", "--tutorial", second.host)
        with BlockingClient(second.host) as control:
            state = control.send(GetState(), PATIENCE)
            control.send(SetState(state), PATIENCE)


def test_the_control_console_talks_to_it():
    lines = b"*IDN?\nSEQ1.TABLE<\n1\n2\n3\n4\n\nSEQ1.TABLE?\n*PCAP.STATUS?\nFOO?\n*WHO?\n"
    with Panda() as panda:
        done = client("control", "--prompt", "", panda.host, stdin=lines)
    said = done.stdout.decode()
    assert "OK =PandA SW: 4.1" in said and "!4\n." in said, said
    assert "OK =Idle 0 0" in said and "ERR " in said and " config 127." in said


def test_a_port_that_is_taken_is_told_with_what_to_do():
    with Panda() as panda:
        done = run("simulate", "panda", "--control", f"{panda.host}:8888", code=2)
        assert f"{panda.host}:8888" in text(done.stderr) and "port 0" in text(done.stderr)
    done = run("simulate", "panda", "--fields", "COUNTER99.OUT Mean", "--control", "127.0.0.1:0", code=2)
    assert "COUNTER99.OUT" in text(done.stderr)
