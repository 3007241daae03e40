"""The drawing of a volume shows frames where they lie, all of one volume from the same side."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch

from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, centre_pose
from scopereg.io.pictures import grey_pixels
from scopereg.report.volume_picture import Plane, Stop, VolumePicture, plane_of


@pytest.fixture(scope="module")
def volume() -> Volume:
    noise = torch.rand(20, 50, 40, generator=torch.Generator().manual_seed(0))
    turn = Pose.from_euler_deg([10, 20, 30], [0, 0, 0]).rotation
    return Volume(noise, (1.0, 1.5, 2.0), (5.0, -7.0, 11.0), turn)


def places(picture: str) -> list[np.ndarray]:
    """The corners of the planes, in the picture."""
    found = re.findall(r'<polygon points="([^"]*)" fill="none"', picture)
    return [np.array([[float(n) for n in pair.split(",")] for pair in points.split()]) for points in found]


def test_a_frame_that_fills_a_plane_of_the_box_meets_its_edges(volume: Volume) -> None:
    frame = Frame(torch.zeros(50, 40), (1.0, 1.5))
    (corners,) = places(VolumePicture(volume).picture([plane_of(frame, centre_pose(frame, volume))], said="x"))
    box = VolumePicture(volume)
    ends = [(x, y, 20.0) for x, y in ((0, 0), (40, 0), (40, 75), (0, 75))]  # mm along the axes, in the middle
    assert corners == pytest.approx(box._place(np.array(ends)), abs=0.1)


def test_pixels_lie_on_their_plane(volume: Volume) -> None:
    frame = Frame(torch.rand(30, 20), (1.0, 1.5))
    plane = plane_of(frame, centre_pose(frame, volume), grey_pixels(frame.array))
    picture = VolumePicture(volume).picture([plane], said="x", walls="")
    a, b, c, d, e, f = map(float, re.findall(r"matrix\(([^)]*)\)", picture)[0].split())
    corners = np.array([(a * x + c * y + e, b * x + d * y + f) for x, y in ((0, 0), (20, 0), (20, 30), (0, 30))])
    assert corners == pytest.approx(places(picture)[0], abs=0.1)


def test_no_line_leads_from_one_path_to_the_next(volume: Volume) -> None:
    stops = [Stop(volume.centre_mm + row, "", row in (0, 2)) for row in range(5)]
    picture = VolumePicture(volume).picture([], stops, said="x", walls="")
    lines = re.findall(r'<polyline points="([^"]*)"', picture)
    assert [len(line.split()) for line in lines] == [2, 3, 2, 3]  # the ground of both, then both


def test_the_whole_box_is_in_the_picture_and_well_formed(volume: Volume) -> None:
    for width, height in ((320, 320), (300, 120), (80, 400)):
        scene = VolumePicture(volume, width=width, height=height)
        path = [Stop(volume.centre_mm, light) for light in ("green", "amber", "red", "")]
        picture = scene.picture([Plane(np.zeros((4, 3)))], path, said="<b>where</b>")
        root = ET.fromstring(picture)
        lines = [element for element in root.iter() if element.tag.endswith("}line") or element.tag == "line"]
        edges = [line for line in lines if line.get("opacity")]
        assert len(edges) == 12
        for edge in edges:
            assert all(0 <= float(edge.get(name, "")) <= width for name in ("x1", "x2"))
            assert all(0 <= float(edge.get(name, "")) <= height for name in ("y1", "y2"))
        assert sum(element.tag.endswith("image") for element in root.iter()) == 3  # the walls
        assert "<b>" not in picture


def test_places_on_a_path_have_the_marker_of_their_light(volume: Volume) -> None:
    def drawn(*lights: str) -> str:
        return VolumePicture(volume).picture(
            [], [Stop(volume.centre_mm, light) for light in lights], said="x", walls=""
        )

    assert drawn("green").count("<circle") == 1
    assert drawn("amber").count("<polygon") == 1
    assert drawn("", "").count("<polyline") == 2  # the way and what it stands out from, without a marker
    assert drawn().count("<polyline") == 0
