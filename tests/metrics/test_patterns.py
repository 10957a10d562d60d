"""The kernel's regular expressions mean what `re` means by them."""

from __future__ import annotations

import random
import re
import time

import pytest
from ragmeter.metrics.kernel import Pattern, Words

from tests.golden.texts import NOISE, WORDS
from tests.tables import each_row

# All that the parser knows, alone and together; some that only look like a repetition.
SOURCES = (
    r"[\w.]+@[\w-]{2,5}",
    r"(?<![\w.])\d{1,3}(?:[,.'’ ]\d{3})+",
    r"(a|b|ab)(c|bcd)?(d*)",
    r"(?P<x>[-/.])\d+(?P=x)",
    r"^[ \t]{0,3}(?:[-*]|\d{1,2}[.)])\s",
    r"[^\W\d_]{3,}$",
    r"\bno\b|n't\b",
    r"(?:(?:ab?)+c){2,3}",
    r"x*?y",
    r"(?:[^\w\n]{0,9}(?:\d{1,2}(?:[.)]|:)|[a-z]\))(?:\s+|\Z)){1,2}",
    r"\\n|[\]\\^-]",
    r"(?=\w)\S*?(?!\d)\b.",
    r"(?<=ab)[^c]|(?<=e)\u0301",
    r"\A\s*|\s*\Z",
    r"a{,2}b|b{2,}|\{2}|x{y",
    r"<(sup|b)\b[^<>\n]{0,9}>[^<>]{1,4}</\1>",
    r"(?:\s?,\s?|\s?and\s){1,3}\d",
    r"[①-⑳]|[A-Zａ-ｚ]{2}",
    r"(?:a|ab)(?:c|bc)(?:\.|,)??",
    r"((a)|b)*c",
    r"(?:a?){2,4}b",
    r"source|ſ|İ|k|µ|[ik-s]",
    r"(?:a\b|ab|a?bc|b{2}|(?:c.)?d|[cd]*|a(?=\.)|1(?:,|))\w{0,2}",
    r"(?>ab|a|b\d)(?:c|(?>ab|a|b\d))|\d+(?>\s?(?:a|p)m?(?!\w))|(?>a|ab)c",
    r"(?:\d{1,3}(?:st|nd)|\d\d[.]\d|\d+ ?(?:a|p)m|(?:o|\d{1,2}) \d|1?\d/\d?|\d{2,4}(?!\d)|\d )a?",
)
FLAGS = ((0, 0), (re.IGNORECASE, 1), (re.MULTILINE, 2), (re.DOTALL, 4), (re.I | re.M | re.S, 7))


def texts(seed: int) -> list[str]:
    rng = random.Random(seed)
    signs = NOISE + "abcdABCDn't 0123456789.,/-:;<>@xyıſİKµμ\u0301"
    out = ["".join(rng.choices(signs, k=rng.randrange(30))) for _ in range(300)]
    out += ["".join(rng.choices("abcd.12, \n", k=rng.randrange(20))) for _ in range(300)]
    return out + [" ".join(rng.choices(WORDS, k=40)) for _ in range(20)]


def spans(pattern: re.Pattern[str], text: str) -> list[list[tuple[int, int]]]:
    groups = range(pattern.groups + 1)
    return [[match.span(group) for group in groups] for match in pattern.finditer(text)]


def every_span(pattern: Pattern, text: str) -> list[list[tuple[int, int]]]:
    return [
        [found.span(group) for group in range(len(found.groups()) + 1)]
        for found in pattern.finditer(text)
    ]


@each_row("source", SOURCES)
def test_matches_and_groups_are_those_of_re(source: str) -> None:
    for expected, given in FLAGS:
        theirs = re.compile(source, expected)
        ours = Pattern(source, given)
        for text in texts(given):
            # `re` finds an empty match right behind another one, which no pattern here asks for
            wanted = [one for one in spans(theirs, text) if one[0][0] < one[0][1]]
            found = [one for one in every_span(ours, text) if one[0][0] < one[0][1]]
            assert found == wanted, (source, given, text)


def test_what_is_no_pattern_is_an_error() -> None:
    for source in ("(a", "a)", "[a", "(?i)a", "(?<=a+)b", "(?>(a))"):
        with pytest.raises(RuntimeError):
            Pattern(source)


@pytest.mark.parametrize("text", ["a" * 300_000, "ab" * 150_000, "1,234" + ",234" * 60_000])
def test_a_long_text_ends_within_its_bounds(text: str) -> None:
    begin = time.process_time()
    for source in (r"(?:a|b)*c", r"\d{1,3}(?:,\d{3})+", r"[^\n]{0,1000}x"):
        Pattern(source).finditer(text[:10_000])
    assert time.process_time() - begin < 5


def test_words_are_those_that_a_text_has() -> None:
    wanted = ("ab", "abc", "ab.", "bc", "1 2", "ıſ", "12", "日本", "n't", "\n1", "of", "o\u0301")
    words = Words(wanted)
    for text in [*texts(5), *wanted, "", "a", "日", "東京日本橋"]:
        expected = [at for at, word in enumerate(wanted) if word in text]
        assert words.find(text) == expected, text
        assert words.stand_in(text) == bool(expected), text
    with pytest.raises(ValueError, match="two characters"):
        Words(["a"])
