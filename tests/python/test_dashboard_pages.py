"""The pages Schedule, Disks, Log and Machine in a real browser: each number is that of `fullbore … --json`."""

import re
import time
from datetime import datetime, timedelta, timezone

import pytest
import wire
from chromium import PROGRAM, Page
from fullbore import PATIENCE, ask, run
from prometheus_client.openmetrics import parser
from station import SECRETS, Station, new_source
from test_dashboard import FAINT, NAMELESS, browser, clicks, errors, types, until  # noqa: F401

FRAMES = 900

in_browser = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not here")


def recorded(station, scan="one", lose=(), **options):
    """A scan of some frames, over REST."""
    port, source = new_source()
    begun = station.start(source, scan, **options)
    wire.send((frame for n, frame in enumerate(frames_of_now(FRAMES)) if n not in lose), port)
    has_come = lambda it: it["progress"] and sum(s["frames"] for s in it["progress"]["streams"]) >= FRAMES - len(lose)
    station.until(begun["id"], has_come)
    return station.stop(begun["id"])


def frames_of_now(count):
    """Frames whose times are those of now: a timeline knows scans by their times."""
    now = datetime.now(timezone.utc)
    half = datetime(now.year, 7 if now.month > 6 else 1, 1, tzinfo=timezone.utc)
    epoch = 2 * (half.year - 2000) + (half.month > 6)
    return wire.run_of_frames(count, epoch=epoch, second=int((now - half).total_seconds()))


def shown(page, selector):
    """The texts of the cells of a table's body, row by row."""
    return page.value(f"[...document.querySelector({selector!r}).rows].map((row) => [...row.cells].map((cell) => cell.textContent))")


def goes_to(page, name, title):
    page.value(f"location.hash = '#{name}'")
    until(page, f"document.querySelector('#{title}-title') !== null")


def wait(station, path, wanted):
    """The document at an address, once it is as wanted."""
    end = time.monotonic() + PATIENCE
    while not wanted(told := station.ask("GET", path).json):
        assert time.monotonic() < end, told
        time.sleep(0.05)
    return told


def is_sound(page):
    """Names for screen readers, contrast, no complaint of the browser, and nothing beyond the width of the window."""
    assert page.value(NAMELESS) == [] and page.value(FAINT) == [] and errors(page) == []
    assert page.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@in_browser
def test_disks_show_their_members_writes_and_settings_and_a_job_yields_to_a_recording(store, tmp_path, browser):  # noqa: F811
    with Station(store, tmp_path / "state") as station:
        recorded(station)
        page = Page(browser, station.told["login"], 1024, scheme="dark")
        goes_to(page, "disks", "disks")
        until(page, "document.querySelectorAll('#members tr').length", 1)
        (row,) = shown(page, "#members")
        space = station.ask("GET", "/api/v1/status").json["members"][0]
        number, unit = row[2].split()
        size = float(number) * {"GB": 1e9, "TB": 1e12}[unit]
        assert abs(size - space["total_bytes"]) < 0.01 * size and (row[0], row[7]) == (str(store), "good"), (row, space)
        # The settings are those that `doctor` finds for the members and their drives.
        doctor = ask("doctor", "--store", store, code=lambda _: _code_of(_["grade"]))
        seen = station.ask("GET", "/api/v1/disks").json
        parts = {str(store)} | {it["name"] for it in seen["drives"]}
        wanted = {(it["subject"], it["grade"], it["found"]) for it in doctor["findings"] if it["subject"] in parts and it["id"] != "space"}
        until(page, "document.querySelectorAll('.findings tr').length > 0")
        assert wanted <= {tuple(it[:3]) for it in shown(page, ".findings")}
        # The longest write is that of the account.
        (account,) = ask("info", "test_one", "--store", store)["accounts"]
        (member,) = account["host"]["members"]
        wait(station, "/api/v1/disks", lambda it: it["writes"])
        (writes,) = station.ask("GET", "/api/v1/disks").json["writes"]
        assert writes["scan"] == "test_one" and writes["longest_write_ns"] == {str(store): member["longest_write_ns"]}
        # A job that loads the disk ends when a recording begins, and none starts before its end.
        clicks(page, "[aria-label^='Benchmark']")
        until(page, "document.querySelector('dialog').open")
        clicks(page, "#confirm-yes")
        until(page, "document.querySelector('#work-title ~ ul').textContent.startsWith('benchmark of')")
        begun = station.start(new_source()[1], "two")
        until(page, "document.querySelector('#work-title ~ ul').textContent.includes('cancelled: it was ended, because')")
        refused = station.ask("POST", "/api/v1/jobs", {"kind": "self-test", "member": str(store)})
        assert refused.status == 409 and "test_two is being recorded" in refused.json["detail"], refused.body
        station.stop(begun["id"])
        is_sound(page)


def _code_of(grade):
    return {"good": 0, "problem": 1}.get(grade, 3)


@in_browser
def test_a_lost_chunk_is_rebuilt_as_a_job(stores, tmp_path, browser):  # noqa: F811
    store = ",".join(map(str, stores))
    with Station(store, tmp_path / "state") as station:
        recorded(station, redundancy="parity:2+1", chunk="512KiB")
        chunk = sorted(path for member in stores for path in member.glob("test_one/test_one.0*"))[0]
        chunk.unlink()
        page = Page(browser, station.told["login"], 1024)
        goes_to(page, "disks", "disks")
        types(page, rebuild="test_one")
        clicks(page, "#work-title + form button")
        until(page, "document.querySelector('#work-title ~ ul').textContent.includes('rebuild test_one: whole')")
        (job,) = station.ask("GET", "/api/v1/jobs").json
        told = station.ask("GET", f"/api/v1/jobs/{job['id']}").json
        assert told["kind"] == "rebuild" and told["result"]["mended"] == 1 and told["total_bytes"] > 0
        for kind, role, body, status in [
            ("a member of another store", "admin", {"kind": "benchmark", "member": "/etc"}, 400),
            ("a kind of scans", "admin", {"kind": "verify", "member": str(stores[0])}, 400),
            ("too small a role", "operator", {"kind": "benchmark", "member": str(stores[0])}, 403),
        ]:
            assert station.ask("POST", "/api/v1/jobs", body, role=role).status == status, kind
    assert ask("verify", "test_one", "--store", store)["good"]


# Makes what the page does every 5 s a thing of moments, and counts how often it reads the day.
HASTE = """
(() => {
  const [later, ask] = [setTimeout, fetch];
  window.reads = 0;
  window.setTimeout = (act, after) => later(act, after === 5000 ? 100 : after);
  window.fetch = (path, ...rest) => {
    if (path.startsWith('/api/v1/timeline')) window.reads += 1;
    return ask(path, ...rest);
  };
})()
"""


def csv(*scans):
    """A schedule of scans that begin so many seconds from now."""
    now = datetime.now(timezone.utc)
    lines = [f"{name},{(now + timedelta(seconds=after)).isoformat()[:23]}Z,{lasts}s" for name, after, lasts in scans]
    return "\n".join(["scan,start,duration", *lines]) + "\n"


@in_browser
def test_a_schedule_is_checked_put_and_removed_on_its_page(store, tmp_path, browser):  # noqa: F811
    port, source = new_source()
    with Station(store, tmp_path / "state") as station:
        recorded(station, "zero")
        page = Page(browser, station.told["login"], 1024)
        page.value(HASTE)
        goes_to(page, "schedule", "day")
        until(page, "document.querySelectorAll('#day tr').length", 1)
        # The rate is that of the scan before, and 200 scans of 29 days each fill the disk.
        (entry,) = ask("ls", "--store", store)
        rate = entry["bytes"] * 10**9 // entry["duration_ns"]
        month = 29 * 86_400
        scans = csv(("old", -30, 5), *((f"far{n}", 30 + n * (month + 60), month) for n in range(200)))
        types(page, name="day1", source=source, session="test", lead="1s", scans=scans)
        clicks(page, "#put [name=check]")
        until(page, "document.querySelector('#checked').textContent.includes('the store is full at')")
        text = page.value("document.querySelector('#checked').textContent")
        assert text.startswith("201 scans of test, ") and "in scan far" in text
        assert station.ask("GET", "/api/v1/schedules").json == [], "a check puts nothing"
        page.value("document.querySelector('#put [name=scans]').value = ''")
        types(page, scans=csv(("old", -30, 5), ("one", 60, 4), ("far", 90, 5)))
        clicks(page, "#put [name=put]")
        until(page, "document.querySelector('#checked').textContent", "day1: 2 scans ahead.")
        until(page, "document.querySelectorAll('#needs tr').length", 1)
        (needs,) = shown(page, "#needs")
        assert needs[0] == "day1" and needs[3] == "the scan test_zero" and needs[6] == "fits", needs
        told = station.ask("GET", "/api/v1/timeline").json
        assert told["outlooks"][0]["rate"] == rate
        states = {it["scan"]: it["moment"] for it in told["scans"]}
        assert states.pop("test_one") in ("ahead", "recording")
        assert states == {"test_zero": "stored", "test_old": "missed", "test_far": "ahead"}
        until(page, "document.querySelectorAll('#day tr').length", 4)
        # The page goes on reading the day, also after another one was chosen.
        page.value("document.querySelector('[name=day]').dispatchEvent(new Event('change'))")
        reads = page.value("reads")
        until(page, f"reads > {reads + 2}")
        verdicts = {row[0]: row[6] for row in shown(page, "#day")}
        assert verdicts["test_zero"] == entry["headline"] and verdicts["test_old"] == "MISSED"
        # By keyboard: from scan to scan.
        page.value("document.querySelector('#timeline').focus()")
        page.ask("Input.dispatchKeyEvent", type="rawKeyDown", key="Home", windowsVirtualKeyCode=36)
        until(page, "document.querySelector('#reading').textContent.startsWith('test_')")
        first = page.value("document.querySelector('#reading').textContent")
        page.ask("Input.dispatchKeyEvent", type="rawKeyDown", key="ArrowRight", windowsVirtualKeyCode=39)
        until(page, f"document.querySelector('#reading').textContent !== {first!r}")
        assert page.value("document.querySelectorAll('#timeline rect').length") == 4
        # A scan that was seen while it was recorded leads to its spectrum once it is stored.
        live_port, live_source = new_source()
        begun = station.start(live_source, "live")
        wire.send(frames_of_now(FRAMES), live_port)
        row = "[...document.querySelectorAll('#day tr')].find((it) => it.textContent.startsWith('test_live'))"
        until(page, f"{row}?.cells[5].textContent", "recording")
        station.stop(begun["id"])
        until(page, f"{row}?.querySelector('a')?.hash", "#stream/scan/test_live")
        is_sound(page)
        for query in ("from=2026-01-01T00:00:00Z&until=2027-01-01T00:00:00Z", "until=2000-01-01T00:00:00Z"):
            assert station.ask("GET", f"/api/v1/timeline?{query}").status == 400
        clicks(page, "#schedules button")
        until(page, "document.querySelector('dialog').open")
        clicks(page, "#confirm-yes")
        wait(station, "/api/v1/schedules/day1", lambda it: it["state"] == "cancelled")


@in_browser
def test_the_log_shows_what_happens_and_only_an_admin_sees_the_audit_log(store, tmp_path, browser):  # noqa: F811
    with Station(store, tmp_path / "state") as station:
        page = Page(browser, station.told["login"], 1024)
        goes_to(page, "log", "log")
        port, source = new_source()
        begun = station.start(source)
        frames = wire.run_of_frames(FRAMES)
        wire.send(frames[:100] + frames[107:], port)
        # New entries come by themselves, and an alert is counted beside the name of the page.
        until(page, "document.querySelector('#to-log').textContent", "Log (1)")
        until(page, "document.querySelector('#open').textContent.includes('test_one/') && document.querySelector('#open').textContent.includes('7 frames lost')")
        until(page, "document.querySelector('#entries').textContent.includes('test_one: armed')")
        station.stop(begun["id"])
        until(page, "document.querySelector('#entries').textContent.includes('7 of 900 frames')")
        page.value("document.querySelector('[name=level]').value = 'warning'; document.querySelector('[name=level]').dispatchEvent(new Event('change'))")
        until(page, "document.querySelector('#entries').textContent.includes('armed')", False)
        assert [row[1] for row in shown(page, "#entries")].count("info") == 0
        told = station.ask("GET", f"/api/v1/log?recording={begun['id']}&limit=2").json
        assert len(told["entries"]) == 2 and told["next"] == told["entries"][-1]["number"]
        older = station.ask("GET", f"/api/v1/log?recording={begun['id']}&before={told['next']}").json["entries"]
        assert any(it["text"] == "test_one: armed" for it in older)
        clicks(page, "#audit-title + button")
        until(page, "document.querySelector('#audit').textContent.includes('/api/v1/recordings')")
        (line, *_) = station.ask("GET", "/api/v1/audit?limit=1").json["lines"]
        assert (line["who"], line["method"], line["status"]) == ("operator", "POST", 202)
        is_sound(page)
        for path, role in [("/api/v1/audit", "viewer"), ("/api/v1/audit", "operator")]:
            assert station.ask("GET", path, role=role).status == 403
        assert station.ask("GET", "/api/v1/log?limit=0").status == 400
        assert "audit" not in station.ask("GET", "/api/v1/log?limit=1000").body.decode()
        clicks(page, "#logout")
        until(page, "document.activeElement.name", "token")
        types(page, token=SECRETS["viewer"])
        clicks(page, "main button")
        until(page, "document.querySelector('#entries')?.textContent.includes('frames lost')")
        assert page.value("document.querySelector('#audit-title')") is None


@in_browser
def test_the_log_goes_on_when_another_daemon_takes_over(store, tmp_path, browser):  # noqa: F811
    state, entries = tmp_path / "state", "document.querySelector('#entries').textContent"
    with Station(store, state) as first:
        page = Page(browser, first.told["login"], 1024)
        goes_to(page, "log", "log")
        first.stop(first.start(new_source()[1])["id"])
        until(page, f"{entries}.includes('test_one: armed')")
        first.kill()
        until(page, "document.querySelector('#connection').className", "lost")
    with Station(store, state, first.port) as second:
        until(page, f"{entries}.includes('test_one: armed')", False)
        begun = second.start(new_source()[1], "two")
        until(page, f"{entries}.includes('test_two: armed')")
        second.stop(begun["id"])
        assert errors(page) == []


@in_browser
def test_the_machine_is_that_of_doctor_and_plan_and_its_metrics_are_read_by_prometheus(store, tmp_path, browser):  # noqa: F811
    with Station(store, tmp_path / "state") as station:
        page = Page(browser, station.told["login"], 1024, scheme="dark")
        goes_to(page, "machine", "machine")
        until(page, "document.querySelectorAll('.findings tr').length > 5")
        doctor = ask("doctor", "--store", store, code=lambda it: _code_of(it["grade"]))
        seen = station.ask("GET", "/api/v1/machine").json
        names = lambda report: sorted((it["id"], it["subject"]) for it in report["findings"])
        wait(station, "/api/v1/machine", lambda it: names(it["doctor"]) == names(doctor))
        # What changes from moment to moment is not compared.
        steady = {"rmem-max", "swap", "gro", "mount", "clock", "scheduler", "huge-pages", "memlock", "nofile"}
        found = lambda report: {(it["id"], it["subject"], it["found"]) for it in report["findings"] if it["id"] in steady}
        assert found(seen["doctor"]) == found(doctor) != set()
        rows = shown(page, ".findings")
        assert {(it["subject"], it["grade"]) for it in doctor["findings"] if it["id"] in steady} <= {tuple(row[:2]) for row in rows}
        kernel = open("/proc/sys/kernel/osrelease").read().strip()
        assert kernel in page.value("document.querySelector('#machine-title + dl').textContent")
        assert seen["no_plan"].startswith("nothing is recorded") and "No plan" in page.value("document.querySelector('#verdict').textContent")
        is_sound(page)
        text = station.ask("GET", "/metrics", role="viewer").body.decode()
        families = {it.name: it for it in parser.text_string_to_metric_families(text)}
        dropped = {it.labels["card"]: it.value for it in families["fullbore_card_dropped_packets"].samples}
        assert set(dropped) == {it["name"] for it in seen["cards"]}
        assert {it.labels["kind"]: it.value for it in families["fullbore_alerts"].samples}["loss"] == 0
        synchronised = [it.value for it in families["fullbore_clock_synchronised"].samples]
        assert synchronised == ([] if seen["clock"]["synchronised"] is None else [float(seen["clock"]["synchronised"])])


@in_browser
def test_the_account_of_a_scan_shows_its_losses_and_its_streams_are_saved_as_files(store, tmp_path, browser):  # noqa: F811
    with Station(store, tmp_path / "state") as station:
        recorded(station, lose={100, 101, 500})
        page = Page(browser, station.told["login"], 1024)
        goes_to(page, "scans", "scans")
        until(page, "document.querySelector('button.account') !== null")
        clicks(page, "button.account")
        until(page, "document.querySelectorAll('#account .lost').length", 2)
        info = ask("info", "test_one", "--store", store)
        text = page.value("document.querySelector('#account').textContent")
        assert info["headline"] in text and "3 missing of 900 frames" in text
        (host,) = [account["host"] for account in info["accounts"]]
        assert f"ring at most {host['high_water']} of {host['pool_blocks']} blocks" in text
        places = page.value("[...document.querySelectorAll('#account .lost')].map((it) => Number(it.getAttribute('x')))")
        assert [round(place) for place in places] == [round(1000 * 100 / FRAMES), round(1000 * 500 / FRAMES)]
        (link,) = page.value("[...document.querySelectorAll('#files a')].map((it) => it.getAttribute('href'))")
        saved = station.ask("GET", link, role="viewer")
        assert saved.body == run("cat", "test_one", "--store", store).stdout and len(saved.body) > 0
        assert saved.headers["Content-Length"] == str(len(saved.body))
        assert re.fullmatch(r'attachment; filename="test_one_\d+\.vdif"', saved.headers["Content-Disposition"])
        assert station.ask("GET", "/api/v1/scans/test_one/files/..%2f..%2fpasswd").status == 404
        # A command of a client is a job too. It has no result, and does not succeed.
        body = {"verb": "verify", "arguments": ["test_one"], "options": {}}
        assert station.ask("POST", "/api/v1/commands", body, role="operator").status == 202
        until(page, "document.querySelector('#jobs-title + ul').textContent.includes('verify test_one: ended with exit code 3')")
        is_sound(page)


@in_browser
def test_items_that_are_alike_have_a_row_each_and_pages_have_a_place_for_the_keyboard(store, tmp_path, browser):  # noqa: F811
    with Station(store, tmp_path / "state") as station:
        page = Page(browser, station.told["login"], 1024)
        page.value("import('/dom.js').then((it) => { window.dom = it; })")
        until(page, "'dom' in window")
        page.value("window.list = dom.element('ul')")
        for texts in (["a", "b", "a"], ["a", "b", "a"], ["a", "a", "b"], ["b", "a"]):
            page.value(f"dom.keyed(list, {texts}, (it) => it, () => dom.element('li'), dom.say)")
            assert page.value("[...list.children].map((it) => it.textContent)") == texts
        # The link over the navigation leads to the content of the same page.
        goes_to(page, "disks", "disks")
        page.value("document.querySelector('.skip').click()")
        assert page.value("[location.hash, document.activeElement.id]") == ["#disks", "page"]
        page.value("location.hash = '#constructor'")
        until(page, "document.querySelector('.state') !== null")
        assert errors(page) == []


@pytest.mark.slow
def test_a_benchmark_and_a_self_test_of_a_member_run_to_their_end(store, tmp_path):
    with Station(store, tmp_path / "state") as station:
        for kind in ("benchmark", "self-test"):
            job = station.ask("POST", "/api/v1/jobs", {"kind": kind, "member": str(store)})
            assert job.status == 202, job.body
            done = wait(station, f"/api/v1/jobs/{job.json['id']}", lambda it: it["state"] != "running")
            assert done["state"] == "done", done
            if kind == "benchmark":
                wait(station, "/api/v1/disks", lambda it: it["benchmarks"])
                (kept,) = station.ask("GET", "/api/v1/disks").json["benchmarks"]
                assert kept["id"] == done["result"]["id"] and kept["write_rate"] == done["result"]["continuous"]["write"]["rate"]
                (file,) = tmp_path.rglob("*-disk-*.json")
                assert re.sub("-", "", kept["id"]) in file.name
            else:
                assert done["result"]["fullbore_selftest"] == 1 and done["result"]["passed"], done["result"]
