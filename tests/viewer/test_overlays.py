"""What lies over a volume: sent with its voxels, drawn over its planes and over the frame, gone with the volume."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from browsing import DESK, PHONE, TABLET, Tab, drawn, new_tab
from serving import SHAPE, Served, replay, serve, small_volume
from shown import labels_of, result_of

from scopereg import Volume, io
from scopereg.errors import ScopeRegError
from scopereg.io.formats import ImageFile
from scopereg.io.labels import Label, LabelMap, read_labels
from scopereg.io.read_image import write_image
from scopereg.viewer.overlays import Overlays
from scopereg.viewer.page import page_html, write_page
from scopereg.viewer.voxels import voxels_of, world_matrix

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def labelled(tmp_path: Path) -> Iterator[Served]:
    with serve(tmp_path, overlays=Overlays(labels_of(small_volume()))) as served:
        yield served


def test_labels_come_on_the_grid_of_the_voxels(labelled: Served) -> None:
    overlay = labelled.state()["volume"]["overlay"]
    assert [label["name"] for label in overlay["labels"]] == ["left half", "<img src=x onerror=alert(1)>"]
    assert [label["value"] for label in overlay["labels"]] == [3, 9]
    assert overlay["labels"][0]["colour"] == "#56b4e9"
    assert [label["voxels"] for label in overlay["labels"]] == [12 * 16 * 10, 8 * 8 * 6]
    status, headers, body = labelled.ask("/api/labels?generation=1")
    assert (status, headers["content-encoding"]) == (200, "gzip")
    sent = np.frombuffer(gzip.decompress(body), np.uint8).reshape(SHAPE)
    assert np.array_equal(sent, labels_of(small_volume()).voxels)
    assert labelled.ask("/api/labels?generation=2")[0] == 404


def test_without_labels_there_are_none(served: Served) -> None:
    assert served.state()["volume"]["overlay"] is None
    assert served.ask("/api/labels")[0] == 404


def test_another_volume_has_none_of_them(labelled: Served, tmp_path: Path) -> None:
    """Nobody said that they lie in its space too."""
    other = io.write_volume(small_volume(5), tmp_path / "other.nii.gz")
    assert labelled.ask("/api/volume?name=other.nii.gz", method="POST", body=other.read_bytes())[0] == 200
    state = labelled.state()
    assert state["volume"]["name"] == "other.nii.gz"
    assert state["volume"]["overlay"] is None


def test_labels_of_a_large_volume_are_laid_on_the_grid_that_is_sent() -> None:
    volume = Volume(np.random.default_rng(0).random((3, 8, 600), dtype=np.float32), 0.5)
    voxels = np.zeros(volume.shape, np.uint8)
    voxels[:, :, 300:] = 1
    labels = LabelMap(voxels, (Label(1, "right", (1, 2, 3)),), world_matrix(volume), Path("labels.mha"))
    sent = Overlays(labels).over(volume, voxels_of(volume, "large", 1))
    assert sent.shape == (200, 8, 3)
    assert sent.overlay is not None
    laid = np.frombuffer(gzip.decompress(sent.overlay.packed_labels), np.uint8).reshape(3, 8, 200)
    assert np.array_equal(laid, np.broadcast_to(np.arange(200) >= 100, laid.shape))


def test_labels_of_somewhere_else_are_refused(tmp_path: Path) -> None:
    volume = small_volume()
    image = ImageFile(labels_of(volume).voxels, volume.spacing_mm, (400.0, 0.0, 0.0), np.eye(3))
    labels = read_labels(write_image(image, tmp_path / "labels.nii.gz"))
    with pytest.raises(ScopeRegError, match="none of its labelled voxels"):
        Overlays(labels).over(volume, voxels_of(volume, "volume", 1))


def on_canvas(tab: Tab, selector: str, colour: tuple[int, int, int]) -> int:
    """Pixels of a canvas that have this colour, about."""
    red, green, blue = colour
    counted = f"""(() => {{ const c = document.querySelector('{selector}');
      const {{ data }} = c.getContext('2d').getImageData(0, 0, c.width, c.height); let n = 0;
      for (let k = 0; k < data.length; k += 4) n += data[k + 3] > 200 && Math.abs(data[k] - {red}) < 12
        && Math.abs(data[k + 1] - {green}) < 12 && Math.abs(data[k + 2] - {blue}) < 12;
      return n }})()"""
    count: int = tab.ask(counted)
    return count


@pytest.mark.parametrize("size", [PHONE, TABLET, DESK])
def test_labels_are_drawn_and_switched(browser: Browser, tmp_path: Path, size: dict[str, int]) -> None:
    volume = small_volume()
    write_page(tmp_path / "page.html", [result_of(volume)], overlays=Overlays(labels_of(volume)))
    blue, pink = (86, 180, 233), (204, 121, 167)
    places = ("#axial .lines", "#frame-marks", "#there-marks")
    with new_tab(browser, viewport=size) as tab:
        tab.open((tmp_path / "page.html").as_uri())
        drawn(tab)
        assert all(on_canvas(tab, place, colour) > 5 for place in places for colour in (blue, pink))
        if not tab.page.is_visible("#part-overlays"):
            tab.page.keyboard.press("l")
        names = tab.page.locator("#label-list span").all_inner_texts()
        assert names == ["left half", "<img src=x onerror=alert(1)>"]  # words, no markup
        tab.page.locator("#label-list input").nth(1).uncheck()
        drawn(tab)
        assert all(on_canvas(tab, place, blue) > 5 and on_canvas(tab, place, pink) == 0 for place in places)
        before = tab.ask("scopereg.planes[0].labelCut.pixels.reduce((sum, value) => sum + (value >>> 24), 0)")
        tab.page.fill("#label-opacity", "80")
        drawn(tab)
        after = tab.ask("scopereg.planes[0].labelCut.pixels.reduce((sum, value) => sum + (value >>> 24), 0)")
        assert after > 2 * before
        tab.page.locator("#label-opacity").blur()
        tab.page.keyboard.press("g")
        drawn(tab)
        assert all(on_canvas(tab, place, blue) == 0 for place in places)


def test_what_the_page_cuts_is_what_lies_there(browser: Browser, tmp_path: Path) -> None:
    """Labels at the pixels of the frame, against the nearest voxel of each as numpy finds it."""
    volume = small_volume()
    result = result_of(volume)
    labels = labels_of(volume)
    write_page(tmp_path / "page.html", [result], overlays=Overlays(labels))
    with new_tab(browser) as tab:
        tab.open((tmp_path / "page.html").as_uri())
        drawn(tab)
        cut = np.array(tab.ask("[...scopereg.comparison.labelCut.values]")).reshape(24, 30)
    assert result.frame is not None
    rows, columns = np.mgrid[:24, :30]
    x, y = (result.frame.origin_mm[axis] + 0.3 * index for axis, index in ((0, columns), (1, rows)))
    world = result.pose.apply(np.stack([x, y, 0 * x], axis=-1).reshape(-1, 3))
    index = (np.c_[world, np.ones(len(world))] @ np.linalg.inv(world_matrix(volume)).T)[:, :3]
    i, j, k = np.floor(index + 0.5).astype(int).T
    inside = (i >= 0) & (j >= 0) & (k >= 0) & (i < SHAPE[2]) & (j < SHAPE[1]) & (k < SHAPE[0])
    wanted = np.zeros(len(world), int)
    wanted[inside] = labels.voxels[k[inside], j[inside], i[inside]]
    assert len(np.unique(wanted)) == 3
    assert (cut.ravel() == wanted).mean() > 0.99  # but for ties between two voxels


def test_over_a_frame_that_is_not_sure_lines_are_dashed(browser: Browser, tmp_path: Path) -> None:
    """Where a pose may be wrong, so may be what is drawn over the frame by it; over the volume it is right."""
    volume = small_volume()
    sure = result_of(volume)
    counts = []
    for ok in (True, None):
        told = sure.__class__(**{**sure.__dict__, "ok": ok, "belongs": True if ok else None})
        write_page(tmp_path / "page.html", [told], overlays=Overlays(labels_of(volume)))
        with new_tab(browser) as tab:
            tab.open((tmp_path / "page.html").as_uri())
            drawn(tab)
            counts.append([on_canvas(tab, place, (86, 180, 233)) for place in ("#frame-marks", "#there-marks")])
    (sure_frame, sure_volume), (frame, cut) = counts
    assert frame < 0.8 * sure_frame
    assert cut == sure_volume


def test_the_page_of_one_file_holds_nothing_that_could_run(tmp_path: Path) -> None:
    volume = small_volume()
    html = page_html([result_of(volume)], overlays=Overlays(labels_of(volume)))
    assert "<img" not in html
    assert json.dumps("<img src=x onerror=alert(1)>")[1:-1].replace("<", "\\u003c") in html


def test_a_live_page_draws_them_too(tab: Tab, tmp_path: Path) -> None:
    with serve(tmp_path, overlays=Overlays(labels_of(small_volume())), source=replay(rate_hz=20)) as served:
        tab.open(served.web.url)
        tab.until("scopereg.planes[0].labelCut.labels")
        assert tab.page.is_visible("#part-overlays")
        assert on_canvas(tab, "#axial .lines", (86, 180, 233)) > 5
