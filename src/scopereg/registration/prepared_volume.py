"""PreparedVolume: a volume on the grid that a network wants, encoded once for all frames of one field of view."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from scopereg.geometry import VoxelPoses
from scopereg.images import Frame, Volume
from scopereg.networks.encoders import STRIDE
from scopereg.registration.session import Session
from scopereg.registration.windows import Windows
from scopereg.registration.working_grid import (
    MANY_VOXELS,
    FieldOfView,
    Shape,
    WorkingGrid,
    frame_on_grid,
    isotropic,
    middle,
)

if TYPE_CHECKING:
    from scopereg.registration.model import Registrar

_KEPT = 4  # prepared volumes: probes have a few depths that they are switched between


class Gridded(NamedTuple):
    """A volume as a network wants it."""

    volume: Volume  # isotropic
    window: Shape | None  # what the network is given at once; None: all of it
    note: str  # what was done to the volume, in words

    @property
    def first_look(self) -> Volume:
        """What the network is given first: the middle of the volume, or all of it."""
        return self.volume if self.window is None else middle(self.volume, self.window)


def on_grid(model: Registrar, volume: Volume, field: FieldOfView) -> Gridded:
    """The volume on the grid of the network's training, or on the working grid for frames of a field of view."""
    sizes = model.sizes
    if sizes is None:
        placed, note = as_trained(model, volume)
        window = model.facts.get("window")
        return Gridded(placed, None if window is None else _shape(window), note)
    grid = WorkingGrid.choose(field, volume, sizes)
    placed, note = grid.place(volume)
    # A voxel or two more than a window at each end are not worth looking at in parts.
    if all(own <= most + STRIDE // 2 for own, most in zip(placed.shape, grid.window, strict=True)):
        placed = middle(placed, grid.window)
    return Gridded(placed, grid.window, note)


class CaseOnGrid(NamedTuple):
    """Frames and their volume as a network wants them, and how poses there belong to those in the volume as it came."""

    frames: Tensor  # (F, H, W)
    volume: Volume
    scale: float  # size of a voxel, in voxels as they came
    volume_shift: Tensor  # (3,), how far the middle of the volume moved, in voxels as they came
    frame_shift: Tensor  # (3,), how far that of the frames moved

    def placed(self, poses: VoxelPoses) -> VoxelPoses:
        """Poses in the volume as it came, as poses here; both in centred voxels."""
        moved = poses.translation.cpu() - self.volume_shift + poses.rotation.cpu() @ self.frame_shift
        return VoxelPoses(poses.rotation.cpu(), moved / self.scale)

    def back(self, poses: VoxelPoses) -> VoxelPoses:
        """Poses here as poses in the volume as it came."""
        moved = poses.translation.cpu() * self.scale + self.volume_shift - poses.rotation.cpu() @ self.frame_shift
        return VoxelPoses(poses.rotation.cpu(), moved)


def case_on_grid(model: Registrar, frames: Tensor, volume: Tensor, spacing_mm: float) -> CaseOnGrid:
    """Frames (F, H, W) and a volume (D, H, W) of the same voxels, as `register` gives them to the network."""
    given, image = Volume(volume.cpu(), spacing_mm), Frame(frames[0].cpu(), spacing_mm=spacing_mm)
    wanted = given if model.sizes is None else on_grid(model, given, FieldOfView.of(image)).first_look
    if wanted is given:
        return CaseOnGrid(frames, given, 1.0, torch.zeros(3), torch.zeros(3))
    placed = [frame_on_grid(Frame(frame.cpu(), spacing_mm=spacing_mm), wanted) for frame in frames]
    return CaseOnGrid(
        torch.stack([frame.array for frame in placed]),
        wanted,
        wanted.isotropic_spacing_mm / spacing_mm,
        _in_voxels(wanted.centre_mm - given.centre_mm, spacing_mm),
        _in_voxels(placed[0].centre_mm - image.centre_mm, spacing_mm),
    )


def _in_voxels(shift_mm: Any, spacing_mm: float) -> Tensor:
    return torch.as_tensor(shift_mm / spacing_mm, dtype=torch.float32)


def as_trained(model: Registrar, volume: Volume) -> tuple[Volume, str]:
    """The volume as a network of one voxel size wants it: isotropic, as in its training; what was done, in words."""
    trained = model.facts.get("spacing_mm")
    spacing = float(trained) if isinstance(trained, int | float) and trained > 0 else None
    return isotropic(volume, spacing, most=MANY_VOXELS, why="as in training" if spacing else "")


class PreparedVolume:
    """A volume for frames of one field of view: a session of its middle or of all of it, and windows elsewhere."""

    def __init__(self, model: Registrar, gridded: Gridded, *, agreement: bool = False) -> None:
        self.model, self.volume, self.note = model, gridded.volume, gridded.note
        self.window = gridded.first_look
        self.session: Session = model.prepare(self.window, agreement=agreement)
        encoded = self.session.prepared if self.whole else None
        shape = None if gridded.window is None else self.window.shape
        self.windows: Windows = Windows(model, self.volume, shape=shape, agreement=agreement, encoded=encoded)

    @property
    def whole(self) -> bool:
        """Whether the session is of all of the volume."""
        return self.window is self.volume

    @cached_property
    def session_of_all(self) -> Session:
        """A session that judges poses anywhere in the volume; where that is larger than the window it locates none."""
        return self.session if self.whole else Session(self.model, self.volume, recorded=False, encoded=False)


class PreparedVolumes:
    """One volume, prepared for each field of view when the first frame of it comes; the latest few are kept.

    A network of one voxel size needs the volume prepared only once. Threads may share it.
    """

    def __init__(self, model: Registrar, volume: Volume, *, agreement: bool = False) -> None:
        self._model, self._volume, self._agreement = model, volume, agreement
        self._made: OrderedDict[WorkingGrid | None, PreparedVolume] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, frame: Frame) -> PreparedVolume:
        """The volume for a frame."""
        return self.of_field(FieldOfView.of(frame))

    def of_field(self, field: FieldOfView) -> PreparedVolume:
        """The volume for frames of a field of view."""
        sizes = self._model.sizes
        key = None if sizes is None else WorkingGrid.choose(field, self._volume, sizes)
        with self._lock:  # a thread that comes second waits for what the first prepares
            if key not in self._made:
                gridded = on_grid(self._model, self._volume, field)
                self._made[key] = PreparedVolume(self._model, gridded, agreement=self._agreement)
            self._made.move_to_end(key)
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)  # whoever still uses it has it; then its memory is given back
            return self._made[key]


def _shape(sizes: list[int]) -> Shape:
    depth, height, width = (int(size) for size in sizes)
    return depth, height, width
