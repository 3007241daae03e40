"""What results say of their making."""

from __future__ import annotations

import sys

import pytest
import torch

from scopereg.provenance import command_line, provenance, tensors_sha256


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["/opt/env/bin/scopereg", "demo", "--seed", "3"], "scopereg demo --seed 3"),
        (["/opt/env/lib/scopereg/__main__.py", "demo", "-o", "my folder"], "scopereg demo -o 'my folder'"),
    ],
)
def test_the_command_is_told_without_the_folders_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], shown: str
) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    assert command_line() == shown


def test_the_facts_are_all_there() -> None:
    facts = provenance(seed=3, data_sha256="ab", device="cpu")
    assert facts["seed"] == 3
    assert facts["data_sha256"] == "ab"
    assert facts["device"].startswith("cpu")
    assert {"numpy", "SimpleITK"} <= set(facts["versions"])
    assert facts["versions"]["torch"] == torch.__version__  # with its build, which decides numbers too


def test_the_hash_sees_values_shapes_and_types() -> None:
    one = torch.arange(6.0)
    hashes = {tensors_sha256(t) for t in (one, one + 1, one.reshape(2, 3), one.double())}
    assert len(hashes) == 4
    assert tensors_sha256(one) == tensors_sha256(one.clone())
