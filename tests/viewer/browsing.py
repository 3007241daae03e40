"""A real Chromium without a window, and tabs in it that must not complain or reach out; no tests."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE, TABLET, DESK = ({"width": w, "height": h} for w, h in ((390, 844), (820, 1180), (1280, 800)))
# Text of the page whose ratio to the ground behind it is too low, with that ratio.
FAINT = """(() => { const rgb = (c) => [...c.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
  const linear = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const bright = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c[3] === 1) return c } return [255, 255, 255] };
  return [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility({ visibilityProperty: true })
    && !e.closest('svg, :disabled, .unseen') && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .map((e) => { const s = getComputedStyle(e);
      const [a, b] = [bright(rgb(s.color)), bright(ground(e))].sort((x, y) => y - x);
      const size = parseFloat(s.fontSize), large = size >= 24 || (size >= 18.66 && s.fontWeight >= 700);
      return [e.id || e.className || e.textContent.trim(), (a + 0.05) / (b + 0.05), large ? 3 : 4.5] })
    .filter(([, ratio, least]) => ratio < least).map(([name, ratio]) => [name, ratio.toFixed(2)]) })()"""
# WebGL in software where there is no graphics card; without a sandbox, since tests may run as root in a container.
ARGUMENTS = ["--no-sandbox", "--enable-unsafe-swiftshader"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of this system; the test is skipped where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed ('make browser' as root installs one)")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        try:
            yield running
        finally:
            running.close()


class Tab:
    """A page in the browser and what went wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []  # errors on the console, exceptions that nobody caught
        self.hosts: set[str] = set()  # that were asked for anything
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._see(request.url))
        page.on("websocket", lambda socket: self._see(socket.url))
        page.set_default_timeout(30_000)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def _see(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob", "file", "about"):
            self.hosts.add(parts.netloc)

    def open(self, url: str) -> Tab:
        """Go there and wait for the first picture."""
        self.page.goto(url)
        self.until("scopereg.timing.shown > 0 && scopereg.model.volume")
        return self

    def ask(self, script: str) -> Any:
        """The value of an expression in the page."""
        return self.page.evaluate(script)

    def until(self, script: str, seconds: float = 30.0) -> None:
        """Wait until an expression is true in the page. Asked from here: the page's own policy forbids eval."""
        end_s = time.monotonic() + seconds
        while not self.page.evaluate(f"Boolean({script})"):
            assert time.monotonic() < end_s, f"never true: {script}"
            self.page.wait_for_timeout(20)

    def click(self, name: str) -> None:
        self.page.click(f"#{name}")

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def type(self, words: str) -> None:
        self.page.keyboard.type(words)

    def drag(self, start: Sequence[float], end: Sequence[float]) -> None:
        """The mouse, from one place to another."""
        mouse = self.page.mouse
        mouse.move(*start)
        mouse.down()
        mouse.move(*end, steps=2)
        mouse.up()

    def resize(self, width: int, height: int) -> None:
        self.page.set_viewport_size({"width": width, "height": height})

    def download(self, press: Callable[[], object], path: Path) -> Path:
        """What the browser keeps when something is pressed."""
        with self.page.expect_download() as download:
            press()
        download.value.save_as(path)
        return path

    def screenshot(self, path: Path) -> None:
        self.page.screenshot(path=path)

    def text(self, name: str) -> str:
        return self.page.inner_text(f"#{name}")


@contextmanager
def new_tab(browser: Browser, *, complains: bool = False, **options: Any) -> Iterator[Tab]:
    """A tab of its own; it must have kept quiet, unless something is to go wrong in it."""
    context = browser.new_context(**{"viewport": DESK, **options})
    try:
        tab = Tab(context.new_page())
        yield tab
        assert complains or not tab.complaints, tab.complaints
        assert len(tab.hosts) <= 1, tab.hosts
    finally:
        context.close()


# Bytes of a canvas, its red channel alone.
RED = """(name) => { const c = document.querySelector(name);
  return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, k) => k % 4 === 0) }"""


def red(tab: Tab, selector: str) -> np.ndarray:
    """The picture on a canvas (H, W)."""
    columns = tab.ask(f"document.querySelector('{selector}').width")
    return np.array(tab.ask(f"({RED})('{selector}')")).reshape(-1, columns)


def drawn(tab: Tab) -> None:
    """Wait until what was asked for is on the screen."""
    tab.ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
