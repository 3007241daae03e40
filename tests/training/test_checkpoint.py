"""Checkpoints: what goes in comes out, without pickle, and what is not one is explained."""

from __future__ import annotations

import math
import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from scopereg.errors import ScopeRegError
from scopereg.networks import create
from scopereg.networks.weights import save_network
from scopereg.training.checkpoint import read_checkpoint, write_checkpoint


def saved(content: dict[str, Any], path: Path) -> Path:
    return write_checkpoint(content, path)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """What a full disk does: a file cannot grow beyond some bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Trap:
    """A pickle of this runs code."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("a pickle was opened",)


def test_plain_values_come_back_with_their_kinds(tmp_path: Path) -> None:
    content = {
        "text": "a",
        "none": None,
        "yes": True,
        "whole": 3,
        "real": 0.1,
        "list": [1, [2.5, None]],
        "tuple": (1, ("b",)),
        "empty": [{}, [], ()],
        3: {"whole numbers as keys": {0: 1}},
        "__tensor__": {"__pairs__": 1, "__tuple__": [2]},
    }
    assert read_checkpoint(saved(content, tmp_path / "a.ckpt")) == content


def test_numbers_that_json_does_not_know_come_back(tmp_path: Path) -> None:
    found = read_checkpoint(saved({"best": math.inf, "loss": math.nan}, tmp_path / "a.ckpt"))
    assert found["best"] == math.inf
    assert math.isnan(found["loss"])


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_tensors_come_back_bit_by_bit(tmp_path: Path, kind: torch.dtype) -> None:
    value = torch.arange(24).reshape(2, 3, 4).to(kind)
    content = {"a": value, "scalar": value[0, 0, 1], "state": {0: {"turned": value.transpose(0, 2)}}}
    found = read_checkpoint(saved(content, tmp_path / "a.ckpt"))
    for one, other in (
        (found["a"], value),
        (found["scalar"], value[0, 0, 1]),
        (found["state"][0]["turned"], value.transpose(0, 2)),
    ):
        assert one.dtype == kind
        assert torch.equal(one, other)


def test_tensors_that_share_memory_come_back_apart(tmp_path: Path) -> None:
    value = torch.zeros(3)
    found = read_checkpoint(saved({"one": value, "same": value}, tmp_path / "a.ckpt"))
    found["one"].add_(1)
    assert torch.equal(found["same"], value)


def test_a_checkpoint_is_a_safetensors_file(tmp_path: Path) -> None:
    path = saved({"weight": torch.ones(2)}, tmp_path / "a.ckpt")
    with safe_open(path, "pt") as file:
        assert len(file.keys()) == 1


def test_what_only_pickle_could_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="Trap cannot be stored"):
        saved({"a": [Trap()]}, tmp_path / "a.ckpt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_a_pickle_is_refused_unopened(tmp_path: Path, save: Any) -> None:
    save({"state_dict": Trap()}, tmp_path / "a.ckpt")
    with pytest.raises(ScopeRegError, match="not a whole safetensors file"):
        read_checkpoint(tmp_path / "a.ckpt")


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_truncated_checkpoint_is_refused(tmp_path: Path, kept: int) -> None:
    path = saved({"weight": torch.ones(100)}, tmp_path / "a.ckpt")
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ScopeRegError, match="not a whole safetensors file"):
        read_checkpoint(path)


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match=r"nowhere\.ckpt.*no such file"):
        read_checkpoint(tmp_path / "nowhere.ckpt")


def test_other_safetensors_are_refused(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "a.ckpt")
    with pytest.raises(ScopeRegError, match="header says None"):
        read_checkpoint(tmp_path / "a.ckpt")


def test_a_full_disk_leaves_the_earlier_checkpoint_and_nothing_else(tmp_path: Path) -> None:
    path = saved({"weight": torch.ones(10)}, tmp_path / "a.ckpt")
    with files_of_at_most(10_000), pytest.raises(ScopeRegError, match="cannot write there"):
        saved({"weight": torch.zeros(100_000)}, path)
    assert list(tmp_path.iterdir()) == [path]
    assert torch.equal(read_checkpoint(path)["weight"], torch.ones(10))


def test_a_full_disk_leaves_no_half_of_a_network(tmp_path: Path) -> None:
    with files_of_at_most(1_000_000), pytest.raises(ScopeRegError, match="cannot write there"):
        save_network(create("scope-reg"), tmp_path / "model.safetensors", name="scope-reg")
    assert not list(tmp_path.iterdir())
