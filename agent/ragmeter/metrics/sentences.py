"""The sentences of a text."""

from __future__ import annotations

import re

from ragmeter.metrics.english import ENGLISH
from ragmeter.metrics.kernel import compiled

MAX_SENTENCES = 300  # of one text

# A citation marker right after the full stop belongs to the sentence before it. Patterns begin
# with one character class, which the engine looks for fast, and repeat within bounds: a megabyte
# of spaces or brackets is scanned once.
_BREAK = (
    re.compile(
        r"[.!?。！？\n](?:[\"'”’)\]]{0,3}(?:\s? {0,3}[\[【][^\[\]【】\n]{1,40}[\]】]){0,5})?"
    ),
    re.compile(r"[.!?\n](?:[\"')\]]{0,3}(?:\s? {0,3}\[[^\[\]\n]{1,40}\]){0,5})?"),  # for ASCII
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|cf|No|Inc|Ltd|Co|Fig|al|approx"
    r"|U\.S|U\.K|Gov|Sen|Rep|Gen|a\.m|p\.m)\.\Z|^\s*\d{1,2}\.\Z"
)
_SHORT_SENTENCE = frozenset(ENGLISH["abbreviation_ends"].split())


def _find_sentence_spans(text: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    start = 0
    size = len(text)
    for at, end in [match.span() for match in _BREAK[text.isascii()].finditer(text)]:
        sign = text[at]
        if sign == "\n":
            end = at + 1
        elif sign in ".!?":
            if end < size and not text[end].isspace():
                continue
            if (
                sign == "."
                and end == at + 1
                and (text[max(0, at - 2) : at] in _SHORT_SENTENCE or not text[at - 1].islower())
                and _ABBREVIATION.search(text[max(start, at - 8) : end])
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


def find_sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return sentences and list items as [start, end) without surrounding space, empty ones not."""
    if compiled is None:
        return _find_sentence_spans(text)
    return compiled.find_sentence_spans(
        text, text.isascii(), _SHORT_SENTENCE, _ABBREVIATION.search, MAX_SENTENCES
    )
