"""The sentences of a text."""

from __future__ import annotations

from ragmeter.metrics import kernel

MAX_SENTENCES = kernel.MAX_SENTENCES
find_sentence_spans = kernel.find_sentence_spans
