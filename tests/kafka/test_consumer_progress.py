"""What a worker shows of its partitions, so that a stall is seen and rest is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from faust.types import TP

from ragmeter.kafka.consumer import offset_mark, offset_marks, recovery_progress


def test_a_partition_with_work_has_a_mark_and_one_without_has_none() -> None:
    assert offset_mark(10, 5, 4) == offset_mark(12, 5, 4), "more work is no progress"
    assert offset_mark(10, 5, 4) != offset_mark(10, 5, 5)
    assert offset_mark(10, 5, 4) != offset_mark(10, 6, 4)
    assert offset_mark(10, 9, 10) is None
    assert offset_mark(None, None, None) is None
    assert offset_mark(3, None, None) is not None, "never read, and something is there"


def test_only_the_topics_that_count_are_watched() -> None:
    one, other = TP("rag.traces", 0), TP("rag.control", 0)
    consumer = SimpleNamespace(
        assignment=lambda: {one, other},
        done_and_end=lambda tp: (4, 10),
        _read_offset={one: 5, other: 5},
    )
    app: Any = SimpleNamespace(consumer=consumer)
    assert offset_marks(app, {"rag.traces"}) == {one: (5, 4)}


def test_a_state_that_is_read_is_progress() -> None:
    recovery = SimpleNamespace(active_offsets={TP("state", 0): None, TP("state", 1): 7})
    app: Any = SimpleNamespace(consumer_generation_id=3, tables=SimpleNamespace(recovery=recovery))
    before = recovery_progress(app)
    assert before == recovery_progress(app)
    recovery.active_offsets[TP("state", 0)] = 1
    assert before != recovery_progress(app)
