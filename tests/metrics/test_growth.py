"""The work of the built-in scorers grows no faster than the text, whatever a sender writes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from ragmeter.metrics.answer_text import MAX_ANSWER
from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
from ragmeter.metrics.text_index import MAX_TEXT_CHARS
from ragmeter.trace import Trace

from tests.metrics.help import trace

SHORT = 8_000  # characters of the answer, a third of those of the passage; twice that is read whole
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_rng = random.Random(7)
WORDS = ["".join(_rng.choices(LETTERS, k=_rng.randrange(4, 9))) for _ in range(20_000)]
COUNTS = [_rng.randrange(10**6) for _ in range(20_000)]


def words(size: int, first: int = 0) -> str:
    return " ".join(WORDS[first : first + size // 7])


def chinese(size: int, first: int = 0) -> str:
    return "".join(chr(0x4E00 + number % 5_000) for number in COUNTS[first : first + size])


def numbers(form: str, size: int, first: int = 0) -> str:
    return " ".join(form.format(number) for number in COUNTS[first : first + size // 7])


def record(size: int) -> str:
    pairs = zip(WORDS, WORDS[1:], range(size // 24), strict=False)
    return "{" + ", ".join(f'"{a.title()}{b.title()}": {i % 2 == 0}' for a, b, i in pairs) + "}"


# (passage, answer) of a size
HOSTILE: dict[str, Callable[[int], tuple[str, str]]] = {
    "new words": lambda n: (words(3 * n), words(n, 8_000)),
    "new names": lambda n: (words(3 * n), words(n, 8_000).title()),
    "copied": lambda n: (words(3 * n), words(n)),
    "one word": lambda n: ("food " * (3 * n // 5), "food " * (n // 5)),
    "no spaces": lambda n: ("a" * 3 * n, "a" * n),
    "chinese": lambda n: (chinese(3 * n), chinese(n, 2_000)),
    "numbers": lambda n: (numbers("{}", 3 * n), numbers("{}", n, 9_000)),
    "grouped numbers": lambda n: (numbers("{:,}", 3 * n), numbers("{}", n, 9_000)),
    "decimals": lambda n: (numbers("{}.5", 3 * n), numbers("{}.75", n, 9_000)),
    "record": lambda n: (record(3 * n), ", ".join(f"no {word}" for word in WORDS[: n // 10])),
    "list": lambda n: (words(3 * n), "\n".join(f"{i}. {WORDS[i]}" for i in range(n // 10))),
    "sentences": lambda n: (words(3 * n), "A b. " * (n // 5)),
    "brackets": lambda n: (words(3 * n), "[1] " * (n // 4)),
    "contraries": lambda n: ("rose by 5 before " * (3 * n // 17), "fell by 7 after " * (n // 16)),
    "periods": lambda n: ("from 3 to 5 a day " * (n // 6), "every week by 3 1/2 " * (n // 21)),
    "angles": lambda n: ("7° 7′ 7″ " * (n // 3), "9 degrees 9 minutes " * (n // 20)),
    "table": lambda n: (
        "".join(f"| {word} | {i} |\n" for i, word in enumerate(WORDS[: n // 6])),
        "".join(f"{WORDS[i]} {n - i} in 1999. " for i in range(n // 20)),
    ),
    "years": lambda n: ("10 in 1990 and 20 in 1991. " * (n // 9), "20 in 1990. " * (n // 12)),
    "quotes": lambda n: ('":' * (3 * n // 2), '":' * (n // 2)),
}


def scored(passage: str, answer: str) -> Trace:
    return trace(query="parks food", answer=answer, passages=[{"id": "p", "text": passage}])


def cost(scored: Trace) -> float:
    prepared = PreparedTrace(scored)
    begin = time.process_time()
    score_cheap(prepared)
    score_builtin(prepared)
    return time.process_time() - begin


def ratio(large: Trace, small: Trace, enough: float, runs: int) -> float:
    """How many times as long the large one takes: the least of alternating runs, and several times
    if it is not below `enough`, for a busy machine slows single runs down."""
    ratios = []
    for _ in range(4):
        pairs = [(cost(large), cost(small)) for _ in range(runs)]
        ratios.append(min(a for a, _ in pairs) / min(b for _, b in pairs))
        if ratios[-1] < enough:
            break
    return min(ratios)


@pytest.mark.parametrize("kind", HOSTILE)
def test_twice_the_text_takes_twice_the_time(kind: str) -> None:
    short, long = (scored(*HOSTILE[kind](size)) for size in (SHORT, 2 * SHORT))
    assert ratio(long, short, 3.0, runs=5) < 3.0


def test_no_more_is_read_of_a_megabyte_than_the_bounds() -> None:
    passage = " ".join(WORDS * 8)[:1_000_000]
    answer = " ".join(WORDS[::-1])
    bounded = scored(passage[:MAX_TEXT_CHARS], answer[:MAX_ANSWER])
    assert ratio(scored(passage, answer), bounded, 2.0, runs=2) < 2.0
