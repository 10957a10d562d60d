"""Words, numbers and sentences of a text, and how rare a word is."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from importlib import resources
from sys import intern

from ragmeter.core.files import load_yaml

try:
    from ragmeter.metrics import compiled as compiled
except ImportError:  # installed from source without a compiler
    compiled = None  # type: ignore[assignment]

MAX_TEXT_CHARS = 60_000  # read of all passages together: bounds the work on huge retrievals
_MAX_SIGNS = 60  # different signs beyond ASCII that are replaced one by one
_STEM_CACHE_LIMIT = 200_000  # words (about 30 MB); beyond it the cache is cleared
_STEM_CACHE_WORD_CHARS = 40  # longer words hardly come back
MAX_SENTENCES = 300  # of one text

_ASCII = bytes(range(128))
_PLAIN = bytes(ord(chr(i).lower() if chr(i).isalnum() else " ") for i in range(128))
_PLAIN += bytes(range(128, 256))  # lower-case ASCII, spaces for its signs, the rest as it is
_SIGNS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_UNSPACED = re.compile(f"[{_SIGNS}]")
_BORDER = re.compile(rf"(?<=[{_SIGNS}])(?=[^{_SIGNS}\W])|(?<=[^{_SIGNS}\W])(?=[{_SIGNS}])")


# Word lists and patterns.
ENGLISH = load_yaml(__package__, "english.yaml")
STOP_WORDS = frozenset(ENGLISH["stop_words"].split())
NEGATIONS = frozenset(ENGLISH["negations"].split())
# by their last letter, as most words end in none of them
_SUFFIXES: dict[str, list[tuple[str, int]]] = {}
for _suffix, _keep in ENGLISH["suffixes"].items():
    _SUFFIXES.setdefault(_suffix[-1], []).append((_suffix, _keep))


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


def detect_script(text: str) -> str:
    """Return "latin", "other" or "" (no letters), judged by the first 200 characters."""
    sample = text[:200]
    if sample.isascii():
        return "latin" if any(c.isalpha() for c in sample) else ""
    letters = "".join(filter(str.isalpha, sample))
    if not letters:
        return ""
    return "latin" if 2 * sum(map("\u0250".__gt__, letters)) >= len(letters) else "other"


def stem_word(word: str) -> str:
    """Return a light stem of a lower-case word: one for "parks", "parked" and "parking"."""
    if len(word) < 4 or word[0].isdigit():
        return word
    for suffix, keep in _SUFFIXES.get(word[-1], ()):
        if word.endswith(suffix) and len(word) - len(suffix) >= keep:
            word = word[: -len(suffix)]
            break
    if word[-1] == word[-2] and len(word) > 4:
        word = word[:-1]
    return word[:9]


class _StemCache(dict[str, str]):
    """Maps a word to its stem, one of `skipped` to "". Words repeat, so most are looked up in C."""

    def __init__(self, skipped: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.skipped = skipped

    def __missing__(self, word: str) -> str:
        stem = "" if word in self.skipped else intern(stem_word(word))
        if len(word) <= _STEM_CACHE_WORD_CHARS:
            if len(self) >= _STEM_CACHE_LIMIT:
                self.clear()
            self[word] = stem
        return stem


_CONTENT_STEMS = _StemCache(STOP_WORDS)
_ALL_STEMS = _StemCache()


def content_stem(word: str) -> str:
    """Return the stem of a word, "" of a stop word."""
    return "" if word in STOP_WORDS else stem_word(word)


def content_stems(words: Iterable[str]) -> list[str]:
    """Return the stems of the words that are no stop words, in order."""
    return list(filter(None, map(_CONTENT_STEMS.__getitem__, words)))


def stem_set(words: Iterable[str]) -> set[str]:
    """Return the stems of the words, stop words included."""
    return set(map(_ALL_STEMS.__getitem__, words))


class _Idf(dict[str, float]):
    """log(N / df) by stem, from the background table; a stem outside it counts as the rarest."""

    def __init__(self) -> None:
        super().__init__()
        table = json.loads(resources.files(__package__).joinpath("background.json").read_text())
        total = float(table["documents"])
        self.rarest = round(math.log(total / 2), 3)
        for df, words in table["stems"].items():
            value = round(math.log(total / float(df)), 3)
            self.update(dict.fromkeys(words.split(), value))

    def __missing__(self, word: str) -> float:
        return self.rarest


# Background rarity of a stem: 0 for a stop word, about 8 for an unknown word.
idf = _Idf()


def compile_pattern(pattern: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    r"""Compile a pattern for any text and for ASCII: choose by `text.isascii()`.

    DIGIT and WORD stand in classes for `\d` and `\w`, whose tables of all Unicode take the engine
    two to three times as long as the ranges of ASCII.
    """
    words = {"DIGIT": (r"\d", "0-9"), "WORD": (r"\w", "A-Za-z0-9_")}
    any_text = ascii_text = pattern
    for name, (wide, narrow) in words.items():
        any_text = any_text.replace(name, wide)
        ascii_text = ascii_text.replace(name, narrow)
    return re.compile(any_text), re.compile(ascii_text)


NUMBER_PATTERN, _ASCII_NUMBER = compile_pattern(
    r"[DIGIT](?<![WORD.].)[DIGIT]{0,14}(?:,[DIGIT]{3}){0,5}(?:\.[DIGIT]{1,10})?(?::[DIGIT]{1,2})?"
    r"(?:\s?[ap]\.?m\b)?"
)


def find_numbers(text: str) -> list[str]:
    """Return the numbers of a lower-case text as they are written."""
    return (_ASCII_NUMBER if text.isascii() else NUMBER_PATTERN).findall(text)


@lru_cache(4_096)  # of at most 60 characters each
def canonical_number(raw: str) -> str:
    """Return the form that all ways to write a number share: "1,000.0" gives "1000".

    A time of day is "t" and its minutes modulo twelve hours: "5:30 pm" and "17:30" are the same.

    Args:
        raw: One of `find_numbers`.
    """
    if not raw.isascii():  # digits of other scripts, full width ones among them
        raw = "".join([str(unicodedata.decimal(c)) if c.isdecimal() else c for c in raw])
    if raw.isdecimal():
        return raw.lstrip("0") or "0"
    form = raw.replace(",", "")
    if ":" in form or form.endswith("m"):
        whole, _, rest = form.rstrip(" apm.").partition(":")
        return f"t{(int(float(whole)) * 60 + int(rest or 0)) % 720}"
    if "." in form:
        return form.rstrip("0").rstrip(".").lstrip("0") or "0"
    return form.lstrip("0") or "0"


def extract_numbers(text: str) -> list[tuple[str, str]]:
    """Return the numbers of a lower-case text as (canonical form, as written)."""
    return [(canonical_number(raw), raw) for raw in find_numbers(text)]


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
