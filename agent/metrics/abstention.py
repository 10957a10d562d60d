"""The metric `answered` by rules: find refusals, "I don't know" and questions back.

Only the opening counts: an answer that answers first and then names a gap has answered.
"""

from __future__ import annotations

import re

from ragmeter.core.score import Score, make_not_applicable, make_scored, make_unscored
from ragmeter.metrics.operational import has_empty_answer
from ragmeter.metrics.text import detect_script
from ragmeter.trace import Trace

_THING = (
    r"(?:information|info|details?|data|knowledge|answers?|access|context|idea|evidence|record"
    r"|mention|instructions?|guidance|references?|recommendations?)"
)
_SOURCE = (
    r"(?:contexts?|passages?|documents?|texts?|information|articles?|manuals?|sources?|excerpts?"
    r"|data|sections?|knowledge base|documentation|materials?|content|question)"
)
_SAY = (
    r"(?:mention|provid|contain|includ|specif|say|answer|giv|stat|address|discuss|cover|have"
    r"|explain|offer|describ|indicat|clarif|explicit|directly|relate|list|refer|suggest|detail"
    r"|present|pertain|talk)"
)
_STATED = (
    r"(?:mentioned|provided|specified|stated|given|included|discussed|addressed|available|clear"
    r"|related|relevant|described|explained|found|answered|covered|listed|indicated"
    r"|possible to (?:determine|answer|provide|tell))"
)
_CAN_NOT = r"(?:cannot|can ?not|can't|could not|couldn't|unable|not able)"
_DO_NOT = r"(?:do not|don't|does not|doesn't|did not|didn't)"
# Gaps are bounded and stay within a sentence, so matching is linear on any text.
_RULES = (
    # "I'm sorry, but …", "Unfortunately, the … does not": regret and a no; not "sorry to hear"
    r"\b(?:sorry|i apologi[sz]e|apologies|unfortunately|i regret|i(?:'m| am) afraid)\b"
    rf"[^.!?\n]{{0,60}}?\b(?:{_CAN_NOT}|{_DO_NOT}|not|no|but|however)\b",
    # "I cannot provide", "we are not able to"
    rf"\b(?:i|we)(?:'m| am|'re| are)? (?:\w+ )?(?:{_CAN_NOT}|will not|won't|not programmed to"
    r"|not comfortable|not going to|must decline|neither)\b",
    # "I don't know", "I do not have specific information"; not "I don't have opinions, but"
    rf"\b(?:i|we) (?:currently |still |also )?(?:do not|don't|did not|didn't) (?:\w+ ){{0,2}}?"
    rf"(?:know|(?:have|find|see|possess)\b(?: [\w'-]+){{0,4}}? {_THING}|feel comfortable"
    r"|think (?:it's|it is|that))\b",
    r"\bi(?:'m| am) not (?:\w+ )?(?:sure|aware|certain|familiar|knowledgeable)\b",
    # "the passages do not mention"
    rf"\b{_SOURCE}\b[^.!?\n]{{0,50}}?\b(?:{_DO_NOT}|fails? to|lacks?) (?:\w+ ){{0,3}}?{_SAY}",
    rf"\b(?:there (?:is|are|was|were)|has|have|contains?|provides?|find|found|gives?) no"
    rf" (?:\w+ ){{0,3}}?{_THING}\b",
    # "is not mentioned in the context", "information on … is not available"
    rf"\b(?:is|are|was|were) not (?:\w+ ){{0,2}}?{_STATED}\b[^.!?\n]{{0,40}}?"
    rf"\b(?:{_SOURCE}|from|based)\b",
    rf"\b{_THING}\b[^.!?\n]{{0,60}}? (?:is|are) not (?:\w+ )?{_STATED}\b",
    r"\bnot (?:directly )?(?:related|relevant) to the\b",
    r"\b(?:cannot|can't|can not|impossible to) (?:be )?(?:accurately |definitively )?"
    r"(?:answered|answer|determined?|found|inferred|concluded)\b",
    r"\b(?:not enough|insufficient|no specific|no relevant|lack of"
    r"|without (?:more|further|additional)) (?:\w+ )?(?:information|details|context|data)\b",
    r"\bunclear (?:from|what|which|how|if|whether|based)\b",
    r"\bit is not (?:\w+ )?(?:clear|specified)\b",
    # refusals for safety
    r"\bnot (?:\w+ ){0,3}?(?:appropriate|ethical|acceptable|respectful|productive|suitable)\b",
    r"\b(?:just|only) an ai\b|\b(?:against|violates) my (?:programming|guidelines|policy)\b"
    r"|\bprogramming rules\b|\bi would (?:strongly )?advise against\b",
)
_REFUSAL = re.compile("|".join(_RULES))
# A rule needs one of these; looking for plain words is far quicker than the rules.
_CUES: tuple[str, ...] = (
    "n't",
    "no ",
    "not",
    "sorry",
    "apolog",
    "unable",
    "unclear",
    "insuffic",
    "lack",
    "fail",
    "neither",
    "unfort",
    "an ai",
    "against",
    "afraid",
    "regret",
    "without",
    "impossible",
)
_END = re.compile(r"[.!?](?=\s)|\n")
_ASKS = re.compile(
    r"\b(?:which|what) (?:\w+ ){1,6}?(?:are|do|would|did) you\b|\bwhich (?:one|of these)\b"
    r"|\bare you (?:asking|referring|talking|looking|interested)\b"
    r"|\b(?:could|can|would) you (?:please )?(?:clarify|specify|be more specific|provide more)\b"
)
_ENGLISH = frozenset(("the", "of", "and", "to", "is", "that", "for", "with", "are", "you", "this"))
_LONG_TEXT_WORDS = 25  # English text of this length without a word above is very rare
_OPENING_CHARS = 600  # characters that may hold the opening sentence
_SHORT_SENTENCE = 25  # an opening sentence shorter than this ("I see.") is read with the next one
_FURTHER_CLAIM_CHARS = 200  # so much text after a refusal makes claims worth checking


def _opening(answer: str) -> tuple[str, int]:
    """Return the first sentence in lower case (two if it is short) and its end in the answer."""
    head = answer[:_OPENING_CHARS].lower().replace("’", "'")
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
    return len(answer.strip()) - _opening(answer)[1] >= _FURTHER_CLAIM_CHARS


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
