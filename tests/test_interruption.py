"""Signals: noted down while work goes on, raised where nobody does, and afterwards what they were before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from scopereg.interruption import Terminated, name_of, status_of, stoppable, termination


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_asks_and_the_second_ends(number: int, status: int) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stoppable() as stop:
        assert not stop.asked
        send(number)
        assert (stop.asked, status_of(stop.name)) == (True, status)
        with pytest.raises(KeyboardInterrupt) as ended:
            send(number)
        assert status_of(name_of(ended.value)) == status
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_sigterm_is_raised_where_nobody_notes_it_down() -> None:
    with termination(), pytest.raises(Terminated):
        send(signal.SIGTERM)


def test_outside_of_the_main_thread_nothing_changes() -> None:
    seen: list[bool] = []

    def work() -> None:
        with stoppable() as stop, termination():
            seen.append(stop.asked)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


def test_a_forked_worker_is_ended_without_a_word() -> None:
    code = (
        "import os, signal\nfrom scopereg.interruption import termination\n"
        "read, write = os.pipe()\nwith termination():\n"
        "    child = os.fork()\n    if child == 0:\n        os.write(write, b'x')\n        signal.pause()\n"
        "    os.read(read, 1)\n    os.kill(child, signal.SIGTERM)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("-15", "")


def test_any_verb_ends_with_143() -> None:
    code = (
        "import os, signal, sys\nfrom scopereg.cli import status_of\n"
        "sys.exit(status_of(lambda: os.kill(os.getpid(), signal.SIGTERM) or signal.pause()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.strip()) == (143, "ended by SIGTERM")
