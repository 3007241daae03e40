"""What is known of the size of pixels: whom to believe, what is asked, once, and that nothing is used in doubt."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from peers import all_of

from scopereg import Frame, Pose
from scopereg.errors import ScopeRegError
from scopereg.io import read_cine
from scopereg.io.cine import Cine
from scopereg.live.loop import Loop, Update
from scopereg.live.messages import frame_of, image_message, read_header, read_message
from scopereg.live.pixel_sizes import PixelSizes, Question, read_pixel_mm, shortly
from scopereg.live.publish import messages_of
from scopereg.live.recorder import Recorder
from scopereg.live.replay import Replay
from scopereg.registration.format import PixelSize, Unknown
from scopereg.registration.result import Result

SMALL, LARGE = (640, 480), (800, 600)
FINE, COARSE = (0.15, 0.15), (0.2, 0.2)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def asked(sizes: PixelSizes) -> Question:
    assert sizes.question is not None
    return sizes.question


def why(found: PixelSize | Unknown) -> str:
    assert isinstance(found, Unknown)
    return found.why


def test_a_sender_is_believed_where_nobody_told_anything() -> None:
    sizes = PixelSizes()
    assert [sizes.of(SMALL, FINE), sizes.of(SMALL, COARSE), sizes.of(LARGE, FINE)] == [FINE, COARSE, FINE]
    assert sizes.question is None


def test_what_nobody_states_is_asked_once_and_remembered(clock: Clock) -> None:
    sizes = PixelSizes(clock=clock)
    changes: list[int] = []
    sizes.changed = lambda: changes.append(1)
    assert why(sizes.of(SMALL)) == "the pictures, 640 x 480, do not say it"
    first = asked(sizes)
    clock.now_s = 60.0
    sizes.of(SMALL)
    assert asked(sizes) is first
    assert (first.number, first.size, first.suggestion, first.told, first.choices) == (1, SMALL, None, None, ())
    assert first.text == "The pictures, 640 x 480, do not say it. How large is a pixel?"
    assert str(sizes.tell(FINE, first.number)) == "640 x 480 of 0.15 mm"
    assert sizes.question is None
    assert sizes.of(SMALL) == FINE
    assert len(changes) == 3  # asked, closed, told


def test_what_was_told_holds_for_pictures_of_its_size_alone(clock: Clock) -> None:
    sizes = PixelSizes(FINE, clock)
    assert sizes.of(SMALL) == FINE
    assert why(sizes.of(LARGE)) == "the pictures are 800 x 600, and 0.15 mm was told for 640 x 480"
    question = asked(sizes)
    assert question.suggestion == pytest.approx((0.12, 0.12))  # if the picture was only resized
    assert question.choices == (FINE,)
    sizes.tell(COARSE)
    assert (sizes.of(LARGE), sizes.of(SMALL)) == (COARSE, FINE)
    clock.now_s = 10.0
    sizes.of((100, 480))
    assert asked(sizes).suggestion is None
    assert asked(sizes).choices == (COARSE, FINE)  # what was told before, to choose from
    assert asked(sizes).number == 2


def test_a_sender_that_says_something_else_than_was_told_is_asked_about() -> None:
    sizes = PixelSizes(FINE)
    assert why(sizes.of(SMALL, COARSE)) == "the pictures, 640 x 480, state 0.2 mm, and 0.15 mm was told"
    assert asked(sizes).suggestion == COARSE
    sizes.tell(COARSE)
    assert sizes.of(SMALL, COARSE) == COARSE


def test_a_sender_that_was_right_once_is_believed_at_another_depth() -> None:
    sizes = PixelSizes(FINE)
    assert sizes.of(SMALL, (0.1501, 0.1501)) == (0.1501, 0.1501)
    assert sizes.of(SMALL, COARSE) == COARSE
    assert sizes.question is None


def test_an_answer_holds_against_the_statement_that_it_was_given_for() -> None:
    """A frame grabber states the same size at every depth; one that begins to state another one is heard again."""
    sizes = PixelSizes()
    assert sizes.of(SMALL, FINE) == FINE
    sizes.tell(COARSE)
    assert sizes.of(SMALL, FINE) == COARSE
    assert sizes.of(SMALL, (0.3, 0.3)) == (0.3, 0.3)
    assert sizes.of(SMALL, FINE) == COARSE


def test_a_question_goes_when_the_stream_has_moved_on(clock: Clock) -> None:
    sizes = PixelSizes(FINE, clock)
    sizes.of(SMALL)
    for _ in range(50):  # pictures of both sizes in turn, as of two views
        clock.now_s += 0.1
        sizes.of(LARGE)
        sizes.of(SMALL)
    assert asked(sizes).number == 1
    clock.now_s += 3
    sizes.of(SMALL)
    assert sizes.question is None
    with pytest.raises(ScopeRegError, match="nobody asks that any more"):
        sizes.tell(COARSE, 1)


def test_doubts_are_asked_and_may_be_turned_down() -> None:
    sizes = PixelSizes()
    sizes.of(SMALL, FINE)
    assert not sizes.doubt(LARGE, FINE, "the depth seems to have changed", COARSE)  # it has moved on
    assert sizes.doubt(SMALL, FINE, "the depth seems to have changed", COARSE)
    assert sizes.doubted(SMALL) is sizes.question
    assert sizes.doubted(LARGE) is None
    assert asked(sizes).text == "The depth seems to have changed. How large is a pixel?"
    assert sizes.of(SMALL, FINE) == FINE  # nothing is switched by itself
    assert sizes.keep(asked(sizes).number).pixel_mm == FINE
    assert sizes.question is None
    with pytest.raises(ScopeRegError, match="nothing to keep"):
        sizes.keep()


def test_a_size_can_be_told_without_being_asked() -> None:
    sizes = PixelSizes()
    with pytest.raises(ScopeRegError, match="no picture has come yet"):
        sizes.tell(FINE)
    sizes.of(SMALL, FINE)
    sizes.tell(COARSE)
    assert sizes.of(SMALL, FINE) == COARSE


@pytest.mark.parametrize(
    ("words", "pixel_mm"),
    [("0.2", (0.2, 0.2)), (" 0.2 mm ", (0.2, 0.2)), ("0.2 x 0.25", (0.2, 0.25)), (0.3, (0.3, 0.3))],
)
def test_sizes_that_people_write(words: object, pixel_mm: PixelSize) -> None:
    assert read_pixel_mm(words) == pixel_mm
    assert read_pixel_mm(shortly(pixel_mm)) == pixel_mm


@pytest.mark.parametrize(
    "words", ["", "0,2", "two", "0", "-1", "nan", "inf", "1e9", "1 2 3", None, True, ["1"], "9" * 99]
)
def test_what_is_no_size_is_refused(words: object) -> None:
    with pytest.raises(ScopeRegError, match="no size of a pixel") as caught:
        read_pixel_mm(words)
    assert ("comma" in caught.value.fix) == (words == "0,2")


def received(frame: Frame, pose: Pose | None = None) -> object:
    packed = image_message(frame, pose)
    return read_message(read_header(packed), packed[58:])


def test_images_of_a_scanner_ask_where_they_state_nothing(frame: Frame) -> None:
    sizes = PixelSizes()
    unstated, stated = Frame(frame.array, 1.0, (0, 0)), Frame(frame.array, (0.5, 0.8), (0, 0))
    unknown = frame_of(received(unstated), sizing=sizes.of)  # type: ignore[arg-type]
    assert unknown.facts["size_unknown"] == "the pictures, 9 x 6, do not say it"
    assert unknown.pose is None
    sizes.tell(COARSE)
    known = frame_of(received(unstated), sizing=sizes.of)  # type: ignore[arg-type]
    assert known.spacing_mm == COARSE
    assert "size_unknown" not in known.facts
    placed = frame_of(received(stated), sizing=sizes.of)  # type: ignore[arg-type]
    assert placed.spacing_mm == pytest.approx((0.5, 0.8))
    assert placed.pose is not None


def mixed(sizes: PixelSizes | None, *, loop: bool = False) -> Replay:
    """Two pictures of 6 x 4, two of 9 x 6, with what was told for the first size; as a folder of pictures has them."""
    small, large = (
        Cine(
            Path("a.png"),
            2,
            FINE,
            lambda index, shape=shape: np.full(shape, 0.5, np.float32),
            facts={"spacing_from": "given"},
        )
        for shape in ((4, 6), (6, 9))
    )
    return Replay("mixed", [lambda: small, lambda: large], rate_hz=500, sizes=sizes, loop=loop)


def test_pictures_of_another_size_are_shown_and_not_located(tmp_path: Path) -> None:
    """None is located with a size that was told for others; what was recorded of them states no size either."""
    sizes, updates, recorder = PixelSizes(FINE), [], Recorder(tmp_path / "a.igs.mha")

    def locate(frame: Frame) -> Result:
        assert frame.size == (6, 4)
        return Result(Pose.identity(), "test", 1.0, 0.5)

    for arrival in all_of(mixed(None)):
        told = sizes.settled(arrival.frame)  # type: ignore[arg-type]
        loop = Loop(mixed(sizes), locate, [updates.append, recorder], sizes=sizes)
        loop._finish(arrival._replace(frame=told), 1, loop._locate(arrival._replace(frame=told)))
    waits: Update = updates[-1]
    assert [update.result is not None for update in updates] == [True, True, False, False]
    assert waits.assessment.reason.startswith("not judged: the size of a pixel is not known: the pictures are 9 x 6")
    assert waits.format.pixel_mm is None
    assert waits.asks.endswith("How large is a pixel?")
    said = json.loads(messages_of(waits)[-1][62:].decode())
    assert (said["pixel_mm"], said["asks"]) == (None, waits.asks)
    first, second = recorder.finish()
    assert read_cine(first).spacing_mm == pytest.approx(FINE)
    with pytest.raises(ScopeRegError, match="pixel"):
        read_cine(second)
    assert len(read_cine(second, spacing_mm=0.3)) == 2


def test_a_replay_goes_on_with_what_was_answered() -> None:
    sizes = PixelSizes(FINE)
    updates: list[Update] = []
    with Loop(
        mixed(sizes, loop=True), lambda _: Result(Pose.identity(), "test", 1.0, 0.5), [updates.append], sizes=sizes
    ) as loop:
        while sizes.question is None:
            loop.wait(0.01)
        sizes.tell(COARSE, sizes.question.number)
        before = len(updates)
        while len(updates) < before + 20:
            loop.wait(0.01)
    assert {update.format for update in updates[before + 4 :]} == {((6, 4), FINE), ((9, 6), COARSE)}
    assert all(update.result is not None for update in updates[before + 4 :])
