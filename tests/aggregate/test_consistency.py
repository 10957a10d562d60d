from __future__ import annotations

import json
import math
import random
from hashlib import blake2b
from typing import Any

import pytest
from ragmeter.aggregate.answer_similarity import MAX_ANSWERS, THIN_SECONDS
from ragmeter.aggregate.consistency import AnswerMemory
from ragmeter.aggregate.wordings import WordingBuilder
from ragmeter.config.inputs import PrivacySettings
from ragmeter.config.scoring import ConsistencySettings
from ragmeter.core.score import HashedWording
from ragmeter.metrics.consistency import similarity_spread

from tests.metrics.help import lexical_similarities
from tests.traces import make_trace

NOW = 1_790_000_000.0
WINDOWS = {"5m": 300.0, "1h": 3600.0}
WORDINGS = WordingBuilder(ConsistencySettings(), PrivacySettings())


def wording(query: str, answer: str) -> HashedWording:
    found = WORDINGS.of(make_trace(1, query=query, answer=answer))
    assert isinstance(found, HashedWording)
    return found


def memory(queries: int = 100, min_samples: int = 2, mode: str = "full") -> AnswerMemory:
    return AnswerMemory(queries, WINDOWS, min_samples, mode)


def saved(found: AnswerMemory, state: dict[str, Any]) -> dict[str, Any]:
    state |= found.drain()
    state["consistency"] = found.dump()
    return json.loads(json.dumps(state))  # type: ignore[no-any-return]


def gauges(found: AnswerMemory) -> dict[tuple[str, ...], float]:
    return {
        (name.removeprefix("rag_consistency_"), *(value for _, value in labels)): value
        for name, labels, value in found.gauges()
    }


def answers(*texts: str) -> Any:
    found = lexical_similarities(texts)
    assert isinstance(found, dict)
    return {name: similarity_spread(values) for name, values in found.items()}


def test_means_are_those_of_the_texts_by_hand() -> None:
    found = memory()
    for at, text in enumerate(("a b c d", "a b c e", "a b x y")):
        assert found.add("bot", wording("one", text), NOW - at, NOW) == "kept"
    for at, text in enumerate(("red", "red")):
        found.add("bot", wording("two", text), NOW - at, NOW)
    found.add("bot", wording("alone", "nothing to compare"), NOW, NOW)
    assert found.queries("bot", "5m") == (1, 2)
    agreed = found.agreement("bot", "5m")
    # ROUGE-1 of the pairs of "one": 3/4, 2/4, 2/4; of "two": 1
    assert agreed["rouge1"].mean == pytest.approx(((0.75 + 0.5 + 0.5) / 3 + 1) / 2)
    variance = sum((x - 7 / 12) ** 2 for x in (0.75, 0.5, 0.5)) / 3
    assert agreed["rouge1"].variance == pytest.approx(variance)
    assert agreed["rouge1"].variation == pytest.approx(math.sqrt(variance) / (7 / 12))
    expected = answers("a b c d", "a b c e", "a b x y")
    assert agreed["rouge_l"].mean == pytest.approx((expected["rouge_l"].mean + 1) / 2)
    assert "rouge2" not in agreed, "one word has no bigrams, and one question is too few"
    assert agreed["rouge1"].lower < agreed["rouge1"].mean < agreed["rouge1"].upper <= 1


def test_a_gauge_needs_enough_questions_and_absent_is_not_zero() -> None:
    found = memory(min_samples=3)
    for number in range(2):
        for at in range(2):
            found.add("bot", wording(f"q{number}", "the same"), NOW - at, NOW)
    assert found.agreement("bot", "1h") == {}
    names = {key[0] for key in gauges(found)}
    assert names == {"queries"}
    for at in range(2):
        found.add("bot", wording("q2", "the same"), NOW - at, NOW)
    shown = gauges(found)
    assert shown["rouge1_mean", "bot", "1h"] == 1
    assert ("rouge1_variance", "bot", "1h") not in shown, "a pair has no variance"
    assert shown["rouge1_ci_lower", "bot", "1h"] < 0.8, "three equal values prove little"


def test_a_dozen_equal_similarities_do_not_prove_that_none_differs() -> None:
    found = memory()
    for number in range(12):
        for at in range(2):
            found.add("bot", wording(f"q{number}", "the same"), NOW - at, NOW)
    agreed = found.agreement("bot", "1h")["rouge1"]
    assert (agreed.mean, agreed.upper) == (1, 1)
    # of questions of which one in twenty has quite another answer, half of the dozens look like it
    assert agreed.lower < 0.8


def test_windows_hold_what_is_in_them() -> None:
    found = memory(min_samples=2)
    for number in range(2):
        found.add("bot", wording(f"q{number}", "old answer"), NOW - 1000, NOW)
        found.add("bot", wording(f"q{number}", "new words"), NOW, NOW)
    assert found.queries("bot", "5m") == (2, 0)
    assert found.queries("bot", "1h") == (0, 2)
    assert found.agreement("bot", "1h")["rouge1"].mean == 0
    found.advance(NOW + 4000)
    assert found.services() == []
    assert list(found.gauges()) == []
    assert found.add("bot", wording("q", "x"), NOW, NOW + 4000) == "late"


def test_a_busy_question_costs_by_the_clock() -> None:
    found = memory()
    outcomes = [found.add("bot", wording("q", f"a {at}"), NOW + at, NOW + at) for at in range(600)]
    assert outcomes[:MAX_ANSWERS] == ["kept"] * MAX_ANSWERS
    assert outcomes.count("kept") == MAX_ANSWERS + (600 - MAX_ANSWERS) // int(THIN_SECONDS)
    known = found._remembered["bot"]
    assert [len(one.answers) for one in known.values()] == [MAX_ANSWERS]


def test_a_sample_of_questions_is_uniform_and_says_so() -> None:
    """Half of the questions are answered alike each time, half never: whatever is kept of them,
    the mean must be near a half."""
    draw, means = random.Random(5), []
    for run in range(10):
        found = memory(queries=60)
        traffic = [number for number in range(400) for _ in range(draw.choice((1, 2, 4)))]
        draw.shuffle(traffic)
        outcomes = set()
        for at, number in enumerate(traffic):
            same = number % 2 == 0
            text = "always the same" if same else f"x{at} y{at} z{at}"
            said = wording(f"{run} {number}", text)
            outcomes.add(found.add("bot", said, NOW + at / 1000, NOW + at / 1000))
        assert outcomes == {"kept", "sampled_out"}
        assert sum(found.queries("bot", "1h")) == 60
        means.append(found.agreement("bot", "1h")["rouge1"].mean)
    # 10 runs of some 36 repeated questions: the standard error is 0.026
    assert sum(means) / len(means) == pytest.approx(0.5, abs=0.09)


def test_what_is_kept_is_the_smallest_hashes_whatever_the_order() -> None:
    said = [wording(f"q{number}", "text") for number in range(300)]
    smallest = sorted(one.query for one in said)[:40]
    for seed in range(3):
        random.Random(seed).shuffle(said)
        found = memory(queries=40)
        for one in said:
            wanted = found.wants("bot", one.query)
            assert (found.add("bot", one, NOW, NOW) == "kept") == wanted
        assert sorted(found._remembered["bot"]) == smallest


def test_a_restart_changes_nothing() -> None:
    found, state = memory(queries=30), dict[str, Any]()
    draw = random.Random(2)
    for at in range(300):
        text = " ".join(draw.choice("abcdef") for _ in range(8))
        found.add(draw.choice(("bot", "other")), wording(f"q{draw.randrange(60)}", text),
                  NOW + at, NOW + at)  # fmt: skip
        if at % 50 == 0:
            state = saved(found, state)
            again = memory(queries=30)
            again.load(state)
            again.advance(NOW + at)
            assert gauges(again) == gauges(found)
            found = again
    assert gauges(found)


def test_parts_are_small_and_what_expired_leaves_nothing_behind() -> None:
    found, state = memory(), dict[str, Any]()
    for number in range(40):
        found.add("bot", wording(f"q{number}", "some words"), NOW, NOW)
    state = saved(found, state)
    assert len(state) > 10, "by the first digit"
    found.add("bot", wording("q1", "some words"), NOW + 1, NOW + 1)
    assert len(found.drain()) == 1
    found.advance(NOW + 10_000)
    state = saved(found, state)
    kept = [part for name, part in state.items() if name.startswith("consistency.")]
    assert all(part["queries"] == {} for part in kept)
    assert state["consistency"]["places"] == {}


def test_what_was_kept_under_other_rules_is_dropped_and_overwritten() -> None:
    found = memory(mode="full")
    found.add("bot", wording("q", "some words"), NOW, NOW)
    state = saved(found, {})
    stricter = memory(mode="off")
    stricter.load(state)
    assert stricter.services() == []
    state = saved(stricter, state)
    assert [part["queries"] for name, part in state.items() if "." in name] == [{}]


def test_fewer_questions_after_a_change_of_the_settings() -> None:
    found = memory(queries=50)
    for number in range(50):
        found.add("bot", wording(f"q{number}", "x"), NOW, NOW)
    less = memory(queries=10)
    less.load(saved(found, {}))
    assert sorted(less._remembered["bot"]) == sorted(found._remembered["bot"])[:10]


def test_hashes_are_spread_over_the_slots() -> None:
    digits = {blake2b(str(n).encode(), digest_size=16).hexdigest()[0] for n in range(500)}
    assert len(digits) == 16


def test_what_several_senders_hold_back_would_not_have_been_remembered() -> None:
    rng = random.Random(4)
    senders, told, owner = [memory(20) for _ in range(3)], memory(20), memory(20)
    sent = 0
    for number in range(6000):
        query = wording(f"question {rng.randrange(400)}", "yes")
        at = NOW + number / 2
        told.add("bot", query, at, at)
        if rng.choice(senders).offer("bot", query.query, at, at):
            owner.add("bot", query, at, at)
            sent += 1
        for one in (told, owner):
            one.advance(at)
    assert sent < 6000 / 4
    assert owner._remembered["bot"].keys() == told._remembered["bot"].keys()
    assert owner.queries("bot", "1h") == told.queries("bot", "1h") == (0, 20)


def test_an_answer_is_offered_again_with_its_batch() -> None:
    sender, query = memory(), wording("one", "yes").query
    offered = [sender.offer("bot", query, NOW + number, NOW + number) for number in range(9)]
    assert offered == [True] * MAX_ANSWERS + [False] * 5
    again = [sender.offer("bot", query, NOW + number, NOW + 9) for number in range(9)]
    assert again == offered
