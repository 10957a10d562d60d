from __future__ import annotations

import io
import time
from types import SimpleNamespace
from typing import cast

import pytest
from ragmeter.aggregate.agent_view import AgentView
from ragmeter.cli.replay_report import describe_progress, judge_report
from ragmeter.config.scoring import JudgeSettings
from ragmeter.console import terminal
from ragmeter.console.streams import escape_control
from ragmeter.console.terminal import FileProgress
from ragmeter.offline.report.tables import agreement_table
from ragmeter.windows.people_agreement import ScorerAgreement
from rich.console import Console

from tests.exporters.fakes import FakeAgent, as_agent_view
from tests.windows.segment_traffic import busy


def test_progress_of_a_file_of_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(terminal, "stderr", Console(file=out, force_terminal=True, width=120))
    with FileProgress("[/b]\x1b]0;x", 100) as bar:
        bar.read(1, 50)
    assert "[/b]" in out.getvalue()
    assert "\x1b]0" not in out.getvalue()


def test_what_could_steer_a_terminal_is_written_out() -> None:
    assert escape_control("a\n日本 \x1b[31m\u202e\r") == "a\n日本 \\x1b[31m\\u202e\\r"


def test_what_was_asked_of_a_judge_says_which_judge_it_is() -> None:
    reading = FakeAgent()
    reading.judges = [{"judge": "judge", "model": "m-1"}]
    reading.counters.inc(
        "ragmeter_judge_verdicts_total", (("judge", "judge"), ("source", "kept")), 3
    )
    with reading.lock():
        (line,) = judge_report(as_agent_view(reading), JudgeSettings())
    assert "Judge m-1: 3 verdicts, 3 of them from the cache" in line.plain


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
    assert text.startswith("replayed until Mon 21 Sep 14:20 UTC: bot 5,000 requests")
