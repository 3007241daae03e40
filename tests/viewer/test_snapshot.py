"""The picture that a person keeps: what is seen, what is written beneath, and what the file tells to programs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from browsing import Tab, drawn, new_tab
from PIL import Image
from serving import locate, replay, serve, small_volume

from scopereg import Frame, Pose, __version__
from scopereg.registration.result import Result
from scopereg.viewer.page import write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FINENESS = 1.5


def kept(tab: Tab, path: Path, press: Callable[[], object] | None = None) -> tuple[Image.Image, dict[str, Any], str]:
    """The picture, what it tells, and its name."""
    drawn(tab)
    with tab.page.expect_download() as download:
        (press or (lambda: tab.page.keyboard.press("s")))()
    download.value.save_as(path)
    picture = Image.open(path)
    picture.load()
    return picture, json.loads(picture.text["scopereg"]), download.value.suggested_filename  # type: ignore[attr-defined]


def result() -> Result:
    volume = small_volume()
    frame = Frame(np.random.default_rng(0).random((24, 30), dtype=np.float32), spacing_mm=(0.4, 0.3))
    trust = {"confidence": 0.9, "expected_mm": 1.24, "bound_mm": 2.5, "belongs": True, "ok": True, "calibrated_on": "é"}
    pose = Pose.from_euler_deg((10, -20, 30), volume.centre_mm)
    return Result(pose, "by hand", 12.0, 0.5, frame=frame, volume=volume, **trust)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "theme", "green"), [((1440, 900), "dark", (67, 195, 132)), ((390, 844), "light", (15, 106, 59))]
)
def test_a_picture_holds_what_is_seen_and_what_is_known(
    browser: Browser, tmp_path: Path, size: tuple[int, int], theme: str, green: tuple[int, int, int]
) -> None:
    found = result()
    write_page(tmp_path / "page.html", [found, replace(found, ok=False)], names=["a frame", "b"], volume="v.nii.gz")
    with new_tab(browser, viewport={"width": size[0], "height": size[1]}, color_scheme=theme) as tab:
        tab.open((tmp_path / "page.html").as_uri())
        tab.until("scopereg.model.placed")
        picture, told, name = kept(tab, tmp_path / "kept.png", lambda: tab.click("snapshot"))
        work = tab.ask("(({ x, y, width, height }) => [x, y, width, height])(work.getBoundingClientRect())")
        area = tab.ask(
            "(({ x, y, width, height }) => [x, y, width, height])"
            "(document.querySelector('#frame-picture').getBoundingClientRect())"
        )
    assert name.startswith("scopereg-v.nii.gz-a_frame-")
    assert (told["format"], told["version"]) == ("scopereg-snapshot-1", __version__)
    assert (told["volume"], told["frame"]["name"], told["method"]) == ("v.nii.gz", "a frame", "by hand")
    assert (told["light"], told["word"], told["said"]) == ("green", "Located", "the pose is reliable")
    assert (told["ok"], told["expected_mm"], told["bound_mm"], told["confidence"]) == (True, 1.24, 2.5, 0.9)
    assert told["calibrated_on"] == "é"
    np.testing.assert_allclose(np.reshape(told["image_to_volume"], (4, 4)), found.pose.matrix, atol=1e-6)
    np.testing.assert_allclose(told["pose"]["angles_deg"], (10, -20, 30), atol=1e-5)
    np.testing.assert_allclose(told["pose"]["translation_mm"], found.pose.translation_mm, atol=1e-5)
    seen = np.asarray(picture.convert("RGB"))
    assert seen.shape[1] == round((work[2] + 24) * FINENESS)
    beneath = seen[round((work[3] + 24) * FINENESS) :]
    assert 0.02 < (np.abs(beneath.astype(int) - beneath[-1, -1]).max(-1) > 100).mean() < 0.3  # words on their ground
    # The frame where the page has it, as bright on the average in each quarter.
    left, top = (round((area[axis] - work[axis] + 12) * FINENESS) for axis in range(2))
    box = (left, top, left + round(area[2] * FINENESS), top + round(area[3] * FINENESS))
    assert found.frame is not None
    quarters = np.asarray(picture.convert("L").crop(box).resize((2, 2), Image.Resampling.BOX), float)
    wanted = np.asarray(
        Image.fromarray((found.frame.numpy() * 255).astype(np.uint8)).resize((2, 2), Image.Resampling.BOX)
    )
    assert np.abs(quarters - wanted).max() < 25  # where no depth and no ruler is drawn over it
    assert (np.abs(seen.astype(int) - green).max(-1) < 12).sum() > 500  # the light and the edge of the frame


def test_live_it_says_what_is_not_of_now(tab: Tab, tmp_path: Path) -> None:
    with serve(tmp_path, source=replay(count=3)) as served:
        tab.open(served.web.url)
        tab.page.wait_for_selector("#verdict-word:has-text('Source ended')")
        _, told, _ = kept(tab, tmp_path / "kept.png")
        assert (told["light"], told["word"], told["said"]) == ("none", "Source ended", "the last result: not judged")
        assert (told["method"], told["source"]) == ("test", "sweep")
        assert told["frame"]["time_s"] == pytest.approx(time.time(), abs=600)  # by the clock: the source has no times
        np.testing.assert_allclose(told["pose"]["angles_deg"], (1, 2, 3), atol=1e-5)
        lines = dict(tab.ask(f"import('/static/snapshot.js').then(({{ linesOf }}) => linesOf({json.dumps(told)}))"))
    assert lines["verdict"] == "Source ended: the last result: not judged"
    assert lines["translation"] == "x 4.00, y 5.00, z 6.00 mm (frame to volume, LPS)"
    assert lines["angles"] == "x 1.00, y 2.00, z 3.00 ° (R = Rz Ry Rx)"
    assert lines["frame"] == f"frame {told['frame']['number']}"
    assert "expected error" not in lines
    assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", lines["time"])
    assert f"by scopereg {__version__}, not for clinical use" in lines["taken"]


def test_without_webgl_a_picture_is_kept_too(tab: Tab, tmp_path: Path) -> None:
    tab.page.add_init_script(
        "HTMLCanvasElement.prototype.getContext = ((get) => function (kind, ...rest) {"
        "return kind === 'webgl2' ? null : get.call(this, kind, ...rest) })"
        "(HTMLCanvasElement.prototype.getContext)"
    )
    tab.open(write_page(tmp_path / "page.html", [result()]).as_uri())
    picture, told, _ = kept(tab, tmp_path / "kept.png")
    assert told["word"] == "Located"
    assert np.asarray(picture.convert("L")).std() > 10


def test_angles_are_those_of_tables(tab: Tab, tmp_path: Path) -> None:
    with serve(tmp_path, register=locate) as served:
        tab.open(served.web.url)
        for degrees in ((0, 0, 0), (170, -80, -100), (-30, 90, 20), (12, -90, 40), (5, 45, 179)):
            pose = Pose.from_euler_deg(degrees, (1, 2, 3))
            found = tab.ask(
                f"import('/static/snapshot.js').then(({{ anglesOf }}) => anglesOf({pose.matrix.ravel().tolist()}))"
            )
            np.testing.assert_allclose(found["angles_deg"], pose.euler_deg, atol=1e-6)
            assert found["translation_mm"] == [1, 2, 3]
