"""Plans from YAML: every key and value is checked before any work starts, and what is wrong is named with its file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from scopereg.data.registry import WORLDS, dataset_names
from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.grid.plan import FIXED, SETTING, Plan, expand, is_network
from scopereg.io.records import SMALL, parse_yaml, read_within
from scopereg.training.settings import TrainSettings

_PLANS = resources.files("scopereg.grid") / "plans"
_LOWEST = {"folds": 0, "resolutions": 8, "cases": 1, "count": 1, "frames": 0, "cpus": 0, "gpus": 0}
_FIX = "correct the line named above"
_METHOD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")  # it becomes part of a folder's name


def shipped() -> tuple[str, ...]:
    """Plans that come with the package."""
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in _PLANS.iterdir() if entry.name.endswith(".yaml")))


def read_plan(source: Path | str, changes: Sequence[str] = ()) -> Plan:
    """A plan from a file, or one of the package by its name; `changes` such as `minutes=3` win over what it says."""
    where, text = _text(source)
    content = _mapping(parse_yaml(text, where, _FIX), where, "write `key: value` lines, see docs/grid.md")
    values = {str(key).replace("-", "_"): value for key, value in content.items()}
    for change in changes:
        key, sign, value = change.partition("=")
        if not sign:
            raise ScopeRegError(f"{change!r} has no value", where="set=", fix="write KEY=VALUE, such as minutes=3")
        values[key.strip().replace("-", "_")] = parse_yaml(value, f"set= {change}", _FIX)
    hints = get_type_hints(Plan)
    _known(values, hints, where)
    made: dict[str, Any] = {"name": Path(source).stem}
    for key, value in values.items():
        if key != "methods" and value is not None:
            made[key] = _convert(value, hints[key], f"{where}: {key}")
    made["methods"] = _methods(values.get("methods"), where)
    plan = Plan(**made)
    _check(plan, where)
    expand(plan, where)  # finds what settings and names do not fit together
    return plan


def _text(source: Path | str) -> tuple[str, bytes]:
    """How to name a plan, and its text."""
    path = Path(source)
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        return str(path), read_within(path, "check the path of the plan", SMALL)
    if str(source) not in shipped():
        raise ScopeRegError(
            f"there is no plan {str(source)!r}{did_you_mean(str(source), shipped())}",
            where="scopereg grid PLAN",
            fix=f"pass the path of a YAML file, or one of {', '.join(shipped())}",
        )
    return f"plan {source}", (_PLANS / f"{source}.yaml").read_bytes()


def _mapping(value: Any, where: str, fix: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        kind = "nothing" if value is None else f"a {type(value).__name__}"
        raise ScopeRegError(f"holds {kind}, not a mapping", where=where, fix=fix)
    return value


def _known(values: Mapping[str, Any], names: Mapping[str, Any] | Sequence[str], where: str) -> None:
    for key in values:
        if key not in names:
            raise ScopeRegError(
                f"unknown key {key!r}{did_you_mean(key, names)}", where=where, fix=f"use {', '.join(names)}"
            )


def _methods(value: Any, where: str) -> dict[str, dict[str, Any]]:
    """Methods by name; a list of names is as good as a mapping without settings."""
    where = f"{where}: methods"
    if isinstance(value, list):
        if wrong := [name for name in value if not isinstance(name, str)]:
            raise ScopeRegError(
                f"an entry of the list is {str(wrong[0])[:60]}, not a name",
                where=where,
                fix="list names alone, `- identity`, or write a mapping with settings, `identity: {}`",
            )
        _no_duplicates([str(name).lower() for name in value], where)
        value = dict.fromkeys(value)
    found = _mapping(value, where, "name at least one method, such as `identity: {}`")
    if not found:
        raise ScopeRegError("there are none", where=where, fix="name at least one method, such as `identity: {}`")
    _no_duplicates([str(name).lower() for name in found], where)
    return {str(name): _method(str(name), settings or {}, f"{where}.{name}") for name, settings in found.items()}


def _is_method(name: str) -> bool:
    """Whether a method is called so that needs no file: a plan goes to other machines."""
    from scopereg.registration import method as methods

    try:
        return methods.parse(name).first in methods.names()
    except ScopeRegError:
        return False


def _method(name: str, settings: Any, where: str) -> dict[str, Any]:
    """The settings of a method, each of its type; what it is must be known."""
    from scopereg import networks
    from scopereg.registration import method as methods

    if not _METHOD_NAME.fullmatch(name):
        raise ScopeRegError("a name for folders", where=where, fix="use letters, digits and . _ + - alone")
    given = _mapping(settings, where, "write {} or {key: value}")
    options = {str(key).replace("-", "_"): value for key, value in given.items()}
    made_by = str(options.get("method") or options.get("network") or name)
    if "method" in options or not (is_network(made_by) or "network" in options):
        if not _is_method(made_by):
            choices = methods.names() if "method" in options else (*networks.names(), *methods.names())
            raise ScopeRegError(
                f"unknown method {made_by!r}{did_you_mean(made_by, choices)}",
                where=where,
                fix=f"use one of {', '.join(choices)}, or tell with `network:` or `method:` what it is",
            )
        _known(options, ("method",), where)
        return options
    if not is_network(made_by):
        raise ScopeRegError(
            f"unknown network {made_by!r}{did_you_mean(made_by, networks.names())}",
            where=where,
            fix=f"use one of {', '.join(networks.names())}",
        )
    _known(options, [key for key in SETTING if key not in FIXED], where)
    hints = get_type_hints(TrainSettings)
    return {key: _convert(value, hints[key], f"{where}.{key}") for key, value in options.items()}


def _convert(value: Any, hint: Any, where: str) -> Any:
    """A value of YAML as its field wants it; a single value where there may be several is a list of one."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        kinds = [part for part in parts if part is not type(None)]
        return None if value is None else _convert(value, kinds[0], where)
    if origin is tuple:
        items = value if isinstance(value, list) else [value]
        if not items:
            raise ScopeRegError("the list is empty", where=where, fix="name at least one, or leave the key out")
        found = tuple(_convert(item, parts[0], where) for item in items)
        _no_duplicates(found, where)
        return found
    if origin is Literal:
        if value not in parts:
            guess = did_you_mean(str(value), map(str, parts))
            raise ScopeRegError(f"{value!r}{guess}", where=where, fix=f"use {' or '.join(map(str, parts))}")
        return value
    return _plain_value(value, hint, where)


def _plain_value(value: Any, kind: type, where: str) -> Any:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if kind is float and isinstance(value, str):
        with suppress(ValueError):
            value = float(value)  # YAML takes 5e-5 for text
    good = isinstance(value, kind) or (kind is float and isinstance(value, int))
    if not good or (kind is not bool and isinstance(value, bool)):
        raise ScopeRegError(f"{value!r}", where=where, fix=f"write {words.get(kind, kind.__name__)}")
    return float(value) if kind is float else value


def _no_duplicates(values: Sequence[Any], where: str) -> None:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ScopeRegError(f"{value} stands twice", where=where, fix="name each once")


def _check(plan: Plan, where: str) -> None:
    """What needs more than one look at one key."""
    datasets = tuple(name for name in dataset_names() if name != WORLDS)
    if plan.dataset not in datasets:
        guess = did_you_mean(plan.dataset, datasets)
        raise ScopeRegError(f"{plan.dataset!r}{guess}", where=f"{where}: dataset", fix=f"use {', '.join(datasets)}")
    if plan.minutes is not None and plan.epochs is not None:
        raise ScopeRegError("both minutes and epochs are given", where=where, fix="keep one of them")
    for name, low in _LOWEST.items():
        value = getattr(plan, name)
        for each in value if isinstance(value, tuple) else (value,):
            if each is not None and not low <= each < float("inf"):
                raise ScopeRegError(f"{each}", where=f"{where}: {name}", fix=f"write {low} or more")
