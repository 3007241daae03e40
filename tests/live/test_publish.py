"""What 3D Slicer gets to see: through pyigtl's client, from a recording, located by the network of the package."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyigtl
import pytest
import torch
from peers import QUICK, wait_until

from scopereg import Frame, Pose, Volume
from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import sample_poses
from scopereg.images import pose_from_voxels
from scopereg.io import write_plus_sequence, write_resliced
from scopereg.io.read_image import read_image
from scopereg.live.connection import Connection
from scopereg.live.loop import Loop, Rates, Update
from scopereg.live.messages import HEADER_BYTES, Message, frame_of, pose_of, read_header, read_message, text_of
from scopereg.live.publish import Publisher, messages_of
from scopereg.live.server import Server
from scopereg.live.sources import Reading, open_source
from scopereg.registration.locator import Locator
from scopereg.registration.model import Registrar
from scopereg.registration.result import Result

RAS = np.array([-1.0, -1.0, 1.0])


@dataclass(frozen=True)
class Confident(Result):
    confidence: float = 1.0
    ok: bool = True
    reason: str = ""


def update(frame: Frame, result: Result | None, error: ScopeRegError | None = None) -> Update:
    return Update(7, frame, result, error, 9, 123.5, 10.0, 10.0305, 20.0, Rates(24.96, 30, 40))


def parsed(packed: list[bytes]) -> dict[str, Message]:
    found = [read_message(read_header(each), each[HEADER_BYTES:]) for each in packed]
    return {message.header.name: message for message in found}


def test_what_nobody_judged_is_not_sent_as_ok(frame: Frame, pose: Pose) -> None:
    sent = parsed(messages_of(update(frame, Result(pose, "test", 1.0, 0.5, confidence=0.6))))
    assert sent["Registration"].content == (2, -1, "NOT JUDGED", "not judged: test is not calibrated")
    facts = json.loads(text_of(sent["RegistrationInfo"]))
    assert (facts["ok"], facts["light"]) == (None, "amber")


def test_a_result_becomes_a_transform_an_image_a_status_and_a_string(frame: Frame, pose: Pose) -> None:
    sent = parsed(messages_of(update(frame, Confident(pose, "test", 1.0, 0.5, confidence=0.874, reason="well lit"))))
    assert list(sent) == ["ImageToVolume", "Image_Volume", "Registration", "RegistrationInfo"]
    assert {message.header.time_s for message in sent.values()} == {123.5}
    assert pose_of(sent["ImageToVolume"]).is_close(pose, mm=1e-4, deg=1e-3)
    assert frame_of(sent["Image_Volume"]).pose.apply((0, 0, 0)) == pytest.approx(pose.apply((2, -1, 0)), abs=1e-4)  # type: ignore[union-attr]
    assert sent["Registration"].content == (1, 87, "OK", "ok: well lit (confidence 0.87)")
    assert json.loads(text_of(sent["RegistrationInfo"])) == {
        "number": 7,
        "size": [9, 6],
        "pixel_mm": [0.5, 0.8],
        "notice": "",
        "asks": "",
        "ok": True,
        "confidence": 0.874,
        "expected_mm": None,
        "bound_mm": None,
        "reason": "well lit",
        "hints": [],
        "calibrated_on": "",
        "similarity": 0.5,
        "light": "green",
        "word": "Located",
        "text": "ok: well lit (confidence 0.87)",
        "method": "test",
        "latency_ms": 30.5,
        "frames_per_s": 25.0,
    }


def test_a_rate_that_nobody_knows_yet_is_null(frame: Frame, pose: Pose) -> None:
    first = replace(update(frame, Result(pose, "test", 1.0, 0.5)), rates=Rates(math.nan, 30, 40))
    facts = json.loads(text_of(parsed(messages_of(first))["RegistrationInfo"]))
    assert facts["frames_per_s"] is None


def test_a_result_that_is_not_believed_is_shown_and_says_so(frame: Frame, pose: Pose) -> None:
    doubted = Confident(pose, "test", 1.0, 0.5, confidence=0.1, belongs=True, ok=False, reason="too likely")
    sent = parsed(messages_of(update(frame, doubted)))
    assert "Image_Volume" in sent
    assert sent["Registration"].content == (2, 10, "NOT OK", "not ok: too likely (confidence 0.10)")


def test_a_frame_that_was_not_found_moves_nothing(frame: Frame) -> None:
    error = ScopeRegError("too little of the frame lies in the volume", where="frame", fix="move")
    sent = parsed(messages_of(update(frame, None, error)))
    assert list(sent) == ["Registration", "RegistrationInfo"]
    assert sent["Registration"].content == (2, 0, "NOT FOUND", f"not found: {error.what}")


def test_the_volume_at_the_place_of_the_frame(tmp_path: Path) -> None:
    volume = Volume(torch.rand(8, 10, 12, generator=torch.Generator().manual_seed(0)), 2.0, (5.0, -6.0, 7.0))
    frame = Frame(torch.rand(7, 9, generator=torch.Generator().manual_seed(1)), (1.0, 1.5))
    pose = Pose(Pose.from_euler_deg((10, 20, 30), (0, 0, 0)).rotation, volume.centre_mm)
    result = Result(pose, "test", 1.0, 0.5, frame=frame, volume=volume)
    sent = parsed(messages_of(update(frame, result), cut=True))
    file = write_resliced(volume, frame, pose, tmp_path / "cut.nii.gz")
    assert np.allclose(frame_of(sent["Cut_Volume"]).numpy(), read_image(file).array[0], atol=0.5 / 255 + 1e-6)
    place, cut = (sent[name].content.ijk_to_world_matrix for name in ("Image_Volume", "Cut_Volume"))
    assert np.array_equal(place, cut)


def test_one_bad_result_does_not_end_it(frame: Frame, pose: Pose) -> None:
    got: list[Message] = []
    with Server(port=0, timing=QUICK) as server, Connection("127.0.0.1", server.port, got.append, timing=QUICK):
        assert wait_until(lambda: server.client_count == 1)
        publisher = Publisher(server)
        publisher(update(frame, Result(pose.inverse(), "wrong way", 1.0, 0.5)))
        assert wait_until(lambda: publisher.counters["publish_errors"] == 1)
        publisher(update(frame, Result(pose, "test", 1.0, 0.5)))
        publisher.close()  # sends what is left
        assert wait_until(lambda: len(got) == 4)
    assert "VolumeToImage" in publisher.counters.last_fault
    assert publisher.counters["published"] == 1


def test_a_recording_reaches_slicer_through_the_network(
    narrow: Registrar, tmp_path: Path, pyigtl_client: Callable[[int], pyigtl.OpenIGTLinkClient]
) -> None:
    """File, replay, network, server, pyigtl's client: poses as the network finds them without all this."""
    patient = phantom.create("echo", seed=200_001, shape=(16, 64, 64))
    volume = Volume(patient.volume.array, patient.spacing_mm, (12.0, -34.0, 56.0))
    drawn = sample_poses(2, 4, patient.shape, torch.Generator().manual_seed(3))
    images = patient.acquire(*drawn, seed=3).images
    frames = [Frame(image, patient.spacing_mm, (0, 0)) for image in images]
    truth = [pose_from_voxels(drawn.rotation[k], drawn.translation[k], frames[k], volume) for k in range(2)]
    path = write_plus_sequence(frames, truth, tmp_path / "scan.igs.mha")
    locator = Locator(volume, narrow)
    updates: list[Update] = []
    with Server(port=0, timing=QUICK) as server:
        publisher = Publisher(server)
        client = pyigtl_client(server.port)
        assert wait_until(lambda: server.client_count == 1)
        source = open_source(f"plus:{path}", Reading(rate_hz=50))
        with Loop(source, locator.locate, [publisher, updates.append], paused=True) as loop:
            for row in range(2):
                loop.step()
                assert wait_until(lambda: len(updates) == row + 1, 20)  # noqa: B023
                image = client.wait_for_message("Image_Volume", 5)
                transform = client.wait_for_message("ImageToVolume", 5)
                expected = locator.locate(replace(frames[row], array=updates[row].frame.array)).pose
                corner = np.array([63 * patient.spacing_mm, 63 * patient.spacing_mm, 0])
                shown = (image.ijk_to_world_matrix @ (63, 63, 0, 1))[:3]
                assert np.allclose(shown, expected.apply(corner) * RAS, atol=1e-2)
                moved = transform.matrix @ (*corner * RAS, 1)
                assert np.allclose(moved[:3], expected.apply(corner) * RAS, atol=1e-2)
                assert np.abs(image.image[0] / 255 - frames[row].numpy()).max() < 1 / 255
        publisher.close()
