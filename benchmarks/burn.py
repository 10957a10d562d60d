"""Burn-rate rules beside the plain rule "error ratio of five minutes above x".

    python -m benchmarks.burn [--months 2] [--seeds 8] [--young]

Simulated traffic in 30 s buckets: Poisson events, binomial errors. Prints minutes from the start
of an incident to the first page (median over seeds), false pages per month while errors stay at
half of what the objective allows, how often a page comes and goes at its very threshold, and what
the rings cost. The rules are the shipped ones (`ragmeter.alerts.error_budgets`), evaluated every
30 s.

Then young services: the bundled traces drawn at random and counted by the aggregator as `ragmeter
run` counts them, with the default rules and settings. After two hours 60 % of the answers are those
to another question. Printed are the minutes until the first critical alert, and the critical alerts
of streams to which nothing happens, with traces drawn independently and each five times in a row,
and how many traces any detector would need.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import tracemalloc
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.error_budgets import STANDARD_BURN_RATES, ErrorBudgets, Objective
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.config.loader import load_settings
from ragmeter.core.arithmetic import WEIGHT_ONE, weight_units
from ragmeter.core.score import ScoredTrace
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import Trace

__all__ = ["main"]

WIDTH = 30
HOUR, DAY, MONTH = 3600, 86400, 30 * 86400
PLAIN = (0.01, 0.05, 0.2)
"""Thresholds of the plain rule."""

EXAMPLE = Path(__file__).parents[1] / "examples" / "mtrag.jsonl"
START = 1_700_000_000.0

EDGES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Of the bins of scores for the divergence."""

Counts = npt.NDArray[np.int64]


def traffic(
    seed: int, rate: float, seconds: int, share: float, since: int = 0, then: float = 0.0
) -> tuple[Counts, Counts]:
    """(events, errors) by bucket; the error share is `then` from the time `since` on, if given."""
    rng = np.random.default_rng(seed)
    n = rng.poisson(rate * WIDTH, seconds // WIDTH)
    shares = np.full(len(n), share)
    if since:
        shares[since // WIDTH :] = then
    return n, rng.binomial(n, shares)


def plain(n: Counts, e: Counts, limit: float) -> npt.NDArray[np.bool_]:
    """The rule that most begin with: the error ratio of the last five minutes."""
    kernel = np.ones(300 // WIDTH)
    events = np.convolve(n, kernel)[: len(n)]
    errors = np.convolve(e, kernel)[: len(n)]
    return errors > limit * events


def pages(n: Counts, e: Counts, slo: float, min_errors: float = 10) -> npt.NDArray[np.bool_]:
    """Whether a page fires at the end of each bucket with n events and e errors."""
    budgets, out = ErrorBudgets([Objective("slo", slo)]), []
    for i, (events, errors) in enumerate(zip(n.tolist(), e.tolist(), strict=True)):
        for count, bad in ((events - errors, False), (errors, True)):
            if count:
                budgets.add("bot", "slo", (i + 0.5) * WIDTH, WEIGHT_ONE, bad, count)
        budgets.advance((i + 1) * WIDTH)
        found = [budgets.burn("bot", "slo", *line, min_errors) for line in STANDARD_BURN_RATES[:2]]
        out.append(any(burn is not None and burn.holds for burn in found))
    return np.asarray(out)


def rises(fires: npt.NDArray[np.bool_]) -> int:
    return int(np.sum(fires[1:] & ~fires[:-1]) + fires[0])


def _shown(minutes: list[float]) -> str:
    middle = statistics.median(minutes)
    return f"{middle:.1f}" if middle < float("inf") else "never"


def detection(seeds: int) -> Iterator[str]:
    yield (
        "| objective | traces/s | errors | burn rate | "
        + " | ".join(f"5 min > {limit:.0%}" for limit in PLAIN)
        + " |"
    )
    yield "| --- | --- | --- | --- |" + " --- |" * len(PLAIN)
    for slo, rate, shares in (
        (0.9, 1.0, (1.0, 0.8, 0.6)),
        (0.9, 0.1, (1.0, 0.8, 0.6)),
        (0.99, 1.0, (1.0, 0.5, 0.2, 0.1)),
        (0.999, 1.0, (1.0, 0.1, 0.05, 0.02)),
        (0.999, 0.1, (1.0, 0.1, 0.05, 0.02)),
    ):
        for share in shares:
            took: list[list[float]] = [[] for _ in range(1 + len(PLAIN))]
            for seed in range(seeds):
                since = 6 * HOUR
                n, e = traffic(seed, rate, since + 8 * HOUR, 0.2 * (1 - slo), since, share)
                found = [pages(n, e, slo), *(plain(n, e, limit) for limit in PLAIN)]
                for place, fires in enumerate(found):
                    after = np.flatnonzero(fires[since // WIDTH :])
                    minutes = (after[0] + 1) * WIDTH / 60 if len(after) else float("inf")
                    took[place].append(minutes)
            cells = " | ".join(map(_shown, took))
            yield f"| {slo:.1%} | {rate:g} | {share:.0%} | {cells} |"


def false_pages(months: int) -> Iterator[str]:
    yield (
        "| objective | traces/s | burn rate | without the floor of 10 errors | "
        + " | ".join(f"5 min > {limit:.0%}" for limit in PLAIN)
        + " |"
    )
    yield "| --- | --- | --- | --- |" + " --- |" * len(PLAIN)
    for slo in (0.9, 0.99, 0.999):
        for rate in (0.02, 0.1, 1.0):
            counts = [0] * (2 + len(PLAIN))
            for month in range(months):
                n, e = traffic(1000 + month, rate, MONTH, 0.5 * (1 - slo))
                found = [pages(n, e, slo), pages(n, e, slo, 0)]
                found += [plain(n, e, limit) for limit in PLAIN]
                counts = [c + rises(fires) for c, fires in zip(counts, found, strict=True)]
            yield (
                f"| {slo:.1%} | {rate:g} | "
                + " | ".join(f"{count / months:.1f}" for count in counts)
                + " |"
            )


def at_the_threshold(seeds: int) -> str:
    """Pages a day where the error ratio stays exactly at the threshold of the fast page."""
    counts = []
    for seed in range(seeds):
        n, e = traffic(seed, 1.0, DAY, 0.144)
        line = np.asarray(list(_fast_line(n.tolist(), e.tolist(), 0.99)), dtype=np.bool_)
        counts.append(rises(line))
    return f"at 14.4 % of errors for a day (99 %, 1/s): {statistics.mean(counts):.1f} fast pages"


def _fast_line(n: list[int], e: list[int], slo: float) -> Iterator[bool]:
    budgets = ErrorBudgets([Objective("slo", slo)])
    for i, (events, errors) in enumerate(zip(n, e, strict=True)):
        budgets.add("bot", "slo", i * WIDTH + 15, WEIGHT_ONE, False, events - errors)
        budgets.add("bot", "slo", i * WIDTH + 15, WEIGHT_ONE, True, errors)
        budgets.advance((i + 1) * WIDTH)
        found = budgets.burn("bot", "slo", *STANDARD_BURN_RATES[0])
        yield found is not None and found.holds


class Young:
    """The bundled traces of each service with their scores, as they are and with the answer to
    another question."""

    def __init__(self) -> None:
        lines = EXAMPLE.read_text("utf-8").splitlines()
        traces = [Trace.model_validate_json(line) for line in lines]
        self.scored: dict[str, list[tuple[ScoredTrace, ScoredTrace]]] = {}
        scorer = Scorer()
        for service in sorted({trace.service for trace in traces}):
            own = [trace for trace in traces if trace.service == service]
            swapped = [
                trace.model_copy(update={"answer": other.answer})
                for trace, other in zip(own, [*own[7:], *own[:7]], strict=True)
            ]
            self.scored[service] = [
                (scorer.score(good, 0.0).trace, scorer.score(bad, 0.0).trace)
                for good, bad in zip(own, swapped, strict=True)
            ]

    def play(
        self,
        service: str,
        per_minute: float,
        hours: float,
        seed: int,
        repeats: int = 1,
        bad: float = 0,
    ) -> Iterator[tuple[float, Alert]]:
        """(minutes since the hours were over, alert) of each critical alert; of a stream with
        `bad` answers after the hours for 30 minutes more."""
        rng = np.random.default_rng(seed)
        settings = load_settings(None, {})
        aggregator = Aggregator(settings, load_configured_rules(settings), ())
        at, end, n = START, START + hours * HOUR, 0
        while at < end + (1800 if bad else 0):
            pair = self.scored[service][int(rng.integers(len(self.scored[service])))]
            for _ in range(repeats):
                at += float(rng.exponential(60 / per_minute))
                n += 1
                scored = pair[at > end and rng.random() < bad]
                scored = scored._replace(trace_id=f"t{n}", timestamp=at)
                for alert in aggregator.apply(scored).alerts:
                    if alert.state == "firing" and alert.severity == "critical":
                        yield (at - end) / 60, alert


def young(seeds: int, days: int) -> Iterator[str]:
    """A fall of 60 % of the answers of a service that is two hours old."""
    made = Young()
    yield "| traces a minute | service | minutes, median (longest) | within 10 | which |"
    yield "| --- | --- | --- | --- | --- |"
    for rate in (60.0, 20.0, 10.0):
        for service in made.scored:
            first = [
                next(made.play(service, rate, 2, seed, bad=0.6), (math.inf, None))
                for seed in range(seeds)
            ]
            minutes = [at for at, _ in first]
            rules = sorted({alert.rule for _, alert in first if alert is not None})
            yield (
                f"| {rate:g} | {service} | {statistics.median(minutes):.1f} ({max(minutes):.1f}) |"
                f" {sum(at <= 10 for at in minutes)} of {seeds} | {', '.join(rules)} |"
            )
    yield f"\n| traces a minute | service | pages on {days} calm days | each trace five times |"
    yield "| --- | --- | --- | --- |"
    for rate in (6.0, 20.0):
        for service in made.scored:
            counts = [
                len(list(made.play(service, rate, 24 * days, 99, repeats=repeats)))
                for repeats in (1, 5)
            ]
            yield f"| {rate:g} | {service} | {counts[0]} | {counts[1]} |"


def bounds() -> Iterator[str]:
    """Traces that a detector with one false page in 30 days needs to see such a fall.

    All know the time before exactly. Of all detectors: the divergence of refusals and scores in six
    bins. Of those that hold for any distribution: the best constant bet on the mean, and on a mean
    of .7 of the usual one, from which on the shipped rules call it a collapse.
    """
    yield "| service | any detector | any distribution | any distribution, below .7 of the usual |"
    yield "| --- | --- | --- | --- |"
    promise = math.log(MONTH / 60 * 20)  # at 20 a minute; 10 differ by 5 % of it
    for service, pairs in Young().scored.items():
        scores = [[_grounding(one) for one in column] for column in zip(*pairs, strict=True)]
        binned = []
        for column in scores:
            places = [6 if y is None else int(np.digitize(y, EDGES)) for y in column]
            counts = np.bincount(places, minlength=7) + 0.5
            binned.append(counts / counts.sum())
        mixed = 0.4 * binned[0] + 0.6 * binned[1]
        needed = [promise / float((mixed * np.log(mixed / binned[0])).sum())]
        good, bad = (np.array([y for y in column if y is not None]) for column in scores)
        weights = [0.4 * len(good) / len(pairs), 0.6 * len(bad) / len(pairs)]
        for mu in (good.mean(), 0.7 * good.mean()):
            growth = max(
                sum(
                    weight * float(np.log1p(bet * (mu - y) / (1 - mu)).mean())
                    for weight, y in zip(weights, (good, bad), strict=True)
                )
                for bet in np.arange(0.02, 0.99, 0.02)
            )
            needed.append(promise / growth)
        yield f"| {service} | " + " | ".join(f"{traces:.0f}" for traces in needed) + " |"


def _grounding(trace: ScoredTrace) -> float | None:
    own = (score.value for score in trace.results if score.metric == "grounding")
    return next(own, None)


def costs() -> Iterator[str]:
    budgets = ErrorBudgets([Objective("slo", 0.99)])
    number, begin = 200_000, time.process_time()
    for i in range(number):
        budgets.add("bot", "slo", i * 0.1, WEIGHT_ONE, i % 100 == 0)
    each = (time.process_time() - begin) / number
    yield f"{each * 1e6:.2f} us for an event (10/s)"
    begin = time.process_time()
    for i in range(2_000):
        budgets.advance(20_000 + 15 * i)
        for line in STANDARD_BURN_RATES:
            budgets.burn("bot", "slo", *line)
    yield f"{(time.process_time() - begin) / 2_000 * 1e6:.0f} us for three lines at one step"
    for name, units in (("all traces", WEIGHT_ONE), ("a sample of 5 %", weight_units(0.05))):
        tracemalloc.start()
        full = ErrorBudgets([Objective("slo", 0.99)])
        for i in range(3 * DAY // 10):
            full.add("bot", "slo", i * 10.0, units, i % 100 == 0)
            if i % 500 == 0:
                full.drain()  # as each commit does
        full.advance(3 * DAY)
        full.burn("bot", "slo", *STANDARD_BURN_RATES[0])
        full.drain()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        yield f"{size / 1e3:.0f} kB for three days of one objective of one service, {name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--months", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--young", action="store_true", help="only young services")
    given = parser.parse_args()
    if given.young:
        for row in chain(bounds(), [""], young(given.seeds, given.days)):
            print(row, flush=True)
        return
    print("Minutes to page\n")
    print("\n".join(detection(given.seeds)))
    print("\nFalse pages per month at half the budget\n")
    for row in false_pages(given.months):
        print(row, flush=True)
    print("\nYoung services\n")
    for row in young(given.seeds, given.days):
        print(row, flush=True)
    print(f"\n{at_the_threshold(given.seeds)}\n")
    print("\n".join(costs()))


if __name__ == "__main__":
    main()
