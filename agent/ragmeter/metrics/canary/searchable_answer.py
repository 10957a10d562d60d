"""Look up phrases and numbers in an answer."""

from __future__ import annotations

import unicodedata

from ragmeter.metrics.numbers import find_numbers
from ragmeter.metrics.words import normalise_text, separate_scripts, split_words

MAX_ANSWER_CHARS = 60_000  # bounds the work on hostile answers
_CURRENCY = "$€£¥"
_MINUS = "-−"


def signed_numbers(text: str) -> set[str]:
    """Return the numbers of a text in canonical form, with their sign: "$1,204.50" is "1204.5".

    A minus after a letter, digit or bracket is no sign: "5-10" and "C-1" have no negative numbers.
    Percent signs are ignored. Times are as in `kernel.find_numbers`.
    """
    lower = separate_scripts(text[:MAX_ANSWER_CHARS]).lower()
    forms: set[str] = set()
    for start, _, form in find_numbers(lower):
        before = start - 1
        if before >= 0 and lower[before] in _CURRENCY:
            before -= 1
        if before >= 0 and lower[before] in _MINUS and form != "0":
            earlier = lower[before - 1] if before else " "
            if not earlier.isalnum() and earlier not in _MINUS + ")]":
                form = f"-{form}"
        forms.add(form)
    return forms


def number_values(forms: set[str]) -> list[float]:
    """Return canonical forms as floats, without times of day."""
    return [float(form) for form in forms if "t" not in form]


def _normalise_words(text: str) -> str:
    return separate_scripts(unicodedata.normalize("NFC", text))


class SearchableAnswer:
    """An answer that phrases and numbers are looked up in.

    `length` is in words, by white space if the text has any.
    """

    def __init__(self, text: str) -> None:
        self.text = text[:MAX_ANSWER_CHARS]
        self._plain, self._unspaced = normalise_text(_normalise_words(self.text))
        words = split_words(self._plain, self._unspaced)
        self.words = frozenset(words)
        self.length = len(words) if self._unspaced else len(self.text.split())
        self._line = f" {' '.join(words)} "
        self._run = "".join(self._plain.split()) if self._unspaced else ""
        self._numbers: set[str] | None = None

    @property
    def numbers(self) -> set[str]:
        """The numbers of the text, as of `signed_numbers`."""
        if self._numbers is None:
            self._numbers = signed_numbers(self.text)
        return self._numbers

    def holds(self, phrase: str) -> bool | None:
        """Return whether the text has the words of a phrase in a row, ignoring case and signs.

        A phrase without a word gives None.
        """
        bare, unspaced = normalise_text(_normalise_words(phrase[:MAX_ANSWER_CHARS]))
        words = split_words(bare, unspaced)
        if not words:
            return None
        if unspaced:
            # bigrams miss a phrase of one character
            return "".join(bare.split()) in self._run
        return f" {' '.join(words)} " in self._line
