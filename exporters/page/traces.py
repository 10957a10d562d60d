"""The list of worst traces and the body of the page of one trace."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ragmeter.core.metric_specs import display_rank, find_spec, name_at_cutoff
from ragmeter.exporters.page.markup import Child, Markup, clip, el, one_line
from ragmeter.exporters.page.numbers import format_seconds, format_time, format_trace_value
from ragmeter.exporters.page.tables import LABEL, metric_words, scroll_box, service_url, trace_url
from ragmeter.exporters.page.views import ServiceView, TraceView, WorstGroup, WorstTrace
from ragmeter.metrics.registry import METRICS


def worst_list(view: ServiceView) -> Markup:
    """A fold per metric with its worst traces in it; the first one is open."""
    return el(
        "div",
        [_worst_group(view.name, group, index == 0) for index, group in enumerate(view.worst)],
        class_="worst",
    )


def _worst_group(service: str, group: WorstGroup, open_: bool) -> Markup:
    number = len(group.traces)
    note = f"{group.scorer} · {number} worst in {group.window}"
    return el(
        "details",
        el("summary", metric_words(group.spec.name), el("small", note)),
        [
            _worst_trace(service, group, item, open_ and index == 0)
            for index, item in enumerate(group.traces)
        ],
        open=open_,
    )


def _worst_trace(service: str, group: WorstGroup, item: WorstTrace, open_: bool) -> Markup:
    trace = item.trace
    query = _text(trace, "query")
    line = el(
        "span",
        el("b", format_trace_value(item.value, group.spec)),
        el("bdi", one_line(query or item.trace_id, 160), class_="q"),
        el("span", format_time(item.timestamp), class_="t"),
        class_="line",
    )
    link: Child = el("a", "Whole trace ", el("code", one_line(item.trace_id, LABEL)),
                     href=trace_url(service, item.trace_id))  # fmt: skip
    if trace is None:
        link = [el("span", "Its text is not kept any more. ", class_="soft"),
                el("code", one_line(item.trace_id, LABEL))]  # fmt: skip
    return el(
        "details",
        el("summary", line),
        el("div", _excerpt(trace) if trace is not None else None, el("p", link), class_="case"),
        open=open_,
    )


def _excerpt(trace: dict[str, Any]) -> list[Child]:
    parts: list[Child] = []
    if trace.get("content") in ("none", "hash"):
        parts.append(el("p", "Texts are not kept (privacy.content).", class_="soft"))
    for key, limit in (("query", 300), ("answer", 700), ("error", 300)):
        text = _text(trace, key)
        if text:
            parts.append(_labelled(key.capitalize(), _short(text, limit)))
    passages = trace.get("passages")
    passages = passages if isinstance(passages, list) else []
    for index, passage in enumerate(passages[:3]):
        parts.append(_passage_block(passage, index, 320, squeeze=True))
    if len(passages) > 3:
        parts.append(el("span", f"and {len(passages) - 3} more passages", class_="soft"))
    return parts


def _labelled(label: str, text: str) -> Markup:
    return el("div", el("span", label, class_="label"), el("p", text, class_="text", dir="auto"))


def _short(text: str, limit: int) -> str:
    """An excerpt without blank lines: web pages as passages are full of them."""
    lines = (line.strip() for line in text[: 4 * limit].splitlines())
    squeezed = "\n".join(line for line in lines if line)
    cut = len(squeezed) > limit or len(text) > 4 * limit
    return f"{squeezed[:limit].rstrip()}…" if cut else squeezed


def _passage_block(passage: Any, index: int, limit: int, squeeze: bool = False) -> Markup:
    """One passage with its rank, score and id, its text cut to `limit` characters."""
    if not isinstance(passage, dict):
        passage = {}
    rank, score = passage.get("rank"), passage.get("score")
    facts = [f"Passage {rank if isinstance(rank, int) else index + 1}"]
    if isinstance(score, int | float):
        facts.append(f"score {score:.3g}")
    text = _text(passage, "text")
    return el(
        "div",
        el("span", " · ".join(facts), " · ", el("code", one_line(_text(passage, "id"), LABEL)),
           class_="label"),
        el("p", (_short if squeeze else clip)(text, limit), class_="text", dir="auto")
        if text
        else el("p", _withheld(passage) or "no text was traced", class_="soft"),
        class_="passage",
    )  # fmt: skip


def _withheld(kept: Any) -> str:
    """What stands in the place of a text that the settings do not keep; "" where there was none."""
    note = kept.get("not_kept") if isinstance(kept, dict) else None
    if not isinstance(note, dict):
        return ""
    characters, mark = note.get("characters"), note.get("blake2b")
    size = f"{characters:,} characters, " if isinstance(characters, int) else ""
    return f"{size}not kept" + (f" · {mark}" if isinstance(mark, str) else "")


def _text(item: dict[str, Any] | None, key: str) -> str:
    found = None if item is None else item.get(key)
    return found if isinstance(found, str) else ""


# Characters of text and numbers of things on one page: some 700 kB at the very most.
QUERY, ANSWER, PASSAGE, MESSAGE, DETAIL = 8_000, 20_000, 6_000, 3_000, 1_500
PASSAGES, MESSAGES, CITATIONS, RESULTS = 50, 50, 100, 100


def trace_body(view: TraceView) -> Markup:
    trace = view.trace
    reading: list[Child] = [
        _not_kept(trace),
        _prose("Query", trace.get("query"), QUERY, _absent(trace, "query")),
        _history(trace.get("history")),
        _prose("Answer", trace.get("answer"), ANSWER, _absent(trace, "answer") or "none was given"),
        _prose("Error", trace.get("error"), MESSAGE, _absent(trace, "error")),
        _citations(trace),
        _passages(trace.get("passages"), _absent(trace, "passages")),
        _reference(trace.get("reference")),
    ]
    facts: list[Child] = [
        el("h3", "Scores"),
        _results(view.results),
        _timings(trace.get("timings")),
        _facts(trace),
    ]
    head = el(
        "h2", el("small", "Trace "), el("code", one_line(view.trace_id, 200)), " ",
        el("small", "of "), el("a", one_line(view.service, LABEL), href=service_url(view.service)),
    )  # fmt: skip
    return el("section", head, el("div", el("div", reading), el("aside", facts), class_="two"))


def _prose(title: str, text: Any, limit: int, missing: str = "") -> Markup | None:
    if isinstance(text, str) and text.strip():
        body: Child = el("p", clip(text, limit), class_="text", dir="auto")
    elif missing:
        body = el("p", missing, class_="soft")
    else:
        return None
    return el("div", el("h3", title), el("div", body, class_="answer"))


AWAY = {
    "gone": "The topic of the traces does not have it any more (kafka.retention): scores only.",
    "pending": "Its texts are being read from the topic of the traces: look again in a moment.",
    "crowded": "There is no room for more texts of worst traces (kafka.evidence_bytes).",
}


def _not_kept(trace: dict[str, Any]) -> Markup | None:
    away = AWAY.get(str(trace.get("content")))
    if away is not None:
        return el("p", away, class_="soft")
    how = {"none": "only ids, numbers and scores", "hash": "only hashes, ids, numbers and scores"}
    kept = how.get(str(trace.get("content")))
    return (
        el("p", f"Texts are not kept (privacy.content): {kept}.", class_="soft") if kept else None
    )


def _absent(trace: dict[str, Any], name: str) -> str:
    """Why a text is not here, where that is known."""
    missing, notes = trace.get("missing"), trace.get("not_kept")
    why = missing.get(name) if isinstance(missing, dict) else None
    if isinstance(why, str):
        return one_line(why.replace("_", " "), LABEL)
    return _withheld({"not_kept": notes.get(name)}) if isinstance(notes, dict) else ""


def _history(messages: Any) -> Markup | None:
    turns = [item for item in _list(messages) if isinstance(item, dict)]
    if not turns:
        return None
    shown = [
        el(
            "div",
            el("span", one_line(str(turn.get("role", "")), LABEL), class_="label"),
            el("p", clip(str(turn.get("text", "")), MESSAGE), class_="text", dir="auto"),
            class_="passage",
        )
        for turn in turns[-MESSAGES:]
    ]
    note = f"{len(turns)} earlier turns"
    fold = el("details", el("summary", note), el("div", shown, class_="case"))
    return el("div", fold, class_="worst")


def _citations(trace: dict[str, Any]) -> Markup | None:
    answer = trace.get("answer")
    items = []
    for item in _list(trace.get("citations"))[:CITATIONS]:
        if not isinstance(item, dict):
            continue
        start, end = item.get("start"), item.get("end")
        span = ""
        if isinstance(answer, str) and isinstance(start, int) and isinstance(end, int):
            span = answer[start:end]
        ids = [one_line(str(name), LABEL) for name in _list(item.get("passage_ids"))[:20]]
        items.append(
            el("li", el("bdi", f"“{one_line(span, 160)}” " if span else ""), "→ ",
               el("code", ", ".join(ids) or "nothing"))
        )  # fmt: skip
    return el("div", el("h3", "Citations"), el("ul", items)) if items else None


def _passages(passages: Any, missing: str = "") -> Markup:
    if passages is None:
        why = f"Retrieval was not traced{f': {missing}' if missing else ''}."
        return el("div", el("h3", "Passages"), el("p", why, class_="soft"))
    items = _list(passages)
    if not items:
        return el("div", el("h3", "Passages"), el("p", "Retrieval found nothing.", class_="soft"))
    shown = [_passage_block(item, index, PASSAGE) for index, item in enumerate(items[:PASSAGES])]
    more = f" {len(items) - PASSAGES} more are not shown" if len(items) > PASSAGES else ""
    more += f" {missing}" if missing else ""
    title = el("h3", f"{len(items)} passage{'' if len(items) == 1 else 's'}", el("small", more))
    return el("div", title, el("div", shown, class_="cards"))


def _reference(reference: Any) -> Markup | None:
    if not isinstance(reference, dict) or not reference.get("answer"):
        return None
    return _prose("Reference answer", str(reference["answer"]), QUERY)


def _results(results: list[dict[str, Any]]) -> Markup:
    if not results:
        return el("p", "No scores are kept.", class_="soft")
    ordered = sorted(results[:RESULTS], key=lambda item: display_rank(str(item.get("metric", ""))))
    body = [_result(item) for item in ordered]
    head = el("tr", el("th", "Metric", scope="col"), el("th", "Value", scope="col", class_="n"))
    return scroll_box("Scores", el("table", el("thead", head), el("tbody", body)))


def _result(item: dict[str, Any]) -> Markup:
    name, scorer = str(item.get("metric", "")), str(item.get("scorer", ""))
    if isinstance(item.get("k"), int):
        name = name_at_cutoff(name, item["k"])
    number, state = item.get("value"), str(item.get("state", ""))
    if isinstance(number, int | float):
        shown: Child = el("b", format_trace_value(number, find_spec(METRICS, name)))
    else:
        shown = el("span", state.replace("_", " "), class_="soft")
    notes = [scorer]
    if item.get("reason"):
        notes.append(str(item["reason"]).replace("_", " "))
    probability = item.get("probability")
    if isinstance(probability, int | float) and probability < 1:
        notes.append(f"probability {probability:.3g}")
    if item.get("fingerprint"):
        notes.append(f"instrument {item['fingerprint']}")
    detail = item.get("detail")
    return el(
        "tr",
        el(
            "th",
            metric_words(name),
            el("small", one_line(" · ".join(notes), 200)),
            el("small", el("code", clip(_json(detail), DETAIL))) if detail else None,
            scope="row",
        ),
        el("td", shown, class_="n"),
    )


def _timings(timings: Any) -> Markup | None:
    if not isinstance(timings, dict):
        return None
    rows = [(str(k), format_seconds(v)) for k, v in timings.items() if isinstance(v, int | float)]
    return el("div", el("h3", "Timings"), _pairs(rows[:50])) if rows else None


def _facts(trace: dict[str, Any]) -> Markup:
    rows: list[tuple[str, str]] = []
    for key in ("timestamp", "status", "model", "prompt_version", "abstained"):
        if trace.get(key) is not None:
            rows.append((key.replace("_", " "), str(trace[key])))
    for group in ("usage", "sampling", "tags"):
        inner = trace.get(group)
        if isinstance(inner, dict):
            rows += [(str(k).replace("_", " "), str(v)) for k, v in inner.items() if v is not None]
    return el("div", el("h3", "About"), _pairs(rows[:100]))


def _pairs(rows: Iterable[tuple[str, str]]) -> Markup:
    cells = [
        [el("dt", one_line(key, LABEL)), el("dd", el("bdi", one_line(text, 300)))]
        for key, text in rows
    ]
    return el("dl", cells, class_="pairs")


def _list(item: Any) -> list[Any]:
    return item if isinstance(item, list) else []


def _json(detail: Any) -> str:
    return json.dumps(detail, ensure_ascii=False, default=str)
