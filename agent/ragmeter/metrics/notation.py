"""Write the numbers, dates and times of an answer as its passages write them.

"$5.2M" and "$5,200,000", "FY23" and "fiscal year 2023", "2024-03-05" and "5 March 2024" are the
same: the answer is read in the passages' notation. A value that no passage has is written as one
word, so that no part of it is found by chance. Passages that have what an answer has as it is
written, as most do, are not looked into.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from ragmeter.metrics.plain_text import PlainText
from ragmeter.metrics.stems import content_stems
from ragmeter.metrics.structured import looks_structured

_MAX_QUANTITIES = 200  # of one text
_MONTHS = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
]  # fmt: skip
_MONTH = rf"(?:{'|'.join(_MONTHS)}|(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)(?![a-z])\.?)"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"
_YEAR = r"(?:1[5-9]|20|21)\d\d"
_UNITS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14,
    "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20,
    "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80,
    "ninety": 90,
}  # fmt: skip
_SCALES = {
    "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12,
    "lakh": 10**5, "crore": 10**7, "k": 1000, "m": 10**6, "mn": 10**6, "mm": 10**6, "mio": 10**6,
    "b": 10**9, "bn": 10**9, "mrd": 10**9, "t": 10**12, "tn": 10**12, "dozen": 12,
}  # fmt: skip
_NUMBER = (
    r"(?:\d{1,3}(?:[,.'’ ]\d{3})+|\d{1,2}(?:,\d\d)+,\d{3}|\d{1,15})"
    r"(?:[.,]\d{1,10})?(?:e[+-]?\d{1,2})?"
)
_SCALE = (
    r"(?:hundred|thousand|million|billion|trillion|lakh|crore|mio|mrd|mn|bn|tn|[kmb])(?:s\b)?\b\.?"
)
_SIGN = r"(?:us\$|usd|eur|gbp|jpy|inr|chf|cad|aud|rs\.?|[$€£¥₹])"
_NAME = (
    r"(?:us[ -])?(?:dollars?|euros?|pounds?(?: sterling)?|yen|rupees?|francs?"
    r"|usd|eur|gbp|jpy|inr|chf|cad|aud)\b|[$€£¥₹]"
)
_CURRENCIES = (
    ("$", ("$", "us$", "usd", "dollar")),
    ("€", ("€", "eur", "euro")),
    ("£", ("£", "gbp", "pound")),
    ("¥", ("¥", "jpy", "yen")),
    ("₹", ("₹", "inr", "rs", "rupee")),
)
_PERCENT = r"%|percent(?:age points?)?\b|per cent\b|pct\b|pc\b"
_WORD = "|".join(
    [
        *sorted(_UNITS, key=len, reverse=True),
        "hundred",
        "thousand",
        "million",
        "billion",
        "trillion",
        "dozen",
    ]
)
_WORDS = rf"(?:(?:an?|half a|{_WORD})\b)(?:(?:[ -]|,? and )(?:{_WORD})\b){{0,9}}"
_QUANTITY = re.compile(
    rf"(?<![\w.])(?:"
    rf"(?P<iso>(?P<iy>{_YEAR})(?P<is>[-/.])(?P<im>0?[1-9]|1[0-2])(?P=is)(?P<id>0?[1-9]|[12]\d"
    rf"|3[01])(?!\d))"
    rf"|(?P<num>(?P<na>\d{{1,2}})(?P<ns>[-/.])(?P<nb>\d{{1,2}})(?P=ns)(?P<ny>{_YEAR}"
    rf"|\d\d)(?![\d.]\d|\d))"
    rf"|(?P<cjk>(?P<cy>{_YEAR})年 ?(?P<cm>1[0-2]|0?[1-9])月 ?(?P<cd>\d{{1,2}})日)"
    rf"|(?P<mdy>(?P<mm>{_MONTH}) (?:the )?(?P<md>{_DAY})\b(?![:.]\d"
    rf"| ?[ap]\.?m)(?:,? (?:of )?(?P<my>{_YEAR})\b)?)"
    rf"|(?P<dmy>(?:the )?(?P<dd>{_DAY})[ -](?:of )?(?P<dm>{_MONTH})(?![a-z])"
    rf"(?:,?[ -](?P<dy>{_YEAR})\b)?)"
    rf"|(?P<month>(?P<om>{_MONTH}),? (?:of )?(?P<oy>{_YEAR})\b)"
    rf"|(?P<time>(?P<th>\d{{1,2}})(?:[:.h](?P<tm>[0-5]\d)"
    rf"(?::[0-5]\d)?)? ?(?P<ta>[ap])\.? ?m\b\.?)"
    rf"|(?P<clock>(?P<ch>[01]?\d"
    rf"|2[0-4])(?P<cs>[:h])(?P<ci>[0-5]\d)(?::[0-5]\d)?(?!\d)(?: (?:hours|hrs|uhr|o'clock))?)"
    rf"|(?P<uhr>(?P<uh>[01]?\d|2[0-4])(?:[.](?P<um>[0-5]\d))? (?:uhr|o['’]clock)\b)"
    rf"|(?P<noon>12 noon|noon|12 midnight|(?<=at )midnight|(?<=until )midnight)\b"
    rf"|(?P<fiscal>(?:fy|fiscal(?: year)?)[ -]?['’]?(?P<fy>{_YEAR}|\d\d)\b)"
    rf"|(?P<quarter>(?:q(?P<q1>[1-4])|(?P<q2>[1-4])q|(?P<q3>first|second|third|fourth|1st|2nd"
    rf"|3rd|4th)[ -]quarter)"
    rf"(?:(?: ?of)?[ /-]?(?:fiscal (?:year )?|fy ?)?['’]?(?P<qy>{_YEAR}|\d\d(?=\W|$))(?!\d))?)"
    rf"|(?P<amount>(?!40[13] ?\(?[kb])(?:(?P<sign>{_SIGN}) ?)?(?P<figure>(?P<value>{_NUMBER})"
    rf"(?:[ -]?(?P<scale>{_SCALE})| ?[x×] ?10\^?(?P<power>\d{{1,2}}))?)"
    rf"(?![\w]|[.,]\d)(?:[ -]?(?:(?P<percent>{_PERCENT})|(?P<name>{_NAME})))?)"
    rf"|(?P<spelt>(?P<words>{_WORDS})(?:[ -](?:(?P<wpercent>{_PERCENT})|(?P<wname>{_NAME})))?)"
    rf")",
    re.IGNORECASE,
)

_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4}
# A word that may be a number has one of these; looking for them is quicker than the pattern.
_SPELT = (
    *("teen", "ty", "undred", "ousand", "illion", "leven", "welve", "ercent", "er cent", "ollar"),
    *("noon", "midn", "uarter", "fy", "fiscal", "q1", "q2", "q3", "q4", "usd", "eur", "gbp", "us$"),
    *(month[1:3] + month[3:5] for month in _MONTHS if month != "may"),
    *(
        "jan ",
        "feb ",
        "mar ",
        "apr ",
        "may ",
        "jun ",
        "jul ",
        "aug ",
        "sep",
        "oct ",
        "nov ",
        "dec ",
    ),
    *("jan.", "feb.", "mar.", "apr.", "jun.", "jul.", "aug.", "oct.", "nov.", "dec."),
    *("jpy", "inr", "rs", "chf", "cad", "aud"),
)
_WORDY = ("teen", "ty", "undred", "ousand", "illion", "leven", "welve", "ercent", "noon", "uarter")
_FIGURE_START = re.compile(r"[\d$€£¥₹](?<![\w.].)")
_WORD_START = re.compile(
    r"(?<![\w.])(?:"
    + "|".join(
        dict.fromkeys(
            [month[:3] for month in _MONTHS]
            + [*_UNITS, "hundred", "thousand", "million", "billion", "trillion", "dozen", "half a"]
            + [
                "noon",
                "midnight",
                "fy",
                "fiscal",
                "q1",
                "q2",
                "q3",
                "q4",
                "first",
                "second",
                "third",
            ]
            + [
                "fourth",
                "usd",
                "eur",
                "gbp",
                "jpy",
                "inr",
                "chf",
                "cad",
                "aud",
                "rs",
                "us",
                "the ",
                "a ",
            ]
        )
    )
    + ")"
)
_DIGIT = re.compile(r"\d")
_BESIDE = re.compile(r"[^\W\d_]{3,}")
_BESIDE_WORDS = 3  # on either side
_REACH = 60  # characters
_TIMES = ("t", "h")  # the kinds of keys of times
Key = tuple[str, ...]


@dataclass(slots=True)
class Quantity:
    """A number, date or time over [start, end) of a text.

    `keys` are its values from the most to the least exact; `figure` is the place of its number
    without unit, and `single` how it is written as one word.
    """

    start: int
    end: int
    keys: list[Key]
    figure: tuple[int, int] | None = None
    single: str = ""

    @property
    def kind(self) -> str:
        """What it is a value of: a unit, or a date, time and so on."""
        first = self.keys[0]
        return first[2] if first[0] == "n" and len(first) > 2 else first[0]


@dataclass(slots=True)
class Quantities:
    """What a text has, by value, as it is written there."""

    whole: dict[Key, str] = field(default_factory=dict)
    figures: dict[Key, str] = field(default_factory=dict)
    places: list[tuple[str, Key, frozenset[str]]] = field(default_factory=list)  # by kind

    @classmethod
    def read(cls, text: str) -> Quantities:
        """Read the quantities of a text."""
        out = cls()
        record = looks_structured(text)
        for item in find_quantities(text):
            if record and item.keys[0][0] in _TIMES:
                continue  # opening hours, which are compared as such
            for key in item.keys:
                out.whole.setdefault(key, text[item.start : item.end])
            beside = words_beside(text, item.start, item.end)
            out.places.append((item.kind, item.keys[-1], beside))
            if item.figure:
                out.figures.setdefault(item.keys[-1], text[slice(*item.figure)])
        return out


@dataclass(slots=True)
class Adopted:
    """A text in the notation of its passages.

    `replaced` counts the values that no passage has where passages have another value of the same
    kind beside the same words.
    """

    plain: PlainText
    replaced: int = 0


@lru_cache(2_048)
def _read_cached(text: str) -> Quantities:
    return Quantities.read(text)


def find_quantities(text: str) -> Iterator[Quantity]:
    """Yield the numbers, dates and times of a text in order."""
    end = count = 0
    for start in _starts(text):
        match = _QUANTITY.match(text, start) if start >= end else None
        if match is None:
            continue
        end = match.end()
        item = _READERS[_kind(match)](match)
        if item is not None:
            yield item
        count += 1
        if count >= _MAX_QUANTITIES:
            return


def _starts(text: str) -> list[int]:
    """Return where a quantity may begin, in order; they are found quicker than by the pattern."""
    starts = [match.start() for match in _FIGURE_START.finditer(text)]
    low = text.lower()
    if len(low) == len(text) and any(map(low.__contains__, _SPELT)):
        starts += [match.start() for match in _WORD_START.finditer(low)]
        starts.sort()
    return starts


def _kind(match: re.Match[str]) -> str:
    return next(name for name in _READERS if match[name] is not None)


def _date(match: re.Match[str], year: str | None, month: int, day: int) -> Quantity | None:
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    exact: Key = ("d", str(month), str(day))
    keys = [exact]
    if year:
        keys = [("d", _full_year(year), *exact[1:]), exact]
    name = _MONTHS[month - 1].capitalize()
    single = f"{name} {day}, {_full_year(year)}" if year else f"{name} {day}"
    return Quantity(*match.span(), keys, single=single)


def _full_year(year: str) -> str:
    return year if len(year) == 4 else ("20" if year < "50" else "19") + year


def _month_number(name: str) -> int:
    return [month[:3] for month in _MONTHS].index(name[:3].lower()) + 1


def _day_number(day: str) -> int:
    return int(re.sub(r"\D", "", day))


def _read_numeric_date(match: re.Match[str]) -> Quantity | None:
    first, second = int(match["na"]), int(match["nb"])
    if match["ns"] == "." and len(match["ny"]) == 2 and second > 12:
        return None
    if first > 12 or (match["ns"] == "." and second <= 12):
        return _date(match, match["ny"], second, first)
    item = _date(match, match["ny"], first, second)
    if item and first != second and second <= 12:  # either may be the month
        year = _full_year(match["ny"])
        item.keys.insert(1, ("d", year, str(second), str(first)))
    return item


def _time(match: re.Match[str], minutes: int, *, half: bool) -> Quantity:
    """Make a time of day; `half` tells that its half of the day is known."""
    keys: list[Key] = [("t", str(minutes % 1440)), ("h", str(minutes % 720))]
    return Quantity(*match.span(), keys if half else keys[1:])


def _read_time(match: re.Match[str]) -> Quantity | None:
    hour = int(match["th"])
    if hour > 12:
        return None
    late = match["ta"].lower() == "p"
    return _time(match, (hour % 12 + 12 * late) * 60 + int(match["tm"] or 0), half=True)


def _read_clock(match: re.Match[str]) -> Quantity:
    hour = int(match["ch"] or 0)
    known = hour > 12 or match["ch"][0] == "0"
    return _time(match, hour * 60 + int(match["ci"]), half=known)


def _read_noon(match: re.Match[str]) -> Quantity:
    return _time(match, 720 if "noon" in match["noon"].lower() else 0, half=True)


def _read_fiscal(match: re.Match[str]) -> Quantity:
    year = _full_year(match["fy"])
    return Quantity(*match.span(), [("fy", year), ("n", year)], single=f"fiscal year {year}")


def _read_quarter(match: re.Match[str]) -> Quantity:
    number = match["q1"] or match["q2"] or str(_ORDINALS.get(match["q3"].lower(), match["q3"][:1]))
    year = match["qy"]
    if not year:
        return Quantity(*match.span(), [("q", number)], single=f"Q{number}")
    year = _full_year(year)
    return Quantity(*match.span(), [("q", number, year)], single=f"Q{number} {year}")


def parse_figure(text: str, *, scaled: bool = False) -> Decimal | None:
    """Return the value of a number with separators of any kind; None if it is none.

    Three digits behind a single point are thousands, as in "1.450", unless a scale follows as in
    "1.450 million".
    """
    text = re.sub(r"[’' ]", "", text.lower())
    digits, _, exponent = text.partition("e")
    points, commas = digits.count("."), digits.count(",")
    if points and commas:
        last = max(digits.rfind("."), digits.rfind(","))
        other = "," if digits[last] == "." else "."
        digits = digits.replace(other, "")
        if digits.count(digits[digits.find(".") if "." in digits else 0]) > 1:
            return None
        digits = digits.replace(",", ".")
    elif points + commas:
        sign = "." if points else ","
        head, *groups = digits.split(sign)
        thousands = all(len(group) == 3 for group in groups) and 0 < len(head) < 4 and head != "0"
        indian = sign == "," and len(groups) > 1 and len(groups[-1]) == 3
        if (thousands or indian) and not (scaled and points == 1):
            digits = head + "".join(groups)
        elif len(groups) == 1:
            digits = f"{head}.{groups[0]}"
        else:
            return None
    try:
        return Decimal(f"{digits}e{exponent}" if exponent else digits)
    except InvalidOperation:
        return None


def _shown(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _unit(percent: str | None, *names: str | None) -> str:
    if percent:
        return "%"
    for name in filter(None, names):
        low = name.lower()
        for sign, words in _CURRENCIES:
            if any(word in low for word in words):
                return sign
        return low
    return ""


def _amount(match: re.Match[str], value: Decimal, unit: str, figure: tuple[int, int]) -> Quantity:
    text = _shown(value)
    keys: list[Key] = [("n", text, unit), ("n", text)] if unit else [("n", text)]
    return Quantity(*match.span(), keys, figure=figure, single=text)


def _read_amount(match: re.Match[str]) -> Quantity | None:
    scale = (match["scale"] or "").lower().strip(". ")
    if scale in ("m", "b", "t", "mm") and not (match["sign"] or match["name"]):
        scale = "" if scale != "b" and match["value"].isdecimal() is False else scale
    value = parse_figure(match["value"], scaled=bool(scale or match["percent"]))
    if value is None:
        return None
    factor = _SCALES.get(scale) or _SCALES.get(scale.rstrip("s"), 1)
    value *= factor
    if match["power"]:
        value *= 10 ** int(match["power"])
    unit = _unit(match["percent"], match["sign"], match["name"])
    return _amount(match, value, unit, match.span("figure"))


def parse_words(text: str) -> int | None:
    """Return the value of a number in words; None if they make none."""
    words = [word for word in re.split(r"[^a-z]+", text.lower()) if word and word != "and"]
    total = part = 0
    last = 10**15
    if words[:2] == ["half", "a"]:
        return _SCALES.get(words[2], 0) // 2 if len(words) == 3 else None
    for word in words:
        if word in ("a", "an"):
            part = 1
        elif word in _UNITS:
            value = _UNITS[word]
            if part % 100 and not (part % 10 == 0 and value < 10):
                return None
            part += value
        elif word in ("hundred", "dozen"):
            part = max(1, part) * _SCALES[word]
        else:
            scale = _SCALES[word]
            if scale >= last:
                return None
            total += max(1, part) * scale
            part, last = 0, scale
    return total + part


def _read_spelt(match: re.Match[str]) -> Quantity | None:
    words = match["words"].lower()
    unit = _unit(match["wpercent"], match["wname"])
    if words in ("a", "an", "half a") or (not unit and words in _UNITS and _UNITS[words] < 11):
        return None
    value = parse_words(words)
    if value is None:
        return None
    return _amount(match, Decimal(value), unit, match.span("words"))


_READERS: dict[str, Callable[[re.Match[str]], Quantity | None]] = {
    "iso": lambda m: _date(m, m["iy"], int(m["im"]), int(m["id"])),
    "num": _read_numeric_date,
    "cjk": lambda m: _date(m, m["cy"], int(m["cm"]), int(m["cd"])),
    "mdy": lambda m: _date(m, m["my"], _month_number(m["mm"]), _day_number(m["md"])),
    "dmy": lambda m: _date(m, m["dy"], _month_number(m["dm"]), _day_number(m["dd"])),
    "month": lambda m: Quantity(
        *m.span(),
        [("m", m["oy"], str(_month_number(m["om"])))],
        single=f"{_MONTHS[_month_number(m['om']) - 1].capitalize()} {m['oy']}",
    ),
    "time": _read_time,
    "clock": _read_clock,
    "uhr": lambda m: _time(m, int(m["uh"]) * 60 + int(m["um"] or 0), half=True),
    "noon": _read_noon,
    "fiscal": _read_fiscal,
    "quarter": _read_quarter,
    "amount": _read_amount,
    "spelt": _read_spelt,
}


def words_beside(text: str, start: int, end: int) -> frozenset[str]:
    """Return the stems of the content words next to a place."""
    before = _BESIDE.findall(text[max(0, start - _REACH) : start])[-_BESIDE_WORDS:]
    after = _BESIDE.findall(text[end : end + _REACH])[:_BESIDE_WORDS]
    return frozenset(content_stems([word.lower() for word in (*before, *after)]))


def may_have_quantities(text: str) -> bool:
    """Return whether a text may have a number, which takes a microsecond."""
    return _DIGIT.search(text) is not None or any(map(text.__contains__, _WORDY))


def adopt_notation(text: str, passages: Sequence[str], query: str = "") -> Adopted:
    """Write the quantities of a text as passages, or else the query, write the same values."""
    out = Adopted(PlainText(text))
    if not passages or not may_have_quantities(text):
        return out
    changes: list[tuple[int, int, str]] = []
    known: list[Quantities] = []
    items = list(find_quantities(text))
    said = {key for item in items for key in item.keys}
    for item in items:
        raw = text[item.start : item.end]
        if any(_stands_in(raw, passage) for passage in passages) or _stands_in(raw, query):
            continue
        known = known or [_read_cached(passage) for passage in (*passages, query)]
        changes += _adopt(item, raw, text, known)
        if _is_small(raw):
            continue
        if not any(key in one.whole for key in item.keys for one in known):
            beside = words_beside(text, item.start, item.end)
            if any(
                kind == item.kind and key not in said and len(beside & words) > 1
                for one in known
                for kind, key, words in one.places
            ):
                out.replaced += 1
                if item.kind in _TIMES:  # as one word: no part of it is found by chance
                    changes.append((item.start, item.end, f"{item.keys[0][1]}min"))
    if changes:
        out.plain = out.plain.replace(changes)
    return out


def _is_small(raw: str) -> bool:
    """Return whether a number is too small to tell what it stands for: an item of a list, too."""
    return raw.isdecimal() and len(raw) < 3


def _stands_in(raw: str, text: str) -> bool:
    """Return whether a text has a quantity as it is written."""
    at = text.find(raw)
    while at >= 0:
        end = at + len(raw)
        before = text[at - 1 : at]
        after = text[end : end + 1]
        if not (
            before.isalnum()
            or after.isalnum()
            or (raw[0].isdigit() and before in (".", ",") and text[at - 2 : at - 1].isdigit())
            or (raw[-1].isdigit() and after in (".", ",") and text[end + 1 : end + 2].isdigit())
        ):
            return True
        at = text.find(raw, at + 1)
    return False


def _adopt(
    item: Quantity, raw: str, text: str, known: Iterable[Quantities]
) -> list[tuple[int, int, str]]:
    if _is_small(raw):
        return []
    for key in item.keys:
        for one in known:
            found = one.whole.get(key)
            if found is None:
                continue
            if item.figure and len(key) == 2 and len(item.keys) == 2:
                break  # of another unit
            if key[0] == "d" and len(key) < len(item.keys[0]) and item.keys[0][1] not in found:
                found += f", {item.keys[0][1]}"
            if item.figure and len(item.keys) == 1 and key in one.figures:
                found = one.figures[key]
            return [] if found == raw else [(item.start, item.end, found)]
    if item.figure:
        figure = text[slice(*item.figure)]
        found = next(
            (one.figures[item.keys[-1]] for one in known if item.keys[-1] in one.figures), ""
        )
        new = found or (
            item.single if not figure.isdecimal() and "." not in item.single else figure
        )
        return [] if new == figure else [(*item.figure, new)]
    if not item.single or raw == item.single:
        return []
    return [(item.start, item.end, item.single)]
