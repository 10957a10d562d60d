"""Frames and waiting feedback as rows: what a step writes, and what is back after a load."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from ragmeter.aggregate.feedback_records import FeedbackTrace, ScorerFeedback, labels_at
from ragmeter.core.feedback import Feedback
from ragmeter.kafka.state.feedback import CHUNK, FeedbackStateRows
from ragmeter.store.pending import FeedbackChanges, NewFeedback, NewRememberedTrace

from tests.kafka.state.partition import flat, split_row_key


def frame(number: int, at: float | None = None, service: str = "bot") -> NewRememberedTrace:
    at = float(number) if at is None else at
    one = FeedbackTrace(f"t{number}", service, ("model=a",), at, 0.5, ("0" * 16,))
    return NewRememberedTrace(b"%d" % number, service, at, one.dump())


def labelled(body: bytes) -> bytes:
    one = FeedbackTrace.load(body)
    item = {"trace_id": "t", "timestamp": 5, "answer": {"helpful": True}}
    word = labels_at(Feedback.model_validate(item), 5.0)
    one.by_scorer["human"] = one.by_scorer.get("human", ScorerFeedback()).add(word)
    return one.dump()


def row(number: int) -> NewFeedback:
    return NewFeedback(b"%d" % number, "bot", "human", 7.5, "[[],null]")


def reloaded(kept: FeedbackStateRows, rows: dict[bytes, bytes]) -> FeedbackStateRows:
    by_kind: dict[str, list[tuple[list[Any], bytes]]] = defaultdict(list)
    for key, data in random.Random(1).sample(sorted(rows.items()), len(rows)):
        kind, parts = split_row_key(key)
        by_kind[kind].append((parts, data))
    found = FeedbackStateRows()
    found.load(kept.dump(), by_kind)
    return found


def same(one: FeedbackStateRows, other: FeedbackStateRows) -> bool:
    traces = [b"%d" % n for n in range(400)]
    return (
        [one.remembered_traces(trace, None) for trace in traces]
        == [other.remembered_traces(trace, None) for trace in traces]
        and one.rows(0, 999) == other.rows(0, 999)
        and one.count_remembered(50.0) == other.count_remembered(50.0)
        and one.dump() == other.dump()
    )


def test_what_was_written_is_what_is_loaded_whatever_changed_between() -> None:
    rng = random.Random(4)
    kept, rows = FeedbackStateRows(), dict[bytes, bytes]()
    for number in range(300):
        service = rng.choice(["bot", "shop"])
        kept.apply(FeedbackChanges([frame(number % 200, float(number), service)]))
        kept.add(row(number))
        found = kept.remembered_traces(b"%d" % rng.randrange(200), None)
        chosen = [(one.id, labelled(one.body)) for one in found[:1]]
        done = [one.id for one in kept.rows(0, 999) if rng.random() < 0.1]
        before = number - 150.0 if number % 40 == 0 else None
        kept.apply(FeedbackChanges([], chosen, before, rng.choice([0, 0, 0, 1]), done))
        if rng.random() < 0.3:
            flat(kept.drain(), rows)
            assert same(kept, reloaded(kept, rows))
    flat(kept.drain(), rows)
    assert same(kept, reloaded(kept, rows))
    kept.apply(FeedbackChanges(before=1e9, done=[one.id for one in kept.rows(0, 999)]))
    flat(kept.drain(), rows)
    assert rows == {}, "nothing is left behind for ever"
    assert kept.count_feedback() == kept.count_remembered() == 0


def test_a_label_writes_one_small_row_and_what_was_done_with_at_once_none() -> None:
    kept = FeedbackStateRows()
    kept.apply(FeedbackChanges([frame(n) for n in range(3 * CHUNK)]))
    chunks = [split_row_key(key) for key in kept.drain()]
    assert len(chunks) == 4, "one is begun with number 1"
    (one,) = kept.remembered_traces(b"70", "bot")
    kept.add(row(70))
    kept.apply(FeedbackChanges(labelled=[(one.id, labelled(one.body))], done=[1]))
    assert [split_row_key(key) for key in kept.drain()] == [("l", [one.id])]
    assert kept.drain() == {}


def test_of_a_trace_that_came_twice_the_latest_of_each_service_holds() -> None:
    kept = FeedbackStateRows()
    kept.apply(FeedbackChanges([frame(1, 1.0), frame(1, 2.0, "shop"), frame(1, 3.0)]))
    assert [(one.id, one.service) for one in kept.remembered_traces(b"1", None)] == [
        (3, "bot"),
        (2, "shop"),
    ]
    assert [one.id for one in kept.remembered_traces(b"1", "shop")] == [2]
    assert kept.remembered_traces(b"1", "wiki") == kept.remembered_traces(b"2", None) == []


def test_feedback_that_is_new_is_found_among_much_that_waits() -> None:
    kept = FeedbackStateRows()
    for number in range(50):
        kept.add(row(number))
    assert [one.id for one in kept.rows(48, 9)] == [49, 50]
    assert [one.id for one in kept.rows(0, 2)] == [1, 2]
    kept.apply(FeedbackChanges(done=range(1, 50)))
    assert [one.id for one in kept.rows(0, 9)] == [50]
    assert (kept.count_feedback(), kept.count_feedback(50), kept.count_feedback(0, 49)) == (1, 0, 0)
