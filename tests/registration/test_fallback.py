"""What is tried where a pose is not ok: one way after the other, judged the more strictly the more was tried."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import scopereg
from scopereg import Frame, Pose, Volume
from scopereg.data import phantom
from scopereg.errors import ScopeRegError
from scopereg.geometry import sample_poses
from scopereg.images import pose_from_voxels
from scopereg.progress import listening
from scopereg.registration import method as methods
from scopereg.registration.confidence import ENOUGH
from scopereg.registration.fallback import FallbackMethod, Find, after_tries, best_of
from scopereg.registration.locator import Locator
from scopereg.registration.method import MethodName, create, parse, register_fallback
from scopereg.registration.model import Registrar
from scopereg.registration.prepared import Found, Prepared
from scopereg.registration.result import RegistrationError, Result, apart_mm


class Far(NamedTuple):
    volume: Volume
    frame: Frame
    true: Pose


@pytest.fixture(scope="module")
def far() -> Far:
    """A frame that a network alone does not find: up to 18 voxels of twice the usual size, and as many degrees off."""
    patient = phantom.create("echo", seed=200_003, shape=(32, 64, 64))
    poses = sample_poses(4, 18, patient.shape, torch.Generator().manual_seed(1))
    frame = Frame(patient.acquire(*poses, seed=1).images[3], spacing_mm=patient.spacing_mm)
    true = pose_from_voxels(poses.rotation[3], poses.translation[3], frame, patient.volume)
    return Far(patient.volume, frame, true)


# the grammar


@pytest.mark.parametrize(
    ("text", "arguments", "name"),
    [
        ("universal", {}, "universal+refine+fallback"),
        ("universal:wide", {}, "universal:wide+refine+fallback"),
        ("universal", {"refine": False}, "universal"),
        ("universal", {"refine": False, "fallback": True}, "universal+fallback"),
        ("universal", {"fallback": False}, "universal+refine"),
        ("universal+refine", {}, "universal+refine"),
        ("universal+refine", {"fallback": True}, "universal+refine+fallback"),
        ("universal+fallback", {"refine": True}, "universal+refine+fallback"),
        ("simpleitk-mi", {}, "simpleitk-mi"),
        ("simpleitk-mi", {"refine": True}, "simpleitk-mi+refine"),
        ("identity", {}, "identity"),
    ],
)
def test_register_makes_of_a_network_alone_what_does_the_right_thing(text: str, arguments: Any, name: str) -> None:
    assert str(parse(text).persistent(**arguments)) == name


def test_a_fallback_is_the_last_step() -> None:
    assert parse("universal+refine+fallback") == MethodName("universal", steps=("refine", "fallback"))
    assert create("universal+refine+fallback", "cpu").name == "universal + refine + fallback"
    assert create("universal", "cpu", refine=True, fallback=True).name == "universal + refine + fallback"
    with pytest.raises(ScopeRegError, match="something follows fallback"):
        parse("universal+fallback+refine")
    for seconds in (0.0, -1.0, math.nan):
        with pytest.raises(ScopeRegError, match="seconds"):
            create("universal", "cpu", fallback=True, seconds=seconds)


# with methods whose poses are known beforehand


GOOD = {"ok": True, "belongs": True, "confidence": 0.97, "expected_mm": 1.0, "bound_mm": 2.0}
BAD = {"ok": False, "belongs": True, "confidence": 0.4, "expected_mm": 4.0, "bound_mm": 9.0, "reason": "too likely"}
STRANGE = {"ok": False, "belongs": False, "reason": "another patient"}


def at(x_mm: float, likeness: float = 0.0, **told: Any) -> Result:
    pose = Pose.from_euler_deg((0, 0, 0), (x_mm, 0, 0), "Image", "Volume")
    return Result(pose, "told", 1.0, likeness, features={"coarse": 1.0}, **told)


@dataclass
class Told(Prepared):
    """A method that sees what it was told: from the middle, and from places."""

    first: Found
    seen: dict[float, Found] = field(default_factory=dict)  # by the start's x in mm; elsewhere nothing
    asked: list[float | None] = field(default_factory=list)
    judges = True
    name: str = "told"
    facts: dict[str, Any] = field(default_factory=dict)

    def prepare(self, volume: Volume) -> Told:
        return self

    def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
        xs = [None if start is None else float(start.translation_mm[0]) for start in starts]
        self.asked += xs
        lost = RegistrationError("nothing there", where="start", fix="elsewhere")
        return [self.first if x is None else self.seen.get(x, lost) for x in xs]


def way_to(*places: Found) -> Callable[..., Any]:
    class Way:
        words, polished = "a way", True

        def places(self, frame: Frame, start: Pose | None, best: Result | None) -> Iterator[Found]:
            yield from places

    return lambda before, volume, device: Way()


@pytest.fixture(scope="module")
def scene() -> tuple[Frame, Volume]:
    """A volume of noise, and the frame that is its plane at z = 16 mm."""
    values = torch.rand(32, 32, 64, generator=torch.Generator().manual_seed(0))
    return Frame(values[16], 1.0, (0.0, 0.0)), Volume(values, 1.0, (0.0, 0.0, 0.0))


def sought(scene: tuple[Frame, Volume], told: Told, *ways: Callable[..., Any], **more: Any) -> Result:
    frame, volume = scene
    method = FallbackMethod(told, "cpu", {str(n): way for n, way in enumerate(ways)}, **more)
    found = method.prepare(volume).locate([frame], [None])[0]
    assert isinstance(found, Result)
    return found


def test_what_is_ok_is_left_alone(scene: tuple[Frame, Volume]) -> None:
    told = Told(at(0, **GOOD))
    found = sought(scene, told, way_to(at(5)))
    assert found.pose.is_close(at(0).pose)
    assert (found.confidence, found.method, found.notes, told.asked) == (0.97, "told", (), [None])


def test_where_nobody_judges_nothing_is_sought_again(scene: tuple[Frame, Volume]) -> None:
    told = Told(at(0))
    told.judges = False
    assert sought(scene, told, way_to(at(5))).pose.is_close(at(0).pose)
    assert told.asked == [None]


def test_a_place_is_seen_again_from_there_and_judged(scene: tuple[Frame, Volume]) -> None:
    """The frame is its own place's: the true pose is the most alike of all."""
    right = replace(at(0), pose=Pose.from_euler_deg((0, 0, 0), (0, 0, 16), "Image", "Volume"), **GOOD)
    told = Told(at(9, **STRANGE), {0.0: right})
    found = sought(scene, told, way_to(at(0)), way_to(at(1)))
    assert found.ok
    assert found.pose.is_close(right.pose)
    assert found.similarity > 0.99
    assert found.method == "told, found by a way"
    assert re.match(r"told: not ok: another patient; tried too: a way \(\d+ s\): this pose was found", found.notes[-1])
    assert found.confidence == pytest.approx(1 - 2 * 0.03)  # two places were tried
    assert told.asked == [None, 0.0]  # no second way is tried after one that is ok
    assert [one.ok for one in found.alternatives] == [False, False]  # the first, and the place as it was told


def test_an_ok_place_is_not_ok_while_another_is_more_alike(scene: tuple[Frame, Volume]) -> None:
    true = Pose.from_euler_deg((0, 0, 0), (0, 0, 16), "Image", "Volume")
    first = replace(at(0, **BAD), pose=true)
    told = Told(first, {9.0: at(9, **GOOD)})
    found = sought(scene, told, way_to(at(9)))
    assert found.pose.is_close(true)
    assert found.ok is False
    assert found.similarity > 0.99
    assert "this pose is as good as any" in found.notes[-1]


def test_the_most_alike_pose_of_one_place_is_taken_whoever_is_ok(scene: tuple[Frame, Volume]) -> None:
    """But for what refinements of one place differ by."""
    frame, _ = scene
    sure, near = replace(at(0, **GOOD), similarity=0.80), replace(at(1, **BAD), similarity=0.83)
    assert best_of(frame, [Find(near), Find(sure)]).result is near
    assert best_of(frame, [Find(replace(near, similarity=0.805)), Find(sure)]).result is sure
    assert best_of(frame, [Find(replace(near, similarity=0.7)), Find(sure)]).result is sure


def test_what_is_not_seen_from_there_is_no_more_than_told(scene: tuple[Frame, Volume]) -> None:
    """Mutual information always finds something: it may be the most alike, and never ok by itself."""
    true = replace(at(0), pose=Pose.from_euler_deg((0, 0, 0), (0, 0, 16), "Image", "Volume"), **GOOD)
    for there, belongs in ((at(20, **STRANGE), False), (at(20, **BAD), None)):
        found = sought(scene, Told(at(9, **BAD), {0.0: there}), way_to(true))
        assert found.pose.is_close(true.pose)
        assert (found.ok, found.belongs) == (False, belongs)
        assert found.reason.startswith("the network does not find the frame there")
        assert math.isnan(found.confidence)
    found = sought(scene, Told(at(9, **BAD)), way_to(true))
    assert found.ok is False
    assert "nothing there" in found.reason


def test_a_stranger_stays_one_unless_the_frame_looks_like_the_volumes_elsewhere(scene: tuple[Frame, Volume]) -> None:
    true = replace(at(0), pose=Pose.from_euler_deg((0, 0, 0), (0, 0, 16), "Image", "Volume"))
    silent = replace(true, ok=None, reason="too far off")
    found = sought(scene, Told(at(9, **STRANGE), {0.0: silent}), way_to(true))
    assert found.pose.is_close(true.pose)  # the most alike of all
    assert (found.ok, found.belongs, found.reason) == (False, False, "another patient")
    doubted = replace(true, **BAD)
    found = sought(scene, Told(at(9, **STRANGE), {0.0: doubted}), way_to(true))
    assert (found.ok, found.belongs, found.reason) == (False, True, "too likely")
    found = sought(scene, Told(at(9, **BAD), {0.0: silent}), way_to(true))
    assert (found.ok, found.belongs) == (None, None)


def test_a_way_that_fails_leaves_what_there_was(scene: tuple[Frame, Volume]) -> None:
    def broken(*_: Any) -> Any:
        class Way:
            words, polished = "a broken way", True

            def places(self, *_: Any) -> Iterator[Found]:
                raise ScopeRegError("not installed", where="way", fix="install it")

        return Way()

    found = sought(scene, Told(at(9, **BAD)), broken, way_to(RegistrationError("nothing", where="x", fix="y")))
    assert found.pose.is_close(at(9).pose)
    assert "a broken way (not installed)" in found.notes[-1]


def test_after_the_time_is_up_no_way_is_begun(scene: tuple[Frame, Volume]) -> None:
    told = Told(at(9, **BAD), {5.0: at(5, **GOOD)})
    found = sought(scene, told, way_to(at(5)), seconds=1e-9)
    assert told.asked == [None]
    assert "then the time was up" in found.notes[-1]


def test_a_frame_that_was_not_found_at_all_may_be_found(scene: tuple[Frame, Volume]) -> None:
    lost = RegistrationError("nothing is like it", where="x", fix="y")
    frame, volume = scene
    (left,) = FallbackMethod(Told(lost), "cpu", {"a": way_to()}).prepare(volume).locate([frame], [None])
    assert left is lost
    found = sought(scene, Told(lost, {0.0: at(0, **GOOD)}), way_to(at(0)))
    assert found.ok
    assert found.notes[-1].startswith("nothing is like it; tried too: a way")


def test_the_chances_of_many_places_add_up() -> None:
    sure = at(0, **GOOD)
    assert [after_tries(sure, n).confidence for n in (1, 2, 5)] == pytest.approx([0.97, 0.94, 0.85])
    doubted = after_tries(sure, 10)
    assert doubted.ok is False
    assert doubted.confidence == pytest.approx(0.7)
    assert doubted.confidence < ENOUGH
    assert "one of 10 places" in doubted.reason
    strange = at(0, **STRANGE)
    assert after_tries(strange, 3) is strange


# with the network of the package


def test_what_a_network_alone_does_not_find_is_found_without_being_asked_for(far: Far, narrow_file: Path) -> None:
    lines: list[str] = []
    alone = scopereg.register(far.frame, far.volume, method=str(narrow_file), fallback=False, device="cpu")
    assert not alone.ok
    assert apart_mm(far.frame, alone.pose, far.true) > 10
    with listening(lines.append):
        found = scopereg.register(far.frame, far.volume, method=str(narrow_file), device="cpu")
    assert apart_mm(far.frame, found.pose, far.true) < 4
    assert found.similarity > alone.similarity
    assert not any(other.similarity > found.similarity + 0.01 for other in found.alternatives)  # nan: outside
    assert "found by" in found.method
    assert any(note.startswith("narrow network, refined: not ") for note in found.notes)
    assert lines
    assert all("is tried" in line for line in lines)


def test_a_method_of_ones_own_is_tried_too(far: Far, narrow_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "_WAYS", {})

    class Knowing(Prepared):
        name, facts = "knowing", {}

        def prepare(self, volume: Volume) -> Knowing:
            return self

        def locate(self, frames: Sequence[Frame], starts: Sequence[Pose | None]) -> list[Found]:
            return [Result(far.true, "knowing", 1.0, math.nan) for _ in frames]

    monkeypatch.setitem(methods._FIRSTS, "knowing", lambda device: Knowing())
    register_fallback("knowing", words="what I know")
    assert methods.fallbacks() == ("knowing",)
    found = Locator(far.volume, f"{narrow_file}+refine+fallback", device="cpu").locate(far.frame)
    assert "tried too: what I know" in found.notes[-1]
    assert apart_mm(far.frame, found.pose, far.true) < 4
    with pytest.raises(ScopeRegError, match="taken"):
        register_fallback("knowing")
    with pytest.raises(ScopeRegError, match="unknown method"):
        register_fallback("nobody")


def test_what_follows_a_probe_has_no_time_for_it(narrow: Registrar, far: Far) -> None:
    locator = Locator(far.volume, narrow, refine=True, fallback=True)
    near = locator.narrow()
    assert near.refines
    assert near.locate(far.frame).notes == Locator(far.volume, narrow, refine=True).locate(far.frame).notes
