"""Totals of index events by index and version, within bounds.

All indexes that events tell of, within bounds: pure state of the aggregate half.

An index is known by its service and name. Of each the latest versions are kept side by side, so
that a new one can be compared with the one before. An event counts once: its id is remembered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from ragmeter.aggregate.index_events import IndexEvent, TokenStatistics
from ragmeter.core.counters import GaugeSample
from ragmeter.core.dedupe import hash_trace_id
from ragmeter.core.label_bounds import OTHER_LABEL, ServiceSlots, bound_label

_NOT_REPORTED = "not_reported"
"""Of chunks that were attempted, and of which nothing else was said."""

_MAX_REASONS = 15  # a version; the rest are one: each is a series
_MAX_WAYS = 4  # a version: there should be one


@dataclass(slots=True)
class _IndexBuild:
    """Sums over the events of a version. `ways` are the pairs of chunker and embedding model that
    they named: more than one means that parts of the index cannot be compared. `last` is the time
    of the latest event."""

    last: float = 0.0
    processed: int = 0
    no_chunks: int = 0
    attempted: int = 0
    embedded: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    tokens: TokenStatistics = field(default_factory=TokenStatistics)
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
            self._skip(_NOT_REPORTED, chunks.attempted - told)
        self.tokens.add(event.tokens)
        if event.chunker is not None or event.embedding_model is not None:
            way = tuple(
                text(name) if name else "" for name in (event.chunker, event.embedding_model)
            )
            if way not in self.ways and len(self.ways) < _MAX_WAYS:
                self.ways.append((way[0], way[1]))

    def _skip(self, reason: str, number: int) -> None:
        if not number:
            return
        if reason not in (*self.skipped, _NOT_REPORTED) and len(self.skipped) >= _MAX_REASONS:
            reason = OTHER_LABEL
        self.skipped[reason] = self.skipped.get(reason, 0) + number

    @property
    def no_chunk_ratio(self) -> float | None:
        """Of the documents; None where none is known."""
        return self.no_chunks / self.processed if self.processed else None

    @property
    def skipped_ratio(self) -> float | None:
        """Of the chunks that were attempted, those that were not embedded."""
        return (self.attempted - self.embedded) / self.attempted if self.attempted else None

    def copy(self) -> _IndexBuild:
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
    def load(cls, saved: dict[str, Any]) -> _IndexBuild:
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
            tokens=TokenStatistics.load(saved["tokens"]),
            ways=[(chunker, model) for chunker, model in saved["ways"]],
        )


IndexOutcome = Literal["counted", "duplicate", "old_version"]

KEPT_VERSIONS = 5  # of an index: the one in use, and those it may be compared with
KEPT_IDS = 2_000  # event ids of a service: repeats come soon, and a row of the state holds them all
KEPT_SECONDS = 90 * 86_400.0  # without an event, when others have some: then an index is forgotten


class IndexVersion(NamedTuple):
    """What is known of one version of the index `name`; `current`: it has the latest event."""

    service: str
    name: str
    version: str
    current: bool
    build: _IndexBuild


class Indexes:
    """At most `most` indexes, and one for what is beyond; names have at most `chars` characters.
    `overflow` is called for each event of an index that there was no place for."""

    def __init__(self, most: int, chars: int, overflow: Callable[[], None]) -> None:
        self._most = most
        self._chars = chars
        self._overflow = overflow
        self._known: dict[tuple[str, str], dict[str, _IndexBuild]] = {}
        self._ids: dict[str, dict[int, None]] = {}
        self._places = ServiceSlots()
        self._changed: dict[str, None] = {}  # names of parts

    def _text(self, name: str) -> str:
        return bound_label(name, self._chars)

    def add(self, event: IndexEvent, at: float | None = None) -> IndexOutcome:
        """Count an event; `at` (Unix seconds) replaces a time of it that cannot be."""
        at = event.timestamp.timestamp() if at is None else at
        key = (self._text(event.service), self._text(event.index))
        if key not in self._known:
            self._forget(at)
            if len(self._known) >= self._most:
                self._overflow()
                key = (OTHER_LABEL, OTHER_LABEL)
        ids = self._ids.setdefault(key[0], {})
        number = hash_trace_id(event.service, event.event_id)
        if number in ids:
            return "duplicate"
        ids[number] = None
        if len(ids) > KEPT_IDS:
            del ids[next(iter(ids))]
        self._changed[_name(key[0])] = None
        versions = self._known.setdefault(key, {})
        version = self._text(event.index_version)
        if version not in versions and len(versions) >= KEPT_VERSIONS:
            oldest = min(versions, key=lambda name: versions[name].last)
            if at <= versions[oldest].last:
                return "old_version"
            del versions[oldest]
        versions.setdefault(version, _IndexBuild()).add(event, at, self._text)
        self._changed[_name(*key)] = None
        return "counted"

    def _forget(self, now: float) -> None:
        """Make room: what has had no event for long goes."""
        for key, versions in list(self._known.items()):
            if max(build.last for build in versions.values()) < now - KEPT_SECONDS:
                del self._known[key]
        services = {service for service, _ in self._known}
        self._ids = {name: ids for name, ids in self._ids.items() if name in services}
        self._places.retain([*(_name(*key) for key in self._known), *map(_name, self._ids)])

    def versions(self, service: str | None = None) -> Iterator[IndexVersion]:
        """By service and index, the latest first; what is given changes no more."""
        for (owner, index), versions in sorted(self._known.items()):
            if service is None or owner == service:
                order = sorted(versions, key=lambda name: (-versions[name].last, name))
                for name in order:
                    build = versions[name].copy()
                    yield IndexVersion(owner, index, name, name == order[0], build)

    # Gauges -------------------------------------------------------------------------------------

    def gauges(self) -> list[GaugeSample]:
        return [gauge for version in self.versions() for gauge in _gauges(version)]

    # State --------------------------------------------------------------------------------------

    def drain(self) -> dict[str, Any]:
        """By name, the parts that changed since the last call. Before `dump`: it gives places."""
        changed, self._changed = self._changed, {}
        out: dict[str, Any] = {}
        for name in changed:
            key = json.loads(name)
            part: Any
            if len(key) == 1:
                part = list(self._ids.get(key[0], ()))
            else:
                part = {v: b.dump() for v, b in self._known.get((key[0], key[1]), {}).items()}
            if part:  # else it was forgotten before it was saved
                out[f"indexing.{self._places.slot_of(name)}"] = {"service": name, "part": part}
        return out

    def dump(self) -> dict[str, int]:
        """The small part, for every commit."""
        return self._places.dump()

    def load(self, state: dict[str, Any]) -> None:
        """Back from all that `dump` (under `indexing`) and every `drain` gave."""
        self._places.load(state.get("indexing", {}))
        for name, part in self._places.saved_states(state, "indexing"):
            key = json.loads(name)
            if len(key) == 1:
                self._ids[key[0]] = dict.fromkeys(part["part"])
            else:
                self._known[key[0], key[1]] = {
                    version: _IndexBuild.load(saved) for version, saved in part["part"].items()
                }


def _name(*key: str) -> str:
    """The name of a part: that of the ids of a service, or of an index."""
    return json.dumps(key)


def _gauges(found: IndexVersion) -> Iterator[GaugeSample]:
    build, tokens = found.build, found.build.tokens
    labels = (
        ("service", found.service), ("index", found.name), ("index_version", found.version),
    )  # fmt: skip
    for chunker, model in build.ways:
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
    for reason, number in sorted(build.skipped.items()):
        yield "rag_index_skipped_chunks", (*labels, ("reason", reason)), float(number)
