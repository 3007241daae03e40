"""PlusSequence: a recorded sequence with its calibration; images turned upright, transforms chained, faults named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.io.grey import brightness
from scopereg.io.metaimage import MetaSequence, read_metaimage
from scopereg.io.plus import IMAGE, Calibration, Link, Matrix, chain, link_of, matrix_of, path_between, read_calibration

WORLDS = ("Reference", "Tracker", "Volume")  # frames of reference that frames are placed in, the best first
FIELD_ENDING = "Transform"
ORIENTATION = "UltrasoundImageOrientation"
PIXEL_SIZE = "PixelSizeMm"  # our own field
_ORIENTATIONS = ("MF", "MN", "UF", "UN", "FM", "FU", "NM", "NU")


@dataclass(frozen=True, eq=False)
class PlusSequence:
    """A sequence as stored, and what its calibration says."""

    path: Path
    stored: MetaSequence
    calibration: Calibration

    @classmethod
    def open(cls, path: Path | str, calibration: Path | str | Matrix | None = None) -> PlusSequence:
        """Read a file. `calibration` is PLUS's configuration file, or ImageToProbe as a 4x4 matrix in mm per pixel."""
        return cls(Path(path), read_metaimage(path), _calibration(calibration))

    def __len__(self) -> int:
        return len(self.stored.frames)

    @property
    def states_one_mm(self) -> bool:
        """Whether the file says by itself that a pixel measures 1 mm, so that no pixel size was left out."""
        return [float(word) for word in self.stored.fields.get(PIXEL_SIZE, "").split()] == [1.0, 1.0]

    def way_to(self, world: str | None) -> list[Link] | None:
        """The links from the image to the world, over the transforms of the file and of the calibration."""
        links = self._links()
        for goal in (world,) if world else WORLDS:
            way = path_between(links, IMAGE, goal)
            if way:
                return way
        return None

    def no_way(self, world: str | None, fix: str) -> ScopeRegError:
        """The error for a sequence whose transforms do not lead from the image to the world."""
        held = ", ".join("To".join(link) for link in self._links()) or "none"
        goal = world or " or ".join(WORLDS)
        return ScopeRegError(
            f"no transforms lead from {IMAGE} to {goal}; there are {held}", where=str(self.path), fix=fix
        )

    def image_faults(self) -> dict[int, str]:
        """Frames whose image is not OK."""
        states = ((row, fields.get("ImageStatus", "OK")) for row, fields in enumerate(self.stored.frames))
        return {row: f"Image {state}" for row, state in states if state.upper() != "OK"}

    def pose_faults(self, way: Sequence[Link]) -> dict[int, str]:
        """Frames of which a transform on the way is missing or not OK, and the first that is."""
        links = {link for link in way if not self._given(link)}
        both_ways = {*links, *(link[::-1] for link in links)}
        needed = sorted({name for fields in self.stored.frames for name in fields if _link_of_field(name) in both_ways})
        faults = {}
        for row, fields in enumerate(self.stored.frames):
            states = {name: fields.get(f"{name}Status", "OK") if name in fields else "missing" for name in needed}
            wrong = [f"{name} {state}" for name, state in states.items() if state.upper() != "OK"]
            if wrong:
                faults[row] = wrong[0]
        return faults

    def pixel_to_world(self, way: Sequence[Link], rows: Sequence[int]) -> Matrix:
        """Matrices (len(rows), 4, 4) from pixels to the world."""
        return np.stack([chain(way, self._transforms(row)) for row in rows])

    def images(self, rows: Sequence[int]) -> Tensor:
        """Images of some frames as uint8, or as float from 0 to 1, turned to PLUS's MF."""
        return _oriented(_grey(self.stored.images, rows, self.path), self.stored.fields, self.path)

    def times_s(self) -> tuple[float, ...] | None:
        """Timestamps, if every frame has one."""
        try:
            return tuple(float(fields["Timestamp"]) for fields in self.stored.frames)
        except (KeyError, ValueError):
            return None

    def _links(self) -> dict[Link, None]:
        links = dict.fromkeys(self.calibration.transforms)
        for fields in (*self.stored.frames, self.stored.fields):
            links |= dict.fromkeys(link for name in fields if (link := _link_of_field(name)))
        return links

    def _given(self, link: Link) -> bool:
        return link in self.calibration.transforms or link[::-1] in self.calibration.transforms

    def _transforms(self, row: int) -> dict[Link, Matrix]:
        """Transforms of one frame: of the calibration, which wins, of the frame, of the whole file."""
        found: dict[Link, Matrix] = {}
        places = ((self.stored.fields, str(self.path)), (self.stored.frames[row], f"{self.path}, frame {row}"))
        for fields, where in places:
            for name, text in fields.items():
                if link := _link_of_field(name):
                    found[link] = matrix_of(text, where)
        return found | self.calibration.transforms


def _calibration(source: Path | str | Matrix | None) -> Calibration:
    if source is None:
        return Calibration({}, None)
    if isinstance(source, str | Path):
        return read_calibration(source)
    numbers = " ".join(str(float(number)) for number in np.asarray(source).ravel())
    return Calibration({(IMAGE, "Probe"): matrix_of(numbers, "read_plus_sequence(calibration)")}, None)


def _link_of_field(name: str) -> Link | None:
    return link_of(name.removesuffix(FIELD_ENDING)) if name.endswith(FIELD_ENDING) else None


def _grey(images: npt.NDArray[Any], rows: Sequence[int], path: Path) -> Tensor:
    """Some of the images as uint8, or as float from 0 to 1; colours by their brightness."""
    images = images[list(rows)]
    if images.ndim == 4:
        grey = brightness(images, str(path))
        images = grey.round().astype(images.dtype) if images.dtype.kind in "iu" else grey
    if images.dtype == np.uint8:
        return torch.from_numpy(np.ascontiguousarray(images))
    values = np.ascontiguousarray(images, np.float32)
    low, high = float(values.min()), float(values.max())
    if not (np.isfinite([low, high]).all() and low >= 0 and high > 0):
        raise ScopeRegError(
            f"grey values run from {low:g} to {high:g}", where=str(path), fix="record brightness, not RF signals"
        )
    return torch.from_numpy(values / np.float32(high))


def _oriented(images: Tensor, fields: dict[str, str], path: Path) -> Tensor:
    """Images turned to MF: the first letter tells where columns lead, the second rows; a third is for volumes."""
    letters = fields.get(ORIENTATION, "MF").upper()
    if letters[:2] not in _ORIENTATIONS or len(letters) > 3:
        raise ScopeRegError(
            f"the orientation of its images is {letters!r}",
            where=str(path),
            fix=f"set {ORIENTATION} to one of {', '.join(_ORIENTATIONS)}",
        )
    if letters[0] in "FN":
        images, letters = images.transpose(1, 2), letters[1] + letters[0]
    flips = [axis for axis, letter in ((2, "U"), (1, "N")) if letter in letters[:2]]
    return images.flip(flips).contiguous()
