"""Whether all text is read: what is asked of the scorer, and what its answers amount to."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.scorers.hhem import windowing
from ragmeter.scorers.hhem.windowing import (
    TOKEN_BUDGET,
    Supports,
    TextTooLong,
    WindowedGrounding,
    WindowPlan,
    conclude_grounding,
    grounding_detail,
    plan_windows,
)

PROMPT = 20


def count(text: str) -> int:
    """Like a subword vocabulary: a token for each four letters begun of a word."""
    return sum(-(-len(word) // 4) for word in text.split())


def length(premise: str, hypothesis: str) -> int:
    return PROMPT + count(premise) + count(hypothesis)


def plan_of(answer: str, *passages: str, max_pairs: int = windowing.MAX_PAIRS) -> WindowPlan:
    return plan_windows(answer, passages, count, length, max_pairs)


def need(hypothesis: str) -> str:
    """The sentence that a passage must have for the fake to find the hypothesis supported."""
    return hypothesis.replace("It holds that", "Records show that")


def fake(premise: str, hypothesis: str) -> float:
    return 0.97 if need(hypothesis) in premise else 0.03


def read(plan: WindowPlan, score: Callable[[str, str], float] = fake) -> WindowedGrounding:
    supports: Supports = {}
    while checks := plan.next_checks(supports):
        for check in checks:
            assert length(check.premise, check.hypothesis) == check.tokens
            done = supports.setdefault(check.hypothesis, {})
            assert check.windows not in done
            done[check.windows] = score(check.premise, check.hypothesis)
    return conclude_grounding(plan, supports)


def by_premise(**scores: float) -> Callable[[str, str], float]:
    """A scorer by the premise, with "_" for a line break."""
    return lambda premise, hypothesis: scores[premise.replace("\n", "_")]


# Padding ----------------------------------------------------------------------------------------

FACTS = [f"that case {number} was settled in {1990 + number}." for number in range(4)]
ANSWER = " ".join(f"It holds {fact}" for fact in FACTS)
FILLERS = (
    "The weather stayed dull over the northern hills for most of that week. ",
    "no end in sight and ",
    "Meanwhile, prices rose; nobody minded.\n",
    "lorem, ipsum (dolor) sit: amet ",
    "0123456789abcdef",
    "- item\n",
    '{"key": null, "other": [1, 2, 3]}, ',
    "e.g. No. 5 vs. Fig. 7 ",
)
CUT = 8192  # where the reference cuts
fillers = st.builds(
    lambda filler, chars, shift: (filler * (chars // len(filler) + 2))[shift : shift + chars],
    st.sampled_from(FILLERS),
    st.one_of(st.integers(0, 2_000), st.integers(0, 50_000)),
    st.integers(0, 40),
)


@st.composite
def padded(draw: st.DrawFn) -> tuple[list[str], list[bool]]:
    """Passages with some of the facts, filler up to 50 kB around each, and which facts are there;
    at times everything in one huge passage."""
    present = draw(st.lists(st.booleans(), min_size=4, max_size=4))
    parts = []
    left = 50_000
    for fact, here in zip(FACTS, present, strict=True):
        filler = draw(fillers)[:left]
        left -= len(filler)
        parts.append(f"{filler} {f'Records show {fact} ' if here else ''}")
    parts.append(draw(fillers)[:left])
    order = draw(st.permutations(parts))
    return (["".join(order)] if draw(st.booleans()) else list(order)), present


@settings(max_examples=60, deadline=None)
@given(padded())
def test_padding_hides_nothing_and_supports_nothing(case: tuple[list[str], list[bool]]) -> None:
    passages, present = case
    plan = plan_of(ANSWER, *passages)
    if not plan.windows:
        return
    reading = read(plan)
    assert [finding.support > 0.5 for finding in reading.findings] == present
    for finding, here, fact in zip(reading.findings, present, FACTS, strict=True):
        if here:
            (window,) = finding.windows
            assert fact in passages[window.passage][window.start : window.end]


def test_the_reference_cut_does_hide_text() -> None:
    """The same scorer on joined passages cut at 8192 characters: the test above can fail."""
    padding = FILLERS[0] * 120

    def whole(passages: list[str], hypothesis: str) -> float:
        return fake(" ".join(passages)[:CUT], hypothesis)

    fact, claim = f"Records show {FACTS[0]}", f"It holds {FACTS[0]}"
    assert whole([fact], claim) > 0.5
    assert whole([padding, fact], claim) < 0.5
    assert read(plan_of(claim, padding, fact)).value > 0.5


def test_a_denial_that_is_pushed_out_of_sight_turns_nothing() -> None:
    """A scorer that leans to "consistent" but for a denial is fooled by the cut alone."""

    def lenient(premise: str, hypothesis: str) -> float:
        return 0.05 if "never settled" in premise else 0.6 if "case 0" in premise else 0.1

    passages = ["On case 0 opinions differ. " + FILLERS[0] * 120 + "It was never settled."]
    claim = "It holds that case 0 was settled in 1990."
    assert lenient(" ".join(passages)[:CUT], claim) > 0.5 > lenient(" ".join(passages), claim)


# The plan ---------------------------------------------------------------------------------------

texts = st.lists(st.sampled_from([*FILLERS, "Yes. ", "价格上涨。", " ", "\n"]), max_size=60).map(
    "".join
)


@settings(max_examples=60, deadline=None)
@given(texts, st.lists(texts, max_size=4))
def test_every_character_is_in_a_window_that_fits_every_sentence(
    answer: str, passages: list[str]
) -> None:
    plan = plan_of(answer, *passages)
    assert plan_of(answer, *passages) == plan
    shown = [window.text for window in plan.windows]
    if plan.sentences:
        for passage in passages:
            held = {
                at
                for text in shown
                for found in re.finditer(f"(?={re.escape(text)})", passage)
                for at in range(found.start(), found.start() + len(text))
            }
            assert all(at in held for at, sign in enumerate(passage) if not sign.isspace())
    for sentence in plan.sentences:
        for text in shown:
            assert length(text, sentence.text) <= TOKEN_BUDGET
        assert bool(shown) <= len(plan.choices[sentence.text]) <= windowing.MAX_WINDOWS


def test_sentences_come_without_markers_and_list_signs() -> None:
    plan = plan_of("Sure! It opens at nine [1][2]. It was so.\n- Entry is free 【3】 .", "p")
    assert [sentence.text for sentence in plan.sentences] == ["It opens at nine.", "Entry is free."]
    assert plan.sentences[0].start == 6


def test_an_answer_that_claims_nothing_has_no_sentences() -> None:
    assert plan_of("It was so.", "p").sentences == []


def test_blank_passages_are_left_out_and_equal_texts_are_asked_once() -> None:
    plan = plan_of("One fact. One fact. Another.", "same", " \n", "", "same")
    assert [(window.passage, window.text) for window in plan.windows] == [(0, "same")]
    assert [check.hypothesis for check in plan.next_checks({})] == ["One fact.", "Another."]
    reading = read(plan, lambda _, hypothesis: 0.3 if hypothesis == "Another." else 0.9)
    assert reading.value == pytest.approx((0.9 + 0.9 + 0.3) / 3)


def test_a_sentence_that_would_crowd_out_the_window_is_asked_in_parts() -> None:
    items = ", ".join(f"article number {n} of the list" for n in range(60))
    plan = plan_of(f"It has {items}.", "A passage.")
    assert len(plan.sentences) > 3
    assert all(sentence.tokens <= windowing.MAX_SENTENCE_TOKENS for sentence in plan.sentences)
    assert " ".join(sentence.text for sentence in plan.sentences) == f"It has {items}."
    assert {(sentence.start, sentence.end) for sentence in plan.sentences} == {(0, 8 + len(items))}


# Bounds -----------------------------------------------------------------------------------------


def test_more_pairs_than_allowed_are_too_long_and_never_read_in_part() -> None:
    claims = " ".join(f"Claim {n} stands." for n in range(10))
    assert read(plan_of(claims, *"abcde", max_pairs=40)).pairs == 40
    with pytest.raises(TextTooLong):
        plan_of(f"{claims} And another one stands.", "a", max_pairs=40)


@pytest.mark.parametrize("answer", ["word " * 5_000, "So it is. " * 400])
def test_an_answer_that_is_not_read_whole_is_too_long(answer: str) -> None:
    with pytest.raises(TextTooLong):
        plan_of(answer, "a passage")


def test_far_too_much_text_is_seen_before_any_is_cut() -> None:
    def never(text: str) -> int:
        assert len(text) < 100
        return count(text)

    with pytest.raises(TextTooLong):
        plan_windows("A claim.", ["x" * (windowing.MAX_PASSAGE_CHARS + 1)], never, length)


def test_a_prompt_that_leaves_no_room_for_a_window_is_too_long() -> None:
    with pytest.raises(TextTooLong):
        plan_windows("A claim.", ["p"], count, length, budget=PROMPT + 100)


def test_200_kb_against_a_long_answer_are_within_the_bound() -> None:
    claims = " ".join(f"Claim {n} stands." for n in range(200))
    passage = "".join(f"{n} {FILLERS[0]}" for n in range(200_000 // len(FILLERS[0])))
    plan = plan_of(claims, passage)
    assert len(plan.windows) > 100
    assert read(plan).pairs <= windowing.MAX_PAIRS


# Which windows a sentence is held against ---------------------------------------------------------


def test_a_sentence_is_held_against_the_windows_that_share_most_of_its_rare_words() -> None:
    passages = [
        "The harbour was quiet that year.",
        "The ferry was built in 1902 at Gdansk.",
        "Nothing of the kind.",
        "The ferry left the harbour.",
        "A ferry of 1902 lay at the harbour of Gdansk.",
        "Gdansk has a ferry.",
    ]
    plan = plan_of("The ferry was built at Gdansk in 1902. The quiet harbour.", *passages)
    assert {text: list(chosen) for text, chosen in plan.choices.items()} == {
        # the first passage shares nothing, the fourth less than 0.4 of what the second does
        "The ferry was built at Gdansk in 1902.": [1, 4, 5],
        "The quiet harbour.": [0, 4, 3],  # of two that share as much, the one on the other sentence
    }


def test_a_sentence_that_shares_no_word_is_held_against_the_first_passages() -> None:
    plan = plan_of("Entirely otherwise.", *"abcde")
    assert plan.choices == {"Entirely otherwise.": [0, 1, 2]}


def test_windows_that_could_add_nothing_are_not_read() -> None:
    plan = plan_of("A claim.", "aa", "bb", "cc")
    assert [read(plan, by_premise(aa=first, bb=0.6, cc=0.6)).pairs for first in (0.99, 0.98)] == [
        1,
        3,
    ]


# What the answers amount to ---------------------------------------------------------------------


def test_the_value_is_the_mean_of_what_the_best_window_gives_each_sentence() -> None:
    plan = plan_of("First claim. Second claim.", "aa", "bb", "cc")
    supports: Supports = {
        "First claim.": {(0,): 0.2, (1,): 0.9, (2,): 0.1},
        "Second claim.": {(0,): 0.05, (1,): 0.02, (2,): 0.3},
    }
    reading = conclude_grounding(plan, supports)
    assert reading.value == pytest.approx((0.9 + 0.3) / 2)
    assert [finding.windows[0].passage for finding in reading.findings] == [1, 2]
    assert reading.pairs == 6


def test_a_claim_that_takes_two_passages_gets_a_second_look() -> None:
    plan = plan_of("A fine claim. A joint claim.", "aa", "bb", "cc")
    supports: Supports = {
        "A fine claim.": {(0,): 0.9, (1,): 0.1, (2,): 0.1},
        "A joint claim.": {(0,): 0.1, (1,): 0.3, (2,): 0.4},
    }
    (look,) = plan.next_checks(supports)
    assert (look.hypothesis, look.windows) == ("A joint claim.", (1, 2))
    assert look.premise == "bb\ncc"
    assert look.tokens == length(look.premise, look.hypothesis)
    supports["A joint claim."][1, 2] = 0.8
    assert plan.next_checks(supports) == []
    reading = conclude_grounding(plan, supports)
    assert [round(finding.support, 2) for finding in reading.findings] == [0.9, 0.8]
    assert [window.passage for window in reading.findings[1].windows] == [1, 2]
    assert reading.pairs == 7
    supports["A joint claim."][1, 2] = 0.2
    assert conclude_grounding(plan, supports).findings[1].support == 0.4


def test_a_second_look_joins_no_windows_that_overlap() -> None:
    passage = " ".join(f"Sentence number {n} of a long text." for n in range(100))
    plan = plan_of("A joint claim.", passage)
    assert plan.choices == {"A joint claim.": [0, 1, 2]}
    done: Supports = {"A joint claim.": {(0,): 0.3, (1,): 0.2, (2,): 0.1}}
    (look,) = plan.next_checks(done)
    assert look.windows == (0, 2)
    assert read(plan_of("A joint claim.", "only one")).pairs == 1


def test_the_evidence_names_the_worst_sentence_and_where_it_was_best_supported() -> None:
    plan = plan_of("Good claim. Bad claim [1].", "aa", "bb")
    supports: Supports = {
        "Good claim.": {(0,): 0.9, (1,): 0.2},
        "Bad claim.": {(0,): 0.10009, (1,): 0.3},
    }
    assert grounding_detail(conclude_grounding(plan, supports), ["p-1", "p-2"]) == {
        "worst_sentence": {
            "index": 1,
            "text": "Bad claim.",
            "support": 0.3,
            "passage_id": "p-2",
            "start": 0,
            "end": 2,
        },
        "unsupported": 1,
        "of": 2,
        "pairs": 4,
        "sentences": [
            {"from": 12, "to": 26, "support": 0.3, "passage_id": "p-2", "start": 0, "end": 2},
            {"from": 0, "to": 11, "support": 0.9, "passage_id": "p-1", "start": 0, "end": 2},
        ],
    }
    supports["Bad claim."][0, 1] = 0.4
    joined = conclude_grounding(plan, supports)
    worst = grounding_detail(joined, ["p-1", "p-2"])["worst_sentence"]
    assert worst["passage_id"] == "p-1"
    assert worst["joined_with"] == {"passage_id": "p-2", "start": 0, "end": 2}


def test_the_evidence_is_bounded() -> None:
    claims = " ".join(f"Claim {n} {'very ' * 60}long." for n in range(30))
    plan = plan_of(claims, "aa")
    shown = grounding_detail(read(plan, by_premise(aa=0.1)), ["p"])
    assert len(shown["sentences"]) == windowing.MAX_DETAIL_SENTENCES
    assert len(shown["worst_sentence"]["text"]) == windowing.MAX_DETAIL_TEXT
