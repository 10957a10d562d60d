"""The scores of one canary against its reference; `specs` beside this says what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agent.metrics.answered import verdict
from agent.metrics.canary.abstention import (
    abstention_accuracy,
    acknowledges_conflict,
    unanswerable_hallucination,
)
from agent.metrics.canary.answers import (
    answer_completeness,
    answer_correctness,
    exact_match,
    fact_coverage,
    keyword_coverage,
    list_coverage,
    number_match,
)
from agent.metrics.canary.checks import calculation, calculation_steps, fact_checks
from agent.metrics.canary.retrieval import (
    attribution_hit,
    conflict_handled,
    retrieval_names,
    retrieval_scores,
    scope_miss,
)
from agent.metrics.canary.said import Said
from agent.metrics.citations import indicator_quality
from agent.metrics.markers import resolve
from agent.metrics.missing import explained, known
from agent.metrics.own import INSTALLED, OF_CANARIES, score_own
from agent.metrics.ranking import rank_order
from agent.metrics.results import REFERENCE, Gap, result
from agent.trace import Passage, Reference, Score, Trace

__all__ = ["names", "pairs", "score"]

_OF_SERVICE = ("canary_failed", "canary_seconds")
_OF_ANSWER = (
    *("exact_match", "keyword_coverage", "number_match", "answer_completeness"),
    *("source_indicators", "list_coverage", "fact_coverage", "fact_checks"),
    *("calculation", "calculation_steps", "answer_correctness"),
)
_OF_CITATIONS = ("attribution_hit", "abstention_accuracy", "unanswerable_hallucination")

Values = dict[str, float | Gap]


def names(ks: Sequence[int]) -> list[str]:
    """The names of all metrics of a canary for these cut-offs, in the order of their scores."""
    of_retrieval = (*retrieval_names(ks), "scope_miss")
    return [*_OF_SERVICE, *_OF_ANSWER, *of_retrieval, *_OF_CITATIONS, "conflict_handled"]


def pairs(ks: Sequence[int]) -> tuple[tuple[str, str], ...]:
    """The (metric, scorer) pairs that every canary gets exactly one result for, in that order."""
    ours = [(name, REFERENCE) for name in names(sorted(set(ks)))]
    own = [(one.spec.name, OF_CANARIES) for one in INSTALLED if one.scorer == OF_CANARIES]
    return (*ours, *own)


def score(trace: Trace, ks: Sequence[int], monotonic: Callable[[], float]) -> list[Score]:
    """One result for each of `pairs(ks)`; none where the trace is no canary.

    `monotonic` bounds the time of patterns.
    """
    if not trace.canary:
        return []
    details: dict[str, dict[str, Any]] = {}
    reference, values = trace.reference, dict[str, float | Gap]()
    if reference is None:
        # marked as one by whoever passes it on: the question's sender brings the right answer
        values = dict.fromkeys(names(ks), Gap("no_reference", applies=False))
    else:
        values = dict.fromkeys(names(ks), Gap(trace.status, applies=False))
        values["canary_failed"] = float(trace.status != "ok")
        if trace.status == "ok":
            values |= _of_reference(trace, reference, ks, monotonic, details)
    scores = [
        result(name, trace, values[name], REFERENCE, detail=details.get(name)) for name in names(ks)
    ]
    return explained(trace, [*scores, *_own(trace)])


def _own(trace: Trace) -> list[Score]:
    """What users' own metrics say of a canary."""
    if trace.reference is not None:
        return score_own(known(trace), OF_CANARIES)
    gap = Gap("no_reference", applies=False)
    mine = [one for one in INSTALLED if one.scorer == OF_CANARIES]
    return [result(one.spec.name, trace, gap, OF_CANARIES) for one in mine]


def _of_reference(
    trace: Trace,
    reference: Reference,
    ks: Sequence[int],
    monotonic: Callable[[], float],
    details: dict[str, dict[str, Any]],
) -> Values:
    total = (trace.timings or {}).get("total")
    seen = known(trace)
    passages = seen.passages
    ranked = None if passages is None else [passages[index] for index in rank_order(passages)]
    return {
        "canary_seconds": Gap("not_reported") if total is None else total,
        **_answer(seen, reference, monotonic, details),
        **retrieval_scores(ranked, reference, ks),
        "scope_miss": scope_miss(reference.supports, reference.scope),
        **_cited(trace, seen, reference),
    }


def _answer(
    trace: Trace,
    reference: Reference,
    monotonic: Callable[[], float],
    details: dict[str, dict[str, Any]],
) -> Values:
    """What the answer itself says. A blank one says nothing, which is known and scored."""
    if reference.answerable is False:
        return dict.fromkeys(_OF_ANSWER, Gap("unanswerable", applies=False))
    if trace.answer is None:
        return dict.fromkeys(_OF_ANSWER, Gap("no_text"))
    bare, right = _without_markers(trace), reference.answer or ""
    said = Said(bare)
    coverage = keyword_coverage(said, reference.answer, reference.keywords)
    checked = fact_checks(said, reference.checks, monotonic)
    if checked.failed or checked.unknown:
        details["fact_checks"] = {
            name: found
            for name, found in (("failed", checked.failed), ("unknown", checked.unknown))
            if found
        }
    facts = fact_coverage(said, reference.facts)
    out: Values = {
        "exact_match": _either(exact_match(trace.answer, right), exact_match(bare, right)),
        "keyword_coverage": coverage,
        "number_match": number_match(said, right),
        "answer_completeness": answer_completeness(said, right, coverage),
        "source_indicators": indicator_quality(trace.answer),
        "list_coverage": list_coverage(said, reference.answer, reference.items),
        "fact_coverage": facts,
        "fact_checks": checked.value,
        "calculation": Gap("no_calculation", applies=False),
        "calculation_steps": Gap("no_calculation", applies=False),
    }
    if reference.calculation is not None:
        out["calculation"] = calculation(said, reference.calculation)
        out["calculation_steps"] = calculation_steps(said, reference.calculation)
    factual = checked.value if reference.checks else facts
    semantic: float | Gap | None = reference.similarity
    if not right.strip():
        semantic = Gap("no_reference_answer", applies=False)
    elif semantic is None:
        semantic = Gap("no_similarity", applies=False)
    out["answer_correctness"] = answer_correctness(semantic, factual, out["answer_completeness"])
    return out


def _without_markers(trace: Trace) -> str:
    """The answer without its inline citations: the 1 of "[1]" is no number that it states."""
    answer = trace.answer or ""
    parts, at = [], 0
    for mark in resolve(trace.model_copy(update={"citations": None})).marks:
        after = answer[mark.end : mark.end + 1]
        # "14 days [1]." is "14 days."
        apart = "" if not after or after.isspace() or after in ".,;:!?…。" else " "
        parts.append(answer[at : mark.start].rstrip() + apart)
        at = mark.end
    return "".join([*parts, answer[at:]])


def _either(first: float | Gap, second: float | Gap) -> float | Gap:
    return second if first == 0.0 else first


def _cited(trace: Trace, seen: Trace, reference: Reference) -> Values:
    """What the answer cites, and whether it is one."""
    # as in agent.metrics: ids tell a citation from other brackets, also where texts are not whole
    found = resolve(seen.model_copy(update={"passages": trace.passages}))
    attributed: float | Gap
    handled: float | Gap
    if seen.answer is None and not found.explicit:
        attributed = handled = Gap("no_text")
    elif seen.passages is None and found.marks:
        attributed = handled = Gap("no_passages_captured")
    else:
        passages: Sequence[Passage] = seen.passages or ()
        cited = [passages[i] for i in dict.fromkeys(i for m in found.marks for i in m.passages)]
        attributed = attribution_hit(cited, reference)
        says = acknowledges_conflict(seen.answer) if seen.answer is not None else Gap("no_text")
        handled = conflict_handled(cited, reference, says)
    # what does not apply does so whatever is known of the answer
    if reference.answerable is False or not reference.supports:
        attributed = attribution_hit([], reference)
    if reference.conflict is None:
        handled = conflict_handled([], reference, False)
    accuracy = abstention_accuracy(seen, reference, verdict(seen))
    return {
        "attribution_hit": attributed,
        "abstention_accuracy": accuracy,
        "unanswerable_hallucination": unanswerable_hallucination(accuracy),
        "conflict_handled": handled,
    }
