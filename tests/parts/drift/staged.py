"""Requests with staged faults, through an aggregator on event time."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.alerts.alert import Alert
from ragmeter.app.parts import AgentSettings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.metrics.builtin import PreparedTrace, score_builtin
from ragmeter.parts.drift.part import DriftPart
from ragmeter.parts.questions.part import QuestionsPart
from ragmeter.trace import Trace

from tests.parts.drift.running import drift_of

__all__ = ["FAULTS", "Rated", "aggregator", "feed", "play", "rated_answers", "requests"]

START = 20_000 * 86_400.0 + 7 * 3600
DATA = Path(__file__).parents[2] / "data"

FAULTS = ("hallucinated", "refusals", "errors", "wrong passages")

METRICS = (
    "error",
    "timeout",
    "empty_answer",
    "answered",
    "cut_answer",
    "filtered_answer",
    "grounding",
    "relevance",
)


class Rated(NamedTuple):
    """The cheap scores of an answer that people have rated.

    Args:
        hallucinated: What people say.
        grounding: Its score.
        relevance: The grade of its passages.
        misplaced: The same of passages of another question.
    """

    hallucinated: bool
    grounding: float
    relevance: float
    misplaced: float


@cache
def rated_answers() -> tuple[Rated, ...]:
    """The bundled answers of RAGTruth QA, MTRAG and ClapNQ that the cheap scores apply to."""
    rows = []
    for name in ("ragtruth_answers", "mtrag_grounding"):
        with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            rows += [json.loads(line) for line in lines]
    asked = [row for row in rows if row.get("task", "qa") == "qa"]
    with gzip.open(DATA / "clapnq_generators.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            asked += [
                {**row, "answer": one["text"], "hallucinated": one["hallucinated"]}
                for one in row["answers"].values()
            ]
    found = []
    for number, row in enumerate(asked):
        own = _scores(row, row["passages"])
        other = _scores(row, asked[(number + 37) % len(asked)]["passages"])
        if "grounding" in own and "relevance" in own and "relevance" in other:
            found.append(
                Rated(row["hallucinated"], own["grounding"], own["relevance"], other["relevance"])
            )
    return tuple(found)


def _scores(row: dict[str, Any], passages: list[Any]) -> dict[str, float]:
    fields = {"trace_id": "t", "service": "s", "timestamp": 0, "query": row["query"]}
    trace = Trace.model_validate({**fields, "passages": passages, "answer": row["answer"]})
    scores = score_builtin(PreparedTrace(trace))
    return {score.metric: score.value for score in scores if score.value is not None}


def aggregator() -> Aggregator:
    """An aggregator of drift and what it reads, which evaluates as often as drift looks: once a
    minute."""
    settings = AgentSettings.model_validate({"alerts": {"evaluation_seconds": 60}})
    return Aggregator(
        settings, [], [(name, "builtin") for name in METRICS], parts=(DriftPart, QuestionsPart)
    )


def requests(
    hours: float,
    rate: float,
    fault: Callable[[float], tuple[str, float]],
    seed: int = 1,
    retries: int = 0,
    questions: int = 0,
) -> Iterator[ScoredTrace]:
    """So many requests a minute; `fault` gives the kind and the share of bad ones at an hour.

    With `questions` these are asked over and over, and each has one answer.
    """
    rng = np.random.default_rng([5, seed])
    answers = rated_answers()
    bad = [one for one in answers if one.hallucinated]
    number = rng.poisson(rate * 60 * hours)
    for place, at in enumerate(np.sort(rng.uniform(0, hours * 3600, number))):
        kind, share = fault(at / 3600)
        hurt = rng.random() < share
        question = int(rng.integers(questions or len(answers)))
        answer = answers[question]
        if hurt and kind == "hallucinated":
            answer = bad[question % len(bad)]
        failed = (hurt and kind == "errors") or rng.random() < 0.003
        refused = (hurt and kind == "refusals") or rng.random() < 0.03
        relevance = answer.misplaced if hurt and kind == "wrong passages" else answer.relevance
        values: dict[str, float] = {"error": float(failed), "timeout": 0.0}
        if not failed:
            values |= {"empty_answer": 0.0, "answered": float(not refused), "relevance": relevance}
            if not refused:
                values["grounding"] = answer.grounding
            cut = hurt and kind in ("cut_answer", "filtered_answer")
            values |= {"cut_answer": 0.0, "filtered_answer": 0.0}
            values |= {kind: 1.0} if cut else {}
        results = [
            Score(name, "builtin", ScoreState.SCORED, values[name])
            if name in values
            else Score(name, "builtin", ScoreState.NOT_APPLICABLE)
            for name in METRICS
        ]
        cluster = f"{question if questions else rng.integers(2**62):016x}"
        for again in range(1 + (retries if failed else 0)):
            yield ScoredTrace(
                trace_id=f"t{place}-{again}",
                service="bot",
                timestamp=START + float(at) + again,
                status="error" if failed else "ok",
                results=results,
                timings={"total": float(np.exp(rng.normal(0.6, 0.5)))},
                cost_usd=0.0007,
                cluster=cluster,
            )


class Notified(NamedTuple):
    """An alert that moved.

    Args:
        hour: When, in hours since the first request.
        alert: A copy.
    """

    hour: float
    alert: Alert


def feed(one: Aggregator, traces: Iterator[ScoredTrace]) -> list[Notified]:
    """Count traces in order, and return the events of the part on the way, in order."""
    notified: dict[tuple[str, str, str, float], Notified] = {}
    batch: list[ScoredTrace] = []

    def count() -> None:
        if not batch:
            return
        for _ in one.apply_all(batch):
            pass
        one.settle()
        hour = (batch[-1].timestamp - START) / 3600
        for alert in drift_of(one).alerts():
            key = (alert.question, alert.state, alert.severity, alert.fired_at or 0.0)
            notified.setdefault(key, Notified(hour, alert))
        batch.clear()

    for trace in traces:
        if batch and trace.timestamp - batch[0].timestamp > 60:
            count()
        batch.append(trace)
    count()
    return list(notified.values())


def play(
    hours: float, rate: float, fault: Callable[[float], tuple[str, float]], **more: Any
) -> Any:
    """What the part tells of a new service."""
    return feed(aggregator(), requests(hours, rate, fault, **more))
