"""A worker that has work and does not move is seen; one that rests is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from faust.types import TP

from agent.kafka.background.watchdog import Watchdog, progress_of

ONE, OTHER = TP("rag.traces", 0), TP("rag.traces", 1)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_work_that_nobody_does_is_seen() -> None:
    clock = Clock()
    watchdog = Watchdog(clock)
    assert watchdog.look({ONE: (10, 5, 4)}, 0) == 0
    clock.now += 40
    assert watchdog.look({ONE: (12, 5, 4)}, 0) == 40, "more work is no progress"
    assert watchdog.look({ONE: (12, 5, 5)}, 0) == 0
    clock.now += 40
    assert watchdog.look({ONE: (12, 5, 5)}, 1) == 0, "a new generation is progress"


def test_a_worker_without_work_is_not_stalled() -> None:
    clock = Clock()
    watchdog = Watchdog(clock)
    for _ in range(3):
        clock.now += 1000
        assert watchdog.look({ONE: (10, 9, 10)}, 0) == 0
        assert watchdog.look({}, 0) == 0
        assert watchdog.look({ONE: (None, None, None)}, 0) == 0


def test_a_partition_that_was_never_read_counts_as_work() -> None:
    clock = Clock()
    watchdog = Watchdog(clock)
    watchdog.look({ONE: (3, None, None)}, 0)
    clock.now += 30
    assert watchdog.look({ONE: (3, None, None)}, 0) == 30


def test_a_partition_that_stands_still_among_others_is_seen() -> None:
    clock = Clock()
    watchdog = Watchdog(clock)
    for turn in range(5):
        stalled = watchdog.look({ONE: (10, 5, 4), OTHER: (100, turn + 1, turn)}, 0)
        assert stalled == 10 * turn
        clock.now += 10
    assert watchdog.look({OTHER: (100, 9, 8)}, 0) == 0, "it is another worker's now"
    assert watchdog.look({ONE: (10, 5, 4), OTHER: (100, 9, 8)}, 0) == 0


def test_a_state_that_is_read_is_progress() -> None:
    recovery = SimpleNamespace(active_offsets={TP("state", 0): None, TP("state", 1): 7})
    app: Any = SimpleNamespace(consumer_generation_id=3, tables=SimpleNamespace(recovery=recovery))
    before = progress_of(app)
    assert before == progress_of(app)
    recovery.active_offsets[TP("state", 0)] = 1
    assert before != progress_of(app)
