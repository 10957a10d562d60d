"""What an answer says, word by word and number by number: what the canary formulas look in."""

from __future__ import annotations

import unicodedata

from agent.metrics.words import NUMBER, canonical_number, plain, scripts_apart, split

__all__ = ["MAX_CHARS", "Said", "numbers", "values"]

MAX_CHARS = 60_000  # characters of a text that are read: bounds the work on hostile answers

_CURRENCY = "$€£¥"
_MINUS = "-−"


def numbers(text: str) -> set[str]:
    """The numbers of a text in canonical form, with their sign: "$1,204.50" is "1204.5".

    A minus counts where no letter, digit or bracket stands before it: "5-10" and "C-1" are no
    negative numbers. A percent sign is not looked at. Times are as in `canonical_number`.
    """
    lower = scripts_apart(text[:MAX_CHARS]).lower()
    out: set[str] = set()
    for found in NUMBER.finditer(lower):
        form = canonical_number(found.group())
        before = found.start() - 1
        if before >= 0 and lower[before] in _CURRENCY:
            before -= 1
        if before >= 0 and lower[before] in _MINUS and form != "0":
            earlier = lower[before - 1] if before else " "
            if not earlier.isalnum() and earlier not in _MINUS + ")]":
                form = f"-{form}"
        out.add(form)
    return out


def values(forms: set[str]) -> list[float]:
    """The numbers as numbers; times of day are none."""
    return [float(form) for form in forms if "t" not in form]


def _normal(text: str) -> str:
    return scripts_apart(unicodedata.normalize("NFC", text))


class Said:
    """A text, read once."""

    def __init__(self, text: str) -> None:
        self.text = text[:MAX_CHARS]
        self._plain, self._unspaced = plain(_normal(self.text))
        words = split(self._plain, self._unspaced)
        self.words = frozenset(words)
        self.length = len(words) if self._unspaced else len(self.text.split())
        """Words, by white space where the text has any."""
        self._line = f" {' '.join(words)} "
        self._run = "".join(self._plain.split()) if self._unspaced else ""
        self._numbers: set[str] | None = None

    @property
    def numbers(self) -> set[str]:
        if self._numbers is None:
            self._numbers = numbers(self.text)
        return self._numbers

    def holds(self, phrase: str) -> bool | None:
        """Whether the words of the phrase stand in the text in a row, whatever the case and the
        signs between them; None where the phrase has no word."""
        bare, unspaced = plain(_normal(phrase[:MAX_CHARS]))
        words = split(bare, unspaced)
        if not words:
            return None
        if unspaced:
            # pairs of signs miss a phrase of one sign
            return "".join(bare.split()) in self._run
        return f" {' '.join(words)} " in self._line
