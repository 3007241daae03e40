"""Reader of the child for videos, by PyAV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.io.limits import check_size

_EXPORT = "export it again, as MP4 or as single frames"


def video(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """Colours (F, H, W, 3) of the frames of the first video stream, and their times in seconds (none: empty)."""
    try:
        frames, times = _decoded(path)
    except av.error.FFmpegError as error:
        raise ScopeRegError(f"it cannot be read as a video: {error.strerror}", where=path.name, fix=_EXPORT) from None
    if not frames:
        raise ScopeRegError("it holds no frame", where=path.name, fix=_EXPORT)
    if len({frame.shape for frame in frames}) > 1:
        raise ScopeRegError("its frames change their size", where=path.name, fix=_EXPORT)
    known = [time for time in times if time is not None]
    return [np.stack(frames), np.array(known if len(known) == len(times) else [], np.float64)], {}


def _decoded(path: Path) -> tuple[list[Any], list[float | None]]:
    frames: list[Any] = []
    times: list[float | None] = []
    with av.open(str(path), mode="r") as container:
        if not container.streams.video:
            raise ScopeRegError("it holds no video", where=path.name, fix=_EXPORT)
        stream = container.streams.video[0]
        check_size((max(stream.frames, 1), stream.height, stream.width), 3, path.name, in_use=False)
        for frame in container.decode(stream):
            check_size((len(frames) + 1, frame.height, frame.width), 3, path.name, in_use=False)
            frames.append(frame.to_ndarray(format="rgb24"))
            times.append(None if frame.time is None else float(frame.time))
    return frames, times
