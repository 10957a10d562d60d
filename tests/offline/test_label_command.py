"""`ragmeter label FILE`: questions on the terminal, labels in a file, estimates and agreement."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from ragmeter.cli.main import app
from ragmeter.core.feedback import Verdict
from ragmeter.offline.whole_file import estimate_people
from ragmeter.sampling.slices import draw_slices
from typer.testing import CliRunner

from tests.traces import trace_dict

REFUSAL = "I don't know."
GOOD = "Click Forgot password on the login page [1]."


def write_traces(folder: Path, number: int = 40) -> Path:
    file = folder / "traces.jsonl"
    lines = [
        trace_dict(at, answer=(GOOD, f"It costs {at + 3} euros in Bonn.", REFUSAL)[at % 3])
        for at in range(number)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


class Command:
    """Runs `ragmeter label`; tables go to the descriptor of stdout, past the runner."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, file: Path, *options: str, keys: str = "") -> tuple[int, str]:
        done = CliRunner().invoke(app, ["label", str(file), *options], input=keys)
        return done.exit_code, done.output + "".join(self._capfd.readouterr())


@pytest.fixture
def label(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(capfd)


def test_without_labels_there_is_a_line_and_no_empty_table(tmp_path: Path, label: Command) -> None:
    status, reported = label(write_traces(tmp_path), "--show")
    assert (status, reported.strip()) == (0, "there are no labels yet")


def test_labels_are_stored_one_by_one_and_a_second_call_goes_on(
    tmp_path: Path, label: Command
) -> None:
    file = write_traces(tmp_path)
    status, reported = label(file, "-n", "4", keys="y\nn\ny\nn\ny\ny\nmaybe\n?\ny\nq\n")
    assert status == 0
    assert "1 left" in reported
    out = tmp_path / "traces.jsonl.labels.jsonl"
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["verdict"] for row in rows] == [
        {"grounded": False, "answered": True, "relevant": True},
        {"answered": False, "relevant": True},
        {"grounded": "cannot_tell", "answered": True, "relevant": True},
    ]
    assert {(row["scorer"], row["probability"], row["service"]) for row in rows} == {
        ("people", 0.1, "bot")
    }
    status, reported = label(file, "-n", "4", keys="y\ny\ny\n")
    assert status == 0
    assert len(out.read_text().splitlines()) == 4
    assert "1 of 1" in reported
    assert "people" in reported
    assert "all 40 traces" in reported
    assert label(file, "-n", "4", "--show")[0] == 0


def test_labels_of_another_draw_are_refused(tmp_path: Path, label: Command) -> None:
    file = write_traces(tmp_path)
    label(file, "-n", "4", keys="y\ny\ny\nq\n")
    status, reported = label(file, "-n", "5", keys="q\n")
    assert status == 2
    assert "another draw" in " ".join(reported.split())


def test_a_terminal_is_not_controlled_by_a_trace(tmp_path: Path, label: Command) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(json.dumps(trace_dict(0, answer="\x1b]0;owned\x07 [bold]x[/bold]")) + "\n")
    status, reported = label(file, keys="q\n")
    assert status == 0
    assert "\x1b]" not in reported
    assert "[bold]x[/bold]" in reported


def test_labels_compare_all_scorers_of_a_report(
    tmp_path: Path, label: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    file = write_traces(tmp_path)
    status, reported = label(file, keys="y\ny\ny\n" * 30)
    assert status == 0, reported
    assert "grounding (builtin)" in reported
    scores, labels = tmp_path / "scores.jsonl", tmp_path / "traces.jsonl.labels.jsonl"
    done = CliRunner().invoke(
        app, ["score", str(file), "--feedback", str(labels), "-o", str(scores)]
    )
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in scores.read_text().splitlines()]
    for line in lines:
        line["results"].append(
            {"metric": "grounding", "scorer": "hhem", "state": "scored", "value": 0.5}
        )
    scores.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = CliRunner().invoke(app, ["report", str(scores), "--format", "json"])
    rows = json.loads(capfd.readouterr().out)["runs"][0]["agreement"]
    by_scorer = {(row["metric"], row["scorer"]): row for row in rows}
    assert {("grounding", "hhem"), ("grounding", "builtin"), ("answered", "builtin")} <= {
        *by_scorer
    }
    assert by_scorer["answered", "builtin"]["n"] == 30
    assert by_scorer["grounding", "hhem"]["bias"][0] == -0.5
    page = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", str(scores), "--html", str(page)])
    assert done.exit_code == 0
    assert "agreement with people" in page.read_text()
    assert "not the scorer&#39;s own error" in page.read_text()


@pytest.mark.slow
def test_the_estimate_has_no_bias_and_its_interval_covers() -> None:
    rng = random.Random(7)
    cheap = [rng.random() for _ in range(400)]
    good = [rng.random() < 0.05 + 0.9 * one for one in cheap]
    truth = sum(good) / len(good)
    scores = [{"grounding": one} for one in cheap]
    useless = [{"grounding": 0.5} for _ in cheap]
    values, held = [], [0, 0]
    widths = [0.0, 0.0]
    for _ in range(150):
        drawn = draw_slices(cheap, 30, rng)
        labels = {at: (Verdict(grounded=good[at]), 30 / 400) for at in drawn}
        for at, given in enumerate((useless, scores)):
            ((metric, one, samples),) = estimate_people(given, labels, "mini")
            assert (metric, samples) == ("grounding", 30)
            held[at] += one.lower <= truth <= one.upper
            widths[at] += one.upper - one.lower
            values.append(one.value)
    assert sum(values) / len(values) == pytest.approx(truth, abs=0.02)
    assert min(held) >= 0.92 * 150
    assert widths[1] < 0.97 * widths[0], "the score of all traces narrows it"
