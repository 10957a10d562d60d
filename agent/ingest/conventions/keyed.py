"""A reader for every convention that only names the same things differently: a table of keys.

A product's module states its keys and adds what is particular to it. The keys of a field are tried
in order; the first that holds something wins. Values may be JSON text, quoted text or numbers as
text, as products write them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.ingest.conventions.documents import documents_in, documents_of_tool
from agent.ingest.conventions.reading import Gap, Reading, Role, leave_out
from agent.ingest.conventions.texts import (
    answer_in,
    cut_json,
    hidden,
    last_of,
    messages_in,
    number,
    open_json,
    question_in,
    text_of,
    whole,
)

__all__ = [
    "Keys",
    "asks_tools_only",
    "fill_content",
    "first",
    "read_keyed",
    "retrieved",
    "role_of",
    "tag",
]

MAX_TAGS = 64  # of one span; the trace keeps no more than that
MAX_TAG_TEXT = 256  # characters; longer values are prose and no tag


@dataclass(frozen=True, slots=True)
class Keys:
    """Attribute names by field. `tag_prefixes` are cut off the tags' names."""

    convention: str
    kind: tuple[str, ...] = ()
    roles: Mapping[str, Role] = field(default_factory=dict)
    """By the value of `kind` in lower case."""
    unknown: Role = Role.OTHER
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


def first(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    """The first value that is there and not empty."""
    for key in keys:
        value = attributes.get(key)
        if value is not None and value != "" and value != [] and value != {}:
            return value
    return None


def role_of(keys: Keys, attributes: Mapping[str, Any]) -> Role:
    kind = open_json(first(attributes, keys.kind), times=1)  # MLflow quotes it: "\"RETRIEVER\""
    if not isinstance(kind, str):
        return Role.OTHER
    return keys.roles.get(kind.strip().lower(), keys.unknown)


def read_keyed(keys: Keys, attributes: Mapping[str, Any], content: bool = True) -> Reading:
    """What the table finds. The content is read by `fill_content` according to the role."""
    reading = Reading(role=role_of(keys, attributes), convention=keys.convention)
    if content or reading.role is Role.OTHER or not leave_out(reading):
        fill_content(
            reading,
            first(attributes, keys.query),
            first(attributes, keys.answer),
            first(attributes, keys.documents),
        )
    reading.prompt_version = _scalar(first(attributes, keys.prompt_version))
    if reading.role is not Role.EMBEDDING:
        reading.model = _scalar(first(attributes, keys.model))
        reading.input_tokens = whole(first(attributes, keys.input_tokens))
        reading.output_tokens = whole(first(attributes, keys.output_tokens))
    cost = number(first(attributes, keys.cost_usd))
    reading.cost_usd = cost if cost is not None and cost >= 0 else None
    reading.session = _scalar(first(attributes, keys.session))
    reading.user = _scalar(first(attributes, keys.user))
    for key, name in keys.tags.items():
        tag(reading, name, attributes.get(key))
    if keys.tag_prefixes:
        for key, value in attributes.items():
            for prefix in keys.tag_prefixes:
                if key.startswith(prefix):
                    tag(reading, key[len(prefix) :], value)
    return reading


def fill_content(reading: Reading, given: Any, made: Any, documents: Any = None) -> None:
    """Query, answer and documents, of what a span was given and what it made.

    A retriever has no answer: what it made are documents. An embedding, an evaluator or a span of
    unknown use says nothing about the request. A tool may have found documents: whether they
    count is the user's word (`tool_names`).
    """
    given, made, documents = _masked(given), _masked(made), _masked(documents)
    role = reading.role
    if role in (Role.RETRIEVER, Role.RERANKER, Role.VECTOR_DB):
        reading.query, reading.query_gap = question_in(given)
        retrieved(reading, made if documents is None else documents)
    elif role is Role.LLM:
        reading.query = last_of(messages_in(given), "user")
        if reading.query is None:
            reading.query, reading.query_gap = question_in(given)
        reading.calls_tools = asks_tools_only(made)
        if not reading.calls_tools:
            reading.answer, reading.answer_gap = answer_in(made)
    elif role is Role.CHAIN:
        reading.query, reading.query_gap = question_in(given)
        reading.answer, reading.answer_gap = answer_in(made)
    elif role is Role.TOOL:
        reading.query, reading.query_gap = question_in(given)
        reading.documents = documents_of_tool(made)


# what Langfuse's SDK and Logfire write in the place of a value that a masking rule has hit
_MASKS = ("<fully masked due to failed mask function>", "[Scrubbed due to ")


def _masked(value: Any) -> Any:
    """A masked value as the word that all readers know."""
    return "__REDACTED__" if isinstance(value, str) and value.startswith(_MASKS) else value


def retrieved(reading: Reading, value: Any) -> None:
    """Documents of a value, or why there are none."""
    if value is None:
        return
    if hidden(value):
        reading.documents_gap = Gap.HIDDEN
        return
    reading.documents = documents_in(value)
    if reading.documents is None and cut_json(value):
        reading.documents_gap = Gap.PASSAGES_TRUNCATED


def asks_tools_only(value: Any) -> bool:
    """Whether a model's reply asks for tools and says nothing else."""
    opened = open_json(value)
    if isinstance(opened, dict):
        for key in ("choices", "generations"):
            if isinstance(opened.get(key), list):
                opened = opened[key]
                break
    turns = messages_in(opened)
    return bool(turns) and turns[-1].tools and not turns[-1].text


def tag(reading: Reading, name: str, value: Any) -> None:
    """A small scalar becomes a tag; what is nested or prose is left out."""
    if value is None:
        return
    value = open_json(value, times=1)
    text = ("true" if value else "false") if isinstance(value, bool) else text_of(value) or ""
    if name and text and len(text) <= MAX_TAG_TEXT and len(reading.tags) < MAX_TAGS:
        reading.tags[name[:MAX_TAG_TEXT]] = text


def _scalar(value: Any) -> str | None:
    if value is None:
        return None
    text = text_of(open_json(value, times=1))
    return text if text is None or not hidden(text) else None
