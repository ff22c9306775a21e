"""Scans as packets: `convert SCAN pcapng:FILE`, read by tshark and capinfos, and recorded again."""

import shutil
import struct
import subprocess
from datetime import datetime, timezone

import pytest
import wire
from fullbore import AS_SEALED, FOUND, GOOD, REFUSED, Recording, accounts, ask, free_port, free_ports, run, text

FPS = 1000


def wanted(*programs):
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")


def recorded(frames, store, lose=(), code=AS_SEALED):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}", store=store) as recording:
        wire.send((frame for n, frame in enumerate(frames) if n not in lose), port)
    (account,) = accounts(recording.stop(code)).values()
    return port, recording.scan, account


def packets(path, *fields):
    """What tshark reads: a list of these fields for each packet, with checksums verified."""
    wanted("tshark")
    words = ["tshark", "-r", path, "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-T", "fields"]
    for field in fields:
        words += ["-e", field]
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return [line.split("\t") for line in told.splitlines()]


def time_of(frame):
    """Nanoseconds of Unix time of a frame, by the table of VDIF: half-years since 2000, seconds, frame number."""
    second, frame_number = struct.unpack_from("<2I", frame)
    half = frame_number >> 24 & 0x3F
    begin = datetime(2000 + half // 2, 7 if half % 2 else 1, 1, tzinfo=timezone.utc)
    whole = int(begin.timestamp()) + (second & 0x3FFF_FFFF)
    return whole * 10**9 + (frame_number & 0xFF_FFFF) * (10**9 // FPS)


LOST = {5, 6, 100, 101, 102}


def test_tshark_reads_each_frame_at_its_time_with_valid_checksums(store, tmp_path):
    frames = wire.run_of_frames(300)
    port, scan, _ = recorded(frames, store, LOST, FOUND)
    out = tmp_path / "out.pcapng"
    made = ask("convert", f"store:{scan}", f"pcapng:{out}", "--store", store, code=FOUND)
    assert made["streams"][0]["packets"] == 295
    read = packets(
        out, "frame.time_epoch", "udp.dstport", "ip.checksum.status", "udp.checksum.status", "data.data", "udp.payload"
    )
    kept = [frame for n, frame in enumerate(frames) if n not in LOST]
    assert len(read) == 295
    for (when, to, ip, udp, data, payload), frame in zip(read, kept, strict=True):
        seconds, _, rest = when.partition(".")
        assert int(seconds) * 10**9 + int(rest.ljust(9, "0")) == time_of(frame)
        assert (to, ip, udp) == (str(port), "1", "1")
        assert bytes.fromhex((data or payload).replace(":", "")) == frame


def test_capinfos_counts_packets_and_drops_are_in_the_statistics(store, tmp_path):
    wanted("capinfos")
    _, scan, _ = recorded(wire.run_of_frames(300), store, code=GOOD)
    out = tmp_path / "out.pcapng"
    ask("convert", f"store:{scan}", f"pcapng:{out}", "--store", store)
    told = subprocess.run(["capinfos", out], check=True, capture_output=True, text=True).stdout
    assert "nanoseconds" in told and "Number of packets:   300" in told
    assert "The headers are made anew" in told
    assert "Account: 300 expected, 300 written, 0 missing" in told


def test_the_packets_are_recorded_again_with_the_same_gaps(store, tmp_path):
    port, scan, before = recorded(wire.run_of_frames(300), store, LOST, FOUND)
    out = tmp_path / "out.pcapng"
    ask("convert", f"store:{scan}", f"pcapng:{out}", "--store", store, code=FOUND)
    other = tmp_path / "other"
    other.mkdir()
    with Recording(f"file:{out}?port={port}&format=vdif&fps={FPS}", store=other) as again:
        (after,) = accounts(again.sealed(FOUND)).values()
    assert after["terms"] == before["terms"]
    assert [gap["count"] for gap in after["gaps"]] == [gap["count"] for gap in before["gaps"]] == [2, 3]


def test_frames_of_varying_length_are_whole_datagrams(store, tmp_path):
    port = free_port()
    sent = [bytes([n % 251]) * (200 + 37 * n % 1200) for n in range(3000)]
    with Recording(f"udp://127.0.0.1:{port}?format=raw&frame=varying&block=64KiB", store=store) as recording:
        wire.send(sent, port)
    recording.stop(AS_SEALED)
    out = tmp_path / "out.pcapng"
    run("convert", f"store:{recording.scan}", f"pcapng:{out}", "--store", store)
    read = packets(out, "udp.payload")
    assert [bytes.fromhex(payload.replace(":", "")) for (payload,) in read] == sent


def test_packets_of_several_streams_are_in_the_order_of_their_times(store, tmp_path):
    ports = free_ports(2)
    with Recording(f"udp://127.0.0.1:{ports[0]}-{ports[1]}?format=vdif&fps={FPS}", store=store) as recording:
        for port in ports:
            wire.send(wire.run_of_frames(200), port)
    recording.stop(AS_SEALED)
    out = tmp_path / "out.pcapng"
    run("convert", f"store:{recording.scan}", f"pcapng:{out}", "--store", store)
    read = packets(out, "frame.time_epoch", "udp.dstport", "frame.interface_name")
    assert [time for time, *_ in read] == sorted(time for time, *_ in read)
    assert {(port, name) for _, port, name in read} == {(str(port), str(port)) for port in ports}


def test_what_has_no_packets_and_a_file_that_is_there_are_refused(store, tmp_path):
    source = tmp_path / "bytes.raw"
    source.write_bytes(bytes(100_000))
    with Recording(f"file:{source}", store=store) as recording:
        recording.sealed(AS_SEALED)
    out = tmp_path / "out.pcapng"
    told = text(run("convert", f"store:{recording.scan}", f"pcapng:{out}", "--store", store, code=REFUSED).stderr)
    assert "is no stream of datagrams" in told and not out.exists()
    out.write_text("mine")
    run("convert", f"store:{recording.scan}", f"pcapng:{out}", "--store", store, code=REFUSED)
    assert out.read_text() == "mine"
