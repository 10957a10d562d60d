"""Excerpts of worst traces, and the page of one trace.

A trace is what some program sent: every field may be missing or of another type.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ragmeter.core.metric_specs import display_rank, find_spec, name_at_cutoff
from ragmeter.exporters.page.numbers import (
    clip,
    excerpt,
    format_seconds,
    format_trace_value,
    metric_words,
    one_line,
)
from ragmeter.exporters.page.views import TraceView
from ragmeter.metrics.registry import metric_specs

# Characters of text and numbers of things on one page: some 700 kB at the very most.
QUERY, ANSWER, PASSAGE, MESSAGE, DETAIL = 8_000, 20_000, 6_000, 3_000, 1_500
PASSAGES, MESSAGES, CITATIONS, RESULTS = 50, 50, 100, 100
# Characters of the texts of a worst trace in a list.
EXCERPTS = (("query", 300), ("answer", 700), ("error", 300))
EXCERPT_PASSAGES, EXCERPT_PASSAGE = 3, 320

# Why the texts of a trace are not here, by its `content`.
CONTENT_NOTES = {
    "gone": "The topic of the traces does not have it any more (kafka.retention): scores only.",
    "pending": "Its texts are being read from the topic of the traces: look again in a moment.",
    "crowded": "There is no room for more texts of worst traces (kafka.evidence_bytes).",
    "none": "Texts are not kept (privacy.content): only ids, numbers and scores.",
    "hash": "Texts are not kept (privacy.content): only hashes, ids, numbers and scores.",
}


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A text below a label; `missing` stands there instead of an empty text."""

    label: str
    text: str
    missing: str = ""
    passage_id: str = ""


@dataclass(frozen=True, slots=True)
class TraceExcerpt:
    """A worst trace in a list: its texts, first passages and how many more there are."""

    withheld: bool
    texts: list[TextBlock]
    passages: list[TextBlock]
    more: int


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One score of a trace; `value` is empty where only a `state` is known."""

    name: str
    notes: str
    detail: str
    value: str
    state: str


def trace_excerpt(trace: dict[str, Any]) -> TraceExcerpt:
    """Cut a trace to what a list of worst traces shows."""
    passages = _list(trace.get("passages"))
    return TraceExcerpt(
        trace.get("content") in ("none", "hash"),
        [
            TextBlock(key.capitalize(), excerpt(text, limit))
            for key, limit in EXCERPTS
            if (text := _text(trace, key))
        ],
        [
            _passage(item, number, excerpt(_text(item, "text"), EXCERPT_PASSAGE))
            for number, item in enumerate(passages[:EXCERPT_PASSAGES], 1)
        ],
        max(0, len(passages) - EXCERPT_PASSAGES),
    )


class TracePage:
    """The parts of the page of one trace, each bounded."""

    def __init__(self, view: TraceView) -> None:
        self.view = view
        self._trace = view.trace

    @property
    def content_note(self) -> str:
        """Why there are no texts."""
        return CONTENT_NOTES.get(str(self._trace.get("content")), "")

    @property
    def query(self) -> TextBlock:
        """The question."""
        return self._block("Query", self._trace.get("query"), QUERY, self._missing("query"))

    @property
    def answers(self) -> list[TextBlock]:
        """The answer and the error."""
        missing = self._missing("answer") or "none was given"
        return [
            self._block("Answer", self._trace.get("answer"), ANSWER, missing),
            self._block("Error", self._trace.get("error"), MESSAGE, self._missing("error")),
        ]

    @property
    def reference(self) -> TextBlock:
        """The answer that a canary expects."""
        reference = self._trace.get("reference")
        answer = reference.get("answer") if isinstance(reference, dict) else None
        return self._block("Reference answer", str(answer) if answer else None, QUERY)

    @property
    def turns_total(self) -> int:
        """The number of earlier turns of the conversation."""
        return sum(isinstance(item, dict) for item in _list(self._trace.get("history")))

    @property
    def turns(self) -> list[TextBlock]:
        """The last `MESSAGES` earlier turns."""
        turns = [item for item in _list(self._trace.get("history")) if isinstance(item, dict)]
        return [
            TextBlock(str(turn.get("role", "")), clip(str(turn.get("text", "")), MESSAGE))
            for turn in turns[-MESSAGES:]
        ]

    @property
    def citations(self) -> list[tuple[str, str]]:
        """The cited spans of the answer and the passages that they cite."""
        answer, citations = self._trace.get("answer"), []
        for item in _list(self._trace.get("citations"))[:CITATIONS]:
            if not isinstance(item, dict):
                continue
            start, end = item.get("start"), item.get("end")
            span = ""
            if isinstance(answer, str) and isinstance(start, int) and isinstance(end, int):
                span = one_line(answer[start:end], 160) if answer[start:end] else ""
            ids = [one_line(str(name)) for name in _list(item.get("passage_ids"))[:20]]
            citations.append((span, ", ".join(ids) or "nothing"))
        return citations

    @property
    def passages_title(self) -> str:
        """The number of passages."""
        number = len(_list(self._trace.get("passages")))
        return f"{number} passage{'' if number == 1 else 's'}" if number else "Passages"

    @property
    def passages_note(self) -> str:
        """Why passages are not shown; without any, what is known of the retrieval."""
        passages, missing = self._trace.get("passages"), self._missing("passages")
        if passages is None:
            return f"Retrieval was not traced{f': {missing}' if missing else ''}."
        more = len(_list(passages)) - PASSAGES
        if not _list(passages):
            return "Retrieval found nothing."
        return (f" {more} more are not shown" if more > 0 else "") + (missing and f" {missing}")

    @property
    def passages(self) -> list[TextBlock]:
        """The first `PASSAGES` passages."""
        items = _list(self._trace.get("passages"))[:PASSAGES]
        return [
            _passage(item, number, clip(_text(item, "text"), PASSAGE))
            for number, item in enumerate(items, 1)
        ]

    @property
    def scores(self) -> list[ScoreRow]:
        """The first `RESULTS` scores in display order."""
        results = self.view.results[:RESULTS]
        return [
            _score_row(item)
            for item in sorted(results, key=lambda item: display_rank(str(item.get("metric", ""))))
        ]

    @property
    def timings(self) -> list[tuple[str, str]]:
        """The stages with their durations."""
        timings = self._trace.get("timings")
        items = timings.items() if isinstance(timings, dict) else ()
        numbers = [(str(key), value) for key, value in items if isinstance(value, int | float)]
        return [(key, format_seconds(value)) for key, value in numbers[:50]]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Fields, usage, sampling and tags."""
        names = ("timestamp", "status", "model", "prompt_version", "abstained")
        pairs = [(name, self._trace.get(name)) for name in names]
        for group in ("usage", "sampling", "tags"):
            inner = self._trace.get(group)
            pairs += inner.items() if isinstance(inner, dict) else ()
        rows = [(str(k).replace("_", " "), str(v)) for k, v in pairs if v is not None]
        return rows[:100]

    def _block(self, label: str, text: Any, limit: int, missing: str = "") -> TextBlock:
        known = isinstance(text, str) and text.strip()
        return TextBlock(label, clip(text, limit) if known else "", missing)

    def _missing(self, name: str) -> str:
        """Return why a text is not here, where that is known."""
        missing, notes = self._trace.get("missing"), self._trace.get("not_kept")
        reason = missing.get(name) if isinstance(missing, dict) else None
        if isinstance(reason, str):
            return one_line(reason.replace("_", " "))
        return _withheld(notes.get(name)) if isinstance(notes, dict) else ""


def _passage(item: Any, number: int, text: str) -> TextBlock:
    passage = item if isinstance(item, dict) else {}
    rank, score = passage.get("rank"), passage.get("score")
    label = f"Passage {rank if isinstance(rank, int) else number}"
    if isinstance(score, int | float):
        label += f" · score {score:.3g}"
    missing = _withheld(passage.get("not_kept")) or "no text was traced"
    return TextBlock(f"{label} · ", text, missing, one_line(_text(passage, "id")))


def _withheld(note: Any) -> str:
    """Describe a text that the settings do not keep."""
    if not isinstance(note, dict):
        return ""
    characters, mark = note.get("characters"), note.get("blake2b")
    size = f"{characters:,} characters, " if isinstance(characters, int) else ""
    return f"{size}not kept" + (f" · {mark}" if isinstance(mark, str) else "")


def _score_row(item: dict[str, Any]) -> ScoreRow:
    name = str(item.get("metric", ""))
    if isinstance(item.get("k"), int):
        name = name_at_cutoff(name, item["k"])
    notes = [str(item.get("scorer", ""))]
    if item.get("reason"):
        notes.append(str(item["reason"]).replace("_", " "))
    probability = item.get("probability")
    if isinstance(probability, int | float) and probability < 1:
        notes.append(f"probability {probability:.3g}")
    if item.get("fingerprint"):
        notes.append(f"instrument {item['fingerprint']}")
    value, detail = item.get("value"), item.get("detail")
    return ScoreRow(
        metric_words(name),
        one_line(" · ".join(notes), 200),
        clip(json.dumps(detail, ensure_ascii=False, default=str), DETAIL) if detail else "",
        format_trace_value(value, find_spec(metric_specs(), name))
        if isinstance(value, int | float)
        else "",
        str(item.get("state", "")).replace("_", " "),
    )


def _text(item: Any, key: str) -> str:
    text = item.get(key) if isinstance(item, dict) else None
    return text if isinstance(text, str) else ""


def _list(item: Any) -> list[Any]:
    return item if isinstance(item, list) else []
