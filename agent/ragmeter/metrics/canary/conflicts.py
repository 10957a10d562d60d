"""Find out whether an answer says that its sources disagree."""

from __future__ import annotations

import re

from ragmeter.core.score import NoScore
from ragmeter.metrics.language import (
    NOT_MEASURED,
    READ_BY_ENGLISH,
    identify_language,
)

_MAX_CONFLICT_CHARS = 20_000
_CONFLICT = re.compile(
    r"\b(?:conflict(?:s|ing)?|contradict(?:s|ory|ions?)?|disagree(?:s|ments?)?|inconsisten\w{1,3}"
    r"|discrepanc(?:y|ies)|differ(?:s|ent|ing)?|supersede[sd]?|replace[sd]|outdated|out of date"
    r"|no longer|previously|formerly|earlier|older|newer|updated|in contrast|whereas|however"
    r"|on the other hand)\b"
)


def acknowledges_conflict(answer: str) -> bool | NoScore:
    """Return whether the answer has words that say that its sources disagree."""
    if identify_language(answer) not in READ_BY_ENGLISH:
        return NOT_MEASURED
    return _CONFLICT.search(answer[:_MAX_CONFLICT_CHARS].lower()) is not None
