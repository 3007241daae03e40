"""The page of live and view: a show on the address that the options name, told and opened in the browser."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from typing import TYPE_CHECKING

from rich.console import Console

from scopereg.commands.shared import PageOptions
from scopereg.viewer.door import is_loopback, new_token
from scopereg.viewer.web import WebServer

if TYPE_CHECKING:
    from scopereg.viewer.hub import Show


def open_page(options: PageOptions, show: Show, console: Console) -> WebServer:
    """A server that runs, its address printed. One that other machines reach gets a token."""
    remote = not is_loopback(options.host)
    token = options.token or (new_token() if remote else None)
    server = WebServer(show, options.host, options.port, token=token).start()
    console.print(f"viewer  {server.url}")
    if remote:
        made = "" if options.token else "; this one was made for this run (--token chooses another)"
        console.print(f"note    other machines reach this page: the address holds the token that lets them in{made}")
        console.print("note    nothing is encrypted: use it in a network that you trust, or through ssh -L")
    if options.open and has_screen():
        threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
    return server


def has_screen() -> bool:
    """Whether a browser could show itself; in a terminal alone it would take over the terminal."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
