"""What tells an image from others: the hash of its pixels as they are now."""

from __future__ import annotations

import pytest
import torch

from scopereg.images import Frame, Volume
from scopereg.io import stored
from scopereg.io.stored import identity, pixels_sha256
from scopereg.provenance import tensors_sha256


def test_a_hash_is_made_once_and_again_when_pixels_change(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(*tensors: torch.Tensor) -> str:
        made.append(len(tensors))
        return tensors_sha256(*tensors)

    monkeypatch.setattr(stored, "tensors_sha256", counted)
    volume = Volume(torch.rand(4, 5, 6), 1.0)
    first = [identity(volume)["pixels_sha256"], pixels_sha256(volume)]
    assert first == [tensors_sha256(volume.array)] * 2
    assert len(made) == 1
    volume.array[0, 0, 0] += 1
    assert pixels_sha256(volume) == tensors_sha256(volume.array) != first[0]
    assert len(made) == 2


def test_tensors_of_inference_have_a_hash_too() -> None:
    with torch.inference_mode():
        frame = Frame(torch.rand(4, 5), 1.0)
    assert pixels_sha256(frame) == tensors_sha256(frame.array)
