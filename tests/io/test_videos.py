"""Videos: frames and times through several codecs, and files that are none."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from scopereg.cli import main
from scopereg.errors import ScopeRegError
from scopereg.io.frames import read_cine
from scopereg.io.videos import VIDEOS
from scopereg.registration.reading import frame_endings

RATE = 20


def moving(row: int) -> npt.NDArray[np.uint8]:
    """A picture whose waves move."""
    y, x = np.mgrid[0:96, 0:128]
    return ((np.sin(x / 9 + row / 3) * np.cos(y / 7) + 1) * 90 + 20).astype(np.uint8)


def write_video(path: Path, codec: str = "libx264", count: int = 6, layout: str = "yuv420p") -> Path:
    av = pytest.importorskip("av", reason="PyAV is not installed: pip install 'scopereg[video]'")
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=RATE)
        stream.width, stream.height, stream.pix_fmt = 128, 96, layout
        for row in range(count):
            picture = av.VideoFrame.from_ndarray(np.stack([moving(row)] * 3, -1), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return path


@pytest.mark.parametrize(
    ("name", "codec", "layout"),
    [
        ("a.mp4", "libx264", "yuv420p"),
        ("b.AVI", "mpeg4", "yuv420p"),
        ("c.webm", "libvpx", "yuv420p"),
        ("d.avi", "mjpeg", "yuvj420p"),
    ],
)
def test_frames_and_times_are_those_that_were_written(tmp_path: Path, name: str, codec: str, layout: str) -> None:
    cine = read_cine(write_video(tmp_path / name.lower(), codec, layout=layout), spacing_mm=(0.5, 0.4))
    assert len(cine) == 6
    assert cine.spacing_mm == (0.5, 0.4)
    assert cine.times_s == pytest.approx([row / RATE for row in range(6)], abs=1e-3)
    for row in (0, 3, 5):
        assert np.abs(cine[row].array.numpy() - moving(row) / 255).mean() < 0.02


def test_a_video_does_not_say_how_large_a_pixel_is(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="a video does not say how large a pixel is"):
        read_cine(write_video(tmp_path / "a.mp4"))


@pytest.mark.parametrize("content", [b"", b"no video at all", b"RIFF\x00\x00\x00\x00AVI LIST"])
def test_what_is_no_video_is_refused(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("av", reason="PyAV is not installed")
    path = tmp_path / "a.avi"
    path.write_bytes(content)
    with pytest.raises(ScopeRegError) as caught:
        read_cine(path, spacing_mm=1)
    assert caught.value.where == str(path)


def test_a_video_cut_short_is_refused_or_gives_the_frames_that_are_whole(tmp_path: Path) -> None:
    whole = write_video(tmp_path / "a.mp4").read_bytes()
    path = tmp_path / "cut.mp4"
    for length in range(0, len(whole), max(len(whole) // 12, 1)):
        path.write_bytes(whole[:length])
        with suppress(ScopeRegError):  # any other error fails the test
            assert 0 < len(read_cine(path, spacing_mm=1)) <= 6


def test_without_pyav_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.mp4").write_bytes(b"anything")
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.setattr("scopereg.io.videos.find_spec", lambda name: None)
    with pytest.raises(ScopeRegError, match=r"pip install 'scopereg\[video\]'"):
        read_cine(tmp_path / "a.mp4", spacing_mm=1)


def test_folders_take_videos_for_frames() -> None:
    assert set(VIDEOS) <= set(frame_endings())


def test_a_video_becomes_a_sequence_with_its_own_times_or_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    video, sequence = write_video(tmp_path / "a.mp4"), tmp_path / "a.igs.mha"
    words = ["convert", str(video), "--pixel-mm", "0.5", "-o", str(sequence)]
    assert main(words) == 0
    assert "6 frames, 0 of them with a pose; times as stored in the file" in capsys.readouterr().out
    assert read_cine(sequence, spacing_mm=0.5).times_s == pytest.approx([row / RATE for row in range(6)], abs=1e-3)
    assert main([*words, "--rate", "10"]) == 0
    assert read_cine(sequence, spacing_mm=0.5).times_s == pytest.approx([row / 10 for row in range(6)])
