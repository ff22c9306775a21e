"""The documents of a scan follow the published schema, for people and programs alike."""

import json
import re
import struct

import jsonschema
import pytest
import wire
from fullbore import FOUND, GOOD, REPOSITORY, Recording, ask, free_port, free_ports, run

REFERENCE = REPOSITORY / "docs/reference"


def schema(name):
    found = json.loads((REFERENCE / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


def recorded(query, frames, store, lose=()):
    port = free_port()
    with Recording(f"udp://127.0.0.1:{port}?{query}", store=store) as recording:
        wire.send((frame for n, frame in enumerate(frames) if n not in lose), port)
    return recording


KINDS = {
    "proven": ("format=vdif&fps=1000", wire.run_of_frames(300), (), GOOD),
    "with gaps": ("format=vdif&fps=1000&fill=omit", wire.run_of_frames(300), (5, 6, 200), FOUND),
    "two threads": (
        "format=vdif&fps=1000",
        [f for pair in zip(wire.run_of_frames(100), wire.run_of_frames(100, thread=1)) for f in pair],
        (31,),
        FOUND,
    ),
    "raw": ("format=raw&frame=varying", [bytes([n]) * (n + 1) for n in range(200)], (), GOOD),
    "packets": ("format=rtp", [struct.pack(">BBHII", 128, 96, n, 9 * n, 7) + bytes(9) for n in range(100)], (9,), FOUND),
    "nothing came": ("format=vdif", [], (), FOUND),
}


@pytest.mark.parametrize("query, frames, lose, code", KINDS.values(), ids=KINDS.keys())
def test_manifest_and_account_follow_their_schema(query, frames, lose, code, store):
    recording = recorded(query, frames, store, lose)
    scan, sealed = recording.on_disk(), recording.stop(code)
    schema("manifest").validate(sealed["manifest"])
    for account in sealed["accounts"]:
        schema("account").validate(account)
    (side,) = store.glob(f"{scan.name}*/.fullbore")
    assert json.loads((side / "manifest.json").read_text()) == sealed["manifest"]
    stored = json.loads((side / "account.json").read_text())
    schema("account").validate(stored)
    assert re.fullmatch("[0-9a-f]{8}", stored.pop("crc32c"))
    assert stored == sealed["accounts"][0]


def test_every_member_that_was_used_carries_manifest_and_account(stores):
    ports = free_ports(3)
    source = f"udp://127.0.0.1:{ports[0]}-{ports[-1]}?format=vdif&fps=1000"
    with Recording(source, store=stores) as recording:
        for port in ports:
            wire.send(wire.run_of_frames(200), port)
    recording.stop()
    for chunks in recording.on_disk().streams.values():
        for directory in {chunk.parent for chunk in chunks}:
            for name in ("manifest.json", "account.json", "index"):
                assert (directory / ".fullbore" / name).is_file()


@pytest.mark.parametrize("words", [["ls"], ["info", "test_one"], ["verify", "test_one"]], ids=str)
def test_answers_for_scripts_are_json_and_answers_for_people_are_not(words, store):
    recorded("format=vdif&fps=1000", wire.run_of_frames(100), store).stop()
    assert "test_one" in json.dumps(ask(*words, "--store", store))
    told = run(*words, "--store", store).stdout.decode()
    assert "test_one" in told
    with pytest.raises(json.JSONDecodeError):
        json.loads(told)
