"""Search: finding frames in a volume without a hint, or from a start pose; the volume is prepared once."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import SimpleITK as sitk

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, pose_to_voxels
from scopereg.registration import model as models
from scopereg.registration.calibration import largest_offset
from scopereg.registration.classical import PEERS, centre_pose
from scopereg.registration.classical.placement import place
from scopereg.registration.classical.simple_itk import correlation_at
from scopereg.registration.model import Registrar
from scopereg.registration.prepared_volume import PreparedVolume, PreparedVolumes
from scopereg.registration.result import RegistrationError, Result
from scopereg.registration.windows import UNLIKE
from scopereg.registration.working_grid import FieldOfView, KnownSizes, frame_on_grid

Found = Result | ScopeRegError  # of one frame: the others of a batch may well be found
START = "start"
_SAME = {"centre": START}
_FEW = 4  # windows: decoding more than that from every start takes longer than encoding one there


class Search(Protocol):
    """A method that finds frames in the volume that it was made for."""

    together: int  # frames that are best found in one call
    worth: int  # frames that it takes to make up for the start of another process
    notes: tuple[str, ...]  # what was done to the volume

    def find(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]: ...


def names() -> tuple[str, ...]:
    """Methods that need no weights of one's own."""
    return (*models.names(), *PEERS, START)


def create(
    method: str | Registrar, volume: Volume, device: str = "auto", *, agreement: bool = False, wide: bool = False
) -> Search:
    """A search by the name of its method, or by a network or the path of its weights (.safetensors).

    `agreement` and `wide` are for networks; the latter looks from several starts, see `registration.wide`.
    """
    if isinstance(method, Registrar):
        return NetworkSearch(method, volume, agreement=agreement, wide=wide)
    method = _SAME.get(method, method)
    if wide and method in (START, *PEERS):
        raise ScopeRegError(
            f"{method} begins where it is told to", where="wide=", fix="use a network, or leave wide= out"
        )
    if method == START:
        return StartSearch(volume)
    if method in PEERS:
        return ClassicalSearch(method, volume)
    if method in models.names() or Path(method).suffix == ".safetensors":
        return NetworkSearch(models.load(method, device), volume, agreement=agreement, wide=wide)
    raise ScopeRegError(
        f"unknown method {method!r}{did_you_mean(method, names())}",
        where="method=",
        fix=f"use {', '.join(names())}, or the path of a .safetensors file",
    )


class StartSearch:
    """No search: the start pose, by default the frame on the middle plane of the volume."""

    together, worth = 4, 32
    notes: tuple[str, ...] = ()

    def __init__(self, volume: Volume) -> None:
        self.volume = volume

    def find(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        return [self._place(frame, start) for frame, start in zip(frames, starts, strict=True)]

    def _place(self, frame: Frame, start: Pose | None) -> Found:
        begin = time.perf_counter()
        pose = start or centre_pose(frame, self.volume)
        similarity = correlation_at(place(frame, self.volume, pose, None, START), sitk.Transform(3, sitk.sitkIdentity))
        return Result(pose, START, (time.perf_counter() - begin) * 1e3, similarity)


class ClassicalSearch:
    """A classical peer, in the volume as it is."""

    together, worth = 2, 8
    notes: tuple[str, ...] = ()

    def __init__(self, name: str, volume: Volume) -> None:
        self.peer, self.volume = PEERS[name], volume
        self.peer.require()
        self.peer.warm_up()

    def find(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        return [self._climb(frame, start) for frame, start in zip(frames, starts, strict=True)]

    def _climb(self, frame: Frame, start: Pose | None) -> Found:
        try:
            return self.peer.register(frame, self.volume, start, self.peer.options)
        except ScopeRegError as error:
            return error


class NetworkSearch:
    """A network, in the volume on the grid that it wants: that of its training, or the working grid of each frame."""

    together, worth = 8, 16

    def __init__(self, model: Registrar, volume: Volume, *, agreement: bool = False, wide: bool = False) -> None:
        if wide and agreement:
            raise ScopeRegError("it is asked for with agreement=", where="wide=", fix="leave one of them out")
        self.model, self.wide = model, wide
        self._volumes = PreparedVolumes(model, volume, agreement=agreement)
        words = [_calibrated_on(model)]
        if model.sizes is None:  # then the grid does not depend on the frames: it is made before the first one comes
            prepared = self._volumes.of_field(FieldOfView.of_planes(volume))
            words = [prepared.note, _unlike_training(model, prepared.window, wide), *words]
        self.notes = tuple(text for text in words if text)

    def prepared(self, frame: Frame) -> PreparedVolume:
        """The volume as it is prepared for a frame; frames of one field of view share it."""
        return self._volumes.of(frame)

    def find(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        found: dict[int, Found] = {}
        prepared = [self.prepared(frame) for frame in frames]
        if self.wide and any(start is not None for start in starts):
            raise ScopeRegError(
                "it looks around the middle of the volume", where="wide=", fix="leave out wide=, or the start"
            )
        unled = [row for row, start in enumerate(starts) if start is None]
        for ready in dict.fromkeys(prepared[row] for row in unled):
            rows = [row for row in unled if prepared[row] is ready]
            found |= zip(rows, self._from_the_middle(ready, [frames[row] for row in rows]), strict=True)
        led = {row: start for row, start in enumerate(starts) if start is not None}
        found |= {row: _from_a_start(prepared[row], frames[row], start) for row, start in led.items()}
        return [self._with_notes(found[n], frame, prepared[n], led=n in led) for n, frame in enumerate(frames)]

    def judge_refined(self, frame: Frame, result: Result) -> Result:
        """A result whose pose was refined, with a verdict on that where the network's own had one."""
        ready = self.prepared(frame)
        session = ready.session if result.seen_from is None else ready.session_of_all
        return session.judge_refined(frame, result)

    def narrow(self) -> NetworkSearch:
        """The same, without a wide search."""
        same = copy.copy(self)
        same.wide = False
        return same

    def reaches(self, frame: Frame, pose: Pose) -> bool:
        """Whether a frame there lies within the offsets of the training, so that it is found from the middle."""
        sizes, ready = self.model.sizes, self.prepared(frame)
        if sizes is not None:
            return _offset(ready, frame, pose) <= sizes.magnitude_voxels
        trained = self.model.facts.get("settings", {}).get("magnitude")
        if not isinstance(trained, int | float) or not ready.windows.covers:
            return ready.windows.covers
        return _offset(ready, frame, pose) <= trained

    def _from_the_middle(self, ready: PreparedVolume, frames: Sequence[Frame]) -> Sequence[Found]:
        if self.wide:
            # Then it may look from anywhere at what is encoded.
            encoded = self.model.looks_again and ready.whole and ready.windows.count <= _FEW
            return [_widely(ready, frame, encoded) for frame in frames]
        found = ready.session.register_all(frames)
        if ready.windows.covers or not ready.whole:
            return found
        # The network knows no volumes as large as this one: it looks again at the part that it should know.
        return [_seen_again(ready, frame, result) for frame, result in zip(frames, found, strict=True)]

    def _with_notes(self, found: Found, frame: Frame, ready: PreparedVolume, *, led: bool) -> Found:
        if isinstance(found, ScopeRegError):
            return found
        notes = list(_cut_note(frame, ready.window))
        if self.model.sizes is not None:
            notes = [text for text in (ready.note, _part_note(self.model.sizes, ready, self.wide or led)) if text]
        return replace(found, notes=(*found.notes, *notes))


def _seen_again(ready: PreparedVolume, frame: Frame, result: Result) -> Result:
    try:
        return ready.windows.register(frame, result.pose)
    except RegistrationError:  # the volume has nothing there
        return result


def _widely(ready: PreparedVolume, frame: Frame, encoded: bool) -> Found:
    try:
        if encoded:
            return ready.session.search(frame, room_voxels=ready.windows.room_voxels)
        return ready.windows.search(frame)
    except RegistrationError as error:
        return error


def _from_a_start(ready: PreparedVolume, frame: Frame, start: Pose) -> Found:
    """In the volume as seen from there."""
    try:
        return ready.windows.register(frame, start)
    except RegistrationError as error:
        return error


def _offset(ready: PreparedVolume, frame: Frame, pose: Pose) -> float:
    """Of a frame at a pose from the middle of the volume, in voxels or degrees, whichever is more."""
    return largest_offset(*pose_to_voxels(pose, frame_on_grid(frame, ready.window), ready.window))


def _part_note(sizes: KnownSizes, ready: PreparedVolume, elsewhere: bool) -> str:
    """A word where frames may well lie farther off than the network looks, unless it looks elsewhere anyway."""
    if elsewhere or max(ready.windows.room_voxels) <= sizes.magnitude_voxels:
        return ""
    reach_mm = sizes.magnitude_voxels * ready.volume.isotropic_spacing_mm
    return (
        f"the network looks {reach_mm:.0f} mm and {sizes.magnitude_voxels:g} degrees around the middle of the volume: "
        "a start pose tells another place, a wide search looks all over it"
    )


def _unlike_training(model: Registrar, volume: Volume, wide: bool) -> str:
    """A word where the volume is not what the network knows, and nothing is done about it."""
    trained = model.facts.get("shape")
    if not trained:
        return ""
    ratios = [now / then for now, then in zip(volume.shape, trained, strict=True)]
    large, small = max(ratios) > UNLIKE, min(ratios) < 1 / UNLIKE
    if not small and (wide or not large):
        return ""
    now, then = (" x ".join(map(str, shape)) for shape in (volume.shape, trained))
    advice = "a wide search looks all over it" if large and not wide else "expect less of it"
    return f"the network was trained on volumes of {then} voxels, this one has {now}: {advice}"


def _calibrated_on(model: Registrar) -> str:
    """A word where verdicts rest on phantoms: on real frames they promise too much."""
    if model.calibration is None or not model.calibration.synthetic:
        return ""
    return "errors to expect were learnt on phantoms, real ones may be larger: see scopereg calibrate"


def _cut_note(frame: Frame, volume: Volume) -> tuple[str, ...]:
    """A word where the network sees only the middle of a frame."""
    step = volume.isotropic_spacing_mm
    fits = all(own <= room + step for own, room in zip(frame.extent_mm, volume.extent_mm[:2], strict=True))
    own, room = (" x ".join(f"{n:.0f}" for n in lengths) for lengths in (frame.extent_mm, volume.extent_mm[:2]))
    return (
        () if fits else (f"the frame, {own} mm, is larger than a plane of the volume, {room} mm: its middle is used",)
    )
