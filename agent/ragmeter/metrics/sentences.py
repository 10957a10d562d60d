"""The sentences of a text."""

from __future__ import annotations

import re

from ragmeter.metrics import kernel
from ragmeter.metrics.english import ENGLISH

MAX_SENTENCES = 300  # of one text

_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|cf|No|Inc|Ltd|Co|Fig|al|approx"
    r"|U\.S|U\.K|Gov|Sen|Rep|Gen|a\.m|p\.m)\.\Z|^\s*\d{1,2}\.\Z"
)
_SHORT_SENTENCE = frozenset(ENGLISH["abbreviation_ends"].split())


def find_sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return sentences and list items as [start, end) without surrounding space, empty ones not."""
    return kernel.find_sentence_spans(
        text, text.isascii(), _SHORT_SENTENCE, _ABBREVIATION.search, MAX_SENTENCES
    )
