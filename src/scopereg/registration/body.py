"""Body: frames whose places beside one another are known, such as a tracker's: one rigid body with one pose for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, target_points, weighted_kabsch_in_space
from scopereg.images import Frame, Volume
from scopereg.registration.result import Result

BODY = "Body"
_CELLS = 4  # of a frame along a side, where nobody tells how much each part of it says
_NEAR_MM = 3.0  # from where the others put a frame: what lies so far off counts half
_MIRROR = np.diag([1.0, 1.0, -1.0])  # of the third axis; of a frame it leaves all points where they are
_ROUNDS = 8  # of a fit that weighs frames by how well they agree
_STILL_MM, _TURNED_DEG = 0.5, 3.0  # no probe turns so far about the middle of its image without a shift
_FARTHER = 2.0  # times the diagonal of the volume that frames of one body may lie apart

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Body:
    """Frames and where they lie in one body: `image_to_body`, LPS mm. Frames may differ in size and spacing."""

    frames: tuple[Frame, ...]
    image_to_body: tuple[Pose, ...]

    @classmethod
    def of(cls, frames: Sequence[Frame], image_to_body: Sequence[Pose | Any], where: str = "locate_together") -> Body:
        """From poses or rigid 4x4 matrices, one for each frame; an error that names the first that is none."""
        if len(frames) < 2:
            raise ScopeRegError(
                f"got {len(frames)} frame{'s' * (len(frames) != 1)}",
                where=f"{where}(frames)",
                fix="pass two frames or more; locate finds a single one",
            )
        if len(image_to_body) != len(frames):
            raise ScopeRegError(
                f"{len(image_to_body)} poses for {len(frames)} frames",
                where=f"{where}(image_to_body)",
                fix="pass one pose for each frame",
            )
        rows = zip(frames, image_to_body, strict=True)
        return cls(tuple(frames), tuple(_in_body(each, frame, row, where) for row, (frame, each) in enumerate(rows)))

    def __len__(self) -> int:
        return len(self.frames)

    def check_room(self, volume: Volume, where: str = "locate_together") -> None:
        """An error where frames lie farther apart than they could in the volume, or at one place: other units."""
        apart_mm = self.extent_mm
        room_mm = float(np.linalg.norm(volume.extent_mm)) + max(float(max(each.extent_mm)) for each in self.frames)
        if apart_mm > _FARTHER * room_mm:
            raise ScopeRegError(
                f"the frames lie up to {apart_mm:.0f} mm apart, the volume is {room_mm:.0f} mm large at most",
                where=f"{where}(image_to_body)",
                fix="pass poses in mm, of frames that show the same volume",
            )
        turned_deg = max(pose.angle_to_deg(self.image_to_body[0]) for pose in self.image_to_body)
        if apart_mm < _STILL_MM and turned_deg > _TURNED_DEG:
            raise ScopeRegError(
                f"the frames lie up to {apart_mm:.2g} mm apart, and are turned by {turned_deg:.0f} degrees",
                where=f"{where}(image_to_body)",
                fix="pass poses in mm: these look like metres",
            )

    @property
    def extent_mm(self) -> float:
        """Largest distance between the middles of two frames."""
        middles = self._middles_mm
        return float(np.linalg.norm(middles[:, None] - middles[None], axis=-1).max())

    @property
    def centre_mm(self) -> Array:
        """The mean of the frames' middles, in mm of the body."""
        centre: Array = self._middles_mm.mean(0)
        return centre

    @property
    def middle_row(self) -> int:
        """The frame that lies nearest to the centre."""
        return int(np.linalg.norm(self._middles_mm - self.centre_mm, axis=1).argmin())

    @property
    def _middles_mm(self) -> Array:
        rows = zip(self.frames, self.image_to_body, strict=True)
        return np.stack([pose.apply(frame.centre_mm) for frame, pose in rows])

    def pose_of(self, row: int, body_to_volume: Pose) -> Pose:
        """`ImageToVolume` of a frame."""
        return body_to_volume @ self.image_to_body[row]

    def told_by(self, row: int, image_to_volume: Pose) -> Pose:
        """`BodyToVolume`, as one frame alone tells it."""
        return image_to_volume @ self.image_to_body[row].inverse()

    def subset(self, rows: Sequence[int]) -> Body:
        return Body(tuple(self.frames[row] for row in rows), tuple(self.image_to_body[row] for row in rows))

    def mirrored(self) -> Body:
        """The same frames beside one another as a mirror shows them: what each shows is the same, their order is not.

        A volume that is mirrored, or a tracker's world, takes a body for this.
        """
        poses = (
            Pose(_MIRROR @ pose.rotation @ _MIRROR, _MIRROR @ pose.translation_mm, pose.source, pose.target)
            for pose in self.image_to_body
        )
        return Body(self.frames, tuple(poses))

    def fitted(self, poses: Sequence[Pose], first: Pose, weights: Array | None = None) -> Pose:
        """`BodyToVolume` by which frames come nearest to `ImageToVolume` of each; names are those of `first`.

        `weights` (N,) say how much each frame counts; by default all alike.
        """
        targets = [_targets_mm(frame) for frame in self.frames]
        rows = zip(self.image_to_body, targets, strict=True)
        source = torch.from_numpy(np.concatenate([pose.apply(points) for pose, points in rows]))
        found = torch.from_numpy(np.concatenate([each.apply(own) for each, own in zip(poses, targets, strict=True)]))
        each = np.ones(len(self)) if weights is None else weights
        shares = torch.from_numpy(np.repeat(each, [len(own) for own in targets]).astype(np.float64))
        rotation, translation = weighted_kabsch_in_space(source, found, shares)
        return Pose(rotation.numpy(), translation.numpy(), first.source, first.target)

    def targets_mm(self, row: int) -> Array:
        """The five points of a frame that distances are measured at, in its own mm."""
        return _targets_mm(self.frames[row])

    def apart_mm(self, row: int, one: Pose, other: Pose) -> float:
        """Mean distance of the targets of a frame under two poses of the body, as in mTRE."""
        targets = self.image_to_body[row].apply(_targets_mm(self.frames[row]))
        return float(np.linalg.norm(one.apply(targets) - other.apply(targets), axis=-1).mean())

    def fit(self, found: Sequence[tuple[int, Result]], first: Pose) -> Pose:
        """`BodyToVolume` that agrees best with what was found of frames: one weighted Kabsch over all of their cells.

        A cell counts by its evidence, and less where its frame lies far from where the others put it: a frame that
        was found at a wrong place does not draw the body there. `first` is where that begins.
        """
        source, target, mass, owner = _cells(self, found)
        pose, near = first, _NEAR_MM**2
        for _ in range(_ROUNDS):
            moved = pose.apply(source.numpy())
            squared = torch.from_numpy(np.square(moved - target.numpy()).sum(1))
            each = torch.zeros(len(found), dtype=torch.float64).index_add_(0, owner, mass * squared)
            total = torch.zeros(len(found), dtype=torch.float64).index_add_(0, owner, mass)
            share = near / (near + each / total.clamp_min(1e-12))
            rotation, translation = weighted_kabsch_in_space(source, target, mass * share[owner])
            pose = Pose(rotation.numpy(), translation.numpy(), first.source, first.target)
        return pose


def _in_body(given: Pose | Any, frame: Frame, row: int, where: str) -> Pose:
    """A pose by whatever names: those of the frame and of the body."""
    try:
        pose = given if isinstance(given, Pose) else Pose.from_matrix(given)
    except ScopeRegError as error:
        what = f"frame {row} is not one of a rigid body: {error.what}"
        raise ScopeRegError(what, where=f"{where}(image_to_body[{row}])", fix=error.fix) from None
    return Pose(pose.rotation, pose.translation_mm, frame.frame_of_reference, BODY)


def _targets_mm(frame: Frame) -> Array:
    targets = target_points(frame.shape, dtype=torch.float64).numpy() * (*frame.spacing_mm, 0.0) + frame.centre_mm
    return np.asarray(targets)


def _cells(body: Body, found: Sequence[tuple[int, Result]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Middles of cells in the body (N, 3) and where they were found (N, 3), their evidence and whose they are."""
    parts: list[tuple[Tensor, ...]] = []
    for number, (row, result) in enumerate(found):
        frame, evidence = body.frames[row], result.evidence
        evidence = torch.ones(_CELLS, _CELLS) if evidence is None else evidence.detach().cpu()
        points = _middles_of_cells_mm(frame, *evidence.shape)
        places = (body.image_to_body[row].apply(points), result.pose.apply(points))
        mass = evidence.double().flatten().nan_to_num(0.0).clamp_min(0.0) + 1e-9
        parts.append((*map(torch.from_numpy, places), mass, torch.full((len(points),), number)))
    source, target, mass, owner = (torch.cat(one) for one in zip(*parts, strict=True))
    return source, target, mass, owner


def _middles_of_cells_mm(frame: Frame, rows: int, columns: int) -> Array:
    """Of a frame divided into so many cells, in its own mm (N, 3)."""
    across, down = (
        ((np.arange(count) + 0.5) / count - 0.5) * pixels * step
        for count, pixels, step in zip((columns, rows), frame.size, frame.spacing_mm, strict=True)
    )
    y, x = np.meshgrid(down, across, indexing="ij")
    return np.stack([x.ravel(), y.ravel(), np.zeros(x.size)], 1) + frame.centre_mm
