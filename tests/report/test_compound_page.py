"""The page of a compounded volume: planes, path, what was left out; an alert where poses do not hold."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parent.parent / "compounding"))
from swept import moved, poses_of, sweep_of

from scopereg.compounding.compound import Compounded, compound_sweeps
from scopereg.compounding.joining import Joined
from scopereg.compounding.settings import CompoundSettings
from scopereg.compounding.totals import BRIDGED, EMPTY, IMAGE
from scopereg.report.compound_page import _pixels, make_page


@pytest.fixture(scope="module")
def made() -> Compounded:
    return compound_sweeps(sweep_of())


def html_of(made: Compounded) -> str:
    return make_page(made, {"volume": "a<b>.nii.gz", **made.facts}).html()


def test_cards_pictures_and_tables(made: Compounded) -> None:
    text = html_of(made)
    cards = {words: value for value, words in re.findall(r"<b>([^<]*)</b><span>([^<]*)</span>", text)}
    assert cards["frames"] == "30"
    assert cards["size of a voxel"] == "0.8 mm"
    assert made.left_out is not None
    assert cards["95 % of them within"] == f"{made.left_out.p95_mm:.2g} mm"
    assert text.count("<img") == 6 + 3 * 4  # planes with where they come from; three frames that were left out
    assert len(re.findall(r"<td>blobs \d+</td>", text)) == len(made.left_out.frames)
    assert "a&lt;b&gt;.nii.gz" in text
    assert "class='alert'" not in text


def test_poses_that_do_not_hold_stand_out() -> None:
    poses = poses_of()
    shifts = np.random.default_rng(0).normal(0, 2.0, (30, 3))
    text = html_of(compound_sweeps(sweep_of(poses, moved(poses, shifts))))
    assert "class='alert'" in text
    assert "do not agree" in text or "agree roughly" in text


def test_without_frames_left_out_there_is_a_page() -> None:
    text = html_of(compound_sweeps([sweep_of(), sweep_of(poses_of(turned=True), name="b")], left_out=False))
    assert "Frames left out" not in text
    assert "Path of the probe" in text
    assert "<td>b</td><td>30</td>" in text


def test_sweeps_that_do_not_meet_as_they_lie_stand_out() -> None:
    poses = poses_of()
    off = sweep_of(poses, moved(poses, np.tile((0.0, 6.0, 0.0), (30, 1))), name="off")
    made = compound_sweeps([sweep_of(), off])
    text = html_of(made)
    assert "The sweeps do not belong together as they lie" in text
    assert "Where sweeps meet" in text
    joined = replace(made, joined=(Joined("b", "", off.pose(0), 12.0, 3.0, 4, 5), Joined("c", "nothing <in> common")))
    text = html_of(joined)
    assert "<td>b</td><td>joined</td><td>12.0</td><td>3.0</td><td>4 of 5</td>" in text
    assert "<td>c</td><td>left out</td>" in text
    assert "nothing &lt;in&gt; common" in text


def test_colours_tell_where_voxels_come_from() -> None:
    grey = torch.tensor([[0.5, 0.5, 0.0]])
    states = torch.tensor([[IMAGE, BRIDGED, EMPTY]], dtype=torch.uint8)
    light, colour = _pixels(grey, states, (3, 3))
    assert light.tolist() == [[0, 0, 0], [128, 128, 0], [0, 0, 0]]
    image, bridged, empty = colour[1]
    assert image.tolist() == [128, 128, 128]
    assert bridged[0] > bridged[1] > bridged[2]
    assert empty[2] > empty[0]
    assert colour[0].tolist() == [empty.tolist()] * 3
    large, _ = _pixels(torch.ones(1000, 700), torch.ones(1000, 700, dtype=torch.uint8), (1000, 900))
    assert max(large.shape) <= 480


def test_a_large_volume_is_drawn_small(monkeypatch: pytest.MonkeyPatch, made: Compounded) -> None:
    monkeypatch.setattr("scopereg.report.compound_page._SMALL_VOXELS", 4000)
    fine = compound_sweeps(sweep_of(), CompoundSettings(voxel_mm=0.6), left_out=False)
    assert "Path of the probe" in html_of(fine)
