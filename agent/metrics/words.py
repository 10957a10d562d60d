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
    "content_stems",
    "idf",
    "script",
    "sentence_spans",
    "stem",
    "stems",
    "tokens",
]

MAX_CHARS = 60_000  # characters read of all passages together: bounds the work on huge retrievals
MAX_SIGNS = 60  # different signs of a text that are taken out one by one
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
    text = text.lower()
    signs = {sign for sign in set(text) if not sign.isalnum()}
    if len(signs) <= MAX_SIGNS:
        for sign in signs:  # each a scan in C, together quicker than the pattern
            text = text.replace(sign, " ")
        words = text.split()
    else:
        words = _WORD.findall(text)
    if _UNSPACED.search(text):
        return [piece for word in words for piece in _pieces(word)]
    return words


def _pieces(word: str) -> list[str]:
    """Character bigrams of a run written without spaces (Chinese, Japanese, Thai, …)."""
    if len(word) < 3 or not _UNSPACED.search(word):
        return [word]
    return [word[i : i + 2] for i in range(len(word) - 1)]


def script(text: str) -> str:
    """ "latin", "other" or "" (no letters), by the first 200 characters."""
    sample = text[:200]
    if sample.isascii():
        return "latin" if any(c.isalpha() for c in sample) else ""
    letters = "".join(filter(str.isalpha, sample))
    if not letters:
        return ""
    return "latin" if 2 * sum(map("\u0250".__gt__, letters)) >= len(letters) else "other"


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


_MEMO: dict[str, str] = dict.fromkeys(STOP, "")  # word -> stem; "" for a stop word


def _learn(words: list[str]) -> None:
    if len(_MEMO) >= MEMO_LIMIT:
        _MEMO.clear()
        _MEMO.update(dict.fromkeys(STOP, ""))
    for word in words:
        if word not in _MEMO:
            _MEMO[word] = _stem(word)


def stem(word: str) -> str:
    """The stem of one lower-case word, a stop word's too."""
    return _stem(word)


def stems(text: str) -> list[str]:
    """The stems of all words of a text, in order."""
    return list(map(_stem, tokens(text)))


def content_stems(words: list[str]) -> list[str]:
    """The stems of those words that are no stop words, in order. Known words are looked up in C."""
    found = list(map(_MEMO.get, words))
    if None in found:
        _learn(words)
        # another thread may have started the memory anew: what is gone is stemmed on the spot
        return [s for w in words if (s := _MEMO.get(w, None if w in STOP else _stem(w)))]
    return list(filter(None, found))


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


idf = _Idf()
"""Background rarity of a stem: 0 for a stop word, about 8 for a word never seen."""

# A citation marker right after the full stop belongs to the sentence before it. Patterns begin
# with one character class, which the engine looks for fast, and repeat within bounds: a megabyte
# of spaces or brackets is scanned once.
_BREAK = re.compile(r"[.!?。！？\n](?:[\"'”’)\]]{0,3}(?:\s?[\[【][^\[\]【】\n]{1,40}[\]】]){0,5})?")
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

    size = len(text)
    for match in _BREAK.finditer(text):
        at, end = match.span()
        sign = text[at]
        if sign == "\n":
            end = at + 1
        elif sign in ".!?":
            if end < size and not text[end].isspace():
                continue
            if sign == "." and end == at + 1 and _abbreviates(text, start, at):
                continue
        add(end)
        start = end
        if len(spans) >= MAX_SENTENCES:
            return spans
    add(size)
    return spans


def _abbreviates(text: str, start: int, at: int) -> bool:
    return _ABBREVIATION.search(text, max(start, at - 8), at + 1) is not None


_NUMBER = re.compile(
    r"\d(?<![\w.].)\d{0,14}(?:,\d{3}){0,5}(?:\.\d{1,10})?(?::\d{1,2})?(?:\s?[ap]\.?m\b)?"
)


def clock_and_plain_numbers(text: str) -> list[tuple[str, str]]:
    """Numbers of a lower-case text as (canonical form, as written).

    "1,000.0" is "1000". A time of day is "t" and its minutes modulo twelve hours, so that
    "5:30 pm", "17:30" and "5:30pm" meet.
    """
    out: list[tuple[str, str]] = []
    for raw in _NUMBER.findall(text):
        if raw.isdecimal() and raw.isascii():
            out.append((raw.lstrip("0") or "0", raw))
            continue
        form = raw.replace(",", "")
        if ":" in form or form.endswith("m"):
            whole, _, rest = form.rstrip(" apm.").partition(":")
            form = f"t{(int(float(whole)) * 60 + int(rest or 0)) % 720}"
        elif "." in form:
            form = form.rstrip("0").rstrip(".").lstrip("0") or "0"
        else:
            form = form.lstrip("0") or "0"
        out.append((form, raw))
    return out
