"""Checks of the images that mismatch is applied to, without waiting for their device."""

from __future__ import annotations

import torch
from torch import Tensor

from scopereg.errors import ScopeRegError


def check_images(images: Tensor, generator: torch.Generator, seen: Tensor | None, where: str) -> None:
    """An error unless images are float32 (B, H, W) on the generator's device and `seen` has their shape."""
    if images.ndim != 3 or len(images) < 1 or min(images.shape[1:]) < 2 or images.dtype != torch.float32:
        raise ScopeRegError(
            f"the images are {images.dtype} of shape {tuple(images.shape)}",
            where=f"{where}(images)",
            fix="pass float32 in [0, 1] of shape (B, H, W), at least one image of 2 x 2 pixels",
        )
    place = generator.device  # may lack the index: then it is the current device's
    if images.device.type != place.type or place.index not in (None, images.device.index):
        raise ScopeRegError(
            f"the images are on {images.device}, the generator on {place}",
            where=f"{where}(images, generator)",
            fix=f"use torch.Generator(device={str(images.device)!r})",
        )
    if seen is not None and (seen.shape != images.shape or seen.dtype != torch.bool):
        raise ScopeRegError(
            f"the mask is {seen.dtype} of shape {tuple(seen.shape)}, the images have {tuple(images.shape)}",
            where=f"{where}(seen)",
            fix="pass one bool per pixel",
        )
