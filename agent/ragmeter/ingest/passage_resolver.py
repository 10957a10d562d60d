"""Fill in the texts of passages of which a trace has only the ids, with a cache of lookups."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from ragmeter.config.inputs import ResolverSettings, ResolverSource
from ragmeter.core.counters import CounterKey, Counts
from ragmeter.ingest.native import DecodedTrace
from ragmeter.ingest.passage_lookup import (
    InvalidPassageId,
    LookupFailed,
    PassageLookup,
    PassageTooLarge,
)
from ragmeter.ingest.redaction import Redactor
from ragmeter.metrics.missing_fields import TEXT_ONLY_REASONS
from ragmeter.reasons import Reason
from ragmeter.trace import Passage, Trace

ENTRY = 300  # bytes that a cache entry costs besides its text
MAX_PASSAGES = 200  # of one trace that are looked up
FAILED_SECONDS = 5.0  # failures are cached: a source that is down is not asked for every passage
STRIKES = 16  # failures in a row after which a source rests for as long
CACHE_BYTES = 64 * 2**20  # the texts of some 50,000 passages, which popular questions share
TEXT_SECONDS = 3600.0  # a text by its id changes when documents are indexed anew: seldom
# A document that was just indexed may be there a moment later, so absence is forgotten earlier.
ABSENCE_SECONDS = 60.0

# The reason of a missing text by outcome, worst first: a trace gets the worst of its passages.
_NOT_FOUND = "not_found"
_REASONS = {
    "timeout": Reason.RESOLVER_TIMEOUT,
    "error": Reason.RESOLVER_ERROR,
    "too_large": Reason.RESOLVER_ERROR,
    "bad_id": Reason.PASSAGES_ID_ONLY,
    _NOT_FOUND: Reason.PASSAGES_ID_ONLY,
}
_RANKS = {outcome: rank for rank, outcome in enumerate(_REASONS)}

log = logging.getLogger(__name__)


class CachedText(NamedTuple):
    """The result of a lookup; `outcome` says why there is no text."""

    text: str | None
    outcome: str


class PassageTextCache:
    """At most `size` bytes of results by source and passage id. Not thread-safe."""

    def __init__(self, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_size = size
        self._clock = clock
        # each with its size and the time when it expires
        self._entries: OrderedDict[tuple[str, str], tuple[CachedText, int, float]] = OrderedDict()
        self.size = 0

    def get(self, key: tuple[str, str]) -> CachedText | None:
        """Return an entry that has not expired."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        result, _, expires = entry
        if expires <= self._clock():
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return result

    def put(self, key: tuple[str, str], result: CachedText, seconds: float) -> None:
        """Store an entry for some seconds; one over the size of the cache is not stored."""
        if key in self._entries:
            self._drop(key)
        # a character takes up to four bytes
        cost = ENTRY + 4 * (len(result.text or "") + len(key[1]))
        if cost > self._max_size:
            return
        self._entries[key] = (result, cost, self._clock() + seconds)
        self.size += cost
        while self.size > self._max_size:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: tuple[str, str]) -> None:
        self.size -= self._entries.pop(key)[1]


class _Source:
    """A configured source with its lookup and the limits on it."""

    def __init__(self, source: ResolverSource, lookup: PassageLookup) -> None:
        self.settings = source
        self.name = source.name
        self.lookup = lookup
        self.slots = asyncio.Semaphore(source.concurrency)
        self.tasks: dict[str, asyncio.Task[CachedText]] = {}  # by passage id
        self.failures = 0  # in a row
        self.rests_until = -math.inf


def needs_passage_texts(settings: ResolverSettings, trace: Trace) -> bool:
    """Return whether a trace has passages without text that some source may have."""
    reason = trace.missing.get("passages")
    return (
        (reason is None or reason in TEXT_ONLY_REASONS)  # hidden texts stay hidden
        and any(_serves(source, trace) for source in settings.sources)
        and any(map(_lacks_text, trace.passages or ()))
    )


def encode_trace(trace: Trace) -> bytes:
    """Return a trace as JSON in its native form."""
    return trace.model_dump_json(exclude_none=True).encode("utf-8", "replace")


def without_texts(trace: Trace, reason: str) -> Trace:
    """Return the trace with the reason why its passages have no texts."""
    return trace.model_copy(update={"missing": {**trace.missing, "passages": reason}})


def _build_lookup(source: ResolverSource) -> PassageLookup:
    # late: most agents look nothing up, and an HTTP client is a tenth of their start
    from ragmeter.ingest.http_lookup import HttpLookup

    return HttpLookup(source)


class PassageResolver:
    """Resolves passages of traces, within one event loop.

    `lookups` replace those of the configured sources, by name.
    """

    def __init__(
        self,
        settings: ResolverSettings,
        *,
        lookups: Mapping[str, PassageLookup] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        given = lookups or {}
        self._sources = [
            _Source(source, given.get(source.name) or _build_lookup(source))
            for source in settings.sources
        ]
        self._clock = clock
        self._cache = PassageTextCache(CACHE_BYTES, clock)
        self._counts: Counter[CounterKey] = Counter()

    def counts(self) -> dict[CounterKey, float]:
        """Return the counts since the last call."""
        counts, self._counts = self._counts, Counter()
        return dict(counts)

    async def close(self) -> None:
        """Cancel lookups and close the sources."""
        for source in self._sources:
            for task in list(source.tasks.values()):
                task.cancel()
            await source.lookup.close()

    async def resolve(self, trace: Trace) -> Trace:
        """Return the trace with all texts that were found, and the reason for those that were not.

        It raises nothing except on cancellation.
        """
        if not needs_passage_texts(self._settings, trace):
            return trace
        sources = [source for source in self._sources if _serves(source.settings, trace)]
        passages = list(trace.passages or ())
        indexes = [index for index, passage in enumerate(passages) if _lacks_text(passage)]
        results = await asyncio.gather(
            *(self._resolve_one(sources, passages[index].id) for index in indexes[:MAX_PASSAGES])
        )
        outcomes = {_NOT_FOUND} if len(indexes) > MAX_PASSAGES else set()
        for index, (source_name, result) in zip(indexes, results, strict=False):
            if result.text is None:
                outcomes.add(result.outcome)
            else:
                digest = sha256(result.text.encode("utf-8", "replace")).hexdigest()
                metadata = dict(passages[index].metadata or {})
                metadata |= {"resolved_by": source_name, "text_sha256": digest}
                update = {"text": result.text, "metadata": metadata}
                passages[index] = passages[index].model_copy(update=update)
        missing = {name: reason for name, reason in trace.missing.items() if name != "passages"}
        if outcomes:
            missing["passages"] = _REASONS[min(outcomes, key=_RANKS.__getitem__)]
        return trace.model_copy(update={"passages": passages, "missing": missing})

    async def resolve_redacted(
        self, trace: Trace, redactor: Redactor, limit: int, *, count: bool = True
    ) -> Trace:
        """Do as `resolve`, and redact once more: a resolver returns text from outside.

        A trace of more than `limit` bytes stays without texts. `count` redactions with the rest.
        """
        resolved = await self.resolve(trace)
        if resolved is trace:
            return trace
        if redactor.edits:
            counts: Counts = {}
            # in a thread: a text that a pattern is slow on must not hold up everything else
            item = DecodedTrace(resolved, b"")
            resolved = (await asyncio.to_thread(redactor.trace, item, counts)).trace
            self._counts.update(counts if count else {})
        # more text than a trace may have: as if the source had failed
        return (
            resolved
            if len(encode_trace(resolved)) <= limit
            else without_texts(trace, Reason.RESOLVER_ERROR)
        )

    async def _resolve_one(self, sources: Sequence[_Source], name: str) -> tuple[str, CachedText]:
        """Return the result of the first source that has the text, else the worst result."""
        worst = ("", CachedText(None, _NOT_FOUND))
        for source in sources:
            result = await self._get(source, name)
            if result.text is not None:
                return source.name, result
            if _RANKS[result.outcome] <= _RANKS[worst[1].outcome]:
                worst = (source.name, result)
        return worst

    async def _get(self, source: _Source, name: str) -> CachedText:
        cached = self._cache.get((source.name, name))
        if cached is not None:
            self._count(source, "cached")
            return cached
        task = source.tasks.get(name)
        if task is None:
            task = asyncio.create_task(self._fetch(source, name))
            source.tasks[name] = task
            task.add_done_callback(lambda _: source.tasks.pop(name, None))
        return await asyncio.shield(task)

    async def _fetch(self, source: _Source, name: str) -> CachedText:
        text = None
        seconds = FAILED_SECONDS
        outcome = "error"
        try:
            async with source.slots:
                if self._clock() < source.rests_until:
                    self._count(source, "resting")
                    return CachedText(None, outcome)
                async with asyncio.timeout(source.settings.timeout_seconds):
                    text = await source.lookup.fetch(name)
            if text is None or not text.strip():
                text = None
                outcome = _NOT_FOUND
                seconds = ABSENCE_SECONDS
            else:
                outcome = "found"
                seconds = TEXT_SECONDS
        except TimeoutError:
            outcome = "timeout"
        except InvalidPassageId:
            outcome = "bad_id"
        except PassageTooLarge:
            outcome = "too_large"
            seconds = ABSENCE_SECONDS
        except LookupFailed:
            pass
        except Exception:
            log.exception("the resolver %s failed", source.name)
        source.failures = source.failures + 1 if outcome in ("timeout", "error") else 0
        if source.failures >= STRIKES:
            source.rests_until = self._clock() + FAILED_SECONDS
            source.failures = STRIKES - 1  # after the rest one more failure is enough
        result = CachedText(text, outcome)
        self._cache.put((source.name, name), result, seconds)
        self._count(source, outcome)
        return result

    def _count(self, source: _Source, outcome: str) -> None:
        labels = (("resolver", source.name), ("outcome", outcome))
        self._counts["ragmeter_resolver_requests_total", labels] += 1


def _serves(source: ResolverSource, trace: Trace) -> bool:
    return not source.services or trace.service in source.services


def _lacks_text(passage: Passage) -> bool:
    return not (passage.text and passage.text.strip())
