"""Receipts of copies on other hosts: shown, judged, and the condition on which scans are removed."""

import hashlib
import json
import re
import struct
import time
from pathlib import Path

from fullbore import FOUND, GOOD, REFUSED, Recording, ask, free_ports, run, text
from test_schedule import Session, csv, utc

RECORD = 128


def record(store, scan):
    """A sealed scan of several chunks."""
    with Recording("pattern:prbs31", store=store, scan=scan, options=["--bytes", "20MiB", "--chunk", "4MiB"]) as recorded:
        recorded.wait("sealed", lambda told: True)
    return f"test_{scan}"


def blocks_of(stores, scan):
    """The blocks of a scan of one stream by its indexes: sequence, bytes, CRC32C, as the reference page has them."""
    blocks = {}
    for member in stores:
        path = member / scan / ".fullbore/index"
        index = path.read_bytes() if path.exists() else b""
        for at in range(0, len(index) - RECORD + 1, RECORD):
            each = index[at : at + RECORD]
            if each[4] == 2:
                (sequence,) = struct.unpack_from("<Q", each, 8)
                length, crc = struct.unpack_from("<II", each, 28)
                blocks[sequence] = (length, crc)
    return blocks


def digest_of(stores, scan):
    """The digest by the reference page, independent of the program."""
    digest = hashlib.sha256()
    for sequence, (length, crc) in sorted(blocks_of(stores, scan).items()):
        digest.update(struct.pack("<HQII", 0, sequence, length, crc))
    return digest.hexdigest()


def receipt(stores, scan, **changes):
    blocks = blocks_of(stores, scan)
    manifest = json.loads((stores[0] / scan / ".fullbore/manifest.json").read_text())
    return {
        "host": "correlator",
        "key": "9f" * 32,
        "scan": manifest["uuid"],
        "blocks": len(blocks),
        "bytes": sum(length for length, _ in blocks.values()),
        "digest": digest_of(stores, scan),
        "at": "2026-11-21T19:12:40Z",
        **changes,
    }


def put(stores, scan, *receipts):
    for member in stores:
        path = member / scan / ".fullbore/copies.json"
        path.write_text(json.dumps({"version": 1, "copies": receipts}))


def names(store):
    return [entry["name"] for entry in json.loads(run("ls", "--store", store, "--json").stdout)]


def test_a_receipt_is_shown_and_judged_by_the_blocks_that_are_here(store):
    scan = record(store, "one")
    assert ask("info", scan, "--store", store)["copies"] == []
    good = receipt([store], scan)
    put([store], scan, good, receipt([store], scan, key="00" * 32, host="archive", digest="7" * 64))
    shown = {copy["host"]: copy for copy in ask("info", scan, "--store", store)["copies"]}
    assert shown["correlator"]["proven"] and shown["correlator"]["digest"] == good["digest"]
    assert not shown["archive"]["proven"] and "differ" in shown["archive"]["why"]
    for options in ([], ["--full"]):
        printed = run("info", scan, "--store", store, *options).stdout.decode()
        printed = " ".join(re.sub(r"[│|]", " ", printed).split())
        assert "copy on correlator since 2026-11-21T19:12:40.000" in printed and "NOT PROVEN" in printed, printed
    (entry,) = json.loads(run("ls", "--store", store, "--json").stdout)
    assert entry["copies"] == 2
    assert "sealed, 2 copies" in run("ls", "--store", store).stdout.decode()
    run("verify", scan, "--store", store)


def test_a_damaged_file_of_receipts_is_reported_by_info_and_bothers_nothing_else(store):
    scan = record(store, "one")
    (store / scan / ".fullbore/copies.json").write_text('{"version": 1, "cop')
    told = ask("info", scan, "--store", store)
    assert told["copies"] == [] and [it["what"] for it in told["findings"]] == ["copies-unreadable"]
    assert json.loads(run("ls", "--store", store, "--json").stdout)[0]["copies"] == 0
    run("verify", scan, "--store", store)
    run("recover", scan, "--store", store, code=(GOOD, FOUND))
    assert "not proven" in text(run("rm", "--yes", "--copied", scan, "--store", store, code=FOUND).stderr)
    removed = ask("rm", "--yes", scan, "--store", store)
    assert removed["kept"] == [] and not (store / scan).exists()


def test_rm_copied_removes_what_is_proven_elsewhere_and_says_why_the_rest_stays(stores):
    members = ",".join(map(str, stores))
    scans = [record(stores, name) for name in ("a", "b", "c", "d")]
    proven, none, changed, part = scans
    put(stores, proven, receipt(stores, proven))
    put(stores, changed, receipt(stores, changed, digest="0" * 64))
    whole = receipt(stores, part)
    put(stores, part, {**whole, "blocks": whole["blocks"] - 1})
    done = run("rm", "--yes", "--copied", *scans, "--store", members, code=FOUND)
    told = text(done.stderr)
    for scan, why in ((none, "no other host"), (changed, "differ"), (part, "recorded blocks")):
        assert re.search(f"{scan} is not proven elsewhere: .*{why}", told), told
    assert names(members) == [none, changed, part]
    assert not any((member / proven).exists() for member in stores)
    refused = run("rm", "--yes", "--copied", "--without-absent-members", none, "--store", members, code=REFUSED)
    assert "--copied" in text(refused.stderr)


def test_keep_copied_removes_only_what_is_proven_elsewhere(tmp_path, store):
    ports = free_ports(1)
    first = csv(tmp_path / "first.csv", *[(name, utc(5 + 3 * n), "1s") for n, name in enumerate(["a", "b"])])
    with Session(first, store, ports) as running:
        running.end()
    put([store], "day_b", receipt([store], "day_b"))
    second = csv(tmp_path / "second.csv", ("c", utc(5), "1s"))
    with Session(second, store, ports, "--keep", "1KB,copied") as running:
        told, _ = running.end()
    assert names(store) == ["day_a", "day_c"]
    in_the_way = [event["text"] for event in told if "is not removed" in event.get("text", "")]
    assert len(in_the_way) == 1 and "day_a" in in_the_way[0] and "receipt" in in_the_way[0], in_the_way


def test_keep_copied_without_a_limit_is_refused_with_an_example(store):
    words = ["record", "pattern:prbs31", "--store", store, "--session", "s", "--scan", "a"]
    refused = run(*words, "--keep", "copied", code=REFUSED)
    assert "500GB,copied" in text(refused.stderr)
    refused = run(*words, "--keep", "2d,copies", code=REFUSED)
    assert "`copies` is no rule" in text(refused.stderr)


def test_a_recorder_publishes_its_load_in_shared_memory_and_takes_it_back(store):
    with Recording("pattern:prbs31?rate=1MB/s", store=store) as recorded:
        recorded.wait("progress", lambda told: True)
        pid = recorded.process.pid
        (path,) = Path("/dev/shm").glob(f"fullbore-load-{pid}-*")
        stamps = set()
        until = time.monotonic() + 30
        while len(stamps) < 2 and time.monotonic() < until:
            raw = path.read_bytes()
            assert len(raw) == 96
            version, of, at, used, overrun, buffer = raw.split()
            assert (version, int(of), int(overrun), int(buffer)) == (b"2", pid, 0, 0) and 0 <= int(used) <= 1000
            stamps.add(at)
            time.sleep(0.02)
        assert len(stamps) == 2, "it is written again and again"
        recorded.stop()
    assert not path.exists()
