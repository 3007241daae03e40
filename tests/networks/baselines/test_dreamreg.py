"""DreamReg as the facts about it state: sizes, costs, what inference looks at, and that it repeats itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from scopereg.errors import ScopeRegError
from scopereg.evaluation.cost import count_parameters, network_cost
from scopereg.geometry import euler_deg_from_rotation
from scopereg.networks.baselines.dreamreg import DreamReg, move

SMALL = (8, 32, 32)  # a CAMUS variant that fits anywhere
MILLIONS = {
    (32, 128, 128): 103.289,
    (32, 192, 192): 208.147,
    (32, 384, 384): 774.378,
    (32, 512, 512): 1361.580,
    (40, 64, 64): 41.289,
}


def images(frames: int, volumes: int, shape: tuple[int, int, int] = SMALL) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(frames, *shape[1:], generator=generator), torch.rand(volumes, *shape, generator=generator)


@pytest.fixture(scope="module")
def network() -> DreamReg:
    """A network whose norms have seen images, so that embeddings depend on them."""
    torch.manual_seed(0)
    made = DreamReg(shape=SMALL)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
            module.momentum = 1.0
    with torch.no_grad():
        made.train()(*images(2, 2))
    return made.eval()


# sizes and costs


@pytest.mark.parametrize("shape", MILLIONS)
def test_parameter_counts_are_the_published_ones(shape: tuple[int, int, int]) -> None:
    with torch.device("meta"):
        made = DreamReg(shape=shape)
    assert count_parameters(made) / 1e6 == pytest.approx(MILLIONS[shape], abs=5e-4)


@pytest.mark.parametrize(
    ("part", "millions"),
    [
        ("prior_net", 0.92),
        ("posterior_net", 1.19),
        ("transition", 7.89),
        ("decoder", 5.95),
        ("policy", 0.40),
        ("reward", 0.66),
        ("unused", 2.10),
    ],
)
def test_parameter_counts_of_the_parts(part: str, millions: float, network: DreamReg) -> None:
    assert count_parameters(network.get_submodule(part)) / 1e6 == pytest.approx(millions, abs=0.005)


def test_multiply_adds_are_the_published_ones() -> None:
    assert network_cost(DreamReg(), (32, 128, 128)).gflops == pytest.approx(2.461, abs=5e-4)


@pytest.mark.parametrize(("shape", "variant", "side"), [(SMALL, "camus", 192), ((8, 64, 64), "prostate", 64)])
def test_the_size_chooses_variant_and_decoder(shape: tuple[int, int, int], variant: str, side: int) -> None:
    with torch.device("meta"):
        made = DreamReg(shape=shape)
        drawn = made.decoder(torch.zeros(2, 2560))
    assert made.variant == variant
    assert drawn.shape == (2, 1, side, side)


# inference


def test_poses_start_near_nothing(network: DreamReg) -> None:
    with torch.no_grad():
        result = network(*images(2, 2))
    assert result.translation.shape == (2, 3)
    assert result.translation.abs().max() < 2
    assert euler_deg_from_rotation(result.rotation).abs().max() < 2
    assert result.coordinates is None
    assert result.evidence is None


def test_inference_repeats_itself_whoever_is_in_the_batch(network: DreamReg) -> None:
    slices, volumes = images(3, 3)
    with torch.no_grad():
        torch.manual_seed(1)
        first = network(slices, volumes)
        torch.manual_seed(2)
        again = network(slices, volumes)
        alone = network(slices[1:2], volumes[1:2])
    assert torch.equal(first.translation, again.translation)
    assert torch.equal(first.rotation, again.rotation)
    torch.testing.assert_close(first.translation[1:2], alone.translation, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(first.rotation[1:2], alone.rotation, atol=1e-5, rtol=0)


def test_the_noise_is_standard_normal_and_no_part_of_the_weights(network: DreamReg) -> None:
    assert network.noise.shape == (7, 1, 1024)
    assert network.noise.mean().abs() < 0.05
    assert network.noise.std() == pytest.approx(1, abs=0.05)
    assert "noise" not in network.state_dict()
    torch.manual_seed(5)
    with torch.device("meta"):  # weights anywhere, the draw is the same
        assert DreamReg(shape=SMALL).noise.device.type == "meta"
    shorter = DreamReg(shape=SMALL, steps=2)
    assert torch.equal(shorter.noise, network.noise[:2])


def test_training_draws_afresh(network: DreamReg) -> None:
    slices, volumes = images(2, 2)
    try:
        network.train()
        poses = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            poses.append(network(slices, volumes).translation.detach())
    finally:
        network.eval()
    torch.testing.assert_close(poses[0], poses[1])
    assert not torch.allclose(poses[0], poses[2])


def test_the_first_step_is_blind_to_the_volume_and_the_second_is_not(
    network: DreamReg, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices, volumes = images(1, 1)
    moved = []
    for steps in (1, 2):
        monkeypatch.setattr(network, "steps", steps)
        with torch.no_grad():
            moved.append((network(slices, volumes).translation - network(slices, 1 - volumes).translation).abs().max())
    assert moved[0] == 0
    assert moved[1] > 0


def test_steps_add_up_and_angles_are_wrapped(network: DreamReg, monkeypatch: pytest.MonkeyPatch) -> None:
    step = torch.tensor([[1.0, -2.0, 40.0, 50.0, 0.0, 10.0]])
    monkeypatch.setattr(network, "delta", lambda belief, goal: step)
    with torch.no_grad():
        result = network(*images(1, 1))
    torch.testing.assert_close(result.translation, torch.tensor([[7.0, -14.0, 280.0]]))
    wanted = torch.tensor([[-10.0, 0.0, 70.0]])
    torch.testing.assert_close(euler_deg_from_rotation(result.rotation), wanted, atol=1e-3, rtol=0)


def test_angles_stay_within_half_a_turn() -> None:
    pose = torch.tensor([[500.0, 0.0, 0.0, 170.0, -170.0, 90.0]])
    after = move(pose, torch.tensor([[1.0, 0.0, 0.0, 20.0, -20.0, 0.0]]))
    torch.testing.assert_close(after, torch.tensor([[501.0, 0.0, 0.0, -170.0, 170.0, 90.0]]))


def test_the_belief_remembers(network: DreamReg) -> None:
    """Both tokens reach the new memory, through attention and through the shortcut."""
    generator = torch.Generator().manual_seed(0)
    pair = torch.randn(1, 2, 512, generator=generator)
    with torch.no_grad():
        both = network.transition(pair)
        for token in range(2):
            other = pair.clone()
            other[:, token] = torch.randn(512, generator=generator)
            assert (network.transition(other) - both).abs().max() > 1e-3


def test_attention_is_that_of_torch(network: DreamReg) -> None:
    ours = network.transition.layers[0]
    theirs = nn.TransformerEncoderLayer(512, 8, 512, 0.0, "gelu", batch_first=True, norm_first=True)
    names = {
        "self_attn.in_proj_": "attention_input.",
        "self_attn.out_proj.": "attention_output.",
        "linear1.": "mlp.0.",
        "linear2.": "mlp.2.",
        "norm1.": "attention_norm.",
        "norm2.": "mlp_norm.",
    }
    weights = ours.state_dict()
    kinds = ("weight", "bias")
    theirs.load_state_dict({there + kind: weights[here + kind] for there, here in names.items() for kind in kinds})
    tokens = torch.randn(3, 2, 512, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(tokens), theirs(tokens), atol=1e-5, rtol=1e-5)


def test_a_shared_volume_is_the_same_as_its_copies(network: DreamReg) -> None:
    slices, volumes = images(4, 2)
    with torch.no_grad():
        shared, copied = network(slices, volumes), network(slices, volumes.repeat_interleave(2, 0))
    assert (shared.translation[0] - shared.translation[1]).abs().max() > 1e-4  # frames differ
    torch.testing.assert_close(shared.rotation, copied.rotation, atol=1e-5, rtol=0)
    torch.testing.assert_close(shared.translation, copied.translation, atol=1e-5, rtol=1e-4)


def test_poses_are_single_precision_under_autocast(network: DreamReg) -> None:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        result = network(*images(1, 1))
    assert result.rotation.dtype == result.translation.dtype == torch.float32


# errors


def test_shapes_may_come_from_json() -> None:
    with torch.device("meta"):
        assert DreamReg(shape=[8, 32, 32]).shape == SMALL


@pytest.mark.parametrize("shape", [(7, 64, 64), (8, 64), (8, 32, "32")])
def test_a_shape_that_it_cannot_take_is_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(ScopeRegError, match=r"networks\.create\(\"dreamreg\", shape\)"):
        DreamReg(shape=shape)


def test_no_steps_are_an_error() -> None:
    with pytest.raises(ScopeRegError, match="0 steps"):
        DreamReg(shape=SMALL, steps=0)


def test_images_of_another_shape_are_an_error(network: DreamReg) -> None:
    with pytest.raises(ScopeRegError, match="was made for"):
        network(*images(1, 1, (8, 40, 40)))
