"""Which backend runs, what is refused, and what the refusal says."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from scopereg.errors import ScopeRegError
from scopereg.ops import (
    available_backends,
    bidirectional_mass,
    coordinate_readout,
    coordinate_scan,
    coordinate_states,
    directional_scan,
)
from scopereg.ops.scan import dispatch
from scopereg.ops.scan.selftest import Case, coordinate_inputs, feature_inputs

HAS_NUMBA = available_backends("cpu")["cpu"] is None
needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="the cpu backend needs numba")


@needs_numba
def test_auto_takes_cpu_with_and_without_gradients():
    x = torch.zeros(1)
    assert dispatch.fastest([x]) == "cpu"
    assert dispatch.fastest([x.bfloat16()]) == "cpu"
    assert dispatch.fastest([x.double()]) == "torch"
    weight = torch.nn.Parameter(x)
    assert dispatch.fastest([x, weight]) == "cpu"
    with torch.no_grad():
        assert dispatch.fastest([x, weight]) == "cpu"


def test_auto_takes_torch_for_tensors_without_memory():
    x = {k: v.to("meta") for k, v in feature_inputs(Case()).items()}
    assert directional_scan(**x).shape == x["u"].shape
    with torch._subclasses.FakeTensorMode() as mode, torch.no_grad():
        fake = {k: mode.from_tensor(v) for k, v in feature_inputs(Case()).items()}
        assert directional_scan(**fake).shape == x["u"].shape


def test_available_backends_gives_reasons():
    on_cpu, on_gpu = available_backends("cpu"), available_backends("cuda")
    assert list(on_cpu) == ["reference", "torch", "triton", "cpu"]
    assert on_cpu["reference"] is None
    assert on_cpu["torch"] is None
    assert on_cpu["triton"] is not None
    assert "'cuda'" in (on_gpu["cpu"] or "")


def test_unknown_backend_suggests_a_near_one():
    with pytest.raises(ScopeRegError, match="did you mean 'triton'"):
        directional_scan(**feature_inputs(Case()), backend="tritn")
    with pytest.raises(ScopeRegError, match="choose one of: auto, reference"):
        directional_scan(**feature_inputs(Case()), backend="")


def test_impossible_backends_are_refused():
    x = feature_inputs(Case())
    with pytest.raises(ScopeRegError, match="'triton' scan backend cannot run"):
        directional_scan(**x, backend="triton")


@pytest.mark.parametrize("name", ["u", "delta", "A", "B", "C", "D", "order"])
@pytest.mark.unchecked_shapes
def test_wrong_shapes_name_the_argument(name):
    x = feature_inputs(Case())
    with pytest.raises(ScopeRegError, match="dimensions instead of"):
        directional_scan(**x | {name: x[name].unsqueeze(0)})
    with pytest.raises(ScopeRegError, match="shape"):
        directional_scan(**x | {name: x[name][..., :-1]})


@pytest.mark.unchecked_shapes
def test_wrong_types_are_refused():
    x = feature_inputs(Case())
    with pytest.raises(ScopeRegError, match=r"order.*int32"):
        directional_scan(**x | {"order": x["order"].int()})
    with pytest.raises(ScopeRegError, match=r"B.*int64"):
        directional_scan(**x | {"B": x["B"].long()})
    with pytest.raises(ScopeRegError, match="empty"):
        directional_scan(**x | {"u": x["u"][:, :0]})
    with pytest.raises(ScopeRegError, match="different devices"):
        directional_scan(**x | {"B": x["B"].to("meta")})
    with pytest.raises(ScopeRegError, match="different devices"):
        directional_scan(**x | {"order": x["order"].to("meta")})


@pytest.mark.unchecked_shapes
def test_coordinate_forms_check_shapes():
    x = coordinate_inputs(Case())
    with pytest.raises(ScopeRegError, match="C"):
        coordinate_scan(**x | {"C": x["C"][..., :-1]})
    with pytest.raises(ScopeRegError, match="batch"):
        coordinate_readout(torch.zeros(3, 2, 3, 33, 3, 4), x["C"])
    with pytest.raises(ScopeRegError, match="delta"):
        bidirectional_mass(torch.zeros(3), torch.zeros(2), torch.zeros(1, 3, 2), torch.zeros(1, 3, 2))


@needs_numba
@pytest.mark.unchecked_shapes
def test_cpu_refuses_an_order_outside_the_tokens():
    x = feature_inputs(Case())
    x["order"][0, 0] = 33
    with pytest.raises(ScopeRegError, match="permutation"):
        directional_scan(**x, backend="cpu")


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_autocast_does_not_reach_the_state(backend):
    x = feature_inputs(Case())
    want = directional_scan(**x, backend=backend)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(directional_scan(**x, backend=backend), want)
    low = directional_scan(**{k: v.bfloat16() if v.is_floating_point() else v for k, v in x.items()}, backend=backend)
    assert low.dtype == torch.bfloat16


@pytest.fixture
def set_threads():
    """Other tests have one thread, with which the cpu backend shares nothing out."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@needs_numba
def test_cpu_backend_gives_the_same_with_helpers(set_threads):
    case = Case(planes=5, channels=70)
    features, grid = feature_inputs(case), coordinate_inputs(case)
    table = {name: value for name, value in grid.items() if name != "C"}
    for scan, x in ((directional_scan, features), (coordinate_scan, grid), (coordinate_states, table)):
        set_threads(1)
        want = scan(**x, backend="cpu")
        set_threads(3)
        assert torch.equal(scan(**x, backend="cpu"), want)


@needs_numba
def test_cpu_gradients_are_the_same_with_helpers(set_threads):
    x = feature_inputs(Case(planes=5, channels=150))
    free = [v.requires_grad_() for v in x.values() if v.is_floating_point()]

    def gradients(threads: int) -> list[torch.Tensor]:
        set_threads(threads)
        return list(torch.autograd.grad(directional_scan(**x, backend="cpu").square().sum(), free))

    want = gradients(1)
    assert all(torch.equal(have, exact) for have, exact in zip(gradients(3), want, strict=True))
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(gradients, [3] * 8):
            assert all(torch.equal(have, exact) for have, exact in zip(found, want, strict=True))


@needs_numba
def test_cpu_keeps_nothing_for_the_backward_pass_but_its_inputs():
    x = feature_inputs(Case(length=400))
    x["u"].requires_grad_()
    y = directional_scan(**x, backend="cpu")
    kept = {tensor.data_ptr() for tensor in y.grad_fn.saved_tensors if tensor is not None}
    assert kept == {tensor.data_ptr() for tensor in x.values()}


@needs_numba
def test_cpu_differentiates_once_and_says_so():
    x = feature_inputs(Case())
    x["u"].requires_grad_()
    (slope,) = torch.autograd.grad(directional_scan(**x, backend="cpu").square().sum(), x["u"], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@needs_numba
def test_cpu_state_table_has_gradients():
    x = coordinate_inputs(Case(directions=2, length=9))
    del x["C"]
    x["delta"].requires_grad_()
    have, want = (
        torch.autograd.grad(coordinate_states(**x, backend=name).square().sum(), x["delta"])[0]
        for name in ("cpu", "reference")
    )
    torch.testing.assert_close(have, want)


@needs_numba
def test_cpu_backend_serves_threads_at_once(set_threads):
    set_threads(3)  # with the same helpers for all
    x = feature_inputs(Case(channels=70))
    want = directional_scan(**x, backend="cpu")
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: directional_scan(**x, backend="cpu"), range(16)))
    assert all(torch.equal(y, want) for y in results)


@needs_numba
def test_cpu_backend_works_where_no_cache_can_be_written():
    code = (
        "import numba.core.caching as caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "import torch; from scopereg.ops import coordinate_states\n"
        "one = torch.ones(1, 1, 1, 1)\n"
        "h = coordinate_states(one[0], one, one[0, 0], one[None], torch.zeros(1, 1).long(), backend='cpu')\n"
        "assert h.item() == 1.0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=os.environ | {"TRITON_INTERPRET": "0"})


def test_a_numba_that_does_not_load_leaves_inference_working(tmp_path):
    """Numba refuses a NumPy newer than itself at import: `auto` must then take another backend and say why."""
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text("raise ImportError('Numba needs NumPy 1.0 or less')")
    code = (
        "import torch; from scopereg.ops import available_backends, directional_scan\n"
        "from scopereg.ops.scan.selftest import Case, feature_inputs\n"
        "with torch.no_grad(): directional_scan(**feature_inputs(Case()))\n"
        "print(available_backends('cpu')['cpu'])"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Numba needs NumPy 1.0 or less" in done.stdout


def test_auto_takes_torch_inside_function_transforms():
    x = feature_inputs(Case(batch=1))
    gates = [x[name] for name in ("delta", "A", "B", "C", "D", "order")]

    def scan(u):
        return directional_scan(u, *gates)

    with torch.no_grad():
        plain = scan(x["u"])
        mapped = torch.vmap(scan)(torch.stack([x["u"], 2 * x["u"]]))
        _, tangent = torch.func.jvp(scan, (x["u"],), (x["u"],))
    torch.testing.assert_close(mapped, torch.stack([plain, 2 * plain]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(tangent, plain, rtol=1e-4, atol=1e-5)  # the scan is linear in u
