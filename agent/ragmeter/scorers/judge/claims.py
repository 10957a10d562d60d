"""Ask the judge for the claims of an answer, and whether they hold.

One call takes the answer apart, says of each claim whether the passages support it and the query
asks for it, and then grades the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ragmeter.core.score import NoScore
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.citations import resolve_citations
from ragmeter.metrics.claims import (
    HIGHEST_RUBRIC,
    JudgedClaim,
    answer_relevancy,
    faithfulness,
    groundedness_grade,
)
from ragmeter.metrics.ranking import rank_order
from ragmeter.scorers.judge.calls import FamilyScores, ask_judge
from ragmeter.scorers.judge.listed_items import (
    clean_list_item,
    each_once,
    number_lines,
    shown_texts,
)
from ragmeter.scorers.judge.material import (
    MAX_ANSWER_CHARS,
    JudgeMaterial,
    missing_text_reason,
    prepare_material,
)
from ragmeter.scorers.judge.prompts import load_prompt
from ragmeter.scorers.judge.schemas import TEXT_SCHEMA, enum_schema, list_schema, object_schema
from ragmeter.scorers.llm.questions import JudgeQuestion, QuestionAnswerer
from ragmeter.trace import Trace

_CLAIM_SUPPORT_PROMPT = load_prompt("claim-support", 1)
_CLAIMS_PROMPT = load_prompt("claims", 2)

# Labels of a claim, by whether the passages support it.
SUPPORT_LABELS = {True: "supported", False: "unsupported"}
_GRADE = enum_schema(*map(str, range(HIGHEST_RUBRIC + 1)))
_CLAIM = {
    "claim": TEXT_SCHEMA,
    "support": enum_schema("supported", "unsupported"),
    "relevance": enum_schema("relevant", "irrelevant"),
}

# The claims stand first: models write properties in the order of the schema, and a grade that is
# written before the claims rests on nothing.
_CLAIMS_SCHEMA = object_schema(
    {"claims": list_schema(object_schema(_CLAIM)), "groundedness": _GRADE, "correctness": _GRADE}
)


class ClaimsVerdict(NamedTuple):
    """The claims of an answer with their labels, and both grades."""

    claims: list[JudgedClaim]
    groundedness: int
    correctness: int


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
        each_once("claim", claims), int(reply["groundedness"]), int(reply["correctness"])
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


def claims_detail(verdict: ClaimsVerdict) -> dict[str, Any]:
    """Return the claims by kind, unsupported ones first, and how many there are of each."""
    unsupported = [claim for claim in verdict.claims if not claim.supported]
    irrelevant = [claim for claim in verdict.claims if not claim.relevant]
    out: dict[str, Any] = {
        "claims": len(verdict.claims),
        "unsupported": len(unsupported),
        "irrelevant": len(irrelevant),
        "unsupported_claims": shown_texts(unsupported),
        "supported_claims": shown_texts([claim for claim in verdict.claims if claim.supported]),
    }
    if irrelevant:
        out["irrelevant_claims"] = shown_texts(irrelevant)
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
