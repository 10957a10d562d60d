"""One retrieved document in the forms that frameworks write it: objects, nodes, reprs.

Text that is known to be cut, hidden or only the text form of an object is marked with a `Gap` in
place of being taken for a passage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent.ingest.conventions.reading import Document, Gap
from agent.ingest.conventions.reprs import QUOTED, unquote
from agent.ingest.conventions.values import (
    cut_off,
    hidden,
    is_embedding,
    number,
    open_json,
    text_of,
)

__all__ = ["document_in", "gap_of", "metadata_in", "repr_in"]

MAX_METADATA = 32  # keys of one document
MAX_METADATA_TEXT = 512  # characters of one value

TEXT_KEYS = (
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
ID_KEYS = ("document.id", "id", "id_", "_id", "node_id", "pid", "chunk_id", "uuid", "doc_id", "key")
# ids that name where a text is from: several chunks may share one
SOURCE_KEYS = ("doc_uri", "source", "href", "url", "uri", "file_path", "title")
SCORE_KEYS = (
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
INNER_KEYS = ("node", "document", "chunk", "payload", "_source", "properties", "entity")
METADATA_KEYS = ("document.metadata", "metadata", "meta", "extra_info", "payload", "_source")


def metadata_in(value: Any) -> dict[str, Any]:
    """The scalars of a document's metadata, bounded; it may be JSON text."""
    value = open_json(value)
    out: dict[str, Any] = {}
    if isinstance(value, dict):
        for key, item in value.items():
            if len(out) == MAX_METADATA:
                break
            if isinstance(item, str):
                out[str(key)[:MAX_METADATA_TEXT]] = item[:MAX_METADATA_TEXT]
            elif isinstance(item, bool) or (number(item) is not None):
                out[str(key)[:MAX_METADATA_TEXT]] = item
    return out


def gap_of(text: str | None) -> Gap | None:
    """What is wrong with a document's text."""
    if text is None:
        return Gap.ID_ONLY
    if hidden(text):
        return Gap.HIDDEN
    return Gap.PASSAGES_TRUNCATED if cut_off(text) else None


def document_in(value: Any) -> Document | None:
    """One document, None for what is none (numbers, vectors, empty objects have no text and no id:
    an object that says nothing is still one, with the gap `passages_id_only`)."""
    value = open_json(value)
    if isinstance(value, str):
        one = repr_in(value)
        if one is not None:
            return one
        text = text_of(value)
        if text is None or is_embedding(text):
            return None
        return Document(text=None if hidden(text) else text, gap=gap_of(text))
    if isinstance(value, list):
        # (document, score), as similarity_search_with_score gives
        if len(value) == 2 and number(value[1]) is not None and isinstance(value[0], (dict, str)):
            one = document_in(value[0])
            if one is not None and one.score is None:
                one.score = number(value[1])
            return one
        return None
    if not isinstance(value, dict):
        return None
    return _from_mapping(value)


def _from_mapping(value: Mapping[str, Any]) -> Document:
    kwargs = value.get("kwargs")
    if isinstance(kwargs, dict) and isinstance(value.get("id"), list):  # LangChain's dumps
        value = kwargs
    layers: list[Mapping[str, Any]] = [value]
    for key in INNER_KEYS:
        if key in value:
            inner = open_json(value[key])
            if isinstance(inner, dict):
                layers.append(inner)
    metadata: dict[str, Any] = {}
    raw: list[Mapping[str, Any]] = []
    for layer in layers:
        for key in METADATA_KEYS:
            inner = open_json(layer[key]) if key in layer else None
            if isinstance(inner, dict):
                raw.append(inner)
                if not metadata:
                    metadata = metadata_in(inner)
    text = _text([*layers, *raw])
    if text is None:
        for inner in raw:  # LlamaIndex keeps its node as JSON in the metadata of a vector store
            node = open_json(inner.get("_node_content"))
            if isinstance(node, dict):
                text = _text([node])
    score, kind = _score(layers)
    metadata.pop("_node_content", None)
    return Document(
        id=_id(layers, raw),
        text=None if hidden(text) else text,
        score=score,
        score_kind=kind,
        metadata=metadata,
        gap=gap_of(text),
    )


def _text(layers: list[Mapping[str, Any]]) -> str | None:
    for layer in layers:
        for key in TEXT_KEYS:
            if key not in layer:
                continue
            inner = layer[key]
            if isinstance(inner, dict):  # Bedrock: {"content": {"text": ...}}
                inner = inner.get("text")
            if isinstance(inner, str) and inner.strip() and not is_embedding(inner):
                one = repr_in(inner)
                if one is not None:
                    return one.text
                return inner
        resource = layer.get("text_resource")
        if isinstance(resource, dict) and text_of(resource.get("text")):
            return text_of(resource.get("text"))
    return None


def _id(layers: list[Mapping[str, Any]], raw: list[Mapping[str, Any]]) -> str:
    for group, keys in (
        (layers, ID_KEYS),
        (raw, ("chunk_id", "id", "doc_id", "_id", "doc_uri")),
        (layers, SOURCE_KEYS),
        (raw, SOURCE_KEYS),
    ):
        for layer in group:
            for key in keys:
                found = text_of(layer[key]) if key in layer else None
                if found:
                    return found
    return ""


def _score(layers: list[Mapping[str, Any]]) -> tuple[float | None, str]:
    for layer in layers:
        for key, kind in SCORE_KEYS:
            found = number(layer[key]) if key in layer else None
            if found is not None:
                return found, kind
    return None, ""


_PAGE_CONTENT = re.compile(rf"(?:^|[\s(,])page_content={QUOTED}", re.DOTALL)
_REPR_ID = re.compile(r"\bid_?=(?:'([^']{1,512})'|\"([^\"]{1,512})\"|([0-9a-fA-F-]{8,64})\b)")
_CUT_REPR = re.compile(r"\s*<?(?:Document|NodeWithScore|TextNode|ScoredPoint|Node)\b\s*[(:{]")
_CUT_PAGE_CONTENT = re.compile(r"\s*(?:Document\(.{0,2000})?page_content=['\"]", re.DOTALL)


def repr_in(text: str) -> Document | None:
    """The text form of a framework's document object, None for ordinary text. LangChain's holds
    the whole text; the others' are cut or mixed with other fields and are never used as text."""
    head = text[:64]
    if "page_content=" not in text[:4096] and not _CUT_REPR.match(head):
        return None
    whole = _PAGE_CONTENT.search(text)
    found = _REPR_ID.search(text[:4096])
    identity = next((group for group in found.groups() if group), "") if found else ""
    if whole is not None and (whole.start() == 0 or _CUT_REPR.match(head)):
        content = unquote(whole[1])
        return Document(id=identity, text=content or None, gap=gap_of(content or None))
    if _CUT_REPR.match(head) or _CUT_PAGE_CONTENT.match(text):
        return Document(id=identity, gap=Gap.PASSAGES_TRUNCATED)
    return None
