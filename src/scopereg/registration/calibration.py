"""Calibration: the gauges of one model in a JSON file beside its weights, tied to them by their fingerprint."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.geometry import euler_deg_from_rotation
from scopereg.io.files import write_text
from scopereg.networks.weights import weights_sha256
from scopereg.registration.confidence import SIGNS, WORSE, Gauge, Verdict

FORMAT = "scopereg-calibration-1"
ENDING = ".calibration.json"
Stage = Literal["network", "refined"]
STAGES: tuple[Stage, ...] = ("network", "refined")
BEYOND = 1.1  # times the largest offset of the calibration: errors take poses a little farther out
_LISTS = ("centre", "scale", "weights")


@dataclass(frozen=True)
class Calibration:
    """What the signs of a model mean, on data like those that it was made on."""

    model: str  # fingerprint of the weights
    made_on: dict[str, Any]  # dataset, part, protocol, frames, seed, versions
    gauges: dict[str, Gauge]  # by `key`

    def gauge(self, stage: Stage, agreement: bool) -> Gauge:
        """The gauge for poses of the network or refined ones, by signs with or without the spread."""
        return self.gauges[key(stage, agreement)]

    @property
    def synthetic(self) -> bool:
        """Whether it was made on images that were drawn, in whole or in part: real ones are harder."""
        parts = [self.made_on, *self.made_on.get("parts", [])]
        return any("phantom_seeds" in part for part in parts)

    def judge(
        self, stage: Stage, signs: Sequence[float], rotation: Tensor, translation: Tensor, *, agreement: bool = False
    ) -> Verdict:
        """What to think of a pose (3, 3) and (3,) in centred voxels, by its signs and by where it lies."""
        return self.limited(self.gauge(stage, agreement).judge(signs), rotation, translation)

    def limited(self, verdict: Verdict, rotation: Tensor, translation: Tensor) -> Verdict:
        """The verdict on a pose that lies there.

        Signs of frames farther off than those of the calibration say less than they seem to: such a pose is not ok.
        """
        reach = self.made_on.get("magnitude")
        if not verdict.ok or not isinstance(reach, int | float):
            return verdict
        offset = largest_offset(rotation, translation)
        if offset <= BEYOND * reach:
            return verdict
        where = f"{offset:.0f} voxels or degrees off the middle of the volume"
        return replace(verdict, ok=False, reason=f"{where}, and errors are known up to {reach:g}")

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
        content = {"format": FORMAT, **asdict(self)}
        return write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def largest_offset(rotation: Tensor, translation: Tensor) -> float:
    """Of a pose (3, 3) and (3,) in centred voxels: the largest shift or angle on an axis, in voxels or degrees."""
    angles_deg = euler_deg_from_rotation(rotation.double())
    return float(torch.cat([angles_deg.flatten(), translation.double().flatten()]).abs().max())


def key(stage: Stage, agreement: bool) -> str:
    """The name of a gauge in the file."""
    return f"{stage}+agreement" if agreement else stage


def signs_of(agreement: bool) -> tuple[str, ...]:
    """The signs that there are with and without small changes of the frame."""
    return SIGNS if agreement else SIGNS[:-1]


def path_beside(weights: Path | str) -> Path:
    """Where the calibration of weights is looked for."""
    return Path(weights).with_suffix(ENDING)


def fingerprint(network: nn.Module) -> str:
    """Hash of the weights."""
    return weights_sha256(network.state_dict())


def read_calibration(path: Path | str) -> Calibration:
    """A calibration from its file."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}")
        gauges = {name: _gauge(facts) for name, facts in content["gauges"].items()}
        missing = {key(stage, agreement) for stage in STAGES for agreement in (False, True)} - gauges.keys()
        if missing:
            raise ValueError(f"no gauge {', '.join(sorted(missing))}")
        return Calibration(str(content["model"]), dict(content["made_on"]), gauges)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ScopeRegError(
            f"it is no calibration of this version: {error!r}",
            where=str(path),
            fix="make it again with scopereg calibrate, or remove the file",
        ) from None


def _gauge(facts: dict[str, Any]) -> Gauge:
    signs = tuple(str(name) for name in facts["signs"])
    if signs not in (signs_of(False), signs_of(True)):
        raise ValueError(f"signs {signs}")
    columns = {name: _numbers(facts[name]) for name in _LISTS}
    if any(len(values) != len(signs) for values in columns.values()) or min(columns["scale"]) <= 0:
        raise ValueError("its lists do not fit together")
    scores = _numbers(facts["scores"])
    if not scores or list(scores) != sorted(scores) or scores[0] < 0:
        raise ValueError("its scores are not in order")
    limits = {str(name): float(value) for name, value in facts["limits"].items()}
    if limits.keys() != {name for name in signs if name in WORSE}:
        raise ValueError(f"limits of {sorted(limits)}")
    offset, *_ = _numbers([facts["offset"], *limits.values()])
    return Gauge(signs, **columns, offset=offset, scores=scores, limits=limits)


def _numbers(values: Any) -> tuple[float, ...]:
    numbers = tuple(float(value) for value in values)
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError("a number is not finite")
    return numbers
