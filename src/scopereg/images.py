"""Volume and Frame: pixels with their spacing, their place in LPS millimetres, and optional labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, resample_volume
from scopereg.geometry.regridding import regrid, smoothed
from scopereg.image_fields import US, as_labels, as_mask, as_modality, as_numbers, as_sizes, as_tensor, listed, windowed

ISOTROPY_TOLERANCE = 1e-3  # relative difference between axes that still counts as one spacing
Image = TypeVar("Image", bound="_Image")
_SAME = 1e-6  # relative difference of two spacings that are one
_THIN = 0.015  # of the longer side: half of the width of a gap that is thin
_DARK, _BRIGHT = 0.01, 0.99  # quantiles that become 0 and 1 in images of another range
_EMPTY = {
    "Frame": "look at it: it may be another frame of a cine, another ultrasound region, or a blank export",
    "Volume": "look at it: it may be a mask, another point in time, or a blank export",
}


@dataclass(frozen=True, eq=False, init=False, repr=False)
class _Image:
    """What volumes and frames share. Axis triples and pairs are in x, y(, z) order; arrays are (D,) H, W."""

    array: Tensor
    spacing_mm: tuple[float, ...]
    origin_mm: tuple[float, ...]
    labels: Tensor | None
    frame_of_reference: str
    mask: Tensor | None

    _axes = 0

    def __init__(
        self,
        array: Any,
        spacing_mm: float | Sequence[float],
        origin_mm: Sequence[float] | None = None,
        labels: Any = None,
        frame_of_reference: str = "",
        mask: Any = None,
    ) -> None:
        where = type(self).__name__
        _set(self, "array", as_tensor(array, self._axes, where))
        _set(self, "mask", None if mask is None else as_mask(mask, self.array, where))
        _set(self, "spacing_mm", as_sizes(spacing_mm, self._axes, f"{where}(spacing_mm)"))
        _set(self, "labels", None if labels is None else as_labels(labels, self.array, where))
        _set(self, "frame_of_reference", frame_of_reference)
        if origin_mm is None:
            centred = tuple((-self._corner_to_centre(self.size, self.spacing_mm)).tolist())
            _set(self, "origin_mm", centred)
        else:
            _set(self, "origin_mm", as_numbers(origin_mm, self._axes, f"{where}(origin_mm)"))

    def __repr__(self) -> str:
        labels = "" if self.labels is None else ", labelled"
        masked = "" if self.mask is None else ", masked"
        size = " x ".join(map(str, self.shape))
        return f"{type(self).__name__}({size}, {listed(self.spacing_mm)} mm{labels}{masked})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Array shape, slowest axis first."""
        return tuple(self.array.shape)

    @property
    def size(self) -> tuple[int, ...]:
        """Voxels per axis in x, y(, z) order."""
        return tuple(self.array.shape[::-1])

    @property
    def extent_mm(self) -> tuple[float, ...]:
        """Distance between the first and last voxel centres, x, y(, z)."""
        return tuple((n - 1) * s for n, s in zip(self.size, self.spacing_mm, strict=True))

    @property
    def isotropic_spacing_mm(self) -> float:
        """The one spacing of all axes; an error where they differ."""
        low, high = min(self.spacing_mm), max(self.spacing_mm)
        if high - low > ISOTROPY_TOLERANCE * high:
            raise ScopeRegError(
                f"the spacing is anisotropic: {listed(self.spacing_mm)} mm",
                where=f"{type(self).__name__}.spacing_mm",
                fix=f"resample it first: .resampled({low:g}) gives {low:g} mm on every axis",
            )
        return sum(self.spacing_mm) / len(self.spacing_mm)

    @property
    def tissue(self) -> Tensor:
        """The pixels, black where they do not count."""
        return self.array if self.mask is None else self.array * self.mask

    def for_registration(self: Image) -> Image:
        """Grey values in [0, 1], black where they do not count."""
        scaled = unit_range(windowed(self.array, getattr(self, "modality", US)), self.mask)
        return replace(self, array=scaled if self.mask is None else scaled * self.mask)

    def numpy(self) -> npt.NDArray[np.float32]:
        """The pixels as a numpy array on the host."""
        values: npt.NDArray[np.float32] = self.array.detach().cpu().numpy()
        return values

    def to(self: Image, device: torch.device | str) -> Image:
        """A copy whose tensors live on `device`."""
        return self._changed(lambda values: values.to(device))

    def _changed(self: Image, change: Callable[[Tensor], Tensor], **fields: Any) -> Image:
        """A copy of which everything that is stored for each pixel went through a change."""
        labels, mask = (None if values is None else change(values) for values in (self.labels, self.mask))
        return replace(self, array=change(self.array), labels=labels, mask=mask, **fields)

    def resampled(self: Image, spacing_mm: float | None = None, size: Sequence[int] | None = None) -> Image:
        """The same field at one spacing on all axes, by default the finest it has; labels by the nearest.

        Linear, after a Gaussian that removes what a coarser grid cannot hold. Voxel centres at both ends of the first
        row stay within half a voxel; the centre of the image stays in place. With a `size` in x, y(, z) it has so many
        voxels: beyond the field those at its border go on. An image that has that spacing already stays as it is.
        """
        step = min(self.spacing_mm) if spacing_mm is None else float(spacing_mm)
        if not (np.isfinite(step) and step > 0):
            raise ScopeRegError(
                f"the spacing is {spacing_mm}",
                where=f"{type(self).__name__}.resampled(spacing_mm)",
                fix="pass a positive number of millimetres",
            )
        scale = [step / s for s in self.spacing_mm]  # old voxels per new voxel, x, y(, z)
        sizes = [int(extent / step + 1 + 1e-6) for extent in self.extent_mm] if size is None else list(size)
        if tuple(sizes) == self.size and max(abs(factor - 1) for factor in scale) < _SAME:
            return self  # interpolation would leave a trace in black pixels, and those tell what was seen
        if min(sizes) < 1 or np.prod([float(n) for n in sizes]) > 2**31:
            raise ScopeRegError(
                f"{step:g} mm would give {' x '.join(map(str, sizes))} voxels",
                where=f"{type(self).__name__}.resampled(spacing_mm)",
                fix=f"choose a spacing nearer to the present {listed(self.spacing_mm)} mm",
            )
        labels = None if self.labels is None else regrid(self.labels, scale, sizes, "nearest").to(self.labels.dtype)
        centre = self._corner_to_centre(self.size, self.spacing_mm)
        shift = centre - self._corner_to_centre(sizes, [step] * len(sizes))
        origin = tuple(np.asarray(self.origin_mm) + shift)
        pixels = self.interpolated(lambda values: regrid(smoothed(values, scale), scale, sizes, "bilinear"))
        return replace(self, **pixels, spacing_mm=(step,) * len(sizes), origin_mm=origin, labels=labels)

    def interpolated(self, change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """The fields `array` and `mask` after a linear change of grey values.

        What counts is interpolated among itself; what does not count stays to be looked at.
        """
        if self.mask is None:
            return {"array": change(self.array), "mask": None}
        share = change(self.mask.to(self.array.dtype))
        mask = share >= 0.5
        return {"array": torch.where(mask, change(self.tissue) / share, change(self.array)), "mask": mask}

    def _corner_to_centre(self, size: Any, spacing_mm: Any) -> npt.NDArray[np.float64]:
        """Step in the image's own frame of reference from the first voxel's centre to the middle of the image."""
        return np.array([(n - 1) / 2 * s for n, s in zip(size, spacing_mm, strict=True)])


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Volume(_Image):
    """A 3D (or 2D+t) image: array (D, H, W), float32, axes x = W, y = H, z = D.

    `spacing_mm` is one number or (x, y, z). `origin_mm` is the place of voxel (0, 0, 0) in LPS world mm and the columns
    of `direction` are the x, y and z axes there; without an origin the volume is centred on the world's origin. `mask`
    (D, H, W) is true where voxels count: others are black to a network and part of no likeness.
    """

    direction: npt.NDArray[np.float64]
    modality: str  # us, mr or ct

    _axes = 3

    def __init__(
        self,
        array: Any,
        spacing_mm: float | Sequence[float],
        origin_mm: Sequence[float] | None = None,
        direction: Any = None,
        labels: Any = None,
        frame_of_reference: str = "Volume",
        mask: Any = None,
        modality: str = US,
    ) -> None:
        _set(self, "modality", as_modality(modality, "Volume(modality)"))
        try:
            # A pose checks its rotation: the same rules hold for the axes of a volume.
            axes = Pose(np.eye(3) if direction is None else direction, np.zeros(3)).rotation
        except ScopeRegError as error:
            raise ScopeRegError(error.what, where="Volume(direction)", fix=error.fix) from None
        _set(self, "direction", axes)
        super().__init__(array, spacing_mm, origin_mm, labels, frame_of_reference, mask)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Array shape D, H, W."""
        depth, height, width = self.array.shape
        return depth, height, width

    @property
    def known(self) -> Tensor | None:
        """Where it has a picture that counts (D, H, W); None without a mask: then whoever asks knows what is seen."""
        return None if self.mask is None else field_of_view(self.tissue) & self.mask

    @property
    def section_voxels(self) -> float:
        """The most that counts in one of its planes, in voxels; infinite without a mask: nothing was left out."""
        return math.inf if self.mask is None else largest_section(self.mask)

    @property
    def centre_mm(self) -> npt.NDArray[np.float64]:
        """The middle of the volume in LPS world mm."""
        return np.asarray(self.origin_mm) + self._corner_to_centre(self.size, self.spacing_mm)

    def _corner_to_centre(self, size: Any, spacing_mm: Any) -> npt.NDArray[np.float64]:
        step: npt.NDArray[np.float64] = self.direction @ super()._corner_to_centre(size, spacing_mm)
        return step


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Frame(_Image):
    """A 2D image: array (H, W), float32, axes x = W (right), y = H (down), z = 0.

    `spacing_mm` is one number or (x, y). `origin_mm` is the place of pixel (0, 0) in the frame's own mm; without it the
    frame is centred, so that the identity pose lays it on the middle plane of a centred volume. `mask` (H, W) is true
    where pixels are tissue: others, such as a colour overlay, are black to a network and part of no likeness.
    """

    _axes = 2

    def __init__(
        self,
        array: Any,
        spacing_mm: float | Sequence[float],
        origin_mm: Sequence[float] | None = None,
        labels: Any = None,
        frame_of_reference: str = "Image",
        mask: Any = None,
    ) -> None:
        super().__init__(array, spacing_mm, origin_mm, labels, frame_of_reference, mask)

    @property
    def shape(self) -> tuple[int, int]:
        """Array shape H, W."""
        height, width = self.array.shape
        return height, width

    @property
    def centre_mm(self) -> npt.NDArray[np.float64]:
        """The middle of the frame in its own mm, z = 0."""
        return np.append(np.asarray(self.origin_mm) + self._corner_to_centre(self.size, self.spacing_mm), 0.0)

    @property
    def seen(self) -> Tensor:
        """What the transducer sees (H, W), without the pixels that do not count."""
        field = field_of_view(self.tissue)
        return field if self.mask is None else field & self.mask

    @property
    def masked_share(self) -> float:
        """Of the field of view, what does not count."""
        if self.mask is None:
            return 0.0
        field = field_of_view(self.array)
        return float((field & ~self.mask).sum() / field.sum().clamp_min(1))

    def for_network(self) -> Frame:
        """As for registration, with thin gaps filled from around them, which count then.

        To a network black is what no probe saw, which letters and needles are not.
        """
        ready = self.for_registration()
        if ready.mask is None:
            return ready
        gaps, radius = field_of_view(ready.array) & ~ready.mask, max(round(_THIN * max(self.shape)), 1)
        thin = gaps & ~_opened(gaps, radius)
        both = torch.stack([ready.array, ready.mask.to(ready.array.dtype)])[:, None]
        total, share = F.avg_pool2d(both, 4 * radius + 1, 1, 2 * radius)[:, 0]
        thin &= share > 0
        array = torch.where(thin, total / share.clamp_min(1e-6), ready.array)
        return replace(ready, array=array, mask=ready.mask | thin)

    def flipped(self, axis: int) -> Frame:
        """Mirrored in place: left to right along axis 0 (x), top to bottom along axis 1 (y)."""
        return self._changed(lambda values: values.flip(1 - axis))

    def cut(self, left: int, top: int, right: int, bottom: int) -> Frame:
        """The pixels from the first column and row to those before the last; each stays where it is in mm."""
        width, height = self.size
        if not (0 <= left < right <= width and 0 <= top < bottom <= height):
            raise ScopeRegError(
                f"the box {left}, {top}, {right}, {bottom} is not one of a frame of {width} x {height} pixels",
                where="Frame.cut",
                fix="pass the first column and row, and those after the last",
            )
        origin = tuple(np.asarray(self.origin_mm) + np.array([left, top]) * self.spacing_mm)
        return self._changed(lambda values: values[top:bottom, left:right], origin_mm=origin)


def pose_to_voxels(pose: Pose, frame: Frame, volume: Volume) -> VoxelPoses:
    """`ImageToVolume` in mm as a rotation (3, 3) and translation (3,) in centred voxels, for `sample_slice`."""
    spacing = _common_spacing(frame, volume)
    _check_frames(pose, frame, volume)
    rotation = volume.direction.T @ pose.rotation
    offset = pose.apply(frame.centre_mm) - volume.centre_mm
    translation = volume.direction.T @ offset / spacing
    return VoxelPoses(*(torch.from_numpy(v).to(volume.array) for v in (rotation, translation)))


def pose_from_voxels(rotation: Tensor, translation: Tensor, frame: Frame, volume: Volume) -> Pose:
    """The inverse of `pose_to_voxels`: a pose in centred voxels as `ImageToVolume` in mm."""
    spacing = _common_spacing(frame, volume)
    # Shapes, finite, rigid: the rules of a pose hold in voxels too, and it makes a float32 rotation a true one.
    checked = Pose(rotation.detach().cpu().double().numpy(), translation.detach().cpu().double().numpy())
    turned = volume.direction @ checked.rotation
    offset = volume.direction @ (checked.translation_mm * spacing)
    moved = volume.centre_mm + offset - turned @ frame.centre_mm
    return Pose(turned, moved, frame.frame_of_reference, volume.frame_of_reference)


def centre_pose(frame: Frame, volume: Volume) -> Pose:
    """The frame laid flat on the middle plane of the volume: no rotation between their axes, centres together."""
    shift = volume.centre_mm - volume.direction @ frame.centre_mm
    return Pose(volume.direction, shift, frame.frame_of_reference, volume.frame_of_reference)


def seen_from(volume: Volume, rotation: Tensor, translation: Tensor, shape: tuple[int, int, int]) -> Volume:
    """An isotropic volume as seen from a pose (3, 3), (3,) in centred voxels: one of `shape`, placed in the same world.

    A slice at that pose is its middle plane. A pose in mm found there holds in the volume as it is; one in centred
    voxels is brought back with `compose_poses(start, found)`.
    """
    spacing = volume.isotropic_spacing_mm
    place = volume.array.device
    turn, shift = rotation[None].to(place), translation[None].to(place)
    voxels = volume.interpolated(lambda values: resample_volume(values[None], turn, shift, shape=shape)[0])
    direction = volume.direction @ rotation.double().cpu().numpy()
    centre = volume.centre_mm + volume.direction @ translation.double().cpu().numpy() * spacing
    first = centre - direction @ (np.array(shape[::-1]) - 1) * spacing / 2
    world = volume.frame_of_reference
    return Volume(**voxels, spacing_mm=spacing, origin_mm=first.tolist(), direction=direction, frame_of_reference=world)


def _common_spacing(frame: Frame, volume: Volume) -> float:
    spacing, other = volume.isotropic_spacing_mm, frame.isotropic_spacing_mm
    if abs(spacing - other) > ISOTROPY_TOLERANCE * spacing:
        raise ScopeRegError(
            f"the frame has {other:g} mm pixels, the volume {spacing:g} mm voxels",
            where="Frame.spacing_mm",
            fix=f"resample one of them: frame.resampled({spacing:g})",
        )
    return spacing


def _check_frames(pose: Pose, frame: Frame, volume: Volume) -> None:
    wanted = f"{frame.frame_of_reference}To{volume.frame_of_reference}"
    if pose.name != wanted:
        raise ScopeRegError(
            f"the pose is {pose.name}, the images need {wanted}",
            where="pose_to_voxels(pose)",
            fix="compose or invert poses until it is, or name the frames of reference alike",
        )


def _set(target: object, name: str, value: object) -> None:
    object.__setattr__(target, name, value)  # the dataclasses are frozen; this is their own constructor


def field_of_view(array: Tensor) -> Tensor:
    """What the transducer sees (H, W): pixels between the first and last non-zero one of both their row and column.

    Fans and boxes come out whole, dark blood inside of them included.
    """
    lit = array > 0

    def spanned(axis: int) -> Tensor:
        before = lit.cummax(axis).values
        after = lit.flip(axis).cummax(axis).values.flip(axis)
        return before & after

    return spanned(-1) & spanned(-2)


def _opened(bits: Tensor, radius: int) -> Tensor:
    """What is left of true pixels (H, W) where they are wider than a square."""
    missing = F.max_pool2d((~bits).float()[None], 2 * radius + 1, 1, radius)
    return F.max_pool2d(1 - missing, 2 * radius + 1, 1, radius)[0] > 0


def largest_section(mask: Tensor, spacing_mm: Sequence[float] = (1.0, 1.0, 1.0)) -> float:
    """The most that is true (D, H, W) in a plane along two axes: square voxels, or mm with sizes x, y, z.

    Of a frame no more than that can lie there, but for oblique planes.
    """
    area = math.prod(spacing_mm)
    counts = (mask.sum(tuple(other for other in range(3) if other != axis)) for axis in range(3))
    return max(int(count.max()) * area / step for count, step in zip(counts, reversed(spacing_mm), strict=True))


def check_content(image: Volume | Frame) -> None:
    """An error for an image that holds one value only: nothing can be registered with it."""
    values = image.array
    kind = "Frame" if isinstance(image, Frame) else "Volume"
    path = str(getattr(image, "path", ""))  # of an image that was read
    if image.mask is not None:
        values = values[image.mask]
        if not values.numel():
            raise ScopeRegError(
                f"its mask leaves out every {'pixel' if kind == 'Frame' else 'voxel'}",
                where=path or f"{kind}.mask",
                fix="look at the image: it may be all colour overlay; or leave the mask out",
            )
    low, high = float(values.min()), float(values.max())
    if low == high:
        raise ScopeRegError(
            f"the {kind.lower()} is empty: every value is {low:g}",
            where=path or f"{kind}.array",
            fix=_EMPTY[kind],
        )


def unit_range(array: Tensor, mask: Tensor | None = None) -> Tensor:
    """Values in [0, 1]: as they are where they lie there, else scaled by their 1st and 99th percentiles.

    Where a mask tells what counts, by what that is; the others are cut off.
    """
    array = array.float()
    counted = array if mask is None or not bool(mask.any()) else array[mask]
    if float(counted.min()) >= 0 and float(counted.max()) <= 1:
        return array if counted is array else array.clamp(0, 1)
    ranks = [round(share * (counted.numel() - 1)) for share in (_DARK, _BRIGHT)]
    # Partitioned, not sorted, and scaled in place: a volume may have more than a hundred million voxels.
    ordered = torch.from_numpy(np.partition(counted.detach().cpu().numpy(), ranks, axis=None)[ranks]).to(array.device)
    low, high = ordered
    return (array - low).div_((high - low).clamp_min(1e-6)).clamp_(0, 1)
