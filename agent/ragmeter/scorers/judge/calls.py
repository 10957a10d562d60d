"""One call to the judge: bounds of the texts, answer schemas, and a failed call as a reason."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from ragmeter.core.metric_specs import base_name
from ragmeter.core.score import NoScore
from ragmeter.core.tiers import ScoringCost
from ragmeter.metrics.operational import has_empty_answer
from ragmeter.metrics.ranking import FORMULA_VERSIONS, rank_order
from ragmeter.reasons import Reason
from ragmeter.scorers.llm.questions import JudgeFailed, JudgeQuestion, QuestionAnswerer
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

T = TypeVar("T")

# Characters of one text. Longer ones are never cut, but are `too_long`. A passage of 40,000 is some
# 10,000 tokens: judges of today take it, and hardly any retriever returns as much.
MAX_PASSAGE_CHARS = 40_000
MAX_ANSWER_CHARS = 20_000
MAX_QUERY_CHARS = 4_000

# Passages of one call: the 150 labels of an annotation are as many as a judge keeps apart.
MAX_PASSAGES = 50
# Characters of all passages of one call, some 25,000 tokens.
MAX_MATERIAL_CHARS = 100_000

# Claims, facts or statements of one call: an answer of a page has some 40.
MAX_LISTED = 60
# Characters of one of them that a judge writes: a sentence of 60 words is one still.
_MAX_ITEM_CHARS = 400
# Characters of one of them, or of a nugget, that a result carries.
MAX_DETAIL_TEXT = 120


@dataclass(frozen=True, slots=True)
class JudgeResult(Generic[T]):
    """A verdict with the fingerprint of its judge, or the reason why there is none."""

    value: T | NoScore
    fingerprint: str | None = None


# What a label says: whether a claim is supported, whether an answer holds a nugget, its weight.
ItemKind = Literal["claim", "nugget", "importance"]

# Claims and nuggets that a judge has listed, by what their labels say: text and label.
ListedItems = Mapping[ItemKind, Sequence[tuple[str, str]]]

# Fingerprints of the verdicts that a score rests on, sorted, each once.
Fingerprints = tuple[str, ...]


class FamilyScores(NamedTuple):
    """The values of a family's metrics by name, and what they rest on.

    Args:
        fingerprints: Those of the verdicts behind each metric.
        details: By metric, if any.
        items: What the judge has listed, for a second one to label again.
    """

    values: Mapping[str, float | NoScore]
    fingerprints: Mapping[str, Fingerprints]
    details: Mapping[str, dict[str, Any]]
    items: ListedItems = MappingProxyType({})

    @classmethod
    def build(
        cls,
        values: Mapping[str, float | NoScore],
        fingerprints: str | Fingerprints | None,
        items: ListedItems = MappingProxyType({}),
        **details: dict[str, Any],
    ) -> FamilyScores:
        """Return scores of one verdict, or of several; `details` are by metric."""
        if not isinstance(fingerprints, tuple):
            fingerprints = () if fingerprints is None else (fingerprints,)
        return cls(values, dict.fromkeys(values, fingerprints), details, items)


async def ask_judge(
    judge: QuestionAnswerer, question: JudgeQuestion[T], cost: ScoringCost
) -> JudgeResult[T]:
    """Ask one question; a call that fails is a reason, so that it disturbs no other."""
    try:
        verdict = await judge.ask(question, cost)
    except JudgeFailed as failed:
        return JudgeResult(NoScore(failed.reason))
    except Exception:
        log.exception("a call to the judge failed unexpectedly (%s)", question.prompt)
        return JudgeResult(NoScore(Reason.INTERNAL_ERROR))
    return JudgeResult(verdict.value, verdict.fingerprint)


def all_fingerprints(results: Iterable[JudgeResult[Any]]) -> Fingerprints:
    """Return the fingerprints of the verdicts among the results."""
    found = {result.fingerprint for result in results if result.fingerprint is not None}
    return tuple(sorted(found))


def score_fingerprint(metric: str, fingerprints: Fingerprints) -> str | None:
    """Return the fingerprint of a score from those of its verdicts; None without any.

    That of one verdict stands for itself; several, or the version of a formula, make a hash.
    """
    if not fingerprints:
        return None
    whole = fingerprints[0] if len(fingerprints) == 1 else _short_hash(",".join(fingerprints))
    version = FORMULA_VERSIONS.get(base_name(metric))
    return whole if version is None else _short_hash(f"{whole} {version}")


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def labels_schema(names: Sequence[str], values: Sequence[str]) -> dict[str, Any]:
    """Return the schema of one label for each name.

    An object with a key for each, and not a list: no label can be too many, too few or slip to
    another name, and servers that write by the schema cannot get the number wrong.
    """
    label = {"type": "string", "enum": list(values)}
    return object_schema(dict.fromkeys(names, label))


def list_schema(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": item}


def clean_list_item(text: str, subject: str) -> str:
    """Return one item of a list that a judge wrote, on one line.

    Raises:
        ValueError: It is empty or too long.
    """
    line = " ".join(text.split())
    if not any(char.isalnum() for char in line):
        raise ValueError(f"{subject} is empty")
    if len(line) > _MAX_ITEM_CHARS:
        raise ValueError(f"{subject} is too long: at most {_MAX_ITEM_CHARS} characters")
    return line


def number_lines(texts: Sequence[str]) -> str:
    """Return the texts as a numbered list."""
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))


def missing_text_reason(
    text: str | None, limit: int, absent: str = Reason.NO_TEXT
) -> NoScore | None:
    """Return why a text cannot be put to a judge, if so."""
    if text is None or not text.strip():
        return NoScore(absent)
    return NoScore(Reason.TOO_LONG) if len(text) > limit else None


def missing_answer_reason(trace: Trace) -> NoScore | None:
    """Return why there is no answer to judge, if so; an answer that refuses is judged."""
    if trace.status != "ok":
        return NoScore(trace.status, applies=False)
    return NoScore(Reason.EMPTY_ANSWER, applies=False) if has_empty_answer(trace) else None


def ranked_passage_texts(trace: Trace) -> list[str] | NoScore:
    """Return all passages in rank order, as any of them may support the answer."""
    if trace.passages is None:
        return NoScore(Reason.NO_PASSAGES_CAPTURED)
    texts = [trace.passages[index].text or "" for index in rank_order(trace.passages)]
    for text in texts:
        if reason := missing_text_reason(text, MAX_PASSAGE_CHARS):
            return reason
    if len(texts) > MAX_PASSAGES or sum(map(len, texts)) > MAX_MATERIAL_CHARS:
        return NoScore(Reason.TOO_LONG)
    return texts


class JudgeMaterial(NamedTuple):
    """Query, passages in rank order (at least one) and answer, each within its bound."""

    query: str
    passages: list[str]
    answer: str


def prepare_material(trace: Trace) -> JudgeMaterial | NoScore:
    """Return what an answer is held against its passages with, or why that is impossible."""
    reason = (
        missing_answer_reason(trace)
        or missing_text_reason(trace.answer, MAX_ANSWER_CHARS)
        or missing_text_reason(trace.query, MAX_QUERY_CHARS, Reason.NO_QUERY)
    )
    if reason is not None:
        return reason
    texts = ranked_passage_texts(trace)
    if isinstance(texts, NoScore):
        return texts
    if not texts:
        return NoScore(Reason.NO_PASSAGES, applies=False)
    return JudgeMaterial(trace.query or "", texts, trace.answer or "")
