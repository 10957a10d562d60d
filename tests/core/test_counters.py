"""Sums of money are exact to the last digit that is printed."""

from __future__ import annotations

import functools
import math
import operator
import random
from collections.abc import Iterable
from fractions import Fraction

from ragmeter.core.counters import Counters, add_counts
from ragmeter_exporters.exposition import format_number

COST = "rag_cost_usd_total"


def added(values: Iterable[float]) -> float:
    """One after the other; `sum` carries what rounding loses from Python 3.12 on."""
    return functools.reduce(operator.add, values)


def test_money_is_summed_exactly_in_any_order_and_across_restarts() -> None:
    rng = random.Random(7)
    costs = [f"0.{rng.randrange(10**7):010d}" for _ in range(20_000)]  # up to a tenth of a cent
    counters = Counters()
    for number, cost in enumerate(costs):
        counters.inc(COST, (), float(cost))
        if number % 5_000 == 0:
            again = Counters()
            again.load(list(counters.items()))
            counters = again
    exact = sum(map(Fraction, costs))
    shown = format_number(counters.get(COST))
    assert Fraction(shown) == exact, shown
    assert added(map(float, costs)) != float(exact)  # what a sum of floats prints


def test_tenths_of_a_dollar() -> None:
    counters = Counters()
    for _ in range(3):
        counters.inc(COST, (), 0.1)
    assert format_number(counters.get(COST)) == "0.3"
    counters.add_saved({(COST, ()): 0.1})
    assert format_number(counters.get(COST)) == "0.4"
    assert add_counts(COST, 8_999.1, 0.2) == 8_999.3
    assert add_counts("rag_tokens_total", 2.0, 0.5) == 2.5


def test_a_sum_of_seconds_does_not_depend_on_the_order_or_on_how_many_come_at_a_time() -> None:
    rng = random.Random(7)
    values = [rng.lognormvariate(0, 1) for _ in range(5_000)]
    sums = set()
    for size in (1, 7, 5_000):
        rng.shuffle(values)
        counters = Counters()
        for first in range(0, len(values), size):
            some = values[first : first + size]
            counters.observe("rag_request_duration_seconds", (), some, [1.0])
        sums.add(counters.get("rag_request_duration_seconds_sum"))
    (total,) = sums
    assert abs(total - math.fsum(values)) < 5_000 * 0.5e-6
    assert len({added(values), added(reversed(values)), added(sorted(values))}) > 1, "of floats"
