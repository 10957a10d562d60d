from __future__ import annotations

import time

import pytest

from agent.metrics.words import (
    clock_and_plain_numbers,
    content_stems,
    idf,
    script,
    stem,
    tokens,
)


def test_tokens_are_lower_case_words_and_numbers() -> None:
    assert tokens("It's 3.5 GB, “Größe” x_y!") == ["it", "s", "3", "5", "gb", "größe", "x", "y"]


def test_scripts_without_spaces_give_character_pairs() -> None:
    assert tokens("重置密码。ok") == ["重置", "置密", "密码", "ok"]
    assert "รี" not in tokens("hello")
    assert len(tokens("การรีเซ็ตรหัสผ่าน")) > 3


def test_forms_of_a_word_share_a_stem() -> None:
    assert stem("parks") == stem("parked") == stem("parking") == stem("park")
    assert stem("2019") == "2019"


def test_stop_words_are_no_content() -> None:
    assert content_stems(["the", "cat", "is", "on", "the", "mat"]) == ["cat", "mat"]


def test_rare_words_weigh_more() -> None:
    assert 0 < idf[stem("use")] < idf[stem("zirconium")] == idf.rarest


def test_numbers_have_one_form() -> None:
    def forms(text: str) -> list[str]:
        return [form for form, _ in clock_and_plain_numbers(text)]

    assert forms("1,000.0 and 1000 and 007") == ["1000", "1000", "7"]
    assert forms("5:30 pm, 17:30, 5:30pm") == ["t330"] * 3
    assert forms("12 am and 0:00") == ["t0", "t0"]
    assert forms("4.50 v1.2 x2") == ["4.5"]


def test_script_is_told_apart() -> None:
    assert script("Grüße aus Köln") == "latin"
    assert script("你好") == script("Привет") == "other"
    assert script("123 !") == ""


@pytest.mark.parametrize(
    "text", [" " * 200_000, "." * 200_000, "\n" * 200_000, "1" * 200_000, "1," * 100_000]
)
def test_hostile_texts_cost_linear_time(text: str) -> None:
    before = time.process_time()
    clock_and_plain_numbers(text)
    tokens(text)
    assert time.process_time() - before < 2
