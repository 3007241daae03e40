"""Light: green, amber, red or grey, with a word and a reason; never a colour alone."""

from __future__ import annotations

from typing import NamedTuple

from ScopeRegLiveLib.report import Report

STALE_S = 1.0  # without anything new, after which the last report says nothing about now

_REASONS = {
    "green": "the pose is reliable",
    "amber": "nothing tells how good this pose is",
    "red": "the pose is not reliable",
}
_RGB = {"green": (30, 132, 73), "amber": (243, 176, 28), "red": (192, 57, 43), "grey": (110, 117, 124)}
_DARK_LETTERS = ("amber",)


class Light(NamedTuple):
    """What the user sees first."""

    colour: str
    word: str
    reason: str

    @property
    def rgb(self) -> tuple[float, float, float]:
        """Red, green and blue from 0 to 1, as VTK wants them."""
        red, green, blue = _RGB[self.colour]
        return red / 255, green / 255, blue / 255

    @property
    def style(self) -> str:
        """The style sheet of a label of Qt that shows it."""
        background = "#{:02x}{:02x}{:02x}".format(*_RGB[self.colour])
        letters = "black" if self.colour in _DARK_LETTERS else "white"
        return (
            f"background-color: {background}; color: {letters}; border-radius: 6px; padding: 10px;"
            " font-size: 22px; font-weight: bold;"
        )


def light_of(report: Report | None, age_s: float, *, connected: bool) -> Light:
    """The light for the last report, which came `age_s` ago."""
    if not connected:
        return Light("grey", "NOT CONNECTED", "what is on the screen is from before" if report is not None else "")
    if report is None:
        return Light("grey", "WAITING", "connected; no frame has come yet")
    if age_s > STALE_S:
        return Light("grey", "STALE", f"nothing new for {age_s:.0f} s: what is on the screen is from before")
    return Light(report.light, _word(report), "; ".join((report.reason or _REASONS[report.light], *report.hints)))


def _word(report: Report) -> str:
    """The words are those of the page in the browser."""
    if report.light == "green":
        return "LOCATED"
    if report.light == "amber":
        return "DOUBTFUL" if report.ok is False else "NOT JUDGED"
    return "REJECTED" if report.method else "NOT FOUND"
