"""Session: a volume that a network has prepared, in which frames are found as they come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses
from scopereg.images import Frame, Volume, check_content, pose_from_voxels
from scopereg.networks.lattice import pad_volumes
from scopereg.ops.replay import Piped
from scopereg.registration.model import frame_on_grid, similarity_at, unit_range
from scopereg.registration.result import Result

if TYPE_CHECKING:
    from scopereg.registration.model import Registrar

Locate = Callable[[Tensor], Any]
_POSE = 14  # numbers of a pose and of how well it fits: rotation, translation, residual, similarity


class Found(NamedTuple):
    """Where frames lie, on the host."""

    poses: VoxelPoses  # (B, ...), centred voxels
    residual: Tensor  # (B,), voxels from the plane that was fitted, root mean square; NaN where nothing is fitted
    similarity: Tensor  # (B,), correlation with the volume where both have a picture
    evidence: Tensor  # (B, H', W'), how much each cell says; empty where the network tells none


class Session:
    """Frames in one volume. Any thread may call, and several sessions may live beside each other.

    `with registrar.prepare(volume) as session:` gives the memory back at the end; so do `close` and forgetting it.
    """

    def __init__(self, registrar: Registrar, volume: Volume) -> None:
        check_content(volume)
        begin = time.perf_counter()
        self.volume = volume
        self.spacing_mm = volume.isotropic_spacing_mm
        self.registrar = registrar
        self._reference = unit_range(volume.array).to(registrar.device)
        streaming = registrar.streaming
        if streaming is not None:
            prepared = streaming.prepare(self._reference)
            self._grid = prepared.lattice.shape[1:]
            self._locate: Locate = partial(streaming.locate, prepared)
        else:
            _, lattice = pad_volumes(self._reference[None])
            self._grid = lattice.shape[1:]
            self._locate = partial(_forward, registrar.network, self._reference[None])
        self._recorded = streaming is not None  # other networks may draw random numbers or wait for the GPU
        self._pipe = Piped(self._find, registrar.device)
        self.prepare_ms = (time.perf_counter() - begin) * 1e3
        self.closed = False

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.registrar.name}, {' x '.join(map(str, self.volume.shape))} voxels)"

    def close(self) -> None:
        """Give the memory back. A closed session registers nothing."""
        self.closed = True
        self._pipe.clear()
        self._reference = self._reference.new_empty(0)
        self._locate = _closed

    def register(self, frame: Frame) -> Result:
        """`ImageToVolume` of a frame. Its size, spacing and grey values may be others than the volume's."""
        (result,) = self.register_all([frame])
        return result

    def register_all(self, frames: Sequence[Frame]) -> list[Result]:
        """As `register`, for several frames in one go."""
        begin = time.perf_counter()
        for frame in frames:
            check_content(frame)
        on_grid = [frame_on_grid(frame, self.volume) for frame in frames]
        images = torch.stack([unit_range(frame.array) for frame in on_grid])
        ready = time.perf_counter()
        found = self.locate(images)
        done = time.perf_counter()
        timings = {"image": (ready - begin) * 1e3 / len(frames), "network": (done - ready) * 1e3 / len(frames)}
        return [self._result(found, row, grid, timings) for row, grid in enumerate(on_grid)]

    def locate(self, images: Tensor) -> Found:
        """Where images (B, H, W) in [0, 1] with the pixels of the volume's planes lie, in centred voxels."""
        if self.closed:
            _closed(images)
        packed = self._pipe(images.float().cpu())[0] if self._recorded else self._find(images)[0].cpu()
        rotation, translation, residual, similarity, evidence = packed.split([9, 3, 1, 1, packed.shape[1] - _POSE], 1)
        poses = VoxelPoses(rotation.unflatten(1, (3, 3)), translation)
        grid = self._grid if evidence.numel() else (0, 0)
        return Found(poses, residual.squeeze(1), similarity.squeeze(1), evidence.unflatten(1, grid))

    @torch.inference_mode()
    def _find(self, images: Tensor) -> tuple[Tensor, ...]:
        """All that the host wants of frames (B, H, W) on the device, as one tensor (B, numbers): one copy back."""
        images = images.to(self._reference.device)
        found = self._locate(images)
        poses = VoxelPoses(found.rotation.float(), found.translation.float())
        similarity = similarity_at(images, self._reference, poses)
        residual = getattr(found, "residual", torch.full_like(similarity, math.nan))
        parts = [poses.rotation.flatten(1), poses.translation, residual.unsqueeze(1), similarity.unsqueeze(1)]
        if found.evidence is not None:
            parts.append(found.evidence.flatten(1))
        return (torch.cat(parts, 1),)

    def _result(self, found: Found, row: int, frame: Frame, timings: dict[str, float]) -> Result:
        rotation, translation = (part[row] for part in found.poses)
        similarity = float(found.similarity[row])
        return Result(
            pose_from_voxels(rotation, translation, frame, self.volume),
            f"{self.registrar.name} network",
            sum(timings.values()),
            similarity,
            confidence=confidence(similarity),
            evidence=found.evidence[row] if found.evidence.numel() else None,
            timings_ms=dict(timings),
        )


def confidence(similarity: float) -> float:
    """How alike frame and volume are at the pose, 0 to 1; a frame that shares nothing with the volume has none."""
    return max(similarity, 0.0) if math.isfinite(similarity) else 0.0


def _forward(network: nn.Module, volumes: Tensor, images: Tensor) -> Any:
    return network(images, volumes)


def _closed(images: Tensor) -> Any:
    raise ScopeRegError("the session is closed", where="Session", fix="prepare the volume again")
