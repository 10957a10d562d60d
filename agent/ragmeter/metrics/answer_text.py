"""Split an answer into sentences, with its numbers and names, whatever format it is written in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from ragmeter.metrics import kernel
from ragmeter.metrics.courtesies import count_closings, find_opening
from ragmeter.metrics.english import NEGATIONS
from ragmeter.metrics.notation import adopt_notation
from ragmeter.metrics.plain_text import PlainText, plain_text
from ragmeter.metrics.stems import content_stems, idf
from ragmeter.metrics.words import WordCutter

NEGATION_STEMS = frozenset(content_stems(NEGATIONS))
MAX_ANSWER = 20_000  # characters
# With what markers begin that are no word of the sentence; those in square brackets are known.
_MARKER_SIGNS = (*'(（<{\\:^|@#~⟨〈‹«「『❲〔〖⟦《\ue200`"', "http")
# A link that only says the name of a file, and a picture before such a name
_FILE_MARK = re.compile(
    r"\[{1,2}[^\[\]\n]{1,120}\.(?:pdf|docx?|md|html?|txt|pptx?|xlsx?|csv|json|rst)\]{1,2}\("
    r"|[\u2190-\u2bff\U0001f000-\U0001faff]"
)
# "(Passage 1)" stays: people fault the answers of RAGTruth that cite so more often than others, and
# without these markers the AUROC falls by .006.
_PASSAGE = re.compile(r"[(（]\s?(?:[a-z ]{1,20}\s)?passages?\b", re.IGNORECASE)
_RAREST = repeat(idf.rarest)


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


@dataclass(slots=True)
class AnswerText:
    """The sentences of an answer, and its words, numbers and names.

    `numbers` are pairs (canonical form, as written), `names` the stems of capitalised words that do
    not begin a sentence. `bare` is the plain text without markup, of which `spans` are the
    sentences; `place` tells where it stands in the answer as it came. `replaced` counts the values
    of sentences that no passage has where passages have another beside the same words.
    """

    claims: list[AnswerSentence] = field(default_factory=list)
    numbers: list[tuple[str, str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    bare: str = ""
    spans: list[tuple[int, int]] = field(default_factory=list)
    replaced: int = 0
    _source: Sequence[PlainText] = ()
    _content: frozenset[str] | None = None

    @property
    def words(self) -> list[str]:
        """The lower-case words of all sentences."""
        return [word for claim in self.claims for word in claim.words]

    @property
    def plain(self) -> str:
        """The text up to the last sentence, with spaces for all that is no sentence."""
        text = ""
        for first, end in self.spans:
            at = kernel.skip_bullet(self.bare, first, end)
            text += " " * (at - len(text)) + self.bare[at:end]
        return text

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Return where [start, end) of `bare` stands in the answer as it came."""
        return _place(self._source, start, end)

    @property
    def content(self) -> frozenset[str]:
        """The content stems of all sentences; call it once `claims` is complete."""
        if self._content is None:
            self._content = frozenset().union(*[claim.content for claim in self.claims])
        return self._content


def _place(source: Sequence[PlainText], start: int, end: int) -> tuple[int, int]:
    for step in reversed(source):
        start, end = step.span(start, end)
    return start, end


def _read(
    text: str,
) -> tuple[str, list[tuple[int, int, int, str]], list[tuple[str, str]], list[str]]:
    """Read a plain answer, once more without the courtesies before and behind it if it has any."""
    whole = kernel.read_answer(text)
    bare, sentences = whole[:2]
    if not sentences:
        return whole
    start = sentences[0][2]
    opening = find_opening(bare, start)
    closings = count_closings([sentence[3] for sentence in sentences])
    end = sentences[-closings][0] if 0 < closings < len(sentences) else len(text)
    if opening >= len(bare.rstrip()):
        opening = start
    if opening == start and end == len(text):
        return whole
    proper = kernel.read_answer(text[:start] + " " * (opening - start) + text[opening:end])
    return proper if proper[1] else whole


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
    adopted = adopt_notation(plain.text, passages, query)
    source = [step for step in (plain, adopted.plain) if step.edits]
    out = AnswerText(_source=source)
    out.bare, sentences, out.numbers, out.names = _read(adopted.plain.text)
    cutter = WordCutter(out.bare)
    for start, end, words, claim in sentences:
        out.claims.append(AnswerSentence(_place(source, start, end), claim, cutter, (words, end)))
        out.spans.append((words, end))
    if adopted.replaced:  # "a summary in 100 words:" before the answer proper replaces nothing
        said = [adopted.plain.span(start, end) for start, end in out.spans]
        out.replaced = sum(any(start <= at < end for start, end in said) for at in adopted.replaced)
    return out
