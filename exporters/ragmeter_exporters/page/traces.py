"""Excerpts of worst traces, and the page of one trace.

A trace is what some program sent: every field may be missing or of another type.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ragmeter.aggregate.agent_view import AgentView
from ragmeter.core.metric_specs import display_rank, find_spec, name_at_cutoff
from ragmeter.core.score import UnsupportedSpan, read_unsupported
from ragmeter.metrics.answer_text import parse_answer
from ragmeter.metrics.numbers import find_numbers
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.answer_texts import format_number
from ragmeter.parts.views import Answer

from ragmeter_exporters.page.numbers import format_bounds, format_seconds, format_trace_value
from ragmeter_exporters.page.texts import STATE_NAMES, clip, excerpt, metric_words, one_line
from ragmeter_exporters.page.views import (
    DEFAULT_OPTIONS,
    PageBase,
    PageOptions,
    base_view,
    row_order,
)

# Worst traces of a series through which the page of a trace leads: of all the texts are kept.
NEIGHBOURS = 25
# Characters of text and numbers of things on one page: some 700 kB at the very most.
QUERY = 8_000
ANSWER = 20_000
PASSAGE = 6_000
MESSAGE = 3_000
DETAIL = 1_500
PASSAGES = 50
MESSAGES = 50
CITATIONS = 100
RESULTS = 100
DETAILS = 20  # items of a detail and of each list in it
MAX_NESTING = 3
# Characters of the texts of a worst trace in a list.
EXCERPTS = (("query", 300), ("answer", 700), ("error", 300))
EXCERPT_PASSAGES = 3
EXCERPT_PASSAGE = 320

# Details that only those who make a scorer can read, and the spans, which are marked in the answer.
_NOT_SHOWN = frozenset({"unsupported_spans", "model", "lexical", "windows"})

# Why the texts of a trace are not here, by its `content`.
CONTENT_NOTES = {
    "gone": "The topic of the traces has it no more (kafka.retention_hours): scores only.",
    "pending": "Its texts are being read from the topic of the traces: look again in a moment.",
    "crowded": "There is no room for more texts of worst traces.",
    "none": "Texts are not kept (privacy.content): only ids, numbers and scores.",
    "hash": "Texts are not kept (privacy.content): only hashes, ids, numbers and scores.",
}


@dataclass(slots=True)
class TraceView:
    """The page of one kept trace: its native JSON and its scores.

    Args:
        series: The (metric, scorer) of which it is one of the worst, `neighbours` their ids.
        answers: The questions of its service.
    """

    base: PageBase
    service: str
    trace_id: str
    trace: dict[str, Any]
    results: list[dict[str, Any]]
    series: tuple[str, str] = ("", "")
    neighbours: list[str] = field(default_factory=list)
    answers: Sequence[Answer] = ()


def trace_view(
    agent: AgentView,
    service: str,
    trace_id: str,
    options: PageOptions = DEFAULT_OPTIONS,
    series: tuple[str, str] = ("", ""),
) -> TraceView | None:
    """Copy what the page of a trace shows; None where the trace is not kept.

    `series` is the (metric, scorer) through whose worst traces the page leads, if it is one of
    them, else the first of which it is one.
    """
    document = agent.evidence(service, trace_id)
    if document is None:
        return None
    trace = document.get("trace")
    results = document.get("results")
    base = base_view(agent, options)
    view = TraceView(
        base=base,
        service=service,
        trace_id=trace_id,
        trace=trace if isinstance(trace, dict) else {},
        results=[item for item in results if isinstance(item, dict)]
        if isinstance(results, list)
        else [],
    )
    with agent.lock():
        view.answers = tuple(agent.questions(service).answers(service))
        windows = agent.windows
        known = sorted(windows.series(service), key=lambda item: (item != series, row_order(item)))
        for pair in known:
            worst = windows.worst(service, *pair, base.windows[-1], NEIGHBOURS)
            ids = [item.trace_id for item in worst]
            if trace_id in ids:
                view.series = pair
                view.neighbours = ids
                break
    return view


def find_trace(agent: AgentView, trace_id: str) -> str | None:
    """Return the service whose kept traces have this id, None if there is none."""
    services = base_view(agent).services
    return next((name for name in services if agent.evidence(name, trace_id)), None)


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A text below a label; `missing` stands there instead of an empty text.

    `parts` is the same text where some of it is marked: (part, note), None for what is not.
    """

    label: str
    text: str
    missing: str = ""
    passage_id: str = ""
    parts: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class TraceExcerpt:
    """A worst trace in a list: its texts, first passages and how many more there are."""

    withheld: bool
    texts: list[TextBlock]
    passages: list[TextBlock]
    more: int


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """What one trace says of a question, by the most trusted of its scores."""

    question: str
    meaning: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One score of a trace; `value` is empty where only a `state` is known."""

    name: str
    notes: str
    details: list[tuple[str, str]]
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


def trace_parts(view: TraceView, *, mark_numbers: bool = True) -> dict[str, Any]:
    """Return the parts of the page of one trace, each bounded, by their names in its template."""
    trace = view.trace
    history = [turn for turn in _list(trace.get("history")) if isinstance(turn, dict)]
    passages = _list(trace.get("passages"))
    results = sorted(
        view.results[:RESULTS], key=lambda item: display_rank(str(item.get("metric", "")))
    )
    missing = {name: _missing(trace, name) for name in ("query", "answer", "error", "passages")}
    expected = _dict(trace.get("reference")).get("answer")
    spans = [span for item in results for span in read_unsupported(item.get("detail"))]
    if mark_numbers:
        spans += _find_novel_numbers(_text(trace, "answer"), results, spans)
    durations = [
        (str(stage), seconds)
        for stage, seconds in _dict(trace.get("timings")).items()
        if isinstance(seconds, int | float)
    ]
    title = f"{len(passages)} passage{'s' * (len(passages) != 1)}"
    names = ("timestamp", "status", "model", "prompt_version", "abstained")
    facts = [(name, trace.get(name)) for name in names]
    for group in ("usage", "sampling", "tags"):
        facts += _dict(trace.get(group)).items()
    ids = view.neighbours
    place = ids.index(view.trace_id) if ids else 0
    return {
        "view": view,
        "backend_id": _text(_dict(trace.get("span")), "trace_id") or view.trace_id,
        "place": _ordinal(place + 1),
        "previous": ids[place - 1] if place else None,
        "next": ids[place + 1] if place + 1 < len(ids) else None,
        "content_note": CONTENT_NOTES.get(str(trace.get("content")), ""),
        "query": _block("Question", trace.get("query"), QUERY, missing["query"]),
        "answers": [
            mark_answer(
                _block(
                    "Answer", trace.get("answer"), ANSWER, missing["answer"] or "none was given"
                ),
                spans,
            ),
            _block("Error", trace.get("error"), MESSAGE, missing["error"]),
        ],
        "reference": _block("Reference answer", str(expected) if expected else None, QUERY),
        "turns_total": len(history),
        "turns": [
            TextBlock(str(turn.get("role", "")), clip(str(turn.get("text", "")), MESSAGE))
            for turn in history[-MESSAGES:]
        ],
        "citations": _citations(trace),
        "passages_title": title if passages else "Passages",
        "passages_note": _passages_note(trace.get("passages"), missing["passages"]),
        "passages": [
            _passage(item, number, clip(_text(item, "text"), PASSAGE))
            for number, item in enumerate(passages[:PASSAGES], 1)
        ],
        "questions": [_question_row(answer, trace, view.results) for answer in view.answers],
        "scores": [_score_row(item, _text(trace, "answer")) for item in results if _known(item)],
        "unscored": _count_states(item for item in results if not _known(item)),
        "timings": [(stage, format_seconds(seconds)) for stage, seconds in durations[:50]],
        "facts": [(str(k).replace("_", " "), str(v)) for k, v in facts if v is not None][:100],
    }


def _citations(trace: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the cited spans of the answer and the passages that they cite."""
    answer = trace.get("answer")
    citations = []
    for item in _list(trace.get("citations"))[:CITATIONS]:
        if not isinstance(item, dict):
            continue
        start, end = item.get("start"), item.get("end")
        span = ""
        if isinstance(answer, str) and isinstance(start, int) and isinstance(end, int):
            span = one_line(answer[start:end], 160) if answer[start:end] else ""
        ids = [one_line(str(name)) for name in _list(item.get("passage_ids"))[:20]]
        citations.append((span, ", ".join(ids) or "nothing"))
    return citations


def _passages_note(passages: Any, missing: str) -> str:
    """Say why passages are not shown; without any, what is known of the retrieval."""
    if passages is None:
        return f"Retrieval was not traced{f': {missing}' if missing else ''}."
    more = len(_list(passages)) - PASSAGES
    if not _list(passages):
        return "Retrieval found nothing."
    return (f" {more} more are not shown" if more > 0 else "") + (missing and f" {missing}")


def _block(label: str, text: Any, limit: int, missing: str = "") -> TextBlock:
    known = isinstance(text, str) and text.strip()
    return TextBlock(label, clip(text, limit) if known else "", missing)


def mark_answer(block: TextBlock, spans: Iterable[UnsupportedSpan]) -> TextBlock:
    """Return an answer with what nothing supports marked, and the nearest evidence as its note."""
    text = block.text
    parts: list[tuple[str, str | None]] = []
    at = 0
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        # the text may have been cut or redacted since, and then the place is another one
        if at <= span.start < span.end and text[span.start : span.end].startswith(span.text):
            parts += [
                (text[at : span.start], None),
                (text[span.start : span.end], evidence_note(span)),
            ]
            at = span.end
    return replace(block, parts=(*parts, (text[at:], None))) if parts else block


def _find_novel_numbers(
    answer: str, results: Iterable[dict[str, Any]], spans: Sequence[UnsupportedSpan]
) -> list[UnsupportedSpan]:
    """Find the numbers of an answer that results name as in no passage, outside of spans."""
    details = [_dict(item.get("detail")) for item in results]
    novel = {str(number) for detail in details for number in _list(detail.get("novel_numbers"))}
    text = parse_answer(answer).read.bare.lower() if novel else ""  # without citation markers
    return [
        UnsupportedSpan(start, end, answer[start:end])
        for start, end, _ in find_numbers(text)
        if answer[start:end].lower().strip() in novel  # a letter may be longer in lower case
        and not any(start < span.end and span.start < end for span in spans)
    ]


def evidence_note(span: UnsupportedSpan) -> str:
    """Return the evidence nearest to a span, in a sentence."""
    if not span.evidence:
        return "Nothing in the passages supports this."
    name = one_line(span.passage_id)
    return f"Nothing supports this. Nearest, in {name}: {one_line(span.evidence, 200)}"


def _missing(trace: dict[str, Any], name: str) -> str:
    """Return why a text is not here, where that is known."""
    reason = _dict(trace.get("missing")).get(name)
    if isinstance(reason, str):
        return one_line(reason.replace("_", " "))
    return _withheld(_dict(trace.get("not_kept")).get(name))


def _passage(item: Any, number: int, text: str) -> TextBlock:
    passage = _dict(item)
    rank = passage.get("rank")
    score = passage.get("score")
    label = f"Passage {rank if isinstance(rank, int) else number}"
    if isinstance(score, int | float):
        label += f" · score {score:.3g}"
    missing = _withheld(passage.get("not_kept")) or "no text was traced"
    return TextBlock(f"{label} · ", text, missing, one_line(_text(passage, "id")))


def _withheld(note: Any) -> str:
    """Describe a text that the settings do not keep."""
    if not isinstance(note, dict):
        return ""
    characters = note.get("characters")
    mark = note.get("blake2b")
    size = f"{characters:,} characters, " if isinstance(characters, int) else ""
    return f"{size}not kept" + (f" · {mark}" if isinstance(mark, str) else "")


def _details(detail: dict[str, Any], answer: str) -> Iterator[tuple[str, str]]:
    """Yield the details of a score as (name, words); the spans are marked in the answer."""
    for name, value in list(detail.items())[:DETAILS]:
        if name == "novel_names":  # stems: name the words that have them
            patterns = [rf"\b{re.escape(str(stem)[:30])}\w*" for stem in _list(value)]
            matches = [re.search(pattern, answer[:ANSWER], re.IGNORECASE) for pattern in patterns]
            value = [match.group() for match in matches if match]
        if name not in _NOT_SHOWN:
            yield str(name), clip(_words(value), DETAIL)


def _words(value: Any, depth: int = 0) -> str:
    """Write a value of a detail as people would; what is nested deeply is left out."""
    if isinstance(value, str):
        return f"“{value}”"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, dict) and depth < MAX_NESTING:
        parts = {
            str(key).replace("_", " "): _words(item, depth + 1)
            for key, item in value.items()
            if item is not None
        }
        if "characters" in parts:
            return _withheld(value)
        first = [parts.pop(key) for key in ("text",) if key in parts]
        others = [f"{key} {text}" for key, text in parts.items() if key != "index"]
        return " · ".join([*first, *others])
    if isinstance(value, list | tuple) and depth < MAX_NESTING:
        return ", ".join(_words(item, depth + 1) for item in value[:DETAILS]) or "none"
    return "–" if value is None else str(value)[:DETAIL]


def _known(item: Mapping[str, Any]) -> bool:
    return isinstance(item.get("value"), int | float)


def _count_states(items: Iterable[Mapping[str, Any]]) -> list[tuple[str, int, str]]:
    """Return (state, number, names) of scores without a value, the most frequent state first."""
    names: dict[str, list[str]] = {}
    for item in items:
        reason = str(item.get("reason") or "").replace("_", " ")
        name = metric_words(str(item.get("metric", ""))) + f" ({item.get('scorer', '')}"
        name += f": {reason})" if reason else ")"
        names.setdefault(_state_words(item), []).append(one_line(name))
    ordered = sorted(names.items(), key=lambda entry: -len(entry[1]))
    return [(state, len(found), ", ".join(found)) for state, found in ordered]


def _state_words(item: Mapping[str, Any]) -> str:
    state = str(item.get("state", ""))
    return one_line(STATE_NAMES.get(state, state.replace("_", " ") or "not measured"))


def _question_row(
    answer: Answer, trace: Mapping[str, Any], results: Iterable[Mapping[str, Any]]
) -> QuestionRow:
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for item in results:
        scorer = str(item.get("scorer", "")).partition("@")[0]
        found.setdefault((str(item.get("metric", "")), scorer), item)
    own = [(metric, scorer, found.get((metric, scorer))) for metric, scorer in answer.scores]
    value, note = "", ""
    if answer.question == "works":
        value, note = _works(trace, [known for _, _, known in own if known is not None])
    elif answer.question == "fast":
        total = _dict(trace.get("timings")).get("total")
        value = format_seconds(total) if isinstance(total, int | float) else ""
    else:
        for metric, scorer, score in own:
            if score is None or not _known(score):
                continue
            if answer.unit == "usd":
                value = f"{format_number(answer, score['value'])} per 1,000"
            else:
                value = format_trace_value(score["value"], find_spec(metric_specs(), metric))
                note = _measured_by(metric, scorer)
            break
    if not value:
        states = [_state_words(known) for _, _, known in own if known is not None]
        note = next(iter(states), "not measured")
    return QuestionRow(answer.question, answer.meaning, value, note)


def _measured_by(metric: str, scorer: str) -> str:
    spec = find_spec(metric_specs(), metric)
    bounds = "" if spec is None else format_bounds(spec)
    return " · ".join(part for part in (metric_words(metric), bounds, scorer) if part)


def _works(trace: Mapping[str, Any], items: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """Return whether a request was answered, and what went wrong."""
    wrong = [metric_words(str(item.get("metric", ""))) for item in items if item.get("value") == 1]
    status = trace.get("status")
    if isinstance(status, str) and status not in ("", "ok") and status not in wrong:
        wrong.append(status)
    return ("no", one_line(", ".join(wrong))) if wrong else ("yes", "")


def _ordinal(number: int) -> str:
    """Return `1st`, `2nd`, `3rd`, `4th`."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number in (11, 12, 13) else ending}"


def _score_row(item: dict[str, Any], answer: str) -> ScoreRow:
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
    value = item.get("value")
    return ScoreRow(
        name=metric_words(name),
        notes=one_line(" · ".join(notes), 200),
        details=list(_details(_dict(item.get("detail")), answer)),
        value=format_trace_value(value, find_spec(metric_specs(), name))
        if isinstance(value, int | float)
        else "",
        state=_state_words(item),
    )


def _text(item: Any, key: str) -> str:
    text = _dict(item).get(key)
    return text if isinstance(text, str) else ""


def _list(item: Any) -> list[Any]:
    return item if isinstance(item, list) else []


def _dict(item: Any) -> dict[str, Any]:
    return item if isinstance(item, dict) else {}
