"""Inherited: the calibration of a base for the network that was adapted from it, where it holds on held-out frames.

An adapted network errs less, so that a bound of its base should hold. Whether it does is counted on frames of the
volume that were never learned from; without it poses of the adapted network are not judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from scopereg.errors import ScopeRegError
from scopereg.geometry import SUCCESS_MM
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.registration.calibration import (
    NETWORK,
    STAGES,
    Calibration,
    Stage,
    path_beside,
    read_calibration,
)
from scopereg.registration.locator import Locator
from scopereg.registration.method import refined
from scopereg.registration.model import Registrar
from scopereg.registration.network import NetworkMethod
from scopereg.registration.result import Result, apart_mm
from scopereg.training.scene import HeldOut

_BELOW = 0.9  # share of the errors that must lie below their bound: of some 20 frames not all 95 % do
_WRONG = 0.05  # largest share of the ok frames that may be off by more than 3 mm
_JUDGED = 0.5  # share of the frames that must have a bound
_FEWEST = 16  # frames with a bound: bounds that hold for three quarters of the errors pass one time in sixteen


class Held(NamedTuple):
    """How a calibration fares on held-out frames at one stage."""

    frames: int
    judged: int  # with a bound
    below: int  # of these, errors below it
    ok: int
    wrong: int  # of these, off by more than 3 mm

    @property
    def holds(self) -> bool:
        enough = self.judged >= max(_JUDGED * self.frames, _FEWEST)
        return enough and self.below >= _BELOW * self.judged and self.wrong <= _WRONG * self.ok

    @property
    def words(self) -> str:
        said = f"{self.below} of {self.judged} errors below their bound, {self.ok} of {self.frames} frames ok"
        return said + (f", {self.wrong} of these off by more than {SUCCESS_MM:g} mm" if self.wrong else "")


def inherited(adapted: Registrar, base: str, known: Calibration, held_out: HeldOut) -> tuple[Calibration | None, str]:
    """The calibration of the base for the adapted network, or None where it does not hold; and what was counted."""
    if held_out.frames < _FEWEST:
        few = f"{held_out.frames} held-out frames do not tell whether the calibration of {base} holds, {_FEWEST} do"
        return None, f"{few}: poses are not judged"
    counted_on = {stage: known.error_models[stage] for stage in STAGES}  # what is not counted is not handed on
    own = replace(known, model=adapted.fingerprint, error_models=counted_on)
    found = {stage: held(replace(adapted, calibration=own), held_out, stage) for stage in STAGES}
    counted = "; ".join(f"{stage}: {one.words}" for stage, one in found.items())
    if not all(one.holds for one in found.values()):
        return None, f"the calibration of {base} does not hold on held-out frames ({counted}): poses are not judged"
    told = {stage: one._asdict() for stage, one in found.items()}
    made = replace(own, made_on=made_on(known, base) | {"held_out": told})
    return made, f"the calibration of {base} holds on held-out frames ({counted})"


def made_on(known: Calibration, base: str) -> dict[str, Any]:
    """What a calibration was made on that is handed on, once or several times: the first who had it is named."""
    first = known.made_on.get("inherited_from", {"name": base, "model": known.model})
    words = (
        known.words if "inherited_from" in known.made_on else f"{known.words}, inherited from {base}".removeprefix(", ")
    )
    return {**known.made_on, "words": words, "inherited_from": first}


def remove_stale(weights: Path, fingerprint: str) -> bool:
    """Whether a calibration lay beside weights that is of others, those before: it says nothing of these."""
    beside = path_beside(weights)
    if not beside.is_file():
        return False
    try:
        if read_calibration(beside).model == fingerprint:
            return False
    except ScopeRegError:  # of a version before: nothing can be judged by it either
        pass
    beside.unlink()
    return True


def held(registrar: Registrar, held_out: HeldOut, stage: Stage) -> Held:
    """What a network with a calibration says of the held-out frames."""
    rows = list(located(registrar, held_out, stage))
    judged = [(error_mm, result) for error_mm, result in rows if math.isfinite(result.bound_mm)]
    good = [error_mm for error_mm, result in rows if result.ok]
    below = sum(error_mm <= result.bound_mm for error_mm, result in judged)
    return Held(held_out.frames, len(judged), below, len(good), sum(error_mm > SUCCESS_MM for error_mm in good))


def located(registrar: Registrar, held_out: HeldOut, stage: Stage) -> Iterator[tuple[float, Result]]:
    """Of the frames that are located at all."""
    network = NetworkMethod(registrar)
    method = network if stage == NETWORK else refined(network, device=str(registrar.device))
    for batch in held_out.batches:
        volume = Volume(batch.volumes[0].cpu(), held_out.spacing_mm)
        frames = [Frame(image.float().cpu().clamp(0, 1), held_out.spacing_mm) for image in batch.slices]
        for row, found in enumerate(Locator(volume, method).locate_all(frames)):
            if isinstance(found, Result):
                rotation, translation = (part[row].cpu() for part in batch.poses)
                truth = pose_from_voxels(rotation, translation, frames[row], volume)
                yield apart_mm(frames[row], found.pose, truth), found
