from __future__ import annotations

import io
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import cast

import pytest
from ragmeter.aggregate.agent_view import AgentView
from ragmeter.cli.tables import (
    alerts_table,
    describe_progress,
    judge_report,
    service_report,
    windows_table,
)
from ragmeter.config.scoring import JudgeSettings
from ragmeter.console import terminal
from ragmeter.console.terminal import FileProgress, escape_control
from ragmeter.offline.report.tables import agreement_table
from ragmeter.windows.people_agreement import ScorerAgreement
from rich.console import Console, RenderableType

from tests.exporters.fakes import FakeAgent, alert, as_agent_view, estimate
from tests.parts.segments.traffic import busy

HOSTILE = "[/foo] [red]x[/]"


def printed(what: RenderableType | None) -> str:
    assert what is not None
    out = io.StringIO()
    Console(file=out, width=300).print(what)
    return out.getvalue()


def hostile() -> FakeAgent:
    reading = FakeAgent()
    reading.fake.table[(HOSTILE, "", "grounding", "builtin", "1h")] = estimate()
    return reading


def test_names_from_traces_and_rules_are_no_markup() -> None:
    reading = hostile()
    reading.alert_list.append(
        alert(rule=HOSTILE, service=HOSTILE, summary=HOSTILE, worst=[HOSTILE])
    )
    with reading.lock():
        tables = (
            windows_table(as_agent_view(reading), HOSTILE, 140),
            alerts_table(as_agent_view(reading).alerts()),
        )
    assert HOSTILE in printed(tables[0])
    assert printed(tables[1]).count("[red]x[/]") == 4


def test_progress_of_a_file_of_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(terminal, "stderr", Console(file=out, force_terminal=True, width=120))
    with FileProgress("[/b]\x1b]0;x", 100) as bar:
        bar.read(1, 50)
    assert "[/b]" in out.getvalue()
    assert "\x1b]0" not in out.getvalue()


def test_what_could_steer_a_terminal_is_written_out() -> None:
    assert escape_control("a\n日本 \x1b[31m\u202e\r") == "a\n日本 \\x1b[31m\\u202e\\r"


def test_a_segment_that_moved_names_the_scorer_without_its_version() -> None:
    agent = SimpleNamespace(
        windows=busy(0.4, version="d8b6cf890c71"),
        segments=["kind"],
        lock=nullcontext,
        alerts=list,
        instruments=list,
    )
    lines = service_report(cast(AgentView, agent), "bot", 200)
    moved = [line for line in map(printed, lines) if "kind=b: answered" in line]
    assert len(moved) == 1
    assert "answered (builtin) fell from" in moved[0]


def test_what_a_judge_scored_says_which_judge_it_is() -> None:
    reading = FakeAgent()
    reading.judges = [{"judge": "judge", "model": "m-1"}]
    reading.counters.inc(
        "ragmeter_judge_verdicts_total", (("judge", "judge"), ("source", "kept")), 3
    )
    for scorer in ("builtin", "umbrela", "umbrela+builtin"):
        reading.fake.table["bot", "", "relevance", scorer, "1h"] = estimate()
    shown = as_agent_view(reading)
    with reading.lock():
        table = printed(windows_table(shown, "bot", 140))
        (line,) = judge_report(shown, JudgeSettings())
    assert "umbrela*" in table
    assert "umbrela+builtin*" in table
    assert "builtin* " not in table.replace("umbrela+builtin*", "")
    assert "* judged by m-1." in table
    assert "Judge m-1: 3 verdicts, 3 of them from the cache" in line.plain


@pytest.mark.parametrize("width", [80, 100, 120, 139, 140])
def test_a_terminal_of_any_width_loses_no_digit(width: int) -> None:
    reading = FakeAgent()
    reading.fake.table["bot", "", "citation_presence", "autonuggetizer", "24h"] = estimate()
    shown, out = as_agent_view(reading), io.StringIO()
    with reading.lock():
        table = windows_table(shown, "bot", width)
    numbers = ("0.000863", "0.000649 … 0.000929") * ((len(table.columns) - 4) // 2)
    table.add_row("cost_usd", "judge+builtin*", "0 to 100 % ↑", *numbers, "143 of 1,548")
    Console(file=out, width=width).print(table)
    for cell in (*numbers, "citation", "autonugg", "143 of", "1,548"):
        assert cell in out.getvalue()


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_agreement_of_scorers_keeps_their_names_and_digits(width: int) -> None:
    auroc, kappa = (0.83, 0.71, 0.94), (-0.57, -0.81, 0.69)
    bias = (-0.25, -0.75, -0.43)
    numbers = (1234, 0.67, bias, 0.61, auroc, kappa, 0.52)
    row = ScorerAgreement("grounded", "grounding", "mini", *numbers)
    out = io.StringIO()
    Console(file=out, width=width).print(agreement_table([row], "Agreement with you"))
    for cell in ("grounding", "mini", "1234", "[-0.75,", "-0.43]", "0.94]", "0.69]", "0.52"):
        assert cell in out.getvalue()


def test_times_say_that_they_are_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        text = describe_progress(cast(AgentView, SimpleNamespace(windows=busy(0.4))))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert text.startswith("replayed until Mon 21 Sep 14:20 UTC: bot 5,000 traces")
