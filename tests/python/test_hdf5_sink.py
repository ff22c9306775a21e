"""HDF5 files in other readers: h5py while they grow, after a kill, and compared with those of the client."""

import gzip
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401  registers filters that h5py does not include
import numpy as np
import pytest
from conftest import chance, seeds
from disks import unmount
from fullbore import BINARY, PATIENCE, REPOSITORY

COLUMNS = {
    "PCAP.BITS0.Value": ("u4", None),
    "COUNTER1.OUT.Min": ("i4", (1.0, 0.0, "")),
    "COUNTER1.OUT.Max": ("i4", (1.0, 0.0, "")),
    "COUNTER2.OUT.Min": ("i4", (0.5, 3.0, "mm")),
    "COUNTER2.OUT.Max": ("i4", (0.5, 3.0, "mm")),
    "COUNTER3.OUT.Value": ("i4", (1.0, 0.0, "")),
    "PCAP.SAMPLES.Value": ("u4", (8e-9, 0.0, "s")),
    "PCAP.TS_START.Value": ("i8", (8e-9, 0.0, "s")),
    "PCAP.TS_TRIG.Value": ("i8", (8e-9, 0.0, "s")),
    "COUNTER1.OUT.Mean": ("i8", (1.0, 0.0, "")),
    "COUNTER2.OUT.Mean": ("i8", (0.5, 3.0, "mm")),
}
SAMPLE_BYTES = 60


@pytest.fixture(scope="session")
def writer():
    """The program that writes files with the sink under test, built with the profile of the binary under test."""
    folder = Path(BINARY).parent
    profile = ["--release"] if folder.name == "release" else []
    command = ["cargo", "build", "--locked", "-p", "fullbore-hdf5", "--example", "hdf5_rate"]
    subprocess.run(command + profile, cwd=REPOSITORY, check=True, capture_output=True)
    return REPOSITORY / "target" / ("release" if profile else "debug") / "examples/hdf5_rate"


def write(writer, *words, code=0):
    """Runs it to its end; returns the last line it printed, or its error."""
    done = subprocess.run(
        [writer, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else (done.stdout.splitlines() or [""])[-1]


def integers(i, kind):
    """The value of 32-bit words that all equal `i`, read as `kind`."""
    i = np.asarray(i)
    if kind == "i8":
        return i.astype("i8") * (2**32 + 1)
    return i.astype(kind)


def positions(i, name):
    """The same as a scaled position, in the server's order of operations."""
    kind, scaling = COLUMNS[name]
    raw = integers(i, kind)
    if scaling is None:
        return raw
    scale, offset, _ = scaling
    with np.errstate(invalid="ignore"):
        if name.endswith("Mean"):
            return scale * raw.astype("f8") / np.asarray(i).astype("f8") + offset
        return raw.astype("f8") * scale + offset


def check(file, rows=None, native=False):
    """Every column of the file holds the numbered samples, from 0 on; returns their number."""
    length = file["PCAP.BITS0.Value"].shape[0] if rows is None else rows
    i = np.arange(length, dtype="i8")
    for name, (kind, scaling) in COLUMNS.items():
        got = file[name][:length]
        want = integers(i, kind) if native else positions(i, name)
        assert got.dtype == want.dtype, name
        np.testing.assert_array_equal(got, want, err_msg=name)
    return length


@pytest.mark.parametrize("native", [False, True], ids=["scaled", "native"])
@pytest.mark.parametrize("compression", ["none", "gzip", "bitshuffle"])
@pytest.mark.parametrize("flush_ms", [1, 1000])
def test_h5py_reads_what_was_written(writer, tmp_path, native, compression, flush_ms):
    path = tmp_path / "a.h5"
    words = ["--numbered", "--megabytes", 12, "--flush-ms", flush_ms, "--rate", 1e7]
    words += ["--native"] * native
    words += ["--compression", compression] if compression != "none" else []
    report = json.loads(write(writer, *words, path))
    with h5py.File(path) as file:
        assert check(file, native=native) == report["rows"] == file.attrs["samples"]
        assert set(file) - {"entry"} == set(COLUMNS)
        for name, (_, scaling) in COLUMNS.items():
            attributes = dict(file[name].attrs)
            assert attributes.pop("capture") == name.rsplit(".", 1)[1]
            found = tuple(attributes.get(key) for key in ("scale", "offset", "units"))
            assert found == (scaling or (None, None, None))
        assert file.attrs["end_reason"] == "Ok"
        assert file.attrs["verdict"] == "proven"
        assert file.attrs["account"] == "{}"
        assert file.attrs["missed"] == 0
        assert file.attrs["hw_time_offset_ns"] == -1234
        assert file.attrs["arm_time"].endswith("Z")
    if compression != "none" and flush_ms == 1000:
        assert report["file_bytes"] < report["bytes_in"] * 0.6


def test_a_reader_sees_the_rows_of_each_flush(writer, tmp_path):
    path = tmp_path / "live.h5"
    words = ["--numbered", "--megabytes", 4_000, "--flush-ms", 50, "--overwrite", path]
    with subprocess.Popen([writer, *map(str, words)], stdout=subprocess.PIPE, text=True) as process:
        told = [next(process.stdout)]
        with h5py.File(path, swmr=True) as file:
            for line in process.stdout:
                told.append(line)
                promised = int(line.split()[1])
                for name in COLUMNS:
                    file[name].refresh()
                assert all(file[name].shape[0] >= promised for name in COLUMNS)
                if len(told) == 6:
                    check(file, rows=promised)
                    break
            process.kill()
    assert len(told) == 6


@pytest.mark.parametrize("seed", seeds(5))
def test_a_kill_costs_what_was_not_flushed_and_no_more(writer, tmp_path, seed):
    path = tmp_path / "killed.h5"
    dice = chance(seed)
    words = ["--numbered", "--megabytes", 20_000, "--flush-ms", dice.choice([5, 30, 100])]
    # On a disk, uncompressed chunks bypass the page cache: with the default size, and with the largest.
    words += dice.choice([[], ["--native"], ["--compression", "gzip"], ["--rate", 1e9], ["--rate", 1e9, "--native"]])
    lines = dice.randrange(1, 8)
    process = subprocess.Popen(
        [writer, *map(str, words), path], stdout=subprocess.PIPE, text=True
    )
    told = [next(process.stdout) for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    told += process.stdout.read().splitlines(keepends=True)
    process.wait()
    promised = [int(line.split()[1]) for line in told if line.endswith("\n")][-1]
    native = "--native" in words

    with pytest.raises(OSError, match="already open for write"):
        h5py.File(path)
    with h5py.File(path, swmr=True) as file:
        shortest = min(file[name].shape[0] for name in COLUMNS)
        assert shortest >= promised
        check(file, rows=shortest, native=native)
        assert file.attrs["verdict"] == "recording"

    write(writer, "--recover", path)
    with h5py.File(path) as file:
        assert {file[name].shape[0] for name in COLUMNS} == {shortest}
        check(file, native=native)
        assert file.attrs["samples"] == shortest
        assert file.attrs["verdict"] == "unproven"
        assert "died" in file.attrs["end_reason"]
    assert "ended: true" in write(writer, "--recover", path)

    # A recovered file can be continued.
    more = ["--megabytes", 12, "--append", "--flush-ms", 1000] + ["--native"] * native
    more += ["--compression", "gzip"] if "gzip" in words else []
    rows = json.loads(write(writer, *more, path))["rows"]
    with h5py.File(path) as file:
        assert {file[name].shape[0] for name in COLUMNS} == {shortest + rows}
        check(file, rows=shortest, native=native)


def test_clearing_the_mark_changes_nothing_else(writer, tmp_path):
    path = tmp_path / "killed.h5"
    words = ["--numbered", "--megabytes", 20_000, "--flush-ms", 20]
    process = subprocess.Popen([writer, *map(str, words), path], stdout=subprocess.PIPE, text=True)
    promised = int(next(process.stdout).split()[1])
    process.kill()
    process.communicate()
    write(writer, "--clear", path)
    with h5py.File(path) as file:
        assert check(file, rows=min(len(file[name]) for name in COLUMNS)) >= promised
        assert file.attrs["verdict"] == "recording"


def test_several_acquisitions_in_one_file_have_an_index(writer, tmp_path):
    path = tmp_path / "all.h5"
    counts = []
    for reason in ["Ok", "Disarmed", "Data overrun"]:
        words = ["--numbered", "--megabytes", 7, "--append", "--reason", reason]
        counts.append(json.loads(write(writer, *words, path))["rows"])
    with h5py.File(path) as file:
        index = file["acquisitions"]
        assert list(index["rows"]) == counts
        assert list(index["first_row"]) == list(np.cumsum([0] + counts[:-1]))
        reasons = [text.decode() for text in index["end_reason"]]
        assert reasons == ["Ok", "Disarmed", "Data overrun"]
        for first, rows in zip(index["first_row"], index["rows"]):
            column = file["COUNTER2.OUT.Max"][first : first + rows]
            np.testing.assert_array_equal(column, positions(np.arange(rows), "COUNTER2.OUT.Max"))
        assert file.attrs["samples"] == sum(counts)


def test_a_file_that_is_there_is_left_alone(writer, tmp_path):
    path = tmp_path / "there.h5"
    path.write_bytes(b"precious")
    said = write(writer, "--megabytes", 1, path, code=1)
    assert "is there already" in said and "existing=append" in said
    assert path.read_bytes() == b"precious"
    write(writer, "--megabytes", 1, "--append", path, code=1)
    assert path.read_bytes() == b"precious"


def test_other_columns_cannot_be_added_to_a_file(writer, tmp_path):
    path = tmp_path / "a.h5"
    write(writer, "--megabytes", 1, path)
    before = path.read_bytes()
    said = write(writer, "--megabytes", 1, "--native", "--append", path, code=1)
    assert "is of another type" in said and "%d" in said
    with h5py.File(path) as file, h5py.File(tmp_path / "b.h5", "w") as _:
        assert file.attrs["verdict"] == "proven"
    assert len(path.read_bytes()) == len(before)


@pytest.mark.parametrize("native", [False, True], ids=["scaled", "native"])
@pytest.mark.parametrize("has", ["none", "gzip", "bitshuffle"])
def test_what_is_added_is_compressed_as_the_file_is(writer, tmp_path, has, native):
    path = tmp_path / "a.h5"
    words = ["--numbered", "--megabytes", 12, "--flush-ms", 1000, "--rate", 1e6, *["--native"] * native]
    rows = json.loads(write(writer, *words, "--compression", has, path))["rows"]
    # Once by default, once by option.
    for more in [[], ["--compression", has]]:
        write(writer, *words, "--append", *more, path)
    held = path.read_bytes()
    for other in {"none", "gzip", "bitshuffle"} - {has}:
        said = write(writer, *words, "--append", "--compression", other, path, code=1)
        assert "its compression is" in said and other in said, said
    assert path.read_bytes() == held
    with h5py.File(path) as file:
        check(file, rows=rows, native=native)
        for column in file.values():
            if isinstance(column, h5py.Dataset):
                first, *others = [column[n * rows : (n + 1) * rows] for n in range(3)]
                for other in others:
                    np.testing.assert_array_equal(other, first, err_msg=column.name)


def test_columns_made_smaller_on_several_threads_are_those_of_one(writer, tmp_path):
    """Pinned to one CPU it has one thread; the files are the same, byte for byte except for their times."""
    words = ["--numbered", "--megabytes", 30, "--flush-ms", 1000, "--compression", "gzip"]
    several, one = tmp_path / "several.h5", tmp_path / "one.h5"
    write(writer, *words, several)
    cpu = min(os.sched_getaffinity(0))
    done = subprocess.run(["taskset", "-c", str(cpu), writer, *map(str, words), one], capture_output=True)
    assert done.returncode == 0, done.stderr
    with h5py.File(several) as several, h5py.File(one) as one:
        for name in COLUMNS:
            first, second = several[name].id, one[name].id
            assert first.get_num_chunks() == second.get_num_chunks() > 3
            for n in range(first.get_num_chunks()):
                at = first.get_chunk_info(n).chunk_offset
                assert first.read_direct_chunk(at) == second.read_direct_chunk(at), (name, at)


def test_slow_streams_make_small_files(writer, tmp_path):
    """Ten rows a second for a while: a chunk of a thousand rows is overwritten in place."""
    samples, header = made_header(tmp_path, rows=37 * 40)
    path = tmp_path / "slow.h5"
    words = ["--rate", 10, "--samples", samples, "--header", header]
    report = json.loads(write(writer, *words, path))
    assert report["flushes"] > 5
    assert report["file_bytes"] < 250_000


def made_header(tmp_path, rows):
    """One column of 32-bit words, as files."""
    samples, header = tmp_path / "samples", tmp_path / "header"
    samples.write_bytes(np.arange(rows, dtype="<u4").tobytes())
    field = {
        "name": "PCAP.BITS0", "capture": "Value", "kind": "uint32", "offset_bytes": 0, "scaling": None,
    }  # fmt: skip
    header.write_text(json.dumps(header_json(4, [field])))
    return samples, header


def header_json(sample_bytes, fields, process="raw"):
    times = dict.fromkeys(["arm_time", "start_time", "hw_time_offset_ns"])
    return times | {
        "missed": 0, "process": process, "sample_bytes": sample_bytes, "fields": fields,
    }  # fmt: skip


def test_a_standard_deviation_is_exact(writer, tmp_path):
    """Against integers of any length, with sums that doubles would cancel to rubbish."""
    dice = chance(1)
    names = [("PCAP.GATE_DURATION", "Value", "int32"), ("A.OUT", "Mean", "int64"), ("A.OUT", "StdDev", "int96")]
    offset, fields = 0, []
    for name, capture, kind in names:
        scaling = {"scale": 0.25, "offset": 7.0, "units": "mm"}
        fields.append({"name": name, "capture": capture, "kind": kind, "offset_bytes": offset, "scaling": scaling})
        offset += {"int32": 4, "int64": 8, "int96": 12}[kind]
    rows, want = b"", []
    for _ in range(500):
        gate = dice.choice([1, 2, 125, 2**31 + 5, 2**32 - 1])
        centre = dice.randrange(-(2**31), 2**31)
        spread = dice.choice([0, 1, 1000])
        # Half the gate above the mean, half below.
        half = gate // 2
        total = centre * gate + (spread if gate % 2 else 0)
        squares = half * ((centre - spread) ** 2 + (centre + spread) ** 2)
        squares += (centre + spread) ** 2 if gate % 2 else 0
        variance = (squares * gate - total**2) / gate**2
        if abs(total) // gate >= 2**32 or squares >= 2**96:
            continue
        want.append((gate, total, squares, variance))
        rows += struct.pack("<IqQI", gate, total, squares & (2**64 - 1), squares >> 64)
    (tmp_path / "samples").write_bytes(rows)
    (tmp_path / "header").write_text(json.dumps(header_json(24, fields)))
    words = ["--samples", tmp_path / "samples", "--header", tmp_path / "header"]
    write(writer, *words, tmp_path / "scaled.h5")
    with h5py.File(tmp_path / "scaled.h5") as file:
        deviation = file["A.OUT.StdDev"][:]
        exact = np.array([0.25 * np.sqrt(variance) for *_, variance in want])
        np.testing.assert_allclose(deviation, exact, rtol=1e-9, atol=1e-9)
        gates = np.array([gate for gate, *_ in want], dtype="f8")
        np.testing.assert_array_equal(file["PCAP.GATE_DURATION.Value"][:], gates * 0.25 + 7.0)
    for n in range(2):  # the second time appended, which reads the wide column back
        write(writer, *words, "--native", "--append", tmp_path / "native.h5")
    with h5py.File(tmp_path / "native.h5") as file:
        wide = file["A.OUT.StdDev"][:]
        squares = [int(high) << 64 | int(low) for low, high in wide.tolist()]
        assert squares == [squares for _, _, squares, _ in want] * 2
        assert list(file["PCAP.GATE_DURATION.Value"]) == [gate for gate, *_ in want] * 2


def test_the_file_is_what_the_client_writes_and_more(writer, tmp_path):
    """The client's own parser and writer, and fullbore's, from one recorded stream."""
    pytest.importorskip("pandablocks.hdf")
    for stream, dump in recordings():
        start, samples = parsed(dump)
        theirs, ours = tmp_path / f"{stream}.theirs.h5", tmp_path / f"{stream}.ours.h5"
        client_writes(dump, theirs)
        (tmp_path / "samples").write_bytes(samples)
        (tmp_path / "header").write_text(json.dumps(as_header(start)))
        words = ["--samples", tmp_path / "samples", "--header", tmp_path / "header"]
        write(writer, *words, ours)
        with h5py.File(theirs) as want, h5py.File(ours) as got:
            assert set(got) == {*want, "entry"}
            for name in want:
                assert got[name].dtype == want[name].dtype
                assert got[name].maxshape == want[name].maxshape
                np.testing.assert_array_equal(got[name][:], want[name][:])
            times = {"arm_time", "start_time"} if "dump" not in stream else set()
            assert set(want.attrs) == times
            for name in want.attrs:
                assert got.attrs[name] == want.attrs[name]
                assert type(got.attrs[name]) is type(want.attrs[name])


def recordings():
    """Every recorded stream of one acquisition that the client understands."""
    folder = REPOSITORY / "tests/data/panda"
    for path in sorted((folder / "client-dumps").glob("*.bin")):
        yield path.stem, path.read_bytes()
    for name in ["raw_ok", "raw_anon_samples", "scaled_ok", "scaled_overrun"]:
        yield name, gzip.decompress((folder / f"{name}.bin.gz").read_bytes())


def parsed(dump):
    from pandablocks.connections import DataConnection
    from pandablocks.responses import FrameData, StartData

    connection = DataConnection()
    connection.connect(scaled=False)
    responses = list(connection.receive_bytes(dump))
    (start,) = [response for response in responses if isinstance(response, StartData)]
    frames = [response.data.tobytes() for response in responses if isinstance(response, FrameData)]
    return start, b"".join(frames)


def as_header(start):
    """The client's representation of a header, converted to fullbore's."""
    offset, fields = 0, []
    for field in start.fields:
        kind = {"<f8": "double"}.get(field.type.str, str(field.type))
        kind = "double" if kind == "float64" else kind
        scaling = {"scale": field.scale, "offset": field.offset, "units": field.units}
        fields.append({
            "name": field.name, "capture": field.capture, "kind": kind, "offset_bytes": offset,
            "scaling": None if field.scale is None else scaling,
        })  # fmt: skip
        offset += field.type.itemsize
    assert offset == start.sample_bytes
    header = header_json(offset, fields, {"Raw": "raw"}.get(start.process, "scaled"))
    ns = start.hw_time_offset_ns
    return header | {
        "arm_time": start.arm_time,
        "start_time": start.start_time,
        "hw_time_offset_ns": None if ns is None else int(ns),
    }


def client_writes(dump, path):
    from pandablocks.connections import DataConnection
    from pandablocks.hdf import FrameProcessor, HDFWriter, create_pipeline, stop_pipeline

    connection = DataConnection()
    connection.connect(scaled=False)
    pipeline = create_pipeline(FrameProcessor(), HDFWriter(iter([str(path)]), {}))
    for response in connection.receive_bytes(dump):
        pipeline[0].queue.put_nowait(response)
    stop_pipeline(pipeline)


def test_frames_have_their_times_beside_them(writer, tmp_path):
    path = tmp_path / "frames.h5"
    write(writer, "--frames", 8032, path)
    with h5py.File(path) as file:
        frames, times = file["frames"], file["time"]
        assert frames.shape == (10_000, 8032)
        np.testing.assert_array_equal(frames[:, 0], np.arange(10_000).astype("u1"))
        np.testing.assert_array_equal(frames[:, -1], np.arange(10_000).astype("u1"))
        np.testing.assert_array_equal(times[:], np.arange(10_000) * 1000)
        assert times.attrs["units"] == "ns" and times.attrs["time_scale"] == "TAI"
        assert file.attrs["format"] == "made up" and file.attrs["samples"] == 10_000


def test_a_master_shows_several_streams_side_by_side(writer, tmp_path):
    streams = {name: tmp_path / f"{name}.h5" for name in ("left", "right")}
    for n, path in enumerate(streams.values(), 1):
        write(writer, "--numbered", "--megabytes", 3 * n, path)
    pairs = [f"{name}={path}" for name, path in streams.items()]
    write(writer, "--join", tmp_path / "all.h5", *pairs)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for path in tmp_path.glob("*.h5"):
        path.rename(moved / path.name)
    with h5py.File(moved / "all.h5") as file:
        for name in streams:
            assert file[name]["COUNTER2.OUT.Min"].is_virtual
            assert check(file[name]) == file[name].attrs["samples"]
            assert file[name]["COUNTER2.OUT.Min"].attrs["units"] == "mm"
            assert file[name]["COUNTER2.OUT.Min"].attrs["scale"] == 0.5
            with h5py.File(moved / f"{name}.h5") as alone:
                said = {key: value for key, value in alone.attrs.items() if key in file[name].attrs}
            assert {"samples", "missed", "missing", "verdict", "end_reason"} <= set(said)
            assert all(file[name].attrs[key] == value for key, value in said.items())


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("compression", [[], ["--compression", "gzip"]], ids=["plain", "gzip"])
def test_a_full_disk_leaves_what_was_flushed(writer, memory_disk, compression):
    small = memory_disk("48m")
    path = small / "full.h5"
    words = ["--numbered", "--megabytes", 2000, "--flush-ms", 1, *compression, path]
    done = subprocess.run(
        [writer, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 1
    assert "full.h5: writing row" in done.stderr or "full.h5: flushing" in done.stderr
    assert "the disk is full" in done.stderr
    promised, kept = [int(line.split()[1]) for line in done.stdout.splitlines()[-2:]]
    assert done.stdout.splitlines()[-1].startswith("kept")
    reader = f"import h5py; h5py.File({str(path)!r})"
    subprocess.run([sys.executable, "-c", reader], check=True)
    with h5py.File(path) as file:
        assert {file[name].shape[0] for name in COLUMNS} == {kept}
        assert check(file) == kept == file.attrs["samples"] >= promised
        assert file.attrs["verdict"] == "unproven" and "full" in file.attrs["end_reason"]
    assert "ended: true" in write(writer, "--recover", path)


# The largest chunks, many of which are half full at a flush.
FAST = ["--numbered", "--rate", 1e9, "--flush-ms", 20]


@pytest.fixture(params=["ext4", "xfs"])
def disk(request, tmp_path):
    """A separate file system that supports direct I/O."""
    image, mounted = tmp_path / "disk.img", tmp_path / "disk"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(400 << 20)
    try:
        subprocess.run([f"mkfs.{request.param}", "-q", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, mounted], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no {request.param} of its own can be had here: {error}")
    yield mounted
    unmount(mounted)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("native", [False, True], ids=["scaled", "native"])
def test_past_the_page_cache_a_file_is_what_it_is_through_it(writer, disk, native):
    path = disk / "a.h5"
    words = [*FAST, *["--native"] * native]
    report = json.loads(write(writer, *words, "--megabytes", 80, path))
    assert report["past_page_cache"]
    with h5py.File(path) as file:
        assert check(file, native=native) == report["rows"]
        held = sum(set_.id.get_storage_size() for set_ in file.values() if isinstance(set_, h5py.Dataset))
    # Space allocated in advance has been freed.
    assert report["file_bytes"] == path.stat().st_size < held + (1 << 20)
    more = json.loads(write(writer, *words, "--megabytes", 40, "--append", path))
    assert more["past_page_cache"]
    with h5py.File(path) as file:
        assert check(file, rows=report["rows"], native=native) == report["rows"]
        name = "COUNTER1.OUT.Min"
        np.testing.assert_array_equal(file[name][report["rows"] :], file[name][: more["rows"]])


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_in_memory_and_made_smaller_samples_go_through_libhdf5(writer, disk, memory_disk):
    small = json.loads(write(writer, *FAST, "--megabytes", 8, "--compression", "gzip", disk / "a.h5"))
    slow = json.loads(write(writer, "--rate", 1000, "--megabytes", 2, disk / "b.h5"))
    memory = memory_disk("64m")
    there = json.loads(write(writer, *FAST, "--megabytes", 8, memory / "a.h5"))
    assert not any(report["past_page_cache"] for report in [small, slow, there])


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_fills_up_past_the_page_cache_leaves_what_was_flushed(writer, disk):
    path = disk / "full.h5"
    words = [*FAST, "--megabytes", 2000, path]
    done = subprocess.run(
        [writer, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 1
    assert "full.h5: writing samples" in done.stderr and "the disk is full" in done.stderr
    promised, kept = [int(line.split()[1]) for line in done.stdout.splitlines()[-2:]]
    with h5py.File(path) as file:
        assert {file[name].shape[0] for name in COLUMNS} == {kept}
        assert check(file) == kept == file.attrs["samples"] >= promised
        assert file.attrs["verdict"] == "unproven" and "full" in file.attrs["end_reason"]
    assert "ended: true" in write(writer, "--recover", path)
