"""Extended data versions: `generate` makes each as baseband reads it, and `record` checks frames by their second count.
"""

import json

import pytest
from baseband.vdif.header import VDIFHeader
from fullbore import AS_SEALED, Recording, free_port, generate, run

FORMS = {
    "0": {"frame": 5032},
    "1": {"frame": 5032},
    "2": {"frame": 5032, "channels": 1},
    "3": {"frame": 5032, "channels": 1},
    "4": {"frame": 5032, "channels": 8},
    "0xAB": {"frame": 10032},
}
FPS = 200


def recorded(store, tmp_path, edv, scan="one", code=0, **rules):
    port, truth = free_port(), tmp_path / f"{scan}.json"
    with Recording(f"udp://127.0.0.1:{port}?format=vdif&fps={FPS}", store=store, scan=scan) as recording:
        generate(port, edv=edv, fps=FPS, duration="2s", gentle=True, truth=truth, **FORMS[edv], **rules)
        sealed = recording.stop(code)
    return recording, sealed["accounts"][0], json.loads(truth.read_text())["streams"][0]["port"]


@pytest.mark.parametrize("edv", FORMS)
def test_every_version_is_made_as_baseband_reads_it(store, tmp_path, edv):
    recording, account, _ = recorded(store, tmp_path, edv)
    assert (account["verdict"], account["disagreements"]) == ("proven", 0)
    numbers, count = [], 0
    for chunk in recording.on_disk().chunks():
        with chunk.open("rb") as file:
            while file.tell() < chunk.stat().st_size:
                header = VDIFHeader.fromfile(file)  # checks the requirements of the version
                assert header["edv"] == int(edv, 0)
                numbers.append(header.words[6] | header.words[7] << 32)
                count += 1
                file.seek(header.frame_nbytes - header.nbytes, 1)
    assert count == 2 * FPS
    if edv == "2":
        assert numbers == list(range(numbers[0], numbers[0] + count))


@pytest.mark.parametrize("edv", ["2", "4", "0xAB"])
def test_a_second_count_that_disagrees_is_in_the_account(store, tmp_path, edv):
    recording, account, truth = recorded(store, tmp_path, edv, code=AS_SEALED, miscount=0.02, seed=3)
    wrong = truth["miscounted"]["count"]
    assert 0 < wrong < 40 and account["disagreements"] == wrong
    assert account["verdict"] == "consistent" and account["terms"]["written"] == 2 * FPS
    assert account.get("masked", 0) == (wrong if edv == "4" else 0)
    run("verify", recording.scan, "--store", store)
    told = run("info", recording.scan, "--full", "--store", store).stdout.decode()
    assert "disagreed with their time" in told


def test_threads_that_share_a_port_each_have_a_count_of_their_own(store, tmp_path):
    _, account, _ = recorded(store, tmp_path, "2", threads="0-3")
    assert (account["verdict"], account["disagreements"]) == ("proven", 0)
