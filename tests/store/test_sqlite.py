from __future__ import annotations

import contextlib
import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ragmeter.core.dedupe import CONSECUTIVE_TRACES
from ragmeter.core.errors import QueueFull, StateError
from ragmeter.store import sqlite
from ragmeter.store.rows import (
    OutboxItem,
    SourceProgress,
    StateCommit,
    StoreOptions,
    TraceArrival,
)
from ragmeter.store.sqlite import SqliteStore
from ragmeter.store.state_file import describe_disk_error, open_state, remove_state_file

from tests.traces import make_trace

KEY = ("ragmeter_traces_received_total", (("source", "test"),))
DUPLICATES = ("ragmeter_traces_duplicate_total", (("source", "test"),))
HORIZON = 3600.0


def arrival(number: int, at: float = 0.0) -> TraceArrival:
    return TraceArrival("bot", f"t{number}", at, b"{}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "state.sqlite"


def opened(path: Path, reported: list[str] | None = None) -> SqliteStore:
    warn = reported.append if reported is not None else lambda text: None
    return SqliteStore(path, StoreOptions(horizon=HORIZON), warn=warn)


def test_what_is_accepted_is_there_after_a_restart(path: Path) -> None:
    store = opened(path)
    store.accept([arrival(1), arrival(2)], 5.0, progress=SourceProgress("f", 99), counts={KEY: 2})
    store.close()
    store = opened(path)
    assert [queued.seq for queued in store.take(0, 10)] == [1, 2]
    assert store.depth == 2
    assert store.position("f") == 99
    assert store.saved().counters == [(KEY, 2)]
    store.close()


def test_the_same_id_counts_once(path: Path) -> None:
    store = opened(path)
    done = store.accept([arrival(1), arrival(1)], 0.0, count_duplicates=DUPLICATES)
    assert done.fresh == (True, False)
    assert store.accept([arrival(1)], 0.0, count_duplicates=DUPLICATES).duplicates == 1
    assert store.depth == 1
    assert store.saved().counters == [(DUPLICATES, 2)]
    store.close()


def test_the_same_id_of_another_service_is_another_trace(path: Path) -> None:
    store = opened(path)
    other = TraceArrival("bo", "tt1", 0.0, b"{}")  # the two parts joined are the same text
    assert store.accept([arrival(1), other], 0.0).fresh == (True, True)
    store.close()


def test_an_id_is_known_for_one_horizon_and_forgotten_after_two(path: Path) -> None:
    store = opened(path)
    store.accept([arrival(1, 0.0)], 0.0)
    assert store.accept([arrival(1, HORIZON * 0.99)], 0.0).duplicates == 1
    store.accept([arrival(10 + n, HORIZON * 1.1) for n in range(CONSECUTIVE_TRACES)], 0.0)
    assert store.accept([arrival(1, HORIZON * 1.1)], 0.0).duplicates == 1
    store.accept([arrival(30 + n, HORIZON * 2.2) for n in range(CONSECUTIVE_TRACES)], 0.0)
    assert store.accept([arrival(1, HORIZON * 2.2)], 0.0).duplicates == 0
    store.close()


def test_ids_from_the_future_do_not_stop_the_rotation(path: Path) -> None:
    store = opened(path)
    store.accept(
        [arrival(1, 0.0), *(arrival(10 + n, 1e10) for n in range(CONSECUTIVE_TRACES))], 0.0
    )
    assert store.accept([arrival(1, 20.0)], 0.0).duplicates == 1
    for n in range(100, 100 + 10 * CONSECUTIVE_TRACES):
        store.accept([arrival(n, HORIZON * (n - 90))], 0.0)
    counts = [store._db.execute(f"SELECT count(*) FROM seen_{g}").fetchone()[0] for g in (0, 1)]
    assert sum(counts) <= 2 * CONSECUTIVE_TRACES
    store.close()


def test_generations_survive_a_restart(path: Path) -> None:
    store = opened(path)
    store.accept([arrival(1, 0.0), *(arrival(n, HORIZON * 1.5) for n in range(2, 6))], 0.0)
    store.close()
    store = opened(path)
    # half of those that say so before it, half after it
    store.accept([arrival(n, HORIZON * 1.5) for n in range(6, 10)], 0.0)
    assert store.meta()["seen_start"] == HORIZON * 1.5
    assert store.accept([arrival(1, HORIZON * 1.6)], 0.0).duplicates == 1
    store.close()


def test_a_commit_takes_its_traces_off_the_queue_with_their_effect(path: Path) -> None:
    store = opened(path)
    store.accept([arrival(number) for number in range(3)], 0.0)
    row = ("bot", "", 10, 0, b"x")
    store.commit(StateCommit(2, buckets=[row], counters=[(KEY, 2.0)], meta={"a": [1]}))
    assert [queued.seq for queued in store.take(0, 10)] == [3]
    saved = store.saved()
    assert saved.buckets == [row]
    assert saved.meta["a"] == [1]
    store.commit(StateCommit(2, buckets=[("bot", "", 10, 0, None)]))
    assert store.saved().buckets == []
    store.close()


def test_a_step_that_fails_leaves_nothing(path: Path) -> None:
    store = opened(path)
    store.accept([arrival(1)], 0.0)
    step = StateCommit(1, counters=[(KEY, 1.0)], meta={"bad": object()})
    with pytest.raises(TypeError):
        store.commit(step)
    assert store.depth == 1
    assert len(store.take(0, 10)) == 1
    assert store.saved().counters == []
    store.close()


def test_a_full_disk_refuses_and_keeps_what_was_there(path: Path) -> None:
    store = opened(path)
    store.accept([arrival(1)], 0.0)
    store._db.execute("PRAGMA max_page_count=30")
    big = [TraceArrival("bot", f"big{n}", 0.0, b"x" * 50_000) for n in range(10)]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.accept(big, 0.0)
    assert store.depth == 1
    store._db.execute("PRAGMA max_page_count=100000")
    assert store.accept(big, 0.0).accepted == 10
    store.close()


def test_a_commit_that_fails_leaves_no_trace_in_memory(path: Path) -> None:
    """The ids of its rows are given to the next traces, which must not be taken for them."""
    store = opened(path)
    trace = make_trace()

    def fail_at_commit(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA defer_foreign_keys=ON")
        db.execute("INSERT INTO child VALUES(7)")

    store._db.execute("PRAGMA foreign_keys=ON")
    store._db.execute("CREATE TABLE parent(id INTEGER PRIMARY KEY)")
    store._db.execute("CREATE TABLE child(parent REFERENCES parent(id))")
    lost = TraceArrival("bot", "lost", 0.0, b"lost", trace=trace)
    with pytest.raises(sqlite3.IntegrityError):
        store.accept([lost, arrival(1, HORIZON * 1.1)], 0.0, also=fail_at_commit)
    assert store.depth == 0
    assert store.take(0, 10) == []
    store.accept([TraceArrival("bot", "next", 0.0, b"next", trace=trace)], 0.0)
    assert store.depth == 1
    assert [queued.body for queued in store.take(0, 10)] == [b"next"]
    store.close()


def test_a_second_agent_is_refused(path: Path) -> None:
    store = opened(path)
    with pytest.raises(StateError, match=r"in use by another ragmeter .* its own state.path"):
        opened(path)
    with pytest.raises(StateError, match="in use by another ragmeter"):
        remove_state_file(path)
    store.close()
    opened(path).close()


def test_a_second_agent_is_refused_through_a_link(path: Path) -> None:
    link = path.parent.parent / "link.db"
    link.symlink_to(path)
    store = opened(path)
    for act in (opened, remove_state_file):
        with pytest.raises(StateError, match="in use by another ragmeter"):
            act(link)
    store.close()
    opened(link).close()
    remove_state_file(link)
    assert link.is_symlink()
    assert not path.exists()


@pytest.mark.parametrize("damage", [b"this is no database" * 100, None])
def test_a_corrupt_file_is_kept_aside_and_said_so(path: Path, damage: bytes | None) -> None:
    store = opened(path)
    store.accept([TraceArrival("bot", f"t{n}", 0.0, b"x" * 3000) for n in range(50)], 0.0)
    store.close()
    if damage is None:  # a page in the middle overwritten, as a bad disk would
        content = bytearray(path.read_bytes())
        middle = len(content) // 2 // 4096 * 4096
        content[middle : middle + 4096] = b"\xa5" * 4096
        damage = bytes(content)
    path.write_bytes(damage)
    reported: list[str] = []
    store = opened(path, reported)
    assert store.quarantined
    assert store.depth == 0
    (kept,) = path.parent.glob("state.sqlite.corrupt-*")
    assert kept.read_bytes() == damage
    assert str(kept) in reported[0]
    assert "corrupt" in reported[0]
    store.close()


@pytest.mark.parametrize(
    ("code", "aside"),
    [
        (sqlite3.SQLITE_IOERR_READ, False),
        (sqlite3.SQLITE_BUSY, False),
        (sqlite3.SQLITE_ERROR, True),  # a table is missing
    ],
)
def test_a_disk_that_fails_for_a_moment_moves_no_state_aside(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int, aside: bool
) -> None:
    store = opened(path)
    store.accept([TraceArrival("bot", "t", 0.0, b"{}")], 0.0)
    store.close()
    failures = [sqlite3.OperationalError("disk I/O error")]
    failures[0].sqlite_errorcode = code
    meta = SqliteStore._meta

    def failing(self: SqliteStore) -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return meta(self)

    monkeypatch.setattr(SqliteStore, "_meta", failing)
    if aside:
        opened(path).close()
    else:
        with pytest.raises(StateError, match="disk I/O error"):
            opened(path)
        store = opened(path)
        assert store.depth == 1
        store.close()
    assert bool(list(path.parent.glob("*.corrupt-*"))) == aside


def test_another_programs_database_is_not_touched(path: Path) -> None:
    path.parent.mkdir()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE customers(name)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(StateError, match="another program"):
        opened(path)
    other = sqlite3.connect(path)
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("customers",)]
    other.close()
    assert before[:16] == path.read_bytes()[:16]


@pytest.mark.parametrize("version", [0, 99])
def test_a_state_of_another_version_is_refused_not_destroyed(path: Path, version: int) -> None:
    opened(path).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version={version}")
    database.close()
    with pytest.raises(StateError, match=f"version {version};"):
        opened(path)
    assert path.exists()


def test_notifications_stay_in_their_order_until_they_are_delivered(path: Path) -> None:
    store = opened(path)
    items = [OutboxItem(name, name[0], "{}", 1.0) for name in ("a-fired", "b-fired", "a-resolved")]
    store.commit(StateCommit(0, outbox=items))
    store.commit(StateCommit(0, outbox=items))  # a redone step puts nothing in twice
    assert store.saved().outbox == items
    # one that came again after it was delivered waits again
    store.commit(StateCommit(0, outbox=items[:1], delivered=["a-fired", "b-fired"]))
    store.close()
    store = opened(path)
    assert [item.id for item in store.saved().outbox] == ["a-resolved", "a-fired"]
    store.close()


def test_what_is_deleted_is_overwritten_where_asked_for(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.sqlite", StoreOptions(overwrite=True))
    # some builds of SQLite do it always: the bytes would not tell
    assert store.fetch("PRAGMA secure_delete") == [(1,)]
    store.close()


def test_a_decoded_trace_waits_in_memory_until_it_is_taken_and_not_over_a_restart(
    path: Path,
) -> None:
    store = opened(path)
    decoded = [arrival(number)._replace(trace=make_trace(number)) for number in range(3)]
    store.accept(decoded, 5.0)
    taken = store.take(0, 2)
    assert [queued.trace for queued in taken] == [row.trace for row in decoded[:2]]
    assert store.take(0, 1)[0].trace is None  # it was taken before: the table has it still
    assert store.take(2, 5)[0].trace is decoded[2].trace
    store.close()
    store = opened(path)
    assert [(queued.seq, queued.trace) for queued in store.take(0, 5)] == [
        (1, None),
        (2, None),
        (3, None),
    ]
    store.close()


@pytest.mark.parametrize("seed", range(20))
def test_traces_are_taken_in_order_and_once_wherever_they_wait(
    path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_KEPT_TRACES", 5)
    rng = random.Random(seed)
    store = opened(path)
    accepted = 0
    after = 0
    crowded = False
    taken: list[tuple[int, bytes, bool]] = []
    for _ in range(60):
        size = rng.randrange(4)
        rows = [
            TraceArrival("bot", f"t{n}", 0.0, b"%d" % n, trace=make_trace(n))
            for n in range(accepted, accepted + size)
        ]
        held = [TraceArrival("bot", f"h{accepted}", 0.0, b"", held=True)] * rng.randrange(2)
        store.accept([*held, *rows], 0.0)
        accepted += size
        crowded |= store.crowded
        if rng.random() < 0.5:
            batch = store.take(after, rng.randrange(1, 7))
            taken += [(queued.seq, queued.body, queued.trace is not None) for queued in batch]
            after = batch[-1].seq if batch else after
            store.commit(StateCommit(after))
    while batch := store.take(after, 3):
        taken += [(queued.seq, queued.body, queued.trace is not None) for queued in batch]
        after = batch[-1].seq
    assert crowded
    assert [(seq, body) for seq, body, _ in taken] == [(n + 1, b"%d" % n) for n in range(accepted)]
    assert {kept for *_, kept in taken} == {True, False}
    store.close()


def test_known_ids_are_found_in_both_generations_and_within_a_batch(path: Path) -> None:
    store = opened(path)
    store.accept([arrival(1)], 0.0)
    later = [arrival(100 + n, HORIZON) for n in range(CONSECUTIVE_TRACES)]
    done = store.accept([arrival(1), *later, arrival(1, HORIZON), later[-1], arrival(2)], 0.0)
    assert done.fresh == (False, *[True] * CONSECUTIVE_TRACES, False, False, True)
    assert store.depth == 1 + CONSECUTIVE_TRACES + 1
    store.close()


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="is a folder; state"):
        SqliteStore(tmp_path)


@pytest.mark.parametrize("path", ["/dev/null", "/dev/full", "/dev/tty"])
def test_a_device_in_place_of_the_file_is_named(path: str) -> None:
    with pytest.raises(StateError, match="is a device or the like; state"):
        SqliteStore(Path(path))
    with pytest.raises(StateError, match="is a device"):
        remove_state_file(Path(path))
    assert not Path(f"{path}.lock").exists()


def test_what_cannot_be_written_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateError, match=r"state\.path names a file in a folder that can be"):
        SqliteStore(tmp_path / "file" / "state.db")
    for code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        error = sqlite3.OperationalError("attempt to write a readonly database")
        error.sqlite_errorcode = code
        assert "state.path names a file that can" in describe_disk_error(tmp_path, error)


def test_only_a_state_file_is_deleted(tmp_path: Path) -> None:
    foreign = tmp_path / "notes.txt"
    foreign.write_text("not ours")
    other = tmp_path / "other.sqlite"
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    for path in (foreign, other):
        with pytest.raises(StateError, match="is no state file"):
            remove_state_file(path)
        assert path.exists()
    ours = tmp_path / "ours.sqlite"
    open_state(ours, "NORMAL", print)[0].close()
    remove_state_file(ours)
    assert not ours.exists()


FILE = "file:1"


def read_again(store: SqliteStore, rows: list[TraceArrival], position: int) -> tuple[bool, ...]:
    done = store.accept(
        rows,
        5.0,
        progress=SourceProgress(FILE, position),
        counts={KEY: len(rows)},
        count_duplicates=DUPLICATES,
        again=True,
    )
    return done.fresh


def bodies_in_file(store: SqliteStore) -> int:
    return int(store.fetch("SELECT count(*) FROM inbox")[0][0])


def test_what_a_file_gives_again_brings_no_body_and_its_position_with_its_commit(
    path: Path,
) -> None:
    store = opened(path)
    store.accept([arrival(0)], 5.0)  # the clock of known ids begins
    store.commit(StateCommit(1))
    rows = [arrival(n)._replace(trace=make_trace(n)) for n in range(3)]
    assert read_again(store, rows, 99) == (False, True, True)
    assert (store.depth, bodies_in_file(store), store.position(FILE)) == (2, 0, 99)
    assert not store.fetch("SELECT * FROM progress")
    assert store.saved().counters == []
    assert store.has_waiting("inbox", store.last_id("inbox"))
    taken = store.take(1, 10)
    assert [(queued.seq, queued.trace) for queued in taken] == [
        (2, rows[1].trace),
        (3, rows[2].trace),
    ]
    assert store.commit(StateCommit(3)) == {KEY: 3, DUPLICATES: 1}
    assert (store.depth, store.position(FILE)) == (0, 99)
    assert sorted(store.saved().counters) == sorted([(KEY, 3.0), (DUPLICATES, 1.0)])
    assert not store.has_waiting("inbox", store.last_id("inbox"))
    assert store.accept([arrival(1)], 0.0).duplicates == 1
    store.close()


def test_before_their_commit_a_crash_forgets_what_a_file_gives_again(path: Path) -> None:
    store = opened(path)
    store.accept([arrival(0)], 5.0)
    store.commit(StateCommit(1))
    read_again(store, [arrival(1), arrival(2)], 50)
    # somebody else sends one of them too: it is a duplicate, and not known before it is counted
    assert store.accept([arrival(2), arrival(3)], 5.0).fresh == (False, True)
    store.close()
    store = opened(path)
    assert store.position(FILE) == 0
    assert [queued.seq for queued in store.take(1, 10)] == [4]  # after those that were in memory
    assert read_again(store, [arrival(1), arrival(2), arrival(3)], 70) == (True, True, False)
    store.close()


def test_of_a_batch_that_is_counted_in_part_the_rest_is_stored(path: Path) -> None:
    store = opened(path)
    store.accept([arrival(0)], 5.0)
    store.commit(StateCommit(1))
    read_again(store, [arrival(n) for n in range(1, 5)], 50)
    assert [row.seq for row in store.take(1, 10)] == [2, 3, 4, 5]
    store.commit(StateCommit(3))
    assert (store.depth, bodies_in_file(store), store.position(FILE)) == (2, 2, 50)
    store.close()
    store = opened(path)
    assert [row.seq for row in store.take(3, 10)] == [4, 5]
    assert store.accept([arrival(n) for n in range(1, 5)], 0.0).accepted == 0
    store.commit(StateCommit(5))
    assert store.depth == 0
    store.close()


@pytest.mark.parametrize("seed", range(20))
def test_a_file_and_senders_together_count_once_whatever_dies(path: Path, seed: int) -> None:
    """A file of 200 traces with some twice, the same traces from senders, steps that fail, and
    processes that die between two steps. The position is the number of lines."""
    rng = random.Random(seed)
    lines = [f"t{rng.randrange(180)}" for _ in range(200)]
    times = {trace_id: HORIZON * 0.02 * n for n, trace_id in enumerate(dict.fromkeys(lines))}
    counted: Counter[bytes] = Counter()

    def arrived(trace_id: str) -> TraceArrival:
        return TraceArrival("bot", trace_id, times[trace_id], trace_id.encode())

    store = opened(path)
    position = after = 0
    while position < len(lines) or store.depth:
        action = rng.random()
        if action < 0.4 and position < len(lines):
            batch = lines[position : position + rng.randrange(1, 9)]
            with contextlib.suppress(QueueFull):
                read_again(store, [arrived(one) for one in batch], position + len(batch))
                position += len(batch)
        elif action < 0.5:
            store.accept([arrived(one) for one in rng.sample(lines, 3)], 0.0)
        elif action < 0.55:
            store.close()
            store = opened(path)
            position = store.position(FILE)
            after = 0
        elif rows := store.take(after, rng.randrange(1, 12)):
            for number in sorted({rng.randrange(len(rows)), len(rows) - 1}):
                step = StateCommit(rows[number].seq)
                if rng.random() < 0.2:
                    with pytest.raises(sqlite3.IntegrityError):
                        store.commit(StateCommit(step.upto, also=fail))
                store.commit(step)
            counted.update(row.body for row in rows)
            after = rows[-1].seq
        assert store.position(FILE) <= position
    received = sum(value for key, value in store.saved().counters if key == KEY)
    assert received == len(lines)
    assert set(counted) >= {one.encode() for one in lines}
    assert set(counted.values()) == {1}
    store.close()


def fail(db: sqlite3.Connection) -> None:
    raise sqlite3.IntegrityError("tried")
