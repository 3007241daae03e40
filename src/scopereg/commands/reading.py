"""How verbs read frames and volumes: options become arguments of the readers, errors name the options."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from scopereg.commands.flags import renaming
from scopereg.commands.shared import ImageReading, MaskedReading
from scopereg.errors import ScopeRegError
from scopereg.progress import is_hushed

if TYPE_CHECKING:
    from scopereg.images import Volume
    from scopereg.registration.reading import Reading

VOLUME = {"spacing_mm": "voxel_mm", "index": "volume_index"}  # as the reader calls them, as options do


def check_places(verb: str, frames: Path, volume: Path) -> None:
    """An error where frames and volume are swapped; the readers tell what else is wrong with either."""
    if frames.is_file() and volume.is_file() and holds_planes(frames) and _holds_frames(volume):
        raise ScopeRegError(
            "it holds frames, and the volume stands in their place",
            where=str(volume),
            fix=f"swap the two: scopereg {verb} {volume} {frames}",
        )


def holds_planes(path: Path) -> bool:
    """Whether a file is a 3D image by its kind, which may also hold frames."""
    from scopereg.io.metaimage import is_sequence
    from scopereg.io.read_image import ending_of

    return bool(ending_of(path.name)) and not is_sequence(path)


def _holds_frames(path: Path) -> bool:
    """Whether a file is surely no volume: a picture, a video, a sequence of PLUS, a DICOM image of one plane."""
    from scopereg.io.dicom.header import says_dicom
    from scopereg.io.frames import PICTURES, read_cine
    from scopereg.io.metaimage import is_sequence
    from scopereg.io.videos import VIDEOS

    if path.name.lower().endswith((*PICTURES, *VIDEOS)):
        return True
    try:
        return read_cine(path).count == 1 if says_dicom(path) else is_sequence(path)
    except ScopeRegError:
        return False  # who reads it as a volume tells what is wrong with it


def reading_of(volume: Path, options: MaskedReading) -> Reading:
    """How a volume and the frames for it are read; masks that cannot be read are told before anything else is."""
    from scopereg.io.frame_masks import read_frame_masks
    from scopereg.registration.reading import Reading

    if options.frame_mask is not None:
        read_frame_masks(options.frame_mask)
    told = left_open(options)
    told |= {"frame_mask": options.frame_mask, "volume_mask": options.volume_mask, "modality": options.modality}
    return Reading(volume, **told)


def left_open(options: ImageReading) -> dict[str, Any]:
    """The fields of `LeftOpen`."""
    return {
        "volume_spacing_mm": sizes_mm(options.voxel_mm, 3, "--voxel-mm"),
        "volume_index": options.volume_index,
        "series": options.series,
        "spacing_mm": sizes_mm(options.pixel_mm, 2, "--pixel-mm"),
        "region": options.region,
        "calibration": options.calibration,
    }


def sizes_mm(numbers: tuple[float, ...], axes: int, where: str) -> tuple[float, ...] | None:
    """Sizes in mm; None where none are given."""
    good = len(numbers) in (1, axes) and all(math.isfinite(n) and n > 0 for n in numbers)
    if numbers and not good:
        raise ScopeRegError(f"got {' '.join(map(str, numbers))}", where=where, fix=f"pass one or {axes} sizes in mm")
    return numbers or None


def open_volume(reading: Reading) -> Volume:
    """The volume; errors speak of the options for it."""
    with renaming(VOLUME):
        return reading.open_volume()


def print_notes(console: Console, notes: Iterable[str]) -> None:
    for note in () if is_hushed() else notes:
        console.print(f"note    {note}")
