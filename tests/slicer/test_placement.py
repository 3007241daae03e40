"""The plane of a view against the geometry of scopereg: right place, right way round, right size."""

from __future__ import annotations

import numpy as np
import pytest
from ScopeRegLiveLib.placement import Placement, field_of_view_mm, placement_of

from scopereg import Frame, Pose

LPS_TO_RAS = np.array([-1.0, -1.0, 1.0])


def placed(frame: Frame, pose: Pose) -> Placement:
    """As 3D Slicer has it: columns and rows to RAS."""
    x_mm, y_mm = frame.spacing_mm
    pixel_to_image = np.diag([x_mm, y_mm, x_mm, 1.0])
    pixel_to_image[:2, 3] = frame.origin_mm
    found = placement_of(np.diag([*LPS_TO_RAS, 1.0]) @ pose.matrix @ pixel_to_image, frame.size)
    assert found is not None
    return found


def test_the_view_lies_on_the_frame_upright(frame: Frame, pose: Pose) -> None:
    found = placed(frame, pose)
    columns, rows = frame.size
    x_mm, y_mm = frame.spacing_mm
    for column, row in ((0, 0), (columns - 1, 0), (3, 5)):
        right_mm, up_mm = (column - (columns - 1) / 2) * x_mm, ((rows - 1) / 2 - row) * y_mm
        in_view = found.slice_to_ras @ (right_mm, up_mm, 0, 1)
        in_frame = (frame.origin_mm[0] + column * x_mm, frame.origin_mm[1] + row * y_mm, 0)
        assert in_view[:3] == pytest.approx(pose.apply(in_frame) * LPS_TO_RAS, abs=1e-9)


def test_the_plane_is_rigid(frame: Frame, pose: Pose) -> None:
    axes = placed(frame, pose).slice_to_ras[:3, :3]
    assert axes.T @ axes == pytest.approx(np.eye(3), abs=1e-12)
    assert np.linalg.det(axes) == pytest.approx(1)


def test_the_outline_goes_around_the_outer_edges(frame: Frame, pose: Pose) -> None:
    found = placed(frame, pose)
    assert found.extent_mm == pytest.approx((9 * 0.5, 6 * 0.8))
    first = (frame.origin_mm[0] - 0.25, frame.origin_mm[1] - 0.4, 0)
    assert found.corners_ras[0] == pytest.approx(pose.apply(first) * LPS_TO_RAS)
    sides = np.linalg.norm(np.roll(found.corners_ras, -1, 0) - found.corners_ras, axis=1)
    assert sides == pytest.approx([4.5, 4.8, 4.5, 4.8])
    assert found.corners_ras.mean(0) == pytest.approx(found.centre_ras)


@pytest.mark.parametrize(
    ("matrix", "size"),
    [
        (np.zeros((4, 4)), (5, 5)),
        (np.full((4, 4), np.nan), (5, 5)),
        (np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]), (5, 5)),
        (np.eye(4), (0, 0, 0)),
        (np.eye(3), (5, 5)),
    ],
)
def test_what_is_no_plane_has_no_placement(matrix: np.ndarray, size: tuple[int, ...]) -> None:
    assert placement_of(matrix, size) is None


def test_a_frame_outside_of_the_box_is_noticed(frame: Frame, pose: Pose) -> None:
    found = placed(frame, pose)
    low, high = found.centre_ras - 1, found.centre_ras + 1
    bounds = np.column_stack([low, high]).ravel()
    assert found.lies_in(bounds)
    assert not found.lies_in(np.add(bounds, [0, 0, 1.5, 1.5, 0, 0]))
    mirrored = np.array([[-high[0], -low[0]], [-high[1], -low[1]], [low[2], high[2]]]).ravel()
    assert not found.lies_in(mirrored)  # RAS taken for LPS


@pytest.mark.parametrize("view_px", [(400, 300), (300, 400), (10, 2000)])
def test_the_whole_frame_fits_into_the_view(view_px: tuple[int, int]) -> None:
    width_mm, height_mm = field_of_view_mm((45.0, 60.0), view_px)
    assert width_mm / height_mm == pytest.approx(view_px[0] / view_px[1])
    assert min(width_mm / 45, height_mm / 60) == pytest.approx(1.1)


def test_a_view_that_is_not_shown_does_no_harm() -> None:
    assert all(np.isfinite(field_of_view_mm((45.0, 60.0), (0, 0))))
