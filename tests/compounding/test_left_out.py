"""Frames that were left out fit where they belong, and tell how far off the tracker has them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from swept import PIXEL_MM, moved, poses_of, sweep_of

from scopereg.compounding.chosen_grid import choose_grid
from scopereg.compounding.compound import compound_sweeps
from scopereg.compounding.left_out import LeftOut, runs_of
from scopereg.compounding.settings import CompoundSettings
from scopereg.compounding.totals import Totals
from scopereg.geometry import Pose
from scopereg.io.sweeps import TrackedSweep

COUNT = 40


def left_out_of(*sweeps: TrackedSweep) -> LeftOut:
    left_out = compound_sweeps(list(sweeps)).left_out
    assert left_out is not None
    return left_out


def test_true_poses_hold() -> None:
    left_out = left_out_of(sweep_of(poses_of(COUNT, step_mm=0.5)))
    assert left_out.agree
    assert left_out.usual_mm < 0.15
    assert left_out.verdict.endswith("the poses agree with one another")
    assert left_out.uncovered == 0
    assert left_out.run_frames == 3
    facts = json.loads(json.dumps(left_out.facts))
    assert facts["correlation"] > 0.97
    assert len(facts["each"]) == facts["frames"] == len(left_out.frames)
    assert all(frame.best >= frame.correlation for frame in left_out.frames)


def test_a_frame_that_is_off_is_found_where_it_belongs() -> None:
    """Lateral, axial and across the plane, in the frame's own axes."""
    poses = poses_of(COUNT, step_mm=0.5)
    row = runs_of(sweep_of(poses))[5][1]
    off = np.array([1.5, -1.0, 2.0])
    told = list(poses)
    told[row] = poses[row] @ Pose(np.eye(3), -off, "Image", "Image")
    left_out = left_out_of(sweep_of(poses, told))
    (frame,) = (frame for frame in left_out.frames if frame.row == row)
    assert frame.shift_mm == pytest.approx(off, abs=0.2)
    assert frame.best > frame.correlation + 0.01
    others = [frame.distance_mm for frame in left_out.frames if frame.row != row]
    assert np.median(others) < 0.2
    assert left_out.usual_mm < 0.2


def test_jitter_of_the_tracker_is_told() -> None:
    poses = poses_of(COUNT, step_mm=0.5)
    shifts = np.random.default_rng(0).normal(0, 1.2, (COUNT, 3))
    left_out = left_out_of(sweep_of(poses, moved(poses, shifts)))
    assert not left_out.agree
    assert 1.0 < left_out.usual_mm < 3.0  # of shifts of 1.8 mm
    assert left_out.jitter_mm > left_out.steady_mm
    assert "jitter of the tracker" in left_out.verdict


def test_motion_between_two_sweeps_is_told() -> None:
    """Runs are off as a whole: their own neighbours agree, the other sweep does not."""
    there, back = poses_of(COUNT, step_mm=0.5), poses_of(COUNT, step_mm=0.5)[::-1]
    told = moved(back, np.tile(4.0 * there[0].rotation[:, 1], (COUNT, 1)))
    left_out = left_out_of(sweep_of(there + back, there + told))
    assert left_out.steady_mm > left_out.jitter_mm
    assert not left_out.agree
    assert "neighbours are off together" in left_out.verdict


def test_of_few_frames_none_is_left_out() -> None:
    made = compound_sweeps(sweep_of(poses_of(6)))
    assert made.left_out is None
    assert made.facts["left_out"] is None
    assert made.notes == (
        "too few frames, or too far apart, to leave any out: nothing tells how well their poses hold",
    )


def test_runs_are_spread_over_the_sweep_and_leave_its_ends() -> None:
    runs = runs_of(sweep_of(poses_of(COUNT, step_mm=0.5)))
    rows = [row for run in runs for row in run]
    assert rows == sorted(set(rows))
    assert rows[0] > 0
    assert rows[-1] < COUNT - 1
    assert {len(run) for run in runs} == {3}
    assert all(run == list(range(run[0], run[0] + 3)) for run in runs)


def test_a_frame_off_the_reach_is_marked() -> None:
    poses = poses_of(COUNT, step_mm=0.5)
    row = runs_of(sweep_of(poses))[3][0]
    told = list(poses)
    told[row] = poses[row] @ Pose(np.eye(3), np.array([-9.0, 0, 0]), "Image", "Image")
    left_out = left_out_of(sweep_of(poses, told))
    (frame,) = (frame for frame in left_out.frames if frame.row == row)
    assert frame.is_at_edge
    assert frame.shift_mm[0] > 5.8


@pytest.mark.parametrize("most", [20_000, 1500])
def test_frames_are_compared_on_a_coarser_grid_where_the_volume_is_fine(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """What a run leaves when it is taken out of pooled sums is what the others make."""
    monkeypatch.setattr("scopereg.compounding.totals._MOST_COMPARED", most)
    sweep = sweep_of(poses_of(COUNT, step_mm=0.5))
    left_out = left_out_of(sweep)
    assert left_out.voxel_mm in {2 * PIXEL_MM, 4 * PIXEL_MM}
    assert left_out.usual_mm < 0.2 * left_out.voxel_mm
    frame = left_out.frames[4]
    run = runs_of(sweep)[frame.run]
    grid = choose_grid([sweep], CompoundSettings()).grid
    others = Totals.empty(grid)
    others.add(sweep, [row for row in range(COUNT) if row not in run])
    others = others.pooled(round(left_out.voxel_mm / PIXEL_MM))
    z, y, x = (
        round(float(n))
        for n in ((np.array(frame.others.origin_mm) - others.grid.first_mm) @ grid.axes / others.grid.spacing_mm)[::-1]
    )
    depth, height, width = frame.others.shape
    part = others.sums[z : z + depth, y : y + height, x : x + width]
    seen = part[..., 1] > 0.5
    assert bool(seen.any())
    means = part[..., 0] / part[..., 1].clamp_min(1e-6)
    assert torch.allclose(frame.others.array[seen], means[seen], atol=1e-3)
