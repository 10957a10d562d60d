"""A day of seventeen services and their faults, on event time, and what people are notified of.

`python -m tests.parts.incidents.scripted_day` prints the page docs/incidents.md.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.parts.views import Incident
from ragmeter.trace import Status

MINUTE, HOUR = 60.0, 3600.0
BEGIN = 1_779_926_400.0  # 2026-05-28 00:00 UTC
LENGTH = 24 * HOUR
CALM = 8.0  # hours before the first fault of a service at which its day begins
RATE = 12.0  # requests a minute of a service

SETTINGS = {
    "segments": ["model", "prompt_version", "index_version", "tenant"],
    "alerts": {"evaluation_seconds": 60},
}

TENANTS = ("acme", "globex", "initech", "umbrella")
TENANT_SHARES = (0.30, 0.27, 0.23, 0.20)


@dataclass
class Request:
    """What one request brings, before the fault of its service changes it."""

    rng: random.Random
    status: Status = "ok"
    empty: bool = False
    refused: bool = False
    cut: bool = False
    grounding: float = 0.0
    relevance: float = 0.0
    citations: float = 0.0
    cost: float = 0.0
    tokens: tuple[float, float] = (0.0, 0.0)
    retrieval: float = 0.0
    generation: float = 0.0
    tags: dict[str, str] = field(default_factory=dict)
    passages: tuple[str, ...] = ()

    @classmethod
    def calm(cls, rng: random.Random) -> Request:
        """A request of a quiet hour."""
        tokens = (rng.gauss(1800, 250), max(20.0, rng.gauss(120, 40)))
        return cls(
            rng,
            status="error" if rng.random() < 0.002 else "ok",
            refused=rng.random() < 0.05,
            grounding=rng.betavariate(8, 4),
            relevance=3 * rng.betavariate(6, 5),
            citations=rng.betavariate(8, 2),
            cost=(tokens[0] * 0.05 + tokens[1] * 0.4) / 1e6,
            tokens=tokens,
            retrieval=rng.lognormvariate(-2, 0.4),
            generation=rng.lognormvariate(0.4, 0.45),
            tags={
                "model": "gpt-4o-mini",
                "prompt_version": "v12",
                "index_version": "2026-05-20",
                "tenant": rng.choices(TENANTS, TENANT_SHARES)[0],
            },
            passages=tuple(f"{rng.randrange(2000):08x}" for _ in range(3)),
        )


Fault = Callable[[Request], None]


class Stage(NamedTuple):
    """A fault between two hours of the day."""

    begin: float
    end: float
    fault: Fault


@dataclass
class Expected:
    """Says of what people are to be notified in an incident; minutes from the onset or the end."""

    service: str
    what: str
    kinds: tuple[str, ...]
    severity: str
    begin: float
    end: float
    title: str
    tell: float
    change: str = ""
    segment: str = ""
    over: float = 30.0


def refuse(share: float, prompt: str = "") -> Fault:
    def fault(request: Request) -> None:
        request.refused = request.refused or request.rng.random() < share
        if prompt:
            request.tags["prompt_version"] = prompt

    return fault


def same_passages(request: Request) -> None:
    request.passages = ("00251713", "00000725", "00012177")
    request.relevance = 0.06 * request.rng.random()
    request.refused = request.rng.random() < 0.55
    request.grounding *= 0.7
    request.tags["index_version"] = "2026-05-28"


def wrong_passages(request: Request) -> None:
    request.relevance *= 0.35
    request.tags["index_version"] = "2026-05-27b"


def slow_tenant(request: Request) -> None:
    if request.tags["tenant"] == "globex":
        request.generation *= 7


def slow_model(request: Request) -> None:
    request.generation *= 3
    request.tags["model"] = "gpt-5-large"


def retries(request: Request) -> None:
    request.cost *= 2
    request.tokens = (2 * request.tokens[0], 2 * request.tokens[1])


def dearer_model(request: Request) -> None:
    request.cost *= 3
    request.tags["model"] = "gpt-5-large"


def fail(errors: float, timeouts: float = 0.0, empty: float = 0.0, tenant: str = "") -> Fault:
    def fault(request: Request) -> None:
        if tenant and request.tags["tenant"] != tenant:
            return
        draw = request.rng.random()
        if draw < errors:
            request.status = "error"
        elif draw < errors + timeouts:
            request.status = "timeout"
            request.generation = 30.0
        elif draw < errors + timeouts + empty:
            request.empty = True

    return fault


def hallucinate(request: Request) -> None:
    request.tags["model"] = "llama-3.1-405b"
    if request.rng.random() < 0.6:
        request.grounding = request.rng.betavariate(3, 9)


def cut_off(request: Request) -> None:
    request.cut = request.rng.random() < 0.4
    request.tags["prompt_version"] = "v14"


def cite_badly(request: Request) -> None:
    request.citations *= 0.55


SERVICES: dict[str, list[Stage]] = {
    "docs-bot": [Stage(13.0, 14.5, same_passages)],
    "policy-bot": [Stage(13.0, 14.5, refuse(0.3, "v13"))],
    "shop-bot": [Stage(13.0, 14.5, slow_tenant)],
    "search-bot": [Stage(13.0, 14.5, retries)],
    "help-desk": [Stage(14.0, 15.0, fail(0.12, 0.07))],
    "travel-bot": [Stage(9.0, 9.5, fail(0.6)), Stage(15.0, 16.0, refuse(0.4))],
    "legal-bot": [Stage(15.5, 18.0, hallucinate)],
    "bank-bot": [Stage(16.0, 17.0, fail(0.0, 0.0, 0.5, "initech"))],
    "news-bot": [Stage(16.5, 19.0, refuse(0.5))],
    "hr-bot": [Stage(17.0, 18.0, fail(0.0, 0.25))],
    "code-bot": [Stage(17.5, 20.0, cite_badly)],
    "wiki-bot": [Stage(18.0, 20.0, wrong_passages)],
    "game-bot": [Stage(18.0, 22.0, fail(0.03)), Stage(20.0, 21.0, fail(0.25))],
    "mail-bot": [Stage(19.0, 20.5, slow_model)],
    "tax-bot": [Stage(20.0, 22.0, dearer_model)],
    "chat-bot": [Stage(20.5, 22.0, cut_off)],
    "calm-bot": [],
}
"""The faults of each service, by the hour of the day."""

SILENCES: dict[str, tuple[float, float]] = {"news-bot": (17.25, 17.75)}
"""Hours in which a service has no requests."""

EXPECTED: list[Expected] = [
    Expected(
        "docs-bot",
        "one set of passages for all",
        ("same_passages", "wrong_passages"),
        "page",
        13.0,
        14.5,
        "retrieval finds nothing relevant",
        15,
        change="index_version=2026-05-28",
    ),
    Expected(
        "policy-bot",
        "a prompt refuses 30 %",
        ("refusals",),
        "page",
        13.0,
        14.5,
        "prompt v13 refuses",
        25,
        change="prompt_version=v13",
    ),
    Expected(
        "shop-bot",
        "a tenant seven times slower",
        ("slow",),
        "page",
        13.0,
        14.5,
        "tenant globex waits",
        25,
        segment="tenant=globex",
    ),
    Expected(
        "search-bot",
        "cost doubled by retries",
        ("retries",),
        "warning",
        13.0,
        14.5,
        "cost per answer doubled: retries?",
        30,
        over=40,
    ),
    Expected(
        "help-desk",
        "12 % errors and 7 % timeouts",
        ("failures", "errors"),
        "page",
        14.0,
        15.0,
        "of requests fail",
        10,
    ),
    Expected(
        "travel-bot",
        "60 % errors for half an hour",
        ("errors", "failures"),
        "page",
        9.0,
        9.5,
        "of requests fail",
        6,
    ),
    Expected(
        "travel-bot",
        "40 % refusals six hours later",
        ("refusals",),
        "page",
        15.0,
        16.0,
        "of questions are refused",
        25,
    ),
    Expected(
        "legal-bot",
        "a new model invents in 60 %",
        ("ungrounded",),
        "page",
        15.5,
        18.0,
        "answers are supported less",
        30,
        change="model=llama-3.1-405b",
        over=45,
    ),
    Expected(
        "bank-bot",
        "half of a tenant's answers empty",
        ("empty", "failures"),
        "page",
        16.0,
        17.0,
        "for tenant initech",
        15,
        segment="tenant=initech",
    ),
    Expected(
        "news-bot",
        "50 % refusals, half an hour silent",
        ("refusals",),
        "page",
        16.5,
        19.0,
        "of questions are refused",
        20,
    ),
    Expected(
        "hr-bot",
        "a quarter of the requests time out",
        ("timeouts", "failures"),
        "page",
        17.0,
        18.0,
        "time out",
        10,
    ),
    Expected(
        "code-bot",
        "citations support half as much",
        ("citations",),
        "warning",
        17.5,
        20.0,
        "citations support",
        40,
        over=45,
    ),
    Expected(
        "wiki-bot",
        "a new index finds less",
        ("wrong_passages",),
        "page",
        18.0,
        20.0,
        "retrieval finds",
        25,
        change="index_version=2026-05-27b",
    ),
    Expected(
        "game-bot",
        "3 % errors, then 25 %",
        ("errors", "failures"),
        "page",
        18.0,
        22.0,
        "of requests fail",
        75,
    ),
    Expected(
        "mail-bot",
        "a new model three times slower",
        ("slow",),
        "page",
        19.0,
        20.5,
        "users wait",
        20,
        change="model=gpt-5-large",
    ),
    Expected(
        "tax-bot",
        "a new model three times as dear",
        ("cost",),
        "warning",
        20.0,
        22.0,
        "cost per answer is",
        30,
        change="model=gpt-5-large",
        over=40,
    ),
    Expected(
        "chat-bot",
        "a prompt whose answers hit the limit of tokens",
        ("cut_off",),
        "page",
        20.5,
        22.0,
        "of answers are cut off",
        15,
        change="prompt_version=v14",
    ),
]


def _score(metric: str, value: float | None) -> Score:
    state = ScoreState.NOT_APPLICABLE if value is None else ScoreState.SCORED
    return Score(metric=metric, scorer="builtin", state=state, value=value)


def _scored(service: str, number: int, at: float, request: Request) -> ScoredTrace:
    ok = request.status == "ok"
    answered = ok and not request.empty
    says = answered and not request.refused
    results = [
        _score("error", float(request.status == "error")),
        _score("timeout", float(request.status == "timeout")),
        _score("empty_answer", float(request.empty) if ok else None),
        _score("answered", float(not request.refused) if answered else None),
        _score("cut_answer", float(request.cut) if answered else None),
        _score("filtered_answer", 0.0 if answered else None),
        _score("grounding", request.grounding if says else None),
        _score("relevance", request.relevance if ok else None),
        _score("citation_precision", request.citations if says else None),
        _score("input_tokens", request.tokens[0]),
        _score("output_tokens", request.tokens[1]),
        _score("cost_usd", request.cost),
    ]
    return ScoredTrace(
        trace_id=f"{service}-{number}",
        service=service,
        timestamp=BEGIN + at,
        status=request.status,
        results=results,
        timings={
            "total": request.retrieval + request.generation,
            "retrieval": request.retrieval,
            "generation": request.generation,
        },
        tags=request.tags,
        cost_usd=request.cost,
        passages=request.passages if ok else None,
        cluster=f"{request.rng.randrange(16**6):06x}",
    )


def requests(service: str, seed: int, hours: tuple[float, float]) -> Iterator[ScoredTrace]:
    """The requests of a service between two hours of the day."""
    rng = random.Random(f"{service} {seed}")
    first = min((stage.begin for stage in SERVICES[service]), default=12.0)
    at = max(hours[0], first - CALM) * HOUR
    number = 0
    silence = SILENCES.get(service, (0.0, 0.0))
    while True:
        at += rng.expovariate(RATE / MINUTE)
        if at >= hours[1] * HOUR:
            return
        hour = at / HOUR
        if silence[0] <= hour < silence[1]:
            continue
        number += 1
        request = Request.calm(rng)
        for stage in SERVICES[service]:
            if stage.begin <= hour < stage.end:
                stage.fault(request)
        yield _scored(service, number, at, request)


class Message(NamedTuple):
    """A message, with the seconds of the day at which it came."""

    at: float
    incident: Incident

    @property
    def minute(self) -> str:
        return f"{int(self.at // HOUR):02d}:{int(self.at % HOUR // MINUTE):02d}"


def play(
    services: list[str] | None = None, hours: tuple[float, float] = (0.0, 24.0), seed: int = 1
) -> list[Message]:
    """The messages of the day, through the aggregator of the agent."""
    settings = load_settings(environ={}, overrides=SETTINGS)
    aggregator = Aggregator(settings, load_configured_rules(settings), (), parts=PARTS)
    names = list(SERVICES) if services is None else services
    streams = [requests(name, seed, hours) for name in names]
    messages: list[Message] = []
    for count, trace in enumerate(heapq.merge(*streams, key=lambda one: one.timestamp)):
        aggregator.apply(trace)
        for incident in aggregator.take_notifications():
            messages.append(Message(incident.updated_at - BEGIN, incident))
        if count % 1024 == 0:
            aggregator.settle()
            aggregator.windows.take_new_worst()
    aggregator.advance(BEGIN + hours[1] * HOUR)
    for incident in aggregator.take_notifications():
        messages.append(Message(incident.updated_at - BEGIN, incident))
    return messages


class Outcome(NamedTuple):
    """What was reported of an expected incident: minutes from its onset, the end from its own."""

    expected: Expected
    notified: Message | None
    page: Message | None
    over: Message | None

    @property
    def minutes(self) -> tuple[float | None, float | None, float | None]:
        """To the first message, to the page, and from the end to the all-clear."""
        begin, end = self.expected.begin * HOUR, self.expected.end * HOUR
        return (
            None if self.notified is None else (self.notified.at - begin) / MINUTE,
            None if self.page is None else (self.page.at - begin) / MINUTE,
            None if self.over is None else (self.over.at - end) / MINUTE,
        )

    @property
    def latest(self) -> Incident | None:
        """The incident as it was last reported while it stood."""
        notified = self.page or self.notified
        return None if notified is None else notified.incident


def match(expected: Expected, messages: list[Message]) -> Outcome:
    """Find the messages of an incident: those of its service that began within it."""
    begin, end = expected.begin * HOUR, expected.end * HOUR
    own = [
        message
        for message in messages
        if message.incident.service == expected.service
        and begin - 15 * MINUTE <= message.incident.since - BEGIN < end
    ]
    standing = [one for one in own if one.incident.ended_at is None]
    return Outcome(
        expected=expected,
        notified=next(iter(standing), None),
        page=next((one for one in standing if one.incident.severity == "page"), None),
        over=next((one for one in own if one.incident.over), None),
    )


def false_ones(messages: list[Message]) -> list[Message]:
    """Messages of incidents that nothing on the stage is the cause of."""
    caused = {
        id(message)
        for expected in EXPECTED
        for message in messages
        if message.incident.service == expected.service
        and expected.begin * HOUR - 15 * MINUTE
        <= message.incident.since - BEGIN
        < expected.end * HOUR
    }
    return [message for message in messages if id(message) not in caused]


HEAD = """# A scripted day of incidents

Seventeen services have twelve requests a minute each.
`python -m tests.parts.incidents.scripted_day` plays the day through the aggregator and writes this
page, and a slow test holds what each incident must say. Minutes are from the onset; those to the
all-clear from the end of the fault, of which the number must be back for fifteen.

| service | what happens | from | to report | to page | title | change, where | to all-clear |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def render(messages: list[Message]) -> str:
    """The page with the table."""
    rows = []
    for expected in sorted(EXPECTED, key=lambda one: one.begin):
        outcome = match(expected, messages)
        notified, page, over = (
            "never" if one is None else f"{one:.0f} min" for one in outcome.minutes
        )
        latest = outcome.latest
        title, where = "", ""
        if latest is not None:
            title = latest.title
            change = latest.change
            named = [f"{change.tag}={change.value}"] if change is not None else []
            where = ", ".join([*named, *([latest.segment] if latest.segment else [])])
        hour = f"{int(expected.begin):02d}:{int(expected.begin % 1 * 60):02d}"
        cells = (expected.service, expected.what, hour, notified, page, title, where, over)
        rows.append(f"| {' | '.join(cells)} |")
    false = len({message.incident.id for message in false_ones(messages)})
    return f"{HEAD}{chr(10).join(rows)}\n\nFalse ones: {false}. Messages: {len(messages)}.\n"


def show(messages: list[Message]) -> None:
    """Print every message, to look at."""
    for message in messages:
        one = message.incident
        print(message.minute, one.severity, one.state, one.kind, one.title, "|", one.summary)
        for line in (*one.detail, one.advice):
            print("        ", line)


if __name__ == "__main__":
    print(render(play()), end="")
