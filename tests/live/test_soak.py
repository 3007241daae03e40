"""A third of a minute of everything that goes wrong, and a part of what peers may do; longer logs are in benchmarks."""

from __future__ import annotations

import pytest
from soak import soak
from soak_changes import soak as soak_changes
from soak_pages import visited
from soak_streams import soak as soak_streams


@pytest.mark.slow
def test_a_short_soak_loses_and_leaks_nothing() -> None:
    report = soak(20.0, seed=3, beside=visited)
    assert report["violations"] == [], report
    assert report["frames_due"] > 200
    assert report["counters"]["connected"] >= 7
    assert report["counters"]["bad_body"] + report["counters"]["bad_header"] >= 20


@pytest.mark.slow
def test_bad_messages_reconnects_and_idle_peers_take_nothing_from_a_replay() -> None:
    """benchmarks/stream-peers.log is of 10,000, 1,000 and 300, and says that no frame was dropped."""
    report = soak_streams(frames=200, messages=400, reconnects=40, peers=60, seed=5)
    counted = (
        {"frames were dropped", "a frame has no update"} if report["frames_dropped"] else set()
    )  # by a busy machine
    assert set(report["violations"]) <= counted, report
    assert report["updates"] + report["frames_dropped"] == report["frames"]
    assert report["poses_missing_or_wrong"] == 0
    assert (report["bad_messages"], report["reconnects"], report["idle_peers"]) == (400, 40, 120)


@pytest.mark.slow
def test_a_stream_that_changes_with_every_picture_is_survived_and_located_when_it_settles() -> None:
    report = soak_changes(6.0, seed=2)
    assert report["violations"] == [], report
