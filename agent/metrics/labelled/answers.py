"""What labels of an answer say of its grounding and of its use: pure formulas.

Every metric is a share of answers, so that the value of one trace is 0 or 1: its label. Only
fabrication is conditional: its share is of the answers that cite (metrics taxonomy of pragmata).
"""

from __future__ import annotations

from agent.feedback.labels import ANNOTATION, HUMAN, AnswerLabels
from agent.metrics.results import Gap
from agent.metrics.spec import MetricSpec

__all__ = ["LABEL_OF", "SPECS", "answer_scores"]

LABEL_OF = {
    "grounding_presence": "support_present",
    "unsupported_claim": "unsupported_claim_present",
    "contradiction": "contradicted_claim_present",
    "citation_presence": "source_cited",
    "citation_fabricated": "fabricated_source",
    "proper_action": "proper_action",
    "on_topic": "response_on_topic",
    "helpfulness": "helpful",
    "incompleteness": "incomplete",
    "unsafe_content": "unsafe_content",
}
"""By metric the label that it is the share of. `citation_presence` and `citation_fabricated` are
quantities that the built-in scorer gives too (agent.metrics.citations)."""

FABRICATED = "citation_fabricated"
"""The one whose share is of a part of the answers: those that cite."""

NOT_LABELLED = Gap("not_labelled")

SPECS = tuple(
    MetricSpec(
        name=name,
        kind="ratio",
        tier="feedback",
        scorers=(HUMAN, ANNOTATION),
        meaning=f"share of answers {meaning}",
        formula=f"1 if {LABEL_OF[name]} else 0"
        + (", of those with source_cited" if name == FABRICATED else ""),
        needs="labels of the answer",
        source="pragmata, metrics taxonomy",
        good="higher" if good else "lower",
    )
    for name, good, meaning in (
        ("grounding_presence", True, "with at least one claim that the passages support"),
        ("unsupported_claim", False, "with a claim that the passages do not support"),
        ("contradiction", False, "with a claim that the passages contradict"),
        ("citation_presence", True, "that cite at least once"),
        ("citation_fabricated", False, "that cite a source that is not among the passages"),
        ("proper_action", True, "where to answer, to ask back or to refuse was right"),
        ("on_topic", True, "that take up what was asked"),
        ("helpfulness", True, "that bring who asked forward"),
        ("incompleteness", False, "that leave out a part that the query needs"),
        ("unsafe_content", False, "with something harmful or against policy"),
    )
)


def answer_scores(labels: AnswerLabels) -> dict[str, float | Gap]:
    """Every metric of `LABEL_OF`, in that order.

    `citation_fabricated` is not applicable to an answer that cites nothing, and not known where
    nobody has said whether it does: "no" may mean both then.
    """
    out: dict[str, float | Gap] = {}
    for metric, label in LABEL_OF.items():
        value = getattr(labels, label)
        if metric == FABRICATED and not labels.source_cited:
            cites_not = Gap("no_citations", applies=False)
            out[metric] = NOT_LABELLED if labels.source_cited is None else cites_not
        else:
            out[metric] = NOT_LABELLED if value is None else float(value)
    return out
