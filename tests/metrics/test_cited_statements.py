"""Values that are marked (reference) are what open-rag-eval 0.3.0 gives for the same input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragmeter.core.score import NoScore
from ragmeter.metrics.answer_text import parse_answer
from ragmeter.metrics.citations import resolve_citations
from ragmeter.metrics.cited_statements import (
    CITATION_METRICS,
    WHOLE_ANSWER,
    CitationInstance,
    CitedStatements,
    attach_citations,
    citation_scores,
    f1_score,
    list_citation_instances,
)

from tests.metrics.help import trace

LOST = NoScore("judge_timeout")
A = "Open Settings and click reset"
B = "Refunds take 14 days"
C = "Invoices come by email"


def statements(answer: str, **fields: Any) -> CitedStatements:
    one = trace(answer=answer, **fields)
    return attach_citations(answer, parse_answer(answer).claims, resolve_citations(one))


def scores(answer: str, *supports: float | NoScore, **fields: Any) -> dict[str, float | NoScore]:
    found = statements(answer, **fields)
    return citation_scores(found, dict(zip(list_citation_instances(found), supports, strict=True)))


def three(answer: str, *supports: float | NoScore, **fields: Any) -> list[float | NoScore]:
    found = scores(answer, *supports, **fields)
    return [found[name] for name in ("citation_precision", "citation_recall", "citation_f1")]


def test_per_instance_and_per_passage() -> None:
    found = scores(f"{A} [1]. {B} [1]. {C} [2].", 1.0, 0.0, 1.0)
    assert found["citation_precision"] == pytest.approx(2 / 3)
    assert found["citation_passage_precision"] == 0.75  # (reference)
    assert found["citation_recall"] == pytest.approx(2 / 3)  # (reference)
    assert found["citation_passage_f1"] == pytest.approx(2 * 0.75 * (2 / 3) / (0.75 + 2 / 3))


def test_a_dangling_citation_counts_0() -> None:
    # (reference): the part vanishes, P = R = F1 = 1
    assert three(f"{A} [9]. {B} [1].", 1.0) == [0.5, 0.5, 0.5]
    assert scores(f"{A} [9]. {B} [1].", 1.0)["citation_passage_precision"] == 0.5
    # (reference): dangling and good in one part, 1
    assert three(f"{A} [9][1].", 1.0) == [0.5, 0.5, 0.5]
    assert three(f"{A} [1].", passages=[]) == [0.0, 0.0, 0.0]


def test_an_uncited_statement_costs_recall() -> None:
    assert three(f"{A} [1]. {B}.", 1.0) == [1.0, 0.5, pytest.approx(2 / 3)]
    assert three(f"Here is how:\n{A} [1].", 1.0) == [1.0, 1.0, 1.0]


def test_citations_of_the_whole_answer_are_held_against_all_of_it() -> None:
    cites = [{"passage_ids": ["kb-1", "kb-2", "nope"]}]
    found = statements(f"{A}. {B}.", citations=cites)
    assert list_citation_instances(found) == [
        CitationInstance(WHOLE_ANSWER, 0),
        CitationInstance(WHOLE_ANSWER, 1),
    ]
    assert three(f"{A}. {B}.", 1.0, 0.5, citations=cites)[:2] == [0.5, 0.5]
    # its sentences are covered by the citation of all
    assert three(f"{A}. {B}.", 1.0, citations=[{"passage_ids": ["kb-1"]}]) == [1.0, 1.0, 1.0]


def test_the_mean_stands_over_what_was_judged() -> None:
    answer = f"{A} [1][2]. {B} [3]."
    assert three(answer, 1.0, LOST, 0.5) == [0.75, 0.75, 0.75]
    # a statement with no verdict at all: recall is unknown, precision stands
    assert three(answer, 1.0, 0.0, LOST) == [0.5, LOST, LOST]
    assert set(scores(answer, LOST, LOST, LOST).values()) == {LOST}


def test_what_failed_never_becomes_0() -> None:
    assert set(scores(f"{A} [1]. {B} [9].", LOST).values()) == {LOST}
    assert three(f"{A} [1][9]. {B} [2].", LOST, 1.0)[1] == LOST


def test_f1() -> None:
    assert f1_score(0.0, 0.0) == 0.0
    assert f1_score(1.0, 0.5) == pytest.approx(2 / 3)
    assert f1_score(LOST, 1.0) == f1_score(1.0, LOST) == LOST


MARKS = st.lists(st.sampled_from(["[1]", "[2]", "[3]", "[9]"]), max_size=3).map("".join)
SUPPORT = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.just(LOST))


@given(st.lists(MARKS, min_size=1, max_size=5), st.data())
def test_ranges_and_isolation(marks: list[str], data: st.DataObject) -> None:
    found = statements(" ".join(f"{A} {mark}." for mark in marks))
    asked = list_citation_instances(found)
    supports = {instance: data.draw(SUPPORT) for instance in asked}
    out = citation_scores(found, supports)
    assert tuple(out) == CITATION_METRICS
    failed = LOST in supports.values()
    for value in out.values():
        if isinstance(value, NoScore):
            assert value == LOST or not marks or not (asked or found.dangling)
            assert failed or not (asked or found.dangling)
        else:
            assert 0 <= value <= 1
    # an instance that fails takes nothing of the others
    if not failed and len(asked) > 1:
        kept = [supports[instance] for instance in asked[1:]]
        values = [v for v in kept if not isinstance(v, NoScore)] + [0.0] * found.dangling
        less = citation_scores(found, {**supports, asked[0]: LOST})
        assert less["citation_precision"] == pytest.approx(sum(values) / len(values))
