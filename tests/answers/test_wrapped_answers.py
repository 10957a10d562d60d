"""What is around an answer in a raw reply is not scored."""

from __future__ import annotations

import json
import time

from ragmeter.answers.json_answers import read_answer_text, read_json_sources
from ragmeter.answers.wrapped_answers import read_wrapped_answer

from tests.tables import each_row

TEXT = "The warranty of the kettle is 24 months from the date of purchase [1]."
INNER = json.dumps({"answer": TEXT, "sources": ["d1"]})

WRAPPED = {
    "end of a sequence": f"{TEXT}</s>",
    "ChatML": f"{TEXT}<|im_end|>",
    "ChatML, whole": f"<|im_start|>assistant\n{TEXT}<|im_end|>\n",
    "Llama 3": f"<|start_header_id|>assistant<|end_header_id|>\n\n{TEXT}<|eot_id|>",
    "Llama 2": f"[/INST] {TEXT} </s>",
    "Gemma": f"<start_of_turn>model\n{TEXT}<end_of_turn>",
    "a label": f"Final Answer: {TEXT}",
    "a bold label": f"**Answer:** {TEXT}",
    "a label on a line": f"Answer:\n{TEXT}",
    "a role": f"Assistant: {TEXT}",
    "another role": f"AI: {TEXT}",
    "steps of an agent": "Thought: It may be 36 months.\nAction: search\nAction Input: kettle\n"
    f"Observation: 99 pages\nThought: I now know the final answer\nFinal Answer: {TEXT}",
    "fields of DSPy": f"[[ ## reasoning ## ]]\nIt says 36.\n\n[[ ## answer ## ]]\n{TEXT}\n\n"
    "[[ ## completed ## ]]",
    "a fence of Markdown": f"```markdown\n{TEXT}\n```",
    "a message of LangChain": f"content={TEXT!r} additional_kwargs={{}} response_metadata={{}}",
    "an object of pydantic": f"AnswerWithSources(answer={TEXT!r}, sources=['d1'])",
    "JSON in marks": f"<|im_start|>assistant\n{INNER}<|im_end|>",
    "JSON behind a label": f"Final Answer: {INNER}",
    "JSON in an object": f"Result(output={INNER!r})",
    "JSON with a spare comma": f'{{"answer": {json.dumps(TEXT)}, "sources": ["d1"],}}',
    "two lines of JSON": f'{INNER}\n{{"follow_ups": ["How do I register the kettle?"]}}',
    "TOML": f"answer = {json.dumps(TEXT)}\nconfidence = 0.9\n",
}


@each_row("form", WRAPPED)
def test_the_text_inside_is_read(form: str) -> None:
    assert read_answer_text(WRAPPED[form]).strip() == TEXT


def test_tags_of_cohere_become_markers() -> None:
    text = "It lasts <co: 0>24 months</co: 0> and <co: 0,1>needs no care</co: 0,1>."
    assert read_answer_text(text) == "It lasts 24 months [0] and needs no care [0,1]."


def test_sources_within_marks_are_read() -> None:
    for form in ("JSON in marks", "JSON behind a label"):
        assert read_json_sources(WRAPPED[form], TEXT) == [(None, None, ["d1"])]


@each_row(
    "text",
    [
        TEXT,
        "",
        "```python\nprint('The answer')\n```",
        "Use <|endoftext|> as the separator between two documents.",
        "The form is Question: and then Answer: on the next line.",
        "Call Client(timeout=3) to wait longer.",
        "Human: hi\nAI: hello",
        "(24 months)",
        'x = "24 months"',
    ],
)
def test_any_other_answer_stays_as_it_is(text: str) -> None:
    assert read_answer_text(text) == text


@each_row(
    "text",
    [
        "<|" + " " * 190_000 + "x",
        "Answer:" + "\n" * 190_000,
        "```md\n" + "\n```" * 40_000 + "x",
        "[[ ## " * 30_000,
        "A(b='" + "\\'" * 90_000,
        "Thought:" + "\nFinal Answer:" * 10_000,
        '{"a":' + ", " * 90_000,
        "content='" + "\\\\" * 90_000,
    ],
)
def test_hostile_texts_take_no_time(text: str) -> None:
    began = time.process_time()
    read_wrapped_answer(text)
    read_answer_text(text)
    assert time.process_time() - began < 2
