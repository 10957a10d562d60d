"""Decide which tools of an agent are retrievals: their results are the passages of a request.

Agents retrieve by tools, and no convention marks those that do. So a tool counts whose name looks
like a retrieval, or whose result is a list of texts; the settings `otlp.tool_names` and
`otlp.excluded_tools` decide otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase

from ragmeter.config.inputs import OtlpSettings
from ragmeter.ingest.conventions.span_content import ContentGap, RetrievedDocument
from ragmeter.ingest.conventions.values import value_keys
from ragmeter.ingest.spans import Span

_TOOL_NAMES = (
    *("tool.name", "gen_ai.tool.name", "traceloop.entity.name"),
    *("ai.toolCall.name", "spring.ai.tool.definition.name"),
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_MAX_NAME = 200  # characters of a tool's name
# Words that a text of a list has on average, at least. Lists of names and categories have two or
# three, sentences of a knowledge base ten and more.
_MIN_WORDS = 4


class ToolUse(StrEnum):
    """What a tool's result is to the request, and how that is known."""

    NAMED = "named"  # passages, by the settings
    LIKELY = "likely"  # passages, by its name or its form
    OTHER = "other"  # something else


def tool_name(span: Span) -> str:
    """Return the name of a tool: that of an attribute, else the last word of the span's name."""
    values = (span.attributes.get(key) for key in _TOOL_NAMES)
    name = next((value for value in values if isinstance(value, str) and value), None)
    # GenAI conventions name the span "execute_tool search"
    return (name or span.name.rpartition(" ")[2])[:_MAX_NAME]


def classify_tool(
    span: Span, documents: Sequence[RetrievedDocument], settings: OtlpSettings
) -> ToolUse:
    """Return what a tool with a result that can be read as documents is."""
    names = {tool_name(span), span.name[:_MAX_NAME]}
    if _is_listed(names, settings.tool_names):
        return ToolUse.NAMED
    if _is_listed(names, settings.excluded_tools) or span.status == 2:
        return ToolUse.OTHER
    words = [word.lower() for word in _WORD.findall(tool_name(span))]
    searches, writes = _find_verbs(words)
    if searches or (not writes and _are_texts(documents)):
        return ToolUse.LIKELY
    return ToolUse.OTHER


def _is_listed(names: set[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _find_verbs(words: Sequence[str]) -> tuple[bool, bool]:
    """Return whether a name tells a retrieval, and whether it tells something else before that."""
    keys = value_keys()
    for n, word in enumerate(words):
        if word in keys.other_tools:
            return False, True
        if "_".join(words[n : n + 2]).startswith(keys.retrieval_tools):
            return True, False
    return False, False


def _are_texts(documents: Sequence[RetrievedDocument]) -> bool:
    """Return whether documents are a list of texts rather than one text, or a list of names."""
    texts = [document.text for document in documents if document.text]
    if not texts or (len(documents) == 1 and not documents[0].id):
        return False
    whole = all(document.gap is not ContentGap.ID_ONLY for document in documents)
    return whole and sum(len(text.split()) for text in texts) >= _MIN_WORDS * len(texts)
