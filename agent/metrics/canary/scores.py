"""Score a canary against its reference, and name the scores that judges give to canaries.

What a judge says of canaries, under names of its own.

The same prompts, and still no score of the traffic: a suite asks the same few questions again and
again, and whoever changes it moves a mean. So the scorer's name says whose population it is:
`canary/judge` beside `judge`. No feedback can have such a name, for theirs hold no slash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ragmeter.core.feedback import ANNOTATION
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import JUDGE_SCORER, REFERENCE_SCORER, NoScore, Score, make_score
from ragmeter.metrics import judge_agreement
from ragmeter.metrics.abstention import answered_value
from ragmeter.metrics.canary.answers import (
    SearchableAnswer,
    abstention_accuracy,
    acknowledges_conflict,
    answer_completeness,
    answer_correctness,
    exact_match,
    fact_coverage,
    keyword_coverage,
    list_coverage,
    number_match,
    unanswerable_hallucination,
)
from ragmeter.metrics.canary.checks import (
    check_calculation,
    check_calculation_steps,
    run_fact_checks,
)
from ragmeter.metrics.canary.retrieval import (
    attribution_hit,
    conflict_handled,
    retrieval_names,
    retrieval_scores,
    scope_miss,
)
from ragmeter.metrics.citations import resolve_citations, source_indicator_quality
from ragmeter.metrics.claims_and_nuggets import AUTONUGGETIZER
from ragmeter.metrics.custom import CANARY_CUSTOM_SCORER, CUSTOM_METRICS, score_custom
from ragmeter.metrics.missing_fields import hide_missing_fields, restore_missing_reasons
from ragmeter.metrics.ranking import UMBRELA, rank_order
from ragmeter.trace import Passage, Reference, Trace

_SERVICE_METRICS = ("canary_failed", "canary_seconds")
_ANSWER_METRICS = (
    *("exact_match", "keyword_coverage", "number_match", "answer_completeness"),
    *("source_indicators", "list_coverage", "fact_coverage", "fact_checks"),
    *("calculation", "calculation_steps", "answer_correctness"),
)
_CITATION_METRICS = ("attribution_hit", "abstention_accuracy", "unanswerable_hallucination")

Values = dict[str, float | NoScore]


def reference_metrics(ks: Sequence[int]) -> list[str]:
    """The names of all metrics of a canary for these cut-offs, in the order of their scores."""
    of_retrieval = (*retrieval_names(ks), "scope_miss")
    return [
        *_SERVICE_METRICS,
        *_ANSWER_METRICS,
        *of_retrieval,
        *_CITATION_METRICS,
        "conflict_handled",
    ]


def reference_pairs(ks: Sequence[int]) -> tuple[tuple[str, str], ...]:
    """The (metric, scorer) pairs that every canary gets exactly one result for, in that order."""
    ours = [(name, REFERENCE_SCORER) for name in reference_metrics(sorted(set(ks)))]
    own = [
        (one.spec.name, CANARY_CUSTOM_SCORER)
        for one in CUSTOM_METRICS
        if one.scorer == CANARY_CUSTOM_SCORER
    ]
    return (*ours, *own)


def score_canary(trace: Trace, ks: Sequence[int], monotonic: Callable[[], float]) -> list[Score]:
    """One result for each of `pairs(ks)`; none where the trace is no canary.

    `monotonic` bounds the time of patterns.
    """
    if not trace.canary:
        return []
    details: dict[str, dict[str, Any]] = {}
    reference, values = trace.reference, dict[str, float | NoScore]()
    if reference is None:
        # marked as one by whoever passes it on: the question's sender brings the right answer
        values = dict.fromkeys(reference_metrics(ks), NoScore("no_reference", applies=False))
    else:
        values = dict.fromkeys(reference_metrics(ks), NoScore(trace.status, applies=False))
        values["canary_failed"] = float(trace.status != "ok")
        if trace.status == "ok":
            values |= _reference_values(trace, reference, ks, monotonic, details)
    scores = [
        make_score(name, trace, values[name], REFERENCE_SCORER, detail=details.get(name))
        for name in reference_metrics(ks)
    ]
    return restore_missing_reasons(trace, [*scores, *_custom_scores(trace)])


def _custom_scores(trace: Trace) -> list[Score]:
    """What users' own metrics say of a canary."""
    if trace.reference is not None:
        return score_custom(hide_missing_fields(trace), CANARY_CUSTOM_SCORER)
    gap = NoScore("no_reference", applies=False)
    mine = [one for one in CUSTOM_METRICS if one.scorer == CANARY_CUSTOM_SCORER]
    return [make_score(one.spec.name, trace, gap, CANARY_CUSTOM_SCORER) for one in mine]


def _reference_values(
    trace: Trace,
    reference: Reference,
    ks: Sequence[int],
    monotonic: Callable[[], float],
    details: dict[str, dict[str, Any]],
) -> Values:
    total = (trace.timings or {}).get("total")
    seen = hide_missing_fields(trace)
    passages = seen.passages
    ranked = None if passages is None else [passages[index] for index in rank_order(passages)]
    return {
        "canary_seconds": NoScore("not_reported") if total is None else total,
        **_answer_values(seen, reference, monotonic, details),
        **retrieval_scores(ranked, reference, ks),
        "scope_miss": scope_miss(reference.supports, reference.scope),
        **_citation_values(trace, seen, reference),
    }


def _answer_values(
    trace: Trace,
    reference: Reference,
    monotonic: Callable[[], float],
    details: dict[str, dict[str, Any]],
) -> Values:
    """What the answer itself says. A blank one says nothing, which is known and scored."""
    if reference.answerable is False:
        return dict.fromkeys(_ANSWER_METRICS, NoScore("unanswerable", applies=False))
    if trace.answer is None:
        return dict.fromkeys(_ANSWER_METRICS, NoScore("no_text"))
    bare, right = _without_markers(trace), reference.answer or ""
    said = SearchableAnswer(bare)
    coverage = keyword_coverage(said, reference.answer, reference.keywords)
    checked = run_fact_checks(said, reference.checks, monotonic)
    if checked.failed or checked.unknown:
        details["fact_checks"] = {
            name: found
            for name, found in (("failed", checked.failed), ("unknown", checked.unknown))
            if found
        }
    facts = fact_coverage(said, reference.facts)
    out: Values = {
        "exact_match": _first_value(exact_match(trace.answer, right), exact_match(bare, right)),
        "keyword_coverage": coverage,
        "number_match": number_match(said, right),
        "answer_completeness": answer_completeness(said, right, coverage),
        "source_indicators": source_indicator_quality(trace.answer),
        "list_coverage": list_coverage(said, reference.answer, reference.items),
        "fact_coverage": facts,
        "fact_checks": checked.value,
        "calculation": NoScore("no_calculation", applies=False),
        "calculation_steps": NoScore("no_calculation", applies=False),
    }
    if reference.calculation is not None:
        out["calculation"] = check_calculation(said, reference.calculation)
        out["calculation_steps"] = check_calculation_steps(said, reference.calculation)
    factual = checked.value if reference.checks else facts
    semantic: float | NoScore | None = reference.similarity
    if not right.strip():
        semantic = NoScore("no_reference_answer", applies=False)
    elif semantic is None:
        semantic = NoScore("no_similarity", applies=False)
    out["answer_correctness"] = answer_correctness(semantic, factual, out["answer_completeness"])
    return out


def _without_markers(trace: Trace) -> str:
    """The answer without its inline citations: the 1 of "[1]" is no number that it states."""
    answer = trace.answer or ""
    parts, at = [], 0
    for mark in resolve_citations(trace.model_copy(update={"citations": None})).marks:
        after = answer[mark.end : mark.end + 1]
        # "14 days [1]." is "14 days."
        apart = "" if not after or after.isspace() or after in ".,;:!?…。" else " "
        parts.append(answer[at : mark.start].rstrip() + apart)
        at = mark.end
    return "".join([*parts, answer[at:]])


def _first_value(first: float | NoScore, second: float | NoScore) -> float | NoScore:
    return second if first == 0.0 else first


def _citation_values(trace: Trace, seen: Trace, reference: Reference) -> Values:
    """What the answer cites, and whether it is one."""
    # as in ragmeter.metrics.registry: ids tell a citation from other brackets, also where texts are not whole
    found = resolve_citations(seen.model_copy(update={"passages": trace.passages}))
    attributed: float | NoScore
    handled: float | NoScore
    if seen.answer is None and not found.explicit:
        attributed = handled = NoScore("no_text")
    elif seen.passages is None and found.marks:
        attributed = handled = NoScore("no_passages_captured")
    else:
        passages: Sequence[Passage] = seen.passages or ()
        cited = [passages[i] for i in dict.fromkeys(i for m in found.marks for i in m.passages)]
        attributed = attribution_hit(cited, reference)
        says = acknowledges_conflict(seen.answer) if seen.answer is not None else NoScore("no_text")
        handled = conflict_handled(cited, reference, says)
    # what does not apply does so whatever is known of the answer
    if reference.answerable is False or not reference.supports:
        attributed = attribution_hit([], reference)
    if reference.conflict is None:
        handled = conflict_handled([], reference, False)
    accuracy = abstention_accuracy(seen, reference, answered_value(seen))
    return {
        "attribution_hit": attributed,
        "abstention_accuracy": accuracy,
        "unanswerable_hallucination": unanswerable_hallucination(accuracy),
        "conflict_handled": handled,
    }


_CANARY_PREFIX = "canary/"
_JUDGE_SCORERS = (UMBRELA, JUDGE_SCORER, AUTONUGGETIZER, ANNOTATION)
_JUDGE_AGREEMENT_METRICS = frozenset(spec.name for spec in judge_agreement.SPECS)
"""How judges agree is found out on traffic and on probes."""


def canary_scorer(scorer: str) -> str:
    """The name under which `scorer` speaks of canaries."""
    return _CANARY_PREFIX + scorer


def is_canary_scorer(scorer: str) -> bool:
    """Whether what this scorer says is about canaries."""
    return scorer == REFERENCE_SCORER or scorer.startswith(_CANARY_PREFIX)


def canary_judge_pairs(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Of all (metric, scorer) pairs those that a judge is asked for of a canary, renamed."""
    return tuple(
        (metric, canary_scorer(scorer))
        for metric, scorer in pairs
        if scorer in _JUDGE_SCORERS and metric not in _JUDGE_AGREEMENT_METRICS
    )


def expected_canary_pairs(
    ks: Sequence[int], pairs: Iterable[tuple[str, str]], judged: bool
) -> tuple[tuple[str, str], ...]:
    """The (metric, scorer) pairs that each canary gets exactly one result for, in their order,
    where traffic has `pairs`. `judged`: canaries may ask the judge."""
    return (*reference_pairs(ks), *(canary_judge_pairs(pairs) if judged else ()))


def relabel_canary_scores(scores: Iterable[Score]) -> list[Score]:
    """What a judge has found of a canary, renamed."""
    return [replace(score, scorer=canary_scorer(score.scorer)) for score in scores]


def add_canary_scorers(spec: MetricSpec) -> MetricSpec:
    """`spec` with the names under which judges measure it on canaries."""
    if spec.name in _JUDGE_AGREEMENT_METRICS:
        return spec
    more = tuple(canary_scorer(scorer) for scorer in spec.scorers if scorer in _JUDGE_SCORERS)
    return replace(spec, scorers=(*spec.scorers, *more)) if more else spec
