"""`scopereg export`: a network as ONNX or torch.export, checked against the original."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scopereg.commands.output import tell
from scopereg.commands.shared import File, Positional
from scopereg.errors import ScopeRegError
from scopereg.io.files import atomic_path
from scopereg.progress import counting, say
from scopereg.registration.settings import DEFAULT

if TYPE_CHECKING:
    from torch import nn

    from scopereg.networks.export import Agreement


@dataclass(frozen=True)
class ExportOptions:
    """Write a network as ONNX (.onnx) or as a torch.export program (.pt2), and check that it gives the same poses.

    With the fine stage that belongs to it, as sessions use it.
    """

    model: Positional[str] = DEFAULT
    """Model of the package, weights file (.safetensors), or the name of a network to export with fresh weights."""
    output: File = Path("model.onnx")
    """File to write; the ending chooses the format: .onnx or .pt2."""
    shape: tuple[int, int, int] | None = None
    """Voxels of the volume, D H W; the slice is H W. By default those of the training, else 32 128 128. The batch size
    stays free."""
    tolerance: float = 1e-3
    """Largest difference allowed between the exported model and the network, in voxels and degrees."""
    seed: int = 0
    """Seed of fresh weights and of the images to compare on."""


def run(options: ExportOptions) -> int:
    """Export, compare, and only then leave a file."""
    import torch

    from scopereg.networks.export import (
        CHECKED_BATCHES,
        FORMATS,
        PUBLISHED_SHAPE,
        open_network,
    )
    from scopereg.provenance import provenance

    path = options.output
    if path.suffix not in FORMATS:
        raise ScopeRegError(f"unknown ending {path.suffix!r}", where=str(path), fix=f"use {' or '.join(FORMATS)}")
    if options.shape is not None and min(options.shape) < 1:
        raise ScopeRegError(
            f"the shape is {options.shape}", where="--shape", fix="pass three sizes of at least one voxel, D H W"
        )
    torch.manual_seed(options.seed)
    network, facts = open_network(options.model)
    depth, height, width = options.shape or facts.get("shape") or PUBLISHED_SHAPE
    shape = (depth, height, width)
    takes = ": some minutes" if path.suffix == ".onnx" else ""
    say(f"exporting {options.model} for volumes of {' x '.join(map(str, shape))}{takes}")
    with atomic_path(path) as temporary:
        agreement = _write(network, shape, temporary, {"model": facts, **provenance(seed=options.seed)}, options.seed)
        if not (agreement.voxels <= options.tolerance and agreement.degrees <= options.tolerance):
            raise ScopeRegError(
                f"the exported model differs by {agreement.voxels:.1e} voxels and {agreement.degrees:.1e} degrees",
                where=str(path),
                fix=f"nothing was written; allow more with --tolerance (now {options.tolerance:g}) or report it",
            )
    stage = ", with its fine stage" if "fine_sha256" in facts else ""
    tell(file=path, shape=shape, **vars(agreement))
    print(
        f"{path}{stage}: same poses within {agreement.voxels:.1e} voxels and {agreement.degrees:.1e} degrees "
        f"at batch {' and '.join(map(str, CHECKED_BATCHES))}; {agreement.time_ms:.0f} ms a frame on this CPU"
    )
    return 0


def _write(network: nn.Module, shape: tuple[int, int, int], path: Path, facts: dict[str, Any], seed: int) -> Agreement:
    """Record, write and check, which is told one by one."""
    from scopereg.networks.export import compare, export_network

    with counting("recorded, written, checked", even=False) as count:
        export_network(network, shape, path, facts, recorded=lambda: count(1, 3))
        count(2, 3)
        agreement = compare(network, path, shape, seed)
        count(3, 3)
    return agreement
