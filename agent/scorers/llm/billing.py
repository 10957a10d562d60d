"""Attempts at a call with their tokens, cost and outcome, and the counters over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from ragmeter.core.tiers import ScoringCost

AttemptOutcome = Literal[
    "ok",
    "malformed",
    "cut_off",
    "refused",
    "too_long",
    "too_large",
    "unsupported",
    "denied",
    "client_error",
    "rate_limited",
    "server_error",
    "timeout",
    "connection",
    "cancelled",
]
"""How an attempt ended; a closed set, fit for a label.

`ok`; `malformed`: answered, and the answer cannot be read; `cut_off`: the output limit ended it;
`refused`: by the model or a filter; `too_long`: more than the model's context; `too_large`: the
reply passed our bound; `unsupported`: the server does not know a parameter that we can do
without; `denied`: 401, 403, 404 or a redirect; `client_error`: another 4xx; `rate_limited`: 429;
`server_error`: 5xx, 408, 409 or a reply that is no completion; `timeout`: ours; `connection`;
`cancelled`: by us.
"""

ATTEMPT_OUTCOMES: tuple[AttemptOutcome, ...] = get_args(AttemptOutcome)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens, as the reply counts them."""

    input_tokens: int
    output_tokens: int


class BillableReply(Protocol):
    """What of a completion counts for the bill."""

    @property
    def text(self) -> str: ...

    @property
    def usage(self) -> TokenUsage | None: ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt used. `usd` by the configured prices.

    `estimated`: the reply gave no usage, and the tokens are characters / 4.
    """

    judge: str
    outcome: AttemptOutcome
    input_tokens: int
    output_tokens: int
    usd: float
    seconds: float
    estimated: bool = False


def _estimate_tokens(characters: int) -> int:
    """Tokens of a text of so many characters, at 4 characters a token, the usual rule for English;
    never 0 for a text that is there."""
    return -(-characters // 4)


# Tokens were used, or may have been: an attempt that we gave up is one the server may work on.
_COSTLY_OUTCOMES: frozenset[AttemptOutcome] = frozenset(
    {"ok", "malformed", "cut_off", "refused", "too_large", "timeout", "cancelled"}
)


_MAX_CREDIBLE_OUTPUT = 200_000
"""Tokens of one reply, hidden thoughts included: more than any model writes."""


def _is_credible(usage: TokenUsage, characters: int) -> bool:
    """Whether a count can be true: a character is at most four tokens (its bytes), and a chat
    template adds some hundreds. A gateway that counts wrongly must not use up a day's budget."""
    return (
        usage.input_tokens <= 4 * characters + 1000 and usage.output_tokens <= _MAX_CREDIBLE_OUTPUT
    )


class AttemptBilling:
    """Counts what the attempts of one judge use, by its prices in USD a million tokens."""

    def __init__(
        self,
        judge: str,
        input_usd: float,
        output_usd: float,
        observe: Callable[[Attempt], None],
    ) -> None:
        self._judge = judge
        self._input_usd = input_usd
        self._output_usd = output_usd
        self._observe = observe

    def add(
        self,
        cost: ScoringCost,
        outcome: AttemptOutcome,
        characters: int,
        completion: BillableReply | None,
        seconds: float,
    ) -> None:
        """Adds one attempt whose prompt had so many characters to `cost`."""
        tokens_in = tokens_out = 0
        usage = completion.usage if completion is not None else None
        if usage is not None and not _is_credible(usage, characters):
            usage = None
        estimated = usage is None and outcome in _COSTLY_OUTCOMES
        if usage is not None:
            tokens_in, tokens_out = usage.input_tokens, usage.output_tokens
        elif estimated:
            tokens_in = _estimate_tokens(characters)
            tokens_out = _estimate_tokens(len(completion.text) if completion is not None else 0)
        usd = (tokens_in * self._input_usd + tokens_out * self._output_usd) * 1e-6
        cost.requests += 1
        cost.input_tokens += tokens_in
        cost.output_tokens += tokens_out
        cost.usd += usd
        cost.seconds += seconds
        self._observe(Attempt(self._judge, outcome, tokens_in, tokens_out, usd, seconds, estimated))


class CounterAdd(Protocol):
    def __call__(
        self, name: str, labels: tuple[tuple[str, str], ...], by: float = 1, /
    ) -> object: ...


def count_attempt(add: CounterAdd, attempt: Attempt) -> None:
    judge = ("judge", attempt.judge)
    add("ragmeter_judge_requests_total", (judge, ("outcome", attempt.outcome)))
    for direction, tokens in (("input", attempt.input_tokens), ("output", attempt.output_tokens)):
        if tokens:
            add("ragmeter_judge_tokens_total", (judge, ("direction", direction)), tokens)
    if attempt.usd:
        add("ragmeter_judge_cost_usd_total", (judge,), attempt.usd)


def count_verdict(add: CounterAdd, judge: str, source: str) -> None:
    """Where a verdict came from: `source` is the judge itself or what is remembered of it."""
    add("ragmeter_judge_verdicts_total", (("judge", judge), ("source", source)))


def count_canary(add: CounterAdd, cost: ScoringCost) -> None:
    """What a canary has cost of all that the judge was asked."""
    for name, by in (
        ("requests", cost.requests),
        ("tokens", cost.input_tokens + cost.output_tokens),
        ("cost_usd", cost.usd),
    ):
        if by:
            add(f"ragmeter_canary_judge_{name}_total", (), by)
