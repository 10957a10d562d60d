"""A report begins with the eight questions, answered as a running agent answers them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ragmeter.app.exports import render_report
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.offline.report.command import ReportOptions, run_report
from ragmeter.offline.scored_lines import decode_scored_line
from ragmeter.parts.collection import find_kind
from ragmeter.parts.views import QuestionAnswers

from tests.offline.report.recorded import FOREIGN
from tests.parts.questions.samples import HOUR, START, Questions
from tests.scored import line_dict, result

NUMBER = 400
NAMES = ["works", "fast", "answered", "grounded", "retrieved", "cited", "complete", "cost"]


def lines(number: int = NUMBER, good: int = 4) -> list[dict[str, Any]]:
    """Traces of an hour, of which each fourth is judged and every fifth of these is not grounded,
    and of which `good` in five are answered."""
    found = []
    for n in range(number):
        cheap = 0.3 + n % 50 / 100
        results = [
            result("error", float(n % 50 == 0)),
            result("answered", float(n % 5 < good)),
            result("grounding", cheap),
            result("cost_usd", 0.002),
        ]
        if n % 4 == 0:
            value = 0.5 if n % 20 == 0 else 1.0
            judged = {"probability": 0.25, "stratum": "rest:3", "cheap": cheap}
            results.append(result("faithfulness", value, scorer="judge", **judged))
        found.append(
            line_dict(
                n,
                *results,
                timestamp=START + n * HOUR / number,
                timings={"total": 1.0 + n % 10 / 10},
                status="error" if n % 50 == 0 else "ok",
            )
        )
    return found


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def shown(capfd: pytest.CaptureFixture[str], *files: Path, **more: Any) -> str:
    options = ReportOptions(files, parts=PARTS, **more)
    run_report(options, load_settings(environ={}), lambda _: None, render_report)
    return capfd.readouterr().out


def rows_of(text: str) -> dict[str, str]:
    return {
        line.split()[0]: " ".join(line.split())
        for line in text.split("scores")[0].splitlines()
        if line.split()[:1] and line.split()[0] in NAMES
    }


def test_the_eight_rows_come_before_the_details(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = shown(capfd, written(tmp_path / "run.jsonl", lines()))
    rows = rows_of(text)
    assert list(rows) == NAMES
    assert rows["works"].startswith("works 98 % (96 to 99) 99 % every request")
    assert rows["fast"].startswith("fast 1.9")
    assert rows["answered"].startswith("answered 80 % (76 to 84) built-in rules")
    assert rows["grounded"].startswith("grounded 80 % (")
    assert rows["grounded"].endswith("100 verdicts of the judge")
    assert rows["retrieved"].startswith("retrieved not enough yet")
    assert rows["cost"].startswith("cost $2 / 1,000 (2 to 2)")
    assert text.index("answered") < text.index("grounding (builtin)")


def test_the_numbers_are_those_of_a_running_agent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "run.jsonl", lines())
    (run,) = json.loads(shown(capfd, file, form="json"))["runs"]
    asked = Questions()
    asked.apply(decode_scored_line(json.dumps(row).encode(), 2**20).trace for row in lines())
    live = asked.answers()
    assert [one["question"] for one in run["questions"]] == NAMES
    for one in run["questions"]:
        level = live[one["question"]].level
        assert (one["level"] is None) == (level is None), one["question"]
        if level is not None:
            assert one["level"]["window"] == "file"
            assert one["level"]["source"] == level.source
            for key in ("value", "lower", "upper", "samples"):
                assert one["level"][key] == pytest.approx(getattr(level, key)), one["question"]


def test_each_run_has_a_column(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    old = written(tmp_path / "old.jsonl", lines())
    new = written(tmp_path / "new.jsonl", lines(good=3))
    rows = rows_of(shown(capfd, old, new))
    assert rows["answered"] == "answered 80 % (76 to 84) 60 % (55 to 65)"


def test_who_names_a_metric_gets_that_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "run.jsonl", lines())
    text = shown(capfd, file, metrics=("answered",))
    assert "every request" not in text
    assert "run: 400 traces" in text


def test_a_table_of_another_tool_does_not_say_whether_requests_failed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    rows = rows_of(shown(capfd, FOREIGN))
    assert rows["works"].startswith("works not enough yet")
    assert "verdicts of the judge" in rows["answered"]


def test_a_table_says_by_its_columns_which_requests_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.csv"
    rows = [f"t{n},bot,2026-01-15T00:00:00Z,{n % 10 == 0:d}.0,0.0" for n in range(100)]
    file.write_text(
        "\n".join(["trace_id,service,timestamp,error.builtin,timeout.builtin", *rows, ""])
    )
    assert rows_of(shown(capfd, file))["works"].startswith("works 90 %")


def test_the_page_has_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    shown(capfd, written(tmp_path / "run.jsonl", lines()), html=page)
    text = page.read_text("utf-8")
    assert text.index("<h2>Questions</h2>") < text.index("<h2>Numbers</h2>")
    assert "100 verdicts of the judge" in text


def test_without_the_part_there_are_no_rows(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    others = [kind for kind in PARTS if not issubclass(kind, QuestionAnswers)]
    assert (
        list(find_kind(others, QuestionAnswers).of_file(load_settings(environ={})).answers()) == []
    )
    options = ReportOptions([written(tmp_path / "run.jsonl", lines())], parts=others)
    run_report(options, load_settings(environ={}), lambda _: None, render_report)
    assert "every request" not in capfd.readouterr().out
