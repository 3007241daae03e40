"""A probe followed through a phantom sweep with the real network: steady, past bad frames, lost, found, jumping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from scopereg.data import phantom
from scopereg.data.poses import sample_sweep
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses
from scopereg.images import Frame, pose_from_voxels
from scopereg.registration.locator import Locator
from scopereg.registration.result import Result
from scopereg.registration.settings import TrackSettings
from scopereg.registration.tracker import Tracked, Tracker

COUNT, RATE = 16, 20


@dataclass
class Sweep:
    """Frames with their true poses, and what locates them."""

    locator: Locator
    frames: list[Frame]
    truth: list[Pose]
    elsewhere: list[Frame]  # 8 mm from where the sweep is

    def error_vector(self, row: int, pose: Pose) -> np.ndarray:
        """How far the frame's corners (4, 3) lie from where they truly are."""
        x, y = self.frames[row].extent_mm
        corners = np.array([(0, 0, 0), (x, 0, 0), (0, y, 0), (x, y, 0)])
        return np.asarray(pose.apply(corners) - self.truth[row].apply(corners))

    def error_mm(self, row: int, pose: Pose) -> float:
        return float(np.linalg.norm(self.error_vector(row, pose), axis=1).mean())


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    patient = phantom.create("echo", seed=300_001)
    whole = sample_sweep(3 * COUNT, 4, patient.shape, torch.Generator().manual_seed(1))
    poses = VoxelPoses(whole.rotation[:COUNT], whole.translation[:COUNT])
    images = patient.acquire(*poses, protocol="paper", seed=5).images
    frames = [Frame(image, spacing_mm=patient.spacing_mm, origin_mm=(0, 0)) for image in images]
    truth = [pose_from_voxels(*pose, frames[0], patient.volume) for pose in zip(*poses, strict=True)]
    away = poses.rotation[6:7].expand(4, 3, 3), poses.translation[6:7] + torch.tensor([8.0, -8.0, 6.0]).expand(4, 3)
    there = patient.acquire(*away, protocol="paper", seed=6).images
    elsewhere = [Frame(image, spacing_mm=patient.spacing_mm, origin_mm=(0, 0)) for image in there]
    return Sweep(Locator(patient.volume, "universal", device="cpu"), frames, truth, elsewhere)


class Memory:
    """A locator that looks at a frame once: a network gives the same pose every time."""

    refines = False

    def __init__(self, locator: Locator, known: dict[int, Result] | None = None) -> None:
        self.locator, self.volume = locator, locator.volume
        self.known = {} if known is None else known

    def locate(self, frame: Frame) -> Result:
        if id(frame) not in self.known:
            self.known[id(frame)] = self.locator.locate(frame)
        return self.known[id(frame)]

    def narrow(self) -> Memory:
        return self

    def reaches(self, frame: Frame, pose: Pose) -> bool:
        return self.locator.reaches(frame, pose)

    def refine_from(self, frame: Frame, start: Result) -> Result | None:
        return None


@pytest.fixture(scope="module")
def remembered(sweep: Sweep) -> Memory:
    return Memory(sweep.locator)


def _of(memory: Memory, **settings: int) -> Tracker:
    return Tracker(memory, TrackSettings(**settings))  # type: ignore[arg-type]


@pytest.fixture
def tracker(remembered: Memory) -> Tracker:
    return _of(remembered)


def follow(tracker: Tracker, frames: Sequence[Frame], first_s: float = 0.0) -> list[Tracked]:
    return [tracker.follow(frame, first_s + row / RATE) for row, frame in enumerate(frames)]


def states(steps: Sequence[Tracked]) -> list[str]:
    return [step.state for step in steps]


def _poses(steps: Sequence[Tracked]) -> tuple[list[Pose], list[Pose]]:
    """As tracked, and of the frames by themselves."""
    return [step.result.pose for step in steps], [step.alone.pose for step in steps if step.alone]


def _jitter(vectors: Sequence[np.ndarray]) -> float:
    return float(np.median([np.linalg.norm(b - a) for a, b in pairwise(vectors)]))


@pytest.fixture(scope="module")
def noise(sweep: Sweep) -> list[Frame]:
    """Frames of nothing."""
    generator = torch.Generator().manual_seed(0)
    shape, spacing = sweep.frames[0].shape, sweep.frames[0].spacing_mm
    return [Frame(torch.rand(shape, generator=generator), spacing, (0, 0)) for _ in range(8)]


def test_a_sweep_is_followed(sweep: Sweep, tracker: Tracker) -> None:
    steps = follow(tracker, sweep.frames)
    assert states(steps) == ["found"] + ["followed"] * (COUNT - 1)
    assert [step.time_s for step in steps] == [row / RATE for row in range(COUNT)]
    errors = [sweep.error_mm(row, step.result.pose) for row, step in enumerate(steps)]
    assert max(errors) < 3
    assert steps[0].alone is not None
    assert steps[0].result.pose.is_close(steps[0].alone.pose)
    assert not all(step.alone and step.result.pose.is_close(step.alone.pose) for step in steps[1:])


def test_tracked_poses_are_nearer_and_calmer_than_shaky_ones(sweep: Sweep, remembered: Memory) -> None:
    """Frames of which each is off by some mm in its own way."""
    generator = np.random.default_rng(0)

    class Shaky(Memory):
        def locate(self, frame: Frame) -> Result:
            result = super().locate(frame)
            shaken = result.pose.translation_mm + generator.normal(scale=1.5, size=3)
            return replace(result, pose=Pose(result.pose.rotation, shaken), expected_mm=3.5)

    steps = follow(_of(Shaky(sweep.locator, remembered.known)), sweep.frames)
    assert "carried" not in states(steps)
    tracked, alone = ([sweep.error_vector(row, pose) for row, pose in enumerate(poses)] for poses in _poses(steps))
    assert np.linalg.norm(tracked[3:], axis=-1).mean() < 0.8 * np.linalg.norm(alone[3:], axis=-1).mean()
    assert _jitter(tracked) < 0.5 * _jitter(alone)


def test_bad_frames_are_carried_by_the_motion(sweep: Sweep, tracker: Tracker, noise: list[Frame]) -> None:
    """Three frames of noise in the middle: the tracked pose stays by the probe, the frames by themselves do not."""
    frames = [*sweep.frames[:7], *noise[:3], *sweep.frames[10:]]
    steps = follow(tracker, frames)
    assert states(steps[6:11]) == ["followed", "carried", "carried", "carried", "followed"]
    for row in (7, 8, 9):
        result, alone = steps[row].result, steps[row].alone
        assert result.ok is False
        assert result.reason.startswith("carried on by the motion before: ")
        assert math.isnan(result.expected_mm)
        assert alone is not None
        assert sweep.error_mm(row, result.pose) < 0.7 * sweep.error_mm(row, alone.pose)
    assert steps[9].motion_error_mm > steps[8].motion_error_mm > steps[7].motion_error_mm
    assert sweep.error_mm(10, steps[10].result.pose) < 3


def test_a_change_of_the_picture_is_followed_through(sweep: Sweep, remembered: Memory) -> None:
    """From the ninth frame on the picture begins elsewhere, after a while in which nothing could be located."""
    moved_mm = 20.0

    def elsewhere(frame: Frame) -> Frame:
        return Frame(frame.array, frame.spacing_mm, (-moved_mm, 0))

    tracker = _of(remembered)
    follow(tracker, sweep.frames[:8])
    steps = follow(tracker, [elsewhere(frame) for frame in sweep.frames[8:]], first_s=2.0)
    assert states(steps) == ["followed"] * (COUNT - 8)
    there = Pose.from_euler_deg((0, 0, 0), (moved_mm, 0, 0), "Image", "Image")
    for row, step in enumerate(steps, 8):
        away = step.result.pose.apply((0.0, 0.0, 0.0)) - (sweep.truth[row] @ there).apply((0.0, 0.0, 0.0))
        assert float(np.linalg.norm(away)) < 5


def test_what_stays_away_is_lost_and_found_again(sweep: Sweep, remembered: Memory, noise: list[Frame]) -> None:
    tracker = _of(remembered, patience=2)
    steps = follow(tracker, [*sweep.frames[:4], *noise[:5], *sweep.frames[9:12]])
    expected = [*["found"], *["followed"] * 3, *["carried"] * 2, *["lost"] * 3, *["found", "followed", "followed"]]
    assert states(steps) == expected
    assert all(step.result.ok is False and step.result.reason for step in steps[6:9])
    assert sweep.error_mm(9, steps[9].result.pose) < 3


def test_patience_begins_anew_with_every_good_frame(sweep: Sweep, remembered: Memory, noise: list[Frame]) -> None:
    tracker = _of(remembered, patience=2)
    steps = follow(tracker, [*sweep.frames[:4], *noise[:2], sweep.frames[6], *noise[:2], sweep.frames[9]])
    assert states(steps)[4:] == ["carried", "carried", "followed", "carried", "carried", "followed"]


@pytest.mark.parametrize("confidence", [0.1, 0.0])
def test_a_doubtful_pose_counts_a_little(sweep: Sweep, remembered: Memory, confidence: float) -> None:
    """Not ok, since its error may be large, but of this volume: it is weighed by what is expected of it.

    A calibration that has seen no such error below 3 mm gives it a confidence of 0, like that of a stranger.
    """

    class Doubtful(Memory):
        def locate(self, frame: Frame) -> Result:
            verdict = {"belongs": True, "ok": False, "reason": "too likely", "confidence": confidence}
            return replace(super().locate(frame), **verdict, expected_mm=8.0)

    steps = follow(_of(Doubtful(sweep.locator, remembered.known)), sweep.frames[:6])
    assert states(steps) == ["found", *["followed"] * 5]
    assert all(step.result.ok is False and step.result.reason == "too likely" for step in steps)


def test_a_frame_that_cannot_be_located_is_carried_too(sweep: Sweep, tracker: Tracker) -> None:
    """An empty picture has no pose of its own; before there is a motion, its error is told."""
    black = Frame(torch.zeros(sweep.frames[0].shape), sweep.frames[0].spacing_mm, (0, 0))
    with pytest.raises(ScopeRegError):
        tracker.follow(black, -1.0)
    steps = follow(tracker, [*sweep.frames[:3], *[black] * 6])
    assert states(steps)[3:] == ["carried"] * 5 + ["lost"]
    assert steps[3].alone is None
    assert steps[3].result.method == "motion"
    assert steps[8].result.reason.startswith("lost: ")


def test_a_jump_is_believed_once_frames_agree(sweep: Sweep, tracker: Tracker) -> None:
    """The probe is lifted and set down elsewhere: one frame is held for an error, the next ones make a new motion."""
    steps = follow(tracker, [*sweep.frames[:6], *sweep.elsewhere])
    assert states(steps[5:]) == ["followed", "carried", "found", "followed", "followed"]
    assert steps[6].result.reason.endswith("away from the motion so far")
    found, alone = steps[7].result, steps[7].alone
    assert alone is not None
    assert found.pose.is_close(alone.pose)
    assert steps[7].result.ok


def test_one_frame_is_enough_if_asked(sweep: Sweep, remembered: Memory) -> None:
    tracker = _of(remembered, agreeing=1)
    steps = follow(tracker, [*sweep.frames[:6], *sweep.elsewhere])
    assert states(steps[6:]) == ["found", "followed", "followed", "followed"]


@pytest.mark.parametrize("time_s", [0.05, 0.04, -1.0, math.nan, math.inf])
def test_times_must_rise(sweep: Sweep, tracker: Tracker, time_s: float) -> None:
    follow(tracker, sweep.frames[:2])
    with pytest.raises(ScopeRegError, match=r"follows one of 0\.05 s"):
        tracker.follow(sweep.frames[2], time_s)
    assert tracker.follow(sweep.frames[2], 0.1).state == "followed"  # nothing was spoiled


def test_times_must_rise_also_while_lost(sweep: Sweep, tracker: Tracker, noise: list[Frame]) -> None:
    assert tracker.follow(noise[0], 1.0).state == "lost"
    with pytest.raises(ScopeRegError, match="follows"):
        tracker.follow(sweep.frames[0], 1.0)


def test_a_reset_begins_another_sweep(sweep: Sweep, tracker: Tracker) -> None:
    first = follow(tracker, sweep.frames[:4], first_s=100.0)
    tracker.reset()
    again = follow(tracker, sweep.frames[:4], first_s=3.0)
    assert states(again) == states(first)
    for one, other in zip(first, again, strict=True):
        assert one.result.pose.is_close(other.result.pose, mm=1e-9, deg=1e-9)


def test_refinement_also_starts_from_the_motion(sweep: Sweep, remembered: Memory) -> None:
    """Where a frame by itself is refined into the wrong place, the more similar pose by the motion is taken."""

    class Refining(Memory):
        refinement = object()  # type: ignore[assignment]

        def refine_from(self, frame: Frame, start: Result) -> Result | None:
            return replace(start, similarity=2.0)

    refining = Refining(sweep.locator, remembered.known)
    tracker = _of(refining)
    steps = follow(tracker, [*sweep.frames[:6], sweep.elsewhere[0]])
    assert steps[6].state == "followed"  # by itself it is 8 mm away
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refining, "refine_from", lambda *_: None)
        assert tracker.follow(sweep.elsewhere[1], 0.35).state == "carried"


def test_a_method_without_verdicts_is_followed_all_the_same(sweep: Sweep, remembered: Memory) -> None:
    """Nobody says which poses to believe: the motion alone tells what does not belong to it."""

    class Mute(Memory):
        def locate(self, frame: Frame) -> Result:
            return replace(super().locate(frame), belongs=None, ok=None, reason="", expected_mm=math.nan)

    frames = [*sweep.frames[:6], sweep.elsewhere[0], *sweep.frames[7:9]]
    steps = follow(_of(Mute(sweep.locator, remembered.known), network_error_mm=1), frames)
    assert states(steps) == ["found", *["followed"] * 5, "carried", "followed", "followed"]
