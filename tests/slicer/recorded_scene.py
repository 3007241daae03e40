"""A tracked recording in the stand-in for 3D Slicer, as PLUS and SlicerIGT leave it there: image under transforms.

ImageToProbe stands still and holds the size of a pixel, ProbeToReference was recorded with the image, and above both
ReferenceToRas stands still again. What lies in the volume is known: the frames of patient_files.py.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import SimpleITK as sitk
from fake_nodes import TransformNode, VolumeNode
from fake_recording import LPS_TO_RAS, BrowserNode, SequenceNode, load_volume, volume_node
from patient_files import PROBE, Case

from scopereg import Frame, Pose
from scopereg.geometry import sample_slice
from scopereg.images import pose_to_voxels

OFF = Pose.from_euler_deg((0, 0, 0), (1.2, -1.2, 1.0))  # what the tracker is wrong by, in the volume's world
TO_WORLD = Pose.from_euler_deg((30, 10, -75), (100, -60, 20)).matrix  # ReferenceToRas
LOST = 3  # frame of which the tracker knew nothing


def swept(case: Case) -> Case:
    """The same volume, seen by 24 parallel frames 0.7 mm apart, tilted to it."""
    volume, side = case.volume, 56
    step_mm = volume.isotropic_spacing_mm
    blank = Frame(np.zeros((side, side)), step_mm, (0, 0))
    turn = volume.direction @ Pose.from_euler_deg((12, -8, 15), (0, 0, 0)).rotation
    middle = volume.centre_mm - turn @ blank.centre_mm
    truth = [Pose(turn, middle + turn[:, 2] * 0.7 * (row - 11.5)) for row in range(24)]
    cuts = [
        sample_slice(volume.array, *pose_to_voxels(pose, blank, volume), slice_shape=(side, side)) for pose in truth
    ]
    return case._replace(frames=[Frame(cut.clip(0, 1), step_mm, (0, 0)) for cut in cuts], truth=truth)


class Recorded(NamedTuple):
    """Nodes of the scene."""

    browser: BrowserNode
    image: VolumeNode
    volume: VolumeNode
    probe_to_reference: TransformNode
    reference_to_ras: TransformNode
    pixel_to_reference_ras: np.ndarray  # (F, 4, 4), the truth and what the tracker is wrong by


def record(slicer: ModuleType, case: Case, *, name: str = "Sweep") -> Recorded:
    """The scene with the recording, and with the volume, which lies under a transform of its own."""
    scene, spacing_mm = slicer.mrmlScene, case.frames[0].spacing_mm[0]
    image_to_probe = PROBE.matrix @ np.diag([spacing_mm, spacing_mm, spacing_mm, 1.0])
    pixel_to_reference = [
        LPS_TO_RAS @ OFF.matrix @ pose.matrix @ np.diag([spacing_mm, spacing_mm, spacing_mm, 1.0])
        for pose in case.truth
    ]
    images, transforms = dict[str, Any](), dict[str, Any]()
    for row, (frame, pixels_to) in enumerate(zip(case.frames, pixel_to_reference, strict=True)):
        pixels = (frame.numpy() * 255).round().astype(np.uint8)
        tracked = np.eye(4) if row == LOST else pixels_to @ np.linalg.inv(image_to_probe)
        images[f"{row / 10:.3f}"] = volume_node("", pixels[None], np.eye(4))
        transforms[f"{row / 10:.3f}"] = TransformNode("", tracked)
    above = scene.add(TransformNode(f"{name}: ReferenceToRas", TO_WORLD))
    moving = scene.add(TransformNode(f"{name}: ProbeToReference", np.eye(4)))
    still = scene.add(TransformNode(f"{name}: ImageToProbe", image_to_probe))
    image = scene.add(volume_node("Image", images["0.000"].GetImageData().pixels, np.eye(4)))
    moving.parent_transform, still.parent_transform, image.parent_transform = above, moving, still
    shown = [(image, SequenceNode("Image", images)), (moving, SequenceNode("ProbeToReference", transforms))]
    browser = scene.add(BrowserNode(name, shown))
    volume = _volume(scene, case.folder / "volume.nii.gz")
    return Recorded(browser, image, volume, moving, above, np.stack(pixel_to_reference))


def _volume(scene: Any, path: Path) -> VolumeNode:
    """As 3D Slicer loads it, with ITK."""
    node = load_volume(scene, str(path), {"name": "heart"})
    node.parent_transform = scene.add(TransformNode("HeartToRas", Pose.from_euler_deg((0, 40, 5), (7, 8, 9)).matrix))
    return node


def grey_at(volume: VolumeNode, points_ras: np.ndarray) -> np.ndarray:
    """Values of a volume node at points (N, 3) of the world; NaN outside of it."""
    image = volume.GetImageData()
    assert image is not None
    to_world = np.eye(4) if volume.parent_transform is None else volume.parent_transform.to_world
    ijk = np.linalg.inv(to_world @ volume._matrix._values) @ np.column_stack([points_ras, np.ones(len(points_ras))]).T
    voxels = sitk.GetImageFromArray(image.pixels.astype(np.float32))
    size = np.array(voxels.GetSize())
    inside = ((ijk[:3].T >= 0) & (size - 1 >= ijk[:3].T)).all(1)
    values = np.full(len(points_ras), np.nan)
    values[inside] = [voxels.EvaluateAtContinuousIndex(point.tolist()) for point in ijk[:3].T[inside]]
    return values
