from __future__ import annotations

from typing import Any

import pytest
from ragmeter.aggregate.wordings import (
    MAX_WORDS,
    WordingBuilder,
    is_valid_wording,
    wording_mode,
    wording_words,
)
from ragmeter.config.inputs import PrivacySettings
from ragmeter.config.scoring import ConsistencySettings
from ragmeter.core.score import HashedWording
from ragmeter.metrics.consistency import answer_similarities

from tests.metrics.help import lexical_similarities
from tests.traces import make_trace

ONE = "Click Forgot password, then follow the mail."
TWO = "Follow the mail after you click Forgot password."


def made(wordings: WordingBuilder | None = None, **changes: Any) -> HashedWording:
    found = (wordings or WordingBuilder(ConsistencySettings(), PrivacySettings())).of(
        make_trace(1, **changes)
    )
    assert isinstance(found, HashedWording), found
    return found


def hashing(key: str) -> WordingBuilder:
    return WordingBuilder(
        ConsistencySettings(), PrivacySettings.model_validate({"content": "hash", "hash_key": key})
    )


def test_hashed_answers_have_the_similarities_of_their_texts() -> None:
    one, two = (wording_words(made(answer=text).words) for text in (ONE, TWO))
    expected = lexical_similarities([ONE, TWO])
    assert isinstance(expected, dict)
    assert {name: [value] for name, value in answer_similarities(one, two).items()} == expected
    assert 0 < expected["rouge2"][0] < expected["rouge1"][0] < 1


def test_questions_are_the_same_in_their_normal_form_and_context() -> None:
    base = made(query="How do I reset it?")
    assert made(query="  how do I  RESET it").query == base.query
    assert made(query="How do I reset that?").query != base.query
    history = [{"role": "user", "text": "About the router."}]
    assert made(query="How do I reset it?", history=history).query != base.query
    tagged = WordingBuilder(ConsistencySettings(tags=["tenant"]), PrivacySettings())
    acme, other = (made(tagged, tags={"tenant": name}).query for name in ("acme", "other"))
    assert acme != other


def test_no_word_of_a_text_is_kept() -> None:
    for wordings in (WordingBuilder(ConsistencySettings(), PrivacySettings()), hashing("k" * 16)):
        found = made(wordings, query="secretquestion", answer="secretanswer secretanswer")
        assert "secret" not in f"{found}"
        first, second = wording_words(found.words)
        assert first == second


def test_a_word_is_another_number_under_another_question_and_key() -> None:
    numbers = {
        wording_words(made(wordings, query=query, answer="password").words)[0]
        for wordings in (None, hashing("a" * 16), hashing("b" * 16))
        for query in ("one", "two")
    }
    assert len(numbers) == 6


def test_long_answers_are_cut_and_what_is_made_is_sound() -> None:
    found = made(answer=" ".join(f"w{number}" for number in range(2 * MAX_WORDS)))
    assert len(wording_words(found.words)) == MAX_WORDS
    assert is_valid_wording(found)
    for bad in (
        HashedWording(found.query, found.words + "AAAA" * 400),
        HashedWording(found.query, "not base64!"),
        HashedWording(found.query, "AAAA"),
        HashedWording("zz", found.words),
        HashedWording("", found.words),
    ):
        assert not is_valid_wording(bad), bad


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"query": None}, "no_query"),
        ({"query": "  "}, "no_query"),
        ({"missing": {"query": "content_hidden"}}, "no_query"),
        ({"answer": None}, "no_answer"),
        ({"answer": "...!"}, "no_answer"),
        ({"missing": {"answer": "answer_truncated"}}, "no_answer"),
        ({"reference": {"answer": "x"}}, ""),
    ],
)
def test_why_there_is_nothing_to_compare(changes: dict[str, Any], why: str) -> None:
    assert (
        WordingBuilder(ConsistencySettings(), PrivacySettings()).of(make_trace(1, **changes)) == why
    )


def test_where_nothing_of_texts_may_be_kept_nothing_is() -> None:
    nothing = PrivacySettings(content="none")
    assert WordingBuilder(ConsistencySettings(), nothing).of(make_trace(1)) == ""
    assert (
        WordingBuilder(ConsistencySettings(enabled=False), PrivacySettings()).of(make_trace(1))
        == ""
    )
    assert wording_mode(ConsistencySettings(), nothing) == wording_mode(
        ConsistencySettings(enabled=False), PrivacySettings()
    )


def test_the_words_of_what_is_not_wanted_are_not_read() -> None:
    asked: list[str] = []

    def never(query: str) -> bool:
        asked.append(query)
        return False

    assert (
        WordingBuilder(ConsistencySettings(), PrivacySettings()).of(make_trace(1), never)
        == "sampled_out"
    )
    assert asked == [made().query]
