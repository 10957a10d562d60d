from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from ragmeter.scorers.llm.questions import find_schema_violation

from tests.scorers.judge.stub_answers import generated
from tests.tables import each_row

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "grade": {"type": "integer", "enum": [0, 1, 2, 3]},
        "label": {"enum": ["full", "partial", "none"]},
        "why": {"type": "string"},
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"n": {"type": "number"}}},
        },
        "sure": {"type": "boolean"},
    },
    "required": ["grade", "label"],
    "additionalProperties": False,
}
GOOD = {
    "grade": 2,
    "label": "full",
    "why": "because",
    "items": [{"n": 1.5}, {"n": 2}],
    "sure": True,
}


def test_a_good_value_has_nothing_wrong() -> None:
    assert find_schema_violation(GOOD, SCHEMA) is None


@each_row(
    ("change", "text"),
    [
        ({"grade": 4}, "answer.grade must be one of 0, 1, 2, 3"),
        ({"grade": True}, "answer.grade must be of type integer"),
        ({"grade": 2.0}, "answer.grade must be of type integer"),
        ({"grade": "2"}, "answer.grade must be of type integer"),
        ({"label": "FULL"}, 'answer.label must be one of "full", "partial", "none"'),
        ({"label": ["full"]}, "answer.label must be one of"),
        ({"why": None}, "answer.why must be of type string"),
        ({"items": [{"n": "1"}]}, "answer.items[0].n must be of type number"),
        ({"sure": 1}, "answer.sure must be of type boolean"),
        ({"more": 1}, "answer must not have a property 'more'"),
    ],
)
def test_says_what_is_wrong_and_where(change: dict[str, Any], text: str) -> None:
    found = find_schema_violation({**GOOD, **change}, SCHEMA)
    assert found is not None
    assert text in found


@each_row("value", [[], "text", 1, None, True])
def test_another_type_is_wrong(value: object) -> None:
    assert find_schema_violation(value, SCHEMA) == "answer must be of type object"


def test_what_is_missing_is_named() -> None:
    assert find_schema_violation({"label": "none"}, SCHEMA) == "answer.grade is missing"


def test_properties_beyond_the_schema_are_allowed_unless_it_says_no() -> None:
    assert find_schema_violation({"x": 1}, {"type": "object"}) is None
    more = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert find_schema_violation({"x": 1}, more) is None
    assert find_schema_violation({"x": "1"}, more) == "answer.x must be of type integer"


def test_true_is_not_1() -> None:
    assert find_schema_violation(True, {"enum": [1, 0]}) is not None
    assert find_schema_violation(1, {"enum": [True]}) is not None
    assert find_schema_violation(1, {"enum": [1, 0]}) is None


def test_an_answer_without_end_is_too_deep() -> None:
    tree: dict[str, Any] = {"type": "object", "properties": {}}
    tree["properties"]["a"] = tree
    value: dict[str, Any] = {}
    for _ in range(500):
        value = {"a": value}
    assert "too deep" in (find_schema_violation(value, tree) or "")


@given(st.integers())
def test_what_is_made_by_the_schema_is_valid(seed: int) -> None:
    """The stub and the check agree."""
    value = generated(SCHEMA, random.Random(seed))
    assert find_schema_violation(json.loads(json.dumps(value)), SCHEMA) is None
