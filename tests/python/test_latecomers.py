"""Threads and stations that begin late, and datagrams of another format: recorded, or reported with the verdict."""

import socket
import struct
import time
from datetime import datetime, timezone

import pytest
from fullbore import AS_SEALED, FOUND, INCOMPLETE, INTACT, Recording, accounts, ask, balanced, free_port, free_ports, generate_command, run
from wire import Vdif, run_of_frames, send


def frames(count, thread=0, station=0x4266, payload_bytes=1024):
    return list(run_of_frames(count, thread=thread, station=station, payload_bytes=payload_bytes))


def until_told(recording, frames):
    """Waits until this number of frames of all streams was received."""
    recording.wait("progress", lambda told: sum(it["frames"] for it in told["streams"]) >= frames)


@pytest.mark.parametrize("threads", ["", "&threads=split"])
@pytest.mark.parametrize(
    "late", [{"thread": 1}, {"station": 0x5757}, {"thread": 3, "payload_bytes": 2048}], ids=["thread", "station", "length"]
)
def test_thread_or_station_that_begins_late_is_recorded(store, threads, late):
    port = free_port()
    early, later = frames(400), frames(300, **late)
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps=1000{threads}", store=store) as recording:
        send(early[:200], port)
        until_told(recording, 200)
        # Both continue, one packet after the other.
        send([it for pair in zip(early[200:], later[:200]) for it in pair] + later[200:], port)
        until_told(recording, 700)
        sealed = recording.stop(AS_SEALED)
    told = accounts(sealed)
    assert len(told) == 2
    for account in told.values():
        balanced(account)
        assert account["foreign"] == 0 and "unrecorded" not in account
    assert sorted(account["terms"]["written"] for account in told.values()) == [300, 400]
    ask("verify", "test_one", "--store", store, code=INTACT)
    first, second = told
    assert run("cat", f"test_one/{first}", "--store", store, code=AS_SEALED).stdout == b"".join(early)
    assert run("cat", f"test_one/{second}", "--store", store, code=AS_SEALED).stdout == b"".join(later)


@pytest.mark.parametrize("threads", ["", "&threads=split"])
def test_late_thread_takes_no_name_of_another_source(store, threads):
    first, second = free_ports(2)
    other = "at1"
    endpoints = [f"udp://127.0.0.1:{first}?name=a&fps=1000{threads}", f"udp://127.0.0.1:{second}?name={other}&fps=1000"]
    with Recording(*endpoints, store=store) as recording:
        send(frames(200), first)
        send(frames(200, station=0x5757), second)
        until_told(recording, 400)
        send([it for pair in zip(frames(400)[200:], frames(200, thread=1)) for it in pair], first)
        until_told(recording, 800)
        sealed = recording.stop(AS_SEALED)
    assert sorted(account["terms"]["written"] for account in accounts(sealed).values()) == [200, 200, 400]
    ask("verify", "test_one", "--store", store, code=INTACT)


def test_intruder_that_comes_first_takes_nothing_from_the_instrument(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?fps=1000", store=store) as recording:
        send(frames(4, station=0x1111, payload_bytes=512), port)
        until_told(recording, 4)
        instrument = send(frames(500), port)
        until_told(recording, 504)
        sealed = recording.stop(AS_SEALED)
    written = [account["terms"]["written"] for account in accounts(sealed).values()]
    assert written == [4, len(instrument)]


def test_frames_too_few_to_open_a_stream_stand_against_the_verdict(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?fps=1000", store=store) as recording:
        good = frames(200)
        send(good[:100], port)
        until_told(recording, 100)
        send([Vdif(station=0x1111, thread=5).frame(), *good[100:]], port)
        until_told(recording, 200)
        sealed = recording.stop(FOUND)
    (account,) = sealed["accounts"]
    assert (account["terms"]["written"], account["unrecorded"], account["verdict"]) == (200, 1, "consistent")


@pytest.mark.parametrize("fill", ["", "&fill=omit"])
def test_thread_outside_the_list_is_excluded_with_its_number(store, fill):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?fps=1000&threads=0{fill}", store=store) as recording:
        send(frames(100), port)
        until_told(recording, 100)
        send(frames(50, thread=1) + frames(200)[100:], port)
        until_told(recording, 200)
        sealed = recording.stop()
    (account,) = sealed["accounts"]
    assert (account["terms"]["written"], account["excluded"], account["verdict"]) == (200, 50, "proven")


def test_frames_of_another_length_than_asked_for_are_excluded_with_their_number(store):
    port, long = free_port(), {"payload_bytes": 2048, "thread": 1}
    with Recording(f"udp://127.0.0.1:{port}?fps=1000&frame=1056", store=store) as recording:
        send(frames(100, **long), port)
        good = frames(200)
        send(good[:100], port)
        until_told(recording, 100)
        send(frames(50, **long) + good[100:], port)
        until_told(recording, 200)
        sealed = recording.stop()
    (account,) = sealed["accounts"]
    assert (account["terms"]["written"], account["excluded"], account["foreign"]) == (200, 150, 0)
    assert account["verdict"] == "proven"


def test_raw_datagrams_of_another_length_than_the_first_stand_against_the_recording(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=raw", store=store) as recording:
        send([b"x" * 1000] * 200, port)
        until_told(recording, 200)
        send([b"y" * 1200] * 100, port)
        warning = recording.wait("warning", lambda told: "1200 bytes" in told["text"])["text"]
        assert "frame=varying" in warning
        sealed = recording.stop(FOUND)
    (account,) = sealed["accounts"]
    assert (account["terms"]["written"], account["unrecorded"], account["foreign"]) == (200, 100, 0)
    assert sealed["headline"].startswith("INCOMPLETE")


@pytest.mark.parametrize("filter", ["threads=7", "source=127.0.0.9", "frame=2080"])
def test_filter_that_leaves_out_all_that_comes_is_told(store, filter):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?fps=1000&{filter}", store=store) as recording:
        send(frames(200), port)
        warning = recording.wait("warning", lambda told: "are excluded by" in told["text"])["text"]
        assert "threads=, source= or frame=" in warning
        sealed = recording.stop(FOUND)
    (account,) = sealed["accounts"]
    assert (account["presence"], account["excluded"]) == ([{"what": "only-excluded", "datagrams": 200}], 200)
    assert "200 datagrams, and the filter of its endpoint left all of them out" in sealed["headline"]
    assert "left out" in sealed["explanation"]


@pytest.mark.parametrize("threads", ["", "&threads=split", "&fill=omit"])
def test_other_frames_of_the_same_time_are_no_duplicates(store, threads):
    port = free_port()
    header, other = frames(1500), [it[:32] + b"\xff" * 1024 for it in frames(1500)]
    with Recording(f"udp://127.0.0.1:{port}?fps=1000{threads}", store=store) as recording:
        # 20 frames are duplicated; 750 of another sender, or of a clock that was set back, have the times of others.
        send(header[:1000] + header[980:1000] + header[1000:] + other[750:], port)
        until_told(recording, 1500)
        warning = recording.wait("warning", lambda told: "out of window" in told["text"])["text"]
        assert "a clock that jumps" in warning
        sealed = recording.stop(FOUND)
    (account,) = sealed["accounts"]
    assert (account["terms"]["written"], account["duplicates"], account["out_of_window"]) == (1500, 20, 750)
    assert (account["verdict"], sealed["complete"]) == ("consistent", False)
    assert "750 frames came and were not kept" in sealed["headline"]


def test_scans_of_a_planned_series_cover_their_plan_although_each_is_cut_at_a_block(store):
    port, begin = free_port(), int(time.time()) + 3
    start = datetime.fromtimestamp(begin, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    options = ("--start", start, "--duration", "1s", "--scans", 3)
    with Recording(f"udp://127.0.0.1:{port}?fps=1000", store=store, options=options) as recording:
        time.sleep(max(0, begin - time.time()))
        sending = generate_command(port, fps=1000, frame=1032, frames=4000, start=start, gentle=True)
        run(*sending[1:], code=None)
        recording.sealed()
    told = [event for event in recording.events if event["event"] == "sealed"]
    assert [(event["completeness"], "uncovered" in event) for event in told] == [("complete", False)] * 3


def test_other_sender_is_excluded_with_its_number(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?fps=1000&source=127.0.0.2", store=store) as recording:
        send(frames(50, station=0x1111), port)
        send(frames(100), port, source="127.0.0.2")
        until_told(recording, 100)
        sealed = recording.stop()
    (account,) = sealed["accounts"]
    assert (account["terms"]["written"], account["excluded"], account["foreign"]) == (100, 50, 0)


def test_datagrams_that_are_not_vdif_are_told_at_once_with_the_remedy(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}", store=store) as recording:
        send([bytes(4100)] * 500, port)
        warning = recording.wait("warning", lambda told: "arrive" in told["text"])["text"]
        assert "4100 bytes" in warning and "?format=raw" in warning
        live = recording.wait("progress", lambda told: told["streams"][0]["foreign"] == 500)
        assert live["streams"][0]["silent"]
        sealed = recording.stop(FOUND)
    (account,) = sealed["accounts"]
    assert account["presence"] == [{"what": "only-foreign", "datagrams": 500}]
    assert "not of the format" in sealed["explanation"]
    assert "500 datagrams arrived" in run("info", "test_one", "--full", "--store", store, code=AS_SEALED).stdout.decode()


def test_frames_behind_a_packet_number_are_told_with_their_remedy(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}", store=store) as recording:
        send([struct.pack("<Q", n) + frame for n, frame in enumerate(frames(200))], port)
        warning = recording.wait("warning", lambda told: "arrive" in told["text"])["text"]
        assert "?format=vtp" in warning and "?strip=8" in warning
        recording.stop(FOUND)


@pytest.mark.parametrize("count", [2, 3])
def test_several_frames_in_each_datagram_are_told_with_their_remedy(store, count):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}", store=store) as recording:
        each = frames(200 * count)
        send([b"".join(each[at : at + count]) for at in range(0, len(each), count)], port)
        warning = recording.wait("warning", lambda told: "arrive" in told["text"])["text"]
        assert f"{count} VDIF frames of 1056 bytes each" in warning and "?format=raw" in warning
        recording.stop(FOUND)


def test_datagrams_that_came_before_the_first_frame_are_told_with_their_length(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?fps=1000", store=store) as recording:
        send([bytes(777)] * 20 + frames(200), port)
        warning = recording.wait("warning", lambda told: "beside its frames" in told["text"])["text"]
        assert "777 bytes" in warning
        recording.stop()


@pytest.mark.parametrize("strays", [0, 50])
def test_silent_port_that_is_split_into_threads_is_told(store, strays):
    port, silent = free_ports(2)
    sources = [f"udp://127.0.0.1:{it}?fps=1000&threads=split&name=p{n}" for n, it in enumerate((port, silent))]
    with Recording(*sources, store=store) as recording:
        send(frames(100) + frames(100, thread=1), port)
        send([bytes(300)] * strays, silent)
        live = recording.wait("progress", lambda told: len(told["streams"]) == 3 and told["streams"][2]["foreign"] == strays)
        assert (live["streams"][2]["name"], live["streams"][2]["silent"]) == ("p1", True)
        sealed = recording.stop(FOUND)
    told = accounts(sealed)
    assert list(told) == ["p0t0", "p0t1", "p1"]
    what = {"what": "only-foreign", "datagrams": strays} if strays else {"what": "never-came"}
    assert (told["p1"]["presence"], told["p1"]["foreign"]) == ([what], strays)
    assert (sealed["completeness"], sealed["complete"]) == ("incomplete", False)
    assert "p1" in sealed["headline"]
    assert ask("ls", "--store", store)[0]["complete"] is False
    assert ask("verify", "test_one", "--store", store, code=INCOMPLETE)["headline"] == sealed["headline"]


def test_scan_of_a_split_port_of_which_nothing_came_is_kept_and_incomplete(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?threads=split", store=store) as recording:
        sealed = recording.stop(FOUND)
    assert sealed["headline"].startswith("INCOMPLETE: nothing was recorded; ")
    assert [scan["completeness"] for scan in ask("ls", "--store", store)] == ["incomplete"]
    ask("verify", "test_one", "--store", store, code=INCOMPLETE)


def presences(account):
    """The presence of each thread, by its number."""
    return {flow["thread"]: [it["what"] for it in flow.get("presence", [])] for flow in account["flows"]}


def in_turns(*threads):
    """Frames of several threads as sent in real time: a frame of each running thread, in turn."""
    longest = max(map(len, threads))
    return [thread[n] for n in range(longest) for thread in threads if n < len(thread) and thread[n]]


def test_thread_of_a_shared_stream_that_ends_early_or_begins_late_is_told(store):
    port = free_port()
    late = [None] * 1000 + frames(1000, thread=2)
    with Recording(f"udp://127.0.0.1:{port}?fps=1000", store=store) as recording:
        send(in_turns(frames(2000), frames(1000, thread=1), late), port, pause=5e-4)
        until_told(recording, 4000)
        sealed = recording.stop(FOUND)
    (account,) = accounts(sealed).values()
    balanced(account)
    assert presences(account) == {0: [], 1: ["died-early"], 2: ["started-late"]}
    assert (account["terms"]["missing"], account["verdict"]) == (0, "unexplained")
    assert "thread 1: ended" in sealed["headline"] and "thread 2: began" in sealed["headline"]
    assert ask("verify", "test_one", "--store", store, code=INCOMPLETE)["headline"] == sealed["headline"]


def test_thread_of_a_shared_stream_that_does_not_cover_the_plan_is_told_in_frames(store):
    port, begin = free_port(), int(time.time()) + 3
    start = datetime.fromtimestamp(begin, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    source = f"udp://127.0.0.1:{port}?fps=1000"
    with Recording(source, store=store, options=("--start", start, "--duration", "3s")) as recording:
        time.sleep(max(0, begin - time.time()))
        send(in_turns(frames(3000), frames(1000, thread=1)), port, pause=7.4e-4)
        sealed = recording.sealed(FOUND)
    (account,) = accounts(sealed).values()
    assert presences(account) == {0: [], 1: ["lacks-end"]} and account["presence"] == []
    assert sealed["uncovered"]["frames"] == pytest.approx(2000, abs=700)
    assert "thread 1 ended" in sealed["headline"], sealed["headline"]


def test_thread_that_was_listed_and_never_came_is_told(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?fps=1000&threads=0,1&fill=omit", store=store) as recording:
        send(frames(400), port)
        until_told(recording, 400)
        sealed = recording.stop(FOUND)
    (account,) = accounts(sealed).values()
    balanced(account)
    assert presences(account) == {0: [], 1: ["never-came"]}
    assert (account["terms"]["written"], account["verdict"]) == (400, "unexplained")
    assert sealed["completeness"] == "incomplete" and "thread 1: sent nothing" in sealed["headline"]
    assert ask("verify", "test_one", "--store", store, code=INCOMPLETE)["headline"] == sealed["headline"]


def test_loss_beside_a_thread_of_one_frame_is_not_put_on_this_host(store):
    port, sent = free_port(), frames(600)
    with Recording(f"udp://127.0.0.1:{port}?fps=1000&threads=0,7&fill=omit", store=store) as recording:
        send(frames(1, thread=7) + sent[:300] + sent[310:], port)
        until_told(recording, 591)
        sealed = recording.stop(FOUND)
    (account,) = accounts(sealed).values()
    if any(it["before"] != it["after"] for it in account["drop_counters"]):
        pytest.skip("a loss counter of this host moved meanwhile")
    assert (account["terms"]["missing"], account["explained"], account["verdict"]) == (10, 0, "unproven")
    assert "dropped by this host" not in sealed["headline"] and "not known" in sealed["headline"]


def test_what_is_not_recorded_is_counted_live(store):
    port, excluding = free_ports(2)
    sources = [f"udp://127.0.0.1:{port}?fps=1000", f"udp://127.0.0.1:{excluding}?fps=1000&threads=7"]
    good, other = frames(1000), [it[:32] + b"\xff" * 1024 for it in frames(1000)]
    with Recording(*sources, store=store) as recording:
        send(good[:500] + [bytes(777)] * 20 + other[:100] + good[500:], port)
        send(frames(300), excluding)
        recording.wait(
            "progress",
            lambda told: [(it["foreign"], it["out_of_window"], it["excluded"]) for it in told["streams"]]
            == [(20, 100, 0), (0, 0, 300)],
        )
        recording.stop(FOUND)


def test_datagrams_that_are_no_frames_are_told_beside_good_ones(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?fps=1000", store=store) as recording:
        good = frames(200)
        send(good[:100] + [bytes(777)] * 20 + good[100:], port)
        warning = recording.wait("warning", lambda told: "arrive" in told["text"])["text"]
        assert "777 bytes" in warning and "foreign" in warning
        sealed = recording.stop()
    (account,) = sealed["accounts"]
    assert (account["terms"]["written"], account["foreign"]) == (200, 20)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_ipv6_wildcard_takes_senders_of_both_families(store, host):
    port = free_port(socket.AF_INET6)
    with Recording(f"udp://[::]:{port}?format=raw&seq=0:4:be", store=store) as recording:
        sent = send([struct.pack(">I", number) + bytes(508) for number in range(2000)], port, host)
        until_told(recording, len(sent))
        sealed = recording.stop()
    (account,) = sealed["accounts"]
    assert (account["terms"]["written"], account["verdict"]) == (2000, "proven")


@pytest.mark.parametrize(
    "number",
    [lambda n: struct.pack("<Q", n), lambda n: struct.pack("<II", 0, n), lambda n: struct.pack(">II", 0, n),
     lambda n: struct.pack(">II", 7, n)],
    ids=["u64", "u32 in bytes 4-7", "u64, highest byte first", "u32 behind a constant"],
)  # fmt: skip
def test_packet_number_is_found_where_the_sender_puts_it(store, number):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vtp&fps=1000", store=store) as recording:
        good = frames(2000)
        # Numbers 500 to 504 never arrive.
        kept = [n for n in range(2000) if not 500 <= n < 505]
        send((number(n + 77) + good[n] for n in kept), port)
        until_told(recording, len(kept))
        sealed = recording.stop(AS_SEALED)
    (account,) = sealed["accounts"]
    assert (account["counted_by"], account["out_of_window"], account["disagreements"]) == ("frame-time", 0, 0)
    assert (account["terms"]["written"], account["terms"]["missing"]) == (1995, 5)


@pytest.mark.parametrize(
    "number",
    [lambda n: n % 1000, lambda n: n if n < 1000 else n * 0x9E3779B97F4A7C15 % 2**64, lambda n: n + 10**6 * (n >= 1000)],
    ids=["begins anew", "makes no sense from a frame on", "jumps ahead"],
)
def test_packet_number_that_goes_wrong_later_loses_no_frame_and_invents_no_loss(store, number):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vtp&fps=1000", store=store) as recording:
        good = frames(2000)
        send((struct.pack("<Q", number(n)) + frame for n, frame in enumerate(good)), port)
        until_told(recording, 2000)
        sealed = recording.stop()
    (account,) = sealed["accounts"]
    assert (account["terms"]["written"], account["terms"]["expected"], account["duplicates"]) == (2000, 2000, 0)
    assert account["disagreements"] > 0 and account["verdict"] == "consistent"
    assert "second count" in sealed["headline"] and "second count" in sealed["explanation"]
    assert "loss counter" not in sealed["explanation"]


@pytest.mark.parametrize("offset", [0, 10**6], ids=["from zero", "far ahead"])
@pytest.mark.parametrize("late", [{"thread": 1}, {"station": 0x5757}], ids=["thread", "station"])
def test_latecomer_with_a_packet_number_of_its_own_is_recorded(store, late, offset):
    port = free_port()
    early = [struct.pack("<Q", n) + frame for n, frame in enumerate(frames(800))]
    later = [struct.pack("<Q", n + offset) + frame for n, frame in enumerate(frames(300, **late))]
    with Recording(f"udp://127.0.0.1:{port}?format=vtp&fps=1000", store=store) as recording:
        send(early[:500], port)
        until_told(recording, 500)
        send([it for pair in zip(early[500:], later) for it in pair], port)
        until_told(recording, 1100)
        sealed = recording.stop(AS_SEALED)
    told = [account["terms"] for account in accounts(sealed).values()]
    assert [(terms["written"], terms["expected"]) for terms in told] == [(800, 800), (300, 300)]


def test_packet_number_that_makes_no_sense_loses_no_frame(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?format=vtp&fps=1000", store=store) as recording:
        good = frames(1000)
        send((struct.pack("<Q", n * 0x9E3779B97F4A7C15 % 2**64) + frame for n, frame in enumerate(good)), port)
        until_told(recording, 1000)
        warning = recording.wait("warning", lambda told: "packet number" in told["text"])["text"]
        assert "counted by their time" in warning
        sealed = recording.stop()
    (account,) = sealed["accounts"]
    assert (account["counted_by"], account["terms"]["written"], account["verdict"]) == ("frame-time", 1000, "proven")


def test_recovered_scan_has_the_thread_that_began_late(store):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?fps=1000&block=64KiB", store=store) as recording:
        send(frames(600), port)
        until_told(recording, 600)
        send(frames(600, thread=1), port)
        until_told(recording, 1200)
        recording.wait("progress", lambda told: len(told["streams"]) == 2 and all(it["durable_bytes"] for it in told["streams"]))
        time.sleep(0.3)
        recording.kill()
    run("recover", "test_one", "--store", store, code=AS_SEALED)
    told = ask("info", "test_one", "--store", store, code=AS_SEALED)
    assert len(told["manifest"]["streams"]) == 2
