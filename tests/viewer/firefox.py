"""A real Firefox without a window, driven over WebDriver BiDi, which it speaks by itself; no tests.

Playwright drives its own build of Firefox alone. What the tests need of that protocol is little: a page, a size, the
value of an expression, keys, the mouse, and what the page complains of.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

NAMES = ("firefox-esr", "firefox")
_LISTENING = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
_START_S, _ANSWER_S = 60.0, 60.0
# WebGL in software where there is no graphics card; and no word to anybody but the page.
_PREFERENCES: Mapping[str, object] = {
    "webgl.force-enabled": True,
    "browser.shell.checkDefaultBrowser": False,
    "browser.download.folderList": 2,
    "browser.download.useDownloadDir": True,
    "browser.download.always_ask_before_handling_new_types": False,
    "app.update.disabledForTesting": True,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
}
_KEYS = {"Enter": "\ue007", "ArrowRight": "\ue014", "ArrowLeft": "\ue012", "Space": " ", "Escape": "\ue00c"}


@contextmanager
def firefox() -> Iterator[Firefox]:
    """A browser of this system; the test is skipped where there is none. Without Xvfb it has no WebGL."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed ('make browser' as root installs one)")
    folder = Path(tempfile.mkdtemp(prefix="scopereg-firefox-"))
    downloads = folder / "downloads"
    downloads.mkdir()
    preferences = {**_PREFERENCES, "browser.download.dir": str(downloads)}
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in preferences.items()]
    (folder / "user.js").write_text("\n".join(lines), encoding="utf-8")
    command = [found, "--headless", "--no-remote", "--profile", str(folder), "--remote-debugging-port", "0"]
    with _screen() as environment:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
        )
        try:
            yield from _driven(process, downloads)
        finally:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _screen() -> Iterator[dict[str, str]]:
    """Where Firefox finds what draws: it asks a screen for it, though it shows no window there."""
    found = shutil.which("Xvfb")
    if os.environ.get("DISPLAY") or found is None:
        yield dict(os.environ)
        return
    screen = subprocess.Popen(
        [found, "-displayfd", "1", "-nolisten", "tcp"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert screen.stdout is not None
        yield {**os.environ, "DISPLAY": f":{screen.stdout.readline().strip()}"}
    finally:
        screen.kill()
        screen.communicate()


def _driven(process: subprocess.Popen[str], downloads: Path) -> Iterator[Firefox]:
    with connect(f"{_address(process)}/session", max_size=2**28, compression=None) as socket:
        yield Firefox(socket, downloads)
        with suppress(Exception):
            socket.send(json.dumps({"id": 0, "method": "browser.close", "params": {}}))
            process.wait(10)


def _address(process: subprocess.Popen[str]) -> str:
    """Where it listens, which it says when it has started; the rest that it says is read too, and forgotten."""
    found: list[str] = []
    told = threading.Event()

    def read() -> None:
        assert process.stderr is not None
        with suppress(ValueError):  # closed while it is read
            for line in process.stderr:
                if match := _LISTENING.search(line):
                    found.append(match[1])
                    told.set()

    threading.Thread(target=read, daemon=True).start()
    assert told.wait(_START_S), "Firefox did not start"
    return found[0]


class Firefox:
    """One page in it, and what went wrong there."""

    def __init__(self, socket: ClientConnection, downloads: Path) -> None:
        self._socket, self.downloads = socket, downloads
        self._count = 0
        self.complaints: list[str] = []  # errors on the console, exceptions that nobody caught
        self.do("session.new", capabilities={})
        self.do("session.subscribe", events=["log.entryAdded"])
        self._page = self.do("browsingContext.create", type="tab")["context"]

    def do(self, method: str, **parameters: Any) -> Any:
        """One command, and its answer; events that come before it are looked at."""
        self._count += 1
        number = self._count
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        end_s = time.monotonic() + _ANSWER_S
        while True:
            message = json.loads(self._socket.recv(max(end_s - time.monotonic(), 0)))
            if message.get("method") == "log.entryAdded" and message["params"]["level"] == "error":
                self.complaints.append(message["params"]["text"])
            if message.get("id") == number:
                assert message["type"] == "success", message
                return message["result"]

    def resize(self, width: int, height: int) -> None:
        self.do("browsingContext.setViewport", context=self._page, viewport={"width": width, "height": height})

    def open(self, url: str) -> Firefox:
        """Go there and wait for the first picture."""
        self.do("browsingContext.navigate", context=self._page, url=url, wait="complete")
        self.until("window.scopereg && scopereg.timing.shown > 0 && scopereg.model.volume")
        return self

    def leave(self) -> None:
        self.do("browsingContext.navigate", context=self._page, url="about:blank", wait="complete")

    def ask(self, script: str) -> Any:
        """The value of an expression in the page."""
        packed = f"(async () => JSON.stringify(await ({script})))()"
        answer = self.do("script.evaluate", expression=packed, target={"context": self._page}, awaitPromise=True)
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return json.loads(answer["result"]["value"]) if "value" in answer["result"] else None

    def until(self, script: str, seconds: float = 30.0) -> None:
        """Wait until an expression is true in the page."""
        end_s = time.monotonic() + seconds
        while not self.ask(f"Boolean({script})"):
            assert time.monotonic() < end_s, f"never true: {script}"
            time.sleep(0.02)

    def press(self, key: str) -> None:
        value = _KEYS.get(key, key)
        steps = [{"type": kind, "value": value} for kind in ("keyDown", "keyUp")]
        self._act([{"type": "key", "id": "keys", "actions": steps}])

    def type(self, words: str) -> None:
        for letter in words:
            self.press(letter)

    def click(self, name: str) -> None:
        x, y = self.ask(
            f"(({{ x, y, width, height }}) => [x + width / 2, y + height / 2])"
            f"(document.getElementById('{name}').getBoundingClientRect())"
        )
        self.drag((x, y), (x, y))

    def drag(self, start: Sequence[float], end: Sequence[float]) -> None:
        """The mouse, from one place to another."""
        moves = [{"type": "pointerMove", "x": round(x), "y": round(y)} for x, y in (start, end)]
        down, up = ({"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp"))
        self._act([{"type": "pointer", "id": "mouse", "actions": [moves[0], down, moves[1], up]}])

    def _act(self, actions: list[dict[str, Any]]) -> None:
        self.do("input.performActions", context=self._page, actions=actions)

    def download(self, press: Callable[[], object], path: Path) -> Path:
        """What the browser keeps when something is pressed."""
        before = set(self.downloads.iterdir())
        press()
        end_s = time.monotonic() + 30
        while True:
            new = [file for file in self.downloads.iterdir() if file not in before]
            if new and not any(file.suffix == ".part" for file in new) and all(file.stat().st_size for file in new):
                return new[0].rename(path)
            assert time.monotonic() < end_s, "nothing was kept"
            time.sleep(0.02)

    def screenshot(self, path: Path) -> None:
        shot = self.do("browsingContext.captureScreenshot", context=self._page)
        path.write_bytes(base64.b64decode(shot["data"]))
