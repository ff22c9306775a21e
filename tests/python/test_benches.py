"""What the benchmarks divide by is what was done."""

import sys

from fullbore import REPOSITORY


def test_the_store_is_measured_by_what_was_recorded_not_by_what_was_sent(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(REPOSITORY / "benches"), *sys.path])
    from store import recorded_bytes

    streams = [{"bytes": 3}, {"bytes": 4}]
    events = [{"event": "armed"}, {"event": "sealed", "manifest": {"streams": streams}}]
    assert recorded_bytes(events) == 7
