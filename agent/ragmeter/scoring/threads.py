"""Score traces ahead, in threads beside the one that counts.

Scores of one trace depend on no other trace, so the number of threads changes no result. The text
kernel works without the interpreter's lock: while it reads one trace, another thread decodes,
counts or commits.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from ragmeter.config.scoring import SamplingSettings
from ragmeter.config.settings import Settings
from ragmeter.core.process import usable_cores
from ragmeter.ingest.native import DecodeFailure, decode_trace
from ragmeter.metrics.costs import PriceTable, list_prices
from ragmeter.sampling.control import SamplingControl
from ragmeter.sampling.sampler import Sampler, StratumClassifier
from ragmeter.scoring.scorer import Scorer, TraceScores
from ragmeter.trace import Trace

log = logging.getLogger(__name__)

# Traces that a thread scores at a time: some 20 ms of work, so that two threads end together, for
# a hundredth of that in handing it over.
_SLICE = 32

# More find the interpreter's lock taken: three are no faster than two, which save a tenth of the
# time of a replay (docs/performance.md).
_MAX_THREADS = 2


@dataclass(frozen=True, slots=True)
class SamplingTerms:
    """The terms by which the built-in tier is drawn: see `Sampler` and `StratumClassifier`."""

    settings: SamplingSettings
    control: SamplingControl = field(default_factory=SamplingControl)
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class ScoringPlan:
    """Says what threads compute of each trace.

    Args:
        builtin: Whether to compute the built-in quality metrics.
        ks: The cut-offs of the retrieval metrics of canaries.
        segments: The tags that windows distinguish.
        terms: The first terms of sampling.
        prices: By which costs are estimated.
    """

    builtin: bool
    ks: tuple[int, ...]
    segments: tuple[str, ...]
    terms: SamplingTerms
    prices: PriceTable = field(default_factory=list_prices)

    @classmethod
    def of(cls, settings: Settings) -> ScoringPlan:
        """Return the plan of an agent."""
        return cls(
            settings.builtin_scorers,
            tuple(settings.judge.k),
            tuple(settings.segments),
            SamplingTerms(settings.sampling),
            list_prices().with_own(settings.costs.as_rows()),
        )


@dataclass(frozen=True, slots=True)
class Unscorable:
    """In place of scores: why a trace cannot be scored."""

    why: str


TraceSource = Trace | bytes
"""A trace, or its body."""

ScoredSource = TraceScores | DecodeFailure | Unscorable


class SourceScorer:
    """Scores traces by a plan, in one thread."""

    def __init__(self, plan: ScoringPlan) -> None:
        self._terms = plan.terms
        self._sampler = Sampler(plan.terms.settings)
        self._strata = StratumClassifier(plan.segments)
        self._scorer = Scorer(plan.builtin, sampler=self._sampler, strata=self._strata, ks=plan.ks)
        self._scorer.prices = plan.prices

    def score_all(self, sources: Sequence[TraceSource], terms: SamplingTerms) -> list[ScoredSource]:
        """Score traces; those that `terms` do not draw get no built-in scores."""
        if terms is not self._terms:
            self._terms = terms
            self._sampler.update(terms.settings)
            self._sampler.builtin_scale = terms.scale
            self._strata.apply_control(terms.control)
        return [self._score_safely(source) for source in sources]

    def _score_safely(self, source: TraceSource) -> ScoredSource:
        try:
            return self._score(source)
        except MemoryError:  # no fault of the trace
            raise
        except Exception as error:
            log.exception("a trace cannot be scored")
            return Unscorable(repr(error)[:200])

    def _score(self, source: TraceSource) -> TraceScores | DecodeFailure:
        if isinstance(source, bytes):
            item = decode_trace(source, len(source))
            if isinstance(item, DecodeFailure):
                return item
            source = item.trace
        scorer = self._scorer
        scores = scorer.score_alone(source)
        if not source.canary and scorer.draw_builtin(scores)[0]:
            scores.builtin = scorer.score_builtin(scores.prepared)
        return scores


class ScorerThreads:
    """Threads that score slices of traces in the order in which these are submitted.

    Args:
        plan: What they compute.
        number: How many threads.
    """

    def __init__(self, plan: ScoringPlan, number: int) -> None:
        self._idle = deque(SourceScorer(plan) for _ in range(number))
        self._executor = ThreadPoolExecutor(number, "ragmeter-scorer")

    def submit(
        self, sources: Sequence[TraceSource], terms: SamplingTerms
    ) -> list[Future[list[ScoredSource]]]:
        """Have traces scored; the results of the futures follow each other."""
        return [
            self._executor.submit(self._score, sources[start : start + _SLICE], terms)
            for start in range(0, len(sources), _SLICE)
        ]

    def _score(self, sources: Sequence[TraceSource], terms: SamplingTerms) -> list[ScoredSource]:
        scorer = self._idle.pop()  # there are as many as threads
        try:
            return scorer.score_all(sources, terms)
        finally:
            self._idle.append(scorer)

    def close(self) -> None:
        """End the threads; what they have not begun is cancelled."""
        self._executor.shutdown(cancel_futures=True)


def start_threads(settings: Settings) -> ScorerThreads | None:
    """Return as many threads as there are cores, two at most; None where there is one core."""
    number = min(int(usable_cores()), _MAX_THREADS)
    return ScorerThreads(ScoringPlan.of(settings), number) if number > 1 else None
