"""Calibrate: what the quality features of a model say of its errors, learnt from frames whose pose is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from scopereg.data.examples import CaseExamples, case_examples
from scopereg.data.store import VolumeSet
from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, mtre_mm
from scopereg.images import Frame, Volume, pose_to_voxels
from scopereg.registration.calibration import NETWORK, Calibration, Stage, key, refined_by
from scopereg.registration.confidence import CLOSE_MM, features_of, fit
from scopereg.registration.grey import GREY
from scopereg.registration.locator import Locator
from scopereg.registration.method import Method, refined
from scopereg.registration.model import Registrar
from scopereg.registration.network import NetworkMethod
from scopereg.registration.prepared import Prepared
from scopereg.registration.result import Result

PROTOCOL: Literal["honest"] = "honest"


class Observed(NamedTuple):
    """Frames with their quality features and, where the truth is known, their errors, at each stage."""

    features: dict[Stage, Float[np.ndarray, "n 6"]]
    errors_mm: dict[Stage, Float[np.ndarray, "n"]]  # NaN where there is no truth
    patients: tuple[str, ...]


def check_features(registrar: Registrar) -> None:
    """An error for a network that tells none."""
    if registrar.streaming is None:
        raise ScopeRegError(
            f"a {type(registrar.network).__name__} tells no quality features of its poses",
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
    likenesses: Sequence[str] = (GREY,),
    progress: Callable[[int, int], None] | None = None,
) -> Observed:
    """The frames of some rows, located and refined by each likeness."""
    found = []
    for done, row in enumerate(rows, start=1):
        examples = case_examples(volumes, row, PROTOCOL, magnitude, seed=seed, frames=frames)
        found.append(
            observe_case(registrar, examples, volumes.spacing_mm, volumes.patients[row], likenesses=likenesses)
        )
        if progress is not None:
            progress(done, len(rows))
    return together(found)


def observe_case(
    registrar: Registrar,
    examples: CaseExamples,
    spacing_mm: float,
    patient: str,
    *,
    truth: bool = True,
    likenesses: Sequence[str] = (GREY,),
) -> Observed:
    """The frames of a case, found as `register` finds them; without `truth` they are none of the volume's."""
    volume = Volume(examples.volume.cpu(), spacing_mm)
    frames = [Frame(image.cpu(), spacing_mm=spacing_mm) for image in examples.frames]
    network = _Once(NetworkMethod(replace(registrar, calibration=None, observed=True), agreement=True))
    found = Locator(volume, network).locate_all(frames)
    rows = [row for row, one in enumerate(found) if isinstance(one, Result)]  # what nobody can locate nobody judges
    near = [one for one in found if isinstance(one, Result)]
    results: dict[Stage, Sequence[Result]] = {NETWORK: near}
    for likeness in likenesses:
        refining = Locator(volume, refined(network, likeness, str(registrar.device)))
        results[refined_by(likeness)] = [
            refining.refine_from(frames[row], one) or one for row, one in zip(rows, near, strict=True)
        ]
    true = VoxelPoses(*(part[rows] for part in examples.poses)) if truth else None
    return Observed(
        {stage: np.array([[*one.features.values()] for one in every]) for stage, every in results.items()},
        {stage: _errors_mm(every, frames[0], volume, true) for stage, every in results.items()},
        (patient,) * len(rows),
    )


class _Once:
    """A method that prepares a volume once, whatever refines its poses."""

    def __init__(self, method: Method) -> None:
        self.method, self.name, self.facts = method, method.name, method.facts
        self._prepared: Prepared | None = None

    def prepare(self, volume: Volume) -> Prepared:
        if self._prepared is None:
            self._prepared = self.method.prepare(volume)
        return self._prepared


def _errors_mm(
    results: Sequence[Result], frame: Frame, volume: Volume, true: VoxelPoses | None
) -> Float[np.ndarray, "n"]:
    """mTRE of frames that share a size; NaN where the truth is not known."""
    if true is None:
        return np.full(len(results), np.nan)
    places = [pose_to_voxels(result.pose, frame, volume) for result in results]
    poses = VoxelPoses(*(torch.stack(parts) for parts in zip(*places, strict=True)))
    return mtre_mm(poses, true, frame.shape, volume.isotropic_spacing_mm).double().numpy()


def together(parts: Sequence[Observed]) -> Observed:
    """Several as one."""
    if not parts:
        raise ScopeRegError("there are no frames", where="calibration", fix="use a part of the data that has patients")
    return Observed(
        {stage: np.concatenate([part.features[stage] for part in parts]) for stage in parts[0].features},
        {stage: np.concatenate([part.errors_mm[stage] for part in parts]) for stage in parts[0].features},
        tuple(patient for part in parts for patient in part.patients),
    )


def calibrate(registrar: Registrar, observed: Observed, made_on: dict[str, Any]) -> Calibration:
    """The calibration of a model from frames of which the truth is known."""
    made = {}
    for stage in observed.features:
        for agreement in (False, True):
            names = features_of(agreement, registrar.fine is not None)
            features, errors = observed.features[stage][:, : len(names)], observed.errors_mm[stage]
            made[key(stage, agreement)] = fit(names, features, errors, observed.patients)
    return Calibration(registrar.fingerprint, made_on, made)


def summary(made: Calibration, observed: Observed, stage: Stage) -> str:
    """What became of the frames of the calibration, in one line."""
    model, errors = made.error_model(stage, False), observed.errors_mm[stage]
    verdicts = [model.judge(row[: len(model.features)].tolist()) for row in observed.features[stage]]
    fine = np.array([verdict.ok for verdict in verdicts])
    close = f"{(errors[fine] <= CLOSE_MM).mean():.0%} of these" if fine.any() else "none"
    return (
        f"{stage:8}{len(errors)} frames, mean error {errors.mean():.2f} mm, "
        f"{fine.mean():.0%} ok, {close} within {CLOSE_MM:g} mm"
    )
