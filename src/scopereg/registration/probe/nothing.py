"""NoAgreement: why the poses that frames were found at do not agree with the tracker's, as far as can be told."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.registration.probe.agreement import AGREES_MM, Pairs, agree
from scopereg.registration.probe.chain import Array, Chain
from scopereg.registration.result import Result

_MIRROR = np.diag([1.0, 1.0, -1.0, 1.0])
_UNITS = {10.0: "cm instead of mm", 1000.0: "m instead of mm", 0.1: "mm where the volume is in cm"}
_CLEARLY = 2.0  # times as many frames that agree


def no_agreement(
    pairs: Pairs, chain: Chain, known: Array | None, agreeing: int, found: Sequence[Result]
) -> ScopeRegError:
    """The error for poses that do not move as the tracker says, with what would explain it."""
    where, count = "calibrate_probe(sweeps)", len(pairs)
    ok = sum(bool(one.ok) for one in found)
    least = max(_CLEARLY * agreeing, count / 2)
    if known is None and _agreeing(_mirrored(pairs)) >= least:
        return ScopeRegError(
            "the poses found move as the mirror image of what the tracker says: the volume is mirrored",
            where="calibrate_probe(volume)",
            fix="mirror it back: check the axes in its header, and the order of its slices",
        )
    for factor, words in _UNITS.items():
        if known is None and _agreeing(_scaled(pairs, factor)) >= least:
            return ScopeRegError(
                f"the tracker's lengths are told in {words}: poses agree with {factor:g} times as far",
                where=where,
                fix="store the tracker's poses in mm",
            )
    told = f"{agreeing} of {count} frames were found where the others put them"
    if 2 * ok < count:
        return ScopeRegError(
            f"{told}, and {ok} poses are reliable: the volume may be of another object",
            where="calibrate_probe(volume)",
            fix="pass a volume of the object that the sweeps show; check the size of pixels and voxels",
        )
    fix = "check that probe and object were tracked, and neither slipped; sweeps of several sessions: own_worlds=True"
    known_words = " with the world's pose that is given" if known is not None else ""
    return ScopeRegError(f"{told}{known_words}: the frames are not those of one rigid body", where=where, fix=fix)


def _agreeing(pairs: Pairs) -> int:
    return int((pairs.apart_mm(agree(pairs)) <= AGREES_MM).sum())


def _mirrored(pairs: Pairs) -> Pairs:
    """As a mirrored volume has it: planes are the same from either side."""
    return Pairs(pairs.tracked, _MIRROR @ pairs.found @ _MIRROR, pairs.worlds, pairs.grid)


def _scaled(pairs: Pairs, factor: float) -> Pairs:
    tracked = pairs.tracked.copy()
    tracked[:, :3, 3] *= factor
    return Pairs(tracked, pairs.found, pairs.worlds, pairs.grid)
