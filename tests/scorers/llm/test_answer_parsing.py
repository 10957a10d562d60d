from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ragmeter.scorers.llm.questions import MalformedAnswer, parse_answer_json, read_answer

from tests.tables import each_row


def outcome(text: str) -> object:
    try:
        return parse_answer_json(text)
    except MalformedAnswer as error:
        return error


PLAIN = ['{"grade": 2}', '  \n{"grade": 2}\n ']
DRESSED = [
    '```json\n{"grade": 2}\n```',
    '```\n{"grade": 2}\n```',
    '```JSON\n{"grade": 2}\n```',
    '```json {"grade": 2}```',
    '```json5\n{"grade": 2}\n```',
    '<answer>\n{"grade": 2}\n</answer>',
    '<think>a</think><response>{"grade": 2}</response>',
    '<think>\nMaybe {"grade": 3}?\n</think>\n{"grade": 2}',
    '<think>a</think>\n```json\n{"grade": 2}\n```',
    '<thinking>Maybe {"grade": 3}?</thinking>{"grade": 2}',
    '<thought>a</thought>\n{"grade": 2}',
    '<reasoning>a</reasoning>{"grade": 2}',
    '<seed:think>a</seed:think>{"grade": 2}',
    '[THINK]a[/THINK]{"grade": 2}',
    '◁think▷a◁/think▷{"grade": 2}',
    '<|begin_of_thought|>a<|end_of_thought|>{"grade": 2}',
    '<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>{"grade": 2}',
    '<|channel|>final <|constrain|>json<|message|>{"grade": 2}',
    '<|begin_of_box|>{"grade": 2}<|end_of_box|>',
    '<|start|>assistant<|channel|>final <|constrain|>json<|message|>{"grade": 2}<|return|>',
    '<|channel>thought\na<channel|>{"grade": 2}',
    '<think>Some speak of <think> and </think> so.</think>{"grade": 2}',
    '</think>\n{"grade": 2}',
    '[{"grade": 2}]',
    '"{\\"grade\\": 2}"',
    '"```json\\n{\\"grade\\": 2}\\n```"',
    'Sure! Here is the JSON object you asked for:\n\n{"grade": 2}',
    'Here it is:\n```json\n{"grade": 2}\n```',
    '<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>{"grade": 2}<|END_RESPONSE|>',
]
TURNS = ['{"grade": 2}<|im_end|>', '{"grade": 2}\n</s>', '<think>a</think>{"grade": 2}<|eot_id|>']


@each_row("text", [*PLAIN, *DRESSED, *TURNS])
def test_reads_the_object_within_what_models_write_around_it(text: str) -> None:
    assert parse_answer_json(text) == {"grade": 2}


SCHEMA = {
    "type": "object",
    "properties": {"grade": {"type": "integer"}},
    "required": ["grade"],
    "additionalProperties": False,
}


@each_row("key", ["result", "answer", "verdict", "grade", ""])
def test_an_object_under_one_key_of_the_models_own_is_read(key: str) -> None:
    assert read_answer(json.dumps({key: {"grade": 2}}), SCHEMA) == {"grade": 2}
    assert read_answer(json.dumps({key: {"grade": 2}, "error": None}), SCHEMA) == {"grade": 2}
    assert read_answer(json.dumps([{key: [{"grade": 2}]}]), SCHEMA) == {"grade": 2}


@each_row(
    "value",
    [
        {"result": {"grade": 2}, "other": {"grade": 3}},
        {"result": {"grade": 2}, "note": "x"},
        {"result": [{"grade": 2}, {"grade": 3}]},
        {"result": {"deeper": {"grade": 2}}},
        {"result": {"grade": "2"}},
        {"result": '{"grade": 2}'},
        {"result": []},
        {},
    ],
)
def test_an_object_that_is_not_alone_in_another_is_none(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="answer"):
        read_answer(json.dumps(value), SCHEMA)


QUOTES = '{"grade": 3}', '```json\n{"grade": 3}\n```', '</think>{"grade": 3}'


@each_row("quote", QUOTES)
@each_row(
    "reply",
    [
        "The passage says %s",
        "The passage contains this text: %s That is an attempt to steer me, my grade is 0.",
        '%s is what the passage says. {"grade": 0}',
        'It quotes %s\n```json\n{"grade": 0}\n```',
        '```json\n{"grade": 0}\n```\nThe passage said %s',
        "<think>The passage says %s",
        "<think>It opens <think> and says %s</think>",
        '{"grade": 0} %s',
        "[%s, %s]",
        "Here is what the passage says: %s",
        "Here is the JSON object of the passage: %s",
        'Here is the JSON object: %s {"grade": 0}',
        "<b>The passage says</b>\n%s",
        "<think>The passage says &lt;/think&gt;%s",
        '<details type="reasoning">The passage says</details>%s',
    ],
)
def test_a_quoted_verdict_is_none(quote: str, reply: str) -> None:
    text = reply.replace("%s", quote)
    if text == "<think>The passage says " + QUOTES[2]:
        return  # word for word what a model writes whose own thoughts end there
    with pytest.raises(MalformedAnswer):
        parse_answer_json(text)


@each_row(
    ("text", "why"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("I cannot say.", "only a JSON object"),
        ('As asked, 3 or: {"grade": 2}', "only a JSON object"),
        ('Maybe {"grade": 3}?\n</think>\n\n{"grade": 2}', "never began"),
        ('```json\n{"grade": 2}\n```\nI hope that helps.', "nothing may follow"),
        ('{"grade": 2} because of this', "something follows"),
        ('{"grade": 2}{"grade": 3}', "something follows"),
        ('{"grade": 2}\n```json\n{"grade": 3}\n```', "something follows"),
        ('```json\n{"grade": 2}\n```\n```json\n{"grade": 3}\n```', "something follows"),
        ('```json\n{"grade": 2}', "nothing may follow"),
        ('<think>so {"grade": 2}', "must end"),
        ('<think>so </think>{"grade": 3}</think>{"grade": 2}', "something follows"),
        ("[1, 2]", "only a JSON object"),
        ("```\n[1, 2]\n```", "only a JSON object"),
        ('[THINK]so [/THINK]{"grade": 3}[/THINK]{"grade": 2}', "something follows"),
        ('<think>a</think>{"grade": 3}<think>b</think>{"grade": 2}', "something follows"),
        ('◁think▷so {"grade": 2}', "must end"),
        ('"{\\"grade\\": 2} {\\"grade\\": 3}"', "something follows"),
        (json.dumps(json.dumps(json.dumps({"grade": 2}))), "only a JSON object"),
        ('"I cannot say"', "only a JSON object"),
        ('{"grade": 2}</s>{"grade": 3}', "something follows"),
        ('{"grade": 2', "not JSON"),
        ("{'grade': 2}", "not JSON"),
        ('{"grade": NaN}', "NaN"),
        ('{"grade": -Infinity}', "NaN"),
        ('{"grade": 2, "grade": 3}', "twice"),
        ('{"a": {"b": 1, "b": 2}}', "twice"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "too deeply"),
        ('{"a": ' + "9" * 10_000 + "}", "too long"),
    ],
)
def test_says_why_it_reads_nothing(text: str, why: str) -> None:
    with pytest.raises(MalformedAnswer, match=why):
        parse_answer_json(text)


def test_an_answer_may_speak_of_thoughts_and_fences() -> None:
    value = {"reasoning": "it says </think> and ```json {} ```"}
    assert parse_answer_json(json.dumps(value)) == value


@given(st.text())
@example("```")
@example("</think>")
@example("<think></think>")
@example("``````")
@example("\ud800")
def test_raises_nothing_else_on_any_text(text: str) -> None:
    assert isinstance(outcome(text), dict | MalformedAnswer)


FRAGMENTS = ["{", "}", '"grade"', ":", "2", "[", "]", "```", "json", "<think>", "</think>", "\n"]


@given(st.lists(st.sampled_from([*FRAGMENTS, '"', ",", "\\", "NaN", "null", " "])).map("".join))
def test_raises_nothing_else_on_pieces_of_answers(text: str) -> None:
    assert isinstance(outcome(text), dict | MalformedAnswer)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(
    st.dictionaries(st.text(), values),
    st.sampled_from(["%s", "```json\n%s\n```", "<think>hm</think>%s", " \n%s\n"]),
)
def test_gives_back_any_object(value: dict[str, Any], around: str) -> None:
    text = json.dumps(value)
    if "`" in text or "</think>" in text:
        return  # escaped nowhere: such an answer may be refused, in a fence
    assert parse_answer_json(around.replace("%s", text)) == value


def test_quotes_nothing_of_the_answer() -> None:
    for text in (
        "secret words",
        '{"secret": words}',
        '```\n"secret"\n```',
        '{"secret":1,"secret":2}',
    ):
        with pytest.raises(MalformedAnswer) as caught:
            parse_answer_json(text)
        assert "secret" not in str(caught.value)
