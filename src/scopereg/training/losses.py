"""The pose loss that trains every network here, and two regularisers of the coordinate field (paper, supplement)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses
from scopereg.geometry.elastic import POISSON_RATIO, navier_cauchy
from scopereg.networks.encoders import STRIDE
from scopereg.networks.lattice import kept
from scopereg.networks.scope_reg import NetworkResult
from scopereg.training.presets import PAPER
from scopereg.training.settings import TrainSettings

LEVER_VOXELS = 43.0  # rho: half the side of the cube whose corners and face centres are compared
ROUND_VOXELS = 0.5  # where the distance loss turns into a parabola: a distance has no slope at zero
EARLIER = 0.5  # what a look counts beside the one after it


def total_loss(result: NetworkResult, true: VoxelPoses, settings: TrainSettings = PAPER) -> Tensor:
    """The loss (B,) of a network's result; the published one unless the settings say otherwise."""
    measure = {"squared": pose_loss, "distance": distance_loss}[settings.loss]
    loss = measure(VoxelPoses(result.rotation, result.translation), true, settings.lever_voxels)
    if result.earlier is not None:
        loss = loss + EARLIER * total_loss(result.earlier, true, settings)
    if not (settings.coordinates or settings.flow or settings.elasticity):
        return loss
    if result.coordinates is None:
        raise ScopeRegError(
            "the network predicts no coordinate field",
            where="train(coordinates, flow, elasticity)",
            fix="set these weights to 0, or train a network that has one, such as scope-reg",
        )
    if settings.coordinates:
        loss = loss + settings.coordinates * coordinate_loss(result.coordinates, true)
    if settings.flow:
        loss = loss + settings.flow * flow_loss(result.coordinates, true)
    if settings.elasticity:
        loss = loss + settings.elasticity * elasticity_loss(result.coordinates)
    return loss


def reference_points(lever: float = LEVER_VOXELS, *, device: torch.device | None = None) -> Tensor:
    """The 8 corners and 6 face centres (14, 3) of the cube [-lever, lever]^3."""
    return kept(_reference_points, lever, device)


def _reference_points(lever: float, device: torch.device | None) -> Tensor:
    ends = torch.linspace(-1, 1, 2, device=device)  # made there: a copy from the host could not be captured in a graph
    corners = torch.cartesian_prod(ends, ends, ends)
    faces = torch.cat([torch.eye(3, device=device), -torch.eye(3, device=device)])
    return lever * torch.cat([corners, faces])


def pose_loss(predicted: VoxelPoses, true: VoxelPoses, lever: float = LEVER_VOXELS) -> Tensor:
    """Mean squared displacement (B,) in voxels^2 of the 14 reference points: couples rotation and translation."""
    return _squared_displacements(predicted, true, lever).mean(-1)


def distance_loss(predicted: VoxelPoses, true: VoxelPoses, lever: float = LEVER_VOXELS) -> Tensor:
    """Mean displacement (B,) in voxels of the 14 reference points, rounded off below half a voxel.

    The squared loss follows its worst frames; this one is what mTRE averages.
    """
    squared = _squared_displacements(predicted, true, lever)
    return (torch.sqrt(squared + ROUND_VOXELS**2) - ROUND_VOXELS).mean(-1)


def _squared_displacements(predicted: VoxelPoses, true: VoxelPoses, lever: float) -> Tensor:
    """Squared distances (B, 14) between the reference points under both poses."""
    points = reference_points(lever, device=true.rotation.device).to(true.rotation.dtype)
    turned = (predicted.rotation - true.rotation) @ points.T  # (B, 3, 14)
    moved = turned + (predicted.translation - true.translation)[..., None]
    return moved.square().sum(1)


def coordinate_loss(coordinates: Tensor, true: VoxelPoses) -> Tensor:
    """Mean distance (B,) in voxels of the cells' coordinates (B, 3, H', W') from where the true pose puts them.

    The pose loss reaches a cell only through the fit of all; this tells each where it belongs.
    """
    wrong = (coordinates - true_field(slice_field(coordinates), true)) * STRIDE
    distance = torch.sqrt(wrong.square().sum(1) + ROUND_VOXELS**2) - ROUND_VOXELS
    return distance.mean((1, 2))


def flow_loss(coordinates: Tensor, true: VoxelPoses) -> Tensor:
    """L_flow (B,): the field q - p against the one of the true pose, and their gradient norms against each other.

    `coordinates` (B, 3, H', W') in cells. Smooth-L1 of both, as EUReg supervises its coarse field.
    """
    _check_field(coordinates, 2, "flow_loss")
    source = slice_field(coordinates)
    field = coordinates - source
    wanted = true_field(source, true) - source
    values = F.smooth_l1_loss(field, wanted, reduction="none").mean((1, 2, 3))
    slopes = F.smooth_l1_loss(_gradient_norm(field), _gradient_norm(wanted), reduction="none").mean((1, 2))
    return values + slopes


def elasticity_loss(coordinates: Tensor, poisson_ratio: float = POISSON_RATIO) -> Tensor:
    """L_phy (B,): mean squared residual of the Navier-Cauchy equation of the field q - p, inside of its border.

    `coordinates` (B, 3, H', W'). The field lives on a plane, so derivatives are those along x and y.
    """
    _check_field(coordinates, 3, "elasticity_loss")
    if not -1 < poisson_ratio < 0.5:
        raise ScopeRegError(
            f"Poisson's ratio is {poisson_ratio}", where="elasticity_loss(poisson_ratio)", fix="pass a number below 0.5"
        )
    field = coordinates - slice_field(coordinates)
    residual = navier_cauchy(field, poisson_ratio)
    return residual.square().sum(1).mean((1, 2))


def slice_field(coordinates: Tensor) -> Tensor:
    """Cells (B, 3, H', W') of the slice itself as x, y, 0, counted from its centre.

    Right for sizes that are multiples of the stride; padding an odd number moves the cells by half a voxel.
    """
    height, width = coordinates.shape[-2:]
    y = torch.arange(height, device=coordinates.device) - (height - 1) / 2
    x = torch.arange(width, device=coordinates.device) - (width - 1) / 2
    grid = torch.stack([x.expand(height, -1), y[:, None].expand(-1, width), torch.zeros_like(x).expand(height, -1)])
    return grid.to(coordinates.dtype).expand(len(coordinates), -1, -1, -1)


def true_field(source: Tensor, true: VoxelPoses) -> Tensor:
    """Where the slice's cells (B, 3, H', W') truly lie, in cells."""
    turned = torch.einsum("bij,bjhw->bihw", true.rotation, source)
    return turned + (true.translation / STRIDE)[..., None, None]


def _check_field(coordinates: Tensor, cells: int, where: str) -> None:
    if coordinates.ndim != 4 or coordinates.shape[1] != 3 or min(coordinates.shape[2:]) < cells:
        raise ScopeRegError(
            f"a field of shape {tuple(coordinates.shape)} has too few cells for its derivatives",
            where=f"{where}(coordinates)",
            fix=f"pass (B, 3, H', W') with at least {cells} cells of 8 pixels on each side",
        )


def _gradient_norm(field: Tensor) -> Tensor:
    """Length (B, H'-1, W'-1) of all forward differences of a field."""
    along_x = field[..., :-1, 1:] - field[..., :-1, :-1]
    along_y = field[..., 1:, :-1] - field[..., :-1, :-1]
    # The root has no slope at zero, where a field starts: a rounding error's worth keeps its gradient finite.
    return (along_x.square() + along_y.square()).sum(1).add(1e-12).sqrt()
