"""The comparison of texts by the native kernel: the same numbers whatever its lexicon has seen."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ragmeter.metrics import kernel
from ragmeter.metrics.answer_text import parse_answer
from ragmeter.metrics.comparison import Comparison, compare_texts, make_lexicon
from ragmeter.metrics.text_index import PassageIndex, PassageText, QueryText

ROOT = Path(__file__).parents[2]
Texts = tuple[list[str], str, str]

# Words that meet each branch: negations, numbers in words and digits, times of day, names, flags of
# records, words about the passages, other scripts, stop words and stems of one beginning.
VOCABULARY = """
    the not never no without False null seven 7 twelve 12 1,000 1000 5:30 pm 17:30 monday Nigeria
    Nigerian nigeria explanation explain article mention does specify passage provided open opens
    opened parking Parking wifi WiFi garden Anna Émile 用VPN连接14天 ٣ may probably half dozen of
"""
WORDS = VOCABULARY.split()


def real_texts() -> Iterator[Texts]:
    with gzip.open(ROOT / "tests" / "data" / "ragtruth_answers.jsonl.gz", "rt") as lines:
        rows = list(lines)
    rows += (ROOT / "examples" / "mtrag.jsonl").read_text("utf-8").splitlines()
    for line in rows:
        row = json.loads(line)
        passages = [passage.get("text") or "" for passage in row.get("passages") or ()]
        yield passages, row.get("answer") or "", row.get("query") or ""


def invented_texts(seed: int) -> Iterator[Texts]:
    rng = random.Random(seed)

    def words(most: int) -> str:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(most)))

    def passage() -> str:
        if rng.random() < 0.3:
            flags = ("true", "false", "null", '"no"', '"9:0-17:30"')
            return "".join(
                f'"{rng.choice(("OutdoorSeating", "WiFi", "GarageParking", "Monday"))}": '
                f"{rng.choice(flags)}, "
                for _ in range(rng.randrange(3, 9))
            )
        return words(rng.choice((3, 60, 300)))

    while True:
        passages = [passage() for _ in range(rng.randrange(5))]
        sentences = [words(25) for _ in range(rng.randrange(12))]
        if passages and rng.random() < 0.7:  # stretches that are copied, and changed in one word
            pieces = rng.choice(passages).split()
            at = rng.randrange(len(pieces) + 1)
            copied = pieces[at : at + rng.randrange(30)]
            if copied:
                copied[rng.randrange(len(copied))] = rng.choice(WORDS)
            sentences.insert(rng.randrange(len(sentences) + 1), " ".join(copied))
        yield passages, rng.choice((". ", "\n- ", "\n2. ")).join(sentences), words(10)


def compared(texts: Texts, lexicon: kernel.Lexicon) -> list[object]:
    passages, answer_text, query_text = texts
    answer = parse_answer(answer_text)
    query = QueryText.read(query_text)
    every = list(range(len(passages)))
    pages = PassageIndex.read(passages, PassageText)
    found = Comparison(lexicon, pages, answer, query)
    return [
        found.grade_passages() if passages and query.words else None,
        found.extract_features() if answer.claims else None,
        [found.measure_support(claim, every) for claim in answer.claims],
        [found.measure_support(claim, every[::2]) for claim in answer.claims],
        [passage.has_text for passage in pages.passages],
        found.has_content,
    ]


@pytest.mark.parametrize("seed", range(4))
def test_a_lexicon_that_begins_anew_gives_the_same_numbers(seed: int) -> None:
    small, large = make_lexicon(limit=60), make_lexicon()
    for texts, _ in zip(invented_texts(seed), range(300), strict=False):
        assert compared(texts, small) == compared(texts, large), texts


def test_threads_do_not_mix_their_words() -> None:
    """Each thread has a lexicon of its own, while passages are shared."""
    pages = [PassageIndex.read(texts[0]) for texts, _ in zip(real_texts(), range(40), strict=False)]
    answers = [texts[1] for texts, _ in zip(real_texts(), range(40), strict=False)]

    def grounding() -> list[object]:
        return [
            compare_texts(
                PassageIndex.read(index.texts), parse_answer(answer), QueryText.read("when")
            ).extract_features()
            for index, answer in zip(pages, answers, strict=True)
        ]

    expected = grounding()
    results: list[list[object]] = []
    threads = [threading.Thread(target=lambda: results.append(grounding())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


def test_a_comparison_is_asked_before_the_next_one_is_made() -> None:
    lexicon = make_lexicon()
    pages = PassageIndex.read(["a pump"])
    answer = parse_answer("A pump.")
    query = QueryText.read("")
    first = Comparison(lexicon, pages, answer, query)
    Comparison(lexicon, pages, answer, query)
    with pytest.raises(RuntimeError, match="another trace"):
        first.extract_features()


# Reads more new words than there is memory for, as often as there are arguments: MiB beyond what
# the process has. After each, the lexicon has to give what one gives that was never short.
SHORT_OF_MEMORY = """
import itertools, resource, sys
from ragmeter.metrics.comparison import Comparison, make_lexicon
from tests.metrics.test_comparison import compared, invented_texts

lexicon, other = make_lexicon(limit=10**9), make_lexicon()
words = map("w{:x}".format, itertools.count())
failures = 0
for number, more in enumerate(map(int, sys.argv[1:])):
    text = " ".join(itertools.islice(words, 400_000))
    with open("/proc/self/statm") as sizes:
        size = int(sizes.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + more * 2**20, resource.RLIM_INFINITY))
    try:
        lexicon.read_passage(text, False)
    except MemoryError:
        failures += 1
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for texts in itertools.islice(invented_texts(number), 20):
        assert compared(texts, lexicon) == compared(texts, other)
print(failures)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory as Linux does")
def test_a_lexicon_that_was_short_of_memory_is_whole_again() -> None:
    steps = [str(more) for more in range(1, 25)]
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY, *steps], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 12


def test_a_comparison_that_fails_ends_the_one_before() -> None:
    lexicon = make_lexicon()
    passages = [lexicon.read_passage("a pump", False)]
    answer = parse_answer("A pump.").read
    first = kernel.Comparison(lexicon, passages, answer, [], False)
    with pytest.raises(TypeError):
        kernel.Comparison(lexicon, passages, answer, ["pump", None], False)  # type: ignore[list-item]
    with pytest.raises(RuntimeError, match="another trace"):
        first.measure_support(0, [0], 0.2, 0.65, 0.6)


def test_what_is_out_of_range_is_an_error() -> None:
    """The module has no checks of its own: an index beyond would read foreign memory."""
    lexicon, other = make_lexicon(), make_lexicon()
    passages = [lexicon.read_passage("a pump", False)]

    answer = parse_answer("A pump.").read

    def compare(query: list[str]) -> kernel.Comparison:
        return kernel.Comparison(lexicon, passages, answer, query, False)

    with pytest.raises(ValueError, match="empty stem"):
        compare([""])
    for ids in (kernel.PassageIds(), other.read_passage("a pump", False)):
        with pytest.raises(RuntimeError, match="begun anew"):
            kernel.Comparison(lexicon, [ids], answer, [], False)
    texts = compare(["pump"])
    assert texts.find_worst_sentence() == (-1, 0.0, None)  # before there are features
    for sentence, passage in ((1, 0), (0, 1), (0, -1)):
        with pytest.raises(IndexError):
            texts.measure_support(sentence, [passage], 0.2, 0.65, 0.6)
    line = kernel.PiecewiseLine([0.0], [1.0], [1.0], 0.0)
    with pytest.raises(ValueError, match="limits"):
        kernel.PiecewiseLine([0.0], [1.0], [1.0, 2.0], 0.0)
    with pytest.raises(ValueError, match="values"):
        kernel.GroundingModel(line, line, 0.5, []).raw([], [])
    with pytest.raises(ValueError, match="feature"):
        kernel.GroundingModel(line, line, 0.5, [(0, 0.0, [(1, 0.0, 0.0, 0.0)], [])])
    for rarities, rarest in (({"a": 0.0}, 1.0), ({}, 0.0)):
        with pytest.raises(ValueError, match="rarity"):
            kernel.Vocabulary(rarities, rarest, {}, 5)
    for kind in (kernel.Comparison, kernel.Lexicon, kernel.Vocabulary):
        with pytest.raises(TypeError):
            kind.__new__(kind)
