from __future__ import annotations

from typing import Any

import pytest
from ragmeter.metrics.abstention import answered_value
from ragmeter.metrics.answer_text import parse_answer
from ragmeter.metrics.citations import resolve_citations
from ragmeter.metrics.cited_statements import (
    CitedStatements,
    attach_citations,
    missing_citation_reason,
)

from tests.metrics.help import trace
from tests.tables import each_row

FIRST, SECOND = "Open Settings and click Forgot password", "Refunds take 14 days"


def statements(answer: str, **fields: Any) -> CitedStatements:
    one = trace(answer=answer, **fields)
    return attach_citations(answer, parse_answer(answer).claims, resolve_citations(one))


def test_each_sentence_has_what_it_cites_once() -> None:
    found = statements(f"{FIRST} [1][2][1]. {SECOND} [9].")
    assert [(s.passages, s.dangling) for s in found.items] == [([0, 1], 0), ([], 1)]
    assert found.dangling == 1
    assert found.whole == []


def test_a_list_of_sources_is_left_out() -> None:
    found = statements(f"{FIRST} [1].\n\nSources:\n[1] The handbook\n[9] Another book")
    assert [s.claim.text for s in found.items] == [f"{FIRST} ."]
    assert found.dangling == 0


def test_a_citation_without_a_place_is_of_the_whole_answer() -> None:
    placed = {"start": 0, "end": len(FIRST), "passage_ids": ["kb-1"]}
    everywhere = {"passage_ids": ["kb-3", "kb-1", "nope"]}
    found = statements(f"{FIRST}. {SECOND}.", citations=[placed, everywhere, everywhere])
    assert [s.passages for s in found.items] == [[0], []]
    assert found.whole == [2, 0]
    assert found.whole_dangling == 2


def test_a_stretch_cites_for_every_sentence_that_it_touches() -> None:
    answer = f"{FIRST}. {SECOND}."
    whole = {"start": 0, "end": len(answer), "passage_ids": ["kb-2"]}
    assert [s.passages for s in statements(answer, citations=[whole]).items] == [[1], [1]]


@pytest.mark.parametrize(
    ("sentence", "needs"),
    [
        ("Refunds take 14 days.", True),
        ("Here is how you do it:", False),
        ("Does that help?", False),
    ],
)
def test_what_needs_a_citation(sentence: str, needs: bool) -> None:
    assert [s.needs_citation for s in statements(f"{sentence}").items] == [needs]


@each_row(
    ("fields", "reason", "applies"),
    [
        ({"status": "timeout"}, "timeout", False),
        ({"answer": None}, "no_text", True),
        ({"answer": " "}, "empty_answer", False),
        ({"answer": "I do not know [1]."}, "no_answer", False),
        ({"answer": f"{FIRST}."}, "no_citations", False),
        ({"passages": None}, "no_passages_captured", True),
    ],
)
def test_what_hinders(fields: dict[str, Any], reason: str, applies: bool) -> None:
    one = trace(**fields)
    gap = missing_citation_reason(one, answered_value(one), resolve_citations(one))
    assert gap is not None
    assert (gap.reason, gap.applies) == (reason, applies)


def test_passages_that_are_none_hinder_nothing() -> None:
    one = trace(passages=[])
    assert missing_citation_reason(one, answered_value(one), resolve_citations(one)) is None
