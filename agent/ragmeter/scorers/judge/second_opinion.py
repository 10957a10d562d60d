"""Second opinion: judge a share of the traces again, by another judge or once more.

The rate at which two judges differ is the only sign of a judge's quality that needs no labels. It
does not say which of them is right; a rise says that one has changed, or the traffic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import get_args

from ragmeter.config.scoring import JudgeFamily, JudgeSettings
from ragmeter.core.deadlines import remaining_seconds
from ragmeter.core.metric_specs import base_name
from ragmeter.core.score import JUDGE_SCORER, NoScore, Score, ScoreState
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier
from ragmeter.metrics.judge_agreement import (
    ComparableVerdicts,
    compare_verdicts,
    count_by_kind,
    explain_missing_verdict,
    extract_verdicts,
)
from ragmeter.metrics.ranking import FORMULA_VERSIONS
from ragmeter.reasons import Reason
from ragmeter.sampling.sampler import uniform_fraction
from ragmeter.scorers.judge.calls import (
    Fingerprints,
    ItemKind,
    ListedItems,
    all_fingerprints,
    ask_judge,
)
from ragmeter.scorers.judge.claims import claim_support_question
from ragmeter.scorers.judge.material import prepare_material
from ragmeter.scorers.judge.nuggets import label_nuggets
from ragmeter.scorers.judge.tier import JudgeTier
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

SECOND = "second"  # the name of the second judge
DISAGREEMENT_METRIC = "judge_disagreement"

# For all verdicts of the second judge on a trace: those of the first judge wait for them.
_SECOND_TIMEOUT_SECONDS = 30.0

# The second judge is given up so long before a deadline, so that the first one's verdicts count.
_RESERVED_SECONDS = 0.5

_MAX_DIFFERENCES = 10  # named in the detail of a score

# Families whose questions the second judge is asked like the first. Claims are asked for their
# grades; claims and nuggets of the first judge are labelled again as they are, since each judge
# lists its own.
_FAMILIES: tuple[JudgeFamily, ...] = ("relevance", "answered", "citations", "claims")

# Settings of the second judge that default to those of the first.
_OVERRIDES = (
    "base_url",
    "model",
    "api_key",
    "api_key_file",
    "input_usd_per_million",
    "output_usd_per_million",
)


# Labels of claims or nuggets in their order, by kind.
_Labels = dict[ItemKind, Sequence[str | NoScore]]


def _number_labels(labels: Mapping[ItemKind, Sequence[str | NoScore]]) -> ComparableVerdicts:
    return {
        f"{kind}:{number}": label
        for kind, found in labels.items()
        for number, label in enumerate(found)
        if not isinstance(label, NoScore)
    }


def second_settings(settings: JudgeSettings) -> JudgeSettings | None:
    """Return the settings of the second judge: `judge.second` over those of the first.

    Without an endpoint or model of its own it is the first judge, asked again: build its client
    without the cache, or it agrees with itself for free. Families that cannot be compared are
    left out, and so are nuggets, which are labelled again; None where there is nothing to compare.
    """
    second = settings.second
    metrics = [name for name in settings.metrics if name in _FAMILIES]
    if second.share == 0 or not (metrics or "nuggets" in settings.metrics):
        return None
    own = {name: getattr(second, name) for name in _OVERRIDES}
    own = {name: value for name, value in own.items() if value is not None}
    if second.base_url is not None:
        # another endpoint must never be sent the key of the first
        own = {"api_key": None, "api_key_file": None, **own}
    return settings.model_copy(update={**own, "metrics": metrics})


def score_difference(
    metric: str,
    reference: ComparableVerdicts,
    verdicts: ComparableVerdicts,
    scores: Sequence[Score],
) -> Score:
    """Return the share of verdicts that differ from the reference.

    `scores` hold the verdicts, and explain why there is none.
    """
    differs = compare_verdicts(reference, verdicts)
    if not differs:
        state = ScoreState.UNSCORED
        reason: str = Reason.INTERNAL_ERROR
        if scores:
            state, reason = explain_missing_verdict(scores)
        return Score(metric, JUDGE_SCORER, state, reason=reason)
    differing = [key for key, differ in differs.items() if differ]
    named = {key: [reference[key], verdicts[key]] for key in differing[:_MAX_DIFFERENCES]}
    detail = {"verdicts": len(differs), "compared": count_by_kind(differs), "differ": named}
    value = len(differing) / len(differs)
    return Score(metric, JUDGE_SCORER, ScoreState.SCORED, value, detail=detail)


class SecondOpinion:
    """A judge tier that asks a second one about a share of its traces.

    The share is drawn by a keyed hash of the trace id, so it is the same everywhere and apart from
    the draw of the tier. The results of `first` pass unchanged. The score `judge_disagreement` is
    added: the share of this trace's verdicts that differ (`ragmeter.metrics.judge_agreement`), or
    `sampled_out`, with `share` as its probability. A failure of `second` touches nothing but that
    score.

    Args:
        first: Judge tier whose results count.
        second: Judge tier to compare with.
        share: Share of the traces, in (0, 1].
        patience: Most seconds to wait for the second judge.
        canaries: Whether it is asked about traces with a reference too.
    """

    def __init__(
        self,
        first: JudgeTier,
        second: JudgeTier,
        share: float,
        salt: str,
        patience: float = _SECOND_TIMEOUT_SECONDS,
        canaries: bool = False,
    ) -> None:
        self.tier: Tier = first.tier
        self.pairs: Sequence[MetricScorer] = [*first.pairs, (DISAGREEMENT_METRIC, JUDGE_SCORER)]
        self._patience = patience
        self._canaries = canaries
        self._first = first
        self._second = second
        self._share = share
        self._salt = blake2b(f"second:{salt}".encode()).digest()

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        """Return the results of the first judge and the disagreement, for the cost of both."""
        scores, items = await self._first.judge_trace(trace, cost)
        if trace.canary and not self._canaries:
            return scores
        if self._share < 1 and uniform_fraction(trace.trace_id, self._salt) >= self._share:
            return [*scores, Score(DISAGREEMENT_METRIC, JUDGE_SCORER, ScoreState.SAMPLED_OUT)]
        return [*scores, await self._compare(trace, scores, items, cost)]

    async def _compare(
        self, trace: Trace, scores: list[Score], items: ListedItems, cost: ScoringCost
    ) -> Score:
        first = extract_verdicts(scores) | _number_labels(
            {kind: [label for _, label in found] for kind, found in items.items()}
        )
        if not first:
            return self._score(*explain_missing_verdict(scores))
        own = ScoringCost()
        left = remaining_seconds(self._patience + _RESERVED_SECONDS) - _RESERVED_SECONDS
        try:
            async with asyncio.timeout(min(self._patience, left)), asyncio.TaskGroup() as group:
                asked = group.create_task(self._second.score(trace, own))
                labelled = group.create_task(self._label_again(trace, items, own))
        except TimeoutError:
            return self._score(ScoreState.UNSCORED, Reason.JUDGE_TIMEOUT)
        except Exception:
            log.exception("the second opinion on trace %r failed", trace.trace_id[:80])
            return self._score(ScoreState.UNSCORED, Reason.INTERNAL_ERROR)
        finally:
            # its money counts; the slots it holds are its own, and not those of the first judge
            cost.add(replace(own, seconds=0.0, uses={}))
            for use in own.uses.values():
                cost.use(SECOND).add(use)
        again = asked.result()
        labels, used = labelled.result()
        second = extract_verdicts(again) | _number_labels(labels)
        again += [
            Score(DISAGREEMENT_METRIC, JUDGE_SCORER, ScoreState.UNSCORED, reason=label.reason)
            for found in labels.values()
            for label in found
            if isinstance(label, NoScore)
        ]
        score = score_difference(DISAGREEMENT_METRIC, first, second, again)
        score.probability = self._share
        if score.detail is not None:
            fingerprints = {
                other.fingerprint
                for other in again
                if other.fingerprint and base_name(other.metric) not in FORMULA_VERSIONS
            }
            score.detail["second"] = sorted(fingerprints.union(used))[:_MAX_DIFFERENCES]
        return score

    async def _label_again(
        self, trace: Trace, items: ListedItems, cost: ScoringCost
    ) -> tuple[_Labels, Fingerprints]:
        """Return the second judge's labels of what the first one has listed."""
        claims, nuggets, weighed = (
            [text for text, _ in items.get(kind, ())] for kind in get_args(ItemKind)
        )
        judge = self._second.judge
        labels = _Labels()
        used = Fingerprints()
        material = prepare_material(trace)
        if claims and not isinstance(material, NoScore):
            question = claim_support_question(material.query, material.passages, claims)
            result = await ask_judge(judge, question, cost)
            value = result.value
            labels["claim"] = [value] * len(claims) if isinstance(value, NoScore) else value
            used += all_fingerprints([result])
        if nuggets or weighed:
            labels["nugget"], labels["importance"], behind = await label_nuggets(
                judge=judge, trace=trace, supports=nuggets, importances=weighed, cost=cost
            )
            used += behind
        return labels, used

    def _score(self, state: ScoreState, reason: str | None = None) -> Score:
        return Score(
            DISAGREEMENT_METRIC, JUDGE_SCORER, state, reason=reason, probability=self._share
        )
