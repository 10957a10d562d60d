"""Spans of each convention, as JSON beside what is read of them.

A sample says what its span and its content hold beyond the defaults, which conventions match the
span, and by which of them it is read; without one it is read by all that match.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from ragmeter.ingest.conventions.registry import CONVENTIONS, matching_conventions, read_span
from ragmeter.ingest.conventions.span_content import SpanContent
from ragmeter.ingest.spans import SpanEvent

from tests.ingest.conventions.samples import span
from tests.tables import each_row

FILES = sorted((Path(__file__).parents[2] / "data" / "conventions").glob("*.json"))
SAMPLES = [
    pytest.param(sample, id=f"{path.stem}: {sample['name']}")
    for path in FILES
    for sample in json.loads(path.read_text(encoding="utf-8"))
]
CONTENT = TypeAdapter(SpanContent)


@each_row("sample", SAMPLES)
def test_what_is_read_of_a_span(sample: dict[str, Any]) -> None:
    fields = dict(sample["span"])
    fields["events"] = [SpanEvent(**event) for event in fields.get("events", [])]
    one = span(fields.pop("name", ""), **fields)
    assert [each.name for each in matching_conventions(one)] == sample["matching"]
    if "convention" in sample:
        (convention,) = (each for each in CONVENTIONS if each.name == sample["convention"])
        found = convention.read(one, True)
    else:
        found = read_span(one)
    assert found == CONTENT.validate_python(sample["content"])
