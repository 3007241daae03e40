"""Records: JSON and YAML within limits, values by kind, and hashes that find what was changed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scopereg.errors import ScopeRegError
from scopereg.io.records import (
    MIB,
    SMALL,
    USUAL,
    Limits,
    Record,
    parse_json,
    parse_yaml,
    read_json,
    read_yaml,
    seal,
    sealed,
)

BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {x0: 1, y0: 2}\n" + "".join(
    f"b{k}: &b{k} {{<<: [{', '.join([f'*b{k - 1}' if k else '*a'] * 3)}], z{k}: 1}}\n" for k in range(30)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not the JSON"),
        (b"\xff\xfe\x00", "not the JSON"),
        ("[" * 100_000 + "]" * 100_000, "nested deeper than 40|recursion"),
        ("[" * 50 + "]" * 50, "nested deeper than 40"),
        ("9" * 5000, "a number of 5000 digits"),
        ("[NaN]", "NaN is no number"),
        ("[-Infinity]", "-Infinity is no number"),
        ("[1e999]", "1e999 is no finite number"),
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        (json.dumps([0] * 1_000_001), "more than 1000000 values"),
        (" " * (16 * MIB + 1), "more than 16384 kB"),
    ],
)
def test_json_beyond_its_limits_is_refused_in_no_time(text: str | bytes, said: str) -> None:
    begin = time.monotonic()
    with pytest.raises(ScopeRegError, match=said) as caught:
        parse_json(text, "poses.json", "write it again")
    assert (caught.value.where, caught.value.fix) == ("poses.json", "write it again")
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: b: c", "not valid YAML"),
        (b"\xff\xfe\x00", "not valid YAML"),
        ("a: 1\na: 2", "'a' stands twice"),
        ("".join(f"k{number}: 1\n" for number in range(200_000)), "more than 1024 kB"),
        ("".join(f"k{number}: 1\n" for number in range(90_000)), "more than 10000 values"),
        ("[" * 1000 + "]" * 1000, "nested deeper than 20"),
        (BOMB, "more than 10000 values"),
        (MERGES, "more than 10000 values"),
        ("a: &a [*a]", "an alias stands within"),
        ("a: &a {b: *a}", "an alias stands within"),
        ("9" * 5000, "a number of 5000 digits"),
        ("!!bool maybe", "not valid YAML"),
        ("!!int ''", "not valid YAML"),
        ("!!timestamp 2020-99-99", "not valid YAML"),
        ("? [1, 2]\n: 3", "not valid YAML"),
        ("!!python/object/apply:os.getcwd []", "not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
    ],
)
def test_yaml_beyond_its_limits_is_refused_in_no_time(text: str | bytes, said: str) -> None:
    begin = time.monotonic()
    with pytest.raises(ScopeRegError, match=said):
        parse_yaml(text, "plan.yaml", "write it again")
    assert time.monotonic() - begin < 10


def test_what_keeps_to_the_limits_is_read_as_ever(tmp_path: Path) -> None:
    content = {"a": [1, 2.5, None, True, "x"], "b": {"c": {}}}
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert read_json(tmp_path / "a.json", "fix") == content
    (tmp_path / "a.yaml").write_text("base: &base {x: 1}\nmine: {<<: *base, y: 2}\nsame: *base\nempty:\n")
    base = {"x": 1}
    assert read_yaml(tmp_path / "a.yaml", "fix") == {
        "base": base,
        "mine": {"x": 1, "y": 2},
        "same": base,
        "empty": None,
    }
    assert parse_json("[NaN, Infinity]", "", "", finite=False)[1] == float("inf")


@pytest.mark.parametrize("read", [read_json, read_yaml])
@pytest.mark.parametrize("name", ["nowhere", "", "/dev/zero"])
def test_what_is_no_file_is_named(tmp_path: Path, read: Callable[..., Any], name: str) -> None:
    with pytest.raises(ScopeRegError, match="cannot be read: there is no such file"):
        read(tmp_path / name, "check the path")


def test_a_file_is_read_no_further_than_allowed(tmp_path: Path) -> None:
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(50 * 2**30)  # takes no room on the disk
    with pytest.raises(ScopeRegError, match="more than 1024 kB"):
        read_json(tmp_path / "a.json", "fix", limits=SMALL)
    assert Limits() == USUAL


RECORD = Record.of(
    {"text": "a", "whole": 3, "real": 0.5, "list": [1, 2.5], "yes": True, "in": {"x": "y"}, "none": None}, "file", "fix"
)


def test_values_are_taken_by_kind() -> None:
    assert (RECORD.text("text"), RECORD.whole("whole"), RECORD.number("real"), RECORD.number("whole")) == (
        "a",
        3,
        0.5,
        3,
    )
    assert (RECORD.numbers("list", 2), RECORD.truth("yes"), RECORD.record("in").text("x")) == ((1.0, 2.5), True, "y")
    assert RECORD.list("list") == [1, 2.5]
    assert (RECORD.has("none"), RECORD.has("nowhere"), RECORD.has("text")) == (False, False, True)
    assert RECORD.record("in").only("x", "y") is not None


@pytest.mark.parametrize(
    ("take", "said"),
    [
        (lambda r: r.text("whole"), "whole is 3, not a text"),
        (lambda r: r.text("text", choices=["b", "c"]), "text is 'a', not one of b, c"),
        (lambda r: r.whole("real"), "real is 0.5, not a whole number"),
        (lambda r: r.whole("yes"), "yes is True, not a whole number"),
        (lambda r: r.whole("whole", 4), "not a whole number from 4"),
        (lambda r: r.number("text"), "text is 'a', not a finite number"),
        (lambda r: r.number("real", 1, 2), "not a number from 1 to 2"),
        (lambda r: r.numbers("list", 3), "not a list of 3 finite numbers"),
        (lambda r: r.numbers("text"), "not a list of finite numbers"),
        (lambda r: r.truth("whole"), "not true or false"),
        (lambda r: r.text("nowhere"), "it has no nowhere"),
        (lambda r: r.record("list"), "it holds a list, not a mapping"),
        (lambda r: r.only("text", "whole", "real", "list", "yes", "in", "nome"), "'none', which nobody knows, did you"),
    ],
)
def test_values_that_do_not_fit_are_named(take: Callable[[Record], Any], said: str) -> None:
    with pytest.raises(ScopeRegError, match=said) as caught:
        take(RECORD)
    assert caught.value.where.startswith("file")


def test_a_number_that_no_float_holds_is_no_number() -> None:
    with pytest.raises(ScopeRegError, match="finite number"):
        Record.of({"x": 10**400}, "file", "fix").number("x")


def test_a_seal_finds_every_change() -> None:
    content = seal({"a": (1, 2.5), 3: {"b": [None, float("inf")]}})
    stored = json.loads(json.dumps(content))
    assert sealed(stored, "file", "fix") == {"a": [1, 2.5], "3": {"b": [None, float("inf")]}}
    assert seal(content) == content
    for damaged in ({**stored, "a": [1, 2.6]}, {**stored, "c": 1}, {"a": [1, 2.5]}, {}):
        with pytest.raises(ScopeRegError, match="damaged"):
            sealed(damaged, "file", "fix")
