"""The description of a stream's samples is in its manifest, and `info` shows it."""

import pytest
from fullbore import free_port, run


def record(store, source, **options):
    return run("record", source, "--store", store, "--session", "s", "--scan", "a", **options)


def test_a_description_is_kept_and_shown(store):
    query = "bytes=1MiB&samples=ci16_le&channels=2&sample_rate=200/3&scale=0.5&unit=V&channel_names=x,y"
    record(store, f"pattern:counter?{query}")
    manifest = next(store.rglob("manifest.json")).read_text()
    assert '"encoding"' in manifest and '"200/3"' in manifest
    shown = run("info", "s_a", "--store", store).stdout.decode()
    assert "2 channels of ci16_le at 200/3 Hz, 0.5 V per step" in " ".join(shown.split())


@pytest.mark.parametrize(
    "query, word",
    [
        ("samples=i16", "is not an encoding"),
        ("channels=2", "needs `samples`"),
        ("samples=ri8&channels=0", "1 to 65536"),
        ("samples=ri8&channels=2&channel_names=x", "1 names for 2 channels"),
    ],
)
def test_a_wrong_description_is_refused(store, query, word):
    refused = record(store, f"pattern:counter?bytes=1MiB&{query}", code=2)
    assert word in " ".join(refused.stderr.decode().split())


def test_vdif_describes_itself(store):
    refused = record(store, f"udp://127.0.0.1:{free_port()}?samples=ri8", code=2)
    assert "omit `samples`" in " ".join(refused.stderr.decode().split())
