"""One grammar of methods, the same through a name and through arguments; and methods of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scopereg
from scopereg.errors import ScopeRegError
from scopereg.geometry import Pose
from scopereg.images import Frame, Volume
from scopereg.networks import create as create_network
from scopereg.networks.weights import save_network
from scopereg.registration import method as methods
from scopereg.registration.classical import PEERS, centre_pose
from scopereg.registration.locator import Locator
from scopereg.registration.method import Method, MethodName, create, create_named, parse, register_method, register_step
from scopereg.registration.model import Registrar
from scopereg.registration.network import NetworkMethod
from scopereg.registration.prepared import Found, Prepared
from scopereg.registration.refine import RefinedMethod
from scopereg.registration.result import RegistrationError, Result

Case = Any  # of conftest.py


# the grammar


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("universal", MethodName("universal")),
        ("universal:2", MethodName("universal", passes=2)),
        ("universal:wide+refine", MethodName("universal", wide=True, steps=("refine",))),
        ("identity+simpleitk-mi+refine", MethodName("identity", steps=("simpleitk-mi", "refine"))),
        ("a+b/m:x.safetensors:3+elastix", MethodName("a+b/m:x.safetensors", passes=3, steps=("elastix",))),
    ],
)
def test_names_are_taken_apart_and_put_together(text: str, name: MethodName) -> None:
    assert parse(text) == name
    assert str(name) == text


def test_there_is_one_word_for_no_registration_and_two_more_that_mean_it() -> None:
    assert {parse(word) for word in ("identity", "start", "centre")} == {MethodName("identity")}
    assert parse("start+refine") == parse("identity+refine")
    assert not parse("centre+refine").searches
    assert parse("simpleitk-mi").searches


@pytest.mark.parametrize(
    "wrong",
    [
        *("simpleitk", "identity:2", "simpleitk-mi:3", "+refine", "echo"),
        *(f"universal{rest}" for rest in (":0", ":many", ":12", "+", "+x")),
    ],
)
def test_wrong_names_are_explained(wrong: str) -> None:
    with pytest.raises(ScopeRegError, match="unknown method") as caught:
        create(wrong, "cpu")
    assert "identity" in caught.value.fix
    assert "+refine" in caught.value.fix


def test_methods_for_one_table_may_have_names_of_one_s_own(tmp_path: Path) -> None:
    """Two files called model.safetensors are two methods, and a likeness behind `=` is no name."""
    files = [tmp_path / name / "model.safetensors" for name in "ab"]
    for path in files:
        path.parent.mkdir()
        save_network(create_network("scope-reg"), path, name="scope-reg")
    made = create_named([f"mine={files[0]}", f"ours={files[1]}+refine", "identity+refine=grey"], "cpu")
    assert [method.name for method in made] == ["mine", "ours", create("identity+refine", "cpu").name]
    assert made[0].facts == create(str(files[0]), "cpu").facts
    with pytest.raises(ScopeRegError, match="two methods are called 'model'") as caught:
        create_named([str(path) for path in files], "cpu")
    assert f"model-1={files[0]}" in caught.value.fix


def test_every_named_method_can_be_made(tmp_path: Path) -> None:
    assert tuple(PEERS) == methods.CLASSICAL
    assert {"identity", *PEERS, "universal"} <= set(methods.names())
    assert set(methods.steps()) == {"refine", "fallback", *PEERS}
    path = save_network(create_network("scope-reg"), tmp_path / "mine.safetensors", name="scope-reg")
    named = {str(path): "mine", f"{path}:2": "mine x2", f"{path}:wide": "mine wide", "start": "identity"}
    named |= {
        f"{path}:wide+refine": "mine wide + refine",
        "start+simpleitk-mi+refine": "identity + simpleitk-mi + refine",
    }
    assert {text: create(text, "cpu").name for text in named} == named
    assert create(path, "cpu").name == "mine"


# arguments and names are two spellings of one thing


@pytest.mark.parametrize(
    ("method", "arguments", "name"),
    [
        ("universal", {"wide": True, "refine": True}, "universal:wide+refine"),
        ("universal:wide+refine", {"wide": True, "refine": True}, "universal:wide+refine"),
        ("simpleitk-mi", {"refine": True}, "simpleitk-mi+refine"),
        ("universal+refine+simpleitk-mi", {"refine": True}, "universal+refine+simpleitk-mi+refine"),
    ],
)
def test_arguments_say_the_same_as_the_name(method: str, arguments: dict[str, bool], name: str) -> None:
    assert str(parse(method).also(**arguments)) == name
    one, other = create(method, "cpu", **arguments), create(name, "cpu")
    assert (one.name, repr(one.facts)) == (other.name, repr(other.facts))


def test_a_network_at_hand_takes_the_same_arguments(narrow: Registrar, narrow_file: Path) -> None:
    plain = create(narrow, "cpu", wide=True, refine=True)
    assert isinstance(plain, RefinedMethod)
    assert plain.name == create(f"{narrow_file}:wide+refine", "cpu").name
    assert create(plain, "cpu") is plain
    assert isinstance(create(narrow, "cpu"), NetworkMethod)


def test_what_contradicts_itself_is_refused() -> None:
    with pytest.raises(ScopeRegError, match="several passes"):
        create("universal:2", "cpu", wide=True)
    for method in ("simpleitk-mi:wide", create("identity")):
        with pytest.raises(ScopeRegError, match="begins where it is told to"):
            create(method, "cpu", wide=True)


def test_a_name_does_in_register_what_the_arguments_do(case: Case, narrow_file: Path) -> None:
    frame = case.frames[1]
    by_name = scopereg.register(frame, case.volume, method=f"{narrow_file}+refine", device="cpu")
    by_argument = scopereg.register(frame, case.volume, method=str(narrow_file), fallback=False, device="cpu")
    assert by_name.pose.matrix.tolist() == by_argument.pose.matrix.tolist()
    assert (by_name.facts["signs"], by_name.verdict) == (by_argument.facts["signs"], by_argument.verdict)
    assert by_name.method == "narrow network, refined"


def test_two_passes_look_again_from_where_the_first_led(case: Case, narrow: Registrar, narrow_file: Path) -> None:
    plain = Locator(case.volume, replace(narrow, calibration=None))
    again = plain.locate(case.frames[0], plain.locate(case.frames[0]).pose)
    twice = Locator(case.volume, f"{narrow_file}:2", device="cpu").locate(case.frames[0])
    assert twice.pose.matrix.tolist() == again.pose.matrix.tolist()
    assert twice.time_ms > 0
    assert twice.ok is None  # no calibration saw such poses
    assert create("universal:2", "cpu").facts["passes"] == 2


def test_a_classical_method_goes_on_from_a_network(case: Case, narrow: Registrar, narrow_file: Path) -> None:
    first = Locator(case.volume, narrow).locate(case.frames[0])
    found = Locator(case.volume, f"{narrow_file}+simpleitk-mi", device="cpu").locate(case.frames[0])
    straight = PEERS["simpleitk-mi"].register(case.frames[0], case.volume, first.pose)
    assert found.pose.is_close(straight.pose, mm=1e-3, deg=1e-3)
    assert found.method == "narrow network, simpleitk-mi"
    assert found.iterations == straight.iterations
    assert found.time_ms > straight.time_ms / 10


def test_a_classical_search_that_fails_tells_where_it_began(case: Case) -> None:
    middle = centre_pose(case.frames[0], case.volume)
    away = Pose(middle.rotation, middle.translation_mm + 500, middle.source, middle.target)
    (found,) = Locator(case.volume, "simpleitk-mi").locate_all([case.frames[0]], [away])
    assert isinstance(found, RegistrationError)
    assert found.start is away


# methods of one's own


class Left:
    """Finds every frame 1 mm to the left of its start, or of what another method found."""

    def __init__(self, before: Method | None = None) -> None:
        self.name = "left" if before is None else f"{before.name} + left"
        self.facts: dict[str, Any] = {}
        self.before = before

    def prepare(self, volume: Volume) -> Prepared:
        return PreparedLeft(volume, None if self.before is None else self.before.prepare(volume))


class PreparedLeft(Prepared):
    def __init__(self, volume: Volume, before: Prepared | None) -> None:
        self.volume, self.before = volume, before

    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        if self.before is not None:
            found = self.before.locate(frames, starts)
            starts = [one.pose for one in found if isinstance(one, Result)]
        poses = [start or centre_pose(frame, self.volume) for frame, start in zip(frames, starts, strict=True)]
        moved = [Pose(one.rotation, one.translation_mm - (1, 0, 0), one.source, one.target) for one in poses]
        return [Result(pose, "left", 0.0, 0.5) for pose in moved]


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("_FIRSTS", "_STEPS"):
        monkeypatch.setattr(methods, table, dict(getattr(methods, table)))
    register_method("left", lambda device: Left())
    register_step("left", lambda before, device: Left(before))


@pytest.mark.usefixtures("left")
def test_a_method_of_one_s_own_is_named_like_any_other(case: Case) -> None:
    assert "left" in methods.names()
    middle = centre_pose(case.frames[0], case.volume)
    for name, steps in (("left", 1), ("left+left", 2), ("identity+left", 1)):
        found = scopereg.register(case.frames[0], case.volume, method=name, device="cpu")
        assert found.pose.translation_mm.tolist() == pytest.approx((middle.translation_mm - (steps, 0, 0)).tolist())
    assert create("left+refine", "cpu").name == "left + refine"
    with pytest.raises(ScopeRegError, match="begins where it is told to"):
        create("left:wide", "cpu")


@pytest.mark.usefixtures("left")
@pytest.mark.parametrize("name", ["left", "universal", "identity", "start", "a:2", "a+b", "", "mine.safetensors"])
def test_names_that_are_taken_or_break_the_grammar_are_refused(name: str) -> None:
    with pytest.raises(ScopeRegError, match=r"is taken|cannot be a name"):
        register_method(name, lambda device: Left())


def test_a_step_that_is_there_is_not_replaced() -> None:
    with pytest.raises(ScopeRegError, match="'refine' is taken"):
        register_step("refine", lambda before, device: Left(before))
