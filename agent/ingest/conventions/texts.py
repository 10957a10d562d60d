"""Find the question or the answer in an input or output value.

Nothing here raises, whatever a value holds, and the work is bounded by the value's own size. The
key lists are those that real frameworks use (docs/spans.md names them). What `values` and
`messages` have is offered here too: a convention imports from one place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ragmeter.ingest.conventions.messages import (
    last_text_of,
    read_message,
    read_messages,
)
from ragmeter.ingest.conventions.span_content import ContentGap
from ragmeter.ingest.conventions.values import (
    is_embedding,
    is_hidden,
    is_repr,
    is_truncated,
    looks_like_json,
    parse_nested_json,
    repr_role,
    repr_text,
    scalar_text,
)

_MAX_DEPTH = 12  # of a search; real ones need 5
_MAX_VISITS = 2_000  # containers that one search looks at

_QUESTION_KEYS = (
    "question",
    "query",
    "query_str",
    "input",
    "prompt",
    "user_input",
    "str_or_query_bundle",
    "query_bundle",
    "user_query",
    "user_question",
    "user_message",
    "query_text",
    "messages",
    "inputs",
    "message",
    "content",
    "text",
    "kwargs",
    "args",
    "q",
    "task",
)
_ANSWER_KEYS = (
    "answer",
    "output",
    "result",
    "response",
    "text",
    "content",
    "output_text",
    "final_answer",
    "generated_text",
    "completion",
    "reply",
    "replies",
    "answers",
    "generations",
    "choices",
    "candidates",
    "messages",
    "message",
    "outputs",
    "data",
)
# what holds retrieved text, earlier turns or numbers: never searched for a question or an answer
_SKIPPED_KEYS = frozenset(
    {
        "context",
        "contexts",
        "context_str",
        "documents",
        "docs",
        "source_documents",
        "source_nodes",
        "sources",
        "nodes",
        "passages",
        "chunks",
        "text_chunks",
        "retrieved_documents",
        "metadata",
        "meta",
        "embedding",
        "embeddings",
        "chat_history",
        "history",
        "usage",
        "token_usage",
        "config",
        "tags",
        "template",
        "template_variables",
        "retriever",
        "embedder",
        "ranker",
        "reasoning",
        "tools",
        "tool_calls",
        "response_metadata",
        "additional_kwargs",
    }
)


def find_question(value: Any) -> tuple[str | None, ContentGap | None]:
    """The question that an input holds, with why there is none or not all of it."""
    return _find(value, _QUESTION_KEYS, "user", ContentGap.QUERY_TRUNCATED)


def find_answer(value: Any) -> tuple[str | None, ContentGap | None]:
    """The answer that an output holds, with why there is none or not all of it."""
    return _find(value, _ANSWER_KEYS, "assistant", ContentGap.ANSWER_TRUNCATED)


def _find(
    value: Any, keys: Sequence[str], role: str, truncated: ContentGap
) -> tuple[str | None, ContentGap | None]:
    if isinstance(value, str):
        if is_hidden(value):
            return None, ContentGap.HIDDEN
        opened = parse_nested_json(value)
        if isinstance(opened, str):
            if is_embedding(opened):
                return None, None
            if looks_like_json(opened):  # cut in the middle, or too large
                text = _salvage(opened, keys)
                return text, truncated if text is None else None
            text = scalar_text(opened)
            if text is not None and is_repr(text):
                text = next(_search(text, keys, role, [1], 0), None)
            return text, truncated if text is not None and is_truncated(text) else None
        value = opened
    if value is None or isinstance(value, bool):
        return None, None
    if isinstance(value, (int, float)):
        return scalar_text(value), None
    text = next(_search(value, keys, role, [_MAX_VISITS], 0), None)
    if text is None:
        return None, None
    if is_hidden(text):
        return None, ContentGap.HIDDEN
    return text, truncated if is_truncated(text) else None


def _search(
    value: Any, keys: Sequence[str], role: str, visits: list[int], depth: int
) -> Iterator[str]:
    """Texts at the best keys first, then deeper ones."""
    visits[0] -= 1
    if depth > _MAX_DEPTH or visits[0] < 0:
        return
    if isinstance(value, str):
        opened = parse_nested_json(value)
        if not isinstance(opened, str):
            yield from _search(opened, keys, role, visits, depth + 1)
        elif is_repr(opened):
            if repr_role(opened) in ("", role):
                inner = repr_text(opened)
                if inner is not None:
                    yield inner
        elif scalar_text(opened) and not is_embedding(opened) and not looks_like_json(opened):
            yield opened
        return
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)
        return
    if isinstance(value, list):
        if is_embedding(value):
            return
        turns = read_messages(value)
        if turns:
            text = last_text_of(turns, role)
            if text is not None:
                yield text
            return
        if (depth == 0 and _several_texts(value)) or _documents(value):
            return
        for item in value[:8]:
            yield from _search(item, keys, role, visits, depth + 1)
        return
    if not isinstance(value, dict):
        return
    turn = read_message(value)
    if turn is not None and turn.text and turn.role == role:
        yield turn.text
        return
    for key in keys:
        if key in value and value[key] is not None and not isinstance(value[key], bool):
            yield from _search(value[key], keys, role, visits, depth + 1)
    rest = [k for k in value if k not in keys and str(k).lower() not in _SKIPPED_KEYS]
    for key in rest[:64]:
        if isinstance(value[key], (dict, list)) and not _several_texts(value[key]):
            yield from _search(value[key], keys, role, visits, depth + 1)
    if depth == 0 and len(value) == 1:  # {"topic": "..."}: what else could it be
        only = next(iter(value.values()))
        if isinstance(only, str) and str(next(iter(value))).lower() not in _SKIPPED_KEYS:
            yield from _search(only, keys, role, visits, depth + 1)


def _several_texts(value: Any) -> bool:
    """A list of texts under no known name is a batch: a job's input is no question of its own."""
    if not isinstance(value, list) or len(value) < 2:
        return False
    return all(isinstance(item, str) for item in value[:8])


_OF_DOCUMENTS = frozenset(("page_content", "score", "metadata", "meta", "document", "node"))


def _documents(value: list[Any]) -> bool:
    """Whether a list holds what was retrieved: that is neither a question nor an answer."""
    first = parse_nested_json(value[0]) if value else None
    return (
        isinstance(first, dict)
        and "role" not in first
        and not _OF_DOCUMENTS.isdisjoint(first)
        and "message" not in first
        and "data" not in first
    )


def _salvage(text: str, keys: Sequence[str]) -> str | None:
    """A whole string at one of the keys, in JSON that was cut behind it."""
    head = text[:65536]
    for key in keys:
        found = re.search(rf'"{key}"\s*:\s*("(?:[^"\\]|\\.)*")', head)
        if found is not None:
            try:
                return scalar_text(json.loads(found[1]))
            except ValueError:
                continue
    return None
