from __future__ import annotations

import random
from itertools import pairwise

from agent.seen_ids import SeenIds


class Plain:
    """The rule as the state file applies it, on plain sets."""

    def __init__(self, horizon: float) -> None:
        self.horizon = horizon
        self.new: set[tuple[str, str]] = set()
        self.old: set[tuple[str, str]] = set()
        self.start: float | None = None

    def first(self, service: str, trace_id: str, timestamp: float) -> bool:
        if self.start is None or timestamp < self.start - self.horizon:
            self.start = timestamp
        if timestamp >= self.start + self.horizon:
            self.new, self.old, self.start = set(), self.new, timestamp
        key = (service, trace_id)
        if key in self.old or key in self.new:
            return False
        self.new.add(key)
        return True


def test_the_rule_is_that_of_the_state_file() -> None:
    rng = random.Random(4)
    ours, plain = SeenIds(100), Plain(100)
    now = 0.0
    for _ in range(20_000):
        now += rng.choice([0.0, 0.1, 0.1, 3.0]) - (rng.random() < 0.001) * 250
        row = (rng.choice("ab"), str(rng.randrange(2_000)), now)
        assert ours.first(*row) == plain.first(*row)


def test_a_service_has_ids_of_its_own() -> None:
    ids = SeenIds(100)
    assert [ids.first(*row, 0) for row in (("a", "bc"), ("ab", "c"), ("a", "bc"))] == [
        True, True, False,
    ]  # fmt: skip


def test_memory_is_bounded_whatever_comes() -> None:
    ids = SeenIds(1e9, most=1000)
    for number in range(10_000):
        assert ids.first("a", str(number), 0)
    known = [not ids.first("a", str(number), 0) for number in range(8_500, 10_000)]
    assert all(later >= earlier for earlier, later in pairwise(known))  # the older go first
    assert sum(known) >= 1000
