"""What the events of one index version come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from agent.indexing.event import IndexEvent
from agent.indexing.tokens import Tokens
from agent.labels import OTHER

__all__ = ["NOT_REPORTED", "Build"]

NOT_REPORTED = "not_reported"
"""Of chunks that were attempted, and of which nothing else was said."""

MAX_REASONS = 15  # a version; the rest are one: each is a series
MAX_WAYS = 4  # a version: there should be one


@dataclass(slots=True)
class Build:
    """Sums over the events of a version. `ways` are the pairs of chunker and embedding model that
    they named: more than one means that parts of the index cannot be compared. `last` is the time
    of the latest event."""

    last: float = 0.0
    processed: int = 0
    no_chunks: int = 0
    attempted: int = 0
    embedded: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    tokens: Tokens = field(default_factory=Tokens)
    ways: list[tuple[str, str]] = field(default_factory=list)

    def add(self, event: IndexEvent, at: float, text: Callable[[str], str]) -> None:
        """`text` makes a name a label value."""
        self.last = max(self.last, at)
        if event.documents is not None:
            self.processed += event.documents.processed
            self.no_chunks += event.documents.no_chunks
        if event.chunks is not None:
            chunks = event.chunks
            self.attempted += chunks.attempted
            self.embedded += chunks.embedded
            for reason, number in chunks.skipped.items():
                self._skip(text(reason), number)
            told = chunks.embedded + sum(chunks.skipped.values())
            self._skip(NOT_REPORTED, chunks.attempted - told)
        self.tokens.add(event.tokens)
        if event.chunker is not None or event.embedding_model is not None:
            way = tuple(
                text(name) if name else "" for name in (event.chunker, event.embedding_model)
            )
            if way not in self.ways and len(self.ways) < MAX_WAYS:
                self.ways.append((way[0], way[1]))

    def _skip(self, reason: str, number: int) -> None:
        if not number:
            return
        if reason not in (*self.skipped, NOT_REPORTED) and len(self.skipped) >= MAX_REASONS:
            reason = OTHER
        self.skipped[reason] = self.skipped.get(reason, 0) + number

    @property
    def no_chunk_ratio(self) -> float | None:
        """Of the documents; None where none is known."""
        return self.no_chunks / self.processed if self.processed else None

    @property
    def skipped_ratio(self) -> float | None:
        """Of the chunks that were attempted, those that were not embedded."""
        return (self.attempted - self.embedded) / self.attempted if self.attempted else None

    def copy(self) -> Build:
        tokens = replace(self.tokens, cells=dict(self.tokens.cells))
        return replace(self, skipped=dict(self.skipped), tokens=tokens, ways=list(self.ways))

    def dump(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "last": self.last,
            "documents": [self.processed, self.no_chunks],
            "chunks": [self.attempted, self.embedded],
            "skipped": self.skipped,
            "tokens": self.tokens.dump(),
            "ways": self.ways,
        }

    @classmethod
    def load(cls, saved: dict[str, Any]) -> Build:
        """The inverse of `dump`."""
        processed, no_chunks = saved["documents"]
        attempted, embedded = saved["chunks"]
        return cls(
            last=float(saved["last"]),
            processed=processed,
            no_chunks=no_chunks,
            attempted=attempted,
            embedded=embedded,
            skipped=dict(saved["skipped"]),
            tokens=Tokens.load(saved["tokens"]),
            ways=[(chunker, model) for chunker, model in saved["ways"]],
        )
