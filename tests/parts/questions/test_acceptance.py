"""Whether the numbers hold what they claim, through what ships: aggregator, part, sources.

The kinds of cheap score and the seeds were used nowhere else. Replicates are few, since each is an
hour of requests: 120 windows in all have a standard error of .020 for the mean coverage; CI tries
the first 36 of them, and the first four services.
`test_estimator.py` has 400 windows in each of 27 cells for the estimator alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.parts.views import Level

from tests.parts.questions.labelled_answers import Numbers
from tests.parts.questions.samples import HOUR, START, Questions, scored

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WINDOWS = [
    pytest.param(3, 0.9, 0.3, id="3 windows"),
    pytest.param(10, 0.945, 0.8, id="10 windows", marks=pytest.mark.long),
]
"""Of a cell; the mean coverage at least, and that of the worst cell."""
KINDS = (
    "two populations",
    "upside down",
    "mostly 0 or 1",
    "nearly the truth",
    "falls within the hour",
    "every tenth session",
)
SIZES = ((250, 0.16), (400, 0.15))  # requests of the hour, and the part that is judged


def traffic_of(kind: str, total: int, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Whether each request is grounded, and its cheap score."""
    chance = rng.random(total)
    if kind == "two populations":
        easy = rng.random(total) < 0.6
        cheap = np.where(easy, rng.beta(8, 2, total), rng.beta(2, 5, total))
        return 1.0 * (chance < np.where(easy, 0.95, 0.65)), cheap
    if kind == "upside down":
        cheap = rng.beta(3, 2, total)
        return 1.0 * (chance < 0.95 - 0.4 * cheap), cheap
    if kind == "mostly 0 or 1":
        cheap = np.where(chance < 0.3, 0.0, np.where(chance < 0.7, 1.0, rng.random(total)))
        return 1.0 * (rng.random(total) < 0.6 + 0.3 * cheap), cheap
    if kind == "nearly the truth":
        values = 1.0 * (chance < 0.75)
        wrong = rng.random(total) < 0.05
        cheap = np.where(wrong, 1 - values, values)
        return values, np.clip(cheap + rng.normal(0, 0.05, total), 0, 1)
    if kind == "falls within the hour":
        course = np.linspace(0.95, 0.6, total)
        return 1.0 * (chance < course), np.clip(0.8 * course + rng.normal(0, 0.1, total), 0, 1)
    assert kind == "every tenth session"
    bad = (np.arange(total) // 10) % 10 == int(rng.integers(10))
    return 1.0 * (chance < np.where(bad, 0.1, 0.9)), rng.beta(5, 2, total)


def requests(
    values: Numbers, cheap: Numbers, part: float, rng: np.random.Generator, *, helped: bool
) -> Iterator[ScoredTrace]:
    """The requests of an hour; of a low cheap score three times as many are judged.

    Without help nothing but the verdicts is known, as the plain estimate has it.
    """
    total = len(values)
    low = cheap < np.quantile(cheap, 0.3)
    chances = np.where(low, 3.0, 1.0) * part / (0.3 * 3 + 0.7)
    drawn = rng.random(total) < chances
    modelled = rng.random(total) < 0.3
    noise = rng.normal(0, 0.2, total)
    for at in range(total):
        results = [scored("empty_answer", 0.0)]
        stratum = "low" if low[at] else "rest"
        if helped:
            results.append(scored("grounding", float(cheap[at])))
            if modelled[at]:
                second = float(np.clip(0.3 + 0.4 * values[at] + noise[at], 0, 1))
                results.append(
                    scored("grounding", second, "mini", probability=0.3, stratum="rest:3")
                )
        own: dict[str, Any] = {"probability": float(chances[at]), "stratum": stratum}
        if helped:
            own["cheap"] = float(cheap[at])
        if drawn[at]:
            results.append(scored("faithfulness", float(values[at]), "judge", **own))
        else:
            results.append(Score("faithfulness", "judge", ScoreState.SAMPLED_OUT, **own))
        yield ScoredTrace(
            trace_id=f"t{at}",
            service="bot",
            timestamp=START + at * HOUR / total,
            status="ok",
            results=results,
            cluster=f"c{at // 10}",
            tenant=f"c{at // 10}",
        )


def level_of(traces: Iterator[ScoredTrace]) -> Level | None:
    questions = Questions()
    for _ in questions.aggregator.apply_all(list(traces)):
        pass
    return questions.answers()["grounded"].level


@pytest.mark.parametrize(("windows", "mean", "worst"), WINDOWS)
def test_a_number_covers_all_traffic_and_is_no_wider_than_without_help(
    windows: int, mean: float, worst: float
) -> None:
    covers: list[tuple[float, str, int]] = []
    widths: list[float] = []
    missing = 0
    for place, kind in enumerate(KINDS):
        for size, part in SIZES:
            held = []
            for number in range(windows):
                seed = 33_000_000 + 100_000 * place + 100 * size + number
                values, cheap = traffic_of(kind, size, np.random.default_rng(seed))
                found, plain = (
                    level_of(
                        requests(
                            values, cheap, part, np.random.default_rng(seed + 1), helped=helped
                        )
                    )
                    for helped in (True, False)
                )
                if found is None or plain is None or found.upper is None or plain.upper is None:
                    missing += 1
                    continue
                if found.source != "judge":  # the number of people, which nobody knows here
                    missing += 1
                    continue
                held.append(found.lower - 1e-9 <= values.mean() <= found.upper + 1e-9)
                widths.append((found.upper - found.lower) / (plain.upper - plain.lower))
            covers.append((sum(held) / len(held), kind, size))
    assert missing < 0.1 * len(KINDS) * len(SIZES) * windows, missing
    assert np.mean([cover for cover, _, _ in covers]) >= mean, covers
    assert min(covers)[0] >= worst, covers
    assert max(widths) <= 1 + 1e-9
    assert np.mean(widths) < 0.98


SERVICES = [4, pytest.param(12, marks=pytest.mark.long)]
TRAFFIC = 700
LIMITS = {0: 0.11, 10: 0.095, 30: 0.058, 100: 0.033, 300: 0.02}
"""Labels, and how far the number may be from what people say of all answers (RMSE): the limits of
the estimator alone, over 400 services of the extracts of labelled sets that lie in the tree."""


def labelled(traffic: Numbers, labels: int, rng: np.random.Generator) -> Iterator[ScoredTrace]:
    """Requests of which the model has scored 300, and people labelled some."""
    total = len(traffic)
    modelled = set(rng.permutation(total)[:300].tolist())
    asked = set(rng.permutation(total)[:labels].tolist())
    for at in range(total):
        value, lexical, model = traffic[at].tolist()
        results = [scored("empty_answer", 0.0), scored("grounding", lexical)]
        if at in modelled:
            results.append(scored("grounding", model, "mini", probability=300 / total))
        if at in asked:
            label = {"probability": labels / total, "stratum": "people", "cheap": lexical}
            results.append(scored("grounding", value, "people", **label))
        elif labels:
            results.append(Score("grounding", "people", ScoreState.SAMPLED_OUT, stratum="people"))
        yield ScoredTrace(
            trace_id=f"t{at}",
            service="bot",
            timestamp=START + at * HOUR / total,
            status="ok",
            results=results,
            cluster=f"c{at}",
            tenant=f"c{at}",
        )


@pytest.mark.parametrize("services", SERVICES)
def test_the_number_of_a_service_meets_people(services: int, pools: list[Numbers]) -> None:
    rng = np.random.default_rng(33_333)
    errors: dict[int, list[float]] = {}
    held = []
    for _ in range(services):
        shares = rng.dirichlet(np.full(len(pools), 0.7))
        traffic = np.concatenate(
            [
                pool[rng.integers(0, len(pool), count)]
                for pool, count in zip(pools, rng.multinomial(TRAFFIC, shares), strict=True)
            ]
        )
        rng.shuffle(traffic)
        noise = rng.normal(0, 0.04, (TRAFFIC, 2))
        traffic[:, 1:] = np.clip(traffic[:, 1:] + noise, 0, 1)
        truth = traffic[:, 0].mean()
        for labels in LIMITS:
            level = level_of(labelled(traffic, labels, rng))
            assert level is not None
            assert level.upper is not None
            errors.setdefault(labels, []).append(level.value - truth)
            held.append(level.lower <= truth <= level.upper)
    off = {labels: math.sqrt(np.mean(np.square(some))) for labels, some in errors.items()}
    # the RMSE of so few services may be so many times that of all: two standard errors
    by_chance = 1 + 2 / math.sqrt(2 * services)
    assert all(off[labels] <= by_chance * limit for labels, limit in LIMITS.items()), off
    assert np.mean(held) >= 0.9, np.mean(held)  # of five each, which depend on one another
