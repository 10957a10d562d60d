"""Count the results of a run of offline scoring, and its failures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import Tier
from ragmeter.offline.judging_summary import JudgingSummary
from ragmeter.reasons import Reason


@dataclass(slots=True)
class ScoringSummary:
    """Counts of one run.

    Args:
        traces: Traces scored.
        bad: Items that are no trace.
        unread: Traces that some scorer leaves out because of their language.
        scored: Results with a value, by tier.
        failed: Results that the judge or the model failed to give, by tier and reason.
        judging: The judges, their instruments and what they cost.
        seconds: Time of the whole run.
    """

    traces: int = 0
    bad: int = 0
    unread: int = 0
    scored: Counter[Tier] = field(default_factory=Counter)
    failed: dict[Tier, Counter[str]] = field(default_factory=dict)
    judging: JudgingSummary = field(default_factory=JudgingSummary)
    seconds: float = 0.0

    def add(self, tier: Tier, scores: list[Score]) -> None:
        """Count the results of a tier for one trace."""
        self.scored[tier] += sum(score.state is ScoreState.SCORED for score in scores)
        reasons = Counter(str(score.reason) for score in scores if _is_scorer_failure(score))
        self.failed.setdefault(tier, Counter()).update(reasons)

    @property
    def failed_tiers(self) -> list[Tier]:
        """The tiers that failed and gave no value at all."""
        return [tier for tier, failed in self.failed.items() if failed and not self.scored[tier]]

    def summary_lines(self) -> list[str]:
        """Return lines for the terminal: languages, and how often and why a tier failed."""
        lines: list[str] = []
        if self.unread:
            lines.append(
                f"language: {self.unread:,} of {self.traces:,} traces"
                f" ({self.unread / self.traces:.0%}) are in a language that some scorer was not"
                " measured on, and are not applicable to it"
            )
        for tier, failed in self.failed.items():
            if failed:
                total = self.scored[tier] + failed.total()
                why = ", ".join(f"{reason} {number:,}" for reason, number in failed.most_common())
                lines.append(f"{tier}: {failed.total():,} of {total:,} results unscored ({why})")
        return lines


def _is_scorer_failure(score: Score) -> bool:
    """Return whether the judge or the model, and not the trace, is why there is no value."""
    reason = score.reason or ""
    failures = (
        Reason.UNPARSABLE,
        Reason.MODEL_ERROR,
        Reason.INTERNAL_ERROR,
        Reason.TOO_LONG,
    )
    return score.state is ScoreState.UNSCORED and (
        reason.startswith("judge_") or reason in failures
    )
