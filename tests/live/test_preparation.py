"""What another depth needs is prepared beside the stream: frames that must wait are told so, nothing is in a rush."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from peers import wait_until

from scopereg import Frame, Volume
from scopereg.errors import ScopeRegError
from scopereg.live.preparation import Preparation
from scopereg.live.scene import Plan, Scene
from scopereg.registration.result import WaitingError


class Target:
    """Prepares for one size of pictures at a time, as slowly as it is let."""

    def __init__(self) -> None:
        self.made: list[tuple[int, ...]] = []
        self.gate = threading.Event()
        self.fault: Exception | None = None

    def is_ready(self, frame: Frame) -> bool:
        return frame.size in self.made

    def get_ready(self, frame: Frame) -> None:
        assert self.gate.wait(10)
        if self.fault is not None:
            raise self.fault
        self.made.append(frame.size)


def picture(width: int) -> Frame:
    return Frame(np.linspace(0, 1, 4 * width, dtype=np.float32).reshape(4, width), 0.5)


@pytest.fixture
def target() -> Target:
    return Target()


@pytest.fixture
def preparation(target: Target) -> Iterator[Preparation]:
    made = Preparation(target)
    target.gate.set()
    made.check(picture(6))  # the first frame waits for what it needs
    assert target.made == [(6, 4)]
    target.gate.clear()
    yield made
    target.gate.set()
    made.close()


def waits(preparation: Preparation, frame: Frame) -> bool:
    try:
        preparation.check(frame)
    except WaitingError:
        return True
    return False


def test_frames_of_another_size_wait_and_the_stream_does_not(target: Target, preparation: Preparation) -> None:
    done: list[int] = []
    preparation.done = lambda: done.append(1)
    with pytest.raises(WaitingError, match=r"preparing the volume for pictures of 8 x 4 of 0\.5 mm"):
        preparation.check(picture(8))
    begin_s = time.monotonic()
    for _ in range(20):
        assert waits(preparation, picture(8))
        assert not waits(preparation, picture(6))  # others go on
    assert time.monotonic() - begin_s < 5
    assert waits(preparation, picture(8))
    target.gate.set()
    assert wait_until(lambda: done == [1])
    assert not waits(preparation, picture(8))
    assert target.made == [(6, 4), (8, 4)]


def test_of_many_changes_the_latest_is_prepared(target: Target, preparation: Preparation) -> None:
    """While one is under way nobody cares for what came and went; what comes last is next, after a rest."""
    assert waits(preparation, picture(8))
    assert wait_until(lambda: preparation._thread is not None)
    assert all(waits(preparation, picture(width)) for width in range(9, 30))
    target.gate.set()
    assert wait_until(lambda: (29, 4) in target.made)
    assert [size[0] for size in target.made] in ([6, 8, 29], [6, 29])


def test_what_went_by_is_not_prepared(target: Target, preparation: Preparation) -> None:
    assert waits(preparation, picture(8))
    assert waits(preparation, picture(9))
    assert not waits(preparation, picture(6))  # the stream came back
    target.gate.set()
    assert wait_until(lambda: preparation._thread is None)
    assert (9, 4) not in target.made


def test_it_rests_as_long_as_it_worked(target: Target, preparation: Preparation) -> None:
    assert waits(preparation, picture(8))
    time.sleep(0.3)
    target.gate.set()
    assert wait_until(lambda: (8, 4) in target.made)
    begin_s = time.monotonic()
    assert waits(preparation, picture(9))
    assert wait_until(lambda: (9, 4) in target.made)
    assert time.monotonic() - begin_s > 0.2


@pytest.mark.parametrize("fault", [MemoryError("no room"), ScopeRegError("no room", where="x", fix="y")])
def test_what_cannot_be_prepared_is_told_and_not_tried_all_the_time(
    target: Target, preparation: Preparation, fault: Exception
) -> None:
    target.fault = fault
    target.gate.set()
    assert waits(preparation, picture(8))

    def told() -> bool:
        try:
            return not waits(preparation, picture(8))
        except ScopeRegError as error:
            return "no room" in error.what

    assert wait_until(told)
    assert not waits(preparation, picture(6))
    assert preparation._thread is None or wait_until(lambda: preparation._thread is None)


def test_closing_begins_nothing_more(target: Target) -> None:
    preparation = Preparation(target)
    target.gate.set()
    preparation.check(picture(6))
    preparation.close()
    assert waits(preparation, picture(8))
    assert target.made == [(6, 4)]


def test_a_scene_takes_up_another_depth() -> None:
    """The real network: the first frame is located at once, the second depth while the first goes on."""
    values = np.random.default_rng(0).random((24, 48, 48), dtype=np.float32)
    scene = Scene(Volume(values, 1.5), "noise", Plan(device="cpu"))
    shallow, deep = (Frame(np.random.default_rng(1).random((48, 48), dtype=np.float32), mm) for mm in (0.9, 1.4))
    try:
        assert scene.register(shallow).frame is shallow
        with pytest.raises(WaitingError):
            scene.register(deep)
        assert scene.register(shallow).frame is shallow

        def located() -> bool:
            try:
                return scene.register(deep).frame is deep
            except WaitingError:
                return False

        assert wait_until(located, 60)
    finally:
        scene.preparation.close()
