"""`scopereg register ULTRASOUND MR`: a whole volume of ultrasound, from files to its pose in another volume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from scopereg.commands.output import tell
from scopereg.commands.reading import holds_planes, open_volume, print_notes
from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder
from scopereg.progress import listening

if TYPE_CHECKING:
    from pathlib import Path

    from scopereg.commands.register import RegisterOptions
    from scopereg.images import Volume
    from scopereg.io.cine import Cine
    from scopereg.registration.reading import Reading
    from scopereg.registration.result import Result

_OF_FRAMES = ("deformable", "wide", "any_angle", "thickness_mm", "frame_mask", "resliced")


def foreign_volume(cine: Cine, options: RegisterOptions, reading: Reading) -> Volume | None:
    """The volume, if it is of another modality and a whole volume of ultrasound is to be found in it; else None."""
    from scopereg.image_fields import US
    from scopereg.io.transforms import ENDINGS

    to_folder = options.output is not None and not options.output.name.lower().endswith(ENDINGS)
    if options.index is not None or len(cine) < 2 or not holds_planes(cine.path) or to_folder:
        return None
    volume = open_volume(reading)
    return None if volume.modality == US else volume


def register_whole(path: Path, volume: Volume, options: RegisterOptions, targets: dict[str, Path]) -> Result:
    """Locate a whole volume of ultrasound, say what was found, write it."""
    from scopereg.io.volumes import read_volume
    from scopereg.registration.reading import image_line, reader_notes
    from scopereg.registration.together_files import start_of
    from scopereg.registration.whole import WholeSettings, check_reach, locate_whole

    for name in _OF_FRAMES:
        if getattr(options, name):
            flag = f"--{name.replace('_', '-')}"
            raise ScopeRegError("it is for frames, and this is a whole volume", where=flag, fix="leave it out")
    settings = WholeSettings(reach_mm=check_reach(options.reach_mm, "--reach-mm"))
    for target in targets.values():
        output_folder(target.parent)
    ultrasound = read_volume(path, modality="us")
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"whole   {image_line(ultrasound)}\nvolume  {image_line(volume)}")
    notes = [*reader_notes(ultrasound), *reader_notes(volume)]
    print_notes(console, notes)
    start = start_of(options.start, options.world)
    with listening(lambda line: console.print(f"        {line}")):
        result = locate_whole(ultrasound, volume, start, settings, device=options.device)
    print_notes(console, result.notes)
    console.print(f"{result.pose}\nLC2 {result.similarity:.3f} [{result.method}, {result.time_ms / 1e3:.0f} s]")
    console.print(result.verdict)
    written = []
    if "pose" in targets:
        written.append(result.save(targets["pose"], convention=options.convention))
    if "placed" in targets:
        written.append(_write_placed(ultrasound, result, targets["placed"]))
    for each in written:
        console.print(str(each))
    tell(ultrasound_to_volume=result.pose.matrix, volume_modality=volume.modality, **result.facts, files=written)
    return result


def _write_placed(ultrasound: Volume, result: Result, path: Path) -> Path:
    """The ultrasound where it was found: the same voxels on turned and shifted axes."""
    from dataclasses import replace

    from scopereg.io.volumes import write_volume

    origin = result.pose.apply([ultrasound.origin_mm])[0]
    turned = result.pose.rotation @ ultrasound.direction
    return write_volume(replace(ultrasound, origin_mm=origin.tolist(), direction=turned), path)
