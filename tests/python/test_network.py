"""The network input: ports, groups, addresses, threads, packet numbers, rubbish."""

import os
import random
import signal
import socket
import struct
import subprocess
import time

import pytest
import wire
from fullbore import (
    AS_SEALED,
    FOUND,
    GOOD,
    INTACT,
    Recording,
    accounts,
    balanced,
    free_port,
    free_ports,
    may_open_rings,
    run,
)

needs_rings = pytest.mark.skipif(not may_open_rings(), reason="packet sockets need CAP_NET_RAW")


@pytest.fixture(params=["udp", pytest.param("packet", marks=needs_rings)])
def engine(request):
    return request.param


def judged(accounts, engine):
    """Every account is proven by the drop counter of the engine, which did not move."""
    counters = {"udp": ("socket", "drops"), "packet": ("packet-ring", "tp_drops")}
    for account in accounts:
        assert balanced(account)["verdict"] == "proven"
        own = [it for it in account["drop_counters"] if it["layer"] in ("socket", "packet-ring")]
        assert [(it["layer"], it["counter"], it["after"] - it["before"]) for it in own] == [(*counters[engine], 0)]


def one_stream(recording):
    (account,) = accounts(recording.stop(AS_SEALED)).values()
    return balanced(account)


@pytest.mark.parametrize(
    "host, source, options",
    [
        ("127.0.0.1", "0.0.0.0", {}),
        ("127.0.0.1", "", {}),
        ("::1", "[::1]", {}),
        ("127.0.0.1", "[::]", {}),
        ("::1", "[::]", {}),
        ("239.192.7.1", "239.192.7.1", {"interface": "127.0.0.1", "ttl": 1}),
    ],
    ids=["IPv4", "no host", "IPv6", "both, by IPv4", "both, by IPv6", "multicast"],
)
def test_every_kind_of_address_is_recorded_from(host, source, options, engine, store):
    if engine == "packet" and options:
        pytest.skip("a packet ring does not see what this host sends to a group itself")
    port = free_port(socket.AF_INET6 if ":" in source else socket.AF_INET)
    query = f"format=vdif&fps=1000&engine={engine}" + ("&interface=lo" if "interface" in options else "")
    with Recording(f"udp://{source}:{port}?{query}", store=store) as recording:
        sent = wire.send(wire.run_of_frames(2500), port, host, **options)
    assert recording.on_disk().bytes() == b"".join(sent)
    judged([one_stream(recording)], engine)


def interface_of_ipv6_groups():
    """An interface with a route to ff00::/8; loopback seldom has one."""
    try:
        with open("/proc/net/ipv6_route") as routes:
            rows = [line.split() for line in routes]
    except OSError:
        return None
    return next((row[9] for row in rows if row[0].startswith("ff00") and row[1] == "08"), None)


@pytest.fixture
def interface_with_ipv6_groups():
    """An existing interface, or one end of a temporary pair."""
    if found := interface_of_ipv6_groups():
        yield found
        return
    one, other = f"fb6a{os.getpid()}", f"fb6b{os.getpid()}"
    ip = lambda *words: subprocess.run(["ip", *words], capture_output=True, text=True)
    if (done := ip("link", "add", one, "type", "veth", "peer", "name", other)).returncode:
        pytest.skip(f"no interface has a route to IPv6 groups, and none can be made: {done.stderr.strip()}")
    try:
        for end in (one, other):
            ip("link", "set", end, "up", "multicast", "on").check_returncode()
        ip("-6", "addr", "add", "fe80::77/64", "dev", one, "nodad").check_returncode()
        yield one
    finally:
        ip("link", "del", one)


def test_an_ipv6_group_of_one_link_is_recorded_from(interface_with_ipv6_groups, store):
    port, interface = free_port(socket.AF_INET6), interface_with_ipv6_groups
    source = f"udp://[ff11::fb]:{port}?format=vdif&fps=1000&interface={interface}"
    with Recording(source, store=store) as recording:
        sent = wire.send(wire.run_of_frames(2500), port, "ff11::fb", interface=interface)
    assert recording.on_disk().bytes() == b"".join(sent)
    assert one_stream(recording)["terms"]["missing"] == 0


def test_sixteen_ports_by_one_range_are_sixteen_streams(engine, stores):
    ports = free_ports(16)
    source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif&fps=1000&engine={engine}"
    with Recording(source, store=stores) as recording:
        sent = {port: wire.run_of_frames(300, thread=port % 16) for port in ports}
        wire.send_in_turn(sent, pause=2e-4)
    scan = recording.on_disk()
    for port in ports:
        assert scan.bytes(port) == b"".join(sent[port])
    told = accounts(recording.stop())
    assert sorted(told) == sorted(map(str, ports))
    assert all(account["terms"]["written"] == 300 for account in told.values())
    judged(told.values(), engine)
    run("verify", recording.scan, "--store", ",".join(map(str, stores)), code=INTACT)


def interleaved(threads, count, fps=1000):
    runs = [wire.run_of_frames(count, fps, thread) for thread in threads]
    return [frame for instant in zip(*runs, strict=True) for frame in instant]


@pytest.mark.parametrize("drop", [0.0, 0.03], ids=["all came", "some did not"])
def test_threads_on_one_port_become_streams_each_with_its_account(drop, store):
    port, chance = free_port(), random.Random(5)
    frames = interleaved([4, 0, 9], 800)
    kept = [f for n, f in enumerate(frames) if n < 3 or n >= 2397 or chance.random() >= drop]
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&threads=split&fill=omit&name=a"
    with Recording(source, store=store) as recording:
        wire.send(kept, port)
    scan, told = recording.on_disk(), accounts(recording.stop(code=FOUND if drop else GOOD))
    for thread in (0, 4, 9):
        own = [frame for frame in kept if wire.thread_of(frame) == thread]
        assert scan.bytes(f"at{thread}") == b"".join(own)
        terms = balanced(told[f"at{thread}"])["terms"]
        assert (terms["expected"], terms["written"]) == (800, len(own))


def test_listed_threads_lie_side_by_side_in_the_order_listed(store):
    port = free_port()
    frames = interleaved([0, 1, 2, 3], 600)
    shuffled = [frames[at + n] for at in range(0, len(frames), 4) for n in (2, 0, 3, 1)]
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&threads=0-3"
    with Recording(source, store=store) as recording:
        wire.send(shuffled, port)
    assert recording.on_disk().bytes() == b"".join(frames)
    assert one_stream(recording)["verdict"] == "proven"


@pytest.mark.parametrize("length, legacy", [
    (1000, False), (1024, False), (5000, False), (8000, False), (9000, False), (8000, True), (64, True),
    (16_000, False), (32_768, False), (60_000, False),
])  # fmt: skip
def test_frames_of_any_length_with_either_header_are_stored_whole(length, legacy, store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=500", store=store) as recording:
        frames = wire.run_of_frames(1100, 500, payload_bytes=length, legacy=legacy)
        sent = wire.send(frames, port, pause=5e-5)
    assert recording.on_disk().bytes() == b"".join(sent)
    assert one_stream(recording)["verdict"] == "proven"


def test_a_run_over_midnight_and_the_change_of_the_epoch_has_no_gap(store):
    half_year = 181 * 86400  # epoch 52 is the first half of 2026
    before = wire.run_of_frames(100, 50, epoch=52, second=half_year - 2)
    after = wire.run_of_frames(100, 50, epoch=53, second=0)
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=50", store=store) as recording:
        wire.send(before + after, port)
    account = one_stream(recording)
    assert account["verdict"] == "proven" and account["terms"]["expected"] == 200
    assert recording.on_disk().bytes() == b"".join(before + after)


def test_missing_frames_are_filled_with_invalid_frames_that_keep_their_identity(store):
    port, frames = free_port(), wire.run_of_frames(3000, thread=6)
    lost = [*range(40, 50), 999, 1000, 2500]
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000", store=store) as recording:
        wire.send((f for n, f in enumerate(frames) if n not in lost), port)
    stored = wire.cut(recording.on_disk().bytes(), len(frames[0]))
    assert len(stored) == len(frames)
    for n, (ours, meant) in enumerate(zip(stored, frames, strict=True)):
        if n in lost:
            invalid = wire.Vdif(1000 + n // 1000, n % 1000, 6, invalid=True).header()
            assert ours[:16] == invalid[:16]
        else:
            assert ours == meant
    account = one_stream(recording)
    assert account["terms"]["missing"] == account["filled"] == len(lost)
    assert account["verdict"] == "unexplained"


def test_packet_numbers_are_counted_and_not_kept(store):
    port, frames = free_port(), wire.run_of_frames(1500)
    lost = [7, 8, 700]
    numbered = [struct.pack("<Q", 10_000 + n) + frame for n, frame in enumerate(frames)]
    source = f"udp://127.0.0.1:{port}?format=vtp&fps=1000&fill=omit"
    with Recording(source, store=store) as recording:
        wire.send((d for n, d in enumerate(numbered) if n not in lost), port)
    kept = [frame for n, frame in enumerate(frames) if n not in lost]
    assert recording.on_disk().bytes() == b"".join(kept)
    account = one_stream(recording)
    assert (account["counted_by"], account["disagreements"]) == ("frame-time", 0)
    assert account["terms"]["missing"] == 3 and account["disagreements"] == 0
    (stream,) = recording.stop(code=FOUND)["manifest"]["streams"]
    assert stream["stripped_bytes"] == 8


@pytest.mark.parametrize("order, width", [("<", 4), (">", 4), ("<", 8), (">", 8), (">", 2)])
def test_an_unknown_format_is_counted_by_its_sequence_field(order, width, store):
    port = free_port()
    code = {2: "H", 4: "I", 8: "Q"}[width]
    start = 2 ** (8 * width) - 500  # the counter wraps during the test
    frames = [
        b"HEAD" + struct.pack(order + code, (start + n) % 2 ** (8 * width)) + bytes([n % 251]) * 500
        for n in range(2000)
    ]
    lost, twice = {3, 600, 601, 1990}, 77
    sent = [frame for n, frame in enumerate(frames) if n not in lost]
    sent.insert(80, frames[twice])
    name = "le" if order == "<" else "be"
    source = f"udp://127.0.0.1:{port}?format=raw&seq=4:{width}:{name}&fill=0x11223344"
    with Recording(source, store=store) as recording:
        wire.send(sent, port)
    length = len(frames[0])
    filler = (struct.pack("<I", 0x11223344) * (length // 4 + 1))[:length]
    meant = [filler if n in lost else frame for n, frame in enumerate(frames)]
    assert recording.on_disk().bytes() == b"".join(meant)
    account = one_stream(recording)
    assert account["terms"]["missing"] == len(lost) and account["duplicates"] == 1


def test_datagrams_of_varying_length_lie_one_after_another(store):
    port, chance = free_port(), random.Random(11)
    sent = [chance.randbytes(chance.randint(1, 9000)) for _ in range(3000)]
    source = f"udp://127.0.0.1:{port}?format=raw&frame=varying"
    with Recording(source, store=store) as recording:
        wire.send(sent, port, pause=5e-5)
    whole = b"".join(sent)
    assert recording.on_disk().bytes() == whole
    assert run("cat", recording.scan, "--store", store).stdout == whole
    account = one_stream(recording)
    assert account["terms"]["written"] == 3000 and account["verdict"] == "unproven"


def test_only_the_sender_asked_for_counts(store):
    port, frames = free_port(), wire.run_of_frames(500)
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000&source=127.0.0.2"
    with Recording(source, store=store) as recording:
        wire.send(wire.run_of_frames(200, station=1), port, source="127.0.0.3")
        wire.send(frames, port, source="127.0.0.2")
    assert recording.on_disk().bytes() == b"".join(frames)


def test_no_packet_ends_a_recording_and_rubbish_is_counted(store):
    port, chance = free_port(), random.Random(3)
    frames = wire.run_of_frames(2000)
    lengths = [0, 1, 15, 16, 31, 1055, 1057, 9000, 65_507]
    rubbish = [chance.randbytes(n) for n in lengths] + [b"\xff" * 1056, bytes(1056)]
    sent = list(frames)
    for n, packet in enumerate(rubbish):
        sent.insert(100 + 150 * n, packet)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000", store=store) as recording:
        wire.send(sent, port)
    assert recording.on_disk().bytes() == b"".join(frames)
    account = one_stream(recording)
    assert account["terms"]["written"] == account["terms"]["expected"] == 2000
    assert account["foreign"] == len(rubbish)


@pytest.mark.parametrize("query", ["format=vdif", "format=raw&seq=4:4:le"], ids=["VDIF", "raw"])
def test_a_packet_of_another_kind_before_the_stream_does_not_become_the_stream(query, store):
    port = free_port()
    stray = wire.Vdif(payload_bytes=2000, station=1).frame() if "vdif" in query else b"who is there?"
    frames = wire.run_of_frames(1500, fps=2000)
    with Recording(f"udp://127.0.0.1:{port}?{query}", store=store) as recording:
        wire.send([stray], port)
        time.sleep(0.3)
        wire.send(frames, port)
    assert recording.on_disk().bytes() == b"".join(frames)
    account = one_stream(recording)
    # A whole VDIF frame that is not recorded affects the verdict; rubbish does not.
    stray_frame = "vdif" in query
    assert account["terms"]["written"] == 1500
    assert (account["foreign"], account.get("unrecorded", 0)) == ((0, 1) if stray_frame else (1, 0))
    assert account["verdict"] == ("consistent" if stray_frame else "proven")


def test_reordered_and_repeated_frames_are_put_in_order_once(store):
    port, chance = free_port(), random.Random(9)
    frames = wire.run_of_frames(4000)
    order = sorted(range(1, 4000), key=lambda n: n + chance.random() * 20)
    arrived = [frames[0]]
    for n in order:
        arrived += [frames[n]] * (2 if n % 100 == 0 else 1)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000", store=store) as recording:
        wire.send(arrived, port)
    assert recording.on_disk().bytes() == b"".join(frames)
    account = one_stream(recording)
    assert account["duplicates"] == 39 and account["verdict"] == "proven"
    lags = [max(order[:at], default=0) - n for at, n in enumerate(order)]
    assert account["reordered"] == sum(lag > 0 for lag in lags)
    assert account["reorder_extent"] == max(lags)


def test_streams_that_never_came_started_late_or_died_early_are_visible(store):
    ports = free_ports(4)
    whole, never, late, early = map(str, ports)
    runs = {port: wire.run_of_frames(1600) for port in ports}
    source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif&fps=1000"
    with Recording(source, store=store) as recording:
        start = time.monotonic()
        for n in range(1600):
            wire.send([runs[ports[0]][n]], ports[0], pause=1e-3)
            if n == 1200:
                late_by = time.monotonic() - start
            if n >= 1200:
                wire.send([runs[ports[2]][n]], ports[2], pause=0)
            if n < 400:
                wire.send([runs[ports[3]][n]], ports[3], pause=0)
    told = accounts(recording.stop(code=FOUND))
    what = {name: {p["what"] for p in account["presence"]} for name, account in told.items()}
    assert what == {whole: set(), never: {"never-came"}, late: {"started-late"}, early: {"died-early"}}
    assert told[never]["verdict"] == told[late]["verdict"] == told[early]["verdict"] == "unexplained"
    (told_by,) = [p["ns"] / 1e9 for p in told[late]["presence"]]
    assert told_by == pytest.approx(late_by, abs=0.2)


def test_the_end_can_be_given_beforehand(store):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000"
    with Recording(source, store=store, options=["--duration", "300ms"]) as recording:
        wire.send(wire.run_of_frames(100), port)
        recording.sealed()
    with Recording(source, store=store, scan="two", options=["--bytes", "100kB"]) as recording:
        wire.send(wire.run_of_frames(1000), port, pause=1e-4)
        recording.sealed()
    assert len(recording.on_disk().bytes()) >= 100_000


def test_scans_follow_one_another_and_are_listed(store):
    port = free_port()
    for scan in ("a1", "a2", "a3"):
        source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000"
        with Recording(source, store=store, scan=scan) as recording:
            wire.send(wire.run_of_frames(500), port)
        assert one_stream(recording)["verdict"] == "proven"
    listed = run("ls", "--store", store).stdout.decode()
    assert all(f"test_{scan}" in listed for scan in ("a1", "a2", "a3"))
    run("rm", "test_a2", "--store", store, "--yes", code=GOOD)
    assert "test_a2" not in run("ls", "--store", store).stdout.decode()


def test_a_flipped_byte_is_found_and_its_chunk_is_named(store):
    port = free_port()
    source = f"udp://127.0.0.1:{port}?format=vdif&fps=1000"
    with Recording(source, store=store) as recording:
        wire.send(wire.run_of_frames(2000), port)
    (chunk,) = recording.on_disk().chunks()
    raw = bytearray(chunk.read_bytes())
    raw[len(raw) // 2] ^= 0x10
    chunk.write_bytes(raw)
    assert chunk.name in run("verify", recording.scan, "--store", store, code=FOUND).stdout.decode()


def test_the_same_words_can_stand_in_a_file(store, tmp_path):
    port = free_port()
    config = tmp_path / "record.toml"
    config.write_text(
        f'[record]\nsource = ["udp://127.0.0.1:{port}?format=vdif"]\nstore = ["{store}"]\n'
        'session = "filed"\nscan = "one"\nduration = "100ms"\n'
    )
    run("--config", config, "record", code=FOUND)
    assert "filed_one" in run("ls", "--store", store).stdout.decode()


def test_what_overflows_the_socket_is_missing_and_explained_by_its_own_counter(store):
    port = free_port()
    sent = wire.run_of_frames(700)
    query = "format=vdif&fps=1000&rcvbuf=4KiB&gro=off"
    with Recording(f"udp://127.0.0.1:{port}?{query}", store=store) as recording:
        wire.send(sent[:100], port, pause=2e-3)
        recording.wait("opened")
        recording.process.send_signal(signal.SIGSTOP)
        os.waitpid(recording.process.pid, os.WUNTRACED)
        wire.send(sent[100:600], port)
        recording.process.send_signal(signal.SIGCONT)
        wire.send(sent[600:], port, pause=2e-3)
    [account] = recording.stop(code=FOUND)["accounts"]
    terms = balanced(account)["terms"]
    [drops] = [w for w in account["drop_counters"] if w["layer"] == "socket"]
    moved = drops["after"] - drops["before"]
    assert 400 < terms["missing"] <= moved, (terms, drops)
    assert not drops["coarse"] and account["verdict"] == "consistent", account["verdict"]
    run("verify", recording.scan, "--store", store, code=INTACT)
