"""An adapted network has the verdicts of its base where they hold on held-out frames, and none where they do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import scopereg
from scopereg.data import phantom
from scopereg.registration.calibration import STAGES, Calibration
from scopereg.registration.confidence import features_of, fit
from scopereg.registration.model import Registrar
from scopereg.training.inherited import Held, held, inherited, located
from scopereg.training.scene import HeldOut, Scene

FRAMES = 6


@pytest.fixture(scope="module")
def registrar() -> Registrar:
    return replace(scopereg.load("universal", "cpu"), calibration=None)


@pytest.fixture(scope="module")
def held_out() -> HeldOut:
    patient = phantom.create("prostate", seed=300_000, shape=(32, 64, 64))
    scene = Scene.of(patient.volume, patient.volume.shape, 5, seed=77, device=torch.device("cpu"))
    return HeldOut.of(scene, FRAMES, seed=77, spacing_mm=patient.spacing_mm)


def fitted(registrar: Registrar, held_out: HeldOut, times: float) -> Calibration:
    """A calibration on frames like the held-out ones, whose errors were so many times as large."""
    models, draw = {}, np.random.default_rng(0)
    for stage in STAGES:
        rows = list(located(replace(registrar, observed=True), held_out, stage))
        features = np.array([[*result.features.values()] for _, result in rows]).repeat(10, 0)
        features = features + draw.normal(0, 0.3, features.shape)
        errors = times * np.array([error_mm / held_out.spacing_mm for error_mm, _ in rows]).repeat(10)
        patients = [f"patient {row}" for row in range(len(features))]
        models[stage] = fit(features_of(registrar.fine is not None), features, errors, patients)
    return Calibration("of the base", {"words": "60 phantoms"}, models)


def test_a_calibration_that_holds_is_inherited_and_says_from_what(registrar: Registrar, held_out: HeldOut) -> None:
    known = fitted(registrar, held_out, 3.0)
    own, words = inherited(registrar, known, held_out)
    assert own is not None, words
    assert own.model == registrar.fingerprint
    assert own.words == "60 phantoms, before it was adapted to one volume"
    counted = own.made_on["inherited"]["held_out"]["refined"]
    assert Held(**counted) == held(replace(registrar, calibration=own), held_out, "refined")
    assert f"refined: {Held(**counted).words}" in words


def test_one_that_promises_too_much_is_not(registrar: Registrar, held_out: HeldOut) -> None:
    own, words = inherited(registrar, fitted(registrar, held_out, 0.05), held_out)
    assert own is None
    assert "does not hold" in words
    assert "not judged" in words


@pytest.mark.parametrize(
    ("counts", "holds"),
    [
        ((32, 32, 31, 20, 1), True),
        ((32, 32, 28, 20, 0), False),  # bounds that do not hold
        ((32, 32, 32, 20, 2), False),  # frames that are ok and wrong
        ((32, 15, 15, 10, 0), False),  # most have no bound
        ((32, 0, 0, 0, 0), False),
    ],
)
def test_when_it_holds(counts: tuple[int, int, int, int, int], holds: bool) -> None:
    assert Held(*counts).holds == holds
