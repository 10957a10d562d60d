"""Identify the language of a text by the commonest words of languages, without a model.

On short real texts this takes English for another language less often than the small libraries do,
and is faster: see docs/metrics.md. A text that is too short to tell has no language.
"""

from __future__ import annotations

from ragmeter.core.files import load_yaml
from ragmeter.core.score import NoScore
from ragmeter.metrics import kernel
from ragmeter.metrics.plain_text import plain_text
from ragmeter.metrics.structured import looks_structured
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

LANGUAGES = load_yaml(__package__, "languages.yaml")
ENGLISH_CODE = "en"
OTHER = "other"  # a language that has no name here, another script among them
UNKNOWN = ""  # too short, or no words at all

_READ = 600  # characters: the kernel reads fewer

# Of texts that a scorer reads that was measured on English alone.
READ_BY_ENGLISH = frozenset((ENGLISH_CODE, UNKNOWN))
NOT_MEASURED = NoScore(Reason.LANGUAGE, applies=False)

kernel.read_languages(
    {code: words.split() for code, words in LANGUAGES["words"].items()}, LANGUAGES["letters"]
)
identify_language = kernel.identify_language


def identify_passage(text: str) -> str:
    """Return the language of a passage; a record tells of none."""
    return UNKNOWN if looks_structured(text) else identify_prose(text)


def identify_prose(text: str) -> str:
    """Return the language of a text that is no record."""
    return identify_language(_opening(text))


def identify_answer(trace: Trace) -> str:
    """Return the language of the answer, or of the query where the answer is too short to tell."""
    return identify_language(_opening(trace.answer or "")) or identify_language(
        _opening(trace.query or "")
    )


def _opening(text: str) -> str:
    """Return the plain opening of a text, as full-width letters are of no other language."""
    return text if text.isascii() else plain_text(text[:_READ]).text


def find_language_reason(trace: Trace) -> NoScore | None:
    """Return why a scorer of English can't compare the answer with its passages, None if it can."""
    passages = [identify_passage(passage.text or "") for passage in (trace.passages or ())[:2]]
    spoken = {identify_answer(trace), next(filter(None, passages), UNKNOWN)}
    return None if spoken <= READ_BY_ENGLISH else NOT_MEASURED
