"""The verdict on a canary answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ragmeter.canaries.suite import CanaryQuestion, CanarySuite, SuiteError, list_mistakes
from ragmeter.core.metric_specs import base_name, parse_cutoff
from ragmeter.core.score import BUILTIN_SCORER, REFERENCE_SCORER, Score, ScoreState
from ragmeter.metrics.canary.scores import is_reference_metric
from ragmeter.metrics.canary.specs import JUDGED
from ragmeter.metrics.registry import metric_specs
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import Trace

# The values that every question must reach if its reference defines them. Other metrics are matters
# of degree, so they have a threshold only where `expect` gives one.
_REQUIRED_VALUES = {
    "canary_failed": 0.0,
    "fact_checks": 1.0,
    "calculation": 1.0,
    "abstention_accuracy": 1.0,
    "conflict_handled": 1.0,
}


ThresholdOutcome = Literal["met", "missed", "not measured", "does not apply"]


@dataclass(frozen=True, slots=True)
class CanaryVerdict:
    """The verdict on the answer to one question.

    Args:
        required: Whether the run fails with it.
        seconds: Time until the answer.
        failed: A text for each expectation that was not met.
        outcomes: What came of each threshold that the suite asks for, by metric.
    """

    question: str
    required: bool
    seconds: float
    failed: list[str] = field(default_factory=list)
    outcomes: Mapping[str, ThresholdOutcome] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """True if every expectation was met."""
        return not self.failed


def evaluate_canary(
    suite: CanarySuite, question: CanaryQuestion, trace: Trace, scores: Iterable[Score]
) -> CanaryVerdict:
    """Compare the scores of a trace with what the suite expects.

    A threshold that is asked for and has no value is not met. The suite's own thresholds are left
    out of a question whose reference defines nothing to measure them by, whatever the answer. Of
    two scorers of a metric the reference counts, unless it leaves the metric to a judge, before a
    judge or a model, and those before the built-in scorer.
    """
    # the last score of a metric stays: False sorts before True
    ranked = sorted(
        (score for score in scores if score.reason != JUDGED),
        key=lambda s: (s.scorer != BUILTIN_SCORER, s.scorer == REFERENCE_SCORER),
    )
    by_metric = {score.metric: score for score in ranked}
    seconds = float((trace.timings or {}).get("total") or 0.0)
    asked: dict[str, float] = {**suite.expect, **question.expect}
    if trace.status != "ok":
        why = f"{trace.status}: {trace.error}" if trace.error else trace.status
        outcomes: dict[str, ThresholdOutcome] = dict.fromkeys(asked, "not measured")
        return CanaryVerdict(
            question=question.id,
            required=question.required,
            seconds=seconds,
            failed=[why],
            outcomes=outcomes,
        )
    failed: list[str] = []
    outcomes = {}
    for name, threshold in {**_REQUIRED_VALUES, **asked}.items():
        score = by_metric.get(name)
        optional = (
            score is not None
            and score.state is ScoreState.NOT_APPLICABLE
            and name not in question.expect
            and not (name in asked and _applies(name, question))
        )
        outcome, why = _judge_threshold(name, threshold, score, optional)
        if why:
            failed.append(why)
        if name in asked:
            outcomes[name] = outcome
    return CanaryVerdict(
        question=question.id,
        required=question.required,
        seconds=seconds,
        failed=failed,
        outcomes=outcomes,
    )


def reject_idle_thresholds(suite: CanarySuite, file: str) -> None:
    """Refuse thresholds of a suite that apply to none of its questions.

    Raises:
        SuiteError: A threshold applies to no question, or not to the question that states it.
    """
    mistakes = [
        f"{file}: expect: {name} applies to no question"
        for name in suite.expect
        if not any(_applies(name, question) for question in suite.questions)
    ]
    mistakes += [
        f"{file}: question {question.id}: expect: {name} does not apply to its reference"
        for question in suite.questions
        for name in question.expect
        if not _applies(name, question)
    ]
    if mistakes:
        raise SuiteError(list_mistakes(mistakes))


def describe_thresholds(suite: CanarySuite, verdicts: Sequence[CanaryVerdict]) -> list[str]:
    """Describe how many questions each threshold applied to, was measured for and was met by."""
    counts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        for name, outcome in verdict.outcomes.items():
            counts.setdefault(name, Counter())[outcome] += 1
    lines = []
    for name, counted in sorted(counts.items()):
        sign = "at most" if metric_specs()[base_name(name)].good == "lower" else "at least"
        wanted = f" {sign} {suite.expect[name]:g}" if name in suite.expect else ""
        applied = counted.total() - counted["does not apply"]
        rest = [
            f"{counted[outcome]} {outcome}"
            for outcome in ("missed", "not measured")
            if counted[outcome]
        ]
        rest += [f"does not apply to {counted['does not apply']}"] * bool(counted["does not apply"])
        lines.append("; ".join([f"{name}{wanted}: met by {counted['met']} of {applied}", *rest]))
    return lines


def _applies(name: str, question: CanaryQuestion) -> bool:
    """Return whether an answer exists that has a value of the metric, by the reference."""
    reference = question.reference
    if not is_reference_metric(name):
        # what is measured of an answer's content needs an answer
        return reference.answerable is not False
    # an ideal answer with everything reported: what does not apply here never does
    cutoff = int(parse_cutoff(name) or 1)
    ideal = Trace.model_validate(
        {
            "trace_id": "-",
            "service": "-",
            "timestamp": 0,
            "query": question.query,
            "passages": [{"id": str(number), "text": "."} for number in range(cutoff)],
            "answer": reference.answer or ".",
            "abstained": reference.answerable is False,
            "timings": {"total": 1.0},
            "reference": reference,
        }
    )
    scores = Scorer(builtin=False, ks=(cutoff,)).score_reference(ideal)
    state = next((score.state for score in scores if score.metric == name), None)
    return state is not ScoreState.NOT_APPLICABLE


def _judge_threshold(
    name: str, threshold: float, score: Score | None, optional: bool
) -> tuple[ThresholdOutcome, str]:
    """Return what came of a threshold, and why it is not met; the text is empty if it is.

    An `optional` threshold is one that does not apply and need not.
    """
    if score is None:  # a cut-off that `judge.k` does not have
        return "not measured", f"{name} is not measured"
    if optional:
        return "does not apply", ""
    if score.state is ScoreState.NOT_APPLICABLE:
        return "not measured", f"{name} does not apply ({score.reason})"
    if score.value is None:
        return "not measured", f"{name} could not be scored ({score.reason})"
    spec = metric_specs()[base_name(name)]
    worse = score.value > threshold if spec.good == "lower" else score.value < threshold
    if not worse:
        return "met", ""
    named = (score.detail or {}).get("failed")
    which = f" (failed: {', '.join(named)})" if named else ""
    return "missed", f"{name} {score.value:.3g}, wanted {threshold:.3g}{which}"
