"""Show: what the server of the viewer needs to be told and may ask; live loops and finished results are both one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from scopereg import __version__
from scopereg.live.counters import Counters
from scopereg.viewer.voxels import Voxels


class Show(Protocol):
    """Something to look at. Any thread may call anything; nothing takes long but `do` and `load`."""

    counters: Counters  # what pages did, and what went wrong with them; the server counts here

    def state(self) -> dict[str, Any]:
        """All that a page must know besides the pictures, ready for JSON; see `base_state`."""

    def voxels(self) -> Voxels | None:
        """The volume that is shown now."""

    def packet(self) -> tuple[int, bytes] | None:
        """The newest picture: a number that rises with every new one, and its packet. None while there is none."""

    def do(self, request: Mapping[str, Any]) -> str:
        """What a page asks for, such as {"do": "pause"}; a word on what was done, or a ScopeRegError."""

    def load(self, path: Path, name: str) -> None:
        """Show another volume from a file that an upload left; a ScopeRegError if it is none. The file may go then."""

    @property
    def largest_upload(self) -> int:
        """Bytes; 0 where nothing may be uploaded."""


def base_state(mode: str, **facts: Any) -> dict[str, Any]:
    """A state with every part that a page expects; `facts` in place of what is usual."""
    usual: dict[str, Any] = {
        "type": "state",
        "version": __version__,
        "mode": mode,
        "volume": None,
        "volumes": [],
        "source": "",
        "method": "",
        "can": [],
        "paused": False,
        "recording": None,
        "recorded": [],
        "finished": False,
        "counters": {},
        "last_fault": "",
        "results": None,
    }
    assert set(facts) <= set(usual), set(facts) - set(usual)
    return {**usual, **facts}
