"""`ragmeter score --feedback`: labels of a file beside the traces of a file."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from ragmeter.cli.main import app
from typer.testing import CliRunner

from tests.traces import START, trace_line

LABELS: list[dict[str, Any]] = [
    {"trace_id": "t1", "timestamp": START + 2, "answer": {"helpful": False}},
    {"trace_id": "t1", "timestamp": START + 1, "answer": {"helpful": True, "incomplete": True}},
    {"trace_id": "t1", "timestamp": START, "scorer": "tickets", "answer": {"helpful": True}},
    {"trace_id": "t2", "timestamp": START, "service": "faq", "answer": {"helpful": True}},
    {
        "trace_id": "t2",
        "timestamp": START,
        "passages": {"kb-2": {"evidence_sufficient": True}, "other": {"misleading": True}},
        "probability": 0.5,
    },
    {"trace_id": "t404", "timestamp": START, "answer": {"helpful": True}},
]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traces.jsonl").write_bytes(trace_line(1) + b"\n" + trace_line(2))
    text = "".join(json.dumps(one) + "\n" for one in LABELS) + "{}\n"
    (tmp_path / "labels.jsonl").write_text(text)
    return tmp_path


def score(*options: str) -> str:
    done = CliRunner().invoke(
        app, ["score", "traces.jsonl", "--feedback", "labels.jsonl", *options]
    )
    assert done.exit_code == 0, done.output
    return done.output


def test_labels_are_results_of_their_traces(files: Path) -> None:
    reported = score("-o", "out.jsonl")
    assert "2 of 6 items of feedback have no trace" in reported
    assert "item 7: invalid_feedback" in reported
    found = [
        {
            (one["metric"], one["scorer"]): one
            for one in json.loads(line)["results"]
            if one["scorer"] in ("human", "tickets")
        }
        for line in (files / "out.jsonl").read_text().splitlines()
    ]
    assert {key: one["value"] for key, one in found[0].items()} == {
        ("helpfulness", "human"): 0,
        ("incompleteness", "human"): 1,
        ("helpfulness", "tickets"): 1,
    }
    hit = found[1]["sufficiency_hit_at_k", "human"]
    assert (hit["value"], hit["k"], hit["probability"]) == (1, 5, 0.5)
    assert "helpfulness" not in {metric for metric, _ in found[1]}


def test_columns_of_every_scorer(files: Path) -> None:
    score("-o", "out.csv", "--format", "csv")
    with (files / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["helpfulness.human"] for row in rows] == ["0.0", ""]
    assert [row["helpfulness.tickets"] for row in rows] == ["1.0", ""]
    assert [row["sufficiency_hit_at_k:5.human"] for row in rows] == ["", "1.0"]


def test_the_labels_are_not_written_over(files: Path) -> None:
    done = CliRunner().invoke(
        app, ["score", "traces.jsonl", "--feedback", "labels.jsonl", "-o", "labels.jsonl"]
    )
    assert done.exit_code == 2
    assert len((files / "labels.jsonl").read_text().splitlines()) == 7


def test_the_schema_of_feedback() -> None:
    done = CliRunner().invoke(app, ["schema", "feedback"])
    schema = json.loads(done.output)
    assert schema["$id"] == "ragmeter.feedback/1"
    assert schema["required"] == ["trace_id", "timestamp"]
    assert {field for one in LABELS for field in one} <= set(schema["properties"])


def test_labels_without_anything_to_join_them_to_are_a_mistake(files: Path) -> None:
    (files / "c.yaml").write_text("feedback: {traces: 0}")
    done = CliRunner().invoke(app, ["run", "-c", "c.yaml", "--feedback", "labels.jsonl"])
    assert done.exit_code == 2
    assert "feedback.traces is 0" in done.output
