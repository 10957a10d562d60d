"""Ask the judge for the facts of the passages, and whether the answer uses them.

One call collects what the passages hold on the query, and says of each fact whether the answer
uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ragmeter.core.score import NoScore
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.claims import (
    groundedness,
)
from ragmeter.scorers.judge.calls import FamilyScores, ask_judge
from ragmeter.scorers.judge.listed_items import (
    clean_list_item,
    each_once,
    shown_texts,
)
from ragmeter.scorers.judge.material import (
    JudgeMaterial,
    prepare_material,
)
from ragmeter.scorers.judge.prompts import load_prompt
from ragmeter.scorers.judge.schemas import TEXT_SCHEMA, enum_schema, list_schema, object_schema
from ragmeter.scorers.llm.questions import JudgeQuestion, QuestionAnswerer
from ragmeter.trace import Trace

_FACTS_PROMPT = load_prompt("facts", 1)
_FACT = {"fact": TEXT_SCHEMA, "use": enum_schema("used", "unused")}
_FACTS_SCHEMA = object_schema({"facts": list_schema(object_schema(_FACT))})


class JudgedFact(NamedTuple):
    """A fact of the passages, and whether the answer uses it."""

    text: str
    used: bool


def _read_facts(reply: Any) -> list[JudgedFact]:
    facts = [
        JudgedFact(clean_list_item(item["fact"], f"fact {number}"), item["use"] == "used")
        for number, item in enumerate(reply["facts"], 1)
    ]
    return each_once("fact", facts)


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
        "unused_facts": shown_texts(unused),
        "used_facts": shown_texts([fact for fact in facts if fact.used]),
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
