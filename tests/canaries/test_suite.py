from __future__ import annotations

import json
from pathlib import Path

import pytest
from ragmeter.canaries.suite import SuiteError, read_suite

EXAMPLE = Path(__file__).parents[2] / "examples" / "canaries.yaml"
GOOD = """service: bot
questions:
  - id: one
    query: How long?
    reference:
      answer: 14 days
"""


def mistake(tmp_path: Path, text: str, name: str = "s.yaml") -> str:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SuiteError) as error:
        read_suite(path)
    return str(error.value).replace(str(path), "S")


def test_the_example_is_a_suite() -> None:
    suite = read_suite(EXAMPLE)
    assert [question.id for question in suite.questions if question.required] == [
        "refund-days",
        "shipping-cost",
    ]
    assert read_suite(EXAMPLE, "other").service == "other"


@pytest.mark.parametrize(
    ("change", "line", "field"),
    [
        (("answer: 14 days", "anwser: 14 days"), 5, "'anwser' is not known; allowed: answer,"),
        (("answer: 14 days", "supports: [{path: a.md}]"), 5, "supports: 'path' is not known"),
        (("answer: 14 days", "checks: [{patterns: ['(']}]"), 5, "no pattern"),
        (("answer: 14 days", "support_groups: [[3]]"), 5, "support group needs indices"),
        (("query: How long?", "qery: How long?"), 3, "questions[0].query: Field required"),
        (("query: How long?", "query: []"), 4, "questions[0].query:"),
        (("service: bot", "service: ''"), 1, "service:"),
        (("service: bot", "servce: bot"), 1, "servce: Extra inputs"),
        (("    query", "    expect: {nonsense: 1}\n    query"), 4, "'nonsense' is not a metric"),
        (("    query", "    expect: {recall_any_at_k: 1}\n    query"), 4, "recall_any_at_k:5"),
        (("    query", "    id: two\n    query"), 4, "'id' is there twice"),
        (("  - id: one", "  - id: one\n   x"), 4, ""),
        (
            ("    query", "    vars: {day: 2026-01-01}\n    query"),
            4,
            "questions[0].vars.day: Object",
        ),
        (
            ("service: bot", "service: bot\nrequest: {body: [.nan]}"),
            2,
            "request.body: Out of range",
        ),
    ],
)
def test_a_mistake_names_file_line_and_field(
    tmp_path: Path, change: tuple[str, str], line: int, field: str
) -> None:
    why = mistake(tmp_path, GOOD.replace(*change))
    first = next(part for part in why.splitlines() if field in part)
    assert first.startswith(f"S:{line}: "), why


def test_two_questions_need_two_ids(tmp_path: Path) -> None:
    twice = GOOD + GOOD.split("questions:\n")[1]
    assert "two questions have the id 'one'" in mistake(tmp_path, twice)


def test_without_ids_questions_are_known_by_their_text(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(GOOD.replace("id: one", "tags: {a: b}"))
    (question,) = read_suite(path).questions
    assert question.id.startswith("q-")


def test_json_lines(tmp_path: Path) -> None:
    lines = [
        {"service": "bot", "response": {"answer": "$"}},
        {"query": "One?", "reference": {"answerable": False}},
        {"query": "Two?", "reference": {"answer": "x"}},
    ]
    path = tmp_path / "s.jsonl"
    path.write_text("\n\n".join(map(json.dumps, lines)))
    suite = read_suite(path)
    assert (suite.response.answer, len(suite.questions)) == ("$", 2)
    lines[2]["reference"] = {"anwser": "x"}
    assert mistake(tmp_path, "\n\n".join(map(json.dumps, lines)), "s.jsonl").startswith("S:5: ")
    path.write_text("\n".join(map(json.dumps, lines[1:2])))
    assert read_suite(path, "bot").service == "bot"
    assert mistake(tmp_path, "{", "s.jsonl").startswith("S:1: ")


@pytest.mark.parametrize("text", ["", "[]", "a", "a: &x [*x]", "\x00"])
def test_what_is_no_suite(tmp_path: Path, text: str) -> None:
    assert mistake(tmp_path, text).startswith("S")
