"""What a value means as text: JSON opened, questions and answers found, messages of every form.

Nothing here raises, whatever a value holds, and the work is bounded by the value's own size. The
key lists are those that real frameworks use (docs/spans.md names them).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.ingest.conventions.flatten import items
from agent.ingest.conventions.reading import Gap

__all__ = [
    "Turn",
    "answer_in",
    "cut_json",
    "cut_off",
    "flat_messages",
    "hidden",
    "is_embedding",
    "last_of",
    "looks_like_json",
    "messages_in",
    "number",
    "open_json",
    "question_in",
    "text_of",
    "truthy",
    "whole",
]

MAX_VALUES = 200_000  # of one JSON text: about 20 MB of objects, as of a native trace
MAX_DEPTH = 12  # of a search; real ones need 5
MAX_VISITS = 2_000  # containers that one search looks at
MAX_TURNS = 500  # messages of one list

# what the instrumentors write in the place of content that is switched off
HIDDEN = frozenset(
    {
        "__redacted__",
        "[redacted]",
        "<redacted>",
        "redacted",
        "***",
        "<hidden>",
        "[hidden]",
        "[filtered]",
        "<masked due to enable_langfuse being set to false>",
    }
)

QUESTION_KEYS = (
    "question",
    "query",
    "query_str",
    "input",
    "prompt",
    "user_input",
    "str_or_query_bundle",
    "query_bundle",
    "user_query",
    "user_question",
    "user_message",
    "query_text",
    "messages",
    "inputs",
    "message",
    "content",
    "text",
    "kwargs",
    "args",
    "q",
)
ANSWER_KEYS = (
    "answer",
    "output",
    "result",
    "response",
    "text",
    "content",
    "output_text",
    "final_answer",
    "generated_text",
    "completion",
    "reply",
    "replies",
    "answers",
    "generations",
    "choices",
    "candidates",
    "messages",
    "message",
    "outputs",
    "data",
)
# what holds retrieved text, earlier turns or numbers: never searched for a question or an answer
SKIPPED_KEYS = frozenset(
    {
        "context",
        "contexts",
        "context_str",
        "documents",
        "docs",
        "source_documents",
        "source_nodes",
        "sources",
        "nodes",
        "passages",
        "chunks",
        "text_chunks",
        "retrieved_documents",
        "metadata",
        "meta",
        "embedding",
        "embeddings",
        "chat_history",
        "history",
        "usage",
        "token_usage",
        "config",
        "tags",
        "template",
        "template_variables",
        "retriever",
        "embedder",
        "ranker",
        "reasoning",
        "tools",
        "tool_calls",
        "response_metadata",
        "additional_kwargs",
    }
)

USER = frozenset({"user", "human", "humanmessage", "humanmessagechunk", "chatrole.user"})
ASSISTANT = frozenset(
    {"assistant", "ai", "aimessage", "aimessagechunk", "model", "chatrole.assistant", "bot"}
)


def truthy(value: object) -> bool:
    """A boolean that may be text or a number."""
    return value.strip().lower() in ("true", "1", "yes") if isinstance(value, str) else bool(value)


def number(value: object) -> float | None:
    """A finite number that may be text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        out = float(value)
    except (ValueError, OverflowError):
        return None
    return out if math.isfinite(out) else None


def whole(value: object) -> int | None:
    """A count that may be text: not negative, and small enough to be exact in a float."""
    out = number(value)
    return int(out) if out is not None and 0 <= out <= 2**53 else None


def text_of(value: object) -> str | None:
    """A scalar as text, None where there is none: "" and blanks are no text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return str(value)
        except ValueError:  # an integer of thousands of digits
            return None
    return value if isinstance(value, str) and value and not value.isspace() else None


def hidden(value: object) -> bool:
    """Whether text stands for content that the sender hides."""
    return isinstance(value, str) and len(value) < 64 and value.strip().lower() in HIDDEN


def cut_off(text: str) -> bool:
    """Whether text shows the mark of a tracer that cuts: 100 characters and "..."."""
    return 100 <= len(text) <= 104 and text.endswith(("...", "…"))


def looks_like_json(text: str) -> bool:
    """Whether text begins like a JSON object or list, whole or not: `[1] says` does not."""
    return _JSON_START.match(text) is not None


_JSON_START = re.compile(r'\s*(?:\{\s*(?:"|\}\s*$)|\[\s*(?:[\[{"]|\]\s*$|-?\d[\d.eE+-]*\s*,))')


def cut_json(value: object) -> bool:
    """Whether text begins like JSON and is none: a limit has cut it, or it is far too large."""
    return isinstance(value, str) and looks_like_json(value) and isinstance(open_json(value), str)


def _not_a_number(_: str) -> None:
    return None


_DECODER = json.JSONDecoder(parse_constant=_not_a_number)
_OPENING = frozenset(("{", "[", '"'))


def open_json(value: Any, *, times: int = 3) -> Any:
    """What a JSON text holds, opened again where it holds JSON text (three times at most).

    Text that is no JSON object, list or string comes back as it is, so does what is too large or
    too deep. A quoted string becomes its text. NaN and infinities become None.
    """
    for _ in range(times):
        if not isinstance(value, str):
            return value
        head = value[:1]
        if head.isspace():
            head = value[:64].lstrip()[:1]
        if head not in _OPENING or (len(value) > MAX_VALUES and _values(value) > MAX_VALUES):
            return value
        if head == '"' and not value.rstrip().endswith('"'):
            return value
        try:
            value = _DECODER.decode(value)
        except (ValueError, RecursionError):
            return value
    return value


def _values(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


def is_embedding(value: object) -> bool:
    """A vector, also as text: such is never a passage and never an answer."""
    if isinstance(value, str):
        head = value[:200].lstrip()
        return _VECTOR.match(head) is not None
    if isinstance(value, list) and len(value) >= 3:
        first = value[0]
        if isinstance(first, list):
            return is_embedding(first)
        return all(isinstance(x, int | float) and not isinstance(x, bool) for x in value[:8])
    return False


# "[0.1, -0.2, 0.3" and the repr of an OpenAI embedding; "[1, 2] say so" is text
_VECTOR = re.compile(
    r"(?:\[+\s*-?\d+\.\d+(?:e-?\d+)?\s*,\s*-?\d+\.\d+(?:e-?\d+)?\s*,|.{0,40}\bembedding=\[)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Turn:
    """One message. `role` is `system`, `user`, `assistant`, `tool` or what the sender wrote in
    lower case; `text` is None where it has none. `tools` marks a request for tool calls."""

    role: str
    text: str | None = None
    tools: bool = False


def _role(value: object) -> str:
    name = str(value).strip().lower() if isinstance(value, str) else ""
    if name in USER:
        return "user"
    if name in ASSISTANT:
        return "assistant"
    if name in ("systemmessage", "developer", "chatrole.system"):
        return "system"
    if name in ("toolmessage", "function", "tool_result", "chatrole.tool"):
        return "tool"
    return name


def _parts(content: Any, depth: int = 0) -> tuple[str | None, bool]:
    """Text and whether tools are asked for, of content that is text or a list of parts."""
    if isinstance(content, str):
        return text_of(content), False
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list) or depth > 3:
        return None, False
    texts: list[str] = []
    tools = False
    for part in content[:MAX_TURNS]:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, Mapping):
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
            if isinstance(inner, Mapping):  # {"text": {"value": ...}} of the assistants' API
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
    return text_of("\n".join(texts)), tools


def _any(value: Mapping[str, Any], keys: Sequence[str]) -> bool:
    return any(value.get(key) for key in keys)


def _turn(value: Any, depth: int = 0) -> Turn | None:
    """A message of any framework's form, None for what is none."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(x, str) for x in value):
        # the pairs of LangChain: ("human", "text")
        role = _role(value[0])
        return Turn(role, text_of(value[1])) if role in ("user", "assistant", "system") else None
    if not isinstance(value, Mapping) or depth > 3:
        return None
    if isinstance(value.get("kwargs"), Mapping) and isinstance(value.get("id"), list):
        name = value["id"][-1] if value["id"] else ""  # LangChain: {"lc": 1, "id": [.., name]}
        inner = dict(value["kwargs"])
        inner["role"] = name
        return _turn(inner, depth + 1)
    for key in ("message", "data"):
        if isinstance(value.get(key), Mapping) and "content" not in value:
            inner = dict(value[key])
            for name in ("role", "type"):
                if name not in inner and name in value:
                    inner[name] = value[name]
            return _turn(inner, depth + 1)
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
    tools = tools or (isinstance(extra, Mapping) and _any(extra, ("tool_calls", "function_call")))
    return Turn(role, text, tools)


def messages_in(value: Any) -> list[Turn]:
    """The messages of a list, an object with `messages`, or JSON text of such. Empty where it
    holds none. A list of lists (LangChain's batches) gives its first."""
    value = open_json(value)
    if isinstance(value, Mapping):
        for key in ("messages", "input_messages", "output_messages"):
            if isinstance(value.get(key), list):
                return messages_in(value[key])
        turn = _turn(value)
        return [turn] if turn is not None else []
    for _ in range(3):
        if isinstance(value, list) and value and isinstance(value[0], list):
            if _turn(value[0]) is not None:
                break
            value = value[0]
    if not isinstance(value, list):
        return []
    # what matters is last: the question and the reply
    turns = [_turn(open_json(item)) for item in value[-MAX_TURNS:]]
    return [turn for turn in turns if turn is not None]


def flat_messages(attributes: Mapping[str, Any], prefix: str, inner: str = "") -> list[Turn]:
    """Messages written as `prefix.N.role`, `prefix.N.content`; with `inner` = "message." as
    `prefix.N.message.role` (OpenInference), whose parts are `contents.N.message_content.text`."""
    turns = []
    for _, item in items(attributes, prefix):
        if inner:
            cut = len(inner)
            item = {key[cut:]: value for key, value in item.items() if key.startswith(inner)}
        content = item.get("content")
        if isinstance(content, str):
            opened = open_json(content) if content[:2] in ("[{", "[ ") else content
            text, tools = _parts(opened) if isinstance(opened, list) else (text_of(content), False)
        else:
            text, tools = _parts(content)
        if text is None:
            pieces = [
                part.get("message_content.text") or part.get("text") or part.get("content")
                for name in ("contents", "content", "parts")
                for _, part in items(item, name)
            ]
            text = text_of("\n".join(piece for piece in pieces if isinstance(piece, str)))
        tools = tools or any(
            key.startswith(("tool_calls", "function_call")) and value not in (None, "", [], {})
            for key, value in item.items()
        )
        if text is not None or tools or "role" in item:
            turns.append(Turn(_role(item.get("role")), text, tools))
    return turns


def last_of(turns: Sequence[Turn], role: str) -> str | None:
    """The text of the last message of a role."""
    return next((turn.text for turn in reversed(turns) if turn.role == role and turn.text), None)


def question_in(value: Any) -> tuple[str | None, Gap | None]:
    """The question that an input holds, with why there is none or not all of it."""
    return _find(value, QUESTION_KEYS, "user", Gap.QUERY_TRUNCATED)


def answer_in(value: Any) -> tuple[str | None, Gap | None]:
    """The answer that an output holds, with why there is none or not all of it."""
    return _find(value, ANSWER_KEYS, "assistant", Gap.ANSWER_TRUNCATED)


def _find(
    value: Any, keys: Sequence[str], role: str, truncated: Gap
) -> tuple[str | None, Gap | None]:
    if isinstance(value, str):
        if hidden(value):
            return None, Gap.HIDDEN
        opened = open_json(value)
        if isinstance(opened, str):
            if is_embedding(opened):
                return None, None
            if looks_like_json(opened):  # cut in the middle, or too large
                text = _salvage(opened, keys)
                return text, truncated if text is None else None
            text = text_of(opened)
            return text, truncated if text is not None and cut_off(text) else None
        value = opened
    if value is None or isinstance(value, bool):
        return None, None
    if isinstance(value, int | float):
        return text_of(value), None
    text = next(_search(value, keys, role, [MAX_VISITS], 0), None)
    if text is None:
        return None, None
    if hidden(text):
        return None, Gap.HIDDEN
    return text, truncated if cut_off(text) else None


def _search(
    value: Any, keys: Sequence[str], role: str, visits: list[int], depth: int
) -> Iterator[str]:
    """Texts at the best keys first, then deeper ones."""
    visits[0] -= 1
    if depth > MAX_DEPTH or visits[0] < 0:
        return
    if isinstance(value, str):
        opened = open_json(value)
        if not isinstance(opened, str):
            yield from _search(opened, keys, role, visits, depth + 1)
        elif text_of(opened) and not is_embedding(opened) and not looks_like_json(opened):
            yield opened
        return
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
        return
    if isinstance(value, list):
        if is_embedding(value):
            return
        turns = messages_in(value)
        if turns:
            text = last_of(turns, role)
            if text is not None:
                yield text
            return
        if (depth == 0 and _several_texts(value)) or _documents(value):
            return
        for item in value[:8]:
            yield from _search(item, keys, role, visits, depth + 1)
        return
    if not isinstance(value, Mapping):
        return
    turn = _turn(value)
    if turn is not None and turn.text and turn.role == role:
        yield turn.text
        return
    for key in keys:
        if key in value and value[key] is not None and not isinstance(value[key], bool):
            yield from _search(value[key], keys, role, visits, depth + 1)
    rest = [k for k in value if k not in keys and str(k).lower() not in SKIPPED_KEYS]
    for key in rest[:64]:
        if isinstance(value[key], Mapping | list) and not _several_texts(value[key]):
            yield from _search(value[key], keys, role, visits, depth + 1)
    if depth == 0 and len(value) == 1:  # {"topic": "..."}: what else could it be
        only = next(iter(value.values()))
        if isinstance(only, str) and str(next(iter(value))).lower() not in SKIPPED_KEYS:
            yield from _search(only, keys, role, visits, depth + 1)


def _several_texts(value: Any) -> bool:
    """A list of texts under no known name is a batch: a job's input is no question of its own."""
    if not isinstance(value, list) or len(value) < 2:
        return False
    return all(isinstance(item, str) for item in value[:8])


_OF_DOCUMENTS = frozenset(("page_content", "score", "metadata", "meta", "document", "node"))


def _documents(value: list[Any]) -> bool:
    """Whether a list holds what was retrieved: that is neither a question nor an answer."""
    first = open_json(value[0]) if value else None
    return (
        isinstance(first, Mapping)
        and "role" not in first
        and not _OF_DOCUMENTS.isdisjoint(first)
        and "message" not in first
        and "data" not in first
    )


def _salvage(text: str, keys: Sequence[str]) -> str | None:
    """A whole string at one of the keys, in JSON that was cut behind it."""
    head = text[:65536]
    for key in keys:
        found = re.search(rf'"{key}"\s*:\s*("(?:[^"\\]|\\.)*")', head)
        if found is not None:
            try:
                return text_of(json.loads(found[1]))
            except ValueError:
                continue
    return None
