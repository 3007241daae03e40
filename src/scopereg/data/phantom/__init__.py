"""Phantoms: ultrasound of random patients that anyone can generate, with frames acquired at any pose."""

from __future__ import annotations

import math

import torch

from scopereg.data.phantom.anatomy import ANATOMIES, register_anatomy
from scopereg.data.phantom.anatomy.draws import Draws
from scopereg.data.phantom.options import HONEST, PAPER, PROTOCOLS, SAME_SCANNER, AcquisitionOptions
from scopereg.data.phantom.phantom import Acquisition, Phantom, build, check_seed
from scopereg.errors import ScopeRegError
from scopereg.threads import watched

__all__ = [
    "HONEST",
    "PAPER",
    "PROTOCOLS",
    "SAME_SCANNER",
    "Acquisition",
    "AcquisitionOptions",
    "Phantom",
    "create",
    "names",
    "register_anatomy",
]

MIN_SHAPE = (2, 16, 16)
MAX_VOXELS = 2**28  # a gigabyte of float32
_SPACING_MM = (0.01, 20.0)  # below and beyond, nothing of a body is in the picture


def names() -> tuple[str, ...]:
    """The anatomies that `create` knows."""
    return tuple(ANATOMIES)


@watched(steady=True)
def create(
    anatomy: str,
    seed: int = 0,
    shape: tuple[int, int, int] | None = None,
    spacing_mm: float | None = None,
    device: torch.device | str = "cpu",
) -> Phantom:
    """A random patient and its volume (D, H, W), the same for a seed on one device.

    Without a shape it has the anatomy's usual one; without a spacing the image is as wide as usual whatever its pixels.
    """
    kind = ANATOMIES.find(anatomy, "anatomy=")
    check_seed(seed, "phantom.create(seed)")
    size = _checked_shape(kind.usual_shape if shape is None else shape)
    usual_mm = kind.usual_spacing_mm * kind.usual_shape[2] / size[2]
    step_mm = usual_mm if spacing_mm is None else float(spacing_mm)
    if not _SPACING_MM[0] <= step_mm <= _SPACING_MM[1]:
        raise ScopeRegError(
            f"the spacing is {spacing_mm} mm",
            where="phantom.create(spacing_mm)",
            fix=f"pass a positive number of mm, from {_SPACING_MM[0]} to {_SPACING_MM[1]}",
        )
    place = _checked_device(device)
    patient = kind(Draws(f"patient, {anatomy}", seed), (size[0] - 1) * step_mm, place)
    setup = Draws(f"scanner, {anatomy}", seed)  # of its own: the patient stays when the scanner's draws change
    return build(patient, patient.fan(setup, place), patient.scanner(setup, place), seed, size, step_mm)


def _checked_shape(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    size = tuple(shape)
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in size)
    if len(size) != 3 or not whole or any(n < least for n, least in zip(size, MIN_SHAPE, strict=True)):
        raise ScopeRegError(
            f"the shape is {size}",
            where="phantom.create(shape)",
            fix=f"pass whole numbers (D, H, W), at least {MIN_SHAPE}",
        )
    if math.prod(size) > MAX_VOXELS:
        raise ScopeRegError(
            f"{math.prod(size):,} voxels are too many", where="phantom.create(shape)", fix=f"stay below {MAX_VOXELS:,}"
        )
    return size[0], size[1], size[2]


def _checked_device(device: torch.device | str) -> torch.device:
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        raise ScopeRegError(
            f"cannot use the device {str(device)!r}: {str(error).splitlines()[0]}",
            where="phantom.create(device)",
            fix="use device='cpu', or a GPU that torch.cuda.is_available() confirms",
        ) from None
    # "cuda" and "cuda:0" are one device: name it as its tensors do.
    return torch.empty(0, device=place).device
