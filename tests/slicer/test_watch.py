"""The light: what it shows, and when it goes out."""

from __future__ import annotations

import pytest
from ScopeRegLiveLib.light import STALE_S, light_of
from ScopeRegLiveLib.report import Report
from ScopeRegLiveLib.watch import Watch

from scopereg.registration.result import WORDS

GOOD = '{"ok": true, "method": "m", "expected_mm": 1.0, "confidence": 0.9, "reason": ""}'
RED = '{"ok": false, "method": null, "reason": "no frame"}'


def shown(watch: Watch, now_s: float, connected: bool = True) -> tuple[str, str]:
    light = watch.light(now_s, connected=connected)
    return light.colour, light.word


def test_it_goes_out_when_nothing_new_comes() -> None:
    watch = Watch()
    assert shown(watch, 50.0) == ("grey", "WAITING")
    watch.hear_text(GOOD, 100.0)
    assert shown(watch, 100.0 + STALE_S) == ("green", "LOCATED")
    assert shown(watch, 100.1 + STALE_S) == ("grey", "STALE")
    assert "for 7 s" in watch.light(107.2, connected=True).reason
    watch.hear_text(RED, 108.0)
    assert shown(watch, 108.5) == ("red", "NOT FOUND")
    assert watch.light(108.5, connected=True).reason == "no frame"


def test_it_goes_out_at_once_when_the_connection_is_lost() -> None:
    watch = Watch()
    watch.hear_text(GOOD, 100.0)
    assert shown(watch, 100.0, connected=False) == ("grey", "NOT CONNECTED")


def test_text_that_cannot_be_read_does_not_keep_it_lit() -> None:
    watch = Watch()
    watch.hear_text(GOOD, 100.0)
    watch.hear_text("{", 101.5)
    assert shown(watch, 101.6) == ("grey", "STALE")
    assert watch.unreadable == 1


def test_a_status_counts_where_no_text_comes() -> None:
    watch = Watch()
    watch.hear_status(2, 31, "too likely", 100.0)
    assert shown(watch, 100.5) == ("amber", "DOUBTFUL")
    watch.hear_text(RED, 101.0)
    watch.hear_status(1, 93, "", 101.01)  # the text of the same frame says more
    assert shown(watch, 101.1) == ("red", "NOT FOUND")
    watch.hear_status(1, 93, "", 103.0)  # texts no longer come
    assert shown(watch, 103.1) == ("green", "LOCATED")


def test_another_server_starts_from_nothing() -> None:
    watch = Watch()
    watch.hear_text(GOOD, 100.0)
    watch.forget()
    assert watch.report is None
    assert shown(watch, 100.1) == ("grey", "WAITING")


@pytest.mark.parametrize("colour", ["green", "amber", "red"])
def test_a_light_is_a_colour_and_a_word(colour: str) -> None:
    light = light_of(Report(True, colour), 0.0, connected=True)
    assert light.word
    assert light.word == light.word.upper()
    red, green, blue = (round(255 * part) for part in light.rgb)
    assert f"background-color: #{red:02x}{green:02x}{blue:02x};" in light.style


def test_letters_can_be_read() -> None:
    """At least 4.5 to 1 between letters and background, as WCAG asks for."""
    for colour in ("green", "amber", "red"):
        light = light_of(Report(True, colour), 0.0, connected=True)
        ink = 0.0 if "color: black" in light.style.replace("background-color", "") else 1.0
        low, high = sorted((ink, luminance(light.rgb)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, colour
    grey = light_of(None, 0.0, connected=False)
    assert 1.05 / (luminance(grey.rgb) + 0.05) >= 4.5


def luminance(rgb: tuple[float, float, float]) -> float:
    """Relative luminance of sRGB."""
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(
    ("report", "word"),
    [
        (Report(True, "green", method="m"), "LOCATED"),
        (Report(False, "amber", method="m"), "DOUBTFUL"),
        (Report(None, "amber", method="m"), "NOT JUDGED"),
        (Report(True, "amber", method="m"), "NOT JUDGED"),
        (Report(False, "red", method="m"), "REJECTED"),
        (Report(False, "red"), "NOT FOUND"),
    ],
)
def test_the_words_are_those_of_the_page(report: Report, word: str) -> None:
    assert light_of(report, 0.0, connected=True).word == word
    assert word.capitalize() in WORDS
