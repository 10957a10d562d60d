"""Whether a canary passes: what `ragmeter canary run --once` ends by. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.canaries.suite import Question, Suite
from agent.metrics import METRICS
from agent.metrics.names import base
from agent.trace import Score, State, Trace

__all__ = ["ASKED", "Verdict", "verdict"]

ASKED = {
    "canary_failed": 0.0,
    "fact_checks": 1.0,
    "calculation": 1.0,
    "abstention_accuracy": 1.0,
    "conflict_handled": 1.0,
}
"""What every question must reach, where its reference says anything of it. The other metrics are
degrees: they have a threshold where `expect` gives one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`failed` says in words what was not reached."""

    question: str
    required: bool
    seconds: float
    failed: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failed


def verdict(suite: Suite, question: Question, trace: Trace, scores: list[Score]) -> Verdict:
    """`scores` are those of the trace against its reference."""
    found = {score.metric: score for score in scores}
    seconds = float((trace.timings or {}).get("total") or 0.0)
    if trace.status != "ok":
        why = f"{trace.status}: {trace.error}" if trace.error else trace.status
        return Verdict(question.id, question.required, seconds, [why])
    asked: Mapping[str, float] = suite.expect | question.expect
    failed = [
        text
        for name, threshold in {**ASKED, **asked}.items()
        if (text := _missed(name, threshold, found.get(name), name in question.expect)) is not None
    ]
    return Verdict(question.id, question.required, seconds, failed)


def _missed(name: str, threshold: float, score: Score | None, asked: bool) -> str | None:
    """Where nobody could give the value that is asked for, it is not reached either. What does not
    apply is no miss, unless it was asked for of this very question."""
    if score is None:  # a cut-off that `judge.k` does not have
        return f"{name} is not measured"
    if score.state is State.NOT_APPLICABLE:
        return f"{name} does not apply ({score.reason})" if asked else None
    if score.value is None:
        return f"{name} could not be scored ({score.reason})"
    spec = METRICS[base(name)]
    worse = score.value > threshold if spec.good == "lower" else score.value < threshold
    if not worse:
        return None
    named = (score.detail or {}).get("failed")
    which = f" (failed: {', '.join(named)})" if named else ""
    return f"{name} {score.value:.3g}, wanted {threshold:.3g}{which}"
