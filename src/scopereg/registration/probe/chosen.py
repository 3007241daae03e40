"""Chosen: the frames that a probe is calibrated by, of one sweep or several, and what is known of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame
from scopereg.io.plus import IMAGE, take_out_pixel_size
from scopereg.io.probe_sweeps import ProbeSweep
from scopereg.registration.probe.chain import Array, Grid, Rows

LEAST_FRAMES = 8  # tracked ones, without which nothing is begun


@dataclass(frozen=True, eq=False)
class Chosen:
    """Frames that are tried, and what is known of them."""

    frames: tuple[Frame, ...]
    labels: tuple[str, ...]
    places: tuple[tuple[int, int], ...]  # number of the sweep, row in its file
    tracked: Array  # (N, 4, 4)
    worlds: Rows
    aside: Rows  # numbers of those that are kept aside
    grid: Grid
    probe: str
    names: tuple[str, ...]  # of the worlds
    before: tuple[Pose, tuple[float, float]] | None
    notes: tuple[str, ...]

    @classmethod
    def of(cls, sweeps: Sequence[ProbeSweep], *, most: int, aside: float, own_worlds: bool) -> Chosen:
        """At most so many frames, evenly from all; a share of them is kept aside."""
        _check_sweeps(sweeps)
        every = [(number, row) for number, sweep in enumerate(sweeps) for row in range(len(sweep))]
        spacing = sweeps[0].spacing_mm
        assert spacing is not None
        if len(every) < LEAST_FRAMES:
            raise ScopeRegError(
                f"{len(every)} frames are tracked, and {LEAST_FRAMES} are needed",
                where=", ".join(str(sweep.path) for sweep in sweeps),
                fix="record more frames, with the probe turned about two axes",
            )
        rows = np.linspace(0, len(every) - 1, min(most, len(every))).round().astype(int)
        places = [every[row] for row in dict.fromkeys(rows.tolist())]
        frames = tuple(sweeps[number].frame(row, spacing) for number, row in places)
        return cls(
            frames,
            tuple(sweeps[number].label(row) for number, row in places),
            tuple((number, sweeps[number].rows[row]) for number, row in places),
            np.stack([sweeps[number].probe_to_world[row] for number, row in places]),
            np.array([number if own_worlds else 0 for number, _ in places], np.intp),
            _kept_aside(len(places), aside),
            Grid(sweeps[0].shape, spacing),
            sweeps[0].probe,
            tuple(sweep.world for sweep in sweeps) if own_worlds else (sweeps[0].world,),
            _before(sweeps[0]),
            tuple(_notes(sweeps, len(places), len(every))),
        )

    @property
    def count_of_worlds(self) -> int:
        return int(self.worlds.max()) + 1

    @property
    def tried(self) -> Rows:
        """Numbers of those that are not kept aside."""
        return np.setdiff1d(np.arange(len(self.frames)), self.aside)


def _check_sweeps(sweeps: Sequence[ProbeSweep]) -> None:
    if not sweeps:
        raise ScopeRegError("there are no sweeps", where="calibrate_probe(sweeps)", fix="pass one or more")
    first = sweeps[0]
    for sweep in sweeps:
        where = str(sweep.path)
        if sweep.spacing_mm is None:
            raise ScopeRegError(
                "nobody tells the size of a pixel, which is where its search begins",
                where=where,
                fix="give it in mm, to some percent: spacing_mm=; or a calibration from before: calibration=",
            )
        if sweep.shape != first.shape:
            sizes = (f"{each.shape[1]} x {each.shape[0]}" for each in (sweep, first))
            raise ScopeRegError(
                f"its images have {' pixels, those before '.join(sizes)}",
                where=where,
                fix="calibrate each size and depth of image for itself",
            )
        if not np.allclose(sweep.spacing_mm, first.spacing_mm or (), rtol=0.01):
            raise ScopeRegError(
                f"its pixels measure {sweep.spacing_mm} mm, those before {first.spacing_mm}",
                where=where,
                fix="calibrate each depth for itself",
            )


def _notes(sweeps: Sequence[ProbeSweep], tried: int, count: int) -> Iterator[str]:
    yield from dict.fromkeys(note for sweep in sweeps for note in sweep.facts.get("notes", ()))
    if tried < count:
        yield f"{tried} of {count} frames are tried, evenly from all"
    lost = sum(sum(sweep.facts.get("dropped", {}).values()) for sweep in sweeps)
    if lost:
        are = "frame is" if lost == 1 else "frames are"
        yield f"{lost} {are} left out: not tracked, or the image is not ok"


def _kept_aside(count: int, share: float) -> Rows:
    """Numbers of frames evenly from all, the ends not among them."""
    aside = round(share * count)
    return np.unique(((np.arange(aside) + 0.5) * count / max(aside, 1)).astype(np.intp))


def _before(sweep: ProbeSweep) -> tuple[Pose, tuple[float, float]] | None:
    if sweep.before is None:
        return None
    told = take_out_pixel_size(sweep.before[None], sweep.shape, str(sweep.path), stated=True)
    return Pose.from_matrix(told.image_to_world[0], IMAGE, sweep.probe), told.spacing_mm
