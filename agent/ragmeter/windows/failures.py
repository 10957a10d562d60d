"""Results without a value through a fault of the scorer, counted by reason.

A trace without captured passages cannot be scored either, but that is a property of how a service
is traced. Counted here is what failed: the judge, the model, a scorer, or one of their limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ragmeter.core.score import Score, ScoreState
from ragmeter.reasons import Reason
from ragmeter.trace import MISSING_REASONS
from ragmeter.windows.estimators import wilson_interval
from ragmeter.windows.sums import ScoreSums
from ragmeter.windows.worst import UNSCORED_METRIC

_PIPELINE_REASONS = frozenset(
    {Reason.REDACTION_FAILED, Reason.RESOLVER_ERROR, Reason.RESOLVER_TIMEOUT}
)
_REFERENCE_REASONS = frozenset(
    {Reason.BAD_PATTERN, Reason.NO_ANCHOR, Reason.NO_DATES, Reason.PATTERN_TIMEOUT}
)

# Reasons of `unscored` that are properties of the trace and not faults of the scorer.
TRACE_REASONS = frozenset(
    {
        Reason.CANNOT_TELL,
        Reason.CITATIONS_NOT_READ,
        Reason.NO_QUERY,
        Reason.NO_TEXT,
        Reason.NOT_LABELLED,
        Reason.NOT_REPORTED,
        Reason.NO_PRICE,
    }
    | _REFERENCE_REASONS
    | (MISSING_REASONS - _PIPELINE_REASONS)
)

# The known faults; `docs/metrics.md` explains each.
FAILURE_REASONS = frozenset(
    {
        Reason.JUDGE_ERROR,
        Reason.JUDGE_TIMEOUT,
        Reason.JUDGE_REFUSED,
        Reason.JUDGE_UNAVAILABLE,
        Reason.UNPARSABLE,
        Reason.TOO_LONG,
        Reason.MODEL_ERROR,
        Reason.NOT_CONFIGURED,
        Reason.INTERNAL_ERROR,
        Reason.TIMEOUT,  # of a judge or model on Kafka
        Reason.EMBEDDING_FAILED,  # of a canary's similarity
        Reason.BAD_VALUE,  # of a function of the user's own
        Reason.BUDGET,  # of canaries: all are meant to be judged, and their owner can send fewer
        *_PIPELINE_REASONS,
    }
)

# Replaces undeclared reasons: those in a file of scored traces come from outside, and every bucket
# stores each of them.
OTHER_REASON = Reason.OTHER

# Number of results by (metric, scorer without version) and reason. Never changed in place.
FailureCounts = dict[tuple[str, str], dict[str, int]]


@dataclass(frozen=True, slots=True)
class FailedShare:
    """The weighted share (0..1) of expected results that a fault of ours prevented.

    `lower` and `upper` are its 95 % limits, `samples` the results that should have a value,
    `reasons` the number of failures by reason, most frequent first.
    """

    value: float
    lower: float
    upper: float
    effective_samples: float
    samples: int
    reasons: Mapping[str, int]


def failure_reason(score: Score) -> str | None:
    """Return why a score has no usable value; None if that is no fault of ours."""
    if score.state is ScoreState.SCORED:  # a value that cannot be averaged
        return Reason.INTERNAL_ERROR
    if score.state is not ScoreState.UNSCORED or score.reason in TRACE_REASONS:
        return None
    return score.reason if score.reason in FAILURE_REASONS else OTHER_REASON


def failed_worst_key(metric: str, scorer: str) -> tuple[str, str]:
    """Return the (metric, scorer) under which a bucket's worst traces name those that failed."""
    return UNSCORED_METRIC, f"{metric} {scorer}"


def add_failures(
    first: FailureCounts | None, second: FailureCounts | None, sign: int = 1
) -> FailureCounts | None:
    """Return the sum of two counts, or with sign -1 their difference; zeros are left out."""
    if not second:
        return first
    new = dict(first or {})
    for key, reasons in second.items():
        old = new.get(key, {})
        summed = {
            name: number
            for name in {**old, **reasons}
            if (number := old.get(name, 0) + sign * reasons.get(name, 0))
        }
        if summed:
            new[key] = summed
        else:
            new.pop(key, None)
    return new or None


def estimate_failed_share(cell: ScoreSums, reasons: Mapping[str, int]) -> FailedShare | None:
    """Estimate the share of failures with Wilson's interval on the effective number of samples.

    Args:
        cell: Sums of the series.
        reasons: Number of its failures by reason. Reasons have no weights: each is taken to be as
            heavy as any other loss.

    Returns:
        The share; None if no value was expected.
    """
    lost = cell.unscored + cell.shed
    samples = cell.scored + lost
    if not samples:
        return None
    ours = min(1.0, sum(reasons.values()) / lost) if lost else 0.0
    share = min(1.0, (cell.unscored_share() or 0.0) * ours)
    effective = samples * min(1.0, cell.kish / cell.scored) if cell.scored else float(samples)
    ordered = dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    return FailedShare(share, *wilson_interval(share, effective), effective, samples, ordered)
