"""Rigid geometry: poses in millimetres for people, rotations and planes in voxels for networks."""

from scopereg.geometry.kabsch import RigidFit, polar_rotation, weighted_kabsch
from scopereg.geometry.pose import Pose
from scopereg.geometry.rotations import (
    ROTATION_TOLERANCE,
    euler_deg_from_rotation,
    geodesic_angle_deg,
    is_rotation,
    rotation_from_6d,
    rotation_from_euler_deg,
    rotation_from_vector,
    six_d_from_rotation,
    vector_from_rotation,
)
from scopereg.geometry.slicing import (
    MIN_INSIDE,
    VoxelPoses,
    centred_axis,
    check_magnitude,
    compose_poses,
    inside_fraction,
    invert_poses,
    place_plane,
    plane_points,
    resample_volume,
    sample_points,
    sample_poses,
    sample_slice,
)

__all__ = [
    "MIN_INSIDE",
    "ROTATION_TOLERANCE",
    "Pose",
    "RigidFit",
    "VoxelPoses",
    "centred_axis",
    "check_magnitude",
    "compose_poses",
    "euler_deg_from_rotation",
    "geodesic_angle_deg",
    "inside_fraction",
    "invert_poses",
    "is_rotation",
    "place_plane",
    "plane_points",
    "polar_rotation",
    "resample_volume",
    "rotation_from_6d",
    "rotation_from_euler_deg",
    "rotation_from_vector",
    "sample_points",
    "sample_poses",
    "sample_slice",
    "six_d_from_rotation",
    "vector_from_rotation",
    "weighted_kabsch",
]
