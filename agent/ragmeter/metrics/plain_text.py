r"""The plain text of a passage, a query or an answer: the same characters however written.

Ligatures, full-width and composed letters, blanks of all kinds, words broken at the end of a line,
soft hyphens and other characters that nobody sees, HTML's entities and tags, times as in
"2024-03-05T15:30:00Z", and line feeds that were written as `\n`. Most texts are plain already,
which takes a microsecond to see.
"""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import dataclass, field

from ragmeter.core.folded_text import INVISIBLE
from ragmeter.metrics import kernel
from ragmeter.metrics.structured import looks_structured

_UNSEEN = re.compile(f"[{INVISIBLE}\u200c\u200d]")
# Raised digits behind a word are notes, behind a unit or a number exponents.
RAISED = "[¹²³⁰⁴-⁹]"
_NOTE = re.compile(rf"(?<=[^\W\d_]{{3}}){RAISED}{{1,3}}(?:[⁻–-]{RAISED}{{1,3}}){{0,2}}")
# NFKC would make digits and letters of the numbers that cite within a line.
CIRCLED = "[①-⒇⓵-⓾❶-❿➀-➉]"
RAISED_IN_BRACKETS = rf"⁽{RAISED}{{1,3}}⁾"
_CITING = re.compile(f"{CIRCLED}|{RAISED_IN_BRACKETS}")
_TAG = kernel.Pattern(
    r"<!--.{0,2000}?-->|<(script|style)\b.{0,20000}?</\1>"
    r"|</?[a-z][a-z1-6]{0,9}(?:\s[^<>]{0,300})?/?>",
    kernel.IGNORE_CASE | kernel.DOT_ALL,
)
_ZONE = re.compile(r"(?:Z|([+-])(\d\d):?(\d\d))\Z")
_SQUARE_METRES = re.compile(r"\b([cdk]?m)<sup>([23])</sup>")
_HYPHENS = "-\u00ad\u2010\u2011"
_ASCII = bytes(range(128))
_MAX_SIGNS = 20_000  # that are remembered
# Alphabets, punctuation and kana, of which no plain character joins with the one before it.
_NEVER_JOINED = (*range(0x80, 0x900), *range(0x2000, 0x2070), *range(0x3000, 0x3100))
_LATEX_SIGNS = dict(zip(",;:%$&#_", "   %$&#_", strict=True))
_LATEX_SIGNS |= {"!": "", "(": "", ")": "", "times": "×", "cdot": "·", "circ": "°"}
_PARTS = {"⅓": "1/3", "⅔": "2/3", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5"}
_PARTS |= {"⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8"}
_VULGAR = {"½": ".5", "¼": ".25", "¾": ".75", "⅓": ".33", "⅔": ".67", "⅛": ".125"}
_VULGAR |= {"⅜": ".375", "⅝": ".625", "⅞": ".875", "⅕": ".2", "⅖": ".4", "⅗": ".6", "⅘": ".8"}
_MIXED = re.compile(r"(?:(\d)\s?)?([½¼¾⅓⅔⅛⅜⅝⅞⅕⅖⅗⅘])")


@dataclass(slots=True)
class PlainText:
    """A plain text, and where its characters stand in the text that it was made from.

    `edits` are (start, end, start there, end there) of what was changed, in order.
    """

    text: str
    edits: list[tuple[int, int, int, int]] = field(default_factory=list)

    def replace(self, changes: list[tuple[int, int, str]]) -> PlainText:
        """Return the text with [start, end) replaced by each text, in ascending order."""
        pieces: list[str] = []
        edits: list[tuple[int, int, int, int]] = []
        at = size = 0
        for start, end, new in changes:
            pieces += (self.text[at:start], new)
            size += start - at
            edits.append((size, size + len(new), start, end))
            size += len(new)
            at = end
        pieces.append(self.text[at:])
        return PlainText("".join(pieces), edits)


class _Signs(dict[str, bool]):
    """Tells of a character beyond ASCII whether it is plain."""

    def __missing__(self, sign: str) -> bool:
        plain = (
            unicodedata.is_normalized("NFKC", sign)
            and not unicodedata.combining(sign)
            and _UNSEEN.search(sign) is None
            and _CITING.search(sign) is None
            and not sign.isdecimal()
        )
        if len(self) < _MAX_SIGNS:
            self[sign] = plain
        return plain


_SIGNS = _Signs()
kernel.read_plain_signs("".join(filter(_SIGNS.__missing__, map(chr, _NEVER_JOINED))))


def is_plain(text: str) -> bool:
    """Return whether a text is plain already, but for tags."""
    found = kernel.judge_plain(text)
    if found >= 0:
        return bool(found)
    odd = text.encode("utf-8", "surrogatepass").translate(None, _ASCII)
    return all(map(_SIGNS.__getitem__, set(odd.decode("utf-8", "surrogatepass"))))


_FOREIGN_DIGIT = re.compile(r"[^\D0-9]")


def _has_foreign_digits(text: str) -> bool:
    return _FOREIGN_DIGIT.search(text) is not None


def plain_text(text: str, *, record: bool = False) -> PlainText:
    """Return the plain text of an answer, whose tags and Markdown stay, with places.

    The line feeds of a record (`record`) stay as they are written.
    """
    if is_plain(text):
        return PlainText(text)
    lined = record or "\n" in text.strip()
    changes: list[tuple[int, int, str]] = []
    for start, end in kernel.find_odd(text):
        old = text[start:end]
        if old[0] == "&" and old[-1] == ";":
            new = html.unescape(old)
            if old.startswith("&amp;") and old != "&amp;":  # escaped twice
                new = html.unescape(new)
            new = new if new.isascii() else _fold(new)
        elif (read := _read_latex(old)) is not None:
            new = read
        elif old[0] == "\\" and old.isascii():
            new = old if lined else _unescape(old)
        elif old[0] == "T" and old.isascii() and len(old) > 2:
            new = _time(old, behind_date=start > 0 and text[start - 1].isdecimal())
        elif old[0] in _HYPHENS and old[-1] in "\n \t" and "\n" in old:
            new = ""
        elif old[0] == " " and old[1] in _VULGAR and text[start - 1 : start].isdecimal():
            new = _VULGAR[old[1]] + _fold(old[2:])  # "2 ½"
        else:
            new = _fold(_raise(text, start, end))
        if new != old:
            changes.append((start, end, new))
    return PlainText(text).replace(changes) if changes else PlainText(text)


def plain_passage(text: str) -> str:
    """Return the plain text of a passage or query, without tags."""
    if not is_plain(text):
        text = plain_text(text, record=looks_structured(text)).text
    if "<" in text and ">" in text:
        text = _TAG.sub(" ", _SQUARE_METRES.sub(r"\1\2", text))
    return text


def _unescape(escape: str) -> str:
    return chr(int(escape[2:], 16)) if escape[1] == "u" else "\t" if escape[1] == "t" else "\n"


def _time(written: str, *, behind_date: bool) -> str:
    """Return "T15:30:00+02:00" as 15:30 UTC+2, on the clock where it was written."""
    digits = re.split(r"[Z+.-]", written[1:])[0].replace(":", "")
    parts = [digits[at : at + 2] for at in range(0, len(digits), 2)]
    time = ":".join(parts[:2] if parts[2:] == ["00"] else parts)
    zone = _ZONE.search(written)
    if zone and ":" in time:
        hours = int(zone[2] or 0)
        minutes = int(zone[3] or 0)
        time += " UTC"
        if hours or minutes:
            time += f"{zone[1]}{hours}" + f":{minutes:02}" * (minutes > 0)
    return " " * behind_date + time


def _raise(text: str, start: int, end: int) -> str:
    """Return [start, end), with a blank for the raised number of a note behind a word."""
    old = text[start:end]
    if _CITING.search(old) and text[text.rfind("\n", 0, start) + 1 : start].strip(" \t>*-"):
        return _CITING.sub(lambda match: " " * len(match[0]), old)
    if not _NOTE.search(text, max(0, start - 3), end):
        return old
    head = text[max(0, start - 3) : start]
    return _NOTE.sub(" ", head + old)[len(head) :]


def _read_latex(written: str) -> str | None:
    r"""Return the text of what LaTeX writes within numbers and units, None for anything else."""
    if not written.isascii() or written[0] not in "${^\\":
        return None
    if written[0] == "$":
        return written[1:-1].replace("{,}", ",").replace("\\%", "%")
    if written[0] == "{":
        return ","
    if written[0] == "^":
        return "°"
    if written[-1] == "}":
        return "/".join(re.findall(r"\{([^{}]*)\}", written))
    return _LATEX_SIGNS.get(written[1:])


def _write_fraction(match: re.Match[str]) -> str:
    whole, sign = match[1], match[2]
    return _PARTS[sign] if not whole and sign in _PARTS else (whole or "0") + _VULGAR[sign]


def _fold(text: str) -> str:
    text = _MIXED.sub(_write_fraction, text)
    text = unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).replace("\u2044", "/")
    if _has_foreign_digits(text):
        text = "".join([str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text])
    return text
