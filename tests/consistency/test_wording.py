from __future__ import annotations

from typing import Any

import pytest

from agent.consistency.wording import MAX_WORDS, Wordings, mode_of, sound, words_of
from agent.metrics.consistency import lexical, similarities
from agent.settings.consistency import Consistency
from agent.settings.privacy import Privacy
from agent.trace import Wording
from tests.traces import make_trace

ONE = "Click Forgot password, then follow the mail."
TWO = "Follow the mail after you click Forgot password."


def made(wordings: Wordings | None = None, **changes: Any) -> Wording:
    found = (wordings or Wordings(Consistency(), Privacy())).of(make_trace(1, **changes))
    assert isinstance(found, Wording), found
    return found


def hashing(key: str) -> Wordings:
    return Wordings(Consistency(), Privacy.model_validate({"content": "hash", "hash_key": key}))


def test_hashed_answers_have_the_similarities_of_their_texts() -> None:
    one, two = (words_of(made(answer=text).words) for text in (ONE, TWO))
    expected = lexical([ONE, TWO])
    assert isinstance(expected, dict)
    assert {name: [value] for name, value in similarities(one, two).items()} == expected
    assert 0 < expected["rouge2"][0] < expected["rouge1"][0] < 1


def test_questions_are_the_same_in_their_normal_form_and_context() -> None:
    base = made(query="How do I reset it?")
    assert made(query="  how do I  RESET it").query == base.query
    assert made(query="How do I reset that?").query != base.query
    history = [{"role": "user", "text": "About the router."}]
    assert made(query="How do I reset it?", history=history).query != base.query
    tagged = Wordings(Consistency(tags=["tenant"]), Privacy())
    acme, other = (made(tagged, tags={"tenant": name}).query for name in ("acme", "other"))
    assert acme != other


def test_no_word_of_a_text_is_kept() -> None:
    for wordings in (Wordings(Consistency(), Privacy()), hashing("k" * 16)):
        found = made(wordings, query="secretquestion", answer="secretanswer secretanswer")
        assert "secret" not in f"{found}"
        first, second = words_of(found.words)
        assert first == second


def test_a_word_is_another_number_under_another_question_and_key() -> None:
    numbers = {
        words_of(made(wordings, query=query, answer="password").words)[0]
        for wordings in (None, hashing("a" * 16), hashing("b" * 16))
        for query in ("one", "two")
    }
    assert len(numbers) == 6


def test_long_answers_are_cut_and_what_is_made_is_sound() -> None:
    found = made(answer=" ".join(f"w{number}" for number in range(2 * MAX_WORDS)))
    assert len(words_of(found.words)) == MAX_WORDS
    assert sound(found)
    for bad in (
        Wording(found.query, found.words + "AAAA" * 400),
        Wording(found.query, "not base64!"),
        Wording(found.query, "AAAA"),
        Wording("zz", found.words),
        Wording("", found.words),
    ):
        assert not sound(bad), bad


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
    assert Wordings(Consistency(), Privacy()).of(make_trace(1, **changes)) == why


def test_where_nothing_of_texts_may_be_kept_nothing_is() -> None:
    nothing = Privacy(content="none")
    assert Wordings(Consistency(), nothing).of(make_trace(1)) == ""
    assert Wordings(Consistency(enabled=False), Privacy()).of(make_trace(1)) == ""
    assert mode_of(Consistency(), nothing) == mode_of(Consistency(enabled=False), Privacy())


def test_the_words_of_what_is_not_wanted_are_not_read() -> None:
    asked: list[str] = []

    def never(query: str) -> bool:
        asked.append(query)
        return False

    assert Wordings(Consistency(), Privacy()).of(make_trace(1), never) == "sampled_out"
    assert asked == [made().query]
