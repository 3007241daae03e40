"""Register: one frame in one volume, from images or files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.io.frames import read_frame
from scopereg.io.volumes import read_volume
from scopereg.registration.default_model import DEFAULT
from scopereg.registration.locator import Locator
from scopereg.registration.notes import reader_notes
from scopereg.registration.result import Result
from scopereg.registration.start import Start


def register(
    frame: Frame | Path | str,
    volume: Volume | Path | str,
    *,
    method: str = DEFAULT,
    start: Pose | Path | str | None = None,
    refine: bool = False,
    agreement: bool = False,
    wide: bool = False,
    device: str = "auto",
) -> Result:
    """Find `ImageToVolume` of a frame in a volume; either may be a file. `.save("pose.tfm")` writes what it gives.

    `method` is a model of the package (`registration.model.names()`), the path of weights (.safetensors), simpleitk-mi,
    simpleitk-ncc, elastix, or identity: no search; `:wide` and `+refine` behind it say the same as the arguments, and
    more is in `registration.method`. `start` is a pose, a file with one, or "tracker", the place that the frame's own
    file gives it; by default the middle of the volume. `refine` polishes what the method found. With `agreement` a
    network also locates the frame under small changes, for a surer verdict; `wide` lets it look from several starts,
    for frames farther off than it was trained for. For many frames in one volume make a `Locator`.
    """
    frame = frame if isinstance(frame, Frame) else read_frame(frame)
    volume = volume if isinstance(volume, Volume) else read_volume(volume)
    locator = Locator(volume, method, refine=refine, agreement=agreement, wide=wide, device=device)
    result = locator.locate(frame, Start.read(start).of(frame, volume))
    notes = (*reader_notes(frame), *reader_notes(volume), *locator.notes, *result.notes)
    return replace(result, notes=notes)
