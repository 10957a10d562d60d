"""How good the retrieved context is, in the words of RAGAS and RAG Guardian: pure formulas.

Relevancy and precision follow from the same grades of passages as every ranking metric; recall
needs a reference, and a judge that looks for its statements in the passages.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.metrics.ranking import UMBRELA, Grades, average_precision, mean_grade
from agent.metrics.results import JUDGE, Gap
from agent.metrics.spec import MetricSpec

__all__ = ["NAMES", "RECALL", "SPECS", "context_recall", "context_scores"]

BEST = 3  # the highest grade of a passage

SPECS = (
    MetricSpec(
        name="context_relevancy",
        kind="mean",
        tier="judge",
        scorers=(UMBRELA,),
        meaning="how relevant the retrieved passages are on average",
        formula="mean grade / 3",
        needs="grades 0 to 3 of the passages",
        source="RAG Guardian",
    ),
    MetricSpec(
        name="context_precision",
        kind="mean",
        tier="judge",
        scorers=(UMBRELA,),
        meaning="how far up the relevant ones stand among all retrieved passages",
        formula="mean over relevant passages i (grade >= 2) of the share of relevant ones among the"
        " first i; 0 without any",
        needs="grades 0 to 3 of the passages",
        source="RAGAS",
    ),
    MetricSpec(
        name="context_recall",
        kind="mean",
        tier="judge",
        scorers=(JUDGE,),
        meaning="share of the statements of the right answer that the passages hold",
        formula="statements that the passages support / statements: the reference's facts, else"
        " the sentences of its answer",
        needs="passages and the reference of a canary",
        source="RAGAS",
    ),
)
NAMES = ("context_relevancy", "context_precision")
RECALL = ("context_recall",)


def context_scores(grades: Grades) -> dict[str, float | Gap]:
    """Both metrics of `NAMES`. Precision needs every grade, as its average runs over all ranks."""
    mean = mean_grade(grades)
    return {
        "context_relevancy": mean if isinstance(mean, Gap) else mean / BEST,
        "context_precision": average_precision(grades, len(grades)),
    }


def context_recall(attributed: Sequence[bool]) -> float | Gap:
    """Statements found / statements, one entry for each."""
    if not attributed:
        return Gap("no_reference_answer", applies=False)
    return sum(attributed) / len(attributed)
