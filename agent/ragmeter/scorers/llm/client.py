"""Client of one OpenAI-compatible chat endpoint: retries, repairs and dialect fallbacks.

Every failure ends in `JudgeFailed` with the reason for the score; every attempt is observed and
paid for. docs/judge.md says what is done about each kind of failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import httpx

from ragmeter.config.scoring import JudgeSettings
from ragmeter.core.judging import JudgeInstrument
from ragmeter.core.tiers import ScoringCost
from ragmeter.reasons import Reason
from ragmeter.scorers.llm.admission import TRANSIENT_OUTCOMES, AttemptPermit
from ragmeter.scorers.llm.billing import Attempt, AttemptBilling, AttemptOutcome
from ragmeter.scorers.llm.dialect import (
    ChatDialect,
    ChatMessage,
    correction_messages,
    encode_chat_request,
    first_messages,
)
from ragmeter.scorers.llm.exchange import ClientTiming, ServerConnection
from ragmeter.scorers.llm.questions import (
    JudgeFailed,
    JudgeFailureReason,
    JudgeQuestion,
    JudgeVerdict,
    MalformedAnswer,
    read_answer,
)
from ragmeter.scorers.llm.replies import ChatCompletion, FailedAttempt, read_chat_reply
from ragmeter.scorers.llm.served_model import JudgeServerState, OutputRoom, ServedModel

T = TypeVar("T")

# Attempts to repair a malformed answer, each with the error in hand.
_REPAIRS = 2

# Seconds after which a call without budget for a retry looks whether the judge is down altogether;
# then it waits for it like others. A round of a server that fails takes less.
LOOK_SECONDS = 2.0

# The server did its work: these outcomes are no sign that it is down.
_ANSWERED_OUTCOMES: frozenset[AttemptOutcome] = frozenset(
    {"malformed", "cut_off", "refused", "too_long", "too_large"}
)

_FAILURE_REASONS: Mapping[AttemptOutcome, JudgeFailureReason] = {
    "malformed": Reason.UNPARSABLE,
    "cut_off": Reason.UNPARSABLE,
    "too_large": Reason.UNPARSABLE,
    "refused": Reason.JUDGE_REFUSED,
    "too_long": Reason.TOO_LONG,
    "timeout": Reason.JUDGE_TIMEOUT,
}


# Of one call that failed: what has not passed after pauses of 3.5 s is an outage, for which calls
# wait behind the breaker, and the budget for retries bounds all of them together.
MOST_RETRIES = 3


@dataclass(slots=True)
class _Call(Generic[T]):
    """One question and the attempts at it so far."""

    question: JudgeQuestion[T]
    dialect: ChatDialect
    room: OutputRoom
    own_dialect: bool = False  # it differs from that of other calls
    trial: bool = False  # to find out whether it helps
    learned: bool = False  # and other calls take it over if it gets an answer
    corrections: list[ChatMessage] = field(default_factory=list)
    repairs: int = 0
    failures: int = 0
    unpaid: bool = False  # without budget for a retry, unless the judge is down and comes back
    rekeyed: bool = False
    widened: bool = False
    narrowed: bool = False
    repeated: bool = False  # after a complaint that names nothing
    thinks: bool = False  # as the last answer says
    limit: int = 0  # of output tokens in the last attempt
    resend: bool = False  # at once, in another dialect or with another key

    def adopt(self, dialect: ChatDialect, *, trial: bool) -> None:
        self.dialect = dialect
        self.own_dialect = True
        self.trial = self.trial or trial
        self.learned = not self.trial


def _ignore(*_: Any) -> None:
    pass


class JudgeClient:
    """Asks one judge. Several judges are several clients and share nothing.

    Args:
        name: Name of the judge in counters and logs.
        http: Client of the caller's, which `aclose` leaves open; None: a client of its own.
        state: Result of `state` before a restart.
        on_change: Called with the old and the new identity where a new series begins.
        retries: Most retries of one call that failed.

    Raises:
        ValueError: The settings have no `base_url`.
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
        timing: ClientTiming | None = None,
        retries: int = MOST_RETRIES,
    ) -> None:
        timing = timing or ClientTiming()
        self.name = name
        self._retries = retries
        self._timing = timing
        self._server = ServerConnection(settings, "/chat/completions", http, timing)
        self._billing = AttemptBilling(
            name, settings.input_usd_per_million, settings.output_usd_per_million, observe
        )
        self._learnt = JudgeServerState(
            settings=settings,
            endpoint=self.endpoint,
            name=name,
            state=state or {},
            on_change=on_change,
            clock=timing.monotonic,
        )

    async def ask(self, question: JudgeQuestion[T], cost: ScoringCost) -> JudgeVerdict[T]:
        """Return the verdict; its cost, failed attempts included, is added to `cost`.

        While the judge is down the call waits, at most about `admission.PATIENCE` seconds.

        Raises:
            JudgeFailed: There is no verdict.
        """
        down = JudgeFailed(Reason.JUDGE_UNAVAILABLE, f"{self.name} is down")
        if not await self._server.admission.queue.wait():
            raise down
        self._server.begin_call()
        call = _Call(question, self._learnt.dialect, self._learnt.room)
        last: FailedAttempt | None = None
        while True:
            result = await self._server.admission.run(partial(self._attempt, call, cost))
            if isinstance(result, JudgeVerdict):
                return result
            if result is None:  # the judge is given up
                raise self._failure(call, last) if last else down
            last = result
            pause = self._pause_before_retry(call, result)
            if pause is None:
                raise self._failure(call, result)
            if pause > 0:
                await self._timing.sleep(pause)
            if call.unpaid and not self.is_down:
                raise self._failure(call, result)

    @property
    def served(self) -> ServedModel | None:
        """The identity that names the series; None before the first reply."""
        return self._learnt.served

    @property
    def endpoint(self) -> str:
        """The URL, without credentials."""
        return str(self._server.url)

    @property
    def is_down(self) -> bool:
        """Whether the circuit breaker is open."""
        return self._server.is_down

    @property
    def takes_trial(self) -> bool:
        """Whether the judge is down and a call would find out now if it still is."""
        return self._server.admission.takes_trial

    @property
    def in_flight(self) -> int:
        """Attempts in flight."""
        return self._server.admission.limiter.in_flight

    @property
    def limit(self) -> int:
        """Attempts that may be in flight now."""
        return self._server.admission.limiter.size

    @property
    def capacity_share(self) -> float:
        """The share of `judge.concurrency` that the server is thought to take."""
        return self._server.admission.limiter.capacity_share

    def fingerprint(self, prompt_hash: str) -> str | None:
        """Return the fingerprint of the next answer to a prompt unless a new series begins.

        It is None before the first reply.
        """
        served = self._learnt.served
        if served is None:
            return None
        return self._learnt.fingerprint(served, prompt_hash, self._learnt.dialect)

    def instruments(self, fingerprint: str) -> Iterator[tuple[JudgeInstrument, str]]:
        """Yield the instrument and the hash of the prompt behind the fingerprint of a verdict."""
        return self._learnt.instruments(fingerprint)

    def state(self) -> dict[str, Any]:
        """Return the state for the next start, as JSON: identity and dialect of the judge."""
        return self._learnt.state()

    async def aclose(self) -> None:
        """Close the HTTP client, unless it is the caller's."""
        await self._server.aclose()

    async def _attempt(
        self, call: _Call[T], cost: ScoringCost, permit: AttemptPermit
    ) -> JudgeVerdict[T] | FailedAttempt:
        result = await self._send(call, cost)
        # In the same slot: behind others in the queue, all of them would find it out too. It ends,
        # as each dialect is weaker than the last and a key is tried once.
        while call.resend:
            result = await self._send(call, cost)
        if isinstance(result, JudgeVerdict) or result.outcome in _ANSWERED_OUTCOMES:
            self._server.admission.succeeded(permit, call.question.prompt)
        elif self._server.admission.failed(permit, result):
            self._server.warn(f"{self.name} is down", result, call.question.user)
        return result

    async def _send(self, call: _Call[T], cost: ScoringCost) -> JudgeVerdict[T] | FailedAttempt:
        if not call.own_dialect:
            call.dialect = self._learnt.dialect
        question = call.question
        dialect = call.dialect
        messages = first_messages(question.system, question.user, question.schema, dialect)
        messages += call.corrections
        call.limit = self._learnt.output_limit(question.max_output_tokens, call.room)
        body = encode_chat_request(
            schema=question.schema,
            dialect=dialect,
            messages=messages,
            parameters=self._learnt.parameters(dialect),
            max_output_tokens=call.limit,
        )
        header = self._server.key.header
        call.resend = False
        answer = ""
        usage = None
        outcome: AttemptOutcome = "cancelled"
        begun = self._timing.monotonic()
        try:
            reply = await self._server.post(body, header, read_chat_reply)
            if isinstance(reply, ChatCompletion):
                answer = reply.text
                usage = reply.usage
                result = self._read(call, reply)
            else:
                result = reply
                usage = reply.usage
            if isinstance(result, FailedAttempt):
                self._adapt(call, result, header)
                outcome = result.outcome
            else:
                outcome = "ok"
            return result
        finally:
            characters = sum(len(message["content"]) for message in messages), len(answer)
            seconds = self._timing.monotonic() - begun
            self._billing.add(cost, outcome, characters, usage, seconds)

    def _read(self, call: _Call[T], reply: ChatCompletion) -> JudgeVerdict[T] | FailedAttempt:
        learnt = self._learnt
        question = call.question
        served = learnt.record_completion(reply.served, call.dialect, learned=call.learned)
        call.thinks = reply.thinks
        if reply.refused:
            return FailedAttempt("refused", "by the model or a filter")
        try:
            data = read_answer(reply.text, question.schema)
            value = question.read(data)
        except ValueError as error:
            if reply.cut_off:
                return FailedAttempt("cut_off", f"by the limit of {call.limit:,} output tokens")
            call.corrections = correction_messages(reply.text, str(error))
            # of an object the log does not quote the names, which may be text of the trace
            why = error.kind if isinstance(error, MalformedAnswer) else "not as the schema asks"
            return FailedAttempt("malformed", f"no readable answer: {why}")
        learnt.record_readable(call.dialect, room=call.room, trial=call.trial)
        fingerprint = learnt.fingerprint(served, question.prompt_hash, call.dialect)
        return JudgeVerdict(value, fingerprint, data)

    def _adapt(self, call: _Call[Any], failure: FailedAttempt, header: str | None) -> None:
        """Send the request again at once where another key or dialect may help."""
        if failure.status == 401 and not call.rekeyed:
            self._server.key.reread()
            call.resend = call.rekeyed = self._server.key.header != header
        elif failure.most_output is not None:
            if self._learnt.record_most_output(failure.most_output):
                failure.outcome = "unsupported"
                call.resend = True
        elif failure.complaint is not None:
            weaker = self._learnt.weaken(call.dialect, failure.complaint)
            if weaker is None:
                return
            changes_mode = weaker.mode != call.dialect.mode
            silent = changes_mode and failure.complaint.names_nothing
            failure.outcome = "unsupported"
            call.resend = True
            if silent and not call.repeated:  # the server may only be starting
                call.repeated = True
            else:
                call.adopt(weaker, trial=silent)

    def _pause_before_retry(self, call: _Call[Any], failure: FailedAttempt) -> float | None:
        """Seconds until the next attempt of this call; None: it has failed."""
        if failure.outcome == "malformed":
            if call.repairs >= _REPAIRS or not self._server.may_retry():
                return None
            call.repairs += 1
            dialect = self._learnt.after_unreadable(call.dialect, call.repairs)
            if dialect != call.dialect:
                call.adopt(dialect, trial=True)
            return 0.0
        if failure.outcome == "cut_off":
            return self._widen(call)
        if failure.outcome == "too_long" and call.room and not call.narrowed:
            # a long prompt may not leave the room that thoughts need
            if not self._server.may_retry():
                return None
            call.room = 0
            call.narrowed = True
            return 0.0
        hopeless = failure.hopeless or self._server.admission.breaker.lost
        if hopeless or failure.outcome not in TRANSIENT_OUTCOMES or call.failures >= self._retries:
            return None
        pause = self._server.backoff(call.failures)
        call.failures += 1
        # a call that waits for the judge to come back is no load on a judge that fails
        call.unpaid = not self.is_down and not self._server.may_retry()
        return max(LOOK_SECONDS if call.unpaid else pause, failure.retry_after or 0.0)

    def _widen(self, call: _Call[Any]) -> float | None:
        """Give an answer that the output limit ended more room; None: there is none."""
        known = self._learnt.room  # what other calls have found out meanwhile costs no retry
        granted = call.question.max_output_tokens
        room = self._learnt.wider(granted, call.room, thinks=call.thinks)
        if room is None or call.narrowed or (call.widened and not call.thinks):
            return None
        if known <= call.room and not self._server.may_retry():
            return None
        call.room = room
        call.widened = True
        return 0.0

    def _failure(self, call: _Call[Any], failure: FailedAttempt) -> JudgeFailed:
        reason = _FAILURE_REASONS.get(failure.outcome, Reason.JUDGE_ERROR)
        if failure.outcome == "cut_off":
            failure.detail += self._learnt.cure_of_cut_off(call.limit, thinks=call.thinks)
        self._server.tell(self.name, failure, call.question.user)
        text = f"{failure.outcome}: {failure.detail}"
        words = self._server.words_of(failure, call.question.user)
        said = f"{failure.detail}: {words}" if words else failure.detail
        return JudgeFailed(reason, f"{self.name}: {text}", said)
