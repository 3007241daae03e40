"""TrainSettings: what a training run does, declared once. Needs neither torch nor a command line."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from scopereg.errors import ScopeRegError

PresetName = Literal["fast", "paper"]


@dataclass(frozen=True)
class TrainSettings:
    """What decides the outcome of a training run, besides the data."""

    preset: PresetName = "fast"
    """fast: reaches the same error in far less time. paper: as published (AdamW 5e-5, batch 6, 500 epochs)."""
    network: str = "scope-reg"
    """Network to train, by name."""
    norm: Literal["batch", "instance"] = "batch"
    """Normalisation of the encoders."""
    depth_stride: Literal[8, 4] = 8
    """Voxels per encoded plane along depth; 8 is published, 4 keeps twice the planes (scope-reg alone)."""
    reach: float = 1.75
    """How far the volume's points are stretched about its centre; 1 is published (scope-reg alone)."""
    matching: bool = True
    """Let the depth gate compare the tokens of both images; without is published (scope-reg alone)."""
    looks: int = 3
    """Times that the encoded volume is decoded, each as seen from the pose before; 1 is published (scope-reg alone)."""
    later_planes: int = 0
    """Encoded planes that looks after the first see, about the frame; 0: all of them (scope-reg alone)."""
    passes: int = 1
    """Forward passes: 2 trains for a second one as well, with the volume resampled at the pose of the first."""
    start: Path | None = None
    """Weights file to start from instead of fresh weights."""
    protocol: Literal["honest", "paper"] = "honest"
    """honest: every frame is another acquisition. paper: frames are cut out of the volume itself, zeros outside."""
    magnitude: float = 10.0
    """Largest pose offset, in voxels and degrees on each axis."""
    curriculum: int = 0
    """Steps over which worlds go from easy to as hard as they get; 0 begins with the hardest (worlds alone)."""
    phantoms: Path | None = None
    """Folder of stored sets of phantoms; once worlds are at their hardest, a fifth of the batches is of these (worlds
    alone)."""
    minutes: float | None = None
    """Train for this long, schedules follow the clock; instead of epochs."""
    epochs: int | None = None
    """Train until every training volume has given this many frames; instead of minutes."""
    batch: int = 16
    """Frames per step, on each device."""
    frames_per_volume: int = 4
    """Frames of a step that share one volume, which is then encoded once; divides the batch."""
    optimizer: Literal["adamw", "adam"] = "adamw"
    """What updates the weights."""
    learning_rate: float = 4e-4
    """Largest learning rate; of the decay plateau the first one."""
    warmup: int = 300
    """Steps until the learning rate is reached."""
    decay: Literal["polynomial", "constant", "steps", "drop", "plateau"] = "polynomial"
    """How the learning rate falls: to zero, not at all, by a fifth thirty times, once to 0.3, or when errors stall."""
    decay_power: float = 0.9
    """Exponent of the polynomial decay."""
    plateau_factor: float = 0.5
    """What the learning rate is multiplied with when validation errors stall (decay plateau)."""
    plateau_patience: int = 1
    """Validations without a better error that are borne before that."""
    weight_decay: float = 0.01
    """Weight decay of the optimiser."""
    clip: float = 50.0
    """Largest norm of the gradient; 0 leaves it alone."""
    loss: Literal["distance", "squared"] = "distance"
    """What is averaged over 14 points of a cube: their distance, or as published its square, in voxels."""
    lever_voxels: float = 43.0
    """Half the side of that cube (rho)."""
    coordinates: float = 0.0
    """Weight of the distance of every cell's coordinate from where it belongs, in voxels."""
    flow: float = 0.0
    """Weight of L_flow, the coordinate field against that of the true pose."""
    elasticity: float = 0.0
    """Weight of L_phy, the elasticity residual of the coordinate field."""
    augment: bool = True
    """Mirror, turn, stretch and bend the volumes."""
    average: float = 0.999
    """Decay of the exponential moving average of the weights, which is what is kept; 0 keeps the last weights."""
    bfloat16: bool = True
    """Run convolutions and projections in bfloat16 on a GPU; scans and solver stay in float32."""
    capture: bool = True
    """On one GPU, record the step once as a CUDA graph and replay it."""
    validate_every: int = 500
    """Steps between validations, each of which writes a checkpoint."""
    fold: int = 0
    """Fold of the five-fold patient split."""
    seed: int = 0
    """Seed of weights, poses and draws."""
    test: bool = False
    """At the end, measure once on the held-out test part too."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            if get_origin(kind) is Literal:
                known = get_args(kind)
                _need(getattr(self, name) in known, name, getattr(self, name), f"use {' or '.join(map(str, known))}")
        for name in ("batch", "frames_per_volume", "validate_every", "looks"):
            _need(getattr(self, name) >= 1, name, getattr(self, name), "pass at least 1")
        for name in ("learning_rate", "magnitude", "lever_voxels", "reach", "plateau_factor"):
            _need(0 < getattr(self, name) < float("inf"), name, getattr(self, name), "pass a positive number")
        zero_or_more = (
            "later_planes",
            "warmup",
            "curriculum",
            "clip",
            "weight_decay",
            "decay_power",
            "coordinates",
            "flow",
            "elasticity",
        )
        for name in (*zero_or_more, "plateau_patience"):
            _need(0 <= getattr(self, name) < float("inf"), name, getattr(self, name), "pass 0 or more")
        _need(0 <= self.average < 1, "average", self.average, "pass 0 (none) or a decay below 1, such as 0.999")
        _need(
            self.batch % self.frames_per_volume == 0,
            "frames_per_volume",
            self.frames_per_volume,
            f"pass a divisor of the batch ({self.batch})",
        )
        _need(self.passes in (1, 2), "passes", self.passes, "pass 1 or 2")
        _need(
            self.minutes is None or 0 < self.minutes < float("inf"), "minutes", self.minutes, "pass a positive number"
        )
        _need(self.epochs is None or self.epochs >= 1, "epochs", self.epochs, "pass at least 1")
        if self.minutes is not None and self.epochs is not None:
            raise ScopeRegError(
                "both minutes and epochs are given", where="train(minutes, epochs)", fix="pass one of them"
            )


def _need(good: bool, name: str, value: object, fix: str) -> None:
    if not good:
        raise ScopeRegError(f"{name} is {value}", where=f"train({name})", fix=fix)


def plain(settings: TrainSettings) -> dict[str, Any]:
    """The settings as JSON knows them."""
    return {key: str(value) if isinstance(value, Path) else value for key, value in asdict(settings).items()}


def from_plain(values: dict[str, Any]) -> TrainSettings:
    """The settings that `plain` made these values of."""
    unknown = values.keys() - {field.name for field in fields(TrainSettings)}
    if unknown:
        raise ScopeRegError(
            f"they hold {', '.join(sorted(unknown))}, which this version does not know",
            where="the settings of an earlier run",
            fix="go on with the version of scopereg that wrote them, or start a new run in another folder (output=)",
        )
    paths = {name: Path(values[name]) for name in ("start", "phantoms") if values.get(name) is not None}
    return TrainSettings(**{**values, **paths})


def differences(one: TrainSettings, other: TrainSettings) -> list[str]:
    """Names of the settings that differ."""
    return [field.name for field in fields(one) if getattr(one, field.name) != getattr(other, field.name)]
