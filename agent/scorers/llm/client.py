"""Client of one OpenAI-compatible chat endpoint: retries, repairs and dialect fallbacks.

Every failure ends in `JudgeFailed` with the reason for the score; every attempt is observed and
paid for. docs/judge.md says what is done about each kind of failure.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import httpx

from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.pacing import backoff_seconds
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.admission import TRANSIENT_OUTCOMES, AdmissionControl, AttemptPermit
from ragmeter.scorers.llm.billing import Attempt, AttemptBilling, AttemptOutcome
from ragmeter.scorers.llm.dialect import (
    ChatDialect,
    ChatMessage,
    correction_messages,
    encode_chat_request,
    first_messages,
)
from ragmeter.scorers.llm.exchange import FailedAttempt, HttpExchange, RetryBudget
from ragmeter.scorers.llm.questions import (
    JudgeFailed,
    JudgeFailureReason,
    JudgeQuestion,
    JudgeVerdict,
    MalformedAnswer,
    find_schema_violation,
    parse_answer_json,
)
from ragmeter.scorers.llm.replies import ChatCompletion
from ragmeter.scorers.llm.served_model import JudgeServerState, ServedModel
from ragmeter.scorers.llm.transport import ApiKey, make_http_client

T = TypeVar("T")

log = logging.getLogger("ragmeter.judge")

# Attempts to repair a malformed answer, each with the error in hand.
_REPAIRS = 2

# A reasoning model spends its output limit on thoughts first: 8 x 200 tokens leave it room, and a
# model that runs away is still stopped.
_ROOMY_FACTOR = 8

_LOG_SECONDS = 60.0

# Without budget for a retry a call looks after so long whether the judge is down altogether: then
# it waits for it like others. A round of a server that fails takes less.
LOOK_SECONDS = 2.0

# The server did its work: these say nothing against it.
_ANSWERED_OUTCOMES: frozenset[AttemptOutcome] = frozenset(
    {"malformed", "cut_off", "refused", "too_long", "too_large"}
)

_FAILURE_REASONS: Mapping[AttemptOutcome, JudgeFailureReason] = {
    "malformed": "unparsable",
    "cut_off": "unparsable",
    "too_large": "unparsable",
    "refused": "judge_refused",
    "too_long": "too_long",
    "timeout": "judge_timeout",
}


@dataclass(frozen=True, slots=True)
class JudgeAnswer(Generic[T]):
    """A verdict with the decoded JSON that it was read from: what a cache keeps."""

    value: T
    data: dict[str, Any]
    fingerprint: str


@dataclass(slots=True)
class _Conversation(Generic[T]):
    """One call: what has been said and tried so far.

    `adapted`: its dialect is its own; `learned`: and is kept for others if it gets an answer.
    `unpaid`: the budget has no retry for it, unless the judge is down and comes back.
    """

    question: JudgeQuestion[T]
    dialect: ChatDialect
    roomy: bool
    adapted: bool = False
    learned: bool = False
    corrections: list[ChatMessage] = field(default_factory=list)
    repairs: int = 0
    failures: int = 0
    unpaid: bool = False
    rekeyed: bool = False
    resized: bool = False


def _ignore(*_: Any) -> None:
    pass


class JudgeClient:
    """Asks one judge. Several judges are several clients: nothing is shared between them.

    `name` stands in counters and logs. `http`: a client of the caller's, not closed here; none:
    one of our own. `state`: what `state()` gave before a restart. `observe` sees every attempt,
    `on_change(old, new)` every new epoch (`Epochs`). Clocks in seconds, `clock` in Unix time.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        *,
        name: str = "judge",
        http: httpx.AsyncClient | None = None,
        state: Mapping[str, Any] | None = None,
        observe: Callable[[Attempt], None] = _ignore,
        on_change: Callable[[ServedModel, ServedModel], None] = _ignore,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        if settings.base_url is None:
            raise ValueError("a judge needs a base_url")
        url = httpx.URL(settings.base_url.rstrip("/") + "/chat/completions")
        self.name = name
        self._settings = settings
        self._key = ApiKey(settings.api_key, settings.api_key_file, url.userinfo)
        self._url = url.copy_with(userinfo=b"")
        self._own_http = http is None
        self._http = http or make_http_client(str(self._url))
        self._exchange = HttpExchange(self._http, self._url, settings.timeout_seconds, clock)
        self._bill = AttemptBilling(
            name, settings.input_usd_per_million, settings.output_usd_per_million, observe
        )
        self._monotonic = monotonic
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._turns = AdmissionControl(settings.concurrency, monotonic, sleep)
        self._budget = RetryBudget()
        self._logged = float("-inf")
        self._known = JudgeServerState(
            settings, str(self._url), name, state or {}, on_change, monotonic
        )

    async def ask(self, question: JudgeQuestion[T], cost: ScoringCost) -> JudgeVerdict[T]:
        """The verdict of the judge. Raises `JudgeFailed`.

        While the judge is down it waits, for about `ragmeter.scorers.llm.admission.PATIENCE` seconds.
        """
        answer = await self.answer(question, cost)
        return JudgeVerdict(answer.value, answer.fingerprint)

    async def answer(self, question: JudgeQuestion[T], cost: ScoringCost) -> JudgeAnswer[T]:
        """As `ask`, with the decoded JSON."""
        if not await self._turns.gate.wait():
            raise JudgeFailed("judge_unavailable", f"{self.name} is down")
        self._budget.call(self._monotonic())
        talk = _Conversation(question, self._known.dialect, self._known.roomy)
        last: FailedAttempt | None = None
        while True:
            result = await self._turns.run(partial(self._attempt, talk, cost))
            if isinstance(result, JudgeAnswer):
                return result
            if result is None:
                if last is None:
                    raise JudgeFailed("judge_unavailable", f"{self.name} is down")
                raise self._failed(last)
            last = result
            pause = self._again(talk, result)
            if pause is None:
                raise self._failed(result)
            if pause > 0:
                await self._sleep(pause)
            if talk.unpaid and not self._turns.is_down:
                raise self._failed(result)

    @property
    def served(self) -> ServedModel | None:
        """Who stands for the instrument now (`Epochs`); none before the first reply."""
        return self._known.served

    @property
    def endpoint(self) -> str:
        """The URL, without credentials."""
        return str(self._url)

    @property
    def is_down(self) -> bool:
        """Whether the circuit breaker is open."""
        return self._turns.is_down

    @property
    def takes_trial(self) -> bool:
        """Whether the judge is down and a call would find out now if it still is."""
        return self._turns.takes_trial

    @property
    def in_flight(self) -> int:
        return self._turns.limiter.in_flight

    @property
    def limit(self) -> int:
        """Attempts that may be in flight now."""
        return self._turns.limiter.size

    def fingerprint(self, prompt_hash: str) -> str | None:
        """What the next answer to this prompt carries if it begins no epoch; none before the first
        reply."""
        known = self._known
        if known.served is None:
            return None
        return known.fingerprint(known.served, prompt_hash, known.dialect)

    def state(self) -> dict[str, Any]:
        """What is worth knowing after a restart, for JSON: who served, how it must be asked."""
        return self._known.state()

    async def aclose(self) -> None:
        if self._own_http:
            await self._http.aclose()

    async def _attempt(
        self, talk: _Conversation[T], cost: ScoringCost, turn: AttemptPermit
    ) -> JudgeAnswer[T] | FailedAttempt:
        result = await self._sent(talk, cost)
        # in the same slot: behind others in the queue, all of them would find it out too
        while isinstance(result, FailedAttempt) and self._adapted(talk, result):
            result = await self._sent(talk, cost)
        self._report(result, turn)
        return result

    async def _sent(
        self, talk: _Conversation[T], cost: ScoringCost
    ) -> JudgeAnswer[T] | FailedAttempt:
        if not talk.adapted:
            talk.dialect = self._known.dialect
        question, dialect = talk.question, talk.dialect
        messages = [*first_messages(question, dialect), *talk.corrections]
        limit = question.max_output_tokens * (_ROOMY_FACTOR if talk.roomy else 1)
        body = encode_chat_request(
            question.schema, dialect, messages, self._known.parameters(dialect), limit
        )
        characters = sum(len(message["content"]) for message in messages)
        header = self._key.header
        reply: ChatCompletion | FailedAttempt | None = None
        result: JudgeAnswer[T] | FailedAttempt | None = None
        begun = self._monotonic()
        try:
            reply = await self._exchange.post(body, header)
            result = self._read(talk, reply) if isinstance(reply, ChatCompletion) else reply
            if isinstance(result, FailedAttempt):
                self._consider(talk, result, header)
            return result
        finally:
            outcome: AttemptOutcome = "cancelled"
            if result is not None:
                outcome = "ok" if isinstance(result, JudgeAnswer) else result.outcome
            completion = reply if isinstance(reply, ChatCompletion) else None
            seconds = self._monotonic() - begun
            self._bill.add(cost, outcome, characters, completion, seconds)

    def _read(
        self, talk: _Conversation[T], reply: ChatCompletion
    ) -> JudgeAnswer[T] | FailedAttempt:
        served = self._known.record_completion(reply.served, talk.dialect, learned=talk.learned)
        if reply.refused:
            return FailedAttempt("refused", "by the model or a filter")
        question = talk.question
        try:
            data = parse_answer_json(reply.text)
            problem = find_schema_violation(data, question.schema)
            if problem:
                raise MalformedAnswer(problem)
            value = question.read(data)
        except ValueError as error:  # `Malformed` is one
            if reply.cut_off:
                return FailedAttempt("cut_off", "by the output limit")
            return FailedAttempt(
                "malformed", "no readable answer", text=reply.text, error=str(error)
            )
        self._known.record_readable(talk.dialect, roomy=talk.roomy)
        mark = self._known.fingerprint(served, question.prompt_hash, talk.dialect)
        return JudgeAnswer(value, data, mark)

    def _consider(self, talk: _Conversation[Any], miss: FailedAttempt, header: str | None) -> None:
        """Whether another key or dialect may help."""
        if miss.status == 401 and not talk.rekeyed:
            self._key.reread()
            miss.rekeyed = talk.rekeyed = self._key.header != header
        elif miss.complaint is not None:
            miss.weaker = self._known.weaken(talk.dialect, miss.complaint)
            if miss.weaker is not None:
                miss.outcome = "unsupported"

    def _adapted(self, talk: _Conversation[Any], miss: FailedAttempt) -> bool:
        """Whether to send it again at once. It ends: each dialect is weaker than the last."""
        if miss.weaker is not None:
            talk.dialect, talk.adapted, talk.learned = miss.weaker, True, True
        return miss.rekeyed or miss.weaker is not None

    def _report(self, result: JudgeAnswer[Any] | FailedAttempt, turn: AttemptPermit) -> None:
        """Tells those who take turns, and the log."""
        if isinstance(result, JudgeAnswer) or result.outcome in _ANSWERED_OUTCOMES:
            self._turns.succeeded(turn)
            return
        opened, now = self._turns.failed(turn, result), self._monotonic()
        if opened and now - self._logged >= _LOG_SECONDS:
            self._logged = now
            advice = ": check base_url, model and key" if result.outcome == "denied" else ""
            hint = f"; {self._key.problem}" if self._key.problem else ""
            kind = result.outcome.replace("_", " ")
            log.warning("%s is down: %s, %s%s%s", self.name, kind, result.detail, advice, hint)

    def _again(self, talk: _Conversation[Any], miss: FailedAttempt) -> float | None:
        """Seconds until the next attempt of this call; none: there is none."""
        now = self._monotonic()
        if miss.outcome == "malformed":
            if talk.repairs >= _REPAIRS or not self._budget.allows(now):
                return None
            talk.repairs += 1
            talk.corrections = correction_messages(miss.text, miss.error)
            other = self._known.record_unreadable(talk.dialect)
            if other is not None:
                talk.dialect, talk.adapted = other[0], True
                talk.learned = talk.learned or other[1]
            return 0.0
        # room that a reasoning model needs for thoughts, or that a long prompt does not leave
        if miss.outcome == ("too_long" if talk.roomy else "cut_off"):
            if talk.resized or not self._budget.allows(now):
                return None
            talk.roomy, talk.resized = not talk.roomy, True
            return 0.0
        hopeless = (
            miss.outcome not in TRANSIENT_OUTCOMES or miss.hopeless or self._turns.breaker.lost
        )
        if hopeless or talk.failures >= self._settings.retries:
            return None
        pause = backoff_seconds(talk.failures, self._rng)
        talk.failures += 1
        # what waits for the judge to come back is no load on one that fails
        talk.unpaid = not self._turns.is_down and not self._budget.allows(now)
        return max(LOOK_SECONDS if talk.unpaid else pause, miss.retry_after or 0.0)

    def _failed(self, miss: FailedAttempt) -> JudgeFailed:
        reason = _FAILURE_REASONS.get(miss.outcome, "judge_error")
        return JudgeFailed(reason, f"{self.name}: {miss.outcome}: {miss.detail}")
