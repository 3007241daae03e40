"""What changes in a stream of pictures: told in words, once, and not all the time."""

from __future__ import annotations

import numpy as np
import pytest

from scopereg import Frame
from scopereg.io.stored import StoredFrame
from scopereg.registration.format import Changes, Format, Unknown, resized, unknown_of

DEEP, SHALLOW = Format((640, 480), (0.2, 0.2)), Format((640, 480), (0.15, 0.15))


def test_a_format_in_words() -> None:
    frame = Frame(np.zeros((4, 6)), (0.5, 0.8))
    assert Format.of(frame) == ((6, 4), (0.5, 0.8))
    assert str(Format.of(frame)) == "6 x 4 of 0.5 x 0.8 mm"
    assert str(DEEP) == "640 x 480 of 0.2 mm"
    stored = StoredFrame(frame.array, frame.spacing_mm, (1.0, 2.0))
    unknown = resized(stored, Unknown("nobody said it"))
    assert str(Format.of(unknown)) == "6 x 4 of pixels of unknown size"
    assert (unknown_of(unknown), unknown_of(stored), unknown_of(frame)) == ("nobody said it", "", "")
    told = resized(unknown, (0.25, 0.4))
    assert str(Format.of(told)) == "6 x 4 of 0.25 x 0.4 mm"
    assert told.origin_mm == (0.5, 1.0)  # of a crop, whose place is so many pixels


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (SHALLOW, DEEP, "depth changed: 640 x 480 of 0.2 mm, before 0.15 mm"),
        (DEEP, Format((800, 600), (0.2, 0.2)), "size of the picture changed: 800 x 600 of 0.2 mm, before 640 x 480 of"),
        (DEEP, Format((800, 600), (0.1, 0.1)), "size and depth of the picture changed: 800 x 600 of 0.1 mm, before"),
        (DEEP, Format((800, 600), None), "changed: 800 x 600 of pixels of unknown size, before 640 x 480 of 0.2 mm"),
    ],
)
def test_changes_are_told_once(before: Format, now: Format, words: str) -> None:
    changes = Changes()
    told = [changes.tell(one, time_s) for time_s, one in enumerate([before, before, now, now, now])]
    assert [bool(text) for text in told] == [False, False, True, False, False]
    assert words in told[2]
    assert changes.count == 1


def test_what_a_person_has_just_said_is_not_told_again() -> None:
    changes, unknown = Changes(), Format((640, 480), None)
    assert changes.tell(unknown, 0.0) == changes.tell(DEEP, 1.0) == ""
    assert changes.tell(SHALLOW, 2.0).startswith("depth changed")


def test_rounding_is_no_change() -> None:
    changes = Changes()
    assert [changes.tell(Format((6, 4), (0.2 + 1e-5 * n, 0.2)), n) for n in range(5)] == [""] * 5
    assert changes.count == 0


def test_a_stream_that_changes_all_the_time_is_no_flood() -> None:
    """A hundred changes in four seconds are told now and then, and what it settles on is told in the end."""
    changes = Changes()
    told = [changes.tell((DEEP, SHALLOW)[n % 2], 0.04 * n) for n in range(100)]
    assert 1 <= sum(map(bool, told)) <= 4
    assert changes.count == 99
    told = [changes.tell(Format((320, 240), (0.2, 0.2)), 4.0 + 0.5 * n) for n in range(10)]
    (word,) = filter(None, told)
    assert word.startswith("size")
    assert "320 x 240" in word
