"""Calibrate: what the signs of a model say of its errors, learnt from frames whose pose is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from scopereg.data.examples import CaseExamples, case_examples
from scopereg.data.store import VolumeSet
from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, mtre_mm
from scopereg.registration.calibration import STAGES, Calibration, Stage, key, signs_of
from scopereg.registration.confidence import CLOSE_MM, LIKENESS, Array, fit
from scopereg.registration.model import Registrar
from scopereg.registration.refine import Refiner
from scopereg.registration.working_grid import case_on_grid

PROTOCOL: Literal["honest"] = "honest"


class Observed(NamedTuple):
    """Frames with their signs and, where the truth is known, their errors: of the network, and after refinement."""

    signs: dict[Stage, Array]  # (N, 6)
    errors_mm: dict[Stage, Array]  # (N,); NaN where there is no truth
    patients: tuple[str, ...]


def check_signs(registrar: Registrar) -> None:
    """An error for a network that shows none."""
    if registrar.streaming is None:
        raise ScopeRegError(
            f"a {type(registrar.network).__name__} shows no signs of how good its poses are",
            where=registrar.name,
            fix="calibrate weights of scope-reg",
        )


def observe(
    registrar: Registrar,
    volumes: VolumeSet,
    rows: Sequence[int],
    *,
    magnitude: float,
    seed: int,
    frames: int,
    progress: Callable[[int, int], None] | None = None,
) -> Observed:
    """The frames of some rows, located and refined."""
    found = []
    for done, row in enumerate(rows, start=1):
        examples = case_examples(volumes, row, PROTOCOL, magnitude, seed=seed, frames=frames)
        found.append(observe_case(registrar, examples, volumes.spacing_mm, volumes.patients[row]))
        if progress is not None:
            progress(done, len(rows))
    return together(found)


def observe_case(
    registrar: Registrar, examples: CaseExamples, spacing_mm: float, patient: str, *, truth: bool = True
) -> Observed:
    """The frames of a case; without `truth` they are strangers, whose errors are NaN."""
    case = case_on_grid(registrar, examples.frames, examples.volume, spacing_mm)
    with registrar.prepare(case.volume, agreement=True) as session:
        found = session.examine(case.frames)
        near = case.back(found.poses)
        refined = Refiner(examples.volume.to(registrar.device)).refine(examples.frames, near).poses
        poses = {"network": near, "refined": VoxelPoses(*(part.cpu() for part in refined))}
        after = found.signs.clone()
        after[:, LIKENESS] = session.likeness(case.frames, case.placed(poses["refined"]))
    signs: dict[Stage, Array] = {"network": _array(found.signs), "refined": _array(after)}
    height, width = examples.frames.shape[1:]
    nothing = np.full(len(examples.frames), np.nan)
    errors: dict[Stage, Array] = {
        stage: _array(mtre_mm(poses[stage], examples.poses, (height, width), spacing_mm)) if truth else nothing
        for stage in STAGES
    }
    return Observed(signs, errors, (patient,) * len(examples.frames))


def together(parts: Sequence[Observed]) -> Observed:
    """Several as one."""
    if not parts:
        raise ScopeRegError("there are no frames", where="calibration", fix="use a part of the data that has patients")
    return Observed(
        {stage: np.concatenate([part.signs[stage] for part in parts]) for stage in STAGES},
        {stage: np.concatenate([part.errors_mm[stage] for part in parts]) for stage in STAGES},
        tuple(patient for part in parts for patient in part.patients),
    )


def calibrate(registrar: Registrar, observed: Observed, made_on: dict[str, Any]) -> Calibration:
    """The calibration of a model from frames of which the truth is known."""
    gauges = {}
    for stage in STAGES:
        for agreement in (False, True):
            names = signs_of(agreement)
            signs, errors = observed.signs[stage][:, : len(names)], observed.errors_mm[stage]
            gauges[key(stage, agreement)] = fit(names, signs, errors, observed.patients)
    return Calibration(registrar.fingerprint, made_on, gauges)


def summary(made: Calibration, observed: Observed, stage: Stage) -> str:
    """What became of the frames of the calibration, in one line."""
    gauge, errors = made.gauge(stage, False), observed.errors_mm[stage]
    verdicts = [gauge.judge(row[: len(gauge.signs)].tolist()) for row in observed.signs[stage]]
    fine = np.array([verdict.ok for verdict in verdicts])
    close = f"{(errors[fine] <= CLOSE_MM).mean():.0%} of these" if fine.any() else "none"
    return (
        f"{stage:8}{len(errors)} frames, mean error {errors.mean():.2f} mm, "
        f"{fine.mean():.0%} ok, {close} within {CLOSE_MM:g} mm"
    )


def _array(values: torch.Tensor) -> Array:
    return values.double().cpu().numpy()
