"""StoredFrame and StoredVolume: images that know which file they come from, and what it says of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from scopereg.geometry import Pose
from scopereg.image_fields import US
from scopereg.images import Frame, Volume
from scopereg.provenance import tensors_sha256


@dataclass(frozen=True, eq=False, init=False, repr=False)
class StoredFrame(Frame):
    """A frame from a file. Its own mm are counted from the first pixel of the stored image, also where it was cropped.

    `facts` are ready for JSON: number of the frame, where its spacing comes from, identifiers, notes; nothing of the
    patient. `pose` is where the file itself puts the frame (a tracker's transforms, an image's header), if it does.
    """

    path: Path
    facts: dict[str, Any]
    pose: Pose | None

    def __init__(
        self,
        array: Any,
        spacing_mm: float | Sequence[float],
        origin_mm: Sequence[float] | None = None,
        labels: Any = None,
        frame_of_reference: str = "Image",
        path: Path | str = "",
        facts: Mapping[str, Any] | None = None,
        pose: Pose | None = None,
        mask: Any = None,
    ) -> None:
        super().__init__(array, spacing_mm, origin_mm, labels, frame_of_reference, mask)
        for name, value in (("path", Path(path)), ("facts", dict(facts or {})), ("pose", pose)):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class StoredVolume(Volume):
    """A volume from a file or, for a DICOM series, from a folder. `facts` as in `StoredFrame`."""

    path: Path
    facts: dict[str, Any]

    def __init__(
        self,
        array: Any,
        spacing_mm: float | Sequence[float],
        origin_mm: Sequence[float] | None = None,
        direction: Any = None,
        labels: Any = None,
        frame_of_reference: str = "Volume",
        path: Path | str = "",
        facts: Mapping[str, Any] | None = None,
        mask: Any = None,
        modality: str = US,
    ) -> None:
        super().__init__(array, spacing_mm, origin_mm, direction, labels, frame_of_reference, mask, modality)
        for name, value in (("path", Path(path)), ("facts", dict(facts or {}))):
            object.__setattr__(self, name, value)


GIVEN = "given"  # in the facts of an image: its spacing is not the file's, somebody told it


def depths_note(spacings_mm: Iterable[Sequence[float]]) -> str:
    """A word on frames of one file whose pixels have several sizes."""
    sizes = dict.fromkeys(" x ".join(dict.fromkeys(f"{step:.4g}" for step in sizes)) for sizes in spacings_mm)
    return f"the depth changes in it: pixels measure {', '.join(sizes)} mm"


def is_anatomical(volume: Volume) -> bool:
    """Whether its axes are known to be a patient's, as DICOM and NIfTI say; a phantom and a tracker's volume do not."""
    return isinstance(volume, StoredVolume) and volume.facts.get("anatomical") is True


_DIFFERENT = 0.01  # relative difference between two statements of a pixel's size that is worth a word

# Poses of many frames are written beside one volume: its hash takes longer than a network takes to find a frame.
_HASHES: WeakKeyDictionary[Frame | Volume, tuple[int, str]] = WeakKeyDictionary()


def pixels_sha256(image: Frame | Volume) -> str:
    """Hash of the pixels of an image, made once for each image whose tensor stays as it is."""
    changes = 0 if image.array.is_inference() else image.array._version
    known = _HASHES.get(image)
    if known is None or known[0] != changes:
        known = changes, tensors_sha256(image.array)
        _HASHES[image] = known
    return known[1]


def identity(image: Frame | Volume) -> dict[str, Any]:
    """What tells this image from others, ready for JSON: its file and its place, grid, hash of its pixels, facts."""
    facts = image.facts if isinstance(image, StoredFrame | StoredVolume) else {}
    path = image.path if isinstance(image, StoredFrame | StoredVolume) else None
    place = {"path": str(path.resolve())} if path is not None and path.exists() else {}
    direction = {"direction_lps": image.direction.tolist()} if isinstance(image, Volume) else {}
    return {
        "file": None if path is None else path.name,
        **place,
        "space": image.frame_of_reference,
        "size": list(image.size),
        "spacing_mm": list(image.spacing_mm),
        "origin_mm": list(image.origin_mm),
        **direction,
        "pixels_sha256": pixels_sha256(image),
        **facts,
    }


def given_spacing_note(given: Sequence[float], stated: Sequence[float] | None, source: str) -> dict[str, Any]:
    """A note where the given spacing is not the one that the file states."""
    if stated is None or np.allclose(given, stated, rtol=_DIFFERENT, atol=0):
        return {}
    said, used = (" x ".join(f"{step:g}" for step in sizes) for sizes in (stated, given))
    return {"notes": [f"{source} of the file says {said} mm; the given {used} mm are used"]}
