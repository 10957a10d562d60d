from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agent.feedback.labels import ANSWER_LABELS, PASSAGE_LABELS, Feedback, PassageLabels
from agent.feedback.merge import Known, dump, labels_of, load, merged, words


def said(at: int, passages: dict[str, Any] | None = None, **answer: bool) -> Known:
    given = {"trace_id": "t", "timestamp": at, "passages": passages or {}, "answer": answer}
    return words(Feedback.model_validate(given))


def labels(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, bool]]:
    return st.dictionaries(st.sampled_from(names), st.booleans(), max_size=4)


@st.composite
def feedbacks(draw: st.DrawFn) -> Known:
    passages = draw(st.dictionaries(st.sampled_from("ab"), labels(PASSAGE_LABELS), max_size=2))
    try:
        return said(draw(st.integers(1, 3)), passages, **draw(labels(ANSWER_LABELS)))
    except ValidationError:  # empty, or a contradiction in itself
        return {}


def test_the_latest_word_holds() -> None:
    first, second = said(1, helpful=True, incomplete=True), said(2, helpful=False)
    for known in (merged(first, second), merged(second, first)):
        assert labels_of(known).answer.given == {"helpful": False, "incomplete": True}
    assert labels_of(merged(said(1, helpful=False), said(1, helpful=True))).answer.helpful is True


def test_passages_are_told_apart() -> None:
    known = merged(said(1, {"a": {"misleading": True}}), said(2, {"b": {"misleading": False}}))
    assert labels_of(known).passages == {
        "a": PassageLabels(misleading=True),
        "b": PassageLabels(misleading=False),
    }


def test_a_later_word_takes_what_follows_along() -> None:
    sufficient, off_topic = {"evidence_sufficient": True}, {"topically_relevant": False}
    known = merged(said(1, {"a": sufficient}), said(2, {"a": off_topic}))
    assert labels_of(known).passages["a"].given == dict.fromkeys(PASSAGE_LABELS[:2], False)
    known = merged(said(2, {"a": sufficient}), said(1, {"a": off_topic}))
    assert labels_of(known).passages["a"].given == dict.fromkeys(PASSAGE_LABELS[:2], True)


@settings(max_examples=50)
@given(feedbacks(), feedbacks(), feedbacks())
def test_merging_is_free_of_order_and_of_repetition(a: Known, b: Known, c: Known) -> None:
    whole = merged(merged(a, b), c)
    assert whole == merged(a, merged(b, c)) == merged(merged(c, a), b)
    assert merged(whole, a) == whole


@settings(max_examples=50)
@given(st.lists(feedbacks(), max_size=6))
def test_what_is_merged_never_contradicts_itself(given: list[Known]) -> None:
    known: Known = {}
    for one in given:
        known = merged(known, one)
    found = labels_of(known)  # raises where it does
    count = len(found.answer.given) + sum(len(one.given) for one in found.passages.values())
    assert count == len(known)  # nothing more follows from it than was said


@settings(max_examples=50)
@given(feedbacks(), feedbacks())
def test_it_can_be_kept(a: Known, b: Known) -> None:
    known = merged(a, b)
    text = json.dumps(dump(known))
    assert load(json.loads(text)) == known
    assert json.dumps(dump(merged(b, a))) == text


def test_labels_of_another_version_are_left_out() -> None:
    assert load([["", "helpful", 1.0, 1], ["", "witty", 1.0, 1], ["p", "helpful", 1.0, 1]]) == {
        ("", "helpful"): (1.0, True)
    }
