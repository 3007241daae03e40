"""A third of a minute of everything that goes wrong; benchmarks/live-soak.log is of half an hour of it."""

from __future__ import annotations

import pytest
from soak import soak
from soak_pages import visited


@pytest.mark.slow
def test_a_short_soak_loses_and_leaks_nothing() -> None:
    report = soak(20.0, seed=3, beside=visited)
    assert report["violations"] == [], report
    assert report["frames_due"] > 330
    assert report["counters"]["connected"] >= 7
    assert report["counters"]["bad_body"] + report["counters"]["bad_header"] >= 20
