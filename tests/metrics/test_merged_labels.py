from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from ragmeter.core.feedback import ANSWER_LABELS, PASSAGE_LABELS, Feedback, PassageLabels
from ragmeter.metrics.merged_labels import (
    TimedLabels,
    effective_labels,
    merge_labels,
    passage_key,
    read_labels,
)

ROWS = TypeAdapter(TimedLabels)


def reported(at: int, passages: dict[str, Any] | None = None, **answer: bool) -> TimedLabels:
    given = {"trace_id": "t", "timestamp": at, "passages": passages or {}, "answer": answer}
    return read_labels(Feedback.model_validate(given))


def of_passage(known: TimedLabels) -> dict[str, bool]:
    return effective_labels(known).passages[passage_key("a")].given


def labels(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, bool]]:
    return st.dictionaries(st.sampled_from(names), st.booleans(), max_size=4)


@st.composite
def feedbacks(draw: st.DrawFn) -> TimedLabels:
    passages = draw(st.dictionaries(st.sampled_from("ab"), labels(PASSAGE_LABELS), max_size=2))
    try:
        return reported(draw(st.integers(1, 3)), passages, **draw(labels(ANSWER_LABELS)))
    except ValidationError:  # empty, or a contradiction in itself
        return ()


def test_the_latest_word_holds() -> None:
    first, second = reported(1, helpful=True, incomplete=True), reported(2, helpful=False)
    for known in (merge_labels(first, second), merge_labels(second, first)):
        assert effective_labels(known).answer.given == {"helpful": False, "incomplete": True}
    assert (
        effective_labels(
            merge_labels(reported(1, helpful=False), reported(1, helpful=True))
        ).answer.helpful
        is True
    )


def test_passages_are_told_apart() -> None:
    known = merge_labels(
        reported(1, {"a": {"misleading": True}}), reported(2, {"b": {"misleading": False}})
    )
    assert effective_labels(known).passages == {
        passage_key("a"): PassageLabels(misleading=True),
        passage_key("b"): PassageLabels(misleading=False),
    }


def test_a_later_word_takes_what_follows_along() -> None:
    sufficient, off_topic = {"evidence_sufficient": True}, {"topically_relevant": False}
    known = merge_labels(reported(1, {"a": sufficient}), reported(2, {"a": off_topic}))
    assert of_passage(known) == dict.fromkeys(PASSAGE_LABELS[:2], False)
    known = merge_labels(reported(2, {"a": sufficient}), reported(1, {"a": off_topic}))
    assert of_passage(known) == dict.fromkeys(PASSAGE_LABELS[:2], True)


@settings(max_examples=50)
@given(feedbacks(), feedbacks(), feedbacks())
def test_merging_is_free_of_order_and_of_repetition(
    a: TimedLabels, b: TimedLabels, c: TimedLabels
) -> None:
    whole = merge_labels(merge_labels(a, b), c)
    assert whole == merge_labels(a, merge_labels(b, c)) == merge_labels(merge_labels(c, a), b)
    assert merge_labels(whole, a) == whole


@settings(max_examples=50)
@given(st.lists(feedbacks(), max_size=6))
def test_what_is_merged_never_contradicts_itself(given: list[TimedLabels]) -> None:
    known: TimedLabels = ()
    for one in given:
        known = merge_labels(known, one)
    found = effective_labels(known)  # raises where it does
    count = len(found.answer.given) + sum(len(one.given) for one in found.passages.values())
    assert count == len(known)  # nothing more follows from it than was said


@settings(max_examples=50)
@given(feedbacks(), feedbacks())
def test_it_can_be_kept(a: TimedLabels, b: TimedLabels) -> None:
    known = merge_labels(a, b)
    text = ROWS.dump_json(known)
    assert ROWS.validate_json(text) == known
    assert ROWS.dump_json(merge_labels(b, a)) == text


@pytest.mark.parametrize("row", [["", "witty", 1.0, 1], ["p", "helpful", 1.0, 1]])
def test_a_label_that_there_is_not_is_refused(row: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"no label|Extra inputs"):
        effective_labels(ROWS.validate_python([["", "helpful", 1.0, 1], row]))
