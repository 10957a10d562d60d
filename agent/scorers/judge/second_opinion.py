"""Second opinion: judge a share of the traces again, by another judge or once more.

The rate at which two judges differ is the only sign of a judge's quality that needs no labels. It
does not say which of them is right; a rise says that one has changed, or the traffic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal, get_args

from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.clocks import remaining_seconds
from ragmeter.core.metric_specs import base_name
from ragmeter.core.score import JUDGE_SCORER, Score, ScoreState
from ragmeter.core.tiers import MetricScorer, ScoringCost, Tier, TierScorer
from ragmeter.metrics.judge_agreement import (
    ComparableVerdicts,
    compare_verdicts,
    explain_missing_verdict,
    extract_verdicts,
)
from ragmeter.metrics.ranking import FORMULA_VERSIONS
from ragmeter.sampling.sampler import uniform_fraction
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

DISAGREEMENT_METRIC = "judge_disagreement"

# For all verdicts of the second judge on a trace: those of the first judge wait for them.
_SECOND_TIMEOUT_SECONDS = 30.0

# The second judge is given up so long before a deadline, so that the first one's verdicts count.
_RESERVED_SECONDS = 0.5

_MAX_DIFFERENCES = 10  # named in the detail of a score

ComparableFamily = Literal["relevance", "answered", "citations"]

# Settings of the second judge that default to those of the first.
_OVERRIDES = (
    *("base_url", "model", "api_key", "api_key_file"),
    *("input_usd_per_million", "output_usd_per_million"),
)


def second_settings(settings: JudgeSettings) -> JudgeSettings | None:
    """Return the settings of the second judge: `judge.second` over those of the first.

    Without an endpoint or model of its own it is the first judge, asked again: build its client
    without the cache, or it agrees with itself for free. Families that cannot be compared are
    left out; None where none is left.
    """
    second = settings.second
    metrics = [name for name in settings.metrics if name in get_args(ComparableFamily)]
    if second.share == 0 or not metrics:
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
    both, differing = compare_verdicts(reference, verdicts)
    if not both:
        state, reason = ScoreState.UNSCORED, "internal_error"
        if scores:
            state, reason = explain_missing_verdict(scores)
        return Score(metric, JUDGE_SCORER, state, reason=reason)
    named = {key: [reference[key], verdicts[key]] for key in differing[:_MAX_DIFFERENCES]}
    detail = {"verdicts": both, "differ": named}
    return Score(metric, JUDGE_SCORER, ScoreState.SCORED, len(differing) / both, detail=detail)


class SecondOpinion:
    """A judge tier that asks a second one about a share of its traces.

    The share is drawn by a keyed hash of the trace id, so it is the same everywhere and apart from
    the draw of the tier. The results of `first` pass unchanged. The score `judge_disagreement` is
    added: the share of this trace's verdicts that differ (`ragmeter.metrics.judge_agreement`), or
    `sampled_out`, with `share` as its probability. A failure of `second` touches nothing but that
    score. Canaries are not asked about twice.

    Args:
        first: Judge tier whose results count.
        second: Judge tier to compare with.
        share: Share of the traces, in (0, 1].
        patience: Most seconds to wait for the second judge.

    Raises:
        ValueError: The share is not in (0, 1].
    """

    def __init__(
        self,
        first: TierScorer,
        second: TierScorer,
        share: float,
        salt: str,
        patience: float = _SECOND_TIMEOUT_SECONDS,
    ) -> None:
        if not 0 < share <= 1:
            raise ValueError("the share of second opinions must be in (0, 1]")
        self.tier: Tier = first.tier
        self.pairs: Sequence[MetricScorer] = [
            *first.pairs,
            (DISAGREEMENT_METRIC, JUDGE_SCORER),
        ]
        self._patience = patience
        self._first = first
        self._second = second
        self._share = share
        self._salt = blake2b(f"second:{salt}".encode()).digest()

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        """Return the results of the first judge and the disagreement, for the cost of both."""
        scores = await self._first.score(trace, cost)
        if trace.canary:
            return scores
        if self._share < 1 and uniform_fraction(trace.trace_id, self._salt) >= self._share:
            return [*scores, Score(DISAGREEMENT_METRIC, JUDGE_SCORER, ScoreState.SAMPLED_OUT)]
        return [*scores, await self._compare(trace, scores, cost)]

    async def _compare(self, trace: Trace, scores: list[Score], cost: ScoringCost) -> Score:
        first = extract_verdicts(scores)
        if not first:
            return self._score(*explain_missing_verdict(scores))
        own = ScoringCost()
        left = remaining_seconds(self._patience + _RESERVED_SECONDS) - _RESERVED_SECONDS
        try:
            again = await asyncio.wait_for(
                self._second.score(trace, own), min(self._patience, left)
            )
        except TimeoutError:
            return self._score(ScoreState.UNSCORED, "judge_timeout")
        except Exception:
            log.exception("the second opinion on trace %r failed", trace.trace_id[:80])
            return self._score(ScoreState.UNSCORED, "internal_error")
        finally:
            # its money counts; the slots it holds are its own, and not those of the first judge
            own.seconds = 0.0
            cost.add(own)
        score = score_difference(DISAGREEMENT_METRIC, first, extract_verdicts(again), again)
        score.probability = self._share
        if score.detail is not None:
            fingerprints = sorted(
                {
                    other.fingerprint
                    for other in again
                    if other.fingerprint and base_name(other.metric) not in FORMULA_VERSIONS
                }
            )
            score.detail["second"] = fingerprints[:_MAX_DIFFERENCES]
        return score

    def _score(self, state: ScoreState, reason: str | None = None) -> Score:
        return Score(
            DISAGREEMENT_METRIC, JUDGE_SCORER, state, reason=reason, probability=self._share
        )
