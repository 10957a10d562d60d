"""Write the numbers, dates and times of an answer as its passages write them.

"$5.2M" and "$5,200,000", "FY23" and "fiscal year 2023", "2024-03-05" and "5 March 2024" are the
same: the answer is read in the passages' notation. A value that no passage has is written as one
word, so that no part of it is found by chance. Passages that have what an answer has as it is
written, as most do, are not looked into. The patterns are in the kernel, `native/notation.hpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ragmeter.metrics import kernel
from ragmeter.metrics.plain_text import PlainText


@dataclass(slots=True)
class Adopted:
    """A text in the notation of its passages.

    `replaced` are the places, in the text as it was, of the values that no passage has where
    passages have another value of the same kind beside the same words.
    """

    plain: PlainText
    replaced: list[int] = field(default_factory=list)


def adopt_notation(text: str, passages: Sequence[str], query: str = "") -> Adopted:
    """Write the quantities of a text as passages, or else the query, write the same values."""
    out = Adopted(PlainText(text))
    if passages:
        changes, out.replaced = kernel.adopt_notation(text, passages, query)
        if changes:
            out.plain = out.plain.replace(changes)
    return out
