"""Attempts at a call with their tokens, cost and outcome, and the counters over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from ragmeter.core.counters import DURATION_EDGES, bucket_edge
from ragmeter.core.judging import JudgeUse
from ragmeter.core.tiers import ScoringCost

# How an attempt ended: a closed set, fit for a label.
AttemptOutcome = Literal[
    "ok",
    "malformed",  # answered, and the answer cannot be read
    "cut_off",  # by the output limit
    "refused",  # by the model or a filter
    "too_long",  # more than the model's context
    "too_large",  # the reply exceeds our bound
    "unsupported",  # the server does not know a parameter that we can do without
    "denied",  # 401, 403, 404 or a redirect
    "client_error",  # another 4xx
    "rate_limited",  # 429
    "server_error",  # 5xx, 408, 409, or a reply that is no completion
    "timeout",  # ours
    "connection",
    "cancelled",  # by us
]
ATTEMPT_OUTCOMES: tuple[AttemptOutcome, ...] = get_args(AttemptOutcome)

# Tokens were used, or may have been: the server may work on an attempt that we gave up.
_COSTLY_OUTCOMES: frozenset[AttemptOutcome] = frozenset(
    {"ok", "malformed", "cut_off", "refused", "too_large", "timeout", "cancelled"}
)

# The server worked on the attempt until its end, so that its time says how slow the server is.
_TIMED_OUTCOMES = _COSTLY_OUTCOMES - {"cancelled"}

# Adds to a counter by name and labels, as `Counters.inc` does.
CounterAdd = Callable[..., object]

# Tokens of one reply, hidden thoughts included: more than any model writes.
_MAX_CREDIBLE_OUTPUT = 200_000


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens as the reply counts them."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """The use of one attempt.

    `usd` follows from the configured prices. `estimated`: the reply gave no usage, and the tokens
    are characters / 4.
    """

    judge: str
    outcome: AttemptOutcome
    input_tokens: int
    output_tokens: int
    usd: float
    seconds: float
    estimated: bool = False

    @property
    def timed(self) -> bool:
        """Whether its time is a latency of the judge: a completion came, or a timeout."""
        return self.outcome in _TIMED_OUTCOMES


def _is_credible(usage: TokenUsage, characters: int) -> bool:
    # A character is at most four tokens (its bytes), and a chat template adds some hundreds. A
    # gateway that counts wrongly must not use up a day's budget.
    most = 4 * characters + 1000
    return usage.input_tokens <= most and usage.output_tokens <= _MAX_CREDIBLE_OUTPUT


class AttemptBilling:
    """Counts the use of one judge by its prices.

    Args:
        input_usd: Price of a million tokens in.
        output_usd: Price of a million tokens out.
    """

    def __init__(
        self, judge: str, input_usd: float, output_usd: float, observe: Callable[[Attempt], None]
    ) -> None:
        self._judge = judge
        self._input_usd = input_usd
        self._output_usd = output_usd
        self._observe = observe

    def add(
        self,
        cost: ScoringCost,
        outcome: AttemptOutcome,
        characters: tuple[int, int],
        usage: TokenUsage | None,
        seconds: float,
    ) -> None:
        """Add one attempt to `cost`.

        `characters` are those of the prompt and of the answer, `usage` the tokens as the reply
        counts them, `seconds` the time in flight.
        """
        if usage is not None and not _is_credible(usage, characters[0]):
            usage = None
        estimated = usage is None and outcome in _COSTLY_OUTCOMES
        if estimated:
            # 4 characters a token, the usual rule for English; rounded up
            usage = TokenUsage(*(-(-number // 4) for number in characters))
        tokens_in, tokens_out = (usage.input_tokens, usage.output_tokens) if usage else (0, 0)
        usd = (tokens_in * self._input_usd + tokens_out * self._output_usd) / 1e6
        attempt = Attempt(
            judge=self._judge,
            outcome=outcome,
            input_tokens=tokens_in,
            output_tokens=tokens_out,
            usd=usd,
            seconds=seconds,
            estimated=estimated,
        )
        latencies = [seconds] if attempt.timed else []
        use = JudgeUse(
            calls=1,
            cached=0,
            input_tokens=tokens_in,
            output_tokens=tokens_out,
            estimated=int(estimated),
            usd=usd,
            latencies=latencies,
        )
        cost.add(
            ScoringCost(
                requests=1,
                input_tokens=tokens_in,
                output_tokens=tokens_out,
                usd=usd,
                seconds=seconds,
                uses={self._judge: use},
            )
        )
        self._observe(attempt)


def count_attempt(add: CounterAdd, attempt: Attempt) -> None:
    """Count an attempt, its tokens, its cost and its time."""
    judge = ("judge", attempt.judge)
    add("ragmeter_judge_requests_total", (judge, ("outcome", attempt.outcome)))
    for direction, tokens in (("input", attempt.input_tokens), ("output", attempt.output_tokens)):
        if tokens:
            add("ragmeter_judge_tokens_total", (judge, ("direction", direction)), tokens)
    if attempt.timed:
        edge = bucket_edge(attempt.seconds, DURATION_EDGES)
        add("ragmeter_judge_duration_seconds_bucket", (judge, ("le", edge)))
        add("ragmeter_judge_duration_seconds_sum", (judge,), attempt.seconds)
    if attempt.usd:
        add("ragmeter_judge_cost_usd_total", (judge,), attempt.usd)


def count_verdict(add: CounterAdd, judge: str, source: str) -> None:
    """Count a verdict by its source: the judge, its cache, or a call shared with another."""
    add("ragmeter_judge_verdicts_total", (("judge", judge), ("source", source)))


def count_canary(add: CounterAdd, cost: ScoringCost) -> None:
    """Count the cost of judging a canary."""
    tokens = cost.input_tokens + cost.output_tokens
    for name, by in (("requests", cost.requests), ("tokens", tokens), ("cost_usd", cost.usd)):
        if by:
            add(f"ragmeter_canary_judge_{name}_total", (), by)
