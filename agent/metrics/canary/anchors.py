"""Whether a passage is one of the places that hold the right answer.

An anchor is a document and a heading, not a chunk: it outlives another way to cut documents
(helloworld-ai, see the package). Differences: headings are compared one by one, so that
"Data" is not the start of "Database", and what a passage does not say is unknown, not a miss.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from agent.trace import Passage, Support

__all__ = ["headings", "matches", "matches_any", "path"]

MAX_PATH = 2_000  # characters of a path that are read
_MARKERS = re.compile(r"^#{1,6}[ \t]*")  # of a heading's level in Markdown


def path(text: str) -> str:
    """A path in one form: composed Unicode (file systems of macOS decompose it), no `./`."""
    return unicodedata.normalize("NFC", text[:MAX_PATH]).strip().removeprefix("./")


def headings(text: str) -> list[str]:
    """The headings of a path like `# Guide > Set-up`, outermost first, without level and
    differences of white space; case counts, as in the source."""
    parts = unicodedata.normalize("NFC", text[:MAX_PATH]).split(">")
    bare = (" ".join(_MARKERS.sub("", part.strip()).split()) for part in parts)
    return [part for part in bare if part]


def _text(passage: Passage, name: str) -> str | None:
    value = (passage.metadata or {}).get(name)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " > ".join(value)
    return value if isinstance(value, str) else None


def matches(passage: Passage, support: Support) -> bool | None:
    """Whether the passage lies at this place; None where that can't be told.

    Of the passage's metadata `rel_path` must be equal, `heading_path` must begin with the
    support's headings, and its text must hold the snippet, whatever the case and white space.
    """
    found: list[bool | None] = []
    if support.rel_path is not None:
        theirs = _text(passage, "rel_path")
        found.append(None if theirs is None else path(theirs) == path(support.rel_path))
    if support.heading_path is not None and (wanted := headings(support.heading_path)):
        theirs = _text(passage, "heading_path")
        found.append(None if theirs is None else headings(theirs)[: len(wanted)] == wanted)
    if support.snippet is not None and support.snippet.strip():
        words = " ".join(support.snippet.casefold().split())
        text = passage.text
        found.append(None if text is None else words in " ".join(text.casefold().split()))
    if False in found:
        return False
    return None if None in found or not found else True


def matches_any(passage: Passage, supports: Sequence[Support]) -> bool | None:
    """Whether the passage lies at one of these places; None where that can't be told."""
    found = [matches(passage, support) for support in supports]
    if True in found:
        return True
    return None if None in found else False
