"""SCoPE-Reg: encoders, coordinate decoder, weighted Kabsch. 6.49 M parameters at every resolution."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.networks.decoder import CoordinateDecoder, Correspondence, Steering
from scopereg.networks.encoders import STRIDE, Encoder, NormName
from scopereg.networks.fusion import TokenProjection
from scopereg.networks.lattice import Lattice, pad_to_stride
from scopereg.networks.passes import place, seen_from
from scopereg.ops.decode import fit_pose
from scopereg.ops.replay import side_by_side


class NetworkResult(NamedTuple):
    """The pose of each slice in its volume and what it was fitted to."""

    rotation: Float[Tensor, "b 3 3"]  # slice to volume
    translation: Float[Tensor, "b 3"]  # voxels
    coordinates: Float[Tensor, "b 3 h w"] | None = None  # x, y, z in cells of 8 voxels from the volume's centre
    evidence: Float[Tensor, "b h w"] | None = None  # positive
    earlier: NetworkResult | None = None  # of the decoding pass before, while training


class Tokens(NamedTuple):
    """Both images encoded."""

    slice: Float[Tensor, "b l c"]  # x_s
    volume: Float[Tensor, "b d l c"]  # x_v
    lattice: Lattice
    volume_features: Float[Tensor, "b c d h w"]  # F_v


class SliceVolumeEncoder(nn.Module):
    """Both branches up to the tokens: encoder, layer norm, 1x1 projection. Every variant of the ablation starts here.

    Fewer volumes than slices: each volume is encoded once and serves that many slices in a row.
    """

    def __init__(self, norm: NormName = "batch", depth_stride: int = STRIDE) -> None:
        super().__init__()
        self.depth_stride = depth_stride
        self.slice_encoder = Encoder(2, norm)
        self.volume_encoder = Encoder(3, norm, depth_stride)
        self.slice_projection = TokenProjection()
        self.volume_projection = TokenProjection()

    def forward(self, slices: Tensor, volumes: Tensor) -> Tokens:
        check_inputs(slices, volumes)
        dtype = next(self.parameters()).dtype  # images in half precision may meet weights in single
        slices, volumes, lattice = pad_to_stride(slices.to(dtype), volumes.to(dtype), self.depth_stride)
        x_s, (x_v, features_v) = side_by_side(
            lambda: self.slice_tokens(slices), lambda: self.volume_tokens(volumes), slices
        )
        if slices.shape[0] != volumes.shape[0]:
            frames = slices.shape[0] // volumes.shape[0]
            x_v, features_v = (x.repeat_interleave(frames, 0) for x in (x_v, features_v))
        return Tokens(x_s, x_v, lattice, features_v)

    def slice_tokens(self, slices: Float[Tensor, "b h w"]) -> Float[Tensor, "b l c"]:
        """x_s of padded slices."""
        return self.slice_projection(self.slice_encoder(slices[:, None])).flatten(1, 2)

    def volume_tokens(
        self, volumes: Float[Tensor, "v d h w"]
    ) -> tuple[Float[Tensor, "v d2 l c"], Float[Tensor, "v c2 d2 h2 w2"]]:
        """x_v of padded volumes, and the features F_v they are of."""
        features = self.volume_encoder(volumes[:, None])
        return self.volume_projection(features).flatten(2, 3), features


class ScopeReg(nn.Module):
    """Slice (B, H, W) and volume (B, D, H, W) in [0, 1] to the slice's pose in the volume.

    `weighted=False` fits all tokens alike (the variant `cwcd-kabsch`). `depth_stride=4` encodes twice the planes with
    the same weights; 8 is published. `reach` stretches the volume's points about its centre: a weighted mean of them
    lies nearer to the centre than the points it prefers, and a slice may leave the volume; 1 is published. `matching`
    lets the depth gate compare both images, see `CoordinateDecoder`. `looks` decodes the encoded volume that often, as
    seen from the pose before; 1 is published. Those after the first see `later_planes` encoded planes about the slice,
    or all where that is 0.
    """

    def __init__(
        self,
        *,
        norm: NormName = "batch",
        depth_stride: int = STRIDE,
        reach: float = 1.0,
        matching: bool = False,
        looks: int = 1,
        later_planes: int = 0,
        weighted: bool = True,
    ) -> None:
        super().__init__()
        self.depth_stride, self.reach, self.matching, self.looks = depth_stride, reach, matching, looks
        self.later_planes = later_planes
        self.encoder = SliceVolumeEncoder(norm, depth_stride)
        self.decoder = CoordinateDecoder(matching=matching)
        self.weighted = weighted

    def forward(self, slice: Tensor, volume: Tensor) -> NetworkResult:
        tokens = self.encoder(slice, volume)
        # All decoding passes are steered by the same slice: its gates are computed once.
        steering = self.decoder.steer(tokens.slice) if self.looks > 1 else None
        lattice = self.stretched(tokens.lattice)
        found = self.solve(self.decoder(tokens.slice, tokens.volume, lattice, steering), tokens.lattice)
        for _ in range(self.looks - 1):
            found = self.look_again(tokens, found, steering)
        return found

    def look_again(self, tokens: Tokens, found: NetworkResult, steering: Steering | None = None) -> NetworkResult:
        """Decode once more from the pose found, which is taken as given: no gradient goes through it."""
        rotation, shift = found.rotation.detach(), found.translation.detach() / STRIDE
        seen = seen_from(tokens.volume, tokens.lattice, rotation, shift, self.later_planes)
        lattice = self.stretched(tokens.lattice.middle_planes(self.later_planes))
        coordinates, evidence = self.decoder(tokens.slice, seen, lattice, steering)
        # In the volume's own coordinates, the fit of these is the pose of both looks together.
        result = self.solve(Correspondence(place(coordinates, rotation, shift), evidence), tokens.lattice)
        return result._replace(earlier=found) if self.training else result

    def stretched(self, lattice: Lattice) -> Lattice:
        return lattice._replace(reach=self.reach)

    def solve(self, found: Correspondence, lattice: Lattice) -> NetworkResult:
        return solve_pose(*found, lattice, weighted=self.weighted)


def solve_pose(
    coordinates: Float[Tensor, "b l 3"], evidence: Float[Tensor, "b l"], lattice: Lattice, *, weighted: bool = True
) -> NetworkResult:
    """Closed-form fit of the slice's cells to their coordinates, weighed by the evidence."""
    weights = evidence if weighted else torch.ones_like(evidence)
    rotation, translation = fit_pose(lattice.slice_points(coordinates.device), coordinates, weights)
    grid = lattice.shape[1:]
    return NetworkResult(
        rotation,
        translation * STRIDE,  # cells to voxels; a rotation has no scale
        coordinates.transpose(1, 2).unflatten(-1, grid),
        evidence.unflatten(-1, grid),
    )


def check_inputs(slices: Tensor, volumes: Tensor) -> None:
    """An error for shapes that cannot go together; nothing that depends on values, so that graphs can be captured."""
    fits = (
        slices.ndim == 3
        and volumes.ndim == 4
        # not len(): export keeps the batch free, and never asks for the remainder
        and (slices.shape[0] == volumes.shape[0] or slices.shape[0] % max(volumes.shape[0], 1) == 0)
        and slices.shape[1:] == volumes.shape[2:]
        and min(volumes.shape[1:]) >= 1
    )
    if not fits:
        raise ScopeRegError(
            f"a slice of shape {tuple(slices.shape)} does not fit a volume of shape {tuple(volumes.shape)}",
            where="network(slice, volume)",
            fix="pass slice (B, H, W) and volume (B, D, H, W) with the same B, H and W, or fewer volumes that each "
            "serve several slices in a row",
        )
    if not (slices.is_floating_point() and volumes.is_floating_point()):
        raise ScopeRegError(
            f"images are {slices.dtype} and {volumes.dtype}",
            where="network(slice, volume)",
            fix="pass floating-point images scaled to [0, 1]",
        )
