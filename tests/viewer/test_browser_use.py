"""What a user does with the page: buttons, sliders, keys, mouse and fingers, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from browsing import Tab, drawn, new_tab, red
from patients import Patients
from serving import serve, small_volume, unsized

from scopereg import io
from scopereg.io.frames import read_cine

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_the_slider_goes_from_the_frame_to_the_volume(tab: Tab, patients: Patients, tmp_path: Path) -> None:
    with patients.serve(tmp_path, paused=True) as served:
        tab.page.goto(served.web.url)
        tab.until("scopereg.model.volume && scopereg.model.state.paused")
        tab.click("step")
        tab.until("scopereg.timing.shown === 1 && scopereg.model.placed")
        pictures = {}
        for value in ("0", "100", "50"):
            tab.page.fill("#weight", value)
            drawn(tab)
            pictures[value] = red(tab, "#mixed-picture")
        frame, cut = (red(tab, f"#{name}-picture") for name in ("frame", "volume"))
        np.testing.assert_array_equal(pictures["0"], frame)
        np.testing.assert_array_equal(pictures["100"], cut)
        assert np.abs(pictures["50"] - (frame + cut) / 2).max() <= 1
        tab.page.keyboard.press("Escape")
        for name in ("wipe", "checker"):
            tab.click(f"mix-{name}")
            drawn(tab)
            mixed = red(tab, "#mixed-picture")
            assert ((mixed == frame) | (mixed == cut)).all()
            assert (mixed != frame).any()
            assert (mixed != cut).any()


def test_the_size_of_a_pixel_is_asked_once_and_told_in_a_dialog(tab: Tab, tmp_path: Path) -> None:
    source, sizes = unsized()
    open_dialog = "document.getElementById('pixel-dialog').open"
    with serve(tmp_path, source=source, sizes=sizes) as served:
        tab.open(served.web.url)
        tab.until(open_dialog)
        assert tab.text("pixel-why") == "The pictures are 20 x 12, and 0.5 mm was told for 14 x 10."
        assert (
            tab.ask("scopereg.rulers !== null && scopereg.comparison.surfaces[0].ready") is False
        )  # nothing to measure
        tab.page.click("#pixel-dialog .close")
        tab.page.wait_for_timeout(1500)  # of states that come meanwhile
        assert tab.ask(open_dialog) is False
        assert "the size of a pixel is not known" in tab.text("verdict-reason")
        tab.click("pixel-size")
        tab.page.click("#pixel-choices button")
        assert tab.page.input_value("#pixel-mm") == "0.5"
        tab.page.fill("#pixel-mm", "0.4")
        tab.page.press("#pixel-mm", "Enter")
        tab.until("scopereg.model.update.frame.pixel_to_image[0] === 0.4 && scopereg.model.placed")
        tab.until("!scopereg.model.state.asks")
        assert tab.ask(open_dialog) is False
        # The sender says the same at every depth: a person may tell another size at any time, or be asked for one.
        sizes.doubt((20, 12), (0.4, 0.4), "the depth seems to have changed", (0.6, 0.6))
        tab.until(open_dialog)
        assert tab.page.input_value("#pixel-mm") == "0.6"
        assert tab.text("pixel-keep") == "Keep 0.4 mm"
        tab.click("pixel-keep")
        tab.until("!scopereg.model.state.asks")
        assert sizes.of((20, 12)) == (0.4, 0.4)


def test_pause_step_and_record(tab: Tab, patients: Patients, tmp_path: Path) -> None:
    with patients.serve(tmp_path, paused=True) as served:
        tab.page.goto(served.web.url)
        tab.until("scopereg.model.volume && scopereg.model.state.paused")
        for number in (1, 2):
            tab.click("step")
            tab.until(f"scopereg.model.update && scopereg.model.update.number === {number}")
        tab.click("record")
        tab.page.fill("#record-name", "sweep of today")
        tab.page.press("#record-name", "Enter")
        tab.until("scopereg.model.state.recording")
        tab.click("pause")
        tab.until("scopereg.model.state.recording.frames >= 3")
        assert "frames" in tab.text("record-words")
        tab.click("record")
        tab.until("!scopereg.model.state.recording && scopereg.model.state.recorded.length")
        tab.until("document.querySelector('#notices').textContent.includes('sweep of today')")
    cine = read_cine(tmp_path / "recordings" / "sweep of today.igs.mha")
    assert len(cine) >= 3
    assert cine[0].shape == (128, 128)
    assert cine[0].numpy().max() > 0


def test_another_volume_is_chosen_or_uploaded(tab: Tab, patients: Patients, tmp_path: Path) -> None:
    with serve(tmp_path, volumes=patients.volumes, largest_upload=2**24) as served:
        tab.open(served.web.url)
        tab.click("volume")
        tab.page.click("#volume-list button:has-text('second')")
        tab.until("scopereg.model.volume.info.name === 'second.nii.gz'")
        tab.until("scopereg.model.update.generation === scopereg.model.volume.info.generation && scopereg.model.placed")
        assert tab.ask("scopereg.model.volume.shape") == [128, 128, 32]
        own = small_volume(seed=5)
        path = io.write_volume(own, tmp_path / "own.mha")
        tab.click("volume")
        tab.page.set_input_files("#file", path)
        tab.until("scopereg.model.volume.info.name === 'own.mha'")
        shown = np.array(tab.ask("[...scopereg.model.volume.voxels]")).reshape(own.shape)
        assert np.abs(shown - own.numpy() * 255).max() <= 0.51


def test_a_file_that_is_no_volume_is_refused_in_words(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "bad.nii.gz").write_bytes(b"no volume at all")
    with serve(tmp_path) as served, new_tab(browser, complains=True) as tab:  # the browser notes the status 4xx
        tab.open(served.web.url)
        tab.click("volume")
        tab.page.set_input_files("#file", tmp_path / "bad.nii.gz")
        tab.page.wait_for_selector("#notices .error:has-text('bad.nii.gz was not taken')")
        assert tab.ask("scopereg.model.volume.info.name") == "first.nii.gz"
        assert served.is_alive()


def test_keys(tab: Tab, tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        tab.open(served.web.url)
        press = tab.page.keyboard.press
        press("Space")
        tab.until("scopereg.model.state.paused")
        number = served.loop.counters()["registered"]
        tab.until(f"scopereg.model.update.number === {number}")
        press(".")
        tab.until(f"scopereg.model.update.number === {number + 1}")
        for key, name, value in (("f", "follow", False), ("e", "evidence", False), ("v", "marching", True)):
            press(key)
            assert tab.ask(f"scopereg.model.{name}") is value
            assert tab.page.get_attribute(f"#{name}", "aria-pressed") == str(value).lower()
        press("]")
        assert tab.ask("scopereg.model.weight") == pytest.approx(0.55)
        press("2")
        assert tab.page.is_visible("#coronal")
        assert not tab.page.is_visible("#axial")
        press("Escape")
        assert tab.page.is_visible("#axial")
        layer = tab.ask("Math.round(scopereg.model.cursor[2])")
        tab.page.focus("#axial .lines")
        press("ArrowUp")
        assert tab.ask("Math.round(scopereg.model.cursor[2])") == layer + 1
        press("?")
        assert tab.page.is_visible("#help-dialog")
        press("Escape")
        assert not tab.page.is_visible("#help-dialog")


def test_mouse_on_a_plane(tab: Tab, tmp_path: Path) -> None:
    with serve(tmp_path) as served:
        tab.open(served.web.url)
        box = tab.page.locator("#axial .lines").bounding_box()
        assert box is not None
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        mouse = tab.page.mouse
        mouse.move(*middle)
        before = tab.ask("scopereg.model.cursor[2]")
        mouse.wheel(0, 100)
        tab.until(f"scopereg.model.cursor[2] !== {before}")
        assert tab.ask("scopereg.model.follow") is False
        mouse.down(button="right")
        mouse.move(middle[0] + 40, middle[1] - 20)
        mouse.up(button="right")
        assert tab.ask("[scopereg.model.low, scopereg.model.high]") == [0, 215]
        _twice(tab, lambda: mouse.dblclick(*middle))
        assert not tab.page.is_visible("#space")


@pytest.mark.parametrize("size", [(1024, 768), (768, 1024)])
def test_on_a_tablet(browser: Browser, tmp_path: Path, size: tuple[int, int]) -> None:
    screen = {"viewport": {"width": size[0], "height": size[1]}, "has_touch": True, "device_scale_factor": 2}
    with serve(tmp_path) as served, new_tab(browser, **screen) as tab:
        tab.open(served.web.url)
        small = tab.ask(
            "[...document.querySelectorAll('button, select, input[type=range]')].map((e) => [e.id || e.className, "
            "e.getBoundingClientRect()]).filter(([, r]) => r.width && Math.min(r.width, r.height) < 44).map(([n]) => n)"
        )
        assert small == []
        assert tab.ask("document.documentElement.scrollHeight <= innerHeight")
        tab.page.tap("#pause")
        tab.until("scopereg.model.state.paused")
        box = tab.page.locator("#axial .lines").bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        _pinch(tab, x, y)
        assert tab.ask("scopereg.planes[0].zoom") > 1.5
        _twice(tab, lambda: [tab.page.touchscreen.tap(x, y) for _ in range(2)])
        assert not tab.page.is_visible("#coronal")
        large = tab.page.locator("#axial").bounding_box()
        assert large is not None
        assert large["width"] > 1.5 * box["width"]


def _twice(tab: Tab, tap: Callable[[], object]) -> None:
    """Tap a panel twice until it is alone: on a busy machine two taps may come too late after one another."""
    for _ in range(5):
        tap()
        if tab.page.locator(".panel.largest").count():
            return


def _pinch(tab: Tab, x: float, y: float) -> None:
    """Two fingers that move apart."""
    session = tab.page.context.new_cdp_session(tab.page)
    for kind, reach in (("touchStart", 20), ("touchMove", 35), ("touchMove", 50)):
        points = [{"x": x - reach, "y": y, "id": 0}, {"x": x + reach, "y": y, "id": 1}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_the_token_of_the_link_is_gone_from_the_address_and_all_else_works(
    browser: Browser, patients: Patients, tmp_path: Path
) -> None:
    """Opened by hand, and from another site's page, to whose links browsers bring no cookie of ours."""
    io.write_volume(small_volume(seed=4), tmp_path / "other.nii.gz")
    with patients.serve(tmp_path, token="a-good.token_1") as served, new_tab(browser) as tab:
        tab.open(served.web.url)
        assert tab.page.url == f"{served.origin}/"
        assert tab.ask("history.length") == 2  # the blank page, and this one
        assert tab.ask("document.cookie") == ""  # not for scripts
        tab.page.keyboard.press("Space")
        tab.until("scopereg.model.state.paused")
        tab.page.set_input_files("#file", tmp_path / "other.nii.gz")
        tab.until("scopereg.model.volume.info.name === 'other.nii.gz'")
        tab.page.reload()
        tab.until("scopereg.model.volume && scopereg.model.volume.info.name === 'other.nii.gz'")
    with patients.serve(tmp_path, token="a-good.token_1") as served, new_tab(browser) as tab:
        tab.page.goto("about:blank")
        tab.page.set_content(f'<a id="there" href="{served.web.url}">there</a>')
        tab.click("there")
        tab.until("window.scopereg && scopereg.timing.shown > 0 && scopereg.model.volume")
        assert tab.page.url == f"{served.origin}/"


def test_a_server_that_was_started_anew_asks_for_its_new_link(
    browser: Browser, patients: Patients, tmp_path: Path
) -> None:
    with new_tab(browser, complains=True) as tab, patients.serve(tmp_path, token="a-good.token_1") as served:
        tab.open(served.web.url)
        served.web.door.token = "another.token_2"  # as after a start
        tab.ask("scopereg.link.socket.close()")
        tab.until("document.body.innerText.includes('started anew: open the link')")
        tab.page.goto(f"{served.origin}/")
        assert "This page stays closed" in tab.page.inner_text("body")


@pytest.mark.parametrize("size", [(1440, 900), (820, 1180), (390, 844)])
def test_adjustments_stand_beside_the_pictures_and_fold_away(
    browser: Browser, tmp_path: Path, size: tuple[int, int]
) -> None:
    wide, phone = size[0] >= 1280, size[0] <= 600
    screen = {"viewport": {"width": size[0], "height": size[1]}}
    with serve(tmp_path) as served, new_tab(browser, **screen) as tab:
        tab.open(served.web.url)
        assert tab.page.is_visible("#panel") == wide
        if not wide:
            tab.page.keyboard.press("l")
        drawn(tab)
        for name in ("level", "opacity", "follow"):
            assert tab.page.is_visible(f"#{name}")
        # A drawer lies over the page of a phone, which can be scrolled from under it; nothing else covers a picture.
        over = "button, input, select, summary" if not phone else "main button, main input"
        covered = tab.ask(
            "[...document.querySelectorAll('" + over + "')].filter((e) => { const a = e.getBoundingClientRect();"
            "return a.width && [...document.querySelectorAll('.stage')].some((s) => {"
            "const b = s.getBoundingClientRect(); return Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && "
            "Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 7 }) }).map((e) => e.id || e.className)"
        )
        assert covered == []
        assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
        assert phone or tab.ask("document.documentElement.scrollHeight <= innerHeight")
        tab.click("panel-close")
        assert not tab.page.is_visible("#panel")
        tab.click("look")
        assert tab.page.is_visible("#panel")
        tab.click("look")
        tab.page.reload()
        tab.until("window.scopereg && scopereg.timing.shown > 0")
        assert not tab.page.is_visible("#panel")  # also on a wide screen: it stays as it was left


def test_3d_is_large_and_nothing_of_the_volume_stands_before_the_frame(
    tab: Tab, patients: Patients, tmp_path: Path
) -> None:
    with patients.serve(tmp_path) as served:
        tab.open(served.web.url)
        tab.click("pause")
        tab.until("scopereg.model.state.paused && scopereg.model.placed")
        area = "(id) => { const r = document.getElementById(id).getBoundingClientRect(); return r.width * r.height }"
        assert tab.ask(f"({area})('space')") > 3 * tab.ask(f"({area})('axial')")
        # The eye lies before the frame, the far end of its line of sight behind it.
        sides = tab.ask(
            "(() => { const { model, scene } = scopereg; const front = scene.frontOf(model.placed, 1.5);"
            "const eye = model.volume.toIndex(scene.camera.eye(1.5)), { centre } = model.placed;"
            "const far = centre.map((value, k) => 2 * value - eye[k]);"
            "return [eye, far].map((p) => p[0] * front[0] + p[1] * front[1] + p[2] * front[2] + front[3]) })()"
        )
        assert sides[0] > 0 > sides[1]
        for key, opened in (("x", False), ("x", True)):
            tab.page.keyboard.press(key)
            assert tab.ask("scopereg.model.opened") is opened
        tab.click("layout-planes")
        assert tab.ask(f"({area})('space')") == pytest.approx(tab.ask(f"({area})('axial')"), rel=0.02)
        assert "by universal" in tab.text("verdict-method") or "by narrow" in tab.text("verdict-method")
