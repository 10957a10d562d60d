"""All metrics of a canary: what they are, and the scores of one trace."""

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
from agent.metrics.ranking import rank_order
from agent.metrics.results import REFERENCE, Gap, result
from agent.metrics.spec import Kind, MetricSpec
from agent.trace import Passage, Reference, Score, Trace

__all__ = ["SPECS", "names", "pairs", "score"]

_ANSWER = "the answer and the right answer"
_SUPPORTS = "passage metadata `rel_path` and `heading_path`, and the supports of the reference"


def _spec(
    name: str,
    kind: Kind,
    meaning: str,
    formula: str,
    source: str = _ANSWER,
    good: bool = True,
    unit: str = "",
) -> MetricSpec:
    return MetricSpec(
        name=name,
        kind=kind,
        tier="cheap",
        scorers=(REFERENCE,),
        meaning=meaning,
        formula=formula,
        source=source,
        good="higher" if good else "lower",
        high=None if unit else 1.0,
        unit=unit,
        labels=("k",) if name.endswith("_at_k") else (),
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
        "(passages at a support among the first k) / k; not applicable with fewer than k",
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
    return tuple((name, REFERENCE) for name in names(sorted(set(ks))))


def score(trace: Trace, ks: Sequence[int], monotonic: Callable[[], float]) -> list[Score]:
    """One result for each of `names(ks)`; none where the trace is no canary.

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
    return explained(trace, scores)


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
