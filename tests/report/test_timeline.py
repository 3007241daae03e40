"""The timeline shows frames, the verdict of each, and the frame under the cursor; what is INVALID is told as such."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from scopereg.errors import ScopeRegError
from scopereg.images import Frame, Volume, centre_pose
from scopereg.registration.result import Assessment, Result
from scopereg.registration.track import Step
from scopereg.report.timeline import INVALID, Timeline, light_of, path_picture, take_shots
from scopereg.report.words import brief, calibrations

NAN = math.nan
STATES = ["found", "followed", "followed", "carried", "lost", "unreadable", "found"]
OK = [True, True, None, False, False, None, False]
BELONGS = [True, True, None, True, False, None, False]


@pytest.fixture(scope="module")
def volume() -> Volume:
    return Volume(torch.rand(20, 30, 40, generator=torch.Generator().manual_seed(0)), 1.0)


@pytest.fixture(scope="module")
def frame() -> Frame:
    return Frame(torch.rand(30, 40, generator=torch.Generator().manual_seed(1)), 1.0)


@pytest.fixture(scope="module")
def steps(volume: Volume, frame: Frame) -> list[Step]:
    pose = centre_pose(frame, volume)
    result = Result(pose, "universal", 1.0, 0.5)
    return [
        Step(
            row, "a.mha", row, row / 10, state, 'it looks "like" <nothing>',
            None if state == "unreadable" else replace(result, ok=ok, belongs=belongs), pose,
        )
        for row, (state, ok, belongs) in enumerate(zip(STATES, OK, BELONGS, strict=True))
    ]  # fmt: skip


def test_each_frame_has_a_light_and_only_those_with_a_picture_behind_them_a_verdict(steps: list[Step]) -> None:
    assert [light_of(step) for step in steps] == ["green", "green", "amber", INVALID, INVALID, INVALID, "red"]


def test_the_band_and_its_legend_tell_the_same(steps: list[Step], frame: Frame, volume: Volume) -> None:
    shots = take_shots(steps, lambda _: frame, volume)
    figure = Timeline(steps, shots).figure()
    ET.fromstring(figure)
    said = re.findall(r"<title>(Located|Not judged|Rejected|INVALID): (\d+) frames", figure)
    assert said == [("Located", "2"), ("Not judged", "1"), ("INVALID", "3"), ("Rejected", "1")]
    for words in ("✓ Located: 2", "! Not judged: 1", "✕ Rejected: 1", "– INVALID: 3"):
        assert words in figure


def test_pictures_are_there_once_and_shown_where_the_cursor_is(steps: list[Step], frame: Frame, volume: Volume) -> None:
    shots = take_shots(steps, lambda _: frame, volume)
    assert [shot.row for shot in shots] == [0, 1, 2, 3, 4, 6]  # but the one that cannot be read
    assert [shot.cut is None for shot in shots] == [False, False, False, False, True, False]  # a lost pose is none
    timeline = Timeline(steps, shots, "one")
    figure, over = timeline.figure(), timeline.over()
    ET.fromstring(over)
    assert re.findall(r"<g id='one-(\d+)'>", figure) == ["0", "1", "2", "3", "4", "6"]
    assert re.findall(r"<use href='#one-(\d+)'", over) == ["0", "1", "2", "3", "4", "6"]
    assert "data:" not in over
    hits = re.findall(r"<g class='hit'><rect x='([\d.]+)' y='\d+' width='([\d.]+)'", over)
    for (left, width), (after, _) in pairwise(hits):
        assert float(left) + float(width) == pytest.approx(float(after), abs=0.11)  # no gap between them
    for shot, (left, width) in zip(shots, hits, strict=True):
        assert float(left) <= timeline.x(shot.time_s) <= float(left) + float(width)
    assert "<nothing>" not in figure + over


def test_long_sequences_have_as_many_pictures_as_a_page_bears(steps: list[Step], frame: Frame) -> None:
    many = [replace(steps[0], row=row, time_s=row / 10) for row in range(5000)]
    shots = take_shots(many, lambda _: frame, None)
    assert len(shots) == 30
    assert (shots[0].row, shots[-1].row) == (0, 4999)
    assert all(shot.cut is None for shot in shots)
    assert len(Timeline(many, shots).figure()) < 500_000


def test_frames_that_cannot_be_had_are_left_out(steps: list[Step], frame: Frame, volume: Volume) -> None:
    def frame_of(step: Step) -> Frame:
        if step.row < 2:
            raise ScopeRegError("damaged", where="a.mha", fix="copy it again")
        return frame

    assert [shot.row for shot in take_shots(steps, frame_of, volume)] == [2, 3, 4, 6]
    empty = Timeline(steps, [])
    assert empty.over() == ""
    ET.fromstring(empty.figure())
    ET.fromstring(Timeline([], []).figure())


def test_the_way_leads_through_what_was_placed(steps: list[Step], frame: Frame, volume: Volume) -> None:
    shots = take_shots(steps, lambda _: frame, volume)
    picture = path_picture(steps, shots, frame, volume)
    ET.fromstring(picture)
    (way,) = set(re.findall(r'<polyline points="([^"]*)"', picture))
    assert len(way.split()) == 5  # found, followed, carried; neither lost nor unreadable
    assert picture.count("<polygon") == 4 + 1  # planes of those with a verdict; the amber marker is a triangle


def test_a_time_that_is_none_is_no_place(steps: list[Step], frame: Frame) -> None:
    odd = [*steps, replace(steps[0], row=9, time_s=NAN)]
    assert [shot.row for shot in take_shots(odd, lambda _: frame, None)][-1] == 6
    ET.fromstring(Timeline(odd, []).figure())


def test_verdicts_are_told_briefly(steps: list[Step]) -> None:
    result = steps[0].result
    assert result is not None
    sure = replace(result, expected_mm=1.0, bound_mm=2.0, confidence=0.9, calibrated_on="60 worlds")
    assert brief(Assessment.of(sure)) == "Located: expected 1.0 mm, 95 % below 2.0 mm"
    wrong = replace(result, ok=False, belongs=False, expected_mm=NAN, bound_mm=NAN, reason="little of it is found")
    assert brief(Assessment.of(replace(wrong, hints=("fits better mirrored",)))) == (
        "Rejected: little of it is found; fits better mirrored"
    )
    silent = replace(wrong, ok=None, belongs=None, reason="not judged: mine has no calibration")
    assert brief(Assessment.of(silent)) == "Not judged: mine has no calibration"
    assert calibrations([sure, sure, result]) == ["verdicts are calibrated on 60 worlds"]
