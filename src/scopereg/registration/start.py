"""Start: where the search for a frame begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.io.stored import StoredFrame
from scopereg.io.transforms import read_pose

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
