"""What a page may ask of a running loop: recordings under plain names, volumes of one folder, and nothing else."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from serving import (
    NOTHING_SEARCHED,
    Served,
    next_message,
    next_update,
    replay,
    serve,
    small_volume,
    unpack,
    unsized,
    wait_until,
)

from scopereg import Frame, Pose, io
from scopereg.errors import ScopeRegError
from scopereg.io import read_cine
from scopereg.io.cine import Cine
from scopereg.live.preparation import Preparation
from scopereg.live.replay import Replay
from scopereg.live.scene import Scene
from scopereg.registration.register import TRACKER, Start
from scopereg.viewer.live_show import recording_name, volumes_in


def say(page: Any, **request: Any) -> None:
    page.send(json.dumps(request))


def test_a_recording_from_the_page_is_written(served: Served, tmp_path: Path) -> None:
    with served.page() as page:
        say(page, do="record", name="one")
        assert next_message(page, "notice")["text"] == "recording one.igs.mha"
        assert served.state()["recording"]["name"] == "one.igs.mha"
        assert wait_until(lambda: (served.state()["recording"] or {}).get("frames", 0) > 5)
        say(page, do="end_recording")
        assert next_message(page, "notice")["text"].startswith("one.igs.mha: ")
        next_message(page, "state", recording=None, recorded=["one.igs.mha"])
        cine = read_cine(tmp_path / "recordings" / "one.igs.mha")
        assert len(cine) > 5
        say(page, do="record", name="one")
        assert "already" in next_message(page, "notice", level="error")["text"]


def test_a_second_recording_waits_for_the_first(served: Served) -> None:
    with served.page() as page:
        say(page, do="record", name="one")
        say(page, do="record", name="two")
        assert "is being recorded" in next_message(page, "notice", level="error")["text"]
        assert served.state()["recording"]["name"] == "one.igs.mha"


ODD_NAMES: list[Any] = ["../x", "/etc/x", "a/b", "a\\b", "..", ".hidden", "x\x00y", "x" * 200, "naïve", "C:x", "x\ny"]
ODD_NAMES += [" ", "~", 3, ["x"]]
OTHERS = ["../outside.nii.gz", "link.nii.gz", "deeper/c.nii.gz", "notes.txt", ".hidden.nii", "", "x\x00", None, 5]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_that_are_not_plain_are_refused(served: Served, tmp_path: Path, name: Any) -> None:
    before = sorted(tmp_path.rglob("*"))
    with served.page() as page:
        say(page, do="record", name=name)
        assert "no plain name" in next_message(page, "notice", level="error")["text"]
    assert served.state()["recording"] is None
    assert sorted(tmp_path.rglob("*")) == before


def test_names_get_the_ending_of_sequences() -> None:
    assert recording_name("a") == "a.igs.mha"
    assert recording_name("a.mha") == "a.igs.mha"
    assert recording_name("a.igs.mha") == "a.igs.mha"
    assert recording_name(" a b-1_2.3 ") == "a b-1_2.3.igs.mha"
    assert recording_name("").endswith(".igs.mha")
    assert recording_name(None).startswith("20")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two volumes, one that is none, and much that must not be offered."""
    inside = tmp_path / "volumes"
    for seed, name in ((3, "b.nii.gz"), (4, "a.mha")):
        io.write_volume(small_volume(seed), inside / name)
    (inside / "broken.nii").write_bytes(b"no volume")
    (inside / "notes.txt").write_text("x")
    io.write_volume(small_volume(5), inside / "deeper" / "c.nii.gz")
    io.write_volume(small_volume(6), tmp_path / "outside.nii.gz")
    (inside / "link.nii.gz").symlink_to(tmp_path / "outside.nii.gz")
    (inside / ".hidden.nii").write_bytes(b"x")
    return inside


def test_only_volumes_right_in_the_folder_are_offered(folder: Path) -> None:
    assert volumes_in(folder) == ("a.mha", "b.nii.gz", "broken.nii")
    assert volumes_in(folder / "nowhere") == ()


def test_another_volume_of_the_folder(tmp_path: Path, folder: Path) -> None:
    with serve(tmp_path, volumes=folder) as served, served.page() as page:
        state = served.state()
        assert state["volumes"] == ["a.mha", "b.nii.gz", "broken.nii"]
        assert "choose" in state["can"]
        say(page, do="choose", name="b.nii.gz")
        next_message(page, "notice", text="b.nii.gz is loaded")
        assert served.state()["volume"]["name"] == "b.nii.gz"
        while next_update(page)["generation"] != 2:
            pass


@pytest.mark.parametrize("name", [*OTHERS, "{folder}/a.mha"])
def test_other_names_of_volumes_are_refused(tmp_path: Path, folder: Path, name: Any) -> None:
    with serve(tmp_path, volumes=folder) as served, served.page() as page:
        say(page, do="choose", name=name.format(folder=folder) if isinstance(name, str) else name)
        assert "there is no volume" in next_message(page, "notice", level="error")["text"]
        assert served.state()["volume"]["generation"] == 1


def test_a_volume_that_cannot_be_read_is_told_and_the_old_one_stays(tmp_path: Path, folder: Path) -> None:
    with serve(tmp_path, volumes=folder) as served, served.page() as page:
        say(page, do="choose", name="broken.nii")
        notice = next_message(page, "notice", level="error")
        assert "To fix it" in notice["text"]
        assert served.state()["volume"]["name"] == "first.nii.gz"
        assert served.is_alive()


@pytest.mark.parametrize("how", ["paused", "finished"])
def test_the_frame_on_the_screen_is_sought_in_the_new_volume_too(tmp_path: Path, folder: Path, how: str) -> None:
    with serve(tmp_path, volumes=folder, source=replay(3) if how == "finished" else None) as served:
        if how == "finished":
            assert served.loop.wait(20)
        with served.page() as page:
            next_update(page)
            if how == "paused":
                say(page, do="pause")
                next_message(page, "state", paused=True)
            say(page, do="choose", name="b.nii.gz")
            assert next_message(page, "update", generation=2)["method"] == "identity"


def two_depths(rate_hz: float = 100.0) -> Replay:
    """Two frames of one depth, two of another."""
    pixels = np.random.default_rng(1).random((4, 10, 14), dtype=np.float32)
    shallow = Cine(Path("sweep"), 2, (0.5, 0.5), lambda index: pixels[index])
    deep = Cine(Path("sweep"), 2, (0.8, 0.8), lambda index: pixels[2 + index])
    return Replay("sweep", [lambda: shallow, lambda: deep], rate_hz=rate_hz)


def step_through(served: Served, page: Any, count: int) -> None:
    """One frame after the other: none is dropped for the next."""
    for number in range(1, count + 1):
        say(page, do="step")
        assert wait_until(lambda number=number: served.loop.counters()["taken"] == number)  # type: ignore[misc]


def test_pages_are_told_of_another_depth_and_see_its_size(tmp_path: Path) -> None:
    with serve(tmp_path, source=two_depths(), paused=True) as served, served.page() as page:
        step_through(served, page, 3)
        assert next_message(page, "notice")["text"] == "depth changed: 14 x 10 of 0.8 mm, before 0.5 mm"
        packet = served.show.packet()
        assert packet is not None
        assert unpack(packet[1])[0]["frame"]["pixel_to_image"][0] == 0.8


def test_a_frame_that_waited_for_its_volume_is_sought_when_it_is_ready(tmp_path: Path) -> None:
    """While it is paused no other frame comes."""

    class Slow:
        made: ClassVar[list[float]] = []
        gate = threading.Event()

        def is_ready(self, frame: Frame) -> bool:
            return frame.spacing_mm[0] in self.made

        def get_ready(self, frame: Frame) -> None:
            assert not self.made or self.gate.wait(20)
            self.made.append(frame.spacing_mm[0])

    scene = Scene(small_volume(), "first.nii.gz", NOTHING_SEARCHED)
    scene.preparation = Preparation(Slow())
    source = two_depths()
    with serve(tmp_path, source=source, scene=scene, register=scene.register, paused=True) as served:
        with served.page() as page:
            step_through(served, page, 3)
            while (update := next_update(page))["frame"]["pixel_to_image"][0] != 0.8:
                pass
            assert (update["light"], update["word"], update["image_to_volume"]) == ("amber", "Not judged", None)
            assert update["reason"].startswith("not judged: preparing the volume for pictures of 14 x 10 of 0.8 mm")
            Slow.gate.set()
            assert next_update(page)["image_to_volume"] is not None
        served.show.close()
        assert served.loop.counters()["waiting"] == 1


def test_a_page_answers_how_large_a_pixel_is(tmp_path: Path) -> None:
    source, sizes = unsized()
    with serve(tmp_path, source=source, sizes=sizes) as served, served.page() as page:
        asks = {
            "number": 1,
            "size": [20, 12],
            "why": "the pictures are 20 x 12, and 0.5 mm was told for 14 x 10",
            "suggestion": None,
            "told": None,
            "choices": ["0.5"],
        }
        next_message(page, "state", asks=asks)
        assert "pixel_size" in served.state()["can"]
        update = next_update(page)
        assert (update["frame"]["sized"], update["image_to_volume"]) == (False, None)
        for wrong in ({"mm": "0,4"}, {"mm": None}, {}, {"mm": "0.4", "number": 7}):
            say(page, do="pixel_size", **wrong)
            next_message(page, "notice", level="error")
        say(page, do="keep_pixel_size", number=1)
        assert "nothing to keep" in next_message(page, "notice", level="error")["text"]
        say(page, do="pixel_size", mm="0.4", number=1)
        next_message(page, "notice", text="pixels of pictures of 20 x 12 measure 0.4 mm")
        next_message(page, "state", asks=None)
        while (frame := next_update(page)["frame"])["pixel_to_image"][0] != 0.4:
            pass
        assert frame["sized"] is True
        status, _, body = served.ask("/api/pixel-size?mm=0.3", method="POST")
        assert (status, json.loads(body)["ok"]) == (200, True)
        while next_update(page)["frame"]["pixel_to_image"][0] != 0.3:
            pass
        status, _, body = served.ask("/api/pixel-size?mm=many", method="POST")
        assert (status, json.loads(body)["error"]["what"]) == (422, "'many' is no size of a pixel")
        assert served.is_alive()


def test_what_is_answered_while_it_is_paused_is_used_at_once(tmp_path: Path) -> None:
    source, sizes = unsized()
    with serve(tmp_path, source=source, sizes=sizes, paused=True) as served, served.page() as page:
        step_through(served, page, 3)
        next_message(page, "state", asks=served.show.state()["asks"])
        say(page, do="pixel_size", mm="0.4")
        next_message(page, "notice", level="info")
        assert wait_until(lambda: unpack(served.show.packet()[1])[0]["image_to_volume"] is not None)  # type: ignore[index]
        assert unpack(served.show.packet()[1])[0]["frame"]["pixel_to_image"][0] == 0.4  # type: ignore[index]


def test_the_true_error_is_told_where_the_frames_know_their_place(tmp_path: Path) -> None:
    """And only in the volume that they were tracked in."""

    pixels = np.random.default_rng(0).random((10, 14), dtype=np.float32)
    true = Pose.from_euler_deg((0, 0, 0), (1, 2, 3), "Image", "Reference")
    poses = (true, None)
    cine = Cine(Path("sweep"), 2, (0.5, 0.6), lambda index: pixels, poses=poses)
    scene = Scene(small_volume(), "first.nii.gz", NOTHING_SEARCHED, Start.read(TRACKER))
    source = Replay("sweep", [lambda: cine], rate_hz=50)
    running = serve(tmp_path, source=source, scene=scene, register=scene.register, paused=True)
    with running as served, served.page() as page:
        say(page, do="step")
        first = next_update(page)
        found = np.reshape(first["image_to_volume"], (4, 4))
        assert first["error_mm"] == pytest.approx(float(np.linalg.norm(found[:3, 3] - [1, 2, 3])), abs=1e-3)
        say(page, do="step")
        assert next_update(page)["error_mm"] is None


def test_unknown_requests_are_refused(served: Served) -> None:
    requests: list[Callable[[], Any]] = [lambda: served.show.do({"do": "paus"}), lambda: served.show.do({})]
    for request in requests:
        with pytest.raises(ScopeRegError, match="unknown request"):
            request()
    assert math.isnan(served.show._shown[0].scene.error_mm(None, None))  # type: ignore[arg-type]
