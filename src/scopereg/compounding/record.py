"""Record: a compounded volume as files: the voxels, where they come from, and beside them how they were made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scopereg.compounding.compound import Compounded
from scopereg.io.files import write_text
from scopereg.io.read_image import ending_of
from scopereg.io.volumes import write_grey, write_labels

FORMAT = "scopereg-compounded-1"


def beside(path: Path, ending: str) -> Path:
    """A file beside a volume: its name with another ending."""
    return path.with_name(path.name[: len(path.name) - len(ending_of(path.name))] + ending)


def write_compounded(
    made: Compounded, path: Path, provenance: Mapping[str, Any], *, mask: Path | None = None
) -> dict[str, Any]:
    """Write the volume as bytes, its record beside it (.json) and, where asked for, the mask; what the record says.

    Voxels that hold an image are 1 or more, empty ones are 0. In the mask voxels of frames are 1, bridged ones 2.
    """
    record = {"format": FORMAT, "volume": path.name, **made.facts, "provenance": dict(provenance)}
    described = beside(path, ".json")
    described.unlink(missing_ok=True)  # what an earlier run left would be of another volume
    write_grey(made.volume, path, made.filled)
    if mask is not None:
        write_states(made, mask)
        record["mask"] = mask.name
    write_text(described, json.dumps(record, indent=1) + "\n")
    return record


def write_states(made: Compounded, path: Path) -> Path:
    """Where voxels come from: 0 empty, 1 frames, 2 bridged."""
    return write_labels(replace(made.volume, labels=made.states), path)
