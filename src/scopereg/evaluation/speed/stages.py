"""Stages: the steps of `networks.streaming` one by one, so that each can be timed alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scopereg.evaluation.speed.modes import synchronise
from scopereg.networks.encoders import STRIDE
from scopereg.networks.fusion import DIRECTIONS, STATES, WIDTH
from scopereg.networks.lattice import pad_slices, pad_volumes
from scopereg.networks.passes import seen_from
from scopereg.networks.streaming import Located, Streaming
from scopereg.ops import coordinate_scan, coordinate_states, directional_scan
from scopereg.ops.decode import Fit, Gates, Sizes, fit_plane, split_gates, weigh_planes
from scopereg.ops.replay import side_stream

REPEATS = 16  # of a stage in one recording, so that starting it does not count
_LEAST = 5  # times, so that a median means something
_SIZES = Sizes(DIRECTIONS, WIDTH, STATES)

Stage = Callable[[], Any]


class Stages:
    """A frame (1, H, W) and a volume (D, H, W) taken through a network once, with what is between the steps kept.

    `table` has each step by the name it has in `speed.floor`: calling one does it again, on the same tensors.
    """

    @torch.inference_mode()
    def __init__(self, streaming: Streaming, frame: Tensor, volume: Tensor) -> None:
        self.streaming, self.device = streaming, streaming.device
        self._make_places(frame, volume)
        self._copy_frame()
        self._copy_volume()
        self.slice_features, self.volume_features = self._encode_slice(), self._encode_volume()
        self.gates, self.x_s = self._read_gates()
        self.x_v = self._map_volume()
        self.step, self.write = self._volume_gates()
        self.states, self.moments = self._tabulate(), self._scan_coordinates()
        self.fused = self._fuse()
        self.logits = self._gate_depth()
        self.correspondence = self._weigh_table()
        self.fit = self._fit()

    @property
    def table(self) -> dict[str, Stage]:
        return {
            "copy of frame and pose": self._copy_frame,
            "copy of the volume": self._copy_volume,
            "2D encoder": self._encode_slice,
            "3D encoder": self._encode_volume,
            "slice gates": self._read_gates,
            "volume tokens": self._map_volume,
            "coordinate gates": self._volume_gates,
            "coordinate states": self._tabulate,
            "coordinate scan": self._scan_coordinates,
            "feature scan": self._fuse,
            "depth gate": self._gate_depth,
            "planes, read from the table": self._weigh_table,
            "planes, scanned": self._weigh_scanned,
            "fit": self._fit,
            "volume seen from the pose": self._look,
        }

    @property
    def located(self) -> Located:
        """Pose after the first decoding pass: it must be that of `locate` of a network with one look."""
        rotation, translation, residual = self.fit
        return Located(rotation, translation * STRIDE, residual * STRIDE, *self.correspondence)

    def _make_places(self, frame: Tensor, volume: Tensor) -> None:
        """Allocate what copies go from and to, and the lattice."""
        self.host_frame, self.host_volume, self.host_pose = (
            tensor.clone().pin_memory() if self.device.type == "cuda" else tensor.clone()
            for tensor in (frame, volume, torch.zeros(12))
        )
        self.frame, self.volume = (torch.empty_like(image, device=self.device) for image in (frame, volume))
        self.pose = torch.zeros(12, device=self.device)
        self.lattice = pad_volumes(volume[None], self.streaming.depth_stride)[1]._replace(reach=self.streaming.reach)
        self.order = self.lattice.orders(self.device)

    def _copy_frame(self) -> None:
        self.frame.copy_(self.host_frame, non_blocking=True)
        self.host_pose.copy_(self.pose, non_blocking=True)

    def _copy_volume(self) -> None:
        self.volume.copy_(self.host_volume, non_blocking=True)

    def _encode_slice(self) -> Tensor:
        return self.streaming.slice_encoder(pad_slices(self.frame.to(self.streaming.dtype))[:, None])

    def _encode_volume(self) -> Tensor:
        padded, _ = pad_volumes(self.volume[None].to(self.streaming.dtype), self.streaming.depth_stride)
        return self.streaming.volume_encoder(padded[:, None])

    def _read_gates(self) -> tuple[Gates, Tensor | None]:
        mapped = self.streaming._mapped(self.slice_features, self.streaming.slice_map).flatten(1, 2)
        gates = split_gates(mapped[..., : _SIZES.columns], _SIZES)
        return gates, mapped[..., _SIZES.columns :].float() if self.streaming.matching else None

    def _map_volume(self) -> Tensor:
        return self.streaming._mapped(self.volume_features, self.streaming.volume_map).flatten(2, 3).float()

    def _volume_gates(self) -> tuple[Tensor, Tensor]:
        return self.streaming._coordinate_gates(self.x_v)

    def _tabulate(self) -> Tensor:
        points = self.lattice.volume_points(self.device)
        return coordinate_states(points, self.step, self.streaming.coordinate_decay, self.write, self.order)

    def _scan_coordinates(self) -> Tensor:
        points, read = self.lattice.volume_points(self.device), self.gates.coordinate_read
        return coordinate_scan(points, self.step, self.streaming.coordinate_decay, self.write, read, self.order)

    def _fuse(self) -> Tensor:
        gates, decay, skip = self.gates, self.streaming.decay, self.streaming.skip
        fused = directional_scan(self.x_v, gates.step, decay, gates.write, gates.read, skip, self.order)
        return fused if self.x_s is None else torch.addcmul(fused, self.x_s[:, None], self.x_v)

    def _gate_depth(self) -> Tensor:
        return self.streaming._product(self.fused, self.streaming.depth_map)

    def _weigh_table(self) -> tuple[Tensor, Tensor]:
        return weigh_planes(self.logits, self.streaming.depth_decay, self.states, self.gates.coordinate_read)

    def _weigh_scanned(self) -> tuple[Tensor, Tensor]:
        return weigh_planes(self.logits, self.streaming.depth_decay, self.moments, None)

    def _fit(self) -> Fit:
        return fit_plane(self.lattice.slice_points(self.device), *self.correspondence)

    def _look(self) -> Tensor:
        return seen_from(self.x_v, self.lattice._replace(reach=1.0), self.fit.rotation, self.fit.translation)


@torch.inference_mode()
def stage_seconds(run: Stage, device: torch.device, seconds: float) -> list[float]:
    """Seconds of some work on the device, several times: between events over a recording, elsewhere by the clock."""
    times: list[float] = []
    if device.type != "cuda":
        run()
        while not times or (times[0] < seconds and (len(times) < _LEAST or sum(times) < seconds)):
            begin = time.perf_counter()
            run()
            synchronise(device)
            times.append(time.perf_counter() - begin)
        return times
    graph = _recorded(run, device)
    begin = time.perf_counter()
    while len(times) < _LEAST or time.perf_counter() - begin < seconds:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()  # keeps the device busy until what is timed is in its queue
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 1e3 / REPEATS)
    return times


def _recorded(run: Stage, device: torch.device) -> torch.cuda.CUDAGraph:
    """The work done several times, one after another."""
    with torch.cuda.device(device):
        aside = side_stream(torch.device("cuda", torch.cuda.current_device()))
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries choose kernels and take workspaces before a recording
            run()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=aside):
            for _ in range(REPEATS):
                run()
    return graph
