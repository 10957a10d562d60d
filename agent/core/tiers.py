"""Types of the sampled scoring tiers: tier names, scorer protocols and scoring cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from ragmeter.core.score import Score
from ragmeter.core.vectors import AnswerVectors
from ragmeter.trace import Trace

Tier = Literal["model", "judge", "embedding"]
"""`embedding` owes no results and draws no sample: it is given the answers that
`ragmeter.aggregate` remembers, and gives back their vectors."""

TIERS: tuple[Tier, ...] = ("model", "judge", "embedding")

MetricScorer = tuple[str, str]
"""(metric, scorer)"""


@dataclass(slots=True)
class ScoringCost:
    """What the scoring of a trace has used, failed attempts too.

    `seconds` is the time that calls were in flight or cores were busy, added up: two calls side
    by side for one second are two seconds.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0

    def add(self, other: ScoringCost) -> None:
        self.requests += other.requests
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.usd += other.usd
        self.seconds += other.seconds


class TierScorer(Protocol):
    """A scorer of the `model` or `judge` tier: it sees only the traces its tier has drawn.

    `pairs` are the (metric, scorer) pairs it answers for. `score` gives at most one result for
    each pair and adds what that cost to `cost`; a pair it leaves out or that makes it raise is
    `unscored` with `internal_error`. It runs in an event loop that it must not block, many traces
    side by side. Probabilities are not its business. It may be `Pausing`.
    """

    @property
    def tier(self) -> Tier: ...

    @property
    def pairs(self) -> Sequence[MetricScorer]: ...

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]: ...


@runtime_checkable
class PausableScorer(Protocol):
    """What a `TierScorer` may say of itself: whether traces should wait for it.

    `paused`: what it asks is down. `trying`: it is paused, and one trace taken now would find out
    whether it still is.
    """

    @property
    def paused(self) -> bool: ...

    @property
    def trying(self) -> bool: ...


@runtime_checkable
class EmbeddingScorer(Protocol):
    """The scorer of the tier `embedding`: the vectors of a trace's question and answer, or why
    there are none, as a label. It does not raise."""

    async def embed(self, trace: Trace) -> AnswerVectors | str: ...
