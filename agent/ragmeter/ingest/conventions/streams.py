"""Put together an answer that was traced as the pieces in which it was streamed.

Tracers record a function that yields as the list of what it yielded: chunks of an API, deltas,
messages of LangChain, plain texts; proxies record server-sent events as they came. Events that no
rule here names are told by their form: of those of one kind, one field holds piece after piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from ragmeter.ingest.conventions.values import key_set, parse_nested_json, role_names

_MAX_CHUNKS = 50_000  # of one answer
_MIN_PIECES = 3  # plain texts; two may be two answers
_MAX_PIECE = 40  # characters of a plain text on average; longer ones are texts of their own
_MAX_SIGNS = 4  # characters of a piece of writing without blanks
_MAX_DEPTH = 6  # of the objects around a piece
_MAX_WIDTH = 4  # objects of a list in a chunk
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
    "data-",
    "source-",
)
_OTHER_EVENTS = frozenset(
    ("start", "finish", "start-step", "finish-step", "step-start", "done", "abort", "file")
)
_TEXT_DELTAS = (".output_text.delta", ".refusal.delta", ".text.delta", "audio_transcript.delta")
_BEDROCK = (
    "contentBlockDelta",
    "contentBlockStart",
    "contentBlockStop",
    "messageStart",
    "messageStop",
    "metadata",
)
_AGENT_EVENTS = frozenset(("chunk", "trace", "returnControl", "files"))  # of Bedrock's agents
# of Bedrock's retrieve and generate
_RETRIEVING_EVENTS = frozenset(("output", "citation", "guardrail", "sessionId"))
_FLOW_EVENTS = frozenset(  # of Bedrock's flows
    ("flowOutputEvent", "flowCompletionEvent", "flowTraceEvent", "flowMultiTurnInputRequestEvent")
)
_PLAIN_KEYS = ("content", "text", "token", "chunk", "delta", "output", "answer", "response")
_BESIDE = frozenset((*_PLAIN_KEYS, "index", "id", "finish_reason", "done", "model", "created_at"))
# Events are named at the first keys, and hold a piece of text at the others, in all products.
_KIND_KEYS = ("type", "event", "event_type", "event_kind", "kind")
_PIECE_KEYS = frozenset(
    (
        *_PLAIN_KEYS,
        "data",
        "generated_text",
        "generation",
        "completion",
        "outputText",
        "content_delta",
        "textDelta",
        "value",
    )
)
_PIECE = re.compile(
    r"delta|chunk|stream|token|text.?generation|message_content|^(?:agent_)?message answer$",
    re.IGNORECASE,
)
_NO_PIECE = re.compile(
    r"reason|think|thought|tool|function|citation|usage|error|status|search|retriev|workflow|node"
    r"|custom|finish|complete|(?:^|[^a-z])(?:end|done|started|created|updated)(?:$|[^a-z])",
    re.IGNORECASE,
)
_THOUGHT = re.compile(r"reason|think|thought", re.IGNORECASE)
_CALL_KEYS = ("tool_calls", "tool_call_chunks", "function_call", "functionCall", "toolUse")
_CALL_KINDS = frozenset(
    ("tool_use", "tool_call", "function_call", "tool-call", "tool-input-start", "tool-call-start")
)
_END_KEYS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason")
_END_KINDS = frozenset(
    (
        "message_stop",
        "response.completed",
        "response.incomplete",
        "finish",
        "message-end",
        "stream-end",
    )
)
_WHOLE_KEYS = ("response", "message", "item", "part", "output", "data", "artifact")
_MESSAGE_KEYS = ("item_id", "messageId", "message_id", "run_id")
# of LangGraph; `custom` and the others are for its developers
_MODES = frozenset(("messages", "values", "updates", "custom", "debug", "tasks", "checkpoints"))
_DATA_LINE = re.compile(r"([0-9a-z]):(.*)")  # of Vercel's protocol: `0:"piece"`


@dataclass(frozen=True, slots=True)
class Stream:
    """The reply that a list of chunks makes up.

    Attributes:
        text: The pieces put together, "" for a reply without text, None for pieces that are not
            understood, or an end that was not seen.
        asks_tools: Whether the reply asks for a tool.
        wholes: Objects of the events that may hold the reply whole, the last first; for a stream
            without pieces.
    """

    text: str | None
    asks_tools: bool = False
    wholes: list[Any] = field(default_factory=list)


def read_stream(value: Sequence[Any]) -> Stream | None:
    """Read a list of chunks, None for a list of anything else."""
    if len(value) < 2 or len(value) > _MAX_CHUNKS:
        return None
    texts = [item for item in value if isinstance(item, str)]
    if len(texts) == len(value) and not texts[0].lstrip().startswith("{"):
        if len(texts) >= _MIN_PIECES and _grows(texts):
            return Stream(texts[-1])
        return Stream("".join(texts)) if _is_streamed(texts) else None
    items = [_without_metadata(parse_nested_json(item)) for item in value]
    chunks = [item for item in items if isinstance(item, dict)]
    if len(chunks) < len(items):
        return None
    if all(chunk.keys() <= _FLOW_EVENTS for chunk in chunks):
        return _flow_output(chunks)
    pieces = [_chunk_text(chunk) for chunk in chunks]
    known = [piece for piece in pieces if piece is not None]
    if len(known) == len(chunks):
        return _known_stream(chunks, known)
    plain = [_plain_text(chunk) for chunk in chunks]
    texts = [text for text in plain if text is not None]
    if len(texts) == len(chunks) and (_is_streamed(texts) or _holds_earlier(texts)):
        return Stream(texts[-1] if _holds_earlier(texts) else "".join(texts))
    return _stream_by_form(chunks)


def _flow_output(events: Sequence[Mapping[str, Any]]) -> Stream:
    """Return the output of a flow of Bedrock's; of several, which may all be shown, the first."""
    texts = [one for one in map(_flow_text, events) if one is not None]
    return Stream(texts[0] if texts else None)


def _flow_text(event: Mapping[str, Any]) -> str | None:
    output = event.get("flowOutputEvent")
    content = output.get("content") if isinstance(output, dict) else None
    text = content.get("document") if isinstance(content, dict) else None
    return text if isinstance(text, str) else None


def _known_stream(chunks: Sequence[Mapping[str, Any]], pieces: Sequence[str]) -> Stream | None:
    asks = any(map(asks_tools, chunks))
    if any(pieces):
        return Stream(_last_message(chunks, pieces), asks)
    wholes = [chunk[key] for chunk in reversed(chunks) for key in _WHOLE_KEYS if key in chunk]
    if asks:
        return Stream(None, asks, wholes)
    if any(map(_ends, chunks)):
        return Stream("", asks, wholes)
    return Stream(None, asks, wholes) if wholes else None


def _last_message(chunks: Sequence[Mapping[str, Any]], pieces: Sequence[str]) -> str:
    """Join the pieces of the last message alone, where the chunks of several tell theirs."""
    names = [_message_id(chunk) for chunk in chunks]
    pairs = zip(names, pieces, strict=True)
    last = next((name for name, piece in reversed([*pairs]) if piece.strip()), "")
    return "".join(
        piece for name, piece in zip(names, pieces, strict=True) if name in ("", last) or not last
    )


def _message_id(chunk: Mapping[str, Any]) -> str:
    if chunk.get("type") == "AIMessageChunk" or _is_message_chunk(chunk):
        dumped = chunk.get("kwargs")
        return str((dumped if isinstance(dumped, dict) else chunk).get("id") or "")
    return _first_text(chunk, _MESSAGE_KEYS)


def _first_text(chunk: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return the first text at one of the keys of an event or of its data, "" without any."""
    inner = chunk.get("data")
    for holder in (chunk, inner if isinstance(inner, dict) else {}):
        for key in keys:
            if isinstance(holder.get(key), str):
                return str(holder[key])
    return ""


def asks_tools(value: Any, depth: int = 0) -> bool:
    """Return whether a chunk, or the body of a reply, holds a call of a tool or a part of one."""
    if depth > _MAX_DEPTH:
        return False
    if isinstance(value, list):
        return any(asks_tools(one, depth + 1) for one in value[:_MAX_WIDTH])
    if not isinstance(value, dict):
        return False
    if value.get("type") in _CALL_KINDS or any(value.get(key) for key in _CALL_KEYS):
        return True
    return any(asks_tools(one, depth + 1) for one in value.values())


def _ends(value: Any, depth: int = 0) -> bool:
    """Return whether a chunk says that the reply has ended."""
    if depth > 3:
        return False
    if isinstance(value, list):
        return any(_ends(one, depth + 1) for one in value[:_MAX_WIDTH])
    if not isinstance(value, dict):
        return False
    if value.get("done") is True or value.get("type") in _END_KINDS:
        return True
    return any(value.get(key) for key in _END_KEYS) or any(
        _ends(one, depth + 1) for one in value.values()
    )


def _stream_by_form(chunks: Sequence[Mapping[str, Any]]) -> Stream | None:
    """Read the events of an unknown product: the field that holds the pieces tells itself.

    Of several fields of as many pieces that do not say the same, none is taken.
    """
    roles = {*role_names(), *role_names().values()}
    groups: dict[tuple[str, ...], list[tuple[Mapping[str, Any], str]]] = {}
    for chunk in chunks:
        kind = _first_text(chunk, _KIND_KEYS)
        if kind.lower() in roles or {"role", "content"} <= chunk.keys():
            return None
        if not _NO_PIECE.search(kind):
            for path, text in _leaves(chunk, 0):
                groups.setdefault((kind, *path), []).append((chunk, text))
    found: list[tuple[bool, int, str]] = []
    for path, held in groups.items():
        pieces = [text for _, text in held]
        named = _PIECE.search(" ".join(path)) is not None
        whole = _holds_earlier(pieces)
        if len(held) > 1 and (named or whole or _is_streamed(pieces)):
            chunks_of = [chunk for chunk, _ in held]
            text = pieces[-1] if whole else _last_message(chunks_of, pieces)
            found.append((named, len(held), text))
    if not found:
        return None
    best = max(found)[:2]
    texts = {text for *rank, text in found if tuple(rank) == best}
    if len(texts) == 1:  # an event at the end may hold all of it
        text = next(iter(texts))
        ends = [held[-1][1] for held in groups.values() if len(held[-1][1]) > len(text) > 0]
        texts = {next((end for end in ends if end.startswith(text)), text)}
    return Stream(texts.pop() if len(texts) == 1 else None, any(map(asks_tools, chunks)))


def _leaves(node: Mapping[str, Any], depth: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts of a chunk that may be pieces, with their paths."""
    # a mark of the end, or a part of a thought
    if node.get("special") is True or node.get("thought") is True:
        return
    if depth and _NO_PIECE.search(str(node.get("type") or node.get("part_kind") or "")):
        return
    for key, value in node.items():
        name = str(key)
        if name.lower() in key_set("skipped") or _THOUGHT.search(name):
            continue
        if isinstance(value, str):
            if name in _PIECE_KEYS:
                yield (name,), value
        elif depth < _MAX_DEPTH:
            for one in value[:_MAX_WIDTH] if isinstance(value, list) else [value]:
                if isinstance(one, dict):
                    for path, text in _leaves(one, depth + 1):
                        yield (name, *path), text


def _holds_earlier(pieces: Sequence[str]) -> bool:
    """Return whether the last piece is the text, with what all earlier ones have said."""
    if len(pieces) < _MIN_PIECES:
        return False
    return _grows(pieces) or (pieces[-1] != "" and pieces[-1] == "".join(pieces[:-1]))


def _grows(pieces: Sequence[str]) -> bool:
    """Return whether each piece holds all earlier ones."""
    return len(pieces[-1]) > len(pieces[0]) > 0 and all(
        two.startswith(one) for one, two in pairwise(pieces)
    )


def _without_metadata(item: Any) -> Any:
    """Return the message of a pair of LangGraph's: (message, metadata)."""
    pair = isinstance(item, list) and len(item) == 2 and all(isinstance(x, dict) for x in item)
    return item[0] if pair else item


def parts_of_modes(value: Sequence[Any]) -> Sequence[Any]:
    """Return the best of what a graph streamed in several modes, as (mode, chunk) each."""
    pairs = [item[-2:] for item in value if isinstance(item, list) and len(item) in (2, 3)]
    modes = {mode if isinstance(mode, str) else "" for mode, _ in pairs}
    if len(pairs) < len(value) or not modes or not modes <= _MODES:
        return value
    for best in ("messages", "values", "updates"):
        if best in modes:
            return [chunk for mode, chunk in pairs if mode == best]
    return []


def read_event_lines(text: str) -> list[Any] | None:
    """Return the data of server-sent events, or of JSON lines; None for any other text."""
    head = text.lstrip()[:8]
    if _DATA_LINE.match(head):
        return _read_data_lines(text)
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
        if data and not any(line.startswith(("{", "[", '"')) for line in data):
            return _read_plain_events(text)
    try:
        return [json.loads(line) for line in data[:_MAX_CHUNKS]]
    except (ValueError, RecursionError):
        return None


def _read_plain_events(text: str) -> list[Any] | None:
    """Return the texts of events that hold no JSON: several lines of one event are one text."""
    events: list[list[str]] = [[]]
    for line in text.splitlines():
        if not line.strip():
            events.append([])
        elif line.lstrip().startswith("data:"):
            events[-1].append(line.lstrip()[5:].removeprefix(" "))
    pieces = ["\n".join(lines) for lines in events if lines]
    pieces = [piece for piece in pieces if piece.strip() != "[DONE]"]
    # one that has lost its blanks cannot be put together
    parted = len(pieces) < 2 or any(piece[:1].isspace() or piece[-1:].isspace() for piece in pieces)
    return ["".join(pieces)] if pieces and (parted or _is_streamed(pieces)) else []


def _read_data_lines(text: str) -> list[Any] | None:
    """Return the events of Vercel's protocol of lines, None for any other text."""
    lines = [_DATA_LINE.fullmatch(line.strip()) for line in text.splitlines() if line.strip()]
    marks = [line for line in lines if line is not None]
    if len(marks) < max(len(lines), 2) or not any(mark[0].startswith('0:"') for mark in marks):
        return None
    try:
        values = [(mark[1], json.loads(mark[2])) for mark in marks[:_MAX_CHUNKS]]
    except (ValueError, RecursionError):
        return None
    kinds = {"0": "text-delta", "9": "tool-call", "d": "finish"}
    return [{"type": kinds.get(mark, "start"), "delta": value} for mark, value in values]


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
        if kind in ("text-delta", "text") or kind.endswith(_TEXT_DELTAS):
            payload = chunk.get("payload")  # Mastra
            held = payload if isinstance(payload, dict) else chunk
            texts = (held.get(key) for key in ("delta", "textDelta", "text"))
            return next((text for text in texts if isinstance(text, str)), "")
        return ""
    if isinstance(chunk.get("event_kind"), str) and "part" in chunk:  # Pydantic AI, its first piece
        part = chunk["part"]
        spoken = isinstance(part, dict) and part.get("part_kind") == "text"
        return str(part.get("content") or "") if spoken else ""
    if isinstance(chunk.get("event_kind"), str):
        delta = chunk.get("delta")
        spoken = isinstance(delta, dict) and delta.get("part_delta_kind") == "text"
        return str(delta.get("content_delta") or "") if spoken and isinstance(delta, dict) else ""
    for key in _BEDROCK:
        if key in chunk and len(chunk) == 1:
            inner = chunk[key]
            delta = inner.get("delta") if isinstance(inner, dict) else None
            return _text_block(delta) if isinstance(delta, dict) else ""
    if chunk and chunk.keys() <= _AGENT_EVENTS:
        inner = chunk.get("chunk")
        piece = inner.get("bytes") if isinstance(inner, dict) else ""
        return piece if isinstance(piece, str) else ""
    if chunk and chunk.keys() <= _RETRIEVING_EVENTS and isinstance(chunk.get("output", {}), dict):
        return _text_block(chunk.get("output"))
    if "delta" in chunk and not isinstance(kind, str):
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
    if not isinstance(block, dict) or _THOUGHT.search(str(block.get("type"))):
        return ""
    text = block.get("text")
    return text if isinstance(text, str) else ""


def _delta_text(delta: Any) -> str:
    """Return the text of a delta: text, an object with content, or parts that are no thoughts."""
    if isinstance(delta, str):
        return delta
    if isinstance(delta, dict):
        if delta.get("thought") is True or _THOUGHT.search(str(delta.get("type"))):
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
