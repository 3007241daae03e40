"""TrackedSweep: frames of one sweep of the probe with the poses that a tracker measured, and its files.

PLUS sequences (.igs.mha) and archives of arrays (.npz).
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, field_of_view
from scopereg.io.arrays import BROKEN_ARCHIVE, read_npy_header
from scopereg.io.limits import check_size
from scopereg.io.plus import Matrix, take_out_pixel_size
from scopereg.io.plus_sequence import ORIENTATION, PlusSequence

WORLD = "World"
_CHUNK = 2**22
_FLICKER = 0.01  # share of the grey range that video compression makes black pixels waver by


@dataclass(frozen=True, eq=False, repr=False)
class TrackedSweep:
    """Images (F, H, W) with their pixel size and, for each, a rigid 4x4 matrix from frame mm to world mm.

    In frame mm, x = column * spacing and y = row * spacing from the top-left pixel, z = 0. Images are uint8, or float
    from 0 to 1. `mask` (H, W) tells what the transducer sees; without one it sees every pixel.
    """

    name: str
    images: Tensor
    spacing_mm: tuple[float, float]  # x, y
    image_to_world: npt.NDArray[np.float64]  # (F, 4, 4)
    mask: Tensor | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    numbers: tuple[int, ...] | None = None  # of the frames in their file, where some of it are left out

    def __post_init__(self) -> None:
        where = f"TrackedSweep({self.name})"
        _check_images(self.images, where)
        matrices = _rigid_matrices(self.image_to_world, len(self.images), where)
        object.__setattr__(self, "image_to_world", matrices)
        spacing = tuple(float(step) for step in self.spacing_mm)
        if len(spacing) != 2 or not all(0 < step < float("inf") for step in spacing):
            raise ScopeRegError(
                f"the spacing is {self.spacing_mm}", where=where, fix="pass the size of a pixel in mm as (x, y)"
            )
        object.__setattr__(self, "spacing_mm", spacing)
        if self.mask is not None:
            _check_mask(self.mask, tuple(self.images.shape[1:]), where)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        count, height, width = self.images.shape
        x, y = self.spacing_mm
        return f"TrackedSweep({self.name}, {count} frames {height} x {width}, {x:g} x {y:g} mm)"

    @property
    def seen(self) -> Tensor:
        """Pixels (H, W) that the transducer sees."""
        if self.mask is not None:
            return self.mask
        return torch.ones(self.images.shape[1:], dtype=torch.bool)

    def values(self, rows: Sequence[int], mask: Tensor | None = None) -> Tensor:
        """Grey values (len(rows), H, W) of some frames, float32 from 0 to 1; with a mask those of its pixels alone."""
        images = self.images[list(rows)]
        if mask is not None:
            images = images[:, mask]
        return images.float() / 255 if images.dtype == torch.uint8 else images.float()

    def number(self, row: int) -> int:
        """What a frame is called in its file."""
        return row if self.numbers is None else self.numbers[row]

    def frame(self, row: int) -> Frame:
        """One frame in its own mm, counted from the top-left pixel."""
        return Frame(self.values([row])[0], spacing_mm=self.spacing_mm, origin_mm=(0, 0))

    def pose(self, row: int) -> Pose:
        """`ImageToWorld` of one frame."""
        return Pose.from_matrix(self.image_to_world[row], "Image", WORLD)

    def subset(self, rows: Sequence[int]) -> TrackedSweep:
        """The sweep of some of the frames, in the order given."""
        rows = self.checked_rows(rows, "TrackedSweep.subset(rows)")
        return replace(
            self,
            images=self.images[rows],
            image_to_world=self.image_to_world[rows],
            numbers=tuple(map(self.number, rows)),
        )

    def checked_rows(self, rows: Sequence[int], where: str) -> list[int]:
        """The rows as a list; an error if there are none, or one is not of this sweep."""
        rows = [int(row) for row in rows]
        strangers = [row for row in rows if not 0 <= row < len(self)]
        if not rows or strangers:
            what = f"row {strangers[0]} is asked for" if strangers else "no rows are asked for"
            raise ScopeRegError(what, where=where, fix=f"pass rows from 0 to {len(self) - 1}")
        return rows


def seen_pixels(images: Tensor) -> Tensor:
    """What the transducer sees (H, W), from images (F, H, W): where they change in time, and what lies between.

    Overlays that stand still do not count, nor does the flicker that video compression leaves in black surroundings,
    nor what is thinner than a fiftieth of the image.
    """
    span = images.amax(0).float() - images.amin(0).float()
    largest = 255 if images.dtype == torch.uint8 else 1
    whole = field_of_view((span > _FLICKER * largest).to(torch.uint8))
    reach = min(whole.shape) // 100
    return _grown(~_grown(~whole, reach), reach)


def _grown(mask: Tensor, reach: int) -> Tensor:
    """The mask (H, W) and all that lies within `reach` pixels along rows and columns."""
    return F.max_pool2d(mask[None].float(), 2 * reach + 1, 1, reach)[0] > 0


def _check_images(images: Tensor, where: str) -> None:
    if images.ndim != 3 or images.numel() == 0:
        raise ScopeRegError(
            f"the images have shape {tuple(images.shape)}", where=where, fix="pass grey images as (F, H, W), not empty"
        )
    if images.dtype == torch.uint8:
        return
    if not images.is_floating_point():
        raise ScopeRegError(f"the images are {images.dtype}", where=where, fix="pass uint8, or float from 0 to 1")
    low, high = float(images.min()), float(images.max())
    if not (low >= 0 and high <= 1):  # NaN fails both
        raise ScopeRegError(
            f"grey values run from {low:g} to {high:g}", where=where, fix="scale float images to 0 .. 1, without NaN"
        )


def _rigid_matrices(matrices: Any, count: int, where: str) -> npt.NDArray[np.float64]:
    """The matrices with their rotations made exact; an error that names the first frame whose pose is no pose."""
    matrices = np.asarray(matrices, np.float64)
    if matrices.shape != (count, 4, 4):
        raise ScopeRegError(
            f"poses of shape {matrices.shape} for {count} images",
            where=f"{where}.image_to_world",
            fix="pass one 4x4 matrix for each image",
        )
    exact = np.empty_like(matrices)
    for row, matrix in enumerate(matrices):
        try:
            exact[row] = Pose.from_matrix(matrix, "Image", WORLD).matrix
        except ScopeRegError as error:
            raise ScopeRegError(error.what, where=f"{where}.image_to_world[{row}]", fix=error.fix) from None
    exact.setflags(write=False)
    return exact


def _check_mask(mask: Tensor, shape: tuple[int, ...], where: str) -> None:
    if mask.dtype != torch.bool or tuple(mask.shape) != shape or not bool(mask.any()):
        raise ScopeRegError(
            f"the mask is {mask.dtype} of shape {tuple(mask.shape)} with {int(mask.sum())} pixels, the images {shape}",
            where=where,
            fix="pass a bool mask of one image's shape, true where the transducer sees",
        )


def read_sweep(path: Path | str, calibration: Path | str | None = None) -> TrackedSweep:
    """A tracked sweep of either kind of file, by its ending."""
    if Path(path).suffix == ".npz":
        return read_npz_sweep(path)
    return read_plus_sequence(path, calibration)


def read_npz_sweep(path: Path | str) -> TrackedSweep:
    """A sweep from arrays `frames` (F, H, W) uint8, `image_mm_to_world` (F, 4, 4) and `spacing_xy_mm` (2,)."""
    path = Path(path)
    arrays = read_npz_arrays(path, ("frames", "image_mm_to_world", "spacing_xy_mm"))
    frames, poses, spacing = arrays.values()
    images = checked_frames(frames, path)
    if spacing.shape != (2,):
        raise ScopeRegError(
            f"its spacing has shape {spacing.shape}", where=str(path), fix="store spacing_xy_mm (2,): x, y"
        )
    return TrackedSweep(path.stem, images, tuple(spacing), poses, _mask(images, None), {"source": path.name})


def checked_frames(frames: npt.NDArray[Any], path: Path) -> Tensor:
    """Images of an archive; an error for what are none."""
    if frames.dtype != np.uint8:
        raise ScopeRegError(f"the frames are {frames.dtype}", where=str(path), fix="store them as uint8")
    if frames.ndim != 3 or frames.size == 0:
        raise ScopeRegError(f"its frames have shape {frames.shape}", where=str(path), fix="store frames (F, H, W)")
    return torch.from_numpy(frames)


def read_npz_arrays(path: Path, names: Sequence[str], *, either: str = "") -> dict[str, npt.NDArray[Any]]:
    """Arrays of an archive by their names; without the one called `either` nothing is read, where one is named."""
    try:
        with zipfile.ZipFile(path) as archive:
            if either and f"{either}.npy" not in archive.namelist():
                return {}
            return {name: _read_array(archive, name, path) for name in names}
    except BROKEN_ARCHIVE as error:
        raise ScopeRegError(
            f"cannot be read: {error}", where=str(path), fix=f"pass a .npz file with {', '.join(names)}"
        ) from None


def _read_array(archive: zipfile.ZipFile, name: str, path: Path) -> npt.NDArray[Any]:
    """One array of numbers, its size judged before memory is taken, its checksum by the archive."""
    with archive.open(f"{name}.npy") as file:
        header = read_npy_header(file, any_order=True)
        content = np.empty(check_size(header.shape, header.dtype.itemsize, str(path), in_use=False), np.uint8)
        at = 0
        while piece := file.read(min(_CHUNK, content.size - at)):
            content[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
        if at < content.size or file.read(1):  # the archive compares its checksum at the end
            raise ValueError(f"{name} does not hold the {content.size} bytes that its header promises")
    order: Literal["F", "C"] = "F" if header.fortran_order else "C"
    return np.ascontiguousarray(content.view(header.dtype).reshape(header.shape, order=order))


def read_plus_sequence(
    path: Path | str, calibration: Path | str | Matrix | None = None, *, world: str | None = None
) -> TrackedSweep:
    """A sweep from a PLUS sequence, its frames placed in `world` (by default Reference, else Tracker, else Volume).

    `calibration` is PLUS's configuration file, or ImageToProbe as a 4x4 matrix in mm per pixel; without one, the
    sequence itself must hold the transform. Frames whose image or transforms are not OK are dropped and counted in the
    facts. Images are turned to PLUS's MF (columns towards the marked side, rows away from the probe), for which it
    calibrates.
    """
    sequence = PlusSequence.open(path, calibration)
    path = sequence.path
    way = sequence.way_to(world)
    if way is None:
        fix = "pass calibration=, the PLUS configuration that holds the transform from Image to Probe"
        raise sequence.no_way(world, fix)
    faults = sequence.image_faults() | sequence.pose_faults(way)
    good = [row for row in range(len(sequence)) if row not in faults]
    dropped = dict(Counter(faults[row] for row in sorted(faults)))
    if not good:
        raise ScopeRegError(
            f"none of its {len(sequence)} frames is tracked: {dropped}",
            where=str(path),
            fix="record again with the probe and the reference in the tracker's view",
        )
    images = sequence.images(good)
    rigid = take_out_pixel_size(
        sequence.pixel_to_world(way, good),
        (images.shape[1], images.shape[2]),
        str(path),
        stated=sequence.states_one_mm,
    )
    return TrackedSweep(
        name=path.name.split(".")[0],
        images=images,
        spacing_mm=rigid.spacing_mm,
        image_to_world=rigid.image_to_world,
        mask=_mask(images, sequence.calibration.clip),
        facts={
            "source": path.name,
            "world": way[-1][1],
            "way": ["To".join(link) for link in way],
            "orientation_in_file": sequence.stored.fields.get(ORIENTATION, "not stated, taken as MF"),
            "frames_in_file": len(sequence),
            "dropped": dropped,
            "calibration_skew": round(rigid.skew, 4),
            "calibration_moved_mm": round(rigid.moved_mm, 3),
        },
        numbers=tuple(good),
    )


def _mask(images: Tensor, clip: tuple[int, int, int, int] | None) -> Tensor | None:
    """What the transducer sees, inside of the clip rectangle of the configuration; None if that cannot be told."""
    seen = seen_pixels(images)
    if clip is not None:
        x, y, width, height = clip
        inside = torch.zeros_like(seen)
        inside[y : y + height, x : x + width] = True
        seen &= inside
    return seen if bool(seen.any()) else None
