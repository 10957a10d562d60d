"""The traffic of the end-to-end tests: four services, a quiet day, and then three incidents.

Pure and seeded: the same traces each time. Times are seconds since the story began; what lies
before it, the quiet day, is negative.
"""

from __future__ import annotations

import gzip
import heapq
import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = [
    "BAD_MODEL",
    "CALM",
    "GOOD_MODEL",
    "INCIDENTS",
    "LEAD",
    "SERVICES",
    "STORY",
    "Incident",
    "Question",
    "Timed",
    "questions",
    "traffic",
]

DATA = Path(__file__).parents[1] / "data" / "clapnq_generators.jsonl.gz"
MINUTE, HOUR = 60.0, 3600.0

GOOD_MODEL, BAD_MODEL = "GPT-3.5 (Turbo)", "Mistral"
"""People found 20 % of the answers of the one to say what the passage does not, 31 % of the
other's. Questions and passages are the same: only the generator is swapped."""

LEAD = 11 * HOUR
"""Of calm before: the first drift baseline is there after ten (six are learned, and each hour
waits for four)."""

STORY = 135 * MINUTE
"""Until the last alert has resolved: drift clears when the hour behind has been normal for half an
hour."""


Timed = tuple[float, dict[str, Any]]
"""Second of the story, and trace."""


@dataclass(frozen=True)
class Incident:
    """What goes wrong in a service, from `begin` to `end` in seconds of the story."""

    service: str
    what: str
    begin: float
    end: float


SWAP = Incident("support-bot", "the generator is swapped for a worse one", 5 * MINUTE, 65 * MINUTE)
OUTAGE = Incident("checkout-bot", "every request fails", 5 * MINUTE, 15 * MINUTE)
RAMP = Incident("search-bot", "latency climbs to twenty times its usual", 5 * MINUTE, 35 * MINUTE)
INCIDENTS = (SWAP, OUTAGE, RAMP)
CALM = "faq-bot"
"""The service to which nothing happens."""

RATES = {SWAP.service: 0.15, OUTAGE.service: 0.1, RAMP.service: 0.4, CALM: 0.03}
SERVICES = tuple(RATES)
"""By requests a second: the rule on latency asks for 100 in five minutes."""
BUSIER = {OUTAGE.service: 3.0}
"""The day is busier than the evening of the story. Ten minutes of outage are then less than 1 % of
the events that are known, as they would be of three days: the slowest burn rate stays quiet."""
EVENING = -HOUR
SAMPLED, SAMPLED_LATE = 0.1, 0.5
"""What upstream lets through of the day and of the hour before the story, to save time: each trace
says so, and counts for ten or for two."""

SHORT = (OUTAGE.service, RAMP.service)
"""Whose texts are short: nothing happens to them, and they cost time."""

FAILED, TIMED_OUT = 0.001, 0.0005  # of a quiet day
USUAL_SECONDS, SPREAD = 1.5, 0.4  # log-normal: one in a thousand takes five seconds
FACTOR = 20.0  # at the top of the ramp: 30 s at the median
TOP = 10 * MINUTE  # from the beginning of the ramp


@dataclass(frozen=True)
class Question:
    query: str
    passages: tuple[dict[str, str], ...]
    answers: dict[str, str]
    """By model."""
    hallucinated: dict[str, bool]
    """What people said of them."""


_TRACKED = "Every order can be tracked in the account under Orders until it has arrived."
ORDERS = Question(
    "Where is my order?",
    ({"id": "help-7", "text": _TRACKED, "title": "Orders"},),
    dict.fromkeys((GOOD_MODEL, BAD_MODEL), "It can be tracked in the account under Orders."),
    dict.fromkeys((GOOD_MODEL, BAD_MODEL), False),
)


@cache
def questions() -> tuple[Question, ...]:
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return tuple(
        Question(
            row["query"],
            tuple(row["passages"]),
            {model: one["text"] for model, one in row["answers"].items()},
            {model: one["hallucinated"] for model, one in row["answers"].items()},
        )
        for row in rows
    )


def slow_by(at: float) -> float:
    """By how much requests of the ramp's service are slower than usual."""
    if not RAMP.begin <= at < RAMP.end:
        return 1.0
    return float(FACTOR ** min(1.0, (at - RAMP.begin) / TOP))


def _trace(service: str, at: float, number: int, rng: random.Random) -> dict[str, Any]:
    index = rng.randrange(len(questions()))
    question = ORDERS if service in SHORT else questions()[index]
    swapped = service == SWAP.service and SWAP.begin <= at < SWAP.end
    model = BAD_MODEL if swapped else GOOD_MODEL
    chance = rng.random()
    seconds = rng.lognormvariate(math.log(USUAL_SECONDS), SPREAD)
    status = "ok"
    if service == OUTAGE.service and OUTAGE.begin <= at < OUTAGE.end:
        status = "error"
    elif chance < FAILED + TIMED_OUT:
        status = "error" if chance < FAILED else "timeout"
    if service == RAMP.service:
        seconds *= slow_by(at)
    found: dict[str, Any] = {
        "trace_id": f"{service}-{'before-' if at < 0 else ''}{abs(round(at))}-{number}",
        "service": service,
        "query": question.query,
        "passages": [{"rank": 1, **one} for one in question.passages],
        "status": status,
        "timings": {"total": round(seconds, 3)},
        "model": model,
        "tags": {"question": str(index)},
    }
    if status == "ok":
        found["answer"] = question.answers[model]
    return found


def _rate(service: str, at: float) -> tuple[float, float]:
    """Traces a second that come through, and the probability of each."""
    if at >= 0:
        return RATES[service], 1.0
    if at >= EVENING:
        return RATES[service] * SAMPLED_LATE, SAMPLED_LATE
    return RATES[service] * BUSIER.get(service, 1.0) * SAMPLED, SAMPLED


def _of(service: str, begin: float, end: float, seed: int) -> Iterator[Timed]:
    """A Poisson process: people come when they come."""
    rng = random.Random(f"{service}/{seed}")
    at = begin
    number = 0
    while True:
        at += rng.expovariate(_rate(service, at)[0])
        if at >= end:
            return
        trace = _trace(service, at, number, rng)
        probability = _rate(service, at)[1]
        if probability < 1:
            trace["sampling"] = {"probability": probability}
        yield at, trace
        number += 1


def traffic(
    begin: float = -LEAD,
    end: float = STORY,
    *,
    origin: float = 0.0,
    seed: int = 1,
    alter: Callable[[float, dict[str, Any]], None] = lambda at, trace: None,
) -> Iterator[Timed]:
    """Second of the story and trace, in order of time; `origin` is the clock's time at its
    beginning. `alter` may change a trace."""
    streams = [_of(service, begin, end, seed) for service in SERVICES]
    for at, trace in heapq.merge(*streams, key=lambda pair: pair[0]):
        trace["timestamp"] = origin + at
        alter(at, trace)
        yield at, trace
