"""Packets: a frame, its pose and all that is said of it in one binary message, so that nothing can lag behind the rest.

A packet is the length of the header (uint32, little endian), the header (JSON), the pixels of the frame (uint8, row by
row) and the evidence map (uint8, row by row, 0 to its largest value) if there is one.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scopereg import __version__
from scopereg.errors import ScopeRegError
from scopereg.images import Frame, unit_range
from scopereg.live.loop import Update
from scopereg.registration.deformable.displacement import DRAWN
from scopereg.registration.format import is_sized
from scopereg.registration.result import Assessment, Result

LONGEST_SIDE = 256  # pixels of a picture that is sent: more than a screen shows of it

Bytes = npt.NDArray[np.uint8]


def packet_of(
    frame: Frame,
    result: Result | None,
    error: ScopeRegError | None = None,
    *,
    generation: int,
    name: str = "",
    more: Mapping[str, Any] | None = None,
) -> bytes:
    """The packet of a frame and what was found of it, in the volume of a generation; `more` goes into the header."""
    pixels, pixel_to_image = picture_of(frame)
    evidence = None if result is None or result.evidence is None else evidence_map(result.evidence)
    header = {
        "type": "update",
        "generation": generation,
        "frame": {**_grid(pixels, pixel_to_image), "name": name, "sized": is_sized(frame)},
        "image_to_volume": None if result is None else flat(result.pose.matrix),
        "evidence": None if evidence is None else {"shape": list(evidence.shape)},
        **Assessment.of(result, error).facts,
        **deformation_facts(result),
        **(more or {}),
    }
    head = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
    maps = b"" if evidence is None else evidence.tobytes()
    return b"".join((struct.pack("<I", len(head)), head, pixels.tobytes(), maps))


def deformation_facts(result: Result | None) -> dict[str, Any]:
    """The grid that a page draws over a frame whose pose leaves a deformation; nothing of others."""
    deformation = None if result is None else result.deformation
    if deformation is None or not deformation.is_significant:
        return {}
    lines = [
        {"rest": line.rest.round(2).tolist(), "moved": np.c_[line.drawn(DRAWN), line.moved_mm[:, 2]].round(2).tolist()}
        for line in deformation.grid()
    ]
    return {"deformation": {"lines": lines, "drawn": DRAWN, "max_mm": deformation.facts["max_mm"]}}


def _grid(pixels: Bytes, pixel_to_image: npt.NDArray[np.float64]) -> dict[str, Any]:
    return {"shape": list(pixels.shape), "pixel_to_image": flat(pixel_to_image)}


def live_facts(update: Update, error_mm: float = math.nan) -> dict[str, Any]:
    """What the header of a live update says besides: which frame it is, and how the loop is doing."""
    return {
        "number": update.number,
        "update": update.number,
        "frame_number": update.frame_number,
        "time_s": number(update.time_s, 6),
        "error_mm": number(error_mm),
        "register_ms": number(update.register_ms, 2),
        "latency_ms": number(update.latency_ms, 2),
        "p50_ms": number(update.rates.p50_ms, 2),
        "p95_ms": number(update.rates.p95_ms, 2),
        "frames_per_s": number(update.rates.frames_per_s, 2),
        "dropped": update.counters.get("dropped", 0),
        "counters": update.counters,
    }


def base_state(mode: str, **facts: Any) -> dict[str, Any]:
    """A state with every part that a page expects; `facts` in place of what is usual."""
    usual: dict[str, Any] = {
        "type": "state",
        "version": __version__,
        "mode": mode,
        "volume": None,
        "volumes": [],
        "source": "",
        "method": "",
        "can": [],
        "paused": False,
        "recording": None,
        "recorded": [],
        "finished": False,
        "notes": [],
        "counters": {},
        "last_fault": "",
        "asks": None,
        "results": None,
    }
    assert set(facts) <= set(usual), set(facts) - set(usual)
    return {**usual, **facts}


def picture_of(frame: Frame) -> tuple[Bytes, npt.NDArray[np.float64]]:
    """The frame as bytes, shrunk by whole numbers if it is large, and the matrix from (column, row, 0, 1) to its mm."""
    values = frame.numpy()
    factor = math.ceil(max(values.shape) / LONGEST_SIDE)
    high, wide = (min(factor, n) for n in values.shape)
    pixel_to_image = np.eye(4)
    for axis, count in enumerate((wide, high)):
        pixel_to_image[axis, axis] = count * frame.spacing_mm[axis]
        # The middle of the first cell lies between the pixels that it is the mean of.
        pixel_to_image[axis, 3] = frame.origin_mm[axis] + (count - 1) / 2 * frame.spacing_mm[axis]
    return grey_bytes(shrunk(values, high, wide)), pixel_to_image


def shrunk(values: npt.NDArray[np.float32], high: int, wide: int) -> npt.NDArray[np.float32]:
    """Means over cells of so many rows and columns; what is left at the end is cut off."""
    if (high, wide) == (1, 1):
        return values
    rows, columns = values.shape[0] // high, values.shape[1] // wide
    cells = values[: rows * high, : columns * wide].reshape(rows, high, columns, wide)
    means: npt.NDArray[np.float32] = cells.mean(1).mean(2)  # one after the other: quicker than both at once
    return means


def grey_bytes(values: npt.NDArray[np.float32]) -> Bytes:
    """Values as bytes: those within [0, 1] as they are, others from their 1st to their 99th percentile."""
    if not (values.min() >= 0 and values.max() <= 1):
        values = unit_range(torch.from_numpy(np.ascontiguousarray(values))).numpy()
    grey: Bytes = (values * np.float32(255) + np.float32(0.5)).astype(np.uint8)
    return grey


def evidence_map(evidence: Tensor) -> Bytes:
    """Evidence (H', W') as bytes, 255 for the most."""
    values = evidence.detach().float().cpu().numpy()
    most = float(values.max(initial=0.0))
    scale = 255 / most if most > 0 and math.isfinite(most) else 0.0
    scaled: Bytes = np.nan_to_num(values * scale).clip(0, 255).astype(np.uint8)
    return scaled


def flat(matrix: npt.NDArray[np.float64]) -> list[float]:
    """A 4x4 matrix as 16 numbers, row by row."""
    return [float(f"{value:.9g}") for value in np.asarray(matrix).ravel()]


def number(value: float, digits: int = 3) -> float | None:
    """JSON has no NaN."""
    return round(float(value), digits) if math.isfinite(value) else None
