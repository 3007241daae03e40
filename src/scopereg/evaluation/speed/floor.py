"""Floor: the least time that each stage of SCoPE-Reg can take on a device, beside the time that it takes.

What a stage computes and moves at the least stands in `stage_work`; the operations of a whole network are counted in
`evaluation.cost`. The ceilings are measured, not read from a data sheet: what one big product and one big copy reach.
A stage that finds its numbers in a cache may come below the floor of its bytes, since the copy does not.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from scopereg.evaluation.speed.modes import NETWORKS, Setting
from scopereg.evaluation.speed.stages import Stages, stage_seconds
from scopereg.networks.decoder import DEPTH_STATES
from scopereg.networks.encoders import CHANNELS, STRIDE
from scopereg.networks.fusion import DIRECTIONS, STATES, WIDTH

_GATES = DIRECTIONS * (WIDTH + 3 * STATES)  # numbers that a slice token steers both scans with
# Of the coordinate scan, from a volume token. A CPU maps those of further looks once for all frames: not told apart.
_VOLUME_GATES = DIRECTIONS * (1 + STATES)
_DEPTH_GATES = 2 * DEPTH_STATES + 1
_POINT = 4  # x, y, z, 1
_POSE_BYTES = 4 * 12
_FIT_OPERATIONS = 40  # per token: weighted sums, then what is left of the fit

# Stages that a mode goes through. Those of `look` come once more for every look after the first.
USES: dict[str, tuple[str, ...]] = {
    "streaming": (
        "copy of frame and pose",
        "2D encoder",
        "slice gates",
        "feature scan",
        "depth gate",
        "planes, read from the table",
        "fit",
    ),
    "prepare": ("copy of the volume", "3D encoder", "volume tokens", "coordinate gates", "coordinate states"),
    "whole": (
        "copy of frame and pose",
        "copy of the volume",
        "2D encoder",
        "3D encoder",
        "slice gates",
        "volume tokens",
        "feature scan",
        "depth gate",
        "coordinate gates",
        "coordinate scan",
        "planes, scanned",
        "fit",
    ),
    "look": (
        "volume seen from the pose",
        "feature scan",
        "depth gate",
        "coordinate gates",
        "coordinate scan",
        "planes, scanned",
        "fit",
    ),
}


class Work(NamedTuple):
    """Operations and bytes of one stage."""

    products: float = 0.0  # multiply-adds in the precision of the encoders
    float_products: float = 0.0  # multiply-adds in float32
    least_floats: float = 0.0  # operations in float32 that nothing saves, besides products
    bytes: float = 0.0  # what comes in and goes out, weights included; what is between may stay in caches
    link_bytes: float = 0.0  # between host and device


class Cells(NamedTuple):
    """Sizes of a volume and of what the encoders make of it; images that need padding count as padded."""

    shape: tuple[int, int, int]  # voxels D, H, W
    depth_stride: int = STRIDE

    @property
    def padded(self) -> tuple[int, int, int]:
        depth, height, width = (n + -n % STRIDE for n in self.shape)
        return depth, height, width

    @property
    def planes(self) -> int:
        return self.padded[0] // self.depth_stride

    @property
    def tokens(self) -> int:
        """Number of one plane, and of the slice."""
        return self.padded[1] * self.padded[2] // STRIDE**2


class Layer(NamedTuple):
    """A convolution: weights, and places where they are applied."""

    inputs: int
    outputs: int
    taps: int
    places: int

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs * self.taps


def encoder_layers(axes: int, cells: Cells) -> list[Layer]:
    """The convolutions of the 2D or 3D encoder."""
    depth, height, width = cells.padded
    # A block halves the planes that the pool leaves; a pool that keeps them gives a depth stride of 4.
    depths = (depth // 2, 2 * cells.planes, cells.planes) if axes == 3 else (1, 1, 1)
    half, quarter, eighth = (d * (height // n) * (width // n) for d, n in zip(depths, (2, 4, 8), strict=True))
    seven, three = 7**axes, 3**axes
    rows = [
        (1, 64, seven, half),
        (64, 64, three, quarter),
        (64, 64, three, quarter),
        (64, 128, three, eighth),
        (128, 128, three, eighth),
        (64, 128, 1, eighth),
        (128, CHANNELS, three, eighth),
        (CHANNELS, CHANNELS, three, eighth),
        (128, CHANNELS, 1, eighth),
    ]
    return [Layer(*row) for row in rows]


def stage_work(cells: Cells, item: int = 4, *, matching: bool = False) -> dict[str, Work]:
    """Every stage by name; `item` is the bytes of a number in the encoders' precision."""
    planes, tokens = cells.planes, cells.tokens
    volume, pixels = planes * tokens, cells.shape[1] * cells.shape[2]
    gates = _GATES + (WIDTH if matching else 0)
    depth_scan = 2 * volume * DEPTH_STATES
    states = DIRECTIONS * volume * STATES  # of the coordinate scan, each of four channels
    feature = DIRECTIONS * tokens * WIDTH * STATES  # decays, which serve all planes
    return {
        "copy of frame and pose": Work(link_bytes=4 * pixels + _POSE_BYTES),
        "copy of the volume": Work(link_bytes=4 * pixels * cells.shape[0]),
        "2D encoder": _encoder(2, cells, item, 4 * pixels),
        "3D encoder": _encoder(3, cells, item, 4 * pixels * cells.shape[0]),
        "slice gates": _projection(tokens, gates, item),
        "volume tokens": _projection(volume, WIDTH, item),
        "coordinate gates": _float_product(volume, WIDTH, _VOLUME_GATES),
        "depth gate": _float_product(volume, WIDTH, _DEPTH_GATES),
        "feature scan": Work(
            # The exponent and its power for all planes; then per plane a product, a multiply-add and the readout's.
            least_floats=feature * (2 + 5 * planes),
            bytes=4 * (2 * volume * WIDTH + DIRECTIONS * (tokens * (WIDTH + 2 * STATES) + WIDTH * STATES)),
        ),
        "coordinate states": Work(
            least_floats=states * (3 + 3 * _POINT),
            bytes=4 * (volume * (_VOLUME_GATES + _POINT) + states * _POINT),
        ),
        "coordinate scan": Work(
            least_floats=states * (3 + 5 * _POINT),
            bytes=4 * (volume * (_VOLUME_GATES + 2 * _POINT) + DIRECTIONS * tokens * STATES),
        ),
        "planes, read from the table": Work(
            float_products=states * _POINT,
            least_floats=5 * depth_scan,
            bytes=4 * (volume * _DEPTH_GATES + states * _POINT + DIRECTIONS * tokens * STATES + tokens * _POINT),
        ),
        "planes, scanned": Work(
            least_floats=5 * depth_scan,
            bytes=4 * (volume * (_DEPTH_GATES + _POINT) + tokens * _POINT),
        ),
        "volume seen from the pose": Work(least_floats=16 * volume * WIDTH, bytes=8 * volume * WIDTH),
        "fit": Work(least_floats=_FIT_OPERATIONS * tokens, bytes=4 * tokens * (2 + _POINT)),
    }


def _encoder(axes: int, cells: Cells, item: int, image_bytes: int) -> Work:
    layers = encoder_layers(axes, cells)
    features = layers[-1].places * CHANNELS
    return Work(
        products=sum(layer.weights * layer.places for layer in layers),
        bytes=image_bytes + item * (sum(layer.weights for layer in layers) + features),
    )


def _projection(tokens: int, outputs: int, item: int) -> Work:
    """Layer norm without a gain, and a map to float32."""
    return Work(
        products=tokens * CHANNELS * outputs,
        bytes=item * CHANNELS * (tokens + outputs) + 4 * tokens * outputs,
    )


def _float_product(tokens: int, inputs: int, outputs: int) -> Work:
    return Work(
        float_products=tokens * inputs * outputs,
        bytes=4 * (tokens * inputs + inputs * outputs + tokens * outputs),
    )


_SIDE = {"cuda": 8192, "cpu": 1024}  # of the matrices whose product is timed, half of it in float32
_COPIED = {"cuda": 2**29, "cpu": 2**26}  # bytes
_SUMS = {"streaming": "a frame, streaming", "prepare": "a volume, prepared", "whole": "a frame and its volume, whole",
         "look": "each further look"}  # fmt: skip


class Ceilings(NamedTuple):
    """Best rates that the device reached in this run."""

    product_flops: float  # per second, products in the precision of the encoders
    float_product_flops: float  # per second, products in float32, rounded as convolutions may
    float_flops: float  # per second, in float32 to the last bit
    bytes: float  # per second, read and written
    link_bytes: float  # per second from host to device


@dataclass(frozen=True)
class StageTime:
    """A stage, or the sum of those that a mode goes through."""

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
    """Every stage of a method alone, and the sums of its modes."""
    streaming = setting.streaming(setting.network(method))
    cells = Cells(setting.shape, streaming.depth_stride)
    work = stage_work(cells, streaming.dtype.itemsize, matching=streaming.matching)
    stages = Stages(streaming, *setting.images()).table
    modes = [mode for mode in USES if mode != "look" or streaming.looks > 1]
    used = {name for mode in modes for name in USES[mode]}
    if setting.device.type == "cpu":
        used -= {"copy of frame and pose", "copy of the volume"}  # all is there already
    found: dict[str, StageTime] = {}
    for name in sorted(used, key=list(stages).index):
        measured_s = statistics.median(stage_seconds(stages[name], setting.device, seconds))
        found[name] = _stage_time(method, setting, name, work[name], floor_s(work[name], ceilings), measured_s)
    sums = [_sum(method, setting, mode, [found[name] for name in USES[mode] if name in found]) for mode in modes]
    return [*found.values(), *sums]


def staged(methods: Sequence[str]) -> list[str]:
    """Methods that have these stages."""
    return [method for method in methods if method in NETWORKS and NETWORKS[method].network == "scope-reg"]


def _stage_time(method: str, setting: Setting, name: str, work: Work, least_s: float, measured_s: float) -> StageTime:
    flop = 2 * (work.products + work.float_products) + work.least_floats
    moved = work.bytes + work.link_bytes
    return StageTime(
        method, setting.resolution, name, flop / 1e6, moved / 2**20, 1e6 * least_s, 1e6 * measured_s,
        measured_s / least_s,
    )  # fmt: skip


def _sum(method: str, setting: Setting, mode: str, parts: list[StageTime]) -> StageTime:
    mflop, mib, floor_us, measured_us = (
        sum(getattr(part, name) for part in parts) for name in ("mflop", "mib", "floor_us", "measured_us")
    )
    return StageTime(
        method, setting.resolution, _SUMS[mode], mflop, mib, floor_us, measured_us, measured_us / floor_us, True
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
