"""Volume picture: a volume as a box seen from one corner, with frames where they lie in it, as SVG text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from scopereg.geometry import Pose
from scopereg.images import Frame, Volume, unit_range
from scopereg.io.pictures import Pixels, data_uri, grey_pixels
from scopereg.report.drawing import draw_marker
from scopereg.report.palette import LIGHTS, Marker

Array = npt.NDArray[np.float64]

_YAW_DEG, _PITCH_DEG = 32.0, 24.0  # of the camera: towards the second axis of the volume, which points down
_AIR = 0.09  # of the picture around the box
_WALL_PIXELS = 72
_LETTER = 'text-anchor="middle" font-size="12" style="fill:var(--dim)"'  # a notebook does not know our classes
_MARKERS: dict[str, Marker] = {"green": "circle", "amber": "triangle", "red": "cross"}


class Plane(NamedTuple):
    """A frame where it lies, with its pixels where it shows them."""

    corners_mm: Array  # (4, 3), LPS: those of the first pixel, along its row, opposite, along its column
    pixels: Pixels | None = None
    colour: str = "var(--ink)"
    dash: str = ""


class Stop(NamedTuple):
    """A place on a path, and the light of the frame there; without one nothing tells where the frame was."""

    place_mm: Array  # (3,), LPS
    light: str = ""
    begins: bool = False  # whether no line leads here: another path begins


def plane_of(frame: Frame, pose: Pose, pixels: Pixels | None = None, colour: str = "var(--ink)") -> Plane:
    """A frame at a pose; its pixels may be those of a smaller copy."""
    width, height = (n * step for n, step in zip(frame.size, frame.spacing_mm, strict=True))
    left, top = (start - step / 2 for start, step in zip(frame.origin_mm, frame.spacing_mm, strict=True))
    corners = [(left, top, 0), (left + width, top, 0), (left + width, top + height, 0), (left, top + height, 0)]
    return Plane(pose.apply(np.array(corners, np.float64)), pixels, colour)


class VolumePicture:
    """Draws pictures of one volume, all from the same side; y of the volume, depth in most, points down."""

    def __init__(self, volume: Volume, *, width: int = 320, height: int = 320) -> None:
        self._volume, self._width, self._height = volume, width, height
        self._box_mm = np.array([n * step for n, step in zip(volume.size, volume.spacing_mm, strict=True)])
        yaw, pitch = math.radians(_YAW_DEG), math.radians(_PITCH_DEG)
        turned = np.array([[math.cos(yaw), 0, math.sin(yaw)], [0, 1, 0], [-math.sin(yaw), 0, math.cos(yaw)]])
        tilted = np.array([[1, 0, 0], [0, math.cos(pitch), -math.sin(pitch)], [0, math.sin(pitch), math.cos(pitch)]])
        self._view = (tilted @ turned)[:2]  # mm along the volume's axes to mm right and down
        seen = self._corners @ self._view.T
        low, high = seen.min(0), seen.max(0)
        room = np.array([width, height]) * (1 - 2 * _AIR)
        self._scale = float((room / np.maximum(high - low, 1e-9)).min())
        self._shift = np.array([width, height]) / 2 - self._scale * (low + high) / 2

    def picture(
        self, planes: Sequence[Plane], path: Sequence[Stop] = (), *, said: str, walls: str | None = None
    ) -> str:
        """The box with planes in it and a path through it; `walls` stands for those of `walls()`, such as a use."""
        parts = [self.walls() if walls is None else walls, *self._edges(behind=True)]
        parts += [part for plane in planes for part in self._plane(plane)]
        parts += [*self._path(path), *self._edges(behind=False), *self._axes()]
        head = f'viewBox="0 0 {self._width} {self._height}" role="img" aria-label="{escape(said)}"'
        return f"<svg {head} style='width:100%;display:block'><title>{escape(said)}</title>{''.join(parts)}</svg>"

    def walls(self) -> str:
        """What the volume looks like, as means along its axes, on the three walls behind."""
        values = unit_range(self._volume.array.detach().cpu().float())
        wide, high, deep = self._box_mm
        walls = (
            (values.mean(0), (0, 0, deep), (wide, 0, 0), (0, high, 0)),
            (values.mean(2).T, (0, 0, 0), (0, 0, deep), (0, high, 0)),
            (values.mean(1), (0, high, 0), (wide, 0, 0), (0, 0, deep)),
        )
        return "".join(self._wall(image, *map(np.array, edges)) for image, *edges in walls)

    def _wall(self, image: torch.Tensor, start: Array, along: Array, down: Array) -> str:
        bright = (image / image.max().clamp_min(1e-6)).sqrt()
        pixels = grey_pixels(_shrunk(bright, _WALL_PIXELS))
        corners = self._place(np.array([start, start + along, start + down]))
        return self._image(pixels, corners, opacity=0.55)

    def _plane(self, plane: Plane) -> list[str]:
        corners = self._seen(plane.corners_mm)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        dash = f' stroke-dasharray="{plane.dash}"' if plane.dash else ""
        width = 1.3 if plane.pixels is None else 2
        image = [] if plane.pixels is None else [self._image(plane.pixels, corners[[0, 1, 3]])]
        return [
            *image,
            f'<polygon points="{points}" fill="none" style="stroke:{plane.colour}" stroke-width="{width}"{dash}/>',
        ]

    def _path(self, path: Sequence[Stop]) -> list[str]:
        places = self._seen(np.array([stop.place_mm for stop in path])) if path else np.empty((0, 2))
        starts = [0, *(row for row, stop in enumerate(path) if stop.begins and row), len(path)]
        ways = [" ".join(f"{x:.1f},{y:.1f}" for x, y in places[start:stop]) for start, stop in pairwise(starts)]
        look = 'fill="none" stroke-linejoin="round"'
        wide, narrow = 'style="stroke:var(--back)" stroke-width="9" opacity="0.6"', 'style="stroke:var(--ink)"'
        lines = [f'<polyline points="{way}" {look} {style}/>' for style in (wide, narrow) for way in ways if way]
        return lines + [
            draw_marker(_MARKERS[stop.light], x, y, 3, LIGHTS[stop.light])
            for stop, (x, y) in zip(path, places, strict=True)
            if stop.light
        ]

    def _edges(self, *, behind: bool) -> list[str]:
        """Edges of the box: those that end in its farthest corner, or all others."""
        far = np.array([0.0, self._box_mm[1], self._box_mm[2]])
        corners, parts = self._corners, []
        for i, one in enumerate(corners):
            for other in corners[i + 1 :]:
                if (one != other).sum() == 1:
                    hidden = bool((one == far).all() or (other == far).all())
                    if hidden is behind:
                        (x1, y1), (x2, y2) = self._place(one), self._place(other)
                        look = f'style="stroke:var(--dim)" opacity="{0.45 if hidden else 0.8}"'
                        parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {look}/>')
        return parts

    def _axes(self) -> list[str]:
        """The axes of the world, LPS, as three short arrows in the corner below."""
        start, length, parts = np.array([26.0, self._height - 40.0]), 20.0, []
        for name, way in zip("xyz", self._volume.direction, strict=True):  # row k: world axis k along the volume's own
            step = self._view @ way
            (x1, y1), (x2, y2) = start, start + length * step
            tx, ty = start + length * step + 7 * step / max(float(np.linalg.norm(step)), 0.3)
            parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" style="stroke:var(--ink)"/>')
            parts.append(f'<text x="{tx:.1f}" y="{ty + 4:.1f}" {_LETTER}>{name}</text>')
        return parts

    @property
    def _corners(self) -> Array:
        wide, high, deep = self._box_mm
        return np.array([(x, y, z) for x in (0.0, wide) for y in (0.0, high) for z in (0.0, deep)])

    def _seen(self, points_mm: Array) -> Array:
        """Places in the picture of points of the world."""
        own = (points_mm - np.asarray(self._volume.origin_mm)) @ self._volume.direction
        return self._place(own + np.asarray(self._volume.spacing_mm) / 2)

    def _place(self, own_mm: Array) -> Array:
        place: Array = own_mm @ self._view.T * self._scale + self._shift
        return place

    def _image(self, pixels: Pixels, corners: Array, opacity: float = 1.0) -> str:
        """Pixels laid over a parallelogram: the first corner, that along the rows, that along the columns."""
        height, width = pixels.shape[:2]
        start, along, down = corners
        numbers = (*(along - start) / width, *(down - start) / height, *start)
        matrix = " ".join(f"{number:.4f}" for number in numbers)
        faint = f' opacity="{opacity}"' if opacity < 1 else ""
        return (
            f'<image href="{data_uri(pixels)}" width="{width}" height="{height}" preserveAspectRatio="none" '
            f'transform="matrix({matrix})"{faint}/>'
        )


def _shrunk(image: torch.Tensor, most: int) -> torch.Tensor:
    factors = [max(1, math.ceil(n / most)) for n in image.shape]
    return torch.nn.functional.avg_pool2d(image[None], factors)[0] if max(factors) > 1 else image
