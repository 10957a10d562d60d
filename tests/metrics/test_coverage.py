from __future__ import annotations

import pytest
from ragmeter.metrics.answer_text import parse_answer
from ragmeter.metrics.coverage import HALF_COVERED, Coverage, find_best_position, measure_coverage
from ragmeter.metrics.text_index import PassageIndex, find_positions

FILLER = "Zebras graze quietly near distant rivers under bright skies. " * 4


def covered(passage: str, answer: str, query: frozenset[str] = frozenset()) -> Coverage:
    pages, claims = PassageIndex.read([passage]), parse_answer(answer).claims
    return measure_coverage(claims, find_positions(pages, claims, query), pages.stream, query)


def test_a_copied_sentence_is_one_stretch_with_full_support() -> None:
    found = covered("Parcels leave every Tuesday morning.", "Parcels leave every Tuesday morning.")
    assert found.support == [1.0]
    assert found.pairs == found.pairs_copied == 4
    assert found.matched == found.mass
    assert not found.novel


def test_words_of_the_query_are_asked_and_others_novel() -> None:
    found = covered("Parcels leave.", "Parcels leave Zorblatt quickly.", frozenset({"zorblat"}))
    assert found.in_query > 0
    assert list(found.novel) == ["quick"]
    assert found.mass == pytest.approx(found.matched + found.in_query + sum(found.novel.values()))


def test_copied_stretches_are_counted_by_length_and_order() -> None:
    passage = "Red engines overheat. " + FILLER + "Blue pumps freeze solid often."
    ahead = covered(passage, "Red engines overheat. Blue pumps freeze solid.")
    back = covered(passage, "Blue pumps freeze solid. Red engines overheat.")
    assert ahead.copied3 == back.copied3 == 7
    assert ahead.copied5 == 0
    assert (ahead.follows, ahead.in_order) == (1, 1)
    assert (back.follows, back.in_order) == (1, 0)


def test_the_worst_sentence_is_placed_where_most_of_it_stands() -> None:
    passage = FILLER + "The pump freezes in winter."
    pages = PassageIndex.read([passage])
    claims = parse_answer("Zebras graze quietly. The pump explodes in winter.").claims
    places = find_positions(pages, claims)
    found = measure_coverage(claims, places, pages.stream, ())
    assert found.worst == 1
    place = find_best_position(found.worst_masses, claims[1], places)
    assert place <= pages.stream.index("pump") < place + 2 * HALF_COVERED


def test_a_sentence_found_nowhere_has_no_place() -> None:
    pages = PassageIndex.read(["Parcels leave."])
    claims = parse_answer("Zorblatt quux.").claims
    found = measure_coverage(claims, {}, pages.stream, ())
    assert found.support == [0.0]
    assert find_best_position(found.worst_masses, claims[0], {}) == -1
