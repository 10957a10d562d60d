"""Between reading a trace and scoring it, as in the embedded agent: redaction, the texts of
passages that came as ids alone, and redaction of what a resolver gave.

The embedded agent keeps what came out of this. Here the trace stays in its topic as it was sent, so
whoever reads it there again (`agent.kafka.background.evidence_fetch`) goes the same way.
"""

from __future__ import annotations

import asyncio

from agent.control import VERSION_TAGS
from agent.counters import Counters, Counts
from agent.ingest.native import Good
from agent.privacy.content import Content
from agent.privacy.redactor import Redactor
from agent.resolvers.resolver import Resolver, wants
from agent.settings import Settings
from agent.trace import ScoredTrace, Trace

__all__ = ["RESOLVE_SECONDS", "Preparing"]

RESOLVE_SECONDS = 10.0
"""For all passages of a trace. A source has a limit of its own for each text; here a trace is under
way meanwhile, and a rebalance waits for it and for the slow tiers behind (20 s)."""


class Preparing:
    """To be closed. `counters` get what was redacted and looked up."""

    def __init__(
        self,
        settings: Settings,
        counters: Counters,
        *,
        resolver: Resolver | None = None,
        seconds: float = RESOLVE_SECONDS,
    ) -> None:
        self.redactor = Redactor(settings.privacy)
        self.content = Content(settings.privacy)
        self._counters = counters
        self._resolvers = settings.resolvers
        self._limit = settings.limits.trace_bytes
        self._tags = {*settings.segments, *VERSION_TAGS}
        self._seconds = seconds
        wanted = bool(settings.resolvers.sources)
        self._resolver = resolver or (Resolver(settings.resolvers) if wanted else None)

    async def __aenter__(self) -> Preparing:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._resolver is not None:
            await self._resolver.close()

    async def trace(self, good: Good, *, again: bool = False) -> Trace:
        """The trace as it may be scored and shown; `again`: its redactions were counted before."""
        trace = await self._redacted(good, again)
        resolver = self._resolver
        if resolver is None or not wants(self._resolvers, trace):
            return trace
        try:
            async with asyncio.timeout(self._seconds):
                found = await resolver.resolve(trace)
        except TimeoutError:
            return _without(trace, "resolver_timeout")
        finally:
            self._add(resolver.counts())
        if found is trace:
            return trace
        found = await self._redacted(Good(found, b""), again)
        if len(found.model_dump_json(exclude_none=True).encode("utf-8", "replace")) > self._limit:
            # more text than a trace may have: as if it could not be had
            return _without(trace, "resolver_error")
        return found

    async def _redacted(self, good: Good, again: bool) -> Trace:
        if not self.redactor.edits:
            return good.trace
        counts: Counts = {}
        # in a thread: a text that a pattern is slow on must not hold up everything else
        done = await asyncio.to_thread(self.redactor.trace, good, counts)
        if not again:
            self._add(counts)
        return done.trace

    def _add(self, counts: Counts) -> None:
        for (name, labels), by in counts.items():
            self._counters.inc(name, labels, by)

    def sent(self, scored: ScoredTrace) -> ScoredTrace:
        """What may cross the topic of the scores, which keeps it for days: without quotes where
        texts are not kept, and of the tags only those that something is counted by."""
        if self.content.full:
            return scored
        scored.tags = {name: text for name, text in scored.tags.items() if name in self._tags}
        return self.content.scored(scored)

    @property
    def keeps_raw(self) -> bool:
        """Whether what cannot be read may be kept as it came: it cannot be redacted for sure."""
        return self.content.full and not self.redactor.edits


def _without(trace: Trace, reason: str) -> Trace:
    return trace.model_copy(update={"missing": {**trace.missing, "passages": reason}})
