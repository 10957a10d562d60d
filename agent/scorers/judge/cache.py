"""Judge with a cache: stored verdicts, and one call for equal questions at the same time.

Verdicts that were paid for once: a judge with a memory.

The key is a hash of the fingerprint that the answer carries (prompt, parameters, who stands for
the instrument), of the endpoint, and of the rendered question with its schema. While no new epoch
begins (`agent/scorers/llm/served_model.py`), old verdicts hold; the reply that begins one makes all of them
misses.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.client import JudgeAnswer
from ragmeter.scorers.llm.questions import JudgeFailed, JudgeQuestion, JudgeVerdict

V = TypeVar("V")


@dataclass(slots=True)
class _Flight(Generic[V]):
    cost: ScoringCost = field(default_factory=ScoringCost)
    task: asyncio.Task[V] | None = None
    waiters: int = 0
    paid: bool = False


class SingleFlight(Generic[V]):
    """Runs work once a key at a time; a failure is shared like a result.

    The call belongs to none of those who wait for it: it goes on while one of them does, and is
    cancelled with the last. The first that is still there when it ends pays.
    """

    def __init__(self) -> None:
        self._flights: dict[bytes, _Flight[V]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    async def run(
        self, key: bytes, work: Callable[[ScoringCost], Awaitable[V]], cost: ScoringCost
    ) -> tuple[V, bool]:
        """What the work for this key gives, and whether the call was another's."""
        flight = self._flights.get(key)
        joined = flight is not None
        if flight is None:
            flight = self._flights[key] = _Flight()
            flight.task = asyncio.get_running_loop().create_task(self._work(key, flight, work))
        task = flight.task
        assert task is not None
        flight.waiters += 1
        try:
            return await asyncio.shield(task), joined
        finally:
            flight.waiters -= 1
            if task.done():
                if not flight.paid:
                    flight.paid = True
                    cost.add(flight.cost)
            elif flight.waiters == 0:
                self._forget(key, flight)  # before it ends: nobody may join what is cancelled
                task.cancel()

    async def _work(
        self, key: bytes, flight: _Flight[V], work: Callable[[ScoringCost], Awaitable[V]]
    ) -> V:
        try:
            return await work(flight.cost)
        finally:
            self._forget(key, flight)

    def _forget(self, key: bytes, flight: _Flight[V]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


T = TypeVar("T")

DAY = 86_400.0


class VerdictStore(Protocol):
    """Where verdicts are kept, bounded in number and age by whoever keeps them.

    Keys are 32 bytes, bodies JSON, `now` Unix seconds.
    """

    def get(self, key: bytes) -> tuple[str, bytes] | None:
        """(fingerprint, body), or none where there is none or it is too old."""
        ...

    def put(self, key: bytes, fingerprint: str, body: bytes, now: float) -> None: ...


class AnsweringJudge(Protocol):
    """What a memory is put before: `JudgeClient`, or what wraps it."""

    @property
    def endpoint(self) -> str: ...

    def fingerprint(self, prompt_hash: str) -> str | None: ...

    async def answer(self, question: JudgeQuestion[T], cost: ScoringCost) -> JudgeAnswer[T]: ...


class MemoryVerdictStore:
    """A store for one process: the oldest verdict goes first."""

    def __init__(self, entries: int, days: float, clock: Callable[[], float] = time.time) -> None:
        self._entries = entries
        self._seconds = days * DAY
        self._clock = clock
        self._kept: dict[bytes, tuple[str, bytes, float]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes) -> tuple[str, bytes] | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        fingerprint, body, at = kept
        if self._clock() - at > self._seconds:
            del self._kept[key]
            return None
        return fingerprint, body

    def put(self, key: bytes, fingerprint: str, body: bytes, now: float) -> None:
        if self._entries == 0:
            return
        self._kept.pop(key, None)  # a dict keeps the order of first insertion
        self._kept[key] = (fingerprint, body, now)
        while len(self._kept) > self._entries:
            del self._kept[next(iter(self._kept))]


class CachedJudge:
    """Answers from the store, else asks `inner` once for equal questions at the same time.

    `count` hears of every question how it was answered: `kept`, `shared` or `asked`. Probes and
    second opinions ask `inner` itself. An error of the store is the caller's: it is neither the
    judge's nor the network's. Answers to questions that `keeps` is false for are not stored.
    """

    def __init__(
        self,
        inner: AnsweringJudge,
        store: VerdictStore,
        *,
        clock: Callable[[], float] = time.time,
        count: Callable[[str], None] = lambda source: None,
        keeps: Callable[[JudgeQuestion[Any]], bool] = lambda question: True,
    ) -> None:
        self._keeps = keeps
        self._inner = inner
        self._store = store
        self._clock = clock
        self._flights: SingleFlight[JudgeAnswer[Any]] = SingleFlight()
        self._count = count

    async def ask(self, question: JudgeQuestion[T], cost: ScoringCost) -> JudgeVerdict[T]:
        """The verdict, from the store or the judge. Raises `JudgeFailed`."""
        content = self._content(question)
        mark = self._inner.fingerprint(question.prompt_hash)
        key = _key(mark or "", content)
        found = self._found(key, question) if mark is not None else None
        if found is not None:
            self._count("kept")
            return found

        async def call(cost: ScoringCost) -> JudgeAnswer[Any]:
            answer = await self._inner.answer(question, cost)
            body = json.dumps(answer.data, separators=(",", ":")).encode("ascii")
            kept_under = _key(answer.fingerprint, content)
            if self._keeps(question):
                self._store.put(kept_under, answer.fingerprint, body, self._clock())
            return answer

        answer, joined = await self._flights.run(key, call, cost)
        if not joined:
            self._count("asked")
            return JudgeVerdict(answer.value, answer.fingerprint)
        self._count("shared")
        try:
            # an own reading: values may be mutable
            value = question.read(answer.data)
        except ValueError:
            raise JudgeFailed("unparsable") from None
        return JudgeVerdict(value, answer.fingerprint, cached=True)

    def _found(self, key: bytes, question: JudgeQuestion[T]) -> JudgeVerdict[T] | None:
        kept = self._store.get(key)
        if kept is None:
            return None
        fingerprint, body = kept
        try:
            return JudgeVerdict(question.read(json.loads(body)), fingerprint, cached=True)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None  # of another version of the reader, or damaged

    def _content(self, question: JudgeQuestion[Any]) -> bytes:
        schema = json.dumps(question.schema, sort_keys=True)
        return _digest(
            self._inner.endpoint, question.prompt_hash, question.system, question.user, schema
        )


def has_closed_schema(question: JudgeQuestion[Any]) -> bool:
    """Whether its answers are labels and numbers alone, and quote no text of a trace."""
    return _is_closed_schema(question.schema)


def _is_closed_schema(schema: object) -> bool:
    if isinstance(schema, Mapping):
        open_text = schema.get("type") == "string" and "enum" not in schema
        return not open_text and all(map(_is_closed_schema, schema.values()))
    return not isinstance(schema, list) or all(map(_is_closed_schema, schema))


def _key(mark: str, content: bytes) -> bytes:
    return hashlib.sha256(mark.encode() + b"\0" + content).digest()


def _digest(*parts: str) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))  # or the end of one part could be the start of the next
        digest.update(data)
    return digest.digest()
