"""Half a minute of everything that goes wrong; benchmarks/live-soak.log is of half an hour of it."""

from __future__ import annotations

import pytest
from soak import soak
from soak_pages import visited


@pytest.mark.slow
def test_half_a_minute_of_soak_loses_and_leaks_nothing() -> None:
    report = soak(30.0, seed=3, beside=visited)
    assert report["violations"] == [], report
    assert report["frames_due"] > 500
    assert report["counters"]["connected"] >= 10
    assert report["counters"]["bad_body"] + report["counters"]["bad_header"] >= 30
