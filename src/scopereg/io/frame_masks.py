"""FrameMasks: which pixels of frames count, as somebody drew it: one mask for all frames, or one for each.

A mask is drawn on a picture as it is stored, or as it is read. What the reader cuts off of a stored picture, and how it
turns it, holds for a mask of its size alike. What the reader itself leaves out, such as colour flow, stays left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from scopereg.errors import ScopeRegError
from scopereg.images import field_of_view
from scopereg.io.cine import Cine, picture_at
from scopereg.io.overlays import Picture, percent
from scopereg.io.pictures import read_picture
from scopereg.io.read_image import content_sha256, ending_of, endings, read_with_header
from scopereg.io.stored import StoredFrame

Bits = npt.NDArray[np.bool_]
_PICTURES = (".png", ".bmp", ".tif", ".tiff")
_SEQUENCE = ".igs"  # what PLUS puts before .mha
_DRAW = "draw one in which something is not 0: that counts"


@dataclass(frozen=True, eq=False)
class FrameMasks:
    """Masks of a file, for all frames or one for each, or of a folder, by the names of the frames' files."""

    path: Path
    planes: Bits | None  # (P, H, W) of a file, true where pixels count
    by_name: Mapping[str, Path] = field(default_factory=dict)  # of a folder

    def over(self, cine: Cine) -> Cine:
        """The same frames with these masks; an error for masks that cannot be theirs."""
        if self.planes is not None:
            _check_count(self.planes, cine, self.path, cine.count)

        def decode(index: int) -> Picture:
            return _masked(picture_at(cine, index), *self._of_frame(cine, index), cine)

        return replace(cine, decode=decode, facts={**cine.facts, **self.facts})

    def over_frame(self, frame: StoredFrame) -> StoredFrame:
        """A frame of a stream with the mask that all its frames have."""
        if self.planes is None or len(self.planes) > 1:
            raise ScopeRegError(
                "the frames of a stream have one mask for all", where=str(self.path), fix="pass the file of one mask"
            )
        own = None if frame.mask is None else frame.mask.numpy()
        picture = _masked(Picture(frame.numpy(), own), self.planes[0], self.path, None)
        facts = {**frame.facts, **self.facts, "notes": [*frame.facts.get("notes", ()), *picture.notes]}
        return replace(frame, mask=torch.tensor(picture.mask), facts=facts)

    @cached_property
    def facts(self) -> dict[str, str]:
        """What tells them from others, for the facts of frames."""
        files = [self.path] if self.planes is not None else list(self.by_name.values())
        return {"frame_mask": self.path.name, "frame_mask_sha256": content_sha256(files)}

    def _of_frame(self, cine: Cine, index: int) -> tuple[Bits, Path]:
        """The mask of a frame as it was drawn, and its file."""
        planes, path, frames = self.planes, self.path, cine.count
        if planes is None:
            path, frames = self._named(cine, index)
            planes = _planes_of(path)
            _check_count(planes, cine, path, frames)
        return planes[index if len(planes) > 1 else 0], path

    def _named(self, cine: Cine, index: int) -> tuple[Path, int]:
        """The file of a frame's mask by its name, and how many frames that name is of."""
        stem = _stem(cine.path.name)
        numbered = [f"{stem}_{index:0{digits}d}" for digits in (max(len(str(cine.count - 1)), 3), 1)]
        for name, frames in ((numbered[0], 1), (numbered[1], 1), (stem, cine.count)):
            if name in self.by_name:
                return self.by_name[name], frames
        names = f"{stem}.png" + (f", or {numbered[0]}.png for this frame" if cine.count > 1 else "")
        raise ScopeRegError("there is no mask of this frame in it", where=str(self.path), fix=f"put {names} there")


def read_frame_masks(path: Path | str) -> FrameMasks:
    """Masks of a picture (PNG, BMP, TIFF), of NIfTI, NRRD or MHA, or of a folder of such files.

    What is not 0 counts. A file of several planes has one for each frame. In a folder `a.png` is the mask of the frames
    of `a.dcm`, and `a_007.png` that of its frame 7.
    """
    path = Path(path)
    return _read(path, _stamp(path))


@lru_cache(maxsize=4)  # the files of a batch share masks
def _read(path: Path, stamp: tuple[int, int]) -> FrameMasks:
    if not path.is_dir():
        return FrameMasks(path, _planes_of(path))
    files = [file for file in sorted(path.iterdir()) if file.is_file() and _is_readable(file.name)]
    if not files:
        raise ScopeRegError("it holds no masks", where=str(path), fix="pass a folder of masks in PNG, or one file")
    return FrameMasks(path, None, {_stem(file.name): file for file in files})


def _stamp(path: Path) -> tuple[int, int]:
    """What changes with the content of a file: whoever keeps that reads it anew then."""
    try:
        found = path.stat()
    except OSError:
        raise ScopeRegError("there is no such file or folder", where=str(path), fix="check the name") from None
    return found.st_mtime_ns, found.st_size


def _planes_of(path: Path) -> Bits:
    """Planes (P, H, W) of a file."""
    return _read_planes(path, _stamp(path))


@lru_cache(maxsize=8)
def _read_planes(path: Path, stamp: tuple[int, int]) -> Bits:
    name = path.name.lower()
    if name.endswith(_PICTURES):
        pixels = read_picture(path)
        if pixels.ndim == 4:  # a last channel of two or four tells what is transparent
            pixels = pixels[..., : 3 if pixels.shape[-1] > 2 else 1].max(-1)
    elif ending_of(name):
        _, pixels = read_with_header(path)
    else:
        lossy = name.endswith((".jpg", ".jpeg"))
        raise ScopeRegError(
            "JPEG changes what is 0" if lossy else f"unknown kind of mask {path.suffix!r}",
            where=str(path),
            fix=f"store the mask as {', '.join((*_PICTURES[:1], *endings()))}",
        )
    if pixels.ndim not in (2, 3):
        raise ScopeRegError(f"it has {pixels.ndim} axes", where=str(path), fix="pass a mask of one plane, or a stack")
    bits: Bits = (pixels if pixels.ndim == 3 else pixels[None]) != 0
    empty = np.flatnonzero(~bits.any((1, 2)))
    if len(empty):
        which = "all of it is 0" if len(bits) == 1 else f"its plane {empty[0]} is 0 everywhere"
        raise ScopeRegError(f"{which}: no pixel would count", where=str(path), fix=_DRAW)
    bits.setflags(write=False)
    return bits


def _masked(picture: Picture, drawn: Bits, path: Path, cine: Cine | None) -> Picture:
    """A picture of which what was drawn counts alone."""
    laid = _laid(drawn, picture.grey.shape, path, cine)
    seen = field_of_view(torch.from_numpy(picture.grey)).numpy()
    mask = laid if picture.mask is None else laid & picture.mask
    if not (mask & seen).any():
        raise ScopeRegError(
            "nothing of the picture counts: it is black there, or left out already", where=str(path), fix=_DRAW
        )
    share = float((laid & seen).sum() / seen.sum())
    told = f"{percent(share)} of the picture counts" if share < 1 else "nothing of the picture is left out"
    return Picture(picture.grey, mask, (*picture.notes, f"by the frame mask {path.name} {told}"))


def _laid(drawn: Bits, shape: tuple[int, ...], path: Path, cine: Cine | None) -> Bits:
    """What was drawn, as the frame lies: a mask of the stored picture is cut and turned as that was."""
    stored = None if cine is None else cine.stored
    if stored is not None and drawn.shape == stored.shape:
        return stored.change(drawn)
    if drawn.shape == shape:
        return drawn
    own, needed = (f"{size[1]} x {size[0]}" for size in (drawn.shape, shape))
    whole = f", as stored {stored.shape[1]} x {stored.shape[0]}" if stored and stored.shape != shape else ""
    raise ScopeRegError(
        f"the mask has {own} pixels, the frame {needed}{whole}",
        where=str(path),
        fix="draw the mask on the frame, pixel by pixel",
    )


def _check_count(planes: Bits, cine: Cine, path: Path, frames: int) -> None:
    if len(planes) not in (1, frames):
        raise ScopeRegError(
            f"it holds {len(planes)} masks for {frames} frame{'s' * (frames != 1)} of {cine.path.name}",
            where=str(path),
            fix="pass one mask for all frames, or one for each",
        )


def _is_readable(name: str) -> bool:
    return name.lower().endswith(_PICTURES) or bool(ending_of(name))


def _stem(name: str) -> str:
    """The name of a file without its ending."""
    ending = ending_of(name)
    stem = name[: -len(ending)] if ending else Path(name).stem
    return stem[: -len(_SEQUENCE)] if stem.lower().endswith(_SEQUENCE) else stem
