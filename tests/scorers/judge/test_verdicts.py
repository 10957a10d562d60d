from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from ragmeter.scorers.judge.cache import DAY_SECONDS, SqliteVerdictStore
from ragmeter.store.sqlite import SqliteStore


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    state = tmp_path / "state.sqlite"
    SqliteStore(state).close()
    return state


def test_a_verdict_is_found_at_once_and_after_a_restart(path: Path) -> None:
    clock = Clock()
    kept = SqliteVerdictStore(path, 100, 30, clock)
    kept.put(b"k1", "f1", b"{}", clock.now)
    assert kept.get(b"k1") == ("f1", b"{}")
    assert kept.get(b"k2") is None
    kept.close()
    again = SqliteVerdictStore(path, 100, 30, clock)
    assert again.get(b"k1") == ("f1", b"{}")
    again.close()


def test_old_verdicts_are_not_found(path: Path) -> None:
    clock = Clock()
    kept = SqliteVerdictStore(path, 100, 30, clock)
    kept.put(b"k", "f", b"1", clock.now)
    clock.now += 29 * DAY_SECONDS
    assert kept.get(b"k") is not None
    clock.now += 2 * DAY_SECONDS
    assert kept.get(b"k") is None
    kept.close()


def test_the_oldest_go_first_and_age_is_trimmed(path: Path) -> None:
    clock = Clock()
    kept = SqliteVerdictStore(path, 1_000, 30, clock)
    kept.put(b"ancient", "f", b"1", clock.now - 31 * DAY_SECONDS)
    for number in range(30_000):
        kept.put(b"k%d" % number, "f", b"1", clock.now + number * 1e-3)
        if kept._writing is not None:
            kept._writing.result()
    kept.close()
    with closing(sqlite3.connect(path)) as db, db:
        ages = [at for (at,) in db.execute("SELECT at FROM verdicts ORDER BY at")]
    assert 1_000 <= len(ages) <= 1_000 + 2 * 64 * 64
    assert ages[0] >= clock.now


def test_no_entries_keep_nothing(path: Path) -> None:
    kept = SqliteVerdictStore(path, 0, 30)
    kept.put(b"k", "f", b"1", 0)
    assert kept.get(b"k") is None
    kept.close()


def test_a_state_file_that_cannot_be_written_costs_verdicts_only(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = SqliteVerdictStore(path, 10, 30, Clock())
    kept._db.execute("PRAGMA query_only=1")
    kept.put(b"k1", "f", b"1", Clock.now)
    assert kept.get(b"k1") is not None
    kept.close()
    assert "1 verdicts cannot be written" in caplog.text


def test_a_checkpoint_of_ours_is_as_durable_as_one_of_the_state_file(path: Path) -> None:
    kept = SqliteVerdictStore(path, 10, 30, Clock())
    normal = 1  # 0 is off: pages of the worker's commits would be checkpointed without a sync
    assert kept._db.execute("PRAGMA synchronous").fetchone() == (normal,)
    kept.close()
