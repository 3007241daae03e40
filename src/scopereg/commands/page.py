"""The page of live and view: a show on the address that the options name, told and opened in the browser."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console

from scopereg.commands.flags import in_flags
from scopereg.commands.shared import OverlayOptions, PageOptions
from scopereg.errors import ScopeRegError
from scopereg.viewer.certificate import read_certificate
from scopereg.viewer.door import is_loopback, new_token
from scopereg.viewer.web import WebServer

if TYPE_CHECKING:
    from scopereg.viewer.hub import Show
    from scopereg.viewer.overlays import Overlays


def open_page(options: PageOptions, show: Show, console: Console) -> WebServer:
    """A server that runs, its address printed with the token that lets in who opens it."""
    remote = not is_loopback(options.host)
    certificate = read_certificate(*options.tls) if options.tls else None
    words = partial(in_flags, options=type(options))
    server = WebServer(
        show, options.host, options.port, token=_token(options, remote), certificate=certificate, words=words
    ).start()
    console.print(f"viewer  {server.url}")
    for note in _notes(options, remote, certificate.note if certificate is not None else ""):
        console.print(f"note    {note}")
    if options.open and has_screen():
        threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
    return server


def read_overlays(options: OverlayOptions) -> Overlays:
    """What lies over the volume, from files."""
    from scopereg.io.labels import read_labels
    from scopereg.io.landmarks import read_landmarks
    from scopereg.viewer.overlays import Overlays

    return Overlays(
        None if options.labels is None else read_labels(options.labels),
        None if options.landmarks is None else read_landmarks(options.landmarks),
    )


def print_overlay_notes(console: Console, show: Show) -> None:
    """What is to be said of them, now that they lie over the volume."""
    from scopereg.viewer.overlays import notes_of

    voxels = show.voxels()
    for note in () if voxels is None else notes_of(voxels):
        console.print(f"note    {note}")


def has_screen() -> bool:
    """Whether a browser could show itself; in a terminal alone it would take over the terminal."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _token(options: PageOptions, remote: bool) -> str | None:
    if not options.no_token:
        return options.token or new_token()
    if options.token is not None:
        raise ScopeRegError("a token and none", where="--token and --no-token", fix="leave one of them out")
    if remote:
        raise ScopeRegError(
            f"without a token everybody who reaches {options.host} could use the page",
            where="--no-token",
            fix="leave it out, or serve this machine alone: --host 127.0.0.1",
        )
    return None


def _notes(options: PageOptions, remote: bool, certificate_note: str) -> list[str]:
    notes = [certificate_note] if certificate_note else []
    if options.no_token:
        notes.append("no token: every program and every user of this machine may use the page")
    if remote:
        made = "" if options.token else "; this one was made for this run (--token chooses another)"
        notes.append(f"other machines reach this page: the address holds the token that lets them in{made}")
    if remote and options.tls is None:
        notes.append("nothing is encrypted: use --tls CERT KEY, a network that you trust, or ssh -L")
    return notes
