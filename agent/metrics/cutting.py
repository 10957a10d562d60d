"""Cuts a text into overlapping windows of at most so many tokens; every character is in one."""

from __future__ import annotations

import re
from collections.abc import Callable

from agent.metrics.sentences import MAX_SENTENCES, sentence_spans

__all__ = ["Count", "TooLong", "pieces", "windows"]

Count = Callable[[str], int]
"""Tokens of a text."""

Span = tuple[int, int]

# Where a sentence that is too long is cut, best place first: after a clause, between two words.
_BORDERS = (re.compile(r"[,;:)\]}|]\s+"), re.compile(r"\s+"))
SURELY_LONG = 16  # characters a token: a text of more is cut in two before anyone counts its tokens


class TooLong(Exception):
    """A text that cannot be read whole within the bounds."""


def _middle(text: str, start: int, end: int) -> int:
    """Where to cut [start, end) in two: the border nearest to the middle, of the middle half."""
    middle, quarter = (start + end) // 2, (end - start) // 4
    for border in _BORDERS:
        found = border.finditer(text, middle - quarter, middle + quarter)
        places = [match.end() for match in found if start < match.end() < end]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return middle


def pieces(text: str, span: Span, most: int, count: Count) -> list[Span]:
    """The span in pieces of at most `most` tokens that lie side by side.

    Raises `TooLong` where a single character has more.
    """
    todo, out = [span], []
    while todo:
        start, end = todo.pop()
        if end - start <= SURELY_LONG * most and count(text[start:end]) <= most:
            out.append((start, end))
        elif end - start < 2:
            raise TooLong
        else:
            cut = _middle(text, start, end)
            todo += [(cut, end), (start, cut)]
    return out


def _sentences(text: str) -> list[Span]:
    """Sentences with the space before them, side by side from the first character to the last."""
    ends: list[int] = []
    offset = 0
    while True:
        spans = sentence_spans(text[offset:])
        ends += [offset + end for _, end in spans]
        if len(spans) < MAX_SENTENCES:
            break
        offset = ends[-1]
    ends[-1:] = [len(text)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def windows(
    text: str, most: int, overlap: int, count: Count, fits: Callable[[str], bool]
) -> list[Span]:
    """Spans of at most `most` tokens that together hold every character, in order; all `fits`.

    A window ends where a sentence does, if one ends in it past its first `overlap` tokens, and the
    next one begins with its last `overlap` tokens or somewhat fewer. So any stretch of half of
    `overlap` is whole in some window, and any sentence of `most` less one and a half times
    `overlap`. `most` must be at least twice `overlap`.
    The text must not be blank. Raises `TooLong` where a piece does not fit though its size says so.
    """
    atoms: list[Span] = []
    sizes: list[int] = []
    closing: set[int] = set()  # atoms that end a sentence
    for sentence in _sentences(text):
        for start, end in pieces(text, sentence, overlap // 2, count):
            atoms.append((start, end))
            sizes.append(count(text[start:end]))
        closing.add(len(atoms) - 1)
    out: list[Span] = []
    first = fresh = 0  # where the window begins, and what no window has held yet
    while True:
        last, total = first, sizes[first]
        while last + 1 < len(atoms) and total + sizes[last + 1] <= most:
            last += 1
            total += sizes[last]
        # a tokenizer may need more for the whole than for its parts
        while not fits(text[atoms[first][0] : atoms[last][1]]):
            last -= 1
            if last < fresh:
                raise TooLong
        if last + 1 == len(atoms):
            return [*out, (atoms[first][0], atoms[last][1])]
        # no window of less than the overlap: the next one would hold it all
        for at in range(last, fresh - 1, -1):
            if at in closing and sum(sizes[first : at + 1]) > overlap:
                last = at
                break
        out.append((atoms[first][0], atoms[last][1]))
        begun, first, shared = first, last + 1, 0
        while first - 1 > begun and shared + sizes[first - 1] <= overlap:
            first -= 1
            shared += sizes[first]
        fresh = last + 1
