"""A running agent made of fixed numbers, so that tests know what must be printed."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from aiohttp import web
from ragmeter.aggregate.agent_view import AgentHealth, AgentView
from ragmeter.alerts.alert import Alert
from ragmeter.app.parts import PARTS, AgentSettings
from ragmeter.core.counters import DURATION_EDGES, Counters, Exemplar, GaugeSample
from ragmeter.core.dedupe import dedupe_gauges
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.collection import PartKinds, PartPage, Parts, part_pages, part_routes
from ragmeter.parts.contract import PageHome, Part, PartHome
from ragmeter.parts.views import Incident, QuestionAnswers
from ragmeter.windows.series import Estimate, Quantile
from ragmeter.windows.windows import Windows
from ragmeter.windows.worst import RankedTrace
from ragmeter_exporters.families import part_families
from ragmeter_exporters.web import metrics_app

from tests.exporters.asked import AT, asked
from tests.exporters.incidents import opened

NOW = AT
NAMES = ("5m", "1h", "24h")


def estimate(value: float = 0.8, spread: float = 0.05, samples: int = 40) -> Estimate:
    return Estimate(
        value=value,
        lower=value - spread,
        upper=value + spread,
        effective_samples=samples * 0.9,
        samples=samples,
        states={"scored": samples, "not_applicable": 3, "sampled_out": 0, "unscored": 1, "shed": 0},
    )


def quantiles(scale: float = 1.0) -> list[Quantile]:
    return [
        Quantile(0.5, 1.0 * scale, 0.9 * scale, 1.1 * scale, 100),
        Quantile(0.95, 2.5 * scale, 2.2 * scale, 3.0 * scale, 100),
        Quantile(0.99, 4.0 * scale, None, None, 100),
    ]


@dataclass
class FakeWindows:
    """`table` maps (service, segment, metric, scorer, window) to an estimate or None."""

    table: dict[tuple[str, str, str, str, str], Estimate | None] = field(default_factory=dict)
    latency: dict[tuple[str, str, str, str], list[Quantile]] = field(default_factory=dict)
    bad: dict[tuple[str, str, str], list[RankedTrace]] = field(default_factory=dict)
    names: tuple[str, ...] = NAMES
    now: float | None = NOW
    min_samples: int = 5
    current: dict[tuple[str, str], str] = field(default_factory=dict)

    def current_scorer(self, metric: str, scorer: str) -> str:
        return self.current.get((metric, scorer), scorer)

    def unscored(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> tuple[float, int] | None:
        found = self.estimate(service, segment, metric, scorer, window)
        return None if found is None else (found.unscored, found.samples)

    def services(self) -> list[str]:
        return list(dict.fromkeys(key[0] for key in self.table))

    def segments(self, service: str) -> list[str]:
        return list(dict.fromkeys(key[1] for key in self.table if key[0] == service and key[1]))

    def series(self, service: str, segment: str = "") -> list[tuple[str, str]]:
        found = [key[2:4] for key in self.table if key[:2] == (service, segment)]
        return list(dict.fromkeys(found))

    def states(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> dict[str, int]:
        key = (service, segment, metric, scorer, window)
        found = self.table.get(key)
        return {"scored": 3 * (key in self.table)} if found is None else dict(found.states)

    def estimate(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> Estimate | None:
        return self.table.get((service, segment, metric, scorer, window))

    def stages(self, service: str, segment: str = "") -> list[str]:
        found = [key[2] for key in self.latency if key[:2] == (service, segment)]
        return list(dict.fromkeys(found))

    def quantiles(self, service: str, segment: str, stage: str, window: str) -> list[Quantile]:
        return self.latency.get((service, segment, stage, window), [])

    def history(
        self, service: str, segment: str, metric: str, scorer: str, window: str
    ) -> list[tuple[float, Estimate | None]]:
        found = self.table.get((service, segment, metric, scorer, window))
        return [(NOW - 60 * step, None if step % 10 == 3 else found) for step in range(29, -1, -1)]

    def newest_trace(self, service: str) -> float | None:
        return self.now

    def worst(
        self, service: str, metric: str, scorer: str, window: str, limit: int = 5
    ) -> list[RankedTrace]:
        return self.bad.get((service, metric, scorer), [])[:limit]

    def count_traces(self, service: str, segment: str, window: str) -> int:
        return 44

    def cell(self, *series: str) -> None:
        """No sums: nothing to compare."""

    sums_before = series_history = cell


@dataclass
class FakeAgent:
    fake: FakeWindows = field(default_factory=FakeWindows)
    counters: Counters = field(default_factory=Counters)
    segments: Sequence[str] = ()
    alert_list: list[Alert] = field(default_factory=list)
    incident_list: list[Incident] = field(default_factory=list)
    documents: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    state: AgentHealth = field(default_factory=AgentHealth)
    waiting_results: dict[tuple[str, str], int] = field(default_factory=dict)
    judges: list[dict[str, str]] = field(default_factory=list)
    measured: list[GaugeSample] = field(default_factory=list)
    part_kinds: PartKinds = tuple(PARTS)
    parts: Parts | None = None
    unnamed: list[str] = field(default_factory=list)
    asked: QuestionAnswers = field(default_factory=QuestionAnswers)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def windows(self) -> Windows:
        assert self.mutex.locked(), "read the windows only with the lock held"
        return cast(Windows, self.fake)

    @property
    def waiting(self) -> Mapping[tuple[str, str], int]:
        assert self.mutex.locked()
        return self.waiting_results

    def instruments(self) -> Sequence[Mapping[str, str]]:
        return self.judges

    def gauges(self) -> Sequence[GaugeSample]:
        return self.measured

    def part_places(self, name: str) -> Sequence[Part[Any]]:
        """No part has a state, unless a test gives some."""
        assert self.mutex.locked()
        return [] if self.parts is None else [self.parts[name]]

    def part_pages(self, service: str | None = None) -> Sequence[PartPage]:
        return part_pages(self.part_kinds, cast(PageHome, self), service)

    def questions(self, service: str) -> QuestionAnswers:
        assert self.mutex.locked()
        return self.asked

    def unnamed_services(self) -> Sequence[str]:
        assert self.mutex.locked()
        return self.unnamed

    def lock(self) -> AbstractContextManager[Any]:
        return self.mutex

    def alerts(self) -> Sequence[Alert]:
        assert self.mutex.locked()
        return self.alert_list

    def incidents(self) -> Sequence[Incident]:
        assert self.mutex.locked()
        return self.incident_list

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        assert not self.mutex.locked(), "reading a kept trace must not keep the writer waiting"
        return self.documents.get((service, trace_id))

    def health(self) -> AgentHealth:
        assert not self.mutex.locked()
        return self.state


def as_agent_view(fake: FakeAgent) -> AgentView:
    return cast(AgentView, fake)


def metrics_port(fake: FakeAgent) -> web.Application:
    """The application of the metrics port, with the routes of parts."""
    settings = AgentSettings(segments=list(fake.segments))
    home = cast(PartHome, fake)
    routes = partial(part_routes, fake.part_kinds, settings, home)
    return metrics_app(as_agent_view(fake), routes=routes)


def alert(**changes: Any) -> Alert:
    base = Alert(
        id="a1",
        rule="GroundingLow",
        severity="critical",
        state="firing",
        service="bot",
        segment="",
        metric="grounding",
        scorer="builtin",
        window="1h",
        value=0.42,
        lower=0.38,
        upper=0.46,
        threshold=0.6,
        samples=120,
        effective_samples=110.0,
        since=NOW - 900,
        fired_at=NOW - 600,
        resolved_at=None,
        updated_at=NOW,
        summary="Grounding is low.",
        worst=["t-1"],
        op="<",
    )
    return replace(base, **changes)


def incident(**changes: Any) -> Incident:
    fields: dict[str, Any] = {
        "id": "0a1b2c3d4e5f6071",
        "since": NOW - 900,
        "since_lower": NOW - 960,
        "since_upper": NOW - 840,
        "opened_at": NOW - 600,
        "updated_at": NOW,
        "worst": ("t-1",),
        "question": "grounded",
        "kind": "ungrounded",
        "title": "bot: answers are less grounded",
        "summary": "Grounded 84 % -> 42 % (38 to 46), since 11:45 UTC.",
        "signals": (alert(),),
    }
    return opened(**{**fields, **changes})


def trace(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "trace_id": "t-1",
        "service": "bot",
        "timestamp": "2026-09-21T12:00:00Z",
        "query": "How do I reset it?",
        "answer": "Hold the button [1].",
        "passages": [{"id": "kb#1", "text": "Hold the button for ten seconds.", "score": 0.83}],
        "history": [{"role": "user", "text": "Hello"}],
        "citations": [{"start": 0, "end": 20, "passage_ids": ["kb#1"]}],
        "timings": {"total": 2.41, "retrieval": 0.12},
        "model": "m-1",
        "tags": {"tenant": "acme"},
    }
    return {**fields, **changes}


def results() -> list[dict[str, Any]]:
    return [
        {
            "metric": "grounding",
            "scorer": "builtin",
            "state": "scored",
            "value": 0.31,
            "probability": 0.5,
            "detail": {"unsupported": ["ten"]},
        },
        {"metric": "relevance", "scorer": "builtin", "state": "unscored", "reason": "no_text"},
    ]


def add_part_samples(agent: FakeAgent) -> None:
    """Add a sample of every family that a part declares."""
    for family in part_families(agent.part_kinds):
        labels = tuple((label, "x") for label in family.labels)
        if family.type == "counter":
            agent.counters.inc(family.name, labels)
        else:
            agent.measured.append((family.name, labels, 1.0))


def everything() -> FakeAgent:
    """An agent that makes every family of the reference appear."""
    agent = FakeAgent(segments=["model", "service"], asked=asked())
    table, latency = agent.fake.table, agent.fake.latency
    for segment in ("", "model=m-1", "service=inner"):
        for spec in metric_specs().values():
            for window in NAMES:
                middle = 0.8 if spec.high is None or spec.high <= 1 else 2.1
                table[("bot", segment, spec.name, "builtin", window)] = estimate(middle)
        for stage in ("retrieval", "total"):
            for window in NAMES:
                latency[("bot", segment, stage, window)] = quantiles()
    table[("bot", "", "relevance", "builtin", "5m")] = None
    agent.fake.bad[("bot", "grounding", "builtin")] = [RankedTrace("t-1", 0.31, NOW - 60)]
    agent.documents[("bot", "t-1")] = {"trace": trace(), "results": results()}
    agent.alert_list.append(alert())
    agent.incident_list.append(incident())
    agent.state = AgentHealth(
        oldest_unprocessed_seconds=1.5, processing_lag_seconds=0.2, pending={"judge": 3}
    )
    judge = ("judge", "main")
    for name in ("up", "in_flight", "in_flight_limit"):
        agent.measured.append((f"ragmeter_judge_{name}", (judge,), 1.0))
    for name in ("traces", "bytes"):
        agent.measured.append((f"ragmeter_otlp_open_{name}", (), 2.0))
    for name in ("messages", "seconds"):
        topic = ("topic", "rag.traces")
        agent.measured.append((f"ragmeter_kafka_lag_{name}", (topic,), 3.0))
    agent.measured.append(("ragmeter_held_traces", (), 1.0))
    agent.measured.append(("ragmeter_feedback_waiting", (), 2.0))
    agent.measured.append(("ragmeter_feedback_traces", (), 40.0))
    agent.measured += dedupe_gauges({"bot": 3600.0}, 86_400.0)
    add_part_samples(agent)
    own_scale = (("tier", "judge"), ("service", "bot"))
    agent.measured.append(("ragmeter_sampling_scale", own_scale, 0.5))
    agent.measured.append(("ragmeter_alerts_refused", (), 0.0))
    agent.judges.append({"judge": "main", "model": "m-1", "fingerprint": "0123456789ab"})
    counters = agent.counters
    own = ("service", "bot")
    counters.inc("rag_requests_total", (own, ("status", "ok")), 40)
    counters.inc("rag_tokens_total", (own, ("direction", "input")), 1000)
    counters.inc("rag_cost_usd_total", (own,), 0.25)
    counters.inc("rag_guessed_fields_total", (own, ("field", "query")), 7)
    counters.inc("rag_left_out_traces_total", (own, ("reason", "language")), 10)
    counters.inc("ragmeter_traces_received_total", (("source", "http"),), 40)
    counters.inc("ragmeter_dead_letters_total", (("reason", "not_json"),))
    outcome = (("resolver", "kb"), ("outcome", "found"))
    counters.inc("ragmeter_resolver_requests_total", outcome)
    counters.inc("ragmeter_redactions_total", (("rule", "email"),))
    counters.inc("ragmeter_redaction_failures_total", (("rule", "x"), ("reason", "timeout")))
    counters.inc("ragmeter_otlp_spans_total", (("signal", "traces"), ("result", "accepted")), 500)
    counters.inc("ragmeter_otlp_traces_total", (("result", "root"),), 41)
    counters.inc("ragmeter_otlp_dropped_total", (("reason", "indexing"),))
    counters.inc("ragmeter_feedback_received_total", (("source", "http"),), 7)
    counters.inc("ragmeter_feedback_total", (("outcome", "joined"),), 5)
    counters.inc("ragmeter_feedback_traces_shed_total")
    counters.inc("ragmeter_unexpected_results_total")
    counters.inc("ragmeter_kafka_deleted_unread_total", (("topic", "rag.traces"),))
    counters.inc("ragmeter_label_overflow_total", (("label", "service"),))
    counters.inc("ragmeter_notifications_total", (("target", "webhook"), ("outcome", "ok")))
    exported = (("result", "sent"),)
    counters.inc("ragmeter_results_exported_total", exported, 40)
    counters.inc("ragmeter_judge_requests_total", (judge, ("outcome", "ok")), 9)
    counters.observe("ragmeter_judge_duration_seconds", (judge,), [0.6], DURATION_EDGES)
    counters.inc("ragmeter_judge_verdicts_total", (judge, ("source", "kept")), 3)
    counters.inc("ragmeter_judge_tokens_total", (judge, ("direction", "input")), 900)
    counters.inc("ragmeter_judge_cost_usd_total", (judge,), 0.01)
    counters.inc("ragmeter_canary_judge_requests_total", (), 3)
    counters.inc("ragmeter_canary_judge_tokens_total", (), 300)
    counters.inc("ragmeter_canary_judge_cost_usd_total", (), 0.003)
    counters.inc(
        "ragmeter_instrument_changes_total", (("metric", "relevance"), ("scorer", "umbrela"))
    )
    pair = (("metric", "grounding"), ("scorer", "builtin"))
    counters.inc("ragmeter_seen_total", pair, 44)
    counters.inc("ragmeter_results_total", (*pair, ("state", "scored"), ("reason", "")), 43)
    counters.inc("ragmeter_results_total", (*pair, ("state", "unscored"), ("reason", "no_text")))
    for number, seconds in enumerate((0.07, 0.3, 2.41, 99.0)):
        counters.observe(
            "rag_request_duration_seconds",
            (own,),
            [seconds],
            DURATION_EDGES,
            [Exemplar(f"t-{number}", seconds, NOW - number)],
        )
    return agent
