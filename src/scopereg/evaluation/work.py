"""Work: what the stages of SCoPE-Reg compute and move for one frame, from sizes alone.

Two counts in one: multiply-adds and norms as `evaluation.cost` counts them and scans as the literature does, for the
column of GFLOPs; and the least that each stage of `networks.streaming` can do, for the floor under its time.
"""

from __future__ import annotations

from typing import NamedTuple

from scopereg.evaluation.cost import SCAN_OPERATIONS
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

# Stages that a form goes through. Those of `look` come once more for every look after the first.
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
    norms: float = 0.0  # operations of norms, as `evaluation.cost` counts them
    scans: float = 0.0  # operations of scans, as the literature counts them
    least_floats: float = 0.0  # operations in float32 that nothing saves, besides products
    bytes: float = 0.0  # what comes in and goes out, weights included; what is between may stay in caches
    link_bytes: float = 0.0  # between host and device

    def __add__(self, other: object) -> Work:
        assert isinstance(other, Work)
        return Work(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def gflops(self) -> float:
        """One multiply-add is one; scans left out."""
        return (self.products + self.float_products + self.norms) / 1e9

    @property
    def gflops_with_scans(self) -> float:
        return self.gflops + self.scans / 1e9


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
        """Of one plane, and of the slice."""
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
            scans=SCAN_OPERATIONS * feature * planes,
            # The exponent and its power for all planes; then per plane a product, a multiply-add and the readout's.
            least_floats=feature * (2 + 5 * planes),
            bytes=4 * (2 * volume * WIDTH + DIRECTIONS * (tokens * (WIDTH + 2 * STATES) + WIDTH * STATES)),
        ),
        "coordinate states": Work(
            scans=SCAN_OPERATIONS * states * _POINT,
            least_floats=states * (3 + 3 * _POINT),
            bytes=4 * (volume * (_VOLUME_GATES + _POINT) + states * _POINT),
        ),
        "coordinate scan": Work(
            scans=SCAN_OPERATIONS * states * _POINT,
            least_floats=states * (3 + 5 * _POINT),
            bytes=4 * (volume * (_VOLUME_GATES + 2 * _POINT) + DIRECTIONS * tokens * STATES),
        ),
        "planes, read from the table": Work(
            float_products=states * _POINT,
            scans=SCAN_OPERATIONS * depth_scan,
            least_floats=5 * depth_scan,
            bytes=4 * (volume * _DEPTH_GATES + states * _POINT + DIRECTIONS * tokens * STATES + tokens * _POINT),
        ),
        "planes, scanned": Work(
            scans=SCAN_OPERATIONS * depth_scan,
            least_floats=5 * depth_scan,
            bytes=4 * (volume * (_DEPTH_GATES + _POINT) + tokens * _POINT),
        ),
        "volume seen from the pose": Work(least_floats=16 * volume * WIDTH, bytes=8 * volume * WIDTH),
        "fit": Work(least_floats=_FIT_OPERATIONS * tokens, bytes=4 * tokens * (2 + _POINT)),
    }


def form_work(form: str, cells: Cells, *, looks: int = 1, matching: bool = False) -> Work:
    """All of a form for one frame: as published, forward, whole or streaming."""
    if form == "as published":
        return _published(cells)
    if form == "forward":
        return _forward(cells)
    stages = stage_work(cells, matching=matching)
    total = Work()
    for name in [*USES[form], *USES["look"] * (looks - 1)]:
        total += stages[name]
    return total


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
        norms=4 * tokens * CHANNELS,
        bytes=item * CHANNELS * (tokens + outputs) + 4 * tokens * outputs,
    )


def _float_product(tokens: int, inputs: int, outputs: int) -> Work:
    return Work(
        float_products=tokens * inputs * outputs,
        bytes=4 * (tokens * inputs + inputs * outputs + tokens * outputs),
    )


def _encoded(cells: Cells) -> Work:
    """Both images up to their tokens as `ScopeReg.forward` has it: norms of their own, slice and volume projected."""
    layers = [*encoder_layers(2, cells), *encoder_layers(3, cells)]
    both = cells.tokens * (1 + cells.planes)
    return Work(
        products=sum(layer.weights * layer.places for layer in layers) + both * CHANNELS * WIDTH,
        norms=2 * sum(layer.outputs * layer.places for layer in layers) + 5 * both * CHANNELS,
    )


def _scans(cells: Cells) -> float:
    per_token = DIRECTIONS * STATES * (WIDTH + _POINT) + 2 * DEPTH_STATES
    return SCAN_OPERATIONS * cells.planes * cells.tokens * per_token


def _forward(cells: Cells) -> Work:
    volume = cells.planes * cells.tokens
    gates = cells.tokens * WIDTH * _GATES + volume * WIDTH * (_VOLUME_GATES + _DEPTH_GATES)
    return _encoded(cells) + Work(float_products=gates, scans=_scans(cells))


def _published(cells: Cells) -> Work:
    """Slice tokens replicated over depth: all gates on every plane, those of depth for each of its two directions."""
    volume = cells.planes * cells.tokens
    gates = volume * WIDTH * (_GATES + _VOLUME_GATES + 2 * _DEPTH_GATES)
    return _encoded(cells) + Work(float_products=gates, scans=_scans(cells))
