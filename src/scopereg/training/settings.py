"""TrainSettings and AdaptSettings: what a training run and an adaptation do, declared once. Needs no torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from scopereg.errors import ScopeRegError
from scopereg.registration.settings import DEFAULT

PresetName = Literal["fast", "paper"]
PartsName = Literal["auto", "gates", "decoder", "all"]
USUAL_MINUTES = 2.0  # of an adaptation


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
        check = _Check("train", self)
        check.choices()
        check.at_least(1, "batch", "frames_per_volume", "validate_every", "looks", "epochs")
        check.positive("learning_rate", "magnitude", "lever_voxels", "reach", "plateau_factor", "minutes")
        check.at_least(0, "later_planes", "warmup", "curriculum", "clip", "weight_decay", "decay_power")
        check.at_least(0, "coordinates", "flow", "elasticity", "plateau_patience")
        check.that(0 <= self.average < 1, "average", "pass 0 (none) or a decay below 1, such as 0.999")
        each = self.batch % self.frames_per_volume == 0
        check.that(each, "frames_per_volume", f"pass a divisor of the batch ({self.batch})")
        check.that(self.passes in (1, 2), "passes", "pass 1 or 2")
        check.not_both("minutes", "epochs")


@dataclass(frozen=True)
class AdaptSettings:
    """What decides the outcome of an adaptation, besides the volume."""

    base: str = DEFAULT
    """Weights to start from: a model of the package, or a .safetensors file of SCoPE-Reg."""
    minutes: float | None = None
    """Time for everything, reading and writing included; schedules follow the clock. 2 where no steps are asked for."""
    steps: int | None = None
    """Adapt for so many steps instead; one seed then gives the same weights again."""
    spacing_mm: float | None = None
    """Voxel size of the volume for the network, here and in use; default: as trained, or 128 along a plane."""
    magnitude: float = 10.0
    """Largest offset of a frame from where it is sought, in voxels and degrees on each axis."""
    parts: PartsName = "auto"
    """What learns. gates: 0.15 of 6.5 million weights. decoder: 1.7. all. auto: all, on a CPU without numba gates."""
    frames: int | None = None
    """Frames of a step, which share one encoding of the volume; by default 8 on a CPU, else 48."""
    learning_rate: float | None = None
    """Largest learning rate; by default 1e-3 for gates, 3e-4 for decoder, 1e-4 for all."""
    looks: int | None = None
    """Times that the encoded volume is decoded, each as seen from the pose before; by default as the base does."""
    statistics: bool = True
    """Measure the statistics of the norms anew on this volume, before anything is learned."""
    held_out: int = 32
    """Frames that are not learned from, with differences that never are: they choose the weights that are kept."""
    patience: int = 4
    """Checks on these frames, of eight, that are worse than the best before it stops early."""
    seed: int = 0
    """Seed of poses and frames."""

    def __post_init__(self) -> None:
        check = _Check("adapt", self)
        check.positive("minutes", "spacing_mm", "magnitude", "learning_rate")
        check.at_least(1, "steps", "frames", "looks", "held_out", "patience")
        check.not_both("minutes", "steps")

    @property
    def seconds(self) -> float | None:
        """Time for everything; None where steps count."""
        return None if self.steps is not None else 60 * (self.minutes or USUAL_MINUTES)


@dataclass(frozen=True)
class _Check:
    """Checks of settings; what may be None counts as good then. Errors name the argument."""

    verb: str
    settings: TrainSettings | AdaptSettings

    def choices(self) -> None:
        """Every setting that has a few words to choose from."""
        for name, kind in get_type_hints(type(self.settings)).items():
            if get_origin(kind) is Literal:
                known = get_args(kind)
                self.that(getattr(self.settings, name) in known, name, f"use {' or '.join(map(str, known))}")

    def at_least(self, low: int, *names: str) -> None:
        for name in names:
            value = getattr(self.settings, name)
            good = value is None or low <= value < float("inf")
            self.that(good, name, f"pass {low} or more" if low == 0 else f"pass at least {low}")

    def positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self.settings, name)
            self.that(value is None or 0 < value < float("inf"), name, "pass a positive number")

    def not_both(self, one: str, other: str) -> None:
        if None not in (getattr(self.settings, one), getattr(self.settings, other)):
            raise ScopeRegError(
                f"both {one} and {other} are given", where=f"{self.verb}({one}, {other})", fix="pass one of them"
            )

    def that(self, good: bool, name: str, fix: str) -> None:
        if not good:
            raise ScopeRegError(f"{name} is {getattr(self.settings, name)}", where=f"{self.verb}({name})", fix=fix)


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
