"""Recordings as if they were live: in their own time or at a rate, held, stepped, over and over, bad frames or not."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from peers import all_of, wait_until

from scopereg.errors import ScopeRegError
from scopereg.io.cine import Cine
from scopereg.live.replay import LONGEST_GAP_S, USUAL_RATE_HZ, Arrival, Replay


def cine(count: int, **more: Any) -> Callable[[], Cine]:
    """Frames whose pixels are their numbers, from 1."""

    def decode(index: int) -> npt.NDArray[np.float32]:
        return np.full((4, 6), index + 1, np.float32)

    return lambda: Cine(Path("cine"), count, (0.5, 0.5), decode, **more)


def shown(arrival: Arrival | None) -> int:
    assert arrival is not None
    return int(arrival.frame.numpy()[0, 0])


def test_times_of_the_recording_are_kept() -> None:
    times = (100.0, 100.02, 100.22, 100.24)
    begin_s = time.perf_counter()
    arrivals = all_of(Replay("a", [cine(4, times_s=times)]))
    assert [shown(arrival) for arrival in arrivals] == [1, 2, 3, 4]
    assert [arrival.number for arrival in arrivals] == [1, 2, 3, 4]
    for arrival, time_s in zip(arrivals, times, strict=True):
        assert time_s - times[0] <= arrival.arrived_s - begin_s < time_s - times[0] + 2
    assert abs(arrivals[-1].time_s - time.time()) < 5
    assert arrivals[1].frame.facts["time_s"] == 100.02  # type: ignore[attr-defined]


def test_a_rate_wins_over_the_times() -> None:
    begin_s = time.perf_counter()
    arrivals = all_of(Replay("a", [cine(6, times_s=(0, 1, 2, 3, 4, 5))], rate_hz=100))
    assert [shown(arrival) for arrival in arrivals] == [1, 2, 3, 4, 5, 6]
    assert 0.05 <= arrivals[-1].arrived_s - begin_s < 3
    for rate in (0, -1, 1e6):
        with pytest.raises(ScopeRegError, match="the rate is"):
            Replay("a", [cine(1)], rate_hz=rate)


def test_times_that_make_no_sense_become_usual_ones() -> None:
    odd = cine(7, times_s=(5.0, 5.1, 5.1, 4.0, 4.2, 4.3, 5000.0))()
    assert Replay("a", [])._gaps_s(odd) == pytest.approx([0.1, 0.1, 0.1, 0.2, 0.1, 0.1, 0.1])
    assert Replay("a", [])._gaps_s(cine(2, times_s=(0, LONGEST_GAP_S + 1))()) == [1 / USUAL_RATE_HZ] * 2
    assert Replay("a", [])._gaps_s(cine(2)()) == [1 / USUAL_RATE_HZ] * 2


def test_who_takes_slowly_gets_the_newest() -> None:
    replay = Replay("a", [cine(30)], rate_hz=200)
    replay.start()
    assert wait_until(lambda: replay.counters()["arrived"] == 30)
    assert not replay.finished
    assert shown(replay.latest(1.0)) == 30
    assert replay.latest(1.0) is None
    assert wait_until(lambda: replay.finished)
    assert replay.counters() == {"arrived": 30, "taken": 1, "dropped": 29}
    assert replay.status == "ended a"
    replay.close()


def test_over_and_over_until_it_is_closed() -> None:
    replay = Replay("a", [cine(2), cine(3)], rate_hz=500, loop=True)
    replay.start()
    seen = []
    while len(seen) < 12:
        seen.append(replay.latest(5.0))
    numbers = [arrival.number for arrival in seen if arrival]
    assert numbers == sorted(numbers)
    assert all(shown(arrival) == (1, 2, 1, 2, 3)[(arrival.number - 1) % 5] for arrival in seen if arrival)
    replay.close()
    assert replay.counters()["arrived"] >= 12


def test_paused_and_stepped() -> None:
    replay = Replay("a", [cine(5)], rate_hz=500)
    replay.pause()
    replay.start()
    assert replay.latest(0.05) is None
    assert replay.status == "paused a"
    for number in (1, 2, 3):
        replay.step()
        assert shown(replay.latest(5.0)) == number
        assert replay.latest(0.02) is None
    replay.resume()
    assert wait_until(lambda: replay.counters()["arrived"] == 5)
    replay.close()


def test_a_pause_is_not_made_up_for() -> None:
    replay = Replay("a", [cine(100)], rate_hz=50)
    replay.start()
    assert replay.latest(5.0) is not None
    replay.pause()
    time.sleep(0.5)
    before, begin_s = replay.counters()["arrived"], time.monotonic()
    replay.resume()
    time.sleep(0.1)
    after = replay.counters()["arrived"]
    assert after - before <= 2 + 50 * (time.monotonic() - begin_s)  # 25 more if it caught up
    replay.close()


def test_a_frame_that_took_long_to_read_is_not_followed_by_a_rush() -> None:
    def decode(index: int) -> npt.NDArray[np.float32]:
        time.sleep(0.4 if index == 1 else 0)
        return np.zeros((4, 6), np.float32)

    slow = Cine(Path("slow"), 22, (0.5, 0.5), decode)
    arrivals = all_of(Replay("a", [lambda: slow], rate_hz=100))
    assert arrivals[-1].arrived_s - arrivals[1].arrived_s > 0.12  # 0.2 s as it should be


def test_bad_frames_and_files_are_counted_and_left_out() -> None:
    def broken() -> Cine:
        raise ScopeRegError("it is damaged", where="b", fix="copy it again")

    def odd() -> Cine:
        raise RuntimeError("some reader failed")

    replay = Replay("a", [broken, cine(4, faults={1: "Image INVALID"}), odd], rate_hz=200)
    assert [shown(arrival) for arrival in all_of(replay)] == [1, 3, 4]
    assert replay.counters()["bad_frames"] == 3
    assert replay.last_fault == "some reader failed"


def test_a_recording_of_bad_frames_alone_ends_even_in_a_loop() -> None:
    assert all_of(Replay("a", [cine(2, faults={0: "bad", 1: "bad"})], loop=True)) == []


def test_closing_is_quick_while_it_waits() -> None:
    replay = Replay("a", [cine(3, times_s=(0, 2, 4))])
    replay.start()
    assert replay.latest(5.0) is not None
    begin = time.monotonic()
    replay.close()
    assert time.monotonic() - begin < 1
    held = Replay("a", [cine(3)])
    held.pause()
    held.start()
    held.close()
    Replay("a", [cine(3)]).close()  # never started
