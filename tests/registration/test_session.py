"""Sessions: the pose of the forward pass, for any frame, from any thread, and nothing left behind."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import scopereg
from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import geodesic_angle_deg, sample_poses
from scopereg.images import Frame, Volume, pose_to_voxels
from scopereg.networks import create
from scopereg.networks.weights import save_network
from scopereg.registration.model import Registrar
from scopereg.registration.refine import Refiner
from scopereg.registration.session import Session, evidence_over

SHAPE = (32, 64, 64)


@pytest.fixture(scope="module")
def patients() -> list[phantom.Phantom]:
    return [phantom.create("echo", seed=200_001 + n, shape=SHAPE) for n in range(2)]


def frames_of(patient: phantom.Phantom, count: int = 3, seed: int = 0) -> list[Frame]:
    poses = sample_poses(count, 5, patient.shape, torch.Generator().manual_seed(seed))
    return [Frame(image, spacing_mm=patient.spacing_mm) for image in patient.acquire(*poses, seed=seed).images]


def test_the_pose_is_the_network_s(bare: Registrar, patients: list[phantom.Phantom]) -> None:
    volume, frames = patients[0].volume, frames_of(patients[0])
    session = bare.prepare(volume)
    with torch.inference_mode():
        wanted = bare.network(torch.stack([frame.array for frame in frames]), volume.array[None])
    for row, result in enumerate((session.register(frames[0]), *session.register_all(frames[1:]))):
        found = pose_to_voxels(result.pose, frames[row], volume)
        assert float((found.translation - wanted.translation[row]).norm()) < 0.01
        assert float(geodesic_angle_deg(found.rotation.float(), wanted.rotation[row])) < 0.01
        assert result.evidence is not None
        assert result.evidence.shape == (8, 8)
        assert set(result.timings_ms) == {"image", "network"}
        assert result.time_ms == pytest.approx(sum(result.timings_ms.values()))


def test_evidence_is_that_of_the_frame_as_it_came(narrow: Registrar, patients: list[phantom.Phantom]) -> None:
    """A frame with its border cut off is seen as before but for the border, and has evidence for what is left."""
    frame, step = frames_of(patients[0])[0], patients[0].spacing_mm
    height, width = frame.shape
    part = Frame(frame.array[:, 16:-16], step, origin_mm=(frame.origin_mm[0] + 16 * step, frame.origin_mm[1]))
    session = narrow.prepare(patients[0].volume)
    whole, less = session.register(frame).evidence, session.register(part).evidence
    assert whole is not None
    assert less is not None
    assert whole.shape == (height // 8, width // 8)
    assert less.shape == (height // 8, (width - 32) // 8)


def test_one_shot_is_a_session_of_one_frame(narrow: Registrar, patients: list[phantom.Phantom]) -> None:
    frame = frames_of(patients[0])[0]
    once, prepared = narrow.register(frame, patients[0].volume), narrow.prepare(patients[0].volume).register(frame)
    assert (once.pose.matrix == prepared.pose.matrix).all()
    assert once.similarity == prepared.similarity


def test_a_frame_with_a_black_border_is_found_at_the_same_place(
    bare: Registrar, patients: list[phantom.Phantom]
) -> None:
    """Its points keep their places in millimetres, since its first pixel moves out with the border."""
    session, frame = bare.prepare(patients[0].volume), frames_of(patients[0])[0]
    wider = Frame(
        torch.nn.functional.pad(frame.array, (3, 3, 5, 5)),
        spacing_mm=frame.spacing_mm,
        origin_mm=[
            first - pixels * step for first, step, pixels in zip(frame.origin_mm, frame.spacing_mm, (3, 5), strict=True)
        ],
    )
    usual, found = session.register(frame).pose, session.register(wider).pose
    assert abs(found.matrix - usual.matrix).max() < 1e-3


def test_results_do_not_depend_on_what_ran_before(narrow: Registrar, patients: list[phantom.Phantom]) -> None:
    one, other = (narrow.prepare(patient.volume) for patient in patients)
    frame = frames_of(patients[0])[0]
    first = one.register(frame).pose.matrix
    for later in frames_of(patients[1], 4, seed=9):
        other.register(later)
        one.register(later)
    assert (one.register(frame).pose.matrix == first).all()


def test_threads_may_share_sessions(narrow: Registrar, patients: list[phantom.Phantom]) -> None:
    sessions = [narrow.prepare(patient.volume) for patient in patients]
    jobs = [(sessions[n % 2], frame) for n in range(2) for frame in frames_of(patients[n], 4, seed=n)]
    wanted = np.stack([session.register(frame).pose.matrix for session, frame in jobs])
    found: dict[int, NDArray[np.float64]] = {}

    def work(thread: int) -> None:
        found[thread] = np.stack([session.register(frame).pose.matrix for session, frame in jobs])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((found[n] == wanted).all() for n in range(4))


def test_a_closed_session_says_so_and_keeps_nothing(narrow: Registrar, patients: list[phantom.Phantom]) -> None:
    with narrow.prepare(patients[0].volume) as session:
        session.register(frames_of(patients[0])[0])
        prepared = weakref.ref(session._locate.args[0].tokens)  # type: ignore[attr-defined]
        assert prepared() is not None
    gc.collect()
    assert prepared() is None
    with pytest.raises(ScopeRegError, match="closed"):
        session.register(frames_of(patients[0])[0])


@pytest.mark.parametrize("calibrated", [True, False])
def test_a_session_that_is_closed_while_it_is_used_says_so(
    narrow: Registrar, patients: list[phantom.Phantom], calibrated: bool
) -> None:
    """By another thread, here in the middle of a frame."""
    model = narrow if calibrated else replace(narrow, calibration=None)
    session = model.prepare(patients[0].volume)
    locate = session._locate

    def closed_meanwhile(images: torch.Tensor) -> object:
        session.close()
        return locate(images)

    session._locate = closed_meanwhile
    with pytest.raises(ScopeRegError, match="the session is closed"):
        session.register(frames_of(patients[0])[0])


def test_a_session_that_is_sent_to_another_process_says_what_to_send(
    narrow: Registrar, patients: list[phantom.Phantom]
) -> None:
    with narrow.prepare(patients[0].volume) as session, pytest.raises(ScopeRegError, match="stays in its process"):
        pickle.dumps(session)


def test_results_know_what_was_registered(narrow: Registrar, patients: list[phantom.Phantom]) -> None:
    frames = frames_of(patients[0])
    volume = patients[0].volume
    with narrow.prepare(volume) as session:
        for result, frame in zip(session.register_all(frames), frames, strict=True):
            assert result.frame is frame
            assert result.volume is session.volume
    single = narrow.register(frames[0], volume)
    assert single.frame is frames[0]
    assert single.volume is not None
    assert single.volume.shape == volume.shape


def test_many_frames_leak_nothing(narrow: Registrar, patients: list[phantom.Phantom]) -> None:
    """Live tensors after many frames as after few."""
    small = Volume(patients[0].volume.array[:16, :16, :16].contiguous(), patients[0].spacing_mm)
    session = narrow.prepare(small)
    frame = Frame(small.array[8] + 0.01, spacing_mm=patients[0].spacing_mm)

    def alive() -> int:
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    for _ in range(5):
        session.register(frame)
    before = alive()
    for _ in range(100):
        session.register(frame)
    assert alive() <= before + 2


def test_networks_with_nothing_to_prepare_work_too(tmp_path, patients: list[phantom.Phantom]) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    path = save_network(create("tri-plane"), tmp_path / "other.safetensors", name="tri-plane")
    other = scopereg.load(path, device="cpu")
    assert other.streaming is None
    frame = frames_of(patients[0])[0]
    result = other.prepare(patients[0].volume).register(frame)
    with torch.inference_mode():
        wanted = other.network(frame.array[None], patients[0].volume.array[None])
    found = pose_to_voxels(result.pose, frame, patients[0].volume)
    torch.testing.assert_close(found.translation.float(), wanted.translation[0], rtol=0, atol=1e-3)


def test_empty_images_and_thick_slices_are_refused(narrow: Registrar, patients: list[phantom.Phantom]) -> None:
    session = narrow.prepare(patients[0].volume)
    with pytest.raises(ScopeRegError, match="every value is 0"):
        session.register(Frame(torch.zeros(64, 64), spacing_mm=0.6))
    with pytest.raises(ScopeRegError, match="isotropic"):
        narrow.prepare(Volume(patients[0].volume.array, (0.5, 0.5, 2.0)))


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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_s_session_gives_its_memory_back(patients: list[phantom.Phantom]) -> None:
    gpu, cpu = (scopereg.load(device=device) for device in ("cuda", "cpu"))
    frames = frames_of(patients[0])
    with gpu.prepare(patients[0].volume) as first:  # libraries keep the workspaces of the streams they worked on
        first.register_all(frames)
        first.register(frames[0])
    del first
    gc.collect()
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    with gpu.prepare(patients[0].volume) as session:
        found = session.register_all(frames)
        again = [session.register(frame) for frame in frames]
    wanted = cpu.prepare(patients[0].volume).register_all(frames)
    for one, other, right in zip(found, again, wanted, strict=True):
        for pose in (one.pose, other.pose):
            assert abs(pose.apply((5.0, 5.0, 0.0)) - right.pose.apply((5.0, 5.0, 0.0))).max() < 0.05
    del session
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= held + 2**20
    assert isinstance(gpu.prepare(patients[0].volume), Session)


def test_what_was_prepared_is_freed_when_it_is_forgotten(bare: Registrar, patients: list[phantom.Phantom]) -> None:
    """Without waiting for the search for circles, which does not know how much memory a volume holds."""
    gc.disable()
    try:
        volume = patients[0].volume
        session, refiner = bare.prepare(volume), Refiner(volume.array)
        known = [weakref.ref(session), weakref.ref(refiner)]
        del session, refiner
        assert [one() for one in known] == [None, None]
    finally:
        gc.enable()
