"""Words, numbers and sentences of a text, and how rare a word is: what every scorer reads."""

from __future__ import annotations

import json
import math
import re
from importlib import resources

__all__ = [
    "MAX_CHARS",
    "STOP",
    "clock_and_plain_numbers",
    "idf",
    "script",
    "sentence_spans",
    "stem",
    "stems",
    "tokens",
]

MAX_CHARS = 60_000  # characters read of all passages together: bounds the work on huge retrievals
MEMO_LIMIT = 200_000  # distinct words remembered (about 30 MB); then the memory starts anew

_TABLE = {i: (chr(i).lower() if chr(i).isalnum() else " ") for i in range(128)}
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)

STOP = frozenset(
    re.findall(
        r"\w+",
        """a about above after again all also am an and any are as at be been being both but by can
        could did do does doing down during each either few for from further had has have having he
        her here hers him his how however i if in into is it its itself just ll may me might more
        most must my nor not now of off on once one only or other our out over own per re s same
        she should so some such t than that the their theirs them then there these they this those
        through thus to too under until up upon us very was we were what when where whether which
        while who whom whose why will with within would you your don isn aren wasn doesn didn m ve
        d via yet""",
    )
)


def tokens(text: str) -> list[str]:
    """Lower-case words of letters and digits, in order; linear in the text."""
    if text.isascii():
        return text.translate(_TABLE).split()
    words: list[str] = _WORD.findall(text.lower())
    if _UNSPACED.search(text):
        return [piece for word in words for piece in _pieces(word)]
    return words


def _pieces(word: str) -> list[str]:
    """Character bigrams of a run written without spaces (Chinese, Japanese, Thai, …)."""
    if len(word) < 3 or not _UNSPACED.search(word):
        return [word]
    return [word[i : i + 2] for i in range(len(word) - 1)]


def script(text: str) -> str:
    """ "latin", "other" or "" (no letters), by the first thousand characters."""
    sample = text[:1000]
    if sample.isascii():
        return "latin" if any(c.isalpha() for c in sample) else ""
    letters = [c for c in sample if c.isalpha()]
    if not letters:
        return ""
    return "latin" if 2 * sum(c < "\u0250" for c in letters) >= len(letters) else "other"


def _stem(word: str) -> str:
    """A light stem: enough that "parks", "parked" and "parking" meet, with no linguistics."""
    if len(word) < 4 or word[0].isdigit():
        return word
    for suffix, keep in (
        ("ations", 4),
        ("ation", 4),
        ("ments", 4),
        ("ment", 4),
        ("ities", 4),
        ("ity", 4),
        ("ings", 4),
        ("ing", 3),
        ("ions", 4),
        ("ion", 4),
        ("ies", 3),
        ("ness", 4),
        ("ers", 4),
        ("er", 4),
        ("edly", 4),
        ("ed", 3),
        ("ally", 4),
        ("ly", 4),
        ("ives", 4),
        ("ive", 4),
        ("al", 4),
        ("es", 3),
        ("s", 3),
        ("e", 3),
        ("y", 3),
    ):
        if word.endswith(suffix) and len(word) - len(suffix) >= keep:
            word = word[: -len(suffix)]
            break
    if word[-1] == word[-2] and len(word) > 4:
        word = word[:-1]
    return word[:9]


class _Stems(dict[str, str]):
    def __missing__(self, word: str) -> str:
        if len(self) >= MEMO_LIMIT:
            self.clear()
        found = self[word] = _stem(word)
        return found


_STEMS = _Stems()


def stem(word: str) -> str:
    """The stem of one lower-case word."""
    return _STEMS[word]


def stems(text: str) -> list[str]:
    """The stems of a text's words, in order."""
    return list(map(_STEMS.__getitem__, tokens(text)))


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
        self.update(dict.fromkeys((_STEMS[word] for word in STOP), 0.0))

    def __missing__(self, word: str) -> float:
        return self.rarest


idf = _Idf()
"""Background rarity of a stem: 0 for a stop word, about 8 for a word never seen."""

# A citation marker right after the full stop belongs to the sentence before it. No pattern starts
# with an open repetition: a megabyte of spaces is scanned once.
_BREAK = re.compile(
    r"[.!?][\"'”’)\]]{0,3}(?:\s?[\[【][^\[\]【】\n]{1,40}[\]】]){0,5}(?=\s)"
    r"|[。！？][\"'”’)\]]{0,3}(?:[\[【][^\[\]【】\n]{1,40}[\]】]){0,5}|\n"
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|etc|e\.g|i\.e|cf|No|Inc|Ltd|Co|Fig|al|approx"
    r"|U\.S|U\.K|Gov|Sen|Rep|Gen|a\.m|p\.m|\d{1,2})\.\Z"
)
MAX_SENTENCES = 300


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Sentences and list items as [start, end), without surrounding space; empty ones left out."""
    spans: list[tuple[int, int]] = []
    start = 0

    def add(end: int) -> None:
        piece = text[start:end]
        inner = piece.strip()
        if inner:
            first = start + len(piece) - len(piece.lstrip())
            spans.append((first, first + len(inner)))

    for match in _BREAK.finditer(text):
        at = match.start()
        alone = text[at] == "." and match.end() == at + 1
        if alone and _ABBREVIATION.search(text, max(start, at - 8), at + 1):
            continue
        add(match.end())
        start = match.end()
        if len(spans) >= MAX_SENTENCES:
            return spans
    add(len(text))
    return spans


_NUMBER = re.compile(
    r"(?<![\w.])(\d{1,15}(?:,\d{3}){0,5}(?:\.\d{1,10})?)(?::(\d{1,2}))?(?:\s?([ap])\.?m\b)?",
)


def clock_and_plain_numbers(text: str) -> list[tuple[str, int, int]]:
    """Numbers as (canonical form, start, end).

    "1,000.0" is "1000". A time of day is "t" and its minutes modulo twelve hours, so that
    "5:30 PM", "17:30" and "5.30pm" written as "5:30pm" meet.
    """
    out: list[tuple[str, int, int]] = []
    for match in _NUMBER.finditer(text):
        whole, minutes, half = match.groups()
        if minutes is not None or half is not None:
            hours = int(float(whole.replace(",", "")))
            form = f"t{(hours * 60 + int(minutes or 0)) % 720}"
        else:
            form = whole.replace(",", "")
            if "." in form:
                form = form.rstrip("0").rstrip(".")
            form = form.lstrip("0") or "0"
        out.append((form, match.start(), match.end()))
    return out
