"""Metrics of the judges themselves: compare two sets of verdicts on the same traces.

A verdict is the label that a judge was asked for, before any formula: the grade of a passage, how
far an answer attempts its question, how far a passage supports a statement. Claims and nuggets are
those of one judge, which the other labels again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ragmeter.core.score import Score, ScoreState
from ragmeter.metrics.ranking import RELEVANT_GRADE
from ragmeter.reasons import Reason

PROBE_SERVICE = "_judge"  # the service under which probes are counted

# Verdicts by what was judged: `grade:INDEX` of a passage in the order of the trace (0 to 3),
# `attempt` (answered, partial, none), `support:SENTENCE:PASSAGE_ID` (full, partial, none),
# `groundedness_grade` and `correctness_grade` (0 to 5), `claim:N` (supported, unsupported),
# `nugget:N` (support, partial_support, not_support), `importance:N` (vital, okay).
ComparableVerdicts = dict[str, int | str]

AGREEMENT_METRICS = ("judge_disagreement", "judge_probe_agreement", "judge_probe_change")
_RUBRIC_METRICS = ("groundedness_grade", "correctness_grade")
# The kind of a verdict, for people, by the beginning of its key.
_KINDS = {
    "grade": "relevance",
    "attempt": "answered",
    "support": "citations",
    "claim": "claims",
    "nugget": "nuggets",
    "importance": "nugget importance",
    "groundedness_grade": "groundedness",
    "correctness_grade": "correctness",
}
_SUPPORT = {1.0: "full", 0.5: "partial", 0.0: "none"}


def extract_verdicts(scores: Iterable[Score]) -> ComparableVerdicts:
    """Read a judge's verdicts from the details of its scores, without those that failed."""
    verdicts: ComparableVerdicts = {}
    for score in scores:
        detail = score.detail or {}
        if score.metric == "relevance":
            for index, grade in enumerate(detail.get("grades", ())):
                if grade is not None:
                    verdicts[f"grade:{index}"] = int(grade)
        elif score.metric == "answered" and "attempt" in detail:
            verdicts["attempt"] = str(detail["attempt"])
        elif score.metric in _RUBRIC_METRICS and score.value is not None:
            verdicts[score.metric] = int(score.value)
        elif score.metric == "citation_precision":
            for pair in detail.get("pairs", ()):
                label = _SUPPORT.get(pair["support"])
                if label is not None:
                    sentence = "" if pair["sentence"] is None else pair["sentence"]
                    verdicts[f"support:{sentence}:{pair['passage_id']}"] = label
    return verdicts


def verdicts_differ(key: str, one: int | str, other: int | str) -> bool:
    """Return whether two verdicts on the same thing differ.

    Grades of passages differ if one alone reaches `RELEVANT_GRADE`, as in precision: equally good
    judges often differ between 0 and 1, which changes no such score. Grades from 0 to 5 differ if
    they are more than a point apart.
    """
    if isinstance(one, int) and isinstance(other, int):
        if key in _RUBRIC_METRICS:
            return abs(one - other) > 1
        return (one >= RELEVANT_GRADE) != (other >= RELEVANT_GRADE)
    return one != other


def compare_verdicts(
    one: Mapping[str, int | str], other: Mapping[str, int | str]
) -> dict[str, bool]:
    """Return by key whether the verdicts differ that both gave."""
    return {key: verdicts_differ(key, one[key], other[key]) for key in one if key in other}


def count_by_kind(differs: Mapping[str, bool]) -> dict[str, list[int]]:
    """Return by kind how many verdicts were compared and how many of them differ."""
    counts: dict[str, list[int]] = {}
    for key, differ in differs.items():
        count = counts.setdefault(_KINDS.get(key.partition(":")[0], "other"), [0, 0])
        count[0] += 1
        count[1] += differ
    return counts


def explain_missing_verdict(scores: Iterable[Score]) -> tuple[ScoreState, str]:
    """Return state and reason of a comparison for which the judge gave no verdict."""
    for score in scores:
        if score.state is ScoreState.UNSCORED:
            return ScoreState.UNSCORED, score.reason or Reason.INTERNAL_ERROR
    return ScoreState.NOT_APPLICABLE, Reason.NO_VERDICT
