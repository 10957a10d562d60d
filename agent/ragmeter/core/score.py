"""Scores and scored traces, and constructors for scores with or without a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple, get_args

from ragmeter.core.judging import TraceJudging
from ragmeter.reasons import Reason
from ragmeter.trace import GuessedField, Status, Trace

BUILTIN_SCORER = "builtin"
ESTIMATE_SCORER = "estimate"  # of costs, by tokens and list prices
JUDGE_SCORER = "judge"
REFERENCE_SCORER = "reference"  # compares with a canary's reference

# Characters of what a score read from a file or a topic may have: they become labels of series.
MAX_FINGERPRINT = 64
MAX_STRATUM = 32

CLUSTER_PATTERN = r"^([0-9a-f]{3,8})?$"  # of `ScoredTrace.cluster` and `tenant`

# Spans of a detail that are read, and characters of their texts: details come from files, too.
_MAX_SPANS = 10
_MAX_SPAN_TEXT = 200


class ScoreState(StrEnum):
    """The final state of a (trace, metric) pair."""

    SCORED = "scored"
    NOT_APPLICABLE = "not_applicable"
    SAMPLED_OUT = "sampled_out"
    UNSCORED = "unscored"
    SHED = "shed"
    LATE = "late"


_SCORED = ScoreState.SCORED


@dataclass(slots=True)
class Score:
    """One result of a scorer for a metric of a trace.

    One that is alike for many traces is one object (`share_score`): change none that was handed on.

    Args:
        metric: Name of the metric; one with a cut-off ends in it: `precision_at_k:5`.
        value: The value, in the range of the metric, if and only if `state` is `scored`.
        reason: A label that says why there is no value.
        probability: Inclusion probability pi in (0, 1] under which the value was taken, the
            product of all samplers; estimates weight the value by 1/pi.
        detail: JSON-able data that explains the value.
        fingerprint: Version of the judge or model; another one starts another series.
        stratum: The stratum that a sampling tier drew the trace from, whatever the state.
        cheap: The built-in score that helps to estimate this metric, for results of a sampling
            tier: of the same metric or of `MetricSpec.helped_by`.
    """

    metric: str
    scorer: str
    state: ScoreState
    value: float | None = None
    reason: str | None = None
    probability: float = 1.0
    detail: dict[str, Any] | None = None
    fingerprint: str | None = None
    stratum: str = ""
    cheap: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the public JSON form, without absent fields."""
        name, _, k = self.metric.partition(":")
        out: dict[str, Any] = {"metric": name, "scorer": self.scorer, "state": str(self.state)}
        if k:
            out["k"] = int(k)
        if self.value is not None:
            out["value"] = self.value
        if self.reason is not None:
            out["reason"] = self.reason
        if self.state is ScoreState.SCORED or self.stratum:
            out["probability"] = self.probability
        if self.stratum:
            out["stratum"] = self.stratum
        if self.cheap is not None:
            out["cheap"] = self.cheap
        if self.fingerprint is not None:
            out["fingerprint"] = self.fingerprint
        if self.detail:
            out["detail"] = self.detail
        return out


@dataclass(frozen=True, slots=True)
class UnsupportedSpan:
    """Characters [start, end) of an answer that nothing supports, and the nearest sentence."""

    start: int
    end: int
    text: str
    passage_id: str = ""
    evidence: str = ""


def read_unsupported(detail: Any) -> list[UnsupportedSpan]:
    """Return the spans that a detail names, the worst first; none of those without their text."""
    spans = detail.get("unsupported_spans") if isinstance(detail, dict) else None
    out = []
    for span in spans[:_MAX_SPANS] if isinstance(spans, list) else ():
        fields = span if isinstance(span, dict) else {}
        start, end, text, evidence = map(fields.get, ("start", "end", "text", "evidence"))
        if isinstance(start, int) and isinstance(end, int) and isinstance(text, str) and text:
            known = evidence if isinstance(evidence, dict) else {}
            near = [str(known.get(key, ""))[:_MAX_SPAN_TEXT] for key in ("passage_id", "text")]
            out.append(UnsupportedSpan(start, end, text[:_MAX_SPAN_TEXT], *near))
    return out


# (metric, scorer, stratum) of a result that is still to come
PendingResult = tuple[str, str, str]


class ScoredTrace(NamedTuple):
    """The results of one trace, without its texts: scoring's output and aggregation's input.

    Args:
        timestamp: Event time in Unix seconds.
        probability: Upstream inclusion probability in (0, 1]; operational counts are weighted by
            its inverse.
        timings: Seconds by stage.
        cost_usd: Cost of the request in US dollars.
        partial: Whether this adds results to a trace that was handed over before.
        canary: Whether the trace is a test query; only its reference metrics are counted, apart
            from real traffic.
        pending: The results that will follow; a trace belongs to its strata from the start, however
            long a judge takes.
        guessed: The fields that were read from spans and may be wrong.
        passages: The hashes of its passages in rank order, by which labels name them
            (`ragmeter.metrics.merged_labels`); None: not captured.
        judging: By whom and at what price it was judged; offline only.
        cluster: A hash that traces of one session, user, tenant or query share; empty: none known.
        tenant: A hash that traces of one tenant or user share, else `cluster`.
    """

    trace_id: str
    service: str
    timestamp: float
    status: Status
    results: Sequence[Score]
    probability: float = 1.0
    timings: Mapping[str, float] = {}
    tags: Mapping[str, str] = {}
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    partial: bool = False
    canary: bool = False
    pending: tuple[PendingResult, ...] = ()
    guessed: tuple[GuessedField, ...] = ()
    passages: tuple[str, ...] | None = None
    judging: TraceJudging | None = None
    cluster: str = ""
    tenant: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the line that `ragmeter score` writes, as JSON-able data."""
        out: dict[str, Any] = {
            "trace_id": self.trace_id,
            "service": self.service,
            "timestamp": datetime.fromtimestamp(self.timestamp, UTC)
            .isoformat()
            .replace("+00:00", "Z"),
            "status": self.status,
            "results": [score.to_dict() for score in self.results],
        }
        # a backtest of operational rules and objectives needs these besides the results
        if self.timings:
            out["timings"] = self.timings
        if self.probability != 1:
            out["probability"] = self.probability
        if self.tags:
            out["tags"] = self.tags
        if self.canary:
            out["canary"] = True
        if self.cluster:
            out["cluster"] = self.cluster
        if self.tenant != self.cluster:
            out["tenant"] = self.tenant
        if self.judging is not None:
            out["judging"] = self.judging.to_dict()
        return out


@dataclass(frozen=True, slots=True)
class NoScore:
    """The absence of a value.

    Args:
        reason: A label that says why.
        applies: Whether the metric has a meaning for the trace: True makes the score `unscored`,
            False `not_applicable`.
        server: What the server of a judge said of the failure, without secrets and prompt.
    """

    reason: str
    applies: bool = True
    server: str = field(default="", compare=False)


# The gaps of answers: a trace asks for one several times.
_NOT_OK = {status: NoScore(status, applies=False) for status in get_args(Status)}
_NO_TEXT = NoScore(Reason.NO_TEXT)
_EMPTY_ANSWER = NoScore(Reason.EMPTY_ANSWER, applies=False)
_NO_ANSWER = NoScore(Reason.NO_ANSWER, applies=False)


def build_score(
    metric: str,
    scorer: str,
    state: ScoreState,
    *,
    probability: float,
    value: float | None = None,
    reason: str | None = None,
    detail: dict[str, Any] | None = None,
    fingerprint: str | None = None,
    stratum: str = "",
    cheap: float | None = None,
) -> Score:
    """Make a score of these fields, a dozen of which each trace has.

    A class that is called with keywords packs them into a dictionary first, which takes twice as
    long as this.
    """
    score = Score.__new__(Score)
    score.metric = metric
    score.scorer = scorer
    score.state = state
    score.value = value
    score.reason = reason
    score.probability = probability
    score.detail = detail
    score.fingerprint = fingerprint
    score.stratum = stratum
    score.cheap = cheap
    return score


def make_scored(
    metric: str,
    trace: Trace,
    value: float,
    detail: dict[str, Any] | None = None,
    scorer: str = BUILTIN_SCORER,
    fingerprint: str | None = None,
) -> Score:
    """Make a score with a value, taken under the trace's upstream inclusion probability."""
    return build_score(
        metric,
        scorer,
        ScoreState.SCORED,
        value=value,
        probability=trace.probability,
        detail=detail,
        fingerprint=fingerprint,
    )


def _make_gap(
    metric: str,
    scorer: str,
    gap: NoScore,
    *,
    probability: float,
    detail: dict[str, Any] | None = None,
) -> Score:
    """Make the score of a metric without a value."""
    if gap.server:
        detail = {**(detail or {}), "server": gap.server}
    return build_score(
        metric,
        scorer,
        ScoreState.UNSCORED if gap.applies else ScoreState.NOT_APPLICABLE,
        reason=gap.reason,
        probability=probability,
        detail=detail,
    )


def make_not_applicable(
    metric: str, trace: Trace, reason: str, scorer: str = BUILTIN_SCORER
) -> Score:
    """Make the score of a metric without a meaning for this trace; it enters no estimate."""
    return build_score(
        metric, scorer, ScoreState.NOT_APPLICABLE, reason=reason, probability=trace.probability
    )


def make_unscored(metric: str, trace: Trace, reason: str, scorer: str = BUILTIN_SCORER) -> Score:
    """Make the score of a metric whose input was not captured or not understood."""
    return build_score(
        metric, scorer, ScoreState.UNSCORED, reason=reason, probability=trace.probability
    )


def make_score(
    metric: str,
    trace: Trace,
    value: float | NoScore,
    scorer: str,
    *,
    detail: dict[str, Any] | None = None,
    fingerprint: str | None = None,
) -> Score:
    """Make a score from a value or its absence; both keep the detail."""
    if not isinstance(value, NoScore):
        return make_scored(
            metric=metric,
            trace=trace,
            value=value,
            detail=detail,
            scorer=scorer,
            fingerprint=fingerprint,
        )
    return _make_gap(metric, scorer, value, probability=trace.probability, detail=detail)


def most_common_reason(gaps: Iterable[NoScore]) -> NoScore:
    """Return the most frequent of the gaps, the first of equals.

    Raises:
        ValueError: There is none.
    """
    for gap, _ in Counter(gaps).most_common(1):
        return gap
    raise ValueError("no gaps")


def find_answer_reason(trace: Trace, answered: float | None) -> NoScore | None:
    """Return why metrics of answers cannot be scored on this trace, None if they can.

    Args:
        trace: The trace.
        answered: 1 for an answer, 0 for none (`ragmeter.metrics.abstention`); None if the answer
            was not captured.
    """
    if trace.status != "ok":
        return _NOT_OK[trace.status]
    if answered is None:
        return _NO_TEXT
    if not answered:
        empty = trace.answer is None or not trace.answer.strip()
        return _EMPTY_ANSWER if empty else _NO_ANSWER
    return None


_End = tuple[ScoreState, float | None, str | None]
"""State, value and reason of a score."""

_Terms = tuple[float, str]
"""Inclusion probability and stratum of a score."""


@lru_cache(maxsize=4_096)  # some twenty a service and inclusion probability
def share_score(metric: str, scorer: str, end: _End, terms: _Terms) -> Score:
    """Return a score that many traces have alike, which is one object and must not be changed."""
    state, value, reason = end
    probability, stratum = terms
    return build_score(
        metric,
        scorer,
        state,
        value=value,
        reason=reason,
        probability=probability,
        stratum=stratum,
    )


def make_plain_score(
    metric: str, probability: float, value: float | NoScore, scorer: str = BUILTIN_SCORER
) -> Score:
    """Make a score without detail, which is shared unless its value is rare."""
    if isinstance(value, NoScore):
        state = ScoreState.UNSCORED if value.applies else ScoreState.NOT_APPLICABLE
        return share_score(metric, scorer, (state, None, value.reason), (probability, ""))
    if value in (0.0, 1.0):
        return share_score(metric, scorer, (_SCORED, value, None), (probability, ""))
    return build_score(metric, scorer, _SCORED, value=value, probability=probability)
