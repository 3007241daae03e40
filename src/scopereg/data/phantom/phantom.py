"""Phantom: one patient, the volume acquired of it, and frames acquired at any pose."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Tensor

from scopereg.data.phantom.acoustics import compress, envelope, scan_convert
from scopereg.data.phantom.anatomy.base import Anatomy
from scopereg.data.phantom.fan import Fan
from scopereg.data.phantom.options import AcquisitionOptions, resolve_protocol
from scopereg.data.phantom.scanner import Scanner, vary_fan
from scopereg.data.phantom.speckle import sample_periodic, speckle_field
from scopereg.data.seeds import generator_for
from scopereg.errors import ScopeRegError
from scopereg.geometry import centred_axis, is_rotation, plane_points, sample_slice
from scopereg.geometry.beam import FWHM, TAPS, WEIGHTS
from scopereg.images import Volume
from scopereg.threads import watched

_CHUNK = {"cpu": 2**17, "cuda": 2**23}  # polar samples rendered at once: what fits the cache, or the device
_EXTRA_PLANES = 8  # planes of speckle beyond the volume before it repeats


Points = tuple[Tensor, Tensor, Tensor]  # x, y, z in mm of the volume
# Of points x, y of frames, in mm from their middles: how far the tissue there came from, x, y and off the plane.
Displaced = Callable[[Tensor, Tensor], Points]


class Acquisition(NamedTuple):
    """Frames of one phantom."""

    images: Tensor  # (B, H, W) float32 in [0, 1]
    labels: Tensor  # (B, H, W) uint8; the anatomy in the plane, also where the fan does not see it
    fan: Tensor  # (B, H, W) bool, what the transducer sees


@dataclass(frozen=True, eq=False)
class Phantom:
    """A patient made of formulas, and the volume that was acquired of it. Made by `create`."""

    patient: Anatomy
    seed: int
    shape: tuple[int, int, int]
    spacing_mm: float
    volume: Volume
    fan: Fan  # of the volume
    scanner: Scanner  # of the volume
    speckle: Tensor  # complex (planes, rays, samples), the volume's, periodic

    @property
    def anatomy(self) -> str:
        """Name of the anatomy."""
        return self.patient.name

    @property
    def label_names(self) -> Mapping[int, str]:
        """Names of the classes in the labels; 0 is everything else."""
        return self.patient.label_names

    @property
    def device(self) -> torch.device:
        """Device that the phantom is on and frames are made on."""
        return self.speckle.device

    @watched(steady=True)
    def acquire(
        self,
        rotation: Tensor,
        translation: Tensor,
        protocol: str | AcquisitionOptions = "honest",
        *,
        seed: int = 0,
        speckle_correlation: float | None = None,
        slice_shape: tuple[int, int] | None = None,
        thickness_mm: float | str | None = None,
        displaced: Displaced | None = None,
    ) -> Acquisition:
        """Frames at poses (B, 3, 3) and (B, 3) in centred voxels, as for `geometry.sample_slice`.

        "paper" cuts them out of the volume with zeros outside. "honest" acquires them anew from the same patient with
        their own speckle, gain, shadows and fan; `seed` draws these, the pose has no part in them. With `thickness_mm`
        they average the tissue across their plane: so many mm, or as their depth lets expect (`estimated`). `displaced`
        tells how tissue was deformed since the volume: a point p shows what lies at p + displaced(p) in the volume.
        """
        options = resolve_protocol(protocol, speckle_correlation, thickness_mm)
        check_seed(seed, "Phantom.acquire(seed)")
        rotation, translation = self._checked_poses(rotation, translation)
        size = slice_shape or (self.shape[1], self.shape[2])
        if len(size) != 2 or min(size) < 1:
            raise ScopeRegError(
                f"the slice shape is {size}",
                where="Phantom.acquire(slice_shape)",
                fix="pass (H, W), at least one pixel",
            )
        if options.cut and displaced is not None:
            raise ScopeRegError(
                "a frame that is cut out of the volume shows it as it is",
                where="Phantom.acquire(displaced)",
                fix='use protocol="honest"',
            )
        if options.cut:
            return self._cut(rotation, translation, options, seed, size)
        return self._acquire(rotation, translation, options, seed, size, displaced)

    def _cut(
        self, rotation: Tensor, translation: Tensor, options: AcquisitionOptions, seed: int, size: tuple[int, int]
    ) -> Acquisition:
        assert self.volume.labels is not None
        images = sample_slice(self.volume.array, rotation, translation, slice_shape=size)
        labels = sample_slice(self.volume.labels, rotation, translation, slice_shape=size, mode="nearest")
        return Acquisition(images, labels.to(torch.uint8), images > 0)

    def _acquire(
        self,
        rotation: Tensor,
        translation: Tensor,
        options: AcquisitionOptions,
        seed: int,
        size: tuple[int, int],
        displaced: Displaced | None,
    ) -> Acquisition:
        generator = generator_for(f"frames of {self.anatomy}", self.seed, seed, device=self.device)
        fan = vary_fan(self.fan, options, len(rotation), generator)
        scanner = self.scanner.varied(options, len(rotation), generator)
        chunk = max(1, _CHUNK.get(self.device.type, _CHUNK["cuda"]) // self.speckle[0].numel())
        parts = [
            self._acquire_chunk(
                rotation[frames], translation[frames], fan[frames], scanner[frames], options, generator, size, displaced
            )
            for frames in (slice(start, start + chunk) for start in range(0, len(rotation), chunk))
        ]
        return Acquisition(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    def _acquire_chunk(
        self,
        rotation: Tensor,
        translation: Tensor,
        fan: Fan,
        scanner: Scanner,
        options: AcquisitionOptions,
        generator: torch.Generator,
        size: tuple[int, int],
        displaced: Displaced | None,
    ) -> Acquisition:
        place = rotation, translation * self.spacing_mm
        rays = fan.ray_positions(*self.speckle.shape[1:])
        points = _to_volume_mm(*place, *_came_from(displaced, *rays))
        field = self._frame_speckle(points, fan, scanner, options.speckle_correlation, generator)
        below = fan.below_face_mm(*rays)

        def echo(places: Points) -> Tensor:
            return envelope(self.patient.tissue(*places, below), fan, scanner, field)

        if options.thickness is None:
            grey = compress(echo(points), scanner)
        else:
            widths_mm = options.thickness.at_mm(below, (fan.far_mm - fan.near_mm)[:, None, None])
            power = [
                weight * echo(_lifted(points, rotation, tap * widths_mm / FWHM)).square()
                for tap, weight in zip(TAPS, WEIGHTS, strict=True)
            ]
            grey = compress(torch.stack(power).sum(0).sqrt(), scanner)
        x, y = (plane_points(size, device=self.device) * self.spacing_mm).unbind(-1)
        images, mask = scan_convert(grey, fan, x, y)
        tissue = _to_volume_mm(*place, *_came_from(displaced, x, y))
        labels = self.patient.labels(*tissue, fan.below_face_mm(x, y))
        return Acquisition(images, labels, mask)

    def _frame_speckle(
        self,
        points: tuple[Tensor, Tensor, Tensor],
        fan: Fan,
        scanner: Scanner,
        correlation: float,
        generator: torch.Generator,
    ) -> Tensor:
        """Complex fields (B, rays, samples): the volume's at these points mixed with fields of the frames' own."""
        rays, samples = self.speckle.shape[1:]
        across = scanner.lateral_deg * (rays - 1) / (2 * fan.half_angle_deg)
        along = scanner.axial_mm / fan.step_mm(samples)
        own = speckle_field(len(across), (rays, samples), (across, along), generator)
        if correlation == 0:
            return own
        x, y, z = points
        angle, depth = self.fan.locate(x, y)
        plane = z / self.spacing_mm + (self.shape[0] - 1) / 2
        turns = (
            plane / self.speckle.shape[0],
            (angle + 1) / 2 * (rays - 1) / rays,
            (depth + 1) / 2 * (samples - 1) / samples,
        )
        shared = sample_periodic(self.speckle, turns)
        return correlation * shared + math.sqrt(1 - correlation**2) * own

    def _checked_poses(self, rotation: Tensor, translation: Tensor) -> tuple[Tensor, Tensor]:
        where = "Phantom.acquire(rotation, translation)"
        shapes = tuple(rotation.shape), tuple(translation.shape)
        if rotation.ndim != 3 or shapes != ((len(rotation), 3, 3), (len(rotation), 3)) or len(rotation) == 0:
            raise ScopeRegError(
                f"shapes {shapes[0]} and {shapes[1]} are no poses",
                where=where,
                fix="pass rotations (B, 3, 3) and translations (B, 3) in centred voxels",
            )
        if not bool(torch.isfinite(rotation).all() & torch.isfinite(translation).all()):
            raise ScopeRegError(
                "the pose has values that are NaN or infinite",
                where=where,
                fix="pass finite rotations and translations",
            )
        if not bool(is_rotation(rotation.float(), tolerance=1e-3).all()):
            raise ScopeRegError(
                "a matrix is no rotation", where=where, fix="pass rotations without scale, columns orthogonal"
            )
        return rotation.to(self.device, torch.float32), translation.to(self.device, torch.float32)


def build(
    patient: Anatomy, fan: Fan, scanner: Scanner, seed: int, shape: tuple[int, int, int], spacing_mm: float
) -> Phantom:
    """Sweep the transducer over the patient, plane by plane, and keep the volume."""
    device = fan.far_mm.device
    rays, samples = fan.grid_size(min(spacing_mm, patient.detail_mm))
    generator = generator_for(f"volume of {patient.name}", seed, device=device)
    across = scanner.lateral_deg * (rays - 1) / (2 * fan.half_angle_deg)
    widths = (patient.elevation_planes, across, scanner.axial_mm / fan.step_mm(samples))
    speckle = speckle_field(1, (shape[0] + _EXTRA_PLANES, rays, samples), widths, generator)[0]
    array = _render_volume(patient, fan, scanner, speckle, shape, spacing_mm)
    z, y, x = (centred_axis(n, device=device) * spacing_mm for n in shape)
    x, y, z = x[None, None, :], y[None, :, None], z[:, None, None]
    labels = patient.labels(x, y, z, fan.below_face_mm(x, y))
    volume = Volume(array, (spacing_mm,) * 3, labels=labels)
    return Phantom(patient, seed, shape, spacing_mm, volume, fan, scanner, speckle)


def _render_volume(
    patient: Anatomy, fan: Fan, scanner: Scanner, speckle: Tensor, shape: tuple[int, int, int], spacing_mm: float
) -> Tensor:
    x, y = fan.ray_positions(*speckle.shape[1:])
    z = centred_axis(shape[0], device=speckle.device) * spacing_mm
    plane = plane_points((shape[1], shape[2]), device=speckle.device) * spacing_mm
    depth = fan.below_face_mm(x, y)
    chunk = max(1, _CHUNK.get(speckle.device.type, _CHUNK["cuda"]) // x.numel())
    slabs = []
    for start in range(0, shape[0], chunk):
        stop = min(start + chunk, shape[0])
        tissue = patient.tissue(x, y, z[start:stop, None, None], depth)
        grey = compress(envelope(tissue, fan, scanner, speckle[start:stop]), scanner)
        slabs.append(scan_convert(grey, fan, plane[..., 0], plane[..., 1])[0])
    return torch.cat(slabs)


def _came_from(displaced: Displaced | None, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Where the tissue at points of frames lay when the volume was made, in the frames' own mm."""
    return (x, y) if displaced is None else tuple(map(torch.add, displaced(x, y), (x, y, torch.zeros_like(x))))


def _to_volume_mm(
    rotation: Tensor, translation_mm: Tensor, x: Tensor, y: Tensor, off: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Volume coordinates in mm of plane points (H, W) or (B, H, W) in mm, or of points `off` the plane."""
    parts = []
    for row in range(3):
        a, b, c = (v.reshape(-1, 1, 1) for v in (rotation[:, row, 0], rotation[:, row, 1], translation_mm[:, row]))
        parts.append(a * x + b * y + c)
    if off is not None:
        parts = [part + rotation[:, row, 2].reshape(-1, 1, 1) * off for row, part in enumerate(parts)]
    return parts[0], parts[1], parts[2]


def _lifted(points: Points, rotation: Tensor, off_mm: Tensor) -> Points:
    """Points (B, ...) of planes, so many mm off them."""
    x, y, z = (place + rotation[:, axis, 2].reshape(-1, 1, 1) * off_mm for axis, place in enumerate(points))
    return x, y, z


def check_seed(seed: int, where: str) -> None:
    """An error unless the seed is a whole number of 32 bits: torch looks at no more on a CPU."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= seed < 2**32:
        raise ScopeRegError(f"the seed is {seed!r}", where=where, fix="pass a whole number from 0 to 2**32 - 1")
