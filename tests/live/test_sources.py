"""One way in for scanners, sequences, folders and DICOM; what is wrong with a source is said before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyigtl
import pytest
from peers import QUICK, Listening, all_of, kill, wait_until
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, UltrasoundMultiFrameImageStorage

from scopereg import Frame, Pose
from scopereg.errors import ScopeRegError
from scopereg.io import write_plus_sequence
from scopereg.io.pictures import png_bytes
from scopereg.live.loop import Loop
from scopereg.live.messages import image_message, transform_message
from scopereg.live.sources import IgtlSource, Reading, open_source
from scopereg.registration.result import Result

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 24, 32), dtype=np.uint8)
REFERENCE = Pose.from_euler_deg((10, 20, 30), (1, 2, 3), "Image", "Reference")


def image(number: int, spacing: float = 0.4, name: str | None = None) -> bytes:
    frame = Frame(PIXELS[number % 3] / 255, spacing, (0, 0))
    return image_message(frame, REFERENCE, time_s=float(number), name=name)


# --- files ---


def test_a_plus_sequence(tmp_path: Path) -> None:
    frames = [Frame(image / 255, (0.3, 0.4), (0, 0)) for image in PIXELS]
    path = write_plus_sequence(frames, [REFERENCE] * 3, tmp_path / "a.igs.mha", times_s=(0, 0.02, 0.04))
    arrivals = all_of(open_source(f"plus:{path}"))
    assert len(arrivals) == 3
    for arrival, pixels in zip(arrivals, PIXELS, strict=True):
        assert np.allclose(arrival.frame.numpy(), pixels / 255, atol=1e-6)
        assert arrival.frame.spacing_mm == pytest.approx((0.3, 0.4))


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    for number, pixels in enumerate(PIXELS):
        (tmp_path / f"view{number}.png").write_bytes(png_bytes(pixels))
    (tmp_path / "view1b.png").write_bytes(b"no picture")
    source = open_source(f"folder:{tmp_path}", Reading(spacing_mm=0.5, rate_hz=200))
    arrivals = all_of(source)
    assert [np.allclose(a.frame.numpy(), p / 255) for a, p in zip(arrivals, PIXELS, strict=True)] == [True] * 3
    assert source.counters()["bad_frames"] == 1
    assert source.name == tmp_path.name


def test_frames_of_a_recording_and_of_a_scanner_have_the_mask_that_was_drawn(tmp_path: Path) -> None:
    drawn = np.zeros(PIXELS[0].shape, np.uint8)
    drawn[4:20, 6:30] = 255
    (tmp_path / "mask.png").write_bytes(png_bytes(drawn))
    frames = [Frame(image / 255, 0.3, (0, 0)) for image in PIXELS]
    path = write_plus_sequence(frames, [REFERENCE] * 3, tmp_path / "a.igs.mha", times_s=(0, 0.02, 0.04))
    reading = Reading(frame_mask=tmp_path / "mask.png")
    for arrival in all_of(open_source(f"plus:{path}", reading)):
        assert arrival.frame.mask is not None
        assert np.array_equal(arrival.frame.mask.numpy(), drawn > 0)
    with Listening() as peer:
        source = open_source(f"igtl://127.0.0.1:{peer.port}", reading, timing=QUICK)
        source.start()
        try:
            with peer.accept() as connected:
                connected.sendall(image(0))
                arrival = source.latest(5)
                smaller = Frame(PIXELS[0, :20] / 255, 0.4, (0, 0))
                connected.sendall(image_message(smaller, REFERENCE))
                other = source.latest(5)
            assert arrival is not None
            assert arrival.frame.mask is not None
            assert np.array_equal(arrival.frame.mask.numpy(), drawn > 0)
            assert other is not None  # it is shown, with why it is not located
            assert (other.frame.shape, other.frame.mask) == ((20, 32), None)
            assert isinstance(other.fault, ScopeRegError)
            assert other.fault.what == "the mask has 32 x 24 pixels, the frame 32 x 20"
            loop = Loop(source, lambda _: Result(Pose.identity(), "test", 1.0, 0.5))
            assert loop._locate(other)[:2] == (None, other.fault)
        finally:
            source.close()


def test_a_dicom_cine(tmp_path: Path) -> None:
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    made.SOPClassUID, made.SOPInstanceUID, made.Modality = UltrasoundMultiFrameImageStorage, "1.2.3.4", "US"
    made.NumberOfFrames, made.Rows, made.Columns = PIXELS.shape
    made.BitsAllocated, made.BitsStored, made.HighBit, made.PixelRepresentation = 8, 8, 7, 0
    made.SamplesPerPixel, made.PhotometricInterpretation, made.FrameTime = 1, "MONOCHROME2", 10.0
    region = Dataset()
    region.RegionSpatialFormat, region.RegionDataType, region.RegionFlags = 1, 1, 0
    region.RegionLocationMinX0, region.RegionLocationMinY0 = 0, 0
    region.RegionLocationMaxX1, region.RegionLocationMaxY1 = 31, 23
    region.PhysicalUnitsXDirection = region.PhysicalUnitsYDirection = 3
    region.PhysicalDeltaX, region.PhysicalDeltaY = 0.03, 0.04
    made.SequenceOfUltrasoundRegions = [region]
    made.PixelData = PIXELS.tobytes()
    made.save_as(tmp_path / "cine.dcm", enforce_file_format=True)
    arrivals = all_of(open_source(f"dicom:{tmp_path / 'cine.dcm'}"))
    assert len(arrivals) == 3
    assert arrivals[0].frame.spacing_mm == pytest.approx((0.3, 0.4))


def test_what_is_wrong_is_said_before_it_starts(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="no such file"):
        open_source(f"plus:{tmp_path / 'none.igs.mha'}")
    with pytest.raises(ScopeRegError, match="no such folder"):
        open_source(f"folder:{tmp_path / 'none'}")
    with pytest.raises(ScopeRegError, match="it holds no frames"):
        open_source(f"folder:{tmp_path}")
    (tmp_path / "a.png").write_bytes(png_bytes(PIXELS[0]))
    with pytest.raises(ScopeRegError, match="how large a pixel is"):
        open_source(f"folder:{tmp_path}")


@pytest.mark.parametrize("text", ["", "scanner", "igtl:", "ftp://host", "igt://host:1", ":x"])
def test_unknown_sources_are_named(text: str) -> None:
    with pytest.raises(ScopeRegError, match="unknown source") as caught:
        open_source(text)
    assert "igtl://HOST:PORT" in caught.value.fix
    if text.startswith("igt:"):
        assert "did you mean 'igtl'" in str(caught.value)


@pytest.mark.parametrize("text", ["igtl://", "igtl://:99", "igtl://host:port", "igtl://host:99999", "igtl://host:0"])
def test_addresses_that_make_no_sense_are_named(text: str) -> None:
    with pytest.raises(ScopeRegError, match=r"names no host and port|unknown source"):
        open_source(text)


def test_the_usual_port_and_addresses_of_version_6() -> None:
    assert open_source("igtl://scanner").name == "scanner:18944"
    assert open_source("IGTL://[::1]:5").name == "::1:5"


# --- scanners ---


@pytest.fixture
def listening() -> Iterator[Listening]:
    with Listening() as server:
        yield server


def test_frames_of_pyigtls_server(pyigtl_server: pyigtl.OpenIGTLinkServer) -> None:
    source = open_source(f"igtl://127.0.0.1:{pyigtl_server.server_address[1]}", timing=QUICK)
    source.start()
    assert wait_until(pyigtl_server.is_connected)
    matrix = np.diag([-1, -1, 1, 1]) @ REFERENCE.matrix @ np.diag([0.4, 0.4, 0.4, 1])
    pyigtl_server.send_message(pyigtl.ImageMessage(PIXELS[:1], matrix, "ras", 77.5, "Image_Reference"))
    arrival = source.latest(5.0)
    assert arrival is not None
    assert (arrival.number, arrival.time_s) == (1, pytest.approx(77.5))
    assert np.allclose(arrival.frame.numpy(), PIXELS[0] / 255)
    assert arrival.frame.pose.is_close(REFERENCE, mm=1e-4, deg=1e-3)  # type: ignore[attr-defined]
    assert source.status.startswith("connected to")
    assert not source.finished
    source.close()


def test_the_newest_frame_wins_and_all_are_counted(listening: Listening) -> None:
    source = IgtlSource("127.0.0.1", listening.port, timing=QUICK)
    source.start()
    peer = listening.accept()
    peer.sendall(b"".join(image(number) for number in range(1, 21)))
    assert wait_until(lambda: source.counters()["arrived"] == 20)
    arrival = source.latest(1.0)
    assert arrival is not None
    assert (arrival.number, arrival.time_s) == (20, 20.0)
    assert source.latest(0.01) is None
    counters = source.counters()
    assert (counters["taken"], counters["dropped"], counters["messages"]) == (1, 19, 20)
    source.close()
    peer.close()


def test_bad_images_are_counted_and_the_next_is_taken(listening: Listening) -> None:
    source = IgtlSource("127.0.0.1", listening.port, timing=QUICK)
    source.start()
    peer = listening.accept()
    peer.sendall(image(1, spacing=1.0))
    assert source.latest(0.3) is None
    assert source.counters()["bad_frames"] == 1
    assert "would measure 1 mm" in source.last_fault
    peer.sendall(image(2))
    arrival = source.latest(5.0)
    assert arrival is not None
    assert arrival.time_s == 2.0
    source.close()
    peer.close()
    given = IgtlSource("127.0.0.1", listening.port, Reading(spacing_mm=0.3), timing=QUICK)
    given.start()
    peer = listening.accept()
    peer.sendall(image(1, spacing=1.0))
    arrival = given.latest(5.0)
    assert arrival is not None
    assert arrival.frame.spacing_mm == (0.3, 0.3)
    given.close()
    peer.close()


@pytest.mark.parametrize("device", [None, "Other"])
def test_one_of_several_images_is_taken(listening: Listening, device: str | None) -> None:
    source = IgtlSource("127.0.0.1", listening.port, Reading(device=device), timing=QUICK)
    source.start()
    peer = listening.accept()
    peer.sendall(image(1) + transform_message(REFERENCE) + image(2, name="Other") + image(3) + image(4, name="Other"))
    assert wait_until(lambda: source.counters().get("messages") == 5)
    arrival = source.latest(5.0)
    assert arrival is not None
    assert arrival.time_s == (4.0 if device else 3.0)
    assert source.counters()["other_images"] == 2
    source.close()
    peer.close()


def test_it_goes_on_after_the_scanner_came_back(listening: Listening) -> None:
    source = IgtlSource("127.0.0.1", listening.port, timing=QUICK)
    source.start()
    peer = listening.accept()
    peer.sendall(image(1))
    assert source.latest(5.0) is not None
    kill(peer)
    peer = listening.accept()
    peer.sendall(image(2, name="Renamed"))  # after a restart it may call its images otherwise
    arrival = source.latest(5.0)
    assert arrival is not None
    assert (arrival.number, arrival.time_s) == (2, 2.0)
    source.close()
    peer.close()
    assert source.counters()["connected"] == 2
