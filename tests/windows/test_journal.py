"""The journal of the windows: what a commit adds, in place of all buckets that it changes."""

from __future__ import annotations

import random

import pytest
from ragmeter.core.errors import UnknownVersion
from ragmeter.core.score import ScoredTrace
from ragmeter.windows import state
from ragmeter.windows.buckets import SeriesSlots
from ragmeter.windows.saved_buckets import (
    JOURNAL_VERSION,
    decode_journal,
)
from ragmeter.windows.windows import Windows

from tests.tables import each_row
from tests.windows.helpers import BASE, SPECS, Store, read_all, score, trace, windows


def traffic(seed: int, count: int) -> list[tuple[ScoredTrace, list[str]]]:
    """Late traces, gaps, weights, strata, failures, and segments that few or many traces have."""
    rng = random.Random(seed)
    at = 0.0
    items = []
    for number in range(count):
        at += rng.expovariate(1 / 4) if rng.random() < 0.99 else rng.uniform(300, 5_000)
        scores = [
            score("grounding", rng.random(), rng.choice([1.0, 0.25])),
            score("error", float(rng.random() < 0.1)),
            score("relevance", 3.0 * rng.random()),
        ]
        when = at - rng.choice([0, 0, 0, rng.expovariate(1 / 600)])
        one = trace(
            number, when, scores, rng.choice([1.0, 0.5]), {"total": rng.lognormvariate(0, 1)}
        )
        items.append((one, [f"model={rng.choice('ab')}", f"tenant={rng.randrange(20)}"]))
    return items


def run(seed: int, *, whole: bool, restarts: bool) -> tuple[Windows, Store, int]:
    rng = random.Random(seed)
    rows = 0
    store = Store()
    w = windows(worst_of={"model"}, name_worst=True)
    for number, (one, segments) in enumerate(traffic(seed, 150)):
        w.add(one, "bot", segments)
        if rng.random() < 0.1:
            changed = w.drain(whole)
            rows += sum(data is not None for *_, data in changed)
            store.write(changed)
            w.take_new_worst()
            if restarts and rng.random() < 0.3:
                w = windows(worst_of={"model"}, name_worst=True)
                w.load(store.read())
                assert w.take_new_worst() == set()
        if number % 75 == 74:
            read_all(w)
    store.write(w.drain())
    return w, store, rows


@pytest.mark.parametrize("seed", range(3))
def test_what_is_saved_and_read_does_not_depend_on_the_journal_or_on_restarts(seed: int) -> None:
    expected, store, many = run(seed, whole=True, restarts=False)
    for restarts in (False, True):
        found, other, few = run(seed, whole=False, restarts=restarts)
        assert read_all(found) == read_all(expected)
        assert other.rows == store.rows
        assert few < many


def test_a_commit_writes_one_row_however_many_segments_it_changes() -> None:
    w = windows()
    w.add(trace(0, 0.0, {"error": 0.0}), "bot", [f"tag{n}=x" for n in range(20)])
    keys = [row[:4] for row in w.drain(whole=False)]
    assert keys == [("", "", 0, 0), ("", "", 0, 1)]
    assert [row[:4] for row in w.drain(whole=False)] == []


def test_a_long_journal_is_replaced_by_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_JOURNAL_BYTES", 300)
    w = windows()
    store = Store()
    most = 0
    for number in range(20):
        w.add(trace(number, number, {"error": 0.0}), "bot", ["tag=x"])
        store.write(w.drain(whole=False))
        journal = [row for row in store.read() if row[:3] == ("", "", 0) and row[3]]
        most = max(most, len(journal))
    assert 0 < most <= 6
    assert any(row[2] for row in store.read())


def test_what_nobody_saves_does_not_grow_and_is_saved_as_buckets_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state, "_MAX_UNSAVED", 5)
    w = windows()
    store = Store()
    w.add(trace(0, 0.0, {"error": 0.0}), "bot", ["tag=x"])
    store.write(w.drain(whole=False))
    for number in range(1, 30):
        w.add(trace(number, 10.0 * number, {"error": 0.0}), "bot", ["tag=x"])
        w.services()  # brings it into the windows
    store.write(w.drain(whole=False))
    assert not [row for row in store.read() if row[:3] == ("", "", 0) and row[3]]
    other = windows()
    other.load(store.read())
    assert read_all(other) == read_all(w)


def test_a_correction_is_saved_with_whole_buckets() -> None:
    w = windows()
    store = Store()
    part = trace(1, 0.0, {"grounding": 1.0})._replace(partial=True)
    w.add(trace(0, 0.0, {"error": 0.0}), "bot", ["tag=x"])
    w.add(part, "bot", ["tag=x"])
    store.write(w.drain(whole=False))
    w.retract(part, "bot", ["tag=x"])
    store.write(w.drain(whole=False))
    other = windows()
    other.load(store.read())
    assert read_all(other) == read_all(w)
    assert other.series("bot", "tag=x") == [("error", "builtin")]


def test_what_leaves_the_longest_window_goes_to_the_archive_without_whole_buckets() -> None:
    w = windows()
    store = Store()
    for number in range(4):
        w.add(trace(number, 12 * 3_600.0 * number, {"error": 0.0}), "bot", ["tag=x"])
        store.write(w.drain(whole=False))
    widths = {row[2] for row in store.read()}
    assert widths == {0, 6 * 3_600 + 1}
    other = windows()
    other.load(store.read())
    assert read_all(other) == read_all(w)
    history = [one.history("bot", "", "error", "builtin", "2d") for one in (w, other)]
    assert history[0] == history[1]
    assert len([point for _, point in history[0] if point]) == 4


def test_a_row_of_another_version_is_refused() -> None:
    w = windows()
    w.add(trace(0, 0.0, {"error": 0.0}), "bot")
    (*_, data) = w.drain(whole=False)[-1]
    assert data is not None
    assert data[0] == JOURNAL_VERSION
    with pytest.raises(UnknownVersion):
        decode_journal(bytes([data[0] + 1]) + data[1:], SeriesSlots(SPECS))


@each_row(
    "content",
    ["[", "{", "3", "[[],[1]]", '[["s",[],0,[1,[],[["total"]],[]]]]', '[[],[["s",[],0,1,[]]]]'],
)
def test_a_damaged_row_is_a_value_error(content: str) -> None:
    with pytest.raises(ValueError, match="window state"):
        decode_journal(bytes([JOURNAL_VERSION]) + content.encode(), SeriesSlots(SPECS))


def test_segments_are_read_right_after_their_traces() -> None:
    w = windows(min_samples=1)
    for number in range(3):
        w.add(trace(number, number, {"error": 1.0}), "bot", ["tag=x"])
        assert w.count_traces("bot", "tag=x", "5m") == number + 1
        assert w.segments("bot") == ["tag=x"]
        bucket = w.bucket("bot", "tag=x", "error", "builtin", 600, BASE)
        assert bucket is not None
        assert bucket.n == number + 1


def test_what_has_left_the_longest_window_is_in_the_archive_after_a_restart() -> None:
    w = Windows(("5m",), specs=SPECS)
    store = Store()
    for number in range(10):
        w.add(trace(number, 200.0 * number, {"error": 1.0}), "bot")
        store.write(w.drain(whole=False))
    other = Windows(("5m",), specs=SPECS)
    other.load(store.read())
    points = other.history("bot", "", "error", "builtin", "24h")
    assert points == w.history("bot", "", "error", "builtin", "24h")
    assert sum(point.samples for _, point in points if point) == 10
