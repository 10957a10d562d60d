"""Score a canary against its reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ragmeter.core.metric_specs import base_name
from ragmeter.core.score import REFERENCE_SCORER, NoScore, Score, make_score
from ragmeter.metrics.abstention import abstains
from ragmeter.metrics.builtin import PreparedTrace
from ragmeter.metrics.canary import answers, retrieval
from ragmeter.metrics.canary.abstention import abstention_accuracy, unanswerable_hallucination
from ragmeter.metrics.canary.checks import (
    check_calculation,
    check_calculation_shown,
    check_calculation_steps,
    run_fact_checks,
)
from ragmeter.metrics.canary.conflicts import acknowledges_conflict
from ragmeter.metrics.canary.searchable_answer import SearchableAnswer
from ragmeter.metrics.canary.specs import canary_judge_pairs
from ragmeter.metrics.citations import resolve_citations, source_indicator_quality
from ragmeter.metrics.custom import CANARY_CUSTOM_SCORER
from ragmeter.metrics.missing_fields import restore_missing_reasons
from ragmeter.metrics.ranking import rank_order
from ragmeter.metrics.registry import custom_metrics
from ragmeter.reasons import Reason
from ragmeter.trace import Passage, Reference, Trace

_SERVICE_METRICS = ("canary_failed", "canary_seconds")
_ANSWER_METRICS = (
    "exact_match",
    "keyword_coverage",
    "number_match",
    "answer_completeness",
    "source_indicators",
    "list_coverage",
    "fact_coverage",
    "fact_checks",
    "calculation",
    "calculation_shown",
    "calculation_steps",
    "answer_correctness",
)
_CITATION_METRICS = ("attribution_hit", "abstention_accuracy", "unanswerable_hallucination")

Values = dict[str, float | NoScore]


def reference_metrics(ks: Sequence[int]) -> list[str]:
    """Return the names of all metrics of a canary for these cut-offs, in the order of scores."""
    return [
        *_SERVICE_METRICS,
        *_ANSWER_METRICS,
        *retrieval.retrieval_names(ks),
        "scope_miss",
        *_CITATION_METRICS,
        "conflict_handled",
    ]


def is_reference_metric(name: str) -> bool:
    """Return whether a canary is scored by this metric against its reference."""
    return base_name(name) in {base_name(one) for one in reference_metrics((1,))}


def reference_pairs(ks: Sequence[int]) -> tuple[tuple[str, str], ...]:
    """Return the (metric, scorer) pairs that a reference gives one result each for, in order."""
    own = [(one.spec.name, one.scorer) for one in custom_metrics(CANARY_CUSTOM_SCORER)]
    return (*((name, REFERENCE_SCORER) for name in reference_metrics(sorted(set(ks)))), *own)


def expected_canary_pairs(
    ks: Sequence[int], pairs: Iterable[tuple[str, str]], judged: bool
) -> tuple[tuple[str, str], ...]:
    """Return the (metric, scorer) pairs that each canary gets exactly one result for, in order.

    `pairs` are those of the judge on traffic; `judged`: canaries may ask it.
    """
    return (*reference_pairs(ks), *(canary_judge_pairs(pairs) if judged else ()))


def score_canary(
    prepared: PreparedTrace, ks: Sequence[int], monotonic: Callable[[], float]
) -> list[Score]:
    """Score a canary against its reference.

    `ks` ascend; the clock `monotonic` bounds the time of patterns.

    Returns:
        One score for each of `reference_pairs(ks)`, in that order.
    """
    trace = prepared.trace
    if not trace.canary:
        return []
    details: dict[str, dict[str, Any]] = {}
    reference = trace.reference
    values = dict[str, float | NoScore]()
    own = custom_metrics(CANARY_CUSTOM_SCORER)
    if reference is None:
        # The service's own record of a canary: only the suite that sends one knows the reference.
        reason = NoScore(Reason.NO_REFERENCE, applies=False)
        values = dict.fromkeys(reference_metrics(ks), reason)
        own_scores = [make_score(one.spec.name, trace, reason, one.scorer) for one in own]
    else:
        values = dict.fromkeys(reference_metrics(ks), NoScore(trace.status, applies=False))
        values["canary_failed"] = float(trace.status != "ok")
        if trace.status == "ok":
            values |= _reference_values(
                prepared=prepared, reference=reference, ks=ks, monotonic=monotonic, details=details
            )
        own_scores = [one.score(prepared.derive()[0]) for one in own]
    scores = [
        make_score(name, trace, values[name], REFERENCE_SCORER, detail=details.get(name))
        for name in reference_metrics(ks)
    ]
    return restore_missing_reasons(trace, [*scores, *own_scores])


def _reference_values(
    prepared: PreparedTrace,
    reference: Reference,
    ks: Sequence[int],
    monotonic: Callable[[], float],
    details: dict[str, dict[str, Any]],
) -> Values:
    total = (prepared.trace.timings or {}).get("total")
    visible = prepared.derive()[0]
    passages = visible.passages
    ranked = None if passages is None else [passages[index] for index in rank_order(passages)]
    return {
        "canary_seconds": NoScore(Reason.NOT_REPORTED) if total is None else total,
        **_answer_values(
            trace=visible,
            reference=reference,
            answered=prepared.derive()[1],
            monotonic=monotonic,
            details=details,
        ),
        **retrieval.retrieval_scores(ranked, reference, ks),
        "scope_miss": retrieval.scope_miss(reference.supports, reference.scope),
        **_citation_values(prepared, reference),
    }


def _answer_values(
    trace: Trace,
    reference: Reference,
    answered: float | None,
    monotonic: Callable[[], float],
    details: dict[str, dict[str, Any]],
) -> Values:
    # A blank answer is scored: it states nothing.
    if reference.answerable is False:
        return dict.fromkeys(_ANSWER_METRICS, NoScore(Reason.UNANSWERABLE, applies=False))
    if trace.answer is None:
        return dict.fromkeys(_ANSWER_METRICS, NoScore(Reason.NO_TEXT))
    bare = _without_markers(trace)
    answer = SearchableAnswer(bare)
    checks = run_fact_checks(answer, reference.checks, monotonic)
    if checks.failed or checks.unknown:
        details["fact_checks"] = {
            outcome: names
            for outcome, names in (("failed", checks.failed), ("unknown", checks.unknown))
            if names
        }
    facts = answers.fact_coverage(answer, reference.facts)
    matches = [
        _match_values(trace.answer, answer, expected, reference)
        for expected in reference.right_answers or [""]
    ]
    values: Values = {
        **{name: _best([match[name] for match in matches]) for name in matches[0]},
        "source_indicators": source_indicator_quality(trace.answer),
        "fact_coverage": facts,
        "fact_checks": checks.value,
        "calculation": NoScore(Reason.NO_CALCULATION, applies=False),
        "calculation_shown": NoScore(Reason.NO_CALCULATION, applies=False),
        "calculation_steps": NoScore(Reason.NO_CALCULATION, applies=False),
    }
    details |= _list_detail(answer, reference)
    if reference.calculation is not None:
        values["calculation"] = check_calculation(answer, reference.calculation)
        values["calculation_shown"] = check_calculation_shown(answer)
        values["calculation_steps"] = check_calculation_steps(answer, reference.calculation)
    factual = checks.value if reference.checks else facts
    if not reference.right_answers:
        values["answer_correctness"] = NoScore(Reason.NO_REFERENCE_ANSWER, applies=False)
    elif reference.similarity is None and reference.similarity_failed:
        values["answer_correctness"] = NoScore(Reason.EMBEDDING_FAILED)
    else:
        values["answer_correctness"] = _best(
            [
                # "I don't know whether refunds take 14 days" has the keywords and no fact
                _correctness(
                    answer=answer,
                    expected=text,
                    reference=reference,
                    factual=factual,
                    declines=not answered and not abstains(text),
                )
                for text in reference.right_answers
            ]
        )
    return values


def _match_values(
    given: str, answer: SearchableAnswer, expected: str, reference: Reference
) -> Values:
    """Return how an answer matches one of the right answers; `given` has citation markers."""
    coverage = answers.keyword_coverage(answer, expected, reference.keywords)
    return {
        # 0.0 is false, a reason is not
        "exact_match": answers.exact_match(given, expected)
        or answers.exact_match(answer.text, expected),
        "keyword_coverage": coverage,
        "number_match": answers.number_match(answer, expected),
        "answer_completeness": answers.answer_completeness(answer, expected, coverage),
        "list_coverage": answers.list_coverage(answer, expected, reference.items),
    }


def _list_detail(answer: SearchableAnswer, reference: Reference) -> dict[str, dict[str, Any]]:
    """Return how many items of a list the answer holds, by the right answer that it is nearest."""
    held = [
        answers.held_items(answer, expected, reference.items)
        for expected in reference.right_answers or [""]
    ]
    best = max(held, key=lambda items: sum(items) / len(items) if items else -1.0)
    return {"list_coverage": {"held": sum(best), "items": len(best)}} if best else {}


def _correctness(
    answer: SearchableAnswer,
    expected: str,
    reference: Reference,
    factual: float | NoScore,
    declines: bool,
) -> float | NoScore:
    """Compute the correctness by one of the right answers.

    Without facts or checks the facts of a right answer are its keywords and numbers, and of one
    without any ("No.") what a judge says, or its words in a row where none was asked. An answer
    that declines, where the right one does not, states none of them.
    """
    coverage = answers.keyword_coverage(answer, expected, reference.keywords)
    if isinstance(coverage, NoScore) and not coverage.applies:
        if reference.judged_facts is not None:
            coverage = reference.judged_facts
        elif reference.judge_failed:
            coverage = NoScore(Reason.JUDGE_ERROR)
        else:
            coverage = float(bool(answer.holds(expected)))
    if isinstance(factual, NoScore) and not factual.applies:
        factual = coverage
    if declines:
        factual = coverage = 0.0
    completeness = answers.answer_completeness(answer, expected, coverage)
    if isinstance(completeness, NoScore) and not completeness.applies:
        completeness = coverage
    return answers.answer_correctness(reference.similarity, factual, completeness)


def _best(values: Sequence[float | NoScore]) -> float | NoScore:
    """Return the highest value, else the first reason why there is none."""
    known = [value for value in values if not isinstance(value, NoScore)]
    return max(known) if known else values[0]


def _without_markers(trace: Trace) -> str:
    """Return the answer without inline citations: the 1 of "[1]" is not a number it states."""
    answer = trace.answer or ""
    pieces = []
    start = 0
    for mark in resolve_citations(trace.model_copy(update={"citations": None})).marks:
        after = answer[mark.end : mark.end + 1]
        # "14 days [1]." is "14 days."
        separator = "" if not after or after.isspace() or after in ".,;:!?…。" else " "
        pieces.append(answer[start : mark.start].rstrip() + separator)
        start = mark.end
    return "".join([*pieces, answer[start:]])


def _citation_values(prepared: PreparedTrace, reference: Reference) -> Values:
    visible, answered, citations, _ = prepared.derive()
    attributed: float | NoScore
    handled: float | NoScore
    if visible.answer is None and not citations.explicit:
        attributed = handled = NoScore(Reason.NO_TEXT)
    elif visible.passages is None and citations.marks:
        attributed = handled = NoScore(Reason.NO_PASSAGES_CAPTURED)
    else:
        passages: Sequence[Passage] = visible.passages or ()
        cited = [passages[i] for i in dict.fromkeys(i for m in citations.marks for i in m.passages)]
        attributed = retrieval.attribution_hit(cited, reference)
        acknowledged = (
            acknowledges_conflict(visible.answer)
            if visible.answer is not None
            else NoScore(Reason.NO_TEXT)
        )
        handled = retrieval.conflict_handled(cited, reference, acknowledged)
    # What does not apply to the reference does not apply to any answer.
    if reference.answerable is False or not reference.supports:
        attributed = retrieval.attribution_hit([], reference)
    if reference.conflict is None:
        handled = retrieval.conflict_handled([], reference, False)
    accuracy = abstention_accuracy(visible, reference, answered)
    return {
        "attribution_hit": attributed,
        "abstention_accuracy": accuracy,
        "unanswerable_hallucination": unanswerable_hallucination(accuracy),
        "conflict_handled": handled,
    }
