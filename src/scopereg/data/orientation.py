"""Orientation: where the axes of a file point, and which files of a tree point elsewhere than the rest.

Loaders take voxels as stored, so a file that someone turned is a turned picture. What the publishers' headers say is
known from copies alone: the most common orientation of a tree counts as theirs, and one that is not expected is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

ROLES = ("image", "labels")
_TOWARDS, _AWAY = "LPS", "RAI"  # ITK counts millimetres towards left, posterior, superior
_AXIS = {letter: axis for letters in (_TOWARDS, _AWAY) for axis, letter in enumerate(letters)}


def orientation_code(direction: npt.ArrayLike) -> str:
    """Directions of the axes x, y, z: LPS is left, posterior, superior; columns of `direction` are the axes in LPS."""
    matrix = np.asarray(direction, dtype=float)[:3, :3]
    letters = ""
    for column in matrix.T:
        axis = int(np.abs(column).argmax())
        letters += (_TOWARDS if column[axis] > 0 else _AWAY)[axis]
    return letters


def usual_codes(codes: Mapping[str, Sequence[str]], published: str) -> tuple[str, ...]:
    """The usual code of each role: the published one if half of the files have it, else the most common."""
    usual = []
    for role in range(max(map(len, codes.values()), default=0)):
        counts = Counter(found[role] for found in codes.values() if len(found) > role)
        (common, _), *_ = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        usual.append(published if 2 * counts[published] >= counts.total() else common)
    return tuple(usual)


def odd_orientations(codes: Mapping[str, Sequence[str]], published: str) -> dict[str, str]:
    """Cases whose image or labels point elsewhere than usual, and how."""
    usual = usual_codes(codes, published)
    odd = {}
    for name, found in codes.items():
        reasons = [_difference(ROLES[k], code, usual[k]) for k, code in enumerate(found) if code != usual[k]]
        if reasons:
            odd[name] = "; ".join(reasons)
    return odd


def orientation_facts(codes: Mapping[str, Sequence[str]], published: str) -> dict[str, Any]:
    """Facts to keep with a set."""
    return {**dict(zip(map(_plural, ROLES), usual_codes(codes, published), strict=False)), "expected": published}


def unexpected(facts: Mapping[str, Any]) -> str | None:
    """A sentence if by its `orientation_facts` a tree is not turned as its publishers' files, so far as is known."""
    others = [f"{role} are {code}" for role, code in facts.items() if role != "expected" and code != facts["expected"]]
    if not others:
        return None
    words = "voxels are used as stored, look at one before training"
    return f"{' and '.join(others)}, {facts['expected']} was expected: {words}"


def _difference(role: str, code: str, usual: str) -> str:
    permuted = [_AXIS[letter] for letter in code] != [_AXIS[letter] for letter in usual]
    flipped = [axis for axis, one, other in zip("xyz", code, usual, strict=True) if one != other]
    how = "axes are permuted" if permuted else f"{' and '.join(flipped)} {'are' if len(flipped) > 1 else 'is'} flipped"
    return f"the {role} is {code} where the others are {usual}: {how}"


def _plural(role: str) -> str:
    return "images" if role == "image" else role
