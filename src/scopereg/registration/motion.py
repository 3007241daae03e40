"""Motion: where a probe that was followed so far will be next, and how surely; constant velocity on rigid poses.

A pose is the place of the frame's middle and the frame's turn. Changes of it are shifts and turns in the frame's own
axes, turns as lengths at a lever, so that all six are millimetres. The state is a pose and its velocity with their
covariance; predictions and measurements are weighed against each other as a Kalman filter does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from scopereg.geometry import Pose, rotation_from_vector, vector_from_rotation
from scopereg.registration.track_settings import MotionSettings

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Motion:
    """A pose at a time, with velocity and covariance. Immutable: steps give new ones."""

    time_s: float
    pose: Pose
    middle_mm: tuple[float, float]  # of the frame
    velocity: Array  # (6,), mm/s
    covariance: Array  # (12, 12), of the pose's change and the velocity
    settings: MotionSettings

    @classmethod
    def begin(
        cls, pose: Pose, time_s: float, error_mm: float, middle_mm: tuple[float, float], settings: MotionSettings
    ) -> Motion:
        """At rest at a measured pose."""
        spread = np.r_[np.full(6, error_mm), np.full(6, settings.first_velocity_mm_s)]
        return cls(time_s, pose, middle_mm, np.zeros(6), np.diag(spread**2), settings)

    def predicted(self, time_s: float) -> Motion:
        """Where it is at a later time if it goes on as it went."""
        step = time_s - self.time_s
        shift, unit = np.eye(6) * step, np.eye(6)
        onward = np.block([[unit, shift], [np.zeros((6, 6)), unit]])
        # A push of random strength all the while: the pose has half of what the velocity has, times the step.
        push = np.r_[np.full(6, step**2 / 2), np.full(6, step)] * self.settings.acceleration_mm_s2
        pushed = np.zeros((12, 12))
        for axis in range(6):
            part = [axis, axis + 6]
            pushed[np.ix_(part, part)] = np.outer(push[part], push[part])
        covariance = onward @ self.covariance @ onward.T + pushed
        return replace(self, time_s=time_s, pose=self.moved(self.velocity * step), covariance=covariance)

    def distance(self, measured: Pose, error_mm: float) -> float:
        """Squared distance of a measurement in standard deviations of both: some six where it belongs to the motion."""
        away = self.away(measured)
        return float(away @ np.linalg.solve(self._spread(error_mm), away))

    def updated(self, measured: Pose, error_mm: float) -> Motion:
        """Drawn towards a measurement, the more so the surer it is."""
        gain = self.covariance[:, :6] @ np.linalg.inv(self._spread(error_mm))
        change = gain @ self.away(measured)
        covariance = self.covariance - gain @ self.covariance[:6]
        return replace(
            self,
            pose=self.moved(change[:6]),
            velocity=self.velocity + change[6:],
            covariance=(covariance + covariance.T) / 2,
        )

    @property
    def error_mm(self) -> float:
        """Usual error of the pose, of shift and turn together."""
        return float(np.sqrt(np.trace(self.covariance[:6, :6])))

    def away(self, other: Pose) -> Array:
        """Shift and turn (6,) that lead from this pose to another."""
        back = self.pose.rotation.T
        shift = back @ (self._middle(other) - self._middle(self.pose))
        turn = vector_from_rotation(torch.from_numpy(back @ other.rotation)).numpy()
        return np.r_[shift, turn * self.settings.lever_mm]

    def moved(self, change: Array) -> Pose:
        """This pose after a shift and a turn (6,)."""
        turn = rotation_from_vector(torch.from_numpy(change[3:] / self.settings.lever_mm)).numpy()
        rotation = self.pose.rotation @ turn
        middle = self._middle(self.pose) + self.pose.rotation @ change[:3]
        translation = middle - rotation @ np.r_[self.middle_mm, 0.0]
        return Pose(rotation, translation, self.pose.source, self.pose.target)

    def _middle(self, pose: Pose) -> Array:
        return np.asarray(pose.apply(np.r_[self.middle_mm, 0.0]))

    def _spread(self, error_mm: float) -> Array:
        return self.covariance[:6, :6] + np.eye(6) * error_mm**2
