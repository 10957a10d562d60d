"""Whole breakdowns of real windows: the numbers of the gauges, and one budget for all of them."""

from __future__ import annotations

import math

import pytest
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.parts.segments.breakdown import (
    BreakdownOptions,
    NoPastError,
    build_breakdown,
    build_document,
)
from ragmeter.parts.segments.sources import FileBreakdownSource, WindowBreakdownSource
from ragmeter.parts.views import ComparedWith
from ragmeter.scoring.scorer import Scorer, summarise_trace
from ragmeter.trace import Trace
from ragmeter.windows.windows import Windows

from tests.windows.segment_traffic import NOW, busy

KINDS = ["kind=a", "kind=b", "kind="]


def test_the_numbers_are_those_of_the_gauges() -> None:
    windows = busy()
    found = build_breakdown(WindowBreakdownSource(lambda: windows, "bot", "1h"))
    assert [series.metric for series in found.series] == ["grounding", "answered"]
    for series in found.series:
        for row in series.rows:
            shown = windows.estimate("bot", row.segment, series.metric, series.scorer, "1h")
            if row.segment.endswith("="):
                continue
            assert row.now is not None
            assert shown is not None
            assert (row.now.value, row.now.lower, row.now.upper) == (
                shown.value,
                shown.lower,
                shown.upper,
            )
            assert row.now.effective == shown.effective_samples


def test_the_segment_that_fell_is_found_and_the_terms_add_up() -> None:
    windows = busy(drop=0.4)
    found = build_breakdown(WindowBreakdownSource(lambda: windows, "bot", "1h"))
    assert found.past == "the rest of 24h"
    answered = next(series for series in found.series if series.metric == "answered")
    (tag,) = answered.tags
    assert tag.rows[0].segment == "kind=b"
    assert tag.rows[0].finding == "moved, unlike the rest"
    assert sorted(row.segment for row in tag.rows) == sorted(KINDS)
    assert answered.whole.change is not None
    notified = sum(row.added.value for row in tag.rows if row.added)
    assert notified == pytest.approx(answered.whole.change.value, abs=1e-9)
    grounding = next(series for series in found.series if series.metric == "grounding")
    assert not any(row.moved or row.stands_out for row in grounding.rows)
    # for each metric the service; and each of three segments against its past and the rest
    assert found.comparisons == 2 * (1 + 3 * 2)
    marks = [m for s in found.series for r in s.rows for m in (r.moved, r.stands_out)]
    assert found.findings == sum(marks) > 0


def test_one_budget_for_all_metrics() -> None:
    windows = busy(drop=0.09, seed=3)
    source = WindowBreakdownSource(lambda: windows, "bot", "1h")

    def q(options: BreakdownOptions) -> float:
        found = build_breakdown(source, options)
        answered = next(series for series in found.series if series.metric == "answered")
        row = next(row for row in answered.tags[0].rows if row.segment == "kind=b")
        assert row.q_change is not None
        return row.q_change

    assert q(BreakdownOptions(metric="answered")) < q(BreakdownOptions()), "asking less costs less"
    assert all(
        not row.moved
        for s in build_breakdown(source, BreakdownOptions(fdr=1e-12)).series
        for row in s.rows
    )


def test_without_a_past_each_is_compared_with_the_rest() -> None:
    windows = busy(drop=0.4)
    found = build_breakdown(WindowBreakdownSource(lambda: windows, "bot", "24h"))
    assert found.past is None
    assert all(series.whole.change is None for series in found.series)
    with pytest.raises(NoPastError):
        build_breakdown(
            WindowBreakdownSource(lambda: windows, "bot", "24h"),
            BreakdownOptions(against=ComparedWith.BEFORE),
        )
    chosen = build_breakdown(
        WindowBreakdownSource(lambda: windows, "bot", "1h"),
        BreakdownOptions(against=ComparedWith.REST),
    )
    assert chosen.past is None
    rows = {row.segment: row for row in chosen.series[-1].tags[0].rows}
    assert rows["kind=b"].stands_out
    with pytest.raises(KeyError):
        WindowBreakdownSource(lambda: windows, "bot", "7d")


def test_of_two_files_the_second_is_now() -> None:
    before, now = busy(), busy(drop=0.4)
    found = build_breakdown(FileBreakdownSource(before, now, "bot"))
    assert found.past == "the first file"
    answered = next(series for series in found.series if series.metric == "answered")
    assert answered.tags[0].rows[0].segment == "kind=b"
    alone = build_breakdown(FileBreakdownSource(None, now, "bot"))
    assert alone.past is None
    assert alone.comparisons == 2 * 3


def _judged(fingerprint: str) -> Windows:
    windows = Windows(current={("relevance", "umbrela"): f"umbrela@{fingerprint}"})
    for n in range(100):
        score = Score("relevance", f"umbrela@{fingerprint}", ScoreState.SCORED, float(n % 3))
        windows.add(ScoredTrace(f"t{n}", "bot", NOW + n, "ok", [score]), "bot", ["kind=a"])
    return windows


def test_another_judge_is_no_change_of_the_service() -> None:
    same = FileBreakdownSource(_judged("aa"), _judged("aa"), "bot")
    assert same.changed() == []
    assert len(build_breakdown(same).series) == 1
    other = FileBreakdownSource(_judged("aa"), _judged("bb"), "bot")
    assert other.changed() == [("relevance", "umbrela")]
    assert build_breakdown(other).series == []


def test_the_document_has_nothing_that_json_lacks_and_no_value_of_few() -> None:
    windows = busy(drop=0.4, few=7)
    found = build_document(build_breakdown(WindowBreakdownSource(lambda: windows, "bot", "1h")))
    rows = [row for series in found["series"] for tag in series["tags"] for row in tag["segments"]]
    (few,) = [row for row in rows if row["segment"] == "kind=c" and row["now"]][:1]
    assert few["too_few"]
    assert few["finding"] == "too few"
    assert few["now"] == {"samples": 7, "effective_samples": 7.0}
    assert few["change"] is None
    assert few["contribution"] is None

    def check(item: object) -> None:
        if isinstance(item, dict):
            for value in item.values():
                check(value)
        elif isinstance(item, list):
            for value in item:
                check(value)
        elif isinstance(item, float):
            assert math.isfinite(item)

    check(found)


def test_whether_a_question_has_an_answer_is_a_segment() -> None:
    base = {"trace_id": "t", "service": "bot", "timestamp": 1.79e9, "query": "q", "answer": "a"}
    known = Trace.model_validate({**base, "reference": {"answerable": False}})
    assert known.tag("answerable") == "false"
    assert summarise_trace(known, []).tags == {"answerable": "false"}
    notified = Trace.model_validate({**base, "tags": {"answerable": True}})
    assert notified.tag("answerable") == "true"
    assert Trace.model_validate(base).tag("answerable") is None
    assert Scorer().score(notified).trace.tags == {"answerable": "true"}
