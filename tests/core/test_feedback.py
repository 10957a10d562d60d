from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from ragmeter.core.feedback import (
    ANSWER_LABELS,
    HUMAN,
    PASSAGE_LABELS,
    PEOPLE,
    RESERVED_SCORERS,
    AnswerLabels,
    Feedback,
    PassageLabels,
)
from ragmeter.metrics.registry import metric_specs

from tests.tables import each_row

BASE: dict[str, Any] = {"trace_id": "t1", "timestamp": "2026-11-21T20:15:02Z"}


def feedback(**fields: Any) -> Feedback:
    return Feedback.model_validate({**BASE, "answer": {"helpful": True}, **fields})


def test_the_taxonomy() -> None:
    assert PASSAGE_LABELS == ("topically_relevant", "evidence_sufficient", "misleading")
    assert len(ANSWER_LABELS) == 10
    assert PassageLabels().given == {}
    assert AnswerLabels(helpful=False, incomplete=True).given == {
        "helpful": False,
        "incomplete": True,
    }


@pytest.mark.parametrize(
    ("model", "first", "second"),
    [
        (PassageLabels, "evidence_sufficient", "topically_relevant"),
        (AnswerLabels, "contradicted_claim_present", "unsupported_claim_present"),
        (AnswerLabels, "fabricated_source", "source_cited"),
    ],
)
def test_what_follows_is_filled_in_and_a_contradiction_refused(
    model: type[PassageLabels | AnswerLabels], first: str, second: str
) -> None:
    assert model(**{first: True}).given == {first: True, second: True}
    assert model(**{second: False}).given == {first: False, second: False}
    assert model(**{second: True}).given == {second: True}
    assert model(**{first: False}).given == {first: False}
    with pytest.raises(ValidationError, match=f"{first} is yes, so {second} can't be no"):
        model(**{first: True, second: False})


def test_a_passage_may_be_sufficient_and_misleading() -> None:
    both = PassageLabels(evidence_sufficient=True, misleading=True)
    assert both.given == dict.fromkeys(PASSAGE_LABELS, True)


@pytest.mark.parametrize(
    ("given", "read"), [(1, True), ("no", False), ("true", True), (None, None)]
)
def test_yes_and_no_are_read_as_people_write_them(given: object, read: bool | None) -> None:
    assert AnswerLabels.model_validate({"helpful": given}).helpful is read


@each_row("given", [0.5, 2, "maybe", [True], {"value": True}])
def test_what_is_neither_is_refused(given: object) -> None:
    with pytest.raises(ValidationError):
        AnswerLabels.model_validate({"helpful": given})


def test_a_label_with_another_name_is_refused_and_not_lost() -> None:
    with pytest.raises(ValidationError, match="helpfull"):
        feedback(answer={"helpfull": True})


def test_feedback_is_read() -> None:
    found = feedback(
        trace_id=17,
        service="bot",
        passages={"kb-1": {"evidence_sufficient": True}, "kb-2": {"misleading": "no"}},
        ticket="ignored",
    )
    assert (found.trace_id, found.service, found.scorer) == ("17", "bot", HUMAN)
    assert found.timestamp.timestamp() == 1795292102
    assert found.passages["kb-1"].topically_relevant is True
    assert found.passages["kb-2"].given == {"misleading": False}
    assert found.answer.given == {"helpful": True}
    assert Feedback.model_validate_json(found.model_dump_json()) == found


@each_row("scorer", ["human", "alice", "zendesk-tickets", "nightly_judge.v2", "9"])
def test_scorers_are_kept(scorer: str) -> None:
    assert feedback(scorer=scorer).scorer == scorer


@each_row(
    "scorer",
    ["", "a" * 65, "umbrela+builtin", "two words", "é", "a\n", ".x", *sorted(RESERVED_SCORERS)],
)
def test_nobody_poses_as_our_scorers_or_breaks_a_name(scorer: str) -> None:
    with pytest.raises(ValidationError):
        feedback(scorer=scorer)


def test_every_scorer_of_ours_is_refused() -> None:
    """By its name, or because nobody's name may have a slash."""
    ours = {name for spec in metric_specs().values() for name in spec.scorers} - {HUMAN, PEOPLE}
    assert {name for name in ours if "/" not in name} <= RESERVED_SCORERS
    for name in ours:
        with pytest.raises(ValidationError):
            feedback(scorer=name)


@each_row(
    "fields",
    [
        {"trace_id": ""},
        {"trace_id": "x" * 600},
        {"timestamp": "yesterday"},
        {"timestamp": None},
        {"answer": {}},
        {"answer": {}, "passages": {"a": {"misleading": None}}},
        {"passages": {f"p{n}": {"misleading": True} for n in range(1001)}},
    ],
)
def test_feedback_that_is_none_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        feedback(**fields)
