"""Weights come back as they went, and files that are not weights are explained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from scopereg.errors import ScopeRegError
from scopereg.networks import create
from scopereg.networks.weights import load_network, read_facts, save_network


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
