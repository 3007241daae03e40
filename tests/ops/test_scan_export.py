"""The scans inside recorded programs: "auto" is plain PyTorch there, with a dynamic batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from scopereg.ops import bidirectional_mass, coordinate_scan, directional_scan
from scopereg.ops.scan.selftest import Case, coordinate_inputs, feature_inputs, relative_error

pytestmark = pytest.mark.unchecked_shapes


class Scans(nn.Module):
    """The three forms behind one another, parameters as a network would hold them."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        feature, grid = feature_inputs(case), coordinate_inputs(case)
        self.A = nn.Parameter(feature["A"])
        self.D = nn.Parameter(feature["D"])
        self.a = nn.Parameter(grid["A"])
        self.register_buffer("order", feature["order"])
        self.register_buffer("values", grid["values"])

    def forward(self, u: Tensor, delta: Tensor, B: Tensor, C: Tensor, step: Tensor, write: Tensor) -> Tensor:
        y = directional_scan(u, delta, self.A, B, C, self.D, self.order)
        z = coordinate_scan(self.values, step, self.a, write, C, self.order)
        g = bidirectional_mass(step[:, 0, :, 0], self.a[0], write[:, 0, :, 0], write[:, 0, :, 0])
        return y.mean() + z + g[..., None, None]


def sample(case: Case) -> tuple[Scans, tuple[Tensor, ...]]:
    feature, grid = feature_inputs(case), coordinate_inputs(case)
    inputs = (*(feature[name] for name in ("u", "delta", "B", "C")), grid["delta"], grid["B"])
    return Scans(case).eval(), inputs


def test_export_with_dynamic_batch():
    module, inputs = sample(Case(batch=2, length=26))
    batch = torch.export.Dim("batch", min=1, max=64)
    shapes = [{0: batch} for _ in inputs]
    with torch.no_grad():
        program = torch.export.export(module, inputs, dynamic_shapes=shapes)
        # Chunks keep the record short: about the root of the length, where a loop over tokens grows with it.
        assert sum(len(part.graph.nodes) for part in program.graph_module.modules() if hasattr(part, "graph")) < 700
        exported = program.module()
        for size in (1, 2, 5):
            _, other = sample(Case(batch=size, length=26))
            assert relative_error(exported(*other), module(*other)) < 1e-5


def test_compile_in_one_graph():
    module, inputs = sample(Case(length=10))
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    with torch.no_grad():
        assert relative_error(compiled(*inputs), module(*inputs)) < 1e-5


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_jit_trace_records_torch():
    module, inputs = sample(Case(length=10))
    with torch.no_grad():
        traced = torch.jit.trace(module, inputs, check_trace=False)
        assert relative_error(traced(*inputs), module(*inputs)) < 1e-5


@pytest.mark.slow
def test_onnx_runs_like_the_module():
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    module, inputs = sample(Case(length=26))
    with torch.no_grad():
        program = torch.onnx.export(module, inputs, dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
        names = [x.name for x in session.get_inputs()]
        (have,) = session.run(None, dict(zip(names, (x.numpy() for x in inputs), strict=True)))
        assert relative_error(torch.from_numpy(have), module(*inputs)) < 1e-5
