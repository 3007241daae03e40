"""The card of a notebook tells the verdict in the words of the assessment, and stays small whatever the images are."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, centre_pose
from scopereg.registration.result import Assessment, Result
from scopereg.report.card import LARGEST, card_html
from scopereg.report.frame_pictures import cut_at

NAN = math.nan


@pytest.fixture(scope="module")
def volume() -> Volume:
    noise = torch.rand(90, 100, 110, generator=torch.Generator().manual_seed(0))
    turn = Pose.from_euler_deg([10, 20, 30], [0, 0, 0]).rotation
    return Volume(noise, (0.5, 0.6, 0.7), (5.0, -7.0, 11.0), turn)


def located(volume: Volume, rows: int = 300, columns: int = 400, **changes: object) -> Result:
    frame = Frame(torch.rand(rows, columns, generator=torch.Generator().manual_seed(1)), 0.2)
    found = Result(centre_pose(frame, volume), "universal", 12.0, 0.8, frame=frame, volume=volume)
    judged = replace(
        found, ok=True, belongs=True, expected_mm=1.2, bound_mm=2.5, confidence=0.93, calibrated_on="60 worlds"
    )
    return replace(judged, **changes)  # type: ignore[arg-type]


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.tags, self.links = list[str](), set[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize(("rows", "columns"), [(300, 400), (2000, 1), (1, 1500), (1200, 1000), (3, 2)])
def test_a_card_is_small_whole_and_needs_nothing_else(volume: Volume, rows: int, columns: int) -> None:
    long = {"notes": tuple("n" * 900 for _ in range(90)), "hints": tuple("h" * 900 for _ in range(90))}
    card = located(volume, rows, columns, ok=False, reason="r" * 5000, **long)._repr_html_()
    assert len(card.encode()) < LARGEST
    found = Tags(card)
    assert found.open == []
    assert not found.tags & {"script", "style", "link", "iframe", "form"}
    assert all(link.startswith("data:image/png;base64,") for link in found.links)
    assert len(found.links) == 3 + 1 + 3  # pictures, the plane, the walls
    assert "id=" not in card  # several cards stand in one notebook


@pytest.mark.parametrize(
    ("changes", "sign"),
    [
        ({}, "✓"),
        ({"ok": False, "reason": "an error above 3 mm is likely", "hints": ("fits better <b>mirrored</b>",)}, "!"),
        ({"ok": False, "belongs": False, "expected_mm": NAN, "bound_mm": NAN, "reason": "another volume"}, "✕"),
        ({"ok": None, "belongs": None, "expected_mm": NAN, "bound_mm": NAN, "confidence": NAN}, "!"),
    ],
)
def test_the_verdict_is_told_as_everywhere(volume: Volume, changes: dict[str, object], sign: str) -> None:
    result = located(volume, **changes)
    told, card = Assessment.of(result), card_html(result)
    said = " ".join(unescape(re.sub("<[^>]*>", " ", card.replace("<b>", ""))).split())
    assert f"{sign}\u2002{told.word}" in unescape(card)
    for words in (told.reason.removeprefix("not judged: "), told.numbers, *told.hints):
        assert " ".join(words.split()) in said
    assert "<b>" not in card
    assert "nan" not in said.lower()


def test_without_images_the_pose_and_the_verdict_are_left(volume: Volume) -> None:
    card = card_html(located(volume).without_images())
    assert "<img" not in card
    assert "<svg" not in card
    assert "Located" in card
    assert f"{located(volume).pose.translation_mm[0]:+.2f} mm" in card


def test_a_cut_has_the_values_of_the_volume_where_the_frame_lies() -> None:
    z, y, x = torch.meshgrid(*(torch.arange(float(n)) for n in (20, 30, 40)), indexing="ij")
    turn = Pose.from_euler_deg([10, 20, 30], [0, 0, 0]).rotation
    volume = Volume((0.01 * x + 0.004 * y - 0.02 * z), (0.5, 0.7, 0.9), (3.0, 2.0, 1.0), turn)
    frame = Frame(torch.zeros(7, 9), (0.4, 0.3), (-1.0, -0.8))
    pose = Pose(turn @ Pose.from_euler_deg([5, -8, 12], [0, 0, 0]).rotation, volume.centre_mm)
    points = pose.apply([[column * 0.4 - 1.0, row * 0.3 - 0.8, 0] for row in range(7) for column in range(9)])
    index = (points - np.asarray(volume.origin_mm)) @ turn / volume.spacing_mm
    wanted = index @ [0.01, 0.004, -0.02]
    assert cut_at(volume, frame, pose).flatten().numpy() == pytest.approx(wanted, abs=1e-5)
