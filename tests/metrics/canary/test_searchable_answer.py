from __future__ import annotations

import time

from ragmeter.metrics.canary.searchable_answer import (
    SearchableAnswer,
    number_values,
    signed_numbers,
)

from tests.tables import each_row


@each_row(
    ("text", "found"),
    [
        ("It is $1,204.50, or 19 %.", {"1204.5", "19"}),
        ("from -0.133% to −5 and (-2)", {"-.133", "-5", "-2"}),
        ("-$40 and $-41", {"-40", "-41"}),
        ("5-10 of C-1, 2024-01-31, a)-3", {"5", "10", "1", "2024", "31", "3"}),
        ("x5 -5 --6", {"-5", "6"}),
        ("- 7 is a list item", {"7"}),
        ("at 5:30 pm, 007 and -0", {"t330", "7", "0"}),
        ("none", set()),
        ("需要14天，3月5日", {"14", "3", "5"}),
        ("１２ or ٣٤ or ३.५० or 𝟙𝟚", {"12", "34", "3.5"}),
        ("x² and ½ and Ⅳ", set()),
    ],
)
def test_numbers_have_one_form(text: str, found: set[str]) -> None:
    assert signed_numbers(text) == found


def test_times_are_no_values() -> None:
    assert sorted(number_values(signed_numbers("-2.50 at 17:30 or 3"))) == [-2.5, 3.0]


@each_row(
    ("phrase", "held"),
    [
        ("not available", True),
        ("NOT   AVAILABLE!", True),
        ("not-available", True),
        ("available not", False),
        ("vail", False),
        ("can’t", True),
        ("café", True),
        ("cafe\u0301", True),
        ("...", None),
        ("", None),
    ],
)
def test_a_phrase_is_held_word_by_word(phrase: str, held: bool | None) -> None:
    assert SearchableAnswer("The café is not available. You can't book.").holds(phrase) is held


def test_signs_between_words_and_the_ends_of_a_text_part_no_phrase() -> None:
    reported = SearchableAnswer("Not, alas: available\n  today")
    assert reported.holds("not alas available today") is reported.holds("TODAY") is True


def test_text_without_spaces() -> None:
    reported = SearchableAnswer("请重置您的密码。")
    assert [reported.holds(one) for one in ("密码", "重置您的", "密", "码密")] == [
        True,
        True,
        True,
        False,
    ]
    assert reported.length > 1
    assert SearchableAnswer("three short words").length == 3


def test_hostile_texts_are_bounded() -> None:
    before = time.process_time()
    reported = SearchableAnswer("-1," * 400_000)
    assert reported.holds("word " * 400_000) is False
    assert reported.numbers
    assert time.process_time() - before < 3


@each_row(
    ("phrase", "held"),
    [("VPN", True), ("vpn连接", True), ("使用", True), ("连", True), ("14", True), ("pn", False)],
)
def test_words_stand_apart_in_a_text_without_spaces(phrase: str, held: bool) -> None:
    assert SearchableAnswer("请使用VPN连接，需要14天。").holds(phrase) is held
