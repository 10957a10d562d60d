"""A model's thoughts are no part of its answer, in whatever form a server leaves them in it."""

from __future__ import annotations

import time

import pytest
from ragmeter.answers.thoughts import find_thoughts, without_spans
from ragmeter.metrics.builtin import PreparedTrace, score_cheap
from ragmeter.trace import Trace

from tests.tables import each_row

ANSWER = "The warranty is 24 months [1]."


def trace(answer: str, **fields: object) -> Trace:
    return Trace.model_validate(
        {"trace_id": "t", "service": "s", "timestamp": 0, "answer": answer, **fields}
    )


@each_row(
    "text",
    [
        f"<think>Maybe 36 [9].</think>\n\n{ANSWER}",
        f"<think>\n\n</think>\n\n{ANSWER}",
        f"<thinking>\nhm\n</thinking>\n{ANSWER}",
        f"hm, so 24.\n</think>\n\n{ANSWER}",  # the template has opened it in the prompt
        f"<THINK>x</THINK>{ANSWER}",
        f"<think >x</think >{ANSWER}",
        f"<thinking type='deep'>x</thinking>{ANSWER}",
        f"<think>x</thinking>{ANSWER}",
        f"\ufeff<think>x</think>{ANSWER}",
        f"&lt;think&gt;x&lt;/think&gt;\n{ANSWER}",
        f"<think>x <think>y</think> z</think>{ANSWER}",
        f"<think>a</think>\n<think>b</think>\n{ANSWER}",
        f"{ANSWER}\n<think>more?</think>",
        f"<think>use `a </think>\n{ANSWER}",
        f"<think>```py\nx</think>\n{ANSWER}",
        f"<seed:think>x</seed:think>{ANSWER}",
        f"<antThinking>x</antThinking>{ANSWER}",
        f"<thought>x</thought>{ANSWER}",
        f"<analysis>\nx\n</analysis>\n{ANSWER}",
        f"<reasoning>x</reasoning><answer>{ANSWER}</answer>",
        f"[THINK]a[/THINK]{ANSWER}",
        f"◁think▷x◁/think▷{ANSWER}",
        f"<|think|>x<|/think|>{ANSWER}",
        f"<|begin_of_thought|>x<|end_of_thought|>\n<|begin_of_solution|>{ANSWER}<|end_of_solution|>",
        f"<|START_THINKING|>x<|END_THINKING|><|START_RESPONSE|>{ANSWER}<|END_RESPONSE|>",
        f"<unused94>thought\nx<unused95>{ANSWER}",
        "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>"
        f"{ANSWER}<|return|>",
        f"analysisWe need x.assistantfinal{ANSWER}",
        f"Thinking...\nabc\n...done thinking.\n\n{ANSWER}",
        f"Here is my thought process:\nabc\nHere is my response:\n{ANSWER}",
        f'<details type="reasoning" done="true">\n> x\n</details>\n{ANSWER}',
        f"<details style='x' open> <summary> Thinking... </summary>\nx\n</details>\n{ANSWER}",
        f"<|channel>thought\nx<channel|>{ANSWER}",
        f"[[ ## reasoning ## ]]\nx\n\n[[ ## response ## ]]\n{ANSWER}\n\n[[ ## completed ## ]]",
        f"[[ ## answer ## ]]\n{ANSWER}\n[[ ## completed ## ]]",
        f"<|begin_of_box|>{ANSWER}<|end_of_box|>",
        f"Thought: look.\nAction: find\nObservation: x\nThought: done.\nFinal Answer: {ANSWER}",
        "<search_quality_reflection>x</search_quality_reflection>\n"
        f"<search_quality_score>5</search_quality_score>\n<result>{ANSWER}</result>",
    ],
)
def test_the_answer_is_what_the_user_read(text: str) -> None:
    assert trace(text).answer == ANSWER


@pytest.mark.parametrize(
    "text",
    [
        "<think>only, and cut off",
        "<think>x</think>\n",
        "<|channel|>analysis<|message|>x",
        "Thinking...\nx",
    ],
)
def test_thoughts_alone_are_an_empty_answer(text: str) -> None:
    thoughts = trace(text)
    assert thoughts.answer == ""
    scores = {score.metric: score.value for score in score_cheap(PreparedTrace(thoughts))}
    assert scores["empty_answer"] == 1.0


@each_row(
    "text",
    [
        ANSWER,
        "Use `<think>` tags.",
        "Models put it between <think> and </think> tags.",
        "```xml\n<think>x</think>\n```\nThat is it.",
        "a < b and c > d",
        "See <analysis> below.",
        "Thinking... is hard; analysis of it, too.",
        "<reasoning> is a tag of XML.",
        "Thought: a word of five letters.\nThe final answer follows.",
        "<details><summary>Prices</summary>\n5 euros\n</details>",
        "<result>x</result>",
        "Write <answer>x</answer>.",
        "DSPy marks a field by [[ ## answer ## ]] in its prompt.",
        "The box is set by <|begin_of_box|> and <|end_of_box|>.",
    ],
)
def test_what_only_speaks_of_thoughts_stays(text: str) -> None:
    assert trace(text).answer == text


def test_citations_move_with_the_answer() -> None:
    text = f"<think>Maybe 36 [9].</think>\n\n{ANSWER}"
    begin = text.index("The warranty")
    citations = [
        {"start": begin, "end": begin + 12, "passage_ids": ["a"]},
        {"start": 8, "end": 12, "passage_ids": ["b"]},
        {"passage_ids": ["c"]},
    ]
    moved = trace(text, citations=citations).citations
    assert moved is not None
    assert [(one.start, one.end, one.passage_ids) for one in moved] == [
        (0, 12, ["a"]),
        (None, None, ["c"]),
    ]


@each_row(
    "piece",
    ["<think>", "</think>", "```", "`a", "<", "<|channel|>", "[THINK]", "[[ ## reasoning ## ]]"],
)
def test_no_text_makes_it_run_on(piece: str) -> None:
    text = piece * 10_000 + "<"
    start = time.process_time()
    without_spans(text, find_thoughts(text))
    assert time.process_time() - start < 2
