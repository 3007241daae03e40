"""Landmarks over a volume: sent by name and place, drawn where a picture comes near them, with their distance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from browsing import DESK, PHONE, RED, Tab, drawn, new_tab
from serving import SHAPE, serve, small_volume
from shown import EVIL, labels_of, points, result_of

from scopereg.errors import ScopeRegError
from scopereg.io.landmarks import Landmarks, read_landmarks
from scopereg.viewer.overlays import MOST_LANDMARKS, Overlays, notes_of
from scopereg.viewer.page import page_html, write_page
from scopereg.viewer.voxels import voxels_of, world_matrix

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_they_come_with_the_volume_beside_labels(tmp_path: Path) -> None:
    volume = small_volume()
    for labels in (None, labels_of(volume)):
        with serve(tmp_path, overlays=Overlays(labels, points((3, 4, 5), (15, 9, 6)))) as served:
            overlay = served.state()["volume"]["overlay"]
            assert overlay["landmarks_file"] == "points.fcsv"
            assert [each["name"] for each in overlay["landmarks"]] == ["apex", EVIL]
            wanted = world_matrix(volume) @ (3, 4, 5, 1)
            np.testing.assert_allclose(overlay["landmarks"][0]["mm"], wanted[:3], atol=1e-4)
            assert len(overlay["labels"]) == (0 if labels is None else 2)
            assert served.ask("/api/labels")[0] == (404 if labels is None else 200)


def test_what_cannot_be_of_this_volume_is_refused_or_told() -> None:
    volume = small_volume()
    voxels = voxels_of(volume, "volume", 1)
    with pytest.raises(ScopeRegError, match="none of its landmarks lies in the volume"):
        Overlays(None, points((-30, 0, 0), (0, 99, 0))).over(volume, voxels)
    many = Landmarks(Path("many.fcsv"), {str(number): volume.centre_mm for number in range(MOST_LANDMARKS + 1)})
    with pytest.raises(ScopeRegError, match="are the most that the page shows"):
        Overlays(None, many).over(volume, voxels)
    mixed = points((3, 4, 5), (-30, 0, 0))
    some = Landmarks(mixed.path, mixed.points_mm, left_out=("never",))
    notes = notes_of(Overlays(None, some).over(volume, voxels))
    assert notes == (f"landmarks outside of the volume: {EVIL}", "landmarks that were never placed: never")


def white(tab: Tab, selector: str) -> int:
    found: int = tab.ask(
        f"(() => {{ const c = document.querySelector('{selector}'); const {{ data }} = c.getContext('2d')"
        ".getImageData(0, 0, c.width, c.height); let n = 0; for (let k = 0; k < data.length; k += 4) n += "
        "data[k + 3] > 200 && data[k] > 225 && data[k + 1] > 225 && data[k + 2] > 225; return n })()"
    )
    return found


@pytest.mark.parametrize("size", [PHONE, DESK])
def test_they_are_drawn_with_their_distance_and_switched(
    browser: Browser, tmp_path: Path, size: dict[str, int]
) -> None:
    """One in the plane of the frame, one beside it by 3 mm, one far off."""
    volume = small_volume()
    result = result_of(volume)  # axes of the volume; its origin in the middle
    middle = volume.centre_mm
    placed = {
        name: tuple(middle + shift) for name, shift in (("here", (1, 1, 0)), ("near", (2, 2, 3)), (EVIL, (1, 2, -4)))
    }
    page = write_page(tmp_path / "page.html", [result], overlays=Overlays(None, Landmarks(Path("p.mrk.json"), placed)))  # type: ignore[arg-type]
    with new_tab(browser, viewport=size) as tab:
        tab.open(page.as_uri())
        tab.until("!scopereg.scene.pending")
        drawn(tab)
        seen = {name: white(tab, name) for name in ("#axial .lines", "#frame-marks", "#there-marks", "#space .over")}
        assert all(count > 20 for count in seen.values()), seen
        if not tab.page.is_visible("#part-overlays"):
            tab.page.keyboard.press("l")
        rows = tab.page.locator("#landmark-list label").all_inner_texts()
        assert [row.split("\n") for row in rows] == [["here", "0.0 mm"], ["near", "3.0 mm"], [EVIL, "4.0 mm"]]
        assert tab.text("landmarks-file") == "p.mrk.json"
        for number in range(3):
            tab.page.locator("#landmark-list input").nth(number).uncheck()
        tab.until("!scopereg.scene.pending && !scopereg.dirty.size")
        drawn(tab)
        for name in ("#axial .lines", "#frame-marks", "#there-marks", "#space .over"):
            assert white(tab, name) < 5, name
        tab.page.locator("#landmark-list input").first.check()
        drawn(tab)
        assert white(tab, "#frame-marks") > 20
        tab.page.keyboard.press("g")
        drawn(tab)
        assert white(tab, "#frame-marks") == 0


def test_they_lie_where_the_frame_has_them(tab: Tab, tmp_path: Path) -> None:
    """The middle of what is drawn, against the pixel that the pose takes there."""
    volume = small_volume()
    result = result_of(volume)
    assert result.frame is not None
    pixel = np.array([20.0, 9.0])
    image = np.array([*(np.array(result.frame.origin_mm) + pixel * result.frame.spacing_mm), 0.0])
    place = result.pose.apply(image[None])[0]
    page = write_page(
        tmp_path / "page.html", [result], overlays=Overlays(None, Landmarks(Path("p.fcsv"), {"i": tuple(place)}))
    )
    tab.open(page.as_uri())
    drawn(tab)
    for canvas in ("#frame-marks", "#there-marks"):
        shape = tab.ask(f"(({{ width, height }}) => [height, width])(document.querySelector('{canvas}'))")
        seen = np.reshape(tab.ask(f"({RED})('{canvas}')"), shape)
        scale = np.divide(shape[::-1], (30, 24))
        places = (np.argwhere(seen > 225)[:, ::-1] + 0.5) / scale - 0.5
        ring = places[(np.abs(places - pixel) * scale).max(1) < 8]  # but for its name, which stands beside it
        assert len(ring) > 10
        np.testing.assert_allclose((ring.min(0) + ring.max(0)) / 2, pixel, atol=0.12)


def test_points_placed_on_the_page_are_kept_as_landmarks(tab: Tab, tmp_path: Path) -> None:
    volume = small_volume()
    tab.open(write_page(tmp_path / "page.html", [result_of(volume)]).as_uri())
    drawn(tab)
    area = tab.page.locator("#axial .picture").bounding_box()
    assert area is not None
    tab.page.keyboard.press("p")
    tab.page.mouse.click(area["x"] + area["width"] * 4.5 / SHAPE[2], area["y"] + area["height"] * 6.5 / SHAPE[1])
    tab.page.keyboard.press("m")
    tab.page.focus("#there-marks")
    tab.page.keyboard.press("Enter")
    with tab.page.expect_download() as download:
        tab.click("rulers-save")
    download.value.save_as(tmp_path / "kept.mrk.json")
    kept = read_landmarks(tmp_path / "kept.mrk.json")
    assert list(kept.points_mm) == ["ruler 2 A", "ruler 2 B", "point 1"]
    layer = tab.ask("Math.round(scopereg.model.cursor[2])")
    wanted = (world_matrix(volume) @ (4, SHAPE[1] - 1 - 6, layer, 1))[:3]
    if not np.allclose(kept.points_mm["point 1"], wanted, atol=0.06):  # where the plane is shown the other way up
        wanted = (world_matrix(volume) @ (4, 6, layer, 1))[:3]
    np.testing.assert_allclose(kept.points_mm["point 1"], wanted, atol=0.06)


def test_the_page_of_one_file_holds_nothing_that_could_run() -> None:
    html = page_html([result_of(small_volume())], overlays=Overlays(None, points((3, 4, 5), (15, 9, 6))))
    assert "<img" not in html
    assert json.dumps(EVIL)[1:-1].replace("<", "\\u003c") in html
