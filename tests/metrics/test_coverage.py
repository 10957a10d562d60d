"""How far passages cover each sentence: words, positions, copied stretches."""

from __future__ import annotations

import math

import pytest
from ragmeter.metrics.answer_text import parse_answer
from ragmeter.metrics.comparison import compare_texts
from ragmeter.metrics.grounding_features import ANSWER_FEATURES, AnswerFeatures
from ragmeter.metrics.text_index import PassageIndex, QueryText

FILLER = "Zebras graze quietly near distant rivers under bright skies. " * 4


def features(passages: list[str], answer: str, query: str = "") -> AnswerFeatures:
    pages = PassageIndex.read(passages)
    return compare_texts(pages, parse_answer(answer), QueryText.read(query)).extract_features()


def covered(passage: str, answer: str, query: str = "") -> dict[str, float]:
    found = features([passage], answer, query)
    return dict(zip(ANSWER_FEATURES, found.values, strict=True))


def test_a_copied_sentence_is_one_stretch_with_full_support() -> None:
    found = covered("Parcels leave every Tuesday morning.", "Parcels leave every Tuesday morning.")
    assert found["bigrams"] == found["uncovered"] == found["novel"] == 0
    assert found["worst_local"] == pytest.approx(0, abs=1e-12)


def test_words_of_the_query_are_asked_and_others_novel() -> None:
    found = covered("Parcels leave.", "Parcels leave Zorblatt quickly.", "Zorblatt?")
    assert 0 < found["uncovered"] < found["uncovered_by_passages"]
    assert found["novel"] == pytest.approx(math.log1p(1))


def test_copied_stretches_are_counted_by_length_and_order() -> None:
    passage = "Red engines overheat. " + FILLER + "Blue pumps freeze solid often."
    ahead = covered(passage, "Red engines overheat. Blue pumps freeze solid.")
    back = covered(passage, "Blue pumps freeze solid. Red engines overheat.")
    assert ahead["copied3"] == back["copied3"] == -1.0
    assert ahead["copied5"] == 0
    assert (ahead["order"], back["order"]) == (1, 0)


def test_the_worst_sentence_is_placed_where_most_of_it_stands() -> None:
    found = features(
        ["The pump freezes in winter.", FILLER],
        "Zebras graze quietly. The pump explodes in winter.",
    )
    assert found.worst is not None
    assert (found.worst.index, found.worst.passage) == (1, 0)


def test_a_sentence_found_nowhere_has_no_place() -> None:
    found = features(["Parcels leave."], "Zorblatt quux.")
    assert found.worst is not None
    assert (found.worst.support, found.worst.passage) == (0.0, None)
