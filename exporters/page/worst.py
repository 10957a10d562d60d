"""The worst traces of a service, folded by metric, with an excerpt of each."""

from __future__ import annotations

from typing import Any

from exporters.page.markup import Child, Markup, clip, el, one_line
from exporters.page.numbers import moment, one_value
from exporters.page.tables import LABEL, trace_url, words
from exporters.page.views import ServiceView, WorstGroup, WorstTrace

__all__ = ["passage_block", "withheld", "worst_list"]


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
        el("summary", words(group.spec.name), el("small", note)),
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
        el("b", one_value(item.value, group.spec)),
        el("bdi", one_line(query or item.trace_id, 160), class_="q"),
        el("span", moment(item.timestamp), class_="t"),
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
        parts.append(passage_block(passage, index, 320, squeeze=True))
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


def passage_block(passage: Any, index: int, limit: int, squeeze: bool = False) -> Markup:
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
        else el("p", withheld(passage) or "no text was traced", class_="soft"),
        class_="passage",
    )  # fmt: skip


def withheld(kept: Any) -> str:
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
