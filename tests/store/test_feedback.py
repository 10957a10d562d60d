from __future__ import annotations

from pathlib import Path

from ragmeter.store.pending import FeedbackChanges, FeedbackTable, NewFeedback, NewRememberedTrace
from ragmeter.store.rows import StateCommit
from ragmeter.store.sqlite import SqliteStore

A, B = b"a" * 16, b"b" * 16


def row(trace: bytes = A, service: str | None = None) -> NewFeedback:
    return NewFeedback(trace, service, "human", 1.0, "[]")


def frame(
    trace: bytes, service: str = "bot", at: float = 1.0, body: bytes = b"{}"
) -> NewRememberedTrace:
    return NewRememberedTrace(trace, service, at, body)


def test_rows_stay_until_a_commit_takes_them(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    rows = FeedbackTable(store)
    assert rows.last() == 0
    rows.add([row(A), row(B, "bot"), row(A)], {("x_total", ()): 3})
    assert [one.id for one in rows.rows(1, 10)] == [2, 3]
    assert rows.rows(0, 2)[1].new == row(B, "bot")
    store.commit(StateCommit(0, also=FeedbackChanges(done=[2])))
    assert [one.id for one in rows.rows(0, 10)] == [1, 3]
    assert rows.row(2) is None
    assert (
        rows.last(),
        rows.count_feedback(),
        rows.count_feedback(1),
        rows.count_feedback(0, 2),
    ) == (3, 2, 1, 1)
    assert dict(store.saved().counters) == {("x_total", ()): 3}
    store.close()


def test_frames_by_trace_and_service_the_latest_of_each(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    rows = FeedbackTable(store)
    frames = [frame(A, at=5.0), frame(A, "faq", at=2.0), frame(A, at=9.0, body=b"2"), frame(B)]
    store.commit(StateCommit(0, also=FeedbackChanges(frames)))
    assert [(one.service, one.body) for one in rows.remembered_traces(A, None)] == [
        ("bot", b"2"),
        ("faq", b"{}"),
    ]
    assert [one.service for one in rows.remembered_traces(A, "faq")] == ["faq"]
    assert rows.remembered_traces(A, "nobody") == []
    store.commit(
        StateCommit(
            0, also=FeedbackChanges(labelled=[(rows.remembered_traces(B, None)[0].id, b"new")])
        )
    )
    assert rows.remembered_traces(B, None)[0].body == b"new"
    assert rows.count_remembered(before=5.0) == 2
    store.commit(StateCommit(0, also=FeedbackChanges(before=2.0, shed=1)))
    assert rows.remembered_traces(B, None) == []  # too old
    assert [one.service for one in rows.remembered_traces(A, None)] == [
        "bot"
    ]  # the oldest was shed
    store.close()
