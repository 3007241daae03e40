"""EUReg as the facts about it state: sizes, costs, units of the flow and of the pose, errors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.evaluation.cost import count_parameters, network_cost
from scopereg.geometry import euler_deg_from_rotation
from scopereg.networks.baselines.eureg import CoarseFlow, EuReg, grid_points

SMALL = (16, 64, 64)
MILLIONS = {
    (32, 128, 128): 0.8117,
    (32, 192, 192): 1.1393,
    (32, 384, 384): 2.9088,
    (32, 512, 512): 4.7438,
    (40, 64, 64): 0.6151,
}


def images(frames: int, volumes: int, shape: tuple[int, int, int] = SMALL) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(frames, *shape[1:], generator=generator), torch.rand(volumes, *shape, generator=generator)


def lively() -> EuReg:
    """A network whose poses depend on the images: weights that are not almost zero, norms that have seen some."""
    torch.manual_seed(0)
    made = EuReg(shape=SMALL)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
            module.momentum = 1.0
    with torch.no_grad():
        made.train()(*images(2, 2))
    tiny = (
        made.flow.slice_features[0],
        made.flow.volume_features[0],
        made.translation_head[-1],
        made.rotation_head[-1],
    )
    for layer in tiny:
        assert isinstance(layer, nn.Linear)
        nn.init.normal_(layer.weight)
    return made.eval()


# sizes and costs


@pytest.mark.parametrize("shape", MILLIONS)
def test_parameter_counts_are_the_published_ones(shape: tuple[int, int, int]) -> None:
    with torch.device("meta"):
        made = EuReg(shape=shape)
    assert count_parameters(made) / 1e6 == pytest.approx(MILLIONS[shape], abs=5e-5)


@pytest.mark.parametrize(
    ("part", "count"),
    [
        ("slice_encoder", 73_944),
        ("volume_encoder", 220_392),
        ("flow", 1_608),
        ("translation_head", 257_859),
        ("rotation_head", 257_859),
    ],
)
def test_parameter_counts_of_the_parts(part: str, count: int) -> None:
    assert count_parameters(EuReg().get_submodule(part)) == count


def test_multiply_adds_are_the_published_ones() -> None:
    assert network_cost(EuReg(), (32, 128, 128)).gflops == pytest.approx(2.295, abs=5e-4)


# geometry


def test_poses_start_at_almost_nothing() -> None:
    torch.manual_seed(0)
    result = EuReg(shape=SMALL).eval()(*images(2, 2))
    assert result.translation.shape == (2, 3)
    assert result.translation.abs().max() < 1e-2
    assert euler_deg_from_rotation(result.rotation).abs().max() < 1e-2
    assert result.coordinates is None
    assert result.evidence is None


def test_a_cell_flows_to_the_voxel_that_looks_like_it() -> None:
    depth, height, width = 2, 3, 4
    flow = CoarseFlow(12)
    flow.slice_features = flow.volume_features = nn.Identity()  # type: ignore[assignment]
    marks = 10 * torch.eye(depth * height * width)  # each voxel has a channel of its own
    wanted = torch.randperm(depth * height * width, generator=torch.Generator().manual_seed(0))[: height * width]
    cells = marks[wanted].T.reshape(1, -1, height, width)
    voxels = marks.T.reshape(1, -1, depth, height, width)
    found = flow(cells, voxels)
    for cell, voxel in enumerate(wanted.tolist()):
        row, column = divmod(cell, width)
        z, y, x = voxel // (height * width), voxel // width % height, voxel % width
        there = torch.tensor([x - 1.5, y - 1.0, z - 0.5]) - torch.tensor([column - 1.5, row - 1.0, 0.0])
        torch.testing.assert_close(found[0, :, row, column], there, atol=1e-4, rtol=0)


def test_untrained_cells_flow_to_the_centre() -> None:
    torch.manual_seed(0)
    made = EuReg(shape=SMALL).eval()
    flow = made.flow_pose(*images(1, 1)).flow
    torch.testing.assert_close(flow[0].flatten(1).T, -grid_points(1, 8, 8, flow.device), atol=0.05, rtol=0)


def test_translation_is_in_voxels_and_taken_from_what_the_rotation_head_sees() -> None:
    made = lively()

    class Shift(nn.Module):
        def forward(self, flow: Tensor) -> Tensor:
            return flow.new_tensor([1.0, 2.0, 3.0]).expand(len(flow), 3)

    class Seen(nn.Module):
        def forward(self, flow: Tensor) -> Tensor:
            self.flow = flow
            return flow.mean((2, 3))

    made.translation_head, made.rotation_head = Shift(), Seen()  # type: ignore[assignment]
    pose = made.flow_pose(*images(1, 1))
    torch.testing.assert_close(pose.translation, torch.tensor([[63 / 7, 2 * 63 / 7, 3 * 15]]))
    shifted = (pose.flow - torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1, 1)) / 32**0.5
    torch.testing.assert_close(made.rotation_head.flow, shifted)


def test_voxels_in_a_cell_at_the_published_size() -> None:
    assert EuReg().voxels_per_cell == pytest.approx((127 / 15, 127 / 15, 31 / 3))
    assert EuReg().radius == pytest.approx(11.31, abs=0.01)


def test_a_shared_volume_is_the_same_as_its_copies() -> None:
    made = lively()
    slices, volumes = images(4, 2)
    with torch.no_grad():
        shared, copied = made(slices, volumes), made(slices, volumes.repeat_interleave(2, 0))
    assert (shared.translation[0] - shared.translation[1]).abs().max() > 1e-3  # frames differ
    torch.testing.assert_close(shared.rotation, copied.rotation)
    torch.testing.assert_close(shared.translation, copied.translation)


def test_poses_are_single_precision_under_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        result = lively()(*images(1, 1))
    assert result.rotation.dtype == result.translation.dtype == torch.float32


# errors


def test_shapes_may_come_from_json() -> None:
    assert EuReg(shape=[16, 64, 64]).shape == SMALL


@pytest.mark.parametrize("shape", [(8, 64, 64), (16, 56, 64), (16, 64), (16, 64.0, 64)])
def test_a_shape_that_it_cannot_take_is_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(ScopeRegError, match=r"networks\.create\(\"eureg\", shape\)"):
        EuReg(shape=shape)


def test_images_of_another_shape_are_an_error() -> None:
    with pytest.raises(ScopeRegError, match="was made for"):
        EuReg(shape=SMALL)(*images(1, 1, (24, 64, 64)))
