"""A session by schedule: each scan begins at its time with its first frame, and a failed scan does not affect the
others."""

import json
import os
import signal
import socket
import subprocess
import time
from datetime import datetime, timedelta, timezone

import pytest
from fullbore import (
    BINARY,
    FOUND,
    GOOD,
    INCOMPLETE,
    PATIENCE,
    REFUSED,
    balanced,
    free_port,
    free_ports,
    generate_command,
    run,
    text,
)

UTC = "%Y-%m-%dT%H:%M:%S.%fZ"
SMALL = ["--buffer", "192MiB", "--lead", "1s", "--json"]


def utc(seconds):
    """A time this number of seconds from now, in the format of schedules."""
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime(UTC)


def since_epoch(stamp):
    return datetime.fromisoformat(stamp[:26] + "+00:00").timestamp()


def csv(path, *scans):
    rows = [",".join(map(str, scan)) for scan in scans]
    path.write_text("\n".join(["scan,start,duration", *rows]) + "\n")
    return path


class Session:
    """`fullbore record --schedule`, and a sender that never stops, until the block is left."""

    def __init__(self, schedule, store, ports, *options, rate="8Mbit/s", lasts=PATIENCE, query="format=vdif", env=None):
        source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?{query}"
        self.env = {**os.environ, **(env or {})}
        self.command = [
            BINARY, "record", source, "--store", str(store), "--session", "day",
            "--schedule", str(schedule), *SMALL, *options,
        ]  # fmt: skip
        target = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}"
        self.sending = generate_command(target, rate=rate, frame=1032, duration=f"{lasts}s", gentle=True)

    def __enter__(self):
        self.sender = subprocess.Popen(self.sending, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env
        )
        return self

    def __exit__(self, *_):
        for process in (self.sender, self.process):
            process.kill()
            process.wait()

    def waits_for(self):
        """The scan that it reports to wait for."""
        return self.until("waiting")[-1]["scan"]

    def until(self, event, where=lambda told: True):
        """All events up to the first of that name for which `where` is true."""
        told = []
        for line in self.process.stdout:
            told.append(json.loads(line))
            if told[-1]["event"] == event and where(told[-1]):
                return told
        raise AssertionError(f"no {event}: {told[-3:]}")

    def stop_while_waiting(self):
        """All events until it waits for a scan; then the session is stopped."""
        told = self.until("waiting")
        self.process.send_signal(signal.SIGINT)
        rest, session = self.end(code=FOUND)
        return told + rest, session

    def end(self, code=GOOD, patience=PATIENCE):
        """Waits for the end; returns all events, and the account of the session by scan."""
        out, err = self.process.communicate(timeout=patience)
        told = [json.loads(line) for line in out.splitlines()]
        allowed = code if isinstance(code, tuple) else (code,)
        assert self.process.returncode in allowed, (self.process.returncode, [e for e in told if e["event"] in ("warning", "session")] + [a["gaps"] for e in told if e["event"] == "sealed" for a in e["accounts"]], text(err))
        session = next(event for event in told if event["event"] == "session")
        return told, session


def check(told, session, name, start, lasts, streams, slack=0.1):
    """A scan has every frame from its start to its end, of every stream."""
    outcome = next(scan for scan in session["scans"] if scan["scan"] == name)
    assert outcome["outcome"] == "recorded", outcome
    assert outcome["terms"]["missing"] == outcome["terms"]["overrun"] == 0
    sealed = next(
        event for event in told
        if event["event"] == "sealed" and event["manifest"]["scan"]["scan"] == name
    )  # fmt: skip
    assert len(sealed["accounts"]) == streams
    for account in sealed["accounts"]:
        balanced(account)
        first, last = (since_epoch(account[end]["seen"]) for end in ("first", "last"))
        # Started slightly early, so that the frame due at the start is certainly included.
        assert start - 0.5 < first < start + slack, first - start
        assert start + lasts - 2 * slack < last < start + lasts + 5 * slack, last - start
        assert account["terms"]["missing"] == 0


@pytest.mark.alone
def test_each_scan_begins_and_ends_at_its_time(tmp_path, store):
    """The session of the paper, shortened; `make long` records it at the rate that the disk holds (benches/session.py)."""
    count, lasts, pause, streams = 3, 2, 2, 8
    begin = time.time() + 4
    schedule = tmp_path / "session.toml"
    start = datetime.fromtimestamp(begin, timezone.utc).strftime(UTC)
    schedule.write_text(
        f'session = "exp1"\n[[scan]]\nname = "no"\nstart = "{start}"\nduration = "{lasts}s"\n'
        f"pause = {pause}\nrepeat = {count}\n"
    )
    span = 20 + count * (lasts + pause)
    with Session(schedule, store, free_ports(streams), lasts=span) as running:
        told, session = running.end(patience=span + PATIENCE)
    assert [scan["scan"] for scan in session["scans"]] == [f"no{n + 1:04}" for n in range(count)]
    for n in range(count):
        at = begin + n * (lasts + pause)
        check(told, session, f"no{n + 1:04}", at, lasts, streams)
        run("verify", f"day_no{n + 1:04}", "--store", store)
    assert session["terms"]["expected"] == session["terms"]["written"]
    (kept,) = (store / ".fullbore" / "sessions").iterdir()
    assert kept.name.startswith("day.") and json.loads(kept.read_text()) == session
    assert any(str(kept) in event.get("text", "") for event in told)


@pytest.mark.alone
def test_a_scan_that_fails_takes_no_other_with_it(tmp_path, store):
    begin = time.time() + 4
    schedule = csv(
        tmp_path / "s.csv",
        ("gone", utc(-60), "2s"),
        ("half", utc(-3), "5s"),
        ("taken", utc(4), "1s"),
        ("last", utc(7), "1s"),
    )
    (store / "day_taken").mkdir()
    with Session(schedule, store, free_ports(2)) as running:
        told, session = running.end(code=FOUND)
    by_name = {scan["scan"]: scan for scan in session["scans"]}
    assert by_name["gone"]["outcome"] == "missed"
    assert by_name["half"]["outcome"] == "recorded" and by_name["half"]["late_seconds"] > 2
    assert by_name["taken"]["outcome"] == "recorded" and by_name["taken"]["recorded_as"] == "taken-2"
    assert any("day_taken exists already" in event.get("text", "") for event in told)
    check(told, session, "last", begin + 3, 1, 2)


def test_a_session_that_is_begun_again_records_the_rest_of_the_scan_that_should_run(tmp_path, store):
    schedule = csv(tmp_path / "s.csv", ("done", utc(3), "1s"), ("half", utc(6), "14s"), ("next", utc(22), "1s"))
    ports = free_ports(2)
    with Session(schedule, store, ports) as running:
        running.until("sealed")
        running.until("progress", lambda told: told["scan"]["scan"] == "half" and told["durable_bytes"] > 0)
        running.process.kill()
        running.process.wait()
    with Session(schedule, store, ports) as running:
        told, session = running.end(code=FOUND)
    done, half, after = session["scans"]
    assert (done["outcome"], done["parts"], done["unsealed"]) == ("recorded-before", ["done"], [])
    assert done["terms"]["expected"] == done["terms"]["written"] > 0
    assert [event["scan"] for event in told if event["event"] == "recorded-before"] == ["done"]
    assert not [event for event in told if event["event"] == "missed"]
    assert half["outcome"] == "recorded" and half["recorded_as"] == "half-2" and half["late_seconds"] > 0.25
    said = [event["text"] for event in told if event["event"] == "warning"]
    assert any("its rest is recorded as half-2" in text and "recover day_half" in text for text in said), said
    assert after["outcome"] == "recorded" and "recorded_as" not in after
    run("verify", "day_half-2", "--store", store)
    run("recover", "day_half", "--store", store)
    run("verify", "day_half", "--store", store, code=INCOMPLETE)


def test_a_hangup_reads_the_schedule_again(tmp_path, store):
    schedule = csv(tmp_path / "s.csv", ("one", utc(6), "1s"), ("far", utc(3600), "1s"))
    with Session(schedule, store, free_ports(1), "--lead", "3s") as running:
        assert running.waits_for() == "one"
        csv(schedule, ("one", utc(5), "1s"), ("two", utc(10), "1s"))
        running.process.send_signal(signal.SIGHUP)
        told, session = running.end()
    (changed,) = [event for event in told if event["event"] == "schedule"]
    assert "two" in changed["added"] and changed["removed"] == ["far"]
    assert [scan["scan"] for scan in session["scans"]] == ["one", "two"]


def test_a_hangup_is_obeyed_while_a_scan_runs_and_one_that_is_cut_short_is_told_as_such(tmp_path, store):
    begin = utc(2)
    schedule = csv(tmp_path / "s.csv", ("one", begin, "3000s"), ("far", utc(3600), "1s"))
    with Session(schedule, store, free_ports(2)) as running:
        running.until("progress", lambda told: told["durable_bytes"] > 0)
        csv(schedule, ("one", begin, "2s"), ("two", utc(4000), "1s"))
        running.process.send_signal(signal.SIGHUP)
        before = running.until("schedule")
        assert not [event for event in before if event["event"] == "sealed"], "it was to run on"
        assert (before[-1]["added"], before[-1]["removed"]) == (["two"], ["far"])
        assert before[-1]["too_late"] == ["one"]
        running.until("progress")
        running.process.send_signal(signal.SIGINT)
        told, session = running.end(code=FOUND)
    (one,) = session["scans"]
    assert one["outcome"] == "recorded" and session["left"] == ["two"]
    assert 2000 < one["cut_short_seconds"] < 3000, one
    assert one["terms"]["expected"] == one["terms"]["written"] > 0
    assert one["complete"] is False and 2000e9 < one["uncovered"]["ns"] < 3000e9, one
    run("verify", "day_one", "--store", store, code=INCOMPLETE)


@pytest.mark.alone
def test_a_scan_ends_in_time_for_one_that_now_begins_within_it(tmp_path, store):
    begin = utc(2)
    schedule = csv(tmp_path / "s.csv", ("one", begin, "3000s"))
    with Session(schedule, store, free_ports(2)) as running:
        running.until("progress", lambda told: told["durable_bytes"] > 0)
        at = time.time() + 4
        csv(schedule, ("one", begin, "3000s"), ("two", utc(4), "2s"))
        running.process.send_signal(signal.SIGHUP)
        changed = running.until("schedule")[-1]
        assert (changed["added"], changed["too_late"]) == (["two"], [])
        said = running.until("warning", lambda told: "so that scan two begins in time" in told["text"])
        assert "scan one, which was to last until" in said[-1]["text"]
        told, session = running.end(code=FOUND)
    one, _ = session["scans"]
    assert one["outcome"] == "recorded" and 2900 < one["cut_short_seconds"] < 3000, one
    (sealed,) = [it for it in told if it["event"] == "sealed" and it["manifest"]["scan"]["scan"] == "one"]
    stopped = since_epoch(sealed["manifest"]["stopped"])
    assert at - 1.5 < stopped < at - 0.5, "the lead is one second"
    check(told, session, "two", at, 2, 2)


def test_a_scan_that_cannot_be_armed_is_tried_again_and_recorded_from_then_on(tmp_path, store):
    (port,) = free_ports(1)
    schedule = csv(tmp_path / "s.csv", ("one", utc(2), "10s"), ("two", utc(14), "1s"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", port))
        with Session(schedule, store, [port]) as running:
            told = running.until("warning", lambda told: "cannot be armed now" in told["text"])
            assert "scan one" in told[-1]["text"] and "in use" in told[-1]["text"].lower(), told[-1]
            other.close()
            rest, session = running.end(code=(GOOD, FOUND))
    one, two = session["scans"]
    assert one["outcome"] == two["outcome"] == "recorded", session
    assert one["terms"]["written"] > 0 and "cut_short_seconds" not in one
    said = [event for event in rest if event["event"] == "warning" and "cannot be armed" in event["text"]]
    assert not said, "the same is said once"


def test_a_scan_that_cannot_be_armed_until_it_is_over_has_failed_and_the_next_one_comes(tmp_path, store):
    (port,) = free_ports(1)
    schedule = csv(tmp_path / "s.csv", ("one", utc(2), "2s"), ("two", utc(8), "2s"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", port))
        with Session(schedule, store, [port]) as running:
            running.until("warning", lambda told: told["text"].startswith("scan one:"))
            other.close()
            _, session = running.end(code=FOUND)
    one, two = session["scans"]
    assert one["outcome"] == "failed" and "in use" in one["why"].lower()
    assert two["outcome"] == "recorded" and two["terms"]["written"] > 0
    assert not list(store.glob("day_one*"))


def test_a_schedule_that_became_rubbish_leaves_the_old_one(tmp_path, store):
    schedule = csv(tmp_path / "s.csv", ("one", utc(3), "1s"))
    with Session(schedule, store, free_ports(1)) as running:
        running.waits_for()
        schedule.write_text("rubbish")
        running.process.send_signal(signal.SIGHUP)
        told, session = running.end()
    assert any("stays as it was" in event.get("text", "") for event in told)
    assert [scan["outcome"] for scan in session["scans"]] == ["recorded"]


def test_an_end_while_waiting_leaves_nothing_and_says_what_was_left(tmp_path, store):
    schedule = csv(tmp_path / "s.csv", ("one", utc(2), "1s"), ("two", utc(3600), "1s"))
    with Session(schedule, store, free_ports(1), "--lead", "30s") as running:
        for line in running.process.stdout:
            if json.loads(line)["event"] == "armed":
                break
        running.process.send_signal(signal.SIGINT)
        told, session = running.end(code=FOUND)
    assert session["scans"] == [] and session["left"] == ["one", "two"]
    assert not list(store.glob("day_*"))


@pytest.mark.parametrize(
    "content, part",
    [
        ("scan,start,duration\n", "no scan"),
        ("scan,start,duration\na b,2026-11-22T18:00:00Z,4s\n", "a b"),
        ("VEX_rev = 1.5;\n$SCHED;\nscan a; start=2026y1d; station=Ef: 0 sec: 4 sec; station=On: 0 sec: 4 sec; endscan;\n", "Ef, On"),
        ("rubbish", "line 1"),
    ],
)
def test_a_bad_schedule_is_refused_at_once(content, part, tmp_path, store):
    schedule = tmp_path / "s"
    schedule.write_text(content)
    source = f"udp://127.0.0.1:{free_port()}?format=vdif"
    words = ["record", source, "--store", store, "--session", "day", "--schedule", schedule]
    done = run(*words, code=REFUSED)
    assert part in text(done.stderr)
    absent = run(*words[:-1], tmp_path / "none", code=REFUSED)
    assert "none" in text(absent.stderr)


def test_a_store_keeps_to_its_size_and_lets_protected_scans_be(tmp_path, store):
    ports = free_ports(1)
    scans = [(name, utc(5 + 3 * n), "1s") for n, name in enumerate(["a", "b", "c", "d"])]
    old = tmp_path / "old.csv"
    with Session(csv(old, *scans[:2]), store, ports) as running:
        running.end()
    run("protect", "day_a", "--store", store)
    refused = run("rm", "--yes", "day_a", "--store", store, code=REFUSED)
    assert "protected" in text(refused.stderr)
    scans = [(name, utc(5 + 3 * n), "1s") for n, name in enumerate(["c", "d"])]
    with Session(csv(old, *scans), store, ports, "--keep", "2.5MB") as running:
        told, _ = running.end()
    assert sum("day_b removed" in event.get("text", "") for event in told) == 1
    listed = json.loads(run("ls", "--store", store, "--json").stdout)
    entries = {entry["name"]: entry for entry in listed}
    assert "day_a" in entries and entries["day_a"]["protected"]
    assert "day_b" not in entries and "day_d" in entries
    assert "day_c" in entries, "no newer scan goes in the place of one that is protected"
    in_the_way = [event["text"] for event in told if "is not removed" in event.get("text", "")]
    assert len(in_the_way) == 1 and "day_a" in in_the_way[0] and "protected" in in_the_way[0], in_the_way
    run("protect", "--off", "day_a", "--store", store)
    run("rm", "--yes", "day_a", "--store", store)


def test_a_disk_set_found_wanting_is_named_and_ends_with_1_though_every_frame_is_there(tmp_path, stores):
    """One of three members is absent: it is named, and its share of parity is reported as missing."""
    away = stores[2]
    away.rmdir()
    members = ",".join(map(str, stores))
    schedule = csv(tmp_path / "day.csv", ("a", utc(4), "1s"))
    options = ["--redundancy", "parity:1+2", "--chunk", "4MiB"]
    with Session(schedule, members, free_ports(1), *options) as running:
        told, session = running.end(code=FOUND)
    (outcome,) = session["scans"]
    assert outcome["terms"]["expected"] == outcome["terms"]["written"] > 0
    manifest = next(event["manifest"] for event in told if event["event"] == "sealed")
    assert [it["path"] for it in manifest["away"]] == [str(away)]
    followed = manifest["redundancy"]["followed"]
    assert followed["narrow"] == followed["stripes"] > 0 and followed["unprotected"] == 0, followed
    (why,) = [event["text"] for event in told if "is degraded" in event.get("text", "")]
    assert f"{away} was away" in why and "than parity:1+2 asks for" in why, why
    given = ["--store", ",".join(map(str, stores[:2]))]
    shown = text(run("info", "day_a", *given).stdout)
    assert f"away: {away}" in shown and "TOO NARROW" in shown, shown
    listed = text(run("ls", *given).stdout)
    assert f"day_a: {away} was away" in listed, listed


def warnings(told):
    return [event["text"] for event in told if event["event"] == "warning"]


def test_what_stands_in_the_way_of_scans_to_come_is_told_at_once(tmp_path, store):
    (port,) = free_ports(1)
    schedule = csv(tmp_path / "s.csv", ("one", utc(3600), "40s"), ("two", utc(3660), "40s"))
    (store / "day_two_ds46220").mkdir()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", port))
        with Session(schedule, f"{store},{tmp_path / 'none'}", [port]) as running:
            told, _ = running.stop_while_waiting()
    said = warnings(told)
    assert any("no scan can be armed" in text and "in use" in text.lower() for text in said), said
    assert any("1 scan of these names already: two" in text for text in said), said
    assert any("none takes no part" in text for text in said), said
    with Session(schedule, store, [port], "--buffer", "1MiB") as running:
        out, err = running.process.communicate(timeout=PATIENCE)
    assert running.process.returncode == REFUSED and "each needs" in text(err)


def test_a_session_is_held_against_the_room_there_is_and_the_scan_that_fills_it_is_named(tmp_path, store):
    rate = "format=vdif&frame=1032&fps=1000000"
    schedule = csv(tmp_path / "s.csv", ("over", utc(-9), "1s"), ("small", utc(3600), "1s"), ("large", utc(3700), "29d"))
    with Session(schedule, store, free_ports(1), query=rate) as running:
        told, _ = running.stop_while_waiting()
    (room,) = [event for event in told if event["event"] == "room"]
    assert room["fills"] == "large" and room["rate"] == 1_032_000_000 and room["scans"] == 2
    assert room["needed_bytes"] == room["rate"] * (1 + 29 * 86400) > room["free_bytes"]
    assert room["full"] > utc(3700)


def test_a_rate_that_nobody_told_is_learnt_from_the_first_scan(tmp_path, store):
    long = [(f"long{n}", utc(3600 + n * 2_600_000), "29d") for n in range(40)]
    schedule = csv(tmp_path / "s.csv", ("one", utc(3), "2s"), *long)
    with Session(schedule, store, free_ports(1)) as running:
        told = running.until("room")
        running.process.send_signal(signal.SIGINT)
        running.end(code=FOUND)
    assert [event for event in told if event["event"] == "sealed"], "before, no rate was known"
    room = told[-1]
    assert room["fills"].startswith("long") and 900_000 < room["rate"] < 1_200_000, room
    assert room["scans"] == 40


def test_a_vex_file_of_a_station_is_read_as_stations_write_them(tmp_path, store):
    at = datetime.now(timezone.utc) + timedelta(seconds=3600)
    start = at.strftime("%Yy%jd%Hh%Mm%Ss")
    schedule = tmp_path / "s.vex"
    lines = [
        "* José's", "*", "VEX_rev = 1.5;", "$EXPER;", " def N24K1;", " exper_name =", "  N24K1; enddef;", "$SCHED;",
        f"scan No0001;\n start={start}; source=Mü;\n station=Ef:", " 0 sec: 40 sec; station=On: 0 sec: 9 sec;", "endscan;",
    ]  # fmt: skip
    schedule.write_bytes("\n".join(lines).encode("latin-1"))
    with Session(schedule, store, free_ports(1), "--station", "Ef") as running:
        told, session = running.stop_while_waiting()
    assert session["left"] == ["No0001"]
    assert any("of the session n24k1, and its scans are recorded in day" in text for text in warnings(told))


def test_what_is_doubtful_in_a_schedule_is_told_when_it_is_read(tmp_path, store):
    schedule = csv(tmp_path / "s.csv", ("one", utc(3600), "40s"), ("two", utc(3640.5), "40s"))
    ports = free_ports(1)
    with Session(schedule, store, ports) as running:
        told = running.until("waiting")
        assert any("less than --lead 1s lies before two" in text for text in warnings(told)), told
        schedule.write_text(
            f'session = "night"\n[[scan]]\nname = "one"\nstart = "{utc(3600)}"\nduration = 40\n'
        )
        running.process.send_signal(signal.SIGHUP)
        told = running.until("schedule")
        assert any("is of the session night" in text for text in warnings(told)), told
        running.process.send_signal(signal.SIGINT)
        running.end(code=FOUND)
    csv(schedule, ("one", utc(3600), "40s"))
    with Session(schedule, store, ports, "--station", "Ef") as running:
        _, err = running.process.communicate(timeout=PATIENCE)
    assert running.process.returncode == REFUSED and "leave out --station" in text(err)


CLOCK = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time);
    char text[32] = {0};
    int file = clock == CLOCK_REALTIME ? open(getenv("CLOCK_STEP"), O_RDONLY) : -1;
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) > 0)
            time->tv_sec += atol(text);
        close(file);
    }
    return failed;
}
"""


@pytest.mark.alone
def test_a_step_of_the_clock_counts_for_a_scan_that_is_armed(tmp_path, store):
    """The clock of the recorder is set forward: to just before the start of a scan, then past the end of another."""
    source, library, step = (tmp_path / name for name in ("clock.c", "clock.so", "step"))
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    step.write_text("0")
    schedule = csv(tmp_path / "s.csv", ("one", utc(600), "2s"), ("two", utc(1300), "2s"))
    env = {"LD_PRELOAD": str(library), "CLOCK_STEP": str(step)}

    def jump(seconds):
        aside = tmp_path / "aside"
        aside.write_text(str(seconds))
        aside.rename(step)

    with Session(schedule, store, free_ports(1), "--lead", "900s", env=env) as running:
        running.until("awaiting", lambda told: told["seconds"] > 500)
        jump(597)
        said = running.until("warning", lambda told: "clock jumped by +597" in told["text"])[-1]["text"]
        assert "scan one, which is armed, begins in" in said
        running.until("sealed")
        running.until("awaiting", lambda told: told["seconds"] > 600)
        jump(1400)
        said = running.until("warning", lambda told: "clock jumped by +803" in told["text"])[-1]["text"]
        assert "scan two, which was armed, is over by it" in said
        told, session = running.end(code=FOUND)
    one, two = session["scans"]
    assert one["outcome"] == "recorded" and one["late_seconds"] < 0.25 and "cut_short_seconds" not in one, one
    assert one["terms"]["written"] > 0
    assert two["outcome"] == "missed" and not list(store.glob("day_two*"))


def test_backlog_of_slow_disks_is_in_the_memory_of_a_scan_and_drains_in_the_pause(tmp_path, store):
    """The newest benchmark says what the disks write. A scan that sends more needs block memory for the rest, and a
    pause that is too short to write it is reported before the session begins."""
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}
    run("bench", "disk", store, "--quick", "--seconds", 1, "--skip", "peak,fio", env=env)
    (result,) = (tmp_path / "data/fullbore/bench").glob("*.json")
    measured = json.loads(result.read_text())
    measured["continuous"]["write"]["rate"] = 1_500_000.0
    measured["continuous"]["stalls"]["longest_ms"] = 100.0
    measured["continuous"].pop("settled", None)
    result.write_text(json.dumps(measured))
    # 2.064 MB/s for 4 s: 2.256 MB too many, for which the disks need 1.5 s.
    rate = "format=vdif&frame=1032&fps=2000"
    schedule = csv(tmp_path / "s.csv", ("one", utc(3), "4s"), ("two", utc(11), "4s"), ("three", utc(17), "4s"))
    with Session(schedule, store, free_ports(1), rate="16.512Mbit/s", query=rate, env=env) as running:
        told = running.until("memory")
        memory = told[-1]["sum"]
        running.process.send_signal(signal.SIGINT)
        running.end(code=(GOOD, FOUND))
    backlog = memory["backlog"]
    assert (backlog["bytes"], backlog["record_ms"]) == (4 * (2_064_000 - 1_500_000), 4000), backlog
    assert backlog["drains"] and abs(backlog["pause_ms"] - 3000) <= 1, backlog
    (part,) = [it for it in memory["reasons"] if "in the pause of" in it["what"]]
    assert part["bytes"] == backlog["bytes"] and "the benchmark of" in part["what"], part
    (slow,) = [text for text in warnings(told) if "begins late" in text]
    assert slow.startswith("scan two: the sources send") and "armed 1.0 s after it" in slow, slow
