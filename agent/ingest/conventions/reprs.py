"""The text forms of Python objects: what an instrumentor writes where it cannot write JSON.

An object's repr is never an answer. The text in it may be: where it is whole, it is taken out.
"""

from __future__ import annotations

import re

__all__ = ["QUOTED", "is_repr", "repr_role", "repr_text", "unquote"]

QUOTED = r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|.)", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "\n": ""}


def unquote(literal: str) -> str:
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
_MAX = 65_536  # characters searched for the text in a repr


def is_repr(text: str) -> bool:
    """Whether text is the text form of a message, an answer or a document."""
    head = text[:128]
    return _OBJECT.match(head) is not None or (
        head.lstrip().startswith("content=") and _BARE.match(text[:_MAX]) is not None
    )


def repr_role(text: str) -> str:
    """The role that a message's repr names, in lower case; "" where it names none."""
    head = text[:_MAX]
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
    head = text[:_MAX]
    found = _BARE.match(head) or _TEXT.search(head)
    return unquote(found[1]) or None if found is not None else None
