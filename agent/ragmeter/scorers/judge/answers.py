"""Questions about an answer: is it an attempt, and do its citations, claims and facts hold.

Attempt: a partial answer attempts the question, as in the reference, whose judge knows only yes and
no. Citations: one call for each citation. Claims: one call takes the answer apart, says of each
claim whether the passages support it and the query asks for it, and then grades the whole. Facts:
one call collects what the passages hold on the query, and says of each fact whether the answer
uses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from ragmeter.core.score import NoScore
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics import abstention
from ragmeter.metrics.answer_text import parse_answer
from ragmeter.metrics.citations import resolve_citations
from ragmeter.metrics.cited_statements import (
    WHOLE_ANSWER,
    CitationInstance,
    CitedStatements,
    attach_citations,
    citation_scores,
    list_citation_instances,
    missing_citation_reason,
)
from ragmeter.metrics.claims import (
    HIGHEST_RUBRIC,
    JudgedClaim,
    answer_relevancy,
    faithfulness,
    groundedness,
    groundedness_grade,
)
from ragmeter.metrics.operational import has_empty_answer
from ragmeter.metrics.ranking import rank_order
from ragmeter.metrics.sentences import MAX_SENTENCES, find_sentence_spans
from ragmeter.reasons import Reason
from ragmeter.scorers.judge.calls import (
    MAX_ANSWER_CHARS,
    MAX_DETAIL_TEXT,
    MAX_LISTED,
    MAX_PASSAGE_CHARS,
    MAX_QUERY_CHARS,
    FamilyScores,
    JudgeMaterial,
    JudgeResult,
    all_fingerprints,
    ask_judge,
    clean_list_item,
    list_schema,
    missing_text_reason,
    number_lines,
    object_schema,
    prepare_material,
)
from ragmeter.scorers.judge.prompts import load_prompt
from ragmeter.scorers.llm.questions import JudgeQuestion, QuestionAnswerer
from ragmeter.trace import Trace

AttemptLabel = Literal["answered", "partial", "none"]
ATTEMPT_LABELS: tuple[AttemptLabel, ...] = get_args(AttemptLabel)
CITATION_SUPPORT_VALUES = {"full": 1.0, "partial": 0.5, "none": 0.0}

# Citations judged of one answer: it bounds the cost of an answer of nothing but markers.
_MAX_INSTANCES = 100
_MAX_DETAIL_PAIRS = 20
# Claims of a kind that a result carries: a detail stays below 4 KiB in Latin script.
MAX_SHOWN = 10

_ATTEMPT_PROMPT = load_prompt("attempted", 2)
_CITATION_PROMPT = load_prompt("citation-support", 2)
_CLAIM_SUPPORT_PROMPT = load_prompt("claim-support", 1)
_CLAIMS_PROMPT = load_prompt("claims", 2)
_FACTS_PROMPT = load_prompt("facts", 1)

# Labels of a claim, by whether the passages support it.
SUPPORT_LABELS = {True: "supported", False: "unsupported"}

_TEXT = {"type": "string"}


def _enum(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


_GRADE = _enum(*map(str, range(HIGHEST_RUBRIC + 1)))
_CLAIM = {
    "claim": _TEXT,
    "support": _enum("supported", "unsupported"),
    "relevance": _enum("relevant", "irrelevant"),
}
# The claims stand first: models write properties in the order of the schema, and a grade that is
# written before the claims rests on nothing.
_CLAIMS_SCHEMA = object_schema(
    {"claims": list_schema(object_schema(_CLAIM)), "groundedness": _GRADE, "correctness": _GRADE}
)
_FACT = {"fact": _TEXT, "use": _enum("used", "unused")}
_FACTS_SCHEMA = object_schema({"facts": list_schema(object_schema(_FACT))})


def attempt_question(query: str, answer: str) -> JudgeQuestion[AttemptLabel]:
    """Return the question how far the answer attempts the query."""
    labels: dict[str, AttemptLabel] = {label: label for label in ATTEMPT_LABELS}
    return _ATTEMPT_PROMPT.ask_label("attempt", labels, {"question": query, "answer": answer})


def attempt_value(attempt: AttemptLabel) -> float:
    """Return 1 where the answer attempts anything of the question, else 0."""
    return 0.0 if attempt == "none" else 1.0


async def score_attempt(
    judge: QuestionAnswerer, trace: Trace, cost: ScoringCost
) -> FamilyScores | NoScore:
    """Return the metric `answered`; its detail has the label."""
    if trace.status != "ok":
        return NoScore(trace.status, applies=False)
    if has_empty_answer(trace):
        # a blank answer attempts nothing; no judge need say so
        return FamilyScores.build({"answered": 0.0}, None)
    reason = missing_text_reason(trace.answer, MAX_ANSWER_CHARS) or missing_text_reason(
        trace.query, MAX_QUERY_CHARS, Reason.NO_QUERY
    )
    if reason is not None:
        return reason
    question = attempt_question(trace.query or "", trace.answer or "")
    result = await ask_judge(judge, question, cost)
    if isinstance(result.value, NoScore):
        return result.value
    values = {"answered": attempt_value(result.value)}
    return FamilyScores.build(values, result.fingerprint, answered={"attempt": result.value})


def citation_question(statement: str, passage: str) -> JudgeQuestion[float]:
    """Return the question how far the passage supports the statement: 1, 0.5 or 0."""
    data = {"statement": statement, "passage": passage}
    return _CITATION_PROMPT.ask_label("support", CITATION_SUPPORT_VALUES, data)


async def _judge_citations(
    judge: QuestionAnswerer,
    statements: CitedStatements,
    passages: Sequence[str | None],
    cost: ScoringCost,
) -> dict[CitationInstance, JudgeResult[float]]:
    whole = " ".join(item.claim.text for item in statements.items)

    async def support(number: int, instance: CitationInstance) -> JudgeResult[float]:
        passage = passages[instance.passage]
        text = whole
        if instance.statement != WHOLE_ANSWER:
            text = statements.items[instance.statement].claim.text
        reason = missing_text_reason(text, MAX_ANSWER_CHARS) or missing_text_reason(
            passage, MAX_PASSAGE_CHARS
        )
        if reason is None and number >= _MAX_INSTANCES:
            reason = NoScore(Reason.TOO_LONG)
        if reason is not None:
            return JudgeResult(reason)
        return await ask_judge(judge, citation_question(text, passage or ""), cost)

    instances = list_citation_instances(statements)
    results = await asyncio.gather(*map(support, range(len(instances)), instances))
    return dict(zip(instances, results, strict=True))


def _cited_statements(trace: Trace) -> CitedStatements | NoScore:
    marks = resolve_citations(trace)
    reason = missing_citation_reason(trace, abstention.answered_value(trace), marks)
    if reason is not None:
        return reason
    answer = trace.answer or ""
    if len(answer) > MAX_ANSWER_CHARS or len(find_sentence_spans(answer)) >= MAX_SENTENCES:
        return NoScore(Reason.TOO_LONG)  # the rest would not be read
    claims = parse_answer(answer).claims
    if not claims:
        return NoScore(Reason.NO_CLAIMS, applies=False)
    return attach_citations(answer, claims, marks)


async def score_citations(
    judge: QuestionAnswerer, trace: Trace, cost: ScoringCost
) -> FamilyScores | NoScore:
    """Return the citation metrics; the detail of the precision has the support of each citation."""
    statements = _cited_statements(trace)
    if isinstance(statements, NoScore):
        return statements
    passages = trace.passages or []
    texts = [passage.text for passage in passages]
    results = await _judge_citations(judge, statements, texts, cost)
    supports = {instance: result.value for instance, result in results.items()}
    detail = _citations_detail(supports, statements.dangling, [passage.id for passage in passages])
    return FamilyScores.build(
        citation_scores(statements, supports),
        all_fingerprints(results.values()),
        citation_precision=detail,
    )


def _citations_detail(
    supports: Mapping[CitationInstance, float | NoScore], dangling: int, ids: Sequence[str]
) -> dict[str, Any]:
    pairs = []
    for instance, value in list(supports.items())[:_MAX_DETAIL_PAIRS]:
        pair: dict[str, Any] = {
            # None: a citation of the whole answer
            "sentence": None if instance.statement == WHOLE_ANSWER else instance.statement,
            "passage_id": ids[instance.passage],
            "support": None if isinstance(value, NoScore) else value,
        }
        pairs.append(pair | ({"reason": value.reason} if isinstance(value, NoScore) else {}))
    missing = sum(isinstance(value, NoScore) for value in supports.values())
    counts = {"dangling": dangling, "missing": missing}
    return {"pairs": pairs, **{name: count for name, count in counts.items() if count}}


class ClaimsVerdict(NamedTuple):
    """The claims of an answer with their labels, and both grades."""

    claims: list[JudgedClaim]
    groundedness: int
    correctness: int


class JudgedFact(NamedTuple):
    """A fact of the passages, and whether the answer uses it."""

    text: str
    used: bool


_Item = TypeVar("_Item", JudgedClaim, JudgedFact)


def _each_once(kind: str, items: Sequence[_Item]) -> list[_Item]:
    """Each item once, the first `MAX_LISTED`. Equal texts with unequal labels are no verdict."""
    first: dict[str, _Item] = {}
    for number, item in enumerate(items, 1):
        if first.setdefault(item.text.casefold(), item)[1:] != item[1:]:
            raise ValueError(f"{kind} {number} stands there twice, with other labels")
    return list(first.values())[:MAX_LISTED]


def _read_claims(reply: Any) -> ClaimsVerdict:
    claims = [
        JudgedClaim(
            clean_list_item(item["claim"], f"claim {number}"),
            supported=item["support"] == "supported",
            relevant=item["relevance"] == "relevant",
        )
        for number, item in enumerate(reply["claims"], 1)
    ]
    return ClaimsVerdict(
        _each_once("claim", claims), int(reply["groundedness"]), int(reply["correctness"])
    )


def claims_question(material: JudgeMaterial) -> JudgeQuestion[ClaimsVerdict]:
    """Return the question about the claims of the answer."""
    return _CLAIMS_PROMPT.ask(
        material._asdict(),
        facts={"count": len(material.passages)},
        schema=_CLAIMS_SCHEMA,
        read=_read_claims,
        max_output_tokens=3000,  # some 50 tokens a claim
    )


def claim_support_question(
    query: str, passages: Sequence[str], claims: Sequence[str]
) -> JudgeQuestion[list[str]]:
    """Return the question whether the passages support each of the claims of another judge."""
    labels = {label: label for label in SUPPORT_LABELS.values()}
    data = {"query": query, "passages": passages, "claims": number_lines(claims)}
    return _CLAIM_SUPPORT_PROMPT.ask_labels(len(claims), labels, data)


def _shown(items: Sequence[JudgedClaim | JudgedFact]) -> list[str]:
    return [item.text[:MAX_DETAIL_TEXT] for item in items[:MAX_SHOWN]]


def claims_detail(verdict: ClaimsVerdict) -> dict[str, Any]:
    """Return the claims by kind, unsupported ones first, and how many there are of each."""
    unsupported = [claim for claim in verdict.claims if not claim.supported]
    irrelevant = [claim for claim in verdict.claims if not claim.relevant]
    out: dict[str, Any] = {
        "claims": len(verdict.claims),
        "unsupported": len(unsupported),
        "irrelevant": len(irrelevant),
        "unsupported_claims": _shown(unsupported),
        "supported_claims": _shown([claim for claim in verdict.claims if claim.supported]),
    }
    if irrelevant:
        out["irrelevant_claims"] = _shown(irrelevant)
    return out


def number_citations(trace: Trace) -> tuple[str, bool]:
    """Return the answer with its citations as numbers of ranked passages, and whether it has any.

    A prompt shows passages by these numbers. Citations that resolve to no passage stay as they are.
    """
    answer = trace.answer or ""
    cited = resolve_citations(trace)
    numbers = {index: n for n, index in enumerate(rank_order(trace.passages or ()), 1)}
    pieces = list[str]()
    at = 0
    marks = [mark for mark in cited.marks if mark.passages]
    # a citation of the whole answer stands at its end, any other explicit one after its statement
    ends = [len(answer) if mark.start < 0 else min(mark.end, len(answer)) for mark in marks]
    for end, mark in sorted(zip(ends, marks, strict=True), key=lambda pair: pair[0]):
        shown = ", ".join(str(number) for number in sorted(numbers[one] for one in mark.passages))
        pieces.append(answer[at : end if cited.explicit else mark.start])
        pieces.append(f" [{shown}]" if cited.explicit else f"[{shown}]")
        at = end
    return "".join([*pieces, answer[at:]]), bool(marks)


async def score_claims(
    judge: QuestionAnswerer, trace: Trace, cost: ScoringCost
) -> FamilyScores | NoScore:
    """Return the claim metrics; the details of `faithfulness` and both grades have the claims."""
    material = prepare_material(trace)
    if isinstance(material, NoScore):
        return material
    answer, cites = number_citations(trace)
    if reason := missing_text_reason(answer, MAX_ANSWER_CHARS):
        return reason
    material = material._replace(answer=answer)
    result = await ask_judge(judge, claims_question(material), cost)
    verdict = result.value
    if isinstance(verdict, NoScore):
        return verdict
    values: dict[str, float | NoScore] = {
        "faithfulness": faithfulness(verdict.claims),
        "answer_relevancy": answer_relevancy(verdict.claims),
        "groundedness_grade": groundedness_grade(verdict.groundedness, verdict.claims, cites),
        "correctness_grade": float(verdict.correctness),
    }
    claims = [(claim.text, SUPPORT_LABELS[claim.supported]) for claim in verdict.claims]
    detail = claims_detail(verdict)
    listed = {name: detail[name] for name in ("unsupported_claims", "supported_claims")}
    return FamilyScores.build(
        values,
        result.fingerprint,
        {"claim": claims},
        faithfulness=detail,
        groundedness_grade=listed | {"cites": cites},
        correctness_grade=listed,
    )


def _read_facts(reply: Any) -> list[JudgedFact]:
    facts = [
        JudgedFact(clean_list_item(item["fact"], f"fact {number}"), item["use"] == "used")
        for number, item in enumerate(reply["facts"], 1)
    ]
    return _each_once("fact", facts)


def facts_question(material: JudgeMaterial) -> JudgeQuestion[list[JudgedFact]]:
    """Return the question about the facts of the passages."""
    return _FACTS_PROMPT.ask(
        material._asdict(),
        facts={"count": len(material.passages)},
        schema=_FACTS_SCHEMA,
        read=_read_facts,
        max_output_tokens=3000,  # some 40 tokens a fact
    )


def facts_detail(facts: Sequence[JudgedFact]) -> dict[str, Any]:
    """Return the facts that were left out and those that were used, and how many there are."""
    unused = [fact for fact in facts if not fact.used]
    return {
        "facts": len(facts),
        "unused": len(unused),
        "unused_facts": _shown(unused),
        "used_facts": _shown([fact for fact in facts if fact.used]),
    }


async def score_facts(
    judge: QuestionAnswerer, trace: Trace, cost: ScoringCost
) -> FamilyScores | NoScore:
    """Return the metric `groundedness`; its detail has the facts."""
    material = prepare_material(trace)
    if isinstance(material, NoScore):
        return material
    result = await ask_judge(judge, facts_question(material), cost)
    if isinstance(result.value, NoScore):
        return result.value
    value = groundedness([fact.used for fact in result.value])
    if isinstance(value, NoScore):
        return value
    return FamilyScores.build(
        {"groundedness": value}, result.fingerprint, groundedness=facts_detail(result.value)
    )
