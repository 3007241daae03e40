"""Calibrate: ImageToProbe from tracked frames and a volume of the same object, by where the frames are found in it.

Some frames are sought anywhere in the volume. X, and the tracker's world in the volume (Z), follow from the poses that
agree; they tell where to look for all others. Then X, Z and the size of pixels are refined together by the likeness of
all frames that agree, and once more after frames were located with the pixels found. Frames that are kept aside have no
part in any of this, but are located in the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.geometry import SUCCESS_MM, Pose
from scopereg.images import Frame, Volume, check_content
from scopereg.io.plus import IMAGE
from scopereg.io.probe_sweeps import ProbeSweep
from scopereg.progress import timed
from scopereg.registration.model import Registrar
from scopereg.registration.probe.agreement import AGREES_MM, Pairs, agree, fit
from scopereg.registration.probe.calibrated import (
    KEPT_ASIDE,
    LEAST_KNOWN,
    LEAST_USED,
    LEFT_OUT,
    NOT_FOUND,
    USED,
    FrameResidual,
    ProbeCalibration,
    doubts_of,
)
from scopereg.registration.probe.certainty import Certainty, certainty_of
from scopereg.registration.probe.chain import Array, Chain, Grid, Rows, chain_of, distances_mm
from scopereg.registration.probe.chosen import LEAST_FRAMES, Chosen
from scopereg.registration.probe.likeness import Holds, ProbeOnGround, ground_of
from scopereg.registration.probe.nothing import no_agreement
from scopereg.registration.probe.seeking import Seeker, in_turn, seems_right
from scopereg.registration.result import Result
from scopereg.registration.settings import DEFAULT

_ANEW = 0.015  # relative change of pixels after which frames are located anew
_WITHOUT_SCALES_MM = (3.0,)  # of a fit without a frame, from where all of them lead


@dataclass(frozen=True)
class ProbeSettings:
    """How a probe is calibrated."""

    most: int = 30
    """Frames at most, taken evenly from all that are tracked."""
    aside: float = 0.2
    """Share of them that is kept aside: they tell how well the others foretell where a frame lies."""
    keep_pixels: bool = False
    """Take the size of a pixel for granted."""
    own_worlds: bool = False
    """Every sweep has a world of its own: the reference, or the tracker, was moved between them."""

    def __post_init__(self) -> None:
        if self.most < LEAST_FRAMES:
            raise ScopeRegError(f"{self.most} frames", where="most=", fix=f"take {LEAST_FRAMES} or more")
        if not 0 <= self.aside <= 0.5:
            raise ScopeRegError(f"a share of {self.aside:g}", where="aside=", fix="pass 0 to 0.5")


def calibrate_probe(
    sweeps: Sequence[ProbeSweep],
    volume: Volume,
    settings: ProbeSettings | None = None,
    *,
    method: str | Path | Registrar = DEFAULT,
    world: Pose | None = None,
    device: str = "auto",
) -> ProbeCalibration:
    """ImageToProbe from sweeps with one probe, one depth and one size of image, and a volume in mm.

    `world` is the pose of the tracker's world in the volume, where it is known; by default it is sought too, for which
    the probe must be turned about two axes. A calibration from before that the sweeps bring is where the search begins.
    """
    settings = settings or ProbeSettings()
    chosen = Chosen.of(sweeps, most=settings.most, aside=settings.aside, own_worlds=settings.own_worlds)
    known = None if world is None else np.stack([world.matrix] * chosen.count_of_worlds)
    search = _Search(chosen, Seeker(volume, method, device), known, settings)
    with timed(f"calibrated by {len(chosen.frames)} frames"):
        search.run()
    return search.finished()


class _Search:
    """The chain, better and better, and what is known of each frame."""

    def __init__(self, chosen: Chosen, seeker: Seeker, known: Array | None, settings: ProbeSettings) -> None:
        self.chosen, self.seeker, self.known = chosen, seeker, known
        self.holds = Holds(world=known is not None, pixels=settings.keep_pixels)
        self.least = LEAST_USED if known is None else LEAST_KNOWN
        self.grid = chosen.grid  # its pixels are those that frames are located with
        self.found: dict[int, Result] = {}
        self.reasons: dict[int, str] = {}
        self.used: list[int] = []
        self.ground: ProbeOnGround | None = None
        self.chain: Chain

    def run(self) -> None:
        self.chain = self._first()
        self._locate(self.chosen.tried)
        self.chain = self._agreed(self.chain)
        self._refine(judged=False)
        if not np.allclose(self.chain.grid.spacing_mm, self.grid.spacing_mm, rtol=_ANEW, atol=0):
            self.grid = self.chain.grid
            self._locate(self.chosen.tried)
        self._refine(judged=True)
        self._locate(self.chosen.aside)

    def _frames(self, rows: Sequence[int] | Rows) -> list[Frame]:
        """Some frames with the pixels of now."""
        return [replace(self.chosen.frames[row], spacing_mm=self.grid.spacing_mm) for row in rows]

    def _first(self) -> Chain:
        """From frames that are found anywhere, or near where a calibration from before puts them."""
        begin = self._begin()
        order = [int(self.chosen.tried[place]) for place in in_turn(len(self.chosen.tried))]
        order = [row for row in order if self._shows(row)]
        if begin is not None and self.known is not None:
            near = order[: max(2 * self.least, 6)]
            self._note(near, self.seeker.near(self._frames(near), self._predicted(begin, near)))
            if sum(seems_right(self.found[row]) for row in near if row in self.found) > self.least:
                return self._agreed(begin)
        apart = self._motions_mm(order)
        sought = self.seeker.anywhere(self._frames(order), apart, lambda found: self._is_enough(found, order))
        self.found |= {order[number]: one for number, one in sought.items()}
        return self._agreed(begin)

    def _motions_mm(self, rows: Sequence[int]) -> Array:
        """How far the probe moved between frames (N, N), turns as ways of the image's lever."""
        tracked = self.chosen.tracked[rows]
        shifts = np.linalg.norm(tracked[:, None, :3, 3] - tracked[None, :, :3, 3], axis=-1)
        turned = np.linalg.norm(tracked[:, None, :3, :3] - tracked[None, :, :3, :3], axis=(-2, -1)) / math.sqrt(2)
        far = np.where(self.chosen.worlds[rows][:, None] == self.chosen.worlds[rows], 0.0, np.inf)
        motions: Array = shifts + self.grid.lever_mm * turned + far
        return motions

    def _is_enough(self, sought: Mapping[int, Result], order: Sequence[int]) -> bool:
        """Whether so many frames, found anywhere, agree that they may tell where the others lie."""
        rows = [order[number] for number in sought]
        if len(rows) <= self.least or len(set(self.chosen.worlds[rows].tolist())) < self.chosen.count_of_worlds:
            return False
        poses = np.stack([one.pose.matrix for one in sought.values()])
        pairs = Pairs(self.chosen.tracked[rows], poses, self.chosen.worlds[rows], self.grid)
        return int((pairs.apart_mm(agree(pairs, self.known)) <= AGREES_MM).sum()) > self.least

    def _shows(self, row: int) -> bool:
        try:
            check_content(self.chosen.frames[row])
        except ScopeRegError as error:
            self.reasons[row] = error.what
            return False
        return True

    def _begin(self) -> Chain | None:
        if self.chosen.before is None:
            return None
        pose, spacing = self.chosen.before
        z = self.known if self.known is not None else np.stack([np.eye(4)] * self.chosen.count_of_worlds)
        return chain_of(pose.matrix, list(z), Grid(self.grid.shape, spacing)).with_pixels(self.grid.spacing_mm)

    def _predicted(self, chain: Chain, rows: Sequence[int] | Rows) -> Array:
        """Where a chain puts frames, told for the pixels that they are located with."""
        here = chain.with_pixels(self.grid.spacing_mm)
        return here.predicted(self.chosen.tracked[rows], self.chosen.worlds[rows])

    def _locate(self, rows: Sequence[int] | Rows) -> None:
        """Frames near where the chain puts them; what was found of them before is forgotten."""
        rows = [int(row) for row in rows if self._shows(int(row))]
        found = self.seeker.near(self._frames(rows), self._predicted(self.chain, rows))
        self._note(rows, found)

    def _note(self, rows: Sequence[int], found: Sequence[Any]) -> None:
        for row, one in zip(rows, found, strict=True):
            self.found.pop(row, None)
            if isinstance(one, Result):
                self.found[row] = one.without_images()
                self.reasons.pop(row, None)
            else:
                self.reasons[row] = one.what

    def _pairs(self, rows: Sequence[int]) -> Pairs:
        poses = np.stack([self.found[row].pose.matrix for row in rows])
        return Pairs(self.chosen.tracked[rows], poses, self.chosen.worlds[rows], self.grid)

    def _agreed(self, begin: Chain | None) -> Chain:
        """By the poses found so far, of frames that are not kept aside."""
        rows = sorted(row for row in self.found if row not in self.chosen.aside)
        self._check_found(rows)
        pairs = self._pairs(rows)
        start = None if begin is None else begin.with_pixels(self.grid.spacing_mm)
        chain = agree(pairs, self.known, start)
        agreeing = int((pairs.apart_mm(chain) <= AGREES_MM).sum())
        if agreeing < self.least or 3 * agreeing < len(rows):
            raise no_agreement(pairs, chain, self.known, agreeing, [self.found[row] for row in rows])
        return chain

    def _check_found(self, rows: Sequence[int]) -> None:
        missing = set(range(self.chosen.count_of_worlds)) - {int(self.chosen.worlds[row]) for row in rows}
        if len(rows) < self.least or missing:
            of = f" of sweep {min(missing)}" if missing and len(rows) >= self.least else ""
            raise ScopeRegError(
                f"{len(rows)} frames{of} were found in the volume, and {self.least} are needed",
                where="calibrate_probe(volume)",
                fix="check that the volume is of the object that the sweeps show, and the size of pixels and voxels",
            )

    def _refine(self, *, judged: bool) -> None:
        """X, Z and pixels by the likeness of frames that agree.

        Where they are `judged`, one that is not ok must agree to within `SUCCESS_MM`.
        """
        rows = sorted(row for row in self.found if row not in self.chosen.aside)
        apart = self._pairs(rows).apart_mm(self.chain.with_pixels(self.grid.spacing_mm))
        agreeing = [row for row, far in zip(rows, apart, strict=True) if far <= AGREES_MM]
        near = {row for row, far in zip(rows, apart, strict=True) if far <= SUCCESS_MM}
        good = [row for row in agreeing if self.found[row].ok is not False or row in near]
        worlds_of_good = set(self.chosen.worlds[good].tolist())
        enough = len(good) >= max(self.least, len(agreeing) // 2) and len(worlds_of_good) == self.chosen.count_of_worlds
        self.used = good if judged and enough else agreeing
        ready = [frame.for_registration() for frame in self._frames(self.used)]
        tracked, worlds = self.chosen.tracked[self.used], self.chosen.worlds[self.used]
        ground = ground_of(self.seeker.locator, ready[0])
        self.ground = ProbeOnGround(ready, tracked, worlds, ground, self.holds)
        self.chain = self.ground.descend(self.chain, np.ones(len(self.used)))

    def finished(self) -> ProbeCalibration:
        """The calibration with all that is told of it."""
        chosen, chain = self.chosen, self.chain
        rows = self._residuals()
        return ProbeCalibration(
            Pose.from_matrix(chain.x, IMAGE, chosen.probe),
            chain.grid.spacing_mm,
            chain.grid.shape,
            tuple(
                Pose.from_matrix(z, name, self.seeker.volume.frame_of_reference)
                for z, name in zip(chain.z, chosen.names, strict=True)
            ),
            self._certainty(),
            tuple(rows),
            self.known is not None,
            tuple(doubts_of(rows, least=self.least)),
            chosen.notes,
            chosen.before,
            {"method": self.seeker.locator.method.name, "least": self.least},
            tuple(self.found.get(row) for row in range(len(chosen.frames))),
            tuple(Pose.from_matrix(place) for place in chain.predicted(chosen.tracked, chosen.worlds)),
        )

    def _certainty(self) -> Certainty:
        assert self.ground is not None
        equations = self.ground.equations(self.chain)
        free = self.ground.free(equations.design.shape[2])
        return certainty_of(equations, np.ones(len(self.used)), free, self.chain.grid.lever_mm)

    def _residuals(self) -> list[FrameResidual]:
        assert self.ground is not None
        predicted = self._predicted(self.chain, range(len(self.chosen.frames)))
        alike = dict(zip(self.used, self.ground.similarity(self.chain), strict=True))
        without = self._without()
        made = []
        for row, label in enumerate(self.chosen.labels):
            one, (sweep, number) = self.found.get(row), self.chosen.places[row]
            apart = math.nan if one is None else self._apart_mm(one, predicted[row])
            made.append(
                FrameResidual(
                    label,
                    sweep,
                    number,
                    self._state(row),
                    apart,
                    without.get(row, math.nan),
                    float(alike.get(row, math.nan)),
                    None if one is None else one.ok,
                    self._reason(row, apart),
                )
            )
        return made

    def _apart_mm(self, one: Result, predicted: Array) -> float:
        return float(distances_mm(predicted[None], one.pose.matrix[None], self.grid)[0])

    def _state(self, row: int) -> str:
        if row in self.used:
            return USED
        if row in self.chosen.aside:
            return KEPT_ASIDE
        return LEFT_OUT if row in self.found else NOT_FOUND

    def _reason(self, row: int, apart_mm: float) -> str:
        if row not in self.found:
            return self.reasons.get(row, "")
        if row in self.used or row in self.chosen.aside:
            return self.found[row].reason if self.found[row].ok is False else ""
        if apart_mm > AGREES_MM:
            return "it was found elsewhere than the others put it"
        return self.found[row].reason

    def _without(self) -> dict[int, float]:
        """How far each frame that was used lies from where a calibration by the poses of the others puts it."""
        if len(self.used) <= self.least:
            return {}
        pairs, start = self._pairs(self.used), self.chain.with_pixels(self.grid.spacing_mm)
        told = {}
        for place, row in enumerate(self.used):
            others = np.delete(np.arange(len(self.used)), place)
            if len(set(pairs.worlds[others])) < self.chosen.count_of_worlds:
                continue  # the only one of its world
            chain = fit(pairs.subset(others), start, known=self.known is not None, scales_mm=_WITHOUT_SCALES_MM)
            told[row] = float(pairs.subset(np.array([place])).apart_mm(chain)[0])
        return told
