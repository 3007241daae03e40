"""MismatchOptions and FanOptions: how far a frame may differ from its volume, and what its probe may show."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from scopereg.errors import ScopeRegError


@dataclass(frozen=True)
class MismatchOptions:
    """The acoustic mismatch that networks are trained on; each frame draws its own strengths, uniform up to these."""

    speckle: float = 0.6
    """Strongest multiplicative speckle: 0 leaves the grey value, 1 is fully developed speckle."""
    grain_px: tuple[float, float] = (1.0, 5.0)
    """Least and greatest full width at half maximum of a speckle grain; lateral is the wider of two draws."""
    log_gamma: float = 0.5
    """Largest logarithm of the grey map's exponent, either way."""
    gain: float = 0.2
    """Largest relative change of the overall gain, either way."""
    ramp: float = 0.35
    """Largest relative gain ramp from the centre to the border, either way, on each of both axes."""
    shadow_chance: float = 0.5
    """Probability that a frame has shadows, one or two."""
    shadow_dark: tuple[float, float] = (0.3, 0.9)
    """Least and greatest share of the grey value that a shadow takes."""
    blur_px: float = 1.2
    """Widest sigma of the Gaussian blur that half of the frames get, axial and lateral each on its own."""
    sharpening: float = 0.8
    """Strongest unsharp mask; the other half of the frames gets one."""
    noise: float = 0.05
    """Largest standard deviation of the additive white noise."""
    clean_chance: float = 0.15
    """Probability that a frame is left as it is."""

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_shares(self, "speckle", "ramp", "gain", "shadow_chance", "shadow_dark", "clean_chance")


@dataclass(frozen=True)
class FanOptions:
    """Part of the image that a probe at its top sees; lengths are shares of the image's height unless noted."""

    full_chance: float = 0.25
    """Probability of a frame without a fan: a linear probe, or an image cropped inside the fan."""
    apex_above: tuple[float, float] = (0.03, 0.6)
    """Least and greatest height of the rays' apex above the image."""
    apex_shift: float = 0.06
    """Largest lateral shift of the apex from the middle, as a share of the image's width."""
    heading_deg: float = 5.0
    """Largest turn of the middle ray away from the vertical."""
    opening: tuple[float, float] = (0.85, 1.5)
    """Least and greatest width of the fan at half depth, as a share of the image's width."""
    face: tuple[float, float] = (-0.03, 0.05)
    """Highest and lowest place of the probe's face below the upper border."""
    reach: tuple[float, float] = (0.9, 1.15)
    """Least and greatest depth at which the rays end below the upper border."""

    def __post_init__(self) -> None:
        _check_numbers(self, signed=("face",))
        _check_shares(self, "full_chance")
        if min(self.opening) <= 0 or min(self.reach) <= max(self.face):
            raise ScopeRegError(
                f"opening is {self.opening}, face is {self.face} and reach is {self.reach}: some fan would be empty",
                where="FanOptions(opening, face, reach)",
                fix="pass a positive opening and a reach below the face",
            )


def _check_numbers(options: MismatchOptions | FanOptions, signed: tuple[str, ...] = ()) -> None:
    """An error unless all numbers are finite, 0 or more where not signed, and ranges ascend."""
    for option in fields(options):
        value = getattr(options, option.name)
        numbers = value if isinstance(value, tuple) else (value,)
        fine = all(math.isfinite(n) and (n >= 0 or option.name in signed) for n in numbers)
        if not fine or list(numbers) != sorted(numbers) or len(numbers) > 2:
            raise ScopeRegError(
                f"{option.name} is {value}",
                where=f"{type(options).__name__}({option.name})",
                fix="pass finite numbers, 0 or more" if not isinstance(value, tuple) else "pass (least, greatest)",
            )


def _check_shares(options: MismatchOptions | FanOptions, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if (max(value) if isinstance(value, tuple) else value) > 1:
            raise ScopeRegError(
                f"{name} is {value}", where=f"{type(options).__name__}({name})", fix="pass a share from 0 to 1"
            )
