"""open-rag-eval's columns: read as it writes them, and written as it reads them."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from typing import Any

import pytest
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.offline.report.open_rag_eval import (
    COLUMNS,
    OpenRagEvalTable,
    ReportTrace,
    count_runs,
    is_open_rag_eval,
    read_open_rag_eval_row,
)
from ragmeter.trace import Trace

from tests.offline.report.recorded import FOREIGN
from tests.tables import each_row
from tests.traces import trace_dict


def foreign() -> tuple[list[str], list[dict[str, str]]]:
    with FOREIGN.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        return list(reader.fieldnames or ()), list(reader)


def row(number: int) -> ReportTrace:
    (found,) = read_open_rag_eval_row(foreign()[1][number])
    return found


def by_metric(scores: Sequence[Score]) -> dict[str, Score]:
    return {score.metric: score for score in scores}


def test_its_own_file_is_known_by_its_columns() -> None:
    header, rows = foreign()
    assert is_open_rag_eval(header)
    assert (count_runs(header), len(rows)) == (2, 12)
    names = next(OpenRagEvalTable().rows())
    assert set(names) <= set(header)  # what we write are names that it writes
    assert not is_open_rag_eval(["query_id", "query", "answer"])
    assert not is_open_rag_eval(["trace_id", "service", "timestamp", "grounding.builtin"])


def test_a_row_of_it() -> None:
    found = row(0)
    assert found.text is not None
    assert (found.trace.trace_id, found.text.query) == (
        "q00",
        "How do I reset my password, number 0?",
    )
    assert found.text.answer == 'Click Forgot password. Then, "confirm".\nDone.'
    scores = by_metric(found.trace.results)
    raw = foreign()[1][0]
    # three passages: no precision at 5, which it leaves out and we do not make up
    wanted = {
        "relevance": float(raw["run_1_retrieval_score_mean_umbrela_score"]),
        "precision_at_k:1": 0.0,
        "precision_at_k:3": 2 / 3,
        "average_precision_at_k:1": 0.0,
        "average_precision_at_k:3": (1 / 2 + 2 / 3) / 2,
        "reciprocal_rank": 0.5,
        "nugget_all": 0.75,
        "nugget_vital": 1.0,
        "grounding": float(raw["run_1_generation_score_hallucination_score"]),
        "citation_passage_f1": float(raw["run_1_generation_score_citation_f1_score"]),
        "answered": 0.0,
    }
    assert {name: scores[name].value for name in wanted} == pytest.approx(wanted)
    assert "precision_at_k:5" not in scores
    judged = ("relevance", "nugget_all", "grounding", "answered")
    assert [scores[name].scorer for name in judged] == [
        "umbrela",
        "autonuggetizer",
        "hhem_fulltext",
        "judge",
    ]


def test_a_failed_evaluation_is_unscored() -> None:
    scores = row(10).trace.results
    assert len(scores) > 10
    assert {score.state for score in scores} == {ScoreState.UNSCORED}
    assert {score.reason for score in scores} == {"not_reported"}


def test_the_half_that_stands_for_failed_nuggets_is_no_score() -> None:
    raw = foreign()[1][11]
    assert raw["run_1_generation_score_vital_nuggetizer_score"] == "0.5"
    scores = by_metric(row(11).trace.results)
    assert (scores["nugget_vital"].state, scores["nugget_vital"].reason) == (
        ScoreState.UNSCORED,
        "judge_error",
    )
    assert scores["relevance"].state is ScoreState.SCORED


@each_row(
    ("cell", "state", "reason"),
    [
        ("0.25", ScoreState.SCORED, None),
        ("", ScoreState.UNSCORED, "not_reported"),
        ("NaN", ScoreState.UNSCORED, "not_reported"),
        ("7", ScoreState.UNSCORED, "invalid_value"),
        ("-0.1", ScoreState.UNSCORED, "invalid_value"),
        ("true", ScoreState.UNSCORED, "not_reported"),
        ("[" * 5_000, ScoreState.UNSCORED, "not_reported"),
        ('{"a": 1}', ScoreState.UNSCORED, "not_reported"),
    ],
)
def test_untidy_cells(cell: str, state: ScoreState, reason: str | None) -> None:
    name = "generation_score_hallucination_score"
    for prefix in ("", "run_1_"):  # older files have no number of the answer
        (found,) = read_open_rag_eval_row({"query_id": "q", "query": "?", prefix + name: cell})
        (score,) = found.trace.results
        assert (score.metric, score.state, score.reason) == ("grounding", state, reason)


def test_a_row_without_an_id_is_none() -> None:
    row = {"query_id": " ", "run_1_generation_score_hallucination_score": "1"}
    assert read_open_rag_eval_row(row) == []


def judged(**more: Any) -> ScoredTrace:
    def score(metric: str, scorer: str, value: float, **detail: Any) -> Score:
        return Score(metric, scorer, ScoreState.SCORED, value, detail=detail or None)

    nuggets = [
        {"text": "nine", "importance": "vital", "support": "support"},
        {"text": "noon", "importance": "okay", "support": None},
    ]
    return ScoredTrace(
        "t1",
        "bot",
        0.0,
        "ok",
        [
            score("relevance", "umbrela", 1.5, grades=[3, 0]),
            score("precision_at_k:1", "umbrela", 1.0),
            score("average_precision_at_k:1", "umbrela", 1.0),
            score("reciprocal_rank", "umbrela", 1.0),
            score("nugget_all", "autonuggetizer", 0.5, nuggets=nuggets),
            score("nugget_vital", "autonuggetizer", 1.0, nuggets=nuggets),
            score("grounding", "hhem_fulltext", 0.875),
            score("citation_passage_precision", "judge", 1.0),
            score("citation_recall", "judge", 0.5),
            score("citation_passage_f1", "judge", 2 / 3),
            score("answered", "judge", 1.0),
        ],
        **more,
    )


def written(scored: ScoredTrace, trace: Trace | None = None) -> dict[str, str]:
    table = OpenRagEvalTable()
    table.add(scored, trace)
    header, cells = table.rows()
    return dict(zip(header, cells, strict=True))


def test_what_is_written_is_read_again() -> None:
    (found,) = read_open_rag_eval_row(written(judged()))
    again = {(s.metric, s.scorer): s.value for s in found.trace.results if s.value is not None}
    assert again == {(s.metric, s.scorer): s.value for s in judged().results}


def test_columns_without_a_value_are_known_at_the_end() -> None:
    table = OpenRagEvalTable()
    trace = Trace.model_validate(trace_dict())
    for given in (None, trace, trace):
        table.add(judged(), given)
    assert table.empty == []
    table = OpenRagEvalTable()
    table.add(judged(), None)
    assert table.empty == ["retrieved_passages", "generated_answer"]


def test_cells_as_its_viewer_wants_them() -> None:
    cells = written(judged())
    assert cells["query_id"] == "t1"
    umbrela = json.loads(cells["run_1_retrieval_score_umbrela_scores"])
    assert umbrela == {"[1]": 3, "[2]": 0}
    nuggets = json.loads(cells["run_1_generation_score_autonugget_scores"])
    # a nugget that no call has assigned is left out: None is no assignment
    assert nuggets["assignments"] == ["support"]
    assert nuggets["assignment_scores"] == [1.0]
    assert nuggets["nuggetizer_scores"] == {"All": 0.5, "Vital": 1.0}
    answered = json.loads(cells["run_1_generation_score_no_answer_score"])
    assert answered == {"query_answered": "yes"}


def test_no_value_is_an_empty_cell_and_builtin_is_no_judge() -> None:
    table = OpenRagEvalTable()
    scores = [
        Score("relevance", "umbrela", ScoreState.UNSCORED, reason="judge_timeout"),
        Score("grounding", "builtin", ScoreState.SCORED, 0.9),
        Score("answered", "builtin", ScoreState.SCORED, 1.0),
        Score("grounding", "hhem", ScoreState.SCORED, 0.9),
    ]
    table.add(ScoredTrace("t", "bot", 0.0, "ok", scores), None)
    _, cells = table.rows()
    assert cells[2:] == [""] * len(COLUMNS)
    assert table.empty == list(COLUMNS)


def test_answers_to_one_question_are_runs_both_ways() -> None:
    table = OpenRagEvalTable()
    for number, query in enumerate(["When?", "Where?", " when? "]):
        score = Score("relevance", "umbrela", ScoreState.SCORED, float(number))
        trace = Trace.model_validate(trace_dict(number, query=query))
        table.add(ScoredTrace(f"t{number}", "bot", 0.0, "ok", [score]), trace)
    header, *rows = table.rows()
    assert len(rows) == 2
    again = [
        read_open_rag_eval_row(dict(zip(header, cells, strict=True)), count_runs(header))
        for cells in rows
    ]
    assert [
        [(one.trace.trace_id, one.question, one.trace.results[0].value) for one in answers]
        for answers in again
    ] == [[("t0", "t0", 0.0), ("t0#2", "t0", 2.0)], [("t1", "t1", 1.0)]]


def texts(**fields: Any) -> dict[str, Any]:
    passages = [{"id": "kb-1", "text": "We open at nine."}, {"id": "kb-2", "text": "We close."}]
    document = trace_dict(**{"passages": passages, **fields})
    trace = Trace.model_validate(document)
    cells = written(ScoredTrace(trace.trace_id, "bot", 0.0, "ok", []), trace)
    assert cells["query"] == trace.query
    return {name: json.loads(cells[f"run_1_{name}"]) for name in COLUMNS[:2]}


def test_texts_and_citations() -> None:
    found = texts(answer="We open at nine [1]. We close [2][1]. Bye.", citations=None)
    assert found["retrieved_passages"] == {"[1]": "We open at nine.", "[2]": "We close."}
    assert found["generated_answer"] == [
        {"text": "We open at nine.", "citations": ["[1]"]},
        {"text": "We close.", "citations": ["[2]", "[1]"]},
        {"text": "Bye.", "citations": []},
    ]
    found = texts(answer="We open at nine [1].", citations=None)
    assert found["generated_answer"] == [{"text": "We open at nine.", "citations": ["[1]"]}]
    explicit = [{"start": 4, "end": 8, "passage_ids": ["kb-2"]}]
    found = texts(answer="We, open, at nine.", citations=explicit)
    assert [(part["text"], part["citations"]) for part in found["generated_answer"]] == [
        ("We, ", []),
        ("open", ["[2]"]),
        (", at nine.", []),
    ]
    whole = [{"passage_ids": ["kb-2"]}, {"passage_ids": ["kb-1", "kb-2"]}]
    found = texts(answer="We open.", citations=whole)
    assert found["generated_answer"] == [{"text": "We open.", "citations": ["[2]", "[1]"]}]
