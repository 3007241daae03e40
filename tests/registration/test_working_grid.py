"""The working grid follows from frame and volume as docs/register.md says, and poses keep their millimetres on it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scopereg.data import phantom
from scopereg.data.examples import CaseExamples
from scopereg.errors import ScopeRegError
from scopereg.evaluation.runner import locate_case
from scopereg.geometry import Pose, VoxelPoses, rotation_from_euler_deg, sample_poses
from scopereg.images import Frame, Volume, pose_from_voxels, unit_range
from scopereg.registration import working_grid
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar
from scopereg.registration.network import NetworkMethod, PreparedNetwork
from scopereg.registration.result import Result, apart_mm
from scopereg.registration.working_grid import (
    FieldOfView,
    KnownSizes,
    WorkingGrid,
    counted,
    depth_for,
    isotropic,
    middle,
    padded,
)

SIZES = KnownSizes((64, 160), (32, 160), 25.0)
TURNED = Pose.from_euler_deg((25, -40, 70), (0, 0, 0)).rotation


class Images(NamedTuple):
    """Sizes of a frame and of a volume, in x, y(, z), and how they are placed on a grid."""

    frame: tuple[int, int]
    pixel_mm: float | tuple[float, float]
    volume: tuple[int, int, int]
    voxel_mm: float | tuple[float, float, float]
    spacing_mm: float
    window: tuple[int, int, int]  # D, H, W


TABLE = {  # as in docs/register.md
    "usual": Images((640, 480), 0.2, (256, 256, 160), 0.5, 0.8, (64, 120, 160)),
    "fine": Images((1024, 768), 0.05, (256, 256, 160), 0.25, 0.3393, (64, 120, 152)),
    "coarse": Images((64, 64), 0.8, (64, 64, 40), 0.8, 0.4, (48, 128, 128)),
    "coarser still": Images((32, 32), 1.5, (40, 40, 30), 1.5, 0.75, (32, 64, 64)),
    "coarse frame in a fine volume": Images((80, 60), 1.0, (300, 240, 200), 0.4, 0.6034, (56, 104, 136)),
    "thin": Images((512, 512), 0.15, (192, 192, 8), (0.4, 0.4, 0.5), 0.48, (32, 160, 160)),
    "tall": Images((128, 512), 0.25, (96, 300, 90), 0.6, 0.8, (64, 160, 64)),
    "tiny": Images((400, 300), 0.05, (100, 100, 100), 0.2, 0.13, (64, 120, 160)),
    "huge": Images((500, 500), 0.2, (512, 512, 512), 0.3, 0.9524, (48, 112, 112)),
    "a small frame in a huge volume": Images((300, 300), 0.1, (512, 512, 512), 0.3, 0.6, (32, 64, 64)),
    "anisotropic": Images((639, 481), (0.17, 0.21), (181, 233, 37), (0.4, 0.35, 2.1), 0.68, (64, 152, 160)),
}


class Shaped:
    """What a grid is chosen by of an image that need not be held in memory."""

    def __init__(self, size: tuple[int, ...], spacing_mm: float | tuple[float, ...]) -> None:
        self.size = size
        self.spacing_mm = (spacing_mm,) * len(size) if isinstance(spacing_mm, float) else spacing_mm


def chosen(row: Images) -> WorkingGrid:
    frame, volume = Shaped(row.frame, row.pixel_mm), Shaped(row.volume, row.voxel_mm)
    return WorkingGrid.choose(FieldOfView.of(frame), volume, SIZES)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TABLE)
def test_the_grid_is_as_documented(name: str) -> None:
    row = TABLE[name]
    grid = chosen(row)
    assert grid.spacing_mm == pytest.approx(row.spacing_mm, rel=1e-3)
    assert grid.window == row.window
    assert all(side % 8 == 0 for side in grid.window[1:])


@pytest.mark.parametrize("name", TABLE)
def test_no_frame_is_cut_and_no_volume_too_large(name: str) -> None:
    row, grid = TABLE[name], chosen(TABLE[name])
    pixel_mm = Shaped(row.frame, row.pixel_mm).spacing_mm
    voxel_mm = Shaped(row.volume, row.voxel_mm).spacing_mm
    sides = [count * step / grid.spacing_mm for count, step in zip(row.frame, pixel_mm, strict=True)]
    assert all(side <= room + 1e-6 for side, room in zip(sides, grid.window[:0:-1], strict=True))
    assert max(grid.window) <= 160
    volume = np.prod([count * step / grid.spacing_mm for count, step in zip(row.volume, voxel_mm, strict=True)])
    assert volume <= 1.01 * working_grid.MOST_VOXELS


def test_frames_of_nearly_one_size_share_a_grid() -> None:
    volume = Shaped((200, 200, 100), 0.5)
    near = [FieldOfView(*mm, 0.2) for mm in ((100.0, 80.0), (99.9, 79.9), (100.5, 80.4))]
    assert len({WorkingGrid.choose(field, volume, SIZES) for field in near}) == 1  # type: ignore[arg-type]


def test_what_weights_tell_of_their_sizes_is_read_and_checked() -> None:
    assert KnownSizes.of({"spacing_mm": 0.6}) is None
    assert KnownSizes.of({"grid": SIZES.facts}) == SIZES
    assert SIZES.facts == {"frame_voxels": [64, 160], "volume_voxels": [32, 160], "magnitude_voxels": 25.0}
    assert SIZES.usual_shape == (64, 160, 160)
    assert [SIZES.depth_voxels(side) for side in (64, 128, 160, 200)] == [32, 48, 64, 64]
    assert (depth_for(5), depth_for(10), depth_for(15), depth_for(20), depth_for(25)) == (32, 32, 40, 48, 64)
    for wrong in ({}, {**SIZES.facts, "frame_voxels": 64}, {**SIZES.facts, "volume_voxels": [160, 32]}, "128"):
        with pytest.raises(ScopeRegError, match=r"volume_voxels|sizes that the network knows"):
            KnownSizes.of({"grid": wrong})
    with pytest.raises(ScopeRegError, match="magnitude_voxels"):
        KnownSizes(magnitude_voxels=0)
    with pytest.raises(ScopeRegError, match="field of view"):
        FieldOfView(0.0, 10.0, 0.1)


class Still(nn.Module):
    """Finds every frame in the middle of what it is given, and keeps the shapes of that."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.given: list[tuple[int, ...]] = []

    def forward(self, images: Tensor, volumes: Tensor) -> Any:
        self.given.append(tuple(volumes.shape[1:]))
        assert images.shape[1:] == volumes.shape[2:]
        count = len(images)
        return Located(torch.eye(3).repeat(count, 1, 1), torch.zeros(count, 3), None)


class Located(NamedTuple):
    rotation: Tensor
    translation: Tensor
    evidence: None


def still() -> Registrar:
    return Registrar("still", Still().eval(), {"grid": SIZES.facts}, torch.device("cpu"))


class Scene(NamedTuple):
    """A frame of a pattern that is known in millimetres, so that nothing is interpolated, and where it lies."""

    frame: Frame
    volume: Volume
    true: Pose
    period_mm: float


def pattern(points_mm: Tensor, period_mm: float) -> Tensor:
    """Waves of some directions (..., ) at points (..., 3), from 0 to 1."""
    draw = torch.Generator().manual_seed(0)
    ways = torch.randn(12, 3, generator=draw)
    ways = ways / ways.norm(dim=1, keepdim=True) * torch.linspace(0.7, 1.5, 12)[:, None]
    phases = 6.3 * torch.rand(12, generator=draw)
    waves = torch.cos(points_mm.float() @ ways.T * (6.283 / period_mm) + phases)
    return (0.5 + waves.mean(-1)).clamp(0.01, 1)


def scene_of(row: Images, offset_mm: float = 0.0) -> Scene:
    """Both images of a row of the table, the volume turned and anywhere in the world, the frame near its middle."""
    spacing = np.array(Shaped(row.volume, row.voxel_mm).spacing_mm)
    direction, first = TURNED, np.array([31.0, -47.0, 110.0])
    centre = first + direction @ ((np.array(row.volume) - 1) / 2 * spacing)
    side_mm = max(Shaped(row.frame, row.pixel_mm).spacing_mm) * max(row.frame)
    period = max(side_mm / 5, 5 * float(max(spacing)))
    axes = [torch.arange(n, dtype=torch.float64) * step for n, step in zip(row.volume, spacing, strict=True)]
    z, y, x = torch.meshgrid(axes[2], axes[1], axes[0], indexing="ij")
    places = torch.stack([x, y, z], -1) @ torch.tensor(direction.T) + torch.tensor(first)
    volume = Volume(pattern(places, period), tuple(spacing), first.tolist(), direction)
    # A thin volume holds frames that lie flat in it.
    near = Pose.from_euler_deg((1, -0.5, 5) if row.volume[2] < 16 else (4, -3, 5), (0, 0, 0)).rotation
    frame = Frame(torch.zeros(row.frame[::-1]), row.pixel_mm, (3.0, -2.0))
    turn = direction @ near
    shift = direction @ (np.array([0.8, -0.5, 0.1 * min(1.0, row.volume[2] * spacing[2] / 20)]) * offset_mm)
    true = Pose(turn, centre + shift - turn @ frame.centre_mm)
    across, down = (torch.arange(n) * step for n, step in zip(frame.size, frame.spacing_mm, strict=True))
    v, u = torch.meshgrid(down + frame.origin_mm[1], across + frame.origin_mm[0], indexing="ij")
    points = torch.stack([u, v, torch.zeros_like(u)], -1).double() @ torch.tensor(true.rotation.T)
    points = points + torch.tensor(true.translation_mm)
    image = Frame(pattern(points, period), frame.spacing_mm, frame.origin_mm)
    return Scene(image, volume, true, period)


SMALL = [name for name, row in TABLE.items() if np.prod(row.volume) < 4e6]


@pytest.mark.parametrize("name", SMALL)
def test_a_frame_in_its_place_is_what_the_network_sees_there(name: str) -> None:
    """From the true pose a network that moves nothing gives it back in mm, and sees the same in frame and volume."""
    scene, model = scene_of(TABLE[name], offset_mm=2.0), still()
    locator = Locator(scene.volume, model, device="cpu")
    found = locator.locate(scene.frame, scene.true)
    assert found.pose.is_close(scene.true, mm=1e-3, deg=1e-3)
    seen = locator.prepared.volume_for(scene.frame).windows.register(scene.frame, scene.true)  # type: ignore[attr-defined]
    assert seen.similarity > 0.92  # the rest is what hangs out of the volume, and what coarse voxels cannot show
    assert model.network.given == [TABLE[name].window] * len(model.network.given)  # type: ignore[comparison-overlap]
    shift = 4 * TABLE[name].spacing_mm
    beside = scene.true @ Pose.from_euler_deg((0, 0, 0), (shift, shift, 0), "Image", "Image")
    assert locator.locate(scene.frame, beside).similarity < found.similarity - 0.1


@pytest.mark.parametrize("name", SMALL)
def test_without_a_start_it_looks_at_the_middle(name: str) -> None:
    scene = scene_of(TABLE[name])
    found = Locator(scene.volume, still(), device="cpu").locate(scene.frame)
    off_mm = scene.volume.direction.T @ (found.pose.apply(scene.frame.centre_mm) - scene.volume.centre_mm)
    assert np.abs(off_mm).max() < 0.51 * max(found_spacing(scene))  # windows begin at whole voxels
    np.testing.assert_allclose(found.pose.rotation, scene.volume.direction, atol=1e-6)
    assert found.volume is scene.volume
    alone = still().register(scene.frame, scene.volume)
    assert alone.pose.is_close(found.pose, mm=1e-6, deg=1e-6)
    assert alone.volume is scene.volume


def found_spacing(scene: Scene) -> tuple[float, ...]:
    return (*scene.volume.spacing_mm, WorkingGrid.choose(FieldOfView.of(scene.frame), scene.volume, SIZES).spacing_mm)


@pytest.mark.parametrize("name", ["tiny", "coarse"])
def test_refinement_goes_on_from_the_working_grid(name: str) -> None:
    scene = scene_of(TABLE[name])
    step = 2 * min(scene.volume.spacing_mm)
    start = scene.true @ Pose.from_euler_deg((0.2, -0.2, 0.4), (step, -step, 0.4 * step), "Image", "Image")
    found = Locator(scene.volume, still(), refine=True, device="cpu").locate(scene.frame, start)
    assert apart_mm(scene.frame, found.pose, scene.true) < 0.6 * apart_mm(scene.frame, start, scene.true)


def test_huge_volumes_are_averaged_first_and_stay_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_of(TABLE["anisotropic"])
    grid = replace(chosen(TABLE["anisotropic"]), spacing_mm=1.3, window=(8, 8, 8))
    plain, _ = grid.place(scene.volume)
    monkeypatch.setattr(working_grid, "_HUGE_VOXELS", 0)
    thrifty, note = grid.place(scene.volume)
    assert "resampled to 1.3 mm" in note
    inner = tuple(slice(8, -8) for _ in range(3))
    for made in (plain, thrifty):
        z, y, x = (torch.arange(n) * 1.3 for n in made.shape)
        places = torch.stack(torch.meshgrid(z, y, x, indexing="ij")[::-1], -1).double()
        places = places @ torch.tensor(made.direction.T) + torch.tensor(made.origin_mm)
        wanted = pattern(places, scene.period_mm)[inner]
        assert float((made.array[inner] - wanted).abs().mean()) < 0.05
    assert isotropic(scene.volume, 1.3)[0].isotropic_spacing_mm == pytest.approx(1.3)


def test_padding_leaves_the_middle_where_it_is() -> None:
    volume = Volume(torch.rand(8, 30, 41), (0.5, 0.5, 0.5), (1, 2, 3), TURNED)
    wide = padded(volume, (32, 64, 40))
    assert wide.shape == (32, 64, 41)
    assert wide.centre_mm == pytest.approx(volume.centre_mm)
    assert torch.equal(wide.array[12:20, 17:47], volume.array)
    assert padded(volume, (8, 30, 41)) is volume


def test_what_counts_is_cut_out_and_padded_with_its_volume() -> None:
    mask = torch.zeros(8, 30, 41, dtype=torch.bool)
    mask[2:5, 10:22, 7:30] = True
    volume = Volume(torch.rand(8, 30, 41), (0.5, 0.5, 0.5), (1, 2, 3), TURNED, mask=mask)
    box = counted(volume)
    assert torch.equal(box.array, volume.array[2:5, 10:22, 7:30])
    assert bool(box.mask.all())
    assert box.origin_mm == pytest.approx(np.array((1, 2, 3)) + 0.5 * TURNED @ (7, 10, 2))
    wide = padded(box, (32, 12, 23))
    assert int(wide.mask.sum()) == int(mask.sum())
    assert torch.equal(wide.tissue[wide.mask], volume.array[mask])
    assert torch.equal(middle(wide, (3, 12, 23)).mask, wide.mask[15:18])
    plain = replace(volume, mask=None)
    assert counted(plain) is plain
    averaged = working_grid._averaged
    assert averaged(volume, 1.1) is volume  # it is small


def test_a_stream_prepares_once_and_keeps_a_few_fields_of_view(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, model = scene_of(TABLE["coarse"]), still()
    prepared: list[object] = []
    own = Registrar.prepare
    monkeypatch.setattr(Registrar, "prepare", lambda self, *a, **k: prepared.append(a) or own(self, *a, **k))
    locator = Locator(scene.volume, model, device="cpu")
    assert prepared == []  # before the first frame nobody knows the grid
    assert locator.notes == ()
    for _ in range(3):
        locator.locate(scene.frame)
    assert len(prepared) == 1
    zoomed = [Frame(scene.frame.array, mm) for mm in (0.9, 1.0, 1.1, 1.2)]
    together = locator.locate_all([scene.frame, *zoomed[:2], scene.frame])
    assert not any(isinstance(found, ScopeRegError) for found in together)
    assert len(prepared) == 3
    locator.locate_all(zoomed)
    locator.locate(zoomed[-1])
    assert len(prepared) == 5
    locator.locate(scene.frame)  # four are kept: this one was forgotten
    assert len(prepared) == 6


def test_what_is_ready_is_told_and_made_without_holding_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume that is prepared for another field of view keeps nobody from locating frames of the old one."""
    scene, model = scene_of(TABLE["coarse"]), still()
    locator = Locator(scene.volume, model, device="cpu")
    zoomed, huge = Frame(scene.frame.array, 0.9), Frame(scene.frame.array, 90.0)
    assert [locator.is_ready(frame) for frame in (scene.frame, zoomed, huge)] == [False, False, True]  # it is refused
    locator.get_ready(scene.frame)
    assert [locator.is_ready(frame) for frame in (scene.frame, zoomed)] == [True, False]
    begun, goes_on = threading.Event(), threading.Event()

    def slowly(*given: Any, **options: Any) -> Any:
        begun.set()
        assert goes_on.wait(10)
        return prepare(*given, **options)

    prepare = Registrar.prepare
    monkeypatch.setattr(Registrar, "prepare", slowly)
    beside = threading.Thread(target=locator.get_ready, args=(zoomed,))
    beside.start()
    try:
        assert begun.wait(10)
        assert not locator.is_ready(zoomed)
        locator.locate(scene.frame)
    finally:
        goes_on.set()
        beside.join()
    assert locator.is_ready(zoomed)
    network = locator.prepared
    assert isinstance(network, PreparedNetwork)
    for step in range(8):  # old ones are forgotten: their memory is bounded
        locator.locate(Frame(scene.frame.array, 0.95 + 0.05 * step))
    assert len(network._volumes._made) == 4
    assert not locator.is_ready(scene.frame)


def test_notes_tell_the_grid_and_how_far_the_network_looks() -> None:
    scene = scene_of(TABLE["anisotropic"])
    found = Locator(scene.volume, still(), device="cpu").locate(scene.frame)
    assert "resampled to 0.68 mm, 160 along the frame" in found.notes[0]
    scene = scene_of(TABLE["tall"])
    found = Locator(scene.volume, still(), device="cpu").locate(scene.frame)
    assert any("looks 20 mm and 25 degrees around the middle of the volume" in note for note in found.notes)
    led = Locator(scene.volume, still(), device="cpu").locate(scene.frame, scene.true)
    assert not any("around the middle" in note for note in led.notes)
    quiet = scene_of(Images((160, 160), 0.8, (160, 160, 40), 0.8, 0.8, (40, 160, 160)))
    assert Locator(quiet.volume, still(), device="cpu").locate(quiet.frame).notes == ()


def test_a_session_takes_a_frame_a_field_of_view_or_a_grid_of_the_caller() -> None:
    scene, model = scene_of(TABLE["anisotropic"]), still()
    field = FieldOfView.of(scene.frame)
    for given in (scene.frame, field):
        with model.prepare(scene.volume, frame=given) as session:
            assert session.volume.shape == (64, 152, 160)
            assert session.spacing_mm == pytest.approx(0.68)
    with model.prepare(scene.volume.resampled(1.1)) as session:
        assert session.spacing_mm == pytest.approx(1.1)
    with pytest.raises(ScopeRegError, match="anisotropic"):
        model.prepare(scene.volume)


class Guess(Still):
    """Finds every frame at one pose off the middle of what it is given."""

    def forward(self, images: Tensor, volumes: Tensor) -> Any:
        found = super().forward(images, volumes)
        turn, shift = rotation_from_euler_deg(torch.tensor([4.0, -3.0, 7.0])), torch.tensor([1.5, -2.5, 3.0])
        return found._replace(rotation=found.rotation @ turn, translation=found.translation + shift)


@pytest.mark.parametrize("size", [(21, 40, 33), (40, 64, 64), (32, 128, 128)])
def test_what_is_evaluated_is_what_is_registered(size: tuple[int, int, int]) -> None:
    """Frames on the volume's own grid go to the grid that the network wants, and their poses come back."""
    model = Registrar("guess", Guess().eval(), {"grid": SIZES.facts}, torch.device("cpu"))
    volume, frame = torch.rand(size), torch.rand(size[1:])
    nowhere = VoxelPoses(torch.eye(3)[None], torch.zeros(1, 3))
    (found,) = locate_case(NetworkMethod(model), CaseExamples(volume, None, frame[None], nowhere), 0.8).found
    assert isinstance(found, Result)
    reference, image = Volume(volume, 0.8), Frame(frame, spacing_mm=0.8)
    shipped = model.register(image, reference)
    assert found.pose.matrix.tolist() == shipped.pose.matrix.tolist()


def test_a_network_finds_an_anisotropic_oblique_patient(narrow: Registrar) -> None:
    """A network on a grid that follows from the images: it knows 128 voxels along a frame, whatever their size."""
    patient = phantom.create("echo", seed=200_001)
    poses = sample_poses(2, 6, patient.shape, torch.Generator().manual_seed(3))
    images = patient.acquire(*poses, protocol="same-scanner", seed=3).images
    step = patient.spacing_mm
    placed = Volume(patient.volume.array, step, (12.0, -34.0, 56.0), TURNED)
    thick = Volume(placed.array[:, :, ::2], (2 * step, step, step), placed.origin_mm, TURNED)
    facts = {**narrow.facts, "grid": {**SIZES.facts, "frame_voxels": [64, 128], "magnitude_voxels": 10}}
    locator = Locator(thick, replace(narrow, facts=facts), refine=True, device="cpu")
    for row, image in enumerate(images):
        frame = Frame(image, step)
        true = pose_from_voxels(poses.rotation[row], poses.translation[row], frame, placed)
        fine = frame.resampled(0.37)
        found = locator.locate(Frame(unit_range(fine.array), fine.spacing_mm, fine.origin_mm))
        assert apart_mm(frame, found.pose, true) < 1
        assert locator.prepared.before.volume_for(fine).window.shape == (32, 128, 128)  # type: ignore[attr-defined]
