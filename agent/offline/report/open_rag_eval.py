"""Read and write the CSV columns of open-rag-eval (Vectara, 0.3.0).

The columns of open-rag-eval (Vectara, 0.3.0), read as a scored trace. Pure.

A row is a question; `run_1_` before a column's name counts the answers to it, and files of older
versions lack it. Two of its habits are not taken over: where nuggets failed it writes 0.5, which is
no measurement (its `autonugget_scores` is then empty), and a row whose evaluation failed has empty
cells. Both are unscored here.

Scored traces as the columns of open-rag-eval (Vectara, 0.3.0). Pure.

A score goes to a column only where it is that column's quantity by the same kind of instrument: the
built-in scorers are none of them. What has no value stays empty, which pandas reads as missing and
open-rag-eval's plots leave out. Passages are numbered `[1]`, `[2]`, as its connectors do.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragmeter.core.metric_specs import base_name, find_spec, name_at_cutoff, parse_cutoff
from ragmeter.core.score import JUDGE_SCORER, Score, ScoredTrace, ScoreState
from ragmeter.metrics.citations import CitationMark, resolve_citations
from ragmeter.metrics.registry import metric_specs
from ragmeter.offline.report.summary import TraceText
from ragmeter.trace import MAX_ID, Trace

RUN = "run_1_"

COLUMNS = (
    "retrieved_passages",
    "generated_answer",
    "retrieval_score_umbrela_scores",
    "retrieval_score_precision_metrics",
    "retrieval_score_mean_umbrela_score",
    "generation_score_autonugget_scores",
    "generation_score_mean_nugget_assignment_score",
    "generation_score_vital_nuggetizer_score",
    "generation_score_hallucination_score",
    "generation_score_citation_scores",
    "generation_score_citation_f1_score",
    "generation_score_no_answer_score",
)
"""Those of its TREC evaluator, in its order, after `query_id` and `query`."""

NUGGETS = {
    "All": "nugget_all",
    "All Strict": "nugget_all_strict",
    "Vital": "nugget_vital",
    "Vital Strict": "nugget_vital_strict",
    "Weighted": "nugget_weighted",
    "Weighted Strict": "nugget_weighted_strict",
}

UMBRELA, AUTONUGGETIZER, HHEM = "umbrela", "autonuggetizer", "hhem_fulltext"
MAX_K = 100  # as in scored files: each cut-off is a series
MAX_TEXT = 2_000  # characters kept of a query and of an answer, to be shown cut shorter

_RUNS = re.compile(r"run_(\d{1,4})_")


@dataclass(frozen=True, slots=True)
class OpenRagEvalRow:
    trace: ScoredTrace
    text: TraceText


def is_open_rag_eval(header: Sequence[str]) -> bool:
    """Whether these are the names of its columns."""
    bare = {_RUNS.sub("", name, count=1) for name in header}
    return "query_id" in header and bool(bare & set(COLUMNS))


def count_runs(header: Sequence[str]) -> int:
    """How many answers to a question the file has columns for; the first one is read."""
    found = (_RUNS.match(name) for name in header)
    return max((int(match[1]) for match in found if match), default=1)


def read_open_rag_eval_row(row: Mapping[str, str]) -> OpenRagEvalRow | None:
    """None for a row without an id of its question."""
    query_id = row.get("query_id", "").strip()[:MAX_ID]
    if not query_id:
        return None
    reader = _OpenRagEvalReader(row)
    scores = [*reader.scores()]
    answer = reader.parsed("generated_answer")
    parts = answer if isinstance(answer, list) else []
    text = " ".join(
        part["text"]
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    )
    trace = ScoredTrace(query_id, "open-rag-eval", 0.0, "ok", scores)
    return OpenRagEvalRow(trace, TraceText(row.get("query", "")[:MAX_TEXT], text[:MAX_TEXT]))


class _OpenRagEvalReader:
    def __init__(self, row: Mapping[str, str]) -> None:
        self._row = row

    def cell(self, name: str) -> str | None:
        """What stands in a column; None where the file has no such column."""
        return self._row.get(RUN + name, self._row.get(name))

    def parsed(self, name: str) -> Any:
        """The JSON of a cell (numbers are JSON, too); None where it is empty or broken."""
        try:
            return json.loads(self.cell(name) or "null", parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            return None

    def part(self, name: str, *path: str) -> Any:
        found = self.parsed(name)
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def scores(self) -> Iterator[Score]:
        retrieval, generation = "retrieval_score_", "generation_score_"
        mean = retrieval + "mean_umbrela_score"
        yield from self._read_score("relevance", UMBRELA, mean, self.parsed(mean))
        ranks = retrieval + "precision_metrics"
        for key, metric in (("precision@", "precision_at_k"), ("AP@", "average_precision_at_k")):
            by_k = self.part(ranks, key)
            for k, value in by_k.items() if isinstance(by_k, dict) else ():
                if k.isdecimal() and len(k) < 4 and 1 <= int(k) <= MAX_K:
                    yield from self._read_score(
                        name_at_cutoff(metric, int(k)), UMBRELA, ranks, value
                    )
        yield from self._read_score("reciprocal_rank", UMBRELA, ranks, self.part(ranks, "MRR"))
        yield from self._nuggets(generation + "autonugget_scores")
        hallucination = generation + "hallucination_score"
        yield from self._read_score("grounding", HHEM, hallucination, self.parsed(hallucination))
        cited = generation + "citation_scores"
        f1 = self.parsed(generation + "citation_f1_score")
        for metric, value in (
            ("citation_passage_precision", self.part(cited, "weighted_precision")),
            ("citation_recall", self.part(cited, "weighted_recall")),
            ("citation_passage_f1", self.part(cited, "f1") if f1 is None else f1),
        ):
            yield from self._read_score(metric, JUDGE_SCORER, cited, value)
        answered = generation + "no_answer_score"
        said = {"yes": 1.0, "no": 0.0}.get(str(self.part(answered, "query_answered")))
        yield from self._read_score("answered", JUDGE_SCORER, answered, said)

    def _nuggets(self, column: str) -> Iterator[Score]:
        by_name = self.part(column, "nuggetizer_scores")
        vital = "generation_score_vital_nuggetizer_score"
        if self.cell(column) is None and self.cell(vital) is not None:
            # without what it was made of nobody can tell a score from a failure's 0.5
            yield from self._read_score("nugget_vital", AUTONUGGETIZER, vital, self.parsed(vital))
            return
        for name, metric in NUGGETS.items():
            value = by_name.get(name) if isinstance(by_name, dict) else None
            yield from self._read_score(metric, AUTONUGGETIZER, column, value, "judge_error")

    def _read_score(
        self, metric: str, scorer: str, column: str, value: object, reason: str = "not_reported"
    ) -> Iterator[Score]:
        if self.cell(column) is None:
            return
        spec = find_spec(metric_specs(), metric)
        if isinstance(value, bool) or not isinstance(value, int | float) or spec is None:
            empty = not (self.cell(column) or "").strip()
            yield Score(
                metric, scorer, ScoreState.UNSCORED, reason="not_reported" if empty else reason
            )
            return
        high = math.inf if spec.high is None else spec.high
        if not spec.low <= value <= high:
            yield Score(metric, scorer, ScoreState.UNSCORED, reason="invalid_value")
        else:
            yield Score(metric, scorer, ScoreState.SCORED, float(value))


OPEN_RAG_EVAL_HEADER = ("query_id", "query", *(RUN + name for name in COLUMNS))

ASSIGNMENT = {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}
_PLAIN = {
    "retrieval_score_mean_umbrela_score": ("relevance", UMBRELA),
    "generation_score_mean_nugget_assignment_score": ("nugget_all", AUTONUGGETIZER),
    "generation_score_vital_nuggetizer_score": ("nugget_vital", AUTONUGGETIZER),
    "generation_score_hallucination_score": ("grounding", HHEM),
    "generation_score_citation_f1_score": ("citation_passage_f1", JUDGE_SCORER),
}


class OpenRagEvalRows:
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
    return score.value if score is not None and score.state is ScoreState.SCORED else None


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
        "weighted_precision": _value(scores, "citation_passage_precision", JUDGE_SCORER),
        "weighted_recall": _value(scores, "citation_recall", JUDGE_SCORER),
        "f1": _value(scores, "citation_passage_f1", JUDGE_SCORER),
    }
    if any(value is not None for value in cited.values()):
        known = {name: value for name, value in cited.items() if value is not None}
        yield "generation_score_citation_scores", known
    answered = _value(scores, "answered", JUDGE_SCORER)
    if answered is not None:
        said = "yes" if answered >= 0.5 else "no"
        yield "generation_score_no_answer_score", {"query_answered": said}


def _ranks(scores: dict[tuple[str, str], Score]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (metric, scorer), score in scores.items():
        key = {"precision_at_k": "precision@", "average_precision_at_k": "AP@"}.get(
            base_name(metric)
        )
        k = parse_cutoff(metric)
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
    cited = resolve_citations(trace)
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


def _ids(mark: CitationMark) -> list[str]:
    return [f"[{index + 1}]" for index in mark.passages]
