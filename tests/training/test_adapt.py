"""A network adapted to one volume finds its frames better, fits into a small file, and loses nothing on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open

import scopereg
from scopereg.cli import main
from scopereg.data import phantom
from scopereg.devices import memory_in_words
from scopereg.errors import ScopeRegError
from scopereg.geometry import VoxelPoses, sample_poses, sample_slice
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io import write_volume
from scopereg.io.pictures import grey_pixels, png_bytes
from scopereg.io.tensors import write_tensors
from scopereg.networks import create
from scopereg.networks.recipe import Batch
from scopereg.networks.weights import SHIPPED, load_network, read_stored, save_network, weights_file
from scopereg.ops import available_backends
from scopereg.registration.calibration import path_beside
from scopereg.registration.locator import Locator
from scopereg.registration.network import NetworkMethod
from scopereg.training import parts
from scopereg.training.adaptation import Adaptation, adapt
from scopereg.training.scene import COVERED, HeldOut, Scene, cover, fill_empty, pictured, window_shape
from scopereg.training.settings import AdaptSettings

SMALL = (16, 48, 48)
CPU = torch.device("cpu")
BASE = "universal"  # knows no volumes as small as these: there is something to learn


@pytest.fixture(scope="module")
def patient() -> phantom.Phantom:
    return phantom.create("prostate", seed=300_000, shape=SMALL)


@pytest.fixture(scope="module")
def settings(patient: phantom.Phantom) -> AdaptSettings:
    """Short, at the phantom's own spacing: the volume stays as small as it is."""
    return AdaptSettings(base=BASE, steps=1, frames=4, held_out=4, spacing_mm=patient.spacing_mm)


@pytest.fixture(scope="module")
def adapted(
    patient: phantom.Phantom, settings: AdaptSettings, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Adaptation, Path]:
    path = tmp_path_factory.mktemp("adapted") / "patient.safetensors"
    longer = replace(settings, steps=24, frames=8, held_out=16, parts="gates")
    return adapt(patient.volume, path, longer, device="cpu", quiet=True), path


@pytest.fixture(scope="module")
def own_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of one's own for small volumes, so that a middling one is given to the network in windows."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("base") / "mine.safetensors"
    facts = {"shape": [16, 32, 32], "spacing_mm": 1.0}
    return save_network(create("scope-reg", looks=2), path, name="scope-reg", options={"looks": 2}, facts=facts)


def smooth(shape: tuple[int, int, int], seed: int = 0) -> torch.Tensor:
    low = torch.rand(1, 1, *(max(2, n // 4) for n in shape), generator=torch.Generator().manual_seed(seed))
    return F.interpolate(low, shape, mode="trilinear", align_corners=True)[0, 0].clamp(0.05, 1)


def swept(shape: tuple[int, int, int] = (40, 64, 64)) -> Volume:
    """A volume as a sweep leaves it: a slanted block in black surroundings."""
    z, _, x = torch.meshgrid(*(torch.arange(n) for n in shape), indexing="ij")
    inside = ((z - shape[0] / 2 + 0.2 * (x - shape[2] / 2)).abs() < 14) & ((x - shape[2] / 2).abs() < 24)
    return Volume(smooth(shape) * inside, spacing_mm=1.0)


def test_frames_that_were_never_drawn_are_found_better_than_before(
    adapted: tuple[Adaptation, Path], patient: phantom.Phantom
) -> None:
    result, path = adapted
    assert result.ending == "finished"
    assert result.frames == 24 * 8
    scene = Scene.of(patient.volume, (32, 128, 128), 10, seed=77, device=CPU)
    frames = HeldOut.of(scene, 24, seed=77, spacing_mm=patient.spacing_mm)
    before, after = (float(frames.errors_mm(scopereg.load(name, "cpu").network).mean()) for name in (BASE, path))
    assert after < 0.9 * before


def test_the_file_is_small_and_tells_what_it_is(adapted: tuple[Adaptation, Path]) -> None:
    result, path = adapted
    assert result.path == path
    assert path.stat().st_size < 500_000
    model = scopereg.load(path, "cpu")
    assert model.name == "patient"
    assert model.bases == (BASE,)
    assert NetworkMethod(model).facts["adapted"] == {"model": "patient", "from": [BASE]}
    assert "adapted" not in NetworkMethod(scopereg.load(BASE, "cpu")).facts
    assert model.facts["settings"]["base"] == BASE
    assert model.facts["validation"]["after"] == result.after
    assert result.after["mean_mm"] < result.before["mean_mm"]
    with safe_open(path, "pt") as file:
        header = file.metadata()
        assert {file.get_tensor(key).dtype for key in file.keys() if "decoder" in key} == {torch.float16}  # noqa: SIM118
    assert json.loads(header["base"])["name"] == BASE
    base, own = load_network_of(BASE), model.network.state_dict()
    assert model.sizes is None
    assert own["encoder.slice_encoder.0.weight"].equal(base["encoder.slice_encoder.0.weight"])
    assert not own["decoder.depth_gate.linear.weight"].equal(base["decoder.depth_gate.linear.weight"])


def test_the_calibration_of_the_base_is_inherited_and_judges(tmp_path: Path) -> None:
    patient = phantom.create("prostate", seed=300_001, shape=(32, 64, 64))
    path = tmp_path / "patient.safetensors"
    settings = AdaptSettings(base=BASE, steps=1, frames=4, held_out=16, parts="gates")
    result = adapt(patient.volume, path, settings, device="cpu", quiet=True)
    assert "the calibration of universal holds on held-out frames" in result.notes[-1]
    assert result.calibration == path_beside(path)
    poses = sample_poses(1, 5, patient.shape, torch.Generator().manual_seed(5))
    frame = Frame(patient.acquire(*poses, seed=5).images[0], spacing_mm=patient.spacing_mm)
    found = scopereg.register(frame, patient.volume, method=str(path), device="cpu")
    assert found.ok
    assert found.calibrated_on.endswith(f", inherited from {BASE}")
    noise = Frame(torch.rand(64, 64, generator=torch.Generator().manual_seed(0)), spacing_mm=patient.spacing_mm)
    assert scopereg.register(noise, patient.volume, method=str(path), fallback=False, device="cpu").ok is False


def test_what_the_calibration_of_the_base_does_not_hold_for_is_not_judged(
    adapted: tuple[Adaptation, Path], patient: phantom.Phantom
) -> None:
    """So few voxels are nothing that it knows; tests/training/test_inherited.py tells of more."""
    result, path = adapted
    assert "the calibration of universal does not hold on held-out frames" in result.notes[-1]
    assert result.calibration is None
    assert not path_beside(path).exists()
    found = scopereg.load(path, "cpu").register(Frame(patient.volume.array[8], patient.spacing_mm), patient.volume)
    assert (found.ok, found.belongs) == (None, None)
    assert found.verdict == "not judged: patient network is not calibrated"


def test_without_a_calibration_of_the_base_there_is_none_and_one_of_weights_before_goes(
    own_base: Path, settings: AdaptSettings, tmp_path: Path
) -> None:
    path = tmp_path / "patient.safetensors"
    shutil.copy(path_beside(Path(str(SHIPPED)) / f"{BASE}.safetensors"), path_beside(path))
    small = replace(settings, base=str(own_base), steps=1, parts="gates")
    result = adapt(Volume(smooth((16, 32, 32)), spacing_mm=1.0), path, small, device="cpu", quiet=True)
    assert result.calibration is None
    assert not path_beside(path).exists()
    removed, said = result.notes[-2:]
    assert "is removed" in removed
    assert said == "mine has no calibration: poses are not judged"
    assert scopereg.load(path, "cpu").calibration is None


def test_the_fine_stage_of_the_base_follows(adapted: tuple[Adaptation, Path], patient: phantom.Phantom) -> None:
    _, path = adapted
    model, base = scopereg.load(path, "cpu", calibrated=False), scopereg.load(BASE, "cpu")
    assert model.fine is not None
    assert base.fine is not None
    assert all(model.fine.state_dict()[key].equal(value) for key, value in base.fine.state_dict().items())
    frame = Frame(patient.volume.array[8], spacing_mm=patient.spacing_mm)
    found, alone = (one.register(frame, patient.volume) for one in (model, replace(model, fine=None)))
    assert not found.pose.is_close(alone.pose, mm=1e-3, deg=1e-3)


def test_all_weights_learn_where_there_are_kernels_for_it(
    patient: phantom.Phantom, settings: AdaptSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if available_backends("cpu")["cpu"] is None:
        path = tmp_path / "all.safetensors"
        result = adapt(patient.volume, path, replace(settings, steps=12, frames=8), device="cpu", quiet=True)
        model = scopereg.load(path, "cpu")
        assert model.facts["settings"]["parts"] == "all"
        assert result.after["mean_mm"] < result.before["mean_mm"]
        name = "encoder.slice_encoder.0.weight"
        assert not model.network.state_dict()[name].equal(load_network_of(BASE)[name])
    monkeypatch.setattr(parts, "available_backends", lambda device: {"cpu": "numba is not installed"})
    assert parts.choose_parts("auto", CPU) == "gates"
    assert parts.choose_parts("auto", torch.device("cuda")) == "all"


def load_network_of(name: str) -> dict[str, torch.Tensor]:
    return scopereg.load(name, "cpu").network.state_dict()


def test_one_seed_gives_the_same_weights_again_and_another_does_not(
    patient: phantom.Phantom, settings: AdaptSettings, tmp_path: Path
) -> None:
    tensors = []
    for row, seed in enumerate((0, 0, 1)):
        path = tmp_path / f"{row}.safetensors"
        adapt(patient.volume, path, replace(settings, seed=seed), device="cpu", quiet=True)
        tensors.append(read_stored(path).tensors)
    first, same, other = tensors
    assert all(first[key].equal(same[key]) for key in first)
    assert not all(first[key].equal(other[key]) for key in first)


def test_it_leaves_the_settings_of_cudnn_as_they_were(
    patient: phantom.Phantom, settings: AdaptSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cudnn = torch.backends.cudnn
    monkeypatch.setattr(cudnn, "deterministic", False)
    monkeypatch.setattr(cudnn, "benchmark", True)
    adapt(patient.volume, tmp_path / "a.safetensors", settings, device="cpu", quiet=True)
    assert (cudnn.deterministic, cudnn.benchmark) == (False, True)


def test_it_ends_in_time(patient: phantom.Phantom, settings: AdaptSettings, tmp_path: Path) -> None:
    timed = replace(settings, steps=None, minutes=0.1)
    result = adapt(patient.volume, tmp_path / "a.safetensors", timed, device="cpu", quiet=True)
    assert result.steps >= 1
    assert result.seconds < 2 * 6
    with pytest.raises(ScopeRegError, match="gone before the first step"):
        adapt(patient.volume, tmp_path / "b.safetensors", replace(timed, minutes=0.001), device="cpu", quiet=True)


def test_an_interruption_keeps_the_best_so_far(
    patient: phantom.Phantom, settings: AdaptSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, drawn, original = tmp_path / "a.safetensors", [], Scene.draw

    def draw(self: Scene, *arguments: Any, **named: Any) -> Batch:
        drawn.append(1)
        if len(drawn) == 12:  # in one of the first steps
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, *arguments, **named)

    monkeypatch.setattr(Scene, "draw", draw)
    result = adapt(patient.volume, path, replace(settings, steps=5000), device="cpu", quiet=True)
    assert result.ending == "interrupted"
    assert 0 < result.steps < 5000
    assert path.exists() == (result.after != result.before)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_loss_that_is_no_number_is_explained_and_leaves_the_file_from_before(
    patient: phantom.Phantom, settings: AdaptSettings, tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"from before")
    with pytest.raises(ScopeRegError, match=r"became nan.*as it was"):
        adapt(patient.volume, path, replace(settings, steps=4, learning_rate=1e38), device="cpu", quiet=True)
    assert path.read_bytes() == b"from before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_device_without_memory_is_explained() -> None:
    memory = memory_in_words("adapt", lambda: "all is well", "use less")
    with pytest.raises(ScopeRegError, match=r"out of memory \(all is well\): 3 GiB\n.*use less"), memory:
        raise torch.OutOfMemoryError("3 GiB\nand more")
    with pytest.raises(RuntimeError, match="something else"), memory_in_words("adapt", str, "use less"):
        raise RuntimeError("something else")


def test_a_base_that_changed_or_is_gone_is_explained(own_base: Path, settings: AdaptSettings, tmp_path: Path) -> None:
    base = tmp_path / "base.safetensors"
    base.write_bytes(own_base.read_bytes())
    path = tmp_path / "there" / "a.safetensors"
    adapt(Volume(smooth(SMALL), 1.0), path, replace(settings, base=str(base), spacing_mm=1.0, steps=1), device="cpu")
    moved = base.replace(path.parent / base.name)
    assert load_network(path).looks == 2
    with safe_open(moved, "pt") as file:
        header, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    tensors["encoder.slice_projection.linear.bias"] += 1
    write_tensors(moved, tensors, header)
    with pytest.raises(ScopeRegError, match="weights are others by now"):
        load_network(path)
    moved.unlink()
    with pytest.raises(ScopeRegError, match="is not there") as caught:
        load_network(path)
    assert "base.safetensors beside it" in caught.value.fix


def test_a_base_that_the_package_had_once_is_found_beside(adapted: tuple[Adaptation, Path], tmp_path: Path) -> None:
    with safe_open(adapted[1], "pt") as file:
        header, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    with weights_file(json.loads(header["base"])["name"]) as place:
        (tmp_path / "once.safetensors").write_bytes(place.read_bytes())
    header["base"] = json.dumps({**json.loads(header["base"]), "name": "once"})
    path = tmp_path / "a.safetensors"
    write_tensors(path, tensors, header)
    assert load_network(path).state_dict().keys() == load_network(adapted[1]).state_dict().keys()
    (tmp_path / "once.safetensors").unlink()
    with pytest.raises(ScopeRegError, match="changes of once, which is not there") as caught:
        load_network(path)
    assert "once.safetensors beside it" in caught.value.fix


def test_adapting_an_adapted_network_builds_on_the_first_base(
    adapted: tuple[Adaptation, Path], settings: AdaptSettings, patient: phantom.Phantom, tmp_path: Path
) -> None:
    path = tmp_path / "twice.safetensors"
    adapt(patient.volume, path, replace(settings, base=str(adapted[1]), looks=2), device="cpu", quiet=True)
    stored = read_stored(path)
    assert stored.base["name"] == BASE
    assert stored.options["looks"] == 2
    assert load_network(path).looks == 2
    assert scopereg.load(path, "cpu").bases == (str(adapted[1]), BASE)


def test_what_cannot_be_adapted_is_explained_before_the_work(
    patient: phantom.Phantom, settings: AdaptSettings, own_base: Path, tmp_path: Path
) -> None:
    other = save_network(create("cwcd-heads"), tmp_path / "heads.safetensors", name="cwcd-heads")
    dark = Volume(F.pad(torch.rand(2, 4, 4), (22, 22, 22, 22, 7, 7)), spacing_mm=patient.spacing_mm)
    refused: list[tuple[object, Path, AdaptSettings, str]] = [
        (patient.volume, tmp_path / "a.safetensors", replace(settings, base=str(other)), "only SCoPE-Reg"),
        (patient.volume, tmp_path / "a.safetensors", replace(settings, base="univresal"), "did you mean 'universal'"),
        (patient.volume, own_base, replace(settings, base=str(own_base)), "overwrite the weights"),
        (patient.volume, tmp_path / "a.pt", settings, "ends in .safetensors"),
        (patient.volume, other / "a.safetensors", settings, "cannot write there"),
        (Volume(torch.rand(4, 48, 48), patient.spacing_mm), tmp_path / "a.safetensors", settings, "too small"),
        (dark, tmp_path / "a.safetensors", settings, "too empty"),
        (Volume(torch.zeros(SMALL), 1.0), tmp_path / "a.safetensors", settings, "every value is 0"),
        (tmp_path / "none.nii.gz", tmp_path / "a.safetensors", settings, "none.nii.gz"),
    ]
    for volume, output, chosen, words in refused:
        with pytest.raises(ScopeRegError, match=words):
            adapt(volume, output, chosen, device="cpu", quiet=True)  # type: ignore[arg-type]
    assert not (tmp_path / "a.safetensors").exists()
    with pytest.raises(ScopeRegError, match="both minutes and steps"):
        AdaptSettings(minutes=1, steps=1)
    with pytest.raises(ScopeRegError, match="held_out is 0"):
        AdaptSettings(held_out=0)


def test_a_window_is_given_only_of_much_larger_volumes() -> None:
    assert window_shape((40, 160, 160), (32, 128, 128)) == (40, 160, 160)
    assert window_shape((119, 162, 202), (32, 128, 128)) == (32, 128, 128)
    assert window_shape((20, 162, 202), (32, 128, 128)) == (20, 128, 128)


def likeness(batch: Batch, shift: float) -> torch.Tensor:
    """Correlation of the frames of two windows with their windows at their poses, moved by so many voxels."""
    found = []
    for window, volume in enumerate(batch.volumes):
        rows = slice(window * 8, window * 8 + 8)
        cuts = sample_slice(volume, batch.rotation[rows], batch.translation[rows] + shift)
        for frame, cut in zip(batch.slices[rows], cuts, strict=True):
            both = (frame > 0.02) & (cut > 0.02)
            found.append(torch.corrcoef(torch.stack([frame[both], cut[both]]))[0, 1])
    return torch.stack(found)


@pytest.mark.parametrize("trained", [(40, 64, 64), (16, 32, 32)], ids=["whole", "windows"])
def test_drawn_frames_show_the_volume_where_their_poses_say(trained: tuple[int, int, int]) -> None:
    scene = Scene.of(swept(), trained, 5, seed=0, device=CPU)
    assert (scene.anchors is None) == (trained == (40, 64, 64))
    batch = scene.draw(2, 8, torch.Generator().manual_seed(1))
    assert batch.volumes.shape == (2, *scene.window)
    there, beside = likeness(batch, shift=0), likeness(batch, shift=3)
    assert there.median() > 0.55
    assert there.median() > 2 * beside.median()
    again = scene.draw(2, 8, torch.Generator().manual_seed(1))
    assert all(one.equal(two) for one, two in zip(batch.tensors(), again.tensors(), strict=True))


def test_windows_lie_where_frames_are_covered() -> None:
    scene = Scene.of(swept((60, 64, 64)), (16, 32, 32), 5, seed=0, device=CPU)
    assert scene.anchors is not None
    whole = torch.ones(len(scene.anchors.rotation), 32, 32, dtype=torch.bool)
    assert float(cover(scene.content, scene.anchors, whole).median()) > COVERED - 0.1
    anywhere = VoxelPoses(torch.eye(3).repeat(64, 1, 1), torch.rand(64, 3, generator=torch.Generator()) * 60 - 30)
    assert float(cover(scene.content, anywhere, whole[:1].expand(64, -1, -1)).median()) < COVERED - 0.1


def test_a_network_of_many_shapes_is_adapted_on_a_grid_of_the_volume_s_planes(
    settings: AdaptSettings, tmp_path: Path
) -> None:
    """No frame is at hand: frames are taken to be as large as its planes. What is written has one voxel size."""
    torch.manual_seed(0)
    sizes = {"frame_voxels": [32, 48], "volume_voxels": [16, 48], "magnitude_voxels": 5}
    base, path = tmp_path / "many.safetensors", tmp_path / "a.safetensors"
    save_network(create("scope-reg"), base, name="scope-reg", facts={"grid": sizes})
    short = replace(settings, base=str(base), spacing_mm=None, steps=1, magnitude=5)
    found = adapt(swept(), path, short, device="cpu", quiet=True)
    assert found.notes == (
        "the volume's voxels of 1 x 1 x 1 mm are resampled to 1.4 mm, 46 along the frame",
        "many has no calibration: poses are not judged",
    )
    model = scopereg.load(path, "cpu")
    assert model.sizes is None
    assert model.facts["spacing_mm"] == pytest.approx(1.4)
    assert model.facts["shape"] == [28, 46, 46]  # all of it: windows of 32 x 48 x 48 would be no smaller
    adapt(swept(), path, replace(short, spacing_mm=1.0), device="cpu", quiet=True)
    assert scopereg.load(path, "cpu").facts["spacing_mm"] == 1.0


def test_empty_places_are_filled_and_pictures_stay() -> None:
    volume = swept().array
    content = pictured(volume)
    filled = fill_empty(volume, content)
    assert filled[content].equal(volume[content])
    assert float(filled.min()) > 0.02
    assert float(filled.max()) <= 1 + 1e-5
    dark = volume.clone()
    dark[18:22, 28:36, 28:36] = 0  # a vessel inside is part of the picture
    assert pictured(dark).equal(content)


def test_networks_for_windows_are_given_windows_in_use(own_base: Path, settings: AdaptSettings, tmp_path: Path) -> None:
    volume = swept()
    path = tmp_path / "a.safetensors"
    short = replace(settings, base=str(own_base), spacing_mm=None, steps=1, magnitude=5)
    adapt(volume, path, short, device="cpu", quiet=True)
    assert scopereg.load(path, "cpu").facts["window"] == [16, 32, 32]
    locator = Locator(volume, str(path), device="cpu")
    frame = Frame(volume.array[20, 16:48, 16:48], spacing_mm=1.0)
    assert locator.prepared.volume_for(frame).window.shape == (16, 32, 32)  # type: ignore[attr-defined]
    turn = VoxelPoses(torch.eye(3), torch.tensor([3.0, -2.0, 6.0]))
    start = pose_from_voxels(*turn, frame, volume)
    with torch.inference_mode():  # what the network says of the part of the volume around the start
        around = volume.array[18:34, 14:46, 19:51][None]
        step = load_network(path)(frame.array[None], around).translation[0]
    found = locator.locate(frame, start)
    moved = torch.tensor(found.pose.translation_mm - start.translation_mm, dtype=torch.float32)
    torch.testing.assert_close(moved, step, atol=1e-3, rtol=0)
    assert locator.locate(frame).pose.name == "ImageToVolume"


def test_the_command_writes_weights_that_register_takes(
    patient: phantom.Phantom, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "weights" / "p.safetensors"
    volume = write_volume(patient.volume, tmp_path / "volume.nii.gz")
    words = [str(volume), "--steps", "2", "--frames", "4", "--held-out", "4"]
    words += ["--working-voxel-mm", str(patient.spacing_mm), "--device", "cpu", "-o", str(path)]
    assert main(["adapt", *words]) == 0
    shown = capsys.readouterr()
    assert "before:" in shown.err
    assert "held-out frames of this volume" in shown.out
    assert f"--model {path}" in shown.out
    picture = tmp_path / "frame.png"
    picture.write_bytes(png_bytes(grey_pixels(patient.volume.array[8])))
    register = ["register", str(picture), str(volume), "--pixel-mm", str(patient.spacing_mm), "--method", str(path)]
    assert main([*register, "--device", "cpu", "-o", str(tmp_path / "pose.json")]) == 0
    assert "p network" in (tmp_path / "pose.json").read_text()
    assert main(["adapt", "--steps", "2"]) == 2
    assert "scopereg adapt VOLUME" in capsys.readouterr().err
