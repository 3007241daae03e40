"""Watch: remembers the last report and when it came, and gives the light for now."""

from __future__ import annotations

from ScopeRegLiveLib.light import STALE_S, Light, light_of
from ScopeRegLiveLib.report import Report, report_of_status, report_of_text


class Watch:
    """Times are seconds of any clock that never goes back."""

    report: Report | None
    unreadable: int  # texts that were no report

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start again, such as with another server."""
        self.report = None
        self.unreadable = 0
        self._heard_s = 0.0
        self._told_s: float | None = None  # when the last text came, which says more than a status

    def hear_text(self, text: str | None, now_s: float) -> None:
        """Take the text of a STRING."""
        report = report_of_text(text)
        if report is None:
            self.unreadable += 1
            return
        self.report, self._heard_s, self._told_s = report, now_s, now_s

    def hear_status(self, code: int, percent: int, text: str | None, now_s: float) -> None:
        """Take a STATUS, unless texts come too."""
        if self._told_s is None or now_s - self._told_s > STALE_S:
            self.report, self._heard_s = report_of_status(code, percent, text), now_s

    def light(self, now_s: float, *, connected: bool) -> Light:
        return light_of(self.report, now_s - self._heard_s, connected=connected)
