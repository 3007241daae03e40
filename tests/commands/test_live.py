"""`scopereg live` from words to pictures: what it serves, what it writes, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peers import QUICK, assert_no_threads_left, wait_until
from websockets.sync.client import connect
from websockets.typing import Origin

from scopereg import Pose, Volume, io
from scopereg.cli import main
from scopereg.io.metaimage import read_metaimage
from scopereg.io.pictures import grey_pixels, png_bytes
from scopereg.io.plus_sequence import write_plus_images
from scopereg.live.connection import Connection
from scopereg.live.messages import Message
from scopereg.registration import network
from scopereg.registration.recorded import told_of

TOKEN = "a-good.token_1"
FRAMES = 12


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    yield
    assert_no_threads_left()


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small volume, and a sweep of planes of it that a tracker placed."""
    folder = tmp_path_factory.mktemp("case")
    z, y, x = np.indices((24, 40, 40)) / 40
    values = (0.5 + 0.5 * np.sin(9 * x + 4 * y) * np.cos(7 * y - 5 * z)).astype(np.float32)
    io.write_volume(Volume(values, 0.8, (0, 0, 0)), folder / "volume.nii.gz")
    pixels = np.stack([(values[6 + row] * 255).astype(np.uint8) for row in range(FRAMES)])
    poses = [Pose.from_euler_deg((0, 0, 0), (0, 0, (6 + row) * 0.8), "Image", "Reference") for row in range(FRAMES)]
    times = [row / 50 for row in range(FRAMES)]
    write_plus_images(pixels, poses, folder / "sweep.igs.mha", spacing_mm=(0.8, 0.8), times_s=times)
    return folder


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def words(case: Path, *more: object, port: int = 0) -> list[str]:
    usual = ["live", case / "volume.nii.gz", "--source", f"plus:{case / 'sweep.igs.mha'}", "--no-open", "--port", port]
    return [str(word) for word in (*usual, "--igtl-port", 0, "--device", "cpu", "--token", TOKEN, *more)]


def state_at(port: int) -> dict[str, Any] | None:
    try:
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/state", headers={"Authorization": f"token {TOKEN}"}
        )
        with urllib.request.urlopen(asked, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (OSError, urllib.error.URLError):
        return None


@contextmanager
def watching(port: int, igtl_port: int) -> Iterator[dict[str, Any]]:
    """What a browser and 3D Slicer see while something runs in this thread."""
    seen: dict[str, Any] = {"states": [], "messages": []}
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            state = state_at(port)
            if state is not None:
                seen["states"].append(state)

    def hear(message: Message) -> None:
        seen["messages"].append((message.kind, message.header.name))

    thread = threading.Thread(target=look)
    slicer = Connection("127.0.0.1", igtl_port, hear, timing=QUICK).start()
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
        slicer.close()


def test_a_replay_is_registered_served_and_recorded(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port, igtl_port = free_port(), free_port()
    record = tmp_path / "again.igs.mha"
    # The rate is told of a second of frames or more; the first takes longer than that, as the volume is prepared.
    more = ["--exit-at-end", "--record", record, "--recordings", tmp_path / "r", "--tracker", "--rate", 1]
    with watching(port, igtl_port) as seen:
        assert main([*words(case, *more, port=port), "--igtl-port", str(igtl_port)]) == 0
    said = capsys.readouterr().out
    assert f"viewer  http://127.0.0.1:{port}/?token={TOKEN}" in said
    assert f"Slicer  OpenIGTLink server at 127.0.0.1:{igtl_port}" in said
    assert "frames/s, latency" in said
    assert "wrote   again.igs.mha" in said
    assert "0 failed" in said
    states = seen["states"]
    assert {state["volume"]["name"] for state in states} == {"volume.nii.gz"}
    assert "again.igs.mha" in {state["recording"]["name"] for state in states if state["recording"]}
    assert max(state["counters"].get("registered", 0) for state in states) > 0
    assert {("TRANSFORM", "ImageToVolume"), ("STATUS", "Registration")} <= set(seen["messages"])
    cine = io.read_cine(record)
    assert 0 < len(cine) <= FRAMES
    assert cine[0].pose is not None


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The verb in a process of its own, which is gone afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", "scopereg", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def write_note(port: int, text: str) -> None:
    """As a page does, at the frame that it shows; until the state tells it."""
    origin = f"http://127.0.0.1:{port}"
    headers = {"Authorization": f"token {TOKEN}"}
    with connect(f"ws://127.0.0.1:{port}/ws", origin=Origin(origin), additional_headers=headers) as page:
        while isinstance(packet := page.recv(20), str):
            pass
        header = json.loads(packet[4 : 4 + int.from_bytes(packet[:4], "little")])
        page.send(json.dumps({"do": "note", "frame": header["update"], "text": text}))
        while not (isinstance(message := page.recv(20), str) and json.loads(message).get("notes")):
            pass


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_in_good_order(case: Path, tmp_path: Path, number: signal.Signals, status: int) -> None:
    port = free_port()
    record = tmp_path / "a.igs.mha"
    more = ["--loop", "--record", record, "--recordings", tmp_path / "r"]
    with running(*words(case, *more, port=port)) as process:
        assert wait_until(lambda: ((state_at(port) or {}).get("recording") or {}).get("frames", 0) > 3, 60)
        assert not record.exists()
        write_note(port, "the apex")
        process.send_signal(number)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == status, said
    assert "Traceback" not in said
    assert len(io.read_cine(record)) > 3
    assert [note for fields in read_metaimage(record).frames for note in told_of(fields, "f").notes] == ["the apex"]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["a.igs.mha"]
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 1)


def test_the_last_frame_stays_on_the_screen_until_ctrl_c(case: Path, tmp_path: Path) -> None:
    port = free_port()
    with running(*words(case, "--no-igtl", "--recordings", tmp_path, port=port)) as process:
        assert wait_until(lambda: (state_at(port) or {}).get("finished", False), 60)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 0, said


def test_a_plain_install_goes_without_the_page(case: Path, tmp_path: Path) -> None:
    """What serves the page is an extra; the page without it is told, and the rest needs none of it."""
    absent = ("starlette", "uvicorn", "websockets")
    code = f"import sys\nsys.modules.update(dict.fromkeys({absent!r}))\nfrom scopereg.cli import main\nsys.exit(main())"
    for more, status, said in (
        (["--no-viewer", "--no-igtl"], 0, "0 failed"),
        (["--no-igtl"], 2, "pip install 'scopereg[view]'"),
    ):
        run = [sys.executable, "-c", code, *words(case, "--exit-at-end", "--recordings", tmp_path, *more)]
        told = subprocess.run(run, capture_output=True, text=True, check=False)
        assert told.returncode == status, told.stderr
        assert said in told.stdout + told.stderr
        assert "Traceback" not in told.stderr


def test_without_the_page_it_ends_with_the_replay(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(case, "--no-viewer", "--recordings", tmp_path / "never made")) == 0
    assert "viewer" not in capsys.readouterr().out
    assert not (tmp_path / "never made").exists()


def test_followed_and_other_ways(case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--follow", "--no-viewer", "--no-igtl", "--world", tmp_path / "world.txt"]
    (tmp_path / "world.txt").write_text("1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n")
    assert main(words(case, *more)) == 0
    assert "0 failed" in capsys.readouterr().out


def test_a_probe_is_sought_widely_until_it_is_found(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    widely: list[object] = []
    look = network._widely
    monkeypatch.setattr(network, "_widely", lambda *a: widely.append(a) or look(*a))
    assert main(words(case, "--follow", "--no-viewer", "--no-igtl")) == 0
    assert not widely
    assert main(words(case, "--follow", "--wide", "--no-viewer", "--no-igtl")) == 0
    assert widely


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--method", "start"], "--method start"),
        (["--volumes", "/no/such/folder"], "--volumes"),
        (["--max-upload-mb", "0"], "--max-upload-mb"),
        (["--workers", "0"], "--workers"),
        (["--workers", "2", "--follow"], "one after the other"),
        (["--wide"], "add --follow"),
        (["--token", "short"], "--token"),
        (["--host", "no such host"], "cannot listen"),
        (["--record", "a.txt"], ".igs.mha"),
        (["--record", "{sweep}"], "overwrite an input"),
        (["--rate", "-1"], "rate"),
        (["--igtl-port", "99999"], "port"),
    ],
)
def test_wrong_words_are_told_before_anything_runs(
    case: Path, tmp_path: Path, more: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = case / "sweep.igs.mha"
    assert main(words(case, "--recordings", tmp_path, *(word.format(sweep=sweep) for word in more))) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "To fix it" in said


def test_a_folder_of_pictures_needs_a_spacing(case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cine = io.read_cine(case / "sweep.igs.mha")
    for row in range(3):
        (tmp_path / f"{row}.png").write_bytes(png_bytes(grey_pixels(cine[row].array)))
    common = ["live", str(case / "volume.nii.gz"), "--source", f"folder:{tmp_path}", "--no-viewer", "--no-igtl"]
    assert main(common) == 2
    assert "--pixel-mm" in capsys.readouterr().err
    assert main([*common, "--pixel-mm", "0.8", "--rate", "5", "--device", "cpu"]) == 0
    assert "3 registered, 0 failed" in capsys.readouterr().out


def test_volume_and_source_are_needed(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["live"]) == 2
    assert main(["live", str(case / "volume.nii.gz")]) == 2
    assert main(["live", str(case / "volume.nii.gz"), "--source", "pluss:x"]) == 2
    assert "did you mean 'plus'" in capsys.readouterr().err


def test_without_the_web_libraries_the_rest_works(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(words(case, "--recordings", tmp_path)) == 2
    assert "pip install 'scopereg[view]'" in capsys.readouterr().err
    assert main(words(case, "--no-viewer")) == 0


def test_a_port_that_is_taken_is_told_and_nothing_is_left(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(words(case, "--recordings", tmp_path, port=port)) == 2
    assert "cannot listen" in capsys.readouterr().err
