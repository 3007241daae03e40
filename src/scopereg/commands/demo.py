"""`scopereg demo`: a phantom patient, a probe sweep, every frame registered, a report to look at."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from scopereg.commands.output import tell
from scopereg.commands.shared import AnatomyName, Device, Folder, ModelName, Protocol
from scopereg.errors import ScopeRegError
from scopereg.io.files import output_folder, write_sheet, write_text
from scopereg.progress import counted
from scopereg.registration.settings import DEFAULT

if TYPE_CHECKING:
    from scopereg.geometry import VoxelPoses
    from scopereg.registration.model import Registrar
    from scopereg.registration.result import Result
    from scopereg.report.demo_page import DemoRow, MethodRun, ProbeSweep


@dataclass(frozen=True)
class DemoOptions:
    """Make a phantom patient and a probe sweep, register every frame, write a report to look at."""

    anatomy: AnatomyName = "echo"
    """Anatomy of the phantom patient."""
    output: Folder = Path("out/demo")
    """Folder for report.html, frames.csv and result.json."""
    frames: int = 12
    """Frames in the sweep."""
    magnitude: float = 10.0
    """Largest offset of the sweep from the middle of the volume, in voxels and degrees on each axis."""
    protocol: Protocol = "honest"
    model: ModelName = DEFAULT
    seed: int = 100_000
    """Seed of the patient, the sweep and the acquisitions; models were trained on patients below 10,000."""
    device: Device = "auto"


def run(options: DemoOptions) -> int:
    from scopereg.devices import resolve_device
    from scopereg.provenance import provenance, tensors_sha256
    from scopereg.registration.model import load
    from scopereg.report.demo_page import make_page

    console = Console()
    folder = output_folder(options.output)
    if options.frames < 1:
        raise ScopeRegError(f"{options.frames} frames", where="--frames", fix="ask for at least one")
    model = load(options.model, options.device)
    sweep = make_sweep(options)
    outcomes = register_sweep(sweep, model)
    console.print(as_table(outcomes, f"{options.anatomy} phantom, {options.protocol} frames"))
    facts = provenance(
        seed=options.seed,
        data_sha256=tensors_sha256(sweep.volume.array, *(f.array for f in sweep.frames)),
        device=str(resolve_device(options.device)),
    )
    write_results(folder, outcomes, facts, options)
    page = make_page(sweep, outcomes, facts, anatomy=options.anatomy, protocol=options.protocol)
    report = page.save(folder / "report.html")
    console.print(f"report: {report}", soft_wrap=True)
    tell(report=report, methods={outcome.method: _means(outcome) for outcome in outcomes}, folder=folder)
    return 0


def _means(outcome: MethodRun) -> dict[str, float | int]:
    """Means over the sweep, for JSON."""
    names = ("start_mm", "error_mm", "error_deg", "time_ms")
    within = {"within": sum(row.ok for row in outcome.rows), "frames": len(outcome.rows)}
    return dict(zip(names, outcome.means, strict=True)) | within


def register_sweep(sweep: ProbeSweep, model: Registrar) -> list[MethodRun]:
    """Every frame by the network and by SimpleITK, as scopereg register does."""
    from scopereg.registration.locator import Locator
    from scopereg.report.demo_page import CLASSICAL, NETWORK, MethodRun

    locators = {NETWORK: Locator(sweep.volume, model), CLASSICAL: Locator(sweep.volume, "simpleitk-mi")}
    locators[NETWORK].locate(sweep.frames[0])  # the first call sets libraries up: it is not the time of a frame
    found: dict[str, list[Result]] = {name: [] for name in locators}
    for frame in counted(sweep.frames, "registering"):
        for name, locator in locators.items():
            found[name].append(locator.locate(frame))
    return [
        MethodRun(method, results, [score(sweep, index, result, method) for index, result in enumerate(results)])
        for method, results in found.items()
    ]


def make_sweep(options: DemoOptions) -> ProbeSweep:
    """A patient and frames acquired along a smooth sweep, all from one seed."""
    import torch

    from scopereg.data import phantom
    from scopereg.data.poses import sample_sweep
    from scopereg.devices import resolve_device
    from scopereg.images import Frame
    from scopereg.report.demo_page import ProbeSweep

    device = resolve_device(options.device)
    patient = phantom.create(options.anatomy, seed=options.seed, device=str(device))
    generator = torch.Generator().manual_seed(options.seed)
    truth = sample_sweep(options.frames, options.magnitude, patient.shape, generator)
    acquired = patient.acquire(*truth, protocol=options.protocol, seed=options.seed)
    frames = [Frame(image.cpu(), spacing_mm=patient.spacing_mm) for image in acquired.images]
    return ProbeSweep(patient.volume.to("cpu"), frames, acquired.fan.cpu(), truth)


def score(sweep: ProbeSweep, index: int, result: Result, method: str) -> DemoRow:
    """Errors of one frame against where it truly lies, before and after."""
    from scopereg.geometry import SUCCESS_MM, VoxelPoses, geodesic_error_deg, mtre_mm
    from scopereg.images import pose_to_voxels
    from scopereg.registration.classical import centre_pose
    from scopereg.report.demo_page import DemoRow

    frame, volume = sweep.frames[index], sweep.volume
    truth = VoxelPoses(sweep.truth.rotation[index : index + 1], sweep.truth.translation[index : index + 1])
    found = _batched(pose_to_voxels(result.pose, frame, volume))
    start = _batched(pose_to_voxels(centre_pose(frame, volume), frame, volume))
    spacing = volume.isotropic_spacing_mm
    start_mm, error_mm = (float(mtre_mm(guess, truth, frame.shape, spacing)) for guess in (start, found))
    error_deg = float(geodesic_error_deg(found, truth))
    return DemoRow(method, index + 1, start_mm, error_mm, error_deg, result.time_ms, error_mm <= SUCCESS_MM)


def _batched(poses: VoxelPoses) -> VoxelPoses:
    from scopereg.geometry import VoxelPoses

    return VoxelPoses(poses.rotation[None], poses.translation[None])


def as_table(outcomes: list[MethodRun], title: str) -> Table:
    """Frame by frame, the errors of the methods side by side; their means and times below."""
    from scopereg.geometry import SUCCESS_MM

    table = Table(title=title)
    table.add_column("frame", justify="right")
    table.add_column("start mm", justify="right")
    for outcome in outcomes:
        for name in ("mm", "ms"):
            table.add_column(f"{outcome.method}\n{name}", justify="right")
    for rows in zip(*(outcome.rows for outcome in outcomes), strict=True):
        cells = [cell for row in rows for cell in _cells(row)]
        table.add_row(str(rows[0].frame), f"{rows[0].start_mm:.2f}", *cells)
    table.add_section()
    means = [outcome.means for outcome in outcomes]
    cells = [cell for m in means for cell in (f"{m[1]:.2f}", f"{m[3]:.0f}")]
    table.add_row("mean", f"{means[0][0]:.2f}", *cells)
    within = [cell for outcome in outcomes for cell in (outcome.within, "")]
    table.add_row(f"<= {SUCCESS_MM:g} mm", "", *within)
    return table


def _cells(row: DemoRow) -> tuple[str, str]:
    colour = "green" if row.ok else "red"
    return f"[{colour}]{row.error_mm:.2f}[/]", f"{row.time_ms:.0f}"


def write_results(folder: Path, outcomes: list[MethodRun], facts: dict[str, object], options: DemoOptions) -> None:
    """frames.csv for people and result.json with the poses and how they were made."""
    write_sheet(folder / "frames.csv", (asdict(row) for outcome in outcomes for row in outcome.rows))
    frames = [
        {**asdict(row), "image_to_volume": result.pose.matrix.tolist(), "similarity": result.similarity}
        for outcome in outcomes
        for row, result in zip(outcome.rows, outcome.results, strict=True)
    ]
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(options).items()}
    methods = {outcome.method: outcome.results[0].method for outcome in outcomes}
    content = {"frames": frames, "options": settings, "methods": methods, "made_with": facts}
    write_text(folder / "result.json", json.dumps(content, indent=2) + "\n")
