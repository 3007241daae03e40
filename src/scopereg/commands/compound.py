"""`scopereg compound`: a volume from tracked sweeps, what it was made of, and how well the poses of its frames hold."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from scopereg.commands.flags import renaming
from scopereg.commands.output import tell
from scopereg.commands.reading import print_notes, sizes_mm
from scopereg.commands.shared import AnyMethod, Device, File, FrameMask, FrameReading, OriginName, Positional
from scopereg.compounding.settings import CompoundSettings, JoinSettings
from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder
from scopereg.registration.settings import DEFAULT

if TYPE_CHECKING:
    from scopereg.compounding.compound import Compounded
    from scopereg.compounding.sources import SweepReading
    from scopereg.io.sweeps import TrackedSweep


@dataclass(frozen=True)
class CompoundOptions(CompoundSettings, FrameReading):
    """Make a volume of the frames of tracked sweeps, and tell how well their poses agree.

    SWEEPS are PLUS sequences with their calibration (.igs.mha), .npz, or folders and files of frames beside their poses
    (poses.csv, track.csv, --poses). Several make one volume: their worlds are taken for one, or each is registered onto
    the first (--join). Those that cannot be joined are left out and named; the status is then 1. Beside the volume go
    its record (.json) and a page (.html): three planes, the path of the probe, and frames that were left out one run
    after the other, compared with the volume that the others make.
    """

    sweeps: Positional[tuple[Path, ...]] = ()
    """Files of sweeps, or folders of frames."""
    output: File = Path("out/compound.nii.gz")
    """File for the volume (.nii.gz, .nii, .nrrd, .mha): bytes, 0 where it is empty."""
    poses: Path | None = None
    """Where the frames lie, if their own files do not say: poses.csv, track.csv, a tracked sequence, or a folder."""
    poses_origin: OriginName = None
    frame_mask: FrameMask = None
    reference: str | None = None
    """Frame of reference of PLUS that the volume lies in; by default Reference, else Tracker, else Volume."""
    join: Literal["tracker", "near", "anywhere"] = "tracker"
    """How several sweeps come together: as the tracker has them, or registered, from there or from anywhere."""
    method: AnyMethod = DEFAULT
    device: Device = "auto"
    mask: Path | None = None
    """Also write where voxels come from: 0 empty, 1 frames, 2 bridged holes."""
    report: bool = True
    """Write the page."""


def run(options: CompoundOptions) -> int:
    """The verb: 0, however well poses hold; 1 if a sweep could not be joined."""
    from scopereg.compounding.compound import compound_sweeps
    from scopereg.compounding.record import beside, write_compounded
    from scopereg.compounding.sources import files_of_sweeps, read_sweeps
    from scopereg.io.read_image import content_sha256
    from scopereg.provenance import provenance
    from scopereg.report.compound_page import make_page

    targets = _targets(options)
    reading = _reading(options, targets)
    settings = CompoundSettings(**{field.name: getattr(options, field.name) for field in fields(CompoundSettings)})
    console = Console(soft_wrap=True, highlight=False, markup=False)
    with renaming({"origin": "poses_origin"}):
        sweeps = read_sweeps(options.sweeps, reading)
    for sweep in sweeps:
        console.print(f"sweep   {_line(sweep)}")
    join = None if options.join == "tracker" else JoinSettings(options.join, options.method, options.device)
    made = compound_sweeps(sweeps, settings, join=join)
    _print(made, console)
    facts = provenance(data_sha256=content_sha256(files_of_sweeps(options.sweeps, reading)))
    targets["page"].unlink(missing_ok=True)  # what an earlier run left would be of another volume
    record = write_compounded(made, options.output, facts, mask=options.mask)
    written = [options.output, beside(options.output, ".json"), *([options.mask] if options.mask else [])]
    if options.report:
        written.append(make_page(made, record).save(targets["page"]))
    for path in written:
        console.print(f"wrote   {path}")
    tell(**record, files=written)
    return 0 if all(one.ok for one in made.joined) else 1


def _targets(options: CompoundOptions) -> dict[str, Path]:
    """Files to write, their endings checked, none of them an input; folders are made."""
    from scopereg.compounding.record import beside
    from scopereg.io.read_image import ending_of, endings

    if not options.sweeps:
        raise ScopeRegError(
            "a sweep is needed", where="scopereg compound", fix="write scopereg compound SWEEP... -o volume.nii.gz"
        )
    images = {"--output": options.output, **({"--mask": options.mask} if options.mask else {})}
    for option, path in images.items():
        if not ending_of(path.name, written=True):
            known = ", ".join(endings(written=True))
            raise ScopeRegError(f"unknown ending of {path.name!r}", where=option, fix=f"end it in one of {known}")
    targets = {**images, "record": beside(options.output, ".json"), "page": beside(options.output, ".html")}
    inputs = {
        path.resolve()
        for path in (*options.sweeps, options.poses, options.calibration, options.frame_mask)
        if path is not None
    }
    for path in targets.values():
        if path.resolve() in inputs:
            raise ScopeRegError("it would overwrite an input", where=str(path), fix="choose another name")
    if len({path.resolve() for path in targets.values()}) < len(targets):
        raise ScopeRegError("two outputs have one name", where="--mask", fix="name each differently")
    for path in targets.values():
        output_folder(path.parent)
    return targets


def _reading(options: CompoundOptions, targets: dict[str, Path]) -> SweepReading:
    from scopereg.compounding.sources import SweepReading

    return SweepReading(
        options.calibration,
        options.reference,
        options.poses,
        options.poses_origin,
        sizes_mm(options.pixel_mm, 2, "--pixel-mm"),
        options.region,
        options.frame_mask,
        tuple(targets.values()),
    )


def _line(sweep: TrackedSweep) -> str:
    height, width = sweep.seen.shape
    x, y = sweep.spacing_mm
    return f"{sweep.name}: {len(sweep)} frames of {width} x {height} pixels of {x:.3g} x {y:.3g} mm"


def _print(made: Compounded, console: Console) -> None:
    size, extent = (" x ".join(f"{n:.4g}" for n in each) for each in (made.volume.size, made.volume.extent_mm))
    console.print(f"volume  {size} voxels of {made.voxel_mm:g} mm, {made.why}; {extent} mm")
    console.print(f"holes   {made.holes.words(made.settings.bridge_mm)}")
    if made.left_out is not None:
        console.print(f"poses   {made.left_out.verdict}")
    for one in made.joined:
        console.print(f"joined  {one.verdict}" if one.ok else f"out     {one.verdict}")
    for agreement in made.agreements:
        console.print(f"meets   {agreement.sweep}: {agreement.verdict}")
    if made.doubts and not made.joined:
        console.print("hint    --join near registers sweeps onto the first, where their worlds are not one")
    print_notes(console, made.notes)
