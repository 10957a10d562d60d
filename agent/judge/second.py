"""A second opinion: part of what was judged is judged again, by another judge or once more.

The rate at which two judges differ is the only sign of a judge's quality that needs no labels. It
says nothing about which of them is right; a rise says that one has changed, or the traffic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal, get_args

from agent.config import Judge
from agent.deadline import left
from agent.metrics.judges import Verdicts, absence, compared, verdicts
from agent.metrics.results import JUDGE
from agent.sampling import uniform
from agent.tiers import Cost, Pair, Tier, TierScorer
from agent.trace import Score, State, Trace

__all__ = ["METRIC", "SecondOpinion", "second_settings"]

log = logging.getLogger("ragmeter.judge")

METRIC = "judge_disagreement"
PATIENCE = 30.0
"""Seconds for all verdicts of the second judge on a trace: the first judge's wait for them."""

RESERVE = 0.5
"""Seconds before a deadline at which the second judge is given up, and not the first one's."""

MAX_DIFFERENCES = 10  # named in the detail of a score

Comparable = Literal["relevance", "answered", "citations"]


def second_settings(settings: Judge) -> Judge | None:
    """The settings of the second judge: what `judge.second` says, over those of the first.

    Without an endpoint or model of its own it is the first judge, asked again: build its client
    without the cache, or it agrees with itself for free. Nuggets are left out: they are not
    compared. None where there is nothing to ask.
    """
    second = settings.second
    metrics = [name for name in settings.metrics if name in get_args(Comparable)]
    if second.share == 0 or not metrics:
        return None
    own = {
        name: value
        for name in (
            *("base_url", "model", "api_key", "api_key_file"),
            *("input_usd_per_million", "output_usd_per_million"),
        )
        if (value := getattr(second, name)) is not None
    }
    if second.base_url is not None:
        # another endpoint must never be sent the key of the first
        own = {"api_key": None, "api_key_file": None, **own}
    return settings.model_copy(update={**own, "metrics": metrics})


class SecondOpinion:
    """The judge tier `first`, which for a `share` of its traces asks `second` too.

    The part is drawn by a keyed hash of the trace id with a `salt` of its own, so it is the same
    everywhere and apart from the draw of the tier. The results of `first` are passed on as they
    are; the score `judge_disagreement` is added: the share of this trace's verdicts that differ
    (`agent.metrics.judges`), `sampled_out` outside the part, with `share` as its probability.
    A failure of `second` touches nothing but that score. Canaries are not asked about twice.
    """

    def __init__(
        self,
        first: TierScorer,
        second: TierScorer,
        share: float,
        salt: str,
        patience: float = PATIENCE,
    ) -> None:
        if not 0 < share <= 1:
            raise ValueError("the share of second opinions must be in (0, 1]")
        self._patience = patience
        self._first = first
        self._second = second
        self._share = share
        self._salt = blake2b(f"second:{salt}".encode()).digest()

    @property
    def tier(self) -> Tier:
        return self._first.tier

    @property
    def pairs(self) -> Sequence[Pair]:
        return [*self._first.pairs, (METRIC, JUDGE)]

    async def score(self, trace: Trace, cost: Cost) -> list[Score]:
        """The results of the first judge and the disagreement; the cost of both."""
        scores = await self._first.score(trace, cost)
        if trace.canary:
            return scores
        if self._share < 1 and uniform(trace.trace_id, self._salt) >= self._share:
            return [*scores, Score(METRIC, JUDGE, State.SAMPLED_OUT)]
        return [*scores, await self._compare(trace, scores, cost)]

    async def _compare(self, trace: Trace, scores: list[Score], cost: Cost) -> Score:
        first = verdicts(scores)
        if not first:
            return self._score(*absence(scores))
        own = Cost()
        try:
            patience = min(self._patience, left(self._patience + RESERVE) - RESERVE)
            again = await asyncio.wait_for(self._second.score(trace, own), patience)
        except TimeoutError:
            return self._score(State.UNSCORED, "judge_timeout")
        except Exception:
            log.exception("the second opinion on trace %r failed", trace.trace_id[:80])
            return self._score(State.UNSCORED, "internal_error")
        finally:
            # its money counts; the slots it holds are its own, and say nothing of the first judge's
            own.seconds = 0.0
            cost.add(own)
        return self._difference(first, verdicts(again), again)

    def _difference(self, first: Verdicts, second: Verdicts, again: list[Score]) -> Score:
        both, differing = compared(first, second)
        if not both:
            return self._score(*absence(again))
        fingerprints = sorted({score.fingerprint for score in again if score.fingerprint})
        score = self._score(State.SCORED)
        score.value = len(differing) / both
        score.detail = {
            "verdicts": both,
            "differ": {key: [first[key], second[key]] for key in differing[:MAX_DIFFERENCES]},
            "second": fingerprints[:MAX_DIFFERENCES],
        }
        return score

    def _score(self, state: State, reason: str | None = None) -> Score:
        return Score(METRIC, JUDGE, state, reason=reason, probability=self._share)
