"""Assign traces to sampling strata and draw which of them a tier scores.

The cheap scores are known when a slow tier draws, so errors, the traffic of a new model or prompt,
low scores and rare segments can be drawn more often; every stratum keeps its weight in the
estimate. A ratio is at least 1 and at most 5: from 10 on it costs more width than it ever saves.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol

from ragmeter.config.scoring import SamplingRates, SamplingSettings
from ragmeter.core.score import Score, ScoreState
from ragmeter.core.tiers import ScoringCost, Tier
from ragmeter.sampling.budget_controller import MAX_SERVICES, REST_SERVICES, BudgetController
from ragmeter.sampling.control import VERSION_TAGS, SamplingControl
from ragmeter.windows.sums import RATE_CLASS_SEPARATOR

# Key of the hash that draws: one of our own, so that no upstream sampler takes the same ids.
SALT = "ragmeter"

# Seconds that a model or prompt version is `new`: of a deployment the first hour says the most, and
# a control record holds as long.
NEW_SECONDS = 3600.0

# How much more often a stratum is drawn than the rest. Failures, new versions and rare segments are
# few, so three times costs little; `low` is a fifth of the traffic. Each at least 1 and at most 5.
RATIOS: Mapping[str, float] = {"error": 3.0, "new": 3.0, "low": 2.0, "rare": 3.0}

# The scale never falls below this: whatever the budget, no stratum is without any draw for long,
# and no weight above 500 times the usual one dominates an estimate.
RATE_FLOOR = 0.002


# Share of the queue that may fill before the built-in tier is drawn less: a burst of half the queue
# is scored in full. Each eighth beyond halves the scale, four times: then the built-in scorers take
# a tenth of the time that a trace takes, and less of them would hardly help.
_QUEUE_ROOM = 0.5
_QUEUE_STEP = 0.125
_MOST_STEPS = 4


def overload_scale(filled: float) -> float:
    """Return the scale of the built-in tier, 1 to 1/16, when a share of the queue is filled."""
    steps = math.ceil((filled - _QUEUE_ROOM) / _QUEUE_STEP)
    return 2.0 ** -min(max(steps, 0), _MOST_STEPS)


# Part of its share that a replay plans for: committing what the model returns costs the agent too.
_PLANNED = 0.75

# CPU seconds of a draw until one is done: the first one opens the model.
_FIRST_SECONDS = 0.9

# Draws at the full rate that a service is thought to want at least: of its first traces, else, all
# would be drawn while there is income from the start of the process.
_LEAST_WANTED = 25.0

# Draws of debt that halve the scale, and of savings that double it.
_SLACK = 2.0

_LEAST_STEPS = -24  # of half a power of two: no scale is zero


class ReplayBudget:
    """Keeps the CPU time that a model takes in a replay within its share of the process's.

    A replay goes as fast as it can, so no clock on the wall bounds it. Of each CPU second of the
    process, the model may take its share, and it pays what it is measured to take, so nothing is
    free. Services share that equally. The scale follows from totals (income, cost of a draw,
    traces), and debts and savings correct it, so it becomes constant where both are equal.

    `settle` may be called from any thread, everything else belongs to the thread that draws.

    Args:
        share: Share of the CPU time of the process that the model may take.
        cpu: CPU seconds of the process.
    """

    def __init__(self, share: float, cpu: Callable[[], float]) -> None:
        self._share = _PLANNED * share
        self._cpu = cpu
        self._wanted: dict[str, float] = {}  # draws at the full rate by service
        self._drawn = 0
        self._settled: deque[float] = deque()  # CPU seconds of draws that are done, to be taken in
        self._done = 0
        self._spent = 0.0

    def offer(self, service: str, now: float, rate: float = 1.0) -> float:
        """Take in the next trace; return the scale for its draw, which `rate` is multiplied by."""
        known = service in self._wanted or len(self._wanted) < MAX_SERVICES
        name = service if known else REST_SERVICES
        wanted = self._wanted[name] = self._wanted.get(name, 0.0) + min(rate, 1.0)
        while self._settled:
            self._spent += self._settled.popleft()
            self._done += 1
        cost = (_FIRST_SECONDS + self._spent) / (1 + self._done)
        income = self._share * self._cpu() / cost
        left = income - self._spent / cost - max(0, self._drawn - self._done)
        even = income / len(self._wanted) / max(_LEAST_WANTED, wanted)
        steps = math.floor(2 * (math.log2(even) + left / _SLACK))
        return math.exp2(max(_LEAST_STEPS, min(0, steps)) / 2)  # few: windows group by probability

    def reserve(self, service: str, now: float) -> None:
        """Take in that the trace offered last was drawn."""
        self._drawn += 1

    def settle(self, cost: ScoringCost) -> None:
        """Take in what a drawn trace has cost once it is done."""
        self._settled.append(cost.seconds)


class SampledTrace(Protocol):
    """What a draw depends on: a `Trace`, or its scores where its texts are elsewhere."""

    @property
    def trace_id(self) -> str:
        """Id of the trace."""

    @property
    def service(self) -> str:
        """Its service."""

    @property
    def probability(self) -> float:
        """Upstream inclusion probability."""

    @property
    def failed(self) -> bool:
        """Whether the request failed or brought no answer."""

    def tag(self, name: str) -> str | None:
        """Return a tag."""


class Stratum(NamedTuple):
    """A sampling stratum: `error`, `new`, `low`, `rare` or `rest`; `ratio` multiplies the rate."""

    name: str
    ratio: float


REST_STRATUM = Stratum("rest", 1.0)


def drawn_stratum(name: str, rate: float) -> str:
    """Return the name of the part of a stratum that was drawn at about `rate`: `low:3` is 2**-3.

    After a budget has lowered the rate (a burst of traffic), a few traces stand for many. Their
    number is known, so they are a stratum of their own; left to their weights, intervals under a
    budget that follows tenfold bursts cover .87 instead of .95.

    Args:
        name: Name of the stratum.
        rate: Our own share (0, 1] of the inclusion probability.
    """
    return f"{name}{RATE_CLASS_SEPARATOR}{max(0, round(-math.log2(rate)))}"


class StratumClassifier:
    """Assigns traces to strata by the last control record, which any thread may replace.

    Args:
        segments: Tags that windows distinguish.
        control: The first record.
        ratios: How much more often each stratum is drawn than the rest.
    """

    def __init__(
        self,
        segments: Sequence[str] = (),
        control: SamplingControl | None = None,
        ratios: Mapping[str, float] = RATIOS,
    ) -> None:
        self._segments = tuple(segments)
        self._control = control or SamplingControl()
        self._strata = {name: Stratum(name, ratio) for name, ratio in ratios.items()}

    def apply_control(self, control: SamplingControl) -> None:
        """Use another record from the next trace on."""
        self._control = control

    def classify(self, trace: SampledTrace, scores: Sequence[Score], timestamp: float) -> Stratum:
        """Return the first stratum that fits a trace, given its scores that are known at once."""
        control = self._control
        service = trace.service
        if trace.failed:
            return self._strata["error"]
        if self._is_new(trace, timestamp, control):
            return self._strata["new"]
        if self._is_low(scores, control.low.get(service, {})):
            return self._strata["low"]
        rare = control.rare.get(service)
        if rare and any(f"{tag}={trace.tag(tag)}" in rare for tag in self._segments):
            return self._strata["rare"]
        return REST_STRATUM

    @staticmethod
    def _is_new(trace: SampledTrace, timestamp: float, control: SamplingControl) -> bool:
        first = control.first.get(trace.service)
        if first is None or timestamp - first.get("", timestamp) < NEW_SECONDS:
            return False  # the service itself is new: all of it would be
        since = timestamp - NEW_SECONDS
        # a version that the record does not contain yet has come since it was made
        return any(
            first.get(f"{tag}={value}", timestamp) > since
            for tag in VERSION_TAGS
            if (value := trace.tag(tag))
        )

    @staticmethod
    def _is_low(scores: Sequence[Score], cuts: Mapping[str, float]) -> bool:
        return bool(cuts) and any(
            score.scorer == "builtin"
            and score.state is ScoreState.SCORED
            and score.value is not None
            and score.value < cuts[score.metric]
            for score in scores
            if score.metric in cuts
        )


def _key(salt: bytes) -> blake2b:
    return blake2b(key=salt, digest_size=8)


def _fraction(trace_id: str, key: blake2b) -> float:
    digest = key.copy()  # with the key already taken in: half the time
    digest.update(trace_id.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "big") / 2**64


def uniform_fraction(trace_id: str, salt: bytes) -> float:
    """Return a number in [0, 1) uniform over trace ids; `salt` is a key of at most 64 bytes."""
    return _fraction(trace_id, _key(salt))


def _plan(
    tier: str, settings: SamplingSettings, salt: str
) -> tuple[blake2b, float, dict[str, float]]:
    """Return the key of a tier, its rate, and its rates by service."""
    # blake2b keys are at most 64 bytes: a longer salt is hashed, not cut
    key = _key(blake2b(f"{tier}:{salt}".encode()).digest())
    services: dict[str, SamplingRates] = settings.services

    def rate(rates: SamplingRates) -> float:
        if tier == "model":  # people label what it has scored: they see its marks
            return max(rates.model, rates.people)
        return float(getattr(rates, tier))

    return key, rate(settings), {name: rate(rates) for name, rates in services.items()}


class SamplingDraw(NamedTuple):
    """The decision about a trace; `probability` is our rate times the upstream probability.

    A trace is `shed` if overload leaves it no draw; the probability is then the upstream one.
    """

    taken: bool
    probability: float
    shed: bool = False


class Sampler:
    """Draws by service and tier.

    The decision is a keyed hash of the trace id: the same everywhere and for every metric of a
    tier. The key is our own. A hash shared with an upstream head sampler at 10 % turned a nominal
    5 % into 50 % of what arrived, because both took the same ids.

    A tier with a controller is drawn, while `paced`, at its configured rate times the scale of the
    controller, other tiers at their configured rate. Such draws depend on those before: draw each
    trace once, in order of arrival, and store the result. Replays are not `paced`: a tier with a
    replay budget is scaled by that, unless its rate is 1.

    Args:
        settings: Rates by tier and service.
        clock: Returns Unix seconds for the controllers.
        salt: Key of the hash.

    Attributes:
        builtin_scale: Part of its rates at which the tier `builtin` is drawn, while `paced`.
    """

    def __init__(
        self,
        settings: SamplingSettings,
        controllers: Mapping[Tier, BudgetController] | None = None,
        clock: Callable[[], float] | None = None,
        replays: Mapping[Tier, ReplayBudget] | None = None,
        salt: str = SALT,
    ) -> None:
        if controllers and clock is None:
            raise ValueError("controllers need a clock")
        self._salt = salt
        self._controllers = dict(controllers or {})
        self._replays = dict(replays or {})
        self._clock = clock or (lambda: 0.0)
        self.paced = True
        self.builtin_scale = 1.0
        self.update(settings)

    def update(self, settings: SamplingSettings) -> None:
        """Use other rates from the next draw on; any thread may call this.

        No estimate jumps: each draw carries the probability that held.
        """
        # in one step: another thread may be drawing
        self._plan = {
            tier: _plan(tier, settings, self._salt) for tier in ("builtin", "model", "judge")
        }

    def admits_canary(self, tier: Tier) -> bool:
        """Decide whether a tier may score a canary: by the canaries' share, not by chance.

        If so, its cost must be settled with the controller as a canary's.
        """
        controller = self._controllers.get(tier) if self.paced else None
        return controller is None or controller.admit_canary(self._clock())

    def rate(self, tier: Tier, service: str) -> float:
        """Return the rate of a tier for a service, before strata and controllers."""
        _, default, rates = self._plan[tier]
        rate = rates.get(service, default)
        return rate * self.builtin_scale if tier == "builtin" and self.paced else rate

    def draw(
        self, trace: SampledTrace, tier: Tier, ratio: float = 1.0, at: float = 0.0
    ) -> SamplingDraw:
        """Decide whether a tier scores a trace of event time `at`.

        Its stratum is drawn `ratio` times as often as the rest. If it is to be scored, the expected
        cost is committed and must be settled with the tier's controller.
        """
        service = trace.service
        key = self._plan[tier][0]
        usual = self.rate(tier, service)
        rate = usual * ratio
        controller: BudgetController | ReplayBudget | None = self._controllers.get(tier)
        if not self.paced:
            # at the rate 1 there is no sample: all are asked for
            controller = None if usual >= 1 else self._replays.get(tier)
        now = self._clock() if self.paced else at
        if controller is not None:
            scale = controller.offer(service, now, rate)
            if not scale:
                return SamplingDraw(False, trace.probability, shed=True)
            rate *= max(RATE_FLOOR, scale) if self.paced else scale
        rate = min(1.0, rate)
        taken = rate >= 1 or _fraction(trace.trace_id, key) < rate
        if taken and controller is not None:
            controller.reserve(service, now)
        return SamplingDraw(taken, rate * trace.probability)
