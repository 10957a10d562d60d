"""What the text of a citation marker names: passages by id, rank, position, file, title or address.

A target that has the form of what the passages are called by and names none of them dangles. A
target of another form, such as an author and a year, is seen and cannot be resolved.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ragmeter.metrics.kernel import IGNORE_CASE, Found, Pattern
from ragmeter.trace import CitedSource, Passage

_MAX_RANGE = 50  # [1-999999] must not become a million citations
_MAX_PIECES = 60
_MIN_QUOTE = 8  # letters of cited words that tell a passage
_MAX_QUOTE = 300
_MIN_BEGINNING = 6  # characters of a shortened id
_MAX_NAME = 400  # characters of a name in the metadata of a passage
_AROUND = 240  # characters before a marker that tell which page of a document is meant

_SEPARATOR = r"(?:[,;、，；،؛・|•·](?:\s?and\b)?|[-–—~〜]|\b(?:and|or|und|oder|et|ou|y|e|o)\b|&|\+)"
# No number of four digits begins with 0: "[555-0134]" is a telephone number.
_NUMBER = r"#?(?:0\d{0,2}|[1-9]\d{0,3})"
_NUMBERS = Pattern(rf"\s*{_NUMBER}\s*(?:{_SEPARATOR}\s*{_NUMBER}\s*){{0,40}}\Z")
_PIECE = Pattern(r"(\d+)\s*[-–—~〜]\s*#?(\d+)|(\d+)")
_SPLIT = Pattern(r"[,;、，；،؛|]|\s&\s|\sand\s")
LABEL = (
    r"(?:source\(s\)|sources?|src|docs?|documents?|passages?|ref(?:erence)?s?|chunks?|contexts?|excerpts?"
    r"|cit(?:e|ed|es|ing|ations?)?|footnotes?|snippets?|file|kb|id|fn|no|s(?=\d)|oai"
    r"|quellen?|dokumente?|belege?|abschnitte?|fuentes?|documentos?|referencias?|fontes?|réf(?:érence)?s?"
    r"|bron(?:nen)?|käll(?:a|or)|kilder?|lähde|zdroj|źródł[oa]|kaynak|forrás|nguồn|sumber|πηγή"
    r"|источники?|джерел[оа]|док(?:умент[а-я]{0,2})?|来源|來源|资料|資料|文档|文檔|文件|出典|参考(?:资料|文献|資料)?"
    r"|參考(?:資料|文獻)?|引用|文献|文書|출처|자료|문서|참고|स्रोत|दस्तावेज़|المصدر|مصدر|المرجع|مرجع|المستند|وثيقة|منبع|מקור|מסמך)"
)
# Writers lead to it by such words: "see chunk 1", "siehe Dokument 1", "voir le document 2"
LEAD = (
    r"(?:see(?: also|,? e\.\s?g\.,?)?|e\.\s?g\.,?"
    r"|per|cf\.?|from|via|as per|according to|based on|siehe|vgl\.?|laut|gemäß|voir|selon"
    r"|d['’]après|см\.?(?:\sтакже)?|ср\.|согласно|див\.|zob\.|viz|bkz\.|انظر|راجع|véase|ver|según|vedi|secondo|cfr\.?|zie|volgens|veja|conforme|segundo"
    r"|参见|參見|参照|详见|見|见)(?:(?<=[参參见見照])|\s)\s{0,3}(?:(?:the|el|la|le|les|il|lo|het|de|o|a|das|dem)\s)?"
)
# "Source: ", "doc-", "see chunk ", "Document #"
_LEAD = Pattern(rf"\s*{LEAD}", IGNORE_CASE)
_POINTING = ("se", "cf", "e.")
_LABELLED = Pattern(
    rf"\s*(?:(?P<label>{LABEL})(?![A-Za-z])[\s_#:.\-–—=]{{0,4}}(?:id\s?[:=]\s?|n[or]\.?\s?(?=\d))?|(?P<sign>[#^@№]))",
    IGNORE_CASE,
)
_PAGE = Pattern(
    r"(?:(?:\A|[\s,;:(\[]|(?<=\w)#)(?:p{1,2}\.?\s?|pages?[\s=:.]{0,2}(?:no\.?\s)?|pg\.?\s?|s\.\s|seite\s"
    r"|slides?\s"
    r"|[§¶]\s?|sect?(?:ions?|\.)?\s|para(?:graphs?|\.)?\s|lines?\s|l\.\s|chap(?:ter|\.)?\s|ch\.\s"
    r"|с(?:тр)?\.\s?|стр(?:аница)?\s|str\.\s?|第))"
    r"(\d{1,5}(?:\.\d{1,3}){0,3})(?:\s?[-–—]\s?(\d{1,5}))?\s?[页頁]?\)?\s*\Z",
    IGNORE_CASE,
)
# Those of a page, not of a section or a line
_OF_A_PAGE = Pattern(r"[\s,;:(\[#]?(?:p|s\.|seite|slide|с|第)(?!ara)", IGNORE_CASE)
# Forms and logs write "[address line 1]", which cites nothing.
_LINE = Pattern(r"\A\s?[a-z][a-z ]{0,40}\sline\s\d{1,4}\s?\Z")
# The files that answers cite by name have one of these endings.
FILE_ENDINGS = r"(?:pdf|docx?|md|html?|txt|pptx?|xlsx?|csv|json|rst)"
_TITLED = Pattern(r"(\d{1,3})\s?[:–—-]\s?[^\W\d]")
# "1:manual.pdf", "1 - manual.pdf"
_NUMBERED_NAME = Pattern(r"(\d{1,3})(?:\s?[:|]\s?|\s[-–—]\s)(\S.{2,})\Z")
# "d1/2": a part of a passage
_PART = Pattern(r"\s?[/|@:#-]\s?\d{1,4}\Z")
# "manual.pdf: 3"
_PAGE_OF_FILE = Pattern(rf"(\.{FILE_ENDINGS})\s?:\s?\d{{1,5}}\Z", IGNORE_CASE)
# "see doc 2 for details"
_TRAIL = Pattern(
    r"\s(?:for (?:(?:more|further|full) )?(?:details|information|more)|above|below)\Z", IGNORE_CASE
)
# "manual @ 12:30", "Episode 4, 03:15"
_TIME_OF_NAME = Pattern(
    r"(?<=\S)\s?(?:[\s,;@(|–—-]|\bat\b){1,3}(?:\d{1,2}:)?\d{1,3}:[0-5]\d(?:\s?[-–]\s?(?:\d{1,2}:)?\d{1,3}:[0-5]\d)?\)?\Z"
)
# "Guide › Set-up › Register": a document and the headings in it
_HEADINGS = Pattern(r"\s?[›>»→]\s|\s[/|]\s")
# Answers join ids by these signs and words: "d1/d3", "d1 & d2", "d1 and d3"
_JOINT = Pattern(r"\s{0,3}[,;/&+|、]\s{0,3}|\s{1,3}(?:and|or|und|oder|et|ou|y|e|o)\s{1,3}")
# "1 to 3"
_RANGE_IN_WORDS = Pattern(
    r"(\d{1,3})(?:\s?(?:\.{2,3}|…|→)\s?|\s(?:to|through|thru|bis|à|al?)\s)(\d{1,3})\Z"
)
_FILE = Pattern(r"[^\s/\\]\.(?:[a-z]{2,5}|7z|mp[34])(?:[#?:]\S*)?\Z", IGNORE_CASE)
_ADDRESS = Pattern(r"(?:https?://|www\.)\S+", IGNORE_CASE)
_DIGITS = Pattern(r"\d+")
_WORDS = Pattern(r"\w{3,}")
_FRAGMENT = Pattern(r"(?<=\w)[#?:_][\w=&.-]{1,40}\Z")
_NAMES = (
    "source sourceid sourceurl sourcename sourcefile file filename filepath path relpath title name"
    " document documentid documentname documenttitle doc docid doctitle docname url uri link href"
    " address chunkid id key pageurl webpage section heading headingpath"
)
_NAME_KEYS = frozenset(_NAMES.split())
_TIME_KEYS = frozenset(
    (
        "start",
        "starttime",
        "startseconds",
        "startsec",
        "startms",
        "end",
        "endtime",
        "offset",
        "timestamp",
        "timestamps",
        "timecode",
        "time",
        "t",
        "duration",
    )
)
_TIME_VALUE = Pattern(
    r"\s?\d{1,7}(?:\.\d{1,6})?s?\Z|\s?(?:\d{1,2}:)?\d{1,3}:\d\d(?:[.,]\d{1,3})?\b"
)
_MEDIA = Pattern(
    r"youtu\.?be|vimeo\.|podcast|\.(?:mp[34]|m4a|wav|webm|mkv|mov|vtt|srt)\b", IGNORE_CASE
)
_TRANSCRIPT = Pattern(r"(?:\A|\n)\s{0,3}[\[(]?(?:\d{1,2}:)?\d{1,2}:[0-5]\d(?:[.,]\d{1,3})?[\])]?\s")
_TRANSCRIPT_CHARS = 2000  # of a text that has times at all
_PAGE_KEYS = frozenset(("page", "pagenumber", "pagelabel", "pageno", "slide"))


@dataclass(slots=True)
class Targets:
    """What a marker names: `passages` by index, the number of targets that dangle, and of others.

    A marker with none of them is no citation.
    """

    passages: list[int] = field(default_factory=list)
    dangling: int = 0
    unread: int = 0

    def __bool__(self) -> bool:
        return bool(self.passages or self.dangling or self.unread)

    def add(self, index: int | None) -> None:
        """Count a target: that of a passage, or one that dangles."""
        if index is None:
            self.dangling += 1
        else:
            self.passages.append(index)


class Resolver:
    """Resolves targets to passage indices: by id, then by rank, then by position, then by name.

    Args:
        passages: Those of the trace.
        answer: Its answer, whose words before a marker tell which page of a document is meant.
    """

    __slots__ = (
        "_answer",
        "_ids",
        "_names",
        "_pages",
        "_passages",
        "_ranks",
        "_shapes",
        "count",
        "from_zero",
    )

    def __init__(self, passages: Sequence[Passage], answer: str = "") -> None:
        self._passages = passages
        self._answer = answer
        self.count = len(passages)
        self.from_zero = False  # whether the answer counts positions from 0
        self._ids: dict[str, int] | None = None
        self._ranks: dict[int, int] = {}
        self._shapes: set[str] | None = None
        self._names: dict[str, list[int]] | None = None
        self._pages: dict[str, list[int]] | None = None

    @property
    def ids(self) -> dict[str, int]:
        """The passages by id in lower case; made on first use, as many answers cite nothing."""
        if self._ids is None:
            self._ids = {}
            for index, passage in enumerate(self._passages):
                self._ids.setdefault(passage.id.casefold(), index)
                if passage.rank is not None:
                    self._ranks.setdefault(passage.rank, index)
            if 0 in self._ranks:  # ranks from 0: prompts still number from 1
                self._ranks = {}
        return self._ids

    def by_id(self, text: str) -> int | None:
        """Return the passage of this id."""
        key = text.strip().casefold()
        index = self.ids.get(key)
        return index if index is not None else self.ids.get(f"[{key}]")

    def by_number(self, number: int) -> int | None:
        """Return the passage of a number that is an id, a rank or a position."""
        index = self.ids.get(str(number))
        if self.from_zero:
            return number if index is None and number < self.count else index
        if index is None:
            index = self._ranks.get(number)
        if index is None and 1 <= number <= self.count:
            index = number - 1
        return index

    @property
    def pages(self) -> dict[str, list[int]]:
        """The passages of each page; made on first use."""
        if self._pages is None:
            self._pages = {}
            for index, passage in enumerate(self._passages):
                for page in _pages(passage):
                    self._pages.setdefault(page, []).append(index)
        return self._pages

    def by_pages(self, pages: list[str]) -> list[int]:
        """Return the passages that alone have one of these pages."""
        found = [self.pages.get(page, []) for page in pages]
        return [indices[0] for indices in found if len(indices) == 1]

    def _held(self, pages: list[str]) -> list[str]:
        """Return those of some pages that passages have, the first one if they have none."""
        return [page for page in pages if page in self.pages] or pages[:1]

    def by_name(self, text: str, at: int = 0, page: str = "") -> int | None:
        """Return the passage of a document that its id or metadata name.

        Args:
            text: A file, a title or an address.
            at: Where it is cited in the answer.
            page: Which of its pages.
        """
        if self._names is None:
            self._names = {}
            for index, passage in enumerate(self._passages):
                for name in set(_names(passage)):
                    self._names.setdefault(name, []).append(index)
        found: list[int] = []
        for name in _spellings(text):
            found = self._names.get(name, [])
            if found:
                break
        if page and len(found) > 1:
            of_page = self.pages.get(page, [])
            found = [index for index in found if index in of_page] or found
        if len(found) < 2:
            return found[0] if found else None
        said = set(_WORDS.findall(self._answer[max(0, at - _AROUND) : at].lower()))
        return max(
            found,
            key=lambda i: (
                len(said.intersection(_WORDS.findall((self._passages[i].text or "").lower()))),
                -i,
            ),
        )

    def by_source(self, source: CitedSource, at: int = 0) -> int | None:
        """Return the passage of a source as a provider names it, None where nothing tells it.

        Its cited words come before its names, which pages of one document share, and a position
        counts only where the passage there may have these words.
        """
        names = [name for name in (source.id, source.url, source.title) if name]
        for name in names:
            index = self.by_id(name)
            if index is not None:
                return index
        quoted = self._by_quote(source.text, source.index)
        if quoted is not None:
            return quoted
        if source.id and source.id.isdecimal() and len(source.id) < 5:
            index = self.by_number(int(source.id))
            if index is not None:
                return index
        for name in names:
            index = self.by_name(name, at)
            if index is not None:
                return index
        position = source.index
        if position is not None and position < self.count:
            return None if source.text and self._passages[position].text else position
        return None

    def _by_quote(self, quote: str | None, position: int | None) -> int | None:
        words = _squeezed(quote or "")[:_MAX_QUOTE]
        if len(words) < _MIN_QUOTE:
            return None
        order = list(range(self.count))
        if position is not None and position < self.count:
            order.insert(0, position)
        for index in order:
            text = self._passages[index].text
            if text and words in _squeezed(text):
                return index
        return None

    def has_file_names(self) -> bool:
        """Whether the passages are known by the names of files."""
        self.by_name("")
        return any(map(_FILE.search, self._names or ()))

    def like_an_id(self, text: str) -> bool:
        """Return whether the text equals a passage id but for its digits."""
        if self._shapes is None:
            self._shapes = {_DIGITS.sub("0", key) for key in self.ids if _DIGITS.search(key)}
        return _DIGITS.sub("0", text.strip().casefold()) in self._shapes

    def by_beginning(self, text: str) -> int | None:
        """Return the passage whose id alone begins with a text that is long enough for it.

        Models shorten long ids as "3f2b8c1e-9d4a-4b7c-8e21-0a1b2c3d4e5f" to their first part.
        """
        key = text.strip().casefold().rstrip("….")
        if len(key) < _MIN_BEGINNING or not _DIGITS.search(key) or " " in key:
            return None
        begins = re.compile(rf"(?:\A|[_:/.-]){re.escape(key)}")
        found = [index for one, index in self.ids.items() if begins.search(one)]
        return found[0] if len(found) == 1 and not key.isdecimal() else None

    def has_recordings(self) -> bool:
        """Return whether passages are of recordings, by times and media of metadata and texts."""
        return any(map(_is_recorded, self._passages))

    def read(self, text: str, at: int = 0, *, marked: bool = False) -> Targets:
        """Resolve the text of a marker.

        Args:
            text: What stands between its brackets.
            at: Where it stands in the answer.
            marked: Whether its form says that it cites, whatever it names.
        """
        out = Targets()
        body = text.strip().strip("«»“”„")
        if trail := _TRAIL.search(body):
            body = body[: trail.start()]
        if time := _TIME_OF_NAME.search(body):
            body = body[: time.start()].rstrip(" ,;@(|–—-")
        if page := _PAGE_OF_FILE.search(body):
            body = body[: page.end(1)]
        body = _RANGE_IN_WORDS.sub(lambda found: f"{found[1]}-{found[2]}", body)
        if ";" in body:  # "1; see also 2"
            body = ";".join(map(_without_lead, body.split(";")))
        index = self.by_id(body)
        if index is not None:
            out.add(index)
            return out
        if _NUMBERS.match(body):
            return self._read_numbers(body, marked=marked)
        if joined := self.read_joined(body):
            out.passages += joined
            return out
        if (index := self.by_beginning(body)) is not None:
            out.add(index)
            return out
        if self.like_an_id(body):
            out.add(None)
            return out
        if lead := _LEAD.match(body):
            body = body[lead.end() :]
            if lead.group().strip()[:2].casefold() in _POINTING and _NUMBERS.match(body):
                return self._read_numbers(body, marked=True)  # "[see also 2]"
        name = _LABELLED.match(body)
        if name:
            rest = body[name.end() :].strip()
            if _NUMBERS.match(rest):
                return self._read_numbers(rest, marked=True)
            several = name.group().rstrip(" \t_#:.-–—=").endswith("s")
            if joined := self.read_joined(rest, several=several):
                out.passages += joined
                return out
            if titled := _TITLED.match(rest):  # "Source 1: Refund policy"
                return self._read_numbers(titled[1], marked=True)
            cites = name["label"] is None or ":" in name.group()
            if cites or " " in name.group().rstrip(" \t_#.-–—="):
                body = rest  # "see manual.pdf", "Source: manual.pdf"
            marked = marked or (cites and name["sign"] not in ("#", "^"))
        index = self.by_name(body, at)
        if index is not None and (marked or name or len(body) > 3):
            out.add(index)
            return out
        part = _PART.search(body)
        index = self.by_id(body[: part.start()]) if part and not body[0].isdecimal() else None
        if index is not None:
            out.add(index)
            return out
        numbered = _NUMBERED_NAME.match(body)
        index = self.by_name(numbered[2], at) if numbered else None
        if index is not None:
            out.add(index)
            return out
        if heading := _HEADINGS.search(body):
            index = self.by_name(body[: heading.start()], at) if heading.start() > 3 else None
            if index is not None:
                out.add(index)
                return out
        return self._read_pieces(body, at, marked=marked)

    def read_joined(self, body: str, *, several: bool = False) -> list[int]:
        """Return the passages of "d1/d3", "d1 & d2" or "1/2/3"; none unless each part is one.

        Args:
            body: What stands between brackets, or behind a label there.
            several: Whether it names several passages, so that "1/3" is no part of one.
        """
        parts = _JOINT.split(body.strip())
        if not 1 < len(parts) <= _MAX_PIECES:
            return []
        numbers = [int(part) for part in parts if part.isdecimal() and len(part) < 4]
        if len(numbers) == len(parts):
            slashed = body.count("/") == len(parts) - 1 and (several or len(parts) > 2)
            found = list(map(self.by_number, numbers)) if slashed else []
        else:
            found = list(map(self.by_id, parts))
        known = [index for index in found if index is not None]
        return known if len(known) == len(parts) else []

    def _read_numbers(self, text: str, *, marked: bool) -> Targets:
        out = Targets()
        numbers = list_numbers(text)
        indices = [self.by_number(number) for number in numbers]
        if None in indices and not marked:
            # 0 is an index or the end of an interval, 1000 and more a year
            pairs = zip(numbers, indices, strict=True)
            if any(index is None and not 0 < number < 1000 for number, index in pairs):
                return out
        for index in indices:
            out.add(index)
        return out

    def _read_pieces(self, body: str, at: int, *, marked: bool) -> Targets:
        """Read a list of ids or names, or a name with its page."""
        out = Targets()
        named_file = False
        paged = False
        pages: list[list[str]] = []  # those that no name stands before, and all of a range
        alone = True  # whether nothing but pages is cited
        number: int | None = None  # the passage of a bare number, which a page may follow
        pieces = _SPLIT.split(body)[:_MAX_PIECES]
        for piece, behind in itertools.zip_longest(pieces, pieces[1:], fillvalue=""):
            bare = piece.strip(" \t\"'`*_")
            page = _PAGE.search(bare)
            if page:
                paged = True
                bare = bare[: page.start()].rstrip(" ,;:(#–—-›>·")
                if not bare:
                    if number is not None:  # "1, p. 3"
                        out.add(number)
                    elif _OF_A_PAGE.match(page.group()):
                        pages.append(_page_range(page))
                    continue
            if pages and bare.isdecimal():  # "pages 3, 12"
                pages.append([bare])
                continue
            alone = False
            label = _LABELLED.match(bare)
            rest = bare[label.end() :].strip("\"'") if label else bare
            index = self.by_id(bare)
            if index is None and label and rest.isdecimal() and len(rest) < 5:
                out.add(self.by_number(int(rest)))
                continue
            if index is None and marked and bare.isdecimal() and len(bare) < 5:
                index = self.by_number(int(bare))
            if index is None:
                index = self.by_id(rest)
            if index is None and len(rest) > 3:
                page = page or _PAGE.match(behind)  # "manual.pdf, pp. 3-5"
                cited = self._held(_page_range(page)) if page else [""]
                index = self.by_name(rest, at, cited[0])
                for other in cited[1:]:
                    out.add(self.by_name(rest, at, other))
            number = None
            if index is not None:
                out.add(index)
            elif bare.isdecimal() and len(bare) < 4:
                number = self.by_number(int(bare))
            elif self.like_an_id(bare) or self.like_an_id(rest):
                out.add(None)
            else:
                named_file = named_file or (bool(_FILE.search(rest)) and not _ADDRESS.match(rest))
        if out:
            return out
        by_page = [self.by_pages(cited) for cited in pages] if alone else []
        if by_page and all(by_page):
            known = Targets()
            for index in itertools.chain.from_iterable(by_page):
                known.add(index)
            return known
        if named_file and self.has_file_names():
            out.dangling = 1  # a document that nobody has retrieved
        elif (marked and body) or named_file or (paged and not _LINE.search(body)):
            out.unread = 1
        return out


def _without_lead(text: str) -> str:
    """Return a text without the words that lead to what it cites, as "see also"."""
    lead = _LEAD.match(text)
    return text[lead.end() :] if lead else text


def _squeezed(text: str) -> str:
    """Return the letters and digits of a text, as an extractor may change all between them."""
    return "".join(re.findall(r"\w+", text)).casefold()


def list_numbers(text: str) -> list[int]:
    """Return the numbers of a list with ranges, as in "1, 3-5"."""
    numbers: list[int] = []
    for low, high, single in _PIECE.findall(text):
        if single:
            numbers.append(int(single))
        elif int(low) <= int(high) < int(low) + _MAX_RANGE:
            numbers.extend(range(int(low), int(high) + 1))
        else:
            numbers += [int(low), int(high)]
    return numbers


def _page_range(page: Found) -> list[str]:
    """Return the pages of "3-5", or the one of "3" or "3.2"."""
    first, last = page[1], page[2]
    if not last or not first.isdecimal() or not int(first) < int(last) < int(first) + _MAX_RANGE:
        return [first]
    return [str(number) for number in range(int(first), int(last) + 1)]


def _names(passage: Passage) -> Iterator[str]:
    """Return all that a passage may be called by, in lower case."""
    yield from _spellings(passage.id)
    stack = [passage.metadata or {}]
    for metadata in stack:
        for key, value in list(metadata.items())[:_MAX_PIECES]:
            name = re.sub(r"[^a-z]", "", key.lower()) if isinstance(key, str) else ""
            if isinstance(value, str) and name in _NAME_KEYS:
                yield from _spellings(value[:_MAX_NAME])
            elif isinstance(value, dict) and len(stack) < 4:
                stack.append(value)


def _pages(passage: Passage) -> set[str]:
    """Return the pages of a passage, as its metadata has them."""
    found = set()
    for key, value in (passage.metadata or {}).items():
        if re.sub(r"[^a-z]", "", str(key).lower()) in _PAGE_KEYS and isinstance(value, str | int):
            found.add(str(value))
    return found


def _is_recorded(passage: Passage) -> bool:
    """Return whether a passage is of a recording."""
    for key, value in list((passage.metadata or {}).items())[:_MAX_PIECES]:
        text = str(value)[:_MAX_NAME] if isinstance(value, str | int | float) else ""
        timed = re.sub(r"[^a-z]", "", str(key).lower()) in _TIME_KEYS
        if (timed and _TIME_VALUE.match(text)) or _MEDIA.search(text):
            return True
    beginning = (passage.text or "")[:_TRANSCRIPT_CHARS]
    return bool(_MEDIA.search(passage.id) or _TRANSCRIPT.search(beginning))


def _spellings(text: str) -> list[str]:
    """Return the ways to write a name: whole, without fragment, without path, without extension."""
    name = " ".join(text.casefold().split()).strip("<>\"'`")
    if not name:
        return []
    name = re.sub(r"^(?:https?://)?(?:www\.)?", "", name).rstrip("/.")
    bare = _FRAGMENT.sub("", name)
    last = re.split(r"[/\\]", bare)[-1]
    found = [name, bare]
    if not _ADDRESS.match(text.strip()):
        found += [last, re.sub(r"\.[a-z0-9]{2,5}$", "", last)]
    return [one for one in dict.fromkeys(found) if len(one) > 1]
