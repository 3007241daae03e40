"""Export: a network, with its fine stage, as ONNX or torch.export; a free batch size, checked against the original."""

from __future__ import annotations

import json
import logging
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.geometry import VoxelPoses, geodesic_angle_deg
from scopereg.networks import create, names
from scopereg.networks.encoders import STRIDE
from scopereg.networks.fine import FineStage
from scopereg.networks.scope_reg import NetworkResult
from scopereg.networks.weights import (
    load_fine_stage,
    network_of,
    read_stored,
    shipped,
    weights_file,
    weights_sha256,
)
from scopereg.threads import watched

FORMATS = (".onnx", ".pt2")
CHECKED_BATCHES = (1, 3)
OUTPUTS = ("rotation", "translation", "coordinates", "evidence")

FORMAT = "scopereg-export-1"
FACTS = "scopereg.json"  # the entry of both formats that says what the model is
CONVENTIONS = {
    "inputs": "slice (B, H, W) and volume (B, D, H, W), grey values in [0, 1], voxels of one size along all axes",
    "pose": "volume point = rotation (B, 3, 3) @ slice point + translation (B, 3), in voxels from the centre of each "
    "axis, x = W, y = H, z = D; slice points have z = 0",
    "coordinates": "(B, 3, H', W'), H' = H/8 rounded up: where the network found cells of the slice, x y z in cells of "
    "8 voxels",
    "evidence": "(B, H', W'), weights of the cells in the fit, positive",
}

PUBLISHED_SHAPE = (32, 128, 128)  # for networks that know no shape, or many

Model = Callable[[Tensor, Tensor], "list[Tensor]"]


@dataclass(frozen=True)
class Agreement:
    """Largest differences between the exported model and the network, and the exported model's time."""

    voxels: float
    degrees: float
    time_ms: float  # median at batch 1


def open_network(model: str) -> tuple[nn.Module, dict[str, Any]]:
    """A network with what is known of it: of the package or from a file, or by its own name with fresh weights.

    With the fine stage that belongs to it, if there is one.
    """
    if model in names():
        return create(model).eval(), {"network": model, "weights": "fresh"}
    known = (*shipped(), *names())
    if not Path(model).suffix and not Path(model).exists() and model not in known:
        raise ScopeRegError(
            f"neither a file nor a model{did_you_mean(model, known)}",
            where=model,
            fix=f"pass a .safetensors file or one of: {', '.join(known)}",
        )
    with weights_file(model) as path:
        stored = read_stored(path)
        facts = {"name": Path(model).stem, "network": stored.network, "options": stored.options, **stored.facts}
        network, stage = network_of(stored, path), load_fine_stage(path)
    facts["weights_sha256"] = weights_sha256(stored.tensors)
    if stage is None:
        return network, facts
    return WithFineStage(network, stage).eval(), {**facts, "fine_sha256": weights_sha256(stage.state_dict())}


class WithFineStage(nn.Module):
    """What a session finds, in one forward pass: the network's coordinates and evidence, the stage's pose."""

    def __init__(self, network: nn.Module, stage: FineStage) -> None:
        super().__init__()
        self.network, self.stage = network, stage

    def forward(self, slice: Tensor, volume: Tensor) -> NetworkResult:
        found: NetworkResult = self.network(slice, volume)
        start = VoxelPoses(found.rotation, found.translation)
        poses = self.stage.settle(self.stage.read(slice), self.stage.encode(volume), start)
        return found._replace(rotation=poses.rotation, translation=poses.translation)


@watched(steady=True)
def export_network(
    network: nn.Module,
    shape: tuple[int, int, int],
    path: Path,
    facts: dict[str, Any] | None = None,
    recorded: Callable[[], None] = lambda: None,
) -> None:
    """Write `network` for volumes of `shape` (D, H, W) and any batch size, with `facts` for `read_export`.

    `recorded` is called when the network was recorded, and is to be written: the longer half of the time for ONNX.
    """
    for library in ("onnx", "onnxscript") if path.name.endswith(".onnx") else ():
        _need(library)
    told = json.dumps({"format": FORMAT, "shape": shape, **CONVENTIONS, **(facts or {})})
    inputs = tuple(_images(2, shape, seed=0))
    batch = torch.export.Dim("batch", min=1, max=4096)
    shapes = {"slice": {0: batch}, "volume": {0: batch}}
    with torch.no_grad(), _no_source():
        program = torch.export.export(_Named(network).eval(), inputs, dynamic_shapes=shapes)
    _forget_source(program)
    recorded()
    if path.name.endswith(".pt2"):
        torch.export.save(program, path, extra_files={FACTS: told})
        return
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with torch.no_grad(), _no_source(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations are nothing that a user could act on
        written = torch.onnx.export(
            program,
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=["slice", "volume"],
            output_names=list(_output_names(network, inputs)),
            verbose=False,
        )
    assert written is not None  # as always with dynamo
    written.model.metadata_props[FACTS] = told
    written.save(str(path), external_data=False)


@contextmanager
def _no_source() -> Iterator[None]:
    """Have PyTorch not look up which line made a node, where it lets itself be told: it takes time and is left out."""
    config, name = torch.fx.config, "do_not_emit_stack_traces"
    before = getattr(config, name, None)
    if before is None:  # a PyTorch that always looks
        yield
        return
    setattr(config, name, True)
    try:
        yield
    finally:
        setattr(config, name, before)


def _forget_source(program: torch.export.ExportedProgram) -> None:
    """Leave out which line of which file made a node: models are passed on, the folders of a machine need not be."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)


def read_export(path: Path | str) -> dict[str, Any]:
    """What an exported model was made of: model, shape, conventions, versions, command."""
    path = Path(path)
    if path.suffix == ".pt2":
        with zipfile.ZipFile(path) as archive:  # torch.export.load would make the whole program for it
            (entry,) = (name for name in archive.namelist() if name.endswith(f"/{FACTS}"))
            told = archive.read(entry).decode()
    else:
        told = _need("onnxruntime").InferenceSession(str(path)).get_modelmeta().custom_metadata_map[FACTS]
    facts: dict[str, Any] = json.loads(told)
    return facts


@watched(steady=True)
def compare(network: nn.Module, path: Path, shape: tuple[int, int, int], seed: int) -> Agreement:
    """Poses of the exported model against those of the network, on random images at several batch sizes."""
    model = open_model(path)
    voxels, degrees = [], []
    for batch in CHECKED_BATCHES:
        inputs = _images(batch, shape, seed + batch)
        with torch.no_grad():
            wanted = network(*inputs)
        rotation, translation, *field = model(*inputs)
        voxels.append((translation - wanted.translation).abs().max())
        if field:
            voxels.append(STRIDE * (field[0] - wanted.coordinates).abs().max())
        degrees.append(geodesic_angle_deg(rotation.double(), wanted.rotation.double()).max())
    # Tensors, because Python's max() passes over a NaN.
    worst_voxels, worst_degrees = (float(torch.stack(found).max()) for found in (voxels, degrees))
    return Agreement(worst_voxels, worst_degrees, _median_ms(model, _images(1, shape, seed)))


def open_model(path: Path) -> Model:
    """An exported model as a function of slices (B, H, W) and volumes (B, D, H, W)."""
    if path.name.endswith(".pt2"):
        module = torch.export.load(path).module()
        return lambda slices, volumes: list(torch.no_grad()(module)(slices, volumes))
    runtime = _need("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def call(slices: Tensor, volumes: Tensor) -> list[Tensor]:
        values = session.run(None, {"slice": slices.numpy(), "volume": volumes.numpy()})
        return [torch.from_numpy(np.asarray(value)) for value in values]

    return call


class _Named(nn.Module):
    """A plain tuple out, for formats that do not know named tuples."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, slice: Tensor, volume: Tensor) -> tuple[Tensor, ...]:
        return tuple(value for value in self.network(slice, volume) if value is not None)


def _output_names(network: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[str, ...]:
    with torch.no_grad():
        return OUTPUTS[: sum(value is not None for value in network(*inputs))]


def _images(batch: int, shape: tuple[int, int, int], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(batch, *size, generator=generator) for size in (shape[1:], shape)]


def _median_ms(model: Model, inputs: list[Tensor], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        model(*inputs)
        times.append((time.perf_counter() - begin) * 1000)
    return sorted(times)[repeats // 2]


def _need(module: str) -> Any:
    """An optional library, imported only when it is used."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ScopeRegError(
            f"{error.name} is not installed", where="scopereg export", fix="pip install 'scopereg[export]'"
        ) from None
