"""Calibration: the error models of one network in a JSON file beside its weights, tied to them by their fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.geometry import euler_deg_from_rotation
from scopereg.io.files import write_text
from scopereg.io.records import MIB, Limits, Record, read_json
from scopereg.networks.weights import weights_sha256
from scopereg.registration.confidence import WORSE, ErrorModel, Verdict, features_of, not_judged
from scopereg.registration.grey import GREY
from scopereg.registration.result import Result

FORMAT = "scopereg-calibration-2"
ENDING = ".calibration.json"
Stage = str  # of a registration, whose poses have errors of their own: the network's, or refined ones
NETWORK, REFINED = "network", "refined"
STAGES: tuple[Stage, ...] = (NETWORK, REFINED)  # that every calibration has
BEYOND = 1.1  # times the largest offset of the calibration: errors take poses a little farther out
Judged = TypeVar("Judged", Verdict, Result)
_LIMITS = Limits(4 * MIB, 20, 200_000)
_MOST = 1e6  # of a number in a file: none that was ever fitted comes near
_FIX = "make it again with scopereg calibrate, or remove the file"


@dataclass(frozen=True)
class Calibration:
    """What the quality features of a network mean, on data like those that it was made on."""

    model: str  # fingerprint of the weights
    made_on: dict[str, Any]  # dataset, part, protocol, frames, seed, versions
    error_models: dict[Stage, ErrorModel]

    def knows(self, stage: Stage) -> bool:
        """Whether poses of a stage were among those that it was made of."""
        return stage in self.error_models

    @property
    def synthetic(self) -> bool:
        """Whether it was made on images that were drawn, in whole or in part: real ones are harder."""
        parts = [self.made_on, *self.made_on.get("parts", [])]
        return any("phantom_seeds" in part for part in parts)

    @property
    def words(self) -> str:
        """What it was made on, such as "40 phantoms of each anatomy and 120 worlds"."""
        return str(self.made_on.get("words") or self.made_on.get("dataset", ""))

    def judge(
        self, stage: Stage, features: Sequence[float], spacing_mm: float, rotation: Tensor, translation: Tensor
    ) -> Verdict:
        """What to think of a pose (3, 3) and (3,) in centred voxels of a size, by its features and by where it lies."""
        return self.limited(self.error_models[stage].judge(features, spacing_mm), rotation, translation)

    def limited(self, judged: Judged, rotation: Tensor, translation: Tensor) -> Judged:
        """A verdict, or a result with one, on a pose that lies there.

        Quality features of frames farther off than those of the calibration say less than they seem to: such a pose is
        not judged, unless it was refused for what it looks like.
        """
        reach = self.made_on.get("magnitude")
        if not judged.belongs or not isinstance(reach, int | float):
            return judged
        offset = largest_offset(rotation, translation)
        if offset <= BEYOND * reach:
            return judged
        where = f"{offset:.0f} voxels or degrees off the middle of the volume"
        return replace(judged, **vars(not_judged(f"{where}, and errors are known up to {reach:g}")))

    def check_model(self, fingerprint: str, where: Path | str) -> None:
        """An error where it belongs to other weights."""
        if self.model != fingerprint:
            raise ScopeRegError(
                "the calibration is of another model: what it says of errors does not hold for these weights",
                where=str(where),
                fix="make one for these weights with scopereg calibrate, or remove the file",
            )

    def save(self, path: Path | str) -> Path:
        """Write a whole file at once, or nothing."""
        models = {name: {"signs": made.features, **_without_features(made)} for name, made in self.error_models.items()}
        content = {"format": FORMAT, "model": self.model, "made_on": self.made_on, "gauges": models}
        return write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def largest_offset(rotation: Tensor, translation: Tensor) -> float:
    """Of a pose (3, 3) and (3,) in centred voxels: the largest shift or angle on an axis, in voxels or degrees."""
    angles_deg = euler_deg_from_rotation(rotation.double())
    return float(torch.cat([angles_deg.flatten(), translation.double().flatten()]).abs().max())


def refined_by(likeness: str) -> Stage:
    """The stage of poses that were refined by a likeness."""
    return REFINED if likeness == GREY else f"{REFINED}={likeness}"


def path_beside(weights: Path | str) -> Path:
    """Where the calibration of weights is looked for."""
    return Path(weights).with_suffix(ENDING)


def fingerprint(network: nn.Module, fine: nn.Module | None = None) -> str:
    """Hash of the weights, with those of the fine stage where there is one."""
    own = weights_sha256(network.state_dict())
    return own if fine is None else hashlib.sha256(f"{own} {weights_sha256(fine.state_dict())}".encode()).hexdigest()


def read_calibration(path: Path | str) -> Calibration:
    """A calibration from its file, every value checked."""
    try:
        content = Record.of(read_json(path, _FIX, limits=_LIMITS), str(path), _FIX)
        content.text("format", choices=(FORMAT,))
        models = content.record("gauges")
        made = {name: _error_model(models.record(name)) for name in models.values}
        missing = set(STAGES) - made.keys()
        if missing:
            raise ScopeRegError(f"no error model {', '.join(sorted(missing))}", where=str(path), fix=_FIX)
        return Calibration(content.text("model"), _made_on(content.record("made_on")), made)
    except ScopeRegError as error:
        what = f"it is no calibration of this version: {error.what}"
        raise ScopeRegError(what, where=error.where, fix=_FIX) from None


def _made_on(facts: Record) -> dict[str, Any]:
    if facts.has("magnitude"):
        facts.number("magnitude", 0, _MOST)
    for part in facts.list("parts") if facts.has("parts") else ():
        Record.of(part, f"{facts.where}: parts", facts.fix)
    return dict(facts.values)


def _without_features(made: ErrorModel) -> dict[str, Any]:
    facts = asdict(made)
    del facts["features"]
    return facts


def _error_model(facts: Record) -> ErrorModel:
    """From a file, which calls quality features signs and error models gauges."""
    features = tuple(facts.list("signs"))
    if features not in [features_of(fine) for fine in (False, True)]:
        raise facts.wrong("signs", "the quality features of this version")
    columns = {name: _numbers(facts, name, len(features)) for name in ("centre", "scale", "weights")}
    own_weights = _numbers(facts, "own_weights", 2 * len(features))
    scores, limits = _numbers(facts, "scores"), facts.record("limits")
    if min(columns["scale"]) <= 0:
        raise facts.wrong("scale", "a list of positive numbers")
    if not scores or list(scores) != sorted(scores) or scores[0] < 0:
        raise facts.wrong("scores", "a list of rising numbers from 0 on")
    if limits.values.keys() != {name for name in features if name in WORSE}:
        raise facts.wrong("limits", "one for each feature that can be bad")
    return ErrorModel(
        features,
        **columns,
        offset=facts.number("offset", -_MOST, _MOST),
        scores=scores,
        bound_score=facts.number("bound_score", 0, _MOST),
        limits={name: limits.number(name, -_MOST, _MOST) for name in limits.values},
        own_weights=own_weights,
        own_offset=facts.number("own_offset", -_MOST, _MOST),
    )


def _numbers(facts: Record, name: str, count: int | None = None) -> tuple[float, ...]:
    numbers = facts.numbers(name, count)
    if any(abs(number) > _MOST for number in numbers):
        raise facts.wrong(name, f"a list of numbers up to {_MOST:g}")
    return numbers
