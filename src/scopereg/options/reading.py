"""What the files of frames and volumes may leave open: options that several verbs have in common."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scopereg.options.words import Spacing, VolumeSpacing


@dataclass(frozen=True)
class FrameReading:
    """What a frame's file may leave open."""

    spacing: Spacing = ()
    """Size of a pixel in mm, one number or x and y; needed where the file does not tell."""
    region: int | None = None
    """Ultrasound region of a DICOM image, where it has several pictures."""
    calibration: Path | None = None
    """Configuration of PLUS (XML) with the transform from Image to Probe, for PLUS sequences."""


@dataclass(frozen=True)
class VolumeReading:
    """What a volume's file may leave open."""

    volume_spacing: VolumeSpacing = ()
    """Size of a voxel in mm, x y z, where the volume's file does not tell."""
    volume_index: int | None = None
    """Point in time, where the volume's file holds several."""
    series: str | None = None
    """DICOM series, where the volume's folder holds several."""
