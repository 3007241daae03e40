"""Locator: a volume prepared once to find any number of frames in it; `register` finds one."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, check_content, unit_range
from scopereg.io.frames import read_frame
from scopereg.io.volume_files import read_volume
from scopereg.registration import search
from scopereg.registration.default_model import DEFAULT
from scopereg.registration.model import Registrar
from scopereg.registration.notes import reader_notes
from scopereg.registration.refine import WIDE, RefineOptions, Refiner, refine_in
from scopereg.registration.result import RegistrationError, Result
from scopereg.registration.search import Found
from scopereg.registration.start import Start
from scopereg.registration.working_grid import isotropic

_LEAST_COVER = 0.25  # of a frame that a volume must be able to cover


def register(
    frame: Frame | Path | str,
    volume: Volume | Path | str,
    *,
    method: str = DEFAULT,
    start: Pose | Path | str | None = None,
    refine: bool = False,
    agreement: bool = False,
    wide: bool = False,
    device: str = "auto",
) -> Result:
    """Find `ImageToVolume` of a frame in a volume; either may be a file. `.save("pose.tfm")` writes what it gives.

    `method` is a model of the package (`registration.model.names()`), the path of weights (.safetensors), simpleitk-mi,
    simpleitk-ncc, elastix, or start: no search. `start` is a pose, a file with one, or "tracker", the place that the
    frame's own file gives it; by default the middle of the volume. `refine` polishes what the method found. With
    `agreement` a network also locates the frame under small changes, for a surer verdict; `wide` lets it look from
    several starts, for frames farther off than it was trained for. For many frames in one volume make a `Locator`.
    """
    frame = frame if isinstance(frame, Frame) else read_frame(frame)
    volume = volume if isinstance(volume, Volume) else read_volume(volume)
    locator = Locator(volume, method, refine=refine, agreement=agreement, wide=wide, device=device)
    result = locator.locate(frame, Start.read(start).of(frame, volume))
    notes = (*reader_notes(frame), *reader_notes(volume), *locator.notes, *result.notes)
    return replace(result, notes=notes)


class Locator:
    """A method, and refinement after it, in one volume.

    Networks get the volume at the spacing that they were trained with or, where they know many, on the working grid of
    each frame (`registration.working_grid`): then it is prepared when the first frame of a field of view comes, and
    kept for the next ones. Refinement gets it isotropic; grey values are scaled to [0, 1]. `notes`, and those of
    each result, tell what was done. Poses are those of the files as they are, in LPS mm.
    """

    def __init__(
        self,
        volume: Volume,
        method: str | Registrar = DEFAULT,
        *,
        refine: bool = False,
        agreement: bool = False,
        wide: bool = False,
        device: str = "auto",
    ) -> None:
        check_content(volume)
        self.volume = volume
        unit = replace(volume, array=unit_range(volume.array))
        self.search = search.create(method, unit, device, agreement=agreement, wide=wide)
        still = isinstance(self.search, search.StartSearch)  # nothing was found yet: the refinement looks wider
        self.refinement = Refinement(unit, device, WIDE if still else RefineOptions()) if refine else None
        both = (*self.search.notes, *(self.refinement.notes if self.refinement else ()))
        self.notes = tuple(dict.fromkeys(both))
        self.only_refines = refine and still

    @property
    def might_look_wider(self) -> bool:
        """Whether a wide search could be asked for and was not."""
        return isinstance(self.search, search.NetworkSearch) and not self.search.wide

    def narrow(self) -> Locator:
        """The same, without a wide search."""
        same = copy.copy(self)
        if isinstance(self.search, search.NetworkSearch):
            same.search = self.search.narrow()
        return same

    def reaches(self, frame: Frame, pose: Pose) -> bool:
        """Whether a frame there would be found from the middle of the volume, as far as anybody knows."""
        return not isinstance(self.search, search.NetworkSearch) or self.search.reaches(frame, pose)

    def locate(self, frame: Frame, start: Pose | None = None) -> Result:
        """The pose of one frame, or the error that tells why there is none."""
        (found,) = self.locate_all([frame], [start])
        if isinstance(found, ScopeRegError):
            raise found
        return found

    def locate_all(self, frames: Sequence[Frame], starts: Sequence[Pose | None] | None = None) -> list[Found]:
        """A result for each frame, or the error that tells why there is none; networks see the frames together."""
        starts = [None] * len(frames) if starts is None else starts
        found: dict[int, Found] = {}
        usable: dict[int, Frame] = {}
        for row, frame in enumerate(frames):
            try:
                check_content(frame)
                _check_size(frame, self.volume)
                usable[row] = replace(frame, array=unit_range(frame.array))
            except ScopeRegError as error:
                found[row] = error
        results = self.search.find(list(usable.values()), [starts[row] for row in usable]) if usable else []
        found |= zip(usable, results, strict=True)
        for row, frame in usable.items():
            found[row] = self._finish(found[row], frames[row], frame)
        return [found[row] for row in range(len(frames))]

    def _finish(self, found: Found, frame: Frame, unit: Frame) -> Found:
        if isinstance(found, ScopeRegError):
            return found
        if self.refinement is not None:
            try:
                found = self._judged(unit, self._refined(unit, found))
            except RegistrationError as error:
                if self.only_refines:
                    return error
                found = replace(found, notes=(*found.notes, f"not refined: {error.what}"))
        return replace(found, frame=frame, volume=self.volume)

    def _refined(self, frame: Frame, found: Result) -> Result:
        """The place found or, of a wide search, whichever of the places is most like the frame once refined."""
        assert self.refinement is not None
        refined: list[Result] = []
        failures: list[RegistrationError] = []
        for place in (found, *found.alternatives):
            try:
                refined.append(self.refinement.refine(frame, place))
            except RegistrationError as error:
                failures.append(error)
        if not refined:
            raise failures[0]
        refined.sort(key=lambda result: result.similarity, reverse=True)
        taken_ms = found.time_ms + sum(result.time_ms - found.time_ms for result in refined)
        return replace(refined[0], time_ms=taken_ms, notes=found.notes, alternatives=tuple(refined[1:]))

    def refine_from(self, frame: Frame, start: Result) -> Result | None:
        """A frame refined from another pose than the one that was found; None where that cannot be."""
        if self.refinement is None:
            return None
        unit = replace(frame, array=unit_range(frame.array))
        try:
            refined = self._judged(unit, self.refinement.refine(unit, start))
        except RegistrationError:
            return None
        return replace(refined, frame=frame, volume=self.volume)

    def _judged(self, frame: Frame, refined: Result) -> Result:
        """With a verdict on the refined pose, where the network's own had one."""
        if isinstance(self.search, search.NetworkSearch):
            return self.search.judge_refined(frame, refined)
        return refined


class Refinement:
    """A volume prepared to refine poses in it."""

    def __init__(self, volume: Volume, device: str, options: RefineOptions) -> None:
        self.volume, note = isotropic(volume)
        self.notes = (note,) if note else ()
        self.refiner = Refiner(self.volume.array.to(resolve_device(device)), options)

    def refine(self, frame: Frame, start: Result) -> Result:
        """The result after refinement."""
        begin = time.perf_counter()
        pose, found = refine_in(self.refiner, self.volume, frame, start.pose)
        similarity = float(found.similarity[0])
        if similarity <= -1:
            raise RegistrationError(
                "too little of the frame lies in the volume at the start",
                where="refinement",
                fix="start nearer: from another pose, or with a method that searches",
            )
        time_ms = start.time_ms + (time.perf_counter() - begin) * 1e3
        return replace(
            start,
            pose=pose,
            method=f"{start.method}, refined",
            time_ms=time_ms,
            similarity=similarity,
            iterations=start.iterations + found.iterations,
        )


def _check_size(frame: Frame, volume: Volume) -> None:
    """An error for a frame that the volume could cover only a small part of, at whatever pose."""
    width, height = frame.extent_mm
    *_, second, first = sorted(volume.extent_mm)
    cover = min(first / max(width, height, 1e-9), 1) * min(second / max(min(width, height), 1e-9), 1)
    if cover < _LEAST_COVER:
        room = " x ".join(f"{length:.0f}" for length in volume.extent_mm)
        raise RegistrationError(
            f"the frame measures {width:.0f} x {height:.0f} mm, the volume only {room} mm",
            where="Frame.spacing_mm",
            fix="check the spacing of both; crop a frame that shows much more than the volume",
        )
