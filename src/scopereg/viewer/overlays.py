"""Overlays: labels and landmarks that lie over a volume, as a page gets them beside its voxels."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.images import Volume
from scopereg.io.formats import NO_PLACE
from scopereg.io.labels import LabelMap
from scopereg.io.landmarks import Landmarks
from scopereg.io.stored import StoredVolume
from scopereg.viewer.voxels import Overlay, Voxels, world_matrix

_FAST = 1  # of gzip
MOST_LANDMARKS = 300  # of a page
_FEW = 5  # names of landmarks in a note
_WORTH_A_WORD = 0.01  # share of labelled voxels beyond the volume


@dataclass(frozen=True)
class Overlays:
    """What was made in the space of one volume, to be shown over it."""

    labels: LabelMap | None = None
    landmarks: Landmarks | None = None

    def over(self, volume: Volume, voxels: Voxels) -> Voxels:
        """A volume as a page gets it, with these over it; an error where they cannot be of that volume."""
        overlay = None
        if self.labels is not None:
            overlay = _labelled(self.labels, volume, voxels)
        if self.landmarks is not None:
            overlay = _marked(overlay or Overlay(), self.landmarks, volume)
        return replace(voxels, overlay=overlay)


NOTHING_OVER = Overlays()


def notes_of(voxels: Voxels) -> Sequence[str]:
    """What is to be said of the overlays of a volume."""
    return () if voxels.overlay is None else voxels.overlay.notes


def same_space(a: Volume, b: Volume) -> bool:
    """Whether what lies over one volume lies over the other: they are the same file, or at least the same grid."""
    places = [image.path if isinstance(image, StoredVolume) else None for image in (a, b)]
    return a.shape == b.shape and places[0] == places[1] and np.allclose(world_matrix(a), world_matrix(b))


def _labelled(labels: LabelMap, volume: Volume, voxels: Voxels) -> Overlay:
    if not labels.states_place or _is_placeless(volume):
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
    packed = gzip.compress(laid.voxels.tobytes(), _FAST)
    return Overlay(packed, labels.path.name, tuple(listed), notes=tuple(notes))


def _marked(overlay: Overlay, landmarks: Landmarks, volume: Volume) -> Overlay:
    """With landmarks, some of which must lie in the volume."""
    points = landmarks.array_mm()
    if len(points) > MOST_LANDMARKS:
        raise ScopeRegError(
            f"it holds {len(points)} landmarks, {MOST_LANDMARKS} are the most that the page shows",
            where=str(landmarks.path),
            fix="keep those that matter",
        )
    indices = (np.c_[points, np.ones(len(points))] @ np.linalg.inv(world_matrix(volume)).T)[:, :3]
    inside = ((indices >= -0.5) & (indices <= np.array(volume.shape[::-1]) - 0.5)).all(axis=1)
    if not inside.any():
        raise ScopeRegError(
            "none of its landmarks lies in the volume",
            where=str(landmarks.path),
            fix="pass landmarks that were placed in this volume, or in one registered to it",
        )
    names = [name for name, within in zip(landmarks.points_mm, inside, strict=True) if not within]
    notes = [f"landmarks outside of the volume: {_listed(names)}"] if names else []
    notes += [f"landmarks that were never placed: {_listed(landmarks.left_out)}"] if landmarks.left_out else []
    if _is_placeless(volume):
        notes.append(f"the volume states no orientation: {landmarks.path.name} is taken to count as its file does")
    told: list[dict[str, Any]] = [
        {"name": name, "mm": [round(value, 4) for value in place]} for name, place in landmarks.points_mm.items()
    ]
    return replace(overlay, landmarks_file=landmarks.path.name, landmarks=tuple(told), notes=(*overlay.notes, *notes))


def _is_placeless(volume: Volume) -> bool:
    """Whether the volume's file does not say where its voxels lie."""
    facts: list[str] = volume.facts.get("notes", []) if isinstance(volume, StoredVolume) else []
    return any(NO_PLACE in note for note in facts)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")
