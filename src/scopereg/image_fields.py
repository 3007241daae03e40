"""What images are made of, checked: pixels, labels, masks, sizes and places, from whatever a caller passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scopereg.errors import ScopeRegError

US, MR, CT = "us", "mr", "ct"
MODALITIES = (US, MR, CT)  # of volumes
_WINDOW_HU = (-200.0, 300.0)  # of a CT: fat, soft tissue and the beginning of bone


def as_modality(value: Any, where: str) -> str:
    """One of `MODALITIES`."""
    if value not in MODALITIES:
        raise ScopeRegError(f"the modality is {value!r}", where=where, fix=f"pass one of {', '.join(MODALITIES)}")
    return str(value)


def windowed(values: Tensor, modality: str) -> Tensor:
    """Values of a volume as they are compared: Hounsfield units of CT from fat to bone, others as they are."""
    return values.clamp(*_WINDOW_HU) if modality == CT and bool(values.min() < _WINDOW_HU[0]) else values


def as_tensor(value: Any, axes: int, where: str) -> Tensor:
    try:
        tensor = _from_any(value).to(torch.float32)
    except (TypeError, ValueError) as error:
        raise ScopeRegError(f"not an array of numbers: {error}", where=f"{where}(array)", fix="pass numbers") from None
    layout = {2: "(H, W)", 3: "(D, H, W)"}[axes]
    if tensor.ndim != axes:
        raise ScopeRegError(
            f"the array has shape {tuple(tensor.shape)}",
            where=f"{where}(array)",
            fix=f"pass {layout}; drop colour and channel axes first",
        )
    if tensor.numel() == 0:
        raise ScopeRegError(
            f"the array is empty, shape {tuple(tensor.shape)}",
            where=f"{where}(array)",
            fix="check the file or the crop that made it",
        )
    bad = _not_finite(tensor)
    if bad:
        raise ScopeRegError(
            f"{bad} of {tensor.numel()} values are NaN or infinite",
            where=f"{where}(array)",
            fix="replace them (numpy.nan_to_num) or read the file again",
        )
    return tensor


def _not_finite(tensor: Tensor) -> int:
    """How many values are NaN or infinite. By NumPy where it can: PyTorch would wake all its threads for a frame."""
    if tensor.is_cpu:
        return int(np.count_nonzero(~np.isfinite(tensor.detach().numpy())))
    return int((~torch.isfinite(tensor)).sum())


def _from_any(value: Any) -> Tensor:
    """A tensor of real numbers from a tensor or whatever numpy understands."""
    if isinstance(value, Tensor):
        tensor = value.detach()
    else:
        array = np.ascontiguousarray(value)
        # Files hold big-endian numbers too, which torch does not take.
        # A copy: what the caller writes into the array later must not slip past the checks.
        tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=True))
    if tensor.is_complex():
        raise TypeError("the values are complex")
    return tensor


def as_labels(value: Any, array: Tensor, where: str) -> Tensor:
    try:
        labels = _from_any(value)
    except (TypeError, ValueError) as error:
        raise ScopeRegError(
            f"not an array: {error}", where=f"{where}(labels)", fix="pass integer class numbers"
        ) from None
    if labels.is_floating_point():
        raise ScopeRegError(
            f"labels are {labels.dtype}", where=f"{where}(labels)", fix="pass integer class numbers, 0 = background"
        )
    if labels.shape != array.shape:
        raise ScopeRegError(
            f"labels have shape {tuple(labels.shape)}, the array {tuple(array.shape)}",
            where=f"{where}(labels)",
            fix="resample the labels to the grid of the image",
        )
    return labels.to(array.device, torch.uint8 if labels.dtype == torch.bool else labels.dtype)


def as_mask(value: Any, array: Tensor, where: str) -> Tensor:
    kind, each = where.lower(), "pixels" if array.ndim == 2 else "voxels"
    fix = f"pass a mask of the {kind}'s shape that is true where {each} count"
    try:
        mask = _from_any(value)
    except (TypeError, ValueError) as error:
        raise ScopeRegError(f"not an array: {error}", where=f"{where}(mask)", fix=fix) from None
    if mask.dtype != torch.bool or mask.shape != array.shape:
        raise ScopeRegError(
            f"the mask holds {mask.dtype} of shape {tuple(mask.shape)}, the {kind} has the shape {tuple(array.shape)}",
            where=f"{where}(mask)",
            fix=fix,
        )
    return mask.to(array.device)


def as_numbers(value: Any, count: int, where: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(v) for v in np.asarray(value, np.float64).reshape(-1))
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != count or not np.isfinite(numbers).all():
        raise ScopeRegError(f"got {value!r}", where=where, fix=f"pass {count} finite numbers in x, y, z order")
    return numbers


def as_pair(spacing_mm: float | Sequence[float], where: str) -> tuple[float, float]:
    """A pixel size x, y from one number or two."""
    x, y = as_sizes(spacing_mm, 2, where)
    return x, y


def as_sizes(spacing_mm: float | Sequence[float], axes: int, where: str) -> tuple[float, ...]:
    """Sizes x, y(, z) from one number or as many as there are axes."""
    try:
        numbers = np.asarray(spacing_mm, np.float64).reshape(-1)
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    if numbers.size == 1:
        numbers = np.repeat(numbers, axes)
    if numbers.size != axes or not (np.isfinite(numbers).all() and numbers.min() > 0):
        raise ScopeRegError(
            f"the spacing is {spacing_mm}", where=where, fix=f"pass {axes} positive sizes in mm, x first"
        )
    return tuple(float(step) for step in numbers)


def listed(numbers: tuple[float, ...]) -> str:
    return " x ".join(f"{n:g}" for n in numbers)
