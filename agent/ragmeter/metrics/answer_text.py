"""Split an answer into sentences, with its numbers and names, whatever format it is written in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import repeat

from ragmeter.metrics import kernel
from ragmeter.metrics.citation_targets import FILE_ENDINGS
from ragmeter.metrics.courtesies import load_courtesies
from ragmeter.metrics.english import NEGATIONS
from ragmeter.metrics.plain_text import plain_text
from ragmeter.metrics.stems import content_stems, idf
from ragmeter.metrics.words import WordCutter

NEGATION_STEMS = frozenset(content_stems(NEGATIONS))
MAX_ANSWER = 20_000  # characters
# With what markers begin that are no word of the sentence; those in square brackets are known.
_MARKER_SIGNS = (*'(（<{\\:^|@#~⟨〈‹«「『❲〔〖⟦《\ue200`"', "http")
# Answers cite a file by a link that only says its name, or put a picture before the name.
_FILE_MARK = re.compile(
    rf"\[{{1,2}}[^\[\]\n]{{1,120}}\.{FILE_ENDINGS}\]{{1,2}}\("
    r"|[\u2190-\u2bff\U0001f000-\U0001faff]"
)
# "(Passage 1)" stays: people fault the answers of RAGTruth that cite so more often than others, and
# without these markers the AUROC falls by .006.
_PASSAGE = re.compile(r"[(（]\s?(?:[a-z ]{1,20}\s)?passages?\b", re.IGNORECASE)
_RAREST = repeat(idf.rarest)
load_courtesies()


class AnswerSentence:
    """One sentence over the answer's characters [start, end).

    Args:
        place: Its first character in the answer as it came, and the one after its last.
        text: The sentence without bullet, item number and superfluous space.
        cutter: Cuts the plain answer, without markup, into words.
        span: Where the sentence stands in it, from behind an item number on.
    """

    __slots__ = ("_content", "_cutter", "_span", "_stems", "_words", "end", "start", "text")

    def __init__(
        self, place: tuple[int, int], text: str, cutter: WordCutter, span: tuple[int, int]
    ) -> None:
        self.start, self.end = place
        self.text = text
        self._cutter = cutter
        self._span = span
        self._words: list[str] | None = None
        self._stems: list[str] | None = None
        self._content: dict[str, float] | None = None

    @property
    def words(self) -> list[str]:
        """Its lower-case words, in order."""
        if self._words is None:
            self._words = self._cutter.cut(*self._span)
        return self._words

    @property
    def stems(self) -> list[str]:
        """The stems of its content words, in order."""
        if self._stems is None:
            self._stems = content_stems(self.words)
        return self._stems

    @property
    def content(self) -> dict[str, float]:
        """Each of its stems once, with its idf."""
        if self._content is None:
            stems = self.stems
            self._content = dict(zip(stems, map(idf.get, stems, _RAREST)))  # noqa: B905
        return self._content


class AnswerText:
    """The sentences of an answer, and its words, numbers and names.

    Args:
        read: What the kernel has read of it, in the places of its plain text without markup
            (`bare`); by default that of no sentence.
    """

    __slots__ = ("_claims", "read")

    def __init__(self, read: kernel.ReadAnswer | None = None) -> None:
        self.read = kernel.ReadAnswer() if read is None else read
        self._claims: list[AnswerSentence] | None = None

    @property
    def claims(self) -> list[AnswerSentence]:
        """The sentences; made on first use, as most answers are compared without them."""
        if self._claims is None:
            cutter = WordCutter(self.read.bare)
            self._claims = [
                AnswerSentence((start, end), text, cutter, (first, last))
                for start, end, first, last, text in map(self.read.sentence, range(len(self.read)))
            ]
        return self._claims

    @property
    def words(self) -> list[str]:
        """The lower-case words of all sentences."""
        return [word for claim in self.claims for word in claim.words]

    @property
    def plain(self) -> str:
        """The text up to the last sentence, with spaces for all that is no sentence."""
        bare = self.read.bare
        text = ""
        for _, _, first, last, _ in map(self.read.sentence, range(len(self.read))):
            at = kernel.skip_bullet(bare, first, last)
            text += " " * (at - len(text)) + bare[at:last]
        return text


def _without_markers(text: str, markers: Iterable[tuple[int, int]]) -> str:
    pieces: list[str] = []
    at = 0
    for start, end in markers:
        begins = text.startswith(_MARKER_SIGNS, start) or _FILE_MARK.match(text, start)
        if start >= at and begins and not _PASSAGE.match(text, start):
            pieces += (text[at:start], " " * (end - start))
            at = end
    return "".join([*pieces, text[at:]]) if at else text


def parse_answer(
    text: str,
    passages: Sequence[str] = (),
    query: str = "",
    markers: Iterable[tuple[int, int]] = (),
) -> AnswerText:
    """Split an answer into sentences, without its format, courtesies and list of sources.

    Its numbers, dates and times are read as the plain texts of `passages` and `query` write them.
    What stands at `markers`, [start, end) in order, cites and claims nothing.
    Places of sentences refer to the text as given; only its first 20,000 characters are read.
    """
    plain = plain_text(_without_markers(text, markers)[:MAX_ANSWER])
    return AnswerText(kernel.read_answer(plain.text, plain.edits, passages, query))
