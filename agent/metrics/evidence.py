"""The texts of one trace, read once: passages as one stream of stems, the answer as sentences."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.metrics.structured import looks_structured, spread_camel_case
from agent.metrics.words import (
    MAX_CHARS,
    clock_and_plain_numbers,
    idf,
    script,
    sentence_spans,
    stem,
    stems,
    tokens,
)

__all__ = ["MAX_ANSWER", "Claim", "Pages", "read_claims"]

_NAME = re.compile(r"(?<![\w'’])[A-Z][\w]+")
_MARKER = re.compile(r"\[[^\[\]\n]{1,80}\]|【[^【】\n]{1,80}】")
_ITEM = re.compile(r"\s*(?:[-*•#>]+|\(?\d{1,2}[.)]|\(?[a-z]\))\s+")
MAX_PASSAGES = 400  # no model is given more; the rest of the list is not read
MAX_ANSWER = 20_000  # characters of an answer that are read


@dataclass(slots=True)
class Pages:
    """Passages as one stream of stems. A "" stands between two passages: nothing matches it."""

    texts: list[str]
    stream: list[str]
    starts: list[int]
    vocabulary: set[str]
    structured: bool
    _numbers: set[str] | None = None

    @classmethod
    def read(cls, texts: Sequence[str]) -> Pages:
        stream: list[str] = []
        starts: list[int] = []
        kept: list[str] = []
        structured = False
        budget = MAX_CHARS
        for text in texts[:MAX_PASSAGES]:
            text = text[: max(budget, 0)]
            budget -= len(text)
            if looks_structured(text):
                structured = True
                text = spread_camel_case(text)
            starts.append(len(stream))
            stream += stems(text)
            stream.append("")
            kept.append(text)
        return cls(kept, stream, starts, set(stream), structured)

    @property
    def has_text(self) -> bool:
        return len(self.stream) > len(self.starts)

    @property
    def script(self) -> str:
        """The script of the first passages with letters, as `agent.metrics.words.script` says."""
        return script(" ".join(text[:200] for text in self.texts if text)[:1000])

    def passage_of(self, position: int) -> int:
        """Which passage a position of the stream lies in."""
        return bisect_right(self.starts, position) - 1

    @property
    def numbers(self) -> set[str]:
        """Canonical numbers of all passages; read on first use, as many answers have none."""
        if self._numbers is None:
            found: set[str] = set()
            for text in self.texts:
                found.update(form for form, _, _ in clock_and_plain_numbers(text.lower()))
            self._numbers = found
        return self._numbers


@dataclass(slots=True)
class Claim:
    """One sentence of the answer: `stems` in order; `content` its content stems with their idf."""

    start: int
    end: int
    text: str
    stems: list[str]
    content: dict[str, float]
    numbers: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


def read_claims(answer: str) -> list[Claim]:
    """The answer's sentences without citation markers and list signs."""
    claims: list[Claim] = []
    answer = answer[:MAX_ANSWER]
    for start, end in sentence_spans(answer):
        text = answer[start:end]
        if "[" in text or "【" in text:
            text = _MARKER.sub(" ", text)
        item = _ITEM.match(text)
        if item:
            text = text[item.end() :]
        words = stems(text)
        if not words:
            continue
        content = {}
        for word in words:
            rarity = idf[word]
            if rarity > 0.0:
                content[word] = rarity
        claim = Claim(start, end, text, words, content)
        claim.numbers = [form for form, _, _ in clock_and_plain_numbers(text.lower())]
        names = _NAME.findall(text)
        if names:
            first = text.lstrip("\"'“‘(*_ ")
            if first.startswith(names[0]):
                names = names[1:]
            claim.names = [stem(t) for name in names for t in tokens(name)]
        claims.append(claim)
    return claims
