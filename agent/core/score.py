"""Scores and scored traces, and constructors for scores with or without a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from ragmeter.trace import Status, Trace


class ScoreState(StrEnum):
    """Where a (trace, metric) pair ends: in exactly one of these."""

    SCORED = "scored"
    NOT_APPLICABLE = "not_applicable"
    SAMPLED_OUT = "sampled_out"
    UNSCORED = "unscored"
    SHED = "shed"
    LATE = "late"


@dataclass(slots=True)
class Score:
    """One result: `value` is there if and only if `state` is `scored`.

    `probability` is the inclusion probability pi in (0, 1] under which the value was taken, all
    causes multiplied; an estimate weights the value by 1/pi. `fingerprint` says which version of
    a judge or model gave the value: another one starts another series. The name of a metric with
    a cut-off ends in it: `precision_at_k:5`.

    Results of a tier that samples carry, whatever their state, the `stratum` that the trace was
    drawn from, and as `cheap` what the built-in scorer says of the same metric, if it does.
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
        """The public JSON form: absent fields are left out."""
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
class HashedWording:
    """What stands for a question and its answer where answers are compared, without their text
    (`ragmeter.aggregate.wordings`): a hash in hex, and hashes of the words in base64."""

    query: str
    words: str


# (metric, scorer, stratum, built-in score) of a result that a slow tier will bring.
PendingResult = tuple[str, str, str, float | None]


@dataclass(frozen=True, slots=True)
class ScoredTrace:
    """The scores and numbers of one trace, without its text, as scoring hands it to aggregation.

    Args:
        trace_id: Id of the trace.
        service: Name of the service; the aggregator bounds it.
        timestamp: Event time in Unix seconds.
        status: Status of the trace.
        results: One score a metric and scorer.
        probability: Upstream inclusion probability; operational counts are weighted by its inverse.
        timings: Seconds by stage.
        tags: Tags of the trace, with model and prompt version among them.
        input_tokens: Tokens of the prompt.
        output_tokens: Tokens of the answer.
        cost_usd: What the trace cost, in US dollars.
        partial: Whether these are further results of a trace that was aggregated before.
        canary: Whether it is no traffic: its reference and the judge score it, apart from the rest.
        pending: The results that slow tiers will bring. The trace belongs to their strata from the
            start, however long that takes.
        wording: Hashes of its question and answer, to compare answers.
        wording_reason: Why there is no wording: a label, empty if answers are not compared.
    """

    trace_id: str
    service: str
    timestamp: float
    status: Status
    results: Sequence[Score]
    probability: float = 1.0
    timings: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    partial: bool = False
    canary: bool = False
    pending: tuple[PendingResult, ...] = ()
    wording: HashedWording | None = None
    wording_reason: str = ""

    def with_wording(self, wording: HashedWording | str) -> ScoredTrace:
        """Return a copy with the wording of its answer, or with the reason why there is none."""
        if isinstance(wording, str):
            return replace(self, wording=None, wording_reason=wording)
        return replace(self, wording=wording, wording_reason="")

    def to_dict(self) -> dict[str, Any]:
        """The line that `ragmeter score` writes."""
        out: dict[str, Any] = {
            "trace_id": self.trace_id,
            "service": self.service,
            "timestamp": datetime.fromtimestamp(self.timestamp, UTC)
            .isoformat()
            .replace("+00:00", "Z"),
            "status": self.status,
            "results": [score.to_dict() for score in self.results],
        }
        # what a backtest of operational rules and objectives needs besides the results
        if self.timings:
            out["timings"] = self.timings
        if self.probability != 1:
            out["probability"] = self.probability
        if self.tags:
            out["tags"] = self.tags
        if self.canary:
            out["canary"] = True
        return out


BUILTIN_SCORER = "builtin"
JUDGE_SCORER = "judge"
REFERENCE_SCORER = "reference"
"""What a canary's reference says is right."""


@dataclass(frozen=True, slots=True)
class NoScore:
    """Where a number is missing, why. `applies` is False where there is none by nature.

    The first becomes `unscored`, the second `not_applicable`.
    """

    reason: str
    applies: bool = True


def make_scored(
    metric: str,
    trace: Trace,
    value: float,
    detail: dict[str, Any] | None = None,
    scorer: str = BUILTIN_SCORER,
    fingerprint: str | None = None,
) -> Score:
    """A value, taken under the trace's upstream inclusion probability."""
    probability = trace.probability
    return Score(metric, scorer, ScoreState.SCORED, value, None, probability, detail, fingerprint)


def make_not_applicable(
    metric: str, trace: Trace, reason: str, scorer: str = BUILTIN_SCORER
) -> Score:
    """The metric has no meaning for this trace: it counts as seen and enters no estimate."""
    return Score(metric, scorer, ScoreState.NOT_APPLICABLE, None, reason, trace.probability)


def make_unscored(metric: str, trace: Trace, reason: str, scorer: str = BUILTIN_SCORER) -> Score:
    """The metric has a meaning here, but what it needs was not captured or not understood."""
    return Score(metric, scorer, ScoreState.UNSCORED, None, reason, trace.probability)


def make_score(
    metric: str,
    trace: Trace,
    value: float | NoScore,
    scorer: str,
    *,
    detail: dict[str, Any] | None = None,
    fingerprint: str | None = None,
) -> Score:
    """The score of a value or of the gap in its place; a gap keeps the detail, too."""
    if not isinstance(value, NoScore):
        return make_scored(metric, trace, value, detail, scorer, fingerprint)
    score = (make_unscored if value.applies else make_not_applicable)(
        metric, trace, value.reason, scorer
    )
    score.detail = detail
    return score


def most_common_reason(gaps: Iterable[NoScore]) -> NoScore:
    """The most frequent of the gaps, the first of equals. ValueError without any."""
    counted = Counter(gaps).most_common(1)
    if not counted:
        raise ValueError("no gaps")
    return counted[0][0]


def find_answer_reason(trace: Trace, answered: float | None) -> NoScore | None:
    """Why a metric of answers can't be scored on this trace; None where it can.

    `answered` is the verdict of `ragmeter.metrics.abstention.verdict`: 1, 0, or None where the answer
    was not captured.
    """
    if trace.status != "ok":
        return NoScore(trace.status, applies=False)
    if answered is None:
        return NoScore("no_text")
    if not answered:
        empty = trace.answer is None or not trace.answer.strip()
        return NoScore("empty_answer" if empty else "no_answer", applies=False)
    return None


def make_answer_score(metric: str, trace: Trace, answered: float | None) -> Score | None:
    """`hindrance` as a built-in score."""
    gap = find_answer_reason(trace, answered)
    return None if gap is None else make_score(metric, trace, gap, BUILTIN_SCORER)
