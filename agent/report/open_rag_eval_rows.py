"""Scored traces as the columns of open-rag-eval (Vectara, 0.3.0). Pure.

A score goes to a column only where it is that column's quantity by the same kind of instrument: the
built-in scorers are none of them. What has no value stays empty, which pandas reads as missing and
open-rag-eval's plots leave out. Passages are numbered `[1]`, `[2]`, as its connectors do.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from agent.metrics.markers import Mark, resolve
from agent.metrics.names import base, cutoff
from agent.metrics.results import JUDGE
from agent.report.open_rag_eval import AUTONUGGETIZER, COLUMNS, HHEM, NUGGETS, RUN, UMBRELA
from agent.trace import Score, ScoredTrace, State, Trace

__all__ = ["HEADER", "Rows"]

HEADER = ("query_id", "query", *(RUN + name for name in COLUMNS))

ASSIGNMENT = {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}
_PLAIN = {
    "retrieval_score_mean_umbrela_score": ("relevance", UMBRELA),
    "generation_score_mean_nugget_assignment_score": ("nugget_all", AUTONUGGETIZER),
    "generation_score_vital_nuggetizer_score": ("nugget_vital", AUTONUGGETIZER),
    "generation_score_hallucination_score": ("grounding", HHEM),
    "generation_score_citation_f1_score": ("citation_passage_f1", JUDGE),
}


class Rows:
    """Makes rows, and remembers which columns never had a value."""

    def __init__(self) -> None:
        self._filled: Counter[str] = Counter()

    @property
    def empty(self) -> list[str]:
        return [name for name in COLUMNS if not self._filled[name]]

    def row(self, scored: ScoredTrace, trace: Trace | None) -> list[str]:
        """In the order of `HEADER`; `trace` gives query, passages and answer."""
        scores = {(score.metric, score.scorer): score for score in scored.results}
        found = dict(_cells(scores))
        if trace is not None:
            found |= _texts(trace)
        self._filled.update(list(found))
        cells = [json.dumps(found[name]) if name in found else "" for name in COLUMNS]
        return [scored.trace_id, (trace and trace.query) or "", *cells]


def _value(scores: dict[tuple[str, str], Score], metric: str, scorer: str) -> float | None:
    score = scores.get((metric, scorer))
    return score.value if score is not None and score.state is State.SCORED else None


def _cells(scores: dict[tuple[str, str], Score]) -> Iterator[tuple[str, Any]]:
    for name, pair in _PLAIN.items():
        value = _value(scores, *pair)
        if value is not None:
            yield name, value
    ranks = _ranks(scores)
    if ranks:
        yield "retrieval_score_precision_metrics", ranks
    grades = _grades(scores.get(("relevance", UMBRELA)))
    if grades:
        yield "retrieval_score_umbrela_scores", grades
    nuggets = _nuggets(scores)
    if nuggets:
        yield "generation_score_autonugget_scores", nuggets
    cited = {
        "weighted_precision": _value(scores, "citation_passage_precision", JUDGE),
        "weighted_recall": _value(scores, "citation_recall", JUDGE),
        "f1": _value(scores, "citation_passage_f1", JUDGE),
    }
    if any(value is not None for value in cited.values()):
        known = {name: value for name, value in cited.items() if value is not None}
        yield "generation_score_citation_scores", known
    answered = _value(scores, "answered", JUDGE)
    if answered is not None:
        said = "yes" if answered >= 0.5 else "no"
        yield "generation_score_no_answer_score", {"query_answered": said}


def _ranks(scores: dict[tuple[str, str], Score]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (metric, scorer), score in scores.items():
        key = {"precision_at_k": "precision@", "average_precision_at_k": "AP@"}.get(base(metric))
        k = cutoff(metric)
        if key and k and scorer == UMBRELA and score.value is not None:
            found.setdefault(key, {})[k] = score.value
    mrr = _value(scores, "reciprocal_rank", UMBRELA)
    return found if mrr is None else {**found, "MRR": mrr}


def _grades(score: Score | None) -> dict[str, int]:
    grades = (score.detail or {}).get("grades") if score is not None else None
    grades = grades if isinstance(grades, list) else []
    return {f"[{n}]": g for n, g in enumerate(grades, start=1) if isinstance(g, int)}


def _nuggets(scores: dict[tuple[str, str], Score]) -> dict[str, Any]:
    values = {name: _value(scores, metric, AUTONUGGETIZER) for name, metric in NUGGETS.items()}
    known = {name: value for name, value in values.items() if value is not None}
    if not known:
        return {}
    items: list[dict[str, Any]] = []
    for metric in NUGGETS.values():
        score = scores.get((metric, AUTONUGGETIZER))
        found = (score.detail or {}).get("nuggets") if score is not None else None
        if isinstance(found, list) and found:
            items = [item for item in found if isinstance(item, dict)]
            break
    assigned = [item for item in items if item.get("support") in ASSIGNMENT]
    return {
        "nuggetizer_scores": known,
        "nuggets": [item.get("text") for item in assigned],
        "labels": [item.get("importance") for item in assigned],
        "assignments": [item["support"] for item in assigned],
        "assignment_scores": [ASSIGNMENT[item["support"]] for item in assigned],
    }


def _texts(trace: Trace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if trace.passages is not None:
        found["retrieved_passages"] = {
            f"[{n}]": passage.text or "" for n, passage in enumerate(trace.passages, start=1)
        }
    if trace.answer is not None:
        found["generated_answer"] = list(_parts(trace, trace.answer))
    return found


def _parts(trace: Trace, answer: str) -> Iterator[dict[str, Any]]:
    """The answer in parts, each with what it cites: the text before a marker, or the stretch that
    an explicit citation names."""
    cited = resolve(trace)
    placed = sorted((m for m in cited.marks if m.start >= 0), key=lambda m: (m.start, m.end))
    if not placed:
        every = [_ids(mark) for mark in cited.marks]
        yield {
            "text": answer,
            "citations": list(dict.fromkeys(one for ids in every for one in ids)),
        }
        return
    parts: list[dict[str, Any]] = []
    at = 0
    for mark in placed:
        end = max(at, mark.end)
        if cited.explicit and mark.start > at:
            parts.append({"text": answer[at : mark.start], "citations": []})
            at = mark.start
        text = answer[at:end] if cited.explicit else answer[at : max(at, mark.start)]
        if text.strip() or not parts:
            parts.append({"text": text.strip(), "citations": _ids(mark)})
        else:  # two markers beside each other
            parts[-1]["citations"] += [i for i in _ids(mark) if i not in parts[-1]["citations"]]
        at = end
    if answer[at:].strip():
        parts.append({"text": answer[at:].strip(), "citations": []})
    yield from parts


def _ids(mark: Mark) -> list[str]:
    return [f"[{index + 1}]" for index in mark.passages]
