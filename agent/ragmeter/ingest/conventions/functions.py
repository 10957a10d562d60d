"""Products and applications that trace functions by their arguments and results alone.

Nothing tells which of them retrieves but its name and what it returns. `key_tables.yaml` has the
sources of each and what to beware of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.documents import read_tool_documents
from ragmeter.ingest.conventions.key_tables import (
    RETRIEVER_NAME,
    fill_content,
    first_value,
    key_table,
    read_by_table,
    recognise_retrieval,
)
from ragmeter.ingest.conventions.span_content import SpanContent, SpanRole
from ragmeter.ingest.conventions.values import key_list, parse_nested_json
from ragmeter.ingest.spans import Span

_AGENTA_SIDES = ("ag.data.inputs.", "ag.data.outputs.")
_MAX_FIELDS = 64  # of the arguments or results of a function
# where conventions have the arguments and the result of a function
_INPUTS = ("input", "input.value", "langfuse.observation.input", "mlflow.spanInputs")
_OUTPUTS = ("output", "output.value", "langfuse.observation.output", "mlflow.spanOutputs")
_QUESTIONS = ("question", "user_question", "user_query", "user_message", "user_input", "chatInput")
_ANSWERS = ("answer", "final_answer", "response", "reply", "answer_text", "generated_text")
_QUESTION_MARKS = ("?", "？", "؟")
_MIN_WORDS = 3  # of an answer: `done` and `3 rows` are none


def read_lilypad(span: Span, full: bool = True) -> SpanContent:
    """Read a function that Lilypad has decorated."""
    return _read_function(span, "lilypad", full, unknown=SpanRole.CHAIN)


def read_plain(span: Span, full: bool = True) -> SpanContent:
    """Read a span with `input` and `output` of an application's own."""
    named = any(key in span.attributes for key in key_list("tool_names"))
    asked = parse_nested_json(span.attributes.get("input"))
    if isinstance(asked, dict) and isinstance(asked.get("messages"), list) and "model" in asked:
        role = SpanRole.LLM  # the body of a request to a model
    else:
        role = SpanRole.TOOL if named else SpanRole.CHAIN
    return _read_function(span, "plain", full, unknown=role)


def read_agenta(span: Span, full: bool = True) -> SpanContent:
    """Read a span of Agenta, whose inputs and outputs may be an attribute for each field."""
    attributes = span.attributes
    sides = [_fields(attributes, prefix) for prefix in _AGENTA_SIDES]
    if not any(sides):
        return _read_function(span, "agenta", full, unknown=SpanRole.CHAIN)
    content = read_by_table(key_table("agenta"), attributes, full)
    fill_content(content, *sides)
    return content


def asks_and_answers(span: Span) -> bool:
    """Return whether the arguments and the result of a function are a question and its answer.

    Nothing else tells a request where no span calls a model or retrieves: the input has to name a
    question or end as one, and the output has to be words. What is given an answer grades it.
    """
    asked = parse_nested_json(first_value(span.attributes, _INPUTS))
    for key in ("args", "kwargs", "inputs"):
        if isinstance(asked, dict) and isinstance(asked.get(key), dict | list) and asked[key]:
            asked = asked[key]
    if isinstance(asked, dict):
        if not asked.keys().isdisjoint(_ANSWERS):
            return False
        named = first_value(asked, _QUESTIONS)
        texts = [named] if named is not None else [*asked.values()]
    else:
        named = None
        texts = asked if isinstance(asked, list) else [asked]
    texts = [text for text in texts[:_MAX_FIELDS] if isinstance(text, str)]
    if not any(named or text.rstrip().endswith(_QUESTION_MARKS) for text in texts):
        return False
    given = parse_nested_json(first_value(span.attributes, _OUTPUTS))
    reply = first_value(given, _ANSWERS) if isinstance(given, dict) else given
    return isinstance(reply, str) and len(reply.split()) >= _MIN_WORDS


def _fields(attributes: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    found = [(key, value) for key, value in attributes.items() if key.startswith(prefix)]
    return {
        "output" if key == f"{prefix}__default__" else key.removeprefix(prefix): value
        for key, value in found[:_MAX_FIELDS]
    }


def _read_function(span: Span, convention: str, full: bool, *, unknown: SpanRole) -> SpanContent:
    table = key_table(convention)
    full = full or RETRIEVER_NAME.search(span.name) is not None
    content = read_by_table(table, span.attributes, full)
    output_value = first_value(span.attributes, table.answer)
    if content.role is SpanRole.OTHER:
        content.role = unknown
        fill_content(content, first_value(span.attributes, table.query), output_value)
    if content.role is SpanRole.TOOL and content.documents is None:
        content.documents = read_tool_documents(output_value)
    recognise_retrieval(span, content, output_value)
    return content
