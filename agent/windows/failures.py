"""Results that got no value through a fault of ours, counted by reason.

A trace without captured passages cannot be scored either, but that is so by how a service is
traced, all day, and nobody has to get up for it. What is counted here has failed: the judge, the
model, a scorer, or a limit of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.trace import MISSING_REASONS, Score, State
from agent.windows.estimators import wilson
from agent.windows.records import Failed
from agent.windows.sums import Cell
from agent.windows.worst import UNSCORED

__all__ = [
    "FAULTS",
    "OTHER",
    "TRACED_SO",
    "Failures",
    "add_failures",
    "failed_of",
    "fault",
    "place_of",
]

OUR_FAILURES = frozenset({"redaction_failed", "resolver_error", "resolver_timeout"})

OF_THE_REFERENCE = frozenset({"bad_pattern", "no_anchor", "no_dates", "pattern_timeout"})

TRACED_SO = frozenset(
    {"no_query", "no_text", "not_labelled", "not_reported", "unsupported_language"}
    | OF_THE_REFERENCE
    | (MISSING_REASONS - OUR_FAILURES)
)
"""Reasons of `unscored` that say something about the trace and nothing about the scorer."""

FAULTS = frozenset(
    {
        *("judge_error", "judge_timeout", "judge_refused", "judge_unavailable", "unparsable"),
        *("too_long", "model_error", "not_configured", "old_schema", "internal_error"),
        "bad_value",  # of a function of the user's own
        "budget",  # of canaries: all are meant to be judged, and who sends them can send fewer
        *OUR_FAILURES,
    }
)
"""The other ones that we know: `docs/metrics.md` says what each one means."""

OTHER = "other"
"""For a reason that nobody has declared: reasons in a file of scored traces come from outside, and
each is kept in every bucket."""

Failures = dict[tuple[str, str], dict[str, int]]
"""Number of results by (metric, scorer without its version) and reason. Never changed in place."""


def fault(score: Score) -> str | None:
    """Why a score without a usable value has none; None where that is no fault of ours."""
    if score.state is State.SCORED:  # a value that cannot be averaged
        return "internal_error"
    if score.state is not State.UNSCORED or score.reason in TRACED_SO:
        return None
    return score.reason if score.reason in FAULTS else OTHER


def place_of(metric: str, scorer: str) -> tuple[str, str]:
    """Where the worst traces of a bucket name those that failed."""
    return UNSCORED, f"{metric} {scorer}"


def add_failures(
    mine: Failures | None, other: Mapping[tuple[str, str], Mapping[str, int]] | None, sign: int = 1
) -> Failures | None:
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


def failed_of(cell: Cell, reasons: Mapping[str, int]) -> Failed | None:
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
    return Failed(share, *wilson(share, effective), effective, samples, ordered)
