"""Locator: a volume prepared once to find any number of frames in it."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, check_content
from scopereg.progress import timed
from scopereg.registration.body import BODY, Body
from scopereg.registration.deformable.fitting import Deformer
from scopereg.registration.method import Method, create
from scopereg.registration.model import Registrar
from scopereg.registration.prepared import Found
from scopereg.registration.result import RegistrationError, Result
from scopereg.registration.settings import DEFAULT
from scopereg.registration.similarity import Similarity
from scopereg.registration.together import Together, locate_together
from scopereg.registration.working_grid import isotropic
from scopereg.threads import watched

_LEAST_COVER = 0.25  # of a frame that a volume must be able to cover
_FEW_VOXELS = 4  # along a frame that shows nothing to find it by
_SMALL = 0.2  # of the volume's longest side, up to which a frame is suspiciously small
_SAMPLE, _FEW_VALUES = 100_000, 8  # voxels looked at, and grey values that they have in a mask


class Locator:
    """A method in one volume.

    Networks get the volume at the spacing that they were trained with or, where they know many, on the working grid of
    each frame (`registration.working_grid`): then it is prepared when the first frame of a field of view comes, and
    kept for the next ones. Refinement gets it isotropic; grey values are scaled to [0, 1]. `notes`, and those of
    each result, tell what was done. Poses are those of the files as they are, in LPS mm.
    """

    @watched()
    def __init__(
        self,
        volume: Volume,
        method: str | Registrar | Method = DEFAULT,
        *,
        refine: bool = False,
        wide: bool = False,
        fallback: bool = False,
        seconds: float | None = None,
        any_angle: bool = False,
        thickness_mm: float | str | None = None,
        deformable: bool = False,
        device: str = "auto",
    ) -> None:
        """See `method.create`. With `deformable` results also tell the deformation that the rigid pose leaves."""
        check_content(volume)
        self.volume = volume
        how: dict[str, Any] = {"wide": wide, "refine": refine, "fallback": fallback, "thickness_mm": thickness_mm}
        unit = volume.for_registration()
        with timed(f"opened {getattr(method, 'name', method)}"):
            self.method = create(method, device, **how, seconds=seconds, any_angle=any_angle)
        with timed(f"prepared the volume for {self.method.name}"):
            self.prepared = self.method.prepare(unit)
            self.alike = self.prepared.alike or Similarity(isotropic(unit)[0], resolve_device(device))
            self.deformer = Deformer(unit, device) if deformable else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the volume, and what is odd about it."""
        return (*self.prepared.notes, *_volume_doubts(self.volume))

    @property
    def refines(self) -> bool:
        """Whether poses are refined in the end."""
        return self.prepared.refines

    @property
    def might_look_wider(self) -> bool:
        """Whether a wide search could be asked for and was not."""
        return self.prepared.might_look_wider

    def is_ready(self, frame: Frame) -> bool:
        """Whether a frame is located, or refused, without anything being prepared for its field of view first."""
        try:
            check_content(frame)
            _check_size(frame, self.volume)
        except ScopeRegError:
            return True
        return self.prepared.is_ready(frame)

    @watched()
    def get_ready(self, frame: Frame) -> None:
        """Prepare what frames of this field of view need, which may take seconds; from any thread."""
        if not self.is_ready(frame):
            self.prepared.get_ready(frame)

    def narrow(self) -> Locator:
        """The same, without a wide search."""
        same = copy.copy(self)
        same.prepared = self.prepared.narrow()
        return same

    def reaches(self, frame: Frame, pose: Pose) -> bool:
        """Whether a frame there would be found from the middle of the volume, as far as anybody knows."""
        return self.prepared.reaches(frame, pose)

    def locate(self, frame: Frame, start: Pose | None = None) -> Result:
        """The pose of one frame, or the error that tells why there is none."""
        (found,) = self.locate_all([frame], [start])
        if isinstance(found, ScopeRegError):
            raise found
        return found

    @watched()
    def locate_all(self, frames: Sequence[Frame], starts: Sequence[Pose | None] | None = None) -> list[Found]:
        """A result for each frame, or the error that tells why there is none; networks see the frames together."""
        starts = [None] * len(frames) if starts is None else starts
        found: dict[int, Found] = {}
        usable: dict[int, Frame] = {}
        for row, frame in enumerate(frames):
            try:
                check_content(frame)
                _check_size(frame, self.volume)
                usable[row] = frame.for_registration()
            except ScopeRegError as error:
                found[row] = error.kept()
        with timed(f"located {len(usable)} frame{'s' * (len(usable) != 1)}"):
            results = self.prepared.locate(list(usable.values()), [starts[row] for row in usable]) if usable else []
        for row, result in zip(usable, results, strict=True):
            found[row] = self._of(frames[row], result) if isinstance(result, Result) else result
        return [found[row] for row in range(len(frames))]

    @watched()
    def locate_together(
        self, frames: Sequence[Frame], image_to_body: Sequence[Any], start: Pose | None = None
    ) -> Together:
        """One pose for frames whose places beside one another are known: `BodyToVolume`, by what all of them show.

        `image_to_body` are poses, or rigid 4x4 matrices, of each frame in any one body: a tracker's, a robot's, those
        of a sweep. `start` is `BodyToVolume` to look around; without it each frame is sought as `locate` does.
        """
        begin = (
            None if start is None else Pose(start.rotation, start.translation_mm, BODY, self.volume.frame_of_reference)
        )
        return locate_together(self, Body.of(frames, image_to_body), begin)

    @watched()
    def refine_from(self, frame: Frame, start: Result) -> Result | None:
        """A frame refined from another pose than the one that was found; None where that cannot be."""
        refined = self.prepared.refine_from(frame.for_registration(), start) if self.refines else None
        return None if refined is None else self._of(frame, refined)

    def _of(self, frame: Frame, result: Result) -> Result:
        """The result with the images as they came, how alike they are, and what the pose leaves if that is sought."""
        if not self.prepared.measures:
            result = self.alike.of(frame.for_registration(), result)
        if self.deformer is not None:
            begin = time.perf_counter()
            deformation = self.deformer.deform(frame.for_registration(), result.pose)
            taken_ms = (time.perf_counter() - begin) * 1e3
            result = replace(result, deformation=deformation, time_ms=result.time_ms + taken_ms)
        notes = (*result.notes, *_size_doubts(frame, self.volume))
        return replace(result, frame=frame, volume=self.volume, notes=notes)


def _volume_doubts(volume: Volume) -> tuple[str, ...]:
    """A note on a volume that is likely a mask: a few grey values alone, by a sample of its voxels."""
    values = volume.array.flatten()
    count = len(values[:: max(len(values) // _SAMPLE, 1)].unique())
    return (f"the volume holds {count} grey values alone: is it a mask?",) if count <= _FEW_VALUES else ()


def _size_doubts(frame: Frame, volume: Volume) -> tuple[str, ...]:
    """A note on a frame that is far smaller than the volume: sizes of pixels may be in cm, or of another depth."""
    (width, height), room = frame.extent_mm, max(volume.extent_mm)
    if max(width, height) > _SMALL * room:
        return ()
    return (
        f"the frame measures {width:.3g} x {height:.3g} mm, the volume up to {room:.0f} mm: is a pixel that small?",
    )


def _check_size(frame: Frame, volume: Volume) -> None:
    """An error for a frame that the volume could cover only a small part of, or that is a few voxels large."""
    width, height = frame.extent_mm
    voxel_mm = min(volume.spacing_mm)
    if max(width, height) < _FEW_VOXELS * voxel_mm:
        raise RegistrationError(
            f"the frame measures {width:.2g} x {height:.2g} mm, a voxel of the volume {voxel_mm:.2g} mm",
            where=str(getattr(frame, "path", "")) or "Frame.spacing_mm",
            fix="check the spacing of both, in mm, and whether this is a frame at all",
        )
    *_, second, first = sorted(volume.extent_mm)
    cover = min(first / max(width, height, 1e-9), 1) * min(second / max(min(width, height), 1e-9), 1)
    if cover < _LEAST_COVER:
        room = " x ".join(f"{length:.0f}" for length in volume.extent_mm)
        raise RegistrationError(
            f"the frame measures {width:.0f} x {height:.0f} mm, the volume only {room} mm",
            where=str(getattr(frame, "path", "")) or "Frame.spacing_mm",
            fix="check the spacing of both, in mm; crop a frame that shows much more than the volume",
        )
