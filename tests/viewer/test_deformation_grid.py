"""What a rigid pose leaves, as the page shows it: a grid over the frame, and nothing where nothing is left."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from serving import small_volume

from scopereg import Frame, Pose
from scopereg.geometry.spline import PlaneSpline
from scopereg.registration.deformable.displacement import DRAWN, Deformation, Displacement
from scopereg.registration.result import Result
from scopereg.report.deformation_section import deformed_grid
from scopereg.viewer.packets import packet_of
from scopereg.viewer.page import write_page

Tab = Any  # of browsing.py
# How many numbers of the canvas over the frame are not 0.
MARKS = (
    "(() => { const c = document.querySelector('#frame-marks'); const all = c.getContext('2d')"
    ".getImageData(0, 0, c.width, c.height).data; return [...all].filter((value) => value > 0).length; })()"
)


@pytest.fixture
def result() -> Result:
    volume = small_volume()
    frame = Frame(np.random.default_rng(3).random((30, 40)), spacing_mm=0.3, origin_mm=(2, -1))
    low, high = (2.0, -1.0), (2 + 39 * 0.3, -1 + 29 * 0.3)
    spline = PlaneSpline.over(low, high, 3.0)
    displacement = Displacement(spline, np.random.default_rng(4).normal(size=(spline.knots, 3)) * 0.3)
    seen = np.random.default_rng(5).uniform(low, high, (50, 2))
    stays = Pose.identity("Image", "Image")
    deformation = Deformation(displacement, stays, 9.0, 3.0, 0.4, low, high, seen)
    pose = Pose(volume.direction, volume.centre_mm - volume.direction @ frame.centre_mm)
    return Result(pose, "hand", 1.0, 0.5, ok=True, frame=frame, volume=volume, deformation=deformation)


def header(result: Result) -> dict[str, Any]:
    assert result.frame is not None
    packet = packet_of(result.frame, result, generation=1)
    (length,) = struct.unpack("<I", packet[:4])
    told: dict[str, Any] = json.loads(packet[4 : 4 + length])
    return told


def test_a_packet_has_lines_where_points_are_displaced(result: Result) -> None:
    told, deformation = header(result)["deformation"], result.deformation
    assert deformation is not None
    assert (told["drawn"], told["max_mm"]) == (DRAWN, deformation.facts["max_mm"])
    rest, moved = (np.array(told["lines"][3][name]) for name in ("rest", "moved"))
    off = deformation.displacement.at(rest)
    assert moved == pytest.approx(np.c_[rest + DRAWN * off[:, :2], off[:, 2]], abs=0.06)
    assert "deformation" not in header(replace(result, deformation=replace(deformation, spread_mm=0.0)))
    assert "deformation" not in header(replace(result, deformation=None))


def test_the_report_draws_the_same_lines(result: Result) -> None:
    assert result.frame is not None
    assert result.deformation is not None
    drawing = ElementTree.fromstring(deformed_grid(result.frame, result.deformation))
    lines = [
        np.array([place.split(",") for place in line.attrib["points"].split()], float)
        for line in drawing.iter("polyline")
    ]
    wanted = [line.drawn(DRAWN) for line in result.deformation.grid()]
    faint = [line for line in lines if len(line) > 2]
    assert len(faint) == len(wanted)
    assert len(lines) == len(wanted) + sum(len(line) - 1 for line in wanted)
    assert lines[1] == pytest.approx(wanted[0][:2], abs=0.01)
    assert next(drawing.iter("image")).attrib["href"].startswith("data:image/png;base64,")


def test_the_page_draws_the_grid_over_the_frame_until_it_is_switched_off(
    tab: Tab, tmp_path: Path, result: Result
) -> None:
    plain = replace(result, deformation=None)
    tab.open(write_page(tmp_path / "page.html", [result, plain]).as_uri())
    tab.until(f"{MARKS} > 1000")
    assert tab.page.is_visible("#deformed")
    tab.page.click("#deformed")
    tab.until(f"{MARKS} === 0")
    tab.page.click("#deformed")
    tab.until(f"{MARKS} > 1000")
    tab.page.keyboard.press("ArrowRight")
    tab.until("scopereg.model.update.result === 1")
    tab.until(f"{MARKS} === 0")
    assert not tab.page.is_visible("#deformed")
