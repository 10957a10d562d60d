from __future__ import annotations

import sqlite3
from pathlib import Path

from agent.store.feedback import FeedbackRows, FeedbackStep, NewFrame, NewRow
from agent.store.open import APPLICATION_ID, FOURTH, SCHEMA, SCHEMA_VERSION, SECOND, THIRD
from agent.store.rows import Commit
from agent.store.sqlite import SqliteStore

A, B = b"a" * 16, b"b" * 16


def row(trace: bytes = A, service: str | None = None) -> NewRow:
    return NewRow(trace, service, "human", 1.0, "[]")


def frame(trace: bytes, service: str = "bot", at: float = 1.0, body: bytes = b"{}") -> NewFrame:
    return NewFrame(trace, service, at, body)


def test_a_file_of_version_4_is_brought_up_to_date_with_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    old = sqlite3.connect(path)
    old.executescript(f"{SCHEMA} {SECOND} {THIRD} {FOURTH} PRAGMA user_version=4;")
    old.execute(f"PRAGMA application_id={APPLICATION_ID}")
    old.execute("INSERT INTO inbox(timestamp, received, body) VALUES(1.0, 2.0, x'7b7d')")
    old.commit()
    old.close()
    store = SqliteStore(path)
    assert not store.quarantined
    assert [queued.body for queued in store.take(0, 10)] == [b"{}"]
    rows = FeedbackRows(store)
    rows.add([row()], {})
    store.commit(Commit(0, also=FeedbackStep([frame(A)])))
    assert rows.number() == rows.number_of_frames() == 1
    store.close()
    again = sqlite3.connect(path)
    assert again.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
    again.close()


def test_rows_stay_until_a_commit_takes_them(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    rows = FeedbackRows(store)
    assert rows.last() == 0
    rows.add([row(A), row(B, "bot"), row(A)], {("x_total", ()): 3})
    assert [one.id for one in rows.rows(1, 10)] == [2, 3]
    assert rows.rows(0, 2)[1].new == row(B, "bot")
    store.commit(Commit(0, also=FeedbackStep(done=[2])))
    assert [one.id for one in rows.rows(0, 10)] == [1, 3]
    assert rows.row(2) is None
    assert (rows.last(), rows.number(), rows.number(1), rows.number(0, 2)) == (3, 2, 1, 1)
    assert dict(store.saved().counters) == {("x_total", ()): 3}
    store.close()


def test_frames_by_trace_and_service_the_latest_of_each(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite")
    rows = FeedbackRows(store)
    frames = [frame(A, at=5.0), frame(A, "faq", at=2.0), frame(A, at=9.0, body=b"2"), frame(B)]
    store.commit(Commit(0, also=FeedbackStep(frames)))
    assert [(one.service, one.body) for one in rows.frames(A, None)] == [
        ("bot", b"2"),
        ("faq", b"{}"),
    ]
    assert [one.service for one in rows.frames(A, "faq")] == ["faq"]
    assert rows.frames(A, "nobody") == []
    store.commit(Commit(0, also=FeedbackStep(labelled=[(rows.frames(B, None)[0].id, b"new")])))
    assert rows.frames(B, None)[0].body == b"new"
    assert rows.number_of_frames(before=5.0) == 2
    store.commit(Commit(0, also=FeedbackStep(before=2.0, shed=1)))
    assert rows.frames(B, None) == []  # too old
    assert [one.service for one in rows.frames(A, None)] == ["bot"]  # the oldest was shed
    store.close()
