"""The loop: every frame that is taken gives one update, to every listener, whatever fails on the way."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from peers import wait_until

from scopereg import Frame, Pose
from scopereg.errors import ScopeRegError
from scopereg.io import read_cine
from scopereg.io.cine import Cine
from scopereg.live.loop import RATE_S, WINDOW, Loop, Pace, Update
from scopereg.live.replay import Arrival, Replay
from scopereg.registration.result import RegistrationError, Result, WaitingError


def replay(count: int, *, rate_hz: float = 100.0, loop: bool = False) -> Replay:
    """Frames whose pixels are their numbers, from 1, in hundredths."""
    cine = Cine(Path("cine"), count, (0.5, 0.6), lambda index: np.full((4, 6), (index + 1) / 100, np.float32))
    return Replay("cine", [lambda: cine], rate_hz=rate_hz, loop=loop)


def number_of(frame: Frame) -> int:
    return round(float(frame.numpy()[0, 0]) * 100)


def locate(frame: Frame) -> Result:
    return Result(Pose.from_euler_deg((1, 2, 3), (number_of(frame), 0, 0)), "test", 1.0, 0.5)


Steered = Callable[..., tuple[Loop, list[Update]]]


@pytest.fixture
def stepped() -> Iterator[Steered]:
    """A paused loop and its updates; stopped in the end."""
    loops: list[Loop] = []

    def make(count: int, register: Callable[[Frame], Result] = locate) -> tuple[Loop, list[Update]]:
        updates: list[Update] = []
        loops.append(Loop(replay(count), register, [updates.append], paused=True).start())
        return loops[-1], updates

    yield make
    for loop in loops:
        loop.stop()


def step(loop: Loop, updates: list[Update]) -> Update:
    before = len(updates)
    loop.step()
    assert wait_until(lambda: len(updates) == before + 1)
    return updates[-1]


def test_frames_become_updates_until_the_recording_ends() -> None:
    updates: list[Update] = []
    loop = Loop(replay(10), locate, [updates.append]).start()
    assert loop.wait(10)
    assert not loop.running
    assert [update.number for update in updates] == list(range(1, len(updates) + 1))
    assert sum(1 for _ in updates) + loop.counters()["dropped"] == 10
    for update in updates:
        assert update.error is None
        assert update.result is not None
        assert update.result.pose.translation_mm[0] == number_of(update.frame) == update.frame_number
        assert update.latency_ms == pytest.approx((update.done_s - update.arrived_s) * 1e3)
        assert 0 <= update.register_ms <= update.latency_ms
        assert update.rates.p50_ms <= update.rates.p95_ms
        assert update.counters["registered"] == update.number
    loop.stop()


def test_errors_of_a_frame_are_carried_and_counted(stepped: Steered) -> None:
    def fail(frame: Frame) -> Result:
        if number_of(frame) == 1:
            raise RegistrationError("outside of the volume", where="frame", fix="move the probe")
        if number_of(frame) == 2:
            raise ZeroDivisionError("something else")
        return locate(frame)

    loop, updates = stepped(3, fail)
    first, second, third = (step(loop, updates) for _ in range(3))
    assert first.result is None
    assert isinstance(first.error, RegistrationError)
    assert first.error.what == "outside of the volume"
    assert isinstance(second.error, ScopeRegError)
    assert second.error.what == "ZeroDivisionError: something else"
    assert third.error is None
    assert (third.counters["registered"], third.counters["failed"]) == (1, 2)
    assert loop.last_fault == "ZeroDivisionError: something else"


def test_a_listener_that_fails_keeps_nobody_from_hearing() -> None:
    heard: list[int] = []

    def bad(update: Update) -> None:
        raise OSError("the window was closed")

    with Loop(replay(5), locate, [bad, lambda update: heard.append(update.number)]) as loop:
        assert loop.wait(10)
        assert loop.counters()["listener_errors"] == len(heard) > 0
        assert loop.last_fault == "the window was closed"


def test_a_slow_registration_drops_frames_and_never_lags() -> None:
    updates: list[Update] = []

    def slow(frame: Frame) -> Result:
        time.sleep(0.05)
        return locate(frame)

    with Loop(replay(60, rate_hz=100), slow, [updates.append]) as loop:
        assert loop.wait(10)
        counters = loop.counters()
    assert counters["dropped"] > 10
    assert counters["taken"] + counters["dropped"] == 60
    assert len(updates) == counters["taken"]
    shown = [update.frame_number for update in updates]
    assert shown == sorted(shown)
    assert shown[-1] == 60
    # A frame waits for at most one registration, however many came before it; in a queue it would be seconds.
    assert max(update.latency_ms - update.register_ms for update in updates) < 1000


def test_paused_stepped_and_resumed(stepped: Steered) -> None:
    loop, updates = stepped(50)
    assert loop.paused
    time.sleep(0.05)
    assert updates == []
    assert [step(loop, updates).frame_number for _ in range(3)] == [1, 2, 3]
    time.sleep(0.05)
    assert len(updates) == 3
    loop.resume()
    assert wait_until(lambda: len(updates) >= 8)
    loop.pause()
    held = len(updates)
    time.sleep(0.1)
    assert len(updates) <= held + 1  # the frame in hand was finished


def test_a_scanner_goes_on_while_the_loop_is_paused() -> None:
    """It cannot be held; a step takes its newest frame, and only that."""

    class Scanner(Replay):
        def pause(self) -> None:
            pass

        def step(self) -> None:
            pass

    cine = Cine(Path("cine"), 1000, (0.5, 0.6), lambda index: np.full((4, 6), 0.5, np.float32))
    updates: list[Update] = []
    with Loop(Scanner("scanner", [lambda: cine], rate_hz=200), locate, [updates.append], paused=True) as loop:
        assert wait_until(lambda: loop.counters()["arrived"] >= 10)
        assert step(loop, updates).frame_number >= 10
        time.sleep(0.1)
        assert len(updates) == 1


def test_another_volume_while_it_runs(stepped: Steered) -> None:
    loop, updates = stepped(3)
    assert step(loop, updates).result.method == "test"  # type: ignore[union-attr]
    loop.use(lambda frame: Result(Pose.identity(), "other", 1.0, 0.1))
    assert step(loop, updates).result.method == "other"  # type: ignore[union-attr]


def test_listeners_come_and_go(stepped: Steered) -> None:
    loop, updates = stepped(3)
    more: list[Update] = []
    loop.listen(more.append)
    step(loop, updates)
    assert wait_until(lambda: len(more) == 1)
    loop.forget(more.append)
    step(loop, updates)
    step(loop, updates)
    assert len(more) == 1


def test_changes_of_depth_are_told_and_what_waits_is_no_failure() -> None:
    def prepares(frame: Frame) -> Result:
        if number_of(frame) == 3:
            raise WaitingError("preparing the volume", where="live", fix="wait")
        return locate(frame)

    cine = Cine(Path("cine"), 2, (0.5, 0.6), lambda index: np.full((4, 6), (index + 1) / 100, np.float32))
    other = replace(cine, spacing_mm=(1.0, 1.2), decode=lambda index: np.full((4, 6), (index + 3) / 100, np.float32))
    updates: list[Update] = []
    both = Replay("two", [lambda: cine, lambda: other], rate_hz=100)
    with Loop(both, prepares, [updates.append], paused=True) as loop:
        four = [step(loop, updates) for _ in range(4)]
    told = "depth changed: 6 x 4 of 1 x 1.2 mm, before 0.5 x 0.6 mm"
    assert [update.notice for update in four] == ["", "", told, ""]
    waits = four[2].assessment
    assert (waits.light, waits.word, waits.ok) == ("amber", "Not judged", None)
    assert waits.reason == "not judged: preparing the volume"
    counters = four[-1].counters
    assert (counters["registered"], counters["waiting"], counters["changes"]) == (3, 1, 1)
    assert "failed" not in counters
    assert loop.last_fault == ""


def test_a_recording_holds_frames_poses_and_failures(stepped: Steered, tmp_path: Path) -> None:
    def second_fails(frame: Frame) -> Result:
        if number_of(frame) == 3:
            raise RegistrationError("lost", where="frame", fix="none")
        return locate(frame)

    path = tmp_path / "new" / "recorded.igs.mha"
    loop, updates = stepped(6, second_fails)
    step(loop, updates)
    recorder = loop.record(path)
    with pytest.raises(ScopeRegError, match="is being recorded"):
        loop.record(tmp_path / "other.igs.mha")
    for _ in range(3):
        step(loop, updates)
    assert wait_until(lambda: len(recorder) == 3)
    assert list(path.parent.iterdir()) == []  # nothing on the disk before it is whole
    assert loop.end_recording() == (path,)
    assert loop.end_recording() == ()
    step(loop, updates)
    assert [file.name for file in path.parent.iterdir()] == ["recorded.igs.mha"]
    cine = read_cine(path)
    assert len(cine) == 3
    assert cine.spacing_mm == pytest.approx((0.5, 0.6))
    assert [number_of(frame) for frame in cine] == [2, 3, 4]
    assert cine.times_s == pytest.approx([update.time_s for update in updates[1:4]])
    assert [frame.pose is not None for frame in cine] == [True, False, True]
    assert cine[2].pose is not None
    assert cine[2].pose.is_close(updates[3].result.pose, mm=1e-5, deg=1e-4)  # type: ignore[union-attr]


def test_stopping_writes_a_recording_that_runs(tmp_path: Path) -> None:
    loop = Loop(replay(3), locate, paused=True).start()
    recorder = loop.record(tmp_path / "a.igs.mha")
    loop.step()
    assert wait_until(lambda: len(recorder) == 1)
    loop.stop()
    loop.stop()
    assert len(read_cine(tmp_path / "a.igs.mha")) == 1


def test_a_source_that_fails_is_counted() -> None:
    class Broken(Replay):
        fails = 2

        def latest(self, timeout_s: float) -> Arrival | None:
            if self.fails:
                self.fails -= 1
                raise OSError("the cable was pulled")
            return super().latest(timeout_s)

    cine = Cine(Path("cine"), 2, (0.5, 0.6), lambda index: np.full((4, 6), 0.5, np.float32))
    updates: list[Update] = []
    with Loop(Broken("broken", [lambda: cine], rate_hz=100), locate, [updates.append]) as loop:
        assert loop.wait(10)
    assert loop.counters()["source_errors"] == 2
    assert len(updates) >= 1


def test_stopping_does_not_wait_for_ever_for_a_registration() -> None:
    release, entered = threading.Event(), threading.Event()

    def hang(frame: Frame) -> Result:
        entered.set()
        release.wait(10)
        return locate(frame)

    loop = Loop(replay(3, loop=True), hang).start()
    assert entered.wait(5)
    with pytest.raises(ScopeRegError, match=r"takes longer than 0\.05 s"):
        loop.stop(0.05)
    release.set()
    assert loop.wait(5)
    Loop(replay(3), locate).stop()  # never started


def test_several_workers_keep_the_order_and_use_the_time() -> None:
    """Frames that take longer and shorter, three at once: every update in turn, none lost, none mixed up."""
    numbers: list[int] = []
    busy, most = 0, 0
    lock = threading.Lock()

    def slow(frame: Frame) -> Result:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        time.sleep(0.03 if number_of(frame) % 3 == 0 else 0.005)
        with lock:
            busy -= 1
        if number_of(frame) % 5 == 0:
            raise RegistrationError("lost", where="test", fix="none")
        return locate(frame)

    def listen(update: Update) -> None:
        numbers.append(update.number)
        if update.result is not None:
            assert update.result.pose.translation_mm[0] == number_of(update.frame)

    with Loop(replay(60, rate_hz=200), slow, [listen], workers=3) as loop:
        assert loop.wait(20)
        counters = loop.counters()
    assert numbers == list(range(1, len(numbers) + 1))
    assert most > 1
    assert counters["taken"] == len(numbers) == counters["registered"] + counters["failed"]
    assert "listener_errors" not in counters


def test_a_step_gives_one_frame_to_one_of_several_workers() -> None:
    updates: list[Update] = []
    with Loop(replay(20), locate, [updates.append], paused=True, workers=3) as loop:
        for count in (1, 2, 3):
            loop.step()
            assert wait_until(lambda count=count: len(updates) == count)  # type: ignore[misc]
        time.sleep(0.3)
        assert [number_of(update.frame) for update in updates] == [1, 2, 3]


def test_one_frame_has_a_latency_and_no_rate() -> None:
    rates = Pace().add(12.0, 100.0)
    assert (rates.p50_ms, rates.p95_ms) == (12.0, 12.0)
    assert math.isnan(rates.frames_per_s)


def test_two_results_at_once_are_no_rate() -> None:
    """Two workers that were done within 0.4 ms made 2,557 frames/s."""
    pace = Pace()
    found = [pace.add(500.0, 100 + second + late).frames_per_s for second in range(3) for late in (0, 0.0004)]
    assert [math.isnan(rate) for rate in found] == [True, True, False, False, False, False]
    assert max(found[2:]) <= 3


def test_a_slow_method_has_a_rate_too() -> None:
    pace = Pace()
    assert [pace.add(5000.0, 5.0 * number).frames_per_s for number in range(4)][1:] == [pytest.approx(0.2)] * 3


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
    assert math.isnan(pace.add(1.0, 10 * RATE_S).frames_per_s)
    assert math.isnan(pace.add(1.0, 10 * RATE_S + 0.5).frames_per_s)
    assert pace.add(1.0, 10 * RATE_S + 1).frames_per_s == pytest.approx(2)
