"""Videos: the frames of MP4, AVI and their kin, and their times; decoded in a child process by PyAV (extra `video`)."""

from __future__ import annotations

import math
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scopereg.errors import ScopeRegError
from scopereg.io.apart import Allowance, read_apart
from scopereg.io.limits import largest_bytes

VIDEOS = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv")
_CHILD = "scopereg.io.apart.videos:video"
_OR_SAVE = "or save its frames as PNG, or as DICOM"


def read_video(path: Path) -> tuple[npt.NDArray[np.uint8], tuple[float, ...] | None]:
    """Colours (F, H, W, 3) of the frames, and their times in seconds from the first; None where it tells none."""
    if find_spec("av") is None:
        raise ScopeRegError(
            "videos are read by PyAV, which is not installed",
            where=str(path),
            fix=f"pip install 'scopereg[video]', {_OR_SAVE}",
        )
    try:
        size, most = path.stat().st_size, largest_bytes()
    except OSError as error:
        raise ScopeRegError(f"it cannot be read: {error.strerror or error}", where=str(path), fix=_OR_SAVE) from None
    allowance = Allowance(memory=2**29 + 3 * most, answer=2 * most, seconds=30.0 + size / 2**18)
    arrays = read_apart(_CHILD, path, str(path), allowance, ending=path.suffix.lower()).arrays
    if len(arrays) != 2 or arrays[0].ndim != 4 or arrays[0].shape[3] != 3 or arrays[0].dtype != np.uint8:
        raise ScopeRegError("it holds no pictures", where=str(path), fix="export it again, as MP4")
    return arrays[0], _times_of(arrays[1], len(arrays[0]))


def _times_of(stated: npt.NDArray[Any], count: int) -> tuple[float, ...] | None:
    times = [float(time) - float(stated[0]) for time in stated]
    rising = len(times) == count and all(math.isfinite(time) for time in times)
    return tuple(times) if rising and all(before < after for before, after in pairwise(times)) else None
