"""AdaptSettings: how a network is adapted to a volume, declared once. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from scopereg.errors import ScopeRegError
from scopereg.registration.settings import DEFAULT

PartsName = Literal["auto", "gates", "decoder", "all"]
USUAL_MINUTES = 2.0


@dataclass(frozen=True)
class AdaptSettings:
    """What decides the outcome of an adaptation, besides the volume."""

    base: str = DEFAULT
    """Weights to start from: a model of the package, or a .safetensors file of SCoPE-Reg."""
    minutes: float | None = None
    """Time for everything, reading and writing included; schedules follow the clock. 2 where --steps is not given."""
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
        for name in ("minutes", "spacing_mm", "magnitude", "learning_rate"):
            value = getattr(self, name)
            _need(value is None or 0 < value < float("inf"), name, value, "pass a positive number")
        for name in ("steps", "frames", "looks", "held_out", "patience"):
            value = getattr(self, name)
            _need(value is None or value >= 1, name, value, "pass at least 1")
        if self.minutes is not None and self.steps is not None:
            raise ScopeRegError("both minutes and steps are given", where="adapt(minutes, steps)", fix="pass one")

    @property
    def seconds(self) -> float | None:
        """Time for everything; None where steps count."""
        return None if self.steps is not None else 60 * (self.minutes or USUAL_MINUTES)


def _need(good: bool, name: str, value: Any, fix: str) -> None:
    if not good:
        raise ScopeRegError(f"{name} is {value}", where=f"adapt({name})", fix=fix)
