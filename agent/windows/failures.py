"""Results without a value through a fault of the scorer, counted by reason.

A trace without captured passages cannot be scored either, but that is so by how a service is
traced, all day, and nobody has to get up for it. What is counted here has failed: the judge, the
model, a scorer, or a limit of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ragmeter.core.score import Score, ScoreState
from ragmeter.trace import MISSING_REASONS
from ragmeter.windows.estimators import wilson_interval
from ragmeter.windows.sums import ScoreSums
from ragmeter.windows.worst import UNSCORED_METRIC


@dataclass(frozen=True, slots=True)
class FailedShare:
    """The weighted share of the results that should have a value and got none through a fault of
    ours, with its 95 % interval, of `samples` that should; `reasons` counts them, most frequent
    first."""

    value: float
    lower: float
    upper: float
    effective_samples: float
    samples: int
    reasons: Mapping[str, int]


_PIPELINE_REASONS = frozenset({"redaction_failed", "resolver_error", "resolver_timeout"})

_REFERENCE_REASONS = frozenset({"bad_pattern", "no_anchor", "no_dates", "pattern_timeout"})

TRACE_REASONS = frozenset(
    {"no_query", "no_text", "not_labelled", "not_reported", "unsupported_language"}
    | _REFERENCE_REASONS
    | (MISSING_REASONS - _PIPELINE_REASONS)
)
"""Reasons of `unscored` that say something about the trace and nothing about the scorer."""

FAILURE_REASONS = frozenset(
    {
        *("judge_error", "judge_timeout", "judge_refused", "judge_unavailable", "unparsable"),
        *("too_long", "model_error", "not_configured", "old_schema", "internal_error"),
        "bad_value",  # of a function of the user's own
        "budget",  # of canaries: all are meant to be judged, and who sends them can send fewer
        *_PIPELINE_REASONS,
    }
)
"""The other ones that we know: `docs/metrics.md` says what each one means."""

OTHER_REASON = "other"
"""For a reason that nobody has declared: reasons in a file of scored traces come from outside, and
each is kept in every bucket."""

FailureCounts = dict[tuple[str, str], dict[str, int]]
"""Number of results by (metric, scorer without its version) and reason. Never changed in place."""


def failure_reason(score: Score) -> str | None:
    """Why a score without a usable value has none; None where that is no fault of ours."""
    if score.state is ScoreState.SCORED:  # a value that cannot be averaged
        return "internal_error"
    if score.state is not ScoreState.UNSCORED or score.reason in TRACE_REASONS:
        return None
    return score.reason if score.reason in FAILURE_REASONS else OTHER_REASON


def failed_worst_key(metric: str, scorer: str) -> tuple[str, str]:
    """Where the worst traces of a bucket name those that failed."""
    return UNSCORED_METRIC, f"{metric} {scorer}"


def add_failures(
    mine: FailureCounts | None,
    other: Mapping[tuple[str, str], Mapping[str, int]] | None,
    sign: int = 1,
) -> FailureCounts | None:
    """Their sum, or with the sign -1 their difference; what has become 0 disappears."""
    if not other:
        return mine
    new = dict(mine or {})
    for key, reasons in other.items():
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
    """From the sums of a series and its failures by reason. None where no value was owed."""
    lost = cell.unscored + cell.shed
    samples = cell.scored + lost
    if not samples:
        return None
    # The share has weights, the reasons have none: as if each were as heavy as any other loss.
    ours = min(1.0, sum(reasons.values()) / lost) if lost else 0.0
    share = min(1.0, (cell.unscored_share() or 0.0) * ours)
    effective = samples * min(1.0, cell.kish / cell.scored) if cell.scored else float(samples)
    ordered = dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    return FailedShare(share, *wilson_interval(share, effective), effective, samples, ordered)
