"""Phantoms: patients, acoustics and acquisitions."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scopereg.data import phantom
from scopereg.data.phantom.acoustics import (
    DARKEST,
)
from scopereg.errors import ScopeRegError
from scopereg.geometry import place_plane, plane_points, rotation_from_euler_deg, sample_poses, sample_slice

NAMES = ("echo", "prostate", "abdomen")
SMALL = (10, 64, 64)
IDENTITY = torch.eye(3)[None]


@pytest.fixture(scope="module", params=NAMES)
def patient(request: pytest.FixtureRequest) -> phantom.Phantom:
    return phantom.create(request.param, seed=3, shape=SMALL)


@pytest.fixture(scope="module")
def usual() -> dict[str, phantom.Phantom]:
    return {name: phantom.create(name, seed=1) for name in NAMES}


def some_poses(shape: tuple[int, int, int], count: int = 3, magnitude: float = 6.0) -> tuple[Tensor, Tensor]:
    return sample_poses(count, magnitude, shape, torch.Generator().manual_seed(5))


def detail(image: Tensor, mask: Tensor) -> Tensor:
    """What is finer than 9 pixels, inside a mask."""
    weight = mask.float()
    mean = F.avg_pool2d((image * weight)[:, None], 9, 1, 4) / F.avg_pool2d(weight[:, None], 9, 1, 4).clamp_min(1e-6)
    return (image - mean[:, 0])[mask]


def correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a, b]))[0, 1])


# Patients


def test_names_and_usual_geometry(usual: dict[str, phantom.Phantom]) -> None:
    assert phantom.names() == NAMES
    expected = {"echo": ((32, 128, 128), 0.616), "prostate": ((40, 64, 64), 0.8), "abdomen": ((32, 128, 128), 1.2)}
    for name, p in usual.items():
        assert (p.shape, p.spacing_mm) == (expected[name][0], pytest.approx(expected[name][1]))
        assert (p.anatomy, p.seed, p.volume.shape) == (name, 1, p.shape)
        assert p.volume.spacing_mm == pytest.approx((p.spacing_mm,) * 3)
        assert 0 <= p.volume.array.min() < p.volume.array.max() <= 1


def test_every_class_is_in_the_labels(usual: dict[str, phantom.Phantom]) -> None:
    for p in usual.values():
        assert p.volume.labels is not None
        assert set(p.volume.labels.unique().tolist()) == {0, *p.label_names}


def test_a_seed_gives_the_same_bits_and_another_seed_another_patient(patient: phantom.Phantom) -> None:
    torch.manual_seed(12345)  # the global generator has no part in it
    again = phantom.create(patient.anatomy, seed=3, shape=SMALL)
    assert torch.equal(again.volume.array, patient.volume.array)
    assert again.volume.labels is not None
    assert patient.volume.labels is not None
    assert torch.equal(again.volume.labels, patient.volume.labels)
    other = phantom.create(patient.anatomy, seed=4, shape=SMALL)
    assert other.volume.labels is not None
    assert (other.volume.labels != patient.volume.labels).float().mean() > 0.05
    assert (other.volume.array - patient.volume.array).abs().mean() > 0.03


def test_the_anatomy_does_not_depend_on_the_pixels() -> None:
    coarse, fine = (phantom.create("prostate", seed=2, shape=s) for s in ((10, 32, 32), (20, 64, 64)))
    assert coarse.spacing_mm == pytest.approx(2 * fine.spacing_mm)
    assert coarse.volume.labels is not None
    assert fine.volume.labels is not None
    # Voxel centres differ by a quarter of a coarse voxel; away from borders the classes are the same.
    finer = F.interpolate(coarse.volume.labels[None, None].float(), scale_factor=2)[0, 0]
    assert (finer == fine.volume.labels).float().mean() > 0.9
    assert phantom.create("prostate", shape=(4, 32, 32), spacing_mm=0.7).spacing_mm == 0.7


def test_the_ventricle_contracts_from_first_to_last_plane(usual: dict[str, phantom.Phantom]) -> None:
    labels = usual["echo"].volume.labels
    assert labels is not None
    area = (labels == 1).sum((1, 2)).float()
    assert area[-1] < 0.85 * area[0]
    assert (area.diff() <= 0.004 * area[0]).all()


def test_the_heart_relaxes_beyond_the_sweep_as_it_contracted(usual: dict[str, phantom.Phantom]) -> None:
    p = usual["echo"]
    end = (p.shape[0] - 1) / 2
    shifts = torch.tensor([[0, 0, end - 10.0], [0, 0, end + 10.0], [0, 0, end]])
    areas = (p.acquire(IDENTITY.repeat(3, 1, 1), shifts).labels == 1).sum((1, 2)).tolist()
    assert areas[0] > 1.02 * areas[2]
    assert abs(areas[1] - areas[0]) < 0.3 * (areas[0] - areas[2])


def test_motion_out_of_the_plane_changes_the_picture(patient: phantom.Phantom) -> None:
    shifts = torch.tensor([[0, 0, -4.0], [0, 0, 4.0]])
    acquired = patient.acquire(IDENTITY.repeat(2, 1, 1), shifts, "same-scanner")
    assert (acquired.labels[0] != acquired.labels[1]).float().mean() > 0.01


# Acoustics


def test_paper_frames_are_slices_of_the_volume(patient: phantom.Phantom) -> None:
    rotation, translation = some_poses(SMALL)
    acquired = patient.acquire(rotation, translation, protocol="paper")
    assert patient.volume.labels is not None
    assert torch.equal(acquired.images, sample_slice(patient.volume.array, rotation, translation))
    expected = sample_slice(patient.volume.labels, rotation, translation, mode="nearest")
    assert torch.equal(acquired.labels, expected.to(torch.uint8))
    assert (acquired.images[~acquired.fan] == 0).all()


def test_honest_frames_show_nothing_of_the_volumes_border(patient: phantom.Phantom) -> None:
    rotation, translation = some_poses(SMALL)
    acquired = patient.acquire(rotation, translation)
    assert acquired.images.dtype == torch.float32
    assert acquired.labels.dtype == torch.uint8
    half = (torch.tensor(SMALL[::-1]) - 1) / 2
    outside = (place_plane(rotation, translation, SMALL[1:]).abs() > half).any(-1)
    assert (outside & acquired.fan).float().mean() > 0.03
    assert (acquired.images[acquired.fan] >= 0.999 * DARKEST).all()
    assert (acquired.images[~acquired.fan] == 0).all()
    assert acquired.images[acquired.fan & outside].mean() > 0.3 * acquired.images[acquired.fan & ~outside].mean()


def test_the_fan_does_not_depend_on_the_pose(patient: phantom.Phantom) -> None:
    rotation, translation = some_poses(SMALL)
    here = patient.acquire(rotation, translation, seed=9).fan
    assert torch.equal(here, patient.acquire(rotation.flip(0), translation.flip(0) + 3, seed=9).fan)
    assert not torch.equal(here, patient.acquire(rotation, translation, seed=10).fan)
    assert not torch.equal(here[0], here[1])


def test_frames_of_a_seed_are_the_same_bits(patient: phantom.Phantom) -> None:
    poses = some_poses(SMALL)
    first = patient.acquire(*poses, seed=2).images
    assert torch.equal(first, patient.acquire(*poses, seed=2).images)
    assert (first - patient.acquire(*poses, seed=3).images).abs().mean() > 0.02


def test_speckle_correlation_ties_the_frame_to_the_volume(patient: phantom.Phantom) -> None:
    on_plane = torch.tensor([[0, 0, 0.5]])  # an even number of planes: half a voxel from the centre lies one
    volume = patient.acquire(IDENTITY, on_plane, "paper").images
    values = []
    for rho in (0.0, 0.5, 0.8, 1.0):
        frame = patient.acquire(IDENTITY, on_plane, "same-scanner", speckle_correlation=rho)
        values.append(correlation(detail(frame.images, frame.fan), detail(volume, frame.fan)))
    assert all(after > before + 0.05 for before, after in pairwise(values))
    assert values[-1] > 0.98


def test_speckle_of_the_volume_is_met_at_any_pose(usual: dict[str, phantom.Phantom]) -> None:
    p = usual["echo"]
    rotation, translation = some_poses(p.shape, 2)
    volume = p.acquire(rotation, translation, "paper").images
    own, shared = (p.acquire(rotation, translation, "same-scanner", speckle_correlation=rho) for rho in (0.0, 1.0))
    mask = shared.fan & (volume > 0)
    near, far = (correlation(detail(a.images, mask), detail(volume, mask)) for a in (shared, own))
    assert near > 0.75
    assert near > far + 0.3


CONTACT_MM = {"echo": 0.0, "prostate": 6.0, "abdomen": 26.0}  # wall and skin lie against whichever probe is looking


@pytest.mark.parametrize("name", NAMES)
def test_labels_of_a_frame_are_those_of_the_volume_beyond_the_contact_layers(
    name: str, usual: dict[str, phantom.Phantom]
) -> None:
    p = usual[name]
    rotation, translation = some_poses(p.shape)
    places = place_plane(rotation, translation, p.shape[1:])  # (B, H, W, 3)
    compared = (places.abs() <= (torch.tensor(p.shape[::-1]) - 1) / 2).all(-1)
    own = plane_points(p.shape[1:]) * p.spacing_mm
    for x, y in (own.unbind(-1), (places * p.spacing_mm).unbind(-1)[:2]):  # below the frame's face, the volume's
        compared = compared & (p.fan.below_face_mm(x, y) > CONTACT_MM[name])
    acquired = p.acquire(rotation, translation, "same-scanner")
    cut = p.acquire(rotation, translation, "paper")
    assert compared.float().mean() > 0.3
    assert (acquired.labels == cut.labels)[compared].float().mean() > 0.97
    assert len(cut.labels[compared].unique()) > 2


@pytest.mark.parametrize("name", ["prostate", "abdomen"])
def test_contact_layers_follow_the_probe_that_is_looking(name: str, usual: dict[str, phantom.Phantom]) -> None:
    """Skin and rectum lie against the probe: fixed in the patient they would show where the volume's probe stood."""
    p = usual[name]
    x, y = p.fan.ray_positions(*p.speckle.shape[1:])
    depth = p.fan.below_face_mm(x, y)
    wall = depth[0, 0] < (2.5 if name == "prostate" else 12.0)

    def profile(y: Tensor, depth: Tensor) -> Tensor:
        """Mean echo in dB at each depth of the wall."""
        return p.patient.tissue(x, y, torch.zeros(1), depth).echo_db.mean((0, 1))[wall]

    still = profile(y, depth)
    elsewhere = profile(y + 10.0, depth)  # another place in the patient, the same distance from the probe
    deeper = profile(y, depth + 40.0)  # the same place, looked at from further away
    assert (elsewhere - still).abs().mean() < 0.5 * (deeper - still).abs().mean()
    assert (deeper - still).abs().mean() > 3.0


@pytest.mark.parametrize("name", NAMES)
def test_the_fan_tells_nothing_of_a_pose_drawn_with_the_same_seed(name: str) -> None:
    """Poses and acquisitions often share a seed: their numbers must not."""
    p = phantom.create(name, seed=0, shape=SMALL)
    poses, fans = [], []
    for seed in range(40):
        rotation, translation = sample_poses(1, 10, p.shape, torch.Generator().manual_seed(seed))
        seen = p.acquire(rotation, translation, seed=seed).fan[0].nonzero().float()
        poses.append(torch.cat([translation[0], rotation[0, :2, 2], rotation[0, :1, 1]]))
        fans.append(torch.cat([seen.mean(0), seen.std(0)]))
    table = torch.corrcoef(torch.cat([torch.stack(poses), torch.stack(fans)], 1).T)
    assert table[:6, 6:].abs().max() < 0.6  # 40 independent pairs exceed 0.6 once in 30,000


def test_patients_with_one_acquisition_seed_have_fans_and_speckle_of_their_own() -> None:
    first, second = (phantom.create("echo", seed=seed, shape=SMALL) for seed in (1, 2))
    frames = [p.acquire(IDENTITY, torch.zeros(1, 3)) for p in (first, second)]
    again = first.acquire(IDENTITY, torch.zeros(1, 3))
    assert torch.equal(frames[0].images, again.images)
    assert not torch.equal(frames[0].fan, frames[1].fan)
    assert not torch.equal(first.speckle[0], second.speckle[0])


def test_slice_shape(patient: phantom.Phantom) -> None:
    wide = patient.acquire(IDENTITY, torch.zeros(1, 3), "same-scanner", slice_shape=(64, 80)).images
    usual = patient.acquire(IDENTITY, torch.zeros(1, 3), "same-scanner").images
    assert wide.shape == (1, 64, 80)
    assert torch.allclose(wide[..., 8:-8], usual, atol=1e-4)
    assert patient.acquire(IDENTITY, torch.zeros(1, 3), "paper", slice_shape=(20, 30)).labels.shape == (1, 20, 30)


OTHERS = ("cut", "speckle_correlation", "thickness")
VARIED = [f.name for f in fields(phantom.AcquisitionOptions) if f.name not in OTHERS]


@pytest.mark.parametrize("name", VARIED)
def test_each_option_has_its_effect(name: str) -> None:
    p = phantom.create("echo", seed=5, shape=(2, 48, 48))
    value = 1.0 if name == "shadow_chance" else getattr(phantom.HONEST, name)
    same = replace(phantom.SAME_SCANNER, speckle_correlation=1.0 if name != "resolution" else 0.0)
    still = p.acquire(IDENTITY, torch.zeros(1, 3), same, seed=4).images
    moved = p.acquire(IDENTITY, torch.zeros(1, 3), replace(same, **{name: value}), seed=4).images  # type: ignore[arg-type]
    assert (still - moved).abs().mean() > 1e-3


def test_a_thick_frame_averages_the_anatomy_across_its_plane() -> None:
    """The same gain and speckle: what differs is that more is seen at once, the more the thicker it is."""
    p = phantom.create("abdomen", seed=5, shape=(2, 64, 64))
    pose = some_poses(p.shape, 1)
    thin, little, much, deep = (
        p.acquire(*pose, "same-scanner", seed=4, thickness_mm=mm) for mm in (None, 0.5, 12, "estimated")
    )
    assert torch.equal(thin.fan, much.fan)
    far = [float((thin.images - other.images).abs().mean()) for other in (little, much, deep)]
    assert 0 < far[0] < 0.005
    assert far[0] < far[2] < far[1]
    assert p.acquire(*pose, "honest", seed=4, thickness_mm=0).images.equal(p.acquire(*pose, "honest", seed=4).images)
    with pytest.raises(ScopeRegError, match="frames cut from the volume are as thick as it is"):
        p.acquire(*pose, "paper", thickness_mm=3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("name", NAMES)
def test_the_same_patient_on_a_gpu(name: str) -> None:
    here, there, again = (phantom.create(name, seed=2, shape=SMALL, device=d) for d in ("cpu", "cuda", "cuda"))
    assert torch.equal(there.volume.array, again.volume.array)
    assert here.volume.labels is not None
    assert there.volume.labels is not None
    assert (here.volume.labels == there.volume.labels.cpu()).float().mean() > 0.999
    assert (here.volume.array.mean() - there.volume.array.cpu().mean()).abs() < 0.02
    rotation, translation = (v.cuda() for v in some_poses(SMALL))
    for protocol in phantom.PROTOCOLS:
        frames = there.acquire(rotation, translation, protocol, seed=1)
        assert frames.images.is_cuda
        assert torch.equal(frames.images, again.acquire(rotation, translation, protocol, seed=1).images)


# Errors


@pytest.mark.parametrize(
    ("arguments", "where", "says"),
    [
        ({"anatomy": "prostrate"}, "anatomy", "did you mean 'prostate'"),
        ({"anatomy": "knee"}, "anatomy", "unknown anatomy 'knee'"),
        ({"seed": -1}, "seed", "-1"),
        ({"seed": 1.5}, "seed", "1.5"),
        ({"shape": (0, 64, 64)}, "shape", "(0, 64, 64)"),
        ({"shape": (4, 8, 64)}, "shape", "(4, 8, 64)"),
        ({"shape": (64, 64)}, "shape", "(64, 64)"),
        ({"shape": (4, 64, 64.0)}, "shape", "64.0"),
        ({"spacing_mm": 0.0}, "spacing_mm", "0.0"),
        ({"spacing_mm": float("nan")}, "spacing_mm", "nan"),
        ({"device": "warp drive"}, "device", "warp drive"),
    ],
)
def test_create_tells_what_is_wrong(arguments: dict[str, object], where: str, says: str) -> None:
    with pytest.raises(ScopeRegError) as caught:
        phantom.create(**{"anatomy": "echo", "shape": SMALL, **arguments})  # type: ignore[arg-type]
    assert caught.value.where == ("anatomy=" if where == "anatomy" else f"phantom.create({where})")
    assert says in caught.value.what
    assert caught.value.fix


BAD = torch.full((1, 3), float("nan"))


@pytest.mark.parametrize(
    ("arguments", "where", "says"),
    [
        ({"protocol": "honset"}, "acquire(protocol)", "did you mean 'honest'"),
        ({"protocol": "x"}, "acquire(protocol)", "unknown protocol 'x'"),
        ({"translation": BAD}, "acquire(rotation, translation)", "NaN"),
        ({"rotation": torch.full((1, 3, 3), float("inf"))}, "acquire(rotation, translation)", "infinite"),
        ({"rotation": torch.eye(3)}, "acquire(rotation, translation)", "(3, 3)"),
        ({"translation": torch.zeros(2, 3)}, "acquire(rotation, translation)", "(2, 3)"),
        ({"seed": -3}, "acquire(seed)", "-3"),
        ({"slice_shape": (0, 5)}, "acquire(slice_shape)", "(0, 5)"),
        ({"speckle_correlation": 1.2}, "AcquisitionOptions(speckle_correlation)", "1.2"),
        ({"speckle_correlation": -0.1}, "AcquisitionOptions(speckle_correlation)", "-0.1"),
        ({"protocol": "paper", "speckle_correlation": 0.5}, "acquire(speckle_correlation)", "0.5"),
    ],
)
def test_acquire_tells_what_is_wrong(arguments: dict[str, object], where: str, says: str) -> None:
    p = phantom.create("prostate", shape=(2, 16, 16))
    with pytest.raises(ScopeRegError) as caught:
        p.acquire(**{"rotation": IDENTITY, "translation": torch.zeros(1, 3), **arguments})  # type: ignore[arg-type]
    assert caught.value.where.endswith(where)
    assert says in caught.value.what
    assert caught.value.fix


@pytest.mark.parametrize(("name", "value"), [("gain_db", -1.0), ("shadow_chance", 2.0), ("fan_size", 0.9)])
def test_options_tell_what_is_wrong(name: str, value: float) -> None:
    with pytest.raises(ScopeRegError) as caught:
        phantom.AcquisitionOptions(**{name: value})  # type: ignore[arg-type]
    assert caught.value.where == f"AcquisitionOptions({name})"
    assert str(value) in caught.value.what


@pytest.mark.parametrize(
    "wrong", [{"shape": (4096, 4096, 4096)}, {"spacing_mm": 1e-30}, {"spacing_mm": 1e30}, {"seed": 2**32}]
)
def test_impossible_patients_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ScopeRegError, match=f"phantom.create\\({next(iter(wrong))}"):
        phantom.create("echo", **wrong)  # type: ignore[arg-type]


def test_a_displaced_frame_shows_what_lay_elsewhere(patient: phantom.Phantom) -> None:
    """Tissue that was moved as a whole looks as it does from the pose that it moved to; a cut cannot show it."""
    turn, shift = rotation_from_euler_deg(torch.tensor([[4.0, -3.0, 8.0]])), torch.tensor([[1.0, 2.0, -0.5]])
    along = torch.tensor([0.8, -1.2, 0.6])  # voxels, in the frame's axes

    def moved(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first, second, third = (x * 0 + step * patient.spacing_mm for step in along)
        return first, second, third

    seen = patient.acquire(turn, shift, seed=3, displaced=moved)
    there = patient.acquire(turn, shift + turn[0] @ along, seed=3)
    assert torch.allclose(seen.images, there.images, atol=2e-3)
    assert (seen.labels == there.labels).float().mean() > 0.995
    assert not torch.allclose(seen.images, patient.acquire(turn, shift, seed=3).images, atol=0.05)
    with pytest.raises(ScopeRegError, match="as it is"):
        patient.acquire(turn, shift, "paper", displaced=moved)


def test_a_scaled_matrix_is_no_pose(patient: phantom.Phantom) -> None:
    with pytest.raises(ScopeRegError, match="no rotation"):
        patient.acquire(2 * IDENTITY, torch.zeros(1, 3))


def test_seeds_of_numpy_are_whole_numbers_too(patient: phantom.Phantom) -> None:
    frames = [patient.acquire(IDENTITY, torch.zeros(1, 3), seed=seed).images for seed in (3, np.int64(3))]
    assert torch.equal(*frames)
