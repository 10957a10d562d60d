"""Values of a thread's own, and functions that threads call in turn."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from ragmeter.core.thread_safety import PerThread, one_at_a_time

from tests.waiting import PATIENCE


def test_each_thread_has_a_value_of_its_own_and_keeps_it() -> None:
    own = PerThread[list[int]](list)
    together = threading.Barrier(3)

    def use(number: int) -> list[int]:
        own.get().append(number)
        together.wait(PATIENCE)  # all three threads are at work
        return own.get()

    with ThreadPoolExecutor(3) as executor:
        assert sorted(executor.map(use, range(3))) == [[0], [1], [2]]
    assert own.get() == []


def test_one_thread_at_a_time_runs_a_function() -> None:
    inside = most = 0
    entered = threading.Event()

    @one_at_a_time
    def work(number: int) -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        entered.wait(0.01)  # gives the others the interpreter's lock
        inside -= 1
        return work(number - 1) if number > 100 else number

    with ThreadPoolExecutor(4) as executor:
        assert list(executor.map(work, [1, 2, 3, 103])) == [1, 2, 3, 100]
    assert most == 1
