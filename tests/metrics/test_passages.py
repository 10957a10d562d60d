"""What is read from a passage is remembered within bounds, from the second time on."""

from agent.metrics.evidence import Pages
from agent.metrics.passages import ENTRY, MAX_ONCE, MAX_TEXT, Memo, Passage


def test_a_text_is_kept_from_its_second_coming_on() -> None:
    memo = Memo()
    first, second = memo.read("Parks open at 9:30."), memo.read("Parks open at 9:30.")
    assert first is not second
    assert memo.read("Parks open at 9:30.") is second
    assert first.stems == second.stems == ("park", "open", "9", "30", "")
    assert second.numbers == {"t570"}


def test_texts_that_come_once_are_not_held_and_their_hashes_are_bounded() -> None:
    memo = Memo()
    for number in range(MAX_ONCE + 10):
        memo.read(str(number))
    assert len(memo) == memo.held == 0
    assert len(memo._seen_once) <= MAX_ONCE


def test_the_oldest_give_way_at_the_bound() -> None:
    memo = Memo(limit=3 * (ENTRY + 1))
    for text in "abcd":
        memo.read(text)
        memo.read(text)
    assert len(memo) == 3
    assert memo.held == 3 * (ENTRY + 1)
    kept = {text: memo.read(text) is memo.read(text) for text in "dcb"}
    assert kept == {"d": True, "c": True, "b": True}
    assert memo.read("a") is not memo.read("a")


def test_whole_documents_are_not_held() -> None:
    memo = Memo()
    for _ in range(3):
        memo.read("x" * (MAX_TEXT + 1))
    assert len(memo) == 0


def test_stems_are_found_flat_only_as_whole_words() -> None:
    flat = Passage("Rooms cost 5 pounds").flat
    assert " 5 " in flat
    assert " pound " in flat
    assert " oun" not in flat


def test_pages_are_the_same_from_memory() -> None:
    texts = ["Anna paid 1,000.0 in 2019.", "", "Anna left at 5 pm."]
    first, second, third = (Pages.read(texts) for _ in range(3))
    assert first.stream == second.stream == third.stream
    assert first.owner == third.owner == [0] * (first.starts[1]) + [1] + [2] * 5
    assert third.has_number("1000", "1000")
    assert third.has_number("t300", "17:00")
    assert not third.has_number("7", "7")
