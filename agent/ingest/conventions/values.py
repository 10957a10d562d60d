"""Read attribute values: JSON text, numbers in text, flattened lists, Python reprs, and marks of hidden or truncated content.

What a value is: JSON opened, numbers that are text, marks of what is hidden or cut.

Nothing here raises, whatever a value holds, and the work is bounded by the value's own size.

Lists that a sender wrote as `prefix.INDEX.suffix` attributes, read without trusting the index.

An index only orders the items, it never sizes anything: `documents.999999999.id` costs one item.

The text forms of Python objects: what an instrumentor writes where it cannot write JSON.

An object's repr is never an answer. The text in it may be: where it is whole, it is taken out.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping
from typing import Any

_MAX_LITERAL = 100_000  # characters; Python's parser is slow and deep, so it sees no more


def parse_literal(text: str) -> Any:
    """What Python's text form of a dict or list holds; other text as it is."""
    head = text[:16].lstrip()
    if not head.startswith(("{'", '{"', "['", "[{")) or len(text) > _MAX_LITERAL:
        return text
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text


_MAX_VALUES = 200_000  # of one JSON text: about 20 MB of objects, as of a native trace

# what the instrumentors write in the place of content that is switched off
_HIDDEN = frozenset(
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


def parse_bool(value: object) -> bool:
    """A boolean that may be text or a number."""
    return value.strip().lower() in ("true", "1", "yes") if isinstance(value, str) else bool(value)


def parse_number(value: object) -> float | None:
    """A finite number that may be text."""
    if value is None or isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        out = float(value)
    except (ValueError, OverflowError):
        return None
    return out if math.isfinite(out) else None


def parse_count(value: object) -> int | None:
    """A count that may be text: not negative, and small enough to be exact in a float."""
    out = parse_number(value)
    return int(out) if out is not None and 0 <= out <= 2**53 else None


def scalar_text(value: object) -> str | None:
    """A scalar as text, None where there is none: "" and blanks are no text."""
    if isinstance(value, str):  # nearly always
        return value if value and not value.isspace() else None
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return str(value)
    except ValueError:  # an integer of thousands of digits
        return None


def is_hidden(value: object) -> bool:
    """Whether text stands for content that the sender hides."""
    if not isinstance(value, str) or len(value) >= 64:
        return False
    return value.strip().lower() in _HIDDEN


def is_truncated(text: str) -> bool:
    """Whether text shows the mark of a tracer that cuts: 100 characters and "..."."""
    return 100 <= len(text) <= 104 and text.endswith(("...", "…"))


def looks_like_json(text: str) -> bool:
    """Whether text begins like a JSON object or list, whole or not: `[1] says` does not."""
    return _JSON_START.match(text) is not None


_JSON_START = re.compile(r'\s*(?:\{\s*(?:"|\}\s*$)|\[\s*(?:[\[{"]|\]\s*$|-?\d[\d.eE+-]*\s*,))')


def is_truncated_json(value: object) -> bool:
    """Whether text begins like JSON and is none: a limit has cut it, or it is far too large."""
    return (
        isinstance(value, str)
        and looks_like_json(value)
        and isinstance(parse_nested_json(value), str)
    )


def _not_a_number(_: str) -> None:
    return None


_DECODER = json.JSONDecoder(parse_constant=_not_a_number)
_OPENING = frozenset(("{", "[", '"'))


def parse_nested_json(value: Any, *, times: int = 3) -> Any:
    """What a JSON text holds, opened again where it holds JSON text (three times at most).

    Text that is no JSON object, list or string comes back as it is, so does what is too large or
    too deep. A quoted string becomes its text. NaN and infinities become None.
    """
    for _ in range(times):
        if not isinstance(value, str):
            return value
        head = value[:1]
        if head not in _OPENING:  # nearly all texts
            head = value[:64].lstrip()[:1] if head.isspace() else ""
        if head not in _OPENING or (len(value) > _MAX_VALUES and _values(value) > _MAX_VALUES):
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
        return all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in value[:8])
    return False


# "[0.1, -0.2, 0.3" and the repr of an OpenAI embedding; "[1, 2] say so" is text
_VECTOR = re.compile(
    r"(?:\[+\s*-?\d+\.\d+(?:e-?\d+)?\s*,\s*-?\d+\.\d+(?:e-?\d+)?\s*,|.{0,40}\bembedding=\[)",
    re.IGNORECASE,
)


MAX_FLATTENED_ITEMS = 1_000  # of one list; the largest retrieval seen holds 100 documents
_MAX_DIGITS = 9  # of an index; more is no index that a program wrote


def flattened_items(attributes: Mapping[str, Any], prefix: str) -> list[tuple[int, dict[str, Any]]]:
    """The items of the list at `prefix` as (index, {suffix: value}), lowest index first.

    `a.b.0.c.d` under the prefix `a.b` gives `(0, {"c.d": value})`; a value at `a.b.0` itself has
    the suffix "". At most `MAX_ITEMS` with the lowest indexes. A first index above 0 means that
    the sender's limits have cost the items before it.
    """
    start = len(prefix) + 1
    dotted = prefix + "."
    found: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if not key.startswith(dotted):
            continue
        digits, _, suffix = key[start:].partition(".")
        if len(digits) <= _MAX_DIGITS and digits.isascii() and digits.isdigit():
            found.setdefault(int(digits), {})[suffix] = value
    return sorted(found.items())[:MAX_FLATTENED_ITEMS]


def has_flattened_items(attributes: Mapping[str, Any], prefix: str) -> bool:
    """Whether any key lies below `prefix`."""
    dotted = prefix + "."
    for key in attributes:  # noqa: SIM110 - any() with its generator takes three times as long
        if key.startswith(dotted):
            return True
    return False


QUOTED = r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|.)", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "\n": ""}


def unquote_repr(literal: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) > 1:
            return chr(min(int(code[1:], 16), 0x10FFFF))
        return _SIMPLE.get(code, code)

    return _ESCAPE.sub(one, literal[1:-1])


# messages and results of Haystack, LangChain, LlamaIndex and DSPy; an answer may be code, so not
# everything that looks like a call is one
_OBJECT = re.compile(
    r"\s*<?(?:\w+\.)*(?:\w*(?:Message|MessageChunk|Answer|Generation|Completion)|Prediction|Response"
    r"|TextContent|StreamingResponse|ModelResponse|LLMResult|Document|NodeWithScore|TextNode)\("
)
# str() of a message of LangChain
_BARE = re.compile(
    rf"\s*content={QUOTED} (?:additional_kwargs|name|response_metadata|id)=", re.DOTALL
)
_TEXT = re.compile(
    rf"\b(?:text|content|_content|data|answer|response)={QUOTED}(?=\s*[,)\n\]]|\s*$)", re.DOTALL
)
_ROLE = re.compile(
    r"\brole=<?[\w.]*?(?P<role>ASSISTANT|USER|SYSTEM|TOOL)\b|_role=<ChatRole\.(\w+)", re.I
)
_MAX_REPR = 65_536  # characters searched for the text in a repr


def is_repr(text: str) -> bool:
    """Whether text is the text form of a message, an answer or a document."""
    head = text[:128]
    return _OBJECT.match(head) is not None or (
        head.lstrip().startswith("content=") and _BARE.match(text[:_MAX_REPR]) is not None
    )


def repr_role(text: str) -> str:
    """The role that a message's repr names, in lower case; "" where it names none."""
    head = text[:_MAX_REPR]
    found = _ROLE.search(head)
    if found is not None:
        return next(group for group in found.groups() if group).lower()
    for role, name in (
        ("user", "HumanMessage("),
        ("system", "SystemMessage("),
        ("tool", "ToolMessage("),
    ):
        if head.lstrip().startswith(name):
            return role
    return ""


def repr_text(text: str) -> str | None:
    """The text that a repr holds whole, None where there is none."""
    head = text[:_MAX_REPR]
    found = _BARE.match(head) or _TEXT.search(head)
    return unquote_repr(found[1]) or None if found is not None else None
