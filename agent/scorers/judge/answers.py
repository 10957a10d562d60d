"""Questions about an answer: is it an attempt, do its citations, claims and facts hold.

No-answer: an LLM judge says whether an answer attempts the question.

A partial answer attempts it: the quantity is "share of answers that attempt the question", as in
the reference, whose judge knows only yes and no. The label is kept in the detail.

Claims: an LLM judge takes an answer apart, says of each claim whether the passages support it
and whether the query asks for it, and then grades the whole. One call for a trace.

Facts: an LLM judge collects what the passages hold on the query, and says of each fact whether
the answer uses it. One call for a trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

from ragmeter.core.score import JUDGE_SCORER, NoScore, Score, make_score
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.cited_statements import (
    WHOLE_ANSWER,
    CitationInstance,
    CitedStatements,
    list_citation_instances,
)
from ragmeter.metrics.claims_and_nuggets import (
    CLAIM_METRICS,
    HIGHEST_RUBRIC,
    JudgedClaim,
    answer_relevancy,
    faithfulness,
    groundedness,
)
from ragmeter.scorers.judge.calls import (
    MAX_ANSWER_CHARS,
    MAX_DETAIL_TEXT,
    MAX_LISTED,
    MAX_PASSAGE_CHARS,
    JudgeMaterial,
    JudgeResult,
    ask_judge,
    choice_schema,
    clean_list_item,
    missing_text_reason,
    prepare_material,
)
from ragmeter.scorers.judge.prompts import load_prompt
from ragmeter.scorers.llm.questions import JudgeQuestion, QuestionAnswerer
from ragmeter.trace import Trace

AttemptLabel = Literal["answered", "partial", "none"]
ATTEMPT_LABELS: tuple[AttemptLabel, ...] = get_args(AttemptLabel)
_ATTEMPT_PROMPT = load_prompt("attempted", 1)


def attempt_question(query: str, answer: str) -> JudgeQuestion[AttemptLabel]:
    """How far the answer attempts the question."""

    def read(reply: Any) -> AttemptLabel:
        return ATTEMPT_LABELS[ATTEMPT_LABELS.index(reply["attempt"])]

    return _ATTEMPT_PROMPT.ask(
        {"question": query, "answer": answer},
        schema=choice_schema("attempt", ATTEMPT_LABELS),
        read=read,
        max_output_tokens=200,
    )


def attempt_value(attempt: AttemptLabel) -> float:
    """1 where anything of the question is attempted, else 0."""
    return 0.0 if attempt == "none" else 1.0


_MAX_INSTANCES = 100  # judged of one answer; bounds what an answer of nothing but markers costs
CITATION_SUPPORT_VALUES = {"full": 1.0, "partial": 0.5, "none": 0.0}
_CITATION_PROMPT = load_prompt("citation-support", 1)


def citation_question(statement: str, passage: str) -> JudgeQuestion[float]:
    """How far the passage supports the statement: 1, 0.5 or 0."""

    def read(reply: Any) -> float:
        return CITATION_SUPPORT_VALUES[reply["support"]]

    return _CITATION_PROMPT.ask(
        {"statement": statement, "passage": passage},
        schema=choice_schema("support", list(CITATION_SUPPORT_VALUES)),
        read=read,
        max_output_tokens=200,
    )


async def judge_citations(
    asking: QuestionAnswerer,
    statements: CitedStatements,
    passages: Sequence[str | None],
    cost: ScoringCost,
) -> dict[CitationInstance, JudgeResult[float]]:
    """The support, or why there is none, of every citation; all calls side by side."""
    whole = " ".join(item.claim.text for item in statements.items)

    async def one(number: int, instance: CitationInstance) -> JudgeResult[float]:
        passage = passages[instance.passage]
        text = whole
        if instance.statement != WHOLE_ANSWER:
            text = statements.items[instance.statement].claim.text
        gap = missing_text_reason(text, MAX_ANSWER_CHARS) or missing_text_reason(
            passage, MAX_PASSAGE_CHARS
        )
        if gap is None and number >= _MAX_INSTANCES:
            gap = NoScore("too_long")
        return (
            JudgeResult(gap)
            if gap
            else await ask_judge(asking, citation_question(text, passage or ""), cost)
        )

    asked = list_citation_instances(statements)
    found = await asyncio.gather(*[one(number, what) for number, what in enumerate(asked)])
    return dict(zip(asked, found, strict=True))


_CLAIM_SUPPORT = ("supported", "unsupported")
_CLAIM_RELEVANCE = ("relevant", "irrelevant")
_RUBRIC_GRADES = tuple(str(grade) for grade in range(HIGHEST_RUBRIC + 1))
MAX_SHOWN = 10  # claims of a kind that a result carries: a detail stays below 4 KiB in Latin script
_CLAIMS_PROMPT = load_prompt("claims", 1)


class ClaimsVerdict(NamedTuple):
    """What the judge says of an answer."""

    claims: list[JudgedClaim]
    groundedness: int
    correctness: int


def _enum_property(values: Sequence[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


# The claims stand first: models write properties in the order of the schema, and a grade that is
# written before the claims rests on nothing.
_CLAIM = {
    "claim": {"type": "string"},
    "support": _enum_property(_CLAIM_SUPPORT),
    "relevance": _enum_property(_CLAIM_RELEVANCE),
}
_CLAIMS_PROPERTIES = {
    "claims": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": _CLAIM,
            "required": list(_CLAIM),
            "additionalProperties": False,
        },
    },
    "groundedness": _enum_property(_RUBRIC_GRADES),
    "correctness": _enum_property(_RUBRIC_GRADES),
}
_CLAIMS_SCHEMA = {
    "type": "object",
    "properties": _CLAIMS_PROPERTIES,
    "required": list(_CLAIMS_PROPERTIES),
    "additionalProperties": False,
}


def _read_claims(reply: Any) -> ClaimsVerdict:
    """Each claim once, the first `MAX_LISTED`. Equal claims with unequal labels are no verdict."""
    found: dict[str, JudgedClaim] = {}
    for number, one in enumerate(reply["claims"], 1):
        text = clean_list_item(one["claim"], f"claim {number}")
        claim = JudgedClaim(
            text, one["support"] == _CLAIM_SUPPORT[0], one["relevance"] == _CLAIM_RELEVANCE[0]
        )
        known = found.setdefault(text.casefold(), claim)
        if known[1:] != claim[1:]:
            raise ValueError(f"claim {number} stands there twice, with other labels")
    return ClaimsVerdict(
        list(found.values())[:MAX_LISTED], int(reply["groundedness"]), int(reply["correctness"])
    )


def claims_question(given: JudgeMaterial) -> JudgeQuestion[ClaimsVerdict]:
    """The claims of the answer with their labels, and both grades."""
    return _CLAIMS_PROMPT.ask(
        {"query": given.query, "passages": given.passages, "answer": given.answer},
        facts={"count": len(given.passages)},
        schema=_CLAIMS_SCHEMA,
        read=_read_claims,
        max_output_tokens=3000,  # some 50 tokens a claim
    )


def claims_detail(found: ClaimsVerdict) -> dict[str, Any]:
    """The claims by kind, unsupported ones first, and how many there are of each."""

    def shown(claims: Sequence[JudgedClaim]) -> list[str]:
        return [claim.text[:MAX_DETAIL_TEXT] for claim in claims[:MAX_SHOWN]]

    supported = [claim for claim in found.claims if claim.supported]
    unsupported = [claim for claim in found.claims if not claim.supported]
    irrelevant = [claim for claim in found.claims if not claim.relevant]
    out: dict[str, Any] = {
        "claims": len(found.claims),
        "unsupported": len(unsupported),
        "irrelevant": len(irrelevant),
        "unsupported_claims": shown(unsupported),
        "supported_claims": shown(supported),
    }
    if irrelevant:
        out["irrelevant_claims"] = shown(irrelevant)
    return out


async def score_claims(asking: QuestionAnswerer, trace: Trace, cost: ScoringCost) -> list[Score]:
    """One result for each of `CLAIMS`."""
    given = prepare_material(trace)
    if isinstance(given, NoScore):
        return [make_score(name, trace, given, JUDGE_SCORER) for name in CLAIM_METRICS]
    asked = await ask_judge(asking, claims_question(given), cost)
    found = asked.value
    if isinstance(found, NoScore):
        return [make_score(name, trace, found, JUDGE_SCORER) for name in CLAIM_METRICS]
    values: dict[str, float | NoScore] = {
        "faithfulness": faithfulness(found.claims),
        "answer_relevancy": answer_relevancy(found.claims),
        "groundedness_grade": float(found.groundedness),
        "correctness_grade": float(found.correctness),
    }
    return [
        make_score(
            name,
            trace,
            values[name],
            JUDGE_SCORER,
            detail=claims_detail(found) if name == "faithfulness" else None,
            fingerprint=None if isinstance(values[name], NoScore) else asked.fingerprint,
        )
        for name in CLAIM_METRICS
    ]


_FACTS_METRIC = "groundedness"
_FACT_USE = ("used", "unused")
_FACTS_PROMPT = load_prompt("facts", 1)


class JudgedFact(NamedTuple):
    """A fact of the passages, and whether the answer uses it."""

    text: str
    used: bool


_FACT = {"fact": {"type": "string"}, "use": {"type": "string", "enum": list(_FACT_USE)}}
_FACTS_SCHEMA = {
    "type": "object",
    "properties": {
        "facts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": _FACT,
                "required": list(_FACT),
                "additionalProperties": False,
            },
        }
    },
    "required": ["facts"],
    "additionalProperties": False,
}


def _read_facts(reply: Any) -> list[JudgedFact]:
    """Each fact once, the first `MAX_LISTED`. Equal facts with unequal labels are no verdict."""
    found: dict[str, JudgedFact] = {}
    for number, one in enumerate(reply["facts"], 1):
        text = clean_list_item(one["fact"], f"fact {number}")
        fact = JudgedFact(text, one["use"] == _FACT_USE[0])
        if found.setdefault(text.casefold(), fact).used != fact.used:
            raise ValueError(f"fact {number} stands there twice, with other labels")
    return list(found.values())[:MAX_LISTED]


def facts_question(given: JudgeMaterial) -> JudgeQuestion[list[JudgedFact]]:
    """The relevant facts of the passages."""
    return _FACTS_PROMPT.ask(
        {"query": given.query, "passages": given.passages, "answer": given.answer},
        facts={"count": len(given.passages)},
        schema=_FACTS_SCHEMA,
        read=_read_facts,
        max_output_tokens=3000,  # some 40 tokens a fact
    )


def facts_detail(facts: Sequence[JudgedFact]) -> dict[str, Any]:
    """The facts that were left out and those that were used, and how many there are."""

    def shown(used: bool) -> list[str]:
        return [fact.text[:MAX_DETAIL_TEXT] for fact in facts if fact.used is used][:MAX_SHOWN]

    return {
        "facts": len(facts),
        "unused": sum(not fact.used for fact in facts),
        "unused_facts": shown(False),
        "used_facts": shown(True),
    }


async def score_facts(asking: QuestionAnswerer, trace: Trace, cost: ScoringCost) -> list[Score]:
    """The result for `groundedness`."""
    given = prepare_material(trace)
    if isinstance(given, NoScore):
        return [make_score(_FACTS_METRIC, trace, given, JUDGE_SCORER)]
    asked = await ask_judge(asking, facts_question(given), cost)
    if isinstance(asked.value, NoScore):
        return [make_score(_FACTS_METRIC, trace, asked.value, JUDGE_SCORER)]
    value = groundedness([fact.used for fact in asked.value])
    if isinstance(value, NoScore):
        return [make_score(_FACTS_METRIC, trace, value, JUDGE_SCORER)]
    shown = facts_detail(asked.value)
    return [
        make_score(
            _FACTS_METRIC, trace, value, JUDGE_SCORER, detail=shown, fingerprint=asked.fingerprint
        )
    ]
