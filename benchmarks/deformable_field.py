"""Whether the coordinate field of the network tells a deformation: how far cells lie off the pose, and whether rightly.

    OMP_NUM_THREADS=1 python benchmarks/deformable_field.py

The frames of deformable.py that are phantoms. The network decodes the volume as seen from the pose that
`universal+refine` found. What its cells of 8 voxels say then is compared with where their tissue truly lies, both
without their rigid part, weighed by the evidence: root mean squares in voxels, and the correlation, in the plane and
across it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from deformable import ANATOMIES, Scene, phantoms
from torch import Tensor

import scopereg
from scopereg.geometry.kabsch import weighted_kabsch_in_space
from scopereg.images import pose_to_voxels
from scopereg.io.files import write_sheet
from scopereg.networks.encoders import STRIDE
from scopereg.networks.scope_reg import NetworkResult, ScopeReg
from scopereg.progress import say
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar
from scopereg.registration.working_grid import FieldOfView, frame_on_grid, on_grid

IN_PLANE, ACROSS = slice(0, 2), slice(2, 3)


def rows(scene: Scene, model: Registrar) -> Iterator[dict[str, Any]]:
    network, locator = model.network, Locator(scene.volume, "universal+refine", device="cpu")
    assert isinstance(network, ScopeReg)
    for kind, amount, frame, where in scene.frames:
        pose = locator.locate(frame).pose
        volume = on_grid(model, scene.volume.for_registration(), FieldOfView.of(frame)).first_look
        placed = frame_on_grid(frame.for_registration(), volume)
        at = pose_to_voxels(pose, placed, volume)
        with torch.inference_mode():
            tokens = network.encoder(placed.array[None].float(), volume.array[None].float())
            start = NetworkResult(at.rotation[None].float(), at.translation[None].float())
            found = network.look_again(tokens, start, network.decoder.steer(tokens.slice))
        assert found.coordinates is not None
        assert found.evidence is not None
        step = volume.isotropic_spacing_mm
        cells = torch.nn.functional.pad(
            tokens.lattice.slice_points(torch.device("cpu"))[:, :2] * STRIDE, (0, 1)
        ).double()
        own = cells.numpy() * step + placed.centre_mm
        true = torch.from_numpy((pose.inverse().apply(where(own)) - own) / step)
        said = (found.coordinates[0].flatten(1).T.double() * STRIDE - at.translation) @ at.rotation.double() - cells
        weights = found.evidence[0].flatten().double()
        true, said = (without_rigid(moved, cells, weights) for moved in (true, said))
        told = {"source": scene.source, "seed": scene.seed, "kind": kind, "amount_mm": amount}
        for name, axes in (("in_plane", IN_PLANE), ("across", ACROSS)):
            both, size, apart = (
                weighted(one, two, weights, axes) for one, two in ((true, said), (true, true), (said, said))
            )
            told |= {f"true_{name}": size**0.5, f"said_{name}": apart**0.5}
            told[f"correlation_{name}"] = both / max((size * apart) ** 0.5, 1e-9)
        yield {key: round(value, 4) if isinstance(value, float) else value for key, value in told.items()}


def without_rigid(moved: Tensor, cells: Tensor, weights: Tensor) -> Tensor:
    fit = weighted_kabsch_in_space(cells, cells + moved, weights)
    return cells + moved - (cells @ fit.rotation.T + fit.translation)


def weighted(one: Tensor, other: Tensor, weights: Tensor, axes: slice) -> float:
    return float(((one * other)[:, axes].sum(1) * weights).sum() / weights.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2, help="volumes of each source")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, found = scopereg.load(device="cpu"), list[dict[str, Any]]()
    for manner in ("shared", "honest"):
        for anatomy in ANATOMIES:
            for scene in phantoms(f"{anatomy} {manner}", options.count):
                found += rows(scene, model)
        own = [row for row in found if row["source"].endswith(manner) and row["amount_mm"] >= 2]
        names = [f"{what}_{where}" for what in ("true", "said", "correlation") for where in ("in_plane", "across")]
        say(
            f"{manner}, {len(own)} frames of 2 mm and more: "
            + ", ".join(f"{n} {mean(r[n] for r in own):.2f}" for n in names)
        )
    write_sheet(options.out, found, list(found[0]))
    say(f"correlations up to {np.max([row['correlation_in_plane'] for row in found if row['amount_mm'] >= 2]):.2f}")


if __name__ == "__main__":
    main()
