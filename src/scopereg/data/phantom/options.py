"""AcquisitionOptions: how far a frame may differ from the volume that it is matched to."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.geometry.beam import Thickness

_MAX_FAN_CHANGE = 0.5  # relative; beyond it no fan is left in the image


@dataclass(frozen=True)
class AcquisitionOptions:
    """Ranges of all that is drawn anew for each frame. A range of 0 keeps what the volume was acquired with.

    All are half-widths of uniform draws around the volume's own setting unless said otherwise.
    """

    cut: bool = False  # cut the frame out of the stored volume, zeros outside, instead of acquiring it
    speckle_correlation: float = 0.0  # with the volume's speckle: 1 = the same scatterers, 0 = independent
    gain_db: float = 4.0  # overall gain
    tgc_db: float = 3.0  # each of three smooth errors of the time-gain curve along depth
    side_db: float = 5.0  # gain ramp from the left to the right ray
    dynamic_range_db: float = 8.0  # range that the log compression shows
    gamma: float = 0.2  # logarithm of the exponent of the grey map
    haze_db: float = 5.0  # clutter near the probe and in the fluid
    resolution: float = 0.3  # logarithm of the point spread's size, axial and lateral each on its own
    shadow_chance: float = 0.5  # probability of each of two shadows from the skin (ribs, gas, lost contact)
    fan_shift: float = 0.04  # shift of the apex along each image axis, as a share of the fan's depth
    fan_turn_deg: float = 5.0  # turn of the fan within the image
    fan_size: float = 0.12  # relative change of the opening angle and of the depth, each on its own
    thickness: Thickness | None = None  # of the slice of tissue that a frame averages; by default it has none

    def __post_init__(self) -> None:
        for name in ("speckle_correlation", "shadow_chance"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ScopeRegError(
                    f"{name} is {value}", where=f"AcquisitionOptions({name})", fix="pass a number from 0 to 1"
                )
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name == "thickness":
                continue
            if not 0 <= value < float("inf"):
                raise ScopeRegError(
                    f"{option.name} is {value}",
                    where=f"AcquisitionOptions({option.name})",
                    fix="pass a finite range, 0 or more",
                )
        for name in ("fan_shift", "fan_size"):
            if getattr(self, name) > _MAX_FAN_CHANGE:
                raise ScopeRegError(
                    f"{name} is {getattr(self, name)}",
                    where=f"AcquisitionOptions({name})",
                    fix=f"pass at most {_MAX_FAN_CHANGE}: a larger change leaves no fan in the image",
                )


HONEST = AcquisitionOptions()
PAPER = AcquisitionOptions(cut=True, speckle_correlation=1.0)
SAME_SCANNER = AcquisitionOptions(
    gain_db=0,
    tgc_db=0,
    side_db=0,
    dynamic_range_db=0,
    gamma=0,
    haze_db=0,
    resolution=0,
    shadow_chance=0,
    fan_shift=0,
    fan_turn_deg=0,
    fan_size=0,
)  # only the pose and the speckle differ from the volume

PROTOCOLS = MappingProxyType({"honest": HONEST, "paper": PAPER, "same-scanner": SAME_SCANNER})


def resolve_protocol(
    protocol: str | AcquisitionOptions, speckle_correlation: float | None, thickness_mm: float | str | None = None
) -> AcquisitionOptions:
    """Options of a named protocol, or those given, with speckle correlation and thickness on top where one is given."""
    if isinstance(protocol, AcquisitionOptions):
        options = protocol
    elif protocol in PROTOCOLS:
        options = PROTOCOLS[protocol]
    else:
        raise ScopeRegError(
            f"unknown protocol {protocol!r}{did_you_mean(str(protocol), PROTOCOLS)}",
            where="Phantom.acquire(protocol)",
            fix=f"use one of {', '.join(PROTOCOLS)} or an AcquisitionOptions",
        )
    thickness = Thickness.of(thickness_mm)
    if thickness is not None and options.cut:
        raise ScopeRegError(
            f"the thickness is {thickness.words}, but frames cut from the volume are as thick as it is",
            where="Phantom.acquire(thickness_mm)",
            fix="leave it out, or use protocol='honest'",
        )
    options = options if thickness is None else replace(options, thickness=thickness)
    if speckle_correlation is None:
        return options
    if options.cut and speckle_correlation != options.speckle_correlation:
        raise ScopeRegError(
            f"speckle_correlation is {speckle_correlation}, but frames cut from the volume have its own speckle",
            where="Phantom.acquire(speckle_correlation)",
            fix="leave it out, or use protocol='honest'",
        )
    return replace(options, speckle_correlation=speckle_correlation)
