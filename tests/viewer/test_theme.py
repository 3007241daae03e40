"""Light and dark: what is chosen, what is drawn, and whether all that is written can be read in both."""

from __future__ import annotations

import re
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from browsing import FAINT, Tab, drawn, new_tab, red
from serving import serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser

STATIC = Path(sys.modules["scopereg"].__file__ or "").parent / "viewer" / "static"
READABLE = 4.5  # WCAG 2 AA for text; 3 where it is large

# Of each pair, text on ground; colours of lights are words and numbers too.
GROUNDS = ("back", "panel", "raised", "hover")
PAIRS = [
    *product(("ink", "soft", "dim", "blue"), GROUNDS),
    *product(("ink", "soft", "dim"), ("good-back", "fair-back", "bad-back")),
    *(("green", "good-back"), ("amber", "fair-back"), ("red", "bad-back"), ("red", "panel"), ("red", "back")),
    *(("pressed-ink", "pressed"), ("main-ink", "main"), ("note-ink", "note"), ("fault-ink", "fault")),
    *(("soft", "space"), ("dim", "space"), ("over", "picture"), ("green", "panel"), ("amber", "panel")),
]


def colours(name: str) -> dict[str, str]:
    """The colours of a sheet by their names."""
    css = (STATIC / name).read_text(encoding="utf-8")
    assert css.count(":root") == 1
    root = css[css.index(":root") : css.index("}")]
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,8});", root))


def brightness(colour: str) -> float:
    """Relative luminance (WCAG 2)."""
    digits = "".join(2 * digit for digit in colour[1:]) if len(colour) < 7 else colour[1:]
    channels = np.array([int(digits[at : at + 2], 16) for at in (0, 2, 4)]) / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    dark, light = sorted((brightness(a), brightness(b)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000", "#fff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)  # the faintest grey that passes on white


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_text_of_every_colour_can_be_read_on_its_ground(theme: str) -> None:
    known = colours("style.css") | (colours("light.css") if theme == "light" else {})
    faint = {pair: contrast(*(known[name] for name in pair)) for pair in PAIRS}
    assert {pair: ratio for pair, ratio in faint.items() if ratio < READABLE} == {}


def test_the_light_theme_has_another_colour_for_all_but_what_lies_over_pictures() -> None:
    missing = colours("style.css").keys() - colours("light.css").keys()
    assert missing == {"picture", "over", "brighter", "darker"}
    assert colours("light.css").keys() <= colours("style.css").keys()


def test_no_colour_stands_elsewhere() -> None:
    for sheet in ("style.css", "light.css"):
        css = (STATIC / sheet).read_text(encoding="utf-8")
        rules = css[css.index("}") :]
        assert re.findall(r":[^;{}]*(#[0-9a-f]{3,8}\b|rgba?\()[^{}]*;", rules) == []


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_what_is_written_can_be_read(browser: Browser, tmp_path: Path, theme: str) -> None:
    with serve(tmp_path) as served, new_tab(browser, color_scheme=theme) as tab:
        tab.open(served.web.url)
        for part in ("part-page", "part-look"):
            tab.ask(f"document.getElementById('{part}').open = true")
        for light in ("green", "amber", "red", "none"):
            tab.ask(f"void (document.querySelector('#verdict').dataset.light = '{light}')")
            assert tab.ask(FAINT) == []
        for dialog in ("help-dialog", "record-dialog"):
            tab.ask(f"document.getElementById('{dialog}').showModal()")
            assert tab.ask(FAINT) == []
            tab.ask(f"document.getElementById('{dialog}').close()")
        tab.ask("scopereg.notice('error', 'a fault'), scopereg.notice('info', 'a word')")
        assert tab.ask(FAINT) == []


BACK = "getComputedStyle(document.body).backgroundColor"
# What the graphics card has drawn, at a corner where there is nothing but the space.
CORNER = """(() => { const { scene } = scopereg, { gl } = scene.graphics, found = new Uint8Array(4);
  scene.render(1); gl.readPixels(1, 1, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, found); return [...found] })()"""


def test_the_theme_is_that_of_the_system_until_one_is_chosen(browser: Browser, tmp_path: Path) -> None:
    with serve(tmp_path) as served, new_tab(browser, color_scheme="light") as tab:
        tab.open(served.web.url)
        dark, light = (rgb_of(colours(sheet)["back"]) for sheet in ("style.css", "light.css"))
        assert tab.ask(BACK) == f"rgb{light}"
        drawn_in(tab, "light")
        tab.page.emulate_media(color_scheme="dark")
        tab.until(f"{BACK} === 'rgb{dark}'")
        drawn_in(tab, "dark")
        tab.ask("document.getElementById('part-page').open = true")
        tab.click("theme-light")
        assert tab.ask(BACK) == f"rgb{light}"
        tab.page.reload()
        tab.until("window.scopereg && scopereg.timing.shown > 0 && scopereg.model.volume")
        drawn_in(tab, "light")
        assert tab.page.get_attribute("#theme-light", "aria-pressed") == "true"
        tab.ask("document.getElementById('part-page').open = true")
        tab.click("theme-system")
        assert tab.ask(BACK) == f"rgb{dark}"


def rgb_of(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))


def drawn_in(tab: Tab, theme: str) -> None:
    """Charts and the view in 3D have the colours of a theme."""
    drawn(tab)
    known = colours("style.css") | (colours("light.css") if theme == "light" else {})
    assert np.abs(np.subtract(tab.ask(CORNER)[:3], rgb_of(known["space"]))).max() <= 2
    axis = tab.ask(
        "(() => { const c = document.querySelector('#trace'), d = c.getContext('2d').getImageData(0, 0, c.width, "
        "c.height).data; let found = {}; for (let k = 0; k < d.length; k += 4) if (d[k + 3] === 255) { const key = "
        "[d[k], d[k + 1], d[k + 2]]; found[key] = (found[key] || 0) + 1 } return found })()"
    )
    assert axis.get(",".join(map(str, rgb_of(known["rule"]))), 0) > 50


def test_black_within_a_picture_is_no_hole_in_3d(tab: Tab, tmp_path: Path) -> None:
    """Against lines of black from the faces, found by running sums."""
    with serve(tmp_path) as served:
        tab.open(served.web.url)
        for shape in ((1, 9, 12), (6, 9, 12)):
            values = np.random.default_rng(3).integers(0, 2, shape, np.uint8) * 7
            found = tab.ask(
                "import('/static/solid.js').then(({ solid }) => "
                f"[...solid(new Uint8Array({values.ravel().tolist()}), {list(shape[::-1])})])"
            )
            around = np.zeros(shape, bool)
            for axis in (axis for axis in range(3) if shape[axis] > 1):
                around |= (values.cumsum(axis) == 0) | (np.flip(np.flip(values, axis).cumsum(axis), axis) == 0)
            wanted = np.where((values == 0) & ~around, 1, values)
            np.testing.assert_array_equal(np.reshape(found, shape), wanted)
            assert (wanted == 1).any()
            assert (wanted == 0).any()


def test_a_chessboard_of_squares_in_millimetres(tab: Tab, tmp_path: Path) -> None:
    with serve(tmp_path) as served:  # pixels of 0.5 x 0.6 mm, 14 x 10 of them
        tab.open(served.web.url)
        tab.click("pause")
        tab.until("scopereg.model.state.paused && scopereg.model.update")
        tab.page.keyboard.press("c")
        for _ in range(2):
            tab.page.keyboard.press("]")
        assert tab.text("mix-caption") == f"Tiles of {14 * 0.5 / 4:.1f} mm"
        assert tab.page.is_visible("#tile")
        assert not tab.page.is_visible("#weight")
        drawn(tab)
        mixed, frame, cut = (red(tab, f"#{name}-picture") for name in ("mixed", "frame", "volume"))
        rows, columns = np.mgrid[:10, :14]
        ours = (np.floor(columns / 3.5) + np.floor(rows / (1.75 / 0.6))) % 2 == 0
        np.testing.assert_array_equal(mixed, np.where(ours, frame, cut))
        tinted = tab.ask(
            "(() => { const c = document.querySelector('#mixed-marks'); const { data } = c.getContext('2d')"
            ".getImageData(0, 0, c.width, c.height); let n = 0; for (let k = 2; k < data.length; k += 4) n += "
            "data[k + 1] > 30 && data[k] > 200; return n / (c.width * c.height) })()"
        )
        assert 0.35 < tinted < 0.75  # about half of it is the volume's
        tab.page.fill("#tile", "0")
        tab.page.locator("#tile").blur()
        tab.page.keyboard.press("[")  # there is none smaller
        assert tab.ask("scopereg.model.tile") == 0
