"""One attempt of a call: how it ended, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from agent.tiers import Cost

__all__ = ["OUTCOMES", "Attempt", "Bill", "Outcome", "Usage", "estimated_tokens"]

Outcome = Literal[
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

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the reply counts them."""

    input_tokens: int
    output_tokens: int


class Answered(Protocol):
    """What of a completion counts for the bill."""

    @property
    def text(self) -> str: ...

    @property
    def usage(self) -> Usage | None: ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt used. `usd` by the configured prices.

    `estimated`: the reply gave no usage, and the tokens are characters / 4.
    """

    judge: str
    outcome: Outcome
    input_tokens: int
    output_tokens: int
    usd: float
    seconds: float
    estimated: bool = False


def estimated_tokens(characters: int) -> int:
    """Tokens of a text of so many characters, at 4 characters a token, the usual rule for English;
    never 0 for a text that is there."""
    return -(-characters // 4)


# Tokens were used, or may have been: an attempt that we gave up is one the server may work on.
COSTLY: frozenset[Outcome] = frozenset(
    {"ok", "malformed", "cut_off", "refused", "too_large", "timeout", "cancelled"}
)


MOST_OUTPUT = 200_000
"""Tokens of one reply, hidden thoughts included: more than any model writes."""


def _credible(usage: Usage, characters: int) -> bool:
    """Whether a count can be true: a character is at most four tokens (its bytes), and a chat
    template adds some hundreds. A gateway that counts wrongly must not use up a day's budget."""
    return usage.input_tokens <= 4 * characters + 1000 and usage.output_tokens <= MOST_OUTPUT


class Bill:
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
        cost: Cost,
        outcome: Outcome,
        characters: int,
        completion: Answered | None,
        seconds: float,
    ) -> None:
        """Adds one attempt whose prompt had so many characters to `cost`."""
        tokens_in = tokens_out = 0
        usage = completion.usage if completion is not None else None
        if usage is not None and not _credible(usage, characters):
            usage = None
        estimated = usage is None and outcome in COSTLY
        if usage is not None:
            tokens_in, tokens_out = usage.input_tokens, usage.output_tokens
        elif estimated:
            tokens_in = estimated_tokens(characters)
            tokens_out = estimated_tokens(len(completion.text) if completion is not None else 0)
        usd = (tokens_in * self._input_usd + tokens_out * self._output_usd) * 1e-6
        cost.requests += 1
        cost.input_tokens += tokens_in
        cost.output_tokens += tokens_out
        cost.usd += usd
        cost.seconds += seconds
        self._observe(Attempt(self._judge, outcome, tokens_in, tokens_out, usd, seconds, estimated))
