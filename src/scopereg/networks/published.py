"""The forward pass as published: slice tokens replicated over depth, one direction at a time, one scan per plane.

The slow twin of `ScopeReg.forward`: the same weights, the same result, several times the work. It is what the paper's
GFLOPs and frame rates describe, so costs are compared with it; tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.networks.decoder import DEPTH_STATES, DepthGate
from scopereg.networks.fusion import CoordinateScan, FeatureScan
from scopereg.networks.scope_reg import NetworkResult, ScopeReg, solve_pose
from scopereg.ops import selective_scan
from scopereg.ops.decode.plain import correspondence, decay_rates, positive

Scan = Callable[..., Tensor]  # (u, delta, A, B, C, D) as in scopereg.ops.selective_scan


def forward_as_published(
    network: ScopeReg, slices: Float[Tensor, "b h w"], volumes: Float[Tensor, "v d h w"], scan: Scan = selective_scan
) -> NetworkResult:
    """What `network(slices, volumes)` gives, computed as in the paper; `scan` may be replaced to time."""
    if type(network) is not ScopeReg or network.looks != 1:
        raise ScopeRegError(
            f"{type(network).__name__} with {getattr(network, 'looks', 1)} looks has no published form",
            where="forward_as_published(network)",
            fix="use scope-reg or cwcd-kabsch with one look, or count the network itself: evaluation.cost.network_cost",
        )
    tokens = network.encoder(slices, volumes)
    x_v = tokens.volume  # (B, D', L, C')
    x_s = tokens.slice[:, None].expand(-1, x_v.shape[1], -1, -1).contiguous()
    order = tokens.lattice.orders(x_v.device)
    points = tokens.lattice._replace(reach=network.reach).volume_points(x_v.device)
    decoder = network.decoder
    fused = torch.zeros_like(x_v, dtype=torch.float32)
    moments = torch.zeros(*x_v.shape[:3], 4, device=x_v.device)
    for k, path in enumerate(order):
        back = path.argsort()
        ordered = (x_v[:, :, path], x_s[:, :, path])
        fused = fused + _feature_scan(decoder.feature_scan, k, *ordered, scan)[:, :, back]
        moments = moments + _coordinate_scan(decoder.coordinate_scan, k, *ordered, points[:, path], scan)[:, :, back]
    if decoder.matching:
        fused = fused + x_s * x_v
    gate = _depth_gate(decoder.depth_gate, fused.to(x_v.dtype), scan)
    coordinates, evidence = correspondence(moments, gate)
    return solve_pose(coordinates, evidence, tokens.lattice, weighted=network.weighted)


def _feature_scan(module: FeatureScan, k: int, x_v: Tensor, x_s: Tensor, scan: Scan) -> Tensor:
    assert module.step.bias is not None
    values, gates = (x.flatten(0, 1) for x in (x_v, x_s))  # (B D', L, C'): every plane is a sequence of its own
    step = F.softplus(F.linear(gates, module.step.weight[k], module.step.bias[k]).float())
    write, read = (F.linear(gates, layer.weight[k]) for layer in (module.write, module.read))
    y = scan(values, step, module.decay()[k], write, read, module.skip[k])
    return y.float().unflatten(0, x_v.shape[:2])


def _coordinate_scan(module: CoordinateScan, k: int, x_v: Tensor, x_s: Tensor, points: Tensor, scan: Scan) -> Tensor:
    volume, gates = (x.flatten(0, 1) for x in (x_v, x_s))

    def gate(layer: torch.nn.Module, tokens: Tensor) -> Tensor:
        return positive(F.linear(tokens, layer.weight[k], layer.bias[k]))  # type: ignore[index]

    step, write, read = gate(module.step, volume), gate(module.write, volume), gate(module.read, gates)
    values = points.expand(len(x_v), -1, -1, -1).flatten(0, 1)  # (B D', L, 4)
    decay = module.decay()[k].expand(4, -1)
    z = scan(values, step.expand(-1, -1, 4), decay, write, read, None)
    return z.unflatten(0, x_v.shape[:2])


def _depth_gate(module: DepthGate, fused: Tensor, scan: Scan) -> Tensor:
    batch, _, length, _ = fused.shape
    columns = fused.transpose(1, 2).flatten(0, 1)  # (B L, D', C')
    total = torch.zeros(columns.shape[:2], device=fused.device)
    for flipped in (False, True):
        ordered = columns.flip(1) if flipped else columns
        gates = positive(module.linear(ordered))
        write, read, step = gates.split([DEPTH_STATES, DEPTH_STATES, 1], -1)
        mass = scan(torch.ones_like(step), step, decay_rates(module.log_decay)[None], write, read, None).squeeze(-1)
        total = total + (mass.flip(1) if flipped else mass)
    return total.unflatten(0, (batch, length)).transpose(1, 2)
