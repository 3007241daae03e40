"""What is evaluated is what ships: the same frame by `scopereg.register` and by the runner, to the last bit."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import scopereg
from scopereg.data import phantom
from scopereg.data.examples import CaseExamples, case_examples
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.splits import Split
from scopereg.data.store import VolumeSet
from scopereg.evaluation import runner
from scopereg.evaluation.results import read_results
from scopereg.evaluation.runner import Answers, EvaluateSettings, evaluate
from scopereg.geometry import VoxelPoses, sample_poses
from scopereg.images import Frame, Volume, pose_to_voxels
from scopereg.networks.weights import fine_beside
from scopereg.registration import method as methods
from scopereg.registration.locator import Locator
from scopereg.registration.method import create, register_method
from scopereg.registration.prepared import Identity
from scopereg.registration.result import Result

SETTINGS = EvaluateSettings("honest", magnitude=6, frames=2)
ONE = Split((), (), (0,), "one")


@pytest.fixture(scope="module")
def volumes() -> VolumeSet:
    return make_phantoms("echo", 1, seed=200_001, frames=2, magnitude=6.0, device="cpu")


@pytest.fixture(scope="module")
def uncalibrated(narrow_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network as somebody would have trained it, with nothing beside the weights."""
    return Path(shutil.copy(narrow_file, tmp_path_factory.mktemp("weights") / "plain.safetensors"))


def shipped(name: str, examples: CaseExamples, spacing_mm: float) -> list[Result]:
    """What `register` gives for each frame by itself, with nothing added to the name."""
    volume = Volume(examples.volume, spacing_mm)
    frames = [Frame(image, spacing_mm=spacing_mm) for image in examples.frames]
    return [scopereg.register(frame, volume, method=name, refine=False, device="cpu") for frame in frames]


def same(one: Any, other: Any) -> bool:
    """Equal, or NaN both."""
    return bool(one == other or (one != one and other != other))


@pytest.mark.parametrize(
    "name",
    [
        "narrow",
        "plain",
        "narrow+refine",
        "plain+refine",
        "narrow:wide+refine",
        "narrow:2",
        "simpleitk-mi",
        "universal",
        "start",
    ],
)
def test_a_frame_alone_is_found_alike_to_the_last_bit(
    volumes: VolumeSet,
    narrow_file: Path,
    uncalibrated: Path,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = name.replace("plain", str(uncalibrated)).replace("narrow", str(narrow_file))
    kept: list[Answers] = []
    locate_case = runner.locate_case

    def keep(*case: Any) -> Answers:
        kept.append(locate_case(*case))
        return kept[-1]

    monkeypatch.setattr(runner, "locate_case", keep)
    settings = EvaluateSettings("honest", magnitude=6, frames=1)
    (row,), _ = read_results(evaluate(volumes, ONE, create(name, "cpu"), settings, tmp_path))
    ((found,),) = (answers.found for answers in kept)
    assert isinstance(found, Result)
    examples = case_examples(volumes, 0, "honest", 6, frames=1)
    (wanted,) = shipped(name, examples, volumes.spacing_mm)
    assert found.pose.matrix.tolist() == wanted.pose.matrix.tolist()
    for part in ("similarity", "confidence", "expected_mm", "bound_mm", "belongs", "ok", "reason", "method"):
        assert same(getattr(found, part), getattr(wanted, part)), part
    assert found.features == wanted.features
    volume, (frame,) = runner.images_of(examples, volumes.spacing_mm)
    _, translation = pose_to_voxels(wanted.pose, frame, volume)
    assert (row.found_tx, row.found_ty, row.found_tz) == tuple(float(f"{number:.6g}") for number in translation)
    assert row.similarity == float(f"{wanted.similarity:.6g}")
    assert same(row.confidence, float(f"{wanted.confidence:.6g}"))
    assert row.ok == {None: "", True: "yes", False: "no"}[wanted.ok]
    assert same(row.expected_mm, float(f"{wanted.expected_mm:.6g}"))


def test_frames_of_a_case_are_given_together_and_the_volume_is_prepared_once(
    volumes: VolumeSet, narrow_file: Path
) -> None:
    examples = case_examples(volumes, 0, "honest", 6, frames=2)
    asked: list[str] = []
    name = f"{narrow_file}+refine"
    method = create(name, "cpu")
    prepare = method.prepare

    def counted(volume: Volume) -> Any:
        prepared = prepare(volume)
        locate = prepared.locate
        asked.append("prepare")

        def located(frames: Any, starts: Any) -> Any:
            asked.append(f"{len(frames)} frames")
            return locate(frames, starts)

        prepared.locate = located  # type: ignore[method-assign]
        return prepared

    method.prepare = counted  # type: ignore[method-assign]
    answers = runner.locate_case(method, examples, volumes.spacing_mm)
    assert asked == ["prepare", "2 frames"]
    frames = [Frame(image, spacing_mm=volumes.spacing_mm) for image in examples.frames]
    together = Locator(Volume(examples.volume, volumes.spacing_mm), name, device="cpu").locate_all(frames)
    for one, other in zip(answers.found, together, strict=True):
        assert isinstance(one, Result)
        assert isinstance(other, Result)
        assert one.pose.matrix.tolist() == other.pose.matrix.tolist()
        assert one.verdict == other.verdict


def test_what_nobody_calibrated_has_neither_verdict_nor_confidence(
    volumes: VolumeSet, narrow_file: Path, tmp_path: Path
) -> None:
    examples = case_examples(volumes, 0, "honest", 6, frames=1)
    uncalibrated = Path(shutil.copy(narrow_file, tmp_path / "plain.safetensors"))
    shutil.copy(fine_beside(narrow_file), fine_beside(uncalibrated))
    plain, judged = (
        runner.locate_case(create(name, "cpu"), examples, volumes.spacing_mm)
        for name in (str(uncalibrated), str(narrow_file))
    )
    assert (plain.judged, judged.judged) == (False, True)
    ((one,), (other,)) = plain.found, judged.found
    assert isinstance(one, Result)
    assert isinstance(other, Result)
    assert one.ok is None
    assert math.isnan(one.confidence)
    assert one.reason.startswith("not judged: ")
    assert one.pose.is_close(other.pose, mm=1e-2, deg=1e-2)


def test_a_volume_of_other_voxels_is_resampled_as_register_does(narrow_file: Path) -> None:
    """A network knows one voxel size: with smaller voxels the evaluation finds what register finds."""
    patient = phantom.create("echo", seed=200_001)
    fine = patient.volume.resampled(patient.spacing_mm * 0.8)
    poses = sample_poses(1, 6, patient.shape, torch.Generator().manual_seed(3))
    image = patient.acquire(*poses, protocol="same-scanner", seed=3).images[0]
    frame = Frame(image, patient.spacing_mm).resampled(patient.spacing_mm * 0.8)
    examples = CaseExamples(fine.array, None, frame.array[None], VoxelPoses(poses.rotation, poses.translation / 0.8))
    (found,) = runner.locate_case(create(str(narrow_file), "cpu"), examples, fine.isotropic_spacing_mm).found
    (wanted,) = shipped(str(narrow_file), examples, fine.isotropic_spacing_mm)
    assert isinstance(found, Result)
    assert found.pose.matrix.tolist() == wanted.pose.matrix.tolist()
    origin = runner.Origin("set", "case", "patient", fine.isotropic_spacing_mm)
    answers = Answers([found], judged=True)
    (row,) = runner.case_rows(origin, "narrow", SETTINGS, examples, answers)
    assert row.mtre_mm < 3


def test_a_method_of_one_s_own_is_evaluated_by_its_name(
    volumes: VolumeSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "_FIRSTS", dict(methods._FIRSTS))

    class Lazy(Identity):
        def __init__(self) -> None:
            super().__init__()
            self.name, self.facts = "lazy", {"effort": 0}

    register_method("lazy", lambda device: Lazy())
    path = evaluate(volumes, ONE, create("lazy"), SETTINGS, tmp_path)
    rows, facts = read_results(path)
    assert {row.method for row in rows} == {"lazy"}
    assert [row.mtre_mm for row in rows] == [row.start_mm for row in rows]
    assert facts["method_facts"] == {"effort": 0}
    refined, _ = read_results(evaluate(volumes, ONE, create("lazy+refine", "cpu"), SETTINGS, tmp_path))
    assert {row.method for row in refined} == {"lazy + refine"}
