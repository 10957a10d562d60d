"""Read a span by a table of attribute names, for conventions that differ only in their keys.

A product's module states its keys and adds what is particular to it. The keys of a field are tried
in order; the first that holds something wins. Values may be JSON text, quoted text or numbers as
text, as products write them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ragmeter.ingest.conventions.documents import read_documents, read_tool_documents
from ragmeter.ingest.conventions.messages import last_text_of, read_messages
from ragmeter.ingest.conventions.span_content import (
    ContentGap,
    SpanContent,
    SpanRole,
    may_defer_content,
)
from ragmeter.ingest.conventions.texts import find_answer, find_question
from ragmeter.ingest.conventions.values import (
    is_hidden,
    is_truncated_json,
    parse_count,
    parse_nested_json,
    parse_number,
    scalar_text,
)

MAX_TAGS = 64  # of one span; the trace keeps no more than that
_MAX_TAG_TEXT = 256  # characters; longer values are prose and no tag


@dataclass(frozen=True, slots=True)
class KeyTable:
    """Attribute names by field. `tag_prefixes` are cut off the tags' names."""

    convention: str
    kind: tuple[str, ...] = ()
    roles: Mapping[str, SpanRole] = field(default_factory=dict)
    """By the value of `kind` in lower case."""
    unknown: SpanRole = SpanRole.OTHER
    """The role of a kind that is there but not listed."""
    query: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    prompt_version: tuple[str, ...] = ()
    input_tokens: tuple[str, ...] = ()
    output_tokens: tuple[str, ...] = ()
    cost_usd: tuple[str, ...] = ()
    session: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    """Attribute to the name of the tag."""
    tag_prefixes: tuple[str, ...] = ()


def first_value(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """The first value that is there and not empty."""
    for key in keys:
        value = attributes.get(key)
        if value is not None and value != "" and value != [] and value != {}:
            return value
    return None


def read_role(keys: KeyTable, attributes: Mapping[str, Any]) -> SpanRole:
    kind = parse_nested_json(
        first_value(attributes, keys.kind), times=1
    )  # MLflow quotes it: "\"RETRIEVER\""
    if not isinstance(kind, str):
        return SpanRole.OTHER
    return keys.roles.get(kind.strip().lower(), keys.unknown)


def read_by_keys(
    keys: KeyTable, attributes: Mapping[str, Any], content: bool = True
) -> SpanContent:
    """What the table finds. The content is read by `fill_content` according to the role."""
    reading = SpanContent(role=read_role(keys, attributes), convention=keys.convention)
    if content or reading.role is SpanRole.OTHER or not may_defer_content(reading):
        fill_content(
            reading,
            first_value(attributes, keys.query),
            first_value(attributes, keys.answer),
            first_value(attributes, keys.documents),
        )
    reading.prompt_version = _scalar(first_value(attributes, keys.prompt_version))
    if reading.role is not SpanRole.EMBEDDING:
        reading.model = _scalar(first_value(attributes, keys.model))
        reading.input_tokens = parse_count(first_value(attributes, keys.input_tokens))
        reading.output_tokens = parse_count(first_value(attributes, keys.output_tokens))
    cost = parse_number(first_value(attributes, keys.cost_usd))
    reading.cost_usd = cost if cost is not None and cost >= 0 else None
    reading.session = _scalar(first_value(attributes, keys.session))
    reading.user = _scalar(first_value(attributes, keys.user))
    for key, name in keys.tags.items():
        add_tag(reading, name, attributes.get(key))
    if keys.tag_prefixes:
        for key, value in attributes.items():
            for prefix in keys.tag_prefixes:
                if key.startswith(prefix):
                    add_tag(reading, key[len(prefix) :], value)
    return reading


def fill_content(reading: SpanContent, given: Any, made: Any, documents: Any = None) -> None:
    """Query, answer and documents, of what a span was given and what it made.

    A retriever has no answer: what it made are documents. An embedding, an evaluator or a span of
    unknown use says nothing about the request. A tool may have found documents: whether they
    count is the user's word (`tool_names`).
    """
    given, made, documents = _masked(given), _masked(made), _masked(documents)
    role = reading.role
    if role in (SpanRole.RETRIEVER, SpanRole.RERANKER, SpanRole.VECTOR_DB):
        reading.query, reading.query_gap = find_question(given)
        read_retrieved(reading, made if documents is None else documents)
    elif role is SpanRole.LLM:
        reading.query = last_text_of(read_messages(given), "user")
        if reading.query is None:
            reading.query, reading.query_gap = find_question(given)
        reading.calls_tools = asks_tools_only(made)
        if not reading.calls_tools:
            reading.answer, reading.answer_gap = find_answer(made)
    elif role is SpanRole.CHAIN:
        reading.query, reading.query_gap = find_question(given)
        reading.answer, reading.answer_gap = find_answer(made)
    elif role is SpanRole.TOOL:
        reading.query, reading.query_gap = find_question(given)
        reading.documents = read_tool_documents(made)


# what Langfuse's SDK and Logfire write in the place of a value that a masking rule has hit
_MASKS = ("<fully masked due to failed mask function>", "[Scrubbed due to ")


def _masked(value: Any) -> Any:
    """A masked value as the word that all readers know."""
    return "__REDACTED__" if isinstance(value, str) and value.startswith(_MASKS) else value


def read_retrieved(reading: SpanContent, value: Any) -> None:
    """Documents of a value, or why there are none."""
    if value is None:
        return
    if is_hidden(value):
        reading.documents_gap = ContentGap.HIDDEN
        return
    reading.documents = read_documents(value)
    if reading.documents is None and is_truncated_json(value):
        reading.documents_gap = ContentGap.PASSAGES_TRUNCATED


def asks_tools_only(value: Any) -> bool:
    """Whether a model's reply asks for tools and says nothing else."""
    opened = parse_nested_json(value)
    if isinstance(opened, dict):
        for key in ("choices", "generations"):
            if isinstance(opened.get(key), list):
                opened = opened[key]
                break
    turns = read_messages(opened)
    return bool(turns) and turns[-1].tools and not turns[-1].text


def add_tag(reading: SpanContent, name: str, value: Any) -> None:
    """A small scalar becomes a tag; what is nested or prose is left out."""
    if value is None:
        return
    value = parse_nested_json(value, times=1)
    text = ("true" if value else "false") if isinstance(value, bool) else scalar_text(value) or ""
    if name and text and len(text) <= _MAX_TAG_TEXT and len(reading.tags) < MAX_TAGS:
        reading.tags[name[:_MAX_TAG_TEXT]] = text


def _scalar(value: Any) -> str | None:
    if value is None:
        return None
    text = scalar_text(parse_nested_json(value, times=1))
    return text if text is None or not is_hidden(text) else None
