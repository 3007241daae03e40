"""An adapted network has the verdicts of its base where they hold on held-out frames, and none where they do not."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import scopereg
from scopereg.data import phantom
from scopereg.networks.weights import SHIPPED
from scopereg.registration.calibration import STAGES, Calibration, Stage, path_beside, read_calibration
from scopereg.registration.confidence import features_of, fit
from scopereg.registration.model import Registrar
from scopereg.registration.result import Result
from scopereg.training.inherited import Held, inherited, located, made_on, remove_stale
from scopereg.training.scene import HeldOut, Scene

FRAMES = 16


@pytest.fixture(scope="module")
def registrar() -> Registrar:
    return replace(scopereg.load("universal", "cpu"), calibration=None)


@pytest.fixture(scope="module")
def held_out() -> HeldOut:
    patient = phantom.create("prostate", seed=300_000, shape=(32, 64, 64))
    scene = Scene.of(patient.volume, patient.volume.shape, 5, seed=77, device=torch.device("cpu"))
    return HeldOut.of(scene, FRAMES, seed=77, spacing_mm=patient.spacing_mm)


@pytest.fixture(scope="module")
def observed(registrar: Registrar, held_out: HeldOut) -> dict[Stage, list[tuple[float, Result]]]:
    """Results with their errors in voxels."""
    found = {stage: located(replace(registrar, observed=True), held_out, stage) for stage in STAGES}
    return {stage: [(error_mm / held_out.spacing_mm, one) for error_mm, one in rows] for stage, rows in found.items()}


def fitted(registrar: Registrar, observed: dict[Stage, list[tuple[float, Result]]], times: float) -> Calibration:
    """A calibration on frames like the held-out ones, whose errors were so many times as large."""
    models, draw = {}, np.random.default_rng(0)
    for stage, rows in observed.items():
        features = np.array([[*result.features.values()] for _, result in rows]).repeat(10, 0)
        features = features + draw.normal(0, 0.3, features.shape)
        errors = times * np.array([error for error, _ in rows]).repeat(10)
        patients = [f"patient {row}" for row in range(len(features))]
        models[stage] = fit(features_of(registrar.fine is not None), features, errors, patients)
    return Calibration("of the base", {"words": "60 phantoms"}, models)


def test_a_calibration_that_holds_is_inherited_and_says_from_what(
    registrar: Registrar, held_out: HeldOut, observed: dict[Stage, list[tuple[float, Result]]]
) -> None:
    known = fitted(registrar, observed, 3.0)
    own, words = inherited(registrar, "mine", known, held_out)
    assert own is not None, words
    assert own.model == registrar.fingerprint
    assert own.words == "60 phantoms, inherited from mine"
    assert own.error_models == known.error_models
    counted = {stage: Held(**counts) for stage, counts in own.made_on["held_out"].items()}
    assert counted.keys() == observed.keys()
    assert all(one.frames == FRAMES for one in counted.values())
    assert f"refined: {counted['refined'].words}" in words


def test_the_first_who_had_it_is_named() -> None:
    known = Calibration("of the base", {"words": "60 phantoms", "magnitude": 15.0}, {})
    once = replace(known, model="of mine", made_on=made_on(known, "universal"))
    twice = replace(once, made_on=made_on(once, "mine"))
    assert once.words == twice.words == "60 phantoms, inherited from universal"
    assert once.made_on["inherited_from"] == {"name": "universal", "model": "of the base"}
    assert twice.made_on == once.made_on
    assert once.made_on["magnitude"] == 15.0


def test_one_that_promises_too_much_is_not(
    registrar: Registrar, held_out: HeldOut, observed: dict[Stage, list[tuple[float, Result]]]
) -> None:
    own, words = inherited(registrar, "mine", fitted(registrar, observed, 0.05), held_out)
    assert own is None
    assert "does not hold" in words
    assert "not judged" in words


def test_few_frames_tell_nothing(registrar: Registrar, held_out: HeldOut) -> None:
    few = held_out._replace(batches=tuple(one._replace(slices=one.slices[:8]) for one in held_out.batches))
    own, words = inherited(registrar, "mine", Calibration("of the base", {}, {}), few)
    assert own is None
    assert "8 held-out frames do not tell" in words
    assert "not judged" in words


def test_a_calibration_of_weights_before_goes(tmp_path: Path) -> None:
    weights = tmp_path / "patient.safetensors"
    assert not remove_stale(weights, "a")
    shutil.copy(path_beside(Path(str(SHIPPED)) / "universal.safetensors"), path_beside(weights))
    assert not remove_stale(weights, read_calibration(path_beside(weights)).model)
    assert path_beside(weights).is_file()
    assert remove_stale(weights, "of others")
    path_beside(weights).write_text("{}", encoding="utf-8")
    assert remove_stale(weights, "of others")
    assert not path_beside(weights).exists()


@pytest.mark.parametrize(
    ("counts", "holds"),
    [
        ((32, 32, 31, 20, 1), True),
        ((32, 32, 28, 20, 0), False),  # bounds that do not hold
        ((32, 32, 32, 20, 2), False),  # frames that are ok and wrong
        ((15, 15, 15, 15, 0), False),  # too few to tell
        ((40, 19, 19, 10, 0), False),  # most have no bound
        ((32, 0, 0, 0, 0), False),
    ],
)
def test_when_it_holds(counts: tuple[int, int, int, int, int], holds: bool) -> None:
    assert Held(*counts).holds == holds
