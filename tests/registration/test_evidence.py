"""Evidence lies over the frame that it is of, whatever its size."""

from __future__ import annotations

import numpy as np
import torch

from scopereg import Frame, Volume
from scopereg.registration.session import evidence_over


def test_evidence_lies_over_the_frame() -> None:
    """A frame twice as wide as the volume's planes was seen in its middle only, a small one has a border."""
    window = Volume(np.zeros((8, 64, 64), np.float32), 1.0)
    seen = torch.arange(64.0).reshape(8, 8) + 1
    same = evidence_over(Frame(torch.zeros(64, 64), 1.0), seen, window)
    assert torch.allclose(same, seen)
    wide = evidence_over(Frame(torch.zeros(64, 128), 1.0), seen, window)
    assert wide.shape == (8, 16)
    assert torch.allclose(wide[:, 4:12], seen)
    assert wide[:, :3].abs().max() == 0
    small = evidence_over(Frame(torch.zeros(64, 64), 0.5), seen, window)
    assert torch.allclose(small, seen[2:6, 2:6])
    odd = evidence_over(Frame(torch.zeros(20, 30), (0.7, 1.3)), seen, window)
    assert odd.shape == (3, 3)
