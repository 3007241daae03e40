"""Reader of the child for volumes that somebody else brings: NIfTI, NRRD and MetaImage, each whole in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.io.metaimage import is_sequence
from scopereg.io.read_image import read_with_header


def volume(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """Voxels as stored, and what the header says of their places."""
    if is_sequence(path):
        raise ScopeRegError("it is a sequence of frames, not a volume", where=path.name, fix="bring a volume")
    header, array = read_with_header(path, detached=False)
    facts = {
        "spacing_mm": [float(step) for step in header.spacing_mm],
        "origin_mm": [float(place) for place in header.origin_mm],
        "direction": [float(number) for number in header.direction.ravel()],
        "states_spacing": bool(header.states_spacing),
        "notes": list(header.notes),
        "anatomical": bool(header.anatomical),
    }
    return [array], facts
