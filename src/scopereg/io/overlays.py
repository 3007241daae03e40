"""Overlays: what a scanner draws over and beside the picture (colour flow, marks, text, scales), found to be left out.

Colours are told from a tinted grey scale, which is one colour for each brightness. In grey pictures only what is surely
none of the tissue counts: what stands apart from the picture on black ground, lines of letters as bright as can be, and
thin bright things that stand still over a cine while the rest moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from scopereg.errors import ScopeRegError
from scopereg.images import field_of_view
from scopereg.io.components import components
from scopereg.io.grey import brightness, grey_values
from scopereg.io.letters import text
from scopereg.io.morphology import Bits, Bytes, closed, grown, opened, spanned
from scopereg.io.needles import needles

Grey = npt.NDArray[np.float32]  # 0 to 1

_COLOURED = 0.15  # between the largest and the smallest of red, green and blue: more than JPEG and analogue video add
_GREYISH = 0.06  # of a pixel that has no colour
_GREY_SHARE = 0.3  # of the pixels neither dark nor bright, from which on a picture is grey with colours in it
_TINT_BINS, _TINT_ROUNDS = 32, 12
_LEAST_PIXELS = 12  # of an overlay
_CLOSED, _GROWN = 0.012, 0.004  # of the longer side: specks within colour flow; borders that JPEG blurs
_LIT = 0.02  # brightness of what is not black ground
_MANY = 150  # parts of a picture: more are noise
_GAP = 0.01  # of the longer side: parts of a picture nearer than that are one
_ISLAND, _DRAWN = 0.03, 0.3  # largest share of the picture's area: of anything beside it, of what is surely drawn
_BAR, _BAR_FILLED, _BAR_LONG = 0.1, 0.85, 3.0  # of a bar: that share, how much of its box it fills, length to width
_HARD = 0.3  # mean step from pixel to pixel, over the spread of grey values, of what is drawn; tissue is softer
_THIN = 5  # pixels: widest stroke of a letter
_STILL, _MOVES = 4 / 255, 0.03  # change of brightness over a cine: of what is drawn, and of tissue
STILL_FRAMES = 8  # of a cine, compared to find what stands still
_ALIKE = 0.8  # overlap of two pictures side by side, laid upon each other
_BETWEEN = 0.15  # share of rows that are lit between them
_TINTED = "the picture is coloured all over: only how bright it is counts"


class Picture(NamedTuple):
    """Grey values of a picture, and which of them are tissue."""

    grey: Grey
    mask: Bits | None = None  # (H, W), true where it counts; None: everywhere
    notes: tuple[str, ...] = ()


def picture_of(pixels: npt.NDArray[Any], where: str, *, colours: bool = False, still: Bits | None = None) -> Picture:
    """Grey values of stored pixels as `grey_values` makes them, and what of them is an overlay.

    `still` are pixels that do not change over a cine (`standing_still`). Numbers other than bytes and 16-bit colours
    are no screen of a scanner: nothing is looked for.
    """
    grey = grey_values(pixels, where, colours=colours)
    if pixels.dtype.kind != "u" or min(grey.shape) < 2 * _THIN:
        return Picture(grey)
    peak = np.float32(np.iinfo(pixels.dtype).max)
    found: list[tuple[str, Bits]] = []
    notes: tuple[str, ...] = ()
    if colours and pixels.shape[-1] >= 3:
        shades = (pixels[..., :3] / peak).astype(np.float32, copy=False)
        found.append(("colour overlay", coloured(shades)))
        notes = (_TINTED,) if _is_tinted(shades) else ()
    if pixels.dtype == np.uint8:
        found.append(("text, scales or marks", burnt_in(grey)))
        drawn = np.logical_or.reduce([bits for _, bits in found])
        beside = grown(drawn, max(4, round(_CLOSED * max(grey.shape)))) if drawn.any() else drawn
        found.append(("what looks like a needle", needles(np.where(beside, np.uint8(0), _bytes(grey)))))
        if still is not None:
            found.append(("marks that stand still", still))
    return _masked(grey, [(name, bits) for name, bits in found if bits.any()], notes)


def _masked(grey: Grey, found: Sequence[tuple[str, Bits]], notes: tuple[str, ...]) -> Picture:
    if not found:
        return Picture(grey, notes=notes)
    mask = ~np.logical_or.reduce([bits for _, bits in found])
    field = field_of_view(torch.from_numpy(grey)).numpy()
    lit = max(int(field.sum()), 1)
    shares = [(name, (bits & field).sum() / lit) for name, bits in found]
    told = [f"{name} cover{'s' * (not name.endswith('s'))} {percent(share)}, left out" for name, share in shares]
    return Picture(grey, mask, (*notes, *told))


def percent(share: float) -> str:
    """A share in words, never 0%."""
    return f"{share:.0%}" if share >= 0.01 else "less than 1%"


def coloured(colours: npt.NDArray[np.float32]) -> Bits:
    """Where a picture (H, W, 3) in [0, 1] has colours of its own, with the gaps within them and their borders."""
    colours = colours.astype(np.float32, copy=False)
    none = np.zeros(colours.shape[:2], bool)
    if int((_spread(colours) > _COLOURED).sum()) < _LEAST_PIXELS:
        return none
    light = brightness(colours, "coloured")
    chroma = colours - light[..., None]
    limit = _COLOURED
    if (tint := _tint(chroma, light)) is not None:
        chroma = chroma - tint[_bin(light)]
        limit += 0.5 * float(_spread(tint).max())  # JPEG keeps colours at half of the resolution
    strong = _spread(chroma) > limit
    strong = _in_company(strong)
    if int(strong.sum()) < _LEAST_PIXELS:
        return none
    longer = max(strong.shape)
    return grown(closed(strong, max(2, round(_CLOSED * longer))), max(2, round(_GROWN * longer)))


def _is_tinted(colours: npt.NDArray[np.float32]) -> bool:
    """Whether a picture (H, W, 3) in [0, 1] has colours all over, more than analogue video adds."""
    spread, light = _spread(colours), brightness(colours, "tinted")
    middle = (light > 0.1) & (light < 0.85)
    return bool(middle.any()) and float((spread[middle] > _COLOURED).mean()) > 1 - _GREY_SHARE


def _tint(chroma: npt.NDArray[np.float32], light: Grey) -> npt.NDArray[np.float32] | None:
    """The colour of each brightness (bins, 3) of a picture that is tinted all over; None where most of it is grey."""
    middle = (light > 0.1) & (light < 0.85)
    spread = _spread(chroma)
    if not middle.any() or float((spread[middle] < _GREYISH).mean()) >= _GREY_SHARE:
        return None
    bins = _bin(light)
    held = [row for row in range(_TINT_BINS) if np.count_nonzero(bins == row) >= _LEAST_PIXELS]
    medians = np.stack([np.median(chroma[bins == row], axis=0) for row in held])
    # A smooth curve: colours of an overlay make up most of some bins, and must not bend it.
    powers = np.vander((np.arange(_TINT_BINS) + 0.5) / _TINT_BINS, 4)
    weights = np.ones(len(held))
    for _ in range(_TINT_ROUNDS):
        curve, *_ = np.linalg.lstsq(powers[held] * weights[:, None], medians * weights[:, None], rcond=None)
        off = np.abs(medians - powers[held] @ curve).max(1)
        weights = 1 / np.sqrt(np.maximum(off, 0.01))
    tint: npt.NDArray[np.float32] = (powers @ curve).astype(np.float32)
    return tint


def _bin(light: Grey) -> npt.NDArray[np.int64]:
    return np.clip((light * _TINT_BINS).astype(np.int64), 0, _TINT_BINS - 1)


def _bytes(grey: Grey) -> Bytes:
    return np.rint(255 * grey).astype(np.uint8)


def burnt_in(grey: Grey) -> Bits:
    """What is drawn into a grey picture (H, W) in [0, 1]: what stands beside it on black ground, and lines of text."""
    return _beside(grey) | text(_bytes(grey))


def _beside(grey: Grey) -> Bits:
    """What stands apart from the picture on black ground: small, or a bar, or as hard as only drawn things are."""
    none = np.zeros(grey.shape, bool)
    for level in (_LIT, 3 * _LIT):  # noise of analogue video lies on the ground
        lit = grey > level
        labels, parts = components(closed(lit, max(1, round(_GAP * max(grey.shape) / 2))))
        if len(parts) <= _MANY:
            break
    if not 2 <= len(parts) <= _MANY:
        return none
    largest = max(range(len(parts)), key=lambda row: parts[row].area)
    main = labels == largest + 1
    if parts[largest].area < 0.2 * lit.sum():  # no picture that anything could stand beside
        return none
    reach, hard = spanned(main), max(_HARD, 2 * _hardness(grey, main))
    for row, part in enumerate(parts):
        own = labels == row + 1
        share = part.area / parts[largest].area
        bar = share <= _BAR and part.filled >= _BAR_FILLED and part.elongation >= _BAR_LONG
        drawn = share <= _ISLAND or bar or (share <= _DRAWN and _hardness(grey, own) >= hard)
        if row != largest and part.area >= _LEAST_PIXELS and drawn and not (own & reach).any():
            none |= own
    return grown(none, 1) & ~main if none.any() else none


def _hardness(grey: Grey, part: Bits) -> float:
    """How much grey values change from pixel to pixel of a part, beside how much they differ at all."""
    values = grey[part]
    steps = np.abs(np.diff(grey, axis=1))[part[:, 1:] & part[:, :-1]]
    return float(steps.mean() / max(float(values.std()), 1 / 255)) if len(steps) else 0.0


def standing_still(frames: Sequence[Grey]) -> Bits | None:
    """Thin bright things that stay as they are over frames (H, W) while the picture moves; None where it rests."""
    if len(frames) < STILL_FRAMES:
        return None
    stack = np.stack(frames)
    change, least = np.ptp(stack, axis=0), stack.min(0)
    lit = stack.max(0) > 0.1
    if not lit.any() or float(np.median(change[lit])) < _MOVES:
        return None
    still = (change <= _STILL) & (least > 0.25)
    still &= ~opened(still, _THIN)
    still = _in_company(still)
    return grown(still, 2) if int(still.sum()) >= _LEAST_PIXELS else None


class Stillness:
    """What stands still over a cine: found when it is first asked for, by some frames from all over it."""

    def __init__(
        self, count: int, decode: Callable[[int], npt.NDArray[Any]], where: str, *, colours: bool = False
    ) -> None:
        """`decode` gives the stored pixels of a frame of `count`; fewer than `STILL_FRAMES` tell nothing."""
        self.count, self.decode, self.where, self.colours = count, decode, where, colours

    @cached_property
    def bits(self) -> Bits | None:
        if self.count < STILL_FRAMES:
            return None
        rows = np.linspace(0, self.count - 1, STILL_FRAMES).round().astype(int)
        try:
            frames = [self.decode(int(row)) for row in rows]
        except ScopeRegError:  # told when that frame is asked for
            return None
        if any(frame.dtype != np.uint8 for frame in frames):
            return None
        return standing_still([grey_values(frame, self.where, colours=self.colours) for frame in frames])


def check_single(picture: Picture, where: str) -> None:
    """An error for two pictures side by side on one screen, with the columns of each."""
    grey = picture.grey if picture.mask is None else picture.grey * picture.mask
    height, width = grey.shape
    if width < 1.5 * height:
        return
    lit = grey > _LIT
    half = width // 2
    one, two = lit[:, :half], lit[:, width - half :]
    rows = one.any(1) & two.any(1)
    band = max(1, round(0.01 * width))
    between = lit[:, half - band : half + band].mean(1)[rows]
    if not rows.any() or float((between > 0.5).mean()) > _BETWEEN or min(one.mean(), two.mean()) < 0.1:
        return
    solid = [closed(part, max(2, round(0.01 * width))) for part in (one, two)]
    if _overlap(*solid) < _ALIKE:
        return
    raise ScopeRegError(
        f"it shows two pictures side by side: columns 0 to {half - 1} and {width - half} to {width - 1}",
        where=where,
        fix=f"crop the file to one of them, such as the {half} columns on the left",
    )


def _overlap(one: Bits, two: Bits) -> float:
    """Shared over joint area of two shapes, shifted against each other by some columns at most."""
    best = 0.0
    for shift in range(-max(one.shape[1] // 10, 1), max(one.shape[1] // 10, 1) + 1, max(one.shape[1] // 100, 1)):
        moved = np.roll(two, shift, 1)
        best = max(best, float((one & moved).sum() / max((one | moved).sum(), 1)))
    return best


def _spread(colours: npt.NDArray[np.float32]) -> Grey:
    """Between the largest and the smallest of red, green and blue (..., 3)."""
    red, green, blue = (colours[..., channel] for channel in range(3))  # along the last axis NumPy takes its time
    spread: Grey = np.maximum(np.maximum(red, green), blue) - np.minimum(np.minimum(red, green), blue)
    return spread


def _in_company(bits: Bits) -> Bits:
    """True pixels with two true neighbours at least: lines count, single pixels do not."""
    count = sum(part.astype(np.uint8) for part in _shifted(bits, 1, 0))
    around = sum(part for part in _shifted(np.asarray(count), 1, 1))
    return bits & (np.asarray(around) >= 3)


def _shifted(image: npt.NDArray[Any], radius: int, axis: int) -> list[npt.NDArray[Any]]:
    """An image and its shifts by up to a radius both ways along an axis; 0 comes in from outside."""
    length = image.shape[axis]
    wide = np.pad(image, [(radius, radius) if own == axis else (0, 0) for own in (0, 1)])
    return [wide.take(range(first, first + length), axis) for first in range(2 * radius + 1)]
