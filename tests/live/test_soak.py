"""A few seconds of everything that goes wrong; `python tests/live/soak.py --minutes 30` for more."""

from __future__ import annotations

from soak import soak


def test_a_short_soak_loses_and_leaks_nothing() -> None:
    report = soak(5.0, seed=3)
    assert report["violations"] == [], report
    assert report["frames_due"] > 50
    assert report["counters"]["connected"] >= 2
    assert report["counters"]["bad_body"] + report["counters"]["bad_header"] >= 3
