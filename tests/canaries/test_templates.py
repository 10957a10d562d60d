from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from ragmeter.canaries.templates import (
    MISSING,
    JsonPath,
    fill_template,
    resolve_json_path,
    template_names,
)

from tests.tables import each_row

DOCUMENT = {"data": {"answer": "x", "a/b": 1, "0": "zero"}, "list": [{"id": "p"}, None], "": 5}


@each_row(
    ("place", "found"),
    [
        ("$", DOCUMENT),
        ("data.answer", "x"),
        ("$.data.answer", "x"),
        ("/data/answer", "x"),
        ("/data/a~1b", 1),
        ("list[0].id", "p"),
        ("list.0.id", "p"),
        ("/list/0/id", "p"),
        ("list[1]", None),  # null is something
        ("data.0", "zero"),
        ("/", 5),
        ("list[2]", MISSING),
        ("list[99999999999999]", MISSING),
        ("list.-1", MISSING),
        ("data.answer.x", MISSING),
        ("nothing", MISSING),
    ],
)
def test_what_stands_at_a_place(place: str, found: Any) -> None:
    assert (
        resolve_json_path(DOCUMENT, place) is found or resolve_json_path(DOCUMENT, place) == found
    )


@each_row("place", ["", "a..b", "a.", "a[x]", "a[", "[1", "$x y]", "a[1]b"])
def test_what_is_no_place(place: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(JsonPath).validate_python(place)


def test_templates() -> None:
    values = {"query": 'Say "hi" {{env.KEY}}', "history": [{"role": "user"}], "vars.k": 5}
    template = {"q": "{{query}}", "{{vars.k}}": ["{{ history }}", "k={{vars.k}}", 7, None]}
    # a value is no template, a text that is one name is the value itself
    assert fill_template(template, values) == {
        "q": 'Say "hi" {{env.KEY}}',
        "5": [[{"role": "user"}], "k=5", 7, None],
    }
    assert template_names(template) == {"query", "vars.k", "history"}
    with pytest.raises(KeyError):
        fill_template("{{nobody}}", values)
