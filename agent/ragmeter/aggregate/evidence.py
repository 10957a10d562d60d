"""Bounded copies of the worst traces of a window, stored so that an alert can show them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from ragmeter.alerts.alert import clean_text
from ragmeter.core.score import ScoredTrace
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.parts.views import Incident
from ragmeter.trace import Passage, Trace

# (service, trace id)
EvidenceKey = tuple[str, str]

# Scores in their public JSON form.
Results = Sequence[dict[str, Any]]

# Traces that are no longer among the worst are dropped so often, or after so many new ones: an
# import outruns the clock.
COLLECT_SECONDS = 60.0
COLLECT_ROWS = 5_000

# Bytes that are kept of one worst trace: a question, its answer and some ten passages.
EVIDENCE_BYTES = 64 * 2**10

CUT_MARK = " … [cut]"
_MAX_PASSAGES = 50

# What an incident quotes of the words that nothing supports: of how many traces, how many of one
# and of all, and how many characters of each.
_QUOTED_TRACES = 3
_SERVER_LINES = 2  # of an incident: different causes
_QUOTES_OF_TRACE = 2
_QUOTES = 4
# Questions that an incident names, and characters of each.
_QUESTIONS = 3
_MAX_QUESTION = 200
_MAX_QUOTE = 60
_MAX_QUOTES = 300
_SUPPORT_QUESTIONS = ("grounded", "cited")  # whose scorers say what is unsupported
_SUPPORTED = 0.5  # a scorer without spans names its worst sentence, which may be supported


class CollectionPace:
    """The pace at which traces that are not wanted any more are dropped.

    `added` counts the traces added since the last time.
    """

    def __init__(self) -> None:
        self.added = 0
        self._last: float | None = None

    def due(self, now: float) -> bool:
        """Return whether it is time at `now`, in seconds of any clock; if so, begin anew."""
        if self._last is None:
            self._last = now
        if now - self._last < COLLECT_SECONDS and self.added < COLLECT_ROWS:
            return False
        self.added = 0
        self._last = now
        return True


class EvidenceKeeper:
    """Chooses which traces to write to the store and which to delete, one commit at a time.

    Args:
        stored: The traces in the store.
        limit: How many bytes a body may have.
        content: What texts may be stored; None: all.
    """

    def __init__(
        self,
        stored: Iterable[EvidenceKey],
        limit: int = EVIDENCE_BYTES,
        content: ContentPolicy | None = None,
    ) -> None:
        self._content = content
        self._stored = set(stored)
        self.pace = CollectionPace()
        self._limit = limit

    def rows(
        self,
        named: Set[EvidenceKey],
        done: Iterable[tuple[EvidenceKey, Trace, ScoredTrace]],
        earlier: Callable[[EvidenceKey, Trace], Results] = lambda key, trace: (),
    ) -> list[tuple[str, str, float, bytes]]:
        """Return the rows of counted traces that are `named` among the worst, or are stored.

        Of stored traces those have rows that got more results; `earlier` gives the stored scores.
        """
        rows: dict[EvidenceKey, tuple[str, str, float, bytes]] = {}
        for key, trace, scored in done:
            if key in named or (scored.partial and key in self._stored):
                before: Results = ()
                if scored.partial:
                    # two tiers may have ended in this commit: the store has neither yet
                    before = (
                        scores_in_evidence(rows[key][-1]) if key in rows else earlier(key, trace)
                    )
                body = encode_evidence(
                    trace=trace,
                    scored=scored,
                    limit=self._limit,
                    earlier=before,
                    content=self._content,
                )
                rows[key] = (*key, scored.timestamp, body)
        self._stored.update(rows)
        self.pace.added += len(rows)
        return list(rows.values())

    def forget(self, worst: Set[EvidenceKey]) -> list[EvidenceKey]:
        """Return the keys to delete: those in the store that are no longer among the `worst`."""
        forget = self._stored - worst
        self._stored -= forget
        return sorted(forget)


def encode_evidence(
    trace: Trace,
    scored: ScoredTrace,
    limit: int,
    earlier: Results = (),
    content: ContentPolicy | None = None,
) -> bytes:
    """Encode a trace and its scores as JSON, `earlier` scores first, as `content` allows.

    Texts are cut until the body fits `limit` bytes. If even that does not fit (hundreds of long
    ids), only the ids and scores are left.
    """
    new = [score.to_dict() for score in scored.results]
    replaced = set(map(_series_key, new))
    results = [item for item in earlier if _series_key(item) not in replaced] + new
    # a hash is that of a whole text
    characters = limit if content is None or content.full else sys.maxsize
    while characters >= 50:
        document = _document(trace, results, characters)
        if content is not None:
            document = content.document(document)
        body = _dump(document)
        if len(body) <= limit:
            return body
        characters = 0 if characters > limit else characters // 2
    names = ("metric", "k", "scorer", "state")
    document = {
        "trace": {"trace_id": trace.trace_id, "service": trace.service, "passages": None},
        "results": [{n: item[n] for n in names if n in item} for item in results],
    }
    return json.dumps(document).encode()


def _dump(document: dict[str, Any]) -> bytes:
    try:
        return to_json(document)  # six times as fast as `json`
    except ValueError:  # half of a surrogate pair
        return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")


def scores_in_evidence(body: bytes | None) -> list[dict[str, Any]]:
    """Return the scores in a stored body."""
    return list(json.loads(body)["results"]) if body else []


def count_questions(bodies: Iterable[bytes | None]) -> list[tuple[str, int]]:
    """Return the questions of stored traces with how many asked each, the most frequent first.

    Among equals those come first whose trace does. A question whose text is not kept is left out.
    """
    texts: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for body in bodies:
        query = json.loads(body)["trace"].get("query") if body else None
        if not isinstance(query, str):
            continue
        words = " ".join(clean_text(query, _MAX_QUESTION).split())
        if words:
            texts.setdefault(words.casefold(), words)
            counts[words.casefold()] += 1
    return [(texts[key], count) for key, count in counts.most_common(_QUESTIONS)]


def quote_unsupported(incident: Incident, read: Callable[[str, str], Results]) -> Incident:
    """Return an incident with the words of its worst traces that nothing supports, as a detail.

    Args:
        incident: The incident; one that is not about support by passages stays as it is.
        read: Returns the stored scores of a trace, of a service and a trace id.
    """
    if incident.question not in _SUPPORT_QUESTIONS or incident.over:
        return incident
    quotes = [
        f"'{text}'"
        for trace_id in incident.worst[:_QUOTED_TRACES]
        for text in _unsupported_texts(read(incident.service, trace_id))[:_QUOTES_OF_TRACE]
    ]
    if not quotes:
        return incident
    some = clean_text(", ".join(quotes[:_QUOTES]), _MAX_QUOTES)
    return replace(incident, detail=(*incident.detail, f"Unsupported: {some}"))


def quote_server(incident: Incident, read: Callable[[str, str], Results]) -> Incident:
    """Return an incident of results that fail, with what the judge's server says, as a detail."""
    failed = {one.metric.partition(":")[0] for one in incident.signals if one.unscored is not None}
    if not failed or incident.ended_at is not None:
        return incident
    said = Counter(
        words
        for trace_id in incident.worst[:_QUOTED_TRACES]
        for words in _server_words(read(incident.service, trace_id), failed)
    )
    lines = (f'The judge\'s server says: "{words}"' for words, _ in said.most_common(_SERVER_LINES))
    detail = tuple(clean_text(line, _MAX_QUOTES) for line in lines)
    return replace(incident, detail=(*incident.detail, *detail)) if detail else incident


def _server_words(results: Results, metrics: Set[str]) -> set[str]:
    return {
        words
        for item in results
        if item.get("state") == "unscored" and item.get("metric") in metrics
        if isinstance(words := (item.get("detail") or {}).get("server"), str) and words
    }


def _unsupported_texts(results: Results) -> list[str]:
    """Return what a scorer marked as unsupported, the worst first, each bounded."""
    details = [item["detail"] for item in results if item.get("detail")]
    spans = [span["text"] for detail in details for span in detail.get("unsupported_spans") or ()]
    claims = [text for detail in details for text in detail.get("unsupported_claims") or ()]
    sentences = [
        detail["worst_sentence"]["text"]
        for detail in details
        if "worst_sentence" in detail and detail["worst_sentence"]["support"] < _SUPPORTED
    ]
    # the finest first; texts are no strings where they are not kept
    for texts in (spans, claims, sentences):
        if quotes := [text for text in texts if isinstance(text, str)]:
            return [f"{text[:_MAX_QUOTE]}…" if len(text) > _MAX_QUOTE else text for text in quotes]
    return []


def _document(trace: Trace, results: Results, limit: int) -> dict[str, Any]:
    """Build the document, with each text cut to `limit` characters."""
    return {
        "trace": {
            "trace_id": trace.trace_id,
            "service": trace.service,
            "timestamp": trace.timestamp.isoformat().replace("+00:00", "Z"),
            "query": _cut(trace.query, limit),
            "history": [
                {"role": _cut(turn.role, 40), "text": _cut(turn.text, limit)}
                for turn in (trace.history or [])[-10:]
            ],
            "passages": None
            if trace.passages is None
            else [
                {
                    "id": passage.id,
                    "text": _cut(passage.text, limit),
                    "rank": passage.rank,
                    "score": passage.score,
                    **_resolved(passage),
                }
                for passage in trace.passages[:_MAX_PASSAGES]
            ],
            "answer": _cut(trace.answer, limit),
            "citations": [
                citation.model_dump(exclude_none=True, exclude={"sources": {"__all__": {"text"}}})
                for citation in (trace.citations or [])[:50]
            ],
            "abstained": trace.abstained,
            "status": trace.status,
            "error": _cut(trace.error, limit),
            # the trace's own: those of a partial result are empty, as they were counted before
            "missing": trace.missing,
            "timings": {k: v for k, v in (trace.timings or {}).items() if v is not None},
            "usage": trace.usage.model_dump(exclude_none=True) if trace.usage else None,
            "model": _cut(trace.model, 200),
            "prompt_version": _cut(trace.prompt_version, 200),
            "tags": trace.tags,
        },
        "results": results,
    }


def _cut(text: str | None, limit: int) -> str | None:
    return text if text is None or len(text) <= limit else text[:limit] + CUT_MARK


def _resolved(passage: Passage) -> dict[str, str]:
    """Return which resolver gave the text of a passage, and its hash."""
    metadata = passage.metadata or {}
    values = {name: metadata.get(name) for name in ("resolved_by", "text_sha256")}
    return {name: value[:64] for name, value in values.items() if isinstance(value, str)}


def _series_key(item: dict[str, Any]) -> tuple[object, ...]:
    return item["metric"], item.get("k"), item["scorer"]
