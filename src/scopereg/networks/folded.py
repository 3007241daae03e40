"""Folded encoders: an encoder for inference, its batch norms in the weights of the convolutions, in reduced precision.

On a GPU bias, shortcut and ReLU belong to the convolution's own kernel where cuDNN has one for it.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from scopereg.networks.encoders import BasicBlock, Encoder, Stem, blocks_of, stem_kernel

_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
_CONV = {2: F.conv2d, 3: F.conv3d}


class Conv(NamedTuple):
    """A convolution with a bias."""

    weight: Tensor
    bias: Tensor
    stride: tuple[int, ...]
    padding: tuple[int, ...]

    def plain(self, x: Tensor) -> Tensor:
        return _CONV[x.ndim - 2](x, self.weight, self.bias, self.stride, self.padding)

    def relu(self, x: Tensor) -> Tensor:
        if x.is_cuda and _fuses(x.ndim - 2, x.dtype):
            return torch.cudnn_convolution_relu(x, self.weight, self.bias, *self._rest())
        return self.plain(x).relu_()

    def add_relu(self, x: Tensor, shortcut: Tensor) -> Tensor:
        if x.is_cuda and _fuses(x.ndim - 2, x.dtype):
            return torch.cudnn_convolution_add_relu(x, self.weight, shortcut, 1.0, self.bias, *self._rest())
        return self.plain(x).add_(shortcut).relu_()

    def _rest(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]:
        return self.stride, self.padding, (1,) * len(self.stride), 1


class Block(NamedTuple):
    """A residual block."""

    first: Conv
    second: Conv
    shortcut: Conv | None

    def __call__(self, x: Float[Tensor, "b c *size"]) -> Float[Tensor, "b c2 *size2"]:
        return self.second.add_relu(self.first.relu(x), x if self.shortcut is None else self.shortcut.plain(x))


class FoldedEncoder:
    """What an `Encoder` in evaluation mode computes."""

    def __init__(self, encoder: Encoder, dtype: torch.dtype, device: torch.device) -> None:
        stem, norm, _, pool, *blocks = encoder
        assert isinstance(stem, Stem)
        self.axes, self.dtype, self.device = stem.axes, dtype, device
        self.blocked = device.type == "cuda"  # as in `Stem`: tensor cores want several channels
        self.format = _LAST[stem.axes] if self.blocked else torch.contiguous_format  # a CPU's is its own affair
        kernel = stem_kernel(stem.weight, stem.axes) if self.blocked else stem.weight
        stride, padding = ((1,), (0,)) if self.blocked else ((2,), (3,))
        self.stem = self._fold(kernel, norm, stride * stem.axes, padding * stem.axes)
        self.pool = pool  # has no weights
        self.blocks = [self._block(block) for block in blocks if isinstance(block, BasicBlock)]

    def __call__(self, image: Float[Tensor, "b 1 *size"]) -> Float[Tensor, "b 256 *eighth"]:
        x = image.to(self.dtype)
        x = blocks_of(x, self.axes) if self.blocked else x
        x = self.stem.relu(x)
        x = self.pool(x)
        for block in self.blocks:
            x = block(x)
        return x

    def _block(self, block: BasicBlock) -> Block:
        first, first_norm, _, second, second_norm = block.residual
        shortcut = block.shortcut
        return Block(
            self._convolution(first, first_norm),
            self._convolution(second, second_norm),
            self._convolution(*shortcut) if isinstance(shortcut, nn.Sequential) else None,
        )

    def _convolution(self, layer: nn.Module, norm: nn.Module) -> Conv:
        assert isinstance(layer, nn.Conv2d | nn.Conv3d)
        stride, padding = layer.stride, layer.padding
        assert not isinstance(padding, str)
        return self._fold(layer.weight, norm, stride, padding)

    def _fold(self, weight: Tensor, norm: nn.Module, stride: tuple[int, ...], padding: tuple[int, ...]) -> Conv:
        """A convolution and the batch norm behind it as one: y = g (w x - m) / s + b."""
        assert isinstance(norm, nn.BatchNorm2d | nn.BatchNorm3d)
        assert norm.running_var is not None
        assert norm.running_mean is not None
        gain = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
        bias = norm.bias.double() - gain * norm.running_mean.double()
        folded = weight.double() * gain.reshape(-1, *(1,) * (weight.ndim - 1))
        kernel = folded.to(self.device, self.dtype).contiguous(memory_format=self.format)
        return Conv(kernel, bias.to(self.device, self.dtype), stride, padding)


def can_fold(encoder: Encoder) -> bool:
    """Batch norms can be folded; instance norms depend on the image."""
    return isinstance(encoder[1], nn.BatchNorm2d | nn.BatchNorm3d)


@cache
def _fuses(axes: int, dtype: torch.dtype) -> bool:
    """Whether cuDNN has fused kernels for such convolutions here, and they compute what they say."""
    if not torch.backends.cudnn.is_available():
        return False
    generator = torch.Generator().manual_seed(0)
    image, weight = (
        torch.randn(n, 64, *(size,) * axes, generator=generator).to("cuda", dtype, memory_format=_LAST[axes])
        for n, size in ((1, 8), (64, 3))
    )
    bias = torch.randn(64, generator=generator).to("cuda", dtype)
    settings = ((1,) * axes, (1,) * axes, (1,) * axes, 1)
    try:
        found = torch.cudnn_convolution_add_relu(image, weight, image, 1.0, bias, *settings)
        again = torch.cudnn_convolution_relu(image, weight, bias, *settings)
    except RuntimeError:
        return False
    plain = _CONV[axes](image.float(), weight.float(), bias.float(), padding=1)
    wanted = (plain + image.float()).relu(), plain.relu()
    return all(torch.allclose(x.float(), y, rtol=0.05, atol=0.5) for x, y in zip((found, again), wanted, strict=True))
