"""Embeddings of answers, and near questions, in the memory."""

from __future__ import annotations

import json
import random
from itertools import combinations
from typing import Any

import pytest
from ragmeter.aggregate.answer_similarity import MAX_ANSWERS, THIN_SECONDS, group_questions
from ragmeter.aggregate.consistency import AnswerMemory
from ragmeter.aggregate.wordings import WordingBuilder
from ragmeter.config.inputs import PrivacySettings
from ragmeter.config.scoring import ConsistencySettings
from ragmeter.core.arithmetic import AnswerVectors, pack_vector
from ragmeter.core.score import HashedWording

from tests.traces import make_trace

NOW = 1_790_000_000.0
WINDOWS = {"5m": 300.0, "1h": 3600.0}
SETTINGS = ConsistencySettings.model_validate(
    {"tags": ["tenant"], "embeddings": {"base_url": "http://e/v1", "model": "m", "near": 0.9}}
)
WORDINGS = WordingBuilder(SETTINGS, PrivacySettings())
EAST, NORTH, BETWEEN = (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)


def memory(near: float | None = 0.9, min_samples: int = 2) -> AnswerMemory:
    return AnswerMemory(100, WINDOWS, min_samples, "mode", near)


def say(
    found: AnswerMemory,
    query: str,
    answer: str,
    at: float = NOW,
    *,
    asked: Any = EAST,
    said: Any = EAST,
    model: str = "m",
    **changes: Any,
) -> None:
    """An answer, and its embedding after it."""
    trace = make_trace(1, query=query, answer=answer, **changes)
    wording = WORDINGS.of(trace)
    assert isinstance(wording, HashedWording)
    found.add("bot", wording, at, at)
    vectors = AnswerVectors(pack_vector(asked, model), pack_vector(said, model))
    found.embed("bot", wording, at, WORDINGS.context(trace), vectors)


def saved(found: AnswerMemory, state: dict[str, Any]) -> dict[str, Any]:
    state |= found.drain()
    state["consistency"] = found.dump()
    return json.loads(json.dumps(state))  # type: ignore[no-any-return]


def test_means_of_embeddings_by_hand() -> None:
    found = memory(near=None)
    for said in (EAST, NORTH, BETWEEN):
        say(found, "one", f"words {said}", said=said)
    say(found, "two", "a", said=(3.0, 4.0))
    say(found, "two", "b", said=(3.0, 4.0))
    agreed = found.agreement("bot", "1h")["embedding"]
    # cosines of the pairs of "one": 0, 1/sqrt 2 twice; of "two": 1
    mean = 2**0.5 / 3
    assert agreed.mean == pytest.approx((mean + 1) / 2)
    variance = (mean**2 + 2 * (0.5**0.5 - mean) ** 2) / 3
    assert agreed.variance == pytest.approx(variance)
    assert agreed.variation == pytest.approx(variance**0.5 / mean)
    assert agreed.queries == 2
    assert agreed.lower < agreed.mean < agreed.upper <= 1


def test_an_answer_without_embedding_is_left_out_and_is_no_zero() -> None:
    found = memory(near=None)
    for query in ("one", "two"):
        say(found, query, "a")
        say(found, query, "b")
        wording = WORDINGS.of(make_trace(1, query=query, answer="c"))
        assert isinstance(wording, HashedWording)
        found.add("bot", wording, NOW, NOW)
    agreed = found.agreement("bot", "1h")
    assert agreed["embedding"].mean == pytest.approx(1)
    assert agreed["embedding"].variance is None, "one pair of three"
    assert agreed["rouge1"].variance is not None


def test_answers_of_two_models_are_not_compared() -> None:
    found = memory(near=None)
    for query in ("one", "two"):
        say(found, query, "a", model="old")
        say(found, query, "b", model="new")
    assert set(found.agreement("bot", "1h")) == {"rouge1", "rouge_l"}


def test_an_embedding_that_comes_too_late_is_forgotten() -> None:
    found = memory()
    trace = make_trace(1, query="q", answer="first")
    wording = WORDINGS.of(trace)
    assert isinstance(wording, HashedWording)
    found.add("bot", wording, NOW, NOW)
    for number in range(MAX_ANSWERS):
        say(found, "q", f"a {number}", NOW + (1 + number) * THIN_SECONDS)
    before = [answer.vector for answer in found._remembered["bot"][wording.query].answers]
    vectors = AnswerVectors(pack_vector(NORTH, "m"), pack_vector(NORTH, "m"))
    found.embed("bot", wording, NOW, WORDINGS.context(trace), vectors)
    assert [answer.vector for answer in found._remembered["bot"][wording.query].answers] == before
    found.embed("nobody", wording, NOW, "", vectors)


def test_near_questions_are_one_and_their_answers_are_compared_in_words_and_meaning() -> None:
    found = memory(min_samples=2)
    say(found, "How do I reset my password?", "click forgot", asked=(1.0, 0.0))
    say(found, "Password reset, how?", "click forgot", asked=(1.0, 0.1), said=NORTH)
    say(found, "What does it cost?", "ten", asked=NORTH)
    say(found, "The price?", "twelve", asked=(0.1, 1.0))
    say(found, "Where are you?", "here", asked=BETWEEN)
    assert found.queries("bot", "1h") == (1, 2)
    agreed = found.agreement("bot", "1h")
    assert agreed["rouge1"].mean == pytest.approx((1 + 0) / 2), "the words, across questions"
    assert agreed["embedding"].mean == pytest.approx((0 + 1) / 2)
    assert memory(near=None).queries("bot", "1h") == (0, 0)


def test_without_the_setting_only_the_same_words_are_one() -> None:
    found = memory(near=None)
    say(found, "How do I reset my password?", "click forgot")
    say(found, "Password reset, how?", "click forgot")
    assert found.queries("bot", "1h") == (2, 0)


def test_other_turns_or_tags_are_never_near() -> None:
    found = memory()
    say(found, "one", "a", tags={"tenant": "a"})
    say(found, "two", "b", tags={"tenant": "b"})
    say(found, "three", "c", history=[{"role": "user", "text": "Hello"}])
    assert found.queries("bot", "1h") == (3, 0)
    say(found, "four", "d", tags={"tenant": "b"})
    assert found.queries("bot", "1h") == (2, 1)


def test_a_group_is_near_its_leader_whatever_came_first() -> None:
    """A chain, each near the next: 0, 20 and 40 degrees, with 0.9 at 26 degrees."""
    asked = {"a": (1.0, 0.0), "b": (0.9397, 0.3420), "c": (0.7660, 0.6428)}
    seen = set()
    for order in (("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a")):
        found = memory()
        for query in order:
            say(found, query, "x", asked=asked[query])
        known = found._remembered["bot"]
        seen.add(tuple(group_questions(known)))
        for group in group_questions(known):
            assert all(member in known[group[0]].near for member in group[1:])
    assert len(seen) == 1
    assert sum(map(len, next(iter(seen)))) == 3


def test_no_more_pairs_of_a_group_than_of_a_question_and_each_question_has_its_say() -> None:
    found = memory(min_samples=2)
    for number in range(6):
        for at in range(MAX_ANSWERS):
            say(found, f"form {number}", f"said {number} {at}", NOW + at, said=(1.0, number + 1.0))
    found._questions("bot")
    (pool,) = found._pools.values()
    chosen = pool.within(NOW - 10, NOW + 10)
    assert len(chosen) == MAX_ANSWERS
    assert {answer.at for answer in chosen} == {NOW + MAX_ANSWERS - 1}, (
        "the latest of four questions"
    )
    assert len({answer.vector for answer in chosen}) == MAX_ANSWERS


def test_a_restart_changes_nothing_and_leaves_no_stale_nearness() -> None:
    draw = random.Random(3)
    found, state = AnswerMemory(30, WINDOWS, 2, "mode", 0.9), dict[str, Any]()
    for at in range(240):
        number = draw.randrange(80)
        asked = (1.0, (number % 10) / 2)
        say(found, f"q{number}", draw.choice("abc") + " x", NOW + at, asked=asked, said=asked)
        if at % 40 == 39:
            state = saved(found, state)
            again = AnswerMemory(30, WINDOWS, 2, "mode", 0.9)
            again.load(state)
            again.advance(NOW + at)
            assert list(again.gauges()) == list(found.gauges())
            assert {q: one.near for q, one in again._remembered["bot"].items()} == {
                q: one.near for q, one in found._remembered["bot"].items()
            }
            found = again
    known = found._remembered["bot"]
    assert any(len(group) > 1 for group in group_questions(known))
    for one, other in combinations(known, 2):
        assert (other in known[one].near) == (one in known[other].near)
    found.advance(NOW + 10_000)
    assert found._pools == {}
    state = saved(found, state)
    parts = [part for name, part in state.items() if name.startswith("consistency.")]
    assert all(part["queries"] == {} and "asked" not in part for part in parts)
