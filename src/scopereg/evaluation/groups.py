"""Groups: results of the same data, protocol and magnitude, their methods paired frame by frame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scopereg.errors import ScopeRegError
from scopereg.evaluation.results import FrameResult

START = "identity"  # the method that does nothing
_SAME_FRAME = 0.01  # mm and voxels: the noise of devices and of rounding in files, far below another draw of poses

Place = tuple[int, str, int]  # fold, case, frame
Frames = dict[Place, FrameResult]


@dataclass(frozen=True, eq=False)
class Group:
    """Methods over the same frames in the same order."""

    dataset: str
    protocol: str
    magnitude: float
    methods: dict[str, list[FrameResult]]
    notes: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        return _label(self.dataset, self.protocol, self.magnitude)

    @property
    def facts(self) -> dict[str, str]:
        return {"dataset": self.dataset, "protocol": self.protocol, "magnitude": f"{self.magnitude:g}"}

    def column(self, method: str, name: str) -> NDArray[np.float64]:
        """A number of each frame."""
        return np.array([getattr(row, name) for row in self.methods[method]], np.float64)

    @property
    def patients(self) -> list[str]:
        return [row.patient for row in self._any]

    @property
    def folds(self) -> list[int]:
        return [row.fold for row in self._any]

    @property
    def start_mm(self) -> NDArray[np.float64]:
        return self.column(next(iter(self.methods)), "start_mm")

    @property
    def _any(self) -> list[FrameResult]:
        return next(iter(self.methods.values()))


def group_results(rows: Iterable[FrameResult], *, intersect: bool = False) -> list[Group]:
    """Groups by dataset, protocol and magnitude, in this order; their methods in the order of the rows.

    Methods that did not see the same frames are an error that names the counts, or with `intersect` are cut down to the
    frames that all of them have, with a note. Frames of one name that are not the same frame are always an error.
    """
    found: dict[tuple[str, str, float], dict[str, Frames]] = {}
    for row in rows:
        methods = found.setdefault((row.dataset, row.protocol, row.magnitude), {})
        methods.setdefault(row.method, {})[(row.fold, row.case, row.frame)] = row
    return [_pair(*key, found[key], intersect) for key in sorted(found)]


def _pair(dataset: str, protocol: str, magnitude: float, methods: dict[str, Frames], intersect: bool) -> Group:
    where = _label(dataset, protocol, magnitude)
    common = set.intersection(*(set(frames) for frames in methods.values()))
    counts = {method: len(frames) for method, frames in methods.items()}
    notes = []
    if any(count != len(common) for count in counts.values()):
        said = ", ".join(f"{method} {count}" for method, count in counts.items())
        if not intersect or not common:
            raise ScopeRegError(
                f"the methods do not have the same frames: {said}; {len(common)} are common to all",
                where=where,
                fix="evaluate them on the same frames" + (", or pass intersect=True" if common else ""),
            )
        notes.append(f"Only the {len(common)} frames that all methods have are compared; there were: {said}.")
    places = sorted(common)
    paired = {method: [frames[place] for place in places] for method, frames in methods.items()}
    _check_same_frames(paired, where)
    return Group(dataset, protocol, magnitude, paired, notes)


def _label(dataset: str, protocol: str, magnitude: float) -> str:
    """In words; tracked sweeps have no magnitude."""
    return f"{dataset}, {protocol} protocol" + (f", pm {magnitude:g}" if magnitude else "")


def _check_same_frames(methods: dict[str, list[FrameResult]], where: str) -> None:
    first, *others = methods
    for other in others:
        pairs = list(zip(methods[first], methods[other], strict=True))
        a, b = (np.array([_pose_marks(row) for row in methods[method]]) for method in (first, other))
        close = np.isclose(a, b, 0, _SAME_FRAME, equal_nan=True).all(1)
        wrong = [row for (row, twin), same in zip(pairs, close, strict=True) if not same or row.patient != twin.patient]
        if wrong:
            raise ScopeRegError(
                f"{len(wrong)} of {len(pairs)} frames are not the same for {first} and {other}: the true pose or the "
                f"patient differs, first in case {wrong[0].case}, frame {wrong[0].frame}, fold {wrong[0].fold}",
                where=where,
                fix="evaluate both on the same data, with the same seed",
            )


def _pose_marks(row: FrameResult) -> tuple[float, ...]:
    return row.start_mm, row.true_tx, row.true_ty, row.true_tz
