"""Answers of a file compared, as `ragmeter score` does it: one window over the whole file."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agent.config import Settings
from agent.consistency.agreement import Agreement
from agent.consistency.memory import Memory
from agent.consistency.vectors import Vectors
from agent.consistency.wording import Wordings, embeds, mode_of
from agent.trace import Trace

if TYPE_CHECKING:
    from agent.embeddings.answers import AnswerEmbedder

__all__ = ["AnswersOfFile", "embedder_of"]

log = logging.getLogger("ragmeter.score")

FILE = "file"


def embedder_of(settings: Settings) -> AnswerEmbedder | None:
    """What the settings name, to be entered and left by the caller."""
    if settings.consistency.embeddings.base_url is None:
        return None
    from agent.embeddings.answers import answer_embedder  # late: few want it

    return answer_embedder(settings.consistency, settings.privacy)


class AnswersOfFile:
    """As in the agent, but that nothing grows old: so many questions, and four answers of each."""

    def __init__(self, settings: Settings, embedder: AnswerEmbedder | None) -> None:
        own = settings.consistency
        near = own.embeddings.near if embeds(own, settings.privacy) else None
        mode = mode_of(own, settings.privacy)
        least = settings.limits.min_samples
        self._memory = Memory(own.queries, {FILE: math.inf}, least, mode, near)
        self._wordings = Wordings(own, settings.privacy)
        self._embedder = embedder

    async def add(self, trace: Trace) -> Vectors | str | None:
        """Remember the answer, before anything is waited for: in the order of the file. What came
        of its embedding; None where there was none to be made."""
        wording = self._wordings.of(trace, lambda query: self._memory.wants(trace.service, query))
        if isinstance(wording, str):
            return None
        at = trace.timestamp.timestamp()
        kept = self._memory.add(trace.service, wording, at, at) == "kept"
        if not kept or self._embedder is None:
            return None
        try:
            found = await self._embedder.embed(trace)
        except Exception:
            log.exception("the embedding of trace %r failed", trace.trace_id[:80])
            return "internal_error"
        if isinstance(found, Vectors):
            context = self._wordings.context(trace)
            self._memory.embed(trace.service, wording, at, context, found)
        return found

    def lines(self) -> Iterator[str]:
        """For the terminal: of each service whose questions were asked again, each similarity."""
        for service in self._memory.services():
            for name, found in self._memory.agreement(service, FILE).items():
                yield f"{service}: consistency_{name} {_spoken(found)}"


def _spoken(found: Agreement) -> str:
    parts = [f"{found.mean:.3f} ({found.lower:.3f} to {found.upper:.3f})"]
    if found.variance is not None:
        parts.append(f"variance {found.variance:.4f}")
    if found.variation is not None:
        parts.append(f"coefficient of variation {found.variation:.3f}")
    return f"{', '.join(parts)}, {found.queries:,} questions asked again"
