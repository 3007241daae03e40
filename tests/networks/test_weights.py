"""Weights come back as they went, and files that are not weights are explained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from scopereg.errors import ScopeRegError
from scopereg.io.tensors import write_tensors
from scopereg.networks import create
from scopereg.networks import weights as weights_file
from scopereg.networks.weights import (
    SHIPPED,
    SUMS,
    load_network,
    network_of,
    read_base,
    read_facts,
    read_stored,
    save_changes,
    save_network,
    shipped,
)


def test_a_network_comes_back_with_its_options_and_facts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = create("ssvf-heads", norm="instance").eval()
    path = save_network(
        network, tmp_path / "a.safetensors", name="ssvf-heads", options={"norm": "instance"}, facts={"seed": 3}
    )
    again = load_network(path)
    images = torch.rand(1, 16, 16), torch.rand(1, 16, 16, 16)
    with torch.no_grad():
        assert torch.equal(network(*images).rotation, again(*images).rotation)
    assert read_facts(path) == {"seed": 3}
    assert not again.training


def test_half_precision_halves_the_file_and_stays_close(tmp_path: Path) -> None:
    network = create("scope-reg")
    full = save_network(network, tmp_path / "full.safetensors", name="scope-reg")
    half = save_network(network, tmp_path / "half.safetensors", name="scope-reg", dtype=torch.float16)
    assert half.stat().st_size < 0.51 * full.stat().st_size
    for first, second in zip(network.parameters(), load_network(half).parameters(), strict=True):
        assert second.dtype == torch.float32
        assert torch.allclose(first, second, rtol=1e-3, atol=1e-6)


def test_a_network_is_saved_under_its_own_name_only(tmp_path: Path) -> None:
    """Two variants share all keys: under the wrong name the file would come back as another network."""
    for made, name in ((create("cwcd-kabsch"), "scope-reg"), (create("tri-plane"), "scope-reg")):
        with pytest.raises(ScopeRegError, match="is no scope-reg"):
            save_network(made, tmp_path / "a.safetensors", name=name)
    assert not list(tmp_path.iterdir())


def test_bad_files_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="no such file"):
        load_network(tmp_path / "none.safetensors")
    whole = save_network(create("scope-reg"), tmp_path / "whole.safetensors", name="scope-reg")
    (tmp_path / "cut.safetensors").write_bytes(whole.read_bytes()[:100_000])
    with pytest.raises(ScopeRegError, match="not a whole safetensors file"):
        load_network(tmp_path / "cut.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ScopeRegError, match="header says None"):
        load_network(tmp_path / "other.safetensors")
    header = {"format": "scopereg-1", "network": "scope-reg", "options": "{}", "facts": "{}"}
    save_file(create("cwcd-heads").state_dict(), tmp_path / "wrong.safetensors", header)
    with pytest.raises(ScopeRegError, match="does not hold a scope-reg"):
        load_network(tmp_path / "wrong.safetensors")


def test_saving_draws_no_random_numbers(tmp_path: Path) -> None:
    """A checkpoint in the middle of a training must not change what follows."""
    network = create("scope-reg")
    before = torch.get_rng_state()
    save_network(network, tmp_path / "a.safetensors", name="scope-reg")
    assert torch.equal(torch.get_rng_state(), before)


# what a file says that nobody vouches for


GOOD = {"format": "scopereg-1", "network": "scope-reg", "options": "{}", "facts": "{}"}


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    return dict(create("scope-reg").state_dict())


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({"network": "scope-rag"}, "no network here, did you mean 'scope-reg'"),
        ({"network": "x" * 300}, "network is"),
        ({"options": None}, "it has no options"),
        ({"options": "{"}, "not the JSON it should be"),
        ({"options": "[]"}, "it holds a list, not a mapping"),
        ({"options": '{"looks": 1e9}'}, "looks is 1000000000.0, not a size"),
        ({"options": '{"looks": 1000000000}'}, "at most 32"),
        ({"options": '{"looks": "many"}'}, "looks is 'many', not a whole number"),
        ({"options": '{"depth_stride": 8000}'}, "depth_stride is 8000"),
        ({"options": '{"depth_stride": 5}'}, "depth"),
        ({"options": '{"norm": [[]]}'}, "norm is"),
        pytest.param({"options": '{"norm": "other"}'}, "unknown norm", marks=pytest.mark.unchecked_shapes),
        ({"options": '{"colour": 1}'}, "no option 'colour'"),
        ({"options": "9" * 5000}, "5000 digits"),
        ({"network": "eureg", "options": '{"shape": [4000000, 64, 64]}'}, "shape is"),
        ({"network": "eureg", "options": '{"shape": [4000, 4000, 4000]}'}, "does not hold a eureg"),
        ({"network": "dreamreg", "options": '{"shape": [4000, 4000, 4000]}'}, "does not hold a dreamreg"),
        ({"network": "fvr-net", "options": '{"shape": [4000, 4000, 4000]}'}, "does not hold a fvr-net"),
        ({"network": "eureg", "options": '{"shape": 3}'}, "shape is 3, not a list"),
        ({"facts": "[" * 1000 + "]" * 1000}, "nested deeper|recursion"),
        ({"facts": '"x"'}, "it holds a text, not a mapping"),
        ({"facts": '{"spacing_mm": "wide"}'}, "spacing_mm is 'wide'"),
        ({"facts": '{"spacing_mm": -1}'}, "spacing_mm is -1"),
        ({"facts": '{"shape": [1, 2]}'}, "not a list of 3 finite numbers"),
        ({"facts": '{"shape": [0, 2, 1e6]}'}, "three sizes in voxels"),
        ({"facts": '{"settings": [1]}'}, "it holds a list"),
        ({"base": '{"name": 3, "sha256": ""}'}, "name is 3, not a text"),
        ({"base": '{"name": "x"}'}, "it has no sha256"),
        ({"base": '{"name": "nowhere", "sha256": "x"}'}, "it holds changes of nowhere, which is not there"),
    ],
)
def test_headers_that_do_not_fit_are_named(
    tmp_path: Path, tensors: dict[str, torch.Tensor], header: dict[str, Any], said: str
) -> None:
    told = {key: value for key, value in {**GOOD, **header}.items() if value is not None}
    path = write_tensors(tmp_path / "a.safetensors", tensors, told)
    with pytest.raises(ScopeRegError, match=said) as caught:
        load_network(path)
    assert "a.safetensors" in caught.value.where


def test_weights_that_build_on_themselves_are_refused(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    for name, below in (("a", "b"), ("b", "a"), ("c", "c")):
        base = {"name": str(tmp_path / f"{below}.safetensors"), "sha256": "x"}
        write_tensors(tmp_path / f"{name}.safetensors", tensors, {**GOOD, "base": json.dumps(base)})
    for name in "abc":
        with pytest.raises(ScopeRegError, match="which holds changes itself"):
            load_network(tmp_path / f"{name}.safetensors")


@pytest.mark.parametrize("where", [0.3, 0.6, 0.999])
def test_a_flipped_bit_in_weights_is_found(tmp_path: Path, where: float) -> None:
    path = save_network(create("scope-reg"), tmp_path / "a.safetensors", name="scope-reg", facts={"seed": 3})
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 4
    path.write_bytes(content)
    with pytest.raises(ScopeRegError, match="it is damaged"):
        load_network(path)


def test_a_changed_header_of_weights_is_found(tmp_path: Path) -> None:
    path = save_network(create("scope-reg"), tmp_path / "a.safetensors", name="scope-reg", facts={"spacing_mm": 0.5})
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.6", 1))
    with pytest.raises(ScopeRegError, match="it is damaged"):
        load_network(path)


def test_changes_carry_a_hash_too(tmp_path: Path) -> None:
    network = network_of(read_stored(Path(str(SHIPPED)) / "universal.safetensors"), "universal")
    changed = [name for name, _ in network.named_parameters()][:1]
    path = save_changes(network, tmp_path / "a.safetensors", base="universal", changed=changed)
    assert read_base(path)["name"] == "universal"
    load_network(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ScopeRegError, match="it is damaged"):
        load_network(path)


def test_weights_of_the_package_are_those_that_it_came_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [line.split()[1] for line in (Path(str(SHIPPED)) / SUMS).read_text().splitlines()]
    assert listed == sorted(path.name for path in Path(str(SHIPPED)).glob("*.safetensors"))
    assert {name.removesuffix(".safetensors").removesuffix(".fine") for name in listed} == set(shipped())
    folder = Path(shutil.copytree(str(SHIPPED), tmp_path / "weights"))
    monkeypatch.setattr(weights_file, "SHIPPED", folder)
    load_network(folder / "universal.safetensors")
    content = bytearray((folder / "universal.safetensors").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "universal.safetensors").write_bytes(content)
    with pytest.raises(ScopeRegError, match="not the file that the package came with"):
        load_network(folder / "universal.safetensors")
