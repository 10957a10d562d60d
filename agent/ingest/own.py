"""What marks telemetry as ours: results that ragmeter sends must never come back in as traces.

A collector that fans everything out sends our evaluator spans and result events to every backend,
ragmeter among them. Whoever scored those would score its own scores, without end. The names are
here because the side that sends and the side that reads must agree on them.
"""

from __future__ import annotations

from agent.ingest.spans import LogEvent, Span

__all__ = [
    "EVALUATOR",
    "KIND",
    "RESULT_EVENT",
    "SCOPE",
    "SERVICE",
    "is_evaluator",
    "is_own",
    "is_result",
]

SERVICE = "ragmeter"
"""`service.name` of the resource."""

SCOPE = "ragmeter"
"""Name of the instrumentation scope: it stays where a collector rewrites the resource."""

KIND, EVALUATOR = "openinference.span.kind", "EVALUATOR"
"""Attribute and value of a span that carries an evaluation, whoever made it."""

RESULT_EVENT = "gen_ai.evaluation.result"
"""Name of the event that carries an evaluation, whoever made it."""


def is_own(span: Span) -> bool:
    """Whether ragmeter itself has sent this span."""
    return span.scope == SCOPE or span.resource.get("service.name") == SERVICE


def is_evaluator(span: Span) -> bool:
    """Whether this span carries an evaluation. In any case of letters: LlamaIndex TypeScript wrote
    kinds in lower case."""
    kind = span.attributes.get(KIND)
    return isinstance(kind, str) and kind.upper() == EVALUATOR


def is_result(log: LogEvent) -> bool:
    """Whether this log event says how a request was judged: that is no content of the request, and
    it comes long after its trace was closed."""
    return log.event.name == RESULT_EVENT
