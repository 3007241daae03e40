"""Landmarks: how far poses put points that were picked in frames, or in another volume, from where they belong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from scopereg.errors import ScopeRegError, listed
from scopereg.evaluation.score.hints import Placed, hints_of
from scopereg.evaluation.score.pairing import by_name
from scopereg.evaluation.score.posed import (
    FIRST,
    Origin,
    Place,
    PosedFrame,
    PosedFrames,
    Size,
    Unit,
    numbered,
    target_of,
)
from scopereg.evaluation.score.scores import FrameScore, Scores, with_numbers
from scopereg.evaluation.score.states import NO_TRUTH, SCORED
from scopereg.geometry import weighted_kabsch_in_space
from scopereg.geometry.pose import Array
from scopereg.io.landmarks import ENDINGS, Landmarks, is_landmarks, read_landmarks

_FLAT_MM = 1.0  # off the plane of its frame, by rounding and a viewer's slices
_FROM_FIRST = (FIRST, (0.0, 0.0))


class _How(NamedTuple):
    """How points in frames count."""

    origin: Origin
    unit: Unit
    size: Size | None
    spacing_mm: Place | None


class _Marked(NamedTuple):
    """A frame, or a volume, with the landmarks that were picked in it and where they belong."""

    frame: PosedFrame
    points_mm: Array  # (N, 3), in what its pose takes
    names: list[str]
    places: list[Array | None]
    half_mm: Array | None


def score_landmarks(
    poses: PosedFrames,
    picked: Path | str,
    true: Path | str,
    *,
    name: str = "",
    origin: Origin = FIRST,
    unit: Unit = "mm",
    size: Size | None = None,
    spacing_mm: Place | None = None,
    between_volumes: bool = False,
) -> Scores:
    """The distance of each landmark from where it belongs (target registration error, TRE).

    `picked` are points in frames (.mrk.json or .fcsv), by default in mm from the first pixel: a file where there is one
    frame, else a folder with a file for each, named like it; `true` are the points of the same names in the volume, one
    file or a folder alike. With `between_volumes` the one pose goes from a volume to another, and so do the points.
    """
    picked, true = Path(picked), Path(true)
    how = None if between_volumes else _How(origin, unit, size, spacing_mm)
    pairs = _files(poses, picked, true, between_volumes)
    marked = [_marked(frame, read_landmarks(own), read_landmarks(goal), how) for frame, own, goal in pairs]
    rows = [row for each in marked for row in _rows(each)]
    if not any(row.counts for row in rows):
        raise ScopeRegError(
            f"it has none of the {len(rows)} points of {picked}, first {rows[0].point}",
            where=str(true),
            fix="name points alike on both sides: names tell which belong together",
        )
    placed = [found for each in marked if (found := _placed(each)) is not None]
    notes = [*poses.notes, *_notes(rows), *(_of_volumes(placed[0]) if between_volumes else [])]
    facts = {"poses": poses.source.name, "points": picked.name, "truth": true.name, "world": poses.world}
    return Scores(name or poses.name, true.name, with_numbers(rows), tuple(hints_of(placed)), tuple(notes), facts)


def _files(
    poses: PosedFrames, picked: Path, true: Path, between_volumes: bool
) -> Iterator[tuple[PosedFrame, Path, Path]]:
    """Each frame with the file of its points, and that of their true places."""
    frames = poses.placed
    if between_volumes and (len(frames) != 1 or picked.is_dir() or true.is_dir()):
        raise ScopeRegError(
            f"{len(frames)} poses, {picked.name} and {true.name}",
            where="between_volumes=True",
            fix="pass one transform and a file of points for each of the two volumes",
        )
    if len(frames) == 1 and picked.is_file() and true.is_file():
        yield frames[0], picked, true
        return
    called, goals = by_name(frames), _by_stem(true) if true.is_dir() else {}
    for stem, path in _by_stem(picked).items():
        meant = called.get((stem, 0)) or called.get(numbered(stem) or ("", 0), [])
        if len(meant) != 1:
            told = f"{stem} may be any of" if meant else f"no pose is called {stem}, there are"
            raise ScopeRegError(
                f"{told} {listed([frame.label for frame in meant or frames], 3)}",
                where=str(path),
                fix="name files of points like those of their frames, scan_003 for frame 3 of scan",
            )
        if true.is_dir() and stem not in goals:
            raise ScopeRegError(f"it has no points for {stem}", where=str(true), fix="add them, or pass one file")
        yield meant[0], path, goals.get(stem, true)


def _by_stem(path: Path) -> dict[str, Path]:
    """Files of landmarks of a folder, or the one, by their names without ending."""
    files = sorted(each for each in path.iterdir() if is_landmarks(each)) if path.is_dir() else [path]
    if not files:
        raise ScopeRegError("it holds no landmarks", where=str(path), fix=f"pass {' or '.join(ENDINGS)} files")
    ends = [next((end for end in ENDINGS if file.name.lower().endswith(end)), "") for file in files]
    stems = [file.name[: len(file.name) - len(end)] for file, end in zip(files, ends, strict=True)]
    if len(set(stems)) < len(stems):
        raise ScopeRegError("it has two files for a frame", where=str(path), fix="keep .mrk.json or .fcsv of each")
    return dict(zip(stems, files, strict=True))


def _marked(frame: PosedFrame, own: Landmarks, goal: Landmarks, how: _How | None) -> _Marked:
    """The points of a frame, or without `how` of a volume."""
    names, points, half = list(own.points_mm), own.array_mm(), None
    if how is not None:
        points, half = _in_frame(frame, points, names, own.path, how)
    places = [np.array(goal.points_mm[name]) if name in goal.points_mm else None for name in names]
    return _Marked(frame, points, names, places, half)


def _in_frame(frame: PosedFrame, points: Array, names: list[str], path: Path, how: _How) -> tuple[Array, Array | None]:
    """Points in what the pose of the frame takes, and half of its image where that is known."""
    far = int(np.abs(points[:, 2]).argmax())
    if abs(points[far, 2]) > _FLAT_MM:
        raise ScopeRegError(
            f"{names[far]} lies {abs(points[far, 2]):.1f} mm off the plane of its frame",
            where=str(path),
            fix="pass points of frames, then those of the volume; between_volumes=True where both are of volumes",
        )
    alike = frame.origin in _FROM_FIRST and how.origin in _FROM_FIRST and how.unit == "mm"
    if alike and ((frame.size or how.size) is None or (frame.spacing_mm or how.spacing_mm) is None):
        return points, None
    target = target_of(frame, None, how.size, how.spacing_mm)
    first = target.origin_mm(how.origin)
    if how.unit == "pixel":
        points, first = points * (*target.spacing_mm, 0.0), np.zeros(3)
    return points - first + target.origin_mm(frame.origin), target.half_mm


def _rows(marked: _Marked) -> Iterator[FrameScore]:
    frame = marked.frame
    assert frame.pose is not None
    for name, found, place in zip(marked.names, frame.pose.apply(marked.points_mm), marked.places, strict=True):
        row = FrameScore(frame.file, frame.index, NO_TRUTH, verdict=frame.verdict, point=name)
        if place is not None:
            row = replace(row, state=SCORED, error_mm=float(np.linalg.norm(found - place)))
        yield row


def _placed(marked: _Marked) -> Placed | None:
    """The landmarks of a frame that have a true place."""
    assert marked.frame.pose is not None
    known = [row for row, place in enumerate(marked.places) if place is not None]
    if not known:
        return None
    places = np.stack([place for place in marked.places if place is not None])
    return Placed(marked.frame.pose.matrix, marked.points_mm[known], places, marked.half_mm)


def _notes(rows: list[FrameScore]) -> list[str]:
    alone = [row for row in rows if not row.counts]
    return [f"{len(alone)} points have no true place and are left out, first {alone[0].label}"] if alone else []


def _of_volumes(placed: Placed) -> list[str]:
    """How far apart the points are as they lie, and what no rigid transform can take away."""
    apart = np.linalg.norm(placed.points_mm - placed.places_mm, axis=1).mean()
    told = [f"as they lie, without the transform, the points are {apart:.2f} mm apart (mean)"]
    if len(placed.points_mm) >= 4:
        points, places = (torch.from_numpy(each) for each in (placed.points_mm, placed.places_mm))
        fit = weighted_kabsch_in_space(points, places, torch.ones(len(points)))
        left = torch.linalg.vector_norm(points @ fit.rotation.T + fit.translation - places, dim=1).mean()
        told.append(f"the best rigid fit of these points leaves {float(left):.2f} mm (mean)")
    return told
