"""Identify the language of a text by the commonest words of languages, without a model.

On short real texts this takes English for another language less often than the small libraries do,
and is faster: see docs/metrics.md. A text that is too short to tell has no language.
"""

from __future__ import annotations

from collections import Counter

from ragmeter.core.files import load_yaml
from ragmeter.core.score import NoScore
from ragmeter.metrics.structured import looks_structured
from ragmeter.metrics.words import detect_script, tokenize
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

LANGUAGES = load_yaml(__package__, "languages.yaml")
ENGLISH_CODE = "en"
OTHER = "other"  # a language that has no name here, another script among them
UNKNOWN = ""  # too short, or no words at all

# Of texts that a scorer reads that was measured on English alone.
READ_BY_ENGLISH = frozenset((ENGLISH_CODE, UNKNOWN))
NOT_MEASURED = NoScore(Reason.LANGUAGE, applies=False)

_FIRST_CHARS = 200  # of a text: enough for most English
_READ_CHARS = 400  # of a text: two sentences are enough
_FEW_ENGLISH = 4  # different English words; no other text has them in its opening
_WORDS = {code: words.split() for code, words in LANGUAGES["words"].items()}
_ENGLISH = frozenset(_WORDS.pop(ENGLISH_CODE))
_CODES: dict[str, list[str]] = {}
for _code, _words in _WORDS.items():
    for _word in _words:
        _CODES.setdefault(_word, []).append(_code)
_LETTERS = {code: frozenset(signs) for code, signs in LANGUAGES["letters"].items()}
_ORDER = {code: -place for place, code in enumerate(_WORDS)}
_LONG = 20  # different words: English prose of so many without one of its commonest is very rare
# Least shares of lower-case words: names are of all languages, and a list has no other words.
_PROSE = 0.7
_SOME_PROSE = 0.4


def identify_language(text: str) -> str:
    """Return the language of the opening of a text.

    Returns:
        An ISO 639-1 code, `OTHER` or `UNKNOWN`. Nearly related languages may be taken for each
        other, but hardly ever for English.
    """
    if len(_ENGLISH.intersection(text[:_FIRST_CHARS].lower().split())) >= _FEW_ENGLISH:
        return ENGLISH_CODE  # most texts, quickly
    script = detect_script(text)
    if script != "latin":
        return OTHER if script else UNKNOWN
    words = set(tokenize(text[:_READ_CHARS]))
    english = len(_ENGLISH.intersection(words))
    listed = _CODES.keys() & words
    # letters of other alphabets speak for another language where no list has the word
    accented = [] if text.isascii() else [w for w in words - listed if not w.isascii()]
    best = ""
    count = 0
    if listed or accented:
        counts = Counter(code for word in listed for code in _CODES[word])
        for word in accented:
            counts.update([code for code, signs in _LETTERS.items() if not signs.isdisjoint(word)])
        best = max(counts, key=lambda code: (counts[code], _ORDER[code]), default="")
        count = counts[best]
    if english >= max(2, 2 * count):
        return ENGLISH_CODE
    if len(words) < _LONG and not (listed or accented):
        return UNKNOWN
    lower = [word[0].islower() for word in text[:_READ_CHARS].split()]
    prose = sum(lower) / max(1, len(lower))
    if count and count + len(accented) / 2 >= max(1.5, 2 * english) and prose >= _SOME_PROSE:
        return best
    foreign = len(accented) >= max(3, len(words) / 5, 3 * english) and prose >= _SOME_PROSE
    foreign = foreign or (not english and len(words) >= _LONG and prose >= _PROSE)
    return OTHER if foreign else UNKNOWN


def identify_passage(text: str) -> str:
    """Return the language of a passage; a record tells of none."""
    return UNKNOWN if looks_structured(text) else identify_language(text)


def identify_answer(trace: Trace) -> str:
    """Return the language of the answer, or of the query where the answer is too short to tell."""
    return identify_language(trace.answer or "") or identify_language(trace.query or "")


def find_language_reason(trace: Trace) -> NoScore | None:
    """Return why a scorer of English can't compare the answer with its passages, None if it can."""
    passages = [identify_passage(passage.text or "") for passage in (trace.passages or ())[:2]]
    spoken = {identify_answer(trace), next(filter(None, passages), UNKNOWN)}
    return None if spoken <= READ_BY_ENGLISH else NOT_MEASURED
