"""The number of threads: what a user chose stays, what others leave free is taken, and waits sleep."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

from scopereg import cores, threads
from scopereg.cores import Load, usable_cores
from scopereg.environment import changed_environment

UNSET = dict.fromkeys((*threads.CHOSEN_BY, "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"))


@pytest.fixture
def eight_cores(monkeypatch):
    """A machine with eight cores that PyTorch has taken by itself; the last word on how many are free is a list's."""
    before = torch.get_num_threads()
    free = [8.0]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(threads, "usable_cores", lambda: 8)
    monkeypatch.setattr(threads.LOAD, "free", lambda: free[-1])
    monkeypatch.setattr(threads, "_let_waits_sleep", lambda: None)
    monkeypatch.setattr(threads, "_default", None)
    monkeypatch.setattr(threads._here, "kept", None, raising=False)
    with changed_environment(UNSET):
        torch.set_num_threads(8)
        yield free
    torch.set_num_threads(before)


def _look_again() -> int:
    threads._here.watch.next_look = 0.0
    threads.look()
    return torch.get_num_threads()


def test_free_cores_are_taken_and_afterwards_all_is_as_before(eight_cores):
    with threads.watched():
        assert torch.get_num_threads() == 8
        eight_cores.append(2.6)
        assert torch.get_num_threads() == 8  # not yet due
        assert _look_again() == 3
        with threads.watched():
            assert torch.get_num_threads() == 3
        eight_cores.append(8.0)
        assert [_look_again() for _ in range(3)] == [6, 7, 8]
        eight_cores.append(0.0)
        assert _look_again() == 1
    assert torch.get_num_threads() == 8


def test_what_was_learnt_holds_for_the_next_frame(eight_cores):
    eight_cores.append(2.0)
    for _ in range(2):
        with threads.watched():
            assert torch.get_num_threads() == 2


def test_steady_work_keeps_its_number(eight_cores):
    eight_cores.append(1.0)
    with threads.watched(steady=True):
        assert (torch.get_num_threads(), _look_again()) == (8, 8)


def test_threads_that_get_too_little_of_their_cores_are_halved_and_tried_again(eight_cores, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(threads.time, "monotonic", lambda: clock[0])
    eight_cores.append(None)  # nothing tells what others do, as outside of Linux

    def after(share: float) -> int:
        clock[0] += 1.0
        threads.took(1.0, share)
        return _look_again()

    with threads.watched():
        assert [after(share) for share in (0.95, 0.4, 0.9)] == [8, 8, 8]  # one poor measurement is chance
        assert [after(share) for share in (0.4, 0.4)] == [8, 4]
        assert [after(share) for share in (0.4, 0.4)] == [4, 2]
        assert [after(0.95) for _ in range(7)][-1] == 8


@pytest.mark.parametrize("name", threads.CHOSEN_BY)
def test_a_number_in_the_environment_stays(eight_cores, name):
    eight_cores.append(1.0)
    with changed_environment({name: "8"}), threads.watched():
        assert torch.get_num_threads() == 8


def test_a_number_that_a_program_set_stays(eight_cores):
    eight_cores.append(1.0)
    torch.set_num_threads(3)
    with threads.watched():
        assert torch.get_num_threads() == 3
    torch.set_num_threads(8)
    with threads.watched():
        torch.set_num_threads(5)  # by what runs inside
        assert _look_again() == 5
    assert torch.get_num_threads() == 5


def test_words_tell_who_chose(eight_cores):
    eight_cores.append(2.6)
    assert threads.in_words() == "3 of 8 cores, 2.6 of them free now"
    with changed_environment({"OMP_NUM_THREADS": "8"}):
        assert threads.in_words() == "8 of 8 cores, as set by OMP_NUM_THREADS"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"a/cpu.max": "max 100000", "cpu.max": "200000 100000"}, 2.0),
        ({"a/b/cpu.max": "50000 100000", "cpu.max": "200000 100000"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3.0),
        ({"cpu.max": "damaged"}, None),
        ({}, None),
    ],
)
def test_quota_of_a_container(tmp_path, files, quota):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    own = tmp_path / "own"
    own.write_text("0::/a/b\n")
    assert cores._quota(tmp_path, own) == quota


def test_cores_are_those_of_the_affinity_within_the_quota(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5, 6}, raising=False)
    for quota, wanted in ((None, 4), (2.4, 2), (0.2, 1), (16.0, 4)):
        monkeypatch.setattr(cores, "_quota", lambda quota=quota: quota)
        assert usable_cores() == wanted


def test_others_are_what_is_busy_but_not_ours(monkeypatch):
    monkeypatch.setattr(cores, "usable_cores", lambda: 4)
    counts = iter([(10.0, 100.0, 20.0), (12.0, 105.0, 23.0), (12.1, 105.4, 23.0), (90.0, 300.0, 24.0)])
    monkeypatch.setattr(Load, "_count", lambda self: next(counts))
    load = Load()
    assert load.free() == pytest.approx(3.0)  # 5 seconds were used, 3 of them by us, in 2
    assert load.free() == pytest.approx(3.0)  # too soon to tell
    assert load.free() is None  # too long ago


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the counters of Linux")
def test_a_busy_process_is_seen():
    """Others may be at work too, so only that there is less than all."""
    script = "import time; end = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass"
    load = Load()
    subprocess.run([sys.executable, "-c", script], check=True)
    assert load.free() <= usable_cores() - 0.3


def _cpu_seconds_of_waiting(prepare: str) -> float:
    """What a process uses that waits most of the time, between small pieces of work for two threads."""
    script = f"""
        import time
        import torch
        from scopereg import threads
        torch.set_num_threads(2)
        {prepare}
        a = torch.rand(1 << 17)
        a + a
        begin = time.process_time()
        for _ in range(100):
            a + a
            time.sleep(0.004)
        print(time.process_time() - begin)
    """
    with changed_environment(UNSET):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
        )
    return float(done.stdout)


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or (os.cpu_count() or 1) < 2, reason="two threads wait for each other"
)
def test_waiting_threads_sleep():
    spinning, sleeping = (_cpu_seconds_of_waiting(words) for words in ("", "threads._let_waits_sleep()"))
    assert sleeping < 0.5 * spinning
