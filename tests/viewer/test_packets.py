"""Pictures and volumes as a page gets them: every pixel in its place, small enough, grey values as they are."""

from __future__ import annotations

import gzip
import math

import numpy as np
import pytest
import torch
from serving import unpack

from scopereg import Frame, Pose, Volume
from scopereg.errors import ScopeRegError
from scopereg.registration.result import Result
from scopereg.viewer.packets import evidence_map, packet_of, picture_of
from scopereg.viewer.voxels import voxels_of


def ramp(shape: tuple[int, ...], axis: int) -> np.ndarray:
    """Grey values that are the place along an axis, from 0 to 1."""
    places = np.arange(shape[axis], dtype=np.float32) / (shape[axis] - 1)
    return np.broadcast_to(np.moveaxis(places.reshape(-1, *[1] * (len(shape) - 1)), 0, axis), shape).copy()


def test_a_small_picture_is_sent_as_it_is() -> None:
    values = np.random.default_rng(0).integers(0, 256, (100, 200), dtype=np.uint8)
    picture, to_image = picture_of(Frame(values / 255, (0.3, 0.4), (5, -6)))
    assert (picture == values).all()
    assert to_image.tolist() == [[0.3, 0, 0, 5], [0, 0.4, 0, -6], [0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("shape", [(480, 640), (257, 100), (1000, 3), (2, 700)])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_large_picture_is_shrunk_in_place(shape: tuple[int, int], axis: int) -> None:
    frame = Frame(ramp(shape, axis), (0.3, 0.4), (5, -6))
    picture, to_image = picture_of(frame)
    assert max(picture.shape) <= 256
    rows, columns = np.indices(picture.shape)
    places = to_image @ np.stack([columns.ravel(), rows.ravel(), 0 * rows.ravel(), 1 + 0 * rows.ravel()])
    x_or_y = 1 - axis  # the axis of the array along x or y
    along = (places[x_or_y] - frame.origin_mm[x_or_y]) / frame.spacing_mm[x_or_y] / (shape[axis] - 1)
    assert np.abs(picture.ravel() / 255 - along).max() <= 0.5 / 255 + 1e-5


def test_other_grey_values_are_brought_into_range() -> None:
    values = np.linspace(-500, 1500, 400, dtype=np.float32).reshape(20, 20)
    picture, _ = picture_of(Frame(values, 1.0))
    assert (picture.min(), picture.max()) == (0, 255)
    assert (np.diff(picture.astype(int).ravel()) >= 0).all()


def test_a_packet_holds_result_picture_and_evidence() -> None:
    pose = Pose.from_euler_deg((10, 20, 30), (1, 2, 3))
    evidence = torch.tensor([[0.0, 1.0, 2.0], [4.0, math.nan, 8.0]])
    judged = {"confidence": 0.93, "expected_mm": 1.2, "bound_mm": math.nan, "belongs": True, "ok": True}
    result = Result(pose, "echo network", 12.0, 0.8, evidence=evidence, **judged)  # type: ignore[arg-type]
    frame = Frame(ramp((4, 6), 1), 0.5)
    header, picture, spots = unpack(packet_of(frame, result, generation=3, name="a", more={"number": 7}))
    assert (header["generation"], header["number"], header["frame"]["name"]) == (3, 7, "a")
    assert np.allclose(np.reshape(header["image_to_volume"], (4, 4)), pose.matrix)
    assert (header["light"], header["ok"], header["confidence"], header["bound_mm"]) == ("green", True, 0.93, None)
    assert picture[0].tolist() == [0, 51, 102, 153, 204, 255]
    assert spots is not None
    assert evidence_map(torch.tensor([[0.0, 4.0, 8.0]])).tolist() == [[0, 127, 255]]
    assert evidence_map(torch.zeros(2, 2)).tolist() == [[0, 0], [0, 0]]


def test_what_was_not_found_says_why() -> None:
    error = ScopeRegError("nothing\nthere", where="x", fix="y")
    header, _, evidence = unpack(packet_of(Frame(ramp((4, 6), 1), 0.5), None, error, generation=1))
    assert (header["light"], header["ok"], header["image_to_volume"]) == ("red", False, None)
    assert header["reason"] == "nothing there"
    assert evidence is None


@pytest.mark.parametrize("shape", [(5, 6, 7), (300, 4, 5), (3, 600, 257)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_voxels_keep_their_place(shape: tuple[int, int, int], axis: int) -> None:
    turned = Pose.from_euler_deg((20, -30, 40), (0, 0, 0)).rotation
    volume = Volume(ramp(shape, axis), (0.5, 0.7, 0.9), (10, 20, 30), turned)
    voxels = voxels_of(volume, "a.mha", 4)
    width, height, depth = voxels.shape
    assert max(voxels.shape) <= 256
    assert voxels.state()["generation"] == 4
    grey = np.frombuffer(gzip.decompress(voxels.packed), np.uint8).reshape(depth, height, width)
    k, j, i = (index.ravel() for index in np.indices(grey.shape))
    world = voxels.index_to_world @ np.stack([i, j, k, 1 + 0 * i])
    local = turned.T @ (world[:3] - np.reshape([10, 20, 30], (3, 1)))
    along = local[2 - axis] / volume.spacing_mm[2 - axis] / (shape[axis] - 1)
    assert np.abs(grey.ravel() / 255 - along).max() <= 0.5 / 255 + 1e-5
    assert voxels.spacing_mm[2 - axis] == pytest.approx(np.linalg.norm(voxels.index_to_world[:3, 2 - axis]))
