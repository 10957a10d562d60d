"""Fill in the texts of passages of which a trace has only the ids, with a cache of look-ups."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from ragmeter.config.inputs import ResolverSettings, ResolverSource
from ragmeter.core.counters import CounterKey
from ragmeter.ingest.passage_lookup import (
    InvalidPassageId,
    LookupFailed,
    PassageLookup,
    PassageTooLarge,
    open_lookup,
)
from ragmeter.metrics.missing_fields import TEXT_ONLY_REASONS
from ragmeter.trace import Passage, Trace

ENTRY = 300  # bytes that an entry costs besides its text

_PassageTextKey = tuple[str, str]


class CachedText(NamedTuple):
    text: str | None
    outcome: str


class PassageTextCache:
    """At most `size` bytes. Not safe from several threads."""

    def __init__(self, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = size
        self._clock = clock
        self._kept: OrderedDict[_PassageTextKey, tuple[CachedText, int, float]] = OrderedDict()
        self.size = 0

    def get(self, key: _PassageTextKey) -> CachedText | None:
        found = self._kept.get(key)
        if found is None:
            return None
        if found[2] <= self._clock():
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return found[0]

    def put(self, key: _PassageTextKey, kept: CachedText, seconds: float) -> None:
        if key in self._kept:
            self._drop(key)
        # a character takes up to four bytes
        cost = ENTRY + 4 * (len(kept.text or "") + len(key[1]))
        if cost > self._most:
            return
        self._kept[key] = (kept, cost, self._clock() + seconds)
        self.size += cost
        while self.size > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: _PassageTextKey) -> None:
        self.size -= self._kept.pop(key)[1]


log = logging.getLogger("ragmeter")

MAX_PASSAGES = 200  # of one trace that are looked up
FAILED_SECONDS = 5.0  # a failure is remembered: what is down is not asked for every passage
STRIKES = 16  # failures in a row after which a source is left alone for as long

_FOUND, _NONE = "found", "not_found"
# Worst first: what is said of a trace whose passages had several outcomes.
_REASONS = {"timeout": "resolver_timeout", "error": "resolver_error", "too_large": "resolver_error",
           "bad_id": "passages_id_only", _NONE: "passages_id_only"}  # fmt: skip


def _bare(passage: Passage) -> bool:
    return not (passage.text and passage.text.strip())


class _LookupSource:
    """A source with its lookup and what bounds it."""

    def __init__(self, source: ResolverSource, found: PassageLookup) -> None:
        self.source = source
        self.lookup = found
        self.slots = asyncio.Semaphore(source.concurrency)
        self.under_way: dict[str, asyncio.Task[CachedText]] = {}
        self.failures = 0  # in a row
        self.rests_until = -math.inf


def needs_passage_texts(settings: ResolverSettings, trace: Trace) -> bool:
    """Whether a trace has passages without text that some source answers for."""
    reason = trace.missing.get("passages")
    return (
        (reason is None or reason in TEXT_ONLY_REASONS)  # what is hidden stays hidden
        and any(not one.services or trace.service in one.services for one in settings.sources)
        and any(map(_bare, trace.passages or ()))
    )


class PassageResolver:
    """Lives in one event loop. `lookups` stands in for sources by name."""

    def __init__(
        self,
        settings: ResolverSettings,
        *,
        lookups: Mapping[str, PassageLookup] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        given = lookups or {}
        self._places = [
            _LookupSource(source, given.get(source.name) or open_lookup(source))
            for source in settings.sources
        ]
        self._clock = clock
        self._cache = PassageTextCache(settings.cache_bytes, clock)
        self._counts: Counter[CounterKey] = Counter()

    def counts(self) -> dict[CounterKey, float]:
        """What was counted since the last call."""
        counts, self._counts = self._counts, Counter()
        return dict(counts)

    async def close(self) -> None:
        for place in self._places:
            for task in list(place.under_way.values()):
                task.cancel()
            await place.lookup.close()

    async def resolve(self, trace: Trace) -> Trace:
        """Never raises but on cancellation."""
        places = [
            place
            for place in self._places
            if not place.source.services or trace.service in place.source.services
        ]
        if not places or not needs_passage_texts(self._settings, trace):
            return trace
        passages = list(trace.passages or ())
        at = [index for index, passage in enumerate(passages) if _bare(passage)]
        found = await asyncio.gather(
            *(self._find(places, passages[index].id) for index in at[:MAX_PASSAGES])
        )
        outcomes = {_NONE} if len(at) > MAX_PASSAGES else set()
        for index, (name, kept) in zip(at, found, strict=False):
            if kept.text is None:
                outcomes.add(kept.outcome)
            else:
                passages[index] = _with_text(passages[index], kept.text, name)
        missing = {k: v for k, v in trace.missing.items() if k != "passages"}
        worst = next((outcome for outcome in _REASONS if outcome in outcomes), None)
        if worst is not None:
            missing["passages"] = _REASONS[worst]
        return trace.model_copy(update={"passages": passages, "missing": missing})

    async def _find(self, places: Sequence[_LookupSource], name: str) -> tuple[str, CachedText]:
        """Of the first place that has it; else the worst of what they said."""
        worst = ("", CachedText(None, _NONE))
        for place in places:
            kept = await self._ask(place, name)
            if kept.text is not None:
                return place.source.name, kept
            order = list(_REASONS)
            if order.index(kept.outcome) <= order.index(worst[1].outcome):
                worst = (place.source.name, kept)
        return worst

    async def _ask(self, place: _LookupSource, name: str) -> CachedText:
        key = (place.source.name, name)
        kept = self._cache.get(key)
        if kept is not None:
            self._count(place, "cached")
            return kept
        task = place.under_way.get(name)
        if task is None:
            task = asyncio.create_task(self._fetch(place, name))
            place.under_way[name] = task
            task.add_done_callback(lambda _: place.under_way.pop(name, None))
        return await asyncio.shield(task)

    async def _fetch(self, place: _LookupSource, name: str) -> CachedText:
        text, seconds, outcome = None, FAILED_SECONDS, "error"
        try:
            async with place.slots:
                if self._clock() < place.rests_until:
                    self._count(place, "resting")
                    return CachedText(None, outcome)
                async with asyncio.timeout(place.source.timeout_seconds):
                    text = await place.lookup.fetch(name)
            blank = text is None or not text.strip()
            text, outcome = (None, _NONE) if blank else (text, _FOUND)
            seconds = self._settings.negative_seconds if blank else self._settings.cache_seconds
        except TimeoutError:
            outcome = "timeout"
        except InvalidPassageId:
            outcome = "bad_id"
        except PassageTooLarge:
            outcome, seconds = "too_large", self._settings.negative_seconds
        except LookupFailed:
            pass
        except Exception:
            log.exception("the resolver %s failed", place.source.name)
        self._learn(place, outcome)
        kept = CachedText(text, outcome)
        self._cache.put((place.source.name, name), kept, seconds)
        self._count(place, outcome)
        return kept

    def _learn(self, place: _LookupSource, outcome: str) -> None:
        place.failures = place.failures + 1 if outcome in ("timeout", "error") else 0
        if place.failures >= STRIKES:
            place.rests_until = self._clock() + FAILED_SECONDS
            place.failures = STRIKES - 1  # then one more is enough

    def _count(self, place: _LookupSource, outcome: str) -> None:
        labels = (("resolver", place.source.name), ("outcome", outcome))
        self._counts["ragmeter_resolver_requests_total", labels] += 1


def _with_text(passage: Passage, text: str, resolver: str) -> Passage:
    mark = sha256(text.encode("utf-8", "replace")).hexdigest()
    metadata: dict[str, Any] = {**(passage.metadata or {})}
    metadata |= {"resolved_by": resolver, "text_sha256": mark}
    return passage.model_copy(update={"text": text, "metadata": metadata})
