"""NetworkMethod: a network that finds frames in a volume, which is prepared once."""

from __future__ import annotations

import copy
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.geometry.beam import Thickness
from scopereg.image_fields import US
from scopereg.images import Frame, Volume, pose_to_voxels
from scopereg.networks.weights import weights_sha256
from scopereg.registration.calibration import REFINED, Stage, largest_offset
from scopereg.registration.fine import PreparedFine
from scopereg.registration.model import Registrar
from scopereg.registration.prepared import Found, Prepared
from scopereg.registration.result import RegistrationError, Result
from scopereg.registration.search import UNLIKE, StartOptions, Windows, doubted
from scopereg.registration.session import Session
from scopereg.registration.settings import SearchSettings
from scopereg.registration.thickness import averaged, note_of
from scopereg.registration.working_grid import (
    MOST_VOXELS,
    FieldOfView,
    Gridded,
    KnownSizes,
    WorkingGrid,
    frame_on_grid,
    on_grid,
)

if TYPE_CHECKING:
    from scopereg.registration.model import Registrar

Made = TypeVar("Made")

_FOREIGN = (
    "the volume is {}, and networks learnt from ultrasound: in MR of brains they led away from good starts; "
    "the method identity+refine stays near one"
)
_KEPT = 4  # prepared volumes: probes have a few depths that they are switched between
_KEPT_VOXELS = MOST_VOXELS  # of them together, unless one alone has more
_FEW = 4  # windows: decoding more than that from every start takes longer than encoding one there


class NetworkMethod:
    """A network with its weights. With several passes nobody knows what its verdicts are worth: it gives none."""

    def __init__(
        self,
        model: Registrar,
        *,
        passes: int = 1,
        wide: bool = False,
        any_angle: bool = False,
        seconds: float | None = None,
        thickness: Thickness | None = None,
    ) -> None:
        """With `wide` frames are sought in all of the volume; else too, where it is much larger than a window.

        By `any_angle` they may be turned in their plane, and after so many `seconds` a search begins nothing more. Of
        frames with a `thickness` the volume is averaged across its planes.
        """
        if any_angle and model.fine is None:
            raise ScopeRegError(
                f"{model.name} has no features to compare turned frames by",
                where="any_angle=",
                fix="use weights with a fine stage, such as universal, or leave it out",
            )
        self.model = model if passes == 1 else replace(model, calibration=None)
        self.passes, self.wide = passes, wide or any_angle
        self.search, self.thickness = SearchSettings(any_angle=any_angle, seconds=seconds), thickness
        words = (" wide" if self.wide else "") + (" any angle" if any_angle else "")
        self.name = model.name + words + (f" x{passes}" if passes > 1 else "")
        self.facts: dict[str, Any] = {"weights": model.facts, "passes": passes, "device": str(model.device)}
        if model.fine is not None:
            self.facts["fine_sha256"] = weights_sha256(model.fine.state_dict())
        if self.wide:
            self.facts["wide"] = str(StartOptions() if model.fine is None else self.search)
        if self.model.calibration is not None:
            self.facts["calibration"] = self.model.calibration.made_on
        if thickness is not None:
            self.facts["thickness"] = thickness.words
        if model.bases:
            self.facts["adapted"] = {"model": model.name, "from": [Path(base).stem for base in model.bases]}

    def prepare(self, volume: Volume) -> PreparedNetwork:
        return PreparedNetwork(self, volume)


class PreparedNetwork(Prepared):
    """The volume on the grid that the network wants: that of its training, or the working grid of each frame."""

    batch_size, worth_a_process = 8, 16

    def __init__(self, method: NetworkMethod, volume: Volume) -> None:
        self.foreign = "" if volume.modality == US else volume.modality.upper()  # to its calibration
        self.model = replace(method.model, calibration=None) if self.foreign else method.model
        self.passes = method.passes
        self.wide: bool | None = method.wide or None  # None: where the volume is much larger than a window
        self.search, self.thickness = method.search, method.thickness
        self.judges = self.model.calibration is not None
        self.precise = self.model.fine is not None
        self.might_look_wider = not self.wide
        self.may_overlap = self.model.device.type == "cpu"
        self._volumes = PreparedVolumes(self.model, volume, self.thickness)
        words = [_FOREIGN.format(self.foreign)] if self.foreign else []
        if self.model.sizes is None:  # the grid does not depend on the frames: it is made before the first one comes
            prepared = self._volumes.of_field(FieldOfView.of_planes(volume))
            words += [prepared.note, _unlike_training(self.model, prepared.window, bool(self.wide))]
        self.notes = tuple(text for text in words if text)

    def volume_for(self, frame: Frame) -> PreparedVolume:
        """The volume as it is prepared for a frame; frames of one field of view share it."""
        return self._volumes.of(frame)

    def is_ready(self, frame: Frame) -> bool:
        ready = self._volumes.there_for(frame)
        return ready is not None and ready.is_ready(everywhere=self._looks_everywhere(ready))

    def get_ready(self, frame: Frame) -> None:
        ready = self.volume_for(frame)
        ready.get_ready(everywhere=self._looks_everywhere(ready))

    def _looks_everywhere(self, ready: PreparedVolume) -> bool:
        return bool(self.wide) or (self.wide is None and ready.reaches_farther)

    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        found: dict[int, Found] = {}
        prepared = [self.volume_for(frame) for frame in frames]
        if self.wide and any(start is not None for start in starts):
            raise ScopeRegError("it looks all over the volume", where="wide=", fix="leave out wide=, or the start")
        unled = [row for row, start in enumerate(starts) if start is None]
        for ready in dict.fromkeys(prepared[row] for row in unled):
            rows = [row for row in unled if prepared[row] is ready]
            found |= zip(rows, self._from_the_middle(ready, [frames[row] for row in rows]), strict=True)
        led = {row: start for row, start in enumerate(starts) if start is not None}
        found |= {row: self._from_a_start(prepared[row], frames[row], start) for row, start in led.items()}
        return [self._with_notes(found[n], frame, prepared[n], led=n in led) for n, frame in enumerate(frames)]

    def can_judge(self, stage: Stage) -> bool:
        return self.model.calibration is not None and self.model.calibration.knows(stage)

    def judge_refined(self, frame: Frame, result: Result, stage: Stage = REFINED) -> Result:
        """A result whose pose was refined, with a verdict on that where the network's own had one."""
        ready = self.volume_for(frame)
        if result.seen_from is None:
            judged = ready.session.judge_refined(frame, result, stage)
        else:
            session = ready.windows.session_from(result.seen_from, frame)
            judged = ready.windows.limited(session.judge_refined(frame, result, stage), frame)
        return self._silent(doubted(judged))

    def _silent(self, result: Result) -> Result:
        """Without a verdict where the volume is of another modality than those that the calibration was made on."""
        if not self.foreign:
            return result
        return result.without_verdict(f"errors are known in volumes of ultrasound, not of {self.foreign}")

    def narrow(self) -> PreparedNetwork:
        same = copy.copy(self)
        same.wide, same.might_look_wider = False, not self.wide
        return same

    def wider(self) -> PreparedNetwork | None:
        if self.wide:
            return None
        same = copy.copy(self)
        same.wide, same.might_look_wider = True, False
        return same

    def reaches(self, frame: Frame, pose: Pose) -> bool:
        """Whether a frame there lies within the offsets of the training, so that it is found from the middle."""
        sizes, ready = self.model.sizes, self.volume_for(frame)
        if sizes is not None:
            return _offset(ready, frame, pose) <= sizes.magnitude_voxels
        trained = self.model.facts.get("settings", {}).get("magnitude")
        if not isinstance(trained, int | float) or not ready.windows.covers:
            return ready.windows.covers
        return _offset(ready, frame, pose) <= trained

    def _from_the_middle(self, ready: PreparedVolume, frames: Sequence[Frame]) -> Sequence[Found]:
        """Around it, or all over the volume."""
        if self._looks_everywhere(ready):
            # Then it may look from anywhere at what is encoded.
            few = ready.windows.count <= _FEW and not self.search.any_angle
            encoded = self.model.decodes_again and ready.whole and few
            return [_widely(ready, frame, encoded, self.search) for frame in frames]
        found = ready.session.register_all(frames)
        # Where the network knows no volumes as large as this one it looks again at the part that it should know.
        again = self.passes - 1 + (ready.whole and not ready.windows.covers)
        return [_seen_again(ready, frame, result, again) for frame, result in zip(frames, found, strict=True)]

    def _from_a_start(self, ready: PreparedVolume, frame: Frame, start: Pose) -> Found:
        """In the volume as seen from there."""
        try:
            return _seen_again(ready, frame, ready.windows.register(frame, start), self.passes - 1)
        except RegistrationError as error:
            return error.kept()

    def _with_notes(self, found: Found, frame: Frame, ready: PreparedVolume, *, led: bool) -> Found:
        if isinstance(found, ScopeRegError):
            return found
        notes = list(_cut_note(frame, ready.window))
        if self.model.sizes is not None:
            everywhere = led or bool(self.wide) or math.isfinite(found.stands_out)
            notes = [text for text in (ready.note, _part_note(self.model.sizes, ready, everywhere)) if text]
        if self.thickness is not None:
            notes.append(note_of(self.thickness, frame))
        known = self.model.calibration
        told = replace(found, notes=(*found.notes, *notes), calibrated_on="" if known is None else known.words)
        return self._silent(told)


def network_of(prepared: Prepared) -> PreparedNetwork | None:
    """The network that a method begins with, if it does."""
    while not isinstance(prepared, PreparedNetwork):
        before = getattr(prepared, "before", None)
        if not isinstance(before, Prepared):
            return None
        prepared = before
    return prepared


def _seen_again(ready: PreparedVolume, frame: Frame, result: Result, times: int) -> Result:
    """The frame sought again in the volume as seen from where it was found, as long as there is something."""
    for _ in range(times):
        try:
            again = ready.windows.register(frame, result.pose)
        except RegistrationError:  # the volume has nothing there
            return result
        result = replace(again, time_ms=result.time_ms + again.time_ms)
    return result


def _widely(ready: PreparedVolume, frame: Frame, encoded: bool, settings: SearchSettings) -> Found:
    """The frame as the network sees it from the middle where that is ok; else sought in all of the volume."""
    try:
        near = ready.session.register(frame) if ready.model.calibration is not None else None
        if near is not None and near.ok:
            return near
        if encoded:
            return ready.session.search(frame, settings, ready.windows.room_voxels)
        return ready.windows.search(frame, settings)
    except RegistrationError as error:
        return error.kept()


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


def _cut_note(frame: Frame, volume: Volume) -> tuple[str, ...]:
    """A word where the network sees only the middle of a frame."""
    step = volume.isotropic_spacing_mm
    fits = all(own <= room + step for own, room in zip(frame.extent_mm, volume.extent_mm[:2], strict=True))
    own, room = (" x ".join(f"{n:.0f}" for n in lengths) for lengths in (frame.extent_mm, volume.extent_mm[:2]))
    return (
        () if fits else (f"the frame, {own} mm, is larger than a plane of the volume, {room} mm: its middle is used",)
    )


class PreparedVolume:
    """A volume for frames of one field of view: a session of its middle or of all of it, and windows elsewhere.

    What is prepared for a session, and for a search of all of the volume, is made when it is first needed.
    """

    def __init__(self, model: Registrar, gridded: Gridded) -> None:
        self.model, self.volume, self.note = model, gridded.volume, gridded.note
        self.window = gridded.first_look
        self._session = _Once(partial(model.prepare, self.window))
        self._fine = _Once(partial(_fine_of, model, self.volume, self._session if self.whole else None))
        shape = None if gridded.window is None else self.window.shape
        self.windows: Windows = Windows(model, self.volume, shape=shape, fine=self._fine)

    @property
    def whole(self) -> bool:
        """Whether the session is of all of the volume."""
        return self.window is self.volume

    @property
    def reaches_farther(self) -> bool:
        """Whether frames may well lie farther from the middle than the network looks, and it can tell where."""
        known = self.model.sizes
        return (
            known is not None and self.model.fine is not None and max(self.windows.room_voxels) > known.magnitude_voxels
        )

    @property
    def session(self) -> Session:
        return self._session()

    @property
    def fine(self) -> PreparedFine | None:
        """All of the volume as the fine stage prepares it; None where the network has none."""
        return self._fine()

    def is_ready(self, *, everywhere: bool) -> bool:
        """Whether what locates a frame, `everywhere` or about the middle, is made already."""
        return self._session.made and (self._fine.made or not everywhere)

    def get_ready(self, *, everywhere: bool) -> None:
        self._session()
        if everywhere:
            self._fine()


class _Once(Generic[Made]):
    """What is made when it is first asked for, by whichever thread; it knows nobody who asks."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make, self._lock, self._made = make, threading.Lock(), list[Made]()

    def __call__(self) -> Made:
        with self._lock:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]

    @property
    def made(self) -> bool:
        """Whether it is there; nobody waits for it."""
        return bool(self._made)


def _fine_of(model: Registrar, volume: Volume, session: Callable[[], Session] | None) -> PreparedFine | None:
    """All of a volume as the fine stage prepares it, or did so for a session of it; None where there is no stage."""
    if model.fine is None or session is not None:
        return None if session is None else session().fine
    voxels = volume.for_registration().array.to(model.device)
    return PreparedFine(model.fine, voxels, section=volume.section_voxels)


class PreparedVolumes:
    """One volume, prepared for each field of view when the first frame of it comes; the latest few are kept.

    A network of one voxel size needs the volume prepared only once. Threads may share it: while one prepares the volume
    for a new field of view, others go on with those that are there.
    """

    def __init__(self, model: Registrar, volume: Volume, thickness: Thickness | None = None) -> None:
        self._model, self._volume, self._thickness = model, volume, thickness
        self._made: OrderedDict[WorkingGrid | None, _Once[PreparedVolume]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, frame: Frame) -> PreparedVolume:
        """The volume for a frame."""
        return self.of_field(FieldOfView.of(frame))

    def of_field(self, field: FieldOfView) -> PreparedVolume:
        """The volume for frames of a field of view."""
        key = self._key(field)
        with self._lock:
            if key not in self._made:
                self._made[key] = _Once(partial(_prepared, self._model, self._volume, field, self._thickness))
            once = self._made[key]
            self._made.move_to_end(key)
        made = once()  # a thread that comes second waits for what the first prepares
        with self._lock:
            self._forget()
        return made

    def there_for(self, frame: Frame) -> PreparedVolume | None:
        """The same, if it is there already."""
        key = self._key(FieldOfView.of(frame))
        with self._lock:
            once = self._made.get(key)
        return once() if once is not None and once.made else None

    def _forget(self) -> None:
        """What nobody asked for lately. Whoever still uses it has it; then its memory is given back."""
        while len(self._made) > 1:
            voxels = sum(once().volume.array.numel() for once in self._made.values() if once.made)
            if len(self._made) <= _KEPT and voxels <= _KEPT_VOXELS:
                return
            self._made.popitem(last=False)

    def _key(self, field: FieldOfView) -> WorkingGrid | None:
        sizes = self._model.sizes
        return None if sizes is None else WorkingGrid.choose(field, self._volume, sizes)


def _prepared(model: Registrar, volume: Volume, field: FieldOfView, thickness: Thickness | None) -> PreparedVolume:
    gridded = on_grid(model, volume, field)
    if thickness is not None:
        gridded = gridded._replace(volume=averaged(gridded.volume, thickness, field.height_mm))
    return PreparedVolume(model, gridded)
