"""Read the citations that providers put beside the text of a reply.

Anthropic has them at blocks of text, OpenAI as annotations, Google as supports of its grounding,
Cohere beside the message, Amazon beside a generated part, Mistral as parts of their own. They stand
in the body of the reply that an instrumentor has kept. Each names its sources in its own way (a
position, an address, a file, a title, the cited words): `CitedSource` has all of these, and what it
names is found among the passages when the trace is scored. Positions count in the text beside which
they stand, which is looked for in the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragmeter.answers.cited_sources import read_nested_source, read_place, read_sources
from ragmeter.answers.json_answers import read_json_answer
from ragmeter.ingest.conventions.reply_facts import reply_bodies
from ragmeter.ingest.conventions.values import parse_count, parse_nested_json, scalar_text
from ragmeter.ingest.spans import Span
from ragmeter.trace import json_citations

_MAX_FOUND = 1_000  # citations of one reply
_MAX_NODES = 2_000  # of a body
_MAX_DEPTH = 12
_LISTS = ("citations", "annotations")
_TEXTS = ("text", "content", "answer", "response", "output_text", "value", "message")
# attributes that hold the text of a reply, which may be JSON with sources of its own
_REPLIES = (
    "output.value",
    "llm.output_messages.0.message.content",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments",
    "gen_ai.completion.0.content",
    "gen_ai.completion.0.tool_calls.0.arguments",
    "ai.response.text",
    "ai.response.object",
)


@dataclass(slots=True)
class _Given:
    """A citation of `text[start:end]`, or of all of it; without a text, of the whole reply."""

    text: str = ""
    start: int | None = None
    end: int | None = None
    sources: list[dict[str, Any]] = field(default_factory=list)


def read_reply_citations(span: Span, answer: str) -> list[dict[str, Any]]:
    """Return the citations of a reply as fields of `Citation`, placed in the answer."""
    bodies = list(reply_bodies(span))
    for event in span.events:
        bodies.append({key: parse_nested_json(value) for key, value in event.attributes.items()})
    for body in bodies:
        found = [given for given in _citations_in(body) if given.sources][:_MAX_FOUND]
        if found:
            return _placed(found, answer)
    for key in _REPLIES:
        text = span.attributes.get(key)
        if isinstance(text, str) and read_json_answer(text) is not None:
            cited = json_citations(text, answer)
            if cited:
                return [one.model_dump(exclude_none=True) for one in cited]
    return []


def _placed(found: list[_Given], answer: str) -> list[dict[str, Any]]:
    placed = []
    done = 0
    for given in found:
        place = _place(given, answer, done)
        if place is not None:
            done = place[1] if given.start is None else done
        citation: dict[str, Any] = {"sources": given.sources}
        if place is not None:
            citation |= {"start": place[0], "end": place[1]}
        if citation not in placed:
            placed.append(citation)
    return placed


def _place(given: _Given, answer: str, done: int) -> tuple[int, int] | None:
    """Return where the cited part of a reply is in the answer, behind earlier ones if it can be."""
    if not given.text.strip():
        return None
    start = 0 if given.start is None else min(given.start, len(given.text))
    end = len(given.text) if given.end is None else min(given.end, len(given.text))
    if start >= end:
        return None
    at = -1
    if given.start is not None:  # the whole text, in which the part has its place
        at = answer.find(given.text)
        if at >= 0:
            return at + start, at + end
        if given.text.startswith(answer[:200]) and end <= len(answer):
            return start, end
    part = given.text[start:end].strip()
    at = answer.find(part, done)
    at = answer.find(part) if at < 0 else at
    return (at, at + len(part)) if at >= 0 and part else None


def _citations_in(value: Any) -> Iterator[_Given]:
    """Yield the citations of a body, in the order of its texts."""
    left = _MAX_NODES

    def search(node: Any, depth: int, key: str) -> Iterator[_Given]:
        nonlocal left
        left -= 1
        if depth > _MAX_DEPTH or left < 0:
            return
        if isinstance(node, list):
            if any(isinstance(one, dict) and one.get("type") == "reference" for one in node):
                yield from _references(node)
            for one in node:
                if isinstance(one, dict | list):
                    yield from search(one, depth + 1, key)
            return
        if not isinstance(node, dict):
            return
        yield from _grounding(node)
        yield from _generated(node)
        content = node.get("citationsContent")
        if isinstance(content, dict):
            text = _text_of(content)
            for one in _objects(content.get("citations")):
                yield _Given(text, sources=[read_nested_source(one)])
            return
        # what Azure has retrieved is called so; the markers in the text tell what it cites
        for name in _LISTS if key != "context" else ():
            listed = node.get(name)
            if not isinstance(listed, list):
                continue
            if any("generatedResponsePart" in one for one in _objects(listed)):
                yield from search(listed, depth + 1, name)
                continue
            text = _text_of(node)
            for one in listed[:_MAX_FOUND]:
                yield _read_item(one, text)
        for name, one in node.items():
            if isinstance(one, dict | list) and name not in _LISTS:
                yield from search(one, depth + 1, name)

    yield from search(value, 0, "")


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text_of(node: Mapping[str, Any]) -> str:
    """Return the text beside which a list of citations stands."""
    for key in _TEXTS:
        value = node.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, dict) and (text := _text_of(value)):
            return text
        if isinstance(value, list):
            texts = [
                one if isinstance(one, str) else one.get("text")
                for one in value
                if isinstance(one, str | dict)
            ]
            if joined := "".join(text for text in texts if isinstance(text, str)):
                return joined
    return ""


def _read_item(item: Any, text: str) -> _Given:
    """Read one citation of a list: an address, a number, or an object of any provider."""
    if isinstance(item, str | int) and not isinstance(item, bool):
        name = scalar_text(item)
        return _Given(sources=[{"id": name}] if name else [])
    if not isinstance(item, dict):
        return _Given()
    start, end = read_place(item)
    return _Given(text, start, end, read_sources(item))


def _grounding(node: Mapping[str, Any]) -> Iterator[_Given]:
    """Yield the supports of Google's grounding, whose positions are bytes."""
    supports = node.get("groundingSupports") or node.get("grounding_supports")
    chunks = node.get("groundingChunks") or node.get("grounding_chunks")
    if not isinstance(supports, list) or not isinstance(chunks, list):
        return
    sources = [read_nested_source(chunk) if isinstance(chunk, dict) else {} for chunk in chunks]
    for support in _objects(supports):
        segment = support.get("segment")
        segment = segment if isinstance(segment, dict) else {}
        numbers = support.get("groundingChunkIndices") or support.get("grounding_chunk_indices")
        named = [
            sources[n]
            for one in (numbers if isinstance(numbers, list) else [])
            if (n := parse_count(one)) is not None and n < len(sources) and sources[n]
        ]
        yield _Given(scalar_text(segment.get("text")) or "", sources=named)


def _generated(node: Mapping[str, Any]) -> Iterator[_Given]:
    """Yield one citation of Bedrock's knowledge bases."""
    generated = node.get("generatedResponsePart")
    references = node.get("retrievedReferences")
    if not isinstance(generated, dict) or not isinstance(references, list):
        return
    part = generated.get("textResponsePart")
    text = scalar_text(part.get("text")) if isinstance(part, dict) else None
    yield _Given(
        text or "", sources=[one for one in map(read_nested_source, _objects(references)) if one]
    )


def _references(parts: list[Any]) -> Iterator[_Given]:
    """Yield the references of Mistral, each behind the text that it belongs to."""
    text = ""
    for part in parts:
        if not isinstance(part, dict):
            continue
        if part.get("type") == "reference":
            ids = part.get("reference_ids") or part.get("referenceIds")
            sources: list[dict[str, Any]] = [
                {"index": one} if isinstance(one, int) else {"id": one}  # numbers from 0
                for one in (ids if isinstance(ids, list) else [])
                if isinstance(one, str | int) and not isinstance(one, bool)
            ]
            yield _Given(text, sources=sources)
        elif isinstance(part.get("text"), str):
            text = part["text"].lstrip(" .,;:!?")  # what ends the sentence before it
