"""Exported models give the same poses at any batch size; the command checks that and writes nothing otherwise."""

from __future__ import annotations

import re
import shutil
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from scopereg import io
from scopereg.cli import main
from scopereg.commands.export import ExportOptions, run
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Volume
from scopereg.io.pictures import png_bytes
from scopereg.networks import create
from scopereg.networks import export as export_file
from scopereg.networks.export import (
    Model,
    WithFineStage,
    compare,
    export_network,
    open_model,
    open_network,
    read_export,
)
from scopereg.networks.weights import (
    fine_beside,
    load_fine_stage,
    load_network,
    read_stored,
    save_network,
    weights_file,
    weights_sha256,
)
from scopereg.registration.locator import Locator
from scopereg.registration.model import load
from scopereg.registration.result import apart_mm

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
pytestmark = pytest.mark.unchecked_shapes
SPACING_MM = 0.8
SHAPE = (11, 13, 22)  # nothing that a stride divides; exporters take their time over every token


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two looks: the first is the published form, the second all that was added to it. With a fine stage."""
    torch.manual_seed(5)
    options = {"looks": 2, "matching": True, "reach": 1.75}
    network = create("scope-reg", **options)
    # Away from the quiet start, so that the pose depends on the images and a wrong graph would show.
    for parameter in network.decoder.parameters():
        parameter.data.mul_(3)
    path, facts = tmp_path_factory.mktemp("export") / "w.safetensors", {"spacing_mm": SPACING_MM, "shape": SHAPE}
    steps = {"steps": [2, 1, 1]}  # of a fine stage beside it; exporters take their time over every step too
    save_network(create("fine-stage", **steps), fine_beside(path), name="fine-stage", options=steps)
    return save_network(network, path, name="scope-reg", options=options, facts=facts)


class Exported(NamedTuple):
    """What the command wrote, its exit status, what it said, and the model that it opened to compare it."""

    path: Path
    status: int
    said: str
    model: Model


@pytest.fixture(scope="module")
def programs() -> list[torch.export.ExportedProgram]:
    """The network recorded, which is the same for both formats and takes longest."""
    return []


@pytest.fixture(scope="module", params=[".pt2", ".onnx"])
def exported(request: pytest.FixtureRequest, weights: Path, programs: list[torch.export.ExportedProgram]) -> Exported:
    path, said, opened, record = weights.with_suffix(request.param), StringIO(), [], torch.export.export

    def recorded_once(*arguments: object, **named: object) -> torch.export.ExportedProgram:
        if not programs:
            programs.append(record(*arguments, **named))  # type: ignore[arg-type]
        return programs[0]

    def opened_once(written: Path) -> Model:
        opened.append(open_model(written))
        return opened[-1]

    with redirect_stdout(said), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.export, "export", recorded_once)
        patch.setattr(export_file, "open_model", opened_once)
        status = main(["export", str(weights), "-o", str(path), "--shape", *map(str, SHAPE)])
    (model,) = opened
    return Exported(path, status, said.getvalue(), model)


@pytest.mark.slow
def test_the_command_exports_and_checks(exported: Exported, weights: Path) -> None:
    path, status, said, model = exported
    assert status == 0
    assert "same poses within" in said
    facts = read_export(path)
    assert (facts["shape"], facts["seed"], facts["model"]["network"]) == (list(SHAPE), 0, "scope-reg")
    assert facts["model"]["options"] == {"looks": 2, "matching": True, "reach": 1.75}
    assert "voxels from the centre" in facts["pose"]
    assert {"command", "versions", "scopereg"} <= facts.keys()
    stage = load_fine_stage(weights)
    assert stage is not None
    assert facts["model"]["fine_sha256"] == weights_sha256(stage.state_dict())
    assert "with its fine stage" in said
    assert b"networks/scope_reg.py" not in path.read_bytes()  # nothing of this machine's folders
    rotation, translation, coordinates, evidence = model(torch.rand(2, *SHAPE[1:]), torch.rand(2, *SHAPE))
    assert rotation.shape == (2, 3, 3)
    assert translation.shape == (2, 3)
    assert coordinates.shape == (2, 3, 2, 3)
    assert evidence.shape == (2, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("exported", [".onnx"], indirect=True)
def test_the_ten_lines_of_the_docs_give_the_pose_of_the_package(
    exported: Exported, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In LPS millimetres of the files, with a volume that is turned and off the origin, and a finer frame."""
    (block,) = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(block.split("\n\n")[-1].strip().splitlines()) == 10
    draws = torch.Generator().manual_seed(4)
    tilt = Pose.from_euler_deg((5, -3, 20), (0, 0, 0)).rotation
    made = Volume((torch.rand(SHAPE, generator=draws) * 255).round(), SPACING_MM, (12.0, -34.0, 56.0), tilt)
    io.write_volume(made, tmp_path / "volume.nii.gz")
    pixels = (torch.rand(2 * SHAPE[1], 2 * SHAPE[2], generator=draws) * 255).to(torch.uint8)
    (tmp_path / "frame.png").write_bytes(png_bytes(pixels.numpy()))
    shutil.copy(exported.path, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    found: dict[str, Pose] = {}
    exec(compile(block, "docs/export.md", "exec"), found)  # type: ignore[arg-type]
    volume, frame = io.read_volume("volume.nii.gz"), io.read_frame("frame.png", spacing_mm=SPACING_MM / 2)
    wanted = Locator(volume, str(weights), device="cpu").locate(frame).pose
    assert found["pose"].is_close(wanted, mm=1e-3, deg=1e-3)
    alone = Locator(volume, replace(load(weights, "cpu"), fine=None)).locate(frame).pose
    assert apart_mm(frame, alone, wanted) > 0.1  # the fine stage has part in it
    assert np.abs(wanted.rotation - tilt).max() > 1e-2  # not just the middle
    assert np.abs(Pose.load("pose.tfm").matrix - found["pose"].matrix).max() < 1e-9


@pytest.mark.slow
def test_comparison_sees_another_network(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_file, "open_model", lambda _: exported.model)
    other = create("cwcd-heads").eval()
    other.heads.translation[-1].bias.data.fill_(1.0)
    assert compare(other, exported.path, SHAPE, seed=0).voxels > 1.0


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of the network that is exported in the least time, for what does not depend on the network."""
    path = tmp_path_factory.mktemp("quick") / "w.safetensors"
    return save_network(create("cross-attention-heads"), path, name="cross-attention-heads")


@pytest.fixture(scope="module")
def quick_network(quick: Path) -> nn.Module:
    return load_network(quick).eval()


@pytest.fixture(scope="module")
def quick_export(quick_network: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """That network exported, and opened again."""
    path = tmp_path_factory.mktemp("quick") / "a.pt2"
    export_network(quick_network, SHAPE, path)
    return path, open_model(path)


@pytest.fixture
def exported_before(quick_export: tuple[Path, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command finds that network's export done, and opened."""
    done, model = quick_export
    monkeypatch.setattr(
        export_file, "export_network", lambda _, __, path, ___, recorded: path.write_bytes(done.read_bytes())
    )
    monkeypatch.setattr(export_file, "open_model", lambda _: model)


def test_an_arm_without_coordinates_exports_too(
    quick_network: nn.Module, quick_export: tuple[Path, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, model = quick_export
    monkeypatch.setattr(export_file, "open_model", lambda _: model)
    agreement = compare(quick_network, path, SHAPE, seed=1)
    assert agreement.voxels < 1e-3
    assert agreement.degrees < 1e-3


@pytest.mark.usefixtures("exported_before")
def test_a_model_that_differs_is_not_written(quick: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    with pytest.raises(ScopeRegError, match="differs by"):
        run(ExportOptions(str(quick), path, SHAPE, tolerance=-1.0))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("exported_before")
def test_a_network_that_gives_nan_is_not_written(quick: Path, tmp_path: Path) -> None:
    broken = load_network(quick)
    broken.heads.translation[-1].bias.data.fill_(float("nan"))
    bad = save_network(broken, tmp_path / "bad.safetensors", name="cross-attention-heads")
    with pytest.raises(ScopeRegError, match="differs by nan"):
        run(ExportOptions(str(bad), tmp_path / "m.pt2", SHAPE))
    assert [path.name for path in tmp_path.iterdir()] == ["bad.safetensors"]


@pytest.mark.slow
def test_side_planes_export(tmp_path: Path) -> None:
    network = create("tri-plane").eval()
    export_network(network, SHAPE, tmp_path / "m.onnx")
    agreement = compare(network, tmp_path / "m.onnx", SHAPE, seed=1)
    assert agreement.voxels < 1e-3
    assert agreement.degrees < 1e-3


def test_a_model_of_the_package_goes_by_its_name() -> None:
    network, facts = open_network("universal")
    assert facts["name"] == "universal"
    with weights_file("universal") as path:
        assert facts["weights_sha256"] == weights_sha256(read_stored(path).tensors)
        parts = {"network": load_network(path), "stage": load_fine_stage(path)}
    assert isinstance(network, WithFineStage)
    for name, part in parts.items():
        assert part is not None
        own = getattr(network, name).state_dict()
        assert all(torch.equal(value, own[key]) for key, value in part.state_dict().items())


def test_wrong_endings_and_models_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="did you mean 'scope-reg'"):
        run(ExportOptions("scop-reg", tmp_path / "m.pt2", SHAPE))
    with pytest.raises(ScopeRegError, match="at least one voxel"):
        run(ExportOptions("scope-reg", tmp_path / "m.pt2", (-8, 16, 16)))
    with pytest.raises(ScopeRegError, match="unknown ending"):
        run(ExportOptions("scope-reg", tmp_path / "m.tflite", SHAPE))
    with pytest.raises(ScopeRegError, match="no such file"):
        run(ExportOptions("nothing.safetensors", tmp_path / "m.pt2", SHAPE))
