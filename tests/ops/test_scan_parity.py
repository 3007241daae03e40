"""Every backend against the float64 loop, forward and backward, on odd shapes; hence all pairs agree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scopereg.ops import (
    available_backends,
    bidirectional_mass,
    coordinate_readout,
    coordinate_scan,
    coordinate_states,
    directional_scan,
    selective_scan,
)
from scopereg.ops.scan import recorded, selftest
from scopereg.ops.scan.selftest import (
    CASES,
    Case,
    compare_case,
    coordinate_inputs,
    feature_inputs,
    relative_error,
)

USABLE = [name for name, obstacle in available_backends("cpu").items() if obstacle is None and name != "triton"]


def label(case: Case) -> str:
    sizes = (case.batch, case.directions, case.planes, case.length, case.channels, case.states)
    return "x".join(map(str, sizes)) + f"-{str(case.dtype).removeprefix('torch.')}-{case.stiffness:g}"


@pytest.fixture(scope="module", autouse=True)
def _one_loop_for_all() -> Iterator[None]:
    """The loop in float64 takes most of the time, and every backend is compared with the same one."""
    plain, known = selftest._evaluate, {}

    def evaluate(given: dict[str, torch.Tensor], backend: str) -> dict[str, torch.Tensor]:
        if backend != "reference" or next(iter(given.values())).dtype != torch.float64:
            return plain(given, backend)
        key = tuple((name, tuple(x.shape), x.numpy().tobytes()) for name, x in given.items())
        if key not in known:
            known[key] = plain(given, backend)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selftest, "_evaluate", evaluate)
        yield


# The loop itself, in single precision, needs no thousands of tokens.
COMPARED = [
    pytest.param(case, backend, id=f"{label(case)}-{backend}")
    for case in CASES
    for backend in USABLE
    if backend != "reference" or case.length < 4096
]


@pytest.mark.parametrize("inputs", [feature_inputs, coordinate_inputs])
@pytest.mark.parametrize(("case", "backend"), COMPARED)
def test_backend_agrees_with_the_float64_loop(case, inputs, backend):
    for found in compare_case(case, backend, inputs=inputs):
        assert found.ok, found


@pytest.mark.parametrize("inputs", [feature_inputs, coordinate_inputs])
@pytest.mark.parametrize("case", CASES, ids=label)
def test_the_recorded_form_agrees_with_the_float64_loop(case, inputs, monkeypatch):
    """Done as it is written down for exports."""
    monkeypatch.setattr(recorded, "recording", lambda: True)
    for found in compare_case(case, "torch", inputs=inputs):
        assert found.ok, found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(
    case=st.builds(
        Case,
        batch=st.sampled_from([1, 2]),
        directions=st.sampled_from([1, 2, 4]),
        planes=st.sampled_from([1, 3, 4, 9]),
        length=st.sampled_from([1, 2, 7, 33]),
        channels=st.sampled_from([1, 5, 17]),
        states=st.sampled_from([1, 3, 16, 32]),
        dtype=st.sampled_from([torch.float32, torch.bfloat16]),
        skip=st.booleans(),
    ),
    form=st.sampled_from([feature_inputs, coordinate_inputs]),
)
def test_all_pairs_on_random_shapes(case, form):
    arguments = form(case)
    with torch.no_grad():
        if form is feature_inputs:
            outputs = {name: directional_scan(**{"D": None} | arguments, backend=name) for name in USABLE}
        else:
            outputs = {name: coordinate_scan(**arguments, backend=name) for name in USABLE}
    for one, other in combinations(USABLE, 2):
        assert relative_error(outputs[one], outputs[other]) < case.tolerance, (one, other)
    for backend in USABLE:
        for found in compare_case(case, backend, inputs=form):
            assert found.ok, (backend, found)


@pytest.mark.parametrize("backend", USABLE)
def test_training_segments_join(backend, monkeypatch):
    from scopereg.ops.scan import torch_backend

    monkeypatch.setattr(torch_backend, "_KEPT_ELEMENTS", 1)  # segments of eight tokens
    monkeypatch.setattr(torch_backend, "_CPU_ELEMENTS", 2**24)  # chunks side by side, as on a GPU
    for found in compare_case(Case(2, 2, 3, 45, 5, 4), backend):
        assert found.ok, found


@pytest.mark.parametrize("backend", USABLE)
@pytest.mark.parametrize("case", [Case(2, 2, 5, 20, 150, 3), Case(1, 1, 9, 3, 70, 2, skip=False)], ids=label)
def test_many_channels_and_planes_are_shared_out_whole(case, backend):
    """More channels than a task of the cpu backend takes, more planes than a group of its kernels."""
    for found in compare_case(case, backend):
        assert found.ok, found


@pytest.mark.parametrize("backend", USABLE)
def test_gradients_of_some_inputs_alone_and_of_strided_ones(backend):
    x = feature_inputs(Case())
    plane, gate = x["u"][:, :1].clone().requires_grad_(), x["B"].transpose(2, 3).contiguous().requires_grad_()

    def gradients(dtype: torch.dtype, name: str) -> list[torch.Tensor]:
        same = {"u": plane.expand(-1, 3, -1, -1), "B": gate.transpose(2, 3)}  # one plane for all, tokens last
        given = {name: v.to(dtype) if v.is_floating_point() else v for name, v in (x | same).items()}
        y = directional_scan(**given, backend=name)
        return list(torch.autograd.grad(y.sum(), [plane, gate]))  # the slope is one number, expanded

    for have, want in zip(gradients(torch.float32, backend), gradients(torch.float64, "reference"), strict=True):
        assert relative_error(have, want) < 1e-5


@pytest.mark.parametrize("backend", USABLE)
def test_selective_scan_is_one_direction_in_natural_order(backend):
    case = Case(directions=1, planes=1)
    x = feature_inputs(case)
    with torch.no_grad():
        y = selective_scan(
            x["u"][:, 0], x["delta"][:, 0], x["A"][0], x["B"][:, 0], x["C"][:, 0], x["D"][0], backend=backend
        )
    h = torch.zeros(case.batch, case.channels, case.states)
    for n in range(case.length):
        step = x["delta"][:, 0, n, :, None]
        h = torch.exp(step * x["A"][0]) * h + step * x["B"][:, 0, n, None, :] * x["u"][:, 0, n, :, None]
        want = (h * x["C"][:, 0, n, None, :]).sum(-1) + x["D"][0] * x["u"][:, 0, n]
        torch.testing.assert_close(y[:, n], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", USABLE)
def test_directions_are_summed_scans_of_permuted_tokens(backend):
    case = Case(directions=4, length=20)
    x = feature_inputs(case)
    with torch.no_grad():
        y = directional_scan(**x, backend=backend)
        total = torch.zeros_like(y)
        for k, row in enumerate(x["order"]):
            for p in range(case.planes):
                gates = (x["delta"][:, k, row], x["A"][k], x["B"][:, k, row], x["C"][:, k, row], x["D"][k])
                total[:, p, row] += selective_scan(x["u"][:, p, row], *gates, backend=backend)
    assert relative_error(y, total) < 1e-5


@pytest.mark.parametrize("backend", USABLE)
def test_reading_the_state_table_is_the_coordinate_scan(backend):
    x = coordinate_inputs(Case(directions=4, length=37, states=6))
    gate = x.pop("C")
    with torch.no_grad():
        table = coordinate_states(**x, backend=backend)
        want = coordinate_scan(**x, C=gate, backend=backend)
        assert table.shape == (2, 4, 3, 37, 6, 4)
        assert relative_error(coordinate_readout(table, gate), want) < 1e-5
        # One table, of a fixed volume, read by a batch of frames.
        read = coordinate_readout(table[:1], gate)
        assert relative_error(read, coordinate_readout(table[:1].expand_as(table), gate)) < 1e-5
        assert relative_error(read[:1], coordinate_readout(table[:1], gate[:1])) < 1e-5
        assert relative_error(table, coordinate_states(**x, backend="reference")) < 1e-5


def test_state_table_has_gradients():
    x = coordinate_inputs(Case(directions=2, length=9))
    gate = x.pop("C")
    free = [x[name].double().requires_grad_() for name in ("delta", "A", "B")]
    values = x["values"].double()

    def table(backend: str) -> list[torch.Tensor]:
        h = coordinate_states(values, *free, x["order"], backend=backend)
        return list(torch.autograd.grad(coordinate_readout(h, gate.double()).square().sum(), free))

    for have, want in zip(table("torch"), table("reference"), strict=True):
        torch.testing.assert_close(have, want)


def test_constant_channel_carries_the_mass():
    """Coordinates divided by the mass stay inside the grid's hull: a convex combination."""
    x = coordinate_inputs(Case(directions=4, length=50, states=8))
    values = x["values"].clone()
    values[..., 3] = 1.0
    with torch.no_grad():
        z = coordinate_scan(**x | {"values": values})
    point = z[..., :3] / z[..., 3:]
    low, high = values[..., :3].amin(1), values[..., :3].amax(1)  # (planes, 3)
    assert (z[..., 3] > 0).all()
    assert (point >= low[:, None] - 1e-5).all()
    assert (point <= high[:, None] + 1e-5).all()


def test_bidirectional_mass_counts_both_passes():
    torch.manual_seed(0)
    delta, A = torch.rand(3, 6, dtype=torch.float64), -torch.rand(5, dtype=torch.float64)
    B, C = torch.rand(2, 3, 6, 5, dtype=torch.float64)
    unit = torch.ones(3, 6, 1, dtype=torch.float64)
    step, rate = delta.unsqueeze(-1), A.unsqueeze(0)
    forward = selective_scan(unit, step, rate, B, C, backend="reference")
    flipped = [x.flip(1) for x in (step, B, C)]
    backward = selective_scan(unit, flipped[0], rate, *flipped[1:], backend="reference").flip(1)
    torch.testing.assert_close(bidirectional_mass(delta, A, B, C), (forward + backward).squeeze(-1))
    inputs = [x.requires_grad_() for x in (delta, A, B, C)]
    assert torch.autograd.gradcheck(bidirectional_mass, inputs)
