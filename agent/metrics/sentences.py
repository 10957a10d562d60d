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
MAX_SENTENCES = 300


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Sentences and list items as [start, end), without surrounding space; empty ones left out."""
    spans: list[tuple[int, int]] = []
    start = 0

    def add(end: int) -> None:
        piece = text[start:end]
        inner = piece.strip()
        if inner:
            first = start + len(piece) - len(piece.lstrip())
            spans.append((first, first + len(inner)))

    size = len(text)
    for match in _BREAK.finditer(text):
        at, end = match.span()
        sign = text[at]
        if sign == "\n":
            end = at + 1
        elif sign in ".!?":
            if end < size and not text[end].isspace():
                continue
            if sign == "." and end == at + 1 and _abbreviates(text, start, at):
                continue
        add(end)
        start = end
        if len(spans) >= MAX_SENTENCES:
            return spans
    add(size)
    return spans


def _abbreviates(text: str, start: int, at: int) -> bool:
    return _ABBREVIATION.search(text, max(start, at - 8), at + 1) is not None
