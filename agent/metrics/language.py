"""Identify the language of a text by the commonest words of languages, without a model.

On real sentences of 30 languages this is as good as the small libraries for it, and several times
as fast: see docs/metrics.md. A text that is too short to tell has no language.
"""

from __future__ import annotations

from collections import Counter

from ragmeter.core.score import NoScore
from ragmeter.metrics.text import detect_script, load_yaml, tokenize
from ragmeter.trace import Trace

LANGUAGES = load_yaml("languages.yaml")
ENGLISH_CODE = "en"
OTHER = "other"  # a language that has no name here, another script among them
UNKNOWN = ""  # too short, or no words at all

_READ_CHARS = 400  # of a text: two sentences are enough
_FEW_ENGLISH = 4  # different English words; no other text has them in its opening
_WORDS = {code: words.split() for code, words in LANGUAGES["words"].items()}
_ENGLISH = frozenset(_WORDS.pop(ENGLISH_CODE))
_CODES: dict[str, list[str]] = {}
for _code, _words in _WORDS.items():
    for _word in _words:
        _CODES.setdefault(_word, []).append(_code)
_ORDER = {code: -place for place, code in enumerate(_WORDS)}
_LONG = 25  # words: English prose of this length without one of its commonest words is very rare
# Least shares of lower-case words: names are of all languages, and a list of them has no other words.
_PROSE, _SOME_PROSE = 0.7, 0.4


def identify_language(text: str) -> str:
    """Return the language of the opening of a text.

    Returns:
        An ISO 639-1 code, `OTHER` or `UNKNOWN`. Nearly related languages may be taken for each
        other, but hardly ever for English.
    """
    script = detect_script(text)
    if script != "latin":
        return OTHER if script else UNKNOWN
    words = tokenize(text[:_READ_CHARS])
    if len(_ENGLISH.intersection(words)) >= _FEW_ENGLISH:
        return ENGLISH_CODE
    counts: Counter[str] = Counter()
    for word in words:
        counts.update(_CODES.get(word, ()))
    english = sum(map(_ENGLISH.__contains__, words))
    # letters of other alphabets speak for another language where no list has the word
    accented = sum([not word.isascii() and word not in _CODES for word in words])
    best, count = max(counts.items(), key=lambda item: (item[1], _ORDER[item[0]]), default=("", 0))
    if english >= max(2, 2 * count):
        return ENGLISH_CODE
    lower = [word[0].islower() for word in text[:_READ_CHARS].split()]
    prose = sum(lower) / max(1, len(lower))
    if count and count + accented / 2 >= max(1.5, 2 * english) and prose >= _SOME_PROSE:
        return best
    foreign = accented >= max(3, len(words) / 5, 3 * english) and prose >= _SOME_PROSE
    foreign = foreign or (not english and len(words) >= _LONG and prose >= _PROSE)
    return OTHER if foreign else UNKNOWN
