"""Structures: vessels, membranes, chambers and what casts shadows, added to the tissue of a world."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.data.worlds.draws import Draws, on_device
from scopereg.data.worlds.fields import MAP_STEP, Box, Fields
from scopereg.data.worlds.ranges import WorldRanges
from scopereg.data.worlds.tissue import Tissue
from scopereg.geometry import rotation_from_euler_deg

_WALL = 0.07  # thickness of a tube's wall, in values of its fields
_TUBE_EDGE = 40.0
_THRESHOLD_EDGE = 12.0  # steepness of what exceeds a threshold of a field
_BODY_EDGE = 1.2  # per voxel


def add_tubes(tissue: Tissue, fields: Fields, ranges: WorldRanges, draws: Draws) -> None:
    """Systems of vessels: near the lines where two fields vanish together, with walls."""
    for width in ranges.tube_widths:
        distance = fields.draw(2, width).square().sum(1).sqrt()
        there = draws.chance(ranges.tube_chance)
        radius = draws.uniform(ranges.tube_radius)
        inside = torch.sigmoid((radius - distance) * _TUBE_EDGE) * there
        wall = torch.exp(-(((distance - radius) / _WALL) ** 2)) * there
        tissue.fill(inside, draws.uniform(ranges.tube_echo_db), draws.uniform((0.0, 1.0)), -0.03)
        tissue.brighten(wall, draws.uniform(ranges.tube_wall_db))


def add_sheets(tissue: Tissue, fields: Fields, ranges: WorldRanges, draws: Draws) -> None:
    """Membranes and layers: thin level sets, in patches, brighter where the beam meets them squarely."""
    for _ in range(ranges.sheets):
        field, patch = fields.draw(2, ranges.sheet_width, aspect=(0.4, 2.2)).unbind(1)
        wave = torch.sin(field * draws.log_uniform(ranges.sheet_turns) + draws.uniform((0.0, 6.3)))
        slopes = torch.gradient(wave, dim=(1, 2, 3))  # per node, z y x
        steep = torch.sqrt(sum((slope.square() for slope in slopes), torch.full_like(wave, 1e-8)))
        line = torch.exp(-0.5 * (wave / (steep * draws.uniform(ranges.sheet_thickness))) ** 2)
        square = (slopes[1].abs() / steep) ** draws.uniform(ranges.sheet_specular)
        line = line * torch.sigmoid(4 * (patch - draws.uniform((-1.5, 1.0)))) * draws.chance(ranges.sheet_chance)
        tissue.brighten(line * square, draws.uniform(ranges.sheet_db))
        tissue.foreign = torch.addcmul(tissue.foreign, line, draws.uniform((-0.5, 0.3)))


def add_bodies(tissue: Tissue, fields: Fields, ranges: WorldRanges, draws: Draws) -> None:
    """Cysts, chambers and glands: warped ellipsoids, filled with fluid or tissue, with a wall or layers."""
    warps = fields.draw(ranges.bodies, (8.0, 30.0)).unbind(1) if ranges.bodies else ()
    for warp in warps:
        level = body_level(fields.box, ranges, draws, warp)
        there = draws.chance(ranges.body_chance)
        inside = torch.sigmoid(_BODY_EDGE * level) * there
        fluid = draws.chance(ranges.body_fluid_chance)
        echo = torch.where(fluid, draws.uniform(ranges.fluid_echo_db), draws.uniform(ranges.body_echo_db))
        # Wholly replaced or tinted, so that texture and vessels may shine through.
        cover = torch.where(fluid, 1.0, draws.uniform((0.3, 1.0)))
        attenuation = torch.where(fluid, -0.03, draws.uniform(ranges.label_attenuation_db))
        tissue.fill(inside * cover, echo, draws.uniform((0.0, 1.0)), attenuation)
        layered = inside * torch.cos(level * 6.2832 / draws.uniform(ranges.body_layer_period))
        strength = draws.uniform(ranges.body_layer_db) * (draws.chance(ranges.body_layer_chance) & ~fluid)
        tissue.brighten(layered, strength)
        thickness = draws.uniform(ranges.body_wall)
        wall = torch.sigmoid(_BODY_EDGE * (level + thickness)) * there - inside
        tissue.brighten(wall, draws.uniform(ranges.body_wall_db), draws.uniform((-0.3, 0.3)))


def body_level(box: Box, ranges: WorldRanges, draws: Draws, warp: Float[Tensor, "n z y x"]) -> Float[Tensor, "n z y x"]:
    """Depth of every node within an ellipsoid, in voxels; negative outside."""
    flat, device = draws.with_axes(0), draws.device
    radius = flat.log_uniform(ranges.body_radius, 1)  # (n, 1)
    radii = radius * flat.log_uniform(ranges.body_aspect, 3)
    half = on_device(tuple((n - 1) / 2 for n in reversed(box.shape)), device)
    centre = flat.uniform((-1.0, 1.0), 3) * half
    turn = rotation_from_euler_deg(flat.uniform((-180.0, 180.0), 3))
    axes = [(torch.arange(n, device=device) - (n - 1) / 2) * MAP_STEP for n in box.nodes]
    to_ball = turn / radii[:, :, None]  # rows are the axes of the ellipsoid, in radii
    moved = torch.einsum("nij,nj->ni", to_ball, centre)
    squared = torch.zeros_like(warp)
    for row, shift in zip(to_ball.unbind(1), moved.unbind(1), strict=True):
        x, y, z = (row[:, k, None] * axis for k, axis in enumerate(reversed(axes)))  # (n, nodes of the axis)
        place = z[:, :, None, None] + y[:, None, :, None] + (x - shift[:, None])[:, None, None, :]
        squared = torch.addcmul(squared, place, place)
    amount = draws.uniform(ranges.body_warp)
    return (1 + amount * warp - squared.sqrt()) * radius[:, :, None, None]


def add_shadowing(tissue: Tissue, fields: Fields, ranges: WorldRanges, draws: Draws) -> None:
    """Specks of calcium or gas and larger bodies of bone: bright, and dark behind them."""
    (field,) = fields.draw(1, ranges.speck_width).unbind(1)
    specks = torch.sigmoid(_THRESHOLD_EDGE * (field - draws.uniform((2.0, 3.5)))) * draws.chance(ranges.speck_chance)
    tissue.brighten(specks, 18.0)
    tissue.attenuation_db = torch.addcmul(tissue.attenuation_db, specks, draws.uniform(ranges.speck_attenuation_db))
    (field,) = fields.draw(1, ranges.bone_width).unbind(1)
    bones = torch.sigmoid(_THRESHOLD_EDGE * (field - draws.uniform((1.4, 2.6)))) * draws.chance(ranges.bone_chance)
    tissue.brighten(bones, 10.0, -draws.uniform((0.0, 1.0)))
    tissue.attenuation_db = tissue.attenuation_db + 0.8 * bones
