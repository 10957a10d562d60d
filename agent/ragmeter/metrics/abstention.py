"""The metric `answered` by rules: find refusals, "I don't know" and questions back.

Only the opening counts: an answer that answers first and then names a gap has answered.
"""

from __future__ import annotations

import re

from ragmeter.core.score import NoScore, Score, make_plain_score
from ragmeter.metrics.answer_text import MAX_ANSWER
from ragmeter.metrics.english import ENGLISH
from ragmeter.metrics.kernel import Openings, Pattern, strip_format, strip_markers
from ragmeter.metrics.language import (
    ENGLISH_CODE,
    LANGUAGES,
    NOT_MEASURED,
    READ_BY_ENGLISH,
    identify_language,
)
from ragmeter.metrics.operational import has_empty_answer
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

_REFUSALS = ENGLISH["refusals"]
_REFUSAL = re.sub(
    "<([A-Z_]+)>",
    lambda name: f"(?:{'|'.join(_REFUSALS['alternatives'][name[1]])})",
    "|".join(_REFUSALS["rules"]),
)
_OPENING_CHARS = 600  # characters that may hold the opening sentence
_SHORT_SENTENCE = 25  # an opening sentence shorter than this ("I see.") is read with the next one
_OPENINGS = Openings(_REFUSAL, _REFUSALS["cues"], most=_OPENING_CHARS, brief=_SHORT_SENTENCE)
_ASKS = Pattern(_REFUSALS["asks"])

# By language other than English: plain words of which a refusal has one, and its pattern, which
# `re` compiles when a text has such a word: all of them take a tenth of the time of a start.
_FOREIGN: dict[str, tuple[tuple[str, ...], str]] = {}
for _code, _raw in LANGUAGES["refusals"].items():
    _rules = "|".join(_raw["rules"])
    for _name in ("SOURCE", "THING"):
        _rules = _rules.replace(f"<{_name}>", re.sub(r"\s*\n?\s*\|", "|", _raw[_name]).strip())
    _FOREIGN[_code] = tuple(_raw["cues"]), _rules
# The languages of answers whose refusals are recognised; too short an answer may be of any.
REFUSAL_LANGUAGES = frozenset((*READ_BY_ENGLISH, *_FOREIGN))
_FURTHER_CLAIM_CHARS = 200  # so much text after a refusal makes claims worth checking


def abstains(answer: str, language: str | None = None) -> bool:
    """Return whether the answer refuses, says that it does not know, or only asks back.

    Args:
        answer: The text.
        language: Its language, by `identify_language`, if the caller has it already.
    """
    if _OPENINGS.refuse(answer):
        return True
    if (identify_language(answer) if language is None else language) != ENGLISH_CODE:
        head, _ = _OPENINGS.read(answer)
        for cues, refusal in _FOREIGN.values():
            if any(cue in head for cue in cues) and re.search(refusal, head):
                return True
    if len(answer) < _OPENING_CHARS and answer.rstrip().endswith("?"):
        return _ASKS.search(answer.lower()) is not None
    return False


def has_further_claims(answer: str) -> bool:
    """Return whether an abstaining answer goes on to make claims."""
    _, end = _OPENINGS.read(answer)
    rest = strip_markers(strip_format(answer[:MAX_ANSWER]))[end:]
    return len(" ".join(rest.split())) >= _FURTHER_CLAIM_CHARS


def answered_value(trace: Trace, language: str | None = None) -> float | None:
    """Return 1 if answered, else 0; None if the answer was not captured. Status plays no role.

    Args:
        trace: The trace.
        language: That of the answer, if the caller has it already.
    """
    if has_empty_answer(trace):
        return 0.0
    if trace.abstained is not None:
        return 0.0 if trace.abstained else 1.0
    if trace.answer is None:
        return None
    return 0.0 if abstains(trace.answer, language) else 1.0


def score_answered(trace: Trace, answered: float | None, language: str) -> Score:
    """Make the score of `answered` from `answered_value(trace)` and the answer's language."""
    value: float | NoScore
    if trace.status != "ok":
        value = NoScore(trace.status, applies=False)
    elif answered is None:
        value = NoScore(Reason.NO_TEXT)
    elif answered and trace.abstained is None and language not in REFUSAL_LANGUAGES:
        value = NOT_MEASURED
    else:
        value = answered
    return make_plain_score("answered", trace.probability, value)
