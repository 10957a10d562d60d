from __future__ import annotations

import time

from ragmeter.metrics.kernel import detect_script
from ragmeter.metrics.numbers import extract_numbers
from ragmeter.metrics.stems import content_stems, idf, stem_word
from ragmeter.metrics.words import tokenize

from tests.tables import each_row


def test_tokens_are_lower_case_words_and_numbers() -> None:
    assert tokenize("It's 3.5 GB, “Größe” x_y!") == ["it", "s", "3", "5", "gb", "größe", "x", "y"]


def test_scripts_without_spaces_give_character_pairs() -> None:
    assert tokenize("重置密码。ok") == ["重置", "置密", "密码", "ok"]
    assert "รี" not in tokenize("hello")
    assert len(tokenize("การรีเซ็ตรหัสผ่าน")) > 3


def test_forms_of_a_word_share_a_stem() -> None:
    assert stem_word("parks") == stem_word("parked") == stem_word("parking") == stem_word("park")
    assert stem_word("2019") == "2019"


def test_stop_words_are_no_content() -> None:
    assert content_stems(["the", "cat", "is", "on", "the", "mat"]) == ["cat", "mat"]


def test_rare_words_weigh_more() -> None:
    assert 0 < idf[stem_word("use")] < idf[stem_word("zirconium")] == idf.rarest


def test_numbers_have_one_form() -> None:
    def forms(text: str) -> list[str]:
        return [form for form, _ in extract_numbers(text)]

    assert forms("1,000.0 and 1000 and 007") == ["1000", "1000", "7"]
    assert forms("5:30 pm, 17:30, 5:30pm") == ["t330"] * 3
    assert forms("12 am and 0:00") == ["t0", "t0"]
    assert forms("4.50 v1.2 x2") == ["4.5"]


def test_script_is_told_apart() -> None:
    assert detect_script("Grüße aus Köln") == "latin"
    assert detect_script("你好") == detect_script("Привет") == "other"
    assert detect_script("123 !") == ""


@each_row("text", [" " * 200_000, "." * 200_000, "\n" * 200_000, "1" * 200_000, "1," * 100_000])
def test_hostile_texts_cost_linear_time(text: str) -> None:
    before = time.process_time()
    extract_numbers(text)
    tokenize(text)
    assert time.process_time() - before < 2
