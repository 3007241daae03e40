"""Calibrate: what the quality features of a model say of its errors, learnt from frames whose pose is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.data.examples import case_examples
from scopereg.data.seeds import generator_for
from scopereg.data.store import VolumeSet
from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, mtre_mm
from scopereg.images import Frame, Volume, pose_to_voxels
from scopereg.registration.calibration import NETWORK, Calibration, Stage, refined_by
from scopereg.registration.confidence import CLOSE_MM, features_of, fit
from scopereg.registration.grey import GREY
from scopereg.registration.locator import Locator
from scopereg.registration.method import refined
from scopereg.registration.model import Registrar
from scopereg.registration.network import NetworkMethod, PreparedNetwork
from scopereg.registration.prepared import Found
from scopereg.registration.result import Result
from scopereg.registration.strangers import strangers_of

PROTOCOL: Literal["honest"] = "honest"
STRANGERS = 5  # of each volume, besides a frame of another one


class Observed(NamedTuple):
    """Frames with their quality features and errors at each stage, and the features of strangers sought beside them."""

    features: dict[Stage, Float[np.ndarray, "n s"]]
    errors: dict[Stage, Float[np.ndarray, "n"]]  # in voxels of the grid that the network saw
    voxels_mm: Float[np.ndarray, "n"]  # their size
    patients: tuple[str, ...]
    groups: tuple[str, ...]  # the kind of data that each frame is of
    strangers: dict[Stage, Float[np.ndarray, "m s"]]


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
    """The frames of some rows, located and refined by each likeness, and strangers made of one frame of each row."""
    found = []
    other: Frame | None = None
    for done, row in enumerate(rows, start=1):
        examples = case_examples(volumes, row, PROTOCOL, magnitude, seed=seed, frames=frames)
        case = ObservedCase(registrar, examples.volume, volumes.spacing_mm, likenesses, volumes.name)
        own = [Frame(image.cpu(), spacing_mm=volumes.spacing_mm) for image in examples.frames]
        generator = generator_for(f"strangers of {volumes.cases[row]}", seed)
        strange = [frame for _, frame in strangers_of(own[0], other, done, STRANGERS, generator)]
        found.append(case.observe(own, examples.poses, volumes.patients[row], strange))
        other = own[0]
        if progress is not None:
            progress(done, len(rows))
    return together(found)


class ObservedCase:
    """A volume in which frames are found as `register` finds them, at each stage."""

    def __init__(
        self,
        registrar: Registrar,
        volume: Float[Tensor, "d h w"],
        spacing_mm: float,
        likenesses: Sequence[str] = (GREY,),
        group: str = "",
    ) -> None:
        self.volume, self.group = Volume(volume.cpu(), spacing_mm), group
        self.network = Once(NetworkMethod(replace(registrar, calibration=None, observed=True)))
        self.locator = Locator(self.volume, self.network)
        self.refined = {
            refined_by(likeness): Locator(self.volume, refined(self.network, likeness, str(registrar.device)))
            for likeness in likenesses
        }

    def observe(self, own: Sequence[Frame], true: VoxelPoses, patient: str, strange: Sequence[Frame] = ()) -> Observed:
        """Frames of one size with their true poses, and strangers."""
        found, beside = self.find(own), self.find(strange)
        rows = [row for row, one in enumerate(found) if one]  # what nobody can locate nobody judges
        kept, others = [found[row] for row in rows], [one for one in beside if one]
        voxels_mm = np.array([self.network.voxel_mm(own[row]) for row in rows])
        truth = VoxelPoses(*(part[rows] for part in true))
        stages = (NETWORK, *self.refined)
        return Observed(
            {stage: _features([one[stage] for one in kept]) for stage in stages},
            {stage: self._errors_mm([one[stage] for one in kept], own[0], truth) / voxels_mm for stage in stages},
            voxels_mm,
            (patient,) * len(rows),
            (self.group,) * len(rows),
            {stage: _features([one[stage] for one in others]) for stage in stages},
        )

    def find(self, frames: Sequence[Frame]) -> list[dict[Stage, Result]]:
        """The results of each frame by stage; nothing for one that cannot be located."""
        return [self._stages(frame, one) for frame, one in zip(frames, self.locator.locate_all(frames), strict=True)]

    def _stages(self, frame: Frame, found: Found) -> dict[Stage, Result]:
        if not isinstance(found, Result):
            return {}
        refined = {stage: locator.refine_from(frame, found) or found for stage, locator in self.refined.items()}
        return {NETWORK: found, **refined}

    def _errors_mm(self, results: Sequence[Result], frame: Frame, true: VoxelPoses) -> Float[np.ndarray, "n"]:
        """mTRE of frames that share a size."""
        places = [pose_to_voxels(result.pose, frame, self.volume) for result in results]
        if not places:
            return np.zeros(0)
        poses = VoxelPoses(*(torch.stack(parts) for parts in zip(*places, strict=True)))
        return mtre_mm(poses, true, frame.shape, self.volume.isotropic_spacing_mm).double().numpy()


def _features(results: Sequence[Result]) -> Float[np.ndarray, "n s"]:
    return np.array([[*one.features.values()] for one in results])


class Once:
    """A network that prepares a volume once, whatever refines its poses."""

    def __init__(self, method: NetworkMethod) -> None:
        self.method, self.name, self.facts = method, method.name, method.facts
        self._prepared: PreparedNetwork | None = None

    def prepare(self, volume: Volume) -> PreparedNetwork:
        if self._prepared is None:
            self._prepared = self.method.prepare(volume)
        return self._prepared

    def voxel_mm(self, frame: Frame) -> float:
        """Of the grid that the network sees a frame on."""
        assert self._prepared is not None
        return self._prepared.volume_for(frame).session.spacing_mm


def together(parts: Sequence[Observed]) -> Observed:
    """Several as one."""
    if not any(part.patients for part in parts):
        raise ScopeRegError("there are no frames", where="calibration", fix="use a part of the data that has patients")
    return Observed(
        _joined([part.features for part in parts]),
        _joined([part.errors for part in parts]),
        np.concatenate([part.voxels_mm for part in parts]),
        tuple(patient for part in parts for patient in part.patients),
        tuple(group for part in parts for group in part.groups),
        _joined([part.strangers for part in parts]),
    )


def _joined(parts: Sequence[dict[Stage, Any]]) -> dict[Stage, Any]:
    """Of parts without frames there are no columns."""
    return {stage: np.concatenate([part[stage] for part in parts if len(part[stage])] or [[]]) for stage in parts[0]}


def calibrate(registrar: Registrar, observed: Observed, made_on: dict[str, Any]) -> Calibration:
    """The calibration of a model from frames of which the truth is known."""
    names = features_of(registrar.fine is not None)
    made = {}
    for stage, features in observed.features.items():
        strange = observed.strangers[stage]
        made[stage] = fit(
            names,
            features,
            observed.errors[stage],
            observed.patients,
            strange if len(strange) else None,
            observed.groups,
        )
    return Calibration(registrar.fingerprint, made_on, made)


def summary(made: Calibration, observed: Observed, stage: Stage) -> str:
    """What became of the frames of the calibration, in one line."""
    model, errors_mm = made.error_models[stage], observed.errors[stage] * observed.voxels_mm
    sized = zip(observed.features[stage], observed.voxels_mm, strict=True)
    fine = np.array([model.judge(row.tolist(), voxel_mm).ok for row, voxel_mm in sized])
    strange = [model.judge(row.tolist(), 1.0).ok is True for row in observed.strangers[stage]]
    close = f"{(errors_mm[fine] <= CLOSE_MM).mean():.0%} of these" if fine.any() else "none"
    others = f", {np.mean(strange):.0%} of {len(strange)} strangers ok" if strange else ""
    return (
        f"{stage:8}{len(errors_mm)} frames, mean error {errors_mm.mean():.2f} mm, "
        f"{fine.mean():.0%} ok, {close} within {CLOSE_MM:g} mm{others}"
    )
