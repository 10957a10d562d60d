"""Read spans by tables of attribute names, for conventions that differ only in their keys.

`key_tables.yaml` holds the tables. A convention's module, where it has one, adds what is particular
to it. The keys of a field are tried in order, and the first that holds a value wins. Values may be
JSON text, quoted text or numbers as text, as products write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ragmeter.core.files import load_yaml
from ragmeter.ingest.conventions.documents import read_documents, read_tool_documents
from ragmeter.ingest.conventions.joined_documents import is_heading
from ragmeter.ingest.conventions.span_content import (
    RetrievedDocument,
    SpanContent,
    SpanRole,
    defer_content,
    has_texts,
)
from ragmeter.ingest.conventions.texts import (
    find_answer,
    find_question,
    last_text_of,
    read_messages,
)
from ragmeter.ingest.conventions.values import (
    first_count,
    is_hidden,
    is_truncated_json,
    key_list,
    parse_cost,
    parse_count,
    parse_nested_json,
    scalar_text,
)
from ragmeter.ingest.spans import Span
from ragmeter.reasons import Reason

MAX_TAGS = 64  # of one span; the trace keeps no more than that
_MAX_TAG_TEXT = 256  # characters; longer values are prose and no tag
# what Langfuse's SDK and Logfire write in place of a value that a masking rule has hit
_MASKS = ("<fully masked due to failed mask function>", "[Scrubbed due to ")


def _scalar(value: Any) -> str | None:
    if value is None:
        return None
    text = scalar_text(parse_nested_json(value, times=1))
    return text if text is None or not is_hidden(text) else None


_PARSERS: dict[str, Callable[[Any], object]] = {
    **dict.fromkeys(("model", "prompt_version", "session", "user"), _scalar),
    **dict.fromkeys(("input_tokens", "output_tokens"), parse_count),
    "cost_usd": parse_cost,
}
# beside documents: that is no retriever
_REPLIES = (
    "answer",
    "text",
    "response",
    "result",
    "output",
    "output_text",
    "final_answer",
    "reply",
)
_CONTEXTS = ("context", "contexts", "documents")  # of what a function returns
_MIN_WORDS = 6  # of a text that a retriever gives back
_OF_MODEL_CALLS = ("model", "input_tokens", "output_tokens")  # not read of embedding calls
# names of functions that retrieve; shared with other products that have no such type
RETRIEVER_NAME = re.compile(
    r"retriev|(?:vector|similarity|semantic|hybrid|document|doc|knowledge|kb|context)[\w .-]{0,12}"
    r"(?:search|lookup|fetch)|search[\w .-]{0,12}(?:docs|documents|index|passages|chunks)"
    r"|(?:find|fetch|get|query|select|lookup|top)[\w .-]{0,16}"
    r"(?:docs|documents|passages|chunks|snippets|contexts?)\b",
    re.IGNORECASE,
)
_Mark = Callable[[Span, Any], bool]
_MARKS: dict[str, _Mark] = {
    "scopes": lambda span, names: span.scope in names,
    "scope_prefixes": lambda span, names: span.scope.startswith(names),
    "name_prefixes": lambda span, names: span.name.startswith(names),
    "attributes": lambda span, names: not span.attributes.keys().isdisjoint(names),
    "attribute_prefixes": lambda span, names: any(key.startswith(names) for key in span.attributes),
    "events": lambda span, names: any(event.name in names for event in span.events),
    "event_prefixes": lambda span, names: any(e.name.startswith(names) for e in span.events),
    "values": lambda span, of: any(
        span.attributes.get(key) in values for key, values in of.items()
    ),
}


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The attribute names of a convention, by the field of `SpanContent` that they hold.

    Args:
        needs: Attributes all of which a span of this convention has.
        matches: Alternatives, each of marks of a span (`_MARKS`), all of which must hold.
        kind: Attributes that hold the kind of a span.
        roles: Role by kind in lower case.
        unknown: Role of a kind that is present but not listed.
        scalars: Attributes that hold the fields of `_PARSERS`, by field.
        failed: Attributes that mark a failure, with the value (in lower case) that does.
        tags: Tag names by attribute.
        tag_prefixes: Attributes with these prefixes are tags named by the rest of the name.
    """

    convention: str
    needs: tuple[str, ...] = ()
    matches: tuple[tuple[tuple[_Mark, Any], ...], ...] = ()
    kind: tuple[str, ...] = ()
    roles: Mapping[str, SpanRole] = field(default_factory=dict)
    unknown: SpanRole = SpanRole.OTHER
    query: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    scalars: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    tag_prefixes: tuple[str, ...] = ()


@cache
def key_table(convention: str) -> KeyTable:
    """Return the table of a convention from `key_tables.yaml`, which is read at the first call."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in _all_tables()[convention].items()
    }
    fields["matches"] = tuple(
        tuple(
            (_MARKS[mark], tuple(of) if isinstance(of, list) else of) for mark, of in marks.items()
        )
        for marks in fields.get("matches", ())
    )
    fields["scalars"] = {name: fields.pop(name) for name in _PARSERS if name in fields}
    fields["unknown"] = SpanRole(fields.get("unknown", SpanRole.OTHER))
    fields["roles"] = {
        kind: SpanRole(role) for role, kinds in fields.get("roles", {}).items() for kind in kinds
    }
    return KeyTable(convention, **fields)


@cache
def _all_tables() -> Any:
    return load_yaml(__package__, "key_tables.yaml")


def matches_table(table: KeyTable, span: Span) -> bool:
    """Return whether a span has all that one of the table's alternatives asks for."""
    return all(key in span.attributes for key in table.needs) and any(
        all(has_mark(span, names) for has_mark, names in marks) for marks in table.matches
    )


def first_value(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """Return the first value that is present and not empty, None without one."""
    for key in keys:
        value = attributes.get(key)
        if value is not None and value != "" and value != [] and value != {}:
            return value
    return None


def first_output(attributes: Mapping[str, Any], keys: tuple[str, ...], role: SpanRole) -> Any:
    """Return the first output that is not empty, else "" where a span has answered with nothing.

    Only a model call and what the application gives back are answers: an empty output of any other
    span says nothing.
    """
    value = first_value(attributes, keys)
    if value is None and role in (SpanRole.LLM, SpanRole.CHAIN):
        return "" if any(attributes.get(key) == "" for key in keys) else None
    return value


def read_role(table: KeyTable, attributes: Mapping[str, Any]) -> SpanRole:
    """Return the role of a span by its kind; OTHER without a kind."""
    # MLflow quotes it: "\"RETRIEVER\""
    kind = parse_nested_json(first_value(attributes, table.kind), times=1)
    if not isinstance(kind, str):
        return SpanRole.OTHER
    return table.roles.get(kind.strip().lower(), table.unknown)


def read_by_table(
    table: KeyTable, attributes: Mapping[str, Any], full: bool = True, role: SpanRole | None = None
) -> SpanContent:
    """Read the fields that a table lists; `role` is for conventions that do not tell it by kind.

    Without `full`, question and answer are left out where `defer_content` allows it.
    """
    role = read_role(table, attributes) if role is None else role
    content = SpanContent(role=role, convention=table.convention)
    if full or role is SpanRole.OTHER or not defer_content(content):
        fill_content(
            content,
            first_value(attributes, table.query),
            first_output(attributes, table.answer, role),
            first_value(attributes, table.documents),
        )
    for name, keys in table.scalars.items():
        if role is not SpanRole.EMBEDDING or name not in _OF_MODEL_CALLS:
            setattr(content, name, _PARSERS[name](first_value(attributes, keys)))
    content.failed = any(
        str(attributes.get(key, "")).lower() == value for key, value in table.failed.items()
    )
    for key, name in table.tags.items():
        add_tag(content, name, attributes.get(key))
    if table.tag_prefixes:
        for key, value in attributes.items():
            for prefix in table.tag_prefixes:
                if key.startswith(prefix):
                    add_tag(content, key[len(prefix) :], value)
    return content


def fill_content(
    content: SpanContent, input_value: Any, output_value: Any, documents: Any = None
) -> None:
    """Set question, answer and documents from the input and output of a span, by its role.

    The output of a retriever is documents and never an answer. Embeddings, evaluators and spans of
    unknown use tell nothing about the request. The output of a tool may be documents: the setting
    `tool_names` decides whether they count.
    """
    input_value, output_value, documents = map(_unify_mask, (input_value, output_value, documents))
    role = content.role
    if role in (SpanRole.RETRIEVER, SpanRole.RERANKER, SpanRole.VECTOR_DB):
        content.query, content.query_gap = find_question(input_value)
        fill_documents(content, output_value if documents is None else documents)
        if content.documents is None and content.documents_gap is None:
            content.documents = _documents_of_text(output_value)
    elif role is SpanRole.LLM:
        content.query = last_text_of(read_messages(input_value), "user")
        if content.query is None:
            content.query, content.query_gap = find_question(input_value)
        fill_reply(content, output_value)
    elif role is SpanRole.CHAIN:
        content.query, content.query_gap = find_question(input_value)
        content.answer, content.answer_gap = find_answer(output_value)
    elif role is SpanRole.TOOL:
        content.query, content.query_gap = find_question(input_value)
        content.documents = read_tool_documents(output_value)


def recognise_retrieval(span: Span, content: SpanContent, output_value: Any) -> None:
    """Make a retriever of a function whose name says so and that returns a list of documents."""
    if content.role is not SpanRole.CHAIN or not RETRIEVER_NAME.search(span.name):
        return
    opened = parse_nested_json(output_value)
    documents = None
    if isinstance(opened, dict) and any(isinstance(opened.get(key), str) for key in _REPLIES):
        return  # a chain that has answered, with what it retrieved beside
    if isinstance(opened, dict):  # Dify: {"result": [...]}; a function's own: {"context": "..."}
        listed = next((one for one in opened.values() if isinstance(one, list)), None)
        text = first_value(opened, _CONTEXTS)
        documents = _documents_of_text(text) if listed is None else read_documents(listed)
    elif isinstance(opened, list):
        documents = read_documents(opened)
    if has_texts(documents):
        content.role = SpanRole.RETRIEVER
        content.documents = documents
        content.answer = None
        content.answer_gap = None


def _documents_of_text(value: Any) -> list[RetrievedDocument] | None:
    """Return the documents in a text that a retriever gives back: not how many it has found."""
    opened = parse_nested_json(value)
    if not isinstance(opened, str) or is_heading(opened) or len(opened.split()) < _MIN_WORDS:
        return None
    return read_tool_documents(opened)


def fill_reply(content: SpanContent, output_value: Any) -> None:
    """Set the answer of a model call, or mark it as one that only asks for tools."""
    content.calls_tools = asks_tools_only(output_value)
    if not content.calls_tools:
        content.answer, content.answer_gap = find_answer(output_value)


def fill_tokens(content: SpanContent, usage: Any) -> None:
    """Set the tokens from an object by the names that APIs of models give them."""
    if isinstance(usage, dict):
        content.input_tokens = first_count(usage, key_list("input_tokens"))
        content.output_tokens = first_count(usage, key_list("output_tokens"))


def _unify_mask(value: Any) -> Any:
    """Replace a product's own mask by the one that `is_hidden` recognises."""
    return "__REDACTED__" if isinstance(value, str) and value.startswith(_MASKS) else value


def fill_documents(content: SpanContent, value: Any) -> None:
    """Set the documents that a value holds, or the reason why they are missing."""
    if value is None:
        return
    if not is_hidden(value):
        content.documents = read_documents(value)
    content.documents_gap = missing_documents_gap(content.documents, value)


def missing_documents_gap(documents: list[RetrievedDocument] | None, value: Any) -> Reason | None:
    """Return why documents are missing from the value that should hold them."""
    if is_hidden(value):
        return Reason.CONTENT_HIDDEN
    cut = documents is None and is_truncated_json(value)
    return Reason.PASSAGES_TRUNCATED if cut else None


def asks_tools_only(value: Any) -> bool:
    """Return whether a model's reply asks for tools and has no text."""
    opened = parse_nested_json(value)
    if isinstance(opened, dict):
        for key in ("choices", "generations"):
            if isinstance(opened.get(key), list):
                opened = opened[key][:1]
                break
    messages = read_messages(opened)
    return bool(messages) and messages[-1].tools and not messages[-1].text


def add_tag(content: SpanContent, name: str, value: Any) -> None:
    """Add a tag if the value is a short scalar; nested values and prose are left out."""
    if value is None:
        return
    value = parse_nested_json(value, times=1)
    text = ("true" if value else "false") if isinstance(value, bool) else scalar_text(value) or ""
    if name and text and len(text) <= _MAX_TAG_TEXT and len(content.tags) < MAX_TAGS:
        content.tags[name[:_MAX_TAG_TEXT]] = text
