"""SCoPE-Reg as the paper states it: sizes, shapes, guarantees of the decoder, twins, and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.evaluation.cost import count_parameters, published_cost
from scopereg.geometry import VoxelPoses, geodesic_angle_deg, sample_poses
from scopereg.networks import ScopeReg, create, names, recipe
from scopereg.networks.decoder import CoordinateDecoder
from scopereg.networks.fusion import WIDTH
from scopereg.networks.lattice import Lattice, scan_orders
from scopereg.networks.published import forward_as_published
from scopereg.training.losses import pose_loss

PARAMETERS = {
    "scope-reg": 6_494_901,
    "cwcd-kabsch": 6_494_901,
    "cross-attention-heads": 6_609_289,
    "ssvf-heads": 6_807_945,
    "cwcd-heads": 7_066_686,
}


VARIANTS = tuple(name for name in names() if recipe(name).objective is None)  # baselines have files of their own


def images(batch: int, *shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, *shape[1:], generator=generator), torch.rand(batch, *shape, generator=generator)


def network(name: str = "scope-reg", scale: float = 1.0) -> ScopeReg:
    """A network with random weights; `scale` makes all of them that much larger."""
    torch.manual_seed(0)
    made = create(name).eval()
    for parameter in made.parameters():
        parameter.data.mul_(scale)
    return made


def centred(depth: int, height: int, width: int) -> Lattice:
    shape = (depth, height, width)
    return Lattice(shape, tuple(-(n - 1) / 2 for n in shape))  # type: ignore[arg-type]


def decoded(scale: float = 10.0) -> tuple[CoordinateDecoder, Tensor, Tensor, Lattice]:
    """A decoder with large random weights and random tokens on a small lattice."""
    lattice = centred(3, 4, 5)
    generator = torch.Generator().manual_seed(1)
    x_s = torch.randn(2, 20, WIDTH, generator=generator)
    x_v = torch.randn(2, 3, 20, WIDTH, generator=generator)
    return network(scale=scale).decoder, x_s, x_v, lattice


# sizes and costs


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts_are_the_published_ones(name: str) -> None:
    assert count_parameters(create(name)) == PARAMETERS[name]


@pytest.mark.parametrize(
    ("name", "part", "count"),
    [
        ("scope-reg", "encoder.slice_encoder", 1_226_432),
        ("scope-reg", "encoder.volume_encoder", 3_604_544),
        ("scope-reg", "decoder.feature_scan", 1_249_280),
        ("scope-reg", "decoder.coordinate_scan", 133_508),
        ("scope-reg", "decoder.depth_gate", 16_945),
        ("ssvf-heads", "heads", 200_073),
        ("ssvf-heads", "descriptor", 263_424),
        ("cwcd-heads", "descriptor", 371_712),
    ],
)
def test_parameter_counts_of_the_parts(name: str, part: str, count: int) -> None:
    assert count_parameters(create(name).get_submodule(part)) == count


def test_counting_costs_changes_nothing() -> None:
    made = network()
    made.decoder.train()
    cost = published_cost(made, (4, 130, 130))
    assert cost.scan_gflops == pytest.approx(published_cost(made, (8, 136, 136)).scan_gflops)
    assert not made.training
    assert made.decoder.training


@pytest.mark.parametrize(("size", "gflops"), [(128, 8.6), (192, 19.4), (384, 77.7), (512, 138.2)])
def test_gflops_of_the_published_form(size: int, gflops: float) -> None:
    cost = published_cost(network(), (32, size, size))
    assert cost.gflops == pytest.approx(gflops, abs=0.06)
    assert cost.scan_gflops == pytest.approx(0.609 * (size / 128) ** 2, rel=1e-3)


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(ScopeRegError, match="did you mean 'scope-reg'"):
        create("scopereg")
    assert "scope-reg" in names()


# shapes


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("shape", [(16, 24, 32), (9, 17, 30), (1, 8, 8)])
def test_any_shape_and_batch(name: str, shape: tuple[int, int, int]) -> None:
    with torch.no_grad():
        result = network(name)(*images(3, *shape))
    assert result.rotation.shape == (3, 3, 3)
    assert result.translation.shape == (3, 3)
    assert torch.allclose(result.rotation @ result.rotation.mT, torch.eye(3).expand(3, 3, 3), atol=1e-5)
    assert torch.linalg.det(result.rotation).min() > 0.99
    if name in ("scope-reg", "cwcd-heads", "cwcd-kabsch", "tri-plane"):
        cells = tuple(-(-n // 8) for n in shape[1:])
        assert result.coordinates is not None
        assert result.coordinates.shape == (3, 3, *cells)
        assert result.evidence is not None
        assert result.evidence.shape == (3, *cells)


def test_wrong_shapes_are_refused() -> None:
    slices, volumes = images(2, 16, 24, 32)
    for bad in ((slices[:1], volumes), (slices[None], volumes), (slices[:, :8], volumes)):
        with pytest.raises(ScopeRegError, match="does not fit"):
            network()(*bad)


def test_padding_to_the_stride_does_not_move_the_pose() -> None:
    """The same content padded by hand: the pose then differs by the shift of the centre alone."""
    slices, volumes = images(1, 13, 27, 30)
    with torch.no_grad():
        odd = network()(slices, volumes)
        padded = network()(
            torch.nn.functional.pad(slices, (1, 1, 2, 3)), torch.nn.functional.pad(volumes, (1, 1, 2, 3, 1, 2))
        )
    # Padding one more at the end moves the centre half a voxel forward: x by 0, y by 0.5, z by 0.5.
    slice_shift, volume_shift = torch.tensor([0.0, 0.5, 0.0]), torch.tensor([0.0, 0.5, 0.5])
    assert torch.allclose(odd.rotation, padded.rotation, atol=1e-5)
    moved = odd.translation - volume_shift + odd.rotation[0] @ slice_shift
    assert torch.allclose(padded.translation, moved, atol=1e-4)


def test_a_batch_gives_what_single_images_give() -> None:
    slices, volumes = images(3, 16, 24, 32)
    with torch.no_grad():
        together = network()(slices, volumes)
        single = [network()(slices[i : i + 1], volumes[i : i + 1]).translation for i in range(3)]
    assert torch.allclose(together.translation, torch.cat(single), atol=1e-3)


def test_autocast_keeps_scans_and_solver_in_float32() -> None:
    slices, volumes = images(2, 16, 32, 32)
    with torch.no_grad():
        plain = network()(slices, volumes)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = network()(slices, volumes)
    assert all(value.dtype == torch.float32 for value in mixed[:4])
    assert torch.allclose(plain.translation, mixed.translation, atol=0.3)
    assert geodesic_angle_deg(plain.rotation, mixed.rotation).max() < 1.0


# what the decoder guarantees


def test_every_coordinate_lies_in_the_hull_of_the_grid_and_every_evidence_is_positive() -> None:
    decoder, x_s, x_v, lattice = decoded()
    coordinates, evidence = decoder(x_s, x_v, lattice)
    limit = torch.tensor([2.0, 1.5, 1.0])
    assert (coordinates.abs() <= limit * (1 + 1e-5)).all()
    assert (evidence > 0).all()
    assert torch.isfinite(evidence).all()
    assert coordinates.std() > 0.1  # not all at the centre: the bound is met by something that varies


@pytest.mark.parametrize("norm", ["batch", "instance"])
@pytest.mark.parametrize("seed", range(3))
def test_the_whole_network_keeps_its_promises_at_ten_times_the_weights(norm: str, seed: int) -> None:
    """Gates then underflow in float32 and masses span fifty decades: still no coordinate outside, no weight of zero."""
    torch.manual_seed(seed)
    large = create("scope-reg", norm=norm).eval()
    for parameter in large.parameters():
        parameter.data.mul_(10)
    with torch.no_grad():
        result = large(*images(2, 24, 32, 40, seed=seed))
    limit = torch.tensor([2.0, 1.5, 1.0])[:, None, None]
    assert result.coordinates is not None
    assert result.evidence is not None
    assert (result.coordinates.abs() <= limit * (1 + 1e-5)).all()
    assert (result.evidence > 0).all()
    assert torch.isfinite(result.evidence).all()
    assert torch.isfinite(result.translation).all()
    assert torch.allclose(result.rotation @ result.rotation.mT, torch.eye(3).expand(2, 3, 3), atol=1e-5)


def explicit_kernel(decoder: CoordinateDecoder, x_s: Tensor, x_v: Tensor, lattice: Lattice) -> Tensor:
    """Weights (B, K, D', n, m) of volume token m at slice token n, built from the formula in float64 (eq. kernel)."""
    scan = decoder.coordinate_scan
    step, write = (value.double() for value in scan.volume_gates(x_v))  # (B, K, D', L), (B, K, D', L, S)
    read, decay = scan.readout(x_s).double(), scan.decay().double()
    order = scan_orders(*lattice.shape[1:], x_s.device)
    length = order.shape[1]
    kernel = torch.zeros(len(x_s), 4, lattice.shape[0], length, length, dtype=torch.float64)
    for k, path in enumerate(order.tolist()):
        for n_at, n in enumerate(path):
            for m_at, m in enumerate(path[: n_at + 1]):
                passed = step[:, k, :, path[m_at + 1 : n_at + 1]].sum(-1)  # (B, D')
                fade = torch.exp(passed[..., None] * decay[k])  # (B, D', S)
                weight = (read[:, k, None, n] * fade * write[:, k, :, m]).sum(-1) * step[:, k, :, m]
                kernel[:, k, :, n, m] = weight
    return kernel


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_coordinates_and_mass_are_the_sums_of_the_explicit_kernel(scale: float) -> None:
    decoder, x_s, x_v, lattice = decoded(scale)
    with torch.no_grad():
        kernel = explicit_kernel(decoder, x_s, x_v, lattice)
        order = scan_orders(*lattice.shape[1:], x_s.device)
        points = lattice.volume_points(x_s.device)
        moments = decoder.coordinate_scan(x_v, x_s, points, order).double()
    wanted = torch.einsum("bkdnm,dmp->bdnp", kernel, points.double())
    assert torch.allclose(moments, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))
    assert torch.allclose(moments[..., 3], kernel.sum((1, 4)), rtol=1e-4)


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_every_slice_token_is_reached_by_every_volume_token(scale: float) -> None:
    decoder, x_s, x_v, lattice = decoded(scale)
    with torch.no_grad():
        kernel = explicit_kernel(decoder, x_s, x_v, lattice)
    assert (kernel >= 0).all()
    assert (kernel.sum(1) > 0).all()
    assert (kernel[:, 0] == 0).any()  # one direction alone is causal and does not reach all


def with_directions(decoder: CoordinateDecoder, order: list[int]) -> CoordinateDecoder:
    """The same decoder with the weights of its directions in another order."""
    for module in (decoder.feature_scan, decoder.coordinate_scan):
        for parameter in module.parameters():
            parameter.data = parameter.data[order]
    return decoder


def test_transposed_tokens_give_transposed_coordinates() -> None:
    decoder, x_s, x_v, lattice = decoded()
    plain = decoder(x_s, x_v, lattice)
    depth, height, width = lattice.shape
    turned_s = x_s.unflatten(1, (height, width)).transpose(1, 2).flatten(1, 2)
    turned_v = x_v.unflatten(2, (height, width)).transpose(2, 3).flatten(2, 3)
    # Rows become columns: directions 0, 1 change places with 2, 3, and x with y.
    turned = with_directions(decoder, [2, 3, 0, 1])(turned_s, turned_v, centred(depth, width, height))
    back = turned.coordinates.unflatten(1, (width, height)).transpose(1, 2).flatten(1, 2)[..., [1, 0, 2]]
    assert torch.allclose(plain.coordinates, back, atol=1e-3)
    assert not torch.allclose(plain.coordinates, decoder(x_s, x_v, lattice).coordinates, atol=1e-3)


def test_reversed_tokens_give_reversed_coordinates() -> None:
    decoder, x_s, x_v, lattice = decoded()
    plain = decoder(x_s, x_v, lattice)
    turned = with_directions(decoder, [1, 0, 3, 2])(x_s.flip(1), x_v.flip(2), lattice)
    back = turned.coordinates.flip(1) * torch.tensor([-1.0, -1.0, 1.0])
    assert torch.allclose(plain.coordinates, back, atol=1e-3)
    assert torch.allclose(plain.evidence, turned.evidence.flip(1), rtol=1e-3)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [(32, 64, 64), (16, 48, 40)])
def test_an_untrained_network_answers_with_almost_the_identity(seed: int, shape: tuple[int, int, int]) -> None:
    torch.manual_seed(seed)
    untrained = create("scope-reg").eval()
    noise = torch.nn.functional.interpolate(torch.rand(1, 1, 4, 6, 6), shape, mode="trilinear")[:, 0]
    with torch.no_grad():
        for slices, volumes in (images(1, *shape, seed=seed), (noise[:, shape[0] // 2], noise)):
            result = untrained(slices, volumes)
            assert result.translation.norm(dim=-1).max() < 1.0
            assert geodesic_angle_deg(result.rotation, torch.eye(3)).max() < 1.0


# twins and gradients


@pytest.mark.parametrize("name", ["scope-reg", "cwcd-kabsch"])
@pytest.mark.parametrize("shape", [(16, 24, 32), (11, 30, 21)])
def test_the_published_form_gives_the_same_pose(name: str, shape: tuple[int, int, int]) -> None:
    inputs = images(2, *shape)
    with torch.no_grad():
        fast, slow = network(name)(*inputs), forward_as_published(network(name), *inputs)
    assert torch.allclose(fast.rotation, slow.rotation, atol=1e-5)
    assert torch.allclose(fast.translation, slow.translation, atol=1e-4)
    assert torch.allclose(fast.coordinates, slow.coordinates, atol=1e-4)
    assert torch.allclose(fast.evidence, slow.evidence, rtol=1e-4)


def test_the_published_form_gives_the_same_gradients() -> None:
    inputs, true = images(2, 16, 16, 24), sample_poses(2, 5, (16, 16, 24), torch.Generator().manual_seed(0))
    gradients = []
    for forward in (lambda net: net(*inputs), lambda net: forward_as_published(net, *inputs)):
        made = network()
        result = forward(made)
        pose_loss(VoxelPoses(result.rotation, result.translation), true).mean().backward()
        gradients.append({name: p.grad for name, p in made.named_parameters()})
    for name, first in gradients[0].items():
        assert torch.allclose(first, gradients[1][name], rtol=1e-3, atol=1e-4 * float(first.abs().max())), name


@pytest.mark.parametrize("name", VARIANTS)
def test_the_pose_loss_alone_reaches_every_parameter(name: str) -> None:
    torch.manual_seed(0)
    made = create(name).train()
    true = sample_poses(2, 10, (16, 32, 24), torch.Generator().manual_seed(0))
    result = made(*images(2, 16, 32, 24))
    pose_loss(VoxelPoses(result.rotation, result.translation), true).mean().backward()
    for key, parameter in made.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
        assert parameter.grad.abs().max() > 0, key


def test_training_works_after_an_evaluation_in_inference_mode() -> None:
    made, inputs = network(), images(2, 16, 24, 40, seed=3)
    with torch.inference_mode():
        made(*inputs)
    made.train()(*inputs).translation.sum().backward()
    assert made.decoder.coordinate_scan.log_decay.grad is not None


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_networks_of_other_precision_give_about_the_same(name: str, dtype: torch.dtype) -> None:
    inputs = images(2, 16, 24, 32)
    with torch.no_grad():
        plain = network(name)(*inputs)
        other = network(name).to(dtype)(*(x.to(dtype) for x in inputs))
        cast = network(name)(*(x.to(torch.float16) for x in inputs))  # half-precision images, float32 weights
    assert geodesic_angle_deg(plain.rotation.double(), other.rotation.double()).max() < 2.0
    assert (plain.translation - other.translation).abs().max() < 0.5
    assert (plain.translation - cast.translation).abs().max() < 0.1


@pytest.mark.unchecked_shapes
def test_images_of_whole_numbers_and_unknown_options_are_refused() -> None:
    slices, volumes = images(1, 8, 16, 16)
    with pytest.raises(ScopeRegError, match="floating-point"):
        network()((255 * slices).byte(), (255 * volumes).byte())
    with pytest.raises(ScopeRegError, match="unknown norm 'group'"):
        create("scope-reg", norm="group")
    with pytest.raises(ScopeRegError, match="did you mean 'norm'"):
        create("scope-reg", nrom="batch")


@pytest.mark.unchecked_shapes
def test_only_networks_that_the_paper_describes_have_a_published_form() -> None:
    for name in ("tri-plane", "ssvf-heads"):
        with pytest.raises(ScopeRegError, match="no published form"):
            forward_as_published(network(name), *images(1, 16, 16, 24))


def test_tri_plane_adds_scans_over_coronal_and_sagittal_planes() -> None:
    """Against one plane at a time: a side plane is a sequence steered by its line of slice tokens, at all depths."""
    decoder = network("tri-plane").decoder
    _, x_s, x_v, lattice = decoded()
    depth, height, width = lattice.shape
    volume, grid = x_v.unflatten(2, (height, width)), x_s.unflatten(1, (height, width))
    with torch.no_grad():
        wanted = decoder.feature_scan(x_v, x_s, lattice.orders(x_s.device)).unflatten(2, (height, width))
        for row in range(height):
            line = grid[:, row].repeat(1, depth, 1)  # (B, D' W', C'), the same for every depth
            plane = volume[:, :, row].flatten(1, 2)[:, None]
            fused = decoder.coronal_scan(plane, line, scan_orders(depth, width, x_s.device))
            wanted[:, :, row] += fused[:, 0].unflatten(1, (depth, width))
        for column in range(width):
            line = grid[:, :, column].repeat(1, depth, 1)
            plane = volume[:, :, :, column].flatten(1, 2)[:, None]
            fused = decoder.sagittal_scan(plane, line, scan_orders(depth, height, x_s.device))
            wanted[:, :, :, column] += fused[:, 0].unflatten(1, (depth, height))
        found = decoder.fuse(x_s, x_v, lattice)
    assert torch.allclose(found, wanted.flatten(2, 3), rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))
