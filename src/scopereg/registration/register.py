"""Register: one frame in one volume, from images or files; and Start, where the search for a frame begins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.io.frames import read_frame
from scopereg.io.stored import StoredFrame
from scopereg.io.transforms import read_pose
from scopereg.io.volumes import read_volume
from scopereg.registration.diagnosis import with_hints
from scopereg.registration.locator import Locator
from scopereg.registration.method import parse
from scopereg.registration.reading import reader_notes
from scopereg.registration.result import Result
from scopereg.registration.settings import DEFAULT

TRACKER = "tracker"


@dataclass(frozen=True, eq=False)
class Start:
    """One pose for every frame, the place that each frame's own file gives it, or none: the middle of the volume."""

    pose: Pose | None = None  # ImageToVolume
    tracked: bool = False
    world_to_volume: Pose | None = None  # from the tracker's world, where that is not the volume's

    @classmethod
    def read(cls, source: Pose | Path | str | None, world: Pose | Path | str | None = None) -> Start:
        """From a pose or its file, `tracker`, or None; `world` is a pose from the tracker's world to the volume."""
        if source is None or isinstance(source, Pose):
            _refuse_world(world)
            return cls(source)
        if str(source) != TRACKER:
            _refuse_world(world)
            return cls(read_pose(source))
        return cls(None, True, world if world is None or isinstance(world, Pose) else read_pose(world))

    def of(self, frame: Frame, volume: Volume) -> Pose | None:
        """The start pose of a frame; an error where its file should give it one and does not."""
        if not self.tracked:
            return None if self.pose is None else _checked(self.pose, frame, volume)
        own = frame.pose if isinstance(frame, StoredFrame) else None
        if own is None:
            fault = frame.facts.get("pose_fault") if isinstance(frame, StoredFrame) else None
            raise ScopeRegError(
                "no start: its file does not place the frame" + (f" ({fault})" if fault else ""),
                where=f"start={TRACKER}",
                fix="leave start= out to search from the middle of the volume, or pass a pose file",
            )
        moved = own if self.world_to_volume is None else _renamed(self.world_to_volume, own.target) @ own
        return Pose(moved.rotation, moved.translation_mm, frame.frame_of_reference, volume.frame_of_reference)


def _renamed(pose: Pose, source: str) -> Pose:
    """Files of other programs do not name what they join."""
    return Pose(pose.rotation, pose.translation_mm, source, pose.target)


def _checked(pose: Pose, frame: Frame, volume: Volume) -> Pose:
    wanted = f"{frame.frame_of_reference}To{volume.frame_of_reference}"
    if pose.name != wanted:
        raise ScopeRegError(f"the pose is {pose.name}, not {wanted}", where="start=", fix=f"pass a pose {wanted}")
    return pose


def _refuse_world(world: object) -> None:
    if world is not None:
        raise ScopeRegError(
            "only the places that a tracker gives are in another world", where="world=", fix=f"add start={TRACKER}"
        )


def register(
    frame: Frame | Path | str,
    volume: Volume | Path | str,
    *,
    method: str = DEFAULT,
    start: Pose | Path | str | None = None,
    refine: bool | None = None,
    fallback: bool | None = None,
    seconds: float | None = None,
    wide: bool = False,
    any_angle: bool = False,
    deformable: bool = False,
    device: str = "auto",
) -> Result:
    """Find `ImageToVolume` of a frame in a volume; either may be a file. `.save("pose.tfm")` writes what it gives.

    In a volume much larger than what a network looks at, the frame is sought in all of it; with `wide` in any other
    too, and with `any_angle` it may be turned in its plane by any angle. What a network finds is refined
    (`refine=False` leaves it) and, while it is not ok, sought in other ways: a wide search, then mutual information,
    each seen again by the network and refined. That takes some seconds to a minute; `fallback=False` leaves it out, and
    after `seconds` nothing new is begun. `notes` tell what was tried. With `deformable` the `deformation` of the result
    is what the rigid pose leaves, see docs/deformable.md.

    `method` is a model of the package (`registration.model.names()`), the path of weights (.safetensors), simpleitk-mi,
    simpleitk-ncc, elastix, or identity: no search. These last are refined where `refine=True` asks for it. A name with
    `+` says itself what follows, such as `universal+refine+fallback`, see `registration.method`. `start` is a pose, a
    file with one, or "tracker", the place that the frame's own file gives it; none is needed. For many
    frames in one volume make a `Locator`, which does no more than it is told.
    """
    frame = frame if isinstance(frame, Frame) else read_frame(_file(frame, "frame", "Frame(array, spacing_mm)"))
    volume = volume if isinstance(volume, Volume) else read_volume(_file(volume, "volume", "Volume(array, spacing_mm)"))
    name = str(parse(str(method)).persistent(refine=refine, fallback=fallback))
    locator = Locator(
        volume, name, wide=wide, seconds=seconds, any_angle=any_angle, deformable=deformable, device=device
    )
    begin = Start.read(start).of(frame, volume)
    result = with_hints(locator, frame, locator.locate(frame, begin), begin)
    notes = (*reader_notes(frame), *reader_notes(volume), *locator.notes, *result.notes)
    return replace(result, notes=notes)


def _file(image: object, name: str, made: str) -> Path:
    """The name of a file; an error for what is neither that nor an image, such as an array without its spacing."""
    if isinstance(image, str | Path):
        return Path(image)
    raise ScopeRegError(
        f"got {type(image).__name__}", where=f"register({name})", fix=f"pass the name of a file, or scopereg.{made}"
    )
