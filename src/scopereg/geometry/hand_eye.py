"""HandEye: what joins a camera to a tracked body and the tracker's world to that of the camera's map, in closed form.

A tracker sees a body at T, and what is fixed to the body finds itself at F in a map: F = Z T X, with X from the one to
the other and Z from the tracker's world to the map. Both are unknown and the same for all pairs: the
robot-world/hand-eye problem. Rotations first (Shah, ASME J. Mechanisms Robotics 5, 031007, 2013), then shifts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

LEAST_PAIRS = 3  # with turns about two axes between them
_SAME_SHIFT = 1e-9  # singular values below that share of the largest: shifts that nothing tells are taken for 0


class HandEye(NamedTuple):
    """Rigid 4x4 matrices, and how well the turns of the pairs tell them."""

    x: Matrix
    z: Matrix
    told: float  # 0: all turns are about one axis, or there are none, and rotations are any of many


def hand_eye(tracked: Matrix, found: Matrix) -> HandEye:
    """X and Z that fit found = Z tracked X best, from matrices (N, 4, 4); every pair counts alike.

    T X = Z^-1 F: of the rotations, vec(Rx) and vec(Rz) are the first singular vectors of the sum of Kronecker products
    of Rf and Rt; the next singular value says how well others would do.
    """
    turns = zip(found[:, :3, :3], tracked[:, :3, :3], strict=True)
    total = np.sum([np.kron(one, other) for one, other in turns], axis=0) / len(found)
    left, sizes, right = np.linalg.svd(total)
    x, back = nearest_rotation(right[0].reshape(3, 3).T), nearest_rotation(left[:, 0].reshape(3, 3).T)
    return HandEye(*_with_shifts(tracked, found, x, back.T), float(1 - sizes[1] / max(sizes[0], 1e-12)))


def hand_eye_of_turn(tracked: Matrix, found: Matrix, x: Matrix) -> HandEye:
    """The same where somebody knows the rotation (3, 3) of X: that of Z follows from it, and the shifts of both."""
    z = nearest_rotation((found[:, :3, :3] @ x.T @ tracked[:, :3, :3].transpose(0, 2, 1)).mean(0))
    return HandEye(*_with_shifts(tracked, found, x, z), 0.0)


def _with_shifts(tracked: Matrix, found: Matrix, x: Matrix, z: Matrix) -> tuple[Matrix, Matrix]:
    """Both as matrices with the shifts that fit best: Rz (Rt tx + tt) + tz = tf, linear in tx and tz."""
    turned = z @ tracked[:, :3, :3]
    matrix = np.concatenate([turned, np.broadcast_to(np.eye(3), turned.shape)], 2).reshape(-1, 6)
    right = (found[:, :3, 3] - tracked[:, :3, 3] @ z.T).ravel()
    shifts = np.linalg.lstsq(matrix, right, rcond=_SAME_SHIFT)[0]
    return _matrix(x, shifts[:3]), _matrix(z, shifts[3:])


def _matrix(rotation: Matrix, shift: Matrix) -> Matrix:
    made = np.eye(4)
    made[:3, :3], made[:3, 3] = rotation, shift
    return made


def nearest_rotation(matrix: Matrix) -> Matrix:
    """The rotation nearest to a matrix (3, 3), after its sign was chosen such that it is none of a mirror image."""
    left, _, right = np.linalg.svd(matrix * (np.sign(np.linalg.det(matrix)) or 1.0))
    left[:, 2] *= np.sign(np.linalg.det(left @ right))
    rotation: Matrix = left @ right
    return rotation
