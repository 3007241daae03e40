"""Overlays: labels that lie over a volume, as a page gets them beside its voxels."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scopereg.images import Volume
from scopereg.io.formats import NO_PLACE
from scopereg.io.labels import LabelMap
from scopereg.io.stored import StoredVolume
from scopereg.viewer.voxels import Overlay, Voxels, world_matrix

_FAST = 1  # of gzip
_WORTH_A_WORD = 0.01  # share of labelled voxels beyond the volume


@dataclass(frozen=True)
class Overlays:
    """What was made in the space of one volume, to be shown over it."""

    labels: LabelMap | None = None

    def over(self, volume: Volume, voxels: Voxels) -> Voxels:
        """A volume as a page gets it, with these over it; an error where they cannot be of that volume."""
        if self.labels is None:
            return voxels
        return replace(voxels, overlay=_overlay(self.labels, volume, voxels))


NOTHING_OVER = Overlays()


def notes_of(voxels: Voxels) -> Sequence[str]:
    """What is to be said of the overlays of a volume."""
    return () if voxels.overlay is None else voxels.overlay.notes


def same_space(a: Volume, b: Volume) -> bool:
    """Whether what lies over one volume lies over the other: they are the same file, or at least the same grid."""
    places = [image.path if isinstance(image, StoredVolume) else None for image in (a, b)]
    return a.shape == b.shape and places[0] == places[1] and np.allclose(world_matrix(a), world_matrix(b))


def _overlay(labels: LabelMap, volume: Volume, voxels: Voxels) -> Overlay:
    facts: list[str] = volume.facts.get("notes", []) if isinstance(volume, StoredVolume) else []
    if not labels.states_place or any(NO_PLACE in note for note in facts):
        labels.check_grid(volume.shape, world_matrix(volume))
    laid = labels.on_grid(voxels.shape[::-1], voxels.index_to_world)
    shares = np.bincount(laid.voxels.ravel(), minlength=len(labels.labels) + 1)[1:]
    listed: list[dict[str, Any]] = [
        {"name": label.name, "value": label.value, "colour": "#" + bytes(label.colour).hex(), "voxels": int(count)}
        for label, count in zip(labels.labels, shares, strict=True)
    ]
    notes = []
    if laid.outside > _WORTH_A_WORD:
        notes.append(f"{laid.outside:.0%} of the labelled voxels of {labels.path.name} lie outside of the volume")
    return Overlay(gzip.compress(laid.voxels.tobytes(), _FAST), labels.path.name, tuple(listed), tuple(notes))
