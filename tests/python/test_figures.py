"""Published figures are those of a run: each table of measured rates names a file of `benches/published/`, and its cells
are computed from it."""

import json
import re
import statistics

import pytest
from fullbore import REPOSITORY

DOCS = REPOSITORY / "docs"
PUBLISHED = REPOSITORY / "benches/published"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.rglob("*.md"))]
MEASURED = re.compile(r"\b[GM]B/s|\bGbit/s|CPU s/GB|CPU of a core|of one core")

# Tables of rates that others measured, by a part of their heading; the pages name whose they are.
OF_OTHERS = ("client, of one core",)


def result(name):
    return json.loads((PUBLISHED / f"{name}.json").read_text())


def cells(line):
    return [re.sub(r"\*\*|`", "", cell).strip() for cell in line.strip().strip("|").split("|")]


def tables(page):
    """Each table of a page, with the section that it is in: heading, rows."""
    for section in re.split(r"\n(?=#)", page.read_text()):
        for lines in re.findall(r"(?:^\|.*\n)+", section + "\n", re.M):
            heading, _, *rows = map(cells, lines.splitlines())
            yield section, heading, rows


def table(page, *start):
    """The heading and the rows of the one table whose heading begins so."""
    (found,) = [(heading, rows) for _, heading, rows in tables(DOCS / page) if heading[: len(start)] == list(start)]
    return found


def number(text):
    """The first number of a cell; thousands are separated by spaces."""
    return float(re.search(r"\d+(?: \d{3})*(?:\.\d+)?", text)[0].replace(" ", ""))


def shows(cell, value):
    """True if the cell is this value, rounded to the digits that it has."""
    digits = len(re.search(r"\d+(?:\.(\d+))?", cell)[1] or "")
    return abs(number(cell) - value) <= 0.5 * 10**-digits + 1e-9


def test_every_published_run_is_named_by_a_page_and_every_named_one_is_there():
    named = {name for page in PAGES for name in re.findall(r"benches/published/(\w+)\.json", page.read_text())}
    assert named == {path.stem for path in PUBLISHED.glob("*.json")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_table_of_measured_rates_names_its_run(page):
    for section, heading, rows in tables(page):
        names = " ".join([*heading, *(" ".join(row[:2]) for row in rows)])
        if MEASURED.search(" ".join(heading)) or "CPU s/GB" in names:
            is_of_others = any(words in " ".join(heading) for words in OF_OTHERS)
            assert is_of_others or "benches/published/" in section, f"{page.name}: {heading} names no run"


def recorded(name):
    return {(trial["wire"], trial["tool"]): trial for trial in result(name)["record"]}


def is_rate(cell, trial):
    return shows(cell, trial["best"]["sent_gbit"]) and ("s" in cell.split()) == trial["limited_by_sender"]


def test_the_lossless_rates_are_those_of_the_run():
    found = recorded("record")
    heading, rows = table("explanation/benchmarks.md", "wire", "")
    wire, compared = None, 0
    for first, what, *row in rows:
        wire = first or wire
        for tool, cell in zip(heading[2:], row, strict=True):
            trial = found.pop((wire, tool)) if what == "CPU s/GB at 3 Gbit/s" else found[wire, tool]
            match what:
                case "lossless Gbit/s":
                    assert is_rate(cell, trial), (wire, tool, cell, trial["best"])
                case "CPU s/GB there":
                    assert shows(cell, trial["best"]["core_s_per_gb"]), (wire, tool, cell)
                case "CPU s/GB at 3 Gbit/s":
                    assert trial["common"]["asked_gbit"] == 3
                    assert shows(cell, trial["common"]["core_s_per_gb"]), (wire, tool, cell)
            compared += 1
    assert compared == 45 and not found


def test_the_rates_of_small_packets_are_those_of_the_run():
    found = recorded("record_small")
    heading, rows = table("explanation/benchmarks.md", "wire", "fullbore")
    for wire, *row in rows:
        for tool, cell in zip(heading[1:], row, strict=True):
            trial = found.pop((wire, tool))
            rate, cost = re.fullmatch(r"(\S+(?: s)?) (\S+)", cell).groups()
            assert is_rate(rate, trial), (wire, tool, cell, trial["best"])
            assert trial["common"]["asked_gbit"] == 1
            assert shows(cost, trial["common"]["core_s_per_gb"]), (wire, tool, cell, trial["common"])
    assert not found


def test_the_cost_beside_an_earlier_build_is_that_of_the_run():
    rows = {row["job"]: row for row in result("versions")["rows"]}
    for job, *cells in table("explanation/benchmarks.md", "job", "old")[1]:
        row = rows.pop(job)
        assert [float(cell) for cell in cells[:2]] == [round(cost, 3) for cost in row["cpu_s_per_gb"]]
        assert float(cells[2]) == round(row["ratio"], 2) <= 1.03
        assert cells[3] == f"{row['lowest']:.2f} to {row['highest']:.2f}"
        assert cells[4] == ("{:.0f} and {:.0f}".format(*row["memory_MB"]) if "memory_MB" in row else "–")
        assert all(run.get("lost_frames", 0) == 0 for of in row["runs"] for run in of)
    assert not rows


@pytest.mark.parametrize(
    "heading, run", [("tool", "transfer"), ("tool over 10 Gbit/s", "transfer_veth"), ("tool to S3", "transfer_objects")]
)
def test_the_rates_of_tools_that_copy_scans_are_those_of_the_runs(heading, run):
    found = {name.split(",")[0].removesuffix(" send"): rounds for name, rounds in result(run)["results"].items()}
    for name, rate, span, cost in table("explanation/benchmarks.md", heading, "Gbit/s", "range")[1]:
        rounds = found.pop(name.split(",")[0].removesuffix(" send"))
        rates = [one["gbit_s"] for one in rounds]
        assert rate == f"{statistics.median(rates):.2f}" and span == f"{min(rates):.2f} to {max(rates):.2f}"
        assert cost == f"{statistics.median(one['cpu_s_per_gb'] for one in rounds):.2f}"
    assert not found


def test_the_rates_of_transfers_over_a_wan_are_those_of_the_runs():
    names = ("transfer_wan", "transfer_lossy", "transfer_lossier", "transfer_beside")
    for (_, _, rate, beside), name in zip(table("explanation/benchmarks.md", "link")[1], names, strict=True):
        run = result(name)
        assert rate == f"{statistics.median(one['gbit_s'] for one in run['results']['fullbore']):.2f}"
        if told := run["beside"]:
            assert f"{told['frames']} frames, {told['lost']} lost" in beside and told["lost"] == 0


def test_the_rates_of_transfers_on_16_cores_are_those_of_the_runs():
    rows = iter(table("explanation/benchmarks.md", "path", "connections")[1])
    for name in ("transfer_16_cores_disk", "transfer_16_cores", "transfer_lan"):
        run = result(name)
        for (program, rounds), (_, connections, shown, rate, cost) in zip(run["results"].items(), rows):
            assert shown.split(",")[0].removesuffix(" send") == program
            assert connections == str(run["arguments"]["connections"] or "chosen")
            assert rate == f"{statistics.median(one['gbit_s'] for one in rounds):.2f}"
            assert cost == f"{statistics.median(one['cpu_s_per_gb'] for one in rounds):.2f}"
    assert next(rows, None) is None


def test_the_sessions_with_pauses_are_those_of_the_runs():
    runs = [(run, one) for run in map(result, ("session", "session_16gbit")) for one in run["sessions"]]
    rows = {(row[0], row[1], row[2]): row for row in table("explanation/benchmarks.md", "scans and pauses")[1]}
    assert len(rows) == len(runs)
    for run, one in runs:
        pauses = f"{run['scan_seconds']} s / {run['pause_seconds']} s"
        row = rows[pauses, str(one["streams"]), str(one["asked_gbit"])]
        gbit, scans, expected, lost, good, longest, in_the_pause, holds = row[3:]
        assert shows(gbit, one["recorded_gbit"]) and int(scans) == one["scans"]
        assert number(expected) == one["terms"]["expected"]
        assert number(lost) == one["terms"]["expected"] - one["terms"]["written"]
        assert shows(longest, max(check["seconds"] for check in one["verified"]))
        checks = one["verified"]
        assert good == f"{sum(check['code'] == 0 for check in checks)} of {len(checks)}"
        assert in_the_pause == f"{sum(check['in_the_pause'] for check in checks)} of {len(checks)}"
        assert holds == ("yes" if one["holds"] else "no")
        assert one["holds"] == (one["whole"] and all(check["in_the_pause"] for check in checks))


def test_the_figures_of_the_store_are_those_of_the_run():
    found = {row["name"].removesuffix(", huge pages"): row for row in result("record")["store"]}
    _, rows = table("explanation/benchmarks.md", "", "GB/s")
    assert len(rows) == len(found)
    for name, rate, share, cost in rows:
        row = found[name.replace(", huge pages", "")]
        best = found["fio read" if "read" in name or "verify" in name else "fio write"]["GB_per_s"]
        assert shows(rate, row["GB_per_s"]) and shows(cost, row["cpu_s_per_gb"]), name
        assert shows(share, row["GB_per_s"] / best), (name, share, row["GB_per_s"] / best)


PATTERNS = {
    "memset": [("memset", "made")],
    "a sum": [("sum", "checked")],
    "PRBS-31 generated": [("prbs31", "made")],
    "PRBS-31 checked": [("prbs31", "checked")],
    "counter": [("counter", "made"), ("counter", "checked")],
    "random": [("random:1", "made"), ("random:1", "checked")],
    "Gaussian": [("noise:1", "made"), ("noise:1", "checked")],
    "PRBS-31 bit by bit": [("prbs31 bit by bit", "made")],
}


def test_the_rates_of_patterns_are_those_of_the_run():
    median = {(row["name"], row["what"], row["buffer_bytes"]): row["gb_per_s"][0] for row in result("pattern")["rows"]}
    _, rows = table("explanation/benchmarks.md", "", "in 256 KiB")
    assert len(rows) == len(PATTERNS)
    for name, *row in rows:
        known = next(known for start, known in reversed(PATTERNS.items()) if name.startswith(start))
        for size, cell in zip((256 << 10, 4 << 20, 1 << 30), row, strict=True):
            for (pattern, what), shown in zip(known, cell.split(", ") if cell else ()):
                assert shows(shown, median[pattern, what, size]), (name, size, shown)


def test_the_table_beside_the_client_of_the_panda_is_that_of_the_run():
    found = {(it["setting"], it["mb_per_second"], it["tool"]): it for it in result("panda_note")["trials"]}
    for rate, setting, *row in table("explanation/panda-benchmark.md", "MB/s", "setting")[1]:
        for tool, cpu, missing in (("fullbore", *row[:2]), ("pandablocks", *row[2:])):
            trial = found.pop((setting, int(rate), tool))
            assert shows(cpu, trial["cpu_percent"]) and int(missing) == trial["missing"], (setting, rate, tool)
            assert trial["right"]
    assert not found


def test_the_factors_of_parity_are_those_of_the_run():
    runs = result("parity")["runs"]
    _, rows = table("explanation/redundancy.md", "streams", "chunks")
    assert len(rows) == len(runs)
    for (streams, chunks, stripes, factor), run in zip(rows, runs, strict=True):
        assert (int(streams), int(chunks), number(stripes)) == (run["streams"], run["chunks"], run["stripes"])
        assert shows(factor, run["factor"]) and shows(factor, 1 + run["bytes"] / run["data_bytes"])


def test_the_sentences_about_a_replay_are_those_of_the_run():
    run, late = result("replay"), result("replay")["lateness"]
    text = (DOCS / "explanation/benchmarks.md").read_text().split("## Replay\n")[1].split("\n## ")[0]
    assert f"{run['frames']:,} frames were sent".replace(",", " ") in text
    assert f"{len(run['streams'])} streams, 2 Gbit/s".replace("8", "eight") in text and run["rate"] * 8 == pytest.approx(2e9, 0.01)
    assert late["median_ns"] < 100 and "median distance from the due time was below 0.1 µs" in text
    assert f"{late['late'] / late['packets']:.0%}".replace("%", " %") + " of the frames were more than 1 ms late" in text
    assert f"at most {late['max_ns'] / 1e6:.1f} ms" in text


@pytest.mark.parametrize("run, more", [("receive_engines", []), ("receive_engines_xdp", ["entering"])])
def test_the_costs_of_receive_engines_are_those_of_their_run(run, more):
    start = ["wire, bytes, streams", "tool", "network", "own", "CPU s/GB, both", *more, "to netsniff-ng"]
    heading, rows = table("explanation/benchmarks.md", *start)
    measured = result(run)["record"]
    assert len(rows) == len(measured)
    for (case, tool, network, own, both, *_, ratio, lost), of in zip(rows, measured, strict=True):
        assert (case, tool) == (f"{of['wire']}, {of['payload']} B, {of['streams']}", of["tool"])
        assert shows(network, of["network"]) and shows(own, of["own"]) and shows(both, of["path_s_per_gb"])
        assert shows(ratio, of["to_netsniff_ng"]) and number(lost) == of["lost"] == sum(t["sent"] - t["kept"] for t in of["trials"])
        path = lambda trial: trial["sampled"]["network"] + trial["sampled"]["own"]
        assert statistics.median(map(path, of["trials"])) == pytest.approx(of["path_s_per_gb"])
