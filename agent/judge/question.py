"""What a judge is asked and what comes back: the seam between the metrics and the client.

A metric makes a `Question`; whoever can `ask` (the HTTP client, a cache before it, a fake in a
test) gives a `Verdict` or raises `JudgeFailed` with the reason that the score will carry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from agent.tiers import Cost

__all__ = ["Asking", "JudgeFailed", "Question", "Reason", "Verdict"]

T = TypeVar("T")

Reason = str
"""Why a call gave no verdict: `judge_error`, `judge_timeout`, `judge_refused`,
`judge_unavailable` (breaker open), `unparsable`, `too_long`."""


class JudgeFailed(Exception):
    """A call that gave no verdict. `reason` is what the score will carry; the text is for logs
    and holds nothing of the trace and no secret."""

    def __init__(self, reason: Reason, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One call to a judge, rendered.

    `prompt` is the name and version of the prompt, `prompt_hash` the hash of its file. `schema` is
    the JSON Schema that the answer must have. `read` turns the decoded JSON into the verdict and
    raises ValueError, with a text that tells the judge what is wrong, where it cannot.
    `max_output_tokens` bounds the answer.
    """

    prompt: str
    prompt_hash: str
    system: str
    user: str
    schema: Mapping[str, Any]
    read: Callable[[Any], T]
    max_output_tokens: int = 200


@dataclass(frozen=True, slots=True)
class Verdict(Generic[T]):
    """`fingerprint` says which instrument answered (12 hex digits): model as served, prompt hash,
    parameters, code version. `cached`: no call was made."""

    value: T
    fingerprint: str
    cached: bool = False


class Asking(Protocol):
    """Who answers questions."""

    async def ask(self, question: Question[T], cost: Cost) -> Verdict[T]:
        """The verdict; what it cost, failed attempts too, is added to `cost`.

        Raises `JudgeFailed`, and nothing else on account of judge or network.
        """
        ...
