"""VolumeMask: which voxels of a volume count, by a label map of its grid or placed in its world."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from scopereg.errors import ScopeRegError
from scopereg.images import field_of_view
from scopereg.io.formats import NO_PLACE
from scopereg.io.labels import read_labels
from scopereg.io.overlays import percent
from scopereg.io.read_image import content_sha256, files_of
from scopereg.io.stored import StoredVolume

_WORTH_A_WORD = 0.01  # share of the labelled voxels beyond the volume


def with_mask(volume: StoredVolume, path: Path | str) -> StoredVolume:
    """The volume of which what is labelled counts alone: voxels of NIfTI, NRRD or MHA that are not 0.

    The map may have another grid: it is laid on the volume where both say that they lie. Where one of them does not
    say so, it must have the volume's own.
    """
    path = Path(path)
    labels = read_labels(path)
    place = np.eye(4)
    place[:3, :3] = volume.direction * np.asarray(volume.spacing_mm)
    place[:3, 3] = volume.origin_mm
    if not labels.states_place or any(NO_PLACE in note for note in volume.facts.get("notes", ())):
        labels.check_grid(volume.shape, place)
    laid = labels.on_grid(volume.shape, place)
    mask = torch.from_numpy(laid.voxels > 0)
    seen = field_of_view(volume.array)
    if not bool((mask & seen).any()):
        raise ScopeRegError(
            "nothing of the volume counts: it is black there",
            where=str(path),
            fix="label what frames may show of it; look at both in 3D Slicer",
        )
    share = float((mask & seen).sum() / seen.sum())
    told = f"{percent(share)} of the volume counts" if share < 1 else "nothing of the volume is left out"
    notes = [f"by the volume mask {path.name} {told}"]
    if laid.outside > _WORTH_A_WORD:
        notes.append(f"{laid.outside:.0%} of the mask lies outside of the volume")
    facts = {
        **volume.facts,
        "notes": [*volume.facts.get("notes", ()), *notes],
        "volume_mask": path.name,
        "volume_mask_sha256": content_sha256(files_of(path)),
    }
    return replace(volume, mask=mask, facts=facts)
