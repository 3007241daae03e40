"""Rates over the last frames, by hand."""

from __future__ import annotations

import pytest

from scopereg.live.pace import RATE_S, WINDOW, Pace


def test_one_frame_has_a_latency_and_no_rate() -> None:
    assert Pace().add(12.0, 100.0) == (0.0, 12.0, 12.0)


def test_rates_are_those_of_the_last_frames() -> None:
    pace = Pace()
    for number in range(101):
        rates = pace.add(float(number), 100 + number / 25)
    assert rates.frames_per_s == pytest.approx(25)
    assert (rates.p50_ms, rates.p95_ms) == (pytest.approx(50), pytest.approx(95))
    for number in range(WINDOW):
        rates = pace.add(7.0, 110 + number / 10)
    assert rates == (pytest.approx(10), 7.0, 7.0)


def test_a_pause_is_forgotten() -> None:
    pace = Pace()
    pace.add(1.0, 0.0)
    assert pace.add(1.0, 10 * RATE_S).frames_per_s == 0
    assert pace.add(1.0, 10 * RATE_S + 0.5).frames_per_s == pytest.approx(2)
