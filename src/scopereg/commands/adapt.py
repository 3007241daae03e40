"""`scopereg adapt`: a volume from a file, weights for it in a file, and what they gain."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from scopereg.commands.flags import renaming
from scopereg.commands.output import tell
from scopereg.commands.reading import VOLUME, print_notes, sizes_mm
from scopereg.commands.shared import (
    INTERRUPTED,
    TERMINATED,
    BaseModel,
    Device,
    File,
    Positional,
    VolumeFile,
    VolumeReading,
    WorkingVoxelSize,
)
from scopereg.errors import ScopeRegError
from scopereg.progress import duration
from scopereg.registration.settings import DEFAULT
from scopereg.training.settings import AdaptSettings

if TYPE_CHECKING:
    from scopereg.training.adaptation import Adaptation

_COLUMNS = {"mean_mm": "mean mm", "median_mm": "median", "p95_mm": "95 %", "within_3_mm": "in 3 mm"}


@dataclass(frozen=True)
class AdaptOptions(AdaptSettings, VolumeReading):
    """Make a network better at one volume, from frames drawn in the volume itself, and write what changed.

    The file holds the weights that learned and names those that it builds on. It is used like any other:
    scopereg register FRAME VOLUME --model patient.safetensors. Ctrl-C ends it with the best so far.
    """

    base: BaseModel = DEFAULT
    spacing_mm: WorkingVoxelSize = None
    volume: Positional[VolumeFile] = None
    output: File = Path("patient.safetensors")
    """File for the weights (.safetensors); an earlier one stays until the new one is whole."""
    device: Device = "auto"


def run(options: AdaptOptions) -> int:
    """The verb; 130 when it was interrupted, 143 when SIGTERM ended it."""
    from scopereg.io.volumes import read_volume
    from scopereg.registration.reading import image_line, reader_notes
    from scopereg.training.adaptation import adapt

    if options.volume is None:
        raise ScopeRegError("a volume is needed", where="scopereg adapt", fix="write scopereg adapt VOLUME")
    settings = AdaptSettings(**{field.name: getattr(options, field.name) for field in fields(AdaptSettings)})
    with renaming(VOLUME):
        volume = read_volume(
            options.volume,
            spacing_mm=sizes_mm(options.voxel_mm, 3, "--voxel-mm"),
            index=options.volume_index,
            series=options.series,
        )
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"volume  {image_line(volume)}")
    print_notes(console, reader_notes(volume))
    found = adapt(volume, options.output, settings, device=options.device)
    print_notes(console, found.notes)
    tell(**vars(found))
    show(found, options, console)
    return {"interrupted": INTERRUPTED, "terminated": TERMINATED}.get(found.ending, 0)


def show(found: Adaptation, options: AdaptOptions, console: Console) -> None:
    """What it gave on the held-out frames, and how to use it."""
    table = Table(title="held-out frames of this volume, network alone", title_justify="left", box=SIMPLE)
    table.add_column("")
    for heading in _COLUMNS.values():
        table.add_column(heading, justify="right")
    for name, errors in ((options.base, found.before), ("adapted", found.after)):
        shown = [f"{errors[key]:.0%}" if key == "within_3_mm" else f"{errors[key]:.2f}" for key in _COLUMNS]
        table.add_row(name, *shown)
    console.print(table)
    console.print(
        f"{found.ending} after {found.steps} steps with {found.frames} frames, {duration(found.seconds)}; "
        f"weights of step {found.step}"
    )
    if found.path is None:
        console.print(f"Nothing better than {options.base} was found yet, so nothing was written.")
        return
    if found.after == found.before:
        console.print(f"Nothing better than {options.base} was found: the file holds what that holds.")
    console.print(f"weights  {found.path}  ({found.path.stat().st_size / 1e6:.1f} MB)")
    console.print(f"use      scopereg register FRAME {options.volume} --model {found.path}")
    if found.calibration is not None:
        console.print(f"verdicts {found.calibration}")
