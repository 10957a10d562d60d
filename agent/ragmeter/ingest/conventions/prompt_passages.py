"""Read the passages that stand in the prompt of a model call, where no span retrieves.

An application that searches by itself and has only its model calls traced shows them nowhere else.
Text is taken for passages only where its writer has parted it into documents: by tags, by numbers
below a label of context, or as a block of JSON below a heading that names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragmeter.ingest.conventions.documents import MAX_DOCUMENTS, read_document, read_documents
from ragmeter.ingest.conventions.joined_documents import split_joined_documents
from ragmeter.ingest.conventions.prompts import context_sections
from ragmeter.ingest.conventions.span_content import RetrievedDocument, has_texts
from ragmeter.ingest.conventions.streams import read_event_lines
from ragmeter.ingest.conventions.texts import read_message
from ragmeter.ingest.conventions.values import parse_nested_json
from ragmeter.ingest.spans import Span

_MIN_WORDS = 4  # of a document, on average
_MAX_TEXTS = 8  # of one call, the last ones
_MAX_PROMPT = 1_048_576  # characters of a prompt that are looked at
# ```json below "Document Chunks (Each entry has a reference_id ...):", as LightRAG writes it
_BLOCK = re.compile(
    r"^[^\n]{0,200}\b(?:chunks|documents|passages|sources|excerpts|articles|search results)\b"
    r"[^\n]{0,200}\n\s{0,8}```(?:json)?[ \t]*\n(?P<block>.*?)\n[ \t]*```",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
_TAG = re.compile(
    r"^[ \t]*<(?P<tag>document|source|passage|chunk|doc)\b[^>\n]{0,200}>", re.MULTILINE
)
_INSTRUCTIONS = "gen_ai.system_instructions"
# the bodies of requests, and the fields of these that hold instructions
_REQUESTS = ("input.value", "gen_ai.input.messages", "gen_ai.prompt", "ai.prompt")
_SYSTEM_KEYS = ("system", "instructions", "systemInstruction", "system_instruction")
_TEXT_KEYS = ("content", "text", "page_content", "chunk")


def read_prompt_documents(
    span: Span, messages: Sequence[Mapping[str, Any]]
) -> list[RetrievedDocument] | None:
    """Return the documents that stand in the instructions or messages of a call, the last first."""
    read = [read_message(message) for message in (*_instructions(span), *messages)]
    texts = [one.text for one in read if one and one.text and one.role in ("system", "user")]
    for text in reversed(texts[-_MAX_TEXTS:]):
        documents = _in_text(text[:_MAX_PROMPT])
        if documents is not None:
            return documents[:MAX_DOCUMENTS]
    return None


def _instructions(span: Span) -> Iterator[Mapping[str, Any]]:
    """Yield instructions that stand beside the messages, each as a message."""
    holders = [span.attributes, *(event.attributes for event in span.events)]
    given = [holder[_INSTRUCTIONS] for holder in holders if _INSTRUCTIONS in holder]
    for key in _REQUESTS:
        request = parse_nested_json(span.attributes.get(key))
        if isinstance(request, dict):
            given += [request[name] for name in _SYSTEM_KEYS if name in request]
    for one in map(parse_nested_json, given):
        yield (
            {**one, "role": "system"}
            if isinstance(one, dict)
            else {"role": "system", "content": one}
        )


def _in_text(text: str) -> list[RetrievedDocument] | None:
    for block in reversed([*_BLOCK.finditer(text)]):
        opened = parse_nested_json(block["block"])
        listed = read_event_lines(opened) if isinstance(opened, str) else opened
        held = listed if isinstance(listed, list) else [listed]
        if all(isinstance(one, dict) and any(key in one for key in _TEXT_KEYS) for one in held):
            return _worded(read_documents(held))
    tagged = _TAG.search(text)
    end = text.rfind(f"</{tagged['tag']}>") if tagged is not None else -1
    if tagged is not None and end > tagged.end():
        return _split(text[tagged.start() : end], least=1)
    sections = context_sections(text)
    return _split(sections[-1], least=2) if sections else None


def _split(text: str, *, least: int) -> list[RetrievedDocument] | None:
    joined = split_joined_documents(text) or ()
    documents = [read_document({"id": one.id, "text": _unquoted(one.text)}) for one in joined]
    found = [document for document in documents if document is not None]
    return _worded(found) if len(found) >= least else None


def _unquoted(text: str) -> str:
    """Return a text without the marks in which DSPy puts it: `[1] «...»`."""
    return text[1:-1] if text.startswith("«") and text.endswith("»") else text


def _worded(documents: list[RetrievedDocument] | None) -> list[RetrievedDocument] | None:
    if not documents or not has_texts(documents):
        return None
    words = sum(len((document.text or "").split()) for document in documents)
    return documents if words >= _MIN_WORDS * len(documents) else None
