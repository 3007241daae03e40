"""One slot: the latest wins, everything is counted, nobody waits for ever."""

from __future__ import annotations

import threading
import time

from scopereg.live.exchange import Mailbox


def test_the_latest_wins() -> None:
    box: Mailbox[int] = Mailbox()
    assert [box.put(n) for n in range(5)] == [False, True, True, True, True]
    assert not box.empty
    assert box.take(0) == 4
    assert box.take(0) is None
    assert box.empty
    assert box.counters() == {"arrived": 5, "taken": 1, "dropped": 4}


def test_who_waits_gets_it_at_once() -> None:
    box: Mailbox[str] = Mailbox()
    threading.Timer(0.05, box.put, ["late"]).start()
    begin = time.monotonic()
    assert box.take(5) == "late"
    assert time.monotonic() - begin < 2


def test_a_closed_mailbox_gives_what_it_has_and_takes_nothing() -> None:
    box: Mailbox[str] = Mailbox()
    box.put("last")
    box.close()
    assert not box.put("too late")
    assert box.take(5) == "last"
    assert box.take(5) is None
    assert box.counters() == {"arrived": 1, "taken": 1, "dropped": 0}


def test_closing_wakes_who_waits_without_end() -> None:
    box: Mailbox[str] = Mailbox()
    threading.Timer(0.05, box.close).start()
    assert box.take() is None


def test_a_slow_taker_drops_and_the_sum_is_right() -> None:
    box: Mailbox[int] = Mailbox()
    taken = []

    def take() -> None:
        while (item := box.take()) is not None:
            taken.append(item)
            time.sleep(0.005)

    taker = threading.Thread(target=take)
    taker.start()
    for n in range(200):
        box.put(n)
        time.sleep(0.0005)
    box.close()
    taker.join()
    assert taken == sorted(taken)
    assert taken[-1] == 199  # never an old one when there is a newer
    assert len(taken) == box.taken < 150
    assert box.taken + box.dropped == box.arrived == 200
