"""One call to the judge, what a family of metrics makes of it, and whose verdicts those are."""

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
from ragmeter.metrics.ranking import FORMULA_VERSIONS
from ragmeter.reasons import Reason
from ragmeter.scorers.llm.questions import JudgeFailed, JudgeQuestion, QuestionAnswerer

log = logging.getLogger(__name__)

T = TypeVar("T")


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
        return JudgeResult(NoScore(failed.reason, server=failed.server))
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
