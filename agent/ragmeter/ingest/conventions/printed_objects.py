"""Read objects that an application has printed in the form of its language, and forms of the web.

Requests and replies are traced as Java, Kotlin, C# and Go print them, as protobuf's text, or as the
form that a web hook was sent: `AskRequest[question=How long?, userId=u1]`. The whole of it is no
question and no answer, one of its fields may be. Fields whose ends are not certain are none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from ragmeter.ingest.conventions.values import (
    QUOTED,
    is_framework_repr,
    key_list,
    unquote_repr,
)

_MAX_PRINTED = 65_536  # characters of an object that is read
_MAX_FIELDS = 200
_HEAD = 300  # characters in which its kind must show
_PAIRS = {"[": "]", "(": ")", "{": "}"}
# the beginnings of objects: of Java and Kotlin, of C#, and of Go
_OPEN = re.compile(
    r"\s*(?:(?P<java>[A-Z]\w*[\[({])(?=[a-z]\w*=)|(?P<csharp>[A-Z]\w* \{ )(?=[A-Z]\w* = )"
    r"|(?P<go>&?(?:\w+\.)?(?:[A-Z]\w*)?\{)(?=[A-Z]\w*:\S))"
)
_NAMES = {
    "java": re.compile(r"(?:, )?([a-z]\w*)="),
    "csharp": re.compile(r"(?:, )?([A-Z]\w*) = "),
    "go": re.compile(r"(?: )?([A-Z]\w*):(?! )"),
}
_LITERAL = re.compile(rf"{QUOTED}(?=, |$)", re.DOTALL)
_FORM = re.compile(r"[\w.%\[\]-]{1,100}=[^&\s]*(?:&[\w.%\[\]-]{1,100}=[^&\s]*)+")
_PROTOBUF = re.compile(
    rf"[a-z]\w*: {QUOTED}[ \t]*$|[a-z]\w*: [\w.+-]+[ \t]*$|[a-z]\w*:? \{{[ \t]*$|\s*\}}[ \t]*$"
)
_OCTET = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_TWIML = re.compile(r"\s*(?:<\?xml[^<>]*>\s*)?<Response>\s*<(?:Message|Say|Gather)\b")  # to Twilio
_TOLD = re.compile(r"<(?:Message|Body|Say)\b[^<>]{0,300}>([^<>]*)</(?:Message|Body|Say)>")


def read_printed_object(text: str) -> Mapping[str, str] | None:
    """Return the fields of a printed object by name, the first letter small; None for other text.

    The result is empty for an object whose fields cannot be told apart.
    """
    if is_framework_repr(text):
        return None
    head = text[:_HEAD]
    opened = _OPEN.match(head)
    if opened is not None and text.rstrip()[-1:] == _PAIRS[opened[0].rstrip()[-1]]:
        return _fields(text, opened)
    if _FORM.match(head) and text.count("&") < _MAX_FIELDS and _FORM.fullmatch(text.strip()):
        return _known(_small(dict(parse_qsl(text.strip()))))
    if re.match(r"[a-z]\w*: \"", head):
        return _protobuf(text)
    if _TWIML.match(head):
        return {"answer": "\n".join(_TOLD.findall(text[:_MAX_PRINTED]))}
    return None


def _known(fields: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return fields if one of them is named as a question or an answer: others may be an answer."""
    names = {name.lower() for name in (*key_list("question"), *key_list("answer"))}
    return None if names.isdisjoint(name.lower() for name in fields) else fields


def _small(fields: Mapping[str, str]) -> dict[str, str]:
    return {name[:1].lower() + name[1:]: value for name, value in fields.items()}


def _fields(text: str, opened: re.Match[str]) -> Mapping[str, str]:
    """Split the fields of an object at the names that stand outside of its brackets."""
    names = _NAMES[opened.lastgroup or ""]
    if len(text) > _MAX_PRINTED:
        return {}
    inner = text.rstrip()[:-1].rstrip() if opened.lastgroup == "csharp" else text.rstrip()[:-1]
    found: list[tuple[str, int, int]] = []  # name, start of its mark, start of its value
    closing: list[str] = []
    at = opened.end()
    while at < len(inner):
        mark = names.match(inner, at) if not closing else None
        if mark is not None and (at == opened.end() or inner[at] in ", "):
            found.append((mark[1], mark.start(), mark.end()))
            at = mark.end()
            literal = _LITERAL.match(inner, at)
            at = literal.end() if literal is not None else at
            continue
        sign = inner[at]
        if sign in _PAIRS:
            closing.append(_PAIRS[sign])
        elif closing and sign == closing[-1]:
            closing.pop()
        elif sign in "])}":
            return {}
        at += 1
    if closing or len(found) > _MAX_FIELDS:
        return {}
    ends = [*(start for _, start, _ in found[1:]), len(inner)]
    values = {
        name: _unquoted(inner[start:end]) for (name, _, start), end in zip(found, ends, strict=True)
    }
    return _small({name: value for name, value in values.items() if value not in ("null", "None")})


def _unquoted(value: str) -> str:
    return unquote_repr(value) if re.fullmatch(QUOTED, value, re.DOTALL) else value


def _protobuf(text: str) -> Mapping[str, str] | None:
    lines = text[:_MAX_PRINTED].splitlines()
    if len(lines) < 2 or not all(_PROTOBUF.match(line.strip()) for line in lines if line.strip()):
        return None
    fields: dict[str, str] = {}
    depth = 0
    for line in (line.strip() for line in lines):
        depth += line.endswith("{") - (line == "}")
        name, _, value = line.partition(": ")
        if depth == 0 and value[:1] in ("'", '"'):
            octets = _OCTET.sub(_octet, value[1:-1].encode())
            fields[name] = octets.decode(errors="replace")
    return _known(fields)


def _octet(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if len(code) == 3:
        return bytes([int(code, 8) & 255])
    return {b"n": b"\n", b"t": b"\t", b"r": b"\r"}.get(code, code)
