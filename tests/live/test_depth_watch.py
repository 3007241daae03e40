"""A depth that changes behind the sender's back: noticed, measured in several frames, asked once, never switched."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from peers import wait_until

from scopereg import Frame, Pose
from scopereg.errors import ScopeRegError
from scopereg.io.cine import Cine
from scopereg.live.depth_watch import DepthWatch, agreed_size
from scopereg.live.loop import Loop, Rates, Update
from scopereg.live.pixel_sizes import PixelSizes
from scopereg.live.replay import Replay
from scopereg.registration.confidence import stretch_of
from scopereg.registration.format import PixelSize
from scopereg.registration.result import Result

TOLD = (0.2, 0.2)
ROWS, COLUMNS = np.mgrid[:60, :80].astype(np.float32)
WHOLE = 0.6 + 0.3 * np.sin(ROWS / 5) * np.cos(COLUMNS / 7)  # some structure
NARROW = WHOLE.copy()
NARROW[:, :15] = NARROW[:, -15:] = 0


def result_of(stretch: float | None, ok: bool | None = None) -> Result:
    """What a network says of a frame that would fit better by this share; None: of a method that cannot tell."""
    good = (stretch is not None and stretch < 0.03) if ok is None else ok
    features = {} if stretch is None else {"stretch": math.log(stretch + 0.005)}
    if stretch is None:
        return Result(Pose.identity(), "test", 1.0, 0.5)
    return Result(
        Pose.identity(), "test", 1.0, 0.5, ok=good, belongs=good, features=features, reason="" if good else "x"
    )


class Watched:
    """A watch, what it measures, and updates for it."""

    def __init__(self) -> None:
        self.sizes, self.found, self.looks = PixelSizes(), TOLD, 0
        self.watch = DepthWatch(self.sizes, self._measure)
        self.number = 0

    def _measure(self, frame: Frame, result: Result) -> PixelSize | None:
        self.looks += 1
        found = self.found[self.looks % len(self.found)] if isinstance(self.found, list) else self.found
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[return-value]

    def see(self, count: int, stretch: float | None, pixels: np.ndarray = WHOLE, pixel_mm: PixelSize = TOLD) -> None:
        """So many frames, each looked into to the end before the next comes, ten a second."""
        for _ in range(count):
            self.number += 1
            draw = np.random.default_rng(self.number).random(pixels.shape, dtype=np.float32)
            frame = Frame(pixels * (0.9 + 0.1 * draw), pixel_mm)
            self.sizes.of(frame.size, pixel_mm)  # type: ignore[arg-type]
            time_s, rates = self.number / 10, Rates(10, 0, 0)
            found = result_of(stretch)
            self.watch.look(Update(self.number, frame, found, None, self.number, time_s, time_s, time_s, 0.0, rates))
            if (thread := self.watch._thread) is not None:
                thread.join()


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.watch.close()


def test_frames_that_fit_are_left_alone(watched: Watched) -> None:
    watched.see(40, 0.01)
    watched.see(4, 0.3)  # some never fit
    watched.see(10, 0.01)
    assert (watched.looks, watched.sizes.question) == (0, None)


def test_frames_that_fit_another_size_are_asked_about(watched: Watched) -> None:
    watched.found = (0.2503, 0.2498)
    watched.see(10, 0.01)
    watched.see(12, 0.25)
    question = watched.sizes.question
    assert question is not None
    assert (question.size, question.suggestion, question.told) == ((80, 60), (0.25, 0.25), TOLD)
    assert question.why == "the depth seems to have changed: 0.25 mm a pixel fits best, 0.2 mm is told"
    assert watched.looks == 3
    assert watched.sizes.of((80, 60), TOLD) == TOLD  # never by itself
    watched.see(40, 0.25)
    assert watched.looks == 3  # while a person is asked
    watched.sizes.tell((0.25, 0.25), question.number)
    watched.see(20, 0.01, pixel_mm=(0.25, 0.25))
    assert (watched.looks, watched.sizes.question) == (3, None)


def test_pixels_that_were_told_wrongly_from_the_start_are_asked_about_too(watched: Watched) -> None:
    watched.found = (0.3, 0.2)
    watched.see(12, 0.5)
    assert watched.sizes.question is not None
    assert (
        watched.sizes.question.why == "pixels seem to have another size: 0.3 x 0.2 mm a pixel fits best, 0.2 mm is told"
    )


def test_what_a_person_turned_down_is_not_asked_again(watched: Watched) -> None:
    watched.found = (0.25, 0.25)
    watched.see(12, 0.25)
    watched.sizes.keep()
    watched.see(200, 0.25)
    assert watched.sizes.question is None
    assert watched.looks < 20  # it is looked into less and less
    watched.found = (0.4, 0.4)  # now it is something else
    watched.see(700, 0.5)
    assert watched.sizes.question is not None


def test_sizes_that_do_not_agree_are_no_answer(watched: Watched) -> None:
    watched.found = [(0.25, 0.25), (0.4, 0.4), (0.31, 0.31), (0.22, 0.22)]  # type: ignore[assignment]
    watched.see(60, 0.2)
    assert watched.sizes.question is None
    assert watched.looks > 4


@pytest.mark.parametrize("found", [None, ScopeRegError("x", where="y", fix="z"), (0.202, 0.202)])
def test_strangers_and_air_are_looked_into_less_and_less(watched: Watched, found: object) -> None:
    watched.found = found  # type: ignore[assignment]
    watched.see(600, 0.4)
    assert watched.sizes.question is None
    assert 3 <= watched.looks <= 9  # in a minute


def test_an_outline_that_changes_is_asked_about_where_nothing_else_tells(watched: Watched) -> None:
    """A method that judges nothing and measures nothing."""
    watched.found = None  # type: ignore[assignment]
    watched.see(20, None)
    assert watched.looks == 0
    watched.see(200, None, NARROW)
    assert watched.sizes.question is not None
    assert watched.sizes.question.why == "the depth seems to have changed: the outline of the picture is another one"
    assert watched.sizes.question.suggestion is None
    watched.sizes.keep()
    watched.see(200, None, NARROW)
    assert watched.sizes.question is None


def test_noise_with_another_outline_is_not_asked_about(watched: Watched) -> None:
    """As of gel or a cable that is out: nothing could ever fit."""
    watched.found = None  # type: ignore[assignment]
    watched.see(20, None)
    watched.see(200, None, np.random.default_rng(0).random((60, 80), dtype=np.float32) * (NARROW > 0))
    assert watched.looks > 3
    assert watched.sizes.question is None


def test_an_outline_that_changes_is_nothing_where_frames_still_fit(watched: Watched) -> None:
    watched.found = (0.3, 0.3)
    watched.see(20, 0.01)
    watched.see(60, 0.01, NARROW)
    assert (watched.looks, watched.sizes.question) == (0, None)


def test_measured_sizes_must_agree() -> None:
    assert agreed_size(((0.2, 0.2), (0.2, 0.2))) is None
    assert agreed_size(((0.2, 0.2), (0.201, 0.2), (0.4, 0.4), (0.199, 0.2))) == (0.2, 0.2)
    assert agreed_size(((0.2, 0.3), (0.201, 0.299), (0.2, 0.3))) == (0.2, 0.3)
    assert agreed_size(((0.2, 0.2), (0.22, 0.22), (0.24, 0.24))) is None


def test_stretch_in_shares() -> None:
    assert stretch_of({"stretch": math.log(0.105)}) == pytest.approx(0.1)
    assert math.isnan(stretch_of({}))


def test_a_stream_goes_on_while_it_is_looked_into_and_is_not_judged_while_it_is_asked() -> None:
    release, sizes, updates = threading.Event(), PixelSizes(), list[Update]()

    def measure(frame: Frame, result: Result) -> PixelSize:
        assert release.wait(20)
        return 0.25, 0.25

    draw = np.random.default_rng(0).random((60, 80), dtype=np.float32)
    cine = Cine(Path("cine"), 10, TOLD, lambda index: draw)
    source = Replay("cine", [lambda: cine], rate_hz=200, loop=True, sizes=sizes)
    with Loop(source, lambda _: result_of(0.25, ok=False), [updates.append], sizes=sizes, measure=measure) as loop:
        assert wait_until(lambda: len(updates) > 40)
        release.set()
        assert wait_until(lambda: sizes.question is not None, 20)
        assert updates[5].assessment.light == "red"
        count = len(updates)
        assert wait_until(lambda: len(updates) > count + 5)
        last = updates[-1].assessment
        assert (last.light, last.ok) == ("amber", None)
        assert last.reason.startswith("not judged: the depth seems to have changed") or "pixels seem to" in last.reason
        assert updates[-1].asks == sizes.question.text  # type: ignore[union-attr]
        assert "watch_errors" not in loop.counters()
