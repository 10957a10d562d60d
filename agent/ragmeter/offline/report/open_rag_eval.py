"""Read and write the CSV columns of open-rag-eval (Vectara, 0.3.0).

Each row is a question. The prefix `run_1_` of a column numbers the answers to it: a question that
was asked three times has the columns `run_1_` to `run_3_`. Files of older versions lack the prefix.
Two cases are read as unscored: the 0.5 that open-rag-eval writes where nuggets failed (its
`autonugget_scores` is then empty), and the empty cells of a failed evaluation.

A score is written to a column only if it is the same quantity by the same kind of instrument, which
excludes the built-in scorers. Missing values stay empty: pandas reads them as missing, and
open-rag-eval's plots omit them. Passages are numbered `[1]`, `[2]`, as by its connectors.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragmeter.core.files import load_yaml
from ragmeter.core.metric_specs import base_name, find_spec, name_at_cutoff, parse_cutoff
from ragmeter.core.score import JUDGE_SCORER, Score, ScoredTrace, ScoreState
from ragmeter.metrics.citations import CitationMark, resolve_citations
from ragmeter.metrics.registry import metric_specs
from ragmeter.offline.report.run import TraceText
from ragmeter.reasons import Reason
from ragmeter.trace import MAX_ID, Trace

MAX_RUNS = 100  # answers to one question that are read or written

_TABLES = load_yaml(__package__, "open_rag_eval.yaml")
COLUMNS: tuple[str, ...] = tuple(_TABLES["columns"])
NUGGETS: dict[str, str] = _TABLES["nuggets"]
ASSIGNMENT: dict[str, float] = _TABLES["assignments"]

UMBRELA = "umbrela"
AUTONUGGETIZER = "autonuggetizer"
HHEM = "hhem_fulltext"
MAX_K = 100  # as in scored files: each cut-off is a series
MAX_TEXT = 2_000  # characters of a query or an answer; displays shorten them further

_CLOSING = ".,;:!?…。"  # signs that end the sentence before a citation marker

_RUNS = re.compile(r"run_(\d{1,4})_")


@dataclass(slots=True)
class ReportTrace:
    """Scored trace, with its texts where the scored file has them.

    Args:
        question: Id of the question, where several traces of the file answer it.
    """

    trace: ScoredTrace
    text: TraceText | None = None
    question: str | None = None


def normalise_query(query: str) -> str:
    """Normalise white space and case, so that equal questions compare equal."""
    return " ".join(query.split()).casefold()


def is_open_rag_eval(header: Sequence[str]) -> bool:
    """Tell whether a CSV header is that of open-rag-eval."""
    bare = {_RUNS.sub("", name, count=1) for name in header}
    return "query_id" in header and bool(bare & set(COLUMNS))


def count_runs(header: Sequence[str]) -> int:
    """Count the answers to a question that the header has columns for."""
    matches = (_RUNS.match(name) for name in header)
    return min(max((int(match[1]) for match in matches if match), default=1), MAX_RUNS)


def read_open_rag_eval_row(row: Mapping[str, str], runs: int = 1) -> list[ReportTrace]:
    """Read the answers of a row, in the order of their runs; none if it has no `query_id`.

    Later answers have the number of their run in their trace id. A run without any cell is left
    out, unless it is the first.
    """
    query_id = row.get("query_id", "").strip()[:MAX_ID]
    if not query_id:
        return []
    found = []
    for run in range(1, runs + 1):
        prefix = f"run_{run}_"
        if run > 1 and not any(row.get(prefix + name, "").strip() for name in COLUMNS):
            continue
        trace_id = query_id if run == 1 else f"{query_id}#{run}"
        found.append(_read_answer(row, prefix, query_id, trace_id))
    return found


def _read_answer(row: Mapping[str, str], prefix: str, query_id: str, trace_id: str) -> ReportTrace:
    reader = _OpenRagEvalReader(row, prefix)
    scores = [*reader.scores()]
    answer = reader.parsed("generated_answer")
    segments = answer if isinstance(answer, list) else []
    text = " ".join(
        segment["text"]
        for segment in segments
        if isinstance(segment, dict) and isinstance(segment.get("text"), str)
    )
    trace = ScoredTrace(
        trace_id=trace_id, service="open-rag-eval", timestamp=0.0, status="ok", results=scores
    )
    texts = TraceText(row.get("query", "")[:MAX_TEXT], text[:MAX_TEXT])
    return ReportTrace(trace, texts, query_id)


class _OpenRagEvalReader:
    def __init__(self, row: Mapping[str, str], prefix: str) -> None:
        self._row = row
        self._prefix = prefix

    def cell(self, name: str) -> str | None:
        """Return the text of a cell; None if the file has no such column.

        Files of older versions have one run, whose columns have no prefix.
        """
        return self._row.get(self._prefix + name, self._row.get(name))

    def parsed(self, name: str) -> Any:
        """Parse the JSON of a cell (numbers included); None if it is empty or broken."""
        try:
            return json.loads(self.cell(name) or "null", parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            return None

    def nested(self, name: str, *path: str) -> Any:
        value = self.parsed(name)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def scores(self) -> Iterator[Score]:
        retrieval = "retrieval_score_"
        generation = "generation_score_"
        mean = retrieval + "mean_umbrela_score"
        yield from self._read_score("relevance", UMBRELA, mean, self.parsed(mean))
        ranks = retrieval + "precision_metrics"
        for key, metric in (("precision@", "precision_at_k"), ("AP@", "average_precision_at_k")):
            by_k = self.nested(ranks, key)
            for k, value in by_k.items() if isinstance(by_k, dict) else ():
                if k.isdecimal() and len(k) < 4 and 1 <= int(k) <= MAX_K:
                    yield from self._read_score(
                        name_at_cutoff(metric, int(k)), UMBRELA, ranks, value
                    )
        yield from self._read_score("reciprocal_rank", UMBRELA, ranks, self.nested(ranks, "MRR"))
        yield from self._nuggets(generation + "autonugget_scores")
        hallucination = generation + "hallucination_score"
        yield from self._read_score("grounding", HHEM, hallucination, self.parsed(hallucination))
        cited = generation + "citation_scores"
        f1 = self.parsed(generation + "citation_f1_score")
        for metric, value in (
            ("citation_passage_precision", self.nested(cited, "weighted_precision")),
            ("citation_recall", self.nested(cited, "weighted_recall")),
            ("citation_passage_f1", self.nested(cited, "f1") if f1 is None else f1),
        ):
            yield from self._read_score(metric, JUDGE_SCORER, cited, value)
        answered = generation + "no_answer_score"
        value = {"yes": 1.0, "no": 0.0}.get(str(self.nested(answered, "query_answered")))
        yield from self._read_score("answered", JUDGE_SCORER, answered, value)

    def _nuggets(self, column: str) -> Iterator[Score]:
        by_name = self.nested(column, "nuggetizer_scores")
        vital = "generation_score_vital_nuggetizer_score"
        if self.cell(column) is None and self.cell(vital) is not None:
            # Without the nugget scores a real 0.5 cannot be told from the 0.5 of a failure.
            yield from self._read_score("nugget_vital", AUTONUGGETIZER, vital, self.parsed(vital))
            return
        for name, metric in NUGGETS.items():
            value = by_name.get(name) if isinstance(by_name, dict) else None
            yield from self._read_score(
                metric=metric,
                scorer=AUTONUGGETIZER,
                column=column,
                value=value,
                reason=Reason.JUDGE_ERROR,
            )

    def _read_score(
        self,
        metric: str,
        scorer: str,
        column: str,
        value: object,
        reason: str = Reason.NOT_REPORTED,
    ) -> Iterator[Score]:
        if self.cell(column) is None:
            return
        spec = find_spec(metric_specs(), metric)
        if isinstance(value, bool) or not isinstance(value, int | float) or spec is None:
            empty = not (self.cell(column) or "").strip()
            yield Score(
                metric, scorer, ScoreState.UNSCORED, reason=Reason.NOT_REPORTED if empty else reason
            )
            return
        high = math.inf if spec.high is None else spec.high
        if not spec.low <= value <= high:
            yield Score(metric, scorer, ScoreState.UNSCORED, reason=Reason.INVALID_VALUE)
        else:
            yield Score(metric, scorer, ScoreState.SCORED, float(value))


class OpenRagEvalTable:
    """Builder of the CSV: a row for each question, with `run_2_` and so on for further answers.

    Answers belong to one question if the text of the question is the same. The table is held until
    it is complete, since its header depends on the most answers to a question.
    """

    def __init__(self) -> None:
        self._filled: Counter[str] = Counter()
        self._rows: list[tuple[str, str, list[list[str]]]] = []
        self._by_question: dict[str, list[list[str]]] = {}

    @property
    def empty(self) -> list[str]:
        """Columns without a value in any row so far."""
        return [name for name in COLUMNS if not self._filled[name]]

    def add(self, scored: ScoredTrace, trace: Trace | None) -> None:
        """Add an answer; without its trace query, passages and answer are left empty."""
        scores = {(score.metric, score.scorer): score for score in scored.results}
        values = dict(_cells(scores))
        if trace is not None:
            values |= _texts(trace)
        self._filled.update(list(values))
        cells = [json.dumps(values[name]) if name in values else "" for name in COLUMNS]
        query = (trace and trace.query) or ""
        key = f"{scored.service} {normalise_query(query)}" if query.strip() else ""
        runs = self._by_question.get(key) if key else None
        if runs is None or len(runs) >= MAX_RUNS:
            runs = []
            self._rows.append((scored.trace_id, query, runs))
            if key:
                self._by_question[key] = runs
        runs.append(cells)

    def rows(self) -> Iterator[list[str]]:
        """Yield the header and the rows."""
        most = max((len(runs) for _, _, runs in self._rows), default=1)
        header = [f"run_{run}_{name}" for run in range(1, most + 1) for name in COLUMNS]
        yield ["query_id", "query", *header]
        for query_id, query, runs in self._rows:
            blank = [""] * (len(COLUMNS) * (most - len(runs)))
            yield [query_id, query, *(cell for cells in runs for cell in cells), *blank]


def _value(scores: dict[tuple[str, str], Score], metric: str, scorer: str) -> float | None:
    score = scores.get((metric, scorer))
    return score.value if score is not None and score.state is ScoreState.SCORED else None


def _cells(scores: dict[tuple[str, str], Score]) -> Iterator[tuple[str, Any]]:
    for name, pair in _TABLES["numbers"].items():
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
        reported = {name: value for name, value in cited.items() if value is not None}
        yield "generation_score_citation_scores", reported
    answered = _value(scores, "answered", JUDGE_SCORER)
    if answered is not None:
        verdict = "yes" if answered >= 0.5 else "no"
        yield "generation_score_no_answer_score", {"query_answered": verdict}


def _ranks(scores: dict[tuple[str, str], Score]) -> dict[str, Any]:
    ranks: dict[str, Any] = {}
    for (metric, scorer), score in scores.items():
        key = {"precision_at_k": "precision@", "average_precision_at_k": "AP@"}.get(
            base_name(metric)
        )
        k = parse_cutoff(metric)
        if key and k and scorer == UMBRELA and score.value is not None:
            ranks.setdefault(key, {})[k] = score.value
    mrr = _value(scores, "reciprocal_rank", UMBRELA)
    return ranks if mrr is None else {**ranks, "MRR": mrr}


def _grades(score: Score | None) -> dict[str, int]:
    grades = (score.detail or {}).get("grades") if score is not None else None
    grades = grades if isinstance(grades, list) else []
    return {f"[{n}]": g for n, g in enumerate(grades, start=1) if isinstance(g, int)}


def _nuggets(scores: dict[tuple[str, str], Score]) -> dict[str, Any]:
    values = {name: _value(scores, metric, AUTONUGGETIZER) for name, metric in NUGGETS.items()}
    reported = {name: value for name, value in values.items() if value is not None}
    if not reported:
        return {}
    items: list[dict[str, Any]] = []
    for metric in NUGGETS.values():
        score = scores.get((metric, AUTONUGGETIZER))
        nuggets = (score.detail or {}).get("nuggets") if score is not None else None
        if isinstance(nuggets, list) and nuggets:
            items = [item for item in nuggets if isinstance(item, dict)]
            break
    assigned = [item for item in items if item.get("support") in ASSIGNMENT]
    return {
        "nuggetizer_scores": reported,
        "nuggets": [item.get("text") for item in assigned],
        "labels": [item.get("importance") for item in assigned],
        "assignments": [item["support"] for item in assigned],
        "assignment_scores": [ASSIGNMENT[item["support"]] for item in assigned],
    }


def _texts(trace: Trace) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if trace.passages is not None:
        columns["retrieved_passages"] = {
            f"[{n}]": passage.text or "" for n, passage in enumerate(trace.passages, start=1)
        }
    if trace.answer is not None:
        columns["generated_answer"] = list(_parts(trace, trace.answer))
    return columns


def _parts(trace: Trace, answer: str) -> Iterator[dict[str, Any]]:
    """Split the answer into segments with their citations.

    A segment is the text before a marker, or the span of an explicit citation.
    """
    citations = resolve_citations(trace)
    placed = sorted((m for m in citations.marks if m.start >= 0), key=lambda m: (m.start, m.end))
    if not placed:
        every = [_ids(mark) for mark in citations.marks]
        yield {
            "text": answer,
            "citations": list(dict.fromkeys(id_ for ids in every for id_ in ids)),
        }
        return
    segments: list[dict[str, Any]] = []
    position = 0

    def add(text: str, citations: list[str]) -> None:
        if segments and not explicit:
            # the full stop after a marker ends the sentence before it
            rest = text.lstrip().lstrip(_CLOSING)
            segments[-1]["text"] += text.lstrip().removesuffix(rest)
            text = rest
        if text.strip() or not segments:
            segments.append({"text": text if explicit else text.strip(), "citations": citations})
        else:  # adjacent markers
            known = segments[-1]["citations"]
            known += [name for name in citations if name not in known]

    explicit = citations.explicit
    for mark in placed:
        end = max(position, mark.end)
        if explicit and mark.start > position:
            add(answer[position : mark.start], [])
            position = mark.start
        add(answer[position : end if explicit else max(position, mark.start)], _ids(mark))
        position = end
    if answer[position:].strip():
        add(answer[position:].strip(), [])
    yield from segments


def _ids(mark: CitationMark) -> list[str]:
    return [f"[{index + 1}]" for index in mark.passages]
