"""Claims: an LLM judge takes an answer apart, says of each claim whether the passages support it
and whether the query asks for it, and then grades the whole. One call for a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from agent.judge.asked import ask
from agent.judge.material import MAX_DETAIL_TEXT, MAX_LISTED, Material, listed, material
from agent.judge.prompts import load
from agent.judge.question import Asking, Question
from agent.metrics.claims import (
    CLAIMS,
    HIGHEST,
    Claim,
    answer_relevancy,
    faithfulness,
)
from agent.metrics.results import JUDGE, Gap, result
from agent.tiers import Cost
from agent.trace import Score, Trace

__all__ = ["Claims", "detail", "question", "score"]

SUPPORT = ("supported", "unsupported")
RELEVANCE = ("relevant", "irrelevant")
GRADES = tuple(str(grade) for grade in range(HIGHEST + 1))
MAX_SHOWN = 10  # claims of a kind that a result carries: a detail stays below 4 KiB in Latin script
PROMPT = load("claims", 1)


class Claims(NamedTuple):
    """What the judge says of an answer."""

    claims: list[Claim]
    groundedness: int
    correctness: int


def _choice(values: Sequence[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


# The claims stand first: models write properties in the order of the schema, and a grade that is
# written before the claims rests on nothing.
_CLAIM = {"claim": {"type": "string"}, "support": _choice(SUPPORT), "relevance": _choice(RELEVANCE)}
_PROPERTIES = {
    "claims": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": _CLAIM,
            "required": list(_CLAIM),
            "additionalProperties": False,
        },
    },
    "groundedness": _choice(GRADES),
    "correctness": _choice(GRADES),
}
SCHEMA = {
    "type": "object",
    "properties": _PROPERTIES,
    "required": list(_PROPERTIES),
    "additionalProperties": False,
}


def _read(reply: Any) -> Claims:
    """Each claim once, the first `MAX_LISTED`. Equal claims with unequal labels are no verdict."""
    found: dict[str, Claim] = {}
    for number, one in enumerate(reply["claims"], 1):
        text = listed(one["claim"], f"claim {number}")
        claim = Claim(text, one["support"] == SUPPORT[0], one["relevance"] == RELEVANCE[0])
        known = found.setdefault(text.casefold(), claim)
        if known[1:] != claim[1:]:
            raise ValueError(f"claim {number} stands there twice, with other labels")
    return Claims(
        list(found.values())[:MAX_LISTED], int(reply["groundedness"]), int(reply["correctness"])
    )


def question(given: Material) -> Question[Claims]:
    """The claims of the answer with their labels, and both grades."""
    return PROMPT.ask(
        {"query": given.query, "passages": given.passages, "answer": given.answer},
        facts={"count": len(given.passages)},
        schema=SCHEMA,
        read=_read,
        max_output_tokens=3000,  # some 50 tokens a claim
    )


def detail(found: Claims) -> dict[str, Any]:
    """The claims by kind, unsupported ones first, and how many there are of each."""

    def shown(claims: Sequence[Claim]) -> list[str]:
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


async def score(asking: Asking, trace: Trace, cost: Cost) -> list[Score]:
    """One result for each of `CLAIMS`."""
    given = material(trace)
    if isinstance(given, Gap):
        return [result(name, trace, given, JUDGE) for name in CLAIMS]
    asked = await ask(asking, question(given), cost)
    found = asked.value
    if isinstance(found, Gap):
        return [result(name, trace, found, JUDGE) for name in CLAIMS]
    values: dict[str, float | Gap] = {
        "faithfulness": faithfulness(found.claims),
        "answer_relevancy": answer_relevancy(found.claims),
        "groundedness_grade": float(found.groundedness),
        "correctness_grade": float(found.correctness),
    }
    return [
        result(
            name,
            trace,
            values[name],
            JUDGE,
            detail=detail(found) if name == "faithfulness" else None,
            fingerprint=None if isinstance(values[name], Gap) else asked.fingerprint,
        )
        for name in CLAIMS
    ]
