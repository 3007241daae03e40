"""PixelSizes: what is known of the size of pixels in a stream. What nobody knows is asked for once, and remembered."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from scopereg.errors import ScopeRegError
from scopereg.images import Frame
from scopereg.io.stored import GIVEN, StoredFrame
from scopereg.registration.format import Format, PixelSize, Unknown, in_mm, resized, same_pixels, unknown_of
from scopereg.registration.result import WaitingError

LIMITS_MM = (0.001, 10.0)  # of a pixel that anybody may tell
_SAME_STATEMENT = 0.01  # relative difference between what a sender states and what was told
_STAYS_S = 2.0  # for which a question is open though another size came: streams may alternate
_MOST_CHOICES, _MOST_KNOWN = 4, 64
_ASPECT = 0.01  # relative difference of the sides of pictures that are the same one, resized


class Question(NamedTuple):
    """What nobody knows but a person."""

    number: int  # of questions, from 1
    size: tuple[int, int]  # of the pictures, columns and rows
    why: str  # in words
    suggestion: PixelSize | None  # what it may well be
    told: PixelSize | None  # what was told, which may hold no longer; None: nothing is used meanwhile
    choices: tuple[PixelSize, ...]  # sizes that were told before

    @property
    def text(self) -> str:
        """All of it in a line."""
        said = self.suggestion is None or self.told is not None  # a doubt names it
        guess = "" if said or self.suggestion is None else f" {in_mm(self.suggestion)} would fit."
        return f"{self.why[:1].upper()}{self.why[1:]}.{guess} How large is a pixel?"

    @property
    def facts(self) -> dict[str, Any]:
        """For a page, ready for JSON."""
        width, height = self.size
        return {
            "number": self.number,
            "size": [width, height],
            "why": self.why,
            "suggestion": None if self.suggestion is None else shortly(self.suggestion),
            "told": None if self.told is None else shortly(self.told),
            "choices": [shortly(choice) for choice in self.choices],
        }


class _Place(NamedTuple):
    """What a size of pixels is told for: pictures of a size, of which the sender states this."""

    size: tuple[int, int]
    stated: PixelSize | None

    def is_like(self, other: _Place) -> bool:
        return self.size == other.size and _agree(self.stated, other.stated)


class PixelSizes:
    """Sizes of pixels by the size of the pictures. Any thread may call.

    A size that a person told holds for pictures of the size that it was told for. A sender is believed where nobody
    told anything, or where it stated once what a person told; one that states something else is asked about.
    """

    def __init__(self, given: PixelSize | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`given` is what was told at the start, for pictures of the first size that comes without one of its own."""
        self.changed: Callable[[], None] = lambda: None  # called when a question came, went or was answered
        self._given, self._clock = given, clock
        self._given_for: tuple[int, int] | None = None
        self._trusts = False
        self._known: list[tuple[_Place, PixelSize]] = []  # the latest first
        self._latest: _Place | None = None
        self._question: tuple[Question, _Place] | None = None
        self._seen_s = -math.inf  # when a picture that the question is about came
        self._asked = 0
        self._lock = threading.RLock()

    def of(self, size: tuple[int, int], stated: PixelSize | None = None) -> PixelSize | Unknown:
        """The size of the pixels of a picture, of which its sender states this; unknown where a person is asked."""
        with self._lock:
            now_s, here = self._clock(), _Place(size, stated)
            self._latest = here
            found, asked = self._find(here), self._question
            if asked is not None and asked[1].is_like(here):
                self._seen_s = now_s
            moved_on = asked is None or now_s > self._seen_s + _STAYS_S
            if isinstance(found, Unknown) and moved_on:
                self._ask(here, found.why, self._guess(here), None)
            elif asked is not None and moved_on:
                self._close()
            return found

    def settled(self, frame: StoredFrame) -> StoredFrame:
        """A frame of a file with the size of pixels that holds for it."""
        (width, height), (x, y) = frame.size, frame.spacing_mm
        found = self.of((width, height), None if frame.facts.get("spacing_from") == GIVEN else (x, y))
        return frame if not isinstance(found, Unknown) and same_pixels(found, (x, y)) else resized(frame, found)

    @property
    def question(self) -> Question | None:
        """What a person is asked now."""
        asked = self._question
        return None if asked is None else asked[0]

    def doubt(self, size: tuple[int, int], told: PixelSize, why: str, suggestion: PixelSize | None) -> bool:
        """Ask whether what is told of these pictures still holds; whether anybody is asked that was not before."""
        with self._lock:
            here = self._latest
            found = None if here is None or here.size != size else self._find(here)
            if here is None or found is None or isinstance(found, Unknown) or not same_pixels(found, told):
                return False  # the stream has moved on
            self._ask(here, why, suggestion, told)
            return True

    def doubted(self, size: tuple[int, int]) -> Question | None:
        """The question that is open about what is told of pictures of this size."""
        question = self.question
        return question if question is not None and question.told is not None and question.size == size else None

    def tell(self, pixel_mm: PixelSize, number: int | None = None) -> Format:
        """What a person says: the answer to the question of a number, or of the pictures that come now."""
        with self._lock:
            here = self._place_of(number)
            self._known = [known for known in self._known if not known[0].is_like(here)]
            self._known = [(here, pixel_mm), *self._known[: _MOST_KNOWN - 1]]
            if self._question is not None and self._question[1].is_like(here):
                self._close()
        self.changed()
        return Format(here.size, pixel_mm)

    def keep(self, number: int | None = None) -> Format:
        """A person says that what is told still holds."""
        with self._lock:
            here, question = self._place_of(number), self.question
            told = self._find(here)
            if question is None or isinstance(told, Unknown):
                raise ScopeRegError(
                    "there is nothing to keep: the size of a pixel is not known",
                    where="pixel size",
                    fix="tell it, in mm",
                )
            self._close()
        self.changed()
        return Format(here.size, told)

    def _find(self, here: _Place) -> PixelSize | Unknown:
        for place, pixel_mm in self._known:
            if place.is_like(here):
                return pixel_mm
        if here.stated is not None:
            return self._believed(here, here.stated)
        width, height = here.size
        if self._given is None:
            return Unknown(f"the pictures, {width} x {height}, do not say it")
        self._given_for = self._given_for or here.size
        if here.size == self._given_for:
            return self._given
        first, second = self._given_for
        return Unknown(f"the pictures are {width} x {height}, and {in_mm(self._given)} was told for {first} x {second}")

    def _believed(self, here: _Place, stated: PixelSize) -> PixelSize | Unknown:
        self._trusts = self._trusts or self._given is None or _agree(stated, self._given)
        if self._trusts or self._given is None:
            return stated
        width, height = here.size
        return Unknown(f"the pictures, {width} x {height}, state {in_mm(stated)}, and {in_mm(self._given)} was told")

    def _guess(self, here: _Place) -> PixelSize | None:
        """What the sender states, or what holds if the picture was only resized."""
        if here.stated is not None:
            return here.stated
        sizes = [(place.size, pixel_mm) for place, pixel_mm in self._known]
        if self._given is not None and self._given_for is not None:
            sizes.append((self._given_for, self._given))
        for size, (x, y) in sizes:
            across, down = (before / now for before, now in zip(size, here.size, strict=True))
            if size != here.size and math.isclose(across, down, rel_tol=_ASPECT):
                return x * across, y * down
        return None

    def _ask(self, here: _Place, why: str, suggestion: PixelSize | None, told: PixelSize | None) -> None:
        self._asked += 1
        choices: list[PixelSize] = []
        for pixel_mm in [*(known for _, known in self._known), *([] if self._given is None else [self._given])]:
            if not any(same_pixels(pixel_mm, other) for other in (*choices, suggestion, told)):
                choices.append(pixel_mm)
        question = Question(self._asked, here.size, why, suggestion, told, tuple(choices[:_MOST_CHOICES]))
        self._question, self._seen_s = (question, here), self._clock()
        self.changed()

    def _close(self) -> None:
        self._question = None
        self.changed()

    def _place_of(self, number: int | None) -> _Place:
        """What the question of a number is about; without one, the pictures that come now."""
        asked = self._question
        if number is not None:
            if asked is None or asked[0].number != number:
                raise ScopeRegError(
                    "nobody asks that any more", where="pixel size", fix="look at what is on the screen now"
                )
            return asked[1]
        here = self._latest if asked is None else asked[1]
        if here is None:
            raise ScopeRegError("no picture has come yet", where="pixel size", fix="tell it when one has")
        return here


def unknown_size(frame: Frame) -> WaitingError | None:
    """What is said of a frame whose pixels nobody knows the size of."""
    why = unknown_of(frame)
    if not why:
        return None
    return WaitingError(f"the size of a pixel is not known: {why}", where="live", fix="tell how large a pixel is")


def read_pixel_mm(given: object) -> PixelSize:
    """The size of a pixel that a person wrote: one number of mm, or two for x and y."""
    text = given if isinstance(given, str) else "" if isinstance(given, bool) or given is None else str(given)
    words = re.split(r"[\s;x/]+", text.strip().lower().removesuffix("mm").strip())[:3]
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    if not (len(numbers) in (1, 2) and len(text) <= 80 and all(LIMITS_MM[0] <= n <= LIMITS_MM[1] for n in numbers)):
        comma = " with a point, not a comma" if "," in text else ""
        raise ScopeRegError(
            f"{text[:40]!r} is no size of a pixel",
            where="pixel size",
            fix=f"write one number of mm, or two for x and y, from {LIMITS_MM[0]:g} to {LIMITS_MM[1]:g}{comma}",
        )
    return numbers[0], numbers[-1]


def shortly(pixel_mm: PixelSize) -> str:
    """As a person would write it, and `read_pixel_mm` reads it."""
    return in_mm(pixel_mm).removesuffix(" mm")


def _agree(one: PixelSize | None, other: PixelSize | None) -> bool:
    if one is None or other is None:
        return one is other
    return all(math.isclose(a, b, rel_tol=_SAME_STATEMENT) for a, b in zip(one, other, strict=True))
