"""Which statements of an answer cite which passages: what the built-in scorer and the judge share.

The statements are the sentences of the answer. A list of sources at its end is none of them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.metrics.evidence import Claim
from agent.metrics.markers import Cited
from agent.metrics.results import Gap, hindrance
from agent.trace import Trace

__all__ = ["Statement", "Statements", "attach", "citing_hindrance"]

LEAST = 3  # content stems that make a sentence a statement: "Here is how:" needs no citation
_LISTS = re.compile(r"[Ss](?:ource|OURCE)|[Rr]ef|REF|[Cc]itation|CITATION|[Bb]ibl|BIBL")
_BIBLIOGRAPHY = re.compile(
    r"(?:^|\n)[#*\s]{0,6}(?:sources?|references?|citations?|bibliography)[*\s]{0,4}:?[*\s]{0,4}(?:\n|$)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Statement:
    """A sentence with the passages (indices, each once) that are cited at its place, and how many
    of the citations there resolve to none."""

    claim: Claim
    passages: list[int] = field(default_factory=list)
    dangling: int = 0

    @property
    def needs_citation(self) -> bool:
        """Whether it claims anything that a reader would want a source for."""
        text = self.claim.text.rstrip()
        return len(self.claim.content) >= LEAST and not text.endswith((":", "?"))


@dataclass(slots=True)
class Statements:
    """All statements in order. `whole` are the passages that are cited for the answer as a whole,
    without a place in it, each once; `whole_dangling` counts such citations that resolve to none.
    """

    items: list[Statement]
    whole: list[int] = field(default_factory=list)
    whole_dangling: int = 0

    @property
    def dangling(self) -> int:
        """All citations that resolve to no passage."""
        return self.whole_dangling + sum(item.dangling for item in self.items)


def attach(answer: str, claims: Sequence[Claim], cited: Cited) -> Statements:
    """The statements with what they cite. `claims`: at least one.

    A marker belongs to the sentence that it stands in or follows, a citation with a stretch to
    every sentence that the stretch touches.
    """
    cut = _BIBLIOGRAPHY.search(answer) if _LISTS.search(answer) else None
    marks = cited.marks
    if cut and cut.start() > 0:
        claims = [claim for claim in claims if claim.end <= cut.start() + 1] or claims
        marks = [mark for mark in marks if mark.start < cut.start()] or marks
    out = Statements([Statement(claim) for claim in claims])
    starts = [claim.start for claim in claims]
    for mark in marks:
        if mark.start < 0:
            out.whole += [p for p in mark.passages if p not in out.whole]
            out.whole_dangling += mark.dangling
            continue
        touched = [
            item
            for item in (out.items if cited.explicit else ())
            if item.claim.start < mark.end and item.claim.end > mark.start
        ]
        for item in touched or [out.items[max(0, bisect_right(starts, mark.start) - 1)]]:
            item.passages += [p for p in mark.passages if p not in item.passages]
            item.dangling += mark.dangling
    return out


def citing_hindrance(trace: Trace, answered: float | None, cited: Cited) -> Gap | None:
    """Why the citations of this trace can't be judged, before any text is read.

    Passages that were captured and are none are no hindrance: every citation dangles, which is
    known and bad, not unknown.
    """
    gap = hindrance(trace, answered)
    if gap is not None:
        return gap
    if not cited.marks:
        return Gap("no_text") if trace.answer is None else Gap("no_citations", applies=False)
    return Gap("no_passages_captured") if trace.passages is None else None
