"""Card: a result as a small piece of HTML for notebooks: verdict, pose, the frame beside its cut and in the volume.

A notebook has colours of its own, so that the card takes them over, and holds its pictures and styles itself: no
script, no link, at most `LARGEST` bytes whatever the images are.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from scopereg.io.pictures import Pixels, data_uri
from scopereg.registration.result import Assessment, Result
from scopereg.report.frame_pictures import cut_at, pictures_of, small
from scopereg.report.palette import LIGHTS, SIGNS
from scopereg.report.volume_picture import VolumePicture, plane_of

LARGEST = 200_000  # bytes
_PIXELS, _FEWER = 36_000, 9_000  # of a grey picture, and of the coloured one and that in the volume: see LARGEST
_LINES, _LETTERS = 12, 300  # of words that others wrote
_DRAWN = 260
_PILLS = {"green": "#98f3bd", "amber": "#fdac3c", "red": "#ff9b85"}  # behind black words, on any page
_COLOURS = (
    "--ink:currentColor;--dim:#8b95a1;--line:#8b95a166;--good:#3fae7c;--warn:#d08a1c;--bad:#e05f42;--panel:transparent"
)
_BOX = (
    f"{_COLOURS};max-width:820px;box-sizing:border-box;padding:14px 16px;border:1px solid var(--line);"
    "border-radius:10px;font:13px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif"
)


def card_html(result: Result) -> str:
    """The card of a result; one that does not know its frame and volume has no pictures."""
    told = Assessment.of(result)
    parts = [_head(told), *_hints(told), _figures(result, told), _pose(result), _foot(result)]
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def _head(told: Assessment) -> str:
    pill = f"background:{_PILLS[told.light]};color:#111;border-radius:99px;padding:2px 12px;font-weight:650"
    words = f"<span style='{pill}'>{SIGNS[told.light]}&ensp;{escape(told.word)}</span>"
    numbers = f"<div style='opacity:.75'>{_text(told.numbers)}</div>" if told.numbers else ""
    reason = told.reason.removeprefix(f"{told.word.lower()}: ")
    return f"<div>{words}&ensp;{_text(reason)}</div>{numbers}"


def _hints(told: Assessment) -> list[str]:
    lines = "".join(f"<li>{_text(hint)}</li>" for hint in told.hints[:_LINES])
    return [f"<ul style='margin:4px 0 0;padding-left:20px'>{lines}</ul>"] if lines else []


def _figures(result: Result, told: Assessment) -> str:
    """The frame, its cut, their difference, and where it lies."""
    frame, volume = result.frame, result.volume
    if frame is None or volume is None:
        return ""
    large, tiny = (small(frame, pixels=pixels) for pixels in (_PIXELS, _FEWER))
    grey, cut, _ = pictures_of(large, cut_at(volume, large, result.pose))
    pixels, _, difference = pictures_of(tiny, cut_at(volume, tiny, result.pose))
    plane = plane_of(frame, result.pose, pixels, LIGHTS[told.light])
    height = round(_DRAWN * min(max(large.shape[0] / large.shape[1], 0.6), 1.5))
    scene = VolumePicture(volume, width=_DRAWN, height=height).picture([plane], said="the frame in the volume")
    shown = [
        _figure("frame", _image(grey)),
        _figure("volume at the pose", _image(cut)),
        _figure("difference", _image(difference)),
        _figure("where it lies", scene),
    ]
    return f"<div style='display:flex;flex-wrap:wrap;gap:10px;margin:12px 0 8px'>{''.join(shown)}</div>"


def _image(pixels: Pixels) -> str:
    return f"<img src='{data_uri(pixels)}' alt='' style='width:100%;border-radius:6px;background:#000;display:block'>"


def _figure(caption: str, picture: str) -> str:
    words = f"<div style='opacity:.75;font-size:12px'>{caption}</div>"
    return f"<div style='flex:1 1 130px;max-width:190px;min-width:110px'>{picture}{words}</div>"


def _pose(result: Result) -> str:
    """Six numbers in two rows, in columns."""
    pose = result.pose
    rows = [
        ("x, y, z", " mm", pose.translation_mm.tolist()),
        ("rx, ry, rz", "°", pose.euler_deg.tolist()),
    ]
    cell = "text-align:right;white-space:nowrap;padding:1px 0 1px 18px;border:0;background:none"
    lines = [
        f"<tr style='background:none'><td style='{cell};text-align:left;padding-left:0;opacity:.75'>{name}</td>"
        + "".join(f"<td style='{cell}'>{number:+.2f}{unit}</td>" for number in numbers)
        + "</tr>"
        for name, unit, numbers in rows
    ]
    look = "border-collapse:collapse;font-variant-numeric:tabular-nums;margin:6px 0;font-size:13px;border:0"
    return f"<table style='{look}'>{''.join(lines)}</table>"


def _foot(result: Result) -> str:
    facts: Sequence[str] = (
        f"{result.pose.name}, LPS, R = Rz Ry Rx",
        result.method,
        f"similarity {result.similarity:.2f}",
        f"{result.time_ms:.0f} ms",
        "not for clinical use",
    )
    notes = "".join(f"<div>{_text(note)}</div>" for note in result.notes[:_LINES])
    return f"<div style='opacity:.75;font-size:12px'>{_text(' · '.join(facts))}{notes}</div>"


def _text(words: str) -> str:
    return escape(words if len(words) <= _LETTERS else words[: _LETTERS - 1] + "…")
