from __future__ import annotations

import json

from ragmeter.ingest.conventions.registry import read_span
from ragmeter.ingest.conventions.span_content import SpanRole
from ragmeter.ingest.spans import AttributeValue

from tests.ingest.conventions.samples import span


def test_a_framework_retriever() -> None:
    documents = {"documents": [{"page_content": "a passage", "metadata": {}, "id": "d"}]}
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "vector_db_retrieve",
        "gen_ai.task.input": json.dumps({"query": "q"}),
        "gen_ai.task.output": json.dumps(documents),
    }
    found = read_span(span(attributes=attributes))
    assert (found.role, found.query) == (SpanRole.RETRIEVER, "q")
    assert found.documents is not None
    assert [(one.id, one.text) for one in found.documents] == [("d", "a passage")]


def test_an_agent_in_plain_text() -> None:
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.task.input": "q",
        "gen_ai.task.output": "a",
        "gen_ai.task.status": "failure",
    }
    found = read_span(span(attributes=attributes))
    assert (found.role, found.query, found.answer) == (SpanRole.CHAIN, "q", "a")
    assert found.failed
