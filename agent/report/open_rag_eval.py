"""The columns of open-rag-eval (Vectara, 0.3.0), read as a scored trace. Pure.

A row is a question; `run_1_` before a column's name counts the answers to it, and files of older
versions lack it. Two of its habits are not taken over: where nuggets failed it writes 0.5, which is
no measurement (its `autonugget_scores` is then empty), and a row whose evaluation failed has empty
cells. Both are unscored here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.metrics import METRICS
from agent.metrics.names import at, spec_of
from agent.metrics.results import JUDGE
from agent.report.summary import Text
from agent.trace import MAX_ID, Score, ScoredTrace, State

__all__ = ["COLUMNS", "NUGGETS", "RUN", "Row", "is_open_rag_eval", "read_row", "runs_of"]

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
class Row:
    trace: ScoredTrace
    text: Text


def is_open_rag_eval(header: Sequence[str]) -> bool:
    """Whether these are the names of its columns."""
    bare = {_RUNS.sub("", name, count=1) for name in header}
    return "query_id" in header and bool(bare & set(COLUMNS))


def runs_of(header: Sequence[str]) -> int:
    """How many answers to a question the file has columns for; the first one is read."""
    found = (_RUNS.match(name) for name in header)
    return max((int(match[1]) for match in found if match), default=1)


def read_row(row: Mapping[str, str]) -> Row | None:
    """None for a row without an id of its question."""
    query_id = row.get("query_id", "").strip()[:MAX_ID]
    if not query_id:
        return None
    reader = _Reader(row)
    scores = [*reader.scores()]
    answer = reader.parsed("generated_answer")
    parts = answer if isinstance(answer, list) else []
    text = " ".join(
        part["text"]
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    )
    trace = ScoredTrace(query_id, "open-rag-eval", 0.0, "ok", scores)
    return Row(trace, Text(row.get("query", "")[:MAX_TEXT], text[:MAX_TEXT]))


class _Reader:
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
        yield from self._one("relevance", UMBRELA, mean, self.parsed(mean))
        ranks = retrieval + "precision_metrics"
        for key, metric in (("precision@", "precision_at_k"), ("AP@", "average_precision_at_k")):
            by_k = self.part(ranks, key)
            for k, value in by_k.items() if isinstance(by_k, dict) else ():
                if k.isdecimal() and len(k) < 4 and 1 <= int(k) <= MAX_K:
                    yield from self._one(at(metric, int(k)), UMBRELA, ranks, value)
        yield from self._one("reciprocal_rank", UMBRELA, ranks, self.part(ranks, "MRR"))
        yield from self._nuggets(generation + "autonugget_scores")
        hallucination = generation + "hallucination_score"
        yield from self._one("grounding", HHEM, hallucination, self.parsed(hallucination))
        cited = generation + "citation_scores"
        f1 = self.parsed(generation + "citation_f1_score")
        for metric, value in (
            ("citation_passage_precision", self.part(cited, "weighted_precision")),
            ("citation_recall", self.part(cited, "weighted_recall")),
            ("citation_passage_f1", self.part(cited, "f1") if f1 is None else f1),
        ):
            yield from self._one(metric, JUDGE, cited, value)
        answered = generation + "no_answer_score"
        said = {"yes": 1.0, "no": 0.0}.get(str(self.part(answered, "query_answered")))
        yield from self._one("answered", JUDGE, answered, said)

    def _nuggets(self, column: str) -> Iterator[Score]:
        by_name = self.part(column, "nuggetizer_scores")
        vital = "generation_score_vital_nuggetizer_score"
        if self.cell(column) is None and self.cell(vital) is not None:
            # without what it was made of nobody can tell a score from a failure's 0.5
            yield from self._one("nugget_vital", AUTONUGGETIZER, vital, self.parsed(vital))
            return
        for name, metric in NUGGETS.items():
            value = by_name.get(name) if isinstance(by_name, dict) else None
            yield from self._one(metric, AUTONUGGETIZER, column, value, "judge_error")

    def _one(
        self, metric: str, scorer: str, column: str, value: object, reason: str = "not_reported"
    ) -> Iterator[Score]:
        if self.cell(column) is None:
            return
        spec = spec_of(METRICS, metric)
        if isinstance(value, bool) or not isinstance(value, int | float) or spec is None:
            empty = not (self.cell(column) or "").strip()
            yield Score(metric, scorer, State.UNSCORED, reason="not_reported" if empty else reason)
            return
        high = math.inf if spec.high is None else spec.high
        if not spec.low <= value <= high:
            yield Score(metric, scorer, State.UNSCORED, reason="invalid_value")
        else:
            yield Score(metric, scorer, State.SCORED, float(value))
