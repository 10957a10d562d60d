"""Split an answer into sentences, with its numbers and names, whatever format it is written in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat

from ragmeter.metrics import kernel
from ragmeter.metrics.english import NEGATIONS
from ragmeter.metrics.kernel import IGNORE_CASE, MULTI_LINE, Found, Pattern
from ragmeter.metrics.notation import adopt_notation
from ragmeter.metrics.numbers import compile_pattern, extract_numbers
from ragmeter.metrics.plain_text import PlainText, plain_text
from ragmeter.metrics.sentences import find_sentence_spans
from ragmeter.metrics.stems import content_stems, idf
from ragmeter.metrics.words import WordCutter, tokenize

_DIGIT = compile_pattern("[DIGIT]")
_MARKER = Pattern(r"\[[^\[\]\n]{1,80}\]|【[^【】\n]{1,80}】")
# A number or letter of a list, after other signs as in "- [ ] 2." and "> 3)".
_ITEM = Pattern(
    r"(?:[^\w\n]{0,9}(?:\d{1,2}(?:[.)]|\ufe0f?\u20e3)|[a-z]\)|[①-⑳]"
    r"|(?:[Ss]tep|STEP) \d{1,2}\s{0,3}[.:)–—-])(?:\s+|\Z)){1,2}"
)
_BULLET = Pattern(r"(?:[-–—•‣◦▪●○→✓✔>+] )+")
_ENUMERATED = Pattern(r"(?:^|\s)\(?(\d{1,2})[.)](?=\s)")
_LIST_START = Pattern(r"(?:(?:^|[.:;!?,\n])\s*|\()\Z")
# `[text](address)` keeps its text; a number is a citation, and its address is no text.
_LINK = Pattern(
    r"(\[{1,2})([^\[\]\n]{1,200})(\]{1,2})(\((?:https?:|/|#|www\.|mailto:)[^()\s]{0,400}\)\]?)",
    IGNORE_CASE,
)
# Citation markers that are not in square brackets, as of `ragmeter.metrics.citation_markers`.
_ROUND_MARKER = Pattern(
    r"\(\s?(?:see |per |cf\.? )?(?:sources?|docs?|documents?|chunks?|refs?\.?|references?"
    r"|citations?|excerpts?|contexts?)(?:\s?[:#]|[\s_.-]{0,2}\d)[^()\n]{0,80}\)",
    IGNORE_CASE,
)
_SIGN_MARKER = Pattern(
    r"\\(?:[a-z]{0,6}cite[a-z]{0,8}\*?(?:\[[^\]\n]{0,60}\])?\{[^{}\n]{1,120}\}|\[[\d, ]{1,20}\\\])"
    r"|(?<=[^\W\d_]{3})\^\[?\d{1,3}\]?\^?|:?contentReference\[oaicite:\d{1,4}\]\{index=\d{1,4}\}",
    IGNORE_CASE,
)
_TAG = Pattern(
    r"<(sup|cite|citation|ref|source|fn|c)\b[^<>\n]{0,100}>[^<>\n\s]{1,40}</\1>"
    r"|<!--[^<>]{0,500}-->|</?[a-z][a-z1-6]{0,9}(?: [^<>\n]{0,200})?/?>",
    IGNORE_CASE,
)
# Tags that begin or end a line.
_BLOCK = Pattern(
    r"</?(?:br|p|li|ul|ol|dl|dt|dd|div|tr|table|h[1-6]|section|article|blockquote|pre|hr)\b",
    IGNORE_CASE,
)
_TABLE_HEAD = Pattern(
    r"^[^\n]{0,1000}\n[ \t]{0,9}\|?(?:[ \t]{0,9}:?-{1,99}:?[ \t]{0,9}\|){1,40}[ :\t-]{0,99}$",
    MULTI_LINE,
)
_ROW_NUMBER = Pattern(r"^[ \t]{0,9}\|[ \t]{0,9}(\d{1,3})\.?[ \t]{0,9}(?=\|)", MULTI_LINE)
# Markdown's signs; the signs of lists and quotations are no words anyway.
_SIGNS = ("*", "_", "`", "#", "~")
BIBLIOGRAPHY = Pattern(
    r"(?:^|\n)[#*\s]{0,6}(?:sources?|references?|citations?"
    r"|bibliography)[*\s]{0,4}:?[*\s]{0,4}(?:\n|$)",
    IGNORE_CASE,
)
# Plain words of which a list of sources has one: looking for them is quicker than the pattern.
_SOURCES = (
    "ource",
    "OURCE",
    "eference",
    "EFERENCE",
    "itation",
    "ITATION",
    "ibliograph",
    "IBLIOGRAPH",
)
_WORD_START = Pattern(r"(?=\w)")
# "Sure! Here is a summary of the article in 200 words:" claims nothing.
_PREAMBLE = Pattern(
    r"(?:(?:sure|certainly|of course|absolutely|okay|ok)\b[^\n:.!]{0,60}[!.,:]"
    r"[^\w\n]{0,9}\n?[^\w\n]{0,9})?"
    r"(?:(?:based on|according to)\b[^\n:.,]{0,60},\s{0,9})?"
    r"(?:here(?:'s|’s| is| are)|below (?:is|are)|the following (?:is|are))\b[^\n:.]{0,160}:\s+"
    r"|(?:sure|certainly|of course|absolutely)\b[^\n:.!]{0,60}!\s+",
    IGNORE_CASE,
)
NEGATION_STEMS = frozenset(content_stems(NEGATIONS))
MAX_ANSWER = 20_000  # characters
_MAX_NUMBERS = 300  # of an answer: some are searched for in all passages
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
    that no passage has where passages have another beside the same words.
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
            sign = None if self.bare[first].isalnum() else _BULLET.match(self.bare, first, end)
            at = sign.end() if sign else first
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


def find_bibliography(text: str) -> int:
    """Return where a list of sources begins after the answer proper, or the text's length."""
    cut = BIBLIOGRAPHY.search(text) if any(map(text.__contains__, _SOURCES)) else None
    return cut.start() if cut and text[: cut.start()].strip() else len(text)


def _blank(match: Found) -> str:
    return " " * len(match.group())


def _unlink(match: Found) -> str:
    opened, label, closed, address = match.groups()
    left, right = "[]" if label.strip(" ^").isdecimal() else "  "
    return left.rjust(len(opened)) + label + right.ljust(len(closed) + len(address))


def _blank_tag(match: Found) -> str:
    return "\n".ljust(len(match.group())) if _BLOCK.match(match.group()) else _blank(match)


def _blank_ordinals(pattern: Pattern, text: str) -> str:
    """Replace the numbers 1, 2, 3, … of a list by spaces."""
    runs: list[list[Found]] = []
    for match in pattern.finditer(text):
        if match[1] == "1" and (
            pattern is _ROW_NUMBER
            or _LIST_START.search(text, max(0, match.start(1) - 40), match.start(1))
        ):
            runs.append([match])
        elif runs and int(match[1]) == len(runs[-1]) + 1:
            runs[-1].append(match)
    for match in (match for run in runs if len(run) > 1 for match in run):
        text = (
            text[: match.start()]
            + _blank(match).replace(" ", "\n", match.group()[0] == "\n")
            + text[match.end() :]
        )
    return text


def strip_format(text: str) -> str:
    """Replace markup by spaces, so that an answer reads the same in every format.

    The answer is Markdown, in prose, lists or tables, some with HTML. Citation markers stay: they
    tell where a sentence ends. All characters keep their places.
    """
    if "](" in text:
        text = _LINK.sub(_unlink, text)
    if "<" in text:
        text = _TAG.sub(_blank_tag, text)
    if "(" in text:
        text = _ROUND_MARKER.sub(_blank, text)
    if "\\" in text or "^" in text or "oaicite" in text:
        text = _SIGN_MARKER.sub(_blank, text)
    if "|" in text:
        text = _TABLE_HEAD.sub(_blank, text)
        text = _blank_ordinals(_ROW_NUMBER, text).replace("|", " ")
    for sign in _SIGNS:
        if sign in text:
            text = text.replace(sign, " ")
    if ("2." in text and "1." in text) or ("2)" in text and "1)" in text):
        text = _blank_ordinals(_ENUMERATED, text)
    return text


def strip_markers(text: str) -> str:
    """Replace citation markers, and all else in square brackets, by spaces."""
    return _MARKER.sub(_blank, text) if "[" in text or "【" in text else text


def _place(source: Sequence[PlainText], start: int, end: int) -> tuple[int, int]:
    for step in reversed(source):
        start, end = step.span(start, end)
    return start, end


def parse_answer(text: str, passages: Sequence[str] = (), query: str = "") -> AnswerText:
    """Split an answer into sentences, without its format, preamble and list of sources.

    Its numbers, dates and times are read as the plain texts of `passages` and `query` write them.
    Places of sentences refer to the text as given; only its first 20,000 characters are read.
    """
    plain = plain_text(text[:MAX_ANSWER])
    adopted = adopt_notation(plain.text, passages, query)
    source = [step for step in (plain, adopted.plain) if step.edits]
    text = adopted.plain.text
    text = strip_format(text[: find_bibliography(text)])
    bare = strip_markers(text)
    begin = _ITEM.match(bare) or _WORD_START.search(bare)
    preamble = begin and _PREAMBLE.match(bare, begin.end())
    if preamble and preamble.end() < len(bare.rstrip()):
        text = " " * preamble.end() + text[preamble.end() :]
        bare = strip_markers(text)
    spans = find_sentence_spans(text)
    text = bare
    cutter = WordCutter(text)
    out = AnswerText(replaced=adopted.replaced, _source=source)
    firsts = set()
    for start, end in spans:
        item = (
            None if text[start].isupper() and text[start] != "S" else _ITEM.match(text, start, end)
        )
        first = item.end() if item else start
        if item and _DIGIT[text.isascii()].search(item.group()):
            text = text[:start] + " " * (first - start) + text[first:]
        behind_number = first
        while first < end and not text[first].isalnum():
            first += 1
        if first == end:
            continue
        firsts.add(first)
        claim = text[behind_number:end].strip()
        if "  " in claim:
            claim = " ".join(claim.split())
        if bullet := None if claim[0].isalnum() else _BULLET.match(claim):
            claim = claim[bullet.end() :]
        out.claims.append(
            AnswerSentence(_place(source, start, end), claim, cutter, (behind_number, end))
        )
        out.spans.append((behind_number, end))
    out.bare = text
    if _DIGIT[text.isascii()].search(text):
        out.numbers = extract_numbers(text.lower())[:_MAX_NUMBERS]
    names = [name for at, name in kernel.find_names(text) if at not in firsts]
    if names:
        out.names = content_stems(tokenize(" ".join(names)))
    return out
