"""What is read from a passage is remembered within bounds, from the second time on."""

import random
import tracemalloc

from ragmeter.metrics.text_index import (
    _CACHE_ENTRY_CHARS,
    _MAX_CACHED_TEXT,
    _MAX_SEEN_ONCE,
    PassageCache,
    PassageIndex,
)


def test_a_text_is_kept_from_its_second_coming_on() -> None:
    memo = PassageCache()
    first, second = memo.read("Parks open at 9:30."), memo.read("Parks open at 9:30.")
    assert first is not second
    assert memo.read("Parks open at 9:30.") is second
    assert first.has_text
    assert second.has_text
    assert second.has_number("t570")
    assert not second.has_number("t571")


def test_texts_that_come_once_are_not_held_and_their_hashes_are_bounded() -> None:
    memo = PassageCache()
    for number in range(_MAX_SEEN_ONCE + 10):
        memo.read(str(number))
    assert len(memo) == memo.chars == 0
    assert len(memo._seen_once) <= _MAX_SEEN_ONCE


def test_the_oldest_give_way_at_the_bound() -> None:
    memo = PassageCache(limit=3 * (_CACHE_ENTRY_CHARS + 1))
    for text in "abcd":
        memo.read(text)
        memo.read(text)
    assert len(memo) == 3
    assert memo.chars == 3 * (_CACHE_ENTRY_CHARS + 1)
    kept = {text: memo.read(text) is memo.read(text) for text in "dcb"}
    assert kept == {"d": True, "c": True, "b": True}
    assert memo.read("a") is not memo.read("a")


def test_a_cached_passage_takes_a_few_bytes_a_character() -> None:
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdefghij", k=rng.randrange(2, 10))) for _ in range(1_000)]
    texts = [" ".join(rng.choices(words, k=200)) for _ in range(100)]
    for text in texts:
        PassageIndex.read([text])  # fills the table of stems
    memo = PassageCache()
    tracemalloc.start()
    try:
        for text in texts:
            memo.read(text)
            memo.read(text)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(memo) == len(texts)
    assert taken < 4 * memo.chars  # besides the texts, which the traces brought


def test_whole_documents_are_not_held() -> None:
    memo = PassageCache()
    for _ in range(3):
        memo.read("x" * (_MAX_CACHED_TEXT + 1))
    assert len(memo) == 0


def test_pages_are_the_same_from_memory() -> None:
    texts = ["Anna paid 1,000.0 in 2019.", "", "Anna left at 5 pm."]
    first, second, third = (PassageIndex.read(texts) for _ in range(3))
    assert first.texts == second.texts == third.texts
    words = {"anna", "paid", "2019", "left", "5"}
    assert third.has_number("1000", "1000", words)
    assert third.has_number("t300", "17:00", words)
    assert not third.has_number("7", "7", words)
