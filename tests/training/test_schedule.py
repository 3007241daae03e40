"""The schedule: it rises, falls to zero at the end, and ends after steps or by the clock."""

from __future__ import annotations

import pytest

from scopereg.training.schedule import Schedule
from scopereg.training.settings import TrainSettings

BY_STEPS = Schedule(peak=1.0, warmup=0, power=0.9, steps=100, seconds=None)
BY_CLOCK = Schedule(peak=1.0, warmup=0, power=0.9, steps=None, seconds=60.0)


def test_the_rate_rises_linearly_to_its_peak() -> None:
    schedule = Schedule(peak=2.0, warmup=4, power=0.0, steps=1000, seconds=None)
    rates = [schedule.rate(step, 0.0) for step in range(6)]
    assert rates == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0, 2.0])


def test_without_a_warm_up_the_first_step_has_the_peak() -> None:
    assert BY_STEPS.rate(0, 0.0) == 1.0


def test_the_rate_falls_as_a_power_of_what_is_left() -> None:
    assert [BY_STEPS.rate(step, 0.0) for step in (50, 75, 99)] == pytest.approx([0.5**0.9, 0.25**0.9, 0.01**0.9])
    assert BY_STEPS.rate(100, 0.0) == 0.0


def test_by_the_clock_only_seconds_count() -> None:
    assert [BY_CLOCK.rate(step, 30.0) for step in (0, 10**6)] == pytest.approx([0.5**0.9] * 2)
    assert BY_CLOCK.rate(0, 61.0) == 0.0


def test_a_run_ends_after_its_steps_whatever_the_clock_says() -> None:
    assert [BY_STEPS.finished(step, 1e9) for step in (99, 100, 101)] == [False, True, True]


def test_a_run_ends_after_its_time_whatever_the_steps() -> None:
    assert [BY_CLOCK.finished(10**9, seconds) for seconds in (59.9, 60.0, 61.0)] == [False, True, True]


def test_a_share_never_passes_one() -> None:
    assert (BY_STEPS.share(250, 0.0), BY_CLOCK.share(0, 90.0), BY_CLOCK.share(0, 15.0)) == (1.0, 1.0, 0.25)


@pytest.mark.parametrize(
    ("epochs", "volumes", "devices", "steps"), [(500, 350, 1, 29167), (1, 7, 1, 2), (1, 6, 1, 1), (3, 8, 2, 2)]
)
def test_an_epoch_is_one_frame_of_each_volume(epochs: int, volumes: int, devices: int, steps: int) -> None:
    settings = TrainSettings(epochs=epochs, batch=6, frames_per_volume=1)
    assert Schedule.from_settings(settings, volumes, devices).steps == steps


def test_settings_decide_the_schedule() -> None:
    settings = TrainSettings(minutes=2.0, learning_rate=0.01, warmup=7, decay_power=0.5)
    assert Schedule.from_settings(settings, 10) == Schedule(0.01, 7, 0.5, None, 120.0)


@pytest.mark.parametrize(
    ("decay", "shares", "factors"),
    [
        ("constant", (0.0, 0.5, 0.999), (1.0, 1.0, 1.0)),
        ("steps", (0.0, 0.034, 0.5, 0.999), (1.0, 0.8, 0.8**15, 0.8**29)),
        ("drop", (0.0, 0.79, 0.8, 0.999), (1.0, 1.0, 0.3, 0.3)),
        ("plateau", (0.0, 0.011, 0.061, 0.9), (1.0, 1.2, 1.2**6, 1.2**6)),
        ("polynomial", (0.0, 0.75), (1.0, 0.25**0.9)),
    ],
)
def test_every_decay_falls_as_its_method_says(
    decay: str, shares: tuple[float, ...], factors: tuple[float, ...]
) -> None:
    schedule = Schedule(peak=2.0, warmup=0, power=0.9, steps=1000, seconds=None, decay=decay)
    assert [schedule.factor(share) for share in shares] == pytest.approx(list(factors))
    assert schedule.rate(0, 0.0) == 2.0
