"""An answer that is JSON is scored by the text that its user read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from ragmeter.answers.json_answers import read_json_answer
from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
from ragmeter.trace import Trace

from tests.tables import each_row

TEXT = 'Refunds take "14 days" after the parcel has reached us.\nReturns are free [1].'
SECOND = "Returns are free."

SAME: list[Any] = [
    {"answer": TEXT},
    {"Answer": TEXT, "confidence": 0.93},
    {"reasoning": "The user wants to know when money comes back to them.", "answer": TEXT},
    {"question": "How long do refunds take, and what do they cost?", "response": TEXT},
    {"final_answer": TEXT, "answer": "draft"},
    {"finalAnswer": TEXT, "sources": ["kb-refunds"]},
    {"output": {"answer": TEXT, "citations": [{"id": 1}]}},
    {"data": {"result": {"text": TEXT}}},
    {"content": [{"type": "text", "text": TEXT}]},
    {"response": json.dumps({"answer": TEXT})},
    {"auskunft": TEXT, "quelle": "kb-refunds"},
    {"explanation_for_user": TEXT, "score": 4, "follow_up_questions": ["What about islands?" * 20]},
    {"antwort": TEXT},
    {"回答": TEXT},
    {"answer": TEXT, "answerable": True, "language": "en"},
    [{"answer": TEXT}],
    {"claims": [{"claim": one, "source": 1} for one in TEXT.split("\n")]},
    {"answer": [{"statement": one, "citations": [1]} for one in TEXT.split("\n")]},
    {"statements": TEXT.split("\n")},
    {"answer": TEXT.split("\n")},
    {"answer": {"paragraphs": [{"text": one} for one in TEXT.split("\n")]}},
]


@each_row("document", SAME)
@each_row(
    "form",
    [
        "{}",
        "```json\n{}\n```",
        "```\n{}```",
        "Here is the answer:\n\n```json\n{}\n```\n",
        "\n {} \n",
    ],
)
def test_the_text_of_its_field_is_read(document: Any, form: str) -> None:
    for indent in (None, 2):
        for ascii_only in (True, False):
            body = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
            assert read_json_answer(form.replace("{}", body, 1)) == TEXT


def test_other_notations_of_an_object_are_read() -> None:
    assert read_json_answer(repr({"answer": TEXT, "ok": True, "of": None})) == TEXT
    assert read_json_answer('{"answer": "Line one\nline two"}') == "Line one\nline two"
    cut = json.dumps({"answer": TEXT})
    assert read_json_answer(cut[:-20]) == TEXT[:-18]
    assert read_json_answer("```json\n" + cut[:-20]) == TEXT[:-18]
    assert read_json_answer('{"thought": "hm", "answer": "Refunds take') == "Refunds take"
    assert read_json_answer('{"answer": 14}') == "14"


@each_row(
    "text",
    [
        "",
        TEXT,
        "[1] says that refunds take 14 days.",
        "[1]",
        "[1, 2]",
        "{name} is the placeholder that you fill in.",
        "{}",
        "[]",
        '{"price": 12.5, "currency": "USD"}',  # a record: every value of it is the answer
        '{"name": "search", "arguments": {"query": "how long do refunds take here"}}',
        '{"tool_calls": [{"text": "how long do refunds take here"}]}',
        'Use this:\n```json\n{"answer": "x"}\n```\nand restart the server, then look again.',
        'Set `{"answer": 1}` in the file.',
        "```python\nprint({'answer': 1})\n```",
        '"A quotation."',
        "{" * 5_000,
        "[" * 100_000,
    ],
)
def test_any_other_answer_stays_as_it_is(text: str) -> None:
    assert read_json_answer(text) is None


@each_row(
    "text",
    [
        '{"answer": ""}',
        '{"answer": null}',
        '{"answer": "  ", "sources": []}',
        '```json\n{"response": ""}\n```',
        '{"answers": []}',
        '{"answer": {}}',
        "null",
        ' "" ',
        '{"answers": [null]}',
        '[{"answer": null}]',
        '{"content": [{"type": "text", "text": ""}]}',
        '{"answer": null, "reason": "The documents do not say it."}',
        "{'respuesta': None}",
        '{"choices": [{"message": {"content": null}}]}',
    ],
)
def test_an_empty_field_is_an_empty_answer(text: str) -> None:
    assert read_json_answer(text) == ""
    trace = make(text)
    assert trace.failed
    assert values(trace)["empty_answer"] == 1.0


def make(answer: str, **more: Any) -> Trace:
    return Trace(
        **{
            "trace_id": "t",
            "service": "s",
            "timestamp": datetime(2026, 11, 28, tzinfo=UTC),
            "query": "How long do refunds take?",
            "passages": [
                {"id": "kb-1", "text": "Refunds take 14 days after the parcel has reached us."},
                {"id": "kb-2", "text": "Returns are free for thirty days; see the label."},
            ],
            "answer": answer,
            **more,
        }
    )


def values(trace: Trace) -> dict[str, float | None]:
    prepared = PreparedTrace(trace)
    scores = [*score_cheap(prepared), *score_builtin(prepared)]
    return {score.metric: score.value for score in scores}


PLAIN = [
    "Refunds take 14 days after the parcel has reached us [1]. Returns are free [2].",
    "Refunds take 90 days, and you pay for returns [1].",
    "I'm sorry, the documents do not say how long refunds take.",
    "Les remboursements prennent 14 jours après l'arrivée du colis.",
]


@pytest.mark.parametrize("plain", PLAIN)
def test_the_same_content_scores_the_same(plain: str) -> None:
    wanted = values(make(plain))
    for document in (
        {"answer": plain},
        {"reasoning": "They ask about money; 99 days would be too long [7].", "output": plain},
        {"language": "en", "text_for_the_user": plain},
    ):
        body = json.dumps(document)
        for answer in (body, f"```json\n{body}\n```"):
            got = values(make(answer))
            assert {name: got[name] is None for name in got} == {
                name: wanted[name] is None for name in wanted
            }
            for name, value in wanted.items():
                assert value is None or abs(value - (got[name] or 0.0)) <= 0.05, name


def test_the_trace_shows_the_answer_as_it_came() -> None:
    raw = json.dumps({"answer": PLAIN[0]})
    trace = make(raw)
    assert trace.answer == raw
    assert trace.answer_text == PLAIN[0]
    assert trace.as_read().answer == PLAIN[0]
    assert make(PLAIN[0]).as_read().answer == PLAIN[0]


def test_citations_move_with_the_text() -> None:
    raw = json.dumps({"answer": SECOND})
    at = raw.index(SECOND)
    given = [
        {"start": at, "end": at + len(SECOND), "passage_ids": ["kb-2"]},
        {"start": 0, "end": 7, "passage_ids": ["kb-2"]},
        {"start": len(raw) - 2, "end": len(raw), "passage_ids": ["kb-1"]},
        {"passage_ids": ["kb-1"]},
    ]
    moved = make(raw, citations=given).as_read().citations or []
    assert [(one.start, one.end) for one in moved] == [
        (0, len(SECOND)),
        (0, 7),
        (None, None),
        (None, None),
    ]
