"""Read the documents that stand in the request of a model call, beside its question.

Anthropic and Amazon take them as parts of a message (`document`, `search_result`), Cohere and
servers of open models as a list `documents` beside the messages. Their positions are what the
citations of the reply count, so a document without a text of its own keeps its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ragmeter.ingest.conventions.documents import MAX_DOCUMENTS, read_document
from ragmeter.ingest.conventions.span_content import RetrievedDocument, has_texts
from ragmeter.ingest.conventions.values import parse_nested_json, scalar_text
from ragmeter.ingest.spans import Span

PART_KINDS = ("document", "search_result")

# Attributes that hold the parameters of a request, and objects around them.
_REQUESTS = (
    "input.value",
    "llm.invocation_parameters",
    "traceloop.entity.input",
    "langfuse.observation.input",
    "langfuse.observation.model.parameters",
    "mlflow.spanInputs",
    "request_data",
)
_AROUND = ("kwargs", "input", "inputs", "body", "request", "extra_body")
_MAX_DEPTH = 3
# Fields of a document of Cohere's that are no text of it; all others are shown to the model.
_NO_TEXT = ("id", "title", "url", "source", "type")


def read_given_documents(
    span: Span, messages: list[Mapping[str, Any]]
) -> list[RetrievedDocument] | None:
    """Return the documents that a model call was given with its messages, None without a text."""
    found: list[RetrievedDocument] = []
    for message in messages:
        if message.get("role") != "tool":
            found += _documents(document_of_part(part) for part in _parts(message))
    if not found:
        requests = (span.attributes.get(key) for key in _REQUESTS)
        # parsing costs more than the look
        told = (one for one in requests if not isinstance(one, str) or "documents" in one)
        listed = next(filter(None, map(_listed, map(parse_nested_json, told))), [])
        found += _documents(map(_listed_document, listed))
    return found[:MAX_DOCUMENTS] if found and has_texts(found) else None


def _parts(message: Mapping[str, Any]) -> Iterator[Any]:
    for key in ("parts", "content"):
        parts = message.get(key)
        if isinstance(parts, list):
            yield from parts
            return


def _documents(values: Iterable[Any]) -> list[RetrievedDocument]:
    read = (read_document(value) for value in values if value is not None)
    return [document for document in read if document is not None]


def open_document_parts(value: Any) -> Any:
    """Return a list of parts that are all documents as documents, any other value as it is."""
    if isinstance(value, list) and value:
        documents = [document_of_part(part) for part in value]
        if all(document is not None for document in documents):
            return documents
    return value


def document_of_part(part: Any) -> dict[str, Any] | str | None:
    """Return the document that a part of a message is, None for any other part."""
    if not isinstance(part, dict):
        return None
    if part.get("type") in PART_KINDS and not part.keys() & {"source", "document"}:
        written = parse_nested_json(part.get("text"))  # OpenInference writes a part as its text
        part = written if isinstance(written, dict) else part
    result = part.get("searchResult")  # of Amazon, where the key is the type
    held = part.get("document")
    kind = part.get("type")
    if isinstance(result, dict):
        return _search_result(result)
    if isinstance(held, dict) and kind in (None, "document"):
        return _with_source(held) if "source" in held else _listed_document(held)
    if kind == "search_result":
        return _search_result(part)
    return _with_source(part) if kind == "document" else None


def _search_result(block: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "text": _joined(block.get("content")),
        "source": block.get("source"),
        "title": block.get("title"),
    }


def _with_source(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a document whose content is in its source: text, parts, or a file without a text."""
    source = block.get("source")
    if not isinstance(source, dict):
        return None
    title = block.get("title") or block.get("name")
    text = source.get("data") if source.get("type") == "text" else source.get("text")
    return {
        "text": text if isinstance(text, str) else _joined(source.get("content")),
        "file_id": source.get("file_id"),
        "url": source.get("url"),
        "title": title,
        "metadata": {"title": title} if isinstance(title, str) else {},
    }


def _joined(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str)) or None


def _listed(value: Any, depth: int = 0) -> list[Any] | None:
    """Return the list `documents` of a request, or of an object around it."""
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return None
    documents = parse_nested_json(value.get("documents"))
    if isinstance(documents, list) and all(isinstance(one, str | dict) for one in documents):
        return documents
    inside = (_listed(parse_nested_json(value[key]), depth + 1) for key in _AROUND if key in value)
    return next(filter(None, inside), None)


def _listed_document(value: dict[str, Any] | str) -> dict[str, Any] | str:
    """Open `data`, in which Cohere's documents have their fields, and join those of no known name.

    All fields are shown to the model.
    """
    if isinstance(value, str):
        return value
    data = parse_nested_json(value.get("data"))
    if isinstance(data, str):
        return {**value, "text": data}
    fields = {**value, **data} if isinstance(data, dict) else value
    document = read_document(fields)
    if document is None or document.text is None:
        texts = [
            text
            for key, one in fields.items()
            if key not in _NO_TEXT and not key.startswith("_") and (text := scalar_text(one))
        ]
        return {**fields, "text": "\n".join(texts)}
    return fields
