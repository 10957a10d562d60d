"""A judge with a cache: stored verdicts, and one call for equal questions at the same time.

A key is a hash of the fingerprint that the answer carries, of the endpoint, and of the rendered
question with its schema. Stored verdicts hold until a reply begins a new series
(`ragmeter.scorers.llm.served_model`), which makes all of them misses.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.client import JudgeClient
from ragmeter.scorers.llm.questions import JudgeFailed, JudgeQuestion, JudgeVerdict
from ragmeter.store.verdicts import SqliteVerdictStore

T = TypeVar("T")
V = TypeVar("V")


@dataclass(slots=True)
class _Flight(Generic[V]):
    cost: ScoringCost = field(default_factory=ScoringCost)
    task: asyncio.Task[V] | None = None
    waiters: int = 0
    paid: bool = False


class SingleFlight(Generic[V]):
    """Runs work for a key once at a time; waiters share a failure as they share a result.

    The work goes on while one of its waiters does and is cancelled with the last. The first waiter
    that is still there at its end pays.
    """

    def __init__(self) -> None:
        self._flights: dict[bytes, _Flight[V]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    async def run(
        self, key: bytes, work: Callable[[ScoringCost], Awaitable[V]], cost: ScoringCost
    ) -> tuple[V, bool]:
        """Return the result of the work for a key, and whether another caller began it."""
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
                self._forget(key, flight)  # before it ends: nobody may join a cancelled flight
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


class MemoryVerdictStore(dict[bytes, tuple[str, bytes]]):
    """A store in memory, for one run; the oldest of more than `entries` verdicts goes first."""

    def __init__(self, entries: int) -> None:
        self._entries = entries

    def put(self, key: bytes, fingerprint: str, body: bytes, now: float) -> None:
        """Store a verdict."""
        self.pop(key, None)  # a dict keeps the order of first insertion
        self[key] = fingerprint, body
        while len(self) > self._entries:
            del self[next(iter(self))]


# Stores of verdicts, bounded in number and age.
VerdictStore = MemoryVerdictStore | SqliteVerdictStore


class CachedJudge:
    """Answers from a store, else asks the judge once for equal questions at the same time.

    Probes and second opinions ask the judge itself. An error of the store reaches the caller: it
    is no failure of the judge.

    Args:
        count: Called for each answer with its source: `kept`, `shared` or `asked`.
        keeps: Whether the answer to a question may be stored.
    """

    def __init__(
        self,
        inner: JudgeClient,
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
        self._flights: SingleFlight[JudgeVerdict[Any]] = SingleFlight()
        self._count = count

    async def ask(self, question: JudgeQuestion[T], cost: ScoringCost) -> JudgeVerdict[T]:
        """Return the verdict, from the store or the judge.

        Raises:
            JudgeFailed: There is no verdict.
        """
        schema = json.dumps(question.schema, sort_keys=True)
        content = _digest(
            self._inner.endpoint, question.prompt_hash, question.system, question.user, schema
        )
        fingerprint = self._inner.fingerprint(question.prompt_hash)
        key = _key(fingerprint or "", content)
        stored = self._read_stored(key, question) if fingerprint is not None else None
        if stored is not None:
            self._count("kept")
            cost.use(self._inner.name).cached += 1
            return stored

        async def call(cost: ScoringCost) -> JudgeVerdict[Any]:
            verdict = await self._inner.ask(question, cost)
            body = json.dumps(verdict.data, separators=(",", ":")).encode("ascii")
            if self._keeps(question):
                key = _key(verdict.fingerprint, content)
                self._store.put(key, verdict.fingerprint, body, self._clock())
            return verdict

        verdict, joined = await self._flights.run(key, call, cost)
        self._count("shared" if joined else "asked")
        if not joined:
            return verdict
        cost.use(self._inner.name).cached += 1
        try:
            # read again for each caller: values may be mutable
            value = question.read(verdict.data)
        except ValueError:
            raise JudgeFailed("unparsable") from None
        return JudgeVerdict(value, verdict.fingerprint, verdict.data, cached=True)

    def _read_stored(self, key: bytes, question: JudgeQuestion[T]) -> JudgeVerdict[T] | None:
        stored = self._store.get(key)
        if stored is None:
            return None
        fingerprint, body = stored
        try:
            data = json.loads(body)
            return JudgeVerdict(question.read(data), fingerprint, data, cached=True)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None  # of another version of the reader, or damaged


def has_closed_schema(question: JudgeQuestion[Any]) -> bool:
    """Return whether all answers are labels and numbers, and quote no text of a trace."""
    return _is_closed_schema(question.schema)


def _is_closed_schema(schema: object) -> bool:
    if isinstance(schema, Mapping):
        open_text = schema.get("type") == "string" and "enum" not in schema
        return not open_text and all(map(_is_closed_schema, schema.values()))
    return not isinstance(schema, list) or all(map(_is_closed_schema, schema))


def _key(fingerprint: str, content: bytes) -> bytes:
    return hashlib.sha256(fingerprint.encode() + b"\0" + content).digest()


def _digest(*texts: str) -> bytes:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))  # or the end of one text could be the start of the next
        digest.update(data)
    return digest.digest()
