"""Read chat messages of every framework form: parts, blocks, pairs, LangChain serialisations, flattened attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragmeter.ingest.conventions.values import flattened_items, parse_nested_json, scalar_text

_MAX_TURNS = 500  # messages of one list

_USER = frozenset({"user", "human", "humanmessage", "humanmessagechunk", "chatrole.user"})
_ASSISTANT = frozenset(
    {"assistant", "ai", "aimessage", "aimessagechunk", "model", "chatrole.assistant", "bot"}
)


@dataclass(slots=True)
class ChatMessage:
    """One message. `role` is `system`, `user`, `assistant`, `tool` or what the sender wrote in
    lower case; `text` is None where it has none. `tools` marks a request for tool calls."""

    role: str
    text: str | None = None
    tools: bool = False


def _role(value: object) -> str:
    name = str(value).strip().lower() if isinstance(value, str) else ""
    if name in _USER:
        return "user"
    if name in _ASSISTANT:
        return "assistant"
    if name in ("systemmessage", "developer", "chatrole.system"):
        return "system"
    if name in ("toolmessage", "function", "tool_result", "chatrole.tool"):
        return "tool"
    return name


def _parts(content: Any, depth: int = 0) -> tuple[str | None, bool]:
    """Text and whether tools are asked for, of content that is text or a list of parts."""
    if isinstance(content, str):
        return scalar_text(content), False
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list) or depth > 3:
        return None, False
    texts: list[str] = []
    tools = False
    for part in content[:_MAX_TURNS]:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            continue
        kind = str(part.get("type") or part.get("block_type") or "").lower()
        if kind in ("tool_call", "tool_use", "function_call", "tool-call") or _any(
            part, ("toolUse", "tool_call", "function_call", "functionCall")
        ):
            tools = True
            continue
        if kind in ("reasoning", "thinking", "tool_call_response", "tool_result", "tool-result"):
            continue
        for key in ("text", "content", "output_text", "value"):
            inner = part.get(key)
            if isinstance(inner, dict):  # {"text": {"value": ...}} of the assistants' API
                inner = inner.get("value") or inner.get("text")
            if isinstance(inner, str) and inner:
                texts.append(inner)
                break
            if isinstance(inner, list):
                nested, asks = _parts(inner, depth + 1)
                tools = tools or asks
                if nested:
                    texts.append(nested)
                break
    return scalar_text("\n".join(texts)), tools


def _any(value: Mapping[str, Any], keys: Sequence[str]) -> bool:
    return any(value.get(key) for key in keys)


def read_message(value: Any, depth: int = 0) -> ChatMessage | None:
    """A message of any framework's form, None for what is none."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(x, str) for x in value):
        # the pairs of LangChain: ("human", "text")
        role = _role(value[0])
        return (
            ChatMessage(role, scalar_text(value[1]))
            if role in ("user", "assistant", "system")
            else None
        )
    if not isinstance(value, dict) or depth > 3:
        return None
    if isinstance(value.get("kwargs"), dict) and isinstance(value.get("id"), list):
        name = value["id"][-1] if value["id"] else ""  # LangChain: {"lc": 1, "id": [.., name]}
        inner = dict(value["kwargs"])
        inner["role"] = name
        return read_message(inner, depth + 1)
    for key in ("message", "data"):
        if isinstance(value.get(key), dict) and "content" not in value:
            inner = dict(value[key])
            for name in ("role", "type"):
                if name not in inner and name in value:
                    inner[name] = value[name]
            return read_message(inner, depth + 1)
    role = _role(value.get("role") or value.get("_role") or value.get("author") or "")
    if not role:
        role = _role(value.get("type") or "")
        if role not in ("user", "assistant", "system", "tool") and role != "message":
            return None
        role = "assistant" if role == "message" else role
    text: str | None = None
    tools = False
    for key in ("parts", "content", "_content", "blocks", "contents", "text"):
        if key in value:
            found, asks = _parts(value[key])
            tools = tools or asks
            text = text or found
    extra = value.get("additional_kwargs")
    tools = tools or _any(value, ("tool_calls", "function_call", "toolCalls"))
    tools = tools or (isinstance(extra, dict) and _any(extra, ("tool_calls", "function_call")))
    return ChatMessage(role, text, tools)


def read_messages(value: Any) -> list[ChatMessage]:
    """The messages of a list, an object with `messages`, or JSON text of such. Empty where it
    holds none. A list of lists (LangChain's batches) gives its first."""
    value = parse_nested_json(value)
    if isinstance(value, dict):
        for key in ("messages", "input_messages", "output_messages"):
            if isinstance(value.get(key), list):
                return read_messages(value[key])
        turn = read_message(value)
        return [turn] if turn is not None else []
    for _ in range(3):
        if isinstance(value, list) and value and isinstance(value[0], list):
            if read_message(value[0]) is not None:
                break
            value = value[0]
    if not isinstance(value, list):
        return []
    # what matters is last: the question and the reply
    turns = [read_message(parse_nested_json(item)) for item in value[-_MAX_TURNS:]]
    return [turn for turn in turns if turn is not None]


def read_flattened_messages(
    attributes: Mapping[str, Any], prefix: str, inner: str = ""
) -> list[ChatMessage]:
    """Messages written as `prefix.N.role`, `prefix.N.content`; with `inner` = "message." as
    `prefix.N.message.role` (OpenInference), whose parts are `contents.N.message_content.text`."""
    turns = []
    for _, item in flattened_items(attributes, prefix):
        if inner:
            cut = len(inner)
            item = {key[cut:]: value for key, value in item.items() if key.startswith(inner)}
        content = item.get("content")
        if isinstance(content, str):
            opened = parse_nested_json(content) if content[:2] in ("[{", "[ ") else content
            text, tools = (
                _parts(opened) if isinstance(opened, list) else (scalar_text(content), False)
            )
        else:
            text, tools = _parts(content)
        if text is None:
            pieces = [
                part.get("message_content.text") or part.get("text") or part.get("content")
                for name in ("contents", "content", "parts")
                for _, part in flattened_items(item, name)
            ]
            text = scalar_text("\n".join(piece for piece in pieces if isinstance(piece, str)))
        tools = tools or any(
            key.startswith(("tool_calls", "function_call")) and value not in (None, "", [], {})
            for key, value in item.items()
        )
        if text is not None or tools or "role" in item:
            turns.append(ChatMessage(_role(item.get("role")), text, tools))
    return turns


def last_text_of(turns: Sequence[ChatMessage], role: str) -> str | None:
    """The text of the last message of a role."""
    return next((turn.text for turn in reversed(turns) if turn.role == role and turn.text), None)
