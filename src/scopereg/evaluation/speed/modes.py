"""Modes: the ways to run a network or method whose speed is compared, each from arrays to a pose on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scopereg import networks
from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.evaluation.cost import Cost, count_parameters, network_cost, published_cost, streaming_cost
from scopereg.geometry import rotation_from_euler_deg, sample_slice
from scopereg.networks.encoders import Stem
from scopereg.networks.published import forward_as_published
from scopereg.networks.scope_reg import ScopeReg
from scopereg.networks.streaming import Precision, Streaming
from scopereg.ops.replay import Piped

PLANES = 32  # of every volume, as in the paper's table of costs
FIRST = ("scope-reg", "as published")  # what ratios compare with
SHIPPED = "as shipped"  # a method of `registration.method`, by what `register` uses
_FIELD_MM, _PLANE_MM = 77.0, 0.6  # along a frame, and between planes: of the data that models were trained on

_BASELINES = ("eureg", "fvr-net", "cu-reg", "dreamreg")
_VARIANTS = ("cross-attention-heads", "ssvf-heads", "cwcd-heads", "cwcd-kabsch", "tri-plane")  # of the ablation


class TimedNetwork(NamedTuple):
    """A network and the modes it can be run in; its weights are fresh, speed does not depend on them."""

    network: str
    options: dict[str, Any]
    modes: tuple[str, ...]
    label: str


NETWORKS = {
    "scope-reg": TimedNetwork("scope-reg", {}, ("as published", "forward", "whole", "streaming"), "scope-reg"),
    # As the models of the package are trained.
    "scope-reg-3": TimedNetwork(
        "scope-reg", {"looks": 3, "matching": True, "reach": 1.75}, ("whole", "streaming"), "scope-reg with 3 looks"
    ),
    **{name: TimedNetwork(name, {}, ("forward",), name) for name in (*_BASELINES, *_VARIANTS)},
}


class Mode(NamedTuple):
    """One row of the table at each resolution."""

    method: str
    name: str  # as published, forward, whole, streaming; or as shipped

    @property
    def label(self) -> str:
        if self.name == SHIPPED:
            return self.method
        network = NETWORKS[self.method]
        return network.label if len(network.modes) == 1 else f"{network.label}, {self.name}"


class Setting(NamedTuple):
    """Setting of a measurement: device, images and weights."""

    resolution: int  # pixels along a side
    device: torch.device
    precision: Precision = "auto"
    seed: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        return PLANES, self.resolution, self.resolution

    def images(self) -> tuple[Tensor, Tensor]:
        """A frame (1, H, W) and a volume (D, H, W) on the host."""
        generator = torch.Generator().manual_seed(self.seed)
        return torch.rand(1, *self.shape[1:], generator=generator), torch.rand(*self.shape, generator=generator)

    def smooth_images(self) -> tuple[Tensor, Tensor]:
        """A frame (H, W) that was cut from its volume (D, H, W), near the middle: there is something to find."""
        generator = torch.Generator().manual_seed(self.seed)
        coarse = torch.rand(1, 1, 8, 24, 24, generator=generator)
        volume = nn.functional.interpolate(coarse, self.shape, mode="trilinear")[0, 0]
        turn = rotation_from_euler_deg(torch.tensor([2.0, -1.5, 1.0]))
        return sample_slice(volume, turn, torch.tensor([1.5, -1.0, 1.0])), volume

    def network(self, method: str) -> nn.Module:
        """Create a network with random weights, on the host: speed does not depend on them."""
        name, options, *_ = NETWORKS[method]
        if "shape" in networks.options(name):
            options = {**options, "shape": self.shape}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return networks.create(name, **options).eval()

    def streaming(self, network: nn.Module) -> Streaming:
        assert isinstance(network, ScopeReg)
        return Streaming(network, self.device, self.precision)


class Runnable(NamedTuple):
    """A mode ready to run."""

    call: Callable[[], Tensor]  # a pose (1, 12) on the host: rotation, translation
    parameters: int | None
    precision: str | None
    prepare: Callable[[], object] | None = None  # once per volume, finished when it returns


def modes_of(methods: Sequence[str]) -> list[Mode]:
    """Rows of these networks, and of methods by their names; what ratios compare with comes first."""
    if not methods:
        raise ScopeRegError("no method is named", where="methods=", fix=f"use some of: {', '.join(NETWORKS)}")
    chosen = sorted(dict.fromkeys(methods), key=lambda name: name != FIRST[0])
    return [Mode(name, mode) for name in chosen for mode in _modes_of_one(name)]


def _modes_of_one(name: str) -> tuple[str, ...]:
    if name in NETWORKS:
        return NETWORKS[name].modes
    try:
        from scopereg.registration.method import parse  # its libraries are not on every machine that times networks

        parse(name)
    except ImportError as error:
        more = f"methods of register need {error.name}, which is not installed"
    except ScopeRegError as error:
        more = f"as shipped, {error.fix}"
    else:
        return (SHIPPED,)
    raise ScopeRegError(
        f"unknown method {name!r}{did_you_mean(name, NETWORKS)}",
        where="methods=",
        fix=f"use some of: {', '.join(NETWORKS)}; {more}",
    )


def make_runnable(mode: Mode, setting: Setting) -> Runnable:
    """Weights placed and, where that is apart, the volume prepared; nothing has run yet on frames."""
    if mode.name == SHIPPED:
        return _as_shipped(mode.method, setting)
    network = setting.network(mode.method)
    parameters = count_parameters(network)
    if mode.name in ("as published", "forward"):
        return _eager(mode, network.to(setting.device), setting, parameters)
    streaming, (frame, volume) = setting.streaming(network), setting.images()
    precision = str(streaming.dtype).removeprefix("torch.")
    if mode.name == "whole":
        pipe = Piped(lambda frame, volume: (_pose(streaming.whole(frame, volume)),), setting.device)
        return Runnable(lambda: pipe(frame, volume)[0], parameters, precision)
    prepared = streaming.prepare(volume)
    pipe = Piped(lambda frame: (_pose(streaming.locate(prepared, frame)),), setting.device)

    def prepare() -> object:
        made = streaming.prepare(volume)
        synchronise(setting.device)
        return made

    return Runnable(lambda: pipe(frame)[0], parameters, precision, prepare)


def cost_of(mode: Mode, setting: Setting) -> Cost | None:
    """Cost of a frame, counted on the way through the network; that of `streaming` without its volume.

    None of a method as shipped: it may run several networks, or none.
    """
    if mode.name == SHIPPED:
        return None
    network = setting.network(mode.method)
    if mode.name == "forward":
        return network_cost(network, setting.shape)
    assert isinstance(network, ScopeReg), mode
    if mode.name == "as published":
        return published_cost(network, setting.shape)
    return streaming_cost(network, setting.shape, prepared=mode.name == "streaming")


def synchronise(device: torch.device) -> None:
    """Wait for all that the device was asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _as_shipped(name: str, setting: Setting) -> Runnable:
    """A method by the protocol of registration: the volume prepared once, a frame located in it with its verdict."""
    from scopereg.images import Frame, Volume
    from scopereg.registration.locator import Locator  # not on every machine that times networks
    from scopereg.registration.method import create

    method, (image, voxels) = create(name, str(setting.device)), setting.smooth_images()
    pixel_mm = _FIELD_MM / setting.resolution
    frame, volume = Frame(image, pixel_mm), Volume(voxels, (pixel_mm, pixel_mm, _PLANE_MM))
    locator = Locator(volume, method)

    def call() -> Tensor:
        matrix = torch.from_numpy(locator.locate(frame).pose.matrix.copy())
        return torch.cat([matrix[:3, :3].flatten(), matrix[:3, 3]])[None].float()

    # What a volume is made ready for may only be known from the first frame.
    return Runnable(call, None, None, lambda: Locator(volume, method).locate(frame))


def _eager(mode: Mode, network: nn.Module, setting: Setting, parameters: int) -> Runnable:
    frame, volume = setting.images()
    forward: Callable[..., Any] = network
    if mode.name == "as published":
        assert isinstance(network, ScopeReg)
        forward = partial(forward_as_published, network)
        for module in network.modules():
            if isinstance(module, Stem):
                module.blocked = False  # the paper has no blocks

    @torch.inference_mode()
    def call() -> Tensor:
        return _pose(forward(frame.to(setting.device), volume[None].to(setting.device))).cpu()

    return Runnable(call, parameters, "float32")


def _pose(found: Any) -> Tensor:
    """Pack a pose into one tensor: one copy back."""
    return torch.cat([found.rotation.float().flatten(1), found.translation.float()], 1)
