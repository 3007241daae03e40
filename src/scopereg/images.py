"""Volume and Frame: pixels with their spacing, their place in LPS millimetres, and optional labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose, VoxelPoses, resample_volume

ISOTROPY_TOLERANCE = 1e-3  # relative difference between axes that still counts as one spacing
Image = TypeVar("Image", bound="_Image")
_DARK, _BRIGHT = 0.01, 0.99  # quantiles that become 0 and 1 in images of another range


@dataclass(frozen=True, eq=False, init=False, repr=False)
class _Image:
    """What volumes and frames share. Axis triples and pairs are in x, y(, z) order; arrays are (D,) H, W."""

    array: Tensor
    spacing_mm: tuple[float, ...]
    origin_mm: tuple[float, ...]
    labels: Tensor | None
    frame_of_reference: str

    _axes = 0

    def __init__(
        self,
        array: Any,
        spacing_mm: float | Sequence[float],
        origin_mm: Sequence[float] | None = None,
        labels: Any = None,
        frame_of_reference: str = "",
    ) -> None:
        where = type(self).__name__
        _set(self, "array", _as_tensor(array, self._axes, where))
        _set(self, "spacing_mm", as_sizes(spacing_mm, self._axes, f"{where}(spacing_mm)"))
        _set(self, "labels", None if labels is None else _as_labels(labels, self.array, where))
        _set(self, "frame_of_reference", frame_of_reference)
        if origin_mm is None:
            centred = tuple((-self._corner_to_centre(self.size, self.spacing_mm)).tolist())
            _set(self, "origin_mm", centred)
        else:
            _set(self, "origin_mm", _as_numbers(origin_mm, self._axes, f"{where}(origin_mm)"))

    def __repr__(self) -> str:
        labels = "" if self.labels is None else ", labelled"
        return f"{type(self).__name__}({' x '.join(map(str, self.shape))}, {_listed(self.spacing_mm)} mm{labels})"

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
                f"the spacing is anisotropic: {_listed(self.spacing_mm)} mm",
                where=f"{type(self).__name__}.spacing_mm",
                fix=f"resample it first: .resampled({low:g}) gives {low:g} mm on every axis",
            )
        return sum(self.spacing_mm) / len(self.spacing_mm)

    def numpy(self) -> npt.NDArray[np.float32]:
        """The pixels as a numpy array on the host."""
        values: npt.NDArray[np.float32] = self.array.detach().cpu().numpy()
        return values

    def to(self: Image, device: torch.device | str) -> Image:
        """A copy whose tensors live on `device`."""
        labels = None if self.labels is None else self.labels.to(device)
        return replace(self, array=self.array.to(device), labels=labels)

    def resampled(self: Image, spacing_mm: float | None = None, size: Sequence[int] | None = None) -> Image:
        """The same field at one spacing on all axes, by default the finest it has; labels by the nearest.

        Linear, after a Gaussian that removes what a coarser grid cannot hold. Voxel centres at both ends of the first
        row stay within half a voxel; the centre of the image stays in place. With a `size` in x, y(, z) it has so many
        voxels: beyond the field those at its border go on.
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
        if min(sizes) < 1 or np.prod([float(n) for n in sizes]) > 2**31:
            raise ScopeRegError(
                f"{step:g} mm would give {' x '.join(map(str, sizes))} voxels",
                where=f"{type(self).__name__}.resampled(spacing_mm)",
                fix=f"choose a spacing nearer to the present {_listed(self.spacing_mm)} mm",
            )
        array = _regrid(_smoothed(self.array, scale), scale, sizes, "bilinear")
        labels = None if self.labels is None else _regrid(self.labels, scale, sizes, "nearest").to(self.labels.dtype)
        centre = self._corner_to_centre(self.size, self.spacing_mm)
        shift = centre - self._corner_to_centre(sizes, [step] * len(sizes))
        origin = tuple(np.asarray(self.origin_mm) + shift)
        return replace(self, array=array, spacing_mm=(step,) * len(sizes), origin_mm=origin, labels=labels)

    def _corner_to_centre(self, size: Any, spacing_mm: Any) -> npt.NDArray[np.float64]:
        """Step in the image's own frame of reference from the first voxel's centre to the middle of the image."""
        return np.array([(n - 1) / 2 * s for n, s in zip(size, spacing_mm, strict=True)])


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Volume(_Image):
    """A 3D (or 2D+t) image: array (D, H, W), float32, axes x = W, y = H, z = D.

    `spacing_mm` is one number or (x, y, z). `origin_mm` is the place of voxel (0, 0, 0) in LPS world mm and the columns
    of `direction` are the x, y and z axes there; without an origin the volume is centred on the world's origin.
    """

    direction: npt.NDArray[np.float64]

    _axes = 3

    def __init__(
        self,
        array: Any,
        spacing_mm: float | Sequence[float],
        origin_mm: Sequence[float] | None = None,
        direction: Any = None,
        labels: Any = None,
        frame_of_reference: str = "Volume",
    ) -> None:
        try:
            # A pose checks its rotation: the same rules hold for the axes of a volume.
            axes = Pose(np.eye(3) if direction is None else direction, np.zeros(3)).rotation
        except ScopeRegError as error:
            raise ScopeRegError(error.what, where="Volume(direction)", fix=error.fix) from None
        _set(self, "direction", axes)
        super().__init__(array, spacing_mm, origin_mm, labels, frame_of_reference)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Array shape D, H, W."""
        depth, height, width = self.array.shape
        return depth, height, width

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
    frame is centred, so that the identity pose lays it on the middle plane of a centred volume.
    """

    _axes = 2

    def __init__(
        self,
        array: Any,
        spacing_mm: float | Sequence[float],
        origin_mm: Sequence[float] | None = None,
        labels: Any = None,
        frame_of_reference: str = "Image",
    ) -> None:
        super().__init__(array, spacing_mm, origin_mm, labels, frame_of_reference)

    @property
    def shape(self) -> tuple[int, int]:
        """Array shape H, W."""
        height, width = self.array.shape
        return height, width

    @property
    def centre_mm(self) -> npt.NDArray[np.float64]:
        """The middle of the frame in its own mm, z = 0."""
        return np.append(np.asarray(self.origin_mm) + self._corner_to_centre(self.size, self.spacing_mm), 0.0)


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
    array = resample_volume(volume.array[None], rotation[None].to(place), translation[None].to(place), shape=shape)[0]
    direction = volume.direction @ rotation.double().cpu().numpy()
    centre = volume.centre_mm + volume.direction @ translation.double().cpu().numpy() * spacing
    first = centre - direction @ (np.array(shape[::-1]) - 1) * spacing / 2
    return Volume(array, spacing, first.tolist(), direction, frame_of_reference=volume.frame_of_reference)


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


def _as_tensor(value: Any, axes: int, where: str) -> Tensor:
    try:
        tensor = _from_any(value).to(torch.float32)
    except (TypeError, ValueError) as error:
        raise ScopeRegError(f"not an array of numbers: {error}", where=f"{where}(array)", fix="pass numbers") from None
    layout = {2: "(H, W)", 3: "(D, H, W)"}[axes]
    if tensor.ndim != axes:
        raise ScopeRegError(
            f"the array has shape {tuple(tensor.shape)}",
            where=f"{where}(array)",
            fix=f"pass {layout}; drop colour and channel axes first",
        )
    if tensor.numel() == 0:
        raise ScopeRegError(
            f"the array is empty, shape {tuple(tensor.shape)}",
            where=f"{where}(array)",
            fix="check the file or the crop that made it",
        )
    bad = _not_finite(tensor)
    if bad:
        raise ScopeRegError(
            f"{bad} of {tensor.numel()} values are NaN or infinite",
            where=f"{where}(array)",
            fix="replace them (numpy.nan_to_num) or read the file again",
        )
    return tensor


def _not_finite(tensor: Tensor) -> int:
    """How many values are NaN or infinite. By NumPy where it can: PyTorch would wake all its threads for a frame."""
    if tensor.is_cpu:
        return int(np.count_nonzero(~np.isfinite(tensor.detach().numpy())))
    return int((~torch.isfinite(tensor)).sum())


def _from_any(value: Any) -> Tensor:
    """A tensor of real numbers from a tensor or whatever numpy understands."""
    if isinstance(value, Tensor):
        tensor = value.detach()
    else:
        array = np.ascontiguousarray(value)
        # Files hold big-endian numbers too, which torch does not take.
        # A copy: what the caller writes into the array later must not slip past the checks.
        tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=True))
    if tensor.is_complex():
        raise TypeError("the values are complex")
    return tensor


def _as_labels(value: Any, array: Tensor, where: str) -> Tensor:
    try:
        labels = _from_any(value)
    except (TypeError, ValueError) as error:
        raise ScopeRegError(
            f"not an array: {error}", where=f"{where}(labels)", fix="pass integer class numbers"
        ) from None
    if labels.is_floating_point():
        raise ScopeRegError(
            f"labels are {labels.dtype}", where=f"{where}(labels)", fix="pass integer class numbers, 0 = background"
        )
    if labels.shape != array.shape:
        raise ScopeRegError(
            f"labels have shape {tuple(labels.shape)}, the array {tuple(array.shape)}",
            where=f"{where}(labels)",
            fix="resample the labels to the grid of the image",
        )
    return labels.to(array.device, torch.uint8 if labels.dtype == torch.bool else labels.dtype)


def _as_numbers(value: Any, count: int, where: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(v) for v in np.asarray(value, np.float64).reshape(-1))
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != count or not np.isfinite(numbers).all():
        raise ScopeRegError(f"got {value!r}", where=where, fix=f"pass {count} finite numbers in x, y, z order")
    return numbers


def as_pair(spacing_mm: float | Sequence[float], where: str) -> tuple[float, float]:
    """A pixel size x, y from one number or two."""
    x, y = as_sizes(spacing_mm, 2, where)
    return x, y


def as_sizes(spacing_mm: float | Sequence[float], axes: int, where: str) -> tuple[float, ...]:
    """Sizes x, y(, z) from one number or as many as there are axes."""
    try:
        numbers = np.asarray(spacing_mm, np.float64).reshape(-1)
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    if numbers.size == 1:
        numbers = np.repeat(numbers, axes)
    if numbers.size != axes or not (np.isfinite(numbers).all() and numbers.min() > 0):
        raise ScopeRegError(
            f"the spacing is {spacing_mm}", where=where, fix=f"pass {axes} positive sizes in mm, x first"
        )
    return tuple(float(step) for step in numbers)


def _listed(numbers: tuple[float, ...]) -> str:
    return " x ".join(f"{n:g}" for n in numbers)


def _smoothed(array: Tensor, scale: list[float]) -> Tensor:
    """Gaussian along each axis that gets coarser, sigma as for an ideal low-pass at the new grid's limit."""
    for axis, factor in enumerate(reversed(scale)):  # array axes run opposite to x, y, z
        sigma = 0.5 * float(np.sqrt(max(factor**2 - 1, 0)))
        if sigma > 0.1 and array.shape[axis] > 1:
            array = _blur_axis(array, axis, sigma)
    return array


def _blur_axis(array: Tensor, axis: int, sigma: float) -> Tensor:
    radius = int(np.ceil(3 * sigma))
    taps = torch.exp(-0.5 * (torch.arange(-radius, radius + 1, device=array.device) / sigma) ** 2)
    lines = array.movedim(axis, -1)
    flat = F.pad(lines.reshape(-1, 1, lines.shape[-1]), (radius, radius), mode="replicate")
    return F.conv1d(flat, (taps / taps.sum())[None, None]).reshape(lines.shape).movedim(-1, axis)


def _regrid(array: Tensor, scale: list[float], sizes: list[int], mode: str) -> Tensor:
    """Sample on a centred grid of `sizes` with steps of `scale` old voxels (both x, y(, z))."""
    axes = [
        ((torch.arange(n, device=array.device) - (n - 1) / 2) * f * 2 / max(old - 1, 1))
        for n, f, old in zip(sizes, scale, array.shape[::-1], strict=True)
    ]
    grid = torch.stack(torch.meshgrid(*reversed(axes), indexing="ij")[::-1], -1)
    values = F.grid_sample(
        array[None, None].float(), grid[None].float(), mode=mode, padding_mode="border", align_corners=True
    )
    return values[0, 0]


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


def check_content(image: Volume | Frame) -> None:
    """An error for an image that holds one value only: nothing can be registered with it."""
    low, high = float(image.array.min()), float(image.array.max())
    if low == high:
        raise ScopeRegError(
            f"every value is {low:g}",
            where=f"{type(image).__name__}.array",
            fix="check that the file was read with the right frame, channel and region; an empty image has no pose",
        )


def unit_range(array: Tensor) -> Tensor:
    """Values in [0, 1]: as they are where they lie there, else scaled by their 1st and 99th percentiles."""
    array = array.float()
    if float(array.min()) >= 0 and float(array.max()) <= 1:
        return array
    ranks = [round(share * (array.numel() - 1)) for share in (_DARK, _BRIGHT)]
    # Partitioned, not sorted, and scaled in place: a volume may have more than a hundred million voxels.
    ordered = torch.from_numpy(np.partition(array.detach().cpu().numpy(), ranks, axis=None)[ranks]).to(array.device)
    low, high = ordered
    return (array - low).div_((high - low).clamp_min(1e-6)).clamp_(0, 1)
