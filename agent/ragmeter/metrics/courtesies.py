"""The patterns of what an answer says out of courtesy or caution, which claims nothing.

The kernel looks for them before and behind the answer proper: `native/courtesies.hpp`.
"""

from __future__ import annotations

import re

from ragmeter.metrics.english import ENGLISH
from ragmeter.metrics.kernel import read_courtesies

_WORDS = ENGLISH["courtesies"]


def _fill(rule: str) -> str:
    return re.sub("<([A-Z]+)>", lambda name: "|".join(_WORDS["alternatives"][name[1]]), rule)


def _widen(rule: str) -> str:
    """Take several blanks for one: markup has been replaced by blanks."""
    return re.sub(r" (\??)", lambda blank: " {0,6}" if blank[1] else " {1,6}", rule)


_OPENINGS = _widen("|".join(map(_fill, _WORDS["openings"])))
_CLOSINGS = "|".join(map(_fill, _WORDS["closings"]))
_NOTE = (
    r"(?:please )?(?:note|remember|disclaimer|important|nb|caution|warning|reminder|legal notice"
    r"|notice)(?: that)?[^\w\n]{0,4}"
)


def load_courtesies() -> None:
    """Give the kernel the patterns, without which it reads no answer."""
    read_courtesies(
        greeting=f"{_widen(_WORDS['greetings'])}\\W*",
        opening=(
            f"(?:{_OPENINGS})[^\\w\\s]{{0,3}}\\s?"
            r"(?:(?<=[.!…:])|[.!…:]|\n|\Z)[^\w\n]{0,12}\n?\s*"
        ),
        lead=_widen(_WORDS["leads"]) + r"\s+",
        closing=f"(?:{_NOTE})?(?:{_CLOSINGS})",
        footer="|".join(_WORDS["footers"]),
        farewell=_fill(_WORDS["farewells"]),
        further=_fill(_WORDS["further_questions"]),
        cues=_WORDS["cues"].split(),
    )
