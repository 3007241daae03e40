"""Files in, files out. The names below are imported on first use: most modules of this package need PyTorch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "add_poses": "scopereg.io.plus_sequence",
    "read_cine": "scopereg.io.frames",
    "read_frame": "scopereg.io.frames",
    "read_landmarks": "scopereg.io.landmarks",
    "read_pose": "scopereg.io.transforms",
    "read_volume": "scopereg.io.volumes",
    "register_format": "scopereg.io.read_image",
    "write_frame": "scopereg.io.placement",
    "write_landmarks": "scopereg.io.landmarks",
    "write_placed_frame": "scopereg.io.placement",
    "write_plus_sequence": "scopereg.io.plus_sequence",
    "write_pose": "scopereg.io.transforms",
    "write_resliced": "scopereg.io.placement",
    "write_volume": "scopereg.io.volumes",
}

if TYPE_CHECKING:
    from scopereg.io.frames import read_cine as read_cine
    from scopereg.io.frames import read_frame as read_frame
    from scopereg.io.landmarks import read_landmarks as read_landmarks
    from scopereg.io.landmarks import write_landmarks as write_landmarks
    from scopereg.io.placement import write_frame as write_frame
    from scopereg.io.placement import write_placed_frame as write_placed_frame
    from scopereg.io.placement import write_resliced as write_resliced
    from scopereg.io.plus_sequence import add_poses as add_poses
    from scopereg.io.plus_sequence import write_plus_sequence as write_plus_sequence
    from scopereg.io.read_image import register_format as register_format
    from scopereg.io.transforms import read_pose as read_pose
    from scopereg.io.transforms import write_pose as write_pose
    from scopereg.io.volumes import read_volume as read_volume
    from scopereg.io.volumes import write_volume as write_volume

__all__ = [
    "add_poses",
    "read_cine",
    "read_frame",
    "read_landmarks",
    "read_pose",
    "read_volume",
    "register_format",
    "write_frame",
    "write_landmarks",
    "write_placed_frame",
    "write_plus_sequence",
    "write_pose",
    "write_resliced",
    "write_volume",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'scopereg.io' has no attribute {name!r}")
