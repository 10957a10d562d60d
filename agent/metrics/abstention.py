"""The metric `answered` by rules: find refusals, "I don't know" and questions back.

Only the opening counts: an answer that answers first and then names a gap has answered.
"""

from __future__ import annotations

import re

from ragmeter.core.score import Score, make_not_applicable, make_scored, make_unscored
from ragmeter.metrics.operational import has_empty_answer
from ragmeter.metrics.text import ENGLISH, detect_script
from ragmeter.metrics.text_index import MAX_ANSWER, strip_format, strip_markers
from ragmeter.trace import Trace

_REFUSALS = ENGLISH["refusals"]
_REFUSAL = re.compile(
    re.sub(
        "<([A-Z_]+)>",
        lambda name: f"(?:{'|'.join(_REFUSALS['alternatives'][name[1]])})",
        "|".join(_REFUSALS["rules"]),
    )
)
_CUES: tuple[str, ...] = tuple(_REFUSALS["cues"])
_END = re.compile(r"[.!?](?=\s)|\n")
_ASKS = re.compile(_REFUSALS["asks"])
_ENGLISH = frozenset(ENGLISH["common_words"])
_LONG_TEXT_WORDS = 25  # English text of this length without a word above is very rare
_OPENING_CHARS = 600  # characters that may hold the opening sentence
_SHORT_SENTENCE = 25  # an opening sentence shorter than this ("I see.") is read with the next one
_FURTHER_CLAIM_CHARS = 200  # so much text after a refusal makes claims worth checking


def _strip(text: str) -> str:
    return strip_markers(strip_format(text))


def _opening(answer: str) -> tuple[str, int]:
    """Return the first sentence in lower case (two if it is short) and its end in the answer."""
    head = _strip(answer[:_OPENING_CHARS]).lower().replace("’", "'")
    start = len(head) - len(head.lstrip())
    for end in _END.finditer(head, start):
        if end.end() - start >= _SHORT_SENTENCE:
            return head[start : end.end()], end.end()
    return head[start:], len(head)


def abstains(answer: str) -> bool:
    """Return whether the answer refuses, says that it does not know, or only asks back."""
    head, _ = _opening(answer)
    for cue in _CUES:
        if cue in head:
            if _REFUSAL.search(head):
                return True
            break
    if len(answer) < _OPENING_CHARS and answer.rstrip().endswith("?"):
        return _ASKS.search(answer.lower()) is not None
    return False


def has_further_claims(answer: str) -> bool:
    """Return whether an abstaining answer goes on to make claims."""
    rest = _strip(answer[:MAX_ANSWER])[_opening(answer)[1] :]
    return len(" ".join(rest.split())) >= _FURTHER_CLAIM_CHARS


def is_english(text: str) -> bool:
    """Return whether the text may be English, as the rules are; a short Latin text may be."""
    kind = detect_script(text)
    if kind != "latin":
        return not kind
    text = text[:1000]
    if " the " in text or " of " in text or " to " in text:  # the usual case, quickly
        return True
    words = text.lower().split()
    return len(words) < _LONG_TEXT_WORDS or not _ENGLISH.isdisjoint(words)


def answered_value(trace: Trace) -> float | None:
    """Return 1 if answered, else 0; None if the answer was not captured. Status plays no role."""
    if has_empty_answer(trace):
        return 0.0
    if trace.abstained is not None:
        return 0.0 if trace.abstained else 1.0
    if trace.answer is None:
        return None
    return 0.0 if abstains(trace.answer) else 1.0


def score_answered(trace: Trace, answered: float | None) -> Score:
    """Make the score of `answered` from `answered_value(trace)`."""
    if trace.status != "ok":
        return make_not_applicable("answered", trace, trace.status)
    if answered is None:
        return make_unscored("answered", trace, "no_text")
    if answered and trace.abstained is None and not is_english(trace.answer or ""):
        return make_unscored("answered", trace, "unsupported_language")
    return make_scored("answered", trace, answered)
