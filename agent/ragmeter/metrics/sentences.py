"""The sentences of a text."""

from __future__ import annotations

from ragmeter.metrics import kernel

MAX_SENTENCES = 300  # of one text; the kernel stops there

find_sentence_spans = kernel.find_sentence_spans
