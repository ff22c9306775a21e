"""VITA-49 and DIFI: packets made here, word by word, are recorded by stream id, and counted by count and time."""

import json
import random
import shutil
import struct
import subprocess

import pytest
import wire
from fullbore import AS_SEALED, FOUND, GOOD, INTACT, Recording, accounts, ask, balanced, free_port, generate, play, run, text
from test_documents import schema
from wire import Listener

RATE, SAMPLES, START = 1_000_000, 360, 1_790_000_000
DATA, CONTEXT, EXTENSION = 1, 4, 5


def prologue(kind, ident, index, count, words, trailer=False, time="ps", oui=0x6A621E, packet_class=0):
    """The words before the payload of packet `index`, whose payload has `words`."""
    second, part = divmod(index * SAMPLES, RATE)
    tsi, tsf = {"ps": (1, 2), "samples": (0, 1), "free": (0, 3), "none": (0, 0)}[time]
    rest = [ident, oui, packet_class]
    if time == "ps":
        ps = part * 10**12 // RATE
        rest += [START + second, ps >> 32, ps & 0xFFFFFFFF]
    elif time != "none":
        rest += [0, index * SAMPLES]
    size = 1 + len(rest) + words + trailer
    first = kind << 28 | 1 << 27 | trailer << 26 | tsi << 22 | tsf << 20 | count % 16 << 16 | size
    return struct.pack(f">{1 + len(rest)}I", first, *rest)


def data(index, ident=1, words=SAMPLES, trailer=None, **more):
    made = prologue(DATA, ident, index, index, words, trailer is not None, **more)
    made += struct.pack(">I", index) * words
    return made if trailer is None else made + struct.pack(">I", trailer)


def hertz(value):
    return struct.pack(">q", value << 20)


def context(index, number, ident=1, rate=RATE, count=None):
    """The fields of DIFI's context."""
    fields = struct.pack(">II", 0xFBB98000, 100) + hertz(800_000) + hertz(0) + hertz(1_575_420_000) + hertz(0)
    fields += struct.pack(">iI", -512 & 0xFFFF, 768) + hertz(rate)
    fields += struct.pack(">QII", 0, START, 0xA00A0000) + struct.pack(">II", 0xA00003CF, 0)
    count = number if count is None else count
    return prologue(CONTEXT, ident, index, count, len(fields) // 4, packet_class=1) + fields


def version(index, number, ident=1):
    fields = struct.pack(">IIII", 0x80000002, 0xC, 4, 0x35290001)
    return prologue(EXTENSION, ident, index, number, 4, packet_class=1 << 16 | 4) + fields


def record(packets, store, scan="one", query="format=vita49", code=AS_SEALED):
    """Records packets, and returns the accounts by name after the port, and the recording."""
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?{query}&name=rx", store=store, scan=scan) as recording:
        wire.send(packets, port)
    told = accounts(recording.stop(code))
    return {name.removeprefix("rx-"): balanced(account) for name, account in told.items()}, recording


@pytest.mark.parametrize("time", ["ps", "samples", "free"])
@pytest.mark.parametrize("lost", [1, 15, 16, 17, 32, 160])
def test_packets_lost_in_a_row_are_missing(lost, time, store):
    sent = [n for n in range(400) if not 100 <= n < 100 + lost]
    told, _ = record([data(n, time=time) for n in sent], store)
    account = told["00000001"]
    assert account["counted_by"] == "frame-time"
    assert account["terms"]["missing"] == lost and account["terms"]["written"] == 400 - lost
    assert [(gap["first"], gap["count"]) for gap in account["gaps"]] == [(100, lost)]


def test_losses_duplicates_and_overtaken_packets_are_counted(store):
    chance = random.Random(49)
    sent = [n for n in range(2000) if n in (0, 1, 2, 3, 1999) or chance.random() > 0.02]
    order = list(sent)
    for at in range(50, len(order) - 50, 100):
        order[at], order[at + 3] = order[at + 3], order[at]
    doubled = {order[at] for at in range(75, len(order), 200)}
    packets = [data(n) for n in order for _ in range(1 + (n in doubled))]
    account = record(packets, store)[0]["00000001"]
    assert account["terms"]["missing"] == 2000 - len(sent)
    assert account["duplicates"] == len(doubled)
    assert account["terms"]["written"] == len(sent) and account["reordered"] > 0


def test_each_stream_id_is_a_stream_and_context_is_kept_beside_them(store):
    packets = {"00000001": [], "cafe0002": [], "context": []}
    wired = []
    for n in range(600):
        for name, ident in (("00000001", 1), ("cafe0002", 0xCAFE0002)):
            made = [(name, data(n, ident))]
            if n % 50 == 0:
                made.insert(0, ("context", context(n, n // 50, ident)))
            if n % 200 == 0:
                made.insert(0, ("context", version(n, n // 200, ident)))
            for of, packet in made:
                packets[of].append(packet)
                wired.append(packet)
    told, recording = record(wired, store, query="format=difi")
    assert {name: account["verdict"] for name, account in told.items()} == dict.fromkeys(packets, "proven")
    for name, sent in packets.items():
        assert recording.on_disk().bytes(f"rx-{name}") == b"".join(sent), name
        assert told[name]["terms"]["written"] == len(sent)
        stream = recording.on_disk().document("manifest.json", f"rx-{name}")
    formats = {stream["format"]["name"] for stream in stream["streams"]}
    assert formats == {"vita49"}
    first = told["00000001"]["first"]["time"]
    assert first.startswith("2026-09-21T")
    run("verify", recording.scan, "--store", store, code=INTACT)
    assert "VITA-49" in text(run("info", recording.scan, "--full", "--store", store).stdout)
    # They are played to one port, and recorded again.
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=difi&name=rx", store=store, scan="again") as again:
        play(recording.scan, "--store", store, "--to", f"udp://127.0.0.1:{port}")
    told = accounts(again.stop(AS_SEALED))
    for name, sent in packets.items():
        assert again.on_disk().bytes(f"rx-{name}") == b"".join(sent), name


def test_info_lists_the_values_of_context_and_their_changes(store):
    rates = [RATE] * 5 + [2 * RATE] * 5
    sent = [context(n, n, rate=rate) for n, rate in enumerate(rates)]
    _, recording = record([*(data(n) for n in range(20)), *sent], store)
    said = text(run("info", recording.scan, "--full", "--store", store).stdout)
    told = [line.split(", ") for line in said.splitlines() if line.startswith("  context ")]
    assert [[word for word in line if word.startswith("rate")] for line in told] == [
        ["rate 1000000 Hz"], ["rate 2000000 Hz"]
    ]  # fmt: skip
    assert {"RF 1575420000 Hz", "bandwidth 800000 Hz", "reference level -4 dBm", "gain 6 dB"} < set(told[0])


def test_the_manifest_lists_context_of_each_scan_with_its_time(store):
    frequencies = [RATE] * 2 + [2 * RATE] * 2
    sent = [context(n * 1000, n, rate=rate) for n, rate in enumerate(frequencies)]
    _, recording = record([*(data(n) for n in range(20)), *sent, context(0, 0, ident=0xAB)], store)
    manifest = recording.on_disk().document("manifest.json", "rx-context")
    schema("manifest").validate(manifest)
    listed = {stream["name"]: stream.get("context") for stream in manifest["streams"]}
    assert listed["rx-00000001"] is None
    changes = listed["rx-context"]["changes"]
    told = [(change["stream_id"], change["sample_rate_hz"], change["time"][:23]) for change in changes]
    assert told == [
        ("00000001", RATE, "2026-09-21T14:13:20.000"),
        ("00000001", 2 * RATE, "2026-09-21T14:13:20.720"),
        ("000000ab", RATE, "2026-09-21T14:13:20.000"),
    ]
    first = {"rf_frequency_hz": 1_575_420_000, "bandwidth_hz": 800_000, "reference_level_dbm": -4, "gain_db": 6}
    assert first.items() <= changes[0].items() and changes[0]["payload_format"] == "A00003CF00000000"


def test_what_is_played_is_what_was_recorded_with_its_gaps(store):
    sent = [data(n) for n in range(300) if not 100 <= n < 133]
    sent[50:50] = [context(n, n) for n in range(3)]
    _, recording = record(sent, store)
    with Listener() as listener:
        play(recording.scan, "--store", store, "--to", f"udp://127.0.0.1:{listener.port}")
    of_kind = lambda packets, kind: [packet for packet in packets if packet[0] >> 4 == kind]
    assert len(listener.received) == len(sent)
    for kind in (DATA, CONTEXT):
        assert of_kind(listener.received, kind) == of_kind(sent, kind)


FAULTS = {"drop": 0.05, "drop_run": 20, "duplicate": 0.01, "reorder": 0.01, "reorder_distance": 3}


def runs_of(account, cause):
    """The frames that are missing by one cause, from the first packet on."""
    found = [(gap["first"], gap["count"]) for gap in account["gaps"] if gap["cause"] == cause]
    return {first + n for first, count in found for n in range(count)}


def places(runs):
    return {first + n for first, count in runs["runs"] for n in range(count)}


@pytest.mark.parametrize("form", ["vita49", "difi"])
def test_generated_packets_are_counted_as_the_truth_says(form, store, tmp_path):
    port = free_port()
    query = f"format={form}&name=rx"
    with Recording(f"udp://127.0.0.1:{port}?{query}", store=store) as recording:
        (truth,) = generate(
            port, format=form, stream_id="cafe0002", frame=1028, fps=4000, frames=4000, seed=2, gentle=True,
            truth=tmp_path / "truth.json", **FAULTS,
        )  # fmt: skip
    told = accounts(recording.stop(AS_SEALED))
    account, tally = balanced(told["rx-cafe0002"]), truth["port"]
    assert (account["terms"]["written"], account["counted_by"]) == (tally["sent"], "frame-time")
    first, last = tally["first_sent"], tally["last_sent"]
    assert runs_of(account, "missing") == {place for place in places(tally["dropped"]) if first < place < last}
    assert account["duplicates"] == len(tally["duplicated"]) and account["reordered"] > 0
    assert account["disagreements"] == 0
    assert told["rx-context"]["terms"]["written"] == tally["beside"] == (11 if form == "difi" else 10)
    assert ask("verify", recording.scan, "--store", store, code=INTACT)["findings"] == []
    listed = recording.on_disk().document("manifest.json", "rx-context")["streams"]
    (change,) = next(stream for stream in listed if stream["name"] == "rx-context")["context"]["changes"]
    assert change["sample_rate_hz"] == 4000 * (1028 - (28 if form == "difi" else 20)) / 4
    assert (change["rf_frequency_hz"], change["stream_id"]) == (1_420_405_752, "cafe0002")


def test_generated_packets_that_are_damaged_are_counted(store, tmp_path):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=difi&name=rx", store=store) as recording:
        (truth,) = generate(
            port, format="difi", frame=1028, fps=4000, frames=2000, seed=3, gentle=True, damage=0.05,
            truth=tmp_path / "truth.json",
        )  # fmt: skip
    account = balanced(accounts(recording.stop(AS_SEALED))["rx-00000001"])
    harms = truth["port"]["damaged"]
    readable = sum(harm["readable"]["count"] for harm in harms.values())
    unreadable = sum(harm["unreadable"]["count"] for harm in harms.values())
    terms = account["terms"]
    assert readable > 20 and unreadable > 5 and truth["port"]["rubbish"] > 5
    assert (terms["damaged"], terms["missing"]) == (readable, unreadable)


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
@pytest.mark.parametrize("form", ["vita49", "difi"])
def test_tshark_reads_generated_packets(form, tmp_path):
    with Listener() as listener:
        generate(
            listener.port, format=form, frame=228, fps=999, frames=999, stream_id="ab", gentle=True,
            start="2026-09-21T14:13:20Z",
        )  # fmt: skip
    fields = ["vrt.type", "vrt.seq", "vrt.len", "vrt.sid", "vrt.ts_int", "vrt.ts_frac_picosecond", "vrt.oui", "_ws.malformed"]
    told = tshark(listener.received, fields, tmp_path)
    assert {(line[3], line[-1]) for line in told} == {("0x000000ab", "")}
    ouis = {line[6] and int(line[6], 0) for line in told}
    assert ouis == ({0x6A621E} if form == "difi" else {""})
    of_kind = {kind: [line for line in told if int(line[0]) == kind] for kind in (DATA, CONTEXT, EXTENSION)}
    assert len(of_kind[CONTEXT]) == 10 and len(of_kind[EXTENSION]) == (1 if form == "difi" else 0)
    assert [int(line[2]) for line in of_kind[CONTEXT]] == [27 if form == "difi" else 25] * 10
    for n, (_, count, words, _, second, part, *_) in enumerate(of_kind[DATA]):
        assert (int(count), int(words), int(second)) == (n % 16, 57, START)
        assert int(part) == n * 10**12 // 999
    assert len(of_kind[DATA]) == 999


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
def test_a_scan_becomes_a_capture_that_tshark_reads_and_that_is_recorded_again(store, tmp_path):
    sent = [data(n, ident) for n in range(200) if n not in range(60, 80) for ident in (1, 2)]
    live, recording = record([*sent, *(context(n, n) for n in range(3))], store)
    path = tmp_path / "out.pcapng"
    ask("convert", f"store:{recording.scan}", f"pcapng:{path}", "--store", store, code=(GOOD, FOUND))
    (port,) = ask("info", f"file:{path}", code=GOOD)["ports"]
    assert (port["datagrams"], port["format"]) == (len(sent) + 3, "difi")
    command = ["tshark", "-r", path, "-d", f"udp.port=={port['port']},vrt", "-T", "fields", "-e", "vrt.type", "-e", "vrt.sid"]
    told = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    assert told.count("4") == 3 and told.count("1") == len(sent) and told.count("0x00000002") == len(sent) // 2
    other = tmp_path / "other"
    other.mkdir()
    with Recording(f"file:{path}?format=vita49&name=rx", store=other, scan="two") as again:
        told = accounts(again.sealed(AS_SEALED))
    for name, account in live.items():
        assert told[f"rx-{name}"]["terms"] == account["terms"], name


@pytest.mark.parametrize("query", ["format=difi&port=4991", "format=vita49"])
def test_the_account_of_a_capture_is_that_of_the_live_recording(query, store, tmp_path):
    lost = {*range(50, 66), 120}
    sent = [data(n, ident) for n in range(300) if n not in lost for ident in (1, 2)]
    sent[100:100] = [context(n, n) for n in range(3)]
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_of(sent))
    live, first = record(sent, store)
    other = tmp_path / "other"
    other.mkdir()
    with Recording(f"file:{path}?{query}&name=rx", store=other, scan="two") as again:
        told = accounts(again.sealed(AS_SEALED))
    told = {name.removeprefix("rx-"): balanced(account) for name, account in told.items()}
    assert told.keys() == live.keys() == {"00000001", "00000002", "context"}
    for name, account in told.items():
        assert (account["terms"], account["gaps"]) == (live[name]["terms"], live[name]["gaps"])
        assert again.on_disk().bytes(f"rx-{name}") == first.on_disk().bytes(f"rx-{name}")
    assert told["00000001"]["terms"]["missing"] == 17 and told["00000001"]["terms"]["overrun"] == 0
    (port,) = ask("info", f"file:{path}", code=GOOD)["ports"]
    assert (port["port"], port["format"]) == (4991, "difi")


def test_packets_that_were_captured_before_segmentation_are_split(store, tmp_path):
    sent = [data(n) for n in range(120)]
    path = tmp_path / "x.pcap"
    path.write_bytes(pcap_of([b"".join(sent[at : at + 20]) for at in range(0, 120, 20)]))
    with Recording(f"file:{path}?format=vita49&port=4991&name=rx", store=store) as recording:
        account = accounts(recording.sealed(AS_SEALED))["rx-00000001"]
    assert account["terms"]["written"] == account["terms"]["expected"] == 120
    assert recording.on_disk().bytes("rx-00000001") == b"".join(sent)


def pcap_of(packets):
    """A capture file with these packets in UDP datagrams to port 4991."""
    made = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101)
    for packet in packets:
        udp = struct.pack(">HHHH", 4991, 4991, 8 + len(packet), 0)
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(packet), 0, 0, 64, 17, 0, b"\x7f\0\0\1", b"\x7f\0\0\1")
        whole = ip + udp + packet
        made += struct.pack("<IIII", START, 0, len(whole), len(whole)) + whole
    return made


def packets_of(raw):
    """The packets in the bytes of a stream, by their own lengths."""
    while raw:
        length = 4 * struct.unpack(">H", raw[2:4])[0]
        yield raw[:length]
        raw = raw[length:]


def tshark(packets, fields, tmp_path):
    """What tshark reads: a list of these fields for each packet."""
    path = tmp_path / "all.pcap"
    path.write_bytes(pcap_of(packets))
    command = ["tshark", "-r", path, "-d", "udp.port==4991,vrt", "-T", "fields"]
    command += [word for field in fields for word in ("-e", field)]
    told = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    return [line.split("\t") for line in told]


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
def test_tshark_reads_the_recorded_packets(store, tmp_path):
    marks = {5: 0x40041000 | 1 << 24}
    sent = [data(n, ident=0xAB, trailer=marks.get(n, 0x40040000)) for n in range(40)]
    _, recording = record([*sent, context(40, 3, ident=0xAB)], store)
    recorded = [*packets_of(recording.on_disk().bytes("rx-000000ab")), *packets_of(recording.on_disk().bytes("rx-context"))]
    fields = ["type", "seq", "len", "sid", "ts_int", "ts_frac_picosecond", "sampleloss"]
    told = tshark(recorded, [f"vrt.{field}" for field in fields], tmp_path)
    assert len(told) == 41
    for n, (kind, count, _, ident, second, part, lost) in enumerate(told[:40]):
        assert (int(kind), int(count), int(ident, 16)) == (DATA, n % 16, 0xAB)
        assert (int(second), int(part)) == (START, n * SAMPLES * 10**6)
        assert lost in (("1", "True") if n == 5 else ("", "0", "False"))
    assert told[40][:3] == [str(CONTEXT), "3", "27"]


def test_data_without_a_time_are_not_proven(store):
    account = record([data(n, time="none") for n in range(400)], store)[0]["00000001"]
    assert (account["counted_by"], account["verdict"]) == ("packet-count", "unproven")
    assert account["terms"]["written"] == 400


def test_trailers_tell_invalid_data_lost_samples_and_over_range(store):
    marks = {7: 0x40000000, 9: 0x40041000 | 1 << 24, 11: 0x40042000 | 1 << 25, 12: 0x40042000 | 1 << 25}
    packets = [data(n, trailer=marks.get(n, 0x40040000)) for n in range(100)]
    account = record(packets, store)[0]["00000001"]
    assert (account["invalid"], account["sample_loss"], account["over_range"]) == (1, 1, 2)
    assert account["terms"]["written"] == 100 and account["verdict"] == "consistent"


def test_packets_of_any_length_are_kept(store):
    packets = [data(n, words=100 + n % 7 if n > 20 else SAMPLES) for n in range(40)]
    packets.append(data(40, words=1))
    told, recording = record(packets, store)
    assert told["00000001"]["terms"]["written"] == 41 and told["00000001"]["terms"]["missing"] == 0
    assert recording.on_disk().bytes("rx-00000001") == b"".join(packets)


def test_a_packet_of_another_length_than_its_header_says_is_damaged(store):
    packets = [data(n)[: -4 if n == 50 else None] for n in range(100)]
    terms = record(packets, store)[0]["00000001"]["terms"]
    assert (terms["damaged"], terms["written"], terms["missing"]) == (1, 99, 0)


def test_context_of_a_sender_that_does_not_count_it_is_kept(store):
    sent = [context(n, 0, rate=RATE + n, count=0) for n in range(20)]
    told, recording = record([*(data(n) for n in range(20)), *sent], store)
    assert recording.on_disk().bytes("rx-context") == b"".join(sent)
    assert told["context"]["terms"]["written"] == 20


def test_a_packet_that_breaks_the_rules_of_difi_is_recorded_with_a_warning(store):
    told, recording = record([data(n, oui=0x123456) for n in range(50)], store, query="format=difi")
    assert told["00000001"]["terms"]["written"] == 50
    assert "class id is not that of DIFI" in recording.last("warning")["text"]


@pytest.mark.parametrize("given", ["frame=8032", "fps=100", "threads=split", "seq=0:1:be"])
def test_an_option_that_packets_make_needless_is_refused(given, store):
    done = run("record", f"udp://:5000?format=vita49&{given}", "--store", store, "--session", "a", "--scan", "b", code=2)
    assert f"`{given.split('=')[0]}` is not for VITA-49" in text(done.stderr)


def test_datagrams_that_are_no_packets_are_foreign(store):
    packets = [data(n) for n in range(100)]
    told, _ = record([*packets[:50], b"rubbish", b"\xff" * 64, *packets[50:]], store)
    account = told["00000001"]
    assert (account["foreign"], account["terms"]["written"]) == (2, 100)
    assert json.dumps(account["gaps"]) == "[]"
