from __future__ import annotations

import random
from collections import Counter
from hashlib import blake2b

from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.windows.windows import Windows
from ragmeter.windows.worst import (
    WORST_PER_BUCKET,
    WorstEntry,
    insert_entry,
    merge_entries,
    pack_entries,
    tie_break,
    unpack_entries,
    worst_direction,
)

from tests.windows.helpers import SPECS

entries = st.lists(
    st.builds(
        lambda value, number: WorstEntry(value, tie_break(f"t{number}"), f"t{number}", number),
        st.sampled_from([0.0, 0.25, 0.5]),
        st.integers(0, 50),
    ),
    min_size=1,
    max_size=30,
)


def worst_of(found: list[WorstEntry]) -> list[WorstEntry]:
    kept: list[WorstEntry] = []
    for entry in found:
        insert_entry(kept, entry)
    return kept


@settings(deadline=None, derandomize=True)
@given(entries)
def test_keeps_the_five_smallest(found: list[WorstEntry]) -> None:
    assert worst_of(found) == sorted(set(found))[:WORST_PER_BUCKET]


@settings(deadline=None, derandomize=True)
@given(entries, entries, entries)
def test_merging_is_free_of_order_and_grouping(
    a: list[WorstEntry], b: list[WorstEntry], c: list[WorstEntry]
) -> None:
    whole = worst_of([*c, *a, *b])
    left = merge_entries(merge_entries(worst_of(a), worst_of(b)), worst_of(c))
    right = merge_entries(
        worst_of(a), merge_entries(pack_entries(worst_of(c)), pack_entries(worst_of(b)))
    )
    assert unpack_entries(left) == unpack_entries(right) == whole


def test_each_of_many_ties_is_named_equally_often() -> None:
    """2,000 hours in which the same 20 places of arrival fail, each time other ids: by chance a
    place is named 500 times, give or take 19 (one standard deviation)."""
    named = Counter[int]()
    for hour in range(2000):
        ties = [f"{hour:08x}-{place}" for place in range(20)]
        kept = worst_of(
            [WorstEntry(0.0, tie_break(name), name, at) for at, name in enumerate(ties)]
        )
        named.update(int(entry.timestamp) for entry in kept)
    assert sum(named.values()) == 10_000
    squares = sum((named[place] - 500) ** 2 / 500 for place in range(20)) / (1 - 5 / 20)
    assert squares < 43.8  # chi-square of 19 degrees of freedom, 99.9 %


def test_a_sampler_that_hashes_ids_does_not_decide_ties() -> None:
    """Ids of which an upstream sampler kept the twentieth with the lowest plain hash."""
    ids = [f"t{number}" for number in range(40_000)]
    kept = sorted(ids, key=lambda name: blake2b(name.encode(), digest_size=8).digest())[:2000]
    ties = sorted(tie_break(name) / 2**64 for name in kept)
    apart = max(abs(tie - place / 2000) for place, tie in enumerate(ties))
    assert apart < 1.95 / 2000**0.5  # Kolmogorov-Smirnov, 99.9 %


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.permutations(range(40)), st.integers(1, 40))
def test_order_and_batches_change_no_tie(order: list[int], batch: int) -> None:
    def named(numbers: list[int], size: int) -> list[str]:
        windows = Windows(specs=SPECS)
        for at, number in enumerate(numbers, 1):
            score = Score("error", "builtin", ScoreState.SCORED, 1.0)
            when = 1_000_000.0 + number * 7
            windows.add(ScoredTrace(f"t{number}", "bot", when, "ok", [score]), "bot")
            if at % size == 0:
                windows.series("bot")  # read_all folds
        return [worst.trace_id for worst in windows.worst("bot", "error", "builtin", "1h")]

    assert named(order, batch) == named(list(range(40)), 40)


def test_any_text_may_be_an_id() -> None:
    entry = WorstEntry(0.0, tie_break("\ud800\n\"'"), "\ud800\n\"'", 1.5)
    assert unpack_entries(pack_entries([entry])) == [entry]


def test_what_counts_as_bad() -> None:
    rng = random.Random(1)
    values = [0.0, 1.0, rng.random()]

    def taken(metric: str) -> list[float]:
        sign, bar = worst_direction(SPECS[metric])
        return [v for v in values if sign and sign * v <= bar]

    assert taken("answered") == [0.0]
    assert taken("error") == [1.0]
    assert taken("grounding") == [values[0], values[2]]  # a perfect answer is no worst trace
    assert taken("tokens") == []
    assert worst_direction(None)[0] == 0


def test_the_slowest_traces_are_known_by_stage() -> None:
    windows = Windows(specs=SPECS)
    for n in range(50):
        timings = {"total": (n * 7) % 50 / 10, "retrieval": 0.1}
        trace = ScoredTrace(f"t{n}", "bot", 1_000_000.0 + n, "ok", [], timings=timings)
        windows.add(trace, "bot")
    slowest = windows.worst("bot", "latency", "total", "5m")
    assert [item.value for item in slowest] == [4.9, 4.8, 4.7, 4.6, 4.5]
    again = Windows(specs=SPECS)
    again.load(windows.drain())
    assert again.worst("bot", "latency", "total", "5m") == slowest


def test_named_are_the_worst_once() -> None:
    windows = Windows(specs=SPECS, name_worst=True)
    for n in range(30):
        trace = ScoredTrace(f"t{n}", "bot", 1_000_000.0 + n % 10, "ok", [], timings={"total": n})
        windows.add(trace, "bot")
    assert windows.take_new_worst() == {("bot", f"t{n}") for n in range(25, 30)}
    assert windows.worst_ids("bot") == {f"t{n}" for n in range(25, 30)}
    assert windows.take_new_worst() == set()
