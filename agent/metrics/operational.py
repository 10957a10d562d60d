"""Operational metrics: errors, timeouts, empty answers, tokens and cost."""

from __future__ import annotations

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import (
    BUILTIN_SCORER,
    Score,
    make_not_applicable,
    make_scored,
    make_unscored,
)
from ragmeter.trace import Trace

SPECS = (
    MetricSpec(
        name="error",
        kind="ratio",
        tier="cheap",
        scorers=(BUILTIN_SCORER,),
        meaning="share of traces that ended with an error (a timeout is counted apart)",
        formula="1 if status = error else 0, over all traces",
        needs="trace status",
        source="Google SRE book: the four golden signals",
        good="lower",
    ),
    MetricSpec(
        name="timeout",
        kind="ratio",
        tier="cheap",
        scorers=(BUILTIN_SCORER,),
        meaning="share of traces that ended with a timeout",
        formula="1 if status = timeout else 0, over all traces",
        needs="trace status",
        source="Google SRE book: the four golden signals",
        good="lower",
    ),
    MetricSpec(
        name="empty_answer",
        kind="ratio",
        tier="cheap",
        scorers=(BUILTIN_SCORER,),
        meaning="share of successful traces whose answer has no text",
        formula="1 if the answer is blank else 0, over traces with status ok",
        needs="answer text",
        source="ragmeter",
        good="lower",
    ),
    MetricSpec(
        name="input_tokens",
        kind="mean",
        tier="cheap",
        scorers=(BUILTIN_SCORER,),
        meaning="tokens sent to the model for one answer, as reported",
        formula="usage.input_tokens",
        needs="trace usage",
        source="OpenTelemetry's conventions for generative AI",
        high=None,
        good=None,
        unit="tokens",
    ),
    MetricSpec(
        name="output_tokens",
        kind="mean",
        tier="cheap",
        scorers=(BUILTIN_SCORER,),
        meaning="tokens that the model wrote for one answer, as reported",
        formula="usage.output_tokens",
        needs="trace usage",
        source="OpenTelemetry's conventions for generative AI",
        high=None,
        good=None,
        unit="tokens",
    ),
    MetricSpec(
        name="cost_usd",
        kind="mean",
        tier="cheap",
        scorers=(BUILTIN_SCORER,),
        meaning="cost of one answer in US dollars, as reported",
        formula="usage.cost_usd",
        needs="trace usage",
        source="OpenTelemetry's conventions for generative AI",
        high=None,
        good=None,
        unit="usd",
    ),
)


def has_empty_answer(trace: Trace) -> bool | None:
    """Return whether a successful trace has an empty answer; None if that is unknown.

    Tracing often leaves texts out, so an absent answer is empty only if the usage reports 0 output
    tokens. A hidden answer is unknown, a truncated one is not empty.
    """
    if "answer" in trace.missing:
        cut = trace.missing["answer"] == "answer_truncated" and (trace.answer or "").strip()
        return False if cut else None
    if trace.answer is not None:
        return not trace.answer or trace.answer.isspace()
    if trace.usage is not None and trace.usage.output_tokens == 0:
        return True
    return None


def _reported(metric: str, trace: Trace, value: float | None) -> Score:
    if value is None:
        return make_unscored(metric, trace, "not_reported")
    return make_scored(metric, trace, float(value))


def score_operational(trace: Trace) -> list[Score]:
    """Return the scores of every metric in `SPECS`, in their order."""
    status = trace.status
    if status != "ok":
        empty = make_not_applicable("empty_answer", trace, status)
    else:
        blank = has_empty_answer(trace)
        if blank is None:
            empty = make_unscored("empty_answer", trace, "no_text")
        else:
            empty = make_scored("empty_answer", trace, 1.0 if blank else 0.0)
    usage = trace.usage
    return [
        make_scored("error", trace, 1.0 if status == "error" else 0.0),
        make_scored("timeout", trace, 1.0 if status == "timeout" else 0.0),
        empty,
        _reported("input_tokens", trace, None if usage is None else usage.input_tokens),
        _reported("output_tokens", trace, None if usage is None else usage.output_tokens),
        _reported("cost_usd", trace, None if usage is None else usage.cost_usd),
    ]
