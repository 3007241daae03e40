"""`scopereg calibrate`: what it observes, what it writes, and one calibration for several datasets."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from synthetic_features import synthetic

import scopereg
from scopereg.cli import main
from scopereg.commands import calibrate as verb
from scopereg.commands.calibrate import CalibrateOptions
from scopereg.data.examples import case_examples
from scopereg.data.phantom import sets as phantom_sets
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.store import VolumeSet
from scopereg.data.worlds import sets
from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, mtre_mm
from scopereg.images import Frame, pose_to_voxels
from scopereg.networks.weights import SHIPPED
from scopereg.registration import calibrate
from scopereg.registration.calibration import path_beside, read_calibration
from scopereg.registration.confidence import QUALITY_FEATURES
from scopereg.registration.locator import Locator
from scopereg.registration.method import refined
from scopereg.registration.model import Registrar
from scopereg.registration.network import NetworkMethod
from scopereg.registration.result import Result
from scopereg.registration.strangers import strangers_of
from scopereg.registration.working_grid import KnownSizes

SHAPE = (32, 64, 64)


@pytest.fixture
def alone(narrow_file: Path, tmp_path: Path) -> Path:
    """Weights with no fine stage and no calibration beside them."""
    return Path(shutil.copy(narrow_file, tmp_path / "alone.safetensors"))


def observed(
    model: Registrar, likenesses: Sequence[str] = ("grey",)
) -> tuple[calibrate.ObservedCase, list[Frame], VoxelPoses]:
    """A case of a phantom, its frames and where they lie."""
    volumes = make_phantoms("echo", 1, seed=200_001, frames=2, magnitude=4, shape=SHAPE)
    examples = case_examples(volumes, 0, "honest", 4, frames=2)
    frames = [Frame(image, spacing_mm=volumes.spacing_mm) for image in examples.frames]
    case = calibrate.ObservedCase(model, examples.volume, volumes.spacing_mm, likenesses, "echo")
    return case, frames, examples.poses


def test_a_case_is_observed_at_both_stages_and_so_are_strangers(bare: Registrar) -> None:
    case, frames, poses = observed(bare)
    strange = [frame for _, frame in strangers_of(frames[0], frames[1], 0, 2, torch.Generator().manual_seed(0))]
    seen = case.observe(frames, poses, "one", strange)
    assert seen.features["network"].shape == seen.features["refined"].shape == (2, len(QUALITY_FEATURES))
    assert (seen.features["network"][:, :3] == seen.features["refined"][:, :3]).all()
    assert (seen.features["network"][:, 3:5] != seen.features["refined"][:, 3:5]).all()
    assert (seen.errors["network"] > 0).all()
    assert (seen.patients, seen.groups) == (("one", "one"), ("echo", "echo"))
    assert seen.voxels_mm == pytest.approx([0.616, 0.616])
    assert seen.strangers["network"].shape == seen.strangers["refined"].shape == (3, len(QUALITY_FEATURES))
    both = calibrate.together([seen, seen])
    assert both.features["network"].shape == (4, len(QUALITY_FEATURES))
    assert both.strangers["refined"].shape == (6, len(QUALITY_FEATURES))


def test_what_is_calibrated_is_what_ships(narrow: Registrar, narrow_file: Path) -> None:
    """Features and errors are those of the results that `register` gives for these frames, which it judges by them."""
    case, frames, poses = observed(narrow)
    seen = case.observe(frames, poses, "one")
    spacing_mm = case.volume.isotropic_spacing_mm
    for stage in ("network", "refined"):
        locator = Locator(case.volume, str(narrow_file), refine=stage == "refined", device="cpu")
        for row, result in enumerate(locator.locate_all(frames)):
            assert isinstance(result, Result)
            assert [*result.features.values()] == seen.features[stage][row].tolist()
            assert result.ok is not None
            where = pose_to_voxels(result.pose, frames[row], case.volume)
            one = VoxelPoses(where.rotation[None], where.translation[None])
            true = VoxelPoses(*(part[row : row + 1] for part in poses))
            error_mm = mtre_mm(one, true, frames[row].shape, spacing_mm)
            assert float(error_mm) == pytest.approx(seen.errors[stage][row] * seen.voxels_mm[row], abs=1e-5)


def made_up(factor: float = 1.0, name: str = "echo") -> calibrate.Observed:
    """Frames of one kind of data; the network's errors are `factor` times the refined ones."""
    features, errors, patients = synthetic(120, 5)
    both = {"network": features, "refined": features}
    named = tuple(f"{name}{patient}" for patient in patients)
    strange = dict.fromkeys(both, features[:0])
    return calibrate.Observed(
        both, {"network": factor * errors, "refined": errors}, np.ones(120), named, (name,) * 120, strange
    )


def test_the_verb_writes_a_calibration_of_the_model(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it observes is tested above; here is what becomes of it."""
    monkeypatch.setattr(calibrate, "observe", lambda *_, **__: made_up(2.0))
    monkeypatch.setattr(
        phantom_sets, "make_phantoms", lambda *_, **__: make_phantoms("echo", 1, frames=1, shape=(16, 32, 32))
    )
    target = tmp_path / "new" / "alone.calibration.json"
    assert main(["calibrate", str(alone), "echo", "-o", str(target), "--device", "cpu"]) == 0
    assert "120 frames" in capsys.readouterr().out
    made = read_calibration(target)
    made.check_model(scopereg.load(alone, device="cpu").fingerprint, target)
    assert made.made_on["frames"] == 120
    refined, plain = (made.error_models[stage].expected_voxels([0.0] * 5) for stage in ("refined", "network"))
    assert refined / plain == pytest.approx(0.5, rel=1e-3)


def test_weights_with_a_calibration_of_others_beside_them_are_calibrated_anew(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New weights under an old name: loading them is refused, and the advice is to calibrate."""
    shutil.copy(SHIPPED / "universal.calibration.json", path_beside(alone))
    with pytest.raises(ScopeRegError, match="of another model"):
        scopereg.load(alone, device="cpu")
    monkeypatch.setattr(calibrate, "observe", lambda *_, **__: made_up())
    monkeypatch.setattr(
        phantom_sets, "make_phantoms", lambda *_, **__: make_phantoms("echo", 1, frames=1, shape=(16, 32, 32))
    )
    assert main(["calibrate", str(alone), "echo", "--device", "cpu"]) == 0
    assert scopereg.load(alone, device="cpu").calibration is not None


def test_one_calibration_rests_on_several_datasets(
    alone: Path, bare: Registrar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One fit over the frames of all of them; the file tells the parts."""

    def seen(registrar: Registrar, volumes: VolumeSet, *_: object, **__: object) -> calibrate.Observed:
        return made_up(1.0 if volumes.name == "echo" else 3.0, volumes.name)

    def small(name: str, *_: object, **__: object) -> VolumeSet:
        return make_phantoms(name, 1, frames=1, magnitude=2, shape=(16, 32, 32))

    monkeypatch.setattr(calibrate, "observe", seen)
    monkeypatch.setattr(phantom_sets, "make_phantoms", small)
    target, datasets = tmp_path / "all.calibration.json", ("echo", "prostate", "abdomen")
    assert main(["calibrate", str(alone), *datasets, "-o", str(target), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "360 frames" in said
    assert "  prostate  network" in said
    made = read_calibration(target)
    assert made.made_on["dataset"] == " + ".join(datasets)
    assert (made.made_on["cases"], made.made_on["frames"]) == (3, 360)
    assert [part["dataset"] for part in made.made_on["parts"]] == list(datasets)
    assert made.synthetic
    single = calibrate.calibrate(bare, seen(bare, small("echo")), {})
    pooled, own = (one.error_models["network"].expected_voxels([0.0] * 5) for one in (made, single))
    assert own < pooled < 3 * own
    for wrong in (["echo", "echo"], ["camus", "muregpro"]):
        assert main(["calibrate", str(alone), *wrong, "-o", str(target)]) == 2
        assert "name each dataset once" in capsys.readouterr().err


def test_poses_refined_by_other_likenesses_get_verdicts_where_these_are_named(
    narrow: Registrar, narrow_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is observed by them is tested below; here is what becomes of it."""
    named: list[tuple[str, ...]] = []

    def seen(*_: object, likenesses: tuple[str, ...], **__: object) -> calibrate.Observed:
        named.append(likenesses)
        told, worse = made_up(), made_up(3.0)
        both = {**told.features, "refined=learned": told.features["refined"]}
        errors = {**told.errors, "refined=learned": worse.errors["network"]}
        return told._replace(features=both, errors=errors, strangers=dict.fromkeys(both, told.strangers["refined"]))

    monkeypatch.setattr(calibrate, "observe", seen)
    weights = Path(shutil.copy(narrow_file, tmp_path / "mine.safetensors"))
    how = [str(weights), "echo", "--count", "1", "--device", "cpu", "--likenesses", "grey", "learned"]
    assert main(["calibrate", *how]) == 0
    assert named == [("grey", "learned")]
    models = read_calibration(path_beside(weights)).error_models
    by_grey, by_features = (models[stage].expected_voxels([0.0] * 5) for stage in ("refined", "refined=learned"))
    assert by_features / by_grey == pytest.approx(3, rel=1e-3)


def test_a_pose_is_judged_by_what_its_likeness_was_calibrated_for(narrow: Registrar) -> None:
    case, frames, poses = observed(replace(narrow, calibration=None), ("grey", "learned"))
    seen = case.observe(frames, poses, "one")
    assert [*seen.errors] == ["network", "refined", "refined=learned"]
    known = narrow.calibration
    assert known is not None
    both = replace(known, error_models={**known.error_models, "refined=learned": known.error_models["network"]})
    without = replace(known, error_models={stage: both.error_models[stage] for stage in ("network", "refined")})
    for calibration, judges in ((both, True), (without, False)):
        method = refined(NetworkMethod(replace(narrow, calibration=calibration)), "learned", "cpu")
        (result,) = Locator(case.volume, method).locate_all(frames[:1])
        assert isinstance(result, Result)
        assert (result.ok is not None) == judges
        if judges:
            of_learned, of_grey = (seen.features[stage][0] for stage in ("refined=learned", "refined"))
            assert [*result.features.values()] == pytest.approx(of_learned, abs=1e-3)
            assert [*result.features.values()] != pytest.approx(of_grey, abs=1e-3)


@pytest.mark.parametrize("wrong", [["learned"], ["grey", "grey"], ["grey", "odd"]])
def test_likenesses_are_named_once_and_grey_among_them(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "universal", "-o", "a.calibration.json", "--likenesses", *wrong]) == 2
    assert "name grey, and once each what else is known: grey, learned" in capsys.readouterr().err


def test_worlds_are_drawn_in_the_shape_that_the_network_is_given(
    narrow: Registrar, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, Any]] = []
    monkeypatch.setattr(sets, "make_worlds", lambda count, **how: drawn.append(how) or make_phantoms("echo", count))
    many = replace(narrow, facts={"grid": KnownSizes((64, 96), (32, 96), 20.0).facts})
    for model in (narrow, many):
        assert verb._load("worlds", model, CalibrateOptions(dataset=("worlds",), count=1)).name == "all"
    assert [how["shape"] for how in drawn] == [(32, 128, 128), (48, 96, 96)]
    assert (drawn[0]["seed"], drawn[0]["frames"], drawn[0]["magnitude"]) == (30_000, 4, 10.0)


def test_the_verb_wants_a_name_that_is_found_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "universal", "echo"]) == 2
    assert "pass -o NAME.calibration.json" in capsys.readouterr().err
    assert main(["calibrate", "universal", "echo", "-o", "universal.json"]) == 2
    assert "must end in .calibration.json" in capsys.readouterr().err
