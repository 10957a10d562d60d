"""Read retrieved documents in the forms that frameworks write: objects, reprs, lists, columns, flattened attributes.

One retrieved document in the forms that frameworks write it: objects, nodes, reprs.

Text that is known to be cut, hidden or only the text form of an object is marked with a `Gap` in
place of being taken for a passage.

Lists of retrieved documents: of objects, of JSON text, in columns, flattened. Nothing here
raises. What `document_forms` has is offered here too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragmeter.ingest.conventions.span_content import ContentGap, RetrievedDocument
from ragmeter.ingest.conventions.values import (
    QUOTED,
    flattened_items,
    is_embedding,
    is_hidden,
    is_truncated,
    looks_like_json,
    parse_nested_json,
    parse_number,
    scalar_text,
    unquote_repr,
)

_MAX_METADATA = 32  # keys of one document
_MAX_METADATA_TEXT = 512  # characters of one value

_TEXT_KEYS = (
    "document.content",
    "page_content",
    "pageContent",
    "content",
    "text",
    "body",
    "snippet",
    "chunk",
    "chunk_text",
    "passage",
    "long_text",
    "retrieved_text",
    "document",
)
_ID_KEYS = (
    "document.id",
    "id",
    "id_",
    "_id",
    "node_id",
    "pid",
    "chunk_id",
    "uuid",
    "doc_id",
    "key",
)
# ids that name where a text is from: several chunks may share one
_SOURCE_KEYS = ("doc_uri", "source", "href", "url", "uri", "file_path", "title")
_SCORE_KEYS = (
    ("document.score", "similarity"),
    ("score", "similarity"),
    ("_score", "similarity"),
    ("@search.score", "similarity"),
    ("similarity", "similarity"),
    ("similarity_score", "similarity"),
    ("relevance_score", "similarity"),
    ("distance", "distance"),
    ("_distance", "distance"),
)
_INNER_KEYS = ("node", "document", "chunk", "payload", "_source", "properties", "entity")
_METADATA_KEYS = ("document.metadata", "metadata", "meta", "extra_info", "payload", "_source")


def read_metadata(value: Any) -> dict[str, Any]:
    """The scalars of a document's metadata, bounded; it may be JSON text."""
    value = parse_nested_json(value)
    out: dict[str, Any] = {}
    if isinstance(value, dict):
        for key, item in value.items():
            if len(out) == _MAX_METADATA:
                break
            if isinstance(item, str):
                out[str(key)[:_MAX_METADATA_TEXT]] = item[:_MAX_METADATA_TEXT]
            elif isinstance(item, bool) or (parse_number(item) is not None):
                out[str(key)[:_MAX_METADATA_TEXT]] = item
    return out


def _document_gap(text: str | None) -> ContentGap | None:
    """What is wrong with a document's text."""
    if text is None:
        return ContentGap.ID_ONLY
    if is_hidden(text):
        return ContentGap.HIDDEN
    return ContentGap.PASSAGES_TRUNCATED if is_truncated(text) else None


def read_document(value: Any) -> RetrievedDocument | None:
    """One document, None for what is none (numbers, vectors, empty objects have no text and no id:
    an object that says nothing is still one, with the gap `passages_id_only`)."""
    value = parse_nested_json(value)
    if isinstance(value, str):
        one = read_document_repr(value)
        if one is not None:
            return one
        text = scalar_text(value)
        if text is None or is_embedding(text):
            return None
        return RetrievedDocument(text=None if is_hidden(text) else text, gap=_document_gap(text))
    if isinstance(value, list):
        # (document, score), as similarity_search_with_score gives
        if (
            len(value) == 2
            and parse_number(value[1]) is not None
            and isinstance(value[0], (dict, str))
        ):
            one = read_document(value[0])
            if one is not None and one.score is None:
                one.score = parse_number(value[1])
            return one
        return None
    if not isinstance(value, dict):
        return None
    return _from_mapping(value)


def _from_mapping(value: Mapping[str, Any]) -> RetrievedDocument:
    kwargs = value.get("kwargs")
    if isinstance(kwargs, dict) and isinstance(value.get("id"), list):  # LangChain's dumps
        value = kwargs
    layers: list[Mapping[str, Any]] = [value]
    for key in _INNER_KEYS:
        if key in value:
            inner = parse_nested_json(value[key])
            if isinstance(inner, dict):
                layers.append(inner)
    metadata: dict[str, Any] = {}
    raw: list[Mapping[str, Any]] = []
    for layer in layers:
        for key in _METADATA_KEYS:
            inner = parse_nested_json(layer[key]) if key in layer else None
            if isinstance(inner, dict):
                raw.append(inner)
                if not metadata:
                    metadata = read_metadata(inner)
    text = _text([*layers, *raw])
    if text is None:
        for inner in raw:  # LlamaIndex keeps its node as JSON in the metadata of a vector store
            node = parse_nested_json(inner.get("_node_content"))
            if isinstance(node, dict):
                text = _text([node])
    score, kind = _score(layers)
    metadata.pop("_node_content", None)
    return RetrievedDocument(
        id=_id(layers, raw),
        text=None if is_hidden(text) else text,
        score=score,
        score_kind=kind,
        metadata=metadata,
        gap=_document_gap(text),
    )


def _text(layers: list[Mapping[str, Any]]) -> str | None:
    for layer in layers:
        for key in _TEXT_KEYS:
            if key not in layer:
                continue
            inner = layer[key]
            if isinstance(inner, dict):  # Bedrock: {"content": {"text": ...}}
                inner = inner.get("text")
            if isinstance(inner, str) and inner.strip() and not is_embedding(inner):
                one = read_document_repr(inner)
                if one is not None:
                    return one.text
                return inner
        resource = layer.get("text_resource")
        if isinstance(resource, dict) and scalar_text(resource.get("text")):
            return scalar_text(resource.get("text"))
    return None


def _id(layers: list[Mapping[str, Any]], raw: list[Mapping[str, Any]]) -> str:
    for group, keys in (
        (layers, _ID_KEYS),
        (raw, ("chunk_id", "id", "doc_id", "_id", "doc_uri")),
        (layers, _SOURCE_KEYS),
        (raw, _SOURCE_KEYS),
    ):
        for layer in group:
            for key in keys:
                found = scalar_text(layer[key]) if key in layer else None
                if found:
                    return found
    return ""


def _score(layers: list[Mapping[str, Any]]) -> tuple[float | None, str]:
    for layer in layers:
        for key, kind in _SCORE_KEYS:
            found = parse_number(layer[key]) if key in layer else None
            if found is not None:
                return found, kind
    return None, ""


_PAGE_CONTENT = re.compile(rf"(?:^|[\s(,])page_content={QUOTED}", re.DOTALL)
_REPR_ID = re.compile(r"\bid_?=(?:'([^']{1,512})'|\"([^\"]{1,512})\"|([0-9a-fA-F-]{8,64})\b)")
_CUT_REPR = re.compile(r"\s*<?(?:Document|NodeWithScore|TextNode|ScoredPoint|Node)\b\s*[(:{]")
_CUT_PAGE_CONTENT = re.compile(r"\s*(?:Document\(.{0,2000})?page_content=['\"]", re.DOTALL)


def read_document_repr(text: str) -> RetrievedDocument | None:
    """The text form of a framework's document object, None for ordinary text. LangChain's holds
    the whole text; the others' are cut or mixed with other fields and are never used as text."""
    head = text[:64]
    if "page_content=" not in text[:4096] and not _CUT_REPR.match(head):
        return None
    whole = _PAGE_CONTENT.search(text)
    found = _REPR_ID.search(text[:4096])
    identity = next((group for group in found.groups() if group), "") if found else ""
    if whole is not None and (whole.start() == 0 or _CUT_REPR.match(head)):
        content = unquote_repr(whole[1])
        return RetrievedDocument(
            id=identity, text=content or None, gap=_document_gap(content or None)
        )
    if _CUT_REPR.match(head) or _CUT_PAGE_CONTENT.match(text):
        return RetrievedDocument(id=identity, gap=ContentGap.PASSAGES_TRUNCATED)
    return None


MAX_DOCUMENTS = 1_000  # of one retrieval; the largest seen holds 100
_LIST_KEYS = (
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


def read_documents(value: Any, *, depth: int = 0) -> list[RetrievedDocument] | None:
    """The documents of a value: a list, an object around one, columns as Chroma gives them, or
    JSON text of such. None where it holds none: that is not the same as an empty list."""
    value = parse_nested_json(value)
    if depth > 6:
        return None
    if isinstance(value, dict):
        columns = _columns(value)
        if columns is not None:
            return columns
        for key in _LIST_KEYS:
            inner = parse_nested_json(value.get(key))
            if isinstance(inner, (list, dict)) and not is_embedding(inner):
                found = read_documents(inner, depth=depth + 1)
                if found is not None:
                    return found
        one = read_document(value)
        return (
            [one] if one is not None and (one.text or one.gap is not ContentGap.ID_ONLY) else None
        )
    if isinstance(value, str):
        one = read_document_repr(value)
        return [one] if one is not None else None
    if not isinstance(value, list) or is_embedding(value):
        return None
    if len(value) == 1 and isinstance(value[0], list):
        return read_documents(value[0], depth=depth + 1)  # a batch of one query
    read = (read_document(item) for item in value[:MAX_DOCUMENTS])
    known = [one for one in read if one is not None]
    return known if known or not value else None


def read_tool_documents(value: Any) -> list[RetrievedDocument] | None:
    """What a tool gave back as documents: a list of them, else its one text. Whether they count is
    the user's word (`tool_names`)."""
    found = read_documents(value)
    if found:
        return found if any(one.text for one in found) else None
    text = parse_nested_json(value)
    if isinstance(text, dict):  # a message of LangChain, or the one field that a tool returns
        text = next((text[key] for key in _TOOL_TEXT if isinstance(text.get(key), str)), None)
    if not isinstance(text, str) or looks_like_json(text) or is_embedding(text):
        return None
    text = scalar_text(text)
    return (
        [RetrievedDocument(text=text, gap=_document_gap(text))]
        if text and not is_hidden(text)
        else None
    )


_TOOL_TEXT = ("content", "result", "output", "text")


def _columns(value: Mapping[str, Any]) -> list[RetrievedDocument] | None:
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
        text = scalar_text(row.get("documents"))
        distance, score = parse_number(row.get("distances")), parse_number(row.get("scores"))
        out.append(
            RetrievedDocument(
                id=scalar_text(identity) or "",
                text=None if is_hidden(text) else text,
                score=score if distance is None else distance,
                score_kind=""
                if distance is None and score is None
                else "similarity"
                if distance is None
                else "distance",
                metadata=read_metadata(row.get("metadatas")),
                gap=_document_gap(text),
            )
        )
    return out


def read_flattened_documents(
    attributes: Mapping[str, Any], prefix: str
) -> tuple[list[RetrievedDocument] | None, bool]:
    """Documents at `prefix.N.document.content` and so on, and whether the first are missing."""
    found = flattened_items(attributes, prefix)
    if not found:
        return None, False
    out = []
    for _, item in found[:MAX_DOCUMENTS]:
        text = scalar_text(item.get("document.content"))
        if text is not None and is_embedding(text):
            text = None
        whole = read_document_repr(text) if text is not None else None
        score = parse_number(item.get("document.score"))
        out.append(
            RetrievedDocument(
                id=scalar_text(item.get("document.id")) or (whole.id if whole else ""),
                text=None if is_hidden(text) else whole.text if whole else text,
                score=score,
                score_kind="similarity" if score is not None else "",
                metadata=read_metadata(item.get("document.metadata")),
                gap=whole.gap if whole else _document_gap(text),
            )
        )
    return out, found[0][0] > 0
