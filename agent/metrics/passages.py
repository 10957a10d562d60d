"""A passage's text, read once and remembered for the next trace that retrieves it.

Production retrieval brings the same passages again and again: a knowledge base has far fewer
chunks than it answers questions, and popular ones come with every other question. So what is read
from a text is kept under the text itself, for all traces. Traffic whose passages never repeat
gains nothing here and pays for the hash of each text.
"""

from __future__ import annotations

from agent.metrics.structured import looks_structured, spread_camel_case
from agent.metrics.words import clock_and_plain_numbers, content_stems, tokens

__all__ = ["MAX_HELD", "MAX_TEXT", "Memo", "Passage", "read_passage"]

MAX_HELD = 2_000_000  # characters remembered: some 1,000 passages of 2 KB, about 20 MB
MAX_TEXT = 20_000  # a longer text is a whole document: it would push out many passages
MAX_ONCE = 20_000  # hashes of texts seen once (2 MB); then they are noted anew
ENTRY = 200  # characters that an entry counts beyond its text, so that empty ones are bounded too


class Passage:
    """What is read from one text. Never changed, save that some of it is read on first use."""

    __slots__ = ("_flat", "_numbers", "forms", "stems", "structured", "text")

    def __init__(self, text: str) -> None:
        self.structured = looks_structured(text)
        self.text = spread_camel_case(text) if self.structured else text
        words = tokens(self.text)
        self.forms = frozenset(words)
        # the "" ends it in a stream of passages: it matches nothing
        self.stems = (*content_stems(words), "")
        self._flat: str | None = None
        self._numbers: frozenset[str] | None = None

    @property
    def flat(self) -> str:
        """The stems with a space around each: searched in C, and a tenth of a set's memory."""
        if self._flat is None:
            self._flat = f" {' '.join(self.stems)}"
        return self._flat

    @property
    def numbers(self) -> frozenset[str]:
        """Canonical numbers of the text."""
        if self._numbers is None:
            found = clock_and_plain_numbers(self.text.lower())
            self._numbers = frozenset([form for form, _ in found])
        return self._numbers


class Memo:
    """Passages by text, `limit` characters of them; the oldest give way.

    A text is kept from its second coming on: of the first only the hash is noted, so that texts
    that never come back take no memory and push nothing out. First in, first out: a popular
    passage is read anew once in a while, which is cheaper than to move it at every use. For one
    thread: a process scores in one.
    """

    def __init__(self, limit: int = MAX_HELD) -> None:
        self.limit = limit
        self.held = 0
        self._passages: dict[str, Passage] = {}
        self._seen_once: set[int] = set()

    def __len__(self) -> int:
        return len(self._passages)

    def read(self, text: str) -> Passage:
        found = self._passages.get(text)
        if found is None:
            found = Passage(text)
            if len(text) <= MAX_TEXT:
                self._note(text, found)
        return found

    def _note(self, text: str, passage: Passage) -> None:
        once, kept = self._seen_once, self._passages
        key = hash(text)
        if key not in once:
            if len(once) >= MAX_ONCE:
                once.clear()
            once.add(key)
        elif text not in kept:
            once.discard(key)
            kept[text] = passage
            self.held += len(text) + ENTRY
            while self.held > self.limit:
                oldest = next(iter(kept))
                del kept[oldest]
                self.held -= len(oldest) + ENTRY


read_passage = Memo().read
"""A passage by its text, from a memory that all traces share."""
