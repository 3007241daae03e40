"""A wide search finds frames that are farther off than those that a network was trained for."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import scopereg
from scopereg import io
from scopereg.cli import main
from scopereg.commands.evaluate import _lost, _means
from scopereg.data import phantom
from scopereg.data.examples import CaseExamples
from scopereg.errors import ScopeRegError
from scopereg.evaluation.results import is_failure
from scopereg.evaluation.runner import EvaluateSettings, Origin, case_rows, locate_case
from scopereg.geometry import Pose, VoxelPoses, sample_poses
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.networks import create
from scopereg.networks.weights import save_network
from scopereg.registration.locator import Locator
from scopereg.registration.method import create as create_method
from scopereg.registration.model import Registrar
from scopereg.registration.result import Result, apart_mm
from scopereg.registration.search import StartOptions, Windows, starts
from scopereg.registration.session import Session
from scopereg.registration.settings import SearchSettings


class Far(NamedTuple):
    volume: Volume
    frame: Frame
    true: Pose
    image: torch.Tensor


@pytest.fixture(scope="module")
def far() -> Far:
    """A frame that a network alone does not find: up to 18 voxels of twice the usual size, and as many degrees off."""
    patient = phantom.create("echo", seed=200_003, shape=(32, 64, 64))
    poses = sample_poses(4, 18, patient.shape, torch.Generator().manual_seed(1))
    image = patient.acquire(*poses, seed=1).images[3]
    frame = Frame(image, spacing_mm=patient.spacing_mm)
    true = pose_from_voxels(poses.rotation[3], poses.translation[3], frame, patient.volume)
    return Far(patient.volume, frame, true, image)


@pytest.fixture(scope="module")
def known() -> list[Result]:
    """What a network has found in a search for the frame."""
    return []


@pytest.fixture
def searches(known: list[Result], monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    """What searches gave; where one test has searched, which takes a while, the other is given the same."""
    given: list[Result] = []
    search = Session.search

    def remembered(self: Session, *arguments: Any, **named: Any) -> Result:
        if not known:
            known.append(search(self, *arguments, **named))
        given.append(known[0])
        return known[0]

    monkeypatch.setattr(Session, "search", remembered)
    return given


def test_starts_lie_on_both_sides_of_the_middle_on_every_axis() -> None:
    poses = starts(StartOptions(shift_voxels=5, turn_deg=90))
    assert torch.equal(poses.rotation[0], torch.eye(3))
    assert poses.translation.sum(0).abs().max() == 0
    assert poses.translation.norm(dim=1).tolist() == [0, *[5] * 6, *[0] * 6]
    assert (poses.rotation.diagonal(dim1=1, dim2=2).sum(1) - 1).round().tolist() == [2] * 7 + [0] * 6  # 2 cos
    assert (
        len({tuple(row) for row in torch.cat([poses.rotation.flatten(1), poses.translation], 1).round().tolist()}) == 13
    )


def test_what_a_network_alone_does_not_find_is_found(narrow: Registrar, far: Far, searches: list[Result]) -> None:
    alone = Locator(far.volume, narrow).locate(far.frame)
    assert apart_mm(far.frame, alone.pose, far.true) > 10
    assert alone.alternatives == ()
    wide = Locator(far.volume, narrow, wide=True).locate(far.frame)
    assert apart_mm(far.frame, wide.pose, far.true) < 6
    places = (wide, *wide.alternatives)
    assert 1 <= len(places) <= SearchSettings().kept
    assert 0 <= wide.stands_out <= 1
    assert wide.evidence is not None
    assert len(searches) == 1


def test_without_features_the_place_that_is_most_alike_once_refined_is_taken(bare: Registrar, far: Far) -> None:
    """In whatever order the places come."""
    prepared = Locator(far.volume, bare, wide=True, refine=True).prepared
    (found,) = prepared.before.locate([far.frame], [None])  # type: ignore[attr-defined]
    places = (found, *found.alternatives)
    assert 1 < len(places) <= StartOptions().kept
    assert all(one.similarity >= other.similarity for one, other in pairwise(places))
    apart = [apart_mm(far.frame, one.pose, other.pose) for n, one in enumerate(places) for other in places[:n]]
    assert min(apart) > StartOptions().apart_mm
    assert math.isnan(found.stands_out)
    worst, *others = reversed(places)
    best, again = (
        prepared._best_refined(far.frame, one)  # type: ignore[attr-defined]
        for one in (found, replace(worst, alternatives=tuple(others)))
    )
    assert apart_mm(far.frame, best.pose, far.true) < 4
    assert all(best.similarity >= other.similarity for other in best.alternatives)
    assert again.pose.is_close(best.pose, mm=1e-3, deg=1e-3)


def test_wide_within_the_range_of_the_training_is_as_good(narrow: Registrar) -> None:
    patient = phantom.create("echo", seed=200_003)
    poses = sample_poses(2, 8, patient.shape, torch.Generator().manual_seed(0))
    locator = Locator(patient.volume, narrow, wide=True)
    for row, image in enumerate(patient.acquire(*poses, seed=0).images):
        frame = Frame(image, spacing_mm=patient.spacing_mm)
        true = pose_from_voxels(poses.rotation[row], poses.translation[row], frame, patient.volume)
        assert apart_mm(frame, locator.locate(frame).pose, true) < 4


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Windows, Frame]]:
    """What windows were searched for; who asks for the same again is given the same, without the search."""
    asked: list[tuple[Windows, Frame]] = []
    given: list[Result] = []
    search = Windows.search

    def remembered(self: Windows, frame: Frame, **named: Any) -> Result:
        assert not named
        if not given:
            given.append(search(self, frame))
        asked.append((self, frame))
        return given[0]

    monkeypatch.setattr(Windows, "search", remembered)
    return asked


@pytest.mark.slow
def test_from_the_command_line_and_in_three_lines(
    far: Far, tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[tuple[Windows, Frame]]
) -> None:
    io.write_volume(far.volume, tmp_path / "volume.nii.gz")
    io.write_frame(far.frame, tmp_path / "frame.nii.gz")
    words = ["register", str(tmp_path / "frame.nii.gz"), str(tmp_path / "volume.nii.gz"), "--wide", "--no-fallback"]
    assert main([*words, "-o", str(tmp_path / "pose.json"), "--device", "cpu"]) == 0
    assert "refined" in capsys.readouterr().out
    found = Pose.load(tmp_path / "pose.json")
    assert apart_mm(far.frame, found, far.true) < 4
    result = scopereg.register(far.frame, far.volume, wide=True, fallback=False, device="cpu")
    assert apart_mm(far.frame, result.pose, found) < 0.5
    (there, frame), (here, same) = asked
    assert there.model.name == here.model.name
    assert torch.equal(frame.array, same.array)
    assert torch.equal(there.volume.array, here.volume.array)


def test_as_a_method_of_the_evaluation(far: Far, narrow_file: Path) -> None:
    method = create_method(f"{narrow_file}:wide+refine", "cpu")
    assert method.name == "narrow wide + refine"
    nowhere = VoxelPoses(torch.eye(3)[None], torch.zeros(1, 3))
    examples = CaseExamples(far.volume.array, None, far.image[None], nowhere)
    answers = locate_case(method, examples, far.volume.isotropic_spacing_mm)
    (found,) = answers.found
    assert isinstance(found, Result)
    assert apart_mm(far.frame, found.pose, far.true) < 4
    assert answers.judged
    assert found.ok is not None


@pytest.mark.parametrize("rest", [":wide", ":wide+simpleitk-ncc", ":wide+refine+refine"])
def test_a_frame_that_cannot_be_located_does_not_end_an_evaluation(
    far: Far, searches: list[Result], narrow_file: Path, rest: str
) -> None:
    """A black frame among others: it has no pose and no number, a reason, and counts as a failure."""
    name, frames = f"{narrow_file}{rest}", torch.stack([torch.zeros_like(far.image), far.image])
    spacing_mm = far.volume.isotropic_spacing_mm
    true = VoxelPoses(torch.eye(3).repeat(2, 1, 1), torch.zeros(2, 3))  # the middle plane, where a lost frame is not
    examples = CaseExamples(far.volume.array, None, frames, true)
    found = locate_case(create_method(name, "cpu"), examples, spacing_mm)
    assert len(searches) == 1
    assert [isinstance(one, ScopeRegError) for one in found.found] == [True, False]
    black, good = case_rows(Origin("set", "case", "patient", spacing_mm), name, EvaluateSettings(), examples, found)
    assert "every value is 0" in black.failure
    assert all(math.isnan(value) for value in (black.mtre_mm, black.ncc, black.found_tx, black.found_rz))
    assert is_failure(black, 1e9)
    assert black.ok == ("" if name.endswith("ncc") else "no")
    assert black.time_ms >= 0
    assert not good.failure
    assert math.isfinite(good.mtre_mm)
    means = _means([black, good])
    assert (means["frames"], means["lost"], means["mean_mm"]) == (2, 1, good.mtre_mm)
    assert means["within"] in (0.0, 0.5)
    assert _lost([[black, good]]) == [f"{name} did not locate 1 frames: {black.failure}"]


def test_what_cannot_look_widely_says_so(narrow: Registrar, far: Far, tmp_path: Path) -> None:
    for method in ("simpleitk-mi", "start"):
        with pytest.raises(ScopeRegError, match="begins where it is told to"):
            Locator(far.volume, method, wide=True)
    with pytest.raises(ScopeRegError, match="all over the volume"):
        Locator(far.volume, narrow, wide=True).locate(far.frame, far.true)
    save_network(create("ssvf-heads"), tmp_path / "heads.safetensors", name="ssvf-heads")
    with pytest.raises(ScopeRegError, match="cannot start anywhere else"):
        scopereg.load(tmp_path / "heads.safetensors", "cpu").prepare(far.volume).search(far.frame)
    session = narrow.prepare(far.volume)
    session.close()
    with pytest.raises(ScopeRegError, match="closed"):
        session.search(far.frame)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_finds_the_same_place(far: Far) -> None:
    cpu, gpu = (
        Locator(far.volume, "universal", wide=True, refine=True, device=device).locate(far.frame)
        for device in ("cpu", "cuda")
    )
    assert apart_mm(far.frame, cpu.pose, gpu.pose) < 0.5
