"""The texts of one trace, read once: passages as one stream of stems, the answer as sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from itertools import compress, repeat

from agent.metrics.passages import Passage, read_passage
from agent.metrics.sentences import sentence_spans
from agent.metrics.words import (
    MAX_CHARS,
    clock_and_plain_numbers,
    content_stems,
    idf,
    plain,
    script,
    split,
    tokens,
)

__all__ = [
    "MAX_ANSWER",
    "Answer",
    "Claim",
    "Pages",
    "Query",
    "find_places",
    "limited",
    "read_answer",
]

_DIGIT = re.compile(r"\d")
_NAME = re.compile(r"[A-Z](?<![\w'’].)\w+")
_MARKER = re.compile(r"\[[^\[\]\n]{1,80}\]|【[^【】\n]{1,80}】")
_ITEM = re.compile(r"\s*(?:[-*•#>]+|\(?\d{1,2}[.)]|\(?[a-z]\))\s+")
# "Sure! Here is a summary of the article in 200 words:" claims nothing, and none of its words are
# the passages'
_PREAMBLE = re.compile(
    r"\s{0,9}(?:(?:sure|certainly|of course|absolutely|okay|ok)\b[^\n:.!]{0,60}[!.,:]\s{0,9})?"
    r"(?:(?:based on|according to)\b[^\n:.,]{0,60},\s{0,9})?"
    r"(?:here(?:'s|’s| is| are)|below (?:is|are)|the following (?:is|are))\b[^\n:.]{0,160}:\s"
    r"|\s{0,9}(?:sure|certainly|of course|absolutely)\b[^\n:.!]{0,60}!\s",
    re.IGNORECASE,
)
MAX_PASSAGES = 400  # no model is given more; the rest is not read
MOST_PLACES = 40  # a word as frequent as that places nothing
MAX_ANSWER = 20_000  # characters of an answer that are read
MAX_QUERY = 4_000


@dataclass(slots=True)
class Pages:
    """Passages as one stream of content stems; a "" between two passages matches nothing.

    `starts` is the first position of each passage, `owner` the passage of each position.
    """

    passages: list[Passage]
    stream: list[str]
    starts: list[int]
    owner: list[int]
    structured: bool
    _script: str | None = None
    _flat: str | None = None

    @classmethod
    def read(cls, texts: Sequence[str]) -> Pages:
        stream: list[str] = []
        starts: list[int] = []
        owner: list[int] = []
        passages: list[Passage] = []
        structured = False
        budget = MAX_CHARS
        for number, text in enumerate(texts[:MAX_PASSAGES]):
            text = text[: max(budget, 0)]
            budget -= len(text)
            passage = read_passage(text)
            structured = structured or passage.structured
            starts.append(len(stream))
            stream += passage.stems
            owner += [number] * len(passage.stems)
            passages.append(passage)
        return cls(passages, stream, starts, owner, structured)

    @property
    def texts(self) -> list[str]:
        return [passage.text for passage in self.passages]

    @property
    def has_text(self) -> bool:
        return len(self.stream) > len(self.starts)

    @property
    def script(self) -> str:
        """The script of the first passages with letters, as `agent.metrics.words.script` says."""
        if self._script is None:
            self._script = script(" ".join([p.text[:100] for p in self.passages[:2]]))
        return self._script or script(" ".join(self.texts))

    @property
    def flat(self) -> str:
        """All stems with a space around each; read on first use, as many answers need none."""
        if self._flat is None:
            self._flat = "".join([passage.flat for passage in self.passages])
        return self._flat

    def locate(self, wanted: Set[str]) -> dict[str, list[int]]:
        """Every position in the stream of each stem of `wanted` that is there, in order."""
        places: dict[str, list[int]] = {}
        stream, get = self.stream, places.get
        # the filter runs in C: this is the innermost loop of everything here
        for at in compress(range(len(stream)), map(wanted.__contains__, stream)):
            word = stream[at]
            here = get(word)
            if here is None:
                places[word] = [at]
            else:
                here.append(at)
        return places

    def has_number(self, form: str, raw: str) -> bool:
        """Whether a passage has the number, as it is written or in another form.

        "5 pm" also meets a plain "5" or "17".
        """
        flat = self.flat
        if (" " not in raw and f" {raw} " in flat) or f" {form} " in flat:
            return True
        if form.isdecimal():
            # "1000" against "1,000"; anything else of plain digits would be a word of its own
            return len(form) > 3 and any(f"{int(form):,}" in text for text in self.texts)
        if any(form in passage.numbers for passage in self.passages):
            return True
        if form[0] == "t" and int(form[1:]) % 60 == 0:
            hour = int(form[1:]) // 60 or 12
            return f" {hour} " in flat or f" {hour + 12} " in flat
        return False


@dataclass(slots=True)
class Query:
    """A query's content stems: `words` in order, `stems` each once, in order too."""

    text: str
    words: list[str]
    stems: dict[str, None]
    _numbers: set[str] | None = None

    @classmethod
    def read(cls, text: str | None) -> Query:
        text = (text or "")[:MAX_QUERY]
        words = content_stems(tokens(text))
        return cls(text, words, dict.fromkeys(words))

    @property
    def numbers(self) -> set[str]:
        """Canonical numbers; read on first use, as many answers have none to compare."""
        if self._numbers is None:
            self._numbers = {form for form, _ in clock_and_plain_numbers(self.text.lower())}
        return self._numbers


@dataclass(slots=True)
class Claim:
    """One sentence of the answer: `stems` those of its content words in order, `content` each
    with its idf."""

    start: int
    end: int
    text: str
    stems: list[str]
    content: dict[str, float]


@dataclass(slots=True)
class Answer:
    """An answer's sentences and all their words in lower case; its numbers as (canonical form, as
    written); stems of its names.

    A name is a capitalised word that does not begin a sentence.
    """

    claims: list[Claim] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    numbers: list[tuple[str, str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    _content: frozenset[str] | None = None

    @property
    def content(self) -> frozenset[str]:
        """The stems of all sentences; gathered on first use, when the answer is read whole."""
        if self._content is None:
            self._content = frozenset().union(*[claim.content for claim in self.claims])
        return self._content


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group())


def read_answer(text: str) -> Answer:
    """The answer's sentences without markers, list signs and a preamble. Places are kept."""
    text = text[:MAX_ANSWER]
    preamble = _PREAMBLE.match(text)
    if preamble and preamble.end() < len(text.rstrip()):
        text = " " * preamble.end() + text[preamble.end() :]
    spans = sentence_spans(text)
    if "[" in text or "【" in text:
        text = _MARKER.sub(_blank, text)
    # read as one text and cut; lower case rarely changes the length, and then each piece is read
    flat, unspaced = plain(text)
    aligned = len(flat) == len(text)
    rarity, rarest = idf.get, repeat(idf.rarest)  # looked up in C
    out = Answer()
    firsts = set()
    for start, end in spans:
        item = None if text[start].isupper() else _ITEM.match(text, start, end)
        first = item.end() if item else start
        words = split(flat[first:end], unspaced) if aligned else tokens(text[first:end])
        if not words:
            continue
        out.words += words
        stems = content_stems(words)
        content = dict(zip(stems, map(rarity, stems, rarest)))  # noqa: B905
        out.claims.append(Claim(start, end, text[first:end].strip(), stems, content))
        while first < end and not text[first].isalnum():
            first += 1
        firsts.add(first)
        if item and _DIGIT.search(item.group()):
            text = text[:start] + " " * (item.end() - start) + text[item.end() :]
    if _DIGIT.search(text):
        out.numbers = clock_and_plain_numbers(text.lower())
    names = [m.group() for m in _NAME.finditer(text) if m.start() not in firsts]
    if names:
        out.names = content_stems(tokens(" ".join(names)))
    return out


def limited(places: dict[str, list[int]]) -> dict[str, list[int]]:
    """`MOST_PLACES` positions at most of each stem, the first ones."""
    if max(map(len, places.values()), default=0) <= MOST_PLACES:
        return places
    return {w: at if len(at) <= MOST_PLACES else at[:MOST_PLACES] for w, at in places.items()}


def find_places(
    pages: Pages, claims: Sequence[Claim], query: Iterable[str] = ()
) -> dict[str, list[int]]:
    """Positions of each stem of the claims and of the query, `MOST_PLACES` at most."""
    return limited(pages.locate(set(query).union(*[claim.content for claim in claims])))
