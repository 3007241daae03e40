"""Exported models give the same poses at any batch size; the command checks that and writes nothing otherwise."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import torch

from scopereg.cli import main
from scopereg.errors import ScopeRegError
from scopereg.networks import create
from scopereg.networks.export import compare, export_network, open_model, open_network, read_export, run
from scopereg.networks.weights import load_network, read_stored, save_network, weights_file, weights_sha256
from scopereg.options.models import ExportOptions

SHAPE = (11, 21, 30)  # nothing that a stride divides


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two looks: the first is the published form, the second all that was added to it."""
    torch.manual_seed(5)
    options = {"looks": 2, "matching": True, "reach": 1.75}
    network = create("scope-reg", **options)
    # Away from the quiet start, so that the pose depends on the images and a wrong graph would show.
    for parameter in network.decoder.parameters():
        parameter.data.mul_(3)
    return save_network(network, tmp_path_factory.mktemp("export") / "w.safetensors", name="scope-reg", options=options)


@pytest.fixture(scope="module", params=[".onnx", ".pt2"])
def exported(request: pytest.FixtureRequest, weights: Path) -> tuple[Path, int, str]:
    """What the command wrote, its exit status, and what it said."""
    path, said = weights.with_suffix(request.param), StringIO()
    with redirect_stdout(said):
        status = main(["export", str(weights), "-o", str(path), "--shape", *map(str, SHAPE)])
    return path, status, said.getvalue()


@pytest.mark.slow
def test_the_command_exports_and_checks(exported: tuple[Path, int, str]) -> None:
    path, status, said = exported
    assert status == 0
    assert "same poses within" in said
    facts = read_export(path)
    assert (facts["shape"], facts["seed"], facts["model"]["network"]) == (list(SHAPE), 0, "scope-reg")
    assert facts["model"]["options"] == {"looks": 2, "matching": True, "reach": 1.75}
    assert "voxels from the centre" in facts["pose"]
    assert {"command", "versions", "scopereg"} <= facts.keys()
    assert b"networks/scope_reg.py" not in path.read_bytes()  # nothing of this machine's folders
    rotation, translation, coordinates, evidence = open_model(path)(torch.rand(2, 21, 30), torch.rand(2, *SHAPE))
    assert rotation.shape == (2, 3, 3)
    assert translation.shape == (2, 3)
    assert coordinates.shape == (2, 3, 3, 4)
    assert evidence.shape == (2, 3, 4)


@pytest.mark.slow
def test_comparison_sees_another_network(exported: tuple[Path, int, str]) -> None:
    other = create("cwcd-heads").eval()
    other.heads.translation[-1].bias.data.fill_(1.0)
    assert compare(other, exported[0], SHAPE, seed=0).voxels > 1.0


def test_an_arm_without_coordinates_exports_too(tmp_path: Path) -> None:
    network = create("cross-attention-heads").eval()
    export_network(network, SHAPE, tmp_path / "a.pt2")
    agreement = compare(network, tmp_path / "a.pt2", SHAPE, seed=1)
    assert agreement.voxels < 1e-3
    assert agreement.degrees < 1e-3


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of the network that is exported in the least time, for what does not depend on the network."""
    path = tmp_path_factory.mktemp("quick") / "w.safetensors"
    return save_network(create("cross-attention-heads"), path, name="cross-attention-heads")


def test_a_model_that_differs_is_not_written(quick: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    with pytest.raises(ScopeRegError, match="differs by"):
        run(ExportOptions(str(quick), path, SHAPE, tolerance=-1.0))
    assert not list(tmp_path.iterdir())


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
    network, facts = open_network("prostate")
    assert facts["name"] == "prostate"
    with weights_file("prostate") as path:
        assert facts["weights_sha256"] == weights_sha256(read_stored(path).tensors)
        same = load_network(path).state_dict()
    assert all(torch.equal(value, same[key]) for key, value in network.state_dict().items())


def test_wrong_endings_and_models_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="did you mean 'scope-reg'"):
        run(ExportOptions("scop-reg", tmp_path / "m.pt2", SHAPE))
    with pytest.raises(ScopeRegError, match="at least one voxel"):
        run(ExportOptions("scope-reg", tmp_path / "m.pt2", (-8, 16, 16)))
    with pytest.raises(ScopeRegError, match="unknown ending"):
        run(ExportOptions("scope-reg", tmp_path / "m.tflite", SHAPE))
    with pytest.raises(ScopeRegError, match="no such file"):
        run(ExportOptions("nothing.safetensors", tmp_path / "m.pt2", SHAPE))
