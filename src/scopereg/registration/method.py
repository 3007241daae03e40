"""Method: whatever finds frames in a volume, by one protocol and one grammar of names.

    NAME[:wide|:2][+refine[=LIKENESS]|+fallback|+simpleitk-mi|+simpleitk-ncc|+elastix ...]

NAME is a model of the package, a .safetensors file, a classical method, or `identity` for no registration. Behind a
network `:wide` looks all over the volume and `:2` makes two passes, each of which sees the volume from where the one
before found the frame. Every `+` goes on from the poses found so far; a refinement
compares grey values, unless it names another likeness. A fallback tries other ways where the pose is not ok.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.geometry.beam import Thickness
from scopereg.images import Volume
from scopereg.registration import model as models
from scopereg.registration.fallback import FALLBACK, AgainWay, FallbackMethod, MakeWay, MethodWay, WiderWay
from scopereg.registration.grey import GREY, make_grey
from scopereg.registration.lc2 import LC2, make_lc2
from scopereg.registration.learned import LEARNED, make_learned
from scopereg.registration.likeness import MakeLikeness
from scopereg.registration.model import Registrar
from scopereg.registration.network import NetworkMethod
from scopereg.registration.prepared import IDENTITY, Identity, Prepared
from scopereg.registration.refine import REFINE, RefinedMethod, step_name

CLASSICAL = ("simpleitk-mi", "simpleitk-ncc", "elastix")
_ALIASES = {"start": IDENTITY, "centre": IDENTITY}
_WIDE = "wide"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


class Method(Protocol):
    """Prepares a volume; what it prepares locates frames."""

    name: str  # in tables and files
    facts: dict[str, Any]  # what decides its results: settings, the hash of its weights; ready for JSON

    def prepare(self, volume: Volume) -> Prepared: ...


MakeMethod = Callable[[str], Method]  # makes a method for a device
MakeStep = Callable[[Method, str], Method]  # makes one that goes on from another's poses


def _classical(name: str, before: Method | None = None) -> Method:
    from scopereg.registration.classical import ClassicalMethod  # SimpleITK is not on every cluster

    return ClassicalMethod(name, before)


_FIRSTS: dict[str, MakeMethod] = {
    IDENTITY: lambda device: Identity(),
    **{name: partial(lambda name, device: _classical(name), name) for name in CLASSICAL},
}
_WAYS: dict[str, MakeWay] = {  # what a fallback tries, in this order
    "again": AgainWay.make,
    "wide": WiderWay.make,
    CLASSICAL[0]: lambda before, volume, device: MethodWay(
        "mutual information", partial(_classical, CLASSICAL[0]), volume
    ),
}
_STEPS: dict[str, MakeStep] = {
    REFINE: RefinedMethod,
    FALLBACK: lambda before, device: FallbackMethod(before, device, _WAYS),
    **{name: partial(lambda name, before, device: _classical(name, before), name) for name in CLASSICAL},
}

_LIKENESSES: dict[str, MakeLikeness] = {GREY: make_grey, LEARNED: make_learned, LC2: make_lc2}


def register_method(name: str, make: MakeMethod) -> None:
    """Add a method of one's own: `make(device)` is called where somebody names it."""
    _check_new(name, (*names(), *_ALIASES), "register_method(name)")
    _FIRSTS[name] = make


def register_step(name: str, make: MakeStep) -> None:
    """Add what may follow a method, as `+NAME`: `make(method_before, device)`."""
    _check_new(name, _STEPS, "register_step(name)")
    _STEPS[name] = make


def register_fallback(name: str, make: MakeWay | None = None, *, words: str = "") -> None:
    """Add what `+fallback` tries last: `make(before, volume, device)`, or the method of this name; see `fallback`."""
    _check_new(name, _WAYS, "register_fallback(name)")

    def by_name(before: Prepared, volume: Volume, device: str) -> MethodWay:
        return MethodWay(words or name, lambda: create(name, device), volume)

    if make is None:
        parse(name)  # an error if nothing is called so
    _WAYS[name] = make or by_name


def register_likeness(name: str, make: MakeLikeness) -> None:
    """Add what a refinement may compare, as `+refine=NAME`: `make(device, far)`, see `registration.likeness`."""
    _check_new(name, _LIKENESSES, "register_likeness(name)")
    _LIKENESSES[name] = make


def names() -> tuple[str, ...]:
    """Methods that need no weights of one's own."""
    return (*_FIRSTS, *models.names())


def steps() -> tuple[str, ...]:
    """What may follow any method behind a `+`."""
    return tuple(_STEPS)


def fallbacks() -> tuple[str, ...]:
    """What `+fallback` tries, in this order."""
    return tuple(_WAYS)


def likenesses() -> tuple[str, ...]:
    """What a refinement may compare."""
    return tuple(_LIKENESSES)


@dataclass(frozen=True)
class MethodName:
    """The name of a method, taken apart by `parse`."""

    first: str
    passes: int = 1
    wide: bool = False
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        behind = f":{_WIDE}" if self.wide else f":{self.passes}" if self.passes > 1 else ""
        return "+".join([f"{self.first}{behind}", *self.steps])

    @property
    def searches(self) -> bool:
        """Whether it looks for the frame at all."""
        return self.first != IDENTITY

    @property
    def falls_back(self) -> bool:
        """Whether it tries other ways where its pose is not ok."""
        return FALLBACK in self.steps

    @property
    def refines(self) -> bool:
        """Whether it ends with a refinement, a fallback aside."""
        steps = [step for step in self.steps if step != FALLBACK]
        return bool(steps) and steps[-1].partition("=")[0] == REFINE

    def also(self, *, wide: bool = False, refine: bool = False, fallback: bool = False) -> MethodName:
        """The same with what arguments ask for beside the name; what the name says already is not done twice."""
        if wide and self.passes > 1:
            raise ScopeRegError(
                f"{self} makes several passes", where="wide=", fix=f"use {self.first}, or leave wide= out"
            )
        steps = tuple(step for step in self.steps if step != FALLBACK)
        steps += (REFINE,) if refine and not self.refines else ()
        steps += (FALLBACK,) if fallback or self.falls_back else ()
        return replace(self, wide=self.wide or wide, steps=steps)

    def persistent(self, *, refine: bool | None = None, fallback: bool | None = None) -> MethodName:
        """What `register` makes of it unless told otherwise: a network alone is refined and, then, falls back.

        A name that says itself what follows is taken as it is, and so is a method that is no network.
        """
        alone = self.first not in _FIRSTS and not self.steps
        refine = alone if refine is None else refine
        return self.also(refine=refine, fallback=(alone and refine) if fallback is None else fallback)


def parse(text: str) -> MethodName:
    """A name by the grammar; an error where nothing is called so. No weights are opened."""
    rest, behind = text, list[str]()
    while "+" in rest and _step_of(rest.rpartition("+")[2]) is not None:
        rest, _, step = rest.rpartition("+")
        behind.insert(0, step.removesuffix(f"={GREY}"))
    if FALLBACK in behind[:-1]:
        raise ScopeRegError(f"in {text!r} something follows {FALLBACK}", where="method=", fix=f"end with +{FALLBACK}")
    first, colon, way = rest.rpartition(":")
    if not colon or not re.fullmatch(rf"{_WIDE}|[1-9]", way):
        first, way = rest, ""
    first = _ALIASES.get(first, first)
    if not (first in names() or Path(first).suffix == ".safetensors") or (first in _FIRSTS and way.isdigit()):
        raise ScopeRegError(
            f"unknown method {text!r}{did_you_mean(first, names())}",
            where="method=",
            fix=f"use {', '.join(names())} or a .safetensors file; behind its name may stand "
            f":{_WIDE} or :2 (networks), "
            + ", ".join(f"+{step_name(likeness)}" for likeness in _LIKENESSES)
            + f", + and a classical method, and last +{FALLBACK}",
        )
    return MethodName(first, int(way) if way.isdigit() else 1, way == _WIDE, tuple(behind))


def create(
    method: str | Path | Registrar | Method,
    device: str = "auto",
    *,
    wide: bool = False,
    refine: bool = False,
    fallback: bool = False,
    seconds: float | None = None,
    any_angle: bool = False,
    thickness_mm: float | str | None = None,
) -> Method:
    """A method by its name or of a network; `wide`, `refine` and `fallback` say the same as in the name.

    After `seconds` of a frame neither a search of the volume nor a fallback begins anything new. With `any_angle`
    networks seek frames in all of the volume, turned in their plane by any angle. Refinements compare frames as
    `thickness_mm` thicker than the volume, a number or `estimated` (`registration.thickness`).
    """
    thickness = Thickness.of(thickness_mm)
    search: dict[str, Any] = {"any_angle": any_angle, "seconds": seconds, "thickness": thickness}
    if isinstance(method, str | Path):
        name = parse(str(method)).also(wide=wide, refine=refine, fallback=fallback)
        made, fallback = _first(name, device, search), name.falls_back
        knows = isinstance(made, NetworkMethod)
        for step in name.steps:
            go_on = _step_of(step)
            assert go_on is not None, step
            made = made if step == FALLBACK else _of_thick(go_on(made, device), thickness)
    else:
        if isinstance(method, Registrar):
            method = NetworkMethod(method, wide=wide, **search)
        elif wide or any_angle:
            raise _no_wide_search(method.name)
        made = _of_thick(RefinedMethod(method, device), thickness) if refine else method
        knows = isinstance(method, NetworkMethod)
    if thickness is not None and not (knows or isinstance(made, RefinedMethod)):
        raise ScopeRegError(
            f"{made.name} does not know of thick frames",
            where="thickness_mm=",
            fix="use a network, add refine=True, or leave it out",
        )
    return FallbackMethod(made, device, _WAYS, seconds=seconds) if fallback else made


def _of_thick(method: Method, thickness: Thickness | None) -> Method:
    return method.of_thick(thickness) if thickness is not None and isinstance(method, RefinedMethod) else method


def create_named(texts: Sequence[str], device: str = "auto") -> list[Method]:
    """Methods for one table by their names, or by a name of one's own for each: `mine=out/a/model.safetensors`."""
    made = []
    for text in texts:
        own, equals, name = text.partition("=")
        own, name = (own, name) if equals and _PLAIN_NAME.fullmatch(own) else ("", text)
        made.append(create(name, device))
        made[-1].name = own or made[-1].name
    for text, method in zip(texts, made, strict=True):
        if sum(method.name == other.name for other in made) > 1:
            raise ScopeRegError(
                f"two methods are called {method.name!r}",
                where="method=",
                fix=f"name them: {method.name}-1={text.partition('=')[2] or text} and so on",
            )
    return made


def refined(before: Method, likeness: str = GREY, device: str = "auto") -> RefinedMethod:
    """A method whose poses are refined by a likeness of this name."""
    return RefinedMethod(before, device, _LIKENESSES[likeness])


def _step_of(text: str) -> MakeStep | None:
    """What goes on from a method's poses, by what stands behind a `+`; None where nothing is called so."""
    name, _, likeness = text.partition("=")
    if name == REFINE and likeness in _LIKENESSES:
        return partial(RefinedMethod, make=_LIKENESSES[likeness])
    return _STEPS.get(text)


def _first(name: MethodName, device: str, search: dict[str, Any]) -> Method:
    if name.first not in _FIRSTS:
        model = models.load(name.first, device)
        return NetworkMethod(model, passes=name.passes, wide=name.wide, **search)
    if name.wide or search["any_angle"]:
        raise _no_wide_search(name.first)
    return _FIRSTS[name.first](device)


def _no_wide_search(name: str) -> ScopeRegError:
    return ScopeRegError(f"{name} begins where it is told to", where="wide=", fix="use a network, or leave wide= out")


def _check_new(name: str, taken: Container[str], where: str) -> None:
    if name in taken or not _PLAIN_NAME.fullmatch(name) or Path(name).suffix == ".safetensors":
        raise ScopeRegError(
            f"{name!r} is taken" if name in taken else f"{name!r} cannot be a name",
            where=where,
            fix="choose another: letters, digits and . _ - alone",
        )
