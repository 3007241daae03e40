"""Workers: processes that share the items of a long list."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from scopereg.environment import changed_environment
from scopereg.errors import ScopeRegError

Item = TypeVar("Item")
Result = TypeVar("Result")
# Each worker has a core; threads of the numeric libraries would wait for each other.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS")


def in_parallel(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Generator[tuple[Item, Result], None, None]:
    """Each item with its result, in the order in which they are done; one worker is this process.

    The function must be one that other processes can import, a partial of such one included. What it raises is raised
    here, and ends the work. Workers end with this process, however it ends.
    """
    if min(workers, len(items)) <= 1:
        for item in items:
            yield item, function(item)
        return
    # Fresh processes: a fork of one with the threads of ITK and torch may never come to life.
    context = multiprocessing.get_context("spawn")
    with changed_environment(dict.fromkeys(_THREADS, "1")):
        pool = ProcessPoolExecutor(min(workers, len(items)), mp_context=context, initializer=_follow_parent)
        try:
            futures = {pool.submit(function, item): item for item in items}
            for future in as_completed(futures):
                yield futures.pop(future), future.result()
        except BrokenProcessPool:
            raise ScopeRegError(
                f"one of {workers} processes died, perhaps for want of memory",
                where="workers",
                fix="run the same command again with fewer workers=: what was finished is kept",
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _follow_parent() -> None:
    """In a worker: leave Ctrl-C to the parent, and end when it ends, killed or not."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
