"""Search: finding frames in a volume without a hint, or from a start pose; the volume is prepared once."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import SimpleITK as sitk
import torch

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.geometry import Pose
from scopereg.images import ISOTROPY_TOLERANCE, Frame, Volume, pose_to_voxels
from scopereg.registration import model as models
from scopereg.registration.calibration import largest_offset
from scopereg.registration.classical import PEERS, centre_pose
from scopereg.registration.classical.placement import place
from scopereg.registration.classical.simple_itk import correlation_at
from scopereg.registration.model import Registrar, frame_on_grid
from scopereg.registration.result import RegistrationError, Result
from scopereg.registration.session import Session
from scopereg.registration.windows import UNLIKE, Windows

Found = Result | ScopeRegError  # of one frame: the others of a batch may well be found
START = "start"
_SAME = {"centre": START}
_MOST_VOXELS = 2**24  # of a volume that is made isotropic: refinement keeps 15 numbers for each
_FEW = 4  # windows: decoding more than that from every start takes longer than encoding one there
_MOST_NETWORK_VOXELS = 2**22  # eight times those of the models of the package


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
            f"{method} begins where it is told to", where="--wide", fix="use a network, or leave --wide out"
        )
    if method == START:
        return StartSearch(volume)
    if method in PEERS:
        return ClassicalSearch(method, volume)
    if method in models.names() or Path(method).suffix == ".safetensors":
        return NetworkSearch(models.load(method, device), volume, agreement=agreement, wide=wide)
    raise ScopeRegError(
        f"unknown method {method!r}{did_you_mean(method, names())}",
        where="--method",
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
    """A network, in the volume at the spacing that the network was trained with."""

    together, worth = 8, 16

    def __init__(self, model: Registrar, volume: Volume, *, agreement: bool = False, wide: bool = False) -> None:
        if wide and agreement:
            raise ScopeRegError("it is asked for with --agreement", where="--wide", fix="leave one of them out")
        self.model, self.wide = model, wide
        self.volume, note = as_trained(model, volume)
        self.window = window_of(model, self.volume)
        words = (note, _unlike_training(model, self.window, wide), _calibrated_on(model))
        self.notes = tuple(text for text in words if text)
        self.session = model.prepare(self.window, agreement=agreement)
        encoded = self.session.prepared if self._whole else None
        self.windows = Windows(model, self.volume, agreement=agreement, encoded=encoded)

    def find(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        found: dict[int, Found] = {}
        unled = [row for row, start in enumerate(starts) if start is None]
        if unled:
            found |= zip(unled, self._from_the_middle([frames[row] for row in unled]), strict=True)
        led = {row: start for row, start in enumerate(starts) if start is not None}
        if led and self.wide:
            raise ScopeRegError(
                "it looks around the middle of the volume", where="--wide", fix="leave out --wide, or the start"
            )
        found |= {row: self._from_a_start(frames[row], start) for row, start in led.items()}
        return [self._with_note(found[row], frame) for row, frame in enumerate(frames)]

    @property
    def _whole(self) -> bool:
        """Whether the session is of all of the volume."""
        return self.window is self.volume

    @cached_property
    def _session_of_all(self) -> Session:
        return self.session if self._whole else self.model.prepare(self.volume, recorded=False)

    def judge_refined(self, frame: Frame, result: Result) -> Result:
        """A result whose pose was refined, with a verdict on that where the network's own had one."""
        session = self.session if result.seen_from is None else self._session_of_all
        return session.judge_refined(frame, result)

    def narrow(self) -> NetworkSearch:
        """The same, without a wide search."""
        same = copy.copy(self)
        same.wide = False
        return same

    def reaches(self, frame: Frame, pose: Pose) -> bool:
        """Whether a frame there lies within the offsets of the training, so that it is found from the middle."""
        trained = self.model.facts.get("settings", {}).get("magnitude")
        if not isinstance(trained, int | float) or not self.windows.covers:
            return self.windows.covers
        return largest_offset(*pose_to_voxels(pose, frame_on_grid(frame, self.window), self.window)) <= trained

    def _from_the_middle(self, frames: Sequence[Frame]) -> Sequence[Found]:
        if self.wide:
            # Then it may look from anywhere at what is encoded.
            encoded = self.model.looks_again and self._whole and self.windows.count <= _FEW
            return [self._widely(frame, encoded) for frame in frames]
        found = self.session.register_all(frames)
        if self.windows.covers or not self._whole:
            return found
        # The network knows no volumes as large as this one: it looks again at the part that it should know.
        return [self._seen_again(frame, result) for frame, result in zip(frames, found, strict=True)]

    def _seen_again(self, frame: Frame, result: Result) -> Result:
        try:
            return self.windows.register(frame, result.pose)
        except RegistrationError:  # the volume has nothing there
            return result

    def _widely(self, frame: Frame, encoded: bool) -> Found:
        try:
            if encoded:
                return self.session.search(frame, room_voxels=self.windows.room_voxels)
            return self.windows.search(frame)
        except RegistrationError as error:
            return error

    def _from_a_start(self, frame: Frame, start: Pose) -> Found:
        """In the volume as seen from there."""
        try:
            return self.windows.register(frame, start)
        except RegistrationError as error:
            return error

    def _with_note(self, found: Found, frame: Frame) -> Found:
        if isinstance(found, ScopeRegError):
            return found
        return replace(found, notes=(*found.notes, *_cut_note(frame, self.window)))


def as_trained(model: Registrar, volume: Volume) -> tuple[Volume, str]:
    """The volume as the network wants it: isotropic, with voxels as in its training; and what was done, in words."""
    trained = model.facts.get("spacing_mm")
    spacing = float(trained) if isinstance(trained, int | float) and trained > 0 else None
    return isotropic(volume, spacing, most=_MOST_NETWORK_VOXELS, why="as in training" if spacing else "")


def window_of(model: Registrar, volume: Volume) -> Volume:
    """The middle of a volume, for a network that was adapted to windows of it; others are given all of it."""
    shape = model.facts.get("window")
    if not shape or all(n <= most for n, most in zip(volume.shape, shape, strict=True)):
        return volume
    starts = [max(0, n - most) // 2 for n, most in zip(volume.shape, shape, strict=True)]
    rows = [slice(start, start + most) for start, most in zip(starts, shape, strict=True)]
    moved = volume.direction @ (np.array(starts[::-1]) * volume.spacing_mm)
    first = np.asarray(volume.origin_mm) + moved
    return Volume(
        volume.array[rows[0], rows[1], rows[2]],
        volume.spacing_mm,
        first.tolist(),
        volume.direction,
        frame_of_reference=volume.frame_of_reference,
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
    advice = "--wide looks all over it" if large and not wide else "expect less of it"
    return f"the network was trained on volumes of {then} voxels, this one has {now}: {advice}"


def _calibrated_on(model: Registrar) -> str:
    """A word where verdicts rest on phantoms: on real frames they promise too much."""
    if model.calibration is None or "phantom_seeds" not in model.calibration.made_on:
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


def isotropic(
    volume: Volume, spacing_mm: float | None = None, *, most: int = _MOST_VOXELS, why: str = ""
) -> tuple[Volume, str]:
    """The volume at one spacing, by default its finest, with at most so many voxels; and what was done, in words."""
    step = min(volume.spacing_mm) if spacing_mm is None else spacing_mm
    field_mm3 = float(torch.tensor([max(length, step) for length in volume.extent_mm]).double().prod())
    coarsest = (field_mm3 / most) ** (1 / 3)
    if step < coarsest:
        step, why = coarsest, f"the finest that {most / 1e6:.0f} million voxels allow"
    if max(abs(own - step) for own in volume.spacing_mm) <= ISOTROPY_TOLERANCE * step:
        return volume, ""
    own = " x ".join(f"{size:g}" for size in volume.spacing_mm)
    reason = f", {why}" if why else ""
    return volume.resampled(step), f"the volume's voxels of {own} mm are resampled to {step:.4g} mm{reason}"
