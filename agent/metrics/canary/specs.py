"""Specs of the metrics that compare a canary with its reference, and names of canary scorers.

A suite asks the same few questions again and again, so its scores must not move the means of
traffic. A judge therefore scores canaries under a name of its own, `canary/judge` beside `judge`.
No feedback can have such a name, because names of feedback hold no slash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ragmeter.core.feedback import ANNOTATION
from ragmeter.core.metric_specs import MetricKind, MetricSpec
from ragmeter.core.score import JUDGE_SCORER, REFERENCE_SCORER, Score
from ragmeter.metrics import judge_agreement
from ragmeter.metrics.claims_and_nuggets import AUTONUGGETIZER
from ragmeter.metrics.ranking import UMBRELA

_ANSWER = "the answer and the right answer"
_SUPPORTS = "passage metadata `rel_path` and `heading_path`, and the supports of the reference"


_ZESTY = "zesty-assignment, evaluate.py"
_HELLOWORLD = "helloworld-ai, EVAL.md"
_SOURCES = {
    **dict.fromkeys(("canary_failed", "canary_seconds"), "ragmeter"),
    **dict.fromkeys(("exact_match", "keyword_coverage", "number_match"), _ZESTY),
    **dict.fromkeys(("answer_completeness", "source_indicators", "list_coverage"), _ZESTY),
    **dict.fromkeys(("fact_checks", "calculation", "calculation_steps"), _ZESTY),
    "answer_correctness": "RAG Guardian, metrics guide",
    **dict.fromkeys(("fact_coverage", "recall_any_at_k", "recall_all_at_k"), _HELLOWORLD),
    **dict.fromkeys(("precision_at_k", "reciprocal_rank_at_k", "scope_miss"), _HELLOWORLD),
    **dict.fromkeys(("attribution_hit", "abstention_accuracy"), _HELLOWORLD),
    **dict.fromkeys(("unanswerable_hallucination", "conflict_handled"), _HELLOWORLD),
}


def _spec(
    name: str,
    kind: MetricKind,
    meaning: str,
    formula: str,
    needs: str = _ANSWER,
    good: bool = True,
    unit: str = "",
) -> MetricSpec:
    return MetricSpec(
        name=name,
        kind=kind,
        tier="cheap",
        scorers=(REFERENCE_SCORER,),
        meaning=meaning,
        formula=formula,
        needs=needs,
        good="higher" if good else "lower",
        high=None if unit else 1.0,
        unit=unit,
        labels=("k",) if name.endswith("_at_k") else (),
        source=_SOURCES[name],
    )


# `precision_at_k`, `reciprocal_rank_at_k` and `source_indicators` are measured otherwise, too: one
# quantity has one name, and the registry joins the scorers.
SPECS = (
    _spec(
        "canary_failed",
        "ratio",
        "share of canaries that got no answer: an error, or none in time",
        "1 if status is not ok, else 0",
        "trace status",
        good=False,
    ),
    _spec(
        "canary_seconds",
        "mean",
        "time that an answer to a canary takes",
        "timings.total, of those that were answered",
        "trace timings",
        good=False,
        unit="seconds",
    ),
    _spec(
        "exact_match",
        "ratio",
        "share of canaries answered word by word as they should be",
        "1 if both are the same but for case and white space, else 0",
    ),
    _spec(
        "keyword_coverage",
        "mean",
        "share of the keywords of the right answer that the answer holds",
        "keywords held / keywords: those given, else words of 4 letters and more that are no stop"
        " words, capitalised phrases and numbers of the right answer",
    ),
    _spec(
        "number_match",
        "mean",
        "share of the numbers of the right answer that the answer holds",
        "numbers in both / numbers of the right answer",
    ),
    _spec(
        "answer_completeness",
        "mean",
        "how complete the answer is beside the right one",
        "(min(words / words of the right answer, 1) + keyword_coverage) / 2",
    ),
    _spec(
        "source_indicators",
        "mean",
        "how far the answer names its sources in words or by address",
        "min(found / 3, 1); found = phrases that name a source, plus web addresses",
        "answer text",
    ),
    _spec(
        "list_coverage",
        "mean",
        "share of the items that the answer lists",
        "items held word by word / items: those given, else the list in the right answer",
    ),
    _spec(
        "fact_coverage",
        "mean",
        "share of the key facts that the answer holds",
        "facts of which all content words and numbers are in the answer / facts",
        "the answer and the facts of the reference",
    ),
    _spec(
        "fact_checks",
        "mean",
        "share of the fact checks that the answer passes",
        "checks of which every pattern is found and no forbidden phrase is / checks",
        "the answer and the checks of the reference",
    ),
    _spec(
        "calculation",
        "ratio",
        "share of calculations with the right result",
        "1 if the result is in the answer, which does not say that it can't be calculated, else 0",
        "the answer and the calculation of the reference",
    ),
    _spec(
        "calculation_steps",
        "mean",
        "share of the numbers on the way to the result that the answer shows",
        "steps held / steps",
        "the answer and the calculation of the reference",
    ),
    _spec(
        "answer_correctness",
        "mean",
        "how far the answer is the right one in meaning, facts and completeness",
        "0.5 semantic similarity + 0.3 facts + 0.2 answer_completeness; facts are fact_checks,"
        " without checks fact_coverage",
        "the answer and the reference",
    ),
    _spec(
        "recall_any_at_k",
        "ratio",
        "share of canaries of which a right passage is among the first k",
        "1 if one of the first k passages lies at a support, else 0",
        _SUPPORTS,
    ),
    _spec(
        "recall_all_at_k",
        "ratio",
        "share of canaries of which all that is needed is among the first k",
        "1 if the first k passages hold every support of one support group, else 0",
        _SUPPORTS,
    ),
    _spec(
        "precision_at_k",
        "mean",
        "share of relevant passages among the first k",
        "(passages at a support among the first k) / k; not applicable with fewer than k passages",
        _SUPPORTS,
    ),
    _spec(
        "reciprocal_rank_at_k",
        "mean",
        "how early the first relevant passage among the first k stands",
        "1 / rank of the first passage at a support among the first k; 0 without any",
        _SUPPORTS,
    ),
    _spec(
        "scope_miss",
        "ratio",
        "share of canaries whose right passages lie outside of what was searched",
        "1 if no support lies in a folder of the scope, else 0; not applicable without a scope",
        _SUPPORTS,
        good=False,
    ),
    _spec(
        "attribution_hit",
        "ratio",
        "share of answers that cite a right passage",
        "1 if a cited passage lies at a support, else 0; of questions that can be answered",
        _SUPPORTS,
    ),
    _spec(
        "abstention_accuracy",
        "ratio",
        "share of questions without an answer that the service does not answer",
        "1 if it abstained, else 0; of questions that can't be answered",
        "trace.abstained where given, else phrase rules on the answer's opening",
    ),
    _spec(
        "unanswerable_hallucination",
        "ratio",
        "share of questions without an answer that the service answers all the same",
        "1 - abstention_accuracy",
        "trace.abstained where given, else phrase rules on the answer's opening",
        good=False,
    ),
    _spec(
        "conflict_handled",
        "ratio",
        "share of answers that do what they should where sources disagree",
        "1 if the latest support is cited (cite_newer), all are (cite_both), or all are and the"
        " answer says that they disagree (acknowledge_both), else 0",
        _SUPPORTS,
    ),
)


_CANARY_PREFIX = "canary/"
_JUDGE_SCORERS = (UMBRELA, JUDGE_SCORER, AUTONUGGETIZER, ANNOTATION)
# The agreement of judges is measured on traffic and on probes.
_JUDGE_AGREEMENT_METRICS = frozenset(spec.name for spec in judge_agreement.SPECS)


def canary_scorer(scorer: str) -> str:
    """Return the name under which `scorer` scores canaries."""
    return _CANARY_PREFIX + scorer


def is_canary_scorer(scorer: str) -> bool:
    """Return whether the scores of this scorer are about canaries."""
    return scorer == REFERENCE_SCORER or scorer.startswith(_CANARY_PREFIX)


def canary_judge_pairs(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the (metric, scorer) pairs that a judge scores on canaries, with their new scorers."""
    return tuple(
        (metric, canary_scorer(scorer))
        for metric, scorer in pairs
        if scorer in _JUDGE_SCORERS and metric not in _JUDGE_AGREEMENT_METRICS
    )


def relabel_canary_scores(scores: Iterable[Score]) -> list[Score]:
    """Return copies of a judge's scores of a canary under the scorers' canary names."""
    return [replace(score, scorer=canary_scorer(score.scorer)) for score in scores]


def add_canary_scorers(spec: MetricSpec) -> MetricSpec:
    """Return `spec` with the canary names of the judges among its scorers."""
    if spec.name in _JUDGE_AGREEMENT_METRICS:
        return spec
    more = tuple(canary_scorer(scorer) for scorer in spec.scorers if scorer in _JUDGE_SCORERS)
    return replace(spec, scorers=(*spec.scorers, *more)) if more else spec
