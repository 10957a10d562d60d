from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

from ragmeter.core.dedupe import DedupeIds
from ragmeter.store.rows import StoreOptions, TraceArrival
from ragmeter.store.sqlite import SqliteStore


def test_the_rule_is_that_of_the_state_file(tmp_path: Path) -> None:
    rng = random.Random(4)
    ours = DedupeIds(100)
    options = StoreOptions(horizon=100, synchronous="normal")
    store = SqliteStore(tmp_path / "s.sqlite", options)
    now = 0.0
    for _ in range(60):
        rows = []
        for _ in range(200):
            now += rng.choice([0.0, 0.1, 0.1, 3.0]) - (rng.random() < 0.002) * 250
            wrong = rng.choice([0.0, 0.0, 0.0, 0.0, -1e6, 1e6])
            rows.append((rng.choice("ab"), str(rng.randrange(2_000)), now + wrong))
        done = store.accept([TraceArrival(*row, b"{}") for row in rows], 0.0)
        assert done.fresh == tuple(ours.add(*row) for row in rows)
    store.close()


def test_an_id_is_known_however_other_traces_are_dated() -> None:
    ids = DedupeIds(100)
    assert ids.add("a", "x", 1000)
    for wrong in (0.0, 0.0, 1e9, 0.0, 1e9, 1e9):
        ids.add("a", str(random.random()), wrong)
        assert not ids.add("a", "x", 1001)


def test_ids_are_forgotten_after_one_to_two_horizons() -> None:
    ids = DedupeIds(100)
    assert ids.add("a", "x", 0)
    for second in range(1, 100):
        ids.add("a", str(second), second)
    assert not ids.add("a", "x", 99)
    for second in range(100, 300):
        ids.add("a", str(second), second)
    assert ids.add("a", "x", 300)


def test_time_that_goes_back_for_good_is_believed() -> None:
    """One trace a year ahead, then a file that begins a month back."""
    ids = DedupeIds(100)
    for n, at in enumerate([0.0, 1e9, *(-1e6 + n for n in range(300))]):
        ids.add("a", str(n), at)
    assert ids.add("a", "2", -1e6 + 300)


def test_a_service_has_ids_of_its_own() -> None:
    ids = DedupeIds(100)
    assert [ids.add(*row, 0) for row in (("a", "bc"), ("ab", "c"), ("a", "bc"))] == [
        True,
        True,
        False,
    ]


def test_memory_is_bounded_whatever_comes() -> None:
    ids = DedupeIds(1e9, most=1000)
    for number in range(10_000):
        assert ids.add("a", str(number), 0)
    known = [not ids.add("a", str(number), 0) for number in range(8_500, 10_000)]
    assert all(later >= earlier for earlier, later in pairwise(known))  # the older go first
    assert sum(known) >= 1000


def test_the_window_that_holds_is_told() -> None:
    """What is later than the window reaches back is known, whatever the rate and the order."""
    rng = random.Random(5)
    ids = DedupeIds(1000.0, most=500)
    assert ids.window(None) == 1000.0
    seen: list[tuple[str, float]] = []
    least = 1000.0
    for number in range(12_000):
        now = number * (1.0 if number < 6_000 else 0.2) + 4_800.0 * (number >= 6_000)
        at = rng.choice([now, now, now - 30.0, now - 200.0])
        if rng.random() < 0.001:
            ids.add("a", f"misdated {number}", rng.choice([now - 1e6, now + 1e6]))
        if ids.add("a", str(number), at):
            seen.append((str(number), at))
        least = min(least, ids.window(now))
        for name, then in (rng.choice(seen[-1000:]), rng.choice(seen)):
            again = ids.add("a", name, now)
            assert not (again and then > now - ids.window(now))
    assert 20.0 < least < 500.0
    # few again: after a horizon the promise holds
    for number in range(300):
        ids.add("b", str(number), 7_200.0 + 10.0 * number)
    assert ids.window(10_200.0) == 1000.0
