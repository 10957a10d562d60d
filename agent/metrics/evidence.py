"""The texts of one trace, read once: passages as one stream of stems, the answer as sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress

from agent.metrics.sentences import sentence_spans
from agent.metrics.structured import looks_structured, spread_camel_case
from agent.metrics.words import (
    MAX_CHARS,
    clock_and_plain_numbers,
    content_stems,
    idf,
    script,
    tokens,
)

__all__ = ["MAX_ANSWER", "Answer", "Claim", "Pages", "find_places", "read_answer"]

_DIGIT = re.compile(r"\d")
_NAME = re.compile(r"[A-Z](?<![\w'’].)\w+")
_MARKER = re.compile(r"\[[^\[\]\n]{1,80}\]|【[^【】\n]{1,80}】")
_ITEM = re.compile(r"\s*(?:[-*•#>]+|\(?\d{1,2}[.)]|\(?[a-z]\))\s+")
MAX_PASSAGES = 400  # no model is given more; the rest is not read
MOST_PLACES = 40  # a word as frequent as that places nothing
MAX_ANSWER = 20_000  # characters of an answer that are read


@dataclass(slots=True)
class Pages:
    """Passages as one stream of content stems; a "" between two passages matches nothing.

    `starts` is the first position of each passage, `owner` the passage of each position.
    """

    texts: list[str]
    stream: list[str]
    starts: list[int]
    owner: list[int]
    vocabulary: set[str]
    structured: bool
    _numbers: set[str] | None = None
    _script: str | None = None

    @classmethod
    def read(cls, texts: Sequence[str]) -> Pages:
        stream: list[str] = []
        starts: list[int] = []
        owner: list[int] = []
        kept: list[str] = []
        structured = False
        budget = MAX_CHARS
        for text in texts[:MAX_PASSAGES]:
            text = text[: max(budget, 0)]
            budget -= len(text)
            if looks_structured(text):
                structured = True
                text = spread_camel_case(text)
            start = len(stream)
            stream += content_stems(tokens(text))
            stream.append("")
            owner += [len(starts)] * (len(stream) - start)
            starts.append(start)
            kept.append(text)
        return cls(kept, stream, starts, owner, set(stream), structured)

    @property
    def has_text(self) -> bool:
        return len(self.stream) > len(self.starts)

    @property
    def script(self) -> str:
        """The script of the first passages with letters, as `agent.metrics.words.script` says."""
        if self._script is None:
            self._script = script(" ".join(text[:100] for text in self.texts[:2]))
        return self._script or script(" ".join(self.texts))

    @property
    def numbers(self) -> set[str]:
        """Canonical numbers of all passages; read on first use, as many answers need none."""
        if self._numbers is None:
            joined = "\n".join(self.texts).lower()
            self._numbers = {form for form, _ in clock_and_plain_numbers(joined)}
        return self._numbers

    def has_number(self, form: str, raw: str) -> bool:
        """Whether a passage has the number, as it is written or in another form.

        "5 pm" also meets a plain "5" or "17".
        """
        if raw in self.vocabulary or form in self.vocabulary:
            return True
        if form.isdecimal():
            # "1000" against "1,000"; anything else of plain digits would be a word of its own
            return len(form) > 3 and any(f"{int(form):,}" in text for text in self.texts)
        if form in self.numbers:
            return True
        if form[0] == "t" and int(form[1:]) % 60 == 0:
            hour = int(form[1:]) // 60 or 12
            return str(hour) in self.vocabulary or str(hour + 12) in self.vocabulary
        return False


@dataclass(slots=True)
class Claim:
    """One sentence of the answer: `words` all its words in lower case, `stems` those of content
    words in order, `content` each with its idf."""

    start: int
    end: int
    text: str
    words: list[str]
    stems: list[str]
    content: dict[str, float]


@dataclass(slots=True)
class Answer:
    """An answer's sentences; its numbers as (canonical form, as written); stems of its names.

    A name is a capitalised word that does not begin a sentence.
    """

    claims: list[Claim] = field(default_factory=list)
    numbers: list[tuple[str, str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group())


def read_answer(text: str) -> Answer:
    """The answer's sentences without citation markers and list signs. Places are kept."""
    text = text[:MAX_ANSWER]
    spans = sentence_spans(text)
    rarity, rarest = idf.get, idf.rarest  # one look-up in C a stem
    if "[" in text or "【" in text:
        text = _MARKER.sub(_blank, text)
    out = Answer()
    firsts = set()
    for start, end in spans:
        piece = text[start:end]
        item = None if piece[0].isupper() else _ITEM.match(piece)
        first = start
        if item:
            first += item.end()
            piece = piece[item.end() :]
        words = tokens(piece)
        if not words:
            continue
        stems = content_stems(words)
        content = {stem: rarity(stem, rarest) for stem in stems}
        out.claims.append(Claim(start, end, piece.strip(), words, stems, content))
        while first < end and not text[first].isalnum():
            first += 1
        firsts.add(first)
        if item and _DIGIT.search(item.group()):
            text = text[:start] + " " * item.end() + text[start + item.end() :]
    if _DIGIT.search(text):
        out.numbers = clock_and_plain_numbers(text.lower())
    names = [m.group() for m in _NAME.finditer(text) if m.start() not in firsts]
    if names:
        out.names = content_stems(tokens(" ".join(names)))
    return out


def find_places(pages: Pages, claims: list[Claim]) -> dict[str, list[int]]:
    """Positions in the stream of each content stem of the answer, `MOST_PLACES` at most."""
    wanted = set().union(*(claim.content for claim in claims))
    stream = pages.stream
    places: dict[str, list[int]] = {}
    # the filter runs in C: this is the innermost loop of everything here
    for position in compress(range(len(stream)), map(wanted.__contains__, stream)):
        word = stream[position]
        found = places.get(word)
        if found is None:
            places[word] = [position]
        elif len(found) < MOST_PLACES:
            found.append(position)
    return places
