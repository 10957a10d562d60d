"""Verdicts that were paid for once: a judge with a memory.

The key is a hash of the fingerprint that the answer carries (prompt, parameters, who stands for
the instrument), of the endpoint, and of the rendered question with its schema. While no new epoch
begins (`agent/judge/epoch.py`), old verdicts hold; the reply that begins one makes all of them
misses.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from agent.judge.client import Answer
from agent.judge.question import JudgeFailed, Question, Verdict
from agent.judge.single_flight import SingleFlight
from agent.tiers import Cost

__all__ = ["Answering", "CachedJudge", "MemoryVerdicts", "VerdictStore", "says_nothing"]

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


class Answering(Protocol):
    """What a memory is put before: `JudgeClient`, or what wraps it."""

    @property
    def endpoint(self) -> str: ...

    def fingerprint(self, prompt_hash: str) -> str | None: ...

    async def answer(self, question: Question[T], cost: Cost) -> Answer[T]: ...


class MemoryVerdicts:
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
        inner: Answering,
        store: VerdictStore,
        *,
        clock: Callable[[], float] = time.time,
        count: Callable[[str], None] = lambda source: None,
        keeps: Callable[[Question[Any]], bool] = lambda question: True,
    ) -> None:
        self._keeps = keeps
        self._inner = inner
        self._store = store
        self._clock = clock
        self._flights: SingleFlight[Answer[Any]] = SingleFlight()
        self._count = count

    async def ask(self, question: Question[T], cost: Cost) -> Verdict[T]:
        """The verdict, from the store or the judge. Raises `JudgeFailed`."""
        content = self._content(question)
        mark = self._inner.fingerprint(question.prompt_hash)
        key = _key(mark or "", content)
        found = self._found(key, question) if mark is not None else None
        if found is not None:
            self._count("kept")
            return found

        async def call(cost: Cost) -> Answer[Any]:
            answer = await self._inner.answer(question, cost)
            body = json.dumps(answer.data, separators=(",", ":")).encode("ascii")
            kept_under = _key(answer.fingerprint, content)
            if self._keeps(question):
                self._store.put(kept_under, answer.fingerprint, body, self._clock())
            return answer

        answer, joined = await self._flights.run(key, call, cost)
        if not joined:
            self._count("asked")
            return Verdict(answer.value, answer.fingerprint)
        self._count("shared")
        try:
            # an own reading: values may be mutable
            value = question.read(answer.data)
        except ValueError:
            raise JudgeFailed("unparsable") from None
        return Verdict(value, answer.fingerprint, cached=True)

    def _found(self, key: bytes, question: Question[T]) -> Verdict[T] | None:
        kept = self._store.get(key)
        if kept is None:
            return None
        fingerprint, body = kept
        try:
            return Verdict(question.read(json.loads(body)), fingerprint, cached=True)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None  # of another version of the reader, or damaged

    def _content(self, question: Question[Any]) -> bytes:
        schema = json.dumps(question.schema, sort_keys=True)
        return _digest(
            self._inner.endpoint, question.prompt_hash, question.system, question.user, schema
        )


def says_nothing(question: Question[Any]) -> bool:
    """Whether its answers are labels and numbers alone, and quote no text of a trace."""
    return _closed(question.schema)


def _closed(schema: object) -> bool:
    if isinstance(schema, Mapping):
        open_text = schema.get("type") == "string" and "enum" not in schema
        return not open_text and all(map(_closed, schema.values()))
    return not isinstance(schema, list) or all(map(_closed, schema))


def _key(mark: str, content: bytes) -> bytes:
    return hashlib.sha256(mark.encode() + b"\0" + content).digest()


def _digest(*parts: str) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))  # or the end of one part could be the start of the next
        digest.update(data)
    return digest.digest()
