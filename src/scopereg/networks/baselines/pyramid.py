"""The 2D and 3D encoders of EUReg, which DreamReg shares: four levels, a factor of 8 on each axis."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.networks.scope_reg import check_inputs

CHANNELS = (8, 16, 32, 64)
STRIDE = 8  # three poolings by two

_CONV = {2: nn.Conv2d, 3: nn.Conv3d}
_NORM = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_POOL = {2: nn.AvgPool2d, 3: nn.AvgPool3d}


class Pyramid(nn.Sequential):
    """Image (B, 1, [D,] H, W) to features (B, 64, [D//8,] H//8, W//8)."""

    def __init__(self, axes: int) -> None:
        layers: list[nn.Module] = []
        inputs = 1
        for outputs in CHANNELS:
            if layers:
                layers.append(_POOL[axes](2))
            for _ in range(2):
                layers += [_CONV[axes](inputs, outputs, 3, padding=1), _NORM[axes](outputs), nn.LeakyReLU(0.1)]
                inputs = outputs
        super().__init__(*layers)


def encoded_shape(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Sizes (D', H', W') of the features of a volume (D, H, W); what does not fill a pooling window is dropped."""
    depth, height, width = (size // STRIDE for size in shape)
    return depth, height, width


def check_shape(name: str, shape: Sequence[int], least: tuple[int, int, int]) -> tuple[int, int, int]:
    """The reference's shape (D, H, W) as a tuple, or an error where the network `name` cannot take it."""
    sizes = tuple(shape)
    whole = all(isinstance(size, int) and not isinstance(size, bool) for size in sizes)
    if len(sizes) != 3 or not whole or any(size < low for size, low in zip(sizes, least, strict=True)):
        raise ScopeRegError(
            f"the reference has the shape {sizes}",
            where=f'networks.create("{name}", shape)',
            fix=f"pass (D, H, W) in voxels, at least {least}",
        )
    depth, height, width = sizes
    return depth, height, width


def check_images(name: str, shape: tuple[int, int, int], slices: Tensor, volumes: Tensor) -> None:
    """An error for images that do not go together, or not with the shape that the network was made for."""
    check_inputs(slices, volumes)
    if tuple(volumes.shape[1:]) != shape:
        raise ScopeRegError(
            f"the volume has the shape {tuple(volumes.shape[1:])}, the network was made for {shape}",
            where=f"{name}(slice, volume)",
            fix=f'resample the images, or make the network with networks.create("{name}", shape=...) and train it',
        )
