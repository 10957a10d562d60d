"""Read the passages of one trace, and its query.

Production retrieval brings the same passages again and again, so what is read from a passage is
cached under its text for all traces. Traffic whose passages never repeat pays for the hash of each
text and gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from ragmeter.core.thread_safety import PerThread
from ragmeter.metrics.english import NEGATIONS
from ragmeter.metrics.kernel import PassageIds, Pattern
from ragmeter.metrics.language import UNKNOWN, identify_passage, identify_prose
from ragmeter.metrics.notation import adopt_notation
from ragmeter.metrics.numbers import extract_numbers
from ragmeter.metrics.plain_text import plain_passage
from ragmeter.metrics.stems import content_stems
from ragmeter.metrics.structured import (
    RecordEntries,
    looks_structured,
    read_entries,
    spread_camel_case,
)
from ragmeter.metrics.words import tokenize

MAX_TEXT_CHARS = 60_000  # read of all passages together: bounds the work on huge retrievals
_MAX_CACHED_CHARS = 6_000_000  # some 4,000 passages of 1.3 KB, about 20 MB of memory
_MAX_CACHED_TEXT = 20_000  # a longer text is a whole document: it would push out many passages
_MAX_SEEN_ONCE = 20_000  # hashes of texts seen once (2 MB); beyond it the set is cleared
_CACHE_ENTRY_CHARS = 200  # added to each text's length, so that empty texts are bounded too
_GROUP = Pattern(r"(\d)(?=(,\d{3}))")
RECORD_DENIALS = NEGATIONS.union(("false", "null"))
MAX_PASSAGES = 400  # no model is given more
_MAX_QUERY = 4_000  # characters


class PassageText:
    """The text of one passage, parsed on first use; traces share it, so it never changes."""

    __slots__ = ("_language", "_numbers", "_record", "ids", "structured", "text")

    def __init__(self, text: str) -> None:
        text = plain_passage(text)
        self.structured = looks_structured(text)
        self.text = spread_camel_case(text) if self.structured else text
        self._numbers: frozenset[str] | None = None
        self._record: RecordEntries | None = None
        self._language: str | None = None
        self.ids: PassageIds | None = None  # what a comparison has read of it

    @property
    def has_text(self) -> bool:
        """Whether the passage has a content stem."""
        if self.ids is None:
            return bool(content_stems(tokenize(self.text)))
        return self.ids.has_text

    @property
    def record(self) -> RecordEntries:
        """Flags and opening hours of a structured text."""
        if self._record is None:
            self._record = read_entries(self.text)
        return self._record

    @property
    def language(self) -> str:
        """The language of the text, as of `identify_passage`."""
        if self._language is None:
            identify = identify_passage if self.structured else identify_prose
            self._language = identify(self.text)
        return self._language

    def has_number(self, form: str) -> bool:
        """Return whether the text has a number of this canonical form."""
        if self._numbers is None:
            # all ways to write a decimal share its end, from the thousands separator on
            end = form[max(0, form.find(".") - 3) :] if "." in form else ""
            if end not in self.text and self.text.isascii():
                return False
            self._numbers = frozenset([form for form, _ in extract_numbers(self.text.lower())])
        return form in self._numbers


class PassageCache:
    """A cache of passages by text, first in, first out; not thread-safe.

    A text is cached when it comes a second time. The first time only its hash is stored, so texts
    that never come back take no memory and push nothing out. A popular passage is parsed again
    once in a while, which is cheaper than to move it at every use.

    Args:
        limit: Most characters of texts in the cache.
    """

    def __init__(self, limit: int = _MAX_CACHED_CHARS) -> None:
        self.limit = limit
        self.chars = 0
        self._passages: dict[str, PassageText] = {}
        self._seen_once: set[int] = set()

    def __len__(self) -> int:
        return len(self._passages)

    def read(self, text: str) -> PassageText:
        """Return the parsed passage of a text."""
        passage = self._passages.get(text)
        if passage is None:
            passage = PassageText(text)
            if len(text) <= _MAX_CACHED_TEXT:
                self._add(text, passage)
        return passage

    def _add(self, text: str, passage: PassageText) -> None:
        once = self._seen_once
        passages = self._passages
        key = hash(text)
        if key not in once:
            if len(once) >= _MAX_SEEN_ONCE:
                once.clear()
            once.add(key)
        elif text not in passages:
            once.discard(key)
            passages[text] = passage
            self.chars += len(text) + _CACHE_ENTRY_CHARS
            while self.chars > self.limit:
                oldest = next(iter(passages))
                del passages[oldest]
                self.chars -= len(oldest) + _CACHE_ENTRY_CHARS


# A memo of a pure function, shared by all traces that a thread scores.
_caches = PerThread(PassageCache)


@dataclass(slots=True)
class PassageIndex:
    """The passages of a trace."""

    passages: list[PassageText]
    structured: bool
    _groups: set[str] | None = None

    @classmethod
    def read(
        cls, texts: Sequence[str], parse: Callable[[str], PassageText] | None = None
    ) -> PassageIndex:
        """Index passages, 400 at most, of the first `MAX_TEXT_CHARS` characters together.

        `parse` is `PassageText` itself where a cache would not pay.
        """
        parse = parse or _caches.get().read
        passages: list[PassageText] = []
        structured = False
        budget = MAX_TEXT_CHARS
        for text in texts[:MAX_PASSAGES]:
            text = text[: max(budget, 0)]
            budget -= len(text)
            passage = parse(text)
            structured = structured or passage.structured
            passages.append(passage)
        return cls(passages, structured)

    @property
    def texts(self) -> list[str]:
        """The passages' texts, with camel case split in structured ones."""
        return [passage.text for passage in self.passages]

    @property
    def has_text(self) -> bool:
        """Whether a passage has a content stem."""
        return any(passage.has_text for passage in self.passages)

    @property
    def language(self) -> str:
        """The language of the first two passages, of the second where the first tells none."""
        return next(filter(None, (passage.language for passage in self.passages[:2])), UNKNOWN)

    def has_number(self, form: str, raw: str, words: Container[str]) -> bool:
        """Return whether a passage has the number, as it is written or in another form.

        "5 pm" also meets a plain "5" or "17".

        Args:
            form: Its canonical form.
            raw: It as it is written.
            words: The stems of all passages.
        """
        if raw in words or form in words:
            return True
        if form.isdecimal():
            # "1000" against "1,000"; anything else of plain digits would be a word of its own
            return len(form) > 3 and self._has_grouped(f"{int(form):,}")
        if any(passage.has_number(form) for passage in self.passages):
            return True
        if form[0] == "t" and int(form[1:]) % 60 == 0:
            hour = int(form[1:]) // 60 or 12
            return str(hour) in words or str(hour + 12) in words
        return False

    def _has_grouped(self, number: str) -> bool:
        """Return whether a text has the number, which has a comma for each thousand."""
        if self._groups is None:
            pairs = [pair for text in self.texts for pair in _GROUP.findall(text)]
            self._groups = {digit + group for digit, group in pairs}
        comma = number.index(",")
        return number[comma - 1 : comma + 4] in self._groups and (
            len(number) == 5 or any(number in text for text in self.texts)
        )


@dataclass(slots=True)
class QueryText:
    """The content stems of a query: `words` in order, `stems` each once in order."""

    text: str
    words: list[str]
    stems: dict[str, None]
    _numbers: set[str] | None = None

    @classmethod
    def read(cls, text: str | None, passages: Sequence[str] = ()) -> QueryText:
        """Parse the first 4,000 characters of a query; None is an empty one.

        Its numbers, dates and times are read as the plain texts of `passages` write them.
        """
        text = adopt_notation(plain_passage((text or "")[:_MAX_QUERY]), passages)
        words = content_stems(tokenize(text))
        return cls(text, words, dict.fromkeys(words))

    @property
    def numbers(self) -> set[str]:
        """Canonical numbers; made on first use, as many answers have none to compare."""
        if self._numbers is None:
            self._numbers = {form for form, _ in extract_numbers(self.text.lower())}
        return self._numbers
