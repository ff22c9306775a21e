"""Leap seconds: times just before, during and after one are written correctly, and as other programs read them."""

import hashlib
import os
import subprocess

from baseband.vdif.header import VDIFHeader
from fullbore import AS_SEALED, BINARY, REFUSED, Recording, free_port, generate, run

FPS, FRAME = 10, 264


def edges(account):
    return account["first"]["time"], account["last"]["time"]


def test_a_scan_over_a_leap_second_is_recorded_verified_and_played_by_its_times(store, tmp_path):
    port, truth = free_port(), tmp_path / "truth.json"
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}", store=store) as recording:
        start = "2016-12-31T23:59:20Z"
        generate(port, frame=FRAME, fps=FPS, duration="50s", flat_out=True, start=start, truth=truth)
        sealed = recording.stop()
    account = sealed["accounts"][0]
    assert account["verdict"] == "proven" and account["terms"]["written"] == 50 * FPS
    # 40 s to :60, the leap second, and 9 s less one frame.
    assert edges(account) == ("2016-12-31T23:59:20.000000000Z", "2017-01-01T00:00:08.900000000Z")
    run("verify", recording.scan, "--store", store)

    seconds = {}
    for chunk in recording.on_disk().chunks():
        with chunk.open("rb") as file:
            while file.tell() < chunk.stat().st_size:
                header = VDIFHeader.fromfile(file)
                if header["frame_nr"] == 0:
                    seconds[header["seconds"]] = header.time.isot + "Z"
                file.seek(FRAME - header.nbytes, 1)
    # The half-year of 2016 that begins in July has 184 days; the leap second follows them.
    assert seconds[184 * 86400] == "2016-12-31T23:59:60.000000000Z"
    assert min(seconds.values()) == edges(account)[0]
    assert len(seconds) == 50 and max(seconds.values()) == "2017-01-01T00:00:08.000000000Z"

    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}", store=store, scan="two") as again:
        span = ["--from", "2016-12-31T23:59:60Z", "--until", "2017-01-01T00:00:00Z"]
        run("play", recording.scan, "--store", store, "--to", f"udp://127.0.0.1:{port}", "--flat-out", *span)
        played = again.stop()["accounts"][0]
    assert edges(played) == ("2016-12-31T23:59:60.000000000Z", "2016-12-31T23:59:60.900000000Z")


def leapseconds(folder, more="", expires=1893456000):
    days = [
        "1972 Jun 30", "1972 Dec 31", "1973 Dec 31", "1974 Dec 31", "1975 Dec 31", "1976 Dec 31", "1977 Dec 31",
        "1978 Dec 31", "1979 Dec 31", "1981 Jun 30", "1982 Jun 30", "1983 Jun 30", "1985 Jun 30", "1987 Dec 31",
        "1989 Dec 31", "1990 Dec 31", "1992 Jun 30", "1993 Jun 30", "1994 Jun 30", "1995 Dec 31", "1997 Jun 30",
        "1998 Dec 31", "2005 Dec 31", "2008 Dec 31", "2012 Jun 30", "2015 Jun 30", "2016 Dec 31",
    ]  # fmt: skip
    lines = [f"Leap\t{day}\t23:59:60\t+\tS" for day in days]
    path = folder / "leapseconds"
    path.write_text("\n".join([*lines, more, f"#expires {expires}", ""]))
    return path


def with_table(path, *words):
    command = [BINARY, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env={"FULLBORE_LEAP_SECONDS": str(path)}, check=False)


def test_the_table_in_force_is_told_and_a_newer_one_can_be_named(tmp_path):
    assert "leap seconds: TAI-UTC is 37 s since 2017-01-01, known until 20" in run("--version").stdout.decode()
    newer = leapseconds(tmp_path, "Leap\t2028\tDec\t31\t23:59:60\t+\tS")
    told = with_table(newer, "--version").stdout
    assert f"TAI-UTC is 38 s since 2029-01-01, known until 2030-01-01 ({newer})" in told
    sent = with_table(
        newer, "generate", "--to", f"udp://127.0.0.1:{free_port()}", "--start", "2028-12-31T23:59:60Z", "--frames", "1"
    )
    assert sent.returncode == 0, sent.stderr


def test_a_file_that_is_no_table_is_refused_by_name(tmp_path):
    for file in (tmp_path / "nowhere", __file__):
        refused = with_table(file, "ls")
        assert refused.returncode == REFUSED and f"FULLBORE_LEAP_SECONDS names {file}" in refused.stderr


# From the list that the IERS published in July 2025: the NTP seconds of changes with the offset of TAI from UTC, and
# the checksum.
IERS = """\
2272060800 10, 2287785600 11, 2303683200 12, 2335219200 13, 2366755200 14, 2398291200 15, 2429913600 16, 2461449600 17,
2492985600 18, 2524521600 19, 2571782400 20, 2603318400 21, 2634854400 22, 2698012800 23, 2776982400 24, 2840140800 25,
2871676800 26, 2918937600 27, 2950473600 28, 2982009600 29, 3029443200 30, 3076704000 31, 3124137600 32, 3345062400 33,
3439756800 34, 3550089600 35, 3644697600 36, 3692217600 37""".replace("\n", " ").split(", ")
IERS_CHECKSUM = "49db2447 571e5e1b 2f002a53 9c8da8e4 39b8e49e"


def leap_seconds_list(folder, steps=IERS, expires=3991593600, checksum=None):
    """A leap-seconds.list in the format of the IERS; with a valid checksum, unless another one is given."""
    digits = f"3960835200{expires}" + "".join("".join(step.split()) for step in steps)
    digest = hashlib.sha1(digits.encode()).hexdigest()
    checksum = checksum or " ".join(digest[at : at + 8] for at in range(0, 40, 8))
    lines = ["#\tATOMIC TIME", "#$\t 3960835200", f"#@\t{expires}"]
    lines += ["\t".join(step.split()) + "\t# a day of the year 1972 or later" for step in steps]
    path = folder / "leap-seconds.list"
    path.write_text("\n".join([*lines, "#", f"#h\t{checksum}", ""]))
    return path, checksum


def test_a_list_whose_data_do_not_have_its_checksum_is_refused(tmp_path):
    published, checksum = leap_seconds_list(tmp_path)
    assert checksum == IERS_CHECKSUM
    assert f"known until 2026-06-28 ({published})" in with_table(published, "--version").stdout
    longer, _ = leap_seconds_list(tmp_path, [*IERS, "4070908800 38"], expires=4102444800)
    assert "TAI-UTC is 38 s since 2029-01-01, known until 2030-01-01" in with_table(longer, "--version").stdout
    # Another end of the table, and a leap second that was never announced.
    for changed in ({"expires": 3991593601}, {"steps": [*IERS, "4070908800 38"]}):
        damaged, _ = leap_seconds_list(tmp_path, checksum=IERS_CHECKSUM, **changed)
        refused = with_table(damaged, "ls")
        assert refused.returncode == REFUSED, refused
        assert f"FULLBORE_LEAP_SECONDS names {damaged}" in refused.stderr and IERS_CHECKSUM in refused.stderr


def test_second_60_of_another_minute_is_refused():
    refused = run("generate", "--to", "udp://127.0.0.1:9", "--start", "2016-12-30T23:59:60Z", code=REFUSED)
    assert b"no leap second" in refused.stderr


def test_a_table_that_has_ended_is_warned_of_when_recording(store, tmp_path):
    env = {**os.environ, "FULLBORE_LEAP_SECONDS": str(leapseconds(tmp_path, expires=1577836800))}
    port = free_port()
    with Recording(
        f"udp://127.0.0.1:{port}?format=vdif", store=store, env=env, options=["--store", store]
    ) as recording:
        warned = recording.wait("warning", lambda told: "leap seconds" in told["text"])
        recording.stop(code=AS_SEALED)
    assert "2020-01-01" in warned["text"] and "FULLBORE_LEAP_SECONDS" in warned["text"]
