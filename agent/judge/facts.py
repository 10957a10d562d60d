"""Facts: an LLM judge collects what the passages hold on the query, and says of each fact whether
the answer uses it. One call for a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from agent.judge.asked import ask
from agent.judge.material import MAX_DETAIL_TEXT, MAX_LISTED, Material, listed, material
from agent.judge.prompts import load
from agent.judge.question import Asking, Question
from agent.metrics.claims import groundedness
from agent.metrics.results import JUDGE, Gap, result
from agent.tiers import Cost
from agent.trace import Score, Trace

__all__ = ["Fact", "detail", "question", "score"]

METRIC = "groundedness"
USE = ("used", "unused")
MAX_SHOWN = 10  # facts of a kind that a result carries, as of claims
PROMPT = load("facts", 1)


class Fact(NamedTuple):
    """A fact of the passages, and whether the answer uses it."""

    text: str
    used: bool


_FACT = {"fact": {"type": "string"}, "use": {"type": "string", "enum": list(USE)}}
SCHEMA = {
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


def _read(reply: Any) -> list[Fact]:
    """Each fact once, the first `MAX_LISTED`. Equal facts with unequal labels are no verdict."""
    found: dict[str, Fact] = {}
    for number, one in enumerate(reply["facts"], 1):
        text = listed(one["fact"], f"fact {number}")
        fact = Fact(text, one["use"] == USE[0])
        if found.setdefault(text.casefold(), fact).used != fact.used:
            raise ValueError(f"fact {number} stands there twice, with other labels")
    return list(found.values())[:MAX_LISTED]


def question(given: Material) -> Question[list[Fact]]:
    """The relevant facts of the passages."""
    return PROMPT.ask(
        {"query": given.query, "passages": given.passages, "answer": given.answer},
        facts={"count": len(given.passages)},
        schema=SCHEMA,
        read=_read,
        max_output_tokens=3000,  # some 40 tokens a fact
    )


def detail(facts: Sequence[Fact]) -> dict[str, Any]:
    """The facts that were left out and those that were used, and how many there are."""

    def shown(used: bool) -> list[str]:
        return [fact.text[:MAX_DETAIL_TEXT] for fact in facts if fact.used is used][:MAX_SHOWN]

    return {
        "facts": len(facts),
        "unused": sum(not fact.used for fact in facts),
        "unused_facts": shown(False),
        "used_facts": shown(True),
    }


async def score(asking: Asking, trace: Trace, cost: Cost) -> list[Score]:
    """The result for `groundedness`."""
    given = material(trace)
    if isinstance(given, Gap):
        return [result(METRIC, trace, given, JUDGE)]
    asked = await ask(asking, question(given), cost)
    if isinstance(asked.value, Gap):
        return [result(METRIC, trace, asked.value, JUDGE)]
    value = groundedness([fact.used for fact in asked.value])
    if isinstance(value, Gap):
        return [result(METRIC, trace, value, JUDGE)]
    shown = detail(asked.value)
    return [result(METRIC, trace, value, JUDGE, detail=shown, fingerprint=asked.fingerprint)]
