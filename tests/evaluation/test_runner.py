"""Evaluation rows: one per frame, the same in every run, resumed where a run was killed, never mixed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scopereg.cli import main
from scopereg.data import phantom
from scopereg.data.examples import CaseExamples, case_examples
from scopereg.data.poses import evaluation_poses
from scopereg.data.splits import Split
from scopereg.data.store import AcquiredFrames, VolumeSet, save_set
from scopereg.errors import ScopeRegError
from scopereg.evaluation.results import FrameResult, read_results
from scopereg.evaluation.runner import (
    EvaluateSettings,
    Origin,
    RowJournal,
    case_rows,
    evaluate,
    file_name,
    locate_case,
)
from scopereg.evaluation.statistics import tail
from scopereg.geometry import Pose, VoxelPoses, rotation_from_euler_deg, sample_slice
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.networks import create
from scopereg.networks.weights import save_network
from scopereg.registration.classical import ClassicalMethod
from scopereg.registration.confidence import Verdict
from scopereg.registration.method import create as create_method
from scopereg.registration.prepared import Found, Prepared
from scopereg.registration.result import RegistrationError, Result

PAPER = EvaluateSettings("paper", magnitude=3)


def make_set(count: int = 4, labels: bool = True) -> VolumeSet:
    generator = torch.Generator().manual_seed(5)
    coarse = torch.rand(count, 1, 4, 6, 6, generator=generator)
    volumes = torch.nn.functional.interpolate(coarse, (16, 32, 32), mode="trilinear")[:, 0]
    names = tuple(f"case{n}" for n in range(count))
    classes = (volumes > 0.5).byte() if labels else None
    return VolumeSet("tiny", (volumes * 255).byte(), 0.5, names, names, labels=classes, margin=(0, 4, 4))


def whole(volumes: VolumeSet) -> Split:
    return Split((), (), tuple(range(len(volumes))), "all")


class Oracle:
    """Knows the poses of the paper frames, and how often it was asked."""

    name = "oracle"

    def __init__(self, volumes: VolumeSet, *, fail_after: int | None = None) -> None:
        self.facts: dict[str, Any] = {"knows": "everything"}
        self.volumes, self.asked, self.fail_after = volumes, 0, fail_after

    def prepare(self, volume: Volume) -> Prepared:
        if self.asked == self.fail_after:
            raise KeyboardInterrupt
        self.asked += 1
        rows = range(len(self.volumes))
        (own,) = [row for row in rows if self.volumes.references(torch.tensor([row]))[0].equal(volume.array)]
        poses = evaluation_poses([self.volumes.cases[own]], self.volumes.shape, 3)
        return Answering(lambda frames: [self.answer(row, *at(poses, row), frames[row], volume) for row in range(4)])

    def answer(self, row: int, rotation: Tensor, translation: Tensor, frame: Frame, volume: Volume) -> Result:
        return Result(pose_from_voxels(rotation, translation, frame, volume), "oracle", 1.0, 1.0)


class Answering(Prepared):
    """Gives the answers of a function."""

    def __init__(self, answers: Callable[[Sequence[Frame]], list[Found]]) -> None:
        self.answers = answers

    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        return self.answers(frames)


def at(poses: VoxelPoses, row: int) -> tuple[Tensor, Tensor]:
    return poses.rotation[row], poses.translation[row]


def test_a_method_that_knows_the_truth_has_no_error(tmp_path: Path) -> None:
    volumes = make_set()
    rows, facts = read_results(evaluate(volumes, whole(volumes), Oracle(volumes), PAPER, tmp_path))
    assert len(rows) == 4 * 4
    assert max(row.mtre_mm for row in rows) < 1e-4
    assert min(row.start_mm for row in rows) > 0
    assert {row.dice for row in rows} == {1.0}
    assert min(row.ncc for row in rows) > 0.999
    assert [(row.found_tx, row.found_rz) for row in rows] == [(row.true_tx, row.true_rz) for row in rows]
    assert facts["data_sha256"] == volumes.sha256()
    assert facts["versions"]["torch"]
    assert [path.name for path in tmp_path.iterdir()] == [file_name("tiny", "oracle", PAPER)]


class Judge(Oracle):
    """An oracle that tells what to think of its poses."""

    def answer(self, row: int, *where: Any) -> Result:
        verdict = Verdict(1.25 + row, 3.5, 0.9, True, row % 2 == 0, "")
        return replace(super().answer(row, *where), **vars(verdict))


def test_rows_carry_the_verdicts_and_so_does_the_journal(tmp_path: Path) -> None:
    volumes = make_set(2)
    with pytest.raises(KeyboardInterrupt):
        evaluate(volumes, whole(volumes), Judge(volumes, fail_after=1), PAPER, tmp_path)
    rows, _ = read_results(evaluate(volumes, whole(volumes), Judge(volumes), PAPER, tmp_path))
    told = [(row.expected_mm, row.bound_mm, row.ok) for row in rows]
    assert told == [(1.25, 3.5, "yes"), (2.25, 3.5, "no"), (3.25, 3.5, "yes"), (4.25, 3.5, "no")] * 2


def test_without_labels_there_is_no_dice(tmp_path: Path) -> None:
    volumes = make_set(1, labels=False)
    rows, _ = read_results(evaluate(volumes, whole(volumes), create_method("identity"), PAPER, tmp_path))
    assert all(row.dice != row.dice and row.hd95_mm != row.hd95_mm for row in rows)
    assert [row.mtre_mm for row in rows] == [row.start_mm for row in rows]


def test_an_interrupted_run_goes_on_and_ends_as_if_nothing_had_been(tmp_path: Path) -> None:
    volumes = make_set()
    with pytest.raises(KeyboardInterrupt):
        evaluate(volumes, whole(volumes), Oracle(volumes, fail_after=2), PAPER, tmp_path / "a")
    journal = tmp_path / "a" / file_name("tiny", "oracle", PAPER).replace(".csv", ".journal")
    with journal.open("a") as file:
        file.write('["half a li')  # killed while writing
    again = Oracle(volumes)
    first = evaluate(volumes, whole(volumes), again, PAPER, tmp_path / "a")
    assert again.asked == 2
    assert not journal.exists()
    straight = evaluate(volumes, whole(volumes), Oracle(volumes), PAPER, tmp_path / "b")
    rows = [[replace(row, time_ms=0.0) for row in read_results(path)[0]] for path in (first, straight)]
    assert repr(rows[0]) == repr(rows[1])  # NaN is not equal to itself


def test_a_whole_file_is_left_alone_and_another_run_does_not_mix_with_it(tmp_path: Path) -> None:
    volumes = make_set()
    done = evaluate(volumes, whole(volumes), Oracle(volumes), PAPER, tmp_path)
    before = done.read_bytes()
    idle = Oracle(volumes)
    assert evaluate(volumes, whole(volumes), idle, PAPER, tmp_path) == done
    assert idle.asked == 0
    for other in (replace(volumes, spacing_mm=0.7), volumes):
        changed = replace(PAPER, seed=0 if other is not volumes else 1)
        with pytest.raises(ScopeRegError, match="made with another"):
            evaluate(other, whole(other), Oracle(other), changed, tmp_path)
    assert done.read_bytes() == before


def test_a_journal_of_other_settings_is_refused(tmp_path: Path) -> None:
    RowJournal(tmp_path / "x.journal", {"seed": 1})
    with pytest.raises(ScopeRegError, match="another seed"):
        RowJournal(tmp_path / "x.journal", {"seed": 2})


def test_examples_do_not_depend_on_what_else_is_in_the_set() -> None:
    volumes = make_set()
    part = volumes.subset([2])
    for protocol in ("paper", "honest"):
        one = case_examples(volumes, 2, protocol, 3)  # type: ignore[arg-type]
        other = case_examples(part, 0, protocol, 3)  # type: ignore[arg-type]
        assert one.frames.equal(other.frames)
        assert one.poses.translation.equal(other.poses.translation)


def test_paper_examples_are_cut_from_the_reference_and_honest_ones_are_not() -> None:
    volumes = make_set(1)
    paper, honest = (case_examples(volumes, 0, protocol, 3) for protocol in ("paper", "honest"))  # type: ignore[arg-type]
    cut = sample_slice(paper.volume, *paper.poses)
    torch.testing.assert_close(paper.frames, cut, atol=0.5 / 255 + 1e-5, rtol=0)
    assert (honest.frames - cut).abs().mean() > 0.02
    assert honest.poses.translation.equal(paper.poses.translation)


def test_acquired_frames_are_the_honest_examples() -> None:
    volumes = make_set(2)
    poses = evaluation_poses(["a", "b"], volumes.shape, 3, frames=5)
    images = torch.randint(0, 256, (2, 5, 24, 24), dtype=torch.uint8)
    rotation, translation = (value.unflatten(0, (2, 5)) for value in poses)
    own = replace(volumes, frames=AcquiredFrames(images, rotation, translation))
    examples = case_examples(own, 1, "honest", 3)
    assert (examples.frames * 255).round().byte().equal(images[1, :4])
    assert examples.poses.translation.equal(translation[1, :4])


# methods


def test_a_network_and_simpleitk_answer_in_the_same_coordinates(tmp_path: Path) -> None:
    """An untrained network stays near the middle plane, SimpleITK finds a small shift."""
    volume = phantom.create("prostate", seed=1, shape=(16, 64, 64)).volume.array
    poses = VoxelPoses(torch.eye(3)[None], torch.tensor([[2.5, -1.5, 0.5]]))
    frames = sample_slice(volume, *poses)
    path = save_network(create("scope-reg"), tmp_path / "fresh.safetensors", name="scope-reg")
    (fresh,) = rows_of(str(path), frames, volume, poses)
    assert max(abs(number) for number in shift_of(fresh)) < 1.5
    assert fresh.time_ms > 0
    for name in ("simpleitk-mi", "simpleitk-ncc"):
        (itk,) = rows_of(name, frames, volume, poses)
        assert max(abs(found - true) for found, true in zip(shift_of(itk), (2.5, -1.5, 0.5), strict=True)) < 0.7
        assert math.isfinite(itk.similarity)
        assert math.isnan(itk.confidence)


def test_a_frame_that_cannot_be_located_counts_as_not_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the four gives up, one is black: both stay where they start, and the run goes on."""
    volumes = make_set(1)
    method = ClassicalMethod("simpleitk-ncc")
    usual, asked = method.peer.register, []

    def register(frame: Frame, volume: Volume, start: Pose | None, **options: Any) -> Result:
        asked.append(frame)
        if len(asked) == 2:
            raise RegistrationError("too far", where="simpleitk-ncc", fix="start nearer")
        return usual(Frame(0 * frame.array, 1.0) if len(asked) == 3 else frame, volume, start, **options)

    monkeypatch.setattr(method, "peer", method.peer._replace(register=register))
    rows, _ = read_results(evaluate(volumes, whole(volumes), method, PAPER, tmp_path))
    assert [row.similarity == row.similarity for row in rows] == [True, False, False, True]
    for row in rows[1:3]:
        assert row.mtre_mm == row.start_mm
        assert (row.found_tx, row.found_ty, row.found_tz, row.found_rx, row.found_ry, row.found_rz) == (0,) * 6
        assert row.time_ms >= 0


def test_what_is_wrong_with_the_call_still_stops_a_run() -> None:
    nowhere = VoxelPoses(torch.eye(3)[None], torch.zeros(1, 3))
    with pytest.raises(ScopeRegError, match=r"every value is 0\.5"):
        rows_of("simpleitk-mi", torch.rand(1, 16, 16), torch.full((8, 16, 16), 0.5), nowhere)


# the verb


def test_the_verb_evaluates_a_stored_set_and_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_set(make_set(10), tmp_path / "set")
    words = ["evaluate", "folder", "--data", str(tmp_path / "set"), "--methods", "identity", "--magnitudes", "2", "3"]
    assert main([*words, "-o", str(tmp_path / "out")]) == 0
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == [f"tiny-fold0-pm{pm}-{protocol}-identity.csv" for pm in (2, 3) for protocol in ("honest", "paper")]
    facts = json.loads((tmp_path / "out" / files[0]).read_text().splitlines()[0][2:])
    assert facts["settings"]["part"] == "test"
    said = capsys.readouterr().out
    rows, _ = read_results(tmp_path / "out" / files[0])
    far = tail([row.mtre_mm for row in rows])
    line = next(line.split() for line in said.splitlines() if line.split()[:3] == ["honest", "2", "identity"])
    assert line[5:7] == [f"{far.p95:.2f}", f"{far.maximum:.2f}"]  # the numbers of scopereg compare
    assert main(["evaluate", "echo", "--methods", "nothing"]) == 2
    assert main(["evaluate", "folder", "--methods", "identity"]) == 2
    assert capsys.readouterr().err.count("To fix it") == 2


def test_methods_go_on_from_each_others_poses() -> None:
    """From the middle plane, frames a voxel or two away: refined, or by a classical method, and both in a row."""
    volume = phantom.create("abdomen", seed=1, shape=(24, 64, 64)).volume.array
    turns = rotation_from_euler_deg(torch.tensor([[1.0, -1.5, 2.0], [0.0, 0.0, 0.0]]))
    shifts = torch.tensor([[1.0, -1.5, 1.0], [0.5, 0.5, -1.0]])
    frames = sample_slice(volume.expand(2, -1, -1, -1), turns, shifts)
    poses = VoxelPoses(turns, shifts)
    chain = {"identity+refine": "identity + refine", "identity+simpleitk-mi+refine": "identity + simpleitk-mi + refine"}
    for name, told in chain.items():
        method = create_method(name, "cpu")
        assert method.name == told
        for found, shift in zip(rows_of(name, frames, volume, poses), shifts, strict=True):
            assert (torch.tensor(shift_of(found)) - shift).norm() < 0.2
            assert found.similarity > 0.8
        assert "start" in method.facts
    classical, again = (rows_of(name, frames, volume, poses) for name in ("simpleitk-mi", "identity+simpleitk-mi"))
    for one, other in zip(classical, again, strict=True):
        assert shift_of(one) == pytest.approx(shift_of(other), abs=0.05)


def rows_of(method: str, frames: Tensor, volume: Tensor, poses: VoxelPoses) -> list[FrameResult]:
    """Rows of frames that lie at poses in a volume of 0.5 mm."""
    examples = CaseExamples(volume, None, frames, poses)
    answers = locate_case(create_method(method, "cpu"), examples, 0.5)
    return case_rows(Origin("set", "case", "patient", 0.5), method, PAPER, examples, answers)


def shift_of(row: FrameResult) -> tuple[float, float, float]:
    return row.found_tx, row.found_ty, row.found_tz
