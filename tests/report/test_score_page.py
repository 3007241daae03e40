"""The page of scores: what it counts, what it warns of, what it cannot compare; words of others are no markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest

from scopereg.evaluation.score.posed import Verdict
from scopereg.evaluation.score.scores import FrameScore, Scores
from scopereg.evaluation.score.states import NO_POSE, NOT_LOCATED, SCORED
from scopereg.report.score_page import make_page

ROWS = tuple(
    FrameScore("scan.dcm", n, SCORED, error, error / 2, 1.0, 1.5, Verdict(error < 2, 0.5, error * 1.1, error * 2))
    for n, error in enumerate((0.5, 1.0, 1.5, 4.0, 9.0))
)
LOST = FrameScore("scan.dcm", 5, NOT_LOCATED, reason="it is <b>empty</b>")


def page(*rows: FrameScore, hints: tuple[str, ...] = ()) -> str:
    return make_page(Scores("mine", "truth.npz", rows), hints, {"command": "x"}).html()


def test_cards_and_tables_hold_the_numbers() -> None:
    text = page(*ROWS, LOST, FrameScore("scan.dcm", 6, NO_POSE))
    cards = dict(re.findall(r"<b>([^<]*)</b><span>([^<]*)</span>", text))
    assert {value: key for key, value in cards.items()} == {
        "within 3 mm": "3 of 6",
        "median mTRE": "1.50 mm",
        "mean mTRE": "3.20 mm",
        "95 % are below": "8.00 mm",
        "largest": "9.00 mm",
        "called ok, and wrong": "0 of 3",
    }
    assert text.count("<figure>") == 4  # shares, boxes, one after the other, expected
    assert "<td>scan.dcm frame 4</td><td>9.00</td><td>4.50</td>" in text
    assert "it is &lt;b&gt;empty" in text
    assert "no pose" in text
    assert "count otherwise" not in text
    assert "<script" not in text


def test_a_hint_stands_out() -> None:
    text = unescape(page(*ROWS, hints=("the median error would be 0.1 mm <if> one side counted in RAS",)))
    assert "<div class='alert'>" in text
    assert "The median error would be 0.1 mm <if> one side" in text


@pytest.mark.parametrize("count", [1, 2])
def test_few_frames_without_verdicts_make_a_page(count: int) -> None:
    bare = [replace(row, verdict=Verdict()) for row in ROWS[:count]]
    text = page(*bare)
    assert text.count("<figure>") == 3
    assert "verdict" not in text


def test_landmarks_are_called_by_frame_and_name() -> None:
    rows = [FrameScore(f"f{n}.png", 0, SCORED, 1.0 + n, point=f"p{n}", verdict=Verdict()) for n in range(3)]
    text = page(*rows)
    assert "Worst landmarks" in text
    assert "<td>f2.png: p2</td><td>3.00</td>" in text
    assert "mTRE" not in text


def test_perfect_poses_make_a_page() -> None:
    assert "0.00 mm" in page(*(replace(row, error_mm=0.0) for row in ROWS))
