"""The real protocol: what a tracker saw is what a method is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scopereg.cli import main
from scopereg.data.tracked import held_out_blocks, real_case, start_poses
from scopereg.errors import ScopeRegError
from scopereg.evaluation.real_protocol import evaluate_sweep, part_shape, seen_shape, sweep_case
from scopereg.evaluation.results import read_results
from scopereg.evaluation.runner import EvaluateSettings
from scopereg.geometry import Pose, VoxelPoses, compose_poses, invert_poses
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.sweeps import TrackedSweep
from scopereg.registration.method import create
from scopereg.registration.prepared import Found, Prepared
from scopereg.registration.result import Result

SETTINGS = EvaluateSettings("real", magnitude=3, frames=1)
SHAPE = (16, 32, 32)
SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def sweep() -> TrackedSweep:
    """Twenty parallel frames of a smooth pattern, 1 mm apart."""
    y, x = torch.meshgrid(torch.arange(40.0), torch.arange(48.0), indexing="ij")
    frames = [0.5 + 0.3 * torch.sin(x / 5 + z / 4) * torch.cos(y / 6 - z / 7) for z in range(20)]
    poses = torch.eye(4, dtype=torch.float64).repeat(20, 1, 1)
    poses[:, 2, 3] = torch.arange(20)
    return TrackedSweep("waves", torch.stack(frames), (1.0, 1.0), poses.numpy())


class Tracker:
    """Says what the tracker said, seen from the start, frame after frame."""

    name = "tracker"

    def __init__(self, sweep: TrackedSweep) -> None:
        self.facts: dict[str, Any] = {}
        case = real_case(sweep, held_out_blocks(len(sweep), 2, 2), None, 1.0, SHAPE[1:])
        truth = VoxelPoses(*(part.float() for part in case.truth))
        self.answers = compose_poses(invert_poses(start_poses(truth, 3, 0, SHAPE)), truth)
        self.asked = 0

    def prepare(self, volume: Volume) -> Prepared:
        self.asked += 1
        row = self.asked - 1
        return Known(self.answers.rotation[row], self.answers.translation[row], volume)


class Known(Prepared):
    """The pose of the one frame that comes."""

    def __init__(self, rotation: Tensor, translation: Tensor, volume: Volume) -> None:
        self.rotation, self.translation, self.volume = rotation, translation, volume

    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        (frame,) = frames
        return [Result(pose_from_voxels(self.rotation, self.translation, frame, self.volume), "tracker", 1.0, 1.0)]


def test_the_tracker_itself_has_no_error_and_its_frames_agree_with_the_reference(
    sweep: TrackedSweep, tmp_path: Path
) -> None:
    case = sweep_case(sweep, 1.0, shape=SHAPE, held_out=(2, 2))
    path = evaluate_sweep(case, Tracker(sweep), SETTINGS, tmp_path, shape=SHAPE)
    rows, _ = read_results(path)
    assert len(rows) == 4
    assert {row.protocol for row in rows} == {"real"}
    assert max(row.mtre_mm for row in rows) < 1e-3
    assert min(row.start_mm for row in rows) > 0.5
    assert len({row.case for row in rows}) == 4


def test_no_registration_is_as_far_off_as_the_start(sweep: TrackedSweep, tmp_path: Path) -> None:
    identity = create("identity")
    case = sweep_case(sweep, 1.0, shape=SHAPE, held_out=(2, 2))
    path = evaluate_sweep(case, identity, SETTINGS, tmp_path, shape=SHAPE)
    rows, _ = read_results(path)
    assert [row.mtre_mm for row in rows] == [row.start_mm for row in rows]


def test_shapes_follow_from_what_the_transducer_sees_and_from_the_offsets(sweep: TrackedSweep) -> None:
    assert seen_shape(sweep, 1.0) == (40, 48)
    assert seen_shape(sweep, 2.0) == (24, 24)
    assert seen_shape(sweep, 0.25) == (128, 128)
    case = sweep_case(sweep, 1.0, held_out=(2, 2))
    assert case.frames[0].shape == (40, 48)
    assert part_shape(case, 10) == (32, 40, 48)
    assert part_shape(case, 20) == (48, 40, 48)


def test_a_sweep_too_short_for_its_blocks_is_refused(sweep: TrackedSweep) -> None:
    with pytest.raises(ScopeRegError, match="blocks"):
        sweep_case(sweep, 1.0, shape=SHAPE)


@pytest.mark.skipif(not (SHARED / "plus").is_dir(), reason="the PLUS sequence is not here")
def test_the_verb_takes_a_plus_sequence(tmp_path: Path) -> None:
    (sequence,) = (SHARED / "plus").glob("*.igs.mha")
    calibration = sorted((SHARED / "plus").glob("*.xml"))[0]
    words = ["evaluate", "sweep", "--data", str(sequence), "--calibration", str(calibration), "--methods", "identity"]
    assert main([*words, "--held-out", "3", "1", "--magnitudes", "5", "-o", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*.csv")
    assert len(read_results(path)[0]) == 3


def test_a_sweep_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "sweep", "--methods", "identity"]) == 2
    assert "no sweep is given" in capsys.readouterr().err
