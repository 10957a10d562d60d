"""Remembered traces and waiting labels as rows: what changes, and what is back after a restart."""

from __future__ import annotations

import json
import random
from typing import Any

from pydantic import TypeAdapter
from ragmeter.metrics.merged_labels import GivenLabels, TimedLabel, trace_key
from ragmeter.parts.labels.part import LabelsPart
from ragmeter.parts.labels.traces import (
    CHUNK,
    RememberedTrace,
    RememberedTraces,
    ScorerLabels,
    WaitingRoom,
)

ROWS: TypeAdapter[Any] = TypeAdapter(LabelsPart.state)


def remembered(
    number: int, at: float | None = None, service: str = "bot", **changes: Any
) -> RememberedTrace:
    return RememberedTrace(
        trace_id=f"t{number}",
        service=service,
        sent_as=service,
        segments=("model=a",),
        timestamp=float(number) if at is None else at,
        probability=0.5,
        passages=("0" * 16,),
        **changes,
    )


def key(number: int) -> bytes:
    return trace_key(f"t{number}")


def labelled(trace: RememberedTrace) -> RememberedTrace:
    given = GivenLabels((TimedLabel("", "helpful", 5.0, 1),))
    trace.by_scorer["human"] = ScorerLabels(given, (("helpfulness", 1.0),), 0.5)
    return trace


def save(one: RememberedTraces | WaitingRoom, rows: dict[str, Any]) -> None:
    """Write the changes down as JSON, as both homes do."""
    for name, row in one.changes().items():
        if row is None:
            rows.pop(name, None)
        else:
            rows[name] = json.loads(json.dumps(ROWS.dump_python(row, mode="json")))


def reloaded(rows: dict[str, Any]) -> RememberedTraces:
    found = RememberedTraces()
    chosen = random.Random(1).sample(sorted(rows), len(rows))
    found.restore([ROWS.validate_python(rows[name]) for name in chosen])
    return found


def content(one: RememberedTraces) -> list[Any]:
    found = (one.find(key(number)) for number in range(200))
    return [len(one), *(sorted(rows, key=lambda row: row[0]) for rows in found)]


def test_what_was_written_is_what_is_loaded_whatever_changed_between() -> None:
    rng = random.Random(4)
    kept = RememberedTraces()
    rows: dict[str, Any] = {}
    for number in range(300):
        kept.add(remembered(number % 200, float(number), rng.choice(["bot", "shop"])))
        for place, trace in kept.find(key(rng.randrange(200)))[:1]:
            kept.update(place, labelled(trace))
        if number % 40 == 0:
            kept.forget_before(number - 150.0)
        kept.shed(120)
        if rng.random() < 0.3:
            save(kept, rows)
            again = reloaded(rows)
            again.shed(120)
            assert content(again) == content(kept)
    save(kept, rows)
    assert kept.changes() == {}
    kept.forget_before(1e9)
    save(kept, rows)
    assert len(kept) == 0
    left = [name for name in rows if json.loads(name)[0] != "traces"]
    assert [json.loads(name)[0] for name in left] == ["chunk"], "the open one"
    for number in range(300, 300 + CHUNK):
        kept.add(remembered(number, 2e9))
    kept.forget_before(3e9)
    save(kept, rows)
    assert len([name for name in rows if json.loads(name)[0] != "traces"]) == 1


def test_a_label_writes_one_small_row() -> None:
    kept = RememberedTraces()
    for number in range(3 * CHUNK):
        kept.add(remembered(number))
    assert sum(json.loads(name)[0] == "chunk" for name in kept.changes()) == 3
    ((place, trace),) = kept.find(key(70))
    kept.update(place, labelled(trace))
    assert [json.loads(name) for name in kept.changes()] == [["trace", 70], ["traces"]]


def test_a_trace_with_labels_is_not_the_one_that_came() -> None:
    kept = RememberedTraces()
    kept.add(remembered(1))
    ((_, trace),) = kept.find(key(1))
    labelled(trace)
    ((_, again),) = kept.find(key(1))
    assert again == remembered(1), "it was not updated"


def test_of_a_trace_that_came_twice_the_latest_of_each_service_holds() -> None:
    kept = RememberedTraces()
    for at, service in ((1.0, "bot"), (2.0, "shop"), (3.0, "bot")):
        kept.add(remembered(1, at, service))
    assert {(place, trace.service) for place, trace in kept.find(key(1))} == {
        (2, "bot"),
        (1, "shop"),
    }
    assert kept.find(key(2)) == []


def test_the_oldest_by_their_time_are_forgotten_first() -> None:
    kept = RememberedTraces()
    for number, at in enumerate([5.0, 1.0, 3.0]):
        kept.add(remembered(number, at))
    assert kept.shed(2) == 1
    assert [bool(kept.find(key(number))) for number in range(3)] == [True, False, True]


def wait(room: WaitingRoom, trace: str, since: float) -> None:
    room.add(trace, None, "human", since=since, given=GivenLabels())


def test_labels_wait_for_their_trace_through_a_restart() -> None:
    room = WaitingRoom()
    for trace, since in (("a", 30.0), ("b", 10.0), ("a", 20.0)):
        wait(room, trace, since)
    rows: dict[str, Any] = {}
    save(room, rows)
    again = WaitingRoom()
    again.restore([ROWS.validate_python(row) for row in reversed(rows.values())])
    for one in (room, again):
        assert [row.number for row in one.waiting_for("a")] == [1, 3]
        assert one.waiting_for("never heard of") == []
        assert [row.number for row in one.since_before(20.0)] == [2]
        assert one.oldest().since == 30.0
    wait(again, "c", 40.0)
    assert [row.number for row in again.waiting_for("c")] == [4]
    for row in [again.oldest(), *again.waiting_for("b")]:
        again.remove(row)
    assert (len(again), [row.number for row in again.waiting_for("a")]) == (2, [3])
    save(again, rows)
    assert sorted(row["number"] for row in rows.values() if "number" in row) == [3, 4]
    for row in [*again.waiting_for("a"), *again.waiting_for("c")]:
        again.remove(row)
    save(again, rows)
    last = WaitingRoom()
    last.restore([ROWS.validate_python(row) for row in rows.values()])
    wait(last, "d", 50.0)
    assert [row.number for row in last.waiting_for("d")] == [5], "no number is used twice"
