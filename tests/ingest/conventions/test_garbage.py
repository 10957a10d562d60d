"""Whatever attributes hold: no convention raises, and what it gives is of the promised types."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ragmeter.ingest.conventions import registry
from ragmeter.ingest.conventions.registry import (
    CONVENTIONS,
    PLAIN,
    matching_conventions,
    preview_span,
    read_span,
)
from ragmeter.ingest.conventions.span_content import (
    RetrievedDocument,
    SpanContent,
    SpanRole,
)
from ragmeter.ingest.spans import SpanEvent
from ragmeter.reasons import Reason

from tests.ingest.conventions.samples import span


def _names() -> list[str]:
    """Every attribute and event name that any convention knows, from their own sources."""
    folder = Path(registry.__file__).parent
    tables = (folder / "key_tables.yaml").read_text()
    found = set(re.findall(r"[A-Za-z_]+(?:\.[A-Za-z_0-9]+)+\.?", tables))
    for path in folder.glob("*.py"):
        source = path.read_text()
        names = set(re.findall(r'"([A-Za-z_]+(?:\.[A-Za-z_0-9]+)+\.?)"', source))
        # names that are put together: PREFIX + "type"
        ends = set(re.findall(r'\+ "([a-z_.A-Z]+)"', source))
        found |= names | {name + end for name in names if name.endswith(".") for end in ends}
    return sorted(found | BARE)


# names without a dot are no names elsewhere
BARE = {
    "span_type",
    "framework",
    "session_id",
    "inputs",
    "output",
    "events",
    "final_result",
    "all_messages_events",
    "request_data",
    "response_data",
    "tool_arguments",
    "tool_response",
    "agent_name",
}


NAMES = _names()
KINDS = [
    "RETRIEVER",
    '"RETRIEVER"',
    "retrieval",
    "llm",
    "chat",
    "tool",
    "vector_store",
    "query",
    "reranker",
    "ai.rerank.doRerank",
    "ai.streamText",
    "InMemoryRetriever",
    "OpenAIGenerator",
    "Retrieval",
    "chroma",
    "openlit",
    "promptflow",
    "inference",
    "execute_tool",
]
WORDS = ["query", "documents", "messages", "content", "role", "parts", "text", "id", "choices"]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(KINDS)
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)
BROKEN = st.sampled_from(
    [
        '{"query": "cut he',
        '[{"page_content": "x"}, {"pa',
        "[" * 3000,
        "{'user': " * 500,
        '["a", "b"',
        "\ud800",
        "user: \nassistant: ",
        "9" * 5000,
        "[0.1, 0.2, 0.3]",
        "__REDACTED__",
        '{"a":' * 2000,
    ]
)


def _text(value: Any) -> str:
    return json.dumps(value, default=str)


VALUES = NESTED | NESTED.map(_text) | BROKEN
ATTRIBUTES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=10)
EVENTS = st.lists(
    st.builds(
        SpanEvent,
        name=st.sampled_from([*NAMES, "metadata", "data.input", "data.output"]),
        time=st.integers(0, 2**63),
        attributes=st.dictionaries(
            st.sampled_from([*NAMES, "payload", "input", "response", "user"]), VALUES, max_size=4
        ),
    ),
    max_size=4,
)


def _check(found: SpanContent) -> None:
    assert isinstance(found.role, SpanRole)
    for text in (found.query, found.answer, found.model, found.session, found.user, found.error):
        assert text is None or isinstance(text, str)
    for gap in (found.query_gap, found.answer_gap, found.documents_gap):
        assert gap is None or isinstance(gap, Reason)
    for count in (found.input_tokens, found.output_tokens):
        assert count is None or (isinstance(count, int) and count >= 0)
    assert found.cost_usd is None or math.isfinite(found.cost_usd)
    for one in found.documents or ():
        assert isinstance(one, RetrievedDocument)
        assert isinstance(one.id, str)
        assert one.text is None or isinstance(one.text, str)
        assert one.score is None or math.isfinite(one.score)
    assert all(isinstance(k, str) and isinstance(v, str) for k, v in found.tags.items())
    for start, end, ids in found.citations:
        assert start is None or end is None or start <= end
        assert all(isinstance(one, str) for one in ids)


CONTENT: dict[str, Any] = {
    "query": None,
    "query_gap": None,
    "answer": None,
    "answer_gap": None,
    "context": None,
    "citations": [],
    "calls_tools": False,
}


def _check_light(light: SpanContent, whole: SpanContent) -> None:
    """What a light reading has left out is all that it differs in."""
    assert not whole.light
    if not light.light:
        assert light == whole
    elif light.convention == "openinference" and light.role is SpanRole.CHAIN:
        # of what only wraps others not even the tags are read
        assert (light.role, light.session) == (whole.role, whole.session)
        assert light.documents == whole.documents
    else:
        assert replace(light, light=False, **CONTENT) == replace(whole, **CONTENT)


def test_the_names_are_there() -> None:
    assert len(NAMES) > 200
    assert "langfuse.observation.type" in NAMES
    assert "mlflow.spanOutputs" in NAMES


@settings(suppress_health_check=list(HealthCheck))
@given(attributes=ATTRIBUTES, events=EVENTS, name=st.text(max_size=8))
def test_no_convention_raises(
    attributes: dict[str, Any], events: list[SpanEvent], name: str
) -> None:
    one = span(name, attributes=attributes, events=events)
    for convention in CONVENTIONS:
        convention.matches(one)
        _check(convention.read(one, True))  # also where it does not match
    _check(read_span(one))
    _check_light(preview_span(one), read_span(one))
    # what is remembered of spans alike is what each would say
    matching = tuple(each for each in CONVENTIONS if each.matches(one))
    plain = (PLAIN,) if PLAIN.matches(one) else ()
    assert matching_conventions(one) == (matching or plain)
