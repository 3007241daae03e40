"""WorkingGrid: the voxels on which a network compares frames with a volume, chosen by the field of view of both.

A network that was trained on many shapes knows sizes in voxels alone: frames of so many along a side, frames so many
voxels away from the middle of what it is given. So the voxel size follows from the images, see docs/register.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from scopereg.errors import ScopeRegError
from scopereg.images import ISOTROPY_TOLERANCE, Frame, Volume
from scopereg.networks.encoders import STRIDE

if TYPE_CHECKING:
    from scopereg.registration.model import Registrar

Shape = tuple[int, int, int]

FACT = "grid"  # of weights: under this name their file tells the sizes that the network knows
USUAL_VOXELS = 160  # along the longer side of a frame; where images are coarser, interpolated
ENOUGH_VOXELS = 96  # along that side in large volumes: fewer cost accuracy
MOST_BETWEEN = 2.0  # voxels for each that an image has: more were never worth the work
MANY_VOXELS = 2**22  # of a volume: from here on coarser voxels are better, as long as the frame has enough of them
MOST_VOXELS = 2**24  # of a volume, whatever becomes of the frame
DEPTH_PER_VOXEL = 2.4  # planes of a window for each voxel of the largest offset: more of them distract
_NEARLY = 0.1  # relative difference between voxel sizes that is not worth resampling
_HUGE_VOXELS = 2**26  # of a volume as it comes: it is averaged before it is resampled, which would copy it


@dataclass(frozen=True)
class KnownSizes:
    """What a network was trained on, in voxels: the smallest and largest frames and volumes, and their offsets."""

    frame_voxels: tuple[int, int] = (64, 160)
    """Fewest and most along a side of a frame."""
    volume_voxels: tuple[int, int] = (32, 160)
    """Fewest and most along an axis of a volume."""
    magnitude_voxels: float = 20.0
    """Largest offset of a frame from the middle of the volume, in voxels and degrees on each axis."""

    def __post_init__(self) -> None:
        for name in ("frame_voxels", "volume_voxels"):
            fewest, most = getattr(self, name)
            if not STRIDE <= fewest <= most:
                raise ScopeRegError(
                    f"{name} is {[fewest, most]}",
                    where=FACT,
                    fix=f"pass the fewest and the most, at least {STRIDE} voxels",
                )
        if not 0 < self.magnitude_voxels < math.inf:
            raise ScopeRegError(
                f"magnitude_voxels is {self.magnitude_voxels}", where=FACT, fix="pass a positive number of voxels"
            )

    @classmethod
    def of(cls, facts: dict[str, Any]) -> KnownSizes | None:
        """Those that the facts of weights tell; None for networks of one voxel size and shape, which tell none."""
        told = facts.get(FACT)
        if told is None:
            return None
        try:
            known = {entry.name: told[entry.name] for entry in fields(cls)}
            frame, volume = ((int(low), int(high)) for low, high in (known["frame_voxels"], known["volume_voxels"]))
            return cls(frame, volume, float(known["magnitude_voxels"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ScopeRegError(
                f"the sizes that the network knows are {told!r}: {error!r}",
                where=f"facts of the weights, {FACT!r}",
                fix="write frame_voxels and volume_voxels as [fewest, most], and magnitude_voxels",
            ) from None

    @property
    def facts(self) -> dict[str, Any]:
        """For the facts of weights, under `FACT`."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def depth_voxels(self, side_voxels: int) -> int:
        """Planes of a window for frames with so many voxels along their longer side.

        As many as frames within the offsets of the training can reach into; these were a share of that side.
        """
        fewest, most = self.volume_voxels
        share = min(1.0, side_voxels / self.frame_voxels[1])
        return min(max(depth_for(share * self.magnitude_voxels), fewest), most)

    @property
    def usual_shape(self) -> Shape:
        """What the network is given of a large volume, for a square frame of the usual size."""
        side = min(USUAL_VOXELS, self.frame_voxels[1])
        return self.depth_voxels(side), side, side


@dataclass(frozen=True)
class FieldOfView:
    """How large a frame is, and how fine."""

    width_mm: float
    height_mm: float
    pixel_mm: float  # its finest

    def __post_init__(self) -> None:
        if not all(0 < length < math.inf for length in (self.width_mm, self.height_mm, self.pixel_mm)):
            raise ScopeRegError(
                f"the field of view is {self.width_mm:g} x {self.height_mm:g} mm with pixels of {self.pixel_mm:g} mm",
                where="FieldOfView",
                fix="pass positive lengths in mm",
            )

    @classmethod
    def of(cls, frame: Frame) -> FieldOfView:
        """That of a frame, its outer pixels as a whole."""
        width, height = (count * step for count, step in zip(frame.size, frame.spacing_mm, strict=True))
        return cls(width, height, min(frame.spacing_mm))

    @classmethod
    def of_planes(cls, volume: Volume) -> FieldOfView:
        """That of frames as large as the planes of a volume, for want of a frame."""
        width, height, _ = (count * step for count, step in zip(volume.size, volume.spacing_mm, strict=True))
        return cls(width, height, min(volume.spacing_mm))

    @property
    def longer_mm(self) -> float:
        return max(self.width_mm, self.height_mm)


@dataclass(frozen=True)
class WorkingGrid:
    """Isotropic voxels for a volume and for frames in it; `place` brings a volume there."""

    spacing_mm: float
    window: Shape  # what the network is given at once: planes as large as the frame, about the place looked at
    why: str = field(compare=False)  # this spacing, in words

    @classmethod
    def choose(cls, view: FieldOfView, volume: Volume, sizes: KnownSizes) -> WorkingGrid:
        """The grid for frames of this field of view in a volume, for a network that knows these sizes."""
        return cls._of_spacing(view, volume, sizes, *_choose_spacing_mm(view, volume, sizes))

    @classmethod
    def coarse(cls, view: FieldOfView, volume: Volume, sizes: KnownSizes) -> WorkingGrid:
        """The coarsest grid on which frames are still found well, several times faster than the best.

        Frames may be turned, or have other proportions: windows are as wide and high as a square frame of their area.
        """
        usual_mm, _ = _choose_spacing_mm(view, volume, sizes)
        enough = min(max(ENOUGH_VOXELS, sizes.frame_voxels[0]), sizes.frame_voxels[1])
        square_mm = math.sqrt(view.width_mm * view.height_mm)
        spacing_mm = max(usual_mm, square_mm / enough)
        around = FieldOfView(max(view.width_mm, square_mm), max(view.height_mm, square_mm), view.pixel_mm)
        return cls._of_spacing(around, volume, sizes, spacing_mm, "coarse")

    @classmethod
    def _of_spacing(
        cls, view: FieldOfView, volume: Volume, sizes: KnownSizes, spacing_mm: float, why: str
    ) -> WorkingGrid:
        fewest, most = sizes.frame_voxels
        height, width = (
            min(max(_in_cells(length / spacing_mm), _in_cells(fewest)), _in_cells(most))
            for length in (view.height_mm, view.width_mm)
        )
        own_depth = volume.size[2] * volume.spacing_mm[2] / spacing_mm
        depth = min(max(math.ceil(own_depth - 1e-6), sizes.volume_voxels[0]), sizes.depth_voxels(max(height, width)))
        return cls(spacing_mm, (depth, height, width), why)

    def place(self, volume: Volume) -> tuple[Volume, str]:
        """The volume with these voxels, black around it where it is smaller than a window; what was done, in words."""
        made, note = volume, ""
        if max(abs(own - self.spacing_mm) for own in volume.spacing_mm) > ISOTROPY_TOLERANCE * self.spacing_mm:
            made = _averaged(volume, self.spacing_mm).resampled(self.spacing_mm)
            note = f"for the network {resampled_note(volume, self.spacing_mm, self.why)}"
        return padded(made, self.window), note


def depth_for(magnitude_voxels: float) -> int:
    """Planes of a window for frames within these offsets, in whole cells of the encoder, 32 at least."""
    return max(_in_cells(DEPTH_PER_VOXEL * magnitude_voxels), 4 * STRIDE)


def padded(volume: Volume, shape: Shape) -> Volume:
    """The volume with as many black voxels on both sides of each axis as it takes to have `shape` (D, H, W) at least.

    Its middle stays where it is.
    """
    pads = [max(0, math.ceil((least - own) / 2)) for own, least in zip(volume.shape, shape, strict=True)]
    if not any(pads):
        return volume
    sides = [pad for one in reversed(pads) for pad in (one, one)]
    return _moved(volume, _of_each(volume, lambda values: F.pad(values, sides)), [-pad for pad in pads])


def middle(volume: Volume, shape: Shape) -> Volume:
    """The middle of a volume, of `shape` (D, H, W) or as large as it is."""
    starts = [max(0, own - most) // 2 for own, most in zip(volume.shape, shape, strict=True)]
    if all(own <= most for own, most in zip(volume.shape, shape, strict=True)):
        return volume
    return _box(volume, [(start, start + most) for start, most in zip(starts, shape, strict=True)])


def counted(volume: Volume) -> Volume:
    """The box about what counts of a volume: frames are sought about its middle."""
    if volume.mask is None or not bool(volume.mask.any()):
        return volume
    box = []
    for axis in range(3):
        first, second = (other for other in range(3) if other != axis)
        places = volume.mask.any(second).any(first).nonzero().flatten()
        box.append((int(places[0]), int(places[-1]) + 1))
    whole = all(last - first == n for (first, last), n in zip(box, volume.shape, strict=True))
    return volume if whole else _box(volume, box)


def isotropic(
    volume: Volume, spacing_mm: float | None = None, *, most: int = MOST_VOXELS, why: str = ""
) -> tuple[Volume, str]:
    """The volume at one spacing, by default its finest, with at most so many voxels; and what was done, in words."""
    step = min(volume.spacing_mm) if spacing_mm is None else spacing_mm
    coarsest = _spacing_for([max(length, step) for length in volume.extent_mm], most)
    if step < coarsest:
        step, why = coarsest, f"the finest that {most / 1e6:.0f} million voxels allow"
    if max(abs(own - step) for own in volume.spacing_mm) <= ISOTROPY_TOLERANCE * step:
        return volume, ""
    return _averaged(volume, step).resampled(step), resampled_note(volume, step, why)


def resampled_note(volume: Volume, spacing_mm: float, why: str) -> str:
    """What was done to a volume, in words."""
    own = " x ".join(f"{size:g}" for size in volume.spacing_mm)
    return f"the volume's voxels of {own} mm are resampled to {spacing_mm:.4g} mm" + (f", {why}" if why else "")


def _choose_spacing_mm(view: FieldOfView, volume: Volume, sizes: KnownSizes) -> tuple[float, str]:
    """The voxel size and why; the rules are those of docs/register.md, in their order."""
    fewest, most = sizes.frame_voxels
    step = _two_digits(view.longer_mm / min(USUAL_VOXELS, most))
    why = f"{view.longer_mm / step:.0f} along the frame"
    finest = min(view.pixel_mm, *volume.spacing_mm) / MOST_BETWEEN
    if step < finest:
        step = min(finest, view.longer_mm / fewest)
        why = f"{view.longer_mm / step:.0f} along the frame: the images are coarse"
    coarsest = view.longer_mm / min(max(ENOUGH_VOXELS, fewest), most)
    fields_mm = [count * own for count, own in zip(volume.size, volume.spacing_mm, strict=True)]
    many, bound = (_spacing_for(fields_mm, count) for count in (MANY_VOXELS, MOST_VOXELS))
    if step < many and step < coarsest:
        step = min(many, coarsest)
        why = f"{view.longer_mm / step:.0f} along the frame: the volume is much larger"
    if step < bound:
        step = bound
        why = f"the finest that {MOST_VOXELS / 1e6:.0f} million voxels allow; crop the volume to see more of the frame"
    own = sum(volume.spacing_mm) / 3
    alike = max(volume.spacing_mm) - min(volume.spacing_mm) <= ISOTROPY_TOLERANCE * own
    return (own, why) if alike and abs(own - step) <= _NEARLY * step else (step, why)


def _spacing_for(fields_mm: Sequence[float], voxels: int) -> float:
    """The voxel size with which a box has so many voxels."""
    return float(np.prod(fields_mm) / voxels) ** (1 / 3)


def _two_digits(length_mm: float) -> float:
    """Rounded up, so that frames of nearly one size share a grid."""
    unit = 10.0 ** (math.floor(math.log10(length_mm)) - 1)
    return float(f"{math.ceil(length_mm / unit - 1e-9) * unit:.2g}")


def _in_cells(voxels: float) -> int:
    """Voxels that fill whole cells of the encoder."""
    return math.ceil(voxels / STRIDE - 1e-6) * STRIDE


def _averaged(volume: Volume, spacing_mm: float) -> Volume:
    """A huge volume averaged over blocks no larger than the voxels to come: what follows copies it several times."""
    factors = [max(int(spacing_mm / own + 1e-6), 1) for own in reversed(volume.spacing_mm)]  # z, y, x
    factors = [min(factor, own) for factor, own in zip(factors, volume.shape, strict=True)]
    if volume.array.numel() <= _HUGE_VOXELS or max(factors) == 1:
        return volume
    voxels = volume.interpolated(lambda values: F.avg_pool3d(values[None, None], factors)[0, 0])
    spacing = [own * factor for own, factor in zip(volume.spacing_mm, reversed(factors), strict=True)]
    return _moved(volume, voxels, [(factor - 1) / 2 for factor in factors], spacing)


def _box(volume: Volume, box: Sequence[tuple[int, int]]) -> Volume:
    """From first to last voxel (the one after it) along z, y, x."""
    z, y, x = (slice(*ends) for ends in box)
    return _moved(volume, _of_each(volume, lambda values: values[z, y, x]), [first for first, _ in box])


def _of_each(volume: Volume, change: Callable[[Any], Any]) -> dict[str, Any]:
    """The same change of voxels and of what of them counts."""
    return {"array": change(volume.array), "mask": None if volume.mask is None else change(volume.mask)}


def _moved(
    volume: Volume, voxels: dict[str, Any], first_voxels: Sequence[float], spacing_mm: Sequence[float] | None = None
) -> Volume:
    """A volume in the same world whose first voxel lies at `first_voxels` (z, y, x) of the old one."""
    steps = np.array(first_voxels[::-1], dtype=float) * volume.spacing_mm
    first = np.asarray(volume.origin_mm) + volume.direction @ steps
    spacing = volume.spacing_mm if spacing_mm is None else tuple(spacing_mm)
    name = volume.frame_of_reference
    place: dict[str, Any] = {"spacing_mm": spacing, "origin_mm": first.tolist(), "direction": volume.direction}
    return Volume(**voxels, **place, frame_of_reference=name)


def frame_on_grid(frame: Frame, volume: Volume) -> Frame:
    """The frame with the pixels of the volume's planes: its spacing and size, centred, black beyond its border."""
    spacing = volume.isotropic_spacing_mm
    fitting = max(abs(step - spacing) for step in frame.spacing_mm) <= 1e-3 * spacing
    if fitting and frame.shape == volume.shape[1:]:
        return frame
    placed = frame.to("cpu").resampled(spacing, volume.size[:2])  # interpolated once, so that nothing blurs twice
    across, down = (
        ((torch.arange(n) - (n - 1) / 2) * spacing).abs() <= count * step / 2 + 1e-6 * spacing
        for n, count, step in zip(placed.size, frame.size, frame.spacing_mm, strict=True)
    )
    return replace(placed, array=placed.array * (down[:, None] & across))


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
    sizes, volume = model.sizes, counted(volume)
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


def as_trained(model: Registrar, volume: Volume) -> tuple[Volume, str]:
    """The volume as a network of one voxel size wants it: isotropic, as in its training; what was done, in words."""
    trained = model.facts.get("spacing_mm")
    spacing = float(trained) if isinstance(trained, int | float) and trained > 0 else None
    return isotropic(volume, spacing, most=MANY_VOXELS, why="as in training" if spacing else "")


def _shape(sizes: list[int]) -> Shape:
    depth, height, width = (int(size) for size in sizes)
    return depth, height, width
