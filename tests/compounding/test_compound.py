"""Volumes show what frames showed, where they showed it; what was left out and what is empty is counted and told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from swept import PIXEL_MM, PLACED, STEP_MM, grey_at, moved, poses_of, sweep_of

from scopereg.compounding.compound import Compounded, compound_sweeps
from scopereg.compounding.settings import CompoundSettings
from scopereg.compounding.totals import BRIDGED, EMPTY, IMAGE
from scopereg.data.compound import compound
from scopereg.errors import ScopeRegError
from scopereg.io.sweeps import TrackedSweep


def places_mm(made: Compounded) -> np.ndarray:
    """World mm (D, H, W, 3) of the voxels."""
    z, y, x = np.meshgrid(*(np.arange(n) for n in made.volume.shape), indexing="ij")
    return np.stack([x, y, z], -1) * made.voxel_mm @ made.volume.direction.T + made.volume.origin_mm


def errors_of(made: Compounded, state: int) -> np.ndarray:
    chosen = (made.states == state).numpy()
    return np.abs(made.volume.numpy() - grey_at(places_mm(made)))[chosen]


def test_the_volume_is_what_the_frames_showed(sweep: TrackedSweep) -> None:
    made = compound_sweeps(sweep, left_out=False)
    assert made.voxel_mm == PIXEL_MM
    assert made.why == "as fine as the frames have it"
    assert errors_of(made, IMAGE).mean() < 0.02
    assert not made.volume.array[made.states == EMPTY].any()
    holes = made.holes
    assert [holes.empty, holes.image, holes.bridged] == torch.bincount(made.states.flatten(), minlength=3).tolist()
    assert holes.image / made.states.numel() > 0.6
    told = made.facts
    assert told["frames"] == 30
    assert told["holes"]["image_share"] + told["holes"]["bridged_share"] + told["holes"][
        "empty_share"
    ] == pytest.approx(1)


def test_it_is_that_of_the_real_protocol_where_both_have_a_voxel(sweep: TrackedSweep) -> None:
    made = compound_sweeps(sweep, CompoundSettings(voxel_mm=1.0), left_out=False)
    other = compound(sweep, shape=None, spacing_mm=1.0)
    assert made.volume.shape == other.volume.shape
    assert made.volume.origin_mm == other.volume.origin_mm
    both = (made.states == IMAGE) & other.filled
    # That one bridges thin voxels over which this one takes for what a frame showed.
    alike = (made.volume.array - other.volume.array)[both].abs() < 1e-4
    assert float(alike.float().mean()) > 0.95
    assert float(both.float().mean()) > 0.6


def test_sparse_frames_make_coarser_voxels_and_few_holes() -> None:
    made = compound_sweeps(sweep_of(poses_of(12, step_mm=2.4)), left_out=False)
    assert made.voxel_mm == pytest.approx(1.2, abs=0.05)
    assert made.why == f"half of the usual distance between frames, {2.4:.2g} mm"
    assert made.holes.bridged < 0.1 * made.holes.image


@pytest.mark.parametrize("turned", [False, True])
def test_holes_are_bridged_as_far_as_asked(turned: bool) -> None:
    """Along whichever axis: of two sweeps, one across the other, the grid follows the mean of both."""
    poses = [pose for row, pose in enumerate(poses_of()) if not 12 <= row < 17]  # 4.2 mm without a frame
    sweeps = [sweep_of(poses, name="a")]
    if turned:
        sweeps.append(sweep_of([pose for row, pose in enumerate(poses_of(turned=True)) if row % 6 == 0], name="b"))
    bridged = compound_sweeps(sweeps, CompoundSettings(voxel_mm=0.8), left_out=False)
    left = compound_sweeps(sweeps, CompoundSettings(voxel_mm=0.8, bridge_mm=1.0), left_out=False)
    assert bridged.holes.bridged > left.holes.bridged
    assert errors_of(bridged, BRIDGED).mean() < 0.06
    assert 2.4 <= bridged.holes.longest_mm <= 5.0
    assert left.holes.longest_mm <= 1.0
    gone = (bridged.states == BRIDGED) & (left.states == EMPTY)
    assert gone.any()
    assert not left.volume.array[gone].any()
    none = compound_sweeps(sweeps, CompoundSettings(voxel_mm=0.8, bridge_mm=0.0), left_out=False)
    assert none.holes.bridged == 0


def test_a_voxel_may_show_the_brightest(sweep: TrackedSweep) -> None:
    mean = compound_sweeps(sweep, CompoundSettings(voxel_mm=1.6), left_out=False)
    brightest = compound_sweeps(sweep, CompoundSettings(voxel_mm=1.6, mode="max"))
    both = (mean.states == IMAGE) & (brightest.states == IMAGE)
    assert float(both.float().mean()) > 0.6
    brighter = (brightest.volume.array - mean.volume.array)[both]
    assert float(brighter.quantile(0.05)) > 0
    assert float(brighter.mean()) > 0.02
    assert brightest.left_out is not None  # by means, whatever the volume shows
    assert brightest.left_out.agree


def test_several_sweeps_make_one_volume(sweep: TrackedSweep) -> None:
    other = sweep_of(poses_of(turned=True), name="across")
    made = compound_sweeps([sweep, other])
    assert made.frames == 60
    assert errors_of(made, IMAGE).mean() < 0.03
    assert made.left_out is not None
    assert {frame.sweep for frame in made.left_out.frames} == {"blobs", "across"}
    assert made.left_out.agree


def test_a_part_of_the_images_and_of_the_frames_may_count(sweep: TrackedSweep) -> None:
    made = compound_sweeps(sweep, CompoundSettings(clip=(4, 6, 20, 10), every=2), left_out=False)
    (used,) = made.sweeps
    assert len(used) == 15
    assert used.number(3) == 6
    assert int(used.seen.sum()) == 200
    wide, high, _ = made.volume.extent_mm
    assert (wide, high) == (pytest.approx(20 * PIXEL_MM, abs=3), pytest.approx(10 * PIXEL_MM, abs=3))
    with pytest.raises(ScopeRegError, match="nothing is seen in 100 0 5 5 of images of 44 x 36 pixels"):
        compound_sweeps(sweep, CompoundSettings(clip=(100, 0, 5, 5)))


def test_leaps_of_the_tracker_are_left_out_and_told(sweep: TrackedSweep) -> None:
    shifts = np.zeros((30, 3))
    shifts[[4, 11]] = 300.0
    leaping = sweep_of(poses_of(), moved(poses_of(), shifts))
    made = compound_sweeps(leaping, left_out=False)
    assert made.frames == 28
    assert made.notes == ("blobs: the tracker leaps to frames 4, 11 and back: left out",)
    assert max(made.volume.extent_mm) < 60
    assert made.facts["sweeps"][0]["leaps"] == [4, 11]
    assert torch.equal(made.sweeps[0].images, sweep.images[[row for row in range(30) if row not in (4, 11)]])


def test_poses_that_stand_still_for_some_frames_are_told() -> None:
    poses = poses_of()
    told = [poses[row - row % 2] for row in range(30)]  # a tracker half as fast
    made = compound_sweeps(sweep_of(poses, told), left_out=False)
    (note,) = made.notes
    assert note.startswith("blobs: 15 of 30 frames have the very pose of the frame before")


def test_dropped_frames_are_told(sweep: TrackedSweep) -> None:
    made = compound_sweeps(replace(sweep, facts={"dropped": {"ProbeToTracker INVALID": 3}}), left_out=False)
    assert made.notes == ("blobs: 3 of 33 frames: 3 ProbeToTracker INVALID",)


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ([poses_of()[0]] * 30, "all 30 frames lie at one place: the probe did not move"),
        (poses_of(1), "all 1 frames lie at one place"),
        (poses_of(30, step_mm=0.0007, rocking_deg=0), "mm across their plane"),  # metres for mm
        (poses_of(30, step_mm=700.0, rocking_deg=0), "that is no ultrasound sweep"),
    ],
)
def test_poses_that_make_no_volume_are_refused(told: list, what: str) -> None:
    with pytest.raises(ScopeRegError, match=what):
        compound_sweeps(sweep_of(poses_of(len(told)), told))


def test_voxels_that_are_too_many_are_refused(sweep: TrackedSweep) -> None:
    with pytest.raises(ScopeRegError, match=r"voxels of 0\.01 mm would be"):
        compound_sweeps(sweep, CompoundSettings(voxel_mm=0.01))
    with pytest.raises(ScopeRegError, match="there is no sweep"):
        compound_sweeps([])


@pytest.mark.parametrize(
    "wrong", [{"voxel_mm": 0.0}, {"bridge_mm": -1.0}, {"bridge_mm": float("nan")}, {"mode": "median"}, {"every": 0}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict) -> None:
    with pytest.raises(ScopeRegError):
        CompoundSettings(**wrong)


def test_a_fine_sweep_gets_as_many_voxels_as_fit(sweep: TrackedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scopereg.compounding.chosen_grid.USUAL_VOXELS", 5000)
    made = compound_sweeps(sweep, left_out=False)
    assert 2000 < made.states.numel() <= 5000
    assert made.why.startswith("as fine as ")
    assert made.voxel_mm > STEP_MM


def test_a_part_of_the_world_may_be_filled(sweep: TrackedSweep) -> None:
    """Its axes are those of the world, and what lies in it is the same."""
    x, y, z = PLACED.translation_mm
    roi = (x - 8, x + 6, y - 5, y + 9, z - 7, z + 7)
    made = compound_sweeps(sweep, CompoundSettings(voxel_mm=0.8, roi=roi))
    assert np.array_equal(made.volume.direction, np.eye(3))
    assert made.volume.origin_mm == pytest.approx(roi[::2])
    assert made.volume.size == (18, 18, 18)
    assert float((made.states == IMAGE).float().mean()) > 0.9
    assert errors_of(made, IMAGE).mean() < 0.02
    with pytest.raises(ScopeRegError, match="no frame passes through it"):
        compound_sweeps(sweep, CompoundSettings(voxel_mm=0.8, roi=(0, 10, 0, 10, 0, 10)))
    with pytest.raises(ScopeRegError, match="each first the smaller"):
        CompoundSettings(roi=(0, 10, 10, 0, 0, 10))


@pytest.mark.parametrize("mode", ["mean", "max"])
def test_without_kernels_it_is_the_same(sweep: TrackedSweep, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    settings = CompoundSettings(voxel_mm=1.2, bridge_mm=2.0, mode=mode)  # type: ignore[arg-type]
    fast = compound_sweeps(sweep, settings, left_out=False)
    for module in ("splat", "bridges"):
        monkeypatch.setattr(f"scopereg.ops.{module}.is_fast", lambda: False)
    plain = compound_sweeps(sweep, settings, left_out=False)
    assert torch.equal(fast.states, plain.states)
    assert torch.allclose(fast.volume.array, plain.volume.array, atol=1e-5)
