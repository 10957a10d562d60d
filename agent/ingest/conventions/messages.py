"""Read chat messages: with parts or blocks, as pairs, LangChain's dumps or flattened attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragmeter.ingest.conventions.values import flattened_items, parse_nested_json, scalar_text

_MAX_MESSAGES = 500  # of one list
_MAX_DEPTH = 3  # of parts in parts, and of objects around a message
_USER = frozenset({"user", "human", "humanmessage", "humanmessagechunk", "chatrole.user"})
_ASSISTANT = frozenset(
    {"assistant", "ai", "aimessage", "aimessagechunk", "model", "chatrole.assistant", "bot"}
)


@dataclass(slots=True)
class ChatMessage:
    """One message.

    Args:
        role: `system`, `user`, `assistant`, `tool`, or the sender's own word in lower case.
        text: None if the message has no text.
        tools: The message asks for tool calls.
    """

    role: str
    text: str | None = None
    tools: bool = False


def read_message(value: Any, depth: int = 0) -> ChatMessage | None:
    """Read a message in any framework's form, None for a value that is no message."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(x, str) for x in value):
        # the pairs of LangChain: ("human", "text")
        role = _role(value[0])
        return (
            ChatMessage(role, scalar_text(value[1]))
            if role in ("user", "assistant", "system")
            else None
        )
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
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
            part_text, asks = _parts(value[key])
            tools = tools or asks
            text = text or part_text
    extra = value.get("additional_kwargs")
    tools = tools or _any(value, ("tool_calls", "function_call", "toolCalls"))
    tools = tools or (isinstance(extra, dict) and _any(extra, ("tool_calls", "function_call")))
    return ChatMessage(role, text, tools)


def read_messages(value: Any) -> list[ChatMessage]:
    """Read the messages of a list, an object with `messages`, or JSON text of these.

    A list of lists (LangChain's batches) gives its first. Without messages the result is empty.
    """
    value = parse_nested_json(value)
    if isinstance(value, dict):
        for key in ("messages", "input_messages", "output_messages"):
            if isinstance(value.get(key), list):
                return read_messages(value[key])
        message = read_message(value)
        return [message] if message is not None else []
    for _ in range(3):
        if isinstance(value, list) and value and isinstance(value[0], list):
            if read_message(value[0]) is not None:
                break
            value = value[0]
    if not isinstance(value, list):
        return []
    # what matters is last: the question and the reply
    messages = [read_message(parse_nested_json(item)) for item in value[-_MAX_MESSAGES:]]
    return [message for message in messages if message is not None]


def read_flattened_messages(
    attributes: Mapping[str, Any], prefix: str, inner: str = ""
) -> list[ChatMessage]:
    """Read messages written as `prefix.N.role`, `prefix.N.content`.

    With `inner` = "message." they are written as `prefix.N.message.role` (OpenInference), with
    parts at `contents.N.message_content.text`.
    """
    messages = []
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
            messages.append(ChatMessage(_role(item.get("role")), text, tools))
    return messages


def last_text_of(messages: Sequence[ChatMessage], *roles: str) -> str | None:
    """Return the text of the last message that has one of the roles and a text."""
    texts = (message.text for message in reversed(messages) if message.role in roles)
    return next((text for text in texts if text), None)


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
    """Return the text of content (text or a list of parts), and whether it asks for tools."""
    if isinstance(content, str):
        return scalar_text(content), False
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list) or depth > _MAX_DEPTH:
        return None, False
    texts: list[str] = []
    tools = False
    for part in content[:_MAX_MESSAGES]:
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
