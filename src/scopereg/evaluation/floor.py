"""Floor: the least time that each stage of SCoPE-Reg can take on a device, beside the time that it takes.

The ceilings are measured, not read from a data sheet: what one big product and one big copy reach. A stage that finds
its numbers in a cache may come below the floor of its bytes, since the copy does not.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from scopereg.evaluation.forms import METHODS, Setting
from scopereg.evaluation.stages import Stages, stage_seconds
from scopereg.evaluation.work import USES, Cells, Work, stage_work

_SIDE = {"cuda": 8192, "cpu": 1024}  # of the matrices whose product is timed, half of it in float32
_COPIED = {"cuda": 2**29, "cpu": 2**26}  # bytes
_SUMS = {"streaming": "a frame, streaming", "prepare": "a volume, prepared", "whole": "a frame and its volume, whole",
         "look": "each further look"}  # fmt: skip


class Ceilings(NamedTuple):
    """What the device reached in this run, at its best."""

    product_flops: float  # per second, products in the precision of the encoders
    float_product_flops: float  # per second, products in float32, rounded as convolutions may
    float_flops: float  # per second, in float32 to the last bit
    bytes: float  # per second, read and written
    link_bytes: float  # per second from host to device


@dataclass(frozen=True)
class StageTime:
    """A stage, or the sum of those that a form goes through."""

    method: str
    resolution: int
    stage: str
    mflop: float  # 2 for a multiply-add, scans as little as can be
    mib: float  # moved in memory or over the link
    floor_us: float
    measured_us: float
    times_floor: float
    is_sum: bool = False


def measure_ceilings(device: torch.device, dtype: torch.dtype, seconds: float = 0.2) -> Ceilings:
    """Rates of one big product in each precision, one big copy, and one from the host."""
    kind = "cuda" if device.type == "cuda" else "cpu"
    memory = _copy_rate(torch.empty(_COPIED[kind], dtype=torch.uint8, device=device), device, seconds)
    link = memory
    if kind == "cuda":
        link = _copy_rate(torch.empty(_COPIED[kind] // 8, dtype=torch.uint8).pin_memory(), device, seconds) / 2
    products = float_products = floats = _product_flops(device, dtype, _SIDE[kind], seconds)
    if dtype != torch.float32:
        float_products = floats = _product_flops(device, torch.float32, _SIDE[kind] // 2, seconds)
    if device.type == "cuda" and torch.backends.cudnn.allow_tf32:
        floats = _product_flops(device, torch.float32, _SIDE[kind] // 2, seconds, exact=True)
    return Ceilings(products, float_products, floats, memory, link)


def floor_s(work: Work, ceilings: Ceilings) -> float:
    """Seconds: computing and moving at the same time, behind the link."""
    computing = 2 * work.products / ceilings.product_flops + 2 * work.float_products / ceilings.float_product_flops
    computing += work.least_floats / ceilings.float_flops
    return max(computing, work.bytes / ceilings.bytes) + work.link_bytes / ceilings.link_bytes


def stage_times(method: str, setting: Setting, ceilings: Ceilings, seconds: float = 0.1) -> list[StageTime]:
    """Every stage of a method alone, and the sums of its forms."""
    streaming = setting.streaming(setting.network(method))
    cells = Cells(setting.shape, streaming.depth_stride)
    work = stage_work(cells, streaming.dtype.itemsize, matching=streaming.matching)
    stages = Stages(streaming, *setting.images()).table
    forms = [form for form in USES if form != "look" or streaming.looks > 1]
    used = {name for form in forms for name in USES[form]}
    if setting.device.type == "cpu":
        used -= {"copy of frame and pose", "copy of the volume"}  # all is there already
    found: dict[str, StageTime] = {}
    for name in sorted(used, key=list(stages).index):
        measured_s = statistics.median(stage_seconds(stages[name], setting.device, seconds))
        found[name] = _stage_time(method, setting, name, work[name], floor_s(work[name], ceilings), measured_s)
    sums = [_sum(method, setting, form, [found[name] for name in USES[form] if name in found]) for form in forms]
    return [*found.values(), *sums]


def staged(methods: Sequence[str]) -> list[str]:
    """Those of the methods that have these stages."""
    return [method for method in methods if METHODS[method].network == "scope-reg"]


def _stage_time(method: str, setting: Setting, name: str, work: Work, least_s: float, measured_s: float) -> StageTime:
    flop = 2 * (work.products + work.float_products) + work.least_floats
    moved = work.bytes + work.link_bytes
    return StageTime(
        method, setting.resolution, name, flop / 1e6, moved / 2**20, 1e6 * least_s, 1e6 * measured_s,
        measured_s / least_s,
    )  # fmt: skip


def _sum(method: str, setting: Setting, form: str, parts: list[StageTime]) -> StageTime:
    mflop, mib, floor_us, measured_us = (
        sum(getattr(part, name) for part in parts) for name in ("mflop", "mib", "floor_us", "measured_us")
    )
    return StageTime(
        method, setting.resolution, _SUMS[form], mflop, mib, floor_us, measured_us, measured_us / floor_us, True
    )


def _copy_rate(source: Tensor, device: torch.device, seconds: float) -> float:
    """Bytes per second, read and written."""
    target = torch.empty_like(source, device=device)
    return 2 * len(source) / min(stage_seconds(lambda: target.copy_(source, non_blocking=True), device, seconds))


def _product_flops(
    device: torch.device, dtype: torch.dtype, side: int, seconds: float, *, exact: bool = False
) -> float:
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    before = torch.backends.cuda.matmul.allow_tf32
    # Convolutions may round to TF32 by default where products may not, and a product may run as a convolution.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 and not exact
    try:
        return 2 * side**3 / min(stage_seconds(lambda: left @ right, device, seconds))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
