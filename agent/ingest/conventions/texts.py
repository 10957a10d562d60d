"""Find the question or the answer in an input or output value.

Nothing here raises, whatever a value holds, and the work is bounded by the value's own size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ragmeter.ingest.conventions.messages import last_text_of, read_message, read_messages
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
    value_keys,
)

_MAX_DEPTH = 12  # of a search; real ones need 5
_MAX_VISITS = 2_000  # containers that one search looks at

_DOCUMENT_KEYS = frozenset(("page_content", "score", "metadata", "meta", "document", "node"))


def find_question(value: Any) -> tuple[str | None, ContentGap | None]:
    """Return the question that an input holds, and why there is none or not all of it."""
    return _find(value, value_keys().question, "user", ContentGap.QUERY_TRUNCATED)


def find_answer(value: Any) -> tuple[str | None, ContentGap | None]:
    """Return the answer that an output holds, and why there is none or not all of it."""
    return _find(value, value_keys().answer, "assistant", ContentGap.ANSWER_TRUNCATED)


def with_gap(text: str, truncated: ContentGap) -> tuple[str | None, ContentGap | None]:
    """Return text unless it is hidden, with the gap that it shows."""
    if is_hidden(text):
        return None, ContentGap.HIDDEN
    return text, truncated if is_truncated(text) else None


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
                text = next(_Search(keys, role, visits=1).texts(text), None)
            return text, truncated if text is not None and is_truncated(text) else None
        value = opened
    if value is None or isinstance(value, bool):
        return None, None
    if isinstance(value, (int, float)):
        return scalar_text(value), None
    text = next(_Search(keys, role).texts(value), None)
    return (None, None) if text is None else with_gap(text, truncated)


@dataclass(slots=True)
class _Search:
    """A search for text, which looks at no more than `visits` containers."""

    keys: Sequence[str]
    role: str
    visits: int = _MAX_VISITS

    def texts(self, value: Any, depth: int = 0) -> Iterator[str]:
        """Yield texts, those at the best keys first and deeper ones last."""
        self.visits -= 1
        if depth > _MAX_DEPTH or self.visits < 0:
            return
        if isinstance(value, str):
            opened = parse_nested_json(value)
            if not isinstance(opened, str):
                yield from self.texts(opened, depth + 1)
            elif is_repr(opened):
                if repr_role(opened) in ("", self.role):
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
            messages = read_messages(value)
            if messages:
                text = last_text_of(messages, self.role)
                if text is not None:
                    yield text
                return
            if (depth == 0 and _several_texts(value)) or _holds_documents(value):
                return
            for item in value[:8]:
                yield from self.texts(item, depth + 1)
            return
        if not isinstance(value, dict):
            return
        message = read_message(value)
        if message is not None and message.text and message.role == self.role:
            yield message.text
            return
        for key in self.keys:
            if key in value and value[key] is not None and not isinstance(value[key], bool):
                yield from self.texts(value[key], depth + 1)
        skipped = value_keys().skipped
        rest = [k for k in value if k not in self.keys and str(k).lower() not in skipped]
        for key in rest[:64]:
            if isinstance(value[key], (dict, list)) and not _several_texts(value[key]):
                yield from self.texts(value[key], depth + 1)
        if depth == 0 and len(value) == 1:  # {"topic": "..."}: nothing else can be the question
            only = next(iter(value.values()))
            if isinstance(only, str) and str(next(iter(value))).lower() not in skipped:
                yield from self.texts(only, depth + 1)


def _several_texts(value: Any) -> bool:
    """Return whether a value is a batch: the input of a job is no question of its own."""
    if not isinstance(value, list) or len(value) < 2:
        return False
    return all(isinstance(item, str) for item in value[:8])


def _holds_documents(value: list[Any]) -> bool:
    """Return whether a list holds documents, which are neither a question nor an answer."""
    first = parse_nested_json(value[0]) if value else None
    return (
        isinstance(first, dict)
        and "role" not in first
        and not _DOCUMENT_KEYS.isdisjoint(first)
        and "message" not in first
        and "data" not in first
    )


def _salvage(text: str, keys: Sequence[str]) -> str | None:
    """Return a whole string at one of the keys, in JSON that was cut behind it."""
    head = text[:65536]
    for key in keys:
        match = re.search(rf'"{key}"\s*:\s*("(?:[^"\\]|\\.)*")', head)
        if match is not None:
            try:
                return scalar_text(json.loads(match[1]))
            except ValueError:
                continue
    return None
