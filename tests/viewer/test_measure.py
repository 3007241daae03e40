"""What is measured in the page, against millimetres computed here: rulers, the grid, the depth of the frame."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import Tab, drawn
from serving import SHAPE, replay, serve, small_volume

from scopereg import Frame, Pose
from scopereg.io.landmarks import read_landmarks
from scopereg.registration.result import Result
from scopereg.viewer.page import write_page

SPACING_MM = (0.5, 0.6, 0.7)  # of the volume, x y z
PIXEL_MM = (0.4, 0.3)  # of frames
ROWS, COLUMNS = 24, 30


def results() -> list[Result]:
    """Two frames at two places of one volume."""
    volume = small_volume()
    found = []
    for seed in range(2):
        frame = Frame(np.random.default_rng(seed).random((ROWS, COLUMNS), dtype=np.float32), spacing_mm=PIXEL_MM)
        pose = Pose.from_euler_deg((20 * seed, 10, 5), volume.centre_mm)
        found.append(Result(pose, "test", 1.0, 0.5, frame=frame, volume=volume))
    return found


@pytest.fixture
def page(tab: Tab, tmp_path: Path) -> Tab:
    tab.open(write_page(tmp_path / "page.html", results(), names=["one", "two"]).as_uri())
    tab.until("scopereg.model.placed")
    drawn(tab)
    return tab


def box(tab: Tab, selector: str) -> dict[str, float]:
    found = tab.page.locator(selector).bounding_box()
    assert found is not None
    return dict(found)


def drag(tab: Tab, start: tuple[float, float], end: tuple[float, float]) -> None:
    mouse = tab.page.mouse
    mouse.move(*start)
    mouse.down()
    mouse.move(*end, steps=3)
    mouse.up()
    drawn(tab)


def within(area: dict[str, float], across: float, down: float) -> tuple[float, float]:
    """A place on the screen by its shares of an area."""
    return area["x"] + across * area["width"], area["y"] + down * area["height"]


def lengths(tab: Tab) -> list[str]:
    found: list[str] = tab.page.locator("#ruler-list b").all_inner_texts()
    return found


def yellow(tab: Tab, selector: str) -> int:
    """Pixels of a canvas in the colour of rulers."""
    found: int = tab.ask(
        f"(() => {{ const c = document.querySelector('{selector}'); const {{ data }} = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height); let n = 0; for (let k = 0; k < data.length; k += 4) n += "
        "data[k + 3] > 200 && data[k] > 240 && data[k + 1] > 210 && data[k + 2] < 140; return n })()"
    )
    return found


def test_a_ruler_on_a_plane_counts_true_millimetres_however_near(page: Tab) -> None:
    shares = [(0.35, 0.4), (0.65, 0.6)]
    wide, high = SHAPE[2] * SPACING_MM[0], SHAPE[1] * SPACING_MM[1]
    wanted = math.hypot(0.3 * wide, 0.2 * high)
    for zoom in (1, 1.9):
        page.ask(f"scopereg.planes[0].zoomBy({zoom}), scopereg.rulers.clear()")
        drawn(page)
        area = box(page, "#axial .picture")
        page.page.keyboard.press("m")
        assert page.page.get_attribute("#ruler", "aria-pressed") == "true"
        drag(page, *(within(area, *share) for share in shares))
        assert page.page.get_attribute("#ruler", "aria-pressed") == "false"
        assert [float(words.removesuffix(" mm")) for words in lengths(page)] == pytest.approx([wanted], abs=0.15)
    assert yellow(page, "#axial .lines") > 50
    ends = page.ask("scopereg.rulers.all[0].ends.map((end) => scopereg.model.volume.toIndex(end))")
    assert ends[0][2] == pytest.approx(page.ask("Math.round(scopereg.model.cursor[2])"))
    assert yellow(page, "#space .over") > 50


def test_one_on_a_frame_is_of_that_frame_and_one_in_the_volume_stays(page: Tab) -> None:
    for name in ("frame", "there"):
        area = box(page, f"#{name}-marks")
        page.page.keyboard.press("m")
        drag(page, within(area, 0.25, 0.2), within(area, 0.75, 0.2))
    wide = 0.5 * COLUMNS * PIXEL_MM[0]
    assert [float(words.removesuffix(" mm")) for words in lengths(page)] == pytest.approx([wide, wide], abs=0.1)
    assert page.page.locator("#ruler-list small").all_inner_texts() == ["one", "volume there"]
    assert yellow(page, "#frame-marks") > 20
    assert yellow(page, "#there-marks") > 20
    page.page.keyboard.press("ArrowRight")
    page.until("scopereg.model.update.result === 1")
    drawn(page)
    assert yellow(page, "#frame-marks") == yellow(page, "#there-marks") == 0
    assert len(lengths(page)) == 2
    page.until("!scopereg.scene.pending && !scopereg.dirty.size")
    assert [found["words"] for found in page.ask("scopereg.rulers.inSpace().map(({ ruler }) => ruler)")] == [
        "volume there"
    ]
    page.page.keyboard.press("ArrowLeft")
    page.until("scopereg.model.update.result === 0")
    drawn(page)
    assert yellow(page, "#frame-marks") > 20


def test_both_ends_are_tapped_dragged_and_moved_by_keys(page: Tab) -> None:
    area = box(page, "#frame-marks")
    mouse, keyboard = page.page.mouse, page.page.keyboard
    keyboard.press("m")
    for share in (0.25, 0.75):
        mouse.click(*within(area, share, 0.5))
    assert float(lengths(page)[0].removesuffix(" mm")) == pytest.approx(0.5 * COLUMNS * PIXEL_MM[0], abs=0.1)
    drag(page, within(area, 0.75, 0.5), within(area, 0.5, 0.5))
    assert float(lengths(page)[0].removesuffix(" mm")) == pytest.approx(0.25 * COLUMNS * PIXEL_MM[0], abs=0.1)
    page.page.locator("#ruler-list button").nth(1).focus()
    before = page.ask("scopereg.rulers.all[0].ends[1]")
    for key in ("ArrowRight", "Shift+ArrowDown"):
        keyboard.press(key)
    moved = np.subtract(page.ask("scopereg.rulers.all[0].ends[1]"), before)
    np.testing.assert_allclose(moved, [0.5, 5, 0], atol=1e-9)
    assert page.text("measured") == lengths(page)[0]
    keyboard.press("Delete")
    assert lengths(page) == []
    assert page.ask("document.activeElement.id") == "ruler"


def test_without_a_pointer_one_is_placed_and_moved(page: Tab) -> None:
    page.page.focus("#ruler")
    page.page.keyboard.press("Enter")
    page.page.focus("#there-marks")
    page.page.keyboard.press("Enter")
    assert float(lengths(page)[0].removesuffix(" mm")) == pytest.approx(0.3 * COLUMNS * PIXEL_MM[0], abs=0.06)
    assert page.ask("document.activeElement.textContent") == "A"
    page.page.keyboard.press("ArrowLeft")  # of the end, not of the results
    assert float(lengths(page)[0].removesuffix(" mm")) == pytest.approx(0.3 * COLUMNS * PIXEL_MM[0] + 0.5, abs=0.06)
    assert page.ask("scopereg.model.update.result") == 0
    page.page.focus("#ruler")
    page.page.keyboard.press("Enter")
    page.page.focus("#axial .lines")
    page.page.keyboard.press("Enter")
    assert len(lengths(page)) == 2
    page.click("rulers-clear")
    assert lengths(page) == []


def test_lines_are_kept_as_a_file_of_3d_slicer(page: Tab, tmp_path: Path) -> None:
    first = results()[0]
    area = box(page, "#frame-marks")
    page.page.keyboard.press("m")
    drag(page, within(area, 0.2, 0.25), within(area, 0.8, 0.25))
    with page.page.expect_download() as download:
        page.click("rulers-save")
    assert download.value.suggested_filename.endswith(".mrk.json")
    path = tmp_path / "lines.mrk.json"
    download.value.save_as(path)
    kept = read_landmarks(path)
    assert list(kept.points_mm) == ["ruler 1 A", "ruler 1 B"]
    assert first.frame is not None
    x, y = first.frame.origin_mm
    ends = [
        [x + (share * COLUMNS - 0.5) * PIXEL_MM[0], y + (0.25 * ROWS - 0.5) * PIXEL_MM[1], 0] for share in (0.2, 0.8)
    ]
    np.testing.assert_allclose(kept.array_mm(), first.pose.apply(np.array(ends)), atol=0.08)


def test_while_frames_come_only_the_volume_is_measured(tab: Tab, tmp_path: Path) -> None:
    with serve(tmp_path, source=replay(rate_hz=20)) as served:
        tab.open(served.web.url)
        tab.page.keyboard.press("m")
        area = box(tab, "#frame-marks")
        drag(tab, within(area, 0.2, 0.5), within(area, 0.8, 0.5))
        assert lengths(tab) == []
        assert "Pause first" in tab.text("notices")
        plane = box(tab, "#axial .lines")
        drag(tab, within(plane, 0.4, 0.5), within(plane, 0.6, 0.5))
        assert len(lengths(tab)) == 1
        assert tab.ask("scopereg.model.follow")  # the crosshair stayed where it was


STEPS: list[tuple[float, int]] = [(40, 1), (16, 1), (15, 5), (3.3, 5), (3, 10), (1.7, 10), (1, 50), (0.1, 50)]


def test_the_grid_is_as_fine_as_can_be_seen(page: Tab) -> None:
    script = Path(__file__).parents[2] / "src/scopereg/viewer/static/grid.js"
    code = (
        script.read_text(encoding="utf-8").replace('import { sizeOf } from "./picture.js";', "").replace("export ", "")
    )
    found: Any = page.ask(
        f"(() => {{ {code}; return [{[px for px, _ in STEPS]}.map((px) => stepFor(px)), "
        "linesOf({ px: 4, origin: 30 }, 100, 5)] })()"
    )
    assert found[0] == [step for _, step in STEPS]
    assert found[1] == [{"at": 10 + 20 * k, "mm": 5 * k - 5} for k in range(5)]


def test_grid_and_depth_lie_at_whole_millimetres(page: Tab) -> None:
    """Rows of a canvas that hold a line, against the rows where depths of the frame are."""
    page.page.keyboard.press("h")
    assert page.page.get_attribute("#grid", "aria-pressed") == "true"
    drawn(page)
    high = ROWS * PIXEL_MM[1]
    px = page.ask("document.querySelector('#frame-marks').clientHeight") / high
    assert 4 < px < 16  # lines of 5 mm on the grid, of 1 mm beside it
    for canvas, column, step in (("#frame-marks", 2, 5), ("#frame-depth", None, 1)):
        rows = _rows_with_a_line(page, canvas, column)
        picture, own = box(page, "#frame-marks"), box(page, canvas)
        steps = (np.array(rows) + 0.5 + own["y"] - picture["y"]) / (step * px)
        assert set(np.rint(steps)) == set(range(math.floor(high / step) + 1))
        assert np.abs(steps - np.rint(steps)).max() * step * px <= 1.25  # pixels
    page.page.keyboard.press("d")
    page.page.keyboard.press("h")
    drawn(page)
    assert not page.page.is_visible("#frame-depth")
    assert _rows_with_a_line(page, "#frame-marks", 2) == []


def _rows_with_a_line(tab: Tab, selector: str, column: int | None) -> list[int]:
    """Rows of a canvas where a column is drawn on; by default that just left of the picture."""
    if column is None:
        column = round(box(tab, "#frame-marks")["x"] - box(tab, selector)["x"]) - 2
    found: list[int] = tab.ask(
        f"(() => {{ const c = document.querySelector('{selector}'); const {{ data }} = c.getContext('2d')"
        f".getImageData({column}, 0, 1, c.height); const rows = [...Array(c.height).keys()]; return "
        "rows.filter((k) => data[4 * k + 3] > 20) })()"
    )
    return found
