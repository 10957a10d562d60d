"""The same content in another notation scores the same; a wrong value in any notation does not."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from ragmeter.core.files import parse_yaml
from ragmeter.metrics.answer_text import parse_answer
from ragmeter.metrics.kernel import find_quantities
from ragmeter.metrics.notation import adopt_notation
from ragmeter.metrics.plain_text import plain_passage, plain_text

from tests.metrics.help import outcome, score_of
from tests.tables import each_row

MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September"]
MONTHS += ["October", "November", "December"]
NUMBERS: list[Callable[[int], str]] = [
    lambda n: f"{n:,}",
    str,
    lambda n: f"{n:,}".replace(",", "."),
    lambda n: f"{n:,}".replace(",", " "),
    lambda n: f"{n:,}".replace(",", "\u00a0"),
    lambda n: f"{n:,}".replace(",", "\u202f"),
    lambda n: f"{n:,}".replace(",", "'"),
    lambda n: f"{n:,}".replace(",", "’"),
]
AMOUNTS: list[Callable[[int], str]] = [
    *[lambda n, write=write: f"${write(n)}" for write in NUMBERS],
    lambda n: f"{n} dollars",
    lambda n: f"{n:,} US dollars",
    lambda n: f"USD {n:,}",
    lambda n: f"US${n:,}",
    lambda n: f"${n / 10**6:g} million",
    lambda n: f"{n / 10**6:g} million dollars",
    lambda n: f"${n / 10**6:g}M",
    lambda n: f"${n / 10**6:g}m",
    lambda n: f"${n // 1000:,}K",
]
DATES: list[Callable[[int, int, int], str]] = [
    lambda y, m, d: f"{y}-{m:02}-{d:02}",
    lambda y, m, d: f"{MONTHS[m - 1]} {d}, {y}",
    lambda y, m, d: f"{d} {MONTHS[m - 1]} {y}",
    lambda y, m, d: f"the {d}th of {MONTHS[m - 1]}, {y}",
    lambda y, m, d: f"{MONTHS[m - 1][:3]} {d}, {y}",
    lambda y, m, d: f"{MONTHS[m - 1][:3]}. {d}, {y}",
    lambda y, m, d: f"{d}.{m}.{y}",
    lambda y, m, d: f"{m}/{d}/{y}",
    lambda y, m, d: f"{y}/{m:02}/{d:02}",
]
TIMES: list[Callable[[int, int], str]] = [
    lambda h, m: f"{h:02}:{m:02}",
    lambda h, m: f"{h % 12 or 12}:{m:02} {'ap'[h // 12]}m",
    lambda h, m: f"{h % 12 or 12}:{m:02} {'ap'[h // 12]}.m.",
    lambda h, m: f"{h % 12 or 12}:{m:02}{'AP'[h // 12]}M",
    lambda h, m: f"{h}h{m:02}",
]
PERCENTS: list[Callable[[float], str]] = [
    lambda p: f"{p}%",
    lambda p: f"{p} %",
    lambda p: f"{p} percent",
    lambda p: f"{p} per cent",
    lambda p: f"{p} pct",
]
YEARS: list[Callable[[int], str]] = [
    lambda y: f"fiscal year {y}",
    lambda y: f"FY{y}",
    lambda y: f"FY {y}",
    lambda y: f"FY{y % 100:02}",
    lambda y: f"fiscal {y}",
]


def facts(seed: int) -> Iterator[tuple[str, str, str, str]]:
    """Yield sentences of a passage, and of answers: as written, in another notation, and wrong."""
    rng = random.Random(seed)
    kinds: list[tuple[Sequence[Callable[..., str]], str, Callable[..., tuple[float, ...]]]] = [
        (AMOUNTS, "The harbour bridge was repaired for {} by the county.", money),
        (NUMBERS, "The archive of the abbey holds {} manuscripts in its vault.", count),
        (DATES, "The ferry to the island was launched on {} in the old dock.", date),
        (TIMES, "The night market opens at {} beside the railway station.", time),
        (PERCENTS, "Rainfall in the valley fell by {} after the drought began.", share),
        (YEARS, "The foundry closed its last furnace in {} for good.", year),
    ]
    for writers, sentence, draw in kinds:
        value, wrong = draw(rng), draw(rng)
        while wrong == value:
            wrong = draw(rng)
        first, second = rng.sample(writers, 2)
        yield (
            sentence.format(first(*value)),
            sentence.format(first(*value)),
            sentence.format(second(*value)),
            sentence.format(second(*wrong)),
        )


def money(rng: random.Random) -> tuple[int]:
    return (rng.randrange(11, 980) * 10_000,)


def count(rng: random.Random) -> tuple[int]:
    return (rng.randrange(10_321, 987_654),)


def date(rng: random.Random) -> tuple[int, int, int]:
    return rng.randrange(1951, 2024), rng.randrange(1, 13), rng.randrange(13, 21)


def time(rng: random.Random) -> tuple[int, int]:
    return rng.randrange(13, 23), rng.randrange(10, 59)


def share(rng: random.Random) -> tuple[float]:
    return (rng.randrange(130, 990) / 10,)


def year(rng: random.Random) -> tuple[int]:
    return (rng.randrange(1991, 2025),)


def grounding(passage: str, answer: str) -> float:
    other = "The cafeteria serves soup and bread to its guests until the kitchen closes."
    passages = [{"id": "a", "text": passage}, {"id": "b", "text": other}]
    value = outcome("grounding", query="What happened?", passages=passages, answer=answer)[1]
    assert value is not None
    return value


@each_row("seed", range(40))
def test_values_are_the_same_in_every_notation(seed: int) -> None:
    for passage, exact, other, wrong in facts(seed):
        value = grounding(passage, exact)
        assert abs(grounding(passage, other) - value) <= 0.05, (passage, other)
        assert grounding(passage, wrong) <= value - 0.3, (passage, wrong)


TEXT = "The office in Zürich filed its first classified finding on effective traffic flow."
WRITTEN: dict[str, Callable[[str], str]] = {
    "ligatures": lambda text: text.replace("ffi", "ﬃ").replace("ff", "ﬀ").replace("fi", "ﬁ"),
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "full width": lambda text: text.replace("first", "ｆｉｒｓｔ"),
    "soft hyphens": lambda text: text.replace("classified", "clas\u00adsi\u00adfied"),
    "unseen": lambda text: text.replace("finding", "find\u200bing").replace("flow", "fl\u2060ow"),
    "line ends": lambda text: text.replace("classified", "clas-\nsified").replace(
        "effective", "effec-\r\n  tive"
    ),
    "blanks": lambda text: text.replace(" ", "\u00a0"),
    "entities": lambda text: text.replace(" ", "&nbsp;").replace("ü", "&uuml;"),
    "tags": lambda text: f"<p>{text.replace('first', '<b>first</b>')}</p><br/>",
    "comment": lambda text: f"<!-- a remark of the editor --><div class='x'>{text}</div>",
    "literal line feeds": lambda text: text.replace("finding on", "finding\\non"),
    "literal escapes": lambda text: text.replace("ü", "\\u00fc"),
    "notes": lambda text: text.replace("finding", "finding¹"),
    "soft hyphens at line ends": lambda text: text.replace("classified", "clas\u00ad\nsified"),
    "other hyphens at line ends": lambda text: text.replace("effective", "effec\u2010\n tive"),
    "entities twice": lambda text: text.replace(" ", "&amp;nbsp;").replace("ü", "&amp;uuml;"),
    "letters of mathematics": lambda text: "".join(
        chr(0x1D41A + ord(sign) - ord("a")) if "a" <= sign <= "z" else sign for sign in text
    ),
    "all full width": lambda text: "".join(
        chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in text
    ),
}


def test_raised_digits_of_units_in_passages_are_read() -> None:
    answer = "The flat by the river has 75 square metres and a balcony."
    for unit in ("m²", "m<sup>2</sup>", "sqm", "m2"):
        passage = f"The flat by the river has 75 {unit} and a balcony facing the yard."
        assert grounding(passage, answer) > 0.9


@each_row("name", WRITTEN)
def test_texts_are_the_same_in_all_characters(name: str) -> None:
    other = WRITTEN[name](TEXT)
    assert other != TEXT
    answer = "The office in Zürich filed its first classified finding on traffic flow."
    assert grounding(other, answer) == pytest.approx(grounding(TEXT, answer), abs=0.001)
    if name != "literal line feeds":
        assert grounding(TEXT, other) == pytest.approx(grounding(TEXT, TEXT), abs=0.05)


def test_places_are_those_of_the_answer_as_it_came() -> None:
    answer = "The o\ufb03ce \ufb01led it. It cost USD 5.2m&nbsp;in total. It is done."
    parsed = parse_answer(answer, ["It cost $5,200,000 in total."])
    places = [(claim.start, claim.end) for claim in parsed.claims]
    assert [answer[start:end] for start, end in places] == [
        "The o\ufb03ce \ufb01led it.",
        "It cost USD 5.2m&nbsp;in total.",
        "It is done.",
    ]
    at = parsed.read.bare.index("$5,200,000")
    start, end = parsed.read.place(at, at + len("$5,200,000"))
    assert answer[start:end] == "USD 5.2m"


def values(text: str) -> list[tuple[str, ...]]:
    """The values of a text that is one quantity."""
    ((start, end, found),) = find_quantities(text)
    assert (start, end) == (0, len(text))
    return found


@each_row(
    ("text", "read"),
    [
        ("the 5th of May 2024", ("d", "2024", "5", "5")),
        ("the third of June 2021", ("d", "2021", "6", "3")),
        ("a mile and a half", None),
        ("a hundred", ("n", "100")),
        ("a quarter of a mile", None),
    ],
)
def test_an_article_belongs_to_what_it_leads_to(text: str, read: tuple[str, ...] | None) -> None:
    found = values(text)
    assert read is None or read in found
    assert not find_quantities("the cat and a dog of the house")


@each_row(
    ("text", "value"),
    [
        ("1,450", "1450"),
        ("1.450", "1450"),
        ("1 450", "1450"),
        ("1'450", "1450"),
        ("12,34,567", "1234567"),
        ("5.200.000", "5200000"),
        ("1.234,5", "1234.5"),
        ("1,234.5", "1234.5"),
        ("0.125", "0.125"),
        ("1,7", "1.7"),
        ("3.14", "3.14"),
        ("5.2e6", "5200000"),
    ],
)
def test_a_figure_is_read_with_any_separator(text: str, value: str) -> None:
    assert values(text) == [("n", value)]


@each_row(
    ("text", "value"),
    [
        ("twenty-five", "25"),
        ("one thousand four hundred and fifty", "1450"),
        ("two million", "2000000"),
        ("half a million", "500000"),
        ("fifteen hundred", "1500"),
    ],
)
def test_numbers_in_words_are_read(text: str, value: str) -> None:
    assert values(text) == [("n", value)]


@each_row(
    ("text", "minutes"),
    [
        ("凌晨12点", 0),
        ("晚上12点", 0),
        ("中午12点", 720),
        ("中午1点", 780),
        ("午前0時", 0),
        ("午後0時15分", 735),
        ("夜11時半", 1410),
        ("晚上2点", 120),
        ("밤 11시", 1380),
        ("下午十二点二十五分", 745),
        ("下午15:30", 930),
    ],
)
def test_times_of_chinese_japanese_and_korean_are_read(text: str, minutes: int) -> None:
    assert values(text) == [("t", str(minutes)), ("h", str(minutes % 720))]


@each_row("text", ["3時間", "3시간", "3点建议", "早上好", "T15", "AT15:30", "T99:30"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert not any(value[0] in "th" for *_, found in find_quantities(text) for value in found)
    assert plain_text(text).text is text


@pytest.mark.parametrize(
    "text",
    ["The 401(k) has 3 parts.", "1. Open it.\n2. Close it.", "A plain answer without any."],
)
def test_what_is_no_value_stays(text: str) -> None:
    passages = ["The plan has 401,000 members and 3.0 stars.", "Two of 2.0 and 1.0"]
    assert adopt_notation(text, passages) == text


def test_a_plain_text_is_itself() -> None:
    for text in ("Plain ASCII, 5 % of it.", "“Curly” – and café"):
        assert plain_text(text).text is text
        assert plain_passage(text) is text


@pytest.mark.parametrize("sign", ["-", "\\", "&"])
def test_what_stands_before_a_letter_beyond_ascii_stays(sign: str) -> None:
    assert plain_text(f"the ﬁrst vis-à{sign}été of all").text == f"the first vis-à{sign}été of all"


# A passage, an answer to it, and what stands in the answer: as in the passage, in other notations,
# and wrong values.
FORMS: list[tuple[str, str, list[str], list[str]]] = [
    (
        "The warranty lasts 24 months and covers repairs up to 1,450 euros.",
        "The warranty covers repairs up to {}.",
        [
            "1450 euros",
            "€1450",
            "1.450 €",
            "1 450,00 €",
            "1450欧元",
            "1,45 Tsd. Euro",
            "١٤٥٠ euros",
            "**1,450** euros",
            "**1450** Euro",
            "<b>1.450</b> €",
            "_1 450_ euros",
        ],
        [
            "1,540 euros",
            "€1.540,00",
            "2450欧元",
            "1,45 Mio. Euro",
            "**1,540** euros",
            "`1,540` euros",
            "<u>1,540</u> euros",
            "1,540\teuros",
            "1,540\neuros",
            "**1,540** **euros**",
        ],
    ),
    (
        "The company's revenue in 2023 was $5.2 million, and it employs 1,200 people in Berlin.",
        "The company's revenue in 2023 was {}, and it employs 1,200 people in Berlin.",
        [
            "$520万",
            "US$520万",
            "520万美元",
            "5.2百万 dollars",
            "520만 달러",
            "5,2 Millionen Dollar",
            "5,2 millones de dólares",
            "$5.2MM",
            "52 lakh dollars",
            "$5.2M",
        ],
        ["$620万", "$52万", "6.2百万 dollars", "$5.2 billion", "6.2 Mio. USD"],
    ),
    (
        "The warranty starts on 5 March 2024 and covers repairs.",
        "The warranty starts on {}.",
        [
            "5 Mar '24",
            "20240305",
            "Tuesday, March 5, 2024",
            "2024-03-05T00:00:00Z",
            "the fifth of March 2024",
            "5/3/2024",
        ],
        ["6 March 2024", "5 March 2023", "2024-03-06T00:00:00Z", "the sixth of March 2024"],
    ),
    (
        "The warranty starts on 5 March 2024 at 3:30 pm and covers repairs.",
        "The warranty starts on 5 March 2024 at {} and covers repairs.",
        ["half past three", "15:30", "15h30", "15.30 Uhr"],
        ["3:30 am", "16:30", "half past four"],
    ),
    (
        "The backup of the billing database began on March 5, 2024 at 3:30 pm by the clock.",
        "The backup of the billing database began on March 5, 2024 at {}.",
        [
            "下午3:30",
            "下午三点半",
            "下午 3点30分",
            "午後3時30分",
            "오후 3:30",
            "오후 3시 30분",
            "15時30分",
            "T15:30",
            "T15:30:00Z",
        ],
        [
            "上午3:30",
            "下午四点半",
            "午後4時30分",
            "오후 5:30",
            "오전 3시 30분",
            "16時30分",
            "T16:30:00Z",
        ],
    ),
    (
        "The backup of the billing database began at 2024-03-05T15:30:00Z and ended well.",
        "The backup of the billing database began {} and ended well.",
        [
            "at 2024-03-05T15:30:00+00:00",
            "at 20240305T153000Z",
            "at 2024-03-05 15:30",
            "on March 5, 2024 at 3:30 pm",
            "on 5 March 2024 at 下午3:30",
        ],
        ["at 2024-03-05T16:30:00Z", "on March 5, 2024 at 3:30 am", "on 5 March 2024 at 오후 4:30"],
    ),
    (
        "The backup of the billing database began at 2026-03-01T10:00:00+02:00 and ended well.",
        "The backup of the billing database began {} and ended well.",
        [
            "at 2026-03-01T08:00:00Z",
            "at 20260301T080000Z",
            "at 2026-03-01 03:00:00-05:00",
            "at 2026-03-01T13:30:00+05:30",
            "on March 1, 2026 at 10:00",
            "on 1 March 2026 at 10 am CEST",
            "on March 1, 2026 at 3 am EST",
            "on 1 March 2026 at 8:00 GMT",
            "at 2026-03-01 10:00 (UTC+2)",
        ],
        [
            "at 2026-03-01T10:00:00Z",
            "at 2026-03-01 10:00:00-05:00",
            "at 2026-03-01T08:00:00+02:00",
            "on March 1, 2026 at 10:00 UTC",
            "on March 1, 2026 at 10 am EST",
            "on March 2, 2026 at 8:00 UTC",
        ],
    ),
    (
        "The backup of the billing database began at 2024-02-28T23:30:00-02:00 and ended well.",
        "The backup of the billing database began {} and ended well.",
        [
            "at 2024-02-29T01:30:00Z",
            "on February 29, 2024 at 01:30 UTC",
            "on February 28, 2024 at 11:30 pm",
        ],
        ["at 2024-02-28T23:30:00Z", "at 2024-03-01T01:30:00Z", "on 28 February 2024 at 11:30 am"],
    ),
    (
        "The call with the auditors begins at 3 pm EST every Thursday, free from 10:00-12:00.",
        "The call with the auditors begins at {} every Thursday.",
        ["3:00 p.m. EST", "15:00 EST", "20:00 UTC", "8 pm GMT", "20:00Z", "9 pm CET", "15:00"],
        ["3 pm PST", "3 pm UTC", "15:00 CET", "3 am EST", "4 pm EST"],
    ),
    (
        "The night market beside the railway station opens at 早上9点 on every day of the week.",
        "The night market beside the railway station opens at {} on every day of the week.",
        ["9 am", "9:00 a.m.", "09:00", "上午9点", "午前9時", "오전 9시"],
        ["8 am", "9 pm", "下午9点", "午後10時"],
    ),
    (
        "The tablet contains 1,500 mg of magnesium and must be kept away from light.",
        "The tablet contains {} of magnesium and must be kept away from light.",
        ["1500mg", "1.5 g", "1,500 milligrams", "1 500 mg", "1.5 grams", "fifteen hundred mg"],
        ["1.5 mg", "15 g", "1,050 mg", "1,500 µg", "1,500 ounces"],
    ),
    (
        "The recommended infusion is 2.5 mg/kg every 6 hours for children under care.",
        "The recommended infusion is {} every 6 hours for children under care.",
        ["2,5 mg/kg", "2.5mg/kg", "2.5 mg per kg", "2.5 milligrams per kilogram", "2.5&nbsp;mg/kg"],
        ["25 mg/kg", "2.5 g/kg", "2.5 mg/ml"],
    ),
    (
        "The warranty for the pump lasts 24 months from the date of purchase.",
        "The warranty for the pump lasts {} from the date of purchase.",
        ["two years", "2 years", "twenty-four months", "24 mths", "24mo"],
        ["12 months", "three years", "2 months", "24 years", "24 days"],
    ),
    (
        "The bus to the airport runs every 15 minutes until midnight comes.",
        "The bus to the airport runs every {} until midnight comes.",
        ["15 min", "15mins", "fifteen minutes", "0.25 hours"],
        ["50 minutes", "15 hours", "five minutes", "15 seconds"],
    ),
    (
        "The token of the session expires after 3600 seconds unless it is renewed.",
        "The token of the session expires after {} unless it is renewed.",
        ["3,600 s", "1 hour", "60 minutes", "3600s", "1h"],
        ["3060 seconds", "6 hours", "3600 minutes"],
    ),
    (
        "The upload limit for attachments is 25 MB for each message that is sent.",
        "The upload limit for attachments is {} for each message that is sent.",
        ["25MB", "25 megabytes", "25 mb", "0.025 GB"],
        ["52 MB", "25 GB", "2.5 MB", "25KB"],
    ),
    (
        "The motor of the lorry delivers 150 kW at full load on the road.",
        "The motor of the lorry delivers {} at full load on the road.",
        ["150kW", "150 kilowatts", "0.15 MW", "150,000 W"],
        ["105 kW", "150 MW", "15 kW", "150 hp"],
    ),
    (
        "The oven must be heated to 180 °C before the tray goes in.",
        "The oven must be heated to {} before the tray goes in.",
        ["180°C", "180 degrees Celsius", "180 degrees C", "180 ℃", "180 deg C", "180 oC"],
        ["108 °C", "180 °F", "200 degrees Celsius"],
    ),
    (
        "The speed limit on the ring road is 80 km/h at night for lorries.",
        "The speed limit on the ring road is {} at night for lorries.",
        ["80km/h", "80 kph", "80 kilometres per hour", "80 kilometers an hour"],
        ["60 km/h", "80 mph", "8 km/h"],
    ),
    (
        "The park along the river bank covers 350 hectares of meadow and wood.",
        "The park along the river bank covers {} of meadow and wood.",
        ["350 ha", "3.5 km²", "3.5 square kilometres", "350ha", "3.5 km<sup>2</sup>", "3.5 km^2"],
        ["530 hectares", "350 acres", "35 ha"],
    ),
    (
        "The new stamp for a letter costs 85 cents from January on, the post office says.",
        "The new stamp for a letter costs {} from January on, the post office says.",
        ["$0.85", "85¢", "0.85 dollars"],
        ["58 cents", "$85", "85 dollars", "$8.50"],
    ),
    (
        "The central bank raised its policy rate by 75 basis points in the month of November.",
        "The central bank raised its policy rate by {} in the month of November.",
        ["75 bps", "75bp", "0.75 percentage points", "0.75 pp"],
        ["50 basis points", "25 bps", "7.5 percentage points"],
    ),
    (
        "The school in the valley has 12 teachers and 85 pupils in its main building.",
        "The school in the valley has {} in its main building.",
        ["12 teachers and 85 pupils", "twelve teachers and eighty-five pupils"],
        ["21 teachers and 85 pupils", "12 teachers and 58 pupils"],
    ),
    (
        "The museum beside the harbour reopened in the 19th century after the second fire.",
        "The museum beside the harbour reopened in the {} after the second fire.",
        ["19th century", "nineteenth century"],
        ["18th century", "twentieth century"],
    ),
    (
        "The bridge over the lower river was built in the 1930s by a local firm.",
        "The bridge over the lower river was built in the {} by a local firm.",
        ["1930s", "1930's", "1930’s"],
        ["1920s", "1980s"],
    ),
    (
        "Sales rose 12.5 percent to 5.2 million units in FY23, and 1,200 people work there.",
        "Sales rose {} to 5.2 million units in FY23.",
        ["twelve and a half percent", "12 1/2 percent", "twelve point five percent", "12,50 %"],
        ["thirteen and a half percent", "1.25%"],
    ),
    (  # numbers that are one value together, and wrong ones of the same numbers
        "The match ended 3-1 after extra time in Berlin on a cold evening.",
        "The match ended {} after extra time in Berlin.",
        ["3-1", "3:1", "3–1", "3 to 1"],
        ["1-3", "3-2", "1:3", "3–3", "2:1"],
    ),
    (
        "The duvet for children measures 60 x 90 cm and can be washed at home.",
        "The duvet for children measures {} and can be washed at home.",
        ["60 x 90 cm", "60×90 cm", "60x90 cm", "60 × 90 cm", "60x90cm"],
        ["90 x 90 cm", "90x60 cm", "60 × 80 cm", "60×60 cm"],
    ),
    (
        "The leak in the parser is fixed by version 3.11.4 of the library.",
        "The leak in the parser is fixed by version {} of the library.",
        ["3.11.4", "v3.11.4", "V3.11.4"],
        ["3.4.11", "3.11.5", "11.3.4", "v4.11.3"],
    ),
    (
        "The emergency line of the town hall is 555-0134 and is open all day.",
        "The emergency line of the town hall is {} and is open all day.",
        ["555-0134", "555–0134"],
        ["555-0143", "505-0134", "0134-555"],
    ),
    (
        "Call the hotline of the bank at 0800 123 4567 between nine and five.",
        "Call the hotline of the bank at {} between nine and five.",
        ["0800 123 4567", "0800 1234567", "0800-123-4567", "08001234567", "(0800) 123 4567"],
        ["0800 123 4576", "0800 1324567", "08007654321"],
    ),
    (  # wrong values whose parts stand elsewhere
        "The patient was admitted on 3 March 2024 with a fever of 39.4 °C.",
        "The patient was admitted on {} with a fever.",
        ["3 March 2024", "March 3rd, 2024", "2024-03-03"],
        ["3 May 2024", "13 March 2024", "2024-04-03"],
    ),
    (  # whose wrong values have the digits of the right one
        "The dose of the drug for children is 2.5 mg/kg, given twice a day.",
        "The dose of the drug for children is {}, given twice a day.",
        ["2.5 mg/kg", "2.5mg/kg", "2.50 mg/kg"],
        ["5.2 mg/kg", "5.2mg/kg", "5.20 mg/kg", "0.25 mg/kg", "2.7 mg/kg", "5,2 mg/kg"],
    ),
    (
        "Inflation in the euro area was 12.21 percent in the year after the war began.",
        "Inflation in the euro area was {} percent in the year after the war began.",
        ["12.21", "12,21"],
        ["21.12", "21,12", "12.12", "21.21"],
    ),
    (
        "Sales rose 12.5 percent to 5.2 million units in FY23, and 1,200 people work there.",
        "Sales rose 12.5 percent to 5.2M units in {}.",
        ["financial year 2023", "2023 fiscal year", "fiscal '23"],
        ["financial year 2024", "FY22/23"],
    ),
]

FACTS = parse_yaml((Path(__file__).parents[1] / "data/notation_facts.yaml").read_bytes())
FORMS += [tuple(fact.values()) for fact in FACTS]


@each_row(("passage", "answer", "same", "wrong"), FORMS)
def test_notations_of_other_languages_and_styles(
    passage: str, answer: str, same: list[str], wrong: list[str]
) -> None:
    passages = [{"id": "1", "text": passage}]

    def grounding(value: str) -> float:
        found = outcome(
            "grounding", query="What is known?", passages=passages, answer=answer.format(value)
        )
        assert found[1] is not None, (value, found)
        return found[1]

    values = {value: grounding(value) for value in same}
    best = max(values.values())
    assert best > 0.9
    assert {value: score for value, score in values.items() if score < best - 0.05} == {}
    assert {value: score for value in wrong if (score := grounding(value)) > best - 0.3} == {}


@pytest.mark.parametrize(
    ("stated", "same", "wrong"),
    [
        ("€5 million", ["EUR 5 million", "5 million euros", "€5,000,000"], ["$5 million", "£5m"]),
        ("$1,200", ["USD 1200", "1,200 dollars"], ["€1,200", "1.200 EUR", "1200 pounds"]),
        ("£40", ["40 pounds", "GBP 40"], ["$40", "40 euros"]),
        ("5,000 yen", ["¥5,000", "JPY 5000"], ["5,000 euros", "$5,000"]),
    ],
)
def test_an_amount_in_another_currency_is_wrong(
    stated: str, same: list[str], wrong: list[str]
) -> None:
    text = "The warranty of the Aurora kettle is extended for a fee of {} by the service desk."

    def value(amount: str) -> float:
        passages = [{"id": "1", "text": text.format(stated)}]
        answer = text.format(amount)
        got = outcome("grounding", query="What is the fee?", passages=passages, answer=answer)[1]
        assert got is not None
        return got

    right = value(stated)
    assert [value(one) for one in same] == pytest.approx([right] * len(same), abs=0.05)
    assert max(map(value, wrong)) <= right - 0.3


def test_an_amount_without_currency_or_in_both_is_right() -> None:
    assert parse_answer("The fee is $40.", ["The fee is 40."]).read.replaced == 0
    assert parse_answer("The fee is $44.", ["The fee is €40 ($44)."]).read.replaced == 0
    assert parse_answer("The fee is $40.", ["The fee is €40 (US$40 abroad)."]).read.replaced == 0
    assert parse_answer("The fee is 40.", ["The fee is €40."]).read.replaced == 0


def test_the_worst_sentence_is_shown_as_it_was_written() -> None:
    answer = (
        "The dose for children is given twice a day. It is in force since 3 May 2024 in all wards."
    )
    page = "The dose for children is given twice a day, since 3 March 2024 in all wards."
    passages = [{"id": "1", "text": page}]
    score = score_of("grounding", query="What is the dose?", passages=passages, answer=answer)
    assert score.detail is not None
    written = "It is in force since 3 May 2024 in all wards."
    assert score.detail["worst_sentence"]["text"] == written


@each_row(
    ("written", "plain"),
    [
        (r"$1{,}540$", "1,540"),
        (r"\(1{,}540\)", "1,540"),
        (r"5\%", "5%"),
        (r"$12.5\%$", "12.5%"),
        (r"3 \times 4\,\text{km}", "3 × 4 km"),
        (r"180^\circ C and 90^{\circ}C", "180° C and 90°C"),
        (r"\frac{2}{3}", "2/3"),
        ("about ⅔ or ²⁄₃", "about 2/3 or 2/3"),
        ("2 ½ or 1½", "2.5 or 1.5"),
        ("$5-$10 and $1,540", "$5-$10 and $1,540"),
        (r"\cite{a} \[1\] {,}", r"\cite{a} \[1\] {,}"),
    ],
)
def test_formulas_and_fractions_are_plain(written: str, plain: str) -> None:
    assert plain_text(written).text == plain
