"""Lists of retrieved documents: of objects, of JSON text, in columns, flattened. Nothing here
raises. What `document_forms` has is offered here too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.ingest.conventions.document_forms import document_in, gap_of, metadata_in, repr_in
from agent.ingest.conventions.flatten import items
from agent.ingest.conventions.reading import Document, Gap
from agent.ingest.conventions.values import (
    hidden,
    is_embedding,
    looks_like_json,
    number,
    open_json,
    text_of,
)

__all__ = [
    "MAX_DOCUMENTS",
    "document_in",
    "documents_in",
    "documents_of_tool",
    "flat_documents",
    "gap_of",
    "metadata_in",
]

MAX_DOCUMENTS = 1_000  # of one retrieval; the largest seen holds 100
LIST_KEYS = (
    "documents",
    "docs",
    "retrieved_documents",
    "source_documents",
    "source_nodes",
    "nodes",
    "passages",
    "chunks",
    "results",
    "matches",
    "hits",
    "points",
    "retrievalResults",
    "data",
    "output",
    "value",
    "context",
    "contexts",
    "result",
    "response",
)


def documents_in(value: Any, *, depth: int = 0) -> list[Document] | None:
    """The documents of a value: a list, an object around one, columns as Chroma gives them, or
    JSON text of such. None where it holds none: that is not the same as an empty list."""
    value = open_json(value)
    if depth > 6:
        return None
    if isinstance(value, dict):
        columns = _columns(value)
        if columns is not None:
            return columns
        for key in LIST_KEYS:
            inner = open_json(value.get(key))
            if isinstance(inner, (list, dict)) and not is_embedding(inner):
                found = documents_in(inner, depth=depth + 1)
                if found is not None:
                    return found
        one = document_in(value)
        return [one] if one is not None and (one.text or one.gap is not Gap.ID_ONLY) else None
    if isinstance(value, str):
        one = repr_in(value)
        return [one] if one is not None else None
    if not isinstance(value, list) or is_embedding(value):
        return None
    if len(value) == 1 and isinstance(value[0], list):
        return documents_in(value[0], depth=depth + 1)  # a batch of one query
    read = (document_in(item) for item in value[:MAX_DOCUMENTS])
    known = [one for one in read if one is not None]
    return known if known or not value else None


def documents_of_tool(value: Any) -> list[Document] | None:
    """What a tool gave back as documents: a list of them, else its one text. Whether they count is
    the user's word (`tool_names`)."""
    found = documents_in(value)
    if found:
        return found if any(one.text for one in found) else None
    text = open_json(value)
    if isinstance(text, dict):  # a message of LangChain, or the one field that a tool returns
        text = next((text[key] for key in _TOOL_TEXT if isinstance(text.get(key), str)), None)
    if not isinstance(text, str) or looks_like_json(text) or is_embedding(text):
        return None
    text = text_of(text)
    return [Document(text=text, gap=gap_of(text))] if text and not hidden(text) else None


_TOOL_TEXT = ("content", "result", "output", "text")


def _columns(value: Mapping[str, Any]) -> list[Document] | None:
    """Chroma's answer: lists side by side, one more list around each for a batch of queries."""
    columns: dict[str, list[Any]] = {}
    for name in ("ids", "documents", "distances", "metadatas", "scores"):
        column = value.get(name)
        if isinstance(column, list):
            if column and isinstance(column[0], list):
                column = column[0]
            columns[name] = column[:MAX_DOCUMENTS]
    if "ids" not in columns or not ({"documents", "distances", "metadatas"} & columns.keys()):
        return None
    out = []
    for n, identity in enumerate(columns["ids"]):
        row = {name: column[n] for name, column in columns.items() if n < len(column)}
        text = text_of(row.get("documents"))
        distance, score = number(row.get("distances")), number(row.get("scores"))
        out.append(
            Document(
                id=text_of(identity) or "",
                text=None if hidden(text) else text,
                score=score if distance is None else distance,
                score_kind=""
                if distance is None and score is None
                else "similarity"
                if distance is None
                else "distance",
                metadata=metadata_in(row.get("metadatas")),
                gap=gap_of(text),
            )
        )
    return out


def flat_documents(
    attributes: Mapping[str, Any], prefix: str
) -> tuple[list[Document] | None, bool]:
    """Documents at `prefix.N.document.content` and so on, and whether the first are missing."""
    found = items(attributes, prefix)
    if not found:
        return None, False
    out = []
    for _, item in found[:MAX_DOCUMENTS]:
        text = text_of(item.get("document.content"))
        if text is not None and is_embedding(text):
            text = None
        whole = repr_in(text) if text is not None else None
        score = number(item.get("document.score"))
        out.append(
            Document(
                id=text_of(item.get("document.id")) or (whole.id if whole else ""),
                text=None if hidden(text) else whole.text if whole else text,
                score=score,
                score_kind="similarity" if score is not None else "",
                metadata=metadata_in(item.get("document.metadata")),
                gap=whole.gap if whole else gap_of(text),
            )
        )
    return out, found[0][0] > 0
