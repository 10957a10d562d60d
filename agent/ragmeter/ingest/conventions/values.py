"""Read single attribute values: JSON text, numbers in text, flattened lists and Python reprs.

Nothing here raises, whatever a value holds, and the work is bounded by the value's own size. An
object's repr, which an instrumentor writes where it cannot write JSON, is never an answer itself;
where the text in it is whole, that text is taken out.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from ragmeter.core.files import load_yaml

QUOTED = r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"  # a string literal of Python
MAX_FLATTENED_ITEMS = 1_000  # of one list; the largest retrieval seen holds 100 documents
_MAX_DIGITS = 9  # of an index; more is no index that a program wrote
_MAX_LITERAL = 100_000  # characters; Python's parser is slow and deep, so it sees no more
_MAX_REPR = 65_536  # characters searched for the text in a repr
_MAX_VALUES = 200_000  # of one JSON text: about 20 MB of objects, as of a native trace

# What stands for hidden content, in words of a product's own: `[AI content redacted]`,
# `HIDDEN:non-empty`, `<masked by policy>`.
_MASKED = "redacted|hidden|masked|filtered|scrubbed|withheld|suppressed|omitted|removed"
_MASK = re.compile(
    rf"[\[<({{*]{{1,3}}[^\[\]<>(){{}}*]*(?<![a-z])(?i:{_MASKED})(?![a-z])[^\[\]<>(){{}}*]*[\])>}}*]{{1,3}}"
    rf"|(?:{_MASKED.upper()})(?:[:_-][\w -]*)?"
)
_MASK_STARTS = frozenset("[<({*")
_OPENING = frozenset(("{", "[", '"'))
_JSON_START = re.compile(r'\s*(?:\{\s*(?:"|\}\s*$)|\[\s*(?:[\[{"]|\]\s*$|-?\d[\d.eE+-]*\s*,))')
# "[0.1, -0.2, 0.3" and the repr of an OpenAI embedding; "[1, 2] say so" is text
_VECTOR = re.compile(
    r"(?:\[+\s*-?\d+\.\d+(?:e-?\d+)?\s*,\s*-?\d+\.\d+(?:e-?\d+)?\s*,|.{0,40}\bembedding=\[)",
    re.IGNORECASE,
)
_PYTHON_FORM = re.compile(r"\s*(?:\{['\"][^'\"\n]{1,200}['\"]: |\[(?:'|\{'))")
_ROWS = re.compile(r"\s*\[\((?:['\"]|-?\d[\d.]*, |None, |(?:\w{1,40}\.){0,4}\w{1,40}\()")
# `UUID('...')` as a value in the text form of a list or dict
_CALLED_VALUE = re.compile(r"[\[(,:] ?(?:\w{1,40}\.){0,4}[A-Za-z]\w{0,40}\([^()]")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|.)", re.DOTALL)
_SIMPLE_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\n": ""}
# messages and results of Haystack, LangChain, LlamaIndex and DSPy; an answer may be code, so not
# everything that looks like a call is one
_OBJECT = re.compile(
    r"\s*<?(?:\w+\.)*(?:\w*(?:Message|MessageChunk|Answer|Generation|Completion)|Prediction|Response"
    r"|TextContent|StreamingResponse|ModelResponse|LLMResult|Document|NodeWithScore|TextNode)\("
    r"|\s*\[?<[\w.<> ]{1,100} at 0x[0-9a-f]+>"  # any object without a repr of its own
    r"|\s*<(?:async_)?(?:generator|coroutine) object>"  # of a stream that nobody has read yet
)
# str() of a message of LangChain4j, and of Spring AI
_JAVA = re.compile(
    r"\s*\[?(?P<kind>Ai|User|System|ToolExecutionResult|Assistant)Message ?[{\[](?=.{0,400}"
    r"(?:\btext ?=|contents ?=|textContent=|content=|messageType=))",
    re.DOTALL,
)
_JAVA_STARTS = re.compile(r"\b(?:text ?= ?\"|textContent=|content=')")
_JAVA_ENDS = {  # of a text by the sign or word before it
    '"': re.compile(r"\"(?=,? ?(?:\}|thinking ?=|toolExecutionRequests ?=|attributes ?=))"),
    "=": re.compile(r", metadata=|\]\s*\Z"),
    "'": re.compile(r"', (?:properties|messageType|metadata)="),
}
_JAVA_ROLES = {"Ai": "assistant", "Assistant": "assistant", "User": "user", "System": "system"}
# an event or a step of a workflow: nothing but the call of a class, whole or cut
_CALL = re.compile(r"\s*\[?(?:\w+\.)*[A-Z]\w*\((?:\w+=|\)\s*$)")
_CALLS = re.compile(r"\s*(?:\[\s*)?(?:\w+\.)*[A-Z]\w*\(\w+=")
_CALL_ENDS = (")", ")]", "...", "…")
_RESULT = re.compile(rf"\s*\w+\(result={QUOTED}\)\s*$", re.DOTALL)  # LlamaIndex's StopEvent
# str() of a message of LangChain
_BARE = re.compile(
    rf"\s*content={QUOTED} (?:additional_kwargs|name|response_metadata|id)=", re.DOTALL
)
_TEXT = re.compile(
    rf"\b(?:text|content|_content|data|answer|response)={QUOTED}(?=\s*[,)\n\]]|\s*$)", re.DOTALL
)
# texts of a reply of MCP's Python client
_TEXT_CONTENT = re.compile(rf"TextContent\(type='text', text={QUOTED}", re.DOTALL)
_QUESTION = re.compile(
    rf"\b(?:question|query|user_query|user_input|prompt)={QUOTED}(?=\s*[,)\n]|\s*$)", re.DOTALL
)
_ROLE = re.compile(
    r"\brole=<?[\w.]*?(?P<role>ASSISTANT|USER|SYSTEM|TOOL)\b|_role=<ChatRole\.(\w+)", re.I
)
_ROLE_BY_CLASS = {"HumanMessage(": "user", "SystemMessage(": "system", "ToolMessage(": "tool"}


_DECODER = json.JSONDecoder(parse_constant=lambda _: None)  # NaN and infinities become None


@cache
def _value_keys() -> dict[str, Any]:
    tables: dict[str, Any] = load_yaml(__package__, "value_keys.yaml")
    return tables


@cache
def key_list(name: str) -> tuple[str, ...]:
    """Return a list of `value_keys.yaml`, which is read at the first call."""
    return tuple(_value_keys()[name])


@cache
def key_set(name: str) -> frozenset[str]:
    """Return a list of `value_keys.yaml` as a set."""
    return frozenset(_value_keys()[name])


@cache
def key_spellings(name: str) -> dict[str, str]:
    """Return the names of attributes that a convention knows, by those of another one."""
    spellings: dict[str, str] = _value_keys()["spellings"][name]
    return spellings


@cache
def role_names() -> dict[str, str]:
    """Return the role that each of the frameworks' words for it stands for."""
    return {word: role for role, words in _value_keys()["roles"].items() for word in words}


def parse_number(value: object) -> float | None:
    """Return a finite number, which may be text; None for anything else."""
    if value is None or isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def parse_count(value: object) -> int | None:
    """Return a count, which may be text: not negative, and small enough to be exact in a float."""
    number = parse_number(value)
    return int(number) if number is not None and 0 <= number <= 2**53 else None


def parse_cost(value: object) -> float | None:
    """Return a number that is not negative, which may be text; None for anything else."""
    number = parse_number(value)
    return number if number is not None and number >= 0 else None


def scalar_text(value: object) -> str | None:
    """Return a scalar as text, None for anything else and for empty or blank text."""
    if isinstance(value, str):  # nearly always
        return value if value and not value.isspace() else None
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return str(value)
    except ValueError:  # an integer of thousands of digits
        return None


def first_text(values: Mapping[str, Any], keys: Iterable[str]) -> str | None:
    """Return the first scalar at any of the keys as text."""
    return next((text for key in keys if (text := scalar_text(values.get(key)))), None)


def first_count(values: Mapping[str, Any], keys: Iterable[str]) -> int | None:
    """Return the first count at any of the keys."""
    return next((n for key in keys if (n := parse_count(values.get(key))) is not None), None)


def is_hidden(value: object) -> bool:
    """Return whether text stands for content that the sender hides."""
    if not isinstance(value, str) or len(value) >= 64:
        return False
    text = value.strip()
    if text.lower() in key_set("hidden"):
        return True
    may_be = text[:1] in _MASK_STARTS or text[:3].isupper()  # cheaper than the look
    return may_be and _MASK.fullmatch(text) is not None


def is_truncated(text: str) -> bool:
    """Return whether text bears the mark of a tracer that cuts: 100 characters and "..."."""
    return 100 <= len(text) <= 104 and text.endswith(("...", "…"))


def looks_like_json(text: str) -> bool:
    """Return whether text begins like a JSON object or list, whole or not: `[1] says` does not."""
    return _JSON_START.match(text) is not None


def is_truncated_json(value: object) -> bool:
    """Return whether text begins like JSON and is none: a limit cut it, or it is far too large."""
    return (
        isinstance(value, str)
        and looks_like_json(value)
        and isinstance(parse_nested_json(value), str)
    )


def is_embedding(value: object) -> bool:
    """Return whether a value is a vector, also as text: it is never a passage nor an answer."""
    if isinstance(value, str):
        return _VECTOR.match(value[:200].lstrip()) is not None
    if isinstance(value, list) and len(value) >= 3:
        first = value[0]
        if isinstance(first, list):
            return is_embedding(first)
        return all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in value[:8])
    return False


def parse_nested_json(value: Any, *, times: int = 3) -> Any:
    """Open JSON text, and JSON text in it, up to `times` times.

    Text that is no JSON object, list or string comes back as it is, and so does text that is too
    large or too deep. A quoted string becomes its text. NaN and infinities become None.
    """
    for _ in range(times):
        if not isinstance(value, str):
            return value
        head = value[:1]
        if head not in _OPENING:  # nearly all texts
            head = value[:64].lstrip()[:1] if head.isspace() else ""
        if head not in _OPENING:
            return value
        if len(value) > _MAX_VALUES and sum(map(value.count, ",[{")) > _MAX_VALUES:
            return value
        if head == '"' and not value.rstrip().endswith('"'):
            return value
        try:
            value = _DECODER.decode(value)
        except (ValueError, RecursionError):
            return value
    return value


def parse_literal(text: str) -> Any:
    """Open Python's text form of a dict or list; other text comes back as it is.

    Values such as `UUID('...')` and `Decimal('0.2')` are opened by their only argument.
    """
    head = text[:16].lstrip()
    return _literal(text) if head.startswith(("{'", '{"', "['", "[{")) else text


def parse_rows(text: str) -> Any:
    """Open Python's text form of the rows of a query, each a list; other text as it is."""
    opened = _literal(text) if is_rows_form(text) else text
    if isinstance(opened, list):
        return [list(row) if isinstance(row, tuple) else row for row in opened]
    return opened


def is_rows_form(text: str) -> bool:
    """Return whether text begins like Python's text form of rows, `[(1, 'a'), `, whole or not."""
    return _ROWS.match(text[:200]) is not None


def _literal(text: str) -> Any:
    if len(text) > _MAX_LITERAL:
        return text
    try:
        if _CALLED_VALUE.search(text):
            return _printed_value(ast.parse(text.strip(), mode="eval").body)
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text


def parse_printed(text: str) -> Any:
    """Open the repr of Python objects, each as the object of its fields; None where it is none.

    All of it must be literals and calls of classes, as data classes and Pydantic print themselves.
    """
    if not _CALLS.match(text[:128]) or len(text) > _MAX_LITERAL:
        return None
    try:
        return _printed_value(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None


def _printed_value(node: ast.expr) -> Any:
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [_printed_value(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(ast.literal_eval(key)): _printed_value(item) for key, item in pairs if key}
    if isinstance(node, ast.Call):
        fields = {one.arg: _printed_value(one.value) for one in node.keywords if one.arg}
        # `UUID('...')` and `datetime(2026, 1, 2)` have no fields
        return fields or (_printed_value(node.args[0]) if len(node.args) == 1 else None)
    if isinstance(node, ast.Name | ast.Attribute):  # nan, or a member of an enumeration
        return None
    return ast.literal_eval(node)


def is_python_form(text: str) -> bool:
    """Return whether text begins like Python's text form of a dict or list, whole or not."""
    return _PYTHON_FORM.match(text) is not None


def parse_json_or_literal(value: Any) -> Any:
    """Open text that is JSON or Python's text form of a dict or list."""
    value = parse_nested_json(value)
    return parse_literal(value) if isinstance(value, str) else value


def flattened_items(attributes: Mapping[str, Any], prefix: str) -> list[tuple[int, dict[str, Any]]]:
    """Collect the items of a list that a sender wrote as `prefix.INDEX.suffix` attributes.

    `a.b.0.c.d` under the prefix `a.b` gives `(0, {"c.d": value})`; a value at `a.b.0` itself has
    the suffix "". An index only orders the items and never sizes anything: `a.b.999999999.id` costs
    one item. A first index above 0 means that the sender's limits cost the items before it.

    Returns:
        (index, {suffix: value}) of the `MAX_FLATTENED_ITEMS` lowest indexes, in order.
    """
    start = len(prefix) + 1
    dotted = prefix + "."
    items: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        if not key.startswith(dotted):
            continue
        digits, _, suffix = key[start:].partition(".")
        if len(digits) <= _MAX_DIGITS and digits.isascii() and digits.isdigit():
            items.setdefault(int(digits), {})[suffix] = value
    return sorted(items.items())[:MAX_FLATTENED_ITEMS]


def has_flattened_items(attributes: Mapping[str, Any], prefix: str) -> bool:
    """Return whether any key lies below `prefix`."""
    dotted = prefix + "."
    for key in attributes:  # noqa: SIM110 - any() with its generator takes three times as long
        if key.startswith(dotted):
            return True
    return False


def unquote_repr(literal: str) -> str:
    """Return the text of a quoted string literal of Python."""

    def unescape(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) > 1:
            return chr(min(int(code[1:], 16), 0x10FFFF))
        return _SIMPLE_ESCAPES.get(code, code)

    return _ESCAPE.sub(unescape, literal[1:-1])


def is_repr(text: str) -> bool:
    """Return whether text is the repr of an object, a framework's or any other."""
    head = text[:128]
    called = _CALL.match(head) is not None and text.rstrip().endswith(_CALL_ENDS)
    return called or is_framework_repr(text)


def is_framework_repr(text: str) -> bool:
    """Return whether text is the repr of a framework's message, answer or document."""
    head = text[:128]
    return (
        _OBJECT.match(head) is not None
        or _JAVA.match(text[:512]) is not None
        or (head.lstrip().startswith("content=") and _BARE.match(text[:_MAX_REPR]) is not None)
    )


def repr_role(text: str) -> str:
    """Return the role that a message's repr names, in lower case; "" if it names none."""
    head = text[:_MAX_REPR]
    java = _JAVA.match(head)
    if java is not None:
        return _JAVA_ROLES.get(java["kind"], "tool")
    match = _ROLE.search(head)
    if match is not None:
        return next(group for group in match.groups() if group).lower()
    head = head.lstrip()
    return next((role for name, role in _ROLE_BY_CLASS.items() if head.startswith(name)), "")


def repr_question(text: str) -> str | None:
    """Return the question that a request's repr holds whole, None if it holds none."""
    match = _QUESTION.search(text[:_MAX_REPR])
    return unquote_repr(match[1]) or None if match is not None else None


def repr_text(text: str) -> str | None:
    """Return the text that a repr holds whole, None if it holds none."""
    head = text[:_MAX_REPR]
    if _JAVA.match(head) is not None:
        start = _JAVA_STARTS.search(head)
        end = _JAVA_ENDS[start[0][-1]].search(head, start.end()) if start is not None else None
        return scalar_text(head[start.end() : end.start()]) if start and end else None
    match = _BARE.match(head) or _RESULT.match(head)
    if match is None and (_OBJECT.match(head) is not None or not _CALL.match(head)):
        match = _TEXT.search(head)  # in an object of any other class it may be anything
    return unquote_repr(match[1]) or None if match is not None else None


def mcp_texts(text: str) -> list[str] | None:
    """Return the texts in the repr of a tool's reply by MCP, None for any other text."""
    head = text[:_MAX_REPR]
    if "TextContent(type='text'" not in head or "isError=True" in head:
        return None
    return [unquote_repr(match[1]) for match in _TEXT_CONTENT.finditer(head)]
