"""Whether a passage is one of the places that hold the right answer.

An anchor is a document and a heading, not a chunk: it outlives another way to cut documents
(helloworld-ai, see the package). Differences: headings are compared one by one, so that
"Data" is not the start of "Database", and what a passage does not say is unknown, not a miss.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from agent.trace import Passage, Support

__all__ = ["any_of", "found_at", "headings", "path"]

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


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


class _Place:
    """Where a passage is from, read once for all supports that it is held against."""

    __slots__ = ("_folded", "_text", "headings", "path")

    def __init__(self, passage: Passage) -> None:
        theirs = _named(passage, "rel_path")
        self.path = None if theirs is None else path(theirs)
        theirs = _named(passage, "heading_path")
        self.headings = None if theirs is None else headings(theirs)
        self._text = passage.text
        self._folded: str | None = None

    @property
    def text(self) -> str | None:
        if self._folded is None and self._text is not None:
            self._folded = _folded(self._text)
        return self._folded


class _Wanted:
    """A support, read once. What it leaves open is None."""

    __slots__ = ("headings", "path", "snippet")

    def __init__(self, support: Support) -> None:
        self.path = None if support.rel_path is None else path(support.rel_path)
        self.headings = headings(support.heading_path or "") or None
        self.snippet = _folded(support.snippet or "") or None

    def at(self, place: _Place) -> bool | None:
        found: list[bool | None] = []
        if self.path is not None:
            found.append(None if place.path is None else place.path == self.path)
        if self.headings is not None:
            theirs, size = place.headings, len(self.headings)
            found.append(None if theirs is None else theirs[:size] == self.headings)
        if False in found:
            return False
        if self.snippet is not None:
            found.append(None if place.text is None else self.snippet in place.text)
        if False in found:
            return False
        return None if None in found or not found else True


def _named(passage: Passage, name: str) -> str | None:
    value = (passage.metadata or {}).get(name)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " > ".join(value)
    return value if isinstance(value, str) else None


def found_at(passages: Sequence[Passage], supports: Sequence[Support]) -> list[list[bool | None]]:
    """Of each passage, of each support, whether the passage lies there; None where that can't be
    told.

    Of the passage's metadata `rel_path` must be equal, `heading_path` must begin with the
    support's headings, and its text must hold the snippet, whatever the case and white space.
    """
    wanted = [_Wanted(support) for support in supports]
    return [[one.at(place) for one in wanted] for place in map(_Place, passages)]


def any_of(found: Iterable[bool | None]) -> bool | None:
    """Whether one of them is so; None where that can't be told."""
    known = list(found)
    return True if True in known else None if None in known else False
