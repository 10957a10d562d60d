from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmeter.kafka.score_records import SourceOffset
from ragmeter.kafka.state.duplicates import RedeliveryGuard


class Sender:
    """A score processor in one generation: begins at the committed offsets, sends out of order,
    and never m before it has sent all up to m - K."""

    def __init__(self, start: int, most: int) -> None:
        self.done = start  # all before it were sent
        self.most = most
        self.sent: set[int] = set()

    def send(self, end: int, rng: random.Random) -> int | None:
        open_ = [o for o in range(self.done, min(end, self.done + self.most)) if o not in self.sent]
        if not open_:
            return None
        offset = rng.choice(open_)
        self.sent.add(offset)
        while self.done in self.sent:
            self.done += 1
        return offset


def reload(guard: RedeliveryGuard, width: int) -> RedeliveryGuard:
    return RedeliveryGuard.load(width, json.loads(json.dumps(guard.dump())))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 5, 16]), st.integers(1, 3))
def test_it_says_what_a_set_says_under_crashes_redeliveries_and_zombies(
    seed: int, most: int, targets: int
) -> None:
    """`targets`: the scores have so many partitions, and each sees its part of the offsets."""
    rng = random.Random(seed)
    end = 40 * most
    silent = {o for o in range(end) if rng.random() < 0.1}  # dead letters: no record is sent
    guards = [RedeliveryGuard(2 * most) for _ in range(targets)]
    sets: list[set[int]] = [set() for _ in range(targets)]
    senders = [Sender(0, most)]
    committed = 0
    for _ in range(30 * end):
        sender = rng.choice(senders) if rng.random() < 0.3 else senders[-1]
        offset = sender.send(end, rng)
        if offset is not None and offset not in silent:
            at = offset % targets
            assert guards[at].accept(SourceOffset(0, 3, offset)) == (offset not in sets[at])
            sets[at].add(offset)
        chance = rng.random()
        if chance < 0.02:
            committed = max(committed, senders[-1].done)  # a zombie's commit is refused
        elif chance < 0.03:
            senders = [*senders[-2:], Sender(committed, most)]  # rebalance: the old ones go on
        elif chance < 0.04:
            at = rng.randrange(targets)
            guards[at] = reload(guards[at], 2 * most)
        if senders[-1].done >= end:
            break
    assert set().union(*sets) == set(range(end)) - silent


@pytest.mark.parametrize("width", [1, 4, 64])
def test_the_window_has_exactly_its_width(width: int) -> None:
    guard = RedeliveryGuard(width)
    assert guard.accept(SourceOffset(0, 0, 100))
    for offset in range(101 - width, 100):
        assert guard.accept(SourceOffset(0, 0, offset)), offset
        assert not guard.accept(SourceOffset(0, 0, offset)), offset
    assert not guard.accept(SourceOffset(0, 0, 100 - width))


def test_a_gap_of_any_size_costs_nothing() -> None:
    guard = RedeliveryGuard(64)
    for offset in (0, 2**60, 2**62):
        assert guard.accept(SourceOffset(0, 0, offset))
    assert not guard.accept(SourceOffset(0, 0, 2**60))
    assert len(json.dumps(guard.dump())) < 80


def test_sources_are_apart() -> None:
    guard = RedeliveryGuard(8)
    assert guard.accept(SourceOffset(0, 0, 5))
    assert guard.accept(SourceOffset(0, 1, 5))
    assert guard.accept(SourceOffset(1, 0, 5))
    assert guard.accept(SourceOffset(1, 0, 0))  # its offsets start over
    assert not guard.accept(SourceOffset(0, 0, 5))
    assert [row[:3] for row in guard.dump()["sources"]] == [[0, 0, 5], [0, 1, 5], [1, 0, 5]]


def test_two_epochs_are_kept_and_older_ones_count_no_more() -> None:
    guard = RedeliveryGuard(8)
    assert guard.accept(SourceOffset(0, 0, 5))
    assert guard.accept(SourceOffset(1, 0, 5))
    assert guard.accept(SourceOffset(2, 0, 5))
    assert not guard.accept(SourceOffset(0, 0, 6))
    assert guard.accept(SourceOffset(1, 0, 6))
    assert len(guard.dump()["sources"]) == 2


def test_a_wider_window_leaves_counted_what_the_old_one_had_passed() -> None:
    guard = RedeliveryGuard(8)
    assert guard.accept(SourceOffset(0, 0, 100))
    guard = reload(guard, 16)
    assert guard.accept(SourceOffset(0, 0, 93))  # inside the old one: never seen
    assert not guard.accept(SourceOffset(0, 0, 92))  # beyond: counted or never to come
    assert guard.accept(SourceOffset(0, 0, 116))
    assert guard.accept(SourceOffset(0, 0, 101))


def test_a_narrower_setting_keeps_the_wider_window() -> None:
    guard = reload(RedeliveryGuard(16), 8)
    assert guard.accept(SourceOffset(0, 0, 100))
    assert guard.accept(SourceOffset(0, 0, 85))


def test_size_of_a_dump() -> None:
    """64 partitions and K = 256 in every marker: it must stay a matter of kilobytes."""
    guard = RedeliveryGuard(512)
    for partition in range(64):
        for offset in range(10**9, 10**9 + 600):
            guard.accept(SourceOffset(0, partition, offset))
    assert len(json.dumps(guard.dump())) < 10_000


@pytest.mark.parametrize("saved", [{}, {"width": 8}, {"width": 8, "sources": [[0, 0, 5, "xyz"]]}])
def test_what_no_dump_has_written_is_refused(saved: dict[str, object]) -> None:
    with pytest.raises((KeyError, ValueError)):
        RedeliveryGuard.load(8, saved)
