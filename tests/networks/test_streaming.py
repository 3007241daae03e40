"""Streaming gives what the forward pass gives, whatever the form of the network, the sizes and what ran before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import geodesic_angle_deg, rotation_from_euler_deg
from scopereg.networks import ScopeReg, create
from scopereg.networks.encoders import pool_plane, pool_volume
from scopereg.networks.folded import FoldedEncoder
from scopereg.networks.published import forward_as_published
from scopereg.networks.scope_reg import NetworkResult
from scopereg.networks.streaming import Located, Streaming
from scopereg.registration.model import Registrar

FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"depth_stride": 4},
    {"reach": 1.75, "matching": True, "looks": 3},
    {"norm": "instance"},
    {"looks": 2},
    {"reach": 1.75, "matching": True, "looks": 2, "depth_stride": 4, "later_planes": 2},
)


def images(frames: int, shape: tuple[int, int, int], seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(frames, *shape[1:], generator=generator), torch.rand(*shape, generator=generator)


def lively(**options: Any) -> ScopeReg:
    """A network whose weights and norms are far from those of a fresh one, which answers with the identity."""
    torch.manual_seed(3)
    network = create("scope-reg", **options).eval()
    assert isinstance(network, ScopeReg)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d | torch.nn.BatchNorm3d):
                module.running_mean.uniform_(-0.3, 0.3)  # type: ignore[union-attr]
                module.running_var.uniform_(0.5, 2.0)  # type: ignore[union-attr]
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-0.2, 0.2)
        for name, parameter in network.named_parameters():
            if "read" in name or "write" in name or "depth_gate.linear.weight" in name:
                parameter.mul_(3).add_(torch.randn_like(parameter) * 0.1)
    return network


def apart(found: Located, wanted: Any) -> tuple[float, float]:
    """Largest difference in voxels and degrees."""
    shift = (found.translation.cpu() - wanted.translation.cpu()).norm(dim=1).max()
    turn = geodesic_angle_deg(found.rotation.cpu().double(), wanted.rotation.cpu().double()).max()
    return float(shift), float(turn)


@pytest.mark.parametrize("options", FORMS, ids=str)
@pytest.mark.parametrize("shape", [(16, 32, 32), (13, 27, 38)], ids=str)
def test_the_pose_is_that_of_the_forward_pass(options: dict[str, Any], shape: tuple[int, int, int]) -> None:
    network = lively(**options)
    slices, volume = images(3, shape)
    with torch.inference_mode():
        wanted = network(slices, volume[None])
    assert wanted.translation.norm(dim=1).max() > 0.3  # not simply the identity
    streaming = Streaming(network)
    for found in (
        streaming.locate(streaming.prepare(volume), slices),
        streaming.locate(streaming.prepare(volume, table=False), slices),
        streaming.whole(slices, volume),
    ):
        shift, turn = apart(found, wanted)
        assert shift < 1e-3
        assert turn < 1e-3
        torch.testing.assert_close(
            found.evidence, wanted.evidence.flatten(1), rtol=1e-2, atol=1e-6 * float(wanted.evidence.max())
        )


@pytest.mark.parametrize("options", [{"reach": 1.75, "matching": True, "looks": 3}, {"looks": 2}], ids=str)
@pytest.mark.parametrize("shape", [(16, 32, 32), (13, 27, 38)], ids=str)
def test_looks_from_starts_are_those_of_the_network(options: dict[str, Any], shape: tuple[int, int, int]) -> None:
    network = lively(**options)
    (image,), volume = images(1, shape)
    rotation = rotation_from_euler_deg(torch.tensor([[0.0, 0, 0], [8, 0, -5], [0, 3, 0]]))
    translation = torch.tensor([[0.0, 0, 0], [4, -3, 1], [0, 0, 2]])
    with torch.inference_mode():
        tokens = network.encoder(image.expand(3, -1, -1), volume[None])
        wanted = NetworkResult(rotation, translation)
        for _ in range(4):
            wanted = network.look_again(tokens, wanted)
    streaming = Streaming(network)
    for table in (True, False):
        found = streaming.locate_from(streaming.prepare(volume, table=table), image, rotation, translation, 4)
        shift, turn = apart(found, wanted)
        assert shift < 1e-3
        assert turn < 1e-3
        torch.testing.assert_close(
            found.evidence, wanted.evidence.flatten(1), rtol=1e-2, atol=1e-6 * float(wanted.evidence.max())
        )


def test_trained_weights_give_the_pose_of_the_published_form(bare: Registrar) -> None:
    network = bare.network
    assert isinstance(network, ScopeReg)
    one_look = create("scope-reg", norm="instance", depth_stride=4)
    one_look.load_state_dict(network.state_dict())
    one_look.eval()
    slices, volume = images(1, (32, 64, 64))
    streaming = Streaming(one_look)  # type: ignore[arg-type]
    with torch.inference_mode():
        wanted = forward_as_published(one_look, slices, volume[None])  # type: ignore[arg-type]
    shift, turn = apart(streaming.locate(streaming.prepare(volume), slices), wanted)
    assert shift < 0.01
    assert turn < 0.01


def test_frames_do_not_know_of_each_other_nor_of_other_volumes() -> None:
    streaming = Streaming(lively(reach=1.75, matching=True, looks=2))
    slices, volume = images(3, (16, 32, 32))
    other = streaming.prepare(images(1, (8, 24, 40), seed=5)[1])
    prepared = streaming.prepare(volume)
    together = streaming.locate(prepared, slices)
    for row in (2, 0, 1):
        streaming.locate(other, images(2, (8, 24, 40), seed=row)[0])
        alone = streaming.locate(prepared, slices[row : row + 1])
        torch.testing.assert_close(alone.translation[0], together.translation[row], rtol=0, atol=1e-4)


def test_a_folded_encoder_is_the_encoder() -> None:
    encoder = lively().encoder.volume_encoder
    image = images(1, (16, 24, 24))[1][None, None]
    with torch.no_grad():
        wanted = encoder(image)
        found = FoldedEncoder(encoder, torch.float32, torch.device("cpu"))(image)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stride", [2, (1, 2, 2)])
@pytest.mark.parametrize("shape", [(8, 12, 10), (5, 7, 9), (1, 3, 3)])
def test_pooling_by_planes_is_pooling(shape: tuple[int, int, int], stride: int | tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, *shape, generator=generator).requires_grad_()
    found, wanted = pool_volume(x, stride), torch.nn.functional.max_pool3d(x, 3, stride, 1)
    assert torch.equal(found, wanted)
    felt = torch.randn(found.shape, generator=generator)
    have, want = (torch.autograd.grad(y, [x], felt)[0] for y in (found, wanted))
    torch.testing.assert_close(have, want)


@pytest.mark.parametrize("shape", [(8, 8), (7, 9), (1, 6), (2, 1), (64, 64)])
def test_pooling_by_rows_and_columns_is_pooling(shape: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(0)).relu()
    assert torch.equal(pool_plane(x), torch.nn.functional.max_pool2d(x, 3, 2, 1))


def test_bfloat16_moves_a_trained_network_s_pose_by_little(bare: Registrar) -> None:
    network = bare.network
    assert isinstance(network, ScopeReg)
    patient = phantom.create("echo", seed=200_001, shape=(32, 64, 64))
    slices, volume = patient.acquire(torch.eye(3)[None], torch.tensor([[2.0, -1.0, 1.0]])).images, patient.volume.array
    full, reduced = (Streaming(network, precision=name) for name in ("float32", "bfloat16"))  # type: ignore[arg-type]
    shift, turn = apart(reduced.whole(slices, volume), full.whole(slices, volume))
    assert shift < 0.5
    assert turn < 0.5


@pytest.mark.unchecked_shapes
def test_what_does_not_fit_is_explained() -> None:
    streaming = Streaming(lively())
    prepared = streaming.prepare(images(1, (8, 16, 16))[1])
    with pytest.raises(ScopeRegError, match="do not fit planes of 16 x 16"):
        streaming.locate(prepared, torch.rand(1, 16, 24))
    with pytest.raises(ScopeRegError, match="nothing to prepare"):
        Streaming(create("tri-plane"))  # type: ignore[arg-type]
    with pytest.raises(ScopeRegError, match="unknown precision"):
        Streaming(lively(), precision="float8")  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("options", FORMS, ids=str)
def test_a_gpu_gives_what_a_cpu_gives(options: dict[str, Any]) -> None:
    network = lively(**options)
    slices, volume = images(2, (32, 64, 64))
    wanted = Streaming(network).whole(slices, volume)
    for precision, limit in (("float32", 0.01), ("float16", 0.05)):
        streaming = Streaming(network, "cuda", precision)  # type: ignore[arg-type]
        with torch.backends.cudnn.flags(allow_tf32=precision != "float32"):  # a CPU does not round to it
            results = streaming.locate(streaming.prepare(volume), slices), streaming.whole(slices, volume)
        for found in results:
            shift, turn = apart(found, wanted)
            assert shift < limit, (precision, shift)
            assert turn < limit, (precision, turn)
