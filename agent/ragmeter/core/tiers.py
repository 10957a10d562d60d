"""The sampled scoring tiers: their names, scorer protocols and costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from ragmeter.core.judging import JudgeUse
from ragmeter.core.score import Score
from ragmeter.trace import Trace

# `builtin` brings its results at once, `model` and `judge` later.
Tier = Literal["builtin", "model", "judge"]
TIERS: tuple[Tier, ...] = ("builtin", "model", "judge")

MetricScorer = tuple[str, str]  # (metric, scorer)


@dataclass(slots=True)
class ScoringCost:
    """The cost of scoring a trace, failed attempts included.

    Args:
        usd: Price of the tokens in US dollars.
        seconds: Sum of the times that calls were in flight or cores were busy: two calls side by
            side for one second are two seconds.
        uses: What each judge was used for.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    uses: dict[str, JudgeUse] = field(default_factory=dict, compare=False)

    def use(self, judge: str) -> JudgeUse:
        """Return what a judge was used for, to add to."""
        return self.uses.setdefault(judge, JudgeUse())

    def add(self, other: ScoringCost) -> None:
        """Add another cost to this one."""
        self.requests += other.requests
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.usd += other.usd
        self.seconds += other.seconds
        for judge, use in other.uses.items():
            self.use(judge).add(use)


class TierScorer(Protocol):
    """A scorer of the `model` or `judge` tier, given only the traces that its tier has drawn.

    It leaves inclusion probabilities to its caller. It may also be a `PausableScorer`.
    """

    @property
    def tier(self) -> Tier:
        """Its tier."""

    @property
    def pairs(self) -> Sequence[MetricScorer]:
        """The pairs that it scores."""

    async def score(self, trace: Trace, cost: ScoringCost) -> list[Score]:
        """Score a trace, many of them side by side, without blocking the event loop.

        The cost of the call is added to `cost`.

        Returns:
            At most one score for each pair. A pair that is left out, and every pair if it raises,
            is `unscored` with the reason `internal_error`.
        """


@runtime_checkable
class PausableScorer(Protocol):
    """A `TierScorer` that knows whether traces should wait for it."""

    @property
    def paused(self) -> bool:
        """Whether its server is down."""

    @property
    def trying(self) -> bool:
        """Whether it is paused, and one trace sent now would tell if its server is back."""


@runtime_checkable
class LimitedScorer(Protocol):
    """A `TierScorer` whose server may take fewer calls than the settings allow."""

    def capacity_share(self) -> float:
        """Return the share of its places that the server is thought to take, in (0, 1]."""


@runtime_checkable
class ReferenceMeasurer(Protocol):
    """A `TierScorer` that measures what the reference of a canary cannot say by itself."""

    async def measure(self, trace: Trace, cost: ScoringCost) -> Trace:
        """Return the trace with what was measured in its reference; other traces as they are."""
