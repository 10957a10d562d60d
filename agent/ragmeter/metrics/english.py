"""Lists of English words, of `english.yaml`."""

from __future__ import annotations

from ragmeter.core.files import load_yaml

ENGLISH = load_yaml(__package__, "english.yaml")
STOP_WORDS = frozenset(ENGLISH["stop_words"].split())
NEGATIONS = frozenset(ENGLISH["negations"].split())
