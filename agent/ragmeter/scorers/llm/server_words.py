"""A server's own words on a failure, fit for a log: bounded, printable, without secrets or prompt.

The words of an error are often the only thing that says what to do ("input token count exceeds",
"model has been deprecated"). They are also text from outside that may quote the prompt or the key,
so nothing of either is let through.
"""

from __future__ import annotations

import re
from functools import cache

from ragmeter.core.redaction_rules import RedactionError, RedactionRule

# Of an error: its first sentence or two. What follows is mostly a quotation.
_WORDS_CHARS = 240

_UNDECODABLE = "\ufffd"
_MOST_UNDECODABLE = 10  # one of so many signs makes a text none

# Signs that a quotation of the prompt has in common with it.
_QUOTED_CHARS = 12

# Keys as servers show them: shortened or starred, so that no rule for whole keys finds them.
_PARTIAL_KEY = re.compile(
    r"\b(?:[a-z]{1,6}[-_])[\w*.\u2026-]*\*[\w*.-]*|\b[spr]k[-_][\w*.-]{4,}", re.I
)
# Long runs of letters and digits are ids or keys, and words have no digits in the middle.
_TOKEN = re.compile(r"\b(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[\w-]{24,}\b")


_TITLE = re.compile(r"<title[^>]*>([^<]{1,300})</title", re.I)
_TAGS = re.compile(r"<(style|script)\b.*?</\1\s*>|<[^>]*>", re.I | re.S)


def page_text(body: str) -> str:
    """Return the title of a web page, or its text where it has none; another text as it is."""
    if not body.lstrip("\ufeff \t\r\n").startswith("<"):
        return body
    title = _TITLE.search(body)
    return (title[1] if title else " ".join(_TAGS.sub(" ", body).split())).strip()


@cache
def _secrets() -> RedactionRule:
    # when it is needed: its patterns take some time to compile
    return RedactionRule("secret", None, None, timeout=0.25)


def printable_words(message: str) -> str:
    """Return the start of an error's text in one printable line, with secrets masked."""
    beginning = message[: 4 * _WORDS_CHARS]
    if beginning.count(_UNDECODABLE) * _MOST_UNDECODABLE > len(beginning):
        return "(bytes that are no text, as of a compressed reply without Content-Encoding)"
    line = " ".join(beginning.split())
    try:
        for start, end in reversed(_secrets().spans(line)):
            line = f"{line[:start]}[secret]{line[end:]}"
    except RedactionError:
        return ""
    line = _TOKEN.sub("[...]", _PARTIAL_KEY.sub("[secret]", line))
    line = "".join(char if char.isprintable() else _escaped(char) for char in line)
    return line if len(line) <= _WORDS_CHARS else f"{line[: _WORDS_CHARS - 3]}..."


def without_quotations(words: str, prompt: str) -> str:
    """Return the words without the parts that stand in the prompt: they are the trace's."""
    if not words:
        return words
    plain = " ".join(prompt.split()).lower()
    folded = words.lower()
    if len(folded) != len(words):  # some capital letters have two small ones
        return ""
    pieces = []
    place = 0
    while place < len(words):
        end = place + _QUOTED_CHARS
        if end <= len(words) and folded[place:end] in plain:
            while end < len(words) and folded[place : end + 1] in plain:
                end += 1
            pieces.append("[...]")
            place = end
        else:
            pieces.append(words[place])
            place += 1
    return "".join(pieces)


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"
