"""Put together an answer that was traced as the pieces in which it was streamed.

Tracers record a function that yields as the list of what it yielded: chunks of an API, deltas,
messages of LangChain, plain texts; proxies record server-sent events as they came.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ragmeter.ingest.conventions.values import parse_nested_json

_MAX_CHUNKS = 50_000  # of one answer
_MIN_PIECES = 3  # plain texts; two may be two answers
_MAX_PIECE = 40  # characters of a plain text on average; longer ones are texts of their own
_MAX_SIGNS = 4  # characters of a piece of writing without blanks
# Events of the APIs that stream, by the key that names them; all others of an API hold no text.
_EVENTS = (
    "message_",
    "content_block_",
    "response.",
    "ping",
    "error",
    "text-",
    "reasoning-",
    "tool-",
)
_OTHER_EVENTS = frozenset(("start", "finish", "start-step", "finish-step", "step-start", "done"))
_BEDROCK = ("contentBlockDelta", "contentBlockStart", "contentBlockStop", "messageStart",
            "messageStop", "metadata")  # fmt: skip
_PLAIN_KEYS = ("content", "text", "token", "chunk", "delta", "output", "answer", "response")
_BESIDE = frozenset((*_PLAIN_KEYS, "index", "id", "finish_reason", "done", "model", "created_at"))


def join_stream(value: Sequence[Any]) -> str | None:
    """Return the text of a list of chunks, None for a list of anything else."""
    if len(value) < 2 or len(value) > _MAX_CHUNKS:
        return None
    texts = [item for item in value if isinstance(item, str)]
    if len(texts) == len(value) and not texts[0].lstrip().startswith("{"):
        return "".join(texts) if _is_streamed(texts) else None
    items = [parse_nested_json(item) for item in value]
    pieces = [_chunk_text(item) if isinstance(item, dict) else None for item in items]
    if all(piece is not None for piece in pieces) and any(pieces):
        return "".join(piece or "" for piece in pieces)
    plain = [_plain_text(item) if isinstance(item, dict) else None for item in items]
    texts = [text for text in plain if text is not None]
    return "".join(texts) if len(texts) == len(items) and _is_streamed(texts) else None


def read_event_lines(text: str) -> list[Any] | None:
    """Return the data of server-sent events, or of JSON lines; None for any other text."""
    head = text.lstrip()[:8]
    if not head.startswith(("data:", "event:", "id:", ":", "{")):
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if head.startswith("{"):
        if len(lines) < 2 or not all(line.startswith("{") for line in lines):
            return None
        data = lines
    else:
        if not all(line.startswith(("data:", "event:", "id:", "retry:", ":")) for line in lines):
            return None
        data = [line[5:].strip() for line in lines if line.startswith("data:")]
        data = [line for line in data if line and line != "[DONE]"]
    try:
        return [json.loads(line) for line in data[:_MAX_CHUNKS]]
    except (ValueError, RecursionError):
        return None


def _chunk_text(chunk: Mapping[str, Any]) -> str | None:
    """Return the text of one chunk, "" for one without, None for what is no chunk."""
    choices = chunk.get("choices")
    if isinstance(choices, list):
        first = next((one for one in choices if isinstance(one, dict)), None)
        if first is None:
            return ""
        if first.get("index") not in (None, 0):  # a further choice
            return ""
        if "delta" in first:
            return _delta_text(first["delta"])
        is_chunk = str(chunk.get("object", "")).endswith(("chunk", "text_completion"))
        return first["text"] if is_chunk and isinstance(first.get("text"), str) else None
    kind = chunk.get("type")
    if kind == "AIMessageChunk" or _is_message_chunk(chunk):
        inner = chunk.get("kwargs") if isinstance(chunk.get("kwargs"), dict) else chunk
        return _delta_text(inner)
    if isinstance(kind, str) and (kind.startswith(_EVENTS) or kind in _OTHER_EVENTS):
        if kind.startswith(("content_block_", "message_")):
            block = chunk.get("delta") or chunk.get("content_block")
            return _text_block(block)
        if kind in ("response.output_text.delta", "response.refusal.delta", "text-delta", "text"):
            texts = (chunk.get(key) for key in ("delta", "textDelta", "text"))
            return next((text for text in texts if isinstance(text, str)), "")
        return ""
    for key in _BEDROCK:
        if key in chunk and len(chunk) == 1:
            inner = chunk[key]
            delta = inner.get("delta") if isinstance(inner, dict) else None
            return _text_block(delta) if isinstance(delta, dict) else ""
    if "delta" in chunk:
        return _delta_text(chunk["delta"])
    if isinstance(chunk.get("done"), bool):  # Ollama
        message = chunk.get("message")
        return _delta_text(message if isinstance(message, dict) else chunk.get("response", ""))
    candidates = chunk.get("candidates")
    if isinstance(candidates, list):  # Gemini
        first = candidates[0] if candidates and isinstance(candidates[0], dict) else {}
        content = first.get("content")
        return _delta_text(content.get("parts")) if isinstance(content, dict) else ""
    if chunk.keys() <= {"usage", "id", "object", "model", "created"} and "usage" in chunk:
        return ""
    return None


def _is_message_chunk(chunk: Mapping[str, Any]) -> bool:
    names = chunk.get("id")
    return isinstance(names, list) and bool(names) and names[-1] == "AIMessageChunk"


def _text_block(block: Any) -> str:
    if not isinstance(block, dict) or "thinking" in str(block.get("type")):
        return ""
    text = block.get("text")
    return text if isinstance(text, str) else ""


def _delta_text(delta: Any) -> str:
    """Return the text of a delta: text, an object with content, or parts that are no thoughts."""
    if isinstance(delta, str):
        return delta
    if isinstance(delta, dict):
        if delta.get("thought") is True or str(delta.get("type")) in ("reasoning", "thinking"):
            return ""
        content = delta.get("content")
        content = content if content is not None else delta.get("text")
        return _delta_text(content if content is not None else delta.get("refusal"))
    if isinstance(delta, list):
        return "".join(_delta_text(part) for part in delta)
    return ""


def _plain_text(item: Mapping[str, Any]) -> str | None:
    """Return the text of an object that holds little else."""
    if not item.keys() <= _BESIDE:
        return None
    return next((item[key] for key in _PLAIN_KEYS if isinstance(item.get(key), str)), None)


def _is_streamed(pieces: Sequence[str]) -> bool:
    """Return whether texts are the pieces of one: short, and parted at blanks as tokens are."""
    whole = [piece for piece in pieces if piece]
    if len(whole) < _MIN_PIECES or sum(map(len, whole)) > _MAX_PIECE * len(whole):
        return False
    if sum(map(len, whole)) <= _MAX_SIGNS * len(whole):
        return True
    parted = sum(one[-1].isspace() or two[0].isspace() for one, two in pairwise(whole))
    return parted * 2 >= len(whole) - 1
