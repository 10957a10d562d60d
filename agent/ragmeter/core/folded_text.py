r"""Fold a text to the characters that a reader or a later step takes it for, with their places.

A search in the folded text finds what the text shows, however it is written: full-width or Arabic
digits, blanks and dashes of all kinds, invisible characters within a word, `&#64;`, `%40` or
`\u0040` for `@`. Each folded character knows where it stands in the text, so that a finding can be
replaced there and the rest stays as it came.
"""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import dataclass

# Control and format characters, surrogates, private use and tag characters: not seen by people,
# yet read by models. Kept: tab, line break, and the joiners U+200C and U+200D, which change words.
INVISIBLE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b"
    "\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\ud800-\udfff\ue000-\uf8ff\U000e0000-\U000e0fff\U000f0000-\U0010ffff"
)
_DROPPED = re.compile(f"[{INVISIBLE}\u200c\u200d]")
_LINE_BREAKS = "\r\x0b\x0c\x85\u2028\u2029"
# All that may change; a text without any of it is its own folded form.
_UNFOLDED = re.compile("[^\x09\x0a\x0d\x20-\x7e]|\r(?!\n)|(?<=[A-Za-z])-\r?\n(?=[a-z])")
# An escape of HTML, of an address or of JSON that stands for one character or a few.
_ESCAPE = re.compile(
    r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});"
    r"|(?:%[0-9a-fA-F]{2}){1,8}"
    r"|\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[\"'\\/@.:=_-]|[bfnrt](?![A-Za-z]{2}))"
)
_UNFOLDED_OR_ESCAPE = re.compile(f"{_UNFOLDED.pattern}|{_ESCAPE.pattern}")
_JSON_ESCAPES = {"b": "", "f": "\n", "n": "\n", "r": "\n", "t": "\t"}


@dataclass(frozen=True, slots=True)
class FoldedText:
    """A folded text.

    Attributes:
        text: The folded characters.
        places: For each of them the (start, end) that it has in the original; None where both
            texts are the same.
    """

    text: str
    places: list[tuple[int, int]] | None = None

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the place in the original of what stands from `start` to `end`, not empty."""
        if self.places is None:
            return start, end
        return self.places[start][0], self.places[end - 1][1]


def fold_text(text: str) -> FoldedText:
    """Return the folded form of a text."""
    return FoldedText(text) if _UNFOLDED.search(text) is None else _fold(text, _UNFOLDED)


def unescape_text(text: str) -> FoldedText | None:
    """Return the folded form of a text whose escapes are resolved; None for one without escapes."""
    if ("&" in text or "%" in text or "\\" in text) and _ESCAPE.search(text):
        return _fold(text, _UNFOLDED_OR_ESCAPE)
    return None


def _fold(text: str, unfolded: re.Pattern[str]) -> FoldedText:
    folded: list[str] = []
    places: list[tuple[int, int]] = []
    at = 0
    for match in unfolded.finditer(text):
        start, end = match.span()
        folded.extend(text[at:start])
        places.extend(zip(range(at, start), range(at + 1, start + 1), strict=True))
        at = end
        piece = match[0]
        if piece[0] == "-":  # a word that was broken at the end of a line
            continue
        if piece[0] in "&%\\":
            piece = _unescaped(piece)
        for char in piece:
            _add(folded, places, char, (start, end))
    folded.extend(text[at:])
    places.extend(zip(range(at, len(text)), range(at + 1, len(text) + 1), strict=True))
    return FoldedText("".join(folded), places)


def _add(
    folded: list[str], places: list[tuple[int, int]], char: str, place: tuple[int, int]
) -> None:
    if " " <= char <= "~" or char in "\t\n":
        folded.append(char)
        places.append(place)
        return
    if char in _LINE_BREAKS:
        plain = "\n"
    elif _DROPPED.match(char):
        return
    elif unicodedata.category(char) in ("Mn", "Me"):
        if not folded:
            return
        joined = unicodedata.normalize("NFC", folded[-1] + char)
        if len(joined) == 1:
            folded[-1] = joined
        elif not folded[-1].isascii():
            folded.append(char)
            places.append(place)
            return
        places[-1] = (places[-1][0], place[1])  # a mark over or around a plain sign
        return
    else:
        plain = _plain(char)
    for one in plain:
        folded.append(one)
        places.append(place)


def _plain(char: str) -> str:
    if char.isdecimal():
        return str(unicodedata.decimal(char))
    kind = unicodedata.category(char)
    if kind == "Pd" or char == "\u2212":
        return "-"
    if kind == "Zs":
        return " "
    return unicodedata.normalize("NFKC", char)


def _unescaped(escape: str) -> str:
    if escape[0] == "&":
        return html.unescape(escape)
    if escape[0] == "%":
        return bytes.fromhex(escape.replace("%", "")).decode("utf-8", "replace")
    if escape[1] in "ux" and len(escape) > 2:
        return chr(int(escape[2:], 16))
    return _JSON_ESCAPES.get(escape[1], escape[1])
