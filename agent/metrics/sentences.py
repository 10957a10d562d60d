"""Where the sentences and list items of a text begin and end."""

from __future__ import annotations

import re

__all__ = ["MAX_SENTENCES", "sentence_spans"]

# A citation marker right after the full stop belongs to the sentence before it. Patterns begin
# with one character class, which the engine looks for fast, and repeat within bounds: a megabyte
# of spaces or brackets is scanned once.
_BREAK = re.compile(r"[.!?。！？\n](?:[\"'”’)\]]{0,3}(?:\s?[\[【][^\[\]【】\n]{1,40}[\]】]){0,5})?")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|cf|No|Inc|Ltd|Co|Fig|al|approx"
    r"|U\.S|U\.K|Gov|Sen|Rep|Gen|a\.m|p\.m|\d{1,2})\.\Z"
)
# The last two letters of those abbreviations that end in a small one: a quick first look.
_SHORT = frozenset(
    re.findall(r"\S+", "Mr rs Ms Dr of St Jr Sr vs tc .g .e cf No nc td Co ig al ox ov en ep .m")
)
MAX_SENTENCES = 300


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Sentences and list items as [start, end), without surrounding space; empty ones left out."""
    spans: list[tuple[int, int]] = []
    start, size = 0, len(text)
    for at, end in [match.span() for match in _BREAK.finditer(text)]:
        sign = text[at]
        if sign == "\n":
            end = at + 1
        elif sign in ".!?":
            if end < size and not text[end].isspace():
                continue
            if (
                sign == "."
                and end == at + 1
                and (text[max(0, at - 2) : at] in _SHORT or not text[at - 1].islower())
                and _ABBREVIATION.search(text, max(start, at - 8), end)
            ):
                continue
        piece = text[start:end].lstrip()
        if piece:
            first = end - len(piece)
            spans.append((first, first + len(piece.rstrip())))
        start = end
        if len(spans) >= MAX_SENTENCES:
            return spans
    piece = text[start:].strip()
    if piece:
        first = size - len(text[start:].lstrip())
        spans.append((first, first + len(piece)))
    return spans
