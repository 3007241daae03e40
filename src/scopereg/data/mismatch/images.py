"""Images (B, H, W) that mismatch is applied to: checked without waiting for their device, and blurred."""

from __future__ import annotations

import functools

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import centred_axis


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


_LEAST_PX = 0.05  # below it the kernel is the identity in float32 anyway


@functools.lru_cache(maxsize=16)
def _half_squares(size: int, device: torch.device) -> Tensor:
    """Minus half the squared distances (size, size) between pixels of a row."""
    position = centred_axis(size, device=device)
    return -0.5 * (position[:, None] - position) ** 2


def blur_matrix(size: int, sigma_px: Float[Tensor, "*b 1 1"]) -> Float[Tensor, "*b {size} {size}"]:
    """Matrices that blur a row of pixels by sigmas; outside of the image lies nothing."""
    exponent = _half_squares(size, sigma_px.device) / sigma_px.clamp_min(_LEAST_PX) ** 2
    return torch.softmax(exponent, -1)  # rows sum to 1, so that the border does not darken


def blur_down(images: Float[Tensor, "b h w"], sigma_px: Float[Tensor, "b 1 1"]) -> Float[Tensor, "b h w"]:
    """Images blurred along their columns by sigmas."""
    with torch.autocast(images.device.type, enabled=False):
        return blur_matrix(images.shape[-2], sigma_px) @ images


def blur_across(images: Float[Tensor, "b h w"], sigma_px: Float[Tensor, "b 1 1"]) -> Float[Tensor, "b h w"]:
    """Images blurred along their rows by sigmas."""
    with torch.autocast(images.device.type, enabled=False):
        return images @ blur_matrix(images.shape[-1], sigma_px).mT
