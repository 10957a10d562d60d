"""The words of a text: letters and digits in lower case, bigrams of scripts without spaces."""

from __future__ import annotations

import re

_MAX_SIGNS = 60  # different signs beyond ASCII that are replaced one by one
_ASCII = bytes(range(128))
_PLAIN = bytes(ord(chr(i).lower() if chr(i).isalnum() else " ") for i in range(128))
_PLAIN += bytes(range(128, 256))  # lower-case ASCII, spaces for its signs, the rest as it is
_SIGNS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_UNSPACED = re.compile(f"[{_SIGNS}]")
_BORDER = re.compile(rf"(?<=[{_SIGNS}])(?=[^{_SIGNS}\W])|(?<=[^{_SIGNS}\W])(?=[{_SIGNS}])")


def normalise_text(text: str) -> tuple[str, bool]:
    """Lower the case of a text and replace all but letters and digits by spaces.

    This works on bytes in C, several times quicker than `str.translate`.

    Returns:
        The text, as long as before unless lower case changes its length, as it does for "İ"; and
        whether a part of it is in a script written without spaces.
    """
    if text.isascii():
        return text.encode().translate(_PLAIN).decode(), False
    text = text.lower()
    raw = text.encode("utf-8", "surrogatepass")
    odd = raw.translate(None, _ASCII).decode("utf-8", "surrogatepass")
    signs = [sign for sign in set(odd) if not sign.isalnum()]
    if len(signs) <= _MAX_SIGNS:
        for sign in signs:
            raw = raw.replace(sign.encode("utf-8", "surrogatepass"), b" ")
    else:
        table = dict.fromkeys(map(ord, signs), " ")
        raw = text.translate(table).encode("utf-8", "surrogatepass")
    return raw.translate(_PLAIN).decode("utf-8", "surrogatepass"), bool(_UNSPACED.search(odd))


def split_words(text: str, unspaced: bool) -> list[str]:
    """Split the text that `normalise_text` returned into words."""
    if unspaced:
        return [piece for word in text.split() for piece in _pieces(word)]
    return text.split()


def tokenize(text: str) -> list[str]:
    """Return the lower-case words of letters and digits, in order; linear in the text."""
    return split_words(*normalise_text(text))


class WordCutter:
    """Tokenizes pieces of a text: it is normalised once and cut.

    Where a script has no spaces or lower case changes the length, each piece is normalised.
    """

    __slots__ = ("_flat", "_spaced", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._flat = ""
        self._spaced = True

    def cut(self, start: int, end: int) -> list[str]:
        """Return the words of [start, end)."""
        if not self._flat and self._text:
            self._flat, unspaced = normalise_text(self._text)
            self._spaced = not unspaced and len(self._flat) == len(self._text)
        if self._spaced:
            return self._flat[start:end].split()
        return tokenize(self._text[start:end])


def _pieces(word: str) -> list[str]:
    """Character bigrams of a run written without spaces (Chinese, Japanese, Thai, …)."""
    if len(word) < 3 or not _UNSPACED.search(word):
        return [word]
    return [word[i : i + 2] for i in range(len(word) - 1)]


def separate_scripts(text: str) -> str:
    """Insert a space where a script without spaces meets another one or digits.

    "用VPN连接14天" then has the word VPN and the number 14.
    """
    return text if text.isascii() else _BORDER.sub(" ", text)
