"""Finished sweeps played: frames at their times, along the path of the probe, dragged to anywhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from browsing import Tab, drawn, new_tab
from serving import serve
from shown import BEGAN_S, COUNT, PIXEL_MM, TIMES_S, results, steps, table

from scopereg import Pose
from scopereg.viewer.finished import Images, read_results
from scopereg.viewer.finished_show import FinishedShow
from scopereg.viewer.page import write_page
from scopereg.viewer.path import Step, path_of
from scopereg.viewer.web import WebServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def show_of(folder: Path) -> FinishedShow:
    return FinishedShow(read_results([table(folder)]), Images(volume=folder / "volume.nii.gz"))


def test_a_path_has_times_only_where_all_frames_do() -> None:
    told = path_of(steps())
    assert told is not None
    assert told["times_s"] == pytest.approx(TIMES_S)
    assert told["follows"] == [0, *[1] * (COUNT - 1)]
    np.testing.assert_allclose(told["poses"][3], steps()[3].pose.matrix[:3].ravel(), rtol=1e-7)
    assert path_of(steps()[:1]) is None
    for odd in (Step(Pose.identity(), time_s=math.nan), Step(Pose.identity(), time_s=0.0)):
        other = path_of([*steps(), odd])
        assert other is not None
        assert other["times_s"] is None


def test_steps_in_another_volume_and_after_lost_frames_are_told_apart() -> None:
    pose = Pose.identity()
    told = path_of([Step(pose, "a", 0), Step(pose, "a", 2), Step(pose, "b", 0), Step(pose, "b", 1, volume="other")])
    assert told is not None
    assert (told["follows"], told["groups"]) == ([0, 0, 1, 0], [0, 0, 0, 1])


def play(tab: Tab, speed: str) -> list[tuple[float, int]]:
    """When each result was on the screen, in ms from the touch of the button, until it stops."""
    tab.page.select_option("#player-speed", speed)
    tab.ask(
        "(() => { const { page } = { page: scopereg }, take = page.take.bind(page); window.seen = [];"
        "page.take = (update) => { seen.push([performance.now() - window.begun, update.result]); take(update) };"
        "document.getElementById('play').addEventListener('click', () => window.begun = performance.now(), "
        "{ capture: true, once: true }) })()"
    )
    tab.click("play")
    tab.until("!scopereg.player.playing && scopereg.player.current === scopereg.player.count - 1")
    found: list[tuple[float, int]] = tab.ask("seen")
    return found


def test_frames_are_shown_at_their_times(tab: Tab, tmp_path: Path) -> None:
    tab.open(write_page(tmp_path / "page.html", results(), steps=steps()).as_uri())
    assert tab.page.is_visible("#player")
    assert tab.text("player-words") == "0.00 s of 1.50 s"
    seen = play(tab, "2")
    order = [number for _, number in seen]
    assert order == sorted(order)
    assert order[-1] == COUNT - 1
    assert all(ms >= 1000 * TIMES_S[number] / 2 - 1 for ms, number in seen)  # none before its time
    assert len(order) > COUNT / 3  # even on a busy machine
    assert tab.text("player-words") == "1.50 s of 1.50 s"
    tab.click("play")  # from the start again
    tab.until("scopereg.player.playing && scopereg.player.current < 6")
    tab.page.keyboard.press("Space")
    assert not tab.ask("scopereg.player.playing")
    assert tab.page.get_attribute("#play", "aria-label") == "Play"


def test_a_track_is_played_from_its_server(tab: Tab, tmp_path: Path) -> None:
    with WebServer(show_of(tmp_path), port=0) as web:
        tab.open(web.url)
        tab.until("scopereg.model.path")
        assert tab.ask("scopereg.player.count") == COUNT - 1
        assert tab.ask("scopereg.model.path.follows") == [0, 1, 1, 0, *[1] * 7]
        seen = play(tab, "10")
        assert seen[-1][1] == COUNT - 2
        assert tab.ask("scopereg.model.update.time_s") == pytest.approx(BEGAN_S + TIMES_S[-1])
        for number in ("3", "7", "2"):
            tab.page.fill("#player-line", number)  # quicker than answers come: the last wish counts
        tab.until("scopereg.player.current === 2 && !scopereg.player.asked")
        assert tab.ask("scopereg.model.update.result") == 2
        assert tab.page.input_value("#result") == "2"
        assert tab.page.get_attribute("#player-line", "aria-valuetext") == "3 of 11, 0.20 s"
        area = tab.page.locator("#trace").bounding_box()
        assert area is not None
        tab.page.mouse.click(area["x"] + area["width"] - 9, area["y"] + 20)
        tab.until(f"scopereg.player.current === {COUNT - 2}")


def test_frames_that_come_have_no_path(tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        assert served.ask("/api/path")[0] == 404


def on_canvas(tab: Tab, colour: tuple[int, int, int]) -> int:
    """Pixels over the view in 3D that have this colour, about."""
    red, green, blue = colour
    found: int = tab.ask(
        "(() => { const c = document.querySelector('#space .over');"
        "const { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height); let n = 0;"
        f"const wanted = [{red}, {green}, {blue}], off = (k) => wanted.every((v, c) => Math.abs(data[k + c] - v) < 8);"
        "for (let k = 0; k < data.length; k += 4) n += data[k + 3] > 200 && off(k); return n })()"
    )
    return found


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)])
def test_the_path_lies_where_the_probe_was_in_the_colours_of_its_lights(
    browser: Browser, tmp_path: Path, size: tuple[int, int]
) -> None:
    found = results()
    page = write_page(tmp_path / "page.html", found, steps=steps())
    screen: dict[str, Any] = {"viewport": {"width": size[0], "height": size[1]}, "color_scheme": "dark"}
    with new_tab(browser, **screen) as tab:
        tab.open(page.as_uri())
        tab.ask(f"scopereg.showResult({COUNT - 1})")
        tab.until(f"scopereg.player.current === {COUNT - 1} && !scopereg.scene.pending && !scopereg.dirty.size")
        drawn(tab)
        counts = [on_canvas(tab, colour) for colour in ((67, 195, 132), (240, 178, 74), (255, 107, 94))]
        assert counts[0] > 100
        assert min(counts[1:]) > 5
        places = tab.ask("scopereg.model.path.places(scopereg.model.update)")
        for place, result in zip(places, found, strict=True):
            assert result.frame is not None
            middle = np.add(result.frame.origin_mm, (9.5 * PIXEL_MM, -0.5 * PIXEL_MM))
            np.testing.assert_allclose(place, result.pose.apply(np.array([[*middle, 0]]))[0], atol=1e-5)
        assert tab.page.is_visible("#player-line")
        assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
        tab.page.keyboard.press("t")
        tab.until("!scopereg.scene.pending && !scopereg.dirty.size")
        drawn(tab)
        assert on_canvas(tab, (67, 195, 132)) == 0


def test_one_result_has_no_line(tab: Tab, tmp_path: Path) -> None:
    tab.open(write_page(tmp_path / "page.html", results()[:1]).as_uri())
    assert not tab.page.is_visible("#player")
    tab.page.keyboard.press("Space")
    assert not tab.ask("scopereg.player.playing")
