"""`scopereg calibrate-probe`: where the image lies on a tracked probe, from sweeps and a volume of the same object."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from scopereg.commands.flags import in_flags, renaming
from scopereg.commands.output import plain, tell
from scopereg.commands.reading import VOLUME, print_notes, sizes_mm
from scopereg.commands.shared import AnyMethod, Device, MaybeFile, PixelSize, Positional, VolumeFile, VolumeReading
from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder, write_text
from scopereg.registration.settings import DEFAULT

if TYPE_CHECKING:
    from scopereg.geometry import Pose
    from scopereg.images import Frame, Volume
    from scopereg.io.probe_sweeps import ProbeSweep
    from scopereg.registration.probe.calibrated import FrameResidual, ProbeCalibration
    from scopereg.report.page import Report

TRACKER, ENDING = "tracker", ".xml"
NOT_OK = 3  # status where the calibration may not be relied on
_MOST_NAMED = 10  # frames that were left out, one line each


@dataclass(frozen=True)
class CalibrateProbeOptions(VolumeReading):
    """Find where the image lies on a tracked probe: ImageToProbe, its rotation, offset and the size of pixels.

    SWEEPS are tracked sequences of PLUS (.igs.mha) with the probe's transforms, or archives (.npz), of one probe at one
    depth; VOLUME is of the object that they show, and comes last. Frames are found in the volume; the pose of the
    tracker's world in it is sought too, for which the probe must be turned about two axes. OUTPUT is a configuration of
    PLUS; beside it lie NAME.json and NAME.html with the residuals of each frame. Where the motion does not determine
    the calibration, or frames do not agree, that is said, no configuration is written, and the status is 3.
    """

    sweeps: Positional[Path | None] = None
    """Tracked sequence; more of them may follow."""
    volume: Positional[VolumeFile] = None
    more: Positional[tuple[Path, ...]] = ()
    """Several sequences; the last of all is the volume."""
    output: MaybeFile = None
    """Configuration of PLUS to write (.xml); without it the calibration is only printed."""
    calibration: Path | None = None
    """Configuration of PLUS that there is: all but this transform is kept, and its ImageToProbe begins the search."""
    world: str | None = None
    """Pose file from the tracker's world to the volume; or tracker: the volume lies in it. By default it is sought."""
    pixel_mm: PixelSize = ()
    most: int = 30
    """Frames at most, taken evenly from all that are tracked."""
    aside: float = 0.2
    """Share of the frames that is kept aside, to tell how well the others foretell where they lie."""
    keep_pixels: bool = False
    """Take the size of a pixel for granted instead of seeking it too."""
    own_worlds: bool = False
    """Every sequence has a world of its own: the reference, or the tracker, was moved between them."""
    probe: str = "Probe"
    """What the sequences call the probe."""
    method: AnyMethod = DEFAULT
    report: bool = True
    """Write NAME.html beside OUTPUT."""
    device: Device = "auto"


def run(options: CalibrateProbeOptions) -> int:
    """The verb; 3 where the calibration may not be relied on."""
    from scopereg.registration.probe.calibrate import ProbeSettings, calibrate_probe
    from scopereg.registration.reading import image_line, reader_notes

    paths, volume_path = _paths(options)
    targets = _targets(options, [*paths, volume_path])
    settings = ProbeSettings(options.most, options.aside, options.keep_pixels, options.own_worlds)
    world = _world(options)
    sweeps = [_read(path, options) for path in paths]
    volume = _read_volume(volume_path, options)
    for path in targets.values():
        output_folder(path.parent)
    console = Console(soft_wrap=True, highlight=False, markup=False)
    for sweep in sweeps:
        console.print(f"sweep   {sweep.path.name}: {len(sweep)} tracked frames, {sweep.probe}To{sweep.world}")
    console.print(f"volume  {image_line(volume)}")
    print_notes(console, reader_notes(volume))
    found = calibrate_probe(sweeps, volume, settings, method=options.method, world=world, device=options.device)
    print_notes(console, found.notes)
    _print(console, found)
    page = _page_of(found, sweeps, volume) if options.report and targets else None
    files = _write(found, targets, options, [*paths, volume_path], page)
    for path in files:
        console.print(f"wrote   {path}")
    if not found.ok and options.output is not None:
        console.print(f"not written: {options.output}")
    tell(**found.told(), files=files)
    return 0 if found.ok else NOT_OK


def _paths(options: CalibrateProbeOptions) -> tuple[list[Path], Path]:
    """Sequences and volume."""
    given = [path for path in (options.sweeps, options.volume, *options.more) if path is not None]
    if len(given) < 2:
        raise ScopeRegError(
            "a tracked sequence and a volume are needed",
            where="scopereg calibrate-probe",
            fix="write scopereg calibrate-probe SWEEP VOLUME -o plus.xml",
        )
    for path in given:
        if not path.exists():
            raise ScopeRegError("there is no such file or folder", where=str(path), fix="check the name")
    if options.output is not None and options.output.suffix.lower() != ENDING:
        raise ScopeRegError(
            f"it must end in {ENDING}", where=f"-o {options.output}", fix="name the configuration of PLUS: -o plus.xml"
        )
    return given[:-1], given[-1]


def _targets(options: CalibrateProbeOptions, inputs: list[Path]) -> dict[str, Path]:
    """Files to write by kind, none of them an input but the configuration, which may be written anew."""
    if options.output is None:
        return {}
    endings = {"plus": ENDING, "json": ".json"} | ({"page": ".html"} if options.report else {})
    targets = {kind: options.output.with_suffix(ending) for kind, ending in endings.items()}
    for path in targets.values():
        if path.resolve() in {each.resolve() for each in inputs}:
            raise ScopeRegError("it would overwrite an input", where=str(path), fix="choose another name: -o NAME.xml")
    return targets


def _world(options: CalibrateProbeOptions) -> Pose | None:
    from scopereg.geometry import Pose
    from scopereg.io.transforms import read_pose

    if options.world is None:
        return None
    return Pose.identity("World", "Volume") if options.world == TRACKER else read_pose(options.world)


def _read(path: Path, options: CalibrateProbeOptions) -> ProbeSweep:
    from scopereg.io.probe_sweeps import read_probe_sweep

    spacing = sizes_mm(options.pixel_mm, 2, "--pixel-mm")
    with renaming({"spacing_mm": "pixel_mm"}):
        return read_probe_sweep(path, options.calibration, probe=options.probe, spacing_mm=spacing)


def _read_volume(path: Path, options: CalibrateProbeOptions) -> Volume:
    from scopereg.io.volumes import read_volume

    spacing = sizes_mm(options.voxel_mm, 3, "--voxel-mm")
    with renaming(VOLUME):
        return read_volume(path, spacing_mm=spacing, index=options.volume_index, series=options.series)


def _print(console: Console, found: ProbeCalibration) -> None:
    from scopereg.registration.probe.words import facts_of

    for name, said in facts_of(found).items():
        console.print(f"{name:<8}{said}")
    for line in _left_out(found):
        console.print(f"frame   {line}")
    for reason in found.reasons:
        console.print(f"not ok  {in_flags(reason, CalibrateProbeOptions)}")


def _left_out(found: ProbeCalibration) -> Iterator[str]:
    from scopereg.registration.probe.calibrated import LEFT_OUT, NOT_FOUND

    rows = [row for state in (LEFT_OUT, NOT_FOUND) for row in found.of_state(state)]
    for row in rows[:_MOST_NAMED]:
        yield f"{row.label}: {row.state}{f', {row.reason}' if row.reason else ''}"
    if len(rows) > _MOST_NAMED:
        yield f"and {len(rows) - _MOST_NAMED} more"


def _page_of(found: ProbeCalibration, sweeps: list[ProbeSweep], volume: Volume) -> Callable[[dict[str, Any]], Report]:
    """Makes the page once it is told how all was made."""
    from scopereg.report.probe_page import make_page

    def frame_of(row: FrameResidual) -> Frame:
        sweep = sweeps[row.sweep]
        return sweep.frame(sweep.rows.index(row.row), found.spacing_mm)

    return lambda facts: make_page(found, facts, volume, frame_of)


def _write(
    found: ProbeCalibration,
    targets: dict[str, Path],
    options: CalibrateProbeOptions,
    inputs: list[Path],
    page: Callable[[dict[str, Any]], Report] | None,
) -> list[Path]:
    """The configuration where the calibration may be relied on; what is known of it in any case."""
    if not targets:
        return []
    from scopereg.io.read_image import content_sha256
    from scopereg.provenance import provenance

    read = [file for path in inputs for file in sorted(path.rglob("*") if path.is_dir() else [path]) if file.is_file()]
    facts: dict[str, Any] = {**found.facts, **provenance(seed=0, data_sha256=content_sha256(read))}
    written = []
    if found.ok:
        written.append(found.save(targets["plus"], options.calibration))
    content = json.dumps(plain({**found.told(), "provenance": facts}), indent=1, allow_nan=False)
    written.append(write_text(targets["json"], content + "\n"))
    if page is not None:
        written.append(page(facts).save(targets["page"]))
    return written
