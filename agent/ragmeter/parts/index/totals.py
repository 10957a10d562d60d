"""Totals of index events by index and version, within bounds.

Pure state of the aggregate half. An index is known by its service and name. The latest versions of
each are kept side by side, so that a new one can be compared with the one before. An event counts
once: its id is remembered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from ragmeter.core.counters import GaugeSample
from ragmeter.core.dedupe import hash_trace_id
from ragmeter.core.label_bounds import OTHER_LABEL, bound_label
from ragmeter.parts.index.events import DocumentCounts, IndexEvent, TokenStatistics

IndexOutcome = Literal["counted", "duplicate", "old_version"]

KEPT_VERSIONS = 5  # of an index: the one in use, and those it may be compared with
KEPT_IDS = 2_000  # event ids of a service: repeats come soon, and a row of the state holds them all
KEPT_SECONDS = 90 * 86_400.0  # an index without events for so long makes room for others

# The reason of chunks that were attempted and neither embedded nor skipped, and the type of
# documents without one.
_NOT_REPORTED = "not_reported"

_MAX_NAMES = 15  # reasons, and types, of a version; the rest are one: each is a series
_SHOWN_NAMES = 3  # on a page, of reasons and of types
_MAX_PIPELINES = 4  # of a version: there should be one


@dataclass(slots=True)
class IndexBuild:
    """Sums over the events of a version.

    `last` is the Unix time of the latest event; `types` counts documents and those without a chunk
    by type; `pipelines` are the (chunker, embedding model)
    that they named: more than one means that parts of the index cannot be compared.
    """

    last: float = 0.0
    processed: int = 0
    no_chunks: int = 0
    attempted: int = 0
    embedded: int = 0
    types: dict[str, tuple[int, int]] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    tokens: TokenStatistics = field(default_factory=TokenStatistics)
    pipelines: list[tuple[str, str]] = field(default_factory=list)

    def add(self, event: IndexEvent, at: float, text: Callable[[str], str]) -> None:
        """Add an event of Unix time `at`; `text` makes a name a label value."""
        self.last = max(self.last, at)
        if event.documents is not None:
            self.processed += event.documents.processed
            self.no_chunks += event.documents.no_chunks
            for name, counts in event.documents.by_type.items():
                self._count_type(text(name), counts)
        if event.chunks is not None:
            chunks = event.chunks
            self.attempted += chunks.attempted
            self.embedded += chunks.embedded
            for reason, number in chunks.skipped.items():
                self._skip(text(reason), number)
            reported = chunks.embedded + sum(chunks.skipped.values())
            self._skip(_NOT_REPORTED, chunks.attempted - reported)
        self.tokens.add(event.tokens)
        if event.chunker is not None or event.embedding_model is not None:
            names = (event.chunker, event.embedding_model)
            chunker, model = (text(name) if name else "" for name in names)
            pipeline = (chunker, model)
            if pipeline not in self.pipelines and len(self.pipelines) < _MAX_PIPELINES:
                self.pipelines.append(pipeline)

    def _count_type(self, name: str, counts: DocumentCounts) -> None:
        name = _bound_name(name, self.types)
        processed, no_chunks = self.types.get(name, (0, 0))
        self.types[name] = (processed + counts.processed, no_chunks + counts.no_chunks)

    def _skip(self, reason: str, number: int) -> None:
        if not number:
            return
        reason = _bound_name(reason, self.skipped)
        self.skipped[reason] = self.skipped.get(reason, 0) + number

    @property
    def documents_by_type(self) -> dict[str, tuple[int, int]]:
        """All documents and those without a chunk by type; empty if no type was reported."""
        processed = self.processed - sum(count for count, _ in self.types.values())
        no_chunks = self.no_chunks - sum(count for _, count in self.types.values())
        if not self.types or not processed:
            return self.types
        named = self.types.get(_NOT_REPORTED, (0, 0))
        return {**self.types, _NOT_REPORTED: (processed + named[0], no_chunks + named[1])}

    @property
    def no_chunk_ratio(self) -> float | None:
        """The share of documents without chunks; None without documents."""
        return self.no_chunks / self.processed if self.processed else None

    @property
    def skipped_ratio(self) -> float | None:
        """The share of attempted chunks that were not embedded; None without chunks."""
        return (self.attempted - self.embedded) / self.attempted if self.attempted else None

    def frequent_types(self) -> list[tuple[str, int]]:
        """Return the types with the most documents."""
        return _most_frequent({name: all_ for name, (all_, _) in self.documents_by_type.items()})

    def frequent_empty_types(self) -> list[tuple[str, int]]:
        """Return the types with the most documents that gave no chunk."""
        return _most_frequent({name: none for name, (_, none) in self.documents_by_type.items()})

    def frequent_reasons(self) -> list[tuple[str, int]]:
        """Return the reasons for which most chunks were skipped."""
        return _most_frequent(self.skipped)

    def chunk_tokens(self) -> list[float | None]:
        """Return the minimum, mean, 95th percentile and maximum of the tokens of a chunk."""
        tokens = self.tokens
        if not tokens.number:
            return [None] * 4
        return [tokens.smallest, tokens.mean, tokens.quantile(0.95), tokens.largest]

    def copy(self) -> IndexBuild:
        """Return a copy that shares nothing that changes."""
        tokens = replace(self.tokens, cells=self.tokens.cells.copy())
        return replace(
            self,
            types=dict(self.types),
            skipped=dict(self.skipped),
            tokens=tokens,
            pipelines=list(self.pipelines),
        )


@dataclass(slots=True)
class IndexIds:
    """The hashes of the latest event ids of a service, the oldest first."""

    ids: list[int]


@dataclass(slots=True)
class IndexVersions:
    """The kept versions of an index."""

    versions: dict[str, IndexBuild]


IndexState = IndexIds | IndexVersions
"""A row of the state: of a service, or of an index."""


def _most_frequent(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(name, number) for name, number in ordered[:_SHOWN_NAMES] if number]


def _bound_name(name: str, counted: Mapping[str, object]) -> str:
    """Return the name under which something is counted, within the bound on names."""
    known = name in counted or name == _NOT_REPORTED or len(counted) < _MAX_NAMES
    return name if known else OTHER_LABEL


class IndexVersion(NamedTuple):
    """The sums of one version of an index; the `current` one has the latest event."""

    service: str
    name: str
    version: str
    current: bool
    build: IndexBuild


class Indexes:
    """The indexes of all services.

    Args:
        limit: How many indexes are told apart; one more holds the events of all others.
        chars: How many characters a name may have.
        overflow: Called for each event of an index beyond the limit.
    """

    def __init__(self, limit: int, chars: int, overflow: Callable[[], None]) -> None:
        self._limit = limit
        self._chars = chars
        self._overflow = overflow
        self._versions: dict[tuple[str, str], dict[str, IndexBuild]] = {}
        self._ids: dict[str, dict[int, None]] = {}
        self._changed: dict[str, None] = {}  # names of rows

    def _text(self, name: str) -> str:
        return bound_label(name, self._chars)

    def add(self, event: IndexEvent, at: float | None = None) -> IndexOutcome:
        """Count an event; `at` (Unix time) replaces its own time if that is implausible."""
        at = event.timestamp.timestamp() if at is None else at
        key = (self._text(event.service), self._text(event.index))
        if key not in self._versions:
            self._forget(at)
            if len(self._versions) >= self._limit:
                self._overflow()
                key = (OTHER_LABEL, OTHER_LABEL)
        ids = self._ids.setdefault(key[0], {})
        number = hash_trace_id(event.service, event.event_id)
        if number in ids:
            return "duplicate"
        ids[number] = None
        if len(ids) > KEPT_IDS:
            del ids[next(iter(ids))]
        self._changed[_row_name(key[0])] = None
        versions = self._versions.setdefault(key, {})
        version = self._text(event.index_version)
        if version not in versions and len(versions) >= KEPT_VERSIONS:
            oldest = min(versions, key=lambda name: versions[name].last)
            if at <= versions[oldest].last:
                return "old_version"
            del versions[oldest]
        versions.setdefault(version, IndexBuild()).add(event, at, self._text)
        self._changed[_row_name(*key)] = None
        return "counted"

    def _forget(self, now: float) -> None:
        """Drop what had no event for long."""
        for key, versions in list(self._versions.items()):
            if max(build.last for build in versions.values()) < now - KEPT_SECONDS:
                del self._versions[key]
                self._changed[_row_name(*key)] = None
        services = {service for service, _ in self._versions}
        for service in [name for name in self._ids if name not in services]:
            del self._ids[service]
            self._changed[_row_name(service)] = None

    def versions(self, service: str | None = None) -> Iterator[IndexVersion]:
        """Yield copies by service and index, the latest version first."""
        for (owner, index), versions in sorted(self._versions.items()):
            if service is None or owner == service:
                order = sorted(versions, key=lambda name: (-versions[name].last, name))
                for name in order:
                    build = versions[name].copy()
                    yield IndexVersion(
                        service=owner,
                        name=index,
                        version=name,
                        current=name == order[0],
                        build=build,
                    )

    def gauges(self) -> list[GaugeSample]:
        """Return the gauges of every version."""
        return [gauge for version in self.versions() for gauge in _gauges(version)]

    def changes(self) -> dict[str, IndexState | None]:
        """Return the rows that changed since the last call, None for those to delete."""
        changed = self._changed
        self._changed = {}
        return {name: self._row(name) for name in changed}

    def _row(self, name: str) -> IndexState | None:
        key = json.loads(name)
        if len(key) == 1:
            ids = self._ids.get(key[0])
            return IndexIds(list(ids)) if ids else None
        versions = self._versions.get((key[0], key[1]))
        return IndexVersions(versions) if versions else None

    def restore(self, rows: Mapping[str, IndexState]) -> None:
        """Load rows as `changes` returned them."""
        for name, row in rows.items():
            key = json.loads(name)
            if isinstance(row, IndexIds):
                self._ids[key[0]] = dict.fromkeys(row.ids)
            else:
                self._versions[key[0], key[1]] = row.versions


def _row_name(*key: str) -> str:
    """Return the name of a row of the state: the event ids of a service, or an index."""
    return json.dumps(key)


def _gauges(version: IndexVersion) -> Iterator[GaugeSample]:
    build = version.build
    tokens = version.build.tokens
    index = (("service", version.service), ("index", version.name))
    labels = (*index, ("index_version", version.version))
    for chunker, model in build.pipelines:
        yield "rag_index_info", (*labels, ("chunker", chunker), ("embedding_model", model)), 1.0
    rows: list[tuple[str, float | None]] = [
        ("last_event_timestamp_seconds", build.last),
        ("documents", float(build.processed)),
        ("no_chunk_ratio", build.no_chunk_ratio),
        ("chunks", float(build.attempted)),
        ("skipped_ratio", build.skipped_ratio),
        ("chunk_tokens_mean", tokens.mean),
        ("chunk_tokens_p95", tokens.quantile(0.95)),
        ("chunk_tokens_min", float(tokens.smallest) if tokens.number else None),
        ("chunk_tokens_max", float(tokens.largest) if tokens.number else None),
    ]
    for name, value in rows:
        if value is not None:
            yield f"rag_index_{name}", labels, value
    for name, (processed, no_chunks) in sorted(build.documents_by_type.items()):
        typed = (*labels, ("doc_type", name))
        yield "rag_index_type_documents", typed, float(processed)
        if processed:
            yield "rag_index_type_no_chunk_ratio", typed, no_chunks / processed
    for reason, number in sorted(build.skipped.items()):
        yield "rag_index_skipped_chunks", (*labels, ("reason", reason)), float(number)
